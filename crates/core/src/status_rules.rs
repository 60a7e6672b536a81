//! The rules that a change of a Job's status must keep (STATUSVAL-1 to 28, 31): a linter shared by both ends of a write.
//!
//! The controller runs it before it sends a status, so that a mistake of ours is stopped here with the id of a rule;
//! the API server runs it before it stores the status, and responds with the same messages. Many rules apply only to
//! updates that change the fields they are about, so that an object which is already invalid can still be changed
//! elsewhere.
//!
//! Nothing is allocated as long as nothing is wrong and few Pods are uncounted, and index lists are parsed only if one
//! of them has changed: this runs before every status write.

use std::collections::HashSet;
use std::fmt;

use foldhash::fast::FixedState;

pub use crate::field_error::{ErrorKind, FieldError};
use crate::gates::FeatureGates;
use crate::ids::PodUid;
use crate::indexes::{fragments, interval, strict_intervals};
use crate::job::{JobSpec, JobStatus, Uncounted, condition};
use crate::time::Timestamp;

/// Up to this many UIDs are compared pairwise: cheaper than hashing them, and without an allocation.
const FEW_UIDS: usize = 16;

/// Which rules the change from `old` to `new` violates, in the order in which the API lists them. Empty: the change is
/// valid.
pub fn check(spec: &JobSpec, old: &JobStatus, new: &JobStatus) -> Vec<FieldError> {
    check_gated(spec, old, new, FeatureGates::ALL_ON)
}

/// The same while feature gates are off.
pub fn check_gated(spec: &JobSpec, old: &JobStatus, new: &JobStatus, gates: FeatureGates) -> Vec<FieldError> {
    let interim = gates.delays_terminal_conditions();
    let change = Change { spec, old, new, was: Marks::of(old), is: Marks::of(new), interim };
    let mut errors = Vec::new();
    change.check_values(&mut errors);
    change.check_outcome(&mut errors);
    change.check_finished(&mut errors);
    change.check_indexes(&mut errors);
    change.check_live_counts(&mut errors);
    change.check_success(&mut errors);
    change.check_direction(&mut errors);
    errors
}

/// What the conditions of a status state. If a type occurs several times, one condition that is True is sufficient.
#[derive(Clone, Copy, Default)]
struct Marks {
    complete: bool,
    failed: bool,
    failure_target: bool,
    success_criteria_met: bool,
    suspended: bool,
    /// Suspended=False, set explicitly.
    resumed: bool,
}

impl Marks {
    fn of(status: &JobStatus) -> Self {
        let mut marks = Self::default();
        for condition in &status.conditions {
            let is_true = condition.is_true();
            match condition.kind.as_str() {
                condition::COMPLETE => marks.complete |= is_true,
                condition::FAILED => marks.failed |= is_true,
                condition::FAILURE_TARGET => marks.failure_target |= is_true,
                condition::SUCCESS_CRITERIA_MET => marks.success_criteria_met |= is_true,
                condition::SUSPENDED => {
                    marks.suspended |= is_true;
                    marks.resumed |= condition.status == "False";
                }
                _ => {}
            }
        }
        marks
    }

    fn finished(self) -> bool {
        self.complete || self.failed
    }
}

struct Change<'a> {
    spec: &'a JobSpec,
    old: &'a JobStatus,
    new: &'a JobStatus,
    was: Marks,
    is: Marks,
    /// GATE-11: every Complete and Failed has an interim condition.
    interim: bool,
}

