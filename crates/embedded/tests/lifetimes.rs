//! How long finished Jobs and Pods stay, on the real registry: early deletion, TTLs, and Pods of dead nodes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::Cluster;
use serde_json::{Value, json};
use tally_controllers::hollow::Hollow;
use tally_controllers::job::{Config, JobController};
use tally_controllers::ttl::TtlController;
use tally_core::time::Timestamp;
use tally_runtime::controller::{Controller, Input, Kind, Outbox, Stream};

fn jobs() -> Box<dyn Controller> {
    Box::new(JobController::new(Config::default()))
}

fn hollow() -> Box<dyn Controller> {
    Box::new(Hollow::new(2))
}

fn ttl(default_ttl: Option<i32>) -> Box<dyn Controller> {
    Box::new(TtlController::new(default_ttl))
}

fn job(name: &str, annotations: &Value, spec: Value, pod_annotations: &Value) -> Value {
    let mut job = json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec});
    job["spec"]["template"] = json!({
        "metadata": {"annotations": pod_annotations},
        "spec": {"nodeName": "hollow-0", "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    });
    job
}

/// Follows the Pods, and notes how many there were at most.
struct Census {
    pods: BTreeSet<String>,
    most: Arc<AtomicUsize>,
}

impl Controller for Census {
    fn name(&self) -> &'static str {
        "census"
    }

    fn streams(&self) -> Vec<Stream> {
        vec![Stream::of(Kind::POD)]
    }

    fn handle(&mut self, input: Input, _: Timestamp, _: &mut Outbox) {
        let name = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap()["metadata"]["uid"].to_string();
        match input {
            Input::Apply(Kind::POD, bytes) => drop(self.pods.insert(name(&bytes))),
            Input::Delete(Kind::POD, bytes) => drop(self.pods.remove(&name(&bytes))),
            _ => {}
        }
        self.most.fetch_max(self.pods.len(), Ordering::Relaxed);
    }
}

/// TTL-14 to TTL-17. `tally bench jobs deleted-200000` measures it with 200,000.
#[test]
fn a_large_job_has_few_pods_if_those_that_are_counted_go() {
    for (indexed, which, completions) in [("NonIndexed", "all", 5_000), ("Indexed", "succeeded", 1_000)] {
        let most = Arc::new(AtomicUsize::new(0));
        let census = Box::new(Census { pods: BTreeSet::new(), most: most.clone() });
        let mut cluster = Cluster::new(vec![hollow(), jobs(), census]);
        let spec = json!({"completions": completions, "parallelism": 500, "completionMode": indexed});
        let early = json!({"tally.dev/delete-finished-pods": which});
        cluster.create(Kind::JOB, "default", &job("j", &early, spec, &json!({})));
        cluster.pass(100);
        let done = cluster.get(Kind::JOB, "default", "j").unwrap();
        assert_eq!(done["status"]["succeeded"], completions, "{}", done["status"]);
        assert_eq!(done["status"]["conditions"][1]["type"], "Complete", "{}", done["status"]);
        let most = most.load(Ordering::Relaxed);
        assert!(most <= 2_000, "{indexed}: {most} Pods at a time");
        assert!(cluster.list(Kind::POD, "default").len() <= 1_000);
    }
}

/// TTL-17: failed Pods go as well, but those of the current back-off stay.
#[test]
fn failed_pods_go_once_a_later_one_has_succeeded() {
    let mut cluster = Cluster::new(vec![jobs()]);
    let early = json!({"tally.dev/delete-finished-pods": "all", "tally.dev/backoff-base": "1s"});
    let spec = json!({"completions": 3, "parallelism": 1, "backoffLimit": 6});
    cluster.create(Kind::JOB, "default", &job("j", &early, spec, &json!({})));
    cluster.settle();
    // The phases of all Pods, after the one that has not ended has ended like this.
    let mut end = |phase: &str| -> Vec<String> {
        let pods = cluster.list(Kind::POD, "default");
        let runs = pods.iter().find(|pod| pod["status"]["phase"] == "Pending").expect("a Pod that has not ended");
        let name = runs["metadata"]["name"].as_str().unwrap();
        let at = cluster.now().to_string();
        let code = i32::from(phase == "Failed");
        let state = json!({"terminated": {"exitCode": code, "startedAt": at, "finishedAt": at}});
        let container =
            json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state});
        let status = json!({"phase": phase, "containerStatuses": [container]});
        cluster.merge_status(Kind::POD, "default", name, &json!({"status": status}));
        cluster.pass(10);
        let pods = cluster.list(Kind::POD, "default");
        let mut phases: Vec<String> =
            pods.iter().map(|pod| pod["status"]["phase"].as_str().unwrap().to_owned()).collect();
        phases.sort();
        phases
    };
    assert_eq!(end("Failed"), ["Failed", "Pending"], "it is counted, and delays the next");
    assert_eq!(end("Failed"), ["Failed", "Failed", "Pending"], "there were two in a row");
    assert_eq!(end("Succeeded"), ["Pending", "Succeeded"], "the failures are over");
    assert_eq!(end("Succeeded"), ["Pending", "Succeeded"], "only the last success stays");
    assert_eq!(end("Failed"), ["Failed", "Pending", "Succeeded"]);
    end("Succeeded");
    let status = &cluster.get(Kind::JOB, "default", "j").unwrap()["status"];
    assert_eq!((&status["succeeded"], &status["failed"]), (&json!(3), &json!(3)), "{status}");
}

