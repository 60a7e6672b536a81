//! `tally up`: the embedded cluster, on this machine.
//!
//! Everything that can fail for an external reason is tried before anything is created: the address first, then the
//! data directory. What a failed start has created is removed again.

pub mod controllers;

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use controllers::Cluster;
use tally_api::pod_security::{IdRanges, PodIds};
use tally_controllers::pod_gc::PodGcOptions;
use tally_core::gates::FeatureGates;
use tally_core::quantity::Quantity;
use tally_core::time::Span;
use tally_node::shim::PidsLimit;
use tally_registry::Registry;
use tally_runtime::driver;
use tally_server::{
    AuditLog, AuditOptions, AuditPolicy, FlowLimits, MOST_CONNECTIONS, Pki, Server, ServerOptions, kubeconfig,
};
use tally_store::{Store, StoreOptions};
use tokio::signal::unix::SignalKind;
use tokio::sync::watch;

use crate::data_dir::{self, CreatedPaths, Temporary, quoted, wait_for_shim};
use crate::isolation::PodIsolation;
use crate::local_api::LocalApi;
use crate::metrics::ControllerMetrics;
use crate::node::{LIMIT_LOGS_EVERY, NodeSettings, ThisNode, limit_logs};
use crate::run::seconds;
use crate::signals::{self, Stop};
use crate::terminal;
use crate::web::{Page, ServedPage};

/// How long Pods may take to end when the cluster is stopped; shorter if their own grace period is shorter.
const DRAIN_WITHIN: Span = Span::from_seconds(30);

/// Time for tasks to be dropped at the end. They wait only for each other.
const LET_GO_WITHIN: Duration = Duration::from_secs(1);

/// How often to check whether the controllers and the node are still running.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Processes and threads of a Pod: more than most programs need, and few enough that some such Pods leave the machine usable.
const DEFAULT_POD_PIDS: u64 = 4096;
/// A container needs three before its command has started one.
const FEWEST_POD_PIDS: u64 = 16;
/// The kernel has no more numbers.
const MOST_POD_PIDS: u64 = 4_194_304;

/// Files that are not connections of clients: the store, the node, and what is being opened.
const OTHER_FILES: u32 = 124;
/// However few files the process may open, it tries to serve this many connections.
const FEWEST_CONNECTIONS: u32 = 16;

/// Connections that wait to be accepted. If the queue is full, the kernel drops the first packet of a further client, which
/// tries again after a second.
const LONGEST_BACKLOG: i32 = 4_096;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally up                                  serve on 127.0.0.1:6443, store data in ~/.local/share/tally
  tally up --listen 127.0.0.1:0             serve on any free port
  tally up --ephemeral                      store nothing: all data is lost when it stops
  tally up --data-dir ./t --kubeconfig ./k  choose where data and kubeconfig are stored
  kubectl --kubeconfig ~/.local/share/tally/kubeconfig create job hello --image=process -- echo hi
  kubectl --kubeconfig ~/.local/share/tally/kubeconfig logs -f job/hello

This machine is the only node: it runs the containers of Pods as processes, with their command, variables and volumes.
Images are not fetched: a container needs a command, and uses the programs and files of this machine. The containers
are isolated, if Tally is run by root or the kernel permits user namespaces: they see no other processes, a /tmp of their
own, and neither the data directory nor the kubeconfig. With --no-node no Pods run. When tally stops, processes get SIGTERM and up to 30 seconds to exit; the Jobs resume at the next start.

