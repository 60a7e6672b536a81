//! Planning: what to do next for one Job, read from the secondary indexes. Nothing here acts; what a plan contains
//! counts as requested, so that planning again at once yields nothing.

use std::collections::BTreeSet;

use compact_str::CompactString;

use super::Ledger;
use super::classification::Flag;
use super::entry::{Busy, Entry, Slot};
use crate::accounting::PodFacts;
use crate::backoff::BackoffNotice;
use crate::blueprint::NewPod;
use crate::conditions::Decision;
use crate::gates::Gate;
use crate::ids::{CompletionIndex, PodUid, Revision};
use crate::job::{CompletionMode, JobStatus, PodReplacementPolicy, condition};
use crate::lifetime::EarlyDeletion;
use crate::names::ATTEMPTS;
use crate::pending::{self, PENDING_TIMED_OUT};
use crate::pod::Phase;
use crate::policy::FailureAction;
use crate::time::{Span, Timestamp};

/// TTL-16: with so many batches of finished Pods that must go, no further Pods are created.
const DISCARD_BATCHES: usize = 2;

#[derive(Debug, Default)]
pub struct Plan {
    pub status: Option<Box<StatusWrite>>,
    pub releases: Vec<PodRef>,
    pub deletions: Vec<PodRef>,
    pub removals: Vec<Removal>,
    pub creations: Vec<NewPod>,
    pub creation_reason: CreationReason,
    /// Finished Pods that are counted, and that the Job does not want to keep (TTL-14).
    pub discards: Vec<PodRef>,
    /// Pods that may start: they lose their start gate, at this revision (TTL-24).
    pub starts: Vec<PodRef>,
    /// Other Pods start once the Pods are known up to this revision.
    pub starts_at: Option<Revision>,
    /// Pods that have been terminating for as long as the Job waits for a dead node (REPL-8): check their node.
    pub looks: Vec<PodRef>,
    /// When to plan again if no input arrives before.
    pub wake_at: Option<Timestamp>,
    /// Why the Job gets no Pods now, although it lacks some. None also if it lacks none, or ends.
    pub held: Option<Hold>,
    /// Something waits until the Pods are known up to this revision: everything, or only the end of the Job.
    pub waits_for_pods: Option<Revision>,
    /// Creations of unknown outcome are no longer wanted: a consistent list of the Job's Pods must resolve them.
    pub must_list_pods: bool,
    /// The Job may have changed since its Pods did: read it again before Pods are released uncounted, removed or
    /// created.
    pub must_reread_job: bool,
    /// Finished Pods are newer than our view of the Job: they are deleted once the stream of Jobs is as new.
    pub waits_for_job: bool,
    /// Back-offs that have begun: for users.
    pub backoffs: Vec<BackoffNotice>,
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.status.is_none()
            && self.releases.is_empty()
            && self.deletions.is_empty()
            && self.removals.is_empty()
            && self.creations.is_empty()
            && self.discards.is_empty()
            && self.starts.is_empty()
    }

    /// The Pods are older than the accounting of the Job: nothing can be done until they catch up.
    pub fn gate_closed(&self) -> bool {
        matches!(self.held, Some(Hold::PodsBehind(_)))
    }

    pub(super) fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }

    /// No Pod is created now. This is the only place that derives from the reason what ends the wait: a reason whose
    /// end is not awaited would block the Job forever.
    pub(super) fn hold(&mut self, reason: Hold) {
        match reason {
            Hold::PodsBehind(at) => self.waits_for_pods = Some(at),
            Hold::Refused(until) | Hold::Backoff(until) | Hold::IndexBackoff(until) => self.wake(until),
            Hold::UnwantedCreations => self.must_list_pods = true,
            Hold::JobUnconfirmed | Hold::Discarding { must_reread_job: true } => self.must_reread_job = true,
            // A change of the Job ends it, a response, or the retry that each such creation has scheduled.
            Hold::Suspended
            | Hold::Halting
            | Hold::Removing
            | Hold::Discarding { must_reread_job: false }
            | Hold::CreationsInFlight
            | Hold::CreationsUnknown => {}
        }
        self.held = Some(reason);
    }
}

