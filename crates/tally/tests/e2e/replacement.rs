//! `podReplacementPolicy`, with Pods that end slowly.

use serde_json::Value;

use crate::expect::{complete, failed};
use crate::job::{Job, waiting_job};
use crate::space::{Space, ended_at, holds, name, seconds};

/// A Job whose Pods end only after a second instruction.
fn slow_job(policy: &str) -> Job {
    let job = waiting_job("a").set("podReplacementPolicy", policy);
    job.pod("terminationGracePeriodSeconds", 3600).does("terminate-after", "30m")
}

async fn let_go(space: &Space<'_>, pod: &Value) {
    space.steer(pod, &[("terminate-after", "0s")]).await;
}

pub async fn terminating_pods_are_replaced(space: &Space<'_>) {
    let a = space.create(&slow_job("TerminatingOrFailed")).await;
    let [old] = space.running(&a, 1).await.try_into().expect("one Pod");
    space.delete_pod(&old, None).await;
    let is_counted = |job: &Value| job["status"]["failed"] == 1 && job["status"]["terminating"] == 1;
    space.job_until("a", "the Pod counts as failed", is_counted).await;
    let [new] = space.running(&a, 1).await.try_into().expect("one Pod");
    assert_ne!(name(&new), name(&old));
    space.pod_until(&old, "it still runs", |pod| pod["status"]["phase"] == "Running").await;

    space.end(&new, 0).await;
    let met = space.job_until("a", "it has succeeded", |job| holds(job, "SuccessCriteriaMet").is_some()).await;
    assert!(holds(&met, "Complete").is_none(), "one of its Pods runs: {:#}", met["status"]);
    let_go(space, &old).await;
    space.ends(&a, complete(1).counts("failed", 1)).await;
}

pub async fn failed_pods_are_replaced(space: &Space<'_>) {
    let a = space.create(&slow_job("Failed")).await;
    let [old] = space.running(&a, 1).await.try_into().expect("one Pod");
    space.delete_pod(&old, None).await;
    let is_counted = |job: &Value| job["status"]["terminating"] == 1;
    let waits = space.job_until("a", "the Pod is terminating", is_counted).await;
    assert_eq!((&waits["status"]["failed"], &waits["status"]["active"]), (&Value::Null, &Value::Null));
    let_go(space, &old).await;
    let [new] = space.running(&a, 1).await.try_into().expect("one Pod");
    space.end(&new, 0).await;
    space.ends(&a, complete(1).counts("failed", 1)).await;
    let lives = space.lives(&a).await;
    let waited = seconds(&new["metadata"]["creationTimestamp"]) - ended_at(&lives[0].last);
    assert!(waited >= 10, "the replacement came {waited} s after the end of the Pod it replaces");
}

pub async fn a_deleted_pod_may_still_succeed(space: &Space<'_>) {
    let a = space.create(&slow_job("Failed").does("terminate-exit-code", "0")).await;
    let [pod] = space.running(&a, 1).await.try_into().expect("one Pod");
    space.delete_pod(&pod, None).await;
    space.job_until("a", "the Pod is terminating", |job| job["status"]["terminating"] == 1).await;
    let_go(space, &pod).await;
    space.ends(&a, complete(1)).await;
}

pub async fn a_job_ends_after_its_pods(space: &Space<'_>) {
    let limited = slow_job("TerminatingOrFailed").set("backoffLimit", 0).set("completions", 2).set("parallelism", 2);
    let a = space.create(&limited).await;
    let pods = space.running(&a, 2).await;
    space.end(&pods[0], 1).await;
    let decided = |job: &Value| holds(job, "FailureTarget").is_some() && job["status"]["terminating"] == 1;
    let waits = space.job_until("a", "it is about to fail", decided).await;
    assert!(holds(&waits, "Failed").is_none(), "one of its Pods runs: {:#}", waits["status"]);
    let_go(space, &pods[1]).await;
    space.ends(&a, failed("BackoffLimitExceeded", 2)).await;
}
