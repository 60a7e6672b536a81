//! From messages to JSON values.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tally_core::time::Timestamp;
use tally_value::{List, Map, Value};

use super::{MAGIC, number, wire};
use crate::decode::conformed::is_left_out;
use crate::decode::json::MAX_PARTS;
use crate::schema::{Field, Part, Shape, Struct, Type, schema};

/// Deeper than any object of the tables is nested.
const MAX_DEPTH: usize = 64;
/// The most items of a list, and the most objects and lists in all of its items. An item can be two bytes, and the object
/// built from it a thousand times that. Clients ask for 500 objects at a time, which may be two thousand such parts each.
const MAX_ITEMS: usize = 10_000;
const MAX_LIST_PARTS: usize = 10 * MAX_PARTS;
/// The years that the JSON form can express.
const FIRST_SECOND: i64 = -62_167_219_200;
const LAST_SECOND: i64 = 253_402_300_799;

/// What a document says about its object, and the object's message.
pub struct Envelope<'a> {
    /// Empty if the document does not contain it, as the next.
    pub api_version: &'a str,
    pub kind: &'a str,
    pub raw: &'a [u8],
}

/// Opens the envelope of a document.
pub fn envelope(body: &[u8]) -> Result<Envelope<'_>, String> {
    let message = body.strip_prefix(MAGIC).ok_or_else(|| match body {
        [] => "empty data".to_owned(),
        _ => "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]".to_owned(),
    })?;
    let mut found = Envelope { api_version: "", kind: "", raw: &[] };
    for field in Fields(message) {
        match field? {
            (number::TYPE, Wire::Bytes(about)) => {
                for field in Fields(about) {
                    match field? {
                        (number::API_VERSION, Wire::Bytes(text)) => found.api_version = utf8(text)?,
                        (number::KIND, Wire::Bytes(text)) => found.kind = utf8(text)?,
                        _ => {}
                    }
                }
            }
            (number::RAW, Wire::Bytes(bytes)) => found.raw = bytes,
            _ => {}
        }
    }
    Ok(found)
}

/// The JSON form of a message. It contains what the message contains, zero values included, and is not conformed yet.
pub fn read(structure: &Struct, message: &[u8]) -> Result<Map, String> {
    read_with(structure, message, ZeroValues::Kept)
}

/// The JSON form of a message from a server: the object that the server shows in JSON. That is the same as conforming what
/// [`read`] returns, without a second pass, because what a server stores is canonical.
pub fn read_shown(structure: &Struct, message: &[u8]) -> Result<Map, String> {
    read_with(structure, message, ZeroValues::AsJson)
}

fn read_with(structure: &Struct, message: &[u8], zero_values: ZeroValues) -> Result<Map, String> {
    let mut object = Map::new();
    Reader { parts: 0, max_parts: MAX_PARTS, zero_values }.structure(structure, message, 0, &mut object)?;
    Ok(object)
}

/// The parts of a list, whose items have the structure of their kind.
pub struct ListMessage<'a> {
    pub metadata: Map,
    pub items: Vec<&'a [u8]>,
}

impl ListMessage<'_> {
    /// The items as [`read_shown`] reads one, until one of them cannot be read. What all of them become together is limited,
    /// however small each of them is.
    pub fn read_items(&self, structure: &Struct) -> impl Iterator<Item = Result<Map, String>> {
        let mut reader = Reader { parts: 0, max_parts: MAX_LIST_PARTS, zero_values: ZeroValues::AsJson };
        self.items.iter().map(move |item| {
            let mut object = Map::new();
            reader.structure(structure, item, 0, &mut object)?;
            Ok(object)
        })
    }
}

/// Takes a list's message apart.
pub fn read_list(message: &[u8]) -> Result<ListMessage<'_>, String> {
    let mut list = ListMessage { metadata: Map::new(), items: Vec::new() };
    for field in Fields(message) {
        match field? {
            (number::METADATA, Wire::Bytes(bytes)) => {
                let structure = super::list_metadata().ok_or("the schema has no metadata of lists")?;
                list.metadata = read_shown(structure, bytes)?;
            }
            (number::ITEMS, Wire::Bytes(_)) if list.items.len() == MAX_ITEMS => {
                return Err(format!("more than {MAX_ITEMS} items"));
            }
            (number::ITEMS, Wire::Bytes(item)) => list.items.push(item),
            _ => {}
        }
    }
    Ok(list)
}

/// An event of a watch: its type, and the document with its object.
pub struct EventMessage<'a> {
    pub kind: &'a str,
    pub document: &'a [u8],
}

