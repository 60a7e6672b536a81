//! SPECVAL-18 to 22: the Pod failure policy and the success policy.

use std::collections::BTreeSet;

use tally_core::indexes::strict_intervals;
use tally_value::Value;

use super::spec::not_negative;
use crate::field::{At, ErrorKind, FieldError};
use crate::meta::qualified_name_problems;

const MOST_FAILURE_RULES: usize = 20;
const MOST_EXIT_CODES: usize = 255;
const MOST_CONDITIONS: usize = 20;
const MOST_SUCCESS_RULES: usize = 20;
/// In bytes: the list of a rule is parsed again whenever an index succeeds.
const LONGEST_INDEXES: usize = 64 * 1024;

pub(super) fn validate_failure_policy(spec: &At<'_, '_>, errors: &mut Vec<FieldError>) {
    let policy = spec.at("podFailurePolicy");
    let rules = policy.at("rules");
    if rules.len() > MOST_FAILURE_RULES {
        errors.push(rules.too_many(MOST_FAILURE_RULES));
    }
    // Computed once, not for each rule: both lists can be long.
    let containers: BTreeSet<&str> = container_names(spec).collect();
    for rule in rules.items() {
        validate_action(spec, &rule.at("action"), errors);
        let (exit_codes, conditions) = (rule.at("onExitCodes"), rule.at("onPodConditions"));
        if exit_codes.is_set() {
            validate_exit_codes(&containers, &exit_codes, errors);
        }
        validate_conditions(&conditions, errors);
        match (exit_codes.is_set(), !conditions.is_empty()) {
            (true, true) => {
                errors.push(rule.invalid_unprinted("specifying both OnExitCodes and OnPodConditions is not supported"))
            }
            (false, false) => {
                errors.push(rule.invalid_unprinted("specifying one of OnExitCodes and OnPodConditions is required"));
            }
            _ => {}
        }
    }
}

fn validate_action(spec: &At<'_, '_>, action: &At<'_, '_>, errors: &mut Vec<FieldError>) {
    let needs_limit = action.text() == Some("FailIndex");
    if needs_limit && !spec.at("backoffLimitPerIndex").is_set() {
        errors.push(action.invalid("requires the backoffLimitPerIndex to be set"));
    }
    one_of(action, &["Count", "FailIndex", "FailJob", "Ignore"], errors);
}

/// The value is required and must be one of these words.
fn one_of(at: &At<'_, '_>, words: &[&str], errors: &mut Vec<FieldError>) {
    match at.text_or_empty() {
        "" => {
            let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
            errors.push(at.required(format!("valid values: [{}]", quoted.join(" "))));
        }
        word if !words.contains(&word) => errors.push(at.not_supported(word, words)),
        _ => {}
    }
}

fn validate_exit_codes(containers: &BTreeSet<&str>, exit_codes: &At<'_, '_>, errors: &mut Vec<FieldError>) {
    let operator = exit_codes.at("operator");
    one_of(&operator, &["In", "NotIn"], errors);

    let container = exit_codes.at("containerName");
    if let Some(name) = container.text()
        && !containers.contains(name)
    {
        errors.push(container.invalid("must be one of the container or initContainer names in the pod template"));
    }

    let values = exit_codes.at("values");
    if values.is_empty() {
        errors.push(values.invalid("at least one value is required"));
    } else if values.len() > MOST_EXIT_CODES {
        errors.push(values.too_many(MOST_EXIT_CODES));
    }
    // A container with exit code 0 has not failed.
    let zero_is_wrong = operator.text() == Some("In");
    let mut seen = BTreeSet::new();
    let mut ordered = true;
    let mut previous = i64::MIN;
    for value in values.items() {
        let code = value.int().unwrap_or(0);
        if code == 0 && zero_is_wrong {
            errors.push(value.invalid("must not be 0 for the In operator"));
        }
        if !seen.insert(code) {
            errors.push(value.duplicate());
        }
        ordered &= previous <= code;
        previous = code;
    }
    if !ordered {
        errors.push(values.invalid("must be ordered"));
    }
}

fn container_names<'v>(spec: &At<'_, 'v>) -> impl Iterator<Item = &'v str> {
    let pod = spec.value.and_then(|spec| spec.pointer("/template/spec"));
    ["containers", "initContainers"]
        .into_iter()
        .filter_map(move |list| pod?.get(list)?.as_array())
        .flatten()
        .filter_map(|container| container.get("name")?.as_str())
}

