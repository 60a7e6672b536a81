//! I18 and I22: which indexes are complete, which have failed, and that no Pod is both.

use tally_core::ids::PodUid;

use super::history::{PodLife, counts, fails, judged};
use super::indexes::{Indexes, read};
use super::policy::Action;
use super::read::{Job, Phase, Pod};
use super::times::gives_up_after;
use super::{Laws, StatusWrite};

impl Laws {
    /// Notes what the lists say about each Pod, and checks I22: a Pod whose success made its index complete is no
    /// failure. Exception, at most once for each Pod that flips: an instance that did not see it succeed may count it
    /// as failed as well. A success of an Indexed Job is recorded by its index and not by a UID.
    pub(super) fn note_records(&mut self, write: &StatusWrite<'_>) {
        let lists = &write.after.status.uncounted_terminated_pods;
        let before = &write.before.status.uncounted_terminated_pods;
        let failed: Vec<PodUid> = lists.failed.iter().filter(|uid| !before.failed.contains(uid)).cloned().collect();
        for uid in &failed {
            let completed = self.completes(write.before, uid);
            let by = completed.and_then(|index| {
                let job = self.history.jobs.get(&write.before.metadata.uid)?;
                job.completed_by.get(&index).copied()
            });
            let fenced = self.fenced_in_time(write, uid);
            self.require(fenced != Some(false), "I27", || {
                format!("{}: {uid} has not ended and is counted as failed before its time", write.after.metadata.name)
            });
            let counted = fenced.is_some() || self.may_count(write, uid);
            self.require(counted, "I18", || {
                format!("{}: {uid} is counted as a failure, and is none that counts", write.after.metadata.name)
            });
            self.require(by != Some(write.actor), "I22", || {
                format!("{}: {uid} is a failure and completed index {completed:?}", write.after.metadata.name)
            });
        }
        // TRACK-7: a success of an Indexed Job is its index.
        let by_index = !write.after.indexed() || lists.succeeded.iter().all(|uid| before.succeeded.contains(uid));
        self.require(by_index, "I18", || format!("{}: a success has no index", write.after.metadata.name));
        let failed = failed.iter().map(|uid| (uid, false));
        let succeeded = lists.succeeded.iter().filter(|uid| !before.succeeded.contains(uid)).map(|uid| (uid, true));
        for (uid, succeeded) in failed.chain(succeeded) {
            if let Some(life) = self.history.pods.get_mut(uid) {
                life.recorded.get_or_insert(succeeded);
            }
        }
    }

    /// I27: whether a Pod that terminates has done so for as long as its Job waits; None if it has ended, or if the Job
    /// does not wait for the end of its Pods.
    pub(super) fn fenced_in_time(&self, write: &StatusWrite<'_>, uid: &PodUid) -> Option<bool> {
        let job = write.before;
        let life = self.history.pods.get(uid)?;
        let failed = |pod: &Pod| fails(job, pod);
        if job.verdict().is_some() || self.fails_outright(write) || !job.waits_for_the_end() || life.ever().any(failed)
        {
            return None;
        }
        let asked_at = life.ever().find_map(|pod| pod.deletion_asked_at())?;
        Some(gives_up_after(job).is_some_and(|wait| write.now >= asked_at + wait))
    }

    /// I27: a Pod that was given up occupies its node until it is gone, and is told to those who read the status.
    pub(super) fn check_terminating(&mut self, write: &StatusWrite<'_>) {
        let job = write.after;
        if gives_up_after(job).is_none() || job.terminal().is_some() {
            return;
        }
        let known = self.history.known_to(job, write.context.pods_at);
        let terminating = known.filter(|(_, _, pod)| pod.deleting() && !pod.ended()).count() as i64;
        self.require(job.status.terminating >= terminating, "I27", || {
            format!("{}: {terminating} Pods terminate, {:?}", job.metadata.name, job.status.terminating)
        });
    }

    /// Whether a Pod has ever failed in a way that must be counted: not ignored, with an index that existed. In a Job
    /// that has failed, running Pods have failed (TRACK-8).
    fn may_count(&self, write: &StatusWrite<'_>, uid: &PodUid) -> bool {
        let job = write.before;
        let Some(life) = self.history.pods.get(uid) else { return false };
        let limit = self.history.jobs.get(&job.metadata.uid).map_or(0, |life| life.max_limit);
        let failing = job.verdict().is_some_and(|verdict| !verdict.success) || self.fails_outright(write);
        life.ever().any(|pod| {
            let in_range = !job.indexed() || pod.index.is_some_and(|index| index < limit);
            let ended =
                fails(job, pod) || (failing && pod.tracked() && pod.deleting() && pod.phase != Phase::Succeeded);
            in_range && ended && judged(job, pod) != Action::Ignore
        })
    }

    /// The index that is complete because of this Pod alone.
    fn completes(&self, job: &Job, uid: &PodUid) -> Option<u32> {
        let index = self.history.pods.get(uid).and_then(|life| success_of(life, job))?;
        let complete = read(&job.status.completed_indexes, job.index_limit()).contains(&index);
        let of_index = |(_, life): &(&PodUid, &PodLife)| success_of(life, job) == Some(index);
        let alone = self.history.pods_of(&job.metadata.uid).filter(of_index).count() == 1;
        (complete && alone).then_some(index)
    }

