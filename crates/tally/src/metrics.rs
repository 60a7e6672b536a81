//! Metrics of the controllers, in the formats that Prometheus reads.
//!
//! `job_controller_*` and `ttl_after_finished_controller_*` have the names and labels of the Kubernetes controllers, so
//! that existing dashboards and alerts keep working. Metrics of Tally's own start with `tally_`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tally_runtime::controller::{Call, Metric, Reply, Stream, Verb};
use tally_runtime::driver::Observer;
use tally_runtime::driver::api::WatchError;
use tally_runtime::metric::SyncAction;

/// Maximum number of values of a label that users choose. Further values become `other`: a cluster must not be able to
/// exhaust the memory of the system that monitors it.
const CHOSEN_VALUES: usize = 100;

type Label = (&'static str, Cow<'static, str>);
type Counters<const N: usize> = Family<[Label; N], Counter>;
type Gauges<const N: usize> = Family<[Label; N], Gauge>;
type Histograms<const N: usize> = Family<[Label; N], Histogram, Buckets>;

/// Histogram buckets: the first upper bound, and the number of bounds, each twice the one before.
#[derive(Clone, Copy)]
struct Buckets(f64, u16);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(self.0, 2.0, self.1))
    }
}

pub struct Metrics {
    registry: Registry,
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
    ttl_deletions: Histogram,
    queue_depth: Gauges<1>,
    uncounted: Gauge,
    gate_waits: Counter,
    status_writes: Counter,
    invalid_statuses: Counter,
    requests: Counters<3>,
    request_durations: Histograms<2>,
    in_flight: Gauges<1>,
    synced: Gauges<2>,
    stream_restarts: Counters<3>,
    events_dropped: Counters<1>,
    leader: Gauges<1>,
    reachable: Gauge,
    /// The values of `controller_name` seen so far.
    managers: Mutex<BTreeSet<String>>,
}

fn fixed<const N: usize>(labels: [(&'static str, &'static str); N]) -> [Label; N] {
    labels.map(|(name, value)| (name, Cow::Borrowed(value)))
}

fn mode(indexed: bool) -> &'static str {
    if indexed { "Indexed" } else { "NonIndexed" }
}

