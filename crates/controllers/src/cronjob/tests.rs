use serde_json::{Value, json};
use tally_core::time::{Span, Timestamp};

use super::*;
use tally_runtime::controller::Refusal;
use tally_runtime::testing::{Probe, done, refused};

const CREATED: &str = "2026-01-31T11:58:30Z";

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

fn cron(revision: u64, spec: Value, status: Value) -> Value {
    let mut cron = json!({
        "metadata": {
            "namespace": "ns", "name": "c", "uid": "u", "resourceVersion": revision.to_string(),
            "creationTimestamp": CREATED,
        },
        "spec": {
            "schedule": "* * * * *", "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
            "jobTemplate": {
                "metadata": {"labels": {"l": "m"}, "annotations": {"n": "o"}},
                "spec": {"template": {}, "unknown": 1.50},
            },
        },
        "status": status,
    });
    cron["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    cron
}

fn minutes(slot: &str) -> i64 {
    at(slot).seconds() / 60
}

fn job(slot: &str, condition: Option<&str>) -> Value {
    let name = format!("c-{}", minutes(slot));
    json!({
        "metadata": {
            "namespace": "ns", "name": name, "uid": format!("uid-{slot}"), "resourceVersion": "7",
            "annotations": {"batch.kubernetes.io/cronjob-scheduled-timestamp": slot},
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u", "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "status": {
            "startTime": slot, "completionTime": slot,
            "conditions": condition.map(|kind| json!([{"type": kind, "status": "True"}])),
        },
    })
}

fn active(slot: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "namespace": "ns", "name": format!("c-{}", minutes(slot)),
        "uid": format!("uid-{slot}"), "resourceVersion": "7",
    })
}

fn probe(now: &str, cron: Value, jobs: &[Value]) -> Probe<CronJobs> {
    let mut probe = Probe::new(CronJobs::default());
    probe.now = at(now);
    probe.lists(Kind::CRON_JOB, &[cron], 5);
    probe.lists(Kind::JOB, jobs, 5);
    probe
}

/// The result of `timing`, in short.
fn check(now: &str, spec: Value, last: Option<&str>, expected: &str) {
    let cron = cron(5, spec.clone(), json!({"lastScheduleTime": last}));
    let cron = CronJob::read(cron.to_string().as_bytes()).unwrap();
    let clock = |at: Option<Timestamp>| at.map_or("never".to_owned(), |at| at.to_string()[5..19].to_owned());
    let told = match plan::timing(&cron, at(now)) {
        CronTiming::Wait { next } => format!("wait for {}", clock(next)),
        CronTiming::Missed { slot, next } => format!("missed {}, then {}", clock(Some(slot)), clock(next)),
        CronTiming::Due { slot, next, many } => {
            format!("due {}, then {}{}", clock(Some(slot)), clock(next), if many { ", many" } else { "" })
        }
        CronTiming::Unreadable { reason, message } => format!("{reason}: {message}"),
    };
    assert_eq!(told, expected, "{spec} at {now} after {last:?}");
}

