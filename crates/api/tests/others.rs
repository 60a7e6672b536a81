//! The kinds with few rules: what is filled in, what is refused and in which words.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};
use tally_api::decode::decode;
use tally_api::failure::Failure;
use tally_api::kinds::{Part, Resource, Rules};
use tally_api::meta;
use tally_api::options::{FieldValidation, Format};
use tally_api::others::{self, event};
use tally_core::time::Timestamp;

fn resource(group: &'static str, kind: &'static str, namespaced: bool, rules: &'static dyn Rules) -> Resource {
    Resource {
        group,
        version: "v1",
        kind,
        plural: "",
        singular: "",
        short_names: &[],
        categories: &[],
        namespaced,
        verbs: &[],
        subresources: &[],
        storage: "",
        create_on_update: false,
        orphans_by_default: false,
        rules,
    }
}

fn of(kind: &str) -> Resource {
    let core = |kind, rules| resource("", kind, true, rules);
    let apps = |kind, rules| resource("apps", kind, true, rules);
    match kind {
        "Namespace" => resource("", "Namespace", false, &others::NamespaceRules),
        "Node" => resource("", "Node", false, &others::NodeRules),
        "Lease" => resource("coordination.k8s.io", "Lease", true, &others::LeaseRules),
        "Event" => core("Event", &others::EventRules),
        "NewEvent" => resource("events.k8s.io", "Event", true, &others::NewEventRules),
        "ConfigMap" => core("ConfigMap", &others::ConfigMapRules),
        "Secret" => core("Secret", &others::SecretRules),
        "Service" => core("Service", &others::ServiceRules),
        "ServiceAccount" => core("ServiceAccount", &others::ServiceAccountRules),
        "PersistentVolumeClaim" => core("PersistentVolumeClaim", &others::PersistentVolumeClaimRules),
        "LimitRange" => core("LimitRange", &others::LimitRangeRules),
        "ResourceQuota" => core("ResourceQuota", &others::OrdinaryRules),
        "PodTemplate" => core("PodTemplate", &others::PodTemplateRules),
        "ReplicationController" => core("ReplicationController", &others::ReplicationControllerRules),
        "Deployment" => apps("Deployment", &others::DeploymentRules),
        "ReplicaSet" => apps("ReplicaSet", &others::ReplicaSetRules),
        "StatefulSet" => apps("StatefulSet", &others::StatefulSetRules),
        "DaemonSet" => apps("DaemonSet", &others::DaemonSetRules),
        "PodDisruptionBudget" => resource("policy", "PodDisruptionBudget", true, &others::PodDisruptionBudgetRules),
        "PriorityClass" => resource("scheduling.k8s.io", "PriorityClass", false, &others::PriorityClassRules),
        "Role" => resource("rbac.authorization.k8s.io", "Role", true, &others::RbacRules),
        "RoleBinding" => resource("rbac.authorization.k8s.io", "RoleBinding", true, &others::RbacRules),
        other => panic!("no rules for {other}"),
    }
}

fn read(resource: &Resource, body: &Value) -> Value {
    let mut body = body.clone();
    body["apiVersion"] = resource.api_version().into();
    body["kind"] = resource.kind.into();
    let bytes = serde_json::to_vec(&body).unwrap();
    decode(resource, &bytes, Format::Json, FieldValidation::Strict).unwrap().object
}

/// What the registry does with a new object, as far as rules go.
fn create(kind: &str, body: &Value) -> Result<Value, String> {
    let resource = of(kind);
    let mut object = read(&resource, body);
    resource.rules.default(&mut object);
    let meta = object["metadata"].as_object_mut().unwrap();
    meta.entry("name").or_insert("a".into());
    meta.insert("uid".to_owned(), "11111111-1111-1111-1111-111111111111".into());
    meta.insert("creationTimestamp".to_owned(), "2026-01-01T00:00:00Z".into());
    if resource.namespaced {
        meta.insert("namespace".to_owned(), "ns".into());
    }
    resource.rules.prepare_create(&mut object, Timestamp::from_seconds(1_767_225_600));
    let mut errors = meta::validate_create(&resource, &object);
    errors.extend(resource.rules.validate_create(&object));
    if errors.is_empty() { Ok(object) } else { Err(told(&resource, &errors)) }
}

