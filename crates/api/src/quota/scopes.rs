//! The scopes of a quota: which Pods count.

use tally_value::Value;

use crate::pod::class_of_service;

/// All of them must contain a Pod. A quota with scopes counts nothing but Pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes(Vec<ScopeRule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct ScopeRule {
    scope: String,
    operator: String,
    values: Vec<String>,
}

impl Scopes {
    pub fn of(quota: &Value) -> Self {
        let list = |pointer: &str| quota.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
        let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let scopes = list("/spec/scopes");
        let named = scopes.iter().filter_map(Value::as_str);
        let mut rules: Vec<_> = named
            .map(|scope| ScopeRule { scope: scope.to_owned(), operator: "Exists".to_owned(), values: Vec::new() })
            .collect();
        rules.extend(list("/spec/scopeSelector/matchExpressions").iter().map(|rule| {
            ScopeRule {
                scope: text(rule, "scopeName"),
                operator: text(rule, "operator"),
                values: rule
                    .get("values")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .filter_map(|value| Some(value.as_str()?.to_owned()))
                    .collect(),
            }
        }));
        Self(rules)
    }

    pub fn contain(&self, pod: &Value) -> bool {
        self.0.iter().all(|rule| rule.contains(pod))
    }
}

impl ScopeRule {
    fn contains(&self, pod: &Value) -> bool {
        let Some(spec) = pod.get("spec").filter(|spec| spec.get("containers").is_some()) else { return false };
        let terminating = spec.get("activeDeadlineSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds >= 0);
        match self.scope.as_str() {
            "Terminating" => terminating,
            "NotTerminating" => !terminating,
            "BestEffort" => class_of_service(spec) == "BestEffort",
            "NotBestEffort" => class_of_service(spec) != "BestEffort",
            "CrossNamespacePodAffinity" => crosses_namespaces(spec),
            "PriorityClass" => {
                let class = spec.get("priorityClassName").and_then(Value::as_str).unwrap_or_default();
                let listed = self.values.iter().any(|value| value == class);
                match self.operator.as_str() {
                    "In" => listed,
                    "NotIn" => !listed,
                    "DoesNotExist" => class.is_empty(),
                    _ => !class.is_empty(),
                }
            }
            _ => false,
        }
    }
}

/// Whether one of its terms of affinity looks at the Pods of other namespaces.
fn crosses_namespaces(spec: &Value) -> bool {
    ["podAffinity", "podAntiAffinity"].iter().filter_map(|kind| spec.pointer(&format!("/affinity/{kind}"))).any(
        |affinity| {
            let list = |field: &str| affinity.get(field).and_then(Value::as_array).into_iter().flatten();
            let preferred =
                list("preferredDuringSchedulingIgnoredDuringExecution").filter_map(|term| term.get("podAffinityTerm"));
            list("requiredDuringSchedulingIgnoredDuringExecution").chain(preferred).any(|term| {
                let named = term.get("namespaces").and_then(Value::as_array).is_some_and(|names| !names.is_empty());
                named || term.get("namespaceSelector").is_some()
            })
        },
    )
}
