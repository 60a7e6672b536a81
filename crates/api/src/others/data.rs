//! ConfigMaps and Secrets: objects that Pods mount or read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tally_value::{Map, Value};

use super::{IMMUTABLE, fill, part_of};
use crate::decode::json::{self, JsonNode};
use crate::field::{At, FieldError};
use crate::kinds::{Part, Rules};

pub struct ConfigMapRules;
pub struct SecretRules;

/// The limit for all values of a ConfigMap or Secret together: the store and every watcher must handle them.
const MOST_BYTES: usize = 1024 * 1024;

impl Rules for ConfigMapRules {
    fn validate_create(&self, map: &Value) -> Vec<FieldError> {
        let root = At::root(map);
        let (data, binary) = (root.at("data"), root.at("binaryData"));
        let mut errors = Vec::new();
        let mut size = 0_usize;
        for (key, value) in data.entries() {
            let at = data.key(key);
            errors.extend(key_problems(key).into_iter().map(|problem| at.invalid_value(key, problem)));
            if binary.map().is_some_and(|binary| binary.contains_key(key)) {
                errors.push(at.invalid_value(key, "duplicate of key present in binaryData"));
            }
            size += value.as_str().map_or(0, str::len);
        }
        for (key, value) in binary.entries() {
            errors.extend(key_problems(key).into_iter().map(|problem| binary.key(key).invalid_value(key, problem)));
            size += decoded_len(value.as_str().unwrap_or_default());
        }
        if size > MOST_BYTES {
            // The error is about the whole object, for which kube-apiserver prints `[]`.
            errors.push(At::rooted("[]", None).too_long(MOST_BYTES));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _: Part) -> Vec<FieldError> {
        let mut errors = validate_frozen(new, old, &["data", "binaryData"]);
        errors.extend(self.validate_create(new));
        errors
    }
}

impl Rules for SecretRules {
    /// `stringData` is for manifests written by hand: it overrides `data` and is not stored itself.
    fn default(&self, secret: &mut Value) {
        let Some(object) = secret.as_object_mut() else { return };
        fill(object, "type", "Opaque");
        let Some(Value::Object(plain)) = object.remove("stringData") else { return };
        if plain.is_empty() {
            return;
        }
        if let Some(data) = part_of(secret, "data") {
            for (key, value) in plain {
                data.insert(key, STANDARD.encode(value.as_str().unwrap_or_default()).into());
            }
        }
    }

    fn validate_create(&self, secret: &Value) -> Vec<FieldError> {
        let root = At::root(secret);
        let data = root.at("data");
        let mut errors = Vec::new();
        let mut size = 0_usize;
        for (key, value) in data.entries() {
            errors.extend(key_problems(key).into_iter().map(|problem| data.key(key).invalid_value(key, problem)));
            size += decoded_len(value.as_str().unwrap_or_default());
        }
        if size > MOST_BYTES {
            errors.push(data.too_long(MOST_BYTES));
        }
        errors.extend(validate_typed(root, data));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _: Part) -> Vec<FieldError> {
        let (root, before) = (At::root(new), At::root(old));
        let mut errors = Vec::new();
        if root.at("type").value != before.at("type").value {
            errors.push(root.at("type").invalid(IMMUTABLE));
        }
        errors.extend(validate_frozen(new, old, &["data"]));
        errors.extend(self.validate_create(new));
        errors
    }

    fn create_warnings(&self, secret: &Value) -> Vec<String> {
        pair_warnings(secret)
    }

    fn update_warnings(&self, new: &Value, _: &Value, _: Part) -> Vec<String> {
        pair_warnings(new)
    }
}

/// Warns if the data cannot be a certificate and its key. Whether the two match is not checked here, but where they are
/// used.
fn pair_warnings(secret: &Value) -> Vec<String> {
    if secret["type"] != "kubernetes.io/tls" {
        return Vec::new();
    }
    let has_block = |key: &str| {
        let bytes = STANDARD.decode(secret["data"][key].as_str().unwrap_or_default()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains("-----BEGIN ")
    };
    let missing = [("tls.crt", "certificate"), ("tls.key", "key")].into_iter().find(|(key, _)| !has_block(key));
    missing.map(|(_, what)| format!("tls: failed to find any PEM data in {what} input")).into_iter().collect()
}

/// An object that is `immutable` must stay unchanged: readers rely on it and do not watch the object.
fn validate_frozen(new: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    let (new, old) = (At::root(new), At::root(old));
    if !old.at("immutable").is_true() {
        return Vec::new();
    }
    let thawed = (!new.at("immutable").is_true()).then_some("immutable");
    let same = |field: &str| {
        let entries = |at: At<'_, '_>| at.map().filter(|map| !map.is_empty()).cloned();
        entries(new.at(field)) == entries(old.at(field))
    };
    let changed = fields.iter().copied().filter(|field| !same(field));
    let all = thawed.into_iter().chain(changed);
    all.map(|field| new.at(field).forbidden("field is immutable when `immutable` is set")).collect()
}

/// The type of a Secret requires certain keys.
fn validate_typed(secret: At<'_, '_>, data: At<'_, '_>) -> Vec<FieldError> {
    let empty = Map::new();
    let entries = data.map().unwrap_or(&empty);
    let need = |keys: &[&'static str]| -> Vec<FieldError> {
        let missing = keys.iter().filter(|key| !entries.contains_key(key));
        missing.map(|key| data.key(key).required("")).collect()
    };
    match secret.at("type").text_or_empty() {
        "kubernetes.io/service-account-token" => {
            let meta = secret.at("metadata");
            let annotations = meta.at("annotations");
            let account = annotations.key("kubernetes.io/service-account.name");
            if account.text_or_empty().is_empty() { vec![account.required("")] } else { Vec::new() }
        }
        "kubernetes.io/dockercfg" => validate_json(data, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => validate_json(data, ".dockerconfigjson"),
        "kubernetes.io/basic-auth" => match need(&["username", "password"]) {
            // One of the two is sufficient.
            missing if missing.len() == 2 => missing,
            _ => Vec::new(),
        },
        "kubernetes.io/ssh-auth" => {
            let key = data.key("ssh-privatekey");
            if key.text_or_empty().is_empty() { vec![key.required("")] } else { Vec::new() }
        }
        "kubernetes.io/tls" => need(&["tls.crt", "tls.key"]),
        _ => Vec::new(),
    }
}

fn validate_json(data: At<'_, '_>, key: &str) -> Vec<FieldError> {
    let at = data.key(key);
    let Some(text) = at.text() else { return vec![at.required("")] };
    let bytes = STANDARD.decode(text).unwrap_or_default();
    let problem = match json::parse(&bytes) {
        Ok(JsonNode::Map(_) | JsonNode::Null) => return Vec::new(),
        Ok(other) => {
            let found = match other {
                JsonNode::Bool(_) => "bool",
                JsonNode::Number(_) => "number",
                JsonNode::Text(_) => "string",
                _ => "array",
            };
            format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")
        }
        Err(error) => error.to_string(),
    };
    vec![at.invalid_value("<secret contents redacted>", problem)]
}

/// The number of bytes that base64 text encodes, precise enough for a limit and without decoding it.
fn decoded_len(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

/// A key becomes a file name in a volume.
pub(crate) fn key_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if key.len() > 253 {
        problems.push("must be no more than 253 characters".to_owned());
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if key.is_empty() || !key.bytes().all(plain) {
        problems.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  \
             or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    match key {
        "." | ".." => problems.push(format!("must not be '{key}'")),
        _ if key.starts_with("..") => problems.push("must not start with '..'".to_owned()),
        _ => {}
    }
    problems
}
