//! The status of a Pod, as a kubelet would write it: a strategic merge patch, so that conditions of other writers stay.

use tally_core::pod::Phase;
use tally_core::time::Timestamp;
use tally_value::{Map, Value, json};

use super::PodWorker;
use super::container::{self, Container, KILLED, State};
use super::ending::EndReason;
use crate::losses;
use crate::options::NodeOptions;
use crate::pod::{self, Role, Terminated};

const BY_KUBELET: &str = "TerminationByKubelet";
/// A condition of Pods with limits that have no effect on this machine.
pub(super) const LIMITS_ENFORCED: &str = "tally.dev/LimitsEnforced";
pub(super) const UNREADABLE: &str = "this Pod makes no sense to the node";

impl PodWorker {
    /// The current phase. It only moves forward: Pending, Running, then Succeeded or Failed.
    pub fn phase(&self) -> Phase {
        let stored = self.pod.status.phase;
        if stored.is_terminal() {
            return stored;
        }
        if let Some(verdict) = self.termination.verdict() {
            return verdict;
        }
        if self.pod.unreadable.is_some() {
            return stored;
        }
        let mut main = self.containers.iter().filter(|container| container.role == Role::Main);
        let runs = main.all(|container| match &container.state {
            State::Fresh => false,
            State::Starting { previous, .. } => previous.is_some(),
            State::Running { .. } | State::Ended { .. } => true,
        });
        stored.max(if runs && self.containers.are_initialized(&self.pod) { Phase::Running } else { Phase::Pending })
    }

    pub(super) fn status(&self, node: &NodeOptions, now: Timestamp) -> Value {
        let phase = self.phase();
        if let Some(problem) = &self.pod.unreadable {
            // The status cannot contain anything else: the spec is not readable.
            let message = format!("{UNREADABLE}: {problem}");
            return json!({"phase": name(phase), "reason": "Unreadable", "message": message, "conditions": []});
        }
        let mut status = Map::new();
        let mut say = |key: &str, value: Value| status.insert(key, value);
        say("observedGeneration", self.pod.metadata.generation.into());
        say("phase", name(phase).into());
        if self.pod.status.start_time.is_none() {
            say("startTime", self.taken_at.to_string().into());
        }
        say("hostIP", node.address.clone().into());
        say("hostIPs", json!([{"ip": node.address}]));
        if self.containers.iter().any(|container| !container.is_fresh()) {
            say("podIP", node.address.clone().into());
            say("podIPs", json!([{"ip": node.address}]));
        }
        if let (Some((reason, message)), Phase::Failed) = (self.reason(), phase) {
            say("reason", reason.into());
            say("message", message.into());
        }
        say("conditions", self.conditions(phase, node, now));
        let of = |main: bool| -> Vec<Value> {
            let each = self.containers.with_specs(&self.pod);
            let each = each.filter(|(container, _)| (container.role == Role::Main) == main);
            each.map(|(container, spec)| self.container_status(container, spec)).collect()
        };
        say("containerStatuses", of(true).into());
        let init = of(false);
        if !init.is_empty() {
            say("initContainerStatuses", init.into());
        }
        Value::Object(status)
    }

    /// Why the Pod was ended, if the reason is not a container's.
    fn reason(&self) -> Option<(&'static str, &str)> {
        match self.termination.reason()? {
            EndReason::Deadline => {
                Some(("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"))
            }
            EndReason::Evicted => Some(("Evicted", self.storage.eviction.as_deref()?)),
            EndReason::Shutdown => Some(("Terminated", "Pod was terminated in response to imminent node shutdown.")),
            _ => None,
        }
    }

