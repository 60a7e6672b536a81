//! `tally run` on a directory in which an earlier version was killed: a list and an Indexed Job are not finished, and a
//! finished Job has a failed index. Every task writes its line to a file that was taken along.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;

use crate::fixture::{unpacked, versions};
use crate::tool::{Said, command, ok, said, text};

/// The directory of an earlier version, in which tasks no longer wait or fail.
fn interrupted(version: &Path) -> TempDir {
    let directory = unpacked(version, "run.tar.gz");
    fs::write(directory.path().join("go"), "").unwrap();
    directory
}

/// The arguments that the earlier version got.
fn words(directory: &Path, name: &str) -> Vec<String> {
    let all: Value = serde_json::from_str(&fs::read_to_string(directory.join("commands.json")).unwrap()).unwrap();
    serde_json::from_value(all[name].clone()).unwrap()
}

fn run(directory: &Path, words: &[&str]) -> Said {
    let data = directory.join("run");
    let mut tally = command(&[&["run", "--data-dir", text(&data)], words].concat());
    // Where the earlier version ran: the working directory is a part of the Job.
    tally.current_dir("/").env("FIXTURE", directory).stdin(Stdio::null());
    said(tally.output().unwrap())
}

/// The lines that the tasks of a Job have written, before and after.
fn written(directory: &Path, name: &str) -> Vec<String> {
    let text = fs::read_to_string(directory.join(name)).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Every line of the list, and every index, was run once: by one version or by the other.
fn all_is_done_once(directory: &Path) {
    let words = words(directory, "list");
    let mut lines: Vec<String> = words.split(|word| word == ":::").next_back().unwrap().to_vec();
    lines.sort();
    assert_eq!(written(directory, "list"), lines);
    assert_eq!(written(directory, "pieces"), ["0", "1", "2", "3", "4"]);
    let listed = ok(&["ps", "--data-dir", text(&directory.join("run")), "-o", "json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let unfinished = listed["jobs"].as_array().unwrap().iter().filter(|job| job["name"] != "sums");
    let counts: Vec<[&Value; 4]> =
        unfinished.map(|job| ["state", "succeeded", "failed", "completions"].map(|field| &job[field])).collect();
    let complete = Value::from("Complete");
    let [none, five, ten] = [0, 5, 10].map(Value::from);
    assert_eq!(counts, [[&complete, &ten, &none, &ten], [&complete, &five, &none, &five]], "{listed}");
}

#[test]
fn the_same_command_goes_on_with_the_list_of_an_earlier_version() {
    for version in versions() {
        let directory = interrupted(&version);
        let words = words(directory.path(), "list");
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = run(directory.path(), &words);
        assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
        assert!(said.err.contains("Job \"list\" resumes from the state in"), "{}", said.err);
        assert!(said.err.contains("list: Complete in") && said.err.contains("; 10/10 succeeded"), "{}", said.err);
        all_is_done_once(directory.path());
        let again = run(directory.path(), &words);
        assert!(again.code == Some(0) && again.err.contains("is already finished"), "{}{}", again.out, again.err);
        all_is_done_once(directory.path());
    }
}

/// Its name is made of the command.
#[test]
fn the_same_command_without_a_name_goes_on_with_the_job_of_an_earlier_version() {
    for version in versions() {
        let directory = interrupted(&version);
        let words = words(directory.path(), "pieces");
        let said = run(directory.path(), &words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
        assert!(said.err.contains("Job \"sh-2lfp8\" resumes from the state in"), "{}", said.err);
        all_is_done_once(directory.path());
    }
}

#[test]
fn resume_goes_on_with_the_list_of_an_earlier_version() {
    for version in versions() {
        let directory = interrupted(&version);
        let said = run(directory.path(), &["--resume", "list"]);
        assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
        all_is_done_once(directory.path());
    }
}

#[test]
fn resume_runs_what_has_failed_with_an_earlier_version() {
    for version in versions() {
        let directory = interrupted(&version);
        assert_eq!(written(directory.path(), "sums"), ["0", "1", "2", "4"]);
        let said = run(directory.path(), &["--resume", "sums"]);
        assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
        assert!(said.err.contains("all 5 indexes of Job \"sums\" have succeeded"), "{}", said.err);
        assert_eq!(written(directory.path(), "sums"), ["0", "1", "2", "3", "4"]);
    }
}

#[test]
fn attempts_and_logs_of_an_earlier_version_are_shown() {
    for version in versions() {
        let directory = unpacked(&version, "run.tar.gz");
        let data = directory.path().join("run");
        assert!(ok(&["check", text(&data)]).contains("nothing is damaged"));
        let shown = ok(&["show", "sums", "--data-dir", text(&data), "-o", "json"]);
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let attempts = shown["attempts"].as_array().unwrap().iter();
        let told: Vec<(u64, i64)> =
            attempts.map(|one| (one["index"].as_u64().unwrap(), one["exitCode"].as_i64().unwrap())).collect();
        assert_eq!(told, [(0, 0), (1, 0), (2, 0), (3, 2), (4, 0)]);
        let logs = ok(&["logs", "sums", "--data-dir", text(&data)]);
        let mut logs: Vec<&str> = logs.lines().collect();
        logs.sort_unstable();
        let expected =
            ["sums[0] sum 0", "sums[1] sum 1", "sums[2] sum 2", "sums[3] no input", "sums[3] sum 3", "sums[4] sum 4"];
        assert_eq!(logs, expected);
        let explained = ok(&["explain", "job/sums", "--data-dir", text(&data)]);
        assert!(explained.contains("exit code 2") && explained.contains("no input"), "{explained}");
    }
}
