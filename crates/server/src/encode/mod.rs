//! The response formats: objects, lists, tables, and the `Status` of an error.

pub mod list;
pub mod protobuf;
pub mod yaml;

use std::collections::HashSet;

use bytes::{BufMut, Bytes, BytesMut};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, WARNING};
use hyper::{Response, StatusCode};
use tally_api::kinds::Resource;
use tally_api::options::Format;
use tally_api::status_error::{Details, StatusError};
use tally_api::table::{self, Heading, IncludeObject};
use tally_core::time::Timestamp;
use tally_registry::{Listing, Object};
use tally_value::{Value, json};

use crate::audit::FailureSummary;
use crate::encode::list::{ListForm, ListRenderer, ListSending};
use crate::encode::protobuf::ProtobufList;
use crate::http::body::{Body, List};
use crate::http::negotiate::{self, ResponseFormat, View};

pub type HttpResponse = Response<Body>;

/// The limit for all warnings of a response together, in characters: clients limit headers, and users do not read more.
/// If it is exceeded, each warning is truncated to the second length and as many are sent as fit.
const LONGEST_WARNINGS: usize = 4096;
const LONGEST_OF_MANY: usize = 256;

pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

pub fn answer(code: u16, media_type: &'static str, body: Body) -> HttpResponse {
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    answer
}

pub fn text(code: u16, text: impl Into<Bytes>) -> HttpResponse {
    answer(code, "text/plain; charset=utf-8", Body::Whole(text.into()))
}

/// A document created for this response.
pub fn document(code: u16, value: &Value, response_format: ResponseFormat) -> HttpResponse {
    if response_format.format == Format::Protobuf {
        return match tally_api::protobuf::document(value) {
            Some(bytes) => answer(code, response_format.media_type(), Body::Whole(bytes.into())),
            // Only kinds that can be written in protobuf are offered in it.
            None => failure(&negotiate::only_text(), ResponseFormat::PLAIN),
        };
    }
    answer(code, response_format.media_type(), Body::Whole(document_text(value, response_format).into()))
}

fn document_text(value: &Value, response_format: ResponseFormat) -> String {
    match response_format.format {
        Format::Yaml => yaml::write(value),
        Format::Json | Format::Protobuf if response_format.pretty => format!("{value:#}\n"),
        Format::Json | Format::Protobuf => format!("{value}\n"),
    }
}

