//! Feature gates switched off and on in the middle of running Jobs, by killing `tally up` and starting it with another flag on
//! the same data. The Pods run on hollow nodes, and end when the test says so.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::client::Call;
use support::server::Server;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const PODS: &str = "/api/v1/namespaces/default/pods";
const MARK: &str = "batch.kubernetes.io/job-tracking";
/// Ends a test that would otherwise hang; it asserts nothing.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

async fn start(directory: &Path, gates: &str) -> Server {
    let data = directory.join("data");
    let gates = format!("--feature-gates={gates}");
    Server::start_with(directory, &["--hollow", "2", "--data-dir", data.to_str().unwrap(), &gates]).await
}

async fn call(server: &Server, call: Call) -> Value {
    let answer = server.api.connection().call(&call).await.unwrap();
    assert!(answer.code < 300, "{} {}: {}", call.method, call.path, answer.text);
    answer.value()
}

/// A Job whose Pods run until the test ends them.
async fn create(server: &Server, name: &str, spec: Value) -> Value {
    let running = json!({"hollow.tally.dev/run-for": "24h"});
    let containers = json!([{"name": "c", "image": "process", "command": ["true"]}]);
    let template = json!({
        "metadata": {"annotations": running}, "spec": {"restartPolicy": "Never", "containers": containers},
    });
    let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec});
    job["spec"]["template"] = template;
    call(server, Call::new("POST", JOBS).body(&job)).await
}

async fn job(server: &Server, name: &str) -> Value {
    call(server, Call::get(format!("{JOBS}/{name}"))).await
}

async fn pods(server: &Server, job: &str) -> Vec<Value> {
    let list = call(server, Call::get(PODS)).await;
    let all = list["items"].as_array().unwrap().clone();
    all.into_iter().filter(|pod| pod["metadata"]["labels"]["job-name"] == job).collect()
}

