//! Health and metrics: /livez, /readyz and /metrics over plain HTTP.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tally_core::gates::FeatureGates;
use tally_metrics::MetricRegistry;
use tally_runtime::controller::{Call, Controller, Metric, Reply, Stream};
use tally_runtime::driver::api::WatchError;
use tally_runtime::driver::{Observer, QueueChange};
use tally_server::ConnectionTable;
use tokio::net::TcpListener;

use crate::metrics::ControllerMetrics;
use tally_remote::Remote;

/// Connections served at the same time. If all are taken, the client that has most of them loses its oldest one: a client
/// that connects and sends nothing cannot keep the probes of the kubelet out.
const CONNECTIONS: u32 = 64;
/// A client that connects and sends no request keeps its connection no longer than this.
const SAY_SOMETHING_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of a request, which has no body.
const LONGEST_HEAD: usize = 16 * 1024;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Observes the driver for health and metrics.
pub struct Health {
    metrics: ControllerMetrics,
    metric_registry: MetricRegistry,
    remote: Remote,
    lease: String,
    leads: AtomicBool,
    /// Controllers and resources whose initial list is not complete yet.
    incomplete: Mutex<BTreeSet<(&'static str, &'static str)>>,
    /// Streams whose trouble has been logged. It is logged again only after the stream has synced in between.
    told: Mutex<BTreeSet<(&'static str, &'static str)>>,
}

impl Health {
    pub fn new(remote: Remote, lease: &str, gates: FeatureGates) -> Self {
        let metric_registry = MetricRegistry::default();
        let metrics = ControllerMetrics::new(&metric_registry);
        metrics.leads(lease, false);
        metrics.gates(gates);
        Self {
            metrics,
            metric_registry,
            remote,
            lease: lease.to_owned(),
            leads: AtomicBool::new(false),
            incomplete: Mutex::default(),
            told: Mutex::default(),
        }
    }

    /// This process leads: its controllers start.
    pub fn leads(&self, controllers: &[Box<dyn Controller>]) {
        let streams = controllers.iter().flat_map(|controller| {
            controller.streams().into_iter().map(|stream| (controller.name(), stream.kind.plural))
        });
        self.incomplete.lock().unwrap_or_else(PoisonError::into_inner).extend(streams);
        self.leads.store(true, Ordering::Relaxed);
        self.metrics.leads(&self.lease, true);
    }

    pub fn follows(&self) {
        self.leads.store(false, Ordering::Relaxed);
        self.metrics.leads(&self.lease, false);
    }

    /// Why this process is not ready. A process that waits for the lease is ready: waiting is what a standby should do.
    fn unready(&self) -> Option<String> {
        if !self.remote.is_reachable() {
            return Some("the API server cannot be reached".to_owned());
        }
        let incomplete = self.incomplete.lock().unwrap_or_else(PoisonError::into_inner);
        let (controller, resource) = incomplete.first().filter(|_| self.leads.load(Ordering::Relaxed))?;
        Some(format!("{controller} has not synced {resource} yet"))
    }

    /// `accept`: the formats that the client accepts.
    fn answer(&self, method: &Method, path: &str, accept: &str) -> (u16, &'static str, String) {
        if *method != Method::GET && *method != Method::HEAD {
            return (405, PLAIN, "only GET and HEAD are allowed\n".to_owned());
        }
        match path {
            "/livez" | "/healthz" => (200, PLAIN, "ok\n".to_owned()),
            "/readyz" => match self.unready() {
                None => (200, PLAIN, "ok\n".to_owned()),
                Some(why) => (503, PLAIN, format!("not ready: {why}\n")),
            },
            "/metrics" => {
                self.metrics.reachable(self.remote.is_reachable());
                if accept.contains("application/openmetrics-text") {
                    (200, OPENMETRICS, self.metric_registry.openmetrics())
                } else {
                    (200, CLASSIC, self.metric_registry.classic())
                }
            }
            _ => (404, PLAIN, "not found; available paths: /livez, /readyz, /metrics\n".to_owned()),
        }
    }
}

