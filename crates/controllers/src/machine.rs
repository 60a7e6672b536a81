//! One trait for everything that reconciles. A machine is told what was observed, what was answered and what time it
//! is; it says what to request. No I/O, no async, no clock.

use std::sync::Arc;

use compact_str::CompactString;
use tally_core::ids::{JobUid, PodUid, Revision};
use tally_core::job::{JobStatus, JobView};
use tally_core::pod::PodView;
use tally_core::time::Timestamp;

pub trait Machine {
    /// Takes one input; what should happen goes into `out`. Nothing else leaves.
    fn handle(&mut self, input: Input, now: Timestamp, out: &mut Outbox);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    Jobs,
    Pods,
}

#[derive(Clone, Debug)]
pub enum Object {
    Job(Arc<JobView>),
    Pod(Arc<PodView>),
}

#[derive(Clone, Debug)]
pub enum Input {
    /// A complete list of a resource, as of `at`, begins: its objects follow, then `Listed`.
    Listing { resource: Resource },
    /// An object as it is now. Within a list, or as the next event of a stream.
    Observed(Object),
    /// An object is gone; it is shown as it last was, with the revision of its removal.
    Gone(Object),
    /// The list is complete.
    Listed { resource: Resource, at: Revision },
    /// A stream has been followed up to here (a bookmark).
    Reached { resource: Resource, at: Revision },
    /// `served_at` is the server's clock when it answered, where it told.
    Answered { request: RequestId, answer: Answer, served_at: Option<Timestamp> },
    /// The time asked for has come.
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What became of a request. Conflict is a normal outcome.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It was done, and this is the object as stored.
    Done(Object),
    /// There is no such object (any more): not found, removed at once, or the name is another object's by now.
    Gone,
    /// The object has changed since the revision the request was planned from.
    Conflict,
    AlreadyExists,
    /// A definite no: forbidden, invalid.
    Refused {
        code: u16,
        namespace_terminating: bool,
        message: String,
    },
    /// Not done, not now: too many requests, server unavailable.
    Unavailable,
    /// Nobody knows: a timeout, a broken connection.
    Unknown,
    /// A consistent list of Pods, as of `at`.
    Pods {
        pods: Vec<Arc<PodView>>,
        at: Revision,
    },
}

/// A request says everything: whoever carries it out needs no knowledge of Jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub id: RequestId,
    pub action: Action,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    CreatePod {
        namespace: CompactString,
        name: CompactString,
        body: Vec<u8>,
    },
    /// `uid` (and `revision`) guard the change: a Pod of the same name is not the same Pod.
    PatchPod {
        namespace: CompactString,
        name: CompactString,
        uid: Option<PodUid>,
        revision: Option<Revision>,
        change: PodChange,
    },
    DeletePod {
        namespace: CompactString,
        name: CompactString,
        uid: Option<PodUid>,
    },
    GetPod {
        namespace: CompactString,
        name: CompactString,
    },
    /// The Pods with these labels, read consistently; of all namespaces if none is named.
    ListPods {
        namespace: CompactString,
        selector: String,
    },
    GetJob {
        namespace: CompactString,
        name: CompactString,
    },
    WriteJobStatus {
        namespace: CompactString,
        name: CompactString,
        uid: JobUid,
        revision: Option<Revision>,
        status: Box<JobStatus>,
    },
    /// Foreground, so that the Pods go first (TTL-7).
    DeleteJob {
        namespace: CompactString,
        name: CompactString,
        uid: JobUid,
        revision: Revision,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodChange {
    /// Remove the tracking finalizer.
    Release,
    /// Become the Pod's controller and add the tracking finalizer.
    Adopt { job: JobUid, job_name: CompactString },
    /// Stop being the Pod's controller and remove the tracking finalizer.
    Disown { job: JobUid },
}

/// What leaves a machine.
#[derive(Debug, Default)]
pub struct Outbox {
    pub requests: Vec<Request>,
    pub events: Vec<Event>,
    pub metrics: Vec<Metric>,
    /// When to send a `Tick` at the latest.
    pub wake_at: Option<Timestamp>,
}

impl Outbox {
    pub fn clear(&mut self) {
        self.requests.clear();
        self.events.clear();
        self.metrics.clear();
        self.wake_at = None;
    }
}

/// An event to record about a Job (EVENT).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub namespace: CompactString,
    pub job: CompactString,
    pub uid: JobUid,
    pub warning: bool,
    pub reason: CompactString,
    pub message: String,
}

/// What happened, to be counted (METRIC). Names and labels are the driver's rendering of these.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// job_syncs_total.
    Sync { indexed: bool, action: SyncAction, error: bool },
    /// jobs_finished_total.
    JobFinished { indexed: bool, succeeded: bool, reason: CompactString },
    /// jobs_by_external_controller_total.
    ExternalJob { manager: CompactString },
    /// job_pods_finished_total.
    PodsFinished { indexed: bool, succeeded: bool, by: u64 },
    /// job_finished_indexes_total.
    IndexesFinished { succeeded: bool, per_index: bool, by: u64 },
    /// pod_failures_handled_by_failure_policy_total.
    FailureHandled { action: &'static str },
    /// job_pods_creation_total.
    PodCreated { reason: &'static str, succeeded: bool },
    /// terminated_pods_tracking_finalizer_total.
    TerminatedPodTracked { added: bool },
    /// The gate was closed: the Pods were older than the Job (stale_sync_skips_total, and our gauge).
    GateClosed,
    /// A status our own rules would refuse was not sent. Always a bug.
    InvalidStatus,
    /// ttl_after_finished_controller_job_deletion_duration_seconds, in milliseconds.
    TtlDeletion { after_millis: i64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SyncAction {
    Reconciling,
    Tracking,
    PodsCreated,
    PodsDeleted,
}
