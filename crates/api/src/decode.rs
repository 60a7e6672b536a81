//! From text to an object held to its schema.

use serde_json::Value;

use crate::failure::Failure;
use crate::kinds::Resource;
use crate::options::{FieldValidation, Format};

/// An object that holds known fields only, without `null` and without what the wire form leaves out.
#[derive(Debug)]
pub struct Decoded {
    pub object: Value,
    /// For the Warning header: unknown and duplicate fields, where the client wants to be warned.
    pub warnings: Vec<String>,
}

/// Reads a body that must be an object of the resource's kind. The object has its `apiVersion` and `kind`.
pub fn decode(_: &Resource, _: &[u8], _: Format, _: FieldValidation) -> Result<Decoded, Failure> {
    Err(Failure::internal("not built yet"))
}
