//! PriorityClasses, LimitRanges, ResourceQuotas and PodDisruptionBudgets.

use tally_core::time::Timestamp;
use tally_value::{Map, Value};

use super::{count_in, empty_status, fill, keep_apart, raise_generation, set_generation, text_in};
use crate::field::{At, FieldError};
use crate::kinds::{Part, Rules};
use crate::quota;
use crate::selector::validate_label_selector;

pub struct PodDisruptionBudgetRules;
pub struct PriorityClassRules;
pub struct LimitRangeRules;
pub struct ResourceQuotaRules;

impl Rules for PodDisruptionBudgetRules {
    fn prepare_create(&self, budget: &mut Value, _: Timestamp) {
        budget["status"] = empty_status("policy", "PodDisruptionBudget");
        set_generation(budget, 1);
    }

    fn validate_create(&self, budget: &Value) -> Vec<FieldError> {
        let root = At::root(budget);
        let spec = root.at("spec");
        let mut errors = Vec::new();
        if spec.at("minAvailable").is_set() && spec.at("maxUnavailable").is_set() {
            errors.push(spec.invalid("minAvailable and maxUnavailable cannot be both set"));
        }
        for field in ["minAvailable", "maxUnavailable"] {
            errors.extend(number_or_share_problem(spec.at(field)));
        }
        errors.extend(validate_label_selector(spec.at("selector")));
        let policy = spec.at("unhealthyPodEvictionPolicy");
        let known = ["AlwaysAllow", "IfHealthyBudget"];
        if policy.text().is_some_and(|policy| !known.contains(&policy)) {
            errors.push(policy.not_supported(policy.text_or_empty(), &known));
        }
        errors
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, part: Part) {
        keep_apart(new, old, part);
        if new.get("spec") != old.get("spec") {
            raise_generation(new, old);
        }
    }

    fn validate_update(&self, new: &Value, _: &Value, part: Part) -> Vec<FieldError> {
        match part {
            Part::Main => self.validate_create(new),
            Part::Status => validate_budget_status(new),
        }
    }
}

fn validate_budget_status(budget: &Value) -> Vec<FieldError> {
    let root = At::root(budget);
    let status = root.at("status");
    let numbers = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
    let negative = |at: &At<'_, '_>| at.int().is_some_and(|number| number < 0);
    let wrong = numbers.iter().filter(|field| negative(&status.at(field)));
    wrong.map(|field| status.at(field).invalid("must be greater than or equal to 0")).collect()
}

/// A non-negative number, or a percentage of at most 100.
fn number_or_share_problem(at: At<'_, '_>) -> Option<FieldError> {
    match at.value? {
        Value::String(share) => {
            let percent = share.strip_suffix('%').filter(|digits| !digits.is_empty());
            let digits = percent.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
            let Some(digits) = digits else {
                return Some(at.invalid(
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex \
                     used for validation is '[0-9]+%')",
                ));
            };
            let whole = digits.parse::<u32>().is_ok_and(|percent| percent <= 100);
            (!whole).then(|| at.invalid("must not be greater than 100%"))
        }
        number => {
            number.as_i64().is_some_and(|number| number < 0).then(|| at.invalid("must be greater than or equal to 0"))
        }
    }
}

/// Higher priorities are reserved for the system.
const MOST_PRIORITY: i64 = 1_000_000_000;
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

impl Rules for PriorityClassRules {
    fn default(&self, class: &mut Value) {
        if let Some(class) = class.as_object_mut() {
            fill(class, "preemptionPolicy", "PreemptLowerPriority");
        }
    }

    fn prepare_create(&self, class: &mut Value, _: Timestamp) {
        set_generation(class, 1);
    }

    fn validate_create(&self, class: &Value) -> Vec<FieldError> {
        let root = At::root(class);
        let meta = root.at("metadata");
        let (name, value) = (meta.at("name"), root.at("value").int().unwrap_or_default());
        let mut errors = Vec::new();
        if name.text_or_empty().starts_with("system-") {
            if let Some(why) = not_the_systems(&root, name.text_or_empty(), value) {
                let text = "priority class names with 'system-' prefix are reserved for system use only";
                errors.push(name.forbidden(format!("{text}. error: {why}")));
            }
        } else if value > MOST_PRIORITY {
            let text = format!("maximum allowed value of a user defined priority is {MOST_PRIORITY}");
            errors.push(root.at("value").forbidden(text));
        }
        let policy = root.at("preemptionPolicy");
        let known = ["PreemptLowerPriority", "Never"];
        if policy.text().is_some_and(|policy| !known.contains(&policy)) {
            errors.push(policy.not_supported(policy.text_or_empty(), &known));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _: Part) -> Vec<FieldError> {
        let (new, old) = (At::root(new), At::root(old));
        let mut errors = Vec::new();
        if new.at("value").int().unwrap_or_default() != old.at("value").int().unwrap_or_default() {
            errors.push(new.at("value").forbidden("may not be changed in an update."));
        }
        if new.at("preemptionPolicy").value != old.at("preemptionPolicy").value {
            errors.push(new.at("preemptionPolicy").invalid(super::IMMUTABLE));
        }
        errors
    }
}

/// Why a class with a reserved name is not one of the system classes.
fn not_the_systems(class: &At<'_, '_>, name: &str, value: i64) -> Option<String> {
    match SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) {
        None => Some(format!("{name} is not a known system priority class")),
        Some((_, right)) if *right != value => Some(format!("value of {name} PriorityClass must be {right}")),
        Some(_) if class.at("globalDefault").is_true() => {
            Some(format!("globalDefault of {name} PriorityClass must be false"))
        }
        Some(_) => None,
    }
}

impl Rules for LimitRangeRules {
    /// Defaults for containers: the default limit is the maximum, the default request is the default limit or the
    /// minimum.
    fn default(&self, range: &mut Value) {
        let limits = range.pointer_mut("/spec/limits").and_then(Value::as_array_mut);
        for limit in limits.into_iter().flatten().filter_map(Value::as_object_mut) {
            if text_in(limit, "type") != "Container" {
                continue;
            }
            for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
                if count_in(limit, from) == 0 {
                    continue;
                }
                let source: Map = limit.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
                let Some(target) = super::child(limit, to) else { continue };
                for (resource, amount) in source {
                    target.entry(resource).or_insert(amount);
                }
            }
        }
    }
}

impl Rules for ResourceQuotaRules {
    fn prepare_create(&self, quota: &mut Value, now: Timestamp) {
        super::OrdinaryRules.prepare_create(quota, now);
    }

    fn validate_create(&self, quota: &Value) -> Vec<FieldError> {
        quota::validate(quota)
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, part: Part) {
        keep_apart(new, old, part);
    }

    fn validate_update(&self, new: &Value, old: &Value, part: Part) -> Vec<FieldError> {
        if part == Part::Status {
            return Vec::new();
        }
        let mut errors = quota::validate(new);
        errors.extend(quota::immutable_errors(new, old));
        errors
    }
}
