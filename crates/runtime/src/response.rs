//! What an HTTP response to a request means. Pure: the client of a real API server and the simulator both use it.
//!
//! Between a controller and its API server there may be proxies and load balancers, which send responses of their own:
//! a 404 because no route matches, a 503 after the server has applied the write. A 404 that is believed counts a Pod or
//! releases it, so only the API server's own response counts: a Status object with the reason that belongs to the code
//! and details that name the object of the request. Every other response leaves the outcome of a write unknown, and the
//! controller determines it by reading or by sending the same request again.
//!
//! | code | means | if |
//! |---|---|---|
//! | 2xx | done | the body is the object, or the Status that belongs to such a request |
//! | 404 | no such object | Status `NotFound` about the object |
//! | 404 | refused: no such namespace | Status `NotFound` about the namespace, for a creation |
//! | 409 | name taken, or changed meanwhile | Status `AlreadyExists` or `Conflict` about the object |
//! | 410 | revision no longer kept | Status `Expired` or `Gone` |
//! | 422 | refused: invalid | Status `Invalid` about the object |
//! | 503 | refused: not now | Status `ServiceUnavailable` |
//! | other 4xx | refused | always: the request was not admitted |
//! | any | refused: denied by an admission webhook, with any code that the webhook chose | a Status that says so |
//! | else | unknown for a write, unavailable for a read | |

use std::time::Duration;

use compact_str::CompactString;
use serde::Deserialize;

use crate::controller::{Call, Object, Refusal, Reply, Verb};

/// The maximum length of text that a message quotes from a response that is not a Status.
const FOREIGN_TEXT: usize = 200;

/// How a message of the API server begins if a webhook has denied the request.
const DENIED_BY_WEBHOOK: &str = "admission webhook \"";

/// The outcome of a request, and the delay after which the server accepts a retry.
#[derive(Clone, Debug)]
pub struct Interpreted {
    pub reply: Reply,
    pub retry_after: Option<Duration>,
    /// Why the response was not accepted as the API server's own.
    pub disbelieved: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    api_version: String,
    kind: String,
    status: String,
    pub code: u16,
    reason: String,
    message: String,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    name: String,
    group: String,
    kind: String,
    causes: Option<Vec<Cause>>,
    retry_after_seconds: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cause {
    field: String,
    reason: String,
}

impl Status {
    /// None: the body is not a Status.
    pub fn read(body: &[u8]) -> Option<Self> {
        let status: Self = serde_json::from_slice(body).ok()?;
        (status.kind == "Status" && status.api_version == "v1").then_some(status)
    }

    /// The server no longer has the requested revision.
    pub fn is_expired(&self) -> bool {
        matches!(self.reason.as_str(), "Expired" | "Gone")
    }

