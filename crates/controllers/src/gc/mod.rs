//! The garbage collector: objects whose owners are all gone are deleted; an owner that is deleted in the foreground is
//! removed after those of its dependents that block it; one that is deleted with the orphan policy releases its
//! dependents first.
//!
//! It follows the metadata of every kind it is given and keeps a graph of ownership, by UID (`graph`). Whenever
//! something near an object changes, the object is examined again (`decide`), and at most one request about it is in
//! flight. Nothing is deleted because something was not observed: the streams are independent, so an owner that no
//! stream has shown is read from the server, and one whose deletion was shown is gone. In the other direction, a
//! finalizer is removed only when all streams are as far as the deletion that they show: a dependent created before it
//! would be missed.
//!
//! Deletes are conditional on the UID and the revision on which they were decided, patches on the UID; a conflict means
//! that the stream will deliver a newer version, which is decided on then.

mod decide;
mod graph;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tally_core::ids::{ObjectUid, Revision};
use tally_core::pod::PodView;
use tally_core::time::{Span, Timestamp};

use decide::{Decision, call, decide, misplaced_owner};
use graph::{Effect, Graph, Look, Observed, OwnerLocation};
use tally_runtime::cache::{Meta, RequestsInFlight, retry_at};
use tally_runtime::controller::{Controller, Input, Kind, Object, Outbox, Reply, Stream, bring_forward};

/// The maximum number of requests in flight. The dependents of one owner can be a hundred thousand: they wait here, as
/// UIDs, not as requests.
pub const MOST_UNDER_WAY: usize = 64;

/// How long to wait for streams that are behind. A server that sends bookmarks in time sends them sooner; for another
/// one the wait would be a minute, or endless.
const PATIENCE: Span = Span::from_millis(1000);

pub struct GarbageCollector {
    graph: Graph,
    /// Objects to examine, each once.
    queue: VecDeque<ObjectUid>,
    asked: RequestsInFlight<Purpose>,
    /// For objects about which a request was sent or is to be sent.
    conduct: BTreeMap<ObjectUid, Conduct>,
    timers: BTreeSet<(Timestamp, ObjectUid)>,
    /// Objects to examine again when all streams have come this far.
    behind: BTreeSet<(Revision, ObjectUid)>,
}

#[derive(Debug)]
enum Purpose {
    /// A change of the object as of this revision.
    Act(Act),
    /// A read of the owner with this UID.
    Look(ObjectUid, OwnerLocation),
}

#[derive(Debug)]
struct Act {
    uid: ObjectUid,
    at: Revision,
    /// The object stays and is changed: a response at the same revision means that nothing was done.
    changes: bool,
}

#[derive(Debug, Default)]
struct Conduct {
    asked: bool,
    /// The change is visible from this revision on. Until then the object looks unchanged.
    shows_at: Revision,
    failures: u32,
    not_before: Option<Timestamp>,
    patient_until: Option<Timestamp>,
}

fn meta(object: &Object) -> Option<Meta> {
    Meta::of(object).filter(|meta| !meta.uid.is_empty())
}

