//! In which form objects come and go: JSON, or protobuf, which costs an API server less to read and to write (decision 0014).
//!
//! The schema of `tally-api` is older than some server: a field that it does not contain is lost when an object is read from
//! protobuf. So only kinds are read in protobuf whose objects nobody writes back, whole or in part ([`IN_PROTOBUF`]), and an
//! object is created in protobuf only if all of it can be written. What the server sent is read by the `Content-Type` of
//! its response, whatever it was asked for.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::CONTENT_TYPE;
use tally_api::protobuf;
use tally_api::schema::Struct;
use tally_runtime::controller::{Body, Call, Kind, Object, Verb};
use tally_value::{Map, SharedView, Value};

pub const JSON: &str = "application/json";
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// What clients of the reference send, for watches too. A server without protobuf takes the second.
pub const PROTOBUF_OR_JSON: &str = "application/vnd.kubernetes.protobuf,application/json";

/// The kinds that are read in protobuf.
///
/// Not Jobs: a Pod is made of the template of its Job, and has the fields that a newer server put there. Not Leases: their
/// holder writes them whole.
const IN_PROTOBUF: [Kind; 2] = [Kind::POD, Kind::EVENT];

/// In which form objects are read and created. Patches are JSON in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentType {
    #[default]
    Json,
    /// Protobuf is asked for, and sent once the server has answered in it.
    Auto,
    /// Protobuf is sent from the beginning.
    Protobuf,
}

/// What was chosen, and what the server has shown of itself.
pub struct Content {
    chosen: ContentType,
    asks_for_protobuf: AtomicBool,
    sends: AtomicU8,
}

/// The server has not answered in protobuf yet.
const UNKNOWN: u8 = 0;
const ACCEPTED: u8 = 1;
const REFUSED: u8 = 2;

/// How a request is written, and what is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    pub accept: &'static str,
    /// The body in protobuf. None: it is sent as it is.
    pub document: Option<Bytes>,
}

impl Form {
    pub const JSON: Self = Self { accept: JSON, document: None };
}

impl Content {
    pub fn new(chosen: ContentType) -> Self {
        let sends = if chosen == ContentType::Protobuf { ACCEPTED } else { UNKNOWN };
        let asks_for_protobuf = AtomicBool::new(chosen != ContentType::Json);
        Self { chosen, asks_for_protobuf, sends: AtomicU8::new(sends) }
    }

    /// Whether the objects of a kind may be read in protobuf, by this or by an earlier request.
    pub fn may_read(&self, kind: Kind) -> bool {
        self.chosen != ContentType::Json && IN_PROTOBUF.contains(&kind)
    }

    /// What to ask for when objects of a kind are read.
    pub fn accept(&self, kind: Kind) -> &'static str {
        let asks = self.may_read(kind) && self.asks_for_protobuf.load(Ordering::Relaxed);
        if asks { PROTOBUF_OR_JSON } else { JSON }
    }

    /// The form of a request that is no list.
    pub fn form(&self, call: &Call) -> Form {
        // The deletion of a collection is answered with a list, of which nothing is needed.
        let accept = if call.verb == Verb::DeleteCollection { JSON } else { self.accept(call.kind) };
        let sends = accept != JSON && self.sends.load(Ordering::Relaxed) == ACCEPTED;
        let creates = call.verb == Verb::Create && call.subresource.is_empty();
        let document = if sends && creates { document(call) } else { None };
        Form { accept, document }
    }

    /// The server has sent an object in protobuf, which could be read.
    pub fn was_answered_in_protobuf(&self) {
        if self.sends.load(Ordering::Relaxed) != UNKNOWN {
            // A refusal counts for good: the next answer may come from another server of the cluster.
            return;
        }
        if self.sends.compare_exchange(UNKNOWN, ACCEPTED, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            tracing::info!("the server has protobuf: Pods and Events are exchanged in it, everything else as JSON");
        }
    }

    /// The server does not accept bodies in protobuf (415).
    pub fn was_not_accepted(&self) {
        if self.sends.swap(REFUSED, Ordering::Relaxed) != REFUSED {
            tracing::info!("the server does not accept protobuf: objects are sent as JSON");
        }
    }

    /// The server's answers in protobuf are of no use: it refuses to send it (406), or what it sent cannot be read.
    pub fn read_json_only(&self, why: &str) {
        if self.asks_for_protobuf.swap(false, Ordering::Relaxed) {
            tracing::warn!("objects are read as JSON from now on, and no longer as protobuf: {why}");
        }
    }
}

