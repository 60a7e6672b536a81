//! The Job controller: one ledger for each unfinished Job of ours, and a collection of Pods that belong to none.
//!
//! Inputs are routed to ledgers; each ledger plans; plans become requests; responses go back to the ledger that planned
//! the request. Pods whose Job is unknown wait in `strays` until the Job stream is as far as they are: only then is a
//! missing Job a deleted one (the gate in the other direction).

mod answers;
mod effects;
mod external;
mod lists;
mod strays;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::sync::Arc;

use compact_str::CompactString;
use tally_core::blueprint::pod_body;
use tally_core::ids::{JobUid, PodUid, Revision};
use tally_core::job::{CompletionMode, JobView, RESERVED_MANAGER};
use tally_core::ledger::{Horizon, Ledger, Limits, News, Plan, Removal, StatusWrite};
use tally_core::mutation::{Bug, Mutation, NoMutation};
use tally_core::pod::PodView;
use tally_core::status_rules;
use tally_core::time::{Span, Timestamp};

use crate::wire::{self, Action, Object, PodChange};
pub use external::UNSERVED_AFTER;
use external::Unserved;
use strays::Strays;
use tally_runtime::cache::Meta;
use tally_runtime::controller::{Controller, Input, Kind, Metric, Outbox, Request, RequestId, Stream};
use tally_runtime::metric::SyncAction;

type FixedState = foldhash::fast::FixedState;

/// How long a Job waits for an adoption without a response, or one that the server refuses, before it continues without
/// that Pod. An adoption that fails otherwise is retried until its outcome is known: Pods created meanwhile would be
/// too many.
const ADOPTION_PATIENCE: Span = Span::from_seconds(10);
/// The delay before a Job that could not be read is read again.
const GET_RETRY: Span = Span::from_seconds(1);

/// Which Jobs are ours, and the limits for them.
#[derive(Clone, Debug)]
pub struct Config {
    /// Manage only Jobs whose `managedBy` is this; None manages those without the field or with the reserved name.
    pub managed_by: Option<CompactString>,
    pub limits: Limits,
    /// How long a Job of another manager may wait for it before an Event says so.
    pub unserved_after: Span,
}

impl Default for Config {
    fn default() -> Self {
        Self { managed_by: None, limits: Limits::default(), unserved_after: UNSERVED_AFTER }
    }
}

type JobSlot = u32;

