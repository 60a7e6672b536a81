//! The Jobs that the controller knows, found by slot, by UID, and by what they may select or have recorded.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

use compact_str::CompactString;
use tally_core::ids::{JobUid, PodUid, Revision};
use tally_core::job::{CONTROLLER_UID_LABELS, JobView, Uncounted};
use tally_core::ledger::Ledger;
use tally_core::pod::PodView;
use tally_core::time::{Span, Timestamp};
use tally_core::tombstones::Tombstones;

use super::FixedState;

pub(super) type JobSlot = u32;

#[derive(Default)]
pub(super) struct JobTable {
    records: Vec<Option<JobRecord>>,
    free: Vec<JobSlot>,
    by_uid: HashMap<JobUid, JobSlot, FixedState>,
    /// Jobs with a selector that the API did not generate, by namespace. Any other selector names its Job in a label.
    self_chosen: BTreeMap<CompactString, BTreeSet<JobSlot>>,
    /// Jobs that are gone according to a response.
    tombstones: Tombstones<JobUid>,
    /// Jobs that cannot be decoded, and the last list that contained each. They exist: their Pods are not orphans.
    unreadable: BTreeMap<JobUid, u32>,
    /// The number of the current list. A record keeps the number of the last list that contained it.
    epoch: u32,
}

/// The time and the load that a plan was made for: a plan for the same ones yields nothing more.
#[derive(Clone, Copy)]
pub(super) struct Planned {
    pub at: Timestamp,
    /// Requests wait for their turn.
    pub crowded: bool,
}

/// One Job as the controller stores it.
pub(super) struct JobRecord {
    pub view: Arc<JobView>,
    /// Only while there is something to do: a finished Job whose Pods are released costs only a view (S39).
    pub ledger: Option<Box<Ledger>>,
    /// The Job of the ledger when [`ListedPods`] was brought up to date.
    pub recorded: Option<Arc<JobView>>,
    pub epoch: u32,
    pub timer: Option<Timestamp>,
    /// A current view was requested after a conflict; planning from the old one would only conflict again.
    pub refreshing: bool,
    pub confirming: bool,
    /// Its position among the Jobs whose Pods are to be listed.
    pub list_ticket: Option<u64>,
    /// Its Pods are being listed.
    pub listing: bool,
    pub list_retry_at: Option<Timestamp>,
    /// Since when the gate is closed.
    pub gate_closed_since: Option<Timestamp>,
    /// The reason for standing still that was told last, unless Pods were created since (EVENT-13).
    pub told: Option<&'static str>,
    /// Pods to adopt once the Job is known to still exist.
    pub adopting: BTreeMap<PodUid, (CompactString, Revision)>,
    /// Adoptions that were requested and have not ended.
    pub adoptions: BTreeMap<PodUid, Adoption>,
    pub warned_unknown_mode: bool,
    /// Among those that METRIC-15 counts.
    pub counted_legacy: bool,
    pub told_unsupported: bool,
    /// What was said about annotations that cannot be used (BACKOFF-12).
    pub warned_backoff: Option<Arc<str>>,
    pub planned: Option<Planned>,
    /// How many times the server has refused the status since it accepted one (EVENT-14).
    pub status_refusals: u32,
}

impl JobRecord {
    pub fn clock_set_back(&mut self, by: Span, now: Timestamp) {
        let times = [&mut self.timer, &mut self.list_retry_at, &mut self.gate_closed_since];
        let since = self.adoptions.values_mut().map(|adoption| &mut adoption.since);
        times.into_iter().chain(since).flatten().for_each(|at| *at = *at - by);
        self.planned = None;
        self.ledger.iter_mut().for_each(|ledger| ledger.clock_set_back(now));
    }
}

#[derive(Default)]
pub(super) struct Adoption {
    pub in_flight: bool,
    /// Since when it has had no response or has been refused. None: it has failed and is to be retried.
    pub since: Option<Timestamp>,
}

impl JobTable {
    pub fn slot_of(&self, uid: &JobUid) -> Option<JobSlot> {
        self.by_uid.get(uid).copied()
    }

