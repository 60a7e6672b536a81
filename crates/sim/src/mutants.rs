//! Known bugs, put back one at a time. A simulator that does not find them would not find similar ones either.

use tally_core::mutation::Bug;

/// The world in which to search for a bug first. Any seeds would find it; the right faults find it sooner.
pub fn scenario_for(bug: Bug) -> &'static str {
    match bug {
        Bug::NoGate | Bug::OrphanWithoutGate => "stale-views",
        Bug::GateIgnoresCounters | Bug::GateIgnoresUncounted => "two-leaders",
        Bug::StaleJobJudges | Bug::MisfitsCounted => "elastic",
        Bug::StaleJobCreates => "two-leaders",
        Bug::RetryStaleStatus | Bug::UnconditionalStatus => "two-leaders",
        Bug::TallyBeforeRelease | Bug::FinishWithBacklog => "limits",
        Bug::ForgetOwnCreations => "stale-views",
        Bug::NoOrphanSweep | Bug::NoFinishedSweep => "job-monkey",
        Bug::ClassificationNotSticky | Bug::NoUidGuard => "pod-monkey",
        Bug::ActiveZeroInBackoff | Bug::BackoffForgottenAtRestart => "backoff",
        Bug::FinishWhileTerminating | Bug::ForgetOwnDeletions => "replacement",
        Bug::NoDeadlineTimer => "deadline",
        Bug::NoRetryAfterConflict => "conflicts",
        Bug::RemovalNotResumed => "scale-down",
        Bug::NoOverlay | Bug::ReleaseBeforeRecord | Bug::AnswerOutlivesPod => "any",
        Bug::ViewGoesBack => "watch",
        Bug::CompletionBeforeStart | Bug::TtlTrustsLocalClock => "clocks",
        Bug::RefusalBlocksJob => "refusals",
        Bug::CollectsUnlooked | Bug::CollectsByName => "owners",
        Bug::ForgetsAssumed | Bug::AccountMadeOnce | Bug::CertificateNotRepaired => "cluster",
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
        Bug::DeletedJobCreates | Bug::SuspendedJobRuns => "job-monkey",
        Bug::WantsOneMore => "calm",
        Bug::RemovesOneMore => "scale-down",
    }
}

