//! The status write: it tallies what was released, records what has finished, reports the live counts, and ends the
//! Job.

use std::sync::Arc;

use super::classification::Flag;
use super::entry::Standing;
use super::flight::{Backlog, StatusInFlight, Wish};
use super::plan::{AccountingInputs, Plan, StatusWrite, count, len};
use super::{Facts, Ledger};
use crate::accounting::{CausalSnapshot, Outcome};
use crate::conditions::{self, Decision};
use crate::gates::Gate;
use crate::job::{JobStatus, Uncounted, condition};
use crate::policy::FailureAction;
use crate::time::{Span, Timestamp};

/// How long the next status write waits for releases without a response. One hanging release must not delay the rest.
const RELEASE_PATIENCE: Span = Span::from_seconds(1);
impl Ledger {
    /// The single write that tallies what was released, records what has finished since, and reports the live counts.
    pub(super) fn plan_status(
        &mut self,
        now: Timestamp,
        horizon: AccountingInputs<'_>,
        decision: Option<Decision>,
        plan: &mut Plan,
    ) {
        if !self.may_write_status(now, plan) {
            return;
        }
        if self.flight.releases > 0 {
            let patience_ends = self.flight.releases_since + RELEASE_PATIENCE;
            if now < patience_ends {
                plan.wake(patience_ends);
                return;
            }
        }
        let decision = decision.or_else(|| self.completed_all().then(|| self.completions_reached()));
        // What cannot be undone requires Pods as new as the Job: Pods of another leader may be among them.
        let behind = horizon.pods_at < self.freshness.edited_at();
        let finishes = decision.is_some() && self.may_finish();
        let pauses = self.job.spec.suspend && decision.is_none() && self.suspended_condition_differs();
        if behind && (finishes || pauses && !self.suspends_later(plan)) {
            plan.waits_for_pods = Some(self.freshness.edited_at());
        }
        if behind && finishes {
            return;
        }
        let waits = behind && pauses;
        let managed = decision.is_none() && !self.mode.deleting && !self.suspends_later(plan) && !waits;
        let news = self.accounting_news();
        let decides = decision.as_ref().is_some_and(|decision| !decision.stored);
        let suspends = managed && self.suspended_condition_differs();
        let urgent = news > 0 || decides || finishes || suspends;
        if !urgent && !self.live_counts_differ() {
            return;
        }
        let wish = if decides || finishes || suspends {
            Wish::AtOnce
        } else if urgent {
            Wish::Accounting(if news >= self.limits.uncounted {
                Backlog::Full
            } else if self.counts.of(Flag::Active) == 0 && self.creations.times().is_none() {
                Backlog::Last
            } else {
                Backlog::Growing { crowded: horizon.crowded }
            })
        } else {
            Wish::LiveCounts { creating: self.creations.times() }
        };
        if let Some(wait_until) = self.flight.pace(now, wish) {
            plan.wake(wait_until);
            return;
        }
        self.trim_due();
        let Some((status, flight, handled, batch)) = self.next_status(now, horizon, decision.as_ref(), managed) else {
            return;
        };
        if status == self.job.status {
            return;
        }
        if let Some(start_at) = status.start_time.filter(|_| status.start_time != self.job.status.start_time) {
            self.started = Some((start_at, now));
        }
        self.flight.status = Some(flight);
        self.flight.last_batch = batch;
        plan.status = Some(Box::new(StatusWrite { base: self.job.revision, status, handled, ends_tracking: false }));
    }

    /// One status write at a time, and none while the server refuses them (CONST-1).
    pub(super) fn may_write_status(&self, now: Timestamp, plan: &mut Plan) -> bool {
        if let Some(retry_at) = self.flight.refused_until(now) {
            plan.wake(retry_at);
            return false;
        }
        self.flight.status.is_none()
    }

