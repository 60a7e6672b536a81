//! JSON patch (RFC 6902), with the deviations of kube-apiserver: the text before the first slash of a path is ignored,
//! a missing value is `null`, negative positions count from the end of a list, and a key that an object does not have
//! can be replaced, and copied as `null`.

use std::borrow::Cow;

use tally_value::{Text, Value};

use super::duplicates;
use crate::decode::MAX_BODY;
use crate::decode::conform::MAX_TOLD;
use crate::decode::json::JsonNode;

/// An operation does not fit the object.
#[derive(Debug, PartialEq, Eq)]
pub struct Misfit;

/// Checks that every element is an object whose fields have the right types.
pub fn check(node: &JsonNode<'_>) -> Result<(), String> {
    let JsonNode::List(items) = node else { return Ok(()) };
    for item in items {
        let entries = match item {
            JsonNode::Map(entries) => entries,
            JsonNode::Null => continue,
            other => {
                let given = other.kind();
                return Err(format!("json: cannot unmarshal {given} into Go value of type handlers.jsonPatchOp"));
            }
        };
        for (key, value) in entries {
            if matches!(key.as_ref(), "op" | "path" | "from") && !matches!(value, JsonNode::Text(_) | JsonNode::Null) {
                let given = value.kind();
                return Err(format!(
                    "json: cannot unmarshal {given} into Go struct field jsonPatchOp.{key} of type string"
                ));
            }
        }
    }
    Ok(())
}

/// Reports unknown and duplicate fields of operations.
pub fn tell(node: &JsonNode<'_>, told: &mut Vec<String>) {
    let JsonNode::List(items) = node else { return };
    for (index, item) in items.iter().enumerate() {
        if let JsonNode::Map(entries) = item {
            for (key, _) in entries {
                if !matches!(key.as_ref(), "op" | "path" | "from" | "value") && told.len() < MAX_TOLD {
                    told.push(format!("unknown field \"[{index}].{key}\""));
                }
            }
        }
    }
    duplicates(node, &mut String::new(), told);
}

/// Applies one operation. `copied`: the number of bytes that earlier operations copied.
pub fn apply(document: &mut Value, operation: &JsonNode<'_>, copied: &mut usize) -> Result<(), Misfit> {
    let JsonNode::Map(entries) = operation else { return Err(Misfit) };
    let (mut op, mut path, mut from, mut value) = (None, None, None, None);
    for (key, node) in entries {
        match (key.as_ref(), node) {
            ("op", JsonNode::Text(text)) => op = Some(text.as_ref()),
            ("path", JsonNode::Text(text)) => path = Some(text.as_ref()),
            ("from", JsonNode::Text(text)) => from = Some(text.as_ref()),
            ("value", node) => value = Some(node.to_value()),
            _ => {}
        }
    }
    let path = path.ok_or(Misfit)?;
    let given = |value: Option<Value>| value.unwrap_or(Value::Null);
    match op {
        Some("add") => add(document, path, given(value)),
        Some("remove") => remove(document, path).map(drop),
        Some("replace") => replace(document, path, given(value)),
        Some("move") => {
            let value = remove(document, from.ok_or(Misfit)?)?;
            add(document, path, value)
        }
        Some("copy") => {
            let value = look(document, from.ok_or(Misfit)?)?.clone();
            // Copies of copies would double the object repeatedly.
            *copied = copied.saturating_add(weight(&value));
            if *copied > MAX_BODY {
                return Err(Misfit);
            }
            add(document, path, value)
        }
        Some("test") => {
            let found = if path.is_empty() { document } else { look(document, path)? };
            if *found == given(value) { Ok(()) } else { Err(Misfit) }
        }
        _ => Err(Misfit),
    }
}

/// The object or list that contains the last step of a path, and that step.
fn parent<'d, 'p>(document: &'d mut Value, path: &'p str) -> Result<(&'d mut Value, Cow<'p, str>), Misfit> {
    let (_, path) = path.split_once('/').ok_or(Misfit)?;
    let (way, last) = path.rsplit_once('/').map_or((None, path), |(way, last)| (Some(way), last));
    let mut at = document;
    for step in way.into_iter().flat_map(|way| way.split('/')) {
        at = child(at, &unescape(step))?;
    }
    Ok((at, unescape(last)))
}

/// The value at a path. A key that an object does not have is equivalent to `null`.
fn look<'d>(document: &'d mut Value, path: &str) -> Result<&'d Value, Misfit> {
    static NULL: Value = Value::Null;
    match parent(document, path)? {
        (Value::Object(map), key) => Ok(map.get(key.as_ref()).unwrap_or(&NULL)),
        (list, step) => child(list, &step).map(|found| &*found),
    }
}

/// Replaces the whole document, an element of a list, or a key of an object, present or not.
fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), Misfit> {
    if path.is_empty() {
        // A document must be an object or a list.
        return if value.is_object() || value.is_array() {
            *document = value;
            Ok(())
        } else {
            Err(Misfit)
        };
    }
    match parent(document, path)? {
        (Value::Object(map), key) => {
            map.insert(key.into_owned(), value);
            Ok(())
        }
        (list, step) => {
            *child(list, &step)? = value;
            Ok(())
        }
    }
}

fn child<'d>(parent: &'d mut Value, step: &str) -> Result<&'d mut Value, Misfit> {
    match parent {
        Value::Object(map) => map.get_mut(step).ok_or(Misfit),
        Value::Array(items) => {
            let position = position(step, items.len())?;
            items.get_mut(position).ok_or(Misfit)
        }
        _ => Err(Misfit),
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), Misfit> {
    match parent(document, path)? {
        (Value::Object(map), key) => {
            map.insert(key.into_owned(), value);
            Ok(())
        }
        (Value::Array(items), step) => {
            let position = if step == "-" { items.len() } else { position(&step, items.len() + 1)? };
            items.insert(position, value);
            Ok(())
        }
        _ => Err(Misfit),
    }
}

fn remove(document: &mut Value, path: &str) -> Result<Value, Misfit> {
    match parent(document, path)? {
        (Value::Object(map), key) => map.remove(key.as_ref()).ok_or(Misfit),
        (Value::Array(items), step) => {
            let position = position(&step, items.len())?;
            Ok(items.remove(position))
        }
        _ => Err(Misfit),
    }
}

/// A position in a list of `length` elements; negative ones count from the end.
fn position(step: &str, length: usize) -> Result<usize, Misfit> {
    let number: i64 = step.parse().map_err(|_| Misfit)?;
    let length = i64::try_from(length).map_err(|_| Misfit)?;
    let number = if number < 0 { number + length } else { number };
    if (0..length).contains(&number) { usize::try_from(number).map_err(|_| Misfit) } else { Err(Misfit) }
}

/// `~1` is a slash and `~0` a tilde.
fn unescape(step: &str) -> Cow<'_, str> {
    if step.contains('~') { step.replace("~1", "/").replace("~0", "~").into() } else { step.into() }
}

/// Roughly the bytes of its text.
fn weight(value: &Value) -> usize {
    let entry = |(key, value): (&Text, &Value)| key.len() + 4 + weight(value);
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| weight(item) + 1).sum::<usize>() + 2,
        Value::Object(map) => map.iter().map(entry).sum::<usize>() + 2,
    }
}
