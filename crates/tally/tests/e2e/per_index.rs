//! `backoffLimitPerIndex`: every index has attempts of its own.

use crate::expect::{complete, failed};
use crate::job::{indexed, job};
use crate::space::{Space, ended_at, index, seconds};
use crate::truth::Life;

const FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";

/// How often an index had failed before each of its Pods.
fn failures_before(lives: &[Life], of: usize) -> Vec<&str> {
    let those = lives.iter().filter(|life| index(&life.first) == Some(of));
    those.map(|life| life.first["metadata"]["annotations"][FAILURE_COUNT].as_str().unwrap_or("none")).collect()
}

pub async fn an_index_that_fails_too_often_fails_alone(space: &Space<'_>) {
    let limited = indexed(job("a"), 4, 4).set("backoffLimitPerIndex", 1).does("exit-code", "1=7");
    let a = space.create(&limited).await;
    let expected = failed("FailedIndexes", 2).counts("succeeded", 3);
    space.ends(&a, expected.with("completedIndexes", "0,2,3").with("failedIndexes", "1")).await;
    let lives = space.lives(&a).await;
    assert_eq!(failures_before(&lives, 0), ["0"]);
    assert_eq!(failures_before(&lives, 1), ["0", "1"]);
    let attempts: Vec<_> = lives.iter().filter(|life| index(&life.first) == Some(1)).collect();
    let waited = seconds(&attempts[1].first["metadata"]["creationTimestamp"]) - ended_at(&attempts[0].last);
    assert!(waited >= 10, "the second attempt came after {waited} s");
}

pub async fn every_index_has_its_own_attempts(space: &Space<'_>) {
    let a = space.create(&indexed(job("a"), 3, 3).set("backoffLimitPerIndex", 1).does("fail-times", "1")).await;
    let expected = complete(3).counts("failed", 3);
    space.ends(&a, expected.with("completedIndexes", "0-2").with("failedIndexes", "")).await;
    let lives = space.lives(&a).await;
    for index in 0..3 {
        assert_eq!(failures_before(&lives, index), ["0", "1"], "{index}");
    }
}

pub async fn too_many_failed_indexes_end_the_job(space: &Space<'_>) {
    let limited = indexed(job("a"), 4, 1).set("backoffLimitPerIndex", 0).set("maxFailedIndexes", 1);
    let a = space.create(&limited.does("exit-code", "1=1,2=1")).await;
    let expected = failed("MaxFailedIndexesExceeded", 2).counts("succeeded", 1);
    space.ends(&a, expected.with("completedIndexes", "0").with("failedIndexes", "1,2")).await;
}
