//! Hollow nodes on the real registry: their writes are accepted and stored as intended, and Jobs get their Pods through
//! every way in which a Pod can end.

use crate::support::Cluster;
use serde_json::{Value, json};
use tally_controllers::hollow::Hollow;
use tally_controllers::job::{Config, JobController};
use tally_runtime::controller::{Controller, Kind};

fn jobs() -> Box<dyn Controller> {
    Box::new(JobController::new(Config::default()))
}

fn hollow() -> Box<dyn Controller> {
    Box::new(Hollow::new(2))
}

fn pod(name: &str, annotations: &[(&str, &str)]) -> Value {
    let mut pod = Cluster::pod(name, Some("hollow-1"));
    pod["metadata"]["annotations"] = annotated(annotations);
    pod
}

fn annotated(annotations: &[(&str, &str)]) -> Value {
    annotations.iter().map(|(name, text)| (format!("hollow.tally.dev/{name}"), Value::from(*text))).collect()
}

fn job(spec: Value, policy: &str, annotations: &[(&str, &str)]) -> Value {
    let mut job = json!({"metadata": {"name": "j"}, "spec": spec});
    job["spec"]["template"] = json!({
        "metadata": {"annotations": annotated(annotations)},
        "spec": {"nodeName": "hollow-0", "restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]},
    });
    job
}

fn phase(cluster: &Cluster, name: &str) -> String {
    let pod = cluster.get(Kind::POD, "default", name);
    pod.map_or("gone".to_owned(), |pod| pod["status"]["phase"].as_str().unwrap().to_owned())
}

fn condition(object: &Value, kind: &str) -> Value {
    let found = object["status"]["conditions"].as_array().into_iter().flatten().find(|found| found["type"] == kind);
    found.cloned().unwrap_or_default()
}

#[test]
fn nodes_are_ready_for_pods() {
    let mut cluster = Cluster::new(vec![hollow()]);
    let nodes = cluster.list(Kind::NODE, "");
    assert_eq!(nodes.len(), 2);
    for node in nodes {
        assert_eq!(condition(&node, "Ready")["status"], "True");
        assert_eq!(node["spec"].get("taints"), None, "Pods may come");
        assert_eq!(node["status"]["allocatable"]["pods"], "100k");
    }
    let writes = cluster.log.len();
    cluster.stop();
    cluster.start(hollow());
    cluster.pass(60);
    assert_eq!(cluster.log.len(), writes, "nothing is left to do: {:?}", cluster.log);
}

#[test]
fn a_pod_succeeds_with_one_write() {
    let mut cluster = Cluster::new(vec![hollow()]);
    cluster.log.clear();
    cluster.create(Kind::POD, "default", &pod("p", &[]));
    cluster.settle();
    assert_eq!(cluster.log, ["StrategicPatch pods default/p status"]);
    let pod = cluster.get(Kind::POD, "default", "p").unwrap();
    assert_eq!(pod["status"]["phase"], "Succeeded");
    assert_eq!(condition(&pod, "Ready")["reason"], "PodCompleted");
    assert_eq!(condition(&pod, "PodScheduled")["status"], "True");
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    cluster.pass(600);
    cluster.delete(Kind::POD, "default", "p", &Value::Null);
    cluster.settle();
    assert_eq!((phase(&cluster, "p").as_str(), cluster.log.len()), ("gone", 1));
}

#[test]
fn pods_take_their_time_across_restarts_and_conditions_of_others_stay() {
    let mut cluster = Cluster::new(vec![hollow()]);
    cluster.create(Kind::POD, "default", &pod("p", &[("run-for", "5s"), ("exit-code", "3")]));
    cluster.settle();
    let running = cluster.get(Kind::POD, "default", "p").unwrap();
    assert_eq!(running["status"]["phase"], "Running");
    assert_eq!(
        condition(&running, "Ready"),
        json!({
            "type": "Ready", "status": "True", "observedGeneration": 1, "lastProbeTime": null,
            "lastTransitionTime": running["status"]["startTime"],
        })
    );
    let mut conditions = running["status"]["conditions"].as_array().unwrap().clone();
    conditions.push(json!({"type": "example.com/seen", "status": "True"}));
    cluster.merge_status(Kind::POD, "default", "p", &json!({"status": {"conditions": conditions}}));
    cluster.pass(3);
    cluster.stop();
    cluster.start(hollow());
    cluster.pass(1);
    assert_eq!(phase(&cluster, "p"), "Running");
    cluster.pass(2);
    let pod = cluster.get(Kind::POD, "default", "p").unwrap();
    assert_eq!(pod["status"]["phase"], "Failed");
    let terminated = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&terminated["exitCode"], &terminated["reason"]), (&json!(3), &json!("Error")));
    assert_eq!(terminated["startedAt"], pod["status"]["startTime"]);
    assert_eq!(condition(&pod, "example.com/seen")["status"], "True");
    assert_eq!(condition(&pod, "Ready")["reason"], "PodFailed");
}

