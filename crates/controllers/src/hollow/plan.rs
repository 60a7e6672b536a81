//! What a hollow node does next about a Pod, and when. Decided from the stored object alone, so that a node that was
//! killed continues where it was.

use compact_str::CompactString;
use tally_core::time::{Span, Timestamp};

use super::pod::{Pod, RestartPolicy, State};
use super::script::{KILLED, Script};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    pub at: Timestamp,
    pub step: Step,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Accepts the Pod, without starting it.
    Accept,
    /// Starts the containers.
    Start,
    /// The containers have ended, and wait before they are restarted.
    BackOff {
        exit_code: i32,
        delay: Span,
    },
    /// The containers are restarted.
    Restart {
        exit_code: i32,
    },
    End(Ending),
    /// Everything has ended and been reported: the Pod may be removed.
    Remove,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    Exited(i32),
    /// The Pod is disrupted: `DisruptionTarget`, for this reason.
    Disrupted(i32, CompactString),
    /// Deleted before anything ran.
    NeverStarted,
    /// `activeDeadlineSeconds` have passed.
    Overdue(i32),
    /// Its annotations are invalid.
    Refused(Box<str>),
}

/// A node restarts a container at first without delay, then after 10 s, 20 s ... 5 min.
const FIRST_DELAY: i64 = 10;
const LONGEST_DELAY: i64 = 300;

/// None: nothing to do until the Pod changes. `reported_at` is when this process last reported about the Pod, if it
/// did.
pub fn plan(pod: &Pod, reported_at: Option<Timestamp>, now: Timestamp) -> Option<Due> {
    let at_once = |step| Some(Due { at: now, step });
    if pod.phase.is_terminal() {
        return pod.deletion.filter(|deletion| deletion.graceful).and_then(|_| at_once(Step::Remove));
    }
    let script = match &pod.script {
        Ok(script) => script,
        Err(problem) => return at_once(Step::End(Ending::Refused(problem.as_str().into()))),
    };
    if script.hang {
        return None;
    }
    // Stored times are whole seconds. Without a more exact time the second counts as over: late, but never early.
    let exact = |stored: Timestamp| match reported_at {
        Some(at) if at.truncated() == stored => at,
        _ => stored + Span::from_seconds(1),
    };
    let attempts = pod.earlier_attempts.saturating_add(pod.restarts);
    let next = match pod.state {
        State::NotStarted if pod.deletion.is_some() => return at_once(Step::End(Ending::NeverStarted)),
        State::NotStarted if script.pending && pod.started_at.is_some() => None,
        State::NotStarted if script.pending => at_once(Step::Accept),
        State::NotStarted => at_once(start(pod, script, attempts)),
        State::Running { since } => end_of_run(pod, script).map(|run_for| {
            let ends_at = exact(since) + run_for;
            Due { at: ends_at, step: after_exit(pod, script, attempts) }
        }),
        State::WaitsForRestart { .. } if pod.deletion.is_some() => None,
        State::WaitsForRestart { since } => {
            let exit_code = script.exit_code(attempts);
            Some(Due { at: exact(since) + delay(pod, script), step: Step::Restart { exit_code } })
        }
    };
    let overdue = pod.active_deadline.zip(pod.started_at).map(|(after, from)| {
        let step = Step::End(Ending::Overdue(script.terminate_exit_code));
        Due { at: exact(from) + after, step }
    });
    let killed = pod.deletion.map(|deletion| {
        let willing_at = match script.terminate_after {
            Span::ZERO => deletion.asked_at,
            after => exact(deletion.asked_at) + after,
        };
        let in_time = deletion.graceful && willing_at <= deletion.ends_at;
        let exit_code = if in_time { script.terminate_exit_code } else { KILLED };
        Due { at: willing_at.min(deletion.ends_at), step: Step::End(Ending::Exited(exit_code)) }
    });
    [next, overdue, killed].into_iter().flatten().min_by_key(|due| due.at)
}

/// A Pod that needs no time ends with the first report, unless it is restarted.
fn start(pod: &Pod, script: &Script, attempts: u32) -> Step {
    match (script.run_for, after_exit(pod, script, attempts)) {
        (None, step @ Step::End(_)) => step,
        _ => Step::Start,
    }
}

fn end_of_run(pod: &Pod, script: &Script) -> Option<Span> {
    match pod.restart_policy {
        // Ending and restarting forever is useful only if it was requested.
        RestartPolicy::Always => script.run_for,
        _ => Some(script.run_for.unwrap_or_default()),
    }
}

fn after_exit(pod: &Pod, script: &Script, attempts: u32) -> Step {
    let exit_code = script.exit_code(attempts);
    if let Some(reason) = script.disrupted(attempts) {
        return Step::End(Ending::Disrupted(exit_code, reason.clone()));
    }
    let restarts = match pod.restart_policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => exit_code != 0,
        RestartPolicy::Never => false,
    };
    if !restarts || pod.deletion.is_some() {
        return Step::End(Ending::Exited(exit_code));
    }
    match delay(pod, script) {
        Span::ZERO => Step::Restart { exit_code },
        delay => Step::BackOff { exit_code, delay },
    }
}

fn delay(pod: &Pod, script: &Script) -> Span {
    let default = match pod.restarts {
        0 => 0,
        restarts => (FIRST_DELAY << (restarts - 1).min(8)).min(LONGEST_DELAY),
    };
    script.restart_delay.unwrap_or(Span::from_seconds(default))
}
