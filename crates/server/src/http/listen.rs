//! Connections: accepted, secured, served, and closed.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::server::ServerConfig;
use tally_api::status_error::StatusError;
use tally_metrics::MetricRegistry;
use tally_registry::Registry;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::Pki;
use crate::audit::AuditLog;
use crate::auth::aggregation::keep_aggregated;
use crate::auth::authorizer::Authorizer;
use crate::auth::{Authenticator, AuthenticatorError, Peer};
use crate::encode::list::Renderers;
use crate::encode::{self, HttpResponse};
use crate::http::connections::{ConnectionPlace, ConnectionTable};
use crate::http::flow::{FlowControl, FlowLimits};
use crate::http::handler::{ApiHandler, ClientConnection, Upgraded, owner};
use crate::http::idle::{CountedBody, Requests};
use crate::http::metrics::{ServerMetrics, register_store};
use crate::http::negotiate::ResponseFormat;
use crate::objects::logs::Logs;
use crate::objects::usage::UsageSource;
use crate::sessions::{PodSessions, SessionPlaces};

/// Connections at once. By default a process may open 1,024 files, and the store needs some of them. If all are taken, a
/// new client gets the place of another (`connections.rs`).
pub const MOST_CONNECTIONS: u32 = 900;
/// How long a connection may be idle. Clients drop idle connections after 90 seconds; if the server closed first, a
/// request that is in transit would get a reset.
const IDLE_FOR: Duration = Duration::from_secs(120);
/// Bytes of a head that is not complete, and of a response that waits to be sent, for each connection of HTTP/1.1. A head
/// that is longer gets 431.
const LONGEST_HEAD: usize = 128 * 1024;
/// A client that reads no byte for this long is considered gone: it occupies a connection and the data written to it.
const STALLED_FOR: Duration = Duration::from_secs(300);
/// Requests, including watches, on one connection. A client that needs more opens another connection.
const MOST_STREAMS: u32 = 250;
/// Bytes that may wait to be sent on one stream: 16 MB if all streams of a connection are stalled.
const STREAM_BUFFER: usize = 64 * 1024;
/// Peers that disappear without closing the connection are detected after these two.
const PING_EVERY: Duration = Duration::from_secs(30);
const PONG_WITHIN: Duration = Duration::from_secs(20);
/// How long the shutdown of an idle connection may take.
const GOODBYE_WITHIN: Duration = Duration::from_secs(10);
/// The shutdown grace: how long in-flight requests have to finish when the server stops.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// If the process has no file descriptors left, retrying at once does not help.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// What a user of the server can choose.
pub struct ServerOptions {
    /// Connections at once.
    pub connections: u32,
    pub deadlines: Deadlines,
    pub flow: FlowLimits,
    pub audit: Option<Arc<AuditLog>>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            connections: MOST_CONNECTIONS,
            deadlines: Deadlines::default(),
            flow: FlowLimits::default(),
            audit: None,
        }
    }
}

/// How long a client may take (LIMIT-3).
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// For the TLS handshake.
    pub handshake: Duration,
    /// For the head of a request, from its first byte on, with HTTP/1.1.
    pub head: Duration,
    /// For the body of a request. The request has no seat meanwhile.
    pub body: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// The same while the client has not authenticated.
    pub unknown_idle: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            // It takes milliseconds.
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(30),
            body: Duration::from_secs(60),
            idle: IDLE_FOR,
            // It has connected to send a request.
            unknown_idle: Duration::from_secs(30),
        }
    }
}

/// The API, ready to be served.
pub struct Server {
    handler: Arc<ApiHandler>,
    tls: TlsAcceptor,
    connections: Arc<ConnectionTable>,
    deadlines: Deadlines,
    stop: watch::Sender<bool>,
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Authenticator(#[from] AuthenticatorError),
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
}

impl Server {
    /// A server with the default options. `address`: the address of the server for clients, as `host:port`.
    pub fn new(registry: Arc<Registry>, pki: &Pki, address: String) -> Result<Self, ServerError> {
        Self::with_options(registry, pki, address, ServerOptions::default())
    }