/// Tells `read` what ownership needs of an object. None: its metadata cannot be decoded.
fn observed<T>(kind: Kind, object: &Object, read: impl FnOnce(&Observed<'_>) -> T) -> Option<T> {
    // The view of a Pod is there already, or another controller will use it.
    match if kind == Kind::POD { PodView::of(object).ok() } else { None } {
        Some(pod) => Some(read(&Observed::from(&*pod))),
        None => meta(object).map(|meta| read(&Observed::from(&meta))),
    }
}

impl GarbageCollector {
    /// Follows these kinds. An owner of another kind is assumed to exist; an object of another kind is never deleted.
    pub fn new(kinds: Vec<Kind>) -> Self {
        Self {
            graph: Graph::new(kinds),
            queue: VecDeque::new(),
            asked: RequestsInFlight::default(),
            conduct: BTreeMap::new(),
            timers: BTreeSet::new(),
            behind: BTreeSet::new(),
        }
    }

    fn observed(&mut self, kind: u16, object: &Observed<'_>) {
        self.graph.reaches(kind, object.revision);
        let effect = self.graph.observe(kind, object);
        self.spread(&object.uid, effect);
        self.enqueue(&object.uid);
    }

    fn removed(&mut self, uid: &ObjectUid) {
        let Some(effect) = self.graph.remove(uid) else { return };
        self.conduct.remove(uid);
        self.spread(uid, effect);
    }

    fn spread(&mut self, uid: &ObjectUid, effect: Effect) {
        effect.owners.iter().for_each(|owner| self.enqueue(owner));
        if effect.dependents {
            self.enqueue_dependents(uid);
        }
    }

    fn enqueue_dependents(&mut self, uid: &ObjectUid) {
        let dependents = self.graph.owned(uid).map(|owned| owned.dependents.iter().cloned().collect::<Vec<_>>());
        dependents.unwrap_or_default().iter().for_each(|dependent| self.enqueue(dependent));
    }

    fn enqueue(&mut self, uid: &ObjectUid) {
        if let Some(node) = self.graph.node_mut(uid).filter(|node| !node.queued) {
            node.queued = true;
            self.queue.push_back(uid.clone());
        }
    }

    fn work(&mut self, now: Timestamp, out: &mut Outbox) {
        while self.asked.len() < MOST_UNDER_WAY
            && let Some(uid) = self.queue.pop_front()
        {
            self.examine(&uid, now, out);
        }
    }

    fn examine(&mut self, uid: &ObjectUid, now: Timestamp, out: &mut Outbox) {
        let Some(node) = self.graph.node_mut(uid) else { return };
        node.queued = false;
        let (at, since) = (node.revision, node.waits_since);
        if let Some(conduct) = self.conduct.get(uid)
            && (conduct.asked || conduct.shows_at > at || conduct.not_before.is_some_and(|at| at > now))
        {
            return;
        }
        let Some(node) = self.graph.node(uid) else { return };
        let event = if node.reported { None } else { misplaced_owner(&self.graph, uid, node) };
        let decision = decide(&self.graph, uid, node);
        let call = call(&self.graph, uid, node, &decision);
        if let (Some(event), Some(node)) = (event, self.graph.node_mut(uid)) {
            node.reported = true;
            out.events.push(event);
        }
        match decision {
            // An owner exists before the objects that name it: observing it is cheaper than reading it.
            Decision::Look(..) if !self.caught_up(uid, at, now) => return,
            Decision::Finish(_) if !self.caught_up(uid, since, now) => return,
            Decision::Nothing => {
                self.conduct.remove(uid);
            }
            _ => {}
        }
        let Some(call) = call else { return };
        let purpose = match decision {
            Decision::Look(owner, place) => {
                if let Some(owned) = self.graph.owned_mut(&owner) {
                    owned.looked.insert((*place).clone(), Look::Asked);
                }
                Purpose::Look(owner, (*place).clone())
            }
            _ => {
                self.conduct.entry(uid.clone()).or_default().asked = true;
                let changes = matches!(decision, Decision::Release(_) | Decision::Unblock(_));
                Purpose::Act(Act { uid: uid.clone(), at, changes })
            }
        };
        self.asked.ask(purpose, call, out);
    }

    /// Whether everything up to `since` has been observed, or has been waited for long enough. If not, the object is
    /// examined again when it has been.
    fn caught_up(&mut self, uid: &ObjectUid, since: Revision, now: Timestamp) -> bool {
        if self.graph.reached() >= since {
            return true;
        }
        let listing = self.graph.is_listing();
        let until = self.conduct.entry(uid.clone()).or_default().patient_until.get_or_insert(now + PATIENCE);
        if *until <= now {
            if !listing {
                return true;
            }
            *until = now + PATIENCE;
        }
        self.timers.insert((*until, uid.clone()));
        self.behind.insert((since, uid.clone()));
        false
    }

    /// A stream has advanced.
    fn advanced(&mut self) {
        if self.behind.is_empty() {
            return;
        }
        let reached = self.graph.reached();
        while let Some((since, uid)) = self.behind.first().filter(|(since, _)| *since <= reached).cloned() {
            self.behind.remove(&(since, uid.clone()));
            self.enqueue(&uid);
        }
    }

    fn answered(&mut self, purpose: Purpose, reply: &Reply, now: Timestamp) {
        match purpose {
            Purpose::Act(act) => self.acted(act, reply, now),
            Purpose::Look(owner, place) => {
                let absent = match reply {
                    Reply::Done(object) => meta(object).is_some_and(|found| ObjectUid::new(&found.uid) != owner),
                    reply => reply.is_not_found(),
                };
                self.looked(&owner, place, absent, now);
            }
        }
    }

    fn acted(&mut self, Act { uid, at, changes }: Act, reply: &Reply, now: Timestamp) {
        let next = Revision(at.0 + 1);
        let shows_at = match reply {
            Reply::Done(object) => {
                let revision = meta(object).map_or(Revision(0), |meta| meta.revision());
                (revision > at || !changes).then_some(revision.max(next))
            }
            Reply::DoneWithStatus => Some(next),
            // Gone, or changed: either way the stream will show it.
            reply if reply.is_not_found() || reply.is_conflict() => Some(next),
            _ => None,
        };
        let Some(conduct) = self.conduct.get_mut(&uid) else { return };
        conduct.asked = false;
        match shows_at {
            Some(shows_at) => {
                conduct.shows_at = shows_at;
                conduct.failures = 0;
            }
            None => {
                let again = retry_at(now, conduct.failures);
                conduct.failures += 1;
                conduct.not_before = Some(again);
                self.timers.insert((again, uid.clone()));
            }
        }
        self.enqueue(&uid);
    }

    fn looked(&mut self, owner: &ObjectUid, place: OwnerLocation, absent: bool, now: Timestamp) {
        // Without an entry, no object names this owner any more.
        let Some(owned) = self.graph.owned_mut(owner) else { return };
        if absent {
            owned.looked.insert(place, Look::Absent);
        } else {
            owned.looked.insert(place, Look::Unclear);
            let again = retry_at(now, owned.looks);
            owned.looks += 1;
            self.timers.insert((again, owner.clone()));
        }
        self.enqueue_dependents(owner);
    }

    fn clock_set_back(&mut self, by: Span) {
        bring_forward(&mut self.timers, by);
        for conduct in self.conduct.values_mut() {
            let times = [&mut conduct.not_before, &mut conduct.patient_until];
            times.into_iter().flatten().for_each(|at| *at = *at - by);
        }
    }

    fn fire(&mut self, now: Timestamp) {
        while let Some((at, uid)) = self.timers.first().filter(|(at, _)| *at <= now).cloned() {
            self.timers.remove(&(at, uid.clone()));
            self.enqueue(&uid);
            if let Some(owned) = self.graph.owned_mut(&uid)
                && owned.looked.values().any(|look| *look == Look::Unclear)
            {
                owned.looked.retain(|_, look| *look != Look::Unclear);
                self.enqueue_dependents(&uid);
            }
        }
    }
}

impl Controller for GarbageCollector {
    fn name(&self) -> &'static str {
        "gc"
    }

    fn streams(&self) -> Vec<Stream> {
        self.graph.kinds.iter().copied().map(Stream::metadata).collect()
    }

    fn handle(&mut self, input: Input, now: Timestamp, out: &mut Outbox) {
        match input {
            Input::Init(kind) => self.graph.kind(kind).into_iter().for_each(|kind| self.graph.list_begins(kind)),
            Input::Apply(kind, object) => {
                if let Some(number) = self.graph.kind(kind) {
                    // The server has stored it, so it exists, even if its metadata cannot be decoded.
                    observed(kind, &object, |object| self.observed(number, object));
                }
            }
            Input::Delete(kind, object) => {
                if let Some(number) = self.graph.kind(kind) {
                    observed(kind, &object, |object| {
                        self.graph.reaches(number, object.revision);
                        self.removed(&object.uid);
                    });
                }
            }
            Input::InitDone(kind, at) => {
                if let Some(kind) = self.graph.kind(kind) {
                    let missing = self.graph.list_ends(kind, at);
                    missing.iter().for_each(|uid| self.removed(uid));
                }
            }
            Input::Bookmark(kind, at) => {
                self.graph.kind(kind).into_iter().for_each(|kind| self.graph.reaches(kind, at));
            }
            Input::Response { request, reply, .. } => {
                if let Some(purpose) = self.asked.answered(request) {
                    self.answered(purpose, &reply, now);
                }
            }
            Input::ClockSetBack(by) => self.clock_set_back(by),
            Input::Tick => {}
        }
        self.advanced();
        self.fire(now);
        // Before everything has been listed, most owners would have to be read.
        if !self.queue.is_empty() && self.graph.is_complete() {
            self.work(now, out);
        }
        out.wake_at = self.timers.first().map(|(at, _)| *at);
    }
}
