//! The body of an apply: an object, of which only the fields are given that its manager wants to have.

use tally_value::Value;

use crate::decode::yaml;
use crate::kinds::Resource;
use crate::options::FieldValidation;
use crate::status_error::StatusError;

/// How the message about duplicate keys begins.
const DUPLICATES: &str = "yaml: unmarshal errors:\n  ";

/// What a client applies.
#[derive(Clone, Debug)]
pub struct Config {
    /// As it was sent: nothing is filled in.
    pub object: Value,
    /// Duplicate keys, for the Warning header.
    pub warnings: Vec<String>,
}

impl Config {
    pub fn read(resource: &Resource, body: &[u8], validation: FieldValidation) -> Result<Self, StatusError> {
        let unreadable =
            |why| StatusError::bad_request(format!("error decoding YAML: error converting YAML to JSON: {why}"));
        let parsed = yaml::parse(body).map_err(unreadable)?;
        let duplicates: Vec<_> =
            parsed.told.iter().map(|told| told.trim_start_matches(DUPLICATES).to_owned()).collect();
        let warnings = match validation {
            FieldValidation::Ignore => Vec::new(),
            FieldValidation::Strict if !duplicates.is_empty() => {
                return Err(StatusError::bad_request(format!(
                    "error strict decoding YAML: error converting YAML to JSON: {DUPLICATES}{}",
                    duplicates.join("\n  ")
                )));
            }
            _ => duplicates,
        };
        let object = parsed.node.to_value();
        let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        if version != resource.api_version() || kind != resource.kind {
            // The core group is shown as an empty one.
            let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
            return Err(StatusError::bad_request(format!("invalid object type: {version}, Kind={kind}")));
        }
        if object.pointer("/metadata/managedFields").is_some_and(|list| !list.is_null()) {
            return Err(StatusError::bad_request("metadata.managedFields must be nil"));
        }
        Ok(Self { object, warnings })
    }
}
