//! Known bugs, put back one at a time. A simulator that does not find them would not find similar ones either.

use tally_core::mutation::Bug;

use crate::scenarios::{self, SCENARIOS, Scenario};

/// Bugs that only a rare order of events shows. Each is found within 500 schedules, from any seed on: `tally-sim find`.
pub const RARE: &[Bug] = &[
    Bug::BookmarkEndsList,
    Bug::ResponseIsListed,
    Bug::ListedAtItsEnd,
    Bug::ResumedFromJobs,
    Bug::GoneWithoutTombstone,
    Bug::LateCreationRevives,
    Bug::OlderJobAdopted,
    Bug::UnconditionalRelease,
    Bug::UnconditionalDelete,
    Bug::LostWriteOpensGate,
    Bug::LostWriteForgotten,
    Bug::JudgesByOwnClock,
];

/// The seeds at which several searches for the same bug start.
pub fn starts(from: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |number| from.wrapping_add(number * 10_000_019) % 1_000_000_000)
}

/// The world of [`scenario_for`].
pub fn home_of(bug: Bug) -> &'static Scenario {
    scenarios::find(scenario_for(bug)).unwrap_or(&SCENARIOS[0])
}

/// The world in which to search for a bug first. Any seeds would find it; the right faults find it sooner.
pub fn scenario_for(bug: Bug) -> &'static str {
    match bug {
        Bug::NoGate | Bug::OrphanWithoutGate => "stale-views",
        Bug::SwitchDropsRecorded
        | Bug::SwitchReleasesFirst
        | Bug::LegacyAddsToCount
        | Bug::LegacyKeepsFinalizers
        | Bug::LegacyTrackedAgain => "gates-switch",
        Bug::InterimWithoutGates => "verdicts-outright",
        Bug::GateIgnoresCounters | Bug::GateIgnoresUncounted => "two-leaders",
        Bug::StaleJobJudges | Bug::OldIndexReleases | Bug::MisfitsCounted => "elastic",
        Bug::StaleJobCreates => "two-leaders",
        Bug::RetryStaleStatus | Bug::UnconditionalStatus => "two-leaders",
        Bug::TallyBeforeRelease | Bug::FinishWithBacklog => "limits",
        Bug::ForgetOwnCreations => "stale-views",
        Bug::NoOrphanSweep | Bug::NoFinishedSweep => "job-monkey",
        Bug::UnsettlesAll => "orphans",
        Bug::RefusedEverySecond => "refused-statuses",
        Bug::ClassificationNotSticky | Bug::NoUidGuard | Bug::FinalizerPutBack => "pod-monkey",
        Bug::ActiveZeroInBackoff | Bug::BackoffForgottenAtRestart | Bug::BackoffUnexplained => "backoff",
        Bug::FinishWhileTerminating | Bug::ForgetOwnDeletions => "replacement",
        Bug::NoDeadlineTimer => "deadline",
        Bug::NoRetryAfterConflict => "conflicts",
        Bug::RemovalNotResumed => "scale-down",
        Bug::NoOverlay | Bug::ReleaseBeforeRecord | Bug::AnswerOutlivesPod => "any",
        Bug::ViewGoesBack => "watch",
        Bug::CompletionBeforeStart | Bug::TtlTrustsLocalClock | Bug::ClockUnwatched => "clocks",
        Bug::CronClockUnwatched | Bug::CollectorClockUnwatched | Bug::PodGcClockUnwatched => "cluster-clocks",
        Bug::RefusalBlocksJob => "refusals",
        Bug::CollectsUnlooked | Bug::CollectsByName => "owners",
        Bug::ForgetsAssumed | Bug::AccountMadeOnce | Bug::CertificateNotRepaired | Bug::GoneFailuresUnexplained => {
            "cluster"
        }
        Bug::ReportsBlindly => "cluster-two-leaders",
        Bug::RemovesUntold | Bug::NodeNotLookedFor => "lost-node",
        Bug::NamespaceTooSoon => "namespace-deletion",
        Bug::CronTrustsItsView => "cron",
        Bug::CompleteOneShort
        | Bug::CompleteIndexMissing
        | Bug::CompleteWhileActive
        | Bug::SuccessCountOneShort
        | Bug::SuccessByAnyIndex
        | Bug::SuccessPolicyForgotten
        | Bug::SuccessBeatsFailure
        | Bug::IgnoreCounts
        | Bug::CountIgnores
        | Bug::FailIndexCounts
        | Bug::FailJobCounts
        | Bug::ExitCodesInverted
        | Bug::LastRuleWins
        | Bug::ConditionStatusIgnored
        | Bug::BackoffLimitEarly
        | Bug::BackoffLimitLate
        | Bug::RestartsOneLate
        | Bug::IndexLimitEarly
        | Bug::IndexLimitLate
        | Bug::MaxFailedIndexesReached
        | Bug::FailedIndexesTooSoon
        | Bug::FailedIndexesForgiven
        | Bug::RetryCountsLost
        | Bug::RetryCountsMixed
        | Bug::CreatesAfterVerdict
        | Bug::WorkQueueGoesOn
        | Bug::FailureHasCompletionTime => "verdicts",
        Bug::DeadlineEarly
        | Bug::DeadlineLate
        | Bug::DeadlineFromCreation
        | Bug::DeadlineWhileSuspended
        | Bug::WrongReason
        | Bug::SuspendKeepsStart
        | Bug::TtlEarly
        | Bug::TtlLate
        | Bug::TtlFromCreation
        | Bug::BackoffHalved
        | Bug::BackoffUncapped
        | Bug::BackoffFromCreation
        | Bug::IndexBackoffSkipped => "times",
        Bug::BackoffMaxIgnored | Bug::DisruptionsDelay | Bug::JitterBelowBase | Bug::HaltGoesOn => "retries",
        Bug::DeletedJobCreates | Bug::SuspendedJobRuns => "job-monkey",
        Bug::PendingTimeoutEarly | Bug::NoPendingTimer | Bug::PendingCountsRunning => "pending",
        Bug::AfterAnyEnd
        | Bug::AfterMissingFails
        | Bug::AfterNotWoken
        | Bug::AfterNeverFails
        | Bug::AfterIgnoresCycles => "after",
        Bug::AfterResumesAgain | Bug::AfterUnconditional => "after-two-leaders",
        Bug::WantsOneMore => "calm",
        Bug::DiscardsUncounted | Bug::DiscardsBackoff => "early-deletion",
        Bug::NoStartGate | Bug::StartsFromOldJob | Bug::StartsFromOldPods => "early-deletion-leaders",
        Bug::TtlIgnoresOwner | Bug::TtlIgnoresOutcome => "ttl-pods",
        Bug::GivesUpEarly | Bug::ReplacesUnfenced | Bug::GivenUpCountsLost | Bug::FencedNotTold => "dead-node-wait",
        Bug::RemovesOneMore => "scale-down",
        Bug::JudgesByOwnClock => "dead-node-wait",
        Bug::BookmarkEndsList | Bug::ResponseIsListed | Bug::ListedAtItsEnd | Bug::ResumedFromJobs => "list-pieces",
        Bug::GoneWithoutTombstone | Bug::LateCreationRevives | Bug::OlderJobAdopted => "late-responses",
        Bug::UnconditionalRelease | Bug::UnconditionalDelete => "late-requests",
        Bug::LostWriteOpensGate | Bug::LostWriteForgotten => "lost-writes",
    }
}

