//! STATUSVAL: a change of a Job's status must follow the same rules that the Job controller checks.

use serde::Deserialize;
use serde_json::value::RawValue;
use tally_core::gates::{FeatureGates, Gate};
use tally_core::job::{CompletionMode, JobSpec, JobStatus, PodReplacementPolicy, Template};
use tally_core::policy::SuccessPolicy;
use tally_core::selector::Selector;
use tally_core::status_rules;
use tally_value::Value;

use crate::field::{At, FieldError};

pub(super) fn validate(new: &Value, old: &Value, gates: FeatureGates) -> Vec<FieldError> {
    let (new_root, old_root) = (At::root(new), At::root(old));
    let (status, before) = (new_root.at("status"), old_root.at("status"));
    match (read(&status), read(&before)) {
        (Ok(new), Ok(old)) => status_rules::check_gated(&spec(&new_root.at("spec"), gates), &old, &new, gates),
        // Objects already conform to their schema, so this covers what a schema cannot express.
        (Err(problem), _) | (_, Err(problem)) => vec![status.invalid_unprinted(problem)],
    }
}

fn read(status: &At<'_, '_>) -> Result<JobStatus, String> {
    status
        .value
        .map_or_else(|| Ok(JobStatus::default()), |value| JobStatus::deserialize(value).map_err(|e| e.to_string()))
}

/// The fields of the spec that the rules of the status need.
fn spec(spec: &At<'_, '_>, gates: FeatureGates) -> JobSpec {
    let int32 = |field: &str| spec.at(field).int().and_then(|number| i32::try_from(number).ok());
    JobSpec {
        parallelism: int32("parallelism").unwrap_or(1),
        completions: int32("completions"),
        completion_mode: match spec.at("completionMode").text() {
            Some("Indexed") => CompletionMode::Indexed,
            _ => CompletionMode::NonIndexed,
        },
        backoff_limit: 0,
        backoff_limit_per_index: int32("backoffLimitPerIndex"),
        max_failed_indexes: None,
        active_deadline_seconds: None,
        ttl_seconds_after_finished: None,
        suspend: spec.at("suspend").is_true(),
        pod_replacement_policy: PodReplacementPolicy::TerminatingOrFailed,
        pod_failure_policy: None,
        // A policy that is stored while its gate is off has no effect, and asks nothing of a status (GATE-6).
        success_policy: (spec.at("successPolicy").is_set() && gates.enabled(Gate::JobSuccessPolicy))
            .then(SuccessPolicy::default),
        managed_by: None,
        selector: Selector::default(),
        restart_policy_on_failure: false,
        judges_terminating: false,
        pending_timeouts: None,
        template: Template::new(RawValue::NULL.to_owned()),
    }
}
