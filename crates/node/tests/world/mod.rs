//! The node on the real registry, with a fake of the half that acts, and all kinds of faults: crashes, lost responses,
//! deletions, processes that do not start or do not end. The invariants are checked after every step, and in the end
//! nothing is left.

mod rules;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use fastrand::Rng;
use futures_util::FutureExt;
use serde_json::{Value, json};
use tally_api::options::WatchOptions;
use tally_core::ids::{PodUid, Revision};
use tally_core::time::{Span, Timestamp};
use tally_embedded::{perform, resource};
use tally_node::mailbox::Mailbox;
use tally_node::node::NodeAgent;
use tally_node::options::NodeOptions;
use tally_node::port::{Attempt, Exit, Found, OperationError, Report, ShimCommand, Signal};
use tally_registry::{Env as Surroundings, Registry, Target, WatchEvent, WatchStream};
use tally_runtime::controller::{Call, Controller, Input, Kind, Outbox, Refusal, Reply, Request, Verb};
use tally_store::{Store, StoreOptions};

const NODE: &str = "here";
const HOST: &str = "machine";

fn ready<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the memory store never waits")
}

#[derive(Default)]
struct Counted {
    millis: Arc<AtomicI64>,
    drawn: AtomicU32,
}

impl Surroundings for Counted {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.millis.load(Ordering::Relaxed))
    }

    fn new_uid(&self) -> String {
        format!("00000000-0000-4000-8000-{:012}", self.drawn.fetch_add(1, Ordering::Relaxed))
    }

    fn random(&self, limit: u32) -> u32 {
        self.drawn.fetch_add(1, Ordering::Relaxed) % limit
    }
}

struct Followed {
    kind: Kind,
    watch: WatchStream,
    complete: bool,
}

/// One run of the node.
struct Life {
    node: NodeAgent,
    mailbox: Arc<Mailbox>,
    streams: Vec<Followed>,
    out: Outbox,
    requests: Vec<Request>,
    commands: VecDeque<ShimCommand>,
    reports: VecDeque<Report>,
    /// Pods that this node has observed as being deleted or as ended.
    done_for: BTreeSet<PodUid>,
}

struct Run {
    started_at: Timestamp,
    exit: Option<Exit>,
    /// The signal that it has received, if any.
    signalled: Option<Signal>,
}

struct World {
    rng: Rng,
    registry: Registry,
    millis: Arc<AtomicI64>,
    life: Life,
    /// What the half that acts has on disk. An exit of None: the attempt is running.
    record: BTreeMap<Attempt, Run>,
    /// The Pods for which it has anything at all.
    directories: BTreeSet<PodUid>,
    /// Attempts whose end was not observed.
    lost: BTreeSet<Attempt>,
    oracle: Oracle,
    watch: WatchStream,
    forced: BTreeSet<String>,
    made: u32,
    calm: bool,
    /// As in `NodeOptions`.
    release_lost: bool,
    writes: u32,
    runs: u32,
    crashes: u32,
}

/// What has been observed of every Pod.
#[derive(Default)]
struct Oracle {
    phases: BTreeMap<String, String>,
    exits: BTreeMap<String, i64>,
    restarts: BTreeMap<String, u64>,
    ended: u32,
}

