//! Nodes, what is taken on each of them, and which of them has the most room.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use compact_str::CompactString;
use serde::Deserialize;

use super::amounts::{Amounts, CPU, MEMORY, PODS, Written};
use super::pod::{Objection, Requirements};
use tally_runtime::cache::{Meta, View};
use tally_runtime::controller::Object;

#[derive(Debug)]
pub(super) struct CandidateNode {
    pub meta: Meta,
    pub labels: BTreeMap<CompactString, CompactString>,
    pub unschedulable: bool,
    /// Only the taints that keep new Pods away.
    pub taints: Vec<Taint>,
    allocatable: Amounts,
}

impl View for CandidateNode {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Taint {
    pub key: CompactString,
    pub value: CompactString,
    pub effect: CompactString,
}

impl Taint {
    fn standing_for(key: &'static str) -> Self {
        let key = CompactString::const_new(key);
        Self { key, value: CompactString::default(), effect: CompactString::const_new("NoSchedule") }
    }

    /// The taint that a Pod must tolerate to be assigned to a node that is marked unschedulable.
    pub fn cordon() -> Self {
        Self::standing_for("node.kubernetes.io/unschedulable")
    }

    /// A node that is not ready has this taint, whether or not a controller has added it yet.
    fn not_ready() -> Self {
        Self::standing_for("node.kubernetes.io/not-ready")
    }
}

#[derive(Deserialize)]
struct RawNode {
    metadata: RawMeta,
    spec: Option<RawSpec>,
    status: Option<RawStatus>,
}

#[derive(Deserialize)]
struct RawMeta {
    #[serde(flatten)]
    meta: Meta,
    labels: Option<BTreeMap<CompactString, CompactString>>,
}

#[derive(Default, Deserialize)]
struct RawSpec {
    unschedulable: Option<bool>,
    taints: Option<Vec<Taint>>,
}

#[derive(Default, Deserialize)]
struct RawStatus {
    allocatable: Option<Written>,
    capacity: Option<Written>,
    conditions: Option<Vec<RawCondition>>,
}

#[derive(Deserialize)]
struct RawCondition {
    r#type: CompactString,
    status: CompactString,
}

impl CandidateNode {
    pub fn read(object: &Object) -> Option<Self> {
        let RawNode { metadata: RawMeta { meta, labels }, spec, status } = object.read().ok()?;
        let (spec, status) = (spec.unwrap_or_default(), status.unwrap_or_default());
        let conditions = status.conditions.unwrap_or_default();
        let ready = conditions.iter().any(|condition| condition.r#type == "Ready" && condition.status == "True");
        let mut taints = spec.taints.unwrap_or_default();
        taints.retain(|taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute");
        if !ready {
            taints.insert(0, Taint::not_ready());
        }
        Some(Self {
            unschedulable: spec.unschedulable == Some(true) || meta.deleting(),
            labels: labels.unwrap_or_default(),
            taints,
            // Without information about reserved resources, nothing is reserved.
            allocatable: status.allocatable.or(status.capacity).map(|it| Amounts::read(&it)).unwrap_or_default(),
            meta,
        })
    }

    /// Whether the difference is irrelevant here: nodes report every few seconds that they are alive.
    fn same(&self, other: &Self) -> bool {
        self.labels == other.labels
            && self.unschedulable == other.unschedulable
            && self.taints == other.taints
            && self.allocatable == other.allocatable
    }
}

/// The room on every node.
#[derive(Default)]
pub(super) struct Places {
    /// By name. There may be Pods on a node that has not been observed.
    places: BTreeMap<CompactString, NodeRoom>,
    /// The known nodes, the least used first.
    by_share: BTreeSet<(u64, CompactString)>,
    /// How often a node was searched for, as a measure of cost.
    #[cfg(test)]
    pub finds: std::cell::Cell<u64>,
}

#[derive(Default)]
struct NodeRoom {
    node: Option<Arc<CandidateNode>>,
    taken: Amounts,
    share: u64,
}

impl NodeRoom {
    /// How much of it is taken, in millionths: the sum for processors, memory and Pods.
    fn share(&self) -> u64 {
        const WHOLE: i128 = 1_000_000;
        let Some(node) = &self.node else { return 0 };
        let part = |name| match node.allocatable.get(name) {
            ..=0 => WHOLE,
            most => (i128::from(self.taken.get(name).max(0)) * WHOLE / i128::from(most)).min(WHOLE),
        };
        u64::try_from(part(CPU) + part(MEMORY) + part(PODS)).unwrap_or(u64::MAX)
    }

    /// Resources of which it has too little.
    fn lacks<'a>(&'a self, node: &'a CandidateNode, requests: &'a Amounts) -> impl Iterator<Item = &'a str> {
        let free = |name: &str| node.allocatable.get(name).saturating_sub(self.taken.get(name));
        requests.iter().filter(move |(name, amount)| *amount > 0 && *amount > free(name)).map(|(name, _)| name)
    }

