//! What a Pod waits for.

use serde_json::Value;
use tally_core::pending::PendingReason;
use tally_core::pod::{Phase, PodView, START_GATE, TRACKING_FINALIZER};
use tally_core::time::{Span, Timestamp};

use crate::cause::{Cause, PodNames};
use crate::controller;
use crate::evidence::{Evidence, finalizers, list, text, time};
use crate::failure::Failure;
use crate::job;
use crate::{Explanation, NextStep, Reason, SETTLES_WITHIN, STARTS_WITHIN, State};

/// A Pod, decoded, and as the API serves it.
#[derive(Debug)]
pub(crate) struct Pod<'a> {
    pub view: PodView,
    pub object: &'a Value,
}

/// Reasons with which a node says that it cannot use an image.
const IMAGE_ERRORS: [&str; 7] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
];

impl<'a> Pod<'a> {
    /// None: it cannot be decoded, and nothing is known about it.
    pub fn read(object: &'a Value) -> Option<Self> {
        Some(Self { view: PodView::from_json(object.to_string().as_bytes()).ok()?, object })
    }

    /// It terminates: deletion was requested, and it has not ended.
    pub fn terminates(&self) -> bool {
        self.view.deleting() && !self.view.phase.is_terminal()
    }

    /// When the grace period of its deletion ends.
    pub fn grace_ends(&self) -> Option<Timestamp> {
        time(&self.object["metadata"]["deletionTimestamp"])
    }

    /// Finalizers of other parties than the Job controller.
    pub fn foreign_finalizers(&self) -> Vec<String> {
        finalizers(self.object).into_iter().filter(|name| name != TRACKING_FINALIZER).collect()
    }

    /// The first container that waits for more than its start, with its reason and message.
    fn waiting(&self) -> Option<(&'a str, String)> {
        let lists = ["/status/initContainerStatuses", "/status/containerStatuses"];
        let all = lists.into_iter().flat_map(|pointer| list(self.object, pointer));
        let known = |reason: &&str| !matches!(*reason, "" | "PodInitializing" | "ContainerCreating");
        all.map(|container| (text(container, "/state/waiting/reason"), text(container, "/state/waiting/message")))
            .find(|(reason, _)| known(reason))
            .map(|(reason, message)| (reason, message.to_owned()))
    }

    /// One of its containers runs, as far as is known, and nothing is wrong with it.
    pub fn runs(&self, evidence: &Evidence, now: Timestamp) -> bool {
        // A Pod is pending until its init containers have ended.
        let has_started = self.view.phase == Phase::Running || self.init_runs();
        self.view.is_active() && has_started && self.problem(evidence, now).is_none()
    }

    fn init_runs(&self) -> bool {
        let first = list(self.object, "/status/initContainerStatuses");
        first.iter().any(|container| container["state"]["running"].is_object())
    }

