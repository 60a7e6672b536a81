//! How long a Job waits because Pods have failed.
//!
//! The controller counts the failures of all Pods that it has seen (BACKOFF-2). As long as these Pods exist, the ledger says
//! when it goes on. Where some are gone (deleted by a user, or by the Pod garbage collector as too many), the objects only
//! say how many failures were counted. Then an Event of the controller tells the time, or the latest time is told to which
//! so many failures can lead.

use tally_core::backoff::BackoffNotice;
use tally_core::ledger::{Plan, RememberedBackoff};
use tally_core::pod::Phase;
use tally_core::time::Timestamp;

use super::{Story, Work};
use crate::Reason;
use crate::cause::{Cause, GoneFailures};
use crate::evidence::status_written_at;
use crate::failure::{self, Failure};
use crate::pod::Pod;
use crate::text::duration;

impl Story<'_> {
    /// `known`: when the back-off ends by the Pods that are there.
    pub(super) fn backoff(
        &self,
        plan: &Plan,
        known: Option<Timestamp>,
        remembered: Option<&RememberedBackoff>,
    ) -> Option<Reason> {
        let known = known.map(|until| {
            let notice = plan.backoffs.iter().min_by_key(|notice| notice.retry_at);
            let more = plan.backoffs.len().saturating_sub(1);
            let also = if more > 0 { format!(", and {more} more indexes wait") } else { String::new() };
            let detail = notice.map_or_else(|| "back-off".to_owned(), |notice| self.attempt(notice) + &also);
            let cause = Cause::BackOff { until: Some(until), gone: None, detail };
            Reason { cause, since: self.last_failed_at() }
        });
        if remembered.is_none() {
            return known;
        }
        // What the controller has said holds until a Pod is created, ends, or is counted as failed.
        let changed = |pod: &Pod<'_>| match pod.view.phase.is_terminal() {
            true => pod.view.created_at.max(pod.view.finished_at),
            false => pod.view.created_at,
        };
        let changed_at = self.own.iter().map(changed).filter(|at| *at <= self.now).max();
        let told = self.evidence.last_event("Job", "BackOff", changed_at);
        let told = told.and_then(|event| Some((BackoffNotice::parse(event.message)?, event.last_at)));
        let status = &self.view.status;
        let counted = usize::try_from(status.failed).unwrap_or(0) + status.uncounted().failed.len();
        let holds = |notice: &BackoffNotice| {
            notice.retry_at > self.now && (notice.index.is_some() || notice.failures as usize >= counted)
        };
        if let Some((notice, at)) = told.filter(|(notice, _)| holds(notice)) {
            let detail = format!("{}{}", notice.attempt(), notice.because());
            let cause = Cause::BackOff { until: Some(notice.retry_at), gone: None, detail };
            return Some(Reason { cause, since: Some(at) });
        }
        // A controller that tries to create Pods does not wait for Pods that are gone.
        let tries = self.evidence.last_event("Job", "FailedCreate", Some(self.settled_at)).is_some();
        let Some(remembered) = remembered.filter(|it| it.notice.retry_at > self.now && !tries) else {
            return known;
        };
        let (until, detail) = (Some(remembered.notice.retry_at), self.attempt(&remembered.notice));
        let since = self.last_failed_at().or(Some(self.settled_at));
        Some(Reason { cause: Cause::BackOff { until, gone: Some(self.gone(remembered)), detail }, since })
    }

    /// When a Pod that is gone can have failed at the latest, and whether that is certain: it was counted by a write of the
    /// status, whose time the API server may have stored.
    pub(super) fn last_counted_at(&self) -> (Timestamp, bool) {
        let written_at = status_written_at(&self.evidence.object).filter(|at| *at <= self.now);
        written_at.map_or((self.settled_at, false), |at| (at, true))
    }

    fn gone(&self, remembered: &RememberedBackoff) -> GoneFailures {
        let (last_at, is_certain) = self.last_counted_at();
        GoneFailures { pods: remembered.gone, unless_after: (!is_certain).then_some(last_at) }
    }

    /// `attempt 3 of 7 (last failure: exit code 128 (StartError)): no such program`
    fn attempt(&self, notice: &BackoffNotice) -> String {
        let mut text = format!("{}{}", notice.attempt(), notice.because());
        let (last, _) = failure::of_job(&self.own, false);
        if let Some(why) = last.first().and_then(Failure::start_error) {
            text.push_str(&format!(": {}", why.trim_end_matches('.')));
        }
        text
    }

    fn last_failed_at(&self) -> Option<Timestamp> {
        let failed = self.own.iter().filter(|pod| pod.view.phase == Phase::Failed);
        failed.map(|pod| pod.view.finished_at).max()
    }

    /// The controller may have seen Pods that failed after everything that is seen to have changed, and are gone.
    pub(super) fn forgotten_backoff(&self, work: &Work, remembered: Option<&RememberedBackoff>) -> Option<Reason> {
        let remembered = remembered.filter(|_| work.create > 0)?;
        let gone = Some(self.gone(remembered)).filter(|gone| gone.unless_after.is_some())?;
        // Jitter at most doubles the longest delay.
        let longest = self.view.backoff.max_for;
        if self.settled_at + longest + longest < self.now {
            return None;
        }
        let RememberedBackoff { longest_for, notice, .. } = remembered;
        let (failures, most) = (notice.failures, duration(*longest_for));
        let detail = format!("after {failures} failures it waits for at most {most} since the last one");
        let cause = Cause::BackOff { until: None, gone: Some(gone), detail };
        Some(Reason { cause, since: Some(self.settled_at) })
    }
}
