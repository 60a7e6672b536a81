//! What is served apart from objects: health, version, discovery, metrics.

use std::sync::OnceLock;

use hyper::header::{CACHE_CONTROL, HeaderValue, LOCATION};
use tally_api::catalog::discovery::Aggregated;
use tally_api::catalog::{self, discovery};
use tally_api::options::Query;
use tally_api::status_error::StatusError;
use tally_value::{Value, json};

use crate::encode::{self, HttpResponse};
use crate::http::cached::Cached;
use crate::http::handler::ApiHandler;
use crate::http::negotiate::{self, ResponseFormat};
use crate::objects::openapi;

/// The Kubernetes version whose API is served.
const KUBERNETES: (&str, &str, &str) = ("1", "36", "v1.36.4");

/// `/healthz`, `/livez`, `/readyz`: any method, with `?verbose`, and a single check as in `/readyz/ping`. A process
/// that answers at all is alive: it is ready before it listens, and stops listening before it stops. A server whose
/// store accepts no writes is still alive, because it can be read, but it is not ready. That the disk is full is told; any
/// other reason is only in its metrics and in the errors of writes, because these paths need no credentials.
///
/// `controllers`: those that run in this process, if the process says so. It ends if one of them does, so they are well.
/// With them a client knows whether there is a controller although it has no Lease.
pub fn health(
    page: &str,
    check: &str,
    query: &Query<'_>,
    store_is_well: bool,
    controllers: Option<&[&str]>,
) -> HttpResponse {
    health_because(page, check, query, (!store_is_well).then_some("reason withheld"), controllers)
}

/// The same for a server whose disk is full.
pub fn health_with_full_disk(page: &str, check: &str, query: &Query<'_>, controllers: Option<&[&str]>) -> HttpResponse {
    health_because(page, check, query, Some("the disk is full: no writes until there is room again"), controllers)
}

/// `store`: what is wrong with it, in words for anyone.
fn health_because(
    page: &str,
    check: &str,
    query: &Query<'_>,
    store: Option<&str>,
    controllers: Option<&[&str]>,
) -> HttpResponse {
    let mut checks = vec![("ping".to_owned(), None)];
    if page != "livez" {
        checks.push(("store".to_owned(), store));
        if let Some(names) = controllers {
            checks.push(("controllers".to_owned(), None));
            checks.extend(names.iter().map(|name| (format!("controllers/{name}"), None)));
        }
    }
    if !check.is_empty() {
        return match checks.iter().find(|(name, _)| *name == check) {
            Some((_, None)) => encode::text(200, "ok"),
            Some((name, Some(why))) => encode::text(500, format!("internal server error: {name} failed: {why}\n")),
            None => not_found(),
        };
    }
    let well = checks.iter().all(|(_, wrong)| wrong.is_none());
    if well && query.get("verbose").is_none() {
        return encode::text(200, "ok");
    }
    let mut told = String::new();
    for (name, wrong) in &checks {
        told += &match wrong {
            None => format!("[+]{name} ok\n"),
            Some(why) => format!("[-]{name} failed: {why}\n"),
        };
    }
    told += &format!("{page} check {}\n", if well { "passed" } else { "failed" });
    encode::text(if well { 200 } else { 500 }, told)
}

pub fn not_found() -> HttpResponse {
    encode::text(404, "404 page not found\n")
}

pub fn version(response_format: ResponseFormat) -> HttpResponse {
    let (major, minor, version) = KUBERNETES;
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let document = json!({
        "major": major, "minor": minor, "emulationMajor": major, "emulationMinor": minor,
        "minCompatibilityMajor": major, "minCompatibilityMinor": minor,
        "gitVersion": format!("{version}+tally.{}", env!("CARGO_PKG_VERSION")), "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "", "goVersion": "none: this is Rust", "compiler": "rustc",
        "platform": format!("{}/{architecture}", std::env::consts::OS),
    });
    encode::document(200, &document, response_format)
}

