//! The compact view of a Job: the fields that a controller needs, decoded once. The Pod template is kept as the
//! original bytes, so that unknown fields survive.

use std::sync::{Arc, OnceLock};

use compact_str::CompactString;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tally_value::Value;

use crate::backoff::BackoffPolicy;
use crate::blueprint::PodPattern;
use crate::gates::FeatureGates;
use crate::ids::{JobUid, PodUid, Revision};
use crate::lifetime::{self, EarlyDeletion, TtlByOutcome};
use crate::pending::{self, PendingTimeouts};
use crate::pod::PodView;
use crate::policy::{FailurePolicy, SuccessPolicy};
use crate::selector::Selector;
use crate::time::{Span, Timestamp};
use crate::view::{ViewError, if_usual, null_default, required_uid, revision};

/// The value of `spec.managedBy` that names the built-in controller: such Jobs are ours although the field is set.
pub const RESERVED_MANAGER: &str = "kubernetes.io/job-controller";
/// The label by which a Job selects its Pods, unless its creator specified a selector.
pub const CONTROLLER_UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
/// That label, and its name in older releases.
pub const CONTROLLER_UID_LABELS: [&str; 2] = [CONTROLLER_UID_LABEL, "controller-uid"];
/// The number of retries if `backoffLimit` is not set (DEFAULT-2).
pub const DEFAULT_BACKOFF_LIMIT: i32 = 6;

/// On a Job: how its Pods are tracked. Tally ignores every value but the one below (TYPE-10).
pub const TRACKING_ANNOTATION: &str = "batch.kubernetes.io/job-tracking";
/// Its value for a Job that is tracked the old way, by the Pods that are there (GATE-7).
pub const TRACKING_LEGACY: &str = "legacy";

/// On a Job with `maxFailedIndexes`: what happens when too many indexes have failed (BLPI-11).
pub const HALT_ANNOTATION: &str = "tally.dev/halt";
/// Its value for a Job that stops the Pods that run, as without the annotation.
pub const HALT_NOW: &str = "now";
/// Its value for a Job that starts no more Pods and lets those that run end.
pub const HALT_SOON: &str = "soon";

#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    pub uid: JobUid,
    pub namespace: CompactString,
    pub name: CompactString,
    pub revision: Revision,
    pub generation: i64,
    pub created_at: Timestamp,
    /// Has a deletionTimestamp.
    pub deleting: bool,
    /// Tracked the old way, without finalizers (GATE-7).
    pub legacy: bool,
    /// `spec.scheduling` is set: its Pods are to be scheduled together, which no controller of ours can do (GANG-5).
    pub gang: bool,
    /// The gates of the controller that reads it. Fields whose gate is off are already left out (`FeatureGates::apply`).
    pub gates: FeatureGates,
    /// Too many failed indexes end it only when its running Pods have ended (BLPI-11).
    pub halts_soon: bool,
    /// Which of its Pods are deleted once they are counted (TTL-14).
    pub early_deletion: EarlyDeletion,
    /// TTL-18: the template says how long its Pods stay after their end.
    pub pods_expire: bool,
    /// How long it stays after its success and after its failure, if that is annotated (TTL-21).
    pub ttl_after: TtlByOutcome,
    /// How long it waits for a Pod that terminates on a dead node (REPL-8).
    pub replace_terminating_after: Option<Span>,
    /// How long it waits before it replaces failed Pods.
    pub backoff: BackoffPolicy,
    /// Why that is the default although annotations say something else (BACKOFF-12).
    pub invalid_backoff: Option<Arc<str>>,
    pub spec: Arc<JobSpec>,
    pub status: JobStatus,
}

#[derive(Clone, Debug, PartialEq)]
pub struct JobSpec {
    pub parallelism: i32,
    pub completions: Option<i32>,
    pub completion_mode: CompletionMode,
    pub backoff_limit: i32,
    pub backoff_limit_per_index: Option<i32>,
    pub max_failed_indexes: Option<i32>,
    pub active_deadline_seconds: Option<i64>,
    pub ttl_seconds_after_finished: Option<i32>,
    pub suspend: bool,
    pub pod_replacement_policy: PodReplacementPolicy,
    pub pod_failure_policy: Option<FailurePolicy>,
    pub success_policy: Option<SuccessPolicy>,
    pub managed_by: Option<CompactString>,
    pub selector: Selector,
    pub restart_policy_on_failure: bool,
    /// Without PodDisruptionConditions a Pod need not reach a final phase: it has failed once it is being deleted.
    pub judges_terminating: bool,
    /// From the annotation `tally.dev/pending-timeout`; None also if it cannot be read.
    pub pending_timeouts: Option<Arc<PendingTimeouts>>,
    pub template: Template,
}

