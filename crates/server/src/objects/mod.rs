//! The verbs on objects, from a request to the registry and back.
//!
//! Errors are checked in the order that clients expect: no such path, no such method, a body that cannot be decoded, a
//! response format that is not available, invalid options, and then the errors of the registry.

pub mod extras;
pub mod logs;
pub mod openapi;
pub mod usage;
pub mod watch;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::{ALLOW, EXPECT, HeaderMap, HeaderValue, USER_AGENT};
use tally_api::catalog;
use tally_api::decode::{MAX_BODY, decode_delete_options};
use tally_api::meta::path_segment_problems;
use tally_api::options::{DeleteOptions, ListOptions, Query, ReadAt, Write, WriteOptions};
use tally_api::scale;
use tally_api::schema::schema;
use tally_api::status_error::StatusError;
use tally_api::table::IncludeObject;
use tally_registry::{Deleted, Listing, Registry, Target, Written};
use tally_value::Value;
use tokio::time::timeout;

use crate::audit::AuditEvent;
use crate::auth::User;
use crate::auth::{escalation, reviews};
use crate::encode::list::ListSending;
use crate::encode::{self, Encoder, HttpResponse};
use crate::http::flow::{FlowShare, ShareKind, TooManyRequests};
use crate::http::handler::ApiHandler;
use crate::http::negotiate::{self, ResponseFormat, View};
use crate::http::route::{ResourcePath, Verb, is_session};
use crate::objects::usage::Measurement;

/// A body that is too long is read on and discarded, up to this length and for this long, because many clients read the
/// response only after they have sent the body.
const MOST_DISCARDED: usize = 64 * 1024 * 1024;
const DISCARD_WITHIN: Duration = Duration::from_secs(10);

/// Lists of more objects are limited in number for each user, and made by a thread for long work.
const LONG_LIST: usize = 1_000;

/// The context of a request for objects, whose path has been parsed.
pub struct RequestContext<'a> {
    pub handler: &'a Arc<ApiHandler>,
    /// Whose credentials the request has. It counts against the limits of this user.
    pub sender: &'a Arc<User>,
    /// For whom it is served: the sender, or the user whom the sender impersonates.
    pub user: &'a Arc<User>,
    pub headers: &'a HeaderMap,
    pub query: &'a Query<'a>,
    pub place: &'a ResourcePath<'a>,
    pub verb: Verb,
    /// None: there is no audit log.
    pub audit: Option<&'a AuditEvent>,
}

/// 405 with the allowed methods.
pub fn method_not_allowed(place: &ResourcePath<'_>, headers: &HeaderMap) -> HttpResponse {
    let mut answer = encode::failure(&encode::no_method(), negotiate::of_failure(headers));
    let methods = ["GET", "POST", "PUT", "PATCH", "DELETE"];
    let allowed: Vec<&str> = methods.into_iter().filter(|method| place.verb(method, false).is_some()).collect();
    if let Ok(value) = HeaderValue::from_str(&allowed.join(", ")) {
        answer.headers_mut().insert(ALLOW, value);
    }
    answer
}

