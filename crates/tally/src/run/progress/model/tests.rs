//! What the model derives from watch events.

use serde_json::{Value, json};

use super::*;

pub fn job(value: Value) -> JobText {
    serde_json::from_value(value).unwrap()
}

pub fn seen(completions: Option<u32>, status: Value) -> JobText {
    job(json!({"metadata": {"uid": "u", "name": "sum"}, "spec": {"completions": completions}, "status": status}))
}

pub fn failed_pod(number: u32, code: i32) -> PodText {
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("sum-{number}-xyz"), "namespace": "default", "uid": format!("p{number}"),
            "annotations": {"batch.kubernetes.io/job-completion-index": number.to_string()},
            "ownerReferences": [{"kind": "Job", "uid": "u", "controller": true}],
        },
        "status": {"phase": "Failed", "containerStatuses": [
            {"name": "main", "state": {"terminated": {"exitCode": code, "reason": "Error"}}},
        ]},
    }))
    .unwrap()
}

pub fn model() -> Model {
    let mut model = Model::default();
    model.follow("default", "sum", "u");
    model
}

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn states_are_those_of_the_conditions() {
    let condition =
        |kind: &str| json!({"conditions": [{"type": kind, "status": "True", "reason": "R", "message": "M"}]});
    let (reason, message) = ("R".to_owned(), "M".to_owned());
    for (status, expected) in [
        (json!({}), State::Waiting),
        (json!({"active": 1}), State::Running),
        (json!({"failed": 1}), State::Running),
        (condition("Complete"), State::Complete { reason: reason.clone(), message: message.clone() }),
        (condition("Failed"), State::Failed { reason: reason.clone(), message }),
        (condition("FailureTarget"), State::Ending { failed: true, reason: reason.clone() }),
        (condition("SuccessCriteriaMet"), State::Ending { failed: false, reason }),
        (json!({"conditions": [{"type": "Complete", "status": "False"}]}), State::Waiting),
    ] {
        let mut model = model();
        model.saw_job(&seen(Some(3), status.clone()), at(0));
        assert_eq!(model.jobs()[0].state, expected, "{status}");
        assert_eq!(model.is_finished(), expected.is_finished());
    }
}

#[test]
fn the_rate_is_that_of_the_last_seconds() {
    let mut model = model();
    // Ten a second for a minute, then a hundred a second for another.
    let mut done = 0;
    for tick in 0..=1200u64 {
        let step = if tick <= 600 { 1 } else { 10 };
        done += if tick == 0 { 0 } else { step };
        model.saw_job(&seen(Some(10_000), json!({"active": 1, "succeeded": done})), at(tick * 100));
        assert!(model.jobs()[0].samples.len() <= SAMPLES);
        if tick == 600 {
            assert_eq!(model.jobs()[0].rate().map(f64::round), Some(10.0));
            assert_eq!(model.jobs()[0].time_left().map(|left| left.as_secs()), Some(940));
        }
    }
    assert_eq!(model.jobs()[0].rate().map(f64::round), Some(100.0));
    assert_eq!(model.jobs()[0].time_left().map(|left| left.as_secs()), Some(34));
}

#[test]
fn without_progress_or_an_end_in_sight_no_time_is_told() {
    for (completions, first, second) in [(Some(5), 1, 1), (None, 1, 2), (Some(5), 0, 0)] {
        let mut model = model();
        for (now, succeeded) in [(0, first), (1000, second)] {
            model.saw_job(&seen(completions, json!({"active": 1, "succeeded": succeeded})), at(now));
        }
        assert_eq!(model.jobs()[0].time_left(), None);
    }
}

#[test]
fn work_that_was_done_before_does_not_speed_up_the_rate() {
    let mut model = model();
    model.saw_job(&seen(Some(2000), json!({"active": 1, "succeeded": 1000})), at(0));
    model.saw_job(&seen(Some(2000), json!({"active": 1, "succeeded": 1010})), at(1000));
    assert_eq!(model.jobs()[0].rate(), Some(10.0));
}

