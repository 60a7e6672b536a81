//! `--data-dir`: finished work is not repeated.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use tally_testing::skip;

use crate::tool::{Running, directory, ends, events, eventually, fed, file, job, run, said, signal, text};

fn summary(out: &str) -> Value {
    events(out).pop().unwrap()
}

/// A run of a Job with ten Pods at a time, a quarter of a second each: there is time to interrupt it, though progress
/// is printed once per second.
fn begun(directory: &Path, data: &str) -> (Running, impl Fn() -> String) {
    let spec = "  completions: 120\n  parallelism: 10\n  completionMode: Indexed\n  backoffLimit: 0";
    let path = file(directory, "j.yaml", &job("sum", spec, &[("run-for", "250ms")]));
    let out = directory.join("out");
    let child = run(&["--output", "json", "--data-dir", data, "-f", text(&path)])
        .stdout(File::create(&out).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    (Running(child), move || std::fs::read_to_string(&out).unwrap())
}

fn succeeded(out: &str) -> u64 {
    let counts = events(&out[..out.rfind('\n').map_or(0, |end| end + 1)]);
    counts.iter().filter_map(|event| event["succeeded"].as_u64()).max().unwrap_or(0)
}

#[test]
fn a_second_run_goes_on_where_the_first_was_killed() {
    let directory = directory();
    let data = directory.path().join("data");
    let (child, out) = begun(directory.path(), text(&data));
    eventually("some have succeeded", || succeeded(&out()) > 0);
    child.kill();
    let before = succeeded(&out());
    let path = directory.path().join("j.yaml");
    let second = ends(&["--output", "json", "--logs", "--data-dir", text(&data), "-f", text(&path)]);
    assert_eq!(second.code, Some(0), "{}", second.err);
    assert!(second.err.contains("resumes from the state in"), "{}", second.err);
    assert_eq!(summary(&second.out)["succeeded"], 120);
    let first_seen = events(&second.out).into_iter().find(|event| event["event"] == "progress").unwrap();
    assert!(first_seen["succeeded"].as_u64() >= Some(before), "{first_seen}");
    let ran = events(&second.out).iter().filter(|event| event["event"] == "log").count();
    assert!(ran as u64 <= 120 - before, "{ran} ran, though {before} had succeeded");

    let third = ends(&["--output", "json", "--data-dir", text(&data), "-f", text(&path)]);
    assert_eq!(third.code, Some(0), "{}", third.err);
    assert!(third.err.contains("is already finished; use --again"), "{}", third.err);
    assert_eq!(summary(&third.out)["ranBefore"], true);

    let again = ends(&["--output", "json", "--again", "--data-dir", text(&data), "-f", text(&path)]);
    assert_eq!(again.code, Some(0), "{}", again.err);
    assert_eq!((&summary(&again.out)["ranBefore"], &summary(&again.out)["succeeded"]), (&false.into(), &120.into()));
}

#[test]
fn an_interrupted_job_goes_on_with_its_tries_unspent() {
    let directory = directory();
    let data = directory.path().join("data");
    let (mut child, out) = begun(directory.path(), text(&data));
    eventually("some have succeeded", || succeeded(&out()) > 0);
    signal(child.0.id(), "INT");
    assert_eq!(child.0.wait().unwrap().code(), Some(130));
    let first = summary(&out());
    assert_eq!((&first["result"], &first["failed"]), (&"Interrupted".into(), &0.into()), "{first}");
    // Without a command or a file, unfinished Jobs are resumed.
    let second = ends(&["--output", "json", "--data-dir", text(&data)]);
    assert_eq!(second.code, Some(0), "{}", second.err);
    let last = summary(&second.out);
    assert_eq!((&last["succeeded"], &last["failed"]), (&120.into(), &0.into()), "no try was spent: {last}");
}

#[test]
fn the_result_of_a_finished_job_is_the_exit_code() {
    let directory = directory();
    let data = directory.path().join("data");
    let bad = job("bad", "  backoffLimit: 0", &[("exit-code", "1")]);
    for told in ["bad: Failed in", "bad: had Failed before this run: BackoffLimitExceeded"] {
        let said = fed(&["--data-dir", text(&data), "-"], &bad);
        assert_eq!(said.code, Some(1), "{}", said.err);
        assert!(said.out.contains(told), "{}", said.out);
    }
}

#[test]
fn other_work_under_the_same_name_is_refused() {
    let directory = directory();
    let data = directory.path().join("data");
    let with = |more: &[&str]| ends(&[&["--data-dir", text(&data), "--name", "sum"], more].concat());
    assert_eq!(with(&["--", "true"]).code, Some(0));
    let other = with(&["--", "false"]);
    assert_eq!(other.code, Some(2));
    for told in [
        "Job \"sum\" already exists in ",
        "spec.template.spec.containers[0].command differs",
        "another name",
        "--again",
    ] {
        assert!(other.err.contains(told), "{told}: {}", other.err);
    }
    assert_eq!(with(&["-p", "1", "--", "true"]).code, Some(0), "how many at a time does not make it other work");
    assert_eq!(with(&["--again", "--", "false"]).code, Some(0));
    assert!(with(&["--", "false"]).err.contains("is already finished"));
}

#[test]
fn a_shell_that_has_changed_does_not_make_it_other_work() {
    let directory = directory();
    let data = directory.path().join("data");
    let arguments = ["--data-dir", text(&data), "--", "true"];
    assert_eq!(ends(&arguments).code, Some(0));
    let elsewhere = run(&arguments).env("HOME", "/elsewhere").env("LANG", "xx").output().unwrap();
    assert!(String::from_utf8_lossy(&elsewhere.stderr).contains("is already finished"));
}

#[test]
fn what_stands_beside_a_job_is_brought_up_to_date() {
    let directory = directory();
    let data = directory.path().join("data");
    let input = |value: &str| {
        let map = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata: {{k: {value}}}\n");
        format!("{map}---\n{}", job("sum", "", &[]))
    };
    for value in ["one", "one", "two"] {
        let said = fed(&["--data-dir", text(&data), "-"], &input(value));
        assert_eq!(said.code, Some(0), "{}", said.err);
    }
}

#[test]
fn two_cannot_share_a_data_directory() {
    let directory = directory();
    let data = directory.path().join("data");
    let path = file(directory.path(), "j.yaml", &job("long", "", &[("run-for", "1h")]));
    let out = directory.path().join("out");
    let child = run(&["--output", "json", "--data-dir", text(&data), "-f", text(&path)])
        .stdout(File::create(&out).unwrap())
        .stderr(Stdio::null())
        .spawn();
    let _first = Running(child.unwrap());
    eventually("it runs", || std::fs::read_to_string(&out).unwrap().contains("\"active\":1"));
    let second = ends(&["--data-dir", text(&data), "--", "true"]);
    assert_eq!(second.code, Some(3));
    assert!(second.err.contains("in use by another process"), "{}", second.err);
}

#[test]
fn a_full_disk_is_named_and_when_there_is_room_the_job_goes_on() {
    let directory = directory();
    let place = text(directory.path());
    // A mount namespace for this process, to mount a file system of its own. Not every user may create one.
    let may = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        skip("no file system of our own");
        return;
    }
    let data = format!("{place}/data");
    let again = "\"$0\" run --hollow 2 \"$@\"; echo code $?";
    let script =
        format!("mount -t tmpfs -o size=2m none {place} && {again}; mount -o remount,size=100m {place} && {again}");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_tally")]).stdin(Stdio::null());
    command.args(["--data-dir", &data, "--name", "sum", "-n", "400", "-p", "100", "-i", "--", "true"]);
    let said = said(command.output().unwrap());
    let told =
        ["No space left on device", &data, "run the same command to resume", "Job \"sum\" resumes from the state in"];
    for told in told {
        assert!(said.err.contains(told), "{told}: {}", said.err);
    }
    assert!(said.out.starts_with("code 3\n"), "{}{}", said.out, said.err);
    assert!(said.out.contains("; 400/400 succeeded\n") && said.out.ends_with("code 0\n"), "{}", said.out);
}

/// What is in it is deleted at every start.
#[test]
fn a_trash_that_is_a_symlink_is_not_emptied() {
    let directory = directory();
    let (data, outside) = (directory.path().join("d"), directory.path().join("outside"));
    let run = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
        command.args(["run", "--data-dir", text(&data), "--name", name, "--", "true"]).stdin(Stdio::null());
        said(command.output().unwrap())
    };
    assert_eq!(run("first").code, Some(0));
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("precious"), "").unwrap();
    let trash = data.join("node/trash");
    std::fs::remove_dir_all(&trash).unwrap();
    std::os::unix::fs::symlink(&outside, &trash).unwrap();
    let refused = run("second");
    assert_eq!(refused.code, Some(3), "{}", refused.err);
    assert!(refused.err.contains("node/trash is a symbolic link"), "{}", refused.err);
    assert!(outside.join("precious").exists());
    std::fs::remove_file(&trash).unwrap();
    assert_eq!(run("third").code, Some(0));
}
