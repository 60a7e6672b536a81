//! A small cluster without faults of its own: the production controllers, the simulator's API, and a test that decides
//! what is delivered to which replica and when. Deterministic; time passes only when a test says so.
//!
//! Jobs are written `P2 C5 BL0 indexed`, Pods `0:R+ 1:S`, and the results `create 1; release 1; active 2 succeeded 1`.
//! The grammar is at `job_text` and `Cluster::pods`.
// Each test file uses a part of this; and a wrongly written test may panic.
#![allow(dead_code, unreachable_pub, clippy::expect_used, reason = "each test uses a part of it")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use tally_controllers::job::{Config, JobController};
use tally_controllers::ttl::TtlController;
use tally_core::ids::{PodUid, Revision};
use tally_core::indexes::IndexSet;
use tally_core::job::{JobStatus, JobView};
use tally_core::ledger::Limits;
use tally_core::pod::{ControllerRef, Exit, Phase, PodView};
use tally_core::time::{Span, Timestamp};
use tally_runtime::controller::{Call, Controller, Event, Input, Kind, Metric, Outbox, Refusal, Reply, Request};
use tally_runtime::response::interpret;
use tally_sim::action::{Action, PodChange};
use tally_sim::api::{Actor, Api, Key, Propagation, plain_pod};

/// 2023-11-14T22:13:20Z.
pub const START: Timestamp = Timestamp::from_seconds(1_700_000_000);
/// The time that `settle` lets pass: enough for the pacing of writes, too little for any retry, back-off or deadline.
const PACING: Span = Span::from_millis(500);
/// A test that needs more rounds than this hangs.
const ROUNDS: usize = 200_000;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Carried,
    /// A definite refusal, as from a webhook or a quota.
    Refused,
    Unavailable,
    /// Never arrives; the sender does not know.
    Lost,
    /// Carried out; the sender does not know.
    ReplyLost,
    /// Still in flight.
    Held,
    /// Carried out; the response comes when the test says so.
    AnsweredLate,
    /// A 404 that is not the API server's own; nothing is carried out.
    NotFound,
    /// Carried out, and answered 500 (etcdserver: request timed out).
    AppliedError,
    /// Not carried out, and answered 500: the sender cannot know.
    ServerError,
}

pub struct Performed {
    pub replica: usize,
    pub action: Action,
    pub carried: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Job,
    Ttl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    Jobs,
    Pods,
}

impl Resource {
    pub fn kind(self) -> Kind {
        match self {
            Self::Jobs => Kind::JOB,
            Self::Pods => Kind::POD,
        }
    }
}

/// One process that runs both controllers.
pub struct Replica {
    pub controller: JobController,
    ttl: TtlController,
    /// How much of each log has been delivered to it.
    pub cursors: [usize; 2],
    flights: Vec<(Source, Request)>,
    wakes: [Option<Timestamp>; 2],
    pub clock: Span,
    pub paused: bool,
    /// Streams that deliver nothing: Jobs, Pods.
    pub deaf: [bool; 2],
}

type Hook = Box<dyn FnMut(&Action) -> Fate>;

pub struct Cluster {
    pub api: Api,
    pub replicas: Vec<Replica>,
    pub limits: Limits,
    /// Of the controllers that start from now on: TTL-23.
    pub gates_pods: bool,
    pub hook: Hook,
    pub performed: Vec<Performed>,
    pub events: Vec<Event>,
    pub metrics: Vec<Metric>,
    late: Vec<(usize, Source, Input)>,
    unnamed: usize,
}

pub fn key(name: &str) -> Key {
    ("ns".into(), name.into())
}

/// A named Pod's UID is its name, so that status texts can be written before the Pod exists.
pub fn uid(name: &str) -> PodUid {
    assert!(name.len() <= 15, "{name} does not fit a UID");
    PodUid::from_u128(name.bytes().fold(0xa, |number, byte| number << 8 | u128::from(byte)))
}