pub struct JobController<S = NoMutation> {
    config: Config,
    mutation: S,
    jobs: Vec<Option<JobRecord<S>>>,
    free_jobs: Vec<JobSlot>,
    by_uid: HashMap<JobUid, JobSlot, FixedState>,
    by_namespace: BTreeMap<CompactString, BTreeSet<JobSlot>>,
    /// Tombstones: Jobs that are gone according to a response, until the stream shows it too. Older events must not
    /// revive them. With each, the latest list that contained it, and its newest known revision.
    buried_jobs: BTreeMap<JobUid, (u32, Revision)>,
    /// Jobs that cannot be decoded, and the last list that contained each. They exist: their Pods are not orphans.
    unreadable_jobs: BTreeMap<JobUid, u32>,
    /// The Job whose ledger contains a Pod, by a hash of the Pod's UID. A hint: the ledger itself decides.
    pod_owner: HashMap<u64, JobSlot, FixedState>,
    strays: Strays,
    jobs_at: Revision,
    pods_at: Revision,
    /// All existing Pods have been observed once. Before that nothing is planned: an untouched Job has no gate.
    pods_synced: bool,
    listing: BTreeSet<Resource>,
    /// The number of the current list of Jobs.
    epoch: u32,
    /// The purpose and the content of each request in flight: a response has a meaning only together with them.
    requests: HashMap<RequestId, (Pending, Action), FixedState>,
    next_request: u64,
    timers: BTreeSet<(Timestamp, WorkItem)>,
    /// Jobs whose gate is closed, by the revision that opens it.
    gated: BTreeSet<(Revision, JobSlot)>,
    /// Jobs whose Pods are to be listed, in the order of their tickets.
    to_list: BTreeMap<u64, JobUid>,
    next_list_ticket: u64,
    list_under_way: bool,
    /// Consecutive lists that failed.
    list_failures: u32,
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

/// One Job as the controller stores it.
struct JobRecord<S> {
    view: Arc<JobView>,
    /// Only while there is something to do: a finished Job whose Pods are released costs only a view (S39).
    ledger: Option<Box<Ledger<S>>>,
    epoch: u32,
    timer: Option<Timestamp>,
    /// A current view was requested after a conflict; planning from the old one would only conflict again.
    refreshing: bool,
    confirming: bool,
    /// Its position among the Jobs whose Pods are to be listed.
    list_ticket: Option<u64>,
    /// Its Pods are being listed.
    listing: bool,
    list_retry_at: Option<Timestamp>,
    gate_closed: bool,
    /// Pods to adopt once the Job is known to still exist.
    adopting: BTreeMap<PodUid, (CompactString, Revision)>,
    /// Adoptions that were requested and have not ended.
    adoptions: BTreeMap<PodUid, Adoption>,
    warned_unknown_mode: bool,
    planned_at: Option<Timestamp>,
    /// For the put-back bug that sends a stale status again.
    stale_write: Option<Box<StatusWrite>>,
}

#[derive(Default)]
struct Adoption {
    in_flight: bool,
    /// Since when it has had no response or has been refused. None: it has failed and is to be retried.
    since: Option<Timestamp>,
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

fn pod_key(uid: &PodUid) -> u64 {
    FixedState::with_seed(7).hash_one(uid)
}

impl JobController<NoMutation> {
    pub fn new(config: Config) -> Self {
        Self::with_mutation(config, NoMutation)
    }
}

impl<S: Mutation> JobController<S> {
    pub fn with_mutation(config: Config, mutation: S) -> Self {
        Self {
            config,
            mutation,
            jobs: Vec::new(),
            free_jobs: Vec::new(),
            by_uid: HashMap::default(),
            by_namespace: BTreeMap::new(),
            buried_jobs: BTreeMap::new(),
            unreadable_jobs: BTreeMap::new(),
            pod_owner: HashMap::default(),
            strays: Strays::default(),
            jobs_at: Revision(0),
            pods_at: Revision(0),
            pods_synced: false,
            listing: BTreeSet::new(),
            epoch: 0,
            requests: HashMap::default(),
            next_request: 0,
            timers: BTreeSet::new(),
            gated: BTreeSet::new(),
            to_list: BTreeMap::new(),
            next_list_ticket: 0,
            list_under_way: false,
            list_failures: 0,
            unconfirmed: BTreeSet::new(),
            unserved: BTreeMap::new(),
        }
    }

    /// The revision up to which the Pods have been observed.
    pub fn pods_at(&self) -> Revision {
        self.pods_at
    }

    /// Plans every Job again at once, and returns the number of resulting requests: none, if plans mark what they
    /// request.
    pub fn replan(&mut self) -> usize {
        let mut out = Outbox::default();
        for slot in 0..self.jobs.len() {
            if let Some(planned_at) = self.tracked(slot as JobSlot).and_then(|tracked| tracked.planned_at) {
                self.plan(slot as JobSlot, planned_at, &mut out);
            }
        }
        out.requests.len()
    }

    /// Unfinished Jobs with a ledger, Pods in ledgers, unclaimed Pods, requests in flight: to monitor memory.
    pub fn sizes(&self) -> [usize; 4] {
        let ledgers = || self.jobs.iter().flatten().filter_map(|tracked| tracked.ledger.as_ref());
        [ledgers().count(), ledgers().map(|ledger| ledger.len()).sum(), self.strays.len(), self.requests.len()]
    }

    fn slot_of(&self, uid: &JobUid) -> Option<JobSlot> {
        self.by_uid.get(uid).copied()
    }

    fn tracked(&self, slot: JobSlot) -> Option<&JobRecord<S>> {
        self.jobs.get(slot as usize)?.as_ref()
    }

    fn tracked_mut(&mut self, slot: JobSlot) -> Option<&mut JobRecord<S>> {
        self.jobs.get_mut(slot as usize)?.as_mut()
    }

