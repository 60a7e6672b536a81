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
use tally_core::ledger::News;
use tally_core::mutation::{Bug, Mutation};
use tally_core::pod::{Phase, PodView};
use tally_core::time::{Span, Timestamp};

use super::{FixedState, JobController, JobSlot, Pending, pod_key};
use crate::wire::{Action, Answer, Object, PodChange};
use tally_runtime::controller::{Metric, Outbox};

/// The maximum number of orphan releases in flight: ten thousand orphans must not displace the requests of running Jobs
/// (S16).
const ORPHANS_IN_FLIGHT: usize = 100;
/// A refused release is retried after 1, 2, 4 ... 64 seconds.
const ORPHAN_DOUBLINGS: u32 = 6;

#[derive(Default)]
pub(super) struct Strays {
    pods: HashMap<PodUid, (Arc<PodView>, u32), FixedState>,
    by_job: HashMap<JobUid, BTreeSet<PodUid>, FixedState>,
    /// Pods without a controller, by namespace: the ones that a Job may adopt.
    loose: BTreeMap<CompactString, BTreeSet<PodUid>>,
    /// Pods about which nothing is decided before the Job stream has reached their revision.
    unsettled: BTreeSet<(Revision, PodUid)>,
    orphans: BTreeMap<PodUid, Orphan>,
    /// Orphans to release, by the time of the next attempt.
    queue: BTreeSet<(Timestamp, PodUid)>,
    in_flight: usize,
    epoch: u32,
}

struct Orphan {
    namespace: CompactString,
    name: CompactString,
    /// Its revision when it was found to be an orphan. It is released at that revision only, or read again: another Job
    /// may have adopted it.
    revision: Revision,
    /// The Job that is gone or has finished; None if the Pod had none.
    job: Option<JobUid>,
    refusals: u32,
    queued: Option<Timestamp>,
}

impl PodFacts for Strays {
    fn is_tracked(&self, uid: &PodUid) -> bool {
        self.orphans.contains_key(uid) || self.pods.get(uid).is_some_and(|(pod, _)| pod.tracked)
    }
}

impl Strays {
    pub fn len(&self) -> usize {
        self.pods.len() + self.orphans.len()
    }

    /// A Pod that a response shows does not become part of a list.
    pub fn insert(&mut self, pod: Arc<PodView>, news: News) {
        let before = self.pods.get(&pod.uid).map(|(_, seen_in)| *seen_in);
        self.remove(&pod.uid);
        if let Some(job) = pod.job() {
            self.by_job.entry(job.clone()).or_default().insert(pod.uid.clone());
        } else {
            self.loose.entry(pod.namespace.clone()).or_default().insert(pod.uid.clone());
        }
        self.unsettled.insert((pod.revision, pod.uid.clone()));
        let seen_in = match news {
            News::Stream => self.epoch,
            News::Answer => before.unwrap_or(self.epoch.wrapping_sub(1)),
        };
        self.pods.insert(pod.uid.clone(), (pod, seen_in));
    }

