//! UPD-2 to 11: what may change in the spec of an existing Job.

use tally_core::job::condition;
use tally_value::{Map, Value};

use super::{identity, policies, spec};
use crate::field::{At, FieldError};
use crate::pod::same;

const IMMUTABLE: &str = "field is immutable";

pub(super) fn validate(new: &Value, old: &Value) -> Vec<FieldError> {
    let (new_root, old_root) = (At::root(new), At::root(old));
    let (spec, before) = (new_root.at("spec"), old_root.at("spec"));
    let nothing = Value::Null;
    let changed =
        |field: &str| !same(spec.at(field).value.unwrap_or(&nothing), before.at(field).value.unwrap_or(&nothing));
    let mut errors = Vec::new();
    if changed("completions") {
        errors.extend(validate_completions(&spec));
    }
    if changed("selector") {
        errors.push(identity::invalid_selector(&spec.at("selector"), IMMUTABLE));
    }
    if changed("template") {
        errors.extend(validate_template(&spec, old));
    }
    if changed("completionMode") {
        errors.push(spec.at("completionMode").invalid(IMMUTABLE));
    }
    if changed("podFailurePolicy") {
        errors.push(policies::invalid_failure_policy(&spec.at("podFailurePolicy"), IMMUTABLE));
    }
    for field in ["backoffLimitPerIndex", "managedBy"] {
        if changed(field) {
            errors.push(spec.at(field).invalid(IMMUTABLE));
        }
    }
    if changed("successPolicy") {
        errors.push(policies::invalid_success_policy(&spec.at("successPolicy"), IMMUTABLE));
    }
    errors
}

/// UPD-3: completions of an Indexed Job change only together with its parallelism. Removing its completions is a
/// separate error.
fn validate_completions(spec: &At<'_, '_>) -> Option<FieldError> {
    let completions = spec.at("completions");
    if !spec::is_indexed(spec) {
        return Some(completions.invalid(IMMUTABLE));
    }
    let in_tandem = !completions.is_set() || completions.int() == spec.at("parallelism").int();
    (!in_tandem).then(|| completions.invalid("can only be modified in tandem with spec.parallelism"))
}

/// UPD-6 to 10. While a Job is suspended and has no running Pods, the fields that decide where its Pods run and which
/// resources they get may still be set. Then only the Pod's own spec is compared, and its metadata may change freely.
fn validate_template(spec: &At<'_, '_>, old: &Value) -> Option<FieldError> {
    let template = spec.at("template");
    if !holds_still(old) {
        return Some(template.invalid(IMMUTABLE));
    }
    let pod = template.at("spec");
    let before = old.pointer("/spec/template/spec");
    match (pod.map(), before.and_then(Value::as_object)) {
        (Some(new), Some(old)) if same(&without_open_fields(new, old), &Value::Object(new.clone())) => None,
        (None, None) => None,
        _ => Some(pod.invalid(IMMUTABLE)),
    }
}

/// UPD-7: the Job is suspended, and none of its Pods run. Determined from the stored Job, so that the write which
/// resumes it may still change these fields.
fn holds_still(job: &Value) -> bool {
    let root = At::root(job);
    let (spec, status) = (root.at("spec"), root.at("status"));
    let conditions = status.at("conditions");
    let suspended = conditions.items().any(|condition| {
        condition.at("type").text() == Some(condition::SUSPENDED) && condition.at("status").text() == Some("True")
    });
    spec.at("suspend").is_true()
        && (suspended || !status.at("startTime").is_set())
        && status.at("active").int().unwrap_or(0) == 0
}

/// The old Pod spec with the mutable fields taken from the new one: any remaining difference is not allowed.
fn without_open_fields(new: &Map, old: &Map) -> Value {
    let mut pod = old.clone();
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        put(&mut pod, field, new.get(field));
    }
    let affinity = open_affinity(new.get("affinity"), old.get("affinity"));
    put(&mut pod, "affinity", affinity.as_ref());
    for list in ["containers", "initContainers"] {
        if let (Some(Value::Array(to)), Some(Value::Array(from))) = (pod.get_mut(list), new.get(list)) {
            take_resources(to, from);
        }
    }
    Value::Object(pod)
}

/// The node affinity is mutable. The whole affinity may be removed only if there was no other part.
fn open_affinity(new: Option<&Value>, old: Option<&Value>) -> Option<Value> {
    const OPEN: &str = "nodeAffinity";
    let mut parts = old.and_then(Value::as_object).cloned().unwrap_or_default();
    put(&mut parts, OPEN, new.and_then(|affinity| affinity.get(OPEN)));
    (new.is_some() || !parts.is_empty()).then_some(Value::Object(parts))
}

/// Containers are matched by position, and only if the name is unchanged.
fn take_resources(to: &mut [Value], from: &[Value]) {
    for (to, from) in to.iter_mut().zip(from).filter(|(to, from)| to.get("name") == from.get("name")) {
        if let Some(to) = to.as_object_mut() {
            put(to, "resources", from.get("resources"));
        }
    }
}

fn put(map: &mut Map, field: &str, value: Option<&Value>) {
    match value {
        Some(value) => map.insert(field, value.clone()),
        None => map.remove(field),
    };
}