/// The Pod template as raw JSON, and as a tree once a Pod is made of it. Compared by content.
#[derive(Clone, Debug)]
pub struct Template(Arc<TemplateForms>);

#[derive(Debug)]
struct TemplateForms {
    text: Box<RawValue>,
    tree: OnceLock<Result<Value, String>>,
    pattern: OnceLock<Arc<PodPattern>>,
}

impl Template {
    pub fn new(text: Box<RawValue>) -> Self {
        Self(Arc::new(TemplateForms { text, tree: OnceLock::new(), pattern: OnceLock::new() }))
    }

    pub fn text(&self) -> &str {
        self.0.text.get()
    }

    /// The error says why the text is no tree: it is too deep.
    pub fn tree(&self) -> Result<&Value, &str> {
        let tree = self.0.tree.get_or_init(|| serde_json::from_str(self.text()).map_err(|error| error.to_string()));
        tree.as_ref().map_err(String::as_str)
    }

    /// What the first Pod made of it left for the next ones.
    pub(crate) fn pattern(&self) -> &OnceLock<Arc<PodPattern>> {
        &self.0.pattern
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.text() == other.text()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompletionMode {
    NonIndexed,
    Indexed,
    /// A mode of a newer API: Pods of the Job are neither created nor counted, and an Event says so (SYNC-8).
    Unknown(CompactString),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodReplacementPolicy {
    TerminatingOrFailed,
    Failed,
}

impl JobSpec {
    pub fn is_indexed(&self) -> bool {
        self.completion_mode == CompletionMode::Indexed
    }

    /// REPL-2: replace a Pod only once its phase is terminal.
    pub fn waits_for_terminal_phase(&self) -> bool {
        self.pod_replacement_policy == PodReplacementPolicy::Failed
            || (self.pod_failure_policy.is_some() && !self.judges_terminating)
    }

    /// `spec.completions` as the bound of valid indexes; 0 if absent or negative.
    pub fn index_limit(&self) -> u32 {
        self.completions.and_then(|completions| u32::try_from(completions).ok()).unwrap_or(0)
    }

    /// Whether each index has its own limit of failures (BLPI).
    pub fn limits_each_index(&self) -> bool {
        self.is_indexed() && self.backoff_limit_per_index.is_some()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobStatus {
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Timestamp>,
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "is_zero")]
    pub active: i32,
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "is_zero")]
    pub succeeded: i32,
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "is_zero")]
    pub failed: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminating: Option<i32>,
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "str_is_empty")]
    pub completed_indexes: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_indexes: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncounted_terminated_pods: Option<Uncounted>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<i32>,
}

/// `status.uncountedTerminatedPods`: recorded, not yet tallied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uncounted {
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    pub succeeded: Vec<PodUid>,
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<PodUid>,
}

impl Uncounted {
    pub fn len(&self) -> usize {
        self.succeeded.len() + self.failed.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn is_zero(value: &i32) -> bool {
    *value == 0
}

fn str_is_empty(text: &Arc<str>) -> bool {
    text.is_empty()
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type", default, deserialize_with = "null_default")]
    pub kind: CompactString,
    /// "True", "False", "Unknown"; any other text is kept and does not mean true.
    #[serde(default, deserialize_with = "null_default")]
    pub status: CompactString,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "CompactString::is_empty")]
    pub reason: CompactString,
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Condition {
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// The condition types the Job API defines.
pub mod condition {
    pub const COMPLETE: &str = "Complete";
    pub const FAILED: &str = "Failed";
    pub const SUSPENDED: &str = "Suspended";
    pub const FAILURE_TARGET: &str = "FailureTarget";
    pub const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";
}

impl JobStatus {
    /// The first condition of this type that is True.
    pub fn true_condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind && condition.is_true())
    }

    pub fn is_true(&self, kind: &str) -> bool {
        self.true_condition(kind).is_some()
    }

    /// The condition that states the verdict: the first of Complete and Failed that is True.
    pub fn terminal_condition(&self) -> Option<&Condition> {
        self.conditions.iter().find(|condition| {
            (condition.kind == condition::COMPLETE || condition.kind == condition::FAILED) && condition.is_true()
        })
    }

    pub fn is_finished(&self) -> bool {
        self.terminal_condition().is_some()
    }

