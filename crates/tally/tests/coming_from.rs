//! Runs every command of ours in `docs/coming-from.md`, in a directory with the files that they name, and with a cluster for
//! those that need one.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The cells of a row of a table. `\|` in code is a pipe.
fn cells(row: &str) -> Vec<String> {
    let row = row.replace("\\|", "\u{0}");
    let cells = row.trim().trim_matches('|').split('|');
    cells.map(|cell| cell.trim().replace('\u{0}', "|")).collect()
}

/// The commands of ours, each with the line of the document that it is on.
fn commands(document: &str) -> Vec<(usize, String)> {
    let mut commands = Vec::new();
    let mut ours = false;
    for (at, line) in document.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
        let cells = cells(line);
        assert_eq!(cells.len(), 2, "{line}");
        match cells[1].as_str() {
            "tally" => ours = true,
            "---" => {}
            code => {
                let command = code.strip_prefix('`').and_then(|code| code.strip_suffix('`'));
                assert!(
                    ours && command
                        .is_some_and(|command| command.contains("tally run") || command.contains("tally attach")),
                    "line {}: {line}",
                    at + 1
                );
                commands.extend(command.map(|command| (at + 1, command.to_owned())));
            }
        }
    }
    commands
}

fn program(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

const JOB: &str = "apiVersion: batch/v1
kind: Job
metadata: {name: from-file}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox, command: [echo, job of a file]}]
";

/// `tally up`, as the cluster of the context `test`. Killed when dropped.
struct Cluster(Child);

impl Cluster {
    /// Writes a kubeconfig.
    fn start(data: &Path, kubeconfig: &Path) -> Self {
        let mut up = Command::new(env!("CARGO_BIN_EXE_tally"));
        up.args(["up", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data).stdin(Stdio::null());
        let cluster = Self(up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let until = Instant::now() + Duration::from_secs(60);
        let config = loop {
            match fs::read_to_string(data.join("kubeconfig")) {
                Ok(config) => break config,
                Err(_) => assert!(Instant::now() < until, "it never serves"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        fs::write(kubeconfig, config.replace(": tally", ": test").replace(": \"tally\"", ": \"test\"")).unwrap();
        cluster
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn every_command_of_ours_works() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = fs::read_to_string(root.join("docs/coming-from.md")).unwrap();
    let directory = tally_testing::scratch();
    let here = directory.path();
    fs::create_dir(here.join("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_tally"), here.join("bin/tally")).unwrap();
    program(&here.join("work"), "echo \"work $*\"");
    program(&here.join("job.sh"), "echo \"job $JOB_COMPLETION_INDEX\"");
    for (name, content) in [
        ("list.txt", "one\ntwo words\nit's\n"),
        ("zeros.bin", "one\0two\nlines\0"),
        ("points.csv", "x,y\n1,2\n3,4\n"),
        ("a.log", "1\n"),
        ("b c.log", "1\n2\n"),
        ("job.yaml", JOB),
    ] {
        fs::write(here.join(name), content).unwrap();
    }
    let kubeconfig = here.join("kubeconfig");
    let _cluster = Cluster::start(&here.join("up"), &kubeconfig);
    let path = format!("{}:{}", here.join("bin").display(), std::env::var("PATH").unwrap());
    let commands = commands(&document);
    assert!(commands.len() > 35, "{} commands", commands.len());
    for (line, command) in commands {
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", &command]).current_dir(here).env("PATH", &path).stdin(Stdio::null());
        shell.env("KUBECONFIG", &kubeconfig);
        let output = shell.output().unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert_eq!(output.status.code(), Some(0), "docs/coming-from.md:{line}: {command}\n{said}");
        // A run of one task prints what its command prints, and nothing else. Every program of the page prints something.
        let many = ["-n ", ":::", "--each", "--output json"].iter().any(|flag| command.contains(flag));
        let of_tally = [": Complete in ", "\"result\":\"Complete\"", "kind: Job\n"];
        let ran = if many { of_tally.iter().any(|text| said.contains(text)) } else { !said.is_empty() };
        assert!(ran, "docs/coming-from.md:{line}: {command}\n{said}");
        assert!(!said.contains("has no {}"), "docs/coming-from.md:{line}: {command}\n{said}");
    }
    assert!(here.join("b c.log.gz").exists());
}
