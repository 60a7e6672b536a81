//! Metadata that every object has: what a client may set, what it may change, and what is silently restored.
//!
//! A create validates all of it. An update first restores the old values where clients send stale or empty ones
//! unintentionally (`prepare_update`), and then refuses the remaining changes of immutable fields.

use std::collections::{BTreeSet, HashSet};

use serde::Serialize;
use tally_value::{Map, Value};

use crate::field::{At, FieldError};
use crate::kinds::{Resource, is_kept};
use crate::status_error::StatusError;

mod names;

pub use names::*;

/// The finalizers of the garbage collector, which exclude each other.
pub const ORPHAN: &str = "orphan";
pub const FOREGROUND: &str = "foregroundDeletion";

const IMMUTABLE: &str = "field is immutable";

/// The longest generated name: that of a DNS label, so that it can also be a host name or a label value.
const GENERATED_LENGTH: usize = 63;

/// All errors of the metadata of a new object, after its name has been generated.
pub fn validate_create(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let root = At::root(object);
    let meta = root.at("metadata");
    let mut errors = Vec::new();

    let generate = meta.at("generateName");
    if let Some(prefix) = generate.text().filter(|prefix| !prefix.is_empty()) {
        let problems = resource.rules.name_problems(prefix, true);
        errors.extend(problems.into_iter().map(|problem| generate.invalid(problem)));
    }
    let name = meta.at("name");
    match name.text_or_empty() {
        "" => errors.push(name.required("name or generateName is required")),
        text => {
            let problems = resource.rules.name_problems(text, false);
            errors.extend(problems.into_iter().map(|problem| name.invalid(problem)));
        }
    }
    let namespace = meta.at("namespace");
    match (resource.namespaced, namespace.text_or_empty()) {
        (true, "") => errors.push(namespace.required("")),
        (true, text) => {
            errors.extend(dns_label_problems(text).into_iter().map(|problem| namespace.invalid(problem)));
        }
        (false, "") => {}
        (false, _) => errors.push(namespace.forbidden("not allowed on this type")),
    }
    let generation = meta.at("generation");
    if generation.int().is_some_and(|generation| generation < 0) {
        errors.push(generation.invalid("must be greater than or equal to 0"));
    }
    errors.extend(validate_always(&meta, None));
    errors.extend(validate_finalizer_domains(resource, meta.at("finalizers")));
    errors
}

/// The rules for an object's metadata, new or changed. What is kept of the stored metadata is valid.
fn validate_always(meta: &At<'_, '_>, before: Option<&Value>) -> Vec<FieldError> {
    let kept = |part: &str| before.is_some_and(|before| meta.value.is_some_and(|meta| is_kept(meta, before, part)));
    let mut errors = Vec::new();
    if !kept("labels") {
        errors.extend(validate_labels(meta.at("labels")));
    }
    if !kept("annotations") {
        errors.extend(validate_annotations(meta.at("annotations")));
    }
    if !kept("ownerReferences") {
        errors.extend(validate_owner_references(meta.at("ownerReferences")));
    }
    if !kept("finalizers") {
        errors.extend(validate_finalizers(meta.at("finalizers")));
    }
    errors
}

/// Validates the generateName of a changed object, for the kinds that still check it. It has no effect any more, and
/// most kinds do not check it.
pub fn validate_generate_name(object: &Value) -> Vec<FieldError> {
    let root = At::root(object);
    let meta = root.at("metadata");
    let generate = meta.at("generateName");
    let prefix = generate.text_or_empty();
    let problems = if prefix.is_empty() { Vec::new() } else { name_is_dns_subdomain(prefix, true) };
    problems.into_iter().map(|problem| generate.invalid(problem)).collect()
}

