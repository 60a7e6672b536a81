//! The configuration of a run: how many instances, which Jobs, which faults and how often. Drawn from the seed, then
//! tuned by a named world.

use serde_json::{Value, json};
use tally_core::gates::{FeatureGates, Gate};
use tally_core::ledger::Limits;

use crate::bias::{Bias, Preference};
use crate::choices::Choices;
use crate::cluster::ClusterSetup;

pub const NAMESPACE: &str = "sim";
pub const OTHER_MANAGER: &str = "example.com/other";

/// How often each kind of step is taken. Faults that a run does not have weigh nothing: most bugs need a few faults,
/// and too many hide each other.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    pub deliver: u32,
    pub apply: u32,
    pub answer: u32,
    pub node: u32,
    pub time: u32,
    pub bookmark: u32,
    pub collector: u32,
    pub drop_request: u32,
    pub drop_reply: u32,
    pub refuse: u32,
    pub crash: u32,
    pub pause: u32,
    pub cut: u32,
    pub compact: u32,
    pub clock: u32,
    pub pod_monkey: u32,
    pub job_monkey: u32,
    pub conflict: u32,
    /// Steps of controllers behind bytes, and their faults.
    pub hosts: u32,
    pub host_fault: u32,
    /// Users of a whole cluster.
    pub steer: u32,
    pub node_monkey: u32,
    pub namespace_monkey: u32,
    pub things_monkey: u32,
    pub cron_monkey: u32,
    /// A policy that refuses statuses changes its mind.
    pub policy: u32,
}

