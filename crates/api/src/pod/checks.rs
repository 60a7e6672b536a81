//! Checks that many fields share. Each checks one position and adds its errors.
//!
//! An absent text is equivalent to "", and is printed as "".

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::Serialize;
use tally_value::Value;

use crate::field::{At, ErrorKind, FieldError};
use crate::meta;

pub(super) type Errors = Vec<FieldError>;

/// Adds an error about the text here for each of the `problems`.
pub(super) fn reject(at: &At<'_, '_>, problems: Vec<String>, errors: &mut Errors) {
    errors.extend(problems.into_iter().map(|problem| at.invalid_value(at.text_or_empty(), problem)));
}

pub(super) fn dns_label(at: &At<'_, '_>, errors: &mut Errors) {
    reject(at, meta::dns_label_problems(at.text_or_empty()), errors);
}

pub(super) fn dns_subdomain(at: &At<'_, '_>, errors: &mut Errors) {
    reject(at, meta::dns_subdomain_problems(at.text_or_empty()), errors);
}

pub(super) fn qualified_name(at: &At<'_, '_>, errors: &mut Errors) {
    reject(at, meta::qualified_name_problems(at.text_or_empty()), errors);
}

pub(super) fn label_value(at: &At<'_, '_>, errors: &mut Errors) {
    reject(at, meta::label_value_problems(at.text_or_empty()), errors);
}

/// A required text. Returns true if it is there.
pub(super) fn required(at: &At<'_, '_>, errors: &mut Errors) -> bool {
    let given = !at.text_or_empty().is_empty();
    if !given {
        errors.push(at.required(""));
    }
    given
}

pub(super) fn required_dns_label(at: &At<'_, '_>, errors: &mut Errors) {
    if required(at, errors) {
        dns_label(at, errors);
    }
}

/// An optional choice.
pub(super) fn one_of(at: &At<'_, '_>, known: &[&str], errors: &mut Errors) {
    if at.is_set() {
        one_of_or_empty(at, known, errors);
    }
}

/// A required choice.
pub(super) fn required_one_of(at: &At<'_, '_>, known: &[&str], errors: &mut Errors) {
    if required(at, errors) {
        one_of_or_empty(at, known, errors);
    }
}

/// A choice for which an empty value is reported like an unknown one.
pub(super) fn one_of_or_empty(at: &At<'_, '_>, known: &[&str], errors: &mut Errors) {
    let choice = at.text_or_empty();
    if !known.contains(&choice) {
        errors.push(at.not_supported(choice, known));
    }
}

pub(super) fn between(at: &At<'_, '_>, least: i64, most: i64, errors: &mut Errors) {
    if at.int().is_some_and(|number| number < least || number > most) {
        errors.push(at.invalid(out_of_range(least, most)));
    }
}

pub(super) fn out_of_range(least: i64, most: i64) -> String {
    format!("must be between {least} and {most}, inclusive")
}

pub(super) fn not_negative(at: &At<'_, '_>, errors: &mut Errors) {
    if at.int().is_some_and(|number| number < 0) {
        errors.push(at.invalid("must be greater than or equal to 0"));
    }
}

/// Permission bits of a file.
pub(super) fn file_mode(at: &At<'_, '_>, errors: &mut Errors) {
    if at.int().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        errors.push(at.invalid("must be a number between 0 and 0777 (octal), both inclusive"));
    }
}

// ---- paths of files ----

/// Checks `text`; errors name `at`: in some lists, errors name the field of the list, not the element.
pub(super) fn no_backsteps(at: &At<'_, '_>, text: &str, errors: &mut Errors) {
    if text.split('/').any(|part| part == "..") {
        errors.push(at.invalid_value(text, "must not contain '..'"));
    }
}

pub(super) fn relative_path(at: &At<'_, '_>, text: &str, errors: &mut Errors) {
    if text.starts_with('/') {
        errors.push(at.invalid_value(text, "must be a relative path"));
    }
    no_backsteps(at, text, errors);
}

