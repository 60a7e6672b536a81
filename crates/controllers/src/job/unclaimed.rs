//! Unclaimed Pods, which are in no ledger: their Job is not known (yet), or they have none.
//!
//! A Pod whose Job is missing is an orphan only once the Job stream is as far as the Pod: before that the Job may
//! simply not have been observed. Orphans lose the finalizer and nothing is counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use compact_str::CompactString;
use tally_core::accounting::PodFacts;
use tally_core::ids::{JobUid, PodUid, Revision};
use tally_core::job::JobView;
use tally_core::ledger::ObservedVia;
use tally_core::pod::PodView;
use tally_core::selector::Selector;
use tally_core::time::{Span, Timestamp};
use tally_core::tombstones::Tombstones;
use tally_runtime::controller::bring_forward;

use super::FixedState;

/// The maximum number of orphan releases in flight: ten thousand orphans must not displace the requests of running Jobs
/// (S16).
const ORPHANS_IN_FLIGHT: usize = 100;
/// A refused release is retried after 1, 2, 4 ... 64 seconds.
const ORPHAN_DOUBLINGS: u32 = 6;

#[derive(Default)]
pub(super) struct UnclaimedPods {
    pods: HashMap<PodUid, (Arc<PodView>, u32), FixedState>,
    by_job: HashMap<JobUid, BTreeSet<PodUid>, FixedState>,
    /// Pods without a controller, by namespace: the ones that a Job may adopt.
    uncontrolled: BTreeMap<CompactString, BTreeSet<PodUid>>,
    /// The same, by namespace and each of their labels: what a Job may adopt is found by its selector.
    labelled: BTreeMap<Label, BTreeSet<PodUid>>,
    /// Pods about which nothing is decided before the Job stream has reached their revision.
    unsettled: BTreeSet<(Revision, PodUid)>,
    orphans: BTreeMap<PodUid, Orphan>,
    /// Orphans to release, by the time of the next attempt.
    queue: BTreeSet<(Timestamp, PodUid)>,
    in_flight: usize,
    epoch: u32,
    /// Pods that are gone according to a response.
    tombstones: Tombstones<PodUid>,
    /// How often a Pod was decided about.
    pub decisions: u64,
}

/// Namespace, key and value.
type Label = (CompactString, CompactString, CompactString);

pub(super) struct Orphan {
    pub namespace: CompactString,
    pub name: CompactString,
    /// Its revision when it was found to be an orphan. It is released at that revision only, or read again: another Job
    /// may have adopted it.
    pub revision: Revision,
    /// The Job that is gone or has finished; None if the Pod had none.
    pub job: Option<JobUid>,
    refusals: u32,
    queued: Option<Timestamp>,
}

impl PodFacts for UnclaimedPods {
    fn is_tracked(&self, uid: &PodUid) -> bool {
        self.orphans.contains_key(uid) || self.pods.get(uid).is_some_and(|(pod, _)| pod.tracked)
    }
}

impl UnclaimedPods {
    pub fn len(&self) -> usize {
        self.pods.len() + self.orphans.len()
    }

    /// A Pod that a response shows does not become part of a list.
    pub fn insert(&mut self, pod: Arc<PodView>, via: ObservedVia) {
        let before = self.pods.get(&pod.uid).map(|(_, seen_in)| *seen_in);
        self.remove(&pod.uid);
        if let Some(job) = pod.job() {
            self.by_job.entry(job.clone()).or_default().insert(pod.uid.clone());
        } else {
            self.uncontrolled.entry(pod.namespace.clone()).or_default().insert(pod.uid.clone());
            for label in labels_of(&pod) {
                self.labelled.entry(label).or_default().insert(pod.uid.clone());
            }
        }
        self.unsettled.insert((pod.revision, pod.uid.clone()));
        let seen_in = match via {
            ObservedVia::Stream => self.epoch,
            ObservedVia::Response => before.unwrap_or(self.epoch.wrapping_sub(1)),
        };
        self.pods.insert(pod.uid.clone(), (pod, seen_in));
    }

    /// The current list contains it, perhaps in an older version.
    pub fn touch(&mut self, uid: &PodUid) {
        let epoch = self.epoch;
        if let Some((_, seen_in)) = self.pods.get_mut(uid) {
            *seen_in = epoch;
        }
        self.tombstones.listed(uid, epoch);
    }

    /// A response shows that the Pod is gone. Returns what was known about it.
    pub fn gone_by_response(&mut self, uid: &PodUid) -> Option<Arc<PodView>> {
        let seen_in = self.pods.get(uid).map_or(self.epoch.wrapping_sub(1), |(_, seen_in)| *seen_in);
        let orphan_at = self.orphan_at(uid);
        let known = self.remove(uid);
        self.forget_orphan(uid);
        if let Some(revision) = known.as_ref().map(|pod| pod.revision).max(orphan_at) {
            self.tombstones.add(uid.clone(), revision, seen_in);
        }
        known
    }

