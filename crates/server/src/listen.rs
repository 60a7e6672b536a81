//! Connections: accepted, secured, served, and let go.

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
use tally_api::failure::Failure;
use tally_registry::Registry;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::Pki;
use crate::auth::{Gate, GateError, Peer};
use crate::door::{Door, MOST_AT_WORK};
use crate::forms::{self, Answer};
use crate::idle::{Counted, Requests};
use crate::logs::Logs;
use crate::metrics::Metrics;
use crate::negotiate::Wish;

/// Connections at once. Systems give a process 1,024 files by default, and the store needs some of them; whoever comes
/// when all are taken waits in the system's queue.
const MOST_CONNECTIONS: u32 = 900;
/// A handshake takes milliseconds. Somebody who connects and says nothing is not kept waiting for.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// How long a connection may be idle, or take to say what it wants. Clients drop idle connections after 90 seconds; to
/// close first would mean answering a request that is on its way with a reset.
const IDLE_FOR: Duration = Duration::from_secs(120);
/// A client that takes no byte for this long is gone, or as good as: it holds a connection and what was written to it.
const STALLED_FOR: Duration = Duration::from_secs(300);
/// Requests, watches among them, on one connection. A client with more opens another.
const MOST_STREAMS: u32 = 250;
/// What may wait to be sent on one stream: with all streams of a connection stuck, 16 MB.
const STREAM_BUFFER: usize = 64 * 1024;
/// Peers that vanished without a word are noticed after these two.
const PING_EVERY: Duration = Duration::from_secs(30);
const PONG_WITHIN: Duration = Duration::from_secs(20);
/// How long the other side may take to hear that its idle connection is closed.
const GOODBYE_WITHIN: Duration = Duration::from_secs(10);
/// How long requests under way have to finish when the server stops.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// When the system has no files left, it does not help to ask again at once.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The API, ready to be served.
pub struct Server {
    door: Arc<Door>,
    tls: TlsAcceptor,
    stop: watch::Sender<bool>,
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Gate(#[from] GateError),
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
}

impl Server {
    /// `address`: where clients find the server, as `host:port`.
    pub fn new(registry: Arc<Registry>, pki: &Pki, address: String) -> Result<Self, ServerError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let gate = Gate::new(pki, &provider)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(gate.asker())
            .with_single_cert(vec![pki.server_certificate.clone()], pki.server_key.clone_key())?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let (stop, stopping) = watch::channel(false);
        let (metrics, turns) = (Metrics::default(), Semaphore::new(MOST_AT_WORK));
        let (more_metrics, logs) = (OnceLock::new(), OnceLock::new());
        let door = Arc::new(Door { registry, gate, metrics, more_metrics, logs, address, turns, stopping });
        Ok(Self { door, tls: TlsAcceptor::from(Arc::new(config)), stop })
    }

    /// What else `/metrics` should tell, in the form Prometheus reads. Only the first to say so is heard.
    pub fn add_metrics(&self, more: impl Fn() -> String + Send + Sync + 'static) {
        let _ = self.door.more_metrics.set(Box::new(more));
    }

    /// Where the logs of Pods are. Only the first to say so is heard.
    pub fn add_logs(&self, logs: impl Logs + 'static) {
        let _ = self.door.logs.set(Box::new(logs));
    }

    /// Serves until `stop` is ready. Then no connection is accepted any more, watches end, and requests under way have
    /// ten seconds.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS as usize));
        let builder = Arc::new(protocols());
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
                        door: self.door.clone(),
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
        // Nobody listening means that all have gone already.
        let _ = self.stop.send(true);
        // All places free: all connections have ended.
        let _ = timeout(STOP_WITHIN, places.acquire_many(MOST_CONNECTIONS)).await;
    }
}

async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

fn protocols() -> auto::Builder<TokioExecutor> {
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
    door: Arc<Door>,
    tls: TlsAcceptor,
    builder: Arc<auto::Builder<TokioExecutor>>,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        // Answers are written whole; waiting for more to send with them only delays.
        let _ = stream.set_nodelay(true);
        // A client that fails here sees why on its side; there is nobody else to tell.
        let mut stopping = self.door.stopping.clone();
        let stream = tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return,
            secured = timeout(HANDSHAKE_WITHIN, self.tls.accept(stream)) => secured,
        };
        let Ok(Ok(stream)) = stream else { return };
        let now = self.door.registry.world.now().seconds();
        let peer = Arc::new(self.door.gate.peer(stream.get_ref().1.peer_certificates(), now));
        self.door.metrics.connections.up();
        let requests = Requests::new();
        let idle = requests.idle_for(IDLE_FOR);
        let door = self.door.clone();
        let service = service_fn(move |request| {
            let (door, peer, under_way) = (door.clone(), peer.clone(), requests.begin());
            async move {
                let answer = answer(door, peer, request).await;
                Ok::<_, Infallible>(answer.map(|body| Counted::new(body, under_way)))
            }
        });
        let stream = TokioIo::new(Unstalled::new(stream));
        let mut connection = std::pin::pin!(self.builder.serve_connection(stream, service));
        let goodbye_within = tokio::select! {
            // What ended it is the client's affair.
            _ = connection.as_mut() => None,
            _ = stopping.wait_for(|stopping| *stopping) => Some(STOP_WITHIN),
            () = idle => Some(GOODBYE_WITHIN),
        };
        if let Some(within) = goodbye_within {
            connection.as_mut().graceful_shutdown();
            let _ = timeout(within, connection).await;
        }
        self.door.metrics.connections.down();
    }
}

async fn answer(door: Arc<Door>, peer: Arc<Peer>, request: Request<Incoming>) -> Answer {
    // A mistake of ours must not take the other requests of the connection along.
    let answered = if matches!(*request.method(), Method::GET | Method::HEAD) {
        AssertUnwindSafe(door.answer(&peer, request)).catch_unwind().await.ok()
    } else {
        // A client that goes away takes its request with it, and a write of several steps must not stop between two of
        // them: it goes on by itself.
        tokio::spawn(async move { door.answer(&peer, request).await }).await.ok()
    };
    answered.unwrap_or_else(|| {
        let failure = Failure::internal("the request could not be finished; this is a bug in the server");
        forms::failure(&failure, Wish::PLAIN)
    })
}

/// A connection that gives up on a peer that takes nothing.
struct Unstalled<S> {
    stream: S,
    /// Runs while a write is waiting.
    patience: Pin<Box<Sleep>>,
    waiting: bool,
}

impl<S> Unstalled<S> {
    fn new(stream: S) -> Self {
        Self { stream, patience: Box::pin(sleep(STALLED_FOR)), waiting: false }
    }

    /// What a write says, unless it has been waiting for too long.
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

impl<S: AsyncRead + Unpin> AsyncRead for Unstalled<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unstalled<S> {
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
