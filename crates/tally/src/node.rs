//! This machine as a node: the controller that decides about its Pods, the shim that runs them, and their logs.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::stream;
use tally_controllers::driver::{self, Observer};
use tally_core::ids::PodUid;
use tally_core::time::Span;
use tally_node::logs;
use tally_node::mailbox::{Mailbox, carry};
use tally_node::node::Node;
use tally_node::notes::Notes;
use tally_node::options::Options;
use tally_node::port::Attempt;
use tally_node::runtime::{Config, Runtime};
use tally_registry::Registry;
use tally_server::{Log, Logs, Over, Wanted};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::up::controllers::Running;

/// For what has been killed to be noticed, and told.
const BEYOND_DRAIN: Duration = Duration::from_secs(10);

/// Pods at once. Each takes a few open files of the shim and as many processes as it likes.
const MOST_PODS: u64 = 250;

/// A node at work.
pub struct ThisNode {
    mailbox: Arc<Mailbox>,
    root: PathBuf,
    controller: Running,
    carrier: JoinHandle<()>,
    keeper: JoinHandle<()>,
    notes: Arc<Notes>,
}

impl ThisNode {
    /// Starts the shim on its directory and the controller on the registry.
    pub async fn start(
        root: PathBuf,
        registry: Arc<Registry>,
        observer: Arc<dyn Observer>,
        driven: driver::Options,
    ) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find the program that is running")?;
        let config = Config::new(program, root.clone());
        let notes = config.notes.clone();
        let runtime = Runtime::start(config).await?;
        let (deeds, reports, keeper) = runtime.split();
        let mailbox = Mailbox::new();
        let carrier = tokio::spawn({
            let mailbox = mailbox.clone();
            async move { carry(&mailbox, deeds, reports).await }
        });
        let node = Node::new(options(&root), mailbox.clone());
        let controller = Running::drive(vec![Box::new(node)], registry, observer, driven);
        Ok(Self { mailbox, root, controller, carrier, keeper, notes })
    }

    /// What a person should know of it.
    pub fn notes(&self) -> Arc<Notes> {
        self.notes.clone()
    }

    pub fn logs(&self) -> NodeLogs {
        NodeLogs { root: self.root.clone() }
    }

    /// It has stopped working though nobody told it to.
    pub fn has_ended(&self) -> bool {
        self.controller.has_ended() || self.carrier.is_finished()
    }

    /// Ends everything that runs, each Pod within its grace period and all within this time, and puts on record how.
    pub async fn end(self, within: Span) -> Result<()> {
        self.mailbox.drain(within);
        // What does not end when it is killed is not waited for: the shim gives it up, too.
        let patience = Duration::from_millis(within.millis().unsigned_abs()) + BEYOND_DRAIN;
        let _ = timeout(patience, self.mailbox.drained()).await;
        let finished = self.controller.finish().await;
        // The shim is let go when nobody holds the ends any more.
        self.carrier.abort();
        let _ = self.carrier.await;
        let _ = self.keeper.await;
        finished
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
    // It is this program that was stopped or killed, and no fault of the Job's.
    options.release_lost = true;
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
    pub root: PathBuf,
}

impl Logs for NodeLogs {
    fn open(&self, wanted: Wanted, over: Over) -> Pin<Box<dyn Future<Output = Result<Log, String>> + Send>> {
        let opened = open(&self.root, &wanted, over);
        Box::pin(std::future::ready(opened.map_err(|error| format!("the log cannot be read: {error}"))))
    }
}

fn open(root: &Path, wanted: &Wanted, over: Over) -> std::io::Result<Log> {
    let options = logs::Options {
        follow: wanted.follow,
        tail_lines: wanted.tail_lines,
        since: wanted.since,
        limit_bytes: wanted.limit_bytes,
        timestamps: wanted.timestamps,
    };
    let pod = PodUid::new(&wanted.pod_uid);
    let attempt = Attempt { pod, container: wanted.container.as_str().into(), number: wanted.run };
    let reader = logs::open(root, &attempt, options)?;
    // A log that cannot be read any further ends there: the answer has begun, and nothing else can be said.
    Ok(Box::pin(stream::unfold((reader, over), |(mut reader, over)| async move {
        let piece = reader.next(&over).await.ok().flatten()?;
        Some((piece, (reader, over)))
    })))
}
