//! Limits of disk space: what a Pod uses is measured from time to time, and a Pod that uses more than it may is evicted.
//! Only Pods that have such limits are measured.

use tally_core::quantity::Quantity;
use tally_core::time::{Span, Timestamp};

use super::ending::EndReason;
use super::{Effects, PodWorker};
use crate::options::NodeOptions;
use crate::pod::{Pod, Role, quantity};
use crate::port::{ShimCommand, StorageUsage};

const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// How long an evicted Pod has to end, whatever its own grace period is: it must not fill the disk meanwhile.
const GRACE: Span = Span::from_seconds(1);
/// The pause before the next measurement, in multiples of what the last one took: a Pod with very many files must not keep
/// the disk busy.
const PAUSE: i64 = 9;
const LONGEST_PAUSE: Span = Span::from_seconds(300);

#[derive(Debug, Default)]
pub struct StorageWatch {
    /// A measurement is in progress, since this time.
    asked_at: Option<Timestamp>,
    next_at: Option<Timestamp>,
    /// The least time before the next one.
    pause: Span,
    /// Why the Pod is evicted.
    pub eviction: Option<String>,
}

impl StorageWatch {
    pub fn clock_set_back(&mut self, by: Span) {
        [&mut self.asked_at, &mut self.next_at].into_iter().flatten().for_each(|at| *at = *at - by);
    }

    /// The shim that was to measure is gone.
    pub fn interrupt(&mut self) {
        self.asked_at = None;
    }
}

impl PodWorker {
    /// Requests a measurement if one is due.
    pub(super) fn watch_storage(&mut self, node: &NodeOptions, now: Timestamp, out: &mut Effects) {
        if !self.containers.any_alive() || self.storage.asked_at.is_some() || !has_limits(&self.pod) {
            return;
        }
        let pause = self.storage.pause.max(node.measure_storage_every);
        let at = *self.storage.next_at.get_or_insert(now + pause);
        if at > now {
            return out.wake(at);
        }
        (self.storage.asked_at, self.storage.next_at) = (Some(now), None);
        out.commands.push(ShimCommand::Measure { pod: self.uid().clone() });
    }

    pub(super) fn storage_measured(&mut self, usage: &StorageUsage, now: Timestamp, out: &mut Effects) {
        let Some(asked_at) = self.storage.asked_at.take() else { return };
        let took = (now - asked_at).millis();
        self.storage.pause = Span::from_millis(took.saturating_mul(PAUSE)).min(LONGEST_PAUSE);
        if self.gone || self.termination.has_begun() || self.termination.verdict().is_some() {
            return;
        }
        if let Some(message) = excess(&self.pod, usage) {
            out.warn("Evicted", message.clone());
            self.storage.eviction = Some(message);
            self.end(EndReason::Evicted, now, now + GRACE);
        }
    }

    /// The space that it has taken is free again as soon as the Pod has ended. Its logs stay.
    pub(super) fn free_storage(&self, out: &mut Effects) {
        if self.termination.reason() == Some(EndReason::Evicted) {
            out.commands.push(ShimCommand::RemoveVolumes { pod: self.uid().clone() });
        }
    }
}

fn limit(written: Option<&serde_json::Value>) -> Option<Quantity> {
    quantity(written).filter(|limit| !limit.is_zero() && !limit.is_negative())
}

/// Whether the disk space of a Pod has a limit.
fn has_limits(pod: &Pod) -> bool {
    let sized = |volume: &crate::pod::Volume| {
        volume.empty_dir.as_ref().is_some_and(|empty| limit(empty.size_limit.as_ref()).is_some())
    };
    pod.spec.volumes.iter().any(sized) || pod_limit(pod).is_some()
}

