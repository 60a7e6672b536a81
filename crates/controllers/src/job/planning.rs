//! Plans of ledgers become requests.

use std::sync::Arc;

use compact_str::CompactString;
use tally_core::blueprint::pod_body_on;
use tally_core::ids::{JobUid, PodUid, Revision};
use tally_core::job::{CompletionMode, JobView};
use tally_core::ledger::{Horizon, Plan, PodRef, Removal, StatusWrite};
use tally_core::status_rules;
use tally_core::time::Timestamp;
use tally_explain::Cause;

use super::streams::StreamProgress;
use super::table::{Adoption, JobSlot, Planned};
use super::{ADOPTION_PATIENCE, GET_RETRY, INVALID_STATUS_RETRY, JobController, Pending, effects};
use crate::wire::{Action, PodChange};
use tally_runtime::controller::{Metric, Outbox};
use tally_runtime::metric::SyncAction;

/// With so many requests, twice as many as are in flight at once, others wait for their turn.
const CROWDED: usize = 128;

impl JobController {
    pub(super) fn plan(&mut self, slot: JobSlot, now: Timestamp, out: &mut Outbox) {
        let crowded = self.requests.len() >= CROWDED;
        self.plan_for(slot, Planned { at: now, crowded }, out);
    }

    pub(super) fn plan_for(&mut self, slot: JobSlot, planned: Planned, out: &mut Outbox) {
        let Planned { at: now, crowded } = planned;
        let StreamProgress { pods_at, jobs_at, .. } = self.progress;
        let pods_complete = self.progress.pods_complete();
        let Some(record) = self.jobs.get_mut(slot) else {
            return;
        };
        if record.refreshing {
            return;
        }
        let Some(ledger) = record.ledger.as_deref_mut() else {
            return;
        };
        if let CompletionMode::Unknown(_) = ledger.job().spec.completion_mode {
            if !std::mem::replace(&mut record.warned_unknown_mode, true) {
                let event = effects::event(
                    &record.view,
                    true,
                    "UnknownCompletionMode",
                    "Skipped Job sync because completion mode is unknown",
                );
                out.events.push(event);
            }
            if !record.view.deleting {
                return;
            }
        }
        if let Some(invalid) = ledger.job().invalid_backoff.clone().filter(|_| !ledger.job().status.is_finished())
            && record.warned_backoff.as_ref() != Some(&invalid)
        {
            let message = format!("Retries wait 10 s, doubling up to 10 min: {invalid}");
            out.events.push(effects::event(&record.view, true, "InvalidBackoff", &message));
            record.warned_backoff = Some(invalid);
        }
        // A list in progress shows a mixture of states; wait for its end.
        if !pods_complete {
            return;
        }
        record.planned = Some(planned);
        // Wait for pending adoptions before creating Pods or deciding the verdict.
        // A clock that stepped back must not block the Job.
        let patience_ends = |adoption: &Adoption| match &adoption.since {
            Some(since) => {
                Some(*since + ADOPTION_PATIENCE).filter(|_| (*since..*since + ADOPTION_PATIENCE).contains(&now))
            }
            None => Some(now + GET_RETRY),
        };
        let proposed = Some(now + GET_RETRY).filter(|_| !record.adopting.is_empty());
        if let Some(at) = record.adoptions.values().filter_map(patience_ends).chain(proposed).min() {
            self.set_timer(slot, Some(at.min(now + GET_RETRY)));
            return;
        }
        let view = ledger.job().clone();
        let plan = ledger.plan(now, Horizon { pods_at, jobs_at, elsewhere: &self.unclaimed, crowded });
        if view.status.is_finished() && !ledger.has_tracked_pods() {
            record.ledger = None;
            self.index_recorded(slot);
            self.set_timer(slot, None);
            self.want_no_list(slot);
            return;
        }
        self.carry_out(slot, &view, plan, now, out);
    }

