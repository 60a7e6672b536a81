//! `tally run --tui` in a real terminal.

use std::fs::File;
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use crate::pty::{Terminal, unread};
use crate::tool::{directory, eventually, text};
use crate::top::{await_screen, screen, tally, tally_up};

const WIDTH: u16 = 100;

/// After the view, on the screen of the shell.
fn after_the_view(shown: &str) -> &str {
    shown.rsplit("\u{1b}[?1049l").next().unwrap()
}

/// What the view of a log shows.
fn log_shown(terminal: &Terminal) -> String {
    let mut shown = String::new();
    eventually("a log is shown", || {
        shown = screen(terminal, WIDTH);
        shown.contains("log of sum-") && shown.contains("Esc back")
    });
    shown
}

#[test]
fn the_only_job_is_open_and_the_view_stays_until_it_is_left() {
    let task = "case $JOB_COMPLETION_INDEX in 1) echo bad luck; exit 9;; esac; echo done";
    let flags = ["run", "--tui", "--name", "sum", "-n", "4", "-p", "4", "-i", "--backoff-limit-per-index", "0", "--"];
    let mut command = tally(&flags);
    command.args(["sh", "-c", task]);
    let terminal = Terminal::start(command, WIDTH, 30);
    await_screen(&terminal, WIDTH, &["#X##", "exit 9", "All Jobs have finished"]);
    // The log is there, although the run keeps nothing.
    let mut logs = String::new();
    for _ in 0..4 {
        terminal.type_in("l");
        logs += &log_shown(&terminal);
        terminal.type_in("\u{1b}");
        await_screen(&terminal, WIDTH, &["#X##"]);
        terminal.type_in("j");
    }
    assert!(logs.contains("bad luck"), "{logs}");
    terminal.type_in("q");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(1), "{shown}");
    let after = after_the_view(&shown);
    assert!(after.contains("Failed") && after.contains("3/4 succeeded"), "{after:?}");
}

#[test]
fn a_run_goes_on_without_its_view() {
    let directory = directory();
    let (gate, data) = (directory.path().join("gate"), directory.path().join("d"));
    let task = format!("while ! test -e {}; do sleep 0.1; done", text(&gate));
    let mut command = tally(&["run", "--tui", "--data-dir", text(&data), "--name", "slow", "--", "sh", "-c"]);
    command.arg(task);
    let terminal = Terminal::start(command, WIDTH, 30);
    await_screen(&terminal, WIDTH, &["slow-", "running"]);
    terminal.type_in("q");
    eventually("progress is shown without the view", || after_the_view(&terminal.shown()).contains("1 active"));
    std::fs::write(&gate, "").unwrap();
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(0), "{shown}");
    assert!(after_the_view(&shown).contains("all state is kept in"), "{shown}");
}

#[test]
fn an_interrupt_in_the_view_ends_the_run() {
    let terminal = Terminal::start(tally(&["run", "--tui", "-n", "2", "-p", "2", "--", "sleep", "600"]), WIDTH, 30);
    await_screen(&terminal, WIDTH, &["running"]);
    terminal.type_in("\u{3}");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(130), "{shown}");
    assert!(after_the_view(&shown).contains("interrupted"), "{shown}");
}

#[test]
fn jobs_of_a_cluster_are_shown_and_can_be_changed() {
    let directory = directory();
    let kubeconfig = directory.path().join("d/kubeconfig");
    let _up = tally_up(directory.path());
    let flags = ["run", "--tui", "--kubeconfig", text(&kubeconfig), "--image", "process", "--name", "far", "-n", "3"];
    let mut command = tally(&flags);
    command.args(["--", "sleep", "600"]);
    let terminal = Terminal::start(command, WIDTH, 30);
    await_screen(&terminal, WIDTH, &["far-", "running"]);
    terminal.type_in("sy");
    await_screen(&terminal, WIDTH, &["Suspended"]);
    terminal.type_in("\u{3}");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(130), "{shown}");
    assert!(after_the_view(&shown).contains("was deleted"), "{shown}");
}

#[test]
fn a_view_needs_a_terminal_and_shows_no_text() {
    let output = tally(&["run", "--tui", "--", "true"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--tui needs a terminal"));
    for flags in [&["-o", "json"][..], &["--logs=raw"], &["-q"]] {
        let mut command = tally(&["run", "--tui"]);
        command.args(flags).args(["--", "true"]);
        let (code, shown) = Terminal::start(command, WIDTH, 30).end();
        assert_eq!(code, Some(2), "{flags:?}: {shown}");
    }
}

/// A window that was closed is a hang-up: as without a view, the run ends in order.
#[test]
fn a_terminal_that_goes_away_ends_the_run_in_order() {
    let directory = directory();
    let mut command = tally(&["run", "--tui", "--", "sleep", "600"]);
    command.env("TMPDIR", directory.path());
    let (mut child, near) = unread(command, WIDTH, 30);
    let mut shown = Vec::new();
    let mut buffer = [0; 4096];
    let mut reader = File::from(near);
    while !String::from_utf8_lossy(&shown).contains("running") {
        let count = reader.read(&mut buffer).unwrap();
        shown.extend_from_slice(&buffer[..count]);
    }
    drop(reader);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left behind");
}

/// A terminal that nothing reads blocks the view. Signals are obeyed nevertheless.
#[test]
fn a_second_signal_ends_a_run_whose_terminal_is_not_read() {
    let (mut child, _near) =
        unread(tally(&["run", "--tui", "-n", "2000", "-p", "4", "--", "sleep", "0.05"]), WIDTH, 30);
    std::thread::sleep(Duration::from_secs(3));
    let pid = rustix::process::Pid::from_child(&child);
    for _ in 0..2 {
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        std::thread::sleep(Duration::from_secs(1));
    }
    eventually("it has ended", || child.try_wait().unwrap().is_some());
}

/// As without a view: the second Ctrl-C kills what does not end.
#[test]
fn two_interrupts_at_once_end_a_task_that_ignores_the_first() {
    let directory = directory();
    let began = directory.path().join("began");
    let task = format!("trap '' TERM; touch {}; sleep 600", text(&began));
    let terminal = Terminal::start(tally(&["run", "--tui", "--", "sh", "-c", &task]), WIDTH, 30);
    await_screen(&terminal, WIDTH, &["running"]);
    eventually("the task has begun", || began.exists());
    terminal.type_in("\u{3}\u{3}");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(130), "{shown}");
    assert!(after_the_view(&shown).contains("killed"), "{shown}");
}
