//! Retries with real processes: how long they wait and what is said meanwhile, time limits, halts, and the failed indexes
//! of a finished Job.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::tool::{Running, Said, directory, events, eventually, said, signal, text};

/// `tally run` with real processes.
fn tally(arguments: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.arg("run").args(arguments).stdin(Stdio::null());
    said(command.output().unwrap())
}

fn ends_with(code: i32, arguments: &[&str]) -> Said {
    let said = tally(arguments);
    assert_eq!(said.code, Some(code), "{arguments:?}: {}{}", said.out, said.err);
    said
}

fn said_of(command: &mut Command) -> Said {
    said(command.stdin(Stdio::null()).output().unwrap())
}

fn lines(path: &Path) -> Vec<String> {
    let mut lines: Vec<String> = fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn what_is_typed_is_tried_once() {
    let directory = directory();
    let ran = directory.path().join("ran");
    let fails = ["--", "sh", "-c", "echo ran >> \"$0\"; exit 3", text(&ran)];
    let said = ends_with(1, &fails);
    assert_eq!(lines(&ran), ["ran"], "{}", said.err);
    assert!(said.err.contains("BackoffLimitExceeded"), "{}", said.err);
    let said = ends_with(1, &[&["-n", "3", "-p", "1"][..], &fails].concat());
    assert_eq!(lines(&ran).len(), 2, "the first failure ends runs that have no indexes: {}", said.err);
    assert!(said.err.contains("with --indexed the others go on"), "{}", said.err);
    let said = ends_with(1, &[&["-n", "3", "-i"][..], &fails].concat());
    assert_eq!(lines(&ran).len(), 5, "every index once: {}", said.err);
    // A Job in a file has what the API gives it.
    let manifest = tally(&["--dry-run", "-o", "json", "--", "true"]).out;
    let mut job: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(job["spec"]["backoffLimit"], 0);
    job["spec"].as_object_mut().unwrap().remove("backoffLimit");
    job["metadata"]["annotations"]["tally.dev/backoff-base"] = "0s".into();
    job["spec"]["template"]["spec"]["containers"][0]["command"] = fails[1..].into();
    fs::remove_file(&ran).unwrap();
    let file = directory.path().join("job.json");
    fs::write(&file, job.to_string()).unwrap();
    ends_with(1, &["-f", text(&file)]);
    assert_eq!(lines(&ran).len(), 7);
}

#[test]
fn retries_are_counted_for_each_index() {
    let directory = directory();
    let ran = directory.path().join("ran");
    let script = "echo $TALLY_LINE >> \"$0\"; [ $TALLY_LINE != b ]";
    let flags = ["--retries", "2", "--retry-delay", "0", "--logs=none"];
    let said = ends_with(1, &[&flags[..], &["--", "sh", "-c", script, text(&ran), ":::", "a", "b", "c"]].concat());
    assert_eq!(lines(&ran), ["a", "b", "b", "b", "c"]);
    assert!(said.out.contains("2/3 succeeded, 3 failed\n") && said.out.contains("failed index 1: b\n"), "{}", said.out);
}

#[test]
fn a_line_that_waits_for_its_retry_does_not_make_the_others_wait() {
    let directory = directory();
    let (ran, out) = (directory.path().join("ran"), directory.path().join("out"));
    let script = "echo $TALLY_LINE >> \"$0\"; [ $TALLY_LINE != a ]";
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.args(["run", "--retries", "1", "--retry-delay", "1h", "-p", "1", "-o", "json", "--", "sh", "-c", script]);
    command.args([text(&ran), ":::", "a", "b", "c", "d"]).stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = Running(command.stdout(fs::File::create(&out).unwrap()).spawn().unwrap());
    eventually("the others have run", || lines(&ran) == ["a", "b", "c", "d"]);
    eventually("it waits, and they are counted", || {
        let out = fs::read_to_string(&out).unwrap();
        out.contains("\"event\":\"backoff\"") && out.contains("\"succeeded\":3")
    });
    signal(child.0.id(), "INT");
    assert_eq!(child.0.wait().unwrap().code(), Some(130));
    let events = events(&fs::read_to_string(&out).unwrap());
    assert_eq!(events.last().unwrap()["succeeded"], 3);
}

#[test]
fn of_a_thousand_lines_ten_fail_and_only_they_are_run_again() {
    let directory = directory();
    let [data, list, ran, good] = ["d", "list", "ran", "good"].map(|name| directory.path().join(name));
    let all: Vec<String> = (0..1000).map(|line| format!("line {line}")).collect();
    fs::write(&list, all.join("\n") + "\n").unwrap();
    // Those that end with 37.
    let script = "echo \"$0\" >> \"$1\"; case \"$0\" in *37) [ -e \"$2\" ];; esac";
    let flags = ["--data-dir", text(&data), "--name", "sum", "--each", text(&list), "--logs=none"];
    let said = ends_with(1, &[&flags[..], &["--", "sh", "-c", script, "{}", text(&ran), text(&good)]].concat());
    let mut expected = all.clone();
    expected.sort();
    assert_eq!(lines(&ran), expected, "every line is run once");
    let failed: Vec<u32> = (0..10).map(|hundred| hundred * 100 + 37).collect();
    assert!(said.out.contains("; 990/1000 succeeded, 10 failed\n"), "{}", said.out);
    for index in &failed {
        assert!(said.out.contains(&format!("\nsum: failed index {index}: line {index}\n")), "{}", said.out);
    }
    assert!(said.err.contains(&format!("`tally run --data-dir {} --resume sum`", text(&data))), "{}", said.err);
    fs::remove_file(&ran).unwrap();
    fs::write(&good, "").unwrap();
    let said = ends_with(0, &["--data-dir", text(&data), "--resume", "--logs=none"]);
    let mut expected: Vec<String> = failed.iter().map(|index| format!("line {index}")).collect();
    expected.sort();
    assert_eq!(lines(&ran), expected);
    assert!(said.err.contains("all 1000 indexes of Job \"sum\" have succeeded"), "{}", said.err);
}

/// RETRY-3.
#[test]
fn what_was_not_run_is_said_and_resumed() {
    let directory = directory();
    let [data, ran, good] = ["d", "ran", "good"].map(|name| directory.path().join(name));
    let script = "case $0 in 3|7) [ -e \"$2\" ] || exit 1;; esac; echo $0 >> \"$1\"";
    let flags = ["--data-dir", text(&data), "--name", "sum", "-p", "1", "--halt", "now,fail=2", "--logs=none"];
    let line: Vec<String> = (0..20).map(|line| line.to_string()).collect();
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    let command = [&["--", "sh", "-c", script, "{}", text(&ran), text(&good), ":::"][..], &line].concat();
    let said = ends_with(1, &[&flags[..], &command].concat());
    let not_run = "sum: not run to the end: 12 of 20, indexes 8-19\n";
    assert!(said.out.contains("sum: failed indexes 3,7\n") && said.out.contains(not_run), "{}", said.out);
    let again = ends_with(1, &[&flags[..], &command].concat());
    assert!(
        again.out.contains(not_run) && again.err.contains("--resume to run what has not succeeded"),
        "{}",
        again.err
    );
    let show = |form: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
        said_of(command.args(["show", "sum", "--data-dir", text(&data)]).args(form)).out
    };
    assert!(show(&[]).contains("\nLeft:      12 of 20 not run to the end: indexes 8-19\n"), "{}", show(&[]));
    let job: Value = serde_json::from_str(&show(&["-o", "json"])).unwrap();
    assert_eq!((&job["job"]["notRun"], &job["job"]["notRunCount"]), (&"8-19".into(), &12.into()));
    fs::write(&good, "").unwrap();
    // What was asked for has succeeded, and what is left is said.
    let said = ends_with(0, &["--data-dir", text(&data), "--retry-failed", "--logs=none"]);
    let told = format!(
        "tally: of Job \"sum\" 12 of 20 indexes were not run to the end: 8-19; `tally run --data-dir {} --resume sum` runs \
         them\n",
        text(&data)
    );
    assert!(said.err.contains(&told), "{}", said.err);
    assert_eq!(lines(&ran).len(), 8);
    let said = ends_with(0, &["--data-dir", text(&data), "--resume", "--output", "json"]);
    let summary: Value = serde_json::from_str(said.out.lines().last().unwrap()).unwrap();
    assert_eq!((&summary["job"], &summary["succeeded"]), (&"sum-retry-2".into(), &12.into()));
    assert!(said.err.contains("all 20 indexes of Job \"sum\" have succeeded"), "{}", said.err);
    let mut expected: Vec<String> = line.iter().map(|line| (*line).to_owned()).collect();
    expected.sort();
    assert_eq!(lines(&ran), expected, "every line has succeeded once");
    let said = ends_with(0, &["--data-dir", text(&data), "--resume"]);
    assert!(said.err.contains("nothing is left to run: everything of Job \"sum\" has succeeded"), "{}", said.err);
    // The same command knows of it, and so does the list.
    let said = ends_with(0, &[&flags[..], &command].concat());
    let since = "sum: had Failed before this run, and all of it has succeeded since, with sum-retry-2\n";
    assert_eq!((said.out.as_str(), said.err.contains("--resume")), (since, false), "{}", said.err);
    let mut ps = Command::new(env!("CARGO_BIN_EXE_tally"));
    let ps = said_of(ps.args(["ps", "--data-dir", text(&data)])).out;
    let row = ps.lines().find(|row| row.starts_with("sum ")).unwrap();
    assert!(row.contains("Failed") && row.ends_with("All of it has succeeded since, with sum-retry-2."), "{ps}");
}

