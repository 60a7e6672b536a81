//! The removal of Pods that no other controller will end, on the real registry and beside the Job controller.

use crate::support::Cluster;
use serde_json::{Value, json};
use tally_controllers::job::{Config, JobController};
use tally_controllers::pod_gc::{PodGc, PodGcOptions};
use tally_runtime::controller::{Call, Controller, Kind, Verb};

fn jobs() -> Box<dyn Controller> {
    Box::new(JobController::new(Config::default()))
}

fn gc() -> Box<dyn Controller> {
    Box::new(PodGc::new(PodGcOptions::default()))
}

fn bind(cluster: &Cluster, pod: &str, node: &str) {
    let body = json!({"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}});
    cluster.ask(&Call::new(Verb::Create, Kind::POD, "default", pod).subresource("binding").body(&body));
}

fn status(cluster: &Cluster, pod: &str, status: Value) {
    cluster.merge_status(Kind::POD, "default", pod, &json!({"status": status}));
}

fn pods(cluster: &Cluster) -> Vec<Value> {
    cluster.list(Kind::POD, "default")
}

fn name(pod: &Value) -> String {
    pod["metadata"]["name"].as_str().unwrap().to_owned()
}

/// A Job whose only Pod runs on a node that does not exist.
fn lost(spec: Value, template: Value) -> (Cluster, String) {
    let mut cluster = Cluster::new(vec![jobs(), gc()]);
    let mut job = json!({"metadata": {"name": "a"}, "spec": spec});
    job["spec"]["template"] = template;
    job["spec"]["template"]["spec"] = json!({"containers": [{"image": "i", "name": "c"}], "restartPolicy": "Never"});
    cluster.create(Kind::JOB, "default", &job);
    cluster.settle();
    let pod = name(&pods(&cluster)[0]);
    bind(&cluster, &pod, "gone");
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}]);
    status(&cluster, &pod, json!({"phase": "Running", "conditions": ready}));
    (cluster, pod)
}

