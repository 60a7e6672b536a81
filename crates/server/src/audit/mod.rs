//! The audit log: for each request who sent it, what it was about, whether it was allowed, and the code of the response.
//!
//! An event is a line of JSON with the fields of `audit.k8s.io/v1`. A policy (`policy.rs`) decides which requests are
//! recorded. The bodies of requests and responses are never recorded, so no Secret or token can be in the log. A request
//! never waits for the log: events go into a bounded queue, from which a thread writes them into a file (`file.rs`). If
//! the disk is full, or slower than the requests are, events are lost, counted (`apiserver_audit_error_total`) and reported.

mod file;
pub mod policy;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use hyper::header::{HeaderMap, USER_AGENT};
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use tally_api::options::AuditNotes;
use tally_api::rbac::{AccessRequest, AccessTarget};
use tally_metrics::{Counters, MetricRegistry};
use tally_value::{Value, json};

use crate::auth::User;
use crate::auth::authorizer::Verdict;
use file::RotatingFile;
use policy::{AuditPolicy, AuditStage, AuditTerms};

/// Events that wait to be written. One is about a kilobyte.
const LONGEST_QUEUE: usize = 10_000;
/// Events are written together, up to this size.
const BATCH: usize = 256 * 1024;
/// How long the end of the process may wait for the queue to be written.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);
/// That the queue was full is reported no more often.
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// The rest of a longer text of a request is left out: its User-Agent, its verb, the parts of its path.
const LONGEST_TEXT: usize = 1_024;
/// The same for its URI, and for the message of the response, which may quote it.
const LONGEST_URI: usize = 4_096;
/// The part of a file, and of what follows a start, that unauthenticated requests may fill. Any client can send them:
/// alone they never fill a file, so that they cannot remove what others have done from the log.
const UNKNOWN_SHARE: u64 = 10;

/// Where the log is, and how much of it is kept.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    pub path: PathBuf,
    /// The file is rotated before it becomes larger.
    pub max_bytes: u64,
    /// Rotated files that are kept. 0: all.
    pub max_backups: usize,
    pub policy: AuditPolicy,
}

/// Tells the operator about trouble with the log.
pub type AuditReport = Box<dyn Fn(String) + Send>;

pub struct AuditLog {
    policy: AuditPolicy,
    /// None once it is closed.
    queue: Mutex<Option<SyncSender<Vec<u8>>>>,
    /// Ready when everything is written.
    written: Mutex<Receiver<()>>,
    counts: Arc<AuditCounts>,
    /// Bytes of a file that unauthenticated requests may fill.
    most_unknown: u64,
}

#[derive(Default)]
struct AuditCounts {
    metrics: OnceLock<AuditMetrics>,
    /// Events for which the queue had no room.
    no_room: AtomicU64,
    /// Bytes of unauthenticated requests in the current file.
    unknown: AtomicU64,
    /// Unauthenticated requests that are not recorded, because others have filled their part of the file.
    omitted: AtomicU64,
}

struct AuditMetrics {
    events: Counters<0>,
    errors: Counters<1>,
    omitted: Counters<0>,
}

