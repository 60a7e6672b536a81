//! CronJobs on the real registry, with Jobs whose Pods are hollow.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::support::Cluster;
use serde_json::{Value, json};
use tally_controllers::cronjob::CronJobs;
use tally_controllers::hollow::Hollow;
use tally_controllers::job::{Config, JobController};
use tally_core::time::Timestamp;
use tally_runtime::controller::{Controller, Input, Kind, Outbox, Reply, Stream, Verb};

fn crons() -> Box<dyn Controller> {
    Box::new(CronJobs::default())
}

/// The controllers that run Jobs.
fn others() -> Vec<Box<dyn Controller>> {
    let jobs = JobController::new(Config::default());
    vec![Box::new(jobs), Box::new(Hollow::new(1))]
}

fn cluster() -> Cluster {
    let mut controllers = others();
    controllers.push(crons());
    Cluster::new(controllers)
}

/// The cluster's time starts at 22:13:20.
fn cron(spec: &Value, run_for: &str) -> Value {
    let mut cron = json!({"metadata": {"name": "c"}, "spec": {"schedule": "* * * * *", "jobTemplate": {
        "metadata": {"labels": {"l": "m"}},
        "spec": {"template": {
            "metadata": {"annotations": {"hollow.tally.dev/run-for": run_for}},
            "spec": {
                "nodeName": "hollow-0", "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "c", "image": "i"}],
            },
        }},
    }}});
    cron["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    cron
}

fn stored(cluster: &Cluster) -> Value {
    cluster.get(Kind::CRON_JOB, "default", "c").unwrap()
}

fn created(cluster: &Cluster) -> usize {
    cluster
        .events
        .iter()
        .filter(|event| event.reason == "SuccessfulCreate" && event.about.kind == Kind::CRON_JOB)
        .count()
}

fn reasons(cluster: &Cluster) -> BTreeSet<&str> {
    let of_cron = cluster.events.iter().filter(|event| event.about.kind == Kind::CRON_JOB);
    of_cron.map(|event| event.reason.as_str()).collect()
}

#[test]
fn a_job_runs_every_minute_and_the_last_ones_are_kept() {
    let mut cluster = cluster();
    cluster.create(Kind::CRON_JOB, "default", &cron(&json!({}), "5s"));
    cluster.pass(39);
    assert!(cluster.list(Kind::JOB, "default").is_empty());
    cluster.pass(3);
    let jobs = cluster.list(Kind::JOB, "default");
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0]["metadata"]["name"], format!("c-{}", 1_700_000_040 / 60));
    assert_eq!(jobs[0]["metadata"]["labels"]["l"], "m");
    assert_eq!(
        jobs[0]["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"],
        "2023-11-14T22:14:00Z"
    );
    let status = &stored(&cluster)["status"];
    assert_eq!(status["active"][0]["uid"], jobs[0]["metadata"]["uid"]);
    assert_eq!(status["lastScheduleTime"], "2023-11-14T22:14:00Z");
    cluster.pass(10);
    let status = &stored(&cluster)["status"];
    assert_eq!(status.get("active"), None);
    assert_eq!(status["lastSuccessfulTime"], "2023-11-14T22:14:05Z");
    cluster.pass(600);
    assert_eq!(created(&cluster), 11);
    assert_eq!(cluster.list(Kind::JOB, "default").len(), 3, "successfulJobsHistoryLimit");
    assert_eq!(reasons(&cluster), BTreeSet::from(["SawCompletedJob", "SuccessfulCreate", "SuccessfulDelete"]));
    // While it is suspended, it finishes what runs and starts nothing.
    cluster.merge(Kind::CRON_JOB, "default", "c", &json!({"spec": {"suspend": true}}));
    cluster.pass(600);
    assert_eq!(created(&cluster), 11);
    cluster.merge(Kind::CRON_JOB, "default", "c", &json!({"spec": {"suspend": false}}));
    cluster.pass(1);
    assert_eq!(created(&cluster), 12, "the last missed time is due");
}