impl Oracle {
    fn saw(&mut self, pod: &Value) {
        let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
        let phase = pod["status"]["phase"].as_str().unwrap().to_owned();
        let rank = |phase: &str| match phase {
            "Pending" => 0,
            "Running" => 1,
            _ => 2,
        };
        let before = self.phases.insert(uid.clone(), phase.clone()).unwrap_or_else(|| "Pending".to_owned());
        assert!(before == phase || rank(&before) < rank(&phase), "from {before} to {phase}: {pod}");
        if rank(&before) < 2 && rank(&phase) == 2 {
            self.ended += 1;
        }
        for list in ["initContainerStatuses", "containerStatuses"] {
            for container in pod["status"][list].as_array().unwrap_or(&Vec::new()) {
                let name = format!("{uid}/{}", container["name"].as_str().unwrap());
                let restarts = container["restartCount"].as_u64().unwrap();
                let before = self.restarts.insert(name, restarts).unwrap_or(0);
                assert!(before <= restarts, "restarts go back: {pod}");
                for state in ["state", "lastState"] {
                    let ended = &container[state]["terminated"];
                    if let (Some(id), Some(code)) = (ended["containerID"].as_str(), ended["exitCode"].as_i64()) {
                        let before = self.exits.insert(id.to_owned(), code).unwrap_or(code);
                        assert_eq!(before, code, "an exit is told twice, and differently: {}", pod["status"]);
                    }
                }
            }
        }
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let surroundings = Counted::default();
        surroundings.millis.store(1_700_000_000_000, Ordering::Relaxed);
        let millis = surroundings.millis.clone();
        let registry = Registry::new(Store::memory(StoreOptions::default()), Box::new(surroundings));
        ready(registry.begin()).expect("a cluster begins");
        let watch = follow(&registry, Kind::POD);
        let life = Life::begin(&registry, false);
        let mut world = Self {
            rng: Rng::with_seed(seed),
            registry,
            millis,
            life,
            record: BTreeMap::new(),
            directories: BTreeSet::new(),
            lost: BTreeSet::new(),
            oracle: Oracle::default(),
            watch,
            forced: BTreeSet::new(),
            made: 0,
            calm: false,
            release_lost: false,
            writes: 0,
            runs: 0,
            crashes: 0,
        };
        world.life.reports.push_back(Report::Recovered);
        world
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.millis.load(Ordering::Relaxed))
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    fn tell(&mut self, input: Input) {
        let now = self.now();
        let life = &mut self.life;
        life.node.handle(input, now, &mut life.out);
        life.requests.append(&mut life.out.requests);
        life.out.events.clear();
        for command in life.mailbox.take_deeds() {
            trace(&format!("{command:?}"));
            if let ShimCommand::Start(start) = &command {
                assert!(!life.done_for.contains(&start.attempt.pod), "started though it is over: {:?}", start.attempt);
            }
            life.commands.push_back(command);
        }
    }

