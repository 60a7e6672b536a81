//! The end of a run that was interrupted: every process gets SIGTERM and its grace period, and nothing is counted that
//! was not a result.
//!
//! A Pod that is ended this way is not a failure of the Job: with a data directory the Job goes on another time, and
//! must not find its tries used up. So its finalizer is taken off and nobody counts it, as when a Job is scaled down.
//! But a Pod that succeeds after all, because it was about to, keeps its finalizer: it is counted at the next start,
//! and its work is not done again. Nobody counts meanwhile: the controllers have stopped.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tally_api::catalog;
use tally_api::kinds::Resource;
use tally_api::options::{DeleteOptions, ListOptions, PatchKind, WatchOptions, WriteOptions};
use tally_registry::{Object, Registry, Target, WatchEvent};

const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// Longer than the grace period, for the node to notice and to tell.
const BEYOND_GRACE: Duration = Duration::from_secs(10);

/// A write is tried again when the Pod has changed meanwhile, which it does a few times in its life.
const ROUNDS: usize = 16;

/// What a Pod that is told to end has to do with us.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// Not ours, or over already: whoever counts it will.
    LeftAlone,
    /// Nobody has started it.
    Released,
    Ended {
        grace: u64,
    },
}

fn fate(pod: &Value) -> Fate {
    if !is_tracked(pod) || has_ended(pod) {
        return Fate::LeftAlone;
    }
    if text(pod, "/spec/nodeName").is_empty() {
        return Fate::Released;
    }
    let grace = pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_u64).unwrap_or(30);
    Fate::Ended { grace }
}

fn is_tracked(pod: &Value) -> bool {
    let finalizers = pod.pointer("/metadata/finalizers").and_then(Value::as_array);
    finalizers.is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == FINALIZER))
}

fn has_ended(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Ends every Pod of a Job that has not ended, and waits for it, though not for ever.
pub async fn end_pods(registry: &Registry) {
    let Some(pods) = catalog::find("", "v1", "pods") else { return };
    let everywhere = Target::new(pods, "", "");
    let Ok(listing) = registry.list(everywhere, &ListOptions::default()) else { return };
    let mut waiting: BTreeMap<String, ()> = BTreeMap::new();
    let mut longest = 0;
    for pod in listing.items.iter().map(Object::parse) {
        let uid = text(&pod, "/metadata/uid").to_owned();
        let target = Target::new(pods, text(&pod, "/metadata/namespace"), text(&pod, "/metadata/name"));
        match fate(&pod) {
            Fate::LeftAlone => {}
            Fate::Released => {
                release(registry, pods, &pod).await;
                let _ = registry.delete(target, &this_one(&uid)).await;
            }
            Fate::Ended { grace } => {
                // One that is gone by now needs no waiting for.
                if registry.delete(target, &this_one(&uid)).await.is_ok() {
                    longest = longest.max(grace);
                    waiting.insert(uid, ());
                }
            }
        }
    }
    let watched = watch_them_end(registry, pods, everywhere, waiting);
    let _ = tokio::time::timeout(Duration::from_secs(longest) + BEYOND_GRACE, watched).await;
}

fn this_one(uid: &str) -> DeleteOptions {
    DeleteOptions { precondition_uid: Some(uid.to_owned()), ..DeleteOptions::default() }
}

async fn watch_them_end(
    registry: &Registry,
    pods: &'static Resource,
    everywhere: Target<'_>,
    mut waiting: BTreeMap<String, ()>,
) {
    while !waiting.is_empty() {
        // The state comes first, and again should the stream fall behind.
        let Ok(mut stream) = registry.watch(everywhere, &WatchOptions::default()) else { return };
        let mut told = false;
        while let Some(event) = stream.next().await {
            match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                    let pod = pod.parse();
                    let uid = text(&pod, "/metadata/uid");
                    if has_ended(&pod) && waiting.remove(uid).is_some() && text(&pod, "/status/phase") == "Failed" {
                        release(registry, pods, &pod).await;
                    }
                }
                WatchEvent::Deleted(pod) => {
                    waiting.remove(text(&pod.parse(), "/metadata/uid"));
                }
                WatchEvent::Bookmark { .. } => {}
                WatchEvent::Failed(_) => break,
            }
            told = true;
            if waiting.is_empty() {
                return;
            }
        }
        if !told {
            return;
        }
    }
}