    /// The current list contains it, perhaps in an older version.
    pub fn touch(&mut self, uid: &PodUid) {
        let epoch = self.epoch;
        if let Some((_, seen_in)) = self.pods.get_mut(uid) {
            *seen_in = epoch;
        }
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
        } else if let Some(siblings) = self.loose.get_mut(&pod.namespace) {
            siblings.remove(uid);
            if siblings.is_empty() {
                self.loose.remove(&pod.namespace);
            }
        }
        Some(pod)
    }

    /// The Pod is permanently gone.
    pub fn bury(&mut self, uid: &PodUid) {
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
        self.take_news_of(job).into_iter().map(|(pod, _)| pod).collect()
    }

    /// With each Pod, whether the current list has contained it.
    pub fn take_news_of(&mut self, job: &JobUid) -> Vec<(Arc<PodView>, News)> {
        let uids = self.by_job.get(job).cloned().unwrap_or_default();
        let news_of = |uid: &PodUid| match self.pods.get(uid) {
            Some((_, seen_in)) if *seen_in == self.epoch => News::Stream,
            _ => News::Answer,
        };
        let news: Vec<News> = uids.iter().map(news_of).collect();
        uids.iter().zip(news).filter_map(|(uid, news)| Some((self.remove(uid)?, news))).collect()
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
        self.pods.get(uid).is_some_and(|(pod, _)| pod.controller.is_none() && may_adopt(job, pod))
    }

    pub fn knows_newer(&self, pod: &PodView) -> bool {
        self.pods.get(&pod.uid).is_some_and(|(known, _)| known.revision > pod.revision)
            || self.orphan_at(&pod.uid).is_some_and(|known_at| known_at > pod.revision)
    }

    /// The Pods without an owner are decided about again.
    pub fn unsettle_loose(&mut self, namespace: &str) {
        let uids = self.loose.get(namespace).into_iter().flatten();
        let again = uids.filter_map(|uid| self.pods.get(uid)).map(|(pod, _)| (pod.revision, pod.uid.clone()));
        self.unsettled.extend(again);
    }

    fn loose_in(&self, namespace: &str) -> Vec<Arc<PodView>> {
        let uids = self.loose.get(namespace);
        uids.into_iter().flatten().filter_map(|uid| self.pods.get(uid)).map(|(pod, _)| pod.clone()).collect()
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

    /// The revision at which a Pod was found to be an orphan.
    fn orphan_at(&self, uid: &PodUid) -> Option<Revision> {
        self.orphans.get(uid).map(|orphan| orphan.revision)
    }

    /// The release at this revision failed. A newer orphan with that UID has its own entry in the queue.
    fn orphan_refused(&mut self, uid: &PodUid, revision: Revision, now: Timestamp) {
        let failed = |orphan: &&mut Orphan| orphan.revision == revision && orphan.queued.is_none();
        if let Some(orphan) = self.orphans.get_mut(uid).filter(failed) {
            let at = now + Span::from_seconds(1 << orphan.refusals.min(ORPHAN_DOUBLINGS));
            orphan.refusals += 1;
            orphan.queued = Some(at);
            self.queue.insert((at, uid.clone()));
        }
    }

    fn next_orphan(&mut self, now: Timestamp) -> Option<(PodUid, &Orphan)> {
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
    }
}

/// OWN-4, except for Pods that may have been counted before: with the finalizer they would be counted once more. A
/// finished Pod without the finalizer is one. So is a Pod that has succeeded with an index: the Job that it belonged to
/// counts it by its index, and nothing says which Pod that was.
fn may_adopt(job: &JobView, pod: &PodView) -> bool {
    let may_be_counted =
        pod.phase.is_terminal() && (!pod.tracked || pod.phase == Phase::Succeeded && pod.index.is_some());
    let is_open = !job.deleting && !job.status.is_finished();
    is_open && !pod.deleting() && !may_be_counted && job.spec.selector.matches(&pod.labels)
}

impl<S: Mutation> JobController<S> {
    pub(super) fn observe_pod(&mut self, pod: Arc<PodView>, now: Timestamp, out: &mut Outbox) {
        self.take_in(pod, News::Stream, now, out);
    }

    /// Places a Pod, from either source.
    pub(super) fn take_in(&mut self, pod: Arc<PodView>, news: News, now: Timestamp, out: &mut Outbox) {
        let (held_before, holds_now) = (self.holds_ended(&pod.uid), pod.tracked && pod.phase.is_terminal());
        if self.strays.knows_newer(&pod) {
            if news == News::Stream {
                self.strays.touch(&pod.uid);
            }
            return;
        }
        if self.orphan_changed(&pod) {
            self.release_orphans(now, out);
            return;
        }
        let ledger = self.pod_owner.get(&pod_key(&pod.uid)).and_then(|slot| self.tracked(*slot)?.ledger.as_ref());
        if let Some(known_at) = ledger.and_then(|ledger| ledger.knows_at(&pod.uid))
            && known_at > pod.revision
            && !self.mutation.injects(Bug::ViewGoesBack)
        {
            // A response was faster than the stream. The ledger only notes that the Pod is still in the list.
            if let Some(slot) = self.pod_owner.get(&pod_key(&pod.uid)).copied()
                && let Some(ledger) = self.tracked_mut(slot).and_then(|tracked| tracked.ledger.as_mut())
            {
                ledger.take_in(&pod, news, now);
            }
            return;
        }
        if held_before != holds_now {
            out.metrics.push(Metric::TerminatedPodTracked { added: holds_now });
        }
        let job = pod.job().and_then(|uid| self.slot_of(uid));
        let before = self.pod_owner.get(&pod_key(&pod.uid)).copied().filter(|before| Some(*before) != job);
        self.place_pod(pod.clone(), job, news, now, out);
        if let Some(before) = before {
            // It changed its owner, or lost it. The old ledger plans only now that the Pod is in its new place: a Pod
            // that is merely elsewhere is not a released Pod.
            if self.pod_owner.get(&pod_key(&pod.uid)) == Some(&before) {
                self.pod_owner.remove(&pod_key(&pod.uid));
            }
            self.leave_ledger(before, &pod, now, out);
        }
    }

