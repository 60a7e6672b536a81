//! I18, I21, I23 and S34: when a Pod may be created, and how many.

use std::collections::BTreeSet;

use tally_core::ids::{PodUid, Revision};
use tally_core::time::Timestamp;

use super::Laws;
use super::history::{PodLife, counts, disrupted, fails, judged};
use super::indexes::read;
use super::policy::Action;
use super::read::{Job, Phase, Pod};
use super::times::{delays, gives_up_after, index_delay};
use crate::api::Actor;
use crate::oracle::Context;

impl Laws {
    pub(super) fn check_creation(&mut self, uid: &PodUid, actor: Actor, context: Context) {
        let Some(pod) = self.history.pods.get(uid).and_then(|life| life.now()).cloned() else { return };
        let Some(job) = pod.job().and_then(|job| self.history.jobs.get(job)).and_then(|life| life.now()).cloned()
        else {
            return;
        };
        self.check_verdict_unknown(uid, &job, &pod, actor, context);
        self.check_parallelism(&job);
        self.check_wanted(&job, &pod, context);
        if job.limit_per_index().is_some() {
            self.check_retry_of_index(&job, &pod, context);
        }
    }

    /// I21: a controller that knows that the Job is decided, by its stream or by the response to its own write,
    /// requests no Pod. Controllers that cannot know have running Pods with no more than `parallelism` names each: when
    /// one ends, or is deleted by a controller that knows, the controller requests the next together with the status write
    /// that will be refused. A Pod whose creation the controller gave up, and which is created all the same once a controller
    /// that knows has deleted the Pod that had its name, is additional.
    fn check_verdict_unknown(&mut self, uid: &PodUid, job: &Job, pod: &Pod, actor: Actor, context: Context) {
        let Some(life) = self.history.jobs.get_mut(&job.metadata.uid) else { return };
        let Some(decided_at) = life.decided_at else { return };
        let told = life.told.get(&actor).is_some_and(|step| context.step >= *step);
        // By name: a request that is sent again after its sender gave up is carried out twice if the first Pod is gone
        // by then.
        let late = life.late.entry(actor).or_default();
        if !context.given_up {
            late.insert(uid.clone());
        }
        let (late, most) = (late.clone(), life.max_parallelism);
        let waits = job.waits_for_the_end();
        let live = late.iter().filter_map(|uid| self.history.pods.get(uid)?.now());
        let live = live.filter(|pod| !pod.ended() && (!pod.deleting() || waits && !self.is_fenced(job, pod)));
        let late = live.map(|pod| pod.metadata.name.to_string()).collect::<BTreeSet<_>>().len() as i64;
        self.require(!told && context.jobs_at < decided_at, "I21", || {
            format!(
                "{} was requested by a controller that knew that {} is decided",
                pod.metadata.name, job.metadata.name
            )
        });
        self.require(late <= most, "I21", || {
            format!(
                "{late} Pods of {}, decided, run and were created by a controller that did not know",
                job.metadata.name
            )
        });
    }

    /// REPL-9: it terminates, and is counted as failed or released: it may be replaced. Where each index has a limit, so may
    /// a Pod whose failure is ignored, and counted nowhere: its index completes once, whichever of its Pods succeeds.
    pub(super) fn is_fenced(&self, job: &Job, pod: &Pod) -> bool {
        let recorded = self.history.pods.get(&pod.metadata.uid).and_then(|life| life.recorded);
        let ignored = job.limit_per_index().is_some() && judged(job, pod) == Action::Ignore;
        let fenced = recorded == Some(false) || !pod.tracked() || ignored;
        gives_up_after(job).is_some() && pod.deleting() && fenced
    }

    /// Whether the replacement of this Pod carries its counts although it may not have ended: it was given up (REPL-9).
    pub(super) fn carries_given_up(&self, job: &Job, pod: &Pod) -> bool {
        pod.tracked() && pod.job() == Some(&job.metadata.uid) && self.is_fenced(job, pod)
    }