Exit code 0: stopped by SIGINT or SIGTERM; 1: startup failed, the cluster stopped unexpectedly, or a second signal
stopped it at once; 2: bad usage.")]
pub struct Args {
    /// Directory for objects and keys [default: $XDG_DATA_HOME/tally, or ~/.local/share/tally]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Keep objects in memory and delete all data at the end
    #[arg(long, conflicts_with = "data_dir")]
    ephemeral: bool,
    /// Address and port to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6443", value_parser = parse_address)]
    listen: SocketAddr,
    /// Loopback address and port of the page for browsers, which has a link of its own; '' for no page
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0", value_parser = parse_page_address)]
    web_listen: PageAddress,
    /// Path of the kubeconfig to write [default: kubeconfig in the data directory]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Run no node: Pods are stored but not started
    #[arg(long)]
    no_node: bool,
    /// Use N hollow nodes instead of this machine: their Pods succeed at once without running, or behave as their
    /// annotations request; for tests and measurements
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    hollow: u32,
    /// How long Events are kept after they were last written
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_ttl)]
    event_ttl: Duration,
    /// How long finished Jobs stay that have no TTL, in namespaces without the annotation
    /// tally.dev/default-ttl-seconds-after-finished [default: until they are deleted]
    #[arg(long, value_name = "TIME", value_parser = crate::controller::default_ttl)]
    default_ttl: Option<i32>,
    /// Disk space for the logs of Pods that have ended; the oldest logs are removed first
    #[arg(long, value_name = "BYTES", default_value = "10Gi", value_parser = parse_bytes)]
    ended_logs: u64,
    /// How often logs and the disk space of Pods are looked at; for tests
    #[arg(long, value_name = "TIME", hide = true, value_parser = parse_ttl)]
    housekeeping_interval: Option<Duration>,
    /// Give every container its own mount and PID namespaces, without the data directory and the kubeconfig; --isolate=false
    /// to give it all that Tally can reach [default: if this machine permits it]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    isolate: Option<bool>,
    /// Maximum number of processes and threads of a Pod; 0: no limit [default: 4096, if this machine can limit it]
    #[arg(long, value_name = "N", value_parser = parse_pids)]
    pod_pids_limit: Option<u64>,
    /// Users of this machine, such as 1000,20000-29999, that Pods may name (runAsUser) in namespaces with the Pod
    /// security level baseline or restricted [default: nobody (65534), and the user that runs Tally]
    #[arg(long, value_name = "LIST", default_value = "", hide_default_value = true)]
    pod_users: IdRanges,
    /// The same for groups (runAsGroup, fsGroup, supplementalGroups) [default: 65534, and, unless root runs Tally, its
    /// group]
    #[arg(long, value_name = "LIST", default_value = "", hide_default_value = true)]
    pod_groups: IdRanges,
    /// Controllers to run, separated by commas; '' for none, '*' for all
    #[arg(long, value_name = "LIST", default_value = "*", value_parser = controllers::parse)]
    controllers: controllers::Chosen,
    /// Switch features of the Job API off or on, as NAME=true|false, separated by commas; `tally version -o json` lists the
    /// names
    #[arg(long, value_name = "LIST", default_value = "", hide_default_value = true)]
    feature_gates: FeatureGates,
    /// Maximum number of open connections; beyond it, the client that has most of them loses one to a new client
    /// [default: 900, or what the limit of open files allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    max_connections: Option<u32>,
    /// Maximum number of requests that are processed at once, without watches; an eighth of them is reserved for
    /// administrators
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(8..=10_000))]
    max_requests_inflight: u16,
    /// Record requests in FILE, one JSON object per line
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// Which requests are recorded: an audit.k8s.io/v1 Policy with the levels None and Metadata [default: writes, and
    /// everything about Secrets and tokens]
    #[arg(long, value_name = "FILE", requires = "audit_log")]
    audit_policy: Option<PathBuf>,
    /// Size in megabytes at which the audit log is rotated
    #[arg(long, value_name = "MB", default_value_t = 100, requires = "audit_log", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    audit_log_maxsize: u32,
    /// Number of rotated audit logs to keep; 0 keeps all
    #[arg(long, value_name = "N", default_value_t = 10, requires = "audit_log", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    audit_log_maxbackup: u32,
    /// Log on standard error which Jobs are left to other controllers (spec.managedBy); may be repeated to log more
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

impl Args {
    /// How much clients can occupy, and the audit log.
    fn server_options(&self) -> Result<ServerOptions> {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let room = files.map_or(u32::MAX, |files| u32::try_from(files).unwrap_or(u32::MAX).saturating_sub(OTHER_FILES));
        let connections = match self.max_connections {
            None => MOST_CONNECTIONS.min(room.max(FEWEST_CONNECTIONS)),
            Some(wanted) if wanted > room => bail!(
                "--max-connections {wanted}: this process may open {} files, of which it needs {OTHER_FILES} for other \
                 purposes; raise the limit (ulimit -n), or choose at most {room}",
                room.saturating_add(OTHER_FILES)
            ),
            Some(wanted) => wanted,
        };
        let flow = FlowLimits::with_seats(usize::from(self.max_requests_inflight));
        Ok(ServerOptions { connections, flow, audit: self.open_audit_log()?, ..ServerOptions::default() })
    }