/// A write over `old`, whole: what is not in `body` is taken away.
fn update(kind: &str, old: &Value, body: &Value, part: Part) -> Result<Value, String> {
    let resource = of(kind);
    let mut new = read(&resource, body);
    for field in ["name", "namespace"] {
        if let Some(value) = old["metadata"].get(field) {
            new["metadata"][field] = value.clone();
        }
    }
    resource.rules.default(&mut new);
    new["metadata"]["resourceVersion"] = "1".into();
    meta::prepare_update(&mut new, old);
    resource.rules.prepare_update(&mut new, old, part);
    let mut errors = meta::validate_update(&resource, &new, old);
    errors.extend(resource.rules.validate_update(&new, old, part));
    if errors.is_empty() { Ok(new) } else { Err(told(&resource, &errors)) }
}

/// The message without its beginning `Kind "a" is invalid: `.
fn told(resource: &Resource, errors: &[tally_api::field::FieldError]) -> String {
    let message = Failure::invalid(resource.group, resource.kind, "a", errors).message;
    message.split_once(" is invalid: ").unwrap().1.to_owned()
}

/// The object without metadata and type, or what is wrong with it.
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
    refused("Namespace", json!({"metadata": {"name": "a.b"}}), {
        "metadata.name: Invalid value: \"a.b\": must not contain dots"
    });
    // The label cannot hold such a name either.
    let long = "a".repeat(64);
    let expected = format!(
        "[metadata.name: Invalid value: \"{long}\": must be no more than 63 characters, \
         metadata.labels: Invalid value: \"{long}\": must be no more than 63 bytes]"
    );
    refused("Namespace", json!({"metadata": {"name": long}}), &expected);
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

const BAD_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
     'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

#[test]
fn keys_of_data_can_be_file_names() {
    for kind in ["ConfigMap", "Secret"] {
        let data = |key: &str| json!({"data": {key: "eA=="}});
        refused(kind, data("a b"), &format!("data[a b]: Invalid value: \"a b\": {BAD_KEY}"));
        refused(kind, data(".."), "data[..]: Invalid value: \"..\": must not be '..'");
        refused(kind, data("."), "data[.]: Invalid value: \".\": must not be '.'");
        refused(kind, data("..a"), "data[..a]: Invalid value: \"..a\": must not start with '..'");
        accepted(kind, data(&"a".repeat(253)));
        let long = "a".repeat(254);
        let text = format!("data[{long}]: Invalid value: \"{long}\": must be no more than 253 characters");
        refused(kind, data(&long), &text);
    }
    refused("ConfigMap", json!({"data": {"a": "1"}, "binaryData": {"a": "eA=="}}), {
        "data[a]: Invalid value: \"a\": duplicate of key present in binaryData"
    });
}

#[test]
fn data_of_more_than_a_mebibyte_is_refused() {
    let data = |bytes: usize| json!({"data": {"a": "x".repeat(bytes)}});
    accepted("ConfigMap", data(1024 * 1024));
    refused("ConfigMap", data(1024 * 1024 + 1), "[]: Too long: may not be more than 1048576 bytes");
    let data = |bytes: usize| json!({"stringData": {"a": "x".repeat(bytes)}});
    accepted("Secret", data(1024 * 1024));
    refused("Secret", data(1024 * 1024 + 1), "data: Too long: may not be more than 1048576 bytes");
}

#[test]
fn immutable_data_stays() {
    let frozen = "field is immutable when `immutable` is set";
    let map = |data: &str| json!({"immutable": true, "data": {"a": data}, "binaryData": {"b": "eA=="}});
    check_update("ConfigMap", map("1"), map("1"), Ok(()));
    check_update("ConfigMap", map("1"), map("2"), Err(&format!("data: Forbidden: {frozen}")));
    let all = format!("[immutable: Forbidden: {frozen}, data: Forbidden: {frozen}, binaryData: Forbidden: {frozen}]");
    check_update("ConfigMap", map("1"), json!({}), Err(&all));
    let secret = |data: &str| json!({"immutable": true, "stringData": {"a": data}});
    check_update("Secret", secret("1"), secret("2"), Err(&format!("data: Forbidden: {frozen}")));
    check_update("Secret", json!({"immutable": true}), json!({"immutable": true}), Ok(()));
    check_update("Secret", json!({}), json!({"immutable": true, "stringData": {"a": "1"}}), Ok(()));
}

