//! Runs the command line of the Deployment: it leads, serves its probes, runs a Job to completion, sends no request
//! beyond its role, and stops on SIGTERM.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::permissions::given;
use super::renderings::{self, Rendering};
use super::support::client::{Call, Connection};
use super::support::server::{self, Server};

/// Only ends a test that would otherwise hang.
const WITHIN: Duration = Duration::from_secs(60);

struct Controller {
    child: Child,
    log: PathBuf,
}

impl Controller {
    fn start(rendering: &Rendering, directory: &Path, kubeconfig: &Path) -> Controller {
        let log = directory.join("controller.log");
        let arguments = rendering.arguments().into_iter().map(|argument| match argument {
            "--metrics=0.0.0.0:8080" => "--metrics=127.0.0.1:0".to_owned(),
            argument => argument.replace("$(POD_NAMESPACE)", rendering.namespace),
        });
        let child = Command::new(env!("CARGO_BIN_EXE_tally"))
            .args(arguments)
            .env("KUBECONFIG", kubeconfig)
            .env("HOME", directory)
            .stdin(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Controller { child, log }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The address of probes and metrics, once it is logged.
    fn address(&self) -> Option<String> {
        let said = self.said();
        let (_, after) = said.split_once("metrics are at http://")?;
        after.split_once('/').map(|(address, _)| address.to_owned())
    }

    /// Whether the response is 200, and its body.
    fn get(&self, path: &str) -> Option<(bool, String)> {
        let mut stream = TcpStream::connect(self.address()?).ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let body = answer.split_once("\r\n\r\n")?.1.to_owned();
        Some((answer.starts_with("HTTP/1.1 200"), body))
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Calls `ask` until it returns a value.
async fn eventually<T>(
    controller: &mut Controller,
    what: &str,
    mut ask: impl AsyncFnMut(&Controller) -> Option<T>,
) -> T {
    let until = Instant::now() + WITHIN;
    loop {
        if let Some(answer) = ask(controller).await {
            return answer;
        }
        let ended = controller.child.try_wait().unwrap();
        assert!(ended.is_none(), "it ended with {ended:?} before {what}: {}", controller.said());
        assert!(Instant::now() < until, "not within {WITHIN:?}: {what}: {}", controller.said());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn read(api: &mut Connection, path: &str) -> Value {
    api.call(&Call::get(path)).await.unwrap().value()
}

async fn write(api: &mut Connection, call: Call) {
    let answer = api.call(&call).await.unwrap();
    assert!(answer.code < 300, "{call:?}: {}", answer.text);
}

#[tokio::test]
async fn the_pods_command_runs_a_job_with_the_rights_it_has() {
    // As it is installed, without the optional components: none of them changes the command.
    for rendering in [&renderings::kustomized()[0], &renderings::kustomized()[2]] {
        let directory = server::directory();
        let server = Server::start(directory.path()).await;
        let api = &mut server.api.connection();
        let namespace = json!({"metadata": {"name": rendering.namespace}});
        write(api, Call::new("POST", "/api/v1/namespaces").body(&namespace)).await;
        let deletes = rendering.controllers.contains(&"ttl");
        let jobs = "/apis/batch/v1/namespaces/default/jobs";
        let job = json!({"metadata": {"name": "j"}, "spec": {
            "managedBy": rendering.managed_by, "ttlSecondsAfterFinished": deletes.then_some(0),
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
        }});
        write(api, Call::new("POST", jobs).body(&job)).await;

        let controller = &mut Controller::start(rendering, directory.path(), &server.kubeconfig());
        let pods = "/api/v1/namespaces/default/pods";
        let name = eventually(controller, "a Pod", async |_| {
            read(api, pods).await["items"][0]["metadata"]["name"].as_str().map(str::to_owned)
        });
        let name = name.await;
        let done = Call::new("PATCH", format!("{pods}/{name}/status"))
            .header("content-type", "application/merge-patch+json")
            .body(&json!({"status": {"phase": "Succeeded"}}));
        write(api, done).await;
        let finished = eventually(controller, "the end of the Job", async |_| {
            let job = read(api, &format!("{jobs}/j")).await;
            let complete = job["status"]["succeeded"] == 1 && !job["status"]["completionTime"].is_null();
            let deleted = !job["metadata"]["deletionTimestamp"].is_null() || job["code"] == 404;
            (if deletes { deleted } else { complete }).then_some(())
        });
        finished.await;
        for probe in ["livenessProbe", "readinessProbe"] {
            let path = rendering.container()[probe]["httpGet"]["path"].as_str().unwrap();
            let well = eventually(controller, path, async |it| it.get(path).filter(|(well, _)| *well));
            well.await;
        }

        let (_, metrics) = controller.get("/metrics").expect("metrics");
        let asked = asked(&metrics);
        for must in [("create", "pods"), ("patch", "jobs/status"), ("patch", "pods")] {
            assert!(asked.contains(&(must.0.to_owned(), must.1.to_owned())), "{must:?}: {metrics}");
        }
        let given = ["ClusterRole", "Role"].into_iter().flat_map(|kind| given(rendering.of_kind(kind)));
        let given: BTreeSet<_> = given.map(|(_, resource, verb)| (verb, resource)).collect();
        let beyond: Vec<_> = asked.difference(&given).collect();
        assert!(beyond.is_empty(), "{}: {beyond:?}", rendering.title);

        let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", rendering.namespace);
        let name = rendering.the("Role")["rules"][1]["resourceNames"][0].as_str().unwrap();
        let holder = |lease: Value| lease["spec"]["holderIdentity"].as_str().map(str::to_owned);
        assert!(holder(read(api, &format!("{leases}/{name}")).await).is_some_and(|holder| !holder.is_empty()));
        let told = Command::new("sh").args(["-c", &format!("kill -s TERM {}", controller.child.id())]).status();
        assert!(told.unwrap().success());
        assert_eq!(controller.child.wait().unwrap().code(), Some(0), "{}", controller.said());
        assert_eq!(holder(read(api, &format!("{leases}/{name}")).await).as_deref(), Some(""), "given back");
    }
}

/// Verbs and resources of `tally_requests_total{verb="create",resource="pods",code="2xx"} 1`.
fn asked(metrics: &str) -> BTreeSet<(String, String)> {
    let label = |line: &str, name: &str| {
        let (_, after) = line.split_once(&format!("{name}=\"")).expect("a label");
        after.split_once('"').expect("its end").0.to_owned()
    };
    let lines = metrics.lines().filter(|line| line.starts_with("tally_requests_total{"));
    lines.map(|line| (label(line, "verb"), label(line, "resource"))).collect()
}

/// The binary accepts every command line that the chart renders: bad usage would be exit code 2.
#[test]
fn every_command_line_is_understood() {
    for rendering in renderings::all() {
        let directory = server::directory();
        let nowhere = directory.path().join("missing");
        let mut controller = Controller::start(rendering, directory.path(), &nowhere);
        let code = controller.child.wait().unwrap().code();
        assert_eq!(code, Some(1), "{}: {:?}: {}", rendering.title, rendering.arguments(), controller.said());
    }
}