impl RequestContext<'_> {
    pub async fn serve(&self, body: Incoming) -> HttpResponse {
        match self.response_format() {
            Err(failure) => encode::failure(&failure, negotiate::of_failure(self.headers)),
            Ok(response_format) => {
                let answer = self.act(response_format, body).await;
                let mut answer = answer.unwrap_or_else(|failure| encode::failure(&failure, response_format));
                if let Some(text) = catalog::deprecation(self.place.resource) {
                    encode::warn(answer.headers_mut(), &[text.to_owned()]);
                }
                answer
            }
        }
    }

    /// The requested response format, or the error if it is not available.
    fn response_format(&self) -> Result<ResponseFormat, StatusError> {
        if self.verb == Verb::Patch {
            negotiate::patch(self.headers)?;
        }
        let collection = self.place.name.is_empty() && matches!(self.verb, Verb::List | Verb::Watch);
        if self.is_log() {
            negotiate::check_accept(self.headers, logs::FORMS, false)?;
            return Ok(ResponseFormat::PLAIN);
        }
        negotiate::check_accept(self.headers, negotiate::OBJECTS, collection)?;
        negotiate::output(self.headers, self.query, self.has_protobuf())
    }

    /// Whether the objects of the response can be written in protobuf.
    fn has_protobuf(&self) -> bool {
        let (group, version, kind) = self.kind();
        schema().kind(group, version, kind).is_some_and(|structure| !structure.numbered.is_empty())
    }

    /// Group, version and kind of the body.
    fn kind(&self) -> (&'static str, &'static str, &'static str) {
        let resource = self.place.resource;
        match self.place.subresource {
            None => (resource.group, resource.version, resource.kind),
            Some(subresource) => {
                let (group, version) = subresource.group_version.unwrap_or((resource.group, resource.version));
                (group, version, subresource.kind)
            }
        }
    }

    /// A stream to or from a Pod (`sessions`).
    pub fn is_session(&self) -> bool {
        self.place.subresource.is_some_and(|subresource| is_session(subresource.name))
    }

    fn is_log(&self) -> bool {
        self.place.subresource.is_some_and(|subresource| subresource.name == "log")
    }

    pub fn target(&self) -> Target<'_> {
        Target {
            resource: self.place.resource,
            subresource: self.place.subresource,
            namespace: &self.place.namespace,
            name: &self.place.name,
        }
    }

    pub fn registry(&self) -> &Registry {
        &self.handler.registry
    }

    pub fn encoder(&self, response_format: ResponseFormat) -> Result<Encoder<'static>, StatusError> {
        let include = match response_format.view {
            View::Table { .. } => IncludeObject::parse(self.query.get("includeObject").unwrap_or_default())?,
            _ => IncludeObject::None,
        };
        let scales = self.place.subresource.is_some_and(|subresource| subresource.name == scale::SCALE);
        let resource = if scales { scale::resource() } else { self.place.resource };
        let now = self.registry().now();
        Ok(Encoder { resource, kind: None, response_format, include, now })
    }

    async fn act(&self, response_format: ResponseFormat, body: Incoming) -> Result<HttpResponse, StatusError> {
        if self.verb == Verb::Watch {
            return watch::serve(self, response_format);
        }
        let (registry, target) = (self.registry(), self.target());
        let problems = path_segment_problems(target.name, false);
        if !problems.is_empty() {
            let text = format!("Name parameter invalid: {:?}: {}", target.name, problems.join(";"));
            return Err(StatusError::bad_request(text));
        }
        match self.verb {
            Verb::Get if self.is_log() => {
                let _seat = self.seat().await?;
                logs::serve(self).await
            }
            Verb::Get | Verb::List if catalog::is_measured(self.place.resource) => {
                let listed = (self.verb == Verb::List).then(|| ListOptions::parse(self.query)).transpose()?;
                let encoder = self.encoder(response_format)?;
                // Measuring takes its time, in which no seat is occupied.
                let source = self.handler.usage.get();
                let measured = match source {
                    Some(source) => Some(Measurement { node: source.node(), figures: source.measure().await }),
                    None => None,
                };
                let _seat = self.seat().await?;
                let (resource, namespace) = (self.place.resource, &*self.place.namespace);
                match listed {
                    None => {
                        let found = usage::get(registry, resource, namespace, target.name, measured.as_ref())?;
                        Ok(encoder.object(200, &found))
                    }
                    Some(options) => {
                        let listing = usage::list(registry, resource, namespace, options, measured.as_ref())?;
                        let sending = ListSending { renderers: self.handler.renderers.clone(), share: None };
                        Ok(encoder.list(listing, sending))
                    }
                }
            }
            Verb::Get => {
                let _seat = self.seat().await?;
                let object = registry.get(target, ReadAt::of_get(self.query)?)?;
                Ok(self.encoder(response_format)?.object(200, &object))
            }
            Verb::List => {
                let _seat = self.seat().await?;
                let listing = self.list(ListOptions::parse(self.query)?).await?;
                let is_long = listing.items.len() > LONG_LIST;
                let share = is_long.then(|| self.take(ShareKind::LongList)).transpose()?;
                let sending = ListSending { renderers: self.handler.renderers.clone(), share };
                Ok(self.encoder(response_format)?.list(listing, sending))
            }
            Verb::Create | Verb::Update => {
                let format = negotiate::input(self.headers)?;
                let (body, _seat) = self.receive(body).await?;
                let write = if self.verb == Verb::Create { Write::Create } else { Write::Update };
                let options = self.write_options(write)?;
                if let Some(question) = reviews::ReviewKind::of(self.place) {
                    return Ok(encode::document(201, &question.answer(self, &body, format)?, response_format));
                }
                let written = match self.verb {
                    Verb::Create => registry.create(target, &body[..], format, &options).await?,
                    _ => registry.update(target, &body[..], format, &options).await?,
                };
                self.written(written, response_format)
            }
            Verb::Patch => {
                let kind = negotiate::patch(self.headers)?;
                let (body, _seat) = self.receive(body).await?;
                let options = self.write_options(Write::Patch(kind))?;
                let written = registry.patch(target, &body[..], kind, &options).await?;
                self.written(written, response_format)
            }
            Verb::Delete => {
                let (body, _seat) = self.receive(body).await?;
                let options = self.delete_options(body)?;
                let warnings = Registry::delete_warnings(self.place.resource, &options);
                let mut answer = match registry.delete(target, &options).await {
                    Ok(Deleted::Object(object)) => {
                        let encoder = self.encoder(response_format)?;
                        // For old clients: a delete with `orphanDependents: false` gets 202 if the object stays for
                        // now.
                        let stays = || {
                            let metadata = &object.parse()["metadata"];
                            metadata["deletionGracePeriodSeconds"] != 0
                                || metadata["finalizers"].as_array().is_some_and(|names| !names.is_empty())
                        };
                        let accepted = options.orphan_dependents == Some(false) && stays();
                        encoder.object(if accepted { 202 } else { 200 }, &object)
                    }
                    Ok(Deleted::Status { uid }) => {
                        let status = encode::success(self.place.resource, &self.place.name, &uid);
                        encode::document(200, &status, response_format)
                    }
                    Err(failure) => return Err(StatusError { warnings, ..failure }),
                };
                encode::warn(answer.headers_mut(), &warnings);
                Ok(answer)
            }
            Verb::DeleteCollection => {
                let listed = ListOptions::parse(self.query)?;
                let (body, _seat) = self.receive(body).await?;
                let options = self.delete_options(body)?;
                let warnings = Registry::delete_warnings(self.place.resource, &options);
                let listing = match registry.delete_collection(target, &listed, &options).await {
                    Ok(listing) => listing,
                    Err(failure) => return Err(StatusError { warnings, ..failure }),
                };
                let sending = ListSending { renderers: self.handler.renderers.clone(), share: None };
                let mut answer = self.encoder(response_format)?.list(listing, sending);
                encode::warn(answer.headers_mut(), &warnings);
                Ok(answer)
            }
            Verb::Watch => Err(encode::no_method()),
        }
    }

    /// Lists objects. Where there are many, a thread for long work does it: each of them may have to be filtered.
    async fn list(&self, options: ListOptions) -> Result<Listing, StatusError> {
        if self.registry().stats().objects <= LONG_LIST {
            return self.registry().list(self.target(), &options);
        }
        let registry = self.handler.registry.clone();
        let (resource, subresource) = (self.place.resource, self.place.subresource);
        let (namespace, name) = (self.place.namespace.to_string(), self.place.name.to_string());
        let listing = self
            .handler
            .renderers
            .run(move || registry.list(Target { resource, subresource, namespace: &namespace, name: &name }, &options));
        listing.await
    }

    /// Takes a share of what the sender may occupy.
    pub fn take(&self, kind: ShareKind) -> Result<FlowShare, StatusError> {
        Ok(self.handler.flow.take(self.sender, kind, 1)?)
    }

    async fn seat(&self) -> Result<FlowShare, StatusError> {
        Ok(self.handler.flow.seat(self.sender).await?)
    }

    /// Reads the whole body and then waits for a seat: a body that does not arrive occupies none.
    async fn receive(&self, body: Incoming) -> Result<(Bytes, FlowShare), StatusError> {
        let mut received = self.handler.flow.take(self.sender, ShareKind::BodyBytes, 0)?;
        // A client that waits to be told to send the body has not sent it.
        let waits = self.headers.contains_key(EXPECT);
        let body = read_body(body, waits, self.handler.body_within, &mut received).await?;
        Ok((body, self.seat().await?))
    }

    fn write_options(&self, write: Write) -> Result<WriteOptions, StatusError> {
        let mut options = WriteOptions::parse(self.query, write)?;
        if options.field_manager.is_empty() {
            let agent = self.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
            options.field_manager = WriteOptions::manager_of_user_agent(agent);
        }
        options.check = escalation::write_check(self);
        options.audit = self.audit.map(|event| event.notes.clone());
        Ok(options)
    }

    /// If there is a body, it replaces all options of the query.
    fn delete_options(&self, body: Bytes) -> Result<DeleteOptions, StatusError> {
        if body.is_empty() {
            return DeleteOptions::of_query(self.query);
        }
        DeleteOptions::of_body(&decode_delete_options(&body, negotiate::input(self.headers)?)?)
    }

    fn written(&self, written: Written, response_format: ResponseFormat) -> Result<HttpResponse, StatusError> {
        let code = if self.verb == Verb::Create || written.created { 201 } else { 200 };
        let encoder = Encoder { kind: written.kind, ..self.encoder(response_format)? };
        if let Some(event) = self.audit.filter(|_| self.verb == Verb::Create && self.place.name.is_empty()) {
            let object = written.object.parse();
            let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            event.created(text("/metadata/name"), text("/metadata/uid"));
        }
        let mut answer = encoder.object(code, &written.object);
        encode::warn(answer.headers_mut(), &written.warnings);
        Ok(answer)
    }
}

