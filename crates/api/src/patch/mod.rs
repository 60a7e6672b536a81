//! The three kinds of patch: a list of operations (JSON patch), a document that is merged into the object (merge
//! patch), and one that uses the merge keys of lists (strategic merge patch).
//!
//! A patch is applied to the object as a client sees it, `apiVersion` and `kind` included, and the result must conform
//! to the schema again: [`patched`] does both. Errors have the messages of kube-apiserver, which differ a little
//! between the kinds of patch.

mod golang;
mod merge;
mod operations;
mod strategic;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write;

use tally_value::{Map, Text, Value};

use crate::decode::conform::{MAX_TOLD, Words, conform};
use crate::decode::conformed::{Patch, leave_out_where_patched};
use crate::decode::json::{self, JsonNode};
use crate::decode::{Decoded, Sent, accept, bad_patch, patch_result};
use crate::kinds::Resource;
use crate::options::{FieldValidation, PatchKind};
use crate::schema::{Struct, schema};
use crate::status_error::{Details, StatusError};

/// The most operations of a JSON patch, as in kube-apiserver.
const MAX_OPERATIONS: usize = 10_000;

/// The result of applying the patch to `current`, conformed to the schema. `current` conforms already.
pub fn patched<'a>(
    resource: &Resource,
    kind: PatchKind,
    current: Value,
    patch: impl Into<Sent<'a>>,
    validation: FieldValidation,
) -> Result<Decoded, StatusError> {
    let patch = patch.into();
    if let Sent::Tree(tree) = patch
        && let Some(object) = merged_tree(resource, kind, &current, tree)?
    {
        return Ok(Decoded { object, warnings: Vec::new(), unsettled: false });
    }
    let tell = validation != FieldValidation::Ignore;
    let document = Document::parse(kind, patch)?;
    let told = if tell { document.told() } else { Vec::new() };
    let mut value = document.apply(resource, patch, current)?;
    if told.is_empty() && document.leaves_conformed(resource, &mut value) {
        return Ok(Decoded { object: value, warnings: told, unsettled: false });
    }
    conform_result(resource, kind, &document, value, told, validation)
}

fn conform_result(
    resource: &Resource,
    kind: PatchKind,
    document: &Document<'_>,
    mut value: Value,
    told: Vec<String>,
    validation: FieldValidation,
) -> Result<Decoded, StatusError> {
    let untouched = document.untouched(&mut value);
    let mut decoded = hold(resource, kind, document, &value, told, validation)?;
    untouched.put_back(&mut decoded.object);
    Ok(decoded)
}

/// The result of a patch by a client in this process, which needs no conforming. None: it may need it.
fn merged_tree(
    resource: &Resource,
    kind: PatchKind,
    current: &Value,
    patch: &Value,
) -> Result<Option<Value>, StatusError> {
    let structure = structure(resource)?;
    let mut value = match (kind, patch) {
        (PatchKind::Merge, Value::Object(_)) => {
            let mut value = current.clone();
            merge::apply(&mut value, patch.clone());
            value
        }
        (PatchKind::Strategic, Value::Object(_)) => strategic::apply(structure, current.clone(), patch.clone())?,
        _ => return Ok(None),
    };
    Ok(needs_no_conforming(structure, &mut value, patch, kind == PatchKind::Strategic).then_some(value))
}

/// Whether the result of a patch conforms, after what the wire form leaves out was removed from it.
fn needs_no_conforming(structure: &Struct, value: &mut Value, patch: &impl Patch, directives: bool) -> bool {
    let Value::Object(object) = value else { return false };
    // What a patch says about the kind of the object is checked or ignored, depending on the kind of patch.
    let is_kind = |name: &str| matches!(name.rsplit('/').next(), Some("apiVersion" | "kind"));
    let names_kind = patch.fields().is_some_and(|mut all| all.any(|(name, _)| is_kind(name)));
    !names_kind && leave_out_where_patched(structure, object, patch, directives)
}

/// What a patch does not name: fields of the object, and fields of the parts that it names.
#[derive(Default)]
struct Untouched {
    fields: Map,
    within: Vec<(Text, Map)>,
}

impl Untouched {
    fn put_back(self, object: &mut Value) {
        let Value::Object(object) = object else { return };
        object.extend(self.fields);
        for (part, fields) in self.within {
            if fields.is_empty() {
                continue;
            }
            // A part without any of the named fields is left out when it is conformed.
            let part = object.entry(part).or_insert(Value::Null);
            if part.is_null() {
                *part = Value::Object(Map::new());
            }
            if let Value::Object(part) = part {
                part.extend(fields);
            }
        }
    }
}

