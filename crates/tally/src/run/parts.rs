//! A list that needs several Jobs, its parts (`input/each`): they are run one after the other, shown as one, and end as
//! one. Pure.
//!
//! Every part is a Job of its own, so each has its own counts and retries. The parallelism is that of the whole list: a
//! part gets what the unfinished parts before it leave. If a part fails before its rows are done, the others are
//! suspended.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tally_core::indexes::{IndexSet, task_index};

use super::progress::view::{Condition, JobSpec, JobStatus, JobText, originals};

/// On a Job: the name of the list whose part it is.
pub const PART_OF: &str = "tally.dev/part-of";
pub use tally_node::each::FIRST_INDEX_ANNOTATION as FIRST_INDEX;

/// On a Job: the parallelism of the whole list.
pub const PARALLELISM: &str = "tally.dev/parallelism";

/// That a Job is a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPart {
    /// The name of the list.
    pub of: String,
    /// The index of the first row.
    pub first: u32,
    /// The parallelism of the whole list.
    pub parallelism: u32,
}

impl ListPart {
    pub fn of(job: &Value) -> Option<Self> {
        let annotation = |name: &str| job["metadata"]["annotations"][name].as_str();
        Some(Self {
            of: annotation(PART_OF)?.to_owned(),
            first: annotation(FIRST_INDEX)?.parse().ok()?,
            parallelism: annotation(PARALLELISM)?.parse().ok()?,
        })
    }
}

/// The parts of one list, as last observed.
#[derive(Debug, Default)]
pub struct ListParts {
    /// By the index of the first row.
    parts: BTreeMap<u32, ObservedPart>,
}

#[derive(Debug, Default)]
struct ObservedPart {
    name: String,
    uid: String,
    completions: u32,
    parallelism: u32,
    suspended: bool,
    status: JobStatus,
    failed_indexes: IndexSet,
    /// The indexes of another Job that it runs again.
    retried: Option<String>,
}

impl ObservedPart {
    fn condition(&self, kind: &str) -> Option<&Condition> {
        let conditions = self.status.conditions.as_deref().unwrap_or_default();
        conditions.iter().find(|condition| condition.r#type == kind && condition.status == "True")
    }

    fn completed(&self) -> IndexSet {
        IndexSet::read_tolerant(self.status.completed_indexes.as_deref().unwrap_or_default(), self.completions)
    }

    /// An index as that of the part that was run first.
    fn original(&self, index: u32) -> u32 {
        task_index(&index.to_string(), self.retried.as_deref()).unwrap_or(u32::MAX)
    }

    fn is_finished(&self) -> bool {
        self.condition("Complete").is_some() || self.condition("Failed").is_some()
    }

    /// Why it has failed before all its rows were done, if it has. Then the other parts must not go on.
    fn stop(&self) -> Option<&Condition> {
        let failed = self.condition("Failed").or_else(|| self.condition("FailureTarget"));
        failed.filter(|condition| condition.reason != "FailedIndexes")
    }

    /// Rows that are not done.
    fn left(&self) -> u32 {
        let done = self.status.succeeded.saturating_add(self.failed_indexes.len() as u32);
        if self.is_finished() { 0 } else { self.completions.saturating_sub(done) }
    }

    /// It runs nothing, and will not.
    fn is_still(&self) -> bool {
        self.is_finished() || self.suspended && self.status.active + self.status.terminating.unwrap_or(0) == 0
    }
}

/// A change to a Job.
#[derive(Debug, PartialEq)]
pub struct PartChange {
    pub job: String,
    /// A merge patch that applies only to the Job with this UID.
    pub patch: Value,
}

impl ListParts {
    /// A Job that will be observed.
    pub fn expect(&mut self, first: u32, name: &str, uid: &str) {
        let part = self.parts.entry(first).or_default();
        (part.name, part.uid) = (name.to_owned(), uid.to_owned());
    }

    /// Whether the Job with this UID was observed as finished.
    pub fn is_finished(&self, uid: &str) -> bool {
        self.parts.values().any(|part| part.uid == uid && part.is_finished())
    }

    /// An index of the part with this UID, as that of the whole list.
    pub fn index_of(&self, uid: &str, index: u32) -> u32 {
        let part = self.parts.iter().find(|(_, part)| part.uid == uid);
        part.map_or(index, |(first, part)| first.saturating_add(part.original(index)))
    }

    /// The rows that have neither succeeded nor failed.
    pub fn not_run(&self) -> IndexSet {
        let not_run = |part: &ObservedPart| {
            IndexSet::below(part.completions).difference(&part.completed()).difference(&part.failed_indexes)
        };
        self.over_all(|part| if part.condition("Complete").is_some() { IndexSet::new() } else { not_run(part) })
    }

    /// Indexes of all parts, as those of the whole list.
    fn over_all(&self, indexes: impl Fn(&ObservedPart) -> IndexSet) -> IndexSet {
        let mut whole = IndexSet::new();
        for (first, part) in &self.parts {
            for (from, to) in originals(indexes(part), part.retried.as_deref()).intervals() {
                whole.insert_below(first + from, first + to + 1);
            }
        }
        whole
    }

