//! The status of a Pod as a kubelet writes it: a strategic patch, so that the conditions of other writers stay.

use tally_core::ids::PodUid;
use tally_core::pod::Phase;
use tally_core::time::Timestamp;
use tally_value::{Map, Value, json};

use super::nodes;
use super::plan::{Ending, Step};
use super::pod::{Container, Pod, Role, State};

/// The fields of a Pod that a report needs.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    pub generation: i64,
    pub scheduled: bool,
    pub started_at: Option<Timestamp>,
    pub restarts: u32,
    pub state: State,
}

impl Facts {
    pub fn of(pod: &Pod) -> Self {
        Self {
            generation: pod.generation,
            scheduled: pod.scheduled,
            started_at: pod.started_at,
            restarts: pod.restarts,
            state: pod.state,
        }
    }
}

/// What is reported about each container.
struct ContainerReport<'a> {
    uid: &'a PodUid,
    restarts: u32,
    state: ContainerState,
    /// The state of the previous run.
    last: Option<Value>,
}

enum ContainerState {
    Creating,
    Running(Timestamp),
    BacksOff(Value),
    Ended(Value),
    NeverStarted,
}

/// The status that reports a step.
pub fn status(facts: &Facts, uid: &PodUid, containers: &[Container], node: u32, step: &Step, now: Timestamp) -> Value {
    let began_at = match facts.state {
        State::Running { since } => since,
        _ => now,
    };
    let ended = |exit_code: i32| terminated(exit_code, began_at, now);
    let tell = |restarts, state, last| ContainerReport { uid, restarts, state, last };
    let (phase, told) = match step {
        Step::Accept => (Phase::Pending, tell(0, ContainerState::Creating, None)),
        Step::Start => (Phase::Running, tell(facts.restarts, ContainerState::Running(now), None)),
        Step::BackOff { exit_code, delay } => {
            let waiting = json!({
                "reason": "CrashLoopBackOff",
                "message": format!("back-off {}ms restarting failed container", delay.millis()),
            });
            (Phase::Running, tell(facts.restarts, ContainerState::BacksOff(waiting), Some(ended(*exit_code))))
        }
        Step::Restart { exit_code } => {
            let last = match facts.state {
                State::WaitsForRestart { since } => terminated(*exit_code, since, since),
                _ => ended(*exit_code),
            };
            (Phase::Running, tell(facts.restarts.saturating_add(1), ContainerState::Running(now), Some(last)))
        }
        Step::End(ending) => {
            let (phase, state) = match ending {
                Ending::Exited(0) => (Phase::Succeeded, ContainerState::Ended(ended(0))),
                Ending::Overdue(_) if facts.state == State::NotStarted => (Phase::Failed, ContainerState::NeverStarted),
                Ending::Exited(code) | Ending::Disrupted(code, _) | Ending::Overdue(code) => {
                    (Phase::Failed, ContainerState::Ended(ended(*code)))
                }
                Ending::NeverStarted | Ending::Refused(_) => (Phase::Failed, ContainerState::NeverStarted),
            };
            (phase, tell(facts.restarts, state, None))
        }
        // Nothing is reported about a Pod that is being removed: its last status stands.
        Step::Remove => return json!({}),
    };
    let mut status = Map::new();
    let mut say = |key: &str, value: Value| status.insert(key.to_owned(), value);
    say("observedGeneration", facts.generation.into());
    say("phase", phase_name(phase).into());
    if facts.started_at.is_none() {
        say("startTime", now.to_string().into());
        say("hostIP", nodes::address(node).into());
        say("hostIPs", json!([{"ip": nodes::address(node)}]));
    }
    if facts.state == State::NotStarted && told.ran() {
        let address = nodes::pod_address(uid);
        say("podIP", address.clone().into());
        say("podIPs", json!([{"ip": address}]));
    }
    match step {
        Step::End(Ending::Overdue(_)) => {
            say("reason", "DeadlineExceeded".into());
            say("message", "Pod was active on the node longer than the specified deadline".into());
        }
        Step::End(Ending::Refused(problem)) => {
            say("reason", "BadAnnotation".into());
            say("message", problem.to_string().into());
        }
        _ => {}
    }
    say("conditions", conditions(facts, phase, step, now));
    let of = |main: bool| -> Vec<Value> {
        let these = containers.iter().filter(|container| (container.role == Role::Main) == main);
        these.map(|container| told.about(container, now)).collect()
    };
    say("containerStatuses", of(true).into());
    let init = of(false);
    if !init.is_empty() {
        say("initContainerStatuses", init.into());
    }
    Value::Object(status)
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Pending",
        Phase::Running => "Running",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
        Phase::Unknown => "Unknown",
    }
}

