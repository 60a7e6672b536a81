//! Requests in the form in which they are sent. Pure.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use hyper::{Method, Request};
use tally_core::ids::Revision;
use tally_runtime::controller::{Call, Kind, Stream, Verb};

use crate::content::{Form, JSON, PROTOBUF};

pub type Outgoing = Request<Full<Bytes>>;

const AGENT: &str = concat!("tally/", env!("CARGO_PKG_VERSION"));
/// The second media type is for servers that cannot omit anything.
const METADATA_JSON: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// Objects per page of a list: what the clients of the reference request, so servers are tuned for it.
const PAGE: &str = "500";

/// The HTTP request for a call, in JSON; for a list, its first page.
pub fn of_call(call: &Call) -> Result<Outgoing, hyper::http::Error> {
    in_form(call, &Form::JSON)
}

pub(crate) fn in_form(call: &Call, form: &Form) -> Result<Outgoing, hyper::http::Error> {
    let (method, content) = match call.verb {
        Verb::List => return page(call, "", accept(form.accept, false), ""),
        Verb::Create => (Method::POST, JSON),
        Verb::Get => (Method::GET, ""),
        Verb::Update => (Method::PUT, JSON),
        Verb::MergePatch => (Method::PATCH, "application/merge-patch+json"),
        Verb::StrategicPatch => (Method::PATCH, "application/strategic-merge-patch+json"),
        Verb::Delete | Verb::DeleteCollection => (Method::DELETE, JSON),
    };
    // The name of a created object is in its body, except for a subresource of an existing object.
    let name = if call.verb == Verb::Create && call.subresource.is_empty() { "" } else { call.name.as_str() };
    let mut target = Target::new(call.kind, &call.namespace, name, call.subresource);
    target.select(&call.label_selector, "");
    match &form.document {
        Some(document) => build(method, &target.0, PROTOBUF, form.accept, document.clone()),
        None => build(method, &target.0, content, form.accept, call.body.text()),
    }
}

/// A page of a list: the first one, or the one that `token` names.
pub fn page(
    call: &Call,
    field_selector: &str,
    accept: &'static str,
    token: &str,
) -> Result<Outgoing, hyper::http::Error> {
    let mut target = Target::new(call.kind, &call.namespace, "", "");
    target.select(&call.label_selector, field_selector);
    target.query("limit", PAGE);
    if !token.is_empty() {
        target.query("continue", token);
    }
    build(Method::GET, &target.0, "", accept, Bytes::new())
}

/// A consistent list of one object, for its revision.
pub fn one(kind: Kind) -> Result<Outgoing, hyper::http::Error> {
    let mut target = Target::new(kind, "", "", "");
    target.query("limit", "1");
    build(Method::GET, &target.0, "", JSON, Bytes::new())
}

/// Where a watch starts.
#[derive(Clone, Copy, Debug)]
pub enum WatchStart {
    /// With the state at this revision or later; 0: the newest state.
    State(Revision),
    After(Revision),
}

/// The objects of a kind that a stream is about. Empty fields select everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchScope {
    pub namespace: String,
    pub label_selector: String,
    pub field_selector: String,
}

pub fn watch(
    stream: Stream,
    scope: &WatchScope,
    from: WatchStart,
    seconds: u32,
    accept: &'static str,
) -> Result<Outgoing, hyper::http::Error> {
    let mut target = Target::new(stream.kind, &scope.namespace, "", "");
    target.select(&scope.label_selector, &scope.field_selector);
    target.query("watch", "true");
    target.query("allowWatchBookmarks", "true");
    target.query("timeoutSeconds", &seconds.to_string());
    match from {
        WatchStart::State(at) => {
            target.query("sendInitialEvents", "true");
            target.query("resourceVersionMatch", "NotOlderThan");
            // Without a revision the server asks its store for the newest one and waits for it.
            if at > Revision(0) {
                target.query("resourceVersion", &at.to_string());
            }
        }
        WatchStart::After(at) => target.query("resourceVersion", &at.to_string()),
    }
    build(Method::GET, &target.0, "", accept, Bytes::new())
}

/// For resources that are not objects: versions, groups, reviews.
pub fn plain(method: Method, path: &str, body: Bytes) -> Result<Outgoing, hyper::http::Error> {
    let content = if body.is_empty() { "" } else { JSON };
    build(method, path, content, JSON, body)
}

