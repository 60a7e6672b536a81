//! The real binary, started the way a user starts it, in a directory of its own.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::client::{Api, Call};

/// How long a server may take to become ready. Usually this takes milliseconds; the limit only ends a test that would
/// otherwise hang, on a machine that is busy with other work.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// A running `tally up`. Killed when dropped.
pub struct Server {
    child: Child,
    directory: PathBuf,
    pub api: Api,
}

/// A directory for one server.
pub fn directory() -> tempfile::TempDir {
    tally_testing::scratch()
}

/// The controllers of the binary, from the error message for an unknown one.
pub fn controllers() -> BTreeSet<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_tally")).args(["up", "--controllers", "?"]).output();
    let said = String::from_utf8(output.expect("the binary under test starts").stderr).expect("text");
    let names = said.split_once("available controllers: ").map(|(_, names)| names.lines().next().unwrap_or_default());
    let names = names.unwrap_or_else(|| panic!("no names in {said:?}"));
    names.split(", ").map(str::to_owned).collect()
}

impl Server {
    /// Starts the API alone, no node and no controllers, and waits until it is ready.
    pub async fn start(directory: &Path) -> Server {
        let data = directory.join("data");
        let data = data.to_str().expect("a path that can be written down");
        Self::start_with(directory, &["--no-node", "--controllers", "", "--data-dir", data]).await
    }

    /// Starts it with all its controllers, but without a node. It keeps no state.
    pub async fn start_cluster(directory: &Path) -> Server {
        Self::start_with(directory, &["--no-node", "--ephemeral"]).await
    }

    /// Starts it with all controllers and a node, on data that is kept: this machine runs Pods.
    pub async fn start_node(directory: &Path) -> Server {
        let data = directory.join("data");
        Self::start_with(directory, &["--data-dir", data.to_str().expect("a path that can be written down")]).await
    }

    /// The same, with Pods that can reach everything that the server can.
    pub async fn start_open_node(directory: &Path) -> Server {
        let data = directory.join("data");
        let data = data.to_str().expect("a path that can be written down");
        Self::start_with(directory, &["--isolate=false", "--data-dir", data]).await
    }

    pub async fn start_with(directory: &Path, options: &[&str]) -> Server {
        let kubeconfig = directory.join("kubeconfig");
        // A kubeconfig left by an earlier run names that run's port.
        let _ = std::fs::remove_file(&kubeconfig);
        let log = File::options().create(true).append(true).open(directory.join("log")).expect("a log file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
        if options.contains(&"--ephemeral") {
            // If it is killed, what it leaves behind is removed with the test.
            command.env("TMPDIR", directory);
        }
        let child = command
            .args(["up", "--listen", "127.0.0.1:0"])
            .args(options)
            // Pods without a working directory of their own run in that of the server.
            .current_dir(directory)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle of the log"))
            .stderr(log)
            .spawn()
            .expect("the binary under test starts");
        let mut starting = Starting(Some(child));
        let until = Instant::now() + READY_WITHIN;
        loop {
            if let Some(api) = Api::from_kubeconfig(&kubeconfig)
                && let Ok(answer) = api.connection().call(&Call::get("/readyz")).await
                && answer.code == 200
            {
                let child = starting.0.take().expect("nobody else takes it");
                return Server { child, directory: directory.to_owned(), api };
            }
            let ended = starting.0.as_mut().and_then(|child| child.try_wait().expect("its state can be asked"));
            assert!(ended.is_none(), "tally up ended with {ended:?}:\n{}", said(directory));
            assert!(Instant::now() < until, "tally up is not ready after {READY_WITHIN:?}:\n{}", said(directory));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    /// SIGKILL: no handler runs, nothing is flushed.
    pub fn kill(mut self) {
        self.kill_now();
    }

    /// The same for a server that is to be replaced.
    pub fn kill_now(&mut self) {
        self.child.kill().expect("the server is there to be killed");
        self.child.wait().expect("its state can be asked");
    }

    /// Sends it a signal: `TERM`, `INT`.
    pub fn signal(&self, name: &str) {
        // `kill` is built into every shell; not every machine has it as a program.
        let sent = Command::new("sh").args(["-c", &format!("kill -s {name} {}", self.child.id())]).status();
        assert!(sent.expect("a shell").success());
    }

    /// The exit code, once it has ended.
    pub fn ended(&mut self) -> Option<i32> {
        self.child.wait().expect("its state can be asked").code()
    }

    /// Everything it printed so far, for the message of a failed test.
    pub fn said(&self) -> String {
        said(&self.directory)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("log")).unwrap_or_default()
}

/// A test that gives up while the server starts leaves no process behind.
struct Starting(Option<Child>);

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