/// Waits for a state of a Job and its Pods, and returns both.
async fn until(server: &Server, name: &str, reached: impl Fn(&Value, &[Value]) -> bool) -> (Value, Vec<Value>) {
    let give_up = Instant::now() + GIVE_UP_AFTER;
    loop {
        let (job, pods) = (job(server, name).await, pods(server, name).await);
        if reached(&job, &pods) {
            return (job, pods);
        }
        let phases: Vec<_> = pods.iter().map(|pod| (&pod["metadata"]["name"], &pod["status"]["phase"])).collect();
        assert!(Instant::now() < give_up, "{:#} {phases:?}\n{}", job["status"], server.said());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn runs(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running" && pod["metadata"].get("deletionTimestamp").is_none()
}

fn is_tracked(pod: &Value) -> bool {
    pod["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&json!(MARK)))
}

fn is_complete(job: &Value) -> bool {
    let conditions = job["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|it| it["type"] == "Complete" && it["status"] == "True"))
}

fn count(job: &Value, field: &str) -> i64 {
    job["status"][field].as_i64().unwrap_or(0)
}

async fn end(server: &Server, pod: &Value) {
    let path = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
    let patch = json!({"metadata": {"annotations": {"hollow.tally.dev/run-for": "0s"}}});
    let patch = Call::new("PATCH", path).header("content-type", "application/merge-patch+json").body(&patch);
    call(server, patch).await;
}

/// Ends one Pod that runs, once there are `running` of them.
async fn end_one(server: &Server, name: &str, running: usize, succeeded: i64) {
    let enough = |_: &Value, pods: &[Value]| pods.iter().filter(|pod| runs(pod)).count() == running;
    let (_, pods) = until(server, name, enough).await;
    end(server, pods.iter().find(|pod| runs(pod)).unwrap()).await;
    until(server, name, |job, _| count(job, "succeeded") == succeeded).await;
}

/// GATE-7, GATE-8, GATE-9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tracking_ends_and_begins_again_in_the_middle_of_jobs_and_every_count_is_exact() {
    for indexed in [false, true] {
        let directory = support::server::directory();
        let spec = || {
            json!({
                "completions": 4, "parallelism": 2, "completionMode": if indexed { "Indexed" } else { "NonIndexed" },
            })
        };
        let server = start(directory.path(), "").await;
        create(&server, "first", spec()).await;
        end_one(&server, "first", 2, 1).await;
        let (tracked, all) = until(&server, "first", |_, pods| pods.iter().filter(|pod| runs(pod)).count() == 2).await;
        assert!(all.iter().filter(|pod| runs(pod)).all(is_tracked));
        assert_eq!(tracked["metadata"].get("annotations"), None);
        assert!(tracked["status"]["uncountedTerminatedPods"].is_object());
        server.kill();

        let server = start(directory.path(), "JobTrackingWithFinalizers=false").await;
        let (legacy, all) = until(&server, "first", |job, pods| {
            job["metadata"]["annotations"][MARK] == "legacy" && !pods.iter().any(is_tracked)
        })
        .await;
        assert_eq!(legacy["status"].get("uncountedTerminatedPods"), None);
        assert_eq!((count(&legacy, "succeeded"), all.len()), (1, 3), "no Pod is lost, and none is created again");
        let meanwhile = create(&server, "meanwhile", spec()).await;
        assert_eq!(meanwhile["metadata"]["annotations"][MARK], "legacy", "marked from the beginning");
        end_one(&server, "first", 2, 2).await;
        end_one(&server, "meanwhile", 2, 1).await;
        server.kill();

        let server = start(directory.path(), "JobTrackingWithFinalizers=true").await;
        create(&server, "last", spec()).await;
        for (name, before) in [("first", 2), ("meanwhile", 1), ("last", 0)] {
            for succeeded in before + 1..=4 {
                let running = if succeeded == 4 { 1 } else { 2 };
                end_one(&server, name, running, succeeded).await;
            }
            let (job, all) = until(&server, name, |job, _| is_complete(job)).await;
            let counts = (count(&job, "succeeded"), count(&job, "failed"), count(&job, "active"), all.len());
            assert_eq!(counts, (4, 0, 0, 4), "{name}, indexed {indexed}");
            let legacy = name != "last";
            assert_eq!(job["metadata"]["annotations"][MARK] == "legacy", legacy, "{name}");
            assert_eq!(job["status"].get("uncountedTerminatedPods").is_none(), legacy, "{name}");
            assert!(!all.iter().any(is_tracked), "{name}: no Pod is held by a finalizer");
        }
    }
}

/// GATE-6: TTL, another manager, replacement, and what the API server stores.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_sleep_while_their_gate_is_off_and_wake_with_it() {
    let directory = support::server::directory();
    let server = start(directory.path(), "TTLAfterFinished=false").await;
    let dropped = create(&server, "dropped", json!({"ttlSecondsAfterFinished": 0})).await;
    assert_eq!(dropped["spec"].get("ttlSecondsAfterFinished"), None);
    server.kill();

    let server = start(directory.path(), "").await;
    create(&server, "expires", json!({"ttlSecondsAfterFinished": 0})).await;
    create(&server, "external", json!({"managedBy": "example.com/other"})).await;
    let replaced = json!({"podReplacementPolicy": "Failed"});
    create(&server, "replaced", replaced.clone()).await;
    until(&server, "expires", |_, pods| pods.iter().any(runs)).await;
    until(&server, "replaced", |job, pods| pods.iter().any(runs) && job["status"]["terminating"] == 0).await;
    assert_eq!(pods(&server, "external").await.len(), 0, "it is another controller's");
    server.kill();

    let off = "TTLAfterFinished=false,JobManagedBy=false,JobPodReplacementPolicy=false,ElasticIndexedJob=false";
    let server = start(directory.path(), off).await;
    for (name, field) in
        [("expires", "ttlSecondsAfterFinished"), ("external", "managedBy"), ("replaced", "podReplacementPolicy")]
    {
        assert!(job(&server, name).await["spec"].get(field).is_some(), "{field} stays in the stored Job");
    }
    let (_, running) = until(&server, "expires", |_, pods| pods.iter().any(runs)).await;
    end(&server, &running[0]).await;
    until(&server, "expires", |job, _| is_complete(job)).await;
    until(&server, "external", |job, pods| pods.iter().any(runs) && count(job, "active") == 1).await;
    until(&server, "replaced", |job, _| job["status"].get("terminating").is_none()).await;
    let without = create(&server, "without", replaced).await;
    assert_eq!(without["spec"].get("podReplacementPolicy"), None);
    create(&server, "fixed", json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2})).await;
    let fewer = json!({"spec": {"completions": 1, "parallelism": 1}});
    let fewer = |path: &str| {
        Call::new("PATCH", format!("{JOBS}/{path}")).header("content-type", "application/merge-patch+json").body(&fewer)
    };
    let refused = server.api.connection().call(&fewer("fixed")).await.unwrap();
    assert!(refused.code == 422 && refused.text.contains("field is immutable"), "{}", refused.text);
    let metrics = server.api.connection().call(&Call::get("/metrics")).await.unwrap().text;
    for (name, value) in [("ElasticIndexedJob", 0), ("JobManagedBy", 0), ("JobSuccessPolicy", 1)] {
        let line = format!("kubernetes_feature_enabled{{name=\"{name}\",stage=\"\"}} {value}");
        assert!(metrics.contains(&line), "{line}");
    }
    server.kill();

    let server = start(directory.path(), "").await;
    call(&server, fewer("fixed")).await;
    let give_up = Instant::now() + GIVE_UP_AFTER;
    let path = format!("{JOBS}/expires");
    while server.api.connection().call(&Call::get(path.as_str())).await.unwrap().code != 404 {
        assert!(Instant::now() < give_up, "it expired long ago\n{}", server.said());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until(&server, "replaced", |job, _| job["status"]["terminating"] == 0).await;
    // The Job is left to its manager again: its Pod ends, and the status stays.
    let (_, running) = until(&server, "external", |_, pods| pods.iter().any(runs)).await;
    end(&server, &running[0]).await;
    let ended = |_: &Value, pods: &[Value]| pods.iter().all(|pod| pod["status"]["phase"] == "Succeeded");
    let (left, _) = until(&server, "external", ended).await;
    assert_eq!((count(&left, "active"), count(&left, "succeeded")), (1, 0));
}

async fn change(server: &Server, path: String, patch: Value) {
    let patch = Call::new("PATCH", path).header("content-type", "application/merge-patch+json").body(&patch);
    call(server, patch).await;
}

/// Deletes the Pod of this Job that runs. It takes half an hour to end, unless it is told to be quicker.
async fn delete_one(server: &Server, name: &str) -> String {
    let (_, all) = until(server, name, |_, pods| pods.iter().any(runs)).await;
    let pod = all.iter().find(|pod| runs(pod)).unwrap();
    let path = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
    change(server, path.clone(), json!({"metadata": {"annotations": {"hollow.tally.dev/terminate-after": "30m"}}}))
        .await;
    call(server, Call::new("DELETE", path.as_str()).body(&json!({"gracePeriodSeconds": 3600}))).await;
    path
}

/// GATE-6, KEP-3939: a Pod that is deleted while the gate is off is replaced while it terminates; with the gate on the next one is
/// waited for, and what was counted before is not judged again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_pod_is_replaced_at_once_while_the_gate_is_off_and_waited_for_while_it_is_on() {
    let directory = support::server::directory();
    let server = start(directory.path(), "").await;
    create(&server, "replaced", json!({"podReplacementPolicy": "Failed"})).await;
    until(&server, "replaced", |job, pods| pods.iter().any(runs) && job["status"]["terminating"] == 0).await;
    server.kill();

    let server = start(directory.path(), "JobPodReplacementPolicy=false").await;
    until(&server, "replaced", |job, _| job["status"].get("terminating").is_none()).await;
    let first = delete_one(&server, "replaced").await;
    let replaced = |job: &Value, pods: &[Value]| count(job, "failed") == 1 && pods.iter().any(runs);
    let (job, all) = until(&server, "replaced", replaced).await;
    assert_eq!(job["status"].get("terminating"), None);
    assert_eq!(all.len(), 2, "the first one still terminates: {all:#?}");
    assert!(all.iter().all(|pod| pod["status"]["phase"] == "Running"), "{all:#?}");
    server.kill();

    let server = start(directory.path(), "").await;
    until(&server, "replaced", |job, _| job["status"]["terminating"] == 1).await;
    let second = delete_one(&server, "replaced").await;
    let waits = |job: &Value, _: &[Value]| job["status"]["terminating"] == 2 && count(job, "active") == 0;
    let (job, all) = until(&server, "replaced", waits).await;
    assert_eq!((count(&job, "failed"), all.len()), (1, 2), "no replacement, and nothing is counted anew");
    // Both end: the one that was counted stays counted once, and the other one is replaced only now.
    for path in [first, second] {
        change(&server, path, json!({"metadata": {"annotations": {"hollow.tally.dev/terminate-after": "0s"}}})).await;
    }
    let ended = |job: &Value, pods: &[Value]| pods.iter().any(runs) && count(job, "failed") == 2;
    let (job, _) = until(&server, "replaced", ended).await;
    assert_eq!(job["status"]["terminating"], 0);
}

