//! The deterministic world: one API, several controller instances, a node, users, a garbage collector, clocks - and
//! between them a network that delays, loses and reorders. One thread, one tape of choices.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use compact_str::CompactString;
use tally_controllers::after::AfterController;
use tally_controllers::job::{Config, JobController};
use tally_controllers::ttl::TtlController;
use tally_core::gates::Gate;
use tally_core::ids::{JobUid, PodUid};
use tally_core::job::JobView;
use tally_core::time::{Span, Timestamp};
use tally_runtime::driver::events::Recorder;

use crate::api::{Actor, Api, Change, Key};
use crate::choices::{Choices, Tape};
use crate::cluster::Role;
use crate::counters::{Counters, Sometimes};
use crate::election::Candidate;
use crate::explained::Told;
use crate::host::{Brain, Host, SenderView, Sent};
use crate::judge::Judge;
use crate::late::Punctuality;
use crate::oracle::{Context, Oracle, Violation};
use crate::setup::{JobSetup, NAMESPACE, OTHER_MANAGER, Setup, TrackingGate};
use crate::trace::{Trace, describe_call, describe_job};

/// When the world begins: a round date without special meaning.
pub(crate) const BEGINNING: Timestamp = Timestamp::from_seconds(1_700_000_000);

pub struct World {
    pub(crate) setup: Setup,
    pub(crate) choices: Choices,
    pub(crate) api: Api,
    /// The Job controller of each instance, the TTL controller of each, then those of the rest of a cluster.
    pub(crate) hosts: Vec<Host>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) oracle: Oracle,
    pub counters: Counters,
    pub(crate) trace: Trace,
    pub(crate) fates: BTreeMap<JobUid, JobSetup>,
    pub(crate) clocks_sane: bool,
    /// What explanations have said about Jobs that wait.
    pub(crate) told: BTreeMap<JobUid, Told>,
    pub(crate) healing: bool,
    /// Until when a policy refuses the status of some Jobs after the faults.
    pub(crate) policy_ends_at: Option<Timestamp>,
    pub steps: usize,
    pub(crate) starts: Starts,
    pub(crate) evidence: Evidence,
    pub(crate) judge: Judge,
    pub(crate) punctuality: Punctuality,
    /// Whether the gate JobTrackingWithFinalizers of each instance is on.
    pub(crate) tracking: Vec<bool>,
}

/// How many controllers were started, and which one is next.
#[derive(Default)]
pub(crate) struct Starts {
    /// Instances, including those that were started again.
    pub(crate) incarnations: usize,
    /// Controllers of any kind.
    hosts: u32,
    /// The turn in a world without faults.
    pub(crate) calm_turn: usize,
}

/// What invariants need to know about the past, and nothing else keeps.
#[derive(Default)]
pub(crate) struct Evidence {
    /// Writes of Job and TTL controllers that were carried out.
    pub(crate) writes: u64,
    pub(crate) last_status_writer: BTreeMap<Key, usize>,
    /// Which Pods each incarnation has ever requested to remove.
    pub(crate) removals_asked: BTreeSet<(usize, u32, CompactString)>,
    /// What the controller whose request is being carried out knew.
    pub(crate) asking: Option<SenderView>,
    /// How many events the controllers that are not part of an instance have emitted.
    pub(crate) emitted: u64,
    /// Events that were passed to recorders.
    pub(crate) posted: u64,
    /// The Job that each Pod last belonged to, in worlds that need it.
    owners: BTreeMap<PodUid, JobUid>,
}

