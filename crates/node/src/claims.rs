//! The claims (`PersistentVolumeClaim`) that this node gives a volume: a directory that stays when Pods end.
//!
//! A claim is bound as soon as it is seen: one request names its volume and sets the finalizer that protects it, the next one
//! its status. The directory is made when the first Pod uses it (`shim/volumes.rs`). A claim that is being deleted stays while
//! a Pod of this node uses it. Then its directory is removed, and only then its finalizer: if the node is killed in
//! between, it begins again, and no directory is left behind.

use std::collections::{BTreeMap, BTreeSet};

use compact_str::CompactString;
use serde::Deserialize;
use serde_json::{Value, json};
use tally_core::claims::{self, CLASS, PROTECTION};
use tally_core::ids::Revision;
use tally_core::time::{Span, Timestamp};
use tally_runtime::cache::retry_at;
use tally_runtime::controller::{Call, Kind, Reply, Verb};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimView {
    metadata: ClaimMetadata,
    spec: Value,
    status: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimMetadata {
    name: CompactString,
    namespace: CompactString,
    uid: CompactString,
    resource_version: CompactString,
    deletion_timestamp: Option<CompactString>,
    finalizers: Vec<CompactString>,
}

impl ClaimMetadata {
    fn revision(&self) -> Revision {
        Revision(self.resource_version.parse().unwrap_or(0))
    }
}

#[derive(Debug)]
struct Claim {
    view: ClaimView,
    epoch: u32,
    /// The object does not exist any more.
    is_gone: bool,
    in_flight: bool,
    directory: Directory,
    failures: u32,
    not_before: Option<Timestamp>,
}

/// The directory of a claim that is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Directory {
    Kept,
    BeingRemoved,
    Removed,
}

/// What is to be done about a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimStep {
    Request(Call),
    /// Its directory is removed.
    Remove,
}

/// The claims of all namespaces, by UID.
#[derive(Debug, Default)]
pub struct Claims {
    known: BTreeMap<CompactString, Claim>,
    epoch: u32,
    due: BTreeSet<CompactString>,
    /// Claims that are being deleted, and are used.
    held: BTreeSet<CompactString>,
}

impl Claims {
    pub fn clock_set_back(&mut self, by: Span) {
        self.known.values_mut().filter_map(|claim| claim.not_before.as_mut()).for_each(|at| *at = *at - by);
    }