#[test]
fn indexes_that_failed_for_good_are_done() {
    let mut model = model();
    model.saw_job(&seen(Some(10), json!({"active": 1, "succeeded": 3, "failed": 9, "failedIndexes": "1,4-6"})), at(0));
    assert_eq!(model.jobs()[0].done(), 7);
    assert_eq!(model.jobs()[0].share_done(), Some(0.7));
}

#[test]
fn a_failure_is_news_once() {
    let mut model = model();
    let failure = model.saw_pod(&failed_pod(3, 2)).cloned().unwrap();
    assert_eq!((failure.index, failure.exit_code, failure.reason.as_str()), (Some(3), Some(2), "Error"));
    assert!(model.saw_pod(&failed_pod(3, 2)).is_none());
    model.lost_pod(&failed_pod(3, 2));
    assert!(model.failed_pods.is_empty(), "a Pod that is gone is forgotten");
    let mut stranger = failed_pod(4, 1);
    stranger.metadata = serde_json::from_value(json!({"uid": "x"})).unwrap();
    assert!(model.saw_pod(&stranger).is_none());
}

#[test]
fn a_crash_is_news_once_and_so_is_the_next() {
    let mut model = model();
    let seen = |model: &mut Model, state: &str, count: u32, phase: &str| {
        let mut pod = failed_pod(1, 0);
        pod.status = serde_json::from_value(json!({"phase": phase, "containerStatuses": [{
            "name": "main", "restartCount": count, "state": {state: {}},
            "lastState": {"terminated": {"exitCode": 3, "reason": "Error"}},
        }]}))
        .unwrap();
        let crash = model.saw_crash(&pod).cloned();
        assert!(model.saw_crash(&pod).is_none(), "it was told");
        (crash.and_then(|crash| crash.crash), pod)
    };
    for (state, count, phase, crash) in [
        ("waiting", 0, "Running", Some(0)),
        ("waiting", 0, "Running", None),
        ("running", 1, "Running", None),
        ("running", 2, "Running", Some(1)),
        ("terminated", 2, "Running", None),
        ("waiting", 2, "Failed", None),
    ] {
        assert_eq!(seen(&mut model, state, count, phase).0, crash, "{state} {count} {phase}");
    }
    let (_, pod) = seen(&mut model, "running", 2, "Running");
    model.lost_pod(&pod);
    assert!(model.crashes.is_empty(), "a Pod that is gone is forgotten");
}

#[test]
fn a_hundred_thousand_failures_leave_the_last_few() {
    let mut model = model();
    let mut pod = failed_pod(0, 1);
    for number in 0..100_000 {
        pod.metadata.uid = format!("p{number}");
        model.saw_pod(&pod);
        model.lost_pod(&pod);
    }
    let kept: Vec<_> = model.jobs()[0].failures.iter().map(|failure| failure.uid.clone()).collect();
    assert_eq!(kept, (99_992..100_000).map(|number| format!("p{number}")).collect::<Vec<_>>());
    assert!(model.failed_pods.is_empty());
}

