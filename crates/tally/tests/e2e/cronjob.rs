//! A CronJob, once.

use serde_json::{Value, json};

use crate::expect::complete;
use crate::job::job;
use crate::space::{Space, name, seconds, uid};
use crate::truth::controller;

pub async fn a_job_for_a_scheduled_time(space: &Space<'_>) {
    let template = job("template").in_cluster(space.cluster);
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": template["spec"]}},
    });
    let cron = space.api.post(&space.batch("cronjobs"), &cron).await;
    let path = space.batch("cronjobs/c");
    let is_child = |job: &Value| controller(job).is_some_and(|owner| owner["uid"] == uid(&cron));
    let child = space
        .until("a Job is created", async || {
            let jobs = space.api.get(&space.batch("jobs")).await.ok();
            jobs["items"].as_array()?.iter().find(|job| is_child(job)).cloned()
        })
        .await;
    space.api.patch(&path, &json!({"spec": {"suspend": true}})).await.ok();
    let scheduled = &child["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    let scheduled = seconds(scheduled);
    assert_eq!(name(&child), format!("c-{}", scheduled / 60));
    assert!(scheduled % 60 == 0 && scheduled > seconds(&cron["metadata"]["creationTimestamp"]), "{scheduled}");

    let ended = space.ends(&child, complete(1)).await;
    let status = space
        .until("the CronJob knows", async || {
            let cron = space.api.get(&path).await.ok();
            (!cron["status"]["lastSuccessfulTime"].is_null() && cron["status"]["active"].is_null())
                .then(|| cron["status"].clone())
        })
        .await;
    assert_eq!(status["lastSuccessfulTime"], ended["status"]["completionTime"]);
    assert_eq!(seconds(&status["lastScheduleTime"]), scheduled);
    space.event(&cron, "Normal", "SuccessfulCreate", &format!("Created job {}", name(&child))).await;
    let saw = format!("Saw completed job: {}, condition: Complete", name(&child));
    space.event(&cron, "Normal", "SawCompletedJob", &saw).await;

    space.api.delete(&path, &json!({"propagationPolicy": "Background"})).await.ok();
    space.job_gone(name(&child)).await;
    space.no_pods().await;
}
