//! The cluster of one run: a store, the controllers and a node, in this process. No server, no certificates.
//!
//! The kind of node is chosen in one place, [`PodRunner::start`]. All other code works with any node.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use tally_api::pod_security::PodIds;
use tally_controllers::hollow::Hollow;
use tally_controllers::pod_gc::PodGcOptions;
use tally_core::gates::FeatureGates;
use tally_core::time::Span;
use tally_node::notes::Notes;
use tally_registry::{EVENT_TTL, Registry};
use tally_runtime::driver::{self, NoopObserver};
use tally_store::{Store, StoreOptions};

use super::follow::display::LogStyle;
use super::follow::outputs::Outputs;
use super::follow::tasks::Tasks;
use super::follow::turns::{JobOrder, OutputOrder};
use super::placement;
use crate::data_dir::{self, CreatedPaths, Temporary};
use crate::isolation::PodIsolation;
use crate::local_api::LocalApi;
use crate::node::{NodeSettings, TaskOptions, ThisNode};
use crate::up::controllers::{self, RunningControllers};
use crate::watch::Inbox;

/// The controllers that a Job needs to finish.
const NEEDED: &str = "after,job,podgc,scheduler";
/// The same, and the controllers that clean up state that is kept longer than the run.
const KEEPING: &str = "after,gc,job,podgc,scheduler,ttl";

/// Pods that have ended are removed earlier than in a cluster, because the state of a run is in the memory of one process:
/// 5,000 need about 50 MB. The Job's counts do not need them.
const ENDED_PODS: PodGcOptions = PodGcOptions {
    period: Span::from_seconds(1),
    quarantine: Span::from_seconds(40),
    terminated_pods: Some(5_000),
    gates: FeatureGates::ALL_ON,
};

/// Every Pod has its own grace period; this is the upper limit for all of them.
const LONGEST_GRACE: Span = Span::from_seconds(24 * 3600);

pub struct Cluster {
    pub registry: Arc<Registry>,
    /// Where the node stores its files.
    pub directory: PathBuf,
    /// The state is kept after this run.
    kept: bool,
    /// Users look at the objects while it runs: Events are recorded, and the API is served in the directory.
    pub is_watched: bool,
    /// What has been created for it so far. It is removed with the cluster, unless it is kept.
    made: CreatedPaths,
    gates: FeatureGates,
}

impl Cluster {
    /// `data_dir`: where the state is stored. `None`: in memory, and in a temporary directory that the caller owns.
    pub async fn open(data_dir: Option<&Path>, temporary: &mut Option<Temporary>, gates: FeatureGates) -> Result<Self> {
        let mut made = CreatedPaths::default();
        let Some(data) = data_dir else {
            let directory = temporary.insert(Temporary::new()?).path().to_owned();
            // Its Jobs are the user's own, like its processes.
            let registry = data_dir::begin(Store::memory(StoreOptions::default()), gates, PodIds::all()).await?;
            return Ok(Self { registry, directory, kept: false, is_watched: false, made, gates });
        };
        made.data_directory(data)?;
        let store = made.store(data)?;
        // Users of `tally up` in the same directory may have created Jobs.
        let registry = data_dir::begin(store, gates, data_dir::with_own_ids(PodIds::default())).await?;
        Ok(Self { registry, directory: data.to_owned(), kept: true, is_watched: true, made, gates })
    }

    /// From now on the data directory contains state that must stay.
    pub fn keep(&mut self) {
        self.made.keep();
    }

    /// Starts the node and the controllers. From here on Jobs run, also those that are already in the store. `stdin`: the
    /// standard input of the first container that asks for it.
    pub async fn start(
        &self,
        hollow: u32,
        stdin: Option<OwnedFd>,
        tasks: TaskOptions,
        isolate: bool,
    ) -> Result<RunningCluster> {
        let node = PodRunner::start(self, hollow, stdin, tasks, isolate).await?;
        let only_node = match &node {
            PodRunner::This(node) => placement::only_node(&self.registry, node.name(), node.room())?,
            PodRunner::Hollow(_) => None,
        };
        let chosen = controllers::parse(if self.kept { KEEPING } else { NEEDED }).map_err(anyhow::Error::msg)?;
        let told = controllers::Cluster {
            pod_gc: PodGcOptions { gates: self.gates, ..ENDED_PODS },
            exact_deadlines: true,
            only_node,
            gates: self.gates,
            ..controllers::Cluster::default()
        };
        let running = chosen.running(&told);
        let backoffs = Arc::new(Inbox::default());
        let controllers =
            RunningControllers::start(&chosen, &told, self.registry.clone(), backoffs.clone(), self.driven());
        // Without the socket other commands cannot look at the directory while it is in use. Everything else works.
        let logs = match &node {
            PodRunner::This(node) => Some(node.logs()),
            PodRunner::Hollow(_) => None,
        };
        if self.is_watched {
            tokio::spawn(self.registry.clone().expire_events(EVENT_TTL));
        }
        let served = || LocalApi::start(&self.directory, self.registry.clone(), logs, running).ok();
        let local = self.is_watched.then(served).flatten();
        Ok(RunningCluster { controllers, node, backoffs, local })
    }