#[test]
fn a_pod_that_cannot_start_is_told_until_it_can() {
    let mut model = model();
    let waiting = |reason: &str, message: &str, phase: &str| {
        let mut pod = failed_pod(1, 0);
        pod.status = serde_json::from_value(json!({"phase": phase, "containerStatuses": [
            {"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}]}))
        .unwrap();
        pod
    };
    for (reason, message, phase, stuck) in [
        ("ContainerCreating", "", "Pending", false),
        ("CreateContainerConfigError", "m", "Pending", true),
        ("ContainerCreating", "", "Pending", false),
        ("ContainerCreating", "MountVolume.SetUp failed", "Pending", true),
        ("PodInitializing", "", "Pending", false),
        ("NoCommand", "m", "Pending", true),
        ("NoCommand", "m", "Failed", false),
    ] {
        model.saw_pod(&waiting(reason, message, phase));
        assert_eq!(model.jobs()[0].stuck.is_some(), stuck, "{reason} {phase}");
    }
}

#[test]
fn a_pod_without_a_node_is_told_when_nothing_makes_room_for_it() {
    const FULL: &str = "0/1 nodes are available: 1 Insufficient cpu.";
    const ELSEWHERE: &str = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.";
    // Active Pods, why this Pod has no node, for how many milliseconds, and whether it is reported.
    for (active, message, millis, told) in [
        (1, FULL, 0, false),
        (1, FULL, 999, false),
        (1, FULL, 1000, true),
        (2, FULL, 9000, false),
        (2, ELSEWHERE, 0, true),
    ] {
        let mut model = model();
        let mut pod = failed_pod(1, 0);
        let mut is = |status: &str, model: &mut Model| {
            pod.status = serde_json::from_value(json!({"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": status, "reason": "Unschedulable", "message": message}]}))
            .unwrap();
            model.saw_pod(&pod);
        };
        model.saw_job(&seen(Some(3), json!({"active": active})), at(0));
        is("False", &mut model);
        model.tick(at(0));
        model.tick(at(millis));
        let stuck = model.jobs()[0].stuck.clone();
        assert_eq!(stuck.map(|stuck| stuck.message), told.then(|| message.to_owned()), "{active} {message} {millis}");
        is("True", &mut model);
        model.tick(at(millis));
        assert_eq!(model.jobs()[0].stuck, None, "it has a node");
        assert!(model.unscheduled.is_empty());
    }
}

#[test]
fn there_is_trouble_with_a_pod_as_long_as_it_is_shown() {
    let view = |pod: &PodText| {
        let (uid, name) = (&pod.metadata.uid, &pod.metadata.name);
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "sum", "uid": "u", "controller": true});
        let pod = json!({
            "metadata": {
                "uid": uid, "name": name, "namespace": "default", "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [owner],
            },
            "spec": {}, "status": {"phase": "Pending"},
        });
        PodView::from_json(pod.to_string().as_bytes()).unwrap()
    };
    let trouble = |status: Value| {
        let (mut model, mut pod) = (model(), failed_pod(1, 0));
        assert!(!model.has_trouble_with(&view(&pod)));
        pod.status = serde_json::from_value(status).unwrap();
        model.saw_crash(&pod);
        model.saw_pod(&pod);
        let has_trouble = model.has_trouble_with(&view(&pod));
        assert!(!model.has_trouble_with(&view(&failed_pod(2, 0))), "with another one");
        model.lost_pod(&pod);
        assert!(!model.has_trouble_with(&view(&pod)));
        has_trouble
    };
    let waits = |reason: &str, last: Value| {
        let waiting = json!({"waiting": {"reason": reason, "message": "M"}});
        json!({"phase": "Pending", "containerStatuses": [{"name": "c", "state": waiting, "lastState": last}]})
    };
    assert!(!trouble(json!({"phase": "Pending"})));
    assert!(!trouble(json!({"phase": "Succeeded"})));
    assert!(trouble(json!({"phase": "Failed"})));
    assert!(trouble(json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "M"}]})));
    assert!(trouble(waits("CreateContainerConfigError", json!({}))), "it is stuck");
    assert!(trouble(waits("CrashLoopBackOff", json!({"terminated": {"exitCode": 1}}))), "it has crashed");
    let (mut model, pod) = (model(), failed_pod(1, 0));
    model.knows_of(std::slice::from_ref(&pod.metadata.uid));
    assert!(model.has_trouble_with(&view(&pod)), "its failure was told before");
}

#[test]
fn what_is_finished_stays_so() {
    let mut model = model();
    let done = json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]});
    assert!(model.saw_job(&seen(Some(1), done), at(5)));
    assert!(!model.lost_job("u", at(6)));
    assert!(!model.saw_job(&seen(Some(1), json!({"active": 1})), at(7)));
    assert_eq!(model.jobs()[0].finished_after, Some(at(5)));
    let mut other = self::model();
    assert!(other.lost_job("u", at(1)));
    assert_eq!(other.jobs()[0].state, State::Deleted);
}
