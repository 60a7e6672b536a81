//! O1 to O4: the order between Jobs, from what the annotation `tally.dev/after` says and from what really happened.

use std::collections::BTreeSet;

use tally_core::ids::JobUid;

use super::Laws;
use super::history::{History, JobLife};
use super::read::Job;
use crate::api::Actor;

/// The Jobs that a Job waits for, and how each must end.
fn wanted(job: &Job) -> Vec<(&str, &str)> {
    let text = job.metadata.annotations.get("tally.dev/after").map_or("", |text| text.as_str());
    let parts = text.split(',').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').unwrap_or((part, "Complete"))).collect()
}

fn ended(job: &Job, how: &str) -> bool {
    match how {
        "Finished" => job.terminal().is_some(),
        how => job.condition(how).is_some(),
    }
}

impl JobLife {
    fn is_named(&self, name: &str) -> bool {
        self.versions.first().is_some_and(|(_, job)| job.metadata.name == name)
    }

    fn ever_ended(&self, how: &str) -> bool {
        self.versions.iter().any(|(_, job)| ended(job, how))
    }

    /// It has not begun, and no user has overruled the order.
    fn waits(&self) -> bool {
        let open =
            |job: &Job| !wanted(job).is_empty() && job.spec.suspend && job.verdict().is_none() && !job.deleting();
        !self.resumed_in_order && !self.freed && self.now().is_some_and(|job| open(job))
    }
}

impl History {
    fn all_named(&self, name: &str) -> impl Iterator<Item = &JobLife> {
        self.jobs.values().filter(move |life| life.is_named(name))
    }

    /// Whether the Job waits for itself, by way of Jobs that wait, or that failed because of such a cycle.
    fn in_a_cycle(&self, start: &Job) -> bool {
        let mut reached: BTreeSet<&str> = wanted(start).into_iter().map(|(name, _)| name).collect();
        loop {
            let waiting = self.jobs.values().filter(|life| {
                let failed = |job: &Job| job.verdict().is_some_and(|verdict| verdict.reason == "DependencyCycle");
                life.waits() || life.now().is_some_and(|job| failed(job))
            });
            let jobs = waiting.filter_map(|life| life.now()).filter(|job| reached.contains(job.metadata.name.as_str()));
            let more: BTreeSet<&str> = jobs.flat_map(|job| wanted(job)).map(|(name, _)| name).collect();
            let before = reached.len();
            reached.extend(more);
            if reached.len() == before {
                return reached.contains(start.metadata.name.as_str());
            }
        }
    }
}

impl Laws {
    /// A write of a Job: whether it lets the Job begin, or ends it because of its order.
    pub(super) fn check_order(&mut self, before: &Job, after: &Job, actor: Actor) {
        let name = &after.metadata.name;
        if wanted(before).is_empty() && wanted(after).is_empty() {
            return;
        }
        let uid = &after.metadata.uid;
        let begins = before.spec.suspend && !after.spec.suspend;
        if begins && matches!(actor, Actor::Hosted { .. }) {
            self.check_begins(after);
            let again = self.history.jobs.get(uid).is_some_and(|life| life.resumed_in_order);
            self.require(!again, "O4", || format!("{name} was resumed again"));
        }
        if let Some(life) = self.history.jobs.get_mut(uid).filter(|_| begins) {
            match actor {
                Actor::Hosted { .. } => life.resumed_in_order = true,
                _ => life.freed = true,
            }
        }
        let verdict = after.verdict().filter(|_| before.verdict().is_none());
        if let Some(verdict) = verdict.filter(|verdict| verdict.reason.starts_with("Dependency")) {
            let reason = verdict.reason;
            let lost = wanted(after).into_iter().any(|(name, how)| {
                self.history
                    .all_named(name)
                    .any(|life| life.gone || (life.ever_ended("Finished") && !life.ever_ended(how)))
            });
            // The controller cannot know that a user ends a cycle while it writes.
            let cycled = self.history.jobs.get(uid).is_some_and(|life| life.cycled);
            let cause = if reason == "DependencyCycle" { cycled } else { lost };
            self.require(cause, "O2", || format!("{name} ended by {reason}, and its order can still come true"));
            let ran = self.ran(uid);
            self.require(!ran, "O2", || format!("{name} ended by {reason}, and has had Pods"));
        }
    }

    /// Notes which Jobs wait for themselves now.
    pub(super) fn note_cycles(&mut self) {
        let waiting = self.history.jobs.iter().filter(|(_, life)| life.waits());
        let found: Vec<JobUid> = waiting
            .filter(|(_, life)| life.now().is_some_and(|job| self.history.in_a_cycle(job)))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in found {
            self.history.jobs.get_mut(&uid).into_iter().for_each(|life| life.cycled = true);
        }
    }

    fn ran(&self, job: &JobUid) -> bool {
        let freed = self.history.jobs.get(job).is_some_and(|life| life.freed);
        let made = |life: &super::history::PodLife| matches!(life.created_by, Actor::Controller { .. });
        !freed && self.history.pods_of(job).any(|(_, life)| made(life))
    }

    /// O1: every Job that this one waits for has ended as it wants.
    pub(super) fn check_begins(&mut self, job: &Job) {
        let freed = self.history.jobs.get(&job.metadata.uid).is_some_and(|life| life.freed);
        let early = wanted(job)
            .into_iter()
            .find(|(name, how)| !self.history.all_named(name).any(|life| life.ever_ended(how)))
            .map(|(name, how)| format!("{} begins before {name} is {how}", job.metadata.name));
        self.require(early.is_none() || freed, "O1", || early.unwrap_or_default());
    }

    /// Whether this Job waits for others, and no user has overruled that.
    pub(crate) fn waits_in_order(&self, job: &JobUid) -> bool {
        self.history.jobs.get(job).is_some_and(JobLife::waits)
    }

    /// O3: at rest a Job waits only for a Job that does not exist or has not ended, and not for itself.
    pub(crate) fn check_order_at_rest(&mut self) {
        let mut found = None;
        for life in self.history.jobs.values().filter(|life| life.waits()) {
            let Some(job) = life.now().filter(|job| job.ours()) else { continue };
            let open = |name: &str| {
                let living = self.history.all_named(name).find_map(JobLife::now);
                living.is_none_or(|job| job.terminal().is_none())
            };
            let awaits = wanted(job).into_iter().any(|(name, _)| open(name));
            let impossible = wanted(job).into_iter().any(|(name, how)| {
                let living = self.history.all_named(name).find_map(JobLife::now);
                // An earlier Job of that name may be the one that counts.
                let met = self.history.all_named(name).any(|life| life.ever_ended(how));
                !met && living.is_some_and(|job| job.terminal().is_some())
            });
            if !awaits || impossible || self.history.in_a_cycle(job) {
                found = Some(job.metadata.name.clone());
            }
        }
        self.require(found.is_none(), "O3", || format!("at rest {found:?} still waits for what has been decided"));
    }
}
