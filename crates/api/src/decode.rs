//! From text to an object that conforms to its schema.
//!
//! A body is parsed into a tree that keeps order and duplicates (`decode/json.rs`; `decode/yaml.rs`, which builds it from a
//! tree with source positions, `decode/tree.rs`; [`protobuf`], which has neither order nor unknown fields), its `apiVersion`
//! and `kind` name its structure, and one pass over the tree (`decode/conform.rs`) builds the object: known fields
//! only, times and quantities in their canonical form, nothing that the wire form omits. The object contains what the
//! wire form shows for unset fields: `metadata: {}`, `status: {}`, `resources: {}`, the `""` of a container without a
//! name, and `null` for lists, maps and times that may not be omitted. [`At`](crate::field::At) treats `null` as
//! absent.

pub(crate) mod base64;
pub(crate) mod conform;
pub(crate) mod conformed;
pub(crate) mod json;
mod times;
pub mod tree;
pub(crate) mod yaml;

use tally_value::Value;

use crate::field::{ErrorKind, FieldError};
use crate::kinds::Resource;
use crate::options::{FieldValidation, Format};
use crate::protobuf;
use crate::schema::{Shape, Struct, Type, schema};
use crate::status_error::StatusError;
use conform::{Conformed, Words};
use json::JsonNode;

/// What a client sends: a text, or, from a client in this process, the tree of one.
#[derive(Clone, Copy, Debug)]
pub enum Sent<'a> {
    Text(&'a [u8]),
    Tree(&'a Value),
}

impl<'a> From<&'a [u8]> for Sent<'a> {
    fn from(text: &'a [u8]) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a Value> for Sent<'a> {
    fn from(tree: &'a Value) -> Self {
        Self::Tree(tree)
    }
}

/// The largest request body, as in kube-apiserver.
pub const MAX_BODY: usize = 3 * 1024 * 1024;

/// An object that contains known fields only, without what the wire form omits.
#[derive(Clone, Debug)]
pub struct Decoded {
    pub object: Value,
    /// For the Warning header: unknown and duplicate fields, if the client requested warnings.
    pub warnings: Vec<String>,
    /// A time has a fraction of a second, or a list that is always shown is empty. Validation sees them, storage does
    /// not: see [`settle`].
    pub unsettled: bool,
}

/// Decodes a body that must be an object of the resource's kind. The object has its `apiVersion` and `kind`.
pub fn decode<'a>(
    resource: &Resource,
    body: impl Into<Sent<'a>>,
    format: Format,
    validation: FieldValidation,
) -> Result<Decoded, StatusError> {
    decode_as(resource.group, resource.version, resource.kind, body, format, validation)
}

/// Decodes a body that must be an object of this group, version and kind: Eviction, Binding, DeleteOptions, Scale.
pub fn decode_as<'a>(
    group: &str,
    version: &str,
    kind: &str,
    body: impl Into<Sent<'a>>,
    format: Format,
    validation: FieldValidation,
) -> Result<Decoded, StatusError> {
    let (target, body) = ((group, version, kind), body.into());
    let unrecognized = |why: String| {
        let seen = match body {
            Sent::Text(text) => summary(text),
            Sent::Tree(tree) => summary(tree.to_string().as_bytes()),
        };
        StatusError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({seen})"
        ))
    };
    let refused = |error| match error {
        ReadError::Unrecognized(why) => unrecognized(why),
        ReadError::Kind { version, kind, why } => cannot_handle(&version, &kind, target.2, &why),
        ReadError::Version(why) => StatusError::bad_request(why),
    };
    if let Sent::Tree(Value::Object(object)) = body
        && let Some(structure) = schema().kind(group, version, kind)
        && object.get("kind").is_some_and(|it| it == kind)
        && object.get("apiVersion").is_some_and(|it| *it == group_version(group, version))
        && conformed::is_conformed(structure, object)
    {
        return Ok(Decoded { object: object.clone().into(), warnings: Vec::new(), unsettled: false });
    }
    let value;
    let (node, mut told) = match (body, format) {
        (Sent::Tree(tree), _) => (JsonNode::from(tree), Vec::new()),
        (Sent::Text(body), Format::Json) => {
            let parsed = json::parse(body);
            let failed = |error| unrecognized(format!("couldn't get version/kind; json parse error: {error}"));
            (parsed.map_err(failed)?, Vec::new())
        }
        (Sent::Text(body), Format::Yaml) => {
            let parsed = yaml::parse(body).map_err(&unrecognized)?;
            (parsed.node, if validation == FieldValidation::Ignore { Vec::new() } else { parsed.told })
        }
        (Sent::Text(body), Format::Protobuf) => {
            value = message(target, body).map_err(&refused)?;
            (JsonNode::from(&value), Vec::new())
        }
    };
    match read(target, &node, validation != FieldValidation::Ignore) {
        Ok(read) => {
            told.extend(read.told);
            if validation == FieldValidation::Strict && !told.is_empty() {
                let text = format!("strict decoding error: {}", told.join(", "));
                return Err(cannot_handle(version, kind, kind, &text));
            }
            Ok(Decoded { object: Value::Object(read.object), warnings: told, unsettled: read.unsettled })
        }
        Err(error) => Err(refused(error)),
    }
}

