//! Label selectors, to the extent that claiming Pods needs them.

use std::collections::BTreeMap;
use std::fmt;

use compact_str::CompactString;
use serde::Deserialize;
use tally_value::{Map, Text};

use crate::view::{null_default, text_map};

/// Labels in sorted order. Those of an object with a tree are the map in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Map);

impl Labels {
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str()
    }
}

/// The values are texts.
impl From<Map> for Labels {
    fn from(labels: Map) -> Self {
        Self(labels)
    }
}

impl FromIterator<(CompactString, CompactString)> for Labels {
    fn from_iter<I: IntoIterator<Item = (CompactString, CompactString)>>(labels: I) -> Self {
        Self(labels.into_iter().map(|(name, value)| (Text::from(name.as_str()), value)).collect())
    }
}

/// `LabelSelector`. A selector without any term matches nothing here: a Job whose selector is empty claims no Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    #[serde(default, deserialize_with = "text_map")]
    pub match_labels: BTreeMap<CompactString, CompactString>,
    #[serde(default, deserialize_with = "null_default")]
    pub match_expressions: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Requirement {
    #[serde(default, deserialize_with = "null_default")]
    pub key: CompactString,
    #[serde(default, deserialize_with = "null_default")]
    pub operator: CompactString,
    #[serde(default, deserialize_with = "null_default")]
    pub values: Vec<CompactString>,
}

impl Selector {
    pub fn label(key: &str, value: &str) -> Self {
        Self { match_labels: [(key.into(), value.into())].into(), match_expressions: Vec::new() }
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        if self.match_labels.is_empty() && self.match_expressions.is_empty() {
            return false;
        }
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.matches(labels))
    }
}

/// In the syntax of a list request. An operator that the API does not know is omitted: the list then contains more
/// objects.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
        let expressions = self.match_expressions.iter().filter_map(|Requirement { key, operator, values }| {
            let values = values.join(",");
            match operator.as_str() {
                "In" => Some(format!("{key} in ({values})")),
                "NotIn" => Some(format!("{key} notin ({values})")),
                "Exists" => Some(key.to_string()),
                "DoesNotExist" => Some(format!("!{key}")),
                _ => None,
            }
        });
        f.write_str(&labels.chain(expressions).collect::<Vec<_>>().join(","))
    }
}

impl Requirement {
    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let listed = || value.is_some_and(|value| self.values.iter().any(|candidate| candidate == value));
        match self.operator.as_str() {
            "In" => listed(),
            "NotIn" => !listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            // The API refuses other operators; an operator of a newer API must not claim Pods by accident.
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_match_as_the_api_does() {
        let labels: Labels = [("app".into(), "x".into()), ("tier".into(), "back".into())].into_iter().collect();
        for (selector, expected) in [
            (r#"{}"#, false),
            (r#"{"matchLabels":{"app":"x"}}"#, true),
            (r#"{"matchLabels":{"app":"y"}}"#, false),
            (r#"{"matchExpressions":[{"key":"app","operator":"In","values":["x","y"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"app","operator":"NotIn","values":["x"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"none","operator":"NotIn","values":["x"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"tier","operator":"Exists"}]}"#, true),
            (r#"{"matchExpressions":[{"key":"none","operator":"DoesNotExist","values":null}]}"#, true),
            (r#"{"matchExpressions":[{"key":"app","operator":"Near","values":["x"]}]}"#, false),
        ] {
            let parsed: Selector = serde_json::from_str(selector).unwrap();
            assert_eq!(parsed.matches(&labels), expected, "{selector}");
        }
    }

    #[test]
    fn a_selector_is_told_as_a_list_takes_it() {
        let selector = r#"{"matchLabels":{"app":"x"},"matchExpressions":[
            {"key":"a","operator":"In","values":["b","c"]}, {"key":"d","operator":"NotIn","values":["e"]},
            {"key":"f","operator":"Exists"}, {"key":"g","operator":"DoesNotExist"}, {"key":"h","operator":"Near"}]}"#;
        let parsed: Selector = serde_json::from_str(selector).unwrap();
        assert_eq!(parsed.to_string(), "app=x,a in (b,c),d notin (e),f,!g");
    }
}
