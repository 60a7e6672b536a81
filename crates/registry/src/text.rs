//! The stored form of objects: JSON text with the metadata first and the revision at a fixed place in it.
//!
//! The same bytes go to every reader, so the revision must be in the text before a reader parses it. The store puts it
//! there when it assigns it (`Body::stamp_at`).

use std::num::NonZeroUsize;

use bytes::Bytes;
use tally_store::Body;
use tally_value::{Map, Value, write_text};

/// Every stored text begins with this, followed by the revision and a quote.
const HEAD: &str = r#"{"metadata":{"resourceVersion":""#;

/// The text of an object that is about to be written, with a gap for its revision.
pub fn body(object: &Value) -> Body {
    body_from(object, |_| None).0
}

/// As `body`; and where the parts of the object are in the text. `known` finds the text of a part that was written before.
pub fn body_from<'a>(object: &Value, known: impl Fn(&Value) -> Option<&'a [u8]>) -> (Body, Vec<PlacedPart>) {
    let (bytes, parts) = encode(object, "", known);
    (Body { bytes, stamp_at: HEAD.len(), handle: None }, parts)
}

/// Where a list or a map of an object, or of one of its maps, is in the text.
#[derive(Debug)]
pub struct PlacedPart {
    address: NonZeroUsize,
    /// From the end of the text, because the revision is put in at its beginning.
    before_end: u32,
    length: u32,
}

impl PlacedPart {
    /// The text of a value in the text of an object that lives, and that this is a part of.
    pub fn text<'a>(parts: &[Self], value: &Value, whole: &'a [u8]) -> Option<&'a [u8]> {
        let address = value.address()?;
        let part = parts.iter().find(|part| part.address == address)?;
        let begin = whole.len().checked_sub(part.before_end as usize)?;
        // See `mark_incomplete`.
        whole.get(begin..begin + part.length as usize).filter(|_| !is_incomplete(whole))
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
        Some(revision) => encode(object, revision, |_| None).0,
        None => {
            let mut object = object.clone();
            remove_type(&mut object);
            object.to_string().into_bytes()
        }
    };
    Bytes::from(text)
}

/// Writes fields, and notes where lists and maps are.
struct Encoder<K> {
    out: Vec<u8>,
    parts: Vec<PlacedPart>,
    known: K,
}

impl<'a, K: Fn(&Value) -> Option<&'a [u8]>> Encoder<K> {
    fn field(&mut self, name: &str, value: &Value, is_within: bool) {
        write_text(name, &mut self.out);
        self.out.push(b':');
        let Some(address) = value.address() else { return value.write_to(&mut self.out) };
        let begin = self.out.len();
        match ((self.known)(value), value) {
            (Some(text), _) => self.out.extend_from_slice(text),
            // Of a map that has changed, most of what is in it has not.
            (None, Value::Object(fields)) if !is_within => {
                self.out.push(b'{');
                for (place, (name, value)) in fields.iter().enumerate() {
                    if place > 0 {
                        self.out.push(b',');
                    }
                    self.field(name, value, true);
                }
                self.out.push(b'}');
            }
            (None, _) => value.write_to(&mut self.out),
        }
        // From the beginning, as long as the end is not known.
        let (before_end, length) = (begin as u32, (self.out.len() - begin) as u32);
        self.parts.push(PlacedPart { address, before_end, length });
    }
}

fn encode<'a>(
    object: &Value,
    revision: &str,
    known: impl Fn(&Value) -> Option<&'a [u8]>,
) -> (Vec<u8>, Vec<PlacedPart>) {
    // A Pod that has ended, without room to spare: the store copies it.
    let mut encoder = Encoder { out: Vec::with_capacity(3584), parts: Vec::with_capacity(16), known };
    encoder.out.extend_from_slice(HEAD.as_bytes());
    encoder.out.extend_from_slice(revision.as_bytes());
    encoder.out.push(b'"');
    let empty = Map::new();
    let fields = object.as_object().unwrap_or(&empty);
    let metadata = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    for (name, value) in metadata {
        if name != "resourceVersion" {
            encoder.out.push(b',');
            encoder.field(name, value, true);
        }
    }
    encoder.out.push(b'}');
    for (name, value) in fields {
        if name != "metadata" && name != "apiVersion" && name != "kind" {
            encoder.out.push(b',');
            encoder.field(name, value, false);
        }
    }
    encoder.out.push(b'}');
    let Encoder { out, mut parts, .. } = encoder;
    for part in &mut parts {
        part.before_end = out.len() as u32 - part.before_end;
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
