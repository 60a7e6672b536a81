//! What a namespace reports about the progress of its deletion. All five conditions are always present; those without a
//! problem have the status False.

use std::collections::BTreeMap;

use compact_str::CompactString;
use serde_json::{Value, json};
use tally_core::time::Timestamp;

use tally_runtime::controller::Kind;

/// The result of a pass over the kinds.
#[derive(Debug, Default)]
pub struct Found {
    /// The number of objects that are left, by `plural.group`.
    left: BTreeMap<String, usize>,
    /// How many of them wait for each finalizer.
    finalizers: BTreeMap<CompactString, usize>,
    /// What could not be deleted or listed, and why.
    pub failures: Vec<String>,
}

impl Found {
    pub fn add(&mut self, kind: &Kind, finalizers: &[CompactString]) {
        *self.left.entry(format!("{}.{}", kind.plural, kind.group)).or_default() += 1;
        for finalizer in finalizers {
            *self.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
    }

    pub fn is_nothing(&self) -> bool {
        self.left.is_empty() && self.failures.is_empty()
    }

    /// Type, whether there is a problem, reason and message.
    fn conditions(&self) -> [(&'static str, bool, &'static str, String); 5] {
        let told = |entries: Vec<String>| entries.join(", ");
        let content = if self.failures.is_empty() {
            (false, "ContentDeleted", "All content successfully deleted, may be waiting on finalization".to_owned())
        } else {
            let (count, failures) = (self.failures.len(), told(self.failures.clone()));
            (
                true,
                "ContentDeletionFailed",
                format!("Failed to delete all resource types, {count} remaining: {failures}"),
            )
        };
        let remaining = if self.left.is_empty() {
            (false, "ContentRemoved", "All content successfully removed".to_owned())
        } else {
            let left = self.left.iter().map(|(kind, count)| format!("{kind} has {count} resource instances"));
            let message = format!("Some resources are remaining: {}", told(left.collect()));
            (true, "SomeResourcesRemain", message)
        };
        let held = if self.finalizers.is_empty() {
            (false, "ContentHasNoFinalizers", "All content-preserving finalizers finished".to_owned())
        } else {
            let held = self.finalizers.iter().map(|(name, count)| format!("{name} in {count} resource instances"));
            let message = format!("Some content in the namespace has finalizers remaining: {}", told(held.collect()));
            (true, "SomeFinalizersRemain", message)
        };
        let fine = |kind, reason, message: &str| (kind, false, reason, message.to_owned());
        let with = |kind, (trouble, reason, message)| (kind, trouble, reason, message);
        // The kinds are given: discovery cannot fail.
        [
            fine("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
            fine(
                "NamespaceDeletionGroupVersionParsingFailure",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            with("NamespaceDeletionContentFailure", content),
            with("NamespaceContentRemaining", remaining),
            with("NamespaceFinalizersRemaining", held),
        ]
    }
}

/// All conditions of the namespace as they should be; None if they already are.
pub fn changed(namespace: &Value, found: &Found, now: Timestamp) -> Option<Vec<Value>> {
    let stored = namespace.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = stored.cloned().unwrap_or_default();
    let mut differs = false;
    for (kind, trouble, reason, message) in found.conditions() {
        let status = if trouble { "True" } else { "False" };
        let new = |since: Value| {
            json!({
                "type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message,
            })
        };
        match conditions.iter_mut().find(|condition| condition["type"] == kind) {
            None => conditions.push(new(now.truncated().to_string().into())),
            Some(old) if old["status"] == status && old["reason"] == reason && old["message"] == *message => continue,
            Some(old) if old["status"] == status => *old = new(old["lastTransitionTime"].clone()),
            Some(old) => *old = new(now.truncated().to_string().into()),
        }
        differs = true;
    }
    differs.then_some(conditions)
}
