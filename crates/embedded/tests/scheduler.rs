//! The scheduler on the real registry: what it writes is accepted, and no node ever has more Pods than it has room for.

use std::collections::BTreeMap;

use crate::support::Cluster;
use serde_json::{Value, json};
use tally_controllers::hollow::Hollow;
use tally_controllers::job::{Config, JobController};
use tally_controllers::scheduler::Scheduler;
use tally_runtime::controller::{Call, Controller, Kind, Refusal, Reply, Verb};

fn jobs() -> Box<dyn Controller> {
    Box::new(JobController::new(Config::default()))
}

/// CREATE-8: of a cluster with one hollow node.
fn jobs_on_the_only_node() -> Box<dyn Controller> {
    Box::new(JobController::new(Config { only_node: Some("hollow-0".into()), ..Config::default() }))
}

fn scheduler() -> Box<dyn Controller> {
    Box::new(Scheduler::default())
}

fn make_node(cluster: &Cluster, name: &str, cpu: &str) {
    cluster.create(Kind::NODE, "", &json!({"metadata": {"name": name}}));
    // Every new node is tainted as not ready.
    cluster.merge(Kind::NODE, "", name, &json!({"spec": {"taints": null}}));
    let conditions = json!([{"type": "Ready", "status": "True"}]);
    let status = json!({"allocatable": {"cpu": cpu, "memory": "1Gi", "pods": "110"}, "conditions": conditions});
    cluster.merge_status(Kind::NODE, "", name, &json!({"status": status}));
}

fn make_pod(cluster: &Cluster, name: &str, cpu: &str) {
    let mut pod = Cluster::pod(name, None);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    cluster.create(Kind::POD, "default", &pod);
}

fn node_of(cluster: &Cluster, pod: &str) -> String {
    let pod = cluster.get(Kind::POD, "default", pod).expect("a Pod");
    pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()
}

fn end(cluster: &mut Cluster, pod: &str) {
    cluster.merge_status(Kind::POD, "default", pod, &json!({"status": {"phase": "Succeeded"}}));
    cluster.settle();
}

fn scheduled(cluster: &Cluster, pod: &str) -> Value {
    let pod = cluster.get(Kind::POD, "default", pod).expect("a Pod");
    pod["status"]["conditions"][0].clone()
}

#[test]
fn a_pod_waits_knows_why_and_goes_when_there_is_room() {
    let mut cluster = Cluster::new(vec![scheduler()]);
    make_pod(&cluster, "a", "1");
    cluster.pass(1);
    let told = scheduled(&cluster, "a");
    assert_eq!(
        [&told["type"], &told["status"], &told["reason"], &told["message"]],
        ["PodScheduled", "False", "Unschedulable", "no nodes available to schedule pods"]
    );
    make_node(&cluster, "small", "500m");
    cluster.pass(10);
    let again = scheduled(&cluster, "a");
    assert_eq!(again["message"], "0/1 nodes are available: 1 Insufficient cpu.");
    assert_eq!(again["lastTransitionTime"], told["lastTransitionTime"]);
    make_node(&cluster, "large", "1");
    cluster.settle();
    assert_eq!(node_of(&cluster, "a"), "large");
    let last = scheduled(&cluster, "a");
    assert_eq!((&last["status"], last.get("message")), (&json!("True"), None));
    let events: Vec<_> =
        cluster.events.iter().map(|event| (event.warning, event.reason.as_str(), event.message.as_str())).collect();
    assert_eq!(
        events,
        [
            (true, "FailedScheduling", "no nodes available to schedule pods"),
            (true, "FailedScheduling", "0/1 nodes are available: 1 Insufficient cpu."),
            (false, "Scheduled", "Successfully assigned default/a to large"),
        ]
    );
    assert_eq!(cluster.log.len(), 3);
}

#[test]
fn a_place_that_another_scheduler_took_is_seen_and_counted() {
    let mut cluster = Cluster::new(vec![scheduler()]);
    make_node(&cluster, "n1", "1");
    make_node(&cluster, "n2", "1");
    cluster.settle();
    cluster.held.insert(Kind::POD);
    make_pod(&cluster, "a", "1");
    let body = json!({"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n2"}});
    cluster.ask(&Call::new(Verb::Create, Kind::POD, "default", "a").subresource("binding").body(&body));
    make_pod(&cluster, "b", "1");
    cluster.held.clear();
    cluster.pass(5);
    assert_eq!((node_of(&cluster, "a"), node_of(&cluster, "b")), ("n2".to_owned(), "n1".to_owned()));
}

