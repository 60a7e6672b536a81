//! One Pod on this node: what its containers do, what to do next, and what to report about it. No I/O and no clock.
//!
//! A [`PodWorker`] has three kinds of input: the Pod as the API shows it (`observe`), what happened to its processes
//! (`hear`), and the responses to its own requests (`read`, `written`, `removed`). After each input `proceed` evaluates
//! the whole state and returns what to do now: commands for the half that acts, events, and the next wake-up time.
//! `proceed` may be called at any time: if nothing has changed, it does nothing.
//!
//! A Pod ends in this order: its containers have ended, the phase Succeeded or Failed is stored in the API, and only
//! then, if the Pod is being deleted, the node removes it.

mod adopt;
mod checks;
mod container;
mod containers;
mod ending;
mod loss;
mod reporter;
mod row;
mod setup;
mod start;
mod status;
mod stop;
mod storage;

use std::collections::BTreeSet;

use tally_core::ids::{PodUid, Revision};
use tally_core::time::{Span, Timestamp};

use crate::options::NodeOptions;
use crate::pod::{self, Pod};
use crate::port::{Attempt, OperationError, Report, ShimCommand};
use checks::ChecksInFlight;
use container::State;
use containers::Containers;
use ending::{EndReason, Termination};
use loss::LossRecord;
use reporter::StatusReporter;
use row::RowState;
use setup::Setup;
use storage::StorageWatch;

pub use loss::is_tracked;
pub use reporter::{PodRequest, WriteOutcome};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

/// The output of `proceed`.
#[derive(Debug, Default)]
pub struct Effects {
    pub commands: Vec<ShimCommand>,
    pub events: Vec<Event>,
    pub wake_at: Option<Timestamp>,
    /// The number of the last check; checks of all Pods share one sequence.
    pub last_check: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Effects {
    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |before| before.min(at)));
    }

    fn warn(&mut self, reason: &'static str, message: String) {
        self.events.push(Event { warning: true, reason, message });
    }
}

/// One Pod, in sections: each has its own state and says what changes for the others. The methods here connect them.
#[derive(Debug)]
pub struct PodWorker {
    /// As last observed.
    pod: Pod,
    containers: Containers,
    /// When this node accepted the Pod, as it is reported.
    taken_at: Timestamp,
    /// The same, by the clock as it is now.
    deadline_from: Timestamp,
    setup: Setup,
    row: RowState,
    /// Probes and hooks in progress.
    checks: ChecksInFlight,
    termination: Termination,
    reporter: StatusReporter,
    losses: LossRecord,
    storage: StorageWatch,
    /// Which limits have no effect here, and why.
    unenforced: BTreeSet<String>,
    /// The object is deleted.
    gone: bool,
    cleaning: bool,
}

impl PodWorker {
    pub fn uid(&self) -> &PodUid {
        self.pod.uid()
    }

    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    pub fn revision(&self) -> Revision {
        self.pod.metadata.resource_version
    }

    /// What is waited for is as far away as before. What has been reported to the API stays as it is.
    pub fn clock_set_back(&mut self, by: Span) {
        self.deadline_from = self.deadline_from - by;
        self.containers.iter_mut().for_each(|container| container.clock_set_back(by));
        self.setup.clock_set_back(by);
        self.termination.clock_set_back(by);
        self.reporter.clock_set_back(by);
        self.storage.clock_set_back(by);
    }

    /// Stores the Pod as the API shows it, unless a newer version is known.
    pub fn observe(&mut self, mut pod: Pod) {
        if pod.unreadable.is_some() {
            // Keep the spec that was readable before; a deletion in the new metadata still takes effect.
            (pod.spec, pod.unreadable) = (self.pod.spec.clone(), self.pod.unreadable.clone());
        }
        if pod.metadata.resource_version < self.revision() {
            return;
        }
        if pod.metadata.resource_version > self.revision() {
            self.try_again();
        }
        let (before, now) = (&self.pod.metadata, &pod.metadata);
        if before.labels != now.labels || before.annotations != now.annotations {
            self.setup.touch();
        }
        self.pod = pod;
    }

