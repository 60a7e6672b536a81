//! OpenAPI documents: what can be requested, and the structure of every object, from the tables of resources and fields.
//!
//! Clients read these before they write: kubectl checks whether the server can validate fields, finds out how lists are
//! merged, and explains fields to its user. The documents are the same as long as the process runs: each is made at the
//! first request for it and kept in its compressed form only.
//!
//! - `schemas.rs`: the structures
//! - `paths.rs`: the operations
//! - `binary.rs`: the older version in protobuf, for older versions of kubectl

mod binary;
mod paths;
mod schemas;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use tally_api::catalog;
use tally_value::{Map, Value, json};

use crate::http::cached::Cached;
use schemas::{Dialect, Schemas};

/// The media types with which older clients request OpenAPI v2: the first cannot be parsed as a media type, and is
/// answered with the second.
pub const V2_BINARY_WANTED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
pub const V2_BINARY: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// `/openapi/v3`: the path of the document of each group and version.
pub fn index() -> &'static Cached {
    static INDEX: OnceLock<Cached> = OnceLock::new();
    INDEX.get_or_init(|| {
        let links = third().iter().map(|(path, document)| {
            // A client that has a document with the same hash need not fetch it again.
            ((*path).clone(), json!({"serverRelativeURL": link(path, document)}))
        });
        Cached::json(&json!({"paths": links.collect::<Map>()}))
    })
}

/// Where the document of a group and version is, for as long as it is the same.
pub fn link(path: &str, document: &Cached) -> String {
    format!("/openapi/v3/{path}?hash={}", document.hash)
}

/// `/openapi/v3/apis/batch/v1`: the document of a group and version, if there is one at this path.
pub fn document(path: &str) -> Option<&'static Cached> {
    third().get(path)
}

/// `/openapi/v2`: everything in one document.
pub fn second() -> &'static Cached {
    static SECOND: OnceLock<Cached> = OnceLock::new();
    SECOND.get_or_init(|| {
        let (paths, definitions) = described(Dialect::V2, text, text, |_| true);
        let parts = [("definitions", Part::Map(definitions)), ("info", info()), ("paths", Part::Map(paths))];
        Cached::new(&assembled(parts.into_iter().chain([("swagger", Part::Text("\"2.0\"".to_owned()))])))
    })
}

/// The same in protobuf.
pub fn second_in_binary() -> &'static Cached {
    static BINARY: OnceLock<Cached> = OnceLock::new();
    BINARY.get_or_init(|| {
        let (paths, definitions) = described(Dialect::V2, binary::path, binary::schema, |_| true);
        Cached::new(&binary::document(TITLE, VERSION, paths, definitions))
    })
}

fn third() -> &'static BTreeMap<String, Cached> {
    static THIRD: OnceLock<BTreeMap<String, Cached>> = OnceLock::new();
    THIRD.get_or_init(|| {
        let mut paths: Vec<String> = catalog::resources().iter().map(|r| group_path(r.group, r.version)).collect();
        paths.dedup();
        paths.into_iter().map(|path| (path.clone(), Cached::new(&third_document(&path)))).collect()
    })
}

fn third_document(path: &str) -> Vec<u8> {
    let (paths, schemas) = described(Dialect::V3, text, text, |group| group == path);
    let schemas = assembled([("schemas", Part::Map(schemas))].into_iter());
    assembled(
        [
            ("components", Part::Text(String::from_utf8(schemas).unwrap_or_default())),
            ("info", info()),
            ("openapi", Part::Text("\"3.0.0\"".to_owned())),
            ("paths", Part::Map(paths)),
        ]
        .into_iter(),
    )
}

const TITLE: &str = "Kubernetes";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Encoded parts of a document, by name.
type Parts = BTreeMap<String, Vec<u8>>;

/// A part of a document.
enum Part {
    Text(String),
    Map(Parts),
}

/// Paths and schemas of the wanted groups, encoded.
fn described(
    dialect: Dialect,
    path_encoder: fn(&Value) -> Vec<u8>,
    schema_encoder: fn(&Value) -> Vec<u8>,
    wanted: impl Fn(&str) -> bool,
) -> (Parts, Parts) {
    let mut schemas = Schemas::new(dialect, schema_encoder);
    let mut paths = BTreeMap::new();
    for resource in catalog::resources() {
        let group = group_path(resource.group, resource.version);
        if wanted(&group) {
            let add = |path, value: Value| drop(paths.insert(path, path_encoder(&value)));
            paths::describe(resource, &group, &mut schemas, add);
        }
    }
    (paths, schemas.into_found())
}

/// A JSON object of encoded parts.
fn assembled<'a>(parts: impl Iterator<Item = (&'a str, Part)>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut separator = b'{';
    for (name, part) in parts {
        out.push(separator);
        separator = b',';
        out.extend_from_slice(format!("\"{name}\":").as_bytes());
        match part {
            Part::Text(text) => out.extend_from_slice(text.as_bytes()),
            Part::Map(parts) => {
                let mut inner = b'{';
                for (name, text) in parts {
                    out.push(inner);
                    inner = b',';
                    out.extend_from_slice(Value::from(name).to_string().as_bytes());
                    out.push(b':');
                    out.extend_from_slice(&text);
                }
                out.push(b'}');
            }
        }
    }
    out.push(b'}');
    out
}

fn text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn info() -> Part {
    Part::Text(json!({"title": TITLE, "version": VERSION}).to_string())
}

fn group_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