    /// Why it does not run, or does not end, and since when. None: nothing is wrong.
    pub fn problem(&self, evidence: &Evidence, now: Timestamp) -> Option<(Cause, Option<Timestamp>)> {
        let view = &self.view;
        let pods = PodNames::one(&view.name);
        if view.phase.is_terminal() {
            let foreign = self.foreign_finalizers();
            let stays = view.deleting() && !foreign.is_empty();
            let what = format!("Pod {}", view.name);
            return stays.then_some((Cause::ForeignFinalizers { what, finalizers: foreign }, view.deletion_asked_at));
        }
        let node = view.node_name.to_string();
        let lost = evidence.node_problem(&node);
        if let Some(asked_at) = view.deletion_asked_at {
            return Some(match lost {
                Some((problem, since)) => {
                    (Cause::TerminatingOnLostNode { pods, node, problem }, Some(since.unwrap_or(asked_at)))
                }
                None => (Cause::TerminatingPods { pods, grace_ends: self.grace_ends() }, Some(asked_at)),
            });
        }
        if let Some((problem, since)) = lost {
            return Some((Cause::NodeLost { pods, node, problem }, since));
        }
        if !view.scheduled {
            return self.unscheduled(pods, now);
        }
        let since = view.pending.as_ref().map_or(view.created_at, |pending| pending.since);
        if let Some((reason, message)) = self.waiting() {
            return Some((Cause::of_container(pods, reason, message), Some(since)));
        }
        let pending = view.phase == Phase::Pending;
        let scheduled_at = crate::evidence::condition(self.object, "PodScheduled")
            .and_then(|condition| time(&condition["lastTransitionTime"]))
            .unwrap_or(view.created_at);
        let first = list(self.object, "/status/initContainerStatuses");
        let ended_at = first.iter().filter_map(|container| time(&container["state"]["terminated"]["finishedAt"])).max();
        let scheduled_at = ended_at.map_or(scheduled_at, |at| at.max(scheduled_at));
        if pending && !self.init_runs() && scheduled_at + STARTS_WITHIN < now {
            let events = evidence.events();
            let own = |event: &&crate::evidence::EventView<'_>| {
                event.warning && event.about_kind == "Pod" && view.name == event.about_name
            };
            let message = events.iter().rev().find(own).map(|event| format!("{}: {}", event.reason, event.message));
            return Some((Cause::NotStarted { pods, node, message: message.unwrap_or_default() }, Some(scheduled_at)));
        }
        None
    }

    fn unscheduled(&self, pods: PodNames, now: Timestamp) -> Option<(Cause, Option<Timestamp>)> {
        let view = &self.view;
        // Our own gate is no problem of the Pod: what the controller has to do says whether it stays (`Work`).
        let gates = list(self.object, "/spec/schedulingGates").iter().map(|gate| text(gate, "/name").to_owned());
        let gates: Vec<String> = gates.filter(|name| name != START_GATE).collect();
        if gates.is_empty() && view.start_gated {
            return None;
        }
        if !gates.is_empty() {
            return Some((Cause::SchedulingGated { pods, gates }, Some(view.created_at)));
        }
        if let Some(pending) = &view.pending {
            return Some((Cause::of_scheduler(pods, pending), Some(pending.since)));
        }
        let scheduler = match text(self.object, "/spec/schedulerName") {
            "" => "default-scheduler",
            name => name,
        };
        let cause = Cause::NotScheduled { pods, scheduler: scheduler.to_owned() };
        (view.created_at + SETTLES_WITHIN < now).then_some((cause, Some(view.created_at)))
    }

    pub fn line(&self) -> String {
        let view = &self.view;
        let mut parts = vec![format!("{:?}", view.phase)];
        match view.node_name.as_str() {
            "" => parts.push("no node".to_owned()),
            node => parts.push(format!("on node {node}")),
        }
        if let Some(asked_at) = view.deletion_asked_at {
            parts.push(format!("deletion requested at {asked_at}"));
        }
        if view.phase.is_terminal() {
            parts.push(format!("ended at {}", view.finished_at));
            if view.tracked {
                parts.push("not released".to_owned());
            }
        } else {
            parts.push(format!("created at {}", view.created_at));
        }
        if let Some((reason, _)) = self.waiting() {
            parts.push(reason.to_owned());
        } else if let Some(pending) = &view.pending {
            parts.push(pending.reason.to_string());
        }
        for name in self.foreign_finalizers() {
            parts.push(format!("finalizer {name}"));
        }
        format!("Pod {}: {}", view.name, parts.join(", "))
    }
}

/// The same problem of several Pods is one reason: their names are put together, and the earliest time counts.
pub(crate) fn group(problems: impl Iterator<Item = (Cause, Option<Timestamp>)>) -> Vec<Reason> {
    let mut reasons: Vec<Reason> = Vec::new();
    for (mut cause, since) in problems {
        let name = cause.pods_mut().and_then(|pods| pods.0.pop());
        let known = reasons.iter_mut().find(|known| {
            let mut bare = known.cause.clone();
            if let Some(pods) = bare.pods_mut() {
                pods.0.clear();
            }
            bare.is_like(&cause)
        });
        match known {
            Some(known) => {
                if let Some(pods) = known.cause.pods_mut() {
                    pods.0.extend(name);
                }
                known.cause.widen(&cause);
                known.since = known.since.into_iter().chain(since).min();
            }
            None => {
                if let Some(pods) = cause.pods_mut() {
                    pods.0.extend(name);
                }
                reasons.push(Reason { cause, since });
            }
        }
    }
    // The problem of most Pods first.
    reasons.sort_by_key(|reason| {
        let pods = reason.cause.clone().pods_mut().map_or(1, |pods| pods.0.len());
        std::cmp::Reverse(pods)
    });
    reasons
}

impl Cause {
    /// Why a Pod is pending, from what a controller keeps of it: what the scheduler or the node says, and nothing that is
    /// only a matter of time. A gate is the wish of its owner.
    pub fn of_pending(pod: &PodView) -> Option<Self> {
        let pending = pod.pending.as_ref().filter(|_| pod.is_active())?;
        let pods = PodNames::one(&pod.name);
        match pending.reason.as_str() {
            "SchedulingGated" | "ContainerCreating" => None,
            _ if !pod.scheduled => Some(Self::of_scheduler(pods, pending)),
            reason => Some(Self::of_container(pods, reason, pending.message.clone())),
        }
    }

    fn of_scheduler(pods: PodNames, pending: &PendingReason) -> Self {
        let message = if pending.message.is_empty() { pending.reason.to_string() } else { pending.message.clone() };
        Self::Unschedulable { pods, message }
    }

    fn of_container(pods: PodNames, reason: &str, message: String) -> Self {
        match reason {
            known if IMAGE_ERRORS.contains(&known) => Self::ImageError { pods, reason: reason.to_owned(), message },
            "CrashLoopBackOff" => {
                let message = if message.is_empty() { reason.to_owned() } else { message };
                Self::ContainerRestarting { pods, message }
            }
            _ => Self::ContainerConfigError { pods, reason: reason.to_owned(), message },
        }
    }

