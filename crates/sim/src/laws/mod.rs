//! The laws of verdicts and times, checked against what really happened. They receive every committed write and share
//! no code with what they judge: they read the stored JSON themselves (`read`), and have their own index sets,
//! policies, back-off and expiry (`indexes`, `policy`, `times`), smaller and slower, written from `docs/spec`.
//!
//! What a writer knew differs from what was true: a law that says "too early" considers everything that had happened by
//! the commit, and one that says "too late" only Pods that had not changed since the writer's stream showed them.
//!
//! - I15: a success has a cause, the first in order, and is decided once (`verdicts`).
//! - I16: so does a failure (`verdicts`).
//! - I17: a writer that must know of a cause decides (`verdicts`).
//! - I18: an index fails by its limit or by a rule, and its replacement carries its failures (`failures`, `creations`).
//! - I19: times in a status are those of the events they describe (`stamps`).
//! - I20: in a healed world nothing is late (`waits`).
//! - I21: a controller that knows the decision creates no Pod (`creations`).
//! - I22: a Pod that completed its index is no failure (`failures`).
//! - I23: how many Pods live at once is bounded (`creations`).
//! - I24: a running Pod is released only if the Job wanted it gone (`releases`).
//! - I25: a Pod is created only if it is wanted (`creations`).
//! - I26: a finished Pod is deleted only if it is counted and its Job, or its own TTL, says so (`deletions`, `oracle.rs`).
//! - I27: a Pod that has not ended is counted as failed only once its Job need not wait for a dead node any more
//!   (`failures`); it is replaced only after that, and never counted as a success (I22, I25).
//! - I28: a status that is refused is sent again after 1, 2, 4 … 60 seconds, and at once if the Job has changed
//!   (`refused`).
//! - O1: a Job that waits for others begins once each of them has ended as it wants (`order`).
//! - O2: a Job that ends because of its order could not begin any more, and has had no Pod (`order`).
//! - O3: at rest no Job waits for what has happened, or can no longer happen (`order`).
//! - O4: a Job is resumed once because of its order (`order`).

mod creations;
mod deletions;
mod failures;
mod history;
pub(crate) mod indexes;
mod order;
mod policy;
mod read;
mod refused;
mod releases;
mod stamps;
mod times;
mod verdicts;
mod waits;

use std::sync::Arc;

use tally_core::ids::{JobUid, PodUid, Revision};
use tally_core::time::Timestamp;

use crate::api::{Actor, Change};
use crate::oracle::{Context, Violation};
use crate::setup::GatesOff;
use history::{History, JobLife, judged};
use policy::Action;
use read::{Job, Pod};

#[derive(Default)]
pub(crate) struct Laws {
    history: History,
    violation: Option<Violation>,
    healed_at: Option<Timestamp>,
    /// How many instances run at a time.
    instances: usize,
    /// How many Pods the lists of a status may contain.
    uncounted_limit: usize,
    gates_off: GatesOff,
    refusals: refused::Refusals,
}

/// One write of a Job's status by a controller.
struct StatusWrite<'a> {
    before: &'a Job,
    after: &'a Job,
    actor: Actor,
    context: Context,
    /// The server's clock.
    now: Timestamp,
}

impl Laws {
    pub(crate) fn new(uncounted_limit: usize, instances: usize, gates_off: GatesOff) -> Self {
        Self { uncounted_limit, instances, gates_off, ..Self::default() }
    }

    pub(crate) fn take_violation(&mut self) -> Option<Violation> {
        self.violation.take()
    }

    fn require(&mut self, holds: bool, invariant: &'static str, text: impl FnOnce() -> String) {
        if !holds && self.violation.is_none() {
            self.violation = Some(Violation { invariant, text: text() });
        }
    }

    pub(crate) fn observe(&mut self, change: &Change, context: Context, now: Timestamp) {
        match change {
            Change::Job { at, json, gone, actor, .. } => {
                let job = Arc::new(Job::read(json));
                let before = self.history.add_job(*at, job.clone(), *gone);
                self.note_cycles();
                let Some(before) = before else { return };
                self.check_order(&before, &job, *actor);
                if !matches!(actor, Actor::Controller { .. }) {
                    return;
                }
                if job.deleting() && !before.deleting() {
                    self.check_expiry(&before, now);
                }
                if before.status != job.status && !job.is_legacy() {
                    let write = StatusWrite { before: &before, after: &job, actor: *actor, context, now };
                    self.check_status(&write);
                }
            }
            Change::Pod { at, json, before, gone, actor, .. } => {
                let mut pod = Pod::read(json);
                if *gone {
                    pod.lose_finalizer();
                }
                let controlled = matches!(actor, Actor::Controller { .. });
                let uid = pod.metadata.uid.clone();
                self.history.add_pod(*at, pod, *gone, *actor, context.step);
                let job = self.history.pods.get(&uid).and_then(|life| life.versions.last()?.pod.job().cloned());
                let job = job.and_then(|job| self.history.jobs.get(&job)?.now().cloned());
                let legacy = job.as_ref().is_some_and(|job| job.is_legacy());
                if controlled && before.is_none() {
                    job.iter().for_each(|job| self.check_begins(job));
                    if !legacy {
                        self.check_creation(&uid, *actor, context);
                    }
                } else if controlled && !legacy {
                    self.check_release(&uid, *actor, context);
                    self.check_deletion(&uid, context, now);
                }
            }
        }
    }

    fn check_status(&mut self, write: &StatusWrite<'_>) {
        self.note_records(write);
        self.check_completed_indexes(write);
        self.check_failed_indexes(write);
        self.check_verdict(write);
        self.check_terminal(write);
        self.check_stamps(write);
        self.check_terminating(write);
    }

    /// Whether the failure policy of its Job says that this Pod's failure is ignored.
    pub(crate) fn is_ignored(&self, job: &JobUid, pod: &PodUid) -> bool {
        let job = self.history.jobs.get(job).and_then(|life| life.now());
        let pod = self.history.pods.get(pod).and_then(|life| life.versions.last());
        job.zip(pod).is_some_and(|(job, version)| judged(job, &version.pod) == Action::Ignore)
    }

    /// An instance receives the response to its write of a Job.
    pub(crate) fn told_of_job(&mut self, job: &JobUid, at: Revision, actor: Actor, step: usize) {
        let decided = |life: &&mut JobLife| life.decided_at.is_some_and(|decided_at| at >= decided_at);
        if let Some(life) = self.history.jobs.get_mut(job).filter(decided) {
            life.told.entry(actor).or_insert(step);
        }
    }
}
