//! Jobs and CronJobs.

use tally_core::job::RESERVED_MANAGER;
use tally_value::Value;

use super::row::{NONE, Row};
use super::{AGE, Column, NAME, duration};

/// The columns if all Jobs are managed by the built-in controller.
pub(super) static JOBS: &[Column] = match MANAGED_JOBS {
    [rest @ .., _] => rest,
    [] => MANAGED_JOBS,
};

/// One more column if one of the Jobs names another controller: a user who wonders why such a Job does not progress
/// should see which controller is responsible.
pub(super) const MANAGED_JOBS: &[Column] = &[
    NAME,
    Column::text("Status", "What has become of the Job so far.", status),
    Column::text("Completions", "How many Pods succeeded, of how many that have to.", completions),
    Column::text("Duration", "Time from the start of the Job to its end, or until now.", job_duration),
    AGE,
    Column::text("Containers", "The names of the template's containers.", |row| row.joined(CONTAINERS, "name")).wide(),
    Column::text("Images", "The images of the template's containers.", |row| row.joined(CONTAINERS, "image")).wide(),
    Column::text("Selector", "The labels by which the Job knows its Pods.", |row| row.selector("/spec/selector"))
        .wide(),
    Column::text("Managed-By", "The controller that serves the Job, if not the usual one.", |row| {
        row.text_or(MANAGED_BY, NONE).into()
    })
    .wide(),
];

const CONTAINERS: &str = "/spec/template/spec/containers";
const MANAGED_BY: &str = "/spec/managedBy";

/// MANAGED-1.
pub(super) fn is_managed_elsewhere(job: &Value) -> bool {
    let manager = job.pointer(MANAGED_BY).and_then(Value::as_str);
    manager.is_some_and(|manager| manager != RESERVED_MANAGER)
}

pub(super) static CRONJOBS: &[Column] = &[
    NAME,
    Column::text("Schedule", "When Jobs start, in cron notation.", |row| row.text("/spec/schedule").into()),
    Column::text("Timezone", "The time zone the schedule is meant in.", |row| {
        row.text_or("/spec/timeZone", NONE).into()
    }),
    Column::new("Suspend", "boolean", "Whether no further Jobs are started.", suspended),
    Column::integer("Active", "How many Jobs of it are running.", |row| row.count("/status/active").into()),
    Column::text("Last Schedule", "Time since the last Job was started.", last_schedule),
    AGE,
    Column::text("Containers", "The names of the Jobs' containers.", |row| row.joined(CRON_CONTAINERS, "name")).wide(),
    Column::text("Images", "The images of the Jobs' containers.", |row| row.joined(CRON_CONTAINERS, "image")).wide(),
    Column::text("Selector", "The labels by which the Jobs know their Pods, if given.", |row| {
        row.selector("/spec/jobTemplate/spec/selector")
    })
    .wide(),
];

const CRON_CONTAINERS: &str = "/spec/jobTemplate/spec/template/spec/containers";

/// PRINT-2: the first that applies. A finished Job shows its verdict even while it is being deleted.
fn status(row: &Row) -> Value {
    for end in ["Complete", "Failed"] {
        if row.condition_is_true(end) {
            return end.into();
        }
    }
    if row.is_being_deleted() {
        return "Terminating".into();
    }
    for stage in ["Suspended", "FailureTarget", "SuccessCriteriaMet"] {
        if row.condition_is_true(stage) {
            return stage.into();
        }
    }
    "Running".into()
}

/// PRINT-3. Without completions one success is enough, whatever the parallelism.
fn completions(row: &Row) -> Value {
    let succeeded = row.int("/status/succeeded");
    let parallelism = row.int("/spec/parallelism");
    if row.is_set("/spec/completions") {
        format!("{succeeded}/{}", row.int("/spec/completions")).into()
    } else if parallelism > 1 {
        format!("{succeeded}/1 of {parallelism}").into()
    } else {
        format!("{succeeded}/1").into()
    }
}

/// PRINT-4. A failed Job has no completionTime, and in Kubernetes its duration grows forever; here the time of its
/// Failed condition is used as the end (DEFECT-18).
fn job_duration(row: &Row) -> Value {
    let Some(start) = row.instant("/status/startTime") else {
        return "".into();
    };
    let failed = row.condition("Failed").filter(|condition| condition["status"] == "True");
    let failed_at = failed.and_then(|condition| condition["lastTransitionTime"].as_str());
    let failed_at = failed_at.and_then(|text| tally_core::time::Timestamp::parse(text).ok());
    let end = row.instant("/status/completionTime").or(failed_at).unwrap_or(row.now);
    duration::between(start, end).into()
}

fn suspended(row: &Row) -> Value {
    match row.object.pointer("/spec/suspend").and_then(Value::as_bool) {
        Some(true) => "True".into(),
        Some(false) => "False".into(),
        None => "<unset>".into(),
    }
}

fn last_schedule(row: &Row) -> Value {
    if row.is_set("/status/lastScheduleTime") { row.since("/status/lastScheduleTime").into() } else { NONE.into() }
}
