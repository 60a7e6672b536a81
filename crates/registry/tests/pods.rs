//! The verbs that only Pods have: bindings, and evictions that disruption budgets allow or refuse.

use crate::support::{Cluster, now};
use tally_api::options::{Format, WriteOptions};
use tally_api::status_error::StatusError;
use tally_registry::Target;
use tally_value::{Value, json};

fn post(cluster: &Cluster, subresource: &str, body: &Value, dry_run: bool) -> Result<(), StatusError> {
    let pod = cluster.target("", "pods", "default", "p");
    let target = Target { subresource: pod.resource.subresource(subresource), ..pod };
    let options = WriteOptions { dry_run, ..WriteOptions::default() };
    now(cluster.registry.create(target, body.to_string().as_bytes(), Format::Json, &options)).map(|_| ())
}

#[test]
fn a_binding_names_the_pod_it_is_sent_to() {
    let told = "name in URL does not match name in Binding object";
    let elsewhere = "the namespace of the provided object does not match the namespace sent on the request";
    for (metadata, expected) in [
        (json!({"name": "p"}), Ok(())),
        (json!({"name": "p", "namespace": "default"}), Ok(())),
        (json!({"name": "q"}), Err(told)),
        (json!({}), Err(told)),
        (json!({"name": "p", "namespace": "other"}), Err(elsewhere)),
    ] {
        let cluster = Cluster::new();
        cluster.create(cluster.target("", "pods", "default", ""), &Cluster::pod("p", None)).unwrap();
        let found = post(&cluster, "binding", &json!({"metadata": metadata, "target": {"name": "n"}}), false);
        assert_eq!(found.map_err(|it| it.message), expected.map_err(str::to_owned), "{metadata}");
    }
}

#[test]
fn no_pod_has_a_runtime_class() {
    let cluster = Cluster::new();
    for (spec, code, told) in [
        (json!({"runtimeClassName": "x"}), 403, "pods \"p\" is forbidden: pod rejected: RuntimeClass \"x\" not found"),
        // The overhead is checked only if the Pod is otherwise valid.
        (json!({"overhead": {"zap": "1"}}), 422, "Pod \"p\" is invalid: "),
        (
            json!({"overhead": {"cpu": "1"}}),
            403,
            "pods \"p\" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
    ] {
        let mut pod = Cluster::pod("p", None);
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let failure = cluster.create(cluster.target("", "pods", "default", ""), &pod).map(|_| ()).unwrap_err();
        assert!(failure.code == code && failure.message.starts_with(told), "{spec}: {failure:?}");
    }
}

/// Evicts a running Pod that a budget with this status selects. Returns the response, and the status afterwards.
fn evict(ready: &str, policy: Value, status: Value, dry_run: bool) -> (Result<(), String>, Value) {
    let cluster = Cluster::new();
    let mut pod = Cluster::pod("p", Some("n"));
    pod["metadata"]["labels"] = json!({"a": "b"});
    cluster.create(cluster.target("", "pods", "default", ""), &pod).unwrap();
    let of_pod = cluster.target("", "pods", "default", "p");
    let of_pod = Target { subresource: of_pod.resource.subresource("status"), ..of_pod };
    let running = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]});
    cluster.merge(of_pod, &json!({"status": running})).unwrap();
    let budget = json!({"metadata": {"name": "g"}, "spec": {
        "minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}, "unhealthyPodEvictionPolicy": policy}});
    cluster.create(cluster.target("policy", "poddisruptionbudgets", "default", ""), &budget).unwrap();
    let budget = cluster.target("policy", "poddisruptionbudgets", "default", "g");
    let of_budget = Target { subresource: budget.resource.subresource("status"), ..budget };
    cluster.merge(of_budget, &json!({"status": status})).unwrap();
    let found = post(&cluster, "eviction", &json!({"metadata": {"name": "p"}}), dry_run);
    let found = found.map_err(|failure| {
        let details = failure.details.unwrap();
        assert_eq!(failure.code, 429);
        format!("{} ({})", details.causes[0].message, details.retry_after_seconds)
    });
    (found, cluster.get(budget).unwrap()["status"].clone())
}

#[test]
fn api_22_an_eviction_takes_one_of_the_disruptions_a_budget_allows() {
    let status = |allowed: i64, healthy: i64, needed: i64| {
        json!({"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": needed,
            "expectedPods": 1})
    };
    let (found, after) = evict("True", json!(null), status(2, 3, 1), false);
    assert_eq!((found, &after["disruptionsAllowed"], after.get("conditions")), (Ok(()), &json!(1), None));
    assert_eq!(after["disruptedPods"], json!({"p": "2023-11-14T22:13:20Z"}));
    let (found, after) = evict("True", json!(null), status(1, 2, 1), false);
    assert_eq!((found, &after["disruptionsAllowed"]), (Ok(()), &json!(0)));
    assert_eq!(
        after["conditions"],
        json!([{"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
            "observedGeneration": 1, "lastTransitionTime": "2023-11-14T22:13:20Z"}])
    );
    // An eviction that needs no disruption does not change the budget.
    let rows = [
        ("True", json!(null), status(1, 2, 1), true),
        ("False", json!("AlwaysAllow"), status(0, 0, 1), false),
        ("False", json!(null), status(0, 1, 1), false),
    ];
    for (ready, policy, status, dry_run) in rows {
        let told = format!("{ready} {policy} {status}");
        assert_eq!(evict(ready, policy, status.clone(), dry_run), (Ok(()), status), "{told}");
    }
}

#[test]
fn api_22_a_budget_that_holds_says_why() {
    let status = |generation: i64, healthy: i64, condition: Value| {
        json!({"observedGeneration": generation, "disruptionsAllowed": 0, "currentHealthy": healthy, "desiredHealthy": 1,
            "expectedPods": 1, "conditions": condition})
    };
    let condition = |reason: &str| {
        json!([{"type": "DisruptionAllowed", "status": "False", "reason": reason, "message": "so", "observedGeneration": 1,
            "lastTransitionTime": "2024-05-01T10:00:00Z"}])
    };
    let cannot = "The disruption budget g does not allow evicting pods currently";
    for (ready, status, told) in [
        ("True", status(0, 1, json!(null)), "The disruption budget g is still being processed by the server. (10)"),
        ("True", status(1, 1, json!(null)), "The disruption budget g needs 1 healthy pods and has 1 currently (0)"),
        ("False", status(1, 0, json!(null)), "The disruption budget g needs 1 healthy pods and has 0 currently (0)"),
        ("True", status(1, 2, json!(null)), &format!("{cannot} (0)")),
        ("True", status(1, 2, condition("Why")), &format!("{cannot} (Why): so (0)")),
        ("True", status(1, 1, condition("SyncFailed")), &format!("{cannot} because it failed sync: so (0)")),
    ] {
        assert_eq!(evict(ready, json!(null), status, false).0, Err(told.to_owned()));
    }
}
