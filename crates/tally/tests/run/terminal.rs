//! The live display on a terminal: drawing, resizing, and Ctrl-C.

use std::process::Command;

use crate::pty::Terminal;
use crate::tool::{directory, file, job, text};

const CTRL_C: &str = "\u{3}";

/// `tally run` of a file on a hollow node.
fn on_terminal(job: &str, env: &[(&str, &str)], columns: u16) -> (Terminal, tempfile::TempDir) {
    let directory = directory();
    let path = file(directory.path(), "j.yaml", job);
    (started(&["--hollow", "1", "-f", text(&path)], env, columns), directory)
}

/// `tally run` with no environment variable that describes a terminal's abilities.
fn started(args: &[&str], env: &[(&str, &str)], columns: u16) -> Terminal {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.arg("run").args(args);
    for name in ["NO_COLOR", "CLICOLOR", "LC_ALL", "LC_CTYPE", "LANG"] {
        command.env_remove(name);
    }
    command.env("TERM", "xterm-256color").envs(env.iter().copied());
    Terminal::start(command, columns, 24)
}

/// Index 1 fails at once and permanently, the others run forever.
fn one_failed() -> String {
    let spec = "  completions: 3\n  parallelism: 3\n  completionMode: Indexed\n  backoffLimitPerIndex: 0";
    job("sum", spec, &[("exit-code", "1=9"), ("run-for", "1h")])
}

fn endless() -> String {
    job("sum", "  completions: 3\n  parallelism: 3", &[("run-for", "1h")])
}

fn quick() -> String {
    let spec = "  completions: 4\n  completionMode: Indexed\n  backoffLimitPerIndex: 0";
    job("sum", spec, &[("exit-code", "1=9")])
}

#[test]
fn progress_and_failures_are_drawn() {
    let (terminal, _directory) = on_terminal(&quick(), &[("LANG", "C.UTF-8")], 100);
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(1), "{shown}");
    for told in [
        "\u{1b}[31m\u{2717} ",
        "Failed: ",
        "index 1: exit code 9, Pod sum-1-",
        "ran nothing: its node is hollow",
        "sum: failed indexes 1",
    ] {
        assert!(shown.contains(told), "{told:?} is not in {shown}");
    }
}

#[test]
fn a_bar_has_the_width_of_the_terminal() {
    let (terminal, _directory) = on_terminal(&endless(), &[("NO_COLOR", "1")], 100);
    terminal.await_text("3 active");
    terminal.await_text(&format!("[{}]", ".".repeat(38)));
    terminal.resize(50, 24);
    terminal.await_text("sum  [...........]   0%");
    terminal.resize(30, 24);
    terminal.await_text("sum  0%  0/3 ok");
    terminal.type_in(CTRL_C);
    assert_eq!(terminal.end().0, Some(130));
}

#[test]
fn ctrl_c_ends_everything_in_order() {
    let (terminal, _directory) = on_terminal(&endless(), &[], 100);
    terminal.await_text("3 active");
    terminal.type_in(CTRL_C);
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(130), "{shown}");
    assert!(shown.contains("sum: interrupted after "), "{shown}");
}

#[test]
fn a_second_ctrl_c_ends_it_at_once() {
    let directory = directory();
    let trapped = directory.path().join("trapped");
    let script = format!("trap '' TERM; touch {}; while :; do sleep 1; done", text(&trapped));
    let stubborn = serde_json::json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "sum"},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 3600,
            "containers": [{"name": "c", "image": "process", "command": ["sh", "-c", script]}],
        }}},
    });
    let path = file(directory.path(), "j.json", &stubborn.to_string());
    let terminal = started(&["-f", text(&path)], &[], 100);
    terminal.await_text("1 active");
    while !trapped.exists() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    terminal.type_in(CTRL_C);
    terminal.await_text("Ctrl-C again kills them at once");
    terminal.type_in(CTRL_C);
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(130), "{shown}");
    assert!(!shown.contains("interrupted after"), "there was no time to end in order: {shown}");
    let summary = regex_lite::Regex::new(r"\nsum: killed after [\d.]+s; 0/1 succeeded\r\n$").unwrap();
    assert!(summary.is_match(&shown), "a summary on a line of its own: {shown:?}");
}

#[test]
fn colours_are_left_out_where_they_are_not_wanted() {
    let coloured =
        |shown: &str| shown.contains("\u{1b}[3") || shown.contains("\u{1b}[1m") || shown.contains("\u{1b}[2m");
    for (env, colours, moves) in [
        (&[][..], true, true),
        (&[("NO_COLOR", "1")], false, true),
        (&[("CLICOLOR", "0")], false, true),
        (&[("TERM", "dumb")], false, false),
        (&[("TERM", "")], false, false),
    ] {
        let (terminal, _directory) = on_terminal(&quick(), env, 80);
        let (code, shown) = terminal.end();
        assert_eq!(code, Some(1), "{shown}");
        assert_eq!(coloured(&shown), colours, "{env:?}: {shown:?}");
        assert_eq!(shown.contains('\u{1b}'), moves || colours, "{env:?}: {shown:?}");
    }
}

#[test]
fn logs_go_above_what_is_drawn() {
    let directory = directory();
    let path = file(directory.path(), "j.yaml", &one_failed());
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.args(["run", "--hollow", "1", "--logs", "-f", text(&path)]).env("TERM", "xterm").env("NO_COLOR", "1");
    let terminal = Terminal::start(command, 100, 24);
    terminal.await_text("3 active");
    terminal.type_in(CTRL_C);
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(130), "{shown}");
    assert!(shown.contains("\u{1b}[Jsum["), "the drawing is cleared first: {shown:?}");
}
