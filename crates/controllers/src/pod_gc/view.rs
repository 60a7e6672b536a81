//! What is stored of Pods and nodes.

use compact_str::CompactString;
use serde::Deserialize;
use tally_core::time::Timestamp;

use super::{Key, OUT_OF_SERVICE};
use tally_runtime::cache::{Meta, View};
use tally_runtime::controller::Object;

pub(super) struct Pod {
    pub meta: Meta,
    pub generation: Option<i64>,
    pub created_at: Timestamp,
    pub node: CompactString,
    pub phase: CompactString,
    pub evicted: bool,
    /// The types of its conditions, as long as it may get another one.
    pub conditions: Vec<CompactString>,
    /// It already has the condition DisruptionTarget, which keeps its time.
    pub disrupted: bool,
}

impl View for Pod {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl Pod {
    pub fn key(&self) -> Key {
        (self.meta.namespace.clone(), self.meta.name.clone())
    }

    pub fn has_ended(&self) -> bool {
        self.phase == "Succeeded" || self.phase == "Failed"
    }

    /// Nothing is left to do: only its finalizers keep it.
    pub fn is_done(&self) -> bool {
        self.has_ended() && self.meta.deleting() && self.meta.deletion_grace_period_seconds == Some(0)
    }

    /// GC-1: every Pod that is neither pending nor running, nor in an unknown phase.
    pub fn place_among_ended(&self) -> Option<(bool, Timestamp, Key)> {
        let alive = matches!(self.phase.as_str(), "" | "Pending" | "Running" | "Unknown");
        (!alive && !self.meta.deleting()).then(|| (!self.evicted, self.created_at, self.key()))
    }
}

pub(super) struct ObservedNode {
    pub meta: Meta,
    pub out_of_service: bool,
}

impl View for ObservedNode {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Deserialize)]
struct Raw {
    metadata: RawMeta,
    #[serde(default)]
    spec: RawSpec,
    #[serde(default)]
    status: RawStatus,
}

/// Not [`Meta`] itself: flattening it would copy all metadata of every version of every Pod.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawMeta {
    namespace: CompactString,
    name: CompactString,
    uid: CompactString,
    resource_version: CompactString,
    deletion_timestamp: Option<CompactString>,
    deletion_grace_period_seconds: Option<i64>,
    generation: Option<i64>,
    creation_timestamp: Option<CompactString>,
}

/// For Pods and for nodes.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSpec {
    node_name: Option<CompactString>,
    taints: Option<Vec<RawTaint>>,
}

#[derive(Deserialize)]
struct RawTaint {
    key: CompactString,
}

#[derive(Default, Deserialize)]
struct RawStatus {
    phase: Option<CompactString>,
    reason: Option<CompactString>,
    conditions: Option<Vec<RawCondition>>,
}

#[derive(Deserialize)]
struct RawCondition {
    r#type: CompactString,
    status: CompactString,
}

impl RawMeta {
    fn meta(self) -> Meta {
        Meta {
            namespace: self.namespace,
            name: self.name,
            uid: self.uid,
            resource_version: self.resource_version,
            deletion_timestamp: self.deletion_timestamp,
            deletion_grace_period_seconds: self.deletion_grace_period_seconds,
            ..Meta::default()
        }
    }
}

impl RawStatus {
    fn types(&self) -> Vec<CompactString> {
        self.conditions.iter().flatten().map(|condition| condition.r#type.clone()).collect()
    }

    fn is_true(&self, condition: &str) -> bool {
        self.conditions.iter().flatten().any(|known| known.r#type == condition && known.status == "True")
    }
}

pub(super) fn read_pod(object: &Object) -> Option<Pod> {
    let Raw { metadata, spec, status } = object.read().ok()?;
    let created_at =
        metadata.creation_timestamp.as_ref().and_then(|text| Timestamp::parse(text).ok()).unwrap_or_default();
    let phase = status.phase.clone().unwrap_or_default();
    let ended = phase == "Succeeded" || phase == "Failed";
    Some(Pod {
        generation: metadata.generation,
        created_at,
        node: spec.node_name.unwrap_or_default(),
        evicted: status.reason.as_deref() == Some("Evicted"),
        disrupted: status.is_true("DisruptionTarget"),
        conditions: if ended { Vec::new() } else { status.types() },
        phase,
        meta: metadata.meta(),
    })
}

pub(super) fn read_node(object: &Object) -> Option<ObservedNode> {
    let Raw { metadata, spec, status } = object.read().ok()?;
    let tainted = spec.taints.iter().flatten().any(|taint| taint.key == OUT_OF_SERVICE);
    Some(ObservedNode { meta: metadata.meta(), out_of_service: tainted && !status.is_true("Ready") })
}
