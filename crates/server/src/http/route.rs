//! From a path to the resource it addresses.
//!
//! Paths are regular: `/api/v1` or `/apis/GROUP/VERSION`, then a resource with or without `namespaces/NAME` before it,
//! a name, a subresource. A trailing slash is ignored; a path with an empty segment inside does not exist.

use std::borrow::Cow;

use tally_api::catalog;
use tally_api::kinds::{Resource, Subresource};
use tally_api::options::unescape;

#[derive(Debug)]
pub enum Route<'a> {
    /// `/healthz`, `/livez`, `/readyz`, and one of their checks.
    Health {
        page: &'static str,
        check: &'a str,
    },
    Version,
    Metrics,
    /// `/`: the list of paths.
    Index,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/batch`
    Group(&'a str),
    /// `/api/v1`, `/apis/batch/v1`
    Resources {
        group: &'a str,
        version: &'a str,
    },
    Objects(ResourcePath<'a>),
    /// `/openapi/v2`, `/openapi/v3` and below: the part after `/openapi/`.
    OpenApi(&'a str),
    /// Below a served path, but not found: answered with a Status.
    Nothing,
    /// Not below any served path: answered with a line of text.
    NoPage,
}

/// A collection, an object, or a subresource of an object.
pub struct ResourcePath<'a> {
    pub resource: &'static Resource,
    pub subresource: Option<&'static Subresource>,
    /// "" for objects without a namespace, and for all namespaces.
    pub namespace: Cow<'a, str>,
    /// "" for collections.
    pub name: Cow<'a, str>,
    /// The path itself requests a watch: `/api/v1/watch/...`, the deprecated form.
    pub watch: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Create,
    Delete,
    DeleteCollection,
    Get,
    List,
    Patch,
    Update,
    Watch,
}

impl Verb {
    /// The name in discovery and authorization.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::List => "list",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Watch => "watch",
        }
    }
}

impl<'a> Route<'a> {
    pub fn parse(path: &'a str) -> Self {
        let path = path.strip_prefix('/').unwrap_or(path);
        let (first, rest) = path.split_once('/').unwrap_or((path, ""));
        let page = ["healthz", "livez", "readyz"].into_iter().find(|page| *page == first);
        if let Some(page) = page {
            return Self::Health { page, check: rest.trim_end_matches('/') };
        }
        match first {
            "" if rest.is_empty() => Self::Index,
            "version" if rest.is_empty() => Self::Version,
            "version" => Self::Nothing,
            "metrics" if rest.is_empty() => Self::Metrics,
            "openapi" => Self::OpenApi(rest.trim_end_matches('/')),
            "api" => below("", rest.trim_end_matches('/')),
            "apis" => {
                let rest = rest.trim_end_matches('/');
                let (group, rest) = rest.split_once('/').unwrap_or((rest, ""));
                match group {
                    "" if rest.is_empty() => Self::Groups,
                    group if catalog::resources().iter().all(|resource| resource.group != group) => Self::NoPage,
                    "" => Self::NoPage,
                    group if rest.is_empty() => Self::Group(group),
                    group => below(group, rest),
                }
            }
            _ => Self::NoPage,
        }
    }
}

/// The part after `/api` or `/apis/GROUP`.
fn below<'a>(group: &'a str, rest: &'a str) -> Route<'a> {
    if rest.is_empty() {
        return Route::CoreVersions;
    }
    let (version, rest) = rest.split_once('/').unwrap_or((rest, ""));
    if catalog::resources().iter().all(|resource| (resource.group, resource.version) != (group, version)) {
        return Route::Nothing;
    }
    if rest.is_empty() {
        return Route::Resources { group, version };
    }
    match place(group, version, rest) {
        Some(place) => Route::Objects(place),
        None => Route::Nothing,
    }
}

fn place<'a>(group: &'a str, version: &'a str, rest: &'a str) -> Option<ResourcePath<'a>> {
    // Resource, namespace, its name, resource, name, subresource: no path is longer.
    let mut parts = [""; 6];
    let mut count = 0;
    for part in rest.split('/') {
        *parts.get_mut(count)? = part;
        count += 1;
    }
    let (watch, parts) = match parts.get(..count)? {
        ["watch", parts @ ..] if !parts.is_empty() => (true, parts),
        parts => (false, parts),
    };
    if parts.iter().any(|part| part.is_empty()) {
        return None;
    }
    let find = |plural: &str, namespaced: bool| {
        catalog::find(group, version, plural).filter(|resource| resource.namespaced == namespaced)
    };
    let made = |resource, subresource, namespace: &'a str, name: &'a str| -> Option<ResourcePath<'a>> {
        let (namespace, name) = (unescape(namespace, false)?, unescape(name, false)?);
        // An escaped slash separates segments too, and no such path exists.
        if namespace.contains('/') || name.contains('/') {
            return None;
        }
        Some(ResourcePath { resource, subresource, namespace, name, watch })
    };
    let serves = |resource: &Resource, verbs: &[&str]| resource.verbs.iter().any(|verb| verbs.contains(verb));
    let with_items = |resource: &&'static Resource| serves(resource, &["get", "update", "patch", "delete"]);
    let place = match *parts {
        // Across all namespaces only reads are possible.
        [plural] => {
            let resource = catalog::find(group, version, plural)?;
            if resource.namespaced && !serves(resource, &["list", "watch"]) {
                return None;
            }
            made(resource, None, "", "")
        }
        [plural, name] => {
            let resource = find(plural, false).filter(with_items)?;
            made(resource, None, "", name)
        }
        [plural, name, third] => {
            if let Some(subresource) = find(plural, false).and_then(|resource| resource.subresource(third)) {
                return made(find(plural, false)?, Some(subresource), "", name).filter(|place| !place.watch);
            }
            if plural != "namespaces" {
                return None;
            }
            made(find(third, true)?, None, name, "")
        }
        ["namespaces", namespace, plural, name] => {
            let resource = find(plural, true).filter(with_items)?;
            made(resource, None, namespace, name)
        }
        ["namespaces", namespace, plural, name, subresource] => {
            let resource = find(plural, true)?;
            made(resource, Some(resource.subresource(subresource)?), namespace, name)
        }
        _ => None,
    };
    place.filter(|place| !place.watch || (place.subresource.is_none() && place.resource.allows("watch")))
}

/// Whether requests for this subresource upgrade the connection to a stream to or from a Pod.
pub fn is_session(subresource: &str) -> bool {
    matches!(subresource, "exec" | "attach" | "portforward")
}

impl ResourcePath<'_> {
    /// The verb of a method on this path, or None if it is not allowed. `watch`: the query requests a watch.
    pub fn verb(&self, method: &str, watch: bool) -> Option<Verb> {
        let verb = match (method, self.name.is_empty()) {
            ("GET", _) if self.watch => Verb::Watch,
            (_, _) if self.watch => return None,
            ("GET", true) if watch => Verb::Watch,
            ("GET", true) => Verb::List,
            // An upgrade of the connection does what a POST does, and needs the same right.
            ("GET", false) if self.subresource.is_some_and(|sub| is_session(sub.name)) => Verb::Create,
            ("GET", false) => Verb::Get,
            ("POST", true) => Verb::Create,
            ("POST", false) if self.subresource.is_some() => Verb::Create,
            ("PUT", false) => Verb::Update,
            ("PATCH", false) => Verb::Patch,
            ("DELETE", true) => Verb::DeleteCollection,
            ("DELETE", false) => Verb::Delete,
            _ => return None,
        };
        let everywhere = self.resource.namespaced && self.namespace.is_empty();
        if everywhere && !matches!(verb, Verb::List | Verb::Watch) {
            return None;
        }
        let verbs = self.subresource.map_or(self.resource.verbs, |subresource| subresource.verbs);
        verbs.contains(&verb.name()).then_some(verb)
    }
}

impl std::fmt::Debug for ResourcePath<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let subresource = self.subresource.map_or("", |subresource| subresource.name);
        let watch = if self.watch { "watch " } else { "" };
        write!(f, "{watch}{} {}/{}/{subresource}", self.resource.qualified(), self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(path: &str) -> String {
        format!("{:?}", Route::parse(path))
    }

    #[test]
    fn paths_lead_where_they_lead_in_kubernetes() {
        for (path, there) in [
            ("/", "Index"),
            ("/api", "CoreVersions"),
            ("/api/", "CoreVersions"),
            ("/apis", "Groups"),
            ("/apis/", "Groups"),
            ("/apis/batch", "Group(\"batch\")"),
            ("/apis/batch/v1/", "Resources { group: \"batch\", version: \"v1\" }"),
            ("/api/v1", "Resources { group: \"\", version: \"v1\" }"),
            ("/api/v9/pods", "Nothing"),
            ("/apis/batch/v9/namespaces/n/jobs", "Nothing"),
            ("/apis/nope.example.com/v1/frobs", "NoPage"),
            ("/frob", "NoPage"),
            ("//api/v1", "NoPage"),
            ("/apis//v1/pods", "NoPage"),
            ("/version", "Version"),
            ("/version/x", "Nothing"),
            ("/healthz", "Health { page: \"healthz\", check: \"\" }"),
            ("/readyz/ping", "Health { page: \"readyz\", check: \"ping\" }"),
            ("/api/v1/pods", "Objects(pods //)"),
            ("/api/v1/pods/p", "Nothing"),
            ("/api/v1/nodes/n", "Objects(nodes /n/)"),
            ("/api/v1/nodes/n/status", "Objects(nodes /n/status)"),
            ("/api/v1/namespaces/n", "Objects(namespaces /n/)"),
            ("/api/v1/namespaces/n/status", "Objects(namespaces /n/status)"),
            ("/api/v1/namespaces/n/pods", "Objects(pods n//)"),
            ("/api/v1/namespaces/n/pods/p", "Objects(pods n/p/)"),
            ("/api/v1/namespaces/n/pods/p/status/", "Objects(pods n/p/status)"),
            ("/api/v1/namespaces/n/pods/p/frob", "Nothing"),
            ("/api/v1/namespaces/n/pods/p/status/x", "Nothing"),
            ("/api/v1/namespaces/n/nodes", "Nothing"),
            ("/api/v1/namespaces/n/frobs/x", "Nothing"),
            ("/api/v1//namespaces/n/configmaps/c", "Nothing"),
            ("/apis/batch/v1/namespaces/n/jobs/a%20b", "Objects(jobs.batch n/a b/)"),
            ("/apis/batch/v1/namespaces/n/jobs/a%2", "Nothing"),
            ("/apis/batch/v1/namespaces/n/jobs/a%2Fb", "Nothing"),
            ("/api/v1/watch/namespaces/n/pods", "Objects(watch pods n//)"),
            ("/api/v1/a/b/c/d/e/f/g/h", "Nothing"),
        ] {
            assert_eq!(shown(path), there, "{path}");
        }
    }

    #[test]
    fn methods_are_verbs_where_the_resource_has_them() {
        for (method, path, verb) in [
            ("GET", "/api/v1/pods", Some(Verb::List)),
            ("POST", "/api/v1/pods", None),
            ("DELETE", "/api/v1/pods", None),
            ("POST", "/api/v1/namespaces/n/pods", Some(Verb::Create)),
            ("DELETE", "/api/v1/namespaces/n/pods", Some(Verb::DeleteCollection)),
            ("PUT", "/api/v1/namespaces/n/pods", None),
            ("POST", "/api/v1/namespaces/n/pods/p", None),
            ("PATCH", "/api/v1/namespaces/n/pods/p", Some(Verb::Patch)),
            ("HEAD", "/api/v1/namespaces/n/pods/p", None),
            ("FROB", "/api/v1/namespaces/n/pods", None),
            ("GET", "/apis/batch/v1/namespaces/n/jobs/j/status", Some(Verb::Get)),
            ("POST", "/apis/batch/v1/namespaces/n/jobs/j/status", None),
            ("DELETE", "/apis/batch/v1/namespaces/n/jobs/j/status", None),
            ("POST", "/api/v1/namespaces/n/pods/p/eviction", Some(Verb::Create)),
            ("PUT", "/api/v1/namespaces/n/pods/p/eviction", None),
            ("GET", "/api/v1/namespaces/n/pods/p/exec", Some(Verb::Create)),
            ("POST", "/api/v1/namespaces/n/pods/p/attach", Some(Verb::Create)),
            ("DELETE", "/api/v1/namespaces/n/pods/p/portforward", None),
            ("GET", "/api/v1/watch/pods", Some(Verb::Watch)),
            ("POST", "/api/v1/watch/pods", None),
            ("DELETE", "/api/v1/namespaces", None),
            ("DELETE", "/api/v1/nodes", Some(Verb::DeleteCollection)),
        ] {
            let Route::Objects(place) = Route::parse(path) else { panic!("{path} leads nowhere") };
            assert_eq!(place.verb(method, false), verb, "{method} {path}");
        }
    }
}