/// The fields that a map of a patch names, also in directives for one field. None: a directive applies to the whole map.
fn names<'n>(map: &'n [(Cow<'_, str>, JsonNode<'_>)]) -> Option<Vec<&'n str>> {
    let mut names = Vec::with_capacity(map.len() + 1);
    for (name, _) in map {
        if let Some(directive) = name.strip_prefix('$') {
            names.push(directive.split_once('/')?.1);
        }
        // In a merge patch it is the name of a field, if an unknown one.
        names.push(name);
    }
    Some(names)
}

/// Removes the fields that are not named.
fn take_others(object: &mut Map, named: impl Fn(&str) -> bool) -> Map {
    let (held, others) = std::mem::take(object).into_iter().partition(|(name, _)| named(name));
    *object = held;
    others
}

fn hold(
    resource: &Resource,
    kind: PatchKind,
    document: &Document<'_>,
    value: &Value,
    told: Vec<String>,
    validation: FieldValidation,
) -> Result<Decoded, StatusError> {
    if kind != PatchKind::Strategic {
        return patch_result(resource, value, told, validation);
    }
    let tell = validation != FieldValidation::Ignore;
    let shown = || document.shown();
    let read = conform(structure(resource)?, &JsonNode::from(value), Words::Converter, tell);
    let mut read = read.map_err(|why| bad_patch(&shown(), why))?;
    read.told.sort();
    // The patch cannot change the kind: what it contains about it is ignored.
    read.object.insert("apiVersion", resource.api_version().into());
    read.object.insert("kind", resource.kind.into());
    accept(read, told, validation, shown)
}

/// The result of applying the patch to `current`, not yet conformed to the schema.
pub fn apply(resource: &Resource, kind: PatchKind, current: &Value, patch: &[u8]) -> Result<Value, StatusError> {
    Document::parse(kind, patch.into())?.apply(resource, patch.into(), current.clone())
}

fn structure(resource: &Resource) -> Result<&'static Struct, StatusError> {
    let found = schema().kind(resource.group, resource.version, resource.kind);
    found.ok_or_else(|| StatusError::internal(format!("no schema for {}", resource.kind)))
}

