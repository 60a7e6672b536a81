//! A row for every reason: objects as the API serves them, the reason that is found first, and its sentence.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tally_core::time::{Span, Timestamp};
use tally_explain::{Evidence, Explanation, Host, NAMES, State, explain};

const NOW: &str = "2026-01-31T12:00:00Z";

fn now() -> Timestamp {
    Timestamp::parse(NOW).unwrap()
}

/// So many seconds before now, as the API writes it.
fn ago(seconds: i64) -> String {
    (now() - Span::from_seconds(seconds)).to_string()
}

fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}

/// A Job of two Pods that was created five minutes ago.
fn job(patch: Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"namespace": "ns", "name": "j", "uid": "u", "resourceVersion": "5", "generation": 1,
            "creationTimestamp": ago(300)},
        "spec": {
            "completions": 2, "parallelism": 2, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": false,
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
            "template": {"metadata": {"labels": {"batch.kubernetes.io/controller-uid": "u"}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}},
        },
        "status": {"startTime": ago(300), "active": 2, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}},
    });
    merge(&mut job, &patch);
    job
}

fn merged(mut object: Value, patch: Value) -> Value {
    merge(&mut object, &patch);
    object
}

/// A Pod of that Job that has run on node n for four minutes.
fn pod(name: &str, patch: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "ns", "name": name, "uid": name, "resourceVersion": "6", "creationTimestamp": ago(290),
            "finalizers": ["batch.kubernetes.io/job-tracking"],
            "labels": {"batch.kubernetes.io/controller-uid": "u"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true}],
        },
        "spec": {"nodeName": "n", "schedulerName": "default-scheduler", "containers": [{"name": "c"}]},
        "status": {"phase": "Running"},
    });
    merge(&mut pod, &patch);
    pod
}

fn pending(name: &str, patch: Value) -> Value {
    let mut it = pod(name, json!({"spec": {"nodeName": null}, "status": {"phase": "Pending"}}));
    merge(&mut it, &patch);
    it
}

/// Pending on node n, and a container waits for this reason.
fn waiting(name: &str, reason: &str, message: &str) -> Value {
    pod(
        name,
        json!({"status": {"phase": "Pending", "containerStatuses":
        [{"name": "c", "restartCount": 0, "state": {"waiting": {"reason": reason, "message": message}}}]}}),
    )
}

