//! Environment variables, and the fields of the Pod that they and downward API volumes can expose.

use std::collections::BTreeMap;

use tally_value::Value;

use crate::field::At;
use crate::meta;

use super::checks::{Errors, dns_label, dns_subdomain, no_backsteps, not_found, reject, required};

/// Fields that a variable can expose. A label or annotation is exposed by name: `metadata.labels['app']`.
const SHOWN_IN_VARIABLES: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Fields that a file can expose, including all labels at once.
pub(super) const SHOWN_IN_FILES: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// All existing fields, though not every use may expose them.
const KNOWN_FIELDS: [&str; 14] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

const BYTE_DIVISORS: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

pub(super) fn variables(list: &At<'_, '_>, errors: &mut Errors) {
    for variable in list.items() {
        let name = variable.at("name");
        if required(&name, errors) {
            reject(&name, name_problems(name.text_or_empty()), errors);
        }
        let source = variable.at("valueFrom");
        if source.is_set() {
            value_from(&source, !variable.at("value").text_or_empty().is_empty(), errors);
        }
    }
}

/// Printable ASCII except `=`: what an environment of a process can contain.
fn name_problems(name: &str) -> Vec<String> {
    if name.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=') {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
}

fn value_from(source: &At<'_, '_>, has_value: bool, errors: &mut Errors) {
    let mut sources = 0;
    for (kind, check) in [
        ("fieldRef", (|at, errors| field_ref(at, &SHOWN_IN_VARIABLES, errors)) as fn(&At<'_, '_>, &mut Errors)),
        ("resourceFieldRef", |at, errors| resource_field_ref(at, false, errors)),
        ("configMapKeyRef", key_ref),
        ("secretKeyRef", key_ref),
        ("fileKeyRef", file_key_ref),
    ] {
        let reference = source.at(kind);
        if reference.is_set() {
            sources += 1;
            check(&reference, errors);
        }
    }
    let problem = match sources {
        0 => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        _ if has_value => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(source.invalid_value("", problem));
}

/// `shown`: the fields that this use can expose, in order.
pub(super) fn field_ref(reference: &At<'_, '_>, shown: &[&str], errors: &mut Errors) {
    let (version, path) = (reference.at("apiVersion"), reference.at("fieldPath"));
    if !required(&version, errors) || !required(&path, errors) {
        return;
    }
    let (version, field) = (version.text_or_empty(), path.text_or_empty());
    let mut unknown =
        |why: String| errors.push(path.invalid_value(field, format!("error converting fieldPath: {why}")));
    if version != "v1" {
        return unknown(format!("unsupported pod version: {version}"));
    }
    match subscript(field) {
        // Annotation keys may be in either case.
        Some(("metadata.annotations", key)) => subscript_name(reference, &key.to_lowercase(), errors),
        Some(("metadata.labels", key)) => subscript_name(reference, key, errors),
        Some(_) => unknown(format!("field label does not support subscript: {field}")),
        None => {
            // An old name of the field.
            let field = if field == "spec.host" { "spec.nodeName" } else { field };
            if !KNOWN_FIELDS.contains(&field) {
                unknown(format!("field label not supported: {field}"));
            } else if !shown.contains(&field) {
                errors.push(path.not_supported(field, shown));
            }
        }
    }
}

fn subscript_name(reference: &At<'_, '_>, key: &str, errors: &mut Errors) {
    let problems = meta::qualified_name_problems(key).into_iter();
    errors.extend(problems.map(|problem| reference.invalid_value(key, problem)));
}

/// `metadata.labels['app']` is the field `metadata.labels` and the key `app`.
fn subscript(field: &str) -> Option<(&str, &str)> {
    let (field, key) = field.strip_suffix("']")?.split_once("['")?;
    (!field.is_empty()).then_some((field, key))
}

/// `in_file`: a file may expose a resource of any container and must name the container.
pub(super) fn resource_field_ref(reference: &At<'_, '_>, in_file: bool, errors: &mut Errors) {
    let (container, resource) = (reference.at("containerName"), reference.at("resource"));
    let name = resource.text_or_empty();
    let huge_pages = name.starts_with("limits.hugepages-") || name.starts_with("requests.hugepages-");
    let placed = !in_file || required(&container, errors);
    if placed && required(&resource, errors) && !RESOURCES.contains(&name) && !huge_pages {
        errors.push(resource.not_supported(name, &RESOURCES));
    }
    let divisor = reference.at("divisor");
    let amount = divisor.text_or_empty();
    if matches!(amount, "" | "0") {
        return;
    }
    let (known, told): (&[&str], _) = match name {
        "limits.cpu" | "requests.cpu" => (&["1m", "1"], "1m and 1 are supported with the cpu resource"),
        "limits.memory" | "requests.memory" => (
            &BYTE_DIVISORS,
            "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource",
        ),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => (
            &BYTE_DIVISORS,
            "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the local ephemeral storage resource",
        ),
        _ if huge_pages => (
            &BYTE_DIVISORS,
            "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the hugepages resource",
        ),
        _ => return,
    };
    if !known.contains(&amount) {
        // The error prints the resource, not the divisor, as in kube-apiserver.
        errors.push(divisor.invalid_value(name, format!("only divisor's values {told}")));
    }
}

/// One key of a ConfigMap or Secret.
fn key_ref(reference: &At<'_, '_>, errors: &mut Errors) {
    dns_subdomain(&reference.at("name"), errors);
    let key = reference.at("key");
    if required(&key, errors) {
        reject(&key, config_key_problems(key.text_or_empty()), errors);
    }
}

fn config_key_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if key.len() > 253 {
        problems.push("must be no more than 253 characters".to_owned());
    }
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')) {
        problems.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' \
             (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    match key {
        "." => problems.push("must not be '.'".to_owned()),
        ".." => problems.push("must not be '..'".to_owned()),
        _ if key.starts_with("..") => problems.push("must not start with '..'".to_owned()),
        _ => {}
    }
    problems
}