    fn container_status(&self, container: &Container, spec: &pod::Container) -> Value {
        let id = |number| {
            container::id(&crate::port::Attempt { pod: self.uid().clone(), container: spec.name.clone(), number })
        };
        let mut last = container.last.as_ref();
        let mut shown = container.number();
        let state = match &container.state {
            State::Running { since, .. } => json!({"running": {"startedAt": since.to_string()}}),
            State::Ended { how, .. } if container.waiting.is_some() || container.backs_off => {
                // Only a container that may still be restarted is waiting.
                if self.termination.verdict().is_some() {
                    terminated(how)
                } else {
                    last = Some(how);
                    let back_off = || {
                        let seconds = container.wait.millis() / 1000;
                        let (name, pod) = (&spec.name, self.full_name());
                        let message = format!("back-off {seconds}s restarting failed container={name} pod={pod}");
                        json!({"reason": "CrashLoopBackOff", "message": message})
                    };
                    let waiting = container
                        .waiting
                        .as_ref()
                        .map_or_else(back_off, |failure| json!({"reason": failure.reason, "message": failure.message}));
                    json!({"waiting": waiting})
                }
            }
            State::Ended { how, .. } => terminated(how),
            State::Starting { number, previous: Some(how) } => {
                shown = number.checked_sub(1);
                terminated(how)
            }
            State::Starting { previous: None, .. } => {
                shown = None;
                self.waits(container)
            }
            State::Fresh => self.waits(container),
        };
        let last = last.map_or(json!({}), terminated);
        let mut status = json!({
            "name": spec.name, "image": spec.image, "imageID": "", "restartCount": shown.unwrap_or(0),
            "ready": container.is_ready(spec), "started": container.has_started(spec),
            "state": state, "lastState": last,
        });
        if let Some(number) = shown {
            status["containerID"] = id(number).into();
        }
        status
    }

    /// The state of a container that has never run.
    fn waits(&self, container: &Container) -> Value {
        let deserted = self.termination.verdict().is_some() && self.termination.reason() != Some(EndReason::FailedInit);
        if deserted {
            return terminated(&Terminated {
                exit_code: KILLED,
                reason: container::UNKNOWN.into(),
                message: "The container could not be located when the pod was terminated".to_owned(),
                ..Terminated::default()
            });
        }
        if let Some(failure) = container.waiting.as_ref().or(self.setup.blocked()) {
            return json!({"waiting": {"reason": failure.reason, "message": failure.message}});
        }
        let init = self.containers.iter().any(|container| container.role != Role::Main);
        json!({"waiting": {"reason": if init { "PodInitializing" } else { "ContainerCreating" }}})
    }

    /// The conditions that are new or have changed.
    fn conditions(&self, phase: Phase, node: &NodeOptions, now: Timestamp) -> Value {
        let named = |which: &dyn Fn(&Container, &pod::Container) -> bool| -> Vec<&str> {
            let each = self.containers.with_specs(&self.pod);
            each.filter(|(container, spec)| which(container, spec)).map(|(_, spec)| spec.name.as_str()).collect()
        };
        let over = match phase {
            Phase::Succeeded => Some("PodCompleted"),
            Phase::Failed => Some("PodFailed"),
            _ => None,
        };
        let prepared = self.setup.is_prepared() && over.is_none();
        let initialized = match over {
            Some("PodCompleted") => ConditionState::holds().because("PodCompleted", None),
            _ if self.containers.are_initialized(&self.pod) => ConditionState::holds(),
            _ => {
                let incomplete = named(&|container, spec| !self.containers.lets_others_begin(container, spec));
                let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
                ConditionState::fails().because("ContainersNotInitialized", Some(message))
            }
        };
        let not_ready = named(&|container, spec| container.role != Role::Init && !container.is_ready(spec));
        let ready = match over {
            Some(reason) => ConditionState::fails().because(reason, None),
            None if not_ready.is_empty() => ConditionState::holds(),
            None => {
                let message = format!("containers with unready status: [{}]", not_ready.join(" "));
                ConditionState::fails().because("ContainersNotReady", Some(message))
            }
        };
        let mut list = Vec::new();
        let mut set = |kind: &str, fact: &ConditionState| list.extend(self.condition(kind, fact, now));
        set("PodReadyToStartContainers", &ConditionState { holds: prepared, ..ConditionState::holds() });
        set("Initialized", &initialized);
        set("Ready", &ready);
        set("ContainersReady", &ready);
        set("PodScheduled", &ConditionState::holds());
        if !self.unenforced.is_empty() {
            let message = self.unenforced.iter().map(String::as_str).collect::<Vec<_>>().join("; ");
            set(LIMITS_ENFORCED, &ConditionState::fails().because("NotSupportedByNode", Some(message)));
        }
        let disruption = self.disruption(node).filter(|_| node.disruption_conditions);
        if let (Some("PodFailed"), Some((reason, message))) = (over, disruption) {
            set("DisruptionTarget", &ConditionState::holds().because(reason, Some(message)));
        }
        list.into()
    }

