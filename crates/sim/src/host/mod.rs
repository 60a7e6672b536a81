//! Controllers in the simulated world, all of them as production runs them: behind bytes, with the driver's own
//! reflectors and request queue. Their streams lag, stall, break, are resumed or listed again, in pieces; their
//! requests are delayed, reordered, refused, lost, or carried out after their sender gave up.

mod faults;
mod network;
mod streams;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use compact_str::CompactString;
use serde_json::Value;
use tally_controllers::job::JobController;
use tally_core::ids::Revision;
use tally_core::time::{Span, Timestamp};
use tally_runtime::controller::{
    Call, ClockWatch, Controller, Input, Kind, Metric, Outbox, Request, RequestId, Stream, Verb,
};
use tally_runtime::driver::api::Response;
use tally_runtime::driver::events::Mailbox;
use tally_runtime::driver::limit::Limit;
use tally_runtime::driver::reflector::Reflector;
use tally_runtime::driver::requests::Requests;
use tally_runtime::lease::Change;

use crate::action::{Action, PodChange};
use crate::archive::Version;
use crate::bias::Hold;
use crate::cluster::Role;
use crate::counters::Sometimes;
use crate::election::Candidate;
use crate::oracle::Context;
use crate::trace::describe_call;
use crate::world::{BEGINNING, World};

pub(crate) struct Host {
    pub(crate) role: Role,
    /// The process that it is part of, if that process counts Pods.
    pub(crate) instance: Option<usize>,
    /// It waits until its process leads.
    pub(crate) off: bool,
    brain: Brain,
    pub(crate) incarnation: u32,
    pub(crate) paused: bool,
    pub(crate) clock: Span,
    watch: ClockWatch,
    streams: Vec<Followed>,
    out: Outbox,
    requests: Requests,
    limit: Limit,
    /// Of a recorder.
    pub(crate) mailbox: Option<Mailbox>,
    /// What the controller knew when it sent each request that is not answered yet.
    known: BTreeMap<RequestId, SenderKnowledge>,
}

/// The Job controller has its own variant because the simulator also inspects its state.
pub(crate) enum Brain {
    Job(Box<JobController>),
    Candidate(Box<Candidate>),
    Other(Box<dyn Controller>),
}

struct Followed {
    reflector: Reflector,
    source: Source,
    seen: Revision,
    /// Nothing is delivered for now, and no error is reported.
    stalled: bool,
    /// By the world's clock.
    opened_at: Timestamp,
    opens_at: Timestamp,
}

/// What the server sends.
enum Source {
    Closed,
    State {
        at: Revision,
        rest: VecDeque<Arc<Version>>,
    },
    /// From this version of the log on.
    Changes(usize),
}

/// An in-flight request.
pub(crate) struct Sent {
    pub(crate) host: usize,
    pub(crate) incarnation: u32,
    pub(crate) request: Request,
    known: SenderKnowledge,
    pub(crate) response: Option<(Response, Timestamp)>,
    /// Its sender has given up: no response is delivered.
    given_up: bool,
    /// Until when it is not carried out, or once it is, its response is not delivered.
    hold: Hold,
}

#[derive(Clone, Default)]
struct SenderKnowledge {
    context: Context,
    asking: Option<Box<SenderView>>,
}

/// What the sender of a request knew when it sent it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SenderView {
    /// How far each of its streams had come, in their order.
    pub(crate) seen: Vec<Revision>,
    /// The newest state of which it can have seen a part: that of a list which is not complete yet.
    pub(crate) glimpsed: Vec<Revision>,
    /// The CronJob as the controller last read it, if the request starts a Job for one.
    pub(crate) read: Option<Arc<Value>>,
    /// The position among all bindings, in the order in which they were first requested.
    pub(crate) turn: u64,
    /// Nodes that it has read and that did not exist.
    pub(crate) missed: BTreeSet<CompactString>,
}

impl Followed {
    fn is_listing(&self) -> bool {
        matches!(self.source, Source::State { .. })
    }

    fn glimpsed(&self) -> Revision {
        match self.source {
            Source::State { at, .. } => at,
            Source::Closed | Source::Changes(_) => self.seen,
        }
    }
}

