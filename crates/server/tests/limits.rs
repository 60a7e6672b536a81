//! Limits of connections and requests, with a server whose limits are small.

use std::time::Duration;

use crate::support::{Credentials, PATIENCE, Running, collect, get, request};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::Request;
use hyper::body::Frame;
use tally_server::{Deadlines, FlowLimits, ServerOptions, ShareLimits};
use tally_value::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAX_BODY: usize = 3 * 1024 * 1024;

/// A user without the rights of an administrator.
fn alice(server: &Running) -> Credentials {
    server.issue(|params| {
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "alice");
    })
}

async fn may_edit(server: &Running) {
    let binding = json!({
        "metadata": {"name": "alice"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(server.create(path, &binding).await.code, 201);
}

/// Sends text on a connection without credentials, and returns everything that the server sends until it closes.
async fn said(server: &Running, text: &str) -> String {
    let mut stream = server.connect(&Credentials::default(), b"http/1.1").await;
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A connection that is closed without a TLS alert is an error, after everything has been read.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an end");
    String::from_utf8_lossy(&answer).into_owned()
}

/// LIMIT-2.
#[tokio::test]
async fn a_request_without_a_host_is_a_bad_request() {
    let server = Running::start().await;
    for head in ["GET /healthz HTTP/1.1\r\n\r\n", "GET /healthz HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n"] {
        let answer = said(&server, head).await;
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
        assert!(answer.ends_with("400 Bad Request: missing required Host header"), "{answer}");
    }
    let old = said(&server, "GET /healthz HTTP/1.0\r\n\r\n").await;
    assert!(old.starts_with("HTTP/1.0 200 OK\r\n"), "{old}");
    let answer = said(&server, "GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

/// LIMIT-1.
#[tokio::test]
async fn a_body_above_the_limit_gets_413_over_both_protocols_however_long_it_is() {
    let server = Running::start().await;
    for length in [MAX_BODY + 1, 2 * MAX_BODY, 20 * 1024 * 1024] {
        let answer = server.call(&server.admin(), request("POST", CONFIG_MAPS, "x".repeat(length))).await;
        assert_eq!(answer.code, 413, "HTTP/1.1, {length} bytes");

        let mut client = server.http2(&server.admin()).await;
        let asked = Request::builder().method("POST").uri(format!("https://localhost{CONFIG_MAPS}"));
        let asked = asked.body(Full::new(Bytes::from("x".repeat(length)))).unwrap();
        let answer = collect(client.send_request(asked).await.unwrap()).await;
        assert_eq!((answer.code, &answer.value()["reason"]), (413, &json!("RequestEntityTooLarge")), "{length} bytes");

        let mut client = server.http2(&server.admin()).await;
        let pieces = (0..=length / 1024).map(|_| Ok(Frame::data(Bytes::from_static(&[b'x'; 1024]))));
        let asked = Request::builder().method("POST").uri(format!("https://localhost{CONFIG_MAPS}"));
        let asked = asked.body(StreamBody::new(stream::iter(pieces))).unwrap();
        let answer = collect(client.send_request(asked).await.unwrap()).await;
        assert_eq!(answer.code, 413, "{length} bytes of unknown length");
        assert_eq!(server.call(&server.admin(), get("/readyz")).await.code, 200);
    }
}

/// LIMIT-3: nothing that a client leaves unfinished lasts.
#[tokio::test]
async fn what_is_begun_and_not_finished_ends_at_its_deadline() {
    let soon = Duration::from_millis(200);
    let long = Duration::from_secs(3_600);
    let deadlines = Deadlines { handshake: long, head: long, body: long, idle: long, unknown_idle: long };
    let admin = |server: &Running| server.admin();
    let nobody = |_: &Running| Credentials::default();
    type Who<'a> = &'a dyn Fn(&Running) -> Credentials;
    let post = format!("POST {CONFIG_MAPS} HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{{");
    for (what, deadlines, who, sent, told) in [
        ("unknown", Deadlines { unknown_idle: soon, ..deadlines }, &nobody as Who<'_>, "", ""),
        ("idle", Deadlines { idle: soon, ..deadlines }, &admin, "", ""),
        ("head", Deadlines { head: soon, ..deadlines }, &admin, "GET /healthz HTTP/1.1\r\nhost:", ""),
        ("body", Deadlines { body: soon, idle: soon * 2, ..deadlines }, &admin, &post, "408 Request Timeout"),
    ] {
        let server = Running::limited(ServerOptions { deadlines, ..ServerOptions::default() }).await;
        let mut stream = server.connect(&who(&server), b"http/1.1").await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(ended.is_ok(), "{what}: the server does not close it: {answer}");
        let head = answer.strip_prefix("HTTP/1.1 ").unwrap_or_default();
        assert!(head.starts_with(told) && head.is_empty() == told.is_empty(), "{what}: {answer}");
    }
    let server = Running::limited(ServerOptions {
        deadlines: Deadlines { handshake: soon, ..deadlines },
        ..ServerOptions::default()
    })
    .await;
    let mut silent = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let read = tokio::time::timeout(PATIENCE, silent.read(&mut [0])).await.expect("the server closes it");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

/// LIMIT-5.
#[tokio::test]
async fn what_exceeds_a_limit_of_the_user_gets_429_and_a_status() {
    let defaults = FlowLimits::default();
    let of_user = ShareLimits { requests: 2, streams: 1, body_bytes: 1_000, ..defaults.of_user };
    let flow = FlowLimits { of_user, ..defaults };
    let server = Running::limited(ServerOptions { flow, ..ServerOptions::default() }).await;
    may_edit(&server).await;
    let (user, admin) = (alice(&server), server.admin());
    let watch = || get(&format!("{CONFIG_MAPS}?watch=1"));
    let open = server.open(&user, watch()).await;
    assert_eq!(open.status(), 200);
    let refused = server.call(&user, watch()).await;
    assert_eq!(refused.code, 429);
    assert_eq!(refused.headers["retry-after"], "1");
    let status = refused.value();
    assert_eq!(status["message"], "Too many requests, please try again later.");
    assert_eq!((&status["kind"], &status["reason"]), (&json!("Status"), &json!("TooManyRequests")));
    assert_eq!(status["details"]["retryAfterSeconds"], 1);
    assert_eq!(server.call(&user, get(CONFIG_MAPS)).await.code, 200);

    // A stream is one of the two open requests, and a body that does not arrive the other.
    let mut client = server.http2(&user).await;
    let (pieces, body) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
    let body = StreamBody::new(stream::unfold(body, |mut body| async move {
        let piece = body.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(Frame::data(piece)), body))
    }));
    let asked = Request::builder().method("POST").uri(format!("https://localhost{CONFIG_MAPS}"));
    let slow = client.send_request(asked.body(Box::pin(body)).unwrap());
    let mut slow = tokio::spawn(slow);
    pieces.send(Bytes::from_static(b"{\"metadata\":{\"name\":\"s")).unwrap();
    let refused = async { while server.call(&user, get(CONFIG_MAPS)).await.code != 429 {} };
    tokio::time::timeout(PATIENCE, refused).await.expect("the third is refused");
    assert_eq!(server.call(&admin, get(CONFIG_MAPS)).await.code, 200, "an administrator has no limit");
    assert!(tokio::time::timeout(Duration::from_millis(1), &mut slow).await.is_err());
    pieces.send(Bytes::from_static(b"low\"}}")).unwrap();
    drop(pieces);
    let made = collect(slow.await.unwrap().unwrap()).await;
    assert_eq!((made.code, &made.value()["metadata"]["name"]), (201, &json!("slow")));

    let long = json!({"metadata": {"name": "long"}, "data": {"k": "x".repeat(1_000)}});
    let refused = server.call(&user, request("POST", CONFIG_MAPS, long.to_string())).await;
    assert_eq!(refused.code, 429, "more bytes of bodies than the user may send at once");
    drop(open);
}

/// LIMIT-6.
#[tokio::test]
async fn a_new_client_gets_the_place_of_the_client_with_most_connections() {
    let server = Running::limited(ServerOptions { connections: 8, ..ServerOptions::default() }).await;
    may_edit(&server).await;
    let (user, admin) = (alice(&server), server.admin());
    let mut kept = server.open(&admin, get("/api/v1/namespaces?watch=1")).await.into_body();
    assert!(kept.frame().await.unwrap().unwrap().data_ref().is_some());
    let mut idle = Vec::new();
    for _ in 0..40 {
        idle.push(server.connect(&Credentials::default(), b"http/1.1").await);
        assert_eq!(server.call(&admin, get("/api")).await.code, 200);
    }
    // Connections of a user that all have a request are closed too, if the user has most of them.
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(server.open(&user, get(&format!("{CONFIG_MAPS}?watch=1"))).await);
        assert_eq!(server.call(&admin, get("/api")).await.code, 200);
    }
    server.create("/api/v1/namespaces", &json!({"metadata": {"name": "later"}})).await;
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("\"later\"") {
        seen.extend_from_slice(kept.frame().await.expect("the administrator's stay open").unwrap().data_ref().unwrap());
    }
    let page = server.call(&admin, get("/metrics")).await;
    let page = String::from_utf8_lossy(&page.body).into_owned();
    let closed =
        page.lines().find_map(|line| line.strip_prefix("tally_connections_closed_total{reason=\"place_needed\"} "));
    assert!(closed.unwrap().parse::<u32>().unwrap() >= 40, "{page}");
}

/// Lists of every form and length arrive whole, also those that are rendered in pieces.
#[tokio::test]
async fn long_lists_arrive_whole_in_every_form() {
    let server = Running::start().await;
    for number in 0..1_200 {
        server.store(&json!({"metadata": {"name": format!("c{number:04}")}, "data": {"k": "x\ny\n".repeat(20)}})).await;
    }
    let names: Vec<String> = (0..1_200).map(|number| format!("c{number:04}")).collect();
    let name_of = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    for (accept, query) in [
        ("application/json", ""),
        ("application/json", "?pretty=true"),
        ("application/yaml", ""),
        ("application/json;as=Table;g=meta.k8s.io;v=v1", ""),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "?pretty=1"),
        ("application/yaml;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", ""),
    ] {
        let mut asked = get(&format!("{CONFIG_MAPS}{query}"));
        asked.headers_mut().insert("accept", accept.parse().unwrap());
        let answer = server.call(&server.admin(), asked).await;
        assert_eq!(answer.code, 200, "{accept}");
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        let found: Vec<String> = if accept.starts_with("application/yaml") {
            let lines = text.lines().filter_map(|line| line.strip_prefix("    name: "));
            lines.map(str::to_owned).collect()
        } else {
            let list: Value = serde_json::from_str(&text).unwrap();
            let rows = list["rows"].as_array().map(|rows| rows.iter().map(|row| name_of(&row["object"])).collect());
            rows.unwrap_or_else(|| list["items"].as_array().unwrap().iter().map(name_of).collect())
        };
        assert_eq!(found, names, "{accept}{query}");
    }
}