pub fn failure(failure: &StatusError, response_format: ResponseFormat) -> HttpResponse {
    let mut answer =
        document(failure.code, &failure.to_json(), ResponseFormat { view: View::Plain, ..response_format });
    let seconds = failure.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if seconds > 0 {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    warn(answer.headers_mut(), &failure.warnings);
    let summary = FailureSummary { reason: failure.reason, message: failure.message.clone() };
    answer.extensions_mut().insert(summary);
    answer
}

/// Nothing is served at this path.
pub fn no_resource() -> StatusError {
    StatusError::new(404, "NotFound", "the server could not find the requested resource").with(Details::default())
}

pub fn no_method() -> StatusError {
    let text = "the server does not allow this method on the requested resource";
    StatusError::new(405, "MethodNotAllowed", text).with(Details::default())
}

/// The operation succeeded and there is no object to return.
pub fn success(resource: &Resource, name: &str, uid: &str) -> Value {
    let mut details = json!({"name": name, "kind": resource.plural, "uid": uid});
    if !resource.group.is_empty() {
        details["group"] = resource.group.into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

pub fn warn(headers: &mut HeaderMap, warnings: &[String]) {
    let mut seen: HashSet<&str> = HashSet::new();
    let told: Vec<&str> = warnings.iter().map(String::as_str).filter(|text| seen.insert(text)).collect();
    let room_for_all = told.iter().map(|text| text.chars().count()).sum::<usize>() <= LONGEST_WARNINGS;
    let longest = if room_for_all { LONGEST_WARNINGS } else { LONGEST_OF_MANY };
    let mut room = LONGEST_WARNINGS;
    for text in told {
        let shown: String = text.chars().filter(|letter| !letter.is_control()).take(longest).collect();
        let Some(left) = room.checked_sub(shown.chars().count()) else { break };
        room = left;
        let quoted = shown.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            headers.append(WARNING, value);
        }
    }
}

/// The encoder: how objects of a resource are shown to this client.
pub struct Encoder<'a> {
    pub resource: &'static Resource,
    /// `apiVersion` and `kind`, where a subresource has another type.
    pub kind: Option<(&'a str, &'a str)>,
    pub response_format: ResponseFormat,
    pub include: IncludeObject,
    pub now: Timestamp,
}

impl Encoder<'_> {
    fn api_version_and_kind(&self) -> (String, &str) {
        match self.kind {
            Some((version, kind)) => (version.to_owned(), kind),
            None => (self.resource.api_version(), self.resource.kind),
        }
    }

    /// `{"kind":"Job","apiVersion":"batch/v1",` with the comma only if something follows.
    fn opening(&self, empty: bool) -> String {
        let (version, kind) = self.api_version_and_kind();
        let comma = if empty { "" } else { "," };
        format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\"{comma}")
    }

    /// The stored text with kind and version in front; nothing is parsed.
    pub fn whole(&self, object: &Object, out: &mut BytesMut) {
        let rest = object.bytes.get(1..).unwrap_or(b"}");
        let opening = self.opening(rest.first() == Some(&b'}'));
        out.reserve(opening.len() + rest.len() + 16);
        out.put_slice(opening.as_bytes());
        out.put_slice(rest);
    }

    /// The object as a value, with kind and version.
    pub fn value(&self, object: &Object) -> Value {
        let mut value: Value = serde_json::from_slice(&object.bytes).unwrap_or_else(|_| json!({}));
        let (version, kind) = self.api_version_and_kind();
        if let Some(map) = value.as_object_mut() {
            map.insert("kind".to_owned(), kind.into());
            map.insert("apiVersion".to_owned(), version.into());
        }
        value
    }

    /// Converts a value to the requested view. `heading`: the table columns that were already sent.
    pub fn view(&self, value: Value, heading: &mut Heading) -> Value {
        match self.response_format.view {
            View::Plain => value,
            // A Status is not converted.
            _ if self.kind == Some(("v1", "Status")) => value,
            View::Table { version } => {
                in_version(heading.table(self.resource, &value, self.include, self.now), version)
            }
            View::Metadata { version, .. } => in_version(table::partial_object_metadata(&value), version),
        }
    }

    pub fn object(&self, code: u16, object: &Object) -> HttpResponse {
        if self.response_format == ResponseFormat::PLAIN {
            let mut text = BytesMut::new();
            self.whole(object, &mut text);
            text.put_u8(b'\n');
            return answer(code, self.response_format.media_type(), Body::Whole(text.freeze()));
        }
        if let (View::Metadata { list: true, .. }, true) =
            (self.response_format.view, self.kind != Some(("v1", "Status")))
        {
            let text = format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                self.go_type("")
            );
            return failure(&StatusError::new(406, "NotAcceptable", text), self.response_format);
        }
        if self.response_format.format == Format::Protobuf {
            return match self.protobuf(object, &mut Heading::default()) {
                Some(bytes) => answer(code, self.response_format.media_type(), Body::Whole(bytes.into())),
                None => failure(&negotiate::only_text(), ResponseFormat::PLAIN),
            };
        }
        document(code, &self.view(self.value(object), &mut Heading::default()), self.response_format)
    }

    pub fn list(&self, listing: Listing, sending: ListSending) -> HttpResponse {
        let metadata = list_metadata(&listing);
        if self.response_format == ResponseFormat::PLAIN {
            let (version, kind) = (self.resource.api_version(), self.resource.kind);
            let head =
                format!("{{\"kind\":\"{kind}List\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":[");
            let list = List::new(head.into(), listing.items, b"]}\n").holding(sending.share);
            return answer(200, self.response_format.media_type(), Body::List(list));
        }
        if let View::Metadata { list: false, .. } = self.response_format.view {
            let text = format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({})",
                self.go_type("List")
            );
            return failure(&StatusError::new(406, "NotAcceptable", text), self.response_format);
        }
        if self.response_format.format == Format::Protobuf {
            return self.protobuf_list(metadata, listing.items, sending);
        }
        let form = ListForm {
            resource: self.resource,
            response_format: self.response_format,
            include: self.include,
            now: self.now,
        };
        let body = ListRenderer::new(form, metadata, listing.items).body(sending);
        answer(200, self.response_format.media_type(), body)
    }

    fn protobuf_list(&self, metadata: Value, items: Vec<Object>, sending: ListSending) -> HttpResponse {
        let (api_version, kind, only_metadata) = match self.response_format.view {
            View::Metadata { version, .. } => (format!("meta.k8s.io/{version}"), "PartialObjectMetadata", true),
            _ => (self.resource.api_version(), self.resource.kind, false),
        };
        let Some(structure) = tally_api::protobuf::structure(&api_version, kind) else {
            return failure(&negotiate::only_text(), ResponseFormat::PLAIN);
        };
        let kind = format!("{kind}List");
        let list = ProtobufList { api_version, kind, metadata, structure, only_metadata, items };
        answer(200, self.response_format.media_type(), list.body(sending))
    }

    /// The object in the requested view, as a whole document in protobuf. `heading` as in `view`.
    pub fn protobuf(&self, object: &Object, heading: &mut Heading) -> Option<Vec<u8>> {
        if self.response_format.view != View::Plain {
            return tally_api::protobuf::document(&self.view(self.value(object), heading));
        }
        let (version, kind) = self.api_version_and_kind();
        let structure = tally_api::protobuf::structure(&version, kind)?;
        Some(tally_api::protobuf::object(structure, &version, kind, &object.parse()))
    }

    /// The Go type that kube-apiserver names in the two errors above.
    fn go_type(&self, suffix: &str) -> String {
        let package = match self.resource.group.split('.').next() {
            None | Some("" | "events") => "core",
            Some(name) => name,
        };
        format!("*{package}.{}{suffix}", self.resource.kind)
    }
}