/// What to ask for where whole objects would come as `whole`.
pub fn accept(whole: &'static str, metadata_only: bool) -> &'static str {
    if metadata_only { METADATA_JSON } else { whole }
}

fn build(
    method: Method,
    target: &str,
    content: &'static str,
    accept: &'static str,
    body: Bytes,
) -> Result<Outgoing, hyper::http::Error> {
    let mut request = Request::builder().method(method).uri(target).header(USER_AGENT, AGENT).header(ACCEPT, accept);
    // Compressed lists cost the server more than they save on the network.
    request = request.header(ACCEPT_ENCODING, "identity");
    if !content.is_empty() {
        request = request.header(CONTENT_TYPE, content);
    }
    request.body(Full::new(body))
}

/// Path and query.
struct Target(String);

impl Target {
    fn new(kind: Kind, namespace: &str, name: &str, subresource: &str) -> Self {
        let mut path = String::with_capacity(128);
        path.push_str(if kind.group.is_empty() { "/api/" } else { "/apis/" });
        if !kind.group.is_empty() {
            path.push_str(kind.group);
            path.push('/');
        }
        path.push_str(kind.version);
        if kind.namespaced && !namespace.is_empty() {
            path.push_str("/namespaces/");
            escape(namespace, &mut path);
        }
        path.push('/');
        path.push_str(kind.plural);
        for part in [name, subresource].into_iter().filter(|part| !part.is_empty()) {
            path.push('/');
            escape(part, &mut path);
        }
        Self(path)
    }

    /// Empty selectors are left out.
    fn select(&mut self, labels: &str, fields: &str) {
        for (name, selector) in [("labelSelector", labels), ("fieldSelector", fields)] {
            if !selector.is_empty() {
                self.query(name, selector);
            }
        }
    }

    fn query(&mut self, name: &str, value: &str) {
        self.0.push(if self.0.contains('?') { '&' } else { '?' });
        self.0.push_str(name);
        self.0.push('=');
        escape(value, &mut self.0);
    }
}

fn escape(text: &str, into: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            into.push(char::from(byte));
        } else {
            into.push('%');
            into.push(char::from(HEX[usize::from(byte >> 4)]));
            into.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(request: &Outgoing) -> String {
        let content = request.headers().get(CONTENT_TYPE).map_or("", |value| value.to_str().unwrap());
        format!("{} {} {content}", request.method(), request.uri()).trim_end().to_owned()
    }

    #[test]
    fn calls_become_requests() {
        let call = |verb, kind, name| Call::new(verb, kind, "ns", name);
        for (call, expected) in [
            (call(Verb::Create, Kind::POD, "p"), "POST /api/v1/namespaces/ns/pods application/json"),
            (
                call(Verb::Create, Kind::POD, "p").subresource("binding"),
                "POST /api/v1/namespaces/ns/pods/p/binding application/json",
            ),
            (call(Verb::Get, Kind::JOB, "j"), "GET /apis/batch/v1/namespaces/ns/jobs/j"),
            (
                call(Verb::Update, Kind::JOB, "j").subresource("status"),
                "PUT /apis/batch/v1/namespaces/ns/jobs/j/status application/json",
            ),
            (call(Verb::MergePatch, Kind::POD, "p"), "PATCH /api/v1/namespaces/ns/pods/p application/merge-patch+json"),
            (
                call(Verb::StrategicPatch, Kind::POD, "p"),
                "PATCH /api/v1/namespaces/ns/pods/p application/strategic-merge-patch+json",
            ),
            (call(Verb::Delete, Kind::NODE, "a b"), "DELETE /api/v1/nodes/a%20b application/json"),
            (
                Call { label_selector: "a in (b,c)".into(), ..call(Verb::List, Kind::POD, "") },
                "GET /api/v1/namespaces/ns/pods?labelSelector=a%20in%20%28b%2Cc%29&limit=500",
            ),
            (Call::new(Verb::List, Kind::POD, "", ""), "GET /api/v1/pods?limit=500"),
        ] {
            assert_eq!(line(&of_call(&call).unwrap()), expected);
        }
    }

    #[test]
    fn watches_begin_where_they_are_told() {
        let watch = |from| line(&watch(Stream::of(Kind::JOB), &WatchScope::default(), from, 300, JSON).unwrap());
        let common = "GET /apis/batch/v1/jobs?watch=true&allowWatchBookmarks=true&timeoutSeconds=300";
        let state = format!("{common}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
        assert_eq!(watch(WatchStart::State(Revision(0))), state);
        assert_eq!(watch(WatchStart::State(Revision(7))), format!("{state}&resourceVersion=7"));
        assert_eq!(watch(WatchStart::After(Revision(7))), format!("{common}&resourceVersion=7"));
        let scope = WatchScope {
            namespace: "ns".to_owned(),
            label_selector: "a=b".to_owned(),
            field_selector: "metadata.name=j".to_owned(),
        };
        let narrow =
            line(&super::watch(Stream::of(Kind::JOB), &scope, WatchStart::After(Revision(7)), 300, JSON).unwrap());
        let begin =
            "GET /apis/batch/v1/namespaces/ns/jobs?labelSelector=a%3Db&fieldSelector=metadata.name%3Dj&watch=true";
        assert!(narrow.starts_with(begin), "{narrow}");
    }
}
