//! From JSON values to messages.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tally_core::time::Timestamp;
use tally_value::{Map, Value};

use super::{MAGIC, list_metadata, number, structure, wire};
use crate::decode::conform::{Words, conform};
use crate::decode::conformed::is_conformed;
use crate::decode::json::JsonNode;
use crate::schema::{Part, Shape, Struct, Type, schema};

/// The last fields of the envelope, which are empty.
pub const END: &[u8] = &[0x1a, 0, 0x22, 0];

/// The object in its envelope. It must have `apiVersion` and `kind`; None if that kind cannot be written in this form.
pub fn document(value: &Value) -> Option<Vec<u8>> {
    let (api_version, kind) = (value.get("apiVersion")?.as_str()?, value.get("kind")?.as_str()?);
    Some(object(structure(api_version, kind)?, api_version, kind, value))
}

/// As [`document`], and nothing is lost: None also if the object has a field that the schema does not contain, or a value
/// that would be written as another one.
pub fn exact_document(value: &Value) -> Option<Vec<u8>> {
    let (api_version, kind) = (value.get("apiVersion")?.as_str()?, value.get("kind")?.as_str()?);
    let structure = structure(api_version, kind)?;
    if is_conformed(structure, value.as_object()?) {
        return Some(object(structure, api_version, kind, value));
    }
    // It may still mean the same as a conformed object: a zero value that the JSON form leaves out, for example.
    let conformed = conform(structure, &JsonNode::from(value), Words::Json, true).ok()?;
    let is_exact = conformed.told.is_empty() && !conformed.unsettled;
    is_exact.then(|| object(structure, api_version, kind, &Value::Object(conformed.object)))
}

/// The object in its envelope, which has this version and kind.
pub fn object(structure: &Struct, api_version: &str, kind: &str, value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    envelope(api_version, kind, &mut out);
    delimited(number::RAW, &mut out, |out| message(structure, value.as_object(), out));
    out.extend_from_slice(END);
    out
}

/// The beginning of a list. Its items follow, with this many bytes in all, and then [`END`].
pub fn list_start(api_version: &str, kind: &str, metadata: &Value, items: usize) -> Vec<u8> {
    let mut out = Vec::new();
    envelope(api_version, kind, &mut out);
    let mut head = Vec::new();
    if let Some(structure) = list_metadata() {
        delimited(number::METADATA, &mut head, |out| message(structure, metadata.as_object(), out));
    }
    tag(number::RAW, wire::BYTES, &mut out);
    varint((head.len() + items) as u64, &mut out);
    out.append(&mut head);
    out
}

/// An item of a list.
pub fn list_item(structure: &Struct, value: &Value, out: &mut Vec<u8>) {
    delimited(number::ITEMS, out, |out| message(structure, value.as_object(), out));
}

