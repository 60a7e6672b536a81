//! The controllers of the embedded cluster, by name.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use tally_controllers::after::AfterController;
use tally_controllers::cronjob::CronJobs;
use tally_controllers::gc::GarbageCollector;
use tally_controllers::hollow::Hollow;
use tally_controllers::job::{Config, JobController};
use tally_controllers::namespace::Namespaces;
use tally_controllers::pod_gc::{PodGc, PodGcOptions};
use tally_controllers::scheduler::Scheduler;
use tally_controllers::ttl::TtlController;
use tally_controllers::{root_ca, scheduler, service_account};
use tally_core::gates::{FeatureGates, Gate};
use tally_embedded::Embedded;
use tally_registry::Registry;
use tally_runtime::controller::Controller;
use tally_runtime::driver;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The names that `--controllers` accepts.
const NAMES: [&str; 10] =
    ["after", "cronjob", "gc", "job", "namespace", "podgc", "root-ca", "scheduler", "serviceaccount", "ttl"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    names: Vec<&'static str>,
    /// `*` was given.
    all: bool,
}

/// A list of names, separated by commas; '' for none, '*' for all.
pub fn parse(text: &str) -> Result<Chosen, String> {
    if text.trim() == "*" {
        return Ok(Chosen { names: NAMES.to_vec(), all: true });
    }
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let known = |name: &str| {
        NAMES
            .into_iter()
            .find(|known| *known == name)
            .ok_or_else(|| format!("unknown controller {name:?}; available controllers: {}", NAMES.join(", ")))
    };
    Ok(Chosen { names: names.map(known).collect::<Result<_, _>>()?, all: false })
}

impl Chosen {
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// Those that run in such a cluster, by name.
    pub fn running(&self, cluster: &Cluster) -> Vec<&'static str> {
        // Without nodes, a scheduler could only mark each Pod as unschedulable.
        let nodes = cluster.runs_pods || cluster.hollow > 0;
        let wanted = |name: &&str| *name != "scheduler" || !self.all || nodes;
        let names = self.names.iter().copied().filter(wanted);
        names.filter(|name| *name != "ttl" || cluster.gates.enabled(Gate::TTLAfterFinished)).collect()
    }

    fn make(&self, cluster: &Cluster) -> Vec<Box<dyn Controller>> {
        let hollow = (cluster.hollow > 0).then(|| Box::new(Hollow::new(cluster.hollow)) as Box<dyn Controller>);
        self.running(cluster).into_iter().filter_map(|name| make(name, cluster)).chain(hollow).collect()
    }
}

/// What controllers need to know about their cluster.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// The certificate that Pods trust, as PEM.
    pub root_ca: String,
    /// The number of hollow nodes.
    pub hollow: u32,
    /// This machine is a node.
    pub runs_pods: bool,
    pub pod_gc: PodGcOptions,
    /// Deadlines are never early by a part of a second.
    pub exact_deadlines: bool,
    /// The only node, if it has room for all Pods of all Jobs.
    pub only_node: Option<String>,
    /// For finished Jobs that have no TTL.
    pub default_ttl: Option<i32>,
    pub gates: FeatureGates,
}

fn make(name: &str, cluster: &Cluster) -> Option<Box<dyn Controller>> {
    Some(match name {
        "after" => Box::new(AfterController::new(None)),
        "cronjob" => Box::new(CronJobs::default()),
        // Events have no owners and expire by themselves, so they are not garbage-collected.
        "gc" => {
            let kinds = tally_embedded::kinds().into_iter().filter(|kind| kind.plural != "events").collect();
            Box::new(GarbageCollector::new(kinds))
        }
        "job" => {
            let (exact_deadlines, only_node) = (cluster.exact_deadlines, cluster.only_node.as_deref().map(Into::into));
            let config = Config { exact_deadlines, only_node, gates: cluster.gates, ..Config::default() };
            Box::new(JobController::new(config))
        }
        "namespace" => Box::new(Namespaces::new(tally_embedded::kinds())),
        "podgc" => Box::new(PodGc::new(cluster.pod_gc)),
        "root-ca" => Box::new(root_ca::controller(cluster.root_ca.clone())),
        "scheduler" => Box::new(Scheduler::new(scheduler::SchedulerOptions::default())),
        "serviceaccount" => Box::new(service_account::controller()),
        "ttl" => Box::new(TtlController::new(cluster.default_ttl)),
        _ => return None,
    })
}

/// Running controllers.
pub struct RunningControllers {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    /// Keeps the status of quotas, beside the controllers of a cluster.
    quotas: Option<JoinHandle<()>>,
}

impl RunningControllers {
    pub fn start(
        chosen: &Chosen,
        cluster: &Cluster,
        registry: Arc<Registry>,
        metrics: Arc<dyn driver::Observer>,
        options: driver::DriverOptions,
    ) -> Self {
        let quotas = tokio::spawn(registry.clone().keep_quota_status());
        Self { quotas: Some(quotas), ..Self::drive(chosen.make(cluster), registry, metrics, options) }
    }

    /// Runs any controllers.
    pub fn drive(
        controllers: Vec<Box<dyn Controller>>,
        registry: Arc<Registry>,
        observer: Arc<dyn driver::Observer>,
        options: driver::DriverOptions,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        let api = Arc::new(Embedded(registry));
        let stopped = async {
            let _ = stopped.await;
        };
        let driver = driver::run(api, controllers, options, observer, stopped);
        Self { stop, task: tokio::spawn(driver), quotas: None }
    }

    /// Whether the controllers have ended. They should not end before `finish`.
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Stops the controllers and waits for their in-flight requests.
    pub async fn finish(self) -> Result<()> {
        if let Some(quotas) = &self.quotas {
            quotas.abort();
        }
        // If the receiver is gone, the driver has already ended.
        let _ = self.stop.send(());
        self.task.await.map_err(|error| anyhow!("the controllers stopped unexpectedly: {error}"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_named() {
        let names = |text| parse(text).map(|chosen| chosen.names);
        assert_eq!(names(""), Ok(vec![]));
        assert_eq!(names("job, ttl"), Ok(vec!["job", "ttl"]));
        assert_eq!(names("*").unwrap().len(), NAMES.len());
        assert!(names("job,bob").unwrap_err().contains("\"bob\"; available controllers: after, cronjob, gc"));
    }

    #[test]
    fn every_name_stands_for_a_controller() {
        let made = |text: &str, hollow| parse(text).unwrap().make(&Cluster { hollow, ..Cluster::default() }).len();
        assert_eq!(made(&NAMES.join(","), 0), NAMES.len());
        assert_eq!(made("*", 0), NAMES.len() - 1, "no nodes, no scheduler");
        assert_eq!(made("*", 3), NAMES.len() + 1, "one controller for all hollow nodes");
        let machine = Cluster { runs_pods: true, ..Cluster::default() };
        assert_eq!(parse("*").unwrap().make(&machine).len(), NAMES.len(), "its own controller is not among them");
        assert_eq!(parse("*").unwrap().running(&machine), NAMES);
        assert!(!parse("*").unwrap().running(&Cluster::default()).contains(&"scheduler"));
    }
}