    /// Delivers the next event of one of the node's streams.
    fn news(&mut self) -> bool {
        let at = self.rng.usize(0..self.life.streams.len());
        let order = [at, 1 - at];
        for at in order {
            let followed = &mut self.life.streams[at];
            let kind = followed.kind;
            let Some(event) = followed.watch.try_next() else { continue };
            match &event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    if kind == Kind::POD {
                        let pod: Value = serde_json::from_slice(&object.bytes).unwrap();
                        let over = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
                        if over || pod["metadata"]["deletionTimestamp"].is_string() {
                            self.life.done_for.insert(PodUid::new(pod["metadata"]["uid"].as_str().unwrap()));
                        }
                    }
                    self.tell(Input::Apply(kind, object.clone()));
                }
                WatchEvent::Deleted(object) => self.tell(Input::Delete(kind, object.clone())),
                WatchEvent::Bookmark { revision, initial_events_end: true } => {
                    self.life.streams[at].complete = true;
                    self.tell(Input::InitDone(kind, Revision(*revision)));
                }
                WatchEvent::Bookmark { revision, .. } if self.life.streams[at].complete => {
                    self.tell(Input::Bookmark(kind, Revision(*revision)));
                }
                WatchEvent::Bookmark { .. } => {}
                WatchEvent::Failed(failure) => panic!("{failure:?}"),
            }
            return true;
        }
        false
    }

    /// One in-flight request is carried out, or not, and answered, or not.
    fn request(&mut self) -> bool {
        if self.life.requests.is_empty() {
            return false;
        }
        let at = self.rng.usize(0..self.life.requests.len());
        let Request { id, call, .. } = self.life.requests.swap_remove(at);
        let fate = if self.calm { 99 } else { self.rng.u32(0..100) };
        let reply = match fate {
            0..5 => Reply::Unknown,
            5..8 => Reply::Refused(Refusal { code: 500, ..Refusal::default() }),
            8..14 => {
                ready(perform(&self.registry, &call));
                Reply::Unknown
            }
            _ => ready(perform(&self.registry, &call)),
        };
        trace(&format!("fate {fate} {:?} {} {}", call.verb, call.name, String::from_utf8_lossy(&call.body.text())));
        self.writes += u32::from(call.subresource == "status" && call.kind == Kind::POD);
        if self.calm && call.kind == Kind::POD && !reply.is_done() && !reply.is_conflict() && !reply.is_not_found() {
            let body = String::from_utf8_lossy(&call.body.text()).into_owned();
            assert!(call.verb != Verb::StrategicPatch, "{reply:?}: {body}");
        }
        self.check();
        self.tell(Input::Response { request: id, reply, served_at: None });
        true
    }

    /// Carries out one command.
    fn command(&mut self) -> bool {
        if self.life.reports.contains(&Report::Recovered) {
            return false;
        }
        let Some(command) = self.life.commands.pop_front() else { return false };
        let now = self.now();
        let report = match command {
            ShimCommand::Prepare(order) => {
                self.directories.insert(order.pod.clone());
                assert!(!order.volumes.is_empty(), "there is nothing to prepare");
                if !self.calm && self.chance(10) {
                    let failure = OperationError {
                        reason: "CreateContainerError".into(),
                        message: "no room".to_owned(),
                        passing: true,
                    };
                    Report::Unprepared { pod: order.pod, failure }
                } else {
                    Report::Prepared { pod: order.pod }
                }
            }
            ShimCommand::Start(order) => {
                let attempt = order.attempt;
                assert!(
                    self.directories.contains(&attempt.pod) || !self.has_volumes(&attempt.pod),
                    "not prepared: {attempt:?}"
                );
                assert!(!self.record.contains_key(&attempt), "started twice: {attempt:?}");
                if self.chance(5) {
                    // The failure may be temporary or not.
                    let passing = self.chance(50);
                    let failure =
                        OperationError { reason: "StartError".into(), message: "no such program".to_owned(), passing };
                    Report::Unstarted { attempt, failure }
                } else {
                    self.runs += 1;
                    self.record.insert(attempt.clone(), Run { started_at: now, exit: None, signalled: None });
                    Report::Started { attempt, at: now }
                }
            }
            ShimCommand::Signal { attempt, signal } => {
                let run = self.record.get_mut(&attempt).expect("only what was started is signalled");
                run.signalled = Some(signal);
                Report::Signalled { attempt }
            }
            ShimCommand::Check { id, .. } => {
                let outcome = if self.chance(70) { Ok(()) } else { Err("not well".to_owned()) };
                Report::Checked { id, outcome }
            }
            ShimCommand::Measure { pod } => Report::Measured { pod, usage: Default::default() },
            ShimCommand::RemoveVolumes { .. } => return true,
            ShimCommand::RemoveClaim { uid } => Report::ClaimRemoved { uid },
            ShimCommand::OutputRead { .. } => unreachable!("sent by readers of output"),
            ShimCommand::Session(_) => unreachable!("sent for clients"),
            ShimCommand::Clean { pod } => {
                let runs = self.record.iter().filter(|(attempt, _)| attempt.pod == pod);
                assert!(runs.clone().all(|(_, run)| run.exit.is_some()), "cleaned while it runs: {pod}");
                self.record.retain(|attempt, _| attempt.pod != pod);
                self.directories.remove(&pod);
                Report::Cleaned { pod }
            }
        };
        self.life.reports.push_back(report);
        true
    }

    /// One running process ends.
    fn exit(&mut self) -> bool {
        let alive: Vec<_> = self.record.iter().filter(|(_, run)| run.exit.is_none()).collect();
        if alive.is_empty() {
            return false;
        }
        let (attempt, run) = alive[self.rng.usize(0..alive.len())];
        let attempt = attempt.clone();
        let code = match run.signalled {
            Some(Signal::Kill) => 137,
            Some(Signal::Number(_)) => [143, 0][self.rng.usize(0..2)],
            None => [0, 0, 1, 3][self.rng.usize(0..4)],
        };
        let finished_at = self.now();
        let run = self.record.get_mut(&attempt).unwrap();
        let exit = Exit {
            code,
            signal: None,
            out_of_memory: false,
            started_at: run.started_at,
            finished_at,
            message: String::new(),
        };
        run.exit = Some(exit.clone());
        // Its start was reported before.
        self.life.reports.push_back(Report::Ended { attempt, exit });
        true
    }

    fn report(&mut self) -> bool {
        if self.life.reports.is_empty() {
            return false;
        }
        let count = self.rng.usize(1..=self.life.reports.len().min(4));
        let reports: Vec<_> = self.life.reports.drain(..count).collect();
        reports.iter().for_each(|report| trace(&format!("{report:?}")));
        if reports.contains(&Report::Recovered) {
            // As the shim guarantees.
            self.life.commands.clear();
        }
        self.life.mailbox.report(reports);
        self.tell(Input::Tick);
        true
    }

    fn tick(&mut self) -> bool {
        let Some(wake) = self.life.out.wake_at else { return false };
        // Never earlier than requested: this clock counts milliseconds.
        let millis = if Timestamp::from_millis(wake.millis()) < wake { wake.millis() + 1 } else { wake.millis() };
        assert!(wake > self.now() || self.life.requests.len() >= 256, "a wish to be woken in the past");
        self.millis.store(millis.max(self.now().millis()), Ordering::Relaxed);
        self.tell(Input::Tick);
        true
    }

    /// The node is killed with everything that runs; or it stops in order.
    fn crash(&mut self) {
        self.crash_unseen(50);
    }

    /// This percentage of the ends is not observed.
    fn crash_unseen(&mut self, unseen: u32) {
        let now = self.now();
        let alive: Vec<_> =
            self.record.iter().filter(|(_, run)| run.exit.is_none()).map(|(attempt, _)| attempt.clone()).collect();
        for attempt in alive {
            let seen = self.chance(100 - unseen);
            let run = self.record.get_mut(&attempt).unwrap();
            let exit = Exit {
                code: 137,
                signal: Some(9),
                out_of_memory: false,
                started_at: run.started_at,
                finished_at: now,
                message: String::new(),
            };
            run.exit = Some(exit);
            if !seen {
                self.lost.insert(attempt);
            }
        }
        trace("crash");
        self.crashes += 1;
        // Or only the shim is killed, with its queued commands and reports.
        if self.chance(60) {
            self.life = Life::begin(&self.registry, self.release_lost);
        } else {
            self.life.commands.clear();
            self.life.reports.clear();
        }
        let mut found: BTreeMap<PodUid, Vec<Found>> = BTreeMap::new();
        for uid in &self.directories {
            found.insert(uid.clone(), Vec::new());
        }
        for (attempt, run) in &self.record {
            let exit = run.exit.clone().filter(|_| !self.lost.contains(attempt));
            let entry = Found { attempt: attempt.clone(), started_at: run.started_at, exit };
            found.entry(attempt.pod.clone()).or_default().push(entry);
        }
        let found = found.into_iter().map(|(pod, attempts)| Report::Found { pod, attempts });
        self.life.reports.extend(found);
        self.life.reports.push_back(Report::Recovered);
    }

    fn create(&mut self) {
        self.made += 1;
        let name = format!("p{}", self.made);
        let policy = ["Never", "OnFailure", "Always"][self.rng.usize(0..3)];
        let container = |world: &mut Self, name: &str| {
            let mut container = json!({"name": name, "image": "process", "command": ["work"]});
            if world.chance(15) {
                let probe = json!({"exec": {"command": ["well"]}, "periodSeconds": 2, "failureThreshold": 2});
                container["livenessProbe"] = probe;
            }
            if world.chance(15) {
                container["lifecycle"] = json!({
                    "postStart": {"exec": {"command": ["hello"]}}, "preStop": {"exec": {"command": ["bye"]}},
                });
            }
            container
        };
        let main: Vec<_> = ["a", "b"][..self.rng.usize(1..=2)].iter().map(|name| container(self, name)).collect();
        let mut init = Vec::new();
        for name in &["i", "s", "j"][..self.rng.usize(0..=3)] {
            let mut one = container(self, name);
            if *name == "s" {
                one["restartPolicy"] = "Always".into();
            } else {
                one.as_object_mut().unwrap().retain(|key, _| key != "livenessProbe" && key != "lifecycle");
            }
            init.push(one);
        }
        let mut pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": NODE, "restartPolicy": policy, "containers": main, "initContainers": init},
        });
        if self.chance(20) {
            pod["spec"]["activeDeadlineSeconds"] = 20.into();
        }
        if self.chance(50) {
            pod["spec"]["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
        }
        if self.chance(30) {
            pod["metadata"]["finalizers"] = json!(["example.com/held"]);
        }
        self.ask(&Call::new(Verb::Create, Kind::POD, "default", "").body(&pod));
    }

    fn ask(&self, call: &Call) -> Reply {
        let reply = ready(perform(&self.registry, call));
        assert!(reply.is_done() || reply.is_not_found(), "{call:?}: {reply:?}");
        reply
    }

    fn has_volumes(&self, uid: &PodUid) -> bool {
        let mut pods = self.pods().into_iter();
        pods.any(|pod| pod["metadata"]["uid"] == uid.to_string() && pod["spec"]["volumes"].is_array())
    }

    fn pods(&self) -> Vec<Value> {
        match self.ask(&Call::new(Verb::List, Kind::POD, "default", "")) {
            Reply::Listed { items, .. } => items.iter().map(|bytes| serde_json::from_slice(bytes).unwrap()).collect(),
            reply => panic!("{reply:?}"),
        }
    }

    fn delete(&mut self, pod: &Value, grace: i64) {
        if grace == 0 {
            self.forced.insert(pod["metadata"]["uid"].as_str().unwrap().to_owned());
        }
        let name = pod["metadata"]["name"].as_str().unwrap();
        let options = json!({"gracePeriodSeconds": grace});
        self.ask(&Call::new(Verb::Delete, Kind::POD, "default", name).body(&options));
    }

    fn release(&mut self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let patch = json!({"metadata": {"finalizers": null}});
        self.ask(&Call::new(Verb::MergePatch, Kind::POD, "default", name).body(&patch));
    }

    fn user(&mut self) {
        let pods = self.pods();
        if pods.is_empty() || self.chance(50) {
            return if pods.len() < 6 {
                self.create()
            };
        }
        let pod = &pods[self.rng.usize(0..pods.len())];
        match self.rng.u32(0..10) {
            0..5 => self.delete(pod, 30),
            5..7 => self.delete(pod, 2),
            7 => self.delete(pod, 0),
            8 => self.release(pod),
            _ => {
                let name = pod["metadata"]["name"].as_str().unwrap();
                let patch = json!({"metadata": {"labels": {"touched": self.made.to_string()}}});
                self.ask(&Call::new(Verb::MergePatch, Kind::POD, "default", name).body(&patch));
            }
        }
    }

    /// Checks everything that was stored since the last call.
    fn check(&mut self) {
        while let Some(event) = self.watch.try_next() {
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let pod: Value = serde_json::from_slice(&object.bytes).unwrap();
                    self.oracle.saw(&pod);
                    self.compare(&pod);
                }
                WatchEvent::Deleted(object) => {
                    let pod: Value = serde_json::from_slice(&object.bytes).unwrap();
                    let uid = pod["metadata"]["uid"].as_str().unwrap();
                    let phase = self.oracle.phases.get(uid).map_or("", String::as_str);
                    let ended = matches!(phase, "Failed" | "Succeeded");
                    // A Pod whose end was not observed is released, and removed without a final status.
                    let lost = self.release_lost && self.lost.iter().any(|attempt| attempt.pod == PodUid::new(uid));
                    assert!(ended || lost || self.forced.contains(uid), "gone before its end was told: {pod}");
                }
                _ => {}
            }
        }
    }

    /// The status of a Pod that has ended matches what its processes did.
    fn compare(&self, pod: &Value) {
        let phase = pod["status"]["phase"].as_str().unwrap();
        if !matches!(phase, "Failed" | "Succeeded") {
            return;
        }
        let uid = PodUid::new(pod["metadata"]["uid"].as_str().unwrap());
        for list in ["initContainerStatuses", "containerStatuses"] {
            for container in pod["status"][list].as_array().unwrap_or(&Vec::new()) {
                let name = container["name"].as_str().unwrap();
                let mut runs = self.record.iter().filter(|(at, _)| at.pod == uid && at.container == name);
                let Some((attempt, run)) = runs.next_back() else { continue };
                let ended = &container["state"]["terminated"];
                let told = ended["exitCode"].as_i64();
                let number = container["restartCount"].as_u64().unwrap();
                if number > u64::from(attempt.number) {
                    assert_eq!(told, Some(128), "a run that never began: {pod}");
                    continue;
                }
                assert_eq!(number, u64::from(attempt.number), "a run is missing: {pod}");
                let exit = run.exit.as_ref().unwrap_or_else(|| panic!("told as ended while it runs: {attempt:?}"));
                assert_eq!(told, Some(i64::from(exit.code)), "{pod}");
            }
        }
    }

    fn step(&mut self) {
        match self.rng.u32(0..100) {
            0..25 => drop(self.news()),
            25..45 => drop(self.request()),
            45..60 => drop(self.command()),
            60..75 => drop(self.report()),
            75..82 => drop(self.exit()),
            82..90 => drop(self.tick()),
            90..98 => self.user(),
            _ => {
                if self.chance(30) {
                    self.crash();
                }
            }
        }
        self.check();
    }

    /// No more faults: everything comes to its end.
    fn heal(&mut self) {
        self.calm = true;
        for _ in 0..20_000 {
            let stubborn = self.rng.u32(0..3) == 0;
            let busy = self.news() || self.request() || self.command() || self.report() || (stubborn && self.exit());
            self.check();
            if busy {
                continue;
            }
            let pods = self.pods();
            if pods.is_empty() && self.record.is_empty() && self.directories.is_empty() {
                return;
            }
            for pod in &pods {
                if pod["metadata"]["deletionTimestamp"].is_null() {
                    self.delete(pod, 2);
                } else if matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded")) {
                    self.release(pod);
                }
            }
            if !(self.news() || self.exit()) {
                self.tick();
            }
        }
        panic!("it never comes to its end: {:#?}", self.pods());
    }
}

impl Life {
    fn begin(registry: &Registry, release_lost: bool) -> Self {
        let mailbox = Mailbox::new();
        let options = NodeOptions { hostname: HOST.into(), release_lost, ..NodeOptions::new(NODE) };
        let mut node = NodeAgent::new(options, mailbox.clone());
        let mut out = Outbox::default();
        let mut streams = Vec::new();
        for kind in [Kind::NODE, Kind::POD] {
            node.handle(Input::Init(kind), registry.now(), &mut out);
            streams.push(Followed { kind, watch: follow(registry, kind), complete: false });
        }
        Self {
            node,
            mailbox,
            streams,
            out,
            requests: Vec::new(),
            commands: VecDeque::new(),
            reports: VecDeque::new(),
            done_for: BTreeSet::new(),
        }
    }
}

/// For debugging a seed that failed.
fn trace(line: &str) {
    if std::env::var("TALLY_NODE_TRACE").is_ok() {
        println!("{line}");
    }
}

fn follow(registry: &Registry, kind: Kind) -> WatchStream {
    let options = WatchOptions { initial_events: Some(true), bookmarks: true, ..WatchOptions::default() };
    registry.watch(Target::new(resource(kind).expect("served"), "", ""), &options).expect("followed")
}