impl Weights {
    pub fn table(&self) -> [u32; 26] {
        [
            self.deliver,
            self.apply,
            self.answer,
            self.node,
            self.time,
            self.bookmark,
            self.collector,
            self.drop_request,
            self.drop_reply,
            self.refuse,
            self.crash,
            self.pause,
            self.cut,
            self.compact,
            self.clock,
            self.pod_monkey,
            self.job_monkey,
            self.conflict,
            self.hosts,
            self.host_fault,
            self.steer,
            self.node_monkey,
            self.namespace_monkey,
            self.things_monkey,
            self.cron_monkey,
            self.policy,
        ]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicyKind {
    None,
    FailJob,
    Ignore,
    FailIndex,
    Count,
}

#[derive(Clone, Debug)]
pub struct JobSetup {
    pub indexed: bool,
    pub completions: Option<i32>,
    pub parallelism: i32,
    pub backoff_limit: i32,
    /// The annotations that set the base, the maximum and the jitter of its back-off.
    pub backoff: [Option<&'static str>; 3],
    pub per_index: Option<i32>,
    /// Too many failed indexes let the Pods that run end.
    pub halts_soon: bool,
    pub max_failed_indexes: Option<i32>,
    pub deadline: Option<i64>,
    pub ttl: Option<i32>,
    pub suspend: bool,
    pub replace_when_failed: bool,
    pub failure_policy: FailurePolicyKind,
    pub success_count: Option<i32>,
    /// Rules that replace those above, as JSON.
    pub failure_rules: Option<&'static str>,
    pub success_rules: Option<&'static str>,
    pub managed_elsewhere: bool,
    /// The user sets its selector and labels: Jobs with the same word select each other's Pods.
    pub manual_selector: Option<&'static str>,
    pub on_failure: bool,
    /// The percentage of Pods that fail.
    pub fail_percent: usize,
    /// Its Pods never end by themselves; the deadline ends the Job.
    pub hangs: bool,
    /// The Job has a finalizer of another party.
    pub held: bool,
    /// The Jobs that it waits for: `tally.dev/after`.
    pub after: Option<&'static str>,
    /// How long a Pod may be pending: `tally.dev/pending-timeout`, in seconds.
    pub pending_timeout: Option<&'static str>,
    /// A user changes that annotation to this one once all Jobs exist.
    pub after_later: Option<&'static str>,
    /// Further annotations of the Job, and of its Pods.
    pub annotations: Vec<(&'static str, &'static str)>,
    pub pod_annotations: Vec<(&'static str, &'static str)>,
}

/// The gate JobTrackingWithFinalizers of the instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackingGate {
    On,
    /// Every start of an instance chooses.
    Switches,
    /// The same, and it is off in all instances once the faults stop.
    EndsOff,
    /// Off in every second instance: two leaders that do not agree.
    Skewed,
}

/// Gates that are off in the API server and in all instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatesOff {
    /// JobPodReplacementPolicy and JobManagedBy: no interim conditions (GATE-11).
    pub interim: bool,
    /// JobSuccessPolicy: Complete has no reason (GATE-12).
    pub success_policy: bool,
}

impl GatesOff {
    pub fn gates(self) -> FeatureGates {
        let gates = FeatureGates::ALL_ON.with(Gate::JobSuccessPolicy, !self.success_policy);
        gates.with(Gate::JobPodReplacementPolicy, !self.interim).with(Gate::JobManagedBy, !self.interim)
    }
}

#[derive(Clone, Debug)]
pub struct Setup {
    pub instances: usize,
    pub limits: Limits,
    /// In-flight requests of one controller at once.
    pub in_flight: usize,
    /// Instances wait for a lease, and end when they lose it.
    pub lease: bool,
    /// Instances record events.
    pub events: bool,
    /// Instances also run the controller of the order between Jobs.
    pub order: bool,
    /// The second instance serves the Jobs of another manager, and not these.
    pub side_by_side: bool,
    /// A policy refuses the status of some Jobs, and stays for a time after the faults.
    pub refuses_statuses: bool,
    /// Nodes are lost as long as the world runs.
    pub loses_nodes: bool,
    /// Users who delete a Job keep its Pods, and create the Job again.
    pub orphans: bool,
    /// Users edit statuses, as far as validation permits.
    pub meddles: bool,
    /// No Pod starts by itself after the faults: the time limit of the Job ends it.
    pub stays_pending: bool,
    /// Jobs that are suspended, or have no parallelism, when the faults stop stay so.
    pub stays_suspended: bool,
    pub chaos_steps: usize,
    /// A healed world that is still busy after this many steps has not settled (I9).
    pub heal_steps: usize,
    /// Crash the writer right after this many writes of controllers, with its response lost.
    pub crash_after_write: Option<u64>,
    /// The Job monkey only changes parallelism.
    pub only_scales: bool,
    /// Pods of Jobs with early deletion start behind a gate (TTL-23), as with `tally controller`.
    pub gates_pods: bool,
    pub weights: Weights,
    /// The orders of events that the scheduler prefers, and what that means in this schedule.
    pub preference: Preference,
    pub bias: Bias,
    pub jobs: Vec<JobSetup>,
    /// How the gate JobTrackingWithFinalizers of the instances changes.
    pub tracking: TrackingGate,
    pub gates_off: GatesOff,
    /// All controllers, on nodes, instead of models of a node and a garbage collector.
    pub cluster: Option<ClusterSetup>,
}

impl Setup {
    pub fn draw(choices: &mut Choices) -> Self {
        let instances = 1 + choices.below(2);
        let limits = match choices.below(3) {
            0 => Limits::default(),
            1 => Limits { uncounted: 2, batch: 3 },
            _ => Limits { uncounted: 1 + choices.below(4), batch: 1 + choices.below(6) },
        };
        let mut fault = |weight: u32| if choices.below(2) == 1 { weight } else { 0 };
        let weights = Weights {
            deliver: 40,
            apply: 26,
            answer: 26,
            node: 16,
            time: 5,
            bookmark: 8,
            collector: 6,
            drop_request: fault(2),
            drop_reply: fault(2),
            refuse: fault(2),
            crash: fault(2),
            pause: fault(2),
            cut: fault(2),
            compact: fault(1),
            clock: fault(1),
            pod_monkey: fault(3),
            job_monkey: fault(2),
            conflict: fault(2),
            ..Weights::default()
        };
        let mut jobs: Vec<JobSetup> = (0..1 + choices.below(2)).map(|_| JobSetup::draw(choices)).collect();
        if instances > 1 {
            jobs.iter_mut().for_each(|job| job.manual_selector = None);
        }
        Self {
            instances,
            limits,
            in_flight: if choices.one_in(4) { 1 + choices.below(3) } else { 64 },
            lease: choices.one_in(8),
            events: choices.one_in(4),
            order: false,
            side_by_side: false,
            refuses_statuses: false,
            loses_nodes: false,
            orphans: false,
            meddles: false,
            stays_pending: false,
            stays_suspended: choices.one_in(4),
            chaos_steps: 60 + choices.below(240),
            heal_steps: 60_000,
            crash_after_write: None,
            only_scales: false,
            gates_pods: true,
            weights,
            preference: Preference::Nothing,
            bias: Bias::default(),
            jobs,
            tracking: TrackingGate::On,
            gates_off: GatesOff::default(),
            cluster: None,
        }
    }
}

impl JobSetup {
    pub fn draw(choices: &mut Choices) -> Self {
        let indexed = choices.below(2) == 1;
        let completions = match choices.below(8) {
            7 if !indexed => None,
            6 => Some(0),
            size => Some(1 + size as i32),
        };
        let per_index = (indexed && choices.one_in(3)).then(|| choices.below(3) as i32);
        let failure_policy = match choices.below(9) {
            4 => FailurePolicyKind::FailJob,
            5 => FailurePolicyKind::Ignore,
            6 if per_index.is_some() => FailurePolicyKind::FailIndex,
            7 => FailurePolicyKind::Count,
            _ => FailurePolicyKind::None,
        };
        let hangs = choices.one_in(10);
        // SPECVAL-15 and -20: values that exceed the completions are refused.
        let most = completions.unwrap_or(0);
        Self {
            indexed,
            completions,
            parallelism: *choices.pick(&[1, 2, 3, 4, 0]),
            backoff_limit: if per_index.is_some() { i32::MAX } else { *choices.pick(&[6, 1, 0, 3]) },
            // Not drawn: worlds set it.
            backoff: [None; 3],
            halts_soon: false,
            per_index,
            max_failed_indexes: (per_index.is_some() && choices.one_in(3)).then(|| most.min(choices.below(2) as i32)),
            deadline: (hangs || choices.one_in(8)).then(|| *choices.pick(&[30, 600, 5])),
            ttl: choices.one_in(5).then(|| *choices.pick(&[0, 20, 300])),
            suspend: choices.one_in(8),
            replace_when_failed: choices.one_in(3),
            failure_policy,
            failure_rules: None,
            success_rules: None,
            success_count: (indexed && choices.one_in(5)).then(|| most.min(1 + choices.below(2) as i32)),
            managed_elsewhere: choices.one_in(25),
            manual_selector: choices.one_in(12).then_some("a"),
            on_failure: failure_policy == FailurePolicyKind::None && choices.one_in(6),
            fail_percent: *choices.pick(&[10, 0, 40, 100]),
            hangs,
            held: choices.one_in(12),
            after: None,
            pending_timeout: None,
            after_later: None,
            annotations: Vec::new(),
            pod_annotations: Vec::new(),
        }
    }

