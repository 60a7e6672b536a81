//! Controllers behind bytes in the simulated world: the garbage collector, the scheduler, nodes and all the others, as
//! production runs them. Each has streams of its own, which lag, stall, break and are listed anew, in pieces; what it
//! asks for is delayed, reordered, refused, lost, or carried out after it was given up for lost.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use compact_str::CompactString;
use serde_json::Value;
use tally_controllers::controller::{Call, Controller, Input, Outbox, Refusal, Reply, Request, Stream, Verb};
use tally_core::ids::Revision;
use tally_core::mutation::Soundness;
use tally_core::time::{Span, Timestamp};

use crate::api::Actor;
use crate::archive::Version;
use crate::cluster::Role;
use crate::counters::Sometimes;
use crate::oracle::Context;
use crate::world::World;

pub(crate) struct Hosted {
    pub(crate) role: Role,
    pub(crate) controller: Box<dyn Controller>,
    pub(crate) incarnation: u32,
    pub(crate) paused: bool,
    pub(crate) clock: Span,
    pub(crate) streams: Vec<Followed>,
    pub(crate) out: Outbox,
}

pub(crate) struct Followed {
    pub(crate) stream: Stream,
    place: Place,
    pub(crate) seen: Revision,
    /// Nothing comes for now, and nobody says so.
    stalled: bool,
}

enum Place {
    /// Must list first.
    Nowhere,
    Listing {
        at: Revision,
        rest: VecDeque<Arc<Version>>,
    },
    /// The next version of the log.
    At(usize),
}

/// A request under way.
pub(crate) struct Sent {
    pub(crate) host: usize,
    pub(crate) incarnation: u32,
    pub(crate) request: Request,
    pub(crate) asking: Asking,
    reply: Option<(Reply, Timestamp)>,
    /// Its sender has given it up: no answer will be heard.
    given_up: bool,
}

/// What the sender of a request knew when it asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asking {
    /// How far each of its streams had come, in their order.
    pub(crate) seen: Vec<Revision>,
    /// The newest state it can have seen something of: that of a list which is not complete yet.
    pub(crate) glimpsed: Vec<Revision>,
    /// The CronJob as it last read it, if it is one that it starts a Job for.
    pub(crate) read: Option<Arc<Value>>,
    /// Which of all bindings it is, in the order in which they were first asked for.
    pub(crate) turn: u64,
    /// Nodes that it has looked for in vain.
    pub(crate) missed: BTreeSet<CompactString>,
}

impl Followed {
    fn glimpsed(&self) -> Revision {
        match self.place {
            Place::Listing { at, .. } => at,
            Place::Nowhere | Place::At(_) => self.seen,
        }
    }
}

impl Hosted {
    pub(crate) fn new(role: Role, controller: Box<dyn Controller>, incarnation: u32, clock: Span) -> Self {
        let follow = |stream| Followed { stream, place: Place::Nowhere, seen: Revision(0), stalled: false };
        let streams = controller.streams().into_iter().map(follow).collect();
        Self { role, controller, incarnation, paused: false, clock, streams, out: Outbox::default() }
    }
}

pub(crate) fn describe_call(call: &Call) -> String {
    let place = [call.namespace.as_str(), call.name.as_str()].join("/");
    let sub = if call.subresource.is_empty() { "" } else { " " };
    format!("{:?} {} {place}{sub}{}", call.verb, call.kind.plural, call.subresource)
}

fn describe_reply(reply: &Reply) -> String {
    match reply {
        Reply::Done(_) => "done".into(),
        Reply::DoneWithStatus => "done, and nothing to show".into(),
        Reply::Listed { items, at } => format!("{} objects as of {at}", items.len()),
        Reply::Refused(refusal) => format!("refused ({}): {}", refusal.code, refusal.message),
        Reply::Unknown => "nobody knows".into(),
    }
}

impl<S: Soundness> World<S> {
    pub(crate) fn host_name(&self, at: usize) -> String {
        format!("{}/{at}", self.hosts[at].controller.name())
    }

    fn host_now(&self, at: usize) -> Timestamp {
        self.api.now + self.hosts[at].clock
    }