/// Reads a frame of a watch, without its length.
pub fn read_event(frame: &[u8]) -> Result<EventMessage<'_>, String> {
    let mut event = EventMessage { kind: "", document: &[] };
    for field in Fields(frame) {
        match field? {
            (number::EVENT_TYPE, Wire::Bytes(text)) => event.kind = utf8(text)?,
            (number::EVENT_OBJECT, Wire::Bytes(object)) => event.document = bytes_at(object, number::ONLY)?,
            _ => {}
        }
    }
    Ok(event)
}

/// The bytes of a field before its type is known.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in the order they were written.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u32, Wire<'a>)> {
        let tag = self.varint()?;
        let little = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let wire = match (tag & 7) as u8 {
            wire::VARINT => Wire::Number(self.varint()?),
            wire::FIXED64 => Wire::Number(little(self.take(8)?)),
            wire::BYTES => {
                let length = self.varint()?;
                Wire::Bytes(self.take(length)?)
            }
            wire::FIXED32 => Wire::Number(little(self.take(4)?)),
            _ => return None,
        };
        Some((u32::try_from(tag >> 3).ok().filter(|number| *number > 0)?, wire))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Wire<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or_else(|| "the message breaks off or is not one".to_owned()))
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "the message has text that is not UTF-8".to_owned())
}

/// What becomes of values that are not pointers and are zero. A message contains them all.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ZeroValues {
    /// They are in the result.
    Kept,
    /// They are in the result where the JSON form shows them.
    AsJson,
}

struct Reader {
    /// The maps and lists of the result.
    parts: usize,
    max_parts: usize,
    zero_values: ZeroValues,
}

impl Reader {
    /// Two bytes of a message can become an object that is a thousand times that; see `decode/json.rs`.
    fn count(&mut self, more: usize) -> Result<(), String> {
        self.parts += more;
        if self.parts > self.max_parts {
            Err(format!("more than {} objects and lists", self.max_parts))
        } else {
            Ok(())
        }
    }

