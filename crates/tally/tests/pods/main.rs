//! What kubectl shows and does about running Pods and their volumes: the real binary, kubectl and real processes.
//!
//! One server for each test. Pods sleep and are killed with the server.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod claims;
#[path = "../support/mod.rs"]
mod support;
#[path = "../processes/tool.rs"]
#[allow(dead_code, reason = "some of it is for other tests")]
mod tool;
mod top;

use support::kubectl::Kubectl;

/// Creates objects from a text.
pub fn create(kubectl: &Kubectl, text: &str) -> String {
    let said = kubectl.with_input("create -f -", text);
    assert_eq!(said.code, Some(0), "{said:?}\n{text}");
    said.err
}

/// A container that runs a shell script.
pub fn container(name: &str, script: &str) -> String {
    format!("{{name: {name}, image: process, command: [sh, -c, {script:?}]}}")
}

/// A Pod of these containers.
pub fn pod(name: &str, more: &str, containers: &[String]) -> String {
    format!(
        "---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{of: {name}}}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  {more}
  containers: [{}]
",
        containers.join(", ")
    )
}

pub fn wait_for_phase(kubectl: &Kubectl, name: &str, phase: &str) {
    kubectl.ok(&format!("wait --for=jsonpath={{.status.phase}}={phase} pod/{name} --timeout=60s"));
}