/// Decodes the body of a delete. Other kinds than DeleteOptions are unknown there, and messages have no introduction.
pub fn decode_delete_options(body: &[u8], format: Format) -> Result<Value, StatusError> {
    let target = ("", "v1", "DeleteOptions");
    let value;
    let node = match format {
        Format::Json => json::parse(body)
            .map_err(|why| StatusError::bad_request(format!("couldn't get version/kind; json parse error: {why}")))?,
        Format::Yaml => yaml::parse(body).map_err(StatusError::bad_request)?.node,
        Format::Protobuf => {
            value = message(target, body).map_err(|error| match error {
                ReadError::Unrecognized(why) | ReadError::Version(why) => StatusError::bad_request(why),
                ReadError::Kind { why, .. } => StatusError::bad_request(why.replace(SCHEME, OPTIONS_SCHEME)),
            })?;
            JsonNode::from(&value)
        }
    };
    match read(target, &node, false) {
        Ok(read) => Ok(Value::Object(read.object)),
        Err(ReadError::Unrecognized(why) | ReadError::Version(why)) => Err(StatusError::bad_request(why)),
        Err(ReadError::Kind { why, .. }) => {
            let (version, kind) = claims(&node).unwrap_or_default();
            let why = match (kind, version) {
                ("" | "DeleteOptions", _) => why.replace(SCHEME, OPTIONS_SCHEME),
                (kind, "") => not_registered(kind, target.1, OPTIONS_SCHEME),
                (kind, version) => not_registered(kind, version, OPTIONS_SCHEME),
            };
            Err(StatusError::bad_request(why))
        }
    }
}

/// Conforms the result of a patch to the schema of the resource. Errors are reported as errors of the patch.
pub fn conform(resource: &Resource, value: Value, validation: FieldValidation) -> Result<Decoded, StatusError> {
    patch_result(resource, &value, Vec::new(), validation)
}

/// As `conform`. `told`: the warnings about unknown and duplicate fields of the patch itself.
pub(crate) fn patch_result(
    resource: &Resource,
    value: &Value,
    told: Vec<String>,
    validation: FieldValidation,
) -> Result<Decoded, StatusError> {
    let target = (resource.group, resource.version, resource.kind);
    let read = match read(target, &JsonNode::from(value), validation != FieldValidation::Ignore) {
        Ok(read) => read,
        Err(ReadError::Kind { why, .. } | ReadError::Unrecognized(why) | ReadError::Version(why)) => {
            return Err(bad_patch(&value.to_string(), why));
        }
    };
    accept(read, told, validation, || value.to_string())
}

/// The result of a patch, unless validation is strict and there are unknown or duplicate fields.
pub(crate) fn accept(
    read: Conformed,
    mut told: Vec<String>,
    validation: FieldValidation,
    shown: impl FnOnce() -> String,
) -> Result<Decoded, StatusError> {
    told.extend(read.told);
    if validation == FieldValidation::Strict && !told.is_empty() {
        return Err(bad_patch(&shown(), format!("strict decoding error: {}", told.join(", "))));
    }
    Ok(Decoded { object: read.object.into(), warnings: told, unsettled: read.unsettled })
}

/// The status error for a patch whose result is not a valid object of the kind.
pub(crate) fn bad_patch(shown: &str, why: String) -> StatusError {
    let (path, value) = ("patch".to_owned(), Some(Value::from(shown).to_string()));
    let error = FieldError::new(ErrorKind::Invalid, path, value, why);
    StatusError::invalid("", "", "", &[error])
}

