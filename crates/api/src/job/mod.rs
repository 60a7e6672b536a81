//! The Job's rules: defaults, generated labels, validation, allowed changes, warnings.
//!
//! A Job is connected to its Pods by labels that the server generates from its name and UID (`identity`). Its spec is
//! validated by `spec` and `policies`, which CronJobs share for their templates; later changes of it by `changes`; and
//! changes of its status by the rules of `tally-core` (`status`).

mod annotations;
mod changes;
mod defaults;
mod gates;
mod identity;
mod policies;
mod spec;
mod status;

use tally_core::gates::FeatureGates;
use tally_core::time::Timestamp;
use tally_value::{Map, Value};

use crate::field::{At, FieldError};
use crate::kinds::{Part, Rules, Siblings, is_kept};
use crate::meta::{dns_label_problems, validate_generate_name};
use crate::pod;
use crate::pod_security::SecuritySubject;

pub(crate) use annotations::{TTL_DETAIL, validate as validate_annotations};
pub(crate) use defaults::default_failure_policy;
pub(crate) use identity::invalid_selector;
pub(crate) use spec::{not_negative, validate_spec};

pub struct JobRules;

impl Rules for JobRules {
    fn security_subject(&self) -> Option<SecuritySubject> {
        Some(SecuritySubject::Template("/spec/template"))
    }

    fn default(&self, object: &mut Value) {
        defaults::job(object);
    }

    fn default_update(&self, new: &mut Value, old: &Value) {
        defaults::changed_job(new, is_kept(new, old, "spec"));
    }

    fn drop_disabled(&self, new: &mut Value, old: Option<&Value>, gates: FeatureGates) {
        gates::drop_disabled(new, old, gates);
    }

    fn validate_gated(&self, new: &Value, old: &Value, part: Part, gates: FeatureGates) -> Vec<FieldError> {
        let mut errors = match part {
            Part::Main => {
                let mut errors = validate_generate_name(new);
                // It depends on the spec, and on the name and UID.
                let kept = |part| is_kept(&new["metadata"], &old["metadata"], part);
                if !(is_kept(new, old, "spec") && kept("uid") && kept("name")) {
                    errors.extend(validate(new, identity::has_prefixed_labels(old)));
                    errors.extend(changes::validate(new, old));
                }
                errors.extend(gates::validate(new, old, gates));
                errors
            }
            Part::Status => status::validate(new, old, gates),
        };
        errors.extend(validate_annotations(&At::root(new).at("metadata"), Some(&At::root(old).at("metadata"))));
        errors
    }

    fn prepare_create(&self, object: &mut Value, _now: Timestamp) {
        let Some(job) = object.as_object_mut() else { return };
        job.insert("status", Value::Object(Map::new()));
        // This reads the mark that `default` left in the generation, so it comes before the generation is set.
        identity::generate(job);
        if let Some(meta) = map_at(job, "metadata") {
            meta.insert("generation", 1.into());
        }
        annotations::prepare_create(job);
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = validate(object, true);
        errors.extend(validate_annotations(&At::root(object).at("metadata"), None));
        errors
    }

    fn validate_among(&self, object: &Value, siblings: &dyn Siblings) -> Vec<FieldError> {
        annotations::validate_among(object, siblings)
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, part: Part) {
        prepare_update(new, old, part);
    }

    fn validate_update(&self, new: &Value, old: &Value, part: Part) -> Vec<FieldError> {
        self.validate_gated(new, old, part, FeatureGates::ALL_ON)
    }

    fn complete(&self, object: &mut Value) -> bool {
        defaults::labels_from_template(object)
    }

    fn create_warnings(&self, object: &Value) -> Vec<String> {
        let root = At::root(object);
        let mut warnings: Vec<String> = name_warning(&root).into_iter().collect();
        warnings.extend(spec_warnings(&root.at("spec")));
        warnings
    }

    /// Warnings only if the spec changed; then also about unchanged fields of it.
    fn update_warnings(&self, new: &Value, old: &Value, _part: Part) -> Vec<String> {
        if generation(new) == generation(old) { Vec::new() } else { spec_warnings(&At::root(new).at("spec")) }
    }
}

/// The rules for every Job, new or changed.
fn validate(job: &Value, demand_prefixed: bool) -> Vec<FieldError> {
    let root = At::root(job);
    let spec = root.at("spec");
    let mut errors = identity::validate_generated(&root, demand_prefixed);
    errors.extend(validate_spec(&spec));
    errors.extend(identity::validate_selector(&spec));
    errors.extend(identity::validate_pod_names(&root));
    errors
}

/// The main resource cannot change the status, and the status resource cannot change the spec; metadata can be changed
/// through both. The generation counts changes of the spec. CronJobs use the same function.
pub(crate) fn prepare_update(new: &mut Value, old: &Value, part: Part) {
    let Some(object) = new.as_object_mut() else { return };
    let kept = match part {
        Part::Main => "status",
        Part::Status => "spec",
    };
    let before = old.get(kept).cloned().unwrap_or_else(|| Value::Object(Map::new()));
    object.insert(kept, before);
    let nothing = Value::Null;
    let changed = !pod::same(object.get("spec").unwrap_or(&nothing), old.get("spec").unwrap_or(&nothing));
    if let Some(meta) = map_at(object, "metadata") {
        let generation = generation(old).saturating_add(i64::from(changed));
        meta.insert("generation", generation.into());
    }
}

pub(crate) fn generation(object: &Value) -> i64 {
    At::root(object).at("metadata").at("generation").int().unwrap_or(0)
}

/// WARN-1: the name becomes part of Pod names and host names.
pub(crate) fn name_warning(root: &At<'_, '_>) -> Option<String> {
    let problems = dns_label_problems(root.at("metadata").at("name").text_or_empty());
    (!problems.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
             label is recommended: [{}]",
            problems.join(" ")
        )
    })
}

/// WARN-2 and WARN-3, for the spec of a Job at `spec`.
pub(crate) fn spec_warnings(spec: &At<'_, '_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let above = |field: &str, limit: i64| spec.at(field).int().is_some_and(|number| number > limit);
    if spec::is_indexed(spec)
        && above("completions", spec::MANY_COMPLETIONS)
        && above("parallelism", spec::MOST_WITH_MANY_COMPLETIONS)
    {
        warnings.push(format!(
            "{}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail",
            spec.path()
        ));
    }
    warnings.extend(pod::template_warnings(&spec.at("template")));
    warnings
}

/// The map in a field, created if absent. None only if the field has another type.
pub(crate) fn map_at<'m>(parent: &'m mut Map, field: &str) -> Option<&'m mut Map> {
    let value = parent.entry(field).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}
