//! One request: who sends it, what it addresses, whether it is allowed, and the response.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};
use tally_api::catalog::discovery;
use tally_api::options::Query;
use tally_api::status_error::StatusError;
use tally_metrics::MetricRegistry;
use tally_registry::Registry;
use tokio::sync::watch;

use crate::audit::{AuditEvent, AuditLog, ResponseSummary};
use crate::auth::access::{RequestedAccess, refusal};
use crate::auth::authorizer::{Authorizer, Verdict};
use crate::auth::{Authenticator, Peer, User, impersonation};
use crate::encode::list::Renderers;
use crate::encode::{self, AUDIT_ID, HttpResponse};
use crate::env;
use crate::http::body::Body;
use crate::http::connections::{ConnectionHandle, ConnectionOwner};
use crate::http::flow::{FlowControl, FlowShare, ShareKind};
use crate::http::idle::{HeldByResponse, RequestGuard, Requests};
use crate::http::metrics::{RequestLabels, ServerMetrics};
use crate::http::negotiate::{self, ResponseFormat};
use crate::http::route::{Route, Verb, is_session};
use crate::objects::extras;
use crate::objects::logs::Logs;
use crate::objects::usage::UsageSource;
use crate::objects::{self, RequestContext};
use crate::sessions::{self, BoxFuture, PodSessions, SessionPlaces};

/// The connection on which a request arrived.
pub struct ClientConnection {
    pub peer: Peer,
    /// None on the socket of a data directory.
    pub address: Option<IpAddr>,
    pub handle: Option<ConnectionHandle>,
    /// The requests of the connection. None: it cannot be upgraded.
    pub requests: Option<Requests>,
    pub upgraded: Mutex<Upgraded>,
}

/// What goes on when a connection has left HTTP.
#[derive(Default)]
pub struct Upgraded {
    pub session: Option<BoxFuture<'static, ()>>,
    pub held: Option<(HeldByResponse, Option<RequestGuard>)>,
}

impl ClientConnection {
    pub fn new(peer: Peer, address: Option<IpAddr>, handle: Option<ConnectionHandle>) -> Self {
        Self { peer, address, handle, requests: None, upgraded: Mutex::default() }
    }

    /// What the connection is for, once the client has received the response that upgrades it.
    pub fn continue_with(&self, session: BoxFuture<'static, ()>) {
        self.lock().session = Some(session);
    }

    /// What the request occupies is occupied until the session ends.
    fn hold(&self, held: HeldByResponse) {
        self.lock().held = Some((held, self.requests.as_ref().map(Requests::begin)));
    }

