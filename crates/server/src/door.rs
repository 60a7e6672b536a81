//! One request: who sends it, what it addresses, whether it is allowed, and the response.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request};
use tally_api::catalog::discovery;
use tally_api::failure::{Details, Failure};
use tally_api::options::Query;
use tally_registry::Registry;
use tokio::sync::{Semaphore, watch};

use crate::auth::{Gate, Peer, User};
use crate::body::Body;
use crate::extras;
use crate::forms::{self, AUDIT_ID, Answer};
use crate::logs::Logs;
use crate::metrics::{About, Metrics};
use crate::negotiate::{self, Wish};
use crate::objects::{self, Ask};
use crate::reviews::Question;
use crate::route::{Place, Route, Verb};
use crate::world;

/// Requests in flight at once, without watches. Each may need a body of 3 MiB, so this bounds the memory that clients
/// can use; with two cores, more concurrency is not faster either.
pub const MOST_AT_WORK: usize = 256;

/// Everything that handling a request needs.
pub struct Door {
    pub registry: Arc<Registry>,
    pub gate: Gate,
    pub metrics: Metrics,
    /// Further metrics, from other parts of this process.
    pub more_metrics: OnceLock<Box<dyn Fn() -> String + Send + Sync>>,
    /// The source of the logs of Pods.
    pub logs: OnceLock<Box<dyn Logs>>,
    /// `host:port`, for discovery.
    pub address: String,
    pub turns: Semaphore,
    /// True once the server is shutting down: watches end.
    pub stopping: watch::Receiver<bool>,
}

impl Door {
    pub async fn answer(self: &Arc<Self>, peer: &Peer, request: Request<Incoming>) -> Answer {
        let started = Instant::now();
        let (parts, body) = request.into_parts();
        let mut about = About { verb: method_name(&parts.method), ..About::default() };
        let in_flight = InFlight::new(self);
        let mut answer = self.handle(peer, &parts, body, &mut about).await;
        drop(in_flight);
        if parts.method == Method::HEAD {
            *answer.body_mut() = Body::EMPTY;
        }
        let id = parts.headers.get(AUDIT_ID).cloned().or_else(|| HeaderValue::from_str(&world::uuid()).ok());
        if let Some(id) = id {
            answer.headers_mut().insert(AUDIT_ID, id);
        }
        let took = (about.verb != "WATCH").then(|| started.elapsed());
        self.metrics.answered(about, answer.status().as_u16(), took);
        answer
    }

    async fn handle(self: &Arc<Self>, peer: &Peer, parts: &Parts, body: Incoming, about: &mut About) -> Answer {
        let route = Route::parse(parts.uri.path());
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let (method, headers) = (&parts.method, &parts.headers);
        let is_open = matches!(route, Route::Health { .. } | Route::Version);
        let user = match self.gate.user(peer, headers, &self.registry) {
            Ok(Some(user)) => user,
            Ok(None) if is_open => Arc::new(User::nobody()),
            // A client with invalid credentials gets 401 on every path, the open ones included.
            Ok(None) | Err(_) => {
                return forms::failure(&Failure::new(401, "Unauthorized", "Unauthorized"), Wish::PLAIN);
            }
        };
        let verb = match &route {
            Route::Objects(place) => place.verb(method.as_str(), query.flag("watch").unwrap_or(false)),
            _ => None,
        };
        if let Route::Objects(place) = &route {
            about.group = place.resource.group;
            about.resource = place.resource.plural;
            about.subresource = place.subresource.map_or("", |subresource| subresource.name);
            match verb {
                Some(Verb::List) => about.verb = "LIST",
                Some(Verb::Watch) => about.verb = "WATCH",
                Some(Verb::DeleteCollection) => about.verb = "DELETECOLLECTION",
                _ => {}
            }
        }
        if let Some(refusal) = forbidden(&user, &route, verb, parts) {
            return forms::failure(&refusal, Wish::PLAIN);
        }
        let served = match &route {
            Route::Health { page, check } => {
                let store_is_well = self.registry.store.poisoned().is_none();
                return extras::health(page, check, &query, store_is_well);
            }
            Route::NoPage => return extras::not_found(),
            Route::Nothing => Err(forms::no_resource()),
            Route::Objects(place) => {
                let Some(verb) = verb else { return objects::method_not_allowed(place) };
                let ask = Ask { door: self, user: &user, headers, query: &query, place, verb };
                return ask.serve(body).await;
            }
            Route::Metrics => return extras::metrics(self),
            _ if method != Method::GET => Err(forms::no_method()),
            Route::Version => negotiate::output(headers, &query).map(extras::version),
            Route::Index => Ok(forms::document(200, &extras::index(), Wish { pretty: true, ..Wish::PLAIN })),
            Route::CoreVersions => extras::groups(headers, &query, Some(&self.address)),
            Route::Groups => extras::groups(headers, &query, None),
            Route::OpenApi(path) => extras::openapi(headers, path),
            Route::Group(name) => extras::listing(headers, &query, discovery::api_group(name)),
            Route::Resources { group, version } => {
                extras::listing(headers, &query, discovery::resource_list(group, version))
            }
        };
        served.unwrap_or_else(|failure| forms::failure(&failure, Wish::PLAIN))
    }
}

