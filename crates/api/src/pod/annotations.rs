//! Annotations that have a meaning for Pods: mostly older forms of fields.

use std::collections::BTreeSet;

use tally_core::lifetime::{POD_TTL, ttl_seconds};
use tally_value::{Map, Value};

use crate::field::{At, FieldError};
use crate::job::TTL_DETAIL;

use super::checks::{Errors, relative_path};
use super::containers::LISTS;

/// Marks the API's copy of a static Pod, which a node runs by itself.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
pub(super) const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
pub(super) const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
pub(super) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

pub(super) fn validate(annotations: &At<'_, '_>, spec: &At<'_, '_>, errors: &mut Errors) {
    if annotations.key(MIRROR).is_set() && spec.at("nodeName").text_or_empty().is_empty() {
        errors.push(annotations.key(MIRROR).invalid("must set spec.nodeName if mirror pod annotation is set"));
    }
    let cost = annotations.key(DELETION_COST);
    if cost.text().is_some_and(|cost| !is_cost(cost)) {
        errors.push(cost.invalid("must be a 32bit integer"));
    }
    let ttl = annotations.key(POD_TTL);
    if ttl.text().is_some_and(|text| ttl_seconds(text).is_none()) {
        errors.push(ttl.invalid(TTL_DETAIL));
    }
    let mut containers = None;
    for (key, value) in annotations.entries() {
        let value = value.as_str().unwrap_or_default();
        if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            seccomp_profile(&annotations.at(key), value, errors);
        }
        if let Some(container) = key.strip_prefix(APP_ARMOR) {
            if !containers.get_or_insert_with(|| container_names(spec)).contains(container) {
                errors.push(annotations.key(key).invalid_value(container, "container not found"));
            }
            if !matches!(value, "" | "runtime/default" | "unconfined") && !value.starts_with("localhost/") {
                errors.push(annotations.key(key).invalid(format!("invalid AppArmor profile name: {value:?}")));
            }
        }
    }
}

/// A 32-bit integer without a plus sign or leading zeros.
fn is_cost(text: &str) -> bool {
    let plain = !text.starts_with('+') && (text == "0" || !text.starts_with('0'));
    plain && text.parse::<i32>().is_ok()
}

fn seccomp_profile(at: &At<'_, '_>, profile: &str, errors: &mut Errors) {
    match profile.strip_prefix("localhost/") {
        Some(file) => relative_path(at, file, errors),
        None if matches!(profile, "runtime/default" | "docker/default" | "unconfined") => {}
        None => errors.push(at.invalid_value(profile, "must be a valid seccomp profile")),
    }
}

/// Collected once: there can be many annotations and many containers.
fn container_names<'v>(spec: &At<'_, 'v>) -> BTreeSet<&'v str> {
    let containers = LISTS.iter().flat_map(|list| spec.at(list).list());
    containers.filter_map(|container| container["name"].as_str()).collect()
}

/// If an annotation and the field that replaced it are both set, they must be equal.
pub(super) fn agree_with_seccomp_fields(annotations: &At<'_, '_>, spec: &At<'_, '_>, errors: &mut Errors) {
    if annotations.is_empty() {
        return;
    }
    let of_pod = spec.at("securityContext");
    let of_pod = of_pod.at("seccompProfile");
    errors.extend(disagreement(&of_pod, annotations.key(SECCOMP_POD).text(), "seccomp"));
    for list in LISTS {
        for container in spec.at(list).items() {
            let context = container.at("securityContext");
            let key = format!("{SECCOMP_CONTAINER}{}", container.at("name").text_or_empty());
            errors.extend(disagreement(&context.at("seccompProfile"), annotations.key(&key).text(), "seccomp"));
        }
    }
}