/// TTL-21, TTL-22.
#[test]
fn a_ttl_by_outcome_wins_and_defaults_come_last() {
    let mut cluster = Cluster::new(vec![hollow(), jobs(), ttl(Some(400))]);
    let fails = json!({"hollow.tally.dev/exit-code": "1"});
    let by_outcome = json!({"tally.dev/ttl-seconds-after-complete": "50", "tally.dev/ttl-seconds-after-failed": "150"});
    let spec = |ttl: Option<i32>| json!({"backoffLimit": 0, "ttlSecondsAfterFinished": ttl});
    let rows = [
        ("complete", &by_outcome, Some(100), &json!({}), 50),
        ("field", &json!({}), Some(100), &json!({}), 100),
        ("failed", &by_outcome, Some(100), &fails, 150),
        ("default", &json!({}), None, &json!({}), 400),
    ];
    for (name, annotations, ttl, pods, _) in &rows {
        cluster.create(Kind::JOB, "default", &job(name, annotations, spec(*ttl), pods));
    }
    cluster.settle();
    let begin = cluster.now();
    let elapsed = |cluster: &Cluster| (cluster.now() - begin).millis() / 1_000;
    while elapsed(&cluster) < 405 {
        for (name, .., after) in &rows {
            let there = cluster
                .get(Kind::JOB, "default", name)
                .is_some_and(|job| job["metadata"]["deletionTimestamp"].is_null());
            let at = elapsed(&cluster);
            let due = i64::from(*after);
            assert!(there || at >= due, "{name} went after {at} s");
            assert!(!there || at <= due + 2, "{name} is there after {at} s");
        }
        cluster.pass(1);
    }
    // TTL-22: a default of the namespace wins over the flag, also for Jobs that have finished, and can be withdrawn.
    cluster.create(Kind::JOB, "default", &job("late", &json!({}), spec(None), &json!({})));
    cluster.pass(10);
    let annotate = |cluster: &mut Cluster, value: Value| {
        let patch = json!({"metadata": {"annotations": {"tally.dev/default-ttl-seconds-after-finished": value}}});
        cluster.merge(Kind::NAMESPACE, "", "default", &patch);
        cluster.settle();
    };
    annotate(&mut cluster, "1000".into());
    cluster.pass(500);
    assert!(cluster.get(Kind::JOB, "default", "late").is_some(), "the namespace says 1000 s");
    annotate(&mut cluster, "20".into());
    cluster.pass(1);
    let gone = cluster.get(Kind::JOB, "default", "late");
    assert!(gone.is_none_or(|job| !job["metadata"]["deletionTimestamp"].is_null()), "20 s have passed");
}

