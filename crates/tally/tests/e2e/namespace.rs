//! The deletion of a namespace deletes everything in it.

use serde_json::{Value, json};

use crate::expect::complete;
use crate::job::{job, waiting_job};
use crate::space::{FINALIZER, Space, has_finalizer, uid};

/// MANAGE-10.
pub async fn it_takes_running_jobs_along(space: &Space<'_>) {
    let inner = Space::new(space.cluster, "namespace::inner").await;
    let done = inner.create(&job("done").set("completions", 2)).await;
    inner.ends(&done, complete(2)).await;
    let slow = waiting_job("a").set("completions", 4).set("parallelism", 2);
    let slow = slow.pod("terminationGracePeriodSeconds", 3600).does("terminate-after", "30m");
    let a = inner.create(&slow).await;
    let pods = inner.running(&a, 2).await;
    inner.create(&job("waits").set("suspend", true)).await;
    let path = format!("/api/v1/namespaces/{}", inner.namespace);
    space.api.delete(&path, &json!({})).await.ok();

    let is_over = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null() && !has_finalizer(pod, FINALIZER);
    for pod in &pods {
        inner.pod_until(pod, "it is deleted and released", is_over).await;
        inner.steer(pod, &[("terminate-after", "0s")]).await;
    }
    space.until("the namespace is gone", async || space.api.get(&path).await.found().is_none().then_some(())).await;
    let all_gone = async || {
        let lives = inner.truth.of(uid(&a));
        assert_eq!(lives.len(), 2, "nothing is created in a namespace that goes");
        lives.iter().all(|life| life.gone).then_some(())
    };
    space.until("its Pods are gone", all_gone).await;
    assert_eq!(inner.truth.problems(), Vec::<String>::new());
}
