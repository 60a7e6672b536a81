//! Terminating namespaces on the real registry.

use crate::support::{Cluster, kinds};
use serde_json::{Value, json};
use tally_controllers::gc::GarbageCollector;
use tally_controllers::namespace::Namespaces;
use tally_controllers::service_account;
use tally_runtime::controller::{Controller, Kind, Refusal, Reply};

/// All content, Events included.
fn content() -> Vec<Kind> {
    [kinds(), vec![Kind::EVENT]].concat()
}

fn started() -> Cluster {
    Cluster::new(vec![Box::new(Namespaces::new(content()))])
}

fn make(cluster: &Cluster, name: &str, finalizers: &[&str]) {
    cluster.create(Kind::NAMESPACE, "", &json!({"metadata": {"name": name, "finalizers": finalizers}}));
}

fn configmap(cluster: &Cluster, namespace: &str, name: &str, finalizers: &[&str]) {
    let object = json!({"metadata": {"name": name, "finalizers": finalizers}});
    cluster.create(Kind::CONFIG_MAP, namespace, &object);
}

/// Deletes it, and waits for the time during which it is left alone.
fn end(cluster: &mut Cluster, name: &str) {
    cluster.delete(Kind::NAMESPACE, "", name, &Value::Null);
    cluster.pass(5);
}

fn is_there(cluster: &Cluster, name: &str) -> bool {
    cluster.get(Kind::NAMESPACE, "", name).is_some()
}

/// `Type=Status: Message` of the conditions.
fn conditions(cluster: &Cluster, name: &str) -> Vec<String> {
    let namespace = cluster.get(Kind::NAMESPACE, "", name).unwrap();
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap().to_owned();
    let line = |condition: &Value| {
        format!("{}={}: {}", text(condition, "type"), text(condition, "status"), text(condition, "message"))
    };
    namespace["status"]["conditions"].as_array().unwrap().iter().map(line).collect()
}

#[test]
fn a_namespace_goes_with_everything_in_it() {
    let mut cluster = started();
    make(&cluster, "a", &[]);
    make(&cluster, "b", &[]);
    for namespace in ["a", "b"] {
        configmap(&cluster, namespace, "c", &[]);
        cluster.create(Kind::POD, namespace, &Cluster::pod("p", None));
        let about = json!({"kind": "Pod", "namespace": namespace, "name": "p"});
        let event = json!({"metadata": {"name": "e"}, "involvedObject": about, "reason": "r", "type": "Normal"});
        cluster.create(Kind::EVENT, namespace, &event);
    }
    cluster.settle();
    assert!(cluster.log.is_empty());
    end(&mut cluster, "a");
    assert!(!is_there(&cluster, "a"));
    for kind in content().into_iter().filter(|kind| kind.namespaced) {
        assert!(cluster.list(kind, "a").is_empty(), "{kind:?}");
    }
    assert!(is_there(&cluster, "b"));
    assert_eq!([Kind::CONFIG_MAP, Kind::POD, Kind::EVENT].map(|kind| cluster.list(kind, "b").len()), [1, 1, 1]);
}

#[test]
fn what_is_held_holds_the_namespace() {
    let mut cluster = started();
    make(&cluster, "a", &[]);
    configmap(&cluster, "a", "hold", &["x.io/f"]);
    end(&mut cluster, "a");
    assert_eq!(
        conditions(&cluster, "a"),
        [
            "NamespaceDeletionDiscoveryFailure=False: All resources successfully discovered",
            "NamespaceDeletionGroupVersionParsingFailure=False: All legacy kube types successfully parsed",
            "NamespaceDeletionContentFailure=False: All content successfully deleted, may be waiting on finalization",
            "NamespaceContentRemaining=True: Some resources are remaining: configmaps. has 1 resource instances",
            "NamespaceFinalizersRemaining=True: Some content in the namespace has finalizers remaining: \
         x.io/f in 1 resource instances",
        ]
    );
    let again = cluster.delete(Kind::NAMESPACE, "", "a", &Value::Null);
    assert_eq!(again["status"]["phase"], "Terminating");
    cluster.pass(3600);
    assert!(is_there(&cluster, "a"));
    cluster.merge(Kind::CONFIG_MAP, "a", "hold", &json!({"metadata": {"finalizers": null}}));
    cluster.settle();
    assert!(!is_there(&cluster, "a"), "at once");
}