    pub fn listing(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    pub fn observe(&mut self, bytes: &[u8]) {
        let Ok(view) = serde_json::from_slice::<ClaimView>(bytes) else { return };
        let uid = view.metadata.uid.clone();
        if claims::obstacle(&uid, &view.spec).is_some() {
            return;
        }
        let epoch = self.epoch;
        self.due.insert(uid.clone());
        match self.known.get_mut(&uid) {
            Some(known) => {
                known.epoch = epoch;
                if known.view.metadata.revision() < view.metadata.revision() {
                    known.view = view;
                }
            }
            None => {
                let (is_gone, in_flight, directory) = (false, false, Directory::Kept);
                let claim = Claim { view, epoch, is_gone, in_flight, directory, failures: 0, not_before: None };
                self.known.insert(uid, claim);
            }
        }
    }

    pub fn gone(&mut self, bytes: &[u8]) {
        if let Ok(view) = serde_json::from_slice::<ClaimView>(bytes) {
            self.lose(&view.metadata.uid);
        }
    }

    /// Its directory is removed, if that was not done before.
    fn lose(&mut self, uid: &CompactString) {
        if let Some(claim) = self.known.get_mut(uid) {
            claim.is_gone = true;
            self.due.insert(uid.clone());
        }
    }

    pub fn listed(&mut self) {
        let epoch = self.epoch;
        let missing = self.known.iter().filter(|(_, claim)| claim.epoch != epoch).map(|(uid, _)| uid.clone());
        for uid in missing.collect::<Vec<_>>() {
            self.lose(&uid);
        }
    }

    /// The shim that was to remove directories is gone.
    pub fn interrupt(&mut self) {
        for (uid, claim) in &mut self.known {
            if claim.directory == Directory::BeingRemoved {
                (claim.directory, claim.failures, claim.not_before) = (Directory::Kept, 0, None);
                self.due.insert(uid.clone());
            }
        }
    }

    pub fn removed(&mut self, uid: &str) {
        if let Some(claim) = self.known.get_mut(uid) {
            (claim.directory, claim.failures, claim.not_before) = (Directory::Removed, 0, None);
            self.due.insert(uid.into());
        }
    }

    pub fn answered(&mut self, uid: &CompactString, reply: &Reply, now: Timestamp) {
        let Some(claim) = self.known.get_mut(uid) else { return };
        claim.in_flight = false;
        self.due.insert(uid.clone());
        match reply {
            Reply::Done(bytes) => {
                claim.failures = 0;
                self.observe(bytes);
            }
            _ => {
                claim.not_before = Some(retry_at(now, claim.failures));
                claim.failures = claim.failures.saturating_add(1);
            }
        }
    }

    /// A Pod has ended, or is gone: claims that it has used may go.
    pub fn released(&mut self) {
        self.due.append(&mut self.held);
    }

    /// What is to be done now. `is_used`: a Pod of this node uses, or may use, the claim of this namespace and name.
    pub fn steps(&mut self, is_used: impl Fn(&str, &str) -> bool, now: Timestamp) -> Vec<(CompactString, ClaimStep)> {
        let mut steps = Vec::new();
        for uid in std::mem::take(&mut self.due) {
            let Some(claim) = self.known.get_mut(&uid) else { continue };
            if claim.in_flight || claim.not_before.is_some_and(|at| now < at) {
                continue;
            }
            claim.not_before = None;
            if !claim.is_ending() {
                if let Some(call) = claim.view.bind() {
                    claim.in_flight = true;
                    steps.push((uid, ClaimStep::Request(call)));
                }
                continue;
            }
            let metadata = &claim.view.metadata;
            match claim.directory {
                Directory::Kept if is_used(&metadata.namespace, &metadata.name) => {
                    self.held.insert(uid);
                }
                // Again until it is reported: a disk may refuse it for a while.
                Directory::Kept | Directory::BeingRemoved => {
                    claim.directory = Directory::BeingRemoved;
                    claim.not_before = Some(retry_at(now, claim.failures));
                    claim.failures = claim.failures.saturating_add(1);
                    steps.push((uid, ClaimStep::Remove));
                }
                Directory::Removed if claim.is_gone => drop(self.known.remove(&uid)),
                Directory::Removed => {
                    claim.in_flight = true;
                    let call = claim.view.release();
                    steps.push((uid, ClaimStep::Request(call)));
                }
            }
        }
        steps
    }

    /// When the next request is due.
    pub fn wake_at(&mut self, now: Timestamp) -> Option<Timestamp> {
        let waiting = self.known.iter().filter(|(_, claim)| !claim.in_flight);
        let waiting: Vec<_> = waiting.filter_map(|(uid, claim)| Some((claim.not_before?, uid.clone()))).collect();
        for (at, uid) in &waiting {
            if *at > now {
                self.due.insert(uid.clone());
            }
        }
        waiting.into_iter().map(|(at, _)| at).min()
    }
}

impl Claim {
    fn is_ending(&self) -> bool {
        self.is_gone
            || self.view.metadata.deletion_timestamp.is_some()
                && self.view.metadata.finalizers.iter().any(|name| name == PROTECTION)
    }
}

impl ClaimView {
    fn patch(&self, body: &Value) -> Call {
        let metadata = &self.metadata;
        Call::new(Verb::MergePatch, Kind::PERSISTENT_VOLUME_CLAIM, &metadata.namespace, &metadata.name).body(body)
    }