#[test]
fn what_is_due_depends_on_the_last_time_and_the_deadline() {
    check("2026-01-31T11:58:59.999Z", json!({}), None, "wait for 01-31T11:59:00");
    check("2026-01-31T11:59:00Z", json!({}), None, "due 01-31T11:59:00, then 01-31T12:00:00");
    check("2026-01-31T11:59:00Z", json!({}), Some("2026-01-31T11:59:00Z"), "wait for 01-31T12:00:00");
    // Of several missed times the last one counts.
    check("2026-01-31T12:30:30Z", json!({}), None, "due 01-31T12:30:00, then 01-31T12:31:00");
    let hourly = |more: Value| {
        let mut spec = json!({"schedule": "0 * * * *"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let deadline = hourly(json!({"startingDeadlineSeconds": 600}));
    check("2026-01-31T12:10:00.9Z", deadline.clone(), None, "due 01-31T12:00:00, then 01-31T13:00:00");
    check("2026-01-31T12:10:01Z", deadline.clone(), None, "missed 01-31T12:00:00, then 01-31T13:00:00");
    check("2026-01-31T12:10:01Z", deadline, Some("2026-01-31T12:00:00Z"), "wait for 01-31T13:00:00");
    check(
        "2026-01-31T12:00:00.9Z",
        hourly(json!({"startingDeadlineSeconds": 0})),
        None,
        "due 01-31T12:00:00, then 01-31T13:00:00",
    );
    // 100 missed times are not yet many, and those before the deadline do not count.
    check("2026-01-31T13:38:00Z", json!({}), None, "due 01-31T13:38:00, then 01-31T13:39:00");
    check("2026-01-31T13:39:00Z", json!({}), None, "due 01-31T13:39:00, then 01-31T13:40:00, many");
    check(
        "2026-01-31T13:39:00Z",
        json!({"startingDeadlineSeconds": 600}),
        None,
        "due 01-31T13:39:00, then 01-31T13:40:00",
    );
    check("2026-01-31T11:58:30Z", hourly(json!({"timeZone": "Asia/Kolkata"})), None, "wait for 01-31T12:30:00");
    check("2026-01-31T12:00:00Z", json!({"schedule": "0 0 31 2 *"}), None, "wait for never");
    // Counted from the creation, or from the last scheduled time.
    let every = json!({"schedule": "@every 1h30m"});
    check("2026-01-31T13:28:29Z", every.clone(), None, "wait for 01-31T13:28:30");
    check("2026-01-31T17:00:00Z", every.clone(), None, "due 01-31T16:28:30, then 01-31T17:58:30");
    check("2026-01-31T17:00:00Z", every, Some("2026-01-31T16:00:00Z"), "wait for 01-31T17:30:00");
    check(
        "2026-01-31T17:00:00Z",
        json!({"timeZone": "Mars/Base"}),
        None,
        "UnknownTimeZone: invalid timeZone: \"Mars/Base\": unknown time zone Mars/Base",
    );
    check(
        "2026-01-31T17:00:00Z",
        json!({"schedule": "61 * * * *"}),
        None,
        "UnparseableSchedule: unparseable schedule: \"61 * * * *\" : end of range (61) above maximum (59): 61",
    );
}

#[test]
fn a_scheduled_time_makes_one_job() {
    let mut probe = probe("2026-01-31T11:58:40Z", cron(5, json!({"timeZone": "Asia/Tokyo"}), json!({})), &[]);
    assert!(probe.asks().is_empty());
    assert_eq!(probe.wakes_in(), Some(20_000));
    probe.passes(20_000);
    assert_eq!(probe.asks(), ["get cronjobs ns/c"], "what the stream shows may be old");
    probe.answer(0, done(cron(5, json!({"timeZone": "Asia/Tokyo"}), json!({}))));
    assert_eq!(probe.asks(), ["create jobs ns/"]);
    let body = probe.body(0);
    assert_eq!(
        body["metadata"],
        json!({
            "name": format!("c-{}", minutes("2026-01-31T11:59:00Z")), "namespace": "ns", "labels": {"l": "m"},
            "annotations": {"n": "o", "batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-01-31T20:59:00+09:00"},
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u",
                "controller": true, "blockOwnerDeletion": true,
            }],
        })
    );
    assert_eq!(body["spec"], json!({"template": {}, "unknown": 1.50}), "as it was written");
    let slot = "2026-01-31T11:59:00Z";
    probe.answer(0, done(job(slot, None)));
    let name = format!("c-{}", minutes(slot));
    assert_eq!(probe.events(), [format!("c SuccessfulCreate: Created job {name}")]);
    assert_eq!(probe.asks(), ["merge cronjobs ns/c/status"]);
    assert_eq!(
        probe.body(0),
        json!({
            "metadata": {"uid": "u", "resourceVersion": "5"},
            "status": {"active": [active(slot)], "lastScheduleTime": slot, "lastSuccessfulTime": null},
        })
    );
    let started = json!({"active": [active(slot)], "lastScheduleTime": slot});
    probe.answer(0, done(cron(8, json!({"timeZone": "Asia/Tokyo"}), started)));
    assert!(probe.asks().is_empty());
    assert_eq!(probe.wakes_in(), Some(60_000));
}

/// A controller that observes a Job of a later time adds it to the status: after a crash, or beside another controller.
#[test]
fn a_job_that_was_not_recorded_is_recorded_instead_of_created_again() {
    let slot = "2026-01-31T11:59:00Z";
    for (condition, active_then, successful) in [
        (None, json!([active(slot)]), Value::Null),
        (Some("Complete"), Value::Null, json!(slot)),
        (Some("Failed"), Value::Null, Value::Null),
    ] {
        let mut probe = probe("2026-01-31T11:59:10Z", cron(5, json!({}), json!({})), &[job(slot, condition)]);
        assert_eq!(probe.asks(), ["merge cronjobs ns/c/status"]);
        let expected = json!({"active": active_then, "lastScheduleTime": slot, "lastSuccessfulTime": successful});
        assert_eq!(probe.body(0)["status"], expected, "{condition:?}");
        probe.answer(0, done(cron(9, json!({}), expected)));
        assert!(probe.events().is_empty(), "{condition:?}: it was not known as active");
    }
    // Beside another one that runs, and once, though it is active already.
    let (earlier, jobs) = ("2026-01-31T11:58:00Z", [job("2026-01-31T11:58:00Z", None), job(slot, None)]);
    for listed in [json!([active(earlier)]), json!([active(earlier), active(slot)])] {
        let status = json!({"active": listed, "lastScheduleTime": earlier});
        let mut probe = probe("2026-01-31T11:59:10Z", cron(5, json!({}), status), &jobs);
        assert_eq!(probe.asks(), ["merge cronjobs ns/c/status"]);
        assert_eq!(probe.body(0)["status"]["active"], json!([active(earlier), active(slot)]));
    }
    // A Job that only claims a time is not added.
    let mut claims = job(slot, None);
    claims["metadata"]["name"] = "c-later".into();
    let mut probe =
        probe("2026-01-31T11:58:59Z", cron(5, json!({"suspend": true}), json!({})), &[claims, job(slot, None)]);
    assert_eq!(probe.asks(), ["get cronjobs ns/c"], "it is not even that time");
}

/// CRON-1, CRON-2.
#[test]
fn a_child_is_controlled_by_a_cron_job_and_ends_by_a_condition_that_holds() {
    let read = |job: &Value| Child::read(job.to_string().as_bytes());
    let slot = "2026-01-31T11:59:00Z";
    for (field, value) in [("kind", "Job"), ("apiVersion", "example.com/v1")] {
        let mut job = job(slot, None);
        job["metadata"]["ownerReferences"][0][field] = value.into();
        assert!(read(&job).is_err(), "{value}");
    }
    for condition in ["Complete", "Failed"] {
        let mut job = job(slot, Some(condition));
        assert!(read(&job).is_ok_and(|child| child.finished.is_some()), "{condition}");
        job["status"]["conditions"][0]["status"] = "False".into();
        assert!(read(&job).is_ok_and(|child| child.finished.is_none()), "{condition}");
    }
}

#[test]
fn a_name_that_is_taken() {
    let slot = "2026-01-31T11:59:00Z";
    for (ours, recorded) in [(true, true), (false, false)] {
        let mut probe = probe(slot, cron(5, json!({}), json!({})), &[]);
        assert_eq!(probe.asks(), ["get cronjobs ns/c"]);
        probe.answer(0, done(cron(5, json!({}), json!({}))));
        assert_eq!(probe.asks(), ["create jobs ns/"]);
        probe.answer(0, refused(409, "AlreadyExists"));
        assert_eq!(probe.asks(), [format!("get jobs ns/c-{}", minutes(slot))]);
        let mut job = job(slot, None);
        if !ours {
            job["metadata"]["ownerReferences"][0]["uid"] = "another".into();
        }
        probe.answer(0, done(job));
        assert_eq!(probe.asks().len(), usize::from(recorded), "{ours}");
        assert_eq!(probe.events().len(), usize::from(!ours));
        if !ours {
            assert_eq!(probe.wakes_in(), Some(60_000), "the next time has another name");
            probe.passes(60_000);
            assert_eq!(probe.asks(), ["get cronjobs ns/c"], "it was read for another time");
        }
    }
}

#[test]
fn a_fresh_look_may_show_that_there_is_nothing_to_do() {
    let slot = "2026-01-31T11:59:00Z";
    for fresh in [
        cron(9, json!({}), json!({"lastScheduleTime": slot})),
        cron(9, json!({"suspend": true}), json!({})),
        cron(9, json!({"schedule": "0 0 1 1 *"}), json!({})),
    ] {
        let mut probe = probe(slot, cron(5, json!({}), json!({})), &[]);
        assert_eq!(probe.asks(), ["get cronjobs ns/c"]);
        probe.answer(0, done(fresh.clone()));
        assert!(probe.asks().is_empty(), "{fresh}");
    }
    let mut gone = probe(slot, cron(5, json!({}), json!({})), &[]);
    gone.asks();
    gone.answer(0, refused(404, "NotFound"));
    assert!(gone.asks().is_empty() && gone.out.wake_at.is_none());
    // A read from before the scheduled time does not count.
    let mut probe = probe(slot, cron(5, json!({}), json!({})), &[]);
    probe.asks();
    probe.answer(0, Reply::Unknown);
    assert_eq!(probe.wakes_in(), Some(250));
    probe.passes(250);
    assert_eq!(probe.asks(), ["get cronjobs ns/c"]);
}

#[test]
fn an_older_state_in_the_stream_replaces_nothing() {
    let slot = "2026-01-31T11:59:00Z";
    let mut probe = probe(slot, cron(5, json!({}), json!({})), &[]);
    assert_eq!(probe.asks(), ["get cronjobs ns/c"]);
    probe.answer(0, done(cron(9, json!({"suspend": true}), json!({}))));
    probe.sees(Kind::CRON_JOB, cron(7, json!({}), json!({})));
    assert!(probe.asks().is_empty(), "it is suspended");
    probe.sees(Kind::CRON_JOB, cron(11, json!({}), json!({})));
    assert_eq!(probe.asks(), ["get cronjobs ns/c"]);
}

/// CRON-2, CRON-8.
#[test]
fn running_jobs_forbid_or_are_replaced() {
    let (slot, now) = ("2026-01-31T11:59:00Z", "2026-01-31T12:00:00Z");
    let running = json!({"active": [active(slot)], "lastScheduleTime": slot});
    let spec = json!({"concurrencyPolicy": "Forbid"});
    let mut forbids = probe(now, cron(5, spec.clone(), running.clone()), &[job(slot, None)]);
    assert_eq!(forbids.asks(), ["get cronjobs ns/c"]);
    forbids.answer(0, done(cron(5, spec.clone(), running.clone())));
    assert!(forbids.asks().is_empty());
    let told =
        ["c JobAlreadyActive: Not starting job because prior execution is running and concurrency policy is Forbid"];
    assert_eq!(forbids.events(), told);
    forbids.sees(Kind::CRON_JOB, cron(5, spec.clone(), running.clone()));
    assert!(forbids.events().is_empty(), "told once");
    // Its end makes room, and the missed time is still due.
    forbids.passes(30_000);
    let mut ended = job(slot, Some("Failed"));
    ended["metadata"]["resourceVersion"] = "8".into();
    forbids.sees(Kind::JOB, ended);
    assert_eq!(forbids.asks(), ["merge cronjobs ns/c/status"]);
    forbids.answer(0, done(cron(9, spec, json!({"lastScheduleTime": slot}))));
    let name = format!("c-{}", minutes(slot));
    assert_eq!(forbids.events(), [format!("c SawCompletedJob: Saw completed job: {name}, condition: Failed")]);
    assert_eq!(forbids.asks(), ["create jobs ns/"]);
    assert_eq!(forbids.body(0)["metadata"]["name"], format!("c-{}", minutes(now)));

    let spec = json!({"concurrencyPolicy": "Replace"});
    let mut replaces = probe(now, cron(5, spec.clone(), running.clone()), &[job(slot, None)]);
    assert_eq!(replaces.asks(), ["get cronjobs ns/c"]);
    replaces.answer(0, done(cron(5, spec.clone(), running.clone())));
    assert_eq!(replaces.asks(), [format!("delete jobs ns/{name}")]);
    let body = replaces.body(0);
    assert_eq!(
        (&body["propagationPolicy"], &body["preconditions"]),
        (&json!("Background"), &json!({"uid": format!("uid-{slot}")}))
    );
    replaces.answer(0, Reply::DoneWithStatus);
    assert_eq!(replaces.events(), [format!("c SuccessfulDelete: Deleted job {name}")]);
    assert_eq!(replaces.asks(), ["create jobs ns/"]);
    replaces.answer(0, done(job(now, None)));
    assert_eq!(replaces.asks(), ["merge cronjobs ns/c/status"]);
    assert_eq!(replaces.body(0)["status"]["active"], json!([active(now)]), "one write for both");
}

/// CRON-8: a Job that is decided has not ended while its Pods terminate. With Forbid the next one waits for them.
#[test]
fn a_job_whose_pods_still_terminate_forbids_the_next() {
    let (slot, now) = ("2026-01-31T11:59:00Z", "2026-01-31T12:00:00Z");
    let running = json!({"active": [active(slot)], "lastScheduleTime": slot});
    let spec = json!({"concurrencyPolicy": "Forbid"});
    for (interim, terminal) in [("FailureTarget", "Failed"), ("SuccessCriteriaMet", "Complete")] {
        let mut ending = job(slot, Some(interim));
        ending["status"]["terminating"] = 1.into();
        ending["status"].as_object_mut().unwrap().remove("completionTime");
        let mut forbids = probe(now, cron(5, spec.clone(), running.clone()), &[ending.clone()]);
        assert_eq!(forbids.asks(), ["get cronjobs ns/c"], "{interim}");
        forbids.answer(0, done(cron(5, spec.clone(), running.clone())));
        assert!(forbids.asks().is_empty(), "{interim}: its Pods still terminate");
        assert_eq!(forbids.events().len(), 1, "{interim}: JobAlreadyActive");
        // One Pod after the other ends: nothing but the terminal condition makes room.
        forbids.passes(10_000);
        ending["status"]["terminating"] = 0.into();
        ending["metadata"]["resourceVersion"] = "8".into();
        forbids.sees(Kind::JOB, ending);
        assert!(forbids.asks().is_empty(), "{interim}: it has not ended");
        let mut ended = job(slot, Some(terminal));
        ended["metadata"]["resourceVersion"] = "9".into();
        forbids.sees(Kind::JOB, ended);
        assert_eq!(forbids.asks(), ["merge cronjobs ns/c/status"], "{interim}");
        let mut status = json!({"lastScheduleTime": slot});
        if terminal == "Complete" {
            status["lastSuccessfulTime"] = slot.into();
        }
        forbids.answer(0, done(cron(9, spec.clone(), status)));
        assert_eq!(forbids.asks(), ["create jobs ns/"], "{terminal}");
    }
}

#[test]
fn a_job_that_was_replaced_is_not_active_though_no_other_follows() {
    let (slot, now) = ("2026-01-31T11:59:00Z", "2026-01-31T12:00:00Z");
    let running = json!({"active": [active(slot)], "lastScheduleTime": slot});
    let spec = json!({"concurrencyPolicy": "Replace"});
    for change in [json!({"suspend": true}), json!({"concurrencyPolicy": "Forbid"}), json!({"schedule": "0 0 1 1 *"})] {
        let mut probe = probe(now, cron(5, spec.clone(), running.clone()), &[job(slot, None)]);
        assert_eq!(probe.asks(), ["get cronjobs ns/c"]);
        probe.answer(0, done(cron(5, spec.clone(), running.clone())));
        assert_eq!(probe.asks(), [format!("delete jobs ns/c-{}", minutes(slot))]);
        probe.sees(Kind::CRON_JOB, cron(8, change.clone(), running.clone()));
        probe.answer(0, Reply::DoneWithStatus);
        assert_eq!(probe.asks(), ["merge cronjobs ns/c/status"], "{change}");
        assert_eq!(probe.body(0)["status"]["active"], Value::Null, "{change}");
    }
    // The next Job cannot be created: then the status does not wait for it.
    let mut probe = probe(now, cron(5, spec.clone(), running.clone()), &[job(slot, None)]);
    assert_eq!(probe.asks().len(), 1);
    probe.answer(0, done(cron(5, spec, running)));
    assert_eq!(probe.asks().len(), 1);
    probe.answer(0, Reply::DoneWithStatus);
    assert_eq!(probe.asks(), ["create jobs ns/"]);
    probe.answer(0, refused(403, "Forbidden"));
    probe.passes(1000);
    assert_eq!(probe.asks(), ["merge cronjobs ns/c/status"]);
}

#[test]
fn a_job_that_went_before_its_creation_was_answered_was_started_and_is_not_active() {
    let now = "2026-01-31T11:59:00Z";
    let mut probe = probe(now, cron(5, json!({}), json!({})), &[]);
    assert_eq!(probe.asks(), ["get cronjobs ns/c"]);
    probe.answer(0, done(cron(5, json!({}), json!({}))));
    assert_eq!(probe.asks(), ["create jobs ns/"]);
    probe.sees(Kind::JOB, job(now, None));
    let mut end = job(now, None);
    end["metadata"]["resourceVersion"] = "8".into();
    probe.gone(Kind::JOB, end);
    probe.answer(0, done(job(now, None)));
    assert_eq!(probe.asks(), ["merge cronjobs ns/c/status"]);
    let status = &probe.body(0)["status"];
    assert_eq!((&status["lastScheduleTime"], &status["active"]), (&json!(now), &Value::Null));
    probe.answer(0, done(cron(9, json!({}), json!({"lastScheduleTime": now}))));
    assert_eq!(probe.asks(), [""; 0], "nor is it started again");
}

/// CRON-7.
#[test]
fn old_jobs_go_when_they_are_recorded() {
    let last = "2026-01-31T11:59:00Z";
    let jobs: Vec<_> = (54..=59)
        .map(|minute| {
            job(&format!("2026-01-31T11:{minute}:00Z"), Some(if minute % 2 == 0 { "Complete" } else { "Failed" }))
        })
        .collect();
    let spec = json!({"successfulJobsHistoryLimit": 2, "failedJobsHistoryLimit": 1});
    let status = json!({"lastScheduleTime": last, "lastSuccessfulTime": last});
    let mut probe = probe("2026-01-31T11:59:30Z", cron(5, spec, status), &jobs);
    let mut deleted = Vec::new();
    loop {
        let asked = probe.asks();
        let Some(line) = asked.first() else { break };
        deleted.push(line.clone());
        probe.answer(0, Reply::DoneWithStatus);
    }
    let name = |minute: i64| format!("delete jobs ns/c-{}", minutes("2026-01-31T11:00:00Z") + minute);
    assert_eq!(deleted, [name(54), name(55), name(57)]);
    assert_eq!(probe.events().len(), 3);
    // The stream confirms the deletions.
    for gone in [0, 1, 3] {
        probe.gone(Kind::JOB, jobs[gone].clone());
    }
    assert!(probe.asks().is_empty());
    assert!(probe.controller.crons["u"].memory.deleted.is_empty());
}

/// CRON-5, CRON-6.
#[test]
fn missing_and_unexpected_jobs_are_told() {
    let last = "2026-01-31T11:59:00Z";
    let status = json!({"active": [active(last)], "lastScheduleTime": last});
    let mut missing = probe("2026-01-31T11:59:30Z", cron(5, json!({}), status), &[]);
    let name = format!("c-{}", minutes(last));
    assert_eq!(missing.asks(), [format!("get jobs ns/{name}")]);
    missing.answer(0, refused(404, "NotFound"));
    assert_eq!(missing.asks(), ["merge cronjobs ns/c/status"]);
    assert!(missing.events().is_empty(), "not before it is written");
    missing.answer(0, done(cron(9, json!({}), json!({"lastScheduleTime": last}))));
    assert_eq!(missing.events(), [format!("c MissingJob: Active job went missing: {name}")]);

    let mut manual = job(last, None);
    manual["metadata"]["name"] = "by-hand".into();
    let status = json!({"lastScheduleTime": last});
    let mut unexpected = probe("2026-01-31T11:59:30Z", cron(5, json!({}), status.clone()), &[manual.clone()]);
    assert_eq!(unexpected.asks(), ["get cronjobs ns/c"]);
    unexpected.answer(0, done(cron(5, json!({}), status)));
    let told = "c UnexpectedJob: Saw a job that the controller did not create or forgot: by-hand";
    assert_eq!(unexpected.events(), [told]);
    manual["metadata"]["resourceVersion"] = "8".into();
    unexpected.sees(Kind::JOB, manual);
    assert!(unexpected.events().is_empty() && unexpected.asks().is_empty(), "told once");
}

/// CRON-6: only a read that shows that the Job is not there, or is another, ends it.
#[test]
fn an_active_job_that_no_stream_has_shown_is_read() {
    let last = "2026-01-31T11:59:00Z";
    let status = || json!({"active": [active(last)], "lastScheduleTime": last});
    let changed = |pointer: &str| {
        let mut job = job(last, None);
        *job.pointer_mut(pointer).unwrap() = "another".into();
        job
    };
    for (reply, asks, wakes_in) in [
        (done(job(last, None)), None, 30_000),
        (done(changed("/metadata/uid")), Some("merge cronjobs ns/c/status"), 0),
        (done(changed("/metadata/ownerReferences/0/uid")), Some("merge cronjobs ns/c/status"), 0),
        (refused(503, "ServiceUnavailable"), None, 250),
        (Reply::Unknown, None, 250),
    ] {
        let mut probe = probe("2026-01-31T11:59:30Z", cron(5, json!({}), status()), &[]);
        assert_eq!(probe.asks(), [format!("get jobs ns/c-{}", minutes(last))]);
        probe.answer(0, reply.clone());
        assert_eq!(probe.asks().first().map(String::as_str), asks, "{reply:?}");
        if asks.is_none() {
            assert_eq!(probe.wakes_in(), Some(wakes_in), "{reply:?}");
        }
    }
    // The stream was faster than the response, and there is nothing to try again.
    let mut probe = probe("2026-01-31T11:59:30Z", cron(5, json!({}), status()), &[]);
    assert_eq!(probe.asks().len(), 1);
    probe.sees(Kind::JOB, job(last, None));
    probe.answer(0, done(job(last, None)));
    assert_eq!((probe.asks().len(), probe.wakes_in()), (0, Some(30_000)));
}

#[test]
fn a_deletion_that_is_refused_is_told_and_tried_again() {
    let (slot, now) = ("2026-01-31T11:59:00Z", "2026-01-31T12:00:00Z");
    let running = || json!({"active": [active(slot)], "lastScheduleTime": slot});
    let replaces = || cron(5, json!({"concurrencyPolicy": "Replace"}), running());
    let recorded = json!({"lastScheduleTime": slot, "lastSuccessfulTime": slot});
    let prunes = || cron(5, json!({"successfulJobsHistoryLimit": 0}), recorded.clone());
    for (cron, job, reads_first) in
        [(replaces(), job(slot, None), true), (prunes(), job(slot, Some("Complete")), false)]
    {
        let mut probe = probe(now, cron.clone(), &[job]);
        if reads_first {
            assert_eq!(probe.asks(), ["get cronjobs ns/c"]);
            probe.answer(0, done(cron));
        }
        assert_eq!(probe.asks(), [format!("delete jobs ns/c-{}", minutes(slot))]);
        probe.answer(0, refused(403, "Forbidden"));
        assert_eq!(probe.events(), ["c FailedDelete: Deleted job: "]);
        assert_eq!((probe.asks().len(), probe.wakes_in()), (0, Some(250)));
        probe.passes(250);
        assert_eq!(probe.asks().len(), 1, "tried again");
    }
}

#[test]
fn a_namespace_on_its_way_out_refuses_in_silence() {
    let slot = "2026-01-31T11:59:00Z";
    for (cause, told) in [("NamespaceTerminating", 0), ("Other", 1)] {
        let mut probe = probe(slot, cron(5, json!({}), json!({})), &[]);
        assert_eq!(probe.asks(), ["get cronjobs ns/c"]);
        probe.answer(0, done(cron(5, json!({}), json!({}))));
        assert_eq!(probe.asks(), ["create jobs ns/"]);
        let causes = vec![(String::new(), cause.to_owned())];
        probe.answer(0, Reply::Refused(Refusal { code: 403, causes, ..Refusal::default() }));
        assert_eq!(probe.events().len(), told, "{cause}");
    }
}

#[test]
fn requests_in_flight_are_bounded() {
    let crons: Vec<_> = (0..IN_FLIGHT + 2)
        .map(|number| {
            let mut cron = cron(5, json!({}), json!({}));
            (cron["metadata"]["name"], cron["metadata"]["uid"]) =
                (format!("c{number}").into(), format!("u{number}").into());
            cron
        })
        .collect();
    let mut probe = Probe::new(CronJobs::default());
    probe.now = at("2026-01-31T11:59:00Z");
    probe.lists(Kind::CRON_JOB, &crons, 5);
    probe.lists(Kind::JOB, &[], 5);
    assert_eq!((probe.asks().len(), probe.wakes_in()), (IN_FLIGHT, None), "the others wait for a response");
    probe.answer(0, refused(404, "NotFound"));
    assert_eq!(probe.asks().len(), 1);
}

#[test]
fn what_cannot_be_read_or_was_missed_is_told_once() {
    for (spec, told) in [
        (
            json!({"schedule": "x"}),
            "c UnparseableSchedule: unparseable schedule: \"x\" : expected exactly 5 fields, found 1: [x]",
        ),
        (
            json!({"schedule": "0 0 * * *", "startingDeadlineSeconds": 60}),
            "c MissSchedule: Missed scheduled time to start a job: Sun, 01 Feb 2026 00:00:00 +0000",
        ),
    ] {
        let mut probe = probe("2026-02-01T00:30:00Z", cron(5, spec.clone(), json!({})), &[]);
        assert_eq!(probe.events(), [told]);
        probe.sees(Kind::CRON_JOB, cron(5, spec, json!({})));
        assert!(probe.events().is_empty() && probe.asks().is_empty());
    }
}

#[test]
fn a_failed_creation_is_told_and_tried_again() {
    let slot = "2026-01-31T11:59:00Z";
    let mut probe = probe(slot, cron(5, json!({}), json!({})), &[]);
    probe.asks();
    probe.answer(0, done(cron(5, json!({}), json!({}))));
    assert_eq!(probe.asks(), ["create jobs ns/"]);
    probe.answer(0, refused(403, "Forbidden"));
    assert_eq!(probe.events(), ["c FailedCreate: Error creating job: "]);
    probe.passes(250);
    assert_eq!(probe.asks(), ["get cronjobs ns/c"]);
    probe.answer(0, done(cron(5, json!({}), json!({}))));
    assert_eq!(probe.asks(), ["create jobs ns/"]);
    probe.answer(0, Reply::Unknown);
    probe.passes(60_000);
    assert_eq!(probe.asks(), ["get cronjobs ns/c"], "by now for the next time");
}

#[test]
fn a_clock_that_was_ahead_makes_no_job_later() {
    const DAY: i64 = 86_400_000;
    let nothing: [&str; 0] = [];
    let each_hour = || cron(5, json!({"schedule": "0 * * * *"}), json!({"lastScheduleTime": "2026-01-31T12:00:00Z"}));
    let mut probe = probe("2026-01-31T12:30:00Z", each_hour(), &[]);
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(1_800_000)));
    probe.passes(DAY);
    assert_eq!(probe.asks(), ["get cronjobs ns/c"]);
    probe.answer(0, Reply::Unknown);
    probe.clock_is_set_back(DAY);
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(1_800_000)));
    probe.passes(1_799_999);
    assert_eq!(probe.asks(), nothing);
    probe.passes(1);
    assert_eq!(probe.asks(), ["get cronjobs ns/c"]);
}