    fn carry_out(&mut self, slot: JobSlot, view: &Arc<JobView>, plan: Plan, now: Timestamp, out: &mut Outbox) {
        let (indexed, gate_closed) = (view.spec.is_indexed(), plan.gate_closed());
        if !plan.is_empty() {
            let action = if !plan.creations.is_empty() {
                SyncAction::PodsCreated
            } else if !plan.removals.is_empty() || !plan.deletions.is_empty() || !plan.discards.is_empty() {
                SyncAction::PodsDeleted
            } else {
                SyncAction::Tracking
            };
            out.metrics.push(Metric::Sync { indexed, action, error: false });
        }
        let (job, namespace) = (view.uid.clone(), view.namespace.clone());
        let mut wake_at = plan.wake_at;
        if let Some(write) = plan.status {
            wake_at = wake_at.into_iter().chain(self.write_status(view, write, now, out)).min();
        }
        if let Some(record) = self.jobs.get_mut(slot) {
            if !plan.creations.is_empty() {
                record.told = None;
            }
            effects::waits(view, plan.backoffs, &mut record.told, out);
        }
        for pod in plan.releases {
            let pending = Pending::Release { job: job.clone(), pod: pod.uid.clone(), ignored: pod.ignored };
            let action = self.release(&namespace, pod.name, pod.uid, pod.revision);
            self.send(out, pending, action);
        }
        for pod in plan.deletions {
            self.delete(&job, &namespace, pod.uid, pod.name, pod.revision, out);
        }
        for removal in plan.removals {
            self.remove(&job, &namespace, removal, out);
        }
        for pod in plan.starts {
            self.start(&job, &namespace, pod, out);
        }
        let reason = effects::creation_reason(plan.creation_reason);
        let start_gate = self.config.gates_pods && view.gates_pods();
        for creation in plan.creations {
            let name = creation.name.clone();
            match pod_body_on(view, &creation, start_gate, self.config.only_node.as_ref()) {
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
        for pod in plan.looks {
            let action = Action::GetPod { namespace: namespace.clone(), name: pod.name };
            self.send(out, Pending::LookAtPod { job: job.clone(), pod: pod.uid }, action);
        }
        for pod in plan.discards {
            self.discard(&job, &namespace, pod, out);
        }
        let pods_at = self.progress.pods_at;
        let mut writing = false;
        let mut opened_by_list = None;
        if let Some(record) = self.jobs.get_mut(slot) {
            if gate_closed && record.gate_closed_since.is_none() {
                out.metrics.push(Metric::GateClosed);
            }
            record.gate_closed_since = gate_closed.then(|| record.gate_closed_since.unwrap_or(now));
            if record.gate_closed_since.is_some_and(|since| since + effects::STANDS_STILL <= now) {
                effects::stands_still(view, &Cause::RevisionGate, &mut record.told, out);
            }
            writing = record.ledger.as_ref().is_some_and(|ledger| ledger.is_writing());
            // Opened by a list alone: what the list cannot show waits for the stream.
            let foreign_at = record.ledger.as_ref().map(|ledger| ledger.foreign_at());
            opened_by_list = foreign_at.filter(|at| *at > pods_at);
        }
        self.gated
            .extend(plan.waits_for_pods.or(opened_by_list).into_iter().chain(plan.starts_at).map(|at| (at, slot)));
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
        } else if plan.waits_for_job {
            self.unconfirmed.insert(slot);
        } else {
            self.unconfirmed.remove(&slot);
        }
        self.set_timer(slot, wake_at);
    }

    pub(super) fn confirm_job(&mut self, slot: JobSlot, out: &mut Outbox) {
        let Some(record) = self.jobs.get_mut(slot) else {
            return;
        };
        let Some(ledger) = record.ledger.as_ref() else {
            return;
        };
        let pods_at = ledger.newest_pod_at();
        if std::mem::replace(&mut record.confirming, true) {
            return;
        }
        let view = record.view.clone();
        let action = Action::GetJob { namespace: view.namespace.clone(), name: view.name.clone() };
        self.send(out, Pending::ConfirmJob { job: view.uid.clone(), pods_at }, action);
    }

    /// Returns when to plan again if the status must not be sent.
    pub(super) fn write_status(
        &mut self,
        view: &Arc<JobView>,
        write: Box<StatusWrite>,
        now: Timestamp,
        out: &mut Outbox,
    ) -> Option<Timestamp> {
        // The same rules that the server applies: a refused write carries the accounting and would deadlock the Job.
        let problems = status_rules::check_gated(&view.spec, &view.status, &write.status, view.gates);
        if !problems.is_empty() {
            out.metrics.push(Metric::InvalidStatus);
            let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
            out.events.push(effects::event(view, true, "InvalidStatus", &text.join(", ")));
            if let Some((_, ledger)) = self.ledger_mut(&view.uid) {
                ledger.status_unwritten();
            }
            return Some(now + INVALID_STATUS_RETRY);
        }
        let action = Action::WriteJobStatus {
            namespace: view.namespace.clone(),
            name: view.name.clone(),
            uid: view.uid.clone(),
            revision: Some(write.base),
            status: Box::new(write.status.clone()),
            ends_tracking: write.ends_tracking,
        };
        self.send(out, Pending::Status { job: view.uid.clone(), write, before: view.clone() }, action);
        None
    }

    pub(super) fn release(
        &self,
        namespace: &str,
        name: CompactString,
        uid: PodUid,
        revision: Option<Revision>,
    ) -> Action {
        Action::PatchPod { namespace: namespace.into(), name, uid: Some(uid), revision, change: PodChange::Release }
    }

    /// At this revision only: the Pod may have lost its owner, and have another one since.
    pub(super) fn delete(
        &mut self,
        job: &JobUid,
        namespace: &str,
        pod: PodUid,
        name: CompactString,
        revision: Option<Revision>,
        out: &mut Outbox,
    ) {
        let uid = Some(pod.clone());
        let action = Action::DeletePod { namespace: namespace.into(), name: name.clone(), uid, revision };
        self.send(out, Pending::Delete { job: job.clone(), pod, name, revision }, action);
    }

    /// TTL-15: without an Event, since there would be one for each completion.
    fn discard(&mut self, job: &JobUid, namespace: &str, pod: PodRef, out: &mut Outbox) {
        let PodRef { uid, name, revision, .. } = pod;
        let pending = Pending::Discard { job: job.clone(), pod: uid.clone(), revision };
        self.send(out, pending, Action::DeletePod { namespace: namespace.into(), name, uid: Some(uid), revision });
    }

    /// TTL-24: at this revision only, so a Pod that another leader has begun to remove does not start.
    fn start(&mut self, job: &JobUid, namespace: &str, pod: PodRef, out: &mut Outbox) {
        let PodRef { uid, name, revision, .. } = pod;
        let pending = Pending::Start { job: job.clone(), pod: uid.clone(), revision };
        let (namespace, change) = (namespace.into(), PodChange::Start);
        self.send(out, pending, Action::PatchPod { namespace, name, uid: Some(uid), revision, change });
    }

    fn remove(&mut self, job: &JobUid, namespace: &str, removal: Removal, out: &mut Outbox) {
        let Removal { uid, name, revision, tracked } = removal;
        if !tracked {
            self.delete(job, namespace, uid, name, Some(revision), out);
            return;
        }
        let pending = Pending::RemovalRelease { job: job.clone(), pod: uid.clone(), name: name.clone(), revision };
        let action = self.release(namespace, name, uid, Some(revision));
        self.send(out, pending, action);
    }

    pub(super) fn refresh_job(&mut self, slot: JobSlot, out: &mut Outbox) {
        let Some(record) = self.jobs.get_mut(slot) else {
            return;
        };
        record.refreshing = true;
        let view = record.view.clone();
        let action = Action::GetJob { namespace: view.namespace.clone(), name: view.name.clone() };
        self.send(out, Pending::RefreshJob { job: view.uid.clone() }, action);
    }
}
