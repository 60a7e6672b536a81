//! Namespaces, Nodes, Leases and ServiceAccounts: the objects of the cluster itself.

use std::collections::BTreeSet;

use tally_core::lifetime::{DEFAULT_TTL, ttl_seconds};
use tally_core::time::Timestamp;
use tally_value::{Value, json};

use super::{count_in, is_cidr, keep_apart, part_of, put_back, text_in};
use crate::field::{At, FieldError};
use crate::job::TTL_DETAIL;
use crate::kinds::{Part, Rules};
use crate::meta;
use crate::pod_security::{self, SecuritySubject};
use crate::quantity::Quantity;

pub struct NamespaceRules;
pub struct NodeRules;
pub struct LeaseRules;
/// Has no rules except for its name.
pub struct ServiceAccountRules;

impl Rules for ServiceAccountRules {}

/// A namespace is removed only after all objects in it; this finalizer in its spec represents them.
const CONTENT: &str = "kubernetes";

/// Namespaces that the cluster itself needs.
const PROTECTED: [&str; 3] = ["default", "kube-system", "kube-public"];

/// TTL-22.
fn default_ttl_error(namespace: &Value) -> Option<FieldError> {
    let root = At::root(namespace);
    let meta = root.at("metadata");
    let annotations = meta.at("annotations");
    let value = annotations.key(DEFAULT_TTL);
    value.text().filter(|text| ttl_seconds(text).is_none()).map(|_| value.invalid(TTL_DETAIL))
}

impl Rules for NamespaceRules {
    fn security_subject(&self) -> Option<SecuritySubject> {
        Some(SecuritySubject::Namespace)
    }

    /// Namespace selectors match labels only, so the name is made a label.
    fn default(&self, namespace: &mut Value) {
        let name =
            namespace.pointer("/metadata/name").cloned().filter(|name| name.as_str().is_some_and(|n| !n.is_empty()));
        if let Some(name) = name
            && let Some(metadata) = part_of(namespace, "metadata")
            && let Some(labels) = super::child(metadata, "labels")
        {
            labels.insert("kubernetes.io/metadata.name", name);
        }
    }

    fn prepare_create(&self, namespace: &mut Value, _: Timestamp) {
        // A generated name did not exist yet when the label was first set.
        self.default(namespace);
        namespace["status"] = json!({"phase": "Active"});
        let Some(spec) = part_of(namespace, "spec") else { return };
        let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(finalizers) = finalizers.as_array_mut()
            && !finalizers.iter().any(|finalizer| finalizer == CONTENT)
        {
            finalizers.push(CONTENT.into());
        }
    }

    fn validate_create(&self, namespace: &Value) -> Vec<FieldError> {
        let root = At::root(namespace);
        let spec = root.at("spec");
        let finalizers = spec.at("finalizers");
        let names = finalizers.list().iter().filter_map(Value::as_str);
        let mut errors = pod_security::label_errors(namespace);
        errors.extend(names.flat_map(|name| finalizer_problems(finalizers, name)));
        errors.extend(default_ttl_error(namespace));
        errors
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, part: Part) {
        keep_apart(new, old, part);
        if part == Part::Main {
            // Only /finalize may declare that the content is gone.
            put_back(new, old, "spec");
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, part: Part) -> Vec<FieldError> {
        if part == Part::Main {
            // Labels that were stored before they were checked do not prevent other changes.
            let errors =
                |namespace| pod_security::label_errors(namespace).into_iter().chain(default_ttl_error(namespace));
            let known: Vec<FieldError> = errors(old).collect();
            return errors(new).filter(|error| !known.contains(error)).collect();
        }
        let root = At::root(new);
        let meta = root.at("metadata");
        let status = root.at("status");
        let phase = status.at("phase").text_or_empty();
        let (right, when) = if meta.at("deletionTimestamp").is_set() {
            ("Terminating", "is not empty")
        } else {
            ("Active", "is empty")
        };
        if phase == right {
            return Vec::new();
        }
        let text = format!("may only be '{right}' if `deletionTimestamp` {when}");
        vec![status.at("Phase").invalid_value(phase, text)]
    }

    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        meta::name_is_dns_label(name, prefix)
    }

