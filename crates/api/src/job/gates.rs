//! GATE-6: which fields of a Job are stored while a feature gate is off. A field of a new Job is dropped silently; a field
//! that the stored Job has is kept, so that nothing is lost while the gate is off.

use tally_core::gates::{FeatureGates, Gate};
use tally_core::job::{TRACKING_ANNOTATION, TRACKING_LEGACY};
use tally_value::{Map, Value};

use super::map_at;
use crate::field::{At, FieldError};

/// The fields of the spec that depend on one gate each.
const FIELDS: [(Gate, &[&str]); 5] = [
    (Gate::JobBackoffLimitPerIndex, &["backoffLimitPerIndex", "maxFailedIndexes"]),
    (Gate::JobManagedBy, &["managedBy"]),
    (Gate::JobPodReplacementPolicy, &["podReplacementPolicy"]),
    (Gate::JobSuccessPolicy, &["successPolicy"]),
    (Gate::TTLAfterFinished, &["ttlSecondsAfterFinished"]),
];

pub(super) fn drop_disabled(new: &mut Value, old: Option<&Value>, gates: FeatureGates) {
    let Some(job) = new.as_object_mut() else { return };
    mark(job, old, gates);
    if gates == FeatureGates::ALL_ON {
        return;
    }
    let had = |field: &str| old.is_some_and(|old| At::root(old).at("spec").at(field).is_set());
    let Some(spec) = job.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for (gate, fields) in FIELDS.into_iter().filter(|(gate, _)| !gates.enabled(*gate)) {
        // All fields of a gate stay if the stored Job uses the feature.
        if fields.iter().any(|field| had(field)) {
            continue;
        }
        fields.iter().for_each(|field| drop(spec.remove(field)));
        if gate == Gate::JobBackoffLimitPerIndex && !had("podFailurePolicy") {
            // The action is valid only together with a limit for each index.
            let rules = spec.get_mut("podFailurePolicy").and_then(|policy| policy.get_mut("rules"));
            if let Some(rules) = rules.and_then(Value::as_array_mut) {
                rules.retain(|rule| rule["action"] != "FailIndex");
            }
        }
    }
}

/// GATE-7: a Job that is created while the gate JobTrackingWithFinalizers is off is tracked the old way. No client can add the
/// mark, nor remove it; controllers add it through /status, which does not come here.
fn mark(job: &mut Map, old: Option<&Value>, gates: FeatureGates) {
    let marked = |annotations: Option<&Value>| {
        annotations.and_then(|annotations| annotations.get(TRACKING_ANNOTATION)).and_then(Value::as_str)
            == Some(TRACKING_LEGACY)
    };
    let is_marked = marked(job.get("metadata").and_then(|metadata| metadata.get("annotations")));
    let must_be = match old {
        Some(old) => marked(old.pointer("/metadata/annotations")),
        None => !gates.enabled(Gate::JobTrackingWithFinalizers),
    };
    if is_marked == must_be {
        return;
    }
    let Some(metadata) = map_at(job, "metadata") else { return };
    let Some(annotations) = map_at(metadata, "annotations") else { return };
    if must_be {
        annotations.insert(TRACKING_ANNOTATION, TRACKING_LEGACY.into());
    } else {
        annotations.remove(TRACKING_ANNOTATION);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

/// Without ElasticIndexedJob the number of indexes is fixed (UPD-3).
pub(super) fn validate(new: &Value, old: &Value, gates: FeatureGates) -> Vec<FieldError> {
    let (new, old) = (At::root(new), At::root(old));
    let (spec, before) = (new.at("spec"), old.at("spec"));
    let completions = spec.at("completions");
    let changed = completions.int() != before.at("completions").int() && super::spec::is_indexed(&spec);
    let forbidden = !gates.enabled(Gate::ElasticIndexedJob) && changed && completions.is_set();
    forbidden.then(|| completions.invalid("field is immutable")).into_iter().collect()
}
