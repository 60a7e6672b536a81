//! The TTL machine: deletes finished Jobs once their `ttlSecondsAfterFinished` has passed.
//!
//! The view only says when to look. Before deleting, the Job is read afresh and judged by two clocks, ours and the
//! server's; the delete carries the UID and the revision that were judged, so a TTL that was extended meanwhile wins.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use compact_str::CompactString;
use tally_core::ids::JobUid;
use tally_core::job::JobView;
use tally_core::mutation::{Bug, Sound, Soundness};
use tally_core::time::{Span, Timestamp};

use crate::machine::{Action, Answer, Input, Machine, Metric, Object, Outbox, Request, RequestId, Resource};

/// A failed look or delete is repeated after 1, 2, 4 ... 64 seconds.
const RETRY_DOUBLINGS: u32 = 6;

pub struct TtlMachine<S = Sound> {
    soundness: S,
    jobs: HashMap<JobUid, Waiting, foldhash::fast::FixedState>,
    timers: BTreeSet<(Timestamp, JobUid)>,
    requests: HashMap<RequestId, (JobUid, Step), foldhash::fast::FixedState>,
    next_request: u64,
    epoch: u32,
}

struct Waiting {
    namespace: CompactString,
    name: CompactString,
    expires_at: Timestamp,
    timer: Option<Timestamp>,
    failures: u32,
    epoch: u32,
}

#[derive(Clone, Copy)]
enum Step {
    Look,
    Delete { expired_at: Timestamp },
}

/// TTL-3 to TTL-5: when a Job expires; None if it never does.
pub fn expires_at(job: &JobView) -> Option<Timestamp> {
    if job.deleting {
        return None;
    }
    let ttl = job.spec.ttl_seconds_after_finished?;
    let finished_at = job.status.terminal_condition()?.last_transition_time?;
    Some(finished_at + Span::from_seconds(i64::from(ttl)))
}

impl Default for TtlMachine {
    fn default() -> Self {
        Self::with_soundness(Sound)
    }
}

impl<S: Soundness> TtlMachine<S> {
    pub fn with_soundness(soundness: S) -> Self {
        Self {
            soundness,
            jobs: HashMap::default(),
            timers: BTreeSet::new(),
            requests: HashMap::default(),
            next_request: 0,
            epoch: 0,
        }
    }

    /// When a Job expires; for mutants, at some other time.
    fn expires_at(&self, job: &JobView) -> Option<Timestamp> {
        let expires_at = expires_at(job)?;
        if self.soundness.has(Bug::TtlFromCreation) {
            return job.status.terminal_condition()?.last_transition_time.map(|at| expires_at - (at - job.created_at));
        }
        let early = i64::from(self.soundness.has(Bug::TtlEarly));
        Some(expires_at + Span::from_seconds(120 * i64::from(self.soundness.has(Bug::TtlLate)) - early))
    }

    fn observe(&mut self, job: &Arc<JobView>) {
        let Some(expires_at) = self.expires_at(job) else {
            self.forget(&job.uid);
            return;
        };
        let epoch = self.epoch;
        let waiting = self.jobs.entry(job.uid.clone()).or_insert_with(|| Waiting {
            namespace: job.namespace.clone(),
            name: job.name.clone(),
            expires_at,
            timer: None,
            failures: 0,
            epoch,
        });
        waiting.epoch = epoch;
        waiting.expires_at = expires_at;
        let busy = self.requests.values().any(|(uid, _)| *uid == job.uid);
        if !busy {
            self.arm(&job.uid, expires_at);
        }
    }

    fn arm(&mut self, uid: &JobUid, at: Timestamp) {
        let Some(waiting) = self.jobs.get_mut(uid) else {
            return;
        };
        if let Some(old) = waiting.timer.replace(at) {
            self.timers.remove(&(old, uid.clone()));
        }
        self.timers.insert((at, uid.clone()));
    }

    fn forget(&mut self, uid: &JobUid) {
        if let Some(at) = self.jobs.remove(uid).and_then(|waiting| waiting.timer) {
            self.timers.remove(&(at, uid.clone()));
        }
    }

