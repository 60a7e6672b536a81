//! What Tally must plan for one Job, computed from scratch: an executable summary of the rules, by their ids.
//!
//! No secondary indexes, no counters, no memory. Every question is answered by examining every Pod again, so that each
//! rule can be read on its own beside `docs/spec`. The ledger answers the same questions from the state it keeps; the
//! tests hold the two equal. Only the names of Pods and the types of the API are shared with it.

pub mod arbitrary;
pub mod compare;
mod manage;
pub mod text;
pub mod verdict;
pub mod world;

use std::collections::{BTreeMap, BTreeSet};

use compact_str::CompactString;
use tally_core::accounting::Outcome;
use tally_core::blueprint::NewPod;
use tally_core::gates::Gate;
use tally_core::ids::{CompletionIndex, PodUid, Revision};
use tally_core::job::{CompletionMode, Condition, JobStatus, JobView, Uncounted, condition};
use tally_core::ledger::Limits;
use tally_core::pod::{Phase, PodView};
use tally_core::policy::FailureAction;
use tally_core::time::{Span, Timestamp};

use verdict::Verdict;

/// Everything a plan may depend on, when nothing is in flight.
#[derive(Clone)]
pub struct Facts {
    pub job: JobView,
    /// Every Pod of the Job that is known, finished or not.
    pub pods: Vec<PodView>,
    pub now: Timestamp,
    pub limits: Limits,
    /// How many Pods the next batch may create: 1, then twice as many after each batch that succeeded (CONST-5).
    pub window: usize,
    /// The revision up to which the Pods have been observed: the gate.
    pub pods_at: Revision,
    /// The revision up to which the Jobs have been observed: the gate in the other direction.
    pub jobs_at: Revision,
    /// Creations of unknown outcome, by name.
    pub unknown: Vec<UnknownCreation>,
    /// Pods whose removal may have begun: the response was lost, and nothing newer has been observed.
    pub unknown_removals: BTreeSet<PodUid>,
}

/// A creation whose response was lost: the Pod may exist, and no other Pod gets the name until that is known.
#[derive(Clone, Debug)]
pub struct UnknownCreation {
    pub name: CompactString,
    pub index: Option<CompletionIndex>,
    /// When the request may be sent again.
    pub retry_at: Timestamp,
    /// How many responses in a row did not show the Pod.
    pub times: u32,
}

/// One line for each Pod: failing cases are read by people.
impl std::fmt::Debug for Facts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { job, pods, now, limits, window, pods_at, jobs_at, unknown, unknown_removals: _ } = self;
        writeln!(f, "{:?}", job.spec)?;
        writeln!(f, "{:?}", job.status)?;
        writeln!(f, "Job at {}, deleting {}, now {now:?}, {limits:?}, window {window}", job.revision, job.deleting)?;
        writeln!(f, "Pods seen up to {pods_at}, Jobs up to {jobs_at}")?;
        unknown.iter().try_for_each(|creation| writeln!(f, "{creation:?}"))?;
        pods.iter().try_for_each(|pod| writeln!(f, "{}", line(pod)))
    }
}

pub fn line(pod: &PodView) -> String {
    let marks =
        [(pod.tracked, "tracked"), (pod.deleting(), "deleting"), (pod.scheduled, "scheduled"), (pod.ready, "ready")]
            .into_iter()
            .chain([(pod.start_gated, "start-gated")]);
    let marks: Vec<&str> = marks.filter(|(is, _)| *is).map(|(_, name)| name).collect();
    format!(
        "{} {} at {} {:?} index {:?} {} failures {}+{} restarts {:?} finished {:?} created {:?} ready since {:?} {:?} {:?}",
        pod.uid,
        pod.name,
        pod.revision,
        pod.phase,
        pod.index,
        marks.join(" "),
        pod.failure_count,
        pod.ignored_failure_count,
        pod.restarts,
        pod.finished_at,
        pod.created_at,
        pod.ready_changed_at,
        pod.exits,
        pod.conditions,
    )
}

