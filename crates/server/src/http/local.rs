//! The API on a Unix socket, for other commands of the same user on this machine: plain HTTP, and reads only.
//!
//! A client is the user whose process serves, or root: the kernel says who it is. So no keys or tokens are needed. Such a
//! client can read the files of the data directory anyway; therefore a backup (`GET /backup`) has them all, the keys too.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::{Arc, OnceLock};

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tally_api::status_error::StatusError;
use tally_metrics::MetricRegistry;
use tally_registry::Registry;
use tally_store::backup::BackupFile;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};

use crate::auth::Peer;
use crate::auth::authorizer::Authorizer;
use crate::encode::list::Renderers;
use crate::encode::{self, HttpResponse};
use crate::http::body::Body;
use crate::http::flow::{FlowControl, FlowLimits};
use crate::http::handler::{ApiHandler, ClientConnection};
use crate::http::listen::{Deadlines, answer, protocols};
use crate::http::metrics::ServerMetrics;
use crate::http::negotiate::ResponseFormat;
use crate::objects::logs::Logs;
use crate::sessions::SessionPlaces;

/// Connections at once.
const MOST_CONNECTIONS: usize = 64;

/// The API for processes of the same user.
pub struct LocalServer {
    handler: Arc<ApiHandler>,
    backup_files: Option<BackupFiles>,
    stop: watch::Sender<bool>,
}

/// The files that a backup contains beside the objects, with or without keys.
pub type BackupFiles = Arc<dyn Fn(bool) -> io::Result<Vec<BackupFile>> + Send + Sync>;

/// The path of a backup, and the query for one without keys.
const BACKUP: &str = "/backup";
const WITHOUT_KEYS: &str = "keys=false";

impl LocalServer {
    pub fn new(registry: Arc<Registry>) -> Self {
        let (stop, stopping) = watch::channel(false);
        let metric_registry = MetricRegistry::default();
        let metrics = ServerMetrics::new(&metric_registry);
        let flow = FlowControl::new(FlowLimits::default(), &metric_registry);
        let handler = Arc::new(ApiHandler {
            authorizer: Authorizer::new(registry.clone()),
            registry,
            authenticator: None,
            metrics,
            metric_registry,
            logs: OnceLock::new(),
            sessions: OnceLock::new(),
            usage: OnceLock::new(),
            controllers: OnceLock::new(),
            session_places: SessionPlaces::default(),
            address: "localhost".to_owned(),
            flow,
            renderers: Renderers::new(),
            // Reads of the user whose process serves.
            audit: None,
            body_within: Deadlines::default().body,
            stopping,
        });
        Self { handler, backup_files: None, stop }
    }

    /// Sets which files backups contain.
    pub fn with_backup_files(self, files: BackupFiles) -> Self {
        Self { backup_files: Some(files), ..self }
    }

    /// Sets the source of the logs of Pods. Only the first call has an effect.
    pub fn add_logs(&self, logs: impl Logs + 'static) {
        let _ = self.handler.logs.set(Box::new(logs));
    }

    /// Sets which controllers run in this process: `/readyz?verbose` names them. Only the first call has an effect.
    pub fn add_controllers(&self, names: Vec<&'static str>) {
        let _ = self.handler.controllers.set(names);
    }

    /// Serves until `stop` is ready. Then watches end.
    pub async fn serve(self, listener: UnixListener, stop: impl Future<Output = ()>) {
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let mut stop = std::pin::pin!(stop);
        loop {
            let Ok(place) = places.clone().acquire_owned().await else { break };
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else { continue };
            if !is_trusted(&stream) {
                continue;
            }
            let (handler, files) = (self.handler.clone(), self.backup_files.clone());
            tokio::spawn(async move {
                serve(handler, files, stream).await;
                drop(place);
            });
        }
        let _ = self.stop.send(true);
    }
}

fn is_trusted(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

/// A backup of everything. It is encoded while it is read.
fn backup(handler: &ApiHandler, files: Option<&BackupFiles>, query: Option<&str>) -> HttpResponse {
    let files = match files.map_or_else(|| Ok(Vec::new()), |files| files(query != Some(WITHOUT_KEYS))) {
        Ok(files) => files,
        Err(error) => {
            return encode::failure(&StatusError::internal(error.to_string()), ResponseFormat::PLAIN);
        }
    };
    let pieces = futures_util::stream::iter(handler.registry.backup(files));
    encode::answer(200, "application/octet-stream", Body::Events(Box::pin(pieces)))
}

async fn serve(handler: Arc<ApiHandler>, files: Option<BackupFiles>, stream: UnixStream) {
    let mut stopping = handler.stopping.clone();
    let client = Arc::new(ClientConnection::new(Peer::owner(), None, None));
    let service = service_fn(move |request: Request<Incoming>| {
        let (handler, client, files) = (handler.clone(), client.clone(), files.clone());
        async move {
            Ok::<HttpResponse, Infallible>(match *request.method() {
                Method::GET if request.uri().path() == BACKUP => {
                    backup(&handler, files.as_ref(), request.uri().query())
                }
                Method::GET | Method::HEAD => answer(handler, client, request).await,
                _ => {
                    let text = "this socket is for reads only; tally up serves writes at the address in its kubeconfig";
                    encode::failure(&StatusError::new(405, "MethodNotAllowed", text), ResponseFormat::PLAIN)
                }
            })
        }
    });
    let builder = protocols();
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // The result is ignored: why the connection ended concerns only the client.
        _ = connection.as_mut() => {}
        _ = stopping.wait_for(|stopping| *stopping) => {}
    }
}
