//! The compact view of a Pod: the few fields that the Job rules use, decoded without building the whole object.

use compact_str::CompactString;
use serde::{Deserialize, Deserializer, de};
use smallvec::SmallVec;

use crate::ids::{CompletionIndex, JobUid, PodUid, Revision};
use crate::indexes::{count_from_annotation, index_from_annotation};
use crate::pending::PendingReason;
use crate::selector::Labels;
use crate::time::{Span, Timestamp};
use crate::view::{ViewError, null_default, required_uid, revision, text_map};

/// Prevents a finished Pod from being removed before it is counted.
pub const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// A scheduling gate: the Pod starts once a controller knows that its Job still wants it (TTL-23).
pub const START_GATE: &str = "tally.dev/counted-once";
pub const INDEX_ANNOTATION: &str = "batch.kubernetes.io/job-completion-index";
/// On a Job that runs failed indexes of another Job again, and on its Pods: these indexes, as the API writes sets of them.
/// The first Pod runs the first of them.
pub const RETRY_INDEXES_ANNOTATION: &str = "tally.dev/retry-indexes";
pub const FAILURE_COUNT_ANNOTATION: &str = "batch.kubernetes.io/job-index-failure-count";
pub const IGNORED_FAILURE_COUNT_ANNOTATION: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    #[default]
    Pending,
    Unknown,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    pub fn is_terminal(self) -> bool {
        matches!(self, Phase::Succeeded | Phase::Failed)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct PodView {
    pub uid: PodUid,
    pub namespace: CompactString,
    pub name: CompactString,
    pub revision: Revision,
    pub created_at: Timestamp,
    /// When deletion was requested: deletionTimestamp minus the grace period.
    pub deletion_asked_at: Option<Timestamp>,
    pub labels: Labels,
    pub controller: Option<ControllerRef>,
    /// Carries the tracking finalizer.
    pub tracked: bool,
    pub phase: Phase,
    /// Has the start gate, so no scheduler gives it a node.
    pub start_gated: bool,
    pub scheduled: bool,
    /// Empty without a node.
    pub node_name: CompactString,
    /// Condition Ready=True.
    pub ready: bool,
    /// When Ready last changed, whatever its value is now.
    pub ready_changed_at: Option<Timestamp>,
    /// BACKOFF-6.
    pub finished_at: Timestamp,
    /// How long it stays after its end, if that is annotated (TTL-18).
    pub ttl_after_finished: Option<i32>,
    pub index: Option<CompletionIndex>,
    pub failure_count: u32,
    pub ignored_failure_count: u32,
    pub restarts: Restarts,
    /// Containers that ended with an exit code other than 0: regular ones first, then init containers.
    pub exits: SmallVec<[Exit; 1]>,
    /// Why it failed: the reason of the Pod, or that of its first such container unless it is only `Error`.
    pub reason: CompactString,
    /// Why the Pod is pending, if it is and there is a reason.
    pub pending: Option<Box<PendingReason>>,
    /// Conditions as (type, status), in the Pod's order.
    pub conditions: SmallVec<[(CompactString, CompactString); 2]>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Restarts {
    /// The most restarts of one regular container.
    pub regular: u32,
    /// The most restarts of one sidecar.
    pub sidecar: u32,
    /// Of all containers and init containers together (BACKOFF-9).
    pub sum: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    pub container: CompactString,
    pub code: i32,
}

/// The owner reference with `controller: true`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerRef {
    pub uid: JobUid,
    pub name: CompactString,
    /// Exactly kind Job of batch/v1. Pods of other controllers are never touched.
    pub is_job: bool,
}

impl PodView {
    pub fn deleting(&self) -> bool {
        self.deletion_asked_at.is_some()
    }

    pub fn is_active(&self) -> bool {
        !self.phase.is_terminal() && !self.deleting()
    }

    /// The Job that controls this Pod.
    pub fn job(&self) -> Option<&JobUid> {
        self.controller.as_ref().filter(|controller| controller.is_job).map(|controller| &controller.uid)
    }

    /// Decodes a `v1` Pod as JSON.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ViewError> {
        let wire: WirePod = serde_json::from_slice(bytes).map_err(|source| ViewError::pod(bytes, &source))?;
        wire.into_view()
    }
}

/// From any form of a `v1` Pod, as from its text.
impl<'de> Deserialize<'de> for PodView {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        WirePod::deserialize(deserializer)?.into_view().map_err(de::Error::custom)
    }
}

