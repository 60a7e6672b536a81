//! What the scheduler stores of a Pod, and what a Pod requires of a node.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use compact_str::CompactString;
use serde::Deserialize;
use tally_core::pod::PodView;
use tally_core::time::Timestamp;

use super::amounts::{Amounts, PODS, Written};
use super::node::{CandidateNode, Taint};
use tally_runtime::controller::Object;

/// The scheduler name of Pods that request none.
const OURS: &str = "default-scheduler";

#[derive(Debug)]
pub(super) struct Pod {
    pub generation: Option<i64>,
    /// Higher priority first, then earlier creation.
    pub rank: (Reverse<i64>, Timestamp),
    /// "" while it has none.
    pub node: CompactString,
    pub terminal: bool,
    /// It waits only for a node, and for us to choose it.
    pub unbound: bool,
    /// The types of its conditions, while it waits.
    pub conditions: Vec<CompactString>,
    /// The condition PodScheduled is already False: it keeps its time.
    pub refused: bool,
    /// The message of the condition, if it says that no node fits.
    pub told: Option<Arc<str>>,
    pub requirements: Arc<Requirements>,
}

/// What a node must have. Pods with equal requirements fit the same nodes: one result holds for all of them.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Requirements {
    pub requests: Amounts,
    selector: BTreeMap<CompactString, CompactString>,
    /// One of these must match, if there are any.
    terms: Option<Vec<Term>>,
    tolerations: Vec<Toleration>,
}

#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Term {
    match_expressions: Option<Vec<Expression>>,
    match_fields: Option<Vec<Expression>>,
}

#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
struct Expression {
    key: CompactString,
    operator: CompactString,
    values: Option<Vec<CompactString>>,
}

#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
struct Toleration {
    key: Option<CompactString>,
    operator: Option<CompactString>,
    value: Option<CompactString>,
    effect: Option<CompactString>,
}

/// Why a node is not possible, whatever room it has.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Objection<'a> {
    Unschedulable,
    Taint(&'a Taint),
    Affinity,
}

impl Requirements {
    pub fn objection<'a>(&self, node: &'a CandidateNode) -> Option<Objection<'a>> {
        let cordon = Taint::cordon();
        if node.unschedulable && !self.tolerates(&cordon) {
            return Some(Objection::Unschedulable);
        }
        if let Some(taint) = node.taints.iter().find(|taint| !self.tolerates(taint)) {
            return Some(Objection::Taint(taint));
        }
        let selected = self.selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
        let wanted = self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches(node)));
        if selected && wanted { None } else { Some(Objection::Affinity) }
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|toleration| toleration.covers(taint))
    }
}

impl Toleration {
    fn covers(&self, taint: &Taint) -> bool {
        let text = |field: &Option<CompactString>| field.clone().unwrap_or_default();
        let (key, effect) = (text(&self.key), text(&self.effect));
        if !(effect.is_empty() || effect == taint.effect) || !(key.is_empty() || key == taint.key) {
            return false;
        }
        match text(&self.operator).as_str() {
            "Exists" => true,
            "" | "Equal" => !key.is_empty() && text(&self.value) == taint.value,
            _ => false,
        }
    }
}

impl Term {
    /// A term without requirements matches nothing.
    fn matches(&self, node: &CandidateNode) -> bool {
        let name = |key: &str| (key == "metadata.name").then_some(&node.meta.name);
        let (labels, fields) = (self.match_expressions.as_deref(), self.match_fields.as_deref());
        let (labels, fields) = (labels.unwrap_or_default(), fields.unwrap_or_default());
        (!labels.is_empty() || !fields.is_empty())
            && labels.iter().all(|expression| expression.holds(node.labels.get(&expression.key)))
            && fields.iter().all(|expression| expression.holds(name(&expression.key)))
    }
}

