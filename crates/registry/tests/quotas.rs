//! ResourceQuotas: what they refuse, with which words, and what they say is used.

use std::sync::Arc;
use std::time::Duration;

use crate::support::Cluster;
use tally_api::options::{DeleteOptions, Format, WriteOptions};
use tally_registry::Target;
use tally_value::{Value, json};

fn limited(hard: &Value) -> Cluster {
    with_quota(&json!({"hard": hard}))
}

fn with_quota(spec: &Value) -> Cluster {
    let cluster = Cluster::new();
    let quota = json!({"metadata": {"name": "q"}, "spec": spec});
    cluster.create(cluster.target("", "resourcequotas", "default", ""), &quota).unwrap();
    cluster
}

fn pod(name: &str, resources: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "a", "image": "i", "resources": resources}]}})
}

/// Empty, or the error.
fn make(cluster: &Cluster, group: &str, plural: &str, object: &Value) -> String {
    match cluster.create(cluster.target(group, plural, "default", ""), object) {
        Ok(_) => String::new(),
        Err(failure) => {
            assert_eq!((failure.code, failure.reason), (403, "Forbidden"), "{}", failure.message);
            failure.message.split_once("is forbidden: ").unwrap().1.to_owned()
        }
    }
}

fn status<'a>(cluster: &Cluster, pod: &'a str) -> Target<'a> {
    let target = cluster.target("", "pods", "default", pod);
    Target { subresource: target.resource.subresource("status"), ..target }
}

fn delete(cluster: &Cluster, plural: &str, name: &str) {
    let options = DeleteOptions { grace_period_seconds: Some(0), ..Default::default() };
    crate::support::now(cluster.registry.delete(cluster.target("", plural, "default", name), &options))
        .map(|_| ())
        .unwrap();
}

/// QUOTA-2, QUOTA-3.
#[test]
fn pods_are_counted_until_they_end_or_are_gone() {
    let cluster = limited(&json!({"pods": "2", "count/pods": "4"}));
    let (none, full) = (json!({}), "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2");
    assert_eq!(make(&cluster, "", "pods", &pod("a", &none)), "");
    assert_eq!(make(&cluster, "", "pods", &pod("b", &none)), "");
    assert_eq!(make(&cluster, "", "pods", &pod("c", &none)), full);
    // A Pod that has ended does not count as one of `pods`, but the object still exists.
    cluster.merge(status(&cluster, "a"), &json!({"status": {"phase": "Succeeded"}})).unwrap();
    assert_eq!(make(&cluster, "", "pods", &pod("c", &none)), "");
    assert_eq!(make(&cluster, "", "pods", &pod("d", &none)), full);
    delete(&cluster, "pods", "b");
    assert_eq!(make(&cluster, "", "pods", &pod("d", &none)), "");
    for name in ["c", "d"] {
        cluster.merge(status(&cluster, name), &json!({"status": {"phase": "Failed"}})).unwrap();
    }
    assert_eq!(make(&cluster, "", "pods", &pod("e", &none)), "");
    let told = "exceeded quota: q, requested: count/pods=1, used: count/pods=4, limited: count/pods=4";
    assert_eq!(make(&cluster, "", "pods", &pod("f", &none)), told);
}

/// QUOTA-3, QUOTA-4.
#[test]
fn amounts_must_be_stated_and_fit() {
    let cluster = limited(&json!({"pods": "1", "requests.cpu": "1", "limits.memory": "1Gi"}));
    let two = json!({"metadata": {"name": "p"}, "spec": {"containers": [
        {"name": "a", "image": "i"}, {"name": "b", "image": "i", "resources": {"requests": {"cpu": "1m"}}}]}});
    assert_eq!(
        make(&cluster, "", "pods", &two),
        "failed quota: q: must specify limits.memory for: a,b; requests.cpu for: a"
    );
    let of = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu}, "limits": {"cpu": "9", "memory": memory}});
    assert_eq!(
        make(&cluster, "", "pods", &pod("p", &of("2", "2Gi"))),
        "exceeded quota: q, requested: limits.memory=2Gi,requests.cpu=2, used: limits.memory=0,requests.cpu=0, \
         limited: limits.memory=1Gi,requests.cpu=1"
    );
    assert_eq!(make(&cluster, "", "pods", &pod("p", &of("500m", "500Mi"))), "");
    assert_eq!(
        make(&cluster, "", "pods", &pod("q", &of("600m", "500Mi"))),
        "exceeded quota: q, requested: pods=1,requests.cpu=600m, used: pods=1,requests.cpu=500m, \
         limited: pods=1,requests.cpu=1"
    );
}