    fn ledger_mut(&mut self, uid: &JobUid) -> Option<(JobSlot, &mut Ledger<S>)> {
        let slot = self.slot_of(uid)?;
        let ledger = self.tracked_mut(slot)?.ledger.as_deref_mut()?;
        Some((slot, ledger))
    }

    fn send(&mut self, out: &mut Outbox, pending: Pending, mut action: Action) {
        self.next_request += 1;
        let id = RequestId(self.next_request);
        out.requests.push(Request { id, call: wire::call(&action) });
        if let Action::CreatePod { body, .. } = &mut action {
            // The body is not needed to interpret the response, and thousands of requests may be in flight.
            *body = Vec::new();
        }
        self.requests.insert(id, (pending, action));
    }

    fn set_timer(&mut self, slot: JobSlot, at: Option<Timestamp>) {
        let Some(tracked) = self.tracked_mut(slot) else {
            return;
        };
        let uid = tracked.view.uid.clone();
        if let Some(old) = std::mem::replace(&mut tracked.timer, at) {
            self.timers.remove(&(old, WorkItem::Plan(uid.clone())));
        }
        if let Some(at) = at {
            self.timers.insert((at, WorkItem::Plan(uid)));
        }
    }

    // ---- Jobs ----

    fn observe_job(&mut self, job: Arc<JobView>, now: Timestamp, out: &mut Outbox) {
        self.take_in_job(job, News::Stream, now, out);
    }

    /// A Job as the stream or a response shows it. A response is part of no list.
    fn take_in_job(&mut self, job: Arc<JobView>, news: News, now: Timestamp, out: &mut Outbox) {
        let epoch = self.epoch;
        if let Some((seen_in, _)) = self.buried_jobs.get_mut(&job.uid) {
            if news == News::Stream {
                *seen_in = epoch;
            }
            return;
        }
        self.unreadable_jobs.remove(&job.uid);
        let slot = match self.slot_of(&job.uid) {
            Some(slot) => slot,
            None => self.add_job(job.clone(), out),
        };
        let Some(tracked) = self.tracked_mut(slot) else {
            return;
        };
        if news == News::Stream {
            tracked.epoch = epoch;
        }
        if job.revision > tracked.view.revision {
            tracked.view = job.clone();
            tracked.refreshing = false;
            tracked.stale_write = None;
        }
        if let Some(ledger) = &mut tracked.ledger {
            ledger.observe_job(job);
        }
        self.reconsider(slot, now, out);
    }

    fn add_job(&mut self, job: Arc<JobView>, out: &mut Outbox) -> JobSlot {
        let slot = self.free_jobs.pop().unwrap_or_else(|| {
            self.jobs.push(None);
            JobSlot::try_from(self.jobs.len() - 1).unwrap_or(JobSlot::MAX)
        });
        self.by_uid.insert(job.uid.clone(), slot);
        self.by_namespace.entry(job.namespace.clone()).or_default().insert(slot);
        let external = |manager: &CompactString| manager != RESERVED_MANAGER && !self.is_ours(&job);
        if let Some(manager) = job.spec.managed_by.clone().filter(external) {
            out.metrics.push(Metric::ExternalJob { manager });
        }
        self.jobs[slot as usize] = Some(JobRecord {
            view: job,
            ledger: None,
            epoch: self.epoch,
            timer: None,
            refreshing: false,
            confirming: false,
            list_ticket: None,
            listing: false,
            list_retry_at: None,
            gate_closed: false,
            adopting: BTreeMap::new(),
            adoptions: BTreeMap::new(),
            warned_unknown_mode: false,
            planned_at: None,
            stale_write: None,
        });
        slot
    }

    fn is_ours(&self, job: &JobView) -> bool {
        job.is_managed_by(self.config.managed_by.as_deref())
    }

