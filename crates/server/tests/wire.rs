//! The HTTP interface: formats, limits, streams, and shutdown.

use crate::support::{Lines, Running, collect, get, request};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::Request;
use hyper::body::Frame;
use tally_api::decode::decode_as;
use tally_api::options::{FieldValidation, Format};
use tally_api::protobuf;
use tally_store::StoreOptions;
use tally_value::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAX_BODY: usize = 3 * 1024 * 1024;

fn config_map(name: &str, size: usize) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "x".repeat(size)}})
}

fn with(mut request: Request<Full<Bytes>>, name: &'static str, value: &str) -> Request<Full<Bytes>> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

#[tokio::test]
async fn every_response_has_an_id_of_its_own_and_is_not_cached() {
    let server = Running::start().await;
    let answer = server.call(&server.admin(), get("/api/v1/namespaces/default")).await;
    assert_eq!(answer.headers["cache-control"], "no-cache, private");
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(answer.headers["audit-id"].len(), 36);
    assert!(
        answer.body.starts_with(b"{\"kind\":\"Namespace\",\"apiVersion\":\"v1\",\"metadata\":{"),
        "{}",
        answer.value()
    );
    assert!(answer.body.ends_with(b"}\n"));
    let own = with(get("/healthz"), "audit-id", "mine");
    assert_eq!(server.call(&server.admin(), own).await.headers["audit-id"], "mine");
}

#[tokio::test]
async fn unknown_fields_are_warned_of() {
    let server = Running::start().await;
    let object = json!({"metadata": {"name": "a"}, "frob": "\"x\""});
    let answer = server.create(CONFIG_MAPS, &object).await;
    assert_eq!(answer.code, 201);
    assert_eq!(answer.headers["warning"], r#"299 - "unknown field \"frob\"""#);
    let refused = server.create(CONFIG_MAPS, &json!({"metadata": {"name": "NO"}, "frob": 1})).await;
    assert_eq!(refused.code, 422);
    assert_eq!(refused.headers["warning"], r#"299 - "unknown field \"frob\"""#);
    let mut lax = request("POST", &format!("{CONFIG_MAPS}?fieldValidation=Ignore"), object.to_string());
    lax.headers_mut().insert("content-type", "application/json".parse().unwrap());
    assert_eq!(server.call(&server.admin(), lax).await.headers.get("warning"), None);
}

#[tokio::test]
async fn who_uses_what_is_deprecated_is_told_so_every_time() {
    let server = Running::start().await;
    let told = r#"299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice""#;
    for path in ["endpoints", "endpoints/none"] {
        let answer = server.call(&server.admin(), get(&format!("/api/v1/namespaces/default/{path}"))).await;
        assert_eq!(answer.headers["warning"], told, "{path}");
    }
    assert_eq!(server.call(&server.admin(), get(CONFIG_MAPS)).await.headers.get("warning"), None);
}

#[tokio::test]
async fn names_that_are_no_names_are_told_apart_from_missing_ones() {
    let server = Running::start().await;
    for (name, code, told) in [
        ("..", 400, "Name parameter invalid: \"..\": may not be '..'"),
        ("a%25b", 400, "Name parameter invalid: \"a%b\": may not contain '%'"),
        ("a%2Fb", 404, "the server could not find the requested resource"),
        ("A_b", 404, "configmaps \"A_b\" not found"),
    ] {
        let answer = server.call(&server.admin(), get(&format!("{CONFIG_MAPS}/{name}"))).await;
        assert_eq!((answer.code, answer.value()["message"].as_str()), (code, Some(told)), "{name}");
    }
}

#[tokio::test]
async fn logs_are_asked_of_one_container() {
    let server = Running::start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let containers = |names: &[&str]| names.iter().map(|name| json!({"name": name, "image": "i"})).collect::<Vec<_>>();
    for (name, count, node) in [("one", &["a"][..], ""), ("two", &["a", "b"][..], ""), ("away", &["a"][..], "nowhere")]
    {
        let spec = json!({"initContainers": containers(&["i"]), "containers": containers(count), "nodeName": node});
        assert_eq!(server.create(pods, &json!({"metadata": {"name": name}, "spec": spec})).await.code, 201);
    }
    let choice = "a container name must be specified for pod two, choose one of: [i a b]";
    for (path, code, told) in [
        ("one/log", 204, None),
        ("one/log?container=i", 204, None),
        ("one/log?container=x", 400, Some("container x is not valid for pod one")),
        ("two/log", 400, Some(choice)),
        ("away/log", 404, Some("nodes \"nowhere\" not found")),
        ("none/log?tailLines=x", 400, Some("strconv.ParseInt: parsing \"x\": invalid syntax")),
    ] {
        let answer = server.call(&server.admin(), get(&format!("{pods}/{path}"))).await;
        let message = told.map(|_| answer.value()["message"].clone());
        assert_eq!((answer.code, message), (code, told.map(Value::from)), "{path}");
    }
}

#[tokio::test]
async fn a_watch_is_a_stream_of_json() {
    let server = Running::start().await;
    let asked = with(get(&format!("{CONFIG_MAPS}?watch=1")), "accept", "application/yaml");
    let answer = server.call(&server.admin(), asked).await;
    let told = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    assert_eq!(answer.code, 406);
    let text = String::from_utf8_lossy(&answer.body).replace("\n  ", " ");
    assert!(text.contains(told), "{text}");
}

#[tokio::test]
async fn bodies_have_a_limit() {
    let server = Running::start().await;
    for (length, refused) in [(MAX_BODY, false), (MAX_BODY + 1, true)] {
        let answer = server.call(&server.admin(), request("POST", CONFIG_MAPS, "x".repeat(length))).await;
        assert_eq!(answer.code, if refused { 413 } else { 400 }, "{length} bytes");
        if refused {
            assert_eq!(answer.value()["message"], format!("Request entity too large: limit is {MAX_BODY}"));
            assert_eq!(answer.value()["reason"], "RequestEntityTooLarge");
        }
    }
}

#[tokio::test]
async fn a_body_of_unknown_length_has_the_same_limit() {
    let server = Running::start().await;
    let mut client = server.http2(&server.admin()).await;
    // There is no content length, so the server must count.
    let pieces = (0..=MAX_BODY / 1024).map(|_| Ok(Frame::data(Bytes::from_static(&[b'x'; 1024]))));
    let body = StreamBody::new(stream::iter(pieces));
    let mut asked =
        Request::builder().method("POST").uri(format!("https://localhost{CONFIG_MAPS}")).body(body).unwrap();
    asked.headers_mut().insert("content-type", "application/json".parse().unwrap());
    let answer = collect(client.send_request(asked).await.unwrap()).await;
    assert_eq!(answer.code, 413);
}

#[tokio::test]
async fn long_lists_arrive_whole_over_both_protocols() {
    let server = Running::start().await;
    for number in 0..300 {
        server.store(&config_map(&format!("c{number:03}"), 1_000)).await;
    }
    let whole = server.call(&server.admin(), get(CONFIG_MAPS)).await;
    assert_eq!(whole.headers["content-length"], whole.body.len().to_string());
    let listed = whole.value();
    assert_eq!((&listed["kind"], &listed["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    let names: Vec<&str> =
        listed["items"].as_array().unwrap().iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
    assert_eq!(names, (0..300).map(|number| format!("c{number:03}")).collect::<Vec<_>>());
    assert!(listed["items"][0].get("kind").is_none());

    let mut client = server.http2(&server.admin()).await;
    let asked = Request::builder().uri(format!("https://localhost{CONFIG_MAPS}")).body(Full::default()).unwrap();
    let answer = collect(client.send_request(asked).await.unwrap()).await;
    assert_eq!(answer.body, whole.body);

    let page = server.call(&server.admin(), get(&format!("{CONFIG_MAPS}?limit=100"))).await.value();
    assert_eq!(page["metadata"]["remainingItemCount"], 200);
    let token = page["metadata"]["continue"].as_str().unwrap();
    let next = server.call(&server.admin(), get(&format!("{CONFIG_MAPS}?limit=100&continue={token}"))).await.value();
    assert_eq!(next["items"][0]["metadata"]["name"], "c100");
}

#[tokio::test]
async fn objects_can_be_had_as_yaml_and_with_line_breaks() {
    let server = Running::start().await;
    server.create(CONFIG_MAPS, &json!({"metadata": {"name": "c"}, "data": {"a": "1", "b": "x: y"}})).await;
    let path = format!("{CONFIG_MAPS}/c");
    let yaml = server.call(&server.admin(), with(get(&path), "accept", "application/yaml")).await;
    assert_eq!(yaml.headers["content-type"], "application/yaml");
    let text = String::from_utf8_lossy(&yaml.body).into_owned();
    assert!(text.starts_with("apiVersion: v1\ndata:\n  a: \"1\"\n  b: 'x: y'\nkind: ConfigMap\n"), "{text}");

    let back = text.replace("name: c", "name: d").replace("resourceVersion", "# ").replace("uid", "# ");
    let back = with(request("POST", CONFIG_MAPS, back), "content-type", "application/yaml");
    assert_eq!(server.call(&server.admin(), back).await.code, 201);

    let missing = with(get(&format!("{CONFIG_MAPS}/e")), "accept", "application/yaml");
    let missing = server.call(&server.admin(), missing).await;
    assert!(missing.code == 404 && missing.body.starts_with(b"apiVersion: v1\ncode: 404\n"), "{}", missing.value());

    let pretty = server.call(&server.admin(), get(&format!("{path}?pretty=true"))).await;
    assert!(pretty.body.starts_with(b"{\n  \""), "{}", pretty.value());
    assert_eq!(pretty.value(), server.call(&server.admin(), get(&path)).await.value());
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The object of an answer in protobuf, in JSON.
fn in_json(body: &[u8]) -> Value {
    let envelope = protobuf::envelope(body).unwrap();
    let (group, version) = envelope.api_version.split_once('/').unwrap_or(("", envelope.api_version));
    let version = if group == "meta.k8s.io" { "v1" } else { version };
    let kind = envelope.kind;
    decode_as(group, version, kind, body, Format::Protobuf, FieldValidation::Strict).unwrap().object
}

/// API-34
#[tokio::test]
async fn protobuf_is_read_and_answered() {
    let server = Running::start().await;
    // A ConfigMap `p` with a=b, as Go clients write it.
    let body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x0f\x0a\x03\x0a\x01p\x12\x08\x0a\x01a\x12\x03b c";
    let asked = with(request("POST", CONFIG_MAPS, &body[..]), "content-type", PROTOBUF);
    let asked = with(asked, "accept", "application/vnd.kubernetes.protobuf,application/json");
    let answer = server.call(&server.admin(), asked).await;
    assert_eq!(answer.code, 201, "{}", answer.value());
    assert_eq!(answer.headers["content-type"], PROTOBUF);
    let created = in_json(&answer.body);
    assert_eq!(created["data"], json!({"a": "b c"}));

    let path = format!("{CONFIG_MAPS}/p");
    let shown = server.call(&server.admin(), get(&path)).await;
    assert_eq!(shown.headers["content-type"], "application/json");
    assert_eq!(shown.value(), created);
    let got = server.call(&server.admin(), with(get(&path), "accept", PROTOBUF)).await;
    assert_eq!((got.code, in_json(&got.body)), (200, created.clone()));

    let metadata = format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1");
    let partial = server.call(&server.admin(), with(get(&path), "accept", &metadata)).await;
    let envelope = protobuf::envelope(&partial.body).unwrap();
    assert_eq!((envelope.api_version, envelope.kind), ("meta.k8s.io/v1beta1", "PartialObjectMetadata"));
    let structure = protobuf::structure("meta.k8s.io/v1", "PartialObjectMetadata").unwrap();
    assert_eq!(protobuf::read(structure, envelope.raw).unwrap()["metadata"]["name"], "p");

    // Options in protobuf, and a Status.
    let options = protobuf::document(&json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "another"},
    }));
    let asked = || with(request("DELETE", &path, options.clone().unwrap()), "content-type", PROTOBUF);
    let refused = server.call(&server.admin(), with(asked(), "accept", PROTOBUF)).await;
    let status = in_json(&refused.body);
    assert_eq!((refused.code, &status["kind"], &status["reason"]), (409, &json!("Status"), &json!("Conflict")));
    assert_eq!(status, server.call(&server.admin(), asked()).await.value());
    let deleted = server.call(&server.admin(), with(request("DELETE", &path, ""), "accept", PROTOBUF)).await;
    assert_eq!((deleted.code, &in_json(&deleted.body)["status"]), (200, &json!("Success")));
}

/// API-34
#[tokio::test]
async fn errors_are_in_protobuf_for_clients_that_ask_for_it() {
    let server = Running::start().await;
    let nobody = server.token("wrong");
    for (credentials, method, path, code) in [
        (&server.admin(), "GET", "/api/v1/namespaces/default/configmaps/none", 404),
        (&server.admin(), "PUT", CONFIG_MAPS, 405),
        (&server.admin(), "PATCH", "/api/v1/namespaces/default/configmaps/none", 415),
        (&nobody, "GET", CONFIG_MAPS, 401),
    ] {
        let asked = || request(method, path, "");
        let json = server.call(credentials, asked()).await;
        let answer = server.call(credentials, with(asked(), "accept", PROTOBUF)).await;
        assert_eq!((answer.code, json.code), (code, code), "{method} {path}");
        assert_eq!(answer.headers["content-type"], PROTOBUF, "{method} {path}");
        assert_eq!(in_json(&answer.body), json.value(), "{method} {path}");
    }
    // A body that is no message; a table, which has no form in protobuf; and what is no object.
    let broken = with(request("POST", CONFIG_MAPS, "{}"), "content-type", PROTOBUF);
    let broken = server.call(&server.admin(), broken).await;
    assert_eq!(broken.code, 400);
    assert!(broken.value()["message"].as_str().unwrap().contains("expected prefix [107 56 115 0]"));
    let table = format!("{PROTOBUF};as=Table;g=meta.k8s.io;v=v1");
    let table = server.call(&server.admin(), with(get(CONFIG_MAPS), "accept", &table)).await;
    assert_eq!((table.code, table.headers["content-type"].to_str().unwrap()), (406, "application/json"));
    for path in ["/version", "/apis/batch/v1", "/api/v1"] {
        assert_eq!(server.call(&server.admin(), with(get(path), "accept", PROTOBUF)).await.code, 406, "{path}");
        let also = with(get(path), "accept", "application/vnd.kubernetes.protobuf,application/json");
        assert_eq!(server.call(&server.admin(), also).await.headers["content-type"], "application/json");
    }
}

/// API-34
#[tokio::test]
async fn short_and_long_lists_are_whole_in_protobuf() {
    let server = Running::start().await;
    let mut count = 0;
    for until in [0, 1, 40, 300] {
        while count < until {
            server.store(&config_map(&format!("c-{count:03}"), 2_000)).await;
            count += 1;
        }
        let json = server.call(&server.admin(), get(CONFIG_MAPS)).await.value();
        let answer = server.call(&server.admin(), with(get(CONFIG_MAPS), "accept", PROTOBUF)).await;
        assert_eq!((answer.code, answer.headers["content-type"].to_str().unwrap()), (200, PROTOBUF));
        let envelope = protobuf::envelope(&answer.body).unwrap();
        assert_eq!((envelope.api_version, envelope.kind), ("v1", "ConfigMapList"));
        let structure = protobuf::structure("v1", "ConfigMap").unwrap();
        let mut expected = Vec::new();
        for item in json["items"].as_array().unwrap() {
            protobuf::list_item(structure, item, &mut expected);
        }
        assert!(envelope.raw.ends_with(&expected), "{until} objects");
        let head = envelope.raw.len() - expected.len();
        let start = protobuf::list_start("v1", "ConfigMapList", &json["metadata"], expected.len());
        assert!(start.ends_with(&envelope.raw[..head]) && answer.body.ends_with(protobuf::END));
    }
    let metadata = format!("{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    let partial = server.call(&server.admin(), with(get(CONFIG_MAPS), "accept", &metadata)).await;
    assert_eq!(protobuf::envelope(&partial.body).unwrap().kind, "PartialObjectMetadataList");
}

/// API-34
#[tokio::test]
async fn watches_in_protobuf_have_the_events_of_watches_in_json() {
    let server = Running::start().await;
    server.create(CONFIG_MAPS, &config_map("old", 200)).await;
    let query = "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut lines = Lines::of(server.open(&server.admin(), watch(query)).await);
    let asked = with(watch(query), "accept", "application/vnd.kubernetes.protobuf;stream=watch, application/json");
    let response = server.open(&server.admin(), asked).await;
    assert_eq!(response.headers()["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
    let mut frames = Frames { body: response.into_body(), buffer: Vec::new() };
    server.create(CONFIG_MAPS, &config_map("new", 70_000)).await;
    let changed = json!({"data": {"k": "y"}}).to_string();
    let changed = request("PATCH", &format!("{CONFIG_MAPS}/new"), changed);
    server.call(&server.admin(), with(changed, "content-type", "application/merge-patch+json")).await;
    server.call(&server.admin(), request("DELETE", &format!("{CONFIG_MAPS}/new"), "")).await;
    let mut types = Vec::new();
    while types.last().is_none_or(|kind| kind != "DELETED") {
        let event = lines.next().await.unwrap();
        let (kind, object) = frames.next().await;
        assert_eq!((event["type"].as_str().unwrap(), &event["object"]["metadata"]), (&*kind, &object["metadata"]));
        assert_eq!((&event["object"]["data"], &event["object"]["kind"]), (&object["data"], &object["kind"]));
        types.push(kind);
    }
    assert_eq!(types.iter().filter(|kind| *kind == "BOOKMARK").count(), 1);
    assert_eq!(&types[types.len() - 2..], ["MODIFIED", "DELETED"]);

    let old = watch("resourceVersion=1");
    let response = server.open(&server.admin(), with(old, "accept", PROTOBUF)).await;
    let mut frames = Frames { body: response.into_body(), buffer: Vec::new() };
    let (kind, object) = frames.next().await;
    assert!(kind == "ADDED" || (kind == "ERROR" && object["code"] == 410), "{kind} {object}");
}

/// The frames of a watch in protobuf, as they arrive.
struct Frames {
    body: hyper::body::Incoming,
    buffer: Vec<u8>,
}

impl Frames {
    /// The type and the object of the next event.
    async fn next(&mut self) -> (String, Value) {
        loop {
            if let Some((length, rest)) = self.buffer.split_first_chunk::<4>()
                && let Some(event) = rest.get(..u32::from_be_bytes(*length) as usize)
            {
                // The type is field 1; in field 2, field 1 is the object.
                assert_eq!(event[0], 0x0a);
                let (kind, rest) = event[2..].split_at(event[1].into());
                let at = rest.windows(4).position(|bytes| bytes == protobuf::MAGIC).unwrap();
                let found = (String::from_utf8(kind.to_vec()).unwrap(), in_json(&rest[at..]));
                let whole = event.len() + 4;
                self.buffer.drain(..whole);
                return found;
            }
            let frame = tokio::time::timeout(crate::support::PATIENCE, self.body.frame()).await.expect("an event");
            self.buffer.extend_from_slice(&frame.expect("no end").expect("a sound stream").into_data().unwrap());
        }
    }
}

fn watch(query: &str) -> Request<Full<Bytes>> {
    get(&format!("{CONFIG_MAPS}?watch=1&{query}"))
}

#[tokio::test]
async fn events_arrive_while_the_watch_is_open() {
    let server = Running::start().await;
    let mut lines = Lines::of(server.open(&server.admin(), watch("")).await);
    for name in ["a", "b"] {
        server.create(CONFIG_MAPS, &config_map(name, 1)).await;
        let event = lines.next().await.unwrap();
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!(name)));
        assert_eq!(event["object"]["kind"], "ConfigMap");
    }
}

#[tokio::test]
async fn a_hundred_watches_share_a_connection() {
    let server = Running::start().await;
    let mut client = server.http2(&server.admin()).await;
    let mut streams = Vec::new();
    for _ in 0..100 {
        let asked = Request::builder().uri(format!("https://localhost{CONFIG_MAPS}?watch=1"));
        streams.push(Lines::of(client.send_request(asked.body(Full::default()).unwrap()).await.unwrap()));
    }
    server.create(CONFIG_MAPS, &config_map("a", 1)).await;
    for lines in &mut streams {
        assert_eq!(lines.next().await.unwrap()["object"]["metadata"]["name"], "a");
    }
}

#[tokio::test]
async fn open_watches_end_cleanly_when_the_server_stops() {
    let mut server = Running::start().await;
    let mut one = Lines::of(server.open(&server.admin(), watch("")).await);
    let mut client = server.http2(&server.admin()).await;
    let asked =
        Request::builder().uri(format!("https://localhost{CONFIG_MAPS}?watch=1")).body(Full::default()).unwrap();
    let mut other = Lines::of(client.send_request(asked).await.unwrap());
    let stopped = server.stop();
    assert_eq!((one.next().await, other.next().await), (None, None));
    tokio::time::timeout(crate::support::PATIENCE, stopped).await.expect("it stops").unwrap();
    assert!(tokio::net::TcpStream::connect(server.address).await.is_err(), "nobody listens any more");
}

/// A reader that does not read: the history moves on, nothing is kept for the reader, and it gets an error that tells
/// it to list again.
#[tokio::test]
async fn a_reader_that_does_not_read_is_cut_off_and_can_resume() {
    let server = Running::with(StoreOptions { history: 16, ..StoreOptions::default() }).await;
    let mut lines = Lines::of(server.open(&server.admin(), watch("")).await);
    server.create(CONFIG_MAPS, &config_map("first", 1)).await;
    assert_eq!(lines.next().await.unwrap()["object"]["metadata"]["name"], "first");
    // Far more than the socket buffers hold.
    for number in 0..120 {
        server.store(&config_map(&format!("c{number:03}"), 200_000)).await;
    }
    let (mut got, mut last) = (0, Value::Null);
    while let Some(event) = lines.next().await {
        last = event;
        got += 1;
    }
    assert_eq!((&last["type"], &last["object"]["code"]), (&json!("ERROR"), &json!(410)), "after {got} events");
    assert_eq!(last["object"]["reason"], "Expired");
    assert!(got < 120, "{got} events were kept for it");

    let listed = server.call(&server.admin(), get(&format!("{CONFIG_MAPS}?limit=1"))).await.value();
    let revision = listed["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut lines = Lines::of(server.open(&server.admin(), watch(&format!("resourceVersion={revision}"))).await);
    server.create(CONFIG_MAPS, &config_map("later", 1)).await;
    assert_eq!(lines.next().await.unwrap()["object"]["metadata"]["name"], "later");
}

#[tokio::test]
async fn a_watch_from_a_forgotten_revision_says_so_in_the_stream() {
    let server = Running::with(StoreOptions { history: 8, ..StoreOptions::default() }).await;
    for number in 0..40 {
        server.store(&config_map(&format!("c{number}"), 1)).await;
    }
    let mut lines = Lines::of(server.open(&server.admin(), watch("resourceVersion=2")).await);
    let event = lines.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(lines.next().await, None);
}

#[tokio::test]
async fn a_watch_ends_with_its_client() {
    let server = Running::start().await;
    let count = async || {
        let page = server.call(&server.admin(), get("/metrics")).await;
        let page = String::from_utf8_lossy(&page.body).into_owned();
        page.lines().find_map(|line| line.strip_prefix("apiserver_longrunning_requests ")).unwrap().to_owned()
    };
    let open = [server.open(&server.admin(), watch("")).await, server.open(&server.admin(), watch("")).await];
    assert_eq!(count().await, "2");
    drop(open);
    let gone = async { while count().await != "0" {} };
    tokio::time::timeout(crate::support::PATIENCE, gone).await.expect("the server notices");
}

#[tokio::test]
async fn health_says_what_it_looked_at() {
    let server = Running::start().await;
    let text = async |path: &str| {
        let answer = server.call(&server.admin(), get(path)).await;
        (answer.code, String::from_utf8_lossy(&answer.body).into_owned())
    };
    assert_eq!(text("/healthz").await, (200, "ok".to_owned()));
    assert_eq!(text("/livez?verbose").await, (200, "[+]ping ok\nlivez check passed\n".to_owned()));
    assert_eq!(text("/readyz/ping").await, (200, "ok".to_owned()));
    assert_eq!(text("/readyz/nope").await.0, 404);
}

#[tokio::test]
async fn metrics_count_what_was_asked() {
    let server = Running::start().await;
    server.call(&server.admin(), get(&format!("{CONFIG_MAPS}/none"))).await;
    let _open = server.open(&server.admin(), watch("")).await;
    let page = server.call(&server.admin(), get("/metrics")).await;
    let page = String::from_utf8_lossy(&page.body).into_owned();
    let asked =
        "apiserver_request_total{verb=\"GET\",group=\"\",resource=\"configmaps\",subresource=\"\",code=\"404\"} 1";
    for line in
        [asked, "apiserver_longrunning_requests 1", "apiserver_current_inflight_requests 1", "tally_store_revision "]
    {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
}