/// QUOTA-2.
#[test]
fn objects_are_counted_by_kind() {
    let cluster = limited(&json!({"count/jobs.batch": "1", "configmaps": "1", "count/secrets": "0"}));
    let named = |name: &str| json!({"metadata": {"name": name}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "i"}]}});
    let job = |name: &str| json!({"metadata": {"name": name}, "spec": {"template": template}});
    assert_eq!(make(&cluster, "batch", "jobs", &job("a")), "");
    assert_eq!(
        make(&cluster, "batch", "jobs", &job("b")),
        "exceeded quota: q, requested: count/jobs.batch=1, used: count/jobs.batch=1, limited: count/jobs.batch=1"
    );
    assert_eq!(make(&cluster, "", "configmaps", &named("a")), "");
    let told = "exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1";
    assert_eq!(make(&cluster, "", "configmaps", &named("b")), told);
    assert!(make(&cluster, "", "secrets", &named("a")).starts_with("exceeded quota: q, requested: count/secrets=1"));
    // A change of the quota applies to the next object, and objects of other kinds are not limited.
    let quota = cluster.target("", "resourcequotas", "default", "q");
    cluster.merge(quota, &json!({"spec": {"hard": {"configmaps": "2"}}})).unwrap();
    assert_eq!(make(&cluster, "", "configmaps", &named("b")), "");
    assert_eq!(make(&cluster, "", "pods", &pod("p", &json!({}))), "");
    delete(&cluster, "resourcequotas", "q");
    assert_eq!(make(&cluster, "", "secrets", &named("a")), "");
}

/// QUOTA-5.
#[test]
fn scopes_choose_the_pods_that_count() {
    let tiny = json!({"requests": {"cpu": "1m"}});
    let with = |mut pod: Value, field: &str, value: Value| {
        pod["spec"][field] = value;
        pod
    };
    let plain = || pod("p", &json!({}));
    for (spec, counted, free) in [
        (json!({"scopes": ["BestEffort"]}), plain(), pod("p", &tiny)),
        (json!({"scopes": ["NotBestEffort"]}), pod("p", &tiny), plain()),
        (json!({"scopes": ["Terminating"]}), with(plain(), "activeDeadlineSeconds", json!(9)), plain()),
        (json!({"scopes": ["NotTerminating"]}), plain(), with(plain(), "activeDeadlineSeconds", json!(9))),
        (
            json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]}}),
            plain(),
            with(plain(), "priorityClassName", json!("system-node-critical")),
        ),
        (
            json!({"scopes": ["CrossNamespacePodAffinity"]}),
            with(
                plain(),
                "affinity",
                json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "k", "namespaces": ["other"], "labelSelector": {}}]}}),
            ),
            plain(),
        ),
    ] {
        let mut spec = spec;
        spec["hard"] = json!({"pods": "0"});
        let cluster = with_quota(&spec);
        assert!(make(&cluster, "", "pods", &counted).starts_with("exceeded quota: q, requested: pods=1"), "{spec}");
        assert_eq!(make(&cluster, "", "pods", &free), "", "{spec}");
    }
}

