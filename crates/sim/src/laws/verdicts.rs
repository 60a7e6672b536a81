//! I15 to I17: how a Job ends, and why.

use tally_core::ids::Revision;

use super::history::{History, counts, fails, judged};
use super::indexes::{Indexes, read};
use super::policy::{Action, succeeds};
use super::read::{Job, Phase, Verdict};
use super::times::{deadline, pending_limit};
use super::{Laws, StatusWrite};

/// FIN-1: what may end a Job, in the order in which it is evaluated.
const CAUSES: [&str; 8] = [
    "PodFailurePolicy",
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "PendingTimeout",
    "MaxFailedIndexesExceeded",
    "FailedIndexes",
    "SuccessPolicy",
    "CompletionsReached",
];

/// GATE-11: causes of a failure that is not stored before Failed is, if the gates are off.
const OUTRIGHT: [&str; 4] = ["BackoffLimitExceeded", "DeadlineExceeded", "MaxFailedIndexesExceeded", "FailedIndexes"];

/// The index lists of a status.
struct Lists {
    completed: Indexes,
    failed: Indexes,
}

impl Lists {
    fn of(job: &Job) -> Self {
        let limit = job.index_limit();
        let failed = job.status.failed_indexes.as_deref().unwrap_or_default();
        Self { completed: read(&job.status.completed_indexes, limit), failed: read(failed, limit) }
    }
}

impl Laws {
    /// I15, I16: a Job is decided for a cause that was really present, by the first of several in the order of FIN-1,
    /// and once only. I17: a write whose writer must know of a cause contains the decision.
    pub(super) fn check_verdict(&mut self, write: &StatusWrite<'_>) {
        let (before, after) = (write.before, write.after);
        let name = &after.metadata.name;
        if let Some(old) = before.verdict() {
            let same = after.verdict() == Some(old.clone());
            self.require(same, "I16", || format!("{name} was {old:?} and is {:?}", after.verdict()));
            return;
        }
        // BLPI-11: a Job that halts is not decided before its Pods have ended.
        let waits = |cause: &str| cause == "MaxFailedIndexesExceeded" && after.halts();
        let called = (0..CAUSES.len() - 1).find(|cause| !waits(CAUSES[*cause]) && self.calls(CAUSES[*cause], write));
        // GATE-11: such a failure is decided and not yet stored. It stands, whatever comes after it.
        let outright = self.gates_off.interim && OUTRIGHT.iter().any(|cause| self.calls(cause, write));
        let Some(verdict) = after.verdict() else {
            self.require(called.is_none() || outright, "I17", || {
                format!("{name}: a write that knows of {} decides nothing", CAUSES[called.unwrap_or(0)])
            });
            return;
        };
        let verdict = self.named(verdict);
        let law = if verdict.success { "I15" } else { "I16" };
        let cause = CAUSES.iter().position(|cause| *cause == verdict.reason);
        let rank = cause.unwrap_or(CAUSES.len());
        self.require(cause.is_some(), law, || format!("{name} ended by {}", verdict.reason));
        self.require(verdict.success == (rank >= 6), law, || format!("{name}: {verdict:?}"));
        let stands = self.gates_off.interim && OUTRIGHT.contains(&verdict.reason.as_str());
        self.require(stands || called.is_none_or(|called| rank <= called), law, || {
            format!("{name} ended by {}, and {} comes first", verdict.reason, CAUSES[called.unwrap_or(0)])
        });
        if let Err(why) = self.evidence(&verdict, write) {
            self.require(false, law, || format!("{name} ended by {}: {why}", verdict.reason));
        }
    }

    /// GATE-12: completions have a reason only with JobSuccessPolicy.
    fn named(&self, mut verdict: Verdict) -> Verdict {
        if verdict.success && self.gates_off.success_policy {
            verdict.reason = match verdict.reason.as_str() {
                "" => "CompletionsReached".into(),
                other => format!("{other}, which is off").into(),
            };
        }
        verdict
    }

    /// GATE-11: whether a failure may have been decided that is not stored yet.
    pub(super) fn fails_outright(&self, write: &StatusWrite<'_>) -> bool {
        let job = write.before;
        let most = |life: &super::history::PodLife| life.ever().map(|pod| pod.restarts()).max().unwrap_or(0);
        let restarts = self.history.pods_of(&job.metadata.uid).map(|(_, life)| most(life)).sum();
        let by_limit = || over_limit(job, true_failures(&self.history, job), restarts);
        self.gates_off.interim && (by_limit() || OUTRIGHT[1..].iter().any(|cause| self.calls(cause, write)))
    }

