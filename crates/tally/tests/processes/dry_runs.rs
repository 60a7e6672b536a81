//! What `tally run --dry-run` prints is a Job for any cluster: kubectl accepts it, and `tally up` runs it to the counts
//! of the run itself.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::kubectl::with_node;

/// Flags that do not change the Job.
const OTHERS: [&str; 29] = [
    "--feature-gates",
    "--file",
    "--stdin",
    "--dry-run",
    "--image",
    "--data-dir",
    "--again",
    "--resume",
    "--retry-failed",
    "--logs",
    "--keep-order",
    "--group",
    "--results",
    "--joblog",
    "--junit",
    "--output",
    "--quiet",
    "--tui",
    "--help",
    "--name",
    "--hollow",
    "--isolate",
    "--context",
    "--kubeconfig",
    "--namespace",
    "--set-managed-by",
    "--rm",
    "--on-interrupt",
    "--control-sequences",
];

/// Every flag that changes the Job, alone or with those that belong to it.
const COMMANDS: [&str; 19] = [
    "-- true",
    "--completions 5 --parallelism 2 -- true",
    "-n 4 -p 2 --indexed --clean-env -- sh -c 'test $JOB_COMPLETION_INDEX -lt 4'",
    "--backoff-limit 0 -- false",
    "-- false",
    "-n 3 -i --retries 1 --retry-delay 0s -- sh -c 'test $JOB_COMPLETION_INDEX != 1'",
    "--backoff-limit 2 --retry-delay 100ms --retry-max-delay 200ms -- false",
    "-n 3 --indexed --backoff-limit-per-index 1 --retry-delay 0s -- sh -c 'test $JOB_COMPLETION_INDEX != 1'",
    "-n 4 -p 1 -i --max-failed-indexes 1 -- sh -c 'test $JOB_COMPLETION_INDEX -gt 1'",
    "-n 4 -p 1 -i --halt soon,fail=1 -- sh -c 'test $JOB_COMPLETION_INDEX != 1'",
    "--timeout 1s --backoff-limit 0 -- sleep 1000",
    "--deadline 1s -- sleep 1000",
    "--pending-timeout 10m --ttl 1h --env A=b --workdir / --cpu 1m --memory 1Mi -- sh -c 'test $A$PWD = b/'",
    "--restart OnFailure --backoff-limit 3 -- sh -c 'test -e done || { touch done; exit 1; }'",
    "--each list -- test {}",
    "--each list --literal {x} -- test {x}{}",
    "--each zeros --null -- test {}",
    "--each points.csv --columns -- test {x} -lt {y}",
    "--each-glob \"$PWD/*.txt\" --each list --zip -- test -e {1} -o -e {2}",
];

fn tally(here: &Path, flags: &str, command: &str) -> Output {
    let script = format!("exec '{}' run {flags} {command}", env!("CARGO_BIN_EXE_tally"));
    Command::new("sh").args(["-c", &script]).current_dir(here).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_flag_of_a_job_is_in_a_command() {
    let help = text(&Command::new(env!("CARGO_BIN_EXE_tally")).args(["run", "--help"]).output().unwrap().stdout);
    let flags = help.lines().filter_map(|line| {
        let line = line.trim_start();
        let long = line.strip_prefix('-')?.find("--").map_or(line, |at| &line[at + 1..]);
        long.starts_with("--").then(|| long.split([' ', '[', '=']).next().unwrap().to_owned())
    });
    let given: BTreeSet<&str> = COMMANDS.iter().flat_map(|command| command.split(' ')).collect();
    let missing: Vec<String> =
        flags.filter(|flag| !given.contains(flag.as_str()) && !OTHERS.contains(&flag.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?} are in no command of this test");
}

#[tokio::test]
async fn what_a_dry_run_prints_runs_to_the_same_counts() {
    let kubectl = with_node().await;
    let here = kubectl.directory.path().to_owned();
    for (name, content) in [
        ("list", "one\ntwo\n"),
        ("zeros", "one\0two\0"),
        ("points.csv", "x,y\n1,2\n3,4\n"),
        ("a.txt", ""),
        ("b.txt", ""),
    ] {
        std::fs::write(here.join(name), content).unwrap();
    }
    for (number, command) in COMMANDS.iter().enumerate() {
        let remove = || std::fs::remove_file(here.join("done"));
        let _ = remove();
        let run = tally(&here, &format!("--output json --data-dir kept-{number}"), command);
        let said = text(&run.stdout);
        let mut summary = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let summary = summary.rfind(|event| event["event"] == "summary");
        let summary = summary.unwrap_or_else(|| panic!("{command}: {said}{}", text(&run.stderr)));

        let _ = remove();
        let name = format!("dry-{number}");
        let printed = tally(&here, &format!("--dry-run -o yaml --image busybox --name {name}"), command);
        let manifest = text(&printed.stdout);
        assert_eq!(printed.status.code(), Some(0), "{command}: {}", text(&printed.stderr));
        let accepted = kubectl.with_input("create --dry-run=server -f -", &manifest);
        assert_eq!(accepted.code, Some(0), "{command}: {}{manifest}", accepted.err);
        let made = kubectl.with_input("create -f -", &manifest);
        assert_eq!(made.code, Some(0), "{command}: {}", made.err);
        let wanted = summary["result"].as_str().unwrap();
        kubectl.ok(&format!("wait --for=condition={wanted} job/{name} --timeout=60s"));
        let status = &kubectl.json(&format!("get job {name} -o json"))["status"];
        let count = |count: &Value| count.as_u64().unwrap_or(0);
        let counts = [&status["succeeded"], &status["failed"]].map(count);
        assert_eq!(counts, [&summary["succeeded"], &summary["failed"]].map(count), "{command}: {status}");
        let failed_indexes = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        assert_eq!(failed_indexes(&status["failedIndexes"]), failed_indexes(&summary["failedIndexes"]), "{command}");
        let reasons = status["conditions"].as_array().unwrap().iter().map(|condition| &condition["reason"]);
        let reason = &summary["reason"];
        assert!(
            reasons.chain([&json!(null), &json!("")]).any(|known| known == reason),
            "{command}: {summary} {status}"
        );
    }
}