/// `{"succeeded":["<uid of a>"],"failed":[]}` from `("a", "")`.
pub fn uncounted(succeeded: &str, failed: &str) -> String {
    let list =
        |names: &str| names.split_whitespace().map(|name| format!("\"{}\"", uid(name))).collect::<Vec<_>>().join(",");
    format!("{{\"succeeded\":[{}],\"failed\":[{}]}}", list(succeeded), list(failed))
}

/// Of `P2 C5 BL6 BLPI1 MAXF0 D10 TTL5`, `C-` for no completions, `indexed`, `suspend`, `OnFailure`, `replace=Failed`,
/// `FailJob=3` (also FailIndex, Count, Ignore; a word instead of a code is a Pod condition), `success=2`,
/// `managedBy=x`, `mode=Odd`, `emptypolicy`, `label=x` (selects by a label set by the user), `backoff-base=1s` (also
/// backoff-max, backoff-jitter, halt, delete-finished-pods: annotations).
pub fn job_text(uid: &str, name: &str, namespace: &str, notation: &str, status: &str) -> String {
    let mut spec = Vec::new();
    let mut rules = Vec::new();
    let mut annotations = Vec::new();
    let mut policy = false;
    let mut restart = "Never";
    let mut label = format!("\"batch.kubernetes.io/controller-uid\":\"{uid}\"");
    for token in notation.split_whitespace() {
        let number = |prefix: &str| token.strip_prefix(prefix).and_then(|rest| rest.parse::<i64>().ok());
        let text = |prefix: &str| token.strip_prefix(prefix);
        if let Some((action, what)) =
            token.split_once('=').filter(|(word, _)| ["FailJob", "FailIndex", "Count", "Ignore"].contains(word))
        {
            rules.push(match what.parse::<i32>() {
                Ok(code) => {
                    format!("{{\"action\":\"{action}\",\"onExitCodes\":{{\"operator\":\"In\",\"values\":[{code}]}}}}")
                }
                Err(_) => format!(
                    "{{\"action\":\"{action}\",\"onPodConditions\":[{{\"type\":\"{what}\",\"status\":\"True\"}}]}}"
                ),
            });
        } else if let Some(value) = number("BLPI") {
            spec.push(format!("\"backoffLimitPerIndex\":{value}"));
        } else if let Some(value) = number("BL") {
            spec.push(format!("\"backoffLimit\":{value}"));
        } else if let Some(value) = number("MAXF") {
            spec.push(format!("\"maxFailedIndexes\":{value}"));
        } else if let Some(value) = number("TTL") {
            spec.push(format!("\"ttlSecondsAfterFinished\":{value}"));
        } else if let Some(value) = number("P") {
            spec.push(format!("\"parallelism\":{value}"));
        } else if let Some(value) = number("C").filter(|_| token != "C-") {
            spec.push(format!("\"completions\":{value}"));
        } else if let Some(value) = number("D") {
            spec.push(format!("\"activeDeadlineSeconds\":{value}"));
        } else if let Some(value) = text("replace=") {
            spec.push(format!("\"podReplacementPolicy\":\"{value}\""));
        } else if let Some(value) = text("managedBy=") {
            spec.push(format!("\"managedBy\":\"{value}\""));
        } else if let Some(value) = text("mode=") {
            spec.push(format!("\"completionMode\":\"{value}\""));
        } else if let Some(value) = number("success=") {
            spec.push(format!("\"successPolicy\":{{\"rules\":[{{\"succeededCount\":{value}}}]}}"));
        } else if let Some((annotation, value)) = token
            .split_once('=')
            .filter(|(word, _)| word.starts_with("backoff-") || ["halt", "delete-finished-pods"].contains(word))
        {
            annotations.push(format!("\"tally.dev/{annotation}\":\"{value}\""));
        } else if let Some(value) = text("label=") {
            label = format!("\"app\":\"{value}\"");
            spec.push("\"manualSelector\":true".to_owned());
        } else {
            match token {
                "indexed" => spec.push("\"completionMode\":\"Indexed\"".to_owned()),
                "suspend" => spec.push("\"suspend\":true".to_owned()),
                "OnFailure" => restart = "OnFailure",
                "emptypolicy" => policy = true,
                "C-" | "deleting" => {}
                _ => panic!("{token:?} is not in the notation of Jobs"),
            }
        }
    }
    if policy || !rules.is_empty() {
        spec.push(format!("\"podFailurePolicy\":{{\"rules\":[{}]}}", rules.join(",")));
    }
    spec.push(format!("\"selector\":{{\"matchLabels\":{{{label}}}}}"));
    spec.push(format!(
        "\"template\":{{\"metadata\":{{\"labels\":{{{label}}}}},\"spec\":{{\"restartPolicy\":\"{restart}\",\
         \"containers\":[{{\"name\":\"c\",\"image\":\"i\"}}]}}}}"
    ));
    format!(
        "{{\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"{namespace}\",\"uid\":\"{uid}\",\
         \"resourceVersion\":\"1\",\"generation\":1,\"annotations\":{{{}}}}},\"spec\":{{{}}},\"status\":{status}}}",
        annotations.join(","),
        spec.join(",")
    )
}

