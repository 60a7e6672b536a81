//! `successPolicy`: the Job is complete before all indexes are.

use serde_json::json;

use crate::expect::complete_by;
use crate::job::{indexed, waiting_job};
use crate::space::{Space, holds};

pub async fn an_index_decides(space: &Space<'_>) {
    let policy = json!({"rules": [{"succeededIndexes": "0"}]});
    let a = space.create(&indexed(waiting_job("a"), 3, 3).set("successPolicy", policy)).await;
    let pods = space.running(&a, 3).await;
    space.end(&pods[0], 0).await;
    let expected = complete_by("SuccessPolicy", "Matched rules at index 0", 1);
    // The other Pods are ended and do not count as failures.
    space.ends(&a, expected.and_uncounted(2).with("completedIndexes", "0")).await;
}

pub async fn a_count_decides(space: &Space<'_>) {
    let policy = json!({"rules": [{"succeededCount": 4}, {"succeededIndexes": "1-3", "succeededCount": 2}]});
    let a = space.create(&indexed(waiting_job("a"), 5, 5).set("successPolicy", policy)).await;
    let pods = space.running(&a, 5).await;
    space.end_all(&pods[..2], 0).await;
    let two = space.job_until("a", "two indexes are done", |job| job["status"]["completedIndexes"] == "0,1").await;
    assert!(holds(&two, "SuccessCriteriaMet").is_none(), "{two:#}");
    space.end(&pods[3], 0).await;
    let expected = complete_by("SuccessPolicy", "Matched rules at index 1", 3);
    space.ends(&a, expected.and_uncounted(2).with("completedIndexes", "0,1,3")).await;
}
