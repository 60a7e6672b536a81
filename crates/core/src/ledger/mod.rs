//! The ledger of one Job: its Pods as compact entries, indexed so that planning costs as much as the plan is long.
//!
//! Every observation goes through [`Ledger::update_entry`], which changes the entry and updates the secondary indexes by the
//! difference: O(log N). Changes of the Job that affect how all its Pods are classified (a decision, a deletion, a new
//! number of completions) rebuild the indexes; they are few in a Job's life. Planning reads only the indexes
//! (`plan.rs`).
//!
//! What is stored here may only cost latency when lost. Everything that must survive is in the Job's status.

mod classification;
mod committed;
mod creations;
mod entry;
mod flight;
mod freshness;
mod index_states;
mod legacy;
mod lists;
mod plan;
mod pod_table;
mod refusals;
mod remembered;
mod removal_classes;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use compact_str::CompactString;

use crate::accounting::{Accounting, Outcome, PodFacts, UNCOUNTED_LIMIT};
use crate::backoff::FailureHistory;
use crate::conditions::Decision;
use crate::ids::{PodUid, Revision};
use crate::indexes::IndexSet;
use crate::job::{JobView, condition};
use crate::names::PodNames;
use crate::pod::PodView;
use crate::time::{Span, Timestamp};

use classification::{Counts, Flag, Queue};
use committed::Committed;
use creations::{Creations, InFlightCreation};
use entry::{Busy, Entry, JobMode, Slot};
use flight::{Flight, StatusInFlight};
use freshness::Freshness;
use lists::Lists;
pub use plan::{CreationReason, Hold, Horizon, Plan, PodRef, Removal, StatusWrite};
use pod_table::PodTable;
use refusals::Refusals;
pub use remembered::RememberedBackoff;
use removal_classes::RemovalClasses;

/// CONST-4.
const BATCH: usize = 500;
/// After this many consecutive failures of one request the delay no longer grows.
const DELAY_DOUBLINGS: u32 = 6;

/// The delay after a request that failed, and failed this many times before: 1, 2, 4 ... 64 seconds.
fn doubling_delay(failures_before: u32) -> Span {
    Span::from_seconds(1 << failures_before.min(DELAY_DOUBLINGS))
}

#[derive(Debug)]
pub struct Ledger {
    limits: Limits,
    job: Arc<JobView>,
    freshness: Freshness,
    mode: JobMode,
    names: PodNames,

    pods: PodTable,
    lists: Lists,
    committed: Committed,

    // Secondary indexes.
    counts: Counts,
    /// Active Pods without a request in flight.
    idle: RemovalClasses,
    due: Queue,
    releasable: Queue,
    discardable: Queue,
    /// How many of those stay for now.
    kept_finished: usize,
    fail_job: BTreeSet<(u64, Slot)>,
    misfits: BTreeSet<Slot>,
    terminating: BTreeSet<Slot>,
    /// Active Pods that have their start gate (TTL-23).
    start_gated: BTreeSet<Slot>,
    /// When a Pod that terminates is looked at, to find out whether its node is dead (REPL-8).
    looks: BTreeMap<Slot, Timestamp>,
    /// Pods that must not be pending for longer than until this time.
    pending: BTreeSet<(Timestamp, Slot)>,
    used_attempts: IndexSet,
    index: index_states::IndexStates,

    history: FailureHistory,
    /// The end of the back-off that was announced last.
    announced: Option<Timestamp>,
    refusals: Refusals,
    creations: Creations,
    flight: Flight,
    /// GATE-11: the failure that this process has decided, if no interim condition stores it.
    outright: Option<Decision>,
    /// The indexes that had failed by then: they stay failed, although their Pods may go with the Job.
    failed_by_then: IndexSet,
    /// A deadline counts from the instant at which the Job started, not from its startTime, which has whole seconds.
    exact_start: bool,
    /// The startTime that this process wrote, and when it wrote it.
    started: Option<(Timestamp, Timestamp)>,
}

/// How much work of one Job may be in flight at a time. Smaller only in simulations, where limits must be reached
/// often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// UIDs in `status.uncountedTerminatedPods`: about 20 KB of status (CONST-3).
    pub uncounted: usize,
    /// Creations, deletions or releases in flight (CONST-4): one Job must not starve the others.
    pub batch: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { uncounted: UNCOUNTED_LIMIT, batch: BATCH }
    }
}

