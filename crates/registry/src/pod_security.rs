//! The Pod security levels of a namespace, on creates and updates: see `tally_api::pod_security`. A namespace without such
//! labels costs one search of its text.

use tally_api::kinds::Resource;
use tally_api::options::{AuditNotes, WriteOptions};
use tally_api::pod_security::{
    LABELS, NamespaceSecurity, SecurityLevel, SecurityPolicy, SecuritySubject, Violation, in_full, is_relevant_update,
    violations, warnings_about_existing,
};
use tally_api::status_error::StatusError;
use tally_store::Entry;
use tally_value::Value;

use crate::{Registry, Result, Target, text};

const AUDIT_VIOLATIONS: &str = "pod-security.kubernetes.io/audit-violations";
const ENFORCED_POLICY: &str = "pod-security.kubernetes.io/enforce-policy";

/// The most Pods that are examined when the level of a namespace changes, as in kube-apiserver.
const MOST_EXISTING: usize = 3000;

impl Registry {
    /// Refuses a new Pod that its namespace does not accept. Returns warnings.
    pub(crate) fn secure_create(
        &self,
        target: &Target<'_>,
        object: &Value,
        name: &str,
        namespace: Option<&Entry>,
        options: &WriteOptions,
    ) -> Result<Vec<String>> {
        let Some(subject) = target.resource.rules.security_subject() else { return Ok(Vec::new()) };
        let Some(security) = namespace.and_then(security) else { return Ok(Vec::new()) };
        self.judge(security, subject, target.resource, object, name, options.audit.as_ref())
    }

    /// The same for an update, which may also be one of the labels of a namespace.
    pub(crate) fn secure_update(
        &self,
        target: &Target<'_>,
        new: &Value,
        entry: &Entry,
        options: &WriteOptions,
    ) -> Result<Vec<String>> {
        let Some(subject) = target.resource.rules.security_subject() else { return Ok(Vec::new()) };
        if target.subresource.is_some() {
            return Ok(Vec::new());
        }
        if subject == SecuritySubject::Namespace {
            return Ok(self.warn_about_existing(target.name, new, entry));
        }
        let namespace = self.store.get(&format!("namespaces/{}", target.namespace));
        let Some(security) = namespace.as_ref().and_then(security) else { return Ok(Vec::new()) };
        if subject == SecuritySubject::Pod && !is_relevant_update(new, &text::parse(&entry.value)) {
            return Ok(Vec::new());
        }
        self.judge(security, subject, target.resource, new, target.name, options.audit.as_ref())
    }

    fn warn_about_existing(&self, name: &str, new: &Value, entry: &Entry) -> Vec<String> {
        let (new, old) =
            (NamespaceSecurity::of(new).enforce, NamespaceSecurity::of(&text::parse(&entry.value)).enforce);
        if !is_stricter(new, old) {
            return Vec::new();
        }
        let Ok(page) = self.store.range(&format!("pods/{name}/"), None, Some(MOST_EXISTING), None) else {
            return Vec::new();
        };
        let pods: Vec<Value> = page.entries.iter().map(|entry| text::parse(&entry.value)).collect();
        warnings_about_existing(name, new, &self.pod_ids, pods.iter())
    }

    /// An object with a template is not refused: its Pods will be, and whether they are may change until then.
    fn judge(
        &self,
        security: NamespaceSecurity,
        subject: SecuritySubject,
        resource: &Resource,
        object: &Value,
        name: &str,
        audit: Option<&AuditNotes>,
    ) -> Result<Vec<String>> {
        let pod = match subject {
            SecuritySubject::Pod => Some(object),
            SecuritySubject::Template(pointer) => object.pointer(pointer),
            SecuritySubject::Namespace => None,
        };
        let Some(pod) = pod else { return Ok(Vec::new()) };
        if let Some(notes) = audit {
            let found = violations(security.audit, pod, &self.pod_ids);
            if !found.is_empty() {
                notes.insert(AUDIT_VIOLATIONS, would_violate(security.audit, &found));
            }
        }
        if subject == SecuritySubject::Pod {
            if let Some(notes) = audit {
                notes.insert(ENFORCED_POLICY, security.enforce.to_string());
            }
            let found = violations(security.enforce, pod, &self.pod_ids);
            if !found.is_empty() {
                let why = format!("violates PodSecurity \"{}\": {}", security.enforce, in_full(&found));
                return Err(StatusError::forbidden(resource, name, &why));
            }
        }
        let found = violations(security.warn, pod, &self.pod_ids);
        if found.is_empty() {
            return Ok(Vec::new());
        }
        Ok(vec![would_violate(security.warn, &found)])
    }
}

/// Rules of another version may be stricter too.
fn is_stricter(new: SecurityPolicy, old: SecurityPolicy) -> bool {
    new != old && new.level >= old.level && new.level != SecurityLevel::Privileged
}

fn security(namespace: &Entry) -> Option<NamespaceSecurity> {
    let labelled = text::contains(&namespace.value, LABELS);
    labelled.then(|| NamespaceSecurity::of(&text::parse(&namespace.value)))
}

fn would_violate(policy: SecurityPolicy, found: &[Violation]) -> String {
    format!("would violate PodSecurity \"{policy}\": {}", in_full(found))
}
