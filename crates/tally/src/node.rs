//! This machine as a node: the controller that decides about its Pods, the shim that runs them, and their logs.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, Result};
use futures_util::stream;
use tally_controllers::controller::Controller;
use tally_core::ids::PodUid;
use tally_core::time::Span;
use tally_node::logs::{self, Which};
use tally_node::mailbox::{Mailbox, carry};
use tally_node::node::Node;
use tally_node::options::Options;
use tally_node::runtime::{Config, Runtime};
use tally_server::{Log, Logs, NoLog, Wanted};
use tokio::task::JoinHandle;

/// Pods at once. Each takes a few open files of the shim and as many processes as it likes.
const MOST_PODS: u64 = 250;

/// A node at work. Dropped, it lets go of the shim, which kills what still runs.
pub struct ThisNode {
    mailbox: Arc<Mailbox>,
    root: PathBuf,
    carrier: JoinHandle<()>,
    keeper: JoinHandle<()>,
}

impl ThisNode {
    /// Starts the shim on its directory; what the controller says is done from then on.
    pub async fn start(root: PathBuf) -> Result<(Self, Box<dyn Controller>)> {
        let program = std::env::current_exe().context("cannot find the program that is running")?;
        let runtime = Runtime::start(Config::new(program, root.clone())).await?;
        let (deeds, reports, keeper) = runtime.split();
        let mailbox = Mailbox::new();
        let carrier = tokio::spawn({
            let mailbox = mailbox.clone();
            async move { carry(&mailbox, deeds, reports).await }
        });
        let controller = Node::new(options(&root), mailbox.clone());
        Ok((Self { mailbox, root, carrier, keeper }, Box::new(controller)))
    }

    pub fn logs(&self) -> NodeLogs {
        NodeLogs { root: self.root.clone() }
    }

    /// Ends everything that runs, each within its grace period and all within this time; the controller must be at
    /// work until that is done. Said again, it can only become shorter.
    pub async fn drain(&self, within: Span) {
        self.mailbox.drain(within);
        self.mailbox.drained().await;
    }

    /// Lets the shim go, and waits for it.
    pub async fn finish(self) {
        self.carrier.abort();
        let _ = self.carrier.await;
        let _ = self.keeper.await;
    }
}

fn options(root: &Path) -> Options {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = Options::new(&host_name());
    options.cpu_millis = 1_000 * cpus as u64;
    if let Some(bytes) = memory() {
        options.memory = bytes;
    }
    if let Ok(disk) = rustix::fs::statvfs(root) {
        options.storage = disk.f_frsize.saturating_mul(disk.f_blocks);
    }
    options.pods = MOST_PODS;
    options
}

/// The name of this machine, as far as it can be the name of a Node.
fn host_name() -> String {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_string_lossy().to_ascii_lowercase();
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '.';
    let name: String = name.chars().map(|letter| if fits(letter) { letter } else { '-' }).take(63).collect();
    let name = name.trim_matches(['-', '.']);
    if name.is_empty() { "this-machine".to_owned() } else { name.to_owned() }
}

/// Of this machine, in bytes.
fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// The logs of this node's Pods.
pub struct NodeLogs {
    root: PathBuf,
}

impl Logs for NodeLogs {
    fn open(&self, wanted: Wanted) -> Pin<Box<dyn Future<Output = Result<Log, NoLog>> + Send>> {
        let opened = open(&self.root, &wanted);
        Box::pin(std::future::ready(opened))
    }
}

fn open(root: &Path, wanted: &Wanted) -> Result<Log, NoLog> {
    let options = logs::Options {
        follow: wanted.follow,
        tail_lines: wanted.tail_lines,
        since: wanted.since,
        limit_bytes: wanted.limit_bytes,
        timestamps: wanted.timestamps,
    };
    let which = if wanted.previous { Which::Previous } else { Which::Newest };
    let reader = match logs::open(root, &PodUid::new(&wanted.pod_uid), &wanted.container, which, options) {
        Ok(reader) => reader,
        Err(logs::Error::NotFound) => return Err(NoLog::NotThere),
        Err(error @ logs::Error::Io(_)) => return Err(NoLog::Broken(error.to_string())),
    };
    // A log that cannot be read any further ends there: the answer has begun, and nothing else can be said.
    Ok(Box::pin(stream::unfold(reader, |mut reader| async move {
        let piece = reader.next().await.ok().flatten()?;
        Some((piece, reader))
    })))
}
