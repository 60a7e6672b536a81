//! Controllers in the simulated world, all of them as production runs them: behind bytes, with the driver's own
//! reflectors and request queue. Their streams lag, stall, break, are resumed or listed again, in pieces; their
//! requests are delayed, reordered, refused, lost, or carried out after their sender gave up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use compact_str::CompactString;
use serde_json::Value;
use tally_controllers::job::JobController;
use tally_core::ids::{JobUid, Revision};
use tally_core::mutation::Mutation;
use tally_core::time::{Span, Timestamp};
use tally_runtime::cache::Meta;
use tally_runtime::controller::{
    Call, Controller, Input, Kind, Metric, Outbox, Refusal, Reply, Request, RequestId, Stream, Verb,
};
use tally_runtime::driver::api::{Response, Start, StreamEvent as Heard, WatchError};
use tally_runtime::driver::events::Mailbox;
use tally_runtime::driver::limit::Limit;
use tally_runtime::driver::reflector::{Next, Reflector, Word};
use tally_runtime::driver::requests::Requests;
use tally_runtime::lease::Change;
use tally_runtime::response::{Interpreted, interpret};

use crate::action::{Action, PodChange};
use crate::api::Actor;
use crate::archive::Version;
use crate::cluster::Role;
use crate::counters::Sometimes;
use crate::election::Candidate;
use crate::oracle::Context;
use crate::trace::{describe_bytes, describe_call, describe_reply};
use crate::world::{BEGINNING, World};

pub(crate) struct Host<S: Mutation> {
    pub(crate) role: Role,
    /// The process that it is part of, if that process counts Pods.
    pub(crate) instance: Option<usize>,
    /// It waits until its process leads.
    pub(crate) off: bool,
    brain: Brain<S>,
    pub(crate) incarnation: u32,
    pub(crate) paused: bool,
    pub(crate) clock: Span,
    streams: Vec<Followed<S>>,
    out: Outbox,
    requests: Requests,
    limit: Limit,
    /// Of a recorder.
    pub(crate) mailbox: Option<Mailbox>,
    /// What the controller knew when it sent each request that is not answered yet.
    known: BTreeMap<RequestId, Known>,
}

/// The Job controller has its own variant because the simulator also inspects its state.
pub(crate) enum Brain<S: Mutation> {
    Job(Box<JobController<S>>),
    Candidate(Box<Candidate>),
    Other(Box<dyn Controller>),
}

struct Followed<S> {
    reflector: Reflector<S>,
    source: Source,
    seen: Revision,
    /// Nothing is delivered for now, and no error is reported.
    stalled: bool,
    /// By the world's clock.
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
    known: Known,
    pub(crate) response: Option<(Response, Timestamp)>,
    /// Its sender has given up: no response is delivered.
    given_up: bool,
}

#[derive(Clone, Default)]
struct Known {
    context: Context,
    asking: Option<Box<Asking>>,
}

/// What the sender of a request knew when it sent it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asking {
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

impl<S> Followed<S> {
    fn glimpsed(&self) -> Revision {
        match self.source {
            Source::State { at, .. } => at,
            Source::Closed | Source::Changes(_) => self.seen,
        }
    }
}

impl<S: Mutation> Brain<S> {
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

impl<S: Mutation> Host<S> {
    pub(crate) fn new(role: Role, brain: Brain<S>, mutation: S, in_flight: usize) -> Self {
        let follow = |stream| Followed {
            reflector: Reflector::with_mutation(stream, mutation),
            source: Source::Closed,
            seen: Revision(0),
            stalled: false,
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
            streams,
            out: Outbox::default(),
            requests: Requests::new(in_flight),
            limit: Limit::new(0.0, 0),
            mailbox: None,
            known: BTreeMap::new(),
        }
    }