    /// I23: the most Pods that live at once is `parallelism` for each instance that leads at a time, and once more for
    /// what a restart from an old list does not know, however often they crash: the next instance finds the names
    /// taken. A Pod that is gone has freed its name, and a request that is still in flight may use it.
    fn check_parallelism(&mut self, job: &Job) {
        let Some(life) = self.history.jobs.get(&job.metadata.uid) else { return };
        let gone = self.history.pods_of(&job.metadata.uid).filter(|(_, life)| life.now().is_none()).count() as i64;
        let most = life.max_parallelism * (self.instances as i64 + 1) + gone;
        let live = self
            .history
            .pods_of(&job.metadata.uid)
            .filter(|(_, life)| matches!(life.created_by, Actor::Controller { .. }))
            .filter_map(|(_, life)| life.now())
            .filter(|pod| job.claims(pod) && !pod.ended() && (!pod.deleting() || job.waits_for_the_end()))
            .filter(|pod| !self.is_fenced(job, pod))
            .count() as i64;
        self.require(live <= most, "I23", || format!("{}: {live} Pods live, {most} at most", job.metadata.name));
    }

    /// I25: a Pod is created only if the Job, as it was when the creator looked or at any time since, wants more Pods
    /// than the creator must know to exist, and for no index that is done.
    fn check_wanted(&mut self, job: &Job, pod: &Pod, context: Context) {
        let Some(life) = self.history.jobs.get(&job.metadata.uid) else { return };
        let wanted = life.since(context.jobs_at).any(|job| {
            let known = || self.history.known_to(job, context.pods_at);
            let there = known().filter(|(_, life, pod)| {
                pod.active() && life.removed_by.is_none()
                    || (pod.deleting() && !pod.ended() && job.waits_for_the_end() && !self.is_fenced(job, pod))
            });
            let there = there.count() as i64;
            let fresh = known()
                .filter(|(_, life, pod)| life.recorded.is_none() && pod.tracked() && pod.phase == Phase::Succeeded);
            let succeeded = if job.indexed() {
                let mut done = read(&job.status.completed_indexes, job.index_limit());
                let failed = read(job.status.failed_indexes.as_deref().unwrap_or_default(), job.index_limit());
                let valid = fresh.filter_map(|(_, _, pod)| pod.index).filter(|index| *index < job.index_limit());
                done.extend(valid.filter(|index| !failed.contains(index)));
                if pod.index.is_none_or(|index| done.contains(&index) || failed.contains(&index)) {
                    return false;
                }
                done.len() as i64
            } else {
                let lists = &job.status.uncounted_terminated_pods;
                job.status.succeeded + lists.succeeded.len() as i64 + fresh.count() as i64
            };
            let wanted = match job.spec.completions {
                _ if job.spec.suspend || job.deleting() || job.halts() => 0,
                None if succeeded > 0 => 0,
                None => job.spec.parallelism,
                Some(completions) => (completions - succeeded).min(job.spec.parallelism),
            };
            wanted > there
        });
        self.require(wanted, "I25", || format!("{} was asked for and not wanted", pod.metadata.name));
    }

    /// I18: the replacement of a failed Pod carries all failures of its index that its creator must know of, none that
    /// did not happen, and is created only if they leave it another attempt. S34, by index: and not before their
    /// back-off is over.
    fn check_retry_of_index(&mut self, job: &Job, pod: &Pod, context: Context) {
        let Some(index) = pod.index else { return };
        let name = &pod.metadata.name;
        let (counted, ignored) = pod.failures_before();
        let truth = self.failures_of(job, index);
        self.require(counted as i64 <= truth.0 && ignored as i64 <= truth.1, "I18", || {
            format!("{name} is told of {counted} failures and {ignored} ignored ones, there were {truth:?}")
        });
        let allowed = job.limit_per_index().unwrap_or(0);
        self.require(counted as i64 <= allowed, "I18", || format!("{name}: {counted} failures, {allowed} allowed"));
        let sum = |pod: &Pod| pod.failures_before().0 + pod.failures_before().1 + 1;
        let given_up = |pod: &Pod| pod.index == Some(index) && self.carries_given_up(job, pod);
        let failed = |pod: &Pod| pod.index == Some(index) && fails(job, pod) || given_up(pod);
        let known = || {
            let known = self.history.known_to(job, context.pods_at);
            let fresh = |life: &PodLife, pod: &Pod| failed(pod) && life.recorded.is_none() && !life.ever_succeeded();
            known.filter(move |(_, life, pod)| fresh(life, pod) || given_up(pod))
        };
        let doomed = known().find(|(_, _, pod)| {
            let counted = counts(job, pod) || judged(job, pod) != Action::Ignore;
            judged(job, pod) == Action::FailIndex || (counted && pod.failures_before().0 as i64 >= allowed)
        });
        let early = known().map(|(_, _, pod)| pod).find(|pod| {
            let due_at = pod.deletion_asked_at().zip(gives_up_after(job)).map(|(asked_at, wait)| asked_at + wait);
            given_up(pod) && !pod.ended() && due_at.is_some_and(|due_at| context.asked_at < due_at)
        });
        let early = early.filter(|_| context.clocks_sane).map(|pod| pod.metadata.name.clone());
        let doomed = doomed.map(|(_, _, pod)| pod.metadata.name.clone());
        let rank = |pod: &Pod| (sum(pod), pod.finished_at, disrupted(job, pod));
        let kept = known().map(|(_, _, pod)| rank(pod)).max();
        let others = self.history.pods_of(&job.metadata.uid).flat_map(|(_, life)| life.since(context.pods_at));
        let best = others.filter(|pod| failed(pod)).map(rank).max();
        self.require(early.is_none(), "I27", || format!("{name} replaces {early:?} before it was given up"));
        self.require(doomed.is_none(), "I18", || format!("{name} was made though {doomed:?} has failed its index"));
        let Some((failures, finished_at, at_once)) = kept else { return };
        self.require(counted + ignored >= failures, "I18", || {
            format!("{name} is told of {counted} failures and {ignored} ignored ones, not {failures}")
        });
        if best == kept && context.clocks_sane && !at_once {
            let retry_at = finished_at + index_delay(job, index, failures as usize);
            self.require(context.asked_at >= retry_at, "S34", || {
                let early = (retry_at - context.asked_at).millis();
                format!("{name} was asked for {early} ms before the back-off of its index was over")
            });
        }
    }