    /// Gives a Job the ledger that it needs, and plans, which drops a ledger that is no longer needed.
    fn reconsider(&mut self, slot: JobSlot, now: Timestamp, out: &mut Outbox) {
        let Some(tracked) = self.tracked(slot) else {
            return;
        };
        let view = tracked.view.clone();
        if !self.is_ours(&view) {
            self.observe_external(&view, now);
            return;
        }
        if view.status.is_finished() {
            for pod in self.strays.take_job(&view.uid) {
                if pod.tracked && !self.mutation.injects(Bug::NoFinishedSweep) {
                    self.strays.orphan(&pod);
                }
            }
        } else if tracked.ledger.is_none() {
            let mut ledger = Box::new(Ledger::new(view.clone(), self.config.limits, self.mutation));
            let (ours, others): (Vec<_>, Vec<_>) = self
                .strays
                .take_news_of(&view.uid)
                .into_iter()
                .partition(|(pod, _)| view.spec.selector.matches(&pod.labels));
            for (pod, news) in ours {
                self.placed(&pod.uid, slot);
                ledger.take_in(&pod, news, now);
            }
            if let Some(tracked) = self.tracked_mut(slot) {
                tracked.ledger = Some(ledger);
            }
            // Insert all of them first: while one is being placed the ledger may plan, and must know about the others.
            for (pod, news) in &others {
                self.strays.insert(pod.clone(), *news);
            }
            for (pod, news) in others {
                self.take_in(pod, news, now, out);
            }
            self.consider_adoptions(slot, out);
        }
        self.settle_adoptions(slot);
        self.plan(slot, now, out);
    }

    fn job_gone(&mut self, uid: &JobUid, now: Timestamp, out: &mut Outbox) {
        let unreadable = self.unreadable_jobs.remove(uid).is_some();
        let Some(slot) = self.by_uid.remove(uid) else {
            if unreadable && self.is_caretaker() {
                for pod in self.strays.take_job(uid) {
                    if pod.tracked && !self.mutation.injects(Bug::NoOrphanSweep) {
                        self.strays.orphan(&pod);
                    }
                }
                self.release_orphans(now, out);
            }
            return;
        };
        self.set_timer(slot, None);
        self.want_no_list(slot);
        let Some(tracked) = self.jobs.get_mut(slot as usize).and_then(Option::take) else {
            return;
        };
        self.free_jobs.push(slot);
        self.gated.retain(|(_, gated)| *gated != slot);
        self.unconfirmed.remove(&slot);
        self.forget_unserved(uid);
        if let Some(siblings) = self.by_namespace.get_mut(&tracked.view.namespace) {
            siblings.remove(&slot);
            if siblings.is_empty() {
                self.by_namespace.remove(&tracked.view.namespace);
            }
        }
        let sweeps = (self.is_caretaker() || self.is_ours(&tracked.view)) && !self.mutation.injects(Bug::NoOrphanSweep);
        if let Some(ledger) = tracked.ledger {
            for pod in ledger.pods() {
                self.pod_owner.remove(&pod_key(pod.uid));
                if pod.tracked && sweeps {
                    let place = (tracked.view.namespace.clone(), pod.name.clone());
                    self.strays.orphan_named(pod.uid.clone(), place, pod.revision, Some(uid.clone()));
                }
            }
        }
        for pod in self.strays.take_job(uid) {
            if pod.tracked && sweeps {
                self.strays.orphan(&pod);
            }
        }
        for pod in tracked.adopting.into_keys() {
            self.reconsider_stray(&pod, now, out);
        }
        if !self.is_ours(&tracked.view) {
            self.strays.unsettle_loose(&tracked.view.namespace);
        }
        self.release_orphans(now, out);
    }

    // ---- planning ----

