//! What controllers count of their work. The exporter chooses the names and labels.

use compact_str::CompactString;
use tally_core::backoff::BackoffNotice;
use tally_core::ids::JobUid;

/// What happened, to be counted (METRIC). The exporter renders names and labels from these.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// job_syncs_total.
    Sync { indexed: bool, action: SyncAction, error: bool },
    /// jobs_finished_total.
    JobFinished { indexed: bool, succeeded: bool, reason: CompactString },
    /// jobs_by_external_controller_total. `job`: its namespace and name, for logs.
    ExternalJob { manager: CompactString, job: CompactString },
    /// A Job that asks for gang scheduling is left alone. `job`: its namespace and name, for logs.
    GangJob { job: CompactString },
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
    /// A status that our own rules would refuse was not sent. Always a bug.
    InvalidStatus,
    /// The server begins to refuse the status of a Job. `job`: its namespace and name; for logs, as the next one.
    StatusRefused { job: CompactString, message: String },
    /// That has ended after so many refusals: the server has accepted the status, or the Job is gone.
    StatusRefusalEnded { job: CompactString, refusals: u32, accepted: bool },
    /// ttl_after_finished_controller_job_deletion_duration_seconds, in milliseconds.
    TtlDeletion { after_millis: i64 },
    /// A Job has expired, and was deleted within a minute, or a minute has passed (METRIC-14).
    TtlJob { in_time: bool },
    /// An unfinished Job that is tracked the old way was seen first, or has finished or is gone (METRIC-15).
    LegacyJob { added: bool },
    /// A Job, or one of its indexes, began to wait before a retry.
    BackoffStarted { job: JobUid, notice: Box<BackoffNotice> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SyncAction {
    Reconciling,
    Tracking,
    PodsCreated,
    PodsDeleted,
}