/// Otherwise another controller may have started the Job, and it may be gone again.
#[test]
fn a_read_by_a_clock_that_was_ahead_is_no_read_of_a_later_time() {
    const DAY: i64 = 86_400_000;
    let hourly = || cron(5, json!({"schedule": "0 * * * *"}), json!({"lastScheduleTime": "2026-01-31T12:00:00Z"}));
    let mut probe = probe("2026-01-31T12:30:00Z", hourly(), &[]);
    probe.passes(DAY);
    assert_eq!(probe.asks(), ["get cronjobs ns/c"]);
    probe.answer(0, done(hourly()));
    assert_eq!(probe.asks(), ["create jobs ns/"]);
    probe.answer(0, refused(409, "AlreadyExists"));
    assert_eq!(probe.asks().len(), 1, "whose name is it?");
    let mut taken = job("2026-02-01T12:00:00Z", None);
    taken["metadata"]["ownerReferences"] = json!([]);
    probe.answer(0, done(taken));
    probe.clock_is_set_back(DAY);
    probe.passes(1_800_000);
    assert_eq!(probe.asks(), ["get cronjobs ns/c"]);
}

#[test]
fn times_as_mail_has_them() {
    for (at_text, written) in [
        ("1970-01-01T00:00:00Z", "Thu, 01 Jan 1970 00:00:00 +0000"),
        ("2024-02-29T23:59:59Z", "Thu, 29 Feb 2024 23:59:59 +0000"),
        ("1969-12-31T12:00:00Z", "Wed, 31 Dec 1969 12:00:00 +0000"),
    ] {
        assert_eq!(bodies::rfc1123(at(at_text)), written);
    }
    assert_eq!(plan::job_name("c", Timestamp::from_seconds(0) - Span::from_seconds(1)), "c--1");
}

