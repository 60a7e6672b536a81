//! A Job that cannot start waits, in `tally ps` and `tally show` as in `tally explain`, with the same first sentence.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::server::{self, Server};
use crate::tool::{Cluster, eventually, explain, tally, text};

/// A Job whose only container has these further fields.
fn with(container: Value) -> Value {
    let mut whole = json!({"name": "c", "image": "none", "command": ["sleep", "1000"]});
    crate::tool::merge(&mut whole, &container);
    json!({"template": {"spec": {"containers": [whole]}}})
}

/// The rows of `tally ps`, by name.
fn rows(place: &[&str]) -> BTreeMap<String, Value> {
    let said = tally(&[&["ps", "-o", "json"], place].concat());
    assert_eq!(said.code, Some(0), "{}", said.err);
    let listed: Value = serde_json::from_str(&said.out).unwrap();
    let jobs = listed["jobs"].as_array().unwrap().clone();
    jobs.into_iter().map(|job| (job["name"].as_str().unwrap().to_owned(), job)).collect()
}

/// Requests that the server has answered, by verb and resource.
async fn requests(cluster: &Cluster) -> BTreeMap<(String, String), u64> {
    let answer = cluster.server.api.connection().call(&crate::support::client::Call::get("/metrics")).await;
    let mut counts = BTreeMap::new();
    for line in answer.unwrap().text.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")) {
        let label = |name: &str| {
            let (_, rest) = line.split_once(&format!("{name}=\"")).unwrap();
            rest.split_once('"').unwrap().0.to_owned()
        };
        let count: u64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
        *counts.entry((label("verb"), label("resource"))).or_default() += count;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_cannot_start_waits_in_every_list() {
    let directory = server::directory();
    let cluster = Cluster::of(Server::start_node(directory.path()).await, directory);
    let none = || json!({});
    cluster.job("gpu", none(), with(json!({"resources": {"limits": {"nvidia.com/gpu": "1"}}})), "").await;
    cluster.job("secret", none(), with(json!({"envFrom": [{"secretRef": {"name": "keys"}}]})), "").await;
    cluster.job("fails", none(), none(), "exit 3").await;
    cluster.job("runs", none(), none(), "sleep 1000").await;
    // One of its two Pods runs: it goes on.
    let half = json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 3});
    cluster.job("half", none(), half, "if [ $JOB_COMPLETION_INDEX = 0 ]; then exit 1; fi; sleep 1000").await;
    let data = text(&cluster.directory.path().join("data"));
    let places = [vec!["--kubeconfig", &cluster.kubeconfig], vec!["--data-dir", &data]];
    for place in &places {
        let listed = eventually("each is in its state", async || {
            let listed = rows(place);
            let all = [("gpu", "Waiting"), ("secret", "Waiting"), ("fails", "Waiting")];
            let waiting = all.iter().all(|(name, state)| listed[*name]["state"] == *state);
            let running = listed["runs"]["state"] == "Running" && listed["half"]["failed"] != 0;
            (waiting && running).then_some(listed)
        })
        .await;
        assert_eq!(listed["half"]["state"], "Running");
        for (name, reason, part) in [
            ("gpu", "Unschedulable", "fits on no node: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu."),
            ("secret", "ContainerConfigError", "secret \"keys\" not found."),
            ("fails", "BackOff", "(last failure: exit code 3)"),
        ] {
            let row = &listed[name];
            assert_eq!(row["reason"], reason, "{row:#}");
            assert!(row["message"].as_str().unwrap().contains(part), "{row:#}");
        }
        // The first sentence of the explanation, in one line of a pipe; and the state of `tally show`.
        let first = explain(place, "job/gpu");
        assert_eq!((&first["state"], &first["reasons"][0]["message"]), (&json!("Waiting"), &listed["gpu"]["message"]));
        assert_eq!(explain(place, "job/half")["state"], "Running");
        let table = tally(&[&["ps"], &place[..]].concat()).out;
        assert!(table.lines().next().unwrap().ends_with("DURATION   WHY"), "{table}");
        let line = table.lines().find(|line| line.starts_with("gpu ")).unwrap();
        assert!(line.contains("   Waiting   ") && line.ends_with(first["reasons"][0]["message"].as_str().unwrap()));
        let shown = tally(&[&["show", "gpu"], &place[..]].concat()).out;
        assert!(shown.contains("State:     Waiting: Unschedulable: Pod gpu-"), "{shown}");
    }
}