    fn plan(&mut self, slot: JobSlot, now: Timestamp, out: &mut Outbox) {
        let (pods_at, jobs_at) = (self.pods_at, self.jobs_at);
        let listing_pods = self.listing.contains(&Resource::Pods) || !self.pods_synced;
        let Some(tracked) = self.jobs.get_mut(slot as usize).and_then(Option::as_mut) else {
            return;
        };
        if tracked.refreshing {
            return;
        }
        let Some(ledger) = tracked.ledger.as_deref_mut() else {
            return;
        };
        if let CompletionMode::Unknown(_) = ledger.job().spec.completion_mode {
            if !std::mem::replace(&mut tracked.warned_unknown_mode, true) {
                let event = effects::event(
                    &tracked.view,
                    true,
                    "UnknownCompletionMode",
                    "Skipped Job sync because completion mode is unknown",
                );
                out.events.push(event);
            }
            if !tracked.view.deleting {
                return;
            }
        }
        // A list in progress shows a mixture of states; wait for its end.
        if listing_pods {
            return;
        }
        tracked.planned_at = Some(now);
        // Wait for pending adoptions before creating Pods or deciding the verdict.
        // A clock that stepped back must not block the Job.
        let patience_ends = |adoption: &Adoption| match &adoption.since {
            Some(since) => {
                Some(*since + ADOPTION_PATIENCE).filter(|_| (*since..*since + ADOPTION_PATIENCE).contains(&now))
            }
            None => Some(now + GET_RETRY),
        };
        let proposed = Some(now + GET_RETRY).filter(|_| !tracked.adopting.is_empty());
        if let Some(at) = tracked.adoptions.values().filter_map(patience_ends).chain(proposed).min() {
            self.set_timer(slot, Some(at.min(now + GET_RETRY)));
            return;
        }
        let view = ledger.job().clone();
        let plan = ledger.plan(now, Horizon { pods_at, jobs_at, elsewhere: &self.strays });
        if view.status.is_finished() && !ledger.has_tracked_pods() {
            tracked.ledger = None;
            self.set_timer(slot, None);
            self.want_no_list(slot);
            return;
        }
        self.carry_out(slot, &view, plan, now, out);
    }

    fn carry_out(&mut self, slot: JobSlot, view: &Arc<JobView>, plan: Plan, now: Timestamp, out: &mut Outbox) {
        let indexed = view.spec.is_indexed();
        if !plan.is_empty() {
            let action = if !plan.creations.is_empty() {
                SyncAction::PodsCreated
            } else if !plan.removals.is_empty() || !plan.deletions.is_empty() {
                SyncAction::PodsDeleted
            } else {
                SyncAction::Tracking
            };
            out.metrics.push(Metric::Sync { indexed, action, error: false });
        }
        let (job, namespace) = (view.uid.clone(), view.namespace.clone());
        if let Some(write) = plan.status {
            self.write_status(view, write, now, out);
        }
        for pod in plan.releases {
            let pending = Pending::Release { job: job.clone(), pod: pod.uid.clone(), ignored: pod.ignored };
            let action = self.release(&namespace, pod.name, pod.uid, pod.revision);
            self.send(out, pending, action);
        }
        for pod in plan.deletions {
            self.delete(&job, &namespace, pod.uid, pod.name, out);
        }
        for removal in plan.removals {
            self.remove(&job, &namespace, removal, out);
        }
        let reason = effects::creation_reason(view);
        for creation in plan.creations {
            let name = creation.name.clone();
            match pod_body(view, &creation) {
                Ok(body) => {
                    let pending = Pending::Create { job: job.clone(), name: name.clone(), reason };
                    self.send(out, pending, Action::CreatePod { namespace: namespace.clone(), name, body });
                }
                Err(error) => {
                    out.events.push(effects::event(view, true, "FailedCreate", &format!("Error creating: {error}")));
                    if let Some((_, ledger)) = self.ledger_mut(&job) {
                        ledger.creation_failed(&name, now);
                    }
                }
            }
        }
        let mut wake_at = plan.wake_at;
        let pods_at = self.pods_at;
        let mut writing = false;
        let mut opened_by_list = None;
        if let Some(tracked) = self.tracked_mut(slot) {
            if plan.gate_closed() && !tracked.gate_closed {
                out.metrics.push(Metric::GateClosed);
            }
            tracked.gate_closed = plan.gate_closed();
            writing = tracked.ledger.as_ref().is_some_and(|ledger| ledger.is_writing());
            // Opened by a list alone: what the list cannot show waits for the stream.
            let foreign_at = tracked.ledger.as_ref().map(|ledger| ledger.foreign_at());
            opened_by_list = foreign_at.filter(|at| *at > pods_at);
        }
        self.gated.extend(plan.waits_for_pods.or(opened_by_list).map(|at| (at, slot)));
        // While a write is in flight the stream may have shown that very write, and its response opens the gate.
        if plan.must_list_pods || plan.waits_for_pods.is_some() && !writing {
            let wait_until = self.want_list(slot, now);
            wake_at = wake_at.into_iter().chain(wait_until).min();
        } else {
            self.want_no_list(slot);
        }
        if plan.must_reread_job {
            self.unconfirmed.insert(slot);
            self.confirm_job(slot, out);
        } else {
            self.unconfirmed.remove(&slot);
        }
        self.set_timer(slot, wake_at);
    }