#[test]
fn deleted_pods_end_and_go() {
    let mut cluster = Cluster::new(vec![hollow()]);
    for (name, annotations, after_1, after_10, after_60) in [
        ("quick", &[("run-for", "1h")][..], "gone", "gone", "gone"),
        ("slow", &[("run-for", "1h"), ("terminate-after", "5s")], "Running", "gone", "gone"),
        ("killed", &[("run-for", "1h"), ("terminate-after", "1h")], "Running", "Running", "gone"),
        ("hangs", &[("hang", "true")], "Pending", "Pending", "Pending"),
        ("pends", &[("pending", "true")], "gone", "gone", "gone"),
    ] {
        cluster.create(Kind::POD, "default", &pod(name, annotations));
        cluster.settle();
        cluster.delete(Kind::POD, "default", name, &Value::Null);
        for (seconds, expected) in [(1, after_1), (9, after_10), (50, after_60)] {
            cluster.pass(seconds);
            assert_eq!(phase(&cluster, name), expected, "{name}");
        }
    }
    // A Pod with a finalizer can still be read.
    let mut held = pod("held", &[("run-for", "1h")]);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.create(Kind::POD, "default", &held);
    cluster.settle();
    cluster.delete(Kind::POD, "default", "held", &Value::Null);
    cluster.pass(1);
    let held = cluster.get(Kind::POD, "default", "held").unwrap();
    assert_eq!(held["status"]["phase"], "Failed");
    assert_eq!(held["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 143);
    assert_eq!(held["metadata"]["deletionGracePeriodSeconds"], 0, "the node has confirmed");
}

#[test]
fn a_lost_node_is_silent() {
    let mut cluster = Cluster::new(vec![hollow()]);
    cluster.create(Kind::POD, "default", &pod("p", &[("run-for", "5s")]));
    cluster.settle();
    cluster.delete(Kind::NODE, "", "hollow-1", &Value::Null);
    cluster.delete(Kind::POD, "default", "p", &Value::Null);
    cluster.pass(60);
    assert_eq!(phase(&cluster, "p"), "Running");
    assert!(cluster.get(Kind::NODE, "", "hollow-1").is_none());
    cluster.stop();
    cluster.start(hollow());
    cluster.pass(1);
    assert!(cluster.get(Kind::NODE, "", "hollow-1").is_some());
    assert_eq!(phase(&cluster, "p"), "gone");
}

/// The result of a Job after ten minutes: succeeded, failed, conditions that are True.
fn check(spec: Value, policy: &str, annotations: &[(&str, &str)], expected: (i64, i64, &str)) {
    let mut cluster = Cluster::new(vec![jobs(), hollow()]);
    cluster.create(Kind::JOB, "default", &job(spec.clone(), policy, annotations));
    cluster.pass(600);
    let job = cluster.get(Kind::JOB, "default", "j").unwrap();
    let status = &job["status"];
    let count = |field: &str| status[field].as_i64().unwrap_or(0);
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let hold: Vec<_> =
        conditions.filter(|found| found["status"] == "True").filter_map(|found| found["type"].as_str()).collect();
    let told = (count("succeeded"), count("failed"), hold.last().copied().unwrap_or_default());
    assert_eq!(told, expected, "{spec} {policy} {annotations:?}: {status:#}");
}

#[test]
fn jobs_end_as_their_pods_do() {
    check(json!({"completions": 20, "parallelism": 7}), "Never", &[], (20, 0, "Complete"));
    check(json!({"completions": 3, "parallelism": 1}), "Never", &[("run-for", "10s")], (3, 0, "Complete"));
    check(json!({"backoffLimit": 1}), "Never", &[("exit-code", "3")], (0, 2, "Failed"));
    let per_index = json!({"completions": 4, "parallelism": 4, "completionMode": "Indexed", "backoffLimitPerIndex": 2});
    let retried = [("exit-code", "1=5,3=5"), ("fail-times", "2")];
    check(per_index.clone(), "Never", &retried, (4, 4, "Complete"));
    let too_often = [("exit-code", "1=5,3=5"), ("fail-times", "3")];
    check(per_index, "Never", &too_often, (2, 6, "Failed"));
    let restarted = [("fail-times", "2"), ("restart-delay", "1s")];
    check(json!({"backoffLimit": 3}), "OnFailure", &restarted, (1, 0, "Complete"));
    check(json!({"backoffLimit": 1}), "OnFailure", &restarted, (0, 1, "Failed"));
    check(json!({"activeDeadlineSeconds": 30}), "Never", &[("pending", "true")], (0, 1, "Failed"));
    check(
        json!({"activeDeadlineSeconds": 30}),
        "Never",
        &[("run-for", "1h"), ("terminate-after", "9s")],
        (0, 1, "Failed"),
    );
    let ignores = json!({"completions": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0,
    "podFailurePolicy": {"rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]}});
    check(ignores, "Never", &[("disrupted", "TerminationByKubelet"), ("fail-times", "2")], (2, 0, "Complete"));
    let fails = json!({"backoffLimit": 6, "podFailurePolicy": {"rules": [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
    ]}});
    check(fails, "Never", &[("exit-code", "42")], (0, 1, "Failed"));
}

#[test]
fn a_restart_of_everything_at_any_time_changes_no_count() {
    for every in [1, 3] {
        let mut cluster = Cluster::new(vec![jobs(), hollow()]);
        let spec = json!({"completions": 6, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 2});
        let annotations = [("run-for", "2500ms"), ("exit-code", "2=1,4-5=9"), ("fail-times", "1")];
        cluster.create(Kind::JOB, "default", &job(spec, "Never", &annotations));
        for _ in 0..90 / every {
            cluster.pass(every);
            cluster.stop();
            cluster.start(hollow());
            cluster.start(jobs());
        }
        cluster.pass(60);
        let job = cluster.get(Kind::JOB, "default", "j").unwrap();
        assert_eq!(job["status"]["succeeded"], 6, "every {every} s: {:#}", job["status"]);
        assert_eq!(job["status"]["failed"], 3, "every {every} s: {:#}", job["status"]);
    }
}