/// Takes the finalizer off, if it still is the Pod that was looked at and has not succeeded meanwhile.
async fn release(registry: &Registry, pods: &'static Resource, pod: &Value) {
    let uid = text(pod, "/metadata/uid").to_owned();
    let target = Target::new(pods, text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
    let mut pod = pod.clone();
    for _ in 0..ROUNDS {
        if text(&pod, "/metadata/uid") != uid || !is_tracked(&pod) || text(&pod, "/status/phase") == "Succeeded" {
            return;
        }
        let kept = pod.pointer("/metadata/finalizers").and_then(Value::as_array).into_iter().flatten();
        let kept: Vec<&Value> = kept.filter(|finalizer| *finalizer != FINALIZER).collect();
        let revision = text(&pod, "/metadata/resourceVersion");
        let body = json!({"metadata": {"uid": uid, "resourceVersion": revision, "finalizers": kept}}).to_string();
        let patched = registry.patch(target, body.as_bytes(), PatchKind::Merge, &WriteOptions::default()).await;
        match patched {
            Err(failure) if failure.code == 409 => {}
            _ => return,
        }
        match registry.get(target, Default::default()) {
            Ok(newer) => pod = newer.parse(),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tally_store::{Options, Store};

    use super::*;
    use crate::place;

    fn pod(name: &str, node: bool, phase: &str) -> Value {
        let mut spec = json!({"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0});
        if node {
            spec["nodeName"] = "n".into();
        }
        json!({"metadata": {"name": name, "finalizers": [FINALIZER]}, "spec": spec, "status": {"phase": phase}})
    }

    #[test]
    fn only_what_runs_is_ended() {
        for (pod, expected) in [
            (pod("a", true, "Running"), Fate::Ended { grace: 0 }),
            (pod("a", false, "Pending"), Fate::Released),
            (pod("a", true, "Succeeded"), Fate::LeftAlone),
            (pod("a", true, "Failed"), Fate::LeftAlone),
            (json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}}), Fate::LeftAlone),
        ] {
            assert_eq!(fate(&pod), expected, "{pod}");
        }
    }

    #[tokio::test]
    async fn pods_that_are_ended_are_not_counted_and_those_that_succeed_are_kept() {
        let registry = place::begin(Store::memory(Options::default())).await.unwrap();
        let pods = catalog::find("", "v1", "pods").unwrap();
        let status = pods.subresource("status");
        let at = |name| Target::new(pods, "default", name);
        let options = WriteOptions::default();
        for (name, node) in [("fails", true), ("succeeds", true), ("unscheduled", false)] {
            let body = pod(name, node, "Pending").to_string();
            registry.create(at(name), body.as_bytes(), tally_api::options::Format::Json, &options).await.unwrap();
        }
        let told = async {
            for (name, phase) in [("fails", "Failed"), ("succeeds", "Succeeded")] {
                // The node acts once it sees that the Pod must go.
                while registry.get(at(name), Default::default()).unwrap().parse()["metadata"]["deletionTimestamp"]
                    .is_null()
                {
                    tokio::task::yield_now().await;
                }
                let body = json!({"status": {"phase": phase}}).to_string();
                let target = Target { subresource: status, ..at(name) };
                registry.patch(target, body.as_bytes(), PatchKind::Merge, &options).await.unwrap();
            }
        };
        tokio::join!(end_pods(&registry), told);
        let finalizers =
            |name: &'static str| registry.get(at(name), Default::default()).ok().map(|pod| is_tracked(&pod.parse()));
        assert_eq!(finalizers("unscheduled"), None);
        assert_ne!(finalizers("fails"), Some(true));
        assert_eq!(finalizers("succeeds"), Some(true));
    }
}
