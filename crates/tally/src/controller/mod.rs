//! `tally controller`: the Job controllers against any Kubernetes API server.
//!
//! Errors with an external cause are detected first and reported in one sentence. After that the controllers run until
//! they are stopped, also while the API server is unavailable.

mod checks;
mod flags;
mod health;
mod lead;
pub mod log;
mod revisions;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tally_core::gates::{FeatureGates, Gate};
use tally_runtime::controller::Controller;
use tally_runtime::driver;
use tally_runtime::lease;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::terminal;
pub use flags::default_ttl;
use flags::{Name, Names};
use health::Health;
use lead::{Candidate, Outcome};
use tally_remote::{ContentType, Remote, connect};

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally controller --managed-by example.com/tally    serve the Jobs with spec.managedBy: example.com/tally,
                                                     beside the built-in controller
  tally controller --controllers job                 serve all other Jobs, in place of the built-in
                                                     controller (kube-controller-manager --controllers=*,-job-controller)
  tally controller --kubeconfig ./k --context test --leader-elect=false
                                                     a single process without leader election
  curl 127.0.0.1:8080/metrics                        read the metrics, with --metrics 127.0.0.1:8080

Exit code 0: stopped by SIGINT or SIGTERM; 1: startup failed, the lease was lost, or Jobs and Pods are
stored in different etcd clusters; 2: bad usage.")]
pub struct Args {
    /// Kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the service account of the Pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Controllers to run, separated by commas: after, job, ttl [default: all of them; with --managed-by after,job,
    /// because ttl deletes the Jobs of every manager]
    #[arg(long, value_name = "LIST", value_parser = flags::controllers)]
    controllers: Option<Names>,
    /// Serve only the Jobs whose spec.managedBy is NAME [default: Jobs without the field, or with
    /// kubernetes.io/job-controller]
    #[arg(long, value_name = "NAME", value_parser = flags::manager)]
    managed_by: Option<String>,
    /// How long finished Jobs stay that have no TTL, in namespaces without the annotation
    /// tally.dev/default-ttl-seconds-after-finished [default: until they are deleted]
    #[arg(long, value_name = "DURATION", value_parser = flags::default_ttl)]
    default_ttl: Option<i32>,
    /// Switch features of the Job API off or on, as NAME=true|false, separated by commas; `tally version -o json` lists the
    /// names
    #[arg(long, value_name = "LIST", default_value = "", hide_default_value = true)]
    feature_gates: FeatureGates,
    /// Maximum number of requests per second; 0 sets no client-side limit and relies on the flow control of the API
    /// server
    #[arg(long, value_name = "N", default_value = "0", value_parser = flags::rate)]
    qps: f64,
    /// Number of requests that may exceed --qps in a burst [default: 1.5 times --qps]
    #[arg(long, value_name = "N")]
    burst: Option<u32>,
    /// Maximum number of in-flight requests per controller
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1000))]
    in_flight: u16,
    /// Media type in which Pods and Events are exchanged with the API server: application/json;
    /// application/vnd.kubernetes.protobuf, which costs the API server less; or auto, which reads protobuf where the API
    /// server has it, and sends it once the API server has. Everything else is JSON
    #[arg(long, value_name = "TYPE", default_value = "auto", value_parser = flags::content_type)]
    kube_api_content_type: ContentType,
    /// Enable leader election: only the instance that holds the Lease runs its controllers
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    leader_elect: bool,
    /// How long other instances wait after the last renewal before they take over the Lease
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = flags::duration)]
    leader_elect_lease_duration: Duration,
    /// How long a leader keeps working while it cannot renew the Lease
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = flags::duration)]
    leader_elect_renew_deadline: Duration,
    /// Interval between attempts to acquire or renew the Lease
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = flags::duration)]
    leader_elect_retry_period: Duration,
    /// Name of the Lease
    #[arg(long, value_name = "NAME", default_value = "tally-job-controller")]
    leader_elect_resource_name: String,
    /// Namespace of the Lease
    #[arg(long, value_name = "NAME", default_value = "kube-system")]
    leader_elect_resource_namespace: String,
    /// Address on which to serve /metrics, /livez and /readyz over plain HTTP; '' disables them
    #[arg(long, value_name = "ADDR:PORT", default_value = "", hide_default_value = true, value_parser = flags::address)]
    metrics: Address,
    /// Format of log messages on standard error
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: log::Format,
    /// Log more; may be repeated
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// An alias, because clap treats a field whose type is spelled `Option` as a flag without a required value.
type Address = Option<SocketAddr>;

