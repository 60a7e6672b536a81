//! A whole cluster: every controller that production runs, behind bytes, on nodes, with the users that such a cluster
//! has. They replace the models of a node and of a garbage collector.

use serde_json::{Value, json};
use tally_controllers::cronjob::CronJobs;
use tally_controllers::gc::GarbageCollector;
use tally_controllers::hollow::{Hollow, PREFIX};
use tally_controllers::namespace::Namespaces;
use tally_controllers::pod_gc::PodGc;
use tally_controllers::scheduler::Scheduler;
use tally_controllers::{pod_gc, root_ca, scheduler, service_account};
use tally_core::time::Timestamp;
use tally_runtime::controller::{Call, Controller, Kind, Reply, Verb};

use crate::api::Actor;
use crate::archive::{Archive, Version};
use crate::choices::Choices;
use crate::counters::Sometimes;
use crate::judge::is_finished;
use crate::oracle::Context;
use crate::setup::{JobSetup, NAMESPACE};
use crate::trace::describe_call;
use crate::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Job,
    Ttl,
    After,
    Candidate,
    Recorder,
    Collector,
    PodCollector,
    Scheduler,
    Node,
    Namespaces,
    ServiceAccounts,
    RootCa,
    CronJobs,
}

const ROLES: [Role; 8] = [
    Role::Node,
    Role::Scheduler,
    Role::Collector,
    Role::PodCollector,
    Role::Namespaces,
    Role::ServiceAccounts,
    Role::RootCa,
    Role::CronJobs,
];

/// The kinds of a simulated cluster. More kinds would only be more quiet streams.
pub(crate) const KINDS: [Kind; 7] =
    [Kind::POD, Kind::JOB, Kind::CRON_JOB, Kind::CONFIG_MAP, Kind::SERVICE_ACCOUNT, Kind::NODE, Kind::NAMESPACE];

pub(crate) const CERTIFICATE: &str = "PEM";

#[derive(Clone, Debug)]
pub struct ClusterSetup {
    /// The number of replicas of every controller.
    pub replicas: usize,
    pub crons: usize,
    pub nodes: u32,
    pub pods_per_node: usize,
    pub cpus_per_node: usize,
    /// How many ended Pods may stay.
    pub ended_pods: Option<usize>,
    /// Nodes that are lost when the faults stop stay so, unless all are.
    pub nodes_stay_lost: bool,
    /// CronJobs go on for a while when the faults stop.
    pub crons_go_on: bool,
}

impl ClusterSetup {
    pub fn of(replicas: usize, crons: usize) -> Self {
        Self {
            replicas,
            crons,
            nodes: 2,
            pods_per_node: 3,
            cpus_per_node: 2,
            ended_pods: None,
            nodes_stay_lost: false,
            crons_go_on: false,
        }
    }

    pub(crate) fn draw(&mut self, choices: &mut Choices) {
        self.nodes = 1 + choices.below(3) as u32;
        self.pods_per_node = 2 + choices.below(4);
        self.cpus_per_node = 1 + choices.below(3);
        self.ended_pods = *choices.pick(&[None, Some(2), Some(0)]);
    }
}

impl World {
    pub(crate) fn archive(&self) -> &Archive {
        &self.api.archive
    }

    fn cluster(&self) -> ClusterSetup {
        self.setup.cluster.clone().unwrap_or_else(|| ClusterSetup::of(1, 0))
    }

    pub(crate) fn begin_cluster(&mut self) {
        self.api.begin_cluster();
        let cluster = self.cluster();
        self.user_creates(Kind::NAMESPACE, "", &json!({"metadata": {"name": NAMESPACE}}));
        for node in 0..cluster.nodes {
            self.create_node(node);
        }
        for role in ROLES {
            for _ in 0..cluster.replicas {
                let host = self.new_host(role, None);
                self.hosts.push(host);
            }
        }
        self.judge.begin(self.hosts.iter().map(|host| host.role).collect());
        for number in 0..cluster.crons {
            self.create_cron_job(number);
        }
    }

