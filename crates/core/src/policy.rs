//! `spec.podFailurePolicy` and `spec.successPolicy`: their verdict on a Pod or on a set of indexes.

use compact_str::CompactString;
use serde::{Deserialize, Deserializer};

use crate::indexes::IndexSet;
use crate::pod::PodView;
use crate::view::null_default;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct FailurePolicy {
    #[serde(default, deserialize_with = "null_default")]
    pub rules: Vec<FailureRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureRule {
    #[serde(default, deserialize_with = "null_default")]
    pub action: CompactString,
    #[serde(default)]
    pub on_exit_codes: Option<OnExitCodes>,
    #[serde(default, deserialize_with = "null_default")]
    pub on_pod_conditions: Vec<OnPodCondition>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OnExitCodes {
    #[serde(default)]
    pub container_name: Option<CompactString>,
    #[serde(default, deserialize_with = "null_default")]
    pub operator: CompactString,
    #[serde(default, deserialize_with = "null_default")]
    pub values: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct OnPodCondition {
    #[serde(rename = "type", default, deserialize_with = "null_default")]
    pub kind: CompactString,
    /// DEFAULT-6: an empty status means True.
    #[serde(default = "true_status", deserialize_with = "status_or_true")]
    pub status: CompactString,
}

fn true_status() -> CompactString {
    CompactString::const_new("True")
}

fn status_or_true<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CompactString, D::Error> {
    let status: CompactString = null_default(deserializer)?;
    Ok(if status.is_empty() { true_status() } else { status })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureAction {
    FailJob,
    FailIndex,
    Ignore,
    Count,
}

impl FailureAction {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "FailJob" => Self::FailJob,
            "FailIndex" => Self::FailIndex,
            "Ignore" => Self::Ignore,
            "Count" => Self::Count,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::FailJob => "FailJob",
            Self::FailIndex => "FailIndex",
            Self::Ignore => "Ignore",
            Self::Count => "Count",
        }
    }
}

/// The policy's verdict on one Pod. `message` is set for FailJob only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub action: FailureAction,
    pub message: Option<Box<str>>,
}

impl FailurePolicy {
    /// PFP-2: the first rule that matches and whose action is known decides; None means that the failure is counted.
    pub fn judge(&self, pod: &PodView) -> Option<Verdict> {
        let by_rule = |(at, rule): (usize, &FailureRule)| {
            let action = FailureAction::parse(&rule.action)?;
            let reason = rule.reason(pod)?;
            let message = (action == FailureAction::FailJob)
                .then(|| format!("{reason} matching FailJob rule at index {at}").into_boxed_str());
            Some(Verdict { action, message })
        };
        self.rules.iter().enumerate().find_map(by_rule)
    }
}

impl FailureRule {
    /// Why the rule matches, in the wording of PFP-5.
    fn reason(&self, pod: &PodView) -> Option<String> {
        if let Some(codes) = &self.on_exit_codes {
            // Only the final state of a container counts, never that of an earlier run of it (PFP-3).
            return pod.exits.iter().find(|exit| codes.matches(exit)).map(|exit| {
                format!(
                    "Container {} for pod {}/{} failed with exit code {}",
                    exit.container, pod.namespace, pod.name, exit.code
                )
            });
        }
        let matched = pod.conditions.iter().find(|(kind, status)| {
            let fits = |pattern: &OnPodCondition| pattern.kind == *kind && pattern.status == *status;
            self.on_pod_conditions.iter().any(fits)
        })?;
        Some(format!("Pod {}/{} has condition {}", pod.namespace, pod.name, matched.0))
    }
}

impl OnExitCodes {
    fn matches(&self, exit: &crate::pod::Exit) -> bool {
        if self.container_name.as_ref().is_some_and(|name| *name != exit.container) {
            return false;
        }
        match self.operator.as_str() {
            "In" => self.values.contains(&exit.code),
            "NotIn" => !self.values.contains(&exit.code),
            _ => false,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct SuccessPolicy {
    #[serde(default, deserialize_with = "null_default")]
    pub rules: Vec<SuccessRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SuccessRule {
    #[serde(default)]
    pub succeeded_indexes: Option<String>,
    #[serde(default)]
    pub succeeded_count: Option<i32>,
}

impl SuccessPolicy {
    /// SUCC-2: the position of the first rule that the completed indexes satisfy.
    pub fn matched_rule(&self, completed: &IndexSet, limit: u32) -> Option<usize> {
        if completed.is_empty() {
            return None;
        }
        self.rules.iter().position(|rule| rule.matches(completed, limit))
    }
}

impl SuccessRule {
    fn matches(&self, completed: &IndexSet, limit: u32) -> bool {
        let enough = |hits: usize| {
            self.succeeded_count.is_some_and(|count| usize::try_from(count).is_ok_and(|count| hits >= count))
        };
        match &self.succeeded_indexes {
            None => enough(completed.len()),
            Some(text) => {
                let required = IndexSet::read_tolerant(text, limit);
                let hits = required.intersection(completed).len();
                !required.is_empty() && (hits == required.len() || enough(hits))
            }
        }
    }
}
