//! Clients that try to shut out others, against the real binary with real sockets: connections without requests, heads and
//! bodies that do not arrive, many streams, responses that are not read.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use support::client::{Answer, Api, Call};
use support::server::{Server, directory};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Within this time an administrator must be answered, whatever other clients do. A machine that is busy with other work
/// gets more: what a few requests take without other clients.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
const REQUESTS_MORE: u32 = 5;
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The test holds more sockets than a process may open by default.
fn allow_many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum.map_or(Some(65_536), |maximum| Some(maximum.min(65_536)));
    setrlimit(Resource::Nofile, limit).expect("the soft limit can be raised to the hard one");
}

/// A service account that may do what `edit` allows, and its token.
async fn service_account(api: &Api, name: &str) -> String {
    let mut admin = api.connection();
    let path = "/api/v1/namespaces/default/serviceaccounts";
    let made = admin.call(&Call::new("POST", path).body(&json!({"metadata": {"name": name}}))).await.unwrap();
    assert_eq!(made.code, 201, "{}", made.text);
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    assert_eq!(admin.call(&Call::new("POST", path).body(&binding)).await.unwrap().code, 201);
    let path = format!("/api/v1/namespaces/default/serviceaccounts/{name}/token");
    let token = admin.call(&Call::new("POST", path).body(&json!({"spec": {}}))).await.unwrap();
    token.value()["status"]["token"].as_str().expect("a token").to_owned()
}

fn bearer(call: Call, token: &str) -> Call {
    call.header("authorization", &format!("Bearer {token}"))
}

