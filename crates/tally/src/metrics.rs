//! Metrics of the controllers, in the formats that Prometheus reads, and the log lines about single Jobs, which a metric
//! cannot name.
//!
//! `job_controller_*` and `ttl_after_finished_controller_*` have the names and labels of the Kubernetes controllers, so
//! that existing dashboards and alerts keep working. Metrics of Tally's own start with `tally_`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tally_core::gates::{FeatureGates, Gate};
use tally_metrics::{Buckets, Counters, Gauges, Histograms, Label, MetricKind, MetricRegistry};
use tally_runtime::controller::{Call, Metric, Reply, Stream, Verb};
use tally_runtime::driver::api::WatchError;
use tally_runtime::driver::{Observer, QueueChange};
use tally_runtime::metric::SyncAction;

/// Maximum number of values of a label that users choose. Further values become `other`: a cluster must not be able to
/// exhaust the memory of the system that monitors it.
const CHOSEN_VALUES: usize = 100;

/// What the controllers of a process count.
pub struct ControllerMetrics {
    syncs: Counters<3>,
    sync_durations: Histograms<3>,
    jobs_finished: Counters<3>,
    external_jobs: Counters<1>,
    pods_finished: Counters<2>,
    indexes_finished: Counters<2>,
    failures_handled: Counters<1>,
    pods_created: Counters<2>,
    tracked: Counters<1>,
    stale_skips: Counters<2>,
    /// Under the name of Kubernetes, and under the one of the proposal (KEP-592).
    ttl_deletions: [Histograms<0>; 2],
    ttl_jobs: Counters<1>,
    legacy_jobs: Gauges<0>,
    queue_depth: Gauges<1>,
    queue_adds: Counters<1>,
    queue_retries: Counters<1>,
    queue_durations: Histograms<1>,
    work_durations: Histograms<1>,
    /// The bits of a number from 0 to 1.
    limit_use: Arc<AtomicU64>,
    uncounted: Gauges<0>,
    gate_waits: Counters<0>,
    status_writes: Counters<0>,
    invalid_statuses: Counters<0>,
    requests: Counters<3>,
    request_durations: Histograms<2>,
    in_flight: Gauges<1>,
    synced: Gauges<2>,
    stream_restarts: Counters<3>,
    events_dropped: Counters<1>,
    leader: Gauges<1>,
    reachable: Gauges<0>,
    /// The values of `controller_name` seen so far.
    managers: Mutex<BTreeSet<String>>,
    gates: Gauges<2>,
}

fn mode(indexed: bool) -> &'static str {
    if indexed { "Indexed" } else { "NonIndexed" }
}

/// The queue names of the Kubernetes controllers.
fn queue_name(controller: &'static str) -> Label {
    match controller {
        "job-controller" => "job".into(),
        "ttl-after-finished-controller" => "ttl_jobs_to_delete".into(),
        other => other.into(),
    }
}

fn result(succeeded: bool) -> &'static str {
    if succeeded { "succeeded" } else { "failed" }
}

impl ControllerMetrics {
    /// The feature gates of this process.
    pub fn gates(&self, gates: FeatureGates) {
        for gate in Gate::ALL {
            self.gates.set([gate.name().into(), gate.stage().into()], i64::from(gates.enabled(gate)));
        }
    }

