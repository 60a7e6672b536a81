//! Deployments and similar kinds.

use serde_json::{Value, json};
use tally_api::kinds::Part;

use super::{accepted, refused, update};

fn template() -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[test]
fn workloads_count_changes_of_their_spec() {
    for kind in ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController"] {
        let selector =
            if kind == "ReplicationController" { json!({"a": "b"}) } else { json!({"matchLabels": {"a": "b"}}) };
        let body = |seconds: i64| {
            json!({"spec": {"selector": selector, "template": template(), "minReadySeconds": seconds},
                "status": {"observedGeneration": 7}})
        };
        let stored = accepted(kind, body(1));
        assert_eq!(stored["metadata"]["generation"], 1, "{kind}");
        assert_eq!(stored["status"].get("observedGeneration"), None, "{kind}: the status is not the client's");
        let generation =
            |body: Value, part| update(kind, &stored, &body, part).unwrap()["metadata"]["generation"].clone();
        assert_eq!(generation(body(1), Part::Main), 1, "{kind}: the same");
        assert_eq!(generation(body(2), Part::Main), 2, "{kind}: another spec");
        assert_eq!(generation(body(2), Part::Status), 1, "{kind}: the status only");
    }
}

#[test]
fn workloads_are_filled_in() {
    let body = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template()}});
    let deployment = accepted("Deployment", body.clone());
    assert_eq!(deployment["status"], json!({}));
    let spec = &deployment["spec"];
    assert_eq!((&spec["replicas"], &spec["progressDeadlineSeconds"]), (&json!(1), &json!(600)));
    assert_eq!(
        spec["strategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
    );
    assert_eq!(spec["template"]["spec"]["restartPolicy"], "Always");
    assert_eq!(accepted("ReplicaSet", body.clone())["status"], json!({"replicas": 0}));
    let daemons = accepted("DaemonSet", body.clone());
    assert_eq!(
        daemons["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}})
    );
    let stateful = accepted("StatefulSet", body);
    assert_eq!(stateful["spec"]["podManagementPolicy"], "OrderedReady");
    let controller = accepted("ReplicationController", json!({"spec": {"template": template()}}));
    assert_eq!(controller["spec"]["selector"], json!({"a": "b"}));
    let limits = json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Gi"}}]}});
    let limits = accepted("LimitRange", limits);
    assert_eq!(limits["spec"]["limits"][0]["default"], json!({"cpu": "2"}));
    assert_eq!(limits["spec"]["limits"][0]["defaultRequest"], json!({"cpu": "2", "memory": "1Gi"}));
}

#[test]
fn workloads_select_their_own_pods_for_good() {
    let body = |selector: Value| json!({"spec": {"selector": selector, "template": template()}});
    refused("Deployment", json!({"spec": {"template": template()}}), "spec.selector: Required value");
    refused("Deployment", body(json!({"matchLabels": {"a": "c"}})), {
        "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`"
    });
    let stored = accepted("Deployment", body(json!({"matchLabels": {"a": "b"}})));
    let other = body(json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}));
    let message = update("Deployment", &stored, &other, Part::Main).unwrap_err();
    assert!(message.ends_with(": field is immutable"), "{message}");
    let stored = accepted("StatefulSet", body(json!({"matchLabels": {"a": "b"}})));
    let mut other = body(json!({"matchLabels": {"a": "b"}}));
    other["spec"]["serviceName"] = "x".into();
    let message = update("StatefulSet", &stored, &other, Part::Main).unwrap_err();
    assert!(message.starts_with("spec: Forbidden: updates to statefulset spec for fields other than"), "{message}");
}
