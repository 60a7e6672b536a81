//! One container: its runs, one after the other.

use tally_core::time::{Span, Timestamp};
use tally_runtime::cache::retry_at;

use super::checks::{Hook, Probes};
use super::stop::Stop;
use crate::pod::{self, RestartPolicy, Role, Terminated};
use crate::port::{Attempt, Exit, OperationError};

/// The exit code of a run that could not be started.
pub const CANNOT_START: i32 = 128;
/// The exit code of a run that was killed, or whose end is unknown.
pub const KILLED: i32 = 137;

/// The reasons for a run that the node itself ended, or whose end it did not observe.
pub const RESTARTED: &str = "NodeRestarted";
pub const UNKNOWN: &str = "ContainerStatusUnknown";

/// The back-off before a restart: none, 10 s, 20 s ... 5 min. A run of at least `LONG_RUN` resets it.
const FIRST_DELAY: Span = Span::from_seconds(10);
const LONGEST_DELAY: Span = Span::from_seconds(300);
const LONG_RUN: Span = Span::from_seconds(600);

#[derive(Debug)]
pub struct Container {
    pub role: Role,
    pub state: State,
    /// How the run before this one ended.
    pub last: Option<Terminated>,
    /// Why the container is not started.
    pub waiting: Option<OperationError>,
    /// The machine lacked resources for the start: the time of the next attempt, and the number of failures in a row.
    pub not_before: Option<Timestamp>,
    pub hitches: u32,
    /// The back-off before the restart after this run, and after the next one.
    pub wait: Span,
    pub delay: Span,
    /// An event has reported that the container waits for its restart.
    pub backs_off: bool,
    pub hook: Hook,
    pub probes: Probes,
    pub stop: Option<Stop>,
}

#[derive(Debug)]
pub enum State {
    Fresh,
    /// `previous`: how the run before ended; shown until this run has started.
    Starting {
        number: u32,
        previous: Option<Terminated>,
    },
    Running {
        number: u32,
        since: Timestamp,
    },
    /// `again_at`: the earliest time of a restart, if the container is restarted at all.
    Ended {
        number: u32,
        how: Terminated,
        again_at: Timestamp,
    },
}

impl Container {
    pub fn new(role: Role) -> Self {
        Self {
            role,
            state: State::Fresh,
            last: None,
            waiting: None,
            not_before: None,
            hitches: 0,
            wait: Span::ZERO,
            delay: Span::ZERO,
            backs_off: false,
            hook: Hook::default(),
            probes: Probes::default(),
            stop: None,
        }
    }

    pub fn clock_set_back(&mut self, by: Span) {
        self.probes.clock_set_back(by);
        let again_at = match &mut self.state {
            State::Ended { again_at, .. } => Some(again_at),
            State::Fresh | State::Starting { .. } | State::Running { .. } => None,
        };
        let kill_at = self.stop.as_mut().map(|stop| &mut stop.kill_at);
        let times = [self.not_before.as_mut(), again_at, kill_at];
        times.into_iter().flatten().for_each(|at| *at = *at - by);
    }

    pub fn is_fresh(&self) -> bool {
        matches!(self.state, State::Fresh)
    }

    pub fn is_alive(&self) -> bool {
        matches!(self.state, State::Starting { .. } | State::Running { .. })
    }

    pub fn number(&self) -> Option<u32> {
        match self.state {
            State::Fresh => None,
            State::Starting { number, .. } | State::Running { number, .. } | State::Ended { number, .. } => {
                Some(number)
            }
        }
    }

    /// The exit code of the run that has ended, unless another run has begun.
    pub fn exit_code(&self) -> Option<i32> {
        match &self.state {
            State::Ended { how, .. } => Some(how.exit_code),
            _ => None,
        }
    }

    /// The container's last run did not end by itself: the node was stopped or killed.
    pub fn was_lost(&self) -> bool {
        matches!(&self.state, State::Ended { how, .. } if how.reason == RESTARTED || how.reason == UNKNOWN)
    }

    /// The back-off is for containers that fail by themselves; a container that the node has ended is restarted at
    /// once.
    pub fn hurry_if_lost(&mut self, now: Timestamp) {
        let lost = self.was_lost();
        if let State::Ended { again_at, .. } = &mut self.state
            && lost
        {
            *again_at = now;
            self.delay = FIRST_DELAY;
        }
    }