impl Observer for Health {
    fn metric(&self, controller: &'static str, metric: &Metric, took: Duration) {
        self.metrics.metric(controller, metric, took);
        match metric {
            Metric::InvalidStatus => {
                tracing::error!("a Job status that violates the rules of the API was not sent: please report this bug");
            }
            Metric::StatusRefused { job, message } => {
                tracing::warn!(%job, "the API server refuses the status of the Job, which is tried again: {message}");
            }
            Metric::StatusRefusalEnded { job, refusals, accepted: true } => {
                tracing::info!(%job, refusals, "the API server accepts the status of the Job again");
            }
            Metric::StatusRefusalEnded { job, refusals, accepted: false } => {
                tracing::info!(%job, refusals, "the Job whose status the API server refused is gone");
            }
            Metric::GangJob { job } => {
                tracing::warn!(%job, "the Job is left alone: gang scheduling (spec.scheduling) is not supported");
            }
            Metric::ExternalJob { manager, job } => {
                tracing::info!(%job, managed_by = %manager, "the Job is left to the controller that its managedBy names");
            }
            _ => {}
        }
    }

    fn request(&self, call: &Call, reply: &Reply, took: Duration) {
        self.metrics.request(call, reply, took);
        // Other codes are part of normal operation: objects change or are deleted, and servers are busy.
        if let Reply::Refused(refusal) = reply
            && matches!(refusal.code, 400 | 401 | 403 | 405 | 415 | 422)
        {
            let (verb, what, namespace, name) = (call.verb, call.kind.plural, &call.namespace, &call.name);
            tracing::debug!(?verb, what, %namespace, %name, code = refusal.code, "refused: {}", refusal.message);
        }
    }

    fn load(&self, controller: &'static str, waiting: usize, in_flight: usize) {
        self.metrics.load(controller, waiting, in_flight);
    }

    fn queue(&self, controller: &'static str, change: QueueChange) {
        self.metrics.queue(controller, change);
    }

    fn rate_limit(&self, used: f64) {
        self.metrics.rate_limit(used);
    }

    fn synced(&self, controller: &'static str, stream: Stream) {
        let key = (controller, stream.kind.plural);
        self.metrics.synced(controller, stream);
        self.incomplete.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        tracing::info!(controller, "{} are synced", stream.kind.plural);
    }

    fn stream_broken(&self, controller: &'static str, stream: Stream, trouble: &WatchError) {
        self.metrics.stream_broken(controller, stream, trouble);
        let resource = stream.kind.plural;
        let why = match trouble {
            WatchError::TooOld => {
                tracing::info!(
                    controller,
                    "the server no longer has the revision of the watch: listing {resource} again"
                );
                return;
            }
            // That the API server is unreachable has been logged once for all streams.
            WatchError::Broken(_) if !self.remote.is_reachable() => return,
            WatchError::Broken(why) => why.clone(),
            WatchError::Refused(refusal) => format!("{} {}", refusal.code, refusal.message),
        };
        let first = self.told.lock().unwrap_or_else(PoisonError::into_inner).insert((controller, resource));
        if first && matches!(trouble, WatchError::Refused(_)) {
            tracing::warn!(controller, "cannot watch {resource}, will retry: {why}");
        } else {
            tracing::debug!(controller, "the watch of {resource} broke: {why}");
        }
    }

    fn event_dropped(&self, controller: &'static str) {
        self.metrics.event_dropped(controller);
    }
}

/// Binds now, so that a bad address is reported before anything else happens.
pub async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    use anyhow::Context;
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot serve metrics at {address}; choose another address with --metrics, or disable it with ''")
    })
}

/// Serves until this future is dropped.
pub async fn serve(listener: TcpListener, health: Arc<Health>) {
    let table = ConnectionTable::new(CONNECTIONS, &health.metric_registry);
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // For example, too many open files: other connections must close first.
                tracing::debug!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(place) = table.place(Some(address.ip())).await else { return };
        let health = health.clone();
        tokio::spawn(async move {
            let answer = service_fn(|request: Request<hyper::body::Incoming>| {
                let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
                let (code, content, text) = health.answer(request.method(), request.uri().path(), accept);
                let mut response = Response::new(Full::new(Bytes::from(text)));
                *response.status_mut() = hyper::StatusCode::from_u16(code).unwrap_or_default();
                response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(content));
                std::future::ready(Ok::<_, Infallible>(response))
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(SAY_SOMETHING_WITHIN)
                .max_buf_size(LONGEST_HEAD)
                .serve_connection(TokioIo::new(stream), answer);
            tokio::select! {
                () = place.needed() => {}
                // The client may close the connection at any time; that is not an error.
                _ = connection => {}
            }
        });
    }
}
