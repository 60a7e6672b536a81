//! What responses mean beyond the outcome of one request. Pure.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{DATE, RETRY_AFTER};
use serde::Deserialize;
use serde_json::value::RawValue;
use tally_core::ids::Revision;
use tally_core::time::Timestamp;
use tally_runtime::controller::{Call, Object, Refusal, Reply};
use tally_runtime::driver::api::{Response, WatchError};
use tally_runtime::response::{Interpreted, Status, interpret, interpret_refusal};

use crate::content::{self, ProtobufError};

/// The maximum length of text that a message quotes from a response that is not a Status.
const FOREIGN_TEXT: usize = 200;

/// For every request except lists, which are read page by page.
pub fn response(call: &Call, code: u16, headers: &HeaderMap, body: &Object) -> (Response, Option<String>) {
    with_clock(interpret(call, code, retry_after(headers), body), headers)
}

/// For a page that was refused.
pub fn refused(call: &Call, code: u16, headers: &HeaderMap, body: &[u8]) -> (Response, Option<String>) {
    with_clock(interpret_refusal(call, code, retry_after(headers), body), headers)
}

/// The second value: why the response was not accepted as the API server's own.
fn with_clock(interpreted: Interpreted, headers: &HeaderMap) -> (Response, Option<String>) {
    let Interpreted { reply, retry_after, disbelieved } = interpreted;
    (Response { reply, served_at: served_at(headers), retry_after }, disbelieved)
}

/// Nothing was sent: the request was certainly not carried out.
pub fn unsent(why: String) -> Response {
    let refusal = Refusal { code: 503, reason: "ServiceUnavailable".to_owned(), message: why, causes: Vec::new() };
    Response { reply: Reply::Refused(refusal), served_at: None, retry_after: None }
}

/// The request was not sent: it would write an object as a whole that may have lost fields when it was read.
pub fn lossy(call: &Call) -> Response {
    let message = format!(
        "{} are read in protobuf, where fields of a newer server are lost, so that they must be changed by patches",
        call.kind.plural
    );
    let refusal = Refusal { code: 400, reason: "BadRequest".to_owned(), message, causes: Vec::new() };
    Response { reply: Reply::Refused(refusal), served_at: None, retry_after: None }
}

pub fn unknown() -> Response {
    Response { reply: Reply::Unknown, served_at: None, retry_after: None }
}

/// What a Status means that ends a stream: it is the response to the request, or an event of the stream (`code` None).
pub fn trouble(code: Option<u16>, body: &[u8]) -> WatchError {
    let Some(status) = Status::read(body) else {
        let text = String::from_utf8_lossy(body).chars().take(FOREIGN_TEXT).collect();
        return WatchError::Refused(Refusal { code: code.unwrap_or_default(), message: text, ..Refusal::default() });
    };
    let code = code.unwrap_or(status.code);
    // An expired watch is started again from the state, and only the server knows whether it expired.
    if code == 410 && status.is_expired() { WatchError::TooOld } else { WatchError::Refused(status.refusal(code)) }
}

/// Whether the server cannot send the state as part of a watch, or its storage is too old for that: before etcd 3.4.25
/// it responds with 500.
pub fn no_streaming_lists(refusal: &Refusal) -> bool {
    let about = |text: &str| text.contains("sendInitialEvents");
    match refusal.code {
        400 | 422 => about(&refusal.message) || refusal.causes.iter().any(|(field, _)| about(field)),
        500 => refusal.message.contains("RequestWatchProgress"),
        _ => false,
    }
}

/// One page of a list: the objects as received.
#[derive(Debug)]
pub struct Page {
    pub items: Vec<Object>,
    pub at: Revision,
    /// The token with which the next page is requested; "" at the end.
    pub token: String,
}

/// Why the body of a response is no list.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    #[error("the answer is no list: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Protobuf(#[from] ProtobufError),
    #[error("the answer is no list but a {0}")]
    Kind(String),
    #[error("the list has no revision but {0:?}")]
    Revision(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    r#continue: String,
}

