//! The node as a controller: it maintains its Node object, accepts the Pods that are bound to it, and issues commands
//! for them to the half that acts. It starts nothing before it has received everything that an earlier run of the node
//! left behind.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use compact_str::CompactString;
use serde::Deserialize;
use tally_core::ids::{PodUid, Revision};
use tally_core::pod::PodView;
use tally_core::time::{Span, Timestamp};
use tally_runtime::cache::RequestsInFlight;
use tally_runtime::controller::{
    Call, Controller, Event, Input, Kind, Object, Outbox, Reference, Reply, Stream, bring_forward,
};
use tokio::sync::Notify;

use crate::claims::{ClaimStep, Claims};
use crate::each::RowList;
use crate::losses::Losses;
use crate::mailbox::Mailbox;
use crate::object::NodeObject;
use crate::options::NodeOptions;
use crate::pod::{self, Metadata, Pod};
use crate::pod_worker::{Effects, PodRequest, PodWorker, WriteOutcome, is_tracked};
use crate::port::{Found, Report, ShimCommand};
use crate::row_lists::{ListName, RowLists};
use crate::sources::Source;

/// In-flight requests at once. Enough to keep a store's group commit busy, few enough to leave room for other clients.
const IN_FLIGHT: usize = 256;

pub struct NodeAgent {
    options: NodeOptions,
    mailbox: Arc<Mailbox>,
    object: NodeObject,
    losses: Losses,
    pods: BTreeMap<PodUid, KnownPod>,
    /// What an earlier run of the node left behind, until its Pod is accepted.
    found: BTreeMap<PodUid, Vec<Found>>,
    /// Pods that are not bound to this node, and when they were last listed: their records must not be removed here.
    /// Once everything is known, this contains only Pods with a record.
    elsewhere: BTreeMap<PodUid, u32>,
    recovered: bool,
    /// A complete list of all Pods has been received.
    listed: bool,
    epoch: u32,
    /// Pods to process now.
    due: BTreeSet<PodUid>,
    timers: BTreeSet<(Timestamp, PodUid)>,
    /// Pods that had a request to send when too many were in flight.
    held_up: BTreeSet<PodUid>,
    asked: RequestsInFlight<Purpose>,
    row_lists: RowLists,
    claims: Claims,
    /// The Pods of the checks in progress.
    checks: HashMap<u64, PodUid, foldhash::fast::FixedState>,
    effects: Effects,
    /// The node is draining: nothing is started any more, and this is the time that is left.
    drain_within: Option<Span>,
}

struct KnownPod {
    entry: Entry,
    epoch: u32,
    timer: Option<Timestamp>,
}

enum Entry {
    /// Observed before it was known what an earlier run left behind.
    Waiting(Box<Pod>),
    Live(Box<PodWorker>),
    /// The Pod has ended and the API has stored it, as of this revision. Its logs stay as long as the object does.
    Over(Revision),
    /// The object is deleted, and everything else of the Pod is being removed.
    Cleaning,
}

impl KnownPod {
    fn clock_set_back(&mut self, by: Span) {
        self.timer.iter_mut().for_each(|at| *at = *at - by);
        if let Entry::Live(worker) = &mut self.entry {
            worker.clock_set_back(by);
        }
    }

    /// A Pod that has ended uses nothing.
    fn uses_claim(&self, namespace: &str, name: &str) -> bool {
        let pod = match &self.entry {
            Entry::Waiting(pod) => pod,
            Entry::Live(worker) => worker.pod(),
            Entry::Over(_) | Entry::Cleaning => return false,
        };
        let mut claims = pod.spec.volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
        pod.metadata.namespace == namespace && claims.any(|claim| claim.claim_name == name)
    }
}

enum Purpose {
    Node,
    ReadRows(ListName),
    Read(PodUid, Source),
    Write(PodUid),
    Remove(PodUid),
    Claim(CompactString),
}

/// Enough of a Pod to decide whether it is bound to this node, and whether it is news.
struct PodBinding {
    uid: PodUid,
    revision: Revision,
    deleting: bool,
    node_name: CompactString,
}

