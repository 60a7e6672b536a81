//! The deterministic world: one API, several controller instances, a node, users, a garbage collector, clocks - and
//! between them a network that delays, loses and reorders. One thread, one tape of choices.

use std::collections::{BTreeMap, BTreeSet};

use compact_str::CompactString;
use tally_controllers::job::{Config, JobMachine};
use tally_controllers::machine::{
    Action, Answer, Input, Machine, Metric, Object, Outbox, PodChange, Request, Resource,
};
use tally_controllers::ttl::TtlMachine;
use tally_core::ids::{JobUid, Revision};
use tally_core::job::JobView;
use tally_core::mutation::Soundness;
use tally_core::time::{Span, Timestamp};

use crate::api::{Actor, Api, Change};
use crate::choices::{Choices, Tape};
use crate::counters::{Counters, Sometimes};
use crate::hosted::{Asking, Hosted, Sent};
use crate::judge::Judge;
use crate::oracle::{Context, Oracle, Violation};
use crate::setup::{JobSetup, Setup};
use crate::trace::{Trace, describe, describe_action, describe_answer, describe_job};

/// When the world begins: a round date that is no special number.
const BEGINNING: Timestamp = Timestamp::from_seconds(1_700_000_000);

pub struct World<S: Soundness> {
    pub(crate) soundness: S,
    pub(crate) setup: Setup,
    pub(crate) choices: Choices,
    pub(crate) api: Api,
    pub(crate) instances: Vec<Instance<S>>,
    pub(crate) flights: Vec<Flight>,
    pub(crate) oracle: Oracle,
    pub counters: Counters,
    pub(crate) trace: Trace,
    pub(crate) fates: BTreeMap<JobUid, JobSetup>,
    pub(crate) clocks_sane: bool,
    incarnations: usize,
    last_status_writer: BTreeMap<JobUid, usize>,
    /// Which Pods each incarnation has ever asked to remove.
    removals_asked: BTreeSet<(usize, u32, CompactString)>,
    pub steps: usize,
    /// Writes of controllers that were carried out.
    pub writes: u64,
    pub(crate) healing: bool,
    out: Outbox,
    /// Controllers behind bytes, what they have asked for, and who judges them.
    pub(crate) hosts: Vec<Hosted>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) judge: Judge,
    /// What the controller knew whose request is being carried out.
    pub(crate) asking: Option<Asking>,
    /// How often a controller behind bytes had something to tell users.
    pub(crate) told: u64,
}

pub(crate) struct Instance<S: Soundness> {
    pub(crate) machine: JobMachine<S>,
    ttl: TtlMachine<S>,
    incarnation: u32,
    pub(crate) paused: bool,
    pub(crate) clock: Span,
    streams: [Stream; 2],
    wakes: [Option<Timestamp>; 2],
}

#[derive(Clone, Copy, Default)]
struct Stream {
    /// None: must list first.
    at: Option<usize>,
    seen: Revision,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Job,
    Ttl,
}

pub(crate) struct Flight {
    instance: usize,
    incarnation: u32,
    from: From,
    pub(crate) request: Request,
    pub(crate) answer: Option<Answer>,
    context: Context,
}

const RESOURCES: [Resource; 2] = [Resource::Jobs, Resource::Pods];

impl<S: Soundness> World<S> {
    pub fn new(setup: Setup, choices: Choices, soundness: S, traced: bool) -> Self {
        let mut world = Self {
            soundness,
            instances: Vec::new(),
            choices,
            api: Api::starting_at(BEGINNING),
            flights: Vec::new(),
            oracle: Oracle::new(setup.limits.uncounted, setup.instances),
            counters: Counters::default(),
            trace: Trace { hash: 0, lines: traced.then(Vec::new) },
            fates: BTreeMap::new(),
            clocks_sane: true,
            incarnations: setup.instances,
            last_status_writer: BTreeMap::new(),
            removals_asked: BTreeSet::new(),
            steps: 0,
            writes: 0,
            healing: false,
            out: Outbox::default(),
            hosts: Vec::new(),
            sent: Vec::new(),
            judge: Judge::default(),
            asking: None,
            told: 0,
            setup,
        };
        if world.setup.cluster.is_some() {
            world.begin_cluster();
        }
        for _ in 0..world.setup.instances {
            let instance = world.new_instance(0);
            world.instances.push(instance);
        }
        for number in 0..world.setup.jobs.len() {
            world.create_job(number);
        }
        world
    }

