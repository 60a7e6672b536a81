//! This machine as a node: the controller that decides about its Pods, the shim that runs them, and their logs.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::future::Future;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures_util::stream;
use tally_api::catalog;
use tally_api::options::ListOptions;
use tally_core::gates::{FeatureGates, Gate};
use tally_core::ids::PodUid;
use tally_core::time::Span;
use tally_node::mailbox::{Mailbox, carry};
use tally_node::meter::UsageMeter;
use tally_node::node::NodeAgent;
use tally_node::notes::Notes;
use tally_node::options::NodeOptions;
use tally_node::output::{FollowOptions, OutputQueue, ResultsOptions};
use tally_node::port::Attempt;
use tally_node::sessions::Sessions;
use tally_node::shim::{PidsLimit, abilities};
use tally_node::shim_client::{Config, ShimClient};
use tally_node::{log_limit, logs};
use tally_registry::{Registry, Target};
use tally_runtime::driver::{self, Observer};
use tally_server::{Log, LogEnded, LogError, LogRequest, Logs};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::isolation::PodIsolation;
use crate::node_sessions::NodeSessions;
use crate::node_usage::NodeUsage;
use crate::terminal;
use crate::up::controllers::RunningControllers;

/// Additional time after the drain for kills to be noticed and reported.
const BEYOND_DRAIN: Duration = Duration::from_secs(10);

/// How often to check whether the node is still running.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of Pods at the same time, unless a run asks for more.
const MOST_PODS: u64 = 250;

/// What a run wants of the node beyond the Pods themselves.
#[derive(Clone, Debug, Default)]
pub struct TaskOptions {
    /// The output of containers is read while they write it.
    pub follow: Option<FollowOptions>,
    /// The results of tasks are stored.
    pub results: Option<ResultsOptions>,
    /// Pods may have the environment of this process.
    pub shares_env: bool,
    /// The reader of the output is told how attempts ended.
    pub tell_ends: bool,
    /// The file for a line about each attempt.
    pub job_log: Option<PathBuf>,
    /// How attempts ended is recorded, though nothing is kept beyond the run.
    pub records: bool,
    /// The number of Pods at the same time, if it is more than usual.
    pub pods: u64,
}

/// Where a node works, and how.
#[derive(Debug)]
pub struct NodeSettings {
    pub root: PathBuf,
    /// The standard input of the first container that asks for it.
    pub stdin: Option<OwnedFd>,
    pub isolation: PodIsolation,
    /// How many processes and threads a Pod may have.
    pub pids_limit: Option<PidsLimit>,
    /// How often the disk space of Pods with a limit is measured, if not as usual.
    pub measure_storage_every: Option<Span>,
    /// The records of attempts stay when the process has ended.
    pub keeps: bool,
    /// Clients can connect to the input of containers, and containers can have terminals.
    pub attachable: bool,
    pub gates: FeatureGates,
}

/// A running node.
pub struct ThisNode {
    mailbox: Arc<Mailbox>,
    root: PathBuf,
    controller: RunningControllers,
    carrier: JoinHandle<()>,
    keeper: JoinHandle<()>,
    notes: Arc<Notes>,
    outputs: Arc<OutputQueue>,
    name: String,
    room: u64,
    sessions: Sessions,
}