    fn send(&mut self, uid: JobUid, step: Step, action: Action, out: &mut Outbox) {
        self.next_request += 1;
        let id = RequestId(self.next_request);
        self.requests.insert(id, (uid, step));
        out.requests.push(Request { id, action });
    }

    fn look(&mut self, uid: JobUid, out: &mut Outbox) {
        let Some(waiting) = self.jobs.get_mut(&uid) else {
            return;
        };
        waiting.timer = None;
        let action = Action::GetJob { namespace: waiting.namespace.clone(), name: waiting.name.clone() };
        self.send(uid, Step::Look, action, out);
    }

    fn tick(&mut self, now: Timestamp, out: &mut Outbox) {
        while let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            if let Some((_, uid)) = self.timers.pop_first() {
                self.look(uid, out);
            }
        }
    }

    fn retry(&mut self, uid: &JobUid, now: Timestamp) {
        let Some(waiting) = self.jobs.get_mut(uid) else {
            return;
        };
        let wait = Span::from_seconds(1 << waiting.failures.min(RETRY_DOUBLINGS));
        waiting.failures += 1;
        self.arm(uid, now + wait);
    }

    fn answered(
        &mut self,
        uid: &JobUid,
        step: Step,
        answer: Answer,
        served_at: Option<Timestamp>,
        now: Timestamp,
        out: &mut Outbox,
    ) {
        match (step, answer) {
            (Step::Look, Answer::Done(Object::Job(job))) if job.uid == *uid => {
                let Some(expires_at) = self.expires_at(&job) else {
                    self.forget(uid);
                    return;
                };
                // A local clock that runs ahead deletes nothing early (H6).
                let served_at = served_at.filter(|_| !self.soundness.has(Bug::TtlTrustsLocalClock));
                let judged_at = served_at.map_or(now, |served_at| served_at.min(now));
                if judged_at < expires_at {
                    let wait = expires_at - judged_at;
                    self.arm(uid, now + wait);
                    return;
                }
                let action = Action::DeleteJob {
                    namespace: job.namespace.clone(),
                    name: job.name.clone(),
                    uid: uid.clone(),
                    revision: job.revision,
                };
                self.send(uid.clone(), Step::Delete { expired_at: expires_at }, action, out);
            }
            (Step::Look, Answer::Done(_) | Answer::Gone) => self.forget(uid),
            (Step::Delete { expired_at }, Answer::Done(_) | Answer::Gone) => {
                out.metrics.push(Metric::TtlDeletion { after_millis: (now - expired_at).millis() });
                self.forget(uid);
            }
            // Changed between the look and the delete: look again.
            (Step::Delete { .. }, Answer::Conflict) => self.look(uid.clone(), out),
            _ => self.retry(uid, now),
        }
    }
}

impl<S: Soundness> Machine for TtlMachine<S> {
    fn handle(&mut self, input: Input, now: Timestamp, out: &mut Outbox) {
        match input {
            Input::Listing { resource: Resource::Jobs } => self.epoch = self.epoch.wrapping_add(1),
            Input::Observed(Object::Job(job)) => self.observe(&job),
            Input::Gone(Object::Job(job)) => self.forget(&job.uid),
            Input::Listed { resource: Resource::Jobs, .. } => {
                let epoch = self.epoch;
                let gone: Vec<JobUid> = self
                    .jobs
                    .iter()
                    .filter(|(_, waiting)| waiting.epoch != epoch)
                    .map(|(uid, _)| uid.clone())
                    .collect();
                for uid in gone {
                    self.forget(&uid);
                }
            }
            Input::Answered { request, answer, served_at } => {
                if let Some((uid, step)) = self.requests.remove(&request) {
                    self.answered(&uid, step, answer, served_at, now, out);
                }
            }
            Input::Tick => self.tick(now, out),
            Input::Listing { .. }
            | Input::Listed { .. }
            | Input::Reached { .. }
            | Input::Observed(Object::Pod(_))
            | Input::Gone(Object::Pod(_)) => {}
        }
        self.tick(now, out);
        out.wake_at = self.timers.first().map(|(at, _)| *at);
    }
}
