//! I28: a status that the API server refuses is sent again after 1, 2, 4 … 60 seconds, at once if the Job has changed
//! (CONST-1), and the Job ends soon after its status is accepted.

use std::collections::BTreeMap;

use tally_core::ids::{JobUid, Revision};
use tally_core::time::{Span, Timestamp};

use super::Laws;
use super::times::delays;
use crate::api::Actor;
use crate::oracle::Context;

/// The longest delay before a refused status is sent again.
const LONGEST: Span = Span::from_seconds(60);
/// What a Job without failures needs from the first status that is accepted to its end: writes that are paced.
const ENDS_WITHIN: Span = Span::from_seconds(5);

/// By controller and Job: a controller does not know what another one was told.
#[derive(Default)]
pub(super) struct Refusals {
    writes: BTreeMap<(Actor, JobUid), Writes>,
    /// By when a Job whose status is accepted again must have been tried.
    tried_by: BTreeMap<JobUid, Timestamp>,
}

#[derive(Default)]
struct Writes {
    /// The newest version of the Job that the controller was shown.
    shown: Revision,
    /// How often its status was refused since one was accepted.
    refused: u32,
    /// Until when it must wait, by its own clock. None: it has been shown a newer Job since, or nothing was refused.
    waits_until: Option<Timestamp>,
    in_flight: bool,
    /// What the last write was made from.
    pods_at: Revision,
    job_at: Revision,
}

impl Laws {
    fn writes(&mut self, actor: Actor, job: &JobUid) -> &mut Writes {
        self.refusals.writes.entry((actor, job.clone())).or_default()
    }

    /// A controller is shown a Job, by its stream or by a response.
    pub(crate) fn shown_job(&mut self, actor: Actor, job: &JobUid, at: Revision) {
        let writes = self.writes(actor, job);
        if at > writes.shown {
            (writes.shown, writes.waits_until) = (at, None);
        }
    }

    /// A controller requests the write of a status, to replace the version `job_at`.
    pub(crate) fn status_requested(&mut self, actor: Actor, job: &JobUid, job_at: Revision, context: Context) {
        let writes = self.writes(actor, job);
        let (waits_until, refused) = (writes.waits_until, writes.refused);
        (writes.in_flight, writes.pods_at, writes.job_at) = (true, context.pods_at, job_at);
        let early = waits_until.filter(|until| context.clocks_sane && context.asked_at < *until);
        self.require(early.is_none(), "I28", || {
            let early = early.map_or(0, |until| (until - context.asked_at).millis());
            format!("the status of {job} is sent again {early} ms early, after {refused} refusals")
        });
    }

    /// A controller receives the response to its write of a status. `now`: by its clock.
    pub(crate) fn status_answered(&mut self, actor: Actor, job: &JobUid, accepted: Option<bool>, now: Timestamp) {
        let writes = self.writes(actor, job);
        writes.in_flight = false;
        match accepted {
            Some(true) => (writes.refused, writes.waits_until) = (0, None),
            Some(false) => {
                let delay = Span::from_seconds(1 << writes.refused.min(10)).min(LONGEST);
                writes.refused += 1;
                writes.waits_until = Some(now + delay);
            }
            // Nothing is known: the Job is read, and the delay neither grows nor ends.
            None => {}
        }
    }

    /// The policy accepts the status of a Job again. `changed`: because a user has changed the Job.
    pub(crate) fn status_accepted_again(&mut self, job: &JobUid, changed: bool, now: Timestamp) {
        let wait = if changed { Span::ZERO } else { LONGEST };
        self.refusals.tried_by.insert(job.clone(), now + wait);
    }

    /// The policy refuses the status of a Job.
    pub(crate) fn status_refused_again(&mut self, job: &JobUid) {
        self.refusals.tried_by.remove(job);
    }

    /// In a healed world that has nothing to do but wait until `wake_at`: whoever had its status refused, and knows of
    /// nothing new, wakes at the end of its delay, and need not wait if it was shown a newer Job. A Job whose status is
    /// accepted again ends within the longest delay, its back-offs and a few seconds; until the world is healed, its Pods
    /// take their time. `wakes`: when a controller wakes, if it still runs.
    pub(crate) fn check_refused(
        &mut self,
        now: Timestamp,
        wake_at: Option<Timestamp>,
        wakes: impl Fn(Actor) -> Option<Option<Timestamp>>,
    ) {
        let mut found = None;
        for ((actor, uid), writes) in &self.refusals.writes {
            let Some(wakes) = wakes(*actor).filter(|_| writes.refused > 0 && !writes.in_flight) else { continue };
            let Some(life) = self.history.jobs.get(uid) else { continue };
            let Some(job) = life.now().filter(|job| !job.deleting() && job.terminal().is_none()) else { continue };
            let same_job = life.since(writes.job_at).all(|version| version.status == job.status);
            let mut pods = self.history.pods_of(uid).flat_map(|(_, life)| life.versions.last());
            if !same_job || pods.any(|version| version.at > writes.pods_at) {
                continue;
            }
            let until = writes.waits_until.unwrap_or(now);
            if wakes.is_none_or(|at| at > until) || writes.waits_until.is_none() {
                let name = &job.metadata.name;
                found =
                    Some(format!("the status of {name} is to be sent again at {until}, its writer wakes at {wakes:?}"));
            }
        }
        for (uid, tried_by) in &self.refusals.tried_by {
            let life = self.history.jobs.get(uid).and_then(|life| life.now());
            let Some(job) = life.filter(|job| !job.deleting() && job.terminal().is_none()) else { continue };
            let back_offs = (1..=self.failures_ever(job)).map(|failures| delays(job, failures).1);
            let from = self.healed_at.map_or(*tried_by, |healed_at| healed_at.max(*tried_by));
            let ends_by = back_offs.fold(from + ENDS_WITHIN, |at, delay| at + delay);
            if wake_at.is_none_or(|at| at > ends_by) {
                let name = &job.metadata.name;
                found =
                    Some(format!("{name} has not ended by {ends_by} though its status is accepted, wake {wake_at:?}"));
            }
        }
        self.require(found.is_none(), "I28", || found.unwrap_or_default());
    }
}
