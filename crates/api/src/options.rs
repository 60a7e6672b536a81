//! The options of reads, watches, writes and deletes.
//!
//! The parsers here turn query parameters and DeleteOptions bodies into these values, or into the status error of
//! kube-apiserver. This is only parsing; the registry implements the options.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_core::time::Timestamp;
use tally_value::Value;

use crate::decode::time_error;
use crate::field::{At, FieldError};
use crate::status_error::StatusError;

/// The longest name of a field manager, which appears in `managedFields`.
const LONGEST_FIELD_MANAGER: usize = 128;

/// The state that a read requests with `resourceVersion` and `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadAt {
    /// The newest state.
    #[default]
    Newest,
    /// Any state ("0").
    Any,
    /// The state at this revision or a newer one.
    NotOlderThan(u64),
    /// The state at this revision exactly.
    Exactly(u64),
}

#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    pub label_selector: String,
    pub field_selector: String,
    /// None means no limit.
    pub limit: Option<usize>,
    /// The token of the previous page. Empty for the first page.
    pub continue_token: String,
    pub read_at: ReadAt,
}

#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    pub label_selector: String,
    pub field_selector: String,
    /// None: from the newest state, with synthetic ADDED events for existing objects. Some(0): the same, from any
    /// state.
    pub from: Option<u64>,
    pub bookmarks: bool,
    /// `sendInitialEvents`, if given.
    pub initial_events: Option<bool>,
    pub timeout_seconds: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub field_validation: FieldValidation,
    /// The writer's name for managedFields. Empty for writes of this process itself.
    pub field_manager: String,
    /// Server-side apply: take over fields of other managers.
    pub force: bool,
    /// Whether the writer may write this, for what the verb and the name do not tell.
    pub check: Option<WriteCheck>,
    /// Where admission leaves what it found. None: there is no audit log.
    pub audit: Option<AuditNotes>,
}

/// Annotations of the audit event of a request, made while it is admitted.
#[derive(Clone, Debug, Default)]
pub struct AuditNotes(Arc<Mutex<BTreeMap<&'static str, String>>>);

impl AuditNotes {
    /// A later note of the same name replaces an earlier one: a write may be decided several times.
    pub fn insert(&self, name: &'static str, text: String) {
        self.notes().insert(name, text);
    }

    pub fn get(&self) -> BTreeMap<&'static str, String> {
        self.notes().clone()
    }

    fn notes(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        // Every change of the map is whole, also if its writer panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decides from an object as it would be stored, and from the stored one if there is one, whether its writer may write
/// it. The registry asks before every write, in the same round in which it decides from the stored object.
#[derive(Clone)]
pub struct WriteCheck(pub Arc<CheckWrite>);

pub type CheckWrite = dyn Fn(&Value, Option<&Value>) -> Result<(), StatusError> + Send + Sync;

impl WriteOptions {
    pub fn check(&self, new: &Value, old: impl FnOnce() -> Option<Value>) -> Result<(), StatusError> {
        match &self.check {
            Some(WriteCheck(check)) => check(new, old().as_ref()),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for WriteCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WriteCheck")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    pub dry_run: bool,
    pub grace_period_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
    pub orphan_dependents: Option<bool>,
    pub precondition_uid: Option<String>,
    pub precondition_resource_version: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
    Protobuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    Json,
    Merge,
    Strategic,
    /// Server-side apply.
    Apply,
}

/// The parameters of a request, in order, decoded.
#[derive(Debug, Default)]
pub struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// Parses the part after the `?`. A pair that is not well encoded is ignored, as in kube-apiserver.
    pub fn parse(text: &'a str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
        let pairs = pairs.filter_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((unescape(key, true)?, unescape(value, true)?))
        });
        Self(pairs.collect())
    }

    /// The first value of that name. It is "" for `?watch`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_ref())
    }

    /// All values of that name, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_ref()).collect()
    }

    fn text(&self, name: &str) -> String {
        self.get(name).unwrap_or_default().to_owned()
    }

    /// Any value but "0" and "false" is true, even "no" and "maybe", as in kube-apiserver.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    fn int(&self, name: &str) -> Result<Option<i64>, StatusError> {
        let number =
            |text: &str| text.parse().map_err(|error| StatusError::bad_request(number_error("ParseInt", text, &error)));
        self.get(name).map(number).transpose()
    }
}

