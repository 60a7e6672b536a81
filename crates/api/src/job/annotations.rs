//! The annotations of Jobs that Tally reads: their values are validated like fields. Kubernetes has none of these
//! rules, so they come after those that it has.

use tally_core::after::{self, AFTER, AFTER_STATE, JobName};
use tally_core::backoff::{self, BackoffPolicy};
use tally_core::job::{HALT_ANNOTATION, HALT_NOW, HALT_SOON, RESERVED_MANAGER};
use tally_core::lifetime::{
    self, DELETE_FINISHED_PODS, EarlyDeletion, REPLACE_TERMINATING_AFTER, TTL_AFTER_COMPLETE, TTL_AFTER_FAILED,
};
use tally_core::pending::{self, PENDING_TIMEOUT};
use tally_value::{Map, Value};

use super::map_at;
use crate::field::{At, FieldError};
use crate::kinds::Siblings;

/// What is wrong with a TTL in an annotation.
pub(crate) const TTL_DETAIL: &str = "must be a number of seconds from 0 to 2147483647, such as 3600";

/// ORDER-2: a Job that waits for others is created suspended, if this cluster runs it. The state of the wait belongs to
/// the controller.
pub(super) fn prepare_create(job: &mut Map) {
    let annotations =
        map_at(job, "metadata").and_then(|meta| meta.get_mut("annotations")).and_then(Value::as_object_mut);
    let Some(annotations) = annotations else { return };
    annotations.remove(AFTER_STATE);
    if !annotations.contains_key(AFTER) {
        return;
    }
    let Some(spec) = map_at(job, "spec") else { return };
    if matches!(spec.get("managedBy").and_then(Value::as_str), None | Some(RESERVED_MANAGER)) {
        spec.insert("suspend", true.into());
    }
}

/// ORDER-1, PENDING-1, BACKOFF-12, BLPI-11, TTL-14, TTL-21 and REPL-8, for the metadata of a Job or of a CronJob's template. Annotations can be
/// changed through `/status`, too; those that have not changed are accepted, so that a Job that has invalid ones can
/// still be written.
pub(crate) fn validate(meta: &At<'_, '_>, old: Option<&At<'_, '_>>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let annotations = meta.at("annotations");
    let changed = |key: &str| {
        let before = old.map(|old| old.at("annotations").at(key).value.cloned());
        before.is_none_or(|before| before.as_ref() != annotations.at(key).value)
    };
    let value = annotations.key(AFTER);
    if let Some(text) = value.text().filter(|_| changed(AFTER)) {
        match after::parse(text) {
            Err(error) => errors.push(value.invalid(error.to_string())),
            Ok(all) if all.iter().any(|one| one.name == meta.at("name").text_or_empty()) => {
                errors.push(value.invalid("a Job cannot wait for itself; name another Job"));
            }
            Ok(_) => {}
        }
    }
    let value = annotations.key(PENDING_TIMEOUT);
    if let Some(text) = value.text().filter(|_| changed(PENDING_TIMEOUT))
        && let Err(error) = pending::parse(text)
    {
        errors.push(value.invalid(error.to_string()));
    }
    let value = annotations.key(DELETE_FINISHED_PODS);
    let is_wrong = |text: &str| changed(DELETE_FINISHED_PODS) && EarlyDeletion::parse(text).is_none();
    if value.text().is_some_and(is_wrong) {
        errors.push(value.invalid("must be succeeded, to delete Pods that have succeeded, or all"));
    }
    for name in [TTL_AFTER_COMPLETE, TTL_AFTER_FAILED] {
        let value = annotations.key(name);
        if value.text().is_some_and(|text| changed(name) && lifetime::ttl_seconds(text).is_none()) {
            errors.push(value.invalid(TTL_DETAIL));
        }
    }
    let value = annotations.key(REPLACE_TERMINATING_AFTER);
    if let Some(text) = value.text().filter(|_| changed(REPLACE_TERMINATING_AFTER))
        && let Err(detail) = lifetime::terminating_wait(text)
    {
        errors.push(value.invalid(detail));
    }
    errors.extend(validate_retries(meta, old));
    errors
}

/// The annotations about retries, and about when there are no more.
fn retry_annotations<'v>(meta: &At<'_, 'v>) -> [Option<&'v str>; 4] {
    let annotations = meta.at("annotations");
    let text = |name: &str| annotations.at(name).text();
    [backoff::BASE_ANNOTATION, backoff::MAX_ANNOTATION, backoff::JITTER_ANNOTATION, HALT_ANNOTATION].map(text)
}

fn validate_retries(meta: &At<'_, '_>, old: Option<&At<'_, '_>>) -> Vec<FieldError> {
    let given = retry_annotations(meta);
    if old.is_some_and(|old| retry_annotations(old) == given) {
        return Vec::new();
    }
    let [base, max, jitter, halt] = given;
    let mut errors = BackoffPolicy::read(base, max, jitter).err().unwrap_or_default();
    // The path of a Job's own annotations; in a CronJob the template is in front of it.
    if let Some(template) = meta.path().strip_suffix(".metadata") {
        errors.iter_mut().for_each(|error| error.path = format!("{template}.{}", error.path));
    }
    let annotations = meta.at("annotations");
    if halt.is_some_and(|halt| ![HALT_NOW, HALT_SOON].contains(&halt)) {
        let halt = annotations.key(HALT_ANNOTATION);
        errors.push(halt.invalid("must be now, to stop Pods that run, or soon, to let them end"));
    }
    errors
}

/// ORDER-6: a new Job must not close a cycle of Jobs that wait for each other.
pub(super) fn validate_among(job: &Value, siblings: &dyn Siblings) -> Vec<FieldError> {
    let root = At::root(job);
    let meta = root.at("metadata");
    let annotations = meta.at("annotations");
    let value = annotations.key(AFTER);
    if !value.is_set() {
        return Vec::new();
    }
    let name = meta.at("name").text_or_empty();
    let found = after::cycle(name, |other| {
        if other == name {
            waits_for(&root)
        } else {
            siblings.named(other).map(|other| waits_for(&At::root(&other))).unwrap_or_default()
        }
    });
    let refused = |cycle: Vec<_>| {
        let detail = format!("the Jobs would wait for each other: {}", after::describe_cycle(&cycle));
        value.invalid(detail)
    };
    found.map(refused).into_iter().collect()
}

/// The names of the Jobs that a suspended Job waits for.
fn waits_for(job: &At<'_, '_>) -> Vec<JobName> {
    let meta = job.at("metadata");
    let text = meta.at("annotations").at(AFTER).text();
    let after = text.filter(|_| job.at("spec").at("suspend").is_true()).and_then(|text| after::parse(text).ok());
    after.into_iter().flatten().map(|one| one.name).collect()
}