    fn open_audit_log(&self) -> Result<Option<Arc<AuditLog>>> {
        let Some(path) = &self.audit_log else { return Ok(None) };
        let policy = match &self.audit_policy {
            None => AuditPolicy::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path);
                let text = text.with_context(|| format!("--audit-policy: cannot read {}", path.display()))?;
                AuditPolicy::parse(&text).with_context(|| format!("--audit-policy: cannot use {}", path.display()))?
            }
        };
        let options = AuditOptions {
            path: std::path::absolute(path).with_context(|| format!("--audit-log: cannot use {}", path.display()))?,
            max_bytes: u64::from(self.audit_log_maxsize) * 1_000_000,
            max_backups: usize::try_from(self.audit_log_maxbackup).unwrap_or(usize::MAX),
            policy,
        };
        let opened = AuditLog::open(options, Box::new(terminal::tell::<String>));
        Ok(Some(opened.context("--audit-log")?))
    }

    /// What the user asked for is required; the default applies where it can.
    fn pids_limit(&self) -> Option<PidsLimit> {
        match self.pod_pids_limit {
            None => Some(PidsLimit { most: DEFAULT_POD_PIDS, required: false }),
            Some(0) => None,
            Some(most) => Some(PidsLimit { most, required: true }),
        }
    }

    fn pod_ids(&self) -> PodIds {
        data_dir::with_own_ids(PodIds { users: self.pod_users.clone(), groups: self.pod_groups.clone() })
    }

    /// Whether this machine is a node.
    fn runs_pods(&self) -> bool {
        !self.no_node && self.hollow == 0
    }
}

/// Where the page listens. None: there is no page.
type PageAddress = Option<SocketAddr>;

fn parse_page_address(text: &str) -> Result<PageAddress, String> {
    if text.is_empty() { Ok(None) } else { crate::web::parse_address(text).map(Some) }
}

pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let full = if text.starts_with(':') { format!("127.0.0.1{text}") } else { text.to_owned() };
    let wrong = |_| format!("{text:?} is not an address such as 127.0.0.1:6443");
    full.to_socket_addrs().map_err(wrong)?.next().ok_or_else(|| format!("{text:?} resolves to no address"))
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    let bytes = Quantity::parse(text).ok().and_then(|bytes| u64::try_from(bytes.value()).ok());
    bytes.ok_or_else(|| format!("{text:?} is not a number of bytes such as 500Mi or 10Gi"))
}

fn parse_pids(text: &str) -> Result<u64, String> {
    let pids = text.parse().ok().filter(|pids| *pids == 0 || (FEWEST_POD_PIDS..=MOST_POD_PIDS).contains(pids));
    pids.ok_or_else(|| format!("{text:?} is neither 0 nor a number from {FEWEST_POD_PIDS} to {MOST_POD_PIDS}"))
}

/// A time of at least a second.
fn parse_ttl(text: &str) -> Result<Duration, String> {
    match seconds(text).map(u64::try_from)? {
        Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("{text:?} must be longer than 0")),
    }
}

/// Returns whether the server was stopped gracefully.
pub fn run(args: &Args) -> Result<bool> {
    crate::controller::log::begin_quiet(args.verbose);
    match start(args) {
        Ok(in_order) => Ok(in_order),
        Err(error) => {
            // Exit code 2 means bad usage; this is an environment error.
            terminal::tell(format_args!("{error:#}"));
            Ok(false)
        }
    }
}