    fn new_instance(&self, incarnation: u32) -> Instance<S> {
        let config = Config { limits: self.setup.limits, ..Config::default() };
        Instance {
            machine: JobMachine::with_soundness(config, self.soundness),
            ttl: TtlMachine::with_soundness(self.soundness),
            incarnation,
            paused: false,
            clock: Span::ZERO,
            streams: [Stream::default(); 2],
            wakes: [None; 2],
        }
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

    /// Chaos first, then healing, then rest.
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
        let done = match kind {
            0 => self.deliver_any(),
            1 => self.apply_any(),
            2 => self.answer_any(),
            3 => self.node_acts(),
            4 => self.time_passes(),
            5 => self.bookmark_any(),
            6 => self.collector_acts(),
            7 => self.lose_request(),
            8 => self.lose_reply(),
            9 => self.refuse_any(),
            10 => self.crash_any(),
            11 => self.pause_any(),
            12 => self.cut_any(),
            13 => self.compact(),
            14 => self.clock_jumps(),
            15 => self.pod_monkey(),
            16 => self.job_monkey(),
            17 => self.third_party_writes(),
            18 => self.host_acts(),
            19 => self.host_fault(),
            20 => self.user_steers(),
            21 => self.node_monkey(),
            22 => self.namespace_monkey(),
            23 => self.things_monkey(),
            _ => self.cron_monkey(),
        };
        if !done {
            self.progress();
        }
        if self.choices.one_in(64) {
            self.check_replan();
        }
    }

    /// Whatever can go on, goes on.
    fn progress(&mut self) -> bool {
        self.answer_any()
            || self.apply_any()
            || self.deliver_any()
            || self.hosts_progress()
            || self.tick_any()
            || self.time_passes()
    }

    // ---- instances ----

    fn now_of(&self, instance: usize) -> Timestamp {
        self.api.now + self.instances[instance].clock
    }

    fn handle(&mut self, at: usize, input: Input) {
        let now = self.now_of(at);
        self.handle_one(at, From::Job, input.clone(), now);
        self.handle_one(at, From::Ttl, input, now);
    }

    fn handle_one(&mut self, at: usize, from: From, input: Input, now: Timestamp) {
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        let instance = &mut self.instances[at];
        match from {
            From::Job => instance.machine.handle(input, now, &mut out),
            From::Ttl => instance.ttl.handle(input, now, &mut out),
        }
        instance.wakes[from as usize] = out.wake_at;
        let context = Context {
            asked_at: now,
            pods_at: instance.machine.pods_at(),
            jobs_at: instance.streams[0].seen,
            clocks_sane: self.clocks_sane,
            incarnations: self.incarnations,
            step: self.steps,
        };
        let incarnation = instance.incarnation;
        let behind = context.pods_at < self.api.pod_log.last().map_or(Revision(0), |entry| entry.at);
        for request in out.requests.drain(..) {
            self.trace.mix(request.id.0);
            if behind {
                self.counters.hit(Sometimes::StaleReadActedOn);
            }
            if let Action::DeletePod { name, .. } | Action::PatchPod { name, revision: Some(_), .. } = &request.action {
                self.removals_asked.insert((at, incarnation, name.clone()));
            }
            if matches!(request.action, Action::ListPods { .. }) {
                self.counters.hit(Sometimes::GateOpenedByList);
            }
            self.trace.say(|| format!("  c{at} asks {}", describe_action(&request.action)));
            self.flights.push(Flight { instance: at, incarnation, from, request, answer: None, context });
        }
        for metric in out.metrics.drain(..) {
            match metric {
                Metric::GateClosed => self.counters.hit(Sometimes::GateClosed),
                Metric::TtlDeletion { .. } => self.counters.hit(Sometimes::TtlDeleted),
                Metric::InvalidStatus => {
                    let text = out.events.last().map(|event| event.message.clone()).unwrap_or_default();
                    self.oracle.fail("I13", format!("c{at} planned a status the rules refuse: {text}"));
                }
                _ => {}
            }
        }
        self.out = out;
    }

    fn runnable(&self, at: usize) -> bool {
        !self.instances[at].paused
    }

    fn choose_instance(&mut self) -> usize {
        self.choices.below(self.instances.len())
    }