/// RETRY-6.
#[test]
fn lines_that_fail_again_do_not_keep_the_others_from_being_resumed() {
    let directory = directory();
    let [data, ran] = ["d", "ran"].map(|name| directory.path().join(name));
    let script = "case $0 in a|b) exit 1;; esac; echo $0 >> \"$1\"";
    let flags = ["--data-dir", text(&data), "--name", "sum", "-p", "1", "--halt", "now,fail=2", "--logs=none"];
    let command = ["--", "sh", "-c", script, "{}", text(&ran), ":::", "a", "b", "c", "d"];
    let said = ends_with(1, &[&flags[..], &command].concat());
    assert!(said.out.contains("sum: not run to the end: 2 of 4, indexes 2,3\n"), "{}", said.out);
    let said = ends_with(1, &["--data-dir", text(&data), "--resume", "--logs=none"]);
    assert!(said.out.contains("sum-retry-1: failed indexes 0,1\n"), "{}", said.out);
    assert_eq!(lines(&ran), ["c", "d"]);
}

#[test]
fn what_a_deadline_left_is_resumed() {
    let directory = directory();
    let [data, ran, good] = ["d", "ran", "good"].map(|name| directory.path().join(name));
    let script = "while [ $0 = b ] && [ ! -e \"$2\" ]; do sleep 0.05; done; echo $0 >> \"$1\"";
    let flags = ["--data-dir", text(&data), "--name", "late", "-p", "1", "--deadline", "3s", "--logs=none"];
    let command = ["--", "sh", "-c", script, "{}", text(&ran), text(&good), ":::", "a", "b", "c"];
    let said = ends_with(1, &[&flags[..], &command].concat());
    assert!(said.out.contains("DeadlineExceeded") && said.out.contains("late: not run to the end: "), "{}", said.out);
    let said = ends_with(2, &["--data-dir", text(&data), "--retry-failed", "late"]);
    assert!(said.err.contains("has no failed indexes") && said.err.contains("--resume runs them"), "{}", said.err);
    fs::write(&good, "").unwrap();
    // The deadline is also that of the Jobs that go on, so a slow machine may need several.
    eventually("all have succeeded", || {
        let said = tally(&["--data-dir", text(&data), "--resume", "--logs=none"]);
        said.code == Some(0) && said.err.contains("all 3 indexes of Job \"late\" have succeeded")
    });
    let mut ran = lines(&ran);
    ran.dedup();
    assert_eq!(ran, ["a", "b", "c"]);
}

