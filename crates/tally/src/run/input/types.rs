//! Fields that the decoder would refuse: unknown ones, and values of a wrong type. The decoder of the API stops at the
//! first of them and names no position in a list; a person wants all of them, with their lines. Pure.

use serde_json::Value;
use tally_api::kinds::Resource;
use tally_api::schema::{Shape, Struct, Type, schema};
use tally_core::quantity::Quantity;

/// Maximum number of complaints about one object.
const MOST: usize = 20;

/// Fields, and what is wrong with each.
pub fn misfits(resource: &Resource, object: &Value) -> Vec<(String, String)> {
    let mut wrong = Vec::new();
    if let Some(structure) = schema().kind(resource.group, resource.version, resource.kind) {
        fields(structure, object, "", &mut wrong);
    }
    wrong.truncate(MOST);
    wrong
}

fn fields(structure: &Struct, object: &Value, path: &str, wrong: &mut Vec<(String, String)>) {
    for (key, value) in object.as_object().into_iter().flatten() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match (structure.refuses(key), structure.field(key)) {
            (Some(why), _) if !value.is_null() => wrong.push((path, why.to_owned())),
            (_, Some(field)) => check(&field.ty, value, &path, wrong),
            (_, None) => wrong.push((path, "unknown field".to_owned())),
        }
    }
}

fn check(ty: &Type, value: &Value, path: &str, wrong: &mut Vec<(String, String)>) {
    let expected = match (&ty.shape, value) {
        (_, Value::Null) | (Shape::Raw, _) => return,
        (Shape::Text, Value::String(_)) | (Shape::Bool, Value::Bool(_)) | (Shape::Float, Value::Number(_)) => return,
        // The API server has its own messages for what is in these texts.
        (Shape::Time | Shape::MicroTime | Shape::Bytes | Shape::IntOrString, Value::String(_)) => return,
        (Shape::Int32 | Shape::IntOrString, Value::Number(number))
            if number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()) =>
        {
            return;
        }
        (Shape::Int64, Value::Number(number)) if number.is_i64() => return,
        (Shape::Struct(id), Value::Object(_)) => return fields(schema().get(*id), value, path, wrong),
        (Shape::List(inner), Value::Array(items)) => {
            let each = items.iter().enumerate();
            return each.for_each(|(at, item)| check(inner, item, &format!("{path}[{at}]"), wrong));
        }
        (Shape::Map(inner), Value::Object(map)) => {
            return map.iter().for_each(|(key, item)| check(inner, item, &format!("{path}[{key}]"), wrong));
        }
        (Shape::Quantity, Value::String(_) | Value::Number(_)) => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let problem = Quantity::parse(&text).is_err().then(|| (path.to_owned(), no_quantity(&text)));
            return wrong.extend(problem);
        }
        (Shape::Text | Shape::Time | Shape::MicroTime | Shape::Bytes, _) => "a string",
        (Shape::Int32 | Shape::Int64, _) => "an integer",
        (Shape::Float, _) => "a number",
        (Shape::Bool, _) => "true or false",
        (Shape::IntOrString, _) => "an integer or a string",
        (Shape::Quantity, _) => "a quantity such as 500m or 512Mi",
        (Shape::List(_), _) => "a list",
        (Shape::Map(_) | Shape::Struct(_), _) => "an object",
    };
    let given = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let remedy = remedy(ty, value, path);
    wrong.push((path.to_owned(), format!("expected {expected}, got {given}{remedy}")));
}

/// What to write instead, if that can be known.
fn remedy(ty: &Type, value: &Value, path: &str) -> String {
    match (&ty.shape, value) {
        (Shape::Text, Value::Number(_) | Value::Bool(_)) => format!("; put it in quotes: \"{value}\""),
        (Shape::List(inner), Value::String(text)) if inner.shape == Shape::Text => {
            let words: Vec<&str> = text.split_whitespace().collect();
            let shell = text.contains(['|', '&', ';', '<', '>', '(', ')', '$', '`', '\\', '"', '\'', '*', '?', '\n']);
            let words = if path.ends_with(".command") && shell { vec!["sh", "-c", text] } else { words };
            format!("; write it as a list: {}", Value::from(words))
        }
        (Shape::Int32 | Shape::Int64, Value::String(text)) if text.parse::<i64>().is_ok() => {
            format!("; remove the quotes: {text}")
        }
        (Shape::Bool, Value::String(text)) if matches!(text.as_str(), "true" | "false") => {
            format!("; remove the quotes: {text}")
        }
        _ => String::new(),
    }
}