    fn has_room(&self, wanted: &Requirements) -> bool {
        self.node
            .as_ref()
            .is_some_and(|node| self.lacks(node, &wanted.requests).next().is_none() && wanted.objection(node).is_none())
    }
}

impl Places {
    /// Returns whether anything relevant changed.
    pub fn set(&mut self, node: &Arc<CandidateNode>) -> bool {
        let place = self.places.entry(node.meta.name.clone()).or_default();
        let same = place.node.as_ref().is_some_and(|known| known.same(node));
        place.node = Some(node.clone());
        if !same {
            self.reckon(&node.meta.name);
        }
        !same
    }

    pub fn remove(&mut self, name: &str) {
        if let Some(place) = self.places.get_mut(name) {
            place.node = None;
        }
        self.reckon(name);
    }

    pub fn take(&mut self, name: &CompactString, amounts: &Amounts) {
        self.places.entry(name.clone()).or_default().taken.add(amounts);
        self.reckon(name);
    }

    pub fn free(&mut self, name: &str, amounts: &Amounts) {
        if let Some(place) = self.places.get_mut(name) {
            place.taken.subtract(amounts);
        }
        self.reckon(name);
    }

    fn reckon(&mut self, name: &str) {
        let Some(place) = self.places.get_mut(name) else { return };
        let share = place.share();
        let key = |share| (share, CompactString::from(name));
        self.by_share.remove(&key(place.share));
        place.share = share;
        if place.node.is_some() {
            self.by_share.insert(key(share));
        } else if place.taken.is_empty() {
            self.places.remove(name);
        }
    }

    /// The least used node where this fits; of equals, the first by name.
    pub fn find(&self, wanted: &Requirements) -> Option<CompactString> {
        #[cfg(test)]
        self.finds.set(self.finds.get() + 1);
        self.by_share.iter().map(|(_, name)| name).find(|name| self.fits(name, wanted)).cloned()
    }

    pub fn fits(&self, name: &str, wanted: &Requirements) -> bool {
        self.places.get(name).is_some_and(|place| place.has_room(wanted))
    }

    /// Why no node fits, in the wording that users of Kubernetes know.
    pub fn diagnosis(&self, wanted: &Requirements) -> String {
        let nodes = self.by_share.len();
        if nodes == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        let mut reasons = BTreeMap::<String, u32>::new();
        for place in self.places.values() {
            let Some(node) = &place.node else { continue };
            let mut count = |reason: String| *reasons.entry(reason).or_default() += 1;
            match wanted.objection(node) {
                Some(objection) => count(objection.to_string()),
                None => place.lacks(node, &wanted.requests).for_each(|name| match name {
                    PODS => count("Too many pods".to_owned()),
                    name => count(format!("Insufficient {name}")),
                }),
            }
        }
        let mut reasons: Vec<_> = reasons.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        reasons.sort_unstable();
        format!("0/{nodes} nodes are available: {}.", reasons.join(", "))
    }
}

impl fmt::Display for Objection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unschedulable => f.write_str("node(s) were unschedulable"),
            Self::Taint(taint) => write!(f, "node(s) had untolerated taint {{{}: {}}}", taint.key, taint.value),
            Self::Affinity => f.write_str("node(s) didn't match Pod's node affinity/selector"),
        }
    }
}