fn terminated(exit_code: i32, began_at: Timestamp, ended_at: Timestamp) -> Value {
    let reason = if exit_code == 0 { "Completed" } else { "Error" };
    json!({
        "exitCode": exit_code, "reason": reason,
        "startedAt": began_at.to_string(), "finishedAt": ended_at.to_string(),
    })
}

fn never_started() -> Value {
    json!({
        "exitCode": super::script::KILLED, "reason": "ContainerStatusUnknown",
        "message": "The container could not be located when the pod was terminated",
        "startedAt": null, "finishedAt": null,
    })
}

impl ContainerReport<'_> {
    fn ran(&self) -> bool {
        !matches!(self.state, ContainerState::Creating | ContainerState::NeverStarted)
    }

    fn about(&self, container: &Container, now: Timestamp) -> Value {
        let running = |since: Timestamp| (json!({"running": {"startedAt": since.to_string()}}), true);
        let completed = |at: Timestamp| json!({"terminated": terminated(0, at, at)});
        let role = container.role;
        let (state, ready) = match &self.state {
            ContainerState::Creating => (json!({"waiting": {"reason": "ContainerCreating"}}), false),
            ContainerState::NeverStarted => (json!({"terminated": never_started()}), false),
            // Init containers have completed; sidecars run as long as the other containers do.
            ContainerState::Running(since) if role == Role::Init => (completed(*since), true),
            ContainerState::BacksOff(_) | ContainerState::Ended(_) if role == Role::Init => (completed(now), true),
            ContainerState::Running(since) => running(*since),
            ContainerState::BacksOff(_) if role == Role::Sidecar => running(now),
            ContainerState::BacksOff(waiting) => (json!({"waiting": waiting}), false),
            ContainerState::Ended(_) if role == Role::Sidecar => (completed(now), false),
            ContainerState::Ended(ended) => (json!({"terminated": ended}), false),
        };
        let restarts = if role == Role::Main { self.restarts } else { 0 };
        let last = self.last.as_ref().filter(|_| role == Role::Main);
        let last = last.map_or(json!({}), |last| json!({"terminated": last}));
        let started = ready && role != Role::Init;
        let mut status = json!({
            "name": container.name, "image": container.image, "imageID": "", "restartCount": restarts,
            "ready": ready, "started": started, "state": state, "lastState": last,
        });
        if self.ran() {
            status["containerID"] = format!("hollow://{}-{}-{restarts}", self.uid, container.name).into();
        }
        status
    }
}

/// The conditions that a kubelet maintains. Only those that change: the others keep their times.
fn conditions(facts: &Facts, phase: Phase, step: &Step, now: Timestamp) -> Value {
    let mut list = Vec::new();
    let first = facts.started_at.is_none();
    let mut set = |kind: &str, holds: bool, reason: Option<&str>| {
        let mut condition = json!({
            "type": kind, "status": if holds { "True" } else { "False" },
            "lastProbeTime": null, "lastTransitionTime": now.to_string(), "observedGeneration": facts.generation,
        });
        match reason {
            Some(reason) => condition["reason"] = reason.into(),
            // The previous reason no longer holds.
            None if !first => condition["reason"] = Value::Null,
            None => {}
        }
        list.push(condition);
    };
    match (step, phase) {
        (Step::Accept, _) => {
            set("PodReadyToStartContainers", false, None);
            set("Initialized", true, None);
            set("Ready", false, Some("ContainersNotReady"));
            set("ContainersReady", false, Some("ContainersNotReady"));
        }
        (Step::Start, _) => {
            set("PodReadyToStartContainers", true, None);
            set("Initialized", true, None);
            set("Ready", true, None);
            set("ContainersReady", true, None);
        }
        (Step::BackOff { .. }, _) => {
            set("Ready", false, Some("ContainersNotReady"));
            set("ContainersReady", false, Some("ContainersNotReady"));
        }
        (Step::Restart { .. }, _) => {
            set("Ready", true, None);
            set("ContainersReady", true, None);
        }
        (Step::End(_) | Step::Remove, phase) => {
            let reason = if phase == Phase::Succeeded { "PodCompleted" } else { "PodFailed" };
            set("PodReadyToStartContainers", false, None);
            set("Initialized", true, Some(reason).filter(|_| phase == Phase::Succeeded));
            set("Ready", false, Some(reason));
            set("ContainersReady", false, Some(reason));
        }
    }
    if !facts.scheduled {
        set("PodScheduled", true, None);
    }
    if let Step::End(Ending::Disrupted(_, reason)) = step {
        set("DisruptionTarget", true, Some(reason));
    }
    Value::Array(list.into())
}
