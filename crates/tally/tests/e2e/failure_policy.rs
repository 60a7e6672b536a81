//! `podFailurePolicy`, each of its actions.

use serde_json::{Value, json};

use crate::expect::{complete, failed, failed_with};
use crate::job::{indexed, job, waiting_job};
use crate::space::{Space, name};

fn on_exit_code(action: &str, operator: &str, codes: &[i32]) -> Value {
    json!({"action": action, "onExitCodes": {"operator": operator, "values": codes}})
}

fn rules(rules: &[Value]) -> Value {
    json!({"rules": rules})
}

pub async fn fail_job(space: &Space<'_>) {
    let policy = rules(&[on_exit_code("FailJob", "In", &[42])]);
    let limited = waiting_job("a").set("completions", 2).set("parallelism", 2).set("podFailurePolicy", policy);
    let a = space.create(&limited).await;
    let pods = space.running(&a, 2).await;
    space.end(&pods[0], 42).await;
    let (namespace, pod) = (&space.namespace, name(&pods[0]));
    let message =
        format!("Container main for pod {namespace}/{pod} failed with exit code 42 matching FailJob rule at index 0");
    space.ends(&a, failed_with("PodFailurePolicy", &message, 2)).await;
}

pub async fn fail_index(space: &Space<'_>) {
    let policy = rules(&[on_exit_code("FailIndex", "In", &[42])]);
    let limited = indexed(job("a"), 3, 3).set("backoffLimitPerIndex", 5).set("podFailurePolicy", policy);
    let a = space.create(&limited.does("exit-code", "1=42")).await;
    let expected = failed("FailedIndexes", 1).counts("succeeded", 2);
    space.ends(&a, expected.with("completedIndexes", "0,2").with("failedIndexes", "1")).await;
}

pub async fn ignored_failures_are_replaced(space: &Space<'_>) {
    let policy = rules(&[json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]})]);
    let a = space.create(&waiting_job("a").set("backoffLimit", 0).set("podFailurePolicy", policy)).await;
    let [pod] = space.running(&a, 1).await.try_into().expect("one Pod");
    space.steer(&pod, &[("run-for", "0s"), ("disrupted", "TerminationByKubelet")]).await;
    space.pod_until(&pod, "it has failed", |pod| pod["status"]["phase"] == "Failed").await;
    let [pod] = space.running(&a, 1).await.try_into().expect("one Pod");
    space.end(&pod, 0).await;
    space.ends(&a, complete(1).and_uncounted(1)).await;
}

pub async fn ignored_failures_of_an_index_are_told_to_the_next(space: &Space<'_>) {
    let policy = rules(&[on_exit_code("Ignore", "In", &[7])]);
    let limited = indexed(job("a"), 2, 2).set("backoffLimitPerIndex", 0).set("podFailurePolicy", policy);
    let a = space.create(&limited.does("exit-code", "7").does("fail-times", "1")).await;
    let expected = complete(2).and_uncounted(2);
    space.ends(&a, expected.with("completedIndexes", "0,1").with("failedIndexes", "")).await;
    let counts = |pod: &Value| {
        let annotations = &pod["metadata"]["annotations"];
        let count = |key: &str| annotations[format!("batch.kubernetes.io/job-index-{key}")].clone();
        json!([count("failure-count"), count("ignored-failure-count")])
    };
    let counted: Vec<_> = space.lives(&a).await.iter().map(|life| counts(&life.first)).collect();
    assert_eq!(counted, [json!(["0", null]), json!(["0", null]), json!(["0", "1"]), json!(["0", "1"])]);
}

pub async fn counted_failures_reach_the_limit(space: &Space<'_>) {
    // The first rule that fits decides, and the second would fail the Job for another reason.
    let policy = rules(&[on_exit_code("Count", "In", &[3]), on_exit_code("FailJob", "NotIn", &[0])]);
    let limited = job("a").set("backoffLimit", 0).set("podFailurePolicy", policy).does("exit-code", "3");
    let a = space.create(&limited).await;
    space.ends(&a, failed("BackoffLimitExceeded", 1)).await;
}