    /// Why the Pod's failure is not its own fault, if so: a Job's Pod failure policy can ignore such failures.
    fn disruption(&self, node: &NodeOptions) -> Option<(&'static str, String)> {
        let reason = self.termination.reason()?;
        if node.release_lost
            && self.is_given_up()
            && !matches!(reason, EndReason::Deadline | EndReason::Evicted)
            && self.containers.are_lost()
        {
            let message = format!(
                "The node was killed {} times while this Pod or one that it replaced was running; \
                 the Pod may be the cause, and is not run again",
                losses::MOST
            );
            return Some((BY_KUBELET, message));
        }
        match reason {
            EndReason::Shutdown | EndReason::Evicted => {
                self.reason().map(|(_, message)| (BY_KUBELET, message.to_owned()))
            }
            EndReason::Finished | EndReason::FailedInit | EndReason::Deleted => {
                let message = "The node was stopped or killed while the Pod was running";
                self.containers.are_lost().then(|| (container::RESTARTED, message.to_owned()))
            }
            EndReason::Deadline | EndReason::Overruled | EndReason::Gone => None,
        }
    }

    fn condition(&self, kind: &str, fact: &ConditionState, now: Timestamp) -> Option<Value> {
        let stored = self.pod.status.conditions.iter().find(|condition| condition.kind == kind);
        let status = if fact.holds { "True" } else { "False" };
        let message = fact.message.as_deref().unwrap_or_default();
        if stored
            .is_some_and(|stored| stored.status == status && stored.reason == fact.reason && stored.message == message)
        {
            return None;
        }
        let since = stored.filter(|stored| stored.status == status).and_then(|stored| stored.last_transition_time);
        let mut condition = json!({
            "type": kind, "status": status,
            "lastTransitionTime": since.unwrap_or(now).to_string(), "observedGeneration": self.pod.metadata.generation,
        });
        if stored.is_none() {
            condition["lastProbeTime"] = Value::Null;
        }
        for (field, said, before) in [
            ("reason", fact.reason, stored.map(|stored| stored.reason.as_str())),
            ("message", message, stored.map(|stored| stored.message.as_str())),
        ] {
            if !said.is_empty() {
                condition[field] = said.into();
            } else if before.is_some_and(|before| !before.is_empty()) {
                // The stored text no longer applies.
                condition[field] = Value::Null;
            }
        }
        Some(condition)
    }
}

struct ConditionState {
    holds: bool,
    reason: &'static str,
    message: Option<String>,
}

impl ConditionState {
    fn holds() -> Self {
        Self { holds: true, reason: "", message: None }
    }

    fn fails() -> Self {
        Self { holds: false, ..Self::holds() }
    }

    fn because(self, reason: &'static str, message: Option<String>) -> Self {
        Self { reason, message, ..self }
    }
}

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Pending",
        Phase::Running => "Running",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
        Phase::Unknown => "Unknown",
    }
}

fn terminated(how: &Terminated) -> Value {
    let time = |at: Option<Timestamp>| at.map_or(Value::Null, |at| at.to_string().into());
    let mut said = json!({
        "exitCode": how.exit_code, "reason": how.reason,
        "startedAt": time(how.started_at), "finishedAt": time(how.finished_at),
    });
    if let Some(signal) = how.signal {
        said["signal"] = signal.into();
    }
    for (field, text) in [("message", &how.message), ("containerID", &how.container_id)] {
        if !text.is_empty() {
            said[field] = text.as_str().into();
        }
    }
    json!({"terminated": said})
}
