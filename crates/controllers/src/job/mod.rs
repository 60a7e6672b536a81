//! The Job controller: one ledger for each unfinished Job of ours, and a collection of Pods that belong to none.
//!
//! Inputs are routed to ledgers; each ledger plans; plans become requests; responses go back to the ledger that planned
//! the request. Pods whose Job is unknown wait in `unclaimed` until the Job stream is as far as they are: only then is a
//! missing Job a deleted one (the gate in the other direction).

mod answers;
mod dead_nodes;
mod effects;
mod external;
mod lists;
mod ownership;
mod planning;
mod streams;
mod table;
mod unclaimed;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::sync::Arc;

use compact_str::CompactString;
use tally_core::gates::FeatureGates;
use tally_core::ids::{JobUid, PodUid, Revision};
use tally_core::job::{JobView, RESERVED_MANAGER};
use tally_core::ledger::{Ledger, Limits, ObservedVia, StatusWrite};
use tally_core::pod::PodView;
use tally_core::time::{Span, Timestamp};

use crate::wire::{self, Action, Answer, Object};
pub use external::UNSERVED_AFTER;
use external::Unserved;
use lists::PodListQueue;
use streams::StreamProgress;
use table::{JobSlot, JobTable, ListedPods};
use tally_runtime::cache::Meta;
use tally_runtime::controller::{Controller, Input, Kind, Metric, Outbox, Request, RequestId, Stream, bring_forward};
use unclaimed::UnclaimedPods;

type FixedState = foldhash::fast::FixedState;

/// How long a Job waits for an adoption without a response, or one that the server refuses, before it continues without
/// that Pod. An adoption that fails otherwise is retried until its outcome is known: Pods created meanwhile would be
/// too many.
const ADOPTION_PATIENCE: Span = Span::from_seconds(10);
/// The delay before a Job that could not be read is read again.
const GET_RETRY: Span = Span::from_seconds(1);
/// The delay before a Job whose next status would break the rules is planned again. Each attempt emits an Event.
const INVALID_STATUS_RETRY: Span = Span::from_seconds(60);

/// Which Jobs are ours, and the limits for them.
#[derive(Clone, Debug)]
pub struct Config {
    /// Manage only Jobs whose `managedBy` is this; None manages those without the field or with the reserved name.
    pub managed_by: Option<CompactString>,
    pub limits: Limits,
    /// How long a Job of another manager may wait for it before an Event says so.
    pub unserved_after: Span,
    /// DEADLINE-7: deadlines are never early by the part of a second that a startTime does not have.
    pub exact_deadlines: bool,
    /// TTL-23: Pods of Jobs with early deletion are created behind a gate. Needed where requests of another controller,
    /// or of an earlier one, may be carried out at any time.
    pub gates_pods: bool,
    /// CREATE-8: the only node of the cluster, if it has room for all Pods of all Jobs, and for what else is there.
    pub only_node: Option<CompactString>,
    pub gates: FeatureGates,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            managed_by: None,
            limits: Limits::default(),
            unserved_after: UNSERVED_AFTER,
            exact_deadlines: false,
            gates_pods: false,
            only_node: None,
            gates: FeatureGates::default(),
        }
    }
}

pub struct JobController {
    config: Config,
    jobs: JobTable,
    /// The Job whose ledger contains a Pod, by a hash of the Pod's UID. A hint: the ledger itself decides.
    pod_owner: HashMap<u64, JobSlot, FixedState>,
    unclaimed: UnclaimedPods,
    /// The Jobs that have recorded a Pod, and the status writes in flight that record it.
    recorded: ListedPods<JobSlot>,
    recording: ListedPods<RequestId>,
    progress: StreamProgress,
    /// The purpose and the content of each request in flight: a response has a meaning only together with them.
    requests: HashMap<RequestId, (Pending, Action), FixedState>,
    next_request: u64,
    timers: BTreeSet<(Timestamp, WorkItem)>,
    /// Jobs whose gate is closed, by the revision that opens it.
    gated: BTreeSet<(Revision, JobSlot)>,
    pod_lists: PodListQueue,
    /// Jobs that must not decide about newer Pods until they are known to be current.
    unconfirmed: BTreeSet<JobSlot>,
    /// Jobs of other managers that have not been touched.
    unserved: BTreeMap<JobUid, Unserved>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Resource {
    Jobs,
    Pods,
}

impl Resource {
    fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::JOB => Some(Self::Jobs),
            Kind::POD => Some(Self::Pods),
            _ => None,
        }
    }
}