    /// A write that another writer does not overtake, and that no other claim of the same name gets.
    fn guard(&self) -> Value {
        json!({"uid": self.metadata.uid, "resourceVersion": self.metadata.resource_version})
    }

    /// The next request towards a bound claim.
    fn bind(&self) -> Option<Call> {
        if self.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let text = |field: &str| self.spec.get(field).and_then(Value::as_str).unwrap_or_default();
        let mut metadata = self.guard();
        if text("volumeName").is_empty() || !self.metadata.finalizers.iter().any(|name| name == PROTECTION) {
            let others = self.metadata.finalizers.iter().map(CompactString::as_str).filter(|name| *name != PROTECTION);
            metadata["finalizers"] = others.chain([PROTECTION]).collect();
            let mut spec = json!({"volumeName": claims::volume_name(&self.metadata.uid)});
            if self.spec.get("storageClassName").is_none() {
                spec["storageClassName"] = CLASS.into();
            }
            return Some(self.patch(&json!({"metadata": metadata, "spec": spec})));
        }
        let size = self.spec.pointer("/resources/requests/storage");
        let (modes, capacity) = (self.spec.get("accessModes"), self.status.pointer("/capacity/storage"));
        let is_told = self.status.get("phase").is_some_and(|phase| phase == "Bound")
            && capacity == size
            && self.status.get("accessModes") == modes;
        if is_told {
            return None;
        }
        let status = json!({"phase": "Bound", "accessModes": modes, "capacity": {"storage": size}});
        Some(self.patch(&json!({"metadata": metadata, "status": status})).subresource("status"))
    }

    /// The claim may go.
    fn release(&self) -> Call {
        let mut metadata = self.guard();
        let others = self.metadata.finalizers.iter().filter(|name| *name != PROTECTION);
        metadata["finalizers"] = others.map(CompactString::as_str).collect();
        self.patch(&json!({"metadata": metadata}))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(100);

    fn claim(revision: u64, metadata: Value, spec: Value, status: Value) -> Vec<u8> {
        let mut all = json!({
            "metadata": {"name": "c", "namespace": "n", "uid": "u", "resourceVersion": revision.to_string()},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}, "status": status,
        });
        for (part, more) in [("metadata", metadata), ("spec", spec)] {
            all[part].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        }
        all.to_string().into_bytes()
    }

    fn steps(claims: &mut Claims, is_used: bool) -> Vec<String> {
        let told = |(uid, step): (CompactString, ClaimStep)| match step {
            ClaimStep::Remove => format!("remove {uid}"),
            ClaimStep::Request(call) => format!("{} {}", call.subresource, String::from_utf8_lossy(&call.body.text())),
        };
        claims.steps(|_, _| is_used, NOW).into_iter().map(told).collect()
    }

    fn done(bytes: Vec<u8>) -> Reply {
        Reply::Done(bytes.into())
    }

    const PENDING: &str = r#"{"phase":"Pending"}"#;

    fn pending() -> Value {
        serde_json::from_str(PENDING).unwrap()
    }