    pub fn with_options(
        registry: Arc<Registry>,
        pki: &Pki,
        address: String,
        options: ServerOptions,
    ) -> Result<Self, ServerError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let authenticator = Authenticator::new(pki, &provider)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(authenticator.asker())
            .with_single_cert(vec![pki.server_certificate.clone()], pki.server_key.clone_key())?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let (stop, stopping) = watch::channel(false);
        let metric_registry = MetricRegistry::default();
        let metrics = ServerMetrics::new(&metric_registry);
        register_store(&metric_registry, &registry);
        let connections = ConnectionTable::new(options.connections, &metric_registry);
        let flow = FlowControl::new(options.flow, &metric_registry);
        if let Some(audit) = &options.audit {
            audit.register(&metric_registry);
        }
        registry.add_tokens(authenticator.tokens.clone());
        let handler = Arc::new(ApiHandler {
            authorizer: Authorizer::new(registry.clone()),
            registry,
            authenticator: Some(authenticator),
            metrics,
            metric_registry,
            logs: OnceLock::new(),
            sessions: OnceLock::new(),
            usage: OnceLock::new(),
            controllers: OnceLock::new(),
            session_places: SessionPlaces::default(),
            address,
            flow,
            renderers: Renderers::new(),
            audit: options.audit,
            body_within: options.deadlines.body,
            stopping,
        });
        Ok(Self { handler, tls: TlsAcceptor::from(Arc::new(config)), connections, deadlines: options.deadlines, stop })
    }

    /// What `/metrics` shows. Other parts of the process register their metrics here, too.
    pub fn metrics(&self) -> &MetricRegistry {
        &self.handler.metric_registry
    }

    /// Sets the source of the logs of Pods. Only the first call has an effect.
    pub fn add_logs(&self, logs: impl Logs + 'static) {
        let _ = self.handler.logs.set(Box::new(logs));
    }

    /// Sets the provider of sessions with Pods. Only the first call has an effect.
    pub fn add_sessions(&self, sessions: Arc<dyn PodSessions>) {
        let _ = self.handler.sessions.set(sessions);
    }

    /// Sets the provider of what Pods use. Only the first call has an effect.
    pub fn add_usage(&self, usage: Arc<dyn UsageSource>) {
        let _ = self.handler.usage.set(usage);
    }

    /// Sets which controllers run in this process: `/readyz?verbose` names them. Only the first call has an effect.
    pub fn add_controllers(&self, names: Vec<&'static str>) {
        let _ = self.handler.controllers.set(names);
    }

    /// Serves until `stop` is ready. Then no more connections are accepted, watches end, and in-flight requests have
    /// ten seconds to finish.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let builder = Arc::new(protocols());
        tokio::spawn({
            let handler = self.handler.clone();
            async move { keep_aggregated(&handler.registry, &handler.authorizer, handler.stopping.clone()).await }
        });
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = accept(&listener, &self.connections) => accepted,
            };
            match accepted {
                Ok((stream, address, place)) => {
                    let connection = Connection {
                        handler: self.handler.clone(),
                        tls: self.tls.clone(),
                        builder: builder.clone(),
                        table: self.connections.clone(),
                        deadlines: self.deadlines,
                        address,
                    };
                    tokio::spawn(async move {
                        tokio::select! {
                            () = place.needed() => {}
                            () = connection.serve(stream, &place) => {}
                        }
                    });
                }
                Err(_) => sleep(ACCEPT_AGAIN_AFTER).await,
            }
        }
        drop(listener);
        // An error means that no receiver is left, so there is no connection to stop.
        let _ = self.stop.send(true);
        let _ = timeout(STOP_WITHIN, self.connections.all_ended()).await;
    }
}

async fn accept(
    listener: &TcpListener,
    connections: &Arc<ConnectionTable>,
) -> io::Result<(TcpStream, IpAddr, ConnectionPlace)> {
    let (stream, address) = listener.accept().await?;
    let place = connections.place(Some(address.ip())).await;
    Ok((stream, address.ip(), place.ok_or_else(|| io::Error::other("no more connections are taken"))?))
}

pub(super) fn protocols() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_FOR).max_buf_size(LONGEST_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .max_send_buf_size(STREAM_BUFFER)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_WITHIN);
    builder
}

struct Connection {
    handler: Arc<ApiHandler>,
    tls: TlsAcceptor,
    builder: Arc<auto::Builder<TokioExecutor>>,
    table: Arc<ConnectionTable>,
    deadlines: Deadlines,
    address: IpAddr,
}

