//! The real binary on hollow nodes, as a user or a script starts it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Ends a test that would otherwise hang; it asserts nothing.
pub const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

pub fn directory() -> tempfile::TempDir {
    tally_testing::scratch()
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("test directories have plain names")
}

/// `tally run` on hollow nodes.
pub fn run(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.args(["run", "--hollow", "2"]).args(arguments).stdin(Stdio::null());
    command
}

pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

pub fn said(output: Output) -> Said {
    let lossy = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Said { code: output.status.code(), out: lossy(output.stdout), err: lossy(output.stderr) }
}

pub fn ends(arguments: &[&str]) -> Said {
    said(run(arguments).output().unwrap())
}

/// The same with text on standard input.
pub fn fed(arguments: &[&str], input: &str) -> Said {
    let mut child = run(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    said(child.wait_with_output().unwrap())
}

pub fn file(directory: &Path, name: &str, content: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, content).unwrap();
    path
}

/// A Job whose Pods do what the annotations say.
pub fn job(name: &str, spec: &str, annotations: &[(&str, &str)]) -> String {
    let annotations: Vec<String> =
        annotations.iter().map(|(name, value)| format!("\"hollow.tally.dev/{name}\": \"{value}\"")).collect();
    format!(
        "apiVersion: batch/v1
kind: Job
metadata: {{name: {name}}}
spec:
  template:
    metadata: {{annotations: {{{}}}}}
    spec:
      restartPolicy: Never
      containers: [{{name: main, image: process, command: [work]}}]
{spec}
",
        annotations.join(", ")
    )
}

/// The events of `--output json`.
pub fn events(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + GIVE_UP_AFTER;
    while !holds() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Killed when dropped.
pub struct Running(pub Child);

impl Running {
    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn signal(pid: u32, name: &str) {
    // `kill` is built into every shell; not every machine has it as a program.
    assert!(Command::new("sh").args(["-c", &format!("kill -s {name} {pid}")]).status().unwrap().success());
}
