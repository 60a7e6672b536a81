//! Jobs from creation to finish, over HTTP.

use std::time::Instant;

use serde_json::{Value, json};

use crate::process::{Controller, GIVE_UP_AFTER, Up, address};
use crate::support::client::{Api, Call};
use crate::support::server::{Server, directory};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const PODS: &str = "/api/v1/namespaces/default/pods";
const TRACKING: &str = "batch.kubernetes.io/job-tracking";

fn job(name: &str, more: Value) -> Value {
    let mut spec = json!({
        "completions": 3, "parallelism": 2,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
    });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

async fn get(api: &Api, path: &str) -> Value {
    api.connection().call(&Call::get(path)).await.unwrap().value()
}

async fn make(api: &Api, path: &str, body: &Value) {
    let answer = api.connection().call(&Call::new("POST", path).body(body)).await.unwrap();
    assert_eq!(answer.code, 201, "{}", answer.text);
}

/// Acts as the controller of a Job: it is complete.
async fn finish(api: &Api, name: &str) {
    let at = "2026-01-01T00:00:00Z";
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": at});
    let conditions = json!([condition("SuccessCriteriaMet"), condition("Complete")]);
    let status = json!({"startTime": at, "completionTime": at, "succeeded": 3, "conditions": conditions});
    let patch = Call::new("PATCH", format!("{JOBS}/{name}/status")).body(&json!({"status": status}));
    let answer = api.connection().call(&patch.header("content-type", "application/merge-patch+json")).await.unwrap();
    assert_eq!(answer.code, 200, "{}", answer.text);
}

/// Acts as a node: all Pods succeed. Returns once `is` holds for the Job.
async fn until(api: &Api, controller: &Controller, name: &str, is: impl Fn(&Value) -> bool) -> Value {
    let finished = async {
        loop {
            for pod in get(api, PODS).await["items"].as_array().unwrap() {
                if pod["status"]["phase"] == "Pending" {
                    let path = format!("{PODS}/{}/status", pod["metadata"]["name"].as_str().unwrap());
                    let patch = Call::new("PATCH", path).body(&json!({"status": {"phase": "Succeeded"}}));
                    let patch = patch.header("content-type", "application/merge-patch+json");
                    api.connection().call(&patch).await.unwrap();
                }
            }
            let job = get(api, &format!("{JOBS}/{name}")).await;
            if is(&job) {
                return job;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    match tokio::time::timeout(GIVE_UP_AFTER, finished).await {
        Ok(job) => job,
        Err(_) => panic!("{}\n{}", get(api, &format!("{JOBS}/{name}")).await, controller.said()),
    }
}

fn has_condition(job: &Value, kind: &str) -> bool {
    let conditions = job["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == kind && one["status"] == "True"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_to_its_end_and_can_be_watched_doing_so() {
    let directory = directory();
    let server = Server::start(directory.path()).await;
    let mut controller = Controller::start(&server.kubeconfig(), "controller", &["--log-format=json"]);
    make(&server.api, JOBS, &job("counts", json!({"completionMode": "Indexed"}))).await;
    let done = until(&server.api, &controller, "counts", |job| has_condition(job, "Complete")).await;
    assert_eq!((&done["status"]["succeeded"], &done["status"]["completedIndexes"]), (&3.into(), &"0-2".into()));
    let pods = get(&server.api, PODS).await;
    let pods = pods["items"].as_array().unwrap();
    assert_eq!(pods.len(), 3);
    for pod in pods {
        let held = pod["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|one| one == TRACKING));
        assert!(!held, "{pod}");
    }
    controller.until("ready", |controller| controller.get("/readyz").0 == 200);
    for path in ["/livez", "/healthz"] {
        assert_eq!(controller.get(path).0, 200, "{path}");
    }
    assert_eq!(controller.get("/nonsense").0, 404);
    // The startup checks got their answers, and every response came from the API server itself.
    for doubt in ["cannot determine", "what became of a request"] {
        assert!(!controller.said().contains(doubt), "{}", controller.said());
    }
    // The metric is updated after the write that it counts.
    let finished = r#"job_controller_jobs_finished_total{completion_mode="Indexed",result="succeeded",reason="CompletionsReached"} 1"#;
    controller.until(finished, |controller| controller.get("/metrics").1.contains(finished));
    // This metric is updated when the watch or a response has shown the release.
    controller.until("none", |controller| controller.get("/metrics").1.contains("tally_uncounted_pods 0"));
    let metrics = controller.get("/metrics").1;
    for line in [
        r#"job_controller_job_pods_finished_total{completion_mode="Indexed",result="succeeded"} 3"#,
        r#"job_controller_job_pods_creation_total{reason="new",status="succeeded"} 3"#,
        r#"tally_requests_total{verb="create",resource="pods",code="2xx"} 3"#,
        "tally_api_server_reachable 1",
        r#"tally_stream_synced{controller="job-controller",resource="pods"} 1"#,
        r#"tally_stream_synced{controller="ttl-after-finished-controller",resource="jobs"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} is missing in\n{metrics}");
    }
    let event = |all: &Value| {
        let all = all["items"].as_array().unwrap().clone();
        all.into_iter().find(|event| event["reason"] == "Completed")
    };
    let path = "/api/v1/namespaces/default/events";
    let events = tokio::time::timeout(GIVE_UP_AFTER, async {
        loop {
            if let Some(event) = event(&get(&server.api, path).await) {
                return event;
            }
        }
    });
    let event = events.await.expect("the end is recorded");
    assert_eq!(event["involvedObject"]["uid"], done["metadata"]["uid"]);
    for line in controller.said().lines() {
        let line: Value = serde_json::from_str(line).expect("each line is an object");
        assert!(line["message"].is_string() && line["level"].is_string(), "{line}");
    }
    controller.signal("TERM");
    assert_eq!(controller.ended(), Some(0), "{}", controller.said());
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_others_are_left_alone() {
    let directory = directory();
    let server = Server::start(directory.path()).await;
    let ours = ["--managed-by=example.com/tally"];
    let mut controller = Controller::start(&server.kubeconfig(), "controller", &ours);
    let managed = |by: &str| json!({"managedBy": by});
    make(&server.api, JOBS, &job("plain", json!({}))).await;
    make(&server.api, JOBS, &job("reserved", managed("kubernetes.io/job-controller"))).await;
    make(&server.api, JOBS, &job("others", managed("example.com/other"))).await;
    let expired = json!({"managedBy": "example.com/other", "ttlSecondsAfterFinished": 0});
    make(&server.api, JOBS, &job("expired", expired)).await;
    finish(&server.api, "expired").await;
    make(&server.api, JOBS, &job("ours", managed("example.com/tally"))).await;
    until(&server.api, &controller, "ours", |job| has_condition(job, "Complete")).await;
    assert_eq!(get(&server.api, &format!("{JOBS}/expired")).await["metadata"]["name"], "expired");
    let left = "managed_by=example.com/other";
    controller.until(left, |controller| controller.said().contains(left));
    for name in ["plain", "reserved", "others"] {
        let job = get(&server.api, &format!("{JOBS}/{name}")).await;
        assert_eq!(job["status"], json!({}), "{name}");
    }
    let external = r#"jobs_by_external_controller_total{controller_name="example.com/other"} 2"#;
    controller.until(external, |controller| controller.get("/metrics").1.contains(external));
}

/// MANAGED-2: `tally up` names the Jobs that it leaves to other controllers, and those controllers, if it is asked to.
#[tokio::test(flavor = "multi_thread")]
async fn tally_up_says_which_jobs_it_leaves_to_others() {
    let external = r#"jobs_by_external_controller_total{controller_name="example.com/other"} 1"#;
    for (flags, said) in [(&["--verbose"][..], true), (&["-v"], true), (&[], false)] {
        let directory = directory();
        let server = Server::start_with(directory.path(), &[&["--no-node", "--ephemeral"], flags].concat()).await;
        make(&server.api, JOBS, &job("others", json!({"managedBy": "example.com/other"}))).await;
        make(&server.api, JOBS, &job("ours", json!({"managedBy": "kubernetes.io/job-controller"}))).await;
        let metrics = async || server.api.connection().call(&Call::get("/metrics")).await.unwrap().text;
        let until = Instant::now() + GIVE_UP_AFTER;
        while !metrics().await.contains(external)
            || get(&server.api, &format!("{JOBS}/ours")).await["status"] == json!({})
        {
            assert!(Instant::now() < until, "{}", metrics().await);
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let left = "INFO the Job is left to the controller that its managedBy names \
                    job=default/others managed_by=example.com/other";
        let log = server.said();
        assert_eq!(log.matches(left).count(), usize::from(said), "{flags:?}: {log}");
        assert_eq!(log.matches("INFO").count(), usize::from(said), "{flags:?}: {log}");
    }
}

/// SPECVAL-11, KEPDIFF-6: the API and the flag agree on the longest name of a manager.
#[tokio::test(flavor = "multi_thread")]
async fn a_manager_has_63_characters_at_most() {
    let directory = directory();
    let server = Server::start(directory.path()).await;
    let longest = format!("example.com/{}", "x".repeat(51));
    let longer = json!({"managedBy": format!("{longest}x")});
    let refused = server.api.connection().call(&Call::new("POST", JOBS).body(&job("longer", longer))).await.unwrap();
    assert_eq!(refused.code, 422, "{}", refused.text);
    let why = "spec.managedBy: Too long: may not be more than 63 bytes";
    assert!(refused.value()["message"].as_str().unwrap().ends_with(why), "{}", refused.text);
    make(&server.api, JOBS, &job("longest", json!({"managedBy": longest}))).await;
    let controller = Controller::start(&server.kubeconfig(), "controller", &["--managed-by", &longest]);
    until(&server.api, &controller, "longest", |job| has_condition(job, "Complete")).await;
}

/// The gate JobManagedBy, where the API server and the controller are not of one mind: each does what its own gate says.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_and_a_controller_may_differ_about_managed_by() {
    // The gates of the server and of the controller; who serves a Job that was stored before, and who a new one.
    for (server_on, controller_on, stored_served, new_served) in
        [(true, true, false, false), (true, false, true, true), (false, true, false, true), (false, false, true, true)]
    {
        let directory = directory();
        let title = format!("server {server_on}, controller {controller_on}");
        let managed = json!({"managedBy": "example.com/other"});
        let server = Server::start(directory.path()).await;
        make(&server.api, JOBS, &job("stored", managed.clone())).await;
        server.kill();
        let (data, gate) = (directory.path().join("data"), |on| format!("--feature-gates=JobManagedBy={on}"));
        let options = ["--no-node", "--controllers", "", "--data-dir", data.to_str().unwrap(), &gate(server_on)];
        let server = Server::start_with(directory.path(), &options).await;
        make(&server.api, JOBS, &job("new", managed)).await;
        make(&server.api, JOBS, &job("plain", json!({}))).await;
        let keeps = async |name: &str| {
            get(&server.api, &format!("{JOBS}/{name}")).await["spec"]["managedBy"] == "example.com/other"
        };
        assert_eq!((keeps("stored").await, keeps("new").await), (true, server_on), "{title}");
        let controller = Controller::start(&server.kubeconfig(), "controller", &[&gate(controller_on)]);
        // The list of Jobs contained all three.
        until(&server.api, &controller, "plain", |job| has_condition(job, "Complete")).await;
        for (name, served) in [("stored", stored_served), ("new", new_served)] {
            if served {
                until(&server.api, &controller, name, |job| has_condition(job, "Complete")).await;
            } else {
                let left = get(&server.api, &format!("{JOBS}/{name}")).await;
                assert_eq!(left["status"], json!({}), "{title}: {name}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_jobs_are_deleted_in_time() {
    let directory = directory();
    let server = Server::start(directory.path()).await;
    let mut controller = Controller::start(&server.kubeconfig(), "controller", &[]);
    make(&server.api, JOBS, &job("short", json!({"ttlSecondsAfterFinished": 0}))).await;
    let gone = |job: &Value| job["metadata"]["deletionTimestamp"].is_string() || job["code"] == 404;
    until(&server.api, &controller, "short", gone).await;
    until(&server.api, &controller, "short", gone).await;
    // METRIC-14. On a machine that is busy it may be late.
    let counted = |line: &str| line.starts_with("tally_ttl_jobs_total{result=") && line.ends_with("} 1");
    controller.until("it is measured", |controller| controller.get("/metrics").1.lines().any(counted));
}

/// ORDER-3, ORDER-4: also where the controller is not part of the server.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_begin_after_those_that_they_name() {
    let directory = directory();
    let server = Server::start(directory.path()).await;
    let controller = Controller::start(&server.kubeconfig(), "controller", &[]);
    for (name, after) in [("last", "middle"), ("middle", "first"), ("never", "first=Failed"), ("first", "")] {
        let mut job = job(name, json!({"suspend": !after.is_empty()}));
        if !after.is_empty() {
            job["metadata"]["annotations"] = json!({"tally.dev/after": after});
        }
        make(&server.api, JOBS, &job).await;
    }
    until(&server.api, &controller, "last", |job| has_condition(job, "Complete")).await;
    until(&server.api, &controller, "never", |job| has_condition(job, "Failed")).await;
    let never = get(&server.api, &format!("{JOBS}/never")).await;
    let failed = never["status"]["conditions"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(failed["reason"], "DependencyFailed", "{failed}");
}

/// The server stops and comes back: both are logged once and are visible at /readyz, and Jobs continue.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_is_waited_for() {
    let directory = directory();
    let server = Server::start(directory.path()).await;
    let (api, address) = (server.api.clone(), address(&server.kubeconfig()));
    // With leader election, the lease would rightly be lost in the meantime.
    let mut controller = Controller::start(&server.kubeconfig(), "controller", &["--leader-elect=false"]);
    let ready =
        |controller: &Controller| controller.said().contains("metrics are at") && controller.get("/readyz").0 == 200;
    controller.until("ready", ready);
    server.kill();
    controller.until("not ready", |controller| controller.get("/readyz").0 == 503);
    assert!(controller.get("/readyz").1.contains("cannot be reached"));
    assert_eq!(controller.get("/livez").0, 200, "a restart would not help");

    let data = directory.path().join("data");
    let same = ["--no-node", "--controllers", "", "--listen", &address, "--data-dir", data.to_str().unwrap()];
    let _server = Up::start(directory.path(), &same);
    controller.until("ready again", ready);
    make(&api, JOBS, &job("after", json!({}))).await;
    until(&api, &controller, "after", |job| has_condition(job, "Complete")).await;
    let said = controller.said();
    for told in ["cannot be reached", "answers again"] {
        assert_eq!(said.matches(told).count(), 1, "{told}: {said}");
    }
}

/// The controllers inside `tally up` have the same metrics, beside those of its server.
#[tokio::test(flavor = "multi_thread")]
async fn embedded_controllers_are_measured_alike() {
    let directory = directory();
    let _up = Up::start(directory.path(), &["--ephemeral", "--hollow", "1", "--listen", "127.0.0.1:0"]);
    let kubeconfig = directory.path().join("kubeconfig");
    let finished = r#"job_controller_jobs_finished_total{completion_mode="NonIndexed",result="succeeded",reason="CompletionsReached"} 1"#;
    let told = tokio::time::timeout(GIVE_UP_AFTER, async {
        let api = loop {
            if let Some(api) = Api::from_kubeconfig(&kubeconfig) {
                break api;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        make(&api, JOBS, &job("counts", json!({}))).await;
        loop {
            let text = api.connection().call(&Call::get("/metrics")).await.unwrap().text;
            if text.contains(finished) {
                return text;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
    let told = told.await.expect("the Job ends and is counted");
    for name in
        ["apiserver_request_total", "tally_store_objects", "tally_requests_total", "tally_api_server_reachable 1"]
    {
        assert!(told.contains(name), "{name} is missing in\n{told}");
    }
}