fn list_metadata(listing: &Listing) -> Value {
    let mut metadata = json!({});
    // What is not stored has none.
    if listing.revision > 0 {
        metadata["resourceVersion"] = listing.revision.to_string().into();
    }
    if !listing.continue_token.is_empty() {
        metadata["continue"] = listing.continue_token.as_str().into();
    }
    if let Some(remaining) = listing.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    metadata
}

/// Tables and metadata are created in `meta.k8s.io/v1`; older clients request `v1beta1`, which is the same under
/// another name.
fn in_version(mut value: Value, version: &str) -> Value {
    if version != "v1" {
        for rows in ["rows", "items"] {
            for row in value.get_mut(rows).and_then(Value::as_array_mut).into_iter().flatten() {
                *row = item_in_version(row.take(), version);
            }
        }
    }
    item_in_version(value, version)
}

/// The same for a row or an item of a list.
fn item_in_version(mut value: Value, version: &str) -> Value {
    fn rename(value: &mut Value, version: &str) {
        if value.get("apiVersion").is_some_and(|version| version == "meta.k8s.io/v1") {
            value["apiVersion"] = format!("meta.k8s.io/{version}").into();
        }
    }
    if version != "v1" {
        rename(&mut value, version);
        if let Some(object) = value.get_mut("object") {
            rename(object, version);
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(warnings: &[&str]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        warn(&mut headers, &warnings.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        let told = headers.get_all(WARNING).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        told.collect()
    }

    #[test]
    fn warnings_are_quoted_and_told_once() {
        let told = warned(&["unknown field \"a\"", "unknown field \"a\"", "b\r\nc\\", "größe"]);
        assert_eq!(told, [r#"299 - "unknown field \"a\"""#, r#"299 - "bc\\""#, "299 - \"größe\""]);
    }

    #[test]
    fn warnings_have_limited_room() {
        let (short, long) = ("y".repeat(LONGEST_OF_MANY), "x".repeat(LONGEST_WARNINGS));
        assert_eq!(warned(&[&long]), [format!("299 - \"{long}\"")]);
        assert_eq!(warned(&[&format!("{long}x")]), [format!("299 - \"{}\"", "x".repeat(LONGEST_OF_MANY))]);
        assert_eq!(warned(&["a", &long, &short]).len(), 3);
        let many: Vec<String> = (0..100).map(|number| format!("{number:0$}", LONGEST_OF_MANY)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(warned(&many).len(), LONGEST_WARNINGS / LONGEST_OF_MANY);
    }
}
