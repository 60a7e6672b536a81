//! Dependents are deleted with their last owner, and not before.

use serde_json::{Value, json};

use crate::expect::complete;
use crate::job::{job, waiting_job};
use crate::space::{Space, name, uid};

fn reference(api_version: &str, kind: &str, owner: &Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name(owner), "uid": uid(owner)})
}

pub async fn a_job_goes_with_its_owner(space: &Space<'_>) {
    let owner = space.api.post(&space.core("configmaps"), &json!({"metadata": {"name": "owner"}})).await;
    let owners = json!([reference("v1", "ConfigMap", &owner)]);
    let a = space
        .create(&waiting_job("a").set("completions", 2).set("parallelism", 2).meta("ownerReferences", owners))
        .await;
    space.running(&a, 2).await;
    space.api.delete(&space.core("configmaps/owner"), &json!({})).await.ok();
    space.job_gone("a").await;
    space.no_pods().await;
    assert_eq!(space.lives(&a).await.len(), 2);
}

pub async fn what_has_another_owner_stays(space: &Space<'_>) {
    let (a, b) = (space.create(&job("a")).await, space.create(&job("b")).await);
    space.ends(&a, complete(1)).await;
    space.ends(&b, complete(1)).await;
    let owners = [&a, &b].map(|job| reference("batch/v1", "Job", job));
    let shared = json!({"metadata": {"name": "shared", "ownerReferences": owners}});
    space.api.post(&space.core("configmaps"), &shared).await;
    let path = space.core("configmaps/shared");

    space.delete_job("a", "Background").await;
    let left = json!([reference("batch/v1", "Job", &b)]);
    space
        .until("it has one owner less", async || {
            let map = space.api.get(&path).await.found().expect("one of its owners is there");
            (map["metadata"]["ownerReferences"] == left).then_some(())
        })
        .await;
    space.delete_job("b", "Background").await;
    space.until("it is gone", async || space.api.get(&path).await.found().is_none().then_some(())).await;
    space.no_pods().await;
}