    /// If the Events of a run cannot be read, they are not recorded.
    fn driven(&self) -> driver::DriverOptions {
        driver::DriverOptions { events: self.is_watched, ..driver::DriverOptions::default() }
    }

    /// Whether the store accepts no more writes because the disk or the user's quota is full.
    pub fn disk_is_full(&self) -> bool {
        self.registry.poisoned().is_some_and(|error| error.disk_full)
    }

    /// Waits until everything is on disk.
    pub fn close(self) {
        self.registry.close();
    }
}

/// Running controllers and node.
pub struct RunningCluster {
    controllers: RunningControllers,
    node: PodRunner,
    backoffs: Arc<Inbox>,
    /// For other commands that look at the data directory.
    local: Option<LocalApi>,
}

impl RunningCluster {
    /// What Jobs wait for before they retry.
    pub fn backoffs(&self) -> Arc<Inbox> {
        self.backoffs.clone()
    }

    /// What serves the API, for a view that stays longer than what runs.
    pub fn take_api(&mut self) -> Option<LocalApi> {
        self.local.take()
    }

    /// Where the node has its files. None: the nodes are hollow.
    pub fn files(&self) -> Option<PathBuf> {
        match &self.node {
            PodRunner::This(node) => Some(node.logs().root),
            PodRunner::Hollow(_) => None,
        }
    }

    /// What the tasks print. None: the nodes are hollow.
    pub fn outputs(&self, style: LogStyle, order: OutputOrder, jobs: JobOrder) -> Option<Outputs> {
        match &self.node {
            PodRunner::This(node) => {
                Some(Outputs::new(node.logs().root, node.outputs(), style, Tasks::new(order, jobs)))
            }
            PodRunner::Hollow(_) => None,
        }
    }

    /// Notices about the node for the user.
    pub fn notes(&self) -> Arc<Notes> {
        match &self.node {
            PodRunner::This(node) => node.notes(),
            PodRunner::Hollow(_) => Arc::default(),
        }
    }

    /// Whether the controllers or the node have stopped unexpectedly.
    pub fn has_ended(&self) -> bool {
        self.controllers.has_ended() || self.node.has_ended()
    }

    /// Called when all Jobs are finished and nothing runs; what still runs is killed.
    pub async fn finish(self) -> Result<()> {
        self.controllers.finish().await?;
        self.node.finish().await
    }

    /// Called when nothing can be recorded any more: what runs is killed, and is run again by a later run.
    pub async fn abandon(self) -> Result<()> {
        let finished = self.controllers.finish().await;
        let ended = match self.node {
            PodRunner::This(node) => node.abandon().await,
            node @ PodRunner::Hollow(_) => node.finish().await,
        };
        finished.and(ended)
    }

    /// Stops everything gracefully, whatever is running.
    pub async fn end(self) -> Result<()> {
        // The controllers stop first: they would replace every Pod that ends.
        let finished = self.controllers.finish().await;
        // The node records which Pods it ended itself, also if it is killed before the drain is complete. Hollow Pods
        // continue in a later run.
        let ended = match self.node {
            PodRunner::This(node) => node.end(LONGEST_GRACE).await,
            node @ PodRunner::Hollow(_) => node.finish().await,
        };
        finished.and(ended)
    }
}

/// What runs the Pods.
enum PodRunner {
    This(ThisNode),
    Hollow(RunningControllers),
}

impl PodRunner {
    async fn start(
        cluster: &Cluster,
        hollow: u32,
        stdin: Option<OwnedFd>,
        tasks: TaskOptions,
        isolate: bool,
    ) -> Result<Self> {
        let (registry, observer) = (cluster.registry.clone(), Arc::new(NoopObserver));
        if hollow == 0 {
            let root = cluster.directory.join("node");
            let (driven, keeps, gates) = (cluster.driven(), cluster.kept, cluster.gates);
            let isolation = PodIsolation::choose(Some(isolate), &[&cluster.directory])?;
            let settings = NodeSettings {
                root,
                stdin,
                isolation,
                pids_limit: None,
                measure_storage_every: None,
                keeps,
                attachable: false,
                gates,
            };
            return Ok(Self::This(ThisNode::start(settings, registry, observer, driven, Some(tasks)).await?));
        }
        Ok(Self::Hollow(RunningControllers::drive(
            vec![Box::new(Hollow::new(hollow))],
            registry,
            observer,
            cluster.driven(),
        )))
    }

    fn has_ended(&self) -> bool {
        match self {
            Self::This(node) => node.has_ended(),
            Self::Hollow(running) => running.has_ended(),
        }
    }

    /// Stops the node. No process of a Job should be running any more.
    async fn finish(self) -> Result<()> {
        match self {
            Self::This(node) => node.end(Span::ZERO).await,
            Self::Hollow(running) => running.finish().await,
        }
    }
}
