//! Hollow nodes: Nodes without machines, for tests and measurements. `tally up --hollow N` has `hollow-0` to
//! `hollow-N-1`. A Pod that is bound to one of them runs nothing and succeeds at once, with a single write.
//!
//! Annotations of a Pod change its behaviour. They are read at every change of the Pod, so a test may also control one
//! that is running.
//!
//! | `hollow.tally.dev/...` | |
//! |---|---|
//! | `run-for: 1.5s` | Runs, and is ready, for this long (`ms`, `s`, `m`, `h`). |
//! | `exit-code: "3"` | Ends with this code. By completion index: `0=1,3-5=42`, and 0 for other indexes. |
//! | `fail-times: "2"` | Only this many attempts fail, with `exit-code` or 1. |
//! | `restart-delay: 100ms` | How long a container waits before a restart in place; by default as a kubelet waits. |
//! | `terminate-after: 2s` | How long the Pod takes to end once it is deleted, unless its grace period ends before. |
//! | `terminate-exit-code: "0"` | How it then ends; by default 143. |
//! | `disrupted: TerminationByKubelet` | Ends as failed, with the condition DisruptionTarget for this reason. |
//! | `pending: "true"` | Is accepted, but never starts. |
//! | `hang: "true"` | The node reports nothing about it, and does not confirm its deletion. |
//!
//! The attempts of `fail-times` are earlier Pods of the same index, where the Job counts them (`backoffLimitPerIndex`),
//! and restarts in place. Other annotations with this prefix, and invalid values, fail the Pod. A Pod with
//! `restartPolicy: Always` runs until it is deleted unless `run-for` is set.
//!
//! Everything is decided from the stored object (`plan`): a restart changes nothing. Stored times are whole seconds, so
//! after a restart a step may come up to a second later, never earlier. Each report is conditional on the revision from
//! which it was decided: a Pod that another client ended stays as it ended.
//!
//! A Node that is deleted is lost, with its Pods: nothing more is reported about them, and the Node returns only with
//! the next start, or if another client creates it.

mod nodes;
mod plan;
mod pod;
mod report;
mod script;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use compact_str::CompactString;
use tally_core::ids::{PodUid, Revision};
use tally_core::pod::PodView;
use tally_core::time::{Span, Timestamp};

use plan::{Step, plan};
use pod::{Container, Deletion, Pod};
use report::Facts;
use tally_runtime::cache::{RequestsInFlight, retry_at};
use tally_runtime::controller::{Call, Controller, Input, Kind, Object, Outbox, Reply, Stream, Verb, bring_forward};
use tally_value::json;

pub use script::PREFIX;

/// The maximum number of requests in flight. Enough to keep a store's group commit busy, few enough to leave room for
/// others.
const IN_FLIGHT: usize = 256;

pub struct Hollow {
    nodes: Vec<HollowNode>,
    /// The work for nodes, and when it is due.
    node_work: BTreeSet<(Timestamp, u32)>,
    /// Only Pods with a next step: those that have ended are forgotten.
    pods: HashMap<PodUid, Live, foldhash::fast::FixedState>,
    /// When the steps are due. Includes those that are due already and wait for their turn.
    timers: BTreeSet<(Timestamp, PodUid)>,
    /// Pods whose node does not exist, by node.
    stranded: BTreeMap<u32, Vec<PodUid>>,
    asked: RequestsInFlight<Purpose>,
    /// The containers of the Pod observed last. Its siblings have the same ones, and share them.
    containers: Arc<[Container]>,
    node_epoch: u32,
    pod_epoch: u32,
}

#[derive(Default)]
struct HollowNode {
    /// The UID of the existing Node.
    uid: Option<CompactString>,
    revision: Revision,
    /// The stream has shown that a Node of this revision or an earlier one is gone. A late response may still show one.
    gone_at: Revision,
    /// The next request about it; None: nothing to do.
    fix: Option<Call>,
    work_at: Option<Timestamp>,
    busy: bool,
    failures: u32,
    /// It has existed, or has been requested.
    known: bool,
    epoch: u32,
}

/// A Pod with a next step.
struct Live {
    namespace: CompactString,
    name: CompactString,
    revision: Revision,
    node: u32,
    facts: Facts,
    containers: Arc<[Container]>,
    step: Step,
    due_at: Timestamp,
    timer: Option<Timestamp>,
    /// When this process last reported about it.
    reported_at: Option<Timestamp>,
    busy: bool,
    stranded: bool,
    failures: u8,
    epoch: u32,
}

