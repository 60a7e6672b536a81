//! What a request does, in the terms of authorization, and the response if the user may not do it.
//!
//! For a path that leads to objects the terms are taken from the parsed path that the request is then served with, so
//! that there is no second reading of a path which could differ from the first.

use std::borrow::Cow;

use tally_api::meta::path_segment_problems;
use tally_api::options::Query;
use tally_api::rbac::{AccessRequest, AccessTarget, ResourceAttributes};
use tally_api::selector::Filter;
use tally_api::status_error::{Details, StatusError};

use crate::auth::User;
use crate::http::route::{ResourcePath, Route, Verb};

/// The terms of a request.
#[derive(Debug)]
pub struct RequestedAccess<'a> {
    verb: Cow<'a, str>,
    target: RequestedTarget<'a>,
}

#[derive(Debug)]
enum RequestedTarget<'a> {
    Path(&'a str),
    Resource { group: &'a str, resource: &'a str, subresource: &'a str, namespace: Cow<'a, str>, name: Cow<'a, str> },
}

impl<'a> RequestedAccess<'a> {
    /// `verb`: the verb with which the request will be served; None if the resource does not have it.
    pub fn of(route: &'a Route<'a>, verb: Option<Verb>, method: &str, path: &'a str, query: &Query<'_>) -> Self {
        match route {
            Route::Objects(place) => Self::of_objects(place, verb, method, query),
            // These are answered with 404. The terms decide who is told so.
            Route::Nothing | Route::NoPage => Self::of_unknown(method, path),
            _ => Self::of_path(method, path),
        }
    }

    fn of_path(method: &str, path: &'a str) -> Self {
        Self { verb: method.to_lowercase().into(), target: RequestedTarget::Path(path) }
    }

    fn of_objects(place: &'a ResourcePath<'a>, verb: Option<Verb>, method: &str, query: &Query<'_>) -> Self {
        let subresource = place.subresource.map_or("", |subresource| subresource.name);
        let (group, resource) = (place.resource.group, place.resource.plural);
        let name = match verb {
            Some(Verb::List | Verb::Watch) if place.name.is_empty() => selected_name(place, query).into(),
            _ => Cow::Borrowed(&*place.name),
        };
        // A namespace is in itself: a role in it can allow to read it.
        let is_namespace = group.is_empty() && resource == "namespaces";
        let namespace = if is_namespace { name.clone() } else { Cow::Borrowed(&*place.namespace) };
        let verb = match verb {
            Some(verb) => verb.name().into(),
            None => verb_of(method, !place.name.is_empty()),
        };
        Self { verb, target: RequestedTarget::Resource { group, resource, subresource, namespace, name } }
    }

    /// The path of a resource that is not served, or a path that has the form of one.
    fn of_unknown(method: &str, path: &'a str) -> Self {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => ("", &[][..]),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let Some(resource) = rest.first().copied() else { return Self::of_path(method, path) };
        let part = |index: usize| rest.get(index).copied().unwrap_or_default();
        let (name, subresource) = (part(1), part(2));
        let verb = verb_of(method, !name.is_empty());
        let (namespace, name) = (namespace.into(), name.into());
        Self { verb, target: RequestedTarget::Resource { group, resource, subresource, namespace, name } }
    }

    pub fn request(&self) -> AccessRequest<'_> {
        let target = match &self.target {
            RequestedTarget::Path(path) => AccessTarget::Path(path),
            RequestedTarget::Resource { group, resource, subresource, namespace, name } => {
                AccessTarget::Resource(ResourceAttributes { group, resource, subresource, namespace, name })
            }
        };
        AccessRequest { verb: &self.verb, target }
    }
}

/// RBAC-3: a list or watch of the object of one name is allowed to those who may list or watch that name.
fn selected_name(place: &ResourcePath<'_>, query: &Query<'_>) -> String {
    let fields = query.get("fieldSelector").unwrap_or_default();
    if fields.is_empty() {
        return String::new();
    }
    let filter = Filter::parse(place.resource, "", fields).ok();
    let name = filter.as_ref().and_then(Filter::exact_name).unwrap_or_default();
    if path_segment_problems(name, false).is_empty() { name.to_owned() } else { String::new() }
}

fn verb_of(method: &str, is_named: bool) -> Cow<'static, str> {
    match (method, is_named) {
        ("GET" | "HEAD", true) => "get".into(),
        ("GET" | "HEAD", false) => "list".into(),
        ("POST", _) => "create".into(),
        ("PUT", _) => "update".into(),
        ("PATCH", _) => "patch".into(),
        ("DELETE", true) => "delete".into(),
        ("DELETE", false) => "deletecollection".into(),
        (other, _) => other.to_lowercase().into(),
    }
}

