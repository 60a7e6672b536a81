//! Counting every Pod exactly once: record, release, tally, behind the revision gate.
//!
//! Release precedes tally in the store's order. If the Job is read at revision r and the Pods are known up to
//! s >= r, every release that preceded a tally visible in that Job is visible in the Pods. So a Pod that still
//! shows the finalizer at s was not tallied at r, and a recorded UID whose Pod shows none was really released. The
//! conditional write means nobody changed the ledger in between. Revisions this process wrote itself need no
//! catching up: it knows what it released, and believes its own answers before the stream repeats them. Nor do
//! revisions that left the accounting alone: what they show was tallied and recorded by an earlier one.

use std::collections::BTreeSet;

use crate::ids::{PodUid, Revision};
use crate::job::{JobView, Uncounted, condition};

/// How many UIDs may wait in `status.uncountedTerminatedPods`: about 20 KB of status (CONST-3).
pub const UNCOUNTED_LIMIT: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    Succeeded,
    Failed,
}

/// What a process knows of Pods, its own releases included.
pub trait PodFacts {
    /// Whether the Pod still carries the tracking finalizer. Absent Pods do not.
    fn is_tracked(&self, uid: &PodUid) -> bool;
}

/// A part of the accounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `succeeded` and `failed`.
    Counters,
    /// `uncountedTerminatedPods`.
    Uncounted,
    /// `completedIndexes` and `failedIndexes`.
    Indexes,
    /// Whether the Job ends or has ended, and how.
    Verdict,
    /// Whether the Job is being deleted: Pods that still run are then let go uncounted.
    Deletion,
}

/// What of a Job says which of its Pods were counted, and how the others are to be. Spec and metadata are not in it, nor
/// is what a leader merely observed (`active`, `ready`, `terminating`, `startTime`, Suspended): a decision made from
/// Pods older than such a change is one that might as well have been made before it.
#[derive(Clone, Copy, Debug)]
pub struct Accounting<'a> {
    pub counters: (i32, i32),
    pub uncounted: &'a Uncounted,
    pub indexes: (&'a str, &'a str),
    pub verdict: [bool; 4],
    pub deleting: bool,
}

impl<'a> Accounting<'a> {
    pub fn of(job: &'a JobView) -> Self {
        let status = &job.status;
        Self {
            counters: (status.succeeded, status.failed),
            uncounted: status.uncounted(),
            indexes: (&status.completed_indexes, status.failed_indexes.as_deref().unwrap_or_default()),
            verdict: [
                condition::SUCCESS_CRITERIA_MET,
                condition::FAILURE_TARGET,
                condition::COMPLETE,
                condition::FAILED,
            ]
            .map(|kind| status.is_true(kind)),
            deleting: job.deleting,
        }
    }

    /// Whether a change from the one to the other moves the gate. `ignored` says of a field whether it is overlooked:
    /// never in production, once each where the model and the simulator show that none may be.
    pub fn differs(&self, other: &Self, ignored: impl Fn(Field) -> bool) -> bool {
        [
            (Field::Counters, self.counters != other.counters),
            (Field::Uncounted, self.uncounted != other.uncounted),
            (Field::Indexes, self.indexes != other.indexes),
            (Field::Verdict, self.verdict != other.verdict),
            (Field::Deletion, self.deleting != other.deleting),
        ]
        .into_iter()
        .any(|(field, changed)| changed && !ignored(field))
    }
}

/// A Job's ledger and the Pods, seen in an order in which accounting is safe. There is no other way to
/// tally or to record.
#[derive(Clone, Copy)]
pub struct CausalSnapshot<'a, F> {
    uncounted: &'a Uncounted,
    pods: &'a F,
}

/// What a status write may say after releases: how many UIDs moved into each counter, and which stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub succeeded: Vec<PodUid>,
    pub failed: Vec<PodUid>,
    pub left: Uncounted,
}

impl<'a, F: PodFacts> CausalSnapshot<'a, F> {
    /// The gate. `pods_at` is how far the Pods have been observed; `foreign_job_at` is the newest revision at which
    /// somebody other than this process changed the [`Accounting`] of this Job.
    pub fn take(uncounted: &'a Uncounted, pods: &'a F, pods_at: Revision, foreign_job_at: Revision) -> Option<Self> {
        (pods_at >= foreign_job_at).then_some(Self { uncounted, pods })
    }

    /// Which recorded UIDs are really released, and which must wait.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        // Somebody else may have listed a Pod twice. It counts once, as what it was listed as first.
        let mut seen = BTreeSet::new();
        let mut split = |uids: &'a [PodUid], done: &mut Vec<PodUid>, left: &mut Vec<PodUid>| {
            for uid in uids {
                if seen.insert(uid) {
                    let to = if self.pods.is_tracked(uid) { &mut *left } else { &mut *done };
                    to.push(uid.clone());
                }
            }
        };
        split(&self.uncounted.succeeded, &mut tally.succeeded, &mut tally.left.succeeded);
        split(&self.uncounted.failed, &mut tally.failed, &mut tally.left.failed);
        tally
    }

    /// Adds a finished Pod to the lists that the next write will carry. Refuses a Pod that is recorded already, as
    /// whatever: the first classification stands, also if the Pod flips later (S18, S19).
    pub fn record(&self, lists: &mut Uncounted, uid: &PodUid, outcome: Outcome) -> bool {
        if self.recorded(uid).is_some() || !self.pods.is_tracked(uid) {
            return false;
        }
        debug_assert!(
            !lists.succeeded.contains(uid) && !lists.failed.contains(uid),
            "{uid} recorded twice in one write"
        );
        match outcome {
            Outcome::Succeeded => lists.succeeded.push(uid.clone()),
            Outcome::Failed => lists.failed.push(uid.clone()),
        }
        true
    }

    /// As what the committed ledger has this Pod.
    pub fn recorded(&self, uid: &PodUid) -> Option<Outcome> {
        if self.uncounted.succeeded.contains(uid) {
            Some(Outcome::Succeeded)
        } else if self.uncounted.failed.contains(uid) {
            Some(Outcome::Failed)
        } else {
            None
        }
    }

    /// The rule of release; the ledger files Pods by it (`Standing::Releasable`), the model asks it outright.
    /// A finalizer may go only once its Pod is in a committed ledger: a crash after this point leaves the UID there,
    /// and the next leader goes on from it.
    pub fn may_release(&self, uid: &PodUid) -> bool {
        self.recorded(uid).is_some() && self.pods.is_tracked(uid)
    }
}
