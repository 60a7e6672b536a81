//! Indexed Jobs, also those that grow and shrink.

use serde_json::json;

use crate::expect::complete;
use crate::job::{indexed, job, waiting_job};
use crate::space::{Space, index, uid};

/// IDX-5: no more Pods than there are indexes left.
pub async fn every_index_succeeds_once(space: &Space<'_>) {
    let a = space.create(&indexed(job("a"), 8, 3)).await;
    space.ends(&a, complete(8).with("completedIndexes", "0-7")).await;
    for life in space.lives(&a).await {
        let (pod, index) = (&life.first, index(&life.first).expect("an index"));
        assert_eq!(pod["spec"]["hostname"], format!("a-{index}"));
        assert_eq!(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"], index.to_string());
        let variable = &pod["spec"]["containers"][0]["env"][0];
        assert_eq!(variable["name"], "JOB_COMPLETION_INDEX", "{variable}");
    }
}

pub async fn an_index_that_failed_is_tried_again(space: &Space<'_>) {
    let a = space.create(&indexed(waiting_job("a"), 2, 2)).await;
    let pods = space.running(&a, 2).await;
    space.end(&pods[1], 1).await;
    let pods = space.running(&a, 2).await;
    assert_eq!([index(&pods[0]), index(&pods[1])], [Some(0), Some(1)]);
    space.end_all(&pods, 0).await;
    space.ends(&a, complete(2).counts("failed", 1).with("completedIndexes", "0,1")).await;
}

pub async fn a_job_shrinks_and_grows_while_it_runs(space: &Space<'_>) {
    let a = space.create(&indexed(waiting_job("a"), 4, 4)).await;
    let before = space.running(&a, 4).await;
    space.change("a", json!({"completions": 2, "parallelism": 2})).await;
    let after = space.running(&a, 2).await;
    assert!(before.iter().zip(&after).all(|(before, after)| uid(before) == uid(after)), "indexes 0 and 1 go on");
    space.change("a", json!({"completions": 5, "parallelism": 5})).await;
    let pods = space.running(&a, 5).await;
    space.end_all(&pods, 0).await;
    space.ends(&a, complete(5).and_uncounted(2).with("completedIndexes", "0-4")).await;
}

/// ELASTIC-4.
pub async fn completed_indexes_beyond_the_end_are_forgotten(space: &Space<'_>) {
    let a = space.create(&indexed(waiting_job("a"), 5, 5)).await;
    let pods = space.running(&a, 5).await;
    for index in [0, 1, 4] {
        space.end(&pods[index], 0).await;
    }
    space.job_until("a", "three indexes are done", |job| job["status"]["completedIndexes"] == "0,1,4").await;
    space.change("a", json!({"completions": 2, "parallelism": 2})).await;
    space.ends(&a, complete(2).and_uncounted(3).with("completedIndexes", "0,1")).await;
}
