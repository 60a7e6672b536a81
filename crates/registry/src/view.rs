//! Two resources can be two views of one stored object: Events of `v1` and of `events.k8s.io/v1`. They are stored as
//! `v1`.

use bytes::Bytes;
use serde_json::Value;
use tally_api::failure::Failure;
use tally_api::field::FieldError;
use tally_api::kinds::Resource;
use tally_api::others::event;

use crate::text;

fn is_second_view(resource: &Resource) -> bool {
    resource.group == "events.k8s.io"
}

pub fn to_stored(resource: &Resource, object: Value) -> Value {
    if is_second_view(resource) { event::to_core(&object) } else { object }
}

pub fn from_stored(resource: &Resource, object: Value) -> Value {
    if is_second_view(resource) { event::to_events(&object) } else { object }
}

/// The stored text in the form of this resource.
pub fn shown(resource: &Resource, bytes: Bytes) -> Bytes {
    if is_second_view(resource) { text::unstored(&event::to_events(&text::parse(&bytes))) } else { bytes }
}

/// The status error for an object that fails validation. Both views name the stored kind in it.
pub fn invalid(resource: &Resource, name: &str, errors: &[FieldError]) -> Failure {
    let group = if is_second_view(resource) { "" } else { resource.group };
    Failure::invalid(group, resource.kind, name, errors)
}