/// Why a text is not valid JSON, with the message of kube-apiserver.
pub fn syntax_error(text: &[u8]) -> Option<String> {
    json::parse(text).err().map(|error| error.to_string())
}

/// Why a text is not a valid time, with the message of kube-apiserver.
pub fn time_error(text: &str) -> Option<String> {
    times::read(text, false).err()
}

/// Converts an object to its stored form: times to the second, and no empty lists.
pub fn settle(resource: &Resource, object: &mut Value) {
    if let (Some(structure), Value::Object(map)) =
        (schema().kind(resource.group, resource.version, resource.kind), object)
    {
        settle_fields(structure, map);
    }
}

fn settle_fields(structure: &Struct, map: &mut tally_value::Map) {
    for (key, value) in map {
        if let Some(field) = structure.field(key) {
            settle_value(&field.ty, value);
        }
    }
}

fn settle_value(ty: &Type, value: &mut Value) {
    match (&ty.shape, value) {
        (Shape::Time, Value::String(text)) => times::truncate(text),
        (Shape::Struct(id), Value::Object(map)) => settle_fields(schema().get(*id), map),
        (Shape::List(_), value @ Value::Array(_)) if value.as_array().is_some_and(Vec::is_empty) => {
            *value = Value::Null
        }
        (Shape::List(inner), Value::Array(items)) => items.iter_mut().for_each(|item| settle_value(inner, item)),
        (Shape::Map(inner), Value::Object(map)) => map.values_mut().for_each(|item| settle_value(inner, item)),
        _ => {}
    }
}

/// Why a tree is not an object of the expected kind.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// It does not name its kind and version.
    Unrecognized(String),
    /// It names this kind, and cannot be decoded as the expected one.
    Kind { version: String, kind: String, why: String },
    /// It is valid except for its version.
    Version(String),
}

fn cannot_handle(version: &str, kind: &str, wanted: &str, why: &str) -> StatusError {
    StatusError::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {wanted}: {why}"))
}

/// Decodes a tree as an object of group, version and kind `target`.
pub(crate) fn read(target: (&str, &str, &str), node: &JsonNode<'_>, tell: bool) -> Result<Conformed, ReadError> {
    let (api_version, kind) = claims(node)
        .map_err(|why| ReadError::Unrecognized(format!("couldn't get version/kind; json parse error: {why}")))?;
    let (group, version, kind) = claimed_kind(target, api_version, kind)?;
    let refused = |why| ReadError::Kind { version: version.to_owned(), kind: kind.to_owned(), why };
    let wanted = registered(target.0, target.1, target.2).map_err(refused)?;
    let claimed = registered(group, version, kind).map_err(refused)?;
    let mut read = conform::conform(claimed.structure, node, Words::Json, tell).map_err(refused)?;
    if (claimed.structure.internal, claimed.name) != (wanted.structure.internal, wanted.name) {
        let (from, to, package) = (claimed.name, wanted.name, wanted.structure.internal);
        return Err(refused(format!("converting ({version}.{from}) to ({package}.{to}): unknown conversion")));
    }
    // Options are the same in every group, and an Eviction of the older version is accepted.
    let same = claimed.structure.table == "meta" || (group, kind) == ("policy", "Eviction");
    if (group, version) != (target.0, target.1) && !same {
        let (given, expected) = (group_version(group, version), group_version(target.0, target.1));
        return Err(ReadError::Version(format!(
            "the API version in the data ({given}) does not match the expected API version ({expected})"
        )));
    }
    read.object.insert("apiVersion", group_version(target.0, target.1).into());
    read.object.insert("kind", target.2.into());
    Ok(read)
}

/// Group, version and kind of a body that has this `apiVersion` and `kind`. Where it does not say, the expected ones apply.
fn claimed_kind<'k>(
    target: (&'k str, &'k str, &'k str),
    api_version: &'k str,
    kind: &'k str,
) -> Result<(&'k str, &'k str, &'k str), ReadError> {
    let kind = if kind.is_empty() { target.2 } else { kind };
    match api_version.split('/').collect::<Vec<_>>().as_slice() {
        [""] | ["", ""] => Ok((target.0, target.1, kind)),
        [version] => Ok(("", version, kind)),
        [group, ""] if *group == target.0 => Ok((group, target.1, kind)),
        [group, version] => Ok((group, version, kind)),
        _ => Err(ReadError::Unrecognized(format!("unexpected GroupVersion string: {api_version}"))),
    }
}

