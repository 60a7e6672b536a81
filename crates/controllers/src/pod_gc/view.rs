//! What is stored of Pods and nodes.

use compact_str::CompactString;
use serde::Deserialize;
use tally_core::pod::PodView;
use tally_core::time::Timestamp;

use super::OUT_OF_SERVICE;
use tally_runtime::cache::{Meta, View};
use tally_runtime::controller::Object;

pub(super) struct Pod {
    pub generation: Option<i64>,
    pub created_at: Timestamp,
    pub node: CompactString,
    /// Failed or succeeded.
    pub ended: bool,
    /// GC-1: neither pending nor running, nor in an unknown phase.
    terminated: bool,
    evicted: bool,
    pub deleting: bool,
    /// Nothing is left to do: only its finalizers keep it.
    pub done: bool,
    /// The types of its conditions, as long as it may get another one.
    pub conditions: Vec<CompactString>,
    /// It already has the condition DisruptionTarget, which keeps its time.
    pub disrupted: bool,
}

impl Pod {
    pub fn of(seen: &PodView) -> Self {
        let (ended, deleting) = (seen.phase.is_terminal(), seen.deleting());
        let types = seen.conditions.iter().map(|(kind, _)| kind.clone());
        Self {
            generation: seen.generation,
            created_at: seen.created_at,
            node: seen.node_name.clone(),
            ended,
            terminated: ended || seen.odd_phase,
            evicted: seen.evicted,
            deleting,
            done: ended && deleting && seen.deletion_grace == Some(0),
            conditions: if ended { Vec::new() } else { types.collect() },
            disrupted: seen.conditions.iter().any(|(kind, status)| kind == "DisruptionTarget" && status == "True"),
        }
    }

    /// Whether the Pod had ended before and has ended now, is not being deleted, and keeps its place among those that have ended.
    pub fn stays_ended(&self, seen: &PodView) -> bool {
        self.ended
            && seen.phase.is_terminal()
            && !self.deleting
            && !seen.deleting()
            && (self.evicted, self.created_at, &self.node) == (seen.evicted, seen.created_at, &seen.node_name)
    }

    /// GC-1: evicted ones first, then the oldest.
    pub fn age_among_ended(&self) -> Option<(bool, Timestamp)> {
        (self.terminated && !self.deleting).then_some((!self.evicted, self.created_at))
    }

    /// Deleted, and never assigned to a node.
    pub fn is_unscheduled(&self) -> bool {
        self.node.is_empty() && self.deleting && !self.done
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
struct RawNode {
    metadata: RawMeta,
    #[serde(default)]
    spec: RawSpec,
    #[serde(default)]
    status: RawStatus,
}

/// Not [`Meta`] itself: a Node whose finalizers or owners cannot be read is there nevertheless.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawMeta {
    name: CompactString,
    uid: CompactString,
    resource_version: CompactString,
}

#[derive(Default, Deserialize)]
struct RawSpec {
    taints: Option<Vec<RawTaint>>,
}

#[derive(Deserialize)]
struct RawTaint {
    key: CompactString,
}

#[derive(Default, Deserialize)]
struct RawStatus {
    conditions: Option<Vec<RawCondition>>,
}

#[derive(Deserialize)]
struct RawCondition {
    r#type: CompactString,
    status: CompactString,
}

pub(super) fn read_node(object: &Object) -> Option<ObservedNode> {
    let RawNode { metadata, spec, status } = object.read().ok()?;
    let tainted = spec.taints.iter().flatten().any(|taint| taint.key == OUT_OF_SERVICE);
    let mut conditions = status.conditions.iter().flatten();
    let ready = conditions.any(|condition| condition.r#type == "Ready" && condition.status == "True");
    let RawMeta { name, uid, resource_version } = metadata;
    let meta = Meta { name, uid, resource_version, ..Meta::default() };
    Some(ObservedNode { meta, out_of_service: tainted && !ready })
}