pub(super) fn agree_with_app_armor_fields(annotations: &At<'_, '_>, spec: &At<'_, '_>, errors: &mut Errors) {
    if annotations.is_empty() || spec.at("os").at("name").text_or_empty() == "windows" {
        return;
    }
    let of_pod = spec.at("securityContext").at("appArmorProfile").value;
    for list in LISTS {
        for container in spec.at(list).items() {
            let context = container.at("securityContext");
            let own = context.at("appArmorProfile");
            let key = format!("{APP_ARMOR}{}", container.at("name").text_or_empty());
            let place = own.path();
            let profile = At::rooted(&place, own.value.or(of_pod));
            errors.extend(disagreement(&profile, annotations.key(&key).text(), "apparmor"));
        }
    }
}

fn disagreement(profile: &At<'_, '_>, annotation: Option<&str>, word: &str) -> Option<FieldError> {
    let annotation = annotation?;
    let agrees = match profile.at("type").text()? {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => annotation == "runtime/default" || (word == "seccomp" && annotation == "docker/default"),
        "Localhost" => match annotation.strip_prefix("localhost/") {
            Some(file) if profile.at("localhostProfile").text() != Some(file) => {
                let told = format!("{word} profile in annotation and field must match");
                return Some(profile.at("localhostProfile").forbidden(told));
            }
            file => file.is_some(),
        },
        _ => true,
    };
    (!agrees).then(|| profile.at("type").forbidden(format!("{word} type in annotation and field must match")))
}

/// Annotations that decide how a Pod runs cannot change while it runs.
pub(super) fn validate_change(annotations: &At<'_, '_>, old: &Value, errors: &mut Errors) {
    let none = Map::new();
    let old = old.pointer("/metadata/annotations").and_then(Value::as_object).unwrap_or(&none);
    let kept = |key: &str| match key {
        MIRROR => Some("mirror pod annotation"),
        _ => key.starts_with(APP_ARMOR).then_some("AppArmor annotations"),
    };
    for (key, value) in old {
        if annotations.key(key).value != Some(value)
            && let Some(what) = kept(key)
        {
            errors.push(annotations.key(key).forbidden(format!("may not remove or update {what}")));
        }
    }
    for (key, _) in annotations.entries().filter(|(key, _)| !old.contains_key(key)) {
        if let Some(what) = kept(key) {
            errors.push(annotations.key(key).forbidden(format!("may not add {what}")));
        }
    }
}

/// Copies AppArmor annotations to the fields that replaced them, if those are not set.
pub(super) fn app_armor_fields(pod: &mut Value) {
    let Some(annotations) = pod.pointer("/metadata/annotations").and_then(Value::as_object) else { return };
    if !annotations.keys().any(|key| key.starts_with(APP_ARMOR))
        || pod.pointer("/spec/os/name") == Some(&"windows".into())
    {
        return;
    }
    let annotations = annotations.clone();
    let of_pod = pod.pointer("/spec/securityContext/appArmorProfile").cloned();
    for list in LISTS {
        let containers = pod.get_mut("spec").and_then(|spec| spec.get_mut(list)).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let key = format!("{APP_ARMOR}{}", container["name"].as_str().unwrap_or_default());
            let profile = annotations.get(&key).and_then(Value::as_str).and_then(app_armor_profile);
            let has_own = container.pointer("/securityContext/appArmorProfile").is_some();
            if has_own || profile.is_none() || profile == of_pod {
                continue;
            }
            if let (Some(container), Some(profile)) = (container.as_object_mut(), profile) {
                let context = container.entry("securityContext").or_insert_with(|| Map::new().into());
                if let Some(context) = context.as_object_mut() {
                    context.insert("appArmorProfile", profile);
                }
            }
        }
    }
}

fn app_armor_profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(tally_value::json!({ "type": "Unconfined" })),
        "runtime/default" => Some(tally_value::json!({ "type": "RuntimeDefault" })),
        _ => {
            let file = annotation.strip_prefix("localhost/").filter(|file| !file.is_empty() && file.trim() == *file)?;
            Some(tally_value::json!({ "type": "Localhost", "localhostProfile": file }))
        }
    }
}