impl Default for Cluster {
    fn default() -> Self {
        Self::new()
    }
}

impl Cluster {
    pub fn new() -> Self {
        Self {
            api: Api::starting_at(START),
            replicas: Vec::new(),
            limits: Limits::default(),
            gates_pods: true,
            hook: Box::new(|_| Fate::Carried),
            performed: Vec::new(),
            events: Vec::new(),
            metrics: Vec::new(),
            late: Vec::new(),
            unnamed: 0,
        }
    }

    /// A cluster with the Job `j` and its Pods, and no controller yet.
    pub fn with(job: &str, pods: &str) -> Self {
        Self::with_status(job, "{}", pods)
    }

    pub fn with_status(job: &str, status: &str, pods: &str) -> Self {
        let mut cluster = Self::new();
        cluster.create_job("j", job, status);
        cluster.pods("j", pods);
        cluster
    }

    // ---- objects ----

    pub fn create_job(&mut self, name: &str, notation: &str, status: &str) -> Arc<JobView> {
        self.create_job_in("ns", name, notation, status)
    }

    pub fn create_job_in(&mut self, namespace: &str, name: &str, notation: &str, status: &str) -> Arc<JobView> {
        let uid = PodUid::from_u128(self.api.new_uid()).to_string();
        let text = job_text(&uid, name, namespace, notation, status);
        let job = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let job = self.api.plant_job(job).expect("the name is free");
        if notation.split_whitespace().any(|token| token == "deleting") {
            self.api.delete_job(&(namespace.into(), name.into()), Actor::User, Propagation::Foreground);
        }
        job
    }

    /// Pods of a Job, one word each: `[name=][index:]PHASE[marks]`. PHASE is P(ending), R(unning), S(ucceeded),
    /// F(ailed) or U(nknown). Marks: `+` ready, `!` being deleted, `-` without the finalizer, `xN` exit code, `fN`
    /// failure count, `gN` ignored failure count, `rN` restarts, `tN` ended N seconds ago (otherwise an hour),
    /// `d` carries the condition DisruptionTarget. `n*word` repeats a word.
    pub fn pods(&mut self, job: &str, words: &str) {
        for word in words.split_whitespace() {
            let (times, word) = match word.split_once('*') {
                Some((times, word)) => (times.parse().expect("a number before the star"), word),
                None => (1, word),
            };
            for _ in 0..times {
                self.pod(job, word);
            }
        }
    }

