//! Which Job a Pod belongs to: adoption, disowning, and the release of orphans.

use std::sync::Arc;

use tally_core::accounting::PodFacts;
use tally_core::ids::{JobUid, PodUid, Revision};
use tally_core::job::JobView;
use tally_core::ledger::ObservedVia;
use tally_core::pod::PodView;
use tally_core::time::Timestamp;

use super::table::{JobRecord, JobSlot};
use super::{JobController, Pending, Resource, effects, pod_key};
use crate::wire::{Action, Answer, Object, PodChange};
use tally_runtime::controller::{Metric, Outbox, RequestId};

impl JobController {
    pub(super) fn observe_pod(&mut self, pod: Arc<PodView>, now: Timestamp, out: &mut Outbox) {
        self.apply_pod(pod, ObservedVia::Stream, now, out);
    }

    /// Places a Pod, from either source.
    pub(super) fn apply_pod(&mut self, pod: Arc<PodView>, via: ObservedVia, now: Timestamp, out: &mut Outbox) {
        let (held_before, holds_now) = (self.holds_ended(&pod.uid), pod.tracked && pod.phase.is_terminal());
        if self.unclaimed.knows_newer(&pod) {
            if via == ObservedVia::Stream {
                self.unclaimed.touch(&pod.uid);
            }
            return;
        }
        if self.orphan_changed(&pod) {
            self.release_orphans(now, out);
            return;
        }
        let ledger = self.pod_owner.get(&pod_key(&pod.uid)).and_then(|slot| self.jobs.get(*slot)?.ledger.as_ref());
        if let Some(known_at) = ledger.and_then(|ledger| ledger.knows_at(&pod.uid))
            && known_at > pod.revision
        {
            // A response was faster than the stream. The ledger only notes that the Pod is still in the list.
            if let Some(slot) = self.pod_owner.get(&pod_key(&pod.uid)).copied()
                && let Some(ledger) = self.jobs.get_mut(slot).and_then(|record| record.ledger.as_mut())
            {
                ledger.apply_pod(&pod, via, now);
            }
            return;
        }
        if held_before != holds_now {
            out.metrics.push(Metric::TerminatedPodTracked { added: holds_now });
        }
        let job = pod.job().and_then(|uid| self.jobs.slot_of(uid));
        let before = self.pod_owner.get(&pod_key(&pod.uid)).copied().filter(|before| Some(*before) != job);
        self.place_pod(pod.clone(), job, via, now, out);
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
        let ledger = self.pod_owner.get(&pod_key(uid)).and_then(|slot| self.jobs.get(*slot)?.ledger.as_ref());
        ledger.is_some_and(|ledger| ledger.holds_ended(uid))
            || self.unclaimed.get(uid).is_some_and(|pod| pod.tracked && pod.phase.is_terminal())
    }

    /// A Pod as a response shows it, which may be older than the stream.
    pub(super) fn observe_response(&mut self, pod: Arc<PodView>, now: Timestamp, out: &mut Outbox) {
        let owner = self.pod_owner.get(&pod_key(&pod.uid)).and_then(|slot| self.jobs.get(*slot)?.ledger.as_ref());
        let known = self.unclaimed.get(&pod.uid).is_some()
            || self.unclaimed.get_orphan(&pod.uid).is_some()
            || owner.is_some_and(|ledger| ledger.knows_at(&pod.uid).is_some());
        if known || pod.revision > self.progress.pods_at {
            self.apply_pod(pod, ObservedVia::Response, now, out);
        }
    }

    /// A newer version of an orphan. As long as it belongs to the same Job, which is gone, it is released at its new
    /// revision, at once. Otherwise the Pod is decided about again: false.
    fn orphan_changed(&mut self, pod: &PodView) -> bool {
        let Some(orphan) = self.unclaimed.get_orphan(&pod.uid).filter(|orphan| orphan.revision < pod.revision) else {
            return false;
        };
        let still = pod.tracked
            && orphan.job.as_ref().is_some_and(|job| pod.job() == Some(job) && self.jobs.slot_of(job).is_none());
        if still {
            self.unclaimed.orphan(pod);
        } else {
            self.unclaimed.forget_orphan(&pod.uid);
        }
        still
    }

