//! Sets of fields, in the form in which `metadata.managedFields` has them (FieldsV1).
//!
//! A set is a tree of JSON objects whose keys are parts of paths: `f:NAME` a field or a key of a map, `k:{...}` an element
//! of a list by its key fields, `v:VALUE` an element of a set by its value. A part with an empty object below it is in the
//! set. A part with others below it is in the set if `.` is among them.
//!
//! The operations work on this form, so nothing is converted when an object is read or written.

use tally_value::{Map, Value};

pub type FieldSet = Map;

const ITSELF: &str = ".";

/// Whether the part with these below it is in the set itself.
pub fn is_member(below: &FieldSet) -> bool {
    below.is_empty() || below.contains_key(ITSELF)
}

/// What stands below a part of a path. None: the part is not in the set, nor is anything below it.
pub fn below<'a>(set: &'a FieldSet, part: &str) -> Option<&'a FieldSet> {
    set.get(part).and_then(Value::as_object)
}

pub fn has(set: &FieldSet, part: &str) -> bool {
    below(set, part).is_some_and(is_member)
}

/// Adds a part, with what is in the set below it.
pub fn put(set: &mut FieldSet, part: impl Into<String>, member: bool, mut below: FieldSet) {
    below.remove(ITSELF);
    if member && !below.is_empty() {
        below.insert(ITSELF, Value::Object(Map::new()));
    }
    if member || !below.is_empty() {
        set.insert(part.into(), Value::Object(below));
    }
}

/// The parts of a set, without the mark of the set itself.
pub fn parts(set: &FieldSet) -> impl Iterator<Item = (&str, &FieldSet)> {
    let parts = set.iter().filter(|(part, _)| *part != ITSELF);
    parts.filter_map(|(part, below)| Some((part.as_str(), below.as_object()?)))
}

/// A set from outside, in its one form: without empty branches. None: it has something that is no set.
pub fn read(fields: &Value, deepest: usize) -> Option<FieldSet> {
    let mut set = FieldSet::new();
    for (part, below) in fields.as_object()? {
        if part == ITSELF {
            continue;
        }
        let object = below.as_object().filter(|_| is_known(part) && deepest > 0)?;
        put(&mut set, part.as_str(), is_member(object), read(below, deepest - 1)?);
    }
    Some(set)
}

/// Whether a set is already in its one form.
pub fn is_read(fields: &Value, deepest: usize) -> bool {
    fields.as_object().is_some_and(|set| {
        let mut parts = set.iter();
        parts.all(|(part, below)| is_known(part) && deepest > 0 && is_read_below(below, deepest - 1))
    })
}

fn is_read_below(below: &Value, deepest: usize) -> bool {
    let Some(set) = below.as_object() else { return false };
    set.iter().all(|(part, below)| match part.as_str() {
        ITSELF => set.len() > 1 && below.as_object().is_some_and(Map::is_empty),
        part => is_known(part) && deepest > 0 && is_read_below(below, deepest - 1),
    })
}

fn is_known(part: &str) -> bool {
    ["f:", "k:", "v:", "i:"].iter().any(|prefix| part.starts_with(prefix))
}

/// Whether a set has all of another.
pub fn contains(set: &FieldSet, other: &FieldSet) -> bool {
    parts(other).all(|(part, theirs)| {
        below(set, part).is_some_and(|ours| (is_member(ours) || !is_member(theirs)) && contains(ours, theirs))
    })
}

/// Whether two sets have a field in common.
fn overlap(one: &FieldSet, other: &FieldSet) -> bool {
    parts(other).any(|(part, theirs)| {
        below(one, part).is_some_and(|ours| is_member(ours) && is_member(theirs) || overlap(ours, theirs))
    })
}

/// Removes all of another set. Most writes remove nothing: then nothing is made anew.
pub fn remove(set: &mut FieldSet, other: &FieldSet) {
    if overlap(set, other) {
        *set = difference(set, other);
    }
}

pub fn union(one: &FieldSet, other: &FieldSet) -> FieldSet {
    let mut all = one.clone();
    add(&mut all, other);
    all
}

pub fn add(set: &mut FieldSet, other: &FieldSet) {
    for (part, theirs) in parts(other) {
        match set.remove(part) {
            Some(Value::Object(ours)) => {
                let member = is_member(&ours) || is_member(theirs);
                let mut all = ours;
                all.remove(ITSELF);
                add(&mut all, theirs);
                put(set, part, member, all);
            }
            _ => put(set, part, is_member(theirs), theirs.clone()),
        }
    }
}

pub fn difference(one: &FieldSet, other: &FieldSet) -> FieldSet {
    let mut left = FieldSet::new();
    for (part, ours) in parts(one) {
        match below(other, part) {
            Some(theirs) => {
                put(&mut left, part, is_member(ours) && !is_member(theirs), difference(ours, theirs));
            }
            None => put(&mut left, part, is_member(ours), ours.clone()),
        }
    }
    left
}

