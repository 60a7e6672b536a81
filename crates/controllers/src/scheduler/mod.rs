//! The scheduler of the embedded cluster: assigns Pods to a node that is ready, that they tolerate and select, and that
//! has room for what they request.
//!
//! A Pod that is assigned to a node takes its room there at once, before the request is even sent; the room is freed if
//! the API refuses, or when the stream shows that the Pod has ended. Pods that fit on no node wait in groups of equal
//! requirements (`queue`), and are not considered again before something has changed on a node so that they fit. There
//! is no preemption, and no affinity between Pods.

mod amounts;
mod node;
mod pod;
mod queue;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use compact_str::{CompactString, ToCompactString};
use tally_core::ids::PodUid;
use tally_core::pod::PodView;
use tally_core::time::{Span, Timestamp};

use crate::pod_cache::{CachedPod, KnownPod, PodCache, PodRef};
use node::{CandidateNode, Places};
use pod::{Pod, Requirements};
use queue::{GroupId, Queue, Ticket};
use tally_runtime::cache::{CacheChange, ObjectCache, RequestsInFlight, retry_at, with_condition};
use tally_runtime::controller::{
    Call, Controller, Event, Input, Kind, Object, Outbox, Reference, Reply, Stream, Verb, bring_forward,
};
use tally_value::{Value, json};

/// The maximum number of status writes in flight. They must not delay bindings.
const MOST_TOLD_AT_ONCE: usize = 8;

#[derive(Clone, Copy, Debug)]
pub struct SchedulerOptions {
    /// The maximum number of bindings in flight: enough to keep the API busy, few enough that a state that has changed
    /// meanwhile does not invalidate thousands.
    pub bindings: usize,
    /// How long a Pod waits before its status says why. A Pod that only waits for its turn is not worth a write.
    pub tell_after: Span,
    /// How long a reason is kept before another one is written to the Pods.
    pub retell_after: Span,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self { bindings: 64, tell_after: Span::from_seconds(1), retell_after: Span::from_seconds(10) }
    }
}

pub struct Scheduler {
    options: SchedulerOptions,
    pods: PodCache<Pod>,
    nodes: ObjectCache<Arc<CandidateNode>>,
    places: Places,
    queue: Queue,
    /// Pods that take room, by UID: on which node, and how much.
    taken: HashMap<PodUid, (CompactString, Arc<Requirements>), foldhash::fast::FixedState>,
    /// Where Pods take room as well, until the stream shows their node or their end: the outcome of a binding to this node
    /// is unknown, it is gone, and another one may get its name.
    may_take: BTreeMap<PodUid, Vec<(CompactString, Arc<Requirements>)>>,
    /// Pods that have no node according to the stream, by UID.
    standings: HashMap<PodUid, Standing, foldhash::fast::FixedState>,
    /// Bindings to retry.
    timers: BTreeSet<(Timestamp, PodUid)>,
    asked: RequestsInFlight<SchedulerRequest>,
    binding: usize,
    /// Counts changes on nodes: results from before a change are outdated.
    epoch: u64,
    /// When to check whether the reasons for waiting have changed.
    recheck_at: Option<Timestamp>,
}

#[derive(Debug)]
struct Standing {
    ticket: Ticket,
    namespace: CompactString,
    name: CompactString,
    failures: u32,
    /// The outcome of one of its bindings is unknown: it may have been carried out or may yet be.
    unsure: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Waiting(GroupId),
    /// Assigned to a node. It stays so until the stream shows it, or the API refuses.
    Placed {
        node: CompactString,
        retry: Option<Timestamp>,
    },
    /// The API refused. The stream may show why; if not, the Pod is retried at this time.
    Later(Timestamp),
}

enum SchedulerRequest {
    Bind { pod: PodRef, node: CompactString },
    Tell { pod: PodRef, reason: Arc<str> },
}

impl Default for Scheduler {
    fn default() -> Self {
        Self::new(SchedulerOptions::default())
    }
}

