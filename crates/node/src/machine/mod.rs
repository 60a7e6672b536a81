//! One Pod on this node: what its containers do, what to do next, and what to report about it. No I/O and no clock.
//!
//! The state machine has three kinds of input: the Pod as the API shows it (`observe`), what happened to its processes
//! (`hear`), and the responses to its own requests (`read`, `written`, `removed`). After each input `proceed` evaluates
//! the whole state and returns what to do now: commands for the half that acts, events, and the next wake-up time.
//! `proceed` may be called at any time: if nothing has changed, it does nothing.
//!
//! A Pod ends in this order: its containers have ended, the phase Succeeded or Failed is stored in the API, and only
//! then, if the Pod is being deleted, the node removes it.

mod adopt;
mod checks;
mod container;
mod setup;
mod status;
mod stop;
mod told;

use std::collections::BTreeMap;

use tally_core::ids::{PodUid, Revision};
use tally_core::pod::Phase;
use tally_core::time::{Span, Timestamp};

use crate::options::Options;
use crate::pod::{self, Pod, Role};
use crate::port::{Attempt, Failure, Report, ShimCommand};
use checks::Asked;
use container::{Container, State};
use setup::Setup;
use told::Told;

pub use told::{Ask, Heard, is_tracked};

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

#[derive(Debug)]
pub struct Machine {
    /// As last observed.
    pod: Pod,
    /// In the order of `Pod::containers`.
    containers: Vec<Container>,
    /// When this node accepted the Pod.
    taken_at: Timestamp,
    setup: Setup,
    /// Probes and hooks in progress.
    checks: BTreeMap<u64, Asked>,
    ending: Option<Ending>,
    /// How the Pod ended, set once no process of it runs any more.
    verdict: Option<Phase>,
    told: Told,
    lives: Lives,
    /// The object is deleted.
    gone: bool,
    cleaning: bool,
}

/// What is known about the restarts of the node that ended a Pod of this attempt of a Job.
#[derive(Clone, Copy, Debug, Default)]
struct Lives {
    /// The number of such restarts before this Pod. None: the record has not been consulted yet.
    before: Option<u32>,
    /// These restarts, including the one that ended this Pod, are recorded.
    on_record: bool,
}

#[derive(Clone, Copy, Debug)]
struct Ending {
    why: Why,
    begun_at: Timestamp,
    /// Processes that still run at this time are killed.
    kill_at: Timestamp,
    /// No container had failed for good by itself, as far as was known when the ending began.
    unharmed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The main containers have ended and are not restarted.
    Finished,
    /// An init container failed for good.
    FailedInit,
    Deleted,
    Deadline,
    Shutdown,
    /// Another client of the API has set a terminal phase.
    Overruled,
    Gone,
}

