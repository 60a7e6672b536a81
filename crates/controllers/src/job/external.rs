//! Jobs that another controller manages (`managedBy`), or that ask for what this one cannot do (GANG-5): neither they nor
//! their Pods are touched (MANAGED-2).
//!
//! Two tasks remain for the controller of the Jobs without a manager. When such a Job is gone, its Pods have no owner,
//! and lose their finalizer like all orphans (ORPH-3). And a Job whose manager does not run would wait forever without
//! an explanation: it gets an Event that names the manager it waits for. Before that the Job is read, because the
//! stream may be behind, and a Job that is managed must never get this Event.

use tally_core::ids::JobUid;
use tally_core::job::{JobStatus, JobView};
use tally_core::time::{Span, Timestamp};

use tally_explain::Cause;

use super::table::JobSlot;
use super::{JobController, Pending, WorkItem, effects};
use crate::wire::{Action, Answer, Object};
use tally_runtime::controller::{Metric, Outbox};

/// How long a Job may stay unchanged before its manager counts as missing. By then every running controller has
/// observed the Job, and has had the time to write that it has.
pub const UNSERVED_AFTER: Span = Span::from_seconds(60);
/// How long until the Event for a Job that still waits is repeated: often enough to be found among Events, which are
/// kept for about an hour.
const AGAIN_AFTER: Span = Span::from_seconds(3600);

/// A Job that waits for its manager.
pub(super) struct Unserved {
    /// A change of the spec means that a client is working on the Job: the wait starts again.
    generation: i64,
    pub due_at: Timestamp,
}

/// No controller has written a status, although there is something to do. A manager may leave a suspended Job alone
/// until it is resumed.
fn is_untouched(job: &JobView) -> bool {
    !job.deleting && !job.spec.suspend && !job.gang && job.status == JobStatus::default()
}

impl JobController {
    /// Whether this controller manages the Jobs without a manager, and cleans up what has no owner.
    pub(super) fn is_caretaker(&self) -> bool {
        self.config.managed_by.is_none()
    }

    /// GANG-5: says, once for each Job, why one that would be ours is left alone.
    pub(super) fn tell_unsupported(&mut self, slot: JobSlot, out: &mut Outbox) {
        let Some(record) = self.jobs.get_mut(slot) else { return };
        let job = record.view.clone();
        let ours = job.gang && job.is_managed_by(self.config.managed_by.as_deref());
        let open = !job.deleting && !job.status.is_finished();
        if ours && open && !std::mem::replace(&mut record.told_unsupported, true) {
            let cause = Cause::GangScheduling;
            out.events.push(effects::event(&job, true, cause.name(), &cause.sentence()));
            out.metrics.push(Metric::GangJob { job: effects::full_name(&job) });
        }
    }

    /// A Job of another manager, as it is now.
    pub(super) fn observe_external(&mut self, job: &JobView, now: Timestamp) {
        if !self.is_caretaker() {
            self.unclaimed.forget_job(&job.uid);
            return;
        }
        self.unclaimed.forget_untracked(&job.uid);
        if job.status.is_finished() {
            self.unsettle_selected(job);
        }
        if !is_untouched(job) {
            self.forget_unserved(&job.uid);
        } else if self.unserved.get(&job.uid).is_none_or(|known| known.generation != job.generation) {
            self.forget_unserved(&job.uid);
            self.unserved.insert(job.uid.clone(), Unserved { generation: job.generation, due_at: now });
            self.doubt_again(&job.uid, now + self.config.unserved_after);
        }
    }

    pub(super) fn forget_unserved(&mut self, job: &JobUid) {
        if let Some(known) = self.unserved.remove(job) {
            self.timers.remove(&(known.due_at, WorkItem::Doubt(job.clone())));
        }
    }

    fn doubt_again(&mut self, job: &JobUid, at: Timestamp) {
        if let Some(known) = self.unserved.get_mut(job) {
            known.due_at = at;
            self.timers.insert((at, WorkItem::Doubt(job.clone())));
        }
    }

    /// Nothing of a Job's manager has been observed for that long.
    pub(super) fn doubt(&mut self, uid: &JobUid, now: Timestamp, out: &mut Outbox) {
        let Some(record) = self.jobs.slot_of(uid).and_then(|slot| self.jobs.get(slot)) else { return };
        let (namespace, name) = (record.view.namespace.clone(), record.view.name.clone());
        if self.unclaimed.has_pods_of(uid) {
            // A controller created them.
            self.doubt_again(uid, now + self.config.unserved_after);
            return;
        }
        self.send(out, Pending::Doubt { job: uid.clone() }, Action::GetJob { namespace, name });
    }

    pub(super) fn doubt_answered(&mut self, uid: &JobUid, answer: &Answer, now: Timestamp, out: &mut Outbox) {
        let Some(known) = self.unserved.get(uid) else { return };
        match answer {
            Answer::Done(Object::Job(job)) => {
                // Something has happened after all: the stream will show it too.
                if job.uid != *uid || job.generation != known.generation || !is_untouched(job) {
                    return;
                }
                let Some(manager) = &job.spec.managed_by else { return };
                let message = format!(
                    "No controller has reported on this Job for {} s. spec.managedBy says that only {manager:?} may run \
                     it: install or start that controller, or delete the Job and create it again without managedBy",
                    self.config.unserved_after.as_seconds_f64()
                );
                out.events.push(effects::event(job, true, "NoControllerForManagedBy", &message));
                self.doubt_again(uid, now + AGAIN_AFTER);
            }
            Answer::Gone => {}
            _ => self.doubt_again(uid, now + self.config.unserved_after),
        }
    }
}
