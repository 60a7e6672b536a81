//! The harness itself: a controller receives all input, in order, and time advances only on request.

use crate::support::{Cluster, kinds};
use serde_json::json;
use tally_core::time::{Span, Timestamp};
use tally_runtime::controller::{Call, Controller, Input, Kind, Outbox, Request, RequestId, Stream, Verb};

/// Copies every ConfigMap `x` to `x-copy`, a minute after it observes it.
#[derive(Default)]
struct Copier {
    complete: bool,
    waiting: Vec<(Timestamp, String)>,
}

impl Controller for Copier {
    fn name(&self) -> &'static str {
        "copier"
    }

    fn streams(&self) -> Vec<Stream> {
        vec![Stream::of(Kind::CONFIG_MAP)]
    }

    fn handle(&mut self, input: Input, now: Timestamp, out: &mut Outbox) {
        match input {
            Input::InitDone(..) => self.complete = true,
            Input::Apply(_, bytes) => {
                let object: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                if !name.ends_with("-copy") {
                    self.waiting.push((now + Span::from_seconds(60), format!("{name}-copy")));
                }
            }
            Input::Tick => {
                assert!(self.complete);
                let due = self.waiting.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>();
                for (id, (_, name)) in due.into_iter().enumerate() {
                    let call = Call::new(Verb::Create, Kind::CONFIG_MAP, "default", "");
                    let call = call.body(&json!({"metadata": {"name": name}}));
                    out.requests.push(Request { id: RequestId(id as u64), call, about: 0 });
                }
            }
            _ => {}
        }
        out.wake_at = self.waiting.iter().map(|(at, _)| *at).min();
    }
}

#[test]
fn controllers_hear_act_and_wait() {
    let mut cluster = Cluster::new(vec![Box::new(Copier::default())]);
    assert!(kinds().contains(&Kind::CONFIG_MAP) && !kinds().contains(&Kind::EVENT));
    cluster.create(Kind::CONFIG_MAP, "default", &json!({"metadata": {"name": "a"}}));
    cluster.settle();
    cluster.pass(59);
    assert!(cluster.log.is_empty());
    cluster.pass(1);
    assert_eq!(cluster.log, ["Create configmaps default/"]);
    assert!(cluster.get(Kind::CONFIG_MAP, "default", "a-copy").is_some());
    cluster.held.insert(Kind::CONFIG_MAP);
    cluster.create(Kind::CONFIG_MAP, "default", &json!({"metadata": {"name": "b"}}));
    cluster.pass(100);
    assert_eq!(cluster.log.len(), 1, "it was not told");
}
