//! One object with a fixed name in every namespace, as long as the namespace is not terminating: created if it is
//! missing, repaired if it was changed.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use compact_str::CompactString;
use serde::Deserialize;
use serde_json::Value;
use tally_core::ids::Revision;
use tally_core::time::Timestamp;

use tally_runtime::cache::{CacheChange, Meta, ObjectCache, RequestsInFlight, View, retry_at};
use tally_runtime::controller::{Call, Controller, Input, Kind, Outbox, Reply, Stream, Verb, bring_forward};

/// The maximum number of requests in flight: thousands of namespaces must not displace all other requests at the start.
const MOST_UNDER_WAY: usize = 16;

/// The definition of the object.
pub trait Rule: Send {
    const CONTROLLER: &'static str;
    const NAME: &'static str;
    const STREAM: Stream;

    /// A new object, without its namespace.
    fn wanted(&self) -> Value;

    /// The object as it should be, with its current revision; None if it is as it should be.
    fn repaired(&self, object: &[u8]) -> Option<Value>;
}

pub struct PerNamespace<R> {
    rule: R,
    namespaces: ObjectCache<Namespace>,
    objects: ObjectCache<Held>,
    /// The revision up to which the stream of objects has been observed.
    seen: Revision,
    /// Namespaces to check as soon as there is room.
    due: BTreeSet<CompactString>,
    /// The pending step of each namespace. At most one at a time.
    steps: BTreeMap<CompactString, Step>,
    timers: BTreeSet<(Timestamp, CompactString)>,
    awaited: BTreeSet<(Revision, CompactString)>,
    failures: BTreeMap<CompactString, u32>,
    asked: RequestsInFlight<CompactString>,
}

#[derive(Clone, Copy)]
enum Step {
    Asked,
    /// Written, and not yet observed: the object cache is older.
    Await,
    /// It failed, and is retried at this time.
    Retry(Timestamp),
}

#[derive(Deserialize)]
struct Namespace {
    metadata: Meta,
}

impl View for Namespace {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

struct Held {
    meta: Meta,
    /// The object to write if it must be repaired.
    repaired: Option<Bytes>,
}

impl View for Held {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

fn meta(object: &[u8]) -> Option<Meta> {
    serde_json::from_slice::<Namespace>(object).ok().map(|object| object.metadata)
}

impl<R: Rule> PerNamespace<R> {
    pub fn new(rule: R) -> Self {
        Self {
            rule,
            namespaces: ObjectCache::default(),
            objects: ObjectCache::default(),
            seen: Revision(0),
            due: BTreeSet::new(),
            steps: BTreeMap::new(),
            timers: BTreeSet::new(),
            awaited: BTreeSet::new(),
            failures: BTreeMap::new(),
            asked: RequestsInFlight::default(),
        }
    }

    fn namespace_seen(&mut self, object: &[u8]) {
        let Some(metadata) = meta(object) else { return };
        let (name, deleting) = (metadata.name.clone(), metadata.deleting());
        match self.namespaces.observe(Namespace { metadata }) {
            CacheChange::Stale => {}
            CacheChange::Changed(old) if old.metadata.deleting() == deleting => {}
            CacheChange::New | CacheChange::Changed(_) => {
                self.due.insert(name);
            }
        }
    }

    fn object_seen(&mut self, object: &[u8], listing: bool) {
        let Some(meta) = meta(object) else { return };
        let at = meta.revision();
        if meta.name == R::NAME {
            let namespace = meta.namespace.clone();
            let repaired = self.rule.repaired(object).map(|object| object.to_string().into());
            self.objects.observe(Held { meta, repaired });
            self.due.insert(namespace);
        }
        // The objects of a list are not in the order of revisions.
        if !listing {
            self.followed(at);
        }
    }

    fn object_gone(&mut self, object: &[u8]) {
        let Some(meta) = meta(object) else { return };
        if meta.name == R::NAME && self.objects.gone(&meta).is_some() {
            self.due.insert(meta.namespace.clone());
        }
        self.followed(meta.revision());
    }

    fn followed(&mut self, at: Revision) {
        self.seen = self.seen.max(at);
        while let Some((revision, _)) = self.awaited.first()
            && *revision <= self.seen
        {
            if let Some((_, namespace)) = self.awaited.pop_first() {
                self.steps.remove(&namespace);
                self.due.insert(namespace);
            }
        }
    }