/// What the containers may use together: those that run at the same time. Containers without a limit add nothing.
fn pod_limit(pod: &Pod) -> Option<Quantity> {
    let of = |which: Role| {
        let of_role = pod.containers().filter(move |(role, _)| *role == which);
        of_role.filter_map(|(_, spec)| limit(spec.resources.limits.get(EPHEMERAL_STORAGE)))
    };
    let add = |one: Quantity, other: Quantity| one.checked_add(&other).unwrap_or(one);
    let init = of(Role::Init).max();
    let main = of(Role::Main).reduce(add);
    let longest = match (main, init) {
        (Some(main), Some(init)) => Some(main.max(init)),
        (main, init) => main.or(init),
    };
    of(Role::Sidecar).chain(longest).reduce(add)
}

/// Why a Pod that uses this much has to be evicted, in the order and with the messages of the kubelet.
fn excess(pod: &Pod, usage: &StorageUsage) -> Option<String> {
    let exceeds = |used: u64, limit: &Quantity| i64::try_from(used).unwrap_or(i64::MAX) > limit.value();
    for volume in &pod.spec.volumes {
        let size = volume.empty_dir.as_ref().and_then(|empty| limit(empty.size_limit.as_ref()));
        if let Some(size) = size.filter(|size| exceeds(usage.volume(&volume.name), size)) {
            return Some(format!("Usage of EmptyDir volume {:?} exceeds the limit \"{size}\". ", volume.name));
        }
    }
    // Volumes in memory are no disk space, and those of the machine are not the Pod's.
    let on_disk = pod.spec.volumes.iter().filter(|volume| {
        volume.host_path.is_none() && volume.empty_dir.as_ref().is_none_or(|empty| empty.medium != "Memory")
    });
    let in_volumes: u64 = on_disk.map(|volume| usage.volume(&volume.name)).sum();
    let all = in_volumes.saturating_add(usage.containers.iter().map(|(_, bytes)| bytes).sum());
    if let Some(limit) = pod_limit(pod).filter(|limit| exceeds(all, limit)) {
        return Some(format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "));
    }
    for (_, spec) in pod.containers().filter(|(role, _)| *role != Role::Init) {
        let limit = limit(spec.resources.limits.get(EPHEMERAL_STORAGE));
        if let Some(limit) = limit.filter(|limit| exceeds(usage.container(&spec.name), limit)) {
            return Some(format!("Container {} exceeded its local ephemeral storage limit \"{limit}\". ", spec.name));
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(containers: &[(&str, Value)], volumes: Value) -> Pod {
        let (mut main, mut init) = (Vec::new(), Vec::new());
        for (name, limit) in containers {
            let (kind, name) = name.split_once(':').unwrap_or(("", name));
            let mut container = json!({"name": name, "resources": {"limits": {"cpu": "1"}}});
            if !limit.is_null() {
                container["resources"]["limits"][EPHEMERAL_STORAGE] = limit.clone();
            }
            match kind {
                "" => main.push(container),
                "sidecar" => {
                    container["restartPolicy"] = "Always".into();
                    init.push(container);
                }
                _ => init.push(container),
            }
        }
        let object = json!({
            "metadata": {"name": "p", "uid": "u", "resourceVersion": "1"},
            "spec": {"containers": main, "initContainers": init, "volumes": volumes},
        });
        Pod::read(&object.to_string().into()).unwrap()
    }

    fn usage(volumes: &[(&str, u64)], containers: &[(&str, u64)]) -> StorageUsage {
        let own = |list: &[(&str, u64)]| list.iter().map(|(name, bytes)| ((*name).into(), *bytes)).collect();
        StorageUsage { volumes: own(volumes), containers: own(containers) }
    }

    #[test]
    fn who_is_evicted_and_why() {
        let none = Value::Null;
        let scratch = || json!([{"name": "s", "emptyDir": {"sizeLimit": "1Ki"}}]);
        let two = || [("a", json!("1Ki")), ("b", json!("2Ki"))];
        let volume = "Usage of EmptyDir volume \"s\" exceeds the limit \"1Ki\". ";
        let total = "Pod ephemeral local storage usage exceeds the total limit of containers 3Ki. ";
        let container = "Container a exceeded its local ephemeral storage limit \"1Ki\". ";
        for (number, (pod, usage, expected)) in [
            // The size of a volume: one below, at, one above.
            (pod(&[("a", none.clone())], scratch()), usage(&[("s", 1023)], &[("a", 1 << 40)]), None),
            (pod(&[("a", none.clone())], scratch()), usage(&[("s", 1024)], &[]), None),
            (pod(&[("a", none.clone())], scratch()), usage(&[("s", 1025)], &[]), Some(volume)),
            (pod(&[("a", none.clone())], scratch()), usage(&[("other", 1025)], &[]), None),
            (
                pod(
                    &[("a", none.clone())],
                    json!([{"name": "s", "emptyDir": {"sizeLimit": "1Ki", "medium": "Memory"}}]),
                ),
                usage(&[("s", 1025)], &[]),
                Some(volume),
            ),
            (
                pod(&[("a", none.clone())], json!([{"name": "s", "emptyDir": {"sizeLimit": "0"}}])),
                usage(&[("s", 9)], &[]),
                None,
            ),
            // Everything of the Pod together.
            (pod(&two(), json!([])), usage(&[], &[("a", 1024), ("b", 2048)]), None),
            (pod(&two(), json!([])), usage(&[], &[("a", 1024), ("b", 2049)]), Some(total)),
            (pod(&two(), json!([{"name": "v", "emptyDir": {}}])), usage(&[("v", 3073)], &[]), Some(total)),
            (pod(&two(), json!([{"name": "v", "configMap": {"name": "m"}}])), usage(&[("v", 3073)], &[]), Some(total)),
            (pod(&two(), json!([{"name": "v", "emptyDir": {"medium": "Memory"}}])), usage(&[("v", 3073)], &[]), None),
            (pod(&two(), json!([{"name": "v", "hostPath": {"path": "/x"}}])), usage(&[("v", 3073)], &[]), None),
            // A container.
            (pod(&two(), json!([])), usage(&[], &[("a", 1025)]), Some(container)),
            (pod(&two(), json!([])), usage(&[], &[("b", 2048)]), None),
            // The first limit that is exceeded is told.
            (pod(&two(), scratch()), usage(&[("s", 4000)], &[("a", 4000)]), Some(volume)),
            (pod(&two(), scratch()), usage(&[], &[("a", 4000)]), Some(total)),
            // Init containers run before the others, sidecars beside them.
            (pod(&[("init:i", json!("3Ki")), ("a", json!("1Ki"))], json!([])), usage(&[], &[("i", 3072)]), None),
            (pod(&[("init:i", json!("3Ki")), ("a", json!("1Ki"))], json!([])), usage(&[], &[("i", 3073)]), Some(total)),
            (
                pod(&[("sidecar:i", json!("2Ki")), ("a", json!("1Ki"))], json!([])),
                usage(&[], &[("i", 2048), ("a", 1024)]),
                None,
            ),
            (
                pod(&[("sidecar:i", json!("2Ki")), ("a", json!("1Ki"))], json!([])),
                usage(&[], &[("i", 2048), ("a", 1025)]),
                Some(total),
            ),
            (
                pod(&[("sidecar:b", json!("2Ki")), ("a", json!("1Ki"))], json!([])),
                usage(&[], &[("a", 1025)]),
                Some(container),
            ),
        ]
        .into_iter()
        .enumerate()
        {
            assert!(has_limits(&pod) || expected.is_none(), "row {number}");
            assert_eq!(excess(&pod, &usage).as_deref(), expected, "row {number}");
        }
    }

    #[test]
    fn pods_without_such_limits_are_not_measured() {
        let none = Value::Null;
        for (limited, pod) in [
            (false, pod(&[("a", none.clone())], json!([]))),
            (
                false,
                pod(
                    &[("a", json!("0"))],
                    json!([{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {"sizeLimit": "0"}}]),
                ),
            ),
            (
                true,
                pod(
                    &[("a", none.clone())],
                    json!([{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {"sizeLimit": "1"}}]),
                ),
            ),
            (true, pod(&[("a", json!("1Gi"))], json!([]))),
            (true, pod(&[("init:i", json!("1Gi")), ("a", none.clone())], json!([]))),
        ] {
            assert_eq!(has_limits(&pod), limited);
        }
    }
}
