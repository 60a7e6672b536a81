//! A cluster in one thread: controllers on the real registry, with a store in memory and a clock that advances only on
//! request. Requests of controllers are carried out at once.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use futures_util::FutureExt;
use serde_json::{Value, json};
use tally_api::catalog;
use tally_api::options::WatchOptions;
use tally_core::ids::Revision;
use tally_core::time::Timestamp;
use tally_embedded::{perform, resource};
use tally_registry::{Env, Registry, Target, WatchEvent, WatchStream};
use tally_runtime::controller::{Call, Controller, Event, Input, Kind, Outbox, Reply, Stream, Verb};
use tally_store::{Store, StoreOptions};

/// More rounds of input than this mean that a controller triggers itself.
const MOST_ROUNDS: usize = 100_000;

pub fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the memory store never waits")
}

/// Every kind whose objects are stored, without Events.
pub fn kinds() -> Vec<Kind> {
    let kept = catalog::resources().iter().filter(|row| !catalog::is_virtual(row) && row.kind != "Event");
    kept.map(|row| Kind::new(row.group, row.version, row.kind, row.plural, row.namespaced)).collect()
}

#[derive(Default)]
struct Counted {
    millis: Arc<AtomicI64>,
    drawn: AtomicU32,
}

impl Env for Counted {
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

struct Running {
    controller: Box<dyn Controller>,
    streams: Vec<Followed>,
    out: Outbox,
}

struct Followed {
    stream: Stream,
    watch: WatchStream,
    /// The initial state has been delivered completely.
    complete: bool,
}

pub type Intercept = Box<dyn FnMut(&Call) -> Option<Reply>>;

pub struct Cluster {
    pub registry: Registry,
    millis: Arc<AtomicI64>,
    controllers: Vec<Running>,
    /// Streams of these kinds are paused: their controllers observe no changes.
    pub held: BTreeSet<Kind>,
    /// Responds to a request instead of the registry, if it returns something.
    pub intercept: Intercept,
    /// Every request of a controller, as `Delete pods default/a`.
    pub log: Vec<String>,
    pub events: Vec<Event>,
}

impl Cluster {
    pub fn new(controllers: Vec<Box<dyn Controller>>) -> Self {
        let world = Counted::default();
        world.millis.store(1_700_000_000_000, Ordering::Relaxed);
        let millis = world.millis.clone();
        let registry = Registry::new(Store::memory(StoreOptions::default()), Box::new(world));
        now(registry.begin()).expect("a cluster begins");
        let mut cluster = Self {
            registry,
            millis,
            controllers: Vec::new(),
            held: BTreeSet::new(),
            intercept: Box::new(|_| None),
            log: Vec::new(),
            events: Vec::new(),
        };
        controllers.into_iter().for_each(|controller| cluster.start(controller));
        cluster.settle();
        cluster
    }

    /// Adds a controller, which knows nothing yet.
    pub fn start(&mut self, controller: Box<dyn Controller>) {
        let mut running = Running { streams: Vec::new(), controller, out: Outbox::default() };
        for stream in running.controller.streams() {
            running.streams.push(self.follow(stream, &mut running.controller, &mut running.out));
        }
        self.controllers.push(running);
    }

    /// Ends all controllers: for them this is a crash.
    pub fn stop(&mut self) {
        self.controllers.clear();
    }

    pub fn now(&self) -> Timestamp {
        self.registry.now()
    }

    /// Lets controllers act until none has anything to do now.
    pub fn settle(&mut self) {
        for _ in 0..MOST_ROUNDS {
            if !self.round() {
                return;
            }
        }
        panic!("the controllers never come to rest: {:?}", self.log.iter().rev().take(20).collect::<Vec<_>>());
    }

    /// Advances time, from one wake-up time of a controller to the next.
    pub fn pass(&mut self, seconds: i64) {
        let end = self.now().millis() + seconds * 1000;
        self.settle();
        while let Some(wake) = self.next_wake().filter(|wake| *wake <= end) {
            self.millis.store(wake.max(self.now().millis()), Ordering::Relaxed);
            self.settle();
        }
        self.millis.store(end, Ordering::Relaxed);
    }

    /// Never before the wake-up time: the clock counts milliseconds, controllers may use finer times.
    fn next_wake(&self) -> Option<i64> {
        let wakes = self.controllers.iter().filter_map(|running| running.out.wake_at);
        wakes
            .min()
            .map(|wake| if Timestamp::from_millis(wake.millis()) < wake { wake.millis() + 1 } else { wake.millis() })
    }

    /// Delivers all pending input to every controller. False: there was none.
    fn round(&mut self) -> bool {
        let mut controllers = std::mem::take(&mut self.controllers);
        let mut busy = false;
        for running in &mut controllers {
            busy |= self.feed(running);
            if running.out.wake_at.is_some_and(|wake| wake <= self.now()) {
                running.out.wake_at = None;
                running.controller.handle(Input::Tick, self.now(), &mut running.out);
                busy = true;
            }
            busy |= self.carry_out(running);
        }
        self.controllers = controllers;
        busy
    }