    pub fn new(metrics: &MetricRegistry) -> Self {
        let mode = "completion_mode";
        let buckets = |first, count| Buckets::exponential(first, count).le_first();
        let made = Self {
            ttl_deletions: [
                "ttl_after_finished_controller_job_deletion_duration_seconds",
                "ttl_after_finished_controller_time_to_deletion_seconds",
            ]
            .map(|name| {
                let help = "Time from the expiry of a finished Job to its deletion";
                metrics.histograms(name, help, [], buckets(0.1, 14))
            }),
            ttl_jobs: metrics.counters(
                "tally_ttl_jobs",
                "Expired Jobs, by whether they were deleted within a minute of their expiry (in_time) or not (late)",
                ["result"],
            ),
            legacy_jobs: metrics.gauges(
                "tally_legacy_jobs",
                "Unfinished Jobs that are tracked the old way, without finalizers",
                [],
            ),
            queue_depth: metrics.gauges("workqueue_depth", "Requests waiting to be sent", ["name"]),
            queue_adds: metrics.counters("workqueue_adds", "Requests that controllers decided to send", ["name"]),
            queue_retries: metrics.counters(
                "workqueue_retries",
                "Requests sent again because the server had refused them for a time",
                ["name"],
            ),
            queue_durations: metrics.histograms(
                "workqueue_queue_duration_seconds",
                "Time that requests waited to be sent",
                ["name"],
                Buckets::exponential(0.001, 15),
            ),
            work_durations: metrics.histograms(
                "workqueue_work_duration_seconds",
                "Time from sending a request to its last response",
                ["name"],
                Buckets::exponential(0.001, 15),
            ),
            limit_use: Arc::default(),
            gates: metrics.gauges(
                "kubernetes_feature_enabled",
                "1 if the feature gate is on, 0 if not",
                ["name", "stage"],
            ),
            leader: metrics.gauges("leader_election_master_status", "1 if this process leads, 0 if not", ["name"]),
            sync_durations: metrics.histograms(
                "job_controller_job_sync_duration_seconds",
                "Time to reconcile a Job, with the requests that follow",
                [mode, "result", "action"],
                buckets(0.004, 15),
            ),
            syncs: metrics.counters("job_controller_job_syncs", "Reconciliations of Jobs", [mode, "result", "action"]),
            jobs_finished: metrics.counters(
                "job_controller_jobs_finished",
                "Jobs that finished",
                [mode, "result", "reason"],
            ),
            external_jobs: metrics.counters(
                "job_controller_jobs_by_external_controller",
                "Jobs that another controller manages",
                ["controller_name"],
            ),
            pods_finished: metrics.counters(
                "job_controller_job_pods_finished",
                "Finished Pods that were counted",
                [mode, "result"],
            ),
            indexes_finished: metrics.counters(
                "job_controller_job_finished_indexes",
                "Completion indexes that finished",
                ["status", "backoffLimit"],
            ),
            failures_handled: metrics.counters(
                "job_controller_pod_failures_handled_by_failure_policy",
                "Failed Pods that a rule of a failure policy matched",
                ["action"],
            ),
            pods_created: metrics.counters(
                "job_controller_job_pods_creation",
                "Attempts to create Pods",
                ["reason", "status"],
            ),
            tracked: metrics.counters(
                "job_controller_terminated_pods_tracking_finalizer",
                "Finished Pods that got or lost the tracking finalizer",
                ["event"],
            ),
            stale_skips: metrics.counters(
                "job_controller_stale_sync_skips",
                "Reconciliations skipped because the object cache was stale",
                ["group", "resource"],
            ),
            uncounted: metrics.gauges(
                "tally_uncounted_pods",
                "Finished Pods that still carry the tracking finalizer: not counted, or not yet released",
                [],
            ),
            gate_waits: metrics.counters(
                "tally_gate_waits",
                "Times the accounting of a Job waited for its Pods to be observed",
                [],
            ),
            status_writes: metrics.counters("tally_job_status_writes", "Successful writes of the status of Jobs", []),
            invalid_statuses: metrics.counters(
                "tally_invalid_statuses",
                "Statuses that were not sent because they violate the rules of the API: each is a bug in Tally",
                [],
            ),
            requests: metrics.counters(
                "tally_requests",
                "Requests to the API server that were answered or abandoned",
                ["verb", "resource", "code"],
            ),
            request_durations: metrics.histograms(
                "tally_request_duration_seconds",
                "Duration of requests",
                ["verb", "resource"],
                buckets(0.001, 15),
            ),
            in_flight: metrics.gauges("tally_requests_in_flight", "In-flight requests", ["controller"]),
            synced: metrics.gauges(
                "tally_stream_synced",
                "1 if the initial list has been observed completely",
                ["controller", "resource"],
            ),
            stream_restarts: metrics.counters(
                "tally_stream_restarts",
                "Watches that broke and were restarted",
                ["controller", "resource", "reason"],
            ),
            events_dropped: metrics.counters(
                "tally_events_dropped",
                "Events that were dropped because there were too many at once",
                ["controller"],
            ),
            reachable: metrics.gauges("tally_api_server_reachable", "1 if the API server is reachable, 0 if not", []),
            managers: Mutex::default(),
        };
        // An alert compares the two: the first Job that is late must be an increase.
        ["in_time", "late"].into_iter().for_each(|result| made.ttl_jobs.add([result.into()], 0));
        for name in ["job_controller_rate_limiter_use", "ttl_after_finished_controller_rate_limiter_use"] {
            let used = made.limit_use.clone();
            let help = "Used part of the rate limit of requests (--qps), which all controllers share; 1: requests wait";
            metrics.read(name, help, MetricKind::Gauge, move || Some(f64::from_bits(used.load(Ordering::Relaxed))));
        }
        let build = metrics.gauges("tally_build_info", "The version of this process", ["version"]);
        build.set([env!("CARGO_PKG_VERSION").into()], 1);
        register_process(metrics);
        made
    }
}

