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

use serde_json::{Map, Value, json};
use tally_api::catalog;

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
        Cached::json(&json!({"paths": links.collect::<Map<String, Value>>()}))
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
    SECOND.get_or_init(|| Cached::json(&second_document()))
}

/// The same in protobuf.
pub fn second_in_binary() -> &'static Cached {
    static BINARY: OnceLock<Cached> = OnceLock::new();
    BINARY.get_or_init(|| Cached::new(&binary::document(&second_document())))
}

fn third() -> &'static BTreeMap<String, Cached> {
    static THIRD: OnceLock<BTreeMap<String, Cached>> = OnceLock::new();
    THIRD.get_or_init(|| {
        let mut paths: Vec<String> = catalog::resources().iter().map(|r| group_path(r.group, r.version)).collect();
        paths.dedup();
        paths.into_iter().map(|path| (path.clone(), Cached::json(&third_document(&path)))).collect()
    })
}

fn third_document(path: &str) -> Value {
    let (paths, schemas) = described(Dialect::V3, |group| group == path);
    json!({"openapi": "3.0.0", "info": info(), "paths": paths, "components": {"schemas": schemas}})
}

fn second_document() -> Value {
    let (paths, schemas) = described(Dialect::V2, |_| true);
    json!({"swagger": "2.0", "info": info(), "paths": paths, "definitions": schemas})
}

fn described(dialect: Dialect, wanted: impl Fn(&str) -> bool) -> (Map<String, Value>, Map<String, Value>) {
    let mut schemas = Schemas::new(dialect);
    let mut paths = Map::new();
    for resource in catalog::resources() {
        let group = group_path(resource.group, resource.version);
        if wanted(&group) {
            paths::describe(resource, &group, &mut schemas, &mut paths);
        }
    }
    (paths, schemas.into_map())
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": env!("CARGO_PKG_VERSION")})
}

fn group_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
