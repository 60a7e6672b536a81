//! A proxy between controllers and server: plain HTTP on the side of the controllers, TLS with the administrator's
//! certificate on the side of the server. It understands watches and streaming lists, and what a correct server may do
//! with them; everything else is bytes.
//!
//! Each controller has a port of its own, so that the in-flight requests of each are known.

mod dice;
mod past;
mod streams;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support::client::{Api, Call, Connection};
use dice::{Dice, Fault};
use past::Past;

pub use dice::Weather;

/// For controllers behind the proxy: it understands watches in JSON.
pub const IN_JSON: &str = "--kube-api-content-type=application/json";

type Body = UnsyncBoxBody<Bytes, std::io::Error>;
/// The connection is closed without a response.
struct Hangup;

pub struct Proxy {
    shared: Arc<Shared>,
    ports: Vec<Port>,
}

struct Port {
    address: SocketAddr,
    state: Arc<PortState>,
}

/// The state of one controller's port.
struct PortState {
    /// Number of requests seen that change Pods or Jobs.
    writes: watch::Sender<u64>,
    /// Number of requests that the server may be carrying out.
    under_way: watch::Sender<usize>,
    /// The server appears not to support streaming lists, until the controller is restarted.
    by_pages: AtomicBool,
}

struct Shared {
    api: Api,
    dice: Mutex<Dice>,
    past: Mutex<Past>,
    idle: Mutex<Vec<Connection>>,
    calm: watch::Sender<bool>,
    /// A method and a part of the path: the next such request is never answered.
    swallows: watch::Sender<Option<(&'static str, &'static str)>>,
}

/// A response of the server.
struct Said {
    code: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Proxy {
    pub async fn start(api: &Api, ports: usize, seed: u64, weather: Weather) -> Proxy {
        let shared = Arc::new(Shared {
            api: api.clone(),
            dice: Mutex::new(Dice::new(seed, weather)),
            past: Mutex::default(),
            idle: Mutex::default(),
            calm: watch::Sender::new(false),
            swallows: watch::Sender::new(None),
        });
        let mut listening = Vec::new();
        for _ in 0..ports {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let state = Arc::new(PortState {
                writes: watch::Sender::new(0),
                under_way: watch::Sender::new(0),
                by_pages: AtomicBool::new(false),
            });
            tokio::spawn(listen(shared.clone(), state.clone(), listener));
            listening.push(Port { address, state });
        }
        Proxy { shared, ports: listening }
    }

    /// The kubeconfig for the controller at this port.
    pub fn kubeconfig(&self, port: usize) -> String {
        let server = format!("http://{}", self.ports[port].address);
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": server}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "nobody"}}],
        })
        .to_string()
    }

    /// A new controller process starts at this port.
    pub fn begin(&self, port: usize) {
        let by_pages = !*self.shared.calm.borrow() && self.shared.dice().one_in(4);
        self.ports[port].state.by_pages.store(by_pages, Ordering::SeqCst);
    }

    /// Waits until one port has seen this many more writes, and returns this port.
    pub async fn after_writes(&self, more: u64) -> usize {
        let seen = self.ports.iter().enumerate().map(|(at, port)| {
            let mut writes = port.state.writes.subscribe();
            Box::pin(async move {
                let until = *writes.borrow() + more;
                let _ = writes.wait_for(|seen| *seen >= until).await;
                at
            })
        });
        futures_util::future::select_all(seen).await.0
    }

    /// Resolves once the server has answered all requests of this port.
    pub async fn quiet(&self, port: usize) {
        let _ = self.ports[port].state.under_way.subscribe().wait_for(|under_way| *under_way == 0).await;
    }

    /// Switches all faults off, and ends all delays.
    pub fn calm(&self) {
        self.shared.calm.send_replace(true);
    }

    /// The next such request is never answered, also if faults are switched off. Resolves when it has arrived.
    pub async fn swallow(&self, method: &'static str, path: &'static str) {
        self.shared.swallows.send_replace(Some((method, path)));
        let _ = self.shared.swallows.subscribe().wait_for(Option::is_none).await;
    }

    /// How often each fault was applied.
    pub fn thrown(&self) -> BTreeMap<String, usize> {
        self.shared.dice().thrown()
    }
}

