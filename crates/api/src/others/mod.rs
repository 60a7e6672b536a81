//! Kinds with few rules of their own.
//!
//! Each has one reason to be more than text in a store: a Namespace contains others, a Secret is typed, a Lease is a
//! lock, an Event is two kinds at once. Kinds that nothing here acts upon (such as Deployments) are stored as
//! the client sent them, so that tools which only store and read them work.

mod claim;
mod cluster;
mod data;
pub mod event;
mod policy;
mod rbac;
mod service;

use tally_core::time::Timestamp;
use tally_value::{Map, Value};

use crate::kinds::{Part, Rules};
use crate::schema::schema;

pub use claim::PersistentVolumeClaimRules;
pub use cluster::{LeaseRules, NamespaceRules, NodeRules, ServiceAccountRules, validate_finalize};
pub use data::{ConfigMapRules, SecretRules};
pub use event::{EventRules, NewEventRules};
pub use policy::{LimitRangeRules, PodDisruptionBudgetRules, PriorityClassRules, ResourceQuotaRules};
pub use rbac::{RoleBindingRules, RoleRules};
pub use service::ServiceRules;

/// All other kinds: a client cannot create a status, if there is one, and can change it only through its subresource.
pub struct OrdinaryRules;

impl Rules for OrdinaryRules {
    fn prepare_create(&self, object: &mut Value, _: Timestamp) {
        if let Some(status) = object.get_mut("status") {
            *status = Value::Object(Map::new());
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, part: Part) {
        keep_apart(new, old, part);
    }
}

/// Kinds that nothing here acts upon, although a client that creates one expects Pods.
pub struct StoredOnlyRules {
    pub kind: &'static str,
}

impl Rules for StoredOnlyRules {
    fn prepare_create(&self, object: &mut Value, now: Timestamp) {
        OrdinaryRules.prepare_create(object, now);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, part: Part) {
        OrdinaryRules.prepare_update(new, old, part);
    }

    fn create_warnings(&self, _: &Value) -> Vec<String> {
        vec![format!(
            "this server only stores a {}: no controller acts on it, and no Pods are created from it; use a Job or a CronJob",
            self.kind
        )]
    }
}

const IMMUTABLE: &str = "field is immutable";

/// A write to the object keeps its status; a write to the status keeps everything else except metadata.
fn keep_apart(new: &mut Value, old: &Value, part: Part) {
    match part {
        Part::Main => put_back(new, old, "status"),
        Part::Status => {
            let fields = |object: &Value| object.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
            for field in fields(new).into_iter().chain(fields(old)).flatten() {
                if !matches!(field.as_str(), "metadata" | "status" | "apiVersion" | "kind") {
                    put_back(new, old, &field);
                }
            }
        }
    }
}

/// Restores the old value of the field, or removes the field if there was none.
fn put_back(new: &mut Value, old: &Value, field: &str) {
    let Some(new) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => new.insert(field, value.clone()),
        None => new.remove(field),
    };
}

/// The status of a new object that no controller has processed yet.
fn empty_status(group: &str, kind: &str) -> Value {
    let status = schema().kind(group, "v1", kind).and_then(|kind| kind.field("status"));
    status.and_then(|status| status.zero()).unwrap_or_else(|| Value::Object(Map::new()))
}

fn set_generation(object: &mut Value, generation: i64) {
    if let Some(metadata) = part_of(object, "metadata") {
        metadata.insert("generation", generation.into());
    }
}

/// One more than the old one. Controllers use it to state which version of the spec their status describes.
fn raise_generation(new: &mut Value, old: &Value) {
    let before = old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    set_generation(new, before.saturating_add(1));
}

/// The part of an object under `field`, created if absent.
fn part_of<'a>(object: &'a mut Value, field: &str) -> Option<&'a mut Map> {
    child(object.as_object_mut()?, field)
}

fn child<'a>(map: &'a mut Map, field: &str) -> Option<&'a mut Map> {
    let child = map.entry(field).or_insert(Value::Null);
    if child.is_null() {
        *child = Value::Object(Map::new());
    }
    child.as_object_mut()
}

/// Sets a field that is absent or empty.
fn fill(map: &mut Map, field: &str, value: impl Into<Value>) {
    let empty = map.get(field).is_none_or(|value| value.is_null() || value == "");
    if empty {
        map.insert(field, value.into());
    }
}

fn text_in<'a>(map: &'a Map, field: &str) -> &'a str {
    map.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The number of elements of a list or entries of a map.
fn count_in(map: &Map, field: &str) -> usize {
    match map.get(field) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(entries)) => entries.len(),
        _ => 0,
    }
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let most = match address.parse() {
        Ok(std::net::IpAddr::V4(_)) => 32,
        Ok(std::net::IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.bytes().all(|byte| byte.is_ascii_digit()) && length.parse::<u8>().is_ok_and(|length| length <= most)
}