#[test]
fn pods_of_a_lost_node_count_as_failed() {
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    let (mut cluster, pod) = lost(json!({"backoffLimit": 0}), hold);
    cluster.pass(39);
    assert_eq!(pods(&cluster)[0]["status"]["phase"], "Running");
    cluster.pass(1);
    let job = cluster.get(Kind::JOB, "default", "a").unwrap();
    assert_eq!((&job["status"]["failed"], &job["status"]["terminating"]), (&json!(1), &json!(0)));
    assert_eq!(job["status"]["conditions"][1]["reason"], "BackoffLimitExceeded");

    // What a real cluster shows of the Pod at this point.
    let mut held = cluster.get(Kind::POD, "default", &pod).expect("held");
    assert_eq!(held["metadata"]["finalizers"], json!(["example.com/hold"]));
    assert_eq!(held["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!((&held["status"]["phase"], &held["status"]["observedGeneration"]), (&json!("Failed"), &json!(1)));
    let condition = held["status"]["conditions"].as_array_mut().unwrap().pop().unwrap();
    assert!(condition["lastTransitionTime"].is_string());
    for (field, value) in [
        ("type", json!("DisruptionTarget")),
        ("status", json!("True")),
        ("reason", json!("DeletionByPodGC")),
        ("message", json!("PodGC: node no longer exists")),
        ("observedGeneration", json!(1)),
    ] {
        assert_eq!(condition[field], value, "{field}");
    }

    let asked = cluster.log.len();
    cluster.pass(1000);
    assert_eq!(cluster.log.len(), asked, "its finalizer is not our concern");
}

#[test]
fn pods_of_a_lost_node_can_be_ignored() {
    let rules = json!([{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]);
    let spec = json!({"backoffLimit": 0, "podFailurePolicy": {"rules": rules}});
    let (mut cluster, pod) = lost(spec, json!({}));
    cluster.pass(100);
    assert_eq!(cluster.get(Kind::POD, "default", &pod), None);
    let job = cluster.get(Kind::JOB, "default", "a").unwrap();
    assert_eq!((&job["status"]["active"], job["status"].get("failed")), (&json!(1), None));
}

#[test]
fn a_node_that_comes_in_time_saves_its_pods() {
    let (mut cluster, pod) = lost(json!({}), json!({}));
    cluster.pass(30);
    cluster.create(Kind::NODE, "", &json!({"metadata": {"name": "gone"}}));
    cluster.pass(1000);
    assert_eq!(cluster.get(Kind::POD, "default", &pod).unwrap()["status"]["phase"], "Running");

    // A node that our list does not show yet saves its Pods as well.
    cluster.delete(Kind::NODE, "", "gone", &Value::Null);
    cluster.settle();
    cluster.held.insert(Kind::NODE);
    cluster.create(Kind::NODE, "", &json!({"metadata": {"name": "gone"}}));
    cluster.pass(100);
    assert!(cluster.log.iter().any(|line| line == "Get nodes /gone"));
    assert_eq!(cluster.get(Kind::POD, "default", &pod).unwrap()["status"]["phase"], "Running");
}

/// The Pod succeeds, and the stream does not show it.
#[test]
fn a_pod_that_has_just_succeeded_stays_succeeded() {
    let mut cluster = Cluster::new(vec![gc()]);
    let mut pod = Cluster::pod("p", Some("gone"));
    pod["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.create(Kind::POD, "default", &pod);
    cluster.settle();
    cluster.held.insert(Kind::POD);
    status(&cluster, "p", json!({"phase": "Succeeded"}));
    cluster.pass(50);
    assert!(cluster.log.iter().any(|line| line == "StrategicPatch pods default/p status"));
    assert!(!cluster.log.iter().any(|line| line.starts_with("Delete")));
    cluster.held.clear();
    cluster.pass(50);
    let pod = cluster.get(Kind::POD, "default", "p").unwrap();
    assert_eq!((&pod["status"]["phase"], pod["status"].get("conditions")), (&json!("Succeeded"), None));
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 0);
}

/// Case podgc-unscheduled-terminating: with the policy Failed nothing else ever ends it.
#[test]
fn a_pod_deleted_before_it_had_a_node_is_replaced() {
    let mut cluster = Cluster::new(vec![jobs(), gc()]);
    let template = json!({
        "metadata": {"finalizers": ["example.com/hold"]},
        "spec": {"containers": [{"image": "i", "name": "c"}], "restartPolicy": "Never"},
    });
    let spec = json!({"podReplacementPolicy": "Failed", "template": template});
    cluster.create(Kind::JOB, "default", &json!({"metadata": {"name": "a"}, "spec": spec}));
    cluster.settle();
    let first = name(&pods(&cluster)[0]);
    cluster.delete(Kind::POD, "default", &first, &Value::Null);
    cluster.pass(19);
    assert_eq!(pods(&cluster).len(), 1, "stuck");
    cluster.pass(11);
    let pod = cluster.get(Kind::POD, "default", &first).expect("held");
    assert_eq!(pod["status"]["phase"], "Failed");
    assert_eq!(pod["metadata"]["finalizers"], json!(["example.com/hold"]), "counted");
    assert_eq!(pods(&cluster).len(), 2);
}

#[test]
fn pods_of_a_node_out_of_service_end_when_they_are_deleted() {
    let mut cluster = Cluster::new(vec![gc()]);
    let taint = json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]);
    cluster.create(Kind::NODE, "", &json!({"metadata": {"name": "n"}, "spec": {"taints": taint}}));
    cluster.create(Kind::POD, "default", &Cluster::pod("p", Some("n")));
    cluster.pass(100);
    assert!(cluster.log.is_empty());
    cluster.delete(Kind::POD, "default", "p", &Value::Null);
    cluster.pass(19);
    assert!(cluster.get(Kind::POD, "default", "p").is_some());
    cluster.pass(1);
    assert_eq!(cluster.get(Kind::POD, "default", "p"), None);
}

#[test]
fn a_restart_costs_a_quarantine_and_nothing_else() {
    let (mut cluster, pod) = lost(json!({}), json!({}));
    cluster.pass(39);
    cluster.stop();
    cluster.start(jobs());
    cluster.start(gc());
    cluster.pass(39);
    assert!(cluster.get(Kind::POD, "default", &pod).is_some());
    cluster.pass(2);
    assert_eq!(cluster.get(Kind::POD, "default", &pod), None);
}
