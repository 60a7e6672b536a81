//! What is announced once a write is durable: Events and metrics, from the returned object, never from the intention
//! (S07).

use compact_str::{CompactString, format_compact};
use tally_core::backoff::BackoffNotice;
use tally_core::job::{Condition, JobView, condition};
use tally_core::ledger::{CreationReason, Ledger};
use tally_core::pod::PodView;
use tally_core::time::Span;
use tally_explain::Cause;

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

/// A Job that waits for so long stands still (EVENT-13).
pub(super) const STANDS_STILL: Span = Span::from_seconds(60);

/// EVENT-13: says why a Job stands still, unless that was the last thing that was said.
pub(super) fn stands_still(job: &JobView, cause: &Cause, told: &mut Option<&'static str>, out: &mut Outbox) {
    if told.replace(cause.name()) != Some(cause.name()) {
        out.events.push(event(job, cause.is_warning(), cause.name(), &cause.sentence()));
    }
}

/// EVENT-13: a Pod cannot start, and no other Pod of the Job runs.
pub(super) fn pending(ledger: &Ledger, pod: &PodView, told: &mut Option<&'static str>, out: &mut Outbox) {
    let job = ledger.job();
    let ends = job.deleting || job.spec.suspend || job.status.is_finished();
    if pod.pending.is_none() || ends || ledger.has_ready_pods() {
        return;
    }
    if let Some(cause) = Cause::of_pending(pod) {
        stands_still(job, &cause, told, out);
    }
}

/// EVENT-12. A Job without the annotations has the Events of the reference, and one about a long wait (EVENT-13); an
/// observer in the same process is told in any case.
pub(super) fn waits(job: &JobView, backoffs: Vec<BackoffNotice>, told: &mut Option<&'static str>, out: &mut Outbox) {
    for notice in backoffs {
        if job.backoff.is_annotated {
            out.events.push(event(job, true, "BackOff", &notice.to_string()));
        } else if notice.waits_for >= STANDS_STILL && !told.is_some_and(|told| told == "BackOff") {
            // In the form of EVENT-12, which programs can read.
            *told = Some("BackOff");
            out.events.push(event(job, true, "BackOff", &notice.to_string()));
        }
        out.metrics.push(Metric::BackoffStarted { job: job.uid.clone(), notice: Box::new(notice) });
    }
}

/// EVENT-14: once for each time that the server begins to refuse the status of a Job.
pub(super) fn status_refused(job: &JobView, refused_before: u32, message: String, out: &mut Outbox) {
    if refused_before == 0 {
        out.events.push(event(job, true, "StatusRefused", &format!("Error updating status: {message}")));
        out.metrics.push(Metric::StatusRefused { job: full_name(job), message });
    }
}

/// EVENT-14: the server has accepted a status.
pub(super) fn status_accepted(job: &JobView, refusals: u32, out: &mut Outbox) {
    if refusals > 0 {
        let message = format!("The status was written after {refusals} refused writes");
        out.events.push(event(job, false, "StatusAccepted", &message));
        out.metrics.push(Metric::StatusRefusalEnded { job: full_name(job), refusals, accepted: true });
    }
}

pub(super) fn full_name(job: &JobView) -> CompactString {
    format_compact!("{}/{}", job.namespace, job.name)
}

/// METRIC-8: the label of the metric.
pub(super) fn creation_reason(reason: CreationReason) -> &'static str {
    match reason {
        CreationReason::New => "new",
        CreationReason::RecreateTerminatingOrFailed => "recreate_terminating_or_failed",
        CreationReason::RecreateFailed => "recreate_failed",
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
            let patch: Value = serde_json::from_slice(&recorded.call.body.text()).unwrap();
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

    /// EVENT-13: a Job without annotations is told about a long wait only, once.
    #[test]
    fn a_long_back_off_is_told() {
        for (failures, told) in [(3, 0), (4, 1)] {
            let mut job = job();
            job["status"]["failed"] = failures.into();
            let failed = |number: usize| {
                let mut failed = pod(&format!("p{number}"), 2, "Failed", &[]);
                let terminated = json!({"exitCode": 3, "finishedAt": "2023-11-14T22:13:20Z"});
                failed["status"]["containerStatuses"] = json!([{"name": "c", "state": {"terminated": terminated}}]);
                failed
            };
            let mut probe = Probe::new(JobController::new(Config::default()));
            probe.lists(Kind::JOB, &[job], 3);
            probe.lists(Kind::POD, &(0..failures).map(failed).collect::<Vec<_>>(), 3);
            probe.input(Input::Tick);
            assert_eq!(events(&probe, "BackOff").len(), told, "{failures}: {:?}", probe.out.events);
        }
    }

    /// EVENT-13.
    #[test]
    fn a_pod_that_cannot_start_is_told_once_for_each_reason() {
        let held = [TRACKING_FINALIZER];
        let waits = |name: &str, revision: u32, condition: Value| {
            let mut waits = pod(name, revision, "Pending", &held);
            waits["status"]["conditions"] = json!([condition]);
            waits
        };
        let lacks = |message: &str| json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
        let mut probe = Probe::new(JobController::new(Config::default()));
        probe.lists(Kind::JOB, &[job()], 3);
        probe.lists(Kind::POD, &[pod("a", 2, "Pending", &held), pod("b", 3, "Pending", &held)], 3);
        assert!(probe.out.events.is_empty());
        probe.sees(Kind::POD, waits("a", 4, lacks("0/1 nodes are available: 1 Insufficient cpu.")));
        let first = "Pod a fits on no node: 0/1 nodes are available: 1 Insufficient cpu.";
        assert_eq!(events(&probe, "Unschedulable"), [first]);
        // The same reason of another Pod, or in other words, is no news.
        probe.sees(Kind::POD, waits("b", 5, lacks("0/2 nodes are available: 2 Insufficient cpu.")));
        assert_eq!(events(&probe, "Unschedulable").len(), 1);
        // Another reason is.
        let mut pulls = pod("a", 6, "Pending", &held);
        pulls["spec"] = json!({"nodeName": "n"});
        let waiting = json!({"reason": "ErrImagePull", "message": "no such image"});
        pulls["status"]["containerStatuses"] = json!([{"name": "c", "state": {"waiting": waiting}}]);
        probe.sees(Kind::POD, pulls);
        let second = "The image of Pod a cannot be used: ErrImagePull: no such image.";
        assert_eq!(events(&probe, "ImageError"), [second]);
        // A Job of which a Pod runs does not stand still.
        let mut runs = pod("a", 7, "Running", &held);
        runs["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        probe.sees(Kind::POD, runs);
        probe.sees(Kind::POD, waits("b", 8, lacks("0/3 nodes are available: 3 Insufficient cpu.")));
        assert_eq!(events(&probe, "Unschedulable").len(), 1);
        assert!(probe.out.events.iter().all(|event| event.warning), "{:?}", probe.out.events);
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