/// Decodes percent-encoding. None if it is malformed. `plus`: a `+` is a space, as in queries.
pub fn unescape(text: &str, plus: bool) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|byte| byte == b'%' || (plus && byte == b'+')) {
        return Some(Cow::Borrowed(text));
    }
    let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
            b'+' if plus => b' ',
            other => other,
        });
    }
    Some(Cow::Owned(String::from_utf8_lossy(&decoded).into_owned()))
}

/// The message of kube-apiserver for text that is not a number.
fn number_error(function: &str, text: &str, error: &std::num::ParseIntError) -> String {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let why = match error.kind() {
        PosOverflow | NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.{function}: parsing {text:?}: {why}")
}

/// Parses a revision: digits only.
fn parse_revision(text: &str) -> Result<u64, String> {
    // Rust would accept a plus sign.
    let text_or_nothing = if text.starts_with('+') { "" } else { text };
    text_or_nothing.parse().map_err(|error| number_error("ParseUint", text, &error))
}

fn revision_error(text: &str, why: String) -> FieldError {
    At::rooted("resourceVersion", None).invalid_value(text, why)
}

fn revision_of_list(text: &str) -> Result<u64, StatusError> {
    let told = |why| format!("invalid resource version: {}", revision_error(text, why));
    parse_revision(text).map_err(|why| StatusError::bad_request(told(why)))
}

fn check(kind: &str, errors: Vec<FieldError>) -> Result<(), StatusError> {
    if errors.is_empty() { Ok(()) } else { Err(StatusError::invalid("meta.k8s.io", kind, "", &errors)) }
}

impl ReadAt {
    /// For a GET of one object.
    pub fn of_get(query: &Query<'_>) -> Result<Self, StatusError> {
        match query.get("resourceVersion").unwrap_or_default() {
            "" => Ok(Self::Newest),
            "0" => Ok(Self::Any),
            // kube-apiserver answers 500. It is an error of the client, so the response is 400.
            text => parse_revision(text)
                .map(Self::NotOlderThan)
                .map_err(|why| StatusError::bad_request(revision_error(text, why).to_string())),
        }
    }
}

impl ListOptions {
    pub fn parse(query: &Query<'_>) -> Result<Self, StatusError> {
        let limit = query.int("limit")?;
        query.int("timeoutSeconds")?;
        let [version, matching, token] =
            ["resourceVersion", "resourceVersionMatch", "continue"].map(|name| query.get(name).unwrap_or_default());
        let at = At::rooted("resourceVersionMatch", None);
        let mut errors = Vec::new();
        if !matching.is_empty() {
            if version.is_empty() {
                errors.push(at.forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"));
            }
            if !token.is_empty() {
                errors.push(at.forbidden("resourceVersionMatch is forbidden when continue is provided"));
            }
            if !matches!(matching, "Exact" | "NotOlderThan") {
                errors.push(at.not_supported(matching, &["Exact", "NotOlderThan", ""]));
            }
            if matching == "Exact" && version == "0" {
                errors.push(at.forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
            }
        }
        if query.flag("sendInitialEvents").is_some() {
            let at = At::rooted("sendInitialEvents", None);
            errors.push(at.forbidden("sendInitialEvents is forbidden for list"));
        }
        check("ListOptions", errors)?;
        if !token.is_empty() && !matches!(version, "" | "0") {
            return Err(StatusError::bad_request("specifying resource version is not allowed when using continue"));
        }
        // A client that accepts any state gets all of it: kube-apiserver serves it from its cache, without pages.
        let limit = limit.filter(|_| version != "0");
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
        let read_at = match (version, matching) {
            ("", _) => ReadAt::Newest,
            ("0", _) => ReadAt::Any,
            (text, "Exact") => ReadAt::Exactly(revision_of_list(text)?),
            // Before `resourceVersionMatch` existed, a revision with a limit meant exactly that revision.
            (text, "") if limit.is_some() => ReadAt::Exactly(revision_of_list(text)?),
            (text, _) => ReadAt::NotOlderThan(revision_of_list(text)?),
        };
        Ok(Self {
            label_selector: query.text("labelSelector"),
            field_selector: query.text("fieldSelector"),
            limit,
            continue_token: token.to_owned(),
            read_at,
        })
    }
}

impl WatchOptions {
    /// `resource` and its group name the collection in errors.
    pub fn parse(query: &Query<'_>, group: &str, resource: &str) -> Result<Self, StatusError> {
        query.int("limit")?;
        let timeout = query.int("timeoutSeconds")?;
        let [version, matching, token] =
            ["resourceVersion", "resourceVersionMatch", "continue"].map(|name| query.get(name).unwrap_or_default());
        let initial_events = query.flag("sendInitialEvents");
        let at = At::rooted("resourceVersionMatch", None);
        let mut errors = Vec::new();
        if initial_events.is_some() && matching != "NotOlderThan" {
            errors.push(at.forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
        }
        if !matching.is_empty() {
            if initial_events.is_none() {
                let text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                errors.push(at.forbidden(text));
            }
            if matching != "NotOlderThan" {
                errors.push(at.not_supported(matching, &["NotOlderThan"]));
            }
            if !token.is_empty() {
                errors.push(at.forbidden("resourceVersionMatch is forbidden when continue is provided"));
            }
        }
        check("ListOptions", errors)?;
        let from = match version {
            "" => None,
            text => Some(
                parse_revision(text)
                    .map_err(|why| StatusError::invalid(group, resource, "", &[revision_error(text, why)]))?,
            ),
        };
        Ok(Self {
            label_selector: query.text("labelSelector"),
            field_selector: query.text("fieldSelector"),
            from,
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            initial_events,
            // Zero means that the server chooses; a negative timeout has expired before the watch begins.
            timeout_seconds: timeout.filter(|seconds| *seconds != 0).map(|seconds| u64::try_from(seconds).unwrap_or(0)),
        })
    }
}

/// The requested part of the log of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// May be "" if the Pod has only one container.
    pub container: String,
    pub follow: bool,
    /// The log of the run before the current one.
    pub previous: bool,
    pub timestamps: bool,
    pub since: Option<Since>,
    pub tail_lines: Option<u64>,
    pub limit_bytes: Option<u64>,
}

/// The time from which a log is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    Seconds(u64),
    Time(Timestamp),
}

impl LogOptions {
    /// `name`: the name of the Pod, for errors.
    pub fn parse(query: &Query<'_>, name: &str) -> Result<Self, StatusError> {
        let [seconds, lines, bytes] = ["sinceSeconds", "tailLines", "limitBytes"].map(|name| query.int(name));
        let (seconds, lines, bytes) = (seconds?, lines?, bytes?);
        let time = query.get("sinceTime").filter(|since| !matches!(*since, "" | "null"));
        if let Some(why) = time.and_then(time_error) {
            return Err(StatusError::bad_request(why));
        }
        let below = |field: &str, value: Option<i64>, least: i64, why: &str| {
            value.filter(|value| *value < least).map(|value| At::rooted(field, None).invalid_value(value, why))
        };
        let mut errors = Vec::new();
        errors.extend(below("tailLines", lines, 0, "must be greater than or equal to 0"));
        errors.extend(below("limitBytes", bytes, 1, "must be greater than 0"));
        if seconds.is_some() && query.get("sinceTime").is_some() {
            let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            // The error is about the options as a whole, for which kube-apiserver prints `[]`.
            errors.push(At::rooted("[]", None).forbidden(why));
        } else {
            errors.extend(below("sinceSeconds", seconds, 1, "must be greater than 0"));
        }
        if query.get("stream").is_some() {
            errors.push(At::rooted("stream", None).forbidden("may not be specified"));
        }
        if !errors.is_empty() {
            return Err(StatusError::invalid("", "PodLogOptions", name, &errors));
        }
        let count = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        let time = time.and_then(|time| Timestamp::parse(time).ok()).map(Since::Time);
        Ok(Self {
            container: query.text("container"),
            follow: query.flag("follow").unwrap_or(false),
            previous: query.flag("previous").unwrap_or(false),
            timestamps: query.flag("timestamps").unwrap_or(false),
            since: count(seconds).map(Since::Seconds).or(time),
            tail_lines: count(lines),
            limit_bytes: count(bytes),
        })
    }
}

/// The write that the options are for; errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    Create,
    Update,
    Patch(PatchKind),
}

impl WriteOptions {
    pub fn parse(query: &Query<'_>, write: Write) -> Result<Self, StatusError> {
        let (dry_run, manager) = (query.all("dryRun"), query.text("fieldManager"));
        let (force, validation) = (query.flag("force"), query.get("fieldValidation").unwrap_or_default());
        let mut errors = Vec::new();
        let kind = match write {
            Write::Create => "CreateOptions",
            Write::Update => "UpdateOptions",
            Write::Patch(patch) => {
                if patch != PatchKind::Apply && force.is_some() {
                    let at = At::rooted("force", None);
                    errors.push(at.forbidden("may not be specified for non-apply patch"));
                }
                if patch == PatchKind::Apply && manager.is_empty() {
                    errors.push(At::rooted("fieldManager", None).required("is required for apply patch"));
                }
                "PatchOptions"
            }
        };
        check_field_manager(&manager, &mut errors);
        check_dry_run(&dry_run, &mut errors);
        let field_validation = match validation {
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            other => {
                let at = At::rooted("fieldValidation", None);
                errors.push(at.not_supported(other, &["", "Ignore", "Strict", "Warn"]));
                FieldValidation::Warn
            }
        };
        check(kind, errors)?;
        let force = force.unwrap_or(false);
        Ok(Self {
            dry_run: !dry_run.is_empty(),
            field_validation,
            field_manager: manager,
            force,
            check: None,
            audit: None,
        })
    }

    /// The writer's name for managedFields if the request gives none: the product name of the user agent.
    pub fn manager_of_user_agent(agent: &str) -> String {
        let name = agent.split('/').next().unwrap_or_default();
        let mut printable: String = name.chars().filter(|letter| !letter.is_control()).collect();
        printable.truncate(printable.floor_char_boundary(LONGEST_FIELD_MANAGER));
        if printable.is_empty() { "unknown".to_owned() } else { printable }
    }
}

fn check_field_manager(manager: &str, errors: &mut Vec<FieldError>) {
    let at = At::rooted("fieldManager", None);
    if manager.len() > LONGEST_FIELD_MANAGER {
        errors.push(at.too_long(LONGEST_FIELD_MANAGER));
    }
    for (position, letter) in manager.char_indices().filter(|(_, letter)| letter.is_control()) {
        let why = format!("invalid character U+{:04X} (at position {position})", u32::from(letter));
        errors.push(at.invalid_value(manager, why));
    }
}

fn check_dry_run(values: &[&str], errors: &mut Vec<FieldError>) {
    if values.iter().any(|value| *value != "All") {
        errors.push(At::rooted("dryRun", None).not_supported(values, &["All"]));
    }
}

impl DeleteOptions {
    pub fn of_query(query: &Query<'_>) -> Result<Self, StatusError> {
        let grace_period_seconds = query.int("gracePeriodSeconds")?;
        let (policy, orphan) = (query.get("propagationPolicy"), query.flag("orphanDependents"));
        let options = Self { grace_period_seconds, ..Self::default() };
        options.checked(&query.all("dryRun"), policy, orphan)
    }

    /// From a body, which replaces the query. The caller checks its `kind` and `apiVersion`.
    pub fn of_body(body: &Value) -> Result<Self, StatusError> {
        let root = At::root(body);
        let (grace, policy, orphan) =
            (root.at("gracePeriodSeconds"), root.at("propagationPolicy"), root.at("orphanDependents"));
        let (dry_run, conditions) = (root.at("dryRun"), root.at("preconditions"));
        let (uid, version) = (conditions.at("uid"), conditions.at("resourceVersion"));
        let strings = dry_run.list().iter().filter_map(Value::as_str).collect::<Vec<_>>();
        let wrong = [
            (grace.is_set() && grace.int().is_none(), &grace, "int64"),
            (policy.is_set() && policy.text().is_none(), &policy, "v1.DeletionPropagation"),
            (orphan.is_set() && orphan.bool().is_none(), &orphan, "bool"),
            (dry_run.is_set() && !is_list_of_text(dry_run.value), &dry_run, "[]string"),
            (conditions.is_set() && conditions.map().is_none(), &conditions, "v1.Preconditions"),
            (uid.is_set() && uid.text().is_none(), &uid, "types.UID"),
            (version.is_set() && version.text().is_none(), &version, "string"),
        ];
        if let Some((_, at, type_name)) = wrong.into_iter().find(|(wrong, ..)| *wrong) {
            let (given, path) = (at.value.map_or("null", type_of), at.path());
            return Err(StatusError::bad_request(format!(
                "json: cannot unmarshal {given} into Go struct field DeleteOptions.{path} of type {type_name}"
            )));
        }
        let options = Self {
            grace_period_seconds: grace.int(),
            precondition_uid: uid.text().map(str::to_owned),
            precondition_resource_version: version.text().map(str::to_owned),
            ..Self::default()
        };
        options.checked(&strings, policy.text(), orphan.bool())
    }

    fn checked(mut self, dry_run: &[&str], policy: Option<&str>, orphan: Option<bool>) -> Result<Self, StatusError> {
        let at = At::rooted("propagationPolicy", None);
        let mut errors = Vec::new();
        if let (Some(policy), Some(_)) = (policy, orphan) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(at.invalid_value(policy, why));
        }
        self.propagation = match policy {
            None => None,
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                errors.push(at.not_supported(other, &["Foreground", "Background", "Orphan", "nil"]));
                None
            }
        };
        check_dry_run(dry_run, &mut errors);
        check("DeleteOptions", errors)?;
        self.orphan_dependents = orphan;
        self.dry_run = !dry_run.is_empty();
        Ok(self)
    }
}