/// Returns whether the server was stopped gracefully.
fn start(args: &Args) -> Result<bool> {
    // At least two threads: the server and the writer of the store work at the same time even on one core.
    let workers = std::thread::available_parallelism().map_or(2, usize::from).max(2);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .context("cannot start threads")?;
    // Before anything is created, so that what an interrupted start has created is removed.
    let stop = signals::stop(&[SignalKind::interrupt(), SignalKind::terminate()], 1)
        .context("cannot install signal handlers")?;
    // Held to the end: all processes that use the directory must have exited first.
    let ephemeral = if args.ephemeral { Some(Temporary::new()?) } else { None };
    let data = match (&ephemeral, &args.data_dir) {
        (Some(directory), _) => directory.path().to_owned(),
        (None, Some(directory)) => directory.clone(),
        (None, None) => default_data_dir()?,
    };
    let data = std::path::absolute(&data).with_context(|| format!("cannot use {}", data.display()))?;
    let kubeconfig = args.kubeconfig.clone().unwrap_or_else(|| data.join("kubeconfig"));
    if args.isolate.is_some() && !args.runs_pods() {
        bail!("--isolate needs a node that runs Pods");
    }
    if args.pod_pids_limit.is_some() && !args.runs_pods() {
        bail!("--pod-pids-limit needs a node that runs Pods");
    }
    kubeconfig::check(&kubeconfig)?;
    let listener = TcpListener::bind(args.listen).map_err(|error| address_error(args.listen, "--listen", &error))?;
    let page = args.web_listen.map(|address| Page::bind(address, "--web-listen")).transpose()?;

    let mut at_once = stop.clone();
    let ended = runtime.block_on(async {
        tokio::select! {
            biased;
            // The user requested an immediate stop; the store survives a crash at any point.
            Ok(_) = at_once.wait_for(|stop| *stop == Stop::AtOnce) => Ok(false),
            ended = serve(args, &data, &kubeconfig, (listener, page), stop) => ended.map(|()| true),
        }
    });
    // The shim is released with the last task, and ends the remaining processes of the node.
    runtime.shutdown_timeout(LET_GO_WITHIN);
    wait_for_shim(&data);
    drop(ephemeral);
    ended
}

async fn serve(
    args: &Args,
    data: &Path,
    kubeconfig: &Path,
    (listener, page): (TcpListener, Option<Page>),
    mut stop: watch::Receiver<Stop>,
) -> Result<()> {
    let listener = listen(listener).context("cannot listen")?;
    let ready = prepare(args, data, kubeconfig, listener.local_addr()?, page).await?;
    if let Some(page) = ready.page {
        let mut stop = stop.clone();
        tokio::spawn(page.server.serve(page.listener, async move {
            let _ = stop.wait_for(|stop| *stop != Stop::No).await;
        }));
    }
    let (cluster, registry) = (&ready.cluster, ready.registry.clone());
    let running = args.controllers.running(cluster);
    ready.server.add_controllers(running.clone());
    if let Some(node) = &ready.node {
        ready.server.add_logs(node.logs());
        ready.server.add_sessions(Arc::new(node.sessions()));
        ready.server.add_usage(Arc::new(node.usage()));
        let every = args.housekeeping_interval.unwrap_or(LIMIT_LOGS_EVERY);
        tokio::spawn(limit_logs(node.logs().root, registry.clone(), args.ended_logs, every));
    }
    // Without the socket other commands cannot look at the directory while it is in use. Everything else works.
    let _local = LocalApi::start(data, registry.clone(), ready.node.as_ref().map(ThisNode::logs), running).ok();
    tokio::spawn(registry.clone().expire_events(args.event_ttl));
    tokio::spawn(report_writability(registry.clone()));
    let controllers = controllers::RunningControllers::start(
        &args.controllers,
        cluster,
        registry,
        ready.metrics,
        driver::DriverOptions::default(),
    );
    let broken = AtomicBool::new(false);
    let stopped = async {
        tokio::select! {
            // An error means that the sender is gone and no stop can be requested any more.
            _ = stop.wait_for(|stop| *stop != Stop::No) => {}
            () = until_broken(&controllers, ready.node.as_ref()) => broken.store(true, Ordering::Relaxed),
        }
    };
    ready.server.serve(listener, stopped).await;
    if let Some(audit) = ready.audit {
        // All requests have been answered: what they recorded is written, and no more can follow.
        tokio::task::spawn_blocking(move || audit.close()).await?;
    }
    // The controllers stop first: they would replace every Pod that ends. Pods that succeed meanwhile are counted at
    // the next start.
    let finished = controllers.finish().await;
    let ended = match ready.node {
        Some(node) => node.end(DRAIN_WITHIN).await,
        None => Ok(()),
    };
    let finished = finished.and(ended);
    // Waits until the store is on disk; nothing else is left to do.
    ready.registry.close();
    if broken.into_inner() {
        finished?;
        bail!("the controllers or the node stopped unexpectedly; restart tally");
    }
    finished
}

