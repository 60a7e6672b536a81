//! Where a Pod may run: selectors, affinities, tolerations, topology spread, and scheduling gates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use tally_value::{Value, json};

use crate::field::At;
use crate::meta;

use super::checks::{
    Errors, UniqueTexts, duplicate, label_selector, label_value, one_of, one_of_or_empty, qualified_name, reject,
    values_fit_operator,
};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

// ---- affinity ----

pub(super) fn affinity(affinity: &At<'_, '_>, errors: &mut Errors) {
    let node = affinity.at("nodeAffinity");
    let needed = node.at(REQUIRED);
    if needed.is_set() {
        let terms = needed.at("nodeSelectorTerms");
        if terms.is_empty() {
            errors.push(terms.required("must have at least one node selector term"));
        }
        for term in terms.items() {
            node_selector_term(&term, true, errors);
        }
    }
    for term in node.at(PREFERRED).items() {
        weight(&term.at("weight"), errors);
        // A preference that no node can match has no effect.
        node_selector_term(&term.at("preference"), false, errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let affinity = affinity.at(kind);
        for term in affinity.at(REQUIRED).items() {
            pod_term(&term, errors);
        }
        for weighted in affinity.at(PREFERRED).items() {
            weight(&weighted.at("weight"), errors);
            pod_term(&weighted.at("podAffinityTerm"), errors);
        }
    }
}

fn weight(weight: &At<'_, '_>, errors: &mut Errors) {
    let number = weight.int().unwrap_or(0);
    if !(1..=100).contains(&number) {
        errors.push(weight.invalid_value(number, "must be in the range 1-100"));
    }
}

fn node_selector_term(term: &At<'_, '_>, values_checked: bool, errors: &mut Errors) {
    for requirement in term.at("matchExpressions").items() {
        values_fit_operator(&requirement, &["Gt", "Lt"], errors);
        qualified_name(&requirement.at("key"), errors);
        if values_checked {
            for value in requirement.at("values").items() {
                label_value(&value, errors);
            }
        }
    }
    for requirement in term.at("matchFields").items() {
        let (operator, values, key) = (requirement.at("operator"), requirement.at("values"), requirement.at("key"));
        if !matches!(operator.text_or_empty(), "In" | "NotIn") {
            errors.push(operator.invalid_value(operator.text_or_empty(), "not a valid selector operator"));
        } else if values.len() != 1 {
            let told = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.push(values.required(told));
        }
        if key.text_or_empty() != "metadata.name" {
            errors.push(key.invalid_value(key.text_or_empty(), "not a valid field selector key"));
            continue;
        }
        for value in values.items() {
            reject(&value, meta::dns_subdomain_problems(value.text_or_empty()), errors);
        }
    }
}

fn pod_term(term: &At<'_, '_>, errors: &mut Errors) {
    label_selector(&term.at("labelSelector"), errors);
    label_selector(&term.at("namespaceSelector"), errors);
    for namespace in term.at("namespaces").list().iter().filter_map(Value::as_str) {
        let problems = meta::dns_label_problems(namespace).into_iter();
        errors.extend(problems.map(|problem| term.at("namespace").invalid_value(namespace, problem)));
    }
    label_keys(term, &["matchLabelKeys", "mismatchLabelKeys"], errors);
    let topology = term.at("topologyKey");
    if topology.text_or_empty().is_empty() {
        errors.push(topology.required("can not be empty"));
    }
    qualified_name(&topology, errors);
}

/// Keys whose values are taken from the Pod's own labels. They are already merged into the selector, so a key that
/// occurs twice in the selector was also set by the user.
fn label_keys(holder: &At<'_, '_>, lists: &[&str], errors: &mut Errors) {
    let selector = holder.at("labelSelector");
    for list in lists {
        let keys = holder.at(list);
        if keys.is_empty() {
            continue;
        }
        if !selector.is_set() {
            errors.push(keys.forbidden("must not be specified when labelSelector is not set"));
            continue;
        }
        for key in keys.items() {
            qualified_name(&key, errors);
        }
    }
    let matched = holder.at("matchLabelKeys");
    let places: BTreeMap<&str, usize> = matched.list().iter().filter_map(Value::as_str).zip(0..).collect();
    let mut named: BTreeSet<&str> = selector.at("matchLabels").entries().map(|(key, _)| key).collect();
    for expression in selector.at("matchExpressions").items() {
        let key = expression.at("key").text_or_empty();
        if !named.insert(key)
            && let Some(index) = places.get(key).copied()
        {
            errors.push(holder.index(index).invalid_value(key, "exists in both matchLabelKeys and labelSelector"));
        }
    }
    let mismatched = holder.at("mismatchLabelKeys");
    let mismatched: BTreeSet<&str> = mismatched.list().iter().filter_map(Value::as_str).collect();
    for key in matched.items().filter(|key| mismatched.contains(key.text_or_empty())) {
        errors.push(key.invalid("exists in both matchLabelKeys and mismatchLabelKeys"));
    }
}

/// Merges the Pod's labels into the selectors that request them: once, when the Pod is created.
pub(super) fn merge_label_keys(pod: &mut Value) {
    let Some(labels) = pod.pointer("/metadata/labels").and_then(Value::as_object).cloned() else { return };
    let merge = |holder: &mut Value| {
        for (list, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
            let keys: Vec<String> = holder
                .get(list)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|key| key.as_str().map(str::to_owned))
                .collect();
            let Some(selector) = holder.get_mut("labelSelector").and_then(Value::as_object_mut) else { return };
            let merged: Vec<Value> = keys
                .iter()
                .filter_map(|key| labels.get(key).map(|value| (key, value)))
                .map(|(key, value)| tally_value::json!({ "key": key, "operator": operator, "values": [value] }))
                .collect();
            if merged.is_empty() {
                continue;
            }
            let expressions = selector.entry("matchExpressions").or_insert_with(|| json!([]));
            if let Some(expressions) = expressions.as_array_mut() {
                expressions.extend(merged);
            }
        }
    };
    let Some(spec) = pod.get_mut("spec") else { return };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec.get_mut("affinity").and_then(|affinity| affinity.get_mut(kind)) else { continue };
        for term in items_mut(affinity, REQUIRED) {
            merge(term);
        }
        for term in items_mut(affinity, PREFERRED) {
            if let Some(term) = term.get_mut("podAffinityTerm") {
                merge(term);
            }
        }
    }
    for constraint in items_mut(spec, "topologySpreadConstraints") {
        merge(constraint);
    }
}

