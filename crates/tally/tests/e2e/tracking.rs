//! Counting: every Pod once, also if Pods are deleted meanwhile.

use std::time::Duration;

use serde_json::json;

use crate::expect::complete;
use crate::job::{job, waiting_job};
use crate::space::{Space, name, phase};

pub async fn pods_are_counted_once(space: &Space<'_>) {
    let a = space.create(&job("a").set("completions", 60).set("parallelism", 20)).await;
    space.ends(&a, complete(60)).await;
}

pub async fn pods_deleted_as_they_end_are_counted_once(space: &Space<'_>) {
    let a = space.create(&job("a").set("completions", 12).set("parallelism", 3).does("run-for", "100ms")).await;
    let delete_those_that_ended = async || {
        for pod in space.pods().await.iter().filter(|pod| phase(pod) == "Succeeded") {
            // The Pod may be deleted already.
            space.api.delete(&space.core(&format!("pods/{}", name(pod))), &json!({})).await;
        }
    };
    let for_ever = async {
        loop {
            delete_those_that_ended().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let ended = tokio::select! {
        ended = space.ends(&a, complete(12)) => ended,
        () = for_ever => unreachable!(),
    };
    delete_those_that_ended().await;
    space.no_pods().await;
    let now = space.job("a").await.expect("the Job stays");
    assert_eq!(now["status"], ended["status"]);
}

pub async fn pods_deleted_while_they_run_have_failed(space: &Space<'_>) {
    let a = space.create(&waiting_job("a").set("completions", 3).set("parallelism", 3)).await;
    let pods = space.running(&a, 3).await;
    space.delete_pod(&pods[0], None).await;
    space.pod_gone(&pods[0]).await;
    space.job_until("a", "one Pod has failed", |job| job["status"]["failed"] == 1).await;
    let pods = space.running(&a, 3).await;
    space.end_all(&pods, 0).await;
    space.ends(&a, complete(3).counts("failed", 1)).await;
}

pub async fn a_work_queue_ends_with_its_pods(space: &Space<'_>) {
    let a = space.create(&waiting_job("a").set("parallelism", 3)).await;
    let pods = space.running(&a, 3).await;
    space.end(&pods[0], 0).await;
    space.job_until("a", "a Pod has succeeded", |job| job["status"]["succeeded"] == 1).await;
    // The Pod is not replaced: the Job has succeeded, and the other Pods only finish their work.
    space.end(&pods[1], 1).await;
    let is_counted = |job: &serde_json::Value| job["status"]["failed"] == 1 && job["status"]["active"] == 1;
    space.job_until("a", "a Pod has failed", is_counted).await;
    space.end(&pods[2], 0).await;
    space.ends(&a, complete(2).counts("failed", 1)).await;
}

pub async fn pods_removed_by_scaling_down_have_not_failed(space: &Space<'_>) {
    let a = space.create(&waiting_job("a").set("completions", 3).set("parallelism", 3)).await;
    space.running(&a, 3).await;
    space.change("a", json!({"parallelism": 1})).await;
    let [left] = space.running(&a, 1).await.try_into().expect("one Pod");
    space.change("a", json!({"parallelism": 3})).await;
    let pods = space.running(&a, 3).await;
    assert!(pods.iter().any(|pod| name(pod) == name(&left)), "the Pod that was left goes on");
    space.end_all(&pods, 0).await;
    space.ends(&a, complete(3).and_uncounted(2)).await;
    let (deleted, messages) = space.events(&a, "Normal", "SuccessfulDelete").await;
    assert_eq!(deleted, 2, "{messages:?}");
}

pub async fn no_completions_no_pods(space: &Space<'_>) {
    let a = space.create(&job("a").set("completions", 0)).await;
    space.ends(&a, complete(0)).await;
}
