//! Two resources can be two views of one stored object: Events of `v1` and of `events.k8s.io/v1` (`Rules::conversion`).

use std::borrow::Cow;

use bytes::Bytes;
use tally_api::field::FieldError;
use tally_api::kinds::Resource;
use tally_api::status_error::StatusError;
use tally_store::Stored;
use tally_value::Value;

use crate::{Object, decoded, text};

pub fn to_stored(resource: &Resource, object: Value) -> Value {
    match resource.rules.conversion() {
        Some(conversion) => (conversion.to_stored)(&object),
        None => object,
    }
}

pub fn from_stored<'a>(resource: &Resource, object: &'a Value) -> Cow<'a, Value> {
    match resource.rules.conversion() {
        Some(conversion) => Cow::Owned((conversion.from_stored)(object)),
        None => Cow::Borrowed(object),
    }
}

/// The stored text in the form of this resource.
pub fn shown(resource: &Resource, bytes: Bytes) -> Bytes {
    match resource.rules.conversion() {
        Some(conversion) => text::unstored(&(conversion.from_stored)(&text::parse(&bytes))),
        None => bytes,
    }
}

/// A stored object in the form of this resource.
pub fn object(resource: &Resource, entry: &Stored) -> Object {
    match decoded::shared(entry).filter(|_| resource.rules.conversion().is_none()) {
        Some((tree, view)) => Object::shared(entry.value.clone(), Some(tree), view),
        None => shown(resource, entry.value.clone()).into(),
    }
}

/// The same with another revision.
pub fn object_at(resource: &Resource, entry: &Stored, revision: u64) -> Object {
    let mut object = Object::from(shown(resource, text::restamp(&entry.value, revision)));
    object.tree = decoded::tree(entry).filter(|_| resource.rules.conversion().is_none()).map(|mut tree| {
        text::metadata(&mut tree).insert("resourceVersion", revision.to_string().into());
        tree
    });
    object
}

/// The status error for an object that fails validation. Both views name the stored kind in it.
pub fn invalid(resource: &Resource, name: &str, errors: &[FieldError]) -> StatusError {
    let group = resource.rules.conversion().map_or(resource.group, |conversion| conversion.stored_group);
    StatusError::invalid(group, resource.kind, name, errors)
}
