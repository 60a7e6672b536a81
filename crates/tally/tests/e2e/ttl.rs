//! `ttlSecondsAfterFinished`.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::expect::complete;
use crate::job::job;
use crate::space::{Space, has_finalizer, holds, seconds};

const HOLD: &str = "example.com/hold";

fn is_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

pub async fn a_job_and_its_pods_go(space: &Space<'_>) {
    let a = space.create(&job("a").set("completions", 2).set("parallelism", 2).set("ttlSecondsAfterFinished", 0)).await;
    space.job_gone("a").await;
    space.no_pods().await;
    let lives = space.lives(&a).await;
    let ends: Vec<_> = lives.iter().map(|life| (life.phase(), life.gone)).collect();
    assert_eq!(ends, [("Succeeded", true); 2], "all of its Pods, and they before it");
}

pub async fn set_after_the_finish(space: &Space<'_>) {
    let a = space.create(&job("a")).await;
    space.ends(&a, complete(1)).await;
    space.change("a", json!({"ttlSecondsAfterFinished": 3600})).await;
    space.change("a", json!({"ttlSecondsAfterFinished": 1})).await;
    space.job_gone("a").await;
    space.no_pods().await;
}

pub async fn removed_after_the_finish(space: &Space<'_>) {
    let a = space.create(&job("a").set("ttlSecondsAfterFinished", 15)).await;
    space.job_until("a", "it is complete", |job| holds(job, "Complete").is_some()).await;
    space.change("a", json!({"ttlSecondsAfterFinished": null})).await;
    let ended = space.ends(&a, complete(1)).await;
    let finished = seconds(&holds(&ended, "Complete").expect("it did")["lastTransitionTime"]);
    let over = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(finished + 18).expect("a time"));
    // Only waiting can show that something does not happen.
    tokio::time::sleep(over.duration_since(SystemTime::now()).unwrap_or_default()).await;
    let stays = space.job("a").await.expect("a Job without a time to live stays");
    assert!(!is_deleted(&stays), "{:#}", stays["metadata"]);
    space.change("a", json!({"ttlSecondsAfterFinished": 1})).await;
    space.job_gone("a").await;
    space.no_pods().await;
}

pub async fn a_foreign_finalizer_holds_the_job(space: &Space<'_>) {
    let a = space.create(&job("a").set("ttlSecondsAfterFinished", 1).meta("finalizers", json!([HOLD]))).await;
    let ended = space.ends(&a, complete(1)).await;
    let is_held = |job: &Value| is_deleted(job) && job["metadata"]["finalizers"] == json!([HOLD]);
    let held = space.job_until("a", "only the foreign finalizer is left", is_held).await;
    assert_eq!(held["status"], ended["status"]);
    space.no_pods().await;
    space.patch_job("a", json!({"metadata": {"finalizers": null}})).await.ok();
    space.job_gone("a").await;
}

pub async fn a_foreign_finalizer_holds_a_pod(space: &Space<'_>) {
    let mut held = job("a").set("ttlSecondsAfterFinished", 1);
    held.0["spec"]["template"]["metadata"]["finalizers"] = json!([HOLD]);
    let a = space.create(&held).await;
    space.ends(&a, complete(1)).await;
    let waits = space.job_until("a", "it is deleted", is_deleted).await;
    assert!(has_finalizer(&waits, "foregroundDeletion"), "{:#}", waits["metadata"]);
    let pod = space.lives(&a).await[0].last.clone();
    let is_held = |pod: &Value| is_deleted(pod) && pod["metadata"]["finalizers"] == json!([HOLD]);
    let pod = space.pod_until(&pod, "only the foreign finalizer is left", is_held).await;
    assert!(space.job("a").await.is_some(), "the Job waits for its Pod");
    let path = space.core(&format!("pods/{}", crate::space::name(&pod)));
    space.api.patch(&path, &json!({"metadata": {"finalizers": null}})).await.ok();
    space.job_gone("a").await;
}
