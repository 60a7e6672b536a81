//! Puts a machine with typed inputs and actions behind the bytes that drivers deal in.

use std::collections::HashMap;
use std::sync::Arc;

use compact_str::CompactString;
use tally_core::job::JobView;
use tally_core::mutation::Sound;
use tally_core::pod::PodView;
use tally_core::time::Timestamp;

use crate::controller::{self, Controller, Kind, Reference, Stream};
use crate::machine::{Action, Input, Machine, Object, Outbox, RequestId, Resource};
use crate::wire;

pub struct Typed<M> {
    name: &'static str,
    streams: &'static [Stream],
    machine: M,
    /// What each request under way asked for: an answer means something only beside it. The body of a creation, which
    /// does not matter to that, is left out.
    asked: HashMap<RequestId, Action, foldhash::fast::FixedState>,
    out: Outbox,
}

impl<M: Machine> Typed<M> {
    pub fn new(name: &'static str, streams: &'static [Stream], machine: M) -> Self {
        Self { name, streams, machine, asked: HashMap::default(), out: Outbox::default() }
    }
}

/// None: an object that does not decode. The API has stored it, so it is there; but nothing can be said about it.
fn read(kind: Kind, bytes: &[u8]) -> Option<Object> {
    match kind {
        Kind::JOB => JobView::from_json(bytes).ok().map(|job| Object::Job(Arc::new(job))),
        Kind::POD => PodView::from_json(bytes).ok().map(|pod| Object::Pod(Arc::new(pod))),
        _ => None,
    }
}

fn resource(kind: Kind) -> Option<Resource> {
    match kind {
        Kind::JOB => Some(Resource::Jobs),
        Kind::POD => Some(Resource::Pods),
        _ => None,
    }
}

impl<M: Machine + Send> Controller for Typed<M> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn streams(&self) -> Vec<Stream> {
        self.streams.to_vec()
    }

    fn handle(&mut self, input: controller::Input<'_>, now: Timestamp, out: &mut controller::Outbox) {
        let input = match input {
            controller::Input::Listing(kind) => resource(kind).map(|resource| Input::Listing { resource }),
            controller::Input::Observed(kind, bytes) => read(kind, bytes).map(Input::Observed),
            controller::Input::Gone(kind, bytes) => read(kind, bytes).map(Input::Gone),
            controller::Input::Listed(kind, at) => resource(kind).map(|resource| Input::Listed { resource, at }),
            controller::Input::Reached(kind, at) => resource(kind).map(|resource| Input::Reached { resource, at }),
            controller::Input::Answered { request, reply, served_at } => self
                .asked
                .remove(&request)
                .map(|action| Input::Answered { request, answer: wire::answer(Sound, &action, &reply), served_at }),
            controller::Input::Tick => Some(Input::Tick),
        };
        let Some(input) = input else { return };
        self.machine.handle(input, now, &mut self.out);
        for request in self.out.requests.drain(..) {
            let call = wire::call(&request.action);
            let mut action = request.action;
            if let Action::CreatePod { body, .. } = &mut action {
                *body = Vec::new();
            }
            self.asked.insert(request.id, action);
            out.requests.push(controller::Request { id: request.id, call });
        }
        out.events.extend(self.out.events.drain(..).map(|event| controller::Event {
            about: Reference {
                kind: Kind::JOB,
                namespace: event.namespace,
                name: event.job,
                uid: CompactString::from(event.uid.to_string()),
            },
            warning: event.warning,
            reason: event.reason,
            message: event.message,
        }));
        out.metrics.append(&mut self.out.metrics);
        out.wake_at = self.out.wake_at;
    }
}
