//! Jobs that begin after others (`tally.dev/after`).

use serde_json::{Value, json};

use crate::expect::{complete, condition, failed_with};
use crate::job::{Job, job, waiting_job};
use crate::space::{Space, holds};

/// Suspended by its creator, as an API server that does not know the annotation needs it.
fn after(name: &str, others: &str) -> Job {
    job(name).set("suspend", true).meta("annotations", json!({"tally.dev/after": others}))
}

fn suspended(status: &str, reason: &str, message: &str) -> Value {
    condition("Suspended", status, reason, message)
}

/// ORDER-2 to ORDER-5.
pub async fn jobs_begin_after_those_that_they_name(space: &Space<'_>) {
    let second = space.create(&after("second", "first")).await;
    let cleanup = space.create(&after("cleanup", "first=Failed")).await;
    let message = "the Job first does not exist; this Job starts when there is one and it is Complete";
    space.event(&second, "Normal", "WaitingForJob", message).await;
    let first = space.create(&waiting_job("first")).await;
    let pods = space.running(&first, 1).await;
    for name in ["second", "cleanup"] {
        space.job_until(name, "it is suspended", |job| holds(job, "Suspended").is_some()).await;
    }
    assert_eq!(space.lives(&second).await.len(), 0, "it has not begun");
    space.end(&pods[0], 0).await;
    space.ends(&first, complete(1)).await;
    space.ends(&second, complete(1).after(suspended("False", "JobResumed", "Job resumed"))).await;
    let why = "the Job first has ended Complete, and tally.dev/after wants it Failed";
    let expected = failed_with("DependencyFailed", why, 0).after(suspended("True", "JobSuspended", "Job suspended"));
    space.ends(&cleanup, expected).await;
}
