//! The compact view of a Pod: the few fields that controllers use, decoded without building the whole object. Each controller
//! that follows Pods reads it, and shares it with the others of its process where that is possible ([`PodView::of`]).

mod partial;
mod tree;

use std::sync::Arc;

use compact_str::CompactString;
use serde::{Deserialize, Deserializer, de};
use smallvec::SmallVec;
use tally_value::{Object, Value};

use crate::ids::{CompletionIndex, JobUid, ObjectUid, PodUid, Revision};
use crate::indexes::{count_from_annotation, index_from_annotation};
use crate::lifetime::{POD_TTL, ttl_seconds};
use crate::pending::PendingReason;
use crate::selector::Labels;
use crate::time::{Span, Timestamp};
use crate::view::{Text, ViewError, if_usual, null_default, required_uid, revision, text_map};

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
    pub generation: Option<i64>,
    pub created_at: Timestamp,
    /// When deletion was requested: deletionTimestamp minus the grace period.
    pub deletion_asked_at: Option<Timestamp>,
    /// In seconds, as it is stored.
    pub deletion_grace: Option<i64>,
    pub labels: Labels,
    pub owners: SmallVec<[Owner; 1]>,
    pub controller: Option<ControllerRef>,
    pub finalizers: SmallVec<[CompactString; 1]>,
    /// Carries the tracking finalizer.
    pub tracked: bool,
    pub phase: Phase,
    /// The phase is a text that the API does not define; [`Self::phase`] is Unknown.
    pub odd_phase: bool,
    /// The reason of the Pod itself is that its node evicted it.
    pub evicted: bool,
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

/// An owner reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub api_version: CompactString,
    pub kind: CompactString,
    pub name: CompactString,
    /// Empty if the reference has none.
    pub uid: ObjectUid,
    pub blocks_deletion: bool,
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

    /// If the object is one that readers share (see [`Object::shared`]), the first of them makes the view for all. Of any
    /// other object every reader makes its own.
    pub fn of(object: &Object) -> serde_json::Result<Arc<Self>> {
        object.view(|object| object.tree.as_ref().map_or_else(|| object.read(), Self::from_tree))
    }

    /// The same, for readers that count nothing and compare no times of containers: a Pod whose view cannot be made is
    /// nevertheless there, takes room and ends. Of such a Pod this has what `partial` reads, and nothing else. None: not
    /// even that can be read.
    pub fn lenient(object: &Object) -> Option<Arc<Self>> {
        Self::of(object).ok().or_else(|| partial::read(object).map(Arc::new))
    }

    /// Decodes a `v1` Pod as JSON.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ViewError> {
        let wire: WirePod = serde_json::from_slice(bytes).map_err(|source| ViewError::pod(bytes, &source))?;
        wire.into_view()
    }

    /// The same as from the text of the tree.
    pub fn from_tree(tree: &Value) -> serde_json::Result<Self> {
        match tree::pod(tree).filter(|pod| pod.metadata.uid.is_some()) {
            Some(pod) => pod.into_view().map_err(de::Error::custom),
            // Something is missing or unusual. What that means, and how an error says it, is decided in one place.
            None => Self::deserialize(tree),
        }
    }
}

/// From any form of a `v1` Pod, as from its text.
impl<'de> Deserialize<'de> for PodView {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        WirePod::deserialize(deserializer)?.into_view().map_err(de::Error::custom)
    }
}

