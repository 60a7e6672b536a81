//! Objects as clients and nodes write them: the JSON from which a view was, or will be, decoded.

use serde_json::{Map, Value, json};
use tally_core::job::JobSpec;
use tally_core::pod::{
    FAILURE_COUNT_ANNOTATION, IGNORED_FAILURE_COUNT_ANNOTATION, INDEX_ANNOTATION, Phase, PodView, TRACKING_FINALIZER,
};

/// The node every scheduled Pod is bound to.
pub const NODE: &str = "node";

/// A Pod as a user would create it: all fields that can be set before it runs.
pub fn new_pod(view: &PodView) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata(view),
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    })
}

fn metadata(view: &PodView) -> Value {
    let mut metadata = json!({
        "name": view.name.as_str(), "namespace": view.namespace.as_str(),
        "labels": labels(view), "annotations": annotations(view), "ownerReferences": owners(view),
    });
    if view.tracked {
        metadata["finalizers"] = json!([TRACKING_FINALIZER]);
    }
    metadata
}

pub fn labels(view: &PodView) -> Value {
    view.labels.iter().map(|(key, value)| (key.to_owned(), Value::from(value))).collect()
}

fn annotations(view: &PodView) -> Value {
    let mut annotations = Map::new();
    let mut add = |key: &str, value: u32| annotations.insert(key.to_owned(), value.to_string().into());
    if let Some(index) = view.index {
        add(INDEX_ANNOTATION, index);
    }
    if view.failure_count > 0 {
        add(FAILURE_COUNT_ANNOTATION, view.failure_count);
    }
    if view.ignored_failure_count > 0 {
        add(IGNORED_FAILURE_COUNT_ANNOTATION, view.ignored_failure_count);
    }
    Value::Object(annotations)
}

pub fn owners(view: &PodView) -> Value {
    let owner = view.controller.as_ref().map(|controller| {
        let (version, kind) = if controller.is_job { ("batch/v1", "Job") } else { ("example.com/v1", "Workflow") };
        let (name, uid) = (controller.name.as_str(), controller.uid.to_string());
        json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true})
    });
    owner.into_iter().collect()
}

/// The status a node reports.
pub fn pod_status(view: &PodView) -> Value {
    let phase = match view.phase {
        Phase::Pending => "Pending",
        Phase::Unknown => "Unknown",
        Phase::Running => "Running",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
    };
    let mut conditions: Vec<Value> = Vec::new();
    for (kind, status) in view.conditions.iter().filter(|(kind, _)| kind != "Ready") {
        conditions.push(json!({"type": kind.as_str(), "status": status.as_str()}));
    }
    if view.ready || view.ready_changed_at.is_some() {
        let status = if view.ready { "True" } else { "False" };
        let mut ready = json!({"type": "Ready", "status": status});
        if let Some(at) = view.ready_changed_at {
            ready["lastTransitionTime"] = at.to_string().into();
        }
        conditions.push(ready);
    }
    json!({"phase": phase, "conditions": conditions, "containerStatuses": containers(view)})
}

/// One container, `c`, whose restarts are the Pod's. It may have ended although the Pod has not.
fn containers(view: &PodView) -> Value {
    let restarts = view.restarts.sum;
    let exit = view.exits.iter().find(|exit| exit.container == "c");
    let ended = view.phase.is_terminal() || exit.is_some();
    if !ended && restarts == 0 {
        return json!([]);
    }
    let state = if ended {
        let (code, at) = (exit.map_or(0, |exit| exit.code), view.finished_at.truncated().to_string());
        json!({"terminated": {"exitCode": code, "finishedAt": at}})
    } else {
        json!({})
    };
    json!([{
        "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": restarts, "state": state,
        "lastState": {},
    }])
}

/// A merge patch that changes one spec into another, as a user would.
pub fn spec_patch(old: &JobSpec, new: &JobSpec) -> Value {
    let mut spec = Map::new();
    let mut change = |field: &str, old: Value, new: Value| {
        if old != new {
            spec.insert(field.to_owned(), new);
        }
    };
    change("parallelism", old.parallelism.into(), new.parallelism.into());
    change("completions", old.completions.into(), new.completions.into());
    change("backoffLimit", old.backoff_limit.into(), new.backoff_limit.into());
    change("suspend", old.suspend.into(), new.suspend.into());
    change("activeDeadlineSeconds", old.active_deadline_seconds.into(), new.active_deadline_seconds.into());
    change("ttlSecondsAfterFinished", old.ttl_seconds_after_finished.into(), new.ttl_seconds_after_finished.into());
    Value::Object(spec)
}