    /// The Job as a client sends it.
    pub fn job(&self, number: usize) -> Value {
        let codes = json!({"operator": "In", "values": [3]});
        let rule = |action: &str| json!({"rules": [{"action": action, "onExitCodes": codes}]});
        let rules = |text: &str| match serde_json::from_str::<Value>(text) {
            Ok(rules) => json!({"rules": rules}),
            Err(error) => unreachable!("rules of a scenario: {error}: {text}"),
        };
        let success_policy = match self.success_rules {
            Some(text) => rules(text),
            None => self.success_count.map_or(Value::Null, |count| json!({"rules": [{"succeededCount": count}]})),
        };
        let failure_policy = match self.failure_policy {
            _ if self.failure_rules.is_some() => self.failure_rules.map_or(Value::Null, rules),
            FailurePolicyKind::None => Value::Null,
            FailurePolicyKind::FailJob => rule("FailJob"),
            FailurePolicyKind::FailIndex => rule("FailIndex"),
            FailurePolicyKind::Count => rule("Count"),
            FailurePolicyKind::Ignore => {
                let condition = json!({"type": "DisruptionTarget", "status": "True"});
                json!({"rules": [{"action": "Ignore", "onPodConditions": [condition]}]})
            }
        };
        let names = ["tally.dev/backoff-base", "tally.dev/backoff-max", "tally.dev/backoff-jitter"];
        let annotated = names.into_iter().zip(self.backoff).filter_map(|(name, value)| Some((name, value?)));
        let halt = self.halts_soon.then_some(("tally.dev/halt", "soon"));
        let order = [("tally.dev/after", self.after), ("tally.dev/pending-timeout", self.pending_timeout)];
        let order = order.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let further = self.annotations.iter().copied();
        let annotations: serde_json::Map<String, Value> = annotated
            .chain(halt)
            .chain(order)
            .chain(further)
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        let pod_annotations: serde_json::Map<String, Value> =
            self.pod_annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        let pod_annotations = if pod_annotations.is_empty() { Value::Null } else { pod_annotations.into() };
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "annotations": if annotations.is_empty() { Value::Null } else { annotations.into() },
                "name": format!("job-{number}"),
                "namespace": NAMESPACE,
                "finalizers": if self.held { json!(["example.com/hold"]) } else { Value::Null },
            },
            "spec": {
                "parallelism": self.parallelism,
                "completions": self.completions,
                "backoffLimit": self.backoff_limit,
                "backoffLimitPerIndex": self.per_index,
                "maxFailedIndexes": self.max_failed_indexes,
                "activeDeadlineSeconds": self.deadline,
                "ttlSecondsAfterFinished": self.ttl,
                "suspend": self.suspend,
                "completionMode": self.indexed.then_some("Indexed"),
                "podReplacementPolicy": self.replace_when_failed.then_some("Failed"),
                "managedBy": self.managed_elsewhere.then_some(OTHER_MANAGER),
                "manualSelector": self.manual_selector.map(|_| true),
                "selector": self.manual_selector.map(|word| json!({"matchLabels": {"app": word}})),
                "successPolicy": success_policy,
                "podFailurePolicy": failure_policy,
                "template": {"metadata": {
                    "labels": self.manual_selector.map(|word| json!({"app": word})),
                    "annotations": pod_annotations,
                }, "spec": {
                    "restartPolicy": if self.on_failure { "OnFailure" } else { "Never" },
                    "containers": [{"name": "c", "image": "i"}],
                }},
            },
        })
    }
}