fn validate_conditions(conditions: &At<'_, '_>, errors: &mut Vec<FieldError>) {
    if conditions.len() > MOST_CONDITIONS {
        errors.push(conditions.too_many(MOST_CONDITIONS));
    }
    for pattern in conditions.items() {
        let kind = pattern.at("type");
        let text = kind.text_or_empty();
        errors.extend(qualified_name_problems(text).into_iter().map(|problem| kind.invalid_value(text, problem)));
        one_of(&pattern.at("status"), &["False", "True", "Unknown"], errors);
    }
}

/// SPECVAL-19 and 20, for an Indexed Job.
pub(super) fn validate_success_rules(spec: &At<'_, '_>, policy: &At<'_, '_>, errors: &mut Vec<FieldError>) {
    let rules = policy.at("rules");
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.push(rules.required(detail));
    } else if rules.len() > MOST_SUCCESS_RULES {
        errors.push(rules.too_many(MOST_SUCCESS_RULES));
    }
    let completions = spec.at("completions").int();
    for rule in rules.items() {
        let (indexes, count) = (rule.at("succeededIndexes"), rule.at("succeededCount"));
        if !indexes.is_set() && !count.is_set() {
            let detail = "at least one of succeededCount or succeededIndexes must be specified";
            errors.push(rule.required(detail));
        }
        if indexes.text_or_empty().len() > LONGEST_INDEXES {
            errors.push(indexes.too_long(LONGEST_INDEXES));
        }
        // Without completions a rule cannot be checked; that they are missing is a separate error.
        let listed = completions.and_then(|completions| count_listed(&indexes, completions, errors));
        errors.extend(not_negative(&count));
        for (bound, what) in [
            (completions, "the number of specified completions"),
            (listed, "the number of indexes in the specified succeededIndexes field"),
        ] {
            if let (Some(number), Some(bound)) = (count.int(), bound)
                && number > bound
            {
                errors.push(count.invalid(format!("must be less than or equal to {bound} ({what})")));
            }
        }
    }
}

/// How many indexes a rule lists; None if it has no list, 0 if the list is invalid.
fn count_listed(indexes: &At<'_, '_>, completions: i64, errors: &mut Vec<FieldError>) -> Option<i64> {
    let limit = u32::try_from(completions.max(0)).unwrap_or(u32::MAX);
    let mut intervals = strict_intervals(indexes.text()?, limit);
    let listed =
        intervals.try_fold(0, |listed, interval| interval.map(|(start, end)| listed + i64::from(end - start) + 1));
    Some(listed.unwrap_or_else(|problem| {
        errors.push(indexes.invalid(format!("error parsing succeededIndexes: {problem}")));
        0
    }))
}

// kube-apiserver prints these two values in the form of its internal types, where every field is present.

pub(super) fn invalid_success_policy(policy: &At<'_, '_>, detail: &str) -> FieldError {
    let printed = printed_list(policy.at("rules").value, |rule| {
        let (indexes, count) = (field(rule, "succeededIndexes"), field(rule, "succeededCount"));
        format!(r#"{{"SucceededIndexes":{indexes},"SucceededCount":{count}}}"#)
    });
    invalid_policy(policy, &printed, detail)
}

pub(super) fn invalid_failure_policy(policy: &At<'_, '_>, detail: &str) -> FieldError {
    let printed = printed_list(policy.at("rules").value, |rule| {
        let exit_codes = match rule.get("onExitCodes") {
            None => "null".to_owned(),
            Some(codes) => format!(
                r#"{{"ContainerName":{},"Operator":{},"Values":{}}}"#,
                field(codes, "containerName"),
                field(codes, "operator"),
                field(codes, "values")
            ),
        };
        let conditions = printed_list(rule.get("onPodConditions"), |pattern| {
            format!(r#"{{"Type":{},"Status":{}}}"#, field(pattern, "type"), field(pattern, "status"))
        });
        let action = field(rule, "action");
        format!(r#"{{"Action":{action},"OnExitCodes":{exit_codes},"OnPodConditions":{conditions}}}"#)
    });
    invalid_policy(policy, &printed, detail)
}

fn invalid_policy(policy: &At<'_, '_>, rules: &str, detail: &str) -> FieldError {
    let printed = if policy.is_set() { format!(r#"{{"Rules":{rules}}}"#) } else { "null".to_owned() };
    FieldError::new(ErrorKind::Invalid, policy.path(), Some(printed), detail)
}

fn field(object: &Value, name: &str) -> String {
    object.get(name).unwrap_or(&Value::Null).to_string()
}

fn printed_list(list: Option<&Value>, print: impl Fn(&Value) -> String) -> String {
    match list.and_then(Value::as_array) {
        None => "null".to_owned(),
        Some(items) => format!("[{}]", items.iter().map(print).collect::<Vec<_>>().join(",")),
    }
}
