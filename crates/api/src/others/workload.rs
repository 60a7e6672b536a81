//! Deployments and similar kinds: stored, with defaults and generations, but no controller here runs them.

use serde_json::{Map, Value, json};
use tally_core::time::Timestamp;

use super::{IMMUTABLE, child, empty_status, fill, keep_apart, part_of, raise_generation, set_generation, text_in};
use crate::field::{At, FieldError};
use crate::kinds::{Part, Rules};
use crate::pod;

pub struct DeploymentRules;
pub struct ReplicaSetRules;
pub struct StatefulSetRules;
pub struct DaemonSetRules;
pub struct ReplicationControllerRules;
pub struct PodTemplateRules;

/// The rules that all of them share; `$fill` sets the defaults that are special to the kind.
macro_rules! workload {
    ($rules:ident, $group:literal, $kind:literal, $fill:expr) => {
        impl Rules for $rules {
            fn default(&self, object: &mut Value) {
                let fill: fn(&mut Map<String, Value>) = $fill;
                default_spec(object, fill);
            }

            fn prepare_create(&self, object: &mut Value, _: Timestamp) {
                object["status"] = empty_status($group, $kind);
                set_generation(object, 1);
            }

            fn prepare_update(&self, new: &mut Value, old: &Value, part: Part) {
                keep_apart(new, old, part);
                if changes_generation(new, old, $kind) {
                    raise_generation(new, old);
                }
            }

            fn validate_create(&self, object: &Value) -> Vec<FieldError> {
                validate(object, $kind)
            }

            fn validate_update(&self, new: &Value, old: &Value, part: Part) -> Vec<FieldError> {
                if part == Part::Status { Vec::new() } else { validate_change(new, old, $kind) }
            }
        }
    };
}

workload!(DeploymentRules, "apps", "Deployment", |spec| {
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    fill(spec, "progressDeadlineSeconds", 600);
    let Some(strategy) = child(spec, "strategy") else { return };
    fill(strategy, "type", "RollingUpdate");
    if text_in(strategy, "type") == "RollingUpdate"
        && let Some(rolling) = child(strategy, "rollingUpdate")
    {
        fill(rolling, "maxUnavailable", "25%");
        fill(rolling, "maxSurge", "25%");
    }
});

workload!(ReplicaSetRules, "apps", "ReplicaSet", |spec| fill(spec, "replicas", 1));

workload!(StatefulSetRules, "apps", "StatefulSet", |spec| {
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    fill(spec, "podManagementPolicy", "OrderedReady");
    if let Some(kept) = child(spec, "persistentVolumeClaimRetentionPolicy") {
        fill(kept, "whenDeleted", "Retain");
        fill(kept, "whenScaled", "Retain");
    }
    if let Some(strategy) = child(spec, "updateStrategy") {
        fill(strategy, "type", "RollingUpdate");
        if text_in(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = child(strategy, "rollingUpdate")
        {
            fill(rolling, "partition", 0);
        }
    }
    for claim in spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(claim) = part_of(claim, "spec") {
            fill(claim, "volumeMode", "Filesystem");
        }
        if let Some(status) = part_of(claim, "status") {
            fill(status, "phase", "Pending");
        }
    }
});

workload!(DaemonSetRules, "apps", "DaemonSet", |spec| {
    fill(spec, "revisionHistoryLimit", 10);
    let Some(strategy) = child(spec, "updateStrategy") else { return };
    fill(strategy, "type", "RollingUpdate");
    if text_in(strategy, "type") == "RollingUpdate"
        && let Some(rolling) = child(strategy, "rollingUpdate")
    {
        fill(rolling, "maxUnavailable", 1);
        fill(rolling, "maxSurge", 0);
    }
});

workload!(ReplicationControllerRules, "", "ReplicationController", |spec| {
    fill(spec, "replicas", 1);
    // A ReplicationController need not have a selector: it defaults to the labels of the template.
    let labels = spec.get("template").and_then(|template| template.pointer("/metadata/labels")).cloned();
    if let Some(labels) = labels
        && super::count_in(spec, "selector") == 0
    {
        spec.insert("selector".to_owned(), labels);
    }
});

impl Rules for PodTemplateRules {
    fn default(&self, object: &mut Value) {
        if let Some(template) = object.get_mut("template").filter(|template| template.is_object()) {
            pod::default_template(template);
        }
    }

    fn prepare_create(&self, object: &mut Value, _: Timestamp) {
        set_generation(object, 1);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _: Part) {
        if new.get("template") != old.get("template") {
            raise_generation(new, old);
        }
    }
}

fn default_spec(object: &mut Value, fill: fn(&mut Map<String, Value>)) {
    let Some(spec) = part_of(object, "spec") else { return };
    fill(spec);
    if let Some(template) = spec.get_mut("template").filter(|template| template.is_object()) {
        pod::default_template(template);
    }
}

/// For a Deployment, annotations count too: its controller copies them.
fn changes_generation(new: &Value, old: &Value, kind: &str) -> bool {
    let annotations = |object: &Value| object.pointer("/metadata/annotations").cloned();
    new.get("spec") != old.get("spec") || (kind == "Deployment" && annotations(new) != annotations(old))
}

fn validate(object: &Value, kind: &str) -> Vec<FieldError> {
    let root = At::root(object);
    let spec = root.at("spec");
    let mut errors = Vec::new();
    let replicas = spec.at("replicas");
    if replicas.int().is_some_and(|replicas| replicas < 0) {
        errors.push(replicas.invalid("must be greater than or equal to 0"));
    }
    let (selector, template) = (spec.at("selector"), spec.at("template"));
    if selector.is_empty() {
        errors.push(selector.required(""));
    } else if !selects(&selector, &template, kind) {
        let meta = template.at("metadata");
        errors.push(meta.at("labels").invalid("`selector` does not match template `labels`"));
    }
    errors.extend(pod::validate_template(&template));
    let template_spec = template.at("spec");
    let policy = template_spec.at("restartPolicy");
    if policy.text().is_some_and(|policy| policy != "Always") {
        errors.push(policy.not_supported(policy.text_or_empty(), &["Always"]));
    }
    errors
}

/// Whether the selector's plain labels are those of the template. Its expressions are not checked.
fn selects(selector: &At<'_, '_>, template: &At<'_, '_>, kind: &str) -> bool {
    let wanted = if kind == "ReplicationController" { *selector } else { selector.at("matchLabels") };
    let labels = template.value.and_then(|template| template.pointer("/metadata/labels"));
    wanted.entries().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
}

/// A StatefulSet may change these; other changes would require new Pods and claims.
const CHANGING: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

fn validate_change(new: &Value, old: &Value, kind: &str) -> Vec<FieldError> {
    let mut errors = validate(new, kind);
    let (new, old) = (At::root(new), At::root(old));
    let (new, old) = (new.at("spec"), old.at("spec"));
    match kind {
        "Deployment" | "ReplicaSet" | "DaemonSet" if new.at("selector").value != old.at("selector").value => {
            errors.push(new.at("selector").invalid(IMMUTABLE));
        }
        "StatefulSet" if fixed(new.value) != fixed(old.value) => {
            let text = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are \
                 forbidden";
            errors.push(new.forbidden(text));
        }
        _ => {}
    }
    errors
}

fn fixed(spec: Option<&Value>) -> Value {
    let mut spec = spec.cloned().unwrap_or_else(|| json!({}));
    if let Some(spec) = spec.as_object_mut() {
        spec.retain(|field, _| !CHANGING.contains(&field.as_str()));
    }
    spec
}