impl Scheduler {
    pub fn new(options: SchedulerOptions) -> Self {
        Self {
            options,
            pods: PodCache::default(),
            nodes: ObjectCache::default(),
            places: Places::default(),
            queue: Queue::default(),
            taken: HashMap::default(),
            may_take: BTreeMap::new(),
            standings: HashMap::default(),
            timers: BTreeSet::new(),
            asked: RequestsInFlight::default(),
            binding: 0,
            epoch: 0,
            recheck_at: None,
        }
    }

    fn node_seen(&mut self, object: &Object, now: Timestamp) {
        let Some(node) = CandidateNode::read(object).map(Arc::new) else { return };
        let stale = matches!(self.nodes.observe(node.clone()), CacheChange::Stale);
        if !stale && self.places.set(&node) {
            self.bind_again(&node.meta.name, now);
            self.changed(&node.meta.name, now);
        }
    }

    /// A node has the name of one that is gone: Pods that may have been bound to that one go there first.
    fn bind_again(&mut self, node: &str, now: Timestamp) {
        let is_it = |(name, _): &(CompactString, Arc<Requirements>)| *name == node;
        let candidates = self.may_take.iter().filter(|(_, places)| places.iter().any(is_it));
        for uid in candidates.map(|(uid, _)| uid.clone()).collect::<Vec<_>>() {
            let Some(standing) = self.standings.get_mut(&uid) else { continue };
            let State::Waiting(group) = standing.state else { continue };
            let Some(places) = self.may_take.get_mut(&uid) else { continue };
            let Some(at) = places.iter().position(is_it) else { continue };
            let (node, requirements) = places.swap_remove(at);
            self.queue.leave(group, &standing.ticket);
            standing.state = State::Placed { node: node.clone(), retry: Some(now) };
            self.timers.insert((now, uid.clone()));
            self.taken.insert(uid, (node, requirements));
        }
    }

    fn node_gone(&mut self, name: &str, now: Timestamp) {
        self.places.remove(name);
        self.changed(name, now);
    }

    /// Something has changed on a node. Pods that wait may fit there now.
    fn changed(&mut self, node: &str, now: Timestamp) {
        self.epoch += 1;
        let places = &self.places;
        self.queue.unblock(|requirements| places.fits(node, requirements));
        if self.recheck_at.is_none() && self.queue.has_blocked() {
            self.recheck_at = Some(now + self.options.retell_after);
        }
    }

    fn pod_seen(&mut self, object: &Object, now: Timestamp) {
        let Some(seen) = PodView::lenient(object) else { return };
        let replaced = match self.pods.observe(&seen) {
            KnownPod::Newer => return,
            KnownPod::Earlier(earlier) if earlier.kept().stays(&seen) => return earlier.stays(),
            KnownPod::Earlier(earlier) => {
                let Some(new) = Pod::read(&seen, object, Some(earlier.kept())) else { return };
                earlier.replace(new);
                None
            }
            KnownPod::Nothing => {
                let Some(new) = Pod::read(&seen, object, None) else { return };
                self.pods.insert(&seen, new)
            }
        };
        if let Some((uid, _)) = replaced {
            self.pod_gone(&uid, now);
        }
        let Some(CachedPod { kept: pod, .. }) = self.pods.get(&seen.uid) else { return };
        let requirements = pod.requirements.clone();
        if pod.unbound {
            let (rank, told) = (pod.rank, pod.told.clone());
            let ticket = Ticket { rank, revision: seen.revision, uid: seen.uid.clone() };
            self.wait(ticket, (seen.namespace.clone(), seen.name.clone()), &requirements, told, now);
            return;
        }
        let taken = (!pod.terminal && !pod.node.is_empty()).then(|| (pod.node.clone(), requirements));
        self.drop_standing(&seen.uid);
        self.take(seen.uid.clone(), taken, now);
        self.outcome_known(&seen.uid, now);
    }

    fn pod_gone(&mut self, uid: &PodUid, now: Timestamp) {
        self.drop_standing(uid);
        self.take(uid.clone(), None, now);
        self.outcome_known(uid, now);
    }