    pub(crate) fn tell(&mut self, at: usize, input: Input<'_>) {
        let now = self.host_now(at);
        let host = &mut self.hosts[at];
        host.controller.handle(input, now, &mut host.out);
        host.out.metrics.clear();
        self.told += host.out.events.len() as u64;
        host.out.events.clear();
        let requests = std::mem::take(&mut host.out.requests);
        if requests.is_empty() {
            return;
        }
        let seen = host.streams.iter().map(|stream| stream.seen).collect();
        let glimpsed = host.streams.iter().map(Followed::glimpsed).collect();
        let known = Asking { seen, glimpsed, ..Asking::default() };
        let (incarnation, role) = (host.incarnation, host.role);
        for request in requests {
            self.trace.mix(request.id.0 ^ (at as u64) << 32);
            if self.trace.lines.is_some() {
                let (name, call) = (self.host_name(at), describe_call(&request.call));
                self.trace.say(|| format!("  {name} asks: {call}"));
            }
            let asking = self.judge.asks((at, incarnation), role, &request.call, &known);
            self.sent.push(Sent { host: at, incarnation, request, asking, reply: None, given_up: false });
        }
    }

    // ---- ordinary steps ----

    pub(crate) fn host_acts(&mut self) -> bool {
        match self.choices.weighted(&[40, 24, 24, 10, 1]) {
            0 => self.host_hears_any(),
            1 => self.carry_out_any(),
            2 => self.reply_any(),
            3 => self.host_bookmark_any(),
            _ => self.host_ticks_for_nothing(),
        }
    }

    pub(crate) fn hosts_progress(&mut self) -> bool {
        !self.hosts.is_empty() && (self.reply_any() || self.carry_out_any() || self.host_hears_any())
    }

    fn host_hears_any(&mut self) -> bool {
        let count = self.hosts.len();
        let first = self.choices.below(count);
        for turn in 0..count {
            let at = (first + turn) % count;
            let streams = self.hosts[at].streams.len();
            let first = self.choices.below(streams);
            for turn in 0..streams {
                let stream = (first + turn) % streams;
                // Mostly a few at a time: a burst is what a stream that was behind brings.
                let most = [1, 3, 1000][self.choices.below(3)];
                if self.host_hears(at, stream, most) {
                    return true;
                }
            }
        }
        false
    }

    /// Brings a controller up to `most` things of one of its streams. False: there was nothing.
    pub(crate) fn host_hears(&mut self, at: usize, stream: usize, most: usize) -> bool {
        if self.hosts[at].paused || self.hosts[at].streams[stream].stalled {
            return false;
        }
        let mut heard = 0;
        while heard < most && self.host_hears_one(at, stream) {
            heard += 1;
        }
        heard > 0
    }

    fn host_hears_one(&mut self, at: usize, stream: usize) -> bool {
        let Stream { kind, metadata_only, .. } = self.hosts[at].streams[stream].stream;
        let shown = |version: &Version| if metadata_only { version.metadata.clone() } else { version.bytes.clone() };
        let followed = &mut self.hosts[at].streams[stream];
        match &mut followed.place {
            Place::Nowhere => {
                self.host_lists(at, stream);
                true
            }
            Place::Listing { at: revision, rest } => {
                let revision = *revision;
                if let Some(version) = rest.pop_front() {
                    self.tell(at, Input::Observed(kind, &shown(&version)));
                    return true;
                }
                let log = self.archive().log(&kind);
                let next = log.iter().position(|version| version.at > revision).unwrap_or(log.len());
                let followed = &mut self.hosts[at].streams[stream];
                followed.place = Place::At(next);
                followed.seen = revision;
                self.tell(at, Input::Listed(kind, revision));
                true
            }
            Place::At(next) => {
                let position = *next;
                let Some(version) = self.archive().log(&kind).get(position).cloned() else { return false };
                let followed = &mut self.hosts[at].streams[stream];
                followed.place = Place::At(position + 1);
                followed.seen = version.at;
                if self.trace.lines.is_some() {
                    let name = self.host_name(at);
                    let end = if version.gone { "the end of " } else { "" };
                    self.trace.say(|| {
                        format!(
                            "{name} sees {end}{} {}/{} @{}",
                            kind.plural, version.namespace, version.name, version.at
                        )
                    });
                }
                let bytes = shown(&version);
                self.tell(at, if version.gone { Input::Gone(kind, &bytes) } else { Input::Observed(kind, &bytes) });
                true
            }
        }
    }

