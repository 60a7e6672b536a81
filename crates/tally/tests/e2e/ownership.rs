//! A Job adopts and releases Pods by their labels.

use serde_json::{Value, json};

use crate::expect::complete;
use crate::job::{FOR_EVER, job, waiting_job};
use crate::space::{FINALIZER, Space, has_finalizer, uid};
use crate::truth::controller;

async fn stray(space: &Space<'_>, owner: Option<Value>) -> Value {
    let mut pod = json!({
        "metadata": {
            "generateName": "stray-", "labels": {"app": "stray"},
            "annotations": {"hollow.tally.dev/run-for": FOR_EVER},
        },
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "hollow"}]},
    });
    if let Some(owner) = owner {
        pod["metadata"]["ownerReferences"] = json!([owner]);
    }
    if space.cluster.foreign {
        pod["spec"]["nodeName"] = "hollow-0".into();
    }
    let made = space.api.post(&space.core("pods"), &pod).await;
    space.pod_until(&made, "it runs", |pod| pod["status"]["phase"] == "Running").await
}

/// OWN-2, OWN-5.
pub async fn pods_are_adopted(space: &Space<'_>) {
    let map = json!({"metadata": {"name": "owner"}});
    let map = space.api.post(&space.core("configmaps"), &map).await;
    let owner = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid(&map), "controller": true,
    });
    let theirs = stray(space, Some(owner)).await;
    let ours = stray(space, None).await;
    // A controller that has counted this Job has observed the Pods before it.
    let witness = space.create(&job("witness")).await;
    space.ends(&witness, complete(1)).await;

    let mut adopting = waiting_job("a").set("manualSelector", true);
    adopting = adopting.set("selector", json!({"matchLabels": {"app": "stray"}}));
    adopting.0["spec"]["template"]["metadata"]["labels"] = json!({"app": "stray"});
    let a = space.create(&adopting).await;
    let is_adopted = |pod: &Value| {
        let expected = json!({
            "apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": uid(&a),
            "controller": true, "blockOwnerDeletion": true,
        });
        controller(pod) == Some(&expected) && has_finalizer(pod, FINALIZER)
    };
    space.pod_until(&ours, "it is adopted", is_adopted).await;
    space.end(&ours, 0).await;
    space.ends(&a, complete(1).adopted(1)).await;
    let after = space.pod_until(&theirs, "it is still there", |_| true).await;
    assert_eq!(after["metadata"], theirs["metadata"], "the Pod of somebody else");
}

pub async fn pods_are_released(space: &Space<'_>) {
    let a = space.create(&waiting_job("a").set("completions", 2).set("parallelism", 2)).await;
    let pods = space.running(&a, 2).await;
    let path = space.core(&format!("pods/{}", crate::space::name(&pods[0])));
    let label = json!({"metadata": {"labels": {"batch.kubernetes.io/controller-uid": "released"}}});
    space.api.patch(&path, &label).await.ok();
    let is_free = |pod: &Value| controller(pod).is_none() && !has_finalizer(pod, FINALIZER);
    space.pod_until(&pods[0], "it is released", is_free).await;
    let pods = space.running(&a, 2).await;
    space.end_all(&pods, 0).await;
    space.ends(&a, complete(2).and_uncounted(1)).await;
    let released = space.api.get(&path).await.ok();
    assert_eq!(released["status"]["phase"], "Running", "nobody ended it");
}
