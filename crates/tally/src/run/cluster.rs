//! The cluster of one run: a store, the controllers and a node, in this process. No server, no certificates.
//!
//! The node is chosen in one place, [`Node::start`]. What else is here works with any.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use tally_controllers::hollow::Hollow;
use tally_core::time::Span;
use tally_node::notes::Notes;
use tally_registry::Registry;
use tally_runtime::driver::{self, Silent};
use tally_store::{Options, Store};

use super::logs::{HollowLogs, Logs, ProcessLogs};
use crate::node::ThisNode;
use crate::place::{self, Made, Temporary};
use crate::up::controllers::{self, Running};

/// Those a Job needs to come to its end.
const NEEDED: &str = "job,podgc,scheduler";
/// And those that clear away what is kept longer than the run.
const KEEPING: &str = "gc,job,podgc,scheduler,ttl";

/// Every Pod has its own grace period to end in; nobody means a longer one than this.
const LONGEST_GRACE: Span = Span::from_seconds(24 * 3600);

pub struct Cluster {
    pub registry: Arc<Registry>,
    /// What the node keeps goes here.
    pub directory: PathBuf,
    /// Somebody may want to know of it after this run.
    kept: bool,
    /// What has been made for it so far. Gone with the cluster, unless it is kept.
    made: Made,
}

impl Cluster {
    /// `data_dir`: where everything is kept. None: in memory, and in a directory that is the caller's to hold.
    pub async fn open(data_dir: Option<&Path>, temporary: &mut Option<Temporary>) -> Result<Self> {
        let mut made = Made::default();
        let Some(data) = data_dir else {
            let directory = temporary.insert(Temporary::new()?).path().to_owned();
            let registry = place::begin(Store::memory(Options::default())).await?;
            return Ok(Self { registry, directory, kept: false, made });
        };
        made.data_directory(data)?;
        let store = made.store(data)?;
        let registry = place::begin(store).await?;
        Ok(Self { registry, directory: data.to_owned(), kept: true, made })
    }

    /// There is something in it now that is to stay.
    pub fn keep(&mut self) {
        self.made.keep();
    }

    /// From here on Jobs are at work: those that are in the store, too.
    pub async fn start(&self, hollow: u32) -> Result<Working> {
        let node = Node::start(self, hollow).await?;
        let chosen = controllers::parse(if self.kept { KEEPING } else { NEEDED }).map_err(anyhow::Error::msg)?;
        let told = controllers::Cluster::default();
        let controllers = Running::start(&chosen, &told, self.registry.clone(), Arc::new(Silent), self.driven());
        Ok(Working { controllers, node })
    }

    /// Nobody can read the events of a run that keeps nothing.
    fn driven(&self) -> driver::Options {
        driver::Options { events: self.kept, ..driver::Options::default() }
    }

    /// Waits for the disk.
    pub fn close(self) {
        self.registry.store.close();
    }
}

/// Controllers and node at work.
pub struct Working {
    controllers: Running,
    node: Node,
}

impl Working {
    pub fn logs(&self) -> Arc<dyn Logs> {
        self.node.logs()
    }

    /// What a person should know of the node.
    pub fn notes(&self) -> Arc<Notes> {
        match &self.node {
            Node::This(node) => node.notes(),
            Node::Hollow(_) => Arc::default(),
        }
    }

    /// Somebody who should be at work is not any more.
    pub fn has_ended(&self) -> bool {
        self.controllers.has_ended() || self.node.has_ended()
    }

    /// All Jobs are finished, and nothing is running; or nothing can be told any more, and what runs is killed.
    pub async fn finish(self) -> Result<()> {
        self.controllers.finish().await?;
        self.node.finish().await
    }

    /// Ends everything in order, whatever is running.
    pub async fn end(self) -> Result<()> {
        // First those who would put a new Pod in the place of every one that ends.
        let finished = self.controllers.finish().await;
        // It knows what it has ended itself, also when it is killed before it is done. Hollow Pods go on another time.
        let ended = match self.node {
            Node::This(node) => node.end(LONGEST_GRACE).await,
            node @ Node::Hollow(_) => node.finish().await,
        };
        finished.and(ended)
    }
}

/// Whoever runs the Pods.
enum Node {
    This(ThisNode),
    Hollow(Running),
}

impl Node {
    async fn start(cluster: &Cluster, hollow: u32) -> Result<Self> {
        let (registry, observer) = (cluster.registry.clone(), Arc::new(Silent));
        if hollow == 0 {
            let root = cluster.directory.join("node");
            return Ok(Self::This(ThisNode::start(root, registry, observer, cluster.driven()).await?));
        }
        Ok(Self::Hollow(Running::drive(vec![Box::new(Hollow::new(hollow))], registry, observer, cluster.driven())))
    }

    fn logs(&self) -> Arc<dyn Logs> {
        match self {
            Self::This(node) => Arc::new(ProcessLogs::new(node.logs().root)),
            Self::Hollow(_) => Arc::new(HollowLogs),
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            Self::This(node) => node.has_ended(),
            Self::Hollow(running) => running.has_ended(),
        }
    }

    /// Nothing of a Job should be running any more.
    async fn finish(self) -> Result<()> {
        match self {
            Self::This(node) => node.end(Span::ZERO).await,
            Self::Hollow(running) => running.finish().await,
        }
    }
}
