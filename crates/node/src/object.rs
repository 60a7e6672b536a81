//! The Node object: created if it does not exist, kept up to date, and otherwise not changed.

use compact_str::CompactString;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tally_core::ids::Revision;
use tally_core::time::{Span, Timestamp};
use tally_runtime::cache::retry_at;
use tally_runtime::controller::{Call, Kind, Object, Reply, Verb};

use crate::losses;
use crate::options::NodeOptions;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// No controller here evaluates heartbeats; they are for users.
const HEARTBEAT: Span = Span::from_seconds(240);

#[derive(Debug, Default)]
pub struct NodeObject {
    seen: Option<NodeView>,
    /// The list of Nodes is complete.
    listed: bool,
    epoch_seen: bool,
    under_way: bool,
    /// The in-flight request includes a heartbeat.
    beats: bool,
    failures: u32,
    not_before: Option<Timestamp>,
    /// When this process last sent a heartbeat.
    beat_at: Option<Timestamp>,
    /// The Node as it was last seen needs no change, if these are the losses to record.
    settled: Option<String>,
}

impl NodeObject {
    pub fn clock_set_back(&mut self, by: Span) {
        [&mut self.not_before, &mut self.beat_at].into_iter().flatten().for_each(|at| *at = *at - by);
    }

    pub fn listing(&mut self) {
        self.epoch_seen = false;
    }

    pub fn observe(&mut self, object: &Object, name: &str) {
        let Some(seen) = NodeView::read(object).filter(|seen| seen.metadata.name == name) else { return };
        self.epoch_seen = true;
        if self.seen.as_ref().is_none_or(|known| {
            known.metadata.uid != seen.metadata.uid || known.metadata.revision() <= seen.metadata.revision()
        }) {
            self.not_before = self.not_before.filter(|_| self.failures > 4);
            self.seen = Some(seen);
            self.settled = None;
        }
    }

    pub fn gone(&mut self, object: &Object) {
        let Some(gone) = NodeView::read(object) else { return };
        self.seen = self.seen.take().filter(|known| known.metadata.uid != gone.metadata.uid);
    }

    pub fn listed(&mut self) {
        self.listed = true;
        if !self.epoch_seen {
            self.seen = None;
        }
    }

    /// The recorded losses. None: not known yet.
    pub fn losses(&self) -> Option<&str> {
        let on_record = self.seen.as_ref().and_then(|seen| seen.metadata.annotations.get(losses::ANNOTATION));
        self.listed.then(|| on_record.and_then(Value::as_str).unwrap_or_default())
    }

    /// The next request, if one is needed. `losses`: the text that should be recorded.
    pub fn ask(&mut self, node: &NodeOptions, losses: &str, now: Timestamp) -> Option<Call> {
        if !self.listed || self.under_way || self.not_before.is_some_and(|at| now < at) {
            return None;
        }
        self.not_before = None;
        let call = match &self.seen {
            None => {
                self.beat_at = None;
                create(node, losses, now)
            }
            Some(seen) => {
                let beat = self.beat_at.is_none_or(|at| at + HEARTBEAT <= now);
                if !beat && self.settled.as_deref() == Some(losses) {
                    return None;
                }
                let Some(call) = seen.fix(node, losses, beat, now) else {
                    self.settled = Some(losses.to_owned());
                    return None;
                };
                call
            }
        };
        self.beats = call.verb == Verb::Create || call.subresource == "status";
        self.under_way = true;
        Some(call)
    }

    pub fn answered(&mut self, reply: &Reply, name: &str, now: Timestamp) {
        self.under_way = false;
        self.not_before = None;
        match reply {
            Reply::Done(bytes) => {
                self.failures = 0;
                self.beat_at = if self.beats { Some(now) } else { self.beat_at };
                self.observe(bytes, name);
            }
            _ => {
                self.not_before = Some(retry_at(now, self.failures));
                self.failures = self.failures.saturating_add(1);
            }
        }
    }

    pub fn ask_at(&self, now: Timestamp) -> Option<Timestamp> {
        let due_at = match (&self.seen, self.beat_at) {
            (Some(_), Some(at)) => at + HEARTBEAT,
            _ => now,
        };
        // A failed request need not be a heartbeat: it is retried after its own delay, not with the next heartbeat.
        (self.listed && !self.under_way).then(|| self.not_before.unwrap_or(due_at))
    }
}

fn labels(node: &NodeOptions) -> Value {
    json!({
        "kubernetes.io/hostname": node.hostname, "kubernetes.io/arch": node.arch, "kubernetes.io/os": "linux",
    })
}

fn create(node: &NodeOptions, losses: &str, now: Timestamp) -> Call {
    let mut metadata = json!({"name": node.name, "labels": labels(node)});
    if !losses.is_empty() {
        metadata["annotations"] = json!({losses::ANNOTATION: losses});
    }
    Call::new(Verb::Create, Kind::NODE, "", "").body(&json!({
        "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": status(node, None, now),
    }))
}

fn resources(node: &NodeOptions) -> Value {
    json!({
        "cpu": format!("{}m", node.cpu_millis), "memory": node.memory.to_string(), "pods": node.pods.to_string(),
        "ephemeral-storage": node.storage.to_string(),
    })
}

