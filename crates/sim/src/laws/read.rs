//! Jobs and Pods as the API stores them, read by the laws themselves from the stored JSON.

use std::collections::BTreeMap;

use bytes::Bytes;
use compact_str::CompactString;
use serde::Deserialize;
use tally_core::ids::{JobUid, PodUid};
use tally_core::time::{Span, Timestamp};

type Labels = BTreeMap<CompactString, CompactString>;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Job {
    pub(crate) metadata: JobMetadata,
    pub(crate) spec: JobSpec,
    #[serde(default)]
    pub(crate) status: JobStatus,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobMetadata {
    pub(crate) uid: JobUid,
    pub(crate) name: CompactString,
    #[serde(default)]
    pub(crate) namespace: CompactString,
    #[serde(default)]
    deletion_timestamp: Option<CompactString>,
    #[serde(default)]
    pub(crate) annotations: Labels,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobSpec {
    #[serde(default = "one")]
    pub(crate) parallelism: i64,
    pub(crate) completions: Option<i64>,
    pub(crate) completion_mode: Option<CompactString>,
    pub(crate) backoff_limit: i64,
    pub(crate) backoff_limit_per_index: Option<i64>,
    pub(crate) max_failed_indexes: Option<i64>,
    pub(crate) active_deadline_seconds: Option<i64>,
    pub(crate) ttl_seconds_after_finished: Option<i64>,
    #[serde(default)]
    pub(crate) suspend: bool,
    pub(crate) pod_replacement_policy: Option<CompactString>,
    pub(crate) pod_failure_policy: Option<Rules<FailureRule>>,
    pub(crate) success_policy: Option<Rules<SuccessRule>>,
    pub(crate) managed_by: Option<CompactString>,
    selector: Selector,
    template: Template,
}

impl Job {
    /// An annotation that its Pods get.
    pub(crate) fn pod_annotation(&self, name: &str) -> Option<&CompactString> {
        self.spec.template.metadata.annotations.get(name)
    }

    /// Whether its status lists the Pod among those to be tallied.
    pub(crate) fn lists(&self, pod: &PodUid) -> bool {
        let lists = &self.status.uncounted_terminated_pods;
        lists.succeeded.contains(pod) || lists.failed.contains(pod)
    }

    /// Tracked the old way, by the Pods that are there. Exact counts are promised only to the others.
    pub(crate) fn is_legacy(&self) -> bool {
        self.metadata.annotations.get("batch.kubernetes.io/job-tracking").is_some_and(|value| value == "legacy")
    }
}

fn one() -> i64 {
    1
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Rules<T> {
    #[serde(default = "Vec::new")]
    pub(crate) rules: Vec<T>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FailureRule {
    pub(crate) action: CompactString,
    pub(crate) on_exit_codes: Option<OnExitCodes>,
    #[serde(default)]
    pub(crate) on_pod_conditions: Vec<OnPodCondition>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OnExitCodes {
    pub(crate) container_name: Option<CompactString>,
    pub(crate) operator: CompactString,
    pub(crate) values: Vec<i64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct OnPodCondition {
    #[serde(rename = "type")]
    pub(crate) kind: CompactString,
    #[serde(default)]
    pub(crate) status: CompactString,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SuccessRule {
    pub(crate) succeeded_indexes: Option<String>,
    pub(crate) succeeded_count: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Selector {
    #[serde(default)]
    match_labels: Labels,
}

#[derive(Clone, Debug, Deserialize)]
struct Template {
    #[serde(default)]
    metadata: TemplateMetadata,
    spec: TemplateSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateMetadata {
    annotations: Labels,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TemplateSpec {
    restart_policy: CompactString,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct JobStatus {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) start_time: Option<Timestamp>,
    pub(crate) completion_time: Option<Timestamp>,
    pub(crate) active: i64,
    pub(crate) succeeded: i64,
    pub(crate) failed: i64,
    pub(crate) ready: i64,
    pub(crate) terminating: i64,
    pub(crate) completed_indexes: String,
    pub(crate) failed_indexes: Option<String>,
    pub(crate) uncounted_terminated_pods: Uncounted,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Uncounted {
    pub(crate) succeeded: Vec<PodUid>,
    pub(crate) failed: Vec<PodUid>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: CompactString,
    pub(crate) status: CompactString,
    pub(crate) last_transition_time: Option<Timestamp>,
    #[serde(default)]
    pub(crate) reason: CompactString,
}

/// The decision that ends a Job, as soon as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) success: bool,
    pub(crate) reason: CompactString,
}

impl Job {
    /// BLPI-11: it starts no more Pods because more indexes have failed than may.
    pub(crate) fn halts(&self) -> bool {
        let failed = self.status.failed_indexes.as_deref().unwrap_or_default();
        let failed = super::indexes::read(failed, self.index_limit()).len() as i64;
        let soon = self.metadata.annotations.get("tally.dev/halt").is_some_and(|halt| halt == "soon");
        soon && failed > 0 && self.spec.max_failed_indexes.is_some_and(|most| failed > most)
    }

    pub(crate) fn read(json: &Bytes) -> Self {
        match serde_json::from_slice(json) {
            Ok(job) => job,
            Err(error) => unreachable!("a stored Job that the laws cannot read: {error}"),
        }
    }

    pub(crate) fn deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub(crate) fn ours(&self) -> bool {
        self.spec.managed_by.as_deref().is_none_or(|manager| manager == "kubernetes.io/job-controller")
    }

    pub(crate) fn indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    /// The number of indexes.
    pub(crate) fn index_limit(&self) -> u32 {
        if self.indexed() { self.spec.completions.unwrap_or(0) as u32 } else { 0 }
    }

    /// BLPI.
    pub(crate) fn limit_per_index(&self) -> Option<i64> {
        self.spec.backoff_limit_per_index.filter(|_| self.indexed())
    }

    /// REPL-2: a Pod keeps its place until it has really ended.
    pub(crate) fn waits_for_the_end(&self) -> bool {
        self.spec.pod_failure_policy.is_some() || self.spec.pod_replacement_policy.as_deref() == Some("Failed")
    }

    pub(crate) fn restarts_count(&self) -> bool {
        self.spec.template.spec.restart_policy == "OnFailure"
    }

    pub(crate) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind && condition.status == "True")
    }

    pub(crate) fn terminal(&self) -> Option<&Condition> {
        let ends = |kind: &str| kind == "Complete" || kind == "Failed";
        self.status.conditions.iter().find(|condition| condition.status == "True" && ends(&condition.kind))
    }

    pub(crate) fn verdict(&self) -> Option<Verdict> {
        let of = |kind: &str, success| {
            self.condition(kind).map(|condition| Verdict { success, reason: condition.reason.clone() })
        };
        let interim = of("SuccessCriteriaMet", true).or_else(|| of("FailureTarget", false));
        // GATE-11: there may be no interim condition.
        interim.or_else(|| of("Complete", true)).or_else(|| of("Failed", false))
    }

    /// Whether a Pod belongs to this Job by owner and labels.
    pub(crate) fn claims(&self, pod: &Pod) -> bool {
        pod.job() == Some(&self.metadata.uid)
            && self.spec.selector.match_labels.iter().all(|(key, value)| pod.metadata.labels.get(key) == Some(value))
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Pod {
    pub(crate) metadata: PodMetadata,
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
    #[serde(skip)]
    pub(crate) finished_at: Timestamp,
    #[serde(skip)]
    pub(crate) index: Option<u32>,
    #[serde(skip)]
    pub(crate) phase: Phase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Pending,
    Running,
    Unknown,
    Succeeded,
    Failed,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodMetadata {
    pub(crate) uid: PodUid,
    pub(crate) name: CompactString,
    #[serde(default)]
    labels: Labels,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<CompactString, CompactString>,
    #[serde(default)]
    pub(crate) finalizers: Vec<CompactString>,
    #[serde(default)]
    owner_references: Vec<Owner>,
    #[serde(default)]
    pub(crate) creation_timestamp: Timestamp,
    deletion_timestamp: Option<Timestamp>,
    #[serde(default)]
    deletion_grace_period_seconds: i64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    api_version: CompactString,
    kind: CompactString,
    uid: JobUid,
    #[serde(default)]
    controller: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(default)]
    init_containers: Vec<InitContainer>,
    #[serde(default)]
    scheduling_gates: Vec<Gate>,
}

#[derive(Clone, Debug, Deserialize)]
struct Gate {
    name: CompactString,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitContainer {
    name: CompactString,
    restart_policy: Option<CompactString>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStatus {
    phase: CompactString,
    conditions: Vec<PodCondition>,
    container_statuses: Vec<Container>,
    init_container_statuses: Vec<Container>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodCondition {
    #[serde(rename = "type")]
    kind: CompactString,
    status: CompactString,
    last_transition_time: Option<Timestamp>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    name: CompactString,
    #[serde(default)]
    restart_count: u64,
    #[serde(default)]
    state: State,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Terminated {
    #[serde(default)]
    exit_code: i64,
    finished_at: Option<Timestamp>,
}

const TRACKING: &str = "batch.kubernetes.io/job-tracking";

impl Pod {
    pub(crate) fn read(json: &Bytes) -> Self {
        let mut pod: Self = match serde_json::from_slice(json) {
            Ok(pod) => pod,
            Err(error) => unreachable!("a stored Pod that the laws cannot read: {error}"),
        };
        pod.finished_at = pod.when_finished();
        pod.index = pod.annotation("batch.kubernetes.io/job-completion-index").and_then(|text| text.parse().ok());
        pod.phase = match pod.status.phase.as_str() {
            "" | "Pending" => Phase::Pending,
            "Running" => Phase::Running,
            "Succeeded" => Phase::Succeeded,
            "Failed" => Phase::Failed,
            _ => Phase::Unknown,
        };
        pod
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.get(key).map(CompactString::as_str)
    }

    /// BLPI-1: how often its index had failed before, and how often that was ignored.
    pub(crate) fn failures_before(&self) -> (u64, u64) {
        let number = |key| self.annotation(key).and_then(|text| text.parse().ok()).unwrap_or(0);
        (
            number("batch.kubernetes.io/job-index-failure-count"),
            number("batch.kubernetes.io/job-index-ignored-failure-count"),
        )
    }

    pub(crate) fn job(&self) -> Option<&JobUid> {
        let owner = self.metadata.owner_references.iter().find(|owner| owner.controller)?;
        (owner.kind == "Job" && owner.api_version == "batch/v1").then_some(&owner.uid)
    }

    pub(crate) fn tracked(&self) -> bool {
        self.metadata.finalizers.iter().any(|finalizer| finalizer == TRACKING)
    }

    pub(crate) fn lose_finalizer(&mut self) {
        self.metadata.finalizers.retain(|finalizer| finalizer != TRACKING);
    }

    /// When its deletion was requested.
    pub(crate) fn deletion_asked_at(&self) -> Option<Timestamp> {
        let grace = Span::from_seconds(self.metadata.deletion_grace_period_seconds);
        self.metadata.deletion_timestamp.map(|at| at - grace)
    }

    pub(crate) fn deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub(crate) fn ended(&self) -> bool {
        self.phase == Phase::Succeeded || self.phase == Phase::Failed
    }

    pub(crate) fn active(&self) -> bool {
        !self.ended() && !self.deleting()
    }

    /// It has the finalizer, is to run, and does not run yet.
    pub(crate) fn waits_to_start(&self) -> bool {
        self.phase == Phase::Pending && !self.deleting() && self.tracked() && !self.start_gated()
    }

    /// TTL-23.
    pub(crate) fn start_gated(&self) -> bool {
        self.spec.scheduling_gates.iter().any(|gate| gate.name == "tally.dev/counted-once")
    }

    /// COUNT-1.
    pub(crate) fn failed(&self, job: &Job) -> bool {
        self.phase == Phase::Failed || (self.deleting() && self.phase != Phase::Succeeded && !job.waits_for_the_end())
    }

    pub(crate) fn exits(&self) -> impl Iterator<Item = (&str, i64)> {
        let all = self.status.container_statuses.iter().chain(&self.status.init_container_statuses);
        all.filter_map(|container| {
            let code = container.state.terminated.as_ref()?.exit_code;
            (code != 0).then_some((container.name.as_str(), code))
        })
    }

    pub(crate) fn conditions(&self) -> impl Iterator<Item = (&str, &str)> {
        self.status.conditions.iter().map(|condition| (condition.kind.as_str(), condition.status.as_str()))
    }

    /// BACKOFF-9: restarts in a Pod that has not ended.
    pub(crate) fn restarts(&self) -> i64 {
        if !matches!(self.phase, Phase::Pending | Phase::Running) {
            return 0;
        }
        let all = self.status.container_statuses.iter().chain(&self.status.init_container_statuses);
        all.map(|container| container.restart_count as i64).sum()
    }

    /// BACKOFF-6.
    fn when_finished(&self) -> Timestamp {
        let sidecar = |status: &Container| {
            let named = |container: &InitContainer| container.name == status.name;
            self.spec.init_containers.iter().any(|c| named(c) && c.restart_policy.as_deref() == Some("Always"))
        };
        let end_of = |container: &Container| container.state.terminated.as_ref().and_then(|end| end.finished_at);
        let sidecars = self.status.init_container_statuses.iter().filter(|status| sidecar(status));
        let ends: Option<Vec<Timestamp>> = self.status.container_statuses.iter().chain(sidecars).map(end_of).collect();
        if let Some(last) =
            ends.filter(|_| !self.status.container_statuses.is_empty()).and_then(|e| e.into_iter().max())
        {
            return last;
        }
        let unready = |condition: &&PodCondition| condition.kind == "Ready" && condition.status == "False";
        if let Some(at) = self.status.conditions.iter().find(unready).and_then(|ready| ready.last_transition_time) {
            return at;
        }
        let grace = Span::from_seconds(self.metadata.deletion_grace_period_seconds);
        self.metadata.deletion_timestamp.map_or(self.metadata.creation_timestamp, |at| at - grace)
    }
}
