//! The results of the two policies of a Job, implemented independently from PFP and SUCC.

use super::indexes::{Indexes, read};
use super::read::{FailureRule, Pod, SuccessRule};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    FailJob,
    FailIndex,
    Ignore,
    Count,
}

/// PFP-2: the first rule with a known action that matches; without one a failure counts.
pub(crate) fn action(rules: &[FailureRule], pod: &Pod) -> Action {
    for rule in rules {
        let action = match rule.action.as_str() {
            "FailJob" => Action::FailJob,
            "FailIndex" => Action::FailIndex,
            "Ignore" => Action::Ignore,
            "Count" => Action::Count,
            _ => continue,
        };
        if matches(rule, pod) {
            return action;
        }
    }
    Action::Count
}

/// PFP-3, PFP-4.
fn matches(rule: &FailureRule, pod: &Pod) -> bool {
    if let Some(codes) = &rule.on_exit_codes {
        return pod.exits().any(|(container, code)| {
            let listed = codes.values.contains(&code);
            let named = codes.container_name.as_deref().is_none_or(|name| name == container);
            named && (codes.operator == "In" && listed || codes.operator == "NotIn" && !listed)
        });
    }
    rule.on_pod_conditions.iter().any(|pattern| {
        let wanted = if pattern.status.is_empty() { "True" } else { pattern.status.as_str() };
        pod.conditions().any(|(kind, status)| kind == pattern.kind && status == wanted)
    })
}

/// SUCC-1, SUCC-2: whether any rule is satisfied by these indexes.
pub(crate) fn succeeds(rules: &[SuccessRule], completed: &Indexes, limit: u32) -> bool {
    let enough = |rule: &SuccessRule, hits: usize| rule.succeeded_count.is_some_and(|count| hits as i64 >= count);
    !completed.is_empty()
        && rules.iter().any(|rule| match &rule.succeeded_indexes {
            None => enough(rule, completed.len()),
            Some(text) => {
                let required = read(text, limit);
                let hits = required.intersection(completed).count();
                !required.is_empty() && (hits == required.len() || enough(rule, hits))
            }
        })
}
