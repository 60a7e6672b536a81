//! `tally up`, as a cluster.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use regex_lite::Regex;

use crate::tool::{Running, Said, command, directory, eventually, said, text};

pub struct Server {
    directory: tempfile::TempDir,
    process: Option<Running>,
}

impl Server {
    pub fn start() -> Self {
        let mut server = Self { directory: directory(), process: None };
        server.serve(&format!("{}:0", own_host()));
        server
    }

    fn serve(&mut self, address: &str) {
        let data = self.directory.path().join("d");
        let up = ["up", "--data-dir", text(&data), "--listen", address];
        self.process = Some(Running(command(&up).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()));
        eventually("it serves", || (self.kubeconfig().exists() && self.tally(&["ps"]).code == Some(0)).then_some(()));
    }

    /// The process ends in order; its tasks are started again when it is.
    pub fn stop(&mut self) {
        let mut process = self.process.take().unwrap();
        signal(process.0.id(), "TERM");
        process.0.wait().unwrap();
    }

    /// Serves again, at the same address. No other test takes the port in the meantime: the host is its own.
    pub fn restart(&mut self) {
        let config = std::fs::read_to_string(self.kubeconfig()).unwrap();
        let address = Regex::new("127[.0-9]+:[0-9]+").unwrap().find(&config).unwrap().as_str().to_owned();
        self.serve(&address);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.path("d/kubeconfig")
    }

    /// A command for this cluster. Its flags come before a command after `--`.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let kubeconfig = self.kubeconfig();
        let (first, rest) = arguments.split_first().unwrap();
        command(&[&[*first, "--kubeconfig", text(&kubeconfig)], rest].concat())
    }

    pub fn tally(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments).output().unwrap())
    }

    pub fn spawn(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The state and the counts of a Job. None: there is none.
    pub fn job(&self, name: &str) -> Option<serde_json::Value> {
        let shown = self.tally(&["show", name, "-o", "json"]);
        (shown.code == Some(0)).then(|| shown.json()["job"].clone())
    }

    pub fn runs(&self, name: &str, active: u64) {
        eventually("it runs", || self.job(name).filter(|job| job["active"] == active).map(drop));
    }
}

/// One of the loopback addresses, for one server.
fn own_host() -> String {
    static SERVERS: AtomicU32 = AtomicU32::new(0);
    let (process, server) = (std::process::id(), SERVERS.fetch_add(1, Relaxed));
    format!("127.{}.{}.{}", 1 + process / 250 % 250, 1 + process % 250, 1 + server % 250)
}

pub fn signal(process: u32, name: &str) {
    // `kill` is built into every shell; not every machine has it as a program.
    assert!(Command::new("sh").args(["-c", &format!("kill -s {name} {process}")]).status().unwrap().success());
}

/// What differs between two runs of the same work: suffixes of Pods, times, rates, and notes about the place.
pub fn normal(text: &str) -> Vec<String> {
    let [pod, time] =
        [r"(Pod [a-z]+(-[0-9]+)*)-[a-z0-9]{5}", r"in [0-9.]+s"].map(|pattern| Regex::new(pattern).unwrap());
    let is_progress = |line: &&str| line.contains(" active") || line.contains("ok,") || line.contains(": waiting");
    let lines = text.lines().filter(|line| !line.starts_with("tally: ") && !is_progress(line));
    let mut lines: Vec<String> =
        lines.map(|line| time.replace_all(&pod.replace_all(line, "$1-X"), "in T").into_owned()).collect();
    lines.sort();
    lines
}