    /// The Pod no longer exists, so there is no object left to report to.
    pub fn lose(&mut self) {
        self.gone = true;
    }

    /// Applies a report about this Pod.
    pub fn hear(&mut self, report: Report, now: Timestamp, out: &mut Effects) {
        match report {
            Report::Prepared { .. } => {
                if self.setup.prepared() {
                    self.reporter.touch(now);
                }
            }
            Report::Unprepared { failure, .. } => {
                if self.setup.unprepared(failure, now, out) {
                    self.reporter.touch(now);
                }
            }
            Report::Started { attempt, at } => self.started(&attempt, at, now),
            Report::Unstarted { attempt, failure } => self.unstarted(&attempt, failure, now, out),
            Report::Ended { attempt, exit } => {
                let ended = container::terminated(&attempt, &exit);
                self.ended(&attempt, ended, now);
            }
            Report::LimitsNotEnforced { message, .. } => self.limits_not_enforced(message, now, out),
            Report::Measured { usage, .. } => self.storage_measured(&usage, now, out),
            Report::Checked { id, outcome } => self.checked(id, outcome, now, out),
            Report::Signalled { .. }
            | Report::Cleaned { .. }
            | Report::ClaimRemoved { .. }
            | Report::Found { .. }
            | Report::Recovered => {}
        }
    }

    /// Takes all steps that are due now. `drain_within`: the node stops within this time and starts no new containers.
    pub fn proceed(&mut self, drain_within: Option<Span>, node: &NodeOptions, now: Timestamp, out: &mut Effects) {
        self.look_for_an_end(drain_within, now, out);
        if self.termination.has_begun() {
            self.stop_all(node, now, out);
        } else if self.termination.verdict().is_none() && drain_within.is_none() {
            // Which volumes are needed is known with the row.
            if !self.row.is_pending() && self.setup.advance(&self.pod, node, now, out) {
                self.reporter.touch(now);
            }
            self.start_what_may(node, now, out);
            self.watch_over(node, now, out);
            self.watch_storage(node, now, out);
        }
        self.judge(now, out);
        if self.gone && self.is_still() && !self.cleaning {
            self.cleaning = true;
            out.commands.push(ShimCommand::Clean { pod: self.uid().clone() });
        }
    }

    /// No process of the Pod runs or is about to be started.
    fn is_still(&self) -> bool {
        !self.setup.is_under_way() && !self.containers.any_alive()
    }

    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// The last command for this Pod (`Clean`) has been issued.
    pub fn is_cleaning(&self) -> bool {
        self.cleaning
    }

    /// Nothing is left to do for the Pod as long as the object exists.
    pub fn is_settled(&self) -> bool {
        !self.gone && self.is_over() && self.is_still() && !self.may_go()
    }

    /// No process of the Pod runs, and if the Pod has ended, its end is stored in the API.
    pub fn is_at_rest(&self) -> bool {
        self.is_still() && (self.gone || self.termination.verdict().is_none() || self.is_over())
    }

    /// The Pod has ended, and its complete status is stored in the API.
    pub fn is_over(&self) -> bool {
        self.termination.verdict().is_some() && self.pod.status.phase.is_terminal() && self.reporter.is_up_to_date()
    }

    /// Determines why the Pod has to end, if it is not ending already.
    fn look_for_an_end(&mut self, drain_within: Option<Span>, now: Timestamp, out: &mut Effects) {
        if self.gone {
            self.end(EndReason::Gone, now, now);
            return;
        }
        if self.termination.verdict().is_some() {
            return;
        }
        if self.pod.status.phase.is_terminal() {
            self.end(EndReason::Overruled, now, now + self.grace());
        }
        if let Some(grace) = self.pod.grace() {
            // Count from the time of observation: the stored timestamp has whole seconds only. A shorter grace period
            // may follow.
            let begun_at = self.termination.deleted_at().unwrap_or(now);
            self.end(EndReason::Deleted, now, begun_at + Span::from_seconds(grace));
        }
        if !self.termination.has_begun() && self.containers.have_failed_to_initialize(&self.pod) {
            self.end(EndReason::FailedInit, now, now + self.grace());
        }
        if !self.termination.has_begun() && self.containers.have_finished(&self.pod) {
            self.end(EndReason::Finished, now, now + self.grace());
        }
        if !self.termination.has_begun()
            && let Some(seconds) = self.pod.spec.active_deadline_seconds
        {
            let at = self.deadline_from + Span::from_seconds(seconds);
            if at <= now {
                self.end(EndReason::Deadline, now, now + self.grace());
            } else {
                out.wake(at);
            }
        }
        if let Some(within) = drain_within
            && self.containers.any_alive()
        {
            self.end(EndReason::Shutdown, now, now + self.grace().min(within));
        }
    }