pub fn intersection(one: &FieldSet, other: &FieldSet) -> FieldSet {
    let mut shared = FieldSet::new();
    for (part, ours) in parts(one) {
        if let Some(theirs) = below(other, part) {
            put(&mut shared, part, is_member(ours) && is_member(theirs), intersection(ours, theirs));
        }
    }
    shared
}

/// The paths in the set as messages show them: `.spec.containers[name="c"].image`.
pub fn paths(set: &FieldSet) -> Vec<String> {
    fn walk(set: &FieldSet, before: &str, paths: &mut Vec<String>) {
        for (part, inner) in parts(set) {
            let path = format!("{before}{}", shown(part));
            if is_member(inner) {
                paths.push(path.clone());
            }
            walk(inner, &path, paths);
        }
    }
    let mut found = Vec::new();
    walk(set, "", &mut found);
    found
}

fn shown(part: &str) -> String {
    let (kind, rest) = part.split_once(':').unwrap_or(("f", part));
    match (kind, serde_json::from_str::<Value>(rest)) {
        ("k", Ok(Value::Object(keys))) => {
            let keys: Vec<_> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        ("v", _) => format!("[={rest}]"),
        ("i", _) => format!("[{rest}]"),
        _ => format!(".{rest}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tally_value::json;

    use super::*;

    fn set(value: Value) -> FieldSet {
        read(&value, 10).unwrap()
    }

    #[test]
    fn sets_are_combined_part_by_part() {
        let one = set(json!({"f:a": {".": {}, "f:x": {}}, "f:b": {"f:y": {}}}));
        let other = set(json!({"f:a": {"f:x": {}, "f:z": {}}, "f:b": {}, "f:c": {}}));
        let all = json!({"f:a": {".": {}, "f:x": {}, "f:z": {}}, "f:b": {".": {}, "f:y": {}}, "f:c": {}});
        assert_eq!(Value::Object(union(&one, &other)), all);
        assert_eq!(Value::Object(difference(&one, &other)), json!({"f:a": {}, "f:b": {"f:y": {}}}));
        assert_eq!(Value::Object(intersection(&one, &other)), json!({"f:a": {"f:x": {}}}));
        assert!(difference(&one, &one).is_empty());
        assert_eq!(intersection(&one, &one), one);
    }

    #[test]
    fn what_is_contained_and_removed() {
        let one = set(json!({"f:a": {".": {}, "f:x": {}}, "f:b": {"f:y": {}}}));
        for (other, is_in) in [
            (json!({}), true),
            (json!({"f:a": {}}), true),
            (json!({"f:a": {"f:x": {}}}), true),
            (json!({"f:b": {}}), false),
            (json!({"f:b": {"f:y": {}}}), true),
            (json!({"f:c": {}}), false),
        ] {
            let other = set(other);
            assert_eq!(contains(&one, &other), is_in, "{other:?}");
            assert_eq!(is_in, union(&one, &other) == one, "{other:?}");
            let mut left = one.clone();
            remove(&mut left, &other);
            assert_eq!(left, difference(&one, &other), "{other:?}");
        }
    }

    #[test]
    fn the_one_form_is_known() {
        for (fields, is) in [
            (json!({}), true),
            (json!({"f:a": {}}), true),
            (json!({"f:a": {".": {}, "f:x": {}}}), true),
            (json!({"f:a": {".": {}}}), false),
            (json!({".": {}, "f:a": {}}), false),
            (json!({"f:a": {".": {"f:x": {}}, "f:y": {}}}), false),
            (json!({"a": {}}), false),
            (json!({"f:a": null}), false),
            (json!({"f:a": {"f:b": {"f:c": {}}}}), false),
        ] {
            assert_eq!(is_read(&fields, 2), is, "{fields}");
            assert!(!is || read(&fields, 2).map(Value::Object) == Some(fields));
        }
    }

    #[test]
    fn sets_from_outside_are_read_in_one_form() {
        assert_eq!(Value::Object(set(json!({"f:a": {".": {}}, ".": {}}))), json!({"f:a": {}}));
        for bad in [json!({"a": {}}), json!({"f:a": 1}), json!([]), json!({"f:a": {"f:b": null}})] {
            assert_eq!(read(&bad, 10), None, "{bad}");
        }
        assert_eq!(read(&json!({"f:a": {"f:b": {}}}), 1), None, "too deep");
    }

    #[test]
    fn paths_as_messages_show_them() {
        let set = set(json!({"f:spec": {
            "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}}},
            "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {}},
            "f:finalizers": {"v:\"x.io/a\"": {}},
        }}));
        let expected = [
            ".spec.containers[name=\"c\"]",
            ".spec.containers[name=\"c\"].image",
            ".spec.finalizers[=\"x.io/a\"]",
            ".spec.ports[containerPort=80,protocol=\"TCP\"]",
        ];
        assert_eq!(paths(&set), expected);
    }
}
