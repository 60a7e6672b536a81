//! The objects that every namespace has, on the real registry.

use crate::support::Cluster;
use serde_json::{Value, json};
use tally_controllers::{root_ca, service_account};
use tally_runtime::controller::{Kind, Refusal, Reply, Verb};

const ACCOUNT: (Kind, &str) = (Kind::SERVICE_ACCOUNT, "default");
const MAP: (Kind, &str) = (Kind::CONFIG_MAP, "kube-root-ca.crt");

fn cluster() -> Cluster {
    Cluster::new(vec![Box::new(service_account::controller()), Box::new(root_ca::controller("PEM".to_owned()))])
}

fn make_namespace(cluster: &mut Cluster, name: &str) {
    cluster.create(Kind::NAMESPACE, "", &json!({"metadata": {"name": name}}));
    cluster.settle();
}

fn uid(cluster: &Cluster, (kind, name): (Kind, &str), namespace: &str) -> Option<Value> {
    cluster.get(kind, namespace, name).map(|object| object["metadata"]["uid"].clone())
}

#[test]
fn every_namespace_has_them_and_gets_them_back() {
    let mut cluster = cluster();
    make_namespace(&mut cluster, "new");
    for namespace in ["default", "kube-system", "new"] {
        let map = cluster.get(MAP.0, namespace, MAP.1).expect("a ConfigMap");
        assert_eq!(map["data"], json!({"ca.crt": "PEM"}));
        for what in [ACCOUNT, MAP] {
            let first = uid(&cluster, what, namespace).expect("created");
            cluster.delete(what.0, namespace, what.1, &Value::Null);
            cluster.settle();
            let second = uid(&cluster, what, namespace).expect("created again");
            assert_ne!(first, second);
        }
    }
    let asked = cluster.log.len();
    cluster.pass(1000);
    assert_eq!(cluster.log.len(), asked, "at rest");
}

#[test]
fn a_changed_certificate_is_put_right_even_against_other_writers() {
    let mut cluster = cluster();
    cluster.held.insert(Kind::CONFIG_MAP);
    for text in ["one", "two"] {
        cluster.merge(MAP.0, "default", MAP.1, &json!({"data": {"ca.crt": text}, "metadata": {"labels": {"l": text}}}));
    }
    cluster.held.clear();
    cluster.pass(1);
    let map = cluster.get(MAP.0, "default", MAP.1).expect("a ConfigMap");
    assert_eq!((&map["data"], &map["metadata"]["labels"]), (&json!({"ca.crt": "PEM"}), &json!({"l": "two"})));
}

#[test]
fn a_namespace_on_its_way_out_gets_nothing() {
    let mut cluster = cluster();
    make_namespace(&mut cluster, "old");
    cluster.delete(Kind::NAMESPACE, "", "old", &Value::Null);
    cluster.settle();
    for what in [ACCOUNT, MAP] {
        cluster.delete(what.0, "old", what.1, &Value::Null);
        cluster.pass(1000);
        assert_eq!(uid(&cluster, what, "old"), None);
    }
    assert!(!cluster.log.iter().any(|line| line.contains("old/") && !line.starts_with("Create")));
}

#[test]
fn a_server_that_says_no_for_a_while_is_asked_again() {
    let mut cluster = cluster();
    let mut refusals = 6;
    cluster.intercept = Box::new(move |call| {
        if call.verb != Verb::Create || refusals == 0 {
            return None;
        }
        refusals -= 1;
        let refusal = Refusal { code: 500, ..Refusal::default() };
        Some(if refusals % 2 == 0 { Reply::Unknown } else { Reply::Refused(refusal) })
    });
    make_namespace(&mut cluster, "new");
    assert_eq!(uid(&cluster, ACCOUNT, "new"), None);
    cluster.pass(60);
    assert!(uid(&cluster, ACCOUNT, "new").is_some() && uid(&cluster, MAP, "new").is_some());
}