impl AuditCounts {
    fn lost(&self, count: u64) {
        if let Some(metrics) = self.metrics.get() {
            metrics.errors.add(["log".into()], count);
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("cannot open the audit log {path}")]
    Open { path: PathBuf, source: std::io::Error },
    #[error("cannot start a thread for the audit log")]
    Thread(#[source] std::io::Error),
}

impl AuditLog {
    /// Opens the file and starts the thread that writes it.
    pub fn open(options: AuditOptions, report: AuditReport) -> Result<Arc<Self>, AuditError> {
        let AuditOptions { path, max_bytes, max_backups, policy } = options;
        let file = RotatingFile::open(&path, max_bytes, max_backups)
            .map_err(|source| AuditError::Open { path: path.clone(), source })?;
        // What is not rotated loses nothing.
        let most_unknown = if file.is_rotated() { max_bytes / UNKNOWN_SHARE } else { u64::MAX };
        let (queue, events) = sync_channel(LONGEST_QUEUE);
        let (done, written) = channel();
        let counts = Arc::new(AuditCounts::default());
        let (no_room, omitted) = (Reported::default(), Reported::default());
        let writer = AuditWriter { file, path, counts: counts.clone(), report, lost: 0, no_room, omitted };
        let work = move || {
            writer.run(&events);
            // The receiver is gone if the process did not wait.
            let _ = done.send(());
        };
        std::thread::Builder::new().name("audit-log".to_owned()).spawn(work).map_err(AuditError::Thread)?;
        let (queue, written) = (Mutex::new(Some(queue)), Mutex::new(written));
        Ok(Arc::new(Self { policy, queue, written, counts, most_unknown }))
    }

    pub fn register(&self, metrics: &MetricRegistry) {
        let events = metrics.counters("apiserver_audit_event", "Audit events written", []);
        let errors = metrics.counters("apiserver_audit_error", "Audit events lost", ["plugin"]);
        errors.add(["log".into()], 0);
        let omitted = metrics.counters(
            "tally_audit_omitted",
            "Unauthenticated requests without an audit event, because others have filled their part of the log",
            [],
        );
        omitted.add([], 0);
        let _ = self.counts.metrics.set(AuditMetrics { events, errors, omitted });
    }

    /// Writes what is in the queue. Later events are lost.
    pub fn close(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let _ = self.written.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(CLOSE_WITHIN);
    }

    /// Whether an unauthenticated request can be recorded. If not, it is counted.
    fn has_room_for_unknown(&self) -> bool {
        let has_room = self.counts.unknown.load(Ordering::Relaxed) < self.most_unknown;
        if !has_room {
            self.counts.omitted.fetch_add(1, Ordering::Relaxed);
            if let Some(metrics) = self.counts.metrics.get() {
                metrics.omitted.add([], 1);
            }
        }
        has_room
    }

    fn record(&self, mut line: Vec<u8>, is_unknown: bool) {
        line.push(b'\n');
        if is_unknown {
            self.counts.unknown.fetch_add(line.len() as u64, Ordering::Relaxed);
        }
        let sent = match &*self.queue.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(queue) => queue.try_send(line),
            None => Err(TrySendError::Disconnected(line)),
        };
        if sent.is_err() {
            self.counts.lost(1);
            self.counts.no_room.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The thread that writes.
struct AuditWriter {
    file: RotatingFile,
    path: PathBuf,
    counts: Arc<AuditCounts>,
    report: AuditReport,
    /// Events lost since the file could last be written.
    lost: u64,
    no_room: Reported,
    omitted: Reported,
}

/// How many events of a kind were reported, and when.
#[derive(Default)]
struct Reported {
    count: u64,
    at: Option<Instant>,
}

impl Reported {
    /// How many there are to report now.
    fn due(&mut self, count: &AtomicU64) -> Option<u64> {
        let count = count.load(Ordering::Relaxed);
        let is_due = count > self.count && self.at.is_none_or(|at| at.elapsed() >= REPORT_EVERY);
        is_due.then(|| {
            let before = std::mem::replace(self, Self { count, at: Some(Instant::now()) });
            count - before.count
        })
    }
}

impl AuditWriter {
    fn run(mut self, events: &Receiver<Vec<u8>>) {
        loop {
            let mut batch = match events.recv_timeout(REPORT_EVERY) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => {
                    self.report_missing();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return self.report_missing(),
            };
            let mut count = 1;
            while batch.len() < BATCH
                && let Ok(event) = events.try_recv()
            {
                batch.extend_from_slice(&event);
                count += 1;
            }
            self.write(&batch, count);
            self.report_missing();
        }
    }

    fn write(&mut self, batch: &[u8], count: u64) {
        let path = self.path.display();
        match self.file.write(batch) {
            Ok(()) => {
                if self.file.has_begun_again() {
                    self.counts.unknown.store(0, Ordering::Relaxed);
                }
                if let Some(metrics) = self.counts.metrics.get() {
                    metrics.events.add([], count);
                }
                let lost = std::mem::take(&mut self.lost);
                if lost > 0 {
                    (self.report)(format!("the audit log {path} can be written again; {lost} events were lost"));
                }
            }
            Err(error) => {
                if self.lost == 0 {
                    (self.report)(format!(
                        "cannot write the audit log {path}: {error}; events are lost until this is repaired, requests are \
                         served"
                    ));
                }
                self.lost += count;
                self.counts.lost(count);
            }
        }
    }

    fn report_missing(&mut self) {
        let path = self.path.display();
        if let Some(lost) = self.no_room.due(&self.counts.no_room) {
            (self.report)(format!(
                "the audit log {path} is written more slowly than requests arrive; {lost} events were lost"
            ));
        }
        if let Some(omitted) = self.omitted.due(&self.counts.omitted) {
            (self.report)(format!(
                "unauthenticated requests have filled their part of the audit log {path}; {omitted} were not recorded"
            ));
        }
    }
}

/// What is recorded about one request, as it becomes known. When it is dropped, the request is complete.
pub struct AuditEvent {
    log: Arc<AuditLog>,
    id: String,
    uri: String,
    address: Option<IpAddr>,
    user_agent: String,
    received_at: jiff::Timestamp,
    sender: Option<Arc<User>>,
    impersonated: Option<Arc<User>>,
    terms: AuditTerms,
    api_version: &'static str,
    decision: Option<Verdict>,
    /// Name and UID of an object whose name was not in the path.
    created: OnceLock<(String, String)>,
    response: Option<ResponseSummary>,
    /// What admission found.
    pub notes: AuditNotes,
}

/// The outcome of a request.
#[derive(Clone, Debug, Default)]
pub struct ResponseSummary {
    pub code: u16,
    /// Of a failure, its reason and message.
    pub failure: Option<FailureSummary>,
}

/// Left in the extensions of a response that is a failure.
#[derive(Clone, Debug)]
pub struct FailureSummary {
    pub reason: &'static str,
    pub message: String,
}

impl AuditEvent {
    pub fn new(log: &Arc<AuditLog>, id: &str, parts: &Parts, address: Option<IpAddr>) -> Self {
        Self {
            log: log.clone(),
            id: limited(id, LONGEST_TEXT),
            uri: limited(parts.uri.path_and_query().map_or(parts.uri.path(), PathAndQuery::as_str), LONGEST_URI),
            address,
            user_agent: user_agent(&parts.headers),
            received_at: jiff::Timestamp::now(),
            sender: None,
            impersonated: None,
            terms: AuditTerms {
                verb: parts.method.as_str().to_lowercase(),
                path: parts.uri.path().to_owned(),
                resource: None,
            },
            api_version: "",
            decision: None,
            created: OnceLock::new(),
            response: None,
            notes: AuditNotes::default(),
        }
    }

    pub fn sent_by(&mut self, sender: &Arc<User>) {
        self.sender = Some(sender.clone());
    }

    pub fn impersonates(&mut self, user: &Arc<User>) {
        self.impersonated = Some(user.clone());
    }

    /// What the request is about. `api_version`: the version of the resource, without its group.
    pub fn requests(&mut self, access: &AccessRequest<'_>, api_version: &'static str) {
        self.terms.verb = access.verb.to_owned();
        self.api_version = api_version;
        if let AccessTarget::Resource(attributes) = access.target {
            self.terms.resource = Some(attributes.into());
        }
    }

    pub fn decided(&mut self, verdict: Verdict) {
        self.decision = Some(verdict);
    }

    /// A create has stored an object.
    pub fn created(&self, name: &str, uid: &str) {
        let _ = self.created.set((name.to_owned(), uid.to_owned()));
    }

    pub fn answered(&mut self, response: ResponseSummary) {
        self.response = Some(response);
    }

    /// Records that a long response has begun.
    pub fn started(&self) {
        self.record(AuditStage::ResponseStarted);
    }

    fn record(&self, stage: AuditStage) {
        let anonymous = Arc::new(User { name: String::new(), uid: String::new(), groups: Vec::new() });
        let user = self.sender.as_ref().unwrap_or(&anonymous);
        let is_unknown = self.sender.as_ref().is_none_or(|sender| **sender == User::anonymous());
        if self.log.policy.records(&self.terms, user, stage) && (!is_unknown || self.log.has_room_for_unknown()) {
            self.log.record(self.to_json(user, stage).to_string().into_bytes(), is_unknown);
        }
    }

    fn to_json(&self, user: &User, stage: AuditStage) -> Value {
        let mut event = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": self.id,
            "stage": stage.name(), "requestURI": self.uri, "verb": limited(&self.terms.verb, LONGEST_TEXT), "user": user_json(user),
            "requestReceivedTimestamp": written(self.received_at), "stageTimestamp": written(jiff::Timestamp::now()),
        });
        if let Some(user) = &self.impersonated {
            event["impersonatedUser"] = user_json(user);
        }
        if let Some(address) = self.address {
            event["sourceIPs"] = json!([address.to_canonical().to_string()]);
        }
        if !self.user_agent.is_empty() {
            event["userAgent"] = self.user_agent.as_str().into();
        }
        if let Some(resource) = &self.terms.resource {
            let created = self.created.get().map_or(("", ""), |(name, uid)| (name, uid));
            let name = if resource.name.is_empty() { created.0 } else { &resource.name };
            let fields = [
                ("resource", resource.resource.as_str()),
                ("namespace", &resource.namespace),
                ("name", name),
                ("uid", created.1),
                ("apiGroup", &resource.group),
                ("apiVersion", self.api_version),
                ("subresource", &resource.subresource),
            ];
            event["objectRef"] = json!({});
            for (field, text) in fields.into_iter().filter(|(_, text)| !text.is_empty()) {
                event["objectRef"][field] = limited(text, LONGEST_TEXT).into();
            }
        }
        if let Some(response) = &self.response {
            event["responseStatus"] = json!({"metadata": {}, "code": response.code});
            if let Some(failure) = &response.failure {
                let status = &mut event["responseStatus"];
                status["status"] = "Failure".into();
                if !failure.reason.is_empty() {
                    status["reason"] = failure.reason.into();
                }
                // A message may quote values of the request.
                if !self.terms.is_confidential() {
                    status["message"] = limited(&failure.message, LONGEST_URI).into();
                }
            }
        }
        if let Some(verdict) = &self.decision {
            let (decision, reason) = match verdict {
                Verdict::Allowed { reason } => ("allow", reason),
                Verdict::Denied { reason } => ("forbid", reason),
            };
            event["annotations"] =
                json!({"authorization.k8s.io/decision": decision, "authorization.k8s.io/reason": reason});
        }
        for (name, text) in self.notes.get() {
            event["annotations"][name] = text.into();
        }
        event
    }
}

impl Drop for AuditEvent {
    fn drop(&mut self) {
        let stage = if std::thread::panicking() { AuditStage::Panic } else { AuditStage::ResponseComplete };
        self.record(stage);
    }
}

fn user_json(user: &User) -> Value {
    let mut json = json!({"username": user.name});
    if !user.uid.is_empty() {
        json["uid"] = user.uid.as_str().into();
    }
    if !user.groups.is_empty() {
        json["groups"] = json!(user.groups);
    }
    json
}

fn user_agent(headers: &HeaderMap) -> String {
    let agent =
        headers.get(USER_AGENT).map_or_else(Default::default, |agent| String::from_utf8_lossy(agent.as_bytes()));
    limited(&agent, LONGEST_TEXT)
}

fn limited(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}...TRUNCATED", &text[..end]),
        None => text.to_owned(),
    }
}

