//! One Pod as the ledger stores it: only the fields that planning uses.

use compact_str::CompactString;

use super::classification::Flag;
use crate::accounting::Outcome;
use crate::backoff::FailureCause;
use crate::ids::{CompletionIndex, PodUid, Revision};
use crate::job::JobSpec;
use crate::pending::PendingReason;
use crate::pod::{Phase, PodView, Restarts};
use crate::policy::{FailureAction, Verdict};
use crate::time::Timestamp;

/// The position of an entry in the ledger. Reused after the Pod is gone.
pub(crate) type Slot = u32;

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub uid: PodUid,
    pub name: CompactString,
    pub revision: Revision,
    pub created_at: Timestamp,
    pub finished_at: Timestamp,
    pub ready_changed_at: Option<Timestamp>,
    pub index: Option<CompletionIndex>,
    pub attempt: Option<u32>,
    pub failure_count: u32,
    pub ignored_failure_count: u32,
    pub restarts: Restarts,
    /// The failure policy's verdict, once the Pod has failed.
    pub verdict: Option<Box<Verdict>>,
    /// It failed because of a disruption, and the failure policy ignores that.
    pub disrupted: bool,
    /// How it failed, once it has: only for users.
    pub cause: Option<Box<FailureCause>>,
    /// Why it is pending, if it is and there is a reason.
    pub pending: Option<Box<PendingReason>>,
    pub epoch: u32,
    pub phase: Phase,
    pub deleting: bool,
    pub start_gated: bool,
    pub scheduled: bool,
    pub ready: bool,
    pub tracked: bool,
    /// The outcome under which the committed `uncountedTerminatedPods` lists it.
    pub recorded: Option<Outcome>,
    /// Observed as Succeeded while its index was in the committed `completedIndexes`: a later change to Failed has no
    /// effect.
    pub index_counted: bool,
    /// BLPI-3: the failed Pod from which the replacement's counts are derived.
    pub kept: bool,
    /// REPL-8: it terminates on a dead node, and has for too long.
    pub given_up: bool,
    pub busy: Busy,
    /// Chosen for removal. Stays chosen while the response is outstanding or was an error, so that no other Pod is
    /// removed in its place.
    pub removal: bool,
    /// Whether a request for its removal has taken effect is not known, and no newer state has been observed.
    pub removal_unknown: bool,
    /// A list of the Job's Pods did not contain it: it is gone, or it has lost its owner and still has the finalizer.
    /// Until the stream shows which, it is neither recorded, nor released, nor tallied, and is not a live Pod of the
    /// Job.
    pub unlisted: bool,

    // Bookkeeping of the ledger.
    pub classification: Classification,
    /// Distinguishes this entry from others that have had its slot.
    pub serial: u32,
    /// Breaks ties in orderings, in the same way for every leader.
    pub tie: u64,
    /// The number of its latest entry into a class.
    pub ticket: u32,
    pub next_of_index: Option<Slot>,
    pub queued_due: bool,
    pub queued_release: bool,
    pub queued_discard: bool,
}

/// The request for this Pod that is in flight or waits for its retry. Prevents the same request from being planned
/// twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    No,
    Releasing,
    Deleting,
    /// Removed on purpose: released, then deleted.
    Removing,
    /// Counted, and deleted early (TTL-14).
    Discarding,
    /// Loses its start gate (TTL-24).
    Starting,
    /// A request was refused; the next one is not sent before the retry time in `Ledger::refusals`.
    Refused,
}

/// How the accounting classifies a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Without the finalizer: already counted, or never to be counted.
    Untracked,
    /// Not finished, or kept until its replacement exists.
    Live,
    /// Finished, and its outcome must be recorded before anything else.
    Due(Outcome),
    /// Finished; the next write will record its index.
    IndexDue,
    /// Nothing (more) to record: the finalizer may be removed.
    Releasable,
}