#[test]
fn a_job_without_indexes_is_resumed_with_the_runs_that_are_missing() {
    let directory = directory();
    let [data, ran, good] = ["d", "ran", "good"].map(|name| directory.path().join(name));
    let script = "echo ran >> \"$0\"; [ -e \"$1\" ] || [ $(wc -l < \"$0\") -lt 3 ]";
    let flags = ["--data-dir", text(&data), "--name", "w", "-n", "5", "-p", "1", "--logs=none"];
    let said = ends_with(1, &[&flags[..], &["--", "sh", "-c", script, text(&ran), text(&good)]].concat());
    assert!(said.out.contains("; 2/5 succeeded, 1 failed\n"), "{}", said.out);
    assert!(said.err.contains("--resume w` runs again what has not succeeded"), "{}", said.err);
    let said = ends_with(2, &["--data-dir", text(&data), "--retry-failed", "w"]);
    assert!(said.err.contains("has no indexes") && said.err.contains("--resume"), "{}", said.err);
    fs::write(&good, "").unwrap();
    let said = ends_with(0, &["--data-dir", text(&data), "--resume", "--logs=none"]);
    assert!(said.out.contains("w-retry-1: Complete in ") && said.out.contains("; 3/3 succeeded\n"), "{}", said.out);
    assert_eq!(lines(&ran).len(), 6);
}