impl Change<'_> {
    /// 1 and 2: whatever the update changes, the numbers and UIDs themselves must be valid.
    fn check_values(&self, errors: &mut Vec<FieldError>) {
        let new = self.new;
        for (field, count) in [
            ("active", Some(new.active)),
            ("succeeded", Some(new.succeeded)),
            ("failed", Some(new.failed)),
            ("ready", new.ready),
            ("terminating", new.terminating),
        ] {
            if let Some(count) = count
                && count < 0
            {
                errors.push(invalid("STATUSVAL-1", field, count, "must be greater than or equal to 0"));
            }
        }
        check_uncounted(new.uncounted(), errors);
    }

    /// 3 to 9: which conditions and times may occur together.
    fn check_outcome(&self, errors: &mut Vec<FieldError>) {
        let Self { old, new, was, is, .. } = *self;
        let complete_changed = was.complete != is.complete;
        let failed_changed = was.failed != is.failed;
        let target_changed = was.failure_target != is.failure_target;
        let completion_changed = old.completion_time != new.completion_time;
        let start_changed = old.start_time != new.start_time;

        if (complete_changed || failed_changed) && is.complete && is.failed {
            errors.push(conditions("STATUSVAL-3", "cannot set Complete=True and Failed=true conditions"));
        }
        if (complete_changed || target_changed) && is.complete && is.failure_target {
            errors.push(conditions("STATUSVAL-4", "cannot set Complete=True and FailureTarget=true conditions"));
        }
        if complete_changed || completion_changed {
            match new.completion_time {
                Some(at) if !is.complete => errors.push(invalid(
                    "STATUSVAL-5",
                    "completionTime",
                    time(Some(at)),
                    "cannot set completionTime when there is no Complete=True condition",
                )),
                None if is.complete => errors.push(required(
                    "STATUSVAL-6",
                    "completionTime",
                    "completionTime is required for Complete jobs",
                )),
                _ => {}
            }
        }
        if (start_changed || completion_changed)
            && let (Some(started_at), Some(completed_at)) = (new.start_time, new.completion_time)
            && completed_at < started_at
        {
            errors.push(invalid(
                "STATUSVAL-7",
                "completionTime",
                time(Some(completed_at)),
                "must be equal to or after `startTime`",
            ));
        }
        if self.interim && is.failed && !is.failure_target && (failed_changed || self.failed_indexes_changed()) {
            errors.push(conditions(
                "STATUSVAL-8",
                "cannot set Failed=True condition without the FailureTarget=true condition",
            ));
        }
        if self.interim
            && (complete_changed || was.success_criteria_met != is.success_criteria_met)
            && is.complete
            && !is.success_criteria_met
        {
            errors.push(conditions(
                "STATUSVAL-9",
                "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
            ));
        }
    }

    /// 10 to 12: what a finished Job must have, and what it must not have any more.
    fn check_finished(&self, errors: &mut Vec<FieldError>) {
        let Self { spec, old, new, .. } = *self;
        if !self.is.finished() {
            return;
        }
        let finished_now = self.finished_changed();
        if (finished_now || old.active != new.active) && new.active > 0 {
            errors.push(invalid("STATUSVAL-10", "active", new.active, "active>0 is invalid for finished job"));
        }
        // A suspended Job with zero completions finishes without having started.
        let may_lack_start = spec.suspend && spec.completions == Some(0);
        if (finished_now || old.start_time != new.start_time) && new.start_time.is_none() && !may_lack_start {
            errors.push(required("STATUSVAL-11", "startTime", "startTime is required for finished job"));
        }
        let uncounted = new.uncounted();
        if !uncounted.is_empty() && (finished_now || old.uncounted() != uncounted) {
            errors.push(invalid(
                "STATUSVAL-12",
                "uncountedTerminatedPods",
                uncounted_value(uncounted),
                "must be empty for finished job",
            ));
        }
    }

    /// 13 to 17: the two index lists.
    fn check_indexes(&self, errors: &mut Vec<FieldError>) {
        let Self { spec, old, new, .. } = *self;
        let completed_changed = old.completed_indexes != new.completed_indexes;
        let failed_changed = self.failed_indexes_changed();
        if !completed_changed && !failed_changed {
            return;
        }
        let limit = spec.index_limit();
        let completed = &*new.completed_indexes;
        let failed = new.failed_indexes.as_deref();
        if completed_changed
            && spec.completions.is_some()
            && let Some(Err(problem)) = strict_intervals(completed, limit).find(Result::is_err)
        {
            errors.push(invalid(
                "STATUSVAL-13",
                "completedIndexes",
                quoted(completed),
                format!("error parsing completedIndexes: {problem}"),
            ));
        }
        if failed_changed
            && spec.completions.is_some()
            && spec.backoff_limit_per_index.is_some()
            && let Some(failed) = failed
            && let Some(Err(problem)) = strict_intervals(failed, limit).find(Result::is_err)
        {
            errors.push(invalid(
                "STATUSVAL-14",
                "failedIndexes",
                quoted(failed),
                format!("error parsing failedIndexes: {problem}"),
            ));
        }
        if completed_changed && !completed.is_empty() && !spec.is_indexed() {
            errors.push(invalid(
                "STATUSVAL-15",
                "completedIndexes",
                quoted(completed),
                "cannot set non-empty completedIndexes when non-indexed completion mode",
            ));
        }
        let Some(failed) = failed else { return };
        if failed_changed && spec.backoff_limit_per_index.is_none() {
            errors.push(invalid(
                "STATUSVAL-16",
                "failedIndexes",
                quoted(failed),
                "cannot set non-null failedIndexes when backoffLimitPerIndex is null",
            ));
        }
        if spec.completions.is_some()
            && let Some(index) = first_overlap(completed, failed, limit)
        {
            errors.push(invalid(
                "STATUSVAL-17",
                "failedIndexes",
                quoted(failed),
                format!("failedIndexes and completedIndexes overlap at index: {index}"),
            ));
        }
    }

    /// 18 and 19: counts of Pods that still run.
    fn check_live_counts(&self, errors: &mut Vec<FieldError>) {
        let Self { old, new, .. } = *self;
        if let Some(terminating) = new.terminating
            && terminating > 0
            && self.is.finished()
            && (self.finished_changed() || old.terminating != new.terminating)
        {
            errors.push(invalid(
                "STATUSVAL-18",
                "terminating",
                terminating,
                "terminating>0 is invalid for finished job",
            ));
        }
        if let Some(ready) = new.ready
            && ready > new.active
            && (old.ready != new.ready || old.active != new.active)
        {
            errors.push(invalid("STATUSVAL-19", "ready", ready, "cannot set more ready pods than active"));
        }
    }

    /// 20, 21 and 31: success and failure exclude each other, and success requires its criteria.
    fn check_success(&self, errors: &mut Vec<FieldError>) {
        let is = self.is;
        let unasked = !self.interim && is.success_criteria_met && !self.was.success_criteria_met;
        if unasked && !self.spec.is_indexed() {
            errors.push(conditions("STATUSVAL-31", "cannot set SuccessCriteriaMet to NonIndexed Job"));
        }
        if is.success_criteria_met && is.failed {
            errors.push(conditions("STATUSVAL-20", "cannot set SuccessCriteriaMet=True and Failed=true conditions"));
        }
        if is.success_criteria_met && is.failure_target {
            errors.push(conditions(
                "STATUSVAL-20",
                "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
            ));
        }
        if unasked && self.spec.success_policy.is_none() {
            errors.push(conditions("STATUSVAL-31", "cannot set SuccessCriteriaMet=True for Job without SuccessPolicy"));
        }
        if self.spec.success_policy.is_some() && is.complete && !is.success_criteria_met {
            errors.push(conditions(
                "STATUSVAL-21",
                "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
            ));
        }
    }

    /// 22 to 28: what may change in one direction only.
    fn check_direction(&self, errors: &mut Vec<FieldError>) {
        let Self { spec, old, new, was, is, .. } = *self;
        for (kind, withdrawn) in [
            (condition::FAILED, was.failed && !is.failed),
            (condition::COMPLETE, was.complete && !is.complete),
            (condition::FAILURE_TARGET, was.failure_target && !is.failure_target),
        ] {
            if withdrawn {
                let detail = format!("cannot disable the terminal {kind}=True condition");
                errors.push(conditions("STATUSVAL-22", detail));
            }
        }
        if new.failed < old.failed {
            errors.push(invalid("STATUSVAL-23", "failed", new.failed, "cannot decrease the failed counter"));
        }
        // An Indexed Job whose completions and parallelism are scaled down together forgets the indexes that are now
        // out of range.
        let elastic = spec.is_indexed() && spec.completions == Some(spec.parallelism);
        if new.succeeded < old.succeeded && !elastic {
            errors.push(invalid("STATUSVAL-24", "succeeded", new.succeeded, "cannot decrease the succeeded counter"));
        }
        if let (Some(before), Some(after)) = (old.completion_time, new.completion_time)
            && before != after
        {
            errors.push(invalid("STATUSVAL-25", "completionTime", time(Some(after)), "field is immutable"));
        }
        let resumes = was.suspended && is.resumed;
        if old.start_time.is_some() && old.start_time != new.start_time && !spec.suspend && !resumes {
            errors.push(invalid(
                "STATUSVAL-26",
                "startTime",
                time(new.start_time),
                "field is immutable for unsuspended job once set",
            ));
        }
        if was.success_criteria_met && !is.success_criteria_met {
            errors.push(conditions("STATUSVAL-27", "cannot disable the SuccessCriteriaMet=True condition"));
        }
        if was.complete && !was.success_criteria_met && is.success_criteria_met {
            errors.push(conditions(
                "STATUSVAL-28",
                "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
            ));
        }
    }

    fn finished_changed(&self) -> bool {
        self.was.finished() != self.is.finished()
    }

    fn failed_indexes_changed(&self) -> bool {
        self.old.failed_indexes != self.new.failed_indexes
    }
}

