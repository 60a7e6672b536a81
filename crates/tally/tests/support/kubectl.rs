//! kubectl as a user has it: a home directory, a kubeconfig, and its output.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::client::{Answer, Call};
use super::server::{self, Server};

/// Starts a server for each installed kubectl and passes both to the test.
///
/// A kubectl is required: without one nothing here would be tested, and the tests would still pass.
pub async fn with_each_kubectl<F: Future<Output = ()>>(test: impl Fn(Kubectl) -> F) {
    for program in programs() {
        let directory = server::directory();
        let server = Server::start(directory.path()).await;
        test(Kubectl::new(program, server, directory)).await;
    }
}

/// The first kubectl of `programs`, and a cluster that runs Pods as processes. Its state is in `data`.
pub async fn with_node() -> Kubectl {
    let directory = server::directory();
    let server = Server::start_node(directory.path()).await;
    Kubectl::new(programs().swap_remove(0), server, directory)
}

/// The same, with Pods that are not isolated.
pub async fn with_open_node() -> Kubectl {
    let directory = server::directory();
    let server = Server::start_open_node(directory.path()).await;
    Kubectl::new(programs().swap_remove(0), server, directory)
}

/// The same, with more options.
pub async fn with_node_and(options: &[&str]) -> Kubectl {
    let directory = server::directory();
    let data = directory.path().join("data");
    let data = ["--data-dir", data.to_str().expect("a path that can be written down")];
    let server = Server::start_with(directory.path(), &[&data[..], options].concat()).await;
    Kubectl::new(programs().swap_remove(0), server, directory)
}

/// `KUBECTL` names one; otherwise the ones that `make tools` installs beside the build, and the one in the PATH.
pub fn programs() -> Vec<PathBuf> {
    if let Some(program) = std::env::var_os("KUBECTL") {
        return vec![program.into()];
    }
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is inside the build directory");
    let mut programs = vec![build.join("tools/bin/kubectl")];
    let directories = std::env::var_os("PATH").unwrap_or_default();
    programs
        .extend(std::env::split_paths(&directories).map(|directory| directory.join("kubectl")).find(|it| it.exists()));
    programs.retain(|program| program.exists());
    assert!(!programs.is_empty(), "these tests need kubectl: run `make tools`, or set KUBECTL to one");
    programs
}

pub struct Kubectl {
    program: PathBuf,
    /// 36 for version 1.36.
    pub minor: u32,
    pub server: Server,
    pub directory: TempDir,
}

/// What a command printed, and its exit code.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Kubectl {
    fn new(program: PathBuf, server: Server, directory: TempDir) -> Self {
        let kubectl = Kubectl { minor: 0, program, server, directory };
        let version = kubectl.json("version --client -o json");
        let minor = version["clientVersion"]["minor"].as_str().unwrap_or_default();
        let minor = minor.trim_end_matches('+').parse().expect("kubectl says its minor version");
        println!("{} is 1.{minor}", kubectl.program.display());
        Kubectl { minor, ..kubectl }
    }

    /// Arguments are separated by spaces; one that contains a space needs [`Kubectl::run`].
    pub fn say(&self, arguments: &str) -> Said {
        self.run(&arguments.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs a command that must succeed. Returns its output.
    pub fn ok(&self, arguments: &str) -> String {
        let said = self.say(arguments);
        assert_eq!(said.code, Some(0), "kubectl {arguments}: {}{}\n{}", said.out, said.err, self.server.said());
        said.out
    }

    /// Runs a command that must fail. Returns its error output.
    pub fn fails(&self, arguments: &str) -> String {
        let said = self.say(arguments);
        assert_eq!(said.code, Some(1), "kubectl {arguments}: {}{}", said.out, said.err);
        said.err
    }

    pub fn json(&self, arguments: &str) -> Value {
        let out = self.ok(arguments);
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("kubectl {arguments}: {error}: {out}"))
    }

    /// The rows of a table, split into cells.
    pub fn table(&self, arguments: &str) -> Vec<Vec<String>> {
        let out = self.ok(arguments);
        let cells =
            |line: &str| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect();
        out.lines().map(cells).collect()
    }

    pub fn run(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments).output().expect("kubectl runs"))
    }

    pub fn with_input(&self, arguments: &str, input: &str) -> Said {
        let mut command = self.command(&arguments.split_whitespace().collect::<Vec<_>>());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl runs");
        child.stdin.take().expect("it was asked for").write_all(input.as_bytes()).expect("kubectl reads");
        said(child.wait_with_output().expect("kubectl ends"))
    }

    /// `edit` with an editor that is a shell command on the file.
    pub fn edit(&self, arguments: &str, script: &str) -> Said {
        let editor = self.file("editor.sh", &format!("#!/bin/sh\n{script}\n"));
        let mut command = self.command(&arguments.split_whitespace().collect::<Vec<_>>());
        said(command.env("KUBE_EDITOR", format!("sh {editor}")).output().expect("kubectl runs"))
    }

    /// Runs a command line as users copy it: `kubectl` is this one.
    pub fn shell(&self, line: &str, directory: &Path) -> Said {
        let Self { program, .. } = self;
        let mut shell = self.prepared(Path::new("sh"));
        let line = format!("kubectl() {{ {:?} \"$@\"; }}; {line}", program.display().to_string());
        said(shell.args(["-c", &line]).current_dir(directory).output().expect("a shell"))
    }

    /// Starts a command that keeps running; its output is read line by line.
    pub fn follow(&self, arguments: &str) -> Following {
        let mut command = self.command(&arguments.split_whitespace().collect::<Vec<_>>());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("kubectl runs");
        let lines = BufReader::new(child.stdout.take().expect("it was asked for"));
        Following { child, lines }
    }

    /// Sends a request that kubectl has no command for, as a controller or a node would.
    pub async fn request(&self, call: Call) -> Answer {
        let answer = self.server.api.connection().call(&call).await.expect("an answer");
        assert!(answer.code < 300, "{call:?}: {} {}", answer.code, answer.text);
        answer
    }

    pub async fn set_status(&self, path: &str, status: &Value) {
        let patch = serde_json::json!({ "status": status });
        let call = Call::new("PATCH", format!("{path}/status")).header("content-type", "application/merge-patch+json");
        self.request(call.body(&patch)).await;
    }

    /// Writes a file and returns its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).expect("the test directory can be written");
        path.to_str().expect("a plain path").to_owned()
    }

    /// A command that is not started yet.
    pub fn start(&self, arguments: &[&str]) -> Command {
        self.command(arguments)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.prepared(&self.program);
        command.args(arguments);
        command
    }

    fn prepared(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("KUBECONFIG", self.server.kubeconfig())
            // Keeps the caches and settings of the user who runs the tests out of the test.
            .env("HOME", self.directory.path())
            .env("TMPDIR", self.directory.path())
            .env("KUBECACHEDIR", self.directory.path().join("cache"))
            .stdin(Stdio::null());
        command
    }
}

fn said(output: Output) -> Said {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// A running `get -w`; killed when dropped.
pub struct Following {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Following {
    /// The next line, with single spaces; empty when the command has ended.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("kubectl prints text");
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a cell looks like `5s`, `3m2s` or `4h`.
pub fn is_age(cell: &str) -> bool {
    let mut digits = 0;
    let fits = cell.chars().all(|one| match one {
        '0'..='9' => {
            digits += 1;
            true
        }
        's' | 'm' | 'h' | 'd' => digits > 0,
        _ => false,
    });
    fits && cell.ends_with(['s', 'm', 'h', 'd'])
}