/// Why a text is no quantity, and what to write instead.
pub fn no_quantity(text: &str) -> String {
    let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let number = &text[..text.len() - unit.len()];
    // `1TB`, `512mb` and `2GiB` are common elsewhere.
    let advice = match unit.to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        _ if number.is_empty() => None,
        "k" => Some(("k", "Ki")),
        "m" => Some(("M", "Mi")),
        "g" => Some(("G", "Gi")),
        "t" => Some(("T", "Ti")),
        _ => None,
    };
    match advice {
        Some((decimal, binary)) => {
            let base = decimal.to_uppercase();
            format!("{text:?} is not a quantity; write {number}{binary} ({base}iB) or {number}{decimal} ({base}B)")
        }
        None => format!(
            "{text:?} is not a quantity; write a number with a unit, such as 2 or 500m for cpu, and 512Mi or 2Gi for memory"
        ),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;
    use tally_api::catalog;

    use super::*;

    #[test]
    fn every_misfit_is_told_with_what_to_write() {
        let container = json!({
            "command": "echo hi", "args": ["a", 5], "env": [{"name": "A"}, {"name": "B", "value": 5}],
            "resources": {"requests": {"cpu": "lots", "memory": "1TB"}, "limits": {"cpu": 2}}, "tty": "true",
        });
        let spec = json!({"completions": "3", "parallelism": 5_000_000_000_u64, "template": {"spec": {"containers": [
            container, {"command": "a | b", "volumeMounts": {}},
        ], "schedulingGroup": {"podGroupName": "g"}}}, "nope": 1, "scheduling": {}});
        let jobs = catalog::find("batch", "v1", "jobs").unwrap();
        let told: Vec<String> =
            misfits(jobs, &json!({"spec": spec})).into_iter().map(|(f, w)| format!("{f}: {w}")).collect();
        let first = "spec.template.spec.containers[0]";
        let mut expected = vec![
            "spec.completions: expected an integer, got string; remove the quotes: 3".to_owned(),
            "spec.nope: unknown field".to_owned(),
            // GANG-5.
            "spec.scheduling: gang scheduling is not supported; remove the field to have the Pods scheduled one by one"
                .to_owned(),
            "spec.template.spec.schedulingGroup: gang scheduling is not supported; remove the field to have the Pods \
             scheduled one by one"
                .to_owned(),
            "spec.parallelism: expected an integer, got number".to_owned(),
            format!("{first}.args[1]: expected a string, got number; put it in quotes: \"5\""),
            format!("{first}.command: expected a list, got string; write it as a list: [\"echo\",\"hi\"]"),
            format!("{first}.env[1].value: expected a string, got number; put it in quotes: \"5\""),
            format!("{first}.resources.requests[cpu]: {}", no_quantity("lots")),
            format!("{first}.resources.requests[memory]: \"1TB\" is not a quantity; write 1Ti (TiB) or 1T (TB)"),
            format!("{first}.tty: expected true or false, got string; remove the quotes: true"),
            "spec.template.spec.containers[1].command: expected a list, got string; write it as a list: \
             [\"sh\",\"-c\",\"a | b\"]"
                .to_owned(),
            "spec.template.spec.containers[1].volumeMounts: expected a list, got object".to_owned(),
        ];
        let mut told = told;
        told.sort();
        expected.sort();
        assert_eq!(told, expected);
    }

    #[test]
    fn units_of_other_programs_are_translated() {
        for (text, told) in [
            ("512mb", "write 512Mi (MiB) or 512M (MB)"),
            ("2GiB", "write 2Gi (GiB) or 2G (GB)"),
            ("1.5KB", "write 1.5Ki (KiB) or 1.5k (KB)"),
            ("much", "such as 2 or 500m for cpu"),
            ("5 apples", "such as 2 or 500m for cpu"),
            ("", "such as 2 or 500m for cpu"),
        ] {
            assert!(no_quantity(text).contains(told), "{text}: {}", no_quantity(text));
        }
    }
}