/// How a Job's own state affects its Pods. Only stored state counts: a decision takes effect once it is durable. With the
/// gates of interim conditions off a failure has no other place than memory (GATE-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobMode {
    pub failing: bool,
    pub succeeding: bool,
    pub deleting: bool,
    /// Tracked the old way (`legacy.rs`).
    pub legacy: bool,
    pub waits_for_terminal_phase: bool,
    pub indexed: bool,
    pub limits_each_index: bool,
    pub index_limit: u32,
}

impl JobMode {
    pub fn decided(self) -> bool {
        self.failing || self.succeeding
    }
}

impl Entry {
    pub fn new(pod: &PodView, spec: &JobSpec) -> Self {
        let mut entry = Self {
            uid: pod.uid.clone(),
            name: pod.name.clone(),
            revision: pod.revision,
            created_at: pod.created_at,
            finished_at: pod.finished_at,
            ready_changed_at: None,
            index: None,
            attempt: None,
            failure_count: 0,
            ignored_failure_count: 0,
            restarts: Restarts::default(),
            verdict: None,
            disrupted: false,
            cause: None,
            pending: None,
            epoch: 0,
            phase: Phase::Pending,
            deleting: false,
            start_gated: false,
            scheduled: false,
            ready: false,
            tracked: false,
            recorded: None,
            index_counted: false,
            kept: false,
            given_up: false,
            busy: Busy::No,
            removal: false,
            removal_unknown: false,
            unlisted: false,
            classification: Classification::default(),
            serial: 0,
            tie: super::classification::tie(&pod.uid),
            ticket: 0,
            next_of_index: None,
            queued_due: false,
            queued_release: false,
            queued_discard: false,
        };
        entry.update(pod, spec);
        entry
    }

    /// Takes over what was observed; what only this process knows is kept.
    pub fn update(&mut self, pod: &PodView, spec: &JobSpec) {
        self.revision = pod.revision;
        self.created_at = pod.created_at;
        self.finished_at = pod.finished_at;
        self.ready_changed_at = pod.ready_changed_at;
        self.index = pod.index;
        self.failure_count = pod.failure_count;
        self.ignored_failure_count = pod.ignored_failure_count;
        self.restarts = pod.restarts;
        self.phase = pod.phase;
        self.deleting = pod.deleting();
        self.start_gated = pod.start_gated;
        self.scheduled = pod.scheduled;
        self.ready = pod.ready;
        self.tracked = pod.tracked;
        self.cause = (pod.phase == Phase::Failed).then(|| {
            let exit_code = pod.exits.first().map(|exit| exit.code);
            Box::new(FailureCause { exit_code, reason: pod.reason.clone() })
        });
        self.pending = pod.pending.clone();
        self.verdict = match &spec.pod_failure_policy {
            // Evaluated in the final phase only (S31), or while the Pod is being deleted: the end of the Job may have
            // ended it.
            Some(policy) if pod.phase == Phase::Failed || (pod.deleting() && pod.phase != Phase::Succeeded) => {
                policy.judge(pod).map(Box::new)
            }
            _ => None,
        };
        let is_target = pod.conditions.iter().any(|(kind, status)| kind == "DisruptionTarget" && status == "True");
        self.disrupted = is_target && self.is_ignored();
    }

    pub fn is_active(&self) -> bool {
        !self.phase.is_terminal() && !self.deleting && !self.unlisted
    }

    /// Terminates, and keeps its place.
    pub fn is_terminating(&self, mode: JobMode) -> bool {
        !self.phase.is_terminal() && self.deleting && !self.unlisted && !self.is_fenced(mode)
    }

    /// REPL-9: given up, and counted as failed by a stored status: whatever the Pod does from now on is not counted, and
    /// it may be replaced. A failure that is ignored is counted nowhere: where each index has a limit, the Pod may be
    /// replaced before it is released, because an index completes once, whichever of its Pods succeeds.
    pub fn is_fenced(&self, mode: JobMode) -> bool {
        self.given_up && (self.recorded.is_some() || !self.tracked || (mode.limits_each_index && self.is_ignored()))
    }