/// All errors of a change of metadata, after `prepare_update`. Both objects have a resourceVersion: that of an
/// unconditional write was set from the stored object.
pub fn validate_update(resource: &Resource, new: &Value, old: &Value) -> Vec<FieldError> {
    let (new_root, old_root) = (At::root(new), At::root(old));
    let (meta, before) = (new_root.at("metadata"), old_root.at("metadata"));
    let mut errors = validate_always(&meta, before.value);

    if before.at("deletionTimestamp").is_set() {
        errors.extend(validate_no_new_finalizers(meta.at("finalizers"), before.at("finalizers")));
    }
    let version = meta.at("resourceVersion");
    if version.text_or_empty().is_empty() {
        errors.push(version.invalid_value("", "must be specified for an update"));
    }
    let generation = meta.at("generation");
    let (count, count_before) = (generation.int().unwrap_or(0), before.at("generation").int().unwrap_or(0));
    if count < count_before {
        errors.push(generation.invalid_value(count, "must not be decremented"));
    }
    for field in ["name", "namespace", "uid"] {
        let at = meta.at(field);
        if at.text_or_empty() != before.at(field).text_or_empty() {
            errors.push(at.invalid_value(at.text_or_empty(), IMMUTABLE));
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let at = meta.at(field);
        if at.value != before.at(field).value {
            errors.push(at.invalid(IMMUTABLE));
        }
    }
    errors.extend(validate_finalizer_domains(resource, meta.at("finalizers")));
    errors
}

/// Removes what a client cannot set on a new object because the server sets it. The name, namespace, UID and
/// creationTimestamp must be set after this.
pub fn prepare_create(object: &mut Value) {
    if let Some(meta) = metadata_mut(object) {
        for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            meta.remove(field);
        }
    }
}

/// Silently restores fields before a change is validated: clients send what they once read, or nothing at all. Runs
/// before `Rules::prepare_update`, which may increase the generation restored here.
pub fn prepare_update(new: &mut Value, old: &Value) {
    let before = old.get("metadata");
    let before = |field: &str| before.and_then(|meta| meta.get(field)).filter(|value| !value.is_null()).cloned();
    let Some(meta) = metadata_mut(new) else { return };
    meta.remove("selfLink");
    for field in ["creationTimestamp", "generation"] {
        put(meta, field, before(field));
    }
    if meta.get("uid").and_then(Value::as_str).is_none_or(str::is_empty) {
        put(meta, "uid", before("uid"));
    }
    // A deletion cannot be revoked or moved. Setting the time where there is none is an error and is not restored.
    if let Some(deletion) = before("deletionTimestamp") {
        put(meta, "deletionTimestamp", Some(deletion));
    }
    if meta.get("deletionGracePeriodSeconds").is_none_or(Value::is_null) {
        put(meta, "deletionGracePeriodSeconds", before("deletionGracePeriodSeconds"));
    }
}

/// Removes owner references that are exact duplicates. Returns the warning for the client, if there were any.
pub fn dedupe_owner_references(object: &mut Value) -> Vec<String> {
    let references = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
    let Some(references) = references.filter(|references| references.len() > 1) else { return Vec::new() };
    let mut seen = HashSet::new();
    let mut duplicates = Vec::new();
    references.retain(|reference| {
        let first = seen.insert(reference.clone());
        if !first {
            duplicates.push(reference.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned());
        }
        first
    });
    if duplicates.is_empty() {
        return Vec::new();
    }
    vec![format!(
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may \
         reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        duplicates.join(", ")
    )]
}

/// Whether a PUT must contain a resourceVersion: leases are locks, and the status of budgets is decremented.
pub fn needs_resource_version(resource: &Resource) -> bool {
    matches!((resource.group, resource.plural), ("coordination.k8s.io", "leases") | ("policy", "poddisruptionbudgets"))
}

/// The status error for a PUT without a resourceVersion where one is required.
pub fn resource_version_missing(resource: &Resource, name: &str) -> StatusError {
    let at = At::rooted("metadata.resourceVersion", None);
    StatusError::invalid(
        resource.group,
        resource.plural,
        name,
        &[at.invalid_value(0, "must be specified for an update")],
    )
}

/// A generateName with its suffix. A long one is truncated so that the result fits.
pub fn generated_name(prefix: &str, ending: &str) -> String {
    let mut length = prefix.len().min(GENERATED_LENGTH.saturating_sub(ending.len()));
    while !prefix.is_char_boundary(length) {
        length -= 1;
    }
    format!("{}{ending}", prefix.get(..length).unwrap_or_default())
}

fn metadata_mut(object: &mut Value) -> Option<&mut Map> {
    let meta = object.as_object_mut()?.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    meta.as_object_mut()
}

