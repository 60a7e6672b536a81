//! `managedBy`: only the named controller acts on the Job.

use serde_json::{Value, json};

use crate::expect::complete;
use crate::job::job;
use crate::space::{FINALIZER, Space, has_finalizer, name, uid};

pub async fn the_job_of_another_stays_untouched(space: &Space<'_>) {
    let theirs = space.create(&job("theirs").set("managedBy", "example.com/another")).await;
    // As the other controller would have created it.
    let mut pod = json!({"metadata": {}, "spec": theirs["spec"]["template"]["spec"].clone()});
    pod["metadata"] = json!({
        "generateName": "theirs-", "labels": theirs["spec"]["template"]["metadata"]["labels"],
        "finalizers": [FINALIZER],
        "ownerReferences": [{
            "apiVersion": "batch/v1", "kind": "Job", "name": "theirs", "uid": uid(&theirs),
            "controller": true, "blockOwnerDeletion": true,
        }],
    });
    let pod = space.api.post(&space.core("pods"), &pod).await;
    let pod = space.pod_until(&pod, "it has succeeded", |pod| pod["status"]["phase"] == "Succeeded").await;
    space.delete_pod(&pod, None).await;

    // As the other controller reports. What this one would write is different: no Pod is active, and one has succeeded.
    let status = json!({"active": 5, "ready": 3, "failed": 7, "terminating": 2, "startTime": "2026-01-31T12:00:00Z"});
    let path = space.batch("jobs/theirs/status");
    space.api.patch(&path, &json!({"status": status})).await.ok();
    let theirs = space.job("theirs").await.expect("it is there");

    // The controller that serves this Job has observed the other one.
    let ours = space.create(&job("ours").set("completions", 2)).await;
    space.ends(&ours, complete(2)).await;
    let after = space.job("theirs").await.expect("it stays");
    assert_eq!(after, theirs);
    let kept = space.pod_until(&pod, "it is still there", |_| true).await;
    assert!(has_finalizer(&kept, FINALIZER), "it is for the other to count it");
    assert_eq!(space.lives(&theirs).await.len(), 1, "the one created here");

    let path = space.core(&format!("pods/{}", name(&pod)));
    space.api.patch(&path, &json!({"metadata": {"finalizers": Value::Null}})).await.ok();
    space.pod_gone(&pod).await;
}
