//! exec, attach, port-forward and cp: the real binary, kubectl, real processes and real terminals.
//!
//! One server for each test. Pods sleep and are killed with the server.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod attach;
mod exec;
mod forward;
#[path = "../run/pty.rs"]
mod pty;
mod python;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
#[path = "../processes/tool.rs"]
#[allow(dead_code, reason = "some of it is for other tests")]
mod tool;

use support::kubectl::Kubectl;

/// A Pod that runs a shell script.
pub fn pod(name: &str, more: &str, script: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: process
      {more}
      command: [sh, -c, {script:?}]
"
    )
}

/// Creates a Pod and waits until it runs.
pub fn run_pod(kubectl: &Kubectl, name: &str, more: &str, script: &str) {
    let file = kubectl.file(&format!("{name}.yaml"), &pod(name, more, script));
    kubectl.ok(&format!("create -f {file}"));
    kubectl.ok(&format!("wait --for=jsonpath={{.status.phase}}=Running pod/{name} --timeout=60s"));
}
