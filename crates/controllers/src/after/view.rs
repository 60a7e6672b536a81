//! The few fields of a Job on which the order between Jobs depends.

use std::collections::BTreeMap;

use compact_str::CompactString;
use serde::Deserialize;
use tally_core::after::{AFTER, AFTER_STATE, AfterError, AfterState, DEPENDENCY_CYCLE, JobEnd, Predecessor, parse};
use tally_core::job::{Condition, RESERVED_MANAGER, condition};
use tally_runtime::cache::{Meta, View};

/// A Job of the stream.
pub(super) struct OrderedJob {
    pub(super) meta: Meta,
    pub(super) end: Option<JobEnd>,
    /// None: it waits for no other Job, and never did.
    pub(super) order: Option<Box<Order>>,
}

/// What is known about a Job with the annotation.
pub(super) struct Order {
    pub(super) after: Result<Vec<Predecessor>, AfterError>,
    pub(super) state: AfterState,
    pub(super) suspend: bool,
    pub(super) managed_by: Option<CompactString>,
    pub(super) conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct WireJob {
    metadata: WireMeta,
    #[serde(default)]
    spec: Option<WireSpec>,
    #[serde(default)]
    status: Option<WireStatus>,
}

#[derive(Deserialize)]
struct WireMeta {
    #[serde(flatten)]
    meta: Meta,
    #[serde(default)]
    annotations: Option<BTreeMap<CompactString, String>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    suspend: Option<bool>,
    managed_by: Option<CompactString>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireStatus {
    conditions: Option<Vec<Condition>>,
}

impl OrderedJob {
    pub(super) fn from_json(bytes: &[u8]) -> Option<Self> {
        let WireJob { metadata, spec, status } = serde_json::from_slice(bytes).ok()?;
        let WireMeta { mut meta, annotations } = metadata;
        // Nothing here depends on them, and a copy of every Job is kept.
        (meta.owner_references, meta.finalizers) = (Vec::new(), Vec::new());
        let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
        let end = JobEnd::of(&conditions);
        let annotation = |key: &str| annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
        let order = annotation(AFTER).map(|text| {
            let WireSpec { suspend, managed_by } = spec.unwrap_or_default();
            let state = AfterState::read(annotation(AFTER_STATE), &meta.uid);
            Box::new(Order { after: parse(text), state, suspend: suspend.unwrap_or(false), managed_by, conditions })
        });
        Some(Self { meta, end, order })
    }

    /// The annotation of a Job whose end is not decided.
    pub(super) fn open(&self) -> Option<&Order> {
        self.order.as_deref().filter(|order| !order.is_decided() && !self.meta.deleting())
    }

    /// ORDER-2: the suspension is that of a Job which waits for others, not one that a user wants.
    fn waits(&self) -> Option<&Order> {
        self.open().filter(|order| order.suspend && !order.state.resumed)
    }

    /// The Jobs that it waits for, as far as cycles are concerned: a Job that failed because of a cycle keeps its place
    /// in it, so that all Jobs of the cycle fail for the same reason.
    pub(super) fn waits_for(&self) -> Vec<CompactString> {
        let in_cycle = |order: &&Order| {
            let failed =
                |known: &Condition| known.kind == condition::FAILURE_TARGET && known.reason == DEPENDENCY_CYCLE;
            order.conditions.iter().any(failed)
        };
        let order = self.waits().or_else(|| self.order.as_deref().filter(in_cycle));
        let after = order.and_then(|order| order.after.as_ref().ok());
        after.into_iter().flatten().map(|predecessor| predecessor.name.clone()).collect()
    }
}

impl Order {
    /// The end of the Job is decided, whatever decided it.
    fn is_decided(&self) -> bool {
        let decides =
            [condition::COMPLETE, condition::FAILED, condition::FAILURE_TARGET, condition::SUCCESS_CRITERIA_MET];
        self.conditions.iter().any(|known| known.is_true() && decides.contains(&known.kind.as_str()))
    }

    /// Whether the Job controller has ever reported the Job as suspended or resumed.
    pub(super) fn was_suspended(&self) -> bool {
        self.conditions.iter().any(|known| known.kind == condition::SUSPENDED)
    }

    /// MANAGED-1.
    pub(super) fn is_managed_by(&self, own: Option<&str>) -> bool {
        match (self.managed_by.as_deref(), own) {
            (None | Some(RESERVED_MANAGER), None) => true,
            (Some(manager), Some(own)) => manager == own,
            _ => false,
        }
    }
}

impl View for OrderedJob {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}