    /// The latest time until which a controller may wait for a back-off: failures whose Pods are gone may be
    /// remembered, and successes whose Pods are gone need not be.
    pub(super) fn retry_at_last(&self, job: &Job) -> Option<Timestamp> {
        let feeds = |pod: &&Pod| {
            // REPL-9: a Pod that was given up has failed for its Job, before it ended or without an end.
            let given_up = self.is_fenced(job, pod);
            let counts = pod.tracked() || !pod.deleting() || given_up;
            let failed = pod.failed(job) || (given_up && pod.phase != Phase::Succeeded);
            counts && pod.job() == Some(&job.metadata.uid) && failed && !disrupted(job, pod)
        };
        let pods = || self.history.pods_of(&job.metadata.uid).map(|(_, life)| life);
        let valid = |pod: &&Pod| !job.indexed() || pod.index.is_some_and(|index| index < job.index_limit());
        let successes = pods().filter_map(|life| life.now()).filter(|pod| pod.phase == Phase::Succeeded);
        let success_at = successes.filter(|pod| job.claims(pod)).filter(valid).map(|pod| pod.finished_at).max();
        let last_failure = |life: &super::history::PodLife| life.ever().filter(feeds).map(|pod| pod.finished_at).max();
        let failures: Vec<Timestamp> = pods()
            .filter_map(last_failure)
            .filter(|at| success_at.is_none_or(|success_at| *at >= success_at))
            .collect();
        let last = failures.iter().max()?;
        Some(*last + delays(job, failures.len()).1)
    }

    /// BACKOFF-3 to BACKOFF-6: when the next Pod may be created by what was known of the Pods at `at`; None is at once.
    pub(crate) fn retry_at(&self, job: &tally_core::ids::JobUid, at: Revision) -> Option<Timestamp> {
        let job = self.history.jobs.get(job)?.now()?;
        let feeds = |pod: &Pod| {
            let valid = !job.indexed() || pod.index.is_some_and(|index| index < job.index_limit());
            job.claims(pod) && (pod.tracked() || !pod.deleting()) && valid
        };
        // A success counts once seen, even if the Pod flipped or went away since; a failure has to be remembered only
        // while its Pod exists.
        let pods = || self.history.pods_of(&job.metadata.uid).map(|(_, life)| life);
        let successes = pods().flat_map(|life| life.ever()).filter(|pod| pod.phase == Phase::Succeeded);
        let success_at = successes.map(|pod| pod.finished_at).max();
        let failures: Vec<Timestamp> = pods()
            .filter(|life| life.removed_by.is_none() && life.now().is_some_and(feeds))
            .filter_map(|life| life.versions.iter().rfind(|version| version.at <= at))
            .filter(|version| !version.gone && version.pod.failed(job) && feeds(&version.pod))
            .filter(|version| !disrupted(job, &version.pod))
            .map(|version| version.pod.finished_at)
            .filter(|at| success_at.is_none_or(|success_at| *at > success_at))
            .collect();
        let last = failures.iter().max()?;
        Some(*last + delays(job, failures.len()).0)
    }
}