    /// Whether a cause is present for every writer that knows at least what this one must know.
    fn calls(&self, cause: &str, write: &StatusWrite<'_>) -> bool {
        let (job, known_at) = (write.before, write.context.pods_at);
        match cause {
            "PodFailurePolicy" => self
                .history
                .known_to(job, known_at)
                .any(|(_, _, pod)| fails(job, pod) && judged(job, pod) == Action::FailJob),
            "BackoffLimitExceeded" => {
                let fresh = self.history.known_to(job, known_at).filter(|(_, life, pod)| {
                    let in_range = !job.indexed() || pod.index.is_some_and(|index| index < job.index_limit());
                    counts(job, pod) && life.recorded.is_none() && !life.ever_succeeded() && in_range
                });
                let restarts = self.history.known_to(job, known_at).map(|(_, _, pod)| pod.restarts()).sum();
                over_limit(job, failures_told(write.after) + fresh.count() as i64, restarts)
            }
            "DeadlineExceeded" => {
                let at_once = job.status.start_time.is_none() && !job.spec.suspend;
                deadline(job).is_some_and(|due_at| write.context.asked_at >= due_at)
                    || (at_once && job.spec.active_deadline_seconds == Some(0))
            }
            "PendingTimeout" => {
                let limit = pending_limit(job).filter(|_| !job.spec.suspend);
                let due = |pod: &super::read::Pod| limit.map(|limit| pod.metadata.creation_timestamp + limit);
                let mut waiting = self.history.known_to(job, known_at).filter(|(_, _, pod)| pod.waits_to_start());
                waiting.any(|(_, _, pod)| due(pod).is_some_and(|due_at| write.context.asked_at >= due_at))
            }
            _ => by_indexes(cause, write.after),
        }
    }

    /// Whether what really happened justifies a verdict.
    fn evidence(&self, verdict: &Verdict, write: &StatusWrite<'_>) -> Result<(), String> {
        let (job, known_at) = (write.before, write.context.pods_at);
        let pods = || self.history.pods_of(&job.metadata.uid).map(|(_, life)| life);
        match verdict.reason.as_str() {
            "PodFailurePolicy" => {
                let condemned =
                    pods().any(|life| life.ever().any(|pod| fails(job, pod) && judged(job, pod) == Action::FailJob));
                condemned.then_some(()).ok_or_else(|| "no Pod ever failed in such a way".to_owned())
            }
            "BackoffLimitExceeded" => {
                // REPL-8: a Pod that was given up has failed for its Job, and for no other reason. The write that decides
                // records it, unless its lists are full.
                let lists = &write.after.status.uncounted_terminated_pods;
                let full = lists.succeeded.len() + lists.failed.len() >= self.uncounted_limit;
                let given_up = self.history.pods_of(&job.metadata.uid).filter(|(uid, life)| {
                    (full && life.recorded.is_none() || lists.failed.contains(uid) || life.recorded == Some(false))
                        && self.fenced_in_time(write, uid) == Some(true)
                });
                let failures = true_failures(&self.history, job) + given_up.count() as i64;
                // GATE-11: by the time of the write the Pods may be gone.
                let from = if self.gates_off.interim { Revision(0) } else { known_at };
                let restarts =
                    |life: &super::history::PodLife| life.since(from).map(|pod| pod.restarts()).max().unwrap_or(0);
                let restarts = pods().map(restarts).sum();
                let text =
                    || format!("{failures} failures and {restarts} restarts, {} allowed", job.spec.backoff_limit);
                over_limit(job, failures, restarts).then_some(()).ok_or_else(text)
            }
            "PendingTimeout" => {
                // What the writer knew: any state since then.
                let limit = pending_limit(job).ok_or("there is no limit")?;
                let late = |pod: &super::read::Pod| {
                    pod.waits_to_start() && write.context.asked_at >= pod.metadata.creation_timestamp + limit
                };
                let found = pods().any(|life| life.since(known_at).any(late));
                found.then_some(()).ok_or_else(|| "no Pod had been pending for so long".to_owned())
            }
            "CompletionsReached" => self.all_done(write),
            cause => self.calls(cause, write).then_some(()).ok_or_else(|| "it was not so".to_owned()),
        }
    }

