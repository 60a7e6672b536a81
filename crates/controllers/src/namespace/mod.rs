//! Empties a terminating namespace, then removes its finalizer.
//!
//! It processes the kinds in passes: list, delete what exists, list what is left. Pods come first, and the rest only
//! when they are gone, so that no Pod outlives what it depends on. The exception are Pods that have ended and only wait
//! to be counted by their Job: the Job may keep them for the Pods that are to replace them, which cannot be created any
//! more, and only its own deletion frees them. What is left at the end of a pass is reported in the conditions of the
//! namespace (`conditions`). Then the streams of the content show when all of that is gone, and a new pass begins; in
//! case they do not, one begins now and then anyway. Only lists decide: the finalizer is removed after a pass that
//! found nothing.
//!
//! Nothing new can be created in such a namespace, so passes come to an end. All memory is of passes in progress: a
//! controller that is restarted begins with a pass.

mod conditions;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use compact_str::CompactString;
use serde::Deserialize;
use serde_json::{Value, json};
use tally_core::ids::{ObjectUid, Revision};
use tally_core::pod::TRACKING_FINALIZER;
use tally_core::time::{Span, Timestamp};

use conditions::{Found, changed};
use tally_runtime::cache::{Meta, RequestsInFlight, retry_at};
use tally_runtime::controller::{Call, Controller, Input, Kind, Outbox, Reply, Stream, Verb, bring_forward};

/// The maximum number of namespaces processed at once, with one request each. Emptying one is a burst of requests, and
/// it is not urgent.
pub const MOST_UNDER_WAY: usize = 16;

/// How long a namespace that was just deleted is left alone: long enough for every replica of a server to observe the
/// deletion and to refuse new content.
const GRACE: Span = Span::from_seconds(5);

const FINALIZER: &str = "kubernetes";

pub struct Namespaces {
    /// What is emptied, Pods first.
    kinds: Vec<Kind>,
    ending: BTreeMap<CompactString, Ending>,
    /// Namespaces with a step to take. Each is here, or has a request in flight, or waits: never two of these.
    ready: VecDeque<Identity>,
    timers: BTreeSet<(Timestamp, CompactString)>,
    asked: RequestsInFlight<Identity>,
    /// The terminating namespaces of a list of namespaces, while the list is being received.
    listed: Option<BTreeSet<CompactString>>,
}

/// A name, and the UID that is meant by it: another namespace with that name may terminate next.
type Identity = (CompactString, ObjectUid);

/// A namespace with a deletion timestamp.
struct Ending {
    uid: ObjectUid,
    /// As it was last observed, or as a response showed it.
    object: Bytes,
    revision: Revision,
    step: Step,
    found: Found,
    /// What the lists of this pass still contained, and is not known to be gone since.
    left: BTreeSet<ObjectUid>,
    /// What was deleted while a list was in flight, which may have been made before.
    went: BTreeSet<ObjectUid>,
    passes: u32,
    next_pass: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// List what exists of the nth kind.
    Look(usize),
    Delete(usize),
    /// List what is left of it.
    LookAgain(usize),
    Tell,
    Finish,
    /// For the rest to be gone, or for the time of the next pass.
    Wait,
    /// Nothing is left to do here, only for others.
    Done,
}

#[derive(Deserialize)]
struct Namespace {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    finalizers: Vec<CompactString>,
}

#[derive(Deserialize)]
struct Object {
    metadata: Meta,
}

#[derive(Deserialize)]
struct Ended {
    metadata: Meta,
    status: Status,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    phase: CompactString,
}

impl Namespaces {
    /// Empties namespaces of these kinds; kinds without a namespace are ignored.
    pub fn new(kinds: Vec<Kind>) -> Self {
        let mut kinds: Vec<_> = kinds.into_iter().filter(|kind| kind.namespaced).collect();
        // The sort is stable: Pods come first, the others as given.
        kinds.sort_by_key(|kind| *kind != Kind::POD);
        Self {
            kinds,
            ending: BTreeMap::new(),
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
            asked: RequestsInFlight::default(),
            listed: None,
        }
    }

