//! Removes Pods that no other controller will end: of nodes that are gone or out of service, deleted before they had a
//! node, and the oldest of those that have ended once there are too many.
//!
//! A Pod is first marked as failed, then deleted at once: controllers that count Pods observe the failure. The status
//! write is conditional on the UID and the revision of the Pod, so a Pod that has just succeeded stays succeeded.
//!
//! Everything is indexed as it is observed. There is a round of work, after a delay, only if there is work; an idle
//! cluster costs nothing.

#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use compact_str::CompactString;
use tally_core::gates::{FeatureGates, Gate};
use tally_core::ids::PodUid;
use tally_core::pod::PodView;
use tally_core::time::{Span, Timestamp};

use crate::pod_cache::{CachedPod, KnownPod, PodCache, PodRef};
use tally_runtime::cache::{CacheChange, ObjectCache, RequestsInFlight, with_condition};
use tally_runtime::controller::{Call, Controller, Input, Kind, Object, Outbox, Reply, Stream, Verb, bring_forward};
use tally_value::{Value, json};
use view::{ObservedNode, Pod, read_node};

/// The maximum number of Pods and nodes processed at a time. The loss of a large node must not displace all other
/// requests.
const MOST_UNDER_WAY: usize = 32;
/// The maximum number of names of nodes that are known to be gone and have no Pods now. More are forgotten: that costs
/// a quarantine.
const MOST_REMEMBERED: usize = 1024;

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

#[derive(Clone, Copy, Debug)]
pub struct PodGcOptions {
    /// GC-1: how long work may wait for a round.
    pub period: Span,
    /// GC-2: how long a node must be missing before it counts as gone.
    pub quarantine: Span,
    /// How many ended Pods may stay. None: all of them.
    pub terminated_pods: Option<usize>,
    pub gates: FeatureGates,
}

impl Default for PodGcOptions {
    fn default() -> Self {
        let (period, quarantine) = (Span::from_seconds(20), Span::from_seconds(40));
        Self { period, quarantine, terminated_pods: Some(12_500), gates: FeatureGates::default() }
    }
}

pub struct PodGc {
    options: PodGcOptions,
    pods: PodCache<Pod>,
    nodes: ObjectCache<ObservedNode>,
    /// Pods by the name of their node.
    by_node: BTreeMap<CompactString, BTreeSet<PodUid>>,
    /// Deleted, and never assigned to a node.
    unscheduled: BTreeSet<PodUid>,
    /// Ended, and not deleted. Evicted ones first, then the oldest, then by name.
    ended: BTreeSet<((bool, Timestamp), PodRef)>,
    /// Nodes that Pods name and that have not been observed.
    missing: BTreeMap<CompactString, Missing>,
    quarantines: BTreeSet<(Timestamp, CompactString)>,
    /// Nodes whose Pods, when deleted, are ended by no kubelet.
    out_of_service: BTreeSet<CompactString>,
    /// The time of the next round of work, if there is work.
    round_at: Option<Timestamp>,
    /// The work of this round.
    todo: BTreeSet<Task>,
    /// Pods with a request in flight, by UID: at most one at a time for each Pod.
    busy: BTreeSet<PodUid>,
    /// Nodes that are being read. Of two responses about one node the older may arrive last, and would be believed.
    looking: BTreeSet<CompactString>,
    asked: RequestsInFlight<PodGcRequest>,
}

/// In the order of execution.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    End(PodRef, Reason),
    Confirm(CompactString),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    Orphaned,
    OutOfService,
    Unscheduled,
    Surplus,
}

#[derive(Clone, Copy)]
enum Missing {
    Until(Timestamp),
    /// The quarantine is per name of a node: Pods that are assigned to it later do not wait again.
    Believed,
}

enum PodGcRequest {
    Fail(PodRef),
    Delete { uid: PodUid },
    ObservedNode(CompactString),
}

impl PodGc {
    pub fn new(options: PodGcOptions) -> Self {
        Self {
            options,
            pods: PodCache::default(),
            nodes: ObjectCache::default(),
            by_node: BTreeMap::new(),
            unscheduled: BTreeSet::new(),
            ended: BTreeSet::new(),
            missing: BTreeMap::new(),
            quarantines: BTreeSet::new(),
            out_of_service: BTreeSet::new(),
            round_at: None,
            todo: BTreeSet::new(),
            busy: BTreeSet::new(),
            looking: BTreeSet::new(),
            asked: RequestsInFlight::default(),
        }
    }

    fn is_complete(&self) -> bool {
        self.nodes.is_complete() && self.pods.is_complete()
    }

