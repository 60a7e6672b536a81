//! Objects as rows of a table.

use serde_json::{Value, json};
use tally_core::time::Timestamp;

use crate::kinds::Resource;

/// How much of each object a row carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

/// The `columnDefinitions` of a resource.
pub fn columns(_resource: &Resource) -> Value {
    json!([])
}

/// One row: a cell for each column.
pub fn cells(_resource: &Resource, _object: &Value, _now: Timestamp) -> Vec<Value> {
    Vec::new()
}

/// The whole `Table`. `list_meta` is the metadata of the list, `{}` for a single object.
pub fn table(_resource: &Resource, _items: &[Value], list_meta: Value, _: IncludeObject, _now: Timestamp) -> Value {
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_meta, "columnDefinitions": [], "rows": []})
}

/// What is left of an object for a client that wants metadata only.
pub fn partial_object_metadata(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