#[test]
fn bindings_may_be_lost_refused_or_done_without_a_word() {
    for fault in ["refused", "lost", "done"] {
        let mut cluster = Cluster::new(vec![scheduler()]);
        make_node(&cluster, "n", "1");
        cluster.settle();
        let mut faults = 3;
        // For "done" the test itself carries out the binding below, whose outcome the scheduler does not know.
        cluster.intercept = Box::new(move |call| {
            if call.subresource != "binding" || faults == 0 {
                return None;
            }
            faults -= 1;
            Some(if fault == "refused" {
                Reply::Refused(Refusal { code: 503, ..Refusal::default() })
            } else {
                Reply::Unknown
            })
        });
        make_pod(&cluster, "a", "1");
        cluster.settle();
        make_pod(&cluster, "b", "1");
        cluster.settle();
        if fault == "done" {
            let body = json!({"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}});
            cluster.ask(&Call::new(Verb::Create, Kind::POD, "default", "a").subresource("binding").body(&body));
        }
        cluster.pass(60);
        let mut places = [node_of(&cluster, "a"), node_of(&cluster, "b")];
        if fault != "refused" {
            assert_eq!(places[0], "n", "{fault}: whose place it is, it keeps");
        }
        places.sort();
        assert_eq!(places, ["", "n"], "{fault}: only one fits");
        let first = if node_of(&cluster, "a") == "n" { "a" } else { "b" };
        end(&mut cluster, first);
        cluster.pass(60);
        assert!(node_of(&cluster, "a") == "n" && node_of(&cluster, "b") == "n", "{fault}");
    }
}

/// Pods are created, end and are deleted in a fixed random order; the scheduler is restarted in between.
#[test]
fn no_node_ever_has_more_than_it_can_take() {
    let mut cluster = Cluster::new(vec![scheduler()]);
    let room = BTreeMap::from([("n0", 2000), ("n1", 1500), ("n2", 700)]);
    for (name, cpu) in &room {
        make_node(&cluster, name, &format!("{cpu}m"));
    }
    let mut draw = 12345_u64;
    let mut random = |limit: u64| {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (draw >> 33) % limit
    };
    for step in 0..200 {
        let running: Vec<_> = cluster.list(Kind::POD, "default");
        match random(10) {
            0..5 => make_pod(&cluster, &format!("p{step}"), &format!("{}m", 100 * (1 + random(8)))),
            5 => {
                cluster.stop();
                cluster.start(scheduler());
            }
            _ if running.is_empty() => {}
            6 => {
                let pod = &running[random(running.len() as u64) as usize];
                let options = json!({"gracePeriodSeconds": 0});
                cluster.delete(Kind::POD, "default", pod["metadata"]["name"].as_str().unwrap(), &options);
            }
            _ => {
                let pod = &running[random(running.len() as u64) as usize];
                if pod["spec"]["nodeName"].is_string() {
                    let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
                    cluster.merge_status(Kind::POD, "default", &name, &json!({"status": {"phase": "Failed"}}));
                }
            }
        }
        if random(3) > 0 {
            cluster.pass(random(3) as i64);
        }
        let mut taken = BTreeMap::<String, u64>::new();
        for pod in cluster.list(Kind::POD, "default") {
            let cpu = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str().unwrap().to_owned();
            if pod["status"]["phase"] == "Pending"
                && let Some(node) = pod["spec"]["nodeName"].as_str()
            {
                *taken.entry(node.to_owned()).or_default() += cpu.trim_end_matches('m').parse::<u64>().unwrap();
            }
        }
        for (node, taken) in taken {
            assert!(taken <= room[node.as_str()], "step {step}: {node} has {taken}");
        }
    }
    // In the end every Pod has been bound.
    loop {
        cluster.pass(1);
        let pods = cluster.list(Kind::POD, "default");
        let bound =
            pods.iter().filter(|pod| pod["spec"]["nodeName"].is_string() && pod["status"]["phase"] == "Pending");
        let names: Vec<_> = bound.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect();
        if names.is_empty() {
            assert!(pods.iter().all(|pod| pod["status"]["phase"] != "Pending"), "somebody was forgotten");
            break;
        }
        names.iter().for_each(|name| end(&mut cluster, name));
    }
}

#[test]
fn jobs_run_to_their_end_on_hollow_nodes() {
    let mut cluster = Cluster::new(vec![jobs(), scheduler(), Box::new(Hollow::new(2))]);
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"completions": 100, "parallelism": 100, "template": template});
    cluster.create(Kind::JOB, "default", &json!({"metadata": {"name": "j"}, "spec": spec}));
    cluster.pass(60);
    let job = cluster.get(Kind::JOB, "default", "j").unwrap();
    assert_eq!(job["status"]["succeeded"], 100);
    assert_eq!(job["status"]["conditions"][1]["type"], "Complete");
    let bindings = cluster.log.iter().filter(|line| line.ends_with("binding")).count();
    assert_eq!(bindings, 100, "one request for each Pod");
}

/// CREATE-8.
#[test]
fn pods_that_ask_nothing_of_the_only_node_are_created_there_and_run_like_the_others() {
    let mut cluster = Cluster::new(vec![jobs_on_the_only_node(), scheduler(), Box::new(Hollow::new(1))]);
    for (name, resources) in [("asks-nothing", json!({})), ("asks", json!({"requests": {"cpu": "10m"}}))] {
        let container = json!({"name": "c", "image": "i", "resources": resources});
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
        let spec = json!({"completions": 20, "parallelism": 5, "template": template});
        cluster.create(Kind::JOB, "default", &json!({"metadata": {"name": name}, "spec": spec}));
    }
    cluster.pass(60);
    for name in ["asks-nothing", "asks"] {
        let job = cluster.get(Kind::JOB, "default", name).unwrap();
        assert_eq!(job["status"]["succeeded"], 20, "{name}");
        assert_eq!(job["status"]["conditions"][1]["type"], "Complete", "{name}");
    }
    let bindings: Vec<_> = cluster.log.iter().filter(|line| line.ends_with("binding")).collect();
    assert_eq!(bindings.len(), 20, "{bindings:?}");
    assert!(bindings.iter().all(|line| !line.contains("asks-nothing")), "{bindings:?}");
    let pods = cluster.list(Kind::POD, "default");
    assert!(!pods.is_empty() && pods.iter().all(|pod| pod["spec"]["nodeName"] == "hollow-0"));
}
