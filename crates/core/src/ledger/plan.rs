//! Planning: what to do next for one Job, read off the files. Nothing here acts; what a plan holds counts as asked for,
//! so that planning again at once yields nothing.

use std::sync::Arc;

use compact_str::CompactString;

use super::entry::{Busy, Slot, Standing};
use super::filing::Flag;
use super::{Facts, InFlightCreation, Ledger, StatusInFlight};
use crate::accounting::{CausalSnapshot, Outcome, PodFacts};
use crate::blueprint::NewPod;
use crate::conditions::{self, Decision};
use crate::ids::{CompletionIndex, PodUid, Revision};
use crate::job::{CompletionMode, JobStatus, Uncounted, condition};
use crate::mutation::{Bug, Soundness};
use crate::names::ATTEMPTS;
use crate::policy::FailureAction;
use crate::time::{Span, Timestamp};

/// How long the next status write waits for releases that do not answer. One hanging Pod must not hold up the rest.
const RELEASE_PATIENCE: Span = Span::from_seconds(1);
/// How long a write of live counts alone waits for creations in flight, which would change them at once.
const CREATION_PATIENCE: Span = Span::from_seconds(1);
/// Writes of live counts alone are at least this far apart.
const LIVE_COUNT_INTERVAL: Span = Span::from_millis(100);
/// Under load (at least so many Pods in the last write) accounting writes are at least this far apart, so that a
/// Job of N Pods costs about N/500 writes. When idle a finished Pod is accounted for at once.
const BUSY_BATCH: usize = 16;
const BUSY_INTERVAL: Span = Span::from_millis(50);

#[derive(Debug, Default)]
pub struct Plan {
    pub status: Option<Box<StatusWrite>>,
    pub releases: Vec<PodRef>,
    pub deletions: Vec<PodRef>,
    pub removals: Vec<Removal>,
    pub creations: Vec<NewPod>,
    /// When to plan again if nothing happens before.
    pub wake_at: Option<Timestamp>,
    /// The Pods are older than the Job: nothing can be done until they catch up.
    pub gate_closed: bool,
    /// Creations of unknown outcome are no longer wanted: a consistent list of the Job's Pods must settle them.
    pub needs_list: bool,
    /// Pods are to be let go uncounted, and the Job may have changed since they did: read it again first.
    pub needs_job: bool,
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.status.is_none()
            && self.releases.is_empty()
            && self.deletions.is_empty()
            && self.removals.is_empty()
            && self.creations.is_empty()
    }

    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    pub uid: PodUid,
    pub name: CompactString,
    /// For a release without a record: what the failure policy said.
    pub ignored: bool,
    /// Let go uncounted by what it was at this revision, and only then.
    pub revision: Option<Revision>,
}

/// Remove a Pod that is not wanted: release it (as it was at `revision`, so that one that has just finished is not
/// lost uncounted), then delete it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    pub uid: PodUid,
    pub name: CompactString,
    pub revision: Revision,
    pub tracked: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    /// The write is conditional on the Job being at this revision.
    pub base: Revision,
    pub status: JobStatus,
    /// What the failure policy said of the Pods recorded here (METRIC-7).
    pub handled: Vec<FailureAction>,
}

/// How far one can see while planning.
#[derive(Clone, Copy)]
pub struct Sight<'a> {
    /// How far the Pods have been observed.
    pub pods_at: Revision,
    /// How far the Jobs have been observed.
    pub jobs_at: Revision,
    /// Knows the Pods that are in no ledger.
    pub elsewhere: &'a dyn PodFacts,
}

/// What accounting goes by.
#[derive(Clone, Copy)]
struct Account<'a> {
    pods_at: Revision,
    elsewhere: &'a dyn PodFacts,
    unknown_is_gone: bool,
}

fn count(value: i64) -> i32 {
    i32::try_from(value.max(0)).unwrap_or(i32::MAX)
}

