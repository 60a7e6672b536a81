//! Events that must happen sometimes. A simulator that never produces a conflict proves nothing about conflicts.

macro_rules! sometimes {
    ($($name:ident => $text:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Sometimes { $($name,)* }

        impl Sometimes {
            pub const ALL: &'static [(Sometimes, &'static str)] = &[$((Sometimes::$name, $text),)*];
        }
    };
}

sometimes! {
    Completed => "a Job completed",
    Failed => "a Job failed",
    Conflict => "a status write met a conflict",
    StaleReadActedOn => "a request was made from a view that was behind",
    GateClosed => "the gate was closed",
    GateOpenedByList => "a list of one Job's Pods opened the gate",
    AlreadyExists => "a creation met AlreadyExists",
    CrashRecordedUnreleased => "a crash between record and release",
    CrashReleasedUntallied => "a crash between release and tally",
    CrashRemovalHalfDone => "a crash between the two halves of a removal",
    ZombieWrite => "a write of a dead or paused instance was applied",
    ReplyLost => "a request was applied and its reply lost",
    RequestLost => "a request was lost",
    Refused => "a request was refused",
    Unavailable => "the server was unavailable",
    ReleaseRefused => "one Pod's release was refused",
    TimeTravel => "an instance started from an old list",
    Relist => "a watch was cut and listed again",
    TooOld => "a watch was too old",
    StreamBroken => "a watch broke",
    StreamResumed => "a watch went on where it was",
    StreamStalled => "a watch stood still",
    ListInterrupted => "a list was cut before it was complete",
    CarriedOutLate => "a request was carried out after its sender had given it up",
    Misanswered => "a request was answered by a proxy instead of the API server",
    SentAgain => "a request was sent again when the server had said",
    HiddenLife => "a relist hid a Pod's whole life",
    TwoWriters => "two instances wrote one Job's status",
    ClockBack => "a clock stepped back",
    ClockAhead => "a clock ran ahead",
    Suspended => "a Job was suspended",
    Resumed => "a Job was resumed",
    Scaled => "parallelism or completions changed",
    ElasticDown => "an Indexed Job was scaled down below a completed index",
    RemovedOnPurpose => "a Pod was removed on purpose",
    JobDeletedBackground => "a Job was deleted in the background",
    JobDeletedForeground => "a Job was deleted in the foreground",
    JobDeletedOrphan => "a Job was deleted and its Pods orphaned",
    JobRecreated => "a Job was created again under its name",
    OrphanReleased => "an orphan was released",
    LeftoverReleased => "a finished Job's leftover was released",
    Disowned => "a Pod was disowned",
    Adopted => "a Pod was adopted",
    Stripped => "a user stripped a finalizer",
    TrackedAgain => "a user put the finalizer of a finished Pod back",
    FlippedToFailed => "a Pod flipped from Succeeded to Failed",
    FlippedToSucceeded => "a Pod flipped from Failed to Succeeded",
    PodRecreated => "a Pod was created again under its name",
    NodeLost => "a node was lost",
    ExitLost => "a node lost an exit code",
    PodDeletedByUser => "a user deleted a Pod",
    InvalidIndexReleased => "a Pod with an invalid index was released",
    FailureIgnored => "a failure was ignored by policy",
    FailJob => "a failure policy failed a Job",
    FailedIndexes => "a Job failed by its indexes",
    SuccessPolicy => "a success policy was met",
    BackoffWaited => "a back-off was waited out",
    BackoffLimitExceeded => "a back-off limit was exceeded",
    DeadlineExceeded => "a deadline was exceeded",
    UncountedLimit => "the limit of uncounted Pods was reached",
    MoreThanParallelism => "more Pods lived than parallelism allows",
    TtlDeleted => "a TTL ran out",
    ManagedElsewhere => "a Job was managed by another controller",
    OwnerRemoved => "a Pod lost its owner",
    StoodStillExplained => "a Job stood still and was explained",
    // From here on: events of special worlds.
    StatusEdited => "a user edited a status",
    StatusRefused => "a policy refused the status of a Job",
    BookmarkInList => "a bookmark came inside a list",
    OlderState => "a server sent an older state than one that was seen",
    LeaseTaken => "an instance took the lease",
    LeaseLost => "an instance lost the lease",
    EventCounted => "an event was counted up",
    FinishedPodDeleted => "a finished Pod was deleted once it was counted",
    RestedSuspended => "a Job was suspended, or without parallelism, to the end",
    // From here on: events of a whole cluster.
    TrackingEnded => "the tracking of a Job ended",
    TrackingEndedWithBacklog => "the tracking of a Job ended while Pods were recorded",
    LegacyReleased => "a Pod lost its finalizer because its Job is tracked the old way",
    HostCrashed => "a controller other than those of Jobs crashed",
    OwnerLookedFor => "an owner was looked for, and was not there",
    Collected => "the collector deleted a dependent",
    CollectedInForeground => "the collector deleted a dependent whose owner waited for it",
    LetGo => "the collector let a dependent go",
    CollectorConflict => "a deletion by the collector met a newer object",
    NodeDeleted => "a node was deleted",
    PodOfLostNodeFailed => "a Pod of a lost node was said to have failed",
    NodeStillThere => "a node that was missed was there after all",
    UnscheduledPodEnded => "a Pod that was deleted without a node was ended",
    SurplusRemoved => "one ended Pod too many was removed",
    PodCollectorConflict => "a report of a lost Pod met a newer Pod",
    Bound => "a Pod was given a node",
    BindingConflict => "a binding met a Pod that had a node, or was another",
    Unschedulable => "a Pod was told that there is no place for it",
    Overcommitted => "two schedulers gave away the same place",
    NodeConflict => "a report of a node met a newer Pod",
    NodeRemoved => "a node let a Pod go",
    NamespaceDeleted => "a namespace was emptied and went",
    NamespaceRecreated => "a namespace was created again under its name",
    NamespaceRefuses => "a creation was refused by a namespace on its way out",
    ServiceAccountRestored => "a default service account was created again",
    CertificateRestored => "a certificate was put right",
    Scheduled => "a CronJob started a Job",
    ScheduledTwice => "a Job of a scheduled time was there already",
    Pruned => "a CronJob removed a Job",
}

#[derive(Clone, Debug)]
pub struct Counters([u64; Sometimes::ALL.len()]);

impl Default for Counters {
    fn default() -> Self {
        Self([0; Sometimes::ALL.len()])
    }
}

impl Counters {
    pub fn hit(&mut self, what: Sometimes) {
        self.0[what as usize] += 1;
    }

    pub fn merge(&mut self, other: &Self) {
        for (total, more) in self.0.iter_mut().zip(&other.0) {
            *total += more;
        }
    }

    /// The events that should happen, and how often they did. `cluster`: those of a whole cluster, and no others.
    pub fn iter(&self, cluster: bool) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let ordinary = Sometimes::StatusEdited as usize;
        let asked = move |what: Sometimes| match cluster {
            true => what as usize >= Sometimes::HostCrashed as usize,
            false => (what as usize) < ordinary,
        };
        let asked = Sometimes::ALL.iter().filter(move |(what, _)| asked(*what));
        asked.map(|(what, text)| (*text, self.0[*what as usize]))
    }

    /// The events that should have happened and did not.
    pub fn never(&self, cluster: bool) -> impl Iterator<Item = &'static str> + '_ {
        self.iter(cluster).filter(|(_, times)| *times == 0).map(|(text, _)| text)
    }
}