#[test]
fn secret_is_opaque_unless_typed_and_takes_plain_text() {
    check("Secret", json!({}), Ok(json!({"type": "Opaque"})));
    check("Secret", json!({"data": {"a": "b2xk", "b": "eA=="}, "stringData": {"a": "new"}}), {
        Ok(json!({"data": {"a": "bmV3", "b": "eA=="}, "type": "Opaque"}))
    });
    check_update("Secret", json!({}), json!({"type": "x.io/other"}), {
        Err("type: Invalid value: \"x.io/other\": field is immutable")
    });
}

#[test]
fn typed_secret_has_the_keys_its_type_promises() {
    let typed = |kind: &str, data: Value| json!({"type": format!("kubernetes.io/{kind}"), "stringData": data});
    let redacted = "Invalid value: \"<secret contents redacted>\": must be a JSON object";
    for (kind, data, message) in [
        ("tls", json!({}), "[data[tls.crt]: Required value, data[tls.key]: Required value]".to_owned()),
        ("tls", json!({"tls.crt": ""}), "data[tls.key]: Required value".to_owned()),
        ("basic-auth", json!({}), "[data[username]: Required value, data[password]: Required value]".to_owned()),
        ("ssh-auth", json!({"ssh-privatekey": ""}), "data[ssh-privatekey]: Required value".to_owned()),
        ("dockercfg", json!({}), "data[.dockercfg]: Required value".to_owned()),
        ("dockercfg", json!({".dockercfg": "{"}), format!("data[.dockercfg]: {redacted}")),
        ("dockerconfigjson", json!({".dockerconfigjson": "7"}), format!("data[.dockerconfigjson]: {redacted}")),
        (
            "service-account-token",
            json!({}),
            "metadata.annotations[kubernetes.io/service-account.name]: Required value".to_owned(),
        ),
    ] {
        refused("Secret", typed(kind, data), &message);
    }
    accepted("Secret", typed("tls", json!({"tls.crt": "", "tls.key": ""})));
    accepted("Secret", typed("basic-auth", json!({"username": "u"})));
    accepted("Secret", typed("dockerconfigjson", json!({".dockerconfigjson": "{}"})));
    accepted("Secret", json!({"type": "x.io/any"}));
}

#[test]
fn event_of_old_clients_is_where_its_object_is() {
    let about = |object: Value| json!({"involvedObject": object});
    let mismatch = |namespace: &str| {
        format!("involvedObject.namespace: Invalid value: \"{namespace}\": does not match event.namespace")
    };
    accepted("Event", about(json!({"namespace": "ns"})));
    refused("Event", about(json!({"namespace": "other", "kind": "Pod"})), &mismatch("other"));
    refused("Event", about(json!({"kind": "Node", "name": "n"})), &mismatch(""));
    accepted("Event", json!({"metadata": {"name": "A_b:c"}, "involvedObject": {"namespace": "ns"}}));
}

fn new_event() -> Value {
    json!({
        "eventTime": "2024-01-01T00:00:00.000001Z", "action": "Act", "reason": "R", "type": "Normal", "note": "n",
        "reportingController": "x.io/c", "reportingInstance": "i", "regarding": {"kind": "Pod", "name": "p", "namespace": "ns"},
    })
}

