//! How a Job is expected to end: its whole status, and how many Pods it took.

use serde_json::{Value, json};

pub struct Expected {
    pub status: Value,
    /// The number of Pods it ever had.
    pub pods: usize,
    /// Of these, the Pods that the Job adopted.
    pub adopted: usize,
    /// Its last event: type, reason, message.
    pub event: (&'static str, String, String),
}

fn message(reason: &str) -> &'static str {
    match reason {
        "CompletionsReached" => "Reached expected number of succeeded pods",
        "BackoffLimitExceeded" => "Job has reached the specified backoff limit",
        "DeadlineExceeded" => "Job was active longer than specified deadline",
        "FailedIndexes" => "Job has failed indexes",
        "MaxFailedIndexesExceeded" => "Job has exceeded the specified maximal number of failed indexes",
        other => panic!("{other} has no message of its own"),
    }
}

pub fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastProbeTime": "<time>", "lastTransitionTime": "<time>",
    })
}

fn ended(conditions: &[&str; 2], reason: &str, message: &str) -> Value {
    json!({
        "conditions": conditions.map(|kind| condition(kind, "True", reason, message)),
        "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}, "startTime": "<time>",
    })
}

/// Complete, with this many Pods, all of which succeeded.
pub fn complete(succeeded: usize) -> Expected {
    complete_by("CompletionsReached", message("CompletionsReached"), succeeded)
}

pub fn complete_by(reason: &str, message: &str, succeeded: usize) -> Expected {
    let mut status = ended(&["SuccessCriteriaMet", "Complete"], reason, message);
    status["completionTime"] = "<time>".into();
    let event = ("Normal", "Completed".to_owned(), "Job completed".to_owned());
    Expected { status, pods: 0, adopted: 0, event }.counts("succeeded", succeeded)
}

/// Failed, with this many Pods, all of which failed.
pub fn failed(reason: &str, failed: usize) -> Expected {
    failed_with(reason, message(reason), failed)
}

pub fn failed_with(reason: &str, message: &str, failed: usize) -> Expected {
    let status = ended(&["FailureTarget", "Failed"], reason, message);
    let event = ("Warning", reason.to_owned(), message.to_owned());
    Expected { status, pods: 0, adopted: 0, event }.counts("failed", failed)
}

impl Expected {
    /// Expects a counter, which is absent if it is zero, and as many additional Pods.
    pub fn counts(mut self, counter: &str, count: usize) -> Self {
        if count > 0 {
            self.status[counter] = count.into();
        }
        self.pods += count;
        self
    }

    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.status[field] = value.into();
        self
    }

    /// Expects a condition before the others.
    pub fn after(mut self, condition: Value) -> Self {
        self.status["conditions"].as_array_mut().expect("conditions").insert(0, condition);
        self
    }

    /// Expects additional Pods that are counted nowhere.
    pub fn and_uncounted(mut self, pods: usize) -> Self {
        self.pods += pods;
        self
    }

    pub fn adopted(mut self, pods: usize) -> Self {
        self.adopted = pods;
        self
    }
}

/// The values of times do not matter, but they must be times and in order.
pub fn without_times(status: &Value) -> Value {
    let mut status = status.clone();
    let (started, completed) = (status["startTime"].to_string(), status["completionTime"].to_string());
    assert!(status["completionTime"].is_null() || started <= completed, "{started} {completed}");
    let replace = |value: &mut Value| {
        if value.as_str().is_some_and(|time| time.len() == 20 && time.ends_with('Z')) {
            *value = "<time>".into();
        }
    };
    for field in ["startTime", "completionTime"] {
        if let Some(time) = status.get_mut(field) {
            replace(time);
        }
    }
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        for field in ["lastProbeTime", "lastTransitionTime"] {
            replace(&mut condition[field]);
        }
    }
    status
}