#[derive(Clone, Debug, Default)]
pub struct Expected {
    pub gate_closed: bool,
    /// A Pod that must be removed is newer than our view of the Job.
    pub must_reread_job: bool,
    /// Pods that would be released because of their index, and are newer than our view of the Job.
    pub unjudged: BTreeSet<PodUid>,
    pub status: Option<Write>,
    /// Pods that may lose their finalizer, unless they are deleted or removed at the same time. If there are more than
    /// `limits.batch` of them, the others wait, in any order.
    pub releases: BTreeMap<PodUid, Release>,
    /// Pods that end with the Job, also limited to a batch at a time (DEFECT-12).
    pub deletions: BTreeSet<PodUid>,
    /// Pods that are not wanted, the first `limits.batch` of them.
    pub removals: Vec<PodUid>,
    /// How many Pods must be removed, now or later.
    pub victims: usize,
    /// All of them about which our view of the Job may decide.
    pub going: BTreeSet<PodUid>,
    /// RM-3: Pods that must be removed whatever number is wanted. If they exceed a batch, they are removed in any
    /// order, and before all others.
    pub forced: BTreeSet<PodUid>,
    pub creations: Vec<NewPod>,
    /// Pods that lose their start gate, any `limits.batch` of them (TTL-24).
    pub starts: BTreeSet<PodUid>,
    /// Creations of unknown outcome must not be repeated: only a list of the Pods shows what became of them.
    pub must_list_pods: bool,
    pub wake_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Not counted because the failure policy says Ignore (METRIC-7).
    pub ignored: bool,
    /// Released uncounted: conditional on this revision.
    pub revision: Option<Revision>,
}

/// The next status, except for the Pods to record: those are any `room` of the Pods that are due.
#[derive(Clone, Debug)]
pub struct Write {
    /// Its uncounted lists contain what is carried over from the stored ones.
    pub status: JobStatus,
    pub due: Vec<Due>,
    pub room: usize,
    /// Several Pods may have a FailJob verdict; the message may come from any of them.
    pub messages: BTreeSet<String>,
}

#[derive(Clone, Debug)]
pub struct Due {
    pub uid: PodUid,
    pub outcome: Outcome,
    pub action: Option<FailureAction>,
}

#[derive(Clone, Debug)]
struct Decision {
    success: bool,
    reason: CompactString,
    message: String,
    stored: bool,
}

/// What happens to a finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// There is none.
    Untracked,
    /// The Pod has not ended, or is kept for its replacement.
    Stays,
    /// The outcome must be in the uncounted lists first (TRACK-2 step 1).
    Record(Outcome),
    /// The index must be in `completedIndexes` first.
    RecordIndex,
    /// Nothing, or nothing more, to record.
    Release,
}

pub fn plan(facts: &Facts) -> Expected {
    plan_after(facts, &BTreeSet::new())
}

/// `failed_by_then`: the indexes that had failed when the Job was decided, if no interim condition stores that (GATE-11).
fn plan_after(facts: &Facts, failed_by_then: &BTreeSet<CompletionIndex>) -> Expected {
    let mut plan = Expected::default();
    let mut look = Look::at(facts);
    look.newly_failed.extend(failed_by_then);
    let unknown_mode = matches!(facts.job.spec.completion_mode, CompletionMode::Unknown(_));
    if facts.job.status.is_finished() || (unknown_mode && facts.job.deleting) {
        // SYNC-6, but remaining Pods are released (S10, S12), also those of a Job whose completion mode is unknown.
        let all = look.pods().filter(|pod| pod.tracked);
        let release = |pod: &PodView| (pod.uid.clone(), Release { revision: Some(pod.revision), ..look.release(pod) });
        plan.releases = all.map(release).collect();
        return plan;
    }
    if unknown_mode {
        return plan; // SYNC-8
    }
    if facts.pods_at < facts.job.revision {
        plan.gate_closed = true;
        return plan;
    }
    let decision = look.decide(&mut plan);
    if let Some(failure) = decision.as_ref().filter(|decision| !decision.stored && look.needs_no_interim(decision)) {
        return outright(facts, failure, &look.newly_failed, plan.wake_at);
    }
    match &decision {
        Some(decision) if decision.stored => plan.deletions = look.deletions(),
        Some(_) => {}                    // It takes effect once it is stored.
        None if facts.job.deleting => {} // MANAGE-12
        None => look.manage(&mut plan),
    }
    // The Job ends or pauses: no Pod is wanted any more, and none must be left behind (S09, I25).
    if decision.is_some() || facts.job.deleting || facts.job.spec.suspend {
        plan.must_list_pods = !facts.unknown.is_empty();
    }
    let decision = decision.or_else(|| look.completions_reached(&plan));
    look.write(&mut plan, decision.as_ref());
    for pod in look.pods().filter(|pod| look.fate(pod) == Fate::Release) {
        // Only the Job says that the index is done, or is none of its own: an old version of it does not count.
        let by_index = look.misfit(pod) || (facts.job.spec.is_indexed() && pod.phase == Phase::Succeeded);
        if by_index && !look.recorded(pod) && !look.may_judge(pod) {
            plan.unjudged.insert(pod.uid.clone());
        } else {
            plan.releases.insert(pod.uid.clone(), look.release(pod));
        }
    }
    let ends = look.facts.job.halts_soon && look.failed_too_many();
    if decision.is_none() && !facts.job.deleting && !facts.job.spec.suspend && !ends && plan.removals.is_empty() {
        look.start(&mut plan);
    }
    plan
}