    /// A response shows a Pod of this Job. If the Pod is in the ledger of another Job, its owner has changed since the
    /// stream showed it, and it moves from that ledger to this one. Returns false if the other ledger knows a newer state
    /// of the Pod: then it stays there.
    pub(super) fn move_here(&mut self, pod: &Arc<PodView>, slot: JobSlot, now: Timestamp, out: &mut Outbox) -> bool {
        let elsewhere =
            |controller: &Self| controller.pod_owner.get(&pod_key(&pod.uid)).is_some_and(|owner| *owner != slot);
        if elsewhere(self) {
            self.observe_response(pod.clone(), now, out);
        }
        !elsewhere(self)
    }

    /// A Pod is in a Job's ledger, and nowhere else.
    pub(super) fn placed(&mut self, uid: &PodUid, slot: JobSlot) {
        self.unclaimed.forget(uid);
        self.pod_owner.insert(pod_key(uid), slot);
    }

    fn place_pod(
        &mut self,
        pod: Arc<PodView>,
        job: Option<JobSlot>,
        via: ObservedVia,
        now: Timestamp,
        out: &mut Outbox,
    ) {
        let Some(slot) = job else {
            if pod.controller.as_ref().is_some_and(|controller| !controller.is_job) {
                // A Pod of another kind of owner, with or without the finalizer (S14).
                let held = self.unclaimed.is_tracked(&pod.uid);
                self.unclaimed.forget(&pod.uid);
                if held {
                    self.unclaimed_changed(&pod, now, out);
                }
                return;
            }
            if !pod.tracked {
                self.unclaimed.forget_orphan(&pod.uid);
            }
            self.unclaimed.insert(pod.clone(), via);
            self.unclaimed_changed(&pod, now, out);
            self.settle_unclaimed(now, out);
            return;
        };
        let Some(record) = self.jobs.get(slot) else {
            return;
        };
        let view = record.view.clone();
        if !self.is_ours(&view) {
            let held = self.unclaimed.is_tracked(&pod.uid);
            self.unclaimed.forget(&pod.uid);
            // A Pod that has ended may be recorded by a Job that it belonged to before, which waits for its release.
            if pod.tracked && (self.is_caretaker() || pod.phase.is_terminal() || pod.deleting()) {
                self.unclaimed.insert(pod, via);
            } else if held {
                self.unclaimed_changed(&pod, now, out);
            }
            return;
        }
        if record.ledger.is_none() {
            // Finished and settled: every Pod that still carries the finalizer is released (S10).
            self.unclaimed.remove(&pod.uid);
            if !pod.tracked {
                self.unclaimed.forget_orphan(&pod.uid);
            } else {
                self.unclaimed.orphan(&pod);
                self.release_orphans(now, out);
            }
            return;
        }
        if !view.spec.selector.matches(&pod.labels) {
            self.unclaimed.insert(pod.clone(), via);
            if !view.deleting {
                self.disown(&view.uid, &pod, out);
            } else if pod.tracked {
                // A Job that is being deleted takes no part in conflicts about labels, but it must not be blocked by
                // one.
                self.unclaimed.orphan(&pod);
                self.release_orphans(now, out);
            }
            self.pod_owner.remove(&pod_key(&pod.uid));
            self.leave_ledger(slot, &pod, now, out);
            self.unclaimed_changed(&pod, now, out);
            return;
        }
        self.placed(&pod.uid, slot);
        let Some(record) = self.jobs.get_mut(slot) else { return };
        let Some(ledger) = record.ledger.as_mut() else { return };
        ledger.apply_pod(&pod, via, now);
        effects::pending(ledger, &pod, &mut record.told, out);
        self.plan(slot, now, out);
    }