/// Reads the whole body, unless it is too long or too slow, or the client is sending too many. `waits`: the client sends
/// nothing before the server reads. `received` is the client's share of the memory for bodies.
async fn read_body(
    mut body: Incoming,
    waits: bool,
    within: Duration,
    received: &mut FlowShare,
) -> Result<Bytes, StatusError> {
    let too_long = || {
        let text = format!("Request entity too large: limit is {MAX_BODY}");
        StatusError::new(413, "RequestEntityTooLarge", text)
    };
    if body.size_hint().lower() > MAX_BODY as u64 {
        if !waits {
            discard(&mut body).await;
        }
        return Err(too_long());
    }
    let read = timeout(within, read_pieces(&mut body, received)).await;
    let slow = || StatusError::new(408, "Timeout", "the body of the request took too long to arrive");
    match read.map_err(|_| slow())? {
        Ok(bytes) => Ok(bytes),
        Err(BodyError::TooLong) => {
            discard(&mut body).await;
            Err(too_long())
        }
        Err(BodyError::TooMany(refused)) => Err(refused.into()),
        Err(BodyError::BrokenOff(error)) => {
            Err(StatusError::bad_request(format!("the body of the request broke off: {error}")))
        }
    }
}

enum BodyError {
    TooLong,
    TooMany(TooManyRequests),
    BrokenOff(hyper::Error),
}

/// A body that arrives in one piece is not copied.
async fn read_pieces(body: &mut Incoming, received: &mut FlowShare) -> Result<Bytes, BodyError> {
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(BodyError::BrokenOff)?.into_data() else { continue };
        if first.len() + rest.len() + piece.len() > MAX_BODY {
            return Err(BodyError::TooLong);
        }
        received.grow(piece.len()).map_err(BodyError::TooMany)?;
        if first.is_empty() && rest.is_empty() {
            first = piece;
        } else {
            rest.extend_from_slice(&std::mem::take(&mut first));
            rest.extend_from_slice(&piece);
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// Reads on so that the client can read the response.
async fn discard(body: &mut Incoming) {
    let mut left = MOST_DISCARDED;
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(length) else { return };
            left = rest;
        }
    };
    let _ = timeout(DISCARD_WITHIN, reading).await;
}
