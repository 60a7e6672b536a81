//! A node for the tests.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tally_core::ids::PodUid;
use tally_node::logs::{self, LogReadOptions as Options};
use tally_node::port::{
    Attempt, Exit, Found, OperationError as Failure, Preparation, Report, ShimCommand, Start, Volume,
};
use tally_node::shim_client::{Config, Reports, ShimClient, ShimCommands};
use tokio::task::JoinHandle;

use crate::start::shell;

pub fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_shim-for-tests").into()
}

/// Generous: the machine may be busy. No test waits for the full time.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE * 3, future).await.expect("it takes too long") })
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The same, while other tasks run.
pub async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A node with one Pod.
pub struct Node {
    pub root: PathBuf,
    pub pod: PodUid,
    pub commands: ShimCommands,
    pub reports: Reports,
    pub found: Vec<(PodUid, Vec<Found>)>,
    keeper: JoinHandle<()>,
    next_check: u64,
    /// The group of the volumes.
    pub volume_group: Option<u32>,
}

impl Node {
    pub async fn start(root: &Path) -> Self {
        Self::start_with(Config::new(program(), root.to_owned())).await
    }

    pub async fn start_with(config: Config) -> Self {
        let root = config.root.clone();
        let (commands, reports, keeper) = ShimClient::start(config).await.unwrap().split();
        let found = Vec::new();
        let pod = PodUid::from_u128(7);
        let mut node = Self { root, pod, commands, reports, found, keeper, next_check: 0, volume_group: None };
        node.recovered().await;
        node
    }

    /// Reads the reports that are sent at a start.
    pub async fn recovered(&mut self) {
        self.found.clear();
        loop {
            match self.next().await {
                Report::Found { pod, attempts } => self.found.push((pod, attempts)),
                Report::Recovered => break,
                // Sent by a shim that has died since.
                _ => {}
            }
        }
    }

    pub async fn next(&mut self) -> Report {
        let report = tokio::time::timeout(PATIENCE, self.reports.next()).await;
        report.expect("a report in time").expect("a report")
    }

    pub async fn send(&self, command: ShimCommand) {
        self.commands.send(&command).await.unwrap();
    }

    pub async fn prepare(&mut self, volumes: Vec<Volume>) -> Report {
        let pod = self.pod.clone();
        let preparation = Preparation { pod, volumes, group: self.volume_group };
        self.send(ShimCommand::Prepare(Box::new(preparation))).await;
        self.next().await
    }

    pub fn attempt(&self, container: &str, number: u32) -> Attempt {
        Attempt { pod: self.pod.clone(), container: container.into(), number }
    }

    /// Starts an attempt and waits for the first report.
    pub async fn launch(&mut self, start: Start) -> Report {
        self.send(ShimCommand::Start(Box::new(start))).await;
        self.next().await
    }

    /// Runs a shell script as a container, to its end.
    pub async fn script(&mut self, container: &str, script: &str) -> Exit {
        let start = shell(self.attempt(container, 0), script);
        self.run(start).await
    }

    pub async fn run(&mut self, start: Start) -> Exit {
        let report = self.launch(start).await;
        assert!(matches!(report, Report::Started { .. }), "{report:?}");
        self.ended().await
    }

    /// Returns why a start fails.
    pub async fn unstarted(&mut self, start: Start) -> Failure {
        match self.launch(start).await {
            Report::Unstarted { failure, .. } => failure,
            report => panic!("{report:?}"),
        }
    }

    /// The message of a start that would fail again.
    pub async fn refused(&mut self, start: Start) -> String {
        let failure = self.unstarted(start).await;
        assert!(!failure.passing, "{failure:?}");
        format!("{}: {}", failure.reason, failure.message)
    }

    pub async fn ended(&mut self) -> Exit {
        match self.next().await {
            Report::Ended { exit, .. } => exit,
            report => panic!("{report:?}"),
        }
    }

    pub async fn check(&mut self, attempt: Attempt, check: tally_node::port::Check, millis: u64) -> Result<(), String> {
        self.next_check += 1;
        let id = self.next_check;
        self.send(ShimCommand::Check { id, attempt, check, timeout_millis: millis }).await;
        match self.next().await {
            Report::Checked { id: answered, outcome } if answered == id => outcome,
            report => panic!("{report:?}"),
        }
    }

    pub async fn log(&self, container: &str) -> String {
        self.log_with(container, Options::default()).await
    }

    pub async fn log_with(&self, container: &str, options: Options) -> String {
        let written = logs::attempts(&self.root, &self.pod);
        let newest = written.into_iter().rfind(|attempt| attempt.container == container);
        let newest = newest.unwrap_or_else(|| self.attempt(container, 0));
        let ended = format!("{{\"ended\":[{}", serde_json::to_string(&newest).unwrap());
        let journal = self.root.join("journal");
        let over = || std::fs::read_to_string(&journal).unwrap().contains(&ended);
        let mut reader = logs::open(&self.root, &newest, options).unwrap();
        let mut text = Vec::new();
        while let Some(chunk) = reader.next(over).await.unwrap() {
            text.extend_from_slice(&chunk);
        }
        String::from_utf8(text).unwrap()
    }

    pub async fn stop(self) {
        let Self { commands, reports, keeper, .. } = self;
        drop((commands, reports));
        keeper.await.unwrap();
    }
}

pub fn shim_of(root: &Path) -> i32 {
    std::fs::read_to_string(root.join("lock")).unwrap().trim().parse().unwrap()
}

/// Processes whose arguments contain this text, by process ID. Each test gives its processes a text of their own.
pub fn alive(sign: &str) -> Vec<i32> {
    let own = std::process::id() as i32;
    let numbers =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers
        .filter(|pid| *pid != own)
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(sign)
        })
        .collect()
}

pub fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

/// A number that no other process on this machine has among its arguments.
pub fn sign() -> String {
    format!("{}.{:07}", 100_000 + fastrand::u32(0..900_000), fastrand::u32(0..10_000_000))
}