/// The known bug in the fault matrix that a put-back bug belongs to.
pub fn label(bug: Bug) -> &'static str {
    match bug {
        Bug::NoGate => "S01 no gate",
        Bug::GateIgnoresCounters => "S01 gate ignores counters",
        Bug::GateIgnoresUncounted => "S01 gate ignores lists",
        Bug::RetryStaleStatus => "S02 stale status sent again",
        Bug::TallyBeforeRelease => "S03 tally before release",
        Bug::ForgetOwnCreations => "S05 own creations forgotten",
        Bug::NoOrphanSweep => "S08 orphans never released",
        Bug::NoFinishedSweep => "S10 finished Job not swept",
        Bug::FinishWithBacklog => "S11 finish before all is counted",
        Bug::ClassificationNotSticky => "S18 classification not sticky",
        Bug::ActiveZeroInBackoff => "S20 active 0 in back-off",
        Bug::FinishWhileTerminating => "S26 finish while terminating",
        Bug::ForgetOwnDeletions => "S27 own deletions forgotten",
        Bug::NoDeadlineTimer => "S32 no deadline timer",
        Bug::NoRetryAfterConflict => "S33 conflict not retried",
        Bug::BackoffForgottenAtRestart => "S34 back-off lost at restart",
        Bug::RemovalNotResumed => "H2 removal not resumed",
        Bug::NoUidGuard => "H3 no UID guard",
        Bug::NoOverlay => "no overlay of own releases",
        Bug::UnconditionalStatus => "unconditional status write",
        Bug::ReleaseBeforeRecord => "release before record",
        Bug::ViewGoesBack => "view goes back at a relist",
        Bug::CompletionBeforeStart => "H4 completion before start",
        Bug::RefusalBlocksJob => "S15 one refusal blocks the Job",
        Bug::AnswerOutlivesPod => "an answer revives a Pod",
        Bug::OrphanWithoutGate => "H5 missing taken for deleted",
        Bug::StaleJobJudges => "stale Job judges newer Pods",
        Bug::StaleJobCreates => "stale Job makes Pods again",
        Bug::TtlTrustsLocalClock => "H6 TTL trusts one clock",
        Bug::CollectsUnlooked => "G1 unseen owner taken for gone",
        Bug::CollectsByName => "G1 collected by name",
        Bug::RemovesUntold => "G4 Pod removed before it failed",
        Bug::NodeNotLookedFor => "G4 unseen node taken for gone",
        Bug::ForgetsAssumed => "G2 place given away twice",
        Bug::ReportsBlindly => "G5 node reports without a guard",
        Bug::NamespaceTooSoon => "G3 namespace goes too soon",
        Bug::AccountMadeOnce => "G6 account not made again",
        Bug::CertificateNotRepaired => "G6 certificate not repaired",
        Bug::CronTrustsItsView => "G7 CronJob not read afresh",
        Bug::CompleteOneShort => "a Job is complete one success short",
        Bug::CompleteIndexMissing => "an Indexed Job is complete though an index is missing",
        Bug::CompleteWhileActive => "a Job is complete while Pods of it run",
        Bug::SuccessCountOneShort => "a success policy is met one index short of its count",
        Bug::SuccessByAnyIndex => "a success policy is met by any of its indexes, not all",
        Bug::SuccessPolicyForgotten => "a success policy is never looked at",
        Bug::SuccessBeatsFailure => "a success policy that is met outweighs a failure",
        Bug::IgnoreCounts => "a failure that is to be ignored counts",
        Bug::CountIgnores => "a failure that a rule says counts is ignored",
        Bug::FailIndexCounts => "a failure that is to fail its index merely counts",
        Bug::FailJobCounts => "a failure that is to fail the Job merely counts",
        Bug::ExitCodesInverted => "`In` means the exit codes that are not listed",
        Bug::LastRuleWins => "of several rules that match the last decides",
        Bug::ConditionStatusIgnored => "a rule for a condition matches whatever its status is",
        Bug::BackoffLimitEarly => "a Job fails one failure too early",
        Bug::BackoffLimitLate => "a Job fails one failure too late",
        Bug::RestartsOneLate => "a Job fails one restart of a container too late",
        Bug::IndexLimitEarly => "an index fails one failure too early",
        Bug::IndexLimitLate => "an index fails one failure too late",
        Bug::MaxFailedIndexesReached => "as many failed indexes as are allowed are too many",
        Bug::FailedIndexesTooSoon => "a Job fails by its indexes before all of them are done",
        Bug::FailedIndexesForgiven => "a Job completes although indexes have failed",
        Bug::RetryCountsLost => "the replacement of a failed Pod is told of no failures",
        Bug::RetryCountsMixed => "the replacement takes failures for ignored ones, and the other way round",
        Bug::DeadlineEarly => "a deadline is a second early",
        Bug::DeadlineLate => "a deadline is five seconds late",
        Bug::DeadlineFromCreation => "a deadline counts from the creation of the Job",
        Bug::DeadlineWhileSuspended => "a deadline runs while the Job is suspended",
        Bug::WrongReason => "a Job that was active for too long fails for another reason",
        Bug::SuspendKeepsStart => "a suspended Job keeps its startTime",
        Bug::TtlEarly => "a TTL is a second early",
        Bug::TtlLate => "a TTL is two minutes late",
        Bug::TtlFromCreation => "a TTL counts from the creation of the Job",
        Bug::BackoffHalved => "a back-off is half as long as it should be",
        Bug::BackoffUncapped => "a back-off grows without limit",
        Bug::BackoffFromCreation => "a back-off counts from the creation of the failed Pod",
        Bug::IndexBackoffSkipped => "an index is tried again at once",
        Bug::CreatesAfterVerdict => "pods are managed as before though the Job is decided",
        Bug::DeletedJobCreates => "a Job that is being deleted makes Pods",
        Bug::SuspendedJobRuns => "a suspended Job makes Pods",
        Bug::WorkQueueGoesOn => "a work queue makes Pods after the first success",
        Bug::WantsOneMore => "one Pod too many is wanted",
        Bug::RemovesOneMore => "a scale-down removes one Pod too many",
        Bug::MisfitsCounted => "pods with an index out of range are counted",
        Bug::FailureHasCompletionTime => "a failed Job has a completionTime",
    }
}
