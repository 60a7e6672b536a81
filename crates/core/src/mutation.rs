//! Known bugs, put back on purpose. The simulator proves that it would notice each of them.
//!
//! Production code is instantiated with [`Sound`], for which every question below is the constant `false`: the
//! compiler removes the broken paths. Only the simulator instantiates anything else.

use std::fmt::Debug;

/// A bug that somebody once had, or that the design exists to prevent. Numbers are scenarios of the fault matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// S01: act on a Job that is newer than the Pods.
    NoGate,
    /// The gate does not notice that another leader has counted Pods, if it has recorded none since.
    GateIgnoresCounters,
    /// The gate does not notice that another leader has recorded Pods.
    GateIgnoresUncounted,
    /// S02: after a conflict, send the stale ledger again with the new resourceVersion.
    RetryStaleStatus,
    /// S03: tally a recorded Pod although its finalizer is still there.
    TallyBeforeRelease,
    /// S05: forget the Pods this process has just created.
    ForgetOwnCreations,
    /// S08: nobody releases the Pods of a Job that is gone.
    NoOrphanSweep,
    /// S10: a finished Job is skipped though a Pod still holds the finalizer.
    NoFinishedSweep,
    /// S11: finish although the cap left Pods unrecorded.
    FinishWithBacklog,
    /// S18: a Pod recorded as failed is recorded again when it turns out Succeeded.
    ClassificationNotSticky,
    /// S20: report no active Pods while waiting out a back-off.
    ActiveZeroInBackoff,
    /// S26: write the terminal condition while Pods still terminate.
    FinishWhileTerminating,
    /// S27: forget the deletions of this pass when writing live counts.
    ForgetOwnDeletions,
    /// S32: no deadline timer after a restart.
    NoDeadlineTimer,
    /// S33: wait for an event after a conflict.
    NoRetryAfterConflict,
    /// S34: back-off lives in memory only and is lost with it.
    BackoffForgottenAtRestart,
    /// H2: removal does not finish what a crashed leader began.
    RemovalNotResumed,
    /// H3: release by name, whoever has the name now.
    NoUidGuard,
    /// A release this process made is not believed until the stream shows it.
    NoOverlay,
    /// The status is written whatever the Job's revision is by now.
    UnconditionalStatus,
    /// The finalizer goes before the record is durable.
    ReleaseBeforeRecord,
    /// A relist may show an older world than the one already seen.
    ViewGoesBack,
    /// H4: a clock that stepped back writes a completionTime before the startTime.
    CompletionBeforeStart,
    /// S15: one refused Pod holds up the whole Job.
    RefusalBlocksJob,
    /// The answer to the removal of the last finalizer is taken for the Pod's newest state, though the Pod is gone and
    /// the answer shows an older revision.
    AnswerOutlivesPod,
    /// A missing Job is taken for a deleted one before the Job stream has caught up (H5).
    OrphanWithoutGate,
    /// Pods are let go or removed by a Job older than they are: the gate, the other way round.
    StaleJobJudges,
    /// I14: what another leader has counted since is made again.
    StaleJobCreates,
    /// H6: a Job is deleted by a local clock that runs ahead.
    TtlTrustsLocalClock,
    /// G1: an owner that no stream has shown is taken to be gone.
    CollectsUnlooked,
    /// G1: what has the name by now is deleted, whatever it is.
    CollectsByName,
    /// G4: a Pod is removed before it is on record that it has failed.
    RemovesUntold,
    /// G4: a node that a list lacks is taken to be gone.
    NodeNotLookedFor,
    /// G2: what was given away and is not seen yet is given away again.
    ForgetsAssumed,
    /// G5: a node reports whatever the Pod is by now.
    ReportsBlindly,
    /// G3: what was told to go is taken to be gone.
    NamespaceTooSoon,
    /// G6: a service account that goes is not missed.
    AccountMadeOnce,
    /// G6: a certificate that was changed stays so.
    CertificateNotRepaired,
    /// G7: a Job is started by an old view of its CronJob.
    CronTrustsItsView,
}

pub const BUGS: &[Bug] = &[
    Bug::NoGate,
    Bug::GateIgnoresCounters,
    Bug::GateIgnoresUncounted,
    Bug::RetryStaleStatus,
    Bug::TallyBeforeRelease,
    Bug::ForgetOwnCreations,
    Bug::NoOrphanSweep,
    Bug::NoFinishedSweep,
    Bug::FinishWithBacklog,
    Bug::ClassificationNotSticky,
    Bug::ActiveZeroInBackoff,
    Bug::FinishWhileTerminating,
    Bug::ForgetOwnDeletions,
    Bug::NoDeadlineTimer,
    Bug::NoRetryAfterConflict,
    Bug::BackoffForgottenAtRestart,
    Bug::RemovalNotResumed,
    Bug::NoUidGuard,
    Bug::NoOverlay,
    Bug::UnconditionalStatus,
    Bug::ReleaseBeforeRecord,
    Bug::ViewGoesBack,
    Bug::CompletionBeforeStart,
    Bug::RefusalBlocksJob,
    Bug::AnswerOutlivesPod,
    Bug::OrphanWithoutGate,
    Bug::StaleJobJudges,
    Bug::StaleJobCreates,
    Bug::TtlTrustsLocalClock,
    Bug::CollectsUnlooked,
    Bug::CollectsByName,
    Bug::RemovesUntold,
    Bug::NodeNotLookedFor,
    Bug::ForgetsAssumed,
    Bug::ReportsBlindly,
    Bug::NamespaceTooSoon,
    Bug::AccountMadeOnce,
    Bug::CertificateNotRepaired,
    Bug::CronTrustsItsView,
];

/// Whether the code is as it should be.
pub trait Soundness: Copy + Debug + Send + 'static {
    fn has(self, bug: Bug) -> bool;

    /// Send a status although our own rules would refuse it, to see whether the server's do.
    fn tolerates_invalid_status(self) -> bool {
        false
    }
}

/// What production runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sound;

impl Soundness for Sound {
    #[inline(always)]
    fn has(self, _: Bug) -> bool {
        false
    }
}
