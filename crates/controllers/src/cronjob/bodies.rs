//! Requests about CronJobs and their Jobs. Deletes and status writes are conditional.

use std::collections::BTreeMap;

use bytes::Bytes;
use compact_str::CompactString;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tally_core::schedule::Zone;
use tally_core::time::Timestamp;

use super::plan::job_name;
use super::view::{CronJob, SCHEDULED_AT, Status};
use tally_runtime::controller::{Call, Kind, Verb};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Job<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: JobMeta<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JobMeta<'a> {
    name: String,
    namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a BTreeMap<CompactString, CompactString>>,
    annotations: BTreeMap<CompactString, CompactString>,
    owner_references: [Value; 1],
}

/// The Job of a scheduled time.
pub fn create_job(cron: &CronJob, slot: Timestamp) -> Call {
    let zone = Zone::of(&cron.schedule, cron.time_zone.as_deref()).unwrap_or(Zone::UTC);
    let mut annotations = cron.template.metadata.annotations.clone().unwrap_or_default();
    annotations.insert(SCHEDULED_AT.into(), zone.rfc3339(slot).into());
    let owner = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "name": cron.name, "uid": cron.uid,
        "controller": true, "blockOwnerDeletion": true,
    });
    let metadata = JobMeta {
        name: job_name(&cron.name, slot),
        namespace: &cron.namespace,
        labels: cron.template.metadata.labels.as_ref(),
        annotations,
        owner_references: [owner],
    };
    let job = Job { api_version: "batch/v1", kind: "Job", metadata, spec: cron.template.spec.as_deref() };
    // Strings and numbers with strings as keys: serialization cannot fail.
    let body = serde_json::to_vec(&job).map(Bytes::from).unwrap_or_default();
    Call::new(Verb::Create, Kind::JOB, &cron.namespace, "").body(body)
}

pub fn delete_job(namespace: &str, name: &str, uid: &str) -> Call {
    Call::new(Verb::Delete, Kind::JOB, namespace, name).body(&json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "preconditions": {"uid": uid},
    }))
}

pub fn write_status(cron: &CronJob, status: &Status) -> Call {
    let active = if status.active.is_empty() { Value::Null } else { json!(status.active) };
    let body = json!({
        "metadata": {"uid": cron.uid, "resourceVersion": cron.revision.0.to_string()},
        "status": {
            "active": active,
            "lastScheduleTime": status.last_schedule_time,
            "lastSuccessfulTime": status.last_successful_time,
        },
    });
    Call::new(Verb::MergePatch, Kind::CRON_JOB, &cron.namespace, &cron.name).subresource("status").body(&body)
}

pub fn read_cron_job(cron: &CronJob) -> Call {
    Call::new(Verb::Get, Kind::CRON_JOB, &cron.namespace, &cron.name)
}

/// In the format of mail headers: `Mon, 02 Jan 2006 15:04:05 +0000`.
pub fn rfc1123(at: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // 2006-01-02T15:04:05Z
    let text = at.to_string();
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let days = usize::try_from(at.seconds().div_euclid(86_400).rem_euclid(7)).unwrap_or(0);
    let month = part(5, 7).parse::<usize>().ok().and_then(|month| MONTHS.get(month.wrapping_sub(1)));
    let (day, year, clock) = (part(8, 10), part(0, 4), part(11, 19));
    format!("{}, {day} {} {year} {clock} +0000", DAYS[days], month.unwrap_or(&""))
}