    /// METRIC-9 is about every Pod, whatever its owner.
    pub(super) fn holds_ended(&self, uid: &PodUid) -> bool {
        let ledger = self.pod_owner.get(&pod_key(uid)).and_then(|slot| self.tracked(*slot)?.ledger.as_ref());
        ledger.is_some_and(|ledger| ledger.holds_ended(uid))
            || self.strays.pods.get(uid).is_some_and(|(pod, _)| pod.tracked && pod.phase.is_terminal())
    }

    /// A Pod as a response shows it, which may be older than the stream.
    pub(super) fn hear_of_pod(&mut self, pod: Arc<PodView>, now: Timestamp, out: &mut Outbox) {
        let owner = self.pod_owner.get(&pod_key(&pod.uid)).and_then(|slot| self.tracked(*slot)?.ledger.as_ref());
        let known = self.strays.pods.contains_key(&pod.uid)
            || self.strays.orphans.contains_key(&pod.uid)
            || owner.is_some_and(|ledger| ledger.knows_at(&pod.uid).is_some());
        if known || pod.revision > self.pods_at {
            self.take_in(pod, News::Answer, now, out);
        }
    }

    /// A newer version of an orphan. As long as it belongs to the same Job, which is gone, it is released at its new
    /// revision, at once. Otherwise the Pod is decided about again: false.
    fn orphan_changed(&mut self, pod: &PodView) -> bool {
        let Some(orphan) = self.strays.orphans.get(&pod.uid).filter(|orphan| orphan.revision < pod.revision) else {
            return false;
        };
        let still =
            pod.tracked && orphan.job.as_ref().is_some_and(|job| pod.job() == Some(job) && self.slot_of(job).is_none());
        if still {
            self.strays.orphan(pod);
        } else {
            self.strays.forget_orphan(&pod.uid);
        }
        still
    }

    /// A Pod is in a Job's ledger, and nowhere else.
    pub(super) fn placed(&mut self, uid: &PodUid, slot: JobSlot) {
        self.strays.bury(uid);
        self.pod_owner.insert(pod_key(uid), slot);
    }

    fn place_pod(&mut self, pod: Arc<PodView>, job: Option<JobSlot>, news: News, now: Timestamp, out: &mut Outbox) {
        let Some(slot) = job else {
            if pod.controller.as_ref().is_some_and(|controller| !controller.is_job) {
                // A Pod of another kind of owner, with or without the finalizer (S14).
                self.strays.bury(&pod.uid);
                return;
            }
            if !pod.tracked {
                self.strays.forget_orphan(&pod.uid);
            }
            self.strays.insert(pod.clone(), news);
            self.stray_changed(&pod, now, out);
            self.settle_strays(now, out);
            return;
        };
        let Some(tracked) = self.tracked(slot) else {
            return;
        };
        let view = tracked.view.clone();
        if !self.is_ours(&view) {
            self.strays.bury(&pod.uid);
            if pod.tracked && self.is_caretaker() {
                self.strays.insert(pod, news);
            }
            return;
        }
        if tracked.ledger.is_none() {
            // Finished and settled: every Pod that still carries the finalizer is released (S10).
            self.strays.remove(&pod.uid);
            if !pod.tracked {
                self.strays.forget_orphan(&pod.uid);
            } else if !self.mutation.injects(Bug::NoFinishedSweep) {
                self.strays.orphan(&pod);
                self.release_orphans(now, out);
            }
            return;
        }
        if !view.spec.selector.matches(&pod.labels) {
            self.strays.insert(pod.clone(), news);
            if !view.deleting {
                self.disown(&view.uid, &pod, out);
            } else if pod.tracked {
                // A Job that is being deleted takes no part in conflicts about labels, but it must not be blocked by
                // one.
                self.strays.orphan(&pod);
                self.release_orphans(now, out);
            }
            self.pod_owner.remove(&pod_key(&pod.uid));
            self.leave_ledger(slot, &pod, now, out);
            self.stray_changed(&pod, now, out);
            return;
        }
        self.placed(&pod.uid, slot);
        let Some(ledger) = self.tracked_mut(slot).and_then(|tracked| tracked.ledger.as_mut()) else {
            return;
        };
        ledger.take_in(&pod, news, now);
        self.plan(slot, now, out);
    }