/// Why a Job that lacks Pods gets none now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Another writer changed the accounting at this revision, and the Pods are not known up to it: the gate is closed.
    PodsBehind(Revision),
    /// `spec.suspend` is set.
    Suspended,
    /// Too many indexes have failed, and the Pods that run may end first (BLPI-11).
    Halting,
    /// Pods that are not wanted are being removed first (MANAGE-3).
    Removing,
    /// Finished Pods are counted and deleted first (TTL-16). Those that our view of the Job does not explain wait for a
    /// newer one.
    Discarding { must_reread_job: bool },
    /// The API refused to create Pods; they are requested again at this time.
    Refused(Timestamp),
    /// Pods have failed; the next one is created at this time (MANAGE-5).
    Backoff(Timestamp),
    /// The same for each index: the first one may be created again at this time (BLPI-6).
    IndexBackoff(Timestamp),
    /// Creations of unknown outcome are no longer wanted: a list of the Job's Pods must resolve them.
    UnwantedCreations,
    /// The batch before has not been answered (MANAGE-8).
    CreationsInFlight,
    /// Creations of unknown outcome fill the batch.
    CreationsUnknown,
    /// The Job may have changed since its Pods did: it is read again first.
    JobUnconfirmed,
}

/// METRIC-8: why Pods are created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CreationReason {
    #[default]
    New,
    RecreateTerminatingOrFailed,
    RecreateFailed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    pub uid: PodUid,
    pub name: CompactString,
    /// For a release without a record: whether the failure policy ignores the failure.
    pub ignored: bool,
    /// The revision that the request is conditional on: for a deletion, and for a release of an uncounted Pod.
    pub revision: Option<Revision>,
}

/// The removal of a Pod that is not wanted: release it (conditional on `revision`, so that a Pod that has just finished
/// is not lost uncounted), then delete it.
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
    /// The failure policy's verdicts on the Pods recorded here (METRIC-7).
    pub handled: Vec<FailureAction>,
    /// The write also marks the Job as one that is tracked the old way (GATE-7).
    pub ends_tracking: bool,
}

/// How far the streams have been observed when a plan is made.
#[derive(Clone, Copy)]
pub struct Horizon<'a> {
    /// The revision up to which the Pods have been observed.
    pub pods_at: Revision,
    /// The revision up to which the Jobs have been observed.
    pub jobs_at: Revision,
    /// What is known about the Pods that are in no ledger.
    pub elsewhere: &'a dyn PodFacts,
    /// Requests wait for their turn: a status write less is time for others.
    pub crowded: bool,
}

/// The inputs of accounting.
#[derive(Clone, Copy)]
pub(super) struct AccountingInputs<'a> {
    pub pods_at: Revision,
    pub elsewhere: &'a dyn PodFacts,
    pub unknown_is_gone: bool,
    pub crowded: bool,
}

pub(super) fn count(value: i64) -> i32 {
    i32::try_from(value.max(0)).unwrap_or(i32::MAX)
}

