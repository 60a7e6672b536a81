//! How containers are stopped: the preStop hook, then the signal, and SIGKILL when the grace period is over.

use tally_core::time::Timestamp;

use super::checks::{CheckKind, Hook, check};
use super::container::State;
use super::ending::EndReason;
use super::{Effects, Event, PodWorker};
use crate::options::NodeOptions;
use crate::pod::Role;
use crate::port::{ShimCommand, Signal};

const SIGTERM: i32 = 15;

#[derive(Debug)]
pub struct Stop {
    pub kill_at: Timestamp,
    pub hook: Hook,
    signalled: bool,
    killed: bool,
}

impl Stop {
    pub fn new(kill_at: Timestamp) -> Self {
        Self { kill_at, hook: Hook::NotRun, signalled: false, killed: false }
    }
}

impl PodWorker {
    /// Stops all containers: sidecars last, in the reverse of the order in which they were started.
    pub(super) fn stop_all(&mut self, node: &NodeOptions, now: Timestamp, out: &mut Effects) {
        let Some(kill_at) = self.termination.kill_at() else { return };
        let over = kill_at <= now;
        let mut others_run = false;
        for at in 0..self.containers.len() {
            if self.containers[at].role != Role::Sidecar && self.containers[at].is_alive() {
                others_run = true;
                self.stop(at, Some(kill_at), node, now, out);
            }
        }
        for at in (0..self.containers.len()).rev() {
            if others_run && !over {
                break;
            }
            if self.containers[at].role == Role::Sidecar && self.containers[at].is_alive() {
                others_run = true;
                self.stop(at, Some(kill_at), node, now, out);
            }
        }
    }

    /// Takes the next step to stop a running container. A container that is being started is stopped once its start has
    /// been reported.
    pub(super) fn stop(
        &mut self,
        at: usize,
        kill_at: Option<Timestamp>,
        node: &NodeOptions,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let reason = self.termination.reason();
        let Some(spec) = self.spec(at) else { return };
        let pre_stop = spec.lifecycle.pre_stop.clone();
        let signal = spec.lifecycle.stop_signal.as_deref().and_then(signal_number).unwrap_or(SIGTERM);
        let name = spec.name.clone();
        let hook = pre_stop.as_ref().map(|handler| check(spec, handler, node));
        let container = &mut self.containers[at];
        let State::Running { number, .. } = container.state else { return };
        let stop = match (&mut container.stop, kill_at) {
            (Some(stop), _) => stop,
            (None, Some(kill_at)) => {
                if reason == Some(EndReason::Deleted) {
                    let message = format!("Stopping container {name}");
                    out.events.push(Event { warning: false, reason: "Killing", message });
                }
                container.stop.insert(Stop::new(kill_at))
            }
            (None, None) => return,
        };
        stop.kill_at = kill_at.map_or(stop.kill_at, |kill_at| kill_at.min(stop.kill_at));
        if stop.killed {
            return;
        }
        if stop.kill_at <= now {
            stop.killed = true;
            let attempt = self.attempt(at, number);
            out.commands.push(ShimCommand::Signal { attempt, signal: Signal::Kill });
            return;
        }
        out.wake(stop.kill_at);
        if stop.hook == Hook::NotRun {
            match hook {
                Some(check) => {
                    stop.hook = Hook::UnderWay;
                    let timeout = stop.kill_at - now;
                    self.ask_for(at, CheckKind::PreStop, check, timeout, now, out);
                }
                None => stop.hook = Hook::Done,
            }
        }
        let stop = &mut self.containers[at].stop;
        if let Some(stop) = stop.as_mut().filter(|stop| stop.hook == Hook::Done && !stop.signalled) {
            stop.signalled = true;
            let attempt = self.attempt(at, number);
            out.commands.push(ShimCommand::Signal { attempt, signal: Signal::Number(signal) });
        }
    }
}

/// The number of a Linux signal by its name: the signals that a container may set as `stopSignal`.
fn signal_number(name: &str) -> Option<i32> {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    let name = name.strip_prefix("SIG")?;
    (1..).zip(NAMES).find_map(|(number, known)| (known == name).then_some(number))
}