impl Connection {
    async fn serve(self, stream: TcpStream, place: &ConnectionPlace) {
        // Responses are written as a whole; waiting for more data to send with them only adds latency.
        let _ = stream.set_nodelay(true);
        // A client whose handshake fails sees the reason on its side; the server does not report it.
        let mut stopping = self.handler.stopping.clone();
        let stream = tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return,
            secured = timeout(self.deadlines.handshake, self.tls.accept(stream)) => secured,
        };
        let stream = match stream {
            Ok(Ok(stream)) => stream,
            Ok(Err(_)) => return,
            Err(_) => return self.table.count_closed("handshake"),
        };
        let now = self.handler.registry.now().seconds();
        let session = stream.get_ref().1;
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        let authenticator = self.handler.authenticator.as_ref();
        let peer = authenticator.map(|authenticator| authenticator.peer(session.peer_certificates(), now));
        let (peer, handle) = (peer.unwrap_or(Peer::Unknown), place.handle.clone());
        if let Peer::Known { user, .. } = &peer {
            handle.identify(owner(user));
        }
        let mut client = ClientConnection::new(peer, Some(self.address), Some(handle));
        client.requests = Some(place.requests.clone());
        let client = Arc::new(client);
        let upgraded = client.clone();
        let _open = OpenGauge::new(&self.handler);
        let requests = place.requests.clone();
        let idle = requests.idle_for(self.deadlines.idle);
        let late = requests.head_takes(self.deadlines.head);
        let heard = (!is_http2).then(|| requests.clone());
        let handler = self.handler.clone();
        let service = service_fn(move |request| {
            let (handler, client, under_way) = (handler.clone(), client.clone(), requests.begin());
            async move {
                let answer = match has_host(&request) {
                    true => answer(handler, client, request).await,
                    false => no_host(),
                };
                Ok::<_, Infallible>(CountedBody::new(answer, under_way))
            }
        });
        let stream = TokioIo::new(StallGuard::new(stream, heard));
        let mut connection = std::pin::pin!(self.builder.serve_connection_with_upgrades(stream, service));
        let (reason, goodbye_within) = tokio::select! {
            // The result is ignored: why the connection ended concerns only the client.
            _ = connection.as_mut() => ("", Duration::ZERO),
            _ = stopping.wait_for(|stopping| *stopping) => ("stopping", STOP_WITHIN),
            () = idle => ("idle", GOODBYE_WITHIN),
            () = unknown_and_idle(place, self.deadlines.unknown_idle) => ("no_request", GOODBYE_WITHIN),
            () = late => return self.table.count_closed("head"),
        };
        if reason.is_empty() {
            let Upgraded { session: Some(session), held } = upgraded.take_upgraded() else { return };
            tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => {}
                () = session => {}
            }
            return drop(held);
        }
        self.table.count_closed(reason);
        connection.as_mut().graceful_shutdown();
        let _ = timeout(goodbye_within, connection).await;
    }
}

/// Resolves when a client that has not authenticated has been idle for too long.
async fn unknown_and_idle(place: &ConnectionPlace, patience: Duration) {
    loop {
        place.requests.idle_for(patience).await;
        if !place.handle.is_identified() {
            return;
        }
        sleep(patience).await;
    }
}

/// HTTP/1.1 requires the header Host, once.
fn has_host(request: &Request<Incoming>) -> bool {
    request.version() != Version::HTTP_11 || request.headers().get_all(HOST).iter().count() == 1
}

fn no_host() -> HttpResponse {
    let mut answer = encode::text(400, "400 Bad Request: missing required Host header");
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// Counts a connection as open.
struct OpenGauge<'a>(&'a ApiHandler);

impl<'a> OpenGauge<'a> {
    fn new(handler: &'a ApiHandler) -> Self {
        handler.metrics.connections.add([], 1);
        Self(handler)
    }
}

impl Drop for OpenGauge<'_> {
    fn drop(&mut self) {
        self.0.metrics.connections.add([], -1);
    }
}

pub(super) async fn answer(
    handler: Arc<ApiHandler>,
    client: Arc<ClientConnection>,
    request: Request<Incoming>,
) -> HttpResponse {
    // A panic in one request must not abort the other requests of the connection.
    let answered = if matches!(*request.method(), Method::GET | Method::HEAD) {
        AssertUnwindSafe(handler.answer(&client, request)).catch_unwind().await.ok()
    } else {
        // If the client disconnects, its request is dropped. A write of several steps must not stop between two of
        // them, so it runs in a task of its own.
        tokio::spawn(async move { handler.answer(&client, request).await }).await.ok()
    };
    answered.unwrap_or_else(|| {
        let failure = StatusError::internal("the request could not be finished; this is a bug in the server");
        encode::failure(&failure, ResponseFormat::PLAIN)
    })
}

/// A connection that fails if its peer reads nothing for `STALLED_FOR`.
struct StallGuard<S> {
    stream: S,
    /// Told of what arrives, with HTTP/1.1.
    requests: Option<Requests>,
    /// Runs while a write is pending.
    patience: Pin<Box<Sleep>>,
    waiting: bool,
}

impl<S> StallGuard<S> {
    fn new(stream: S, requests: Option<Requests>) -> Self {
        Self { stream, requests, patience: Box::pin(sleep(STALLED_FOR)), waiting: false }
    }

    /// The result of a write, or an error if the write has been pending for too long.
    fn judge<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = false;
            return written;
        }
        if !std::mem::replace(&mut self.waiting, true) {
            self.patience.as_mut().reset(Instant::now() + STALLED_FOR);
        }
        ready!(self.patience.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before
            && let Some(requests) = &self.requests
        {
            requests.received();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.judge(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.judge(cx, closed)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
