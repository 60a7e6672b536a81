//! I20: in a healed world nothing is late.

use tally_core::ids::JobUid;
use tally_core::time::{Span, Timestamp};

use super::Laws;
use super::deletions::expired;
use super::history::{disrupted, judged};
use super::policy::Action;
use super::read::{Job, Phase, Pod};
use super::times::{deadline, delays, expiry, index_delay, pending_limit};

/// What a refusal during the faults may still cost: the longest delay before the next attempt, and the attempt itself.
const REFUSED: Span = Span::from_seconds(70);
/// How late anything may be apart from that.
const LATE: Span = Span::from_seconds(2);

/// TTL-19: a finished Pod that nothing needs any more, and that nobody has deleted.
fn is_free(job: &Job, pod: &Pod) -> bool {
    let counted = !pod.tracked() && !job.lists(&pod.metadata.uid);
    let over = job.terminal().is_some() || pod.phase == Phase::Succeeded && !job.is_legacy();
    pod.ended() && !pod.deleting() && pod.job() == Some(&job.metadata.uid) && counted && over
}

impl Laws {
    pub(crate) fn heals(&mut self, now: Timestamp) {
        self.healed_at = Some(now);
    }

    /// Until when a wait may last that is to end at `due_at`.
    pub(crate) fn late_after(&self, due_at: Timestamp) -> Timestamp {
        self.healed_at.map_or(due_at, |healed_at| due_at.max(healed_at + REFUSED)) + LATE
    }

    /// Whether the objects cannot say how long the Job waits: a Pod failed that is not counted, because it has lost its
    /// finalizer, or because its failure is ignored and it is gone.
    pub(crate) fn failed_uncounted(&self, job: &JobUid) -> bool {
        let Some(job) = self.history.jobs.get(job).and_then(|life| life.now()) else { return true };
        let known = |pod: &Pod| pod.tracked() || judged(job, pod) == Action::Ignore;
        let feeds = |pod: &Pod| pod.failed(job) && (pod.tracked() || !pod.deleting());
        let mut lives = self.history.pods_of(&job.metadata.uid).map(|(_, life)| life);
        lives.any(|life| life.recorded != Some(false) && !life.now().is_some_and(known) && life.ever().any(feeds))
    }

    /// Whether a Pod of the Job failed after this time, and is gone.
    pub(crate) fn failed_after(&self, job: &JobUid, at: Timestamp) -> bool {
        let Some(job) = self.history.jobs.get(job).and_then(|life| life.now()) else { return true };
        let gone = self.history.pods_of(&job.metadata.uid).filter(|(_, life)| life.now().is_none());
        gone.flat_map(|(_, life)| life.ever()).any(|pod| pod.failed(job) && pod.finished_at > at)
    }

    /// At most so many failures can delay a Pod of the Job: those of its Pods, and those that its Pods brought with them.
    pub(super) fn failures_ever(&self, job: &Job) -> usize {
        let failed = |pod: &Pod| pod.failed(job) || self.is_fenced(job, pod);
        let lives = || self.history.pods_of(&job.metadata.uid).map(|(_, life)| life);
        let brought = |pod: &Pod| pod.failures_before().0 + pod.failures_before().1;
        let most = lives().flat_map(|life| life.ever()).map(brought).max().unwrap_or(0);
        lives().filter(|life| life.ever().any(failed)).count() + most as usize
    }

    /// How many Pods the Job has ever had.
    pub(crate) fn pods_ever(&self, job: &JobUid) -> usize {
        self.history.pods_of(job).count()
    }