enum Purpose {
    HollowNode(u32),
    /// The revision is the one that the report is about.
    Pod(PodUid, Revision),
}

impl Hollow {
    /// Hollow nodes 0 to `count` - 1.
    pub fn new(count: u32) -> Self {
        Self {
            nodes: (0..count).map(|_| HollowNode::default()).collect(),
            node_work: BTreeSet::new(),
            pods: HashMap::default(),
            timers: BTreeSet::new(),
            stranded: BTreeMap::new(),
            asked: RequestsInFlight::default(),
            containers: Arc::from([]),
            node_epoch: 0,
            pod_epoch: 0,
        }
    }

    fn node(&mut self, number: u32) -> Option<&mut HollowNode> {
        self.nodes.get_mut(usize::try_from(number).ok()?)
    }

    fn is_there(&self, number: u32) -> bool {
        let node = usize::try_from(number).ok().and_then(|number| self.nodes.get(number));
        node.is_some_and(|node| node.uid.is_some())
    }

    fn node_observed(&mut self, object: &Object, now: Timestamp) {
        let epoch = self.node_epoch;
        let Some(seen) = nodes::read(object, now) else { return };
        let number = seen.number;
        let Some(node) = self.node(number) else { return };
        node.epoch = epoch;
        let outdated = node.uid.as_ref() == Some(&seen.uid) && node.revision > seen.revision;
        if outdated || seen.revision <= node.gone_at {
            return;
        }
        node.uid = Some(seen.uid);
        node.revision = seen.revision;
        node.known = true;
        node.fix = seen.fix;
        self.arm_node(number, now);
        for uid in self.stranded.remove(&number).unwrap_or_default() {
            if let Some(live) = self.pods.get_mut(&uid) {
                live.stranded = false;
                let due_at = live.due_at;
                self.arm(&uid, due_at);
            }
        }
    }

    fn node_gone(&mut self, object: &Object, now: Timestamp) {
        let Some(seen) = nodes::read(object, now) else { return };
        let Some(node) = self.node(seen.number) else { return };
        if node.uid.as_ref() == Some(&seen.uid) {
            node.lose();
        }
        node.gone_at = node.gone_at.max(seen.revision);
    }

    /// All existing Nodes have been observed: those that never existed are created, those that are gone are lost.
    fn nodes_listed(&mut self, at: Revision, now: Timestamp) {
        let epoch = self.node_epoch;
        let mut new = Vec::new();
        for (number, node) in (0..).zip(&mut self.nodes) {
            if !node.known {
                node.known = true;
                node.fix = Some(nodes::create(number, now));
                new.push(number);
            } else if node.uid.is_some() && node.epoch != epoch && node.revision <= at {
                node.lose();
                node.gone_at = at;
            }
        }
        for number in new {
            self.arm_node(number, now);
        }
    }

    fn arm_node(&mut self, number: u32, at: Timestamp) {
        let Some(node) = self.node(number) else { return };
        let wanted = node.fix.as_ref().filter(|_| !node.busy).map(|_| at);
        let before = std::mem::replace(&mut node.work_at, wanted);
        if let Some(before) = before {
            self.node_work.remove(&(before, number));
        }
        if let Some(at) = wanted {
            self.node_work.insert((at, number));
        }
    }

    fn node_answered(&mut self, number: u32, reply: &Reply, now: Timestamp) {
        let Some(node) = self.node(number) else { return };
        node.busy = false;
        match reply {
            Reply::Done(object) => {
                node.failures = 0;
                self.node_observed(object, now);
            }
            // Another client has created or changed it: the stream will show it.
            reply if reply.is_conflict() && node.uid.is_none() => node.fix = None,
            _ => {
                let at = retry_at(now, node.failures);
                node.failures = node.failures.saturating_add(1);
                self.arm_node(number, at);
            }
        }
    }