/// What a timer is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WorkItem {
    Plan(JobUid),
    Refresh(JobUid),
    Confirm(JobUid),
    /// Check again a Pod that could not be adopted or disowned.
    Reconsider(PodUid),
    /// Check whether a Job still waits for its manager.
    Doubt(JobUid),
}

/// What a response will be about.
enum Pending {
    Status {
        job: JobUid,
        write: Box<StatusWrite>,
        /// The Job that the write is conditional on: the write changed the difference to this.
        before: Arc<JobView>,
    },
    Release {
        job: JobUid,
        pod: PodUid,
        ignored: bool,
    },
    Delete {
        job: JobUid,
        pod: PodUid,
        name: CompactString,
        revision: Option<Revision>,
    },
    /// The early deletion of a Pod that is counted.
    Discard {
        job: JobUid,
        pod: PodUid,
        revision: Option<Revision>,
    },
    /// The removal of a start gate.
    Start {
        job: JobUid,
        pod: PodUid,
        revision: Option<Revision>,
    },
    /// Reads a Pod that has terminated for long, then its node (REPL-8).
    LookAtPod {
        job: JobUid,
        pod: PodUid,
    },
    LookAtNode {
        job: JobUid,
        pod: PodUid,
    },
    RemovalRelease {
        job: JobUid,
        pod: PodUid,
        name: CompactString,
        revision: Revision,
    },
    Create {
        job: JobUid,
        name: CompactString,
        reason: &'static str,
    },
    FindCreated {
        job: JobUid,
        name: CompactString,
    },
    RefreshJob {
        job: JobUid,
    },
    /// The Job is read again because it must decide about Pods up to `pods_at`.
    ConfirmJob {
        job: JobUid,
        pods_at: Revision,
    },
    ListPods {
        jobs: Vec<JobUid>,
    },
    ConfirmAdopter {
        job: JobUid,
    },
    Adopt {
        job: JobUid,
        pod: PodUid,
    },
    Disown {
        pod: PodUid,
    },
    OrphanRelease {
        pod: PodUid,
        revision: Revision,
    },
    /// Reads an orphan that could not be released because it has changed.
    OrphanLook {
        pod: PodUid,
        revision: Revision,
    },
    Doubt {
        job: JobUid,
    },
}

impl Pending {
    /// The Job, whose requests wait in a queue of their own. All that are about no Job in particular share one.
    fn about(&self) -> u64 {
        let job = match self {
            Self::Status { job, .. }
            | Self::Release { job, .. }
            | Self::Delete { job, .. }
            | Self::Discard { job, .. }
            | Self::Start { job, .. }
            | Self::LookAtPod { job, .. }
            | Self::LookAtNode { job, .. }
            | Self::RemovalRelease { job, .. }
            | Self::Create { job, .. }
            | Self::FindCreated { job, .. }
            | Self::RefreshJob { job }
            | Self::ConfirmJob { job, .. }
            | Self::ConfirmAdopter { job }
            | Self::Adopt { job, .. }
            | Self::Doubt { job } => job,
            Self::ListPods { .. } | Self::Disown { .. } | Self::OrphanRelease { .. } | Self::OrphanLook { .. } => {
                return 0;
            }
        };
        FixedState::with_seed(7).hash_one(job)
    }
}

fn pod_key(uid: &PodUid) -> u64 {
    FixedState::with_seed(7).hash_one(uid)
}

impl JobController {
    pub fn new(config: Config) -> Self {
        Self {
            config,
            jobs: JobTable::default(),
            pod_owner: HashMap::default(),
            unclaimed: UnclaimedPods::default(),
            recorded: ListedPods::default(),
            recording: ListedPods::default(),
            progress: StreamProgress::default(),
            requests: HashMap::default(),
            next_request: 0,
            timers: BTreeSet::new(),
            gated: BTreeSet::new(),
            pod_lists: PodListQueue::default(),
            unconfirmed: BTreeSet::new(),
            unserved: BTreeMap::new(),
        }
    }

    /// The revision up to which the Pods have been observed.
    pub fn pods_at(&self) -> Revision {
        self.progress.pods_at
    }

    /// Plans every Job again at once, and returns the resulting requests: none, if plans mark what they request.
    pub fn replan(&mut self) -> Vec<Request> {
        let mut out = Outbox::default();
        for slot in self.jobs.slots() {
            if let Some(planned) = self.jobs.get(slot).and_then(|record| record.planned) {
                self.plan_for(slot, planned, &mut out);
            }
        }
        out.requests
    }