    /// I10: planning again on the state a plan produced yields nothing.
    fn check_replan(&mut self) {
        for at in 0..self.instances.len() {
            let more = self.instances[at].machine.replan();
            if more > 0 {
                self.oracle.fail("I10", format!("c{at} planned {more} more requests from an unchanged state"));
            }
        }
    }

    // ---- streams ----

    fn log_len(&self, stream: usize) -> usize {
        [self.api.job_log.len(), self.api.pod_log.len()][stream]
    }

    fn log_at(&self, stream: usize, at: usize) -> Revision {
        match stream {
            0 => self.api.job_log[at].at,
            _ => self.api.pod_log[at].at,
        }
    }

    fn deliver_any(&mut self) -> bool {
        let (instances, first) = (self.instances.len(), self.choices.below(2 * self.instances.len()));
        for turn in 0..2 * instances {
            let which = (first + turn) % (2 * instances);
            if self.deliver(which / 2, which % 2) {
                return true;
            }
        }
        false
    }

    pub(crate) fn deliver(&mut self, at: usize, stream: usize) -> bool {
        if !self.runnable(at) {
            return false;
        }
        let Some(next) = self.instances[at].streams[stream].at else {
            self.list(at, stream);
            return true;
        };
        if next >= self.log_len(stream) {
            return false;
        }
        let (object, gone, revision) = if stream == 0 {
            let entry = &self.api.job_log[next];
            (Object::Job(entry.object.clone()), entry.gone, entry.at)
        } else {
            let entry = &self.api.pod_log[next];
            (Object::Pod(entry.object.clone()), entry.gone, entry.at)
        };
        self.trace.say(|| format!("c{at} sees {}{}", if gone { "the end of " } else { "" }, describe(&object)));
        let stream = &mut self.instances[at].streams[stream];
        stream.at = Some(next + 1);
        stream.seen = revision;
        self.handle(at, if gone { Input::Gone(object) } else { Input::Observed(object) });
        true
    }

    /// A list, possibly of the past: never older than what this instance has seen, nor than what is kept.
    fn list(&mut self, at: usize, stream: usize) {
        let head = self.api.head();
        let resource = RESOURCES[stream];
        let seen = self.instances[at].streams[stream].seen;
        let floor = match self.instances[at].machine.accepts_list(resource, Revision(0)) {
            true => self.api.compacted,
            false => self.api.compacted.max(seen),
        };
        let span = (head.0 - floor.0.min(head.0)) as usize;
        let back = if self.healing { 0 } else { [0, 0, self.choices.below(span + 1)][self.choices.below(3)] };
        let revision = Revision(head.0 - back as u64);
        if back > 0 {
            self.counters.hit(Sometimes::TimeTravel);
        }
        self.trace.say(|| format!("c{at} lists {resource:?} as of {revision}"));
        self.note_hidden_life(at, stream, revision);
        self.handle(at, Input::Listing { resource });
        if stream == 0 {
            for job in self.api.jobs_at(revision) {
                self.handle(at, Input::Observed(Object::Job(job)));
            }
        } else {
            for pod in self.api.pods_at(revision) {
                self.handle(at, Input::Observed(Object::Pod(pod)));
            }
        }
        self.handle(at, Input::Listed { resource, at: revision });
        let next = (0..self.log_len(stream)).find(|next| self.log_at(stream, *next) > revision);
        let position = next.unwrap_or(self.log_len(stream));
        self.instances[at].streams[stream] = Stream { at: Some(position), seen: revision };
    }

    fn note_hidden_life(&mut self, at: usize, stream: usize, until: Revision) {
        let seen = self.instances[at].streams[stream].seen;
        if stream == 1 && seen > Revision(0) {
            let hidden = self.api.pod_log.iter().any(|entry| {
                entry.gone
                    && entry.at > seen
                    && entry.at <= until
                    && self
                        .api
                        .pod_log
                        .iter()
                        .find(|other| other.object.uid == entry.object.uid)
                        .is_some_and(|birth| birth.at > seen)
            });
            if hidden {
                self.counters.hit(Sometimes::HiddenLife);
            }
        }
    }

    fn bookmark_any(&mut self) -> bool {
        let at = self.choose_instance();
        let stream = self.choices.below(2);
        self.bookmark(at, stream)
    }