impl PodBinding {
    /// None: the Pod cannot even be identified.
    fn read(object: &Object) -> Option<Self> {
        if let Ok(pod) = PodView::of(object) {
            let (uid, node_name) = (pod.uid.clone(), pod.node_name.clone());
            return Some(Self { uid, revision: pod.revision, deleting: pod.deleting(), node_name });
        }
        // A Pod of this node that cannot be decoded is reported as such, and one that is gone must end here.
        let Glance { metadata, spec } = object.read().ok()?;
        let node_name = spec.and_then(|spec| spec.node_name).unwrap_or_default();
        let (revision, deleting) = (metadata.resource_version, metadata.deletion_timestamp.is_some());
        Some(Self { uid: metadata.uid, revision, deleting, node_name })
    }
}

/// The last resort: what is needed to know which Pod it is, and whether anything is to be done about it.
#[derive(Deserialize)]
struct Glance {
    metadata: GlanceMetadata,
    spec: Option<GlanceSpec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GlanceMetadata {
    uid: PodUid,
    #[serde(deserialize_with = "pod::revision")]
    resource_version: Revision,
    deletion_timestamp: Option<CompactString>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GlanceSpec {
    node_name: Option<CompactString>,
}

impl NodeAgent {
    pub fn new(options: NodeOptions, mailbox: Arc<Mailbox>) -> Self {
        Self {
            options,
            mailbox,
            object: NodeObject::default(),
            losses: Losses::default(),
            pods: BTreeMap::new(),
            found: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
            recovered: false,
            listed: false,
            epoch: 0,
            due: BTreeSet::new(),
            timers: BTreeSet::new(),
            held_up: BTreeSet::new(),
            asked: RequestsInFlight::default(),
            row_lists: RowLists::default(),
            claims: Claims::default(),
            checks: HashMap::default(),
            effects: Effects::default(),
            drain_within: None,
        }
    }

    fn pod_observed(&mut self, object: &Object, now: Timestamp) {
        let Some(seen) = PodBinding::read(object) else { return };
        if seen.node_name != self.options.name {
            if !self.knows_all() || self.found.contains_key(&seen.uid) {
                self.elsewhere.insert(seen.uid, self.epoch);
            }
            return;
        }
        self.elsewhere.remove(&seen.uid);
        // Most watch events of a Pod come after its end, or show what the response to a request has shown: they need no
        // further decoding.
        if let Some(known) = self.pods.get_mut(&seen.uid) {
            // Even if it cannot be decoded below.
            known.epoch = self.epoch;
            let is_news = match &known.entry {
                Entry::Over(_) | Entry::Cleaning => seen.deleting,
                Entry::Live(worker) => seen.revision > worker.revision(),
                Entry::Waiting(_) => true,
            };
            if !is_news {
                return;
            }
        }
        if let Some(pod) = Pod::read(object) {
            self.take(pod, now);
        }
    }

    fn take(&mut self, pod: Pod, now: Timestamp) {
        let uid = pod.uid().clone();
        let epoch = self.epoch;
        let Some(known) = self.pods.get_mut(&uid) else {
            self.pods.insert(uid.clone(), KnownPod { entry: Entry::Waiting(Box::new(pod)), epoch, timer: None });
            self.take_on(&uid, now);
            return;
        };
        known.epoch = epoch;
        match &mut known.entry {
            Entry::Waiting(waiting) if waiting.metadata.resource_version <= pod.metadata.resource_version => {
                **waiting = pod;
            }
            Entry::Live(worker) => {
                worker.observe(pod);
                self.due.insert(uid);
            }
            // Nothing is left to do, unless the Pod is being deleted and only this node can remove it. The watch may be
            // behind what is known: a Pod that is shown as it was before its end must not be accepted again.
            Entry::Over(known_at)
                if *known_at < pod.metadata.resource_version && pod.grace().is_some_and(|grace| grace > 0) =>
            {
                known.entry = Entry::Waiting(Box::new(pod));
                self.take_on(&uid, now);
            }
            Entry::Waiting(_) | Entry::Over(_) | Entry::Cleaning => {}
        }
    }

    /// Starts to manage a Pod, once everything about it is known that can be.
    fn take_on(&mut self, uid: &PodUid, now: Timestamp) {
        if !self.recovered {
            return;
        }
        let Some(known) = self.pods.get_mut(uid) else { return };
        let found = self.found.remove(uid).unwrap_or_default();
        match std::mem::replace(&mut known.entry, Entry::Cleaning) {
            Entry::Waiting(pod) => {
                known.entry = Entry::Live(Box::new(PodWorker::adopt(*pod, &found, now)));
                self.due.insert(uid.clone());
            }
            other => known.entry = other,
        }
    }

    fn pod_gone(&mut self, uid: &PodUid) {
        let was_elsewhere = self.elsewhere.remove(uid).is_some();
        let Some(known) = self.pods.get_mut(uid) else {
            if was_elsewhere && self.knows_all() && self.found.remove(uid).is_some() {
                self.clean(uid);
            }
            return;
        };
        match &mut known.entry {
            Entry::Live(worker) => {
                worker.lose();
                self.due.insert(uid.clone());
            }
            Entry::Over(_) => self.clean(uid),
            // If the shim has a record of the Pod, it is cleaned up once all records have been reported.
            Entry::Waiting(_) => self.forget(uid),
            Entry::Cleaning => {}
        }
    }

    fn clean(&mut self, uid: &PodUid) {
        self.effects.commands.push(ShimCommand::Clean { pod: uid.clone() });
        let epoch = self.epoch;
        let known = self.pods.entry(uid.clone()).or_insert(KnownPod { entry: Entry::Cleaning, epoch, timer: None });
        known.entry = Entry::Cleaning;
    }

    fn forget(&mut self, uid: &PodUid) {
        self.claims.released();
        if let Some(timer) = self.pods.remove(uid).and_then(|known| known.timer) {
            self.timers.remove(&(timer, uid.clone()));
        }
    }

    fn pods_listed(&mut self) {
        self.listed = true;
        self.claims.released();
        let epoch = self.epoch;
        let missing = self.pods.iter().filter(|(_, known)| known.epoch != epoch).map(|(uid, _)| uid.clone());
        for uid in missing.collect::<Vec<_>>() {
            self.pod_gone(&uid);
        }
        self.elsewhere.retain(|_, seen| *seen == epoch);
        self.clean_what_is_left();
        self.due.extend(self.pods.keys().cloned());
    }

    /// The Node object may have changed, and with it the record of losses.
    fn read_losses(&mut self, now: Timestamp) {
        let first = !self.losses.is_known();
        if let Some(text) = self.object.losses()
            && self.losses.read(text, now)
        {
            let waiting = self.losses.pods().filter(|pod| self.pods.contains_key(*pod));
            self.due.extend(if first {
                self.pods.keys().cloned().collect()
            } else {
                waiting.cloned().collect::<Vec<_>>()
            });
        }
    }

    /// Determines how many restarts ended earlier Pods of a Pod's attempt, once everything needed for this is known.
    fn find_lives(&mut self, uid: &PodUid) {
        if !self.knows_all() || !self.losses.is_known() {
            return;
        }
        let Some(KnownPod { entry: Entry::Live(worker), .. }) = self.pods.get(uid) else { return };
        if worker.restarts_before().is_some() {
            return;
        }
        // A Pod that has ended does not continue an attempt.
        let slot = worker.slot().filter(|_| self.options.release_lost && !worker.pod().status.phase.is_terminal());
        let held = |pod: &PodUid| match self.pods.get(pod).map(|known| &known.entry) {
            Some(Entry::Waiting(pod)) => is_tracked(pod),
            Some(Entry::Live(worker)) => worker.is_tracked(),
            _ => false,
        };
        let before = slot.map_or(0, |slot| self.losses.before(uid, &slot, held));
        if let Some(KnownPod { entry: Entry::Live(worker), .. }) = self.pods.get_mut(uid) {
            worker.continue_from(before);
        }
    }

    /// All Pods have been listed, and all records have been reported.
    fn knows_all(&self) -> bool {
        self.listed && self.recovered
    }

    /// Removes the records of Pods that no longer exist, on this node or any other.
    fn clean_what_is_left(&mut self) {
        if !self.knows_all() {
            return;
        }
        for (uid, found) in std::mem::take(&mut self.found) {
            if self.elsewhere.contains_key(&uid) {
                self.found.insert(uid, found);
            } else if !self.pods.contains_key(&uid) {
                self.clean(&uid);
            }
        }
        self.elsewhere.retain(|uid, _| self.found.contains_key(uid));
    }

    fn hear(&mut self, report: Report, now: Timestamp, out: &mut Outbox) {
        let uid = match &report {
            Report::Recovered => return self.recover(now),
            Report::Found { pod, attempts } => {
                self.found.insert(pod.clone(), attempts.clone());
                return;
            }
            Report::Cleaned { pod } => {
                let pod = pod.clone();
                return self.forget(&pod);
            }
            Report::ClaimRemoved { uid } => return self.claims.removed(uid),
            Report::Checked { id, .. } => match self.checks.remove(id) {
                Some(uid) => uid,
                None => return,
            },
            Report::Measured { pod, .. }
            | Report::Prepared { pod }
            | Report::Unprepared { pod, .. }
            | Report::LimitsNotEnforced { pod, .. } => pod.clone(),
            Report::Started { attempt, .. }
            | Report::Unstarted { attempt, .. }
            | Report::Ended { attempt, .. }
            | Report::Signalled { attempt } => attempt.pod.clone(),
        };
        if let Some(KnownPod { entry: Entry::Live(worker), .. }) = self.pods.get_mut(&uid) {
            worker.hear(report, now, &mut self.effects);
            record(&mut self.effects, &worker.pod().metadata, out);
            self.due.insert(uid);
        }
    }

    /// Everything that an earlier run of the node left behind is known. Or the shim has crashed: then everything it was
    /// doing has ended.
    fn recover(&mut self, now: Timestamp) {
        let again = std::mem::replace(&mut self.recovered, true);
        self.claims.interrupt();
        self.claims.released();
        if again {
            self.checks.clear();
            // These commands were decided before the crash was known; what is still to be done is requested again.
            self.effects.commands.clear();
        }
        for uid in self.pods.keys().cloned().collect::<Vec<_>>() {
            let Some(known) = self.pods.get_mut(&uid) else { continue };
            match &mut known.entry {
                Entry::Waiting(_) => self.take_on(&uid, now),
                Entry::Live(worker) => {
                    worker.recover(&self.found.remove(&uid).unwrap_or_default(), now);
                    self.due.insert(uid);
                }
                Entry::Cleaning => self.clean(&uid),
                Entry::Over(_) => {}
            }
        }
        self.clean_what_is_left();
    }

    /// The response to a request for a list of rows. If the list cannot be used, its Pods are ordinary ones.
    fn rows_read(&mut self, name: ListName, reply: &Reply) {
        let list = match reply {
            Reply::Done(bytes) => RowList::read(bytes),
            _ => None,
        };
        let usable = list.is_some();
        for uid in self.row_lists.read(name, list) {
            if let Some(KnownPod { entry: Entry::Live(worker), .. }) = self.pods.get_mut(&uid)
                && !usable
            {
                worker.set_row(None);
            }
            self.due.insert(uid);
        }
    }

    /// Gives a Pod its row, or requests the list that contains it.
    fn find_row(&mut self, uid: &PodUid, out: &mut Outbox) {
        let Some(KnownPod { entry: Entry::Live(worker), .. }) = self.pods.get_mut(uid) else { return };
        let Some([script, list]) = worker.wanted_lists() else { return };
        let lists = [script, list].map(|name| (self.row_lists.get(&name, uid), name));
        match lists {
            [(Ok(script), _), (Ok(list), _)] => worker.set_row(Some((script, list))),
            missing => {
                for (result, name) in missing {
                    if let Err(Some(call)) = result {
                        self.asked.ask(Purpose::ReadRows(name), call, out);
                    }
                }
            }
        }
    }

    fn answered(&mut self, purpose: Purpose, reply: &Reply, now: Timestamp) {
        if let Purpose::ReadRows(name) = purpose {
            return self.rows_read(name, reply);
        }
        if let Purpose::Claim(uid) = &purpose {
            return self.claims.answered(uid, reply, now);
        }
        let (Purpose::Read(uid, _) | Purpose::Write(uid) | Purpose::Remove(uid)) = &purpose else {
            self.object.answered(reply, &self.options.name, now);
            return;
        };
        let Some(KnownPod { entry: Entry::Live(worker), .. }) = self.pods.get_mut(uid) else { return };
        match &purpose {
            Purpose::Read(_, source) => {
                let object = match reply {
                    Reply::Done(bytes) => serde_json::from_slice(bytes).map(Some).map_err(|_| ()),
                    reply if reply.is_not_found() => Ok(None),
                    // The Pod waits, and says for what.
                    Reply::Refused(_) if matches!(source, Source::Token(_)) => Ok(None),
                    _ => Err(()),
                };
                worker.read(source.clone(), object, now);
            }
            Purpose::Write(uid) => {
                let view = match reply {
                    Reply::Done(object) => PodView::of(object).ok(),
                    _ => None,
                };
                if !view.is_some_and(|view| worker.end_is_stored(&view)) {
                    worker.written(heard(reply, uid), now);
                }
            }
            Purpose::Remove(uid) => worker.removed(heard(reply, uid), now),
            Purpose::Node | Purpose::ReadRows(_) | Purpose::Claim(_) => {}
        }
        self.due.insert(uid.clone());
    }

    /// Reconciles a Pod: does what is due, and sets the timer for the next time.
    fn look(&mut self, uid: &PodUid, now: Timestamp, out: &mut Outbox) {
        self.find_lives(uid);
        self.find_row(uid, out);
        let Some(known) = self.pods.get_mut(uid) else { return };
        let Entry::Live(worker) = &mut known.entry else { return };
        let deeds_before = self.effects.commands.len();
        self.effects.wake_at = None;
        worker.proceed(self.drain_within, &self.options, now, &mut self.effects);
        for command in &self.effects.commands[deeds_before..] {
            if let ShimCommand::Check { id, .. } = command {
                self.checks.insert(*id, uid.clone());
            }
        }
        record(&mut self.effects, &worker.pod().metadata, out);
        if !worker.is_on_record()
            && let (Some(restarts), Some(slot)) = (worker.to_be_counted(&self.options), worker.slot())
        {
            // Record the loss first, then release the Pod: otherwise a crash in between would lose the count.
            worker.set_on_record(self.losses.count(uid, &slot, restarts, now));
        }
        let mut asks_at = None;
        loop {
            if self.asked.len() >= IN_FLIGHT {
                self.held_up.insert(uid.clone());
                break;
            }
            let Some(ask) = worker.next_request(self.drain_within.is_some(), &self.options, now) else {
                asks_at = worker.next_request_at(&self.options, now);
                break;
            };
            let (purpose, call): (_, Call) = match ask {
                PodRequest::Read(source, call) => (Purpose::Read(uid.clone(), source), call),
                PodRequest::Write(call) => (Purpose::Write(uid.clone()), call),
                PodRequest::Remove(call) => (Purpose::Remove(uid.clone()), call),
            };
            self.asked.ask(purpose, call, out);
        }
        let wanted = self.effects.wake_at.into_iter().chain(asks_at).min();
        let ends = worker.is_settled() || worker.is_gone() && worker.is_cleaning();
        if ends {
            let counted = self.losses.has(uid) && !worker.is_tracked();
            match counted || worker.ended_with_the_node(&self.options) {
                true => self.losses.left(uid, now),
                false => self.losses.over(uid),
            }
        }
        if worker.is_gone() && worker.is_cleaning() {
            known.entry = Entry::Cleaning;
            self.claims.released();
        } else if worker.is_settled() {
            known.entry = Entry::Over(worker.revision());
            self.claims.released();
        }
        let wanted = wanted.filter(|_| matches!(known.entry, Entry::Live(_)));
        let before = std::mem::replace(&mut known.timer, wanted);
        if before != wanted {
            if let Some(before) = before {
                self.timers.remove(&(before, uid.clone()));
            }
            if let Some(wanted) = wanted {
                self.timers.insert((wanted, uid.clone()));
            }
        }
    }

    fn proceed(&mut self, now: Timestamp, out: &mut Outbox) {
        for report in self.mailbox.take_reports() {
            self.hear(report, now, out);
        }
        let drain_within = self.mailbox.drain_within();
        if std::mem::replace(&mut self.drain_within, drain_within) != drain_within {
            self.due.extend(self.pods.keys().cloned());
        }
        while self.timers.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, uid)) = self.timers.pop_first()
        {
            self.pods.get_mut(&uid).into_iter().for_each(|known| known.timer = None);
            self.due.insert(uid);
        }
        if self.asked.len() < IN_FLIGHT {
            self.due.append(&mut self.held_up);
        }
        while let Some(uid) = self.due.pop_first() {
            self.look(&uid, now, out);
        }
        self.tend_claims(now, out);
        let exists = |pod: &PodUid| self.pods.contains_key(pod);
        self.losses.forget(now, exists);
        if let Some(call) = self.object.ask(&self.options, self.losses.text(), now) {
            self.asked.ask(Purpose::Node, call, out);
        }
        self.mailbox.post(&mut self.effects.commands);
        if self.drain_within.is_some() && !self.mailbox.is_drained() {
            let at_rest = |known: &KnownPod| match &known.entry {
                Entry::Live(worker) => worker.is_at_rest(),
                _ => true,
            };
            if self.pods.values().all(at_rest) {
                self.mailbox.set_drained();
            }
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        let claims = self.claims.wake_at(now).filter(|_| self.drain_within.is_none());
        out.wake_at = timer.into_iter().chain(self.object.ask_at(now)).chain(claims).min();
    }

    /// Binds new claims, and lets go of those that are deleted and not used.
    fn tend_claims(&mut self, now: Timestamp, out: &mut Outbox) {
        if self.drain_within.is_some() {
            return;
        }
        let knows_all = self.knows_all();
        let is_used = |namespace: &str, name: &str| {
            !knows_all || self.pods.values().any(|known| known.uses_claim(namespace, name))
        };
        for (uid, step) in self.claims.steps(is_used, now) {
            match step {
                ClaimStep::Request(call) => self.asked.ask(Purpose::Claim(uid), call, out),
                ClaimStep::Remove => self.effects.commands.push(ShimCommand::RemoveClaim { uid }),
            }
        }
    }
}

/// Passes on the events about a Pod.
fn record(effects: &mut Effects, pod: &Metadata, out: &mut Outbox) {
    out.events.extend(effects.events.drain(..).map(|event| Event {
        about: Reference {
            kind: Kind::POD,
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.to_string().into(),
        },
        warning: event.warning,
        reason: event.reason.into(),
        message: event.message,
    }));
}

/// The outcome of a write, for the Pod it was about.
fn heard(reply: &Reply, uid: &PodUid) -> WriteOutcome {
    match reply {
        Reply::Done(object) => match Pod::read(object).filter(|pod| pod.uid() == uid) {
            Some(pod) => WriteOutcome::Done(Some(Box::new(pod))),
            None => WriteOutcome::Failed,
        },
        Reply::DoneWithStatus => WriteOutcome::Done(None),
        reply if reply.is_not_found() || is_namesake(reply) => WriteOutcome::Gone,
        _ => WriteOutcome::Failed,
    }
}

/// The name belongs to another Pod by now.
fn is_namesake(reply: &Reply) -> bool {
    matches!(reply, Reply::Refused(refusal) if refusal.code == 422
        && refusal.causes.iter().any(|(field, _)| field == "metadata.uid")
        || refusal.code == 409 && refusal.message.contains("the UID in the precondition"))
}

impl Controller for NodeAgent {
    fn name(&self) -> &'static str {
        "node"
    }

