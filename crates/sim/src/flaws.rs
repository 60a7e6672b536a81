//! Controllers behind bytes with one rule broken. A wrapper between the controller and the world changes what passes
//! through: production code does not know about it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use compact_str::CompactString;
use serde_json::Value;
use tally_core::ids::Revision;
use tally_core::mutation::{Bug, Mutation};
use tally_core::time::Timestamp;
use tally_runtime::controller::{Call, Controller, Input, Kind, Outbox, Refusal, Reply, Request, Stream, Verb};

use crate::cluster::Role;

/// The controller that each bug belongs to.
pub(crate) const FLAWS: &[(Bug, Role)] = &[
    (Bug::CollectsUnlooked, Role::Collector),
    (Bug::CollectsByName, Role::Collector),
    (Bug::RemovesUntold, Role::PodCollector),
    (Bug::NodeNotLookedFor, Role::PodCollector),
    (Bug::ForgetsAssumed, Role::Scheduler),
    (Bug::ReportsBlindly, Role::Node),
    (Bug::NamespaceTooSoon, Role::Namespaces),
    (Bug::AccountMadeOnce, Role::ServiceAccounts),
    (Bug::CertificateNotRepaired, Role::RootCa),
    (Bug::CronTrustsItsView, Role::CronJobs),
];

/// The controller as it is, or with the put-back bug that is enabled.
pub(crate) fn put_in<S: Mutation>(controller: Box<dyn Controller>, role: Role, mutation: S) -> Box<dyn Controller> {
    match FLAWS.iter().find(|(bug, of)| *of == role && mutation.injects(*bug)) {
        Some((bug, _)) => {
            let (shown, emptied) = (BTreeMap::new(), BTreeSet::new());
            Box::new(Flawed { bug: *bug, controller, shown, listing: false, emptied })
        }
        None => controller,
    }
}

struct Flawed {
    bug: Bug,
    controller: Box<dyn Controller>,
    /// CronJobs and ConfigMaps as the stream showed them.
    shown: BTreeMap<CompactString, Bytes>,
    listing: bool,
    /// Namespaces and kinds whose content the controller has requested to delete.
    emptied: BTreeSet<(CompactString, &'static str)>,
}

enum Deed {
    /// The request is sent, possibly changed.
    Send(Call),
    /// The request is not sent; the controller receives this reply.
    Believe(Reply),
    /// The request is sent, and the controller receives this reply before the real one.
    SendAndBelieve(Call, Reply),
}

fn refused(code: u16) -> Reply {
    Reply::Refused(Refusal { code, ..Refusal::default() })
}

fn without(call: Call, pointer: &str, field: &str) -> Call {
    let mut body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
    if let Some(Value::Object(object)) = body.pointer_mut(pointer) {
        object.remove(field);
    }
    call.body(&body)
}

impl Flawed {
    fn show(&mut self, bytes: &[u8], by: &str) {
        let object: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let key = object["metadata"][by].as_str().unwrap_or_default();
        self.shown.insert(key.into(), Bytes::copy_from_slice(bytes));
    }

    fn deed(&mut self, call: Call) -> Deed {
        match (self.bug, call.verb) {
            (Bug::CollectsUnlooked | Bug::NodeNotLookedFor, Verb::Get) => Deed::Believe(refused(404)),
            (Bug::CollectsByName, Verb::Delete) => Deed::Send(without(call, "", "preconditions")),
            (Bug::RemovesUntold, Verb::StrategicPatch) => Deed::Believe(Reply::DoneWithStatus),
            (Bug::ForgetsAssumed, Verb::Create) => Deed::SendAndBelieve(call, refused(503)),
            (Bug::ReportsBlindly, Verb::StrategicPatch) => Deed::Send(without(call, "/metadata", "resourceVersion")),
            (Bug::NamespaceTooSoon, Verb::DeleteCollection) => {
                self.emptied.insert((call.namespace.clone(), call.kind.plural));
                Deed::Send(call)
            }
            (Bug::NamespaceTooSoon, Verb::List) if self.emptied.remove(&(call.namespace.clone(), call.kind.plural)) => {
                Deed::Believe(Reply::Listed { items: Vec::new(), at: Revision(0) })
            }
            (Bug::CronTrustsItsView, Verb::Get) if call.kind == Kind::CRON_JOB => match self.shown.get(&call.name) {
                Some(shown) => Deed::Believe(Reply::Done(shown.clone())),
                None => Deed::Send(call),
            },
            _ => Deed::Send(call),
        }
    }
}

impl Controller for Flawed {
    fn name(&self) -> &'static str {
        self.controller.name()
    }

    fn streams(&self) -> Vec<Stream> {
        self.controller.streams()
    }

    fn handle(&mut self, input: Input, now: Timestamp, out: &mut Outbox) {
        match &input {
            Input::Delete(Kind::SERVICE_ACCOUNT, _) if self.bug == Bug::AccountMadeOnce => return,
            Input::Apply(Kind::CRON_JOB, bytes) => self.show(bytes, "name"),
            Input::Apply(Kind::CONFIG_MAP, bytes) if self.bug == Bug::CertificateNotRepaired => {
                let known = self.shown.len();
                self.show(bytes, "uid");
                if known == self.shown.len() && !self.listing {
                    return;
                }
            }
            Input::Init(_) => self.listing = true,
            Input::InitDone(..) => self.listing = false,
            _ => {}
        }
        self.controller.handle(input, now, out);
        let mut sent = Vec::new();
        while let Some(Request { id, call }) = out.requests.pop() {
            let believed = match self.deed(call) {
                Deed::Send(call) => {
                    sent.push(Request { id, call });
                    continue;
                }
                Deed::Believe(reply) => reply,
                Deed::SendAndBelieve(call, reply) => {
                    sent.push(Request { id, call });
                    reply
                }
            };
            self.controller.handle(Input::Response { request: id, reply: believed, served_at: None }, now, out);
        }
        out.requests = sent;
    }
}
