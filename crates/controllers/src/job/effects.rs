//! What is announced once a write is durable: Events and metrics, from the returned object, never from the intention
//! (S07).

use tally_core::backoff::BackoffNotice;
use tally_core::job::{Condition, JobView, PodReplacementPolicy, condition};

use tally_runtime::controller::{Event, Kind, Metric, Outbox, Reference};

pub(super) fn event(job: &JobView, warning: bool, reason: &str, message: &str) -> Event {
    let about = Reference {
        kind: Kind::JOB,
        namespace: job.namespace.clone(),
        name: job.name.clone(),
        uid: job.uid.to_string().into(),
    };
    Event { about, warning, reason: reason.into(), message: message.to_owned() }
}

/// EVENT-12. A Job without the annotations has the Events of the reference and no others; an observer in the same
/// process is told in any case.
pub(super) fn waits(job: &JobView, backoffs: Vec<BackoffNotice>, out: &mut Outbox) {
    for notice in backoffs {
        if job.backoff.is_annotated {
            out.events.push(event(job, true, "BackOff", &notice.to_string()));
        }
        out.metrics.push(Metric::BackoffStarted { job: job.uid.clone(), notice: Box::new(notice) });
    }
}

/// METRIC-8: why Pods are created now.
pub(super) fn creation_reason(job: &JobView) -> &'static str {
    let status = &job.status;
    let failed = status.failed > 0 || !status.uncounted().failed.is_empty();
    if failed && job.spec.pod_replacement_policy == PodReplacementPolicy::Failed {
        "recreate_failed"
    } else if failed || status.terminating.unwrap_or(0) > 0 {
        "recreate_terminating_or_failed"
    } else {
        "new"
    }
}

/// Compares the Job before our write with the Job that the write stored.
pub(super) fn after_write(old: &JobView, new: &JobView, out: &mut Outbox) {
    suspended(old, new, out);
    finished_pods(old, new, out);
    if old.status.is_finished() {
        return;
    }
    let Some(terminal) = new.status.terminal_condition() else {
        return;
    };
    let succeeded = terminal.kind == condition::COMPLETE;
    if succeeded {
        if new.spec.completions.is_some_and(|completions| new.status.succeeded > completions) {
            let message = "Too many succeeded pods running after completion count reached";
            out.events.push(event(new, true, "TooManySucceededPods", message));
        }
        out.events.push(event(new, false, "Completed", "Job completed"));
    } else {
        out.events.push(event(new, true, &terminal.reason, &terminal.message));
    }
    out.metrics.push(Metric::JobFinished {
        indexed: new.spec.is_indexed(),
        succeeded,
        reason: terminal.reason.clone(),
    });
}

fn suspended(old: &JobView, new: &JobView, out: &mut Outbox) {
    let find = |job: &JobView| -> Option<Condition> {
        job.status.conditions.iter().find(|known| known.kind == condition::SUSPENDED).cloned()
    };
    let (before, after) = (find(old), find(new));
    if before == after {
        return;
    }
    match after {
        Some(after) if after.is_true() => out.events.push(event(new, false, "Suspended", "Job suspended")),
        Some(_) => out.events.push(event(new, false, "Resumed", "Job resumed")),
        None => {}
    }
}

