//! Things that must happen sometimes. A simulator that never saw a conflict proves nothing about conflicts.

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
    ManagedElsewhere => "a Job was managed by somebody else",
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

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Sometimes::ALL.iter().map(|(what, text)| (*text, self.0[*what as usize]))
    }

    pub fn never(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.iter().filter(|(_, times)| *times == 0).map(|(text, _)| text)
    }
}
