//! YAML for people: block style, keys in order, strings quoted only if necessary, long strings folded at spaces.

use tally_value::Value;

/// A line that has reached this width is broken at its next space.
const WIDTH: usize = 80;

/// The document.
pub fn write(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => write_map(map, 0, false, &mut text),
        Value::Array(items) if !items.is_empty() => write_list(items, 0, &mut text),
        other => write_scalar(other, 0, &mut text),
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// An item of a list that is not indented, at the beginning of a line.
pub fn write_item(item: &Value, text: &mut String) {
    write_list(std::slice::from_ref(item), 0, text);
}

/// `inline`: the first key continues the current line, as after a dash.
fn write_map(map: &tally_value::Map, indent: usize, mut inline: bool, text: &mut String) {
    for (key, value) in map {
        if !std::mem::take(&mut inline) {
            text.extend(std::iter::repeat_n(' ', indent));
        }
        write_key(key, text);
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
                write_scalar(other, indent + 2, text);
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
                // A list in a list begins on a new line.
                text.pop();
                text.push('\n');
                write_list(inner, indent + 2, text);
            }
            other => {
                write_scalar(other, indent + 2, text);
                text.push('\n');
            }
        }
    }
}

/// `indent`: the indentation of the lines after the first.
fn write_scalar(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::String(string) if string.contains('\n') && can_be_block(string) => write_block(string, indent, text),
        Value::String(string) => match Style::of(string) {
            Style::Plain => fold(string, indent, text, |text, letter| text.push(letter)),
            Style::Single => {
                text.push('\'');
                fold(string, indent, text, |text, letter| {
                    text.extend(std::iter::repeat_n(letter, if letter == '\'' { 2 } else { 1 }));
                });
                text.push('\'');
            }
            Style::Double => write_quoted(string, text),
        },
        // `{}` and `[]`, numbers, booleans and null are written as in JSON.
        other => text.push_str(&other.to_string()),
    }
}

fn write_key(key: &str, text: &mut String) {
    match Style::of(key) {
        Style::Plain => text.push_str(key),
        Style::Single => {
            text.push('\'');
            text.push_str(&key.replace('\'', "''"));
            text.push('\'');
        }
        Style::Double => write_quoted(key, text),
    }
}

/// A JSON string is a YAML string, except for characters that YAML alone treats as line breaks.
fn write_quoted(string: &str, text: &mut String) {
    for letter in Value::from(string).to_string().chars() {
        if is_printable(letter) {
            text.push(letter);
        } else {
            text.push_str(&format!("\\u{:04x}", u32::from(letter)));
        }
    }
}