/// Says on standard error when the store stops accepting writes and when it accepts them again.
async fn report_writability(registry: Arc<Registry>) {
    let mut before = None;
    loop {
        let error = registry.poisoned();
        let now = error.as_ref().map(|error| (error.recoverable, error.disk_full));
        if now != before {
            let text = match &error {
                None => "there is room again: writes are accepted".to_owned(),
                Some(error) if error.recoverable => {
                    let what = if error.disk_full { "the disk is full" } else { "the store has to be opened again" };
                    format!("{what}: {error}. Writes are refused until there is room; no restart is needed")
                }
                Some(error) => format!("the store takes no more writes: {error}. Check the disk, then restart tally"),
            };
            // Standard error may be a file on the same disk: that it cannot be written is not an error.
            terminal::tell(text);
            before = now;
        }
        tokio::time::sleep(LOOK_EVERY / 4).await;
    }
}

/// Resolves when the controllers or the node have ended: a server without them would look alive, but no Pod would run.
async fn until_broken(controllers: &controllers::RunningControllers, node: Option<&ThisNode>) {
    while !controllers.has_ended() && !node.is_some_and(ThisNode::has_ended) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn listen(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    // It listens already. A second call changes the length of the queue.
    rustix::net::listen(&listener, LONGEST_BACKLOG)?;
    tokio::net::TcpListener::from_std(listener)
}

struct Ready {
    registry: Arc<Registry>,
    server: Server,
    cluster: Cluster,
    metrics: Arc<ControllerMetrics>,
    node: Option<ThisNode>,
    audit: Option<Arc<AuditLog>>,
    page: Option<ServedPage>,
}

/// Creates everything that is needed, the kubeconfig last: a client that finds it can use the server.
async fn prepare(args: &Args, data: &Path, kubeconfig: &Path, listen: SocketAddr, page: Option<Page>) -> Result<Ready> {
    let mut made = CreatedPaths::default();
    made.data_directory(data)?;
    let (keys, pods) = (data.join("pki"), data.join("node"));
    let isolation = match args.runs_pods() {
        true => Some(PodIsolation::choose(args.isolate, &[data, kubeconfig])?),
        false => None,
    };
    made.note_missing(&keys);
    made.note_missing(&pods);
    let store = if args.ephemeral { Store::memory(StoreOptions::default()) } else { made.store(data)? };
    let pki = Pki::open(&keys, listen.ip())?;
    let registry = data_dir::begin(store, args.feature_gates, args.pod_ids()).await?;
    let installed = tally_server::install_roles(&registry).await;
    installed.map_err(|failure| anyhow!("cannot create the built-in roles: {}", failure.message))?;
    let url = kubeconfig::url(listen);
    let options = args.server_options()?;
    let audit = options.audit.clone();
    let address = url.trim_start_matches("https://").to_owned();
    let server = Server::with_options(registry.clone(), &pki, address, options)?;
    let metrics = Arc::new(ControllerMetrics::new(server.metrics()));
    metrics.reachable(true);
    metrics.gates(args.feature_gates);
    let node = match isolation.clone() {
        Some(isolation) => {
            let settings = NodeSettings {
                root: pods,
                stdin: None,
                isolation,
                pids_limit: args.pids_limit(),
                measure_storage_every: args
                    .housekeeping_interval
                    .map(|every| Span::from_millis(i64::try_from(every.as_millis()).unwrap_or(i64::MAX))),
                keeps: !args.ephemeral,
                attachable: true,
                gates: args.feature_gates,
            };
            let driven = driver::DriverOptions::default();
            Some(ThisNode::start(settings, registry.clone(), metrics.clone(), driven, None).await?)
        }
        None => None,
    };
    if let Some(notes) = node.as_ref().map(ThisNode::notes) {
        tokio::spawn(async move {
            loop {
                notes.next().await.iter().for_each(terminal::tell);
            }
        });
    }
    kubeconfig::write(kubeconfig, listen, &pki)?;
    let page = page.map(|page| page.of_data(data, kubeconfig)).transpose()?;
    made.keep();
    let link = page.as_ref().map(|page| page.link.as_str());
    greet(args, &url, data, kubeconfig, isolation.as_ref(), link);
    let cluster = Cluster {
        root_ca: pki.authority.clone(),
        hollow: args.hollow,
        runs_pods: node.is_some(),
        pod_gc: PodGcOptions { gates: args.feature_gates, ..PodGcOptions::default() },
        exact_deadlines: false,
        only_node: None,
        default_ttl: args.default_ttl,
        gates: args.feature_gates,
    };
    Ok(Ready { registry, server, cluster, metrics, node, audit, page })
}

fn greet(args: &Args, url: &str, data: &Path, kubeconfig: &Path, isolation: Option<&PodIsolation>, link: Option<&str>) {
    let place = if args.ephemeral { "temporary: deleted when tally stops".into() } else { data.display().to_string() };
    let pods = isolation.map(|isolation| format!("  pods        {}\n", isolation.describe())).unwrap_or_default();
    let page = link.map(|link| format!("  page        {link}\n")).unwrap_or_default();
    let mut text = format!(
        "tally is ready at {url}

  data        {place}
  kubeconfig  {}
{page}{pods}  try         kubectl --kubeconfig {} get jobs
",
        kubeconfig.display(),
        quoted(kubeconfig)
    );
    let missing = match (args.controllers.has("job"), args.controllers.has("scheduler"), args.no_node) {
        (false, ..) => Some("no Job controller"),
        (true, false, _) => Some("no scheduler"),
        (true, true, true) if args.hollow == 0 => Some("no node"),
        (true, true, _) => None,
    };
    text += &match missing {
        Some(missing) => format!("\n  Jobs are stored, but nothing runs their Pods: {missing}.\n"),
        None if args.hollow > 0 => "\n  Pods run on hollow nodes: they succeed and no process is started.\n".to_owned(),
        None => "\n  Pods run as processes of this machine: kubectl create job hello --image=process -- echo hi\n"
            .to_owned(),
    };
    let mut out = io::stdout();
    // The reader may have closed the pipe; that is not an error.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

pub fn default_data_dir() -> Result<PathBuf> {
    let from = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    match (from("XDG_DATA_HOME"), from("HOME")) {
        (Some(data), _) => Ok(data.join("tally")),
        (None, Some(home)) => Ok(home.join(".local/share/tally")),
        (None, None) => bail!("no home directory for the data; choose a directory with --data-dir"),
    }
}

/// `flag`: by which the user chose the address.
pub fn address_error(address: SocketAddr, flag: &str, error: &io::Error) -> anyhow::Error {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "another process listens on this address; stop it, or choose another address with {flag} (127.0.0.1:0 \
             selects a free port)"
        ),
        io::ErrorKind::PermissionDenied => {
            format!("ports below 1024 need special privileges; choose another with {flag}")
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("this machine does not have that address; choose another with {flag}")
        }
        _ => format!("choose another address with {flag}"),
    };
    anyhow!("cannot listen on {address}: {error}; {hint}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_be_short() {
        for (text, address) in [(":0", "127.0.0.1:0"), ("0.0.0.0:80", "0.0.0.0:80"), ("[::1]:6443", "[::1]:6443")] {
            assert_eq!(parse_address(text), Ok(address.parse().unwrap()));
        }
        for text in ["", "6443", "localhost", "1.2.3.4", "1.2.3.4:99999"] {
            assert!(parse_address(text).unwrap_err().contains("127.0.0.1:6443"), "{text}");
        }
    }

    #[test]
    fn times_and_sizes_are_read_as_users_write_them() {
        for (text, seconds) in [("1h", 3600), ("90", 90), ("1h30m", 5400), ("1s", 1), ("10ms", 1)] {
            assert_eq!(parse_ttl(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["0", "0s", "-1h", "soon", ""] {
            parse_ttl(text).unwrap_err();
        }
        for (text, bytes) in [("0", 0), ("500", 500), ("1Ki", 1024), ("2Gi", 2 << 30)] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "-1", "much"] {
            assert!(parse_bytes(text).unwrap_err().contains("10Gi"), "{text}");
        }
    }
}
