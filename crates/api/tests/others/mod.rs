//! The kinds with few rules: defaults, errors and their messages.

mod data;
mod events;
mod odd;
mod services;

use tally_api::catalog;
use tally_api::decode::decode;
use tally_api::kinds::{Part, Resource};
use tally_api::meta;
use tally_api::options::{FieldValidation, Format};
use tally_api::status_error::StatusError;
use tally_core::time::Timestamp;
use tally_value::{Value, json};

fn of(kind: &str) -> &'static Resource {
    let known = |group: &str, kind: &str| catalog::find_kind(group, "v1", kind);
    let found = match kind {
        "NewEvent" => known("events.k8s.io", "Event"),
        kind => ["", "apps", "policy", "coordination.k8s.io", "scheduling.k8s.io", "rbac.authorization.k8s.io"]
            .into_iter()
            .find_map(|group| known(group, kind)),
    };
    found.unwrap_or_else(|| panic!("{kind} is not served"))
}

fn read(resource: &Resource, body: &Value) -> Value {
    let mut body = body.clone();
    body["apiVersion"] = resource.api_version().into();
    body["kind"] = resource.kind.into();
    let bytes = serde_json::to_vec(&body).unwrap();
    decode(resource, &bytes[..], Format::Json, FieldValidation::Strict).unwrap().object
}

/// What the registry does with a new object, as far as rules are involved.
fn create(kind: &str, body: &Value) -> Result<Value, String> {
    let resource = of(kind);
    let mut object = read(resource, body);
    resource.rules.default(&mut object);
    let meta = object["metadata"].as_object_mut().unwrap();
    meta.entry("name").or_insert("a".into());
    meta.insert("uid".to_owned(), "11111111-1111-1111-1111-111111111111".into());
    meta.insert("creationTimestamp".to_owned(), "2026-01-01T00:00:00Z".into());
    if resource.namespaced {
        meta.insert("namespace".to_owned(), "ns".into());
    }
    resource.rules.prepare_create(&mut object, Timestamp::from_seconds(1_767_225_600));
    let mut errors = meta::validate_create(resource, &object);
    errors.extend(resource.rules.validate_create(&object));
    if errors.is_empty() { Ok(object) } else { Err(told(resource, &errors)) }
}

/// Replaces `old` as a whole: fields that are not in `body` are removed.
fn update(kind: &str, old: &Value, body: &Value, part: Part) -> Result<Value, String> {
    let resource = of(kind);
    let mut new = read(resource, body);
    for field in ["name", "namespace"] {
        if let Some(value) = old["metadata"].get(field) {
            new["metadata"][field] = value.clone();
        }
    }
    resource.rules.default(&mut new);
    new["metadata"]["resourceVersion"] = "1".into();
    meta::prepare_update(&mut new, old);
    resource.rules.prepare_update(&mut new, old, part);
    let mut errors = meta::validate_update(resource, &new, old);
    errors.extend(resource.rules.validate_update(&new, old, part));
    if errors.is_empty() { Ok(new) } else { Err(told(resource, &errors)) }
}

/// The message without its prefix `Kind "a" is invalid: `.
fn told(resource: &Resource, errors: &[tally_api::field::FieldError]) -> String {
    let message = StatusError::invalid(resource.group, resource.kind, "a", errors).message;
    message.split_once(" is invalid: ").unwrap().1.to_owned()
}

/// The object without metadata and type, or its errors.
#[track_caller]
fn check(kind: &str, body: Value, expected: Result<Value, &str>) {
    let got = create(kind, &body).map(|object| without_metadata(&object));
    assert_eq!(got, expected.map_err(str::to_owned), "{kind} {body}");
}

#[track_caller]
fn refused(kind: &str, body: Value, expected: &str) {
    check(kind, body, Err(expected));
}

#[track_caller]
fn accepted(kind: &str, body: Value) -> Value {
    create(kind, &body).unwrap_or_else(|error| panic!("{kind} {body}: {error}"))
}

#[track_caller]
fn check_update(kind: &str, old: Value, new: Value, expected: Result<(), &str>) {
    let stored = accepted(kind, old);
    let got = update(kind, &stored, &new, Part::Main).map(|_| ());
    assert_eq!(got, expected.map_err(str::to_owned), "{kind} {new}");
}