/// A patch that has been parsed and has the right form.
enum Document<'t> {
    Operations(JsonNode<'t>),
    Merge(JsonNode<'t>),
    Strategic(JsonNode<'t>),
}

impl<'t> Document<'t> {
    fn parse(kind: PatchKind, patch: Sent<'t>) -> Result<Self, StatusError> {
        // The errors of the two kinds that kubectl does not use by default have a prefix.
        let lead = if kind == PatchKind::Strategic { "" } else { "error decoding patch: " };
        let refused = |why: &dyn std::fmt::Display| StatusError::bad_request(format!("{lead}{why}"));
        let wrong = |node: &JsonNode<'_>, wanted: &str| {
            refused(&format_args!("json: cannot unmarshal {} into Go value of type {wanted}", node.kind()))
        };
        let node = match patch {
            Sent::Text(text) => json::parse(text).map_err(|error| refused(&error))?,
            Sent::Tree(tree) => JsonNode::from(tree),
        };
        match (kind, node) {
            (PatchKind::Json, node @ (JsonNode::List(_) | JsonNode::Null)) => {
                operations::check(&node).map_err(|why| refused(&why))?;
                Ok(Self::Operations(node))
            }
            (PatchKind::Json, node) => Err(wrong(&node, "[]handlers.jsonPatchOp")),
            (PatchKind::Merge, JsonNode::Null) => Err(StatusError::bad_request("Invalid JSON Patch")),
            (PatchKind::Merge, node @ JsonNode::Map(_)) => Ok(Self::Merge(node)),
            (PatchKind::Strategic, node @ (JsonNode::Map(_) | JsonNode::Null)) => Ok(Self::Strategic(node)),
            (PatchKind::Merge | PatchKind::Strategic, node) => Err(wrong(&node, "map[string]interface {}")),
            (PatchKind::Apply, _) => Err(StatusError::internal("server-side apply is no patch of this kind")),
        }
    }

    /// Duplicate keys in the patch itself, and unknown fields of operations.
    fn told(&self) -> Vec<String> {
        let mut told = Vec::new();
        match self {
            Self::Operations(node) => {
                operations::tell(node, &mut told);
                told.iter_mut().for_each(|text| text.insert_str(0, "json patch "));
            }
            Self::Merge(node) | Self::Strategic(node) => duplicates(node, &mut String::new(), &mut told),
        }
        told
    }

    /// The patch as the error for an invalid strategic patch shows it.
    fn shown(&self) -> String {
        match self {
            Self::Strategic(node) => golang::print(&node.to_value()),
            Self::Operations(_) | Self::Merge(_) => String::new(),
        }
    }

    /// Whether the result needs no conforming.
    fn leaves_conformed(&self, resource: &Resource, value: &mut Value) -> bool {
        let Ok(structure) = structure(resource) else { return false };
        match self {
            Self::Operations(_) => false,
            Self::Merge(node) => needs_no_conforming(structure, value, node, false),
            Self::Strategic(node) => needs_no_conforming(structure, value, node, true),
        }
    }

    /// Removes what the patch does not name and returns it: it is unchanged, and conforms. Most patches name one part of
    /// an object and little in it, and what they do not name stays shared with the stored object.
    fn untouched(&self, value: &mut Value) -> Untouched {
        let (Self::Merge(JsonNode::Map(named)) | Self::Strategic(JsonNode::Map(named)), Value::Object(object)) =
            (self, value)
        else {
            return Untouched::default();
        };
        let Some(names) = names(named) else { return Untouched::default() };
        let fields = take_others(object, |name| matches!(name, "apiVersion" | "kind") || names.contains(&name));
        let mut within = Vec::new();
        for (name, given) in named {
            // Of a key that is there twice, the last value counts.
            let once = names.iter().filter(|other| *other == name).count() == 1;
            if let JsonNode::Map(given) = given
                && once
                && let Some(below) = self::names(given)
                && let Some(Value::Object(part)) = object.get_mut(name)
            {
                within.push((name.as_ref().into(), take_others(part, |name| below.contains(&name))));
            }
        }
        Untouched { fields, within }
    }

    /// `sent` is what was parsed.
    fn apply(&self, resource: &Resource, sent: Sent<'_>, current: Value) -> Result<Value, StatusError> {
        let value = |node: &JsonNode<'_>| match sent {
            Sent::Text(_) => node.to_value(),
            Sent::Tree(tree) => tree.clone(),
        };
        match self {
            Self::Operations(JsonNode::List(items)) => {
                if items.len() > MAX_OPERATIONS {
                    let count = items.len();
                    let text = format!(
                        "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, \
                         got {count}"
                    );
                    return Err(StatusError::new(413, "RequestEntityTooLarge", text));
                }
                let (mut value, mut copied) = (current, 0);
                for item in items {
                    operations::apply(&mut value, item, &mut copied).map_err(|_| rejected())?;
                }
                Ok(value)
            }
            Self::Merge(node) => {
                let mut patched = current;
                merge::apply(&mut patched, value(node));
                Ok(patched)
            }
            Self::Strategic(node @ JsonNode::Map(_)) => strategic::apply(structure(resource)?, current, value(node)),
            // `null` changes nothing.
            Self::Operations(_) | Self::Strategic(_) => Ok(current),
        }
    }
}

/// The operations do not fit the object. kube-apiserver does not say which one, and why.
fn rejected() -> StatusError {
    let text = "the server rejected our request due to an error in our request";
    StatusError::new(422, "Invalid", text).with(Details::default())
}

/// Keys that occur twice in one map: `duplicate field "data.a"`.
fn duplicates(node: &JsonNode<'_>, path: &mut String, told: &mut Vec<String>) {
    let length = path.len();
    match node {
        JsonNode::Map(entries) => {
            let mut seen: HashSet<&str> = HashSet::with_capacity(entries.len());
            for (key, value) in entries {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
                if !seen.insert(key) && told.len() < MAX_TOLD {
                    let text = format!("duplicate field \"{path}\"");
                    if !told.contains(&text) {
                        told.push(text);
                    }
                }
                duplicates(value, path, told);
                path.truncate(length);
            }
        }
        JsonNode::List(items) => {
            for (index, item) in items.iter().enumerate() {
                // Infallible: writing to a String has no errors.
                let _ = write!(path, "[{index}]");
                duplicates(item, path, told);
                path.truncate(length);
            }
        }
        _ => {}
    }
}
