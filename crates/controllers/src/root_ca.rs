//! A ConfigMap `kube-root-ca.crt` in every namespace: with it Pods verify the API server.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::per_namespace::{PerNamespace, Rule};
use tally_runtime::controller::{Kind, Stream};

const DESCRIPTION: &str = "kubernetes.io/description";
/// The description that every cluster has.
const DESCRIBED: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                         endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                         guaranteed across distributions of Kubernetes clusters.";
const KEY: &str = "ca.crt";

pub struct RootCa {
    pem: String,
}

/// `pem` is the certificate of the authority that signed the API server's.
pub fn controller(pem: String) -> PerNamespace<RootCa> {
    PerNamespace::new(RootCa { pem })
}

#[derive(Deserialize)]
struct ConfigMap {
    metadata: Annotated,
    data: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Annotated {
    annotations: Option<BTreeMap<String, String>>,
}

impl RootCa {
    fn is_right(&self, map: &ConfigMap) -> bool {
        let described =
            |annotations: &BTreeMap<_, String>| annotations.get(DESCRIPTION).is_some_and(|it| it == DESCRIBED);
        let certified = |data: &BTreeMap<_, _>| data.len() == 1 && data.get(KEY) == Some(&self.pem);
        map.data.as_ref().is_some_and(certified) && map.metadata.annotations.as_ref().is_some_and(described)
    }
}

impl Rule for RootCa {
    const CONTROLLER: &'static str = "root-ca-certificate-publisher";
    const NAME: &'static str = "kube-root-ca.crt";
    const STREAM: Stream = Stream::of(Kind::CONFIG_MAP);

    fn wanted(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": Self::NAME, "annotations": {DESCRIPTION: DESCRIBED}},
            "data": {KEY: self.pem},
        })
    }

    /// The object keeps its other fields; the update is conditional on its UID and revision.
    fn repaired(&self, object: &[u8]) -> Option<Value> {
        if serde_json::from_slice(object).is_ok_and(|map| self.is_right(&map)) {
            return None;
        }
        let mut object: Value = serde_json::from_slice(object).ok()?;
        object["apiVersion"] = "v1".into();
        object["kind"] = "ConfigMap".into();
        object["data"] = json!({KEY: self.pem});
        let annotations = object.get_mut("metadata")?.as_object_mut()?.entry("annotations").or_insert(Value::Null);
        if annotations.is_null() {
            *annotations = Map::new().into();
        }
        annotations.as_object_mut()?.insert(DESCRIPTION.to_owned(), DESCRIBED.into());
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_runtime::testing::{Probe, done, refused};

    fn right() -> Value {
        let mut object = RootCa { pem: "PEM".to_owned() }.wanted();
        object["metadata"]["namespace"] = "a".into();
        object["metadata"]["uid"] = "u1".into();
        object["metadata"]["resourceVersion"] = "5".into();
        object
    }

    fn started(maps: &[Value]) -> Probe<PerNamespace<RootCa>> {
        let mut probe = Probe::new(controller("PEM".to_owned()));
        probe.lists(Kind::NAMESPACE, &[json!({"metadata": {"name": "a", "uid": "n", "resourceVersion": "1"}})], 10);
        probe.lists(Kind::CONFIG_MAP, maps, 10);
        probe
    }

    #[test]
    fn a_namespace_without_one_gets_one() {
        let mut probe = started(&[]);
        assert_eq!(probe.asks(), ["create configmaps a/"]);
        let body = probe.body(0);
        assert_eq!(body["data"], json!({"ca.crt": "PEM"}));
        assert_eq!(body["metadata"]["annotations"][DESCRIPTION], DESCRIBED);
    }

    #[test]
    fn what_was_changed_is_put_right_and_the_rest_is_kept() {
        type Change = fn(&mut Value);
        let cases: [(&str, Change); 5] = [
            ("another certificate", |map| map["data"]["ca.crt"] = "FORGED".into()),
            ("another key", |map| map["data"]["more"] = "x".into()),
            ("no data", |map| map["data"] = Value::Null),
            ("no description", |map| map["metadata"]["annotations"] = Value::Null),
            ("another description", |map| map["metadata"]["annotations"][DESCRIPTION] = "mine".into()),
        ];
        for (what, change) in cases {
            let mut map = right();
            map["metadata"]["labels"] = json!({"mine": "too"});
            change(&mut map);
            let mut probe = started(&[map]);
            assert_eq!(probe.asks(), ["update configmaps a/kube-root-ca.crt"], "{what}");
            let mut expected = right();
            expected["metadata"]["labels"] = json!({"mine": "too"});
            assert_eq!(probe.body(0), expected, "{what}");
        }
    }

    #[test]
    fn one_that_is_right_is_left_alone() {
        let mut map = right();
        map["metadata"]["labels"] = json!({"mine": "too"});
        assert_eq!(started(&[map]).asks(), Vec::<String>::new());
    }

    #[test]
    fn a_conflict_is_answered_with_what_is_there_by_then() {
        let mut wrong = right();
        wrong["data"]["ca.crt"] = "FORGED".into();
        let mut probe = started(&[wrong.clone()]);
        assert_eq!(probe.asks().len(), 1);
        wrong["metadata"]["resourceVersion"] = "11".into();
        probe.sees(Kind::CONFIG_MAP, wrong);
        probe.answer(0, refused(409, "Conflict"));
        assert_eq!(probe.asks(), Vec::<String>::new());
        probe.passes(250);
        assert_eq!(probe.asks(), ["update configmaps a/kube-root-ca.crt"]);
        assert_eq!(probe.body(0)["metadata"]["resourceVersion"], "11");
        let mut mended = right();
        mended["metadata"]["resourceVersion"] = "12".into();
        probe.answer(0, done(mended.clone()));
        probe.sees(Kind::CONFIG_MAP, mended);
        assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), None));
    }
}