    pub(crate) fn bookmark(&mut self, at: usize, stream: usize) -> bool {
        let Some(next) = self.instances[at].streams[stream].at.filter(|_| self.runnable(at)) else {
            return false;
        };
        let reached =
            if next < self.log_len(stream) { Revision(self.log_at(stream, next).0 - 1) } else { self.api.head() };
        if reached <= self.instances[at].streams[stream].seen {
            return false;
        }
        self.instances[at].streams[stream].seen = reached;
        self.trace.say(|| format!("c{at} has followed {:?} to {reached}", RESOURCES[stream]));
        self.handle(at, Input::Reached { resource: RESOURCES[stream], at: reached });
        true
    }

    fn cut_any(&mut self) -> bool {
        let at = self.choose_instance();
        let stream = self.choices.below(2);
        if self.instances[at].streams[stream].at.take().is_none() {
            return false;
        }
        self.trace.say(|| format!("c{at} loses its watch of {:?}", RESOURCES[stream]));
        self.counters.hit(Sometimes::Relist);
        true
    }

    fn compact(&mut self) -> bool {
        let head = self.api.head();
        let back = self.choices.below(20) as u64;
        let upto = Revision(head.0.saturating_sub(back)).max(self.api.compacted);
        self.api.compacted = upto;
        self.trace.say(|| format!("history up to {upto} is compacted"));
        for at in 0..self.instances.len() {
            for stream in 0..2 {
                let Some(next) = self.instances[at].streams[stream].at else {
                    continue;
                };
                if next < self.log_len(stream) && self.log_at(stream, next) <= upto {
                    self.instances[at].streams[stream].at = None;
                    self.counters.hit(Sometimes::TooOld);
                }
            }
        }
        self.compact_hosts(upto);
        true
    }

    // ---- the network ----

    fn choose_flight(&mut self, wanted: impl Fn(&Flight) -> bool) -> Option<usize> {
        if self.flights.is_empty() {
            return None;
        }
        let first = self.choices.below(self.flights.len());
        let count = self.flights.len();
        (0..count).map(|turn| (first + turn) % count).find(|at| wanted(&self.flights[*at]))
    }

    fn apply_any(&mut self) -> bool {
        let Some(at) = self.choose_flight(|flight| flight.answer.is_none()) else {
            return false;
        };
        self.apply(at);
        true
    }

    pub(crate) fn apply(&mut self, at: usize) {
        let flight = &self.flights[at];
        let (instance, incarnation) = (flight.instance, flight.incarnation);
        // Who was asked long ago and acts now is one more that acts.
        let context = Context { incarnations: self.incarnations, ..flight.context };
        let action = flight.request.action.clone();
        self.check_removal_resumed(&action, instance, incarnation, context);
        let head = self.api.head();
        let answer = self.api.perform(&action, Actor::Controller { instance, incarnation }, self.soundness);
        self.trace.mix(self.api.head().0);
        self.trace
            .say(|| format!("  api for c{instance}: {} -> {}", describe_action(&action), describe_answer(&answer)));
        let dead = self.instances[instance].incarnation != incarnation;
        if self.api.head() > head && (dead || self.instances[instance].paused) {
            self.counters.hit(Sometimes::ZombieWrite);
        }
        self.note_answer(&action, &answer, instance);
        self.settle_changes(context);
        if dead {
            self.flights.swap_remove(at);
        } else {
            self.flights[at].answer = Some(answer);
        }
        if self.api.head() > head {
            self.writes += 1;
            if self.setup.crash_after_write == Some(self.writes) {
                self.crash(instance);
            }
        }
    }

    fn note_answer(&mut self, action: &Action, answer: &Answer, instance: usize) {
        match (action, answer) {
            (Action::WriteJobStatus { .. }, Answer::Conflict) => self.counters.hit(Sometimes::Conflict),
            (Action::WriteJobStatus { uid, .. }, Answer::Done(_))
                if self.last_status_writer.insert(uid.clone(), instance).is_some_and(|last| last != instance) =>
            {
                self.counters.hit(Sometimes::TwoWriters);
            }
            (Action::WriteJobStatus { name, .. }, Answer::Refused { message, .. }) => {
                // Against the status it was planned from it was valid; somebody else's edit may have made it otherwise.
                let conditional = matches!(action, Action::WriteJobStatus { revision: Some(_), .. });
                if conditional {
                    self.oracle.fail("I13", format!("the status of {name} was refused: {message}"));
                }
            }
            (Action::CreatePod { .. }, Answer::AlreadyExists) => self.counters.hit(Sometimes::AlreadyExists),
            (Action::PatchPod { change: PodChange::Adopt { .. }, .. }, Answer::Done(_)) => {
                self.counters.hit(Sometimes::Adopted);
            }
            (Action::PatchPod { .. }, Answer::Refused { .. }) => self.counters.hit(Sometimes::ReleaseRefused),
            _ => {}
        }
    }