/// Microseconds, as Kubernetes writes the times of events.
fn written(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn lost(metrics: &MetricRegistry) -> usize {
        let page = metrics.classic();
        let line = page.lines().find_map(|line| line.strip_prefix("apiserver_audit_error_total{plugin=\"log\"} "));
        line.unwrap().parse().unwrap()
    }

    /// AUDIT-6.
    #[test]
    fn a_log_that_cannot_be_written_costs_events_and_never_stops_a_request() {
        let (resume, stuck) = channel::<()>();
        let (said, told) = channel();
        // The thread that writes stands still in its first report.
        let report = move |trouble: String| {
            said.send(trouble).unwrap();
            let _ = stuck.recv();
        };
        let options =
            AuditOptions { path: "/dev/full".into(), max_bytes: 1_000, max_backups: 1, policy: AuditPolicy::default() };
        let log = AuditLog::open(options, Box::new(report)).unwrap();
        let metrics = MetricRegistry::default();
        log.register(&metrics);
        let event = vec![b'x'; BATCH / 32];
        for _ in 0..LONGEST_QUEUE + 1_000 {
            log.record(event.clone(), false);
        }
        assert!(lost(&metrics) >= 1_000 - 2 * 32, "{} events were lost", lost(&metrics));
        let trouble = told.recv().unwrap();
        assert!(trouble.starts_with("cannot write the audit log /dev/full: "), "{trouble}");
        drop(resume);
        log.close();
        assert_eq!(lost(&metrics), LONGEST_QUEUE + 1_000);
        log.record(event, false);
        assert_eq!(lost(&metrics), LONGEST_QUEUE + 1_001, "after the end");
    }

    fn of_unknown(log: &Arc<AuditLog>, uri: &str) {
        let (parts, ()) = hyper::Request::post(uri).header(USER_AGENT, "x").body(()).unwrap().into_parts();
        let mut event = AuditEvent::new(log, "id", &parts, None);
        event.answered(ResponseSummary { code: 401, failure: None });
    }

    /// AUDIT-7.
    #[test]
    fn unauthenticated_requests_fill_a_part_of_a_file_and_never_begin_another() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let max_bytes = 100_000;
        let options = AuditOptions { path: path.clone(), max_bytes, max_backups: 2, policy: AuditPolicy::default() };
        let (said, told) = channel();
        let log = AuditLog::open(options, Box::new(move |trouble| said.send(trouble).unwrap())).unwrap();
        let metrics = MetricRegistry::default();
        log.register(&metrics);
        let known = |name: &str| {
            log.record(format!("{{\"of\": \"alice\", \"name\": \"{name}\"}}").into_bytes(), false);
        };
        known("first");
        for _ in 0..300 {
            of_unknown(&log, &format!("/{}", "a".repeat(60_000)));
        }
        known("last");
        log.close();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "the log was not rotated");
        assert!(text.contains("\"first\"") && text.contains("\"last\""), "what others did is there");
        assert!(text.len() < max_bytes as usize / 5, "{} bytes", text.len());
        let recorded = text.lines().filter(|line| line.contains("...TRUNCATED")).count();
        assert!(recorded > 0 && text.lines().all(|line| line.len() < 3 * LONGEST_URI), "long URIs are cut");
        let omitted = format!("tally_audit_omitted_total {}", 300 - recorded);
        assert!(metrics.classic().contains(&omitted), "{omitted}: {}", metrics.classic());
        assert!(told.recv().unwrap().contains("unauthenticated requests have filled their part of the audit log"));
    }

    /// AUDIT-7.
    #[test]
    fn another_file_has_room_for_unauthenticated_requests_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let options =
            AuditOptions { path: path.clone(), max_bytes: 10_000, max_backups: 0, policy: AuditPolicy::default() };
        let log = AuditLog::open(options, Box::new(drop)).unwrap();
        while log.has_room_for_unknown() {
            of_unknown(&log, "/x");
        }
        // Written one by one: a file is rotated between two writes.
        while !log.has_room_for_unknown() {
            log.record(vec![b'y'; 1_000], false);
            std::thread::yield_now();
        }
        log.close();
        assert!(std::fs::read_dir(directory.path()).unwrap().count() > 1, "another file was begun");
    }
}