    /// A controller that only runs in a whole cluster.
    pub(crate) fn cluster_controller(&self, role: Role) -> Box<dyn Controller> {
        let cluster = self.cluster();
        match role {
            Role::Job | Role::Ttl | Role::After | Role::Candidate | Role::Recorder => unreachable!("made elsewhere"),
            Role::Collector => Box::new(GarbageCollector::new(KINDS.to_vec())),
            Role::PodCollector => {
                let options = pod_gc::PodGcOptions { terminated_pods: cluster.ended_pods, ..Default::default() };
                Box::new(PodGc::new(options))
            }
            Role::Scheduler => Box::new(Scheduler::new(scheduler::SchedulerOptions::default())),
            Role::Node => Box::new(Hollow::new(cluster.nodes)),
            Role::Namespaces => Box::new(Namespaces::new(KINDS.to_vec())),
            Role::ServiceAccounts => Box::new(service_account::controller()),
            Role::RootCa => Box::new(root_ca::controller(CERTIFICATE.to_owned())),
            Role::CronJobs => Box::new(CronJobs::default()),
        }
    }

    // ---- users ----

    fn user_asks(&mut self, call: &Call) -> Reply {
        let reply = self.api.perform(call, Actor::User);
        self.trace.say(|| {
            let refused = if reply.is_done() { "" } else { ", and is refused" };
            format!("user: {}{refused}", describe_call(call))
        });
        self.settle_changes(Context::default());
        reply
    }

    fn user_creates(&mut self, kind: Kind, namespace: &str, object: &Value) -> bool {
        self.user_asks(&Call::new(Verb::Create, kind, namespace, "").body(object)).is_done()
    }

    fn user_patches(&mut self, kind: Kind, version: &Version, patch: &Value) {
        let call = Call::new(Verb::MergePatch, kind, &version.namespace, &version.name).body(patch);
        self.user_asks(&call);
    }

    fn user_deletes(&mut self, kind: Kind, namespace: &str, name: &str) {
        let policy = *self.choices.pick(&["Background", "Foreground", "Orphan"]);
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
        self.user_asks(&Call::new(Verb::Delete, kind, namespace, name).body(&options));
    }

    fn choose(&mut self, kind: Kind) -> Option<std::sync::Arc<Version>> {
        let count = self.archive().all(&kind).count();
        let at = self.choices.below(count);
        self.archive().all(&kind).nth(at).cloned()
    }