impl Observer for ControllerMetrics {
    fn metric(&self, _controller: &'static str, metric: &Metric, took: Duration) {
        match metric {
            Metric::Sync { indexed, action, error } => {
                let action = match action {
                    SyncAction::Reconciling => "reconciling",
                    SyncAction::Tracking => "tracking",
                    SyncAction::PodsCreated => "pods_created",
                    SyncAction::PodsDeleted => "pods_deleted",
                };
                let result = if *error { "error" } else { "success" };
                let labels = [mode(*indexed), result, action].map(Label::from);
                self.sync_durations.observe(labels.clone(), took.as_secs_f64());
                self.syncs.inc(labels);
            }
            Metric::JobFinished { indexed, succeeded, reason } => {
                let (mode, result) = (mode(*indexed), result(*succeeded));
                self.jobs_finished.inc([mode.into(), result.into(), reason.to_string().into()]);
            }
            Metric::ExternalJob { manager, job } => {
                self.external_jobs.inc([self.manager(manager)]);
                tracing::info!(%job, managed_by = %manager, "the Job is left to the controller that its managedBy names");
            }
            Metric::PodsFinished { indexed, succeeded, by } => {
                self.pods_finished.add([mode(*indexed), result(*succeeded)].map(Label::from), *by);
            }
            Metric::IndexesFinished { succeeded, per_index, by } => {
                let limit = if *per_index { "perIndex" } else { "global" };
                self.indexes_finished.add([result(*succeeded), limit].map(Label::from), *by);
            }
            Metric::FailureHandled { action } => {
                self.failures_handled.inc([(*action).into()]);
            }
            Metric::PodCreated { reason, succeeded } => {
                self.pods_created.inc([*reason, result(*succeeded)].map(Label::from));
            }
            Metric::TerminatedPodTracked { added } => {
                let event = if *added { "add" } else { "delete" };
                self.tracked.inc([event.into()]);
                self.uncounted.add([], if *added { 1 } else { -1 });
            }
            Metric::GateClosed => {
                self.stale_skips.inc(["", "pods"].map(Label::from));
                self.gate_waits.inc([]);
            }
            Metric::InvalidStatus => {
                self.invalid_statuses.inc([]);
                tracing::error!("a Job status that violates the rules of the API was not sent: please report this bug");
            }
            // For displays: a time is no count.
            Metric::BackoffStarted { .. } => {}
            Metric::LegacyJob { added } => self.legacy_jobs.add([], if *added { 1 } else { -1 }),
            Metric::TtlJob { in_time } => self.ttl_jobs.inc([if *in_time { "in_time" } else { "late" }.into()]),
            // A refused write is one of the syncs.
            Metric::StatusRefused { job, message } => {
                tracing::warn!(%job, "the API server refuses the status of the Job, which is tried again: {message}");
            }
            // At the level of its beginning: whoever reads of the one must read of the other.
            Metric::StatusRefusalEnded { job, refusals, accepted: true } => {
                tracing::warn!(%job, refusals, "the API server accepts the status of the Job again");
            }
            Metric::StatusRefusalEnded { job, refusals, accepted: false } => {
                tracing::warn!(%job, refusals, "the Job whose status the API server refused is gone");
            }
            Metric::GangJob { job } => {
                tracing::warn!(%job, "the Job is left alone: gang scheduling (spec.scheduling) is not supported");
            }
            Metric::TtlDeletion { after_millis } => {
                self.ttl_deletions.iter().for_each(|name| name.observe([], *after_millis as f64 / 1000.0));
            }
        }
    }