    /// The API reports that a Pod in no ledger is gone.
    pub(super) fn unclaimed_gone(&mut self, uid: &PodUid, now: Timestamp, out: &mut Outbox) {
        if self.holds_ended(uid) {
            out.metrics.push(Metric::TerminatedPodTracked { added: false });
        }
        // A list may have shown before that it is gone, and only its release was left.
        let orphan = self.unclaimed.get_orphan(uid).map(|orphan| orphan.namespace.clone());
        let pod = self.unclaimed.gone_by_response(uid).map(|pod| pod.namespace.clone());
        if let Some(namespace) = pod.or(orphan) {
            self.plan_waiting(uid, &namespace, now, out);
        }
    }

    fn unclaimed_changed(&mut self, pod: &PodView, now: Timestamp, out: &mut Outbox) {
        if !pod.tracked {
            self.plan_waiting(&pod.uid, &pod.namespace, now, out);
        }
    }

    /// A Pod in no ledger lost its finalizer, or is gone: the Job that has recorded it may wait for that.
    fn plan_waiting(&mut self, uid: &PodUid, namespace: &str, now: Timestamp, out: &mut Outbox) {
        let waiting: Vec<JobSlot> = self.recorded_by(uid, namespace).collect();
        for slot in waiting {
            self.plan(slot, now, out);
        }
    }

    /// The Jobs of this namespace whose status lists the Pod among those to be tallied.
    pub(super) fn recorded_by(&self, uid: &PodUid, namespace: &str) -> impl Iterator<Item = JobSlot> {
        let jobs = self.recorded.keys_of(uid, 0..=JobSlot::MAX).filter_map(|slot| Some((slot, self.jobs.get(slot)?)));
        let here = jobs.filter(move |(_, record)| record.view.namespace == namespace);
        let waits = |record: &JobRecord| record.ledger.as_ref().is_some_and(|ledger| ledger.has_recorded(uid));
        here.filter(move |(_, record)| waits(record)).map(|(slot, _)| slot)
    }

    /// The ledger of this Job shows another status, or is gone.
    pub(super) fn index_recorded(&mut self, slot: JobSlot) {
        let Some(record) = self.jobs.get_mut(slot) else { return };
        let now = record.ledger.as_ref().map(|ledger| ledger.job().clone());
        let before = std::mem::replace(&mut record.recorded, now.clone());
        self.recorded_changed(slot, before.as_deref(), now.as_deref());
    }

    pub(super) fn recorded_changed(&mut self, slot: JobSlot, before: Option<&JobView>, now: Option<&JobView>) {
        let [before, now] =
            [before, now].map(|job| job.map(|job| job.status.uncounted()).filter(|lists| !lists.is_empty()));
        if before != now {
            before.into_iter().for_each(|lists| self.recorded.remove(slot, lists));
            now.into_iter().for_each(|lists| self.recorded.add(slot, lists));
        }
    }

    pub(super) fn pod_gone(&mut self, pod: &PodView, now: Timestamp, out: &mut Outbox) {
        if self.holds_ended(&pod.uid) {
            out.metrics.push(Metric::TerminatedPodTracked { added: false });
        }
        let stray = self.unclaimed.is_tracked(&pod.uid);
        self.unclaimed.gone_by_stream(&pod.uid);
        if stray {
            self.plan_waiting(&pod.uid, &pod.namespace, now, out);
        }
        let owner = self.pod_owner.remove(&pod_key(&pod.uid));
        if let Some(slot) = owner.or_else(|| pod.job().and_then(|uid| self.jobs.slot_of(uid))) {
            self.leave_ledger(slot, pod, now, out);
        }
    }

    pub(super) fn unreadable_pod_gone(&mut self, uid: &PodUid, at: Revision, now: Timestamp, out: &mut Outbox) {
        self.unclaimed.gone_by_stream(uid);
        if let Some(slot) = self.pod_owner.remove(&pod_key(uid))
            && let Some(ledger) = self.jobs.get_mut(slot).and_then(|record| record.ledger.as_mut())
        {
            ledger.pod_gone(uid, at);
            self.plan(slot, now, out);
        }
    }