fn without_metadata(object: &Value) -> Value {
    let mut object = object.clone();
    for field in ["metadata", "apiVersion", "kind"] {
        object.as_object_mut().unwrap().remove(field);
    }
    object
}

#[test]
fn namespace_is_active_labelled_and_held_by_its_content() {
    let namespace = accepted("Namespace", json!({"status": {"phase": "Terminating"}}));
    assert_eq!(
        without_metadata(&namespace),
        json!({"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
    );
    assert_eq!(namespace["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "a"}));

    check("Namespace", json!({"spec": {"finalizers": ["kubernetes", "x.io/y"]}}), {
        Ok(json!({"spec": {"finalizers": ["kubernetes", "x.io/y"]}, "status": {"phase": "Active"}}))
    });
    let unknown = "name is neither a standard finalizer name nor is it fully qualified";
    let told = format!("spec.finalizers: Invalid value: \"bad\": {unknown}");
    refused("Namespace", json!({"spec": {"finalizers": ["bad"]}}), &told);
    let emptied = json!({"spec": {"finalizers": ["kubernetes", "bad"]}});
    let told: Vec<_> = tally_api::others::validate_finalize(&emptied).iter().map(ToString::to_string).collect();
    assert_eq!(told, [format!("spec.finalizers[1]: Invalid value: \"bad\": {unknown}")]);
    refused("Namespace", json!({"metadata": {"name": "a.b"}}), {
        "metadata.name: Invalid value: \"a.b\": must not contain dots"
    });
    // Such a name is not a valid label value either.
    let long = "a".repeat(64);
    let expected = format!(
        "[metadata.name: Invalid value: \"{long}\": must be no more than 63 characters, \
         metadata.labels: Invalid value: \"{long}\": must be no more than 63 bytes]"
    );
    refused("Namespace", json!({"metadata": {"name": long}}), &expected);
}

#[test]
fn node_has_no_less_than_nothing_and_keeps_what_others_know() {
    for (status, told) in [
        (
            json!({"capacity": {"cpu": "-1"}, "allocatable": {"cpu": "1"}}),
            "status.capacity.cpu: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (json!({"allocatable": {"pods": "1500m"}}), {
            "status.allocatable.pods: Invalid value: \"1500m\": must be an integer"
        }),
    ] {
        refused("Node", json!({"status": status}), told);
        let stored = accepted("Node", json!({}));
        assert_eq!(update("Node", &stored, &json!({"status": status}), Part::Status), Err(told.to_owned()));
    }
    let odd = accepted("Node", json!({"spec": {"configSource": {}, "externalID": "x"}, "status": {"config": {}}}));
    assert_eq!((odd["spec"].get("configSource"), odd["status"].get("config")), (None, None));
    let deprecated = "spec.externalID: this field is deprecated, and is unused by Kubernetes";
    assert_eq!(of("Node").rules.create_warnings(&odd), [deprecated]);
    let moved = update("Node", &odd, &json!({"spec": {"externalID": "y"}}), Part::Main);
    assert_eq!(moved, Err("spec.externalID: Forbidden: may not be updated".to_owned()));
}

#[test]
fn namespace_keeps_its_finalizers_and_its_phase_follows_its_deletion() {
    let stored = accepted("Namespace", json!({}));
    let new =
        update("Namespace", &stored, &json!({"metadata": {"labels": {"x": "y"}}, "spec": {}}), Part::Main).unwrap();
    assert_eq!(new["spec"], stored["spec"]);
    assert_eq!(new["status"], stored["status"]);
    assert_eq!(new["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "a", "x": "y"}));

    let phase =
        |stored: &Value, phase: &str| update("Namespace", stored, &json!({"status": {"phase": phase}}), Part::Status);
    assert_eq!(
        phase(&stored, "Terminating"),
        Err("status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
            .to_owned())
    );
    let mut going = stored.clone();
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(phase(&going, "Terminating").unwrap()["status"]["phase"], "Terminating");
}

#[test]
fn node_waits_until_it_is_ready_and_may_come_with_its_status() {
    let not_ready = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let bare = accepted("Node", json!({}));
    assert_eq!(bare["spec"], json!({"taints": [not_ready]}));
    assert_eq!(bare["status"]["daemonEndpoints"], json!({"kubeletEndpoint": {"Port": 0}}));

    let taints = json!([{"key": "a", "effect": "NoExecute"}, not_ready]);
    assert_eq!(accepted("Node", json!({"spec": {"taints": taints}}))["spec"]["taints"], taints);
    let capacity = json!({"cpu": "4", "memory": "1Gi"});
    let node = accepted("Node", json!({"status": {"capacity": capacity}}));
    assert_eq!(node["status"]["allocatable"], capacity);
    let node = accepted("Node", json!({"status": {"capacity": capacity, "allocatable": {"cpu": "3"}}}));
    assert_eq!(node["status"]["allocatable"], json!({"cpu": "3"}));

    let ranges = |spec: Value| accepted("Node", json!({"spec": spec}))["spec"]["podCIDRs"].clone();
    assert_eq!(ranges(json!({"podCIDR": "10.1.0.0/24"})), json!(["10.1.0.0/24"]));
    let one = accepted("Node", json!({"spec": {"podCIDRs": ["10.1.0.0/24", "fd00::/64"]}}));
    assert_eq!(one["spec"]["podCIDR"], "10.1.0.0/24");
}

#[test]
fn node_is_refused_for_bad_taints_and_ranges() {
    let taint = |taint: Value| json!({"spec": {"taints": [taint]}});
    for (body, message) in [
        (taint(json!({"key": "a"})), "metadata.taints[0].effect: Required value"),
        (
            taint(json!({"key": "a", "effect": "Frob"})),
            "metadata.taints[0].effect: Unsupported value: \"Frob\": supported values: \"NoSchedule\", \
             \"PreferNoSchedule\", \"NoExecute\"",
        ),
        (
            json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]}}),
            "metadata.taints[1]: Duplicate value: {\"effect\":\"NoSchedule\",\"key\":\"a\"}: taints must be unique by key \
             and effect pair",
        ),
        (
            json!({"spec": {"podCIDR": "10.1.0.0"}}),
            "spec.podCIDRs[0]: Invalid value: \"10.1.0.0\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        ),
        (
            json!({"spec": {"podCIDRs": ["10.1.0.0/24", "10.2.0.0/24"]}}),
            "spec.podCIDRs: Invalid value: [\"10.1.0.0/24\",\"10.2.0.0/24\"]: may specify no more than one CIDR for each IP \
             family",
        ),
    ] {
        refused("Node", body, message);
    }
}

#[test]
fn node_keeps_its_range_and_status_and_spec_are_written_apart() {
    let stored = accepted("Node", json!({"spec": {"podCIDR": "10.1.0.0/24", "providerID": "x"}}));
    let moved = update("Node", &stored, &json!({"spec": {"podCIDR": "10.2.0.0/24", "providerID": "x"}}), Part::Main);
    let text = "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid";
    assert_eq!(moved, Err(text.to_owned()));
    let moved = update("Node", &stored, &json!({"spec": {"podCIDR": "10.1.0.0/24", "providerID": "y"}}), Part::Main);
    let text = "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid";
    assert_eq!(moved, Err(text.to_owned()));

    let both = json!({"metadata": {"labels": {"q": "r"}}, "spec": {"unschedulable": true, "podCIDR": "10.1.0.0/24",
        "providerID": "x"}, "status": {"capacity": {"cpu": "2"}}});
    let main = update("Node", &stored, &both, Part::Main).unwrap();
    assert_eq!((&main["spec"]["unschedulable"], main["status"].get("capacity")), (&json!(true), None));
    let status = update("Node", &stored, &both, Part::Status).unwrap();
    assert_eq!(status["spec"], stored["spec"]);
    assert_eq!(status["status"]["capacity"], json!({"cpu": "2"}));
    assert_eq!(status["metadata"]["labels"], json!({"q": "r"}));
}

#[test]
fn lease_lasts_some_time_and_changes_hands_forward() {
    let spec = |spec: Value| json!({"spec": spec});
    refused("Lease", spec(json!({"leaseDurationSeconds": 0})), {
        "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"
    });
    refused("Lease", spec(json!({"leaseDurationSeconds": -1, "leaseTransitions": -1})), {
        "[spec.leaseDurationSeconds: Invalid value: -1: must be greater than 0, \
         spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0]"
    });
    check("Lease", json!({}), Ok(spec(json!({}))));
    check("Lease", spec(json!({"holderIdentity": ""})), Ok(spec(json!({"holderIdentity": ""}))));
    check("Lease", spec(json!({"strategy": "OldestEmulationVersion"})), Ok(spec(json!({}))));
    check("Lease", spec(json!({"preferredHolder": "x"})), Ok(spec(json!({}))));
    check_update("Lease", json!({}), spec(json!({"leaseTransitions": -1})), {
        Err("spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0")
    });
}

#[test]
fn budgets_and_classes_are_checked() {
    for (kind, body, message) in [
        (
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": 1, "maxUnavailable": "50%"}}),
            "spec: Invalid value: {\"maxUnavailable\":\"50%\",\"minAvailable\":1}: minAvailable and maxUnavailable cannot be \
             both set",
        ),
        (
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": -1}}),
            "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": "101%"}}),
            "spec.minAvailable: Invalid value: \"101%\": must not be greater than 100%",
        ),
        (
            "PodDisruptionBudget",
            json!({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Frob"}]}}}),
            "spec.selector.matchExpressions[0].operator: Invalid value: \"Frob\": not a valid selector operator",
        ),
        (
            "PriorityClass",
            json!({"metadata": {"name": "system-x"}, "value": 1}),
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: \
             system-x is not a known system priority class",
        ),
        (
            "PriorityClass",
            json!({"metadata": {"name": "system-node-critical"}, "value": 1}),
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: \
             value of system-node-critical PriorityClass must be 2000001000",
        ),
        (
            "PriorityClass",
            json!({"value": 1_000_000_001}),
            "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
        ),
    ] {
        refused(kind, body, message);
    }
    let budget = accepted("PodDisruptionBudget", json!({"spec": {"minAvailable": 1}}));
    assert_eq!(budget["metadata"]["generation"], 1);
    assert_eq!(
        budget["status"],
        json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})
    );
    check("PriorityClass", json!({"value": 7}), Ok(json!({"value": 7, "preemptionPolicy": "PreemptLowerPriority"})));
    check_update("PriorityClass", json!({"value": 7}), json!({"value": 8}), {
        Err("value: Forbidden: may not be changed in an update.")
    });
    accepted("Role", json!({"metadata": {"name": "system:a"}}));
}

