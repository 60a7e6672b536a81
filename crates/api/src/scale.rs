//! The subresource `scale`: how many Pods an object has, in one form for all kinds (`autoscaling/v1`).
//!
//! A Scale is not stored. It is a view of three fields of the object, of which `spec.replicas` can be written.

use tally_value::{Map, Value, json};

use crate::apply::Config;
use crate::catalog;
use crate::field::{At, FieldError};
use crate::kinds::Resource;

/// The name of the subresource.
pub const SCALE: &str = "scale";
/// Objects without `spec.replicas` have one Pod.
const DEFAULT: i64 = 1;

/// The resource with which a Scale is decoded, patched and shown.
pub fn resource() -> &'static Resource {
    &catalog::SCALE
}

/// The Scale of an object.
pub fn of(object: &Value) -> Value {
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.pointer(&format!("/metadata/{field}")) {
            metadata.insert(field, value.clone());
        }
    }
    let int = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    let mut spec = Map::new();
    match int("/spec/replicas").unwrap_or(DEFAULT) {
        0 => {}
        replicas => drop(spec.insert("replicas", replicas.into())),
    }
    let mut status = json!({"replicas": int("/status/replicas").unwrap_or(0)});
    let selector = selector(object.pointer("/spec/selector"));
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    json!({"metadata": metadata, "spec": spec, "status": status})
}

/// The object with the number of a Scale, and its conditions: revision and UID.
pub fn put(object: &Value, scale: &Value) -> Value {
    let mut new = object.clone();
    let replicas = scale.pointer("/spec/replicas").cloned().unwrap_or_else(|| 0.into());
    put_in(&mut new, "spec", "replicas", replicas);
    match scale.pointer("/metadata/resourceVersion") {
        Some(version) => put_in(&mut new, "metadata", "resourceVersion", version.clone()),
        None => put_in(&mut new, "metadata", "resourceVersion", "".into()),
    }
    new
}

fn put_in(object: &mut Value, part: &str, field: &str, value: Value) {
    if !object.get(part).is_some_and(Value::is_object) {
        object[part] = json!({});
    }
    object[part][field] = value;
}

/// What is applied to the object if this is applied to its Scale.
pub fn applied(resource: &Resource, config: Config) -> Config {
    let scale = config.object;
    let mut object = json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": {}});
    for field in ["name", "namespace", "uid", "resourceVersion"] {
        if let Some(value) = scale.pointer(&format!("/metadata/{field}")) {
            object["metadata"][field] = value.clone();
        }
    }
    if let Some(replicas) = scale.pointer("/spec/replicas").filter(|replicas| !replicas.is_null()) {
        object["spec"] = json!({"replicas": replicas});
    }
    Config { object, ..config }
}

/// What is wrong with the number of an object, as a Scale says it.
pub fn validate(object: &Value) -> Vec<FieldError> {
    let root = At::root(object);
    let spec = root.at("spec");
    let replicas = spec.at("replicas");
    let is_negative = replicas.int().is_some_and(|replicas| replicas < 0);
    is_negative.then(|| replicas.invalid("must be greater than or equal to 0")).into_iter().collect()
}

/// A selector as a text: that of a ReplicationController is a map of labels.
fn selector(selector: Option<&Value>) -> String {
    let Some(Value::Object(selector)) = selector else { return String::new() };
    let is_structure = selector.values().any(|value| !value.is_string());
    let empty = Map::new();
    let labels =
        if is_structure { selector.get("matchLabels").and_then(Value::as_object).unwrap_or(&empty) } else { selector };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut all: Vec<(String, String)> =
        labels.iter().map(|(key, value)| (key.to_string(), format!("{key}={}", text(value)))).collect();
    for one in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = text(&one["key"]);
        let mut values: Vec<String> = one["values"].as_array().into_iter().flatten().map(text).collect();
        values.sort();
        let values = values.join(",");
        let shown = match one["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.clone(),
        };
        all.push((key, shown));
    }
    all.sort();
    all.into_iter().map(|(_, shown)| shown).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_shows_three_fields_of_an_object() {
        let object = json!({
            "metadata": {"name": "d", "uid": "u", "labels": {"a": "b"}, "resourceVersion": "7"},
            "spec": {"replicas": 3, "selector": {
                "matchLabels": {"b": "2"},
                "matchExpressions": [
                    {"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "c", "operator": "DoesNotExist"},
                    {"key": "d", "operator": "Exists"}, {"key": "e", "operator": "NotIn", "values": ["z"]},
                ],
            }},
            "status": {"replicas": 2},
        });
        let scale = of(&object);
        let expected = json!({
            "metadata": {"name": "d", "uid": "u", "resourceVersion": "7"}, "spec": {"replicas": 3},
            "status": {"replicas": 2, "selector": "a in (x,y),b=2,!c,d,e notin (z)"},
        });
        assert_eq!(scale, expected);
        let none = of(&json!({"metadata": {}, "spec": {"replicas": 0, "selector": {"b": "2", "a": "1"}}}));
        assert_eq!((&none["spec"], &none["status"]), (&json!({}), &json!({"replicas": 0, "selector": "a=1,b=2"})));
        assert_eq!(of(&json!({}))["spec"], json!({"replicas": 1}));
    }

    #[test]
    fn only_the_number_is_written() {
        let object = json!({"metadata": {"name": "d", "resourceVersion": "7"}, "spec": {"paused": true}});
        let scale = json!({"metadata": {"name": "d", "labels": {"x": "y"}}, "spec": {"replicas": 4}});
        let expected =
            json!({"metadata": {"name": "d", "resourceVersion": ""}, "spec": {"paused": true, "replicas": 4}});
        assert_eq!(put(&object, &scale), expected);
        assert!(validate(&expected).is_empty());
        assert_eq!(validate(&json!({"spec": {"replicas": -1}})).len(), 1);
    }
}
