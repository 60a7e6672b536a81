//! OpenAPI v2 in protobuf, the form in which older versions of kubectl read it: a message for each kind of JSON object,
//! whose fields have numbers. What this server's document does not have is left out.

use tally_value::{Map, Value};

use super::Parts;

/// What a field of a message is.
enum Form {
    Text,
    Flag,
    /// Several strings.
    Texts,
    Message(&'static Message),
    /// Messages in a list.
    Messages(&'static Message),
    /// A message with the named entries of a map in this field.
    Named(u32, &'static Message),
    /// A message that contains the message, in this field.
    Inside(u32, &'static Message),
    /// A message that contains the messages of a list, or the only one.
    Items(&'static Message),
    /// A message with strings, or the only one.
    Types,
    /// Values that are written as text.
    Values,
    /// Each is one of several kinds of messages.
    Parameters,
}

struct Message {
    fields: &'static [(&'static str, u32, Form)],
    /// The field of what begins with `x-`.
    extensions: u32,
}

static PATH: Message = Message {
    fields: &[
        ("get", 2, Form::Message(&OPERATION)),
        ("put", 3, Form::Message(&OPERATION)),
        ("post", 4, Form::Message(&OPERATION)),
        ("delete", 5, Form::Message(&OPERATION)),
        ("patch", 8, Form::Message(&OPERATION)),
        ("parameters", 9, Form::Parameters),
    ],
    extensions: 10,
};
static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, Form::Texts),
        ("description", 3, Form::Text),
        ("operationId", 5, Form::Text),
        ("produces", 6, Form::Texts),
        ("consumes", 7, Form::Texts),
        ("parameters", 8, Form::Parameters),
        ("responses", 9, Form::Named(1, &RESPONSE_OR_REFERENCE)),
    ],
    extensions: 13,
};
/// Field 1 of the message that a response is part of.
static RESPONSE_OR_REFERENCE: Message = Message { fields: &[("", 1, Form::Message(&RESPONSE))], extensions: 0 };
static RESPONSE: Message =
    Message { fields: &[("description", 1, Form::Text), ("schema", 2, Form::Inside(1, &SCHEMA))], extensions: 5 };
static BODY_PARAMETER: Message = Message {
    fields: &[
        ("name", 2, Form::Text),
        ("in", 3, Form::Text),
        ("required", 4, Form::Flag),
        ("schema", 5, Form::Message(&SCHEMA)),
    ],
    extensions: 6,
};
static QUERY_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Form::Flag),
        ("in", 2, Form::Text),
        ("name", 4, Form::Text),
        ("type", 6, Form::Text),
        ("uniqueItems", 20, Form::Flag),
    ],
    extensions: 23,
};
static PATH_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Form::Flag),
        ("in", 2, Form::Text),
        ("name", 4, Form::Text),
        ("type", 5, Form::Text),
        ("uniqueItems", 19, Form::Flag),
    ],
    extensions: 22,
};
static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, Form::Text),
        ("format", 2, Form::Text),
        ("description", 4, Form::Text),
        ("required", 19, Form::Texts),
        ("enum", 20, Form::Values),
        ("additionalProperties", 21, Form::Inside(1, &SCHEMA)),
        ("type", 22, Form::Types),
        ("items", 23, Form::Items(&SCHEMA)),
        ("properties", 25, Form::Named(1, &SCHEMA)),
    ],
    extensions: 31,
};

/// A path, in protobuf.
pub fn path(value: &Value) -> Vec<u8> {
    message(value, &PATH)
}

/// A schema, in protobuf.
pub fn schema(value: &Value) -> Vec<u8> {
    message(value, &SCHEMA)
}

/// A document, from its parts in protobuf.
pub fn document(title: &str, version: &str, paths: Parts, definitions: Parts) -> Vec<u8> {
    fn named(parts: Parts, number: u32) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, value) in parts {
            let mut entry = wrapped(1, name.as_bytes());
            bytes(2, &value, &mut entry);
            bytes(number, &entry, &mut out);
        }
        out
    }
    let mut out = wrapped(1, b"2.0");
    let mut info = wrapped(1, title.as_bytes());
    bytes(2, version.as_bytes(), &mut info);
    bytes(2, &info, &mut out);
    bytes(8, &named(paths, 2), &mut out);
    bytes(9, &named(definitions, 1), &mut out);
    out
}