    fn leave_ledger(&mut self, slot: JobSlot, pod: &PodView, now: Timestamp, out: &mut Outbox) {
        let Some(ledger) = self.jobs.get_mut(slot).and_then(|record| record.ledger.as_mut()) else {
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

    pub(super) fn reconsider_unclaimed(&mut self, uid: &PodUid, now: Timestamp, out: &mut Outbox) {
        // As if observed again: it may match again, or belong to another owner by now.
        if let Some(pod) = self.unclaimed.get(uid).cloned() {
            self.apply_pod(pod, ObservedVia::Response, now, out);
        }
    }

    /// OWN-4: adopts the Pods that match and have no owner, after making sure that the Job still exists.
    pub(super) fn consider_adoptions(&mut self, slot: JobSlot, out: &mut Outbox) {
        let Some(record) = self.jobs.get(slot) else {
            return;
        };
        let view = record.view.clone();
        if record.ledger.is_none() {
            return;
        }
        let candidates: Vec<Arc<PodView>> = self
            .unclaimed
            .candidates(&view.namespace, &view.spec.selector)
            .into_iter()
            .filter(|pod| view.may_adopt(pod) && !self.is_recorded(pod) && !self.is_being_recorded(pod))
            .collect();
        for pod in candidates {
            self.propose(slot, &pod, out);
        }
    }

    /// A Job of another manager adopts nothing any more: what it selects is decided about again.
    pub(super) fn unsettle_selected(&mut self, job: &JobView) {
        let candidates = self.unclaimed.candidates(&job.namespace, &job.spec.selector);
        self.unclaimed.unsettle(candidates.iter().map(|pod| &pod.uid));
    }

    /// Whether a Job has recorded this Pod. It is then released for that Job, and no other Job may count it.
    fn is_recorded(&self, pod: &PodView) -> bool {
        self.recorded_by(&pod.uid, &pod.namespace).next().is_some()
    }

    /// Whether a Job has recorded this Pod, or may have: Jobs are being listed, and the next one may be its Job.
    pub(super) fn may_be_recorded(&self, uid: &PodUid) -> bool {
        let recorded = |pod: &Arc<PodView>| self.is_recorded(pod) || self.is_being_recorded(pod);
        self.progress.is_listing(Resource::Jobs) || self.unclaimed.get(uid).is_some_and(recorded)
    }

    /// Whether a status that records this Pod is in flight.
    fn is_being_recorded(&self, pod: &PodView) -> bool {
        let all = RequestId(0)..=RequestId(u64::MAX);
        pod.phase.is_terminal() && self.recording.keys_of(&pod.uid, all).next().is_some()
    }

    fn propose(&mut self, slot: JobSlot, pod: &PodView, out: &mut Outbox) {
        let owner = self.pod_owner.get(&pod_key(&pod.uid)).and_then(|slot| self.jobs.get(*slot)?.ledger.as_ref());
        // It has an owner after all. A ledger that is about to lose the Pod knows it only at an older revision.
        if owner.and_then(|ledger| ledger.knows_at(&pod.uid)).is_some_and(|known_at| known_at >= pod.revision) {
            return;
        }
        // A Job that adopts it must get it with its finalizer.
        self.unclaimed.forget_orphan(&pod.uid);
        let Some(record) = self.jobs.get_mut(slot) else {
            return;
        };
        if record.adoptions.get(&pod.uid).is_some_and(|adoption| adoption.in_flight) {
            // Its response decides whether it is requested again.
            return;
        }
        let first = record.adopting.is_empty();
        record.adopting.insert(pod.uid.clone(), (pod.name.clone(), pod.revision));
        if first {
            let view = record.view.clone();
            let action = Action::GetJob { namespace: view.namespace.clone(), name: view.name.clone() };
            self.send(out, Pending::ConfirmAdopter { job: view.uid.clone() }, action);
        }
    }

    /// Drops adoptions that have ended, whichever owner the Pod has by now.
    pub(super) fn settle_adoptions(&mut self, slot: JobSlot) {
        if let Some(record) = self.jobs.get_mut(slot) {
            let (unclaimed, view) = (&self.unclaimed, &record.view);
            record.adoptions.retain(|uid, _| unclaimed.is_adoptable(uid, view));
        }
    }

    /// Decides about unclaimed Pods whose revision the Job stream has reached.
    pub(super) fn settle_unclaimed(&mut self, now: Timestamp, out: &mut Outbox) {
        if self.progress.is_listing(Resource::Jobs) || self.progress.is_listing(Resource::Pods) {
            return;
        }
        // The former Job of these Pods is unknown. A controller for the Jobs of one manager leaves them to the others.
        let sweeps = self.is_caretaker();
        while let Some(pod) = self.unclaimed.pop_unsettled(self.progress.jobs_at) {
            let uid = pod.uid.clone();
            match pod.job().map(|job| self.jobs.slot_of(job)) {
                // Controlled by a Job that does not select it: being disowned.
                Some(Some(_)) => {}
                Some(None) if pod.job().is_some_and(|job| self.jobs.is_unreadable(job)) => {}
                Some(None) => {
                    // The Job is gone.
                    self.unclaimed.remove(&uid);
                    if pod.tracked && sweeps {
                        self.unclaimed.orphan(&pod);
                    }
                }
                // It may have been counted: no Job adopts it, and it needs no release.
                None if pod.phase.is_terminal() && !pod.tracked => {}
                None => match self.adopter_of(&pod) {
                    Some(slot) => self.propose(slot, &pod, out),
                    // Decided once it is known whether the Pod is recorded.
                    None if self.is_being_recorded(&pod) => {}
                    None if pod.tracked && self.is_recorded(&pod) => self.unclaimed.orphan(&pod),
                    None if pod.tracked && sweeps && !self.is_selected_elsewhere(&pod) => self.unclaimed.orphan(&pod),
                    None => {}
                },
            }
        }
        self.release_orphans(now, out);
    }

    /// Whether a Job of another manager may adopt the Pod.
    fn is_selected_elsewhere(&self, pod: &PodView) -> bool {
        let jobs = self.jobs.may_select(pod).map(|(_, record)| &record.view);
        jobs.filter(|job| !self.is_ours(job)).any(|job| job.may_adopt(pod))
    }

    fn adopter_of(&self, pod: &PodView) -> Option<JobSlot> {
        if self.is_recorded(pod) || self.is_being_recorded(pod) {
            return None;
        }
        let mut jobs = self.jobs.may_select(pod);
        jobs.find(|(_, record)| record.ledger.is_some() && record.view.may_adopt(pod)).map(|(slot, _)| slot)
    }

    pub(super) fn release_orphans(&mut self, now: Timestamp, out: &mut Outbox) {
        while let Some((uid, orphan)) = self.unclaimed.next_orphan(now) {
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
        self.unclaimed.release_ended();
        if let Answer::Done(Object::Pod(pod)) = &answer {
            if self.unclaimed.orphan_at(uid).is_some_and(|known_at| known_at <= pod.revision) {
                self.unclaimed.forget_orphan(uid);
            }
            if let Some(known) = self.unclaimed.get(uid)
                && known.revision < pod.revision
            {
                self.unclaimed.insert(pod.clone(), ObservedVia::Response);
            }
            self.unclaimed_changed(pod, now, out);
        } else if let Answer::Gone = answer {
            self.unclaimed_gone(uid, now, out);
        } else if let (Answer::Conflict, Some(orphan)) = (&answer, self.unclaimed.get_orphan(uid)) {
            // It has changed, and may have an owner. An observation since has already decided about it; otherwise it is
            // read.
            if orphan.revision == revision {
                let action = Action::GetPod { namespace: orphan.namespace.clone(), name: orphan.name.clone() };
                self.send(out, Pending::OrphanLook { pod: uid.clone(), revision }, action);
            }
        } else {
            // Not done: retried until it is (S13).
            self.unclaimed.orphan_refused(uid, revision, now);
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
                self.observe_response(pod, now, out);
            }
            // The name belongs to another Pod.
            Answer::Done(Object::Pod(pod)) if pod.uid != *uid => self.unclaimed_gone(uid, now, out),
            Answer::Gone => self.unclaimed_gone(uid, now, out),
            _ => self.unclaimed.orphan_refused(uid, revision, now),
        }
        self.release_orphans(now, out);
    }
}
