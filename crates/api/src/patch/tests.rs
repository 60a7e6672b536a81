//! What needs no conforming is what conforming leaves as it is: every kind of value at every place of an object.

use tally_value::{Value, json};

use super::*;
use crate::catalog;
use crate::decode::conform as conform_object;
use crate::decode::conformed::is_conformed;

fn pod() -> Value {
    let time = "2026-01-02T03:04:05Z";
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u", "creationTimestamp": time, "deletionGracePeriodSeconds": 30,
            "labels": {"a": "b"}, "annotations": {"c": ""}, "finalizers": ["batch.kubernetes.io/job-tracking"],
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "v", "controller": true}],
        },
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "hostNetwork": true, "priority": 0,
            "containers": [{
                "name": "c", "args": ["x", ""], "env": [{"name": "E", "value": "1"}],
                "ports": [{"containerPort": 80, "protocol": "TCP"}], "resources": {"limits": {"cpu": "1500m"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 3},
            }],
            "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 300}],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
        },
        "status": {
            "phase": "Running", "startTime": time, "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": time}],
            "containerStatuses": [{
                "name": "c", "ready": false, "restartCount": 0, "image": "", "imageID": "", "started": false, "lastState": {},
                "state": {"terminated": {"exitCode": 0, "startedAt": time, "finishedAt": time}},
            }],
        },
    })
}

fn secret() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "YQ=="}, "type": "Opaque"})
}

/// The places in an object, also in the first item of a list.
fn places(value: &Value, at: &[String], found: &mut Vec<Vec<String>>) {
    let item = value.as_array().and_then(|items| items.first()).map(|item| ("0".to_owned(), item));
    let fields = value.as_object().into_iter().flatten().map(|(name, inner)| (name.to_string(), inner));
    for (name, inner) in fields.chain(item) {
        let at = [at, &[name]].concat();
        places(inner, &at, found);
        found.push(at);
    }
}

/// A patch that puts a value in its place. A list is given as a whole.
fn patch_at(current: &Value, place: &[String], value: &Value) -> Value {
    let Some((name, rest)) = place.split_first() else { return value.clone() };
    if let Some(items) = current.as_array() {
        let mut items = items.to_vec();
        items[0] = replaced(&items[0], rest, value);
        return Value::Array(items.into());
    }
    let mut patch = Map::new();
    patch.insert(name.as_str(), patch_at(&current[name.as_str()], rest, value));
    patch.into()
}

fn replaced(current: &Value, place: &[String], value: &Value) -> Value {
    let Some((name, rest)) = place.split_first() else { return value.clone() };
    let mut changed = current.clone();
    match &mut changed {
        Value::Array(items) => items[0] = replaced(&items[0], rest, value),
        changed => changed[name.as_str()] = replaced(&changed[name.as_str()], rest, value),
    }
    changed
}