/// GATE-11: the plan as if the interim condition were stored, which it never is.
fn outright(
    facts: &Facts,
    failure: &Decision,
    failed: &BTreeSet<CompletionIndex>,
    wake_at: Option<Timestamp>,
) -> Expected {
    let mut decided = facts.clone();
    let target = condition_of(condition::FAILURE_TARGET, "True", &failure.reason, &failure.message, facts.now);
    decided.job.status.conditions.push(target.clone());
    let mut plan = plan_after(&decided, failed);
    wake_at.into_iter().for_each(|at| earliest(&mut plan.wake_at, at));
    if let Some(write) = &mut plan.status {
        write.status.conditions.retain(|known| *known != target);
    }
    plan
}

/// The ends of Pods that determine the back-off.
pub fn endings(facts: &Facts) -> BTreeSet<Ending> {
    let look = Look::of(facts);
    let ended = |pod: &&PodView| pod.phase == Phase::Succeeded || look.has_failed(pod);
    let outcome = |pod: &PodView| if pod.phase == Phase::Succeeded { Outcome::Succeeded } else { Outcome::Failed };
    let pods = look.pods().filter(|pod| look.tells_when_to_retry(pod)).filter(ended);
    let ending = |pod: &PodView| {
        let (uid, created_at) = (pod.uid.clone(), pod.created_at);
        Ending { uid, outcome: outcome(pod), at: look.finished_at(pod), created_at }
    };
    pods.map(ending).collect()
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ending {
    uid: PodUid,
    outcome: Outcome,
    at: Timestamp,
    created_at: Timestamp,
}

/// CONST-2, BACKOFF-4, BACKOFF-11: the delay after that many consecutive failures, of the Job or of one index.
pub fn delay(job: &JobView, index: Option<CompletionIndex>, failures: usize) -> Span {
    let policy = &job.backoff;
    let mut millis = if failures == 0 { 0 } else { policy.base_for.millis() };
    for _ in 1..failures.min(100) {
        millis = (millis * 2).min(policy.max_for.millis());
    }
    let index = index.map_or(String::new(), |index| index.to_string());
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in format!("{}/{index}/{failures}", job.uid).bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ hash >> 33).wrapping_mul(factor);
    }
    let thirty_two_bits = u128::from((hash ^ hash >> 33) >> 32);
    let jitter = millis as u128 * u128::from(policy.jitter) * thirty_two_bits / (1_000_000 << 32);
    Span::from_millis(millis + jitter as i64)
}

fn earliest(one: &mut Option<Timestamp>, other: Timestamp) {
    *one = Some(one.map_or(other, |one| one.min(other)));
}

/// No UID is listed twice (STATUSVAL-2); the first entry counts.
fn listed_once(lists: &Uncounted) -> Uncounted {
    let mut seen = BTreeSet::new();
    let mut once = |uids: &[PodUid]| uids.iter().filter(|uid| seen.insert((*uid).clone())).cloned().collect();
    Uncounted { succeeded: once(&lists.succeeded), failed: once(&lists.failed) }
}

/// A counter within the range of the API.
fn counter(value: i64) -> i32 {
    value.clamp(0, i32::MAX.into()) as i32
}

/// The facts, and the few sets that many rules use.
struct Look<'a> {
    facts: &'a Facts,
    /// IDX-1: already stored, and new.
    completed: BTreeSet<CompletionIndex>,
    newly_completed: BTreeSet<CompletionIndex>,
    /// BLPI-2: already stored, and new. Disjoint from the completed ones (BLPI-9).
    failed: BTreeSet<CompletionIndex>,
    newly_failed: BTreeSet<CompletionIndex>,
}

impl<'a> Look<'a> {
    /// The facts alone, for rules that use no set.
    fn of(facts: &'a Facts) -> Self {
        let empty = BTreeSet::new;
        Self { facts, completed: empty(), newly_completed: empty(), failed: empty(), newly_failed: empty() }
    }