    fn pod(&mut self, job: &str, word: &str) {
        let owner = self.api.jobs[&key(job)].view.clone();
        let (name, word) = match word.split_once('=') {
            Some((name, word)) => (name.to_owned(), word),
            None => {
                self.unnamed += 1;
                (format!("p{}", self.unnamed), word)
            }
        };
        let (index, word) = match word.split_once(':') {
            Some((index, word)) => (index.parse().ok(), word),
            None => (None, word),
        };
        let mut view = plain_pod(0, "ns", &name);
        view.uid = uid(&name);
        view.controller = Some(ControllerRef { uid: owner.uid.clone(), name: owner.name.clone(), is_job: true });
        let label = ("batch.kubernetes.io/controller-uid", owner.uid.to_string());
        view.labels = [label].into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        view.tracked = true;
        view.index = index;
        let mut marks = word.chars().peekable();
        view.phase = match marks.next() {
            Some('P') => Phase::Pending,
            Some('R') => Phase::Running,
            Some('S') => Phase::Succeeded,
            Some('F') => Phase::Failed,
            Some('U') => Phase::Unknown,
            other => panic!("{other:?} in {word} is not a phase"),
        };
        view.scheduled = view.phase != Phase::Pending;
        let mut ended = 3600;
        let mut deleting = false;
        while let Some(mark) = marks.next() {
            let mut number = || {
                let mut digits = String::new();
                while let Some(digit) = marks.next_if(char::is_ascii_digit) {
                    digits.push(digit);
                }
                digits.parse::<u32>().expect("a number after this mark")
            };
            match mark {
                '+' => view.ready = true,
                '!' => deleting = true,
                '-' => view.tracked = false,
                'x' => view.exits.push(Exit { container: "c".into(), code: number() as i32 }),
                'f' => view.failure_count = number(),
                'g' => view.ignored_failure_count = number(),
                'r' => view.restarts.sum = number(),
                't' => ended = i64::from(number()),
                'd' => view.conditions.push(("DisruptionTarget".into(), "True".into())),
                other => panic!("{other:?} in {word} is not a mark"),
            }
        }
        let now = self.api.now;
        let key = key(&name);
        let finished_at = (now - Span::from_seconds(ended)).truncated();
        self.api.insert_pod(view, Actor::User).expect("the name is free");
        self.api.edit_pod(&key, Actor::Node, |pod| pod.finished_at = finished_at);
        if deleting {
            self.api.delete_pod(&key, Actor::User, false);
        }
    }

    pub fn job(&self) -> &JobView {
        &self.api.jobs[&key("j")].view
    }

    pub fn status(&self) -> &JobStatus {
        &self.job().status
    }

    pub fn stored(&self, pod: &str) -> Option<&PodView> {
        self.api.pods.get(&key(pod)).map(|stored| &*stored.view)
    }

    /// Pods of the Job `j` that have not ended and are not being deleted.
    pub fn live(&self) -> Vec<Key> {
        let job = self.job().uid.clone();
        let live = self.api.pods_of(&job).filter(|stored| stored.view.is_active());
        live.map(|stored| (stored.view.namespace.clone(), stored.view.name.clone())).collect()
    }

    pub fn still_tracked(&self) -> usize {
        self.api.pods.values().filter(|stored| stored.view.tracked).count()
    }

    // ---- nodes and users ----

    /// A Pod that runs ends. One behind its start gate does not run.
    pub fn end(&mut self, pod: &Key, phase: Phase, code: i32) {
        if self.api.pods.get(pod).is_some_and(|stored| stored.view.start_gated) {
            return;
        }
        let now = self.api.now.truncated();
        self.api.edit_pod(pod, Actor::Node, |pod| {
            pod.phase = phase;
            pod.scheduled = true;
            pod.ready = false;
            pod.finished_at = now;
            if code != 0 {
                pod.exits.push(Exit { container: "c".into(), code });
            }
        });
    }

    pub fn start_pods(&mut self) {
        for pod in self.live() {
            self.api.edit_pod(&pod, Actor::Node, |pod| {
                pod.phase = Phase::Running;
                pod.scheduled = true;
                pod.ready = true;
            });
        }
    }

    pub fn end_all(&mut self, phase: Phase) {
        for pod in self.live() {
            self.end(&pod, phase, i32::from(phase == Phase::Failed));
        }
    }

    /// Every Pod that is being deleted is removed, with the phase that a node leaves behind.
    pub fn nodes_confirm_deletions(&mut self) {
        let waiting: Vec<Key> =
            self.api.pods.iter().filter(|(_, stored)| stored.awaits_node).map(|(key, _)| key.clone()).collect();
        for pod in waiting {
            if !self.api.pods[&pod].view.phase.is_terminal() {
                self.end(&pod, Phase::Failed, 137);
            }
            self.api.node_confirms(&pod);
        }
    }