    /// I22: an index becomes complete by a Pod that succeeded and was not recorded as failed.
    pub(super) fn check_completed_indexes(&mut self, write: &StatusWrite<'_>) {
        let job = write.after;
        if !job.indexed() {
            return;
        }
        let limit = job.index_limit();
        let old = read(&write.before.status.completed_indexes, limit);
        let new: Indexes = read(&job.status.completed_indexes, limit).difference(&old).copied().collect();
        for index in new {
            let proven = self
                .history
                .pods_of(&job.metadata.uid)
                .any(|(_, life)| life.recorded != Some(false) && success_of(life, job) == Some(index));
            self.require(proven, "I22", || format!("{}: index {index} is complete by no Pod", job.metadata.name));
            if let Some(life) = self.history.jobs.get_mut(&job.metadata.uid) {
                life.completed_by.insert(index, write.actor);
            }
        }
    }

    /// I18: an index has failed if its failures exceed its limit, or a rule fails it at once; it was never complete
    /// before. What the replacement of a failed Pod carries is checked with its creation.
    pub(super) fn check_failed_indexes(&mut self, write: &StatusWrite<'_>) {
        let (before, job) = (write.before, write.after);
        let (limit, name) = (job.index_limit(), &job.metadata.name);
        let text = job.status.failed_indexes.as_deref();
        let told = job.limit_per_index().is_some() == text.is_some();
        self.require(told, "I18", || format!("{name}: failedIndexes is {text:?}"));
        let Some(allowed) = job.limit_per_index() else { return };
        let old = read(before.status.failed_indexes.as_deref().unwrap_or_default(), limit);
        let new: Indexes = read(text.unwrap_or_default(), limit).difference(&old).copied().collect();
        let complete = read(&before.status.completed_indexes, limit);
        // REPL-10: the write that decides records a Pod that was given up, unless its lists are full.
        let lists = &job.status.uncounted_terminated_pods;
        let full = lists.succeeded.len() + lists.failed.len() >= self.uncounted_limit;
        let unrecorded = self
            .history
            .pods_of(&job.metadata.uid)
            .filter(|(uid, life)| full && life.recorded.is_none() && self.fenced_in_time(write, uid) == Some(true));
        let unrecorded: Vec<PodUid> = unrecorded.map(|(uid, _)| uid.clone()).collect();
        for index in new {
            let mut failures = self.failures_of(job, index);
            let of_index = |life: &PodLife| life.ever().any(|pod| pod.index == Some(index) && !counts(job, pod));
            let more = unrecorded.iter().filter_map(|uid| self.history.pods.get(uid)).filter(|life| of_index(life));
            failures.0 += more.count() as i64;
            let at_once = self.history.pods_of(&job.metadata.uid).any(|(uid, life)| {
                let ends = |pod: &Pod| fails(job, pod) || self.carries_given_up(job, pod) || unrecorded.contains(uid);
                let doomed = |pod: &Pod| ends(pod) && judged(job, pod) == Action::FailIndex;
                life.ever().any(|pod| pod.index == Some(index) && doomed(pod))
            });
            let failed = at_once || failures.0 > allowed;
            self.require(failed && !complete.contains(&index), "I18", || {
                format!("{name}: index {index} has failed after {failures:?} failures and ignored ones of {allowed}")
            });
        }
    }

    /// How many Pods of an index failed, and how many of them in a way that is ignored. A Pod that was created for
    /// another Job and adopted brings the failures that its annotations tell of.
    pub(super) fn failures_of(&self, job: &Job, index: u32) -> (i64, i64) {
        let (mut failures, mut brought) = ((0, 0), (0, 0));
        for (_, life) in self.history.pods_of(&job.metadata.uid) {
            let foreign = |pod: &&Pod| pod.index == Some(index) && pod.job() != Some(&job.metadata.uid);
            if let Some(first) = life.ever().next().filter(foreign) {
                let (counted, ignored) = first.failures_before();
                brought = (brought.0.max(counted as i64), brought.1.max(ignored as i64));
            }
            let of_index = || life.ever().filter(|pod| pod.index == Some(index));
            let given_up = |pod: &Pod| self.carries_given_up(job, pod);
            failures.0 +=
                i64::from(of_index().any(|pod| counts(job, pod) || (given_up(pod) && life.recorded.is_some())));
            let ends = |pod: &Pod| fails(job, pod) || given_up(pod);
            failures.1 += i64::from(of_index().any(|pod| ends(pod) && judged(job, pod) == Action::Ignore));
        }
        (failures.0 + brought.0, failures.1 + brought.1)
    }
}

/// The index of a Pod that succeeded while it had to be counted.
fn success_of(life: &PodLife, job: &Job) -> Option<u32> {
    let succeeds = |pod: &&Pod| pod.tracked() && pod.phase == Phase::Succeeded && pod.job() == Some(&job.metadata.uid);
    life.ever().find(succeeds).and_then(|pod| pod.index)
}