/// Writes text in which single spaces may become line breaks: a parser turns these into spaces again.
fn fold(string: &str, indent: usize, text: &mut String, write: impl Fn(&mut String, char)) {
    let mut column = text.len() - text.rfind('\n').map_or(0, |at| at + 1);
    let mut letters = string.chars().peekable();
    let mut before = '\n';
    while let Some(letter) = letters.next() {
        let alone = letter == ' ' && before != ' ' && letters.peek().is_some_and(|next| *next != ' ') && before != '\n';
        if alone && column > WIDTH {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else {
            write(text, letter);
            column += 1;
        }
        before = letter;
    }
}

/// Text of several lines, verbatim, after `|`.
fn write_block(string: &str, indent: usize, text: &mut String) {
    text.push('|');
    if string.starts_with([' ', '\n']) {
        text.push('2');
    }
    if !string.ends_with('\n') {
        text.push('-');
    } else if string.ends_with("\n\n") || string == "\n" {
        text.push('+');
    }
    for line in string.strip_suffix('\n').unwrap_or(string).split('\n') {
        text.push('\n');
        if !line.is_empty() {
            text.extend(std::iter::repeat_n(' ', indent));
        }
        text.push_str(line);
    }
}

fn is_printable(letter: char) -> bool {
    letter == '\n' || !(letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{feff}'))
}

fn can_be_block(string: &str) -> bool {
    string.chars().all(is_printable) && !string.contains(" \n") && !string.ends_with(' ')
}

#[derive(Debug, PartialEq, Eq)]
enum Style {
    Plain,
    Single,
    Double,
}

impl Style {
    /// The style with the fewest quotes. Text that would be parsed as another type gets double quotes.
    fn of(string: &str) -> Self {
        if string.contains('\n') || !string.chars().all(is_printable) || is_value(string) {
            return Self::Double;
        }
        let spaced = string.starts_with(' ') || string.ends_with(' ');
        if spaced || has_indicator(string) { Self::Single } else { Self::Plain }
    }
}

/// Whether a part of the text has a meaning in YAML at its position.
fn has_indicator(string: &str) -> bool {
    let mut letters = string.chars();
    let first = letters.next().unwrap_or(' ');
    let then_space = letters.next().is_none_or(|next| next == ' ');
    "#,[]{}&*!|>'\"%@`".contains(first)
        || ("?:-".contains(first) && then_space)
        || string.starts_with("---")
        || string.starts_with("...")
        || string.contains(": ")
        || string.ends_with(':')
        || string.contains(" #")
}

/// Whether the text would be parsed as a number, a time, a boolean or null.
fn is_value(string: &str) -> bool {
    const WORDS: [&str; 8] = ["yes", "true", "on", "no", "false", "off", "null", "y"];
    let cased = |word: &str| {
        let mut capital = word.to_owned();
        capital[..1].make_ascii_uppercase();
        string == word || string == capital || string == word.to_ascii_uppercase()
    };
    if string.is_empty() || matches!(string, "~" | "<<" | "n" | "N") || WORDS.into_iter().any(cased) {
        return true;
    }
    let unsigned = string.strip_prefix(['+', '-']).unwrap_or(string);
    if [".nan", ".inf"].iter().any(|word| unsigned.eq_ignore_ascii_case(word)) {
        return true;
    }
    if !unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return false;
    }
    is_number(unsigned) || is_time(string) || is_sexagesimal(unsigned)
}

fn is_number(unsigned: &str) -> bool {
    let digits = unsigned.replace('_', "");
    let of = |prefix: &str, radix: u32| {
        digits
            .strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|digit| digit.is_digit(radix)))
    };
    if of("0x", 16) || of("0X", 16) || of("0b", 2) || of("0o", 8) {
        return true;
    }
    let (mantissa, exponent) = digits.split_once(['e', 'E']).map_or((&*digits, None), |(a, b)| (a, Some(b)));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && all_digits(exponent)
    });
    all_digits(whole) && all_digits(part) && !(whole.is_empty() && part.is_empty()) && exponent
}

/// `2024-01-01`, with or without a time of day.
fn is_time(string: &str) -> bool {
    let bytes = string.as_bytes();
    let pattern = |at: usize, shape: &str| {
        let fits = |(byte, wanted): (&u8, u8)| if wanted == b'0' { byte.is_ascii_digit() } else { *byte == wanted };
        bytes.get(at..at + shape.len()).is_some_and(|part| part.iter().zip(shape.bytes()).all(fits))
    };
    pattern(0, "0000-00-00")
        && (bytes.len() == 10 || matches!(bytes[10], b'T' | b't' | b' ') && pattern(11, "00:00:00"))
}