    fn pod_seen(&mut self, object: &Object, now: Timestamp) {
        let Some(seen) = PodView::lenient(object) else { return };
        let uid = &seen.uid;
        match self.pods.observe(&seen) {
            KnownPod::Newer => return,
            KnownPod::Earlier(earlier) if earlier.kept().stays_ended(&seen) => return earlier.stays(),
            KnownPod::Earlier(earlier) => {
                let old = earlier.replace(Pod::of(&seen));
                self.unscheduled.remove(uid);
                if let Some(age) = old.age_among_ended() {
                    self.ended.remove(&(age, PodRef::of(&seen)));
                }
                if old.node != seen.node_name {
                    self.leave(uid, &old.node);
                }
            }
            KnownPod::Nothing => {
                if let Some((namesake, old)) = self.pods.insert(&seen, Pod::of(&seen)) {
                    self.forget(&namesake, &old);
                }
            }
        }
        let Some(CachedPod { kept: pod, .. }) = self.pods.get(uid) else { return };
        self.ended.extend(pod.age_among_ended().map(|age| (age, PodRef::of(&seen))));
        if !pod.node.is_empty() {
            self.by_node.entry(pod.node.clone()).or_default().insert(uid.clone());
        } else if pod.is_unscheduled() {
            self.unscheduled.insert(uid.clone());
        }
        self.look_for(&seen.node_name, now);
        self.arm(&seen.node_name, now);
    }

    fn forget(&mut self, uid: &PodUid, pod: &CachedPod<Pod>) {
        self.unscheduled.remove(uid);
        if let Some(age) = pod.kept.age_among_ended() {
            self.ended.remove(&(age, pod.pod_ref(uid)));
        }
        self.leave(uid, &pod.kept.node);
    }

    fn leave(&mut self, uid: &PodUid, node: &CompactString) {
        if let Some(pods) = self.by_node.get_mut(node) {
            pods.remove(uid);
            if pods.is_empty() {
                self.by_node.remove(node);
            }
        }
    }

    fn node_seen(&mut self, object: &Object, now: Timestamp) {
        let Some(node) = read_node(object) else { return };
        let (name, out_of_service) = (node.meta.name.clone(), node.out_of_service);
        if matches!(self.nodes.observe(node), CacheChange::Stale) {
            return;
        }
        self.found(&name);
        if out_of_service {
            self.out_of_service.insert(name.clone());
            self.arm(&name, now);
        } else {
            self.out_of_service.remove(&name);
        }
    }

    fn node_gone(&mut self, name: &CompactString, now: Timestamp) {
        self.out_of_service.remove(name);
        self.look_for(name, now);
    }

    fn found(&mut self, node: &CompactString) {
        if let Some(Missing::Until(at)) = self.missing.remove(node) {
            self.quarantines.remove(&(at, node.clone()));
        }
    }

    /// A node that Pods name and that has not been observed enters quarantine.
    fn look_for(&mut self, node: &CompactString, now: Timestamp) {
        if !self.is_complete()
            || !self.by_node.contains_key(node)
            || self.missing.contains_key(node)
            || self.nodes.get("", node).is_some()
        {
            return;
        }
        self.quarantine(node.clone(), now);
    }

    fn quarantine(&mut self, node: CompactString, now: Timestamp) {
        let at = now + self.options.quarantine;
        self.quarantines.insert((at, node.clone()));
        self.missing.insert(node, Missing::Until(at));
    }

    /// After a list: nodes may be missing, and there may be work.
    fn look_for_all(&mut self, now: Timestamp) {
        let named: Vec<_> = self.by_node.keys().cloned().collect();
        for node in named {
            self.look_for(&node, now);
        }
        if self.has_work() {
            self.round_at.get_or_insert(now + self.options.period);
        }
    }

    /// Schedules a round if there is work now, perhaps on this node.
    fn arm(&mut self, node: &CompactString, now: Timestamp) {
        if self.round_at.is_none() && (self.has_common_work() || self.has_work_on(node)) {
            self.round_at = Some(now + self.options.period);
        }
    }

    fn surplus(&self) -> usize {
        self.options.terminated_pods.map_or(0, |most| self.ended.len().saturating_sub(most))
    }

    fn has_common_work(&self) -> bool {
        !self.unscheduled.is_empty() || self.surplus() > 0
    }

    fn has_work_on(&self, node: &str) -> bool {
        let believed = matches!(self.missing.get(node), Some(Missing::Believed));
        believed && self.of_node(node, Reason::Orphaned).next().is_some()
            || self.out_of_service.contains(node) && self.of_node(node, Reason::OutOfService).next().is_some()
    }

