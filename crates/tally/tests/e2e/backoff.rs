//! Failed Pods are replaced after a back-off, and only up to the limit.

use crate::expect::{complete, failed};
use crate::job::{job, waiting_job};
use crate::space::{Space, ended_at, seconds};

pub async fn replacements_wait(space: &Space<'_>) {
    let a = space.create(&job("a").set("backoffLimit", 1).does("exit-code", "3")).await;
    space.ends(&a, failed("BackoffLimitExceeded", 2)).await;
    let lives = space.lives(&a).await;
    let (first, second) = (&lives[0].last, &lives[1].first);
    let waited = seconds(&second["metadata"]["creationTimestamp"]) - ended_at(first);
    assert!(waited >= 10, "the second Pod came after {waited} s");
}

pub async fn a_limit_of_0_ends_all_pods(space: &Space<'_>) {
    let limited = waiting_job("a").set("backoffLimit", 0).set("completions", 3).set("parallelism", 3);
    let a = space.create(&limited).await;
    let pods = space.running(&a, 3).await;
    space.end(&pods[1], 1).await;
    space.ends(&a, failed("BackoffLimitExceeded", 3)).await;
}

pub async fn restarts_in_place_are_no_failures(space: &Space<'_>) {
    let restarts = job("a").pod("restartPolicy", "OnFailure").does("fail-times", "2").does("restart-delay", "10ms");
    let a = space.create(&restarts).await;
    space.ends(&a, complete(1)).await;
    let pod = &space.lives(&a).await[0].last;
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 2);
}

pub async fn restarts_in_place_reach_the_limit(space: &Space<'_>) {
    let restarts = job("a").pod("restartPolicy", "OnFailure").does("exit-code", "1").does("restart-delay", "10ms");
    let a = space.create(&restarts.set("backoffLimit", 2)).await;
    space.ends(&a, failed("BackoffLimitExceeded", 1)).await;
}
