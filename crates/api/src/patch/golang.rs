//! Values as Go prints them, for the few messages that contain one.

use tally_value::Value;

/// `map[a:1 b:[x y]]`.
pub fn print(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

/// The Go type of a value that was decoded from JSON.
pub fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("<nil>"),
        Value::Bool(truth) => text.push_str(if *truth { "true" } else { "false" }),
        Value::Number(number) => text.push_str(&number.to_string()),
        Value::String(string) => text.push_str(string),
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { " " });
                write(item, text);
            }
            text.push(']');
        }
        Value::Object(map) => {
            text.push_str("map[");
            for (index, (key, item)) in map.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { " " });
                text.push_str(key);
                text.push(':');
                write(item, text);
            }
            text.push(']');
        }
    }
}