/// GATE-5: Complete and Failed wait for the Pods that terminate if either of two gates is on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_job_waits_for_its_pods_with_either_gate_and_not_without_both() {
    for (off, waits) in [
        ("JobPodReplacementPolicy=false", true),
        ("JobManagedBy=false", true),
        ("JobPodReplacementPolicy=false,JobManagedBy=false", false),
    ] {
        let directory = support::server::directory();
        let server = start(directory.path(), off).await;
        create(&server, "fails", json!({"backoffLimit": 0})).await;
        let path = delete_one(&server, "fails").await;
        let failed = |job: &Value| {
            let conditions = job["status"]["conditions"].as_array();
            conditions.is_some_and(|all| all.iter().any(|it| it["type"] == "Failed" && it["status"] == "True"))
        };
        let decided = |job: &Value, _: &[Value]| {
            let target = job["status"]["conditions"].to_string().contains("FailureTarget");
            count(job, "failed") == 1 && if waits { target } else { failed(job) }
        };
        let (job, all) = until(&server, "fails", decided).await;
        assert_eq!(failed(&job), !waits, "{off}: {:#}", job["status"]);
        assert_eq!((all.len(), &all[0]["status"]["phase"]), (1, &json!("Running")), "{off}: it still terminates");
        change(&server, path, json!({"metadata": {"annotations": {"hollow.tally.dev/terminate-after": "0s"}}})).await;
        until(&server, "fails", |job, _| failed(job)).await;
    }
}