    /// The API reports that a Pod in no ledger is gone.
    pub(super) fn stray_gone(&mut self, uid: &PodUid, now: Timestamp, out: &mut Outbox) {
        let known = self.strays.remove(uid);
        self.strays.forget_orphan(uid);
        if let Some(pod) = known {
            let mut released = (*pod).clone();
            released.tracked = false;
            self.stray_changed(&released, now, out);
        }
    }

    /// A Pod in no ledger lost its finalizer: a Job that has recorded it may wait for that.
    fn stray_changed(&mut self, pod: &PodView, now: Timestamp, out: &mut Outbox) {
        if pod.tracked {
            return;
        }
        let Some(slots) = self.by_namespace.get(&pod.namespace) else {
            return;
        };
        let waiting: Vec<JobSlot> = slots
            .iter()
            .copied()
            .filter(|slot| {
                let ledger = self.tracked(*slot).and_then(|tracked| tracked.ledger.as_ref());
                ledger.is_some_and(|ledger| ledger.has_uncounted())
            })
            .collect();
        for slot in waiting {
            self.plan(slot, now, out);
        }
    }

    pub(super) fn pod_gone(&mut self, pod: &PodView, now: Timestamp, out: &mut Outbox) {
        if self.holds_ended(&pod.uid) {
            out.metrics.push(Metric::TerminatedPodTracked { added: false });
        }
        let stray = self.strays.is_tracked(&pod.uid);
        self.strays.bury(&pod.uid);
        if stray {
            let mut released = pod.clone();
            released.tracked = false;
            self.stray_changed(&released, now, out);
        }
        let owner = self.pod_owner.remove(&pod_key(&pod.uid));
        if let Some(slot) = owner.or_else(|| pod.job().and_then(|uid| self.slot_of(uid))) {
            self.leave_ledger(slot, pod, now, out);
        }
    }

    pub(super) fn unreadable_pod_gone(&mut self, uid: &PodUid, at: Revision, now: Timestamp, out: &mut Outbox) {
        self.strays.bury(uid);
        if let Some(slot) = self.pod_owner.remove(&pod_key(uid))
            && let Some(ledger) = self.tracked_mut(slot).and_then(|tracked| tracked.ledger.as_mut())
        {
            ledger.pod_gone(uid, at);
            self.plan(slot, now, out);
        }
    }

    fn leave_ledger(&mut self, slot: JobSlot, pod: &PodView, now: Timestamp, out: &mut Outbox) {
        let Some(ledger) = self.tracked_mut(slot).and_then(|tracked| tracked.ledger.as_mut()) else {
            return;
        };
        ledger.pod_gone(&pod.uid, pod.revision);
        self.plan(slot, now, out);
    }

    /// OWN-3: the Pod no longer matches the selector of the Job that controls it.
    fn disown(&mut self, job: &JobUid, pod: &PodView, out: &mut Outbox) {
        let action = Action::PatchPod {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: Some(pod.uid.clone()),
            revision: Some(pod.revision),
            change: PodChange::Disown { job: job.clone() },
        };
        self.send(out, Pending::Disown { pod: pod.uid.clone() }, action);
    }

    pub(super) fn reconsider_stray(&mut self, uid: &PodUid, now: Timestamp, out: &mut Outbox) {
        // As if observed again: it may match again, or belong to another owner by now.
        if let Some((pod, _)) = self.strays.pods.get(uid).cloned() {
            self.take_in(pod, News::Answer, now, out);
        }
    }