impl Page {
    fn new(kind: &str, metadata: ListMetadata, items: Vec<Object>) -> Result<Self, ListError> {
        if !kind.ends_with("List") {
            return Err(ListError::Kind(kind.to_owned()));
        }
        let at = metadata.resource_version.parse();
        let at = at.map_err(|_| ListError::Revision(metadata.resource_version))?;
        Ok(Self { items, at: Revision(at), token: metadata.r#continue })
    }
}

/// In the form that the headers name.
pub fn page(headers: &HeaderMap, body: &Bytes) -> Result<Page, ListError> {
    if content::is_protobuf(headers) { page_of_protobuf(body) } else { page_of_json(body) }
}

pub fn page_of_json(body: &Bytes) -> Result<Page, ListError> {
    #[derive(Deserialize)]
    struct List<'a> {
        kind: &'a str,
        metadata: ListMetadata,
        #[serde(default, borrow)]
        items: Option<Vec<&'a RawValue>>,
    }
    let list: List<'_> = serde_json::from_slice(body)?;
    let items = list.items.unwrap_or_default().into_iter();
    let items = items.map(|item| body.slice_ref(item.get().as_bytes()).into()).collect();
    Page::new(list.kind, list.metadata, items)
}

fn page_of_protobuf(body: &Bytes) -> Result<Page, ListError> {
    let list = content::read_list(body)?;
    let metadata = ListMetadata::deserialize(&tally_value::Value::Object(list.metadata))?;
    Page::new(&list.kind, metadata, list.items)
}

pub fn served_at(headers: &HeaderMap) -> Option<Timestamp> {
    let at = httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()?;
    let since = at.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp::from_seconds(i64::try_from(since.as_secs()).ok()?))
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use tally_runtime::controller::{Kind, Verb};

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn clocks_and_patience_are_read() {
        let wait = r#"{"kind":"Status","apiVersion":"v1","code":429,"details":{"retryAfterSeconds":2}}"#;
        let answer = |pairs: &[_], body: &'static str| {
            let call = Call::new(Verb::Get, Kind::POD, "ns", "p");
            response(&call, 429, &headers(pairs), &body.into()).0
        };
        let said = answer(&[("date", "Fri, 02 Jan 1970 00:00:01 GMT"), ("retry-after", "3")], "");
        assert_eq!(said.served_at, Some(Timestamp::from_seconds(86_401)));
        assert_eq!(said.retry_after, Some(Duration::from_secs(3)));
        assert_eq!(answer(&[("retry-after", "soon")], wait).retry_after, Some(Duration::from_secs(2)));
        assert_eq!(answer(&[("date", "never")], "{}").served_at, None);
    }

    #[test]
    fn servers_that_stream_no_lists_are_known_by_what_they_say() {
        let body = br#"{"kind":"Status","apiVersion":"v1","reason":"Invalid","message":"no","code":422,
            "details":{"causes":[{"reason":"FieldValueForbidden","message":"x","field":"sendInitialEvents"}]}}"#;
        let WatchError::Refused(refusal) = trouble(Some(422), body) else { panic!("refused") };
        assert!(no_streaming_lists(&refusal));
        assert!(!no_streaming_lists(&Refusal { code: 403, ..refusal.clone() }));
        assert!(!no_streaming_lists(&Refusal { code: 422, ..Refusal::default() }));
        let message = "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled";
        assert!(no_streaming_lists(&Refusal { code: 500, message: message.to_owned(), ..Refusal::default() }));
        assert!(!no_streaming_lists(&Refusal {
            code: 500,
            message: "etcdserver: no leader".to_owned(),
            ..Refusal::default()
        }));
    }

    #[test]
    fn a_stream_that_is_too_old_is_told_apart() {
        let expired = br#"{"kind":"Status","apiVersion":"v1","reason":"Expired","code":410}"#;
        assert!(matches!(trouble(None, expired), WatchError::TooOld));
        assert!(matches!(trouble(Some(410), expired), WatchError::TooOld));
        let other = trouble(None, br#"{"kind":"Status","apiVersion":"v1","reason":"InternalError","code":500}"#);
        assert!(matches!(other, WatchError::Refused(refusal) if refusal.code == 500));
        let proxy = trouble(Some(410), b"<html>gone</html>");
        assert!(matches!(proxy, WatchError::Refused(refusal) if refusal.code == 410), "no server says that");
    }

    #[test]
    fn pages_are_cut_not_copied() {
        let body = Bytes::from_static(
            br#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"t"},"items":[{"a":1}, {"b":[2]}]}"#,
        );
        let cut = page_of_json(&body).unwrap();
        assert_eq!((cut.at, cut.token.as_str()), (Revision(7), "t"));
        assert_eq!(cut.items, [r#"{"a":1}"#, r#"{"b":[2]}"#].map(Object::from));
        let empty =
            page_of_json(&Bytes::from_static(br#"{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":null}"#))
                .unwrap();
        assert!(empty.items.is_empty() && empty.token.is_empty());
        for broken in [
            "",
            "{}",
            r#"{"kind":"PodList","metadata":{},"items":[]}"#,
            r#"{"kind":"PodList","metadata":{"resourceVersion":"x"}}"#,
            r#"{"kind":"Status","metadata":{"resourceVersion":"9"}}"#,
        ] {
            assert!(page_of_json(&Bytes::from_static(broken.as_bytes())).is_err(), "{broken}");
        }
    }
}