fn ended(name: &str, phase: &str, seconds_ago: i64, patch: Value) -> Value {
    let code = i32::from(phase == "Failed");
    let mut it = pod(
        name,
        json!({"status": {"phase": phase, "containerStatuses": [{"name": "c", "restartCount": 0,
        "state": {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": ago(seconds_ago)}}}]}}),
    );
    merge(&mut it, &patch);
    it
}

fn terminating(name: &str, node: &str) -> Value {
    pod(
        name,
        json!({"metadata": {"deletionTimestamp": ago(100), "deletionGracePeriodSeconds": 30},
        "spec": {"nodeName": node}}),
    )
}

fn node(name: &str, ready: &str) -> Value {
    json!({"kind": "Node", "metadata": {"name": name}, "status": {"conditions":
        [{"type": "Ready", "status": ready, "lastTransitionTime": ago(200)}]}})
}

fn event(kind: &str, name: &str, reason: &str, message: &str, seconds_ago: i64) -> Value {
    json!({"kind": "Event", "type": "Warning", "reason": reason, "message": message, "count": 3,
        "involvedObject": {"kind": kind, "namespace": "ns", "name": name},
        "firstTimestamp": ago(seconds_ago + 60), "lastTimestamp": ago(seconds_ago)})
}

fn lease(holder: &str, renewed: i64) -> Value {
    json!({"kind": "Lease", "metadata": {"namespace": "kube-system", "name": "tally-job-controller"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": ago(renewed)}})
}

/// A cluster whose controller leads, with node n.
fn seen(object: Value, pods: Vec<Value>) -> Evidence {
    Evidence {
        object,
        pods,
        nodes: Some(vec![node("n", "True")]),
        leases: Some(vec![lease("tally-1", 1)]),
        ..Evidence::default()
    }
}

fn cron(patch: Value) -> Value {
    let mut cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"namespace": "ns", "name": "c", "uid": "c", "resourceVersion": "5", "creationTimestamp": ago(7200)},
        "spec": {"schedule": "30 * * * *", "concurrencyPolicy": "Allow", "suspend": false, "jobTemplate": {}},
        "status": {"lastScheduleTime": ago(1800)},
    });
    merge(&mut cron, &patch);
    cron
}

fn names(explanation: &Explanation) -> Vec<&'static str> {
    explanation.reasons.iter().map(|reason| reason.cause.name()).collect()
}

struct Row {
    evidence: Evidence,
    reasons: &'static [&'static str],
    sentence: &'static str,
    since: Option<i64>,
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = |evidence: Evidence, reasons: &'static [&'static str], sentence, since: i64| {
        rows.push(Row { evidence, reasons, sentence, since: (since >= 0).then_some(since) });
    };
    let suspended = json!([{"type": "Suspended", "status": "True", "reason": "JobSuspended",
        "lastTransitionTime": ago(120)}]);
    let status = json!({"active": 0, "conditions": suspended});
    row(
        seen(job(json!({"spec": {"suspend": true}, "status": status})), vec![]),
        &["Suspended"],
        "The Job is suspended (spec.suspend is true): it gets no Pods.",
        120,
    );
    row(
        seen(
            job(json!({"metadata": {"annotations": {"tally.dev/after": "a,b=Finished",
            "tally.dev/after-state": r#"{"job":"u","seen":{"a":{"uid":"x","end":"Complete"}}}"#}},
            "spec": {"suspend": true}, "status": status})),
            vec![],
        ),
        &["WaitsForJobs"],
        "The Job waits for the end of other Jobs (tally.dev/after): b.",
        120,
    );
    let untouched = |patch: Value| {
        let mut it = job(patch);
        it["status"] = json!({});
        it
    };
    row(
        seen(untouched(json!({"spec": {"managedBy": "example.com/other"}})), vec![]),
        &["ManagerNotSeen"],
        "Only the controller \"example.com/other\" may run this Job (spec.managedBy), and it has not written any status.",
        300,
    );
    let gang = || json!({"spec": {"scheduling": {"policy": {"gang": {"minCount": 2}}}}});
    row(
        seen(merged(job(json!({"status": null})), gang()), vec![]),
        &["GangScheduling"],
        "asks for gang scheduling",
        300,
    );
    // Another controller had begun before.
    let told = Evidence {
        events: vec![event("Job", "j", "GangScheduling", "The Job asks for gang scheduling", 20)],
        ..seen(job(gang()), vec![])
    };
    row(told, &["GangScheduling"], "it leaves the Job alone.", 300);
    row(
        seen(job(json!({"spec": {"completionMode": "Sorted"}})), vec![]),
        &["UnknownCompletionMode"],
        "The completion mode \"Sorted\" is unknown",
        300,
    );
    row(
        seen(job(json!({"spec": {"parallelism": 0}, "status": {"active": 0}})), vec![]),
        &["NoParallelism"],
        "spec.parallelism is 0: the Job wants no Pods.",
        300,
    );
    let failed = json!({"active": 0, "failed": 1});
    row(
        seen(
            job(json!({"spec": {"completions": 1, "parallelism": 1}, "status": failed})),
            vec![ended("a", "Failed", 4, json!({"metadata": {"finalizers": null}}))],
        ),
        &["BackOff"],
        "Pods have failed, and the next one is not created before 2026-01-31T12:00:06Z: attempt 1 of 7 (last failure: exit \
         code 1).",
        4,
    );
    // Pods that failed are gone: the Event of the controller knows the time.
    let gone = Evidence {
        events: vec![event(
            "Job",
            "j",
            "BackOff",
            "attempt 3 of 7, next in 40 s at 2026-01-31T12:00:20Z (last failure: exit code 3)",
            20,
        )],
        ..seen(job(json!({"status": {"active": 0, "failed": 3}})), vec![])
    };
    row(
        seen(job(json!({"status": {"active": 0, "failed": 3}})), vec![]),
        &["BackOff"],
        "Pods have failed and are gone; only the controller knows when it creates the next one: after 3 failures it waits \
         for at most 40 s since the last one.",
        300,
    );
    row(gone, &["BackOff"], "before 2026-01-31T12:00:20Z: attempt 3 of 7 (last failure: exit code 3).", 20);
    let per_index = json!({"spec": {"completionMode": "Indexed", "backoffLimitPerIndex": 2, "completions": 2},
        "status": {"active": 1}});
    let index = |index: &str| {
        json!({"metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": index,
        "batch.kubernetes.io/job-index-failure-count": "0"}}})
    };
    row(
        seen(job(per_index), vec![ended("a", "Failed", 3, index("0")), pod("b", index("1"))]),
        &["BackOff"],
        "before 2026-01-31T12:00:07Z: index 0: attempt 1 of 3 (last failure: exit code 1).",
        3,
    );
    let none = || job(json!({"status": {"active": 0}}));
    let quota = "Error creating: pods \"j-x\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5";
    let refused = Evidence {
        events: vec![event("Job", "j", "FailedCreate", quota, 5)],
        quotas: vec![json!({"metadata": {"name": "q"}, "status": {"hard": {"pods": "5"}, "used": {"pods": "5"}}})],
        ..seen(none(), vec![])
    };
    row(
        refused,
        &["QuotaExceeded"],
        "A ResourceQuota of the namespace refuses the Pods: pods \"j-x\" is forbidden: exceeded quota: q, requested: \
         pods=1, used: pods=5, limited: pods=5.",
        65,
    );
    let webhook = "Error creating: admission webhook \"w.example.com\" denied the request: no";
    let refused = Evidence { events: vec![event("Job", "j", "FailedCreate", webhook, 5)], ..seen(none(), vec![]) };
    row(
        refused,
        &["CreationRefused"],
        "The API server refuses to create the Pods: admission webhook \"w.example.com\" denied the request: no.",
        65,
    );
    let namespace = json!({"metadata": {"name": "ns", "deletionTimestamp": ago(50)}});
    row(
        Evidence { namespace: Some(namespace), ..seen(none(), vec![]) },
        &["NamespaceTerminating"],
        "The namespace is being deleted",
        300,
    );
    let too_many = || job(json!({"spec": {"parallelism": 1, "completions": 2}}));
    let refused = Evidence {
        events: vec![event("Job", "j", "FailedDelete", "Error deleting: denied by policy", 5)],
        ..seen(too_many(), vec![pod("a", json!({})), pod("b", json!({}))])
    };
    row(refused, &["DeletionRefused"], "refuses to delete Pods that must go: denied by policy.", 65);
    let refused = Evidence {
        events: vec![event("Job", "j", "InvalidStatus", "status.x: Invalid value", 5)],
        ..seen(job(json!({})), vec![ended("a", "Succeeded", 100, json!({})), ended("b", "Succeeded", 100, json!({}))])
    };
    row(refused, &["StatusRefused"], "cannot write a status that the API accepts: status.x: Invalid value.", 65);
    // Told once, when it began: the Pods have ended since. The refusals before were over.
    let refused = Evidence {
        events: vec![
            event("Job", "j", "StatusAccepted", "The status was written after 3 refused writes", 230),
            event("Job", "j", "StatusRefused", "Error updating status: denied by policy", 200),
        ],
        ..seen(job(json!({})), vec![ended("a", "Succeeded", 100, json!({})), ended("b", "Succeeded", 100, json!({}))])
    };
    row(refused, &["StatusRefused"], "The API server refuses the status of the Job: denied by policy.", 200);
    let refused = Evidence {
        events: vec![event("Job", "j", "StatusRefused", "Error updating status: denied by policy", 200)],
        ..seen(job(json!({"status": null})), vec![pod("a", json!({})), pod("b", json!({}))])
    };
    row(refused, &["StatusRefused"], "The API server refuses the status of the Job: denied by policy.", 200);
    let no_room = json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient cpu.", "lastTransitionTime": ago(240)}]}});
    row(
        seen(job(json!({})), vec![pending("a", no_room.clone()), pending("b", no_room)]),
        &["Unschedulable"],
        "Pods a, b fit on no node: 0/3 nodes are available: 3 Insufficient cpu.",
        240,
    );
    let gated = json!({"spec": {"schedulingGates": [{"name": "example.com/g"}]}, "status": {"conditions":
        [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastTransitionTime": ago(240)}]}});
    row(
        seen(job(json!({})), vec![pending("a", gated), pod("b", json!({}))]),
        &["SchedulingGated"],
        "Pod a is not scheduled before these scheduling gates are removed: example.com/g.",
        290,
    );
    // The gate of the Job controller itself (TTL-23): what it has to do, and the gate of the other.
    let own = |others: Value| {
        let mut gates = vec![json!({"name": "tally.dev/counted-once"})];
        gates.extend(others.as_array().into_iter().flatten().cloned());
        json!({"spec": {"schedulingGates": gates}, "status": {"conditions":
            [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastTransitionTime": ago(240)}]}})
    };
    row(
        seen(job(json!({})), vec![pending("a", own(json!([]))), pod("b", json!({}))]),
        &["ControllerBehind"],
        "The Job controller has to let Pods start, and has not done so: tally-1 holds the Lease",
        240,
    );
    row(
        Evidence {
            leases: Some(vec![]),
            ..seen(job(json!({})), vec![pending("a", own(json!([]))), pod("b", json!({}))])
        },
        &["ControllerNotRunning"],
        "No running Job controller is seen that would let Pods start: there is no Lease of one",
        240,
    );
    row(
        seen(job(json!({})), vec![pending("a", own(json!([{"name": "example.com/g"}]))), pod("b", json!({}))]),
        &["SchedulingGated"],
        "Pod a is not scheduled before these scheduling gates are removed: example.com/g.",
        290,
    );
    row(
        seen(job(json!({})), vec![pending("a", json!({"spec": {"schedulerName": "mine"}})), pod("b", json!({}))]),
        &["NotScheduled"],
        "Pod a has no node, and the scheduler \"mine\" has not said why: it does not run, or is behind.",
        290,
    );
    let pull = "Back-off pulling image \"nope:1\"";
    row(
        seen(job(json!({})), vec![waiting("a", "ImagePullBackOff", pull), waiting("b", "ImagePullBackOff", pull)]),
        &["ImageError"],
        "The image of Pods a, b cannot be used: ImagePullBackOff: Back-off pulling image \"nope:1\".",
        290,
    );
    row(
        seen(
            job(json!({})),
            vec![waiting("a", "CreateContainerConfigError", "configmap \"settings\" not found"), pod("b", json!({}))],
        ),
        &["ContainerConfigError"],
        "The containers of Pod a cannot be created: CreateContainerConfigError: configmap \"settings\" not found.",
        290,
    );
    let restarting = json!({"status": {"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}}}]}});
    row(
        seen(job(json!({})), vec![pod("a", restarting), pod("b", json!({}))]),
        &["ContainerRestarting"],
        "A container of Pod a fails again and again, and waits for its next start: back-off 40s restarting failed container.",
        290,
    );
    let mount = Evidence {
        events: vec![event("Pod", "a", "FailedMount", "MountVolume.SetUp failed for volume \"v\"", 9)],
        ..seen(job(json!({})), vec![waiting("a", "ContainerCreating", ""), pod("b", json!({}))])
    };
    row(
        mount,
        &["NotStarted"],
        "Node n has not started the containers of Pod a: FailedMount: MountVolume.SetUp failed for volume \"v\".",
        290,
    );
    let mut lost = seen(job(json!({})), vec![pod("a", json!({})), pod("b", json!({"spec": {"nodeName": "m"}}))]);
    lost.nodes = Some(vec![node("n", "True"), node("m", "Unknown")]);
    row(lost, &["NodeLost"], "Pod b is on node m, which does not report.", 200);
    let when_failed =
        || job(json!({"spec": {"podReplacementPolicy": "Failed"}, "status": {"active": 1, "terminating": 1}}));
    row(
        seen(when_failed(), vec![terminating("a", "n"), pod("b", json!({}))]),
        &["TerminatingPods"],
        "Pod a has not ended yet and is replaced only after that (podReplacementPolicy Failed).",
        130,
    );
    let mut lost = seen(when_failed(), vec![terminating("a", "m"), pod("b", json!({}))]);
    lost.nodes = Some(vec![node("n", "True"), node("m", "Unknown")]);
    row(lost, &["TerminatingOnLostNode"], "Pod a terminates on node m, which does not report: its end", 200);
    let target = json!([{"type": "FailureTarget", "status": "True", "reason": "DeadlineExceeded",
        "message": "Job was active longer than specified deadline", "lastTransitionTime": ago(110)}]);
    let failing = || {
        job(json!({"spec": {"completions": 1, "parallelism": 1}, "status": {"active": 0, "terminating": 1,
            "conditions": target}}))
    };
    row(
        seen(failing(), vec![terminating("a", "n")]),
        &["EndingPods"],
        "The Job has failed (DeadlineExceeded: Job was active longer than specified deadline); it ends when its Pods have \
         ended: Pod a.",
        110,
    );
    let mut lost = seen(failing(), vec![terminating("a", "gone")]);
    lost.nodes = Some(vec![node("n", "True")]);
    row(
        lost,
        &["TerminatingOnLostNode", "EndingPods"],
        "Pod a terminates on node gone, which does not exist any more",
        130,
    );
    let met = json!([{"type": "SuccessCriteriaMet", "status": "True", "reason": "SuccessPolicy",
        "message": "Matched rules at index 0", "lastTransitionTime": ago(110)}]);
    row(
        seen(
            job(json!({"spec": {"completionMode": "Indexed", "successPolicy": {"rules": [{"succeededIndexes": "0"}]}},
                "status": {"active": 0, "terminating": 1, "completedIndexes": "0", "succeeded": 1, "conditions": met}})),
            vec![{
                let mut it = terminating("a", "n");
                merge(&mut it, &index("1"));
                it
            }],
        ),
        &["EndingPods"],
        "The Job has succeeded (SuccessPolicy: Matched rules at index 0); it ends when",
        110,
    );
    let halting = json!({"metadata": {"annotations": {"tally.dev/halt": "soon"}}, "spec": {"completionMode": "Indexed",
        "completions": 4, "backoffLimitPerIndex": 0, "maxFailedIndexes": 1}, "status": {"active": 1, "failed": 2,
        "failedIndexes": "0,1"}});
    row(
        seen(job(halting), vec![pod("c", index("2"))]),
        &["Halting"],
        "More indexes have failed than maxFailedIndexes allows: no more Pods are started",
        290,
    );
    let many: Vec<Value> = (0..1_001)
        .map(|number| {
            ended(
                &format!("p{number}"),
                "Succeeded",
                100,
                json!({"metadata": {"finalizers": null, "deletionTimestamp": null}}),
            )
        })
        .collect();
    row(
        seen(
            job(json!({"metadata": {"annotations": {"tally.dev/delete-finished-pods": "all"}},
                "spec": {"completions": 5_000, "parallelism": 2}, "status": {"active": 0, "succeeded": 1_001}})),
            many,
        ),
        &["DiscardingPods", "ControllerBehind"],
        "Many finished Pods are to be deleted early",
        100,
    );
    let done = || vec![ended("a", "Succeeded", 100, json!({})), ended("b", "Succeeded", 100, json!({}))];
    row(
        seen(job(json!({})), done()),
        &["UncountedPods", "ControllerBehind"],
        "Pods a, b have ended and are not counted and released by the Job controller yet (finalizer \
         batch.kubernetes.io/job-tracking).",
        100,
    );
    row(
        Evidence { leases: Some(vec![lease("tally-1", 90)]), ..seen(job(json!({})), done()) },
        &["ControllerNotRunning", "UncountedPods"],
        "No running Job controller is seen that would count the Pods that have ended and write the verdict of the Job: tally-1 renewed the \
         Lease kube-system/tally-job-controller last at 2026-01-31T11:58:30Z.",
        90,
    );
    // Recorded, and without an owner since.
    let mut lost = ended("x", "Failed", 100, json!({}));
    lost["metadata"]["ownerReferences"] = json!([]);
    lost["metadata"]["labels"] = json!({});
    let failing = json!([{"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded",
        "lastTransitionTime": ago(110)}]);
    row(
        seen(
            job(json!({"status": {"active": 0, "failed": 1, "uncountedTerminatedPods": {"failed": ["x"]},
                "conditions": failing}})),
            vec![lost],
        ),
        &["UncountedPods"],
        "Pod x has ended and is not counted and released",
        110,
    );
    // One of three failed Pods is left: the back-off of the controller is longer than what it shows.
    row(
        seen(
            job(json!({"status": {"active": 0, "failed": 3}})),
            vec![ended("a", "Failed", 60, json!({"metadata": {"finalizers": null}}))],
        ),
        &["BackOff"],
        "only the controller knows when it creates the next one: after 3 failures",
        60,
    );
    // The same a moment after the failure: the Pod that is left shows only 10 s.
    let left = |seconds| vec![ended("a", "Failed", seconds, json!({"metadata": {"finalizers": null}}))];
    let failed =
        |count: u32| json!({"spec": {"completions": 1, "parallelism": 1}, "status": {"active": 0, "failed": count}});
    row(
        seen(job(failed(3)), left(4)),
        &["BackOff"],
        "Pods have failed, and the next one is created at 2026-01-31T12:00:36Z at the latest, unless one has failed after \
         2026-01-31T11:59:56Z: attempt 3 of 7 (last failure: exit code 1); 2 of the failed Pods are gone, and only the \
         controller knows how long it waits for them.",
        4,
    );
    row(
        seen(job(failed(3)), left(10)),
        &["BackOff"],
        "at 2026-01-31T12:00:30Z at the latest, unless one has failed",
        10,
    );
    row(
        seen(job(failed(2)), left(12)),
        &["BackOff"],
        "at 2026-01-31T12:00:08Z at the latest, unless one has failed",
        12,
    );
    // The status says when it was written, and with that when the last failure was counted.
    let written = |count| {
        let fields = json!([{"subresource": "status", "time": ago(3)}]);
        merged(job(failed(count)), json!({"metadata": {"managedFields": fields}}))
    };
    let sentence = "at 2026-01-31T12:00:17Z at the latest: attempt 2 of 7 (last failure: exit code 1); 1 of the failed Pods \
                    is gone, and only";
    row(seen(written(2), left(4)), &["BackOff"], sentence, 4);
    let edited = json!({"metadata": {"labels": {"a": "b"}, "managedFields":
        [{"subresource": "status", "time": ago(3)}, {"time": ago(1)}]}});
    row(seen(merged(job(failed(2)), edited), left(4)), &["BackOff"], sentence, 4);
    // The controller has told of the failure that is gone, or of one that came before others.
    let told = |count, pods| Evidence {
        events: vec![event(
            "Job",
            "j",
            "BackOff",
            "attempt 3 of 7, next in 40 s at 2026-01-31T12:00:36Z (last failure: exit code 1)",
            4,
        )],
        ..seen(job(failed(count)), pods)
    };
    row(told(3, left(4)), &["BackOff"], "not created before 2026-01-31T12:00:36Z: attempt 3 of 7", 4);
    row(told(4, left(4)), &["BackOff"], "at 2026-01-31T12:01:16Z at the latest, unless", 4);
    row(told(3, left(3)), &["BackOff"], "at 2026-01-31T12:00:37Z at the latest, unless", 3);
    // Another manager remembers failures as well. Without any Pod here, all may be in another cluster.
    let managed = |count| merged(job(failed(count)), json!({"spec": {"managedBy": "example.com/m"}}));
    row(
        seen(managed(3), left(4)),
        &["BackOff"],
        "at 2026-01-31T12:00:36Z at the latest, unless one has failed after",
        4,
    );
    row(seen(managed(3), vec![]), &["ControllerBehind"], "only the controller \"example.com/m\" may do that", 300);
    // It tries to create Pods: it does not wait.
    let refused = "Error creating: exceeded quota: q";
    let tries =
        Evidence { events: vec![event("Job", "j", "FailedCreate", refused, 12)], ..seen(job(failed(3)), left(12)) };
    row(tries, &["QuotaExceeded"], "A ResourceQuota of the namespace refuses the Pods", 72);
    // It does for a Pod that is left.
    let tried =
        Evidence { events: vec![event("Job", "j", "FailedCreate", refused, 3)], ..seen(job(failed(3)), left(4)) };
    row(tried, &["BackOff"], "not created before 2026-01-31T12:00:06Z: attempt 3 of 7", 4);
    // A Pod without an owner that has ended is not adopted: its success ends no back-off, and its failure begins none.
    for phase in ["Succeeded", "Failed"] {
        let orphan = ended("b", phase, 2, json!({"metadata": {"finalizers": null, "ownerReferences": []}}));
        let pods = vec![left(4).remove(0), orphan];
        row(seen(job(failed(1)), pods), &["BackOff"], "not created before 2026-01-31T12:00:06Z: attempt 1 of 7", 4);
    }
    // The end is decided, and the release of a Pod is refused, which no Event says. The clock of the controller runs ahead.
    for seconds in [110, -500] {
        let met = json!([{"type": "SuccessCriteriaMet", "status": "True", "reason": "CompletionsReached",
            "lastTransitionTime": ago(seconds)}]);
        let indexed = job(
            json!({"spec": {"completionMode": "Indexed", "parallelism": 1}, "status": {"active": 0, "succeeded": 2,
            "completedIndexes": "0,1", "startTime": ago(seconds + 20), "conditions": met}}),
        );
        let released = json!({"metadata": {"finalizers": null}});
        let mut counted = ended("b", "Succeeded", 120, index("1"));
        merge(&mut counted, &released);
        row(
            seen(indexed, vec![ended("a", "Succeeded", 150, index("0")), counted]),
            &["UncountedPods", "ControllerBehind"],
            "Pod a has ended and is not counted and released",
            if seconds == 110 { 110 } else { 120 },
        );
    }
    // A start that a clock ahead has written: a Pod is missing.
    row(
        seen(job(json!({"status": {"active": 0, "startTime": ago(-500)}})), vec![]),
        &["ControllerBehind"],
        "has to create Pods",
        300,
    );
    // A clock that runs ahead.
    row(
        seen(
            job(json!({"status": {"active": 0}})),
            vec![ended("a", "Succeeded", -500, json!({})), ended("b", "Succeeded", -500, json!({}))],
        ),
        &["UncountedPods", "ControllerBehind"],
        "Pods a, b have ended",
        300,
    );
    let deleted = |finalizers: Value| {
        job(json!({"metadata": {"deletionTimestamp": ago(60), "finalizers": finalizers}, "status": {"active": 0}}))
    };
    row(
        seen(deleted(json!(["example.com/keep"])), vec![]),
        &["ForeignFinalizers"],
        "Job j is deleted and stays until other controllers remove their finalizers: example.com/keep.",
        60,
    );
    let kept = ended(
        "a",
        "Failed",
        100,
        json!({"metadata": {"finalizers": ["example.com/keep"],
        "deletionTimestamp": ago(50)}}),
    );
    row(
        seen(deleted(json!(["foregroundDeletion"])), vec![kept]),
        &["DeletionWaitsForPods", "ForeignFinalizers"],
        "The Job is deleted in the foreground: it stays until its Pods are gone: Pod a.",
        60,
    );
    row(
        seen(deleted(json!(["orphan"])), vec![]),
        &["DeletionPending"],
        "the garbage collector has not removed its finalizer yet: orphan.",
        60,
    );
    let told = event("Job", "j", "RevisionGate", "", 20);
    row(
        Evidence { events: vec![told], ..seen(none(), vec![]) },
        &["RevisionGate"],
        "The controller waits until it has seen all Pods that another writer of the Job's status has counted (revision \
         gate)",
        300,
    );
    row(
        seen(none(), vec![]),
        &["ControllerBehind"],
        "The Job controller has to create Pods, and has not done so: tally-1 holds the Lease \
         kube-system/tally-job-controller and renews it.",
        300,
    );
    row(
        Evidence { leases: Some(vec![]), ..seen(untouched(json!({})), vec![]) },
        &["ControllerNotRunning"],
        "No running Job controller is seen that would create Pods: there is no Lease of one (tally-job-controller, kube-controller-manager).",
        300,
    );
    // The controllers of tally up have no Lease: the server says whether there is one. A Lease of another controller may be left.
    for leases in [Some(vec![]), None, Some(vec![lease("tally-1", 90)])] {
        row(
            Evidence { leases, host: Host::Serving { controller: true }, ..seen(untouched(json!({})), vec![]) },
            &["ControllerBehind"],
            "The Job controller has to create Pods, and has not done so: it runs in the process that serves the API, which \
             answers.",
            300,
        );
    }
    row(
        Evidence {
            leases: Some(vec![]),
            host: Host::Serving { controller: false },
            ..seen(untouched(json!({})), vec![])
        },
        &["ControllerNotRunning"],
        "that would create Pods: the server of the API runs without it (tally up --controllers), and there is no Lease of \
         another one.",
        300,
    );
    // One that deploy/ has installed.
    let mut elsewhere = lease("tally-2", 5);
    merge(
        &mut elsewhere,
        &json!({"metadata": {"namespace": "batch", "name": "my-release", "labels": {"tally.dev/lease-of": "job-controller"}}}),
    );
    row(
        Evidence { leases: Some(vec![elsewhere]), ..seen(untouched(json!({})), vec![]) },
        &["ControllerBehind"],
        "tally-2 holds the Lease batch/my-release and renews it.",
        300,
    );
    row(
        Evidence { host: Host::Serving { controller: false }, ..seen(untouched(json!({})), vec![]) },
        &["ControllerBehind"],
        "tally-1 holds the Lease kube-system/tally-job-controller and renews it.",
        300,
    );
    row(
        Evidence {
            leases: None,
            host: Host::Stopped,
            ..seen(job(json!({})), vec![pod("a", json!({})), pod("b", json!({}))])
        },
        &["ControllerNotRunning"],
        "No running Job controller is seen that would go on with the Job: no process uses the data directory.",
        -1,
    );
    let mut unreadable = job(json!({}));
    unreadable["spec"]["completions"] = "two".into();
    row(seen(unreadable, vec![]), &["Unreadable"], "The object cannot be understood: cannot read Job \"j\"", -1);

    // CronJobs.
    row(
        seen(cron(json!({"spec": {"suspend": true}})), vec![]),
        &["Suspended"],
        "The CronJob is suspended (spec.suspend is true): it starts no Jobs.",
        7200,
    );
    row(
        seen(cron(json!({"spec": {"timeZone": "Mars/Base"}})), vec![]),
        &["InvalidSchedule"],
        "The CronJob is never due: invalid timeZone: \"Mars/Base\": unknown time zone Mars/Base.",
        7200,
    );
    row(
        seen(cron(json!({"spec": {"schedule": "61 * * * *"}})), vec![]),
        &["InvalidSchedule"],
        "unparseable schedule: \"61 * * * *\"",
        7200,
    );
    row(seen(cron(json!({"spec": {"schedule": "0 0 31 2 *"}})), vec![]), &["NeverDue"], "has no next time.", 7200);
    let missed = json!({"spec": {"startingDeadlineSeconds": 600}, "status": {"lastScheduleTime": ago(5400)}});
    row(
        seen(cron(missed), vec![]),
        &["MissedSchedule"],
        "The Job of 2026-01-31T11:30:00Z was not started within startingDeadlineSeconds (600), and will not be.",
        1800,
    );
    let late = json!({"status": {"lastScheduleTime": ago(5400)}});
    let forbidden = json!({"spec": {"concurrencyPolicy": "Forbid"}, "status": {"lastScheduleTime": ago(5400),
        "active": [{"name": "c-1"}]}});
    row(
        seen(cron(forbidden), vec![]),
        &["ConcurrencyForbidden"],
        "The Job of 2026-01-31T11:30:00Z is not started (concurrencyPolicy Forbid) while an earlier one runs: c-1.",
        1800,
    );
    let mut manager = lease("", 3000);
    manager["metadata"]["name"] = "kube-controller-manager".into();
    row(
        Evidence { leases: Some(vec![manager, lease("tally-1", 1)]), ..seen(cron(late.clone()), vec![]) },
        &["ControllerNotRunning"],
        "No running CronJob controller is seen that would start Job c-29497650: the Lease kube-system/kube-controller-manager was released at",
        3000,
    );
    // Such a process does not run CronJobs.
    row(
        Evidence { leases: Some(vec![lease("tally-1", 1)]), ..seen(cron(late.clone()), vec![]) },
        &["ControllerNotRunning"],
        "No running CronJob controller is seen that would start Job c-29497650: there is no Lease of one (kube-controller-manager).",
        1800,
    );
    row(
        Evidence { host: Host::Serving { controller: true }, ..seen(cron(late.clone()), vec![]) },
        &["ControllerBehind"],
        "The CronJob controller has to start Job c-29497650, and has not done so: it runs in the process",
        1800,
    );
    let taken =
        event("CronJob", "c", "FailedCreate", "Error creating job: jobs.batch \"c-29497650\" already exists", 100);
    row(
        Evidence { events: vec![taken], ..seen(cron(late), vec![]) },
        &["CreationRefused"],
        "refuses to create the Job: jobs.batch \"c-29497650\" already exists.",
        160,
    );

    // Pods by themselves.
    row(
        seen(ended("a", "Succeeded", 100, json!({})), vec![]),
        &["UncountedPods", "ControllerBehind"],
        "Pod a has ended and is not counted and released",
        100,
    );
    row(
        seen(waiting("a", "ErrImagePull", "no such image"), vec![]),
        &["ImageError"],
        "The image of Pod a cannot be used: ErrImagePull: no such image.",
        290,
    );
    rows
}

#[test]
fn every_reason_is_found_and_named() {
    let mut found: BTreeSet<&str> = BTreeSet::new();
    for row in rows() {
        let explanation = explain(&row.evidence, now());
        let text = explanation.text(now());
        assert_eq!(names(&explanation), row.reasons, "{text}");
        let sentence = explanation.waiting_for().unwrap().sentence();
        assert!(sentence.contains(row.sentence), "{sentence}\nis not\n{}", row.sentence);
        let since = explanation.since().map(|at| (now() - at).millis() / 1000);
        assert_eq!(since, row.since, "{text}");
        assert!(sentence.ends_with('.') && !sentence.contains("..") && !sentence.contains('\n'), "{sentence}");
        assert!(explanation.would_change().unwrap().ends_with('.'));
        // As JSON, with the same names.
        let json = explanation.json();
        assert_eq!(json["reasons"][0]["reason"], row.reasons[0]);
        // A Job with a Pod that runs goes on, whatever keeps the others back.
        let has_started = row.evidence.pods.iter().any(|pod| pod["status"]["phase"] == "Running");
        let expected = [State::Waiting, State::Deleting, State::Complete];
        assert!(expected.contains(&explanation.state) || has_started, "{text}");
        found.extend(row.reasons);
    }
    let missing: Vec<_> = NAMES.iter().filter(|name| !found.contains(*name) && **name != "Unknown").collect();
    assert!(missing.is_empty(), "no row for {missing:?}");
}

#[test]
fn nothing_is_said_where_nothing_is_wrong() {
    let complete = json!([{"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": ago(20)},
        {"type": "Complete", "status": "True", "reason": "CompletionsReached", "lastTransitionTime": ago(20)}]);
    let fresh = |object: Value| {
        let mut object = object;
        object["metadata"]["creationTimestamp"] = ago(3).into();
        object["status"] = json!({});
        object
    };
    let starting = |seconds: i64| {
        let mut it = waiting("a", "ContainerCreating", "");
        it["metadata"]["creationTimestamp"] = ago(seconds).into();
        it
    };
    let gated = |seconds: i64| {
        let mut it = pending("a", json!({"spec": {"schedulingGates": [{"name": "tally.dev/counted-once"}]}}));
        it["metadata"]["creationTimestamp"] = ago(seconds).into();
        it
    };
    let released = |mut pod: Value| {
        pod["metadata"]["finalizers"] = json!([]);
        pod
    };
    let mut preparing = starting(200);
    preparing["status"]["initContainerStatuses"] =
        json!([{"name": "i", "state": {"running": {"startedAt": ago(190)}}}]);
    // EVENT-14: a status was refused, and has been accepted since; or a new leader has written it.
    let refused = || event("Job", "j", "StatusRefused", "Error updating status: denied by policy", 60);
    let lags = |metadata: Value| {
        let mut ready = pod("a", json!({}));
        ready["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "lastTransitionTime": ago(1)}]);
        seen(job(json!({"metadata": metadata})), vec![ready, pod("b", json!({}))])
    };
    let accepted = event("Job", "j", "StatusAccepted", "The status was written after 3 refused writes", 30);
    let written = json!({"managedFields": [{"subresource": "status", "time": ago(30)}]});
    for (evidence, state) in [
        (Evidence { events: vec![refused(), accepted], ..lags(json!({})) }, State::Running),
        (Evidence { events: vec![refused()], ..lags(written) }, State::Running),
        (seen(job(json!({})), vec![pod("a", json!({})), pod("b", json!({}))]), State::Running),
        (seen(job(json!({"status": {"active": 0, "succeeded": 2, "conditions": complete}})), vec![]), State::Complete),
        // Just created: the controller has not had the time to do anything.
        (seen(fresh(job(json!({}))), vec![]), State::Running),
        (seen(job(json!({})), vec![starting(20), pod("b", json!({}))]), State::Running),
        // Behind the gate of the controller itself, for the moment.
        (seen(job(json!({})), vec![gated(3), pod("b", json!({}))]), State::Running),
        // An init container takes long.
        (seen(job(json!({})), vec![preparing, pod("b", json!({}))]), State::Running),
        // Pods that terminate are replaced at once.
        (
            seen(
                job(json!({"status": {"failed": 1, "terminating": 1}})),
                vec![released(terminating("x", "n")), pod("a", json!({})), pod("b", json!({}))],
            ),
            State::Running,
        ),
        // Another controller works on it.
        (seen(job(json!({"spec": {"managedBy": "example.com/other"}})), vec![]), State::Running),
        (
            seen(job(json!({"spec": {"scheduling": {}}})), vec![pod("a", json!({})), pod("b", json!({}))]),
            State::Running,
        ),
        (seen(cron(json!({})), vec![]), State::Running),
        (seen(cron(json!({"spec": {"timeZone": "Europe/Berlin"}})), vec![]), State::Running),
        (seen(pod("a", json!({})), vec![]), State::Running),
        (seen(ended("a", "Succeeded", 100, json!({"metadata": {"finalizers": null}})), vec![]), State::Complete),
    ] {
        let explanation = explain(&evidence, now());
        assert_eq!(names(&explanation), [""; 0], "{}", explanation.text(now()));
        assert_eq!(explanation.state, state, "{}", explanation.text(now()));
        assert!(explanation.text(now()).contains("Nothing is wrong."));
    }
}

/// A Job waits if there is a reason and none of its Pods runs. Pods that are about to start are no reason.
#[test]
fn a_job_waits_if_none_of_its_pods_runs_and_something_keeps_it() {
    let unschedulable = json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        "lastTransitionTime": ago(240)}]}});
    let large = |name: &str| pending(name, unschedulable.clone());
    let runs = |name: &str| pod(name, json!({}));
    let mut prepares = waiting("i", "PodInitializing", "");
    prepares["status"]["initContainerStatuses"] = json!([{"name": "i", "state": {"running": {"startedAt": ago(9)}}}]);
    let starts = |seconds: i64| {
        let mut it = waiting("s", "ContainerCreating", "");
        it["metadata"]["creationTimestamp"] = ago(seconds).into();
        it
    };
    let crashes = pod(
        "c",
        json!({"status": {"containerStatuses": [{"name": "c", "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}}),
    );
    let secret = waiting("x", "CreateContainerConfigError", "secret \"keys\" not found");
    let elsewhere = pod("e", json!({"spec": {"nodeName": "gone"}}));
    for (pods, state, reason) in [
        (vec![large("a"), large("b")], State::Waiting, Some("Unschedulable")),
        (vec![large("a"), runs("b")], State::Running, Some("Unschedulable")),
        (vec![large("a"), prepares], State::Running, Some("Unschedulable")),
        (vec![large("a"), starts(2)], State::Waiting, Some("Unschedulable")),
        (vec![starts(2), starts(3)], State::Running, None),
        (vec![starts(2), pending("p", json!({"metadata": {"creationTimestamp": ago(1)}}))], State::Running, None),
        (vec![starts(200), starts(200)], State::Waiting, Some("NotStarted")),
        (vec![secret.clone(), secret], State::Waiting, Some("ContainerConfigError")),
        (vec![crashes.clone(), crashes], State::Waiting, Some("ContainerRestarting")),
        (vec![elsewhere.clone(), elsewhere], State::Waiting, Some("NodeLost")),
        (vec![runs("a"), runs("b")], State::Running, None),
    ] {
        let explanation = explain(&seen(job(json!({})), pods), now());
        let text = explanation.text(now());
        assert_eq!((explanation.state, names(&explanation).first().copied()), (state, reason), "{text}");
        assert!(text.starts_with(&format!("job/j in namespace ns: {}. ", state.name())), "{text}");
    }
    // What a Pod of a directory says that no process uses is of no use.
    let stopped = Evidence { host: Host::Stopped, ..seen(job(json!({})), vec![runs("a"), runs("b")]) };
    assert_eq!(explain(&stopped, now()).state, State::Waiting);
}

fn failed_job(reason: &str, status: Value) -> Value {
    let mut it = job(json!({"status": {"active": 0, "failed": 1, "conditions": [
        {"type": "FailureTarget", "status": "True", "reason": reason, "lastTransitionTime": ago(20)},
        {"type": "Failed", "status": "True", "reason": reason, "message": "why it ended", "lastTransitionTime": ago(20)}]}}));
    merge(&mut it["status"], &status);
    it
}

fn with_end(name: &str, index: Option<u32>, seconds_ago: i64, terminated: Value) -> Value {
    let mut it = ended(name, "Failed", seconds_ago, json!({"metadata": {"finalizers": null}}));
    merge(&mut it["status"]["containerStatuses"][0]["state"]["terminated"], &terminated);
    if let Some(index) = index {
        it["metadata"]["annotations"] = json!({"batch.kubernetes.io/job-completion-index": index.to_string()});
    }
    it
}

#[test]
fn a_failed_job_says_how_its_pods_failed() {
    let none = || json!({});
    let evicted = json!({"metadata": {"finalizers": null}, "status": {"phase": "Failed", "reason": "Evicted",
        "message": "The node was low on resource: memory.", "startTime": ago(30)}});
    let killed = json!({"metadata": {"deletionTimestamp": ago(1), "deletionGracePeriodSeconds": 1}});
    let mut killed_by_the_end = with_end("k", None, 1, json!({"exitCode": 143, "signal": 15}));
    merge(&mut killed_by_the_end, &killed);
    for (pods, expected) in [
        (vec![with_end("a", None, 30, json!({"exitCode": 3}))], vec!["Pod a: exit code 3."]),
        (
            vec![with_end("a", None, 30, json!({"exitCode": 137, "signal": 9, "reason": "OOMKilled"}))],
            vec!["Pod a: signal 9, OOMKilled."],
        ),
        (
            vec![with_end(
                "a",
                None,
                30,
                json!({"exitCode": 128, "reason": "StartError",
                "message": "the command \"nope\" was not found in PATH=/bin"}),
            )],
            vec!["Pod a: exit code 128, StartError: the command \"nope\" was not found in PATH=/bin."],
        ),
        (
            vec![with_end("a", None, 30, json!({"exitCode": 2, "message": "two\nlines\n"}))],
            vec!["Pod a: exit code 2: two lines."],
        ),
        (vec![pod("a", evicted)], vec!["Pod a: Evicted: The node was low on resource: memory."]),
        // The last one of each index, the newest first, at most three. One that was killed because the Job failed is not
        // what it failed of.
        (
            vec![
                with_end("a", Some(0), 50, json!({"exitCode": 1})),
                with_end("b", Some(0), 30, json!({"exitCode": 2})),
                with_end("c", Some(1), 40, json!({"exitCode": 3})),
            ],
            vec!["Pod b (index 0): exit code 2.", "Pod c (index 1): exit code 3."],
        ),
        (
            vec![killed_by_the_end, with_end("a", None, 30, json!({"exitCode": 3}))],
            vec!["Pod a: exit code 3.", "Pod k: signal 15."],
        ),
        (
            (1..6).map(|at| with_end(&format!("p{at}"), None, 30 + at, json!({"exitCode": at}))).collect(),
            vec!["Pod p1: exit code 1.", "Pod p2: exit code 2.", "Pod p3: exit code 3."],
        ),
        (vec![ended("ok", "Succeeded", 30, json!({"metadata": {"finalizers": null}}))], vec![]),
    ] {
        let count = pods.iter().filter(|pod| pod["status"]["phase"] == "Failed").count();
        let evidence = seen(failed_job("BackoffLimitExceeded", none()), pods);
        let explanation = explain(&evidence, now());
        let text = explanation.text(now());
        let told: Vec<String> = explanation.failures.iter().map(|failure| failure.sentence()).collect();
        assert_eq!((told, explanation.state), (expected.iter().map(|it| (*it).to_owned()).collect(), State::Failed));
        assert!(text.contains("The Job has failed: BackoffLimitExceeded (why it ended) since"), "{text}");
        assert!(text.contains("0 of 2 succeeded, 1 failed.") && !text.contains("Nothing is wrong"), "{text}");
        assert!(expected.iter().all(|it| text.contains(&format!("Failed:    {it}"))), "{text}");
        assert_eq!(explanation.failures.len() + explanation.more_failures, count, "{text}");
        assert_eq!(explanation.json()["failures"].as_array().map(Vec::len), Some(expected.len()));
    }
    let indexes = explain(&seen(failed_job("FailedIndexes", json!({"failedIndexes": "1,3-5"})), vec![]), now());
    assert!(indexes.summary.ends_with(" Failed indexes: 1,3-5."), "{}", indexes.summary);
    let many = json!({"failedIndexes": (0..500).map(|at| (at * 2).to_string()).collect::<Vec<_>>().join(",")});
    assert!(explain(&seen(failed_job("FailedIndexes", many), vec![]), now()).summary.len() < 300);
}

/// The last lines of the log are the caller's to read: they are shown below the failure.
#[test]
fn the_last_lines_of_a_log_are_below_the_failure() {
    let pods = vec![with_end("a", None, 30, json!({"exitCode": 3}))];
    let mut explanation = explain(&seen(failed_job("BackoffLimitExceeded", json!({})), pods), now());
    explanation.failures[0].log = vec!["first".to_owned(), "cannot open x".to_owned()];
    let text = explanation.text(now());
    let expected = "Failed:    Pod a: exit code 3.\n  at:      11:59:30 UTC, 30 s ago\n  log:     first\n           cannot open x\n";
    assert!(text.contains(expected), "{text}");
    assert_eq!(explanation.json()["failures"][0]["log"], json!(["first", "cannot open x"]));
}

/// A program that does not exist is named while the Job is tried again, in the first sentence.
#[test]
fn what_cannot_start_is_told_while_it_is_tried_again() {
    let failed = with_end(
        "a",
        None,
        4,
        json!({"exitCode": 128, "reason": "StartError", "message": "the command \"nope\" was not found in PATH=/bin"}),
    );
    let one = json!({"spec": {"completions": 1, "parallelism": 1}, "status": {"active": 0, "failed": 1}});
    let explanation = explain(&seen(job(one), vec![failed.clone()]), now());
    let text = explanation.text(now());
    assert_eq!((explanation.state, names(&explanation)), (State::Waiting, vec!["BackOff"]));
    assert!(
        explanation
            .waiting_for()
            .unwrap()
            .sentence()
            .ends_with("(last failure: exit code 128 (StartError)): the command \"nope\" was not found in PATH=/bin."),
        "{text}"
    );
    // Between two attempts, and of a Pod by itself.
    let starts = waiting("b", "ContainerCreating", "");
    let mut starts_now = starts;
    starts_now["metadata"]["creationTimestamp"] = ago(1).into();
    let one = json!({"spec": {"completions": 1, "parallelism": 1}, "status": {"active": 1, "failed": 1}});
    for evidence in [seen(job(one), vec![failed.clone(), starts_now]), seen(failed, vec![])] {
        let text = explain(&evidence, now()).text(now());
        assert!(text.contains("StartError: the command \"nope\" was not found in PATH=/bin."), "{text}");
        assert!(!text.contains("Nothing is wrong"), "{text}");
    }
}

/// Failures whose Pods are gone delay nothing once a Pod has succeeded.
#[test]
fn a_job_that_goes_on_after_a_success_does_not_wait_for_failures_before_it() {
    let object = job(json!({"spec": {"parallelism": 1}, "status": {"active": 0, "failed": 3, "succeeded": 1}}));
    let succeeded = |seconds| ended("a", "Succeeded", seconds, json!({"metadata": {"finalizers": null}}));
    let explanation = explain(&seen(object.clone(), vec![succeeded(2)]), now());
    assert!(explanation.reasons.is_empty(), "{}", explanation.text(now()));
    let explanation = explain(&seen(object, vec![succeeded(10)]), now());
    assert_eq!(names(&explanation), ["ControllerBehind"], "ten seconds are enough: {}", explanation.text(now()));
}

/// Times are whole seconds: a Pod that was created and failed in the second of a success counts as later.
#[test]
fn a_failure_that_is_gone_may_be_later_than_a_success_in_the_same_second() {
    let status = json!([{"subresource": "status", "time": ago(4)}]);
    for managers in [status, json!([])] {
        let object = job(json!({"metadata": {"managedFields": managers},
            "spec": {"completions": 8, "parallelism": 8}, "status": {"active": 0, "failed": 4, "succeeded": 1}}));
        let at_once = |name: &str, phase| {
            ended(name, phase, 4, json!({"metadata": {"creationTimestamp": ago(4), "finalizers": null}}))
        };
        let mut pods = ["a", "b", "c"].map(|name| at_once(name, "Failed")).to_vec();
        pods.push(at_once("d", "Succeeded"));
        let explanation = explain(&seen(object, pods), now());
        let text = explanation.text(now());
        assert_eq!(names(&explanation), ["BackOff"], "{text}");
        assert!(text.contains("at 2026-01-31T12:01:16Z at the latest"), "80 s, not 40 s: {text}");
    }
}

/// The text says what is certain of the end of a wait, and what is not.
#[test]
fn a_wait_for_failures_whose_pods_are_gone_has_its_latest_end() {
    let one = |count: u32, managers: Value| {
        job(json!({"spec": {"completions": 1, "parallelism": 1}, "metadata": {"managedFields": managers},
            "status": {"active": 0, "failed": count}}))
    };
    let left = || vec![ended("a", "Failed", 4, json!({"metadata": {"finalizers": null}}))];
    let explanation = explain(&seen(one(3, json!([{"subresource": "status", "time": ago(3)}])), left()), now());
    let (text, json) = (explanation.text(now()), explanation.json());
    assert!(text.contains("Next:      12:00:37 UTC, in 37 s: the next Pod is created, if not before."), "{text}");
    assert_eq!(json["reasons"][0]["until"], "2026-01-31T12:00:37Z");
    // Nothing says when the failures were counted: the time is told with its condition only.
    let text = explain(&seen(one(3, json!([])), left()), now()).text(now());
    assert!(!text.contains("Next:") && text.contains("unless one has failed after"), "{text}");
}

#[test]
fn what_comes_next_has_its_time() {
    let next = |evidence: &Evidence| -> Vec<String> {
        let explanation = explain(evidence, now());
        explanation.next.iter().map(|step| format!("{} {}", (step.at - now()).millis() / 1000, step.what)).collect()
    };
    let deadline = job(json!({"spec": {"activeDeadlineSeconds": 400}}));
    assert_eq!(
        next(&seen(deadline, vec![pod("a", json!({})), pod("b", json!({}))])),
        ["100 the Job fails: its activeDeadlineSeconds (400) end"]
    );
    let complete = json!([{"type": "Complete", "status": "True", "lastTransitionTime": ago(20)}]);
    let expires = job(json!({"spec": {"ttlSecondsAfterFinished": 60}, "status": {"active": 0, "succeeded": 2,
        "conditions": complete}}));
    assert_eq!(next(&seen(expires, vec![])), ["40 the Job is deleted: its TTL ends"]);
    let berlin = cron(json!({"spec": {"timeZone": "Europe/Berlin"}}));
    assert_eq!(next(&seen(berlin, vec![])), ["1800 the next Job is due (2026-01-31T13:30:00+01:00)"]);
    let mut waits = pending("a", json!({}));
    waits["metadata"]["creationTimestamp"] = ago(30).into();
    let limited = job(json!({"metadata": {"annotations": {"tally.dev/pending-timeout": "2m"}}}));
    assert_eq!(
        next(&seen(limited, vec![waits, pod("b", json!({}))])),
        ["90 the Job fails if a Pod is still pending (tally.dev/pending-timeout)"]
    );
    let mut goes = terminating("a", "n");
    goes["metadata"]["deletionTimestamp"] = (now() + Span::from_seconds(10)).to_string().into();
    let gives_up = job(json!({"metadata": {"annotations": {"tally.dev/replace-terminating-after": "5m"}},
        "spec": {"podReplacementPolicy": "Failed"}}));
    assert_eq!(
        next(&seen(gives_up, vec![goes, pod("b", json!({}))])),
        [
            "10 the grace period of Pod a ends",
            "280 Pod a is replaced if its node is lost (tally.dev/replace-terminating-after)"
        ]
    );
}

#[test]
fn the_text_fits_one_screen() {
    let pods: Vec<Value> =
        (0..200).map(|number| waiting(&format!("p{number}"), "ErrImagePull", "no such image")).collect();
    let mut evidence = seen(job(json!({"spec": {"completions": 200, "parallelism": 200}})), pods);
    evidence.events = (0..50).map(|at| event("Pod", "p0", "Failed", &format!("Error {at}"), at)).collect();
    evidence.unread = vec!["nodes: forbidden".to_owned()];
    let text = explain(&evidence, now()).text(now());
    assert!(text.lines().count() < 35, "{text}");
    assert!(text.contains("The image of 200 Pods (p0, p1, p2 and 197 more) cannot be used"), "{text}");
    assert!(text.contains("Since:     11:55:10 UTC, 4 min 50 s ago"), "{text}");
    assert!(text.contains("Not read, so reasons may be missing: nodes: forbidden"), "{text}");
}

#[test]
fn times_are_for_people() {
    for (seconds, text) in [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3_600, "1 h"),
        (7_500, "2 h 5 min"),
        (97_200, "1 d 3 h"),
    ] {
        assert_eq!(tally_explain::duration(Span::from_seconds(seconds)), text);
    }
    assert_eq!(tally_explain::moment(now() - Span::from_seconds(90_000), now()), "2026-01-30T11:00:00Z, 1 d 1 h ago");
    assert_eq!(tally_explain::moment(now() + Span::from_seconds(5), now()), "12:00:05 UTC, in 5 s");
}