    fn delete_forbidden(&self, name: &str) -> Option<&'static str> {
        PROTECTED.contains(&name).then_some("this namespace may not be deleted")
    }

    fn blocks_removal(&self, namespace: &Value) -> bool {
        namespace.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|finalizers| !finalizers.is_empty())
    }

    fn mark_terminating(&self, namespace: &mut Value) {
        namespace["status"]["phase"] = "Terminating".into();
    }
}

/// Validates the spec of a Namespace after a write to `/finalize`.
pub fn validate_finalize(namespace: &Value) -> Vec<FieldError> {
    let root = At::root(namespace);
    let spec = root.at("spec");
    let finalizers = spec.at("finalizers");
    finalizers.items().flat_map(|at| finalizer_problems(at, at.text_or_empty())).collect()
}

fn finalizer_problems(at: At<'_, '_>, name: &str) -> Vec<FieldError> {
    let mut errors = meta::validate_finalizer_name(at, name);
    if !name.contains('/') && !matches!(name, meta::ORPHAN | meta::FOREGROUND | CONTENT) {
        errors.push(at.invalid_value(name, "name is neither a standard finalizer name nor is it fully qualified"));
    }
    errors
}

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const TAINT_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

impl Rules for NodeRules {
    fn default(&self, node: &mut Value) {
        if let Some(status) = part_of(node, "status")
            && count_in(status, "allocatable") == 0
            && count_in(status, "capacity") > 0
        {
            let capacity = status.get("capacity").cloned().unwrap_or_default();
            status.insert("allocatable", capacity);
        }
        // `podCIDR` and `podCIDRs` have the same content; the older field wins, because clients that know only that one
        // change only that one.
        let Some(spec) = part_of(node, "spec") else { return };
        let first = spec.get("podCIDRs").and_then(|ranges| ranges.get(0)).and_then(Value::as_str).unwrap_or_default();
        let one = text_in(spec, "podCIDR").to_owned();
        if one.is_empty() && !first.is_empty() {
            let first = first.to_owned();
            spec.insert("podCIDR", first.into());
        } else if one != first {
            spec.insert("podCIDRs", json!([one]));
        }
    }

    /// A new node is tainted as not ready until it reports that it is, and Pods wait for that. Its status may be
    /// created with it.
    fn prepare_create(&self, node: &mut Value, _: Timestamp) {
        if let Some(status) = part_of(node, "status") {
            status.remove("config");
        }
        let Some(spec) = part_of(node, "spec") else { return };
        spec.remove("configSource");
        let taints = spec.entry("taints").or_insert_with(|| json!([]));
        let is_it = |taint: &Value| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule";
        if let Some(taints) = taints.as_array_mut()
            && !taints.iter().any(is_it)
        {
            taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
        }
    }

    fn validate_create(&self, node: &Value) -> Vec<FieldError> {
        let root = At::root(node);
        let spec = root.at("spec");
        // kube-apiserver says `metadata` here, and clients expect that.
        let mut errors = validate_taints(At::rooted("metadata.taints", spec.at("taints").value));
        errors.extend(validate_resources(&root.at("status")));
        let ranges = spec.at("podCIDRs");
        for range in ranges.items().filter(|range| !is_cidr(range.text_or_empty())) {
            let text = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.push(range.invalid(text));
        }
        let of_six =
            ranges.list().iter().filter(|range| range.as_str().is_some_and(|range| range.contains(':'))).count();
        if ranges.len() > 2 || (ranges.len() == 2 && of_six != 1) {
            errors.push(ranges.invalid("may specify no more than one CIDR for each IP family"));
        }
        errors
    }