    pub fn get(&self, slot: JobSlot) -> Option<&JobRecord> {
        self.records.get(slot as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, slot: JobSlot) -> Option<&mut JobRecord> {
        self.records.get_mut(slot as usize)?.as_mut()
    }

    pub fn find_mut(&mut self, uid: &JobUid) -> Option<&mut JobRecord> {
        self.get_mut(self.slot_of(uid)?)
    }

    /// Every slot, whether or not a Job has it.
    pub fn slots(&self) -> std::ops::Range<JobSlot> {
        0..JobSlot::try_from(self.records.len()).unwrap_or(JobSlot::MAX)
    }

    pub fn iter(&self) -> impl Iterator<Item = (JobSlot, &JobRecord)> {
        (0..).zip(&self.records).filter_map(|(slot, record)| Some((slot, record.as_ref()?)))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut JobRecord> {
        self.records.iter_mut().flatten()
    }

    /// The Jobs whose selectors may match the labels of this Pod: those that a label names, and those with a selector of
    /// a user.
    pub fn may_select(&self, pod: &PodView) -> impl Iterator<Item = (JobSlot, &JobRecord)> {
        let named = CONTROLLER_UID_LABELS.iter().filter_map(|label| self.slot_of(&JobUid::new(pod.labels.get(label)?)));
        let slots: BTreeSet<JobSlot> =
            named.chain(self.self_chosen.get(&pod.namespace).into_iter().flatten().copied()).collect();
        let jobs = slots.into_iter().filter_map(|slot| Some((slot, self.get(slot)?)));
        jobs.filter(|(_, record)| record.view.namespace == pod.namespace)
    }

    pub fn insert(&mut self, job: Arc<JobView>) -> JobSlot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.records.push(None);
            JobSlot::try_from(self.records.len() - 1).unwrap_or(JobSlot::MAX)
        });
        self.by_uid.insert(job.uid.clone(), slot);
        // The selector of a Job never changes.
        if !CONTROLLER_UID_LABELS.iter().any(|label| job.selects_itself_by(label)) {
            self.self_chosen.entry(job.namespace.clone()).or_default().insert(slot);
        }
        self.records[slot as usize] = Some(JobRecord {
            view: job,
            ledger: None,
            recorded: None,
            epoch: self.epoch,
            timer: None,
            refreshing: false,
            confirming: false,
            list_ticket: None,
            listing: false,
            list_retry_at: None,
            gate_closed_since: None,
            told: None,
            adopting: BTreeMap::new(),
            adoptions: BTreeMap::new(),
            warned_unknown_mode: false,
            counted_legacy: false,
            told_unsupported: false,
            warned_backoff: None,
            planned: None,
            status_refusals: 0,
        });
        slot
    }

    pub fn remove(&mut self, slot: JobSlot) -> Option<JobRecord> {
        let record = self.records.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        self.by_uid.remove(&record.view.uid);
        if let Some(siblings) = self.self_chosen.get_mut(&record.view.namespace) {
            siblings.remove(&slot);
            if siblings.is_empty() {
                self.self_chosen.remove(&record.view.namespace);
            }
        }
        Some(record)
    }

    // ---- lists ----

    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    pub fn list_begins(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// The Jobs that a list, complete as of `at`, does not contain. Records newer than it stay: they come from a
    /// response.
    pub fn missing_from_list(&self, at: Revision) -> Vec<JobUid> {
        let known = self.iter().map(|(_, record)| record);
        let known = known.filter(|record| record.epoch != self.epoch && record.view.revision <= at);
        let unreadable = self.unreadable.iter().filter(|(_, seen_in)| **seen_in != self.epoch);
        known.map(|record| record.view.uid.clone()).chain(unreadable.map(|(uid, _)| uid.clone())).collect()
    }

    pub fn list_ends(&mut self, at: Revision) {
        self.tombstones.list_ends(self.epoch, at);
    }

    /// A response shows that the Job is gone.
    pub fn add_tombstone(&mut self, slot: JobSlot) {
        if let Some(record) = self.get(slot) {
            let (uid, revision, seen_in) = (record.view.uid.clone(), record.view.revision, record.epoch);
            self.tombstones.add(uid, revision, seen_in);
        }
    }

    /// The stream shows that the Job is gone.
    pub fn remove_tombstone(&mut self, uid: &JobUid) {
        self.tombstones.remove(uid);
    }

    /// Whether the Job is gone, though it was observed just now, perhaps in the current list.
    pub fn has_tombstone(&mut self, uid: &JobUid, in_list: bool) -> bool {
        if in_list { self.tombstones.listed(uid, self.epoch) } else { self.tombstones.contains(uid) }
    }

    /// The stream shows a Job that cannot be decoded. What is known about it is kept.
    pub fn unreadable(&mut self, uid: JobUid) {
        let epoch = self.epoch;
        if let Some(record) = self.find_mut(&uid) {
            record.epoch = epoch;
        } else if !self.has_tombstone(&uid, true) {
            self.unreadable.insert(uid, epoch);
        }
    }

    pub fn is_unreadable(&self, uid: &JobUid) -> bool {
        self.unreadable.contains_key(uid)
    }

    /// The Job can be decoded now, or is gone. Returns whether it could not be decoded before.
    pub fn readable(&mut self, uid: &JobUid) -> bool {
        self.unreadable.remove(uid).is_some()
    }
}

/// Which statuses list a Pod among those to be tallied: so an event of one Pod costs no look at every Job. `K` names the
/// status.
pub(super) struct ListedPods<K>(BTreeSet<(PodUid, K)>);

impl<K> Default for ListedPods<K> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<K: Ord + Copy> ListedPods<K> {
    pub fn add(&mut self, key: K, lists: &Uncounted) {
        self.0.extend(uids(lists).map(|uid| (uid.clone(), key)));
    }

    pub fn remove(&mut self, key: K, lists: &Uncounted) {
        for uid in uids(lists) {
            self.0.remove(&(uid.clone(), key));
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn keys_of(&self, uid: &PodUid, all: RangeInclusive<K>) -> impl Iterator<Item = K> {
        let (first, last) = all.into_inner();
        self.0.range((uid.clone(), first)..=(uid.clone(), last)).map(|(_, key)| *key)
    }
}

fn uids(lists: &Uncounted) -> impl Iterator<Item = &PodUid> {
    lists.succeeded.iter().chain(&lists.failed)
}
