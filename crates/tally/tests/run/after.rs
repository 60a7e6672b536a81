//! The order between Jobs of a file: `tally.dev/after`.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::tool::{Said, directory, file, said, text};

/// A Job that runs a shell command.
fn job(name: &str, after: &str, command: &str) -> String {
    let annotations =
        if after.is_empty() { String::new() } else { format!("\n  annotations: {{tally.dev/after: \"{after}\"}}") };
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}{annotations}\nspec:\n  backoffLimit: 0\n  template:\n    \
         spec:\n      restartPolicy: Never\n      containers:\n      - {{name: c, image: process, command: [sh, -c, \"{command}\"]}}\n---\n"
    )
}

/// Runs the Jobs of a file as processes.
fn run_file(content: &str, more: &[&str]) -> Said {
    let directory = directory();
    let path = file(directory.path(), "jobs.yaml", content);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    said(command.args(["run", "-f", text(&path)]).args(more).stdin(Stdio::null()).output().unwrap())
}

/// ORDER-3.
#[test]
fn a_job_begins_when_the_one_before_it_is_complete() {
    let text = job("third", "second", "echo three")
        + &job("second", "first=Complete", "echo two")
        + &job("first", "", "sleep 1.5; echo one");
    let began = Instant::now();
    let said = run_file(&text, &["--logs=raw"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(said.out, "one\ntwo\nthree\n");
    let told = |line: &str| said.err.contains(line);
    assert!(told("third: waiting for second") && told("second: waiting for first"), "{}", said.err);
    assert!(began.elapsed() < Duration::from_secs(20));
}

/// ORDER-4: what can no longer begin fails with its reason, and the exit code is that of a failed Job.
#[test]
fn a_job_whose_condition_cannot_come_true_fails_without_a_pod() {
    let text = job("first", "", "exit 3")
        + &job("on-success", "first", "echo never")
        + &job("on-failure", "first=Failed", "echo cleanup")
        + &job("always", "first=Finished", "echo always");
    let said = run_file(&text, &["--logs=raw"]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    let mut lines: Vec<&str> = said.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["always", "cleanup"]);
    let why = "DependencyFailed: the Job first has ended Failed, and tally.dev/after wants it Complete; 0/1 succeeded";
    assert!(said.err.contains(why), "{}", said.err);
}

/// ORDER-1, ORDER-6: what would never end is refused with file, line and the cycle.
#[test]
fn what_would_wait_for_ever_is_refused_before_anything_runs() {
    let cycle = job("a", "b", "true") + &job("b", "c", "true") + &job("c", "a", "true");
    let rows = [
        (
            cycle,
            "metadata.annotations[tally.dev/after]: Invalid value: \"a\": the Jobs would wait for each other: c -> a -> b -> c",
        ),
        (job("a", "a", "true"), "a Job cannot wait for itself; name another Job"),
        (job("a", "b", "true"), "there is no Job named \"b\" to wait for; add it to the files, or correct the name"),
        (job("a", "b=Done", "true"), "\"Done\" is not one of Complete, Failed, Finished, for example"),
    ];
    for (text, expected) in rows {
        let said = run_file(&text, &[]);
        assert_eq!(said.code, Some(2), "{}", said.err);
        assert!(said.err.contains(expected) && said.err.contains("jobs.yaml:"), "{}", said.err);
    }
}

/// A Job in the data directory counts, also one that ended in an earlier run.
#[test]
fn a_job_of_an_earlier_run_can_be_waited_for() {
    let directory = directory();
    let data = directory.path().join("d");
    let kept = ["--data-dir", text(&data), "--logs=raw"];
    assert_eq!(run_file(&job("first", "", "true"), &kept).code, Some(0));
    let said = run_file(&job("second", "first", "echo two"), &kept);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "two\n"), "{}", said.err);
}
