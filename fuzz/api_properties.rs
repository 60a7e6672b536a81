//! Properties of the API's rules that must hold for all input bytes. Shared by the fuzz targets and by the ordinary
//! tests of the api crate, as in `properties.rs`.

use tally_api::apply::{self, Config, Writer};
use tally_api::catalog;
use tally_api::decode::{conform, decode, settle, syntax_error};
use tally_api::kinds::{Part, Resource};
use tally_api::options::{FieldValidation, Format, PatchKind};
use tally_api::patch;
use tally_api::quantity::{self, Quantity};
use tally_api::schedule::{STAR, Schedule};
use tally_api::selector::{Filter, LabelSelector};
use tally_api::status_error::StatusError;
use tally_api::table::{self, IncludeObject};
use tally_core::time::{Span, Timestamp};
use tally_value::{Value, json};

const NOW: Timestamp = Timestamp::from_seconds(1_767_225_600);

/// Input: a line that names a resource, such as `jobs.batch`, and an object. Decoded as JSON and as YAML.
pub fn object(data: &[u8]) {
    let Some((resource, body)) = resource_and(data) else { return };
    let as_json = decode(resource, body, Format::Json, FieldValidation::Warn);
    let strict = decode(resource, body, Format::Json, FieldValidation::Strict);
    let ignored = decode(resource, body, Format::Json, FieldValidation::Ignore);
    match &as_json {
        Ok(decoded) => {
            assert_eq!(syntax_error(body), None, "what is read is sound");
            assert_eq!(strict.is_ok(), decoded.warnings.is_empty(), "strict readers refuse what others warn of");
            assert_eq!(ignored.expect("lax readers take what others take").object, decoded.object);
            check_object(resource, &decoded.object);
        }
        Err(failure) => {
            check_failure(failure);
            assert!(strict.is_err() && ignored.is_err());
        }
    }
    match decode(resource, body, Format::Yaml, FieldValidation::Warn) {
        Ok(decoded) => check_object(resource, &decoded.object),
        Err(failure) => check_failure(&failure),
    }
}

fn resource_and(data: &[u8]) -> Option<(&'static Resource, &[u8])> {
    let end = data.iter().position(|byte| *byte == b'\n')?;
    let name = std::str::from_utf8(&data[..end]).ok()?;
    let resource = catalog::resources().iter().find(|resource| resource.qualified() == name)?;
    Some((resource, &data[end + 1..]))
}

/// The object has the kind that it states, and passes through every rule of its kind.
fn check_object(resource: &Resource, object: &Value) {
    assert_eq!(object["kind"], resource.kind);
    assert_eq!(object["apiVersion"], resource.api_version());
    check_stable(resource, object);
    if catalog::is_virtual(resource) {
        // A review object: it is answered, not stored.
        return;
    }

    let mut new = object.clone();
    resource.rules.default(&mut new);
    let once = new.clone();
    resource.rules.default(&mut new);
    assert_eq!(new, once, "filling in twice is filling in once");
    check_stable(resource, &new);
    resource.rules.prepare_create(&mut new, NOW);
    let errors = resource.rules.validate_create(&new);
    for error in &errors {
        assert!(!error.to_string().is_empty());
    }
    check_failure(&StatusError::invalid(resource.group, resource.kind, "x", &errors));
    let _ = resource.rules.create_warnings(&new);
    resource.rules.complete(&mut new);
    settle(resource, &mut new);
    check_stable(resource, &new);

    for part in [Part::Main, Part::Status] {
        let mut again = new.clone();
        resource.rules.default(&mut again);
        resource.rules.prepare_update(&mut again, &new, part);
        let _ = resource.rules.validate_update(&again, &new, part);
        let _ = resource.rules.update_warnings(&again, &new, part);
    }
    let table = table::table_of_one(resource, &new, IncludeObject::Object, NOW);
    let (columns, cells) = (&table["columnDefinitions"], &table["rows"][0]["cells"]);
    assert_eq!(columns.as_array().map(Vec::len), cells.as_array().map(Vec::len));
}