/// A Pod as the ledger presents it to callers.
#[derive(Clone, Copy, Debug)]
pub struct LedgerPod<'a> {
    pub uid: &'a PodUid,
    pub name: &'a CompactString,
    pub revision: Revision,
    pub tracked: bool,
}

/// The source of an observation of a Pod. Only a list shows what is absent: a response that arrives while a list is
/// being read is not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObservedVia {
    /// A list, or the watch events after it.
    Stream,
    /// The response to a request.
    Response,
}

/// What this ledger knows about its Pods, and what is known about Pods that it does not claim (any more). A recorded
/// Pod that lost its labels or its owner is not a released Pod.
struct Facts<'a> {
    ledger: &'a Ledger,
    elsewhere: &'a dyn PodFacts,
    /// The stream of all Pods has caught up, so that an unknown Pod is gone. A list of the Job's own Pods opens the
    /// gate, but does not contain Pods that the Job no longer owns.
    unknown_is_gone: bool,
}

impl PodFacts for Facts<'_> {
    fn is_tracked(&self, uid: &PodUid) -> bool {
        match self.ledger.find(uid) {
            // A running Pod is not released, even without the finalizer.
            Some(slot) => self.ledger.entry(slot).tracked || self.ledger.entry(slot).is_active(),
            None => !self.unknown_is_gone || self.elsewhere.is_tracked(uid),
        }
    }
}

/// There are no Pods except those in the ledger.
pub struct Nowhere;

impl PodFacts for Nowhere {
    fn is_tracked(&self, _: &PodUid) -> bool {
        false
    }
}

impl Ledger {
    pub fn new(job: Arc<JobView>, limits: Limits) -> Self {
        let mode = mode(&job, false);
        let mut committed = Committed::new(&job, mode);
        committed.compare_indexes(&job, mode);
        let mut ledger = Self {
            limits,
            freshness: Freshness::new(&job),
            mode,
            names: PodNames::new(&job.uid, &job.name),
            job,
            pods: PodTable::default(),
            lists: Lists::default(),
            committed,
            counts: Counts::default(),
            idle: RemovalClasses::default(),
            due: Queue::default(),
            releasable: Queue::default(),
            discardable: Queue::default(),
            kept_finished: 0,
            fail_job: BTreeSet::new(),
            misfits: BTreeSet::new(),
            terminating: BTreeSet::new(),
            start_gated: BTreeSet::new(),
            looks: BTreeMap::new(),
            pending: BTreeSet::new(),
            used_attempts: IndexSet::new(),
            index: index_states::IndexStates::default(),
            history: FailureHistory::default(),
            announced: None,
            refusals: Refusals::default(),
            creations: Creations::default(),
            flight: Flight::default(),
            outright: None,
            failed_by_then: IndexSet::new(),
            exact_start: false,
            started: None,
        };
        ledger.rebuild();
        ledger
    }

    /// DEADLINE-7: no deadline of this Job is early, not even by the part of a second that a startTime does not have.
    pub fn count_deadlines_exactly(&mut self) {
        self.exact_start = true;
    }

    pub fn job(&self) -> &Arc<JobView> {
        &self.job
    }

    pub fn foreign_at(&self) -> Revision {
        self.freshness.foreign_at()
    }

    /// Whether a status write is in flight. What the stream shows meanwhile may be that write.
    pub fn is_writing(&self) -> bool {
        self.flight.status.is_some()
    }