    fn create_node(&mut self, number: u32) {
        let cluster = self.cluster();
        let (cpu, pods) = (cluster.cpus_per_node.to_string(), cluster.pods_per_node.to_string());
        let resources = json!({"cpu": cpu, "memory": "1Gi", "pods": pods});
        let node = json!({
            "metadata": {"name": format!("hollow-{number}")},
            "status": {
                "capacity": resources, "allocatable": resources,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        self.user_creates(Kind::NODE, "", &node);
    }

    /// Sets what the Pods of a Job do on a hollow node, and which resources they request.
    pub(crate) fn dress(&mut self, job: &mut Value, setup: &JobSetup) {
        let mut annotations = json!({format!("{PREFIX}restart-delay"): "1s"});
        let mut say = |key: &str, value: &str| annotations[format!("{PREFIX}{key}")] = value.into();
        match *self.choices.pick(&["1s", "", "4s", "0s"]) {
            _ if setup.hangs => say("run-for", "8760h"),
            "" => {}
            run_for => say("run-for", run_for),
        }
        if setup.fail_percent == 100 {
            say("exit-code", "1");
        }
        if self.choices.one_in(3) {
            say("terminate-after", "2s");
        }
        let cpu = *self.choices.pick(&["100m", "500m", "1"]);
        let template = &mut job["spec"]["template"];
        template["metadata"]["annotations"] = annotations;
        template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    }

    /// Tells the hollow node how a Pod ends.
    pub(crate) fn user_steers(&mut self) -> bool {
        let Some(pod) = self.choose(Kind::POD).filter(|pod| !pod.has_ended()) else { return false };
        let owner = pod.owners().first().and_then(|owner| owner["uid"].as_str()).unwrap_or_default();
        let fate = self.fates.iter().find(|(uid, _)| uid.to_string() == owner).map(|(_, fate)| fate);
        let (percent, hangs) = fate.map_or((20, false), |fate| (fate.fail_percent, fate.hangs));
        let (key, value) = match self.choices.below(6) {
            0 if self.choices.one_in(2) => ("disrupted", "TerminationByKubelet"),
            1 if !hangs => ("run-for", *self.choices.pick(&["0s", "2s", "20s"])),
            _ if self.choices.below(100) < percent => ("exit-code", *self.choices.pick(&["1", "3", "42"])),
            _ => ("exit-code", "0"),
        };
        self.user_patches(Kind::POD, &pod, &json!({"metadata": {"annotations": {format!("{PREFIX}{key}"): value}}}));
        true
    }

    pub(crate) fn node_monkey(&mut self) -> bool {
        let Some(node) = self.choose(Kind::NODE) else {
            self.create_node(0);
            return true;
        };
        match self.choices.below(5) {
            0 | 1 => {
                self.counters.hit(Sometimes::NodeDeleted);
                let call = Call::new(Verb::Delete, Kind::NODE, "", &node.name);
                self.user_asks(&call);
            }
            2 => {
                let number = self.choices.below(self.cluster().nodes as usize) as u32;
                self.create_node(number);
            }
            3 => {
                let cordoned = node.object().pointer("/spec/unschedulable") == Some(&Value::Bool(true));
                self.user_patches(Kind::NODE, &node, &json!({"spec": {"unschedulable": !cordoned}}));
            }
            _ => {
                let out = !node.list("/spec/taints").is_empty();
                let taints = json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]);
                let taints = if out { Value::Null } else { taints };
                self.user_patches(Kind::NODE, &node, &json!({"spec": {"taints": taints}}));
            }
        }
        true
    }

    pub(crate) fn namespace_monkey(&mut self) -> bool {
        match self.archive().get(&Kind::NAMESPACE, "", NAMESPACE) {
            None => {
                self.lose_requests_about(NAMESPACE);
                self.counters.hit(Sometimes::NamespaceRecreated);
                self.user_creates(Kind::NAMESPACE, "", &json!({"metadata": {"name": NAMESPACE}}))
            }
            Some(namespace) if namespace.deleting() => false,
            Some(_) => {
                self.user_asks(&Call::new(Verb::Delete, Kind::NAMESPACE, "", NAMESPACE));
                true
            }
        }
    }

    /// Objects of other kinds, owned by any object, including deleted ones.
    pub(crate) fn things_monkey(&mut self) -> bool {
        match self.choices.below(12) {
            0..=3 => {
                let name = format!("thing-{}", self.choices.below(5));
                let owners = self.some_owners();
                let metadata = json!({"name": name, "ownerReferences": owners});
                self.user_creates(Kind::CONFIG_MAP, NAMESPACE, &json!({"metadata": metadata}));
            }
            4..=6 => {
                let Some(thing) = self.choose(Kind::CONFIG_MAP) else { return false };
                self.user_deletes(Kind::CONFIG_MAP, &thing.namespace, &thing.name);
            }
            7 | 8 => {
                let Some(thing) = self.choose(Kind::CONFIG_MAP) else { return false };
                let owners = self.some_owners();
                self.user_patches(Kind::CONFIG_MAP, &thing, &json!({"metadata": {"ownerReferences": owners}}));
            }
            9 | 10 => {
                let name = format!("pod-{}", self.choices.below(4));
                let owners = self.some_owners();
                let cpu = *self.choices.pick(&["100m", "1", "700m"]);
                let run_for = *self.choices.pick(&["1s", "30s"]);
                self.user_creates(
                    Kind::POD,
                    NAMESPACE,
                    &json!({
                        "metadata": {
                            "name": name, "ownerReferences": owners,
                            "annotations": {format!("{PREFIX}run-for"): run_for},
                        },
                        "spec": {
                            "restartPolicy": "Never",
                            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
                        },
                    }),
                );
            }
            _ => {
                let (kind, name) =
                    *self.choices.pick(&[(Kind::SERVICE_ACCOUNT, "default"), (Kind::CONFIG_MAP, "kube-root-ca.crt")]);
                let Some(kept) = self.archive().get(&kind, NAMESPACE, name).cloned() else { return false };
                if kind == Kind::CONFIG_MAP && self.choices.one_in(2) {
                    self.user_patches(kind, &kept, &json!({"data": {"ca.crt": "FORGED"}}));
                } else {
                    self.user_deletes(kind, NAMESPACE, name);
                }
            }
        }
        true
    }

    /// Up to two owners, some of which may have been deleted long ago.
    fn some_owners(&mut self) -> Value {
        let mut owners: Vec<Value> = Vec::new();
        for _ in 0..self.choices.below(3) {
            let kind = *self.choices.pick(&[Kind::CONFIG_MAP, Kind::JOB, Kind::POD, Kind::CRON_JOB]);
            let log = self.archive().log(&kind);
            let count = log.len();
            if count == 0 {
                continue;
            }
            let at = self.choices.below(count);
            let block = self.choices.one_in(2);
            let version = &self.archive().log(&kind)[at];
            if version.namespace != NAMESPACE || owners.iter().any(|owner| owner["uid"] == version.uid()) {
                continue;
            }
            owners.push(json!({
                "apiVersion": kind.api_version(), "kind": kind.kind, "name": version.name.as_str(),
                "uid": version.uid(), "blockOwnerDeletion": block,
            }));
        }
        owners.into()
    }

    fn create_cron_job(&mut self, number: usize) -> bool {
        let policy = *self.choices.pick(&["Allow", "Forbid", "Replace"]);
        let limit = self.choices.below(3);
        let ttl = *self.choices.pick(&[None, Some(0), Some(90)]);
        let run_for = *self.choices.pick(&["1s", "40s", "100s"]);
        let exit_code = *self.choices.pick(&["0", "0", "1"]);
        let pod = json!({
            "metadata": {"annotations": {format!("{PREFIX}run-for"): run_for, format!("{PREFIX}exit-code"): exit_code}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        });
        let job = json!({"spec": {"backoffLimit": 1, "ttlSecondsAfterFinished": ttl, "template": pod}});
        self.user_creates(
            Kind::CRON_JOB,
            NAMESPACE,
            &json!({
                "metadata": {"name": format!("cron-{number}")},
                "spec": {
                    "schedule": "* * * * *", "concurrencyPolicy": policy,
                    "successfulJobsHistoryLimit": limit, "failedJobsHistoryLimit": limit, "jobTemplate": job,
                },
            }),
        )
    }

    pub(crate) fn cron_monkey(&mut self) -> bool {
        let Some(cron) = self.choose(Kind::CRON_JOB) else { return self.create_cron_job(0) };
        match self.choices.below(4) {
            0 => {
                let suspended = cron.object().pointer("/spec/suspend") == Some(&Value::Bool(true));
                self.user_patches(Kind::CRON_JOB, &cron, &json!({"spec": {"suspend": !suspended}}));
            }
            1 => self.user_deletes(Kind::CRON_JOB, NAMESPACE, &cron.name),
            2 => {
                let policy = *self.choices.pick(&["Allow", "Forbid", "Replace"]);
                self.user_patches(Kind::CRON_JOB, &cron, &json!({"spec": {"concurrencyPolicy": policy}}));
            }
            _ => {
                let number = self.choices.below(self.cluster().crons.max(1));
                self.create_cron_job(number);
            }
        }
        true
    }

    // ---- after the faults ----

    /// Users restore what the cluster needs to finish its work, and end what would never end.
    pub(crate) fn cluster_makes_up(&mut self) {
        if self.setup.cluster.is_none() {
            return;
        }
        let stay_lost = self.cluster().nodes_stay_lost;
        for number in 0..self.cluster().nodes {
            let node = self.archive().get(&Kind::NODE, "", &format!("hollow-{number}")).cloned();
            match node {
                None if stay_lost && number > 0 => {}
                None => self.create_node(number),
                Some(node) => {
                    let spec = json!({"unschedulable": null, "taints": null});
                    self.user_patches(Kind::NODE, &node, &json!({"spec": spec}));
                }
            }
        }
        if !self.crons_go_on() {
            self.suspend_crons();
        }
    }

    pub(crate) fn crons_go_on(&self) -> bool {
        self.setup.cluster.as_ref().is_some_and(|cluster| cluster.crons_go_on)
    }

    fn suspend_crons(&mut self) {
        let crons: Vec<_> = self.archive().all(&Kind::CRON_JOB).cloned().collect();
        for cron in crons {
            self.user_patches(Kind::CRON_JOB, &cron, &json!({"spec": {"suspend": true}}));
        }
    }

    /// Users suspend the CronJobs that went on in a healed world, when it is time: otherwise it would never rest.
    pub(crate) fn crons_end(&mut self) -> bool {
        let ends = self.punctuality.crons_end_at.is_some_and(|at| at <= self.api.now);
        if ends {
            self.punctuality.crons_end_at = None;
            self.suspend_crons();
        }
        ends
    }

    /// G8, when a healed cluster has nothing to do but wait.
    pub(crate) fn cluster_waits(&mut self, wake_at: Option<Timestamp>) {
        let Some(cluster) = &self.setup.cluster else { return };
        let found = self.punctuality.check(&self.api.archive, self.api.now, wake_at, cluster.ended_pods);
        if let Some((invariant, text)) = found {
            self.oracle.fail(invariant, text);
        }
    }

    /// A Pod that fails and is restarted, over and over, and whose Job has no limit, has ended or no longer owns it. No
    /// controller is responsible for it, so a user ends it. If there is a limit, the Job must end it.
    pub(crate) fn users_end_a_stray(&mut self) -> bool {
        let exit_code = format!("{PREFIX}exit-code");
        let is_limited = |owner: &Value| {
            let mut jobs = self.archive().all(&Kind::JOB).filter(|job| owner["uid"] == job.uid());
            jobs.any(|job| {
                !is_finished(job) && job.object()["spec"]["backoffLimit"].as_i64() < Some(i64::from(i32::MAX))
            })
        };
        let is_stray = |pod: &&std::sync::Arc<Version>| {
            let fails = !matches!(pod.object()["metadata"]["annotations"][&exit_code].as_str(), None | Some("0"));
            let restarts = fails && pod.text("/spec/restartPolicy") == "OnFailure";
            restarts && !pod.has_ended() && !pod.deleting() && !pod.owners().iter().any(is_limited)
        };
        let Some(stray) = self.archive().all(&Kind::POD).find(is_stray).cloned() else { return false };
        self.user_patches(Kind::POD, &stray, &json!({"metadata": {"annotations": {exit_code: "0"}}}));
        true
    }

    pub(crate) fn judge_changes(&mut self) {
        let Some(written) = self.api.archive.written.as_mut().map(std::mem::take) else { return };
        for written in &written {
            let asking = self.evidence.asking.as_ref();
            let found = self.judge.observe(written, &self.api.archive, asking, &mut self.counters);
            if let Some((invariant, text)) = found {
                self.oracle.fail(invariant, text);
            }
        }
    }

    pub(crate) fn cluster_at_rest(&mut self) {
        if self.setup.cluster.is_some()
            && let Some((invariant, text)) = self.judge.at_rest(&self.api.archive)
        {
            self.oracle.fail(invariant, text);
        }
    }
}