    /// The stream shows that the Pod is gone.
    pub fn gone_by_stream(&mut self, uid: &PodUid) {
        self.forget(uid);
        self.tombstones.remove(uid);
    }

    pub fn remove(&mut self, uid: &PodUid) -> Option<Arc<PodView>> {
        let (pod, _) = self.pods.remove(uid)?;
        self.unsettled.remove(&(pod.revision, uid.clone()));
        if let Some(job) = pod.job() {
            if let Some(siblings) = self.by_job.get_mut(job) {
                siblings.remove(uid);
                if siblings.is_empty() {
                    self.by_job.remove(job);
                }
            }
        } else {
            remove_from(&mut self.uncontrolled, &pod.namespace, uid);
            labels_of(&pod).for_each(|label| remove_from(&mut self.labelled, &label, uid));
        }
        Some(pod)
    }

    /// The Pod is permanently gone.
    pub fn forget(&mut self, uid: &PodUid) {
        self.remove(uid);
        self.forget_orphan(uid);
    }

    pub fn forget_orphan(&mut self, uid: &PodUid) {
        if let Some(orphan) = self.orphans.remove(uid)
            && let Some(at) = orphan.queued
        {
            self.queue.remove(&(at, uid.clone()));
        }
    }

    pub fn take_job(&mut self, job: &JobUid) -> Vec<Arc<PodView>> {
        self.take_with_via(job).into_iter().map(|(pod, _)| pod).collect()
    }

    /// With each Pod, whether the current list has contained it.
    pub fn take_with_via(&mut self, job: &JobUid) -> Vec<(Arc<PodView>, ObservedVia)> {
        let uids = self.by_job.get(job).cloned().unwrap_or_default();
        let via_of = |uid: &PodUid| match self.pods.get(uid) {
            Some((_, seen_in)) if *seen_in == self.epoch => ObservedVia::Stream,
            _ => ObservedVia::Response,
        };
        let via: Vec<ObservedVia> = uids.iter().map(via_of).collect();
        uids.iter().zip(via).filter_map(|(uid, via)| Some((self.remove(uid)?, via))).collect()
    }

    pub fn forget_job(&mut self, job: &JobUid) {
        self.take_job(job);
    }

    /// Keeps the Pods that become orphans when the Job is gone.
    pub fn forget_untracked(&mut self, job: &JobUid) {
        let is_free = |uid: &&PodUid| self.pods.get(*uid).is_none_or(|(pod, _)| !pod.tracked);
        let free: Vec<PodUid> = self.by_job.get(job).into_iter().flatten().filter(is_free).cloned().collect();
        for uid in free {
            self.remove(&uid);
        }
    }

    pub fn has_pods_of(&self, job: &JobUid) -> bool {
        self.by_job.contains_key(job)
    }

    /// Whether the Pod, as far as is known, may still be adopted by this Job.
    pub fn is_adoptable(&self, uid: &PodUid, job: &JobView) -> bool {
        self.pods.get(uid).is_some_and(|(pod, _)| pod.controller.is_none() && job.may_adopt(pod))
    }

    pub fn knows_newer(&self, pod: &PodView) -> bool {
        self.pods.get(&pod.uid).is_some_and(|(known, _)| known.revision > pod.revision)
            || self.orphan_at(&pod.uid).is_some_and(|known_at| known_at > pod.revision)
            || self.tombstones.contains(&pod.uid)
    }