/// A strategic merge patch: conditions and addresses of other writers stay.
fn status(node: &NodeOptions, stored: Option<&Status>, now: Timestamp) -> Value {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        let known = stored.and_then(|stored| stored.conditions.iter().find(|condition| condition.kind == kind));
        let since = known.filter(|known| known.status == status).and_then(|known| known.last_transition_time);
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now.to_string(), "lastTransitionTime": since.unwrap_or(now).to_string(),
        })
    };
    json!({
        "capacity": resources(node), "allocatable": resources(node),
        "addresses": [
            {"type": "InternalIP", "address": node.address}, {"type": "Hostname", "address": node.hostname},
        ],
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "memory is not watched"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "the disk is not watched"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "processes are not counted"),
            condition("Ready", "True", "KubeletReady", "runs Pods as plain processes"),
        ],
        "nodeInfo": {
            "architecture": node.arch, "operatingSystem": "linux", "osImage": "", "kernelVersion": "",
            "kubeletVersion": format!("tally-{}", node.version), "kubeProxyVersion": "",
            "containerRuntimeVersion": format!("process://{}", node.version),
            "machineID": "", "systemUUID": "", "bootID": "",
        },
    })
}

#[derive(Debug, Deserialize)]
struct NodeView {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: CompactString,
    uid: CompactString,
    resource_version: CompactString,
    #[serde(default)]
    labels: Map<String, Value>,
    #[serde(default)]
    annotations: Map<String, Value>,
}

impl Metadata {
    fn revision(&self) -> Revision {
        Revision(self.resource_version.parse().unwrap_or(0))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    taints: Vec<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    #[serde(rename = "type")]
    kind: CompactString,
    status: CompactString,
    last_transition_time: Option<Timestamp>,
}

impl NodeView {
    fn read(object: &Object) -> Option<Self> {
        object.read().ok()
    }

    fn fix(&self, node: &NodeOptions, losses: &str, beat: bool, now: Timestamp) -> Option<Call> {
        let guarded = |verb, body: Value| {
            let mut body = body;
            body["metadata"]["uid"] = self.metadata.uid.as_str().into();
            body["metadata"]["resourceVersion"] = self.metadata.resource_version.as_str().into();
            Call::new(verb, Kind::NODE, "", &self.metadata.name).body(&body)
        };
        let on_record = self.metadata.annotations.get(losses::ANNOTATION).and_then(Value::as_str);
        if on_record.unwrap_or_default() != losses {
            // First of all: Pods wait for the record.
            let losses = if losses.is_empty() { Value::Null } else { losses.into() };
            return Some(guarded(Verb::MergePatch, json!({"metadata": {"annotations": {losses::ANNOTATION: losses}}})));
        }
        let ready = self.status.conditions.iter().any(|it| it.kind == "Ready" && it.status == "True");
        if beat || !ready {
            let status = status(node, Some(&self.status), now);
            return Some(guarded(Verb::StrategicPatch, json!({"status": status})).subresource("status"));
        }
        let wanted = labels(node);
        if wanted.as_object().into_iter().flatten().any(|(key, value)| self.metadata.labels.get(key) != Some(value)) {
            return Some(guarded(Verb::MergePatch, json!({"metadata": {"labels": wanted}})));
        }
        if self.spec.taints.iter().any(|taint| taint["key"] == NOT_READY) {
            // An API server taints every new node. The controller that removes the taint in a cluster does not run
            // here.
            let others: Vec<_> = self.spec.taints.iter().filter(|taint| taint["key"] != NOT_READY).collect();
            let others = if others.is_empty() { Value::Null } else { json!(others) };
            return Some(guarded(Verb::MergePatch, json!({"spec": {"taints": others}})));
        }
        None
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_asked_again_before_the_next_sign_of_life() {
        let (options, now) = (NodeOptions::new("n"), Timestamp::from_seconds(1_700_000_000));
        let node = json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "1", "labels": {}}});
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        let node = json!({"metadata": node["metadata"], "status": ready}).to_string();
        let mut keeper = NodeObject::default();
        keeper.observe(&node.clone().into(), "n");
        keeper.listed();
        assert_eq!(keeper.ask(&options, "", now).unwrap().subresource, "status");
        keeper.answered(&Reply::Done(node.clone().into_bytes().into()), "n", now);
        assert_eq!(keeper.ask(&options, "", now).unwrap().verb, Verb::MergePatch);
        keeper.answered(&Reply::Unknown, "n", now);
        let again_at = keeper.ask_at(now).unwrap();
        assert!(now < again_at && again_at < now + HEARTBEAT, "{again_at}");
        assert!(keeper.ask(&options, "", now).is_none(), "not at once");
        // And if nothing is left to request, there is no wake-up before the next heartbeat.
        let labels = labels(&options);
        let mended = json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "2", "labels": labels}});
        let mended = json!({"metadata": mended["metadata"], "status": ready}).to_string();
        keeper.failures = 9;
        keeper.observe(&mended.clone().into(), "n");
        assert!(keeper.ask(&options, "", again_at).is_none());
        assert_eq!(keeper.ask_at(again_at), Some(now + HEARTBEAT));
        // A node that does not show that it lives because its clock was ahead would be taken for a dead one.
        let day = Span::from_seconds(86_400);
        keeper.clock_set_back(day);
        assert_eq!(keeper.ask_at(again_at - day), Some(now + HEARTBEAT - day));
    }
}