fn items_mut<'v>(holder: &'v mut Value, list: &str) -> impl Iterator<Item = &'v mut Value> {
    holder.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

// ---- spreading ----

pub(super) fn spreading(list: &At<'_, '_>, errors: &mut Errors) {
    // The last position of each pair: earlier ones are duplicates.
    let last: BTreeMap<[&str; 2], usize> = list
        .list()
        .iter()
        .map(|constraint| {
            ["topologyKey", "whenUnsatisfiable"].map(|field| constraint[field].as_str().unwrap_or_default())
        })
        .zip(0..)
        .collect();
    for (index, constraint) in list.items().enumerate() {
        let skew = constraint.at("maxSkew");
        let number = skew.int().unwrap_or(0);
        if number <= 0 {
            errors.push(skew.invalid_value(number, "must be greater than zero"));
        }
        let (topology, action) = (constraint.at("topologyKey"), constraint.at("whenUnsatisfiable"));
        if topology.text_or_empty().is_empty() {
            errors.push(topology.required("can not be empty"));
        }
        one_of_or_empty(&action, &["DoNotSchedule", "ScheduleAnyway"], errors);
        let this = [topology.text_or_empty(), action.text_or_empty()];
        if last.get(&this).is_some_and(|last| *last > index) {
            let place = constraint.at("{topologyKey, whenUnsatisfiable}");
            errors.push(duplicate(&place, format!("{{{}, {}}}", this[0], this[1])));
        }
        let domains = constraint.at("minDomains");
        if let Some(number) = domains.int() {
            if number <= 0 {
                errors.push(domains.invalid("must be greater than zero"));
            }
            if this[1] != "DoNotSchedule" {
                let told = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}", this[1]);
                errors.push(domains.invalid(told));
            }
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            one_of(&constraint.at(policy), &["Honor", "Ignore"], errors);
        }
        label_keys(&constraint, &["matchLabelKeys"], errors);
        label_selector(&constraint.at("labelSelector"), errors);
    }
}

