//! Pods that others remove: a user by force, the Pod garbage collector, a lost node.

use serde_json::{Value, json};

use crate::cluster::{SPARE, SPARE_TAINT};
use crate::expect::{complete, failed};
use crate::job::waiting_job;
use crate::space::{Space, holds, name, uid};
use crate::truth::controller;

/// The label that selects the node for the Pods of a namespace.
const PLACE: &str = "e2e.tally.dev/place";

async fn first_pod(space: &Space<'_>, job: &Value, not: &str) -> Value {
    let is_one = |pod: &Value| controller(pod).is_some_and(|owner| owner["uid"] == uid(job)) && uid(pod) != not;
    space.until("there is a Pod", async || space.pods().await.into_iter().find(is_one)).await
}

pub async fn a_pod_killed_by_a_user(space: &Space<'_>) {
    let a = space.create(&waiting_job("a").set("backoffLimit", 1)).await;
    let [pod] = space.running(&a, 1).await.try_into().expect("one Pod");
    space.delete_pod(&pod, Some(0)).await;
    space.pod_gone(&pod).await;
    space.job_until("a", "the Pod counts as failed", |job| job["status"]["failed"] == 1).await;
    let [pod] = space.running(&a, 1).await.try_into().expect("one Pod");
    space.end(&pod, 0).await;
    space.ends(&a, complete(1).counts("failed", 1)).await;
}

pub async fn a_pod_that_never_had_a_node(space: &Space<'_>) {
    let gates = json!([{"name": "e2e.tally.dev/never"}]);
    let gated = waiting_job("a").pod("schedulingGates", gates).set("podReplacementPolicy", "Failed");
    let a = space.create(&gated.set("backoffLimit", 0)).await;
    let pod = first_pod(space, &a, "").await;
    space.delete_pod(&pod, None).await;
    // No node reports that it has ended; the Pod garbage collector does.
    space.ends(&a, failed("BackoffLimitExceeded", 1)).await;
    space.pod_gone(&pod).await;
    assert_eq!(space.lives(&a).await[0].phase(), "Failed");
}

pub async fn a_lost_node(space: &Space<'_>) {
    let ignore = json!({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]});
    let placed = waiting_job("a")
        .pod("nodeSelector", json!({PLACE: space.namespace}))
        .pod("tolerations", json!([{"key": SPARE_TAINT, "operator": "Exists"}]));
    place_at(space, SPARE).await;
    let a = space.create(&placed.set("podFailurePolicy", ignore).set("backoffLimit", 0)).await;
    let lost = first_pod(space, &a, "").await;
    bind(space, &lost, SPARE).await;
    let [lost] = space.running(&a, 1).await.try_into().expect("one Pod");
    assert_eq!(lost["spec"]["nodeName"], SPARE);

    space.api.delete(&format!("/api/v1/nodes/{SPARE}"), &json!({})).await.ok();
    place_at(space, "hollow-0").await;
    let found = first_pod(space, &a, uid(&lost)).await;
    bind(space, &found, "hollow-0").await;
    let [found] = space.running(&a, 1).await.try_into().expect("one Pod");
    assert_eq!(found["spec"]["nodeName"], "hollow-0");
    space.end(&found, 0).await;
    space.ends(&a, complete(1).and_uncounted(1)).await;

    let lives = space.lives(&a).await;
    let lost = lives.iter().find(|life| name(&life.last) == name(&lost)).expect("it was there");
    assert!(lost.gone && lost.phase() == "Failed", "{:#}", lost.last["status"]);
    let why = holds(&lost.last, "DisruptionTarget").expect("a disruption");
    assert_eq!(why["reason"], "DeletionByPodGC");

    // Restores the node for the next case.
    let labels = json!({"kubernetes.io/hostname": SPARE, "hollow.tally.dev/node": "true"});
    space.api.post("/api/v1/nodes", &json!({"metadata": {"name": SPARE, "labels": labels}})).await;
    space.api.patch("/api/v1/nodes/hollow-0", &json!({"metadata": {"labels": {PLACE: null}}})).await.ok();
}

async fn place_at(space: &Space<'_>, node: &str) {
    let labels = json!({"metadata": {"labels": {PLACE: space.namespace}}});
    space.api.patch(&format!("/api/v1/nodes/{node}"), &labels).await.ok();
}

/// Binds a Pod as a scheduler does, for a foreign cluster that has none.
async fn bind(space: &Space<'_>, pod: &Value, node: &str) {
    if !space.cluster.foreign {
        return;
    }
    let binding =
        json!({"metadata": {"name": name(pod)}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
    let path = space.core(&format!("pods/{}/binding", name(pod)));
    let answer = space.api.call(hyper::Method::POST, &path, "application/json", &binding).await;
    assert!([201, 409].contains(&answer.code), "{} {:#}", answer.code, answer.body);
}