fn file_key_ref(reference: &At<'_, '_>, errors: &mut Errors) {
    let key = reference.at("key");
    if required(&key, errors) {
        reject(&key, name_problems(key.text_or_empty()), errors);
    }
    let volume = reference.at("volumeName");
    if required(&volume, errors) {
        dns_label(&volume, errors);
    }
    let path = reference.at("path");
    if required(&path, errors) {
        no_backsteps(&path, path.text_or_empty(), errors);
    }
}

/// Whole ConfigMaps and Secrets as variables.
pub(super) fn from_sources(list: &At<'_, '_>, errors: &mut Errors) {
    for source in list.items() {
        let prefix = source.at("prefix");
        reject(&prefix, name_problems(prefix.text_or_empty()), errors);
        let mut sources = 0;
        for kind in ["configMapRef", "secretRef"] {
            let reference = source.at(kind);
            if reference.is_set() {
                sources += 1;
                let name = reference.at("name");
                if required(&name, errors) {
                    // The name is validated like a prefix, which may end in a dash.
                    reject(&name, meta::name_is_dns_subdomain(name.text_or_empty(), true), errors);
                }
            }
        }
        match sources {
            0 => errors.push(list.invalid_value("", "must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => errors.push(list.invalid_value("", "may not have more than one field specified at a time")),
        }
    }
}

/// A variable read from a file needs an emptyDir that contains the file. Runs over the whole spec, after all other
/// checks.
pub(super) fn files_are_on_empty_dirs(spec: &At<'_, '_>, errors: &mut Errors) {
    let volumes = spec.at("volumes");
    let volumes: BTreeMap<&str, &Value> =
        volumes.list().iter().filter_map(|volume| Some((volume["name"].as_str()?, volume))).collect();
    for list in super::containers::LISTS {
        for container in spec.at(list).items() {
            for variable in container.at("env").items() {
                let source = variable.at("valueFrom");
                let reference = source.at("fileKeyRef");
                if !reference.is_set() {
                    continue;
                }
                let volume = reference.at("volumeName");
                let name = volume.text_or_empty();
                match volumes.get(name) {
                    None => errors.push(not_found(&volume, name, "")),
                    Some(found) if found.get("emptyDir").is_none() => {
                        errors.push(volume.invalid_value(name, "referenced volume must be of type emptyDir"));
                    }
                    Some(_) => {}
                }
            }
        }
    }
}