#[test]
fn event_of_new_clients_says_who_reports_what() {
    accepted("NewEvent", new_event());
    refused("NewEvent", json!({"regarding": {"namespace": "ns"}}), {
        "[eventTime: Required value, type: Invalid value: \"\": has invalid value: ]"
    });
    let with = |field: &str, value: Value| {
        let mut event = new_event();
        event[field] = value;
        event
    };
    for (field, value, message) in [
        ("action", "A".repeat(129).into(), "action: Invalid value: \"\": can have at most 128 characters"),
        ("action", "".into(), "action: Required value"),
        ("reason", "R".repeat(129).into(), "reason: Invalid value: \"\": can have at most 128 characters"),
        ("reportingInstance", "".into(), "reportingInstance: Required value"),
        ("note", "n".repeat(1025).into(), "message: Invalid value: \"\": can have at most 1024 characters"),
        ("type", "Frob".into(), "type: Invalid value: \"\": has invalid value: Frob"),
        ("deprecatedCount", 1.into(), "count: Invalid value: \"\": needs to be unset"),
        ("deprecatedSource", json!({"host": "h"}), "source: Invalid value: \"\": needs to be unset"),
        (
            "deprecatedLastTimestamp",
            "2024-01-01T00:00:00Z".into(),
            "lastTimestamp: Invalid value: \"\": needs to be unset",
        ),
        (
            "series",
            json!({"count": 1}),
            "[series.count: Invalid value: \"\": should be at least 2, series.lastObservedTime: Required value]",
        ),
        (
            "reportingController",
            "Bad Name".into(),
            "reportingController: Invalid value: \"Bad Name\": name part must consist of alphanumeric characters, '-', '_' \
             or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', \
             regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
    ] {
        refused("NewEvent", with(field, value), message);
    }
    // The same through the other door, in its words.
    let mut core = without_metadata(&event::to_core(&accepted("NewEvent", new_event())));
    accepted("Event", core.clone());
    core["reportingComponent"] = "".into();
    core["reportingInstance"] = "".into();
    let message = create("Event", &core).unwrap_err();
    assert!(message.starts_with("[reportingComponent: Required value, reportingComponent: Invalid"), "{message}");
    assert!(message.ends_with("reportingInstance: Required value]"), "{message}");
}

#[test]
fn only_the_series_of_a_new_event_goes_on() {
    let series = json!({"count": 2, "lastObservedTime": "2024-01-01T00:05:00.000000Z"});
    let mut again = new_event();
    again["series"] = series;
    check_update("NewEvent", new_event(), again, Ok(()));
    let mut other = new_event();
    other["note"] = "m".into();
    check_update("NewEvent", new_event(), other, Err("message: Invalid value: \"m\": field is immutable"));
    let mut other = new_event();
    other["reportingController"] = "x.io/d".into();
    check_update(
        "NewEvent",
        new_event(),
        other,
        Err("reportingController: Invalid value: \"x.io/d\": field is immutable"),
    );
    // Old clients count up.
    let count = |count: i64| json!({"count": count, "involvedObject": {"namespace": "ns"}});
    check_update("Event", count(3), count(4), Ok(()));
}

#[test]
fn event_has_two_forms_and_loses_nothing_between_them() {
    let core = json!({
        "count": 3, "eventTime": null, "firstTimestamp": "2024-01-01T00:00:00Z", "lastTimestamp": "2024-01-01T00:01:00Z",
        "involvedObject": {"kind": "Pod", "name": "p"}, "message": "msg", "metadata": {"name": "e"}, "reason": "Started",
        "reportingComponent": "", "reportingInstance": "", "source": {"component": "kubelet"}, "type": "Normal",
    });
    let new = json!({
        "deprecatedCount": 3, "eventTime": null, "deprecatedFirstTimestamp": "2024-01-01T00:00:00Z",
        "deprecatedLastTimestamp": "2024-01-01T00:01:00Z", "regarding": {"kind": "Pod", "name": "p"}, "note": "msg",
        "metadata": {"name": "e"}, "reason": "Started", "deprecatedSource": {"component": "kubelet"}, "type": "Normal",
    });
    assert_eq!(event::to_events(&core), new);
    assert_eq!(event::to_core(&new), core);
    // What neither says, each form shows in its way.
    let bare = json!({"metadata": {"name": "e"}, "apiVersion": "v1", "kind": "Event"});
    assert_eq!(
        event::to_events(&bare),
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "eventTime": null,
            "regarding": {}, "deprecatedSource": {}, "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null,
        })
    );
    assert_eq!(
        event::to_core(&event::to_events(&bare)),
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "eventTime": null, "involvedObject": {},
            "source": {}, "firstTimestamp": null, "lastTimestamp": null, "reportingComponent": "", "reportingInstance": "",
        })
    );
}