    /// How much accounting there is to write: Pods to record, UIDs to tally, index lists to repair.
    fn accounting_news(&self) -> usize {
        let tallyable = self.committed.uncounted.len().saturating_sub(self.counts.of(Flag::Held) as usize);
        let room = self.limits.uncounted.saturating_sub(self.counts.of(Flag::Held) as usize);
        let indexes = self.index.completed.len() + self.index.failed.len();
        let mends = usize::from(
            self.job.status.completion_time.is_some()
                || self.committed.indexes_differ
                || (self.mode.indexed && self.job.status.succeeded != self.indexed_successes()),
        );
        if self.mode.legacy {
            let status = &self.job.status;
            let succeeded = !self.mode.indexed && i64::from(status.succeeded) != self.succeeded();
            let seen = [succeeded, i64::from(status.failed) != self.failed(), !status.uncounted().is_empty()];
            return indexes + mends + seen.into_iter().filter(|differs| *differs).count();
        }
        let due = self.counts.of(Flag::Due) as usize;
        tallyable + due.min(room) + indexes + mends
    }

    fn live_counts_differ(&self) -> bool {
        let status = &self.job.status;
        let (active, ready, terminating) = self.live_counts();
        status.active != active
            || status.ready != Some(ready)
            || status.terminating != terminating
            || status.uncounted_terminated_pods.is_none() != self.mode.legacy
            || (status.start_time.is_none() && !self.job.spec.suspend)
    }

    /// Active, ready and terminating, computed from the same set of Pods, so that they are always consistent (S20,
    /// S27). A Pod that was given up still occupies its node, as far as is known: a quota must not give its resources to
    /// others before it is gone (REPL-9).
    fn live_counts(&self) -> (i32, i32, Option<i32>) {
        let active = self.counts.of(Flag::Active);
        let ready = self.counts.of(Flag::Ready);
        let shown = self.job.gates.enabled(Gate::JobPodReplacementPolicy);
        let terminating = self.counts.of(Flag::Terminating) + self.counts.of(Flag::Fenced);
        (count(active), count(ready), shown.then(|| count(terminating)))
    }

    /// FIN-6 phase 2: everything is counted and released, nothing runs, and nothing is about to run.
    fn may_finish(&self) -> bool {
        let settled = self.counts.of(Flag::Tracked) == 0;
        let early = !self.job.gates.delays_terminal_conditions();
        let ended = self.counts.of(Flag::Terminating) == 0 || early;
        settled && ended && self.counts.of(Flag::Active) == 0 && self.creations.is_empty() && self.flight.releases == 0
    }

