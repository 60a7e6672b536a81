//! The Pod's rules, and those of Pod templates, which Jobs and CronJobs share.
//!
//! `defaults` sets defaults; `spec` validates a spec in the order of kube-apiserver and calls the others (`containers`,
//! `env`, `probes`, `resources`, `security`, `volumes`, `scheduling`) for their parts; `update` defines what may
//! change, `warnings` what is accepted with a warning; `lifecycle` contains the other operations on a Pod: creation,
//! binding, eviction, deletion.

mod alike;
mod annotations;
mod checks;
mod containers;
mod defaults;
mod env;
mod image;
mod lifecycle;
mod probes;
mod resources;
mod scheduling;
mod security;
mod spec;
mod update;
mod volumes;
mod warnings;

use std::num::NonZeroUsize;

use tally_core::time::Timestamp;
use tally_value::Value;

use crate::field::{At, FieldError};
use crate::kinds::{AdmissionError, ClusterObjects, Part, Rules, is_kept};
use crate::limits::LimitType;
use crate::meta;
use crate::pod_security::SecuritySubject;

pub use lifecycle::{add_disruption_target, bind, validate_binding};
pub(crate) use resources::{class_of_service, container_sums, quantity_of};
use spec::Scope;
pub(crate) use update::{difference, same};
pub(crate) use volumes::claim_spec;

pub struct PodRules;

impl Rules for PodRules {
    fn default(&self, object: &mut Value) {
        defaults::pod(object);
    }

    fn default_update(&self, new: &mut Value, old: &Value) {
        if is_kept(new, old, "spec") {
            defaults::status(new);
        } else {
            self.default(new);
        }
    }

    fn prepare_create(&self, object: &mut Value, now: Timestamp) {
        lifecycle::prepare_create(object, now);
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let pod = At::root(object);
        let (metadata, spec) = (pod.at("metadata"), pod.at("spec"));
        let mut errors = validate_pod(&pod);
        if !spec.at("ephemeralContainers").is_empty() {
            errors.push(spec.at("ephemeralContainers").forbidden("cannot be set on create"));
        }
        if !spec.at("schedulingGates").is_empty() && !spec.at("nodeName").text_or_empty().is_empty() {
            let told = "cannot be set until all schedulingGates have been cleared";
            errors.push(spec.at("nodeName").forbidden(told));
        }
        annotations::agree_with_seccomp_fields(&metadata.at("annotations"), &spec, &mut errors);
        annotations::agree_with_app_armor_fields(&metadata.at("annotations"), &spec, &mut errors);
        errors
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, part: Part) {
        match part {
            Part::Main => lifecycle::prepare_update(new, old),
            Part::Status => lifecycle::prepare_status_update(new, old),
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, part: Part) -> Vec<FieldError> {
        let pod = At::root(new);
        let (metadata, spec) = (pod.at("metadata"), pod.at("spec"));
        let annotations = metadata.at("annotations");
        let mut errors = match part {
            Part::Main => meta::validate_generate_name(new),
            Part::Status => Vec::new(),
        };
        let spec_is_kept = is_kept(new, old, "spec");
        let annotations_are_kept = is_kept(&new["metadata"], &old["metadata"], "annotations");
        if part == Part::Main && !(spec_is_kept && annotations_are_kept) {
            errors.extend(validate_pod(&pod));
        }
        if !annotations_are_kept {
            annotations::validate_change(&annotations, old, &mut errors);
        }
        if !is_kept(&new["metadata"], &old["metadata"], "finalizers") {
            update::validate_tracking(&metadata, old, &mut errors);
        }
        match part {
            Part::Main if spec_is_kept => {}
            Part::Main => update::validate(&spec, &old["spec"], &mut errors),
            Part::Status => {
                if !(spec_is_kept && annotations_are_kept) {
                    annotations::validate(&annotations, &spec, &mut errors);
                }
                update::validate_status(&pod, old, &mut errors);
            }
        }
        errors
    }

    fn likeness(&self, object: &Value) -> Option<NonZeroUsize> {
        alike::likeness(object)
    }

    fn is_like(&self, object: &Value, accepted: &Value) -> bool {
        alike::is_like(object, accepted)
    }

    fn create_warnings(&self, object: &Value) -> Vec<String> {
        let pod = At::root(object);
        let metadata = pod.at("metadata");
        let problems = meta::dns_label_problems(metadata.at("name").text_or_empty());
        let mut warnings = Vec::new();
        if !problems.is_empty() {
            warnings.push(format!(
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; \
                 a DNS label is recommended: [{}]",
                problems.join(" ")
            ));
        }
        warnings.extend(warnings::all(&pod, false));
        warnings
    }

    fn update_warnings(&self, new: &Value, _old: &Value, part: Part) -> Vec<String> {
        match part {
            // Users do not change Pods by hand, so there is no reader for a warning.
            Part::Main => Vec::new(),
            Part::Status => warnings::of_status(&At::root(new)),
        }
    }

    fn admit_create(&self, object: &mut Value, cluster: &dyn ClusterObjects) -> Result<(), AdmissionError> {
        lifecycle::admit_priority(object, cluster)?;
        lifecycle::admit_service_account(object, cluster)?;
        lifecycle::admit_runtime_class(object)
    }

    fn admit_valid(&self, object: &Value) -> Result<(), AdmissionError> {
        lifecycle::admit_overhead(object)
    }

    fn security_subject(&self) -> Option<SecuritySubject> {
        Some(SecuritySubject::Pod)
    }

    fn limit_type(&self) -> Option<LimitType> {
        Some(LimitType::Pod)
    }

    fn grace_period(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        Some(lifecycle::grace_period(object, requested))
    }
}

/// All errors of a Pod by itself, except those of common metadata.
fn validate_pod(pod: &At<'_, '_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (metadata, spec) = (pod.at("metadata"), pod.at("spec"));
    let annotations = metadata.at("annotations");
    let name = metadata.at("name").text_or_empty();
    annotations::validate(&annotations, &spec, &mut errors);
    spec::validate(&spec, Scope { is_pod: true, name, annotations: annotations.value }, &mut errors);
    spec::validate_pod_only(&spec, &mut errors);
    errors
}

/// Sets the defaults of a Pod template (`{metadata, spec}`).
pub fn default_template(template: &mut Value) {
    defaults::template(template);
}

/// All errors of a Pod template at `template`, including its labels and annotations.
pub fn validate_template(template: &At<'_, '_>) -> Vec<FieldError> {
    let (metadata, spec) = (template.at("metadata"), template.at("spec"));
    // Errors omit `metadata` from the path.
    let (labels, annotations) = (format!("{}.labels", template.path()), format!("{}.annotations", template.path()));
    let labels = At::rooted(&labels, metadata.at("labels").value);
    let annotations = At::rooted(&annotations, metadata.at("annotations").value);
    let mut errors = meta::validate_labels(labels);
    errors.extend(meta::validate_annotations(annotations));
    annotations::validate(&annotations, &spec, &mut errors);
    spec::validate(&spec, Scope { is_pod: false, name: "", annotations: None }, &mut errors);
    annotations::agree_with_seccomp_fields(&annotations, &spec, &mut errors);
    if !spec.at("ephemeralContainers").is_empty() {
        errors.push(spec.at("ephemeralContainers").forbidden("ephemeral containers not allowed in pod template"));
    }
    errors
}

/// The warnings about a Pod template at `template`.
pub fn template_warnings(template: &At<'_, '_>) -> Vec<String> {
    warnings::all(template, true)
}
