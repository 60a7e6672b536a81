//! `activeDeadlineSeconds`.

use std::time::Duration;

use serde_json::json;

use crate::expect::{condition, failed};
use crate::job::waiting_job;
use crate::space::{Space, holds, seconds};

pub async fn running_pods_are_ended(space: &Space<'_>) {
    let limited = waiting_job("a").set("completions", 2).set("parallelism", 2).set("activeDeadlineSeconds", 8);
    let a = space.create(&limited).await;
    let ended = space.ends(&a, failed("DeadlineExceeded", 2)).await;
    let decided = &holds(&ended, "FailureTarget").expect("it failed")["lastTransitionTime"];
    assert!(seconds(decided) - seconds(&ended["status"]["startTime"]) >= 8, "{:#}", ended["status"]);
}

pub async fn it_stands_still_while_suspended(space: &Space<'_>) {
    let a = space.create(&waiting_job("a").set("suspend", true).set("activeDeadlineSeconds", 6)).await;
    space.job_until("a", "it is suspended", |job| holds(job, "Suspended").is_some()).await;
    // Only waiting can show that something does not happen.
    tokio::time::sleep(Duration::from_secs(8)).await;
    let waits = space.job("a").await.expect("the Job stays");
    assert!(holds(&waits, "FailureTarget").is_none() && waits["status"]["startTime"].is_null(), "{waits:#}");
    space.change("a", json!({"suspend": false})).await;
    let resumed = condition("Suspended", "False", "JobResumed", "Job resumed");
    let ended = space.ends(&a, failed("DeadlineExceeded", 1).after(resumed)).await;
    let waited = seconds(&ended["status"]["startTime"]) - seconds(&a["metadata"]["creationTimestamp"]);
    assert!(waited >= 7, "its clock began {waited} s after its creation");
}
