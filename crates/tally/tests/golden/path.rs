//! Paths into a response: `a.b.c`, `a[0].b`, `items.#`, `conditions[type=Complete].status`.

use serde_json::Value;

/// The value at a path; `null` if there is none, as if the field were absent.
pub fn get(value: &Value, path: &str) -> Value {
    let mut here = value.clone();
    for step in steps(path) {
        here = match step {
            Step::Key(key) => here.get(key).cloned().unwrap_or_default(),
            Step::Count => match &here {
                Value::Array(items) => items.len().into(),
                Value::Object(fields) => fields.len().into(),
                _ => Value::Null,
            },
            Step::Place(place) => here.get(place).cloned().unwrap_or_default(),
            Step::Where(key, wanted) => {
                let items = here.as_array().map(Vec::as_slice).unwrap_or_default();
                items.iter().find(|item| is(&item[key], wanted)).cloned().unwrap_or_default()
            }
        };
    }
    here
}

/// Removes the value at a path, in every element of the lists on its way; `*` stands for every field.
pub fn drop(value: &mut Value, path: &str) {
    let (first, rest) = match path.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| drop(item, path)),
        Value::Object(fields) => match rest {
            None => drop_field(fields, first),
            Some(rest) if first == "*" => fields.values_mut().for_each(|field| drop(field, rest)),
            Some(rest) => {
                if let Some(field) = fields.get_mut(first) {
                    drop(field, rest);
                }
            }
        },
        _ => {}
    }
}

fn drop_field(fields: &mut serde_json::Map<String, Value>, name: &str) {
    fields.remove(name);
}

/// Whether `[path, operator, value?]` holds for a response.
pub fn holds(answer: &Value, condition: &Value) -> Result<bool, String> {
    let path = condition[0].as_str().ok_or_else(|| format!("a condition without a path: {condition}"))?;
    let (found, wanted) = (get(answer, path), &condition[2]);
    let number = |value: &Value| value.as_f64();
    Ok(match condition[1].as_str() {
        Some("==") => found == *wanted,
        Some("!=") => found != *wanted,
        Some(">=") => number(&found).is_some_and(|found| Some(found) >= number(wanted)),
        Some("<=") => number(&found).unwrap_or_default() <= number(wanted).unwrap_or_default(),
        Some("present") => !found.is_null(),
        Some("absent") => found.is_null(),
        Some("matches") => {
            let pattern = wanted.as_str().ok_or_else(|| format!("no pattern: {condition}"))?;
            let pattern = regex_lite::Regex::new(pattern).map_err(|error| format!("{condition}: {error}"))?;
            found.as_str().is_some_and(|found| pattern.is_match(found))
        }
        _ => return Err(format!("no such operator: {condition}")),
    })
}

enum Step<'a> {
    Key(&'a str),
    Count,
    Place(usize),
    Where(&'a str, &'a str),
}

fn steps(mut path: &str) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    while !path.is_empty() {
        if let Some(rest) = path.strip_prefix('[') {
            let (selector, after) = rest.split_once(']').unwrap_or((rest, ""));
            steps.push(match (selector.split_once('='), selector.parse()) {
                (Some((key, wanted)), _) => Step::Where(key, wanted),
                (None, Ok(place)) => Step::Place(place),
                (None, Err(_)) => panic!("a path with the selector [{selector}]"),
            });
            path = after;
        } else {
            let end = path.find(['.', '[']).unwrap_or(path.len());
            let (key, after) = path.split_at(end);
            match key {
                "" => {}
                "#" => steps.push(Step::Count),
                key => steps.push(Step::Key(key)),
            }
            path = after;
        }
        path = path.strip_prefix('.').unwrap_or(path);
    }
    steps
}

/// A selector names a string as it is, anything else as JSON with quotes of either kind.
fn is(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text == wanted,
        Value::Null => false,
        other => serde_json::from_str::<Value>(&wanted.replace('\'', "\"")).is_ok_and(|wanted| wanted == *other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_through_fields_places_counts_and_selectors() {
        let value = json!({"a": {"b": [{"type": "X", "v": 1}, {"type": "Y.z", "v": 2}]}, "m": [{"metadata": {"name": "batch"}, "v": 3}]});
        for (path, found) in [
            ("a.b[0].v", json!(1)),
            ("a.b[type=Y.z].v", json!(2)),
            ("a.b[type=Z].v", json!(null)),
            ("a.b[2].v", json!(null)),
            ("a.b.#", json!(2)),
            ("a.c.d", json!(null)),
            ("m[metadata={'name': 'batch'}].v", json!(3)),
        ] {
            assert_eq!(get(&value, path), found, "{path}");
        }
        assert_eq!(get(&json!([{"type": "ADDED"}]), "[0].type"), json!("ADDED"));
        assert_eq!(get(&json!({"api/v1": {"url": 1}}), "api/v1.url"), json!(1));
    }

    #[test]
    fn dropping_goes_through_lists_and_stars() {
        let mut value = json!({"items": [{"a": 1, "b": 2}, {"a": 3}], "m": {"x": {"a": 1}, "y": {"a": 2, "c": 3}}});
        drop(&mut value, "items.a");
        drop(&mut value, "m.*.a");
        drop(&mut value, "nowhere.at.all");
        assert_eq!(value, json!({"items": [{"b": 2}, {}], "m": {"x": {}, "y": {"c": 3}}}));
    }

    #[test]
    fn conditions_hold_or_do_not() {
        let value = json!({"n": 3, "s": "v1.36", "l": []});
        for (condition, expected) in [
            (json!(["n", "==", 3]), true),
            (json!(["n", "!=", 3]), false),
            (json!(["n", ">=", 4]), false),
            (json!(["n", "<=", 3]), true),
            (json!(["none", ">=", 0]), false),
            (json!(["none", "<=", 0]), true),
            (json!(["l", "present"]), true),
            (json!(["none", "absent"]), true),
            (json!(["s", "matches", "^v[0-9]"]), true),
            (json!(["s", "matches", "^[0-9]"]), false),
        ] {
            assert_eq!(holds(&value, &condition), Ok(expected), "{condition}");
        }
        assert!(holds(&value, &json!(["n", "~", 1])).is_err());
    }
}