    fn at(facts: &'a Facts) -> Self {
        let spec = &facts.job.spec;
        let limit = if spec.is_indexed() { spec.index_limit() } else { 0 };
        let status = &facts.job.status;
        let mut look = Self::of(facts);
        look.completed = text::read(&status.completed_indexes, limit);
        // If indexes have no limit, none fails, whatever is stored.
        let failed = status.failed_indexes.as_deref().filter(|_| look.index_budget().is_some());
        look.failed = text::read(failed.unwrap_or(""), limit);
        look.failed.retain(|index| !look.completed.contains(index));
        // A stored verdict on an index stands; of two in one pass success takes precedence (BLPI-9).
        let open = |index: &CompletionIndex| !look.completed.contains(index) && !look.failed.contains(index);
        let news = |says: &dyn Fn(&PodView) -> bool| -> BTreeSet<CompletionIndex> {
            let pods = look.pods().filter(|pod| look.unaccounted(pod) && says(pod));
            pods.filter_map(|pod| look.index(pod)).filter(open).collect()
        };
        let newly_completed = news(&|pod| pod.phase == Phase::Succeeded);
        let mut newly_failed = news(&|pod| look.fails_index(pod));
        newly_failed.retain(|index| !newly_completed.contains(index));
        look.newly_completed = newly_completed;
        look.newly_failed = newly_failed;
        look
    }

