//! Known bugs that the simulator puts back on purpose, to prove that it would detect each of them.
//!
//! Production code is instantiated with [`NoMutation`], for which every query below is the constant `false`: the compiler
//! removes the broken paths. Only the simulator instantiates anything else.

use std::fmt::Debug;

/// A bug that an implementation once had, or that the design exists to prevent. Numbers are scenarios of the fault
/// matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// S01: act on a Job that is newer than the Pods.
    NoGate,
    /// The gate does not notice that another leader has counted Pods, if it has recorded none since.
    GateIgnoresCounters,
    /// The gate does not notice that another leader has recorded Pods.
    GateIgnoresUncounted,
    /// S02: after a conflict, send the stale status again with the new resourceVersion.
    RetryStaleStatus,
    /// S03: tally a recorded Pod although its finalizer is still present.
    TallyBeforeRelease,
    /// S05: forget the Pods this process has just created.
    ForgetOwnCreations,
    /// S08: the Pods of a Job that is gone are never released.
    NoOrphanSweep,
    /// S10: a finished Job is skipped although a Pod still has the finalizer.
    NoFinishedSweep,
    /// S11: finish although the limit of recorded UIDs left Pods unrecorded.
    FinishWithBacklog,
    /// S18: a Pod recorded as failed is recorded again when its phase becomes Succeeded.
    ClassificationNotSticky,
    /// S20: report no active Pods during a back-off.
    ActiveZeroInBackoff,
    /// S26: write the terminal condition while Pods are still terminating.
    FinishWhileTerminating,
    /// S27: forget the deletions of this pass when writing live counts.
    ForgetOwnDeletions,
    /// S32: no deadline timer after a restart.
    NoDeadlineTimer,
    /// S33: after a conflict, wait for a watch event instead of retrying.
    NoRetryAfterConflict,
    /// S34: the back-off is kept in memory only and is lost at a restart.
    BackoffForgottenAtRestart,
    /// H2: a removal that a crashed leader began is not finished.
    RemovalNotResumed,
    /// H3: release by name, regardless of which Pod has the name now.
    NoUidGuard,
    /// A release that this process made is disregarded until the stream shows it.
    NoOverlay,
    /// The status is written regardless of the Job's current revision.
    UnconditionalStatus,
    /// The finalizer is removed before the record is durable.
    ReleaseBeforeRecord,
    /// A relist may replace the known state with an older one.
    ViewGoesBack,
    /// H4: a clock that stepped back writes a completionTime before the startTime.
    CompletionBeforeStart,
    /// S15: one refused request for a Pod blocks the whole Job.
    RefusalBlocksJob,
    /// The response to the removal of the last finalizer is taken as the Pod's newest state, although the Pod is gone
    /// and the response shows an older revision.
    AnswerOutlivesPod,
    /// A missing Job is taken as deleted before the Job stream has caught up (H5).
    OrphanWithoutGate,
    /// Pods are released or removed on the basis of a Job older than they are: the gate in the other direction.
    StaleJobJudges,
    /// A success is released because an old view of the Job has its index, which may be incomplete again by now.
    OldIndexReleases,
    /// I14: Pods that another leader has counted since are created again.
    StaleJobCreates,
    /// H6: a Job is deleted by a local clock that runs ahead.
    TtlTrustsLocalClock,
    /// A controller that counts Jobs is not told that the clock was set back.
    ClockUnwatched,
    /// The same for the CronJob controller.
    CronClockUnwatched,
    /// The same for the garbage collector.
    CollectorClockUnwatched,
    /// The same for the Pod garbage collector.
    PodGcClockUnwatched,
    /// G1: an owner that no stream has shown is taken to be gone.
    CollectsUnlooked,
    /// G1: an object is deleted by name, regardless of which object has the name now.
    CollectsByName,
    /// G4: a Pod is removed before its failure is stored.
    RemovesUntold,
    /// G4: a node that is missing from a list is taken to be gone.
    NodeNotLookedFor,
    /// G2: resources that were assigned, and that the stream does not show yet, are assigned again.
    ForgetsAssumed,
    /// G5: a node reports a status regardless of the Pod's current state.
    ReportsBlindly,
    /// G3: an object whose deletion was requested is taken to be gone.
    NamespaceTooSoon,
    /// G6: a deleted service account is not created again.
    AccountMadeOnce,
    /// G6: a certificate that was changed is not repaired.
    CertificateNotRepaired,
    /// G7: a Job is created from an old view of its CronJob.
    CronTrustsItsView,
    // From here on: wrong verdicts, wrong times, off-by-one errors.
    /// A Job completes one success short.
    CompleteOneShort,
    /// An Indexed Job completes although an index is missing.
    CompleteIndexMissing,
    /// A Job completes while some of its Pods run.
    CompleteWhileActive,
    /// A success policy is met one index short of its count.
    SuccessCountOneShort,
    /// A success policy is met by any of its indexes, not only by all of them.
    SuccessByAnyIndex,
    /// A success policy is never evaluated.
    SuccessPolicyForgotten,
    /// A success policy that is met takes precedence over a failure.
    SuccessBeatsFailure,
    /// A failure that a rule ignores is counted.
    IgnoreCounts,
    /// A failure that a rule counts is ignored.
    CountIgnores,
    /// A failure that must fail its index is only counted.
    FailIndexCounts,
    /// A failure that must fail the Job is only counted.
    FailJobCounts,
    /// `In` matches the exit codes that are not listed.
    ExitCodesInverted,
    /// If several rules match, the last one decides.
    LastRuleWins,
    /// A rule for a condition matches regardless of the condition's status.
    ConditionStatusIgnored,
    /// A Job fails one failure too early.
    BackoffLimitEarly,
    /// A Job fails one failure too late.
    BackoffLimitLate,
    /// A Job fails one restart of a container too late.
    RestartsOneLate,
    /// An index fails one failure too early.
    IndexLimitEarly,
    /// An index fails one failure too late.
    IndexLimitLate,
    /// A Job fails when the number of failed indexes reaches the maximum, instead of when it exceeds it.
    MaxFailedIndexesReached,
    /// BLPI-11: a Job that starts no more Pods because too many indexes have failed starts some.
    HaltGoesOn,
    /// A Job fails because of its indexes before all of them are done.
    FailedIndexesTooSoon,
    /// A Job completes although indexes have failed.
    FailedIndexesForgiven,
    /// The replacement of a failed Pod carries no failure counts.
    RetryCountsLost,
    /// The replacement counts failures as ignored ones, and vice versa.
    RetryCountsMixed,
    /// A deadline is a second early.
    DeadlineEarly,
    /// A deadline is five seconds late.
    DeadlineLate,
    /// A deadline counts from the creation of the Job.
    DeadlineFromCreation,
    /// A deadline runs while the Job is suspended.
    DeadlineWhileSuspended,
    /// A Job that exceeded its deadline fails with another reason.
    WrongReason,
    /// A suspended Job keeps its startTime.
    SuspendKeepsStart,
    /// A TTL is a second early.
    TtlEarly,
    /// A TTL is two minutes late.
    TtlLate,
    /// A TTL counts from the creation of the Job.
    TtlFromCreation,
    /// A back-off is half as long as it should be.
    BackoffHalved,
    /// A back-off grows without limit.
    BackoffUncapped,
    /// BACKOFF-11: the longest delay that a Job asks for is ignored.
    BackoffMaxIgnored,
    /// BACKOFF-13: disruptions that the failure policy ignores delay the next Pod.
    DisruptionsDelay,
    /// BACKOFF-11: jitter makes a delay shorter.
    JitterBelowBase,
    /// A back-off counts from the creation of the failed Pod.
    BackoffFromCreation,
    /// An index is retried without a back-off.
    IndexBackoffSkipped,
    /// Pods are created and removed as before although the verdict is decided.
    CreatesAfterVerdict,
    /// A Job that is being deleted creates Pods.
    DeletedJobCreates,
    /// A suspended Job creates Pods.
    SuspendedJobRuns,
    /// A work queue creates Pods after the first success.
    WorkQueueGoesOn,
    /// The wanted number of Pods is one too high.
    WantsOneMore,
    /// A scale-down removes one Pod too many.
    RemovesOneMore,
    /// Pods with an index out of range are counted.
    MisfitsCounted,
    /// A failed Job has a completionTime.
    FailureHasCompletionTime,
    /// ORDER-3: a Job begins after the one that it names, however that one ended.
    AfterAnyEnd,
    /// ORDER-3: the end of a Job does not wake those that wait for it.
    AfterNotWoken,
    /// ORDER-4: a Job whose condition can no longer come true waits for ever.
    AfterNeverFails,
    /// ORDER-2: a Job that was resumed is resumed again when a user suspends it.
    AfterResumesAgain,
    /// ORDER-7: a waiting Job is changed regardless of its current revision.
    AfterUnconditional,
    /// ORDER-5: a Job that does not exist yet is taken for one that was deleted.
    AfterMissingFails,
    /// ORDER-6: Jobs that wait for each other wait for ever.
    AfterIgnoresCycles,
    /// PENDING-2: a pending Pod fails its Job a second early.
    PendingTimeoutEarly,
    /// PENDING-2: no controller wakes up for a Pod that is pending for too long.
    NoPendingTimer,
    /// PENDING-2: a Pod that runs is taken for a pending one.
    PendingCountsRunning,
    /// I26: a finished Pod is deleted before it is counted.
    DiscardsUncounted,
    /// I26: a failed Pod is deleted on which the back-off depends.
    DiscardsBackoff,
    /// I26: a Pod expires although its Job has not counted it, or needs its failure.
    TtlIgnoresOwner,
    /// I11: the TTL for an outcome is ignored.
    TtlIgnoresOutcome,
    /// I14: a Pod of a Job with early deletion starts at once, whatever was counted and deleted under its name.
    NoStartGate,
    /// I14: a Pod starts because an old view of its Job has a place for it.
    StartsFromOldJob,
    /// I14: a Pod starts because an old view of the other Pods has a place for it.
    StartsFromOldPods,
    /// I27: a Pod that terminates is given up before its time.
    GivesUpEarly,
    /// I25: a Pod that was given up is replaced before that is stored.
    ReplacesUnfenced,
    /// I18: a Pod that was given up is released before the replacement exists that carries its counts.
    GivenUpCountsLost,
    /// I27: a Pod that was given up is not among those that terminate.
    FencedNotTold,
    /// GATE-7: the write that ends the tracking of a Job forgets the Pods that are recorded.
    SwitchDropsRecorded,
    /// GATE-7: finalizers are removed before the Job is marked as one that is tracked the old way.
    SwitchReleasesFirst,
    /// GATE-8: a Job that is tracked the old way adds the Pods that it sees to its counters.
    LegacyAddsToCount,
    /// GATE-8: Pods of such a Job that have ended keep their finalizers.
    LegacyKeepsFinalizers,
    /// GATE-9: a leader whose gate is on tracks such a Job with finalizers again.
    LegacyTrackedAgain,
    /// GATE-11: an interim condition is written although its gates are off.
    InterimWithoutGates,
    /// An explanation does not know back-offs: a Job that waits for one stands still for an unknown reason.
    BackoffUnexplained,
    /// An explanation takes the Pods that are there for all that have failed.
    GoneFailuresUnexplained,
    /// Every answered status write decides again about all Pods of its namespace that have no controller.
    UnsettlesAll,
    /// CONST-1: a status that the server refuses is sent again every second.
    RefusedEverySecond,
    // From here on: only a rare order of events shows them.
    /// REPL-8: only the clock of the controller says how long a Pod has terminated.
    JudgesByOwnClock,
    /// A bookmark inside a list is taken for its end.
    BookmarkEndsList,
    /// A Pod that a response shows while Pods are listed counts as part of the list.
    ResponseIsListed,
    /// A list of Pods is taken for one of the moment at which its last piece arrived.
    ListedAtItsEnd,
    /// A watch of Pods goes on from the revision that the watch of Jobs has reached.
    ResumedFromJobs,
    /// After a status write of unknown outcome the Pods are believed to be as new as the Job that is read.
    LostWriteOpensGate,
    /// S18: the successes of a status write whose outcome is unknown are forgotten.
    LostWriteForgotten,
    /// A Pod that is gone according to a response is brought back by an older event.
    GoneWithoutTombstone,
    /// The late response to a creation brings back a Pod that has come and gone.
    LateCreationRevives,
    /// A Job that was read late takes the place of a newer one.
    OlderJobAdopted,
    /// A Pod is changed regardless of its current revision.
    UnconditionalRelease,
    /// A Pod is deleted regardless of its current revision.
    UnconditionalDelete,
    // From here on: not a bug of a controller, but of what surrounds it.
    /// TRACK-19: the API server lets other writers put the tracking finalizer back on a finished Pod.
    FinalizerPutBack,
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
    Bug::UnsettlesAll,
    Bug::RefusedEverySecond,
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
    Bug::OldIndexReleases,
    Bug::StaleJobCreates,
    Bug::TtlTrustsLocalClock,
    Bug::ClockUnwatched,
    Bug::CronClockUnwatched,
    Bug::CollectorClockUnwatched,
    Bug::PodGcClockUnwatched,
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
    Bug::CompleteOneShort,
    Bug::CompleteIndexMissing,
    Bug::CompleteWhileActive,
    Bug::SuccessCountOneShort,
    Bug::SuccessByAnyIndex,
    Bug::SuccessPolicyForgotten,
    Bug::SuccessBeatsFailure,
    Bug::IgnoreCounts,
    Bug::CountIgnores,
    Bug::FailIndexCounts,
    Bug::FailJobCounts,
    Bug::ExitCodesInverted,
    Bug::LastRuleWins,
    Bug::ConditionStatusIgnored,
    Bug::BackoffLimitEarly,
    Bug::BackoffLimitLate,
    Bug::RestartsOneLate,
    Bug::IndexLimitEarly,
    Bug::IndexLimitLate,
    Bug::MaxFailedIndexesReached,
    Bug::HaltGoesOn,
    Bug::FailedIndexesTooSoon,
    Bug::FailedIndexesForgiven,
    Bug::RetryCountsLost,
    Bug::RetryCountsMixed,
    Bug::DeadlineEarly,
    Bug::DeadlineLate,
    Bug::DeadlineFromCreation,
    Bug::DeadlineWhileSuspended,
    Bug::WrongReason,
    Bug::SuspendKeepsStart,
    Bug::TtlEarly,
    Bug::TtlLate,
    Bug::TtlFromCreation,
    Bug::BackoffHalved,
    Bug::BackoffUncapped,
    Bug::BackoffMaxIgnored,
    Bug::DisruptionsDelay,
    Bug::JitterBelowBase,
    Bug::BackoffFromCreation,
    Bug::IndexBackoffSkipped,
    Bug::CreatesAfterVerdict,
    Bug::DeletedJobCreates,
    Bug::SuspendedJobRuns,
    Bug::WorkQueueGoesOn,
    Bug::WantsOneMore,
    Bug::RemovesOneMore,
    Bug::MisfitsCounted,
    Bug::FailureHasCompletionTime,
    Bug::AfterAnyEnd,
    Bug::AfterNotWoken,
    Bug::AfterNeverFails,
    Bug::AfterResumesAgain,
    Bug::AfterUnconditional,
    Bug::AfterMissingFails,
    Bug::AfterIgnoresCycles,
    Bug::PendingTimeoutEarly,
    Bug::NoPendingTimer,
    Bug::PendingCountsRunning,
    Bug::DiscardsUncounted,
    Bug::DiscardsBackoff,
    Bug::NoStartGate,
    Bug::StartsFromOldJob,
    Bug::StartsFromOldPods,
    Bug::TtlIgnoresOwner,
    Bug::TtlIgnoresOutcome,
    Bug::GivesUpEarly,
    Bug::ReplacesUnfenced,
    Bug::GivenUpCountsLost,
    Bug::FencedNotTold,
    Bug::SwitchDropsRecorded,
    Bug::SwitchReleasesFirst,
    Bug::LegacyAddsToCount,
    Bug::LegacyKeepsFinalizers,
    Bug::LegacyTrackedAgain,
    Bug::InterimWithoutGates,
    Bug::BackoffUnexplained,
    Bug::GoneFailuresUnexplained,
    Bug::JudgesByOwnClock,
    Bug::BookmarkEndsList,
    Bug::ResponseIsListed,
    Bug::ListedAtItsEnd,
    Bug::ResumedFromJobs,
    Bug::LostWriteOpensGate,
    Bug::LostWriteForgotten,
    Bug::GoneWithoutTombstone,
    Bug::LateCreationRevives,
    Bug::OlderJobAdopted,
    Bug::UnconditionalRelease,
    Bug::UnconditionalDelete,
    Bug::FinalizerPutBack,
];

/// Which bugs the code contains.
pub trait Mutation: Copy + Debug + Send + 'static {
    fn injects(self, bug: Bug) -> bool;

    /// Send a status although our own rules would refuse it, to test whether the server's rules do.
    fn tolerates_invalid_status(self) -> bool {
        false
    }
}

/// The implementation without bugs, which production runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMutation;

impl Mutation for NoMutation {
    #[inline(always)]
    fn injects(self, _: Bug) -> bool {
        false
    }
}
