//! Connections: accepted, secured, served, and closed.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::server::ServerConfig;
use tally_api::status_error::StatusError;
use tally_metrics::MetricRegistry;
use tally_registry::Registry;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::Pki;
use crate::auth::aggregation::keep_aggregated;
use crate::auth::authorizer::Authorizer;
use crate::auth::{Authenticator, AuthenticatorError, Peer};
use crate::encode::{self, HttpResponse};
use crate::http::handler::{ApiHandler, MOST_AT_WORK};
use crate::http::idle::{CountedBody, Requests};
use crate::http::metrics::{ServerMetrics, register_store};
use crate::http::negotiate::ResponseFormat;
use crate::objects::logs::Logs;

/// Connections at once. By default a process may open 1,024 files, and the store needs some of them; further clients
/// wait in the listen backlog.
const MOST_CONNECTIONS: u32 = 900;
/// A handshake takes milliseconds. A client that connects and sends nothing is disconnected.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// How long a connection may be idle, or take to send the head of a request. Clients drop idle connections after 90
/// seconds; if the server closed first, a request that is in transit would get a reset.
const IDLE_FOR: Duration = Duration::from_secs(120);
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

/// The API, ready to be served.
pub struct Server {
    handler: Arc<ApiHandler>,
    tls: TlsAcceptor,
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
    /// `address`: the address of the server for clients, as `host:port`.
    pub fn new(registry: Arc<Registry>, pki: &Pki, address: String) -> Result<Self, ServerError> {
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
        let (turns, logs) = (Semaphore::new(MOST_AT_WORK), OnceLock::new());
        registry.add_tokens(authenticator.tokens.clone());
        let handler = Arc::new(ApiHandler {
            authorizer: Authorizer::new(registry.clone()),
            registry,
            authenticator: Some(authenticator),
            metrics,
            metric_registry,
            logs,
            address,
            turns,
            stopping,
        });
        Ok(Self { handler, tls: TlsAcceptor::from(Arc::new(config)), stop })
    }

    /// What `/metrics` shows. Other parts of the process register their metrics here, too.
    pub fn metrics(&self) -> &MetricRegistry {
        &self.handler.metric_registry
    }

    /// Sets the source of the logs of Pods. Only the first call has an effect.
    pub fn add_logs(&self, logs: impl Logs + 'static) {
        let _ = self.handler.logs.set(Box::new(logs));
    }

    /// Serves until `stop` is ready. Then no more connections are accepted, watches end, and in-flight requests have
    /// ten seconds to finish.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS as usize));
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
                accepted = accept(&listener, &places) => accepted,
            };
            match accepted {
                Ok((stream, place)) => {
                    let connection = Connection {
                        handler: self.handler.clone(),
                        tls: self.tls.clone(),
                        builder: builder.clone(),
                        _place: place,
                    };
                    tokio::spawn(connection.serve(stream));
                }
                Err(_) => sleep(ACCEPT_AGAIN_AFTER).await,
            }
        }
        drop(listener);
        // An error means that no receiver is left, so there is no connection to stop.
        let _ = self.stop.send(true);
        // If all permits are free, all connections have ended.
        let _ = timeout(STOP_WITHIN, places.acquire_many(MOST_CONNECTIONS)).await;
    }
}

async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

pub(super) fn protocols() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_FOR);
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
    _place: OwnedSemaphorePermit,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        // Responses are written as a whole; waiting for more data to send with them only adds latency.
        let _ = stream.set_nodelay(true);
        // A client whose handshake fails sees the reason on its side; the server does not report it.
        let mut stopping = self.handler.stopping.clone();
        let stream = tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return,
            secured = timeout(HANDSHAKE_WITHIN, self.tls.accept(stream)) => secured,
        };
        let Ok(Ok(stream)) = stream else { return };
        let now = self.handler.registry.now().seconds();
        let certificates = stream.get_ref().1.peer_certificates();
        let peer = self.handler.authenticator.as_ref().map(|authenticator| authenticator.peer(certificates, now));
        let peer = Arc::new(peer.unwrap_or(Peer::Unknown));
        self.handler.metrics.connections.add([], 1);
        let requests = Requests::new();
        let idle = requests.idle_for(IDLE_FOR);
        let handler = self.handler.clone();
        let service = service_fn(move |request| {
            let (handler, peer, under_way) = (handler.clone(), peer.clone(), requests.begin());
            async move {
                let answer = answer(handler, peer, request).await;
                Ok::<_, Infallible>(answer.map(|body| CountedBody::new(body, under_way)))
            }
        });
        let stream = TokioIo::new(StallGuard::new(stream));
        let mut connection = std::pin::pin!(self.builder.serve_connection(stream, service));
        let goodbye_within = tokio::select! {
            // The result is ignored: why the connection ended concerns only the client.
            _ = connection.as_mut() => None,
            _ = stopping.wait_for(|stopping| *stopping) => Some(STOP_WITHIN),
            () = idle => Some(GOODBYE_WITHIN),
        };
        if let Some(within) = goodbye_within {
            connection.as_mut().graceful_shutdown();
            let _ = timeout(within, connection).await;
        }
        self.handler.metrics.connections.add([], -1);
    }
}

pub(super) async fn answer(handler: Arc<ApiHandler>, peer: Arc<Peer>, request: Request<Incoming>) -> HttpResponse {
    // A panic in one request must not abort the other requests of the connection.
    let answered = if matches!(*request.method(), Method::GET | Method::HEAD) {
        AssertUnwindSafe(handler.answer(&peer, request)).catch_unwind().await.ok()
    } else {
        // If the client disconnects, its request is dropped. A write of several steps must not stop between two of
        // them, so it runs in a task of its own.
        tokio::spawn(async move { handler.answer(&peer, request).await }).await.ok()
    };
    answered.unwrap_or_else(|| {
        let failure = StatusError::internal("the request could not be finished; this is a bug in the server");
        encode::failure(&failure, ResponseFormat::PLAIN)
    })
}

/// A connection that fails if its peer reads nothing for `STALLED_FOR`.
struct StallGuard<S> {
    stream: S,
    /// Runs while a write is pending.
    patience: Pin<Box<Sleep>>,
    waiting: bool,
}

impl<S> StallGuard<S> {
    fn new(stream: S) -> Self {
        Self { stream, patience: Box::pin(sleep(STALLED_FOR)), waiting: false }
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
        Pin::new(&mut self.stream).poll_read(cx, buffer)
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