    fn answered(&mut self, namespace: CompactString, reply: &Reply, now: Timestamp) {
        self.steps.remove(&namespace);
        let written_at = match reply {
            Reply::Done(object) => meta(object).map(|meta| meta.revision()),
            _ => None,
        };
        match written_at {
            Some(revision) if revision > self.seen => {
                self.failures.remove(&namespace);
                self.awaited.insert((revision, namespace.clone()));
                self.steps.insert(namespace, Step::Await);
            }
            Some(_) => {
                self.failures.remove(&namespace);
                self.due.insert(namespace);
            }
            // Whatever the reason, the streams will show it, or it is temporary: check again, with increasing delays.
            None => {
                let failures = self.failures.entry(namespace.clone()).or_default();
                let at = retry_at(now, *failures);
                *failures = failures.saturating_add(1);
                self.timers.insert((at, namespace.clone()));
                self.steps.insert(namespace, Step::Retry(at));
            }
        }
    }

    fn fire(&mut self, now: Timestamp) {
        while let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            if let Some((_, namespace)) = self.timers.pop_first() {
                self.steps.remove(&namespace);
                self.due.insert(namespace);
            }
        }
    }

    fn advance(&mut self, out: &mut Outbox) {
        if !self.namespaces.is_complete() || !self.objects.is_complete() {
            return;
        }
        while self.asked.len() < MOST_UNDER_WAY
            && let Some(namespace) = self.due.pop_first()
        {
            self.look(namespace, out);
        }
    }

    fn look(&mut self, namespace: CompactString, out: &mut Outbox) {
        let alive = self.namespaces.get("", &namespace).is_some_and(|namespace| !namespace.metadata.deleting());
        let call = match self.objects.get(&namespace, R::NAME) {
            _ if !alive => None,
            None => Some(Call::new(Verb::Create, R::STREAM.kind, &namespace, "").body(&self.rule.wanted())),
            // It is being deleted: its end comes next.
            Some(held) if held.meta.deleting() => None,
            Some(held) => held.repaired.as_ref().map(|object| {
                let call = Call::new(Verb::Update, R::STREAM.kind, &namespace, R::NAME);
                call.body(object.clone())
            }),
        };
        match (call, self.steps.get(&namespace)) {
            (Some(call), None) => {
                self.steps.insert(namespace.clone(), Step::Asked);
                self.asked.ask(namespace, call, out);
            }
            // The pending step ends with another check.
            (Some(_), Some(_)) => {}
            (None, step) => {
                if let Some(Step::Retry(at)) = step {
                    self.timers.remove(&(*at, namespace.clone()));
                    self.steps.remove(&namespace);
                }
                self.failures.remove(&namespace);
            }
        }
    }
}

impl<R: Rule> Controller for PerNamespace<R> {
    fn name(&self) -> &'static str {
        R::CONTROLLER
    }

    fn streams(&self) -> Vec<Stream> {
        vec![Stream::metadata(Kind::NAMESPACE), R::STREAM]
    }

    fn handle(&mut self, input: Input, now: Timestamp, out: &mut Outbox) {
        match input {
            Input::Init(Kind::NAMESPACE) => self.namespaces.list_begins(),
            Input::Init(_) => self.objects.list_begins(),
            Input::Apply(Kind::NAMESPACE, object) => self.namespace_seen(&object),
            Input::Apply(_, object) => self.object_seen(&object, !self.objects.is_complete()),
            Input::Delete(Kind::NAMESPACE, object) => {
                if let Some(gone) = meta(&object).and_then(|meta| self.namespaces.gone(&meta)) {
                    self.due.insert(gone.metadata.name);
                }
            }
            Input::Delete(_, object) => self.object_gone(&object),
            Input::InitDone(Kind::NAMESPACE, at) => {
                self.due.extend(self.namespaces.list_ends(at).into_iter().map(|gone| gone.metadata.name));
            }
            Input::InitDone(_, at) => {
                self.due.extend(self.objects.list_ends(at).into_iter().map(|gone| gone.meta.namespace));
                self.followed(at);
            }
            Input::ClockSetBack(by) => {
                bring_forward(&mut self.timers, by);
                for step in self.steps.values_mut() {
                    if let Step::Retry(at) = step {
                        *at = *at - by;
                    }
                }
            }
            Input::Bookmark(Kind::NAMESPACE, _) => {}
            Input::Bookmark(_, at) => self.followed(at),
            Input::Response { request, reply, .. } => {
                if let Some(namespace) = self.asked.answered(request) {
                    self.answered(namespace, &reply, now);
                }
            }
            Input::Tick => {}
        }
        self.fire(now);
        self.advance(out);
        out.wake_at = self.timers.first().map(|(at, _)| *at);
    }
}