async fn listen(shared: Arc<Shared>, port: Arc<PortState>, listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(shared.clone(), port.clone(), stream));
    }
}

async fn serve(shared: Arc<Shared>, port: Arc<PortState>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(|request| {
        let (shared, port) = (shared.clone(), port.clone());
        async move { shared.answer(&port, request).await.map_err(|Hangup| std::io::Error::other("hung up")) }
    });
    // How the connection ends does not matter: this proxy breaks connections on purpose.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

impl Shared {
    fn dice(&self) -> MutexGuard<'_, Dice> {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when faults are switched off.
    async fn is_calm(&self) {
        let _ = self.calm.subscribe().wait_for(|calm| *calm).await;
    }

    async fn wait(&self, wait: Duration) {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = self.is_calm() => {}
        }
    }

    async fn answer(
        self: &Arc<Self>,
        port: &Arc<PortState>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Hangup> {
        let mut call = read(request).await?;
        if call.path.contains("watch=true") {
            return self.watch(port, call).await;
        }
        if port.by_pages.load(Ordering::SeqCst) {
            // A small limit, so that lists span several pages although there are few objects.
            call.path = call.path.replace("limit=500", "limit=7");
            if call.path.contains("continue=") && !*self.calm.borrow() && self.dice().one_in(40) {
                self.dice().note("page expired");
                return Ok(refusal(410));
            }
        }
        let wanted = |wanted: &mut Option<_>| {
            wanted.take_if(|(method, path)| call.method == *method && call.path.contains(*path)).is_some()
        };
        if self.swallows.send_if_modified(wanted) {
            std::future::pending::<()>().await;
        }
        let changes = call.method != "GET";
        let about_work = ["/pods", "/jobs", "/leases", "/events"].iter().any(|part| call.path.contains(part));
        if changes && (call.path.contains("/pods") || call.path.contains("/jobs")) {
            port.writes.send_modify(|writes| *writes += 1);
        }
        // Requests of the startup checks mostly pass: a controller that cannot start does not test much.
        let troubled = !*self.calm.borrow() && (about_work || self.dice().one_in(20));
        let fault = if troubled { self.dice().request(changes) } else { Fault::None };
        self.carry_out(port, call, fault).await
    }

    async fn carry_out(
        self: &Arc<Self>,
        port: &Arc<PortState>,
        call: Call,
        fault: Fault,
    ) -> Result<Response<Body>, Hangup> {
        match fault {
            Fault::None => {}
            Fault::Delay(before, after) => {
                // The request may still be carried out.
                let _under_way = UnderWay::begin(port.clone());
                self.wait(before).await;
                let said = self.forward(port, call).await?;
                self.wait(after).await;
                return Ok(whole(said));
            }
            Fault::Silence { done } => {
                if done {
                    self.forward(port, call).await?;
                }
                self.is_calm().await;
                return Err(Hangup);
            }
            Fault::Reset { done } => {
                if done {
                    self.forward(port, call).await?;
                }
                return Err(Hangup);
            }
            Fault::Later(wait) => {
                let (shared, port) = (self.clone(), port.clone());
                tokio::spawn(async move {
                    shared.wait(wait).await;
                    let _ = shared.forward(&port, call).await;
                });
                return Err(Hangup);
            }
            Fault::Half => {
                let said = self.forward(port, call).await?;
                let half = said.body.slice(..said.body.len() / 2);
                return Ok(respond(said.code, &said.headers, broken_after(half)));
            }
            Fault::Refuse(code) => return Ok(refusal_of(code, object_of(&call))),
            Fault::Page(code) => return Ok(page(code)),
            Fault::Lie { code, page: own } => {
                self.forward(port, call).await?;
                return Ok(if own { page(code) } else { refusal(code) });
            }
        }
        self.forward(port, call).await.map(whole)
    }

    /// Sends the request to the server. Continues even if the client no longer waits for the response.
    async fn forward(self: &Arc<Self>, port: &Arc<PortState>, call: Call) -> Result<Said, Hangup> {
        let shared = self.clone();
        let under_way = UnderWay::begin(port.clone());
        let asked = tokio::spawn(async move {
            let idle = shared.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut connection = idle.unwrap_or_else(|| shared.api.connection());
            let response = connection.open(&call).await.map_err(|_| Hangup)?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.map_err(|_| Hangup)?.to_bytes();
            drop(under_way);
            shared.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            Ok(Said { code: head.status.as_u16(), headers: head.headers, body })
        });
        asked.await.unwrap_or(Err(Hangup))
    }
}

struct UnderWay(Arc<PortState>);

impl UnderWay {
    fn begin(port: Arc<PortState>) -> UnderWay {
        port.under_way.send_modify(|under_way| *under_way += 1);
        UnderWay(port)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|under_way| *under_way -= 1);
    }
}