    fn structure(&mut self, structure: &Struct, bytes: &[u8], depth: usize, into: &mut Map) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err("the message nests too deep".to_owned());
        }
        if structure.numbered.is_empty() && !bytes.is_empty() {
            return Err(format!("{} cannot be read in this form; send JSON", structure.name));
        }
        self.count(1)?;
        for field in Fields(bytes) {
            let (number, wire) = field?;
            match (structure.numbered(number), wire) {
                (Some(Part::Embedded(id)), Wire::Bytes(bytes)) => {
                    self.structure(schema().get(id), bytes, depth + 1, into)?;
                }
                (Some(Part::Field(position)), wire) => {
                    let field = &structure.fields[position];
                    let before = into.remove(field.name);
                    let value = self.field(&field.ty, wire, depth, before)?;
                    if let Some(value) = value.filter(|value| self.shows(field, value)) {
                        into.insert(field.name, value);
                    }
                }
                // A field of another version.
                _ => {}
            }
        }
        if self.zero_values == ZeroValues::AsJson {
            for (name, zero) in structure.zero().as_object().into_iter().flatten() {
                if !into.contains_key(name) {
                    into.insert(name.clone(), zero.clone());
                }
            }
        }
        Ok(())
    }

    fn shows(&self, field: &Field, value: &Value) -> bool {
        self.zero_values == ZeroValues::Kept || !is_left_out(field, value)
    }

    /// The value of a field after another occurrence of it. None if it is not set.
    fn field(
        &mut self,
        ty: &Type,
        wire: Wire<'_>,
        depth: usize,
        before: Option<Value>,
    ) -> Result<Option<Value>, String> {
        match (&ty.shape, wire) {
            (Shape::List(inner), wire) => {
                let mut items = match before {
                    Some(Value::Array(items)) => items,
                    _ => {
                        self.count(1)?;
                        List::default()
                    }
                };
                let is_number = matches!(inner.shape, Shape::Int32 | Shape::Int64 | Shape::Bool);
                match wire {
                    // Numbers may be packed.
                    Wire::Bytes(bytes) if is_number => {
                        let mut packed = Fields(bytes);
                        while let Some(number) = packed.varint() {
                            items.extend(self.one(inner, Wire::Number(number), depth, None)?);
                        }
                    }
                    wire => items.extend(self.one(inner, wire, depth, None)?),
                }
                // There are no empty lists: nothing was packed, or the wire type is that of another version.
                Ok(if items.is_empty() { None } else { Some(Value::Array(items)) })
            }
            (Shape::Map(inner), Wire::Bytes(bytes)) => {
                let mut map = match before {
                    Some(Value::Object(map)) => map,
                    _ => {
                        self.count(1)?;
                        Map::new()
                    }
                };
                let (mut key, mut value) = ("", None);
                for field in Fields(bytes) {
                    match field? {
                        (number::KEY, Wire::Bytes(text)) => key = utf8(text)?,
                        (number::VALUE, wire) => value = self.map_value(inner, wire, depth)?,
                        _ => {}
                    }
                }
                let empty = || if inner.shape == Shape::Bytes { "".into() } else { inner.zero() };
                map.insert(key.to_owned(), value.unwrap_or_else(empty));
                Ok(Some(Value::Object(map)))
            }
            (_, wire) => self.one(ty, wire, depth, before),
        }
    }

    /// A list that is the value of a map is wrapped in a message of its own.
    fn map_value(&mut self, ty: &Type, wire: Wire<'_>, depth: usize) -> Result<Option<Value>, String> {
        let (Shape::List(_), Wire::Bytes(bytes)) = (&ty.shape, wire) else {
            return self.one(ty, wire, depth, None);
        };
        self.count(1)?;
        let mut list = None;
        for field in Fields(bytes) {
            if let (number::ONLY, wire) = field? {
                list = self.field(ty, wire, depth, list)?;
            }
        }
        Ok(list)
    }

    fn one(&mut self, ty: &Type, wire: Wire<'_>, depth: usize, before: Option<Value>) -> Result<Option<Value>, String> {
        let value = match (&ty.shape, wire) {
            (Shape::Text, Wire::Bytes(bytes)) => utf8(bytes)?.into(),
            // Negative numbers are encoded with 64 bits; the format requires the truncation.
            (Shape::Int32, Wire::Number(number)) => (number as i32).into(),
            (Shape::Int64, Wire::Number(number)) => (number as i64).into(),
            (Shape::Float, Wire::Number(bits)) => f64::from_bits(bits).into(),
            (Shape::Bool, Wire::Number(number)) => (number != 0).into(),
            (Shape::Bytes, Wire::Bytes(bytes)) => STANDARD.encode(bytes).into(),
            (Shape::Struct(id), Wire::Bytes(bytes)) => {
                let mut map = match before {
                    Some(Value::Object(map)) => map,
                    _ => Map::new(),
                };
                self.structure(schema().get(*id), bytes, depth + 1, &mut map)?;
                Value::Object(map)
            }
            (Shape::Quantity, Wire::Bytes(bytes)) => match text_at(bytes, number::ONLY)? {
                "" => "0".into(),
                text => text.into(),
            },
            (Shape::IntOrString, Wire::Bytes(bytes)) => match number_at(bytes, number::WHICH)? {
                0 => (number_at(bytes, number::INT)? as i32).into(),
                _ => text_at(bytes, number::TEXT)?.into(),
            },
            (Shape::Time | Shape::MicroTime, Wire::Bytes(bytes)) => match time(bytes, ty.shape == Shape::MicroTime)? {
                Some(text) => text.into(),
                None => return Ok(None),
            },
            (Shape::Raw, Wire::Bytes(bytes)) => match bytes_at(bytes, number::ONLY)? {
                b"" => return Ok(None),
                json => {
                    let value = serde_json::from_slice(json)
                        .map_err(|error| format!("an embedded object is not JSON: {error}"))?;
                    self.count(parts(&value))?;
                    value
                }
            },
            // The wire type does not match the field's type: a field of another version.
            _ => return Ok(before),
        };
        Ok(Some(value))
    }
}

/// None: no time, which is an empty message.
fn time(message: &[u8], micros: bool) -> Result<Option<String>, String> {
    if message.is_empty() {
        return Ok(None);
    }
    let (seconds, nanos) = (number_at(message, number::SECONDS)? as i64, number_at(message, number::NANOS)? as i32);
    if !(FIRST_SECOND..=LAST_SECOND).contains(&seconds) {
        return Err("the message has a time outside the years 0 to 9999".to_owned());
    }
    let text = Timestamp::from_seconds(seconds).to_string();
    Ok(Some(match micros {
        false => text,
        true => format!("{}.{:06}Z", text.trim_end_matches('Z'), (nanos / 1_000).clamp(0, 999_999)),
    }))
}

/// The maps and lists of a value.
fn parts(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(parts).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(parts).sum::<usize>(),
        _ => 0,
    }
}

/// The last occurrence of a field; empty if there is none, as the following two.
fn bytes_at(message: &[u8], number: u32) -> Result<&[u8], String> {
    let mut found = &[][..];
    for field in Fields(message) {
        match field? {
            (at, Wire::Bytes(bytes)) if at == number => found = bytes,
            _ => {}
        }
    }
    Ok(found)
}

fn text_at(message: &[u8], number: u32) -> Result<&str, String> {
    utf8(bytes_at(message, number)?)
}

fn number_at(message: &[u8], number: u32) -> Result<u64, String> {
    let mut found = 0;
    for field in Fields(message) {
        match field? {
            (at, Wire::Number(value)) if at == number => found = value,
            _ => {}
        }
    }
    Ok(found)
}
