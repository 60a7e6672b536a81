//! What responses mean for the ledgers that they are about.

use std::collections::BTreeMap;
use std::sync::Arc;

use tally_core::ids::{JobUid, PodUid, Revision};
use tally_core::ledger::ObservedVia;
use tally_core::pod::PodView;
use tally_core::time::Timestamp;

use super::table::Adoption;
use super::{GET_RETRY, JobController, Pending, WorkItem, effects, pod_key};
use crate::wire::{Action, Answer, Object, PodChange};
use tally_runtime::controller::{Metric, Outbox};

impl JobController {
    pub(super) fn answered(&mut self, pending: Pending, answer: Answer, now: Timestamp, out: &mut Outbox) {
        match pending {
            Pending::Status { job, write, before } => {
                if let Answer::Done(Object::Job(stored)) = &answer {
                    // The write was conditional, so this is all that it changed, whether or not the stream was faster.
                    effects::after_write(&before, stored, out);
                    for action in &write.handled {
                        out.metrics.push(Metric::FailureHandled { action: action.name() });
                    }
                }
                self.status_answered(&job, answer, now, out);
                // Nothing is decided about a Pod without a controller while a status that records it is in flight, or as
                // long as it is recorded.
                let lists = [before.status.uncounted(), write.status.uncounted()];
                self.unclaimed.unsettle(lists.iter().flat_map(|list| list.succeeded.iter().chain(list.failed.iter())));
                self.settle_unclaimed(now, out);
            }
            Pending::Release { job, pod, ignored } => self.release_answered(&job, &pod, ignored, answer, now, out),
            Pending::RemovalRelease { job, pod, name, revision } => match answer {
                Answer::Done(Object::Pod(stored)) => {
                    self.believe(&job, &stored, now, out);
                    let Some((slot, ledger)) = self.ledger_mut(&job) else {
                        return;
                    };
                    // Only this process requested the removal; the Pod must be deleted now, even if it is wanted again.
                    ledger.removal_released(&pod);
                    let namespace = ledger.job().namespace.clone();
                    self.delete(&job, &namespace, pod, name, Some(stored.revision), out);
                    self.plan(slot, now, out);
                }
                answer => {
                    if let (Answer::Unknown, Some((_, ledger))) = (&answer, self.ledger_mut(&job)) {
                        ledger.removal_unknown(&pod);
                    }
                    self.conditional_answered(&job, &pod, Some(revision), answer, now, out);
                }
            },
            Pending::Delete { job, pod, name, revision } => {
                if matches!(answer, Answer::Done(_) | Answer::Gone)
                    && let Some((_, ledger)) = self.ledger_mut(&job)
                {
                    let message = format!("Deleted pod: {name}");
                    out.events.push(effects::event(&ledger.job().clone(), false, "SuccessfulDelete", &message));
                } else if let Answer::Refused { message, .. } = &answer
                    && let Some((_, ledger)) = self.ledger_mut(&job)
                {
                    let message = format!("Error deleting: {message}");
                    out.events.push(effects::event(&ledger.job().clone(), true, "FailedDelete", &message));
                }
                self.conditional_answered(&job, &pod, revision, answer, now, out);
            }
            // Judged by the server's clock, in `dead_nodes.rs`.
            Pending::LookAtPod { .. } | Pending::LookAtNode { .. } => {}
            Pending::Discard { job, pod, revision } | Pending::Start { job, pod, revision } => {
                self.conditional_answered(&job, &pod, revision, answer, now, out);
            }
            Pending::Create { job, name, reason } => {
                self.creation_answered(&job, &name, reason, answer, now, out);
            }
            Pending::FindCreated { job, name } => self.created_found(&job, &name, answer, now, out),
            Pending::ConfirmJob { job, pods_at } => {
                let Some(slot) = self.jobs.slot_of(&job) else {
                    return;
                };
                if matches!(answer, Answer::Done(_) | Answer::Gone) {
                    if let Some(record) = self.jobs.get_mut(slot) {
                        record.confirming = false;
                        if let Some(ledger) = &mut record.ledger {
                            ledger.job_confirmed(pods_at);
                        }
                    }
                    self.job_refreshed(&job, answer, now, out);
                } else {
                    self.timers.insert((now + GET_RETRY, WorkItem::Confirm(job)));
                }
            }
            Pending::RefreshJob { job } => self.job_refreshed(&job, answer, now, out),
            Pending::Doubt { job } => self.doubt_answered(&job, &answer, now, out),
            Pending::ListPods { jobs } => self.list_answered(jobs, answer, now, out),
            Pending::ConfirmAdopter { job } => self.adopter_confirmed(&job, answer, now, out),
            Pending::Adopt { job, pod } => {
                let slot = self.jobs.slot_of(&job);
                let waiting = slot.and_then(|slot| self.jobs.get_mut(slot)).and_then(|it| it.adoptions.get_mut(&pod));
                if let Some(adoption) = waiting {
                    adoption.in_flight = false;
                    adoption.since = adoption.since.filter(|_| matches!(answer, Answer::Refused { .. }));
                }
                match answer {
                    Answer::Done(Object::Pod(stored)) => {
                        self.observe_response(stored, now, out);
                        // The stream was ahead of the response: the Pod was adopted and has lost its owner since. While
                        // the adoption was in flight it was not requested again.
                        let record = slot.and_then(|slot| self.jobs.get(slot));
                        if record.is_some_and(|record| self.unclaimed.is_adoptable(&pod, &record.view)) {
                            self.timers.insert((now + GET_RETRY, WorkItem::Reconsider(pod)));
                        }
                    }
                    Answer::Gone => self.unclaimed_gone(&pod, now, out),
                    // The Pod may or may not have changed meanwhile: no event need follow, so check again (S13). The
                    // Job waits: Pods that it created meanwhile would be too many.
                    _ => {
                        self.timers.insert((now + GET_RETRY, WorkItem::Reconsider(pod)));
                    }
                }
                if let Some(slot) = slot {
                    self.settle_adoptions(slot);
                    self.plan(slot, now, out);
                }
            }
            Pending::Disown { pod } => match answer {
                Answer::Done(Object::Pod(stored)) => self.observe_response(stored, now, out),
                Answer::Gone => self.unclaimed_gone(&pod, now, out),
                _ => {
                    self.timers.insert((now + GET_RETRY, WorkItem::Reconsider(pod)));
                }
            },
            Pending::OrphanRelease { pod, revision } => {
                self.orphan_answered(&pod, revision, answer, now, out);
            }
            Pending::OrphanLook { pod, revision } => self.orphan_seen(&pod, revision, answer, now, out),
        }
    }