impl World {
    pub fn new(setup: Setup, choices: Choices, traced: bool) -> Self {
        let mut world = Self {
            choices,
            api: Api::starting_with(BEGINNING, setup.gates_off.gates()),
            oracle: Oracle::new(setup.limits.uncounted, setup.instances, setup.gates_off),
            counters: Counters::default(),
            trace: Trace { hash: 0, lines: traced.then(Vec::new) },
            fates: BTreeMap::new(),
            clocks_sane: true,
            told: BTreeMap::new(),
            healing: false,
            policy_ends_at: None,
            steps: 0,
            starts: Starts { incarnations: setup.instances, ..Starts::default() },
            evidence: Evidence::default(),
            hosts: Vec::new(),
            sent: Vec::new(),
            judge: Judge::default(),
            punctuality: Punctuality::default(),
            tracking: (0..setup.instances).map(|at| setup.tracking != TrackingGate::Skewed || at % 2 == 0).collect(),
            setup,
        };
        world.oracle.gates_pods = world.setup.gates_pods;
        let Setup { lease, events, order, .. } = world.setup;
        let roles = [
            (Role::Job, true),
            (Role::Ttl, true),
            (Role::Candidate, lease),
            (Role::Recorder, events),
            (Role::After, order),
        ];
        for (role, _) in roles.into_iter().filter(|(_, wanted)| *wanted) {
            for instance in 0..world.setup.instances {
                let host = world.new_host(role, Some(instance));
                world.hosts.push(host);
            }
        }
        if world.setup.cluster.is_some() {
            world.begin_cluster();
        }
        for number in 0..world.setup.jobs.len() {
            world.create_job(number);
        }
        world.change_orders();
        world
    }

    pub(crate) fn new_host(&mut self, role: Role, instance: Option<usize>) -> Host {
        self.starts.hosts += 1;
        let mut mailbox = None;
        let brain = match role {
            Role::Job => {
                let managed_by = instance.and_then(|instance| self.manager_of(instance)).map(Into::into);
                let on = instance.is_none_or(|instance| self.tracking[instance]);
                let gates = self.setup.gates_off.gates().with(Gate::JobTrackingWithFinalizers, on);
                let (limits, gates_pods) = (self.setup.limits, self.setup.gates_pods);
                let config = Config { limits, managed_by, gates, gates_pods, ..Config::default() };
                Brain::Job(Box::new(JobController::new(config)))
            }
            Role::After => {
                let managed_by = instance.and_then(|instance| self.manager_of(instance)).map(Into::into);
                Brain::Other(Box::new(AfterController::new(managed_by)))
            }
            Role::Ttl => Brain::Other(Box::new(TtlController::new(None))),
            Role::Candidate => Brain::Candidate(Box::new(Candidate::new(format!("p{}", self.starts.hosts)))),
            Role::Recorder => {
                let recorder = Recorder::new(self.starts.hosts);
                mailbox = Some(recorder.mailbox());
                Brain::Other(Box::new(recorder))
            }
            role => Brain::Other(self.cluster_controller(role)),
        };
        let off = self.setup.lease && !self.healing && instance.is_some() && role != Role::Candidate;
        let mut host = Host::new(role, brain, self.setup.in_flight);
        (host.instance, host.off, host.mailbox) = (instance, off, mailbox);
        host
    }

    /// The hosts of the processes that count Pods.
    fn counting(&self) -> Range<usize> {
        let Setup { lease, events, order, .. } = self.setup;
        let kinds = 2 + usize::from(lease) + usize::from(events) + usize::from(order);
        0..kinds * self.setup.instances
    }

    /// The hosts of a cluster's other controllers.
    fn others(&self) -> Range<usize> {
        self.counting().end..self.hosts.len()
    }

    pub(crate) fn create_job(&mut self, number: usize) {
        let setup = self.setup.jobs[number].clone();
        if setup.managed_elsewhere {
            self.counters.hit(Sometimes::ManagedElsewhere);
        }
        let mut job = setup.job(number);
        if self.setup.cluster.is_some() {
            self.dress(&mut job, &setup);
        }
        if let Some(job) = self.api.create_job(&job) {
            self.fates.insert(job.uid.clone(), setup);
            self.trace.say(|| format!("user creates Job {} {}", job.name, describe_job(&job)));
        }
        self.settle_changes(Context::default());
    }

    /// Users change which Jobs others wait for, once all of them exist: only so can Jobs wait for each other.
    fn change_orders(&mut self) {
        for number in 0..self.setup.jobs.len() {
            let Some(after) = self.setup.jobs[number].after_later else { continue };
            let key = (NAMESPACE.into(), format!("job-{number}").into());
            self.trace.say(|| format!("user makes job-{number} wait for {after}"));
            self.api.annotate_job(&key, Actor::User, "tally.dev/after", after);
            self.settle_changes(Context::default());
        }
    }