fn is_list_of_text(value: Option<&Value>) -> bool {
    value.and_then(Value::as_array).is_some_and(|items| items.iter().all(Value::is_string))
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use tally_value::json;

    use super::*;

    /// The error message for an option, or "" if it is valid.
    fn told<T>(answer: Result<T, StatusError>) -> String {
        answer.err().map_or_else(String::new, |failure| {
            let text = failure.message;
            text.split_once(" is invalid: ").map_or(text.clone(), |(_, why)| why.to_owned())
        })
    }

    #[test]
    fn queries_are_read_as_clients_write_them() {
        let query = Query::parse("a=1&b=x%20y+z&watch&a=2&%zz=1&c=%C3%A4&&d;e=1&f=%4");
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!(query.all("a"), ["1", "2"]);
        assert_eq!(query.get("b"), Some("x y z"));
        assert_eq!(query.get("c"), Some("ä"));
        assert_eq!(query.get("f"), None, "a torn escape");
        assert_eq!((query.flag("watch"), query.flag("w")), (Some(true), None));
        for (text, flag) in [("0", false), ("false", false), ("FALSE", false), ("no", true), ("", true), ("1", true)] {
            assert_eq!(Query::parse(&format!("x={text}")).flag("x"), Some(flag), "{text}");
        }
        assert_eq!(unescape("a+b", false).as_deref(), Some("a+b"), "in a path a plus is a plus");
    }

    #[test]
    fn the_state_a_list_reads() {
        for (query, read_at) in [
            ("", ReadAt::Newest),
            ("limit=5", ReadAt::Newest),
            ("resourceVersion=0", ReadAt::Any),
            ("resourceVersion=0&resourceVersionMatch=NotOlderThan", ReadAt::Any),
            ("resourceVersion=7", ReadAt::NotOlderThan(7)),
            ("resourceVersion=7&limit=2", ReadAt::Exactly(7)),
            ("resourceVersion=7&limit=0", ReadAt::NotOlderThan(7)),
            ("resourceVersion=7&limit=2&resourceVersionMatch=NotOlderThan", ReadAt::NotOlderThan(7)),
            ("resourceVersion=7&resourceVersionMatch=Exact", ReadAt::Exactly(7)),
        ] {
            assert_eq!(ListOptions::parse(&Query::parse(query)).unwrap().read_at, read_at, "{query}");
        }
        let limit = |query| ListOptions::parse(&Query::parse(query)).unwrap().limit;
        assert_eq!((limit("limit=3"), limit("limit=0"), limit("limit=-1")), (Some(3), None, None));
        assert_eq!(limit("limit=3&resourceVersion=0"), None, "any state is shown whole");
        let told = ReadAt::of_get(&Query::parse("resourceVersion=x")).unwrap_err();
        assert_eq!(
            told.message,
            "resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax"
        );
    }

    #[test]
    fn what_a_list_and_a_watch_may_not_ask() {
        for (query, why) in [
            ("limit=abc", "strconv.ParseInt: parsing \"abc\": invalid syntax"),
            ("limit=", "strconv.ParseInt: parsing \"\": invalid syntax"),
            ("limit=99999999999999999999", "strconv.ParseInt: parsing \"99999999999999999999\": value out of range"),
            ("continue=x&resourceVersion=5", "specifying resource version is not allowed when using continue"),
            ("continue=x&resourceVersion=0", ""),
            (
                "resourceVersion=+5",
                "invalid resource version: resourceVersion: Invalid value: \" 5\": strconv.ParseUint: parsing \" 5\": invalid syntax",
            ),
            (
                "resourceVersion=%2B5",
                "invalid resource version: resourceVersion: Invalid value: \"+5\": strconv.ParseUint: parsing \"+5\": invalid syntax",
            ),
            (
                "resourceVersion=1&resourceVersionMatch=Some",
                "resourceVersionMatch: Unsupported value: \"Some\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
            ),
            ("sendInitialEvents=1", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        ] {
            assert_eq!(told(ListOptions::parse(&Query::parse(query))), why, "{query}");
        }
        for (query, why) in [
            ("timeoutSeconds=x", "strconv.ParseInt: parsing \"x\": invalid syntax"),
            (
                "resourceVersion=x",
                "resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax",
            ),
            (
                "sendInitialEvents=true",
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
            (
                "resourceVersionMatch=NotOlderThan",
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is \
                 provided",
            ),
            ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", ""),
        ] {
            assert_eq!(told(WatchOptions::parse(&Query::parse(query), "batch", "jobs")), why, "{query}");
        }
        let timeout = |query| WatchOptions::parse(&Query::parse(query), "batch", "jobs").unwrap().timeout_seconds;
        let timeouts =
            [timeout(""), timeout("timeoutSeconds=0"), timeout("timeoutSeconds=-1"), timeout("timeoutSeconds=7")];
        assert_eq!(timeouts, [None, None, Some(0), Some(7)]);
    }

    #[test]
    fn what_a_reader_of_logs_may_not_ask() {
        for (query, why) in [
            ("tailLines=0&limitBytes=1&sinceSeconds=1&follow=x&container=c", ""),
            ("sinceTime=2024-01-01T00:00:00Z", ""),
            ("sinceTime=", ""),
            ("tailLines=-1", "tailLines: Invalid value: -1: must be greater than or equal to 0"),
            (
                "limitBytes=0&sinceSeconds=0",
                "[limitBytes: Invalid value: 0: must be greater than 0, sinceSeconds: Invalid value: 0: must be greater than 0]",
            ),
            (
                "sinceSeconds=1&sinceTime=2024-01-01T00:00:00Z",
                "[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
            ),
            ("stream=All", "stream: Forbidden: may not be specified"),
            ("tailLines=x", "strconv.ParseInt: parsing \"x\": invalid syntax"),
            ("sinceTime=x", "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\""),
        ] {
            assert_eq!(told(LogOptions::parse(&Query::parse(query), "p")), why, "{query}");
        }
    }

    #[test]
    fn what_a_write_may_not_ask() {
        let long = format!("fieldManager={}", "m".repeat(LONGEST_FIELD_MANAGER + 1));
        let just = format!("fieldManager={}", "m".repeat(LONGEST_FIELD_MANAGER));
        let merge = Write::Patch(PatchKind::Merge);
        for (write, query, why) in [
            (Write::Create, "dryRun=All&dryRun=All", ""),
            (Write::Create, "dryRun=", "dryRun: Unsupported value: [\"\"]: supported values: \"All\""),
            (merge, "force=false", "force: Forbidden: may not be specified for non-apply patch"),
            (Write::Create, "force=true", ""),
            (Write::Patch(PatchKind::Apply), "", "fieldManager: Required value: is required for apply patch"),
            (Write::Update, &long, "fieldManager: Too long: may not be more than 128 bytes"),
            (Write::Update, &just, ""),
            (
                Write::Update,
                "fieldManager=m%0A",
                "fieldManager: Invalid value: \"m\\n\": invalid character U+000A (at position 1)",
            ),
            (
                Write::Update,
                "fieldValidation=warn",
                "fieldValidation: Unsupported value: \"warn\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
            ),
        ] {
            assert_eq!(told(WriteOptions::parse(&Query::parse(query), write)), why, "{query}");
        }
        assert_eq!(WriteOptions::manager_of_user_agent("kubectl/v1.36.0 (linux/amd64)"), "kubectl");
    }

    #[test]
    fn what_a_delete_may_ask() {
        for (body, why) in [
            (json!({}), ""),
            (json!({"gracePeriodSeconds": 5, "propagationPolicy": "Orphan", "preconditions": {"uid": "u"}}), ""),
            (
                json!({"gracePeriodSeconds": "5"}),
                "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
            ),
            (
                json!({"dryRun": "All"}),
                "json: cannot unmarshal string into Go struct field DeleteOptions.dryRun of type []string",
            ),
            (
                json!({"orphanDependents": true, "propagationPolicy": "Background"}),
                "propagationPolicy: Invalid value: \"Background\": orphanDependents and deletionPropagation cannot be both \
                 set",
            ),
        ] {
            assert_eq!(told(DeleteOptions::of_body(&body)), why, "{body}");
        }
        let options = DeleteOptions::of_query(&Query::parse("gracePeriodSeconds=-3&orphanDependents=true")).unwrap();
        assert_eq!((options.grace_period_seconds, options.orphan_dependents), (Some(-3), Some(true)));
    }
}