pub(super) fn len(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

impl Ledger {
    /// Plans as far as the observations allow.
    pub fn plan(&mut self, now: Timestamp, horizon: Horizon<'_>) -> Plan {
        let Horizon { pods_at, jobs_at, elsewhere, crowded } = horizon;
        self.freshness.jobs_observed(jobs_at);
        self.freshness.planning(pods_at.max(self.lists.own_at));
        let mut plan = Plan::default();
        self.retry_refused(now, &mut plan);
        if self.job.status.is_finished() {
            self.plan_sweep(&mut plan);
            return plan;
        }
        if matches!(self.job.spec.completion_mode, CompletionMode::Unknown(_)) {
            // It is unknown how to count its Pods. They must not block the deletion of the Job.
            if self.mode.deleting {
                self.plan_sweep(&mut plan);
            }
            return plan;
        }
        if self.must_end_tracking() {
            self.end_tracking(now, &mut plan);
            return plan;
        }
        let foreign_at = self.freshness.foreign_at();
        let unknown_is_gone = pods_at >= foreign_at;
        let pods_at = pods_at.max(self.lists.own_at);
        if pods_at < foreign_at {
            plan.hold(Hold::PodsBehind(foreign_at));
            return plan;
        }
        // Before Pods are created: it decides which finished Pods stay, and do not count among those that go first.
        self.plan_discards(&mut plan);
        self.plan_looks(now, &mut plan);
        // After these: the index of a Pod that they change waits for its back-off again, also if that is over.
        self.index.advance(now);
        let mut decision = self.decide(now, &mut plan);
        if let Some(failure) = decision.as_mut().filter(|it| !it.stored && self.needs_no_interim(it)) {
            failure.stored = true;
            self.fail_outright(failure.clone());
        }
        let mut manages = false;
        if self.mode.decided() {
            self.plan_deletions(&mut plan);
        } else if decision.is_none()
            && !self.mode.deleting
            && !self.flight.status.as_ref().is_some_and(|flight| flight.decides)
        {
            self.manage(now, &mut plan);
            manages = !self.job.spec.suspend && !self.halts();
        }
        if self.mode.decided() || decision.is_some() || self.mode.deleting || self.job.spec.suspend || self.halts() {
            plan.must_list_pods = self.creations.any_unknown();
        }
        let horizon = AccountingInputs { pods_at, elsewhere, unknown_is_gone, crowded };
        self.plan_status(now, horizon, decision, &mut plan);
        self.plan_releases(now, &mut plan);
        if manages {
            self.plan_starts(pods_at, &mut plan);
        }
        plan.creation_reason = self.creation_reason();
        plan
    }

    /// METRIC-8: from the Pods that this plan is made from, which the stored status does not contain yet.
    fn creation_reason(&self) -> CreationReason {
        if !self.job.gates.enabled(Gate::JobPodReplacementPolicy) {
            return CreationReason::New;
        }
        let (failed, policy) = (self.failed() > 0, self.job.spec.pod_replacement_policy);
        if failed && policy == PodReplacementPolicy::Failed {
            CreationReason::RecreateFailed
        } else if failed || self.counts.of(Flag::Terminating) > 0 {
            CreationReason::RecreateTerminatingOrFailed
        } else {
            CreationReason::New
        }
    }

    // ---- numbers ----

    /// COUNT-3.
    pub(super) fn succeeded(&self) -> i64 {
        if self.mode.indexed {
            return len(self.committed.completed.len()) + len(self.index.completed.len());
        }
        if self.mode.legacy {
            return self.legacy_counts().0;
        }
        let status = &self.job.status;
        i64::from(status.succeeded) + self.counts.of(Flag::NewSucceeded) + len(status.uncounted().succeeded.len())
    }

    /// COUNT-4.
    pub(super) fn failed(&self) -> i64 {
        if self.mode.legacy {
            return self.legacy_counts().1;
        }
        let status = &self.job.status;
        i64::from(status.failed) + self.counts.of(Flag::NewFailed) + len(status.uncounted().failed.len())
    }

    // ---- the end of a Job ----

    /// FIN-1, up to but not including "completions reached". `Decision::stored` tells whether it is already in the
    /// status.
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
        if let Some(failure) = &self.outright {
            return Some(failure.clone());
        }
        if let Some((_, slot)) = self.fail_job.first()
            && let Some(message) = self.entry(*slot).verdict.as_ref().and_then(|verdict| verdict.message.as_deref())
        {
            return Some(Decision::failure("PodFailurePolicy", message));
        }
        if self.backoff_limit_exceeded() {
            return Some(Decision::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
        }
        if let (Some(deadline), false) = (spec.active_deadline_seconds, spec.suspend) {
            // A Job that has not started starts now; with a deadline of 0 it ends now as well (DEADLINE-5).
            let start_at = status.start_time.map(|at| if self.exact_start { self.started_after(at) } else { at });
            let ends_at = start_at.unwrap_or(now) + Span::from_seconds(deadline);
            if now >= ends_at {
                return Some(Decision::failure("DeadlineExceeded", "Job was active longer than specified deadline"));
            }
            if status.start_time.is_some() {
                plan.wake(ends_at);
            }
        }
        // PENDING-3: after the deadline, before the verdicts of the indexes.
        if let Some((due_at, slot)) = self.pending.first().filter(|_| !spec.suspend) {
            if now >= *due_at {
                let Entry { name, created_at, pending, .. } = self.entry(*slot);
                let message = pending::message(name, *created_at, pending.as_deref(), now);
                return Some(Decision::failure(PENDING_TIMED_OUT, &message));
            }
            plan.wake(*due_at);
        }
        if self.mode.indexed {
            let failed = len(self.committed.failed.len()) + len(self.index.failed.len());
            if spec.limits_each_index() && failed > 0 {
                let ended = self.counts.of(Flag::Active) == 0 && self.creations.is_empty();
                if self.failed_too_many() && (ended || !self.job.halts_soon) {
                    return Some(Decision::failure(
                        "MaxFailedIndexesExceeded",
                        "Job has exceeded the specified maximal number of failed indexes",
                    ));
                }
                let all = failed + self.succeeded() >= i64::from(self.mode.index_limit);
                if all {
                    return Some(Decision::failure("FailedIndexes", "Job has failed indexes"));
                }
            }
            return self.succeeds_by_policy();
        }
        None
    }

    /// GATE-11: whether Complete or Failed is written without an interim condition before it. What only Pods show that are
    /// gone when the Job ends is stored in any case, and the API requires it of a Job with a success policy
    /// (STATUSVAL-21).
    pub(super) fn needs_no_interim(&self, decision: &Decision) -> bool {
        let by_pods = ["PodFailurePolicy", "SuccessPolicy", PENDING_TIMED_OUT].contains(&decision.reason.as_str());
        let by_policy = decision.success && self.job.spec.success_policy.is_some();
        !self.job.gates.delays_terminal_conditions() && !by_pods && !by_policy
    }

    /// FIN-1 case 9. The reason and message came with JobSuccessPolicy (GATE-12).
    pub(super) fn completions_reached(&self) -> Decision {
        let mut decision = match self.job.gates.enabled(Gate::JobSuccessPolicy) {
            true => Decision::success("CompletionsReached", "Reached expected number of succeeded pods"),
            false => Decision::success("", ""),
        };
        decision.stored = self.needs_no_interim(&decision);
        decision
    }

    /// FIN-1 case 6: more indexes have failed than may fail.
    fn failed_too_many(&self) -> bool {
        let failed = len(self.committed.failed.len()) + len(self.index.failed.len());
        let spec = &self.job.spec;
        spec.limits_each_index() && failed > 0 && spec.max_failed_indexes.is_some_and(|limit| failed > i64::from(limit))
    }

    /// BLPI-11: the Job starts no more Pods, and fails when those that run have ended.
    fn halts(&self) -> bool {
        self.job.halts_soon && self.failed_too_many()
    }

    /// When the Job really started. If another process wrote the startTime, its part of a second is unknown.
    fn started_after(&self, start_at: Timestamp) -> Timestamp {
        match self.started {
            Some((stored, started_at)) if stored == start_at => started_at,
            _ => start_at + Span::from_seconds(1),
        }
    }

    /// FIN-1 case 8.
    fn succeeds_by_policy(&self) -> Option<Decision> {
        let policy = self.job.spec.success_policy.as_ref().filter(|_| self.mode.indexed)?;
        let completed = self.committed.completed.union(&self.index.completed);
        let rule = policy.matched_rule(&completed, self.mode.index_limit)?;
        Some(Decision::success("SuccessPolicy", &format!("Matched rules at index {rule}")))
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

    /// FIN-5. Creations whose outcome is not known count as Pods: finishing now would leave them behind (S09).
    pub(super) fn completed_all(&self) -> bool {
        let succeeded = self.succeeded();
        let enough = match self.job.spec.completions {
            None => succeeded > 0,
            Some(completions) => succeeded >= i64::from(completions),
        };
        let ended = self.counts.of(Flag::Active) == 0;
        enough && ended && self.creations.is_empty()
    }

    // ---- wanted and actual Pods ----

    fn pod_ref(&self, slot: Slot) -> PodRef {
        let entry = self.entry(slot);
        PodRef { uid: entry.uid.clone(), name: entry.name.clone(), ignored: entry.is_ignored(), revision: None }
    }

    /// FIN-4: the Job ends, and with it every Pod that still runs. The finalizers stay until the Pods are counted.
    fn plan_deletions(&mut self, plan: &mut Plan) {
        let room = self.limits.batch.saturating_sub(self.counts.of(Flag::InFlight) as usize);
        let doomed: Vec<Slot> = self.idle_active().take(room).map(|(_, slot)| slot).collect();
        for slot in doomed {
            let revision = Some(self.entry(slot).revision);
            plan.deletions.push(PodRef { revision, ..self.pod_ref(slot) });
            self.update_entry(slot, |entry| entry.busy = Busy::Deleting);
        }
    }

    /// MANAGE: removes the Pods that are not wanted, and creates those that are missing.
    fn manage(&mut self, now: Timestamp, plan: &mut Plan) {
        if self.job.spec.suspend {
            self.remove_surplus(usize::MAX, &BTreeSet::new(), plan);
            plan.hold(Hold::Suspended);
            return;
        }
        let wanted = self.wanted();
        self.remove_unwanted(wanted, plan);
        let missing = self.missing(wanted);
        if self.halts() {
            plan.hold(Hold::Halting);
            return;
        }
        self.announce_indexes(now, plan);
        if let Err(reason) = self.may_create(missing, now, plan) {
            if let Hold::Backoff(until) = reason {
                self.announce_backoff(until, now, plan);
            }
            plan.hold(reason);
            return;
        }
        self.retry_unknown_creations(now, plan);
        if missing <= 0 {
            return;
        }
        if let Err(reason) = self.may_begin_batch() {
            plan.hold(reason);
            return;
        }
        let room = self.creations.room();
        if room == 0 {
            plan.hold(Hold::CreationsUnknown);
        }
        let batch = usize::try_from(missing).unwrap_or(0).min(room).min(self.limits.batch);
        self.create(batch, now, plan);
        match self.index.next_wake() {
            Some(retry_at) if self.creations.is_empty() => plan.hold(Hold::IndexBackoff(retry_at)),
            Some(retry_at) => plan.wake(retry_at),
            None => {}
        }
    }

    /// How many Pods the Job is to have, including those that end by themselves.
    fn wanted(&self) -> i64 {
        let spec = &self.job.spec;
        let parallelism = i64::from(spec.parallelism.max(0));
        match spec.completions {
            // Creations in flight are left alone; creations of unknown outcome are not requested again.
            None if self.succeeded() > 0 => self.remaining() - self.unstarted() + len(self.creations.in_flight()),
            None => parallelism,
            Some(completions) => (i64::from(completions) - self.succeeded()).clamp(0, parallelism),
        }
    }

    /// Active Pods that are not being removed.
    fn remaining(&self) -> i64 {
        self.counts.of(Flag::Active) - self.counts.of(Flag::Removing)
    }

    /// Those of them that have not started.
    fn unstarted(&self) -> i64 {
        len(self.start_gated.iter().filter(|slot| !self.entry(**slot).removal).count())
    }

    /// RM-1: Pods without a place among the indexes, and as many others as there are too many.
    fn remove_unwanted(&mut self, wanted: i64, plan: &mut Plan) {
        let active = self.remaining();
        let misfits = self.remove_misfits(plan);
        let surplus = (active - len(misfits.len()) - wanted).max(0);
        self.remove_surplus(usize::try_from(surplus).unwrap_or(0), &misfits, plan);
    }

    /// How many Pods must be created; less than none if creations of unknown outcome are too many.
    fn missing(&self, wanted: i64) -> i64 {
        let occupied = if self.job.spec.waits_for_terminal_phase() { self.counts.of(Flag::Terminating) } else { 0 };
        wanted - self.remaining() - len(self.creations.len()) - occupied
    }

    /// Whether Pods may be created at all, including those whose creation is repeated because its outcome is unknown.
    fn may_create(&mut self, missing: i64, now: Timestamp, plan: &Plan) -> Result<(), Hold> {
        if missing <= 0 && self.creations.is_empty() {
            return Ok(());
        }
        if plan.must_reread_job {
            return Err(Hold::JobUnconfirmed);
        }
        if !plan.removals.is_empty() || self.counts.of(Flag::Removing) > 0 {
            return Err(Hold::Removing);
        }
        if let Some(until) = self.creations.refused_until(now) {
            return Err(Hold::Refused(until));
        }
        if !self.job.spec.limits_each_index()
            && let Some(until) = self.history.retry_at(&self.job.backoff, &self.job.uid)
            && now < until
        {
            return Err(Hold::Backoff(until));
        }
        if self.finished_pods_to_go() >= DISCARD_BATCHES * self.limits.batch {
            return Err(Hold::Discarding { must_reread_job: plan.waits_for_job });
        }
        if self.creations.any_unknown() && self.unwanted_creation(missing, now) {
            return Err(Hold::UnwantedCreations);
        }
        Ok(())
    }

    /// EVENT-12, once for each back-off of the Job.
    fn announce_backoff(&mut self, until: Timestamp, now: Timestamp, plan: &mut Plan) {
        if self.announced.replace(until) == Some(until) {
            return;
        }
        plan.backoffs.push(self.backoff_notice(until, now));
    }

    pub(super) fn backoff_notice(&self, until: Timestamp, now: Timestamp) -> BackoffNotice {
        let last = self.history.last_failure().and_then(|failure| self.find(&failure.uid));
        BackoffNotice {
            index: None,
            failures: u32::try_from(self.failed()).unwrap_or(0),
            allowed: u32::try_from(self.job.spec.backoff_limit).unwrap_or(0).saturating_add(1),
            one_task: self.job.spec.completions == Some(1),
            waits_for: until - now,
            retry_at: until,
            cause: last.and_then(|slot| self.entry(slot).cause.as_deref().cloned()),
        }
    }

    /// EVENT-12, once for each back-off of an index.
    fn announce_indexes(&mut self, now: Timestamp, plan: &mut Plan) {
        let limit = self.job.spec.backoff_limit_per_index.and_then(|limit| u32::try_from(limit).ok());
        for index in std::mem::take(&mut self.index.unannounced) {
            let (Some(retry_at), Some(kept)) = (self.index.waiting.get(&index), self.index.kept.get(&index)) else {
                continue;
            };
            let (kept, retry_at) = (self.entry(*kept), *retry_at);
            if retry_at > now {
                plan.backoffs.push(BackoffNotice {
                    index: Some(index),
                    failures: kept.failure_count.saturating_add(u32::from(!kept.is_ignored())),
                    allowed: limit.unwrap_or(0).saturating_add(1),
                    one_task: true,
                    waits_for: retry_at - now,
                    retry_at,
                    cause: kept.cause.as_deref().cloned(),
                });
            }
        }
    }

    /// Whether Pods may be created beyond those that were requested before.
    fn may_begin_batch(&mut self) -> Result<(), Hold> {
        // All responses of a batch arrive before the next batch is sent, so that a quota refuses at most one batch
        // (MANAGE-8).
        if self.creations.in_flight() > 0 {
            return Err(Hold::CreationsInFlight);
        }
        if self.freshness.is_confirmed() && self.freshness.explains_all() { Ok(()) } else { Err(Hold::JobUnconfirmed) }
    }

    /// RM-1 for Indexed Jobs: Pods without a valid index, and all but one Pod of each index. Of any Job: Pods that have
    /// not started and never will. Returns those that must be removed, now or later.
    fn remove_misfits(&mut self, plan: &mut Plan) -> BTreeSet<Slot> {
        let mut victims: BTreeSet<Slot> = self.misfits.iter().copied().collect();
        // TTL-24: those that never start. A work queue starts none after its first success, and without the finalizer the
        // removal has begun.
        let none_starts = self.halts() || (self.job.spec.completions.is_none() && self.succeeded() > 0);
        let never = |slot: &Slot| {
            let entry = self.entry(*slot);
            let is_done = entry.valid_index(self.mode).is_some_and(|index| self.is_done(index));
            none_starts || is_done || !(entry.tracked || self.mode.legacy)
        };
        victims.extend(self.start_gated.iter().copied().filter(never));
        for index in &self.index.crowded {
            let mut pods: Vec<_> = self
                .pods_of(*index)
                .filter(|(_, entry)| entry.is_active() && !entry.removal)
                .map(|(slot, entry)| (entry.removal_class(), entry.removal_rank(), entry.tie, slot))
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
        victims
    }

    /// As many Pods as there are too many, beside those that do not fit: some of these may still be there, if our view of the
    /// Job is too old to decide about them.
    fn remove_surplus(&mut self, surplus: usize, misfits: &BTreeSet<Slot>, plan: &mut Plan) {
        let room = self.limits.batch.saturating_sub(self.counts.of(Flag::InFlight) as usize);
        let surplus = surplus.min(room);
        if surplus == 0 {
            return;
        }
        let mut victims = self.first_to_go(surplus + misfits.len());
        victims.retain(|slot| !misfits.contains(slot));
        for slot in victims.into_iter().take(surplus) {
            self.remove(slot, plan);
        }
    }

    /// Whether our view of the Job may decide about this Pod: not if the Job may have changed since the Pod did. An
    /// index that is out of range in an old view of the Job may be in range by now.
    fn may_judge(&self, slot: Slot) -> bool {
        self.freshness.covers(self.entry(slot).revision)
    }

    fn remove(&mut self, slot: Slot, plan: &mut Plan) {
        if !self.may_judge(slot) {
            plan.must_reread_job = true;
            return;
        }
        let entry = self.entry(slot);
        plan.removals.push(Removal {
            uid: entry.uid.clone(),
            name: entry.name.clone(),
            revision: entry.revision,
            tracked: entry.tracked,
        });
        self.update_entry(slot, |entry| {
            entry.busy = Busy::Removing;
            entry.removal = true;
        });
    }

    fn create(&mut self, batch: usize, now: Timestamp, plan: &mut Plan) {
        if self.mode.indexed {
            let indexes: Vec<CompletionIndex> = self.index.free.iter().take(batch).collect();
            for index in indexes {
                let attempt = (0..ATTEMPTS)
                    .find(|attempt| {
                        !self.index.taken_names.contains(&(Some(index), *attempt))
                            && !self.name_in_use(&self.names.name(Some(index), *attempt))
                    })
                    .unwrap_or(0);
                self.begin_creation(Some(index), attempt, now, plan);
            }
        } else {
            // Start where a leader with the same view would: at the lowest number that no Pod has ever had. Pods that
            // were counted and are gone had numbers too, the lowest of those that are free. Free numbers above them
            // belong to creations that are in flight or failed: whichever leader sent them, they are the ones that are
            // wanted.
            let status = &self.job.status;
            let finished = i64::from(status.succeeded) + i64::from(status.failed) + len(status.uncounted().len());
            let gone = (finished - self.counts.of(Flag::Counted)).max(0);
            let gone = u32::try_from(gone % i64::from(ATTEMPTS)).unwrap_or(0);
            let mut from = self.used_attempts.absent(gone);
            for _ in 0..batch {
                let mut attempt = self.next_attempt(from);
                while self.index.taken_names.contains(&(None, attempt)) {
                    attempt = self.next_attempt(attempt + 1);
                }
                self.used_attempts.insert(attempt);
                self.begin_creation(None, attempt, now, plan);
                from = attempt;
            }
        }
    }

    /// The next number whose name is not in use. Numbers wrap around; there are more numbers than Pods.
    fn next_attempt(&self, from: u32) -> u32 {
        match self.used_attempts.first_absent_from(from % ATTEMPTS) {
            attempt if attempt < ATTEMPTS => attempt,
            _ => self.used_attempts.first_absent_from(0) % ATTEMPTS,
        }
    }

    fn begin_creation(&mut self, index: Option<CompletionIndex>, attempt: u32, now: Timestamp, plan: &mut Plan) {
        let name = self.names.name(index, attempt);
        plan.creations.push(self.creation(name.clone(), index));
        self.creations.begin(name, index, attempt, now);
        if let Some(index) = index {
            self.index.creating.insert(index);
            self.refresh_index(index);
        }
    }

    fn creation(&self, name: CompactString, index: Option<CompletionIndex>) -> NewPod {
        let mut creation = NewPod { name, index, failure_count: None, ignored_failure_count: 0 };
        if self.job.spec.limits_each_index() {
            let kept = index.and_then(|index| self.index.kept.get(&index)).map(|slot| self.entry(*slot));
            // A failure that is recorded counts, whatever the Pod shows since.
            let ignored = |kept: &Entry| kept.is_ignored() && kept.recorded.is_none();
            let counts = kept.map_or((0, 0), |kept| match ignored(kept) {
                true => (kept.failure_count, kept.ignored_failure_count.saturating_add(1)),
                false => (kept.failure_count.saturating_add(1), kept.ignored_failure_count),
            });
            creation.failure_count = Some(counts.0);
            creation.ignored_failure_count = counts.1;
        }
        creation
    }

    /// Repeats creations of unknown outcome, with the same name, so that at most one Pod of each is created.
    fn retry_unknown_creations(&mut self, now: Timestamp, plan: &mut Plan) {
        let (again, next) = self.creations.retry(now);
        for (name, index) in again {
            plan.creations.push(self.creation(name, index));
        }
        next.into_iter().for_each(|at| plan.wake(at));
    }

    /// Whether a creation of unknown outcome is for a Pod that is no longer wanted, or not yet: repeating it would
    /// create the Pod. An index that already has another Pod needs none.
    fn unwanted_creation(&self, missing: i64, now: Timestamp) -> bool {
        let unwanted = |index: CompletionIndex| {
            let kept = self.index.kept.get(&index).map(|slot| self.entry(*slot));
            let retry_at = kept.map(|kept| self.index_retry_at(index, kept));
            index >= self.mode.index_limit
                || self.is_done(index)
                || self.pods_of(index).any(|(_, entry)| self.occupies(entry))
                || retry_at.is_some_and(|retry_at| now < retry_at)
        };
        missing < 0 || self.creations.unknown_indexes().any(unwanted)
    }

    /// Whether an index has completed or failed, in the stored status or by a Pod.
    fn is_done(&self, index: CompletionIndex) -> bool {
        let done = [&self.committed.completed, &self.committed.failed, &self.index.completed, &self.index.failed];
        done.iter().any(|set| set.contains(index))
    }

    /// Whether a Pod keeps its place: it may yet succeed.
    fn occupies(&self, entry: &Entry) -> bool {
        entry.is_active() || (self.mode.waits_for_terminal_phase && entry.is_terminating(self.mode))
    }

    fn retry_refused(&mut self, now: Timestamp, plan: &mut Plan) {
        while let Some(slot) = self.refusals.pop_due(now) {
            if self.entry(slot).busy == Busy::Refused {
                self.update_entry(slot, |entry| {
                    entry.busy = Busy::No;
                    entry.removal = false;
                });
            }
        }
        self.refusals.next_wake().into_iter().for_each(|at| plan.wake(at));
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
            let misfit = self.mode.indexed && entry.recorded.is_none() && entry.valid_index(self.mode).is_none();
            // Only an old view of the Job says that the index is complete: it may have been taken off the list since.
            let by_index = self.mode.indexed
                && entry.phase == Phase::Succeeded
                && entry.recorded.is_none()
                && !entry.index_counted;
            if (misfit || by_index) && !self.may_judge(slot) && !self.job.status.is_finished() {
                plan.must_reread_job = true;
                unjudged.push(slot);
                continue;
            }
            // A Pod that is released uncounted must be as it was observed: another Job may have adopted it meanwhile, or a
            // failure that is ignored may have become a success (S18).
            let ignored = entry.is_failed(self.mode) && entry.is_ignored();
            let uncounted = misfit || (entry.recorded.is_none() && (self.job.deleting || ignored));
            let revision = uncounted.then_some(entry.revision);
            plan.releases.push(PodRef { revision, ..self.pod_ref(slot) });
            self.flight.releases += 1;
            self.update_entry(slot, |entry| entry.busy = Busy::Releasing);
        }
        for slot in unjudged {
            self.push_releasable(slot);
        }
    }

    /// TTL-16: the finished Pods that will be deleted, and are still there.
    fn finished_pods_to_go(&self) -> usize {
        if self.job.early_deletion == EarlyDeletion::Nothing {
            return 0;
        }
        let uncounted = self.committed.uncounted.len() + self.counts.of(Flag::Due) as usize;
        let discardable = (self.counts.of(Flag::Discardable) as usize).saturating_sub(self.kept_finished);
        uncounted + self.index.completed.len() + discardable + self.flight.discards as usize
    }

    /// TTL-14 to TTL-17: deletes finished Pods that are counted, at most a batch at a time.
    fn plan_discards(&mut self, plan: &mut Plan) {
        if self.mode.deleting || self.job.early_deletion == EarlyDeletion::Nothing {
            return;
        }
        let room = self.limits.batch.saturating_sub(self.flight.discards as usize);
        for slot in self.take_discardable(room, plan) {
            let revision = Some(self.entry(slot).revision);
            plan.discards.push(PodRef { revision, ..self.pod_ref(slot) });
            self.flight.discards += 1;
            self.update_entry(slot, |entry| entry.busy = Busy::Discarding);
        }
    }

    /// TTL-24: Pods behind their start gate may start if the Job wants every Pod that could succeed, as far as all Pods
    /// are known that were created before, and all that were counted and deleted before. Of two leaders the one that
    /// decides about the later Pod knows the earlier one; so of all Pods that start, the last one had a place beside all
    /// others.
    fn plan_starts(&mut self, pods_at: Revision, plan: &mut Plan) {
        let room = self.limits.batch.saturating_sub(self.flight.starts as usize);
        // What is being removed may be too many of those that wait.
        if room == 0 || self.start_gated.is_empty() || self.counts.of(Flag::InFlight) > 0 {
            return;
        }
        let mut starting = Vec::new();
        for slot in self.start_gated.iter().copied().filter(|slot| self.has_place(*slot)) {
            let at = self.entry(slot).revision;
            if at > pods_at {
                // Others may have been created before it that only the stream will show.
                plan.starts_at = Some(plan.starts_at.map_or(at, |known| known.min(at)));
            } else if self.freshness.counts_all_before(at) {
                starting.push(slot);
                if starting.len() == room {
                    break;
                }
            } else {
                plan.must_reread_job = true;
            }
        }
        for slot in starting {
            let revision = Some(self.entry(slot).revision);
            plan.starts.push(PodRef { revision, ..self.pod_ref(slot) });
            self.flight.starts += 1;
            self.update_entry(slot, |entry| entry.busy = Busy::Starting);
        }
    }

    /// Whether the Job has a place for a Pod that waits to start, beside all others that could succeed.
    fn has_place(&self, slot: Slot) -> bool {
        let entry = self.entry(slot);
        if entry.busy != Busy::No || !(entry.tracked || self.mode.legacy) {
            return false;
        }
        if self.mode.indexed {
            let places = |index| self.pods_of(index).filter(|(_, entry)| self.occupies(entry)).count();
            return entry.valid_index(self.mode).is_some_and(|index| !self.is_done(index) && places(index) == 1);
        }
        let waits = self.mode.waits_for_terminal_phase;
        let others = if waits { self.counts.of(Flag::Terminating) } else { 0 };
        let completions = self.job.spec.completions.map(i64::from);
        completions.is_none_or(|most| self.succeeded() + self.counts.of(Flag::Active) + others <= most)
    }

    /// REPL-8. Not part of what makes a plan non-empty: nothing is written.
    fn plan_looks(&mut self, now: Timestamp, plan: &mut Plan) {
        let Some(wait) = self.job.gives_up_after() else { return };
        let all: Vec<Slot> = self.terminating.iter().copied().collect();
        for slot in all {
            let entry = self.entry(slot);
            if entry.given_up {
                continue;
            }
            let first = entry.finished_at.min(now) + wait;
            let due_at = *self.looks.entry(slot).or_insert(first);
            if due_at > now {
                plan.wake(due_at);
                continue;
            }
            // The response sets the time of the next check; this timer covers a lost response.
            self.looks.insert(slot, now + wait);
            plan.wake(now + wait);
            plan.looks.push(self.pod_ref(slot));
        }
    }

    /// Releases the Pods of a finished Job that still have the finalizer: nothing is counted any more (S10, S12).
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
            let revision = Some(self.entry(slot).revision);
            plan.releases.push(PodRef { revision, ..self.pod_ref(slot) });
            self.flight.releases += 1;
            self.update_entry(slot, |entry| entry.busy = Busy::Releasing);
        }
    }
}
