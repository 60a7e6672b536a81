//! Counting every Pod exactly once: record, release, tally, behind the revision gate.
//!
//! Release precedes tally in the store's order. If the Job is read at revision r and the Pods are known up to s >= r,
//! every release that preceded a tally visible in that Job is visible in the Pods. So a Pod that still shows the
//! finalizer at s was not tallied at r, and a recorded UID whose Pod shows none was really released. Because the status
//! write is conditional, no other writer changed the accounting in between. For revisions that this process wrote
//! itself the Pods need not catch up: the process knows what it released, and applies the responses to its own requests
//! before the stream repeats them. The same holds for revisions that did not change the accounting: what they show was
//! tallied and recorded at an earlier revision.

use std::collections::BTreeSet;

use crate::ids::{PodUid, Revision};
use crate::job::{JobView, Uncounted, condition};

/// The maximum number of UIDs in `status.uncountedTerminatedPods`: about 20 KB of status (CONST-3).
pub const UNCOUNTED_LIMIT: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    Succeeded,
    Failed,
}

/// What this process knows about Pods, including its own releases.
pub trait PodFacts {
    /// Whether the Pod still carries the tracking finalizer. Absent Pods do not.
    fn is_tracked(&self, uid: &PodUid) -> bool;
}

/// The fields of a Job that determine which of its Pods were counted, and how the others are to be counted. Spec and
/// metadata are not included, nor are values that a leader only observed (`active`, `ready`, `terminating`,
/// `startTime`, Suspended): a decision made from Pods older than such a change could equally have been made before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

/// The recorded UIDs of a Job and its Pods, observed in an order in which accounting is safe. There is no other way to
/// tally or to record.
#[derive(Clone, Copy)]
pub struct CausalSnapshot<'a, F> {
    uncounted: &'a Uncounted,
    pods: &'a F,
}

/// What a status write may contain after releases: which UIDs move into each counter, and which stay recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub succeeded: Vec<PodUid>,
    pub failed: Vec<PodUid>,
    pub left: Uncounted,
}

impl<'a, F: PodFacts> CausalSnapshot<'a, F> {
    /// The revision gate. `pods_at` is the revision up to which the Pods have been observed; `foreign_job_at` is the
    /// newest revision at which another writer changed the [`Accounting`] of this Job.
    pub fn take(uncounted: &'a Uncounted, pods: &'a F, pods_at: Revision, foreign_job_at: Revision) -> Option<Self> {
        (pods_at >= foreign_job_at).then_some(Self { uncounted, pods })
    }

    /// Separates the recorded UIDs whose Pods are released from those that must wait.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        // Another writer may have listed a Pod twice. The Pod is counted once, with the outcome of its first entry.
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

    /// Adds a finished Pod to the lists that the next write will contain. Does not add a Pod that is already recorded,
    /// with either outcome: the first classification stands, even if the Pod's phase changes later (S18, S19).
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

    /// The outcome under which the committed status lists this Pod.
    pub fn recorded(&self, uid: &PodUid) -> Option<Outcome> {
        if self.uncounted.succeeded.contains(uid) {
            Some(Outcome::Succeeded)
        } else if self.uncounted.failed.contains(uid) {
            Some(Outcome::Failed)
        } else {
            None
        }
    }

    /// The rule of release; the ledger classifies Pods by it (`Standing::Releasable`), the model calls it directly. A
    /// finalizer may be removed only once its Pod is in a committed status: a crash after this point leaves the UID
    /// there, and the next leader continues from it.
    pub fn may_release(&self, uid: &PodUid) -> bool {
        self.recorded(uid).is_some() && self.pods.is_tracked(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tracked(&'static [&'static str]);

    impl PodFacts for Tracked {
        fn is_tracked(&self, uid: &PodUid) -> bool {
            self.0.iter().any(|tracked| PodUid::new(tracked) == *uid)
        }
    }

    fn uids(names: &[&str]) -> Vec<PodUid> {
        names.iter().map(|name| PodUid::new(name)).collect()
    }

    #[test]
    fn the_gate_is_open_for_pods_at_least_as_new_as_the_last_foreign_accounting() {
        let (none, pods) = (Uncounted::default(), Tracked(&[]));
        let open =
            |pods_at, foreign_at| CausalSnapshot::take(&none, &pods, Revision(pods_at), Revision(foreign_at)).is_some();
        assert_eq!([open(6, 7), open(7, 7), open(8, 7)], [false, true, true]);
    }

    #[test]
    fn each_recorded_uid_is_tallied_once_and_only_after_its_release() {
        let lists = Uncounted { succeeded: uids(&["a", "b", "a"]), failed: uids(&["b", "c", "d"]) };
        let pods = Tracked(&["b", "d"]);
        let snapshot = CausalSnapshot::take(&lists, &pods, Revision(1), Revision(1)).expect("an open gate");
        let tally = snapshot.tally();
        assert_eq!((tally.succeeded, tally.failed), (uids(&["a"]), uids(&["c"])));
        assert_eq!(tally.left, Uncounted { succeeded: uids(&["b"]), failed: uids(&["d"]) });
    }

    #[test]
    fn a_pod_is_recorded_only_with_the_finalizer_and_only_once() {
        let committed = Uncounted { succeeded: uids(&["listed"]), failed: Vec::new() };
        let pods = Tracked(&["listed", "tracked"]);
        let snapshot = CausalSnapshot::take(&committed, &pods, Revision(1), Revision(1)).expect("an open gate");
        for (name, recorded) in [("listed", false), ("released", false), ("tracked", true)] {
            for outcome in [Outcome::Succeeded, Outcome::Failed] {
                let mut lists = Uncounted::default();
                let uid = PodUid::new(name);
                assert_eq!(snapshot.record(&mut lists, &uid, outcome), recorded, "{name}");
                let list = if outcome == Outcome::Succeeded { &lists.succeeded } else { &lists.failed };
                assert_eq!((list.contains(&uid), lists.len()), (recorded, usize::from(recorded)), "{name}");
            }
        }
    }

    /// Each of these changes moves the gate.
    #[test]
    fn a_change_of_any_part_of_the_accounting_is_a_difference() {
        let uncounted = Uncounted { succeeded: uids(&["a"]), failed: Vec::new() };
        let none = Uncounted::default();
        let plain =
            Accounting { counters: (1, 2), uncounted: &none, indexes: ("0", ""), verdict: [false; 4], deleting: false };
        for other in [
            Accounting { counters: (2, 2), ..plain },
            Accounting { counters: (1, 3), ..plain },
            Accounting { uncounted: &uncounted, ..plain },
            Accounting { indexes: ("0,1", ""), ..plain },
            Accounting { indexes: ("0", "1"), ..plain },
            Accounting { verdict: [false, true, false, false], ..plain },
            Accounting { deleting: true, ..plain },
        ] {
            assert_ne!(plain, other);
        }
    }
}