    fn confirm_job(&mut self, slot: JobSlot, out: &mut Outbox) {
        let Some(tracked) = self.tracked_mut(slot) else {
            return;
        };
        let Some(ledger) = tracked.ledger.as_ref() else {
            return;
        };
        let pods_at = ledger.newest_pod_at();
        if std::mem::replace(&mut tracked.confirming, true) {
            return;
        }
        let view = tracked.view.clone();
        let action = Action::GetJob { namespace: view.namespace.clone(), name: view.name.clone() };
        self.send(out, Pending::ConfirmJob { job: view.uid.clone(), pods_at }, action);
    }

    fn write_status(&mut self, view: &Arc<JobView>, write: Box<StatusWrite>, now: Timestamp, out: &mut Outbox) {
        // The same rules that the server applies: a refused write carries the accounting and would deadlock the Job.
        let problems = status_rules::check(&view.spec, &view.status, &write.status);
        if !problems.is_empty() && !self.mutation.tolerates_invalid_status() {
            out.metrics.push(Metric::InvalidStatus);
            let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
            out.events.push(effects::event(view, true, "InvalidStatus", &text.join(", ")));
            if let Some((slot, ledger)) = self.ledger_mut(&view.uid) {
                ledger.status_unwritten();
                self.set_timer(slot, Some(now + GET_RETRY));
            }
            return;
        }
        let revision = (!self.mutation.injects(Bug::UnconditionalStatus)).then_some(write.base);
        let action = Action::WriteJobStatus {
            namespace: view.namespace.clone(),
            name: view.name.clone(),
            uid: view.uid.clone(),
            revision,
            status: Box::new(write.status.clone()),
        };
        self.send(out, Pending::Status { job: view.uid.clone(), write, before: view.clone() }, action);
    }

    fn release(&self, namespace: &str, name: CompactString, uid: PodUid, revision: Option<Revision>) -> Action {
        Action::PatchPod {
            namespace: namespace.into(),
            name,
            uid: (!self.mutation.injects(Bug::NoUidGuard)).then_some(uid),
            revision,
            change: PodChange::Release,
        }
    }

    fn delete(&mut self, job: &JobUid, namespace: &str, pod: PodUid, name: CompactString, out: &mut Outbox) {
        let uid = (!self.mutation.injects(Bug::NoUidGuard)).then(|| pod.clone());
        let action = Action::DeletePod { namespace: namespace.into(), name: name.clone(), uid };
        self.send(out, Pending::Delete { job: job.clone(), pod, name }, action);
    }

    fn remove(&mut self, job: &JobUid, namespace: &str, removal: Removal, out: &mut Outbox) {
        let Removal { uid, name, revision, tracked } = removal;
        if !tracked {
            self.delete(job, namespace, uid, name, out);
            return;
        }
        let pending = Pending::RemovalRelease { job: job.clone(), pod: uid.clone(), name: name.clone(), revision };
        let action = self.release(namespace, name, uid, Some(revision));
        self.send(out, pending, action);
    }

    fn refresh_job(&mut self, slot: JobSlot, out: &mut Outbox) {
        let Some(tracked) = self.tracked_mut(slot) else {
            return;
        };
        tracked.refreshing = true;
        let view = tracked.view.clone();
        let action = Action::GetJob { namespace: view.namespace.clone(), name: view.name.clone() };
        self.send(out, Pending::RefreshJob { job: view.uid.clone() }, action);
    }

    // ---- streams ----

    fn list_begins(&mut self, resource: Resource) {
        self.listing.insert(resource);
        if resource == Resource::Jobs {
            self.epoch = self.epoch.wrapping_add(1);
        } else {
            for tracked in self.jobs.iter_mut().flatten() {
                if let Some(ledger) = &mut tracked.ledger {
                    ledger.relist_begins();
                }
            }
            self.strays.relist_begins();
        }
    }

