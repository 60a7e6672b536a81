//! The Pod's rules: defaults, errors and their messages, allowed changes.

mod changes;
mod spec;

use tally_api::decode::decode_as;
use tally_api::field::FieldError;
use tally_api::kinds::Rules;
use tally_api::options::{FieldValidation, Format};
use tally_api::pod::PodRules;
use tally_core::time::Timestamp;
use tally_value::{Value, json};

const NOW: Timestamp = Timestamp::from_seconds(1_714_557_600);

/// A Pod as a client sends it, with defaults.
fn received(pod: &Value) -> Value {
    let body = serde_json::to_vec(pod).unwrap();
    let mut pod = decode_as("", "v1", "Pod", &body[..], Format::Json, FieldValidation::Strict).expect("decodes").object;
    PodRules.default(&mut pod);
    pod
}

/// A Pod named `p` with one container; `spec` is merged into its spec.
fn written(spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" },
        "spec": { "containers": [{ "name": "c", "image": "i" }] },
    });
    merge(&mut pod["spec"], spec);
    pod
}

fn merge(into: &mut Value, from: Value) {
    for (key, value) in from.as_object().unwrap().clone() {
        into[key] = value;
    }
}

fn created(spec: Value) -> Value {
    let mut pod = received(&written(spec));
    PodRules.prepare_create(&mut pod, NOW);
    pod
}

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// The errors for a Pod with this spec. If a text ends in `...`, only its beginning is compared.
fn check(spec: Value, told: &[&str]) {
    let pod = created(spec.clone());
    compare(&texts(&PodRules.validate_create(&pod)), told, &spec);
}

/// The errors for one container that has these fields in addition to name and image.
fn check_container(fields: Value, told: &[&str]) {
    let mut container = json!({ "name": "c", "image": "i" });
    merge(&mut container, fields);
    check(json!({ "containers": [container], "volumes": [{ "name": "v" }] }), told);
}

fn compare(found: &[String], told: &[&str], what: &Value) {
    let fits = |(found, told): (&String, &&str)| match told.strip_suffix("...") {
        Some(beginning) => found.starts_with(beginning),
        None => found == told,
    };
    assert!(
        found.len() == told.len() && found.iter().zip(told).all(fits),
        "{what}\n found {found:#?}\n told {told:#?}"
    );
}