/// TTL-18, TTL-19.
#[test]
fn a_pod_expires_once_its_job_does_not_need_it() {
    let mut cluster = Cluster::new(vec![hollow(), jobs(), ttl(None)]);
    let expires = json!({"tally.dev/ttl-seconds-after-finished": "5"});
    let mut alone = Cluster::pod("alone", Some("hollow-1"));
    alone["metadata"]["annotations"] = expires.clone();
    cluster.create(Kind::POD, "default", &alone);
    cluster.create(Kind::POD, "default", &Cluster::pod("stays", Some("hollow-1")));
    let mut fails = expires.clone();
    fails["hollow.tally.dev/exit-code"] = "1".into();
    let waits = json!({"tally.dev/backoff-base": "1h", "tally.dev/backoff-max": "1h"});
    cluster.create(Kind::JOB, "default", &job("fails", &waits, json!({"backoffLimit": 3}), &fails));
    let spec = json!({"completions": 1, "parallelism": 1});
    cluster.create(Kind::JOB, "default", &job("done", &json!({}), spec, &expires));
    cluster.settle();
    let names = |cluster: &Cluster| -> Vec<String> {
        let pods = cluster.list(Kind::POD, "default");
        pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap()[..4].to_owned()).collect()
    };
    assert_eq!(names(&cluster), ["alon", "done", "fail", "stay"]);
    cluster.pass(3);
    assert_eq!(names(&cluster), ["alon", "done", "fail", "stay"]);
    cluster.pass(4);
    assert_eq!(names(&cluster), ["fail", "stay"], "the Job that runs derives its back-off from the failure");
    cluster.merge(Kind::JOB, "default", "fails", &json!({"spec": {"activeDeadlineSeconds": 1}}));
    cluster.settle();
    cluster.pass(2);
    assert_eq!(names(&cluster), ["stay"], "its Job has ended");
}

/// REPL-8, REPL-9, REPL-10.
#[test]
fn a_pod_on_a_dead_node_is_fenced_and_replaced() {
    let plain = json!({"completions": 1, "podReplacementPolicy": "Failed", "backoffLimit": 3});
    let mut indexed = plain.clone();
    (indexed["completionMode"], indexed["backoffLimitPerIndex"]) = (json!("Indexed"), json!(1));
    for spec in [plain, indexed] {
        dead_node(spec);
    }
}

fn dead_node(spec: Value) {
    // No node confirms anything: the test reports for it.
    let mut cluster = Cluster::new(vec![hollow()]);
    cluster.stop();
    cluster.start(jobs());
    let wait = json!({"tally.dev/replace-terminating-after": "60s"});
    let carried = if spec["completionMode"] == "Indexed" { json!("1") } else { Value::Null };
    cluster.create(Kind::JOB, "default", &job("j", &wait, spec, &json!({})));
    cluster.settle();
    let pods = |cluster: &Cluster| -> Vec<String> {
        let pods = cluster.list(Kind::POD, "default");
        pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let status = |cluster: &Cluster| cluster.get(Kind::JOB, "default", "j").unwrap()["status"].clone();
    let first = pods(&cluster);
    assert_eq!(first.len(), 1);
    cluster.merge_status(Kind::POD, "default", &first[0], &json!({"status": {"phase": "Running"}}));
    cluster.delete(Kind::POD, "default", &first[0], &json!({"gracePeriodSeconds": 5}));
    cluster.settle();
    cluster.pass(100);
    assert_eq!(pods(&cluster), first, "its node is ready: it will end the Pod");
    assert_eq!(status(&cluster)["terminating"], 1);
    let since = cluster.now().to_string();
    let unknown = json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": since}]);
    cluster.merge_status(Kind::NODE, "", "hollow-0", &json!({"status": {"conditions": unknown}}));
    cluster.pass(58);
    assert_eq!(pods(&cluster), first, "not dead for long enough");
    for _ in 0..70 {
        cluster.pass(1);
    }
    assert_eq!(pods(&cluster).len(), 2, "replaced: {}", status(&cluster));
    let second = pods(&cluster).into_iter().find(|name| *name != first[0]).unwrap();
    let annotations = cluster.get(Kind::POD, "default", &second).unwrap()["metadata"]["annotations"].clone();
    assert_eq!(annotations["batch.kubernetes.io/job-index-failure-count"], carried);
    let counted = status(&cluster);
    assert_eq!((&counted["failed"], &counted["active"]), (&json!(1), &json!(1)));
    assert_eq!(counted["terminating"], 1, "its process may still run");
    // It comes back and succeeds: nothing changes.
    cluster.merge_status(Kind::POD, "default", &first[0], &json!({"status": {"phase": "Succeeded"}}));
    cluster.pass(2);
    let after = status(&cluster);
    assert_eq!((&after["failed"], after.get("succeeded"), &after["terminating"]), (&json!(1), None, &json!(0)));
    cluster.merge_status(Kind::POD, "default", &second, &json!({"status": {"phase": "Succeeded"}}));
    cluster.pass(2);
    assert_eq!((&status(&cluster)["failed"], &status(&cluster)["succeeded"]), (&json!(1), &json!(1)));
}
