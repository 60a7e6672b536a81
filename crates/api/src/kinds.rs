//! The type of a served resource, and the rules of its objects.

use serde_json::Value;
use tally_core::time::Timestamp;

use crate::field::FieldError;

/// A resource of the API: `jobs` of `batch/v1`.
pub struct Resource {
    /// "" for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub namespaced: bool,
    /// In the order of discovery.
    pub verbs: &'static [&'static str],
    pub subresources: &'static [Subresource],
    /// The first segment of the keys of its objects in the store. Two resources with the same value are two views of
    /// one object.
    pub storage: &'static str,
    /// A PUT creates an object that does not exist.
    pub create_on_update: bool,
    /// Without an option, a DELETE orphans the dependents (batch/v1 Jobs).
    pub orphans_by_default: bool,
    pub rules: &'static dyn Rules,
}

pub struct Subresource {
    /// Such as `status`.
    pub name: &'static str,
    /// The kind of its body: that of the resource, or `Eviction`, `Binding`, `Scale`.
    pub kind: &'static str,
    /// Group and version of that kind, if they are not the resource's.
    pub group_version: Option<(&'static str, &'static str)>,
    pub verbs: &'static [&'static str],
}

/// The part of an object that a write changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Main,
    Status,
}

/// The rules of one kind. Objects are already decoded: known fields only, no `null`, nothing that the wire form omits.
///
/// The order of a create: `default`, system metadata (name, namespace, UID, creationTimestamp), `prepare_create`,
/// `validate_create`, `create_warnings`, `complete`. Of an update: `default`, `prepare_update`, `validate_update`,
/// `update_warnings`, `complete`. The registry validates the metadata that all kinds share, with `meta`.
pub trait Rules: Sync {
    /// Sets defaults for absent fields. Idempotent; runs on every object that a client sends or a patch produces.
    fn default(&self, _object: &mut Value) {}

    /// Removes what a client may not set and adds what the server sets: status, generation, generated labels.
    fn prepare_create(&self, _object: &mut Value, _now: Timestamp) {}

    /// All errors of a new object, except those of common metadata.
    fn validate_create(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Restores what this write may not change: status on the main resource, everything else on /status. Sets the
    /// generation: the stored generation, plus one if the spec differs.
    fn prepare_update(&self, _new: &mut Value, _old: &Value, _part: Part) {}

    /// All errors of the change, except those of common metadata.
    fn validate_update(&self, _new: &Value, _old: &Value, _part: Part) -> Vec<FieldError> {
        Vec::new()
    }

    /// Sets defaults that Kubernetes does not store and sets whenever it reads: readers see them, validation did not.
    /// Runs last before an object is stored, by a create or an update. Returns whether there was anything to set. If
    /// so, the next update of the object is stored even if it changes nothing.
    fn complete(&self, _object: &mut Value) -> bool {
        false
    }

    fn create_warnings(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    fn update_warnings(&self, _new: &Value, _old: &Value, _part: Part) -> Vec<String> {
        Vec::new()
    }

    /// The errors of the name: it must be a DNS subdomain unless the kind says otherwise. `prefix`: it is a
    /// generateName.
    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        crate::meta::name_is_dns_subdomain(name, prefix)
    }
}

impl Resource {
    /// The name in error messages: `jobs.batch`, `pods`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `batch/v1`, `v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }
}