    fn request(&self, call: &Call, reply: &Reply, took: Duration) {
        let verb = match call.verb {
            Verb::Create => "create",
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Update => "update",
            Verb::MergePatch | Verb::StrategicPatch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        };
        let resource: Cow<'static, str> = match (call.kind.plural, call.subresource) {
            (plural, "") => plural.into(),
            ("pods", "status") => "pods/status".into(),
            ("pods", "binding") => "pods/binding".into(),
            (plural, subresource) => format!("{plural}/{subresource}").into(),
        };
        let code: Cow<'static, str> = match reply {
            Reply::Refused(refusal) => refusal.code.to_string().into(),
            Reply::Unknown => "unknown".into(),
            Reply::Done(_) | Reply::DoneWithStatus | Reply::Listed { .. } => "2xx".into(),
        };
        if resource == "jobs/status" && reply.is_done() {
            self.status_writes.inc([]);
        }
        self.request_durations.observe([verb.into(), resource.clone()], took.as_secs_f64());
        self.requests.inc([verb.into(), resource, code]);
        // Other codes are part of normal operation: objects change or are deleted, and servers are busy.
        if let Reply::Refused(refusal) = reply
            && matches!(refusal.code, 400 | 401 | 403 | 405 | 415 | 422)
        {
            let (verb, what, namespace, name) = (call.verb, call.kind.plural, &call.namespace, &call.name);
            tracing::debug!(?verb, what, %namespace, %name, code = refusal.code, "refused: {}", refusal.message);
        }
    }

    fn load(&self, controller: &'static str, waiting: usize, in_flight: usize) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.queue_depth.set([queue_name(controller)], number(waiting));
        self.in_flight.set([controller.into()], number(in_flight));
    }

    fn queue(&self, controller: &'static str, change: QueueChange) {
        let name = [queue_name(controller)];
        match change {
            QueueChange::Added(count) => self.queue_adds.add(name, count as u64),
            QueueChange::Retried => self.queue_retries.inc(name),
            QueueChange::Sent { waited } => self.queue_durations.observe(name, waited.as_secs_f64()),
            QueueChange::Answered { took } => self.work_durations.observe(name, took.as_secs_f64()),
        }
    }

    fn rate_limit(&self, used: f64) {
        self.limit_use.store(used.to_bits(), Ordering::Relaxed);
    }

    fn synced(&self, controller: &'static str, stream: Stream) {
        self.synced.set([controller, stream.kind.plural].map(Label::from), 1);
    }

    fn stream_broken(&self, controller: &'static str, stream: Stream, trouble: &WatchError) {
        let reason = match trouble {
            WatchError::TooOld => "too_old",
            WatchError::Refused(_) => "refused",
            WatchError::Broken(_) => "broken",
        };
        self.stream_restarts.inc([controller, stream.kind.plural, reason].map(Label::from));
    }

    fn event_dropped(&self, controller: &'static str) {
        self.events_dropped.inc([controller.into()]);
    }
}

impl ControllerMetrics {
    /// `lease`: the name of the Lease.
    pub fn leads(&self, lease: &str, leads: bool) {
        self.leader.set([lease.to_owned().into()], i64::from(leads));
    }

    pub fn reachable(&self, reachable: bool) {
        self.reachable.set([], i64::from(reachable));
    }

    fn manager(&self, name: &str) -> Cow<'static, str> {
        let mut known = self.managers.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(name) {
            return Cow::Owned(name.to_owned());
        }
        if known.len() >= CHOSEN_VALUES {
            return Cow::Borrowed("other");
        }
        known.insert(name.to_owned());
        Cow::Owned(name.to_owned())
    }
}

/// The standard process metrics, if the system reports their values.
fn register_process(metrics: &MetricRegistry) {
    let (name, help) = ("process_resident_memory_bytes", "Resident memory in bytes");
    metrics.read(name, help, MetricKind::Gauge, || resident_bytes().map(|bytes| bytes as f64));
    metrics.read("process_cpu_seconds", "CPU time used in seconds", MetricKind::Counter, cpu_seconds);
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    // Linux reports 100 ticks per second (USER_HZ).
    Some(ticks / 100.0)
}