/// The stream breaks while a Job is being created, and the Job is deleted before the new list is made: the response
/// arrives in the middle of that list. If it were added, the Job would be active forever, and with Forbid no other
/// would start.
#[test]
fn a_job_in_an_answer_in_the_middle_of_a_list_is_not_there_if_the_list_lacks_it() {
    let slot = "2026-01-31T11:59:00Z";
    // A Job that is newer than the list exists although the list lacks it.
    for (listed_at, is_there) in [(9, false), (6, true)] {
        let forbid = json!({"concurrencyPolicy": "Forbid"});
        let mut probe = probe(slot, cron(5, forbid.clone(), json!({})), &[]);
        probe.asks();
        probe.answer(0, done(cron(5, forbid.clone(), json!({}))));
        assert_eq!(probe.asks(), ["create jobs ns/"]);
        probe.input(Input::Init(Kind::JOB));
        probe.answer(0, done(job(slot, None)));
        assert!(probe.asks().is_empty(), "nothing is decided in the middle of a list");
        probe.input(Input::InitDone(Kind::JOB, Revision(listed_at)));
        assert_eq!(probe.asks(), ["merge cronjobs ns/c/status"]);
        let expected = if is_there { json!([active(slot)]) } else { Value::Null };
        assert_eq!(probe.body(0)["status"]["active"], expected, "the list is as of {listed_at}");
        assert_eq!(probe.body(0)["status"]["lastScheduleTime"], slot, "and the time is not used again");
    }
}

