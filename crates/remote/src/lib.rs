//! The `Api` of the driver for an API server over HTTP.

mod answer;
pub mod connect;
mod content;
mod credentials;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test that is written wrong may panic")]
pub mod fake;
mod frames;
mod kubeconfig;
mod lines;
pub mod request;
#[cfg(test)]
mod tests;
mod tls;
mod watch;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::HeaderMap;
use hyper::body::Incoming;
use tally_core::ids::Revision;
use tally_runtime::controller::{Call, Object, Refusal, Reply, Stream, Verb};
use tally_runtime::driver::api::{Api, Response, Start, WatchError};
use tally_runtime::response::refuses_form;
use tower::ServiceExt;

pub use answer::ListError;
use answer::Page;
use content::{Content, Form};
pub use content::{ContentType, ProtobufError};
use request::Outgoing;
pub use request::WatchScope;
pub use watch::Watch;

/// How long one request may take. After that its outcome is unknown.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The maximum length of a body: a page of 500 objects of half a megabyte.
const LONGEST_BODY: usize = 256 << 20;

/// The minimum interval between log lines about responses that are not believed.
const DOUBTS_EVERY: Duration = Duration::from_secs(60);

/// How often a list is started again because the server no longer has its revision.
const LIST_ATTEMPTS: u32 = 3;

/// Cheap to clone.
#[derive(Clone)]
pub struct Remote(Arc<Inner>);

struct Inner {
    service: connect::Service,
    content: Content,
    /// Whether the server sends the state as part of a watch, as far as is known.
    streams_lists: AtomicBool,
    reach: Reachability,
    doubts: DisbelievedResponses,
}

/// A request without a response.
#[derive(Debug)]
pub struct RequestError {
    /// It was certainly not carried out.
    pub unsent: bool,
    pub why: String,
}

enum PageError {
    Refused(Response),
    Failed(RequestError),
}

enum SendError {
    /// It cannot be written as an HTTP request.
    Form(hyper::http::Error),
    Request(RequestError),
}

impl From<hyper::http::Error> for SendError {
    fn from(error: hyper::http::Error) -> Self {
        Self::Form(error)
    }
}

impl From<RequestError> for SendError {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

impl PageError {
    /// The server no longer has the revision of the earlier pages.
    fn is_expired(&self) -> bool {
        matches!(self, Self::Refused(Response { reply: Reply::Refused(Refusal { code: 410, .. }), .. }))
    }
}

/// A complete response.
pub struct RawResponse {
    pub code: u16,
    pub body: Bytes,
    pub headers: HeaderMap,
}

impl Remote {
    /// With objects in JSON.
    pub fn new(service: connect::Service) -> Self {
        Self::with_content_type(service, ContentType::Json)
    }

    pub fn with_content_type(service: connect::Service, content: ContentType) -> Self {
        let reach = Reachability { down: AtomicBool::new(false) };
        Self(Arc::new(Inner {
            service,
            content: Content::new(content),
            streams_lists: AtomicBool::new(true),
            reach,
            doubts: DisbelievedResponses::default(),
        }))
    }

    /// Whether the server was reachable at the last request.
    pub fn is_reachable(&self) -> bool {
        !self.0.reach.down.load(Ordering::Relaxed)
    }

    /// Sends one request and returns its response, within the time limit.
    pub async fn ask(&self, request: Outgoing) -> Result<RawResponse, RequestError> {
        let asked = async {
            let (head, body) = self.open(request).await?.into_parts();
            let body = match collect(body).await {
                Ok(body) => body,
                // The code alone may be sufficient to know that the request was refused.
                Err(_) if !head.status.is_success() => Bytes::new(),
                Err(error) => return Err(error),
            };
            Ok(RawResponse { code: head.status.as_u16(), body, headers: head.headers })
        };
        match tokio::time::timeout(ANSWER_WITHIN, asked).await {
            Ok(answer) => answer,
            Err(_) => {
                Err(RequestError { unsent: false, why: format!("no answer within {} s", ANSWER_WITHIN.as_secs()) })
            }
        }
    }

