//! An operator written with kopf (`operator.py`) runs against `tally up`, is killed, and loses nothing.

use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::checks::Truth;
use crate::drivers::{python_cache, source, tool};
use crate::support::client::{Api, Call};
use crate::support::server::{self, Server};
use crate::{all_are_required, announce};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

struct Operator {
    child: Child,
}

impl Operator {
    fn start(server: &Server, directory: &std::path::Path) -> Operator {
        let log = std::fs::File::options().create(true).append(true).open(directory.join("operator.log")).unwrap();
        let child = Command::new("python3")
            .args(["-m", "kopf", "run", "--standalone", "--namespace", "default"])
            .arg(source("../operator.py"))
            .env("PYTHONPATH", tool("python-clients"))
            .env("PYTHONPYCACHEPREFIX", python_cache())
            .env("KUBECONFIG", server.kubeconfig())
            .env("HOME", directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Operator { child }
    }

    /// SIGKILL.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn create(api: &Api, name: &str) {
    let container = json!({"name": "main", "image": "process", "command": ["true"]});
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": {"suite": "kopf"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    });
    let answer = api.connection().call(&Call::new("POST", JOBS).body(&job)).await.unwrap();
    assert_eq!(answer.code, 201, "{answer:?}");
}

async fn delete(api: &Api, name: &str) {
    let call = Call::new("DELETE", format!("{JOBS}/{name}")).body(&json!({"propagationPolicy": "Background"}));
    let answer = api.connection().call(&call).await.unwrap();
    assert!(answer.code < 300, "{answer:?}");
}

/// All that the operator writes to a Job that has run to its end.
fn is_done(job: &Value) -> bool {
    ["created", "retries", "succeeded", "visited"].iter().all(|what| !annotation(job, what).is_null())
}

fn annotation(job: &Value, what: &str) -> Value {
    job["metadata"]["annotations"][format!("clients.test/{what}")].clone()
}

fn assert_once(job: &Value) {
    let found = ["created", "retries", "succeeded", "visited"].map(|what| annotation(job, what));
    assert_eq!(json!(found), json!(["1", "2", "1", "yes"]), "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_of_kopf_reacts_to_jobs_and_loses_nothing_when_it_is_killed() {
    if !tool("python-clients").join("kopf").exists() {
        announce("NOT RUN: kopf: `make tools` installs it");
        assert!(!all_are_required(), "kopf is not installed");
        return;
    }
    let directory = server::directory();
    let server = Server::start_node(directory.path()).await;
    let api = &server.api;
    let mut truth = Truth::new(api, "default");
    let mut operator = Operator::start(&server, directory.path());
    for name in ["one", "two"] {
        create(api, name).await;
    }
    for name in ["one", "two"] {
        let job = truth.eventually(&format!("{JOBS}/{name}"), is_done).await;
        assert_once(&job);
        let finalizers = job["metadata"]["finalizers"].to_string();
        assert!(finalizers.contains("kopf.zalando.org/KopfFinalizerMarker"), "{finalizers}");
    }

    // Killed while a handler is being retried: "three" gets no reaction until the operator is back.
    create(api, "three").await;
    let tried = |job: &Value| job["metadata"]["annotations"].to_string().contains("kopf.zalando.org/stubborn");
    truth.eventually(&format!("{JOBS}/three"), tried).await;
    operator.kill();
    create(api, "four").await;
    delete(api, "one").await;
    truth.eventually(&format!("{JOBS}/three"), |job| job["status"]["succeeded"] == 1).await;
    truth.eventually(&format!("{JOBS}/four"), |job| job["status"]["succeeded"] == 1).await;
    // The finalizer of the operator keeps what it has not seen.
    let one = truth.get(&format!("{JOBS}/one")).await;
    assert!(one["metadata"]["deletionTimestamp"].is_string(), "{one}");

    let mut operator = Operator::start(&server, directory.path());
    truth.eventually(&format!("{JOBS}/one"), |job| job["code"] == 404).await;
    for name in ["three", "four"] {
        truth.eventually(&format!("{JOBS}/{name}"), is_done).await;
    }
    for name in ["two", "three", "four"] {
        let job = truth.get(&format!("{JOBS}/{name}")).await;
        assert_once(&job);
        delete(api, name).await;
    }
    for name in ["two", "three", "four"] {
        truth.eventually(&format!("{JOBS}/{name}"), |job| job["code"] == 404).await;
    }
    let pods = |pods: &Value| pods["items"].as_array().is_some_and(Vec::is_empty);
    truth.eventually("/api/v1/namespaces/default/pods", pods).await;
    for name in ["one", "two", "three", "four"] {
        // The daemon of a Job begins again with the operator; its deletion is seen once.
        for (reason, at_most) in [("Accompanied", 2), ("SeenDeleted", 1)] {
            let path = format!("/api/v1/namespaces/default/events?fieldSelector=reason%3D{reason}");
            let of =
                |event: &&Value| event["involvedObject"]["name"] == name && event["involvedObject"]["kind"] == "Job";
            let count = |events: &Value| events["items"].as_array().into_iter().flatten().filter(of).count();
            let events = truth.eventually(&path, |events| count(events) > 0).await;
            assert!(count(&events) <= at_most, "{events}");
        }
    }
    // Asked to end, it ends.
    let ended = Command::new("sh").args(["-c", &format!("kill -s TERM {}", operator.child.id())]).status().unwrap();
    assert!(ended.success());
    assert_eq!(operator.child.wait().unwrap().code(), Some(0));
}
