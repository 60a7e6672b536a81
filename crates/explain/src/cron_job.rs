//! What a CronJob waits for.

use serde_json::Value;
use tally_core::cron::{CronTimes, CronTiming, job_name};
use tally_core::schedule::Zone;
use tally_core::time::{Span, Timestamp};

use crate::cause::Cause;
use crate::controller;
use crate::evidence::{Evidence, Host, changed_at, list, text, time};
use crate::{Explanation, NextStep, Reason, State};

pub(crate) fn explain(evidence: &Evidence, now: Timestamp) -> Explanation {
    let cron = &evidence.object;
    let schedule = text(cron, "/spec/schedule");
    let time_zone = cron.pointer("/spec/timeZone").and_then(Value::as_str);
    let created_at = time(&cron["metadata"]["creationTimestamp"]).unwrap_or_default();
    let last_schedule_time = time(&cron["status"]["lastScheduleTime"]);
    let deadline_seconds = cron["spec"]["startingDeadlineSeconds"].as_i64();
    let starting_deadline = deadline_seconds.map(Span::from_seconds);
    let times = CronTimes { schedule, time_zone, created_at, last_schedule_time, starting_deadline };
    let active = list(cron, "/status/active");
    let last = last_schedule_time.map_or("never".to_owned(), |at| at.to_string());
    let zone = time_zone.unwrap_or("the time zone of the controller, UTC unless it is set");
    let summary = format!("Schedule {schedule:?} in {zone}; last scheduled: {last}; {} active.", active.len());
    let mut explanation = Explanation::of(evidence, "CronJob", State::Running, summary);
    let push = |explanation: &mut Explanation, cause, since| explanation.reasons.push(Reason { cause, since });
    let next_at = match times.timing(now) {
        CronTiming::Unreadable { message, .. } => {
            push(&mut explanation, Cause::InvalidSchedule { message }, Some(created_at));
            None
        }
        _ if cron["spec"]["suspend"] == true => {
            push(&mut explanation, Cause::Suspended { what: "CronJob" }, changed_at(cron));
            None
        }
        CronTiming::Wait { next: None } => {
            push(&mut explanation, Cause::NeverDue { schedule: schedule.to_owned() }, Some(created_at));
            None
        }
        CronTiming::Wait { next } => next,
        CronTiming::Missed { slot, next } => {
            let cause = Cause::MissedSchedule { slot, deadline_seconds: deadline_seconds.unwrap_or(0) };
            push(&mut explanation, cause, Some(slot));
            next
        }
        CronTiming::Due { slot, next, .. } => {
            due(evidence, slot, now, &mut explanation);
            next
        }
    };
    if let Some(at) = next_at {
        let local = Zone::of(schedule, time_zone).ok().map(|zone| zone.rfc3339(at));
        let local = local.filter(|local| *local != at.to_string()).map(|local| format!(" ({local})"));
        let what = format!("the next Job is due{}", local.unwrap_or_default());
        explanation.next.push(NextStep { at, what });
    }
    let started_late = matches!(explanation.waiting_for(), Some(Cause::MissedSchedule { .. }));
    if evidence.host == Host::Stopped && !started_late {
        explanation.reasons.insert(0, controller::stopped(evidence, "start Jobs"));
    }
    if !explanation.reasons.is_empty() {
        explanation.state = State::Waiting;
        for job in active {
            explanation.evidence.push(format!("active: Job {}", text(job, "/name")));
        }
        controller::lease_lines(evidence, &mut explanation.evidence);
        controller::event_lines(evidence, &mut explanation.evidence);
    }
    explanation
}

/// A Job should have started at `slot`.
fn due(evidence: &Evidence, slot: Timestamp, now: Timestamp, explanation: &mut Explanation) {
    let cron = &evidence.object;
    let active: Vec<String> = list(cron, "/status/active").iter().map(|job| text(job, "/name").to_owned()).collect();
    if cron["spec"]["concurrencyPolicy"] == "Forbid" && !active.is_empty() {
        let cause = Cause::ConcurrencyForbidden { slot, jobs: active };
        explanation.reasons.push(Reason { cause, since: Some(slot) });
        return;
    }
    if let Some(event) = evidence.last_event("CronJob", "FailedCreate", Some(slot)) {
        let message = event.message.trim_start_matches("Error creating job: ").to_owned();
        let cause = match message.contains("exceeded quota") {
            true => Cause::QuotaExceeded { message },
            false => Cause::CreationRefused { what: "Job", message },
        };
        explanation.reasons.push(Reason { cause, since: event.first_at.or(Some(event.last_at)) });
        return;
    }
    if evidence.namespace_terminates() {
        explanation.reasons.push(Reason { cause: Cause::NamespaceTerminating, since: None });
        return;
    }
    let work = format!("start Job {}", job_name(text(cron, "/metadata/name"), slot));
    let settled_at = changed_at(cron).unwrap_or(slot).max(slot);
    explanation.reasons.extend(controller::standing(evidence, &work, settled_at, now));
}