    pub fn edit_spec(&mut self, change: impl FnOnce(&mut tally_core::job::JobSpec)) {
        assert!(self.api.edit_job(&key("j"), Actor::User, change), "the API refuses the change");
    }

    pub fn delete_job(&mut self, propagation: Propagation) {
        self.api.delete_job(&key("j"), Actor::User, propagation);
    }

    // ---- controllers ----

    /// A new process that has listed everything.
    pub fn start(&mut self) -> usize {
        let head = self.api.head();
        self.start_from(head, head)
    }

    /// A new process that serves the Jobs of this manager.
    pub fn start_as(&mut self, manager: &str) -> usize {
        let head = self.api.head();
        self.start_with(Some(manager), head, head)
    }

    /// A new process whose lists came from caches of this age.
    pub fn start_from(&mut self, jobs_at: Revision, pods_at: Revision) -> usize {
        self.start_with(None, jobs_at, pods_at)
    }

    fn start_with(&mut self, manager: Option<&str>, jobs_at: Revision, pods_at: Revision) -> usize {
        let managed_by = manager.map(Into::into);
        let config = Config { managed_by, limits: self.limits, gates_pods: self.gates_pods, ..Config::default() };
        self.replicas.push(Replica {
            controller: JobController::new(config),
            ttl: TtlController::default(),
            cursors: [0; 2],
            flights: Vec::new(),
            wakes: [None; 2],
            clock: Span::ZERO,
            paused: false,
            deaf: [false; 2],
        });
        let replica = self.replicas.len() - 1;
        self.list(replica, Resource::Jobs, jobs_at);
        self.list(replica, Resource::Pods, pods_at);
        replica
    }

    /// The process ends, and everything it had in flight and in memory is lost; another one replaces it.
    pub fn restart(&mut self) {
        let head = self.api.head();
        self.restart_from(head, head);
    }

    pub fn restart_from(&mut self, jobs_at: Revision, pods_at: Revision) {
        self.replicas.clear();
        self.start_from(jobs_at, pods_at);
    }

    pub fn restart_as(&mut self, manager: &str) {
        self.replicas.clear();
        self.start_as(manager);
    }

    pub fn list(&mut self, replica: usize, resource: Resource, at: Revision) {
        let kind = resource.kind();
        self.tell(replica, Input::Init(kind));
        for version in self.api.archive.state_at(&kind, at).into_values() {
            self.tell(replica, Input::Apply(kind, version.bytes.clone().into()));
        }
        self.tell(replica, Input::InitDone(kind, at));
        let log = self.api.archive.log(&kind);
        self.replicas[replica].cursors[resource as usize] = log.partition_point(|version| version.at <= at);
    }

    pub fn tell(&mut self, replica: usize, input: Input) {
        self.tell_one(replica, Source::Job, input.clone());
        self.tell_one(replica, Source::Ttl, input);
    }

    fn tell_one(&mut self, replica: usize, source: Source, input: Input) {
        let mut out = Outbox::default();
        let now = self.api.now + self.replicas[replica].clock;
        let process = &mut self.replicas[replica];
        match source {
            Source::Job => process.controller.handle(input, now, &mut out),
            Source::Ttl => process.ttl.handle(input, now, &mut out),
        }
        process.wakes[source as usize] = out.wake_at;
        process.flights.extend(out.requests.drain(..).map(|request| (source, request)));
        let invalid = out.metrics.contains(&Metric::InvalidStatus);
        assert!(!invalid, "a status was planned that the rules refuse: {:?}", out.events);
        self.events.append(&mut out.events);
        self.metrics.append(&mut out.metrics);
    }