impl Brain {
    fn name(&self) -> &'static str {
        match self {
            Self::Job(controller) => controller.name(),
            Self::Candidate(_) => "candidate",
            Self::Other(controller) => controller.name(),
        }
    }

    fn streams(&self) -> Vec<Stream> {
        match self {
            Self::Job(controller) => controller.streams(),
            Self::Candidate(_) => Vec::new(),
            Self::Other(controller) => controller.streams(),
        }
    }
}

impl Host {
    pub(crate) fn new(role: Role, brain: Brain, in_flight: usize) -> Self {
        let follow = |stream| Followed {
            reflector: Reflector::new(stream),
            source: Source::Closed,
            seen: Revision(0),
            stalled: false,
            opened_at: Timestamp::default(),
            opens_at: Timestamp::default(),
        };
        let streams = brain.streams().into_iter().map(follow).collect();
        Self {
            role,
            instance: None,
            off: false,
            brain,
            incarnation: 0,
            paused: false,
            clock: Span::ZERO,
            watch: ClockWatch::default(),
            streams,
            out: Outbox::default(),
            requests: Requests::new(in_flight),
            limit: Limit::new(0.0, 0),
            mailbox: None,
            known: BTreeMap::new(),
        }
    }

    pub(crate) fn job_controller(&mut self) -> Option<&mut JobController> {
        match &mut self.brain {
            Brain::Job(controller) => Some(controller),
            Brain::Candidate(_) | Brain::Other(_) => None,
        }
    }

    pub(crate) fn candidate(&self) -> Option<&Candidate> {
        match &self.brain {
            Brain::Candidate(candidate) => Some(candidate),
            Brain::Job(_) | Brain::Other(_) => None,
        }
    }

    fn is_idle(&self) -> bool {
        self.paused || self.off
    }

    fn is_listing(&self) -> bool {
        self.streams.iter().any(Followed::is_listing)
    }

    fn pods_at(&self) -> Revision {
        match &self.brain {
            Brain::Job(controller) => controller.pods_at(),
            Brain::Candidate(_) | Brain::Other(_) => Revision(0),
        }
    }
}

impl Role {
    /// Judged by the oracle; the others are judged by the judge.
    fn counts(self) -> bool {
        matches!(self, Self::Job | Self::Ttl | Self::Candidate | Self::Recorder)
    }
}

impl World {
    pub(crate) fn host_name(&self, at: usize) -> String {
        let role = self.hosts[at].role;
        if role == Role::Job { format!("c{at}") } else { format!("{}/{at}", self.hosts[at].brain.name()) }
    }

    fn host_now(&self, at: usize) -> Timestamp {
        self.api.now + self.hosts[at].clock
    }

    /// The time since the driver began, by a clock that does not jump.
    pub(crate) fn driver_now(&self) -> Duration {
        Duration::from_millis((self.api.now - BEGINNING).millis().max(0) as u64)
    }

    pub(crate) fn tell(&mut self, at: usize, input: Input) {
        let (now, driver_now) = (self.host_now(at), self.driver_now());
        let host = &mut self.hosts[at];
        let mut change = Change::None;
        if let Some(by) = host.watch.set_back(now, driver_now) {
            match &mut host.brain {
                Brain::Job(controller) => controller.handle(Input::ClockSetBack(by), now, &mut host.out),
                Brain::Other(controller) => controller.handle(Input::ClockSetBack(by), now, &mut host.out),
                Brain::Candidate(_) => {}
            }
        }
        match &mut host.brain {
            Brain::Job(controller) => controller.handle(input, now, &mut host.out),
            Brain::Other(controller) => controller.handle(input, now, &mut host.out),
            Brain::Candidate(candidate) => change = candidate.handle(input, now, driver_now, &mut host.out),
        }
        self.take_metrics(at);
        if !self.hosts[at].out.events.is_empty() {
            self.take_events(at);
        }
        if !self.hosts[at].out.requests.is_empty() {
            self.take_requests(at, now);
        }
        self.send(at);
        self.leadership_changed(at, &change);
    }