    /// The stream has shown what became of every binding of the Pod.
    fn outcome_known(&mut self, uid: &PodUid, now: Timestamp) {
        for (node, requirements) in self.may_take.remove(uid).unwrap_or_default() {
            self.places.free(&node, &requirements.requests);
            self.changed(&node, now);
        }
    }

    /// Updates the room that a Pod takes.
    fn take(&mut self, uid: PodUid, taken: Option<(CompactString, Arc<Requirements>)>, now: Timestamp) {
        if self.taken.get(&uid) == taken.as_ref() {
            return;
        }
        let old = match &taken {
            Some((node, requirements)) => {
                self.places.take(node, &requirements.requests);
                self.epoch += 1;
                self.taken.insert(uid, (node.clone(), requirements.clone()))
            }
            None => self.taken.remove(&uid),
        };
        if let Some((node, requirements)) = old {
            self.places.free(&node, &requirements.requests);
            self.changed(&node, now);
        }
    }

    /// A Pod without a node: it has an entry already, or joins the queue.
    fn wait(
        &mut self,
        mut ticket: Ticket,
        pod: (CompactString, CompactString),
        requirements: &Arc<Requirements>,
        told: Option<Arc<str>>,
        now: Timestamp,
    ) {
        let mut failures = 0;
        if let Some(known) = self.standings.get(&ticket.uid) {
            let State::Waiting(group) = known.state else { return };
            if self.queue.requirements(group) == Some(requirements) && known.ticket.rank == ticket.rank {
                return;
            }
            // Its requirements may change as long as nothing was decided. It keeps its position.
            ticket.revision = known.ticket.revision;
            failures = known.failures;
            self.drop_standing(&ticket.uid);
        }
        let tell_at = now + self.options.tell_after;
        let group = self.queue.join(ticket.clone(), requirements, told, tell_at);
        let (uid, state) = (ticket.uid.clone(), State::Waiting(group));
        self.standings.insert(uid, Standing { ticket, namespace: pod.0, name: pod.1, failures, unsure: false, state });
    }

    fn drop_standing(&mut self, uid: &PodUid) {
        let Some(standing) = self.standings.remove(uid) else { return };
        match standing.state {
            State::Waiting(group) => {
                self.queue.leave(group, &standing.ticket);
            }
            State::Placed { retry: Some(at), .. } | State::Later(at) => {
                self.timers.remove(&(at, uid.clone()));
            }
            State::Placed { retry: None, .. } => {}
        }
    }

    /// Assigns nodes to waiting Pods, in their order.
    fn place(&mut self, out: &mut Outbox) {
        while self.binding < self.options.bindings
            && let Some((group, ticket, requirements)) = self.queue.head()
        {
            let Some(node) = self.places.find(requirements) else {
                self.queue.block(group);
                continue;
            };
            let (ticket, requirements) = (ticket.clone(), requirements.clone());
            self.queue.leave(group, &ticket);
            self.places.take(&node, &requirements.requests);
            self.epoch += 1;
            self.taken.insert(ticket.uid.clone(), (node.clone(), requirements));
            if let Some(standing) = self.standings.get_mut(&ticket.uid) {
                standing.state = State::Placed { node, retry: None };
            }
            self.bind(&ticket.uid, out);
        }
    }