    /// Dynamic configuration of nodes was removed from Kubernetes: existing values may stay.
    fn prepare_update(&self, new: &mut Value, old: &Value, part: Part) {
        keep_apart(new, old, part);
        let (holder, field) = if part == Part::Main { ("spec", "configSource") } else { ("status", "config") };
        if old.get(holder).and_then(|held| held.get(field)).is_none()
            && let Some(held) = part_of(new, holder)
        {
            held.remove(field);
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, part: Part) -> Vec<FieldError> {
        let mut errors = if part == Part::Main { self.validate_create(new) } else { Vec::new() };
        let (root, before) = (At::root(new), At::root(old));
        let (spec, before) = (root.at("spec"), before.at("spec"));
        let status = root.at("status");
        errors.extend(validate_resources(&status));
        let addresses = status.at("addresses");
        let mut seen: Vec<&Value> = Vec::new();
        for address in addresses.items() {
            match address.value {
                Some(value) if seen.contains(&value) => errors.push(address.duplicate()),
                Some(value) => seen.push(value),
                None => {}
            }
        }
        let ranges = before.at("podCIDRs");
        if !ranges.is_empty() && ranges.value != spec.at("podCIDRs").value {
            let text = "node updates may not change podCIDR except from \"\" to valid";
            errors.push(spec.at("podCIDRs").forbidden(text));
        }
        let provider = before.at("providerID").text_or_empty();
        if !provider.is_empty() && provider != spec.at("providerID").text_or_empty() {
            let text = "node updates may not change providerID except from \"\" to valid";
            errors.push(spec.at("providerID").forbidden(text));
        }
        if spec.at("externalID").text_or_empty() != before.at("externalID").text_or_empty() {
            errors.push(spec.at("externalID").forbidden("may not be updated"));
        }
        errors
    }

    fn create_warnings(&self, node: &Value) -> Vec<String> {
        let root = At::root(node);
        let spec = root.at("spec");
        let mut warnings = Vec::new();
        if spec.at("configSource").is_set() {
            warnings.push("spec.configSource: the feature is removed".to_owned());
        }
        if !spec.at("externalID").text_or_empty().is_empty() {
            warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
        }
        warnings
    }

    fn update_warnings(&self, new: &Value, _: &Value, part: Part) -> Vec<String> {
        if part == Part::Main { self.create_warnings(new) } else { Vec::new() }
    }
}

/// Resources that are counted in whole numbers.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// The amounts of a node must not be negative, and devices are counted in whole numbers.
fn validate_resources(status: &At<'_, '_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for list in [status.at("capacity"), status.at("allocatable")] {
        for (name, value) in list.entries() {
            let at = list.at(name);
            let text = value.as_str().unwrap_or_default();
            let Ok(quantity) = Quantity::parse(text) else { continue };
            if quantity.is_negative() {
                errors.push(at.invalid_value(text, "must be greater than or equal to 0"));
            }
            let extended = name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.");
            if (extended || COUNTED.contains(&name)) && quantity.milli_value() % 1000 != 0 {
                errors.push(at.invalid_value(text, "must be an integer"));
            }
        }
    }
    errors
}

fn validate_taints(taints: At<'_, '_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for taint in taints.items() {
        let (key, value, effect) = (taint.at("key"), taint.at("value"), taint.at("effect"));
        let name = key.text_or_empty();
        errors.extend(meta::qualified_name_problems(name).into_iter().map(|problem| key.invalid_value(name, problem)));
        let problems = meta::label_value_problems(value.text_or_empty());
        if !problems.is_empty() {
            errors.push(value.invalid(problems.join(";")));
        }
        match effect.text_or_empty() {
            "" => errors.push(effect.required("")),
            known if TAINT_EFFECTS.contains(&known) => {}
            unknown => errors.push(effect.not_supported(unknown, &TAINT_EFFECTS)),
        }
        if !seen.insert((effect.text_or_empty(), name)) {
            let mut error = taint.duplicate();
            error.detail = "taints must be unique by key and effect pair".to_owned();
            errors.push(error);
        }
    }
    errors
}

impl Rules for LeaseRules {
    /// Coordinated leader election is not supported: the fields that only it uses are dropped.
    fn prepare_create(&self, lease: &mut Value, _: Timestamp) {
        if let Some(spec) = part_of(lease, "spec") {
            spec.remove("strategy");
            spec.remove("preferredHolder");
        }
    }

    fn prepare_update(&self, new: &mut Value, _: &Value, _: Part) {
        if let Some(spec) = part_of(new, "spec") {
            spec.remove("strategy");
            spec.remove("preferredHolder");
        }
    }

    fn validate_create(&self, lease: &Value) -> Vec<FieldError> {
        let root = At::root(lease);
        let spec = root.at("spec");
        let (lasts, changes) = (spec.at("leaseDurationSeconds"), spec.at("leaseTransitions"));
        let mut errors = Vec::new();
        if lasts.int().is_some_and(|seconds| seconds <= 0) {
            errors.push(lasts.invalid("must be greater than 0"));
        }
        if changes.int().is_some_and(|changes| changes < 0) {
            errors.push(changes.invalid("must be greater than or equal to 0"));
        }
        errors
    }

    fn validate_update(&self, new: &Value, _: &Value, _: Part) -> Vec<FieldError> {
        self.validate_create(new)
    }
}