    /// FIN-5: the requested number of successes, and no Pod that still runs.
    fn all_done(&self, write: &StatusWrite<'_>) -> Result<(), String> {
        let job = write.after;
        let succeeded = if job.indexed() {
            Lists::of(job).completed.len()
        } else {
            let succeeds = |pod: &super::read::Pod| {
                pod.tracked() && pod.phase == Phase::Succeeded && pod.job() == Some(&job.metadata.uid)
            };
            self.history.pods_of(&job.metadata.uid).filter(|(_, life)| life.ever().any(succeeds)).count()
        } as i64;
        if succeeded < job.spec.completions.unwrap_or(1) {
            return Err(format!("{succeeded} successes of {:?}", job.spec.completions));
        }
        let runs = self.history.known_to(job, write.context.pods_at).find(|(_, _, pod)| pod.active());
        runs.map_or(Ok(()), |(_, _, pod)| Err(format!("{} still runs", pod.metadata.name)))
    }

    /// I15, I16: Complete and Failed state what was decided, and only once every Pod that the writer knows of has ended
    /// and is counted (FIN-6, FIN-11).
    pub(super) fn check_terminal(&mut self, write: &StatusWrite<'_>) {
        let job = write.after;
        let (None, Some(terminal)) = (write.before.terminal(), job.terminal()) else { return };
        let success = terminal.kind == "Complete";
        let law = if success { "I15" } else { "I16" };
        let verdict = Verdict { success, reason: terminal.reason.clone() };
        let decided = job.verdict() == Some(verdict.clone());
        let reason = self.named(verdict).reason;
        let name = &job.metadata.name;
        self.require(decided, law, || format!("{name} is {}, and was {:?}", terminal.reason, job.verdict()));
        let status = &job.status;
        let idle = status.active == 0 && status.terminating == 0 && status.ready == 0;
        let counted = status.uncounted_terminated_pods == Default::default();
        self.require(idle && counted, law, || format!("{name} has ended, and not everything has: {status:?}"));
        // A success may be lost before it is recorded: the Pod flips, or a user removes its finalizer. And the number
        // of indexes may have been raised since the decision.
        let lost = self.history.pods_of(&job.metadata.uid).filter(|(_, life)| life.recorded != Some(true));
        let lost = lost.filter(|(_, life)| life.ever_succeeded()).count() as i64;
        let enough = reason != "CompletionsReached"
            || job.indexed()
            || status.succeeded + lost >= job.spec.completions.unwrap_or(1);
        self.require(enough, law, || format!("{name} is complete with {} successes", status.succeeded));
        let left = self
            .history
            .known_to(job, write.context.pods_at)
            // GATE-11: without the gates a Pod that terminates delays nothing.
            .find(|(_, _, pod)| {
                let ended = pod.ended() || self.is_fenced(job, pod) || (self.gates_off.interim && pod.deleting());
                !ended || pod.tracked()
            })
            .map(|(_, _, pod)| pod.metadata.name.clone());
        self.require(left.is_none(), law, || format!("{name} has ended, and {left:?} has not or is not counted"));
    }
}

/// The failures that the status contains.
fn failures_told(job: &Job) -> i64 {
    job.status.failed + job.status.uncounted_terminated_pods.failed.len() as i64
}

/// Every Pod that ever failed in a way that counts. An index has to have been in range only at some time.
fn true_failures(history: &History, job: &Job) -> i64 {
    let limit = history.jobs.get(&job.metadata.uid).map_or(0, |life| life.max_limit);
    let in_range = |index: Option<u32>| !job.indexed() || index.is_some_and(|index| index < limit);
    let pods = history.pods_of(&job.metadata.uid);
    pods.filter(|(_, life)| life.ever().any(|pod| counts(job, pod) && in_range(pod.index))).count() as i64
}

/// FIN-1 case 4, BACKOFF-9.
fn over_limit(job: &Job, failures: i64, restarts: i64) -> bool {
    let limit = job.spec.backoff_limit;
    failures > limit || (job.restarts_count() && restarts > 0 && restarts >= limit)
}

/// Causes that the index lists of the status alone justify: FIN-1 cases 6 to 8.
fn by_indexes(cause: &str, job: &Job) -> bool {
    let Lists { completed, failed } = Lists::of(job);
    let limited = job.limit_per_index().is_some() && !failed.is_empty();
    match cause {
        "MaxFailedIndexesExceeded" => {
            limited && job.spec.max_failed_indexes.is_some_and(|most| failed.len() as i64 > most)
        }
        "FailedIndexes" => limited && failed.len() + completed.len() >= job.index_limit() as usize,
        _ => {
            let policy = job.spec.success_policy.as_ref().filter(|_| job.indexed());
            policy.is_some_and(|policy| succeeds(&policy.rules, &completed, job.index_limit()))
        }
    }
}