    /// OWN-4: adopts the Pods that match and have no owner, after making sure that the Job still exists.
    pub(super) fn consider_adoptions(&mut self, slot: JobSlot, out: &mut Outbox) {
        let Some(tracked) = self.tracked(slot) else {
            return;
        };
        let view = tracked.view.clone();
        if tracked.ledger.is_none() {
            return;
        }
        let candidates: Vec<Arc<PodView>> = self
            .strays
            .loose_in(&view.namespace)
            .into_iter()
            .filter(|pod| may_adopt(&view, pod) && !self.is_recorded(pod) && !self.is_being_recorded(pod))
            .collect();
        for pod in candidates {
            self.propose(slot, &pod, out);
        }
    }

    /// Whether a Job has recorded this Pod. It is then released for that Job, and no other Job may count it.
    fn is_recorded(&self, pod: &PodView) -> bool {
        let slots = self.by_namespace.get(&pod.namespace).into_iter().flatten();
        let mut ledgers = slots.filter_map(|slot| self.tracked(*slot)?.ledger.as_ref());
        ledgers.any(|ledger| ledger.has_recorded(&pod.uid))
    }

    /// Whether a status that records this Pod is in flight.
    #[allow(clippy::disallowed_methods, reason = "`any` is the same in every order")]
    fn is_being_recorded(&self, pod: &PodView) -> bool {
        pod.phase.is_terminal()
            && self.requests.values().any(|(pending, _)| match pending {
                Pending::Status { write, .. } => {
                    let lists = write.status.uncounted();
                    lists.succeeded.contains(&pod.uid) || lists.failed.contains(&pod.uid)
                }
                _ => false,
            })
    }

    fn propose(&mut self, slot: JobSlot, pod: &PodView, out: &mut Outbox) {
        let owner = self.pod_owner.get(&pod_key(&pod.uid)).and_then(|slot| self.tracked(*slot)?.ledger.as_ref());
        // It has an owner after all. A ledger that is about to lose the Pod knows it only at an older revision.
        if owner.and_then(|ledger| ledger.knows_at(&pod.uid)).is_some_and(|known_at| known_at >= pod.revision) {
            return;
        }
        // A Job that adopts it must get it with its finalizer.
        self.strays.forget_orphan(&pod.uid);
        let Some(tracked) = self.tracked_mut(slot) else {
            return;
        };
        if tracked.adoptions.get(&pod.uid).is_some_and(|adoption| adoption.in_flight) {
            // Its response decides whether it is requested again.
            return;
        }
        let first = tracked.adopting.is_empty();
        tracked.adopting.insert(pod.uid.clone(), (pod.name.clone(), pod.revision));
        if first {
            let view = tracked.view.clone();
            let action = Action::GetJob { namespace: view.namespace.clone(), name: view.name.clone() };
            self.send(out, Pending::ConfirmAdopter { job: view.uid.clone() }, action);
        }
    }

    /// Drops adoptions that have ended, whichever owner the Pod has by now.
    pub(super) fn settle_adoptions(&mut self, slot: JobSlot) {
        if let Some(tracked) = self.jobs.get_mut(slot as usize).and_then(Option::as_mut) {
            let (strays, view) = (&self.strays, &tracked.view);
            tracked.adoptions.retain(|uid, _| strays.is_adoptable(uid, view));
        }
    }

    /// Decides about unclaimed Pods whose revision the Job stream has reached.
    pub(super) fn settle_strays(&mut self, now: Timestamp, out: &mut Outbox) {
        use super::Resource::{Jobs, Pods};
        if self.listing.contains(&Jobs) || self.listing.contains(&Pods) {
            return;
        }
        // The former Job of these Pods is unknown. A controller for the Jobs of one manager leaves them to the others.
        let sweeps = self.is_caretaker() && !self.mutation.injects(Bug::NoOrphanSweep);
        while let Some((revision, uid)) = self.strays.unsettled.first() {
            if *revision > self.jobs_at && !self.mutation.injects(Bug::OrphanWithoutGate) {
                break;
            }
            let (_, uid) = (*revision, uid.clone());
            self.strays.unsettled.pop_first();
            let Some((pod, _)) = self.strays.pods.get(&uid).cloned() else {
                continue;
            };
            match pod.job().map(|job| self.slot_of(job)) {
                // Controlled by a Job that does not select it: being disowned.
                Some(Some(_)) => {}
                Some(None) if pod.job().is_some_and(|job| self.unreadable_jobs.contains_key(job)) => {}
                Some(None) => {
                    // The Job is gone.
                    self.strays.remove(&uid);
                    if pod.tracked && sweeps {
                        self.strays.orphan(&pod);
                    }
                }
                None => match self.adopter_of(&pod) {
                    Some(slot) => self.propose(slot, &pod, out),
                    // Decided once it is known whether the Pod is recorded.
                    None if self.is_being_recorded(&pod) => {}
                    None if pod.tracked && self.is_recorded(&pod) => self.strays.orphan(&pod),
                    None if pod.tracked && sweeps && !self.is_selected_elsewhere(&pod) => self.strays.orphan(&pod),
                    None => {}
                },
            }
        }
        self.release_orphans(now, out);
    }

