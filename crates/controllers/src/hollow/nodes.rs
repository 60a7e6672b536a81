//! The nodes themselves: their names, the resources they report, and what an existing Node lacks.

use compact_str::CompactString;
use serde::Deserialize;
use serde_json::{Value, json};
use std::hash::BuildHasher;
use tally_core::ids::{PodUid, Revision};
use tally_core::time::Timestamp;

use tally_runtime::controller::{Call, Kind, Object, Verb};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

pub fn name(node: u32) -> String {
    format!("hollow-{node}")
}

/// The number of a hollow node, if this is the name of one.
pub fn number(node: &str) -> Option<u32> {
    let digits = node.strip_prefix("hollow-")?;
    // As `name` writes it: without a sign, and without zeros in front.
    let canonical = !digits.starts_with(['+', '0']) || digits == "0";
    digits.parse().ok().filter(|_| canonical)
}

/// An address at which no host responds; it never changes.
pub fn address(node: u32) -> String {
    let [_, a, b, c] = node.to_be_bytes();
    format!("10.{}.{b}.{c}", 240 | a & 15)
}

pub fn pod_address(uid: &PodUid) -> String {
    let [.., a, b, c] = foldhash::fast::FixedState::default().hash_one(uid).to_be_bytes();
    format!("10.{}.{b}.{c}", 64 | a & 63)
}

pub fn create(node: u32, now: Timestamp) -> Call {
    let labels = json!({
        "kubernetes.io/hostname": name(node), "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "hollow.tally.dev/node": "true",
    });
    Call::new(Verb::Create, Kind::NODE, "", "").body(&json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name(node), "labels": labels}, "spec": {},
        "status": status(node, now),
    }))
}

/// More of every resource than any Pod requests: a test must never wait for hollow nodes.
fn status(node: u32, now: Timestamp) -> Value {
    let resources = json!({"cpu": "1000000", "memory": "1000Ti", "ephemeral-storage": "1000Ti", "pods": "100000"});
    let at = now.to_string();
    let condition = |kind: &str, holds: bool, reason: &str, message: &str| {
        let status = if holds { "True" } else { "False" };
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": at, "lastTransitionTime": at,
        })
    };
    json!({
        "capacity": resources, "allocatable": resources,
        "addresses": [{"type": "InternalIP", "address": address(node)}, {"type": "Hostname", "address": name(node)}],
        "conditions": [
            condition("MemoryPressure", false, "KubeletHasSufficientMemory", "nothing is kept in memory"),
            condition("DiskPressure", false, "KubeletHasNoDiskPressure", "nothing is kept on disk"),
            condition("PIDPressure", false, "KubeletHasSufficientPID", "nothing is run"),
            condition("Ready", true, "KubeletReady", "a hollow node is always ready"),
        ],
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "osImage": "hollow", "kernelVersion": "hollow",
            "kubeletVersion": "hollow", "kubeProxyVersion": "", "containerRuntimeVersion": "hollow://0",
            "machineID": "", "systemUUID": "", "bootID": "",
        },
    })
}

/// A Node as it is now.
#[derive(Debug)]
pub struct Seen {
    pub number: u32,
    pub uid: CompactString,
    pub revision: Revision,
    /// The request that is needed before Pods can be scheduled here, if any.
    pub fix: Option<Call>,
}

/// None: not one of ours.
pub fn read(object: &Object, now: Timestamp) -> Option<Seen> {
    let Wire { metadata, spec, status: stored } = object.read().ok()?;
    let number = number(&metadata.name)?;
    let conditions = stored.conditions.unwrap_or_default();
    let ready = conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True");
    let taints = spec.taints.unwrap_or_default();
    let patch = |body: Value| {
        let mut body = body;
        body["metadata"] = json!({"uid": metadata.uid, "resourceVersion": metadata.resource_version});
        Call::new(Verb::MergePatch, Kind::NODE, "", &metadata.name).body(&body)
    };
    let fix = if !ready || stored.allocatable.is_none_or(|resources| resources.get("pods").is_none()) {
        Some(patch(json!({"status": status(number, now)})).subresource("status"))
    } else if taints.iter().any(|taint| taint["key"] == NOT_READY) {
        // An API server taints every new node. The controller that removes the taint in other clusters does not run
        // here.
        let others: Vec<_> = taints.iter().filter(|taint| taint["key"] != NOT_READY).collect();
        let others = if others.is_empty() { Value::Null } else { json!(others) };
        Some(patch(json!({"spec": {"taints": others}})))
    } else {
        None
    };
    let revision = Revision(metadata.resource_version.parse().unwrap_or(0));
    Some(Seen { number, uid: metadata.uid, revision, fix })
}

#[derive(Deserialize)]
struct Wire {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: CompactString,
    uid: CompactString,
    resource_version: CompactString,
}

#[derive(Default, Deserialize)]
struct Spec {
    taints: Option<Vec<Value>>,
}

#[derive(Default, Deserialize)]
struct Status {
    conditions: Option<Vec<Condition>>,
    allocatable: Option<serde_json::Map<String, Value>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type", default)]
    kind: CompactString,
    #[serde(default)]
    status: CompactString,
}
