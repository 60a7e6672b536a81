//! What an answer means. Pure.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{DATE, RETRY_AFTER};
use serde::Deserialize;
use serde_json::value::RawValue;
use tally_controllers::controller::{Refusal, Reply, Verb};
use tally_controllers::driver::api::{Response, Trouble};
use tally_core::ids::Revision;
use tally_core::time::Timestamp;

/// Longest text of an answer that is no Status: somebody between us and the server has spoken.
const FOREIGN_TEXT: usize = 200;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    code: u16,
    reason: String,
    message: String,
    details: Option<Details>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    causes: Option<Vec<Cause>>,
    retry_after_seconds: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cause {
    field: String,
    reason: String,
}

/// Everything but lists, which are read page by page.
pub fn response(verb: Verb, code: u16, headers: &HeaderMap, body: Bytes) -> Response {
    let served_at = served_at(headers);
    if (200..300).contains(&code) {
        let is_status = match verb {
            Verb::DeleteCollection => true,
            Verb::Delete => is_status(&body),
            _ => body.starts_with(br#"{"kind":"Status""#),
        };
        let reply = if is_status { Reply::DoneWithStatus } else { Reply::Done(body) };
        return Response { reply, served_at, retry_after: None };
    }
    let (refusal, said) = refusal(code, &body);
    Response { reply: Reply::Refused(refusal), served_at, retry_after: retry_after(headers).or(said) }
}

/// Nothing has left this machine: not done, and certainly so.
pub fn unsent(why: String) -> Response {
    let refusal = Refusal { code: 503, reason: "ServiceUnavailable".to_owned(), message: why, causes: Vec::new() };
    Response { reply: Reply::Refused(refusal), served_at: None, retry_after: None }
}

pub fn unknown() -> Response {
    Response { reply: Reply::Unknown, served_at: None, retry_after: None }
}

pub fn refused(refusal: Refusal, headers: &HeaderMap) -> Response {
    Response { reply: Reply::Refused(refusal), served_at: served_at(headers), retry_after: retry_after(headers) }
}

fn is_status(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(default, borrow)]
        kind: Option<&'a str>,
    }
    serde_json::from_slice::<Object<'_>>(body).is_ok_and(|object| object.kind == Some("Status"))
}

/// A refusal, and after how long the server wants to be asked again.
pub fn refusal(code: u16, body: &[u8]) -> (Refusal, Option<Duration>) {
    let Ok(status) = serde_json::from_slice::<Status>(body) else {
        let text: String = String::from_utf8_lossy(body).chars().take(FOREIGN_TEXT).collect();
        return (Refusal { code, message: text.trim().to_owned(), ..Refusal::default() }, None);
    };
    let details = status.details.unwrap_or_default();
    let causes = details.causes.unwrap_or_default().into_iter().map(|cause| (cause.field, cause.reason));
    let refusal = Refusal { code, reason: status.reason, message: status.message, causes: causes.collect() };
    (refusal, (details.retry_after_seconds > 0).then(|| Duration::from_secs(details.retry_after_seconds)))
}

/// What a Status means that ends a stream, as an answer or as an event of it.
pub fn trouble(code: Option<u16>, body: &[u8]) -> Trouble {
    let code = code.or_else(|| serde_json::from_slice::<Status>(body).ok().map(|status| status.code));
    let (refusal, _) = refusal(code.unwrap_or_default(), body);
    if refusal.code == 410 { Trouble::TooOld } else { Trouble::Refused(refusal) }
}

/// Whether the server does not know how to send a state as part of a watch, or its storage is too old for that: before
/// etcd 3.4.25 it answers that with 500.
pub fn no_streaming_lists(refusal: &Refusal) -> bool {
    let about = |text: &str| text.contains("sendInitialEvents");
    match refusal.code {
        400 | 422 => about(&refusal.message) || refusal.causes.iter().any(|(field, _)| about(field)),
        500 => refusal.message.contains("RequestWatchProgress"),
        _ => false,
    }
}

/// One page of a list: the objects as they came.
#[derive(Debug)]
pub struct Page {
    pub items: Vec<Bytes>,
    pub at: Revision,
    /// What the next page is asked with; "" at the end.
    pub token: String,
}

