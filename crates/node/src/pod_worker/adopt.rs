//! How a Pod comes to a node: it is new, or known from an earlier run of the node. In the second case no process of it
//! runs any more, and the history of its containers is in two places: the stored status, and the shim's record of how
//! processes ended. A run that the status shows as ended is taken from the status and not reported again; next come the
//! runs in the record; the end of any other run is unknown.

use std::collections::BTreeSet;

use tally_core::time::Timestamp;

use super::PodWorker;
use super::checks::ChecksInFlight;
use super::container::{self, Container, KILLED, State};
use super::containers::Containers;
use super::ending::Termination;
use super::loss::LossRecord;
use super::reporter::StatusReporter;
use super::row::RowState;
use super::setup::Setup;
use super::storage::StorageWatch;
use crate::pod::{ContainerStatus, Pod, Role, Terminated};
use crate::port::{Attempt, Found};

impl PodWorker {
    /// `found` is what the shim's record has about this Pod.
    pub fn adopt(pod: Pod, found: &[Found], now: Timestamp) -> Self {
        let mut reporter = StatusReporter::default();
        if pod.status.start_time.is_none() {
            reporter.touch(now);
        }
        let mut containers = Vec::new();
        for (role, spec) in pod.containers() {
            let stored = match role {
                Role::Main => &pod.status.container_statuses,
                Role::Init | Role::Sidecar => &pod.status.init_container_statuses,
            };
            let stored = stored.iter().find(|status| status.name == spec.name);
            let latest = found.iter().filter(|found| found.attempt.container == spec.name);
            let latest = latest.max_by_key(|found| found.attempt.number);
            let mut container = Container::new(role);
            let of = |number| Attempt { pod: pod.uid().clone(), container: spec.name.clone(), number };
            if let Some((number, how, news)) = latest_run(stored, latest, of, now) {
                container.last = stored.and_then(|stored| last_before(stored, number));
                // The back-off continues from the end of the run, not from now.
                let from = how.finished_at.unwrap_or(now).min(now);
                container.delay = container::delay_after(number);
                container.end(number, how, from);
                container.hurry_if_lost(now);
                if news {
                    reporter.touch(now);
                }
            }
            containers.push(container);
        }
        initialized_before(&pod, &mut containers, now);
        let termination = Termination::of(pod.status.phase);
        let row = RowState::of(&pod);
        Self {
            taken_at: pod.status.start_time.unwrap_or(now),
            // The clock may have been ahead when the Pod was accepted.
            deadline_from: pod.status.start_time.unwrap_or(now).min(now),
            setup: Setup::of(&pod, row.unmounted()),
            row,
            containers: Containers(containers),
            checks: ChecksInFlight::default(),
            reporter: if termination.verdict().is_some() { StatusReporter::default() } else { reporter },
            termination,
            losses: LossRecord::default(),
            storage: StorageWatch::default(),
            unenforced: BTreeSet::new(),
            gone: false,
            cleaning: false,
            pod,
        }
    }
}

impl PodWorker {
    /// The shim has crashed: no process runs any more, and what is known about the processes is in `found`.
    pub fn recover(&mut self, found: &[Found], now: Timestamp) {
        self.checks.clear();
        self.setup.interrupt();
        self.storage.interrupt();
        let names: Vec<_> = self.pod.containers().map(|(_, spec)| spec.name.clone()).collect();
        for (container, name) in self.containers.iter_mut().zip(names) {
            let Some(number) = container.number().filter(|_| container.is_alive()) else { continue };
            let attempt = Attempt { pod: self.pod.metadata.uid.clone(), container: name, number };
            let record = found.iter().find(|found| found.attempt == attempt);
            if record.is_none() && matches!(container.state, State::Starting { .. }) {
                container.never_began();
                continue;
            }
            let how = match record.map(|record| (record, &record.exit)) {
                Some((_, Some(exit))) => container::terminated(&attempt, exit),
                Some((record, None)) => restarted(&attempt, Some(record.started_at), now),
                None => restarted(&attempt, None, now),
            };
            container.end(number, how, now);
            container.hurry_if_lost(now);
            self.reporter.touch(now);
        }
    }
}

fn restarted(attempt: &Attempt, since: Option<Timestamp>, now: Timestamp) -> Terminated {
    let message = "The node was stopped or killed while the container was running, and has ended it";
    unknown(attempt, since, container::RESTARTED, message, now)
}

/// The latest run of a container, how it ended, and whether the stored status lacks that end.
fn latest_run(
    stored: Option<&ContainerStatus>,
    found: Option<&Found>,
    of: impl Fn(u32) -> Attempt,
    now: Timestamp,
) -> Option<(u32, Terminated, bool)> {
    let shown = stored.and_then(|stored| {
        let number = |ended: &Terminated| container::number_of(&ended.container_id).unwrap_or(stored.restart_count);
        let ended = stored.state.terminated.as_ref().or(stored.last_state.terminated.as_ref());
        // If a running state is shown, it belongs to the run after the last one that ended.
        let running = stored.state.running.as_ref();
        let ended = ended.filter(|_| running.is_none()).map(|ended| (number(ended), ended.clone(), false));
        ended.or_else(|| {
            let since = running?.started_at;
            let attempt = of(stored.restart_count);
            let message = "The container could not be located when the node came back; it used to be Running";
            Some((attempt.number, unknown(&attempt, since, container::UNKNOWN, message, now), true))
        })
    });
    let recorded = found.map(|found| {
        let how = match &found.exit {
            Some(exit) => container::terminated(&found.attempt, exit),
            None => restarted(&found.attempt, Some(found.started_at), now),
        };
        (found.attempt.number, how, true)
    });
    match (shown, recorded) {
        (Some(shown), Some(recorded)) if recorded.0 > shown.0 => Some(recorded),
        // The same run: its end is recorded, or only its start.
        (Some(shown), Some(recorded)) if recorded.0 == shown.0 && shown.2 => Some(recorded),
        (Some(shown), _) => Some(shown),
        (None, recorded) => recorded,
    }
}

fn unknown(attempt: &Attempt, since: Option<Timestamp>, reason: &str, message: &str, now: Timestamp) -> Terminated {
    Terminated {
        exit_code: KILLED,
        signal: None,
        reason: reason.into(),
        message: message.to_owned(),
        started_at: since,
        finished_at: Some(now),
        container_id: container::id(attempt),
    }
}

/// How the run before this one ended, as far as the status shows.
fn last_before(stored: &ContainerStatus, number: u32) -> Option<Terminated> {
    let shown = [stored.state.terminated.as_ref(), stored.last_state.terminated.as_ref()];
    let before = |ended: &&Terminated| container::number_of(&ended.container_id).is_some_and(|of| of < number);
    shown.into_iter().flatten().find(before).cloned()
}

/// If a main container has run, the init containers had completed, even if nothing is known about them.
fn initialized_before(pod: &Pod, containers: &mut [Container], now: Timestamp) {
    if !containers.iter().any(|container| container.role == Role::Main && !container.is_fresh()) {
        return;
    }
    for (container, (role, spec)) in containers.iter_mut().zip(pod.containers()) {
        if role == Role::Init && container.is_fresh() {
            let attempt = Attempt { pod: pod.uid().clone(), container: spec.name.clone(), number: 0 };
            let how = Terminated {
                reason: "Completed".into(),
                message: "Nothing is known of this container, but the Pod had been initialized".to_owned(),
                finished_at: Some(now),
                container_id: container::id(&attempt),
                ..Terminated::default()
            };
            container.state = State::Ended { number: 0, how, again_at: now };
        }
    }
}