    /// SUSP-8: a Job is reported as suspended once its Pods are no longer active. A user who sees the condition may
    /// change the template, which the API does not allow earlier. Removals that the server refuses are not waited for.
    fn suspends_later(&self, plan: &Plan) -> bool {
        let unsettled = plan.must_reread_job || self.counts.of(Flag::InFlight) > 0 || self.creations.in_flight() > 0;
        self.job.spec.suspend && unsettled
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
        horizon: AccountingInputs<'_>,
        decision: Option<&Decision>,
        managed: bool,
    ) -> Option<(JobStatus, StatusInFlight, Vec<FailureAction>, usize)> {
        let job = &self.job;
        let spec = &job.spec;
        let at = now.truncated();
        let mut status = job.status.clone();
        status.completion_time = None;
        let mut flight = StatusInFlight::default();

        // Tally, then record: both behind the gate, both in this one write.
        let foreign_at = self.freshness.foreign_at();
        let facts = Facts { ledger: self, elsewhere: horizon.elsewhere, unknown_is_gone: horizon.unknown_is_gone };
        let snapshot = CausalSnapshot::take(job.status.uncounted(), &facts, horizon.pods_at, foreign_at)?;
        let tally = snapshot.tally();
        status.succeeded = count(i64::from(status.succeeded) + len(tally.succeeded.len()));
        status.failed = count(i64::from(status.failed) + len(tally.failed.len()));
        let mut lists: Uncounted = tally.left;
        let mut handled = Vec::new();
        let mut batch = tally.succeeded.len() + tally.failed.len();
        for entry in self.due_entries() {
            if lists.len() >= self.limits.uncounted {
                break;
            }
            let Standing::Due(outcome) = self.standing(entry) else {
                continue;
            };
            let recorded = snapshot.record(&mut lists, &entry.uid, outcome);
            batch += usize::from(recorded);
            handled.extend(entry.action().filter(|_| recorded && outcome == Outcome::Failed));
        }
        status.uncounted_terminated_pods = Some(lists);
        if self.mode.legacy {
            (status.succeeded, status.failed) = (count(self.succeeded()), count(self.failed()));
            status.uncounted_terminated_pods = None;
        }
        self.next_indexes(&mut status, &mut flight);
        batch += flight.completed.len();

        let (active, ready, terminating) = self.live_counts();
        status.active = active;
        status.ready = Some(ready);
        status.terminating = terminating;

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

    /// `status.succeeded` of an Indexed Job: the number of completed indexes. STATUSVAL-24 allows it to decrease only
    /// while parallelism equals completions; until then a Job that was scaled down keeps its number.
    fn indexed_successes(&self) -> i32 {
        let successes = count(self.succeeded());
        let may_fall = self.job.spec.completions == Some(self.job.spec.parallelism);
        if may_fall { successes } else { successes.max(self.job.status.succeeded) }
    }

    /// IDX-1, BLPI-2: successes of an Indexed Job are recorded by their index; they need no tally.
    fn next_indexes(&self, status: &mut JobStatus, flight: &mut StatusInFlight) {
        if !self.mode.indexed {
            if !status.completed_indexes.is_empty() {
                status.completed_indexes = Arc::from("");
            }
            status.failed_indexes = None;
            return;
        }
        let mends = self.committed.indexes_differ;
        if mends || !self.index.completed.is_empty() {
            let completed = self.committed.completed.union(&self.index.completed);
            status.completed_indexes = completed.text().into();
            flight.completed = self.index.completed.iter().collect();
            let pods = flight.completed.iter().flat_map(|index| self.pods_of(*index)).map(|(_, entry)| entry);
            let index_counted = pods.filter(|entry| entry.tracked && self.standing(entry) == Standing::IndexDue);
            flight.succeeded = index_counted.map(|entry| entry.uid.clone()).collect();
        }
        status.succeeded = self.indexed_successes();
        if mends || !self.index.failed.is_empty() {
            flight.failed = self.index.failed.iter().collect();
            let failed = self.committed.failed.union(&self.index.failed);
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
            // The deadline starts again. From a condition that is neither True nor False this is not a resume, and the
            // API would refuse it.
            status.start_time = Some(at);
        }
    }

    /// FIN-6: the interim condition, and the terminal one once nothing is left to do.
    fn enact(&self, decision: &Decision, status: &mut JobStatus, at: Timestamp) {
        // Even if the clock steps back, a Job does not end before it starts (H4).
        let at = status.start_time.map_or(at, |start_at| at.max(start_at));
        if !decision.stored {
            // A stored False condition belongs to another writer and stays (VEC-23).
            let fresh = conditions::new(decision.interim(), "True", &decision.reason, &decision.message, at);
            status.conditions.push(fresh);
        }
        let uncounted_empty = status.uncounted().is_empty();
        // A stray completionTime is cleared first: it may be removed, but not changed.
        let stray_completion = self.job.status.completion_time.is_some();
        if !self.may_finish() || !uncounted_empty || stray_completion {
            return;
        }
        let completions_zero = self.job.spec.completions == Some(0) && self.job.spec.suspend;
        if status.start_time.is_none() && !completions_zero {
            // A suspended Job that ends for another reason than having nothing to do (DEFECT-6).
            status.start_time = Some(at);
        }
        // A Job does not wait for the Pods that it gave up, and the API accepts no end while any terminate (STATUSVAL-18).
        status.terminating = status.terminating.map(|_| count(self.counts.of(Flag::Terminating)));
        let kind = if decision.success { condition::COMPLETE } else { condition::FAILED };
        conditions::set(status, conditions::new(kind, "True", &decision.reason, &decision.message, at));
        if decision.success {
            status.completion_time = Some(at);
        }
    }
}