/// Returns whether the process was stopped in order. An error means bad usage.
pub fn run(args: &Args) -> Result<bool> {
    let lease = lease_of(args)?;
    if args.burst.is_some() && args.qps == 0.0 {
        return Err(anyhow!("--burst has no effect without --qps: with --qps 0 there is no limit"));
    }
    if args.managed_by.is_some() && !args.feature_gates.enabled(Gate::JobManagedBy) {
        return Err(anyhow!("--managed-by needs the feature gate JobManagedBy"));
    }
    log::begin(args.log_format, args.verbose);
    match start(args, lease) {
        Ok(well) => Ok(well),
        Err(error) => {
            // Exit code 2 means bad usage; the command line is not the cause of this error.
            terminal::tell(format_args!("{error:#}"));
            Ok(false)
        }
    }
}

fn lease_of(args: &Args) -> Result<Option<lease::Config>> {
    let config = lease::Config {
        namespace: args.leader_elect_resource_namespace.clone(),
        name: args.leader_elect_resource_name.clone(),
        identity: lead::identity(),
        duration: args.leader_elect_lease_duration,
        renew_deadline: args.leader_elect_renew_deadline,
        retry_period: args.leader_elect_retry_period,
        runs_jobs: args.controllers().0.contains(&Name::Job) && args.managed_by.is_none(),
    };
    if !args.leader_elect {
        return Ok(None);
    }
    if config.name.is_empty() || config.namespace.is_empty() {
        return Err(anyhow!("the Lease needs a name and a namespace (--leader-elect-resource-name, -namespace)"));
    }
    config.check().map_err(|why| anyhow!("invalid --leader-elect flags: {why}"))?;
    Ok(Some(config))
}

fn start(args: &Args, lease: Option<lease::Config>) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let well = runtime.block_on(serve(args, lease))?;
    // The remaining tasks hold no state that could be lost.
    runtime.shutdown_background();
    Ok(well)
}

async fn serve(args: &Args, lease: Option<lease::Config>) -> Result<bool> {
    let place = connect::KubeconfigSource { kubeconfig: args.kubeconfig.clone(), context: args.context.clone() };
    let access = connect::access(&place)?;
    let listener = match args.metrics {
        Some(address) => Some(health::bind(address).await?),
        None => None,
    };
    let remote = Remote::with_content_type(connect::service(&access)?, args.kube_api_content_type);
    let mut stop = stop_signals().context("cannot install signal handlers")?;
    let server = access.server().to_string().trim_end_matches('/').to_owned();
    let lease_name = lease.as_ref().map(|lease| (lease.namespace.as_str(), lease.name.as_str()));
    let controllers = args.controllers();
    let rights = checks::rights(&controllers.0, lease_name);
    let version = tokio::select! {
        version = checks::run(&remote, &server, &controllers.0, &rights) => version?,
        _ = stop.wait_for(|stop| *stop) => return Ok(true),
    };
    let health = Arc::new(Health::new(remote.clone(), &args.leader_elect_resource_name, args.feature_gates));
    let served = args.managed_by.as_deref().unwrap_or("none, or kubernetes.io/job-controller");
    tracing::info!(server, version, managed_by = served, "tally {} has started", env!("CARGO_PKG_VERSION"));
    if let Some(listener) = listener {
        tracing::info!("metrics are at http://{}/metrics", listener.local_addr()?);
        tokio::spawn(health::serve(listener, health.clone()));
    }
    let Some(lease) = lease else {
        let controllers = args.begin(&health);
        work(args, controllers, remote, health, async move {
            let _ = stop.wait_for(|stop| *stop).await;
        })
        .await?;
        return Ok(true);
    };
    lead(args, remote, health, lease, stop).await
}