/// Jobs that run cost nothing, each of the others one list of its Pods; what they share is read once.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_jobs_makes_few_requests() {
    let directory = server::directory();
    let cluster = Cluster::of(Server::start_node(directory.path()).await, directory);
    let place = ["--kubeconfig", cluster.kubeconfig.as_str()];
    for number in 0..3 {
        cluster.job(&format!("runs-{number}"), json!({}), json!({}), "sleep 1000").await;
    }
    for number in 0..12 {
        let large = with(json!({"resources": {"limits": {"nvidia.com/gpu": "1"}}}));
        cluster.job(&format!("gpu-{number}"), json!({}), large, "").await;
    }
    eventually("they wait and run", async || {
        let ready = |number: u32| format!("/apis/batch/v1/namespaces/default/jobs/runs-{number}");
        for number in 0..3 {
            if cluster.get(&ready(number)).await["status"]["ready"] != 1 {
                return None;
            }
        }
        (rows(&place).values().filter(|row| row["state"] == "Waiting").count() == 12).then_some(())
    })
    .await;
    // A request may be counted a moment after its response.
    let settled = async || {
        let mut last = BTreeMap::new();
        eventually("no more requests are counted", async || {
            let counts =
                requests(&cluster).await.into_iter().filter(|((_, resource), _)| !resource.is_empty()).collect();
            (std::mem::replace(&mut last, counts) == last).then(|| last.clone())
        })
        .await
    };
    let before = settled().await;
    assert_eq!(rows(&place).len(), 15);
    let after = settled().await;
    let made = |verb: &str, resource: &str| {
        let key = (verb.to_owned(), resource.to_owned());
        after.get(&key).copied().unwrap_or(0) - before.get(&key).copied().unwrap_or(0)
    };
    let shared = ["events", "jobs", "leases"].map(|resource| made("LIST", resource));
    assert_eq!((made("LIST", "pods"), shared), (12, [1, 1, 2]), "{before:?} {after:?}");
    assert_eq!((made("GET", "namespaces"), made("GET", "jobs")), (1, 0), "{before:?} {after:?}");
}

/// What is not asked is said.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_jobs_the_first_hundred_are_explained() {
    let directory = server::directory();
    let cluster = Cluster::of(Server::start(directory.path()).await, directory);
    let place = ["--kubeconfig", cluster.kubeconfig.as_str()];
    let note = "Jobs without a ready Pod it was not asked whether they wait";
    for number in 0..100 {
        cluster.job(&format!("j-{number}"), json!({}), json!({}), "true").await;
    }
    assert!(!tally(&[&["ps"], &place[..]].concat()).err.contains(note));
    cluster.job("one-more", json!({}), json!({}), "true").await;
    let said = tally(&[&["ps"], &place[..]].concat());
    assert!(said.code == Some(0) && said.err.contains(&format!("tally: of 1 {note}")), "{}", said.err);
    assert!(said.out.contains("one-more"), "{}", said.out);
}

/// A user that may read Jobs and not their Pods is not told that they wait: it is not known.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_pods_the_counts_are_shown() {
    let directory = server::directory();
    let cluster = Cluster::of(Server::start_node(directory.path()).await, directory);
    cluster.job("gpu", json!({}), with(json!({"resources": {"limits": {"nvidia.com/gpu": "1"}}})), "").await;
    let all = ["--kubeconfig", cluster.kubeconfig.as_str()];
    eventually("it waits", async || (rows(&all)["gpu"]["state"] == "Waiting").then_some(())).await;
    let rules = json!([{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list"]}]);
    let (kubeconfig, _) = cluster.user("dora", &rules).await;
    let row = &rows(&["--kubeconfig", &kubeconfig])["gpu"];
    assert_eq!((&row["state"], &row["message"], &row["active"]), (&json!("Running"), &json!(""), &json!(1)));
}