impl ThisNode {
    /// Starts the shim on its directory and the controller on the registry.
    pub async fn start(
        settings: NodeSettings,
        registry: Arc<Registry>,
        observer: Arc<dyn Observer>,
        driven: driver::DriverOptions,
        tasks: Option<TaskOptions>,
    ) -> Result<Self> {
        let NodeSettings { root, stdin, isolation, pids_limit, measure_storage_every, keeps, attachable, gates } =
            settings;
        let program = std::env::current_exe().context("cannot find the path of this executable")?;
        let mut config = Config { stdin: stdin.map(Arc::new), ..Config::new(program, root.clone()) };
        config.pids_limit = pids_limit;
        config.attachable = attachable;
        let isolates = isolation.is_on();
        if let PodIsolation::On { hidden } = isolation {
            config.hidden = Some(hidden);
        }
        let (notes, outputs) = (config.notes.clone(), Arc::<OutputQueue>::default());
        // Without a reader the queue would fill up.
        config.outputs = tasks.is_some().then(|| outputs.clone());
        let tasks = tasks.unwrap_or_default();
        config.output.follow = tasks.follow;
        config.output.tell_ends = tasks.tell_ends;
        let keeps = keeps || tasks.records;
        config.output.keep_records = keeps;
        config.job_log = tasks.job_log.clone();
        config.results = tasks.results.as_ref().map(|results| results.directory.clone());
        let runtime = ShimClient::start(config).await?;
        let (commands, reports, keeper) = runtime.split();
        let sessions = commands.sessions();
        let mailbox = Mailbox::new();
        let carrier = tokio::spawn({
            let mailbox = mailbox.clone();
            async move { carry(&mailbox, commands, reports).await }
        });
        let mut options = options(&root)?;
        options.security = abilities::own(isolates);
        options.measure_storage_every = measure_storage_every.unwrap_or(options.measure_storage_every);
        options.disruption_conditions = gates.enabled(Gate::PodDisruptionConditions);
        options.shares_env = tasks.shares_env;
        options.pods = options.pods.max(tasks.pods);
        options.tells_source = tasks.follow.is_some() || tasks.tell_ends || keeps || tasks.job_log.is_some();
        options.results = tasks.results;
        let (name, room) = (options.name.to_string(), options.pods);
        let node = NodeAgent::new(options, mailbox.clone());
        registry.add_provisioner();
        let controller = RunningControllers::drive(vec![Box::new(node)], registry, observer, driven);
        Ok(Self { mailbox, root, controller, carrier, keeper, notes, outputs, name, room, sessions })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many Pods it takes at the same time.
    pub fn room(&self) -> u64 {
        self.room
    }

    /// Notices about the node for the user.
    pub fn notes(&self) -> Arc<Notes> {
        self.notes.clone()
    }

    pub fn logs(&self) -> NodeLogs {
        NodeLogs { root: self.root.clone() }
    }

    /// Sessions of clients with the Pods.
    pub fn sessions(&self) -> NodeSessions {
        NodeSessions { node: self.name.clone(), root: self.root.clone(), sessions: self.sessions.clone() }
    }

    /// What the Pods use.
    pub fn usage(&self) -> NodeUsage {
        NodeUsage { node: self.name.clone(), meter: Arc::new(UsageMeter::new(self.root.clone())) }
    }

    /// What is said about the output of containers, and where the reader says how far it has read.
    pub fn outputs(&self) -> (Arc<OutputQueue>, Arc<Mailbox>) {
        (self.outputs.clone(), self.mailbox.clone())
    }

    /// Whether the node stopped although it was not asked to.
    pub fn has_ended(&self) -> bool {
        self.controller.has_ended() || self.carrier.is_finished()
    }

    /// Stops all running Pods, each within its grace period and all within this time, and records how they ended.
    pub async fn end(self, within: Span) -> Result<()> {
        self.outputs.lift_limit();
        self.mailbox.drain(within);
        let gone = async {
            while !self.has_ended() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        // A process that does not end when it is killed is not waited for: the shim gives up on it, too.
        let patience = Duration::from_millis(within.millis().unsigned_abs()) + BEYOND_DRAIN;
        tokio::select! {
            _ = timeout(patience, self.mailbox.drained()) => {}
            // A node that has stopped will never report that it is drained.
            () = gone => {}
        }
        self.stop().await
    }

    /// Stops the node because nothing can be recorded any more. What runs is killed by the shim and counts as lost, as
    /// after `kill -9`: the next start runs it again. A Pod that was ended in order would be found as failed.
    pub async fn abandon(self) -> Result<()> {
        self.outputs.lift_limit();
        self.stop().await
    }

    async fn stop(self) -> Result<()> {
        let finished = self.controller.finish().await;
        // The shim is released when the task that holds its channels has ended.
        self.carrier.abort();
        let _ = self.carrier.await;
        let _ = self.keeper.await;
        finished
    }
}

fn options(root: &Path) -> Result<NodeOptions> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let hostname = host_name();
    let mut options = NodeOptions::new(&kept_name(root, &hostname)?);
    options.hostname = hostname.as_str().into();
    options.cpu_millis = 1_000 * cpus as u64;
    if let Some(bytes) = memory() {
        options.memory = bytes;
    }
    if let Ok(disk) = rustix::fs::statvfs(root) {
        options.storage = disk.f_frsize.saturating_mul(disk.f_blocks);
    }
    options.pods = MOST_PODS;
    options.is_root = rustix::process::geteuid().is_root();
    // A Pod is lost because this program was stopped or killed, which is not a failure of the Job.
    options.release_lost = true;
    Ok(options)
}

/// The name that this node got at its first start. Pods are bound to it: if the machine is renamed later, they still
/// belong to this node. No other process works in the directory meanwhile.
fn kept_name(root: &Path, otherwise: &str) -> Result<String> {
    let path = root.join("name");
    match fs::read_to_string(&path) {
        Ok(text) => {
            let name = text.trim_end();
            if name != as_name(name) {
                bail!("{} does not contain a valid Node name; correct the file", path.display());
            }
            Ok(name.to_owned())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            keep_name(root, otherwise).with_context(|| format!("cannot write {}", path.display()))?;
            Ok(otherwise.to_owned())
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Writes the name atomically: after a crash the file has the whole name or does not exist.
fn keep_name(root: &Path, name: &str) -> io::Result<()> {
    let new = root.join("name.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    writeln!(file, "{name}")?;
    file.sync_all()?;
    fs::rename(&new, root.join("name"))?;
    File::open(root)?.sync_all()
}

/// The host name of this machine, converted to a valid Node name.
fn host_name() -> String {
    as_name(&rustix::system::uname().nodename().to_string_lossy())
}

fn as_name(text: &str) -> String {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '.';
    let name = text.to_ascii_lowercase();
    let name: String = name.chars().map(|letter| if fits(letter) { letter } else { '-' }).take(63).collect();
    let name = name.trim_matches(['-', '.']);
    if name.is_empty() { "this-machine".to_owned() } else { name.to_owned() }
}

/// The memory of this machine in bytes.
fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// The logs of this node's Pods.
pub struct NodeLogs {
    pub root: PathBuf,
}

/// How often the space of logs is looked at.
pub const LIMIT_LOGS_EVERY: Duration = Duration::from_secs(60);

/// Removes the oldest logs of Pods that have ended while they use more than `most` bytes, and says so.
pub async fn limit_logs(root: PathBuf, registry: Arc<Registry>, most: u64, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let (root, registry) = (root.clone(), registry.clone());
        let removed = tokio::task::spawn_blocking(move || remove_old_logs(&root, &registry, most)).await;
        if let Ok(removed @ 1..) = removed {
            let note =
                format!("the logs of {removed} Pods that have ended were removed: they used more than {most} bytes");
            // Standard error may be a file on a full disk.
            terminal::tell(note);
        }
    }
}

/// Returns the number of Pods whose logs were removed.
fn remove_old_logs(root: &Path, registry: &Registry, most: u64) -> usize {
    let Ok(logs) = log_limit::sizes(root) else { return 0 };
    // Usually there is no need to know which Pods have ended.
    if logs.iter().map(|logs| logs.bytes).sum::<u64>() <= most {
        return 0;
    }
    let Some(pods) = catalog::find("", "v1", "pods") else { return 0 };
    let mut ended = HashSet::new();
    for phase in ["Succeeded", "Failed"] {
        let selection = ListOptions { field_selector: format!("status.phase={phase}"), ..ListOptions::default() };
        let Ok(listing) = registry.list(Target::new(pods, "", ""), &selection) else { return 0 };
        ended
            .extend(listing.items.iter().filter_map(|pod| Some(PodUid::new(pod.parse()["metadata"]["uid"].as_str()?))));
    }
    let chosen = log_limit::choose(logs, &ended, most);
    chosen.iter().for_each(|logs| log_limit::remove(root, &logs.pod));
    chosen.len()
}

impl Logs for NodeLogs {
    fn open(&self, wanted: LogRequest, over: LogEnded) -> Pin<Box<dyn Future<Output = Result<Log, LogError>> + Send>> {
        let opened = open(&self.root, &wanted, over);
        Box::pin(std::future::ready(opened.map_err(LogError)))
    }
}

fn open(root: &Path, wanted: &LogRequest, over: LogEnded) -> std::io::Result<Log> {
    let options = logs::LogReadOptions {
        follow: wanted.follow,
        tail_lines: wanted.tail_lines,
        since: wanted.since,
        limit_bytes: wanted.limit_bytes,
        timestamps: wanted.timestamps,
    };
    let pod = PodUid::new(&wanted.pod_uid);
    let attempt = Attempt { pod, container: wanted.container.as_str().into(), number: wanted.run };
    let reader = logs::open(root, &attempt, options)?;
    // If reading fails, the stream ends: the response has begun, so an error cannot be reported any more.
    Ok(Box::pin(stream::unfold((reader, over), |(mut reader, over)| async move {
        let piece = reader.next(&over).await.ok().flatten()?;
        Some((piece, (reader, over)))
    })))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_node_keeps_its_name_when_the_machine_gets_another() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("name");
        assert_eq!(kept_name(root.path(), "first").unwrap(), "first");
        assert_eq!(kept_name(root.path(), "second").unwrap(), "first");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let options = options(root.path()).unwrap();
        assert_eq!((options.name.as_str(), options.hostname.as_str()), ("first", host_name().as_str()));
        for wrong in ["", "Two words\n", "-x"] {
            fs::write(&file, wrong).unwrap();
            let error = format!("{:#}", kept_name(root.path(), "first").unwrap_err());
            assert!(error.contains("does not contain a valid Node name"), "{wrong:?}: {error}");
        }
    }
}
