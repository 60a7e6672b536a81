//! One request: who sends it, what it addresses, whether it is allowed, and the response.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{Method, Request};
use tally_api::catalog::discovery;
use tally_api::options::Query;
use tally_api::status_error::StatusError;
use tally_metrics::MetricRegistry;
use tally_registry::Registry;
use tokio::sync::{Semaphore, watch};

use crate::auth::access::{RequestedAccess, refusal};
use crate::auth::authorizer::{Authorizer, Verdict};
use crate::auth::{Authenticator, Peer, User, impersonation};
use crate::encode::{self, AUDIT_ID, HttpResponse};
use crate::env;
use crate::http::body::Body;
use crate::http::metrics::{RequestLabels, ServerMetrics};
use crate::http::negotiate::{self, ResponseFormat};
use crate::http::route::{Route, Verb};
use crate::objects::extras;
use crate::objects::logs::Logs;
use crate::objects::{self, RequestContext};

/// Requests in flight at once, without watches. Each may need a body of 3 MiB, so this bounds the memory that clients
/// can use; with two cores, more concurrency is not faster either.
pub const MOST_AT_WORK: usize = 256;

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
    /// `host:port`, for discovery.
    pub address: String,
    pub turns: Semaphore,
    /// True once the server is shutting down: watches end.
    pub stopping: watch::Receiver<bool>,
}

impl ApiHandler {
    pub async fn answer(self: &Arc<Self>, peer: &Peer, request: Request<Incoming>) -> HttpResponse {
        let started = Instant::now();
        let (parts, body) = request.into_parts();
        let mut labels = RequestLabels { verb: method_name(&parts.method), ..RequestLabels::default() };
        let in_flight = InFlight::new(self);
        let mut answer = self.handle(peer, &parts, body, &mut labels).await;
        drop(in_flight);
        if parts.method == Method::HEAD {
            *answer.body_mut() = Body::EMPTY;
        }
        let id = parts.headers.get(AUDIT_ID).cloned().or_else(|| HeaderValue::from_str(&env::uuid()).ok());
        if let Some(id) = id {
            answer.headers_mut().insert(AUDIT_ID, id);
        }
        let took = (labels.verb != "WATCH").then(|| started.elapsed());
        self.metrics.answered(labels, answer.status().as_u16(), took);
        answer
    }

    async fn handle(
        self: &Arc<Self>,
        peer: &Peer,
        parts: &Parts,
        body: Incoming,
        labels: &mut RequestLabels,
    ) -> HttpResponse {
        let route = Route::parse(parts.uri.path());
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let (method, headers) = (&parts.method, &parts.headers);
        let is_open = matches!(route, Route::Health { .. } | Route::Version);
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
                return encode::failure(&StatusError::new(401, "Unauthorized", "Unauthorized"), ResponseFormat::PLAIN);
            }
        };
        let verb = match &route {
            Route::Objects(place) => place.verb(method.as_str(), query.flag("watch").unwrap_or(false)),
            _ => None,
        };
        if let Route::Objects(place) = &route {
            labels.group = place.resource.group;
            labels.resource = place.resource.plural;
            labels.subresource = place.subresource.map_or("", |subresource| subresource.name);
            match verb {
                Some(Verb::List) => labels.verb = "LIST",
                Some(Verb::Watch) => labels.verb = "WATCH",
                Some(Verb::DeleteCollection) => labels.verb = "DELETECOLLECTION",
                _ => {}
            }
        }
        let user = match self.authorize(user, &route, verb, parts, &query) {
            Ok(user) => user,
            Err(refusal) => return encode::failure(&refusal, ResponseFormat::PLAIN),
        };
        let served = match &route {
            Route::Health { page, check } => {
                return match self.registry.poisoned() {
                    Some(error) if error.disk_full => extras::health_with_full_disk(page, check, &query),
                    error => extras::health(page, check, &query, error.is_none()),
                };
            }
            Route::NoPage => return extras::not_found(),
            Route::Nothing => Err(encode::no_resource()),
            Route::Objects(place) => {
                let Some(verb) = verb else { return objects::method_not_allowed(place) };
                let context = RequestContext { handler: self, user: &user, headers, query: &query, place, verb };
                return context.serve(body).await;
            }
            Route::Metrics => return extras::metrics(self),
            _ if method != Method::GET => Err(encode::no_method()),
            Route::Version => negotiate::output(headers, &query).map(extras::version),
            Route::Index => {
                Ok(encode::document(200, &extras::index(), ResponseFormat { pretty: true, ..ResponseFormat::PLAIN }))
            }
            Route::CoreVersions => extras::groups(headers, &query, Some(&self.address)),
            Route::Groups => extras::groups(headers, &query, None),
            Route::OpenApi(path) => extras::openapi(headers, path),
            Route::Group(name) => extras::listing(headers, &query, discovery::api_group(name)),
            Route::Resources { group, version } => {
                extras::listing(headers, &query, discovery::resource_list(group, version))
            }
        };
        served.unwrap_or_else(|failure| encode::failure(&failure, ResponseFormat::PLAIN))
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
    ) -> Result<Arc<User>, StatusError> {
        let user = match impersonation::impersonated(&self.authorizer, &sender, &parts.headers)? {
            Some(user) => user,
            None => sender,
        };
        // Health is open to everyone, so that it can be watched whatever the roles say.
        if matches!(route, Route::Health { .. }) || user.is_master() {
            return Ok(user);
        }
        let access = RequestedAccess::of(route, verb, parts.method.as_str(), parts.uri.path(), query);
        match self.authorizer.decide(&user, &access.request()) {
            Verdict::Allowed { .. } => Ok(user),
            Verdict::Denied { reason } => Err(refusal(&user, &access.request(), &reason)),
        }
    }
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