    /// How often it was decided which Job a Pod without a controller is for, those included that wait for the stream of Jobs:
    /// to check that it is not done for nothing.
    pub fn decisions(&self) -> u64 {
        self.unclaimed.decisions + self.unclaimed.undecided() as u64
    }

    /// Whether a Pod without a controller is known: to check that only such Pods are decided about.
    pub fn knows_uncontrolled(&self, uid: &PodUid) -> bool {
        self.unclaimed.get(uid).is_some_and(|pod| pod.controller.is_none())
    }

    /// Unfinished Jobs with a ledger, Pods in ledgers, unclaimed Pods, requests in flight: to monitor memory.
    pub fn sizes(&self) -> [usize; 4] {
        let ledgers = || self.jobs.iter().filter_map(|(_, record)| record.ledger.as_ref());
        [ledgers().count(), ledgers().map(|ledger| ledger.len()).sum(), self.unclaimed.len(), self.requests.len()]
    }

    fn ledger_mut(&mut self, uid: &JobUid) -> Option<(JobSlot, &mut Ledger)> {
        let slot = self.jobs.slot_of(uid)?;
        let ledger = self.jobs.get_mut(slot)?.ledger.as_deref_mut()?;
        Some((slot, ledger))
    }

    fn send(&mut self, out: &mut Outbox, pending: Pending, mut action: Action) {
        self.next_request += 1;
        let id = RequestId(self.next_request);
        out.requests.push(Request { id, call: wire::call(&action), about: pending.about() });
        if let Action::CreatePod { body, .. } = &mut action {
            // The body is not needed to interpret the response, and thousands of requests may be in flight.
            *body = tally_value::Value::Null;
        }
        if let Pending::Status { write, .. } = &pending {
            self.recording.add(id, write.status.uncounted());
        }
        self.requests.insert(id, (pending, action));
    }

    fn set_timer(&mut self, slot: JobSlot, at: Option<Timestamp>) {
        let Some(record) = self.jobs.get_mut(slot) else {
            return;
        };
        let uid = record.view.uid.clone();
        if let Some(old) = std::mem::replace(&mut record.timer, at) {
            self.timers.remove(&(old, WorkItem::Plan(uid.clone())));
        }
        if let Some(at) = at {
            self.timers.insert((at, WorkItem::Plan(uid)));
        }
    }

    /// What has happened has happened by now, and nothing waits longer than if it began to wait now: everything is
    /// planned again.
    fn clock_set_back(&mut self, by: Span, now: Timestamp) {
        bring_forward(&mut self.timers, by);
        self.unserved.values_mut().for_each(|unserved| unserved.due_at = unserved.due_at - by);
        self.unclaimed.clock_set_back(by);
        for slot in self.jobs.slots() {
            let Some(record) = self.jobs.get_mut(slot) else { continue };
            record.clock_set_back(by, now);
            if record.ledger.is_some() {
                self.set_timer(slot, Some(now));
            }
        }
    }

    // ---- Jobs ----

    fn observe_job(&mut self, job: Arc<JobView>, now: Timestamp, out: &mut Outbox) {
        self.apply_job(job, ObservedVia::Stream, now, out);
    }

    /// A Job as the stream or a response shows it. A response is part of no list.
    fn apply_job(&mut self, job: Arc<JobView>, via: ObservedVia, now: Timestamp, out: &mut Outbox) {
        let in_list = via == ObservedVia::Stream;
        if self.jobs.has_tombstone(&job.uid, in_list) {
            return;
        }
        self.jobs.readable(&job.uid);
        let epoch = self.jobs.epoch();
        let slot = match self.jobs.slot_of(&job.uid) {
            Some(slot) => slot,
            None => self.add_job(job.clone(), out),
        };
        let Some(record) = self.jobs.get_mut(slot) else {
            return;
        };
        if in_list {
            record.epoch = epoch;
        }
        if job.revision > record.view.revision {
            record.view = job.clone();
            record.refreshing = false;
        }
        if let Some(ledger) = &mut record.ledger {
            ledger.observe_job(job);
            self.index_recorded(slot);
        }
        self.reconsider(slot, now, out);
    }

    fn add_job(&mut self, job: Arc<JobView>, out: &mut Outbox) -> JobSlot {
        let own = self.config.managed_by.as_deref();
        let external = |manager: &CompactString| manager != RESERVED_MANAGER && !job.is_managed_by(own);
        if let Some(manager) = job.spec.managed_by.clone().filter(external) {
            out.metrics.push(Metric::ExternalJob { manager, job: effects::full_name(&job) });
        }
        self.jobs.insert(job)
    }

