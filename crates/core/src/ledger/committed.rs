//! What the status that was stored last contains, in a form that can be searched.

use std::collections::HashMap;

use super::entry::JobMode;
use super::flight::StatusInFlight;
use crate::accounting::Outcome;
use crate::ids::PodUid;
use crate::indexes::IndexSet;
use crate::job::{JobView, Uncounted};

type UncountedPods = HashMap<PodUid, Outcome, foldhash::fast::FixedState>;

#[derive(Debug)]
pub(super) struct Committed {
    /// Recorded, not yet tallied.
    pub uncounted: UncountedPods,
    pub completed: IndexSet,
    pub failed: IndexSet,
    /// The stored index lists differ from what we would write (out of range after a scale-down, or edited by hand).
    pub indexes_differ: bool,
}

impl Committed {
    pub fn new(job: &JobView, mode: JobMode) -> Self {
        let mut committed = Self {
            uncounted: outcomes(job.status.uncounted()),
            completed: IndexSet::new(),
            failed: IndexSet::new(),
            indexes_differ: false,
        };
        committed.read_indexes(job, mode);
        committed
    }

    pub fn read_uncounted(&mut self, job: &JobView) -> UncountedPods {
        std::mem::replace(&mut self.uncounted, outcomes(job.status.uncounted()))
    }

    pub fn read_indexes(&mut self, job: &JobView, mode: JobMode) {
        if !mode.indexed {
            return;
        }
        self.completed = IndexSet::read_tolerant(&job.status.completed_indexes, mode.index_limit);
        let failed = job.status.failed_indexes.as_deref().filter(|_| job.spec.limits_each_index());
        // BLPI-9: whatever the status contains, an index is in one set only, and success takes precedence.
        self.failed = IndexSet::read_tolerant(failed.unwrap_or_default(), mode.index_limit).difference(&self.completed);
    }

    /// Adds what our own write recorded, without reading whole lists.
    pub fn add_indexes(&mut self, write: &StatusInFlight) {
        for index in &write.completed {
            self.completed.insert(*index);
        }
        for index in &write.failed {
            self.failed.insert(*index);
        }
        self.indexes_differ = false;
    }

    /// Compares the stored index lists with what we would write.
    pub fn compare_indexes(&mut self, job: &JobView, mode: JobMode) {
        let status = &job.status;
        self.indexes_differ = if mode.indexed {
            // Null unless each index has a limit of failures.
            let failed = job.spec.limits_each_index().then(|| self.failed.text());
            self.completed.text() != *status.completed_indexes || failed.as_deref() != status.failed_indexes.as_deref()
        } else {
            !status.completed_indexes.is_empty() || status.failed_indexes.is_some()
        };
    }
}

/// The outcome of each recorded Pod. Another writer may have listed a Pod twice: its first entry stands.
fn outcomes(lists: &Uncounted) -> UncountedPods {
    let mut outcomes = HashMap::with_capacity_and_hasher(lists.len(), foldhash::fast::FixedState::default());
    for (uids, outcome) in [(&lists.succeeded, Outcome::Succeeded), (&lists.failed, Outcome::Failed)] {
        for uid in uids {
            outcomes.entry(uid.clone()).or_insert(outcome);
        }
    }
    outcomes
}