impl Expression {
    fn holds(&self, actual: Option<&CompactString>) -> bool {
        let values = self.values.as_deref().unwrap_or_default();
        let numbers = || Some((actual?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
        match self.operator.as_str() {
            "In" => actual.is_some_and(|actual| values.contains(actual)),
            "NotIn" => actual.is_none_or(|actual| !values.contains(actual)),
            "Exists" => actual.is_some(),
            "DoesNotExist" => actual.is_none(),
            "Gt" => numbers().is_some_and(|(actual, limit)| actual > limit),
            "Lt" => numbers().is_some_and(|(actual, limit)| actual < limit),
            _ => false,
        }
    }
}

#[derive(Deserialize)]
struct RawPod {
    spec: RawSpec,
    status: Option<RawStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSpec {
    scheduler_name: Option<CompactString>,
    priority: Option<i64>,
    scheduling_gates: Option<Vec<serde::de::IgnoredAny>>,
    node_selector: Option<BTreeMap<CompactString, CompactString>>,
    affinity: Option<RawAffinity>,
    tolerations: Option<Vec<Toleration>>,
    containers: Vec<RawContainer>,
    init_containers: Option<Vec<RawContainer>>,
    resources: Option<RawResources>,
    overhead: Option<Written>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawAffinity {
    node_affinity: Option<RawNodeAffinity>,
}

#[derive(Deserialize)]
struct RawNodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<RawNodeSelector>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawNodeSelector {
    node_selector_terms: Option<Vec<Term>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawContainer {
    restart_policy: Option<CompactString>,
    resources: Option<RawResources>,
}

#[derive(Deserialize)]
struct RawResources {
    requests: Option<Written>,
}

#[derive(Deserialize)]
struct RawStatus {
    conditions: Option<Vec<RawCondition>>,
}

#[derive(Deserialize)]
struct RawCondition {
    r#type: CompactString,
    status: CompactString,
    reason: Option<CompactString>,
    message: Option<CompactString>,
}

fn requests(resources: Option<&RawResources>) -> Amounts {
    resources.and_then(|resources| resources.requests.as_ref()).map(Amounts::read).unwrap_or_default()
}

/// The most that the Pod uses at any time. Init containers run one after the other before the containers; those that
/// are always restarted (sidecars) keep running beside everything that comes after them.
fn effective_requests(spec: &RawSpec) -> Amounts {
    let mut running = Amounts::default();
    for container in &spec.containers {
        running.add(&requests(container.resources.as_ref()));
    }
    let (mut sidecars, mut starting) = (Amounts::default(), Amounts::default());
    for container in spec.init_containers.iter().flatten() {
        let mut own = requests(container.resources.as_ref());
        if container.restart_policy.as_deref() == Some("Always") {
            running.add(&own);
            sidecars.add(&own);
            starting.raise_to(&sidecars);
        } else {
            own.add(&sidecars);
            starting.raise_to(&own);
        }
    }
    running.raise_to(&starting);
    // Requests of the Pod as a whole replace the sum.
    for (name, amount) in requests(spec.resources.as_ref()).iter() {
        running.set(name, amount);
    }
    if let Some(overhead) = &spec.overhead {
        running.add(&Amounts::read(overhead));
    }
    running.set(PODS, 1);
    running
}

impl Pod {
    /// Whether it takes the same room on the same node as before, or none since its end.
    pub fn stays(&self, seen: &PodView) -> bool {
        let ended = self.terminal && seen.phase.is_terminal();
        let holds = !self.terminal && !seen.phase.is_terminal() && !self.node.is_empty() && self.node == seen.node_name;
        ended || holds && self.has_same_spec(seen)
    }

    /// The API counts every change of a spec, except that a Pod gets its node.
    fn has_same_spec(&self, seen: &PodView) -> bool {
        self.generation.is_some() && self.generation == seen.generation
    }

    /// `before`: what is known of it at an earlier revision. None: it cannot be decoded.
    pub fn read(seen: &PodView, object: &Object, before: Option<&Self>) -> Option<Self> {
        let mut pod = Self {
            generation: seen.generation,
            rank: (Reverse(0), seen.created_at),
            node: seen.node_name.clone(),
            terminal: seen.phase.is_terminal(),
            unbound: false,
            conditions: Vec::new(),
            refused: false,
            told: None,
            requirements: Arc::default(),
        };
        if pod.terminal {
            return Some(pod);
        }
        // Of a Pod that has ended no requirements are known, and another client may write that it runs again.
        if !pod.node.is_empty()
            && let Some(before) = before.filter(|before| !before.terminal && before.has_same_spec(seen))
        {
            pod.requirements = before.requirements.clone();
            return Some(pod);
        }
        let RawPod { spec, status } = object.read().ok()?;
        let gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
        let ours = spec.scheduler_name.as_deref().is_none_or(|name| name == OURS);
        let requests = effective_requests(&spec);
        let required = spec.affinity.and_then(|affinity| affinity.node_affinity).and_then(|nodes| nodes.required);
        pod.rank.0 = Reverse(spec.priority.unwrap_or(0));
        pod.requirements = Arc::new(Requirements {
            requests,
            selector: spec.node_selector.unwrap_or_default(),
            terms: required.map(|selector| selector.node_selector_terms.unwrap_or_default()),
            tolerations: spec.tolerations.unwrap_or_default(),
        });
        pod.unbound = ours && !gated && pod.node.is_empty() && !seen.deleting();
        if pod.unbound {
            let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
            pod.conditions = conditions.iter().map(|condition| condition.r#type.clone()).collect();
            let scheduled = conditions.into_iter().find(|condition| condition.r#type == "PodScheduled");
            if let Some(refused) = scheduled.filter(|condition| condition.status == "False") {
                pod.refused = true;
                let unfit = refused.reason.as_deref() == Some("Unschedulable");
                pod.told = unfit.then(|| refused.message.unwrap_or_default().as_str().into());
            }
        }
        Some(pod)
    }
}
