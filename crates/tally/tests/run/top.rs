//! `tally top` in a real terminal, narrow and wide.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::pty::Terminal;
use crate::tool::{GIVE_UP_AFTER, Running, directory, eventually, text};

const ESCAPE: &str = "\u{1b}";
/// The height of terminals here.
const ROWS: usize = 30;
/// Index 1 fails, index 2 runs on, and prints something that is not for a terminal.
const TASK: &str =
    "case $JOB_COMPLETION_INDEX in 1) exit 9;; 2) printf '\\033[2Jone two\\n'; sleep 600;; esac; echo done";

pub fn tally(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.args(arguments).env("TERM", "xterm-256color");
    command
}

/// A `tally up` that is ready, with its data in `d`.
pub fn tally_up(here: &Path) -> Running {
    let data = here.join("d");
    let up = tally(&["up", "--listen", "127.0.0.1:0", "--data-dir", text(&data)])
        .current_dir(here)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let up = Running(up.unwrap());
    eventually("tally up is ready", || data.join("kubeconfig").exists() && data.join("api.sock").exists());
    up
}

/// What is on the screen now, each row without the spaces at its end.
pub fn screen(terminal: &Terminal, columns: u16) -> String {
    let shown = terminal.shown();
    // Since the view has the terminal. It draws a whole screen first, then only what has changed.
    let mut rest = shown.rsplit_once("\u{1b}[?1049h").map_or("", |(_, since)| since);
    let mut rows = vec![vec![' '; usize::from(columns)]; ROWS];
    let (mut row, mut column) = (0, 0);
    while let Some(character) = rest.chars().next() {
        rest = &rest[character.len_utf8()..];
        let Some(sequence) = rest.strip_prefix('[').filter(|_| character == '\u{1b}') else {
            if let Some(place) = rows.get_mut(row).and_then(|row: &mut Vec<char>| row.get_mut(column)) {
                *place = character;
            }
            column += 1;
            continue;
        };
        let Some(end) = sequence.find(|letter: char| letter.is_ascii_alphabetic()) else { break };
        let number = |text: Option<&str>| text.and_then(|text| text.parse().ok()).unwrap_or(1_usize) - 1;
        let mut numbers = sequence[..end].split(';');
        match &sequence[end..=end] {
            "H" => (row, column) = (number(numbers.next()), number(numbers.next())),
            "J" => rows.iter_mut().for_each(|row| row.fill(' ')),
            _ => {}
        }
        rest = &sequence[end + 1..];
    }
    let lines = rows.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

pub fn await_screen(terminal: &Terminal, columns: u16, words: &[&str]) {
    let until = Instant::now() + GIVE_UP_AFTER;
    loop {
        let shown = screen(terminal, columns);
        if words.iter().all(|word| shown.contains(word)) {
            return;
        }
        assert!(Instant::now() < until, "{words:?} are not shown: {shown}");
        std::thread::sleep(Duration::from_millis(20));
    }
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
        await_screen(&terminal, columns, &["2/4", "Enter open"]);
        terminal.type_in("/nothing");
        await_screen(&terminal, columns, &["No Job has these words"]);
        terminal.type_in(ESCAPE);
        await_screen(&terminal, columns, &["2/4", "Enter open"]);
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
    let _up = tally_up(directory.path());
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

/// A Job that needs what no node has.
const LARGE: &str = r#"{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "gpu"}, "spec": {"template": {"spec":
    {"restartPolicy": "Never", "containers": [{"name": "c", "image": "process", "command": ["sleep", "1000"],
    "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}}}"#;

#[test]
fn a_job_that_cannot_start_waits_with_its_reason() {
    let directory = directory();
    let (data, kubeconfig) = (directory.path().join("d"), directory.path().join("d/kubeconfig"));
    let _up = tally_up(directory.path());
    let file = directory.path().join("gpu.json");
    std::fs::write(&file, LARGE).unwrap();
    let run = tally(&["run", "--kubeconfig", text(&kubeconfig), "--on-interrupt=detach", "-f", text(&file)])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _run = Running(run.unwrap());
    let reason = "fits on no node: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.";
    for columns in [50, 160] {
        let terminal = Terminal::start(tally(&["top", "--data-dir", text(&data)]), columns, 30);
        await_screen(&terminal, columns, &["gpu", "Waiting", "0/1"]);
        if columns > 50 {
            await_screen(&terminal, columns, &["0 running  1 waiting"]);
        }
        // The reason is below the Job, all of it, on as many lines as it needs.
        let has_reason = |shown: &str| shown.split_whitespace().collect::<Vec<_>>().join(" ").contains(reason);
        eventually("the reason is in the list", || has_reason(&screen(&terminal, columns)));
        assert!(!screen(&terminal, columns).contains('█'), "nothing is done");
        terminal.type_in("\r");
        await_screen(&terminal, columns, &["State:     Waiting: Unschedulable: Pod", "Would change it:", "waiting"]);
        eventually("the reason is in the view of the Job", || has_reason(&screen(&terminal, columns)));
        assert!(!screen(&terminal, columns).contains('>'), "no index runs");
        terminal.type_in("q");
        assert_eq!(terminal.end().0, Some(0));
        // On a terminal, `tally ps` wraps it too: beside the row if there is room, otherwise below it.
        let (code, shown) = Terminal::start(tally(&["ps", "--data-dir", text(&data)]), columns, 30).end();
        assert!(code == Some(0) && has_reason(&shown), "{shown}");
        assert!(shown.lines().all(|line| line.trim_end().chars().count() <= usize::from(columns.max(80))), "{shown}");
        let has_column = shown.lines().next().unwrap().contains("WHY");
        assert_eq!(has_column, columns == 160, "{shown}");
        let below = shown.lines().find(|line| line.contains("Pod gpu-")).unwrap();
        assert_eq!(below.starts_with("   Pod gpu-"), columns == 50, "{shown}");
    }
}

#[test]
fn it_needs_a_terminal() {
    let output = tally(&["top"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("tally ps"));
}