    /// Events of the controllers of an instance go to its recorder, if it has one.
    fn take_events(&mut self, at: usize) {
        let Host { role, instance, .. } = self.hosts[at];
        let events = std::mem::take(&mut self.hosts[at].out.events);
        if !role.counts() {
            self.evidence.emitted += events.len() as u64;
        }
        let recorders = self.hosts.iter().position(|host| host.role == Role::Recorder && host.instance == instance);
        let Some(recorder) = recorders.filter(|_| instance.is_some()) else { return };
        let name = self.hosts[at].brain.name();
        for event in events {
            if let Some(mailbox) = &self.hosts[recorder].mailbox {
                self.evidence.posted += u64::from(mailbox.post(name, event));
            }
        }
        self.tell(recorder, Input::Tick);
    }

    fn take_metrics(&mut self, at: usize) {
        let out = &mut self.hosts[at].out;
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
    }

    fn take_requests(&mut self, at: usize, now: Timestamp) {
        let host = &mut self.hosts[at];
        let requests = std::mem::take(&mut host.out.requests);
        let context = Context {
            asked_at: now,
            pods_at: host.pods_at(),
            jobs_at: host.streams.first().map_or(Revision(0), |followed| followed.seen),
            clocks_sane: self.clocks_sane,
            incarnations: self.starts.incarnations,
            step: self.steps,
            given_up: false,
        };
        let (incarnation, role) = (host.incarnation, host.role);
        let asking = (!role.counts()).then(|| SenderView {
            seen: host.streams.iter().map(|stream| stream.seen).collect(),
            glimpsed: host.streams.iter().map(Followed::glimpsed).collect(),
            ..SenderView::default()
        });
        if role == Role::Job && context.pods_at < self.api.pod_log.last().map_or(Revision(0), |entry| entry.at) {
            self.counters.hit(Sometimes::StaleReadActedOn);
        }
        for request in &requests {
            self.trace.mix(request.id.0 ^ (at as u64) << 32);
            if self.trace.lines.is_some() {
                let (name, call) = (self.host_name(at), describe_call(&request.call));
                self.trace.say(|| format!("  {name} asks: {call}"));
            }
            if role == Role::Job && request.call.kind == Kind::POD {
                self.note_pod_request(at, incarnation, &request.call);
            }
            if role == Role::Job {
                self.note_status_request(at, &request.call, context);
            }
            let asking =
                asking.as_ref().map(|known| Box::new(self.judge.asks((at, incarnation), role, &request.call, known)));
            self.hosts[at].known.insert(request.id, SenderKnowledge { context, asking });
        }
        self.hosts[at].requests.extend(requests);
    }

    fn note_pod_request(&mut self, at: usize, incarnation: u32, call: &Call) {
        match call.verb {
            Verb::List => self.counters.hit(Sometimes::GateOpenedByList),
            Verb::Delete => {
                self.evidence.removals_asked.insert((at, incarnation, call.name.clone()));
            }
            Verb::StrategicPatch => {
                if let Action::PatchPod { name, revision: Some(_), change, .. } = Action::of(call)
                    && change != PodChange::Start
                {
                    self.evidence.removals_asked.insert((at, incarnation, name));
                }
            }
            _ => {}
        }
    }

    /// Sends the requests that the driver would send now.
    fn send(&mut self, at: usize) -> bool {
        let now = self.driver_now();
        let mut any = false;
        loop {
            let host = &mut self.hosts[at];
            let Some(request) = host.requests.next(&host.limit, now) else { return any };
            let known = host.known.get(&request.id).cloned().unwrap_or_default();
            let incarnation = host.incarnation;
            let hold = self.hold_request(&request.call);
            self.sent.push(Sent { host: at, incarnation, request, known, response: None, given_up: false, hold });
            any = true;
        }
    }

    // ---- time ----

    /// A driver wakes its controllers now and then, whether a wake-up is due or not.
    pub(crate) fn tick_for_nothing(&mut self, hosts: Range<usize>) -> bool {
        let at = hosts.start + self.choices.below(hosts.len());
        if self.hosts[at].is_idle() {
            return false;
        }
        self.tell(at, Input::Tick);
        true
    }