    fn has_work(&self) -> bool {
        let nodes = self.missing.keys().chain(&self.out_of_service);
        self.has_common_work() || nodes.into_iter().any(|node| self.has_work_on(node))
    }

    /// The Pods of a node that must be ended for this reason.
    fn of_node(&self, node: &str, reason: Reason) -> impl Iterator<Item = (&PodUid, &CachedPod<Pod>)> {
        self.by_node.get(node).into_iter().flatten().filter_map(move |uid| Some((uid, self.due(uid, reason)?)))
    }

    /// The Pod, if the reason to end it still holds.
    fn due(&self, uid: &PodUid, reason: Reason) -> Option<&CachedPod<Pod>> {
        let known = self.pods.get(uid).filter(|pod| !pod.kept.done)?;
        let pod = &known.kept;
        let holds = match reason {
            Reason::Orphaned => !pod.node.is_empty() && self.nodes.get("", &pod.node).is_none(),
            Reason::OutOfService => pod.deleting && self.out_of_service.contains(&pod.node),
            Reason::Unscheduled => pod.deleting && pod.node.is_empty(),
            Reason::Surplus => pod.age_among_ended().is_some(),
        };
        holds.then_some(known)
    }

    fn round(&mut self) {
        let surplus = self.ended.iter().take(self.surplus());
        let mut todo: Vec<_> = surplus.map(|(_, pod)| Task::End(pod.clone(), Reason::Surplus)).collect();
        let end = |reason| move |(uid, pod): (&PodUid, &CachedPod<Pod>)| Task::End(pod.pod_ref(uid), reason);
        let unscheduled = self.unscheduled.iter().filter_map(|uid| Some((uid, self.pods.get(uid)?)));
        todo.extend(unscheduled.map(end(Reason::Unscheduled)));
        for node in &self.out_of_service {
            todo.extend(self.of_node(node, Reason::OutOfService).map(end(Reason::OutOfService)));
        }
        for (node, missing) in &self.missing {
            if matches!(missing, Missing::Believed) && self.of_node(node, Reason::Orphaned).next().is_some() {
                todo.push(Task::Confirm(node.clone()));
            }
        }
        self.todo.extend(todo);
    }

    fn clock_set_back(&mut self, by: Span) {
        bring_forward(&mut self.quarantines, by);
        for missing in self.missing.values_mut() {
            if let Missing::Until(at) = missing {
                *at = *at - by;
            }
        }
        self.round_at = self.round_at.map(|at| at - by);
    }

    fn fire(&mut self, now: Timestamp) {
        while let Some((at, _)) = self.quarantines.first()
            && *at <= now
        {
            let Some((_, node)) = self.quarantines.pop_first() else { return };
            self.missing.remove(&node);
            if self.by_node.contains_key(&node) {
                self.missing.insert(node.clone(), Missing::Believed);
                self.todo.insert(Task::Confirm(node));
            }
        }
        if self.round_at.is_some_and(|at| at <= now) {
            self.round_at = None;
            self.round();
        }
    }

    fn work(&mut self, now: Timestamp, out: &mut Outbox) {
        while self.asked.len() < MOST_UNDER_WAY
            && let Some(task) = self.todo.pop_first()
        {
            match task {
                Task::End(pod, reason) => self.end(pod, reason, now, out),
                // Our list may be old. Before Pods are ended permanently, the node is read.
                Task::Confirm(node) if self.looking.insert(node.clone()) => {
                    let call = Call::new(Verb::Get, Kind::NODE, "", &node);
                    self.asked.ask(PodGcRequest::ObservedNode(node), call, out);
                }
                Task::Confirm(_) => {}
            }
        }
    }

    /// The node is gone: its Pods are to be ended.
    fn end_pods_of(&mut self, node: &str) {
        let pods = self.of_node(node, Reason::Orphaned);
        let tasks: Vec<_> = pods.map(|(uid, pod)| Task::End(pod.pod_ref(uid), Reason::Orphaned)).collect();
        self.todo.extend(tasks);
    }

    fn end(&mut self, pod: PodRef, reason: Reason, now: Timestamp, out: &mut Outbox) {
        let Some(known) = self.due(&pod.uid, reason) else { return };
        if self.busy.contains(&pod.uid) {
            return;
        }
        let untold = !self.options.gates.sets_phase_before_deletion();
        if known.kept.ended || reason == Reason::Surplus || untold {
            self.delete(pod, out);
            return;
        }
        let call = Call::new(Verb::StrategicPatch, Kind::POD, &pod.namespace, &pod.name).subresource("status");
        let disrupts = self.options.gates.enabled(Gate::PodDisruptionConditions);
        let call = call.body(&failed(&pod.uid, known, reason, disrupts, now));
        self.busy.insert(pod.uid.clone());
        self.asked.ask(PodGcRequest::Fail(pod), call, out);
    }

