//! Where all controllers run and the test acts as the nodes: what only a node with images, or a lost node, can show.

use serde_json::{Value, json};

use crate::support::client::Call;
use crate::support::server::{self, Server};
use crate::tool::{Cluster, name_of};

/// What this part shows.
pub const REASONS: [&str; 8] = [
    "DeletionWaitsForPods",
    "EndingPods",
    "ForeignFinalizers",
    "ImageError",
    "NodeLost",
    "NotStarted",
    "TerminatingOnLostNode",
    "TerminatingPods",
];

#[tokio::test(flavor = "multi_thread")]
async fn what_nodes_report_is_explained() {
    let directory = server::directory();
    let cluster = Cluster::of(Server::start_cluster(directory.path()).await, directory);
    for node in ["n1", "n2", "n3"] {
        cluster.add_node(node).await;
    }
    let none = || json!({});
    let one = |metadata: Value, spec: Value, name: &'static str, node: &'static str| {
        let cluster = &cluster;
        async move {
            cluster.job(name, metadata, spec, "true").await;
            cluster.bind(&cluster.pods(name, 1).await[0], node).await
        }
    };
    // The node takes its time: given only after half a minute.
    one(none(), none(), "not-started", "n1").await;

    let image = one(none(), none(), "image", "n1").await;
    let pull = json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image \"none\""}});
    cluster.report(&image, "Pending", pull).await;
    cluster.says("job/image", &["ImageError"], "ImagePullBackOff: Back-off pulling image \"none\".").await;
    let lost = one(none(), none(), "lost", "n2").await;
    cluster.report_running(&lost).await;
    cluster.says("job/lost", &[], "").await;
    cluster.set_ready("n2", "Unknown").await;
    let said = cluster.says("job/lost", &["NodeLost"], "is on node n2, which does not report.").await;
    assert!(said["evidence"].to_string().contains("Node n2: Ready is Unknown since 2026-01-31T12:00:00Z"), "{said:#}");

    // Pods that terminate, where they are replaced only after that.
    let policy = || json!({"podReplacementPolicy": "Failed"});
    for (name, node) in [("goes", "n1"), ("goes-nowhere", "n2")] {
        let wait = json!({"annotations": {"tally.dev/replace-terminating-after": "24h"}});
        let pod = one(wait, policy(), name, node).await;
        cluster.report_running(&pod).await;
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
    cluster.report_running(&pod).await;
    let ending = "The Job has failed (DeadlineExceeded: Job was active longer than specified deadline); it ends when";
    cluster.says("job/ending", &["EndingPods"], ending).await;
    let met = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2,
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
        "template": {"spec": {"terminationGracePeriodSeconds": 3600}}});
    cluster.job("met", none(), met, "true").await;
    let pods = cluster.pods("met", 2).await;
    let path = |pod: &Value| format!("/api/v1/namespaces/default/pods/{}", name_of(pod));
    for pod in &pods {
        let path = cluster.bind(pod, "n3").await;
        cluster.report_running(&path).await;
    }
    let index = "/metadata/annotations/batch.kubernetes.io~1job-completion-index";
    let first = pods.iter().find(|pod| pod.pointer(index).is_some_and(|index| index == "0")).unwrap();
    let ended = json!({"terminated": {"exitCode": 0, "finishedAt": "2026-01-31T12:00:00Z"}});
    cluster.report(&path(first), "Succeeded", ended).await;
    let succeeded = "The Job has succeeded (SuccessPolicy: Matched rules at index 0); it ends when its Pods have ended";
    cluster.says("job/met", &["EndingPods"], succeeded).await;
    cluster.set_ready("n3", "False").await;
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
    cluster.seen.are(&REASONS);
}