/// `/`: the list of paths.
pub fn index() -> Value {
    let mut paths: Vec<String> = [
        "/api",
        "/api/v1",
        "/apis",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
    ]
    .map(str::to_owned)
    .into();
    for group in catalog::groups() {
        paths.push(format!("/apis/{group}"));
        paths.push(format!("/apis/{group}/{}", catalog::version_of(group)));
    }
    paths.sort();
    json!({"paths": paths})
}

/// `/api` and `/apis`, plain or aggregated. `core`: the server's address, for `/api`; None for `/apis`.
pub fn groups(headers: &hyper::HeaderMap, query: &Query<'_>, core: Option<&str>) -> Result<HttpResponse, StatusError> {
    negotiate::check_accept(headers, negotiate::OBJECTS, false)?;
    let (response_format, aggregated) = negotiate::discovery(headers, query)?;
    let mut answer = match (core, aggregated) {
        (_, Some(form)) if response_format == ResponseFormat::PLAIN => {
            aggregated_discovery(core.is_some(), form).answer(headers, response_format.media_type())
        }
        (Some(_), Some(form)) => encode::document(200, &discovery::aggregated_core(form), response_format),
        (None, Some(form)) => encode::document(200, &discovery::aggregated_groups(form), response_format),
        (Some(address), None) => encode::document(200, &discovery::api_versions(address), response_format),
        (None, None) => encode::document(200, &discovery::api_groups(), response_format),
    };
    if let Some(form) = aggregated
        && let Ok(value) = hyper::header::HeaderValue::from_str(&format!(
            "{};g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList",
            response_format.media_type(),
            form.version()
        ))
    {
        // Clients determine from this header which of the two documents they got.
        answer.headers_mut().insert(hyper::header::CONTENT_TYPE, value);
    }
    answer
        .headers_mut()
        .insert(hyper::header::VARY, hyper::header::HeaderValue::from_static("Accept, Accept-Encoding"));
    Ok(answer)
}

/// The aggregated documents, which clients ask for again and again. They do not change.
fn aggregated_discovery(core: bool, form: Aggregated) -> &'static Cached {
    static DOCUMENTS: [OnceLock<Cached>; 4] = [const { OnceLock::new() }; 4];
    let place = usize::from(core) * 2 + usize::from(form == Aggregated::V2);
    DOCUMENTS[place].get_or_init(|| {
        let document = if core { discovery::aggregated_core(form) } else { discovery::aggregated_groups(form) };
        Cached::new(format!("{document}\n").as_bytes())
    })
}

/// One group, or the resources of one version.
pub fn listing(
    headers: &hyper::HeaderMap,
    query: &Query<'_>,
    document: Option<Value>,
) -> Result<HttpResponse, StatusError> {
    negotiate::check_accept(headers, negotiate::OBJECTS, false)?;
    let (response_format, _) = negotiate::discovery(headers, query)?;
    Ok(encode::document(200, &document.ok_or_else(encode::no_resource)?, response_format))
}

/// `/openapi/...`
pub fn openapi(headers: &hyper::HeaderMap, query: &Query<'_>, path: &str) -> Result<HttpResponse, StatusError> {
    const JSON: &str = ResponseFormat::PLAIN.media_type();
    let accepts = |media: &str| negotiate::accepts_one_of(headers, &[media]);
    match path {
        "v2" if accepts(openapi::V2_BINARY_WANTED)? || accepts(openapi::V2_BINARY)? => {
            return Ok(openapi::second_in_binary().answer(headers, openapi::V2_BINARY));
        }
        "v2" | "v3" => negotiate::check_accept(headers, &[JSON, openapi::V2_BINARY_WANTED], false)?,
        _ => {}
    }
    let document = match path {
        "v2" => openapi::second(),
        "v3" => openapi::index(),
        path => {
            let path = path.strip_prefix("v3/").unwrap_or_default();
            let Some(document) = openapi::document(path) else { return Ok(not_found()) };
            negotiate::check_accept(headers, &[JSON], false)?;
            match query.get("hash") {
                None | Some("") => {}
                Some(hash) if hash == document.hash => {
                    // This address always has this document.
                    let mut answer = document.answer(headers, JSON);
                    answer
                        .headers_mut()
                        .insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
                    return Ok(answer);
                }
                Some(_) => {
                    let mut answer = encode::text(301, "");
                    if let Ok(place) = HeaderValue::from_str(&openapi::link(path, document)) {
                        answer.headers_mut().insert(LOCATION, place);
                    }
                    return Ok(answer);
                }
            }
            document
        }
    };
    Ok(document.answer(headers, JSON))
}

