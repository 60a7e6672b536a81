//! `metrics.k8s.io`: what Pods and nodes use, for `kubectl top`. Nothing of it is stored: the node measures when a client asks
//! ([`UsageSource`]). A Pod of which not all running containers have been measured is not there, as in a cluster whose
//! metrics server has not seen it yet.

use std::collections::HashMap;
use std::time::Duration;

use tally_api::catalog;
use tally_api::kinds::Resource;
use tally_api::options::{ListOptions, ReadAt};
use tally_api::status_error::StatusError;
use tally_core::quantity::Quantity;
use tally_core::time::Timestamp;
use tally_registry::{Listing, Object, Registry, Target};
use tally_value::{Map, Value, json};

use crate::objects::logs;
use crate::sessions::BoxFuture;

/// The provider of figures.
pub trait UsageSource: Send + Sync {
    /// The name of the node that is measured.
    fn node(&self) -> &str;

    fn measure(&self) -> BoxFuture<'static, UsageFigures>;
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageFigures {
    pub at: Timestamp,
    pub machine: Option<UsageFigure>,
    /// By UID of the Pod, container and run, as in its `containerID`.
    pub containers: HashMap<(String, String, u32), UsageFigure>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageFigure {
    /// Of processors, in billionths of one.
    pub cpu: u64,
    /// In bytes.
    pub memory: u64,
    /// The time over which the use of processors is an average.
    pub window: Duration,
}

/// What was measured, and where. None: there is no node here whose processes could be measured.
pub struct Measurement<'a> {
    pub node: &'a str,
    pub figures: UsageFigures,
}

/// One Pod or node.
pub fn get(
    registry: &Registry,
    resource: &Resource,
    namespace: &str,
    name: &str,
    measured: Option<&Measurement<'_>>,
) -> Result<Object, StatusError> {
    // If the Pod or node does not exist, that is said.
    let object = registry.get(Target::new(described(resource)?, namespace, name), ReadAt::Newest)?.parse();
    let found = measured.and_then(|measured| measured.about(resource, &object));
    found.map(to_object).ok_or_else(|| {
        let scope = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let kind = resource.kind.to_lowercase();
        StatusError::new(404, "NotFound", format!("{kind}.{} \"{scope}{name}\" not found", resource.group))
    })
}

/// All that are selected, and have figures. The selectors are those of Pods and nodes.
pub fn list(
    registry: &Registry,
    resource: &Resource,
    namespace: &str,
    options: ListOptions,
    measured: Option<&Measurement<'_>>,
) -> Result<Listing, StatusError> {
    let ListOptions { label_selector, field_selector, .. } = options;
    let options = ListOptions { label_selector, field_selector, ..ListOptions::default() };
    let listing = registry.list(Target::new(described(resource)?, namespace, ""), &options)?;
    let about = |object: &Object| measured.and_then(|measured| measured.about(resource, &object.parse()));
    let items = listing.items.iter().filter_map(about).map(to_object).collect();
    Ok(Listing { items, revision: 0, continue_token: String::new(), remaining: None })
}

/// The resource whose objects are measured: it has the same name, in the core group.
fn described(resource: &Resource) -> Result<&'static Resource, StatusError> {
    catalog::find("", "v1", resource.plural).ok_or_else(|| StatusError::internal("no such resource"))
}

fn to_object(value: Value) -> Object {
    bytes::Bytes::from(value.to_string()).into()
}

impl Measurement<'_> {
    fn about(&self, resource: &Resource, object: &Value) -> Option<Value> {
        if resource.namespaced { self.pod(object) } else { self.node(object) }
    }

    fn node(&self, node: &Value) -> Option<Value> {
        let machine = self.figures.machine.filter(|_| node["metadata"]["name"] == self.node)?;
        let mut found = self.head(node, machine.window);
        found["usage"] = usage(machine);
        Some(found)
    }

    fn pod(&self, pod: &Value) -> Option<Value> {
        let uid = pod.pointer("/metadata/uid").and_then(Value::as_str)?;
        let is_here = pod.pointer("/spec/nodeName").is_some_and(|node| node == self.node);
        if !is_here || pod.pointer("/status/phase").is_none_or(|phase| phase != "Running") {
            return None;
        }
        let mut containers = Vec::new();
        let mut window = Duration::ZERO;
        // The first are those that started last.
        for list in ["/status/containerStatuses", "/status/initContainerStatuses"] {
            for status in pod.pointer(list).and_then(Value::as_array).into_iter().flatten() {
                if !status["state"]["running"].is_object() {
                    continue;
                }
                let name = status["name"].as_str()?;
                let key = (uid.to_owned(), name.to_owned(), logs::run(status, false)?);
                let figure = self.figures.containers.get(&key)?;
                window = window.max(figure.window);
                containers.push(json!({"name": name, "usage": usage(*figure)}));
            }
        }
        if containers.is_empty() {
            return None;
        }
        let mut found = self.head(pod, window);
        found["containers"] = containers.into();
        Some(found)
    }

    fn head(&self, object: &Value, window: Duration) -> Value {
        let now = self.figures.at.to_string();
        let mut metadata = Map::new();
        for field in ["name", "namespace", "labels"] {
            if let Some(value) = object["metadata"].get(field) {
                metadata.insert(field.to_owned(), value.clone());
            }
        }
        metadata.insert("creationTimestamp".to_owned(), now.clone().into());
        json!({"metadata": metadata, "timestamp": now, "window": duration(window)})
    }
}

