//! The allowed changes of a Pod. There are few: a Pod defines what runs, so almost all of its spec is fixed when it is
//! created.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use tally_core::pod::TRACKING_FINALIZER;
use tally_value::{Map, Value};

use crate::field::At;
use crate::quantity::Quantity;

use super::checks::{Errors, out_of_range};
use super::scheduling;

const CHANGEABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
     `spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set \
     to 1 if it was previously negative)";

/// Adds the errors of the change of `spec` from `old`, both specs. The new spec by itself is already validated.
pub(super) fn validate(spec: &At<'_, '_>, old: &Value, errors: &mut Errors) {
    for list in ["containers", "initContainers"] {
        let containers = spec.at(list);
        if containers.len() != items(old, list).len() {
            errors.push(containers.forbidden("pod updates may not add or remove containers"));
            return;
        }
    }
    let deadline = spec.at("activeDeadlineSeconds");
    match (old.get("activeDeadlineSeconds").and_then(Value::as_i64), deadline.int()) {
        (_, Some(new)) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            errors.push(deadline.invalid(out_of_range(0, i32::MAX.into())));
            return;
        }
        (Some(old), Some(new)) if old < new => {
            errors.push(deadline.invalid("must be less than or equal to previous value"));
            return;
        }
        (Some(_), None) => errors.push(deadline.invalid("must not update from a positive integer to nil value")),
        _ => {}
    }
    only_added_tolerations(&spec.at("tolerations"), old, errors);
    only_removed_gates(&spec.at("schedulingGates"), old, errors);
    let Some(new) = spec.value.filter(|new| !same(new, old)) else { return };
    let settled = settled(new, old, spec, errors);
    if !same(&settled, old) {
        let told = format!("pod updates may not change fields other than {CHANGEABLE}\n{}", difference(old, &settled));
        errors.push(spec.forbidden(told));
    }
}

/// TRACK-19: a Job counts a finished Pod that carries the tracking finalizer, also one that it adopts. No controller adds it
/// to such a Pod.
pub(super) fn validate_tracking(metadata: &At<'_, '_>, old: &Value, errors: &mut Errors) {
    let tracked = |metadata: &Value| items(metadata, "finalizers").iter().any(|name| *name == TRACKING_FINALIZER);
    let has_ended = || matches!(old["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if metadata.value.is_some_and(tracked) && !tracked(&old["metadata"]) && has_ended() {
        errors.push(metadata.at("finalizers").forbidden(format!(
            "{TRACKING_FINALIZER} may not be added to a Pod that has ended: a Job may have counted it, and would count it \
             again"
        )));
    }
}

/// The new spec with all mutable fields set to their old values. Any remaining difference is an error.
fn settled(new: &Value, old: &Value, spec: &At<'_, '_>, errors: &mut Errors) -> Value {
    let mut settled = new.clone();
    for list in ["containers", "initContainers"] {
        let old_containers = items(old, list);
        let containers = settled.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, old) in containers.zip(old_containers) {
            put_back(container, old, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        put_back(&mut settled, old, field);
    }
    let seconds = |spec: &Value| spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
    if seconds(old).is_some_and(|seconds| seconds < 0) && seconds(new) == Some(1) {
        put_back(&mut settled, old, "terminationGracePeriodSeconds");
    }
    // A Pod with scheduling gates can be restricted to fewer nodes, never extended to more.
    if !items(old, "schedulingGates").is_empty() {
        narrowed_selector(&spec.at("nodeSelector"), old, errors);
        put_back(&mut settled, old, "nodeSelector");
        let affinity = spec.at("affinity");
        narrowed_affinity(&affinity.at("nodeAffinity"), old, errors);
        put_back_node_affinity(&mut settled, old);
    }
    settled
}

/// Restores the old value of a field.
pub(super) fn put_back(new: &mut Value, old: &Value, field: &str) {
    let Some(new) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => new.insert(field, value.clone()),
        None => new.remove(field),
    };
}

fn put_back_node_affinity(settled: &mut Value, old: &Value) {
    let Some(spec) = settled.as_object_mut() else { return };
    let old_affinity = old.get("affinity");
    let affinity = spec.entry("affinity").or_insert_with(|| Map::new().into());
    put_back(affinity, old_affinity.unwrap_or(&Value::Null), "nodeAffinity");
    // An absent affinity and one without requirements are equivalent here.
    if old_affinity.is_none() && affinity.as_object().is_none_or(Map::is_empty) {
        spec.remove("affinity");
    }
}

fn only_added_tolerations(new: &At<'_, '_>, old: &Value, errors: &mut Errors) {
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if let Some(toleration) = toleration.as_object_mut() {
            toleration.remove("tolerationSeconds");
        }
        toleration.to_string()
    };
    let kept: BTreeSet<String> = new.list().iter().map(without_seconds).collect();
    if items(old, "tolerations").iter().any(|old| !kept.contains(&without_seconds(old))) {
        errors.push(new.forbidden("existing toleration can not be modified except its tolerationSeconds"));
        return;
    }
    scheduling::tolerations(new, errors);
}

fn only_removed_gates(new: &At<'_, '_>, old: &Value, errors: &mut Errors) {
    let known: BTreeSet<&str> = items(old, "schedulingGates").iter().filter_map(|gate| gate["name"].as_str()).collect();
    for gate in new.items() {
        let name = gate.at("name");
        let text = name.text_or_empty();
        if !known.contains(text) {
            errors.push(name.forbidden(format!("only deletion is allowed, but found new scheduling gate '{text}'")));
        }
    }
}

fn narrowed_selector(new: &At<'_, '_>, old: &Value, errors: &mut Errors) {
    let mut terms = old.get("nodeSelector").and_then(Value::as_object).into_iter().flatten();
    if terms.any(|(key, value)| new.key(key).value != Some(value)) {
        errors.push(new.invalid("only additions to spec.nodeSelector are allowed (no mutations or deletions)"));
    }
}

/// Terms are alternatives, so none may be added; requirements within a term must all hold, so more may be added.
fn narrowed_affinity(new: &At<'_, '_>, old: &Value, errors: &mut Errors) {
    const TERMS: &str = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let Some(old_terms) = old.pointer(TERMS).and_then(Value::as_array).filter(|terms| !terms.is_empty()) else {
        return;
    };
    let required = new.at("requiredDuringSchedulingIgnoredDuringExecution");
    let terms = required.at("nodeSelectorTerms");
    if terms.len() != old_terms.len() {
        errors.push(terms.invalid("no additions/deletions to non-empty NodeSelectorTerms list are allowed"));
        return;
    }
    for (term, old) in terms.items().zip(old_terms) {
        let fields = ["matchExpressions", "matchFields"];
        let was_empty = fields.iter().all(|field| items(old, field).is_empty());
        let grown = fields.iter().all(|field| term.at(field).list().starts_with(items(old, field)));
        let still_empty = fields.iter().all(|field| term.at(field).is_empty());
        if !grown || (was_empty && !still_empty) {
            errors.push(term.invalid("only additions are allowed (no mutations or deletions)"));
        }
    }
}

fn items<'v>(holder: &'v Value, list: &str) -> &'v [Value] {
    holder.get(list).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Whether two specs are equivalent. Amounts are compared by value: `1Ki` is `1024`.
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    if left == right {
        return true;
    }
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let keys = left.keys().chain(right.keys().filter(|key| !left.contains_key(key)));
            keys.into_iter().all(|key| match (left.get(key), right.get(key)) {
                (Some(left), Some(right)) if matches!(key.as_str(), "limits" | "requests" | "overhead") => {
                    same_amounts(left, right)
                }
                (Some(left), Some(right)) => same(left, right),
                (one, other) => one.or(other).is_none_or(is_nothing),
            })
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        _ => is_nothing(left) && is_nothing(right),
    }
}

/// An empty list is equivalent to an absent one; an empty object is not, because it may be a structure.
fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

fn same_amounts(left: &Value, right: &Value) -> bool {
    let amount = |value: &Value| value.as_str().and_then(|text| Quantity::parse(text).ok());
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, left)| {
                    right
                        .get(key)
                        .is_some_and(|right| left == right || amount(left).is_some() && amount(left) == amount(right))
                })
        }
        // Another field of the same name, such as a label.
        _ => same(left, right),
    }
}

/// The lines that differ, with three on either side: enough to recognize the field.
pub(crate) fn difference(old: &Value, new: &Value) -> String {
    const AROUND: usize = 3;
    let (old, new) = (lines(old), lines(new));
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let before = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let shorter = old.len().min(new.len());
    let after =
        old.iter().rev().zip(new.iter().rev()).take(shorter - before).take_while(|(old, new)| old == new).count();
    let first = before.saturating_sub(AROUND);
    let (old_end, new_end) = (old.len() - after, new.len() - after);
    let trailing = after.min(AROUND);
    let counts = (old_end + trailing - first, new_end + trailing - first);
    let mut text = format!("@@ -{start},{} +{start},{} @@\n", counts.0, counts.1, start = first + 1);
    let parts = [
        (' ', &old[first..before]),
        ('-', &old[before..old_end]),
        ('+', &new[before..new_end]),
        (' ', &old[old_end..old_end + trailing]),
    ];
    for (mark, line) in parts.into_iter().flat_map(|(mark, lines)| lines.iter().map(move |line| (mark, line))) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{mark}{line}");
    }
    text
}

fn lines(value: &Value) -> String {
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    match serde::Serialize::serialize(value, &mut serializer) {
        Ok(()) => String::from_utf8_lossy(&text).into_owned(),
        Err(_) => String::new(),
    }
}

// ---- status ----

/// Adds the errors of a new status.
pub(super) fn validate_status(pod: &At<'_, '_>, old: &Value, errors: &mut Errors) {
    let status = pod.at("status");
    for condition in status.at("conditions").items() {
        not_before_the_first(&condition.at("observedGeneration"), errors);
        let kind = condition.at("type").text_or_empty();
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            let problems = crate::meta::qualified_name_problems(kind).into_iter();
            errors.extend(problems.map(|problem| condition.at("Type").invalid_value(kind, problem)));
        }
    }
    let nominated = status.at("nominatedNodeName");
    let old_nomination = old.pointer("/status/nominatedNodeName").and_then(Value::as_str).unwrap_or_default();
    if !nominated.text_or_empty().is_empty() && nominated.text_or_empty() != old_nomination {
        super::checks::dns_subdomain(&nominated, errors);
        if old.pointer("/spec/nodeName").and_then(Value::as_str).is_some_and(|node| !node.is_empty()) {
            errors.push(nominated.forbidden("may not be set on pods that are already bound to a node"));
        }
    }
    not_before_the_first(&status.at("observedGeneration"), errors);
    let class = status.at("qosClass");
    if class.text() != old.pointer("/status/qosClass").and_then(Value::as_str) {
        errors.push(class.invalid_value(class.text_or_empty(), "field is immutable"));
    }
    for (list, containers) in [
        ("containerStatuses", Some("containers")),
        ("initContainerStatuses", Some("initContainers")),
        ("ephemeralContainerStatuses", None),
    ] {
        stays_terminated(&status.at(list), list, containers, old, errors);
    }
    let none = Vec::new();
    for (list, single) in [("podIPs", None), ("hostIPs", Some("hostIP"))] {
        let addresses = status.at(list);
        let kept = old.get("status").and_then(|status| status.get(list)).and_then(Value::as_array).unwrap_or(&none);
        let texts: Vec<&str> = addresses.list().iter().map(|it| it["ip"].as_str().unwrap_or_default()).collect();
        if let (Some(single), Some(first)) = (single, texts.first())
            && status.at(single).text_or_empty() != *first
        {
            errors.push(addresses.index(0).at("ip").invalid_value(first, format!("must be equal to `{single}`")));
        }
        for (index, text) in texts.iter().enumerate() {
            super::checks::ip_address(&addresses.index(index), text, kept, errors);
        }
        let families = texts.iter().filter(|text| text.contains(':')).count();
        if texts.len() > 2 || (texts.len() == 2 && families != 1) {
            errors.push(addresses.invalid("may specify no more than one IP for each IP family"));
        }
    }
}

fn not_before_the_first(generation: &At<'_, '_>, errors: &mut Errors) {
    if generation.int().is_some_and(|generation| generation < 0) {
        errors.push(generation.invalid("must be a non-negative integer"));
    }
}

/// A terminated container that is not to be restarted must stay terminated.
fn stays_terminated(new: &At<'_, '_>, list: &str, containers: Option<&str>, old: &Value, errors: &mut Errors) {
    let spec = &old["spec"];
    let restarts_all = ["initContainers", "containers"].iter().flat_map(|list| items(spec, list)).any(|container| {
        items(container, "restartPolicyRules").iter().any(|rule| rule["action"] == "RestartAllContainers")
    });
    if containers.is_some() && restarts_all {
        return;
    }
    let (statuses, by_name) = (named(new.list()), named(containers.map_or(&[], |list| items(spec, list))));
    for (index, old_status) in old["status"].get(list).and_then(Value::as_array).into_iter().flatten().enumerate() {
        let Some(ended) = old_status.pointer("/state/terminated") else { continue };
        let name = old_status["name"].as_str().unwrap_or_default();
        let Some(status) = statuses.get(name) else { continue };
        if status.pointer("/state/terminated").is_some() {
            continue;
        }
        let container = by_name.get(name);
        let exit_code = ended.get("exitCode").and_then(Value::as_i64).unwrap_or(0);
        if !container.is_some_and(|container| is_restarted(spec, container, exit_code)) {
            let status = new.index(index);
            errors.push(status.at("state").forbidden("may not be transitioned to non-terminated state"));
        }
    }
}

/// By name; of duplicates the first is used.
fn named(list: &[Value]) -> BTreeMap<&str, &Value> {
    list.iter().rev().map(|item| (item["name"].as_str().unwrap_or_default(), item)).collect()
}

/// Whether a container is restarted after it exits with this code: by its own rules, its own policy, or the Pod's.
fn is_restarted(spec: &Value, container: &Value, exit_code: i64) -> bool {
    let own_policy = container.get("restartPolicy").and_then(Value::as_str);
    let by_rule = items(container, "restartPolicyRules").iter().any(|rule| {
        let listed = rule
            .pointer("/exitCodes/values")
            .and_then(Value::as_array)
            .is_some_and(|codes| codes.contains(&exit_code.into()));
        match rule.pointer("/exitCodes/operator").and_then(Value::as_str) {
            Some("In") => listed,
            Some("NotIn") => !listed,
            _ => false,
        }
    });
    match own_policy.or_else(|| spec.get("restartPolicy").and_then(Value::as_str)) {
        _ if own_policy.is_some() && by_rule => true,
        Some("Never") => false,
        Some("OnFailure") => exit_code != 0,
        _ => true,
    }
}
