//! Suspended Jobs, and what may be changed while they are suspended.

use serde_json::{Value, json};

use crate::expect::{complete, condition, without_times};
use crate::job::{indexed, job, waiting_job};
use crate::space::{Space, holds};

const ANYWHERE: &str = "hollow.tally.dev/node";

fn resumed() -> Value {
    condition("Suspended", "False", "JobResumed", "Job resumed")
}

fn suspended_status() -> Value {
    json!({
        "conditions": [condition("Suspended", "True", "JobSuspended", "Job suspended")],
        "ready": 0, "terminating": 0, "uncountedTerminatedPods": {},
    })
}

/// EVENT-8.
pub async fn directives_change_while_suspended(space: &Space<'_>) {
    let a = space.create(&job("a").set("suspend", true)).await;
    let suspended = space.job_until("a", "it is suspended", |job| holds(job, "Suspended").is_some()).await;
    assert_eq!(without_times(&suspended["status"]), suspended_status());
    space.event(&a, "Normal", "Suspended", "Job suspended").await;
    assert_eq!(space.lives(&a).await.len(), 0, "a Job that was never resumed has no Pods");

    let requests = json!({"requests": {"cpu": "250m"}});
    let template = json!({
        "metadata": {"labels": {"color": "green"}, "annotations": {"example.com/queue": "fast"}},
        "spec": {
            "nodeSelector": {ANYWHERE: "true"},
            "tolerations": [{"key": "example.com/any", "operator": "Exists"}],
            "containers": [{"name": "main", "image": "hollow", "resources": requests}],
        },
    });
    space.change("a", json!({"template": template})).await;
    space.change("a", json!({"suspend": false})).await;
    space.ends(&a, complete(1).after(resumed())).await;
    space.event(&a, "Normal", "Resumed", "Job resumed").await;

    let pod = &space.lives(&a).await[0].first;
    assert_eq!(pod["spec"]["nodeSelector"], json!({ANYWHERE: "true"}));
    assert_eq!(pod["spec"]["tolerations"][0]["key"], "example.com/any");
    assert_eq!(pod["spec"]["containers"][0]["resources"], requests);
    assert_eq!(pod["metadata"]["labels"]["color"], "green");
    assert_eq!(pod["metadata"]["annotations"]["example.com/queue"], "fast");
}

/// SUSP-7, SUSP-8, EVENT-8.
pub async fn a_running_job_is_suspended_and_resumed(space: &Space<'_>) {
    let a = space.create(&indexed(waiting_job("a"), 3, 3)).await;
    let pods = space.running(&a, 3).await;
    space.end(&pods[0], 0).await;
    space.job_until("a", "an index is done", |job| job["status"]["completedIndexes"] == "0").await;
    let directive = json!({"spec": {"template": {"spec": {"nodeSelector": {ANYWHERE: "true"}}}}});
    assert_eq!(space.patch_job("a", directive.clone()).await.code, 422, "its Pods run");

    space.change("a", json!({"suspend": true})).await;
    let suspended = space.job_until("a", "it is suspended", |job| holds(job, "Suspended").is_some()).await;
    assert_eq!(suspended["status"]["active"], Value::Null, "whoever sees the condition may change the template");
    for pod in &pods[1..] {
        space.pod_gone(pod).await;
    }
    let is_over = |job: &Value| holds(job, "Suspended").is_some() && job["status"]["terminating"] == 0;
    let suspended = space.job_until("a", "it is suspended", is_over).await;
    let mut expected = suspended_status();
    expected["succeeded"] = 1.into();
    expected["completedIndexes"] = "0".into();
    assert_eq!(without_times(&suspended["status"]), expected);

    space.patch_job("a", directive).await.ok();
    space.change("a", json!({"suspend": false})).await;
    let pods = space.running(&a, 2).await;
    assert!(pods.iter().all(|pod| pod["spec"]["nodeSelector"] == json!({ANYWHERE: "true"})), "{pods:#?}");
    space.end_all(&pods, 0).await;
    let expected = complete(3).and_uncounted(2).with("completedIndexes", "0-2").after(resumed());
    let ended = space.ends(&a, expected).await;
    let started = |job: &Value| job["status"]["startTime"].as_str().unwrap_or_default().to_owned();
    let stopped = holds(&suspended, "Suspended").expect("it was")["lastTransitionTime"].clone();
    assert!(started(&ended).as_str() >= stopped.as_str().unwrap_or_default(), "its clock begins anew");
    space.event(&a, "Normal", "Suspended", "Job suspended").await;
    space.event(&a, "Normal", "Resumed", "Job resumed").await;
}