    /// A Job without the fields whose gate is off. Everything that this controller knows about a Job has passed here.
    fn gated(&self, job: JobView) -> JobView {
        let mut job = self.config.gates.apply(job);
        // Most changes are of the status. What was made of the template serves the next Pods, too.
        if let Some(known) = self.jobs.slot_of(&job.uid).and_then(|slot| self.jobs.get(slot))
            && known.view.spec == job.spec
        {
            job.spec = known.view.spec.clone();
        }
        job
    }

    /// GANG-5: a Job that must be scheduled as a group is left alone, like those of other managers.
    fn is_ours(&self, job: &JobView) -> bool {
        !job.gang && job.is_managed_by(self.config.managed_by.as_deref())
    }

    /// METRIC-15: whether this is an unfinished Job of ours that is tracked the old way.
    fn count_legacy(&mut self, slot: JobSlot, out: &mut Outbox) {
        let Some(record) = self.jobs.get_mut(slot) else { return };
        let view = &record.view;
        let ours = view.is_managed_by(self.config.managed_by.as_deref());
        let added = ours && view.legacy && !view.status.is_finished();
        if std::mem::replace(&mut record.counted_legacy, added) != added {
            out.metrics.push(Metric::LegacyJob { added });
        }
    }

    /// Gives a Job the ledger that it needs, and plans, which drops a ledger that is no longer needed.
    fn reconsider(&mut self, slot: JobSlot, now: Timestamp, out: &mut Outbox) {
        self.count_legacy(slot, out);
        let Some(record) = self.jobs.get(slot) else {
            return;
        };
        let view = record.view.clone();
        if !self.is_ours(&view) {
            self.tell_unsupported(slot, out);
            self.observe_external(&view, now);
            return;
        }
        if view.status.is_finished() {
            for pod in self.unclaimed.take_job(&view.uid) {
                if pod.tracked {
                    self.unclaimed.orphan(&pod);
                }
            }
        } else if record.ledger.is_none() {
            let mut ledger = Box::new(Ledger::new(view.clone(), self.config.limits));
            if self.config.exact_deadlines {
                ledger.count_deadlines_exactly();
            }
            let (ours, others): (Vec<_>, Vec<_>) = self
                .unclaimed
                .take_with_via(&view.uid)
                .into_iter()
                .partition(|(pod, _)| view.spec.selector.matches(&pod.labels));
            for (pod, via) in ours {
                self.placed(&pod.uid, slot);
                ledger.apply_pod(&pod, via, now);
            }
            if let Some(record) = self.jobs.get_mut(slot) {
                record.ledger = Some(ledger);
            }
            self.index_recorded(slot);
            // Insert all of them first: while one is being placed the ledger may plan, and must know about the others.
            for (pod, via) in &others {
                self.unclaimed.insert(pod.clone(), *via);
            }
            for (pod, via) in others {
                self.apply_pod(pod, via, now, out);
            }
            self.consider_adoptions(slot, out);
        }
        self.settle_adoptions(slot);
        self.plan(slot, now, out);
    }

    fn job_gone(&mut self, uid: &JobUid, now: Timestamp, out: &mut Outbox) {
        let unreadable = self.jobs.readable(uid);
        let Some(slot) = self.jobs.slot_of(uid) else {
            if unreadable && self.is_caretaker() {
                for pod in self.unclaimed.take_job(uid) {
                    if pod.tracked {
                        self.unclaimed.orphan(&pod);
                    }
                }
                self.release_orphans(now, out);
            }
            return;
        };
        self.set_timer(slot, None);
        self.want_no_list(slot);
        let Some(record) = self.jobs.remove(slot) else {
            return;
        };
        if record.counted_legacy {
            out.metrics.push(Metric::LegacyJob { added: false });
        }
        if record.status_refusals > 0 {
            let (job, refusals) = (effects::full_name(&record.view), record.status_refusals);
            out.metrics.push(Metric::StatusRefusalEnded { job, refusals, accepted: false });
        }
        self.recorded_changed(slot, record.recorded.as_deref(), None);
        self.gated.retain(|(_, gated)| *gated != slot);
        self.unconfirmed.remove(&slot);
        self.forget_unserved(uid);
        let sweeps = self.is_caretaker() || self.is_ours(&record.view);
        if let Some(ledger) = record.ledger {
            for pod in ledger.pods() {
                self.pod_owner.remove(&pod_key(pod.uid));
                if pod.tracked && sweeps {
                    let place = (record.view.namespace.clone(), pod.name.clone());
                    self.unclaimed.orphan_named(pod.uid.clone(), place, pod.revision, Some(uid.clone()));
                }
            }
        }
        for pod in self.unclaimed.take_job(uid) {
            if pod.tracked && sweeps {
                self.unclaimed.orphan(&pod);
            }
        }
        for pod in record.adopting.into_keys() {
            self.reconsider_unclaimed(&pod, now, out);
        }
        if !self.is_ours(&record.view) {
            self.unsettle_selected(&record.view);
        }
        self.release_orphans(now, out);
    }
}