    fn list_ends(&mut self, resource: Resource, at: Revision, now: Timestamp, out: &mut Outbox) {
        self.listing.remove(&resource);
        match resource {
            Resource::Jobs => {
                let epoch = self.epoch;
                let missing: Vec<JobUid> = self
                    .jobs
                    .iter()
                    .flatten()
                    .filter(|tracked| tracked.epoch != epoch && tracked.view.revision <= at)
                    .map(|tracked| tracked.view.uid.clone())
                    .collect();
                let unreadable = self.unreadable_jobs.iter().filter(|(_, seen_in)| **seen_in != epoch);
                let missing: Vec<JobUid> = missing.into_iter().chain(unreadable.map(|(uid, _)| uid.clone())).collect();
                for uid in missing {
                    self.job_gone(&uid, now, out);
                }
                self.buried_jobs.retain(|_, (seen_in, known_at)| *seen_in == epoch || *known_at > at);
                self.jobs_at = if self.mutation.injects(Bug::ViewGoesBack) { at } else { self.jobs_at.max(at) };
                self.jobs_reached(now, out);
            }
            Resource::Pods => {
                for tracked in self.jobs.iter_mut().flatten() {
                    if let Some(ledger) = &mut tracked.ledger {
                        ledger.relist_ends(at);
                    }
                }
                self.strays.relist_ends(at);
                self.pods_synced = true;
                self.pods_at = if self.mutation.injects(Bug::ViewGoesBack) { at } else { self.pods_at.max(at) };
                self.rebuild_pod_owners();
                // First determine which Pods are to be adopted, then which are missing.
                self.settle_strays(now, out);
                for slot in 0..self.jobs.len() {
                    self.plan(slot as JobSlot, now, out);
                }
                self.jobs_reached(now, out);
            }
        }
    }

    fn rebuild_pod_owners(&mut self) {
        self.pod_owner.clear();
        for (slot, tracked) in self.jobs.iter().enumerate() {
            if let Some(ledger) = tracked.as_ref().and_then(|tracked| tracked.ledger.as_ref()) {
                self.pod_owner.extend(ledger.pods().map(|pod| (pod_key(pod.uid), slot as JobSlot)));
            }
        }
    }

    fn pods_reached(&mut self, at: Revision, now: Timestamp, out: &mut Outbox) {
        if self.listing.contains(&Resource::Pods) {
            return;
        }
        self.pods_at = self.pods_at.max(at);
        while let Some(&(foreign_at, slot)) = self.gated.first()
            && foreign_at <= self.pods_at
        {
            self.gated.pop_first();
            self.plan(slot, now, out);
        }
    }

    fn jobs_reached(&mut self, now: Timestamp, out: &mut Outbox) {
        for slot in self.unconfirmed.clone() {
            self.plan(slot, now, out);
        }
        self.settle_strays(now, out);
    }

    fn tick(&mut self, now: Timestamp, out: &mut Outbox) {
        let mut due = Vec::new();
        while let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            due.extend(self.timers.pop_first().map(|(_, chore)| chore));
        }
        for chore in due {
            match chore {
                WorkItem::Plan(uid) => {
                    let Some(slot) = self.slot_of(&uid) else {
                        continue;
                    };
                    if let Some(tracked) = self.tracked_mut(slot) {
                        tracked.timer = None;
                    }
                    self.settle_adoptions(slot);
                    self.plan(slot, now, out);
                }
                WorkItem::Refresh(uid) => {
                    if let Some(slot) = self.slot_of(&uid) {
                        self.refresh_job(slot, out);
                    }
                }
                WorkItem::Confirm(uid) => {
                    if let Some(slot) = self.slot_of(&uid) {
                        if let Some(tracked) = self.tracked_mut(slot) {
                            tracked.confirming = false;
                        }
                        self.plan(slot, now, out);
                    }
                }
                WorkItem::Reconsider(uid) => self.reconsider_stray(&uid, now, out),
                WorkItem::Doubt(uid) => self.doubt(&uid, now, out),
            }
        }
        self.release_orphans(now, out);
    }

