//! Jobs are created on a cluster and followed to their end.

use std::fs;

use serde_json::{Value, json};

use crate::server::{Server, normal, signal};
use crate::tool::{Said, eventually, said, tally, text};

const FAILS: &str = "echo out $JOB_COMPLETION_INDEX; [ $JOB_COMPLETION_INDEX != 2 ] || exit 5";
const INDEXED: [&str; 7] = ["--name", "sum", "-n", "4", "-p", "2", "-i"];

fn on_both(server: &Server, name: &str, flags: &[&str]) -> [Said; 2] {
    let flags = [flags, &["--", "sh", "-c", FAILS]].concat();
    let mut shared = INDEXED;
    shared[1] = name;
    let here = tally(&[&["run"], &shared[..], &flags].concat());
    let there = server.tally(&[&["run", "--image", "busybox"], &shared[..], &flags].concat());
    [here, there]
}

/// The kind, index, exit code, attempt and last lines of the events that do not depend on the time.
fn events(out: &str) -> Vec<String> {
    let all = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let told = all.filter(|event| event["event"] != "progress");
    let fields =
        ["event", "job", "index", "exitCode", "attempt", "log", "line", "succeeded", "failedIndexes", "result"];
    let mut told: Vec<String> = told.map(|event| json!(fields.map(|field| event[field].clone())).to_string()).collect();
    told.sort();
    told
}

#[test]
fn a_failing_index_is_shown_as_on_this_machine() {
    let server = Server::start();
    for (name, flags) in [("plain", &[][..]), ("none", &["--logs=none"]), ("raw", &["--logs=raw"])] {
        let [here, there] = on_both(&server, name, flags);
        assert_eq!((here.code, there.code), (Some(1), Some(1)), "{}{}", here.err, there.err);
        assert_eq!(normal(&there.out), normal(&here.out), "{flags:?}");
        assert_eq!(normal(&there.err), normal(&here.err), "{flags:?}");
    }
    for (name, flags) in [("order", &["-k"][..]), ("group", &["--group", "-k", "--logs=raw"])] {
        let [here, there] = on_both(&server, name, flags);
        assert_eq!((there.code, &there.out), (here.code, &here.out), "{flags:?}: {}", there.err);
        assert_eq!(normal(&there.err), normal(&here.err), "{flags:?}");
    }
    let [here, there] = on_both(&server, "json", &["-o", "json", "--logs"]);
    assert_eq!((there.code, events(&there.out)), (here.code, events(&here.out)));
    let success = there.out.lines().find(|line| line.contains("\"success\"")).unwrap();
    let success: Value = serde_json::from_str(success).unwrap();
    assert_eq!(success["cpuSeconds"], json!(null));
    assert!(success["startedAt"].is_string(), "{success}");
}

#[test]
fn one_task_is_passed_through_and_its_job_is_deleted_with_rm() {
    let server = Server::start();
    let printed = "printf 'one\\n\\ntwo'; echo $SECRET_OF_THE_SHELL$GIVEN";
    let arguments = ["run", "--image", "i", "--rm", "--name", "one", "-e", "GIVEN=given", "--", "sh", "-c", printed];
    let ran = said(server.command(&arguments).env("SECRET_OF_THE_SHELL", "secret").output().unwrap());
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "one\n\ntwogiven\n"), "{}", ran.err);
    assert!(ran.err.starts_with("tally: Job \"one\" was created in namespace default of https://"), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert!(server.job("one").is_none());
}

