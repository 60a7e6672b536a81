//! A test bench for controllers: inputs as JSON, requests as one line each.

use std::time::Duration;

use serde_json::Value;
use tally_core::ids::Revision;
use tally_core::time::{Span, Timestamp};

use crate::controller::{Call, ClockWatch, Controller, Event, Input, Kind, Outbox, Refusal, Reply, Request, Verb};

pub struct Probe<C> {
    pub controller: C,
    pub now: Timestamp,
    pub out: Outbox,
    clock: ClockWatch,
    /// By a clock that does not jump.
    elapsed: Duration,
    /// The requests of the last `asks` that returned any.
    asked: Vec<Request>,
}

pub fn done(object: Value) -> Reply {
    Reply::Done(object.to_string().into())
}

pub fn refused(code: u16, reason: &str) -> Reply {
    Reply::Refused(Refusal { code, reason: reason.to_owned(), ..Refusal::default() })
}

impl<C: Controller> Probe<C> {
    pub fn new(controller: C) -> Self {
        let now = Timestamp::from_seconds(1_700_000_000);
        Self {
            controller,
            now,
            out: Outbox::default(),
            clock: ClockWatch::default(),
            elapsed: Duration::ZERO,
            asked: Vec::new(),
        }
    }

    pub fn input(&mut self, input: Input) {
        if let Some(by) = self.clock.set_back(self.now, self.elapsed) {
            self.controller.handle(Input::ClockSetBack(by), self.now, &mut self.out);
        }
        self.controller.handle(input, self.now, &mut self.out);
    }

    pub fn lists(&mut self, kind: Kind, objects: &[Value], at: u64) {
        self.input(Input::Init(kind));
        for object in objects {
            self.sees(kind, object.clone());
        }
        self.input(Input::InitDone(kind, Revision(at)));
    }

    pub fn sees(&mut self, kind: Kind, object: Value) {
        self.input(Input::Apply(kind, object.to_string().into()));
    }

    pub fn gone(&mut self, kind: Kind, object: Value) {
        self.input(Input::Delete(kind, object.to_string().into()));
    }

    /// Responds to the nth request of the last `asks`.
    pub fn answer(&mut self, nth: usize, reply: Reply) {
        self.answer_served(nth, reply, None);
    }

    /// The same, with the time that the server had.
    pub fn answer_served(&mut self, nth: usize, reply: Reply, served_at: Option<Timestamp>) {
        let request = self.asked[nth].id;
        self.input(Input::Response { request, reply, served_at });
    }

    /// Time passes; a tick is delivered if it was requested and is due.
    pub fn passes(&mut self, millis: i64) {
        self.now = self.now + Span::from_millis(millis);
        self.elapsed += Duration::from_millis(millis.unsigned_abs());
        if self.out.wake_at.is_some_and(|at| at <= self.now) {
            self.input(Input::Tick);
        }
    }

    /// The clock was ahead; the driver looks at it every few seconds.
    pub fn clock_is_set_back(&mut self, millis: i64) {
        self.now = self.now - Span::from_millis(millis);
        self.input(Input::Tick);
    }

    /// The requests made since the last call. If there are none, the earlier requests can still receive responses.
    pub fn asks(&mut self) -> Vec<String> {
        let asked = std::mem::take(&mut self.out.requests);
        if asked.is_empty() {
            return Vec::new();
        }
        self.asked = asked;
        self.asked.iter().map(|request| line(&request.call)).collect()
    }

    /// The body of the nth request of the last `asks`.
    pub fn body(&self, nth: usize) -> Value {
        serde_json::from_slice(&self.asked[nth].call.body.text()).unwrap()
    }

    /// Milliseconds until the requested tick.
    pub fn wakes_in(&self) -> Option<i64> {
        self.out.wake_at.map(|at| (at - self.now).millis())
    }

    pub fn events(&mut self) -> Vec<String> {
        let told = |event: Event| format!("{} {}: {}", event.about.name, event.reason, event.message);
        self.out.events.drain(..).map(told).collect()
    }
}

fn line(call: &Call) -> String {
    let verb = match call.verb {
        Verb::Create => "create",
        Verb::Get => "get",
        Verb::List => "list",
        Verb::Update => "update",
        Verb::MergePatch => "merge",
        Verb::StrategicPatch => "patch",
        Verb::Delete => "delete",
        Verb::DeleteCollection => "delete all",
    };
    let slash = if call.subresource.is_empty() { "" } else { "/" };
    let (plural, part) = (call.kind.plural, call.subresource);
    format!("{verb} {plural} {}/{}{slash}{part}", call.namespace, call.name)
}