    /// Sends a request and returns the head of the response; the caller reads the body. A watch, for example.
    pub async fn open(&self, request: Outgoing) -> Result<hyper::Response<Incoming>, RequestError> {
        match self.0.service.clone().oneshot(request).await {
            Ok(response) => {
                self.0.reach.answered();
                Ok(response)
            }
            Err(error) => {
                let unsent = connect::is_unsent(&error);
                let why = connect::reasons(&*error);
                if unsent {
                    self.0.reach.failed(&why);
                }
                Err(RequestError { unsent, why })
            }
        }
    }

    fn streams_lists(&self) -> bool {
        self.0.streams_lists.load(Ordering::Relaxed)
    }

    fn list_by_pages(&self) {
        if self.0.streams_lists.swap(false, Ordering::Relaxed) {
            tracing::info!("the server cannot send lists as part of a watch: they are read page by page");
        }
    }

    /// As `Api::follow`, for a part of the objects of a kind.
    pub async fn follow_in(&self, stream: Stream, scope: &WatchScope, from: Start) -> Result<Watch, WatchError> {
        watch::follow(self, stream, scope.clone(), from).await
    }

    async fn page(&self, call: &Call, fields: &str, metadata_only: bool, token: &str) -> Result<Page, PageError> {
        let broken = |why: String| PageError::Failed(RequestError { unsent: false, why });
        let ask = |accept| request::page(call, fields, accept, token).map_err(|error| broken(error.to_string()));
        let accept = request::accept(self.0.content.accept(call.kind), metadata_only);
        let mut answer = self.ask(ask(accept)?).await.map_err(PageError::Failed)?;
        if self.note_refused_form(&answer, &Form { accept, document: None }) {
            answer = self.ask(ask(content::JSON)?).await.map_err(PageError::Failed)?;
        }
        if answer.code != 200 {
            let body = self.object_of(&answer);
            let (response, disbelieved) = answer::refused(call, answer.code, &answer.headers, &body);
            self.0.doubts.tell(call, disbelieved);
            return Err(PageError::Refused(response));
        }
        let page = answer::page(&answer.headers, &answer.body);
        if content::is_protobuf(&answer.headers) {
            match &page {
                Ok(_) => self.0.content.was_answered_in_protobuf(),
                Err(error) => self.0.content.read_json_only(&error.to_string()),
            }
        }
        page.map_err(|error| broken(error.to_string()))
    }

    /// The object of a response. One that cannot be read is passed on as it came: it proves nothing.
    fn object_of(&self, answer: &RawResponse) -> Object {
        // Of a refusal that broke off nothing is left but its code.
        if !content::is_protobuf(&answer.headers) || answer.body.is_empty() {
            return answer.body.clone().into();
        }
        match content::read_document(&answer.body) {
            Ok(object) => {
                self.0.content.was_answered_in_protobuf();
                object
            }
            Err(error) => {
                self.0.content.read_json_only(&error.to_string());
                answer.body.clone().into()
            }
        }
    }

    /// Whether the server refused a request because there was protobuf in it, or asked for. That is remembered.
    fn note_refused_form(&self, answer: &RawResponse, form: &Form) -> bool {
        if !matches!(answer.code, 406 | 415) || !refuses_form(answer.code, &self.object_of(answer)) {
            return false;
        }
        match answer.code {
            406 if form.accept == content::PROTOBUF_OR_JSON => self.0.content.read_json_only("the server answered 406"),
            415 if form.document.is_some() => self.0.content.was_not_accepted(),
            _ => return false,
        }
        true
    }

    /// Sends a request in the best form that the server takes.
    async fn send(&self, call: &Call) -> Result<RawResponse, SendError> {
        let form = self.0.content.form(call);
        let answer = self.ask(request::in_form(call, &form)?).await?;
        if !self.note_refused_form(&answer, &form) {
            return Ok(answer);
        }
        // The server looks at the form of a request before it carries it out, so that it was certainly not carried out.
        Ok(self.ask(request::in_form(call, &Form::JSON)?).await?)
    }