    /// A list begins, possibly of the past: never older than what was seen before, nor than what is kept.
    fn host_lists(&mut self, at: usize, stream: usize) {
        let head = self.api.head();
        let floor = self.api.compacted.max(self.hosts[at].streams[stream].seen);
        let span = (head.0 - floor.0.min(head.0)) as usize;
        let back = if self.healing { 0 } else { [0, 0, self.choices.below(span + 1)][self.choices.below(3)] };
        let revision = Revision(head.0 - back as u64);
        let kind = self.hosts[at].streams[stream].stream.kind;
        let rest = self.archive().state_at(&kind, revision).into_values().collect();
        self.hosts[at].streams[stream].place = Place::Listing { at: revision, rest };
        if self.trace.lines.is_some() {
            let name = self.host_name(at);
            self.trace.say(|| format!("{name} lists {} as of {revision}", kind.plural));
        }
        self.tell(at, Input::Listing(kind));
    }

    fn host_bookmark_any(&mut self) -> bool {
        let at = self.choices.below(self.hosts.len());
        let stream = self.choices.below(self.hosts[at].streams.len());
        self.host_bookmark(at, stream)
    }

    pub(crate) fn host_bookmark(&mut self, at: usize, stream: usize) -> bool {
        let followed = &self.hosts[at].streams[stream];
        let Place::At(next) = followed.place else { return false };
        if self.hosts[at].paused || followed.stalled {
            return false;
        }
        let kind = followed.stream.kind;
        let reached = match self.archive().log(&kind).get(next) {
            Some(version) => Revision(version.at.0 - 1),
            None => self.api.head(),
        };
        if reached <= followed.seen {
            return false;
        }
        self.hosts[at].streams[stream].seen = reached;
        self.tell(at, Input::Reached(kind, reached));
        true
    }

    /// A driver wakes its controllers now and then, due or not.
    fn host_ticks_for_nothing(&mut self) -> bool {
        let at = self.choices.below(self.hosts.len());
        if self.hosts[at].paused {
            return false;
        }
        self.tell(at, Input::Tick);
        true
    }

    pub(crate) fn host_ticks(&mut self, at: usize) -> bool {
        let now = self.host_now(at);
        if self.hosts[at].paused || self.hosts[at].out.wake_at.is_none_or(|wake_at| wake_at > now) {
            return false;
        }
        if self.trace.lines.is_some() {
            let name = self.host_name(at);
            self.trace.say(|| format!("{name} wakes"));
        }
        self.tell(at, Input::Tick);
        true
    }

    /// By the world's clock, and never before the moment: the world counts milliseconds.
    pub(crate) fn hosts_wake_at(&self) -> Option<Timestamp> {
        let wakes = self.hosts.iter().filter(|host| !host.paused);
        wakes.filter_map(|host| host.out.wake_at.map(|wake_at| wake_at - host.clock)).min()
    }

    // ---- the network ----

    fn choose_sent(&mut self, wanted: impl Fn(&Sent) -> bool) -> Option<usize> {
        let count = self.sent.len();
        if count == 0 {
            return None;
        }
        let first = self.choices.below(count);
        (0..count).map(|turn| (first + turn) % count).find(|at| wanted(&self.sent[*at]))
    }

    fn carry_out_any(&mut self) -> bool {
        let Some(at) = self.choose_sent(|sent| sent.reply.is_none()) else { return false };
        self.carry_out(at);
        true
    }

    fn carry_out(&mut self, at: usize) {
        let Sent { host, incarnation, asking, given_up, request, .. } = &self.sent[at];
        let (host, incarnation, given_up, asking) = (*host, *incarnation, *given_up, asking.clone());
        let call = request.call.clone();
        let head = self.api.head();
        let reply = self.api.carry_out(&call, Actor::Hosted { host, incarnation });
        self.trace.mix(self.api.head().0);
        if self.trace.lines.is_some() {
            let (name, call) = (self.host_name(host), describe_call(&call));
            self.trace.say(|| format!("  api for {name}: {call} -> {}", describe_reply(&reply)));
        }
        let wrote = self.api.head() > head;
        if given_up && wrote {
            self.counters.hit(Sometimes::CarriedOutLate);
        }
        self.judge.carried_out(self.hosts[host].role, &call, &reply, &mut self.counters);
        self.asking = Some(asking);
        self.settle_changes(Context::default());
        self.asking = None;
        if given_up || self.hosts[host].incarnation != incarnation {
            self.sent.swap_remove(at);
        } else {
            self.sent[at].reply = Some((reply, self.api.now));
        }
    }

