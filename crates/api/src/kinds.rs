//! What is served: one row a resource, with the rules its objects obey.

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
    /// In the order discovery lists them.
    pub verbs: &'static [&'static str],
    pub subresources: &'static [Subresource],
    /// Where objects are kept: the first part of their keys. Two resources with one place are two views of one object.
    pub storage: &'static str,
    /// PUT of a name that is not there creates it.
    pub create_on_update: bool,
    /// Without an option, a DELETE leaves the dependents alone (batch/v1 Jobs).
    pub orphans_by_default: bool,
    pub rules: &'static dyn Rules,
}

pub struct Subresource {
    /// Such as `status`.
    pub name: &'static str,
    /// The kind it speaks: that of the resource, or `Eviction`, `Binding`, `Scale`.
    pub kind: &'static str,
    /// Group and version of that kind, where they are not the resource's.
    pub group_version: Option<(&'static str, &'static str)>,
    pub verbs: &'static [&'static str],
}

/// Which part of an object a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Main,
    Status,
}

/// The rules of one kind. Objects have been decoded: known fields only, no `null`, nothing that the wire form leaves out.
///
/// The order of a create: `default`, system metadata (name, namespace, uid, creationTimestamp), `prepare_create`,
/// `validate_create`, `complete`, `create_warnings`. Of an update: `default`, `prepare_update`, `validate_update`,
/// `complete`, `update_warnings`. Metadata that is the same for every kind is checked by the registry through `meta`.
pub trait Rules: Sync {
    /// Fills in what the client left out. Idempotent; runs on every object a client sends or a patch makes.
    fn default(&self, _object: &mut Value) {}

    /// Drops what a client may not set and adds what the server gives: status, generation, generated labels.
    fn prepare_create(&self, _object: &mut Value, _now: Timestamp) {}

    /// Everything wrong with a new object, other than common metadata.
    fn validate_create(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Puts back what this write may not change: status on the main resource, everything else on /status. Sets the
    /// generation: stored generation, plus one if the spec differs.
    fn prepare_update(&self, _new: &mut Value, _old: &Value, _part: Part) {}

    /// Everything wrong with the change, other than common metadata.
    fn validate_update(&self, _new: &Value, _old: &Value, _part: Part) -> Vec<FieldError> {
        Vec::new()
    }

    /// Fills in what the reference stores without and fills in whenever it reads: readers see it, validation did not.
    /// Runs last before an object is stored, by a create or an update. Returns whether there was anything. If so, the
    /// next update of the object is stored even if it changes nothing.
    fn complete(&self, _object: &mut Value) -> bool {
        false
    }

    fn create_warnings(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    fn update_warnings(&self, _new: &Value, _old: &Value, _part: Part) -> Vec<String> {
        Vec::new()
    }

    /// Whether the name is acceptable: a DNS subdomain unless the kind says otherwise. What is wrong with it, if
    /// anything. `prefix`: it is a generateName.
    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        crate::meta::name_is_dns_subdomain(name, prefix)
    }
}

impl Resource {
    /// As error messages name it: `jobs.batch`, `pods`.
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
