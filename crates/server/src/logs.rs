//! `pods/NAME/log`: what a container has printed, and goes on to print.
//!
//! The logs themselves are the node's ([`Logs`]); here it is found out which is meant, and what to say where there is none.

use std::future::Future;
use std::pin::Pin;

use futures_util::{StreamExt, stream};
use serde_json::Value;
use tally_api::catalog;
use tally_api::failure::Failure;
use tally_api::options::{LogOptions, ReadAt, Since};
use tally_core::time::{Span, Timestamp};
use tally_registry::Target;
use tokio::sync::watch;

use crate::body::{Body, Events};
use crate::forms::{self, Answer};
use crate::objects::Ask;

/// What a log can be wanted as.
pub const FORMS: &[&str] = &["text/plain", "application/json", "application/yaml"];

/// Pieces of a log, until it ends or nobody wants more.
pub type Log = Events;

/// Whoever keeps the logs of Pods.
pub trait Logs: Send + Sync {
    fn open(&self, wanted: Wanted) -> Pin<Box<dyn Future<Output = Result<Log, NoLog>> + Send>>;
}

/// One log, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub pod_uid: String,
    pub container: String,
    /// Of the run before the one there is now.
    pub previous: bool,
    pub follow: bool,
    /// Each line with its time before it.
    pub timestamps: bool,
    pub since: Option<Timestamp>,
    pub tail_lines: Option<u64>,
    pub limit_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoLog {
    /// There has not been such a run.
    NotThere,
    /// What is in the way, in words.
    Broken(String),
}

pub async fn serve(ask: &Ask<'_>) -> Result<Answer, Failure> {
    let name = &ask.place.name;
    let options = LogOptions::parse(ask.query, name)?;
    let target = Target::new(ask.place.resource, &ask.place.namespace, name);
    let pod = ask.registry().get(target, ReadAt::Newest)?.parse();
    let container = container(&pod, name, &options.container)?;
    // A Pod that no node has taken has said nothing yet.
    let node = match pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default() {
        "" => return Ok(forms::answer(204, "text/plain", Body::EMPTY)),
        node => node,
    };
    if let Some(nodes) = catalog::find("", "v1", "nodes") {
        ask.registry().get(Target::new(nodes, "", node), ReadAt::Newest)?;
    }
    let Some(logs) = ask.door.logs.get() else {
        let text = format!("the node of pod {name} keeps no logs that could be read from here");
        return Err(Failure::new(503, "ServiceUnavailable", text));
    };
    let since = options.since.map(|since| match since {
        Since::Time(at) => at,
        Since::Seconds(seconds) => {
            let seconds = i64::try_from(seconds).unwrap_or(i64::MAX / 1_000);
            ask.registry().world.now() - Span::from_seconds(seconds)
        }
    });
    let wanted = Wanted {
        pod_uid: pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
        container: container.clone(),
        previous: options.previous,
        follow: options.follow,
        timestamps: options.timestamps,
        since,
        tail_lines: options.tail_lines,
        limit_bytes: options.limit_bytes,
    };
    match logs.open(wanted).await {
        Ok(log) => {
            let log = until(log, ask.door.stopping.clone());
            Ok(forms::answer(200, "text/plain", Body::Events(log)))
        }
        Err(NoLog::NotThere) => Err(missing(&pod, name, &container, options.previous)),
        Err(NoLog::Broken(why)) => Err(Failure::new(500, "InternalError", why)),
    }
}

/// The container that is meant, if there is no doubt.
fn container(pod: &Value, name: &str, asked: &str) -> Result<String, Failure> {
    let names = |list: &str| -> Vec<String> {
        let containers = pod.pointer(list).and_then(Value::as_array).into_iter().flatten();
        containers.filter_map(|container| container["name"].as_str()).map(str::to_owned).collect()
    };
    let mains = names("/spec/containers");
    let all = ["/spec/initContainers", "/spec/containers", "/spec/ephemeralContainers"].map(names).concat();
    match (asked, mains.as_slice()) {
        ("", [only]) => Ok(only.clone()),
        ("", _) => {
            let all = all.join(" ");
            let text = format!("a container name must be specified for pod {name}, choose one of: [{all}]");
            Err(Failure::bad_request(text))
        }
        _ if all.iter().any(|container| container == asked) => Ok(asked.to_owned()),
        _ => Err(Failure::bad_request(format!("container {asked} is not valid for pod {name}"))),
    }
}

/// Why there is no log: the Pod tells.
fn missing(pod: &Value, name: &str, container: &str, previous: bool) -> Failure {
    let lists = ["/status/containerStatuses", "/status/initContainerStatuses"];
    let statuses = lists.iter().filter_map(|list| pod.pointer(list).and_then(Value::as_array)).flatten();
    let status = statuses.into_iter().find(|status| status["name"] == container);
    let waiting = status.and_then(|status| status.pointer("/state/waiting/reason")).and_then(Value::as_str);
    Failure::bad_request(match (previous, status, waiting) {
        (true, ..) => format!("previous terminated container {container:?} in pod {name:?} not found"),
        (false, _, Some(reason)) => format!("container {container:?} in pod {name:?} is waiting to start: {reason}"),
        (false, Some(_), None) => format!("container {container:?} in pod {name:?} is terminated, and its log is gone"),
        (false, None, None) => {
            format!("container {container:?} in pod {name:?} is waiting to start: ContainerCreating")
        }
    })
}

/// A log that is followed ends with the server.
fn until(log: Log, stopping: watch::Receiver<bool>) -> Events {
    Box::pin(stream::unfold((log, stopping), |(mut log, mut stopping)| async move {
        let piece = tokio::select! {
            biased;
            piece = log.next() => piece,
            _ = stopping.wait_for(|stopping| *stopping) => None,
        };
        piece.map(|piece| (piece, (log, stopping)))
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_missing_is_explained_by_the_pod() {
        let pod = |state: Value| json!({"status": {"containerStatuses": [{"name": "c", "state": state}]}});
        let waits = json!({"waiting": {"reason": "CreateContainerConfigError"}});
        for (pod, previous, expected) in [
            (pod(waits.clone()), false, "container \"c\" in pod \"p\" is waiting to start: CreateContainerConfigError"),
            (pod(waits), true, "previous terminated container \"c\" in pod \"p\" not found"),
            (json!({}), false, "container \"c\" in pod \"p\" is waiting to start: ContainerCreating"),
            (pod(json!({"terminated": {}})), false, "container \"c\" in pod \"p\" is terminated, and its log is gone"),
        ] {
            assert_eq!(missing(&pod, "p", "c", previous).message, expected);
        }
    }
}