/// QUOTA-3: an update can bring a Pod into the scope of a quota.
#[test]
fn a_pod_that_enters_a_quota_by_an_update_must_fit() {
    let cluster = with_quota(&json!({"hard": {"pods": "1"}, "scopes": ["Terminating"]}));
    let mut first = pod("a", &json!({}));
    first["spec"]["activeDeadlineSeconds"] = json!(100);
    assert_eq!(make(&cluster, "", "pods", &first), "");
    assert_eq!(make(&cluster, "", "pods", &pod("b", &json!({}))), "");
    let ends = |name: &str, seconds: u32| {
        let target = cluster.target("", "pods", "default", name);
        cluster.merge(target, &json!({"spec": {"activeDeadlineSeconds": seconds}})).map(|_| ())
    };
    ends("a", 50).unwrap();
    let told = ends("b", 50).unwrap_err().message;
    assert!(told.ends_with("exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"), "{told}");
    delete(&cluster, "pods", "a");
    ends("b", 50).unwrap();
}

/// QUOTA-3: amounts whose sum cannot be expressed do not fit, and leave nothing behind.
#[test]
fn amounts_beyond_all_measure_do_not_fit() {
    let cluster = Cluster::new();
    let of = |cpu: &str| json!({"requests": {"cpu": cpu}});
    for (name, cpu) in [("a", "1m"), ("b", "1e36"), ("c", "999999999m")] {
        assert_eq!(make(&cluster, "", "pods", &pod(name, &of(cpu))), "");
    }
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "10"}}});
    cluster.create(cluster.target("", "resourcequotas", "default", ""), &quota).unwrap();
    assert!(make(&cluster, "", "pods", &pod("d", &of("1"))).starts_with("exceeded quota: q"));
    for name in ["b", "c"] {
        delete(&cluster, "pods", name);
    }
    let told = make(&cluster, "", "pods", &pod("d", &of("10")));
    assert_eq!(told, "exceeded quota: q, requested: requests.cpu=10, used: requests.cpu=1m, limited: requests.cpu=10");
    let two = json!({"metadata": {"name": "e"}, "spec": {"containers": [
        {"name": "a", "image": "i", "resources": of("1m")}, {"name": "b", "image": "i", "resources": of("1e36")}]}});
    assert!(make(&cluster, "", "pods", &two).starts_with("exceeded quota: q"));
    assert_eq!(make(&cluster, "", "pods", &pod("d", &of("9"))), "");
}

/// QUOTA-3.
#[test]
fn a_claim_may_not_grow_beyond_a_quota() {
    let cluster =
        limited(&json!({"requests.storage": "10Gi", "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1"}));
    let claim = |name: &str, size: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": size}}}})
    };
    assert_eq!(make(&cluster, "", "persistentvolumeclaims", &claim("a", "6Gi")), "");
    assert_eq!(
        make(&cluster, "", "persistentvolumeclaims", &claim("b", "6Gi")),
        "exceeded quota: q, requested: fast.storageclass.storage.k8s.io/persistentvolumeclaims=1,requests.storage=6Gi, \
         used: fast.storageclass.storage.k8s.io/persistentvolumeclaims=1,requests.storage=6Gi, \
         limited: fast.storageclass.storage.k8s.io/persistentvolumeclaims=1,requests.storage=10Gi"
    );
    let grow = |size: &str| {
        let target = cluster.target("", "persistentvolumeclaims", "default", "a");
        cluster.merge(target, &json!({"spec": {"resources": {"requests": {"storage": size}}}})).map(|_| ())
    };
    assert!(grow("10Gi").unwrap_err().message.contains("spec is immutable after creation"), "it is not bound");
    let target = cluster.target("", "persistentvolumeclaims", "default", "a");
    let target = tally_registry::Target { subresource: target.resource.subresource("status"), ..target };
    cluster.merge(target, &json!({"status": {"phase": "Bound", "capacity": {"storage": "6Gi"}}})).unwrap();
    grow("10Gi").unwrap();
    let told = grow("11Gi").unwrap_err().message;
    assert!(
        told.ends_with("requested: requests.storage=1Gi, used: requests.storage=10Gi, limited: requests.storage=10Gi"),
        "{told}"
    );
}