#[test]
fn policies_for_jobs_that_take_longer_than_a_minute() {
    for (policy, jobs_after_5_minutes, running, reason) in [
        ("Allow", 5, 2, "SawCompletedJob"),
        ("Forbid", 3, 1, "JobAlreadyActive"),
        ("Replace", 5, 1, "SuccessfulDelete"),
    ] {
        let mut cluster = cluster();
        cluster.create(Kind::CRON_JOB, "default", &cron(&json!({"concurrencyPolicy": policy}), "90s"));
        cluster.pass(40 + 4 * 60 + 5);
        assert_eq!(created(&cluster), jobs_after_5_minutes, "{policy}");
        let status = &stored(&cluster)["status"];
        assert_eq!(status["active"].as_array().map_or(0, Vec::len), running, "{policy}: {status}");
        assert!(reasons(&cluster).contains(reason), "{policy}: {:?}", reasons(&cluster));
        assert!(!reasons(&cluster).contains("UnexpectedJob"), "{policy}");
    }
}

#[test]
fn after_a_pause_the_last_missed_time_is_made_up_for_once() {
    for (deadline, at_once) in [(Value::Null, 1), (json!(10), 0), (json!(30), 1)] {
        let mut cluster = cluster();
        cluster.create(Kind::CRON_JOB, "default", &cron(&json!({"startingDeadlineSeconds": deadline}), "0s"));
        cluster.settle();
        cluster.stop();
        cluster.pass(40 + 3 * 3600 + 20);
        others().into_iter().for_each(|controller| cluster.start(controller));
        cluster.start(crons());
        cluster.settle();
        assert_eq!(created(&cluster), at_once, "{deadline}");
        let expected = if at_once == 1 { "SuccessfulCreate" } else { "MissSchedule" };
        assert!(reasons(&cluster).contains(expected), "{deadline}: {:?}", reasons(&cluster));
        assert_eq!(reasons(&cluster).contains("TooManyMissedTimes"), deadline.is_null());
        cluster.pass(60);
        assert_eq!(created(&cluster), at_once + 1);
    }
}

/// Records every Job that ever exists: its name and its UID.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<BTreeSet<(String, String)>>>);

impl Controller for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn streams(&self) -> Vec<Stream> {
        vec![Stream::metadata(Kind::JOB)]
    }

    fn handle(&mut self, input: Input, _: Timestamp, _: &mut Outbox) {
        if let Input::Apply(_, bytes) = input {
            let job: Value = serde_json::from_slice(&bytes).unwrap();
            let text = |field: &str| job["metadata"][field].as_str().unwrap().to_owned();
            self.0.lock().unwrap().insert((text("name"), text("uid")));
        }
    }
}

/// Requests of the controller are lost, it is killed, its view is old, and several instances of it run.
#[test]
fn every_time_has_one_job_whatever_happens() {
    let mut runs = 0;
    for seed in 0..6_u64 {
        let mut cluster = Cluster::new(others());
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut draw = move |limit: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % limit
        };
        let mut trouble = draw;
        cluster.intercept = Box::new(move |call| {
            let ours = matches!(call.kind, Kind::CRON_JOB) || call.kind == Kind::JOB && call.verb != Verb::MergePatch;
            (ours && trouble(4) == 0).then_some(Reply::Unknown)
        });
        let limits = json!({"successfulJobsHistoryLimit": 0, "failedJobsHistoryLimit": 0});
        cluster.create(Kind::CRON_JOB, "default", &cron(&limits, "3s"));
        let seen = Recorder::default();
        cluster.start(Box::new(seen.clone()));
        for _ in 0..120 {
            cluster.pass(i64::try_from(draw(8)).unwrap());
            if draw(6) == 0 {
                cluster.stop();
                others().into_iter().for_each(|controller| cluster.start(controller));
                cluster.start(Box::new(seen.clone()));
            }
            if draw(3) == 0 {
                cluster.start(crons());
            }
            cluster.held = if draw(2) == 0 { BTreeSet::from([Kind::CRON_JOB]) } else { BTreeSet::new() };
        }
        let seen = seen.0.lock().unwrap();
        let names: BTreeSet<_> = seen.iter().map(|(name, _)| name).collect();
        assert_eq!(seen.len(), names.len(), "seed {seed}: one Job of each name: {seen:?}");
        runs += names.len();
    }
    assert!(runs > 15, "something happens: {runs}");
}