    /// Whether a Job of another manager may adopt the Pod.
    fn is_selected_elsewhere(&self, pod: &PodView) -> bool {
        let slots = self.by_namespace.get(&pod.namespace).into_iter().flatten();
        let mut others = slots.filter_map(|slot| self.tracked(*slot)).filter(|tracked| !self.is_ours(&tracked.view));
        others.any(|tracked| may_adopt(&tracked.view, pod))
    }

    fn adopter_of(&self, pod: &PodView) -> Option<JobSlot> {
        if self.is_recorded(pod) || self.is_being_recorded(pod) {
            return None;
        }
        self.by_namespace.get(&pod.namespace)?.iter().copied().find(|slot| {
            self.tracked(*slot).is_some_and(|tracked| tracked.ledger.is_some() && may_adopt(&tracked.view, pod))
        })
    }

    pub(super) fn release_orphans(&mut self, now: Timestamp, out: &mut Outbox) {
        while let Some((uid, orphan)) = self.strays.next_orphan(now) {
            let (namespace, name, revision) = (orphan.namespace.clone(), orphan.name.clone(), orphan.revision);
            let action = self.release(&namespace, name, uid.clone(), Some(revision));
            self.send(out, Pending::OrphanRelease { pod: uid, revision }, action);
        }
    }

    pub(super) fn orphan_answered(
        &mut self,
        uid: &PodUid,
        revision: Revision,
        answer: Answer,
        now: Timestamp,
        out: &mut Outbox,
    ) {
        self.strays.in_flight = self.strays.in_flight.saturating_sub(1);
        if let Answer::Done(Object::Pod(pod)) = &answer {
            if self.strays.orphan_at(uid).is_some_and(|known_at| known_at <= pod.revision) {
                self.strays.forget_orphan(uid);
            }
            if let Some((known, _)) = self.strays.pods.get(uid)
                && known.revision < pod.revision
            {
                self.strays.insert(pod.clone(), News::Answer);
            }
            self.stray_changed(pod, now, out);
        } else if let Answer::Gone = answer {
            self.stray_gone(uid, now, out);
        } else if let (Answer::Conflict, Some(orphan)) = (&answer, self.strays.orphans.get(uid)) {
            // It has changed, and may have an owner. An observation since has already decided about it; otherwise it is
            // read.
            if orphan.revision == revision {
                let action = Action::GetPod { namespace: orphan.namespace.clone(), name: orphan.name.clone() };
                self.send(out, Pending::OrphanLook { pod: uid.clone(), revision }, action);
            }
        } else {
            // Not done: retried until it is (S13).
            self.strays.orphan_refused(uid, revision, now);
        }
        self.release_orphans(now, out);
    }

    /// The current state of an orphan.
    pub(super) fn orphan_seen(
        &mut self,
        uid: &PodUid,
        revision: Revision,
        answer: Answer,
        now: Timestamp,
        out: &mut Outbox,
    ) {
        match answer {
            Answer::Done(Object::Pod(pod)) if pod.uid == *uid && pod.revision > revision => {
                self.hear_of_pod(pod, now, out);
            }
            // The name belongs to another Pod.
            Answer::Done(Object::Pod(pod)) if pod.uid != *uid => self.stray_gone(uid, now, out),
            Answer::Gone => self.stray_gone(uid, now, out),
            _ => self.strays.orphan_refused(uid, revision, now),
        }
        self.release_orphans(now, out);
    }
}