/// The head of a POST whose body has 1,000 bytes.
fn head_of_a_body(token: &str) -> String {
    format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: \
         application/json\r\ncontent-length: 1000\r\n\r\n{{\"metadata\":"
    )
}

type Http2 = SendRequest<Full<Bytes>>;

async fn http2(api: &Api) -> Http2 {
    let stream = api.http2_stream().await.expect("a connection");
    let executor = TokioExecutor::new();
    let (sender, connection) = hyper::client::conn::http2::handshake(executor, TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn http2_get(api: &Api, path: &str, token: &str) -> Request<Full<Bytes>> {
    let uri = format!("https://{}{path}", api.authority());
    Request::builder().uri(uri).header("authorization", format!("Bearer {token}")).body(Full::default()).unwrap()
}

async fn metric(api: &Api, name: &str) -> f64 {
    let page = api.connection().call(&Call::get("/metrics")).await.unwrap().text;
    let lines = page.lines().filter_map(|line| line.strip_prefix(name)?.rsplit_once(' '));
    lines.map(|(_, value)| value.parse::<f64>().unwrap()).sum()
}

/// How long an administrator waits for a GET on a new connection, several times.
async fn waits_of_an_administrator(api: &Api) -> Vec<Duration> {
    let mut waits = Vec::new();
    for _ in 0..20 {
        let asked = Instant::now();
        let answer = api.connection().call(&Call::get("/api/v1/namespaces/default")).await.expect("an answer");
        waits.push(asked.elapsed());
        assert_eq!(answer.code, 200, "{}", answer.text);
    }
    waits.sort_unstable();
    waits
}

/// Prints how long an administrator waits for a GET, and asserts that it is soon.
struct Waits {
    within: Duration,
}

impl Waits {
    /// Call it before there are other clients.
    async fn new(api: &Api) -> Waits {
        let waits = waits_of_an_administrator(api).await;
        let worst = waits[waits.len() - 1];
        println!("an administrator's GET alone: median {:.1?}, worst {worst:.1?}", waits[waits.len() / 2]);
        Waits { within: ANSWERED_WITHIN + REQUESTS_MORE * worst }
    }

    async fn check(&self, what: &str, api: &Api) {
        let waits = waits_of_an_administrator(api).await;
        let (median, worst) = (waits[waits.len() / 2], waits[waits.len() - 1]);
        println!("an administrator's GET beside {what}: median {median:.1?}, worst {worst:.1?}");
        assert!(worst < self.within, "beside {what}: {worst:?}, more than {:?}", self.within);
    }
}

fn is_too_many(answer: &Answer) -> bool {
    let status = answer.value();
    answer.code == 429
        && status["kind"] == "Status"
        && status["reason"] == "TooManyRequests"
        && status["details"]["retryAfterSeconds"] == 1
}

#[derive(Default)]
struct Attack {
    plain: Vec<TcpStream>,
    secured: Vec<TlsStream<TcpStream>>,
    streams: Vec<(Http2, Vec<Incoming>)>,
}

impl Attack {
    /// Connections on which nothing is sent: half of them without a handshake.
    async fn idle(&mut self, api: &Api, count: usize) {
        for _ in 0..count / 2 {
            self.plain.push(TcpStream::connect(api.authority()).await.unwrap());
            // The server may close it at any time, for a newer one.
            if let Ok(stream) = api.stream().await {
                self.secured.push(stream);
            }
        }
    }

    /// Connections on which this text is sent and nothing more.
    async fn begun(&mut self, api: &Api, text: &str, count: usize) {
        for _ in 0..count {
            if let Ok(mut stream) = api.stream().await
                && stream.write_all(text.as_bytes()).await.is_ok()
            {
                self.secured.push(stream);
            }
        }
    }

    /// Watches, 200 on a connection. Returns how many were refused.
    async fn watches(&mut self, api: &Api, token: &str, count: usize) -> usize {
        let mut refused = 0;
        for _ in 0..count / 200 {
            let mut sender = http2(api).await;
            let mut open = Vec::new();
            for _ in 0..200 {
                let asked = http2_get(api, &format!("{CONFIG_MAPS}?watch=1"), token);
                match sender.send_request(asked).await {
                    Ok(answer) if answer.status() == 200 => open.push(answer.into_body()),
                    Ok(answer) => {
                        assert_eq!(answer.status(), 429);
                        assert_eq!(answer.headers()["retry-after"], "1");
                        refused += 1;
                    }
                    Err(error) => panic!("no answer: {error}"),
                }
            }
            self.streams.push((sender, open));
        }
        refused
    }
}

/// LIMIT-3, LIMIT-4, LIMIT-6.
#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_is_served_whatever_other_clients_hold_open() {
    allow_many_files();
    let directory = directory();
    let server = Server::start(directory.path()).await;
    let admin = server.api.clone();
    let others = admin.without_certificate();
    let token = service_account(&admin, "attacker").await;
    let mut attack = Attack::default();
    let waits = Waits::new(&admin).await;

    attack.idle(&others, 2_000).await;
    waits.check("2,000 idle connections", &admin).await;
    // For the places of others; on a slow machine some were idle for too long before that.
    assert!(metric(&admin, "tally_connections_closed_total").await > 1_000.0);

    attack.begun(&others, "GET /api/v1/pods HTTP/1.1\r\nhost: x\r\naccept: ", 400).await;
    waits.check("400 slow heads", &admin).await;

    attack.begun(&others, &head_of_a_body(&token), 400).await;
    waits.check("400 slow bodies", &admin).await;
    assert_eq!(metric(&admin, "apiserver_flowcontrol_current_executing_requests{").await, 0.0, "bodies have no seat");

    let refused = attack.watches(&others, &token, 400).await;
    assert_eq!(refused, 400 - 256);
    waits.check("all of these and 400 streams of one token", &admin).await;

    // The attack goes on while the administrator is served.
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let flood = tokio::spawn(async move {
        let mut opened = 0;
        while !*stopped.borrow_and_update() {
            attack.idle(&others, 50).await;
            attack.begun(&others, &head_of_a_body(&token), 10).await;
            opened += 60;
            if attack.secured.len() > 4_000 {
                attack.secured.drain(..2_000);
                attack.plain.clear();
            }
        }
        opened
    });
    waits.check("new connections all the time", &admin).await;
    stop.send(true).unwrap();
    println!("{} connections were opened meanwhile", flood.await.unwrap());
}

/// LIMIT-4: all seats are free while bodies are under way: the same user is served, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_arrive_takes_no_seat() {
    let directory = directory();
    let server = Server::start(directory.path()).await;
    let others = server.api.without_certificate();
    let token = service_account(&server.api, "slow").await;
    let mut attack = Attack::default();
    attack.begun(&others, &head_of_a_body(&token), 300).await;
    let answer = others.connection().call(&bearer(Call::get(CONFIG_MAPS), &token)).await.unwrap();
    assert_eq!(answer.code, 200, "{}", answer.text);
    let object = json!({"metadata": {"name": "quick"}});
    let call = bearer(Call::new("POST", CONFIG_MAPS).body(&object), &token);
    assert_eq!(others.connection().call(&call).await.unwrap().code, 201);
}

/// LIMIT-5, LIMIT-7.
#[tokio::test(flavor = "multi_thread")]
async fn the_streams_of_a_user_are_limited_and_those_of_others_are_not_affected() {
    let directory = directory();
    let server = Server::start(directory.path()).await;
    let others = server.api.without_certificate();
    let (one, two) = (service_account(&server.api, "one").await, service_account(&server.api, "two").await);
    let mut attack = Attack::default();
    assert_eq!(attack.watches(&others, &one, 400).await, 400 - 256);
    let refused = others.connection().call(&bearer(Call::get(format!("{CONFIG_MAPS}?watch=1")), &one)).await.unwrap();
    assert!(is_too_many(&refused), "{refused:?}");
    let rejected =
        "apiserver_flowcontrol_rejected_requests_total{priority_level=\"global-default\",reason=\"streams\"}";
    assert_eq!(metric(&server.api, rejected).await, 145.0);
    // Other requests of the user, and streams of other users, are served.
    assert_eq!(others.connection().call(&bearer(Call::get(CONFIG_MAPS), &one)).await.unwrap().code, 200);
    assert_eq!(attack.watches(&others, &two, 200).await, 0);
    assert_eq!(attack.watches(&server.api, "", 400).await, 0, "an administrator has no limit");
    attack.streams.clear();
    let gone = async { while metric(&server.api, "apiserver_longrunning_requests ").await > 0.0 {} };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("streams end with their clients");
    assert_eq!(attack.watches(&others, &one, 200).await, 0);
}

/// LIMIT-5: a client that requests long lists and does not read them: it gets no more than its share, and keeps no seat.
#[tokio::test(flavor = "multi_thread")]
async fn long_lists_that_are_not_read_are_limited() {
    let directory = directory();
    let server = Server::start(directory.path()).await;
    let others = server.api.without_certificate();
    let token = service_account(&server.api, "reader").await;
    let mut admin = server.api.connection();
    for number in 0..1_001 {
        let object = json!({"metadata": {"name": format!("c{number}")}, "data": {"k": "x".repeat(500)}});
        assert_eq!(admin.call(&Call::new("POST", CONFIG_MAPS).body(&object)).await.unwrap().code, 201);
    }
    let waits = Waits::new(&server.api).await;
    // A client with small windows: otherwise its buffers take whole lists, which are then sent.
    let stream = TokioIo::new(others.http2_stream().await.unwrap());
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(1_024).initial_connection_window_size(65_535);
    let (mut sender, connection): (Http2, _) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let (mut unread, mut refused) = (Vec::new(), 0);
    for number in 0..40 {
        let accept =
            ["application/json", "application/yaml", "application/json;as=Table;g=meta.k8s.io;v=v1"][number % 3];
        let mut asked = http2_get(&others, CONFIG_MAPS, &token);
        asked.headers_mut().insert("accept", accept.parse().unwrap());
        let answer = sender.send_request(asked).await.unwrap();
        match answer.status().as_u16() {
            200 => unread.push(answer.into_body()),
            429 => refused += 1,
            code => panic!("{code}"),
        }
    }
    assert_eq!((unread.len(), refused), (16, 24));
    waits.check("16 lists that are not read", &server.api).await;
    assert_eq!(metric(&server.api, "apiserver_flowcontrol_current_executing_requests{").await, 0.0);
    // What was begun can be read to its end.
    let text = unread.remove(0).collect().await.unwrap().to_bytes();
    let list: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1_001);
}