pub fn page(body: &Bytes) -> Result<Page, String> {
    #[derive(Deserialize)]
    struct List<'a> {
        metadata: Metadata,
        #[serde(default, borrow)]
        items: Option<Vec<&'a RawValue>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        #[serde(default)]
        resource_version: String,
        #[serde(default)]
        r#continue: String,
    }
    let list: List<'_> = serde_json::from_slice(body).map_err(|error| format!("the answer is no list: {error}"))?;
    let at = list.metadata.resource_version.parse();
    let at = at.map_err(|_| format!("the list has no revision but {:?}", list.metadata.resource_version))?;
    let items = list.items.unwrap_or_default().into_iter();
    Ok(Page {
        items: items.map(|item| body.slice_ref(item.get().as_bytes())).collect(),
        at: Revision(at),
        token: list.metadata.r#continue,
    })
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

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn answers_mean_what_they_say() {
        let status = r#"{"kind":"Status","apiVersion":"v1","status":"Success","code":200}"#;
        let object = r#"{"kind":"Pod","metadata":{}}"#;
        for (verb, code, body, expected) in [
            (Verb::Create, 201, object, "Done"),
            (Verb::Delete, 200, object, "Done"),
            (Verb::Delete, 200, status, "DoneWithStatus"),
            (Verb::Create, 201, status, "DoneWithStatus"),
            (Verb::DeleteCollection, 200, r#"{"kind":"PodList"}"#, "DoneWithStatus"),
            (Verb::Get, 404, r#"{"kind":"Status","reason":"NotFound","code":404}"#, "Refused 404 NotFound"),
            (Verb::Get, 502, "<html>bad gateway</html>", "Refused 502 "),
            (Verb::Get, 500, "", "Refused 500 "),
        ] {
            let reply = response(verb, code, &HeaderMap::new(), Bytes::from_static(body.as_bytes())).reply;
            let said = match &reply {
                Reply::Done(bytes) => {
                    assert_eq!(bytes, body);
                    "Done".to_owned()
                }
                Reply::DoneWithStatus => "DoneWithStatus".to_owned(),
                Reply::Refused(refusal) => format!("Refused {} {}", refusal.code, refusal.reason),
                other => format!("{other:?}"),
            };
            assert_eq!(said, expected, "{verb:?} {code} {body}");
        }
    }

    #[test]
    fn clocks_and_patience_are_read() {
        let wait = r#"{"kind":"Status","code":504,"details":{"retryAfterSeconds":2}}"#;
        let answer = |pairs: &[_], body: &'static str| {
            response(Verb::Get, 429, &headers(pairs), Bytes::from_static(body.as_bytes()))
        };
        let said = answer(&[("date", "Fri, 02 Jan 1970 00:00:01 GMT"), ("retry-after", "3")], "");
        assert_eq!(said.served_at, Some(Timestamp::from_seconds(86_401)));
        assert_eq!(said.retry_after, Some(Duration::from_secs(3)));
        assert_eq!(answer(&[("retry-after", "soon")], wait).retry_after, Some(Duration::from_secs(2)));
        assert_eq!(answer(&[("date", "never")], "{}").served_at, None);
    }

    #[test]
    fn causes_are_kept() {
        let body = br#"{"kind":"Status","reason":"Invalid","message":"no","code":422,
            "details":{"causes":[{"reason":"FieldValueForbidden","message":"x","field":"sendInitialEvents"}]}}"#;
        let (refusal, _) = refusal(422, body);
        assert_eq!(refusal.causes, [("sendInitialEvents".to_owned(), "FieldValueForbidden".to_owned())]);
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
        let expired = br#"{"kind":"Status","reason":"Expired","code":410}"#;
        assert!(matches!(trouble(None, expired), Trouble::TooOld));
        assert!(matches!(trouble(Some(410), b"gone"), Trouble::TooOld));
        let other = trouble(None, br#"{"kind":"Status","reason":"InternalError","code":500}"#);
        assert!(matches!(other, Trouble::Refused(refusal) if refusal.code == 500));
    }

    #[test]
    fn pages_are_cut_not_copied() {
        let body = Bytes::from_static(
            br#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"t"},"items":[{"a":1}, {"b":[2]}]}"#,
        );
        let cut = page(&body).unwrap();
        assert_eq!((cut.at, cut.token.as_str()), (Revision(7), "t"));
        assert_eq!(cut.items, [r#"{"a":1}"#, r#"{"b":[2]}"#]);
        let empty = page(&Bytes::from_static(br#"{"metadata":{"resourceVersion":"9"},"items":null}"#)).unwrap();
        assert!(empty.items.is_empty() && empty.token.is_empty());
        for broken in ["", "{}", r#"{"metadata":{},"items":[]}"#, r#"{"metadata":{"resourceVersion":"x"}}"#] {
            assert!(page(&Bytes::from_static(broken.as_bytes())).is_err(), "{broken}");
        }
    }
}
