//! `kubectl logs` with all its options.

use std::fs;

use crate::support::kubectl::{Kubectl, with_node};
use crate::tool::{eventually, job};

fn apply(kubectl: &Kubectl, job: &str) {
    let said = kubectl.with_input("create --validate=false -f -", job);
    assert_eq!(said.code, Some(0), "{}", said.err);
}

fn complete(kubectl: &Kubectl, name: &str) {
    kubectl.ok(&format!("wait --for=condition=complete job/{name} --timeout=60s"));
}

#[tokio::test]
async fn what_a_job_printed_can_be_read() {
    let kubectl = with_node().await;
    kubectl.ok("create job hello --image=process -- echo hi");
    complete(&kubectl, "hello");
    for (arguments, told) in [
        ("logs job/hello", "hi\n"),
        ("logs -l job-name=hello", "hi\n"),
        ("logs -l batch.kubernetes.io/job-name=hello --tail=-1", "hi\n"),
        ("logs job/hello -c hello", "hi\n"),
        ("logs job/hello --tail=0", ""),
        ("logs job/hello --limit-bytes=1", "h"),
        ("logs job/hello --since=1h", "hi\n"),
        ("logs job/hello --since-time=2100-01-01T00:00:00Z", ""),
        ("logs -f job/hello", "hi\n"),
        ("logs -l job-name=hello --prefix", "[pod/"),
    ] {
        let said = kubectl.ok(arguments);
        let fits = if told == "[pod/" { said.starts_with(told) } else { said == told };
        assert!(fits, "kubectl {arguments}: {said:?}");
    }
    assert!(kubectl.fails("logs job/hello -c other").contains("container other is not valid"));
    assert!(kubectl.fails("logs job/hello --previous").contains("previous terminated container"));
    let pod = kubectl.ok("get pods -l job-name=hello -o name");
    assert_eq!(kubectl.ok(&format!("logs {}", pod.trim())), "hi\n");
    kubectl.ok("delete job hello");
    eventually("the logs go with the Pod", || {
        let pods = kubectl.directory.path().join("data/node/pods");
        fs::read_dir(pods).unwrap().count() == 0
    });
}

#[tokio::test]
async fn lines_have_times_and_the_last_ones_can_be_had() {
    let kubectl = with_node().await;
    let script = "echo one; echo two; echo three";
    apply(&kubectl, &job("count", kubectl.directory.path(), "", "restartPolicy: Never", script));
    complete(&kubectl, "count");
    assert_eq!(kubectl.ok("logs job/count --tail=2"), "two\nthree\n");
    let stamped = kubectl.ok("logs job/count --timestamps");
    let mut before = String::new();
    for (line, text) in stamped.lines().zip(["one", "two", "three"]) {
        let (at, said) = line.split_once(' ').unwrap();
        assert!(said == text && at.len() == "2026-01-01T00:00:00.000000000Z".len(), "{line}");
        assert!(before.as_str() <= at, "{stamped}");
        at.clone_into(&mut before);
    }
}

#[tokio::test]
async fn a_running_pod_can_be_followed_to_its_end() {
    let kubectl = with_node().await;
    let script = "echo one; until [ -e $HERE/go ]; do sleep 0.05; done; echo two";
    apply(&kubectl, &job("slow", kubectl.directory.path(), "", "restartPolicy: Never", script));
    eventually("it has begun", || kubectl.say("logs job/slow").out == "one\n");
    let mut following = kubectl.follow("logs -f job/slow");
    assert_eq!(following.line(), "one");
    fs::write(kubectl.directory.path().join("go"), "").unwrap();
    assert_eq!((following.line().as_str(), following.line().as_str()), ("two", ""));
    complete(&kubectl, "slow");
}

#[tokio::test]
async fn the_run_before_has_a_log_of_its_own() {
    let kubectl = with_node().await;
    let script = "if mkdir $HERE/tried 2>/dev/null; then echo first; exit 1; fi; echo second";
    apply(&kubectl, &job("twice", kubectl.directory.path(), "", "restartPolicy: OnFailure", script));
    complete(&kubectl, "twice");
    assert_eq!(kubectl.ok("logs job/twice --previous"), "first\n");
    assert_eq!(kubectl.ok("logs job/twice"), "second\n");
}

#[tokio::test]
async fn every_index_can_be_read_at_once() {
    let kubectl = with_node().await;
    let spec = "completions: 4\n  parallelism: 4\n  completionMode: Indexed";
    let script = "echo index $JOB_COMPLETION_INDEX";
    apply(&kubectl, &job("all", kubectl.directory.path(), spec, "restartPolicy: Never", script));
    complete(&kubectl, "all");
    let said = kubectl.ok("logs -l job-name=all");
    let mut lines: Vec<_> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["index 0", "index 1", "index 2", "index 3"]);
    let one = kubectl.ok("logs -l batch.kubernetes.io/job-completion-index=2");
    assert_eq!(one, "index 2\n");
}
