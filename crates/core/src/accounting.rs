//! Counting every Pod exactly once: record, release, tally, behind the revision gate.
//!
//! Release precedes tally in the store's order. If the Job is read at revision r and the Pods are known up to
//! s >= r, every release that preceded a tally visible in that Job is visible in the Pods. So a Pod that still
//! shows the finalizer at s was not tallied at r, and a recorded UID whose Pod shows none was really released. The
//! conditional write means nobody changed the ledger in between. Revisions this process wrote itself need no
//! catching up: it knows what it released, and believes its own answers before the stream repeats them.

use std::collections::BTreeSet;

use crate::ids::{PodUid, Revision};
use crate::job::Uncounted;

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
    /// The gate. `pods_at` is how far the Pods have been observed; `foreign_job_at` is the newest revision of this
    /// Job that this process did not write itself.
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