    /// Whether the container is restarted after it has ended with this exit code.
    pub fn restarts(&self, spec: &pod::Container, policy: RestartPolicy, code: i32) -> bool {
        let policy = match spec.restart_policy.as_deref() {
            Some("Always") => RestartPolicy::Always,
            Some("OnFailure") => RestartPolicy::OnFailure,
            Some("Never") => RestartPolicy::Never,
            _ => policy,
        };
        // All rules have the action Restart: see `ready_to_start`. An init container that has succeeded is not
        // restarted.
        if spec.restart_policy_rules.iter().any(|rule| rule.matches(code)) && (self.role != Role::Init || code != 0) {
            return true;
        }
        match (self.role, policy) {
            (Role::Sidecar, _) => true,
            (Role::Init | Role::Main, RestartPolicy::Never) => false,
            (Role::Init, _) | (Role::Main, RestartPolicy::OnFailure) => code != 0,
            (Role::Main, RestartPolicy::Always) => true,
        }
    }

    pub fn end(&mut self, number: u32, how: Terminated, now: Timestamp) {
        let since = how.started_at.unwrap_or(now);
        if how.finished_at.unwrap_or(now) - since >= LONG_RUN {
            self.delay = Span::ZERO;
        }
        if let State::Starting { previous, .. } = &mut self.state {
            self.last = previous.take().or(self.last.take());
        }
        self.state = State::Ended { number, how, again_at: now + self.delay };
        self.wait = self.delay;
        self.delay = following(self.delay);
        self.backs_off = false;
        self.hook = Hook::default();
        self.probes = Probes::default();
        self.stop = None;
    }

    /// Begins the next run and returns its number.
    pub fn begin(&mut self) -> u32 {
        let (number, previous) = match std::mem::replace(&mut self.state, State::Fresh) {
            State::Ended { number, how, .. } => (number.saturating_add(1), Some(how)),
            _ => (0, None),
        };
        self.state = State::Starting { number, previous };
        self.waiting = None;
        number
    }

    /// The run that was to begin left no record: restores the state before it.
    pub fn never_began(&mut self) {
        if let State::Starting { number, previous } = &mut self.state {
            let number = *number;
            self.state = match previous.take() {
                // Its back-off was over.
                Some(how) => State::Ended { number: number.saturating_sub(1), how, again_at: Timestamp::default() },
                None => State::Fresh,
            };
        }
    }

    /// The machine lacked resources for the start: the start is retried, with an increasing delay.
    pub fn postpone(&mut self, failure: OperationError, now: Timestamp) {
        self.never_began();
        self.waiting = Some(failure);
        self.not_before = Some(retry_at(now, self.hitches));
        self.hitches = self.hitches.saturating_add(1);
    }

    /// The container has started: its postStart hook has run and its startup probe has passed.
    pub fn has_started(&self, spec: &pod::Container) -> bool {
        let up = spec.lifecycle.post_start.is_none() || self.hook == Hook::Done;
        let passed = spec.startup_probe.is_none() || self.probes.startup.passed == Some(true);
        matches!(self.state, State::Running { .. }) && up && passed
    }

    pub fn is_ready(&self, spec: &pod::Container) -> bool {
        match self.role {
            Role::Init => self.exit_code() == Some(0),
            Role::Sidecar | Role::Main => {
                let passed = spec.readiness_probe.is_none() || self.probes.readiness.passed == Some(true);
                self.has_started(spec) && passed
            }
        }
    }
}

/// The back-off after this number of restarts.
pub fn delay_after(restarts: u32) -> Span {
    (0..restarts.min(16)).fold(Span::ZERO, |delay, _| following(delay))
}

fn following(delay: Span) -> Span {
    if delay < FIRST_DELAY { FIRST_DELAY } else { Span::from_millis(delay.millis() * 2).min(LONGEST_DELAY) }
}

/// As in `containerID`. The ID contains the run's number, so that a run can be distinguished from the one before.
pub fn id(attempt: &Attempt) -> String {
    format!("process://{}/{}/{}", attempt.pod, attempt.container, attempt.number)
}

/// The run's number in an ID.
pub fn number_of(id: &str) -> Option<u32> {
    id.strip_prefix("process://")?.rsplit('/').next()?.parse().ok()
}

pub fn terminated(attempt: &Attempt, exit: &Exit) -> Terminated {
    let reason = match exit {
        Exit { out_of_memory: true, .. } => "OOMKilled",
        Exit { code: 0, .. } => "Completed",
        _ => "Error",
    };
    Terminated {
        exit_code: exit.code,
        signal: exit.signal,
        reason: reason.into(),
        message: exit.message.clone(),
        started_at: Some(exit.started_at),
        finished_at: Some(exit.finished_at),
        container_id: id(attempt),
    }
}
