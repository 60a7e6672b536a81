//! Where Pods run as processes.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::server::{self, Server};
use crate::tool::{Cluster, NAMESPACE, Seen, eventually, explain, reasons, tally, text};

/// What this part shows.
pub const REASONS: [&str; 14] = [
    "BackOff",
    "ContainerConfigError",
    "ContainerRestarting",
    "ControllerBehind",
    "CreationRefused",
    "Halting",
    "ManagerNotSeen",
    "NoParallelism",
    "NotScheduled",
    "QuotaExceeded",
    "SchedulingGated",
    "Suspended",
    "Unschedulable",
    "WaitsForJobs",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_job_says_what_it_waits_for() {
    let directory = server::directory();
    let cluster = Cluster::of(Server::start_node(directory.path()).await, directory);
    let none = || json!({});
    // The slow ones first: some reasons are given only when time has passed.
    cluster.job("other-manager", none(), json!({"managedBy": "example.com/other"}), "true").await;
    let scheduler = json!({"template": {"spec": {"schedulerName": "mine"}}});
    cluster.job("other-scheduler", none(), scheduler, "true").await;

    cluster.job("suspended", none(), json!({"suspend": true}), "true").await;
    cluster.says("job/suspended", &["Suspended"], "The Job is suspended").await;
    let after = json!({"annotations": {"tally.dev/after": "suspended"}});
    cluster.job("later", after, none(), "true").await;
    cluster.says("job/later", &["WaitsForJobs"], "other Jobs (tally.dev/after): suspended.").await;
    cluster.job("none-at-a-time", none(), json!({"parallelism": 0}), "true").await;
    cluster.says("job/none-at-a-time", &["NoParallelism"], "spec.parallelism is 0").await;

    // Failures.
    let slowly = json!({"annotations": {"tally.dev/backoff-base": "1h"}});
    cluster.job("fails", slowly, none(), "exit 3").await;
    let waits = cluster.says("job/fails", &["BackOff"], "attempt 1 of 7 (last failure: exit code 3)").await;
    assert_eq!(waits["next"][0]["at"], waits["reasons"][0]["until"]);
    assert_eq!((&waits["state"], &waits["next"][0]["what"]), (&json!("Waiting"), &json!("the next Pod is created")));
    let spec = json!({"completionMode": "Indexed", "completions": 4, "parallelism": 3, "backoffLimitPerIndex": 0,
        "maxFailedIndexes": 1});
    let soon = json!({"annotations": {"tally.dev/halt": "soon"}});
    let script = "if [ $JOB_COMPLETION_INDEX -lt 2 ]; then exit 1; fi; sleep 1000";
    cluster.job("halts", soon, spec, script).await;
    cluster.says("job/halts", &["Halting"], "More indexes have failed than maxFailedIndexes allows").await;

    // Admission.
    let namespaces = "/api/v1/namespaces";
    cluster.create(namespaces, &json!({"metadata": {"name": "small"}})).await;
    let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}});
    cluster.create("/api/v1/namespaces/small/resourcequotas", &quota).await;
    let strict =
        json!({"metadata": {"name": "strict", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    cluster.create(namespaces, &strict).await;
    for namespace in ["small", "strict"] {
        let body = crate::tool::job("refused", none(), none(), "true");
        cluster.create(&format!("/apis/batch/v1/namespaces/{namespace}/jobs"), &body).await;
    }
    let there = |namespace: &'static str| ["-n", namespace, "--kubeconfig", &cluster.kubeconfig].map(str::to_owned);
    let (small, strict) = (there("small"), there("strict"));
    let (small, strict) = (small.each_ref().map(String::as_str), strict.each_ref().map(String::as_str));
    let quota = cluster.seen.says(&small, "job/refused", &["QuotaExceeded"], "exceeded quota: few").await;
    let lines = quota["evidence"].to_string();
    assert!(lines.contains("ResourceQuota few: pods 0 of 0"), "{lines}");
    cluster.seen.says(&strict, "job/refused", &["CreationRefused"], "violates PodSecurity").await;

    // Scheduling and starting.
    let large = json!({"template": {"spec": {"containers": [{"name": "c", "image": "none", "command": ["true"],
        "resources": {"requests": {"cpu": "100k"}}}]}}});
    cluster.job("large", none(), large, "true").await;
    cluster.says("job/large", &["Unschedulable"], "0/1 nodes are available: 1 Insufficient cpu.").await;
    // EVENT-13: kubectl describe job says it too, once.
    let events = eventually("the controller has recorded it", async || {
        let path = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dlarge";
        let all = cluster.get(path).await["items"].as_array()?.clone();
        let own: Vec<_> = all.into_iter().filter(|event| event["reason"] == "Unschedulable").collect();
        (!own.is_empty()).then_some(own)
    })
    .await;
    let message = events[0]["message"].as_str().unwrap();
    assert!(events.len() == 1 && message.ends_with("0/1 nodes are available: 1 Insufficient cpu."), "{events:?}");
    let gated = json!({"template": {"spec": {"schedulingGates": [{"name": "example.com/gate"}]}}});
    cluster.job("gated", none(), gated, "true").await;
    cluster.says("job/gated", &["SchedulingGated"], "are removed: example.com/gate.").await;
    let lacks = json!({"template": {"spec": {"containers": [{"name": "c", "image": "none", "command": ["true"],
        "envFrom": [{"configMapRef": {"name": "settings"}}]}]}}});
    cluster.job("lacks", none(), lacks, "true").await;
    cluster.says("job/lacks", &["ContainerConfigError"], "settings").await;
    let again = json!({"template": {"spec": {"restartPolicy": "OnFailure"}}});
    cluster.job("restarts", none(), again, "exit 4").await;
    cluster.says("job/restarts", &["ContainerRestarting"], "fails again and again").await;
    let pod = cluster.pods("large", 1).await.remove(0);
    let pod = format!("pod/{}", crate::tool::name_of(&pod));
    cluster.says(&pod, &["Unschedulable"], "fits on no node: 0/1 nodes are available").await;

    cluster.says("job/other-scheduler", &["NotScheduled"], "the scheduler \"mine\" has not said why").await;
    cluster.says("job/other-manager", &["ManagerNotSeen"], "\"example.com/other\" may run this Job").await;

    // Where nothing is wrong it is silent.
    cluster.job("runs", none(), json!({"activeDeadlineSeconds": 3600}), "sleep 1000").await;
    cluster.job("ends", none(), json!({"ttlSecondsAfterFinished": 3600}), "true").await;
    for (name, state, next) in [("runs", "Running", "activeDeadlineSeconds"), ("ends", "Complete", "its TTL ends")] {
        let place = ["--kubeconfig", &cluster.kubeconfig];
        let said = eventually("it is in that state", async || {
            let said = explain(&place, &format!("job/{name}"));
            let ready = said["state"] == state && (name == "ends" || said["summary"].as_str()?.contains("1 active"));
            ready.then_some(said)
        })
        .await;
        assert!(reasons(&said).is_empty(), "{said:#}");
        assert!(said["next"][0]["what"].as_str().unwrap().contains(next), "{said:#}");
        let text = tally(&[&["explain", name], &place[..]].concat()).out;
        assert!(text.contains("Nothing is wrong.") && text.contains("Next:"), "{text}");
    }

    // The same process, through the socket of its directory, and as text.
    let data = text(&cluster.directory.path().join("data"));
    let said = tally(&["explain", "suspended", "--data-dir", &data]);
    assert!(said.out.starts_with("job/suspended in namespace default: Waiting. "), "{}{}", said.out, said.err);
    assert!(
        said.out.contains("[Suspended]") && said.out.contains("Change:    Set spec.suspend to false."),
        "{}",
        said.out
    );

    // What does not exist.
    let missing = tally(&["explain", "job/nothing", "--data-dir", &data]);
    assert!(missing.code == Some(1) && missing.err.contains("there is no Job \"nothing\""), "{}", missing.err);
    let missing = tally(&["explain", "cronjob/nothing", "--kubeconfig", &cluster.kubeconfig]);
    assert!(missing.code == Some(1) && missing.err.contains("no CronJob \"nothing\" in namespace default"));
    let wrong = tally(&["explain", "node/n", "--data-dir", &data]);
    assert!(wrong.code == Some(2) && wrong.err.contains("job/NAME, pod/NAME or cronjob/NAME"), "{}", wrong.err);

    few_rights(&cluster).await;
    without_events(&cluster).await;
    cluster.seen.are(&REASONS);
}

/// The controllers of `tally up` have no Lease. A user that may not read the Events, which say why there are no Pods, is not
/// told that no controller runs.
async fn without_events(cluster: &Cluster) {
    let read = ["get", "list"];
    let rules = json!([{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": read},
        {"apiGroups": [""], "resources": ["pods"], "verbs": read},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": read}]);
    let (kubeconfig, _) = cluster.user("carol", &rules).await;
    let place = ["-n", "small", "--kubeconfig", &kubeconfig];
    let within = "has to create Pods, and has not done so: it runs in the process that serves the API, which answers.";
    let said = cluster.seen.says(&place, "job/refused", &["ControllerBehind"], within).await;
    let unread = said["unread"].to_string();
    assert!(unread.contains("cannot list events") && !unread.contains("cannot list leases"), "{unread}");
}

/// A user that may read Jobs and nothing else gets what can be said from the Job, and is told what is missing.
async fn few_rights(cluster: &Cluster) {
    let kubeconfig = text(&cluster.directory.path().join("alice.kubeconfig"));
    let data = text(&cluster.directory.path().join("data"));
    let added = Command::new(env!("CARGO_BIN_EXE_tally"))
        .args(["user", "add", "alice", "--data-dir", &data, "--kubeconfig", &kubeconfig])
        .args(["--server", &format!("https://{}", cluster.server.api.authority())])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}");
    let role = json!({"metadata": {"name": "jobs"}, "rules": [{"apiGroups": ["batch"], "resources": ["jobs"],
        "verbs": ["get"]}]});
    cluster.create(&format!("{rbac}/roles"), &role).await;
    let binding = json!({"metadata": {"name": "jobs"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role", "name": "jobs"}, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]});
    cluster.create(&format!("{rbac}/rolebindings"), &binding).await;
    let said = cluster.seen.says(&["--kubeconfig", &kubeconfig], "job/suspended", &["Suspended"], "suspended").await;
    let unread = said["unread"].to_string();
    for what in ["cannot list pods", "cannot list events", "cannot list leases"] {
        assert!(unread.contains(what), "{unread}");
    }
    let text = tally(&["explain", "suspended", "--kubeconfig", &kubeconfig]).out;
    assert!(text.contains("Not read, so reasons may be missing: cannot list pods"), "{text}");
    let refused = tally(&["explain", "pod/x", "--kubeconfig", &kubeconfig]);
    assert!(refused.code == Some(3) && refused.err.contains("forbidden"), "{}", refused.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_no_process_uses_is_explained() {
    let directory = server::directory();
    let data = text(&directory.path().join("d"));
    let arguments = ["run", "--data-dir", &data, "--name", "long", "--logs=none", "--", "sleep", "1000"];
    let mut run = Command::new(env!("CARGO_BIN_EXE_tally"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("it runs", async || {
        let said = tally(&["explain", "long", "--data-dir", &data, "-o", "json"]);
        (said.code == Some(0) && said.out.contains("1 active")).then_some(())
    })
    .await;
    let seen = Seen::default();
    let silent = seen.says(&["--data-dir", &data], "long", &[], "").await;
    assert_eq!(silent["state"], "Running");
    run.kill().unwrap();
    run.wait().unwrap();
    let stopped = "that would go on with the Job: no process uses the data directory.";
    seen.says(&["--data-dir", &data], "job/long", &["ControllerNotRunning"], stopped).await;
}