    pub(crate) fn tick(&mut self, at: usize) -> bool {
        let now = self.host_now(at);
        if self.hosts[at].is_idle() {
            return false;
        }
        let sent = self.send(at);
        if self.hosts[at].out.wake_at.is_none_or(|wake_at| wake_at > now) {
            return sent;
        }
        if self.trace.lines.is_some() {
            let name = self.host_name(at);
            self.trace.say(|| format!("{name} wakes"));
        }
        self.tell(at, Input::Tick);
        true
    }

    /// By the world's clock, and never earlier than requested: the world counts milliseconds.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        self.hosts.iter().filter(|host| !host.is_idle()).filter_map(|host| self.wake_of(host)).min()
    }

    pub(crate) fn wake_of(&self, host: &Host) -> Option<Timestamp> {
        let now = self.api.now;
        let ticks = host.out.wake_at.map(|wake_at| wake_at - host.clock);
        let since = |wake_at: Duration| Span::from_millis(wake_at.as_nanos().div_ceil(1_000_000) as i64);
        let sends = host.requests.wake_at().map(|wake_at| BEGINNING + since(wake_at));
        let closed = host.streams.iter().filter(|followed| matches!(followed.source, Source::Closed));
        let opens = closed.map(|followed| followed.opens_at).filter(|opens_at| *opens_at > now).min();
        ticks.into_iter().chain(sends).chain(opens).min()
    }

    // ---- after the faults ----

    pub(crate) fn heal_hosts(&mut self) {
        // The driver looks at the clock every few seconds, whatever it waits for.
        let wrong: Vec<usize> = (0..self.hosts.len()).filter(|at| self.hosts[*at].clock != Span::ZERO).collect();
        for host in &mut self.hosts {
            host.paused = false;
            host.clock = Span::ZERO;
            for followed in &mut host.streams {
                followed.stalled = false;
            }
        }
        // A request whose sender gave up is carried out now, or never.
        let mut turn = 0;
        while turn < self.sent.len() {
            let forgotten = self.sent[turn].given_up && self.choices.below(2) == 0;
            if forgotten {
                self.sent.swap_remove(turn);
            } else {
                turn += 1;
            }
        }
        for at in wrong {
            if !self.hosts[at].off && self.hosts[at].candidate().is_none() {
                self.tell(at, Input::Tick);
            }
        }
    }

    /// One step of a world without faults; false when there is nothing to do but wait.
    pub(crate) fn calm_host_step(&mut self) -> bool {
        if !self.sent.is_empty() {
            let at = self.sent.len() - 1;
            if self.sent[at].response.is_some() {
                self.answer(at);
            } else {
                self.carry_out(at);
            }
            return true;
        }
        // In turns: with two leaders the streams of the first could otherwise keep the second from ever reading its
        // own.
        let hosts = self.hosts.len();
        for host in 0..hosts {
            let at = (self.starts.calm_turn + host) % hosts;
            let streams = self.hosts[at].streams.len();
            for stream in 0..streams {
                let stream = (self.starts.calm_turn / hosts + stream) % streams;
                if self.hear(at, stream, usize::MAX) || self.bookmark(at, stream) {
                    self.starts.calm_turn += 1;
                    return true;
                }
            }
            if self.tick(at) {
                self.starts.calm_turn += 1;
                return true;
            }
        }
        false
    }

    /// Loses requests that could undo later changes. The content of a namespace is deleted by the name of the
    /// namespace, as in the API: nothing keeps such a request, once in flight, from a later namespace of that name.
    pub(crate) fn lose_requests_about(&mut self, namespace: &str) {
        let now = self.api.now;
        for sent in &mut self.sent {
            let call = &sent.request.call;
            if call.verb == Verb::DeleteCollection && call.namespace == namespace && sent.response.is_none() {
                sent.response = Some((faults::unknown(), now));
            }
        }
        self.sent.retain(|sent| sent.response.is_none() || !sent.given_up);
    }
}