    /// REPL-9: given up, and still to be recorded before it can be replaced, although its replacement needs its counts.
    pub fn must_be_fenced(&self) -> bool {
        self.given_up && !self.phase.is_terminal() && !self.is_ignored()
    }

    /// COUNT-1, REPL-8. The old way, a Pod that is being deleted is no failure: the Job may have removed it itself.
    pub fn is_failed(&self, mode: JobMode) -> bool {
        if mode.legacy {
            return self.phase == Phase::Failed && !self.deleting;
        }
        let ends = !mode.waits_for_terminal_phase || self.given_up;
        self.phase == Phase::Failed || (ends && self.deleting && self.phase != Phase::Succeeded)
    }

    pub fn action(&self) -> Option<FailureAction> {
        self.verdict.as_ref().map(|verdict| verdict.action)
    }

    pub fn is_ignored(&self) -> bool {
        self.action() == Some(FailureAction::Ignore)
    }

    /// The index, if the Job is Indexed and the index is in its range.
    pub fn valid_index(&self, mode: JobMode) -> Option<CompletionIndex> {
        self.index.filter(|index| mode.indexed && *index < mode.index_limit)
    }

    /// Failures of the index up to and including this Pod's (BLPI-5).
    pub fn failures_of_index(&self) -> u32 {
        self.failure_count.saturating_add(self.ignored_failure_count).saturating_add(1)
    }

    /// Whether the end of this Pod affects the back-off. A Pod that lost its finalizer and is being deleted was removed
    /// on purpose.
    pub fn feeds_backoff(&self, mode: JobMode) -> bool {
        (self.tracked || !self.deleting) && (!mode.indexed || self.valid_index(mode).is_some())
    }

    /// The first criteria of RM-2: unscheduled, then by phase, first those that may not start yet (TTL-24), then not
    /// ready. A Pod that has already lost its finalizer comes before all others: its removal has begun, and its result can
    /// no longer be counted (H2). Then come those that may have lost it by our own request: another Pod in their place
    /// could be one too many.
    pub fn removal_class(&self) -> u8 {
        let phase = match self.phase {
            Phase::Pending if self.start_gated => 0,
            Phase::Pending => 1,
            Phase::Unknown => 2,
            _ => 3,
        };
        let begun = match (self.tracked, self.removal_unknown) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => 2,
        };
        begun << 4 | u8::from(self.scheduled) << 3 | phase << 1 | u8::from(self.ready)
    }

    /// The further criteria of RM-2, within a class: the Pod with the lesser rank is removed first.
    pub fn removal_rank(&self) -> RemovalRank {
        let newest_first = |at: Option<Timestamp>| at.map_or(i64::MIN, |at| -at.millis());
        RemovalRank {
            ready: if self.ready { newest_first(self.ready_changed_at) } else { 0 },
            restarts: !(u64::from(self.restarts.regular) << 32 | u64::from(self.restarts.sidecar)),
            created: newest_first(Some(self.created_at).filter(|at| *at != Timestamp::default())),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RemovalRank {
    ready: i64,
    restarts: u64,
    created: i64,
}

/// The number of removal classes.
pub(crate) const CLASSES: usize = 48;
/// In no class.
pub(crate) const NOWHERE: u8 = u8::MAX;

/// The keys and flags under which an entry is indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Classification {
    pub index: Option<CompletionIndex>,
    /// When it will have been pending for too long.
    pub pending_until: Option<Timestamp>,
    pub restarts: u32,
    pub flags: u32,
    pub class: u8,
    /// Active, and has its start gate.
    pub start_gated: bool,
}

impl Default for Classification {
    fn default() -> Self {
        Self { index: None, pending_until: None, restarts: 0, flags: 0, class: NOWHERE, start_gated: false }
    }
}

impl Classification {
    pub fn set(&mut self, flag: Flag, value: bool) {
        self.flags |= u32::from(value) << flag as u32;
    }

    pub fn has(&self, flag: Flag) -> bool {
        self.flags & (1 << flag as u32) != 0
    }
}