#[cfg(test)]
mod tests {
    use tally_runtime::controller::{Kind, Refusal};

    use super::*;

    /// To write it again: `TALLY_WRITE_DOCS=1 cargo test -p tally metrics`.
    #[test]
    fn the_documentation_lists_every_metric() {
        let registry = MetricRegistry::default();
        let _metrics = ControllerMetrics::new(&registry);
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        let text = std::fs::read_to_string(&file).unwrap();
        let (before, _) = text.split_once("| metric |").unwrap();
        let wanted = before.to_owned() + &registry.table();
        if std::env::var_os("TALLY_WRITE_DOCS").is_some() {
            std::fs::write(&file, &wanted).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), wanted);
    }

    /// Names and labels of the specification, with Tally's own beside them.
    /// METRIC-1, METRIC-2, METRIC-3, METRIC-4, METRIC-5, METRIC-6, METRIC-7, METRIC-8, METRIC-9, METRIC-10, METRIC-11,
    /// METRIC-12, METRIC-14, METRIC-15.
    #[test]
    fn names_and_labels_are_those_of_the_reference() {
        let registry = MetricRegistry::default();
        let metrics = ControllerMetrics::new(&registry);
        let (pods, jobs) = (Stream::of(Kind::POD), Stream::of(Kind::JOB));
        for metric in [
            Metric::Sync { indexed: true, action: SyncAction::PodsCreated, error: false },
            Metric::JobFinished { indexed: false, succeeded: false, reason: "BackoffLimitExceeded".into() },
            Metric::ExternalJob { manager: "example.com/other".into(), job: "ns/j".into() },
            Metric::PodsFinished { indexed: true, succeeded: true, by: 3 },
            Metric::IndexesFinished { succeeded: true, per_index: true, by: 2 },
            Metric::FailureHandled { action: "FailIndex" },
            Metric::PodCreated { reason: "recreate_failed", succeeded: false },
            Metric::TerminatedPodTracked { added: true },
            Metric::TerminatedPodTracked { added: true },
            Metric::TerminatedPodTracked { added: false },
            Metric::GateClosed,
            Metric::TtlDeletion { after_millis: 250 },
            Metric::TtlJob { in_time: true },
            Metric::TtlJob { in_time: false },
            Metric::LegacyJob { added: true },
            Metric::LegacyJob { added: true },
            Metric::LegacyJob { added: false },
        ] {
            metrics.metric("job-controller", &metric, Duration::from_millis(5));
        }
        let write = Call::new(Verb::MergePatch, Kind::JOB, "ns", "j").subresource("status");
        metrics.request(&write, &Reply::DoneWithStatus, Duration::from_millis(3));
        let refused = Reply::Refused(Refusal { code: 409, ..Refusal::default() });
        metrics.request(&write, &refused, Duration::from_millis(3));
        metrics.load("job-controller", 7, 2);
        for change in [
            QueueChange::Added(9),
            QueueChange::Sent { waited: Duration::from_millis(4) },
            QueueChange::Retried,
            QueueChange::Answered { took: Duration::from_millis(3) },
        ] {
            metrics.queue("ttl-after-finished-controller", change);
        }
        metrics.rate_limit(0.25);
        metrics.synced("job-controller", pods);
        metrics.stream_broken("job-controller", jobs, &WatchError::TooOld);
        metrics.event_dropped("job-controller");
        metrics.leads("tally-job-controller", true);
        let (text, classic) = (registry.openmetrics(), registry.classic());
        for line in [
            r#"job_controller_job_syncs_total{completion_mode="Indexed",result="success",action="pods_created"} 1"#,
            r#"job_controller_job_sync_duration_seconds_bucket{le="0.004",completion_mode="Indexed",result="success",action="pods_created"} 0"#,
            r#"job_controller_job_sync_duration_seconds_bucket{le="65.536",completion_mode="Indexed",result="success",action="pods_created"} 1"#,
            r#"job_controller_jobs_finished_total{completion_mode="NonIndexed",result="failed",reason="BackoffLimitExceeded"} 1"#,
            r#"job_controller_jobs_by_external_controller_total{controller_name="example.com/other"} 1"#,
            r#"job_controller_job_pods_finished_total{completion_mode="Indexed",result="succeeded"} 3"#,
            r#"job_controller_job_finished_indexes_total{status="succeeded",backoffLimit="perIndex"} 2"#,
            r#"job_controller_pod_failures_handled_by_failure_policy_total{action="FailIndex"} 1"#,
            r#"job_controller_job_pods_creation_total{reason="recreate_failed",status="failed"} 1"#,
            r#"job_controller_terminated_pods_tracking_finalizer_total{event="add"} 2"#,
            r#"job_controller_terminated_pods_tracking_finalizer_total{event="delete"} 1"#,
            r#"job_controller_stale_sync_skips_total{group="",resource="pods"} 1"#,
            r#"ttl_after_finished_controller_job_deletion_duration_seconds_bucket{le="0.1"} 0"#,
            r#"ttl_after_finished_controller_job_deletion_duration_seconds_bucket{le="819.2"} 1"#,
            r#"ttl_after_finished_controller_time_to_deletion_seconds_bucket{le="819.2"} 1"#,
            "ttl_after_finished_controller_rate_limiter_use 0.25",
            "job_controller_rate_limiter_use 0.25",
            r#"workqueue_depth{name="job"} 7"#,
            r#"workqueue_adds_total{name="ttl_jobs_to_delete"} 9"#,
            r#"workqueue_retries_total{name="ttl_jobs_to_delete"} 1"#,
            r#"workqueue_queue_duration_seconds_count{name="ttl_jobs_to_delete"} 1"#,
            r#"workqueue_work_duration_seconds_count{name="ttl_jobs_to_delete"} 1"#,
            r#"leader_election_master_status{name="tally-job-controller"} 1"#,
            "tally_uncounted_pods 1",
            "tally_legacy_jobs 1",
            r#"tally_ttl_jobs_total{result="in_time"} 1"#,
            r#"tally_ttl_jobs_total{result="late"} 1"#,
            "tally_gate_waits_total 1",
            "tally_job_status_writes_total 1",
            r#"tally_requests_total{verb="patch",resource="jobs/status",code="2xx"} 1"#,
            r#"tally_requests_total{verb="patch",resource="jobs/status",code="409"} 1"#,
            r#"tally_request_duration_seconds_count{verb="patch",resource="jobs/status"} 2"#,
            r#"tally_requests_in_flight{controller="job-controller"} 2"#,
            r#"tally_stream_synced{controller="job-controller",resource="pods"} 1"#,
            r#"tally_stream_restarts_total{controller="job-controller",resource="jobs",reason="too_old"} 1"#,
            r#"tally_events_dropped_total{controller="job-controller"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
            assert!(classic.lines().any(|found| found == line), "{line} is missing in\n{classic}");
        }
        assert!(text.ends_with("# EOF\n") && !classic.contains("# EOF"));
        let types = |text: &str, line: &str| text.lines().filter(|found| *found == line).count();
        assert_eq!(types(&text, "# TYPE tally_gate_waits counter"), 1, "{text}");
        for line in [
            "# HELP tally_gate_waits_total Times the accounting of a Job waited for its Pods to be observed.",
            "# TYPE tally_gate_waits_total counter",
            "# TYPE tally_uncounted_pods gauge",
            "# TYPE tally_request_duration_seconds histogram",
        ] {
            assert_eq!(types(&classic, line), 1, "{classic}");
        }
    }

    #[test]
    fn users_cannot_make_up_labels_without_end() {
        let registry = MetricRegistry::default();
        let metrics = ControllerMetrics::new(&registry);
        for number in 0..CHOSEN_VALUES + 50 {
            let manager = format!("example.com/m{number}").into();
            metrics.metric("job-controller", &Metric::ExternalJob { manager, job: "ns/j".into() }, Duration::ZERO);
        }
        let text = registry.classic();
        assert_eq!(text.matches("controller_name=").count(), CHOSEN_VALUES + 1);
        assert!(text.contains(r#"controller_name="other"} 50"#), "{text}");
    }
}
