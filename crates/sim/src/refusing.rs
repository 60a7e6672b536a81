//! A policy that refuses the status of some Jobs for a time, as an admission policy or a webhook of a cluster may.

use tally_core::ids::JobUid;
use tally_core::time::{Span, Timestamp};
use tally_runtime::cache::Meta;
use tally_runtime::controller::{Call, Input, Kind, Object, Reply, Verb};

use crate::action::Action;
use crate::api::{Actor, Key};
use crate::cluster::Role;
use crate::oracle::Context;
use crate::world::World;

impl World {
    /// The policy begins to refuse the status of a Job, or ceases to.
    pub(crate) fn policy_changes(&mut self) -> bool {
        let Some(key) = self.choose_job() else { return false };
        if self.api.refused_statuses.contains(&key) {
            self.accept_again(&key, false);
        } else {
            self.refuse_status(key);
        }
        true
    }

    fn refuse_status(&mut self, key: Key) {
        let Some(uid) = self.api.jobs.get(&key).map(|stored| stored.view.uid.clone()) else { return };
        self.trace.say(|| format!("a policy refuses the status of {}", key.1));
        self.oracle.laws.status_refused_again(&uid);
        self.api.refused_statuses.insert(key);
    }

    /// `changed`: because a user changes the Job so that the policy accepts it.
    fn accept_again(&mut self, key: &Key, changed: bool) {
        self.api.refused_statuses.remove(key);
        let Some(uid) = self.api.jobs.get(key).map(|stored| stored.view.uid.clone()) else { return };
        let now = self.api.now;
        self.trace.say(|| format!("the policy accepts the status of {}", key.1));
        self.oracle.laws.status_accepted_again(&uid, changed, now);
        if changed {
            self.touch(key);
        }
    }

    fn touch(&mut self, key: &Key) {
        self.trace.say(|| format!("a user annotates {}", key.1));
        self.api.touch_job(key, Actor::User);
        self.settle_changes(Context::default());
    }

    /// When faults stop, the policy stays for a time.
    pub(crate) fn policy_stays(&mut self) {
        if !self.setup.refuses_statuses {
            return;
        }
        let seconds = *self.choices.pick(&[130, 0, 3, 40, 600]);
        let keys: Vec<Key> = self.api.jobs.keys().cloned().collect();
        for key in keys {
            if self.choices.below(2) == 0 && !self.api.refused_statuses.contains(&key) {
                self.refuse_status(key);
            }
        }
        self.policy_ends_at = Some(self.api.now + Span::from_seconds(seconds));
    }

    /// In a healed world that has nothing to do but wait. True: something has happened.
    pub(crate) fn policy_acts(&mut self, wake_at: Option<Timestamp>) -> bool {
        if !self.setup.refuses_statuses {
            return false;
        }
        let wakes: Vec<_> = self.hosts.iter().map(|host| (host.incarnation, self.wake_of(host))).collect();
        let wakes = |actor: Actor| match actor {
            Actor::Controller { instance, incarnation } => {
                wakes.get(instance).filter(|(now, _)| *now == incarnation).map(|(_, wakes)| *wakes)
            }
            _ => None,
        };
        self.oracle.laws.check_refused(self.api.now, wake_at, wakes);
        let Some(ends_at) = self.policy_ends_at else { return false };
        let keys: Vec<Key> = self.api.refused_statuses.iter().cloned().collect();
        if self.api.now >= ends_at {
            self.policy_ends_at = None;
            keys.iter().for_each(|key| self.accept_again(key, false));
            return true;
        }
        let Some(key) = keys.first().filter(|_| self.choices.one_in(6)) else { return false };
        let key = keys.get(self.choices.below(keys.len())).unwrap_or(key);
        match self.choices.below(4) {
            0 => self.accept_again(key, true),
            _ => self.touch(key),
        }
        true
    }

    // ---- what the law needs to know ----

    /// A Job controller is about to be told this by a stream.
    pub(crate) fn note_shown(&mut self, at: usize, input: &Input) {
        if let Input::Apply(Kind::JOB, job) = input {
            self.note_shown_job(at, job);
        }
    }

    fn note_shown_job(&mut self, at: usize, job: &Object) {
        if !self.setup.refuses_statuses || self.hosts[at].role != Role::Job {
            return;
        }
        let Some(job) = Meta::of(job) else { return };
        let actor = Actor::Controller { instance: at, incarnation: self.hosts[at].incarnation };
        self.oracle.laws.shown_job(actor, &JobUid::new(&job.uid), job.revision());
    }

    pub(crate) fn note_status_request(&mut self, at: usize, call: &Call, context: Context) {
        if !self.setup.refuses_statuses || (call.kind, call.verb) != (Kind::JOB, Verb::MergePatch) {
            return;
        }
        let Action::WriteJobStatus { uid, revision, .. } = Action::of(call) else { return };
        let actor = Actor::Controller { instance: at, incarnation: self.hosts[at].incarnation };
        self.oracle.laws.status_requested(actor, &uid, revision.unwrap_or_default(), context);
    }

    /// A Job controller is about to be told this response.
    pub(crate) fn note_response(&mut self, at: usize, call: &Call, reply: &Reply, now: Timestamp) {
        if !self.setup.refuses_statuses || call.kind != Kind::JOB || self.hosts[at].role != Role::Job {
            return;
        }
        if let Reply::Done(job) = reply {
            self.note_shown_job(at, job);
        }
        let Action::WriteJobStatus { uid, .. } = Action::of(call) else { return };
        let accepted = match reply {
            Reply::Done(_) => Some(true),
            Reply::Refused(refusal) if refusal.code == 422 => Some(false),
            _ => None,
        };
        let actor = Actor::Controller { instance: at, incarnation: self.hosts[at].incarnation };
        self.oracle.laws.status_answered(actor, &uid, accepted, now);
    }
}
