//! Requests of an attacker, and the containment of bugs of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Credentials, Running, get, request};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use tally_core::time::Timestamp;
use tally_registry::Env;
use tally_server::SystemEnv;
use tally_store::StoreOptions;
use tally_value::json;

/// Paths that look like the open ones, and are not.
#[tokio::test]
async fn no_spelling_of_a_path_leads_around_the_gate() {
    let server = Running::start().await;
    for path in [
        "//",
        "//healthz",
        "/./healthz",
        "/HEALTHZ",
        "/Version",
        "/healthzx",
        "/healthz%2f",
        "/%68ealthz",
        "/version/../api/v1/secrets",
        "/api/../healthz",
        "/api/v1/../../version",
        "/api/v1/namespaces/default/secrets/healthz",
        "/api/v1/namespaces/default/secrets?path=/healthz",
        "/api/v1/namespaces/default/secrets;/healthz",
        "https://localhost/api/v1/secrets",
        "/metrics/healthz",
        "*",
    ] {
        for method in ["GET", "HEAD", "OPTIONS", "POST", "healthz"] {
            if path == "*" && method != "OPTIONS" {
                continue;
            }
            let answer = server.call(&Credentials::default(), request(method, path, "")).await;
            assert_eq!(answer.code, 401, "{method} {path}");
        }
    }
    // Below the open paths there is nothing but their own checks.
    for path in ["/healthz/../api/v1/secrets", "/healthz//api", "/readyz/secrets", "/livez/%2e%2e/api"] {
        let answer = server.call(&Credentials::default(), get(path)).await;
        assert_eq!((answer.code, &answer.body[..]), (404, &b"404 page not found\n"[..]), "{path}");
    }
}

#[tokio::test]
async fn the_head_of_an_answer_comes_without_its_body() {
    let server = Running::start().await;
    for (path, code) in [("/healthz", 200), ("/version", 405), ("/api/v1/namespaces/default", 405), ("/nope", 404)] {
        let answer = server.call(&server.admin(), request("HEAD", path, "")).await;
        assert_eq!((answer.code, answer.body.len()), (code, 0), "{path}");
        assert_ne!(answer.headers.get("content-length").map(|length| length.as_bytes()), Some(&b"0"[..]), "{path}");
    }
}

/// Response headers contain names and values that a client chooses.
#[tokio::test]
async fn nothing_a_client_writes_makes_a_header_of_its_own() {
    let server = Running::start().await;
    let object = json!({"metadata": {"name": "a"}, "x\r\nset-cookie: y=z\r\n\r\n": 1, ("y".repeat(100_000)): 1});
    let answer = server.create("/api/v1/namespaces/default/configmaps", &object).await;
    assert_eq!(answer.code, 201);
    assert_eq!(answer.headers.get("set-cookie"), None);
    let told: Vec<&[u8]> = answer.headers.get_all("warning").iter().map(|value| value.as_bytes()).collect();
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|text| text.len() < 300), "a warning is for people");
}

/// A clock that can be made to panic.
struct Trap(Arc<AtomicBool>);

impl Env for Trap {
    fn now(&self) -> Timestamp {
        assert!(!self.0.load(Ordering::Relaxed), "the clock is broken");
        SystemEnv.now()
    }

    fn new_uid(&self) -> String {
        SystemEnv.new_uid()
    }

    fn random(&self, limit: u32) -> u32 {
        SystemEnv.random(limit)
    }
}

#[tokio::test]
async fn a_mistake_of_ours_costs_one_request_and_not_its_neighbours() {
    let broken = Arc::new(AtomicBool::new(false));
    let server = Running::in_world(StoreOptions::default(), Box::new(Trap(broken.clone()))).await;
    let mut client = server.http2(&server.admin()).await;
    let asked = |method: &str, path: &str| -> Request<Full<Bytes>> {
        Request::builder().method(method).uri(format!("https://localhost{path}")).body(Full::default()).unwrap()
    };
    let watch = client.send_request(asked("GET", "/api/v1/namespaces?watch=1")).await.unwrap();
    let mut events = watch.into_body();
    events.frame().await.unwrap().unwrap();
    broken.store(true, Ordering::Relaxed);
    for method in ["GET", "POST"] {
        let answer = client.send_request(asked(method, "/api/v1/namespaces")).await.unwrap();
        assert_eq!(answer.status(), 500, "{method}");
    }
    broken.store(false, Ordering::Relaxed);
    assert_eq!(client.send_request(asked("GET", "/api/v1/namespaces")).await.unwrap().status(), 200);
    server.create("/api/v1/namespaces", &json!({"metadata": {"name": "later"}})).await;
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("\"later\"") {
        seen.extend_from_slice(events.frame().await.expect("the watch goes on").unwrap().data_ref().unwrap());
    }
}

/// A token that is bound to an object is invalid once the object is gone.
#[tokio::test]
async fn a_token_ends_with_what_it_is_bound_to() {
    let server = Running::start().await;
    let (accounts, secrets) = ("/api/v1/namespaces/default/serviceaccounts", "/api/v1/namespaces/default/secrets");
    server.create(accounts, &json!({"metadata": {"name": "s"}})).await;
    server.create(secrets, &json!({"metadata": {"name": "bound"}})).await;
    let reference = json!({"apiVersion": "v1", "kind": "Secret", "name": "bound"});
    let made = server.create(&format!("{accounts}/s/token"), &json!({"spec": {"boundObjectRef": reference}})).await;
    let token = server.token(made.value()["status"]["token"].as_str().unwrap());
    assert_eq!(server.call(&token, get("/api")).await.code, 200);
    server.call(&server.admin(), request("DELETE", &format!("{secrets}/bound"), "")).await;
    assert_eq!(server.call(&token, get("/api")).await.code, 401);
    server.create(secrets, &json!({"metadata": {"name": "bound"}})).await;
    assert_eq!(server.call(&token, get("/api")).await.code, 401, "another of the same name");
}
