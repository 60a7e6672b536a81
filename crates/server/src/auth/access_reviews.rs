//! The four reviews of access: whether the caller or another user may do something, and everything the caller may do.
//! They ask the same authorizer as requests do, so that a review and a request agree (RBAC-14).

use tally_api::field::At;
use tally_api::rbac::{AccessRequest, AccessTarget, PolicyRule, ResourceAttributes};
use tally_api::status_error::StatusError;
use tally_value::{Value, json};

use crate::auth::User;
use crate::auth::authorizer::{Authorizer, Verdict};

const AUTHORIZATION: &str = "authorization.k8s.io";

/// The status of a SelfSubjectAccessReview.
pub fn own_access(authorizer: &Authorizer, user: &User, review: &Value) -> Result<Value, StatusError> {
    let root = At::root(review);
    let spec = root.at("spec");
    check_target(&spec)?;
    Ok(status(authorizer, user, &spec))
}

/// The status of a SubjectAccessReview.
pub fn access(authorizer: &Authorizer, review: &Value) -> Result<Value, StatusError> {
    let root = At::root(review);
    let spec = root.at("spec");
    check_target(&spec)?;
    let user = subject(&spec)?;
    Ok(status(authorizer, &user, &spec))
}

/// The status of a LocalSubjectAccessReview in this namespace.
pub fn local_access(authorizer: &Authorizer, namespace: &str, review: &Value) -> Result<Value, StatusError> {
    let root = At::root(review);
    let spec = root.at("spec");
    check_target(&spec)?;
    let path = spec.at("nonResourceAttributes");
    if path.is_set() {
        let error = path.invalid_value(shown(&path), "disallowed on this kind of request");
        return Err(StatusError::invalid(AUTHORIZATION, "", "", &[error]));
    }
    if spec.at("resourceAttributes").at("namespace").text_or_empty() != namespace {
        let text = format!("spec.resourceAttributes.namespace must match namespace: {namespace}");
        return Err(StatusError::bad_request(text));
    }
    let user = subject(&spec)?;
    Ok(status(authorizer, &user, &spec))
}

/// The status of a SelfSubjectRulesReview.
pub fn own_rules(authorizer: &Authorizer, user: &User, review: &Value) -> Result<Value, StatusError> {
    let root = At::root(review);
    let spec = root.at("spec");
    let namespace = spec.at("namespace").text_or_empty();
    if namespace.is_empty() {
        return Err(StatusError::bad_request("no namespace on request"));
    }
    let rules = authorizer.with_policy(|policy| policy.rules_for(user.requester(), namespace));
    let (paths, resources): (Vec<&PolicyRule>, Vec<&PolicyRule>) =
        rules.iter().partition(|rule| !rule.non_resource_urls.is_empty());
    let list = |rules: Vec<&PolicyRule>| -> Vec<Value> { rules.into_iter().map(PolicyRule::to_json).collect() };
    Ok(json!({"resourceRules": list(resources), "nonResourceRules": list(paths), "incomplete": false}))
}

fn status(authorizer: &Authorizer, user: &User, spec: &At<'_, '_>) -> Value {
    let (verdict, reason) = match authorizer.decide(user, &requested(spec)) {
        Verdict::Allowed { reason } => (true, reason),
        Verdict::Denied { reason } => (false, reason),
    };
    let mut status = json!({"allowed": verdict});
    if !reason.is_empty() {
        status["reason"] = reason.into();
    }
    status
}

fn requested<'v>(spec: &At<'_, 'v>) -> AccessRequest<'v> {
    let path = spec.at("nonResourceAttributes");
    if path.is_set() {
        let (verb, path) = (path.at("verb").text_or_empty(), path.at("path").text_or_empty());
        return AccessRequest { verb, target: AccessTarget::Path(path) };
    }
    let given = spec.at("resourceAttributes");
    let text = |field: &str| given.at(field).text_or_empty();
    let attributes = ResourceAttributes {
        group: text("group"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
    };
    AccessRequest::resource(text("verb"), attributes)
}

/// The user of a review about another user. The groups are those that the review names, and no others.
fn subject(spec: &At<'_, '_>) -> Result<User, StatusError> {
    let (name, groups) = (spec.at("user"), spec.at("groups"));
    if name.text_or_empty().is_empty() && groups.is_empty() {
        let error = name.invalid_value("", "at least one of user or group must be specified");
        return Err(StatusError::invalid(AUTHORIZATION, "", "", &[error]));
    }
    let groups = groups.list().iter().filter_map(Value::as_str).map(str::to_owned).collect();
    Ok(User { name: name.text_or_empty().to_owned(), uid: spec.at("uid").text_or_empty().to_owned(), groups })
}

fn shown(path: &At<'_, '_>) -> Value {
    json!({"Path": path.at("path").text_or_empty(), "Verb": path.at("verb").text_or_empty()})
}

/// A review names a resource or a path: exactly one of them.
fn check_target(spec: &At<'_, '_>) -> Result<(), StatusError> {
    let (resource, path) = (spec.at("resourceAttributes"), spec.at("nonResourceAttributes"));
    let error = match (resource.is_set(), path.is_set()) {
        (false, false) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            resource.invalid_value(Value::Null, why)
        }
        (true, true) => path.invalid_value(shown(&path), "cannot be specified in combination with resourceAttributes"),
        _ => return Ok(()),
    };
    Err(StatusError::invalid(AUTHORIZATION, "", "", &[error]))
}