    fn feed(&mut self, running: &mut Running) -> bool {
        let mut busy = false;
        for at in 0..running.streams.len() {
            let kind = running.streams[at].stream.kind;
            if self.held.contains(&kind) {
                continue;
            }
            while let Some(event) = running.streams[at].watch.try_next() {
                busy = true;
                let followed = &mut running.streams[at];
                let input = match &event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => Input::Apply(kind, object.clone()),
                    WatchEvent::Deleted(object) => Input::Delete(kind, object.clone()),
                    WatchEvent::Bookmark { revision, initial_events_end: true } => {
                        followed.complete = true;
                        Input::InitDone(kind, Revision(*revision))
                    }
                    WatchEvent::Bookmark { .. } if !followed.complete => continue,
                    WatchEvent::Bookmark { revision, .. } => Input::Bookmark(kind, Revision(*revision)),
                    WatchEvent::Failed(_) => {
                        let stream = followed.stream;
                        running.streams[at] = self.follow(stream, &mut running.controller, &mut running.out);
                        continue;
                    }
                };
                running.controller.handle(input, self.now(), &mut running.out);
            }
        }
        busy
    }

    fn follow(&self, stream: Stream, controller: &mut Box<dyn Controller>, out: &mut Outbox) -> Followed {
        let served = resource(stream.kind).expect("served");
        let options = WatchOptions { initial_events: Some(true), bookmarks: true, ..WatchOptions::default() };
        let watch = self.registry.watch(Target::new(served, "", ""), &options).expect("followed");
        controller.handle(Input::Init(stream.kind), self.now(), out);
        Followed { stream, watch, complete: false }
    }

    fn carry_out(&mut self, running: &mut Running) -> bool {
        self.events.append(&mut running.out.events);
        running.out.metrics.clear();
        let requests = std::mem::take(&mut running.out.requests);
        let busy = !requests.is_empty();
        for request in requests {
            let call = &request.call;
            let place = [&call.namespace, &call.name].map(|part| part.as_str()).join("/");
            let sub = if call.subresource.is_empty() { "" } else { " " };
            self.log.push(format!("{:?} {} {place}{sub}{}", call.verb, call.kind.plural, call.subresource));
            let reply = (self.intercept)(call).unwrap_or_else(|| now(perform(&self.registry, call)));
            let served_at = Some(self.now());
            let input = Input::Response { request: request.id, reply, served_at };
            running.controller.handle(input, self.now(), &mut running.out);
        }
        busy
    }

    /// A request of a user, which is expected to succeed. Null if the response is a Status.
    pub fn ask(&self, call: &Call) -> Value {
        match now(perform(&self.registry, call)) {
            Reply::Done(bytes) => serde_json::from_slice(&bytes).expect("JSON"),
            Reply::DoneWithStatus => Value::Null,
            reply => panic!("{call:?}: {reply:?}"),
        }
    }

    /// The object as it is stored, without `apiVersion` and `kind`.
    pub fn create(&self, kind: Kind, namespace: &str, object: &Value) -> Value {
        self.ask(&Call::new(Verb::Create, kind, namespace, "").body(object))
    }

    /// None: there is no such object.
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Value> {
        match now(perform(&self.registry, &Call::new(Verb::Get, kind, namespace, name))) {
            Reply::Done(bytes) => Some(serde_json::from_slice(&bytes).expect("JSON")),
            reply if reply.is_not_found() => None,
            reply => panic!("{reply:?}"),
        }
    }

    pub fn list(&self, kind: Kind, namespace: &str) -> Vec<Value> {
        match now(perform(&self.registry, &Call::new(Verb::List, kind, namespace, ""))) {
            Reply::Listed { items, .. } => {
                items.iter().map(|bytes| serde_json::from_slice(bytes).expect("JSON")).collect()
            }
            reply => panic!("{reply:?}"),
        }
    }

    /// A merge patch.
    pub fn merge(&self, kind: Kind, namespace: &str, name: &str, patch: &Value) -> Value {
        self.ask(&Call::new(Verb::MergePatch, kind, namespace, name).body(patch))
    }

    pub fn merge_status(&self, kind: Kind, namespace: &str, name: &str, patch: &Value) -> Value {
        self.ask(&Call::new(Verb::MergePatch, kind, namespace, name).subresource("status").body(patch))
    }

    /// `options`: DeleteOptions, or null.
    pub fn delete(&self, kind: Kind, namespace: &str, name: &str, options: &Value) -> Value {
        let call = Call::new(Verb::Delete, kind, namespace, name);
        self.ask(&if options.is_null() { call } else { call.body(options) })
    }

    /// A Pod of the simplest kind, bound to a node or not.
    pub fn pod(name: &str, node: Option<&str>) -> Value {
        json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"},
        })
    }
}