    fn pods(&self) -> impl Iterator<Item = &'a PodView> {
        self.facts.pods.iter()
    }

    // ---- one Pod ----

    fn active(&self, pod: &PodView) -> bool {
        !pod.phase.is_terminal() && !pod.deleting()
    }

    fn terminating(&self, pod: &PodView) -> bool {
        !pod.phase.is_terminal() && pod.deleting()
    }

    /// REPL-2, PFP-9.
    fn failed_only(&self) -> bool {
        self.facts.job.spec.waits_for_terminal_phase()
    }

    /// COUNT-1.
    fn has_failed(&self, pod: &PodView) -> bool {
        pod.phase == Phase::Failed || (!self.failed_only() && pod.deleting() && pod.phase != Phase::Succeeded)
    }

    /// IDX-3, and in range.
    fn index(&self, pod: &PodView) -> Option<CompletionIndex> {
        let spec = &self.facts.job.spec;
        pod.index.filter(|index| spec.is_indexed() && *index < spec.index_limit())
    }

    fn misfit(&self, pod: &PodView) -> bool {
        self.facts.job.spec.is_indexed() && self.index(pod).is_none()
    }

    /// In a stored list of uncounted Pods, whatever the Pod shows now: the first classification stands (S18, S19).
    fn recorded(&self, pod: &PodView) -> bool {
        let lists = self.facts.job.status.uncounted();
        lists.succeeded.contains(&pod.uid) || lists.failed.contains(&pod.uid)
    }

    /// COUNT-2: may still have a result that is not recorded.
    fn unaccounted(&self, pod: &PodView) -> bool {
        pod.tracked && !self.recorded(pod)
    }

    /// PFP-1, PFP-2.
    fn verdict(&self, pod: &PodView) -> Option<Verdict> {
        self.facts.job.spec.pod_failure_policy.as_ref().and_then(|policy| verdict::of(policy, pod))
    }

    fn ignored(&self, pod: &PodView) -> bool {
        self.verdict(pod).is_some_and(|verdict| verdict.action == FailureAction::Ignore)
    }

    /// A finish time in the future counts as now (DEFECT-25).
    fn finished_at(&self, pod: &PodView) -> Timestamp {
        pod.finished_at.min(self.facts.now)
    }

    /// SUCC-4: ended because the Job has succeeded, which is not a failure.
    fn ended_by_success(&self, pod: &PodView) -> bool {
        self.facts.job.status.is_true(condition::SUCCESS_CRITERIA_MET) && pod.deleting()
    }

    /// A Pod that ends with its Job says nothing about its index.
    fn ended_by_job(&self, pod: &PodView) -> bool {
        let status = &self.facts.job.status;
        let decided = status.is_true(condition::FAILURE_TARGET) || status.is_true(condition::SUCCESS_CRITERIA_MET);
        decided && pod.deleting()
    }

    /// BLPI-2.
    fn fails_index(&self, pod: &PodView) -> bool {
        let Some(limit) = self.index_budget() else { return false };
        let spent = i64::from(pod.failure_count) >= i64::from(limit);
        self.has_failed(pod)
            && !self.ended_by_job(pod)
            && match self.verdict(pod).map(|verdict| verdict.action) {
                Some(FailureAction::FailIndex) => true,
                Some(FailureAction::Ignore) => false,
                _ => spent,
            }
    }

    fn index_budget(&self) -> Option<i32> {
        let spec = &self.facts.job.spec;
        spec.backoff_limit_per_index.filter(|_| spec.is_indexed())
    }

    /// TRACK-5, TRACK-6, TRACK-7. Running Pods fail with their Job only once that decision is stored (PFP-8).
    fn fate(&self, pod: &PodView) -> Fate {
        let status = &self.facts.job.status;
        let failing = status.is_true(condition::FAILURE_TARGET) && !status.is_true(condition::SUCCESS_CRITERIA_MET);
        if !pod.tracked {
            return Fate::Untracked;
        }
        if self.recorded(pod) {
            // Another writer may have listed a Pod that has not ended.
            return if self.active(pod) { Fate::Stays } else { Fate::Release };
        }
        if pod.phase == Phase::Succeeded {
            return match self.index(pod) {
                None if self.misfit(pod) => Fate::Release, // IDX-2
                None => Fate::Record(Outcome::Succeeded),
                Some(index) if self.completed.contains(&index) || self.failed.contains(&index) => Fate::Release,
                Some(_) => Fate::RecordIndex,
            };
        }
        if self.ended_by_success(pod) {
            return Fate::Release;
        }
        // TRACK-8: a Pod that the failure of the Job ends has failed.
        if self.has_failed(pod) || (failing && pod.deleting()) {
            return if self.is_kept(pod) {
                Fate::Stays
            } else if self.misfit(pod) || self.ignored(pod) {
                Fate::Release // IDX-2, PFP-7
            } else {
                Fate::Record(Outcome::Failed)
            };
        }
        if self.facts.job.deleting { Fate::Release } else { Fate::Stays } // DEL-1
    }

    /// BLPI-3: the failed Pod from which the replacement of an index takes its counts. Ties go to the higher UID.
    fn kept(&self, index: CompletionIndex) -> Option<&'a PodView> {
        let job = &self.facts.job;
        let decided =
            job.status.is_true(condition::FAILURE_TARGET) || job.status.is_true(condition::SUCCESS_CRITERIA_MET);
        if self.index_budget().is_none() || decided || job.deleting || self.is_done(index) {
            return None;
        }
        if self.pods().any(|pod| self.index(pod) == Some(index) && self.active(pod)) {
            return None;
        }
        self.pods()
            .filter(|pod| self.index(pod) == Some(index) && self.unaccounted(pod) && self.has_failed(pod))
            .max_by_key(|pod| (self.failures_of_index(pod), self.finished_at(pod), pod.uid.clone()))
    }

    fn is_kept(&self, pod: &PodView) -> bool {
        self.index(pod).and_then(|index| self.kept(index)).is_some_and(|kept| kept.uid == pod.uid)
    }

    /// BLPI-5.
    fn failures_of_index(&self, pod: &PodView) -> u64 {
        u64::from(pod.failure_count) + u64::from(pod.ignored_failure_count) + 1
    }

    fn is_done(&self, index: CompletionIndex) -> bool {
        [&self.completed, &self.newly_completed, &self.failed, &self.newly_failed]
            .iter()
            .any(|set| set.contains(&index))
    }

    // ---- numbers ----

    fn count(&self, is: impl Fn(&PodView) -> bool) -> i64 {
        self.pods().filter(|pod| is(pod)).count() as i64
    }

    /// COUNT-3.
    fn succeeded(&self) -> i64 {
        let status = &self.facts.job.status;
        if self.facts.job.spec.is_indexed() {
            return (self.completed.len() + self.newly_completed.len()) as i64;
        }
        let news = self.count(|pod| self.unaccounted(pod) && pod.phase == Phase::Succeeded);
        i64::from(status.succeeded) + status.uncounted().succeeded.len() as i64 + news
    }

    /// COUNT-4. A Pod kept for its replacement counts here already (BLPI-7).
    fn failures(&self) -> i64 {
        let status = &self.facts.job.status;
        let news =
            self.count(|pod| self.unaccounted(pod) && self.has_failed(pod) && !self.misfit(pod) && !self.ignored(pod));
        i64::from(status.failed) + status.uncounted().failed.len() as i64 + news
    }

    // ---- FIN ----

    /// FIN-1, cases 1 to 8; a policy takes precedence over the number of completions (SUCC-5).
    fn failed_too_many(&self) -> bool {
        let failed = (self.failed.len() + self.newly_failed.len()) as i64;
        let limit = self.facts.job.spec.max_failed_indexes;
        self.index_budget().is_some() && failed > 0 && limit.is_some_and(|limit| failed > i64::from(limit))
    }

    fn decide(&self, plan: &mut Expected) -> Option<Decision> {
        let Facts { job, now, .. } = self.facts;
        let (spec, status) = (&job.spec, &job.status);
        let failure = |reason: &str, message: &str| {
            Some(Decision { success: false, reason: reason.into(), message: message.into(), stored: false })
        };
        for (kind, success) in [(condition::SUCCESS_CRITERIA_MET, true), (condition::FAILURE_TARGET, false)] {
            if let Some(stored) = status.conditions.iter().find(|known| known.kind == kind && known.status == "True") {
                let (reason, message) = (stored.reason.clone(), stored.message.clone());
                return Some(Decision { success, reason, message, stored: true });
            }
        }
        // PFP-6: a Pod without the finalizer was removed on purpose and does not fail the Job (DEFECT-5).
        if let Some(message) = self.fail_job_messages().first() {
            return failure("PodFailurePolicy", message);
        }
        if self.failures() > i64::from(spec.backoff_limit) || self.restarted_too_often() {
            return failure("BackoffLimitExceeded", "Job has reached the specified backoff limit");
        }
        if let (Some(seconds), false) = (spec.active_deadline_seconds, spec.suspend) {
            // SYNC-14 comes first: every Job that may run has a startTime.
            let ends_at = status.start_time.unwrap_or(*now) + Span::from_seconds(seconds);
            if *now >= ends_at {
                return failure("DeadlineExceeded", "Job was active longer than specified deadline");
            }
            if status.start_time.is_some() {
                earliest(&mut plan.wake_at, ends_at); // DEADLINE-2
            }
        }
        // PENDING-2, PENDING-3: of several Pods the one that is due first.
        let limits = spec.pending_timeouts.as_deref().filter(|_| !spec.suspend);
        // TTL-25: not behind the start gate.
        let waits = |pod: &&PodView| pod.tracked && pod.phase == Phase::Pending && !pod.deleting() && !pod.start_gated;
        let pending = || self.pods().filter(waits);
        let due = |pod: &PodView| limits?.due_at(pod.created_at, pod.pending.as_deref());
        if let Some(due_at) = pending().filter_map(due).min() {
            let mut late = pending().filter(|pod| due(pod) == Some(due_at));
            if *now >= due_at
                && let Some(pod) = late.next()
            {
                let message = tally_core::pending::message(&pod.name, pod.created_at, pod.pending.as_deref(), *now);
                return failure("PendingTimeout", &message);
            }
            earliest(&mut plan.wake_at, due_at);
        }
        let failed = (self.failed.len() + self.newly_failed.len()) as i64;
        if self.index_budget().is_some() && failed > 0 {
            // BLPI-11
            let running = self.count(|pod| self.active(pod)) > 0 || !self.facts.unknown.is_empty();
            if self.failed_too_many() && !(job.halts_soon && running) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                return failure("MaxFailedIndexesExceeded", message);
            }
            if failed + self.succeeded() >= i64::from(spec.index_limit()) {
                return failure("FailedIndexes", "Job has failed indexes");
            }
        }
        let policy = spec.success_policy.as_ref().filter(|_| spec.is_indexed())?;
        let completed = self.completed.union(&self.newly_completed).copied().collect();
        let rule = verdict::matched_rule(policy, &completed, spec.index_limit())?;
        let message = format!("Matched rules at index {rule}");
        Some(Decision { success: true, reason: "SuccessPolicy".into(), message, stored: false })
    }

    /// GATE-11.
    fn needs_no_interim(&self, decision: &Decision) -> bool {
        let Facts { job, .. } = self.facts;
        let delays = job.gates.enabled(Gate::JobPodReplacementPolicy) || job.gates.enabled(Gate::JobManagedBy);
        match decision.reason.as_str() {
            "PodFailurePolicy" | "PendingTimeout" | "SuccessPolicy" => false,
            "" | "CompletionsReached" => !delays && job.spec.success_policy.is_none(),
            _ => !delays,
        }
    }

    fn fail_job_messages(&self) -> BTreeSet<String> {
        let failed = self.pods().filter(|pod| pod.tracked && self.has_failed(pod));
        failed.filter_map(|pod| self.verdict(pod)?.message).collect()
    }

    /// BACKOFF-9.
    fn restarted_too_often(&self) -> bool {
        let spec = &self.facts.job.spec;
        let counts = self.pods().filter(|pod| matches!(pod.phase, Phase::Pending | Phase::Running));
        let restarts: i64 = counts.map(|pod| i64::from(pod.restarts.sum)).sum();
        let limit = i64::from(spec.backoff_limit);
        spec.restart_policy_on_failure && restarts > 0 && restarts >= limit
    }

    /// FIN-1 case 9, FIN-5. A Pod that is being created, or may have been, counts as a Pod (S09).
    fn completions_reached(&self, plan: &Expected) -> Option<Decision> {
        let enough = match self.facts.job.spec.completions {
            None => self.succeeded() > 0,
            Some(completions) => self.succeeded() >= i64::from(completions),
        };
        let reached = enough && self.count(|pod| self.active(pod)) == 0 && self.creates_none(plan);
        // GATE-12
        let (reason, message) = match self.facts.job.gates.enabled(Gate::JobSuccessPolicy) {
            true => ("CompletionsReached", "Reached expected number of succeeded pods"),
            false => ("", ""),
        };
        let decision = Decision { success: true, reason: reason.into(), message: message.into(), stored: false };
        let stored = self.needs_no_interim(&decision);
        reached.then_some(Decision { stored, ..decision })
    }

    fn creates_none(&self, plan: &Expected) -> bool {
        plan.creations.is_empty() && self.facts.unknown.is_empty()
    }

    /// FIN-4.
    fn deletions(&self) -> BTreeSet<PodUid> {
        self.pods().filter(|pod| self.active(pod)).map(|pod| pod.uid.clone()).collect()
    }

    // ---- TRACK ----

    fn release(&self, pod: &PodView) -> Release {
        let uncounted = !self.recorded(pod);
        let ignored = uncounted && self.has_failed(pod) && self.ignored(pod);
        let conditional = ignored || (uncounted && (self.misfit(pod) || self.facts.job.deleting));
        Release { ignored, revision: conditional.then_some(pod.revision) }
    }

    /// The single write that tallies, records and reports the live counts, if there is anything to report.
    fn write(&self, plan: &mut Expected, decision: Option<&Decision>) {
        let Facts { job, now, limits, .. } = self.facts;
        let old = &job.status;
        let mut status = old.clone();
        let at = now.truncated();

        // TRACK-4: Pods that no longer have the finalizer move from the lists into the counters.
        let held = |uid: &&PodUid| self.pods().any(|pod| pod.uid == **uid && (pod.tracked || self.active(pod)));
        let carry = |uids: &[PodUid]| -> Vec<PodUid> { uids.iter().filter(held).cloned().collect() };
        let stored = &listed_once(old.uncounted());
        let lists = Uncounted { succeeded: carry(&stored.succeeded), failed: carry(&stored.failed) };
        let tallied = |before: &[PodUid], after: &[PodUid]| (before.len() - after.len()) as i64;
        let succeeded = i64::from(old.succeeded) + tallied(&stored.succeeded, &lists.succeeded);
        status.failed = counter(i64::from(old.failed) + tallied(&stored.failed, &lists.failed));
        // TRACK-10.
        let indexed = job.spec.is_indexed();
        let elastic = indexed && job.spec.completions == Some(job.spec.parallelism);
        let floor = if elastic { 0 } else { old.succeeded }; // STATUSVAL-24
        status.succeeded = counter(if indexed { self.succeeded() } else { succeeded }).max(floor);
        let all = |one: &BTreeSet<u32>, other: &BTreeSet<u32>| text::write(&one.union(other).copied().collect());
        status.completed_indexes = all(&self.completed, &self.newly_completed).into();
        status.failed_indexes = self.index_budget().map(|_| all(&self.failed, &self.newly_failed).into());

        // TRACK-7, TRACK-9.
        let mut due = Vec::new();
        for pod in self.pods() {
            if let Fate::Record(outcome) = self.fate(pod) {
                let action = self.verdict(pod).filter(|_| outcome == Outcome::Failed).map(|verdict| verdict.action);
                due.push(Due { uid: pod.uid.clone(), outcome, action });
            }
        }
        let room = limits.uncounted.saturating_sub(lists.len()).min(due.len());
        let nothing_uncounted = lists.is_empty() && due.is_empty();
        status.uncounted_terminated_pods = Some(lists);

        // SYNC-18, from the same set of Pods (DEFECT-2).
        status.active = counter(self.count(|pod| self.active(pod)));
        status.ready = Some(counter(self.count(|pod| self.active(pod) && pod.ready)));
        let shown = job.gates.enabled(Gate::JobPodReplacementPolicy);
        status.terminating = shown.then(|| counter(self.count(|pod| self.terminating(pod))));
        status.completion_time = None;
        if status.start_time.is_none() && !job.spec.suspend {
            status.start_time = Some(at); // SYNC-14
        }
        // SUSP-8: not before the running Pods have been removed.
        let removes = plan.must_reread_job || !plan.removals.is_empty();
        match decision {
            None if job.spec.suspend && removes => {}
            None if !job.deleting => self.suspend_or_resume(&mut status, at), // SUSP-6, DEL-2
            None => {}
            Some(decision) => {
                let delays = job.gates.delays_terminal_conditions();
                let stays = |pod: &PodView| if delays { !pod.phase.is_terminal() } else { self.active(pod) };
                let nobody_left = self.count(|pod| pod.tracked || stays(pod)) == 0;
                let mended = old.completion_time.is_none(); // STATUSVAL-25
                let ends = nothing_uncounted && nobody_left && self.creates_none(plan) && mended;
                self.enact(decision, ends, &mut status, at);
            }
        }

        // Changes other than live counts are written at once.
        let mut quiet = old.clone();
        (quiet.active, quiet.ready, quiet.terminating) = (status.active, status.ready, status.terminating);
        // A negative counter, or a UID listed twice, is repaired with another write; the successes of an Indexed Job at
        // once.
        quiet.failed = quiet.failed.max(0);
        quiet.succeeded = if indexed { quiet.succeeded } else { quiet.succeeded.max(0) };
        quiet.start_time = status.start_time;
        quiet.uncounted_terminated_pods = Some(stored.clone());
        let urgent = room > 0 || quiet != status;
        let live = (old.active, old.ready, old.terminating) != (status.active, status.ready, status.terminating)
            || old.uncounted_terminated_pods.is_none()
            || (old.start_time.is_none() && !job.spec.suspend);
        if !urgent && live && !plan.creations.is_empty() {
            // The counts will change as soon as the creations have their responses.
            earliest(&mut plan.wake_at, *now + Span::from_seconds(1));
        } else if urgent || live {
            let decided_now = decision.is_some_and(|decision| !decision.stored);
            let messages = if decided_now { self.fail_job_messages() } else { BTreeSet::new() };
            plan.status = Some(Write { status, due, room, messages });
        }
    }

    /// SUSP-4, SUSP-5. A condition that is neither True nor False is not a suspension that can be resumed.
    fn suspend_or_resume(&self, status: &mut JobStatus, at: Timestamp) {
        let suspend = self.facts.job.spec.suspend;
        let was_suspended = status.is_true(condition::SUSPENDED);
        let known = status.conditions.iter().any(|known| known.kind == condition::SUSPENDED);
        let changed = match suspend {
            true => set_condition(status, condition::SUSPENDED, "True", "JobSuspended", "Job suspended", at),
            false if known => set_condition(status, condition::SUSPENDED, "False", "JobResumed", "Job resumed", at),
            false => false,
        };
        if changed && suspend {
            status.start_time = None;
        } else if changed && was_suspended {
            status.start_time = Some(at);
        }
    }

    /// FIN-6, FIN-7. A Job does not end before it starts, even if the clock steps back (H4).
    fn enact(&self, decision: &Decision, ends: bool, status: &mut JobStatus, at: Timestamp) {
        let at = status.start_time.map_or(at, |started_at| started_at.max(at));
        let (interim, end) = match decision.success {
            true => (condition::SUCCESS_CRITERIA_MET, condition::COMPLETE),
            false => (condition::FAILURE_TARGET, condition::FAILED),
        };
        if !decision.stored {
            // Next to a False one, which belongs to another writer (FIN-6).
            status.conditions.push(condition_of(interim, "True", &decision.reason, &decision.message, at));
        }
        if !ends {
            return;
        }
        set_condition(status, end, "True", &decision.reason, &decision.message, at);
        let spec = &self.facts.job.spec;
        if status.start_time.is_none() && !(spec.suspend && spec.completions == Some(0)) {
            status.start_time = Some(at); // DEFECT-6
        }
        if decision.success {
            status.completion_time = Some(at);
        }
    }
}