#[test]
fn a_list_is_run_on_the_cluster_and_a_long_one_in_parts() {
    let server = Server::start();
    let list = server.path("list");
    fs::write(&list, "one\ntwo words\nit's\n").unwrap();
    let ran = server.tally(&["run", "--image", "i", "-k", "--name", "l", "--each", text(&list), "--", "echo", "<{}>"]);
    assert_eq!(ran.out, "l[0] <one>\nl[1] <two words>\nl[2] <it's>\n", "{}", ran.err);
    // More than fits into the ConfigMaps of one Job.
    let lines: Vec<String> = (0..75).map(|line| line.to_string().repeat(60_000)).collect();
    fs::write(&list, lines.join("\n")).unwrap();
    let script = "echo $TALLY_INDEX ${#1}; [ $TALLY_INDEX != 71 ]";
    let arguments = ["run", "--image", "i", "--name", "long", "-p", "4", "--backoff-limit-per-index", "0", "--rm"];
    let of_list = ["--each", text(&list), "--", "sh", "-c", script, "sh", "{}"];
    let ran = server.tally(&[&arguments[..], &of_list].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let mut printed: Vec<&str> = ran.out.lines().collect();
    printed.sort_unstable();
    let mut expected: Vec<String> =
        (0..75).map(|line| format!("long[{line}] {line} {}", if line < 10 { 60_000 } else { 120_000 })).collect();
    expected.sort();
    assert_eq!(printed, expected);
    assert!(ran.err.contains("long: failed indexes 71"), "{}", ran.err);
    assert!(server.job("long").is_none());
}

#[test]
fn ctrl_c_deletes_the_job_or_leaves_it() {
    let server = Server::start();
    let release = server.path("go");
    let script = format!("echo begin; while [ ! -e {} ]; do sleep 0.05; done; echo end", text(&release));
    let run = |name: &str, flags: &[&str]| {
        let job = ["-n", "2", "-p", "2", "-i", "--", "sh", "-c", &script];
        let child = server.spawn(&[&["run", "--image", "i", "--name", name], flags, &job].concat());
        server.runs(name, 2);
        child
    };
    let deleted = run("deleted", &[]);
    signal(deleted.id(), "INT");
    let deleted = said(deleted.wait_with_output().unwrap());
    assert_eq!(deleted.code, Some(130), "{}", deleted.err);
    assert!(deleted.err.contains("tally: Job \"deleted\" was deleted"), "{}", deleted.err);
    assert!(deleted.err.contains("deleted: interrupted after"), "{}", deleted.err);
    assert!(server.job("deleted").is_none());

    let left = run("left", &["--on-interrupt=detach"]);
    signal(left.id(), "INT");
    let left = said(left.wait_with_output().unwrap());
    assert_eq!(left.code, Some(130), "{}", left.err);
    assert!(
        left.err.contains("the Job goes on; follow it again with `tally attach job/left --kubeconfig"),
        "{}",
        left.err
    );
    assert!(left.err.contains("left: left running after"), "{}", left.err);
    assert_eq!(server.job("left").unwrap()["state"], "Running");
    fs::write(&release, "").unwrap();
    eventually("it ends", || server.job("left").filter(|job| job["state"] == "Complete"));
}

#[test]
fn files_are_created_in_the_namespace_that_is_asked_for() {
    let server = Server::start();
    let file = server.path("job.yaml");
    let manifest = "apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {greeting: GREETING}
---
apiVersion: batch/v1
kind: Job
metadata: {name: NAME}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: busybox
          command: [sh, -c, 'echo $G']
          env: [{name: G, valueFrom: {configMapKeyRef: {name: conf, key: greeting}}}]
";
    let run = |name: &str, greeting: &str, flags: &[&str]| {
        fs::write(&file, manifest.replace("NAME", name).replace("GREETING", greeting)).unwrap();
        server.tally(&[&["run", "-f", text(&file)], flags].concat())
    };
    let ran = run("first", "hello", &["--namespace", "team"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "hello\n"), "{}", ran.err);
    assert!(server.tally(&["ps", "-n", "team"]).out.contains("first"));
    // The ConfigMap is there, and the same.
    assert_eq!(run("second", "hello", &["--namespace", "team"]).code, Some(0));
    let other = run("third", "bye", &["--namespace", "team"]);
    assert!(other.code == Some(2) && other.err.contains("ConfigMap \"conf\" already exists"), "{}", other.err);
    let bad = manifest.replace("{name: NAME}", "{name: x, namespace: other}");
    fs::write(&file, bad.replace("GREETING", "hello")).unwrap();
    let refused = server.tally(&["run", "-f", text(&file), "--namespace", "team"]);
    assert!(refused.code == Some(2) && refused.err.contains("--namespace is \"team\""), "{}", refused.err);
    let invalid = manifest.replace("Never", "Always");
    fs::write(&file, invalid).unwrap();
    let refused = server.tally(&["run", "-f", text(&file)]);
    assert!(refused.code == Some(2) && refused.err.contains("job.yaml:16:22: spec.template"), "{}", refused.err);
}

#[test]
fn what_makes_no_sense_on_a_cluster_is_refused_in_words() {
    let server = Server::start();
    let with = |flags: &[&str]| server.tally(&[&["run", "--image", "i"], flags, &["--", "true"]].concat());
    for (flags, told) in [
        (&["--data-dir", "d"][..], "--data-dir cannot be combined with --kubeconfig: the cluster keeps the state"),
        (&["--stdin"], "cannot read the standard input of this process"),
        (&["--hollow", "1"], "the nodes are those of the cluster"),
        (&["--results", "r"], "the files would be on the nodes"),
        (&["--joblog", "l"], "use --output json"),
        (&["--clean-env"], "the environment of the shell is never sent to a cluster; use --env"),
    ] {
        let refused = with(flags);
        assert!(refused.code == Some(2) && refused.err.contains(told), "{flags:?}: {}", refused.err);
    }
    let refused = server.tally(&["run", "--", "true"]);
    assert!(refused.code == Some(2) && refused.err.contains("needs --image IMAGE"), "{}", refused.err);
    for flags in [&["--namespace", "x"][..], &["--rm"], &["--on-interrupt=detach"], &["--set-managed-by"]] {
        let refused = tally(&[&["run"], flags, &["--", "true"]].concat());
        assert!(refused.code == Some(2) && refused.err.contains("--context <NAME>"), "{flags:?}: {}", refused.err);
    }
    assert_eq!(with(&["--name", "taken"]).code, Some(0));
    let taken = with(&["--name", "taken"]);
    assert_eq!(taken.code, Some(2));
    for told in ["already exists in namespace default", "`tally attach job/taken --kubeconfig", "another --name"] {
        assert!(taken.err.contains(told), "{told}: {}", taken.err);
    }
    let missing = with(&["--namespace", "nowhere"]);
    assert!(missing.code == Some(3) && missing.err.contains("\"nowhere\" not found"), "{}", missing.err);
    let unknown = with(&["--context", "nowhere"]);
    assert!(unknown.code == Some(3) && unknown.err.contains("no context \"nowhere\""), "{}", unknown.err);
}

#[test]
fn names_are_made_unique_and_a_manager_can_be_set() {
    let server = Server::start();
    let manifest = |flags: &[&str]| {
        let dry = ["run", "--image", "i", "--dry-run", "-o", "json"];
        server.tally(&[&dry, flags, &["--", "date"]].concat()).json()
    };
    let [one, other] = [manifest(&[]), manifest(&["--set-managed-by"])];
    assert_ne!(one["metadata"]["name"], other["metadata"]["name"]);
    assert_eq!((&one["metadata"]["namespace"], &one["spec"]["managedBy"]), (&json!("default"), &json!(null)));
    assert_eq!(other["spec"]["managedBy"], "tally.dev/job-controller");
    assert_eq!(manifest(&["--set-managed-by=example.com/x"])["spec"]["managedBy"], "example.com/x");
    // It is the Job that is printed without a cluster, but for its name and namespace.
    let mut local = tally(&["run", "--image", "i", "--dry-run", "-o", "json", "--", "date"]).json();
    (local["metadata"]["name"], local["metadata"]["namespace"]) = (one["metadata"]["name"].clone(), "default".into());
    assert_eq!(local, one);
}

#[test]
fn failed_indexes_are_run_again_as_a_new_job() {
    let server = Server::start();
    let script = format!(
        "echo run $JOB_COMPLETION_INDEX; [ $JOB_COMPLETION_INDEX != 2 ] || [ -e {} ]",
        text(&server.path("go"))
    );
    let job = [&["run", "--image", "i"], &INDEXED[..], &["--", "sh", "-c", &script]].concat();
    assert_eq!(server.tally(&job).code, Some(1));
    let again = server.tally(&["run", "--retry-failed"]);
    assert_eq!((again.code, again.out.as_str()), (Some(1), "run 2\n"), "{}", again.err);
    assert!(again.err.contains("sum-retry-1: failed indexes 2"), "{}", again.err);
    fs::write(server.path("go"), "").unwrap();
    let again = server.tally(&["run", "--retry-failed", "sum-retry-1"]);
    assert_eq!((again.code, again.out.as_str()), (Some(0), "run 2\n"), "{}", again.err);
    let none = server.tally(&["run", "--retry-failed", "none"]);
    assert!(none.code == Some(2) && none.err.contains("no Job \"none\" in namespace default of"), "{}", none.err);
}

#[test]
fn what_was_not_run_is_said_and_run() {
    let server = Server::start();
    let (go, ran) = (server.path("go"), server.path("ran"));
    let script = format!("[ $1 != c ] || [ -e {} ] || exit 1; echo $1 >> {}", text(&go), text(&ran));
    let flags = ["run", "--image", "i", "--name", "sum", "-p", "1", "--halt", "now,fail=1"];
    let command = ["--", "sh", "-c", &script, "sh", "{}", ":::", "a", "b", "c", "d", "e"];
    let halted = server.tally(&[&flags[..], &command].concat());
    assert_eq!(halted.code, Some(1), "{}", halted.err);
    for told in ["sum: failed index 2: c\n", "sum: not run to the end: 2 of 5, indexes 3,4\n"] {
        assert!(halted.err.contains(told), "{told}: {}", halted.err);
    }
    let shown = server.tally(&["show", "sum", "-o", "json"]).json();
    assert_eq!((&shown["job"]["notRun"], &shown["job"]["notRunCount"]), (&json!("3,4"), &json!(2)));
    fs::write(&go, "").unwrap();
    let retried = server.tally(&["run", "--retry-failed"]);
    assert_eq!(retried.code, Some(0), "{}", retried.err);
    assert!(
        retried.err.contains("of Job \"sum\" 2 of 5 indexes were not run to the end: 3,4; `tally run --kubeconfig"),
        "{}",
        retried.err
    );
    let resumed = server.tally(&["run", "--resume", "sum"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.err);
    assert!(resumed.err.contains("all 5 indexes of Job \"sum\" have succeeded"), "{}", resumed.err);
    let mut lines: Vec<String> = fs::read_to_string(&ran).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["a", "b", "c", "d", "e"]);
    let none = server.tally(&["run", "--resume"]);
    assert!(none.code == Some(0) && none.err.contains("nothing is left to run"), "{}", none.err);
}

#[test]
fn what_a_job_waits_for_before_a_retry_is_said() {
    let server = Server::start();
    let tried = server.path("tried");
    let script = format!("mkdir {} && exit 3; true", text(&tried));
    let flags =
        ["run", "--image", "i", "--name", "flaky", "--retries", "6", "--retry-delay", "3s", "--", "sh", "-c", &script];
    let ran = server.tally(&flags);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("flaky: attempt 1 of 7, next in "), "{}", ran.err);
    assert!(ran.err.contains("(last failure: exit code 3)"), "{}", ran.err);
}

#[test]
fn a_container_that_is_started_again_is_shown_from_its_first_run() {
    let server = Server::start();
    let tried = server.path("tried");
    let script = format!("echo try; mkdir {} 2>/dev/null && exit 3; echo fine", text(&tried));
    let flags = ["run", "--image", "i", "--name", "flaky", "--restart", "OnFailure", "--", "sh", "-c", &script];
    let ran = server.tally(&flags);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "try\ntry\nfine\n"), "{}", ran.err);
}
