//! Jobs that another controller serves (`managedBy`): not a finger on them, or on their Pods (MANAGED-2).
//!
//! Two things remain for the one that serves the Jobs without a manager. When such a Job is gone, its Pods are nobody's,
//! and lose their finalizer like all orphans (ORPH-3). And a Job whose manager is nowhere to be seen would wait for ever
//! without a word: it gets an event that says whom it waits for. Before that the Job is read, because what the stream
//! shows may be old, and a Job that somebody serves must never be told so.

use tally_core::ids::JobUid;
use tally_core::job::{JobStatus, JobView};
use tally_core::mutation::Soundness;
use tally_core::time::{Span, Timestamp};

use super::{Chore, JobController, Pending, effects};
use crate::wire::{Action, Answer, Object};
use tally_runtime::controller::Outbox;

/// How long nothing may happen to a Job before its manager counts as missing. Any controller that runs has seen the Job
/// by then, and has had the time to say that it has.
pub const UNSERVED_AFTER: Span = Span::from_seconds(60);
/// How long until a Job that still waits is told again: often enough to be found among events, which are kept for an
/// hour or so.
const AGAIN_AFTER: Span = Span::from_seconds(3600);

/// A Job that waits for its manager.
pub(super) struct Unserved {
    /// Whoever changes the spec is busy with the Job: the wait begins again.
    generation: i64,
    due_at: Timestamp,
}

/// Nobody has written a status, though there is something to do. A manager may well leave a suspended Job alone until its
/// time has come.
fn is_untouched(job: &JobView) -> bool {
    !job.deleting && !job.spec.suspend && job.status == JobStatus::default()
}

impl<S: Soundness> JobController<S> {
    /// Whether this is the one that serves the Jobs without a manager, and looks after what is nobody's.
    pub(super) fn is_caretaker(&self) -> bool {
        self.config.managed_by.is_none()
    }

    /// A Job of somebody else's, as it is now.
    pub(super) fn observe_external(&mut self, job: &JobView, now: Timestamp) {
        if !self.is_caretaker() {
            self.strays.forget_job(&job.uid);
            return;
        }
        self.strays.forget_untracked(&job.uid);
        if job.status.is_finished() {
            self.strays.unsettle_loose(&job.namespace);
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
            self.timers.remove(&(known.due_at, Chore::Doubt(job.clone())));
        }
    }

    fn doubt_again(&mut self, job: &JobUid, at: Timestamp) {
        if let Some(known) = self.unserved.get_mut(job) {
            known.due_at = at;
            self.timers.insert((at, Chore::Doubt(job.clone())));
        }
    }

    /// Nothing has been heard of a Job's manager for so long.
    pub(super) fn doubt(&mut self, uid: &JobUid, now: Timestamp, out: &mut Outbox) {
        let Some(tracked) = self.slot_of(uid).and_then(|slot| self.tracked(slot)) else { return };
        let (namespace, name) = (tracked.view.namespace.clone(), tracked.view.name.clone());
        if self.strays.has_pods_of(uid) {
            // Somebody made them.
            self.doubt_again(uid, now + self.config.unserved_after);
            return;
        }
        self.send(out, Pending::Doubt { job: uid.clone() }, Action::GetJob { namespace, name });
    }

    pub(super) fn doubt_answered(&mut self, uid: &JobUid, answer: &Answer, now: Timestamp, out: &mut Outbox) {
        let Some(known) = self.unserved.get(uid) else { return };
        match answer {
            Answer::Done(Object::Job(job)) => {
                // Something has happened after all: the stream shows it as well, sooner or later.
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