/// A frame of a watch: its length in four bytes, and the event. `object` is a whole document.
pub fn event(kind: &str, object: &[u8], out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    text(number::EVENT_TYPE, kind, out);
    delimited(number::EVENT_OBJECT, out, |out| bytes(number::ONLY, object, out));
    let length = u32::try_from(out.len() - at - 4).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

fn envelope(api_version: &str, kind: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(MAGIC);
    delimited(number::TYPE, out, |out| {
        text(number::API_VERSION, api_version, out);
        text(number::KIND, kind, out);
    });
}

/// The fields of a structure. None: the structure is absent, and all its fields are zero.
fn message(structure: &Struct, map: Option<&Map>, out: &mut Vec<u8>) {
    for numbered in &structure.numbered {
        match numbered.part {
            Part::Embedded(id) => delimited(numbered.number, out, |out| message(schema().get(id), map, out)),
            Part::Field(position) => {
                let field = &structure.fields[position];
                let value = map.and_then(|map| map.get(field.name)).filter(|value| !value.is_null());
                all(numbered.number, &field.ty, value, out);
            }
        }
    }
}

/// All occurrences of a field.
fn all(number: u32, ty: &Type, value: Option<&Value>, out: &mut Vec<u8>) {
    match (&ty.shape, value) {
        (Shape::List(inner), Some(Value::Array(items))) => items.iter().for_each(|item| one(number, inner, item, out)),
        (Shape::Map(inner), Some(Value::Object(map))) => {
            for (key, value) in map {
                delimited(number, out, |out| {
                    text(number::KEY, key, out);
                    if let Shape::List(_) = inner.shape {
                        // A list is wrapped in a message of its own.
                        delimited(number::VALUE, out, |out| all(number::ONLY, inner, Some(value), out));
                    } else {
                        one(number::VALUE, inner, value, out);
                    }
                });
            }
        }
        (Shape::List(_) | Shape::Map(_), _) => {}
        (_, Some(value)) => one(number, ty, value, out),
        (Shape::Bytes, None) => {}
        (_, None) if ty.pointer => {}
        (_, None) => one(number, ty, &Value::Null, out),
    }
}

/// One value; that of another type is written as zero.
fn one(number: u32, ty: &Type, value: &Value, out: &mut Vec<u8>) {
    match &ty.shape {
        Shape::Text => text(number, value.as_str().unwrap_or_default(), out),
        Shape::Int32 | Shape::Int64 => integer(number, value.as_i64().unwrap_or_default(), out),
        Shape::Bool => integer(number, value.as_bool().unwrap_or_default().into(), out),
        Shape::Float => {
            tag(number, wire::FIXED64, out);
            out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
        }
        Shape::Bytes => {
            let decoded = value.as_str().and_then(|text| STANDARD.decode(text).ok());
            bytes(number, &decoded.unwrap_or_default(), out);
        }
        Shape::Struct(id) => delimited(number, out, |out| message(schema().get(*id), value.as_object(), out)),
        Shape::Quantity => delimited(number, out, |out| text(number::ONLY, value.as_str().unwrap_or("0"), out)),
        Shape::IntOrString => delimited(number, out, |out| {
            integer(number::WHICH, value.is_string().into(), out);
            integer(number::INT, value.as_i64().unwrap_or_default(), out);
            text(number::TEXT, value.as_str().unwrap_or_default(), out);
        }),
        Shape::Time | Shape::MicroTime => delimited(number, out, |out| {
            let Some(time) = value.as_str().and_then(|text| Timestamp::parse(text).ok()) else { return };
            let nanos = if ty.shape == Shape::MicroTime { time.micros_of_second() * 1_000 } else { 0 };
            integer(number::SECONDS, time.seconds(), out);
            integer(number::NANOS, nanos, out);
        }),
        Shape::Raw => delimited(number, out, |out| {
            if !value.is_null() {
                delimited(number::ONLY, out, |out| drop(serde_json::to_writer(out, value)));
            }
        }),
        // The tables contain no list of lists.
        Shape::List(_) | Shape::Map(_) => {}
    }
}

fn tag(number: u32, wire: u8, out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | u64::from(wire), out);
}

fn varint(mut rest: u64, out: &mut Vec<u8>) {
    while rest > 0x7f {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Negative numbers have ten bytes, whatever the type.
fn integer(number: u32, value: i64, out: &mut Vec<u8>) {
    tag(number, wire::VARINT, out);
    varint(value as u64, out);
}

fn text(number: u32, text: &str, out: &mut Vec<u8>) {
    bytes(number, text.as_bytes(), out);
}

fn bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    tag(number, wire::BYTES, out);
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// A message, whose length is known once it is written.
fn delimited(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    tag(number, wire::BYTES, out);
    // Most messages are short: one byte is kept free for their length, and the others are moved.
    let at = out.len();
    out.push(0);
    write(out);
    let length = out.len() - at - 1;
    if length <= 0x7f {
        out[at] = length as u8;
        return;
    }
    let mut digits = Vec::with_capacity(10);
    varint(length as u64, &mut digits);
    out.resize(out.len() + digits.len() - 1, 0);
    out.copy_within(at + 1..at + 1 + length, at + digits.len());
    out[at..at + digits.len()].copy_from_slice(&digits);
}
