//! Events: what happened to an object, in two wire forms that are two views of one stored object.
//!
//! The form of `v1` is stored. The rules of `events.k8s.io/v1` are stricter, but their errors name the fields as in
//! `v1`, as in kube-apiserver.

use tally_value::Value;

use crate::field::{At, FieldError};
use crate::kinds::{Conversion, Part, Rules};
use crate::meta;
use crate::schema::schema;

/// For `v1`.
pub struct EventRules;
/// For `events.k8s.io/v1`; these rules get that form.
pub struct NewEventRules;

/// Limits for the texts of one Event, in bytes: there are many Events, and each is watched.
const MOST_WORDS: usize = 128;
const MOST_MESSAGE: usize = 1024;

impl Rules for EventRules {
    // An Event does not own other objects.
    fn has_dependents(&self) -> bool {
        false
    }

    fn validate_create(&self, event: &Value) -> Vec<FieldError> {
        validate_any(At::root(event), "reportingComponent")
    }

    fn validate_update(&self, new: &Value, _: &Value, _: Part) -> Vec<FieldError> {
        validate_any(At::root(new), "reportingComponent")
    }

    /// Old clients build names from the object that the Event is about, which need not be DNS names.
    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        meta::name_is_path_segment(name, prefix)
    }
}

impl Rules for NewEventRules {
    fn conversion(&self) -> Option<Conversion> {
        Some(Conversion { to_stored: to_core, from_stored: to_events, stored_group: "" })
    }

    fn has_dependents(&self) -> bool {
        false
    }

    fn validate_create(&self, event: &Value) -> Vec<FieldError> {
        let core = to_core(event);
        let event = At::root(&core);
        let mut errors = validate_any(event, "reportingController");
        errors.extend(validate_series(event.at("series")));
        if !event.at("eventTime").is_set() {
            errors.push(event.at("eventTime").required(""));
        }
        let kind = event.at("type").text_or_empty();
        if !matches!(kind, "Normal" | "Warning") {
            errors.push(event.at("type").invalid_value("", format!("has invalid value: {kind}")));
        }
        let old_fields = ["firstTimestamp", "lastTimestamp", "count", "source"];
        for field in old_fields.into_iter().filter(|field| is_used(event.at(field))) {
            errors.push(event.at(field).invalid_value("", "needs to be unset"));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _: Part) -> Vec<FieldError> {
        let (new, old) = (to_core(new), to_core(old));
        let (new, old) = (At::root(&new), At::root(&old));
        let mut errors = validate_any(new, "reportingController");
        if new.at("series").value != old.at("series").value {
            errors.extend(validate_series(new.at("series")));
        }
        for field in FIXED {
            if new.at(field).value != old.at(field).value {
                let shown = if *field == "reportingComponent" { "reportingController" } else { field };
                errors.push(At::rooted(shown, new.at(field).value).invalid("field is immutable"));
            }
        }
        errors
    }
}

/// Of an existing Event only the series may change.
const FIXED: &[&str] = &[
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
];

fn is_used(field: At<'_, '_>) -> bool {
    match field.value {
        None => false,
        Some(Value::Object(map)) => !map.is_empty(),
        Some(value) => value != 0,
    }
}

/// The rules for an Event of either version. An Event with an eventTime was created by a new client and must name the
/// reporter and the action; one without is of the form that old clients create.
fn validate_any(event: At<'_, '_>, reporter: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let meta = event.at("metadata");
    let namespace = meta.at("namespace").text_or_empty();
    let object = event.at("involvedObject");
    let about = object.at("namespace");
    let is_new = event.at("eventTime").is_set();
    let fits = match (about.text_or_empty(), is_new) {
        // Events of cluster-scoped objects are in `default`.
        ("", true) => matches!(namespace, "default" | "kube-system"),
        ("", false) => matches!(namespace, "" | "default"),
        (_, true) => true,
        (about, false) => about == namespace,
    };
    if !fits {
        errors.push(about.invalid_value(about.text_or_empty(), "does not match event.namespace"));
    }
    if is_new {
        let controller = event.at("reportingComponent").text_or_empty();
        let place = At::rooted(reporter, None);
        if controller.is_empty() {
            errors.push(place.required(""));
        }
        let problems = meta::qualified_name_problems(controller);
        errors.extend(problems.into_iter().map(|problem| place.invalid_value(controller, problem)));
        for field in ["reportingInstance", "action", "reason"] {
            let at = event.at(field);
            if at.text_or_empty().is_empty() {
                errors.push(at.required(""));
            }
            errors.extend(too_long(at, MOST_WORDS));
        }
        errors.extend(too_long(event.at("message"), MOST_MESSAGE));
    }
    let problems = meta::dns_subdomain_problems(namespace);
    errors.extend(problems.into_iter().map(|problem| At::rooted("namespace", None).invalid_value(namespace, problem)));
    errors
}

fn too_long(at: At<'_, '_>, most: usize) -> Option<FieldError> {
    let long = at.text_or_empty().len() > most;
    long.then(|| at.invalid_value("", format!("can have at most {most} characters")))
}

fn validate_series(series: At<'_, '_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if series.is_set() {
        if series.at("count").int().unwrap_or_default() < 2 {
            errors.push(series.at("count").invalid_value("", "should be at least 2"));
        }
        if !series.at("lastObservedTime").is_set() {
            errors.push(series.at("lastObservedTime").required(""));
        }
    }
    errors
}

/// The fields that have two names: in `v1`, and in `events.k8s.io/v1`.
const NAMES: [(&str, &str); 7] = [
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("involvedObject", "regarding"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
];

/// The `v1` form of an `events.k8s.io/v1` Event.
pub fn to_core(event: &Value) -> Value {
    converted(event, "", |field| NAMES.iter().find(|(_, new)| *new == field).map(|(old, _)| *old))
}

/// The `events.k8s.io/v1` form of a `v1` Event.
pub fn to_events(event: &Value) -> Value {
    converted(event, "events.k8s.io", |field| NAMES.iter().find(|(old, _)| *old == field).map(|(_, new)| *new))
}

fn converted(event: &Value, group: &str, rename: impl Fn(&str) -> Option<&'static str>) -> Value {
    let form = schema().kind(group, "v1", "Event");
    // The fields that an empty Event of this form shows: some fields may not be omitted, and which ones differs between
    // the forms.
    let mut result = form.and_then(|form| form.zero().as_object().cloned()).unwrap_or_default();
    for (field, value) in event.as_object().into_iter().flatten() {
        let name = rename(field).unwrap_or(field);
        let left_out = form.and_then(|form| form.field(name)).is_none_or(|field| field.omit_empty);
        let empty = value.is_null() || *value == "" || *value == 0;
        if !(left_out && empty) {
            result.insert(name.to_owned(), value.clone());
        }
    }
    if result.contains_key("apiVersion") {
        let version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
        result.insert("apiVersion", version.into());
    }
    Value::Object(result)
}
