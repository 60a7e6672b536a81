//! `pods/NAME/log`: the output of a container, which a client can follow.
//!
//! The node provides the logs ([`Logs`]); this module determines which log is requested, and the error if there is
//! none.

use std::future::Future;
use std::io;
use std::pin::Pin;

use futures_util::{StreamExt, stream};
use tally_api::catalog;
use tally_api::options::{LogOptions, ReadAt, Since};
use tally_api::status_error::StatusError;
use tally_core::time::{Span, Timestamp};
use tally_registry::Target;
use tally_value::Value;
use tokio::sync::watch;

use crate::encode::{self, HttpResponse};
use crate::http::body::{Body, Events};
use crate::http::flow::{FlowShare, ShareKind};
use crate::objects::RequestContext;

/// The media types that a request for a log may accept.
pub const FORMS: &[&str] = &["text/plain", "application/json", "application/yaml"];

/// Pieces of a log, until it ends or the client stops reading.
pub type Log = Events;

/// The provider of the logs of Pods.
pub trait Logs: Send + Sync {
    /// `over` returns whether the requested run has ended and all its output is in its log.
    fn open(&self, wanted: LogRequest, over: LogEnded) -> Pin<Box<dyn Future<Output = Result<Log, LogError>> + Send>>;
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the log: {0}")]
pub struct LogError(#[from] pub io::Error);

pub type LogEnded = Box<dyn Fn() -> bool + Send + Sync>;

/// One log, or a part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRequest {
    pub pod_uid: String,
    pub container: String,
    /// The run of the container, as in its `containerID`.
    pub run: u32,
    pub follow: bool,
    /// Each line is prefixed with its time.
    pub timestamps: bool,
    pub since: Option<Timestamp>,
    pub tail_lines: Option<u64>,
    pub limit_bytes: Option<u64>,
}

pub async fn serve(context: &RequestContext<'_>) -> Result<HttpResponse, StatusError> {
    let name = &context.place.name;
    let options = LogOptions::parse(context.query, name)?;
    let target = Target::new(context.place.resource, &context.place.namespace, name);
    let pod = context.registry().get(target, ReadAt::Newest)?.parse();
    let container = container(&pod, name, &options.container)?;
    // A Pod that is not assigned to a node has no output yet.
    let node = match pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default() {
        "" => return Ok(encode::answer(204, "text/plain", Body::EMPTY)),
        node => node,
    };
    if let Some(nodes) = catalog::find("", "v1", "nodes") {
        context.registry().get(Target::new(nodes, "", node), ReadAt::Newest)?;
    }
    let Some(logs) = context.handler.logs.get() else {
        let text = format!("the node of pod {name} keeps no logs that could be read from here");
        return Err(StatusError::new(503, "ServiceUnavailable", text));
    };
    let since = options.since.map(|since| match since {
        Since::Time(at) => at,
        Since::Seconds(seconds) => {
            let seconds = i64::try_from(seconds).unwrap_or(i64::MAX / 1_000);
            context.registry().now() - Span::from_seconds(seconds)
        }
    });
    let Some(run) = status(&pod, &container).and_then(|status| run(status, options.previous)) else {
        return Err(missing(&pod, name, &container, options.previous));
    };
    let wanted = LogRequest {
        pod_uid: pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
        container: container.clone(),
        run,
        follow: options.follow,
        timestamps: options.timestamps,
        since,
        tail_lines: options.tail_lines,
        limit_bytes: options.limit_bytes,
    };
    let over = {
        let (registry, wanted) = (context.handler.registry.clone(), wanted.clone());
        let (resource, namespace, name) =
            (context.place.resource, context.place.namespace.to_string(), name.to_string());
        move || match registry.get(Target::new(resource, &namespace, &name), ReadAt::Newest) {
            Ok(pod) => has_ended(&pod.parse(), &wanted),
            Err(_) => true,
        }
    };
    let share = context.take(ShareKind::Stream)?;
    match logs.open(wanted, Box::new(over)).await {
        Ok(log) => {
            let log = until(log, context.handler.stopping.clone(), share);
            Ok(encode::answer(200, "text/plain", Body::Events(log)))
        }
        Err(error) => Err(StatusError::new(500, "InternalError", error.to_string())),
    }
}

pub fn status<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    let lists = ["/status/containerStatuses", "/status/initContainerStatuses", "/status/ephemeralContainerStatuses"];
    let mut statuses = lists.iter().filter_map(|list| pod.pointer(list).and_then(Value::as_array)).flatten();
    statuses.find(|status| status["name"] == container)
}

