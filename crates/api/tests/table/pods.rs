//! Rows of Pods.

use tally_value::{Value, json};

use super::{check, conditions, pods, row};

/// The columns READY, STATUS and RESTARTS of a Pod with this spec and status.
#[track_caller]
fn check_pod(spec: Value, status: Value, expected: &str) {
    check_whole_pod(json!({"spec": spec, "status": status}), expected);
}

#[track_caller]
fn check_whole_pod(pod: Value, expected: &str) {
    let row = row(pods(), pod.clone());
    let narrow: Vec<&str> = row.split(" | ").skip(1).take(3).collect();
    assert_eq!(narrow.join(" | "), expected, "{pod}");
}

fn containers(count: usize) -> Value {
    let all: Vec<Value> = (0..count).map(|index| json!({"name": format!("c{index}")})).collect();
    json!({"containers": all})
}

fn running(ready: bool, restarts: i64) -> Value {
    json!({"ready": ready, "restartCount": restarts, "state": {"running": {}}})
}

fn waiting(reason: &str) -> Value {
    json!({"state": {"waiting": {"reason": reason}}})
}

fn ended(code: i64, signal: i64, reason: &str) -> Value {
    json!({"state": {"terminated": {"exitCode": code, "signal": signal, "reason": reason}}})
}

#[test]
fn pod_status_by_phase() {
    for (status, expected) in [
        (json!({"phase": "Pending"}), "0/1 | Pending | 0"),
        (json!({"phase": "Succeeded"}), "0/1 | Succeeded | 0"),
        (json!({"phase": "Failed", "reason": "Evicted"}), "0/1 | Evicted | 0"),
        (json!({}), "0/1 |  | 0"),
        (
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
            "0/1 | SchedulingGated | 0",
        ),
        (
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "Unschedulable"}]}),
            "0/1 | Pending | 0",
        ),
    ] {
        check_pod(containers(1), status, expected);
    }
}

#[test]
fn pod_status_by_containers() {
    let ready = || conditions("Ready");
    for (statuses, conditions, expected) in [
        (vec![running(true, 2)], ready(), "1/2 | Running | 2"),
        (vec![running(false, 0), running(true, 1)], json!([]), "1/2 | Running | 1"),
        (vec![waiting("CrashLoopBackOff")], json!([]), "0/2 | CrashLoopBackOff | 0"),
        // The first container with a reason decides.
        (vec![waiting("ImagePullBackOff"), ended(1, 0, "Error")], json!([]), "0/2 | ImagePullBackOff | 0"),
        (vec![waiting(""), ended(1, 0, "Error")], json!([]), "0/2 | Error | 0"),
        (vec![ended(137, 9, "")], json!([]), "0/2 | Signal:9 | 0"),
        (vec![ended(3, 0, "")], json!([]), "0/2 | ExitCode:3 | 0"),
        (vec![ended(137, 9, "OOMKilled")], json!([]), "0/2 | OOMKilled | 0"),
        (vec![ended(0, 0, "Completed")], json!([]), "0/2 | Completed | 0"),
        (vec![ended(0, 0, "Completed"), running(true, 0)], ready(), "1/2 | Running | 0"),
        (vec![ended(0, 0, "Completed"), running(true, 0)], json!([]), "1/2 | NotReady | 0"),
        (vec![ended(0, 0, "Completed"), running(false, 0)], ready(), "0/2 | Completed | 0"),
        // A failed container takes precedence over completed ones.
        (vec![ended(0, 0, "Completed"), ended(3, 0, "Error")], json!([]), "0/2 | Error | 0"),
        (vec![ended(0, 0, "Completed"), ended(3, 0, ""), ended(4, 0, "")], json!([]), "0/2 | ExitCode:3 | 0"),
        (vec![ended(0, 0, "Completed"), ended(3, 0, "Error"), running(true, 0)], json!([]), "1/2 | Error | 0"),
        (vec![ended(0, 0, "Completed"), ended(3, 0, "Error"), running(true, 0)], ready(), "1/2 | Running | 0"),
    ] {
        let status = json!({"phase": "Running", "containerStatuses": statuses, "conditions": conditions});
        check_pod(containers(2), status, expected);
    }
}

