//! The two policies, implemented literally.

use std::collections::BTreeSet;

use tally_core::pod::PodView;
use tally_core::policy::{FailureAction, FailurePolicy, SuccessPolicy};

use super::text;

#[derive(Clone, Debug)]
pub struct Verdict {
    pub action: FailureAction,
    /// Only for FailJob (PFP-5).
    pub message: Option<String>,
}

/// PFP-2 to PFP-5.
pub fn of(policy: &FailurePolicy, pod: &PodView) -> Option<Verdict> {
    for (number, rule) in policy.rules.iter().enumerate() {
        let action = match rule.action.as_str() {
            "FailJob" => FailureAction::FailJob,
            "FailIndex" => FailureAction::FailIndex,
            "Ignore" => FailureAction::Ignore,
            "Count" => FailureAction::Count,
            _ => continue,
        };
        let mut reason = None;
        if let Some(codes) = &rule.on_exit_codes {
            for exit in &pod.exits {
                let here = codes.container_name.as_ref().is_none_or(|name| *name == exit.container);
                let listed = codes.values.contains(&exit.code);
                let matches = (codes.operator == "In" && listed) || (codes.operator == "NotIn" && !listed);
                if reason.is_none() && here && matches && exit.code != 0 {
                    reason = Some(format!(
                        "Container {} for pod {}/{} failed with exit code {}",
                        exit.container, pod.namespace, pod.name, exit.code
                    ));
                }
            }
        } else {
            for (kind, status) in &pod.conditions {
                let pattern = rule.on_pod_conditions.iter().any(|want| want.kind == *kind && want.status == *status);
                if reason.is_none() && pattern {
                    reason = Some(format!("Pod {}/{} has condition {kind}", pod.namespace, pod.name));
                }
            }
        }
        if let Some(reason) = reason {
            let message = format!("{reason} matching FailJob rule at index {number}");
            return Some(Verdict { action, message: Some(message).filter(|_| action == FailureAction::FailJob) });
        }
    }
    None
}

/// SUCC-1, SUCC-2.
pub fn matched_rule(policy: &SuccessPolicy, completed: &BTreeSet<u32>, limit: u32) -> Option<usize> {
    if completed.is_empty() {
        return None;
    }
    policy.rules.iter().position(|rule| {
        let enough = |hits: usize| rule.succeeded_count.is_some_and(|count| count >= 0 && hits >= count as usize);
        let Some(list) = &rule.succeeded_indexes else { return enough(completed.len()) };
        let required = text::read(list, limit);
        let hits = required.intersection(completed).count();
        !required.is_empty() && (hits == required.len() || enough(hits))
    })
}