    /// Faults first, then healing, then rest.
    pub fn run(&mut self) -> Result<(), Violation> {
        let steps = self.choices.steps().unwrap_or(self.setup.chaos_steps);
        for _ in 0..steps {
            self.choices.next_strip();
            self.step();
            if let Some(violation) = self.oracle.violation.take() {
                return Err(violation);
            }
        }
        self.heal()
    }

    pub fn hash(&self) -> u64 {
        self.trace.hash
    }

    pub fn tape(&self) -> &Tape {
        self.choices.tape()
    }

    pub fn excess(&self) -> usize {
        self.oracle.excess
    }

    pub fn lines(&self) -> &[String] {
        self.trace.lines.as_deref().unwrap_or_default()
    }

    fn step(&mut self) {
        self.steps += 1;
        let weights = self.setup.weights.table();
        let kind = self.choices.weighted(&weights);
        self.trace.mix(kind as u64 | self.api.head().0 << 8);
        let counting = self.counting();
        let done = match kind {
            0 if self.interrupts_lists() => self.answer_any(counting),
            0 => self.hear_any(counting),
            1 => self.carry_out_any(counting),
            2 => self.answer_any(counting),
            3 => self.node_acts(),
            4 => self.time_passes(),
            5 => self.bookmark_any(counting),
            6 => self.collector_acts(),
            7 if self.choices.one_in(3) => self.give_up(counting),
            7 => self.lose_request(counting),
            8 => self.lose_reply(counting),
            9 if self.choices.one_in(3) => self.misanswer(counting),
            9 => self.refuse(counting),
            10 => self.crash_any(counting),
            11 => self.pause_any(counting),
            12 if self.choices.one_in(4) => self.stall_any(counting),
            12 => self.cut_any(counting),
            13 => self.compact(),
            14 => self.clock_jumps(counting),
            15 => self.pod_monkey(),
            16 => self.job_monkey(),
            17 => self.third_party_writes(),
            18 => self.others_act(),
            19 => self.others_fault(),
            20 => self.user_steers(),
            21 => self.node_monkey(),
            22 => self.namespace_monkey(),
            23 => self.things_monkey(),
            24 => self.cron_monkey(),
            _ => self.policy_changes(),
        };
        if !done {
            self.progress();
        }
        if self.choices.one_in(64) {
            self.check_replan();
        }
    }

    /// Takes a step that makes progress, if there is one.
    fn progress(&mut self) -> bool {
        let all = || 0..self.hosts.len();
        let (first, second, third) = (all(), all(), all());
        self.answer_any(first)
            || self.carry_out_any(second)
            || self.hear_any(third)
            || self.tick_any()
            || self.time_passes()
    }

    fn others_act(&mut self) -> bool {
        let others = self.others();
        match self.choices.weighted(&[40, 24, 24, 10, 1]) {
            0 => self.hear_any(others),
            1 => self.carry_out_any(others),
            2 => self.answer_any(others),
            3 => self.bookmark_any(others),
            _ => self.tick_for_nothing(others),
        }
    }

    fn others_fault(&mut self) -> bool {
        let weights = &self.setup.weights;
        let table = [
            weights.drop_request,
            weights.drop_reply,
            weights.drop_request,
            weights.refuse,
            weights.crash,
            weights.pause,
            weights.cut,
            weights.cut,
            weights.clock,
        ];
        if table.iter().all(|weight| *weight == 0) {
            return false;
        }
        let others = self.others();
        match self.choices.weighted(&table) {
            0 => self.lose_request(others),
            1 => self.lose_reply(others),
            2 => self.give_up(others),
            3 if self.choices.one_in(3) => self.misanswer(others),
            3 => self.refuse(others),
            4 => self.crash_any(others),
            5 => self.pause_any(others),
            6 => self.cut_any(others),
            7 => self.stall_any(others),
            _ => self.clock_jumps(others),
        }
    }

    /// I10: planning again on the state that a plan produced yields nothing.
    fn check_replan(&mut self) {
        for at in 0..self.setup.instances {
            let more = self.hosts[at].job_controller().map(|controller| controller.replan()).unwrap_or_default();
            if !more.is_empty() {
                let calls: Vec<String> = more.iter().map(|request| describe_call(&request.call)).collect();
                self.oracle.fail("I10", format!("c{at} plans more from an unchanged state: {}", calls.join(", ")));
            }
        }
    }