fn result(succeeded: bool) -> &'static str {
    if succeeded { "succeeded" } else { "failed" }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let mut metrics = Self {
            registry: Registry::default(),
            syncs: Family::default(),
            sync_durations: Family::new_with_constructor(Buckets(0.004, 15)),
            jobs_finished: Family::default(),
            external_jobs: Family::default(),
            pods_finished: Family::default(),
            indexes_finished: Family::default(),
            failures_handled: Family::default(),
            pods_created: Family::default(),
            tracked: Family::default(),
            stale_skips: Family::default(),
            ttl_deletions: Buckets(0.1, 14).new_metric(),
            queue_depth: Family::default(),
            uncounted: Gauge::default(),
            gate_waits: Counter::default(),
            status_writes: Counter::default(),
            invalid_statuses: Counter::default(),
            requests: Family::default(),
            request_durations: Family::new_with_constructor(Buckets(0.001, 15)),
            in_flight: Family::default(),
            synced: Family::default(),
            stream_restarts: Family::default(),
            events_dropped: Family::default(),
            leader: Family::default(),
            reachable: Gauge::default(),
            managers: Mutex::default(),
        };
        // The library adds `_total` to the names of counters, and a full stop to the help.
        let job = registry.sub_registry_with_prefix("job_controller");
        job.register(
            "job_sync_duration_seconds",
            "Time to reconcile a Job; requests are measured separately",
            metrics.sync_durations.clone(),
        );
        job.register("job_syncs", "Reconciliations of Jobs", metrics.syncs.clone());
        job.register("jobs_finished", "Jobs that finished", metrics.jobs_finished.clone());
        job.register(
            "jobs_by_external_controller",
            "Jobs that another controller manages",
            metrics.external_jobs.clone(),
        );
        job.register("job_pods_finished", "Finished Pods that were counted", metrics.pods_finished.clone());
        job.register("job_finished_indexes", "Completion indexes that finished", metrics.indexes_finished.clone());
        job.register(
            "pod_failures_handled_by_failure_policy",
            "Failed Pods that a rule of a failure policy matched",
            metrics.failures_handled.clone(),
        );
        job.register("job_pods_creation", "Attempts to create Pods", metrics.pods_created.clone());
        job.register(
            "terminated_pods_tracking_finalizer",
            "Finished Pods that got or lost the tracking finalizer",
            metrics.tracked.clone(),
        );
        job.register(
            "stale_sync_skips",
            "Reconciliations skipped because the object cache was stale",
            metrics.stale_skips.clone(),
        );
        registry.register(
            "ttl_after_finished_controller_job_deletion_duration_seconds",
            "Time from the expiry of a finished Job to its deletion",
            metrics.ttl_deletions.clone(),
        );
        registry.register("workqueue_depth", "Requests waiting to be sent", metrics.queue_depth.clone());
        registry.register("leader_election_master_status", "1 if this process leads, 0 if not", metrics.leader.clone());
        let own = registry.sub_registry_with_prefix("tally");
        own.register(
            "uncounted_pods",
            "Finished Pods that still carry the tracking finalizer: not counted, or not yet released",
            metrics.uncounted.clone(),
        );
        own.register(
            "gate_waits",
            "Times the accounting of a Job waited for its Pods to be observed",
            metrics.gate_waits.clone(),
        );
        own.register("job_status_writes", "Successful writes of the status of Jobs", metrics.status_writes.clone());
        own.register(
            "invalid_statuses",
            "Statuses that were not sent because they violate the rules of the API: each is a bug in Tally",
            metrics.invalid_statuses.clone(),
        );
        own.register(
            "requests",
            "Requests to the API server that were answered or abandoned",
            metrics.requests.clone(),
        );
        own.register("request_duration_seconds", "Duration of requests", metrics.request_durations.clone());
        own.register("requests_in_flight", "In-flight requests", metrics.in_flight.clone());
        own.register("stream_synced", "1 if the initial list has been observed completely", metrics.synced.clone());
        own.register("stream_restarts", "Watches that broke and were restarted", metrics.stream_restarts.clone());
        own.register(
            "events_dropped",
            "Events that were dropped because there were too many at once",
            metrics.events_dropped.clone(),
        );
        own.register("api_server_reachable", "1 if the API server is reachable, 0 if not", metrics.reachable.clone());
        let build = Gauges::<1>::default();
        build.get_or_create(&fixed([("version", env!("CARGO_PKG_VERSION"))])).set(1);
        own.register("build_info", "The version of this process", build);
        metrics.registry = registry;
        metrics
    }
}