#[test]
fn service_is_filled_in() {
    let ports = json!([{"name": "p", "port": 80}]);
    check(
        "Service",
        json!({"spec": {"clusterIP": "None", "ports": ports, "selector": {"a": "b"}}}),
        Ok(json!({
            "spec": {
                "clusterIP": "None", "clusterIPs": ["None"], "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack", "ports": [{"name": "p", "port": 80, "protocol": "TCP", "targetPort": 80}],
                "selector": {"a": "b"}, "sessionAffinity": "None", "type": "ClusterIP",
            },
            "status": {"loadBalancer": {}},
        })),
    );
    check(
        "Service",
        json!({"spec": {"type": "ExternalName", "externalName": "x.example.com"}}),
        Ok(json!({
            "spec": {"externalName": "x.example.com", "sessionAffinity": "None", "type": "ExternalName"},
            "status": {"loadBalancer": {}},
        })),
    );
    let headless = accepted("Service", json!({"spec": {"clusterIP": "None"}}));
    assert_eq!(headless["spec"]["ipFamilyPolicy"], "RequireDualStack");
    assert_eq!(headless["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
}

#[test]
fn service_has_an_address_and_keeps_it() {
    let body = json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let service = accepted("Service", body.clone());
    let address: std::net::Ipv4Addr = service["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
    assert_eq!(u32::from(address) >> 20, u32::from_be_bytes([10, 96, 0, 0]) >> 20, "{address}");
    assert_eq!(service["spec"]["clusterIPs"], json!([address.to_string()]));
    let node_port = service["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    assert!((30_000..=32_767).contains(&node_port), "{node_port}");
    assert_eq!(accepted("Service", body.clone()), service, "the address follows from the uid");

    let again = update("Service", &service, &body, Part::Main).unwrap();
    assert_eq!(again["spec"], service["spec"]);
    let other = json!({"spec": {"clusterIP": "10.96.0.9", "ports": [{"port": 80}]}});
    let text = "spec.clusterIPs[0]: Invalid value: [\"10.96.0.9\"]: may not change once set";
    assert_eq!(update("Service", &service, &other, Part::Main), Err(text.to_owned()));
}

#[test]
fn service_is_refused_with_bad_ports_and_types() {
    let spec = |ports: Value| json!({"spec": {"ports": ports}});
    for (body, message) in [
        (spec(json!([])), "spec.ports: Required value"),
        (
            spec(json!([{"port": 0}])),
            "[spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive, \
             spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive]",
        ),
        (
            spec(json!([{"port": 80}, {"port": 81}])),
            "[spec.ports[0].name: Required value, spec.ports[1].name: Required value]",
        ),
        (
            spec(json!([{"port": 80, "name": "a"}, {"port": 81, "name": "a"}])),
            "spec.ports[1].name: Duplicate value: \"a\"",
        ),
        (
            spec(json!([{"port": 80, "name": "a"}, {"port": 80, "name": "b"}])),
            "spec.ports[1]: Duplicate value: {\"port\":80,\"protocol\":\"TCP\"}",
        ),
        (
            spec(json!([{"port": 80, "protocol": "X"}])),
            "spec.ports[0].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
        ),
        (json!({"spec": {"type": "ExternalName"}}), "spec.externalName: Required value"),
        (
            json!({"spec": {"type": "X", "ports": [{"port": 80}]}}),
            "spec.type: Unsupported value: \"X\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \
             \"NodePort\"",
        ),
        (
            json!({"spec": {"sessionAffinity": "X", "ports": [{"port": 80}]}}),
            "spec.sessionAffinity: Unsupported value: \"X\": supported values: \"ClientIP\", \"None\"",
        ),
        (
            json!({"metadata": {"name": "a.b"}, "spec": {"ports": [{"port": 80}]}}),
            "metadata.name: Invalid value: \"a.b\": must not contain dots",
        ),
    ] {
        refused("Service", body, message);
    }
}

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

#[test]
fn budgets_classes_and_roles_are_checked() {
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
            "PriorityClass",
            json!({"value": 1_000_000_001}),
            "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
        ),
        (
            "Role",
            json!({"rules": [{"verbs": []}]}),
            "[rules[0].verbs: Required value: verbs must contain at least one value, rules[0].apiGroups: Required value: \
             resource rules must supply at least one api group, rules[0].resources: Required value: resource rules must \
             supply at least one resource]",
        ),
        ("RoleBinding", json!({"roleRef": {"kind": "Role"}}), "roleRef.name: Required value"),
        (
            "PersistentVolumeClaim",
            json!({"spec": {}}),
            "[spec.accessModes: Required value: at least 1 access mode is required, spec.resources[storage]: Required value]",
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
    let binding = accepted(
        "RoleBinding",
        json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]}),
    );
    assert_eq!(binding["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
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