    /// Applies a response before the stream repeats it: the overlay of own writes.
    fn believe(&mut self, job: &JobUid, pod: &Arc<PodView>, now: Timestamp, out: &mut Outbox) {
        let Some((slot, ledger)) = self.ledger_mut(job) else {
            return;
        };
        if pod.job() != Some(job) || !ledger.job().spec.selector.matches(&pod.labels) {
            // The response shows that the Pod is no longer this Job's: it leaves the ledger before the next plan.
            self.observe_response(pod.clone(), now, out);
        } else if ledger.knows_at(&pod.uid).is_some() {
            ledger.apply_pod(pod, ObservedVia::Response, now);
            self.pod_owner.insert(pod_key(&pod.uid), slot);
        }
    }

    fn status_answered(&mut self, job: &JobUid, answer: Answer, now: Timestamp, out: &mut Outbox) {
        let Some((slot, ledger)) = self.ledger_mut(job) else {
            return;
        };
        let indexed = ledger.job().spec.is_indexed();
        match answer {
            Answer::Done(Object::Job(stored)) => {
                ledger.status_written(stored.clone(), now);
                self.index_recorded(slot);
                if let Some(record) = self.jobs.get_mut(slot) {
                    effects::status_accepted(&stored, std::mem::take(&mut record.status_refusals), out);
                    if stored.revision > record.view.revision {
                        record.view = stored;
                    }
                }
                self.plan(slot, now, out);
            }
            Answer::Refused { message, .. } => {
                ledger.status_refused(now);
                let view = ledger.job().clone();
                let action = tally_runtime::metric::SyncAction::Tracking;
                out.metrics.push(Metric::Sync { indexed, action, error: true });
                if let Some(record) = self.jobs.get_mut(slot) {
                    effects::status_refused(&view, record.status_refusals, message, out);
                    record.status_refusals = record.status_refusals.saturating_add(1);
                }
                self.plan(slot, now, out);
            }
            Answer::Conflict | Answer::Unknown | Answer::Unavailable => {
                ledger.status_unwritten();
                // Do not wait for an event: it may have arrived already (S33).
                self.refresh_job(slot, out);
            }
            _ => {
                ledger.status_unwritten();
                out.metrics.push(Metric::Sync {
                    indexed,
                    action: tally_runtime::metric::SyncAction::Tracking,
                    error: true,
                });
                if let Some(record) = self.jobs.get_mut(slot) {
                    record.refreshing = true;
                }
                self.timers.insert((now + GET_RETRY, WorkItem::Refresh(job.clone())));
            }
        }
    }

    fn release_answered(
        &mut self,
        job: &JobUid,
        pod: &PodUid,
        ignored: bool,
        answer: Answer,
        now: Timestamp,
        out: &mut Outbox,
    ) {
        if ignored && matches!(answer, Answer::Done(_)) {
            out.metrics.push(Metric::FailureHandled { action: "Ignore" });
        }
        self.pod_answered(job, pod, answer, now, out);
    }

