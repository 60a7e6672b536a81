//! Converts objects from protobuf to JSON.
//!
//! Go clients send the built-in kinds in protobuf by default. It has the same content as JSON: an envelope names
//! `apiVersion` and `kind`, and the object is a message whose fields have numbers (`protobuf.txt`) instead of names.
//! Their types are in the schema. All processing after decoding uses JSON.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use tally_api::schema::{Shape, Struct, Type, schema};
use tally_api::status_error::StatusError;
use tally_core::time::Timestamp;

/// The first bytes of every body.
const MAGIC: &[u8] = b"k8s\0";
/// Deeper than any object of the tables is nested.
const DEEPEST: usize = 64;

/// The JSON of a protobuf body. `wanted`: group, version and kind, used where the body does not name them.
pub fn to_json(body: &[u8], wanted: (&str, &str, &str)) -> Result<Value, StatusError> {
    read(body, wanted).map_err(|why| {
        let kind = wanted.2;
        StatusError::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why}"))
    })
}

fn read(body: &[u8], wanted: (&str, &str, &str)) -> Result<Value, String> {
    let message = body.strip_prefix(MAGIC).ok_or_else(|| {
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]".to_owned()
    })?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for part in Parts(message) {
        match part? {
            (1, Wire::Bytes(about)) => {
                for part in Parts(about) {
                    match part? {
                        (1, Wire::Bytes(text)) => api_version = utf8(text)?.to_owned(),
                        (2, Wire::Bytes(text)) => kind = utf8(text)?.to_owned(),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let (group, version) = match api_version.rsplit_once('/') {
        Some(named) => named,
        None if api_version.is_empty() => (wanted.0, wanted.1),
        None => ("", api_version.as_str()),
    };
    let shown = if kind.is_empty() { wanted.2 } else { &kind };
    let structure = schema()
        .kind(group, version, shown)
        .ok_or_else(|| format!("no kind \"{shown}\" is registered for version \"{api_version}\""))?;
    let mut object = Map::new();
    read_struct(structure, raw, 0, &mut object)?;
    for (key, text) in [("apiVersion", api_version), ("kind", kind)] {
        if !text.is_empty() {
            object.insert(key.to_owned(), text.into());
        }
    }
    Ok(Value::Object(object))
}

/// The meaning of a field number in a message.
#[derive(Clone, Copy)]
enum Entry {
    /// An index into the fields.
    Field(usize),
    /// A separate message, whose fields JSON has inline.
    Embedded(&'static Struct),
}

type Numbers = BTreeMap<(&'static str, &'static str), BTreeMap<u32, Entry>>;

fn numbers() -> &'static Numbers {
    static NUMBERS: OnceLock<Numbers> = OnceLock::new();
    NUMBERS.get_or_init(|| {
        let structs: BTreeMap<_, _> =
            schema().structs().iter().map(|found| ((found.table, found.name), found)).collect();
        let lines = include_str!("protobuf.txt").lines().filter(|line| !line.starts_with('#'));
        let named = |name: &'static str| name.split_once('.');
        lines
            .filter_map(|line| {
                let mut words = line.split(' ');
                let name = named(words.next()?)?;
                let structure = structs.get(&name)?;
                let mut number = 0;
                let entries = words.filter_map(|word| {
                    let (field, given) = word.split_once('=').unwrap_or((word, ""));
                    number = given.parse().unwrap_or(number + 1);
                    let entry = match field.strip_prefix('&') {
                        Some(embedded) => Entry::Embedded(structs.get(&named(embedded)?)?),
                        None => Entry::Field(structure.position(field)?),
                    };
                    Some((number, entry))
                });
                Some((name, entries.collect()))
            })
            .collect()
    })
}

/// The bytes of a field before its type is known.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in the order they were written.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
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

    fn part(&mut self) -> Option<(u32, Wire<'a>)> {
        let tag = self.varint()?;
        let little = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let wire = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Number(little(self.take(8)?)),
            2 => {
                let length = self.varint()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Number(little(self.take(4)?)),
            _ => return None,
        };
        Some((u32::try_from(tag >> 3).ok().filter(|number| *number > 0)?, wire))
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Result<(u32, Wire<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let part = self.part();
        if part.is_none() {
            self.0 = &[];
        }
        Some(part.ok_or_else(|| "the message breaks off or is not one".to_owned()))
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "the message has text that is not UTF-8".to_owned())
}

fn read_struct(
    structure: &'static Struct,
    bytes: &[u8],
    depth: usize,
    into: &mut Map<String, Value>,
) -> Result<(), String> {
    if depth > DEEPEST {
        return Err("the message nests too deep".to_owned());
    }
    let Some(entries) = numbers().get(&(structure.table, structure.name)) else {
        return Err(format!("{} cannot be read in this form; send JSON", structure.name));
    };
    for part in Parts(bytes) {
        let (number, wire) = part?;
        match entries.get(&number) {
            // A field of another version.
            None => {}
            Some(Entry::Embedded(inner)) => {
                if let Wire::Bytes(bytes) = wire {
                    read_struct(inner, bytes, depth + 1, into)?;
                }
            }
            Some(Entry::Field(position)) => {
                if let Some(field) = structure.fields.get(*position) {
                    let before = into.remove(field.name);
                    if let Some(value) = read_field(&field.ty, wire, depth, before)? {
                        into.insert(field.name.to_owned(), value);
                    }
                }
            }
        }
    }
    Ok(())
}

/// The value of a field after another occurrence of it. None if it is not set.
fn read_field(ty: &Type, wire: Wire<'_>, depth: usize, before: Option<Value>) -> Result<Option<Value>, String> {
    match (&ty.shape, wire) {
        (Shape::List(inner), wire) => {
            let mut items = match before {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            };
            let is_number = matches!(inner.shape, Shape::Int32 | Shape::Int64 | Shape::Bool);
            match wire {
                // Numbers may be packed.
                Wire::Bytes(bytes) if is_number => {
                    let mut parts = Parts(bytes);
                    while let Some(number) = parts.varint() {
                        items.extend(read_one(inner, Wire::Number(number), depth, None)?);
                    }
                }
                wire => items.extend(read_one(inner, wire, depth, None)?),
            }
            Ok(Some(Value::Array(items)))
        }
        (Shape::Map(inner), Wire::Bytes(bytes)) => {
            let mut map = match before {
                Some(Value::Object(map)) => map,
                _ => Map::new(),
            };
            let (mut key, mut value) = (String::new(), None);
            for part in Parts(bytes) {
                match part? {
                    (1, Wire::Bytes(text)) => key = utf8(text)?.to_owned(),
                    (2, wire) => value = read_map_value(inner, wire, depth)?,
                    _ => {}
                }
            }
            map.insert(key, value.unwrap_or_else(|| inner.zero()));
            Ok(Some(Value::Object(map)))
        }
        (_, wire) => read_one(ty, wire, depth, before),
    }
}

/// A list that is the value of a map is wrapped in a message of its own.
fn read_map_value(ty: &Type, wire: Wire<'_>, depth: usize) -> Result<Option<Value>, String> {
    let (Shape::List(_), Wire::Bytes(bytes)) = (&ty.shape, wire) else {
        return read_one(ty, wire, depth, None);
    };
    let mut list = Some(Value::Array(Vec::new()));
    for part in Parts(bytes) {
        if let (1, wire) = part? {
            list = read_field(ty, wire, depth, list)?;
        }
    }
    Ok(list)
}

fn read_one(ty: &Type, wire: Wire<'_>, depth: usize, before: Option<Value>) -> Result<Option<Value>, String> {
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
            read_struct(schema().get(*id), bytes, depth + 1, &mut map)?;
            Value::Object(map)
        }
        (Shape::Quantity, Wire::Bytes(bytes)) => match text_at(bytes, 1)? {
            Some(text) if !text.is_empty() => text.into(),
            _ => "0".into(),
        },
        (Shape::IntOrString, Wire::Bytes(bytes)) => match number_at(bytes, 1)? {
            0 => (number_at(bytes, 2)? as i32).into(),
            _ => text_at(bytes, 3)?.unwrap_or_default().into(),
        },
        (Shape::Time | Shape::MicroTime, Wire::Bytes(bytes)) => {
            let (seconds, nanos) = (number_at(bytes, 1)? as i64, number_at(bytes, 2)? as i32);
            if (seconds, nanos) == (0, 0) {
                return Ok(None);
            }
            let text = Timestamp::from_seconds(seconds).to_string();
            if ty.shape == Shape::Time {
                text.into()
            } else {
                format!("{}.{:06}Z", text.trim_end_matches('Z'), (nanos / 1_000).clamp(0, 999_999)).into()
            }
        }
        (Shape::Raw, Wire::Bytes(bytes)) => match bytes_at(bytes, 1)? {
            Some(json) if !json.is_empty() => {
                serde_json::from_slice(json).map_err(|error| format!("an embedded object is not JSON: {error}"))?
            }
            _ => return Ok(None),
        },
        // The wire type does not match the field's type: a field of another version.
        _ => return Ok(before),
    };
    Ok(Some(value))
}

fn bytes_at(message: &[u8], number: u32) -> Result<Option<&[u8]>, String> {
    let mut found = None;
    for part in Parts(message) {
        match part? {
            (at, Wire::Bytes(bytes)) if at == number => found = Some(bytes),
            _ => {}
        }
    }
    Ok(found)
}

fn text_at(message: &[u8], number: u32) -> Result<Option<&str>, String> {
    bytes_at(message, number)?.map(utf8).transpose()
}

fn number_at(message: &[u8], number: u32) -> Result<u64, String> {
    let mut found = 0;
    for part in Parts(message) {
        match part? {
            (at, Wire::Number(value)) if at == number => found = value,
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use serde_json::json;

    use super::*;

    const JOB: (&str, &str, &str) = ("batch", "v1", "Job");

    /// What `kubectl create job a --image=busybox -- true` sends.
    const FROM_KUBECTL: &str = "6b3873000a0f0a0862617463682f763112034a6f62127e0a110a016112001a0022002a0032003800420012\
        5f325d0a100a0012001a0022002a00320038004200124912260a016112 0762757379626f781a04747275652a0042006a007200800100\
        880100900100a201001a054e657665723200420 04a005200580060006800820100 8a01009a0100c201001a08200028003000 3a00\
        1a002200";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<char> = hex.chars().filter(char::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
    }

    /// A field with bytes in it.
    fn part(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        bytes.extend_from_slice(content);
        bytes
    }

    /// An object of a kind, in its envelope.
    fn sent(version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
        let about = [part(1, version.as_bytes()), part(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), part(1, &about), part(2, object)].concat()
    }

    #[test]
    fn what_kubectl_sends_is_the_job_it_means() {
        let job = to_json(&bytes(FROM_KUBECTL), JOB).unwrap();
        assert_eq!((&job["apiVersion"], &job["kind"]), (&json!("batch/v1"), &json!("Job")));
        assert_eq!(job["metadata"]["name"], "a");
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["restartPolicy"], "Never");
        let container = &pod["containers"][0];
        assert_eq!(container["command"], json!(["true"]));
        assert_eq!(container["image"], "busybox");
        assert_eq!(job["metadata"].get("creationTimestamp"), None, "no time is not the year 1");
    }

    #[test]
    fn values_of_every_shape_are_read() {
        let metadata = part(1, &part(1, b"x"));
        let secret = [metadata.clone(), part(2, &[part(1, b"k"), part(2, b"\x00\xff")].concat())].concat();
        let secret = to_json(&sent("v1", "Secret", &secret), ("", "v1", "Secret")).unwrap();
        assert_eq!(secret["data"], json!({"k": "AP8="}));

        let quota = part(1, &[part(1, b"pods"), part(2, &part(1, b"3"))].concat());
        let quota = to_json(&sent("v1", "ResourceQuota", &part(2, &quota)), ("", "v1", "ResourceQuota")).unwrap();
        assert_eq!(quota["spec"]["hard"], json!({"pods": "3"}));

        let budget = |value: &[u8]| {
            let object = sent("policy/v1", "PodDisruptionBudget", &part(2, &part(1, value)));
            to_json(&object, ("policy", "v1", "PodDisruptionBudget")).unwrap()["spec"]["minAvailable"].clone()
        };
        assert_eq!(budget(&[0x08, 1, 0x10, 0, 0x1a, 3, b'5', b'0', b'%']), "50%");
        assert_eq!(budget(&[0x08, 0, 0x10, 7]), 7);
        let minus_one = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(budget(&[&[0x08, 0, 0x10][..], &minus_one].concat()), -1);

        let lease = part(4, &[0x08, 1, 0x10, 0xd8, 0x36]);
        let lease =
            to_json(&sent("coordination.k8s.io/v1", "Lease", &part(2, &lease)), ("coordination.k8s.io", "v1", "Lease"));
        assert_eq!(lease.unwrap()["spec"]["renewTime"], "1970-01-01T00:00:01.000007Z");

        let policy = [0x0a, 2, b'I', b'n', 0x18, 5, 0x1a, 1, 6];
        let rule = part(2, &policy);
        let job = part(2, &[vec![11 << 3 | 2, 13], part(1, &rule)].concat());
        let job = to_json(&sent("batch/v1", "Job", &job), JOB).unwrap();
        let values = &job["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"];
        assert_eq!(values, &json!([5, 6]), "numbers one by one and in one piece");
    }

    #[test]
    fn broken_messages_are_refused_in_peace() {
        let whole = bytes(FROM_KUBECTL);
        for length in 0..whole.len() {
            // Truncated or changed anywhere, the conversion returns a result, whichever it is.
            let _ = to_json(&whole[..length], JOB);
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[length] ^= 1 << bit;
                let _ = to_json(&changed, JOB);
            }
        }
        for (body, why) in [
            (&b"{}"[..], "does not appear to be a protobuf message"),
            (&sent("batch/v9", "Job", b""), "no kind \"Job\" is registered for version \"batch/v9\""),
            (&sent("batch/v1", "Job", &[0x12, 0x7f]), "breaks off"),
            (&sent("batch/v1", "Job", &part(1, &part(1, b"\xff"))), "not UTF-8"),
        ] {
            let failure = to_json(body, JOB).unwrap_err();
            assert!(failure.code == 400 && failure.message.contains(why), "{}", failure.message);
        }
    }

    #[test]
    fn every_kind_that_clients_send_has_its_numbers() {
        let numbers = numbers();
        for (group, version, kind) in schema().kinds() {
            let structure = schema().kind(group, version, kind).unwrap();
            let entries = numbers.get(&(structure.table, structure.name));
            assert!(entries.is_some_and(|entries| !entries.is_empty()), "{group}/{version} {kind}");
        }
    }
}