/// The fields that are read, borrowed from a text or a tree.
#[derive(Default, Deserialize)]
struct WirePod<'a> {
    #[serde(borrow)]
    metadata: WireMeta<'a>,
    #[serde(borrow, default, deserialize_with = "null_default")]
    spec: WireSpec<'a>,
    #[serde(borrow, default, deserialize_with = "null_default")]
    status: WireStatus<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireMeta<'a> {
    uid: Option<PodUid>,
    #[serde(borrow)]
    namespace: Option<Text<'a>>,
    name: Option<Text<'a>>,
    resource_version: Option<Text<'a>>,
    #[serde(deserialize_with = "if_usual")]
    generation: Option<i64>,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
    deletion_grace_period_seconds: Option<i64>,
    #[serde(deserialize_with = "text_map")]
    labels: Labels,
    #[serde(deserialize_with = "null_default")]
    annotations: WireAnnotations<'a>,
    #[serde(deserialize_with = "null_default")]
    finalizers: Vec<Text<'a>>,
    #[serde(deserialize_with = "null_default")]
    owner_references: Vec<WireOwner<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireAnnotations<'a> {
    #[serde(rename = "batch.kubernetes.io/job-completion-index", borrow)]
    index: Option<Text<'a>>,
    #[serde(rename = "batch.kubernetes.io/job-index-failure-count")]
    failure_count: Option<Text<'a>>,
    #[serde(rename = "tally.dev/ttl-seconds-after-finished")]
    ttl_after_finished: Option<Text<'a>>,
    #[serde(rename = "batch.kubernetes.io/job-index-ignored-failure-count")]
    ignored_failure_count: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireOwner<'a> {
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    kind: Option<Text<'a>>,
    name: Option<Text<'a>>,
    uid: Option<ObjectUid>,
    controller: Option<bool>,
    #[serde(deserialize_with = "if_usual")]
    block_owner_deletion: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec<'a> {
    #[serde(borrow)]
    node_name: Option<Text<'a>>,
    #[serde(deserialize_with = "null_default")]
    init_containers: Vec<WireInitContainer<'a>>,
    #[serde(deserialize_with = "null_default")]
    scheduling_gates: Vec<WireGate<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireGate<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireInitContainer<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    restart_policy: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus<'a> {
    #[serde(borrow)]
    phase: Option<Text<'a>>,
    reason: Option<Text<'a>>,
    #[serde(deserialize_with = "null_default")]
    conditions: Vec<WireCondition<'a>>,
    #[serde(deserialize_with = "null_default")]
    container_statuses: Vec<WireContainer<'a>>,
    #[serde(deserialize_with = "null_default")]
    init_container_statuses: Vec<WireContainer<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireCondition<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Text<'a>>,
    status: Option<Text<'a>>,
    /// Read only where a rule uses it: clients add conditions of their own.
    last_transition_time: Option<Text<'a>>,
    reason: Option<Text<'a>>,
    message: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireContainer<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    restart_count: Option<i32>,
    #[serde(deserialize_with = "null_default")]
    state: WireState<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireState<'a> {
    #[serde(borrow)]
    waiting: Option<WireWaiting<'a>>,
    terminated: Option<WireTerminated<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireWaiting<'a> {
    #[serde(borrow)]
    reason: Option<Text<'a>>,
    message: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireTerminated<'a> {
    exit_code: Option<i32>,
    #[serde(borrow)]
    reason: Option<Text<'a>>,
    /// Read only where a rule uses it.
    finished_at: Option<Text<'a>>,
}

/// Absence, null and the empty text mean the same.
fn plain<'a>(text: &'a Option<Text<'_>>) -> &'a str {
    text.as_deref().unwrap_or_default()
}

impl WirePod<'_> {
    fn into_view(self) -> Result<PodView, ViewError> {
        let meta = self.metadata;
        let status = self.status;
        let name = CompactString::from(plain(&meta.name));
        let uid = required_uid("Pod", &name, meta.uid, PodUid::is_empty)?;
        let created_at = meta.creation_timestamp.unwrap_or_default();
        let deletion_asked_at =
            meta.deletion_timestamp.map(|at| at - Span::from_seconds(meta.deletion_grace_period_seconds.unwrap_or(0)));
        let is_sidecar = |name: &str| {
            let init = &self.spec.init_containers;
            init.iter().any(|container| plain(&container.name) == name && plain(&container.restart_policy) == "Always")
        };
        let sidecars = || status.init_container_statuses.iter().filter(|container| is_sidecar(plain(&container.name)));
        let ready = status.conditions.iter().find(|condition| plain(&condition.kind) == "Ready");
        let ready_changed_at = ready.map_or(Ok(None), |ready| ready.changed_at(&name))?;
        let finished_at = containers_finished_at(&name, status.container_statuses.iter(), sidecars())?
            .or_else(|| ready.filter(|ready| plain(&ready.status) == "False").and(ready_changed_at))
            .or(deletion_asked_at)
            .unwrap_or(created_at);
        let restarts = |container: &WireContainer| {
            container.restart_count.and_then(|restarts| u32::try_from(restarts).ok()).unwrap_or(0)
        };
        let all = || status.container_statuses.iter().chain(&status.init_container_statuses);
        let failures = || {
            all().filter_map(|container| {
                let terminated = container.state.terminated.as_ref()?;
                let code = terminated.exit_code.filter(|code| *code != 0)?;
                Some((container, terminated, code))
            })
        };
        let reason = match plain(&status.reason) {
            "" => failures()
                .next()
                .map(|(_, terminated, _)| plain(&terminated.reason))
                .filter(|reason| *reason != "Error")
                .unwrap_or_default(),
            reason => reason,
        };
        let (phase, odd_phase) = match plain(&status.phase) {
            "" | "Pending" => (Phase::Pending, false),
            "Running" => (Phase::Running, false),
            "Succeeded" => (Phase::Succeeded, false),
            "Failed" => (Phase::Failed, false),
            other => (Phase::Unknown, other != "Unknown"),
        };
        let pending = if phase == Phase::Pending { status.pending_reason(&name, created_at)? } else { None };
        let mut controller = None;
        let owners = meta.owner_references.into_iter().map(|owner| {
            let controls = owner.controller == Some(true);
            let (api_version, kind, name) = (plain(&owner.api_version), plain(&owner.kind), plain(&owner.name));
            let owner = Owner {
                api_version: api_version.into(),
                kind: kind.into(),
                name: name.into(),
                // A reference without UID names no object that we know, but the Pod has an owner.
                uid: owner.uid.unwrap_or_else(|| ObjectUid::new("")),
                blocks_deletion: owner.block_owner_deletion.unwrap_or(false),
            };
            if controls && controller.is_none() {
                controller = Some(ControllerRef {
                    uid: owner.uid.clone().into(),
                    name: owner.name.clone(),
                    is_job: kind == "Job" && api_version == "batch/v1",
                });
            }
            owner
        });
        Ok(PodView {
            owners: owners.collect(),
            controller,
            revision: revision("Pod", &name, meta.resource_version.as_deref())?,
            uid,
            namespace: plain(&meta.namespace).into(),
            name,
            generation: meta.generation,
            created_at,
            deletion_asked_at,
            deletion_grace: meta.deletion_grace_period_seconds,
            labels: meta.labels,
            tracked: meta.finalizers.iter().any(|finalizer| **finalizer == *TRACKING_FINALIZER),
            finalizers: meta.finalizers.iter().map(|finalizer| (&**finalizer).into()).collect(),
            start_gated: self.spec.scheduling_gates.iter().any(|gate| plain(&gate.name) == START_GATE),
            phase,
            odd_phase,
            evicted: plain(&status.reason) == "Evicted",
            scheduled: !plain(&self.spec.node_name).is_empty(),
            node_name: plain(&self.spec.node_name).into(),
            ready: ready.is_some_and(|ready| plain(&ready.status) == "True"),
            ready_changed_at,
            finished_at,
            ttl_after_finished: meta.annotations.ttl_after_finished.as_deref().and_then(ttl_seconds),
            index: meta.annotations.index.as_deref().and_then(index_from_annotation),
            failure_count: count_from_annotation(meta.annotations.failure_count.as_deref()),
            ignored_failure_count: count_from_annotation(meta.annotations.ignored_failure_count.as_deref()),
            restarts: Restarts {
                regular: status.container_statuses.iter().map(restarts).max().unwrap_or(0),
                sidecar: sidecars().map(restarts).max().unwrap_or(0),
                sum: all().map(restarts).fold(0, u32::saturating_add),
            },
            exits: failures()
                .map(|(container, _, code)| Exit { container: plain(&container.name).into(), code })
                .collect(),
            reason: reason.into(),
            pending: pending.map(Box::new),
            conditions: status
                .conditions
                .iter()
                .map(|condition| (plain(&condition.kind).into(), plain(&condition.status).into()))
                .collect(),
        })
    }
}

