//! OpenAPI documents: paths, their operations and parameters, from the table of resources.
//!
//! Clients read these before they write: kubectl checks whether the server can validate fields; if so it requests that,
//! and otherwise it refuses to send a file. The structures of objects are not described yet.

use serde_json::{Map, Value, json};
use tally_api::catalog;
use tally_api::kinds::{Resource, Subresource};

use crate::http::negotiate::PATCHES;

/// The media type with which older clients request OpenAPI v2, and the one they expect in the response: the former
/// cannot be parsed as a media type.
pub const V2_BINARY_WANTED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
pub const V2_BINARY: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// `/openapi/v3`: the path of the document of each group and version.
pub fn index() -> Value {
    let mut paths = Map::new();
    for resource in catalog::resources() {
        let path = group_path(resource.group, resource.version);
        // A client that has a document with the same hash need not fetch it again.
        let link = format!("/openapi/v3/{path}?hash={}", env!("CARGO_PKG_VERSION"));
        paths.entry(path).or_insert_with(|| json!({"serverRelativeURL": link}));
    }
    json!({"paths": paths})
}

/// `/openapi/v3/apis/batch/v1`: the document of a group and version, if there is one at this path.
pub fn document(path: &str) -> Option<Value> {
    let mut paths = Map::new();
    for resource in catalog::resources() {
        if group_path(resource.group, resource.version) == path {
            describe(resource, path, &mut paths);
        }
    }
    (!paths.is_empty()).then(|| json!({"openapi": "3.0.0", "info": info(), "paths": paths, "components": {}}))
}

/// `/openapi/v2`: an empty document. Clients that find no description of a kind send it without validation.
pub fn second() -> Value {
    json!({"swagger": "2.0", "info": info(), "paths": {}, "definitions": {}})
}

/// The same in protobuf: `swagger` is field 1 and `info` field 2, which has a title and a version.
pub fn second_in_binary() -> Vec<u8> {
    let part = |tag: u8, text: &str| [&[tag, u8::try_from(text.len()).unwrap_or(0)], text.as_bytes()].concat();
    let info = [part(0x0a, "Kubernetes"), part(0x12, env!("CARGO_PKG_VERSION"))].concat();
    let length = u8::try_from(info.len()).unwrap_or(0);
    // Field 8, `paths`, is present and empty.
    [part(0x0a, "2.0"), vec![0x12, length], info, vec![0x42, 0]].concat()
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": env!("CARGO_PKG_VERSION")})
}

fn group_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn describe(resource: &Resource, group: &str, paths: &mut Map<String, Value>) {
    let plural = resource.plural;
    let scope = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
    let collection = format!("/{group}/{scope}{plural}");
    let item = format!("{collection}/{{name}}");
    let add = |paths: &mut Map<String, Value>, path: String, actions: &[(&str, &str, &str)], about: About<'_>| {
        let served = actions.iter().filter(|(verb, ..)| about.verbs.contains(verb));
        let operations: Map<String, Value> =
            served.map(|(verb, method, action)| ((*method).to_owned(), about.operation(verb, action))).collect();
        if !operations.is_empty() {
            paths.insert(path, operations.into());
        }
    };
    let about = About { resource, subresource: None, verbs: resource.verbs };
    if resource.namespaced {
        add(paths, format!("/{group}/{plural}"), &[("list", "get", "list")], about);
    }
    add(paths, collection, &ON_COLLECTIONS, about);
    add(paths, item.clone(), &ON_OBJECTS, about);
    for subresource in resource.subresources {
        let about = About { subresource: Some(subresource), verbs: subresource.verbs, ..about };
        add(paths, format!("{item}/{}", subresource.name), &ON_OBJECTS, about);
    }
}

/// Verb, method, and the action in the document.
const ON_COLLECTIONS: [(&str, &str, &str); 3] =
    [("list", "get", "list"), ("create", "post", "post"), ("deletecollection", "delete", "deletecollection")];
const ON_OBJECTS: [(&str, &str, &str); 5] = [
    ("get", "get", "get"),
    ("create", "post", "post"),
    ("update", "put", "put"),
    ("patch", "patch", "patch"),
    ("delete", "delete", "delete"),
];

#[derive(Clone, Copy)]
struct About<'a> {
    resource: &'a Resource,
    subresource: Option<&'a Subresource>,
    verbs: &'a [&'a str],
}

impl About<'_> {
    fn operation(&self, verb: &str, action: &str) -> Value {
        let resource = self.resource;
        let (mut group, mut version, mut kind) = (resource.group, resource.version, resource.kind);
        if let Some(subresource) = self.subresource {
            (group, version) = subresource.group_version.unwrap_or((group, version));
            kind = subresource.kind;
        }
        let mut operation = json!({
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
            "parameters": parameters(verb).iter().map(parameter).collect::<Vec<Value>>(),
            "responses": {"200": {"description": "OK"}},
        });
        if verb == "patch" {
            let content: Map<String, Value> = PATCHES.iter().map(|media| ((*media).to_owned(), json!({}))).collect();
            operation["requestBody"] = json!({"content": content});
        }
        operation
    }
}

fn parameter((name, kind): &(&str, &str)) -> Value {
    json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
}

/// The query parameters of a verb, and their types.
fn parameters(verb: &str) -> &'static [(&'static str, &'static str)] {
    match verb {
        "create" | "update" => &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")],
        "patch" => {
            &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")]
        }
        "delete" | "deletecollection" => &[
            ("dryRun", "string"),
            ("gracePeriodSeconds", "integer"),
            ("orphanDependents", "boolean"),
            ("propagationPolicy", "string"),
        ],
        "list" => &[
            ("allowWatchBookmarks", "boolean"),
            ("continue", "string"),
            ("fieldSelector", "string"),
            ("labelSelector", "string"),
            ("limit", "integer"),
            ("resourceVersion", "string"),
            ("resourceVersionMatch", "string"),
            ("sendInitialEvents", "boolean"),
            ("timeoutSeconds", "integer"),
            ("watch", "boolean"),
        ],
        _ => &[],
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn every_document_of_the_index_is_there() {
        let index = index();
        for path in index["paths"].as_object().unwrap().keys() {
            assert_eq!(document(path).unwrap()["openapi"], "3.0.0", "{path}");
        }
        assert!(document("apis/nope/v1").is_none());
    }

    #[test]
    fn clients_find_that_fields_are_validated_here() {
        let document = document("apis/batch/v1").unwrap();
        let patch = &document["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs/{name}"]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"], json!({"group": "batch", "version": "v1", "kind": "Job"}));
        let names: Vec<&Value> = patch["parameters"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert!(names.contains(&&json!("fieldValidation")) && names.contains(&&json!("dryRun")), "{names:?}");
    }
}
