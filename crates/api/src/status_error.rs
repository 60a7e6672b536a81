//! A status error: a refused request in the form of the API, the `Status` object.

use std::collections::HashSet;

use tally_value::{Value, json};

use crate::field::FieldError;
use crate::kinds::Resource;

#[derive(Clone, Debug, PartialEq)]
pub struct StatusError {
    pub code: u16,
    /// Such as `NotFound`. Empty where kube-apiserver gives none.
    pub reason: &'static str,
    pub message: String,
    pub details: Option<Details>,
    /// Warnings to send with the error, for the Warning header.
    pub warnings: Vec<String>,
    /// The token with which an expired list can continue. Empty if it cannot.
    pub continue_token: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    pub name: String,
    pub group: String,
    /// The resource (`jobs`), or the kind (`Job`) if an object is invalid.
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

impl Details {
    pub fn of(resource: &Resource, name: &str) -> Self {
        let (group, kind) = (resource.group.to_owned(), resource.plural.to_owned());
        Self { name: name.to_owned(), group, kind, ..Self::default() }
    }
}

impl StatusError {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        let (message, warnings, continue_token) = (message.into(), Vec::new(), String::new());
        Self { code, reason, message, details: None, warnings, continue_token }
    }

    pub fn with(mut self, details: Details) -> Self {
        self.details = Some(details);
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", message)
    }

    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", resource.qualified()))
            .with(Details::of(resource, name))
    }

    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", resource.qualified()))
            .with(Details::of(resource, name))
    }

    /// The object changed since it was read. `why` is the usual message, or one about a precondition.
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let text = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified());
        Self::new(409, "Conflict", text).with(Details::of(resource, name))
    }

    pub fn modified(resource: &Resource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let text = format!("{} \"{name}\" is forbidden: {why}", resource.qualified());
        Self::new(403, "Forbidden", text).with(Details::of(resource, name))
    }

    pub fn method_not_allowed(resource: &Resource, verb: &str) -> Self {
        let text = format!("{verb} is not supported on resources of kind \"{}\"", resource.qualified());
        let details =
            Details { group: resource.group.to_owned(), kind: resource.plural.to_owned(), ..Details::default() };
        Self::new(405, "MethodNotAllowed", text).with(details)
    }

    /// A revision that the history no longer contains.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 422: the object fails validation. The message names it like `Job.batch`, from `kind` and `group`.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let mut seen: HashSet<&str> = HashSet::new();
        let mut causes: Vec<Cause> = Vec::new();
        let mut texts: Vec<&str> = Vec::new();
        for (error, text) in errors.iter().zip(&shown) {
            // DEFECT-29: kube-apiserver lists an error once for each time it checked the rule. Here it is listed once.
            if !seen.insert(text) {
                continue;
            }
            let message = error.message().to_string();
            causes.push(Cause { reason: error.kind.reason().to_owned(), message, field: error.path.clone() });
            texts.push(text);
        }
        let told = match texts.as_slice() {
            [one] => (*one).to_owned(),
            several => format!("[{}]", several.join(", ")),
        };
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let details = Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes,
            ..Details::default()
        };
        Self::new(422, "Invalid", format!("{qualified} \"{name}\" is invalid: {told}")).with(details)
    }

    /// The `Status` object.
    pub fn to_json(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.continue_token.is_empty() {
            status["metadata"]["continue"] = self.continue_token.as_str().into();
        }
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            let mut shown = tally_value::Map::new();
            for (key, text) in
                [("name", &details.name), ("group", &details.group), ("kind", &details.kind), ("uid", &details.uid)]
            {
                if !text.is_empty() {
                    shown.insert(key.to_owned(), text.as_str().into());
                }
            }
            if !details.causes.is_empty() {
                shown.insert("causes", details.causes.iter().map(Cause::to_json).collect());
            }
            if details.retry_after_seconds > 0 {
                shown.insert("retryAfterSeconds", details.retry_after_seconds.into());
            }
            status["details"] = Value::Object(shown);
        }
        status
    }
}

impl Cause {
    fn to_json(&self) -> Value {
        let parts = [("reason", &self.reason), ("message", &self.message), ("field", &self.field)];
        let parts = parts.into_iter().filter(|(_, text)| !text.is_empty());
        parts.map(|(key, text)| (key.to_owned(), Value::from(text.as_str()))).collect()
    }
}
