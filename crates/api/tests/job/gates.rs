//! GATE-6 and GATE-7: which fields are stored while a feature gate is off.

use tally_api::job::JobRules;
use tally_api::kinds::{Part, Rules};
use tally_core::gates::{FeatureGates, Gate};
use tally_value::{Value, json};

use super::{create, indexed, merge, update};

const MARK: &str = "batch.kubernetes.io/job-tracking";

/// What a create does to a Job while gates are off.
fn created(mut job: Value, gates: FeatureGates) -> Value {
    JobRules.drop_disabled(&mut job, None, gates);
    // This sets defaults, too.
    let mut job = create(job).expect("a Job without the fields is valid");
    JobRules.drop_disabled(&mut job, None, gates);
    job
}

/// The result of applying a merge patch to a stored Job while gates are off.
fn changed(stored: &Value, patch: &Value, gates: FeatureGates) -> Result<Value, Vec<String>> {
    let mut new = stored.clone();
    merge(&mut new, patch);
    JobRules.drop_disabled(&mut new, Some(stored), gates);
    JobRules.default(&mut new);
    JobRules.drop_disabled(&mut new, Some(stored), gates);
    let errors = JobRules.validate_gated(&new, stored, Part::Main, gates);
    if !errors.is_empty() {
        return Err(errors.iter().map(ToString::to_string).collect());
    }
    update(stored, Part::Main, new)
}

fn off(gate: Gate) -> FeatureGates {
    FeatureGates::ALL_ON.with(gate, false)
}