    /// Takes over a Pod as it is now, and determines its next step.
    fn pod_observed(&mut self, object: &Object, now: Timestamp) {
        let Some(seen) = PodView::lenient(object) else { return };
        let Some(number) = nodes::number(&seen.node_name).filter(|number| (*number as usize) < self.nodes.len()) else {
            return;
        };
        let known = self.pods.get_mut(&seen.uid);
        let mut reported_at = None;
        if let Some(live) = known {
            live.epoch = self.pod_epoch;
            if live.revision > seen.revision {
                return;
            }
            reported_at = live.reported_at;
        }
        // It needs no decoding to be forgotten.
        if seen.phase.is_terminal() && !Deletion::of(&seen).is_some_and(|deletion| deletion.graceful) {
            self.forget(&seen.uid);
            return;
        }
        let Some(pod) = Pod::read(&seen, object) else { return };
        let Some(due) = plan(&pod, reported_at, now) else {
            self.forget(&pod.uid);
            return;
        };
        if *self.containers != *pod.containers {
            self.containers = pod.containers.as_slice().into();
        }
        let facts = Facts::of(&pod);
        let containers = Arc::clone(&self.containers);
        let epoch = self.pod_epoch;
        let live = self.pods.entry(pod.uid.clone()).or_insert_with(|| Live {
            namespace: pod.namespace,
            name: pod.name,
            revision: pod.revision,
            node: number,
            facts,
            containers: Arc::clone(&containers),
            step: Step::Remove,
            due_at: now,
            timer: None,
            reported_at: None,
            busy: false,
            stranded: false,
            failures: 0,
            epoch,
        });
        let news = live.revision != pod.revision;
        live.revision = pod.revision;
        live.facts = facts;
        live.containers = containers;
        live.step = due.step;
        live.due_at = due.at;
        if news {
            live.failures = 0;
        }
        self.arm(&pod.uid, due.at);
    }

    /// A Pod with a request in flight has no timer: the response determines the next step.
    fn arm(&mut self, uid: &PodUid, at: Timestamp) {
        let Some(live) = self.pods.get_mut(uid) else { return };
        let wanted = (!live.busy && !live.stranded).then_some(at);
        let before = std::mem::replace(&mut live.timer, wanted);
        if before == wanted {
            return;
        }
        if let Some(before) = before {
            self.timers.remove(&(before, uid.clone()));
        }
        if let Some(at) = wanted {
            self.timers.insert((at, uid.clone()));
        }
    }

    fn clock_set_back(&mut self, by: Span) {
        bring_forward(&mut self.timers, by);
        bring_forward(&mut self.node_work, by);
        self.nodes.iter_mut().filter_map(|node| node.work_at.as_mut()).for_each(|at| *at = *at - by);
        #[allow(clippy::disallowed_methods, reason = "every one of them is changed, in any order")]
        self.pods.values_mut().filter_map(|live| live.timer.as_mut()).for_each(|at| *at = *at - by);
    }

    fn forget(&mut self, uid: &PodUid) {
        if let Some(timer) = self.pods.remove(uid).and_then(|live| live.timer) {
            self.timers.remove(&(timer, uid.clone()));
        }
    }

    fn pods_listed(&mut self) {
        let epoch = self.pod_epoch;
        #[allow(clippy::disallowed_methods, reason = "sorted below")]
        let missing = self.pods.iter().filter(|(_, live)| live.epoch != epoch);
        let mut missing: Vec<PodUid> = missing.map(|(uid, _)| uid.clone()).collect();
        missing.sort_unstable();
        for uid in missing {
            self.forget(&uid);
        }
    }

    fn pod_answered(&mut self, uid: &PodUid, about: Revision, reply: &Reply, now: Timestamp) {
        // A Pod that is no longer known needs no step any more, and a response about it is older than that knowledge.
        let Some(live) = self.pods.get_mut(uid) else { return };
        live.busy = false;
        let (newer, due_at) = (live.revision > about, live.due_at);
        match reply {
            Reply::Done(object) if !newer => {
                self.pod_observed(object, now);
                if let Some(live) = self.pods.get(uid).filter(|live| live.revision == about) {
                    // Nothing has changed, or the response is invalid: retried, but not at once.
                    let at = retry_at(now, live.failures.into());
                    self.failed(uid, at);
                }
            }
            Reply::DoneWithStatus => self.forget(uid),
            reply if reply.is_not_found() || is_namesake(reply) => self.forget(uid),
            // It has changed meanwhile, and the change has been observed.
            _ if newer => self.arm(uid, due_at),
            _ => {
                let at = retry_at(now, live.failures.into());
                self.failed(uid, at);
            }
        }
    }

    fn failed(&mut self, uid: &PodUid, again_at: Timestamp) {
        if let Some(live) = self.pods.get_mut(uid) {
            live.failures = live.failures.saturating_add(1);
        }
        self.arm(uid, again_at);
    }

