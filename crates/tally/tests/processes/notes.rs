//! Notices of the node that do not belong to a Pod are printed, each once.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::kubectl::with_node;
use crate::support::server;
use crate::tool::{eventually, job, lines};

const NOTE: &str = "tally: the node's helper process ended unexpectedly; another one is started\n";

/// A run waits forever, unless the file `go` exists.
const SCRIPT: &str = "[ -e $HERE/go ] && exit 0; echo up >> $HERE/said; sleep 100000";

/// Kills the helper twice.
fn kill_helpers(here: &Path) {
    for round in 1..=2 {
        eventually("it runs", || lines(&here.join("said")).len() == round);
        if round == 2 {
            fs::write(here.join("go"), "").unwrap();
        }
        let helper = fs::read_to_string(here.join("data/node/lock")).unwrap();
        assert!(Command::new("sh").args(["-c", &format!("kill -s KILL {helper}")]).status().unwrap().success());
    }
}

#[tokio::test]
async fn a_cluster_tells_of_its_helper() {
    let kubectl = with_node().await;
    let here = kubectl.directory.path().to_owned();
    let made =
        kubectl.with_input("create --validate=false -f -", &job("w", &here, "", "restartPolicy: OnFailure", SCRIPT));
    assert_eq!(made.code, Some(0), "{}", made.err);
    kill_helpers(&here);
    kubectl.ok("wait --for=condition=complete job/w --timeout=60s");
    assert_eq!(kubectl.server.said().matches(NOTE).count(), 1, "{}", kubectl.server.said());
}

#[test]
fn a_run_tells_of_its_helper_and_goes_on() {
    let directory = server::directory();
    let here = directory.path();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.args(["run", "--backoff-limit", "0", "--data-dir"]).arg(here.join("data"));
    command.arg("--env").arg(format!("HERE={}", here.display())).args(["--", "sh", "-c", SCRIPT]);
    let run = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    kill_helpers(here);
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(said.matches(NOTE).count(), 1, "{said}");
}