impl Machine {
    pub fn uid(&self) -> &PodUid {
        self.pod.uid()
    }

    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    pub fn revision(&self) -> Revision {
        self.pod.metadata.resource_version
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
            Report::Prepared { .. } => self.prepared(now),
            Report::Unprepared { failure, .. } => self.unprepared(failure, now, out),
            Report::Started { attempt, at } => self.started(&attempt, at, now),
            Report::Unstarted { attempt, failure } => self.unstarted(&attempt, failure, now, out),
            Report::Ended { attempt, exit } => {
                let ended = container::terminated(&attempt, &exit);
                self.ended(&attempt, ended, now);
            }
            Report::Checked { id, outcome } => self.checked(id, outcome, now, out),
            Report::Signalled { .. } | Report::Cleaned { .. } | Report::Found { .. } | Report::Recovered => {}
        }
    }

    /// Takes all steps that are due now. `drain_within`: the node stops within this time and starts no new containers.
    pub fn proceed(&mut self, drain_within: Option<Span>, node: &Options, now: Timestamp, out: &mut Effects) {
        self.look_for_an_end(drain_within, now, out);
        if self.ending.is_some() {
            self.stop_all(node, now, out);
        } else if self.verdict.is_none() && drain_within.is_none() {
            self.set_up(node, now, out);
            self.start_what_may(node, now, out);
            self.watch_over(node, now, out);
        }
        self.judge(now);
        if self.gone && self.is_still() && !self.cleaning {
            self.cleaning = true;
            out.commands.push(ShimCommand::Clean { pod: self.uid().clone() });
        }
    }

    /// No process of the Pod runs or is about to be started.
    fn is_still(&self) -> bool {
        !self.setup.is_under_way() && !self.containers.iter().any(Container::is_alive)
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
        self.is_still() && (self.gone || self.verdict.is_none() || self.is_over())
    }

    /// The Pod has ended, and its complete status is stored in the API.
    pub fn is_over(&self) -> bool {
        self.verdict.is_some() && self.pod.status.phase.is_terminal() && self.told.is_up_to_date()
    }

    /// Determines why the Pod has to end, if it is not ending already.
    fn look_for_an_end(&mut self, drain_within: Option<Span>, now: Timestamp, out: &mut Effects) {
        if self.gone {
            self.end(Why::Gone, now, now);
            return;
        }
        if self.verdict.is_some() {
            return;
        }
        if self.pod.status.phase.is_terminal() {
            self.end(Why::Overruled, now, now + self.grace());
        }
        if let Some(grace) = self.pod.grace() {
            // Count from the time of observation: the stored timestamp has whole seconds only. A shorter grace period
            // may follow.
            let begun_at = match self.ending {
                Some(Ending { why: Why::Deleted, begun_at, .. }) => begun_at,
                _ => now,
            };
            self.end(Why::Deleted, now, begun_at + Span::from_seconds(grace));
        }
        if self.ending.is_none() && self.has_failed_to_initialize() {
            self.end(Why::FailedInit, now, now + self.grace());
        }
        if self.ending.is_none() && self.has_finished() {
            self.end(Why::Finished, now, now + self.grace());
        }
        if self.ending.is_none()
            && let Some(seconds) = self.pod.spec.active_deadline_seconds
        {
            let at = self.taken_at + Span::from_seconds(seconds);
            if at <= now {
                self.end(Why::Deadline, now, now + self.grace());
            } else {
                out.wake(at);
            }
        }
        if let Some(within) = drain_within
            && self.containers.iter().any(Container::is_alive)
        {
            self.end(Why::Shutdown, now, now + self.grace().min(within));
        }
    }

    /// The first reason stays; the deadline can only become earlier.
    fn end(&mut self, why: Why, now: Timestamp, kill_at: Timestamp) {
        let unharmed = self.ending.is_some() || self.is_unharmed();
        let ending = self.ending.get_or_insert(Ending { why, begun_at: now, kill_at, unharmed });
        ending.kill_at = ending.kill_at.min(kill_at);
    }

    fn grace(&self) -> Span {
        Span::from_seconds(self.pod.spec.termination_grace_period_seconds.unwrap_or(30).max(0))
    }

    fn is_unharmed(&self) -> bool {
        let policy = self.pod.spec.restart_policy;
        self.containers.iter().zip(self.pod.containers()).all(|(container, (_, spec))| {
            let again = |code| code == 0 || container.was_lost() || container.restarts(spec, policy, code);
            container.exit_code().is_none_or(again)
        })
    }

    fn has_failed_to_initialize(&self) -> bool {
        let policy = self.pod.spec.restart_policy;
        self.containers.iter().zip(self.pod.containers()).any(|(container, (_, spec))| {
            container.role == Role::Init
                && container.exit_code().is_some_and(|code| code != 0 && !container.restarts(spec, policy, code))
        })
    }

    /// Whether all main containers have ended for good.
    fn has_finished(&self) -> bool {
        let policy = self.pod.spec.restart_policy;
        !self.containers.is_empty()
            && self.containers.iter().zip(self.pod.containers()).all(|(container, (_, spec))| {
                container.role != Role::Main
                    || container.exit_code().is_some_and(|code| !container.restarts(spec, policy, code))
            })
    }

    /// Decides the verdict once no process runs any more. Nothing is started after that.
    fn judge(&mut self, now: Timestamp) {
        let Some(ending) = self.ending.filter(|_| self.verdict.is_none() && !self.gone) else { return };
        if !self.is_still() {
            return;
        }
        let done = |container: &Container| match container.role {
            Role::Sidecar => true,
            Role::Init | Role::Main => container.exit_code() == Some(0),
        };
        let succeeded = !self.containers.is_empty() && self.containers.iter().all(done);
        self.verdict = Some(match ending.why {
            Why::Overruled => self.pod.status.phase,
            Why::Deadline | Why::FailedInit => Phase::Failed,
            // Completed work counts as success, even if the Pod was about to be stopped.
            Why::Finished | Why::Deleted | Why::Shutdown | Why::Gone if succeeded => Phase::Succeeded,
            Why::Finished | Why::Deleted | Why::Shutdown | Why::Gone => Phase::Failed,
        });
        self.told.touch(now);
    }

    fn attempt(&self, at: usize, number: u32) -> Attempt {
        let container = self.spec(at).map(|spec| spec.name.clone()).unwrap_or_default();
        Attempt { pod: self.uid().clone(), container, number }
    }

    fn spec(&self, at: usize) -> Option<&pod::Container> {
        self.pod.containers().nth(at).map(|(_, spec)| spec)
    }

    /// The container whose current attempt this is. None: the attempt is an earlier one.
    fn present(&mut self, attempt: &Attempt) -> Option<usize> {
        let at = self.pod.containers().position(|(_, spec)| spec.name == attempt.container)?;
        (self.containers.get(at)?.number() == Some(attempt.number)).then_some(at)
    }

    fn started(&mut self, attempt: &Attempt, at: Timestamp, now: Timestamp) {
        let Some(place) = self.present(attempt) else { return };
        let container = &mut self.containers[place];
        if let State::Starting { number, previous } = &mut container.state {
            container.last = previous.take().or(container.last.take());
            container.state = State::Running { number: *number, since: at };
            container.hitches = 0;
            self.told.touch(now);
        }
    }

    /// A failed start is a run that ended at once. The exception is a lack of resources on the machine, which is not
    /// the Pod's fault and must not count against `backoffLimit`.
    fn unstarted(&mut self, attempt: &Attempt, failure: Failure, now: Timestamp, out: &mut Effects) {
        let Some(place) = self.present(attempt) else { return };
        out.warn("Failed", format!("Error: {}", failure.message));
        if failure.passing {
            self.containers[place].postpone(failure, now);
            self.told.touch(now);
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

    fn ended(&mut self, attempt: &Attempt, ended: pod::Terminated, now: Timestamp) {
        let Some(place) = self.present(attempt) else { return };
        let container = &mut self.containers[place];
        if container.is_alive() {
            container.end(attempt.number, ended, now);
            self.told.touch(now);
        }
    }
}
