//! The CronJob's rules. The Job in its template follows the rules of Jobs, but only its Pod failure policy and its Pod
//! template get defaults: the others are set when a Job is created from it.

use tally_core::time::Timestamp;
use tally_value::{Map, Value};

use crate::field::{At, FieldError};
use crate::job::{self, map_at};
use crate::kinds::{Part, Rules};
use crate::pod;
use crate::pod_security::SecuritySubject;
use crate::schedule::{self, Schedule};

pub struct CronJobRules;

/// CRON-10: eleven characters less than a label, for the time that is appended to the name of each Job.
const LONGEST_NAME: usize = 52;
/// The longest part of a time zone's name; the time zone database guarantees it.
const LONGEST_ZONE_PART: usize = 14;

impl Rules for CronJobRules {
    fn security_subject(&self) -> Option<SecuritySubject> {
        Some(SecuritySubject::Template("/spec/jobTemplate/spec/template"))
    }

    fn default(&self, object: &mut Value) {
        let Some(spec) = object.as_object_mut().and_then(|cron_job| map_at(cron_job, "spec")) else { return };
        for (field, value) in [
            ("concurrencyPolicy", Value::from("Allow")),
            ("suspend", false.into()),
            ("successfulJobsHistoryLimit", 3.into()),
            ("failedJobsHistoryLimit", 1.into()),
        ] {
            let current = spec.entry(field).or_insert(Value::Null);
            if current.is_null() || current == "" {
                *current = value;
            }
        }
        if let Some(job) = map_at(spec, "jobTemplate").and_then(|template| map_at(template, "spec")) {
            job::default_failure_policy(job);
            pod::default_template(job.entry("template").or_insert_with(|| Value::Object(Map::new())));
        }
    }

    fn prepare_create(&self, object: &mut Value, _now: Timestamp) {
        let Some(cron_job) = object.as_object_mut() else { return };
        cron_job.insert("status", Value::Object(Map::new()));
        if let Some(meta) = map_at(cron_job, "metadata") {
            meta.insert("generation", 1.into());
        }
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let root = At::root(object);
        let mut errors = validate(&root.at("spec"), None);
        let meta = root.at("metadata");
        let name = meta.at("name");
        if name.text_or_empty().len() > LONGEST_NAME {
            errors.push(name.invalid(format!("must be no more than {LONGEST_NAME} characters")));
        }
        errors
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, part: Part) {
        job::prepare_update(new, old, part);
    }

    /// The status belongs to the controller and is not validated.
    fn validate_update(&self, new: &Value, old: &Value, part: Part) -> Vec<FieldError> {
        match part {
            Part::Main => validate(&At::root(new).at("spec"), Some(&At::root(old).at("spec"))),
            Part::Status => Vec::new(),
        }
    }

    fn create_warnings(&self, object: &Value) -> Vec<String> {
        let root = At::root(object);
        let mut warnings: Vec<String> = job::name_warning(&root).into_iter().collect();
        warnings.extend(template_warnings(&root));
        warnings
    }

    fn update_warnings(&self, new: &Value, old: &Value, _part: Part) -> Vec<String> {
        let changed = job::generation(new) != job::generation(old);
        if changed { template_warnings(&At::root(new)) } else { Vec::new() }
    }
}

fn template_warnings(root: &At<'_, '_>) -> Vec<String> {
    let spec = root.at("spec");
    let template = spec.at("jobTemplate");
    job::spec_warnings(&template.at("spec"))
}

fn validate(spec: &At<'_, '_>, old: Option<&At<'_, '_>>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_schedule(spec, old, &mut errors);
    errors.extend(job::not_negative(&spec.at("startingDeadlineSeconds")));
    let zone = spec.at("timeZone");
    // A stored zone that is no longer known must not block other changes.
    if old.is_none_or(|old| old.at("timeZone").value != zone.value) {
        validate_time_zone(&zone, &mut errors);
    }
    let policy = spec.at("concurrencyPolicy");
    match policy.text_or_empty() {
        "Allow" | "Forbid" | "Replace" => {}
        "" => errors.push(policy.required("")),
        other => errors.push(policy.not_supported(other, &["Allow", "Forbid", "Replace"])),
    }
    validate_job(&spec.at("jobTemplate").at("spec"), &mut errors);
    errors.extend(job::not_negative(&spec.at("successfulJobsHistoryLimit")));
    errors.extend(job::not_negative(&spec.at("failedJobsHistoryLimit")));
    let before = old.map(|old| old.at("jobTemplate"));
    let before = before.as_ref().map(|template| template.at("metadata"));
    errors.extend(job::validate_annotations(&spec.at("jobTemplate").at("metadata"), before.as_ref()));
    errors
}

/// A time zone belongs in its own field. A zone in the schedule is accepted only for CronJobs that were stored with
/// one.
fn validate_schedule(spec: &At<'_, '_>, old: Option<&At<'_, '_>>, errors: &mut Vec<FieldError>) {
    let schedule = spec.at("schedule");
    let text = schedule.text_or_empty();
    if text.is_empty() {
        errors.push(schedule.required(""));
        return;
    }
    if let Err(problem) = Schedule::parse(text) {
        errors.push(schedule.invalid(problem));
    }
    let has_zone = |text: &str| text.contains("TZ");
    let had_zone = old.is_some_and(|old| has_zone(old.at("schedule").text_or_empty()));
    if has_zone(text) && !had_zone {
        errors.push(schedule.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"));
    } else if has_zone(text) && spec.at("timeZone").is_set() {
        errors.push(schedule.invalid("cannot use both timeZone field and TZ or CRON_TZ in schedule"));
    }
}

fn validate_time_zone(zone: &At<'_, '_>, errors: &mut Vec<FieldError>) {
    let Some(name) = zone.text() else { return };
    if name.is_empty() {
        errors.push(zone.invalid("timeZone must be nil or non-empty string"));
    } else if !name.split('/').all(is_zone_part) {
        errors.push(zone.invalid(format!("unknown time zone {name}")));
    } else {
        if name.eq_ignore_ascii_case("Local") {
            let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
            errors.push(zone.invalid(detail));
        }
        errors.extend(schedule::location(name).err().map(|problem| zone.invalid(problem)));
    }
}

/// Whether the text is possible as a part of a time zone's name.
fn is_zone_part(part: &str) -> bool {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
    (1..=LONGEST_ZONE_PART).contains(&part.len())
        && !matches!(part, "." | "..")
        && !part.starts_with('-')
        && part.bytes().all(letters)
}

/// SPECVAL-25: the Job of the template. Its selector can only be generated when the Job is created.
fn validate_job(spec: &At<'_, '_>, errors: &mut Vec<FieldError>) {
    errors.extend(job::validate_spec(spec));
    let (selector, manual) = (spec.at("selector"), spec.at("manualSelector"));
    if selector.is_set() {
        errors.push(job::invalid_selector(&selector, "`selector` will be auto-generated"));
    }
    if manual.is_true() {
        errors.push(manual.not_supported(true, &["nil", "false"]));
    }
}
