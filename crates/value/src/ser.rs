use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::{List, Map, Value};

impl Value {
    /// Appends the JSON text, which is that of `serde_json::to_writer`. Every object is encoded as often as it is written, so
    /// this does without the many small steps of a general serializer.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        match self {
            Value::Null => out.extend_from_slice(b"null"),
            Value::Bool(true) => out.extend_from_slice(b"true"),
            Value::Bool(false) => out.extend_from_slice(b"false"),
            Value::Number(number) => write_other(number, out),
            Value::String(text) => write_text(text, out),
            Value::Array(list) => {
                out.push(b'[');
                for (place, item) in list.iter().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    item.write_to(out);
                }
                out.push(b']');
            }
            Value::Object(map) => {
                out.push(b'{');
                for (place, (name, value)) in map.iter().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    write_text(name, out);
                    out.push(b':');
                    value.write_to(out);
                }
                out.push(b'}');
            }
        }
    }
}

/// Appends a text in quotes.
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    if needs_escapes(text.as_bytes()) {
        return write_other(text, out);
    }
    out.reserve(text.len() + 2);
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

/// Whether a byte is a control character, a quote or a backslash. Looks at eight bytes at a time.
fn needs_escapes(text: &[u8]) -> bool {
    let (words, rest) = text.as_chunks::<8>();
    let in_rest = || rest.iter().any(|byte| *byte < 0x20 || *byte == b'"' || *byte == b'\\');
    match text.last_chunk::<8>() {
        // The last eight bytes overlap the words before them.
        Some(last) => words.iter().chain([last]).any(|word| word_needs_escapes(u64::from_le_bytes(*word))),
        None => in_rest(),
    }
}

fn word_needs_escapes(word: u64) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // The usual test for a byte below a limit of at most 128. It is exact for the word as a whole: a borrow can only reach a
    // byte above one that is below the limit.
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word;
    let quote = word ^ (ONES * u64::from(b'"'));
    let backslash = word ^ (ONES * u64::from(b'\\'));
    (below(word, 0x20) | below(quote, 1) | below(backslash, 1)) & HIGH != 0
}

/// Writing into memory cannot fail.
fn write_other(value: &(impl Serialize + ?Sized), out: &mut Vec<u8>) {
    let _ = serde_json::to_writer(out, value);
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Number(number) => number.serialize(serializer),
            Value::String(text) => serializer.serialize_str(text),
            Value::Array(list) => list.serialize(serializer),
            Value::Object(map) => map.serialize(serializer),
        }
    }
}

impl Serialize for List {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl Serialize for Map {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (name, value) in self {
            map.serialize_entry(name.as_str(), value)?;
        }
        map.end()
    }
}