/// The types and reasons of the conditions that are True.
fn conditions(job: &Value) -> Vec<(String, String)> {
    let all = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let text = |it: &Value, field: &str| it[field].as_str().unwrap_or_default().to_owned();
    let all = all.iter().filter(|it| it["status"] == "True");
    all.map(|it| (text(it, "type"), text(it, "reason"))).collect()
}

/// GATE-11, GATE-12, STATUSVAL-31: the API server refuses SuccessCriteriaMet while the gates are off, as that of Kubernetes does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_their_gates_a_job_ends_with_complete_or_failed_alone() {
    let without = "JobPodReplacementPolicy=false,JobManagedBy=false";
    for (gates, reason) in
        [(without.to_owned(), "CompletionsReached"), (format!("{without},JobSuccessPolicy=false"), "")]
    {
        let directory = support::server::directory();
        let server = start(directory.path(), &gates).await;
        create(&server, "succeeds", json!({"completions": 1})).await;
        let one = |_: &Value, pods: &[Value]| pods.iter().filter(|pod| runs(pod)).count() == 1;
        let (_, pods) = until(&server, "succeeds", one).await;
        let status = json!({"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]});
        let patch = Call::new("PATCH", format!("{JOBS}/succeeds/status")).body(&json!({"status": status}));
        let patch = patch.header("content-type", "application/merge-patch+json");
        let answer = server.api.connection().call(&patch).await.unwrap();
        assert_eq!(answer.code, 422, "{}", answer.text);
        assert!(answer.text.contains("cannot set SuccessCriteriaMet to NonIndexed Job"), "{}", answer.text);
        end(&server, &pods[0]).await;
        let (done, _) = until(&server, "succeeds", |job, _| !conditions(job).is_empty()).await;
        assert_eq!(conditions(&done), [("Complete".to_owned(), reason.to_owned())]);
        assert_eq!((count(&done, "succeeded"), count(&done, "active")), (1, 0));

        create(&server, "fails", json!({"completions": 3, "parallelism": 3, "backoffLimit": 0})).await;
        let three = |_: &Value, pods: &[Value]| pods.iter().filter(|pod| runs(pod)).count() == 3;
        let (_, pods) = until(&server, "fails", three).await;
        let path = format!("{PODS}/{}", pods[0]["metadata"]["name"].as_str().unwrap());
        call(&server, Call::new("DELETE", path)).await;
        let (done, pods) = until(&server, "fails", |job, _| !conditions(job).is_empty()).await;
        assert_eq!(conditions(&done), [("Failed".to_owned(), "BackoffLimitExceeded".to_owned())]);
        assert_eq!((count(&done, "failed"), count(&done, "active")), (3, 0));
        assert!(pods.iter().all(|pod| !is_tracked(pod)), "{pods:?}");
    }
}

fn tally(arguments: &[&str]) -> (i32, String, String) {
    let said = Command::new(env!("CARGO_BIN_EXE_tally")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (said.status.code().unwrap(), text(said.stdout), text(said.stderr))
}

#[test]
fn unknown_gates_are_refused_with_the_list() {
    for command in [&["up"][..], &["controller"], &["run"], &["version"], &["check-upgrade"]] {
        let (code, _, why) = tally(&[command, &["--feature-gates=Nonsense=true"]].concat());
        assert_eq!(code, 2, "{command:?}: {why}");
        assert!(why.contains("unknown feature gate \"Nonsense\"; available gates: ElasticIndexedJob, Job"), "{why}");
    }
    let (code, _, why) = tally(&["controller", "--managed-by", "a/b", "--feature-gates=JobManagedBy=false"]);
    assert!(code == 2 && why.contains("--managed-by needs the feature gate JobManagedBy"), "{code}: {why}");
    let (code, said, _) = tally(&["version", "-o", "json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &said["featureGates"]["JobManagedBy"]["enabled"]), (0, &json!(true)));
    assert_eq!(said["featureGates"].as_object().unwrap().len(), 8);
}

/// GATE-10: the check that the post about the general availability of tracking asks for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_upgrade_lists_the_jobs_that_are_not_tracked_with_finalizers() {
    let directory = support::server::directory();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    let server = start(directory.path(), "").await;
    create(&server, "tracked", json!({"managedBy": "example.com/other"})).await;
    assert_eq!(tally(&["check-upgrade", "--data-dir", data]).0, 0);
    server.kill();
    let server = start(directory.path(), "JobTrackingWithFinalizers=false").await;
    create(&server, "legacy", json!({})).await;
    until(&server, "legacy", |_, pods| pods.iter().any(runs)).await;
    // METRIC-15.
    let metrics = server.api.connection().call(&Call::get("/metrics")).await.unwrap().text;
    assert!(metrics.contains("\ntally_legacy_jobs 1\n"), "{metrics}");
    let kubeconfig = server.kubeconfig();
    for place in [["--data-dir", data], ["--kubeconfig", kubeconfig.to_str().unwrap()]] {
        let (code, said, why) = tally(&[&["check-upgrade"], &place[..]].concat());
        assert_eq!(code, 1, "{why}");
        assert!(said.starts_with("default/legacy: it is not tracked with finalizers"), "{said}{why}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let off = "--feature-gates=JobManagedBy=false";
    let (code, said, _) = tally(&["check-upgrade", "--data-dir", data, "-o", "json", off]);
    let said: Value = serde_json::from_str(&said).unwrap();
    let names: Vec<_> = said["jobs"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap()).collect();
    assert_eq!((code, names, &said["checked"]), (1, vec!["legacy", "tracked"], &json!(2)));
}
