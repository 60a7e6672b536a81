//! Where the controller lacks rights: what the API refuses it.

use serde_json::{Value, json};

use crate::process::Controller;
use crate::support::server::{self, Server};
use crate::tool::{Cluster, eventually};

/// What this part shows.
pub const REASONS: [&str; 3] = ["ControllerBehind", "DeletionRefused", "UncountedPods"];

/// What the Job controller needs, with these verbs on Pods.
fn rules(pods: &[&str]) -> Value {
    rules_with(pods, &["patch"])
}

fn rules_with(pods: &[&str], status: &[&str]) -> Value {
    json!([
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["batch"], "resources": ["jobs/status"], "verbs": status},
        {"apiGroups": [""], "resources": ["pods"], "verbs": pods},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_controller_may_not_do_is_explained() {
    let directory = server::directory();
    let cluster = Cluster::of(Server::start(directory.path()).await, directory);
    let all = ["get", "list", "watch", "create", "patch", "delete"];
    let (kubeconfig, role) = cluster.user("limited", &rules(&all)).await;
    let _controller = Controller::start(kubeconfig.as_ref(), "limited", &["--controllers", "job"]);
    cluster.add_node("n").await;
    let mut pods = Vec::new();
    let policy = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2,
        "successPolicy": {"rules": [{"succeededCount": 1}]}});
    for (name, many, spec) in
        [("shrinks", 2, json!({"completions": 2, "parallelism": 2})), ("ends", 1, json!({})), ("meets", 2, policy)]
    {
        cluster.job(name, json!({}), spec, "true").await;
        for pod in cluster.pods(name, many).await {
            let path = cluster.bind(&pod, "n").await;
            cluster.report_running(&path).await;
            pods.push(path);
        }
    }
    let path = |job: &str| format!("/apis/batch/v1/namespaces/default/jobs/{job}");
    for (job, active) in [("shrinks", 2), ("ends", 1), ("meets", 2)] {
        eventually("the Pods are counted", async || {
            (cluster.get(&path(job)).await["status"]["active"] == active).then_some(())
        })
        .await;
        cluster.says(&format!("job/{job}"), &[], "").await;
    }

    // One Pod is too many.
    let without = |verb: &str| all.into_iter().filter(|known| *known != verb).collect::<Vec<_>>();
    cluster.patch(&role, &json!({"rules": rules(&without("delete"))})).await;
    cluster.patch(&path("shrinks"), &json!({"spec": {"parallelism": 1}})).await;
    let denied = "refuses to delete Pods that must go: pods \"shrinks-";
    let said = cluster.says("job/shrinks", &["DeletionRefused"], denied).await;
    let message = said["reasons"][0]["message"].as_str().unwrap();
    assert!(message.contains("User \"limited\" cannot delete resource \"pods\""), "{message}");

    // Pods that have ended keep their finalizer. The end of the second Job is decided by its policy.
    cluster.patch(&role, &json!({"rules": rules(&without("patch"))})).await;
    let ended = json!({"terminated": {"exitCode": 0, "finishedAt": "2026-01-31T12:00:00Z"}});
    for pod in pods.iter().skip(2) {
        cluster.report(pod, "Succeeded", ended.clone()).await;
    }
    let expected = ["UncountedPods", "ControllerBehind"];
    for job in ["ends", "meets"] {
        let said = cluster.says(&format!("job/{job}"), &expected, "ended and").await;
        let behind = said["reasons"][1]["message"].as_str().unwrap();
        assert!(behind.contains("holds the Lease kube-system/tally-job-controller and renews it"), "{behind}");
    }
    let decided = cluster.get(&path("meets")).await["status"]["conditions"].to_string();
    assert!(decided.contains("SuccessCriteriaMet") && !decided.contains("Complete"), "{decided}");

    // With its rights it goes on.
    cluster.patch(&role, &json!({"rules": rules(&all)})).await;
    for job in ["ends", "meets"] {
        eventually("it is complete", async || {
            let status = cluster.get(&path(job)).await["status"].to_string();
            status.contains("\"Complete\"").then_some(())
        })
        .await;
        let said = cluster.says(&format!("job/{job}"), &[], "").await;
        assert_eq!(said["state"], "Complete");
    }
    cluster.seen.are(&REASONS);
}

