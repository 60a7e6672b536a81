//! Jobs that are tracked the old way (GATE-7): without finalizers, by the Pods that are there. For Jobs that run while the gate
//! JobTrackingWithFinalizers is off, and for those that were started meanwhile.
//!
//! One status write ends the tracking of a Job: it adds what is recorded to the counters, sets the lists to null, and marks the
//! Job (`legacy`). The mark decides from then on, whichever leader reads it and whatever its gate says: nothing is recorded,
//! every finalizer is removed, and new Pods have none. The mark is stored before the first finalizer is removed, so a crash
//! in between leaves a Job that the next leader continues with.
//!
//! What is counted is the greater of the stored counter and the number of Pods that show the outcome now. Each of the two is
//! at most the number of Pods that really ended so; their sum would count a Pod twice. A Pod that is removed before it was
//! seen is not counted, and is replaced: the limitation that finalizers overcome.

use super::Ledger;
use super::classification::Flag;
use super::entry::Entry;
use super::flight::StatusInFlight;
use super::plan::{Plan, StatusWrite, count, len};
use crate::accounting::Outcome;
use crate::gates::Gate;
use crate::job::JobStatus;
use crate::pod::Phase;
use crate::time::Timestamp;

impl Ledger {
    /// Whether the tracking of this Job must end before anything else is done for it.
    pub(super) fn must_end_tracking(&self) -> bool {
        !self.mode.legacy && !self.job.gates.enabled(Gate::JobTrackingWithFinalizers)
    }

    /// Plans the one write that ends the tracking. It is conditional on the revision at which the lists were read, so each
    /// recorded Pod is in the counters or in the lists, and never in both; how new the Pods are does not matter.
    pub(super) fn end_tracking(&mut self, now: Timestamp, plan: &mut Plan) {
        if !self.may_write_status(now, plan) {
            return;
        }
        let mut status: JobStatus = self.job.status.clone();
        (status.succeeded, status.failed) = self.counters_with_recorded();
        status.uncounted_terminated_pods = None;
        self.flight.status = Some(StatusInFlight::default());
        let base = self.job.revision;
        plan.status = Some(Box::new(StatusWrite { base, status, handled: Vec::new(), ends_tracking: true }));
    }

    /// The counters, with the Pods that are recorded. An Indexed Job counts successes by their indexes.
    #[allow(clippy::disallowed_methods, reason = "a number is the same in every order")]
    fn counters_with_recorded(&self) -> (i32, i32) {
        let status = &self.job.status;
        let of = |wanted| self.committed.uncounted.values().filter(|outcome| **outcome == wanted).count();
        let succeeded = if self.mode.indexed { 0 } else { of(Outcome::Succeeded) };
        let failed = of(Outcome::Failed);
        (count(i64::from(status.succeeded) + len(succeeded)), count(i64::from(status.failed) + len(failed)))
    }

    /// Succeeded and failed, of a Job without completion indexes: the greater of what is stored and what is there.
    pub(super) fn legacy_counts(&self) -> (i64, i64) {
        let (succeeded, failed) = self.counters_with_recorded();
        let (succeeded, failed) = (i64::from(succeeded), i64::from(failed));
        let succeeded = succeeded.max(self.counts.of(Flag::NewSucceeded));
        (succeeded, failed.max(self.counts.of(Flag::NewFailed)))
    }

    /// Whether the end of this Pod is still to be accounted for: by recording it or, the old way, by seeing it.
    pub(super) fn is_unaccounted(&self, entry: &Entry) -> bool {
        (entry.tracked || self.mode.legacy) && !entry.unlisted && entry.recorded.is_none() && !entry.index_counted
    }

    pub(super) fn is_legacy_success(&self, entry: &Entry) -> bool {
        self.mode.legacy && !self.mode.indexed && entry.phase == Phase::Succeeded && !entry.unlisted
    }
}