    fn reply_any(&mut self) -> bool {
        let awake: Vec<bool> = self.hosts.iter().map(|host| !host.paused).collect();
        let Some(at) = self.choose_sent(|sent| sent.reply.is_some() && awake[sent.host]) else { return false };
        self.reply(at);
        true
    }

    fn reply(&mut self, at: usize) {
        let Sent { host, incarnation, request, reply, .. } = self.sent.swap_remove(at);
        let Some((reply, served_at)) = reply else { return };
        if self.hosts[host].incarnation != incarnation {
            return;
        }
        if self.trace.lines.is_some() {
            let (name, call) = (self.host_name(host), describe_call(&request.call));
            self.trace.say(|| format!("{name} hears of {call}: {}", describe_reply(&reply)));
        }
        self.judge.heard((host, incarnation), self.hosts[host].role, &request.call, &reply);
        self.tell(host, Input::Answered { request: request.id, reply, served_at: Some(served_at) });
    }

    // ---- faults ----

    pub(crate) fn host_fault(&mut self) -> bool {
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
        match self.choices.weighted(&table) {
            0 => self.host_request_lost(),
            1 => self.host_reply_lost(),
            2 => self.host_gives_up(),
            3 => self.host_refused(),
            4 => {
                let at = self.choices.below(self.hosts.len());
                self.host_crashes(at);
                true
            }
            5 => self.host_pauses(),
            6 => self.host_cut(),
            7 => self.host_stalls(),
            _ => self.host_clock_jumps(),
        }
    }

    fn host_request_lost(&mut self) -> bool {
        let Some(at) = self.choose_sent(|sent| sent.reply.is_none()) else { return false };
        self.say_call(at, "lost");
        self.counters.hit(Sometimes::RequestLost);
        if self.sent[at].given_up {
            self.sent.swap_remove(at);
        } else {
            self.sent[at].reply = Some((Reply::Unknown, self.api.now));
        }
        true
    }

    fn host_reply_lost(&mut self) -> bool {
        let Some(at) = self.choose_sent(|sent| sent.reply.is_some()) else { return false };
        self.say_call(at, "the reply is lost");
        self.counters.hit(Sometimes::ReplyLost);
        self.sent[at].reply = Some((Reply::Unknown, self.api.now));
        true
    }

    /// The sender is told that nobody knows; the request is still on its way.
    fn host_gives_up(&mut self) -> bool {
        let Some(at) = self.choose_sent(|sent| sent.reply.is_none() && !sent.given_up) else { return false };
        self.say_call(at, "given up, and still under way");
        let Sent { host, incarnation, request, .. } = &mut self.sent[at];
        let (host, incarnation) = (*host, *incarnation);
        let id = request.id;
        self.sent[at].given_up = true;
        if self.hosts[host].incarnation == incarnation {
            self.tell(host, Input::Answered { request: id, reply: Reply::Unknown, served_at: None });
        }
        true
    }

    fn host_refused(&mut self) -> bool {
        let Some(at) = self.choose_sent(|sent| sent.reply.is_none() && !sent.given_up) else { return false };
        let (code, reason, message) = *self.choices.pick(&[
            (503, "ServiceUnavailable", "not now"),
            (403, "Forbidden", "forbidden: policy"),
            (500, "InternalError", "something broke"),
        ]);
        self.say_call(at, message);
        self.counters.hit(Sometimes::Refused);
        let refusal = Refusal { code, reason: reason.to_owned(), message: message.to_owned(), causes: Vec::new() };
        self.sent[at].reply = Some((Reply::Refused(refusal), self.api.now));
        true
    }

    fn say_call(&mut self, at: usize, what: &str) {
        if self.trace.lines.is_some() {
            let (name, call) = (self.host_name(self.sent[at].host), describe_call(&self.sent[at].request.call));
            self.trace.say(|| format!("  {what}: {call} of {name}"));
        }
    }

