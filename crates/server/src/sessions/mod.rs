//! `pods/NAME/exec`, `attach` and `portforward`: streams between a client and a Pod.
//!
//! A client asks for an upgrade of its connection to a WebSocket. What is wrong with the request is answered as for any other;
//! then the connection leaves HTTP, and what was begun here is continued on it (`ClientConnection::continue_with`). The node
//! runs the commands and has the containers ([`PodSessions`]); this module decides which container is meant, and speaks the
//! protocols: `channels.rs` those of exec and attach, `spdy/` and `forward.rs` that of port-forward.

pub mod channels;
pub mod forward;
pub mod spdy;
mod stream;
pub mod upgrade;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::http::request::Parts;
use tally_api::options::ReadAt;
use tally_api::status_error::StatusError;
use tally_registry::Target;
use tally_value::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

use crate::encode::HttpResponse;
use crate::http::flow::ShareKind;
use crate::http::handler::ClientConnection;
use crate::objects::{RequestContext, logs};
use crate::sessions::channels::ChannelProtocol;
use crate::sessions::upgrade::UpgradeRequest;

/// Sessions of all clients at once, administrators included: each has buffers, and a process.
const MOST_SESSIONS: usize = 256;
/// How long a session may transfer nothing, as in a kubelet.
const IDLE_FOR: Duration = Duration::from_secs(4 * 60 * 60);

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The provider of sessions with Pods.
pub trait PodSessions: Send + Sync {
    /// The name of the node whose Pods can be reached.
    fn node(&self) -> &str;

    /// Returns when the command runs, or the client is connected to the container.
    fn open(&self, wanted: PodSessionRequest) -> BoxFuture<'static, Result<PodSession, PodSessionError>>;

    /// Connects to a port on which a process of the Pod listens.
    fn connect(&self, pod_uid: &str, port: u16) -> BoxFuture<'static, io::Result<tokio::net::TcpStream>>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSessionRequest {
    pub pod_uid: String,
    pub container: String,
    /// The run of the container, as in its `containerID`.
    pub run: u32,
    pub kind: PodSessionKind,
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodSessionKind {
    /// `terminal`: columns and rows, both zero if they are not known.
    Exec {
        command: Vec<String>,
        terminal: Option<(u16, u16)>,
    },
    Attach,
}

/// An open session. If it is dropped, the streams of the command close.
pub struct PodSession {
    /// None: it was not asked for, or the container has none.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    pub control: Arc<dyn PodSessionControl>,
}

pub trait PodSessionControl: Send + Sync {
    fn resize(&self, columns: u16, rows: u16);

    /// The client sends no more input.
    fn input_ended(&self) -> BoxFuture<'_, ()>;

    /// When the command, or the container, has ended: its exit code. What it wrote is in the streams.
    fn ended(&self) -> BoxFuture<'_, Result<i32, PodSessionError>>;
}

#[derive(Debug, thiserror::Error)]
pub enum PodSessionError {
    #[error("container not found")]
    NotRunning,
    #[error("{0}")]
    Failed(String),
}

/// How many sessions there may be.
pub struct SessionPlaces(Arc<Semaphore>);

impl Default for SessionPlaces {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST_SESSIONS)))
    }
}

/// The response to a request for a session: the upgrade, or why there is none.
pub fn serve(
    context: &RequestContext<'_>,
    client: &ClientConnection,
    parts: &Parts,
) -> Result<HttpResponse, StatusError> {
    let kind = context.place.subresource.map_or("", |subresource| subresource.name);
    let name = &context.place.name;
    let target = Target::new(context.place.resource, &context.place.namespace, name);
    let pod = context.registry().get(target, ReadAt::Newest)?.parse();
    let ready = PodReady { context, pod: &pod, name };
    match kind {
        "portforward" => {
            let uid = ready.to_forward()?;
            let upgrade = UpgradeRequest::of(parts, &[forward::PROTOCOL], upgrade::FORWARD_ADVICE)?;
            let sessions = ready.sessions()?;
            let (share, place) = ready.take()?;
            Ok(upgrade.accept(client, (share, place), move |socket, _| {
                Box::pin(async move { forward::serve(socket, sessions, &uid, IDLE_FOR).await })
            }))
        }
        kind => {
            let wanted = ready.to_open(kind)?;
            let upgrade = UpgradeRequest::of(parts, ChannelProtocol::NAMES, upgrade::EXEC_ADVICE)?;
            let sessions = ready.sessions()?;
            let (share, place) = ready.take()?;
            Ok(upgrade.accept(client, (share, place), move |socket, protocol| {
                Box::pin(async move {
                    if let Some(protocol) = ChannelProtocol::named(protocol) {
                        stream::serve(socket, protocol, sessions, wanted, IDLE_FOR).await;
                    }
                })
            }))
        }
    }
}