/// The JSON form of a body in protobuf, before it is conformed.
fn message(target: (&str, &str, &str), body: &[u8]) -> Result<Value, ReadError> {
    let envelope = protobuf::envelope(body).map_err(ReadError::Unrecognized)?;
    let (group, version, kind) = claimed_kind(target, envelope.api_version, envelope.kind)?;
    let refused = |why| ReadError::Kind { version: version.to_owned(), kind: kind.to_owned(), why };
    let claimed = registered(group, version, kind).map_err(refused)?;
    let mut object = protobuf::read(claimed.structure, envelope.raw).map_err(refused)?;
    for (key, text) in [("apiVersion", envelope.api_version), ("kind", envelope.kind)] {
        if !text.is_empty() {
            object.insert(key.to_owned(), text.into());
        }
    }
    Ok(object.into())
}

/// Kinds that kube-apiserver still decodes in versions it no longer serves. Their fields are similar enough to those of
/// v1: the only effect of decoding them is a better error message.
const OLDER: [(&str, &str, &[&str]); 8] = [
    ("apps", "v1beta1", &["ControllerRevision", "Deployment", "StatefulSet"]),
    ("apps", "v1beta2", &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]),
    ("batch", "v1beta1", &["CronJob"]),
    ("coordination.k8s.io", "v1beta1", &["Lease"]),
    ("discovery.k8s.io", "v1beta1", &["EndpointSlice"]),
    ("events.k8s.io", "v1beta1", &["Event"]),
    ("policy", "v1beta1", &["Eviction", "PodDisruptionBudget"]),
    ("rbac.authorization.k8s.io", "v1beta1", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
];

struct Registered<'k> {
    structure: &'static Struct,
    /// The structure's name, except for lists, which have no structure of their own here.
    name: &'k str,
}

fn registered<'k>(group: &str, version: &str, kind: &'k str) -> Result<Registered<'k>, String> {
    let older = |kind: &str| OLDER.iter().any(|row| (row.0, row.1) == (group, version) && row.2.contains(&kind));
    let known = |kind: &str| schema().kind(group, if older(kind) { "v1" } else { version }, kind);
    let structure = known(kind).or_else(|| kind.strip_suffix("List").and_then(known));
    structure
        .map(|structure| Registered { structure, name: kind })
        .ok_or_else(|| not_registered(kind, &group_version(group, version), SCHEME))
}

/// Where kube-apiserver registers the kinds that it serves, and those of options. Its messages name the place.
const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";
const OPTIONS_SCHEME: &str = "pkg/apis/meta/internalversion/scheme/register.go:27";

fn not_registered(kind: &str, version: &str, scheme: &str) -> String {
    format!("no kind \"{kind}\" is registered for version \"{version}\" in scheme \"{scheme}\"")
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// The `apiVersion` and `kind` of the tree; empty if absent.
fn claims<'n>(node: &'n JsonNode<'_>) -> Result<(&'n str, &'n str), String> {
    const SHAPE: &str =
        r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let entries = match node {
        JsonNode::Map(entries) => entries,
        JsonNode::Null => return Ok(("", "")),
        other => return Err(format!("json: cannot unmarshal {} into Go value of type {SHAPE}", other.kind())),
    };
    let (mut api_version, mut kind) = ("", "");
    for (key, value) in entries {
        // These two keys are matched without regard to case, unlike in the decoding that follows.
        let (slot, name) = if key.eq_ignore_ascii_case("apiVersion") {
            (&mut api_version, "apiVersion")
        } else if key.eq_ignore_ascii_case("kind") {
            (&mut kind, "kind")
        } else {
            continue;
        };
        match value {
            JsonNode::Text(text) => *slot = text,
            JsonNode::Null => {}
            other => {
                let given = other.kind();
                return Err(format!("json: cannot unmarshal {given} into Go struct field .{name} of type string"));
            }
        }
    }
    Ok((api_version, kind))
}

/// The beginning of a body: verbatim if it looks like JSON, else in hexadecimal.
fn summary(body: &[u8]) -> String {
    const MOST: usize = 30;
    let (shown, more) = if body.len() > MOST { (&body[..MOST], " ...") } else { (body, "") };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(shown)),
        Some(_) => {
            let hex: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}
