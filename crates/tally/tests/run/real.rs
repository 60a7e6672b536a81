//! Real processes, at a terminal: what Ctrl-C does to them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::pty::Terminal;
use crate::tool::{directory, eventually, file, text};

const CTRL_C: &str = "\u{3}";

/// A process that has something to tidy up when it is asked to end. `SLOW`: it takes an hour for that.
const SCRIPT: &str = "trap 'echo asked >> $HERE/said; [ -z \"$SLOW\" ] || sleep 3600; echo tidy >> $HERE/said; exit 0' TERM; \
                      echo up >> $HERE/said; while :; do sleep 0.05; done";

fn on_terminal(here: &Path, slow: &str) -> Terminal {
    let job = format!(
        "apiVersion: batch/v1
kind: Job
metadata: {{name: sum}}
spec:
  completions: 2
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 3600
      containers:
        - name: main
          image: process
          env: [{{name: HERE, value: {}}}, {{name: SLOW, value: '{slow}'}}]
          command: [sh, -c, {SCRIPT:?}]
",
        here.display()
    );
    let path = file(here, "j.yaml", &job);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.args(["run", "-f", text(&path)]).env("TERM", "xterm").env("NO_COLOR", "1").env("TMPDIR", here);
    Terminal::start(command, 100, 24)
}

fn said(here: &Path, word: &str) -> usize {
    let said = fs::read_to_string(here.join("said")).unwrap_or_default();
    said.lines().filter(|line| *line == word).count()
}

/// Processes of this test that are alive; its directory is in their environment.
fn alive(here: &Path) -> usize {
    let mark = format!("HERE={}", here.display());
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("environ")).ok());
    processes.filter(|environment| environment.split(|byte| *byte == 0).any(|one| one == mark.as_bytes())).count()
}

/// What is left in the directory for temporary files.
fn left(here: &Path) -> Vec<String> {
    let names = fs::read_dir(here).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name != "j.yaml" && name != "said").collect();
    names.sort();
    names
}

#[test]
fn ctrl_c_lets_processes_tidy_up() {
    let directory = directory();
    let here = directory.path();
    let terminal = on_terminal(here, "");
    eventually("two run", || said(here, "up") == 2);
    terminal.type_in(CTRL_C);
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(130), "{shown}");
    assert!(shown.contains("sum: interrupted after "), "{shown}");
    assert_eq!((said(here, "asked"), said(here, "tidy"), alive(here)), (2, 2, 0), "{shown}");
    assert_eq!(left(here), [""; 0]);
}

#[test]
fn a_second_ctrl_c_leaves_nothing_running() {
    let directory = directory();
    let here = directory.path();
    let terminal = on_terminal(here, "yes");
    eventually("two run", || said(here, "up") == 2);
    terminal.type_in(CTRL_C);
    eventually("both have been asked to end", || said(here, "asked") == 2);
    terminal.type_in(CTRL_C);
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(130), "{shown}");
    // The shim ends them when it sees that nobody is there any more.
    eventually("nothing runs on", || alive(here) == 0);
    assert_eq!(said(here, "tidy"), 0);
    eventually("nothing is left behind", || left(here).is_empty());
}