    pub(crate) fn note_crash(&mut self) {
        for stored in self.api.jobs.values() {
            let lists = stored.view.status.uncounted();
            for uid in lists.succeeded.iter().chain(&lists.failed) {
                let held = self.api.pods.values().any(|pod| pod.view.uid == *uid && pod.view.tracked);
                self.counters.hit(match held {
                    true => Sometimes::CrashRecordedUnreleased,
                    false => Sometimes::CrashReleasedUntallied,
                });
            }
        }
        let half = self.api.pods.values().any(|stored| self.oracle.half_removed(&stored.view).is_some());
        if half {
            self.counters.hit(Sometimes::CrashRemovalHalfDone);
        }
    }

    // ---- time ----

    fn tick_any(&mut self) -> bool {
        (0..self.hosts.len()).any(|at| self.tick(at))
    }

    fn time_passes(&mut self) -> bool {
        let by = match self.choices.below(5) {
            0 => Span::from_millis(1),
            1 => Span::from_millis(50),
            2 => Span::from_seconds(1),
            3 => Span::from_seconds(11),
            _ => self.next_wake().map_or(Span::from_millis(1), |at| at - self.api.now),
        };
        self.pass(by)
    }

    pub(crate) fn pass(&mut self, by: Span) -> bool {
        if by <= Span::ZERO {
            return self.tick_any();
        }
        self.api.now = self.api.now + by.min(Span::from_seconds(100_000));
        self.trace.mix(self.api.now.millis() as u64);
        self.trace.say(|| format!("{} ms pass", by.millis()));
        for at in 0..self.hosts.len() {
            self.tick(at);
        }
        true
    }

    // ---- the oracle ----

    pub(crate) fn settle_changes(&mut self, context: Context) {
        let mut changes: Vec<Change> = std::mem::take(&mut self.api.changes);
        for change in changes.drain(..) {
            if let Change::Pod { after, .. } = &change
                && let Some(job) = after.job().filter(|_| self.setup.side_by_side)
            {
                self.evidence.owners.insert(after.uid.clone(), job.clone());
            }
            self.check_manager(&change);
            self.oracle.observe(&change, context, &self.api, &mut self.counters);
        }
        self.api.changes = changes;
        self.judge_changes();
    }

    /// Whether an instance serves the Job.
    pub(crate) fn is_ours(&self, job: &JobView) -> bool {
        job.spec.managed_by.is_none() || self.setup.side_by_side
    }

    /// The manager whose Jobs an instance serves.
    fn manager_of(&self, instance: usize) -> Option<&'static str> {
        (self.setup.side_by_side && instance % 2 == 1).then_some(OTHER_MANAGER)
    }

    /// M1: no instance writes to a Job of another manager, or to its Pods, or releases Pods that may be another's. TTLs
    /// are handled by every instance.
    fn check_manager(&mut self, change: &Change) {
        let (Change::Job { actor, .. } | Change::Pod { actor, .. }) = change;
        let Actor::Controller { instance: host, .. } = *actor else { return };
        let Some(instance) = self.hosts[host].instance.filter(|_| self.hosts[host].role == Role::Job) else { return };
        let manager = self.manager_of(instance);
        let elsewhere = |uid: &JobUid| self.fates.get(uid).is_some_and(|setup| setup.managed_elsewhere);
        let serves = |uid: &JobUid| elsewhere(uid) == manager.is_some();
        let (name, served) = match change {
            Change::Job { after, .. } => (&after.name, serves(&after.uid)),
            Change::Pod { before, after, .. } => {
                let served = match before.as_ref().unwrap_or(after).job() {
                    Some(uid) => serves(uid) || (manager.is_none() && self.api.job_by_uid(uid).is_none()),
                    // No owner: adopted, or released by the instance that had recorded it, or by the one that handles
                    // such Pods.
                    None if after.job().or_else(|| self.evidence.owners.get(&after.uid)).is_some_and(serves) => true,
                    None => manager.is_none(),
                };
                (&after.name, served)
            }
        };
        if !served {
            self.oracle.fail("M1", format!("c{instance}, which serves {manager:?}, wrote to {name}"));
        }
    }
}