    /// Delivers everything that a stream has, and the bookmark at the end.
    pub fn deliver(&mut self, replica: usize, resource: Resource) -> bool {
        let at = resource as usize;
        if self.replicas[replica].deaf[at] {
            return false;
        }
        let kind = resource.kind();
        let news = &self.api.archive.log(&kind)[self.replicas[replica].cursors[at]..];
        let inputs: Vec<Input> = news
            .iter()
            .map(|version| (version.gone, version.bytes.clone().into()))
            .map(|(gone, bytes)| if gone { Input::Delete(kind, bytes) } else { Input::Apply(kind, bytes) })
            .collect();
        self.replicas[replica].cursors[at] += inputs.len();
        let news = !inputs.is_empty();
        for input in inputs {
            self.tell(replica, input);
        }
        if news {
            let at = self.api.head();
            self.tell(replica, Input::Bookmark(resource.kind(), at));
        }
        news
    }

    pub fn deliver_all(&mut self, replica: usize) -> bool {
        let jobs = self.deliver(replica, Resource::Jobs);
        let pods = self.deliver(replica, Resource::Pods);
        // What one stream showed may have been waiting for the other stream's revision.
        if jobs || pods {
            let at = self.api.head();
            for resource in [Resource::Jobs, Resource::Pods] {
                if !self.replicas[replica].deaf[resource as usize] {
                    self.tell(replica, Input::Bookmark(resource.kind(), at));
                }
            }
        }
        jobs || pods
    }

    /// Carries out what a process has requested so far, in order, and delivers the responses.
    pub fn perform(&mut self, replica: usize) -> bool {
        let flights = std::mem::take(&mut self.replicas[replica].flights);
        let mut any = false;
        let mut held = Vec::new();
        for (source, request) in flights {
            let action = Action::of(&request.call);
            let refused = |code, message: &str| {
                Reply::Refused(Refusal { code, message: message.to_owned(), ..Refusal::default() })
            };
            if let Action::WriteJobStatus { status, .. } = &action {
                let listed = status.uncounted().len();
                assert!(listed <= self.limits.uncounted, "{listed} UIDs in one status");
            }
            let fate = (self.hook)(&action);
            let actor = Actor::Controller { instance: replica, incarnation: 0 };
            let carried = matches!(fate, Fate::Carried | Fate::ReplyLost | Fate::AnsweredLate | Fate::AppliedError);
            let done = carried.then(|| self.api.perform(&request.call, actor));
            if let (true, Some(Reply::Refused(Refusal { code: 422, message, .. }))) = (is_status(&action), &done) {
                panic!("the API refuses a status: {message}");
            }
            let reply = match (fate, done) {
                (Fate::Carried | Fate::AnsweredLate, Some(reply)) => reply,
                (Fate::Refused, _) => refused(403, "no"),
                (Fate::Unavailable, _) => refused(503, "not now"),
                (Fate::NotFound, _) => response(&request.call, 404, "<html>default backend - 404</html>"),
                (Fate::AppliedError | Fate::ServerError, _) => response(&request.call, 500, SERVER_ERROR),
                (Fate::Held, _) => {
                    held.push((source, request));
                    continue;
                }
                _ => Reply::Unknown,
            };
            any = true;
            self.performed.push(Performed { replica, action, carried });
            let input = Input::Response { request: request.id, reply, served_at: Some(self.api.now) };
            if fate == Fate::AnsweredLate {
                self.late.push((replica, source, input));
            } else {
                self.tell_one(replica, source, input);
            }
        }
        let fresh = std::mem::replace(&mut self.replicas[replica].flights, held);
        self.replicas[replica].flights.extend(fresh);
        self.api.changes.clear();
        any
    }

    /// The delayed responses arrive.
    pub fn answer_late(&mut self) {
        for (replica, source, input) in std::mem::take(&mut self.late) {
            self.tell_one(replica, source, input);
        }
    }

    /// Runs until there is nothing to do before the next retry, back-off or deadline.
    pub fn settle(&mut self) {
        let until = self.api.now + PACING;
        self.run_until(until);
    }

    /// Lets time pass, including timers.
    pub fn pass(&mut self, seconds: i64) {
        let until = self.api.now + Span::from_seconds(seconds);
        self.run_until(until);
        self.api.now = until;
        self.run_until(until);
    }