/// 2: no UID is empty, and none is listed twice.
fn check_uncounted(uncounted: &Uncounted, errors: &mut Vec<FieldError>) {
    let listed = || uncounted.succeeded.iter().chain(&uncounted.failed);
    let mut seen =
        (uncounted.len() > FEW_UIDS).then(|| HashSet::with_capacity_and_hasher(uncounted.len(), FixedState::default()));
    for (at, uid) in listed().enumerate() {
        let error = |kind, detail: &str| FieldError {
            rule: "STATUSVAL-2",
            path: match at.checked_sub(uncounted.succeeded.len()) {
                None => format!("status.uncountedTerminatedPods.succeeded[{at}]"),
                Some(at) => format!("status.uncountedTerminatedPods.failed[{at}]"),
            },
            kind,
            value: Some(quoted(&uid.to_string())),
            detail: detail.to_owned(),
        };
        if uid.is_empty() {
            errors.push(error(ErrorKind::Invalid, "must not be empty"));
            continue;
        }
        let repeated = match &mut seen {
            Some(seen) => !seen.insert(uid),
            None => listed().take(at).any(|earlier| earlier == uid),
        };
        if repeated {
            errors.push(error(ErrorKind::Duplicate, ""));
        }
    }
}

/// 17: the first index that is in both lists. Fragments that cannot be parsed are skipped: their own rule reports them.
fn first_overlap(completed: &str, failed: &str, limit: u32) -> Option<u32> {
    let readable = |list| fragments(list).filter_map(move |fragment| interval(fragment, limit).ok());
    let (mut completed, mut failed) = (readable(completed), readable(failed));
    let (mut one, mut other) = (completed.next()?, failed.next()?);
    loop {
        let meet = one.0.max(other.0);
        if meet <= one.1.min(other.1) {
            return Some(meet);
        }
        if one.1 < other.1 {
            one = completed.next()?;
        } else {
            other = failed.next()?;
        }
    }
}