    pub fn uncounted(&self) -> &Uncounted {
        const NONE: &Uncounted = &Uncounted { succeeded: Vec::new(), failed: Vec::new() };
        self.uncounted_terminated_pods.as_ref().unwrap_or(NONE)
    }
}

impl JobView {
    /// MANAGED-1, for a controller that reconciles Jobs managed by `own` (None: the built-in name).
    pub fn is_managed_by(&self, own: Option<&str>) -> bool {
        match (self.spec.managed_by.as_deref(), own) {
            (None | Some(RESERVED_MANAGER), None) => true,
            (Some(manager), Some(own)) => manager == own,
            _ => false,
        }
    }

    /// OWN-4, except for Pods that may have been counted before: with the finalizer they would be counted once more. A
    /// finished Pod without the finalizer is one. So is a finished Pod with an index: the Job that it belonged to may have
    /// counted its success by its index, nothing says which Pod that was, and its phase may have changed since.
    pub fn may_adopt(&self, pod: &PodView) -> bool {
        let may_be_counted = pod.phase.is_terminal() && (!pod.tracked || pod.index.is_some());
        let is_open = !self.deleting && !self.status.is_finished();
        is_open && !pod.deleting() && !may_be_counted && self.spec.selector.matches(&pod.labels)
    }

    /// REPL-8: how long it waits for a Pod that terminates on a dead node, before it counts the Pod as failed.
    pub fn gives_up_after(&self) -> Option<Span> {
        self.replace_terminating_after.filter(|_| self.spec.waits_for_terminal_phase())
    }

    /// TTL-23: whether its Pods are created behind a gate, where several controllers may lead. Counted Pods go, at once or
    /// by their own TTL, and with them the names that would show a late creation that its work is done. A Job that is
    /// tracked the old way does not count exactly.
    pub fn gates_pods(&self) -> bool {
        (self.early_deletion != EarlyDeletion::Nothing || self.pods_expire) && !self.legacy
    }

    /// Whether no controller has accounted for this Job and no user has edited its spec or deleted it: its only Pods
    /// are those that a controller creates from this spec. A selector that the API did not generate for the Job may
    /// match older Pods.
    pub fn is_untouched(&self) -> bool {
        self.generation <= 1
            && !self.deleting
            && self.status == JobStatus::default()
            && CONTROLLER_UID_LABELS.iter().any(|label| self.selects_itself_by(label))
    }

    /// Whether the selector is the one that the API generates for a Job, with this label.
    pub fn selects_itself_by(&self, label: &str) -> bool {
        let Selector { match_labels, match_expressions } = &self.spec.selector;
        match_expressions.is_empty()
            && match_labels.len() == 1
            && match_labels.get(label).is_some_and(|uid| JobUid::new(uid) == self.uid)
    }

    /// Decodes a `batch/v1` Job as JSON.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ViewError> {
        let wire: WireJob = serde_json::from_slice(bytes).map_err(|source| ViewError::job(bytes, &source))?;
        wire.into_view()
    }
}

#[derive(Deserialize)]
struct WireJob<'a> {
    #[serde(borrow)]
    metadata: WireMeta<'a>,
    #[serde(borrow)]
    spec: WireSpec<'a>,
    #[serde(default, deserialize_with = "null_default")]
    status: JobStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMeta<'a> {
    #[serde(default)]
    uid: Option<JobUid>,
    #[serde(default, deserialize_with = "null_default")]
    namespace: CompactString,
    name: CompactString,
    #[serde(default, borrow)]
    resource_version: Option<std::borrow::Cow<'a, str>>,
    #[serde(default)]
    generation: Option<i64>,
    #[serde(default)]
    creation_timestamp: Option<Timestamp>,
    #[serde(default)]
    deletion_timestamp: Option<Timestamp>,
    #[serde(default, deserialize_with = "null_default")]
    annotations: WireAnnotations,
}

/// The annotations that a controller acts on. All others are skipped.
#[derive(Deserialize, Default)]
struct WireAnnotations {
    #[serde(rename = "tally.dev/halt", default)]
    halt: Option<CompactString>,
    #[serde(rename = "batch.kubernetes.io/job-tracking", default)]
    tracking: Option<CompactString>,
    #[serde(rename = "tally.dev/backoff-base", default)]
    backoff_base: Option<CompactString>,
    #[serde(rename = "tally.dev/backoff-max", default)]
    backoff_max: Option<CompactString>,
    #[serde(rename = "tally.dev/backoff-jitter", default)]
    backoff_jitter: Option<CompactString>,
    #[serde(rename = "tally.dev/delete-finished-pods", default)]
    delete_finished_pods: Option<CompactString>,
    #[serde(rename = "tally.dev/ttl-seconds-after-complete", default)]
    ttl_after_complete: Option<CompactString>,
    #[serde(rename = "tally.dev/ttl-seconds-after-failed", default)]
    ttl_after_failed: Option<CompactString>,
    #[serde(rename = "tally.dev/replace-terminating-after", default)]
    replace_terminating_after: Option<CompactString>,
    #[serde(rename = "tally.dev/pending-timeout", default)]
    pending_timeout: Option<CompactString>,
}