fn message(value: &Value, form: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, number, form) in form.fields {
        // A field without a name is the value itself.
        let value = if name.is_empty() { Some(value) } else { value.get(*name) };
        if let Some(value) = value {
            field(*number, value, form, &mut out);
        }
    }
    for (name, value) in value.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("x-")) {
        if form.extensions > 0 {
            let mut entry = Vec::new();
            bytes(1, name.as_bytes(), &mut entry);
            bytes(2, &any(value), &mut entry);
            bytes(form.extensions, &entry, &mut out);
        }
    }
    out
}

fn field(number: u32, value: &Value, form: &Form, out: &mut Vec<u8>) {
    let list = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    let text = |value: &Value, number: u32, out: &mut Vec<u8>| {
        bytes(number, value.as_str().unwrap_or_default().as_bytes(), out);
    };
    match form {
        Form::Text => text(value, number, out),
        Form::Flag => {
            if value.as_bool() == Some(true) {
                tag(number, 0, out);
                out.push(1);
            }
        }
        Form::Texts => list.iter().for_each(|value| text(value, number, out)),
        Form::Message(form) => bytes(number, &message(value, form), out),
        Form::Messages(form) => list.iter().for_each(|value| bytes(number, &message(value, form), out)),
        Form::Named(inner, form) => {
            let mut entries = Vec::new();
            let empty = Map::new();
            for (name, value) in value.as_object().unwrap_or(&empty) {
                let mut entry = Vec::new();
                bytes(1, name.as_bytes(), &mut entry);
                bytes(2, &message(value, form), &mut entry);
                bytes(*inner, &entry, &mut entries);
            }
            bytes(number, &entries, out);
        }
        Form::Inside(inner, form) => {
            let mut around = Vec::new();
            bytes(*inner, &message(value, form), &mut around);
            bytes(number, &around, out);
        }
        Form::Items(form) => {
            let mut around = Vec::new();
            field(1, value, &Form::Messages(form), &mut around);
            bytes(number, &around, out);
        }
        Form::Types => {
            let mut around = Vec::new();
            list.iter().for_each(|value| text(value, 1, &mut around));
            bytes(number, &around, out);
        }
        Form::Values => list.iter().for_each(|value| bytes(number, &any(value), out)),
        Form::Parameters => {
            for one in list {
                let inner = match one["in"].as_str() {
                    Some("body") => wrapped(1, &message(one, &BODY_PARAMETER)),
                    Some("path") => wrapped(2, &wrapped(4, &message(one, &PATH_PARAMETER))),
                    _ => wrapped(2, &wrapped(3, &message(one, &QUERY_PARAMETER))),
                };
                bytes(number, &wrapped(1, &inner), out);
            }
        }
    }
}

/// A value as YAML, of which JSON is a part.
fn any(value: &Value) -> Vec<u8> {
    wrapped(2, value.to_string().as_bytes())
}

fn wrapped(number: u32, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 6);
    bytes(number, content, &mut out);
    out
}

fn bytes(number: u32, content: &[u8], out: &mut Vec<u8>) {
    tag(number, 2, out);
    varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

fn tag(number: u32, wire_type: u32, out: &mut Vec<u8>) {
    varint(u64::from(number << 3 | wire_type), out);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_value::json;

    #[test]
    fn messages_are_nested_as_their_numbers_say() {
        let schema = json!({"type": "string", "x-a": 1});
        // Type: field 22 with field 1; the extension: field 31 with name and value, which is text in field 2.
        let expected =
            [&[0xb2, 1, 8, 0x0a, 6][..], b"string", &[0xfa, 1, 10, 0x0a, 3], b"x-a", &[0x12, 3, 0x12, 1], b"1"];
        assert_eq!(message(&schema, &SCHEMA), expected.concat());
        let parameter = json!({"parameters": [{"in": "query", "name": "a", "uniqueItems": true}]});
        let inner = [&[0x12, 5][..], b"query", &[0x22, 1], b"a", &[0xa0, 1, 1]].concat();
        let expected = wrapped(9, &wrapped(1, &wrapped(2, &wrapped(3, &inner))));
        assert_eq!(message(&parameter, &PATH), expected);
    }
}