    fn bind(&mut self, uid: &PodUid, out: &mut Outbox) {
        let Some(standing) = self.standings.get_mut(uid) else { return };
        let State::Placed { node, retry } = &mut standing.state else { return };
        *retry = None;
        let (namespace, name) = (standing.namespace.as_str(), standing.name.as_str());
        let body = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"namespace": namespace, "name": name, "uid": uid.to_string()},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node.as_str()},
        });
        let call = Call::new(Verb::Create, Kind::POD, namespace, name).subresource("binding").body(&body);
        self.binding += 1;
        let node = node.clone();
        self.asked.ask(SchedulerRequest::Bind { pod: standing.pod_ref(), node }, call, out);
    }

    fn bound(&mut self, about: PodRef, node: &str, reply: &Reply, now: Timestamp, out: &mut Outbox) {
        self.binding -= 1;
        if reply.is_done() {
            let message = format!("Successfully assigned {}/{} to {node}", about.namespace, about.name);
            let about = reference(about);
            out.events.push(Event { about, warning: false, reason: "Scheduled".into(), message });
            return;
        }
        // The stream may have been faster, and may even have shown the end of the Pod.
        let uid = &about.uid;
        let Some(standing) = self.standings.get_mut(uid) else { return };
        let State::Placed { retry, .. } = &mut standing.state else { return };
        let at = retry_at(now, standing.failures);
        standing.failures = standing.failures.saturating_add(1);
        self.timers.insert((at, uid.clone()));
        // Once the outcome of a binding is unknown, the refusal of the next one says little: it may be caused by the
        // first, or the first may still be in flight. The stream will show the node, or the end of the Pod. Until then
        // its room is taken, and no other node may be requested.
        standing.unsure |= matches!(reply, Reply::Unknown);
        if standing.unsure {
            *retry = Some(at);
            return;
        }
        standing.state = State::Later(at);
        self.take(uid.clone(), None, now);
    }

    fn retry(&mut self, uid: &PodUid, now: Timestamp, out: &mut Outbox) {
        let Some(standing) = self.standings.get_mut(uid) else { return };
        if let State::Placed { node, retry } = &mut standing.state {
            if self.nodes.get("", node).is_some() {
                self.bind(uid, out);
                return;
            }
            // The node is gone. If the binding was carried out after all, the API refuses the next one. Another node of that
            // name has less room then.
            *retry = None;
            self.may_take.entry(uid.clone()).or_default().extend(self.taken.remove(uid));
        }
        let Some(standing) = self.standings.get_mut(uid) else { return };
        let Some(CachedPod { kept: pod, .. }) = self.pods.get(uid) else { return };
        let (requirements, told) = (&pod.requirements, pod.told.clone());
        let group = self.queue.join(standing.ticket.clone(), requirements, told, now + self.options.tell_after);
        standing.state = State::Waiting(group);
    }

    /// Writes the reason into the status of Pods that have waited for a while.
    fn tell(&mut self, now: Timestamp, out: &mut Outbox) {
        while self.asked.len() - self.binding < MOST_TOLD_AT_ONCE
            && let Some((group, ticket)) = self.queue.next_to_tell(now)
        {
            let (places, keep_for) = (&self.places, self.options.retell_after);
            let find = |requirements: &Requirements| places.diagnosis(requirements);
            let Some(reason) = self.queue.reason(group, (self.epoch, now, keep_for), find) else { return };
            let Some(waiter) = self.queue.waiter(group, &ticket) else { return };
            let known = waiter.told.as_ref() == Some(&reason);
            let pod = self.pods.get(&ticket.uid);
            self.queue.told(group, &ticket, reason.clone());
            if let Some(pod) = pod.filter(|_| !known) {
                let call = Call::new(Verb::StrategicPatch, Kind::POD, &pod.namespace, &pod.name);
                let call = call.subresource("status").body(&condition(&ticket.uid, pod, &reason, now));
                if let Some(pod) = self.standings.get(&ticket.uid).map(Standing::pod_ref) {
                    self.asked.ask(SchedulerRequest::Tell { pod, reason }, call, out);
                }
            }
        }
    }

    fn told(&mut self, about: PodRef, message: &str, reply: &Reply, now: Timestamp, out: &mut Outbox) {
        if reply.is_done() {
            let (reason, message) = ("FailedScheduling".into(), message.to_owned());
            let about = reference(about);
            out.events.push(Event { about, warning: true, reason, message });
        } else if let Some(standing) = self.standings.get(&about.uid)
            && let State::Waiting(group) = standing.state
        {
            self.queue.tell_again(group, &standing.ticket, |failures| retry_at(now, failures));
        }
    }

    fn clock_set_back(&mut self, by: Span) {
        bring_forward(&mut self.timers, by);
        #[allow(clippy::disallowed_methods, reason = "every one of them is changed, in any order")]
        for standing in self.standings.values_mut() {
            if let State::Placed { retry: Some(at), .. } | State::Later(at) = &mut standing.state {
                *at = *at - by;
            }
        }
        self.queue.clock_set_back(by);
        self.recheck_at = self.recheck_at.map(|at| at - by);
    }

    fn fire(&mut self, now: Timestamp, out: &mut Outbox) {
        while let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            if let Some((_, uid)) = self.timers.pop_first() {
                self.retry(&uid, now, out);
            }
        }
        if self.recheck_at.is_some_and(|at| at <= now) {
            self.recheck_at = None;
            for group in self.queue.explained() {
                let places = &self.places;
                let find = |requirements: &Requirements| places.diagnosis(requirements);
                self.queue.reason(group, (self.epoch, now, Span::ZERO), find);
            }
        }
    }
}