    fn bound() -> Value {
        json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}})
    }

    /// CLAIM-1
    #[test]
    fn a_claim_is_bound_in_two_steps() {
        let mut claims = Claims::default();
        claims.observe(&claim(1, json!({"finalizers": ["mine"]}), json!({}), pending()));
        assert_eq!(
            steps(&mut claims, false),
            [
                r#" {"metadata":{"finalizers":["mine","kubernetes.io/pvc-protection"],"resourceVersion":"1","uid":"u"},"spec":{"storageClassName":"local","volumeName":"pvc-u"}}"#
            ]
        );
        // Nothing is sent twice, whatever the stream shows.
        claims.observe(&claim(1, json!({"finalizers": ["mine"]}), json!({}), pending()));
        assert_eq!(steps(&mut claims, false), [""; 0]);
        let protected = json!({"finalizers": ["mine", PROTECTION]});
        let volume = json!({"volumeName": "pvc-u", "storageClassName": "local"});
        claims.answered(&"u".into(), &done(claim(2, protected.clone(), volume.clone(), pending())), NOW);
        assert_eq!(
            steps(&mut claims, false),
            [
                r#"status {"metadata":{"resourceVersion":"2","uid":"u"},"status":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},"phase":"Bound"}}"#
            ]
        );
        // It is tried again if it fails.
        claims.answered(&"u".into(), &Reply::Unknown, NOW);
        assert_eq!(steps(&mut claims, false), [""; 0]);
        let at = claims.wake_at(NOW).unwrap();
        assert!(at > NOW);
        assert_eq!(claims.steps(|_, _| false, at).len(), 1);
        claims.answered(&"u".into(), &done(claim(3, protected, volume, bound())), NOW);
        assert_eq!(steps(&mut claims, false), [""; 0]);
        assert_eq!(claims.wake_at(NOW), None);
    }

    #[test]
    fn a_claim_that_grows_gets_what_it_asks_for() {
        let mut claims = Claims::default();
        let larger = json!({"volumeName": "pvc-u", "resources": {"requests": {"storage": "2Gi"}}});
        claims.observe(&claim(1, json!({"finalizers": [PROTECTION]}), larger, bound()));
        assert!(steps(&mut claims, false)[0].contains(r#""capacity":{"storage":"2Gi"}"#));
    }

    #[test]
    fn a_claim_of_another_class_is_left_alone() {
        let mut claims = Claims::default();
        claims.observe(&claim(1, json!({}), json!({"storageClassName": "fast"}), pending()));
        assert_eq!(steps(&mut claims, false), [""; 0]);
    }

    /// CLAIM-4
    #[test]
    fn the_directory_goes_before_the_claim_and_after_its_pods() {
        let mut claims = Claims::default();
        let ending = json!({"finalizers": [PROTECTION, "mine"], "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let object = claim(5, ending, json!({"volumeName": "pvc-u"}), bound());
        claims.observe(&object);
        assert_eq!(steps(&mut claims, true), [""; 0], "it is used");
        claims.released();
        assert_eq!(steps(&mut claims, false), ["remove u"]);
        claims.observe(&object);
        assert_eq!(steps(&mut claims, false), [""; 0]);
        claims.interrupt();
        assert_eq!(steps(&mut claims, false), ["remove u"], "another shim");
        let at = claims.wake_at(NOW).unwrap();
        assert_eq!(claims.steps(|_, _| false, at), [("u".into(), ClaimStep::Remove)], "it was not reported");
        claims.removed("u");
        assert_eq!(
            steps(&mut claims, false),
            [r#" {"metadata":{"finalizers":["mine"],"resourceVersion":"5","uid":"u"}}"#]
        );
        claims.gone(&object);
        claims.answered(&"u".into(), &Reply::DoneWithStatus, NOW);
        claims.known.values_mut().for_each(|claim| claim.not_before = None);
        assert_eq!(steps(&mut claims, false), [""; 0]);
        assert!(claims.known.is_empty());
    }

    /// A user has taken the finalizer away, or the claim is missing from a list.
    #[test]
    fn the_directory_of_a_claim_that_is_gone_is_removed() {
        let object = claim(5, json!({"finalizers": [PROTECTION]}), json!({"volumeName": "pvc-u"}), bound());
        let mut claims = Claims::default();
        claims.listing();
        claims.observe(&object);
        claims.listed();
        assert_eq!(steps(&mut claims, true), [""; 0]);
        claims.listing();
        claims.listed();
        assert_eq!(steps(&mut claims, true), [""; 0], "it is used");
        claims.released();
        assert_eq!(steps(&mut claims, false), ["remove u"]);
        claims.removed("u");
        assert_eq!(steps(&mut claims, false), [""; 0]);
        assert!(claims.known.is_empty());
    }
}