/// RM-2, and before it: a Pod without the finalizer is removed first, because its removal has begun (H2).
pub fn removal_order(pod: &PodView) -> impl Ord + use<> {
    let phase = match pod.phase {
        Phase::Pending if pod.start_gated => 0,
        Phase::Pending => 1,
        Phase::Unknown => 2,
        _ => 3,
    };
    let latest_first = |at: Option<Timestamp>| at.map(|at| std::cmp::Reverse(at.seconds()));
    let created_at = Some(pod.created_at).filter(|at| *at != Timestamp::default());
    (
        pod.tracked,
        pod.scheduled,
        phase,
        pod.ready,
        latest_first(pod.ready_changed_at.filter(|_| pod.ready)),
        std::cmp::Reverse((pod.restarts.regular, pod.restarts.sidecar)),
        latest_first(created_at),
    )
}

fn condition_of(kind: &str, value: &str, reason: &str, message: &str, at: Timestamp) -> Condition {
    Condition {
        kind: kind.into(),
        status: value.into(),
        last_probe_time: Some(at),
        last_transition_time: Some(at),
        reason: reason.into(),
        message: message.into(),
    }
}

/// FIN-8, for conditions that occur once. Returns whether anything changed.
fn set_condition(status: &mut JobStatus, kind: &str, value: &str, reason: &str, message: &str, at: Timestamp) -> bool {
    let fresh = condition_of(kind, value, reason, message, at);
    let Some(place) = status.conditions.iter().position(|known| known.kind == kind) else {
        status.conditions.push(fresh);
        return true;
    };
    let known = &mut status.conditions[place];
    let same = (&known.status, &known.reason, &known.message) == (&fresh.status, &fresh.reason, &fresh.message);
    if !same {
        *known = fresh;
    }
    !same
}