    /// An object that cannot be decoded exists nevertheless: its absence from a list would mean that it is gone. What
    /// is already known about such a Job or Pod is kept.
    fn observe_unreadable(&mut self, resource: Resource, object: &[u8], now: Timestamp, out: &mut Outbox) {
        let Some(meta) = Meta::of(object) else { return };
        match resource {
            Resource::Jobs => {
                let (uid, epoch) = (JobUid::new(&meta.uid), self.epoch);
                if let Some(tracked) = self.slot_of(&uid).and_then(|slot| self.tracked_mut(slot)) {
                    tracked.epoch = epoch;
                } else if let Some((seen_in, _)) = self.buried_jobs.get_mut(&uid) {
                    *seen_in = epoch;
                } else {
                    self.unreadable_jobs.insert(uid, epoch);
                }
                if !self.listing.contains(&Resource::Jobs) {
                    self.jobs_at = self.jobs_at.max(meta.revision());
                    self.jobs_reached(now, out);
                }
            }
            Resource::Pods => {
                let uid = PodUid::new(&meta.uid);
                self.strays.touch(&uid);
                if let Some(slot) = self.pod_owner.get(&pod_key(&uid)).copied()
                    && let Some(ledger) = self.tracked_mut(slot).and_then(|tracked| tracked.ledger.as_mut())
                {
                    ledger.pod_is_listed(&uid);
                }
                self.pods_reached(meta.revision(), now, out);
            }
        }
    }

    fn observe(&mut self, object: Object, now: Timestamp, out: &mut Outbox) {
        match object {
            Object::Job(job) => {
                let at = job.revision;
                self.observe_job(job, now, out);
                if !self.listing.contains(&Resource::Jobs) {
                    self.jobs_at = self.jobs_at.max(at);
                    self.jobs_reached(now, out);
                }
            }
            Object::Pod(pod) => {
                let at = pod.revision;
                self.observe_pod(pod, now, out);
                self.pods_reached(at, now, out);
            }
        }
    }
}

/// A Pod event that opens the gate of a Job is needed within milliseconds.
const STREAMS: [Stream; 2] = [Stream::of(Kind::JOB).soon(), Stream::of(Kind::POD).soon()];

impl<S: Mutation> Controller for JobController<S> {
    fn name(&self) -> &'static str {
        "job-controller"
    }

    fn streams(&self) -> Vec<Stream> {
        STREAMS.to_vec()
    }

    fn handle(&mut self, input: Input, now: Timestamp, out: &mut Outbox) {
        match input {
            Input::Apply(Kind::JOB, bytes) => match JobView::from_json(&bytes) {
                Ok(job) => self.observe(Object::Job(Arc::new(job)), now, out),
                Err(_) => self.observe_unreadable(Resource::Jobs, &bytes, now, out),
            },
            Input::Apply(Kind::POD, bytes) => match PodView::from_json(&bytes) {
                Ok(pod) => self.observe(Object::Pod(Arc::new(pod)), now, out),
                Err(_) => self.observe_unreadable(Resource::Pods, &bytes, now, out),
            },
            Input::Delete(Kind::JOB, bytes) => {
                if let Some(meta) = Meta::of(&bytes) {
                    let uid = JobUid::new(&meta.uid);
                    self.buried_jobs.remove(&uid);
                    self.job_gone(&uid, now, out);
                    self.jobs_at = self.jobs_at.max(meta.revision());
                    self.jobs_reached(now, out);
                }
            }
            Input::Delete(Kind::POD, bytes) => {
                if let Ok(pod) = PodView::from_json(&bytes) {
                    self.pod_gone(&pod, now, out);
                    self.pods_reached(pod.revision, now, out);
                } else if let Some(meta) = Meta::of(&bytes) {
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
                if !self.listing.contains(&Resource::Jobs) {
                    self.jobs_at = self.jobs_at.max(at);
                    self.jobs_reached(now, out);
                }
            }
            Input::Response { request, reply, served_at: _ } => {
                if let Some((pending, action)) = self.requests.remove(&request) {
                    let answer = wire::answer(self.mutation, &action, &reply);
                    self.answered(pending, answer, now, out);
                }
            }
            Input::Tick => self.tick(now, out),
            Input::Apply(..) | Input::Delete(..) | Input::Bookmark(..) => {}
        }
        self.ask_for_list(out);
        let timer = self.timers.first().map(|(at, _)| *at);
        out.wake_at = timer.into_iter().chain(self.strays.next_wake()).min();
    }
}