/// The body of a creation in protobuf, if nothing of it is lost.
fn document(call: &Call) -> Option<Bytes> {
    let mut tree = match &call.body {
        Body::Tree(tree) => tree.clone(),
        Body::Text(text) => serde_json::from_slice(text).ok()?,
    };
    // The envelope names the kind, also of a body that leaves that to the path.
    let (api_version, object) = (call.kind.api_version(), tree.as_object_mut()?);
    for (field, expected) in [("apiVersion", api_version.as_str()), ("kind", call.kind.kind)] {
        match object.get(field) {
            None => drop(object.insert(field, expected.into())),
            Some(given) if given == expected => {}
            Some(_) => return None,
        }
    }
    protobuf::exact_document(&tree).map(Bytes::from)
}

/// Why a body that claims to be protobuf cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ProtobufError {
    #[error("the protobuf cannot be read: {0}")]
    Message(String),
    #[error("the protobuf has an object of the unknown kind {kind} of {api_version}")]
    Kind { api_version: String, kind: String },
}

/// Whether a response is protobuf, of an object or of a stream.
pub fn is_protobuf(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    media.split(';').next().is_some_and(|media| media.trim().eq_ignore_ascii_case(PROTOBUF))
}

/// The object of a document, as the server would have written it in JSON.
pub fn read_document(body: &[u8]) -> Result<Object, ProtobufError> {
    let envelope = protobuf::envelope(body).map_err(ProtobufError::Message)?;
    let structure = structure(envelope.api_version, envelope.kind)?;
    let mut object = protobuf::read_shown(structure, envelope.raw).map_err(ProtobufError::Message)?;
    object.insert("apiVersion", envelope.api_version.into());
    object.insert("kind", envelope.kind.into());
    Ok(with_text(object))
}

/// A list as it came.
pub struct List {
    pub kind: String,
    pub metadata: Map,
    pub items: Vec<Object>,
}

pub fn read_list(body: &[u8]) -> Result<List, ProtobufError> {
    let envelope = protobuf::envelope(body).map_err(ProtobufError::Message)?;
    let kind = envelope.kind.to_owned();
    let Some(item) = kind.strip_suffix("List") else {
        return Ok(List { kind, metadata: Map::new(), items: Vec::new() });
    };
    let structure = structure(envelope.api_version, item)?;
    let mut list = protobuf::read_list(envelope.raw).map_err(ProtobufError::Message)?;
    let items = list.read_items(structure).map(|item| item.map(with_text)).collect::<Result<_, _>>();
    let items = items.map_err(ProtobufError::Message)?;
    Ok(List { metadata: std::mem::take(&mut list.metadata), items, kind })
}

fn structure(api_version: &str, kind: &str) -> Result<&'static Struct, ProtobufError> {
    let unknown = || ProtobufError::Kind { api_version: api_version.to_owned(), kind: kind.to_owned() };
    protobuf::structure(api_version, kind).ok_or_else(unknown)
}

/// Its readers get the same from the text as from the tree, and most read the tree.
fn with_text(object: Map) -> Object {
    let tree = Value::Object(object);
    let mut text = Vec::with_capacity(2048);
    tree.write_to(&mut text);
    Object::shared(text.into(), Some(tree), SharedView::default())
}

#[cfg(test)]
mod tests {
    use tally_value::json;

    use super::*;