/// As a relative path, and not starting with two dots: such names are reserved for the node.
pub(super) fn unreserved_path(at: &At<'_, '_>, text: &str, errors: &mut Errors) {
    relative_path(at, text, errors);
    if text.starts_with("..") && !text.starts_with("../") {
        errors.push(at.invalid_value(text, "must not start with '..'"));
    }
}

// ---- ports and addresses ----

pub(super) use crate::meta::port_name_problems;

/// A port by number or by its name in the container.
pub(super) fn port_number_or_name(at: &At<'_, '_>, errors: &mut Errors) {
    match at.value {
        Some(Value::String(name)) => reject(at, port_name_problems(name), errors),
        value => {
            let number = value.and_then(Value::as_i64).unwrap_or(0);
            if !(1..=65_535).contains(&number) {
                errors.push(at.invalid_value(number, out_of_range(1, 65_535)));
            }
        }
    }
}

/// An IP address, unless it is in `kept`: an object may keep its existing values.
pub(super) fn ip_address(at: &At<'_, '_>, text: &str, kept: &[Value], errors: &mut Errors) {
    if kept.iter().any(|old| old.get("ip").and_then(Value::as_str).unwrap_or_default() == text) {
        return;
    }
    let problem = match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => "must not be an IPv4-mapped IPv6 address",
        Ok(_) => return,
        Err(_) if without_leading_zeros(text).parse::<IpAddr>().is_ok() => "must not have leading 0s",
        Err(_) => "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
    };
    errors.push(at.invalid_value(text, problem));
}

fn without_leading_zeros(address: &str) -> String {
    let octet = |octet: &str| match octet.trim_start_matches('0') {
        "" if !octet.is_empty() => "0".to_owned(),
        digits => digits.to_owned(),
    };
    address.split('.').map(octet).collect::<Vec<_>>().join(".")
}

// ---- selectors ----

pub(super) fn label_selector(selector: &At<'_, '_>, errors: &mut Errors) {
    errors.extend(meta::validate_labels(selector.at("matchLabels")));
    for requirement in selector.at("matchExpressions").items() {
        values_fit_operator(&requirement, &[], errors);
        qualified_name(&requirement.at("key"), errors);
        for value in requirement.at("values").items() {
            label_value(&value, errors);
        }
    }
}

/// Whether a requirement has the values its operator needs. `single` names operators that compare with one value.
pub(super) fn values_fit_operator(requirement: &At<'_, '_>, single: &[&str], errors: &mut Errors) {
    let (operator, values) = (requirement.at("operator"), requirement.at("values"));
    match operator.text_or_empty() {
        "In" | "NotIn" => {
            if values.is_empty() {
                errors.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                errors.push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
            }
        }
        other if single.contains(&other) => {
            if values.len() != 1 {
                errors.push(values.required("must be specified single value when `operator` is 'Lt' or 'Gt'"));
            }
        }
        other => errors.push(operator.invalid_value(other, "not a valid selector operator")),
    }
}

// ---- sets ----

/// A set of texts, to find duplicates.
#[derive(Default)]
pub(super) struct UniqueTexts<'v>(BTreeSet<&'v str>);

impl<'v> UniqueTexts<'v> {
    /// Returns true if the text is new.
    pub(super) fn insert(&mut self, text: &'v str) -> bool {
        self.0.insert(text)
    }

    pub(super) fn contains(&self, text: &str) -> bool {
        self.0.contains(text)
    }
}

/// A duplicate value, printed as `value` and not as the value here.
pub(super) fn duplicate(at: &At<'_, '_>, value: impl Serialize) -> FieldError {
    FieldError::new(ErrorKind::Duplicate, at.path(), Some(as_json(value)), "")
}

pub(super) fn not_found(at: &At<'_, '_>, name: &str, detail: impl Into<String>) -> FieldError {
    FieldError::new(ErrorKind::NotFound, at.path(), Some(as_json(name)), detail)
}

fn as_json(value: impl Serialize) -> String {
    serde_json::to_string(&value).unwrap_or_default()
}
