//! YAML for people: block style, keys in order, text quoted only where it must be.

use serde_json::Value;

/// The document.
pub fn write(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => write_map(map, 0, false, &mut text),
        Value::Array(items) if !items.is_empty() => write_list(items, 0, &mut text),
        other => write_scalar(other, &mut text),
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// `inline`: the first key continues a line that is begun, as after a dash.
fn write_map(map: &serde_json::Map<String, Value>, indent: usize, mut inline: bool, text: &mut String) {
    for (key, value) in map {
        if !std::mem::take(&mut inline) {
            text.extend(std::iter::repeat_n(' ', indent));
        }
        write_text(key, text);
        text.push(':');
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                text.push('\n');
                write_map(inner, indent + 2, false, text);
            }
            Value::Array(items) if !items.is_empty() => {
                text.push('\n');
                write_list(items, indent, text);
            }
            other => {
                text.push(' ');
                write_scalar(other, text);
                text.push('\n');
            }
        }
    }
}

fn write_list(items: &[Value], indent: usize, text: &mut String) {
    for item in items {
        text.extend(std::iter::repeat_n(' ', indent));
        text.push('-');
        text.push(' ');
        match item {
            Value::Object(inner) if !inner.is_empty() => write_map(inner, indent + 2, true, text),
            Value::Array(inner) if !inner.is_empty() => {
                // A list in a list begins on a line of its own.
                text.pop();
                text.push('\n');
                write_list(inner, indent + 2, text);
            }
            other => {
                write_scalar(other, text);
                text.push('\n');
            }
        }
    }
}

fn write_scalar(value: &Value, text: &mut String) {
    match value {
        Value::String(string) => write_text(string, text),
        // `{}` and `[]`, numbers, booleans and null are written as in JSON.
        other => text.push_str(&other.to_string()),
    }
}

fn write_text(string: &str, text: &mut String) {
    if is_plain(string) {
        text.push_str(string);
    } else {
        // A JSON string is a YAML string.
        text.push_str(&Value::from(string).to_string());
    }
}

/// Whether text without quotes is read back as the same text. Errs on the side of quotes.
fn is_plain(string: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b" _-./@()%+=~<>".contains(&byte) || byte > 127;
    let Some(first) = string.bytes().next() else { return false };
    if !(first.is_ascii_alphabetic() || matches!(first, b'_' | b'/')) || string.ends_with(' ') {
        return false;
    }
    // Not every reader knows which of these are words and which are values.
    let is_word = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"]
        .iter()
        .any(|word| string.eq_ignore_ascii_case(word));
    !is_word && string.bytes().all(inner) && !string.chars().any(char::is_control)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_look_as_people_write_them() {
        let document = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"labels": {}, "name": "a", "id": "1"},
            "spec": {"containers": [{"args": ["-c", "a: b", ""], "name": "c"}], "matrix": [[1, 2], []], "on": "yes", "x": null},
        });
        let expected = r#"apiVersion: batch/v1
kind: Job
metadata:
  id: "1"
  labels: {}
  name: a
spec:
  containers:
  - args:
    - "-c"
    - "a: b"
    - ""
    name: c
  matrix:
  -
    - 1
    - 2
  - []
  "on": "yes"
  x: null
"#;
        assert_eq!(write(&document), expected);
        assert_eq!(write(&json!({})), "{}\n");
    }

    #[test]
    fn text_that_could_be_misread_is_quoted() {
        for plain in ["a", "busybox/img", "a b", "größe", "/bin/sh", "x_y"] {
            assert!(is_plain(plain), "{plain}");
        }
        for quoted in [
            "", " a", "a ", "1", "-", "- a", "true", "Null", "a: b", "a #b", "*a", "&a", "!a", "a\nb", "{a}", "a,b",
            "0x1", ".5",
        ] {
            assert!(!is_plain(quoted), "{quoted}");
        }
    }
}