/// An object that was decoded and encoded decodes to the same object.
fn check_stable(resource: &Resource, object: &Value) {
    let text = object.to_string();
    // Not compared: serde_json may read the last digit of a fraction differently.
    serde_json::from_str::<Value>(&text).expect("what is stored can be read");
    let again = decode(resource, text.as_bytes(), Format::Json, FieldValidation::Strict);
    let again = again.unwrap_or_else(|failure| panic!("{}: {text}", failure.message));
    assert_eq!(&again.object, object);
}

/// A failure can be read by a client.
fn check_failure(failure: &StatusError) {
    assert!((400..500).contains(&failure.code), "{} {}", failure.code, failure.message);
    let status = failure.to_json();
    assert_eq!((&status["kind"], &status["code"]), (&json!("Status"), &json!(failure.code)));
    assert!(!failure.message.is_empty());
}

/// Input: a line that names a resource, a line with an object, and a patch of it.
pub fn patches(data: &[u8]) {
    let Some((resource, rest)) = resource_and(data) else { return };
    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return };
    let (current, patch) = (&rest[..end], &rest[end + 1..]);
    let Ok(current) = decode(resource, current, Format::Json, FieldValidation::Ignore) else { return };
    let current = current.object;
    for kind in [PatchKind::Json, PatchKind::Merge, PatchKind::Strategic] {
        match patch::patched(resource, kind, current.clone(), patch, FieldValidation::Warn) {
            Ok(decoded) => check_stable(resource, &decoded.object),
            // An internal error of the reference implementation is reported with its message, and with its code.
            Err(failure) if kind == PatchKind::Strategic && failure.code == 500 => {}
            Err(failure) => check_failure(&failure),
        }
    }
    if let Ok(once) = patch::apply(resource, PatchKind::Merge, &current, patch) {
        let twice = patch::apply(resource, PatchKind::Merge, &once, patch).expect("what fits once fits twice");
        assert_eq!(twice, once, "a merge patch says how it shall be, not what to do");
    }
}