#[derive(Deserialize)]
struct WirePod<'a> {
    #[serde(borrow)]
    metadata: WireMeta<'a>,
    #[serde(default, deserialize_with = "null_default")]
    spec: WireSpec,
    #[serde(default, deserialize_with = "null_default")]
    status: WireStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMeta<'a> {
    #[serde(default)]
    uid: Option<PodUid>,
    #[serde(default, deserialize_with = "null_default")]
    namespace: CompactString,
    #[serde(default, deserialize_with = "null_default")]
    name: CompactString,
    #[serde(default, borrow)]
    resource_version: Option<std::borrow::Cow<'a, str>>,
    #[serde(default)]
    creation_timestamp: Option<Timestamp>,
    #[serde(default)]
    deletion_timestamp: Option<Timestamp>,
    #[serde(default)]
    deletion_grace_period_seconds: Option<i64>,
    #[serde(default, deserialize_with = "text_map")]
    labels: Labels,
    #[serde(default, deserialize_with = "null_default")]
    annotations: WireAnnotations,
    #[serde(default, deserialize_with = "null_default")]
    finalizers: Vec<CompactString>,
    #[serde(default, deserialize_with = "null_default")]
    owner_references: Vec<WireOwner>,
}

#[derive(Deserialize, Default)]
struct WireAnnotations {
    #[serde(rename = "batch.kubernetes.io/job-completion-index", default)]
    index: Option<CompactString>,
    #[serde(rename = "batch.kubernetes.io/job-index-failure-count", default)]
    failure_count: Option<CompactString>,
    #[serde(rename = "tally.dev/ttl-seconds-after-finished", default)]
    ttl_after_finished: Option<CompactString>,
    #[serde(rename = "batch.kubernetes.io/job-index-ignored-failure-count", default)]
    ignored_failure_count: Option<CompactString>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireOwner {
    #[serde(default, deserialize_with = "null_default")]
    api_version: CompactString,
    #[serde(default, deserialize_with = "null_default")]
    kind: CompactString,
    #[serde(default, deserialize_with = "null_default")]
    name: CompactString,
    #[serde(default)]
    uid: Option<JobUid>,
    #[serde(default)]
    controller: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    #[serde(default)]
    node_name: Option<CompactString>,
    #[serde(default, deserialize_with = "null_default")]
    init_containers: Vec<WireInitContainer>,
    #[serde(default, deserialize_with = "null_default")]
    scheduling_gates: Vec<WireGate>,
}

#[derive(Deserialize)]
struct WireGate {
    #[serde(default, deserialize_with = "null_default")]
    name: CompactString,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireInitContainer {
    #[serde(default, deserialize_with = "null_default")]
    name: CompactString,
    #[serde(default)]
    restart_policy: Option<CompactString>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireStatus {
    #[serde(default)]
    phase: Option<CompactString>,
    #[serde(default, deserialize_with = "null_default")]
    reason: CompactString,
    #[serde(default, deserialize_with = "null_default")]
    conditions: Vec<WireCondition>,
    #[serde(default, deserialize_with = "null_default")]
    container_statuses: Vec<WireContainer>,
    #[serde(default, deserialize_with = "null_default")]
    init_container_statuses: Vec<WireContainer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCondition {
    #[serde(rename = "type", default, deserialize_with = "null_default")]
    kind: CompactString,
    #[serde(default, deserialize_with = "null_default")]
    status: CompactString,
    #[serde(default)]
    last_transition_time: Option<Timestamp>,
    #[serde(default)]
    reason: Option<CompactString>,
    #[serde(default)]
    message: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireContainer {
    #[serde(default, deserialize_with = "null_default")]
    name: CompactString,
    #[serde(default, deserialize_with = "null_default")]
    restart_count: i32,
    #[serde(default, deserialize_with = "null_default")]
    state: WireState,
}

#[derive(Deserialize, Default)]
struct WireState {
    #[serde(default)]
    waiting: Option<WireWaiting>,
    #[serde(default)]
    terminated: Option<WireTerminated>,
}

#[derive(Deserialize)]
struct WireWaiting {
    #[serde(default, deserialize_with = "null_default")]
    reason: CompactString,
    #[serde(default, deserialize_with = "null_default")]
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireTerminated {
    #[serde(default, deserialize_with = "null_default")]
    exit_code: i32,
    #[serde(default, deserialize_with = "null_default")]
    reason: CompactString,
    #[serde(default)]
    finished_at: Option<Timestamp>,
}

impl WirePod<'_> {
    fn into_view(self) -> Result<PodView, ViewError> {
        let meta = self.metadata;
        let status = self.status;
        let uid = required_uid("Pod", &meta.name, meta.uid, PodUid::is_empty)?;
        let created_at = meta.creation_timestamp.unwrap_or_default();
        let deletion_asked_at =
            meta.deletion_timestamp.map(|at| at - Span::from_seconds(meta.deletion_grace_period_seconds.unwrap_or(0)));
        let is_sidecar = |name: &str| {
            self.spec
                .init_containers
                .iter()
                .any(|container| container.name == name && container.restart_policy.as_deref() == Some("Always"))
        };
        let sidecars = || status.init_container_statuses.iter().filter(|container| is_sidecar(&container.name));
        let ready = status.conditions.iter().find(|condition| condition.kind == "Ready");
        let finished_at = containers_finished_at(status.container_statuses.iter(), sidecars())
            .or_else(|| ready.filter(|ready| ready.status == "False").and_then(|ready| ready.last_transition_time))
            .or(deletion_asked_at)
            .unwrap_or(created_at);
        let ttl_after_finished = meta.annotations.ttl_after_finished.as_deref().and_then(crate::lifetime::ttl_seconds);
        let restarts = |container: &WireContainer| u32::try_from(container.restart_count).unwrap_or(0);
        let all = || status.container_statuses.iter().chain(&status.init_container_statuses);
        let failed = |container: &WireContainer| {
            container.state.terminated.as_ref().is_some_and(|terminated| terminated.exit_code != 0)
        };
        let reason = match status.reason.as_str() {
            "" => all()
                .find(|container| failed(container))
                .and_then(|container| container.state.terminated.as_ref())
                .map(|terminated| terminated.reason.clone())
                .filter(|reason| reason != "Error")
                .unwrap_or_default(),
            _ => status.reason.clone(),
        };
        Ok(PodView {
            revision: revision("Pod", &meta.name, meta.resource_version.as_deref())?,
            uid,
            namespace: meta.namespace,
            name: meta.name,
            created_at,
            deletion_asked_at,
            labels: meta.labels,
            controller: meta.owner_references.into_iter().find(|owner| owner.controller == Some(true)).map(|owner| {
                ControllerRef {
                    // A reference without UID names no Job that we know, but the Pod has an owner.
                    uid: owner.uid.unwrap_or_else(|| JobUid::new("")),
                    name: owner.name,
                    is_job: owner.kind == "Job" && owner.api_version == "batch/v1",
                }
            }),
            tracked: meta.finalizers.iter().any(|finalizer| finalizer == TRACKING_FINALIZER),
            start_gated: self.spec.scheduling_gates.iter().any(|gate| gate.name == START_GATE),
            phase: match status.phase.as_deref() {
                None | Some("" | "Pending") => Phase::Pending,
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                Some(_) => Phase::Unknown,
            },
            scheduled: self.spec.node_name.as_ref().is_some_and(|name| !name.is_empty()),
            node_name: self.spec.node_name.clone().unwrap_or_default(),
            ready: ready.is_some_and(|ready| ready.status == "True"),
            ready_changed_at: ready.and_then(|ready| ready.last_transition_time),
            finished_at,
            ttl_after_finished,
            index: meta.annotations.index.as_deref().and_then(index_from_annotation),
            failure_count: count_from_annotation(meta.annotations.failure_count.as_deref()),
            ignored_failure_count: count_from_annotation(meta.annotations.ignored_failure_count.as_deref()),
            restarts: Restarts {
                regular: status.container_statuses.iter().map(restarts).max().unwrap_or(0),
                sidecar: sidecars().map(restarts).max().unwrap_or(0),
                sum: all().map(restarts).fold(0, u32::saturating_add),
            },
            exits: all()
                .filter_map(|container| {
                    let code = container.state.terminated.as_ref()?.exit_code;
                    (code != 0).then(|| Exit { container: container.name.clone(), code })
                })
                .collect(),
            reason,
            pending: status.pending_reason(created_at).map(Box::new),
            conditions: status.conditions.into_iter().map(|condition| (condition.kind, condition.status)).collect(),
        })
    }
}

impl WireStatus {
    /// PENDING-2: why a Pod is pending. Containers have no times for this: those of a Pod that has a node count from when
    /// it got the node.
    fn pending_reason(&self, created_at: Timestamp) -> Option<PendingReason> {
        if !matches!(self.phase.as_deref(), None | Some("" | "Pending")) {
            return None;
        }
        let scheduled = self.conditions.iter().find(|condition| condition.kind == "PodScheduled");
        let since = scheduled.and_then(|scheduled| scheduled.last_transition_time).unwrap_or(created_at);
        if let Some(refused) = scheduled.filter(|scheduled| scheduled.status == "False") {
            let reason = refused.reason.clone().filter(|reason| !reason.is_empty())?;
            return Some(PendingReason { reason, message: refused.message.clone().unwrap_or_default(), since });
        }
        let all = self.init_container_statuses.iter().chain(&self.container_statuses);
        let mut waiting = all.filter_map(|container| container.state.waiting.as_ref());
        let why = waiting.find(|waiting| !matches!(waiting.reason.as_str(), "" | "PodInitializing"))?;
        Some(PendingReason { reason: why.reason.clone(), message: why.message.clone(), since })
    }
}

/// The latest finish time of all containers and sidecars, if all of them have finished (BACKOFF-6). Sidecars alone are
/// not sufficient while no regular container has reported.
fn containers_finished_at<'a>(
    regular: impl Iterator<Item = &'a WireContainer>,
    sidecars: impl Iterator<Item = &'a WireContainer>,
) -> Option<Timestamp> {
    let mut regular = regular.peekable();
    regular.peek()?;
    let mut latest = None;
    for container in regular.chain(sidecars) {
        latest = latest.max(Some(container.state.terminated.as_ref()?.finished_at?));
    }
    latest
}