    /// All pages, at one revision.
    async fn list(&self, call: &Call) -> Response {
        let mut attempts = 0;
        let mut token = String::new();
        let (mut items, mut at) = (Vec::new(), Revision(0));
        loop {
            match self.page(call, "", false, &token).await {
                Ok(page) => {
                    if token.is_empty() {
                        at = page.at;
                    }
                    items.extend(page.items);
                    if page.token.is_empty() {
                        return Response { reply: Reply::Listed { items, at }, served_at: None, retry_after: None };
                    }
                    token = page.token;
                }
                Err(error) if error.is_expired() && !token.is_empty() && attempts < LIST_ATTEMPTS => {
                    attempts += 1;
                    items.clear();
                    token.clear();
                }
                Err(PageError::Refused(response)) => return response,
                // A read changes nothing: whether it was carried out does not matter.
                Err(PageError::Failed(failure)) => return answer::unsent(failure.why),
            }
        }
    }
}

impl Api for Remote {
    type Events = Watch;

    async fn call(&self, call: &Call) -> Response {
        if call.verb == Verb::List {
            return self.list(call).await;
        }
        if call.verb == Verb::Update && self.0.content.may_read(call.kind) {
            return answer::lossy(call);
        }
        match self.send(call).await {
            Ok(answer) => {
                let body = self.object_of(&answer);
                let (response, disbelieved) = answer::response(call, answer.code, &answer.headers, &body);
                self.0.doubts.tell(call, disbelieved);
                response
            }
            Err(SendError::Form(error)) => answer::unsent(error.to_string()),
            Err(SendError::Request(failure)) if failure.unsent => answer::unsent(failure.why),
            Err(SendError::Request(_)) => answer::unknown(),
        }
    }

    async fn follow(&self, stream: Stream, from: Start) -> Result<Watch, WatchError> {
        watch::follow(self, stream, WatchScope::default(), from).await
    }
}

async fn collect(body: Incoming) -> Result<Bytes, RequestError> {
    let collected = Limited::new(body, LONGEST_BODY).collect().await;
    collected
        .map(|body| body.to_bytes())
        .map_err(|error| RequestError { unsent: false, why: connect::reasons(&*error) })
}

/// The revision of a list in JSON, or of a page of it.
pub fn list_revision(body: &Bytes) -> Result<Revision, ListError> {
    answer::page_of_json(body).map(|page| page.at)
}

/// Whether the server can be reached. Logged once at each change, not at every request that fails.
struct Reachability {
    down: AtomicBool,
}

impl Reachability {
    fn answered(&self) {
        if self.down.load(Ordering::Relaxed) && self.down.swap(false, Ordering::Relaxed) {
            tracing::info!("the API server answers again");
        }
    }

    fn failed(&self, why: &str) {
        if !self.down.swap(true, Ordering::Relaxed) {
            tracing::warn!("the API server cannot be reached, and is tried again until it can: {why}");
        }
    }
}

/// Responses that were not believed: one log line, and then at most one per minute.
#[derive(Default)]
struct DisbelievedResponses(Mutex<Option<(Instant, u64)>>);

impl DisbelievedResponses {
    fn tell(&self, call: &Call, disbelieved: Option<String>) {
        let Some(why) = disbelieved else { return };
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = match &mut *told {
            Some((at, silent)) if at.elapsed() < DOUBTS_EVERY => {
                *silent += 1;
                return;
            }
            Some((_, silent)) => *silent,
            None => 0,
        };
        *told = Some((Instant::now(), 0));
        let (verb, resource, name) = (call.verb, call.kind.plural, &call.name);
        tracing::warn!(?verb, resource, %name, more = silent, "what became of a request is found out later: {why}");
    }
}
