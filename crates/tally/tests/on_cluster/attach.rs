//! `tally attach`: Jobs that exist already.

use std::process::Stdio;

use serde_json::Value;

use crate::server::{Server, signal};
use crate::tool::{Running, Watched, command, directory, eventually, tally, text};

const WAITS: &str =
    "echo begin $JOB_COMPLETION_INDEX; while [ ! -e GO ]; do sleep 0.05; done; echo end; exit $JOB_COMPLETION_INDEX";

#[test]
fn a_job_of_a_cluster_is_followed_to_its_end() {
    let server = Server::start();
    let release = server.path("go");
    let script = WAITS.replace("GO", text(&release));
    let job = ["--image", "i", "--name", "sum", "-n", "3", "-p", "2", "-i", "--backoff-limit-per-index", "0"];
    let mut run = Running(server.spawn(&[&["run"], &job[..], &["--", "sh", "-c", &script]].concat()));
    server.runs("sum", 2);
    let detached = Watched::start(&mut server.command(&["attach", "sum", "--logs=none"]));
    detached.prints(&["2 active"]);
    signal(detached.id(), "INT");
    let detached = detached.ends();
    assert_eq!(detached.code, Some(130), "{}", detached.err);
    assert!(detached.err.contains("the Job goes on; follow it again with `tally attach job/sum"), "{}", detached.err);

    let attached = Watched::start(&mut server.command(&["attach", "job/sum"]));
    attached.prints(&["sum[0] begin 0", "sum[1] begin 1"]);
    std::fs::write(&release, "").unwrap();
    let attached = attached.ends();
    assert_eq!(attached.code, Some(1), "{}", attached.err);
    let mut lines: Vec<&str> = attached.out.lines().collect();
    lines.sort_unstable();
    let expected = ["sum[0] begin 0", "sum[0] end", "sum[1] begin 1", "sum[1] end", "sum[2] begin 2", "sum[2] end"];
    assert_eq!(lines, expected, "{}", attached.err);
    assert!(attached.err.contains("sum: failed indexes 1,2"), "{}", attached.err);
    assert!(attached.err.contains("sum: index 2: exit code 2, Pod sum-2-"), "{}", attached.err);
    assert_eq!(run.0.wait().unwrap().code(), Some(1));

    // It has finished: the result is told at once.
    let finished = server.tally(&["attach", "sum"]);
    assert_eq!(finished.code, Some(1));
    assert!(
        finished.out.starts_with("sum: Failed in ") && finished.out.contains("1/3 succeeded, 2 failed"),
        "{}",
        finished.out
    );
    let json: Value = server.tally(&["attach", "sum", "-o", "json"]).json();
    assert_eq!((&json["event"], &json["result"]), (&"summary".into(), &"Failed".into()));
    let missing = server.tally(&["attach", "nothing"]);
    assert!(missing.code == Some(2) && missing.err.contains("there is no Job \"nothing\""), "{}", missing.err);
}

#[test]
fn a_run_on_this_machine_is_followed_through_its_data_directory() {
    let directory = directory();
    let (data, release) = (directory.path().join("d"), directory.path().join("go"));
    let script = WAITS.replace("GO", text(&release)).replace("exit $JOB_COMPLETION_INDEX", "true");
    let run =
        ["run", "--data-dir", text(&data), "--name", "sum", "-n", "2", "-p", "2", "-i", "--", "sh", "-c", &script];
    let mut run = Running(command(&run).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    eventually("it runs", || {
        let shown = tally(&["show", "sum", "--data-dir", text(&data), "-o", "json"]);
        let shown: Value = serde_json::from_str(&shown.out).ok()?;
        (shown["job"]["active"] == 2).then_some(())
    });
    let attach = ["attach", "sum", "--data-dir", text(&data)];
    let attached = Watched::start(&mut command(&attach));
    attached.prints(&["sum[0] begin 0", "sum[1] begin 1"]);
    std::fs::write(&release, "").unwrap();
    let attached = attached.ends();
    assert_eq!(attached.code, Some(0), "{}", attached.err);
    let mut lines: Vec<&str> = attached.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["sum[0] begin 0", "sum[0] end", "sum[1] begin 1", "sum[1] end"], "{}", attached.err);
    assert!(attached.err.contains("sum: Complete in "), "{}", attached.err);
    assert!(run.0.wait().unwrap().success());
    // No process has the directory now.
    let finished = tally(&attach);
    assert!(finished.code == Some(0) && finished.out.contains("sum: Complete in "), "{}{}", finished.out, finished.err);
}

#[test]
fn a_run_that_is_killed_ends_those_who_follow_it() {
    let directory = directory();
    let data = directory.path().join("d");
    let run = ["run", "--data-dir", text(&data), "--name", "sum", "--", "sleep", "1000"];
    let run = Running(command(&run).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let attach = ["attach", "sum", "--data-dir", text(&data)];
    eventually("it runs", || {
        let shown = tally(&["show", "sum", "--data-dir", text(&data), "-o", "json"]);
        let shown: Value = serde_json::from_str(&shown.out).ok()?;
        (shown["job"]["active"] == 1).then_some(())
    });
    let attached = Watched::start(&mut command(&[&attach[..], &["--logs=prefix"]].concat()));
    attached.prints(&["1 active"]);
    drop(run);
    let attached = attached.ends();
    assert_eq!(attached.code, Some(3), "{}", attached.err);
    assert!(attached.err.contains("has ended before the Job"), "{}", attached.err);
    let idle = tally(&attach);
    assert!(idle.code == Some(3) && idle.err.contains("no tally uses"), "{}", idle.err);
}
