//! Where all controllers run and the test acts as the nodes: what only a node with images, or a lost node, can show.

use serde_json::{Value, json};

use crate::support::client::Call;
use crate::support::server::{self, Server};
use crate::tool::{Cluster, name_of};

async fn add_node(cluster: &Cluster, name: &str, ready: &str) {
    cluster.create("/api/v1/nodes", &json!({"metadata": {"name": name}})).await;
    set_ready(cluster, name, ready).await;
}

async fn set_ready(cluster: &Cluster, name: &str, ready: &str) {
    let condition = json!({"type": "Ready", "status": ready, "reason": "Test", "message": "",
        "lastTransitionTime": "2026-01-31T12:00:00Z", "lastHeartbeatTime": "2026-01-31T12:00:00Z"});
    cluster.patch(&format!("/api/v1/nodes/{name}/status"), &json!({"status": {"conditions": [condition]}})).await;
}

/// Gives the only Pod of a Job a node, and returns its path.
async fn bind(cluster: &Cluster, job: &str, node: &str) -> String {
    let pod = cluster.pods(job, 1).await.remove(0);
    let path = format!("/api/v1/namespaces/default/pods/{}", name_of(&pod));
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name_of(&pod)},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
    cluster.create(&format!("{path}/binding"), &binding).await;
    path
}

async fn report(cluster: &Cluster, pod: &str, phase: &str, state: Value) {
    let container =
        json!({"name": "c", "image": "none", "imageID": "", "ready": false, "restartCount": 0, "state": state});
    let status = json!({"status": {"phase": phase, "containerStatuses": [container]}});
    cluster.patch(&format!("{pod}/status"), &status).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nodes_report_is_explained() {
    let directory = server::directory();
    let cluster = Cluster::of(Server::start_cluster(directory.path()).await, directory);
    add_node(&cluster, "n1", "True").await;
    add_node(&cluster, "n2", "True").await;
    add_node(&cluster, "n3", "True").await;
    let none = || json!({});
    let one = |metadata: Value, spec: Value, name: &'static str, node: &'static str| {
        let cluster = &cluster;
        async move {
            cluster.job(name, metadata, spec, "true").await;
            bind(cluster, name, node).await
        }
    };
    // The node takes its time: given only after half a minute.
    one(none(), none(), "not-started", "n1").await;

    let image = one(none(), none(), "image", "n1").await;
    let pull = json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image \"none\""}});
    report(&cluster, &image, "Pending", pull).await;
    cluster.says("job/image", &["ImageError"], "ImagePullBackOff: Back-off pulling image \"none\".").await;
    let lost = one(none(), none(), "lost", "n2").await;
    report(&cluster, &lost, "Running", json!({"running": {"startedAt": "2026-01-31T12:00:00Z"}})).await;
    cluster.says("job/lost", &[], "").await;
    set_ready(&cluster, "n2", "Unknown").await;
    let said = cluster.says("job/lost", &["NodeLost"], "is on node n2, which does not report.").await;
    assert!(said["evidence"].to_string().contains("Node n2: Ready is Unknown since 2026-01-31T12:00:00Z"), "{said:#}");

    // Pods that terminate, where they are replaced only after that.
    let policy = || json!({"podReplacementPolicy": "Failed"});
    for (name, node) in [("goes", "n1"), ("goes-nowhere", "n2")] {
        let wait = json!({"annotations": {"tally.dev/replace-terminating-after": "24h"}});
        let pod = one(wait, policy(), name, node).await;
        report(&cluster, &pod, "Running", json!({"running": {"startedAt": "2026-01-31T12:00:00Z"}})).await;
        cluster.call(Call::new("DELETE", format!("{pod}?gracePeriodSeconds=3600"))).await;
    }
    let said = cluster.says("job/goes", &["TerminatingPods"], "is replaced only after that").await;
    assert!(said["next"][0]["what"].as_str().unwrap().contains("the grace period of Pod goes-"), "{said:#}");
    let nowhere = "terminates on node n2, which does not report";
    let said = cluster.says("job/goes-nowhere", &["TerminatingOnLostNode"], nowhere).await;
    assert!(said["next"].to_string().contains("tally.dev/replace-terminating-after"), "{said:#}");

    // The verdict is decided, and the Pod does not end.
    let deadline = json!({"activeDeadlineSeconds": 1, "template": {"spec": {"terminationGracePeriodSeconds": 3600}}});
    let pod = one(none(), deadline, "ending", "n1").await;
    report(&cluster, &pod, "Running", json!({"running": {"startedAt": "2026-01-31T12:00:00Z"}})).await;
    let ending = "The Job has failed (DeadlineExceeded: Job was active longer than specified deadline); it ends when";
    cluster.says("job/ending", &["EndingPods"], ending).await;
    let met = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2,
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
        "template": {"spec": {"terminationGracePeriodSeconds": 3600}}});
    cluster.job("met", none(), met, "true").await;
    let pods = cluster.pods("met", 2).await;
    let path = |pod: &Value| format!("/api/v1/namespaces/default/pods/{}", name_of(pod));
    for pod in &pods {
        let binding = json!({"metadata": {"name": name_of(pod)}, "target": {"kind": "Node", "name": "n3"}});
        cluster.create(&format!("{}/binding", path(pod)), &binding).await;
        report(&cluster, &path(pod), "Running", json!({"running": {"startedAt": "2026-01-31T12:00:00Z"}})).await;
    }
    let index = "/metadata/annotations/batch.kubernetes.io~1job-completion-index";
    let first = pods.iter().find(|pod| pod.pointer(index).is_some_and(|index| index == "0")).unwrap();
    let ended = json!({"terminated": {"exitCode": 0, "finishedAt": "2026-01-31T12:00:00Z"}});
    report(&cluster, &path(first), "Succeeded", ended).await;
    let succeeded = "The Job has succeeded (SuccessPolicy: Matched rules at index 0); it ends when its Pods have ended";
    cluster.says("job/met", &["EndingPods"], succeeded).await;
    set_ready(&cluster, "n3", "False").await;
    let lost = "terminates on node n3, which is not ready";
    cluster.says("job/met", &["TerminatingOnLostNode", "EndingPods"], lost).await;

    // Deletion.
    let kept = json!({"finalizers": ["example.com/keep"]});
    cluster.job("kept", kept, json!({"suspend": true}), "true").await;
    cluster.call(Call::new("DELETE", "/apis/batch/v1/namespaces/default/jobs/kept")).await;
    cluster.says("job/kept", &["ForeignFinalizers"], "Job kept is deleted and stays until").await;
    let template = json!({"template": {"metadata": {"finalizers": ["example.com/keep"]}}});
    cluster.job("pods-kept", none(), template, "true").await;
    let pod = cluster.pods("pods-kept", 1).await.remove(0);
    let foreground = json!({"propagationPolicy": "Foreground"});
    cluster.call(Call::new("DELETE", "/apis/batch/v1/namespaces/default/jobs/pods-kept").body(&foreground)).await;
    let stays = format!("it stays until its Pods are gone: Pod {}.", name_of(&pod));
    let expected = ["DeletionWaitsForPods", "ForeignFinalizers"];
    let said = cluster.says("job/pods-kept", &expected, &stays).await;
    assert!(said["reasons"][1]["message"].as_str().unwrap().contains("example.com/keep"), "{said:#}");

    let waits = "Node n1 has not started the containers of Pod not-started-";
    cluster.says("job/not-started", &["NotStarted"], waits).await;
}