impl WireAnnotations {
    /// BACKOFF-11, BACKOFF-12.
    fn backoff(&self) -> (BackoffPolicy, Option<Arc<str>>) {
        let [base, max, jitter] = [&self.backoff_base, &self.backoff_max, &self.backoff_jitter];
        match BackoffPolicy::read(base.as_deref(), max.as_deref(), jitter.as_deref()) {
            Ok(policy) => (policy, None),
            Err(errors) => {
                let text: Vec<String> = errors.iter().map(ToString::to_string).collect();
                (BackoffPolicy::default(), Some(text.join("; ").into()))
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec<'a> {
    parallelism: Option<i32>,
    completions: Option<i32>,
    completion_mode: Option<CompactString>,
    backoff_limit: Option<i32>,
    backoff_limit_per_index: Option<i32>,
    max_failed_indexes: Option<i32>,
    active_deadline_seconds: Option<i64>,
    ttl_seconds_after_finished: Option<i32>,
    suspend: Option<bool>,
    pod_replacement_policy: Option<CompactString>,
    pod_failure_policy: Option<FailurePolicy>,
    success_policy: Option<SuccessPolicy>,
    managed_by: Option<CompactString>,
    selector: Option<Selector>,
    scheduling: Option<IgnoredAny>,
    #[serde(borrow)]
    template: &'a RawValue,
}

#[derive(Deserialize, Default)]
struct WireTemplate {
    /// What is wrong with metadata that makes no sense is said when a Pod is made of it.
    #[serde(default, deserialize_with = "if_usual")]
    metadata: Option<WireTemplateMeta>,
    #[serde(default, deserialize_with = "null_default")]
    spec: WireTemplateSpec,
}

#[derive(Deserialize, Default)]
struct WireTemplateMeta {
    #[serde(default, deserialize_with = "null_default")]
    annotations: WireTemplateAnnotations,
}

#[derive(Deserialize, Default)]
struct WireTemplateAnnotations {
    #[serde(rename = "tally.dev/ttl-seconds-after-finished", default)]
    pod_ttl: Option<CompactString>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireTemplateSpec {
    #[serde(default)]
    restart_policy: Option<CompactString>,
}

impl WireJob<'_> {
    fn into_view(self) -> Result<JobView, ViewError> {
        let (backoff, invalid_backoff) = self.metadata.annotations.backoff();
        let halts_soon = self.metadata.annotations.halt.as_deref() == Some(HALT_SOON);
        let early_deletion = self.metadata.annotations.delete_finished_pods.as_deref().and_then(EarlyDeletion::parse);
        let ttl = |text: &Option<CompactString>| text.as_deref().and_then(lifetime::ttl_seconds);
        let ttl_after = TtlByOutcome {
            complete: ttl(&self.metadata.annotations.ttl_after_complete),
            failed: ttl(&self.metadata.annotations.ttl_after_failed),
        };
        let wait = self.metadata.annotations.replace_terminating_after.as_deref();
        let replace_terminating_after = wait.and_then(|text| lifetime::terminating_wait(text).ok());
        let legacy = self.metadata.annotations.tracking.as_deref() == Some(TRACKING_LEGACY);
        // The old way counts the Pods that it sees, so that none may go early (GATE-8).
        let early_deletion = early_deletion.filter(|_| !legacy);
        let replace_terminating_after = replace_terminating_after.filter(|_| !legacy);
        let WireMeta {
            uid,
            namespace,
            name,
            resource_version,
            generation,
            creation_timestamp,
            deletion_timestamp,
            annotations,
            ..
        } = self.metadata;
        let spec = self.spec;
        let template = serde_json::from_str::<Option<WireTemplate>>(spec.template.get())
            .map_err(|source| ViewError::field("Job", &name, "spec.template", &source))?
            .unwrap_or_default();
        let pod_ttl = template.metadata.and_then(|metadata| metadata.annotations.pod_ttl);
        let pods_expire = pod_ttl.as_deref().and_then(lifetime::ttl_seconds).is_some();
        // DEFAULT-1: a work queue has a parallelism and no completions; if neither is set, both are 1.
        let (parallelism, completions) = match (spec.parallelism, spec.completions) {
            (None, None) => (1, Some(1)),
            (parallelism, completions) => (parallelism.unwrap_or(1), completions),
        };
        let completion_mode = match spec.completion_mode.as_deref() {
            None | Some("NonIndexed") => CompletionMode::NonIndexed,
            Some("Indexed") => CompletionMode::Indexed,
            Some(other) => CompletionMode::Unknown(other.into()),
        };
        let pod_replacement_policy = match spec.pod_replacement_policy.as_deref() {
            Some("Failed") => PodReplacementPolicy::Failed,
            Some(_) => PodReplacementPolicy::TerminatingOrFailed,
            None if spec.pod_failure_policy.is_some() => PodReplacementPolicy::Failed,
            None => PodReplacementPolicy::TerminatingOrFailed,
        };
        let backoff_limit = spec.backoff_limit.unwrap_or(match spec.backoff_limit_per_index {
            Some(_) => i32::MAX,
            None => DEFAULT_BACKOFF_LIMIT,
        });
        Ok(JobView {
            revision: revision("Job", &name, resource_version.as_deref())?,
            uid: required_uid("Job", &name, uid, JobUid::is_empty)?,
            namespace,
            name,
            generation: generation.unwrap_or(0),
            created_at: creation_timestamp.unwrap_or_default(),
            deleting: deletion_timestamp.is_some(),
            legacy,
            gang: spec.scheduling.is_some(),
            gates: FeatureGates::default(),
            halts_soon,
            early_deletion: early_deletion.unwrap_or_default(),
            pods_expire,
            ttl_after,
            replace_terminating_after,
            backoff,
            invalid_backoff,
            spec: Arc::new(JobSpec {
                parallelism,
                completions,
                completion_mode,
                backoff_limit,
                backoff_limit_per_index: spec.backoff_limit_per_index,
                max_failed_indexes: spec.max_failed_indexes,
                active_deadline_seconds: spec.active_deadline_seconds,
                ttl_seconds_after_finished: spec.ttl_seconds_after_finished,
                suspend: spec.suspend.unwrap_or(false),
                pod_replacement_policy,
                pod_failure_policy: spec.pod_failure_policy,
                success_policy: spec.success_policy,
                managed_by: spec.managed_by,
                selector: spec.selector.unwrap_or_default(),
                judges_terminating: false,
                restart_policy_on_failure: template.spec.restart_policy.as_deref() == Some("OnFailure"),
                pending_timeouts: annotations.pending_timeout.and_then(|text| pending::parse(&text).ok()).map(Arc::new),
                template: Template::new(spec.template.to_owned()),
            }),
            status: self.status,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// TTL-23.
    #[test]
    fn pods_that_go_before_their_job_start_behind_a_gate() {
        let (early, ttl) = ("tally.dev/delete-finished-pods", "tally.dev/ttl-seconds-after-finished");
        let legacy = r#", "batch.kubernetes.io/job-tracking": "legacy""#;
        for (job, template, gated) in [
            ("".to_owned(), "null".to_owned(), false),
            (format!(r#""{early}": "all""#), "{}".to_owned(), true),
            (format!(r#""{early}": "some""#), "{}".to_owned(), false),
            ("".to_owned(), format!(r#"{{"annotations": {{"{ttl}": "0"}}}}"#), true),
            ("".to_owned(), format!(r#"{{"annotations": {{"{ttl}": "-1"}}}}"#), false),
            ("".to_owned(), r#"{"annotations": null}"#.to_owned(), false),
            // Of the Job, not of its Pods.
            (format!(r#""{ttl}": "0""#), "{}".to_owned(), false),
            (format!(r#""a": "b"{legacy}"#), format!(r#"{{"annotations": {{"{ttl}": "0"}}}}"#), false),
            (format!(r#""{early}": "all"{legacy}"#), "{}".to_owned(), false),
        ] {
            let text = format!(
                r#"{{"metadata": {{"uid": "u", "name": "j", "namespace": "n", "resourceVersion": "1",
                "annotations": {{{job}}}}}, "spec": {{"template": {{"metadata": {template}, "spec": {{}}}}}}}}"#
            );
            assert_eq!(JobView::from_json(text.as_bytes()).unwrap().gates_pods(), gated, "{job} {template}");
        }
    }
}
