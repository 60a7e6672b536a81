//! Whether a user may do something, decided from the Roles and bindings that the registry has now.
//!
//! The decision itself is pure (`tally_api::rbac`). Here its index is kept in line with the registry: every question is
//! answered from a state that contains all writes acknowledged before it, so that a binding counts from the response to
//! its creation on, and its deletion too (RBAC-16).

use std::sync::{Arc, PoisonError, RwLock};

use tally_api::catalog;
use tally_api::options::WatchOptions;
use tally_api::rbac::{self, AccessDecision, AccessRequest, RbacPolicy};
use tally_registry::{Object, Registry, Target, WatchEvent, WatchStream};
use tally_value::Value;

use crate::auth::User;

pub struct Authorizer {
    registry: Arc<Registry>,
    followed: RwLock<FollowedPolicy>,
}

/// The policy of a revision, and the streams that bring it up to date. Without streams it is read anew.
#[derive(Default)]
struct FollowedPolicy {
    revision: u64,
    policy: RbacPolicy,
    streams: Vec<(RbacKind, WatchStream)>,
}

#[derive(Clone, Copy)]
enum RbacKind {
    Role,
    ClusterRole,
    /// RoleBindings and ClusterRoleBindings.
    Binding,
}

const FOLLOWED: [(RbacKind, &str); 4] = [
    (RbacKind::Role, "roles"),
    (RbacKind::ClusterRole, "clusterroles"),
    (RbacKind::Binding, "rolebindings"),
    (RbacKind::Binding, "clusterrolebindings"),
];

/// The answer to one question.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The reason is empty for administrators.
    Allowed { reason: String },
    /// The reason is empty unless roles are missing.
    Denied { reason: String },
}

impl Authorizer {
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { registry, followed: RwLock::default() }
    }

    /// RBAC-1.
    pub fn decide(&self, user: &User, request: &AccessRequest<'_>) -> Verdict {
        if user.is_master() {
            return Verdict::Allowed { reason: String::new() };
        }
        self.with_policy(|policy| match policy.decide(user.requester(), request) {
            AccessDecision::Allowed(grant) => Verdict::Allowed { reason: grant.to_string() },
            AccessDecision::Denied { problems } => Verdict::Denied { reason: reason_of(&problems) },
        })
    }

    /// Looks at the policy of the newest revision.
    pub fn with_policy<T>(&self, look: impl FnOnce(&RbacPolicy) -> T) -> T {
        let now = self.registry.revision();
        {
            let followed = self.followed.read().unwrap_or_else(PoisonError::into_inner);
            if followed.revision >= now && !followed.streams.is_empty() {
                return look(&followed.policy);
            }
        }
        let mut followed = self.followed.write().unwrap_or_else(PoisonError::into_inner);
        followed.catch_up(&self.registry);
        look(&followed.policy)
    }
}

fn reason_of(problems: &[String]) -> String {
    match problems {
        [] => String::new(),
        [one] => format!("RBAC: {one}"),
        several => format!("RBAC: [{}]", several.join(", ")),
    }
}

impl FollowedPolicy {
    fn catch_up(&mut self, registry: &Registry) {
        // Read first: what is written meanwhile may already be in the streams, and is then read again.
        let revision = registry.revision();
        if self.streams.is_empty() || !self.drain() {
            // The first question, or the history no longer contains where the streams were: everything is read anew.
            *self = Self { streams: streams(registry), ..Self::default() };
            if !self.drain() {
                *self = Self::default();
                return;
            }
        }
        self.policy.settle();
        self.revision = revision;
    }

    /// Applies everything that the streams have. Returns false if one of them has failed.
    fn drain(&mut self) -> bool {
        for (kind, stream) in &mut self.streams {
            while let Some(event) = stream.try_next() {
                match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => put(&mut self.policy, *kind, &object),
                    WatchEvent::Deleted(object) => remove(&mut self.policy, *kind, &object),
                    WatchEvent::Bookmark { .. } => {}
                    WatchEvent::Failed(_) => return false,
                }
            }
        }
        true
    }
}

/// A stream for each kind; none at all if one cannot be opened, so that nothing is decided from a part.
fn streams(registry: &Registry) -> Vec<(RbacKind, WatchStream)> {
    let open = |(kind, plural): (RbacKind, &str)| {
        let resource = catalog::find(rbac::GROUP, "v1", plural)?;
        let stream = registry.watch(Target::new(resource, "", ""), &WatchOptions::default()).ok()?;
        Some((kind, stream))
    };
    FOLLOWED.into_iter().map(open).collect::<Option<Vec<_>>>().unwrap_or_default()
}

fn name_of(object: &Value) -> (&str, &str) {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    (text("/metadata/namespace"), text("/metadata/name"))
}

fn put(policy: &mut RbacPolicy, kind: RbacKind, object: &Object) {
    let object = object.parse();
    let (namespace, name) = name_of(&object);
    match kind {
        RbacKind::Role => policy.put_role(namespace, name, &object),
        RbacKind::ClusterRole => policy.put_cluster_role(name, &object),
        RbacKind::Binding => policy.put_binding(namespace, name, &object),
    }
}

fn remove(policy: &mut RbacPolicy, kind: RbacKind, object: &Object) {
    let object = object.parse();
    let (namespace, name) = name_of(&object);
    match kind {
        RbacKind::Role => policy.remove_role(namespace, name),
        RbacKind::ClusterRole => policy.remove_cluster_role(name),
        RbacKind::Binding => policy.remove_binding(namespace, name),
    }
}