    fn observed(&mut self, bytes: &[u8], now: Timestamp) {
        let Ok(Namespace { metadata, spec }) = serde_json::from_slice(bytes) else { return };
        let uid = ObjectUid::new(&metadata.uid);
        let held = spec.finalizers.iter().any(|finalizer| finalizer == FINALIZER);
        let ends = metadata.deleting() && held;
        if !ends || self.ending.get(&metadata.name).is_some_and(|ending| ending.uid != uid) {
            self.ending.remove(&metadata.name);
        }
        if !ends {
            return;
        }
        if let Some(listed) = &mut self.listed {
            listed.insert(metadata.name.clone());
        }
        let revision = metadata.revision();
        match self.ending.get_mut(&metadata.name) {
            None => {
                let deleted_at = metadata.deletion_timestamp.as_deref().and_then(|at| Timestamp::parse(at).ok());
                let begin_at = deleted_at.map(|at| at + GRACE).filter(|at| *at > now);
                let ending = Ending {
                    uid: uid.clone(),
                    object: Bytes::copy_from_slice(bytes),
                    revision,
                    step: if begin_at.is_some() { Step::Wait } else { Step::Look(0) },
                    found: Found::default(),
                    left: BTreeSet::new(),
                    went: BTreeSet::new(),
                    passes: 0,
                    next_pass: begin_at,
                };
                self.ending.insert(metadata.name.clone(), ending);
                match begin_at {
                    Some(at) => drop(self.timers.insert((at, metadata.name))),
                    None => self.ready.push_back((metadata.name, uid)),
                }
            }
            Some(ending) if ending.revision < revision => {
                ending.object = Bytes::copy_from_slice(bytes);
                ending.revision = revision;
                // The finalizer was removed, and another client has added it again.
                if ending.step == Step::Done {
                    self.begin_pass(&metadata.name);
                }
            }
            Some(_) => {}
        }
    }

    fn begin_pass(&mut self, name: &CompactString) {
        let Some(ending) = self.ending.get_mut(name) else { return };
        if let Some(at) = ending.next_pass.take() {
            self.timers.remove(&(at, name.clone()));
        }
        ending.step = Step::Look(0);
        ending.found = Found::default();
        ending.left.clear();
        self.ready.push_back((name.clone(), ending.uid.clone()));
    }

    /// An object in a namespace was deleted.
    fn went(&mut self, bytes: &[u8]) {
        // Nearly always no namespace is terminating: then no change of the content matters.
        if self.ending.is_empty() {
            return;
        }
        let Ok(Object { metadata }) = serde_json::from_slice::<Object>(bytes) else { return };
        let Some(ending) = self.ending.get_mut(&metadata.namespace) else { return };
        let uid = ObjectUid::new(&metadata.uid);
        let awaited = ending.left.remove(&uid);
        match ending.step {
            Step::Wait if awaited && ending.left.is_empty() => self.begin_pass(&metadata.namespace),
            Step::Look(_) | Step::LookAgain(_) => drop(ending.went.insert(uid)),
            _ => {}
        }
    }

    /// Takes the steps for which there is room.
    fn work(&mut self, now: Timestamp, out: &mut Outbox) {
        while self.asked.len() < MOST_UNDER_WAY
            && let Some((name, uid)) = self.ready.pop_front()
        {
            let Some(ending) = self.ending.get_mut(&name).filter(|ending| ending.uid == uid) else { continue };
            match call(&self.kinds, &name, ending, now) {
                Some(call) => self.asked.ask((name, uid), call, out),
                None => self.passed_over(name, now),
            }
        }
    }

    /// A step that needs no request.
    fn passed_over(&mut self, name: CompactString, now: Timestamp) {
        let Some(ending) = self.ending.get_mut(&name) else { return };
        match ending.step {
            Step::Look(_) => ending.step = Step::Tell,
            Step::Tell if ending.found.is_nothing() => ending.step = Step::Finish,
            Step::Tell => return self.wait(&name, now),
            // The object cannot be decoded: only another client can change that.
            _ => {
                ending.step = Step::Done;
                return;
            }
        }
        self.ready.push_back((name, ending.uid.clone()));
    }

