//! The fields of a Pod that a hollow node uses, as long as the Pod has not ended.

use std::collections::BTreeMap;

use compact_str::CompactString;
use serde::Deserialize;
use tally_core::ids::{PodUid, Revision};
use tally_core::pod::{Phase, PodView};
use tally_core::time::{Span, Timestamp};
use tally_runtime::controller::Object;

use super::script::Script;

#[derive(Clone, Debug)]
pub struct Pod {
    pub uid: PodUid,
    pub namespace: CompactString,
    pub name: CompactString,
    pub revision: Revision,
    pub generation: i64,
    pub deletion: Option<Deletion>,
    pub restart_policy: RestartPolicy,
    pub active_deadline: Option<Span>,
    pub containers: Vec<Container>,
    pub phase: Phase,
    /// The condition PodScheduled is present.
    pub scheduled: bool,
    /// When the node accepted it.
    pub started_at: Option<Timestamp>,
    pub restarts: u32,
    pub state: State,
    /// Attempts of the same completion index before this Pod.
    pub earlier_attempts: u32,
    pub script: Result<Script, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletion {
    pub asked_at: Timestamp,
    /// When the grace period is over.
    pub ends_at: Timestamp,
    /// The node has not confirmed yet.
    pub graceful: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

/// What the containers do. They all do the same, so the first one is representative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    NotStarted,
    Running { since: Timestamp },
    WaitsForRestart { since: Timestamp },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    pub name: CompactString,
    pub image: CompactString,
    pub role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Init,
    Sidecar,
    Main,
}

impl Deletion {
    pub fn of(seen: &PodView) -> Option<Self> {
        let grace = seen.deletion_grace.unwrap_or(0);
        seen.deletion_asked_at.map(|asked_at| Self {
            asked_at,
            ends_at: asked_at + Span::from_seconds(grace),
            graceful: grace > 0,
        })
    }
}

impl Pod {
    /// None: it cannot be decoded.
    pub fn read(seen: &PodView, object: &Object) -> Option<Self> {
        let Wire { metadata, spec, status } = object.read().ok()?;
        let status = status.unwrap_or_default();
        let annotations = metadata.annotations.unwrap_or_default();
        let init = spec.init_containers.unwrap_or_default().into_iter().map(|container| {
            let sidecar = container.restart_policy.as_deref() == Some("Always");
            container.with(if sidecar { Role::Sidecar } else { Role::Init })
        });
        let main = spec.containers.unwrap_or_default().into_iter().map(|container| container.with(Role::Main));
        let first = status.container_statuses.unwrap_or_default().into_iter().next().unwrap_or_default();
        Some(Self {
            uid: seen.uid.clone(),
            namespace: seen.namespace.clone(),
            name: seen.name.clone(),
            revision: seen.revision,
            generation: seen.generation.unwrap_or(0),
            deletion: Deletion::of(seen),
            restart_policy: match spec.restart_policy.as_deref() {
                Some("Never") => RestartPolicy::Never,
                Some("OnFailure") => RestartPolicy::OnFailure,
                _ => RestartPolicy::Always,
            },
            active_deadline: spec.active_deadline_seconds.map(Span::from_seconds),
            containers: init.chain(main).collect(),
            phase: seen.phase,
            scheduled: seen.conditions.iter().any(|(kind, _)| kind == "PodScheduled"),
            started_at: status.start_time,
            restarts: first.restart_count.unwrap_or(0),
            state: first.state(),
            earlier_attempts: seen.failure_count.saturating_add(seen.ignored_failure_count),
            script: Script::read(annotations.iter().map(|(key, text)| (key.as_str(), text.as_str())), seen.index),
        })
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: Metadata,
    spec: Spec,
    status: Option<Status>,
}

#[derive(Deserialize)]
struct Metadata {
    annotations: Option<BTreeMap<CompactString, CompactString>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    restart_policy: Option<CompactString>,
    active_deadline_seconds: Option<i64>,
    containers: Option<Vec<WireContainer>>,
    init_containers: Option<Vec<WireContainer>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireContainer {
    #[serde(default)]
    name: CompactString,
    image: Option<CompactString>,
    restart_policy: Option<CompactString>,
}

impl WireContainer {
    fn with(self, role: Role) -> Container {
        Container { name: self.name, image: self.image.unwrap_or_default(), role }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    start_time: Option<Timestamp>,
    container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus {
    restart_count: Option<u32>,
    state: Option<WireState>,
    last_state: Option<WireState>,
}

#[derive(Default, Deserialize)]
struct WireState {
    running: Option<Running>,
    terminated: Option<Terminated>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Running {
    started_at: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Terminated {
    finished_at: Option<Timestamp>,
}

impl ContainerStatus {
    fn state(&self) -> State {
        let now = self.state.as_ref();
        if let Some(since) = now.and_then(|state| state.running.as_ref()).and_then(|running| running.started_at) {
            return State::Running { since };
        }
        let ended = [now, self.last_state.as_ref()]
            .into_iter()
            .flatten()
            .find_map(|state| state.terminated.as_ref().and_then(|terminated| terminated.finished_at));
        ended.map_or(State::NotStarted, |since| State::WaitsForRestart { since })
    }
}