    fn pod() -> Value {
        json!({
            "metadata": {"name": "p", "labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]},
        })
    }

    fn create(kind: Kind, body: &Value) -> Call {
        Call::new(Verb::Create, kind, "ns", "p").body(body)
    }

    fn told(chosen: ContentType) -> Content {
        let content = Content::new(chosen);
        content.was_answered_in_protobuf();
        content
    }

    #[test]
    fn protobuf_is_sent_once_the_server_has_answered_in_it() {
        let auto = Content::new(ContentType::Auto);
        let call = create(Kind::POD, &pod());
        assert_eq!(auto.form(&call), Form { accept: PROTOBUF_OR_JSON, document: None });
        auto.was_answered_in_protobuf();
        assert!(auto.form(&call).document.is_some());
        // A refusal counts for good.
        auto.was_not_accepted();
        auto.was_answered_in_protobuf();
        assert_eq!(auto.form(&call), Form { accept: PROTOBUF_OR_JSON, document: None });
        auto.read_json_only("");
        assert_eq!(auto.form(&call), Form::JSON);

        assert!(Content::new(ContentType::Protobuf).form(&call).document.is_some());
        assert_eq!(told(ContentType::Json).form(&call), Form::JSON);
    }

    #[test]
    fn only_creations_of_kinds_that_nobody_writes_back_are_in_protobuf() {
        let content = told(ContentType::Auto);
        let form = |call: &Call| {
            let form = content.form(call);
            (form.accept != JSON, form.document.is_some())
        };
        let pod = pod();
        let call = |verb, kind| Call::new(verb, kind, "ns", "p").body(&pod);
        for (call, expected) in [
            (call(Verb::Create, Kind::POD), (true, true)),
            (call(Verb::Create, Kind::POD).subresource("binding"), (true, false)),
            (call(Verb::Get, Kind::POD), (true, false)),
            (call(Verb::MergePatch, Kind::POD), (true, false)),
            (call(Verb::StrategicPatch, Kind::POD), (true, false)),
            (call(Verb::Delete, Kind::POD), (true, false)),
            (call(Verb::DeleteCollection, Kind::POD), (false, false)),
            (call(Verb::Create, Kind::JOB), (false, false)),
            (call(Verb::Get, Kind::JOB), (false, false)),
            (call(Verb::MergePatch, Kind::JOB), (false, false)),
            (call(Verb::Update, Kind::LEASE), (false, false)),
            (call(Verb::Get, Kind::NODE), (false, false)),
        ] {
            assert_eq!(form(&call), expected, "{call:?}");
        }
    }

    #[test]
    fn a_body_is_sent_in_protobuf_if_nothing_of_it_is_lost() {
        let content = told(ContentType::Auto);
        let sent = |body: &Value| content.form(&create(Kind::POD, body)).document;
        let with = |change: fn(&mut Value)| {
            let mut body = pod();
            change(&mut body);
            body
        };
        let whole = sent(&pod()).expect("all of it can be written");
        let read = read_document(&whole).unwrap().parse();
        assert_eq!((&read["apiVersion"], &read["kind"]), (&json!("v1"), &json!("Pod")));
        assert_eq!(read["spec"]["containers"][0]["resources"]["requests"]["cpu"], "100m");
        // The same with the kind, as a text, and with a value that the wire form leaves out.
        let named = with(|pod| {
            pod["apiVersion"] = "v1".into();
            pod["kind"] = "Pod".into();
        });
        assert_eq!(sent(&named), Some(whole.clone()));
        let text = Call { body: Body::Text(pod().to_string().into()), ..create(Kind::POD, &pod()) };
        assert_eq!(content.form(&text).document, Some(whole.clone()));
        assert_eq!(sent(&with(|pod| pod["spec"]["hostNetwork"] = false.into())), Some(whole));
        for lossy in [
            with(|pod| pod["frob"] = 1.into()),
            with(|pod| pod["spec"]["fieldOfANewerServer"] = "x".into()),
            with(|pod| pod["spec"]["containers"][0]["frob"] = json!({})),
            with(|pod| pod["spec"]["priority"] = 5_000_000_000_i64.into()),
            with(|pod| pod["spec"]["hostNetwork"] = "yes".into()),
            with(|pod| pod["metadata"]["labels"]["a"] = 7.into()),
            with(|pod| pod["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00.5Z".into()),
            with(|pod| pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "many".into()),
            with(|pod| pod["kind"] = "Job".into()),
            json!([]),
            Value::Null,
        ] {
            assert_eq!(sent(&lossy), None, "{lossy}");
        }
    }

    #[test]
    fn the_form_of_a_response_is_what_it_says() {
        let headers = |text: &str| HeaderMap::from_iter([(CONTENT_TYPE, text.parse().unwrap())]);
        for (text, expected) in [
            (PROTOBUF, true),
            ("application/vnd.kubernetes.protobuf;stream=watch", true),
            ("Application/vnd.kubernetes.protobuf ; stream=watch", true),
            (JSON, false),
            ("text/html", false),
            ("application/vnd.kubernetes.protobuffer", false),
        ] {
            assert_eq!(is_protobuf(&headers(text)), expected, "{text}");
        }
        assert!(!is_protobuf(&HeaderMap::new()));
    }
}