#[test]
fn what_needs_no_conforming_is_left_as_it_is_by_conforming() {
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let candidates = [
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(7),
        json!(-1),
        json!(3_000_000_000_i64),
        json!(1.5),
        json!(""),
        json!("x"),
        json!("1500m"),
        json!("1.50"),
        json!("YQ=="),
        json!("YQ=\n="),
        json!("2026-01-02T03:04:05Z"),
        json!("2026-01-02T03:04:05.5Z"),
        json!("2026-01-02T03:04:05+01:00"),
        json!("0001-01-01T00:00:00Z"),
        json!("2026-01-02T03:04:05.000001Z"),
        json!([]),
        json!([null]),
        json!(["x"]),
        json!([0]),
        json!([{}]),
        json!([{"name": "c"}]),
        json!([{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z"}]),
        json!({}),
        json!({"x": null}),
        json!({"x": "y"}),
        json!({"name": ""}),
        json!({"x": 1}),
        json!({"$patch": "replace"}),
        json!({"$retainKeys": ["name"], "name": "n"}),
        json!({"$setElementOrder/conditions": [{"type": "Ready"}]}),
        json!({"$deleteFromPrimitiveList/finalizers": ["batch.kubernetes.io/job-tracking"]}),
        json!({"$setElementOrder/searches": ["a"], "searches": ["a"]}),
        json!({"$x/labels": "y"}),
        json!({"count": 2}),
        deep,
    ];
    let mut shortcuts = 0;
    let event =
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod"}});
    for (plural, object) in [("pods", pod()), ("secrets", secret()), ("events", event)] {
        let resource = catalog::resources().iter().find(|resource| resource.plural == plural).unwrap();
        let current = conform_object(resource, object, FieldValidation::Strict).unwrap().object;
        assert!(is_conformed(structure(resource).unwrap(), current.as_object().unwrap()), "{current}");
        let mut all = vec![];
        places(&current, &[], &mut all);
        let absent = [
            "spec.dnsConfig",
            "spec.securityContext",
            "spec.affinity.nodeAffinity",
            "status.resourceClaimStatuses",
            "metadata.managedFields",
            "metadata.$x/labels",
            "$x/kind",
            "$deleteFromPrimitiveList/kind",
            "series",
        ];
        all.extend(absent.map(|place| place.split('.').map(str::to_owned).collect()));
        all.extend(
            ["unknown", "metadata.unknown", "status.unknown", "Spec", "apiversion"]
                .map(|place| place.split('.').map(str::to_owned).collect()),
        );
        for (place, candidate) in all.iter().flat_map(|place| candidates.iter().map(move |it| (place, it))) {
            let patch = patch_at(&current, place, candidate);
            let all = [(PatchKind::Merge, FieldValidation::Warn), (PatchKind::Strategic, FieldValidation::Warn)];
            for (kind, validation) in
                all.into_iter().chain((place.len() <= 2).then_some((PatchKind::Strategic, FieldValidation::Strict)))
            {
                let text = patch.to_string();
                let long_way = || {
                    let document = Document::parse(kind, text.as_bytes().into())?;
                    let value = document.apply(resource, text.as_bytes().into(), current.clone())?;
                    conform_result(resource, kind, &document, value, document.told(), validation)
                };
                let shown = |result: Result<Decoded, StatusError>| match result {
                    Ok(decoded) => format!("{} {:?} {}", decoded.object, decoded.warnings, decoded.unsettled),
                    Err(error) => format!("{error:?}"),
                };
                let expected = shown(long_way());
                let of_text = patched(resource, kind, current.clone(), text.as_bytes(), validation);
                assert_eq!(shown(of_text), expected, "{kind:?} {patch}");
                let of_tree = patched(resource, kind, current.clone(), &patch, validation);
                assert_eq!(shown(of_tree), expected, "{kind:?} {patch}");
                let short = merged_tree(resource, kind, &current, &patch).is_ok_and(|found| found.is_some());
                shortcuts += usize::from(short);
            }
        }
    }
    assert!(shortcuts > 500, "the short way is taken: {shortcuts}");
}

#[test]
fn the_first_status_of_a_pod_needs_no_conforming() {
    let pods = catalog::find("", "v1", "pods").unwrap();
    let mut pod = pod();
    pod.as_object_mut().unwrap().remove("status");
    let stored = conform_object(pods, pod, FieldValidation::Strict).unwrap().object;
    let time = "2026-01-02T03:04:05Z";
    let none: Value = json!(null);
    let condition =
        |name: &str| json!({"type": name, "status": "True", "lastProbeTime": none, "lastTransitionTime": time});
    let terminated =
        json!({"exitCode": 0, "reason": "Completed", "startedAt": time, "finishedAt": time, "containerID": "x"});
    let container = json!({
        "name": "c", "image": "i", "imageID": "", "ready": false, "started": false, "restartCount": 0, "lastState": {},
        "state": {"terminated": terminated},
    });
    let status = json!({
        "phase": "Succeeded", "startTime": time, "containerStatuses": [container],
        "conditions": ["Initialized", "Ready", "PodScheduled"].map(condition),
    });
    let patch = json!({"metadata": {"uid": stored["metadata"]["uid"]}, "status": status});
    let merged = merged_tree(pods, PatchKind::Strategic, &stored, &patch).unwrap().unwrap_or_else(|| panic!("{patch}"));
    assert_eq!(merged["status"]["conditions"][0], condition("Initialized"));
}

#[test]
fn a_status_of_a_job_needs_no_conforming() {
    let jobs = catalog::find("batch", "v1", "jobs").unwrap();
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}},
    });
    let mut stored = conform_object(jobs, job, FieldValidation::Strict).unwrap().object;
    let time = "2026-01-02T03:04:05Z";
    let none: Value = json!(null);
    for status in [
        json!({"startTime": time, "active": 2, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {"succeeded": none, "failed": none}}),
        json!({"startTime": time, "active": 1, "ready": 1, "terminating": 0,
            "uncountedTerminatedPods": {"succeeded": ["a", "b"], "failed": none}}),
        json!({"startTime": time, "active": 0, "succeeded": 2, "ready": 0, "terminating": 0,
            "uncountedTerminatedPods": {"succeeded": none, "failed": ["c"]}}),
        json!({"startTime": time, "succeeded": 2, "failed": 1, "completedIndexes": "0,1", "failedIndexes": "", "ready": 0, "terminating": 0,
            "uncountedTerminatedPods": {"succeeded": none, "failed": none}, "completionTime": time,
            "conditions": [{"type": "Complete", "status": "True", "lastProbeTime": time, "lastTransitionTime": time, "reason": "R", "message": "m"}]}),
    ] {
        let mut status = status;
        for field in [
            "conditions",
            "startTime",
            "completionTime",
            "active",
            "succeeded",
            "failed",
            "completedIndexes",
            "failedIndexes",
        ] {
            status.as_object_mut().unwrap().entry(field).or_insert(Value::Null);
        }
        let patch = json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "status": status});
        let merged = merged_tree(jobs, PatchKind::Merge, &stored, &patch).unwrap();
        stored = merged.unwrap_or_else(|| panic!("{patch}"));
    }
}
