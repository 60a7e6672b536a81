//! A data directory that no process uses, and what is written while a run goes on.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use serde_json::json;

use crate::tool::{Running, attempts, command, directory, tally, text};

/// Index 2 fails at its first attempt.
const FLAKY: &str =
    "echo out $JOB_COMPLETION_INDEX; [ $JOB_COMPLETION_INDEX != 2 ] || ! mkdir tried 2>/dev/null || exit 5";

#[test]
fn jobs_attempts_and_logs_are_kept() {
    let directory = directory();
    let data = directory.path().join("d");
    let run = [
        "run",
        "--data-dir",
        text(&data),
        "--name",
        "sum",
        "-n",
        "4",
        "-p",
        "2",
        "-i",
        "--backoff-limit-per-index",
        "2",
        "--",
        "sh",
        "-c",
        FLAKY,
    ];
    let ran = crate::tool::said(command(&run).current_dir(directory.path()).output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(!data.join("api.sock").exists(), "it goes with the run");

    let listed = tally(&["ps", "--data-dir", text(&data)]);
    let lines: Vec<Vec<&str>> = listed.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "STATE", "SUCCEEDED", "FAILED", "ACTIVE", "TOTAL", "AGE", "DURATION"]);
    assert_eq!(lines[1][..6], ["sum", "Complete", "4", "1", "0", "4"], "{}", listed.out);
    let listed = tally(&["ps", "--data-dir", text(&data), "-o", "json"]).json();
    assert_eq!((&listed["jobs"][0]["name"], &listed["jobs"][0]["completions"]), (&json!("sum"), &json!(4)));

    let shown = tally(&["show", "job/sum", "--data-dir", text(&data), "-o", "json"]).json();
    let expected = [(0, 1, 0), (1, 1, 0), (2, 1, 5), (2, 2, 0), (3, 1, 0)];
    assert_eq!(attempts(&shown), expected.map(|(index, number, code)| (Some(index), number, Some(code))));
    for attempt in shown["attempts"].as_array().unwrap() {
        let has = |name: &str| assert!(attempt[name].as_f64().is_some_and(|value| value > 0.0), "{name}: {attempt}");
        ["cpuSeconds", "peakMemoryBytes"].into_iter().for_each(has);
        assert!(attempt["startedAt"].as_str() <= attempt["finishedAt"].as_str(), "{attempt}");
        assert_eq!(attempt["state"], "Ended");
    }
    let table = tally(&["show", "sum", "--data-dir", text(&data), "--failed"]).out;
    assert!(table.contains("State:     Complete") && table.contains("exit 5"), "{table}");
    assert!(!table.contains(" ok "), "{table}");

    let logs = |more: &[&str]| tally(&[&["logs", "sum", "--data-dir", text(&data)], more].concat());
    assert_eq!(logs(&[]).out, "sum[0] out 0\nsum[1] out 1\nsum[2] out 2\nsum[3] out 3\n");
    assert_eq!(logs(&["--index", "3"]).out, "out 3\n");
    assert_eq!(logs(&["--index", "2", "--attempt", "1"]).out, "out 2\n");
    assert_eq!(logs(&["--index", "3", "--tail", "0"]).out, "");
    let missing = logs(&["--index", "2", "--attempt", "7"]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.err.contains("no attempt 7 of index 2; tally show lists"), "{}", missing.err);
    let pod = shown["attempts"][0]["pod"].as_str().unwrap();
    assert_eq!(tally(&["logs", &format!("pod/{pod}"), "--data-dir", text(&data)]).out, "out 0\n");
    let missing = tally(&["show", "nothing", "--data-dir", text(&data)]);
    assert!(missing.code == Some(1) && missing.err.contains("it has sum"), "{}", missing.err);

    // The Job is run again: the records of the first one stay, its logs do not.
    let again = ["run", "--data-dir", text(&data), "--again", "--name", "sum", "-n", "1", "--", "true"];
    assert_eq!(tally(&again).code, Some(0));
    let all = tally(&["ps", "--all", "--data-dir", text(&data), "-o", "json"]).json();
    let states: Vec<&str> = all["jobs"].as_array().unwrap().iter().map(|job| job["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["Deleted", "Complete"]);
    let uid = all["jobs"][0]["uid"].as_str().unwrap();
    let gone = tally(&["show", uid, "--data-dir", text(&data), "-o", "json"]).json();
    assert_eq!(attempts(&gone).len(), 5);
    let removed = tally(&["logs", uid, "--data-dir", text(&data)]);
    assert!(removed.code == Some(1) && removed.err.contains("were removed"), "{}", removed.err);
}

#[test]
fn what_is_not_kept_is_said_in_words() {
    let directory = directory();
    let home = text(directory.path());
    let without = command(&["ps"]).env("HOME", home).env("XDG_DATA_HOME", home).output().unwrap();
    let without = crate::tool::said(without);
    assert_eq!(without.code, Some(2));
    for told in ["choose one with --data-dir", "--context", "keeps nothing beyond the run unless it has --data-dir"] {
        assert!(without.err.contains(told), "{told}: {}", without.err);
    }
    for (path, told) in [("nowhere", "does not exist"), (".", "has no state of tally")] {
        let said = tally(&["ps", "--data-dir", text(&directory.path().join(path))]);
        assert!(said.code == Some(3) && said.err.contains(told), "{}", said.err);
    }
    assert!(!directory.path().join("nowhere").exists() && fs::read_dir(home).unwrap().count() == 0);
}

#[test]
fn json_events_and_the_job_log_have_every_attempt() {
    let directory = directory();
    let log = directory.path().join("log");
    let script = "head -c 50000000 /dev/zero | tr '\\0' x > /dev/null; [ $JOB_COMPLETION_INDEX != 1 ]";
    let run = [
        "run",
        "-o",
        "json",
        "--joblog",
        text(&log),
        "-n",
        "2",
        "-i",
        "--name",
        "sum",
        "--backoff-limit-per-index",
        "0",
        "--",
        "sh",
        "-c",
        script,
    ];
    for round in 1..3 {
        let said = tally(&run);
        assert_eq!(said.code, Some(1), "{}", said.err);
        let events: Vec<serde_json::Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for (kind, index, code) in [("success", 0, 0), ("failure", 1, 1)] {
            let told: Vec<_> = events.iter().filter(|event| event["event"] == kind).collect();
            assert_eq!(told.len(), 1, "{kind}: {}", said.out);
            let event = told[0];
            assert_eq!((&event["index"], &event["exitCode"]), (&json!(index), &json!(code)), "{event}");
            assert_eq!((&event["attempt"], &event["job"]), (&json!(1), &json!("sum")), "{event}");
            for name in ["seconds", "cpuSeconds", "peakMemoryBytes"] {
                assert!(event[name].as_f64().is_some_and(|value| value > 0.0), "{name}: {event}");
            }
            assert!(event["startedAt"].as_str().unwrap() < event["finishedAt"].as_str().unwrap(), "{event}");
        }
        let text = fs::read_to_string(&log).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
        let header = ["Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command"];
        assert_eq!(lines[0], header);
        assert_eq!(lines.len(), 1 + 2 * round, "a later run appends: {text}");
        let mut last: Vec<_> = lines[2 * round - 1..].iter().map(|line| (line[0], line[6])).collect();
        last.sort_unstable();
        assert_eq!(last, [("1", "0"), ("2", "1")]);
        assert!(lines[1][8].starts_with("sh -c '"), "{text}");
    }
}

#[test]
fn failures_of_every_length_have_their_attempt_in_json_events() {
    // Some are seen while they run, and some begin and end between two looks at them.
    let script = "sleep 0.$JOB_COMPLETION_INDEX; exit 1";
    let said = tally(&["run", "-o", "json", "-n", "8", "-p", "3", "-i", "--name", "fail", "--", "sh", "-c", script]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    let events = said.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let failures: Vec<_> = events.filter(|event| event["event"] == "failure").collect();
    assert_eq!(failures.len(), 8, "{}", said.out);
    for event in failures {
        assert_eq!(event["attempt"], json!(1), "{event}");
    }
}

#[test]
fn after_kills_every_attempt_that_was_counted_has_its_record_once() {
    let directory = directory();
    let data = directory.path().join("d");
    let log = directory.path().join("log");
    let run = [
        "run",
        "--data-dir",
        text(&data),
        "--joblog",
        text(&log),
        "--name",
        "sum",
        "-n",
        "150",
        "-p",
        "8",
        "-i",
        "--quiet",
        "--logs=none",
        "--",
        "sh",
        "-c",
        "sleep 0.0$((JOB_COMPLETION_INDEX % 7))",
    ];
    for round in 0..8 {
        let child = Running(command(&run).spawn().unwrap());
        std::thread::sleep(Duration::from_millis(150 + 73 * round));
        drop(child);
    }
    let last = tally(&run);
    assert_eq!(last.code, Some(0), "{}", last.err);
    let shown = tally(&["show", "sum", "--data-dir", text(&data), "-o", "json"]).json();
    assert_eq!(shown["job"]["succeeded"], 150);
    assert_eq!(shown["droppedAttempts"], 0);
    let mut successes: BTreeMap<u64, u32> = BTreeMap::new();
    for (index, _, code) in attempts(&shown) {
        if code == Some(0) {
            *successes.entry(index.unwrap()).or_default() += 1;
        }
    }
    assert_eq!(successes.len(), 150, "{successes:?}");
    assert!(successes.values().all(|count| *count == 1), "{successes:?}");
    let text = fs::read_to_string(&log).unwrap();
    let ok: std::collections::BTreeSet<&str> = text
        .lines()
        .skip(1)
        .map(|line| line.split('\t').collect::<Vec<_>>())
        .filter(|line| line.len() == 9 && line[6] == "0" && line[7] == "0")
        .map(|line| line[0])
        .collect();
    assert_eq!(ok.len(), 150);
}