    fn run_until(&mut self, until: Timestamp) {
        for _ in 0..ROUNDS {
            let mut busy = false;
            for replica in 0..self.replicas.len() {
                if !self.replicas[replica].paused {
                    busy |= self.deliver_all(replica);
                    busy |= self.perform(replica);
                }
            }
            if busy {
                continue;
            }
            let mut next: Option<Timestamp> = None;
            for replica in 0..self.replicas.len() {
                let Replica { wakes, clock, paused, .. } = &self.replicas[replica];
                let wake = wakes.iter().flatten().min().map(|at| *at - *clock).filter(|_| !paused);
                if wake.is_some_and(|at| at <= self.api.now) {
                    self.tell(replica, Input::Tick);
                    busy = true;
                } else {
                    next = next.into_iter().chain(wake).min();
                }
            }
            match next.filter(|at| *at <= until) {
                _ if busy => {}
                Some(at) => self.api.now = at,
                None => return,
            }
        }
        panic!("does not settle: {}", self.summary());
    }

    // ---- results ----

    /// What the processes have requested and what has not been carried out yet.
    pub fn asked(&self) -> String {
        let flights = self.replicas.iter().flat_map(|replica| &replica.flights);
        let actions: Vec<Action> = flights.map(|(_, request)| Action::of(&request.call)).collect();
        let mut parts = requests_text(&actions.iter().collect::<Vec<_>>());
        let writes = actions.iter().filter(|action| matches!(action, Action::WriteJobStatus { .. })).count();
        if writes > 0 {
            parts.push(format!("write {writes}"));
        }
        parts.join("; ")
    }

    /// How many requests of a kind have not been carried out yet.
    pub fn in_flight(&self, which: impl Fn(&Action) -> bool) -> usize {
        let flights = self.replicas.iter().flat_map(|replica| &replica.flights);
        flights.filter(|(_, request)| which(&Action::of(&request.call))).count()
    }

    pub fn count(&self, which: impl Fn(&Action) -> bool) -> usize {
        self.performed.iter().filter(|done| which(&done.action)).count()
    }

    /// Requests made about Pods, then the status of the Job `j`, without zero values.
    pub fn summary(&self) -> String {
        let actions: Vec<&Action> = self.performed.iter().map(|done| &done.action).collect();
        let mut parts = requests_text(&actions);
        match self.api.jobs.get(&key("j")) {
            Some(stored) => parts.extend(status_text(&stored.view.status)),
            None => parts.push("gone".to_owned()),
        }
        parts.join("; ")
    }

    /// The status after each write of a controller.
    pub fn status_writes(&self) -> Vec<String> {
        let writes = self.performed.iter().filter(|done| done.carried);
        writes
            .filter_map(|done| match &done.action {
                Action::WriteJobStatus { status, .. } => Some(status_text(status).join("; ")),
                _ => None,
            })
            .collect()
    }

    pub fn forget_requests(&mut self) {
        self.performed.clear();
    }
}

const SERVER_ERROR: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500,
    "message":"Internal error occurred: etcdserver: request timed out"}"#;

/// The production code's interpretation of an HTTP response.
fn response(call: &Call, code: u16, body: &'static str) -> Reply {
    interpret(call, code, None, &body.into()).reply
}

/// A cluster with the Job `j` and these Pods, which the controller has observed. Its requests so far are forgotten.
pub fn running(job: &str, pods: &str) -> Cluster {
    let mut cluster = Cluster::with(job, pods);
    cluster.start();
    cluster.settle();
    cluster.forget_requests();
    cluster
}

/// A hook that gives this fate to the requests that `which` selects, and carries out all others.
pub fn fate(which: fn(&Action) -> bool, fate: Fate) -> Box<dyn FnMut(&Action) -> Fate> {
    Box::new(move |action| if which(action) { fate } else { Fate::Carried })
}

pub fn is_create(action: &Action) -> bool {
    matches!(action, Action::CreatePod { .. })
}

pub fn is_release(action: &Action) -> bool {
    matches!(action, Action::PatchPod { change: PodChange::Release, .. })
}

pub fn is_adopt(action: &Action) -> bool {
    matches!(action, Action::PatchPod { change: PodChange::Adopt { .. }, .. })
}

