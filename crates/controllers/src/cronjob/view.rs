//! The fields of CronJobs and their Jobs that are used here.

use std::collections::BTreeMap;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tally_core::ids::Revision;
use tally_core::time::{Span, Timestamp};

use tally_runtime::cache::{Meta, View};

pub const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

#[derive(Debug)]
pub struct CronJob {
    pub namespace: CompactString,
    pub name: CompactString,
    pub uid: CompactString,
    pub revision: Revision,
    pub created_at: Timestamp,
    pub deleting: bool,
    pub schedule: CompactString,
    pub time_zone: Option<CompactString>,
    pub starting_deadline: Option<Span>,
    pub policy: Policy,
    pub suspended: bool,
    pub successful_limit: Option<usize>,
    pub failed_limit: Option<usize>,
    pub status: Status,
    pub template: Template,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Allow,
    Forbid,
    Replace,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    #[serde(deserialize_with = "list")]
    pub active: Vec<Active>,
    pub last_schedule_time: Option<Timestamp>,
    pub last_successful_time: Option<Timestamp>,
}

/// A reference to a Job that is running.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Active {
    pub api_version: CompactString,
    pub kind: CompactString,
    pub namespace: CompactString,
    pub name: CompactString,
    pub uid: CompactString,
    pub resource_version: CompactString,
}

/// The template of Jobs. The spec is kept as it was written, including unknown fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Template {
    pub metadata: TemplateMeta,
    pub spec: Option<Box<RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TemplateMeta {
    pub labels: Option<BTreeMap<CompactString, CompactString>>,
    pub annotations: Option<BTreeMap<CompactString, CompactString>>,
}

fn list<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Active>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl CronJob {
    /// None: it cannot be decoded. The server has stored it, but nothing is known about it.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let Wire { metadata, spec, status } = serde_json::from_slice(bytes).ok()?;
        let meta = metadata;
        Some(Self {
            namespace: meta.namespace,
            name: meta.name,
            uid: meta.uid,
            revision: Revision(meta.resource_version.parse().ok()?),
            created_at: meta.creation_timestamp.unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            schedule: spec.schedule,
            time_zone: spec.time_zone,
            starting_deadline: spec.starting_deadline_seconds.map(Span::from_seconds),
            policy: match spec.concurrency_policy.as_deref() {
                Some("Forbid") => Policy::Forbid,
                Some("Replace") => Policy::Replace,
                _ => Policy::Allow,
            },
            suspended: spec.suspend.unwrap_or(false),
            successful_limit: spec.successful_jobs_history_limit.map(limit),
            failed_limit: spec.failed_jobs_history_limit.map(limit),
            status: status.unwrap_or_default(),
            template: spec.job_template,
        })
    }
}

fn limit(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

#[derive(Deserialize)]
struct Wire {
    metadata: Metadata,
    spec: Spec,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    namespace: CompactString,
    name: CompactString,
    uid: CompactString,
    resource_version: CompactString,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    schedule: CompactString,
    time_zone: Option<CompactString>,
    starting_deadline_seconds: Option<i64>,
    concurrency_policy: Option<CompactString>,
    suspend: Option<bool>,
    successful_jobs_history_limit: Option<i64>,
    failed_jobs_history_limit: Option<i64>,
    #[serde(default)]
    job_template: Template,
}

/// A Job that a CronJob controls.
#[derive(Debug)]
pub struct Child {
    pub meta: Meta,
    /// The UID of the CronJob.
    pub owner: CompactString,
    pub scheduled_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub finished: Option<Finished>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    Complete { at: Option<Timestamp> },
    Failed,
}

impl View for Child {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl Child {
    /// Err: a Job that no CronJob controls, or an object that cannot be decoded.
    pub fn read(bytes: &[u8]) -> Result<Self, Option<Meta>> {
        let WireJob { metadata, status } = serde_json::from_slice(bytes).map_err(|_| None)?;
        let WireJobMeta { meta, annotations } = metadata;
        let of_cron = |api_version: &str| api_version.starts_with("batch/");
        let owner = meta.owner_references.iter().find(|owner| owner.controller);
        let owner = match owner.filter(|owner| owner.kind == "CronJob" && of_cron(&owner.api_version)) {
            Some(owner) => owner.uid.clone(),
            None => return Err(Some(meta)),
        };
        let status = status.unwrap_or_default();
        let terminal = status.conditions.unwrap_or_default().into_iter().find_map(|condition| {
            let holds = condition.status == "True";
            match condition.kind.as_str() {
                "Complete" if holds => Some(Finished::Complete { at: status.completion_time }),
                "Failed" if holds => Some(Finished::Failed),
                _ => None,
            }
        });
        let scheduled_at = annotations.and_then(|annotations| Timestamp::parse(annotations.get(SCHEDULED_AT)?).ok());
        Ok(Self { meta, owner, scheduled_at, started_at: status.start_time, finished: terminal })
    }
}

#[derive(Deserialize)]
struct WireJob {
    metadata: WireJobMeta,
    status: Option<JobStatus>,
}

#[derive(Deserialize)]
struct WireJobMeta {
    #[serde(flatten)]
    meta: Meta,
    annotations: Option<BTreeMap<CompactString, CompactString>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct JobStatus {
    conditions: Option<Vec<Condition>>,
    start_time: Option<Timestamp>,
    completion_time: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type", default)]
    kind: CompactString,
    #[serde(default)]
    status: CompactString,
}