/// RBAC-10: the response to a request that is not allowed. `reason` is empty if there is none to give.
pub fn refusal(user: &User, request: &AccessRequest<'_>, reason: &str) -> StatusError {
    let (who, verb) = (&user.name, request.verb);
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let forbidden = |text: String| StatusError::new(403, "Forbidden", text);
    match request.target {
        AccessTarget::Path(path) => {
            forbidden(format!("forbidden: User {who:?} cannot {verb} path {path:?}{reason}")).with(Details::default())
        }
        AccessTarget::Resource(ResourceAttributes { group, resource, subresource, namespace, name }) => {
            let qualified = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
            let named = if name.is_empty() { String::new() } else { format!(" {name:?}") };
            let slash = if subresource.is_empty() { "" } else { "/" };
            let scope = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {namespace:?}")
            };
            let details = Details {
                name: name.to_owned(),
                group: group.to_owned(),
                kind: resource.to_owned(),
                ..Details::default()
            };
            forbidden(format!(
                "{qualified}{named} is forbidden: User {who:?} cannot {verb} resource \"{resource}{slash}{subresource}\" \
                 in API group {group:?} {scope}{reason}"
            ))
            .with(details)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn check(method: &str, path: &str, query: &str, expected: &str) {
        let route = Route::parse(path);
        let query = Query::parse(query);
        let verb = match &route {
            Route::Objects(place) => place.verb(method, query.flag("watch").unwrap_or(false)),
            _ => None,
        };
        let access = RequestedAccess::of(&route, verb, method, path, &query);
        let user = User::new("u".to_owned(), String::new(), Vec::new());
        let message = refusal(&user, &access.request(), "").message;
        let message =
            message.replace(" is forbidden: User \"u\" cannot ", ": ").replace("forbidden: User \"u\" cannot ", "");
        assert_eq!(message, expected, "{method} {path}");
    }

    /// RBAC-10.
    #[test]
    fn a_refusal_names_what_was_asked_for() {
        for (method, path, query, expected) in [
            (
                "GET",
                "/apis/batch/v1/namespaces/n/jobs/x",
                "",
                "jobs.batch \"x\": get resource \"jobs\" in API group \"batch\" in the namespace \"n\"",
            ),
            ("GET", "/api/v1/pods", "", "pods: list resource \"pods\" in API group \"\" at the cluster scope"),
            ("GET", "/api/v1/pods", "watch=1", "pods: watch resource \"pods\" in API group \"\" at the cluster scope"),
            (
                "GET",
                "/api/v1/namespaces/n/pods",
                "fieldSelector=metadata.name%3Dp",
                "pods \"p\": list resource \"pods\" in API group \"\" in the namespace \"n\"",
            ),
            (
                "DELETE",
                "/api/v1/namespaces/n/pods",
                "fieldSelector=metadata.name%3Dp",
                "pods: deletecollection resource \"pods\" in API group \"\" in the namespace \"n\"",
            ),
            (
                "POST",
                "/api/v1/namespaces/n/pods/p/eviction",
                "",
                "pods \"p\": create resource \"pods/eviction\" in API group \"\" in the namespace \"n\"",
            ),
            (
                "GET",
                "/api/v1/namespaces/n",
                "",
                "namespaces \"n\": get resource \"namespaces\" in API group \"\" in the namespace \"n\"",
            ),
            (
                "POST",
                "/api/v1/namespaces",
                "",
                "namespaces: create resource \"namespaces\" in API group \"\" at the cluster scope",
            ),
            (
                "HEAD",
                "/api/v1/nodes/a",
                "",
                "nodes \"a\": get resource \"nodes\" in API group \"\" at the cluster scope",
            ),
            (
                "GET",
                "/apis/x.io/v1/frobs",
                "",
                "frobs.x.io: list resource \"frobs\" in API group \"x.io\" at the cluster scope",
            ),
            (
                "PUT",
                "/api/v1/namespaces/n/frobs/a/status",
                "",
                "frobs \"a\": update resource \"frobs/status\" in API group \"\" in the namespace \"n\"",
            ),
            ("GET", "/metrics", "", "get path \"/metrics\""),
            ("POST", "/apis/batch/v1", "", "post path \"/apis/batch/v1\""),
            ("GET", "/nope", "", "get path \"/nope\""),
        ] {
            check(method, path, query, expected);
        }
    }
}