fn len(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

impl<S: Soundness> Ledger<S> {
    /// Plans as far as what can be seen allows.
    pub fn plan(&mut self, now: Timestamp, sight: Sight<'_>) -> Plan {
        let Sight { pods_at, jobs_at, elsewhere } = sight;
        self.current_at = self.current_at.max(jobs_at);
        let mut plan = Plan::default();
        self.retry_refused(now, &mut plan);
        if self.job.status.is_finished() {
            if !self.soundness.has(Bug::NoFinishedSweep) {
                self.plan_sweep(&mut plan);
            }
            return plan;
        }
        if matches!(self.job.spec.completion_mode, CompletionMode::Unknown(_)) {
            return plan;
        }
        if self.soundness.has(Bug::RefusalBlocksJob) && !self.refusals.is_empty() {
            return plan;
        }
        let foreign_at = if self.soundness.has(Bug::NoGate) { Revision(0) } else { self.foreign_at };
        let unknown_is_gone = pods_at >= foreign_at;
        let pods_at = pods_at.max(self.listed_at);
        if pods_at < foreign_at {
            plan.gate_closed = true;
            return plan;
        }
        self.index.advance(now);
        let decision = self.decide(now, &mut plan);
        let mut waiting = false;
        if self.regime.decided() {
            self.plan_deletions(&mut plan);
        } else if decision.is_none()
            && !self.regime.deleting
            && !self.flight.status.as_ref().is_some_and(|flight| flight.decides)
        {
            waiting = self.manage(now, &mut plan);
        }
        if self.regime.decided() || decision.is_some() || self.regime.deleting || self.job.spec.suspend {
            plan.needs_list = self.creations.len() > self.flight.creations;
        }
        let sight = Account { pods_at, elsewhere, unknown_is_gone };
        self.plan_status(now, sight, decision, waiting, &mut plan);
        self.plan_releases(now, &mut plan);
        plan
    }

    // ---- numbers ----

    /// COUNT-3.
    fn succeeded(&self) -> i64 {
        if self.regime.indexed {
            return len(self.completed.len()) + len(self.index.completed.len());
        }
        let status = &self.job.status;
        i64::from(status.succeeded) + self.counts.of(Flag::NewSucceeded) + len(status.uncounted().succeeded.len())
    }

    /// COUNT-4.
    fn failed(&self) -> i64 {
        let status = &self.job.status;
        i64::from(status.failed) + self.counts.of(Flag::NewFailed) + len(status.uncounted().failed.len())
    }

    // ---- the end of a Job ----

    /// FIN-1, up to but not including "completions reached". The flag says whether it is stored already.
    fn decide(&self, now: Timestamp, plan: &mut Plan) -> Option<Decision> {
        let (spec, status) = (&self.job.spec, &self.job.status);
        for (kind, success) in [(condition::SUCCESS_CRITERIA_MET, true), (condition::FAILURE_TARGET, false)] {
            if let Some(stored) = status.true_condition(kind) {
                return Some(Decision {
                    success,
                    reason: stored.reason.clone(),
                    message: stored.message.clone(),
                    stored: true,
                });
            }
        }
        if let Some((_, slot)) = self.fail_job.first()
            && let Some(message) = self.entry(*slot).verdict.as_ref().and_then(|verdict| verdict.message.as_deref())
        {
            return Some(Decision::failure("PodFailurePolicy", message));
        }
        if self.backoff_limit_exceeded() {
            return Some(Decision::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
        }
        if let (Some(deadline), Some(start_at), false) = (spec.active_deadline_seconds, status.start_time, spec.suspend)
        {
            let ends_at = start_at + Span::from_seconds(deadline);
            if now >= ends_at {
                return Some(Decision::failure("DeadlineExceeded", "Job was active longer than specified deadline"));
            }
            if !self.soundness.has(Bug::NoDeadlineTimer) {
                plan.wake(ends_at);
            }
        }
        if self.regime.indexed {
            let failed = len(self.failed_indexes.len()) + len(self.index.failed.len());
            if spec.limits_each_index() && failed > 0 {
                if spec.max_failed_indexes.is_some_and(|limit| failed > i64::from(limit)) {
                    return Some(Decision::failure(
                        "MaxFailedIndexesExceeded",
                        "Job has exceeded the specified maximal number of failed indexes",
                    ));
                }
                if failed + self.succeeded() >= i64::from(self.regime.index_limit) {
                    return Some(Decision::failure("FailedIndexes", "Job has failed indexes"));
                }
            }
            if let Some(policy) = &spec.success_policy
                && let Some(rule) =
                    policy.matched_rule(&self.completed.union(&self.index.completed), self.regime.index_limit)
            {
                return Some(Decision::success("SuccessPolicy", &format!("Matched rules at index {rule}")));
            }
        }
        None
    }

    /// FIN-1 case 4. With OnFailure the restarts inside Pods count against the same limit (BACKOFF-9).
    fn backoff_limit_exceeded(&self) -> bool {
        let limit = i64::from(self.job.spec.backoff_limit);
        if self.failed() > limit {
            return true;
        }
        let restarts = self.counts.restarts;
        self.job.spec.restart_policy_on_failure && if limit == 0 { restarts > 0 } else { restarts >= limit }
    }

    /// FIN-5. Creations whose outcome is open count as Pods: finishing now would leave them behind (S09).
    fn completed_all(&self) -> bool {
        let succeeded = self.succeeded();
        let enough = match self.job.spec.completions {
            None => succeeded > 0,
            Some(completions) => succeeded >= i64::from(completions),
        };
        enough && self.counts.of(Flag::Active) == 0 && self.creations.is_empty()
    }

    // ---- wanted and actual Pods ----

    fn pod_ref(&self, slot: Slot) -> PodRef {
        let entry = self.entry(slot);
        PodRef { uid: entry.uid.clone(), name: entry.name.clone(), ignored: entry.is_ignored(), revision: None }
    }

    /// FIN-4: the Job ends, and with it every Pod that still runs. Their finalizers stay until they are counted.
    fn plan_deletions(&mut self, plan: &mut Plan) {
        let room = self.limits.batch.saturating_sub(self.counts.of(Flag::InFlight) as usize);
        let doomed: Vec<Slot> = self.idle_active().take(room).map(|(_, slot)| slot).collect();
        for slot in doomed {
            plan.deletions.push(self.pod_ref(slot));
            self.refile(slot, |entry| entry.busy = Busy::Deleting);
        }
    }

    /// MANAGE. Returns whether creations wait for a back-off.
    fn manage(&mut self, now: Timestamp, plan: &mut Plan) -> bool {
        let spec = self.job.spec.clone();
        if spec.suspend {
            self.remove_surplus(usize::MAX, plan);
            return false;
        }
        let active = self.counts.of(Flag::Active) - self.counts.of(Flag::Removing);
        let parallelism = i64::from(spec.parallelism.max(0));
        let in_creation = len(self.creations.len());
        let wanted = match spec.completions {
            None if self.succeeded() > 0 => active + in_creation,
            None => parallelism,
            Some(completions) => (i64::from(completions) - self.succeeded()).clamp(0, parallelism),
        };
        let misfits = self.remove_misfits(plan);
        let surplus = (active - len(misfits) - wanted).max(0);
        self.remove_surplus(usize::try_from(surplus).unwrap_or(0), plan);
        if !plan.removals.is_empty() || plan.needs_job || self.counts.of(Flag::Removing) > 0 {
            return false;
        }
        let occupied = if spec.waits_for_terminal_phase() { self.counts.of(Flag::Terminating) } else { 0 };
        let missing = wanted - active - in_creation - occupied;
        if missing <= 0 && self.creations.is_empty() {
            return false;
        }
        if let Some(blocked_until) = self.creation_blocked_until {
            if now < blocked_until {
                plan.wake(blocked_until);
                return missing > 0;
            }
            self.creation_blocked_until = None;
        }
        if !spec.limits_each_index()
            && let Some(retry_at) = self.history.retry_at()
            && now < retry_at
        {
            plan.wake(retry_at);
            return missing > 0;
        }
        self.retry_unknown_creations(now, plan);
        // A batch is answered before the next is sent, so that a quota stops at most one batch (MANAGE-8).
        if missing <= 0 || self.flight.creations > 0 {
            return false;
        }
        // A ledger that has just begun may know Pods newer than its Job: perhaps the Job has finished since (S04).
        self.confirmed |= self.newest_pod_at <= self.current_at;
        if !self.confirmed {
            plan.needs_job = true;
            return false;
        }
        let batch = usize::try_from(missing).unwrap_or(0).min(self.creation_window as usize).min(self.limits.batch);
        self.create(batch, now, plan);
        if self.creations.is_empty()
            && let Some(wake_at) = self.index.next_wake()
        {
            plan.wake(wake_at);
            return true;
        }
        if let Some(wake_at) = self.index.next_wake() {
            plan.wake(wake_at);
        }
        false
    }

    /// RM-1 for Indexed Jobs: Pods without a valid index, and all but one of each index.
    /// Returns how many have to go, be it now or later.
    fn remove_misfits(&mut self, plan: &mut Plan) -> usize {
        let mut victims: Vec<Slot> = self.misfits.iter().copied().collect();
        for index in &self.index.crowded {
            let resume = !self.soundness.has(Bug::RemovalNotResumed);
            let mut pods: Vec<_> = self
                .pods_of(*index)
                .filter(|(_, entry)| entry.is_active() && !entry.removal)
                .map(|(slot, entry)| (entry.removal_class(resume), entry.removal_rank(), entry.tie, slot))
                .collect();
            pods.sort_unstable();
            pods.pop();
            victims.extend(pods.into_iter().map(|(_, _, _, slot)| slot));
        }
        victims.retain(|slot| !self.entry(*slot).removal);
        let mut room = self.limits.batch.saturating_sub(self.counts.of(Flag::InFlight) as usize);
        for slot in &victims {
            if room > 0 && self.entry(*slot).busy == Busy::No {
                self.remove(*slot, plan);
                room -= 1;
            }
        }
        victims.len()
    }

    fn remove_surplus(&mut self, surplus: usize, plan: &mut Plan) {
        let room = self.limits.batch.saturating_sub(self.counts.of(Flag::InFlight) as usize);
        let victims = self.first_to_go(surplus.min(room));
        for slot in victims {
            self.remove(slot, plan);
        }
    }

    /// Whether the Job, as we see it, may judge this Pod: not if it may have changed since the Pod did. An index out of
    /// range by an old view of the Job may be in range by now.
    fn may_judge(&self, slot: Slot) -> bool {
        self.entry(slot).revision <= self.current_at || self.soundness.has(Bug::StaleJobJudges)
    }

    fn remove(&mut self, slot: Slot, plan: &mut Plan) {
        if !self.may_judge(slot) {
            plan.needs_job = true;
            return;
        }
        let entry = self.entry(slot);
        plan.removals.push(Removal {
            uid: entry.uid.clone(),
            name: entry.name.clone(),
            revision: entry.revision,
            tracked: entry.tracked,
        });
        self.refile(slot, |entry| {
            entry.busy = Busy::Removing;
            entry.removal = true;
        });
    }

    fn create(&mut self, batch: usize, now: Timestamp, plan: &mut Plan) {
        if self.regime.indexed {
            let indexes: Vec<CompletionIndex> = self.index.free.iter().take(batch).collect();
            for index in indexes {
                let attempt = (0..ATTEMPTS)
                    .find(|attempt| {
                        !self.index.burned.contains(&(Some(index), *attempt))
                            && !self.name_in_use(&self.names.name(Some(index), *attempt))
                    })
                    .unwrap_or(0)
                    .wrapping_add(if self.soundness.has(Bug::ForgetOwnCreations) { self.creation_serial } else { 0 });
                self.creation_serial += 1;
                self.begin_creation(Some(index), attempt, now, plan);
            }
        } else {
            // Start where a leader with the same view would: after everything that has finished.
            let status = &self.job.status;
            let finished = i64::from(status.succeeded) + i64::from(status.failed) + len(status.uncounted().len());
            let mut from = u32::try_from(finished.rem_euclid(i64::from(ATTEMPTS))).unwrap_or(0);
            for _ in 0..batch {
                let mut attempt = self.next_attempt(from);
                if self.soundness.has(Bug::ForgetOwnCreations) {
                    // What this bug costs where names are random.
                    self.creation_serial += 1;
                    attempt = (attempt + self.creation_serial) % ATTEMPTS;
                }
                while self.index.burned.contains(&(None, attempt)) {
                    attempt = self.next_attempt(attempt + 1);
                }
                self.used_attempts.insert(attempt);
                self.begin_creation(None, attempt, now, plan);
                from = attempt;
            }
        }
    }

    /// The next number whose name is not in use. Numbers wrap around; there are more of them than Pods.
    fn next_attempt(&self, from: u32) -> u32 {
        match self.used_attempts.first_absent_from(from % ATTEMPTS) {
            attempt if attempt < ATTEMPTS => attempt,
            _ => self.used_attempts.first_absent_from(0) % ATTEMPTS,
        }
    }

    fn begin_creation(&mut self, index: Option<CompletionIndex>, attempt: u32, now: Timestamp, plan: &mut Plan) {
        let name = self.names.name(index, attempt);
        plan.creations.push(self.creation(name.clone(), index));
        self.creations.insert(name, InFlightCreation { index, attempt, retry_at: None, listed: false });
        self.flight.creations_since = now;
        self.flight.creations += 1;
        if let Some(index) = index {
            self.index.creating.insert(index);
            self.refresh_index(index);
        }
    }

    fn creation(&self, name: CompactString, index: Option<CompletionIndex>) -> NewPod {
        let mut creation = NewPod { name, index, failure_count: None, ignored_failure_count: 0 };
        if self.job.spec.limits_each_index() {
            let kept = index.and_then(|index| self.index.kept.get(&index)).map(|slot| self.entry(*slot));
            let counts = kept.map_or((0, 0), |kept| match kept.is_ignored() {
                true => (kept.failure_count, kept.ignored_failure_count.saturating_add(1)),
                false => (kept.failure_count.saturating_add(1), kept.ignored_failure_count),
            });
            creation.failure_count = Some(counts.0);
            creation.ignored_failure_count = counts.1;
        }
        creation
    }

    /// Asks again for Pods of which nobody knows whether they exist: same name, so at most one of each comes to be.
    fn retry_unknown_creations(&mut self, now: Timestamp, plan: &mut Plan) {
        if self.creations.len() == self.flight.creations {
            return;
        }
        let mut again = Vec::new();
        for (name, creation) in &mut self.creations {
            match creation.retry_at {
                Some(at) if at <= now => {
                    creation.retry_at = None;
                    creation.listed = false;
                    self.flight.creations += 1;
                    again.push((name.clone(), creation.index));
                }
                Some(at) => plan.wake(at),
                None => {}
            }
        }
        for (name, index) in again {
            let creation = self.creation(name, index);
            plan.creations.push(creation);
            self.flight.creations_since = now;
        }
    }

    fn retry_refused(&mut self, now: Timestamp, plan: &mut Plan) {
        while let Some(&(at, slot)) = self.refusal_wakes.first() {
            if at > now {
                plan.wake(at);
                break;
            }
            self.refusal_wakes.pop_first();
            let due = self.refusals.get(&slot).is_some_and(|refusal| refusal.retry_at == at);
            if due && self.entry(slot).busy == Busy::Refused {
                self.refile(slot, |entry| {
                    entry.busy = Busy::No;
                    entry.removal = false;
                });
            }
        }
    }

    // ---- accounting ----

    fn plan_releases(&mut self, now: Timestamp, plan: &mut Plan) {
        if self.flight.releases == 0 {
            self.flight.releases_since = now;
        }
        let mut unjudged = Vec::new();
        while (self.flight.releases as usize) < self.limits.batch
            && let Some(slot) = self.pop_releasable()
        {
            let entry = self.entry(slot);
            let misfit = self.regime.indexed && entry.recorded.is_none() && entry.valid_index(self.regime).is_none();
            if misfit && !self.may_judge(slot) && !self.job.status.is_finished() {
                plan.needs_job = true;
                unjudged.push(slot);
                continue;
            }
            let revision = misfit.then_some(entry.revision);
            plan.releases.push(PodRef { revision, ..self.pod_ref(slot) });
            self.flight.releases += 1;
            self.refile(slot, |entry| entry.busy = Busy::Releasing);
        }
        for slot in unjudged {
            self.push_releasable(slot);
        }
    }

    /// A finished Job that still has Pods with the finalizer lets go of them: nothing is counted any more (S10, S12).
    fn plan_sweep(&mut self, plan: &mut Plan) {
        if self.counts.of(Flag::Tracked) == 0 {
            return;
        }
        let room = self.limits.batch.saturating_sub(self.flight.releases as usize);
        let left: Vec<Slot> = self
            .slots()
            .filter(|slot| self.entry(*slot).tracked && self.entry(*slot).busy == Busy::No)
            .take(room)
            .collect();
        for slot in left {
            plan.releases.push(self.pod_ref(slot));
            self.flight.releases += 1;
            self.refile(slot, |entry| entry.busy = Busy::Releasing);
        }
    }

    /// The one write that tallies what was released, records what has finished since, and tells the live counts.
    fn plan_status(
        &mut self,
        now: Timestamp,
        sight: Account<'_>,
        decision: Option<Decision>,
        waiting: bool,
        plan: &mut Plan,
    ) {
        if self.flight.status.is_some() {
            return;
        }
        if self.flight.releases > 0 {
            let patience_ends = self.flight.releases_since + RELEASE_PATIENCE;
            if now < patience_ends {
                plan.wake(patience_ends);
                return;
            }
        }
        let decision = decision.or_else(|| {
            self.completed_all()
                .then(|| Decision::success("CompletionsReached", "Reached expected number of succeeded pods"))
        });
        let managed = decision.is_none() && !self.regime.deleting;
        let news = self.accounting_news();
        let decides = decision.as_ref().is_some_and(|decision| !decision.stored);
        let finishes = decision.is_some() && self.may_finish();
        let suspends = managed && self.suspended_condition_differs();
        let urgent = news > 0 || decides || finishes || suspends;
        if !urgent && !self.live_counts_differ(waiting) {
            return;
        }
        if let Some(wait_until) = self.pace(now, urgent, news, decides || finishes || suspends) {
            plan.wake(wait_until);
            return;
        }
        self.trim_due();
        let Some((status, flight, handled, batch)) = self.next_status(now, sight, decision.as_ref(), managed, waiting)
        else {
            return;
        };
        if status == self.job.status {
            return;
        }
        self.flight.status = Some(flight);
        self.flight.last_batch = batch;
        plan.status = Some(Box::new(StatusWrite { base: self.job.revision, status, handled }));
    }

    /// How much accounting there is to write: Pods to record, UIDs to tally, index lists to mend.
    fn accounting_news(&self) -> usize {
        let tallyable = self.uncounted.len().saturating_sub(self.counts.of(Flag::Held) as usize);
        let room = self.limits.uncounted.saturating_sub(self.counts.of(Flag::Held) as usize);
        let indexes = self.index.completed.len() + self.index.failed.len();
        let mends = usize::from(
            self.job.status.completion_time.is_some()
                || self.index_text_stale
                || (self.regime.indexed && self.job.status.succeeded != self.indexed_successes()),
        );
        let due = self.counts.of(Flag::Due) as usize;
        tallyable + due.min(room) + indexes + mends
    }

    fn live_counts_differ(&self, waiting: bool) -> bool {
        let status = &self.job.status;
        let (active, ready, terminating) = self.live_counts(waiting);
        status.active != active
            || status.ready != Some(ready)
            || status.terminating != Some(terminating)
            || status.uncounted_terminated_pods.is_none()
            || (status.start_time.is_none() && !self.job.spec.suspend)
    }

    /// Active, ready and terminating from one and the same set of Pods, so that they always fit together (S20, S27).
    fn live_counts(&self, waiting: bool) -> (i32, i32, i32) {
        let mut active = self.counts.of(Flag::Active);
        let mut ready = self.counts.of(Flag::Ready);
        if self.soundness.has(Bug::ActiveZeroInBackoff) && waiting {
            active = 0;
        }
        if self.soundness.has(Bug::ForgetOwnDeletions) {
            ready += self.counts.of(Flag::ReadyTerminating);
        }
        (count(active), count(ready), count(self.counts.of(Flag::Terminating)))
    }

    /// When to write instead of now.
    fn pace(&self, now: Timestamp, urgent: bool, news: usize, must: bool) -> Option<Timestamp> {
        let creating = self.flight.creations > 0;
        let since = |span: Span| self.flight.last_write_at.map(|at| at + span);
        let wait_until = if must {
            None
        } else if urgent {
            (self.flight.last_batch >= BUSY_BATCH && news < self.limits.uncounted)
                .then(|| since(BUSY_INTERVAL))
                .flatten()
        } else if creating {
            Some(self.flight.creations_since + CREATION_PATIENCE)
        } else {
            since(LIVE_COUNT_INTERVAL)
        };
        // A clock that stepped back must not freeze the Job.
        wait_until.filter(|at| *at > now && *at - now <= CREATION_PATIENCE)
    }

    /// FIN-6 phase 2: everything counted, everything let go, nothing running and nothing about to be.
    fn may_finish(&self) -> bool {
        let settled = self.counts.of(Flag::Tracked) == 0 || self.soundness.has(Bug::FinishWithBacklog);
        let ended = self.counts.of(Flag::Terminating) == 0 || self.soundness.has(Bug::FinishWhileTerminating);
        settled && ended && self.counts.of(Flag::Active) == 0 && self.creations.is_empty() && self.flight.releases == 0
    }

    fn suspended_condition_differs(&self) -> bool {
        let (status, reason) = self.wanted_suspended();
        match self.job.status.conditions.iter().find(|known| known.kind == condition::SUSPENDED) {
            Some(known) => known.status != status || known.reason != reason.0 || known.message != reason.1,
            None => self.job.spec.suspend,
        }
    }

    fn wanted_suspended(&self) -> (&'static str, (&'static str, &'static str)) {
        match self.job.spec.suspend {
            true => ("True", ("JobSuspended", "Job suspended")),
            false => ("False", ("JobResumed", "Job resumed")),
        }
    }

    fn next_status(
        &self,
        now: Timestamp,
        sight: Account<'_>,
        decision: Option<&Decision>,
        managed: bool,
        waiting: bool,
    ) -> Option<(JobStatus, StatusInFlight, Vec<FailureAction>, usize)> {
        let job = &self.job;
        let spec = &job.spec;
        let at = now.truncated();
        let mut status = job.status.clone();
        status.completion_time = None;
        let mut flight = StatusInFlight::default();

        // Tally, then record: both behind the gate, both in this one write.
        let foreign_at = if self.soundness.has(Bug::NoGate) { Revision(0) } else { self.foreign_at };
        let facts = Facts { ledger: self, elsewhere: sight.elsewhere, unknown_is_gone: sight.unknown_is_gone };
        let snapshot = CausalSnapshot::take(job.status.uncounted(), &facts, sight.pods_at, foreign_at)?;
        let mut tally = snapshot.tally();
        if self.soundness.has(Bug::TallyBeforeRelease) {
            tally.succeeded.append(&mut tally.left.succeeded);
            tally.failed.append(&mut tally.left.failed);
        }
        status.succeeded = count(i64::from(status.succeeded) + len(tally.succeeded.len()));
        status.failed = count(i64::from(status.failed) + len(tally.failed.len()));
        let mut lists: Uncounted = tally.left;
        let mut handled = Vec::new();
        let mut batch = tally.succeeded.len() + tally.failed.len();
        for entry in self.due_entries() {
            let gives_up = self.soundness.has(Bug::FinishWithBacklog) && batch > 0 && decision.is_some();
            if lists.len() >= self.limits.uncounted || gives_up {
                break;
            }
            let Standing::Due(outcome) = self.standing(entry) else {
                continue;
            };
            let recorded = snapshot.record(&mut lists, &entry.uid, outcome);
            if !recorded && self.soundness.has(Bug::ClassificationNotSticky) && outcome == Outcome::Succeeded {
                lists.succeeded.push(entry.uid.clone());
            }
            batch += usize::from(recorded);
            handled.extend(entry.action().filter(|_| recorded && outcome == Outcome::Failed));
        }
        status.uncounted_terminated_pods = Some(lists);
        self.next_indexes(&mut status, &mut flight);
        batch += flight.completed.len();

        let (active, ready, terminating) = self.live_counts(waiting);
        status.active = active;
        status.ready = Some(ready);
        status.terminating = Some(terminating);

        if status.start_time.is_none() && !spec.suspend {
            status.start_time = Some(at);
        }
        if managed {
            self.set_suspended(&mut status, at);
        }
        if let Some(decision) = decision {
            flight.decides = true;
            self.enact(decision, &mut status, at);
        }
        Some((status, flight, handled, batch))
    }

    /// `status.succeeded` of an Indexed Job: the number of completed indexes. STATUSVAL-24 lets it fall only while
    /// parallelism equals completions; until then a Job that was scaled down keeps its number.
    fn indexed_successes(&self) -> i32 {
        let successes = count(self.succeeded());
        let may_fall = self.job.spec.completions == Some(self.job.spec.parallelism);
        if may_fall { successes } else { successes.max(self.job.status.succeeded) }
    }

    /// IDX-1, BLPI-2: successes of an Indexed Job are recorded by their index; they need no tally.
    fn next_indexes(&self, status: &mut JobStatus, flight: &mut StatusInFlight) {
        if !self.regime.indexed {
            if !status.completed_indexes.is_empty() {
                status.completed_indexes = Arc::from("");
            }
            status.failed_indexes = None;
            return;
        }
        let mends = self.index_text_stale;
        if mends || !self.index.completed.is_empty() {
            let completed = self.completed.union(&self.index.completed);
            status.completed_indexes = completed.text().into();
            flight.completed = self.index.completed.iter().collect();
        }
        status.succeeded = self.indexed_successes();
        if mends || !self.index.failed.is_empty() {
            flight.failed = self.index.failed.iter().collect();
            let failed = self.failed_indexes.union(&self.index.failed);
            status.failed_indexes = self.job.spec.limits_each_index().then(|| failed.text().into());
        }
    }

    /// SUSP-4, SUSP-5.
    fn set_suspended(&self, status: &mut JobStatus, at: Timestamp) {
        if !self.suspended_condition_differs() {
            return;
        }
        let was_suspended = self.job.status.is_true(condition::SUSPENDED);
        let (value, (reason, message)) = self.wanted_suspended();
        conditions::set(status, conditions::new(condition::SUSPENDED, value, reason, message, at));
        if self.job.spec.suspend {
            status.start_time = None;
        } else if was_suspended {
            // The clock of the deadline starts anew. From a condition that is neither True nor False this is not a
            // resume, and the API would refuse it.
            status.start_time = Some(at);
        }
    }

    /// FIN-6: the interim condition, and the terminal one once nothing is left to do.
    fn enact(&self, decision: &Decision, status: &mut JobStatus, at: Timestamp) {
        // Whatever a clock does, a Job does not end before it starts (H4).
        let floor = if self.soundness.has(Bug::CompletionBeforeStart) { None } else { status.start_time };
        let at = floor.map_or(at, |start_at| at.max(start_at));
        if !decision.stored {
            // A stored False one is somebody else's remark and stays (VEC-23).
            let fresh = conditions::new(decision.interim(), "True", &decision.reason, &decision.message, at);
            status.conditions.push(fresh);
        }
        let uncounted_empty = status.uncounted().is_empty();
        // A stray completionTime is cleared first: it may go, but not change.
        let stray_completion = self.job.status.completion_time.is_some();
        if !self.may_finish() || !uncounted_empty || stray_completion {
            return;
        }
        let completions_zero = self.job.spec.completions == Some(0) && self.job.spec.suspend;
        if status.start_time.is_none() && !completions_zero {
            // A suspended Job that ends otherwise than by having nothing to do (DEFECT-6).
            status.start_time = Some(at);
        }
        let kind = if decision.success { condition::COMPLETE } else { condition::FAILED };
        conditions::set(status, conditions::new(kind, "True", &decision.reason, &decision.message, at));
        if decision.success {
            status.completion_time = Some(at);
        }
    }
}
