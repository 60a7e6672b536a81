//! Where the controller lacks rights: what the API refuses it.

use serde_json::{Value, json};

use crate::process::Controller;
use crate::support::server::{self, Server};
use crate::tool::{Cluster, eventually};

/// What this part shows.
pub const REASONS: [&str; 3] = ["ControllerBehind", "DeletionRefused", "UncountedPods"];

/// What the Job controller needs, with these verbs on Pods.
fn rules(pods: &[&str]) -> Value {
    json!([
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["batch"], "resources": ["jobs/status"], "verbs": ["patch"]},
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