/// The known bug in the fault matrix that a put-back bug belongs to.
pub fn label(bug: Bug) -> &'static str {
    match bug {
        Bug::NoGate => "S01 no gate",
        Bug::GateIgnoresCounters => "S01 gate ignores the counters",
        Bug::GateIgnoresUncounted => "S01 gate ignores the recorded UIDs",
        Bug::RetryStaleStatus => "S02 stale status sent again",
        Bug::TallyBeforeRelease => "S03 tally before release",
        Bug::ForgetOwnCreations => "S05 own creations forgotten",
        Bug::NoOrphanSweep => "S08 orphans never released",
        Bug::NoFinishedSweep => "S10 Pods of a finished Job never released",
        Bug::UnsettlesAll => "C1 a status write costs a look at every Pod without a controller",
        Bug::RefusedEverySecond => "I28 a status that is refused is sent again every second",
        Bug::FinishWithBacklog => "S11 Job finishes before all Pods are recorded",
        Bug::ClassificationNotSticky => "S18 classification not sticky",
        Bug::ActiveZeroInBackoff => "S20 active is 0 during a back-off",
        Bug::FinishWhileTerminating => "S26 Job finishes while Pods terminate",
        Bug::ForgetOwnDeletions => "S27 own deletions forgotten",
        Bug::NoDeadlineTimer => "S32 no deadline timer",
        Bug::NoRetryAfterConflict => "S33 conflict not retried",
        Bug::BackoffForgottenAtRestart => "S34 back-off lost at restart",
        Bug::RemovalNotResumed => "H2 removal not resumed",
        Bug::NoUidGuard => "H3 no UID guard",
        Bug::NoOverlay => "no overlay of own releases",
        Bug::UnconditionalStatus => "unconditional status write",
        Bug::ReleaseBeforeRecord => "release before record",
        Bug::ViewGoesBack => "a relist replaces the view with an older one",
        Bug::CompletionBeforeStart => "H4 completion before start",
        Bug::RefusalBlocksJob => "S15 one refused request blocks the Job",
        Bug::AnswerOutlivesPod => "a response restores a deleted Pod",
        Bug::OrphanWithoutGate => "H5 a missing Job is taken as deleted",
        Bug::StaleJobJudges => "a stale Job judges newer Pods",
        Bug::OldIndexReleases => "a success is released for an index that is no longer complete",
        Bug::StaleJobCreates => "a stale Job creates Pods again",
        Bug::TtlTrustsLocalClock => "H6 TTL uses the local clock only",
        Bug::ClockUnwatched => "I20 a wait is longer by as much as a clock was ahead that was set back",
        Bug::CronClockUnwatched => "G8 a clock that was ahead and is set back delays the start of a CronJob's Job",
        Bug::CollectorClockUnwatched => "G8 a clock that was ahead and is set back delays the garbage collector",
        Bug::PodGcClockUnwatched => "G8 a clock that was ahead and is set back delays the Pod garbage collector",
        Bug::CollectsUnlooked => "G1 an owner that was not observed is taken as deleted",
        Bug::CollectsByName => "G1 an object is deleted by name, without preconditions",
        Bug::RemovesUntold => "G4 a Pod is deleted before its failure is stored",
        Bug::NodeNotLookedFor => "G4 a node that was not observed is taken as deleted",
        Bug::ForgetsAssumed => "G2 resources are assigned twice",
        Bug::ReportsBlindly => "G5 a node writes a status without a precondition",
        Bug::NamespaceTooSoon => "G3 a namespace is removed before its content",
        Bug::AccountMadeOnce => "G6 a deleted service account is not created again",
        Bug::CertificateNotRepaired => "G6 a changed certificate is not repaired",
        Bug::CronTrustsItsView => "G7 a CronJob is not read before its Job is created",
        Bug::CompleteOneShort => "a Job completes one success short",
        Bug::CompleteIndexMissing => "an Indexed Job completes although an index is missing",
        Bug::CompleteWhileActive => "a Job completes while some of its Pods run",
        Bug::SuccessCountOneShort => "a success policy is met one index short of its count",
        Bug::SuccessByAnyIndex => "a success policy is met by any of its indexes, not only by all",
        Bug::SuccessPolicyForgotten => "a success policy is never evaluated",
        Bug::SuccessBeatsFailure => "a success policy that is met takes precedence over a failure",
        Bug::IgnoreCounts => "a failure that a rule ignores is counted",
        Bug::CountIgnores => "a failure that a rule counts is ignored",
        Bug::FailIndexCounts => "a failure that must fail its index is only counted",
        Bug::FailJobCounts => "a failure that must fail the Job is only counted",
        Bug::ExitCodesInverted => "`In` matches the exit codes that are not listed",
        Bug::LastRuleWins => "if several rules match, the last one decides",
        Bug::ConditionStatusIgnored => "a rule for a condition matches regardless of its status",
        Bug::BackoffLimitEarly => "a Job fails one failure too early",
        Bug::BackoffLimitLate => "a Job fails one failure too late",
        Bug::RestartsOneLate => "a Job fails one restart of a container too late",
        Bug::IndexLimitEarly => "an index fails one failure too early",
        Bug::IndexLimitLate => "an index fails one failure too late",
        Bug::HaltGoesOn => "a Job that lets its Pods end starts others",
        Bug::MaxFailedIndexesReached => "a Job fails when its failed indexes reach the maximum",
        Bug::FailedIndexesTooSoon => "a Job fails because of its indexes before all are done",
        Bug::FailedIndexesForgiven => "a Job completes although indexes have failed",
        Bug::RetryCountsLost => "the replacement of a failed Pod carries no failure counts",
        Bug::RetryCountsMixed => "the replacement counts failures as ignored, and vice versa",
        Bug::DeadlineEarly => "a deadline is a second early",
        Bug::DeadlineLate => "a deadline is five seconds late",
        Bug::DeadlineFromCreation => "a deadline counts from the creation of the Job",
        Bug::DeadlineWhileSuspended => "a deadline runs while the Job is suspended",
        Bug::WrongReason => "a Job that exceeded its deadline fails with another reason",
        Bug::SuspendKeepsStart => "a suspended Job keeps its startTime",
        Bug::TtlEarly => "a TTL is a second early",
        Bug::TtlLate => "a TTL is two minutes late",
        Bug::TtlFromCreation => "a TTL counts from the creation of the Job",
        Bug::BackoffHalved => "a back-off is half as long as it should be",
        Bug::BackoffUncapped => "a back-off grows without limit",
        Bug::DisruptionsDelay => "a disruption that the policy ignores delays the next Pod",
        Bug::BackoffMaxIgnored => "the longest back-off that a Job asks for is ignored",
        Bug::JitterBelowBase => "jitter shortens a back-off",
        Bug::BackoffFromCreation => "a back-off counts from the creation of the failed Pod",
        Bug::IndexBackoffSkipped => "an index is retried without a back-off",
        Bug::CreatesAfterVerdict => "Pods are created and removed although the verdict is decided",
        Bug::DeletedJobCreates => "a Job that is being deleted creates Pods",
        Bug::SuspendedJobRuns => "a suspended Job creates Pods",
        Bug::WorkQueueGoesOn => "a work queue creates Pods after the first success",
        Bug::WantsOneMore => "the wanted number of Pods is one too high",
        Bug::RemovesOneMore => "a scale-down removes one Pod too many",
        Bug::MisfitsCounted => "Pods with an index out of range are counted",
        Bug::PendingTimeoutEarly => "a pending Pod fails its Job a second early",
        Bug::NoPendingTimer => "no timer for a Pod that is pending for too long",
        Bug::PendingCountsRunning => "a Pod that runs is taken for a pending one",
        Bug::DiscardsUncounted => "I26 a finished Pod is deleted before it is counted",
        Bug::DiscardsBackoff => "I26 a Pod is deleted on which the back-off depends",
        Bug::NoStartGate => "I14 a Pod starts though its work may be counted under a name that was free again",
        Bug::StartsFromOldJob => "I14 a Pod starts because an old view of its Job has a place for it",
        Bug::StartsFromOldPods => "I14 a Pod starts because an old view of the other Pods has a place for it",
        Bug::TtlIgnoresOwner => "I26 a Pod expires that its Job still needs",
        Bug::BackoffUnexplained => "X1 a back-off is not explained",
        Bug::GoneFailuresUnexplained => "X1 the Pods that are there are taken for all that have failed",
        Bug::GivesUpEarly => "I27 a Pod that terminates is given up early",
        Bug::ReplacesUnfenced => "I27 a Pod is replaced before it is fenced",
        Bug::GivenUpCountsLost => "I18 the counts of a Pod that was given up are lost",
        Bug::FencedNotTold => "I27 a Pod that was given up is not counted as terminating",
        Bug::TtlIgnoresOutcome => "the TTL for an outcome is ignored",
        Bug::AfterAnyEnd => "O1 a Job begins after another that ended in the wrong way",
        Bug::AfterNotWoken => "O3 the end of a Job does not wake those that wait for it",
        Bug::AfterNeverFails => "O3 a Job waits for what can no longer happen",
        Bug::AfterResumesAgain => "O4 a Job that a user suspends is resumed by its order",
        Bug::AfterUnconditional => "O4 a waiting Job is changed without a precondition",
        Bug::AfterMissingFails => "O2 a Job that does not exist yet is taken for one that was deleted",
        Bug::AfterIgnoresCycles => "O3 Jobs that wait for each other wait for ever",
        Bug::SwitchDropsRecorded => "F1 the write that ends tracking forgets the recorded Pods",
        Bug::SwitchReleasesFirst => "I24 finalizers go before the Job is marked as tracked the old way",
        Bug::LegacyAddsToCount => "F2 Pods that are seen are added to the counters, not compared with them",
        Bug::LegacyKeepsFinalizers => "I9 Pods that have ended keep their finalizers when tracking has ended",
        Bug::InterimWithoutGates => "I13 interim conditions are written although their gates are off",
        Bug::LegacyTrackedAgain => "F3 a leader whose gate is on tracks the Job with finalizers again",
        Bug::FailureHasCompletionTime => "a failed Job has a completionTime",
        Bug::JudgesByOwnClock => "I27 a terminating Pod is judged by the own clock only",
        Bug::BookmarkEndsList => "a bookmark ends a list that is not complete",
        Bug::ResponseIsListed => "a response is taken for a piece of the list of Pods",
        Bug::ListedAtItsEnd => "a list of Pods is taken for one of the moment at which it ended",
        Bug::ResumedFromJobs => "a watch of Pods goes on from where the watch of Jobs is",
        Bug::LostWriteOpensGate => "a lost status write opens the gate",
        Bug::LostWriteForgotten => "S18 the successes of a lost status write are forgotten",
        Bug::GoneWithoutTombstone => "an older event revives a Pod that a response showed as gone",
        Bug::LateCreationRevives => "S05 the late answer to a creation revives a Pod that is gone",
        Bug::OlderJobAdopted => "a Job that was read late replaces a newer one",
        Bug::UnconditionalRelease => "a Pod is released without a precondition",
        Bug::UnconditionalDelete => "a Pod is deleted without a precondition",
        Bug::FinalizerPutBack => "I1 the API server lets the finalizer of a finished Pod be put back",
    }
}