    fn end(&mut self, reason: EndReason, now: Timestamp, kill_at: Timestamp) {
        let unharmed = self.termination.has_begun() || self.containers.are_unharmed(&self.pod);
        self.termination.begin(reason, now, kill_at, unharmed);
    }

    fn grace(&self) -> Span {
        Span::from_seconds(self.pod.spec.termination_grace_period_seconds.unwrap_or(30).max(0))
    }

    /// Decides the verdict once no process runs any more. Nothing is started after that.
    fn judge(&mut self, now: Timestamp, out: &mut Effects) {
        if !self.gone
            && self.is_still()
            && self.termination.decide(self.containers.have_succeeded(), self.pod.status.phase)
        {
            self.reporter.touch(now);
            self.free_storage(out);
        }
    }

    fn attempt(&self, at: usize, number: u32) -> Attempt {
        let container = self.spec(at).map(|spec| spec.name.clone()).unwrap_or_default();
        Attempt { pod: self.uid().clone(), container, number }
    }

    fn spec(&self, at: usize) -> Option<&pod::Container> {
        self.pod.containers().nth(at).map(|(_, spec)| spec)
    }

    fn started(&mut self, attempt: &Attempt, since: Timestamp, now: Timestamp) {
        let Some(at) = self.containers.with_attempt(&self.pod, attempt) else { return };
        let container = &mut self.containers[at];
        if let State::Starting { number, previous } = &mut container.state {
            container.last = previous.take().or(container.last.take());
            container.state = State::Running { number: *number, since };
            // The clock may have been set back since the start.
            container.probes.from = since.min(now);
            container.hitches = 0;
            self.reporter.touch(now);
        }
    }

    /// A failed start is a run that ended at once. The exception is a lack of resources on the machine, which is not
    /// the Pod's fault and must not count against `backoffLimit`.
    fn unstarted(&mut self, attempt: &Attempt, failure: OperationError, now: Timestamp, out: &mut Effects) {
        let Some(at) = self.containers.with_attempt(&self.pod, attempt) else { return };
        out.warn("Failed", format!("Error: {}", failure.message));
        if failure.passing {
            self.containers[at].postpone(failure, now);
            self.reporter.touch(now);
            return;
        }
        let ended = pod::Terminated {
            exit_code: container::CANNOT_START,
            reason: failure.reason,
            message: failure.message,
            started_at: Some(now),
            finished_at: Some(now),
            container_id: container::id(attempt),
            ..pod::Terminated::default()
        };
        self.ended(attempt, ended, now);
    }

    /// Told once for a Pod, however many of its containers are started how often: the condition stays.
    fn limits_not_enforced(&mut self, message: String, now: Timestamp, out: &mut Effects) {
        let stored = self.pod.status.conditions.iter().find(|condition| condition.kind == status::LIMITS_ENFORCED);
        let is_told = stored.is_some_and(|stored| stored.message.contains(&message));
        if self.unenforced.insert(message.clone()) && !is_told {
            out.warn("LimitsNotEnforced", message);
            self.reporter.touch(now);
        }
    }

    fn ended(&mut self, attempt: &Attempt, ended: pod::Terminated, now: Timestamp) {
        let Some(at) = self.containers.with_attempt(&self.pod, attempt) else { return };
        let container = &mut self.containers[at];
        if container.is_alive() {
            container.end(attempt.number, ended, now);
            self.reporter.touch(now);
        }
    }
}