/// Counts a request as in flight until it is answered, or its client cancels it.
struct InFlight<'a>(&'a Door);

impl<'a> InFlight<'a> {
    fn new(door: &'a Door) -> Self {
        door.metrics.in_flight.up();
        Self(door)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.metrics.in_flight.down();
    }
}

fn method_name(method: &Method) -> &'static str {
    let names = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
    names.into_iter().find(|name| *name == method.as_str()).unwrap_or("OTHER")
}

/// Why the user may not do this. The administrator may do everything; other users may read discovery and ask about
/// themselves.
fn forbidden(user: &User, route: &Route<'_>, verb: Option<Verb>, parts: &Parts) -> Option<Failure> {
    if impersonates(&parts.headers) {
        // Ignoring the header would be the worst response: the request would run as the administrator although the
        // client asked for fewer rights.
        let text = "impersonation is not supported: nobody can act as somebody else here";
        return Some(Failure::new(403, "Forbidden", text).with(Details::default()));
    }
    let is_allowed = match route {
        _ if user.is_master() => true,
        Route::Health { .. } | Route::Version | Route::Index => true,
        Route::CoreVersions | Route::Groups | Route::Group(_) | Route::Resources { .. } | Route::OpenApi(_) => true,
        Route::Objects(place) => Question::of(place).is_some_and(Question::is_about_oneself),
        Route::Metrics | Route::Nothing | Route::NoPage => false,
    };
    if is_allowed {
        return None;
    }
    let who = &user.name;
    let failure = |text: String| Failure::new(403, "Forbidden", text);
    Some(match (route, verb) {
        (Route::Objects(place), Some(verb)) => {
            let text = denial(who, place, verb);
            failure(text).with(Details::of(place.resource, &place.name))
        }
        _ => {
            let (method, path) = (parts.method.as_str().to_lowercase(), parts.uri.path());
            failure(format!("forbidden: User \"{who}\" cannot {method} path \"{path}\"")).with(Details::default())
        }
    })
}

fn denial(who: &str, place: &Place<'_>, verb: Verb) -> String {
    let resource = place.resource;
    let named = if place.name.is_empty() { String::new() } else { format!(" \"{}\"", place.name) };
    let subresource = place.subresource.map_or_else(String::new, |subresource| format!("/{}", subresource.name));
    let scope = if place.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{}\"", place.namespace)
    };
    format!(
        "{}{named} is forbidden: User \"{who}\" cannot {} resource \"{}{subresource}\" in API group \"{}\" {scope}",
        resource.qualified(),
        verb.name(),
        resource.plural,
        resource.group,
    )
}

fn impersonates(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with("impersonate-"))
}
