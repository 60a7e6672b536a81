//! Jobs that are deleted while their Pods run: in every case the Pods lose the tracking finalizer.

use serde_json::Value;

use crate::expect::complete;
use crate::job::{Job, job, waiting_job};
use crate::space::{FINALIZER, Space, has_finalizer, name, uid};
use crate::truth::controller;

fn two_pods() -> Job {
    waiting_job("a").set("completions", 2).set("parallelism", 2)
}

/// A Job whose Pods end only after a second instruction.
fn two_slow_pods() -> Job {
    two_pods().pod("terminationGracePeriodSeconds", 3600).does("terminate-after", "30m")
}

fn is_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

pub async fn in_the_background(space: &Space<'_>) {
    let a = space.create(&two_pods()).await;
    space.running(&a, 2).await;
    space.delete_job("a", "Background").await;
    space.job_gone("a").await;
    space.no_pods().await;
    let lives = space.lives(&a).await;
    assert!(lives.len() == 2 && lives.iter().all(|life| life.gone), "nothing took their place");
}

pub async fn in_the_foreground(space: &Space<'_>) {
    let a = space.create(&two_slow_pods()).await;
    let pods = space.running(&a, 2).await;
    space.delete_job("a", "Foreground").await;
    for pod in &pods {
        space
            .pod_until(pod, "it is deleted and released", |pod| is_deleted(pod) && !has_finalizer(pod, FINALIZER))
            .await;
    }
    let waits = space.job("a").await.expect("the Job waits for its Pods");
    assert!(is_deleted(&waits) && has_finalizer(&waits, "foregroundDeletion"), "{waits:#}");
    for pod in &pods {
        space.steer(pod, &[("terminate-after", "0s")]).await;
    }
    space.job_gone("a").await;
    assert_eq!(space.pods().await, [] as [Value; 0], "Pods go before their Job");
    assert_eq!(space.lives(&a).await.len(), 2);
}

pub async fn with_orphans(space: &Space<'_>) {
    let a = space.create(&two_pods()).await;
    let pods = space.running(&a, 2).await;
    space.delete_job("a", "Orphan").await;
    space.job_gone("a").await;
    let is_free = |pod: &Value| controller(pod).is_none() && !has_finalizer(pod, FINALIZER);
    for pod in &pods {
        let pod = space.pod_until(pod, "it is nobody's", is_free).await;
        assert!(!is_deleted(&pod) && pod["status"]["phase"] == "Running", "{pod:#}");
        space.end(&pod, 0).await;
    }
    let lives = space.lives(&a).await;
    assert!(lives.len() == 2 && lives.iter().all(|life| !life.gone), "they stay, and nothing took their place");
}

pub async fn and_created_again_under_the_same_name(space: &Space<'_>) {
    let old = space.create(&two_slow_pods()).await;
    let pods = space.running(&old, 2).await;
    space.end(&pods[0], 0).await;
    space.job_until("a", "one Pod has succeeded", |job| job["status"]["succeeded"] == 1).await;
    space.delete_job("a", "Background").await;
    space.job_gone("a").await;
    let new = space.create(&job("a").set("completions", 2)).await;
    assert_ne!(uid(&new), uid(&old));
    space.ends(&new, complete(2)).await;

    let is_over = |pod: &Value| is_deleted(pod) && !has_finalizer(pod, FINALIZER);
    let pod = space.pod_until(&pods[1], "it ends, counted by nobody", is_over).await;
    space.steer(&pod, &[("terminate-after", "0s")]).await;
    space.pod_gone(&pod).await;
    space.pod_gone(&pods[0]).await;
    let lives = space.lives(&old).await;
    let names: Vec<_> = lives.iter().map(|life| name(&life.last)).collect();
    assert!(lives.len() == 2 && lives.iter().all(|life| life.gone), "{names:?}");
}