/// Waits for the lease, runs the controllers while it holds the lease, and then releases it.
async fn lead(
    args: &Args,
    remote: Remote,
    health: Arc<Health>,
    lease: lease::Config,
    mut stop: watch::Receiver<bool>,
) -> Result<bool> {
    let (name, identity) = (lease.name.clone(), lease.identity.clone());
    let mut candidate = Candidate::new(remote.clone(), lease, health.clone());
    if candidate.run(&mut stop).await == Outcome::Stopped {
        return Ok(true);
    }
    // Before that is said: who reads it asks for metrics.
    let controllers = args.begin(&health);
    tracing::info!(lease = name, identity, "this process leads");
    // The lease is held until the controllers have stopped, and the controllers stop when it is lost.
    let (ended, mut has_ended) = watch::channel(false);
    let (lost, mut is_lost) = watch::channel(false);
    let holding = async {
        let outcome = candidate.hold(&mut has_ended).await;
        if outcome == Outcome::Lost {
            let _ = lost.send(true);
        }
        outcome
    };
    let working = async {
        let stopped = async move {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => {}
                _ = is_lost.wait_for(|lost| *lost) => {}
            }
        };
        let worked = work(args, controllers, remote, health.clone(), stopped).await;
        let _ = ended.send(true);
        worked
    };
    let (outcome, worked) = tokio::join!(holding, working);
    health.follows();
    if outcome == Outcome::Lost {
        tracing::error!(lease = name, "the lease is lost: another process may lead, so this one exits");
        return Ok(false);
    }
    candidate.give_back().await;
    worked.map(|()| true)
}

impl Args {
    fn controllers(&self) -> Names {
        self.controllers.clone().unwrap_or_else(|| Names::served_by(self.managed_by.as_deref()))
    }

    /// The controllers of a process that leads from now on.
    fn begin(&self, health: &Health) -> Vec<Box<dyn Controller>> {
        let controllers = self.controllers().make(self.managed_by.as_deref(), self.default_ttl, self.feature_gates);
        health.leads(&controllers);
        controllers
    }
}

/// Runs the controllers until `stop` resolves or the revisions turn out not to be comparable.
async fn work(
    args: &Args,
    controllers: Vec<Box<dyn Controller>>,
    remote: Remote,
    health: Arc<Health>,
    stop: impl Future<Output = ()> + Send,
) -> Result<()> {
    let chosen = args.controllers();
    let burst = args.burst.unwrap_or_else(|| (args.qps * 1.5).ceil() as u32);
    let options = driver::DriverOptions { in_flight: usize::from(args.in_flight), qps: args.qps, burst, events: true };
    let found = Mutex::new(None);
    let counts = chosen.0.contains(&Name::Job);
    let watched = remote.clone();
    let stop = async {
        tokio::select! {
            () = stop => {}
            why = revisions::watch(&watched), if counts => *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(why),
        }
    };
    driver::run(Arc::new(remote), controllers, options, health, stop).await;
    match found.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(why) => Err(anyhow!(why)),
        None => Ok(()),
    }
}

/// `true` from the first SIGINT or SIGTERM on. The second signal exits the process immediately.
fn stop_signals() -> std::io::Result<watch::Receiver<bool>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        let mut either = async || {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        either().await;
        tracing::info!("stopping");
        let _ = stop.send(true);
        either().await;
        std::process::exit(1);
    });
    Ok(stopped)
}
