//! Discovery: the plain documents, one for each group and version, and the aggregated ones that contain everything.

use tally_value::{Map, Value, json};

use crate::kinds::{Resource, Subresource};

use super::{groups, resources, version_of};

/// The version of the core group.
const VERSION: &str = "v1";

/// `/api`. `address` is the address of the server, as `host:port`.
pub fn api_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": [VERSION],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`.
pub fn api_groups() -> Value {
    let groups: Vec<Value> = groups().map(group_entry).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`.
pub fn api_group(name: &str) -> Option<Value> {
    let mut entry = group_entry(groups().find(|group| *group == name)?);
    entry["kind"] = "APIGroup".into();
    entry["apiVersion"] = "v1".into();
    Some(entry)
}

fn group_entry(name: &str) -> Value {
    let version = version_of(name);
    let version = json!({"groupVersion": format!("{name}/{version}"), "version": version});
    json!({"name": name, "versions": [version], "preferredVersion": version})
}

/// `/api/v1` (group "") and `/apis/GROUP/VERSION`.
pub fn resource_list(group: &str, version: &str) -> Option<Value> {
    if version != version_of(group) || !(group.is_empty() || groups().any(|known| known == group)) {
        return None;
    }
    let rows = rows(group).flat_map(|resource| {
        let subresources = resource.subresources.iter().map(|sub| subresource_entry(resource, sub));
        std::iter::once(resource_entry(resource)).chain(subresources)
    });
    let rows: Vec<Value> = rows.collect();
    // The list of the core group has no `apiVersion`.
    Some(if group.is_empty() {
        json!({"kind": "APIResourceList", "groupVersion": VERSION, "resources": rows})
    } else {
        let version = format!("{group}/{version}");
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": rows})
    })
}

fn rows(group: &str) -> impl Iterator<Item = &'static Resource> {
    resources().iter().copied().filter(move |resource| resource.group == group)
}

fn resource_entry(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": resource.verbs,
    });
    put_names(&mut entry, resource);
    entry
}

fn subresource_entry(resource: &Resource, sub: &Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", resource.plural, sub.name), "singularName": "", "namespaced": resource.namespaced,
        "kind": sub.kind, "verbs": sub.verbs,
    });
    if let Some((group, version)) = sub.group_version {
        entry["group"] = group.into();
        entry["version"] = version.into();
    }
    entry
}

/// Adds short names and categories, if there are any.
fn put_names(entry: &mut Value, resource: &Resource) {
    for (field, names) in [("shortNames", resource.short_names), ("categories", resource.categories)] {
        if !names.is_empty() {
            entry[field] = names.into();
        }
    }
}

/// The versions of `apidiscovery.k8s.io` that a client can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregated {
    V2,
    V2Beta1,
}

impl Aggregated {
    /// From the `v` of a media type's parameters.
    pub fn from_version(version: &str) -> Option<Self> {
        match version {
            "v2" => Some(Self::V2),
            "v2beta1" => Some(Self::V2Beta1),
            _ => None,
        }
    }

    pub fn version(self) -> &'static str {
        match self {
            Self::V2 => "v2",
            Self::V2Beta1 => "v2beta1",
        }
    }
}

/// Aggregated `/api`: the core group.
pub fn aggregated_core(form: Aggregated) -> Value {
    aggregated(form, vec![aggregated_group("", Map::new())])
}

/// Aggregated `/apis`: all other groups.
pub fn aggregated_groups(form: Aggregated) -> Value {
    let items = groups().map(|group| aggregated_group(group, Map::from([("name", group)])));
    aggregated(form, items.collect())
}

fn aggregated(form: Aggregated, items: Vec<Value>) -> Value {
    let version = format!("apidiscovery.k8s.io/{}", form.version());
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": version, "metadata": {}, "items": items})
}

fn aggregated_group(group: &str, metadata: Map) -> Value {
    let resources: Vec<Value> = rows(group).map(aggregated_resource).collect();
    let version = json!({"version": version_of(group), "resources": resources, "freshness": "Current"});
    json!({"metadata": metadata, "versions": [version]})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": response_kind(resource.kind, None),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    put_names(&mut entry, resource);
    if !resource.subresources.is_empty() {
        let subresources = resource.subresources.iter().map(|sub| {
            let kind = response_kind(sub.kind, sub.group_version);
            json!({"subresource": sub.name, "responseKind": kind, "verbs": sub.verbs})
        });
        entry["subresources"] = subresources.collect();
    }
    entry
}

/// Group and version are empty if they are those of the enclosing list.
fn response_kind(kind: &str, group_version: Option<(&str, &str)>) -> Value {
    let (group, version) = group_version.unwrap_or_default();
    json!({"group": group, "version": version, "kind": kind})
}
