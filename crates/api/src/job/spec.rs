//! SPECVAL-9 to 24: validation of the spec of a Job, its own or in the template of a CronJob.

use crate::field::{At, FieldError};
use crate::meta::dns_subdomain_problems;
use crate::pod;

use super::policies;

/// The largest parallelism of an Indexed Job, and the largest number of its indexes that may fail: both bound the texts
/// in its status.
const MOST_INDEXED: i64 = 100_000;
/// With more completions than this, a Job that counts failures per index is limited to `MOST_WITH_MANY_COMPLETIONS`.
pub(super) const MANY_COMPLETIONS: i64 = 100_000;
pub(super) const MOST_WITH_MANY_COMPLETIONS: i64 = 10_000;
/// In bytes: the name of a manager becomes a metric label.
const LONGEST_MANAGER: usize = 63;

const NOT_INDEXED: &str = "requires indexed completion mode";

pub(crate) fn validate_spec(spec: &At<'_, '_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_numbers(spec, &mut errors);
    validate_manager(&spec.at("managedBy"), &mut errors);
    validate_completion_mode(spec, &mut errors);
    policies::validate_failure_policy(spec, &mut errors);
    validate_success_policy(spec, &mut errors);
    validate_replacement(spec, &mut errors);
    let template = spec.at("template");
    errors.extend(pod::validate_template(&template));
    validate_restart_policy(spec, &template, &mut errors);
    errors
}

pub(super) fn is_indexed(spec: &At<'_, '_>) -> bool {
    spec.at("completionMode").text() == Some("Indexed")
}

pub(crate) fn not_negative(at: &At<'_, '_>) -> Option<FieldError> {
    at.int().filter(|&number| number < 0).map(|_| at.invalid("must be greater than or equal to 0"))
}

fn validate_numbers(spec: &At<'_, '_>, errors: &mut Vec<FieldError>) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.extend(not_negative(&spec.at(field)));
    }
    let per_index = spec.at("backoffLimitPerIndex");
    if spec.at("maxFailedIndexes").is_set() && !per_index.is_set() {
        errors.push(per_index.required("when maxFailedIndexes is specified"));
    }
}

/// SPECVAL-11: a domain and a path, as in `acme.io/foo`.
fn validate_manager(manager: &At<'_, '_>, errors: &mut Vec<FieldError>) {
    let Some(text) = manager.text() else { return };
    match text.split_once('/') {
        _ if text.is_empty() => errors.push(manager.required("")),
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            let problems = dns_subdomain_problems(domain);
            errors.extend(problems.into_iter().map(|problem| manager.invalid_value(domain, problem)));
            if !path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte)) {
                let detail = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";
                errors.push(manager.invalid_value(path, detail));
            }
        }
        _ => errors.push(manager.invalid("must be a domain-prefixed path (such as \"acme.io/foo\")")),
    }
    if text.len() > LONGEST_MANAGER {
        errors.push(manager.too_long(LONGEST_MANAGER));
    }
}

/// SPECVAL-12 to 17.
fn validate_completion_mode(spec: &At<'_, '_>, errors: &mut Vec<FieldError>) {
    let (parallelism, completions) = (spec.at("parallelism"), spec.at("completions"));
    let (max_failed, per_index) = (spec.at("maxFailedIndexes"), spec.at("backoffLimitPerIndex"));
    let mode = spec.at("completionMode");
    match mode.text() {
        Some("Indexed") => {}
        Some(other) if other != "NonIndexed" => {
            errors.push(mode.not_supported(other, &["NonIndexed", "Indexed"]));
            return;
        }
        _ => {
            let fields = [per_index, max_failed];
            errors.extend(fields.iter().filter(|field| field.is_set()).map(|field| field.invalid(NOT_INDEXED)));
            return;
        }
    }
    let above = |at: &At<'_, '_>, limit: i64| at.int().is_some_and(|number| number > limit);
    if !completions.is_set() {
        errors.push(completions.required("when completion mode is Indexed"));
    }
    if above(&parallelism, MOST_INDEXED) {
        let detail = format!("must be less than or equal to {MOST_INDEXED} when completion mode is Indexed");
        errors.push(parallelism.invalid(detail));
    }
    if completions.int().is_some_and(|completions| above(&max_failed, completions)) {
        errors.push(max_failed.invalid("must be less than or equal to completions"));
    }
    if above(&max_failed, MOST_INDEXED) {
        errors.push(max_failed.invalid(format!("must be less than or equal to {MOST_INDEXED}")));
    }
    if above(&completions, MANY_COMPLETIONS) && per_index.is_set() {
        if !max_failed.is_set() {
            let detail = format!("must be specified when completions is above {MANY_COMPLETIONS}");
            errors.push(max_failed.required(detail));
        }
        for field in [parallelism, max_failed].iter().filter(|field| above(field, MOST_WITH_MANY_COMPLETIONS)) {
            errors.push(field.invalid(format!(
                "must be less than or equal to {MOST_WITH_MANY_COMPLETIONS} when completions are above \
                 {MANY_COMPLETIONS} and used with backoff limit per index"
            )));
        }
    }
}

fn validate_success_policy(spec: &At<'_, '_>, errors: &mut Vec<FieldError>) {
    let policy = spec.at("successPolicy");
    if !policy.is_set() {
        return;
    }
    if is_indexed(spec) {
        policies::validate_success_rules(spec, &policy, errors);
    } else {
        errors.push(policies::invalid_success_policy(&policy, NOT_INDEXED));
    }
}

/// SPECVAL-21: a failure policy examines Pods that have failed, so they must not be replaced earlier.
fn validate_replacement(spec: &At<'_, '_>, errors: &mut Vec<FieldError>) {
    let policy = spec.at("podReplacementPolicy");
    let supported: &[&str] =
        if spec.at("podFailurePolicy").is_set() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if let Some(text) = policy.text()
        && !supported.contains(&text)
    {
        errors.push(policy.not_supported(text, supported));
    }
}

/// SPECVAL-24: Pods of a Job must end. Pods of a Job with a failure policy are never restarted in place, because the
/// policy would not see that they failed.
fn validate_restart_policy(spec: &At<'_, '_>, template: &At<'_, '_>, errors: &mut Vec<FieldError>) {
    let pod = template.at("spec");
    let policy = pod.at("restartPolicy");
    match policy.text_or_empty() {
        "" | "Always" => errors.push(policy.required("valid values: \"OnFailure\", \"Never\"")),
        "Never" => {}
        "OnFailure" if spec.at("podFailurePolicy").is_set() => {
            errors.push(policy.invalid("only \"Never\" is supported when podFailurePolicy is specified"));
        }
        "OnFailure" => {}
        other => errors.push(policy.not_supported(other, &["OnFailure", "Never"])),
    }
}