    fn wait(&mut self, name: &CompactString, now: Timestamp) {
        let Some(ending) = self.ending.get_mut(name) else { return };
        // What was left may all have been deleted during the rest of the pass.
        if ending.left.is_empty() && ending.found.failures.is_empty() && !ending.found.is_nothing() {
            return self.begin_pass(name);
        }
        let at = retry_at(now, ending.passes);
        ending.passes += 1;
        ending.step = Step::Wait;
        ending.next_pass = Some(at);
        self.timers.insert((at, name.clone()));
    }

    fn answered(&mut self, (name, uid): Identity, reply: Reply, now: Timestamp) {
        let Some(ending) = self.ending.get_mut(&name).filter(|ending| ending.uid == uid) else { return };
        match (ending.step, reply) {
            (Step::Look(nth), Reply::Listed { items, .. }) => {
                ending.step = if items.is_empty() { Step::Look(nth + 1) } else { Step::Delete(nth) };
            }
            // A kind that is not served has no objects.
            (Step::Look(nth), Reply::Refused(refusal)) if matches!(refusal.code, 404 | 405) => {
                ending.step = Step::Look(nth + 1);
            }
            (Step::Delete(nth), reply) => {
                if !reply.is_done() {
                    ending.found.failures.push(trouble(&reply));
                }
                ending.step = Step::LookAgain(nth);
            }
            (Step::LookAgain(nth), Reply::Listed { items, .. }) => {
                let Some(kind) = self.kinds.get(nth) else { return };
                let went = std::mem::take(&mut ending.went);
                for bytes in &items {
                    // An object that cannot be decoded is left nevertheless.
                    let metadata = serde_json::from_slice(bytes).map(|object: Object| object.metadata);
                    let metadata = metadata.unwrap_or_default();
                    ending.found.add(kind, &metadata.finalizers);
                    ending.left.insert(ObjectUid::new(&metadata.uid));
                }
                ending.left.retain(|uid| !went.contains(uid));
                // Pods depend on the rest: it waits for them.
                let uncounted = ending.passes > 0 && items.iter().all(|pod| waits_for_its_job(pod));
                let stop = *kind == Kind::POD && !items.is_empty() && !uncounted;
                ending.step = if stop { Step::Tell } else { Step::Look(nth + 1) };
            }
            (Step::Look(nth) | Step::LookAgain(nth), reply) => {
                ending.found.failures.push(trouble(&reply));
                ending.step = Step::Look(nth + 1);
            }
            (Step::Tell, Reply::Done(bytes)) => {
                ending.learn(&bytes);
                if !ending.found.is_nothing() {
                    return self.wait(&name, now);
                }
                ending.step = Step::Finish;
            }
            // Gone, or without the finalizer; the stream will show it.
            (Step::Finish, Reply::Done(_) | Reply::DoneWithStatus) => {
                ending.step = Step::Done;
                return;
            }
            (Step::Tell | Step::Finish, reply) if reply.is_not_found() => {
                ending.step = Step::Done;
                return;
            }
            // Whether or not the status was written, continue later: a pass is always correct.
            _ => return self.wait(&name, now),
        }
        self.ready.push_back((name, uid));
    }

    fn fire(&mut self, now: Timestamp) {
        while let Some((at, name)) = self.timers.first().filter(|(at, _)| *at <= now).cloned() {
            self.timers.remove(&(at, name.clone()));
            if self.ending.get(&name).is_some_and(|ending| ending.next_pass == Some(at)) {
                self.begin_pass(&name);
            }
        }
    }

    /// A list instead of events: it may not have shown all deletions.
    fn look_everywhere(&mut self) {
        let waiting = self.ending.iter().filter(|(_, ending)| ending.step == Step::Wait && ending.passes > 0);
        let waiting: Vec<_> = waiting.map(|(name, _)| name.clone()).collect();
        waiting.iter().for_each(|name| self.begin_pass(name));
    }
}