impl Observer for Metrics {
    fn metric(&self, _controller: &'static str, metric: &Metric, decided_in: Duration) {
        match metric {
            Metric::Sync { indexed, action, error } => {
                let action = match action {
                    SyncAction::Reconciling => "reconciling",
                    SyncAction::Tracking => "tracking",
                    SyncAction::PodsCreated => "pods_created",
                    SyncAction::PodsDeleted => "pods_deleted",
                };
                let result = if *error { "error" } else { "success" };
                let labels = fixed([("completion_mode", mode(*indexed)), ("result", result), ("action", action)]);
                self.syncs.get_or_create(&labels).inc();
                self.sync_durations.get_or_create(&labels).observe(decided_in.as_secs_f64());
            }
            Metric::JobFinished { indexed, succeeded, reason } => {
                let reason = Cow::Owned(reason.to_string());
                let [mode, result] = fixed([("completion_mode", mode(*indexed)), ("result", result(*succeeded))]);
                self.jobs_finished.get_or_create(&[mode, result, ("reason", reason)]).inc();
            }
            Metric::ExternalJob { manager } => {
                self.external_jobs.get_or_create(&[("controller_name", self.manager(manager))]).inc();
            }
            Metric::PodsFinished { indexed, succeeded, by } => {
                let labels = fixed([("completion_mode", mode(*indexed)), ("result", result(*succeeded))]);
                self.pods_finished.get_or_create(&labels).inc_by(*by);
            }
            Metric::IndexesFinished { succeeded, per_index, by } => {
                let limit = if *per_index { "perIndex" } else { "global" };
                let labels = fixed([("status", result(*succeeded)), ("backoffLimit", limit)]);
                self.indexes_finished.get_or_create(&labels).inc_by(*by);
            }
            Metric::FailureHandled { action } => {
                self.failures_handled.get_or_create(&fixed([("action", *action)])).inc();
            }
            Metric::PodCreated { reason, succeeded } => {
                let labels = fixed([("reason", *reason), ("status", result(*succeeded))]);
                self.pods_created.get_or_create(&labels).inc();
            }
            Metric::TerminatedPodTracked { added } => {
                let event = if *added { "add" } else { "delete" };
                self.tracked.get_or_create(&fixed([("event", event)])).inc();
                if *added {
                    self.uncounted.inc()
                } else {
                    self.uncounted.dec()
                };
            }
            Metric::GateClosed => {
                self.stale_skips.get_or_create(&fixed([("group", ""), ("resource", "pods")])).inc();
                self.gate_waits.inc();
            }
            Metric::InvalidStatus => {
                self.invalid_statuses.inc();
            }
            Metric::TtlDeletion { after_millis } => self.ttl_deletions.observe(*after_millis as f64 / 1000.0),
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
        let resource: Cow<'static, str> = match call.subresource {
            "" => call.kind.plural.into(),
            subresource => format!("{}/{subresource}", call.kind.plural).into(),
        };
        let code: Cow<'static, str> = match reply {
            Reply::Refused(refusal) => refusal.code.to_string().into(),
            Reply::Unknown => "unknown".into(),
            Reply::Done(_) | Reply::DoneWithStatus | Reply::Listed { .. } => "2xx".into(),
        };
        if resource == "jobs/status" && reply.is_done() {
            self.status_writes.inc();
        }
        let (verb, resource) = (("verb", verb.into()), ("resource", resource));
        self.request_durations.get_or_create(&[verb.clone(), resource.clone()]).observe(took.as_secs_f64());
        self.requests.get_or_create(&[verb, resource, ("code", code)]).inc();
    }

    fn load(&self, controller: &'static str, waiting: usize, in_flight: usize) {
        // The queue names of the Kubernetes controllers.
        let queue = match controller {
            "job-controller" => "job",
            "ttl-after-finished-controller" => "ttl_jobs_to_delete",
            other => other,
        };
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.queue_depth.get_or_create(&fixed([("name", queue)])).set(number(waiting));
        self.in_flight.get_or_create(&fixed([("controller", controller)])).set(number(in_flight));
    }

    fn synced(&self, controller: &'static str, stream: Stream) {
        let labels = fixed([("controller", controller), ("resource", stream.kind.plural)]);
        self.synced.get_or_create(&labels).set(1);
    }

    fn stream_broken(&self, controller: &'static str, stream: Stream, trouble: &WatchError) {
        let reason = match trouble {
            WatchError::TooOld => "too_old",
            WatchError::Refused(_) => "refused",
            WatchError::Broken(_) => "broken",
        };
        let labels = fixed([("controller", controller), ("resource", stream.kind.plural), ("reason", reason)]);
        self.stream_restarts.get_or_create(&labels).inc();
    }

    fn event_dropped(&self, controller: &'static str) {
        self.events_dropped.get_or_create(&fixed([("controller", controller)])).inc();
    }
}

impl Metrics {
    /// `lease`: the name of the Lease.
    pub fn leads(&self, lease: &str, leads: bool) {
        self.leader.get_or_create(&[("name", Cow::Owned(lease.to_owned()))]).set(i64::from(leads));
    }

    pub fn reachable(&self, reachable: bool) {
        self.reachable.set(i64::from(reachable));
    }

    /// The OpenMetrics format, which scrapers request by its content type.
    pub fn openmetrics(&self) -> String {
        let mut text = self.encode();
        let _ = encode_eof(&mut text);
        text
    }

