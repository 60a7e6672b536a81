//! A `tally up` with hollow nodes and every controller but those under test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process::GIVE_UP_AFTER;
use crate::support::client::{Answer, Api, Call};

const CONTROLLERS: &str = "cronjob,gc,namespace,podgc,root-ca,scheduler,serviceaccount";
pub const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
pub const PODS: &str = "/api/v1/namespaces/default/pods";

/// Killed when dropped.
pub struct Cluster {
    child: Child,
    directory: tempfile::TempDir,
    pub api: Api,
}

impl Cluster {
    pub async fn start() -> Cluster {
        let directory = crate::support::server::directory();
        let log = File::create(directory.path().join("log")).unwrap();
        let kubeconfig = directory.path().join("kubeconfig");
        let mut child = Command::new(env!("CARGO_BIN_EXE_tally"))
            .args(["up", "--ephemeral", "--no-node", "--hollow", "2", "--listen", "127.0.0.1:0"])
            .args(["--controllers", CONTROLLERS, "--kubeconfig"])
            .arg(&kubeconfig)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let until = Instant::now() + GIVE_UP_AFTER;
        loop {
            // The kubeconfig is written last: a client that finds it can use the server.
            if let Some(api) = Api::from_kubeconfig(&kubeconfig) {
                return Cluster { child, directory, api };
            }
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < until, "{ended:?}: {}", said(directory.path()));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    pub fn said(&self) -> String {
        said(self.directory.path())
    }
}

fn said(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("log")).unwrap_or_default()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request as a user does: directly to the server, past the proxy.
pub async fn ask(api: &Api, call: &Call) -> Answer {
    api.connection().call(call).await.unwrap()
}

pub async fn get(api: &Api, path: &str) -> Value {
    ask(api, &Call::get(path)).await.value()
}

pub async fn make(api: &Api, job: &Value) {
    let answer = ask(api, &Call::new("POST", JOBS).body(job)).await;
    assert_eq!(answer.code, 201, "{}", answer.text);
}

/// A merge patch of a Job.
pub async fn patch(api: &Api, name: &str, patch: &Value) -> Answer {
    let call = Call::new("PATCH", format!("{JOBS}/{name}")).body(patch);
    ask(api, &call.header("content-type", "application/merge-patch+json")).await
}