    pub(crate) fn job_controller(&mut self) -> Option<&mut JobController<S>> {
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

/// Responses that say nothing about the object of a request.
const MISANSWERS: &[(u16, &str)] = &[
    (500, r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500}"#),
    (404, "<html>default backend - 404</html>"),
    (409, "<html>conflict</html>"),
    (404, r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{}}"#),
    (200, "<html>sign in</html>"),
    (410, ""),
    (422, "{}"),
    (503, "<html>try again</html>"),
];

fn unknown() -> Response {
    Response { reply: Reply::Unknown, served_at: None, retry_after: None }
}

fn refused(code: u16, reason: &str, message: &str) -> Response {
    let (reason, message) = (reason.to_owned(), message.to_owned());
    let refusal = Refusal { code, reason, message, causes: Vec::new() };
    Response { reply: Reply::Refused(refusal), served_at: None, retry_after: None }
}

impl<S: Mutation> World<S> {
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
            self.told += events.len() as u64;
        }
        let recorders = self.hosts.iter().position(|host| host.role == Role::Recorder && host.instance == instance);
        let Some(recorder) = recorders.filter(|_| instance.is_some()) else { return };
        let name = self.hosts[at].brain.name();
        for event in events {
            if let Some(mailbox) = &self.hosts[recorder].mailbox {
                self.posted += u64::from(mailbox.post(name, event));
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
            incarnations: self.incarnations,
            step: self.steps,
            given_up: false,
        };
        let (incarnation, role) = (host.incarnation, host.role);
        let asking = (!role.counts()).then(|| Asking {
            seen: host.streams.iter().map(|stream| stream.seen).collect(),
            glimpsed: host.streams.iter().map(Followed::glimpsed).collect(),
            ..Asking::default()
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
            let asking =
                asking.as_ref().map(|known| Box::new(self.judge.asks((at, incarnation), role, &request.call, known)));
            self.hosts[at].known.insert(request.id, Known { context, asking });
        }
        self.hosts[at].requests.extend(requests);
    }

    fn note_pod_request(&mut self, at: usize, incarnation: u32, call: &Call) {
        match call.verb {
            Verb::List => self.counters.hit(Sometimes::GateOpenedByList),
            Verb::Delete => {
                self.removals_asked.insert((at, incarnation, call.name.clone()));
            }
            Verb::StrategicPatch => {
                if let Action::PatchPod { name, revision: Some(_), .. } = Action::of(call) {
                    self.removals_asked.insert((at, incarnation, name));
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
            self.sent.push(Sent { host: at, incarnation, request, known, response: None, given_up: false });
            any = true;
        }
    }

    // ---- streams ----

    pub(crate) fn hear_any(&mut self, hosts: Range<usize>) -> bool {
        let count = hosts.len();
        let first = self.choices.below(count);
        for turn in 0..count {
            let at = hosts.start + (first + turn) % count;
            let streams = self.hosts[at].streams.len();
            if streams == 0 {
                continue;
            }
            let first = self.choices.below(streams);
            for turn in 0..streams {
                let stream = (first + turn) % streams;
                // Mostly a few at a time: a burst is what a stream that was behind delivers.
                let most = [1, 3, 1000][self.choices.below(3)];
                if self.hear(at, stream, most) {
                    return true;
                }
            }
        }
        false
    }

    /// Delivers up to `most` events of one stream to its controller. False: there were none.
    fn hear(&mut self, at: usize, stream: usize, most: usize) -> bool {
        if self.hosts[at].is_idle() || self.hosts[at].streams[stream].stalled {
            return false;
        }
        let mut heard = 0;
        while heard < most && self.hear_one(at, stream) {
            heard += 1;
        }
        heard > 0
    }

    fn hear_one(&mut self, at: usize, stream: usize) -> bool {
        let now = self.api.now;
        let followed = &mut self.hosts[at].streams[stream];
        let Stream { kind, metadata_only, .. } = followed.reflector.stream();
        let shown = |version: &Version| if metadata_only { version.metadata() } else { version.bytes.clone() };
        match &mut followed.source {
            Source::Closed if followed.opens_at > now => return false,
            Source::Closed => self.open(at, stream),
            Source::State { at: revision, rest } => {
                let revision = *revision;
                if let Some(version) = rest.pop_front() {
                    self.hears(at, stream, Heard::Object(shown(&version)));
                    return true;
                }
                let log = self.api.archive.log(&kind);
                followed.source = Source::Changes(log.partition_point(|version| version.at <= revision));
                self.hears(at, stream, Heard::Reached { at: revision, complete: true });
            }
            Source::Changes(next) => {
                let Some(version) = self.api.archive.log(&kind).get(*next).cloned() else { return false };
                *next += 1;
                followed.seen = version.at;
                if self.trace.lines.is_some() {
                    let name = self.host_name(at);
                    let end = if version.gone { "the end of " } else { "" };
                    self.trace.say(|| format!("{name} sees {end}{}", describe_bytes(kind, &version.bytes)));
                }
                let bytes = shown(&version);
                self.hears(at, stream, if version.gone { Heard::Gone(bytes) } else { Heard::Object(bytes) });
            }
        }
        true
    }

    fn hears(&mut self, at: usize, stream: usize, heard: Heard) {
        let followed = &mut self.hosts[at].streams[stream];
        match followed.reflector.hears(heard) {
            Word::Tell(input) => self.tell(at, input),
            Word::Synced(input) => {
                if let Input::InitDone(_, revision) = &input {
                    followed.seen = *revision;
                }
                self.tell(at, input);
            }
            Word::Broken(trouble) => self.breaks(at, stream, Some(&trouble)),
        }
    }

    /// Opens a stream. A list may be of the past: never older than what the server keeps. If it is older than what the
    /// reflector asked for, as a server that is behind may send it, the reflector must handle that.
    fn open(&mut self, at: usize, stream: usize) {
        let start = self.hosts[at].streams[stream].reflector.start();
        let kind = self.hosts[at].streams[stream].reflector.stream().kind;
        let source = match start {
            Start::Changes { after } if after < self.api.compacted => {
                self.counters.hit(Sometimes::TooOld);
                self.breaks(at, stream, Some(&WatchError::TooOld));
                return;
            }
            Start::Changes { after } => {
                self.counters.hit(Sometimes::StreamResumed);
                let log = self.api.archive.log(&kind);
                Source::Changes(log.partition_point(|version| version.at <= after))
            }
            Start::State { not_older_than } => {
                let behind = !self.healing && self.setup.weights.cut > 0 && self.choices.one_in(16);
                let floor = if behind { self.api.compacted } else { self.api.compacted.max(not_older_than) };
                let head = self.api.head();
                let span = (head.0 - floor.0.min(head.0)) as usize;
                let back = if self.healing { 0 } else { [0, 0, self.choices.below(span + 1)][self.choices.below(3)] };
                let revision = Revision(head.0 - back as u64);
                if back > 0 {
                    self.counters.hit(Sometimes::TimeTravel);
                }
                if revision < not_older_than {
                    self.counters.hit(Sometimes::OlderState);
                }
                self.note_hidden_life(at, stream, kind, revision);
                if self.trace.lines.is_some() {
                    let name = self.host_name(at);
                    self.trace.say(|| format!("{name} lists {} as of {revision}", kind.plural));
                }
                let rest = self.api.archive.state_at(&kind, revision).into_values().collect();
                Source::State { at: revision, rest }
            }
        };
        let followed = &mut self.hosts[at].streams[stream];
        followed.source = source;
        if let Some(input) = followed.reflector.opened() {
            self.tell(at, input);
        }
    }

    fn note_hidden_life(&mut self, at: usize, stream: usize, kind: Kind, until: Revision) {
        let seen = self.hosts[at].streams[stream].seen;
        if kind != Kind::POD || seen == Revision(0) || self.hosts[at].role != Role::Job {
            return;
        }
        let log = &self.api.pod_log;
        let hidden = log.iter().any(|entry| {
            let gone_unseen = entry.gone && entry.at > seen && entry.at <= until;
            let born = || log.iter().find(|other| other.object.uid == entry.object.uid).map(|birth| birth.at);
            gone_unseen && born().is_some_and(|born| born > seen)
        });
        if hidden {
            self.counters.hit(Sometimes::HiddenLife);
        }
    }

    /// A stream has ended.
    fn breaks(&mut self, at: usize, stream: usize, trouble: Option<&WatchError>) {
        let now = self.api.now;
        let followed = &mut self.hosts[at].streams[stream];
        followed.source = Source::Closed;
        followed.opens_at = match followed.reflector.ends(trouble) {
            Next::Again | Next::Relist => now,
            Next::After(wait) => now + Span::from_millis(wait.as_millis() as i64),
        };
    }

    pub(crate) fn bookmark_any(&mut self, hosts: Range<usize>) -> bool {
        let at = hosts.start + self.choices.below(hosts.len());
        let streams = self.hosts[at].streams.len();
        streams > 0 && {
            let stream = self.choices.below(streams);
            self.bookmark(at, stream)
        }
    }

    fn bookmark(&mut self, at: usize, stream: usize) -> bool {
        let followed = &self.hosts[at].streams[stream];
        let Source::Changes(next) = followed.source else { return false };
        if self.hosts[at].is_idle() || followed.stalled {
            return false;
        }
        let kind = followed.reflector.stream().kind;
        let reached = match self.api.archive.log(&kind).get(next) {
            Some(version) => Revision(version.at.0 - 1),
            None => self.api.head(),
        };
        if reached <= followed.seen {
            return false;
        }
        self.hosts[at].streams[stream].seen = reached;
        self.hears(at, stream, Heard::Reached { at: reached, complete: false });
        true
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
        let now = self.api.now;
        let wakes = |host: &Host<S>| {
            let ticks = host.out.wake_at.map(|wake_at| wake_at - host.clock);
            let since = |wake_at: Duration| Span::from_millis(wake_at.as_nanos().div_ceil(1_000_000) as i64);
            let sends = host.requests.wake_at().map(|wake_at| BEGINNING + since(wake_at));
            let closed = host.streams.iter().filter(|followed| matches!(followed.source, Source::Closed));
            let opens = closed.map(|followed| followed.opens_at).filter(|opens_at| *opens_at > now).min();
            ticks.into_iter().chain(sends).chain(opens).min()
        };
        self.hosts.iter().filter(|host| !host.is_idle()).filter_map(wakes).min()
    }

    // ---- the network ----

    fn choose_sent(&mut self, hosts: &Range<usize>, wanted: impl Fn(&Sent) -> bool) -> Option<usize> {
        let count = self.sent.len();
        if count == 0 {
            return None;
        }
        let first = self.choices.below(count);
        let mut turns = (0..count).map(|turn| (first + turn) % count);
        turns.find(|at| hosts.contains(&self.sent[*at].host) && wanted(&self.sent[*at]))
    }

    pub(crate) fn carry_out_any(&mut self, hosts: Range<usize>) -> bool {
        let Some(at) = self.choose_sent(&hosts, |sent| sent.response.is_none()) else { return false };
        self.carry_out(at);
        true
    }

    pub(crate) fn carry_out(&mut self, at: usize) {
        let Sent { host, incarnation, known, given_up, request, .. } = &self.sent[at];
        let (host, incarnation, given_up, known) = (*host, *incarnation, *given_up, known.clone());
        let call = request.call.clone();
        let role = self.hosts[host].role;
        // An instance that sent a request long ago also counts as acting when the request is carried out now.
        let context = Context { incarnations: self.incarnations, given_up, ..known.context };
        if role == Role::Job {
            self.check_removal_resumed(&call, host, incarnation, context);
        }
        let head = self.api.head();
        let actor = match role.counts() {
            true => Actor::Controller { instance: host, incarnation },
            false => Actor::Hosted { host, incarnation },
        };
        let reply = self.api.perform(&call, actor);
        self.trace.mix(self.api.head().0);
        if self.trace.lines.is_some() {
            let (name, told) = (self.host_name(host), describe_call(&call));
            self.trace.say(|| format!("  api for {name}: {told} -> {}", describe_reply(call.kind, &reply)));
        }
        let wrote = self.api.head() > head;
        if given_up && wrote {
            self.counters.hit(Sometimes::CarriedOutLate);
        }
        let dead = self.hosts[host].incarnation != incarnation;
        if role.counts() {
            if wrote && (dead || self.hosts[host].paused) {
                self.counters.hit(Sometimes::ZombieWrite);
            }
            self.note_reply(&call, &reply, host);
            self.settle_changes(context);
        } else {
            self.judge.carried_out(role, &call, &reply, &mut self.counters);
            self.asking = known.asking.map(|asking| *asking);
            self.settle_changes(Context::default());
            self.asking = None;
        }
        if given_up || dead {
            self.sent.swap_remove(at);
        } else {
            let now = self.api.now;
            self.sent[at].response = Some((Response { reply, served_at: Some(now), retry_after: None }, now));
        }
        if role.counts() && wrote {
            self.writes += 1;
            if self.setup.crash_after_write == Some(self.writes) {
                self.crash(host);
            }
        }
    }

    fn note_reply(&mut self, call: &Call, reply: &Reply, host: usize) {
        let refusal = match reply {
            Reply::Refused(refusal) => Some((refusal.code, refusal.reason.as_str())),
            _ => None,
        };
        match (call.kind, call.verb, refusal) {
            (Kind::JOB, Verb::MergePatch, Some((409, _))) => self.counters.hit(Sometimes::Conflict),
            (Kind::JOB, Verb::MergePatch, Some((403 | 422, _))) => {
                // The write was valid for the status it was planned from; an edit by another writer may have made it
                // invalid.
                if let (Action::WriteJobStatus { name, revision: Some(_), .. }, Reply::Refused(refusal)) =
                    (Action::of(call), reply)
                    && !refusal.causes.iter().any(|(field, _)| field == "metadata.uid")
                {
                    self.oracle.fail("I13", format!("the status of {name} was refused: {}", refusal.message));
                }
            }
            (Kind::JOB, Verb::MergePatch, None) if reply.is_done() => {
                let job = (call.namespace.clone(), call.name.clone());
                if self.last_status_writer.insert(job, host).is_some_and(|last| last != host) {
                    self.counters.hit(Sometimes::TwoWriters);
                }
            }
            (Kind::EVENT, Verb::MergePatch, None) if reply.is_done() => self.counters.hit(Sometimes::EventCounted),
            (Kind::POD, Verb::Create, Some((409, "AlreadyExists"))) => self.counters.hit(Sometimes::AlreadyExists),
            (Kind::POD, Verb::StrategicPatch, Some((403, _))) => self.counters.hit(Sometimes::ReleaseRefused),
            (Kind::POD, Verb::StrategicPatch, None) if reply.is_done() => {
                if let Action::PatchPod { change: PodChange::Adopt { .. }, .. } = Action::of(call) {
                    self.counters.hit(Sometimes::Adopted);
                }
            }
            _ => {}
        }
    }

    /// H2: while a Pod that a dead instance began to remove still runs, no other is removed in its place.
    fn check_removal_resumed(&mut self, call: &Call, host: usize, incarnation: u32, context: Context) {
        if (call.kind, call.verb) != (Kind::POD, Verb::StrategicPatch) {
            return;
        }
        let Action::PatchPod { namespace, name, revision: Some(revision), change: PodChange::Release, .. } =
            Action::of(call)
        else {
            return;
        };
        let Some(victim) = self.api.pods.get(&(namespace, name.clone())) else {
            return;
        };
        let Some(job) = victim.view.job().and_then(|uid| self.api.job_by_uid(uid)) else {
            return;
        };
        let any_order = job.view.spec.is_indexed() || self.oracle.was_suspended(&job.view.uid);
        // Pods of a Job that is being deleted, and failures that are ignored, are released at their revision as well.
        let is_removal = victim.view.is_active() && !job.view.deleting;
        if victim.view.revision != revision || any_order || !is_removal {
            return;
        }
        let dead = |actor: Actor| match actor {
            Actor::Controller { instance, incarnation } => self.hosts[instance].incarnation != incarnation,
            _ => false,
        };
        let forgotten = self.api.pods_of(&job.view.uid).find(|stored| {
            let pod = &stored.view;
            pod.revision <= context.pods_at.min(context.jobs_at)
                && job.view.spec.selector.matches(&pod.labels)
                && self.oracle.half_removed(pod).is_some_and(dead)
                && !self.removals_asked.contains(&(host, incarnation, pod.name.clone()))
        });
        if let Some(forgotten) = forgotten {
            let text = format!("{name} is removed while {}, half removed, runs on", forgotten.view.name);
            self.oracle.fail("H2", text);
        }
    }

    pub(crate) fn answer_any(&mut self, hosts: Range<usize>) -> bool {
        let awake: Vec<bool> = self.hosts.iter().map(|host| !host.is_idle()).collect();
        let answered = |sent: &Sent| sent.response.is_some() && awake[sent.host];
        let Some(at) = self.choose_sent(&hosts, answered) else { return false };
        self.answer(at);
        true
    }

    pub(crate) fn answer(&mut self, at: usize) {
        let Sent { host, incarnation, request, response, .. } = self.sent.swap_remove(at);
        let Some((response, _)) = response else { return };
        if self.hosts[host].incarnation != incarnation {
            return;
        }
        if self.trace.lines.is_some() {
            let (name, call) = (self.host_name(host), describe_call(&request.call));
            let told = describe_reply(request.call.kind, &response.reply);
            self.trace.say(|| format!("{name} hears of {call}: {told}"));
        }
        let (role, now) = (self.hosts[host].role, self.driver_now());
        if !role.counts() {
            self.judge.heard((host, incarnation), role, &request.call, &response.reply);
        }
        if let (Role::Job, Kind::JOB, Verb::MergePatch, Reply::Done(job)) =
            (role, request.call.kind, request.call.verb, &response.reply)
            && let Some(job) = Meta::of(job)
        {
            let actor = Actor::Controller { instance: host, incarnation };
            self.oracle.laws.told_of_job(&JobUid::new(&job.uid), job.revision(), actor, self.steps);
        }
        self.heard_of(host, request.id, response, now);
    }

    fn heard_of(&mut self, host: usize, request: RequestId, response: Response, now: Duration) {
        match self.hosts[host].requests.answered(request, response, now, 0.5) {
            Some(input) => {
                self.hosts[host].known.remove(&request);
                self.tell(host, input);
            }
            None => self.counters.hit(Sometimes::SentAgain),
        }
    }

    // ---- faults ----

    pub(crate) fn lose_request(&mut self, hosts: Range<usize>) -> bool {
        let Some(at) = self.choose_sent(&hosts, |sent| sent.response.is_none()) else { return false };
        self.say_call(at, "lost");
        self.counters.hit(Sometimes::RequestLost);
        if self.sent[at].given_up {
            self.sent.swap_remove(at);
        } else {
            self.sent[at].response = Some((unknown(), self.api.now));
        }
        true
    }

    pub(crate) fn lose_reply(&mut self, hosts: Range<usize>) -> bool {
        let Some(at) = self.choose_sent(&hosts, |sent| sent.response.is_none() && !sent.given_up) else { return false };
        let (host, id) = (self.sent[at].host, self.sent[at].request.id);
        self.carry_out(at);
        let mut sent = self.sent.iter_mut();
        if let Some(sent) = sent.find(|sent| sent.host == host && sent.request.id == id && sent.response.is_some()) {
            sent.response = Some((unknown(), self.api.now));
            self.counters.hit(Sometimes::ReplyLost);
            self.trace.say(|| "  ... and the reply is lost".to_owned());
        }
        true
    }

    /// The sender receives an unknown outcome; the request is still in flight.
    pub(crate) fn give_up(&mut self, hosts: Range<usize>) -> bool {
        let open = |sent: &Sent| sent.response.is_none() && !sent.given_up;
        let Some(at) = self.choose_sent(&hosts, open) else { return false };
        self.say_call(at, "given up, and still in flight");
        let Sent { host, incarnation, request, .. } = &self.sent[at];
        let (host, incarnation, id) = (*host, *incarnation, request.id);
        self.sent[at].given_up = true;
        if self.hosts[host].incarnation == incarnation {
            let now = self.driver_now();
            self.heard_of(host, id, unknown(), now);
        }
        true
    }

    pub(crate) fn refuse(&mut self, hosts: Range<usize>) -> bool {
        let open = |sent: &Sent| sent.response.is_none() && !sent.given_up;
        let Some(at) = self.choose_sent(&hosts, open) else { return false };
        let Sent { host, request, .. } = &self.sent[at];
        let status = self.hosts[*host].role == Role::Job && request.call.subresource == "status";
        let (code, reason, message, seconds) = *self.choices.pick(&[
            (503, "ServiceUnavailable", "not now", 0),
            (403, "Forbidden", "forbidden: quota", 0),
            (503, "ServiceUnavailable", "not now, but then", 1),
            (429, "TooManyRequests", "not so fast", 2),
        ]);
        // A status that is refused permanently would be a bug of ours, not a fault of the world.
        let (code, reason, message) =
            if status && code == 403 { (503, "", "not now") } else { (code, reason, message) };
        self.say_call(at, message);
        self.counters.hit(if code == 403 { Sometimes::Refused } else { Sometimes::Unavailable });
        let retry_after = (seconds > 0).then_some(Duration::from_secs(seconds));
        self.sent[at].response = Some((Response { retry_after, ..refused(code, reason, message) }, self.api.now));
        true
    }

    /// A proxy answers, whether or not the server has carried out the request; or the server answers with an error
    /// after the write. Production code decides what that means.
    pub(crate) fn misanswer(&mut self, hosts: Range<usize>) -> bool {
        let open = |sent: &Sent| sent.response.is_none() && !sent.given_up;
        let Some(at) = self.choose_sent(&hosts, open) else { return false };
        let Sent { host, request, .. } = &self.sent[at];
        let (host, id, call) = (*host, request.id, request.call.clone());
        let (code, body) = *self.choices.pick(MISANSWERS);
        let (code, body) = if call.verb == Verb::List && code == 200 { (502, "") } else { (code, body) };
        if self.choices.below(2) == 0 {
            self.carry_out(at);
        }
        let open = |sent: &&mut Sent| sent.host == host && sent.request.id == id && !sent.given_up;
        let Some(sent) = self.sent.iter_mut().find(open) else { return true };
        let Interpreted { reply, retry_after, .. } = interpret(&call, code, None, &Bytes::from_static(body.as_bytes()));
        sent.response = Some((Response { reply, served_at: None, retry_after }, self.api.now));
        self.counters.hit(Sometimes::Misanswered);
        self.trace.say(|| format!("  ... and is answered {code} {body}"));
        true
    }

    fn say_call(&mut self, at: usize, what: &str) {
        if self.trace.lines.is_some() {
            let (name, call) = (self.host_name(self.sent[at].host), describe_call(&self.sent[at].request.call));
            self.trace.say(|| format!("  {what}: {call} of {name}"));
        }
    }

    /// The controllers that run in one process.
    pub(crate) fn process_of(&self, at: usize) -> Vec<usize> {
        match self.hosts[at].instance {
            Some(instance) => {
                let all = 0..self.hosts.len();
                all.filter(|at| self.hosts[*at].instance == Some(instance)).collect()
            }
            None => vec![at],
        }
    }

    pub(crate) fn crash_any(&mut self, hosts: Range<usize>) -> bool {
        let at = hosts.start + self.choices.below(hosts.len());
        self.crash(at);
        true
    }

    pub(crate) fn crash(&mut self, at: usize) {
        for at in self.process_of(at) {
            self.crash_one(at);
        }
    }

    fn crash_one(&mut self, at: usize) {
        let Host { role, instance, incarnation, clock, .. } = self.hosts[at];
        if self.trace.lines.is_some() {
            let name = self.host_name(at);
            self.trace.say(|| format!("{name} crashes and starts again"));
        }
        if role == Role::Job {
            self.note_crash();
            self.incarnations += 1;
        } else {
            self.counters.hit(Sometimes::HostCrashed);
        }
        let paused = self.hosts[at].paused && instance.is_none();
        self.hosts[at] = Host { incarnation: incarnation + 1, clock, paused, ..self.new_host(role, instance) };
        // Some of the requests it sent may still arrive.
        self.sent.retain(|sent| sent.host != at || sent.response.is_none());
        let mut turn = 0;
        while turn < self.sent.len() {
            if self.sent[turn].host == at && self.choices.below(2) == 0 {
                self.sent.swap_remove(turn);
            } else {
                turn += 1;
            }
        }
    }

    pub(crate) fn pause_any(&mut self, hosts: Range<usize>) -> bool {
        let at = hosts.start + self.choices.below(hosts.len());
        let paused = !self.hosts[at].paused;
        for at in self.process_of(at) {
            self.hosts[at].paused = paused;
        }
        if self.trace.lines.is_some() {
            let name = self.host_name(at);
            self.trace.say(|| format!("{name} {}", if paused { "is paused" } else { "goes on" }));
        }
        true
    }

    fn choose_stream(&mut self, hosts: Range<usize>) -> Option<(usize, usize)> {
        let at = hosts.start + self.choices.below(hosts.len());
        let streams = self.hosts[at].streams.len();
        (streams > 0).then(|| (at, self.choices.below(streams)))
    }

    /// A stream ends by itself, breaks, or receives 410 because the server no longer has its revision.
    pub(crate) fn cut_any(&mut self, hosts: Range<usize>) -> bool {
        let Some((at, stream)) = self.choose_stream(hosts) else { return false };
        let followed = &self.hosts[at].streams[stream];
        let (kind, listing) = match followed.source {
            Source::Closed => return false,
            Source::State { .. } => (followed.reflector.stream().kind, true),
            Source::Changes(_) => (followed.reflector.stream().kind, false),
        };
        let trouble = match self.choices.below(4) {
            0 => None,
            1 => Some(WatchError::Broken("reset".to_owned())),
            _ => Some(WatchError::TooOld),
        };
        let counter = match (&trouble, listing) {
            (_, true) => Sometimes::ListInterrupted,
            (Some(WatchError::TooOld), false) => Sometimes::Relist,
            _ => Sometimes::StreamBroken,
        };
        self.counters.hit(counter);
        if self.trace.lines.is_some() {
            let name = self.host_name(at);
            self.trace.say(|| format!("{name} loses its watch of {}: {trouble:?}", kind.plural));
        }
        self.breaks(at, stream, trouble.as_ref());
        true
    }

    pub(crate) fn stall_any(&mut self, hosts: Range<usize>) -> bool {
        let Some((at, stream)) = self.choose_stream(hosts) else { return false };
        let followed = &mut self.hosts[at].streams[stream];
        followed.stalled = !followed.stalled;
        let (stalled, plural) = (followed.stalled, followed.reflector.stream().kind.plural);
        if self.trace.lines.is_some() {
            let name = self.host_name(at);
            let what = if stalled { "stalls" } else { "goes on" };
            self.trace.say(|| format!("the watch of {plural} of {name} {what}"));
        }
        if stalled {
            self.counters.hit(Sometimes::StreamStalled);
        }
        true
    }

    pub(crate) fn clock_jumps(&mut self, hosts: Range<usize>) -> bool {
        let at = hosts.start + self.choices.below(hosts.len());
        let seconds = match self.hosts[at].role.counts() {
            true => *self.choices.pick(&[0, 3, 3_600, -3, -3_600, 100_000, -100_000]),
            false => *self.choices.pick(&[0, 3, 3_600, -3, -3_600]),
        };
        let (before, clock) = (self.hosts[at].clock, Span::from_seconds(seconds));
        for at in self.process_of(at) {
            self.hosts[at].clock = clock;
        }
        self.clocks_sane = false;
        if clock < before {
            self.counters.hit(Sometimes::ClockBack);
        }
        if clock > Span::ZERO {
            self.counters.hit(Sometimes::ClockAhead);
        }
        if self.trace.lines.is_some() {
            let name = self.host_name(at);
            self.trace.say(|| format!("the clock of {name} is off by {seconds} s"));
        }
        true
    }

    /// History is compacted. Watches that would have to begin before this revision list again.
    pub(crate) fn compact(&mut self) -> bool {
        let head = self.api.head();
        let back = self.choices.below(20) as u64;
        let upto = Revision(head.0.saturating_sub(back)).max(self.api.compacted);
        self.api.compacted = upto;
        self.trace.say(|| format!("history up to {upto} is compacted"));
        for at in 0..self.hosts.len() {
            for stream in 0..self.hosts[at].streams.len() {
                let followed = &self.hosts[at].streams[stream];
                let Source::Changes(next) = followed.source else { continue };
                let kind = followed.reflector.stream().kind;
                if self.api.archive.log(&kind).get(next).is_some_and(|version| version.at <= upto) {
                    self.counters.hit(Sometimes::TooOld);
                    self.breaks(at, stream, Some(&WatchError::TooOld));
                }
            }
        }
        true
    }

    // ---- after the faults ----

    pub(crate) fn heal_hosts(&mut self) {
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
            let at = (self.calm_turn + host) % hosts;
            let streams = self.hosts[at].streams.len();
            for stream in 0..streams {
                let stream = (self.calm_turn / hosts + stream) % streams;
                if self.hear(at, stream, usize::MAX) || self.bookmark(at, stream) {
                    self.calm_turn += 1;
                    return true;
                }
            }
            if self.tick(at) {
                self.calm_turn += 1;
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
                sent.response = Some((unknown(), now));
            }
        }
        self.sent.retain(|sent| sent.response.is_none() || !sent.given_up);
    }
}