/// `1:30`, which YAML 1.1 parses as ninety.
fn is_sexagesimal(unsigned: &str) -> bool {
    let mut parts = unsigned.split(':');
    let first = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(first) && !rest.is_empty() && rest.iter().all(|part| part.len() <= 2 && digits(part))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use tally_value::json;

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
    - -c
    - 'a: b'
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
    fn text_is_quoted_only_where_it_must_be() {
        for (string, style) in [
            ("a", Style::Plain),
            ("secrets \"x\" not found", Style::Plain),
            ("4f383106-3730-44d4-85e9-4b787a7a1781", Style::Plain),
            ("größe", Style::Plain),
            ("10.0.0.1", Style::Plain),
            ("-c", Style::Plain),
            ("a:b", Style::Plain),
            ("a,b", Style::Plain),
            ("1h", Style::Plain),
            ("a: b", Style::Single),
            ("a:", Style::Single),
            ("a #b", Style::Single),
            ("'a'", Style::Single),
            ("*a", Style::Single),
            ("- a", Style::Single),
            ("- ", Style::Single),
            (" a", Style::Single),
            ("a ", Style::Single),
            ("{a}", Style::Single),
            ("", Style::Double),
            ("1", Style::Double),
            ("0x1F", Style::Double),
            (".5", Style::Double),
            ("1e3", Style::Double),
            ("12:30", Style::Double),
            ("2024-01-01T00:00:00Z", Style::Double),
            ("true", Style::Double),
            ("Null", Style::Double),
            ("~", Style::Double),
            ("a\tb", Style::Double),
            ("a\nb", Style::Double),
        ] {
            assert_eq!(Style::of(string), style, "{string:?}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let resource = tally_api::catalog::find("", "v1", "configmaps").unwrap();
        let mut data = tally_value::Map::new();
        for string in [
            "",
            " ",
            "a",
            "-",
            "--",
            "---",
            "...",
            "- a",
            "? a",
            "?",
            ":",
            "a:",
            "a: b",
            "#",
            "a #b",
            "a#b",
            "'",
            "''",
            "\"",
            "\\",
            "\\n",
            "%a",
            "@",
            "`",
            "{",
            "[]",
            "a]",
            "a,b",
            "&a",
            "*a",
            "!a",
            "!!str a",
            "|",
            ">",
            "=",
            "<<",
            "~",
            "null",
            "NULL",
            "true",
            "yes",
            "No",
            "on",
            "y",
            "N",
            "0",
            "-0",
            "+1",
            "1_000",
            "0x1f",
            "0o17",
            "017",
            "0b1",
            "1.",
            ".5",
            "1e3",
            "1e+3",
            "1e",
            "e3",
            ".inf",
            "-.Inf",
            ".nan",
            "1:30",
            "1:30:59.5",
            "2024-01-01",
            "2024-01-01 00:00:00",
            "2024-01-01T00:00:00Z",
            "\n",
            "a\n",
            "a\nb",
            "\na",
            " a\nb",
            "a\n b\n",
            "a \nb",
            "a\n\n",
            "\n\n",
            "a\tb",
            "\ta",
            "\r",
            "a\r\nb",
            "\u{0}",
            "\u{7f}",
            "\u{85}",
            "a\u{2028}b",
            "\u{feff}a",
            "ä ö",
            "😀",
            "a\u{a0}b",
            "a  b",
            "a ",
            "  a",
        ] {
            let long = format!("{string} {} {string}", "long and longer ".repeat(9));
            data.insert(format!("k{}", data.len()), string.into());
            data.insert(format!("k{}", data.len()), long.into());
        }
        let text = write(&json!({"data": data}));
        let read = tally_api::decode::decode(
            resource,
            text.as_bytes(),
            tally_api::options::Format::Yaml,
            tally_api::options::FieldValidation::Strict,
        );
        let object = read.unwrap().object;
        for (key, string) in &data {
            assert_eq!(&object["data"][key], string, "{key}");
        }
    }

    #[test]
    fn long_text_is_folded_and_lines_are_kept() {
        let long = format!("{} {}", "x".repeat(80), "y".repeat(30));
        let expected = format!("m: {}\n  {}\n", "x".repeat(80), "y".repeat(30));
        assert_eq!(write(&json!({"m": long})), expected);
        let quoted = format!("it's: {} {}", "x".repeat(80), "y".repeat(30));
        let expected = format!("m: 'it''s: {}\n  {}'\n", "x".repeat(80), "y".repeat(30));
        assert_eq!(write(&json!({"m": quoted})), expected);
        assert_eq!(write(&json!({"m": "a\nb\n"})), "m: |\n  a\n  b\n");
        assert_eq!(write(&json!({"m": "a\n\nb"})), "m: |-\n  a\n\n  b\n");
        assert_eq!(write(&json!({"m": "a\n\n"})), "m: |+\n  a\n\n");
        assert_eq!(write(&json!({"m": "a \nb"})), "m: \"a \\nb\"\n");
    }
}