    /// Sends what is due, as far as there is room.
    fn proceed(&mut self, now: Timestamp, out: &mut Outbox) {
        while self.asked.len() < IN_FLIGHT
            && let Some(&(at, number)) = self.node_work.first()
            && at <= now
        {
            self.node_work.pop_first();
            let Some(node) = self.node(number) else { continue };
            node.work_at = None;
            if let Some(call) = node.fix.clone() {
                node.busy = true;
                self.asked.ask(Purpose::HollowNode(number), call, out);
            }
        }
        while self.asked.len() < IN_FLIGHT
            && let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            let Some((_, uid)) = self.timers.pop_first() else { break };
            self.act(uid, now, out);
        }
        let room = self.asked.len() < IN_FLIGHT;
        let next = [self.node_work.first().map(|(at, _)| *at), self.timers.first().map(|(at, _)| *at)];
        out.wake_at = next.into_iter().flatten().min().filter(|_| room);
    }

    fn act(&mut self, uid: PodUid, now: Timestamp, out: &mut Outbox) {
        let Some(live) = self.pods.get(&uid) else { return };
        let there = self.is_there(live.node);
        let Some(live) = self.pods.get_mut(&uid) else { return };
        live.timer = None;
        if !there {
            live.stranded = true;
            self.stranded.entry(live.node).or_default().push(uid);
            return;
        }
        live.busy = true;
        let call = match live.step {
            Step::Remove => Call::new(Verb::Delete, Kind::POD, &live.namespace, &live.name).body(&json!({
                "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
                "preconditions": {"uid": uid.to_string()},
            })),
            _ => {
                live.reported_at = Some(now);
                let status = report::status(&live.facts, &uid, &live.containers, live.node, &live.step, now);
                let guard = json!({"uid": uid.to_string(), "resourceVersion": live.revision.0.to_string()});
                Call::new(Verb::StrategicPatch, Kind::POD, &live.namespace, &live.name)
                    .subresource("status")
                    .body(&json!({"metadata": guard, "status": status}))
            }
        };
        let about = live.revision;
        self.asked.ask(Purpose::Pod(uid, about), call, out);
    }
}

impl HollowNode {
    fn lose(&mut self) {
        self.uid = None;
        self.fix = None;
    }
}

/// The name belongs to another Pod by now.
fn is_namesake(reply: &Reply) -> bool {
    matches!(reply, Reply::Refused(refusal) if refusal.code == 422
        && refusal.causes.iter().any(|(field, _)| field == "metadata.uid")
        || refusal.code == 409 && refusal.message.contains("the UID in the precondition"))
}

impl Controller for Hollow {
    fn name(&self) -> &'static str {
        "hollow"
    }

    fn streams(&self) -> Vec<Stream> {
        vec![Stream::of(Kind::NODE), Stream::of(Kind::POD)]
    }

    fn handle(&mut self, input: Input, now: Timestamp, out: &mut Outbox) {
        match input {
            Input::Init(Kind::NODE) => self.node_epoch = self.node_epoch.wrapping_add(1),
            Input::Apply(Kind::NODE, object) => self.node_observed(&object, now),
            Input::Delete(Kind::NODE, object) => self.node_gone(&object, now),
            Input::InitDone(Kind::NODE, at) => self.nodes_listed(at, now),
            Input::Init(Kind::POD) => self.pod_epoch = self.pod_epoch.wrapping_add(1),
            Input::Apply(Kind::POD, object) => self.pod_observed(&object, now),
            Input::Delete(Kind::POD, object) => {
                if let Some(pod) = PodView::lenient(&object) {
                    self.forget(&pod.uid);
                }
            }
            Input::InitDone(Kind::POD, _) => self.pods_listed(),
            Input::Response { request, reply, .. } => match self.asked.answered(request) {
                Some(Purpose::HollowNode(number)) => self.node_answered(number, &reply, now),
                Some(Purpose::Pod(uid, about)) => self.pod_answered(&uid, about, &reply, now),
                None => {}
            },
            Input::Tick | Input::Init(_) | Input::Apply(..) | Input::Delete(..) | Input::InitDone(..) => {}
            Input::ClockSetBack(by) => self.clock_set_back(by),
            Input::Bookmark(..) => {}
        }
        self.proceed(now, out);
    }
}

#[cfg(test)]
mod tests;