impl Standing {
    fn pod_ref(&self) -> PodRef {
        PodRef { namespace: self.namespace.clone(), name: self.name.clone(), uid: self.ticket.uid.clone() }
    }
}

fn reference(pod: PodRef) -> Reference {
    Reference { kind: Kind::POD, namespace: pod.namespace, name: pod.name, uid: pod.uid.to_compact_string() }
}

/// The write is conditional on the revision: a Pod that another scheduler has assigned must not be reported as
/// unscheduled.
fn condition(uid: &PodUid, pod: &CachedPod<Pod>, reason: &str, now: Timestamp) -> Value {
    let mut condition = json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": reason,
    });
    if let Some(generation) = pod.kept.generation {
        condition["observedGeneration"] = generation.into();
    }
    if !pod.kept.refused {
        condition["lastTransitionTime"] = now.truncated().to_string().into();
    }
    let mut status = json!({});
    with_condition(&mut status, &pod.kept.conditions, condition);
    json!({"metadata": {"uid": uid.to_string(), "resourceVersion": pod.revision.to_string()}, "status": status})
}

impl Controller for Scheduler {
    fn name(&self) -> &'static str {
        "default-scheduler"
    }

    fn streams(&self) -> Vec<Stream> {
        vec![Stream::of(Kind::NODE), Stream::of(Kind::POD)]
    }

    fn handle(&mut self, input: Input, now: Timestamp, out: &mut Outbox) {
        match input {
            Input::Init(Kind::NODE) => self.nodes.list_begins(),
            Input::Init(_) => self.pods.list_begins(),
            Input::Apply(Kind::NODE, object) => self.node_seen(&object, now),
            Input::Apply(_, object) => self.pod_seen(&object, now),
            Input::Delete(Kind::NODE, object) => {
                let gone = CandidateNode::read(&object).and_then(|node| self.nodes.gone(&node.meta));
                if let Some(node) = gone {
                    self.node_gone(&node.meta.name, now);
                }
            }
            Input::Delete(_, object) => {
                if let Some(pod) = PodView::lenient(&object)
                    && self.pods.remove(&pod.uid).is_some()
                {
                    self.pod_gone(&pod.uid, now);
                }
            }
            Input::InitDone(Kind::NODE, at) => {
                for node in self.nodes.list_ends(at) {
                    self.node_gone(&node.meta.name, now);
                }
            }
            Input::InitDone(_, at) => {
                for (uid, _) in self.pods.list_ends(at) {
                    self.pod_gone(&uid, now);
                }
            }
            Input::ClockSetBack(by) => self.clock_set_back(by),
            Input::Bookmark(..) | Input::Tick => {}
            Input::Response { request, reply, .. } => match self.asked.answered(request) {
                Some(SchedulerRequest::Bind { pod, node }) => self.bound(pod, &node, &reply, now, out),
                Some(SchedulerRequest::Tell { pod, reason }) => self.told(pod, &reason, &reply, now, out),
                None => {}
            },
        }
        self.fire(now, out);
        // Objects that are not known yet may take room.
        let complete = self.nodes.is_complete() && self.pods.is_complete();
        if complete {
            self.place(out);
            self.tell(now, out);
        }
        let tells = complete && self.asked.len() - self.binding < MOST_TOLD_AT_ONCE;
        let tell_at = self.queue.next_tell_at().filter(|_| tells);
        let times = [self.timers.first().map(|(at, _)| *at), tell_at, self.recheck_at];
        out.wake_at = times.into_iter().flatten().min();
    }
}