    pub(crate) fn host_crashes(&mut self, at: usize) {
        let Hosted { role, incarnation, clock, .. } = self.hosts[at];
        if self.trace.lines.is_some() {
            let name = self.host_name(at);
            self.trace.say(|| format!("{name} crashes and starts again"));
        }
        self.counters.hit(Sometimes::HostCrashed);
        self.hosts[at] = self.new_host(role, incarnation + 1, clock);
        // Some of what it sent may still arrive.
        self.sent.retain(|sent| sent.host != at || sent.reply.is_none());
        let mut turn = 0;
        while turn < self.sent.len() {
            if self.sent[turn].host == at && self.choices.below(2) == 0 {
                self.sent.swap_remove(turn);
            } else {
                turn += 1;
            }
        }
    }

    fn host_pauses(&mut self) -> bool {
        let at = self.choices.below(self.hosts.len());
        let paused = !self.hosts[at].paused;
        self.hosts[at].paused = paused;
        if self.trace.lines.is_some() {
            let name = self.host_name(at);
            self.trace.say(|| format!("{name} {}", if paused { "is paused" } else { "goes on" }));
        }
        true
    }

    fn host_cut(&mut self) -> bool {
        let at = self.choices.below(self.hosts.len());
        let stream = self.choices.below(self.hosts[at].streams.len());
        let followed = &mut self.hosts[at].streams[stream];
        match std::mem::replace(&mut followed.place, Place::Nowhere) {
            Place::Nowhere => return false,
            Place::Listing { .. } => self.counters.hit(Sometimes::ListInterrupted),
            Place::At(_) => self.counters.hit(Sometimes::Relist),
        }
        let plural = followed.stream.kind.plural;
        if self.trace.lines.is_some() {
            let name = self.host_name(at);
            self.trace.say(|| format!("{name} loses its watch of {plural}"));
        }
        true
    }

    fn host_stalls(&mut self) -> bool {
        let at = self.choices.below(self.hosts.len());
        let stream = self.choices.below(self.hosts[at].streams.len());
        let followed = &mut self.hosts[at].streams[stream];
        followed.stalled = !followed.stalled;
        let (stalled, plural) = (followed.stalled, followed.stream.kind.plural);
        if self.trace.lines.is_some() {
            let name = self.host_name(at);
            self.trace
                .say(|| format!("the watch of {plural} of {name} {}", if stalled { "stalls" } else { "goes on" }));
        }
        if stalled {
            self.counters.hit(Sometimes::StreamStalled);
        }
        true
    }

    fn host_clock_jumps(&mut self) -> bool {
        let at = self.choices.below(self.hosts.len());
        let seconds = *self.choices.pick(&[0, 3, 3_600, -3, -3_600]);
        self.hosts[at].clock = Span::from_seconds(seconds);
        self.clocks_sane = false;
        if self.trace.lines.is_some() {
            let name = self.host_name(at);
            self.trace.say(|| format!("the clock of {name} is off by {seconds} s"));
        }
        true
    }

    /// Watches that would have to begin before this revision list anew.
    pub(crate) fn compact_hosts(&mut self, upto: Revision) {
        for at in 0..self.hosts.len() {
            for stream in 0..self.hosts[at].streams.len() {
                let followed = &self.hosts[at].streams[stream];
                let Place::At(next) = followed.place else { continue };
                if self.archive().log(&followed.stream.kind).get(next).is_some_and(|version| version.at <= upto) {
                    self.hosts[at].streams[stream].place = Place::Nowhere;
                    self.counters.hit(Sometimes::TooOld);
                }
            }
        }
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
        // What was given up is carried out now, or never.
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
            if self.sent[at].reply.is_some() {
                self.reply(at);
            } else {
                self.carry_out(at);
            }
            return true;
        }
        for at in 0..self.hosts.len() {
            for stream in 0..self.hosts[at].streams.len() {
                if self.host_hears(at, stream, usize::MAX) || self.host_bookmark(at, stream) {
                    return true;
                }
            }
            if self.host_ticks(at) {
                return true;
            }
        }
        false
    }

    /// Requests that could undo what came after them. The content of a namespace is deleted by the name of the
    /// namespace, as the API has it: nothing keeps such a request, once under way, from a later namespace of that name.
    pub(crate) fn lose_requests_about(&mut self, namespace: &str) {
        let now = self.api.now;
        for sent in &mut self.sent {
            let call = &sent.request.call;
            if call.verb == Verb::DeleteCollection && call.namespace == namespace && sent.reply.is_none() {
                sent.reply = Some((Reply::Unknown, now));
            }
        }
        self.sent.retain(|sent| sent.reply.is_none() || !sent.given_up);
    }
}