async fn read(request: Request<Incoming>) -> Result<Call, Hangup> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Hangup)?.to_bytes();
    let kept = ["accept", "content-type", "user-agent"];
    let header = |name: &&str| Some(((*name).to_owned(), head.headers.get(*name)?.to_str().ok()?.to_owned()));
    let path = head.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    Ok(Call {
        method: head.method.to_string(),
        path,
        query: Vec::new(),
        headers: kept.iter().filter_map(header).collect(),
        body: (!body.is_empty()).then(|| String::from_utf8_lossy(&body).into_owned()),
    })
}

fn whole(said: Said) -> Response<Body> {
    respond(said.code, &said.headers, full(said.body))
}

fn full(body: Bytes) -> Body {
    Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// A body that sends this part and then breaks the connection.
fn broken_after(part: Bytes) -> Body {
    let frames = [Ok(Frame::data(part)), Err(std::io::Error::other("cut"))];
    StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
}

fn respond(code: u16, headers: &HeaderMap, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    for name in ["content-type", "date", "retry-after"] {
        if let Some(value) = headers.get(name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

/// The page of a load balancer without a route, or without a running server.
fn page(code: u16) -> Response<Body> {
    let text = format!("<html><body><h1>{code}</h1><p>says the proxy</p></body></html>");
    let mut response = respond(code, &HeaderMap::new(), full(text.into()));
    response.headers_mut().insert("content-type", "text/html".parse().unwrap());
    response
}

/// The details of a Status about the object of a request.
fn object_of(call: &Call) -> Value {
    let path = call.path.split('?').next().unwrap_or_default();
    let mut parts = path.trim_start_matches('/').split('/');
    let group = if parts.next() == Some("apis") { parts.next().unwrap_or_default() } else { "" };
    // Skips the version; a namespace may follow.
    let rest: Vec<&str> = parts.skip(1).collect();
    let rest = if rest.first() == Some(&"namespaces") && rest.len() > 2 { &rest[2..] } else { &rest[..] };
    let kind = rest.first().copied().unwrap_or_default();
    let body: Value = call.body.as_ref().and_then(|body| serde_json::from_str(body).ok()).unwrap_or_default();
    let name = rest.get(1).copied().or_else(|| body["metadata"]["name"].as_str()).unwrap_or_default();
    let mut details = json!({"kind": kind, "name": name});
    if !group.is_empty() {
        details["group"] = group.into();
    }
    details
}

/// A Status about no object in particular.
fn refusal(code: u16) -> Response<Body> {
    refusal_of(code, Value::Null)
}

fn refusal_of(code: u16, details: Value) -> Response<Body> {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    // As a server responds that does not support streaming lists.
    let message = if code == 422 { "sendInitialEvents: Forbidden: it is not here" } else { "says the proxy" };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code, "details": details,
    });
    let mut response = respond(code, &HeaderMap::new(), full(status.to_string().into()));
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    if code == 429 {
        response.headers_mut().insert("retry-after", "1".parse().unwrap());
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_a_server_names_them() {
        let job = "/apis/batch/v1/namespaces/default/jobs/j/status?x=y";
        assert_eq!(object_of(&Call::new("PATCH", job)), json!({"kind": "jobs", "group": "batch", "name": "j"}));
        let create = Call::new("POST", "/api/v1/namespaces/default/pods").body(&json!({"metadata": {"name": "p"}}));
        assert_eq!(object_of(&create), json!({"kind": "pods", "name": "p"}));
    }
}