#[test]
fn pod_status_while_it_initializes() {
    let spec = json!({"containers": [{}], "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}, {"name": "j"}]});
    let named = |name: &str, mut status: Value| {
        status["name"] = name.into();
        status
    };
    let done = || named("i", ended(0, 0, "Completed"));
    let sidecar = |ready: bool| json!({"name": "s", "started": true, "ready": ready, "restartCount": 2, "state": {"running": {}}});
    for (statuses, expected) in [
        (vec![named("i", waiting("PodInitializing"))], "0/2 | Init:0/3 | 0"),
        (vec![named("i", json!({"restartCount": 4}))], "0/2 | Init:0/3 | 4"),
        (vec![named("i", waiting("ImagePullBackOff"))], "0/2 | Init:ImagePullBackOff | 0"),
        (vec![named("i", ended(1, 0, "Error"))], "0/2 | Init:Error | 0"),
        (vec![named("i", ended(2, 0, ""))], "0/2 | Init:ExitCode:2 | 0"),
        (vec![named("i", ended(2, 15, ""))], "0/2 | Init:Signal:15 | 0"),
        (vec![done(), named("s", json!({"started": false}))], "0/2 | Init:1/3 | 0"),
        (vec![done(), sidecar(true), named("j", waiting(""))], "1/2 | Init:2/3 | 2"),
        (vec![done(), sidecar(false), named("j", waiting(""))], "0/2 | Init:2/3 | 2"),
        (vec![done(), sidecar(true), named("j", ended(0, 0, ""))], "2/2 | Running | 5"),
    ] {
        let status =
            json!({"phase": "Running", "initContainerStatuses": statuses, "containerStatuses": [running(true, 3)]});
        let mut status = status;
        if expected.contains("Init") {
            status["containerStatuses"] = json!([waiting("PodInitializing")]);
        }
        check_pod(spec.clone(), status, expected);
    }
    // After initialization, an init container that runs again shows in the status, but its restarts do not count.
    let again = json!({
        "phase": "Running", "conditions": conditions("Initialized"), "initContainerStatuses": [named("i", json!({"restartCount": 7}))],
        "containerStatuses": [running(true, 1)],
    });
    check_pod(spec, again, "1/2 | Init:0/3 | 1");
}

#[test]
fn pod_that_is_being_deleted_is_terminating_unless_it_is_through() {
    for (status, expected) in [
        (json!({"phase": "Running", "containerStatuses": [running(true, 0)]}), "1/1 | Terminating | 0"),
        (json!({"phase": "Pending"}), "0/1 | Terminating | 0"),
        (json!({"phase": "Running", "reason": "NodeLost"}), "0/1 | Unknown | 0"),
        (json!({"phase": "Failed", "containerStatuses": [ended(1, 0, "Error")]}), "0/1 | Error | 0"),
        (json!({"phase": "Succeeded"}), "0/1 | Succeeded | 0"),
    ] {
        let pod =
            json!({"metadata": {"deletionTimestamp": "2026-05-01T10:05:00Z"}, "spec": containers(1), "status": status});
        check_whole_pod(pod, expected);
    }
}

#[test]
fn pod_restarts_say_when_last() {
    let again = |count: i64, at: &str| json!({"restartCount": count, "ready": true, "state": {"running": {}}, "lastState": {"terminated": {"finishedAt": at}}});
    let statuses =
        json!([again(1, "2026-05-01T10:05:00Z"), again(2, "2026-05-01T10:07:00Z"), again(0, "2026-05-01T10:06:00Z")]);
    check_pod(containers(3), json!({"phase": "Running", "containerStatuses": statuses}), "3/3 | Running | 3 (3m ago)");
    let statuses = json!([again(0, "2026-05-01T10:05:00Z")]);
    check_pod(containers(1), json!({"phase": "Running", "containerStatuses": statuses}), "1/1 | Running | 0");
}

#[test]
fn pod_wide() {
    let pod = json!({
        "spec": {"containers": [{}], "nodeName": "n1", "readinessGates": [{"conditionType": "x"}, {"conditionType": "y"}]},
        "status": {
            "phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}, {"ip": "fd00::1"}],
            "nominatedNodeName": "n2", "conditions": conditions("x !y"),
        },
    });
    check(pods(), pod, "a | 0/1 | Running | 0 | 10m | 10.1.2.3 | n1 | n2 | 1/2");
    check(pods(), json!({}), "a | 0/0 |  | 0 | 10m | <none> | <none> | <none> | <none>");
}