    fn retry_after(&self) -> Option<Duration> {
        let seconds = self.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    pub fn refusal(self, code: u16) -> Refusal {
        let causes = self.details.and_then(|details| details.causes).unwrap_or_default();
        let causes = causes.into_iter().map(|cause| (cause.field, cause.reason)).collect();
        Refusal { code, reason: self.reason, message: self.message, causes }
    }
}

/// The response to any request except a list, which is read page by page. `retry_after` is from the header.
pub fn interpret(call: &Call, code: u16, retry_after: Option<Duration>, body: &Object) -> Interpreted {
    if (200..300).contains(&code) {
        return match done(call, body) {
            Some(reply) => Interpreted { reply, retry_after: None, disbelieved: None },
            None => doubt(call, code, None, body),
        };
    }
    interpret_refusal(call, code, retry_after, body)
}

/// The response to a request that was not carried out, according to the code.
pub fn interpret_refusal(call: &Call, code: u16, retry_after: Option<Duration>, body: &[u8]) -> Interpreted {
    let status = Status::read(body);
    let retry_after = retry_after.or_else(|| status.as_ref().and_then(Status::retry_after));
    let believed = |refusal| Interpreted { reply: Reply::Refused(refusal), retry_after, disbelieved: None };
    match status {
        Some(status) if status.message.starts_with(DENIED_BY_WEBHOOK) => {
            // The webhook chooses code and reason, and they say nothing about the object.
            believed(Refusal { reason: "Forbidden".to_owned(), ..status.refusal(403) })
        }
        Some(status) if confirms(call, code, &status) => believed(status.refusal(code)),
        status if is_turned_away(code) => believed(match status {
            Some(status) => status.refusal(code),
            None => Refusal { code, message: shown(body), ..Refusal::default() },
        }),
        _ => doubt(call, code, retry_after, body),
    }
}

/// Whether the server refuses the form of a request (415) or of its answer (406), and not the object in it: an admission
/// webhook chooses the code of its denial, and the reason too. A response that is no Status counts: whichever server or
/// proxy sends it does not take the form either.
pub fn refuses_form(code: u16, body: &[u8]) -> bool {
    matches!(code, 406 | 415)
        && Status::read(body).is_none_or(|status| {
            matches!(status.reason.as_str(), "" | "NotAcceptable" | "UnsupportedMediaType")
                && !status.message.starts_with(DENIED_BY_WEBHOOK)
        })
}

/// Codes that mean that the request was not admitted, whichever server or proxy sends them. None sends them after the
/// write.
fn is_turned_away(code: u16) -> bool {
    (400..500).contains(&code) && !matches!(code, 404 | 408 | 409 | 410 | 422)
}

/// Whether the API server sends such a Status with this code about the object of the request.
fn confirms(call: &Call, code: u16, status: &Status) -> bool {
    let nothing = Details::default();
    let details = status.details.as_ref().unwrap_or(&nothing);
    let about = Named { group: &details.group, kind: &details.kind, name: &details.name };
    match (code, status.reason.as_str()) {
        // A creation is also refused if its namespace is missing.
        (404, "NotFound") => about.resource(call) || (call.verb == Verb::Create && about.namespace_of(call)),
        (409, "AlreadyExists") => about.resource(call),
        // If a precondition does not hold, the Status names the kind, and for a binding the subresource.
        (409, "Conflict") => about.resource(call) || about.kind(call) || about.subresource(call),
        (410, _) => status.is_expired(),
        // Validation names the kind, and admission policies the resource.
        (422, "Invalid") => about.kind(call) || about.resource(call),
        (503, "ServiceUnavailable") => true,
        _ => false,
    }
}

/// What the details of a Status name.
struct Named<'a> {
    group: &'a str,
    kind: &'a str,
    name: &'a str,
}

impl Named<'_> {
    fn object(&self, call: &Call) -> bool {
        self.group == call.kind.group && expected_name(call).is_none_or(|name| self.name == name)
    }

    fn resource(&self, call: &Call) -> bool {
        self.kind == call.kind.plural && self.object(call)
    }

    fn kind(&self, call: &Call) -> bool {
        self.kind == call.kind.kind && self.object(call)
    }

    fn subresource(&self, call: &Call) -> bool {
        self.kind.split_once('/') == Some((call.kind.plural, call.subresource)) && self.object(call)
    }

    fn namespace_of(&self, call: &Call) -> bool {
        self.group.is_empty() && self.kind == "namespaces" && self.name == call.namespace
    }
}

#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: CompactString,
    namespace: CompactString,
}

/// None for an object whose name the server chooses.
fn expected_name(call: &Call) -> Option<CompactString> {
    if !call.name.is_empty() {
        return Some(call.name.clone());
    }
    let head: Head = serde_json::from_slice(&call.body.text()).ok()?;
    Some(head.metadata.name).filter(|name| !name.is_empty())
}

/// None: the server does not respond to such a request with this body.
fn done(call: &Call, body: &Object) -> Option<Reply> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Shown {
        api_version: CompactString,
        kind: CompactString,
        #[serde(default)]
        metadata: Metadata,
    }
    let object: Shown = body.read().ok()?;
    if object.kind == "Status" {
        let status = Status::read(body).filter(|status| status.status == "Success")?;
        let details = status.details.unwrap_or_default();
        let about = Named { group: &details.group, kind: &details.kind, name: &details.name };
        let expected = match call.verb {
            Verb::Delete => about.resource(call),
            Verb::DeleteCollection => true,
            // A binding is carried out and not stored.
            Verb::Create => !call.subresource.is_empty(),
            _ => false,
        };
        return expected.then_some(Reply::DoneWithStatus);
    }
    let version = object.api_version == call.kind.api_version();
    if call.verb == Verb::DeleteCollection {
        let list = object.kind.strip_suffix("List") == Some(call.kind.kind);
        return (version && list).then_some(Reply::DoneWithStatus);
    }
    let same = version
        && object.kind == call.kind.kind
        && (!call.kind.namespaced || object.metadata.namespace == call.namespace)
        && expected_name(call).is_none_or(|name| object.metadata.name == name);
    same.then(|| Reply::Done(body.clone()))
}