pub fn is_delete(action: &Action) -> bool {
    matches!(action, Action::DeletePod { .. })
}

pub fn is_status(action: &Action) -> bool {
    matches!(action, Action::WriteJobStatus { .. })
}

fn requests_text(actions: &[&Action]) -> Vec<String> {
    let mut parts = Vec::new();
    let mut indexes = IndexSet::new();
    let mut creations = 0;
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    for action in actions {
        match action {
            Action::CreatePod { name, .. } => {
                // `<job>-<index>-<suffix>` or `<job>-<suffix>`.
                let mut pieces = name.split('-').skip(1);
                match (pieces.next(), pieces.next()) {
                    (Some(index), Some(_)) => {
                        indexes.insert(index.parse().expect("an index in the name"));
                    }
                    _ => creations += 1,
                }
            }
            Action::DeletePod { .. } => *others.entry("delete").or_default() += 1,
            Action::PatchPod { change: PodChange::Release, .. } => *others.entry("release").or_default() += 1,
            Action::PatchPod { change: PodChange::Start, .. } => *others.entry("start").or_default() += 1,
            Action::PatchPod { change: PodChange::Adopt { .. }, .. } => *others.entry("adopt").or_default() += 1,
            Action::PatchPod { change: PodChange::Disown { .. }, .. } => *others.entry("disown").or_default() += 1,
            Action::DeleteJob { .. } => *others.entry("delete job").or_default() += 1,
            _ => {}
        }
    }
    if creations > 0 {
        parts.push(format!("create {creations}"));
    }
    if !indexes.is_empty() {
        parts.push(format!("create {{{}}}", indexes.text()));
    }
    parts.extend(others.into_iter().map(|(what, times)| format!("{what} {times}")));
    parts
}

/// Counts, then conditions; reasons only if they say more than the type.
fn status_text(status: &JobStatus) -> Vec<String> {
    let mut counts = String::new();
    let mut count = |name: &str, value: i32| {
        if value != 0 {
            let _ = write!(counts, "{name} {value} ");
        }
    };
    count("active", status.active);
    count("ready", status.ready.unwrap_or(0));
    count("terminating", status.terminating.unwrap_or(0));
    count("succeeded", status.succeeded);
    count("failed", status.failed);
    if !status.completed_indexes.is_empty() {
        let _ = write!(counts, "completed {} ", status.completed_indexes);
    }
    if let Some(failed) = status.failed_indexes.as_deref().filter(|failed| !failed.is_empty()) {
        let _ = write!(counts, "failed-indexes {failed} ");
    }
    let lists = status.uncounted();
    if !lists.is_empty() {
        let _ = write!(counts, "uncounted {}/{} ", lists.succeeded.len(), lists.failed.len());
    }
    let mut conditions = Vec::new();
    for condition in &status.conditions {
        let mut text = condition.kind.to_string();
        if !condition.is_true() {
            let _ = write!(text, "={}", condition.status);
        }
        if ["FailureTarget", "SuccessCriteriaMet"].contains(&&*condition.kind) && condition.is_true() {
            let _ = write!(text, "({})", condition.reason);
        }
        conditions.push(text);
    }
    [counts.trim_end().to_owned(), conditions.join(" ")].into_iter().filter(|part| !part.is_empty()).collect()
}

/// A controller starts with this Job and these Pods, and all its requests are carried out. Running Pods that are
/// deleted stay until their node confirms; created Pods stay Pending.
#[track_caller]
pub fn check(job: &str, pods: &str, expected: &str) -> Cluster {
    check_status(job, "{}", pods, expected)
}

#[track_caller]
pub fn check_status(job: &str, status: &str, pods: &str, expected: &str) -> Cluster {
    let mut cluster = Cluster::with_status(job, status, pods);
    cluster.start();
    cluster.settle();
    assert_eq!(cluster.summary(), expected, "Job {job}, Pods {pods}");
    cluster
}

/// What happens after that, from the same starting point.
#[track_caller]
pub fn then(cluster: &mut Cluster, expected: &str) {
    cluster.settle();
    assert_eq!(cluster.summary(), expected);
}