    /// The classic text format, which every scraper reads. More metrics may be appended to it.
    pub fn classic(&self) -> String {
        let text = self.encode();
        let mut out = String::with_capacity(text.len());
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            // In this format the HELP and TYPE lines of a counter have the same name as its samples.
            let described = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "));
            let name = described.and_then(|described| described.split(' ').next());
            let counter = |line: &str, name: &str| line.strip_prefix("# TYPE ") == Some(&format!("{name} counter"));
            match name {
                Some(name) if counter(line, name) || lines.peek().is_some_and(|next| counter(next, name)) => {
                    out.push_str(&line.replacen(name, &format!("{name}_total"), 1));
                }
                _ => out.push_str(line),
            }
            out.push('\n');
        }
        out
    }

    fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode_registry(&mut text, &self.registry);
        process(&mut text);
        text
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
fn process(text: &mut String) {
    let mut gauge = |name: &str, help: &str, value: String| {
        text.push_str(&format!("# HELP {name} {help}.\n# TYPE {name} gauge\n{name} {value}\n"));
    };
    if let Some(memory) = resident_bytes() {
        gauge("process_resident_memory_bytes", "Resident memory in bytes", memory.to_string());
    }
    if let Some(seconds) = cpu_seconds() {
        let (name, help) = ("process_cpu_seconds", "CPU time used in seconds");
        text.push_str(&format!("# HELP {name} {help}.\n# TYPE {name} counter\n{name}_total {seconds}\n"));
    }
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

    /// Names and labels of the specification, with Tally's own beside them.
    /// METRIC-1, METRIC-2, METRIC-3, METRIC-4, METRIC-5, METRIC-6, METRIC-7, METRIC-8, METRIC-9, METRIC-10, METRIC-11,
    /// METRIC-12.
    #[test]
    fn names_and_labels_are_those_of_the_reference() {
        let metrics = Metrics::default();
        let (pods, jobs) = (Stream::of(Kind::POD), Stream::of(Kind::JOB));
        for metric in [
            Metric::Sync { indexed: true, action: SyncAction::PodsCreated, error: false },
            Metric::JobFinished { indexed: false, succeeded: false, reason: "BackoffLimitExceeded".into() },
            Metric::ExternalJob { manager: "example.com/other".into() },
            Metric::PodsFinished { indexed: true, succeeded: true, by: 3 },
            Metric::IndexesFinished { succeeded: true, per_index: true, by: 2 },
            Metric::FailureHandled { action: "FailIndex" },
            Metric::PodCreated { reason: "recreate_failed", succeeded: false },
            Metric::TerminatedPodTracked { added: true },
            Metric::TerminatedPodTracked { added: true },
            Metric::TerminatedPodTracked { added: false },
            Metric::GateClosed,
            Metric::TtlDeletion { after_millis: 250 },
        ] {
            metrics.metric("job-controller", &metric, Duration::from_millis(5));
        }
        let write = Call::new(Verb::MergePatch, Kind::JOB, "ns", "j").subresource("status");
        metrics.request(&write, &Reply::DoneWithStatus, Duration::from_millis(3));
        let refused = Reply::Refused(Refusal { code: 409, ..Refusal::default() });
        metrics.request(&write, &refused, Duration::from_millis(3));
        metrics.load("job-controller", 7, 2);
        metrics.synced("job-controller", pods);
        metrics.stream_broken("job-controller", jobs, &WatchError::TooOld);
        metrics.event_dropped("job-controller");
        metrics.leads("tally-job-controller", true);
        let (text, classic) = (metrics.openmetrics(), metrics.classic());
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
            r#"workqueue_depth{name="job"} 7"#,
            r#"leader_election_master_status{name="tally-job-controller"} 1"#,
            "tally_uncounted_pods 1",
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
        let metrics = Metrics::default();
        for number in 0..CHOSEN_VALUES + 50 {
            let manager = format!("example.com/m{number}").into();
            metrics.metric("job-controller", &Metric::ExternalJob { manager }, Duration::ZERO);
        }
        let text = metrics.classic();
        assert_eq!(text.matches("controller_name=").count(), CHOSEN_VALUES + 1);
        assert!(text.contains(r#"controller_name="other"} 50"#), "{text}");
    }
}