/// The outcome of a write is unknown; a read has failed.
fn doubt(call: &Call, code: u16, retry_after: Option<Duration>, body: &[u8]) -> Interpreted {
    let why = format!("response {code} does not say what became of the request: {}", shown(body));
    if !matches!(call.verb, Verb::Get | Verb::List) {
        return Interpreted { reply: Reply::Unknown, retry_after: None, disbelieved: Some(why) };
    }
    // Server errors are passed on unchanged: they claim nothing about the object.
    let code = if (500..600).contains(&code) { code } else { 503 };
    let (reason, message) = ("ServiceUnavailable".to_owned(), why.clone());
    let refusal = Refusal { code, reason, message, causes: Vec::new() };
    Interpreted { reply: Reply::Refused(refusal), retry_after, disbelieved: Some(why) }
}

/// The beginning of a body that is not a Status, or the message of a Status.
fn shown(body: &[u8]) -> String {
    if let Some(status) = Status::read(body) {
        return status.message;
    }
    let text: String = String::from_utf8_lossy(body).chars().take(FOREIGN_TEXT).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::controller::Kind;

    const HTML: &str = "<html><body>default backend - 404</body></html>";

    fn status(code: u16, reason: &str, details: Value) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "m",
            "reason": reason, "details": details, "code": code,
        })
    }

    fn said(call: &Call, code: u16, body: &str) -> String {
        let interpreted = interpret(call, code, None, &Object::from(body.to_owned()));
        let believed = interpreted.disbelieved.is_none();
        match interpreted.reply {
            Reply::Done(bytes) => {
                assert!(believed && *bytes == body);
                "done".to_owned()
            }
            Reply::DoneWithStatus => "status".to_owned(),
            Reply::Refused(refusal) if believed => format!("{} {}", refusal.code, refusal.reason).trim_end().to_owned(),
            Reply::Refused(refusal) => format!("unavailable {}", refusal.code),
            Reply::Unknown => {
                assert!(!believed);
                "unknown".to_owned()
            }
            Reply::Listed { .. } => unreachable!("no list was asked for"),
        }
    }

    fn pod(verb: Verb) -> Call {
        Call::new(verb, Kind::POD, "ns", "p")
    }

    fn create() -> Call {
        Call::new(Verb::Create, Kind::POD, "ns", "").body(&json!({"metadata": {"name": "p"}}))
    }

    fn job_status() -> Call {
        Call::new(Verb::MergePatch, Kind::JOB, "ns", "j").subresource("status")
    }

    fn binding() -> Call {
        Call::new(Verb::Create, Kind::POD, "ns", "p").subresource("binding")
    }

    #[test]
    fn only_the_servers_own_refusals_are_believed() {
        let about_pod = json!({"kind": "pods", "name": "p"});
        let about_kind = json!({"kind": "Pod", "name": "p"});
        let about_job = json!({"kind": "jobs", "group": "batch", "name": "j"});
        let about_namespace = json!({"kind": "namespaces", "name": "ns"});
        let (get, patch, delete) = (pod(Verb::Get), pod(Verb::StrategicPatch), pod(Verb::Delete));
        for (call, code, reason, details, expected) in [
            (&get, 404, "NotFound", &about_pod, "404 NotFound"),
            (&patch, 404, "NotFound", &about_pod, "404 NotFound"),
            (&delete, 404, "NotFound", &about_pod, "404 NotFound"),
            (&binding(), 404, "NotFound", &about_pod, "404 NotFound"),
            (&job_status(), 404, "NotFound", &about_job, "404 NotFound"),
            // About another object: another name, another group, a resource that is not served.
            (&patch, 404, "NotFound", &json!({"kind": "pods", "name": "q"}), "unknown"),
            (&get, 404, "NotFound", &json!({"kind": "pods", "name": "q"}), "unavailable 503"),
            (&job_status(), 404, "NotFound", &json!({"kind": "jobs", "name": "j"}), "unknown"),
            (&patch, 404, "NotFound", &json!({}), "unknown"),
            (&patch, 404, "NotFound", &Value::Null, "unknown"),
            (&patch, 404, "", &about_pod, "unknown"),
            (&patch, 404, "Gone", &about_pod, "unknown"),
            // A missing namespace refuses a creation, and says nothing about a Pod that existed.
            (&create(), 404, "NotFound", &about_namespace, "404 NotFound"),
            (&create(), 404, "NotFound", &json!({"kind": "namespaces", "name": "other"}), "unknown"),
            (&patch, 404, "NotFound", &about_namespace, "unknown"),
            (&delete, 404, "NotFound", &about_namespace, "unknown"),
            (&get, 404, "NotFound", &about_namespace, "unavailable 503"),
            (&create(), 409, "AlreadyExists", &about_pod, "409 AlreadyExists"),
            (&create(), 409, "AlreadyExists", &json!({"kind": "pods", "name": "q"}), "unknown"),
            // A quota that was changed meanwhile says nothing about the Pod.
            (&create(), 409, "Conflict", &json!({"kind": "resourcequotas", "name": "p"}), "unknown"),
            (&patch, 409, "Conflict", &about_pod, "409 Conflict"),
            (&job_status(), 409, "Conflict", &about_job, "409 Conflict"),
            // Preconditions name the kind.
            (&delete, 409, "Conflict", &about_kind, "409 Conflict"),
            (&binding(), 409, "Conflict", &json!({"kind": "pods/binding", "name": "p"}), "409 Conflict"),
            (&patch, 409, "Conflict", &Value::Null, "unknown"),
            (&patch, 410, "Expired", &Value::Null, "410 Expired"),
            (&patch, 410, "NotFound", &about_pod, "unknown"),
            (&patch, 422, "Invalid", &about_kind, "422 Invalid"),
            (&create(), 422, "Invalid", &about_pod, "422 Invalid"),
            (&patch, 422, "Invalid", &json!({}), "unknown"),
            (&create(), 500, "InternalError", &about_pod, "unknown"),
            (&create(), 500, "ServerTimeout", &about_pod, "unknown"),
            (&create(), 504, "Timeout", &Value::Null, "unknown"),
            (&get, 500, "InternalError", &Value::Null, "unavailable 500"),
            (&create(), 503, "ServiceUnavailable", &Value::Null, "503 ServiceUnavailable"),
            (&create(), 429, "TooManyRequests", &Value::Null, "429 TooManyRequests"),
            (&create(), 403, "Forbidden", &about_pod, "403 Forbidden"),
        ] {
            let body = status(code, reason, details.clone()).to_string();
            assert_eq!(said(call, code, &body), expected, "{:?} {code} {body}", call.verb);
        }
    }

    #[test]
    fn what_others_say_proves_nothing() {
        let not_found = status(404, "NotFound", json!({"kind": "pods", "name": "p"}));
        let foreign = [
            ("kind", json!("Error")),
            ("apiVersion", json!("v2")),
            ("kind", Value::Null),
            ("details", json!({"kind": "pods"})),
        ];
        for (field, value) in foreign {
            let mut body = not_found.clone();
            body[field] = value;
            assert_eq!(said(&pod(Verb::StrategicPatch), 404, &body.to_string()), "unknown", "{body}");
        }
        for code in [301, 404, 408, 409, 410, 422, 500, 502, 503, 504, 520] {
            for body in [HTML, "", "null", "[]", "{}", "404 page not found\n"] {
                assert_eq!(said(&pod(Verb::StrategicPatch), code, body), "unknown", "{code} {body}");
                assert_eq!(said(&create(), code, body), "unknown", "{code} {body}");
                let read = said(&pod(Verb::Get), code, body);
                assert!(read.starts_with("unavailable 5"), "{code} {body}: {read}");
            }
        }
        // Not admitted, whichever server or proxy says so.
        for code in [400, 401, 403, 405, 413, 429] {
            assert_eq!(said(&create(), code, HTML), code.to_string());
        }
    }

    #[test]
    fn only_the_object_itself_proves_that_it_was_done() {
        let stored = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "ns"}});
        let job = json!({"kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": "j", "namespace": "ns"}});
        let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        let mut deleted = success.clone();
        deleted["details"] = json!({"kind": "pods", "name": "p", "uid": "u"});
        let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []});
        let with = |field: &str, value: &str| {
            let mut stored = stored.clone();
            stored["metadata"][field] = value.into();
            stored
        };
        let (get, patch, delete) = (pod(Verb::Get), pod(Verb::StrategicPatch), pod(Verb::Delete));
        let all = Call::new(Verb::DeleteCollection, Kind::POD, "ns", "");
        for (call, body, expected) in [
            (&create(), &stored, "done"),
            (&patch, &stored, "done"),
            (&delete, &stored, "done"),
            (&get, &stored, "done"),
            (&job_status(), &job, "done"),
            (&job_status(), &stored, "unknown"),
            (&create(), &with("name", "q"), "unknown"),
            (&patch, &with("namespace", "other"), "unknown"),
            (&get, &with("name", "q"), "unavailable 503"),
            (&delete, &deleted, "status"),
            (&delete, &success, "unknown"),
            (&create(), &success, "unknown"),
            (&patch, &deleted, "unknown"),
            (&binding(), &success, "status"),
            (&all, &list, "status"),
            (&all, &success, "status"),
            (&delete, &status(404, "NotFound", json!({"kind": "pods", "name": "p"})), "unknown"),
            (&create(), &json!({}), "unknown"),
            (&get, &Value::Null, "unavailable 503"),
        ] {
            assert_eq!(said(call, 200, &body.to_string()), expected, "{:?} {body}", call.verb);
        }
        assert_eq!(said(&create(), 201, HTML), "unknown");
        assert_eq!(said(&get, 200, HTML), "unavailable 503");
    }

    /// A name that the server chooses cannot be compared.
    #[test]
    fn generated_names_are_taken_as_they_come() {
        let create = Call::new(Verb::Create, Kind::POD, "ns", "").body(&json!({"metadata": {"generateName": "p-"}}));
        let stored = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p-7", "namespace": "ns"}});
        assert_eq!(said(&create, 201, &stored.to_string()), "done");
    }

    /// A webhook chooses code and reason; neither says anything about the object.
    #[test]
    fn a_webhook_that_denies_is_a_refusal_whatever_its_code() {
        for code in [400, 404, 409, 422, 500] {
            let mut body = status(code, "NotFound", json!({"kind": "pods", "name": "p"}));
            body["message"] = "admission webhook \"w.example.com\" denied the request: no".into();
            for call in [create(), pod(Verb::StrategicPatch)] {
                assert_eq!(said(&call, code, &body.to_string()), "403 Forbidden", "{code}");
            }
        }
    }

    #[test]
    fn the_form_is_refused_by_what_is_no_denial_of_the_object() {
        let refused = |code: u16, reason: &str, message: &str| {
            let mut body = status(code, reason, json!({}));
            body["message"] = message.into();
            refuses_form(code, body.to_string().as_bytes())
        };
        let accepted = "only the following media types are accepted: application/json";
        let denied = "admission webhook \"w.example.com\" denied the request: no";
        for (code, reason, message, expected) in [
            (406, "NotAcceptable", accepted, true),
            (406, "", accepted, true),
            (415, "UnsupportedMediaType", "the body of the request was in an unknown format", true),
            (406, "NotAcceptable", denied, false),
            (415, "UnsupportedMediaType", denied, false),
            (415, "", denied, false),
            (406, "Forbidden", "the image is not acceptable", false),
            (400, "BadRequest", accepted, false),
        ] {
            assert_eq!(refused(code, reason, message), expected, "{code} {reason} {message}");
        }
        assert!(refuses_form(415, HTML.as_bytes()) && refuses_form(406, b""), "a proxy");
    }

    #[test]
    fn causes_and_patience_are_kept() {
        let details = json!({
            "kind": "Pod", "name": "p", "retryAfterSeconds": 2,
            "causes": [{"reason": "FieldValueInvalid", "message": "x", "field": "metadata.uid"}],
        });
        let body = Object::from(status(422, "Invalid", details).to_string());
        let interpreted = interpret(&pod(Verb::StrategicPatch), 422, None, &body);
        assert_eq!(interpreted.retry_after, Some(Duration::from_secs(2)));
        let Reply::Refused(refusal) = interpreted.reply else { panic!("refused") };
        assert_eq!(refusal.causes, [("metadata.uid".to_owned(), "FieldValueInvalid".to_owned())]);
        assert_eq!(refusal.message, "m");
        let header = Some(Duration::from_secs(3));
        let busy = interpret(&create(), 429, header, &Object::from(&b"Too many requests"[..]));
        assert_eq!(busy.retry_after, header);
        let doubtful = interpret(&create(), 503, header, &Object::from(HTML));
        assert_eq!(doubtful.retry_after, None, "a write that may have been applied is not sent again as it is");
    }
}