// ---- tolerations ----

pub(super) fn tolerations(list: &At<'_, '_>, errors: &mut Errors) {
    for toleration in list.items() {
        let (key, operator, effect) = (toleration.at("key"), toleration.at("operator"), toleration.at("effect"));
        let value = toleration.at("value").text_or_empty();
        if !key.text_or_empty().is_empty() {
            qualified_name(&key, errors);
        } else if operator.text_or_empty() != "Exists" {
            let told = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(operator.invalid_value(operator.text_or_empty(), told));
        }
        if toleration.at("tolerationSeconds").is_set() && effect.text_or_empty() != "NoExecute" {
            let told = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(effect.invalid_value(effect.text_or_empty(), told));
        }
        match operator.text_or_empty() {
            "" | "Equal" => {
                let problems = meta::label_value_problems(value);
                if !problems.is_empty() {
                    errors.push(operator.invalid_value(value, problems.join(";")));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    errors.push(operator.invalid_value(value, "value must be empty when `operator` is 'Exists'"));
                }
            }
            comparison @ ("Lt" | "Gt") => {
                errors.push(operator.not_supported(comparison, &["Equal", "Exists", "Lt", "Gt"]));
            }
            other => errors.push(operator.not_supported(other, &["Equal", "Exists"])),
        }
        if !effect.text_or_empty().is_empty() {
            one_of_or_empty(&effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"], errors);
        }
    }
}

/// By default, Pods stay for five minutes on a node that is not ready or unreachable.
pub(super) fn add_default_tolerations(pod: &mut Value) {
    const KEYS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
    /// All Pods without tolerations of their own share the list.
    static DEFAULTS: LazyLock<Vec<Value>> = LazyLock::new(|| {
        let added = |key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
        KEYS.map(added).into()
    });
    static LIST: LazyLock<Value> = LazyLock::new(|| DEFAULTS.clone().into());
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let Some(own) = spec.get("tolerations").and_then(Value::as_array).filter(|own| !own.is_empty()) else {
        spec.insert("tolerations", LIST.clone());
        return;
    };
    let tolerates = |key: &str| {
        own.iter().any(|toleration| {
            let text = |field| toleration.get(field).and_then(Value::as_str).unwrap_or_default();
            [key, ""].contains(&text("key")) && ["NoExecute", ""].contains(&text("effect"))
        })
    };
    let mut all = own.to_vec();
    all.extend(KEYS.iter().zip(&*DEFAULTS).filter(|(key, _)| !tolerates(key)).map(|(_, added)| added.clone()));
    if all.len() > own.len() {
        spec.insert("tolerations", all.into());
    }
}

// ---- gates ----

pub(super) fn gates(spec: &At<'_, '_>, errors: &mut Errors) {
    for gate in spec.at("readinessGates").items() {
        qualified_name(&gate.at("conditionType"), errors);
    }
    let mut names = UniqueTexts::default();
    for gate in spec.at("schedulingGates").items() {
        let name = gate.at("name").text_or_empty();
        errors.extend(meta::qualified_name_problems(name).into_iter().map(|problem| gate.invalid_value(name, problem)));
        if !names.insert(name) {
            errors.push(duplicate(&gate, name));
        }
    }
}
