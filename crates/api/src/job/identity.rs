//! How a Job finds its Pods: labels and a selector generated from its name and UID (LABEL-2 to 5, SPECVAL-2 to 7).

use tally_value::{Map, Value};

use super::defaults::LABELS_ARE_THE_TEMPLATES;
use super::{map_at, spec};
use crate::field::{At, ErrorKind, FieldError};
use crate::meta::dns_label_problems;
use crate::selector::{LabelSelector, validate_label_selector};

const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
const JOB_NAME: &str = "batch.kubernetes.io/job-name";
const LEGACY_CONTROLLER_UID: &str = "controller-uid";
const LEGACY_JOB_NAME: &str = "job-name";

/// The labels of a Job's Pods, in the order they are checked: those without a prefix are from older releases, and every
/// Job has them.
fn generated_labels<'a>(name: &'a str, uid: &'a str) -> [(&'static str, &'a str); 4] {
    [(LEGACY_CONTROLLER_UID, uid), (LEGACY_JOB_NAME, name), (CONTROLLER_UID, uid), (JOB_NAME, name)]
}

/// The number of `generated_labels` without a prefix.
const LEGACY_LABELS: usize = 2;

/// Generates the labels and the selector of a new Job, unless the user sets `manualSelector`. Values that the user gave
/// are kept, and refused later if they are wrong.
pub(super) fn generate(job: &mut Map) {
    let meta = job.get("metadata");
    let text = |field: &str| meta.and_then(|meta| meta.get(field)).and_then(Value::as_str).unwrap_or_default();
    let (name, uid) = (text("name").to_owned(), text("uid").to_owned());
    let labels_are_the_templates =
        meta.and_then(|meta| meta.get("generation")).and_then(Value::as_i64) == Some(LABELS_ARE_THE_TEMPLATES);

    let Some(spec) = map_at(job, "spec") else { return };
    if spec.get("manualSelector").and_then(Value::as_bool) == Some(true) {
        return;
    }
    let template = map_at(spec, "template").and_then(|template| map_at(template, "metadata"));
    let Some(labels) = template.and_then(|meta| map_at(meta, "labels")) else { return };
    for (key, value) in generated_labels(&name, &uid) {
        labels.entry(key).or_insert_with(|| value.into());
    }
    let all = labels_are_the_templates.then(|| Value::Object(labels.clone()));
    if let Some(selected) = map_at(spec, "selector").and_then(|selector| map_at(selector, "matchLabels")) {
        selected.entry(CONTROLLER_UID).or_insert_with(|| uid.into());
    }
    if let Some(all) = all
        && let Some(meta) = map_at(job, "metadata")
    {
        meta.insert("labels", all);
    }
}

/// Whether the template has the labels with a prefix, which Jobs of old releases lack (UPD-12).
pub(super) fn has_prefixed_labels(job: &Value) -> bool {
    let labels = job.pointer("/spec/template/metadata/labels");
    [CONTROLLER_UID, JOB_NAME].iter().all(|key| labels.and_then(|labels| labels.get(key)).is_some())
}

/// SPECVAL-3 to 5: the labels are those of this Job, and the selector requires nothing else.
pub(super) fn validate_generated(root: &At<'_, '_>, demand_prefixed: bool) -> Vec<FieldError> {
    let (meta, spec) = (root.at("metadata"), root.at("spec"));
    let (template, selector) = (spec.at("template"), spec.at("selector"));
    let mut errors = Vec::new();
    // A missing selector is a separate error.
    if spec.at("manualSelector").is_true() || !selector.is_set() {
        return errors;
    }
    let uid = meta.at("uid");
    if uid.text_or_empty().is_empty() {
        errors.push(uid.required(""));
    }
    let expected = generated_labels(meta.at("name").text_or_empty(), uid.text_or_empty());
    let expected = if demand_prefixed { &expected[..] } else { &expected[..LEGACY_LABELS] };
    let template_meta = template.at("metadata");
    let labels = template_meta.at("labels");
    for &(key, value) in expected {
        let label = labels.key(key);
        match label.text() {
            None => errors.push(label.required(format!("must be '{value}'"))),
            Some(found) if found != value => {
                errors.push(label.invalid_value(labels.value, format!("must be '{value}'")));
            }
            Some(_) => {}
        }
    }
    let expected: Map = expected.iter().map(|&(key, value)| (key, value)).collect();
    if validate_label_selector(selector).is_empty() && misses(&selector, Some(&expected)) {
        errors.push(invalid_selector(&selector, "`selector` not auto-generated"));
    }
    errors
}

/// SPECVAL-6 and 7: there is a selector, and it matches the Pods of the template. An invalid selector is not compared.
pub(super) fn validate_selector(spec: &At<'_, '_>) -> Vec<FieldError> {
    let (selector, template) = (spec.at("selector"), spec.at("template"));
    let template_meta = template.at("metadata");
    let labels = template_meta.at("labels");
    let mut errors = validate_label_selector(selector);
    let readable = errors.is_empty();
    if !selector.is_set() {
        errors.push(selector.required(""));
    }
    if readable && misses(&selector, labels.map()) {
        errors.push(labels.invalid("`selector` does not match template `labels`"));
    }
    errors
}

fn misses(selector: &At<'_, '_>, labels: Option<&Map>) -> bool {
    LabelSelector::from_json(selector.value).is_ok_and(|selector| !selector.matches(labels))
}

/// SPECVAL-2: the Pod of the last index has the longest name, which is also a host name.
pub(super) fn validate_pod_names(root: &At<'_, '_>) -> Option<FieldError> {
    let (meta, spec) = (root.at("metadata"), root.at("spec"));
    let completions = spec.at("completions").int().filter(|&completions| completions > 0 && spec::is_indexed(&spec))?;
    let name = meta.at("name");
    let last = format!("{}-{}", name.text_or_empty(), completions - 1);
    let problems = dns_label_problems(&last);
    (!problems.is_empty()).then(|| {
        let detail = format!("will not able to create pod with invalid DNS label: {last}");
        name.invalid_value(name.text_or_empty(), detail)
    })
}

/// An error about the selector, which is printed with its labels first, as kube-apiserver does.
pub(crate) fn invalid_selector(selector: &At<'_, '_>, detail: &str) -> FieldError {
    let parts: Vec<String> = ["matchLabels", "matchExpressions"]
        .iter()
        .filter_map(|&field| selector.at(field).value.map(|value| format!("\"{field}\":{value}")))
        .collect();
    let printed = selector.value.map_or_else(|| "null".to_owned(), |_| format!("{{{}}}", parts.join(",")));
    FieldError::new(ErrorKind::Invalid, selector.path(), Some(printed), detail)
}