    fn streams(&self) -> Vec<Stream> {
        vec![Stream::of(Kind::NODE), Stream::of(Kind::POD), Stream::of(Kind::PERSISTENT_VOLUME_CLAIM)]
    }

    fn pokes(&self) -> Option<Arc<Notify>> {
        Some(self.mailbox.pokes())
    }

    fn handle(&mut self, input: Input, now: Timestamp, out: &mut Outbox) {
        match input {
            Input::Init(Kind::NODE) => self.object.listing(),
            Input::Apply(Kind::NODE, bytes) => self.object.observe(&bytes, &self.options.name),
            Input::Delete(Kind::NODE, bytes) => self.object.gone(&bytes),
            Input::InitDone(Kind::NODE, _) => self.object.listed(),
            Input::Init(Kind::POD) => self.epoch = self.epoch.wrapping_add(1),
            Input::Apply(Kind::POD, bytes) => self.pod_observed(&bytes, now),
            Input::Delete(Kind::POD, object) => {
                if let Some(gone) = PodBinding::read(&object) {
                    self.pod_gone(&gone.uid);
                }
            }
            Input::InitDone(Kind::POD, _) => self.pods_listed(),
            Input::Init(Kind::PERSISTENT_VOLUME_CLAIM) => self.claims.listing(),
            Input::Apply(Kind::PERSISTENT_VOLUME_CLAIM, bytes) => self.claims.observe(&bytes),
            Input::Delete(Kind::PERSISTENT_VOLUME_CLAIM, bytes) => self.claims.gone(&bytes),
            Input::InitDone(Kind::PERSISTENT_VOLUME_CLAIM, _) => self.claims.listed(),
            Input::Response { request, reply, .. } => {
                if let Some(purpose) = self.asked.answered(request) {
                    self.answered(purpose, &reply, now);
                }
            }
            Input::Tick | Input::Init(_) | Input::Apply(..) | Input::Delete(..) | Input::InitDone(..) => {}
            Input::Bookmark(..) => {}
            Input::ClockSetBack(by) => {
                bring_forward(&mut self.timers, by);
                #[allow(clippy::disallowed_methods, reason = "every one of them is changed, in any order")]
                self.pods.values_mut().for_each(|known| known.clock_set_back(by));
                self.losses.clock_set_back(by);
                self.object.clock_set_back(by);
                self.claims.clock_set_back(by);
            }
        }
        self.read_losses(now);
        self.proceed(now, out);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn odd() -> serde_json::Value {
        json!({
            "metadata": {
                "uid": "u", "name": 7, "resourceVersion": "5", "labels": "text", "finalizers": {"a": 1},
                "deletionTimestamp": "soon", "deletionGracePeriodSeconds": "text",
            },
            "spec": {"nodeName": "n", "containers": 7}, "status": "text",
        })
    }

    #[test]
    fn a_known_pod_that_cannot_be_read_is_there_until_it_is_gone() {
        let mut agent = NodeAgent::new(NodeOptions::new("n"), Mailbox::new());
        let plain = json!({"metadata": {"uid": "u", "name": "p", "resourceVersion": "4"}, "spec": {"nodeName": "n"}});
        let (now, mut out) = (Timestamp::from_seconds(1_700_000_000), Outbox::default());
        for (pod, at) in [(plain, 4), (odd(), 5)] {
            let pod = Object::from(pod.to_string());
            for input in
                [Input::Init(Kind::POD), Input::Apply(Kind::POD, pod), Input::InitDone(Kind::POD, Revision(at))]
            {
                agent.handle(input, now, &mut out);
            }
            assert!(agent.pods.contains_key(&PodUid::new("u")), "it is in the list of revision {at}");
        }
        agent.handle(Input::Delete(Kind::POD, Object::from(odd().to_string())), now, &mut out);
        assert!(agent.pods.is_empty());
    }

    /// The timer of a Pod and the times of its worker move together.
    #[test]
    fn a_clock_that_is_set_back_delays_no_report() {
        let (options, mailbox) = (NodeOptions::new("n"), Mailbox::new());
        let report_after = options.report_after;
        let mut agent = NodeAgent::new(options, mailbox.clone());
        let (now, mut out) = (Timestamp::from_seconds(1_700_000_000), Outbox::default());
        mailbox.report([Report::Recovered]);
        let pod = json!({
            "metadata": {"uid": "u", "name": "p", "namespace": "ns", "resourceVersion": "4"},
            "spec": {"nodeName": "n", "restartPolicy": "Never", "containers": [{"name": "c", "command": ["work"]}]},
            "status": {"phase": "Pending"},
        });
        let pod = Object::from(pod.to_string());
        for input in [Input::Init(Kind::POD), Input::Apply(Kind::POD, pod), Input::InitDone(Kind::POD, Revision(4))] {
            agent.handle(input, now, &mut out);
        }
        assert_eq!((out.wake_at, out.requests.len()), (Some(now + report_after), 0));
        let day = Span::from_seconds(86_400);
        agent.handle(Input::ClockSetBack(day), now - day, &mut out);
        assert_eq!((out.wake_at, out.requests.len()), (Some(now - day + report_after), 0));
        agent.handle(Input::Tick, now - day + report_after, &mut out);
        assert!(out.requests.iter().any(|request| request.call.subresource == "status"), "{:?}", out.requests);
    }

    /// Its UID and revision are enough to remove what is left of it.
    #[test]
    fn a_pod_of_which_little_can_be_read_is_identified() {
        let seen = PodBinding::read(&Object::from(odd().to_string()));
        assert!(seen.is_some_and(|seen| {
            (seen.uid, seen.revision, seen.deleting, seen.node_name.as_str())
                == (PodUid::new("u"), Revision(5), true, "n")
        }));
        for (field, value) in [("uid", json!(null)), ("resourceVersion", json!("text"))] {
            let mut odd = odd();
            odd["metadata"][field] = value;
            assert!(PodBinding::read(&Object::from(odd.to_string())).is_none(), "{field}");
        }
    }
}