    /// H2: while a Pod that a dead instance began to remove still runs, no other is removed in its place.
    fn check_removal_resumed(&mut self, action: &Action, instance: usize, incarnation: u32, context: Context) {
        let Action::PatchPod { namespace, name, revision: Some(revision), change: PodChange::Release, .. } = action
        else {
            return;
        };
        let Some(victim) = self.api.pods.get(&(namespace.clone(), name.clone())) else {
            return;
        };
        let Some(job) = victim.view.job().and_then(|uid| self.api.job_by_uid(uid)) else {
            return;
        };
        let any_order = job.view.spec.is_indexed() || self.oracle.was_suspended(&job.view.uid);
        if victim.view.revision != *revision || any_order {
            return;
        }
        let dead = |actor: Actor| match actor {
            Actor::Controller { instance, incarnation } => self.instances[instance].incarnation != incarnation,
            _ => false,
        };
        let forgotten = self.api.pods_of(&job.view.uid).find(|stored| {
            let pod = &stored.view;
            pod.revision <= context.pods_at.min(context.jobs_at)
                && job.view.spec.selector.matches(&pod.labels)
                && self.oracle.half_removed(pod).is_some_and(dead)
                && !self.removals_asked.contains(&(instance, incarnation, pod.name.clone()))
        });
        if let Some(forgotten) = forgotten {
            let text = format!("{name} is removed while {}, half removed, runs on", forgotten.view.name);
            self.oracle.fail("H2", text);
        }
    }

    fn answer_any(&mut self) -> bool {
        let runnable: Vec<bool> = (0..self.instances.len()).map(|at| self.runnable(at)).collect();
        let Some(at) = self.choose_flight(|flight| flight.answer.is_some() && runnable[flight.instance]) else {
            return false;
        };
        self.answer(at);
        true
    }

    pub(crate) fn answer(&mut self, at: usize) {
        let flight = self.flights.swap_remove(at);
        let Some(answer) = flight.answer else { return };
        if self.instances[flight.instance].incarnation != flight.incarnation {
            return;
        }
        self.trace.say(|| {
            let (to, action) = (flight.instance, describe_action(&flight.request.action));
            format!("c{to} hears of {action}: {}", describe_answer(&answer))
        });
        if let (Action::WriteJobStatus { .. }, Answer::Done(Object::Job(job))) = (&flight.request.action, &answer) {
            let actor = Actor::Controller { instance: flight.instance, incarnation: flight.incarnation };
            self.oracle.laws.told_of_job(&job.uid, job.revision, actor, self.steps);
        }
        let now = self.now_of(flight.instance);
        let served_at = Some(self.api.now);
        let input = Input::Answered { request: flight.request.id, answer, served_at };
        self.handle_one(flight.instance, flight.from, input, now);
    }

    fn lose_request(&mut self) -> bool {
        let Some(at) = self.choose_flight(|flight| flight.answer.is_none()) else {
            return false;
        };
        self.counters.hit(Sometimes::RequestLost);
        self.trace.say(|| "  lost: ".to_owned() + &describe_action(&self.flights[at].request.action));
        self.flights[at].answer = Some(Answer::Unknown);
        true
    }

    fn lose_reply(&mut self) -> bool {
        let Some(at) = self.choose_flight(|flight| flight.answer.is_none()) else {
            return false;
        };
        let (id, instance, from) = (self.flights[at].request.id, self.flights[at].instance, self.flights[at].from);
        self.apply(at);
        self.counters.hit(Sometimes::ReplyLost);
        if let Some(flight) = self
            .flights
            .iter_mut()
            .find(|flight| flight.request.id == id && flight.instance == instance && flight.from == from)
        {
            flight.answer = Some(Answer::Unknown);
            self.trace.say(|| "  ... and the reply is lost".to_owned());
        }
        true
    }