impl Ending {
    /// The object as our own write stored it: the next write builds on it.
    fn learn(&mut self, bytes: &Bytes) {
        if let Ok(Object { metadata }) = serde_json::from_slice(bytes)
            && metadata.revision() > self.revision
        {
            self.revision = metadata.revision();
            self.object = bytes.clone();
        }
    }
}

/// The request of the next step. None: it needs none.
fn call(kinds: &[Kind], name: &str, ending: &mut Ending, now: Timestamp) -> Option<Call> {
    match ending.step {
        Step::Look(nth) | Step::LookAgain(nth) => {
            ending.went.clear();
            Some(Call::new(Verb::List, *kinds.get(nth)?, name, ""))
        }
        Step::Delete(nth) => {
            let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
            Some(Call::new(Verb::DeleteCollection, *kinds.get(nth)?, name, "").body(&options))
        }
        Step::Tell => {
            let object: Value = serde_json::from_slice(&ending.object).ok()?;
            let conditions = changed(&object, &ending.found, now)?;
            let body = json!({
                "metadata": {"uid": ending.uid, "resourceVersion": ending.revision.to_string()},
                "status": {"conditions": conditions},
            });
            Some(Call::new(Verb::MergePatch, Kind::NAMESPACE, "", name).subresource("status").body(&body))
        }
        Step::Finish => {
            // The whole object: fields that it does not name would be removed.
            let mut object: Value = serde_json::from_slice(&ending.object).ok()?;
            object["apiVersion"] = "v1".into();
            object["kind"] = "Namespace".into();
            object.pointer_mut("/spec/finalizers")?.as_array_mut()?.retain(|finalizer| finalizer != FINALIZER);
            Some(Call::new(Verb::Update, Kind::NAMESPACE, "", name).subresource("finalize").body(&object))
        }
        Step::Wait | Step::Done => None,
    }
}

/// It has ended, and its Job has not counted it.
fn waits_for_its_job(pod: &[u8]) -> bool {
    let Ok(Ended { metadata, status }) = serde_json::from_slice(pod) else { return false };
    metadata.finalizers == [TRACKING_FINALIZER] && matches!(status.phase.as_str(), "Succeeded" | "Failed")
}

fn trouble(reply: &Reply) -> String {
    match reply {
        Reply::Refused(refusal) => refusal.message.clone(),
        _ => "the server did not answer".to_owned(),
    }
}

impl Controller for Namespaces {
    fn name(&self) -> &'static str {
        "namespace"
    }

    fn streams(&self) -> Vec<Stream> {
        let content = self.kinds.iter().copied().map(Stream::metadata);
        std::iter::once(Stream::of(Kind::NAMESPACE)).chain(content).collect()
    }

    fn handle(&mut self, input: Input, now: Timestamp, out: &mut Outbox) {
        match input {
            Input::Apply(Kind::NAMESPACE, bytes) => self.observed(&bytes, now),
            Input::Delete(Kind::NAMESPACE, bytes) => {
                if let Ok(Object { metadata }) = serde_json::from_slice(&bytes) {
                    self.ending.remove(&metadata.name);
                }
            }
            Input::Delete(_, bytes) => self.went(&bytes),
            Input::Init(Kind::NAMESPACE) => self.listed = Some(BTreeSet::new()),
            Input::InitDone(Kind::NAMESPACE, _) => {
                let listed = self.listed.take().unwrap_or_default();
                self.ending.retain(|name, _| listed.contains(name));
            }
            Input::InitDone(..) => self.look_everywhere(),
            Input::Response { request, reply, .. } => {
                if let Some(identity) = self.asked.answered(request) {
                    self.answered(identity, reply, now);
                }
            }
            Input::ClockSetBack(by) => {
                bring_forward(&mut self.timers, by);
                self.ending.values_mut().filter_map(|ending| ending.next_pass.as_mut()).for_each(|at| *at = *at - by);
            }
            Input::Init(_) | Input::Apply(..) | Input::Bookmark(..) | Input::Tick => {}
        }
        self.fire(now);
        self.work(now, out);
        out.wake_at = self.timers.first().map(|(at, _)| *at);
    }
}
