//! Probes and hooks: when they run and what their results lead to.

use std::collections::BTreeMap;

use serde_json::Value;
use tally_core::time::{Span, Timestamp};

use super::container::State;
use super::stop::Stop;
use super::{Effects, Event, PodWorker};
use crate::options::NodeOptions;
use crate::pod::{Container, Handler, Probe};
use crate::port::{Check, ShimCommand};

/// In practice a hook has no timeout of its own; a hook that must end is ended together with its container.
const HOOK_TIMEOUT: Span = Span::from_seconds(24 * 3600);

#[derive(Debug, Default)]
pub struct Probes {
    /// When the run began, by the clock as it is now.
    pub from: Timestamp,
    pub startup: Probing,
    pub liveness: Probing,
    pub readiness: Probing,
}

#[derive(Debug, Default)]
pub struct Probing {
    /// The result, once it has been the same often enough.
    pub passed: Option<bool>,
    next_at: Option<Timestamp>,
    under_way: bool,
    /// The last outcome, and how many times in a row it occurred.
    last: Option<(bool, u32)>,
}

impl Probes {
    pub fn clock_set_back(&mut self, by: Span) {
        let Self { from, startup, liveness, readiness } = self;
        let next = [startup, liveness, readiness].into_iter().filter_map(|probing| probing.next_at.as_mut());
        next.chain([from]).for_each(|at| *at = *at - by);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hook {
    #[default]
    NotRun,
    UnderWay,
    Done,
}

/// The checks of a Pod that have no result yet, by their number.
#[derive(Debug, Default)]
pub struct ChecksInFlight(BTreeMap<u64, CheckInFlight>);

impl ChecksInFlight {
    /// No result will come any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[derive(Debug)]
struct CheckInFlight {
    at: usize,
    number: u32,
    what: CheckKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckKind {
    Startup,
    Liveness,
    Readiness,
    PostStart,
    PreStop,
}

impl PodWorker {
    /// Handles running containers: hooks of those just started, probes, and stopping those that failed a probe.
    pub(super) fn watch_over(&mut self, node: &NodeOptions, now: Timestamp, out: &mut Effects) {
        for at in 0..self.containers.len() {
            if !matches!(self.containers[at].state, State::Running { .. }) {
                continue;
            }
            if self.containers[at].stop.is_some() {
                self.stop(at, None, node, now, out);
                continue;
            }
            let Some(spec) = self.spec(at) else { continue };
            // The common case: no hook and no probe.
            if spec.lifecycle.post_start.is_none()
                && spec.startup_probe.is_none()
                && spec.liveness_probe.is_none()
                && spec.readiness_probe.is_none()
            {
                continue;
            }
            if let Some(handler) = &spec.lifecycle.post_start
                && self.containers[at].hook != Hook::Done
            {
                if self.containers[at].hook == Hook::NotRun {
                    let check = check(spec, handler, node);
                    self.containers[at].hook = Hook::UnderWay;
                    self.ask_for(at, CheckKind::PostStart, check, HOOK_TIMEOUT, now, out);
                }
                continue;
            }
            let probes = if self.containers[at].has_started(spec) {
                [
                    (CheckKind::Liveness, spec.liveness_probe.clone()),
                    (CheckKind::Readiness, spec.readiness_probe.clone()),
                ]
            } else {
                [(CheckKind::Startup, spec.startup_probe.clone()), (CheckKind::Startup, None)]
            };
            for (what, probe) in probes {
                if let Some(probe) = probe {
                    self.probe(at, what, &probe, node, now, out);
                }
            }
        }
    }

    fn probe(
        &mut self,
        at: usize,
        what: CheckKind,
        probe: &Probe,
        node: &NodeOptions,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let Some(from) = self.containers.get(at).map(|container| container.probes.from) else { return };
        let Some(probing) = self.probing(at, what) else { return };
        if probing.under_way {
            return;
        }
        let first_at = from + Span::from_seconds(probe.initial_delay_seconds.max(0));
        let due_at = probing.next_at.unwrap_or(first_at);
        if now < due_at {
            out.wake(due_at);
            return;
        }
        let period = Span::from_seconds(probe.period_seconds.unwrap_or(10).max(1));
        probing.next_at = Some(now + period);
        probing.under_way = true;
        let Some(spec) = self.spec(at) else { return };
        let timeout = Span::from_seconds(probe.timeout_seconds.unwrap_or(1).max(1));
        let check = check(spec, &probe.handler, node).map(|check| match check {
            Check::Exec { argv } => Check::Exec { argv: self.filled_in(spec, &argv, node) },
            other => other,
        });
        self.ask_for(at, what, check, timeout, now, out);
    }

    fn probing(&mut self, at: usize, what: CheckKind) -> Option<&mut Probing> {
        let probes = &mut self.containers.get_mut(at)?.probes;
        match what {
            CheckKind::Startup => Some(&mut probes.startup),
            CheckKind::Liveness => Some(&mut probes.liveness),
            CheckKind::Readiness => Some(&mut probes.readiness),
            CheckKind::PostStart | CheckKind::PreStop => None,
        }
    }

    /// Requests a check. An invalid check fails at once.
    pub(super) fn ask_for(
        &mut self,
        at: usize,
        what: CheckKind,
        check: Result<Check, String>,
        timeout: Span,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let Some(number) = self.containers.get(at).and_then(|container| container.number()) else { return };
        match check {
            Ok(check) => {
                out.last_check += 1;
                let timeout_millis = u64::try_from(timeout.millis()).unwrap_or(0);
                let attempt = self.attempt(at, number);
                out.commands.push(ShimCommand::Check { id: out.last_check, attempt, check, timeout_millis });
                self.checks.0.insert(out.last_check, CheckInFlight { at, number, what });
            }
            Err(problem) => self.found_out(&CheckInFlight { at, number, what }, Err(problem), now, out),
        }
    }

    pub(super) fn checked(&mut self, id: u64, outcome: Result<(), String>, now: Timestamp, out: &mut Effects) {
        if let Some(asked) = self.checks.0.remove(&id) {
            self.found_out(&asked, outcome, now, out);
        }
    }

    fn found_out(&mut self, asked: &CheckInFlight, outcome: Result<(), String>, now: Timestamp, out: &mut Effects) {
        let CheckInFlight { at, number, what } = *asked;
        let Some(container) = self.containers.get_mut(at) else { return };
        // Results for a run that has ended are ignored.
        if !container.is_alive() || container.number() != Some(number) {
            return;
        }
        match what {
            CheckKind::PostStart => {
                container.hook = Hook::Done;
                self.reporter.touch(now);
                if let Err(problem) = outcome {
                    out.warn("FailedPostStartHook", format!("PostStartHook failed: {problem}"));
                    let kill_at = now + self.grace();
                    self.condemn(at, kill_at);
                }
            }
            CheckKind::PreStop => {
                container.stop.iter_mut().for_each(|stop| stop.hook = Hook::Done);
                if let Err(problem) = outcome {
                    out.warn("FailedPreStopHook", format!("PreStopHook failed: {problem}"));
                }
            }
            CheckKind::Startup | CheckKind::Liveness | CheckKind::Readiness => self.probed(at, what, outcome, now, out),
        }
    }

    fn probed(&mut self, at: usize, what: CheckKind, outcome: Result<(), String>, now: Timestamp, out: &mut Effects) {
        let Some(spec) = self.spec(at) else { return };
        let (probe, name) = match what {
            CheckKind::Startup => (&spec.startup_probe, "Startup"),
            CheckKind::Liveness => (&spec.liveness_probe, "Liveness"),
            CheckKind::Readiness | CheckKind::PostStart | CheckKind::PreStop => (&spec.readiness_probe, "Readiness"),
        };
        let Some(probe) = probe else { return };
        let threshold = if outcome.is_ok() {
            probe.success_threshold.unwrap_or(1).max(1)
        } else {
            probe.failure_threshold.unwrap_or(3).max(1)
        };
        let grace = probe.termination_grace_period_seconds.map_or(self.grace(), Span::from_seconds);
        let container = spec.name.clone();
        let Some(probing) = self.probing(at, what) else { return };
        probing.under_way = false;
        let passed = outcome.is_ok();
        let in_a_row = match probing.last {
            Some((last, count)) if last == passed => count.saturating_add(1),
            _ => 1,
        };
        probing.last = Some((passed, in_a_row));
        let before = probing.passed;
        if in_a_row >= threshold {
            probing.passed = Some(passed);
        }
        let changed = probing.passed != before;
        if let Err(problem) = outcome {
            out.warn("Unhealthy", format!("{name} probe failed: {problem}"));
        }
        if changed {
            self.reporter.touch(now);
        }
        if what != CheckKind::Readiness && !passed && in_a_row >= threshold {
            let message = format!("Container {container} failed {} probe, will be restarted", name.to_lowercase());
            out.events.push(Event { warning: false, reason: "Killing", message });
            self.condemn(at, now + grace);
        }
    }

    /// This run must end. The restart policy decides whether another one follows.
    fn condemn(&mut self, at: usize, kill_at: Timestamp) {
        if let Some(container) = self.containers.get_mut(at).filter(|container| container.stop.is_none()) {
            container.stop = Some(Stop::new(kill_at));
        }
    }
}

/// What a probe or hook does. Err: its definition is invalid.
pub(super) fn check(spec: &Container, handler: &Handler, node: &NodeOptions) -> Result<Check, String> {
    let host = |named: &str| if named.is_empty() { node.address.clone() } else { named.to_owned() };
    if let Some(exec) = &handler.exec {
        return Ok(Check::Exec { argv: exec.command.clone() });
    }
    if let Some(get) = &handler.http_get {
        return Ok(Check::Http {
            scheme: if get.scheme.is_empty() { "HTTP".into() } else { get.scheme.clone() },
            host: host(&get.host),
            port: port(spec, &get.port)?,
            path: if get.path.starts_with('/') { get.path.clone() } else { format!("/{}", get.path) },
            headers: get.http_headers.iter().map(|header| (header.name.clone(), header.value.clone())).collect(),
        });
    }
    if let Some(socket) = &handler.tcp_socket {
        return Ok(Check::Tcp { host: host(&socket.host), port: port(spec, &socket.port)? });
    }
    if let Some(sleep) = &handler.sleep {
        return Ok(Check::Sleep { seconds: sleep.seconds });
    }
    Err("this node knows exec, httpGet, tcpSocket and sleep".to_owned())
}

/// A number, or the name of one of the container's ports.
fn port(spec: &Container, written: &Value) -> Result<u16, String> {
    let number = match written {
        Value::String(name) => {
            let named = spec.ports.iter().find(|port| port.name == name.as_str()).map(|port| port.container_port);
            named.or_else(|| name.parse().ok())
        }
        other => other.as_u64().and_then(|number| u16::try_from(number).ok()),
    };
    number.filter(|number| *number > 0).ok_or_else(|| format!("there is no port {written}"))
}
