//! The TTL controller: deletes finished Jobs once their `ttlSecondsAfterFinished` has passed.
//!
//! The view only determines when to check. Before a delete, the Job is read again and judged by two clocks, ours and
//! the server's; the delete is conditional on the UID and the revision that were judged, so a TTL that was extended
//! meanwhile takes precedence.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use compact_str::CompactString;
use tally_core::ids::JobUid;
use tally_core::job::JobView;
use tally_core::mutation::{Bug, Mutation, NoMutation};
use tally_core::time::{Span, Timestamp};

use crate::wire::{self, Action, Answer, Object};
use tally_runtime::cache::Meta;
use tally_runtime::controller::{Controller, Input, Kind, Metric, Outbox, Request, RequestId, Stream};

/// A failed read or delete is retried after 1, 2, 4 ... 64 seconds.
const RETRY_DOUBLINGS: u32 = 6;

pub struct TtlController<S = NoMutation> {
    mutation: S,
    jobs: HashMap<JobUid, Waiting, foldhash::fast::FixedState>,
    timers: BTreeSet<(Timestamp, JobUid)>,
    requests: HashMap<RequestId, (JobUid, Step, Action), foldhash::fast::FixedState>,
    next_request: u64,
    epoch: u32,
}

struct Waiting {
    namespace: CompactString,
    name: CompactString,
    expires_at: Timestamp,
    timer: Option<Timestamp>,
    /// Requests about it that are in flight.
    asked: u32,
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

impl Default for TtlController {
    fn default() -> Self {
        Self::with_mutation(NoMutation)
    }
}

impl<S: Mutation> TtlController<S> {
    pub fn with_mutation(mutation: S) -> Self {
        Self {
            mutation,
            jobs: HashMap::default(),
            timers: BTreeSet::new(),
            requests: HashMap::default(),
            next_request: 0,
            epoch: 0,
        }
    }

    /// When a Job expires; with put-back bugs, at another time.
    fn expires_at(&self, job: &JobView) -> Option<Timestamp> {
        let expires_at = expires_at(job)?;
        if self.mutation.injects(Bug::TtlFromCreation) {
            return job.status.terminal_condition()?.last_transition_time.map(|at| expires_at - (at - job.created_at));
        }
        let early = i64::from(self.mutation.injects(Bug::TtlEarly));
        Some(expires_at + Span::from_seconds(120 * i64::from(self.mutation.injects(Bug::TtlLate)) - early))
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
            asked: 0,
            failures: 0,
            epoch,
        });
        waiting.epoch = epoch;
        waiting.expires_at = expires_at;
        if waiting.asked == 0 {
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
        if let Some(waiting) = self.jobs.get_mut(&uid) {
            waiting.asked += 1;
        }
        out.requests.push(Request { id, call: wire::call(&action) });
        self.requests.insert(id, (uid, step, action));
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
                let served_at = served_at.filter(|_| !self.mutation.injects(Bug::TtlTrustsLocalClock));
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
            // Changed between the read and the delete: read again.
            (Step::Delete { .. }, Answer::Conflict) => self.look(uid.clone(), out),
            _ => self.retry(uid, now),
        }
    }
}

impl<S: Mutation> Controller for TtlController<S> {
    fn name(&self) -> &'static str {
        "ttl-after-finished-controller"
    }

    fn streams(&self) -> Vec<Stream> {
        vec![Stream::of(Kind::JOB)]
    }

    fn handle(&mut self, input: Input, now: Timestamp, out: &mut Outbox) {
        match input {
            Input::Init(Kind::JOB) => self.epoch = self.epoch.wrapping_add(1),
            Input::Apply(Kind::JOB, bytes) => match JobView::from_json(&bytes) {
                Ok(job) => self.observe(&Arc::new(job)),
                // The Job exists, whatever its content: what is known about it is kept.
                Err(_) => {
                    let known = Meta::of(&bytes).and_then(|meta| self.jobs.get_mut(&JobUid::new(&meta.uid)));
                    known.into_iter().for_each(|waiting| waiting.epoch = self.epoch);
                }
            },
            Input::Delete(Kind::JOB, bytes) => {
                Meta::of(&bytes).into_iter().for_each(|meta| self.forget(&JobUid::new(&meta.uid)));
            }
            Input::InitDone(Kind::JOB, _) => {
                let epoch = self.epoch;
                #[allow(clippy::disallowed_methods, reason = "sorted below")]
                let mut gone: Vec<JobUid> = self
                    .jobs
                    .iter()
                    .filter(|(_, waiting)| waiting.epoch != epoch)
                    .map(|(uid, _)| uid.clone())
                    .collect();
                gone.sort_unstable();
                for uid in gone {
                    self.forget(&uid);
                }
            }
            Input::Response { request, reply, served_at } => {
                if let Some((uid, step, action)) = self.requests.remove(&request) {
                    // A Job that was forgotten and observed again counts no requests.
                    if let Some(waiting) = self.jobs.get_mut(&uid) {
                        waiting.asked = waiting.asked.saturating_sub(1);
                    }
                    let answer = wire::answer(self.mutation, &action, &reply);
                    self.answered(&uid, step, answer, served_at, now, out);
                }
            }
            Input::Tick | Input::Bookmark(..) => {}
            Input::Init(_) | Input::Apply(..) | Input::Delete(..) | Input::InitDone(..) => {}
        }
        self.tick(now, out);
        out.wake_at = self.timers.first().map(|(at, _)| *at);
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests count, in any order")]
mod tests {
    use serde_json::{Value, json};
    use tally_core::ids::Revision;

    use super::*;
    use tally_runtime::controller::Reply;
    use tally_runtime::testing::{done, refused};

    const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

    fn expired(at: usize) -> Value {
        let finished = json!({"type": "Complete", "status": "True", "lastTransitionTime": "2023-11-14T22:10:00Z"});
        json!({
            "metadata": {"namespace": "ns", "name": format!("j{at}"), "uid": format!("u{at}"), "resourceVersion": "1"},
            "spec": {"ttlSecondsAfterFinished": 0, "template": {}}, "status": {"conditions": [finished]},
        })
    }

    /// Every Job counts its own requests: with thousands of them in flight no code searches through all of them.
    #[test]
    fn each_job_knows_what_was_asked_about_it() {
        let mut ttl = TtlController::default();
        let mut out = Outbox::default();
        let agrees = |ttl: &TtlController| {
            let asked = |job: &JobUid| ttl.requests.values().filter(|(uid, ..)| uid == job).count();
            ttl.jobs.iter().all(|(uid, waiting)| waiting.asked as usize == asked(uid))
        };
        ttl.handle(Input::Init(Kind::JOB), NOW, &mut out);
        for at in 0..50 {
            // A Job that is observed again while it is being read is not read twice.
            for _ in 0..2 {
                ttl.handle(Input::Apply(Kind::JOB, expired(at).to_string().into()), NOW, &mut out);
            }
        }
        ttl.handle(Input::InitDone(Kind::JOB, Revision(5)), NOW, &mut out);
        assert_eq!(out.requests.len(), 50);
        assert!(agrees(&ttl));
        let replies = [done(expired(0)), refused(404, "NotFound"), Reply::Unknown, refused(409, "Conflict")];
        for (reply, request) in replies.iter().cycle().zip(std::mem::take(&mut out.requests)) {
            let answer = Input::Response { request: request.id, reply: reply.clone(), served_at: None };
            ttl.handle(answer, NOW, &mut out);
            assert!(agrees(&ttl));
        }
    }
}