/// The CronJob is deleted while its status is being written, and the response arrives in the middle of the list that
/// lacks it.
#[test]
fn a_cron_job_in_an_answer_in_the_middle_of_a_list_is_gone_if_the_list_lacks_it() {
    let slot = "2026-01-31T11:59:00Z";
    let mut probe = probe("2026-01-31T11:59:10Z", cron(5, json!({}), json!({})), &[job(slot, None)]);
    assert_eq!(probe.asks(), ["merge cronjobs ns/c/status"]);
    probe.input(Input::Init(Kind::CRON_JOB));
    probe.answer(0, done(cron(8, json!({}), json!({"active": [active(slot)], "lastScheduleTime": slot}))));
    probe.input(Input::InitDone(Kind::CRON_JOB, Revision(9)));
    probe.gone(Kind::JOB, job(slot, None));
    assert!(probe.asks().is_empty() && probe.wakes_in().is_none(), "there is no such CronJob");
}

/// A stream does not repeat what it has shown. A controller with an old view must find out by itself.
#[test]
fn a_cron_job_whose_status_cannot_be_written_is_read_afresh() {
    let slot = "2026-01-31T11:59:00Z";
    let mut namesake = cron(9, json!({}), json!({}));
    namesake["metadata"]["uid"] = "v".into();
    for (write, read, is_there) in [
        (refused(404, "NotFound"), refused(404, "NotFound"), false),
        (refused(409, "Conflict"), done(namesake), false),
        (refused(409, "Conflict"), done(cron(8, json!({}), json!({}))), true),
        (Reply::Unknown, done(cron(8, json!({}), json!({}))), true),
    ] {
        let mut probe = probe("2026-01-31T11:59:10Z", cron(5, json!({}), json!({})), &[job(slot, None)]);
        assert_eq!(probe.asks(), ["merge cronjobs ns/c/status"]);
        probe.answer(0, write);
        probe.passes(250);
        assert_eq!(probe.asks(), ["get cronjobs ns/c"]);
        probe.answer(0, read);
        if is_there {
            assert_eq!(probe.asks(), ["merge cronjobs ns/c/status"]);
            assert_eq!(probe.body(0)["metadata"]["resourceVersion"], "8");
        } else {
            assert!(probe.asks().is_empty() && probe.wakes_in().is_none(), "there is no such CronJob");
        }
    }
}
