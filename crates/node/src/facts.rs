//! The downward API: fields of a Pod, and the resources of its containers.

use std::fmt::Write;

use tally_core::pod::{INDEX_ANNOTATION, RETRY_INDEXES_ANNOTATION};

use crate::config_error::ContainerConfigError;
use crate::options::NodeOptions;
use crate::pod::{Container, Labels, Pod, ResourceFieldRef, quantity};

/// `metadata.name`, `metadata.labels['app']`, `status.podIP` and the like.
pub fn field(pod: &Pod, node: &NodeOptions, path: &str) -> Result<String, ContainerConfigError> {
    let metadata = &pod.metadata;
    Ok(match path {
        "metadata.name" => metadata.name.to_string(),
        "metadata.namespace" => metadata.namespace.to_string(),
        "metadata.uid" => metadata.uid.to_string(),
        "metadata.labels" => listed(&metadata.labels),
        "metadata.annotations" => listed(&metadata.annotations),
        "spec.nodeName" => pod.spec.node_name.to_string(),
        "spec.serviceAccountName" => pod.spec.service_account_name.to_string(),
        // Processes of this node have no network of their own, so a Pod's addresses are the node's.
        "status.hostIP" | "status.hostIPs" | "status.podIP" | "status.podIPs" => node.address.clone(),
        path => {
            let unknown = || ContainerConfigError::UnknownField(path.to_owned());
            let (map, key) = subscript(path).ok_or_else(unknown)?;
            let map = match map {
                // RETRY-2: a task of an index that is run again is told that index, as a label or an annotation.
                _ if key == INDEX_ANNOTATION && metadata.annotations.contains_key(RETRY_INDEXES_ANNOTATION) => {
                    return Ok(pod.task_index().map(|index| index.to_string()).unwrap_or_default());
                }
                "metadata.labels" => &metadata.labels,
                "metadata.annotations" => &metadata.annotations,
                _ => return Err(unknown()),
            };
            map.get(key).cloned().unwrap_or_default()
        }
    })
}

/// `a['k']` is (a, k).
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['")
}

/// One line per entry, with the value quoted.
fn listed(labels: &Labels) -> String {
    let mut text = String::new();
    for (key, value) in labels {
        let between = if text.is_empty() { "" } else { "\n" };
        // Writing to a String cannot fail.
        let _ = write!(text, "{between}{key}={}", serde_json::Value::from(value.as_str()));
    }
    text
}

/// A limit or request of a container, in units of the divisor, rounded up. If a limit is not set, it is the capacity of
/// the node.
pub fn resource(
    pod: &Pod,
    node: &NodeOptions,
    own: Option<&Container>,
    from: &ResourceFieldRef,
) -> Result<String, ContainerConfigError> {
    let container = if from.container_name.is_empty() {
        own
    } else {
        pod.containers().map(|(_, container)| container).find(|container| container.name == from.container_name)
    };
    let container = container.ok_or_else(|| ContainerConfigError::UnknownContainer(from.container_name.clone()))?;
    let (what, name) = from.resource.split_once('.').unwrap_or_default();
    let (written, otherwise) = match what {
        "limits" => (&container.resources.limits, true),
        "requests" => (&container.resources.requests, false),
        _ => return Err(ContainerConfigError::UnknownResource(from.resource.to_string())),
    };
    let amount = quantity(written.get(name));
    let divisor = quantity(from.divisor.as_ref()).filter(|divisor| !divisor.is_zero());
    let (amount, divisor) = if name == "cpu" {
        let all = if otherwise { node.cpu_millis } else { 0 };
        let amount = amount.map_or(all, |amount| u64::try_from(amount.milli_value()).unwrap_or(0));
        (amount, divisor.map_or(1000, |divisor| divisor.milli_value()))
    } else {
        let all = match name {
            "memory" if otherwise => node.memory,
            "ephemeral-storage" if otherwise => node.storage,
            _ => 0,
        };
        let amount = amount.map_or(all, |amount| u64::try_from(amount.value()).unwrap_or(0));
        (amount, divisor.map_or(1, |divisor| divisor.value()))
    };
    let divisor = u64::try_from(divisor).unwrap_or(1).max(1);
    Ok(amount.div_ceil(divisor).to_string())
}
