//! The type of a served resource, and the rules of its objects.

use std::num::NonZeroUsize;

use tally_core::gates::FeatureGates;
use tally_core::time::Timestamp;
use tally_value::Value;

use crate::field::FieldError;
use crate::limits::LimitType;
use crate::pod_security::SecuritySubject;

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
    /// A DELETE is answered with the object, not with a Status.
    pub delete_returns_object: bool,
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

/// Whether a part of an object is the very part of the stored one: shared with it, and so as it was when it was defaulted
/// and validated. A part that merely has the same content may be another one.
pub fn is_kept(new: &Value, old: &Value, part: &str) -> bool {
    match (new.get(part), old.get(part)) {
        (Some(new), Some(old)) => new.is_same(old),
        (new, old) => new.is_none() && old.is_none(),
    }
}

/// The rules of one kind. Objects are already decoded: known fields only, no `null`, nothing that the wire form omits.
///
/// The order of a create: `drop_disabled`, `default`, system metadata (name, namespace, UID, creationTimestamp), `prepare_create`,
/// `validate_create`, `validate_among`, `create_warnings`, `complete`. Of an update: `drop_disabled`, `default`, `prepare_update`, `validate_update`,
/// `update_warnings`, `complete`. The registry validates the metadata that all kinds share, with `meta`. Admission of a
/// new object: `admit_create` after `default`, `limit_type` before and after validation, `admit_valid` last.
pub trait Rules: Sync {
    /// Sets defaults for absent fields. Idempotent; runs on every object that a client sends or a patch produces.
    fn default(&self, _object: &mut Value) {}

    /// The same for a changed object. A part that is the very part of the stored object has its defaults.
    fn default_update(&self, new: &mut Value, _old: &Value) {
        self.default(new);
    }

    /// Removes what a client may not set and adds what the server sets: status, generation, generated labels.
    fn prepare_create(&self, _object: &mut Value, _now: Timestamp) {}

    /// All errors of a new object, except those of common metadata.
    fn validate_create(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// The errors of a new and otherwise valid object that depend on the other objects of its kind and namespace.
    fn validate_among(&self, _object: &Value, _siblings: &dyn Siblings) -> Vec<FieldError> {
        Vec::new()
    }

    /// Removes the fields of a new or changed object whose feature gate is off, unless the stored object has them. Runs before
    /// `default`, which derives values from these fields, and after it, because it may add some.
    fn drop_disabled(&self, _new: &mut Value, _old: Option<&Value>, _gates: FeatureGates) {}

    /// `validate_update`, for a kind whose rules depend on feature gates.
    fn validate_gated(&self, new: &Value, old: &Value, part: Part, _gates: FeatureGates) -> Vec<FieldError> {
        self.validate_update(new, old, part)
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

    /// What a new object shares with others of its kind that are made alike: where in memory their common part is.
    fn likeness(&self, _object: &Value) -> Option<NonZeroUsize> {
        None
    }

    /// Whether `validate_create` and `create_warnings` have nothing to say about a new object, because they had nothing to say
    /// about `accepted`. False: they must look.
    fn is_like(&self, _object: &Value, _accepted: &Value) -> bool {
        false
    }

    /// Warnings about a new object that depend on what else there is in the cluster.
    fn cluster_warnings(&self, _object: &Value, _cluster: &dyn ClusterObjects) -> Vec<String> {
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

    /// Completes a new object from other objects of the cluster, or refuses it.
    fn admit_create(&self, _object: &mut Value, _cluster: &dyn ClusterObjects) -> Result<(), AdmissionError> {
        Ok(())
    }

    /// Refuses a new object that is valid.
    fn admit_valid(&self, _object: &Value) -> Result<(), AdmissionError> {
        Ok(())
    }

    /// Which items of a LimitRange apply to the objects, if any.
    fn limit_type(&self) -> Option<LimitType> {
        None
    }

    /// What the Pod security levels of a namespace mean for the objects, if anything.
    fn security_subject(&self) -> Option<SecuritySubject> {
        None
    }

    /// The time in seconds between a DELETE and the removal, for kinds that have one (Pods). `requested`: the value in
    /// the options of the DELETE.
    fn grace_period(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// Why the object of this name may never be deleted.
    fn delete_forbidden(&self, _name: &str) -> Option<&'static str> {
        None
    }

    /// Whether the object must stay after its deletion although it has no finalizers in its metadata: a Namespace that
    /// may have content.
    fn blocks_removal(&self, _object: &Value) -> bool {
        false
    }

    /// Sets the status of an object that is being deleted and stays for now.
    fn mark_terminating(&self, _object: &mut Value) {}

    /// Whether the objects may own others, so that a DELETE can ask for their dependents to be orphaned or deleted first.
    fn has_dependents(&self) -> bool {
        true
    }

    /// How the objects are stored, if not in the form of this resource.
    fn conversion(&self) -> Option<Conversion> {
        None
    }
}

/// The other objects of a kind in a namespace, as they are stored.
pub trait Siblings {
    fn named(&self, name: &str) -> Option<Value>;
}

/// The objects of the cluster that decide about new objects of other kinds.
pub trait ClusterObjects {
    fn priority_class(&self, name: &str) -> Option<Value>;
    /// The class of Pods that name none.
    fn default_priority_class(&self) -> Option<Value>;
    fn has_service_account(&self, namespace: &str, name: &str) -> bool;
    /// Whether there is a node that gives claims their volumes.
    fn provisions_claims(&self) -> bool;
}

/// Why admission refuses an object: the end of the message `... is forbidden: `.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AdmissionError(pub String);

/// Two resources can be two views of one stored object: the conversion of one of them to the stored form and back.
#[derive(Clone, Copy)]
pub struct Conversion {
    pub to_stored: fn(&Value) -> Value,
    pub from_stored: fn(&Value) -> Value,
    /// The group of the stored form. Errors of validation name it.
    pub stored_group: &'static str,
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
