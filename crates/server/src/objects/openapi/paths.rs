//! The paths of an OpenAPI document: operations, their parameters, bodies and responses, from the table of resources.

use tally_api::kinds::{Resource, Subresource};
use tally_value::{Map, Value, json};

use super::schemas::{Dialect, Schemas};
use crate::http::negotiate::{OBJECTS, PATCHES};

/// Verb, method, action in the document, and the beginning of the operation's name.
type Action = (&'static str, &'static str, &'static str, &'static str);
const ON_COLLECTIONS: [Action; 3] = [
    ("list", "get", "list", "list"),
    ("create", "post", "post", "create"),
    ("deletecollection", "delete", "deletecollection", "delete"),
];
const ON_OBJECTS: [Action; 5] = [
    ("get", "get", "get", "read"),
    ("create", "post", "post", "create"),
    ("update", "put", "put", "replace"),
    ("patch", "patch", "patch", "patch"),
    ("delete", "delete", "delete", "delete"),
];
/// The namespace is part of the path, or the object has none.
const SOME: &str = "";
const ALL_NAMESPACES: &str = "ForAllNamespaces";

/// The paths of a group and version, with the schemas that they refer to.
pub fn describe(
    resource: &'static Resource,
    group: &str,
    schemas: &mut Schemas,
    mut add_path: impl FnMut(String, Value),
) {
    let plural = resource.plural;
    let scope = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
    let collection = format!("/{group}/{scope}{plural}");
    let item = format!("{collection}/{{name}}");
    let mut add = |path: String, actions: &[Action], about: About| {
        let mut operations = Map::new();
        for action in actions.iter().filter(|(verb, ..)| about.verbs.contains(verb)) {
            operations.insert(action.1.to_owned(), about.operation(action, schemas));
        }
        if operations.is_empty() {
            return;
        }
        let named = ["name", "namespace"].into_iter().filter(|name| path.contains(&format!("{{{name}}}")));
        let mut shared: Vec<Value> = named.map(|name| parameter(schemas.dialect, "path", name, "string")).collect();
        shared.push(parameter(schemas.dialect, "query", "pretty", "string"));
        operations.insert("parameters".to_owned(), shared.into());
        add_path(path, operations.into());
    };
    let about = About { resource, subresource: None, verbs: resource.verbs, which: SOME };
    if resource.namespaced {
        add(format!("/{group}/{plural}"), &ON_COLLECTIONS[..1], About { which: ALL_NAMESPACES, ..about });
    }
    add(collection, &ON_COLLECTIONS, about);
    let actions = ON_OBJECTS.iter().filter(|(verb, ..)| *verb != "create").copied();
    add(item.clone(), &actions.collect::<Vec<_>>(), about);
    for subresource in resource.subresources {
        let about = About { subresource: Some(subresource), verbs: subresource.verbs, ..about };
        add(format!("{item}/{}", subresource.name), &ON_OBJECTS, about);
    }
}

#[derive(Clone, Copy)]
struct About {
    resource: &'static Resource,
    subresource: Option<&'static Subresource>,
    verbs: &'static [&'static str],
    which: &'static str,
}

impl About {
    fn operation(&self, (verb, _, action, begins): &Action, schemas: &mut Schemas) -> Value {
        let resource = self.resource;
        let (mut group, mut version, mut kind) = (resource.group, resource.version, resource.kind);
        if let Some(subresource) = self.subresource {
            (group, version) = subresource.group_version.unwrap_or((group, version));
            kind = subresource.kind;
        }
        // What a client gets there is no object: text, or a stream in both directions.
        let plain = self.subresource.and_then(|subresource| plain_parameters(subresource.name));
        let is_stream = plain.is_some() && kind != resource.kind;
        let action = if is_stream { "connect" } else { *action };
        let body = match *verb {
            _ if is_stream => None,
            "create" | "update" => Some(schemas.kind(group, version, kind)),
            "patch" => Some(schemas.patch()),
            "delete" | "deletecollection" => Some(schemas.structure_named("DeleteOptions")),
            _ => None,
        };
        let shown = match *verb {
            _ if plain.is_some() => String::new(),
            "list" => {
                // The same path is a watch.
                schemas.watch_event();
                schemas.list(group, version, kind)
            }
            "delete" if resource.delete_returns_object => schemas.kind(group, version, kind),
            "delete" | "deletecollection" => schemas.structure_named("Status"),
            _ => schemas.kind(group, version, kind),
        };
        let codes: &[(&str, &str)] = match *verb {
            _ if is_stream => &[("200", "OK")],
            "create" => &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
            "update" | "patch" => &[("200", "OK"), ("201", "Created")],
            "delete" => &[("200", "OK"), ("202", "Accepted")],
            _ => &[("200", "OK")],
        };
        let dialect = schemas.dialect;
        let parameters = plain.unwrap_or_else(|| parameters(verb)).iter();
        let mut parameters: Vec<Value> =
            parameters.map(|(name, kind)| parameter(dialect, "query", name, kind)).collect();
        let produces: &[&str] = match plain {
            Some(_) if is_stream => &["*/*"],
            Some(_) => &["text/plain"],
            None => OBJECTS,
        };
        let streams: &[&str] = if *verb == "list" { &["application/json;stream=watch"] } else { &[] };
        let consumes: &[&str] = if *verb == "patch" { &PATCHES } else { &["*/*"] };
        let schema = if plain.is_some() { json!({"type": "string"}) } else { dialect.reference(&shown) };
        let mut operation = json!({
            "description": self.description(verb, kind),
            "operationId": self.name(verb, begins),
            "tags": [tag(resource.group, resource.version)],
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
        });
        let mut responses = Map::new();
        match dialect {
            Dialect::V2 => {
                if let Some(body) = body {
                    let required = !verb.starts_with("delete");
                    let mut one = json!({"in": "body", "name": "body", "schema": dialect.reference(&body)});
                    if required {
                        one["required"] = true.into();
                    }
                    parameters.insert(0, one);
                }
                operation["consumes"] = consumes.into();
                operation["produces"] = [produces, streams].concat().into();
                for (code, text) in codes {
                    responses.insert((*code).to_owned(), json!({"description": text, "schema": schema}));
                }
            }
            Dialect::V3 => {
                if let Some(body) = body {
                    let schema = json!({"schema": dialect.reference(&body)});
                    let content: Map = consumes.iter().map(|media| ((*media).to_owned(), schema.clone())).collect();
                    operation["requestBody"] = json!({"content": content});
                    if !verb.starts_with("delete") {
                        operation["requestBody"]["required"] = true.into();
                    }
                }
                let content =
                    produces.iter().chain(streams).map(|media| ((*media).to_owned(), json!({"schema": schema})));
                let content: Map = content.collect();
                for (code, text) in codes {
                    responses.insert((*code).to_owned(), json!({"description": text, "content": content}));
                }
            }
        }
        responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        operation["responses"] = responses.into();
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        operation
    }