    pub fn take_upgraded(&self) -> Upgraded {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Upgraded> {
        // It is assigned as a whole.
        self.upgraded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who a connection belongs to after a request of this user.
pub fn owner(user: &User) -> ConnectionOwner {
    if user.is_master() { ConnectionOwner::Administrator } else { ConnectionOwner::User(user.name.clone()) }
}

/// Everything that handling a request needs.
pub struct ApiHandler {
    pub registry: Arc<Registry>,
    /// None: there are no credentials, and the connection says who the client is (`local.rs`).
    pub authenticator: Option<Authenticator>,
    pub authorizer: Authorizer,
    pub metrics: ServerMetrics,
    /// The metrics of the whole process.
    pub metric_registry: MetricRegistry,
    /// The source of the logs of Pods.
    pub logs: OnceLock<Box<dyn Logs>>,
    /// The provider of sessions with Pods.
    pub sessions: OnceLock<Arc<dyn PodSessions>>,
    /// The provider of what Pods use.
    pub usage: OnceLock<Arc<dyn UsageSource>>,
    /// The names of the controllers that run in this process.
    pub controllers: OnceLock<Vec<&'static str>>,
    pub session_places: SessionPlaces,
    /// `host:port`, for discovery.
    pub address: String,
    /// Shared by all users.
    pub flow: Arc<FlowControl>,
    pub renderers: Arc<Renderers>,
    pub audit: Option<Arc<AuditLog>>,
    /// How long a client may take to send a body.
    pub body_within: Duration,
    /// True once the server is shutting down: watches end.
    pub stopping: watch::Receiver<bool>,
}

impl ApiHandler {
    pub async fn answer(self: &Arc<Self>, client: &ClientConnection, request: Request<Incoming>) -> HttpResponse {
        let started = Instant::now();
        let (parts, body) = request.into_parts();
        let labels = RequestLabels { verb: method_name(&parts.method), ..RequestLabels::default() };
        let id = parts.headers.get(AUDIT_ID).cloned().or_else(|| HeaderValue::from_str(&env::uuid()).ok());
        let audit = self.audit.as_ref().map(|log| {
            let id = id.as_ref().map_or_else(Default::default, |id| String::from_utf8_lossy(id.as_bytes()));
            AuditEvent::new(log, &id, &parts, client.address)
        });
        let mut record = RequestRecord { labels, is_long_running: false, held: None, audit };
        let in_flight = InFlight::new(self);
        let mut answer = self.handle(client, &parts, body, &mut record).await;
        drop(in_flight);
        if parts.method == Method::HEAD {
            *answer.body_mut() = Body::EMPTY;
        }
        if let Some(id) = id {
            answer.headers_mut().insert(AUDIT_ID, id);
        }
        let code = answer.status().as_u16();
        if let Some(event) = &mut record.audit {
            event.answered(ResponseSummary { code, failure: answer.extensions().get().cloned() });
            if record.is_long_running && code < 400 {
                event.started();
            } else {
                record.audit = None;
            }
        }
        let is_upgrade = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
        let held = HeldByResponse::new(record.held, record.audit);
        if is_upgrade {
            client.hold(held);
        } else {
            answer.extensions_mut().insert(held);
        }
        let took = (record.labels.verb != "WATCH" && !is_upgrade).then(|| started.elapsed());
        self.metrics.answered(record.labels, code, took);
        answer
    }

    async fn handle(
        self: &Arc<Self>,
        client: &ClientConnection,
        parts: &Parts,
        body: Incoming,
        record: &mut RequestRecord,
    ) -> HttpResponse {
        let peer = &client.peer;
        let route = Route::parse(parts.uri.path());
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let (method, headers) = (&parts.method, &parts.headers);
        let failed = |failure: &StatusError| encode::failure(failure, negotiate::of_failure(headers));
        let is_open = matches!(route, Route::Health { .. } | Route::Version);
        let verb = match &route {
            Route::Objects(place) => place.verb(method.as_str(), query.flag("watch").unwrap_or(false)),
            _ => None,
        };
        if let Some(event) = &mut record.audit {
            let access = RequestedAccess::of(&route, verb, method.as_str(), parts.uri.path(), &query);
            let version = if let Route::Objects(place) = &route { place.resource.version } else { "" };
            event.requests(&access.request(), version);
        }
        let user = match (peer, &self.authenticator) {
            (Peer::Owner(user), _) => Ok(Some(user.clone())),
            (_, Some(authenticator)) => authenticator.user(peer, headers, &self.registry),
            (_, None) => Ok(None),
        };
        let user = match user {
            Ok(Some(user)) => user,
            Ok(None) if is_open => Arc::new(User::anonymous()),
            // A client with invalid credentials gets 401 on every path, the open ones included.
            Ok(None) | Err(_) => {
                return failed(&StatusError::new(401, "Unauthorized", "Unauthorized"));
            }
        };
        let sender = user.clone();
        if let Some(event) = &mut record.audit {
            event.sent_by(&sender);
        }
        if !is_open {
            if let Some(handle) = &client.handle {
                handle.identify(owner(&user));
            }
            match self.flow.take(&user, ShareKind::Request, 1) {
                Ok(share) => record.held = Some(share),
                Err(refused) => return failed(&refused.into()),
            }
        }
        if let Route::Objects(place) = &route {
            let labels = &mut record.labels;
            labels.group = place.resource.group;
            labels.resource = place.resource.plural;
            labels.subresource = place.subresource.map_or("", |subresource| subresource.name);
            match verb {
                Some(Verb::List) => labels.verb = "LIST",
                Some(Verb::Watch) => labels.verb = "WATCH",
                Some(Verb::DeleteCollection) => labels.verb = "DELETECOLLECTION",
                _ => {}
            }
            let is_followed_log = labels.subresource == "log" && query.flag("follow").unwrap_or(false);
            let is_session = is_session(labels.subresource);
            if is_session {
                labels.verb = "CONNECT";
            }
            record.is_long_running = verb == Some(Verb::Watch) || is_followed_log || is_session;
        }
        let user = match self.authorize(user, &route, verb, parts, &query, record.audit.as_mut()) {
            Ok(user) => user,
            Err(refusal) => return failed(&refusal),
        };
        let served = match &route {
            Route::Health { page, check } => {
                let controllers = self.controllers.get().map(Vec::as_slice);
                return match self.registry.poisoned() {
                    Some(error) if error.disk_full => extras::health_with_full_disk(page, check, &query, controllers),
                    error => extras::health(page, check, &query, error.is_none(), controllers),
                };
            }
            Route::NoPage => return extras::not_found(),
            Route::Nothing => Err(extras::unserved(parts.uri.path()).unwrap_or_else(encode::no_resource)),
            Route::Objects(place) => {
                let Some(verb) = verb else { return objects::method_not_allowed(place, headers) };
                let (sender, user, audit) = (&sender, &user, record.audit.as_ref());
                let context =
                    RequestContext { handler: self, sender, user, headers, query: &query, place, verb, audit };
                if context.is_session() {
                    let served = sessions::serve(&context, client, parts);
                    return served.unwrap_or_else(|failure| encode::failure(&failure, ResponseFormat::PLAIN));
                }
                return context.serve(body).await;
            }
            Route::Metrics => return extras::metrics(self),
            _ if method != Method::GET => Err(encode::no_method()),
            Route::Version => negotiate::output(headers, &query, false).map(extras::version),
            Route::Index => {
                Ok(encode::document(200, &extras::index(), ResponseFormat { pretty: true, ..ResponseFormat::PLAIN }))
            }
            Route::CoreVersions => extras::groups(headers, &query, Some(&self.address)),
            Route::Groups => extras::groups(headers, &query, None),
            Route::OpenApi(path) => extras::openapi(headers, &query, path),
            Route::Group(name) => extras::listing(headers, &query, discovery::api_group(name)),
            Route::Resources { group, version } => {
                extras::listing(headers, &query, discovery::resource_list(group, version))
            }
        };
        served.unwrap_or_else(|failure| failed(&failure))
    }
}

impl ApiHandler {
    /// The one place that decides whether a request is served: the user it is served for, or why it is refused. The body
    /// has not been read yet.
    fn authorize(
        &self,
        sender: Arc<User>,
        route: &Route<'_>,
        verb: Option<Verb>,
        parts: &Parts,
        query: &Query<'_>,
        mut audit: Option<&mut AuditEvent>,
    ) -> Result<Arc<User>, StatusError> {
        let user = match impersonation::impersonated(&self.authorizer, &sender, &parts.headers)? {
            Some(user) => {
                if let Some(event) = &mut audit {
                    event.impersonates(&user);
                }
                user
            }
            None => sender,
        };
        // Health is open to everyone, so that it can be watched whatever the roles say.
        if matches!(route, Route::Health { .. }) {
            return Ok(user);
        }
        if user.is_master() {
            if let Some(event) = audit {
                event.decided(Verdict::Allowed { reason: String::new() });
            }
            return Ok(user);
        }
        let access = RequestedAccess::of(route, verb, parts.method.as_str(), parts.uri.path(), query);
        let verdict = self.authorizer.decide(&user, &access.request());
        let decided = match &verdict {
            Verdict::Allowed { .. } => Ok(user),
            Verdict::Denied { reason } => Err(refusal(&user, &access.request(), reason)),
        };
        if let Some(event) = audit {
            event.decided(verdict);
        }
        decided
    }
}

/// What becomes known about a request while it is handled.
struct RequestRecord {
    labels: RequestLabels,
    /// A watch or a followed log.
    is_long_running: bool,
    /// The share of an open request, until the response is sent.
    held: Option<FlowShare>,
    /// None: there is no audit log.
    audit: Option<AuditEvent>,
}

/// Counts a request as in flight until it is answered, or its client cancels it.
struct InFlight<'a>(&'a ApiHandler);

impl<'a> InFlight<'a> {
    fn new(handler: &'a ApiHandler) -> Self {
        handler.metrics.in_flight.add([], 1);
        Self(handler)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.metrics.in_flight.add([], -1);
    }
}

fn method_name(method: &Method) -> &'static str {
    let names = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
    names.into_iter().find(|name| *name == method.as_str()).unwrap_or("OTHER")
}
