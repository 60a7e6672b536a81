//! Retries with real processes: how long they wait and what is said meanwhile, time limits, halts, and the failed indexes
//! of a finished Job.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::tool::{Said, directory, said, text};

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

fn lines(path: &Path) -> Vec<String> {
    let mut lines: Vec<String> = fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn a_command_that_fails_says_so_within_90_seconds_and_what_it_waits_for() {
    let began = Instant::now();
    let said = ends_with(1, &["--", "false"]);
    assert!(began.elapsed() < Duration::from_secs(90), "{:?}", began.elapsed());
    // Times of failures are whole seconds, rounded down: what is left of a wait may be a second less. Of the first one, which is a
    // second, nothing may be left.
    for failures in 2..7 {
        let whole = 1 << (failures - 1);
        let told = |seconds| format!("attempt {failures} of 7, next in {seconds} s (last failure: exit code 1)");
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
    let flags = ["--halt", when, "-p", "2", "--backoff-limit-per-index", "0", "--logs=none"];
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
    let flags = ["--data-dir", text(&data), "--name", "sum", "--backoff-limit-per-index", "0"];
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
        (
            &["sum-retry-1"][..],
            "sum-retry-2\" has run the failed indexes of Job \"sum-retry-1\" again, and is Complete",
        ),
        (&["--", "true"], "--retry-failed takes everything from the Job that failed; remove a command"),
        (&["-n", "3"], "remove --completions"),
    ] {
        let said = ends_with(2, &[&again[..], more].concat());
        assert!(said.err.contains(told), "{}", said.err);
    }
}