/// METRIC-5, METRIC-6.
fn finished_pods(old: &JobView, new: &JobView, out: &mut Outbox) {
    let indexed = new.spec.is_indexed();
    let grown = |old: i32, new: i32| u64::try_from(i64::from(new) - i64::from(old)).ok().filter(|by| *by > 0);
    if let Some(by) = grown(old.status.failed, new.status.failed) {
        out.metrics.push(Metric::PodsFinished { indexed, succeeded: false, by });
    }
    if let Some(by) = grown(old.status.succeeded, new.status.succeeded) {
        out.metrics.push(Metric::PodsFinished { indexed, succeeded: true, by });
        if indexed {
            let per_index = new.spec.limits_each_index();
            out.metrics.push(Metric::IndexesFinished { succeeded: true, per_index, by });
        }
    }
    if indexed && old.status.failed_indexes != new.status.failed_indexes {
        let limit = new.spec.index_limit();
        let size = |job: &JobView| {
            let text = job.status.failed_indexes.as_deref().unwrap_or_default();
            tally_core::indexes::IndexSet::read_tolerant(text, limit).len()
        };
        let by = size(new).saturating_sub(size(old)) as u64;
        if by > 0 {
            out.metrics.push(Metric::IndexesFinished { succeeded: false, per_index: true, by });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};
    use tally_core::pod::TRACKING_FINALIZER;

    use super::*;
    use crate::job::{Config, JobController};
    use tally_runtime::controller::{Input, Reply};
    use tally_runtime::testing::{Probe, done};

    fn job() -> Value {
        json!({
            "metadata": {"namespace": "ns", "name": "j", "uid": "u", "resourceVersion": "1", "generation": 1},
            "spec": {
                "completions": 2, "parallelism": 2, "backoffLimit": 6, "completionMode": "NonIndexed",
                "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
                "template": {"metadata": {"labels": {"batch.kubernetes.io/controller-uid": "u"}}, "spec": {}},
            },
            "status": {"startTime": "2023-11-14T00:00:00Z", "uncountedTerminatedPods": {}, "active": 2, "ready": 0, "terminating": 0},
        })
    }

    fn pod(name: &str, revision: u32, phase: &str, finalizers: &[&str]) -> Value {
        json!({
            "metadata": {
                "namespace": "ns", "name": name, "uid": name, "resourceVersion": revision.to_string(),
                "finalizers": finalizers, "labels": {"batch.kubernetes.io/controller-uid": "u"},
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true}],
            },
            "status": {"phase": phase},
        })
    }

    /// METRIC-9 is correct whether the response to a release or its event arrives first, or the Pod is gone by then.
    #[test]
    fn a_finished_pod_stops_being_tracked_once_by_a_response_or_by_the_watch() {
        let held = [TRACKING_FINALIZER];
        for how in ["answer, event", "event, answer", "gone, event"] {
            let mut probe = Probe::new(JobController::new(Config::default()));
            probe.lists(Kind::JOB, &[job()], 3);
            probe.lists(Kind::POD, &[pod("a", 2, "Succeeded", &held), pod("b", 3, "Running", &held)], 3);
            // The Pod is recorded, and then released.
            let recorded = probe.out.requests.pop().unwrap();
            let patch: Value = serde_json::from_slice(&recorded.call.body).unwrap();
            let mut stored = job();
            stored["metadata"]["resourceVersion"] = "4".into();
            for (field, value) in patch["status"].as_object().unwrap() {
                if !value.is_null() {
                    stored["status"][field] = value.clone();
                }
            }
            probe.input(Input::Response { request: recorded.id, reply: done(stored), served_at: None });
            let release = probe.out.requests.iter().find(|request| request.call.name == "a").unwrap().id;
            let released = pod("a", 5, "Succeeded", &[]);
            let reply = if how.starts_with("gone") { Reply::DoneWithStatus } else { done(released.clone()) };
            let mut answer = Some(Input::Response { request: release, reply, served_at: None });
            if !how.starts_with("event") {
                probe.input(answer.take().unwrap());
            }
            if how.starts_with("gone") {
                probe.gone(Kind::POD, released);
            } else {
                probe.sees(Kind::POD, released);
            }
            if let Some(answer) = answer {
                probe.input(answer);
            }
            let tracked = |added: bool| {
                probe.out.metrics.iter().filter(|metric| **metric == Metric::TerminatedPodTracked { added }).count()
            };
            assert_eq!((tracked(true), tracked(false)), (1, 1), "{how}: {:?}", probe.out.metrics);
        }
    }

    /// A Job whose only Pod has just failed with exit code 3.
    fn failing(annotations: Value) -> Probe<JobController> {
        let mut failing = job();
        failing["metadata"]["annotations"] = annotations;
        failing["spec"]["completions"] = 1.into();
        let mut failed = pod("a", 2, "Failed", &[TRACKING_FINALIZER]);
        let terminated = json!({"exitCode": 3, "finishedAt": "2023-11-14T22:13:20Z"});
        failed["status"]["containerStatuses"] = json!([{"name": "c", "state": {"terminated": terminated}}]);
        let mut probe = Probe::new(JobController::new(Config::default()));
        probe.lists(Kind::JOB, &[failing], 3);
        probe.lists(Kind::POD, &[failed], 3);
        probe
    }

    fn events(probe: &Probe<JobController>, reason: &str) -> Vec<String> {
        let events = probe.out.events.iter().filter(|event| event.reason == reason);
        events.map(|event| event.message.clone()).collect()
    }

    /// EVENT-12: once, and only for a Job that says how long to wait.
    #[test]
    fn a_back_off_is_told_once() {
        for (annotations, told) in [(json!({}), 0), (json!({"tally.dev/backoff-base": "7s"}), 1)] {
            let mut probe = failing(annotations);
            probe.input(Input::Tick);
            let events = events(&probe, "BackOff");
            assert_eq!(events.len(), told, "{events:?}");
            let right = |event: &String| {
                event.starts_with("attempt 1 of 7, next in 7 s at ") && event.ends_with(" (last failure: exit code 3)")
            };
            assert!(events.iter().all(right), "{events:?}");
            let started = |metric: &&Metric| matches!(metric, Metric::BackoffStarted { .. });
            assert_eq!(probe.out.metrics.iter().filter(started).count(), 1);
        }
    }

    /// BACKOFF-12.
    #[test]
    fn annotations_that_cannot_be_used_are_told_once() {
        let mut probe = failing(json!({"tally.dev/backoff-base": "soon"}));
        probe.input(Input::Tick);
        let events = events(&probe, "InvalidBackoff");
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(
            events[0].contains("metadata.annotations[tally.dev/backoff-base]: Invalid value: \"soon\""),
            "{events:?}"
        );
    }
}