/// The requested run: the current one, or the last one if the next has not started; or, with `previous`, the one
/// before.
pub fn run(status: &Value, previous: bool) -> Option<u32> {
    let number = |id: &Value| id.as_str()?.rsplit_once('/')?.1.parse().ok();
    let last = number(&status["lastState"]["terminated"]["containerID"]);
    if previous {
        return last;
    }
    let state = &status["state"];
    let now = if state["running"].is_object() { &status["containerID"] } else { &state["terminated"]["containerID"] };
    number(now).or(last)
}

/// Whether the Pod is gone, has another UID, or has a status that says that the run has ended.
fn has_ended(pod: &Value, wanted: &LogRequest) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    if pod["metadata"]["uid"] != wanted.pod_uid || matches!(phase, "Succeeded" | "Failed") {
        return true;
    }
    let Some(status) = status(pod, &wanted.container) else { return false };
    run(status, false) != Some(wanted.run) || !status["state"]["running"].is_object()
}

/// The requested container, if it is unambiguous.
pub fn container(pod: &Value, name: &str, asked: &str) -> Result<String, StatusError> {
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
            Err(StatusError::bad_request(text))
        }
        _ if all.iter().any(|container| container == asked) => Ok(asked.to_owned()),
        _ => Err(StatusError::bad_request(format!("container {asked} is not valid for pod {name}"))),
    }
}

/// Why there is no log, from the status of the Pod.
fn missing(pod: &Value, name: &str, container: &str, previous: bool) -> StatusError {
    let waiting = status(pod, container).and_then(|status| status.pointer("/state/waiting/reason"));
    StatusError::bad_request(match (previous, waiting.and_then(Value::as_str)) {
        (true, _) => format!("previous terminated container {container:?} in pod {name:?} not found"),
        (false, Some(reason)) => format!("container {container:?} in pod {name:?} is waiting to start: {reason}"),
        (false, None) => format!("container {container:?} in pod {name:?} is waiting to start: ContainerCreating"),
    })
}

/// A followed log ends when the server stops. `share` is held until it ends.
fn until(log: Log, stopping: watch::Receiver<bool>, share: FlowShare) -> Events {
    Box::pin(stream::unfold((log, stopping, share), |(mut log, mut stopping, share)| async move {
        let piece = tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => None,
            piece = log.next() => piece,
        };
        piece.map(|piece| (piece, (log, stopping, share)))
    }))
}

#[cfg(test)]
mod tests {
    use tally_value::json;

    use super::*;

    #[test]
    fn the_run_that_is_meant_and_whether_it_has_ended() {
        let id = |number: u32| format!("process://u/c/{number}");
        let ended = |number| json!({"terminated": {"containerID": id(number)}});
        let running = json!({"running": {}});
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        for (now, last, number, meant, before, over) in [
            (running.clone(), json!({}), 0, Some(0), None, false),
            (running, ended(0), 1, Some(1), Some(0), false),
            (ended(1), ended(0), 1, Some(1), Some(0), true),
            (waiting.clone(), ended(3), 3, Some(3), Some(3), true),
            (waiting, json!({}), 0, None, None, false),
        ] {
            let status = json!({"name": "c", "state": now, "lastState": last, "containerID": id(number)});
            assert_eq!((run(&status, false), run(&status, true)), (meant, before), "{status}");
            let Some(meant) = meant else { continue };
            let pod = |phase: &str| json!({"metadata": {"uid": "u"}, "status": {"phase": phase, "containerStatuses": [status.clone()]}});
            let wanted = |uid: &str, run| LogRequest {
                pod_uid: uid.into(),
                container: "c".into(),
                run,
                ..LogRequest::default()
            };
            assert_eq!(has_ended(&pod("Running"), &wanted("u", meant)), over, "{status}");
            assert!(has_ended(&pod("Failed"), &wanted("u", meant)));
            assert!(has_ended(&pod("Running"), &wanted("another", meant)));
            assert!(has_ended(&pod("Running"), &wanted("u", meant + 1)), "another one is there");
        }
    }

    #[test]
    fn what_is_missing_is_explained_by_the_pod() {
        let pod = |state: Value| json!({"status": {"containerStatuses": [{"name": "c", "state": state}]}});
        let waits = json!({"waiting": {"reason": "CreateContainerConfigError"}});
        for (pod, previous, expected) in [
            (pod(waits.clone()), false, "container \"c\" in pod \"p\" is waiting to start: CreateContainerConfigError"),
            (pod(waits), true, "previous terminated container \"c\" in pod \"p\" not found"),
            (json!({}), false, "container \"c\" in pod \"p\" is waiting to start: ContainerCreating"),
        ] {
            assert_eq!(missing(&pod, "p", "c", previous).message, expected);
        }
    }
}