    /// Those of these Pods that have no controller are decided about again.
    pub fn unsettle<'a>(&mut self, uids: impl IntoIterator<Item = &'a PodUid>) {
        let pods = uids.into_iter().filter_map(|uid| self.pods.get(uid)).map(|(pod, _)| pod);
        let again = pods.filter(|pod| pod.controller.is_none()).map(|pod| (pod.revision, pod.uid.clone()));
        self.unsettled.extend(again);
    }

    /// The Pods without a controller that a selector may select: all that have the rarest of its labels.
    pub fn candidates(&self, namespace: &str, selector: &Selector) -> Vec<Arc<PodView>> {
        let none = BTreeSet::new();
        let labels = selector.match_labels.iter();
        let with = labels
            .map(|(key, value)| self.labelled.get(&(namespace.into(), key.clone(), value.clone())).unwrap_or(&none));
        // Expressions alone name no label that a Pod must have.
        let uids = with.min_by_key(|uids| uids.len()).or_else(|| self.uncontrolled.get(namespace));
        uids.into_iter().flatten().filter_map(|uid| self.pods.get(uid)).map(|(pod, _)| pod.clone()).collect()
    }

    pub fn get(&self, uid: &PodUid) -> Option<&Arc<PodView>> {
        self.pods.get(uid).map(|(pod, _)| pod)
    }

    /// The number of Pods that are still to be decided about.
    pub fn undecided(&self) -> usize {
        self.unsettled.len()
    }

    /// The next Pod to be decided about: the Job stream, observed up to `jobs_at`, has reached its revision.
    pub fn pop_unsettled(&mut self, jobs_at: Revision) -> Option<Arc<PodView>> {
        loop {
            let (revision, _) = self.unsettled.first()?;
            if *revision > jobs_at {
                return None;
            }
            let (_, uid) = self.unsettled.pop_first()?;
            if let Some((pod, _)) = self.pods.get(&uid) {
                self.decisions += 1;
                return Some(pod.clone());
            }
        }
    }

    pub fn orphan(&mut self, pod: &PodView) {
        let place = (pod.namespace.clone(), pod.name.clone());
        self.orphan_named(pod.uid.clone(), place, pod.revision, pod.job().cloned());
    }

    /// No controller will ever count this Pod: release it, conditional on this revision.
    pub fn orphan_named(
        &mut self,
        uid: PodUid,
        place: (CompactString, CompactString),
        revision: Revision,
        job: Option<JobUid>,
    ) {
        if self.orphan_at(&uid).is_some_and(|known_at| known_at >= revision) {
            return;
        }
        self.forget_orphan(&uid);
        let at = Timestamp::default();
        self.queue.insert((at, uid.clone()));
        let (namespace, name) = place;
        self.orphans.insert(uid, Orphan { namespace, name, revision, job, refusals: 0, queued: Some(at) });
    }

    pub fn get_orphan(&self, uid: &PodUid) -> Option<&Orphan> {
        self.orphans.get(uid)
    }

    /// The release of an orphan received its response.
    pub fn release_ended(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// The revision at which a Pod was found to be an orphan.
    pub fn orphan_at(&self, uid: &PodUid) -> Option<Revision> {
        self.orphans.get(uid).map(|orphan| orphan.revision)
    }

    /// The release at this revision failed. A newer orphan with that UID has its own entry in the queue.
    pub fn orphan_refused(&mut self, uid: &PodUid, revision: Revision, now: Timestamp) {
        let failed = |orphan: &&mut Orphan| orphan.revision == revision && orphan.queued.is_none();
        if let Some(orphan) = self.orphans.get_mut(uid).filter(failed) {
            let at = now + Span::from_seconds(1 << orphan.refusals.min(ORPHAN_DOUBLINGS));
            orphan.refusals += 1;
            orphan.queued = Some(at);
            self.queue.insert((at, uid.clone()));
        }
    }

    pub fn clock_set_back(&mut self, by: Span) {
        bring_forward(&mut self.queue, by);
        self.orphans.values_mut().filter_map(|orphan| orphan.queued.as_mut()).for_each(|at| *at = *at - by);
    }

    pub fn next_orphan(&mut self, now: Timestamp) -> Option<(PodUid, &Orphan)> {
        if self.in_flight >= ORPHANS_IN_FLIGHT {
            return None;
        }
        let (at, _) = self.queue.first()?;
        if *at > now {
            return None;
        }
        let (_, uid) = self.queue.pop_first()?;
        let orphan = self.orphans.get_mut(&uid)?;
        orphan.queued = None;
        self.in_flight += 1;
        Some((uid, orphan))
    }

    pub fn next_wake(&self) -> Option<Timestamp> {
        if self.in_flight >= ORPHANS_IN_FLIGHT {
            return None;
        }
        self.queue.first().map(|(at, _)| *at)
    }

    pub fn relist_begins(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    pub fn relist_ends(&mut self, at: Revision) {
        let epoch = self.epoch;
        #[allow(clippy::disallowed_methods, reason = "sorted below")]
        let mut missing: Vec<PodUid> = self
            .pods
            .iter()
            .filter(|(_, (pod, seen_in))| *seen_in != epoch && pod.revision <= at)
            .map(|(uid, _)| uid.clone())
            .collect();
        missing.sort_unstable();
        for uid in missing {
            self.remove(&uid);
        }
        self.tombstones.list_ends(epoch, at);
    }
}

fn labels_of(pod: &PodView) -> impl Iterator<Item = Label> {
    pod.labels.iter().map(|(key, value)| (pod.namespace.clone(), key.into(), value.into()))
}

fn remove_from<K: Ord>(index: &mut BTreeMap<K, BTreeSet<PodUid>>, key: &K, uid: &PodUid) {
    if let Some(uids) = index.get_mut(key) {
        uids.remove(uid);
        if uids.is_empty() {
            index.remove(key);
        }
    }
}