/// EVENT-14, CONST-1: a status that the server refuses is tried again, and told once for all its refusals.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_status_is_logged_told_and_explained_until_it_is_accepted() {
    let directory = server::directory();
    let cluster = Cluster::of(Server::start(directory.path()).await, directory);
    let pods = ["get", "list", "watch", "create", "patch", "delete"];
    let (kubeconfig, role) = cluster.user("limited", &rules(&pods)).await;
    let mut controller = Controller::start(kubeconfig.as_ref(), "limited", &["--controllers", "job"]);
    controller.until_it_says("http://");
    controller.until("ready", |controller| controller.get("/readyz").0 == 200);
    cluster.add_node("n").await;
    cluster.patch(&role, &json!({"rules": rules_with(&pods, &["get"])})).await;
    let made = cluster.job("j", json!({}), json!({}), "true").await;
    // The Pod is created all the same.
    let pods_of_job = cluster.pods("j", 1).await;
    let pod = cluster.bind(&pods_of_job[0], "n").await;
    cluster.report_running(&pod).await;
    let refused = |controller: &Controller| {
        let metrics = controller.get("/metrics").1;
        let of =
            |line: &&str| line.starts_with(r#"tally_requests_total{verb="patch",resource="jobs/status",code="403"}"#);
        metrics.lines().find(of).and_then(|line| line.split(' ').nth(1)?.parse::<u64>().ok()).unwrap_or(0)
    };
    controller.until("three refusals", |controller| refused(controller) >= 3);
    let words = "User \"limited\" cannot patch resource \"jobs/status\"";
    let said =
        cluster.says("job/j", &["StatusRefused"], "The API server refuses the status of the Job: jobs.batch \"j\"");
    let said = said.await;
    assert!(said["reasons"][0]["message"].as_str().unwrap().contains(words), "{said:#}");
    let lines = |controller: &Controller, text: &str| controller.said().matches(text).count();
    let begins = "the API server refuses the status of the Job";
    assert_eq!(lines(&controller, begins), 1, "{}", controller.said());

    cluster.patch(&role, &json!({"rules": rules(&pods)})).await;
    let ends = "the API server accepts the status of the Job again";
    controller.until_it_says(ends);
    eventually("the status is written", async || {
        let job = cluster.get("/apis/batch/v1/namespaces/default/jobs/j").await;
        (job["status"]["active"] == 1).then_some(())
    })
    .await;
    let events = eventually("both Events are recorded", async || {
        let all = cluster.get("/api/v1/namespaces/default/events").await;
        let all: Vec<Value> = all["items"].as_array()?.clone();
        let about = |event: &Value| event["involvedObject"]["uid"] == made["metadata"]["uid"];
        let of = |reason: &str| -> Vec<Value> {
            all.iter().filter(|event| about(event) && event["reason"] == reason).cloned().collect()
        };
        let (refused, accepted) = (of("StatusRefused"), of("StatusAccepted"));
        (!accepted.is_empty()).then_some((refused, accepted))
    });
    let (refused, accepted) = events.await;
    assert_eq!((refused.len(), accepted.len()), (1, 1), "{refused:?} {accepted:?}");
    assert_eq!((&refused[0]["type"], &refused[0]["count"]), (&json!("Warning"), &json!(1)));
    assert!(refused[0]["message"].as_str().unwrap().contains(words), "{refused:?}");
    assert_eq!((lines(&controller, begins), lines(&controller, ends)), (1, 1), "{}", controller.said());
    // `tally up` prints warnings only: whoever reads of the beginning there reads of the end.
    let said = controller.said();
    let levels = [begins, ends].map(|told| said.lines().find(|line| line.contains(told)).unwrap().contains(" WARN "));
    assert_eq!(levels, [true, true], "{said}");
}