fn invalid(rule: &'static str, field: &str, value: impl fmt::Display, detail: impl Into<String>) -> FieldError {
    FieldError {
        rule,
        path: format!("status.{field}"),
        kind: ErrorKind::Invalid,
        value: Some(value.to_string()),
        detail: detail.into(),
    }
}

/// The API prints no value for conditions: the list says little, and the detail names the types.
fn conditions(rule: &'static str, detail: impl Into<String>) -> FieldError {
    FieldError {
        rule,
        path: "status.conditions".to_owned(),
        kind: ErrorKind::Invalid,
        value: None,
        detail: detail.into(),
    }
}

fn required(rule: &'static str, field: &str, detail: &str) -> FieldError {
    FieldError {
        rule,
        path: format!("status.{field}"),
        kind: ErrorKind::Required,
        value: None,
        detail: detail.to_owned(),
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn time(at: Option<Timestamp>) -> String {
    at.map_or_else(|| "null".to_owned(), |at| format!("\"{at}\""))
}

/// As the API prints it: with the field names of the internal type, and with every list present.
fn uncounted_value(uncounted: &Uncounted) -> String {
    let list = |uids: &[PodUid]| {
        if uids.is_empty() {
            return "null".to_owned();
        }
        let uids: Vec<_> = uids.iter().map(|uid| quoted(&uid.to_string())).collect();
        format!("[{}]", uids.join(","))
    };
    format!(r#"{{"Succeeded":{},"Failed":{}}}"#, list(&uncounted.succeeded), list(&uncounted.failed))
}