/// A Pod event that opens the gate of a Job is needed within milliseconds.
const STREAMS: [Stream; 2] = [Stream::of(Kind::JOB).soon(), Stream::of(Kind::POD).soon()];

impl Controller for JobController {
    fn name(&self) -> &'static str {
        "job-controller"
    }

    fn streams(&self) -> Vec<Stream> {
        STREAMS.to_vec()
    }

    fn handle(&mut self, input: Input, now: Timestamp, out: &mut Outbox) {
        match input {
            Input::Apply(Kind::JOB, object) => match wire::job(&object) {
                Ok(job) => self.observe(Object::Job(Arc::new(self.gated(Arc::unwrap_or_clone(job)))), now, out),
                Err(_) => self.observe_unreadable(Resource::Jobs, &object, now, out),
            },
            Input::Apply(Kind::POD, object) => match PodView::of(&object) {
                Ok(pod) => self.observe(Object::Pod(pod), now, out),
                Err(_) => self.observe_unreadable(Resource::Pods, &object, now, out),
            },
            Input::Delete(Kind::JOB, bytes) => {
                if let Some(meta) = Meta::of(&bytes) {
                    let uid = JobUid::new(&meta.uid);
                    self.jobs.remove_tombstone(&uid);
                    self.job_gone(&uid, now, out);
                    self.progress.jobs_observed(meta.revision());
                    self.jobs_reached(now, out);
                }
            }
            Input::Delete(Kind::POD, object) => {
                if let Ok(pod) = PodView::of(&object) {
                    self.pod_gone(&pod, now, out);
                    self.pods_reached(pod.revision, now, out);
                } else if let Some(meta) = Meta::of(&object) {
                    self.unreadable_pod_gone(&PodUid::new(&meta.uid), meta.revision(), now, out);
                    self.pods_reached(meta.revision(), now, out);
                }
            }
            Input::Init(kind) => Resource::of(kind).into_iter().for_each(|resource| self.list_begins(resource)),
            Input::InitDone(kind, at) => {
                if let Some(resource) = Resource::of(kind) {
                    self.list_ends(resource, at, now, out);
                }
            }
            Input::Bookmark(Kind::POD, at) => self.pods_reached(at, now, out),
            Input::Bookmark(Kind::JOB, at) => {
                if !self.progress.is_listing(Resource::Jobs) {
                    self.progress.jobs_observed(at);
                    self.jobs_reached(now, out);
                }
            }
            Input::Response { request, reply, served_at } => {
                if let Some((pending, action)) = self.requests.remove(&request) {
                    if let Pending::Status { write, .. } = &pending {
                        self.recording.remove(request, write.status.uncounted());
                    }
                    let mut answer = wire::answer(&action, &reply);
                    if let Answer::Done(Object::Job(job)) = &mut answer {
                        *job = Arc::new(self.gated(JobView::clone(job)));
                    }
                    // Neither clock may be ahead: a Pod is not given up early.
                    let judged_at = served_at.map_or(now, |served_at| served_at.min(now));
                    match pending {
                        Pending::LookAtPod { job, pod } => self.pod_seen(&job, &pod, answer, [judged_at, now], out),
                        Pending::LookAtNode { job, pod } => self.node_seen(&job, &pod, answer, [judged_at, now], out),
                        pending => self.answered(pending, answer, now, out),
                    }
                }
            }
            Input::Tick => self.tick(now, out),
            Input::ClockSetBack(by) => self.clock_set_back(by, now),
            Input::Apply(..) | Input::Delete(..) | Input::Bookmark(..) => {}
        }
        self.ask_for_list(out);
        let timer = self.timers.first().map(|(at, _)| *at);
        out.wake_at = timer.into_iter().chain(self.unclaimed.next_wake()).min();
    }
}

#[cfg(test)]
mod tests;
