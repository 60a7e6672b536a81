//! Faults of hosts, streams and the network.

use std::ops::Range;
use std::time::Duration;

use tally_core::ids::Revision;
use tally_core::time::Span;
use tally_runtime::controller::{Object, Refusal, Reply, Verb};
use tally_runtime::driver::api::{Response, WatchError};
use tally_runtime::response::{Interpreted, interpret};

use super::{Host, Sent, Source};
use crate::cluster::Role;
use crate::counters::Sometimes;
use crate::setup::TrackingGate;
use crate::trace::describe_call;
use crate::world::World;

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

pub(super) fn unknown() -> Response {
    Response { reply: Reply::Unknown, served_at: None, retry_after: None }
}

fn refused(code: u16, reason: &str, message: &str) -> Response {
    let (reason, message) = (reason.to_owned(), message.to_owned());
    let refusal = Refusal { code, reason, message, causes: Vec::new() };
    Response { reply: Reply::Refused(refusal), served_at: None, retry_after: None }
}

impl World {
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
        self.forget_response(host, id);
        true
    }

    /// The sender receives an unknown outcome; the request is still in flight.
    pub(crate) fn give_up(&mut self, hosts: Range<usize>) -> bool {
        let open = |sent: &Sent| sent.response.is_none() && !sent.given_up;
        // Rather one that is late anyway.
        let slow = self
            .sent
            .iter()
            .position(|sent| open(sent) && hosts.contains(&sent.host) && self.is_slow(&sent.request.call));
        let Some(at) = slow.or_else(|| self.choose_sent(&hosts, open)) else { return false };
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
        let Interpreted { reply, retry_after, .. } = interpret(&call, code, None, &Object::from(body));
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
        let switches = matches!(self.setup.tracking, TrackingGate::Switches | TrackingGate::EndsOff);
        if let Some(instance) = instance.filter(|_| role == Role::Job && switches && !self.healing) {
            self.tracking[instance] = self.choices.below(2) == 0;
            self.trace.say(|| format!("the gate of tracking is now {}", self.tracking[instance]));
        }
        if self.trace.lines.is_some() {
            let name = self.host_name(at);
            self.trace.say(|| format!("{name} crashes and starts again"));
        }
        if role == Role::Job {
            self.note_crash();
            self.starts.incarnations += 1;
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
        // The streams of the Job controllers, which come first.
        let hosts = if self.setup.bias.pieces { hosts.start..self.setup.instances } else { hosts };
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

    /// What a controller of a cluster asks for by a wrong clock is refused once more before the clock is set right, so that
    /// its retry has been set by the wrong clock.
    pub(crate) fn refuse_by_wrong_clocks(&mut self) {
        if self.setup.cluster.is_none() || self.setup.weights.refuse == 0 {
            return;
        }
        let is_wrong = |hosts: &[Host], sent: &Sent| {
            let host = &hosts[sent.host];
            host.clock != Span::ZERO && !host.role.counts() && !sent.given_up
        };
        let now = self.api.now;
        for sent in &mut self.sent {
            if is_wrong(&self.hosts, sent) && sent.response.is_none() {
                sent.response = Some((refused(503, "ServiceUnavailable", "not now"), now));
            }
        }
        let is_answered = |world: &Self, sent: &Sent| is_wrong(&world.hosts, sent) && sent.response.is_some();
        while let Some(at) = self.sent.iter().position(|sent| is_answered(self, sent)) {
            self.answer(at);
        }
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
}
