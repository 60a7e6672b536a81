//! What a write needs beyond its verb: a PUT that creates needs `create` (RBAC-15), and a Role or binding may grant only what its
//! writer holds (RBAC-8, RBAC-9).

use std::sync::Arc;

use tally_api::catalog;
use tally_api::kinds::Resource;
use tally_api::options::WriteCheck;
use tally_api::rbac::{self, AccessRequest, PolicyRule, ResourceAttributes, ungranted};
use tally_api::status_error::StatusError;
use tally_value::Value;

use crate::auth::User;
use crate::auth::access::refusal;
use crate::auth::authorizer::Verdict;
use crate::http::handler::ApiHandler;
use crate::http::route::Verb;
use crate::objects::RequestContext;

/// The writer of an object of this resource.
struct Writer {
    handler: Arc<ApiHandler>,
    user: Arc<User>,
    resource: &'static Resource,
    namespace: String,
    verb: Verb,
}

/// The check for a write, if it needs one.
pub fn write_check(context: &RequestContext<'_>) -> Option<WriteCheck> {
    let resource = context.place.resource;
    let may_create = context.verb == Verb::Update && resource.create_on_update;
    if context.user.is_master() || !(may_create || resource.group == rbac::GROUP) {
        return None;
    }
    let writer = Writer {
        handler: context.handler.clone(),
        user: context.user.clone(),
        resource,
        namespace: context.place.namespace.clone().into_owned(),
        verb: context.verb,
    };
    Some(WriteCheck(Arc::new(move |new, old| writer.check(new, old))))
}

impl Writer {
    fn check(&self, new: &Value, old: Option<&Value>) -> Result<(), StatusError> {
        let name = text(new, "/metadata/name");
        if old.is_none() && self.verb == Verb::Update {
            self.may("create", self.resource.plural, name).map_err(|denied| *denied)?;
        }
        if self.resource.group != rbac::GROUP || old.is_some_and(|old| is_bookkeeping(new, old)) {
            return Ok(());
        }
        match self.resource.plural {
            "roles" | "clusterroles" => self.check_role(name, new),
            _ => self.check_binding(name, new),
        }
    }

    /// RBAC-8.
    fn check_role(&self, name: &str, role: &Value) -> Result<(), StatusError> {
        if self.may("escalate", self.resource.plural, name).is_ok() {
            return Ok(());
        }
        let held = self.held();
        if role.get("aggregationRule").is_some_and(Value::is_object) {
            let everything = [PolicyRule::all_resources(), PolicyRule::all_paths()];
            if ungranted(&held, &everything).is_some() {
                let why = "must have cluster-admin privileges to use the aggregationRule";
                return Err(StatusError::forbidden(self.resource, name, why));
            }
        }
        self.check_granted(name, &held, &PolicyRule::read_all(role.get("rules")))
    }

    /// RBAC-9.
    fn check_binding(&self, name: &str, binding: &Value) -> Result<(), StatusError> {
        let (kind, role) = (text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"));
        let plural = if kind == "Role" { "roles" } else { "clusterroles" };
        if self.may("bind", plural, role).is_ok() {
            return Ok(());
        }
        let granted = self.handler.authorizer.with_policy(|policy| {
            let rules = policy.referenced(&self.namespace, kind, role);
            rules.map(<[PolicyRule]>::to_vec)
        });
        let granted = granted.map_err(|plural| match catalog::find(rbac::GROUP, "v1", plural) {
            Some(resource) => StatusError::not_found(resource, role),
            None => StatusError::internal(format!("no {plural} served")),
        })?;
        self.check_granted(name, &self.held(), &granted)
    }

    fn check_granted(&self, name: &str, held: &[PolicyRule], granted: &[PolicyRule]) -> Result<(), StatusError> {
        let Some(missing) = ungranted(held, granted) else { return Ok(()) };
        let groups: Vec<String> = self.user.groups.iter().map(|group| format!("{group:?}")).collect();
        let why = format!(
            "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{missing}",
            self.user.name,
            groups.join(" ")
        );
        Err(StatusError::forbidden(self.resource, name, &why))
    }

    /// Everything that the writer may do where the object is.
    fn held(&self) -> Vec<PolicyRule> {
        self.handler.authorizer.with_policy(|policy| policy.rules_for(self.user.requester(), &self.namespace))
    }

    /// Whether the writer may do this with an object of the group in the same namespace.
    fn may(&self, verb: &str, resource: &str, name: &str) -> Result<(), Box<StatusError>> {
        let (group, namespace) = (self.resource.group, self.namespace.as_str());
        let attributes = ResourceAttributes { group, resource, subresource: "", namespace, name };
        let request = AccessRequest::resource(verb, attributes);
        match self.handler.authorizer.decide(&self.user, &request) {
            Verdict::Allowed { .. } => Ok(()),
            Verdict::Denied { reason } => Err(Box::new(refusal(&self.user, &request, &reason))),
        }
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Whether two states of an object differ at most in what garbage collection writes, so that a collector without rights
/// can release an object from its owner or remove its finalizer.
fn is_bookkeeping(new: &Value, old: &Value) -> bool {
    let plain = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion", "generation"] {
                metadata.remove(field);
            }
        }
        object
    };
    plain(new) == plain(old)
}