fn put(meta: &mut Map, field: &str, value: Option<Value>) {
    match value {
        Some(value) => meta.insert(field, value),
        None => meta.remove(field),
    };
}

/// An owner reference as error messages print it: with its fields in the order of their declaration.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Owner<'a> {
    api_version: &'a str,
    kind: &'a str,
    name: &'a str,
    uid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    controller: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_owner_deletion: Option<bool>,
}

impl<'a> Owner<'a> {
    fn of(reference: &'a Value) -> Self {
        let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
        let flag = |field: &str| reference.get(field).and_then(Value::as_bool);
        Self {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("name"),
            uid: text("uid"),
            controller: flag("controller"),
            block_owner_deletion: flag("blockOwnerDeletion"),
        }
    }

    /// Group and version. None if there is no version, or if the text is not `group/version`.
    fn group_version(&self) -> Option<(&'a str, &'a str)> {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", self.api_version));
        (!version.is_empty() && !version.contains('/')).then_some((group, version))
    }
}

/// Each error about an additional controller prints all owners. With one error for each, a long list would use up the
/// memory.
const MOST_CONTROLLERS_TOLD: usize = 10;

/// API-17. Errors name the list, not the element.
fn validate_owner_references(references: At<'_, '_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut controller: Option<Owner<'_>> = None;
    let mut more_controllers = 0;
    for reference in references.list() {
        let owner = Owner::of(reference);
        let group_version = owner.group_version();
        if group_version.is_none() {
            let at = references.at("apiVersion");
            errors.push(at.invalid_value(owner.api_version, "version must not be empty"));
        }
        for (field, text) in [("kind", owner.kind), ("name", owner.name), ("uid", owner.uid)] {
            if text.is_empty() {
                errors.push(references.at(field).invalid_value("", "must not be empty"));
            }
        }
        // Events are created and deleted in large numbers: no object may depend on one of them.
        if group_version == Some(("", "v1")) && owner.kind == "Event" {
            errors.push(references.invalid_value(&owner, "/v1, Kind=Event is disallowed from being an owner"));
        }
        if owner.controller != Some(true) {
            continue;
        }
        if let Some(first) = &controller {
            more_controllers += 1;
            if more_controllers > MOST_CONTROLLERS_TOLD {
                continue;
            }
            let all: Vec<Owner<'_>> = references.list().iter().map(Owner::of).collect();
            let text = format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {}/{} and {}/{}",
                first.kind, first.name, owner.kind, owner.name
            );
            errors.push(references.invalid_value(all, text));
        } else {
            controller = Some(owner);
        }
    }
    errors
}

fn finalizers<'v>(finalizers: &At<'_, 'v>) -> impl Iterator<Item = &'v str> {
    finalizers.list().iter().filter_map(Value::as_str)
}

fn validate_finalizers(at: At<'_, '_>) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = finalizers(&at).flat_map(|name| validate_finalizer_name(at, name)).collect();
    if finalizers(&at).any(|name| name == ORPHAN) && finalizers(&at).any(|name| name == FOREGROUND) {
        errors.push(at.invalid(format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set")));
    }
    errors
}

/// A finalizer must have a domain, except for the few original ones.
fn validate_finalizer_domains(resource: &Resource, at: At<'_, '_>) -> Vec<FieldError> {
    // Leases are validated by the common rules only.
    if resource.group == "coordination.k8s.io" {
        return Vec::new();
    }
    let bare = |name: &str| !name.contains('/') && !matches!(name, ORPHAN | FOREGROUND | "kubernetes");
    let wrong = at.items().filter(|item| item.text().is_some_and(bare));
    wrong.map(|item| item.invalid("name is neither a standard finalizer name nor is it fully qualified")).collect()
}

/// API-9: an object that is being deleted must not get new finalizers, because they would delay its removal.
fn validate_no_new_finalizers(at: At<'_, '_>, before: At<'_, '_>) -> Option<FieldError> {
    let before: BTreeSet<&str> = finalizers(&before).collect();
    let extra: BTreeSet<&str> = finalizers(&at).filter(|name| !before.contains(name)).collect();
    if extra.is_empty() {
        return None;
    }
    let names: Vec<String> = extra.iter().map(|name| format!("{name:?}")).collect();
    Some(at.forbidden(format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        names.join(", ")
    )))
}