/// Input: a line that names a resource, a line with an object, and two lines with what is applied to it by two managers.
pub fn apply(data: &[u8]) {
    let Some((resource, rest)) = resource_and(data) else { return };
    let mut lines = rest.splitn(3, |byte| *byte == b'\n');
    let (Some(current), Some(first)) = (lines.next(), lines.next()) else { return };
    let second = lines.next().unwrap_or_default();
    let Ok(current) = decode(resource, current, Format::Json, FieldValidation::Ignore) else { return };
    if catalog::is_virtual(resource) || resource.kind == "Event" {
        return;
    }
    let mut object = current.object;
    object["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
    let writer = |manager| Writer { manager, subresource: "", now: "2026-01-01T00:00:00Z" };
    apply::created(resource, &mut object, writer("creator"));
    check_managers(&object);
    for (body, manager) in [(first, "one"), (second, "two"), (first, "two")] {
        let config = match Config::read(resource, body, FieldValidation::Warn) {
            Ok(config) => config.object,
            Err(failure) => return check_failure(&failure),
        };
        let apply = |old: &Value, force| apply::applied(resource, Some(old), &config, writer(manager), force);
        let new = match apply(&object, true) {
            Ok(new) => new,
            Err(failure) => return check_failure(&failure),
        };
        if let Err(failure) = apply(&object, false) {
            assert_eq!(failure.code, 409, "only a conflict can be forced: {}", failure.message);
        }
        // As the server does: what was applied is held to the schema before it is stored.
        let settled = match conform(resource, new.clone(), FieldValidation::Ignore) {
            Ok(decoded) => decoded.object,
            Err(failure) => return check_failure(&failure),
        };
        check_managers(&new);
        let again = apply(&new, false).unwrap_or_else(|failure| panic!("applying again: {}", failure.message));
        assert_eq!(again, new, "applying again changes nothing");
        object = settled;
    }
}

/// The managers of an object own only what is in it.
fn check_managers(object: &Value) {
    let list = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    for entry in list.into_iter().flatten() {
        check_owned(&entry["fieldsV1"], object, &entry["manager"]);
    }
}

fn check_owned(fields: &Value, value: &Value, manager: &Value) {
    for (part, below) in fields.as_object().into_iter().flatten().filter(|(part, _)| *part != ".") {
        let owned = match part.split_at(2) {
            ("f:", name) => value.get(name),
            ("v:", text) => {
                let wanted: Value = serde_json::from_str(text).expect("a value");
                value.as_array().and_then(|list| list.iter().find(|item| **item == wanted))
            }
            ("k:", text) => {
                let keys: Value = serde_json::from_str(text).expect("keys");
                // A key that is not given, or null, has its default.
                let fits = |item: &Value| {
                    let given = |name: &str| item.get(name).filter(|given| !given.is_null());
                    let mut keys = keys.as_object().into_iter().flatten();
                    item.is_object() && keys.all(|(name, key)| given(name).is_none_or(|given| given == key))
                };
                value.as_array().and_then(|list| list.iter().find(|item| fits(item)))
            }
            _ => panic!("{part:?} is no part of a path"),
        };
        let owned = owned.unwrap_or_else(|| panic!("{manager} owns {part}, which is not in {value}"));
        check_owned(below, owned, manager);
    }
}

/// Input: a line that names a resource, a label selector, a field selector, and an object.
pub fn selectors(data: &[u8]) {
    let Some((resource, rest)) = resource_and(data) else { return };
    let Ok(rest) = std::str::from_utf8(rest) else { return };
    let mut lines = rest.splitn(3, '\n');
    let (Some(labels), Some(fields)) = (lines.next(), lines.next()) else { return };
    let object = decode(resource, lines.next().unwrap_or("{}").as_bytes(), Format::Json, FieldValidation::Ignore);
    match Filter::parse(resource, labels, fields) {
        Ok(filter) => {
            let Ok(object) = object else { return };
            let stored = object.object.to_string();
            let matches = filter.matches_object(resource, &object.object);
            assert_eq!(
                filter.matches_stored(resource, stored.as_bytes()),
                matches,
                "a glance finds what reading finds"
            );
            assert!(matches || !filter.is_everything());
            let name = object.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            assert!(!matches || filter.exact_name().is_none_or(|exact| exact == name));
        }
        Err(failure) => check_failure(&failure),
    }
    if let Ok(object) = decode(resource, rest.as_bytes(), Format::Json, FieldValidation::Ignore) {
        let _ = LabelSelector::from_json(object.object.pointer("/spec/selector"));
    }
}

/// Input: a quantity, such as `1.5Gi`.
pub fn quantity_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(quantity) = Quantity::parse(text) else {
        assert!(quantity::canonical(text).is_err());
        return;
    };
    let canonical = quantity::canonical(text).expect("what is read can be written");
    // Half a Ki is first written as a plain number, and then with a decimal suffix: after that it is stable.
    let twice = quantity::canonical(&canonical).expect("what was written can be read");
    assert_eq!(quantity::canonical(&twice).expect("what was written can be read"), twice);
    let again = Quantity::parse(&canonical).expect("what was written can be read");
    assert_eq!(again.cmp(&quantity), std::cmp::Ordering::Equal);
    assert_eq!((again.value(), again.milli_value()), (quantity.value(), quantity.milli_value()));
    assert!(!(quantity.is_zero() && quantity.is_negative()));
    assert_eq!(quantity.negated().is_negative(), !quantity.is_zero() && !quantity.is_negative());
    let difference = quantity.checked_add(&quantity.negated()).expect("nothing fits");
    assert!(difference.is_zero());
}

/// Input: a schedule, such as `*/5 * * * *`.
pub fn schedule_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let within = |bits: u64, lowest: u32, highest: u32| {
        let numbers = bits & !STAR;
        assert!(numbers.trailing_zeros() >= lowest && numbers.checked_ilog2().is_none_or(|most| most <= highest));
        assert!(bits & STAR == 0 || numbers.count_ones() == highest - lowest + 1, "a star is every number");
    };
    match Schedule::parse(text) {
        Ok(Schedule::Calendar(calendar)) => {
            within(calendar.minutes, 0, 59);
            within(calendar.hours, 0, 23);
            within(calendar.days_of_month, 1, 31);
            within(calendar.months, 1, 12);
            within(calendar.days_of_week, 0, 6);
        }
        Ok(Schedule::Every(span)) => assert!(span >= Span::from_seconds(1)),
        Err(why) => assert!(!why.is_empty()),
    }
}