    fn refuse_any(&mut self) -> bool {
        let Some(at) = self.choose_flight(|flight| flight.answer.is_none()) else {
            return false;
        };
        let status = matches!(self.flights[at].request.action, Action::WriteJobStatus { .. });
        let answer = if status || self.choices.below(2) == 0 {
            self.counters.hit(Sometimes::Unavailable);
            Answer::Unavailable
        } else {
            self.counters.hit(Sometimes::Refused);
            Answer::Refused { code: 403, namespace_terminating: false, message: "forbidden: quota".to_owned() }
        };
        self.trace.say(|| {
            format!("  api refuses {}: {}", describe_action(&self.flights[at].request.action), describe_answer(&answer))
        });
        self.flights[at].answer = Some(answer);
        true
    }

    // ---- instances fail ----

    fn crash_any(&mut self) -> bool {
        let at = self.choose_instance();
        self.crash(at);
        true
    }

    pub(crate) fn crash(&mut self, at: usize) {
        self.note_crash();
        let incarnation = self.instances[at].incarnation + 1;
        let clock = self.instances[at].clock;
        self.trace.say(|| format!("c{at} crashes and starts again"));
        let instance = self.new_instance(incarnation);
        self.instances[at] = instance;
        self.instances[at].clock = clock;
        self.incarnations += 1;
        // Some of what it sent may still arrive.
        self.flights.retain(|flight| flight.instance != at || flight.answer.is_none());
        let mut turn = 0;
        while turn < self.flights.len() {
            if self.flights[turn].instance == at && self.choices.below(2) == 0 {
                self.flights.swap_remove(turn);
            } else {
                turn += 1;
            }
        }
    }

    fn note_crash(&mut self) {
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

    fn pause_any(&mut self) -> bool {
        let at = self.choose_instance();
        let paused = &mut self.instances[at].paused;
        *paused = !*paused;
        let verb = if *paused { "is paused" } else { "goes on" };
        self.trace.say(|| format!("c{at} {verb}"));
        true
    }

    fn clock_jumps(&mut self) -> bool {
        let at = self.choose_instance();
        let seconds = *self.choices.pick(&[0, 3, 3_600, -3, -3_600, 100_000, -100_000]);
        let before = self.instances[at].clock;
        let clock = Span::from_seconds(seconds);
        self.instances[at].clock = clock;
        self.clocks_sane = false;
        if clock < before {
            self.counters.hit(Sometimes::ClockBack);
        }
        if clock > Span::ZERO {
            self.counters.hit(Sometimes::ClockAhead);
        }
        self.trace.say(|| format!("the clock of c{at} is off by {seconds} s"));
        true
    }

    // ---- time ----

    fn tick_any(&mut self) -> bool {
        for at in 0..self.instances.len() {
            if self.tick(at) {
                return true;
            }
        }
        (0..self.hosts.len()).any(|at| self.host_ticks(at))
    }

    pub(crate) fn tick(&mut self, at: usize) -> bool {
        if !self.runnable(at) {
            return false;
        }
        let now = self.now_of(at);
        let mut ticked = false;
        for from in [From::Job, From::Ttl] {
            if self.instances[at].wakes[from as usize].is_some_and(|wake_at| wake_at <= now) {
                self.trace.say(|| format!("c{at} wakes ({from:?})"));
                self.handle_one(at, from, Input::Tick, now);
                ticked = true;
            }
        }
        ticked
    }

    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        (0..self.instances.len())
            .filter(|at| self.runnable(*at))
            .flat_map(|at| {
                let clock = self.instances[at].clock;
                self.instances[at].wakes.into_iter().flatten().map(move |wake_at| wake_at - clock)
            })
            .chain(self.hosts_wake_at())
            .min()
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
        for at in 0..self.instances.len() {
            self.tick(at);
        }
        for at in 0..self.hosts.len() {
            self.host_ticks(at);
        }
        true
    }

    // ---- the oracle ----

    pub(crate) fn settle_changes(&mut self, context: Context) {
        let mut changes: Vec<Change> = std::mem::take(&mut self.api.changes);
        for change in changes.drain(..) {
            self.oracle.observe(&change, context, &self.api, &mut self.counters);
        }
        self.api.changes = changes;
        self.judge_changes();
    }

    pub(crate) fn is_ours(&self, job: &JobView) -> bool {
        job.spec.managed_by.is_none()
    }
}
