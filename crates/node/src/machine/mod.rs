//! One Pod on this node: what its containers do, what to do next, and what to say about it. No I/O and no clock.
//!
//! The machine is told three kinds of things: what the API shows of the Pod (`observe`), what became of its processes
//! (`hear`), and what became of its own requests (`told`). After any of them `proceed` looks at everything there is
//! and says what to do now: deeds for the half that does, events, and when to look again. It may be called at any time:
//! if nothing has changed, it does nothing.
//!
//! A Pod ends in this order: its containers have ended, the phase Succeeded or Failed is in the API, and only then, if
//! it is being deleted, the Pod is let go.

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
use crate::port::{Attempt, Deed, Failure, Report};
use checks::Asked;
use container::{Container, State};
use setup::Setup;
use told::Told;

pub use told::{Ask, Heard, is_tracked};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

/// What `proceed` leads to.
#[derive(Debug, Default)]
pub struct Effects {
    pub deeds: Vec<Deed>,
    pub events: Vec<Event>,
    pub wake_at: Option<Timestamp>,
    /// Checks of all Pods are numbered from here.
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
    /// As last seen.
    pod: Pod,
    /// In the order of `Pod::containers`.
    containers: Vec<Container>,
    /// When this node took the Pod on.
    taken_at: Timestamp,
    setup: Setup,
    /// Probes and hooks under way.
    checks: BTreeMap<u64, Asked>,
    ending: Option<Ending>,
    /// How it ended, once nothing of it runs any more.
    verdict: Option<Phase>,
    told: Told,
    lives: Lives,
    /// The object is gone.
    gone: bool,
    cleaning: bool,
}

/// What is known of the restarts of the node that this attempt of a Job did not survive.
#[derive(Clone, Copy, Debug, Default)]
struct Lives {
    /// So many before this Pod. None: nobody has looked yet.
    before: Option<u32>,
    /// With that of this Pod, they are on record.
    on_record: bool,
}

#[derive(Clone, Copy, Debug)]
struct Ending {
    why: Why,
    begun_at: Timestamp,
    /// What still runs then is killed.
    kill_at: Timestamp,
    /// Nothing had failed by itself, for good, as far as was known when it began.
    unharmed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The main containers have ended and are not started again.
    Finished,
    /// An init container failed for good.
    FailedInit,
    Deleted,
    Deadline,
    Shutdown,
    /// Somebody else has said how it ended.
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

    /// Takes the Pod as the API shows it, unless something newer is known.
    pub fn observe(&mut self, mut pod: Pod) {
        if pod.unreadable.is_some() {
            // What was to be done is known from before; whether it is to go is still heard.
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

    /// There is no such Pod any more, and nobody left to tell about it.
    pub fn lose(&mut self) {
        self.gone = true;
    }

    /// Takes a report about this Pod.
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

    /// Does what is to be done now. `drain_within`: the node stops within this time, and starts nothing any more.
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
            out.deeds.push(Deed::Clean { pod: self.uid().clone() });
        }
    }

    /// Nothing of it runs, and nothing is about to.
    fn is_still(&self) -> bool {
        !self.setup.is_under_way() && !self.containers.iter().any(Container::is_alive)
    }

    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// The last deed has been asked for.
    pub fn is_cleaning(&self) -> bool {
        self.cleaning
    }

    /// There is nothing left to do about it as long as the object stays.
    pub fn is_settled(&self) -> bool {
        !self.gone && self.is_over() && self.is_still() && !self.may_go()
    }

    /// Nothing of it runs, and if it has ended, the API knows.
    pub fn is_at_rest(&self) -> bool {
        self.is_still() && (self.gone || self.verdict.is_none() || self.is_over())
    }

    /// It has ended, and the API knows everything.
    pub fn is_over(&self) -> bool {
        self.verdict.is_some() && self.pod.status.phase.is_terminal() && self.told.is_up_to_date()
    }

    /// What the Pod is to be ended for, if it is not ending already.
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
            // From when it was heard of: what is stored has whole seconds only. A shorter one may follow.
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

    /// The first reason stands; the time can only become shorter.
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

    /// Whether the main containers have all ended for good.
    fn has_finished(&self) -> bool {
        let policy = self.pod.spec.restart_policy;
        !self.containers.is_empty()
            && self.containers.iter().zip(self.pod.containers()).all(|(container, (_, spec))| {
                container.role != Role::Main
                    || container.exit_code().is_some_and(|code| !container.restarts(spec, policy, code))
            })
    }

    /// Says how it ended, once nothing runs any more. Nothing is ever started after that.
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
            // Work that is done is done, even where it was about to be stopped.
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

    /// The container whose present attempt this is. None: it is of the past.
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

    /// A start that failed is a run that ended at once; unless it was for want of room, which is no fault of the Pod's
    /// and must not cost a try.
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