/// QUOTA-1.
#[test]
fn a_quota_that_means_nothing_is_refused() {
    let cluster = Cluster::new();
    for (spec, expected) in [
        (
            json!({"hard": {"bogus": "1"}}),
            "[spec.hard[bogus]: Invalid value: \"bogus\": must be a standard resource type or fully qualified, \
             spec.hard[bogus]: Invalid value: \"bogus\": must be a standard resource for quota]",
        ),
        (
            json!({"hard": {"requests.cpu": "-1"}}),
            "spec.hard[requests.cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (json!({"hard": {"pods": "1.5"}}), "spec.hard[pods]: Invalid value: \"1500m\": must be an integer"),
        (
            json!({"hard": {"pods": "1", "configmaps": "1"}, "scopes": ["BestEffort", "NotBestEffort"]}),
            "[spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: unsupported scope applied to resource, \
             spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes]",
        ),
        (
            json!({"hard": {"pods": "1"}, "scopes": ["Bogus"]}),
            "spec.scopes: Invalid value: [\"Bogus\"]: unsupported scope",
        ),
        (
            json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In", "values": []},
                {"scopeName": "Nope", "operator": "Weird"}]}}),
            "[spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or \
             'NotIn' for scope selector, spec.scopeSelector.matchExpressions.scopeName: Invalid value: \"Nope\": unsupported scope, \
             spec.scopeSelector.matchExpressions.operator: Invalid value: \"Weird\": not a valid selector operator]",
        ),
    ] {
        let quota = json!({"metadata": {"name": "q"}, "spec": spec});
        let refused =
            cluster.create(cluster.target("", "resourcequotas", "default", ""), &quota).map(|_| ()).unwrap_err();
        assert_eq!(refused.message, format!("ResourceQuota \"q\" is invalid: {expected}"));
    }
    let cluster = limited(&json!({"pods": "1"}));
    let quota = cluster.target("", "resourcequotas", "default", "q");
    let told = cluster.merge(quota, &json!({"spec": {"scopes": ["Terminating"]}})).map(|_| ()).unwrap_err().message;
    assert_eq!(
        told,
        "ResourceQuota \"q\" is invalid: spec.scopes: Invalid value: [\"Terminating\"]: field is immutable"
    );
}

/// QUOTA-3, QUOTA-6: the last place is taken once, however many ask for it at a time, and `status.used` tells what is used.
#[tokio::test]
async fn places_are_taken_once_and_shown() {
    let cluster = limited(&json!({"pods": "10", "count/configmaps": "3"}));
    let target = |plural, name| cluster.target("", plural, "default", name);
    let (pods, quota) = (target("pods", ""), target("resourcequotas", "q"));
    let registry = Arc::new(cluster.registry);
    let create = &|name: String| {
        let body = pod(&name, &json!({})).to_string();
        crate::support::now(registry.create(pods, body.as_bytes(), Format::Json, &WriteOptions::default())).is_ok()
    };
    let made = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| scope.spawn(move || (0..20).filter(|number| create(format!("p{thread}-{number}"))).count()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(made, 10);
    let status = tokio::spawn(registry.clone().keep_quota_status());
    let expected = json!({
        "hard": {"pods": "10", "count/configmaps": "3"}, "used": {"pods": "10", "count/configmaps": "0"},
    });
    let shown = || registry.get(quota, Default::default()).unwrap().parse()["status"].clone();
    for _ in 0..1000 {
        if shown() == expected {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(shown(), expected);
    status.abort();
}

/// An update in flight is counted once, before and after it is stored.
#[test]
fn updates_that_fit_together_are_all_accepted() {
    let cluster = limited(&json!({"services.nodeports": "16"}));
    let service =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}});
    let names: Vec<String> = (0..16).map(|number| format!("s{number}")).collect();
    for name in &names {
        assert_eq!(make(&cluster, "", "services", &service(name)), "");
    }
    let cluster = &cluster;
    std::thread::scope(|scope| {
        let threads: Vec<_> = names
            .iter()
            .map(|name| {
                let change = json!({"spec": {"type": "NodePort"}});
                scope.spawn(move || cluster.merge(cluster.target("", "services", "default", name), &change).map(|_| ()))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    });
}