#[test]
fn a_limit_range_sets_its_own_defaults() {
    let limits = json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Gi"}}]}});
    let limits = accepted("LimitRange", limits);
    assert_eq!(limits["spec"]["limits"][0]["default"], json!({"cpu": "2"}));
    assert_eq!(limits["spec"]["limits"][0]["defaultRequest"], json!({"cpu": "2", "memory": "1Gi"}));
}

/// Nothing here acts upon them, so nothing is checked or set except their status.
#[test]
fn kinds_that_nothing_acts_upon_are_stored_as_they_are_sent() {
    for kind in ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController"] {
        let stored = accepted(kind, json!({"spec": {"minReadySeconds": 1}, "status": {"observedGeneration": 7}}));
        assert_eq!((&stored["spec"]["minReadySeconds"], &stored["status"]), (&json!(1), &json!({})), "{kind}");
    }
    let binding = json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]});
    assert_eq!(accepted("RoleBinding", binding)["subjects"][0]["name"], "u");
}

#[test]
fn status_of_ordinary_kinds_is_written_apart() {
    let stored = accepted("ResourceQuota", json!({"spec": {"hard": {"pods": "1"}}, "status": {"hard": {"pods": "9"}}}));
    assert_eq!(stored["status"], json!({}));
    let both = json!({"spec": {"hard": {"pods": "2"}}, "status": {"hard": {"pods": "9"}}});
    let main = update("ResourceQuota", &stored, &both, Part::Main).unwrap();
    assert_eq!((&main["spec"], &main["status"]), (&json!({"hard": {"pods": "2"}}), &json!({})));
    let status = update("ResourceQuota", &stored, &both, Part::Status).unwrap();
    assert_eq!((&status["spec"], &status["status"]), (&stored["spec"], &json!({"hard": {"pods": "9"}})));
}