    fn description(&self, verb: &str, kind: &str) -> String {
        let part = self.subresource.map_or(String::new(), |part| format!(" through {}", part.name));
        match verb {
            "list" => format!("Lists or watches objects of the kind {kind}."),
            "get" => format!("Reads a {kind}{part}."),
            "create" => format!("Creates a {kind}{part}."),
            "update" => format!("Replaces a {kind}{part}."),
            "patch" => format!("Changes a part of a {kind}{part}."),
            "delete" => format!("Deletes a {kind}."),
            _ => format!("Deletes the selected objects of the kind {kind}."),
        }
    }

    /// `readBatchV1NamespacedJobStatus`
    fn name(&self, verb: &str, begins: &str) -> String {
        let resource = self.resource;
        let collection = if verb == "deletecollection" { "Collection" } else { "" };
        let scope = if resource.namespaced && self.which == SOME { "Namespaced" } else { "" };
        let group = camel(short(resource.group), true);
        let version = camel(resource.version, true);
        let part = self.subresource.map_or(String::new(), |part| camel(part.name, true));
        format!("{begins}{group}{version}{collection}{scope}{}{part}{}", resource.kind, self.which)
    }
}

/// `batch_v1`
fn tag(group: &str, version: &str) -> String {
    format!("{}_{version}", camel(short(group), false))
}

/// The name of a group without the domain that all have in common.
fn short(group: &str) -> &str {
    if group.is_empty() { "core" } else { group.trim_end_matches(".k8s.io") }
}

/// `rbac.authorization`: `RbacAuthorization`.
fn camel(text: &str, first: bool) -> String {
    let mut upper = first;
    let mut made = String::new();
    for letter in text.chars() {
        if letter == '.' {
            upper = true;
        } else {
            made.push(if upper { letter.to_ascii_uppercase() } else { letter });
            upper = false;
        }
    }
    made
}

fn parameter(dialect: Dialect, place: &str, name: &str, kind: &str) -> Value {
    let mut made = json!({"name": name, "in": place});
    match dialect {
        Dialect::V2 => {
            made["type"] = kind.into();
            made["uniqueItems"] = true.into();
        }
        Dialect::V3 => made["schema"] = json!({"type": kind, "uniqueItems": true}),
    }
    if place == "path" {
        made["required"] = true.into();
    }
    made
}

const LOG_PARAMETERS: [(&str, &str); 8] = [
    ("container", "string"),
    ("follow", "boolean"),
    ("limitBytes", "integer"),
    ("previous", "boolean"),
    ("sinceSeconds", "integer"),
    ("sinceTime", "string"),
    ("tailLines", "integer"),
    ("timestamps", "boolean"),
];

/// The parameters of subresources whose responses are no objects.
fn plain_parameters(subresource: &str) -> Option<&'static [(&'static str, &'static str)]> {
    match subresource {
        "log" => Some(&LOG_PARAMETERS),
        "exec" => Some(&[
            ("command", "string"),
            ("container", "string"),
            ("stderr", "boolean"),
            ("stdin", "boolean"),
            ("stdout", "boolean"),
            ("tty", "boolean"),
        ]),
        "attach" => Some(&[
            ("container", "string"),
            ("stderr", "boolean"),
            ("stdin", "boolean"),
            ("stdout", "boolean"),
            ("tty", "boolean"),
        ]),
        "portforward" => Some(&[("ports", "integer")]),
        _ => None,
    }
}

/// The query parameters of a verb, and their types.
fn parameters(verb: &str) -> &'static [(&'static str, &'static str)] {
    match verb {
        "create" | "update" => &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")],
        "patch" => {
            &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")]
        }
        "delete" => &[
            ("dryRun", "string"),
            ("gracePeriodSeconds", "integer"),
            ("orphanDependents", "boolean"),
            ("propagationPolicy", "string"),
        ],
        "deletecollection" => &[
            ("continue", "string"),
            ("dryRun", "string"),
            ("fieldSelector", "string"),
            ("gracePeriodSeconds", "integer"),
            ("labelSelector", "string"),
            ("limit", "integer"),
            ("orphanDependents", "boolean"),
            ("propagationPolicy", "string"),
            ("resourceVersion", "string"),
            ("resourceVersionMatch", "string"),
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
