//! The stored form of objects: JSON text with the metadata first and the revision at a fixed place in it.
//!
//! The same bytes go to every reader, so the revision must be in the text before a reader parses it. The store puts it
//! there when it assigns it (`Body::stamp_at`).

use bytes::Bytes;
use tally_store::Body;
use tally_value::{Map, Text, Value, write_text};

/// Every stored text begins with this, followed by the revision and a quote.
const HEAD: &str = r#"{"metadata":{"resourceVersion":""#;

/// The text of an object that is about to be written, with a gap for its revision.
pub fn body(object: &Value) -> Body {
    body_from(object, |_, _, _| None).0
}

/// As `body`; and where the parts of the object are in the text. `known` finds the text of a part that was written before,
/// by whether it is part of the metadata, its name and its value.
pub fn body_from<'a>(
    object: &Value,
    known: impl Fn(bool, &str, &Value) -> Option<&'a [u8]>,
) -> (Body, Vec<PlacedPart>) {
    let (bytes, parts) = encode(object, "", known);
    (Body { bytes, stamp_at: HEAD.len(), handle: None }, parts)
}

/// Where a list or a map is in the text of its object.
#[derive(Debug)]
pub struct PlacedPart {
    pub in_metadata: bool,
    pub name: Text,
    /// From the end of the text, because the revision is put in at its beginning.
    before_end: usize,
    length: usize,
}

impl PlacedPart {
    pub fn text<'a>(&self, whole: &'a [u8]) -> Option<&'a [u8]> {
        let begin = whole.len().checked_sub(self.before_end)?;
        // See `mark_incomplete`.
        whole.get(begin..begin + self.length).filter(|_| !is_incomplete(whole))
    }
}

/// Marks the text of an object that kube-apiserver would store without a value that it shows (`Rules::complete`). There
/// the next update stores that value, although nothing changes for a reader (LABEL-6). A trailing space has no meaning
/// in JSON, and survives a restart.
pub fn mark_incomplete(mut body: Body) -> Body {
    body.bytes.push(b' ');
    body
}

pub fn is_incomplete(bytes: &[u8]) -> bool {
    bytes.ends_with(b" ")
}

/// The text of an object that is not written (a dry run). A new object has no revision.
pub fn unstored(object: &Value) -> Bytes {
    let text = match object.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
        Some(revision) => encode(object, revision, |_, _, _| None).0,
        None => {
            let mut object = object.clone();
            remove_type(&mut object);
            object.to_string().into_bytes()
        }
    };
    Bytes::from(text)
}

fn encode<'a>(
    object: &Value,
    revision: &str,
    known: impl Fn(bool, &str, &Value) -> Option<&'a [u8]>,
) -> (Vec<u8>, Vec<PlacedPart>) {
    // A Pod that has ended, without room to spare: the store copies it.
    let mut out = Vec::with_capacity(3584);
    let mut parts = Vec::with_capacity(8);
    let mut write_field = |out: &mut Vec<u8>, in_metadata: bool, name: &Text, value: &Value| {
        out.push(b',');
        write_text(name, out);
        out.push(b':');
        if !matches!(value, Value::Array(_) | Value::Object(_)) {
            return value.write_to(out);
        }
        let begin = out.len();
        match known(in_metadata, name, value) {
            Some(text) => out.extend_from_slice(text),
            None => value.write_to(out),
        }
        parts.push(PlacedPart { in_metadata, name: name.clone(), before_end: begin, length: out.len() - begin });
    };
    out.extend_from_slice(HEAD.as_bytes());
    out.extend_from_slice(revision.as_bytes());
    out.push(b'"');
    let empty = Map::new();
    let fields = object.as_object().unwrap_or(&empty);
    let metadata = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    for (name, value) in metadata {
        if name != "resourceVersion" {
            write_field(&mut out, true, name, value);
        }
    }
    out.push(b'}');
    for (name, value) in fields {
        if name != "metadata" && name != "apiVersion" && name != "kind" {
            write_field(&mut out, false, name, value);
        }
    }
    out.push(b'}');
    for part in &mut parts {
        part.before_end = out.len() - part.before_end;
    }
    (out, parts)
}

/// Parses a stored text.
pub fn parse(bytes: &[u8]) -> Value {
    // Stored text was encoded here, and its checksum is verified when the store is opened.
    serde_json::from_slice(bytes).unwrap_or_else(|_| Value::Object(Map::new()))
}

/// The same state with another revision, for the delete event of an object that no longer matches a watch's selector.
pub fn restamp(bytes: &Bytes, revision: u64) -> Bytes {
    let Some(rest) = bytes.get(HEAD.len()..) else { return bytes.clone() };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut out = Vec::with_capacity(bytes.len() + 4);
    out.extend_from_slice(HEAD.as_bytes());
    out.extend_from_slice(revision.to_string().as_bytes());
    out.extend_from_slice(&rest[digits..]);
    Bytes::from(out)
}

/// Whether the text contains this, perhaps as part of a value: only such a text need be parsed to look for it.
pub fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

pub fn remove_type(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
}

/// The metadata, created if it is missing.
pub fn metadata(object: &mut Value) -> &mut Map {
    let fields = map(object);
    map(fields.entry("metadata").or_insert_with(|| Value::Object(Map::new())))
}

/// The value as a map; a value of another type becomes an empty map.
fn map(value: &mut Value) -> &mut Map {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made a map just above"),
    }
}

pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tally_value::json;

    use super::*;

    #[test]
    fn the_gap_is_where_the_revision_belongs() {
        let object =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "resourceVersion": "9"}, "spec": {}});
        let Body { mut bytes, stamp_at, .. } = body(&object);
        bytes.splice(stamp_at..stamp_at, b"17".iter().copied());
        assert_eq!(parse(&bytes), json!({"metadata": {"name": "p", "resourceVersion": "17"}, "spec": {}}));
        let later = restamp(&Bytes::from(bytes), 1234);
        assert_eq!(parse(&later), json!({"metadata": {"name": "p", "resourceVersion": "1234"}, "spec": {}}));
    }

    #[test]
    fn a_dry_run_shows_the_revision_it_would_have_built_on() {
        let seen = unstored(&json!({"kind": "Pod", "metadata": {"name": "p", "resourceVersion": "9"}}));
        assert_eq!(parse(&seen), json!({"metadata": {"name": "p", "resourceVersion": "9"}}));
        assert_eq!(parse(&unstored(&json!({"metadata": {"name": "p"}}))), json!({"metadata": {"name": "p"}}));
    }
}
