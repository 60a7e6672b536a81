//! The objects that an explanation is made from, as the API serves them.

use serde_json::Value;
use tally_core::time::Timestamp;

/// What a caller could read. A list that may not be read is None, or empty with a line in `unread`.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The Job, Pod or CronJob, with its `kind`.
    pub object: Value,
    /// The Job that controls the Pod.
    pub job: Option<Value>,
    /// The Pods of the Job.
    pub pods: Vec<Value>,
    /// The Events about the object and its Pods.
    pub events: Vec<Value>,
    pub nodes: Option<Vec<Value>>,
    /// Those of controllers that run Jobs.
    pub leases: Option<Vec<Value>>,
    pub quotas: Vec<Value>,
    pub namespace: Option<Value>,
    pub host: Host,
    pub unread: Vec<String>,
}

/// Where the controllers of these objects run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Host {
    /// In a cluster.
    #[default]
    Cluster,
    /// In the process that has the data directory, which does not say what it runs.
    Running,
    /// The process that serves the API says whether the controller of the object runs in it. It needs no Lease there.
    Serving { controller: bool },
    /// Nowhere: no process has the data directory.
    Stopped,
}

/// An Event, of either API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventView<'a> {
    pub reason: &'a str,
    pub message: &'a str,
    pub about_kind: &'a str,
    pub about_name: &'a str,
    pub first_at: Option<Timestamp>,
    pub last_at: Timestamp,
    pub count: u64,
    pub warning: bool,
}

pub(crate) fn time(value: &Value) -> Option<Timestamp> {
    Timestamp::parse(value.as_str()?).ok()
}

pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// When the object last changed, as far as it says so: its creation, deletion, and the writes of its managers.
pub(crate) fn changed_at(object: &Value) -> Option<Timestamp> {
    let metadata = &object["metadata"];
    let written = list(object, "/metadata/managedFields").iter().map(|write| &write["time"]);
    let conditions = list(object, "/status/conditions").iter().map(|condition| &condition["lastTransitionTime"]);
    let own = [&metadata["creationTimestamp"], &object["status"]["startTime"], &object["status"]["completionTime"]];
    written.chain(conditions).chain(own).filter_map(time).max()
}

/// When the status was last written, as far as the object says so.
pub(crate) fn status_written_at(object: &Value) -> Option<Timestamp> {
    let writes = list(object, "/metadata/managedFields").iter().filter(|write| write["subresource"] == "status");
    writes.filter_map(|write| time(&write["time"])).max()
}

pub(crate) fn finalizers(object: &Value) -> Vec<String> {
    list(object, "/metadata/finalizers").iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The condition of this type.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, "/status/conditions").iter().find(|condition| condition["type"] == kind)
}

impl Evidence {
    /// Oldest first.
    pub(crate) fn events(&self) -> Vec<EventView<'_>> {
        let mut all: Vec<EventView<'_>> = self.events.iter().filter_map(view).collect();
        all.sort_by_key(|event| event.last_at);
        all
    }

    /// The newest Event with this reason about an object of this kind, not older than `since`.
    pub(crate) fn last_event(&self, kind: &str, reason: &str, since: Option<Timestamp>) -> Option<EventView<'_>> {
        let fits = |event: &EventView<'_>| event.about_kind == kind && event.reason == reason;
        self.events().into_iter().rev().find(fits).filter(|event| since.is_none_or(|since| event.last_at >= since))
    }

    /// Why the node does not run Pods, and since when. None: it does, or that is not known.
    pub(crate) fn node_problem(&self, name: &str) -> Option<(String, Option<Timestamp>)> {
        let nodes = self.nodes.as_ref().filter(|_| !name.is_empty())?;
        let Some(node) = nodes.iter().find(|node| text(node, "/metadata/name") == name) else {
            return Some(("does not exist any more".to_owned(), None));
        };
        let taint = list(node, "/spec/taints").iter().any(|taint| taint["key"] == "node.kubernetes.io/out-of-service");
        if taint {
            return Some(("is out of service".to_owned(), None));
        }
        let ready = condition(node, "Ready")?;
        let since = time(&ready["lastTransitionTime"]);
        match text(ready, "/status") {
            "True" => None,
            "False" => Some(("is not ready".to_owned(), since)),
            _ => Some(("does not report".to_owned(), since)),
        }
    }

    pub(crate) fn namespace_terminates(&self) -> bool {
        let namespace = self.namespace.as_ref();
        namespace.is_some_and(|namespace| !text(namespace, "/metadata/deletionTimestamp").is_empty())
    }
}

fn view(event: &Value) -> Option<EventView<'_>> {
    let about = if event["involvedObject"].is_object() { &event["involvedObject"] } else { &event["regarding"] };
    let message = event["message"].as_str().or(event["note"].as_str()).unwrap_or_default();
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["firstTimestamp"],
        &event["metadata"]["creationTimestamp"],
    ];
    let count = [&event["series"]["count"], &event["count"]].into_iter().filter_map(Value::as_u64).max();
    Some(EventView {
        reason: event["reason"].as_str()?,
        message,
        about_kind: about["kind"].as_str().unwrap_or_default(),
        about_name: about["name"].as_str().unwrap_or_default(),
        first_at: [&event["firstTimestamp"], &event["eventTime"]].into_iter().find_map(time),
        last_at: times.into_iter().find_map(time)?,
        count: count.unwrap_or(1).max(1),
        warning: event["type"] == "Warning",
    })
}