/// RETRY-4. Earlier versions gave a command six retries for the whole Job: that is what `--backoff-limit 6` makes now.
#[test]
fn an_unfinished_job_of_an_earlier_version_goes_on_with_the_same_command() {
    let directory = directory();
    let [data, ran, go] = ["d", "ran", "go"].map(|name| directory.path().join(name));
    let script = "echo $0 >> \"$1\"; while [ ! -e \"$2\" ]; do sleep 0.05; done";
    let flags = ["run", "--data-dir", text(&data), "--name", "old", "-p", "1"];
    let words = ["--", "sh", "-c", script, "{}", text(&ran), text(&go), ":::", "a", "b"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.args(flags).args(["--backoff-limit", "6"]).args(words).stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = Running(command.spawn().unwrap());
    eventually("it runs", || lines(&ran) == ["a"]);
    signal(child.0.id(), "INT");
    assert_eq!(child.0.wait().unwrap().code(), Some(130));
    fs::write(&go, "").unwrap();
    let said = ends_with(0, &[&flags[1..], &words].concat());
    assert!(said.err.contains("Job \"old\" resumes from the state in "), "{}", said.err);
    let told = "keeps the retries that it was created with: backoffLimit 6, not backoffLimitPerIndex 0";
    assert!(said.err.contains(told), "{}", said.err);
    assert!(said.err.contains("old: Complete in "), "{}", said.err);
}

#[test]
fn a_command_says_what_it_waits_for_before_a_retry() {
    let said = ends_with(1, &["--retries", "4", "--", "false"]);
    // Times of failures are whole seconds, rounded down: what is left of a wait may be a second less. Of the first one, which is a
    // second, nothing may be left.
    for failures in 2..5 {
        let whole = 1 << (failures - 1);
        let told = |seconds| format!("attempt {failures} of 5, next in {seconds} s (last failure: exit code 1)");
        let found = [whole, (whole - 1).max(1)].into_iter().any(|seconds| said.err.contains(&told(seconds)));
        assert!(found, "{:?} is not in: {}", told(whole), said.err);
    }
    assert!(said.err.contains("BackoffLimitExceeded"), "{}", said.err);
}

#[test]
fn events_say_when_the_next_attempt_is() {
    let flags = ["--retry-delay", "2s", "--backoff-limit", "1", "--output", "json"];
    let said = ends_with(1, &[&flags[..], &["--", "sh", "-c", "exit 3"]].concat());
    let events: Vec<Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let wait = events.iter().find(|event| event["event"] == "backoff").unwrap();
    assert_eq!((&wait["attempt"], &wait["attempts"], &wait["exitCode"]), (&1.into(), &2.into(), &3.into()));
    assert!(wait["secondsLeft"].as_f64().is_some_and(|left| left > 0.0 && left <= 2.0), "{wait}");
    assert!(wait["nextAt"].is_string(), "{wait}");
}

#[test]
fn an_attempt_that_takes_too_long_has_failed() {
    let flags = ["--timeout", "500ms", "--retry-delay", "0", "--backoff-limit", "1"];
    let said = ends_with(1, &[&flags[..], &["--", "sleep", "1000"]].concat());
    assert_eq!(said.err.matches("(DeadlineExceeded), Pod").count(), 2, "{}", said.err);
}

/// Task 0 fails, task 1 takes a second, and the others must not begin.
fn halted(when: &str) -> (Said, Vec<String>) {
    let directory = directory();
    let began = directory.path().join("began");
    let script = "echo began $1 >> \"$2\"; [ $1 != 0 ] || exit 1; sleep 1; echo ended $1 >> \"$2\"";
    let flags = ["--halt", when, "-p", "2", "--logs=none"];
    let command = ["--", "sh", "-c", script, "sh", "{}", text(&began), ":::", "0", "1", "2", "3", "4"];
    let said = ends_with(1, &[&flags[..], &command].concat());
    assert!(said.out.contains("MaxFailedIndexesExceeded"), "{}", said.out);
    (said, lines(&began))
}

#[test]
fn a_job_that_halts_now_stops_its_tasks_and_one_that_halts_soon_lets_them_end() {
    let (_, began) = halted("now,fail=1");
    assert!(!began.iter().any(|line| line.starts_with("ended")), "{began:?}");
    let (said, began) = halted("soon,fail=20%");
    assert_eq!(began, ["began 0", "began 1", "ended 1"], "{}", said.err);
    assert!(said.out.contains("1/5 succeeded, 1 failed"), "{}", said.out);
}

#[test]
fn only_what_has_failed_is_run_again_with_its_own_index() {
    let directory = directory();
    let (data, good, ran) = (directory.path().join("d"), directory.path().join("good"), directory.path().join("ran"));
    let script = "echo $JOB_COMPLETION_INDEX $TALLY_INDEX $0 >> \"$1\"; [ $0 != b ] && [ $0 != d ] || [ -e \"$2\" ]";
    let flags = ["--data-dir", text(&data), "--name", "sum"];
    let command = ["--", "sh", "-c", script, "{}", text(&ran), text(&good), ":::", "a", "b", "c", "d"];
    let said = ends_with(1, &[&flags[..], &command].concat());
    assert!(said.err.contains("sum: failed indexes 1,3"), "{}", said.err);
    fs::remove_file(&ran).unwrap();
    let again = ["--data-dir", text(&data), "--retry-failed"];
    let said = ends_with(1, &again);
    assert!(said.err.contains("Job \"sum-retry-1\" runs the failed indexes of Job \"sum\" again: 1,3"), "{}", said.err);
    assert!(said.err.contains("sum-retry-1: index 3: exit code 1"), "{}", said.err);
    assert!(said.err.contains("sum-retry-1: failed indexes 1,3"), "{}", said.err);
    assert_eq!(lines(&ran), ["1 1 b", "3 3 d"]);
    fs::write(&good, "").unwrap();
    let results = directory.path().join("results");
    let said = ends_with(0, &[&again[..], &["sum-retry-1", "--results", text(&results)]].concat());
    assert!(said.err.contains("sum-retry-2: Complete"), "{}", said.err);
    assert_eq!(lines(&ran), ["1 1 b", "1 1 b", "3 3 d", "3 3 d"]);
    assert!(results.join("3/result.json").is_file() && !results.join("0").exists());
    let said = ends_with(2, &again);
    assert!(said.err.contains("no finished Job in the data directory has failed indexes"), "{}", said.err);
    for (more, told) in [
        (&["sum-retry-1"][..], "Job \"sum\" has no failed indexes"),
        (&["--", "true"], "--retry-failed takes everything from the Job that has ended; remove a command"),
        (&["-n", "3"], "remove --completions"),
    ] {
        let said = ends_with(2, &[&again[..], more].concat());
        assert!(said.err.contains(told), "{}", said.err);
    }
}