    /// The response to a removal or a deletion at `revision`.
    fn conditional_answered(
        &mut self,
        job: &JobUid,
        pod: &PodUid,
        revision: Option<Revision>,
        answer: Answer,
        now: Timestamp,
        out: &mut Outbox,
    ) {
        match self.ledger_mut(job) {
            // The change that caused the conflict has already been observed: decide again at once.
            Some((slot, ledger)) if matches!(answer, Answer::Conflict) && ledger.knows_at(pod) > revision => {
                ledger.pod_answered(pod);
                self.plan(slot, now, out);
            }
            _ => self.pod_answered(job, pod, answer, now, out),
        }
    }

    /// The common part: applies what the response shows, and allows the Pod to be planned for again.
    fn pod_answered(&mut self, job: &JobUid, pod: &PodUid, answer: Answer, now: Timestamp, out: &mut Outbox) {
        let held_before = self.holds_ended(pod);
        if let Answer::Done(Object::Pod(stored)) = &answer {
            self.believe(job, stored, now, out);
        }
        let Some((slot, ledger)) = self.ledger_mut(job) else {
            self.leftover_answered(pod, &answer, now, out);
            return;
        };
        match answer {
            Answer::Done(_) => ledger.pod_answered(pod),
            Answer::Gone => {
                ledger.pod_gone_by_response(pod);
                self.pod_owner.remove(&pod_key(pod));
            }
            // The Pod has changed: its next event will show how. Planning again from the old view would only repeat
            // this.
            Answer::Conflict | Answer::Refused { .. } | Answer::Unavailable | Answer::Unknown => {
                ledger.pod_refused(pod, now);
            }
            Answer::AlreadyExists | Answer::Pods { .. } | Answer::Node { .. } => ledger.pod_answered(pod),
        }
        // The stream will show what is already known by then: no other code reports it (METRIC-9).
        if held_before && !self.holds_ended(pod) {
            out.metrics.push(Metric::TerminatedPodTracked { added: false });
        }
        self.plan(slot, now, out);
    }

    /// A response about a Pod whose Job has lost its ledger meanwhile. Releases of orphans are retried by their own
    /// path.
    fn leftover_answered(&mut self, pod: &PodUid, answer: &Answer, now: Timestamp, out: &mut Outbox) {
        if matches!(answer, Answer::Gone) {
            self.unclaimed_gone(pod, now, out);
        }
    }

    fn creation_answered(
        &mut self,
        job: &JobUid,
        name: &str,
        reason: &'static str,
        answer: Answer,
        now: Timestamp,
        out: &mut Outbox,
    ) {
        let pods_at = self.progress.pods_at;
        let succeeded = matches!(answer, Answer::Done(_));
        let Some((slot, ledger)) = self.ledger_mut(job) else {
            // The Job is gone. The stream will show the Pod, if there is one, as an orphan.
            return;
        };
        let view = ledger.job().clone();
        match answer {
            Answer::Done(Object::Pod(pod)) => {
                ledger.created(&pod, pods_at, now);
                self.pod_owner.insert(pod_key(&pod.uid), slot);
                out.events.push(effects::event(&view, false, "SuccessfulCreate", &format!("Created pod: {name}")));
            }
            Answer::AlreadyExists => {
                let action = Action::GetPod { namespace: view.namespace.clone(), name: name.into() };
                self.send(out, Pending::FindCreated { job: job.clone(), name: name.into() }, action);
                return;
            }
            Answer::Refused { namespace_terminating, message, .. } => {
                ledger.creation_failed(name, now);
                if !namespace_terminating {
                    out.events.push(effects::event(&view, true, "FailedCreate", &format!("Error creating: {message}")));
                }
            }
            Answer::Gone | Answer::Unavailable => ledger.creation_failed(name, now),
            Answer::Unknown
            | Answer::Conflict
            | Answer::Pods { .. }
            | Answer::Node { .. }
            | Answer::Done(Object::Job(_)) => {
                ledger.creation_unknown(name, now);
                self.plan(slot, now, out);
                return;
            }
        }
        out.metrics.push(Metric::PodCreated { reason, succeeded });
        self.plan(slot, now, out);
    }