pub fn metrics(handler: &ApiHandler) -> HttpResponse {
    let page = handler.metric_registry.classic();
    encode::answer(200, "text/plain; version=0.0.4; charset=utf-8", crate::http::body::Body::Whole(page.into()))
}

/// Why a subresource of the reference is not served, for those that a user asks for by a command.
pub fn unserved(path: &str) -> Option<StatusError> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let ["api", "v1", "namespaces", _, "pods", _, subresource] = parts[..] else { return None };
    let text = match subresource {
        "ephemeralcontainers" => {
            "ephemeral containers cannot be added: containers are processes of the node, with its programs; use kubectl exec"
        }
        "resize" => {
            "the resources of a running Pod cannot be changed; delete the Pod and create it with other resources"
        }
        _ => return None,
    };
    Some(StatusError::new(405, "MethodNotAllowed", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_whose_store_takes_no_writes_is_alive_and_not_ready() {
        let check = |page: &str, check: &str, query: &str, well: bool| {
            health(page, check, &Query::parse(query), well, None).status().as_u16()
        };
        for page in ["readyz", "healthz"] {
            for query in ["", "verbose"] {
                assert_eq!((check(page, "", query, true), check(page, "", query, false)), (200, 500), "{page} {query}");
            }
            assert_eq!((check(page, "store", "", true), check(page, "store", "", false)), (200, 500));
            assert_eq!(check(page, "ping", "", false), 200);
        }
        assert_eq!((check("livez", "", "", false), check("livez", "store", "", false)), (200, 404));
    }

    #[test]
    fn the_controllers_of_the_process_are_told() {
        let told = |page: &str, check: &str, controllers: Option<&[&str]>| {
            let answer = health(page, check, &Query::parse("verbose"), true, controllers);
            let crate::http::body::Body::Whole(text) = answer.body() else { panic!("a text") };
            (answer.status().as_u16(), String::from_utf8_lossy(text).into_owned())
        };
        let (code, text) = told("readyz", "", Some(&["job", "ttl"]));
        assert_eq!(code, 200);
        assert!(text.contains("[+]controllers ok\n[+]controllers/job ok\n[+]controllers/ttl ok\n"), "{text}");
        // A server without controllers says so; one that does not know says nothing.
        assert!(told("readyz", "", Some(&[])).1.contains("[+]controllers ok\nreadyz"));
        assert!(!told("readyz", "", None).1.contains("controllers"));
        assert!(!told("livez", "", Some(&["job"])).1.contains("controllers"));
        assert_eq!(told("readyz", "controllers/job", Some(&["job"])), (200, "ok".to_owned()));
        assert_eq!(told("readyz", "controllers/ttl", Some(&["job"])).0, 404);
    }

    #[test]
    fn a_full_disk_is_told_in_words() {
        for query in ["", "verbose"] {
            let answer = health_with_full_disk("readyz", "", &Query::parse(query), None);
            assert_eq!(answer.status().as_u16(), 500);
            let crate::http::body::Body::Whole(text) = answer.body() else { panic!("a text") };
            let text = String::from_utf8_lossy(text);
            assert!(text.contains("[-]store failed: the disk is full") && text.contains("[+]ping ok"), "{text}");
        }
        assert_eq!(health_with_full_disk("readyz", "store", &Query::parse(""), None).status().as_u16(), 500);
        assert_eq!(health_with_full_disk("livez", "", &Query::parse(""), None).status().as_u16(), 200);
    }
}
