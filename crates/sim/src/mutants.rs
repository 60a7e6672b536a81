//! Known bugs, put back one at a time. A simulator that does not find them would not find their next of kin either.

use tally_core::mutation::Bug;

/// Where to look for a bug first. All seeds would find it; the right trouble finds it sooner.
pub fn scenario_for(bug: Bug) -> &'static str {
    match bug {
        Bug::NoGate | Bug::OrphanWithoutGate => "stale-views",
        Bug::GateIgnoresCounters | Bug::GateIgnoresUncounted => "two-leaders",
        Bug::StaleJobJudges => "job-monkey",
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
    }
}

/// The scenario of the fault matrix a bug belongs to.
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
    }
}