/// A Pod, as far as a session with it is concerned.
struct PodReady<'a> {
    context: &'a RequestContext<'a>,
    pod: &'a Value,
    name: &'a str,
}

/// What is to be opened once the connection is upgraded.
pub struct WantedSession {
    pub request: PodSessionRequest,
    /// Some: why the container cannot be reached. The client is told after the upgrade, as by the reference.
    pub missing: Option<String>,
}

impl PodReady<'_> {
    fn text(&self, pointer: &str) -> &str {
        self.pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    fn uid(&self) -> String {
        self.text("/metadata/uid").to_owned()
    }

    fn sessions(&self) -> Result<Arc<dyn PodSessions>, StatusError> {
        let node = self.text("/spec/nodeName");
        let found = self.context.handler.sessions.get().filter(|sessions| sessions.node() == node);
        found.cloned().ok_or_else(|| {
            let text = format!("node {node:?} of pod {} runs no processes that could be reached from here", self.name);
            StatusError::new(503, "ServiceUnavailable", text)
        })
    }

    fn take(&self) -> Result<(crate::http::flow::FlowShare, tokio::sync::OwnedSemaphorePermit), StatusError> {
        let share = self.context.take(ShareKind::Session)?;
        let place = self.context.handler.session_places.0.clone().try_acquire_owned();
        Ok((share, place.map_err(|_| StatusError::from(crate::http::flow::TooManyRequests))?))
    }

    fn check_node(&self) -> Result<(), StatusError> {
        if self.text("/spec/nodeName").is_empty() {
            let text = format!("pod {} does not have a host assigned", self.name);
            return Err(StatusError::bad_request(text));
        }
        Ok(())
    }

    /// The UID of the Pod.
    fn to_forward(&self) -> Result<String, StatusError> {
        self.check_node()?;
        match self.text("/status/phase") {
            "Running" => Ok(self.uid()),
            phase => {
                let text = format!("unable to forward port because pod is not running. Current status={phase}");
                Err(StatusError::bad_request(text))
            }
        }
    }

    fn to_open(&self, kind: &str) -> Result<WantedSession, StatusError> {
        let query = self.context.query;
        let container = logs::container(self.pod, self.name, query.get("container").unwrap_or_default())?;
        self.check_node()?;
        let is_exec = kind == "exec";
        let phase = self.text("/status/phase");
        if matches!(phase, "Succeeded" | "Failed") {
            let what = if is_exec { "exec into" } else { "attach" };
            let text = format!("cannot {what} a container in a completed pod; current phase is {phase}");
            return Err(StatusError::bad_request(text));
        }
        let flag = |name| query.flag(name).unwrap_or(false);
        let (stdin, stdout, tty) = (flag("stdin"), flag("stdout"), flag("tty"));
        // What a terminal shows is one stream.
        let stderr = flag("stderr") && !tty;
        if !stdin && !stdout && !stderr {
            return Err(StatusError::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
        }
        let command: Vec<String> = query.all("command").into_iter().map(str::to_owned).collect();
        if is_exec && command.iter().all(String::is_empty) {
            return Err(StatusError::bad_request("you must specify at least one command for the container"));
        }
        let status = logs::status(self.pod, &container);
        let run = status.filter(|status| status["state"]["running"].is_object()).and_then(|it| logs::run(it, false));
        let missing = run.is_none().then(|| not_found(&container));
        let kind = if is_exec {
            PodSessionKind::Exec { command, terminal: tty.then_some((0, 0)) }
        } else {
            PodSessionKind::Attach
        };
        let run = run.unwrap_or_default();
        let request = PodSessionRequest { pod_uid: self.uid(), container, run, kind, stdin, stdout, stderr };
        Ok(WantedSession { request, missing })
    }
}

/// The container does not run.
fn not_found(container: &str) -> String {
    format!("unable to upgrade connection: container not found ({container:?})")
}