    /// The first row of the list that is not done.
    pub fn first_open(&self) -> u32 {
        let open = self.parts.iter().find(|(_, part)| !part.is_finished());
        open.map_or(u32::MAX, |(first, part)| {
            let done = part.completed().union(&part.failed_indexes);
            first.saturating_add(part.original(done.first_absent_from(0)))
        })
    }

    /// Stores an observed state. Returns the state of the whole list, as if it were one Job.
    pub fn observe(&mut self, text: &JobText) -> JobText {
        if let Some(part) = self.parts.values_mut().find(|part| part.uid == text.metadata.uid) {
            part.completions = text.spec.completions.unwrap_or(0);
            part.parallelism = text.spec.parallelism.unwrap_or(1);
            part.suspended = text.spec.suspend == Some(true);
            part.status = text.status.clone();
            let failed = text.status.failed_indexes.as_deref().unwrap_or_default();
            part.failed_indexes = IndexSet::read_tolerant(failed, part.completions);
            part.retried = text.metadata.retried().map(str::to_owned);
        }
        self.whole(text)
    }

    fn whole(&self, text: &JobText) -> JobText {
        let sum = |count: fn(&JobStatus) -> u32| self.parts.values().map(|part| count(&part.status)).sum();
        let failed = self.over_all(|part| part.failed_indexes.clone());
        let of = |kind: &str| self.parts.values().find_map(|part| part.condition(kind)).cloned();
        let condition = match self.parts.values().find_map(ObservedPart::stop).cloned() {
            Some(stop) => {
                let still = self.parts.values().all(ObservedPart::is_still);
                Some(Condition { r#type: if still { "Failed" } else { "FailureTarget" }.to_owned(), ..stop })
            }
            None if self.parts.values().all(ObservedPart::is_finished) => of("Failed").or_else(|| of("Complete")),
            None => None,
        };
        JobText {
            metadata: text.metadata.clone(),
            spec: JobSpec {
                completions: Some(self.parts.values().map(|part| part.completions).sum()),
                completion_mode: text.spec.completion_mode.clone(),
                backoff_limit_per_index: text.spec.backoff_limit_per_index,
                ..JobSpec::default()
            },
            status: JobStatus {
                active: sum(|status| status.active),
                succeeded: sum(|status| status.succeeded),
                failed: sum(|status| status.failed),
                terminating: Some(sum(|status| status.terminating.unwrap_or(0))),
                failed_indexes: Some(failed.text()),
                completed_indexes: None,
                conditions: condition.map(|condition| vec![condition]),
            },
        }
    }

    /// The next change that is due. It must be made before the next call.
    pub fn next_change(&mut self, parallelism: u32) -> Option<PartChange> {
        let failed = self.parts.values().any(|part| part.stop().is_some());
        let mut free = parallelism;
        for part in self.parts.values_mut().filter(|part| !part.uid.is_empty() && !part.is_finished()) {
            if failed {
                if part.stop().is_none() && !std::mem::replace(&mut part.suspended, true) {
                    return Some(part.change(json!({"suspend": true})));
                }
                continue;
            }
            let left = part.left();
            let wanted = free.min(left);
            // More than what is left does no harm, and a lower number would have to be raised when a Pod fails.
            if wanted > part.parallelism || part.parallelism > free && left > free {
                part.parallelism = wanted;
                return Some(part.change(json!({"parallelism": wanted})));
            }
            free -= wanted;
        }
        None
    }
}

impl ObservedPart {
    fn change(&self, spec: Value) -> PartChange {
        PartChange { job: self.name.clone(), patch: json!({"metadata": {"uid": self.uid}, "spec": spec}) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn text(uid: &str, parallelism: u32, status: Value) -> JobText {
        let spec = json!({"completions": 10, "parallelism": parallelism});
        serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": spec, "status": status})).unwrap()
    }

    /// ListParts with ten rows each.
    fn parts(observed: &[(u32, Value)]) -> (ListParts, JobText) {
        let mut parts = ListParts::default();
        let uids = ["a", "b", "c"];
        for (at, _) in observed.iter().enumerate() {
            parts.expect(at as u32 * 10, uids[at], uids[at]);
        }
        let mut whole = JobText::default();
        for (at, (parallelism, status)) in observed.iter().enumerate() {
            whole = parts.observe(&text(uids[at], *parallelism, status.clone()));
        }
        (parts, whole)
    }

    fn condition(kind: &str) -> Value {
        json!([{"type": kind, "status": "True", "reason": "R"}])
    }

    fn changes(parts: &mut ListParts, parallelism: u32) -> Vec<String> {
        let next = || parts.next_change(parallelism);
        std::iter::from_fn(next).map(|change| format!("{} {}", change.job, change.patch["spec"])).collect()
    }

    #[test]
    fn a_part_gets_what_the_parts_before_it_leave() {
        let complete = || json!({"succeeded": 10, "conditions": condition("Complete")});
        for (observed, expected) in [
            (vec![(4, json!({})), (0, json!({}))], &[][..]),
            (vec![(4, json!({"succeeded": 6})), (0, json!({}))], &[]),
            (vec![(4, json!({"succeeded": 7})), (0, json!({}))], &["b {\"parallelism\":1}"]),
            (vec![(4, json!({"succeeded": 7})), (1, json!({}))], &[]),
            (vec![(4, json!({"succeeded": 7, "failedIndexes": "3"})), (1, json!({}))], &["b {\"parallelism\":2}"]),
            (vec![(4, complete()), (1, json!({})), (0, json!({}))], &["b {\"parallelism\":4}"]),
            (vec![(4, complete()), (2, json!({"succeeded": 8})), (0, json!({}))], &["c {\"parallelism\":2}"]),
            // Another parallelism was asked for.
            (vec![(9, json!({}))], &["a {\"parallelism\":4}"]),
            (vec![(2, json!({})), (0, json!({}))], &["a {\"parallelism\":4}"]),
        ] {
            let (mut parts, _) = parts(&observed);
            assert_eq!(changes(&mut parts, 4), expected, "{observed:?}");
        }
    }

    #[test]
    fn a_part_that_fails_stops_the_others() {
        let failing = json!({"failed": 7, "conditions": condition("FailureTarget")});
        let (mut all, whole) = parts(&[(4, failing), (2, json!({"active": 2})), (0, json!({}))]);
        assert_eq!(whole.status.conditions.unwrap()[0].r#type, "FailureTarget");
        assert_eq!(changes(&mut all, 4), ["b {\"suspend\":true}", "c {\"suspend\":true}"]);
        let failed = json!({"failed": 7, "conditions": condition("Failed")});
        let whole = all.observe(&text("a", 4, failed));
        assert_eq!(whole.status.conditions.unwrap()[0].r#type, "FailureTarget", "b still runs");
        let mut suspended = text("b", 2, json!({}));
        suspended.spec.suspend = Some(true);
        all.observe(&suspended);
        suspended.metadata.uid = "c".to_owned();
        let whole = all.observe(&suspended);
        assert_eq!(whole.status.conditions.unwrap()[0].r#type, "Failed");
    }

    #[test]
    fn indexes_that_failed_do_not_stop_the_other_parts() {
        let conditions = json!([{"type": "Failed", "status": "True", "reason": "FailedIndexes"}]);
        let failed = json!({"succeeded": 9, "failed": 1, "failedIndexes": "3", "conditions": conditions});
        let (mut all, whole) = parts(&[(4, failed), (0, json!({}))]);
        assert!(whole.status.conditions.is_none());
        assert_eq!(changes(&mut all, 4), ["b {\"parallelism\":4}"]);
        let complete = json!({"succeeded": 10, "conditions": condition("Complete")});
        let whole = all.observe(&text("b", 4, complete));
        assert_eq!(whole.status.conditions.unwrap()[0].r#type, "Failed");
    }

    /// RETRY-5.
    #[test]
    fn the_indexes_of_a_list_that_is_run_again_are_those_of_the_list() {
        let mut parts = ListParts::default();
        let part = |uid: &str, retried: &str, status: Value| -> JobText {
            let annotations = json!({"tally.dev/retry-indexes": retried});
            let spec = json!({"completions": 3, "parallelism": 1});
            let metadata = json!({"uid": uid, "annotations": annotations});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
        };
        parts.expect(10, "a", "a");
        parts.expect(20, "b", "b");
        let failed = json!({"completedIndexes": "0", "failedIndexes": "1", "conditions": condition("Failed")});
        parts.observe(&part("a", "2,4,9", failed));
        let whole = parts.observe(&part("b", "0,5-6", json!({"completedIndexes": "0"})));
        assert_eq!(whole.status.failed_indexes.as_deref(), Some("14"));
        assert_eq!(parts.not_run().text(), "19,25,26");
        assert_eq!((parts.index_of("b", 2), parts.first_open()), (26, 25));
    }

    #[test]
    fn the_whole_has_the_counts_and_indexes_of_all() {
        let complete = json!({"succeeded": 10, "conditions": condition("Complete")});
        let some = json!({"active": 2, "succeeded": 3, "failed": 2, "failedIndexes": "0,4-5"});
        let (mut all, whole) = parts(&[(4, complete.clone()), (4, some)]);
        let status = whole.status;
        assert_eq!((whole.spec.completions, status.active, status.succeeded, status.failed), (Some(20), 2, 13, 2));
        assert_eq!(status.failed_indexes.as_deref(), Some("10,14,15"));
        assert!(status.conditions.is_none());
        let whole = all.observe(&text("b", 4, complete));
        assert_eq!(whole.status.conditions.unwrap()[0].r#type, "Complete");
    }
}
