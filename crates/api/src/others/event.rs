//! Events: what happened to an object, in two wire forms that are two views of one stored object.

use serde_json::Value;

use crate::kinds::Rules;

/// Of `v1`. This form is the one that is stored.
pub struct EventRules;
/// Of `events.k8s.io/v1`; these rules see that form.
pub struct NewEventRules;

impl Rules for EventRules {}
impl Rules for NewEventRules {}

/// The `v1` form of an `events.k8s.io/v1` Event.
pub fn to_core(event: &Value) -> Value {
    event.clone()
}

/// The `events.k8s.io/v1` form of a `v1` Event.
pub fn to_events(event: &Value) -> Value {
    event.clone()
}
