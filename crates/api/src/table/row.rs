//! Access to an object for its row, and the cells that many kinds share.

use std::collections::BTreeSet;

use tally_core::time::Timestamp;
use tally_value::Value;

use super::duration;

/// The text for an absent value.
pub(super) const NONE: &str = "<none>";

/// An object being printed. Positions in it are JSON pointers.
pub(super) struct Row<'a> {
    pub object: &'a Value,
    pub now: Timestamp,
}

impl<'a> Row<'a> {
    pub fn text(&self, pointer: &str) -> &'a str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn text_or(&self, pointer: &str, otherwise: &'static str) -> &'a str {
        or(self.text(pointer), otherwise)
    }

    pub fn int(&self, pointer: &str) -> i64 {
        self.object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
    }

    pub fn list(&self, pointer: &str) -> &'a [Value] {
        self.object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The number of entries of a map or a list.
    pub fn count(&self, pointer: &str) -> usize {
        match self.object.pointer(pointer) {
            Some(Value::Object(map)) => map.len(),
            Some(Value::Array(items)) => items.len(),
            _ => 0,
        }
    }

    pub fn is_set(&self, pointer: &str) -> bool {
        self.object.pointer(pointer).is_some_and(|value| !value.is_null())
    }

    pub fn instant(&self, pointer: &str) -> Option<Timestamp> {
        Timestamp::parse(self.text(pointer)).ok()
    }

    /// The time since then; `<unknown>` if it is absent.
    pub fn since(&self, pointer: &str) -> String {
        self.instant(pointer).map_or_else(|| "<unknown>".to_owned(), |start| duration::between(start, self.now))
    }

    pub fn name(&self) -> Value {
        self.text("/metadata/name").into()
    }

    pub fn age(&self) -> Value {
        self.since("/metadata/creationTimestamp").into()
    }

    pub fn is_being_deleted(&self) -> bool {
        self.is_set("/metadata/deletionTimestamp")
    }

    /// Whether the first condition of this type in `/status/conditions` has the status `True`.
    pub fn condition_is_true(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|condition| condition["status"] == "True")
    }

    pub fn condition(&self, kind: &str) -> Option<&'a Value> {
        self.list("/status/conditions").iter().find(|condition| condition["type"] == kind)
    }

    /// A field of each element, joined: the names or the images of containers.
    pub fn joined(&self, list: &str, field: &str) -> Value {
        let texts: Vec<&str> = self.list(list).iter().map(|item| item[field].as_str().unwrap_or_default()).collect();
        texts.join(",").into()
    }

    /// A map of labels: `a=b,c=d`.
    pub fn labels(&self, pointer: &str) -> Value {
        let map = self.object.pointer(pointer).and_then(Value::as_object);
        let pairs =
            map.into_iter().flatten().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
        let pairs: Vec<String> = pairs.collect::<BTreeSet<_>>().into_iter().collect();
        or(&pairs.join(","), NONE).into()
    }

    /// A LabelSelector.
    pub fn selector(&self, pointer: &str) -> Value {
        let text = self.object.pointer(pointer).map_or_else(|| Some(String::new()), selector_text);
        text.as_deref().map_or("<error>", |text| or(text, NONE)).into()
    }
}

pub(super) fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

/// A LabelSelector as a client would write it: `b=c,!q,x in (y,z)`, in order of the keys. None for an unknown operator.
fn selector_text(selector: &Value) -> Option<String> {
    let mut parts: Vec<(&str, String)> = Vec::new();
    for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        parts.push((key, format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let values = values.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(",");
        let text = match expression["operator"].as_str()? {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        };
        parts.push((key, text));
    }
    parts.sort_by_key(|(key, _)| *key);
    Some(parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(","))
}