impl WireCondition<'_> {
    fn changed_at(&self, pod: &str) -> Result<Option<Timestamp>, ViewError> {
        let time = self.last_transition_time.as_deref().map(Timestamp::parse).transpose();
        time.map_err(|problem| {
            let field = format!("status.conditions[{}].lastTransitionTime", plain(&self.kind));
            ViewError::field("Pod", pod, &field, &problem)
        })
    }
}

impl WireStatus<'_> {
    /// PENDING-2: why a Pod is pending. Containers have no times for this: those of a Pod that has a node count from when
    /// it got the node.
    fn pending_reason(&self, pod: &str, created_at: Timestamp) -> Result<Option<PendingReason>, ViewError> {
        let scheduled = self.conditions.iter().find(|condition| plain(&condition.kind) == "PodScheduled");
        let why = match scheduled.filter(|scheduled| plain(&scheduled.status) == "False") {
            Some(refused) => Some((plain(&refused.reason), &refused.message)).filter(|(reason, _)| !reason.is_empty()),
            None => {
                let all = self.init_container_statuses.iter().chain(&self.container_statuses);
                let waiting = all.filter_map(|container| container.state.waiting.as_ref());
                let mut whys = waiting.map(|waiting| (plain(&waiting.reason), &waiting.message));
                whys.find(|(reason, _)| !matches!(*reason, "" | "PodInitializing"))
            }
        };
        let Some((reason, message)) = why else { return Ok(None) };
        let since = scheduled.map_or(Ok(None), |scheduled| scheduled.changed_at(pod))?.unwrap_or(created_at);
        Ok(Some(PendingReason { reason: reason.into(), message: plain(message).into(), since }))
    }
}

/// The latest finish time of all containers and sidecars, if all of them have finished (BACKOFF-6). Sidecars alone are
/// not sufficient while no regular container has reported.
fn containers_finished_at<'a, 'w: 'a>(
    pod: &str,
    regular: impl Iterator<Item = &'a WireContainer<'w>>,
    sidecars: impl Iterator<Item = &'a WireContainer<'w>>,
) -> Result<Option<Timestamp>, ViewError> {
    let mut regular = regular.peekable();
    if regular.peek().is_none() {
        return Ok(None);
    }
    let mut latest = Ok(None);
    for container in regular.chain(sidecars) {
        let end = container.state.terminated.as_ref().and_then(|terminated| terminated.finished_at.as_deref());
        // If one has no time, those of the others are not used.
        let Some(end) = end else { return Ok(None) };
        let end = Timestamp::parse(end).map_err(|problem| {
            let field = format!("finishedAt of container {:?}", plain(&container.name));
            ViewError::field("Pod", pod, &field, &problem)
        });
        latest = latest.and_then(|latest| Ok(latest.max(Some(end?))));
    }
    latest
}
