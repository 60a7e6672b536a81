//! DEFAULT-1 to 9: the values of fields that the user left out.

use tally_core::job::DEFAULT_BACKOFF_LIMIT;
use tally_value::{Map, Value, json};

use super::map_at;
use crate::pod;

/// Left in `metadata.generation` of a new Job whose labels were copied from its template, until `prepare_create` sets
/// the real value. Such a Job also gets the labels that are generated for the template; a Job that happens to have the
/// same labels as its template does not, and at that point the two cases can no longer be distinguished. A client that
/// sends this number itself does no harm: the generation it sends is ignored.
pub(super) const LABELS_ARE_THE_TEMPLATES: i64 = -1;

pub(super) fn job(object: &mut Value) {
    changed_job(object, false);
}

/// `spec_is_kept`: the spec is that of the stored Job.
pub(super) fn changed_job(object: &mut Value, spec_is_kept: bool) {
    let Some(job) = object.as_object_mut() else { return };
    if !spec_is_kept {
        let Some(spec) = map_at(job, "spec") else { return };
        default_spec(spec);
    }
    // If the name is still to be generated, Kubernetes works on a copy, and the labels of the copy do not change.
    let named = job.get("metadata").and_then(|meta| meta.get("name")).is_some();
    if labels_from_template(object)
        && named
        && let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        meta.insert("generation", LABELS_ARE_THE_TEMPLATES.into());
    }
}

fn default_spec(spec: &mut Map) {
    let has = |spec: &Map, field: &str| spec.get(field).is_some_and(|value| !value.is_null());
    // A work queue has a parallelism and no completions; if both are absent, each is one.
    if !has(spec, "completions") && !has(spec, "parallelism") {
        fill(spec, "completions", 1);
    }
    fill(spec, "parallelism", 1);
    // With a backoff limit for each index there is none for the whole Job, unless the user sets one.
    let retries = if has(spec, "backoffLimitPerIndex") { i32::MAX } else { DEFAULT_BACKOFF_LIMIT };
    fill(spec, "backoffLimit", retries);
    fill(spec, "completionMode", "NonIndexed");
    fill(spec, "suspend", false);
    fill(spec, "manualSelector", false);
    let replaced = if has(spec, "podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    fill(spec, "podReplacementPolicy", replaced);
    default_failure_policy(spec);
    pod::default_template(spec.entry("template").or_insert_with(|| Value::Object(Map::new())));
}

fn fill(spec: &mut Map, field: &str, value: impl Into<Value>) {
    let current = spec.entry(field).or_insert(Value::Null);
    if current.is_null() {
        *current = value.into();
    }
}

/// DEFAULT-6, in the spec of a Job or of a CronJob's template.
pub(crate) fn default_failure_policy(spec: &mut Map) {
    let rules = spec.get_mut("podFailurePolicy").and_then(|policy| policy.get_mut("rules"));
    for rule in rules.and_then(Value::as_array_mut).into_iter().flatten() {
        let patterns = rule.get_mut("onPodConditions").and_then(Value::as_array_mut);
        for pattern in patterns.into_iter().flatten().filter_map(Value::as_object_mut) {
            if pattern.get("status").and_then(Value::as_str).is_none_or(str::is_empty) {
                pattern.insert("status", json!("True"));
            }
        }
    }
}

/// DEFAULT-3: a Job without labels gets those of its template. Returns whether it got some.
pub(super) fn labels_from_template(object: &mut Value) -> bool {
    let given = |labels: Option<&Value>| labels.and_then(Value::as_object).is_some_and(|labels| !labels.is_empty());
    let labels = object.pointer("/spec/template/metadata/labels");
    if !given(labels) || given(object.pointer("/metadata/labels")) {
        return false;
    }
    let labels = labels.cloned().unwrap_or_default();
    match object.as_object_mut().and_then(|job| map_at(job, "metadata")) {
        Some(meta) => meta.insert("labels", labels).is_none_or(|before| !given(Some(&before))),
        None => false,
    }
}