    /// I20: when all streams are read and all requests answered, and there is nothing to do but wait, a controller
    /// wakes in time for every deadline, expiry and end of a back-off, at most two seconds late. A request that was
    /// refused before the world was healed may be delayed by a little over a minute first. A controller whose clock was
    /// wrong may have taken a failure for one of the moment in which the clock was set right: its back-off begins then,
    /// and nothing else is later for it. In a namespace that terminates (`closed`), every creation is refused, and no
    /// Pod can be late.
    pub(crate) fn check_waits(
        &mut self,
        now: Timestamp,
        wake_at: Option<Timestamp>,
        clocks_sane: bool,
        closed: impl Fn(&str) -> bool,
    ) {
        let Some(healed_at) = self.healed_at else { return };
        let late = |due_at: Timestamp| wake_at.is_none_or(|at| at > due_at.max(now).max(healed_at + REFUSED) + LATE);
        let mut found = None;
        for life in self.history.jobs.values() {
            let Some(job) = life.now().filter(|job| !job.deleting()) else { continue };
            let open = job.ours() && job.verdict().is_none();
            let end = deadline(job).filter(|_| open).map(|at| (at, "deadline"));
            let pods = || self.history.pods_of(&job.metadata.uid).filter_map(|(_, life)| life.now());
            let limit = pending_limit(job).filter(|_| open && !job.spec.suspend);
            let waiting = pods().filter(|pod| pod.waits_to_start() && job.claims(pod));
            let starts = limit.and_then(|limit| waiting.map(|pod| pod.metadata.creation_timestamp + limit).min());
            let starts = starts.map(|at| (at, "pending Pod"));
            let expires = expiry(job).map(|at| (at, "expiry"));
            let pods_expire = pods().filter(|pod| is_free(job, pod)).filter_map(expired).min();
            let pods_expire = pods_expire.map(|at| (at, "Pod that expires"));
            let may_create = open && !job.spec.suspend && !closed(&job.metadata.namespace);
            let retry = self.next_try(job, now).filter(|_| may_create && !job.is_legacy());
            let set_right = if clocks_sane { now } else { healed_at + delays(job, self.failures_ever(job)).1 };
            let retry = retry.map(|at| (at.max(set_right), "next Pod"));
            let due = [end, starts, expires, pods_expire, retry].into_iter().flatten().find(|(at, _)| late(*at));
            found = found.or(due.map(|due| (job.metadata.name.clone(), due)));
        }
        self.require(found.is_none(), "I20", || {
            let Some((name, (due_at, what))) = found else { return String::new() };
            let (due_at, now) = (due_at.seconds(), now.seconds());
            format!("{name}: no controller has a wake-up time for its {what} at {due_at}, it is {now}, next wake {wake_at:?}")
        });
    }

    /// When a Pod that is wanted and missing may be created.
    fn next_try(&self, job: &Job, now: Timestamp) -> Option<Timestamp> {
        let all = self.history.pods_of(&job.metadata.uid).filter_map(|(_, life)| life.now().map(|pod| (life, pod)));
        let pods: Vec<_> = all.filter(|(_, pod)| job.claims(pod)).collect();
        let live = |pod: &Pod| !pod.ended() && (!pod.deleting() || job.waits_for_the_end());
        let wanted = match job.spec.completions {
            None if job.status.succeeded > 0 => 0,
            None => job.spec.parallelism,
            Some(completions) => (completions - job.status.succeeded).clamp(0, job.spec.parallelism.max(0)),
        };
        if job.halts() || pods.iter().filter(|(_, pod)| live(pod)).count() as i64 >= wanted {
            return None;
        }
        if job.limit_per_index().is_none() {
            return Some(self.retry_at_last(job).unwrap_or(now));
        }
        let limit = job.index_limit();
        let failed = job.status.failed_indexes.as_deref().unwrap_or_default();
        let done: super::indexes::Indexes = super::indexes::read(&job.status.completed_indexes, limit)
            .union(&super::indexes::read(failed, limit))
            .copied()
            .collect();
        let idle = (0..limit).filter(|index| {
            !done.contains(index) && !pods.iter().any(|(_, pod)| pod.index == Some(*index) && live(pod))
        });
        let retry = |index: u32| {
            let kept = pods.iter().filter(|(life, pod)| {
                pod.index == Some(index) && pod.tracked() && pod.failed(job) && life.recorded.is_none()
            });
            let sum = |pod: &Pod| pod.failures_before().0 + pod.failures_before().1 + 1;
            let last = kept.map(|(_, pod)| (sum(pod), pod.finished_at, !disrupted(job, pod))).max();
            last.map_or(
                now,
                |(failures, at, waits)| {
                    if waits { at + index_delay(job, index, failures as usize) } else { at }
                },
            )
        };
        idle.map(retry).min()
    }
}
