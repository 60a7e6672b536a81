//! The rules for ResourceQuotas themselves.

use tally_core::quantity::Quantity;
use tally_value::Value;

use crate::field::{At, FieldError};
use crate::meta;

/// Names without a domain that a quota may limit.
const NAMES: [&str; 18] = [
    "configmaps",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.nodeports",
];
const LOAD_BALANCERS: &str = "services.loadbalancers";
/// Names that may have no fraction.
const WHOLE: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    LOAD_BALANCERS,
    "services.nodeports",
];
const SCOPES: [&str; 6] =
    ["Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity"];

pub fn validate(quota: &Value) -> Vec<FieldError> {
    let root = At::root(quota);
    let spec = root.at("spec");
    let hard = spec.at("hard");
    let mut errors = Vec::new();
    for (name, amount) in hard.entries() {
        let at = hard.key(name);
        let problems = meta::qualified_name_problems(name);
        let huge = ["hugepages-", "requests.hugepages-"].iter().any(|prefix| name.starts_with(prefix));
        if !problems.is_empty() {
            errors.extend(problems.into_iter().map(|problem| at.invalid_value(name, problem)));
        } else if !name.contains('/') && !NAMES.contains(&name) && name != LOAD_BALANCERS && !huge {
            errors.push(at.invalid_value(name, "must be a standard resource type or fully qualified"));
            errors.push(at.invalid_value(name, "must be a standard resource for quota"));
        }
        let Some(amount) = amount.as_str().and_then(|text| Quantity::parse(text).ok()) else { continue };
        if amount.is_negative() {
            errors.push(at.invalid_value(amount.to_string(), "must be greater than or equal to 0"));
        }
        if (WHOLE.contains(&name) || name.starts_with("count/")) && !amount.is_integer() {
            errors.push(at.invalid_value(amount.to_string(), "must be an integer"));
        }
    }
    let names: Vec<&str> = hard.entries().map(|(name, _)| name).collect();
    errors.extend(validate_scopes(&spec.at("scopes"), &names));
    errors.extend(validate_selector(&spec.at("scopeSelector"), &names));
    errors
}

fn validate_scopes(scopes: &At<'_, '_>, names: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let named: Vec<&str> = scopes.list().iter().filter_map(Value::as_str).collect();
    let mut tell = |detail: &str| {
        let error = scopes.invalid(detail);
        if !errors.contains(&error) {
            errors.push(error);
        }
    };
    for scope in &named {
        if !SCOPES.contains(scope) {
            tell("unsupported scope");
        }
        if names.iter().any(|name| !fits(scope, name)) {
            tell("unsupported scope applied to resource");
        }
    }
    if conflict(&named) {
        tell("conflicting scopes");
    }
    errors
}

fn validate_selector(selector: &At<'_, '_>, names: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let expressions = selector.at("matchExpressions");
    let mut existing = Vec::new();
    for rule in expressions.items() {
        let (scope, operator) = (rule.at("scopeName").text_or_empty(), rule.at("operator").text_or_empty());
        // The errors name the list as a whole, not its items.
        let (at_scope, at_operator, at_values) =
            (expressions.at("scopeName"), expressions.at("operator"), expressions.at("values"));
        let count = rule.at("values").list().len();
        if !SCOPES.contains(&scope) {
            errors.push(at_scope.invalid_value(scope, "unsupported scope"));
        }
        if names.iter().any(|name| !fits(scope, name)) {
            errors.push(at_scope.invalid_value(scope, "unsupported scope applied to resource"));
        }
        let only_exists = SCOPES.contains(&scope) && scope != "PriorityClass";
        match operator {
            _ if only_exists && operator != "Exists" => errors.push(at_operator.invalid_value(
                operator,
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
                 ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
                 ResourceQuotaScopeCrossNamespacePodAffinity",
            )),
            "In" | "NotIn" if count == 0 => errors.push(
                at_values.required("must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"),
            ),
            "Exists" | "DoesNotExist" if count > 0 => errors.push(at_values.invalid_value(
                rule.at("values").value,
                "must be no value when `operator` is 'Exists' or 'DoesNotExist' for scope selector",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(at_operator.invalid_value(operator, "not a valid selector operator")),
        }
        if operator == "Exists" {
            existing.push(scope);
        }
    }
    if conflict(&existing) {
        errors.push(selector.invalid("conflicting scopes"));
    }
    errors
}

fn conflict(scopes: &[&str]) -> bool {
    let both = |one, other| scopes.contains(&one) && scopes.contains(&other);
    both("Terminating", "NotTerminating") || both("BestEffort", "NotBestEffort")
}

/// Whether a quota of this scope may limit this resource: something that Pods use. Pods of best effort request nothing.
fn fits(scope: &str, name: &str) -> bool {
    let of_pods =
        matches!(name, "pods" | "cpu" | "memory" | "requests.cpu" | "requests.memory" | "limits.cpu" | "limits.memory");
    if name.contains('/') {
        return true;
    }
    match scope {
        "BestEffort" => name == "pods",
        scope if SCOPES.contains(&scope) => of_pods,
        _ => true,
    }
}

/// The scopes of a quota cannot be changed.
pub fn immutable_errors(new: &Value, old: &Value) -> Vec<FieldError> {
    let sorted = |quota: &Value| {
        let scopes = quota.pointer("/spec/scopes").and_then(Value::as_array).into_iter().flatten();
        let mut scopes: Vec<String> = scopes.filter_map(|scope| Some(scope.as_str()?.to_owned())).collect();
        scopes.sort_unstable();
        scopes
    };
    let root = At::root(new);
    let spec = root.at("spec");
    if sorted(new) == sorted(old) { Vec::new() } else { vec![spec.at("scopes").invalid("field is immutable")] }
}