    fn delete(&mut self, pod: PodRef, out: &mut Outbox) {
        let PodRef { namespace, name, uid } = pod;
        let call = Call::new(Verb::Delete, Kind::POD, &namespace, &name).body(&json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
            "preconditions": {"uid": uid.to_string()},
        }));
        self.busy.insert(uid.clone());
        self.asked.ask(PodGcRequest::Delete { uid }, call, out);
    }

    fn answered(&mut self, asking: PodGcRequest, reply: &Reply, now: Timestamp, out: &mut Outbox) {
        if !reply.is_done() && !reply.is_not_found() {
            // Whatever the reason, the next round starts from the state at that time.
            self.round_at.get_or_insert(now + self.options.period);
        }
        if let PodGcRequest::ObservedNode(node) = &asking {
            self.looking.remove(node);
        }
        match asking {
            // Only a Pod whose failure is stored is deleted.
            PodGcRequest::Fail(pod) => {
                self.busy.remove(&pod.uid);
                if reply.is_done() {
                    self.delete(pod, out);
                }
            }
            PodGcRequest::Delete { uid } => {
                self.busy.remove(&uid);
            }
            PodGcRequest::ObservedNode(node) if reply.is_not_found() => self.end_pods_of(&node),
            // It exists, and our list will show it; or it was created again meanwhile, and its quarantine starts again.
            PodGcRequest::ObservedNode(node) if reply.is_done() => {
                self.found(&node);
                self.look_for(&node, now);
            }
            PodGcRequest::ObservedNode(_) => {}
        }
    }

    /// Names of nodes without Pods are remembered for a while, not forever.
    fn trim(&mut self) {
        if self.missing.len() > MOST_REMEMBERED + self.by_node.len() {
            let by_node = &self.by_node;
            let stays = |name: &CompactString, missing: &Missing| {
                matches!(missing, Missing::Until(_)) || by_node.contains_key(name)
            };
            self.missing.retain(|name, missing| stays(name, missing));
        }
    }
}

/// GC-2: only the loss of a node is a disruption, and only with the gate PodDisruptionConditions is it told.
fn failed(uid: &PodUid, known: &CachedPod<Pod>, reason: Reason, disrupts: bool, now: Timestamp) -> Value {
    let pod = &known.kept;
    let mut status = json!({"phase": "Failed"});
    if let Some(generation) = pod.generation {
        status["observedGeneration"] = generation.into();
    }
    if reason == Reason::Orphaned && disrupts {
        let mut condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
        });
        if let Some(generation) = pod.generation {
            condition["observedGeneration"] = generation.into();
        }
        if !pod.disrupted {
            condition["lastTransitionTime"] = now.truncated().to_string().into();
        }
        with_condition(&mut status, &pod.conditions, condition);
    }
    json!({"metadata": {"uid": uid.to_string(), "resourceVersion": known.revision.to_string()}, "status": status})
}

impl Controller for PodGc {
    fn name(&self) -> &'static str {
        "pod-garbage-collector"
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
                if let Some(node) = read_node(&object).and_then(|node| self.nodes.gone(&node.meta)) {
                    self.node_gone(&node.meta.name, now);
                }
            }
            Input::Delete(_, object) => {
                if let Some(seen) = PodView::lenient(&object)
                    && let Some(pod) = self.pods.remove(&seen.uid)
                {
                    self.forget(&seen.uid, &pod);
                }
            }
            Input::InitDone(Kind::NODE, at) => {
                for node in self.nodes.list_ends(at) {
                    self.out_of_service.remove(&node.meta.name);
                }
                self.look_for_all(now);
            }
            Input::InitDone(_, at) => {
                for (uid, pod) in self.pods.list_ends(at) {
                    self.forget(&uid, &pod);
                }
                self.look_for_all(now);
            }
            Input::ClockSetBack(by) => self.clock_set_back(by),
            Input::Bookmark(..) | Input::Tick => {}
            Input::Response { request, reply, .. } => {
                if let Some(asking) = self.asked.answered(request) {
                    self.answered(asking, &reply, now, out);
                }
            }
        }
        if self.is_complete() {
            self.fire(now);
            self.work(now, out);
            self.trim();
        }
        // While a list is being received nothing is done, however long that takes.
        let times = [self.round_at, self.quarantines.first().map(|(at, _)| *at)];
        out.wake_at = times.into_iter().flatten().min().filter(|_| self.is_complete());
    }
}