fn usage(figure: UsageFigure) -> Value {
    let quantity = |text: String| Quantity::parse(&text).map_or(text, |quantity| quantity.to_string());
    json!({"cpu": quantity(format!("{}n", figure.cpu)), "memory": quantity(format!("{}Ki", figure.memory >> 10))})
}

/// As Go writes it, to the millisecond.
fn duration(window: Duration) -> String {
    let millis = window.as_millis();
    let (minutes, seconds, millis) = (millis / 60_000, millis / 1_000 % 60, millis % 1_000);
    let fraction = format!("{millis:03}");
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    let minutes = if minutes == 0 { String::new() } else { format!("{minutes}m") };
    format!("{minutes}{seconds}{point}{fraction}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(cpu: u64, memory: u64, millis: u64) -> UsageFigure {
        UsageFigure { cpu, memory, window: Duration::from_millis(millis) }
    }

    fn resource(plural: &str) -> &'static Resource {
        catalog::find("metrics.k8s.io", "v1beta1", plural).unwrap()
    }

    fn pod(node: &str, phase: &str, statuses: Value) -> Value {
        json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a": "b"}, "resourceVersion": "7"},
            "spec": {"nodeName": node}, "status": {"phase": phase, "containerStatuses": statuses},
        })
    }

    fn running(name: &str, run: u32) -> Value {
        json!({"name": name, "state": {"running": {}}, "containerID": format!("process://u/{name}/{run}")})
    }

    /// TOP-1
    #[test]
    fn a_pod_has_the_form_of_the_reference() {
        let containers = [("a", 0, figure(12_345_678, 1234 << 10, 15_041)), ("b", 3, figure(0, 50 << 20, 2_000))];
        let containers = containers.map(|(name, run, figure)| (("u".to_owned(), name.to_owned(), run), figure)).into();
        let at = Timestamp::from_seconds(60);
        let figures = UsageFigures { at, machine: Some(figure(1_500_000_000, 3 << 30, 61_500)), containers };
        let measured = Measurement { node: "here", figures };
        let about = |pod: &Value| measured.about(resource("pods"), pod);
        let both = json!([running("a", 0), running("b", 3), {"name": "c", "state": {"terminated": {}}}]);
        assert_eq!(
            about(&pod("here", "Running", both.clone())),
            Some(json!({
                "metadata": {"name": "p", "namespace": "n", "labels": {"a": "b"}, "creationTimestamp": "1970-01-01T00:01:00Z"},
                "timestamp": "1970-01-01T00:01:00Z", "window": "15.041s",
                "containers": [
                    {"name": "a", "usage": {"cpu": "12345678n", "memory": "1234Ki"}},
                    {"name": "b", "usage": {"cpu": "0", "memory": "50Mi"}},
                ],
            }))
        );
        for (case, pod) in [
            ("on another node", pod("there", "Running", both.clone())),
            ("has ended", pod("here", "Succeeded", both)),
            ("a container without figures", pod("here", "Running", json!([running("a", 0), running("new", 0)]))),
            ("another run", pod("here", "Running", json!([running("a", 1)]))),
            ("nothing runs", pod("here", "Running", json!([{"name": "a", "state": {"waiting": {}}}]))),
            ("not scheduled", json!({"metadata": {"uid": "u"}})),
        ] {
            assert_eq!(about(&pod), None, "{case}");
        }
        let node = |name: &str| measured.about(resource("nodes"), &json!({"metadata": {"name": name}}));
        assert_eq!(node("there"), None);
        let here = node("here").unwrap();
        assert_eq!((&here["window"], &here["usage"]), (&json!("1m1.5s"), &json!({"cpu": "1500m", "memory": "3Gi"})));
    }
}
