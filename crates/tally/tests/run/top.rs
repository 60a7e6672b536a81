//! `tally top` in a real terminal, narrow and wide.

use std::process::{Child, Command, Stdio};

use crate::pty::Terminal;
use crate::tool::{directory, eventually, text};

const ESCAPE: &str = "\u{1b}";
/// Index 1 fails, index 2 runs on, and prints something that is not for a terminal.
const TASK: &str =
    "case $JOB_COMPLETION_INDEX in 1) exit 9;; 2) printf '\\033[2Jone two\\n'; sleep 600;; esac; echo done";

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tally(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.args(arguments).env("TERM", "xterm-256color");
    command
}

/// What is shown, without what moves the cursor and colours the text.
fn plain(shown: &str) -> String {
    let mut plain = String::new();
    let mut rest = shown;
    while let Some(at) = rest.find('\u{1b}') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(sequence) = rest.strip_prefix('[') {
            let end = sequence.find(|letter: char| letter.is_ascii_alphabetic()).map_or(sequence.len(), |end| end + 1);
            // Spaces are skipped.
            if sequence[..end].ends_with('H') {
                plain.push(' ');
            }
            rest = &sequence[end..];
        }
    }
    plain + rest
}

/// Waits until a screen that is drawn as a whole has this text: what was there before at the same place is not sent again.
fn await_screen(terminal: &Terminal, columns: u16, words: &[&str]) {
    let mut rows = 30;
    eventually(&format!("{words:?} are shown"), || {
        let before = terminal.shown().len();
        rows = if rows == 30 { 31 } else { 30 };
        terminal.resize(columns, rows);
        std::thread::sleep(std::time::Duration::from_millis(150));
        let shown = plain(&terminal.shown()[before..]);
        words.iter().all(|word| shown.contains(word))
    });
}

#[test]
fn a_run_is_looked_at_while_it_goes_on() {
    let directory = directory();
    let data = directory.path().join("d");
    let run = tally(&["run", "--data-dir", text(&data), "--name", "sum", "-n", "4", "-p", "4", "-i"])
        .args(["--backoff-limit-per-index", "0", "--logs=none", "--", "sh", "-c", TASK])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _run = Running(run.unwrap());
    eventually("the run serves its directory", || data.join("api.sock").exists());
    for columns in [60, 200] {
        let terminal = Terminal::start(tally(&["top", "--data-dir", text(&data)]), columns, 30);
        await_screen(&terminal, columns, &["sum", "Running", "2/4"]);
        terminal.type_in("\r");
        await_screen(&terminal, columns, &["#X>#", "exit 9", "running"]);
        terminal.type_in("s");
        await_screen(&terminal, columns, &["can only be looked at"]);
        // The attempt that started last is not always the one that runs.
        terminal.type_in("?");
        await_screen(&terminal, columns, &["parallelism by one"]);
        terminal.type_in("x");
        await_screen(&terminal, columns, &["#X>#"]);
        terminal.type_in(ESCAPE);
        await_screen(&terminal, columns, &["2/4"]);
        terminal.type_in("/nothing");
        await_screen(&terminal, columns, &["No Job has these words"]);
        terminal.type_in(ESCAPE);
        await_screen(&terminal, columns, &["2/4"]);
        terminal.type_in("q");
        let (code, shown) = terminal.end();
        assert_eq!(code, Some(0), "{shown}");
        assert!(shown.contains("\u{1b}[?1049h") && shown.contains("\u{1b}[?1049l"), "the terminal is given back");
    }
}

#[test]
fn a_job_of_tally_up_is_suspended_and_its_log_is_read() {
    let directory = directory();
    let (data, kubeconfig) = (directory.path().join("d"), directory.path().join("d/kubeconfig"));
    let up = tally(&["up", "--listen", "127.0.0.1:0", "--data-dir", text(&data)])
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _up = Running(up.unwrap());
    eventually("tally up is ready", || kubeconfig.exists() && data.join("api.sock").exists());
    let run = tally(&["run", "--kubeconfig", text(&kubeconfig), "--image", "process", "--name", "slow"])
        .args(["--on-interrupt=detach", "--logs=none", "--", "sh", "-c", "printf '\\033[2Jone two\\n'; sleep 600"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _run = Running(run.unwrap());
    let terminal = Terminal::start(tally(&["top", "--data-dir", text(&data)]), 100, 30);
    await_screen(&terminal, 100, &["slow", "Running"]);
    terminal.type_in("\r");
    await_screen(&terminal, 100, &["slow-", "running"]);
    terminal.type_in("l");
    await_screen(&terminal, 100, &["log of slow-", "one two"]);
    terminal.type_in(ESCAPE);
    await_screen(&terminal, 100, &["Namespace:"]);
    terminal.type_in("s");
    await_screen(&terminal, 100, &["Suspend default/slow?"]);
    terminal.type_in("n");
    await_screen(&terminal, 100, &["Running"]);
    terminal.type_in("sy");
    await_screen(&terminal, 100, &["Suspended"]);
    terminal.type_in("dy");
    await_screen(&terminal, 100, &["The Job was deleted"]);
    terminal.type_in("\u{3}");
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn it_needs_a_terminal() {
    let output = tally(&["top"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("tally ps"));
}