#[test]
fn a_finalizer_of_the_namespace_is_left_to_its_controller() {
    let mut cluster = started();
    make(&cluster, "a", &["x.io/f"]);
    end(&mut cluster, "a");
    let namespace = cluster.get(Kind::NAMESPACE, "", "a").unwrap();
    assert_eq!((&namespace["spec"], &namespace["status"]["phase"]), (&json!({}), &json!("Terminating")));
    assert_eq!(namespace["metadata"]["finalizers"], json!(["x.io/f"]));
    assert!(conditions(&cluster, "a").iter().all(|condition| condition.contains("=False: ")));
    let asked = cluster.log.len();
    cluster.pass(3600);
    assert_eq!(cluster.log.len(), asked, "nothing is left to do");
    cluster.merge(Kind::NAMESPACE, "", "a", &json!({"metadata": {"finalizers": null}}));
    assert!(!is_there(&cluster, "a"));
}

#[test]
fn pods_get_their_grace_period_and_the_rest_outlives_them() {
    let mut cluster = started();
    make(&cluster, "a", &[]);
    cluster.create(Kind::POD, "a", &Cluster::pod("p", Some("n")));
    configmap(&cluster, "a", "c", &[]);
    end(&mut cluster, "a");
    cluster.pass(20);
    assert_eq!((cluster.list(Kind::POD, "a").len(), cluster.list(Kind::CONFIG_MAP, "a").len()), (1, 1));
    let remaining = conditions(&cluster, "a")[3].clone();
    assert_eq!(
        remaining,
        "NamespaceContentRemaining=True: Some resources are remaining: pods. has 1 resource instances"
    );
    cluster.delete(Kind::POD, "a", "p", &json!({"gracePeriodSeconds": 0}));
    cluster.settle();
    assert!(!is_there(&cluster, "a"));
}

#[test]
fn with_the_other_controllers_at_work() {
    let accounts = || Box::new(service_account::controller()) as Box<dyn Controller>;
    let gc = || Box::new(GarbageCollector::new(kinds())) as Box<dyn Controller>;
    let mut cluster = Cluster::new(vec![accounts(), Box::new(Namespaces::new(content())), gc()]);
    for nth in 0..40 {
        let name = format!("n{nth}");
        make(&cluster, &name, &[]);
        cluster.settle();
        assert_eq!(cluster.list(Kind::SERVICE_ACCOUNT, &name).len(), 1);
        let owner = cluster.create(Kind::CONFIG_MAP, &name, &json!({"metadata": {"name": "c"}}));
        let mut pod = Cluster::pod("p", None);
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": true,
        }]);
        cluster.create(Kind::POD, &name, &pod);
    }
    (0..40).for_each(|nth| drop(cluster.delete(Kind::NAMESPACE, "", &format!("n{nth}"), &Value::Null)));
    cluster.pass(5);
    let left = cluster.list(Kind::NAMESPACE, "");
    assert_eq!(left.len(), 4, "those that a cluster begins with: {left:?}");
}

#[test]
fn neither_trouble_nor_a_restart_keeps_a_namespace() {
    for seed in 0..20_u32 {
        let mut cluster = started();
        make(&cluster, "a", &[]);
        configmap(&cluster, "a", "c", &[]);
        cluster.create(Kind::POD, "a", &Cluster::pod("p", None));
        let mut asked = seed;
        cluster.intercept = Box::new(move |_| {
            asked = asked.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match (asked >> 16) % 50 {
                0 => Some(Reply::Unknown),
                1 => Some(Reply::Refused(Refusal { code: 500, ..Refusal::default() })),
                2 => Some(Reply::Refused(Refusal { code: 409, ..Refusal::default() })),
                _ => None,
            }
        });
        end(&mut cluster, "a");
        cluster.stop();
        cluster.start(Box::new(Namespaces::new(content())));
        cluster.pass(600);
        assert!(!is_there(&cluster, "a"), "{seed}");
    }
}

#[test]
fn a_stream_that_stands_still_only_costs_time() {
    let mut cluster = started();
    make(&cluster, "a", &[]);
    configmap(&cluster, "a", "hold", &["x.io/f"]);
    cluster.held.insert(Kind::CONFIG_MAP);
    end(&mut cluster, "a");
    cluster.merge(Kind::CONFIG_MAP, "a", "hold", &json!({"metadata": {"finalizers": null}}));
    cluster.pass(70);
    assert!(!is_there(&cluster, "a"));
}