    /// The name was taken: by this very Pod, created before we knew, or by another one.
    fn created_found(&mut self, job: &JobUid, name: &str, answer: Answer, now: Timestamp, out: &mut Outbox) {
        let pods_at = self.progress.pods_at;
        let Some(slot) = self.jobs.slot_of(job) else {
            return;
        };
        let here = matches!(&answer, Answer::Done(Object::Pod(pod)) if self.move_here(pod, slot, now, out));
        let Some((_, ledger)) = self.ledger_mut(job) else {
            return;
        };
        let selector = &ledger.job().spec.selector;
        let claimed = |pod: &PodView| here && pod.job() == Some(job) && selector.matches(&pod.labels);
        match answer {
            Answer::Done(Object::Pod(pod)) if claimed(&pod) => {
                ledger.created(&pod, pods_at, now);
                self.pod_owner.insert(pod_key(&pod.uid), slot);
            }
            // The Pod belongs to another owner, or is gone again: the name is not used a second time, otherwise a Pod
            // that finished and vanished would be created again forever.
            Answer::Gone => ledger.name_taken(name),
            Answer::Done(Object::Pod(pod)) => {
                ledger.name_taken(name);
                // Otherwise the stream, which may be behind, would show it as a Pod of this Job.
                self.observe_response(pod, now, out);
            }
            // The Pod exists, and may be ours.
            _ => ledger.creation_unknown(name, now),
        }
        self.plan(slot, now, out);
    }

    fn job_refreshed(&mut self, job: &JobUid, answer: Answer, now: Timestamp, out: &mut Outbox) {
        let Some(slot) = self.jobs.slot_of(job) else {
            return;
        };
        match answer {
            Answer::Done(Object::Job(fresh)) if fresh.uid == *job => {
                let Some(record) = self.jobs.get_mut(slot) else {
                    return;
                };
                record.refreshing = false;
                self.apply_job(fresh.clone(), ObservedVia::Response, now, out);
            }
            Answer::Done(_) | Answer::Gone => {
                // Replaced or deleted. The stream will show the same; there is nothing to wait for.
                self.jobs.add_tombstone(slot);
                self.job_gone(job, now, out);
            }
            _ => {
                self.timers.insert((now + GET_RETRY, WorkItem::Refresh(job.clone())));
            }
        }
    }

    pub(super) fn pods_listed(
        &mut self,
        job: &JobUid,
        pods: Vec<Arc<PodView>>,
        at: Revision,
        now: Timestamp,
        out: &mut Outbox,
    ) {
        let Some(slot) = self.jobs.slot_of(job) else {
            return;
        };
        let Some(record) = self.jobs.get_mut(slot) else {
            return;
        };
        let selector = record.view.spec.selector.clone();
        let (ours, others): (Vec<_>, Vec<_>) = pods
            .into_iter()
            .filter(|pod| pod.job() == Some(job) && !self.unclaimed.knows_newer(pod))
            .partition(|pod| selector.matches(&pod.labels));
        // Pods that the Job controls and does not select are placed first: they are not gone.
        for pod in others {
            self.observe_response(pod, now, out);
        }
        let ours: Vec<_> = ours.into_iter().filter(|pod| self.move_here(pod, slot, now, out)).collect();
        let pods_at = self.progress.pods_at;
        let Some((_, ledger)) = self.ledger_mut(job) else {
            return;
        };
        ledger.pods_listed(&ours, at, pods_at, now);
        for pod in &ours {
            self.placed(&pod.uid, slot);
        }
        self.plan(slot, now, out);
    }

    fn adopter_confirmed(&mut self, job: &JobUid, answer: Answer, now: Timestamp, out: &mut Outbox) {
        let Some(slot) = self.jobs.slot_of(job) else {
            return;
        };
        let Some(record) = self.jobs.get_mut(slot) else {
            return;
        };
        let pods = std::mem::take(&mut record.adopting);
        let view = record.view.clone();
        let confirmed = matches!(&answer, Answer::Done(Object::Job(fresh)) if fresh.uid == *job && !fresh.deleting);
        let (pods, later): (BTreeMap<_, _>, BTreeMap<_, _>) =
            pods.into_iter().partition(|(uid, _)| confirmed && !self.may_be_recorded(uid));
        let Some(record) = self.jobs.get_mut(slot) else {
            return;
        };
        record.adoptions.extend(later.keys().map(|uid| (uid.clone(), Adoption::default())));
        for uid in pods.keys() {
            let adoption = record.adoptions.entry(uid.clone()).or_default();
            adoption.in_flight = true;
            adoption.since.get_or_insert(now);
        }
        self.timers.extend(later.into_keys().map(|uid| (now + GET_RETRY, WorkItem::Reconsider(uid))));
        for (uid, (name, revision)) in pods {
            let change = PodChange::Adopt { job: job.clone(), job_name: view.name.clone(), track: !view.legacy };
            let action = Action::PatchPod {
                namespace: view.namespace.clone(),
                name,
                uid: Some(uid.clone()),
                revision: Some(revision),
                change,
            };
            self.send(out, Pending::Adopt { job: job.clone(), pod: uid }, action);
        }
        self.plan(slot, now, out);
    }
}