/// Each gate with a Job that uses its fields, and the fields.
fn rows() -> Vec<(Gate, Value, Vec<&'static str>)> {
    let fail_index = json!({"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [3]}});
    let per_index = json!({
        "backoffLimitPerIndex": 1, "maxFailedIndexes": 2, "podFailurePolicy": {"rules": [fail_index]},
    });
    let success = json!({"successPolicy": {"rules": [{"succeededCount": 1}]}});
    vec![
        (Gate::JobBackoffLimitPerIndex, per_index, vec!["backoffLimitPerIndex", "maxFailedIndexes"]),
        (Gate::JobManagedBy, json!({"managedBy": "example.com/x"}), vec!["managedBy"]),
        (Gate::JobPodReplacementPolicy, json!({"podReplacementPolicy": "Failed"}), vec!["podReplacementPolicy"]),
        (Gate::JobSuccessPolicy, success, vec!["successPolicy"]),
        (Gate::TTLAfterFinished, json!({"ttlSecondsAfterFinished": 5}), vec!["ttlSecondsAfterFinished"]),
    ]
}

/// GATE-6.
#[test]
fn fields_of_a_new_job_are_dropped_while_their_gate_is_off_and_only_then() {
    for (gate, fields, names) in rows() {
        for other in Gate::ALL.into_iter().filter(|other| *other != gate) {
            let job = created(indexed(fields.clone()), off(other));
            names.iter().for_each(|name| assert!(job["spec"].get(name).is_some(), "{name} with {other:?} off"));
        }
        let job = created(indexed(fields), off(gate));
        names.iter().for_each(|name| assert!(job["spec"].get(name).is_none(), "{name} with {gate:?} off: {job}"));
    }
    // The default depends on a field that is dropped, and a default is not stored either.
    let per_index = created(indexed(json!({"backoffLimitPerIndex": 1})), off(Gate::JobBackoffLimitPerIndex));
    assert_eq!(per_index["spec"]["backoffLimit"], 6);
    let plain = created(indexed(json!({})), off(Gate::JobPodReplacementPolicy));
    assert_eq!(plain["spec"].get("podReplacementPolicy"), None);
    let rules = |gates| created(indexed(rows()[0].1.clone()), gates)["spec"]["podFailurePolicy"]["rules"].clone();
    assert_eq!(rules(off(Gate::JobBackoffLimitPerIndex)), json!([]), "FailIndex needs a limit for each index");
    assert_eq!(rules(FeatureGates::ALL_ON).as_array().map(Vec::len), Some(1));
}

/// GATE-6.
#[test]
fn fields_that_the_stored_job_has_stay_while_their_gate_is_off() {
    for (gate, fields, names) in rows() {
        let stored = created(indexed(fields), FeatureGates::ALL_ON);
        let kept = changed(&stored, &json!({"metadata": {"labels": {"a": "b"}}}), off(gate)).expect("a valid change");
        names.iter().for_each(|name| assert_eq!(kept["spec"][name], stored["spec"][name], "{gate:?}"));
    }
    let ttl = created(indexed(json!({"ttlSecondsAfterFinished": 5})), FeatureGates::ALL_ON);
    let seven = json!({"spec": {"ttlSecondsAfterFinished": 7}});
    let later = changed(&ttl, &seven, off(Gate::TTLAfterFinished)).expect("a field that is there can be changed");
    assert_eq!(later["spec"]["ttlSecondsAfterFinished"], 7);
    let without = created(indexed(json!({})), FeatureGates::ALL_ON);
    let later = changed(&without, &seven, off(Gate::TTLAfterFinished)).expect("the field is dropped silently");
    assert_eq!(later["spec"].get("ttlSecondsAfterFinished"), None);
    let later = changed(&without, &seven, FeatureGates::ALL_ON).expect("a valid change");
    assert_eq!(later["spec"]["ttlSecondsAfterFinished"], 7);
}

/// ELASTIC-1, GATE-6.
#[test]
fn without_its_gate_an_indexed_job_keeps_its_number_of_indexes() {
    let stored = created(indexed(json!({})), FeatureGates::ALL_ON);
    let fewer = json!({"spec": {"completions": 3, "parallelism": 3}});
    assert!(changed(&stored, &fewer, FeatureGates::ALL_ON).is_ok());
    let refused = changed(&stored, &fewer, off(Gate::ElasticIndexedJob));
    assert_eq!(refused, Err(vec!["spec.completions: Invalid value: 3: field is immutable".to_owned()]));
    assert!(changed(&stored, &json!({"spec": {"parallelism": 3}}), off(Gate::ElasticIndexedJob)).is_ok());
}

/// GATE-7.
#[test]
fn a_job_is_marked_exactly_if_it_is_created_while_tracking_is_off() {
    let mark = |job: &Value| job.pointer("/metadata/annotations").and_then(|all| all.get(MARK)).cloned();
    let tracking = off(Gate::JobTrackingWithFinalizers);
    let legacy = created(indexed(json!({})), tracking);
    assert_eq!(mark(&legacy), Some(json!("legacy")));
    assert_eq!(mark(&created(indexed(json!({})), FeatureGates::ALL_ON)), None);
    let mut forged = indexed(json!({}));
    merge(&mut forged, &json!({"metadata": {"annotations": {MARK: "legacy"}}}));
    assert_eq!(created(forged, FeatureGates::ALL_ON).pointer("/metadata/annotations"), None);
    let mut tracked = indexed(json!({}));
    merge(&mut tracked, &json!({"metadata": {"annotations": {MARK: ""}}}));
    assert_eq!(mark(&created(tracked, FeatureGates::ALL_ON)), Some(json!("")), "other values are the user's");
    for gates in [tracking, FeatureGates::ALL_ON] {
        let removed = changed(&legacy, &json!({"metadata": {"annotations": null}}), gates).expect("a valid change");
        assert_eq!(mark(&removed), Some(json!("legacy")), "users cannot remove it");
        let plain = created(indexed(json!({})), FeatureGates::ALL_ON);
        let added = json!({"metadata": {"annotations": {MARK: "legacy", "a": "b"}}});
        let added = changed(&plain, &added, gates).expect("a valid change");
        assert_eq!(added["metadata"]["annotations"], json!({"a": "b"}), "users cannot add it");
    }
}