    /// Pods in the ledger.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pods.len() == 0
    }

    /// Whether any Pod still carries the finalizer.
    pub fn has_tracked_pods(&self) -> bool {
        self.counts.of(Flag::Tracked) > 0
    }

    /// Whether any Pod is ready: something runs.
    pub fn has_ready_pods(&self) -> bool {
        self.counts.of(Flag::Ready) > 0
    }

    /// Whether the status lists this Pod among those to be tallied.
    pub fn has_recorded(&self, uid: &PodUid) -> bool {
        self.committed.uncounted.contains_key(uid)
    }

    /// Recorded or due, and not yet tallied: what an operator calls the backlog.
    pub fn uncounted_pods(&self) -> usize {
        self.committed.uncounted.len() + self.counts.of(Flag::Due) as usize
    }

    // ---- the Job ----

    /// The Job as a stream or a GET shows it. Older revisions are ignored.
    pub fn observe_job(&mut self, job: Arc<JobView>) {
        if job.revision <= self.job.revision {
            return;
        }
        let accounting_differs = Accounting::of(&self.job) != Accounting::of(&job);
        self.freshness.job_changed(job.revision, accounting_differs);
        self.flight.job_changed();
        self.adopt(job, None);
    }

    /// Our status write succeeded; `job` is the object as stored.
    pub fn status_written(&mut self, job: Arc<JobView>, now: Timestamp) {
        let flight = self.flight.status.take();
        self.flight.written(now);
        let succeeded = flight.as_ref().map(|flight| flight.succeeded.clone()).unwrap_or_default();
        // Before the status is adopted, so that a Pod that shows another phase since is not taken for a failure.
        self.mark_index_counted(&succeeded);
        self.freshness.job_written(job.revision);
        if job.revision > self.job.revision {
            self.adopt(job, flight);
        }
        // A Pod that still shows its success is marked only once its index is committed.
        self.mark_index_counted(&succeeded);
    }

    /// The success of these Pods was recorded by their index.
    fn mark_index_counted(&mut self, uids: &[PodUid]) {
        for uid in uids {
            if let Some(slot) = self.find(uid).filter(|slot| !self.entry(*slot).index_counted) {
                self.update_entry(slot, |entry| entry.index_counted = true);
            }
        }
    }

    /// The newest revision of Pods known before a read of the Job begins: the read confirms the Job up to here.
    pub fn newest_pod_at(&self) -> Revision {
        let listed_at = if self.start_gated.is_empty() { Revision(0) } else { self.freshness.unseen_before() };
        self.freshness.newest_pod_at().max(listed_at)
    }

    /// The Job was read, after Pods up to `at` were known.
    pub fn job_confirmed(&mut self, at: Revision) {
        self.freshness.job_confirmed(at);
    }

    /// Our status write failed, or its outcome is unknown.
    pub fn status_unwritten(&mut self) {
        let flight = self.flight.status.take();
        self.flight.unconfirmed.extend(flight.into_iter().flat_map(|flight| flight.succeeded));
        // The stream may have shown the write before.
        self.confirm_successes();
    }

    /// CONST-1: the server has refused our status write. It is sent again later; everything else goes on meanwhile.
    pub fn status_refused(&mut self, now: Timestamp) {
        self.status_unwritten();
        self.flight.refused(now);
    }

    /// GATE-11: the Job fails without an interim condition. From here on the decision stands, unless a user changes the
    /// Job: the Pods that end because of it would otherwise change the reason. Another process derives it again.
    fn fail_outright(&mut self, decision: Decision) {
        self.outright = Some(decision);
        self.failed_by_then = self.index.failed.clone();
        self.mode = mode(&self.job, true);
        self.rebuild();
    }

    fn adopt(&mut self, job: Arc<JobView>, own_write: Option<StatusInFlight>) {
        let old = std::mem::replace(&mut self.job, job);
        if old.generation != self.job.generation {
            // A user may have suspended the Job, or moved its deadline: what is not stored is derived again.
            self.outright = None;
            self.failed_by_then = IndexSet::new();
        }
        let mode = mode(&self.job, self.outright.is_some());
        let rules_changed = mode != self.mode
            || old.spec.backoff_limit_per_index != self.job.spec.backoff_limit_per_index
            || old.backoff != self.job.backoff
            || old.early_deletion != self.job.early_deletion
            || old.replace_terminating_after != self.job.replace_terminating_after
            || old.spec.pending_timeouts != self.job.spec.pending_timeouts;
        self.mode = mode;
        let lists_changed = old.status.completed_indexes != self.job.status.completed_indexes
            || old.status.failed_indexes != self.job.status.failed_indexes;
        if rules_changed || (own_write.is_none() && lists_changed) {
            // Before the UIDs: a success that is no longer recorded is booked permanently if its index is complete, and
            // that must be the index list of this status. Another writer may have removed both at once.
            self.committed.read_indexes(&self.job, mode);
        }
        self.adopt_uncounted(&old);
        self.confirm_successes();
        self.flight.unconfirmed.clear();
        match own_write {
            _ if rules_changed => self.rebuild(),
            _ if !lists_changed => return,
            _ if !mode.indexed => {}
            Some(write) => {
                self.committed.add_indexes(&write);
                for index in write.completed.into_iter().chain(write.failed) {
                    self.refresh_index(index);
                    self.update_pods_of(index);
                }
                return;
            }
            None => self.rebuild(),
        }
        self.committed.compare_indexes(&self.job, mode);
    }

    /// The outcome of writes was unknown, and the Job shows whether one of them recorded the indexes: a Pod whose success
    /// it recorded stays counted, whatever phase it shows since (S18).
    fn confirm_successes(&mut self) {
        for uid in self.flight.unconfirmed.clone() {
            let Some(slot) = self.find(&uid) else { continue };
            let index = self.entry(slot).valid_index(self.mode);
            if index.is_some_and(|index| self.committed.completed.contains(index)) {
                self.update_entry(slot, |entry| entry.index_counted = true);
            }
        }
    }

    /// Marks the Pods of the committed lists, and unmarks those that left them.
    fn adopt_uncounted(&mut self, old: &JobView) {
        if old.status.uncounted() == self.job.status.uncounted() {
            return;
        }
        let job = self.job.clone();
        let before = self.committed.read_uncounted(&job);
        let old_lists = old.status.uncounted();
        for uid in old_lists.succeeded.iter().chain(&old_lists.failed) {
            if before.contains_key(uid) && !self.committed.uncounted.contains_key(uid) {
                self.mark_recorded(uid, None);
            }
        }
        let lists = job.status.uncounted();
        for uid in lists.succeeded.iter().chain(&lists.failed) {
            let outcome = self.committed.uncounted.get(uid).copied();
            self.mark_recorded(uid, outcome);
        }
    }

    fn mark_recorded(&mut self, uid: &PodUid, outcome: Option<Outcome>) {
        if let Some(slot) = self.find(uid)
            && self.entry(slot).recorded != outcome
        {
            self.update_entry(slot, |entry| entry.recorded = outcome);
        }
    }

    // ---- Pods ----

    /// The clock was ahead, and was set back. What has been observed has happened by now, and no wait is longer than one
    /// that begins now (BACKOFF-14).
    pub fn clock_set_back(&mut self, now: Timestamp) {
        self.history.clock_set_back(now);
        self.creations.clock_set_back(now);
        self.refusals.clock_set_back(now);
        if let Some(wait) = self.job.gives_up_after() {
            self.looks.values_mut().for_each(|at| *at = (*at).min(now + wait));
        }
        let ahead = self.pods.iter().filter(|(_, entry)| entry.finished_at > now).map(|(slot, _)| slot);
        for slot in ahead.collect::<Vec<_>>() {
            self.update_entry(slot, |entry| entry.finished_at = now);
        }
    }

    /// A claimed Pod as the stream or its list shows it. Older revisions are ignored, so the view never goes back.
    pub fn observe_pod(&mut self, pod: &PodView, now: Timestamp) {
        self.apply_pod(pod, ObservedVia::Stream, now);
    }

    /// A claimed Pod, from either source.
    pub fn apply_pod(&mut self, pod: &PodView, via: ObservedVia, now: Timestamp) {
        let in_list = via == ObservedVia::Stream;
        self.freshness.pod_observed(pod.revision);
        let slot = self.find(&pod.uid);
        if !pod.tracked && !self.mode.legacy && !self.accounts_for(&pod.uid, slot) {
            self.freshness.doubt_job(pod.revision);
        }
        let spec = self.job.spec.clone();
        // A finish time in the future must not extend the back-off without bound (DEFECT-25).
        let finished_at = pod.finished_at.min(now);
        if let Some(slot) = slot {
            let epoch = self.lists.epoch;
            let known = self.entry_mut(slot);
            if in_list {
                known.epoch = epoch;
            }
            if pod.revision < known.revision {
                return;
            }
            let listed_at = self.lists.own_at;
            self.update_entry(slot, |entry| {
                let newer = entry.revision < pod.revision;
                entry.removal_unknown &= !newer;
                entry.unlisted &= pod.revision <= listed_at;
                entry.update(pod, &spec);
                entry.finished_at = finished_at;
                if newer && entry.busy == Busy::Refused {
                    // A request that was refused may succeed now.
                    entry.busy = Busy::No;
                    entry.removal = false;
                }
            });
            return;
        }
        if self.lists.has_tombstone(&pod.uid, in_list) {
            return;
        }
        // A newer list did not contain it. Without the finalizer the Pod is gone; with it, the Pod may be gone or may
        // have lost its owner by then, and only the stream will show which.
        let unlisted = pod.revision <= self.lists.own_at;
        if unlisted && !pod.tracked {
            return;
        }
        let mut entry = Entry::new(pod, &spec);
        entry.finished_at = finished_at;
        entry.epoch = if in_list { self.lists.epoch } else { self.lists.epoch.wrapping_sub(1) };
        entry.unlisted = unlisted;
        entry.recorded = self.committed.uncounted.get(&pod.uid).copied();
        entry.attempt = self.names.attempt(entry.index.filter(|_| self.mode.indexed), &entry.name);
        // Resolves a creation of unknown outcome. A creation in flight stays so until its response: it may yet be
        // carried out if this Pod is deleted first.
        if self.creations.is_unknown(&pod.name) {
            self.end_creation(&pod.name);
        }
        let attempt = entry.attempt;
        let slot = self.pods.insert(entry);
        if let Some(attempt) = attempt.filter(|_| !self.mode.indexed) {
            self.used_attempts.insert(attempt);
        }
        self.update_entry(slot, |_| {});
    }

    /// The list that is being read contains the Pod, without new information about it.
    pub fn pod_is_listed(&mut self, uid: &PodUid) {
        let epoch = self.lists.epoch;
        if let Some(slot) = self.find(uid) {
            self.entry_mut(slot).epoch = epoch;
        } else {
            self.lists.has_tombstone(uid, true);
        }
    }

    /// A Pod as a response shows it. A response may be older than the stream: a Pod that is unknown although the stream
    /// is past it has been created and deleted.
    pub fn observe_response(&mut self, pod: &PodView, pods_at: Revision, now: Timestamp) {
        if pod.revision > pods_at || self.find(&pod.uid).is_some() {
            self.apply_pod(pod, ObservedVia::Response, now);
        }
    }

    /// The stream shows that the Pod is gone, as of `at`.
    pub fn pod_gone(&mut self, uid: &PodUid, at: Revision) {
        self.lists.remove_tombstone(uid);
        if let Some(slot) = self.find(uid) {
            self.lose_entry(slot, at);
        }
    }

    /// A response shows that the Pod is gone; the stream will show it later.
    pub fn pod_gone_by_response(&mut self, uid: &PodUid) {
        if let Some(slot) = self.find(uid) {
            // The response does not say since when.
            let at = self.freshness.next_pod_at();
            let Entry { revision, epoch: seen_in, .. } = *self.entry(slot);
            self.lose_entry(slot, at);
            self.lists.add_tombstone(uid.clone(), revision, seen_in);
        }
    }

    /// A Pod is gone: another writer must have released it before, and may have counted it first.
    fn lose_entry(&mut self, slot: Slot, at: Revision) {
        let entry = self.entry(slot);
        if entry.recorded.is_none() && (entry.tracked || !self.freshness.covers(entry.revision)) {
            self.freshness.doubt_job(at);
        }
        self.drop_entry(slot);
    }

    fn drop_entry(&mut self, slot: Slot) {
        self.remove_from_indexes(slot);
        let Some(entry) = self.pods.remove(slot) else {
            return;
        };
        self.request_ended(entry.busy);
        self.refusals.end(slot);
        if let Some(attempt) = entry.attempt.filter(|_| !self.mode.indexed) {
            self.used_attempts.remove(attempt);
        }
        if let Some(index) = entry.index.filter(|_| self.mode.indexed) {
            self.refresh_index(index);
        }
    }

    /// Whether our view of the Job accounts for a Pod that was released: by its lists, or because a write of ours recorded its
    /// success by its index.
    fn accounts_for(&self, uid: &PodUid, slot: Option<Slot>) -> bool {
        self.committed.uncounted.contains_key(uid) || slot.is_some_and(|slot| self.entry(slot).index_counted)
    }

    /// A list of all Pods begins; Pods that it has not shown by its end are gone.
    pub fn relist_begins(&mut self) {
        self.lists.begin();
    }

    /// The list is complete as of `at`. Entries newer than it stay: they come from a response.
    pub fn relist_ends(&mut self, at: Revision) {
        let missing: Vec<Slot> = self
            .slots()
            .filter(|slot| {
                let entry = self.entry(*slot);
                entry.epoch != self.lists.epoch && entry.revision <= at
            })
            .collect();
        for slot in missing {
            self.lose_entry(slot, at);
        }
        self.lists.end(at);
        self.freshness.pods_listed(at);
    }

    /// A consistent list of this Job's Pods is requested now: it will contain the Pod of every creation carried out so
    /// far.
    pub fn list_begins(&mut self) {
        self.creations.list_begins();
    }

    /// A consistent list of this Job's Pods alone, as of `at`.
    pub fn pods_listed(&mut self, pods: &[Arc<PodView>], at: Revision, pods_at: Revision, now: Timestamp) {
        for pod in pods {
            self.observe_response(pod, pods_at, now);
        }
        let listed: BTreeSet<&PodUid> = pods.iter().map(|pod| &pod.uid).collect();
        let missing: Vec<Slot> = self
            .slots()
            .filter(|slot| {
                let entry = self.entry(*slot);
                entry.revision <= at && !listed.contains(&entry.uid)
            })
            .collect();
        for slot in missing {
            if self.entry(slot).tracked {
                self.update_entry(slot, |entry| entry.unlisted = true);
            } else {
                self.lose_entry(slot, at);
            }
        }
        self.lists.own_at = self.lists.own_at.max(at);
        self.freshness.pods_listed(at);
        for name in self.creations.resolved_by_list() {
            self.end_creation(&name);
        }
    }

    /// Whether this Pod is known to have ended and to still carry the finalizer (METRIC-9).
    pub fn holds_ended(&self, uid: &PodUid) -> bool {
        self.find(uid).map(|slot| self.entry(slot)).is_some_and(|entry| entry.tracked && entry.phase.is_terminal())
    }

    /// The revision at which the ledger knows a Pod.
    pub fn knows_at(&self, uid: &PodUid) -> Option<Revision> {
        self.find(uid).map(|slot| self.entry(slot).revision)
    }

    // ---- Pods of dead nodes ----

    /// REPL-8: the Pod terminates, and its node has been dead for long enough.
    pub fn pod_given_up(&mut self, uid: &PodUid) {
        if let Some(slot) = self.find(uid).filter(|slot| self.entry(*slot).deleting) {
            self.update_entry(slot, |entry| entry.given_up = true);
        }
    }

    /// Its node may yet end the Pod: look again at this time.
    pub fn look_again_at(&mut self, uid: &PodUid, at: Timestamp) {
        if let Some(slot) = self.find(uid).filter(|slot| self.terminating.contains(slot)) {
            self.looks.insert(slot, at);
        }
    }

    // ---- responses about Pods ----

    /// A release, delete or removal received its response (or was given up): the Pod may be planned for again.
    pub fn pod_answered(&mut self, uid: &PodUid) {
        if let Some(slot) = self.find(uid) {
            self.refusals.end(slot);
            self.settle(slot, Busy::No);
        }
    }

    /// The API refused the request, or its outcome is unknown: retry later, and let other Pods proceed meanwhile (S15).
    pub fn pod_refused(&mut self, uid: &PodUid, now: Timestamp) {
        if let Some(slot) = self.find(uid) {
            self.refusals.add(slot, now);
            self.settle(slot, Busy::Refused);
        }
    }

    fn settle(&mut self, slot: Slot, busy: Busy) {
        self.request_ended(self.entry(slot).busy);
        self.update_entry(slot, |entry| {
            entry.busy = busy;
            entry.removal &= busy != Busy::No;
        });
    }

    fn request_ended(&mut self, busy: Busy) {
        match busy {
            Busy::Releasing => self.flight.releases = self.flight.releases.saturating_sub(1),
            Busy::Discarding => self.flight.discards = self.flight.discards.saturating_sub(1),
            Busy::Starting => self.flight.starts = self.flight.starts.saturating_sub(1),
            Busy::No | Busy::Deleting | Busy::Removing | Busy::Refused => {}
        }
    }

    /// A Pod being removed may have lost its finalizer: the outcome of the request is not known.
    pub fn removal_unknown(&mut self, uid: &PodUid) {
        if let Some(slot) = self.find(uid) {
            self.update_entry(slot, |entry| entry.removal_unknown = true);
        }
    }

    /// A Pod being removed has lost its finalizer; the deletion follows.
    pub fn removal_released(&mut self, uid: &PodUid) {
        if let Some(slot) = self.find(uid) {
            self.update_entry(slot, |entry| entry.busy = Busy::Removing);
        }
    }

    /// Every Pod in the ledger.
    pub fn pods(&self) -> impl Iterator<Item = LedgerPod<'_>> {
        self.pods.iter().map(|(_, entry)| LedgerPod {
            uid: &entry.uid,
            name: &entry.name,
            revision: entry.revision,
            tracked: entry.tracked,
        })
    }

    /// A creation succeeded: the Pod is known before the stream shows it.
    pub fn created(&mut self, pod: &PodView, pods_at: Revision, now: Timestamp) {
        self.creations.succeeded();
        self.end_creation(&pod.name);
        self.observe_response(pod, pods_at, now);
        self.creations.batch_ended(self.limits.batch);
    }

    /// A creation failed for certain: this attempt, but perhaps not an earlier one.
    pub fn creation_failed(&mut self, name: &str, now: Timestamp) {
        if !self.creations.refusal_is_certain(name) {
            return self.creation_unknown(name, now);
        }
        self.end_creation(name);
        self.creations.refused(now);
    }

    /// It is unknown whether the Pod was created. The name stays taken until the outcome is known.
    pub fn creation_unknown(&mut self, name: &str, now: Timestamp) {
        if self.pods.has_name(name) {
            // The stream was faster: the Pod exists.
            self.end_creation(name);
            self.creations.batch_ended(self.limits.batch);
            return;
        }
        self.creations.outcome_unknown(name, now);
    }

    /// The name is taken by a Pod that is not ours, or no longer is: the attempt is not used again.
    pub fn name_taken(&mut self, name: &str) {
        if let Some(creation) = self.end_creation(name) {
            self.index.taken_names.insert((creation.index, creation.attempt));
            // If the Pod was ours and is gone, another leader may have counted it.
            self.freshness.doubt_job(self.freshness.next_pod_at());
        }
        self.creations.batch_ended(self.limits.batch);
    }

    fn end_creation(&mut self, name: &str) -> Option<InFlightCreation> {
        let creation = self.creations.end(name)?;
        if creation.index.is_none() && !self.name_in_use(name) {
            self.used_attempts.remove(creation.attempt);
        }
        if let Some(index) = creation.index {
            self.index.creating.remove(&index);
            self.refresh_index(index);
        }
        Some(creation)
    }

    // ---- lookup ----

    fn find(&self, uid: &PodUid) -> Option<Slot> {
        self.pods.find(uid)
    }

    fn name_in_use(&self, name: &str) -> bool {
        self.creations.contains(name) || self.pods.has_name(name)
    }

    #[allow(clippy::expect_used)]
    fn entry(&self, slot: Slot) -> &Entry {
        self.pods.get(slot).expect("a slot in any index holds an entry: drop_entry removes it from them first")
    }

    #[allow(clippy::expect_used)]
    fn entry_mut(&mut self, slot: Slot) -> &mut Entry {
        self.pods.get_mut(slot).expect("a slot in any index holds an entry: drop_entry removes it from them first")
    }

    fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.pods.iter().map(|(slot, _)| slot)
    }
}

fn mode(job: &JobView, fails_outright: bool) -> JobMode {
    let status = &job.status;
    let succeeding = status.is_true(condition::SUCCESS_CRITERIA_MET);
    JobMode {
        succeeding,
        failing: !succeeding && (fails_outright || status.is_true(condition::FAILURE_TARGET)),
        deleting: job.deleting,
        legacy: job.legacy,
        waits_for_terminal_phase: job.spec.waits_for_terminal_phase(),
        indexed: job.spec.is_indexed(),
        index_limit: job.spec.index_limit(),
        limits_each_index: job.spec.limits_each_index(),
    }
}

#[cfg(test)]
mod tests;