    fn pods_mut(&mut self) -> Option<&mut PodNames> {
        match self {
            Self::Unschedulable { pods, .. }
            | Self::SchedulingGated { pods, .. }
            | Self::NotScheduled { pods, .. }
            | Self::ImageError { pods, .. }
            | Self::ContainerConfigError { pods, .. }
            | Self::ContainerRestarting { pods, .. }
            | Self::NotStarted { pods, .. }
            | Self::NodeLost { pods, .. }
            | Self::TerminatingPods { pods, .. }
            | Self::TerminatingOnLostNode { pods, .. } => Some(pods),
            _ => None,
        }
    }

    /// Equal but for what differs from Pod to Pod: both without names.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::TerminatingPods { .. }, Self::TerminatingPods { .. })
            | (Self::ContainerRestarting { .. }, Self::ContainerRestarting { .. }) => true,
            (Self::ImageError { message: one, .. }, Self::ImageError { message: other, .. }) => {
                // `ErrImagePull` and `ImagePullBackOff` take turns.
                one == other || one.is_empty() || other.is_empty()
            }
            (Self::NotStarted { node: one, .. }, Self::NotStarted { node: other, .. }) => one == other,
            _ => self == other,
        }
    }

    /// Takes over what a further Pod knows.
    fn widen(&mut self, other: &Self) {
        match (self, other) {
            (Self::TerminatingPods { grace_ends: one, .. }, Self::TerminatingPods { grace_ends: other, .. }) => {
                *one = (*one).max(*other);
            }
            (Self::ImageError { message: one, .. }, Self::ImageError { message: other, .. })
            | (Self::NotStarted { message: one, .. }, Self::NotStarted { message: other, .. })
                if one.is_empty() =>
            {
                one.clone_from(other);
            }
            _ => {}
        }
    }
}

pub(crate) fn explain(evidence: &Evidence, now: Timestamp) -> Explanation {
    let Some(pod) = Pod::read(&evidence.object) else {
        let problem = PodView::from_json(evidence.object.to_string().as_bytes()).err().map(|error| error.to_string());
        let cause = Cause::Unreadable { problem: problem.unwrap_or_default() };
        let mut explanation = Explanation::of(evidence, "Pod", State::Waiting, String::new());
        explanation.reasons.push(Reason { cause, since: None });
        return explanation;
    };
    let view = &pod.view;
    let (state, summary) = match view.phase {
        Phase::Succeeded => (State::Complete, "The Pod has succeeded.".to_owned()),
        Phase::Failed => {
            let reason = if view.reason.is_empty() { String::new() } else { format!(" ({})", view.reason) };
            (State::Failed, format!("The Pod has failed{reason}."))
        }
        _ if view.deleting() => (State::Deleting, "The Pod is being deleted.".to_owned()),
        Phase::Running => (State::Running, "The Pod runs.".to_owned()),
        _ => (State::Running, "The Pod is being started.".to_owned()),
    };
    let mut explanation = Explanation::of(evidence, "Pod", state, summary);
    explanation.reasons.extend(pod.problem(evidence, now).map(|(cause, since)| Reason { cause, since }));
    let ended_long_ago = view.finished_at + SETTLES_WITHIN < now;
    if view.phase.is_terminal() && view.tracked && view.job().is_some() && ended_long_ago {
        let pods = PodNames::one(&view.name);
        let stands = controller::standing(evidence, "count the Pod", view.finished_at, now);
        explanation.reasons.push(Reason { cause: Cause::UncountedPods { pods }, since: Some(view.finished_at) });
        explanation.reasons.extend(stands);
    }
    if evidence.host == crate::Host::Stopped && !view.phase.is_terminal() {
        explanation.reasons.insert(0, controller::stopped(evidence, "run the Pod"));
    }
    if pod.terminates() {
        let what = "the grace period of the Pod ends; then its processes are killed".to_owned();
        explanation.next.extend(pod.grace_ends().map(|at| NextStep { at, what }));
    }
    if let Some(job) = evidence.job.as_ref().and_then(|job| job::read(job).ok()) {
        let due_at = job.spec.pending_timeouts.as_ref().filter(|_| view.phase == Phase::Pending);
        let due_at = due_at.and_then(|limits| limits.due_at(view.created_at, view.pending.as_deref()));
        let what = format!("Job {} fails if the Pod is still pending (tally.dev/pending-timeout)", job.name);
        explanation.next.extend(due_at.map(|at| NextStep { at, what }));
    }
    if let (Some(ttl), true) = (view.ttl_after_finished, view.phase.is_terminal()) {
        let at = view.finished_at + Span::from_seconds(i64::from(ttl));
        explanation.next.push(NextStep { at, what: "the Pod is deleted: its TTL ends".to_owned() });
    }
    if !explanation.reasons.is_empty() && matches!(explanation.state, State::Running) {
        explanation.state = State::Waiting;
    }
    if explanation.state != State::Complete {
        explanation.failures.extend(Failure::of(&pod));
    }
    explanation.evidence.push(pod.line());
    controller::node_lines(evidence, [view.node_name.as_str()].into_iter(), &mut explanation.evidence);
    controller::event_lines(evidence, &mut explanation.evidence);
    explanation
}
