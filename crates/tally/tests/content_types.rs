//! Pods and Events in protobuf (decision 0014), as `tally controller` exchanges them with an API server: the client of the
//! controllers against the real server, and the real binary. A server without protobuf is the same server, behind a client
//! that changes the headers of its requests.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/mod.rs"]
mod support;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};
use support::client::{Api as Client, Call as Sent};
use support::server::{Server, directory};
use tally_core::ids::Revision;
use tally_core::pod::PodView;
use tally_remote::{ContentType, Remote, connect};
use tally_runtime::controller::{Call, Kind, Object, Reply, Stream, Verb};
use tally_runtime::driver::api::{Api, Events, Start, StreamEvent, WatchError};
use tower::ServiceExt;
use tower::service_fn;
use tower::util::BoxCloneSyncService;

const GIVE_UP_AFTER: Duration = Duration::from_secs(120);
const PODS: &str = "/api/v1/namespaces/default/pods";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const KINDS: [(Kind, &str); 4] = [(Kind::POD, "p"), (Kind::JOB, "j"), (Kind::EVENT, "e"), (Kind::LEASE, "l")];
const STATE: Start = Start::State { not_older_than: Revision(0) };

/// What a server makes of protobuf.
#[derive(Clone, Copy, PartialEq)]
enum Speaks {
    Protobuf,
    /// It answers in JSON, and refuses bodies in protobuf (415).
    Json,
    /// It refuses whoever asks for protobuf (406).
    JsonOnly,
}

/// The requests that were sent: method, path, media type of the body, accepted media types.
type Log = Arc<Mutex<Vec<[String; 4]>>>;

fn remote(server: &Server, content: ContentType, speaks: Speaks) -> (Remote, Log) {
    let source = connect::KubeconfigSource { kubeconfig: Some(server.kubeconfig()), context: None };
    let real = connect::service(&connect::access(&source).unwrap()).unwrap();
    let log = Log::default();
    let seen = log.clone();
    let service = service_fn(move |mut request: Request<Full<Bytes>>| {
        let header =
            |name| request.headers().get(name).map_or("", |value: &HeaderValue| value.to_str().unwrap()).to_owned();
        let (sent, accepted) = (header(CONTENT_TYPE), header(ACCEPT));
        let entry = [request.method().to_string(), request.uri().path().to_owned(), sent.clone(), accepted.clone()];
        seen.lock().unwrap().push(entry);
        let mut set = |name, value| drop(request.headers_mut().insert(name, HeaderValue::from_static(value)));
        if speaks != Speaks::Protobuf && sent.contains("protobuf") {
            set(CONTENT_TYPE, "application/x-unknown");
        }
        if accepted.contains("protobuf") {
            match speaks {
                Speaks::Protobuf => {}
                Speaks::Json => set(ACCEPT, "application/json"),
                Speaks::JsonOnly => set(ACCEPT, "application/x-unknown"),
            }
        }
        real.clone().oneshot(request)
    });
    (Remote::with_content_type(BoxCloneSyncService::new(service), content), log)
}

async fn start(directory: &Path) -> Server {
    Server::start_with(directory, &["--no-node", "--controllers", "", "--ephemeral"]).await
}

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Value {
    let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let answer = client.connection().call(&Sent::new(method, path).body(body).header("content-type", content)).await;
    let answer = answer.unwrap();
    assert!((200..300).contains(&answer.code), "{method} {path}: {}", answer.text);
    answer.value()
}

/// A Pod with a value in most kinds of fields.
fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "labels": {"a": "b", "empty": ""}, "annotations": {"k": "line\nü"}, "finalizers": ["example.com/a"],
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-1", "controller": true, "blockOwnerDeletion": true},
            ],
        },
        "spec": {
            "restartPolicy": "Never", "schedulerName": "nobody", "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"disk": "ssd"},
            "containers": [{
                "name": "c", "image": "i", "command": ["sh", "-c", ""], "env": [{"name": "A", "value": "1"}, {"name": "B"}],
                "resources": {"requests": {"cpu": "0.1", "memory": "1Gi"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": "http"}}, "readinessProbe": {"tcpSocket": {"port": 80}},
                "ports": [{"name": "http", "containerPort": 80}],
            }],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {"name": "m", "defaultMode": 256}}],
            "tolerations": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
            "securityContext": {"runAsUser": 0, "supplementalGroups": [0, 7]},
        },
    })
}

fn pod_status(phase: &str) -> Value {
    let at = "2026-01-02T03:04:05Z";
    json!({"status": {
        "phase": phase, "startTime": at, "podIP": "10.0.0.1",
        "conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": at},
            {"type": "Ready", "status": "False"},
        ],
        "containerStatuses": [{
            "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 2, "started": false,
            "state": {"terminated": {"exitCode": 3, "reason": "Error", "startedAt": at, "finishedAt": at}},
            "lastState": {},
        }],
    }})
}

/// Creates an object of each kind.
async fn fill(client: &Client) {
    send(client, "POST", PODS, &pod("p")).await;
    send(client, "PATCH", &format!("{PODS}/p/status"), &pod_status("Failed")).await;
    send(client, "POST", PODS, &pod("other")).await;
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({
        "metadata": {"name": "j"},
        "spec": {"completions": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 0, "template": template},
    });
    send(client, "POST", JOBS, &job).await;
    let about = json!({"kind": "Pod", "namespace": "default", "name": "p"});
    let event = json!({
        "metadata": {"name": "e"}, "involvedObject": about, "reason": "R", "message": "m", "type": "Normal", "count": 2,
        "firstTimestamp": "2026-01-02T03:04:05Z", "eventTime": "2026-01-02T03:04:05.000006Z",
        "reportingComponent": "c", "reportingInstance": "i", "action": "a",
    });
    send(client, "POST", "/api/v1/namespaces/default/events", &event).await;
    let spec = json!({"holderIdentity": "h", "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.000006Z"});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    send(client, "POST", leases, &json!({"metadata": {"name": "l"}, "spec": spec})).await;
}

/// The text and the tree of an object agree; this is the tree.
fn tree(object: &Object) -> Value {
    let text: Value = serde_json::from_slice(&object.bytes).unwrap();
    assert_eq!(text, object.plain());
    text
}

/// What a controller reads of a Pod.
fn view(object: &Object) -> PodView {
    let view = PodView::of(object).unwrap();
    assert_eq!(*view, PodView::from_json(&object.bytes).unwrap());
    (*view).clone()
}

/// The reply, for comparison.
fn told(reply: &Reply) -> String {
    match reply {
        Reply::Done(object) => format!("done {}", tree(object)),
        Reply::Listed { items, at } => {
            format!("at {at}: {}", items.iter().map(tree).map(|item| item.to_string()).collect::<Vec<_>>().join(", "))
        }
        other => format!("{other:?}"),
    }
}

async fn reply(remote: &Remote, call: &Call) -> Reply {
    remote.call(call).await.reply
}

/// The next event, as text. Bookmarks inside the changes are left out: when they come is a matter of time.
async fn next(watch: &mut tally_remote::Watch) -> String {
    loop {
        let event = tokio::time::timeout(GIVE_UP_AFTER, watch.next()).await.expect("an event").expect("no end");
        return match event {
            StreamEvent::Object(object) => format!("object {}", tree(&object)),
            StreamEvent::Gone(object) => format!("gone {}", tree(&object)),
            StreamEvent::Reached { complete: true, .. } => "complete".to_owned(),
            StreamEvent::Reached { .. } => continue,
            StreamEvent::Failed(trouble) => panic!("{trouble:?}"),
        };
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_controllers_see_is_the_same_in_json_and_in_protobuf() {
    let directory = directory();
    let server = start(directory.path()).await;
    fill(&server.api).await;
    let (json, _) = remote(&server, ContentType::Json, Speaks::Protobuf);
    let (auto, log) = remote(&server, ContentType::Auto, Speaks::Protobuf);
    for (kind, name) in KINDS {
        for call in [
            Call::new(Verb::List, kind, "default", ""),
            Call::new(Verb::Get, kind, "default", name),
            Call::new(Verb::Get, kind, "default", "missing"),
        ] {
            assert_eq!(told(&reply(&auto, &call).await), told(&reply(&json, &call).await), "{call:?}");
        }
        for metadata_only in [false, true] {
            let stream = Stream { metadata_only, ..Stream::of(kind) };
            let mut watches = [json.follow(stream, STATE).await.unwrap(), auto.follow(stream, STATE).await.unwrap()];
            loop {
                let [one, other] = &mut watches;
                let (one, other) = (next(one).await, next(other).await);
                assert_eq!(one, other, "{kind:?}");
                if one == "complete" {
                    break;
                }
            }
        }
    }
    let Reply::Done(pod) = reply(&auto, &Call::new(Verb::Get, Kind::POD, "default", "p")).await else {
        panic!("a Pod")
    };
    assert!(pod.tree.is_some(), "it came in protobuf");
    let Reply::Done(same) = reply(&json, &Call::new(Verb::Get, Kind::POD, "default", "p")).await else {
        panic!("a Pod")
    };
    assert!(same.tree.is_none());
    assert_eq!(view(&pod), view(&same));
    let asks = |part: &str| {
        log.lock().unwrap().iter().filter(|entry| entry[1].contains(part)).any(|entry| entry[3].contains("protobuf"))
    };
    // A Pod is made of what a Job says, and a Lease is written whole: nothing of them may be lost.
    assert_eq!([asks("/pods"), asks("/events"), asks("/jobs"), asks("/leases")], [true, true, false, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_and_bookmarks_are_the_same_in_json_and_in_protobuf() {
    let directory = directory();
    let server = start(directory.path()).await;
    let client = &server.api;
    fill(client).await;
    let (json, _) = remote(&server, ContentType::Json, Speaks::Protobuf);
    let (auto, _) = remote(&server, ContentType::Auto, Speaks::Protobuf);
    let list = reply(&json, &Call::new(Verb::List, Kind::POD, "", "")).await;
    let Reply::Listed { at, .. } = list else { panic!("a list") };
    let after = Start::Changes { after: at };
    let (mut one, mut other) = (
        json.follow(Stream::of(Kind::POD), after).await.unwrap(),
        auto.follow(Stream::of(Kind::POD), after).await.unwrap(),
    );
    send(client, "POST", PODS, &pod("new")).await;
    send(client, "PATCH", &format!("{PODS}/new/status"), &pod_status("Running")).await;
    send(client, "DELETE", &format!("{PODS}/new"), &json!({})).await;
    send(client, "PATCH", &format!("{PODS}/new"), &json!({"metadata": {"finalizers": null}})).await;
    let mut seen = Vec::new();
    while !seen.last().is_some_and(|event: &String| event.starts_with("gone")) {
        let event = next(&mut other).await;
        assert_eq!(next(&mut one).await, event);
        seen.push(event);
    }
    assert!(seen.len() >= 4, "{seen:?}");
    // A quiet stream says how far it has come.
    send(client, "POST", "/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "m"}})).await;
    for watch in [&mut one, &mut other] {
        let event = tokio::time::timeout(GIVE_UP_AFTER, watch.next()).await.expect("a bookmark").expect("no end");
        assert!(matches!(event, StreamEvent::Reached { at: now, complete: false } if now > at), "{event:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_the_same_in_json_and_in_protobuf() {
    let directory = directory();
    let data = directory.path().join("data");
    let options = ["--no-node", "--controllers", "", "--data-dir", data.to_str().unwrap()];
    let server = Server::start_with(directory.path(), &options).await;
    fill(&server.api).await;
    drop(server);
    // A server that was restarted has no history.
    let server = Server::start_with(directory.path(), &options).await;
    let (json, _) = remote(&server, ContentType::Json, Speaks::Protobuf);
    let (binary, log) = remote(&server, ContentType::Protobuf, Speaks::Protobuf);
    let stale = json!({"metadata": {"resourceVersion": "1", "labels": {"x": "y"}}});
    let mut invalid = pod("invalid");
    invalid["spec"]["containers"] = json!([{"name": "no name", "image": "i"}]);
    for (call, expected) in [
        (Call::new(Verb::Get, Kind::POD, "default", "missing"), "NotFound"),
        (Call::new(Verb::Create, Kind::POD, "default", "p").body(&pod("p")), "AlreadyExists"),
        (Call::new(Verb::Create, Kind::POD, "missing", "p").body(&pod("p")), "NotFound"),
        (Call::new(Verb::Create, Kind::POD, "default", "invalid").body(&invalid), "Invalid"),
        (Call::new(Verb::MergePatch, Kind::POD, "default", "p").body(&stale), "Conflict"),
        (Call::new(Verb::Delete, Kind::POD, "default", "p").body(&json!({"preconditions": {"uid": "u"}})), "Conflict"),
    ] {
        let (one, other) = (reply(&json, &call).await, reply(&binary, &call).await);
        assert!(matches!(&one, Reply::Refused(refusal) if refusal.reason == expected), "{one:?}");
        assert_eq!(told(&one), told(&other));
    }
    for kind in [Kind::POD, Kind::JOB] {
        for remote in [&json, &binary] {
            let followed = remote.follow(Stream::of(kind), Start::Changes { after: Revision(1) }).await;
            let expired = match followed {
                Err(trouble) => trouble,
                Ok(mut watch) => match watch.next().await {
                    Some(StreamEvent::Failed(trouble)) => trouble,
                    other => panic!("{other:?}"),
                },
            };
            assert!(matches!(expired, WatchError::TooOld), "{expired:?}");
        }
    }
    let creates =
        log.lock().unwrap().iter().filter(|entry| entry[0] == "POST" && entry[2].contains("protobuf")).count();
    assert_eq!(creates, 3, "they were sent in protobuf");
}

/// What is stored, without what differs from one creation to the next.
async fn stored(client: &Client, name: &str) -> Value {
    let mut pod = client.connection().call(&Sent::get(format!("{PODS}/{name}"))).await.unwrap().value();
    for field in ["name", "uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        pod["metadata"][field] = Value::Null;
    }
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_created_in_protobuf_is_the_pod_that_is_created_in_json() {
    let directory = directory();
    let server = start(directory.path()).await;
    let (auto, log) = remote(&server, ContentType::Auto, Speaks::Protobuf);
    let media = || log.lock().unwrap().last().unwrap()[2].clone();
    let create = |name: &str| Call::new(Verb::Create, Kind::POD, "default", name).body(&pod(name));
    assert!(reply(&auto, &create("before")).await.is_done());
    assert_eq!(media(), "application/json", "the server has not shown that it has protobuf");
    assert!(reply(&auto, &Call::new(Verb::List, Kind::POD, "", "")).await.is_done());
    let Reply::Done(created) = reply(&auto, &create("after")).await else { panic!("a Pod") };
    assert_eq!(media(), "application/vnd.kubernetes.protobuf");
    assert_eq!(tree(&created)["spec"]["containers"][0]["resources"]["requests"]["cpu"], "100m");
    assert_eq!(stored(&server.api, "after").await, stored(&server.api, "before").await);
    // A field that the schema does not contain.
    let mut newer = pod("newer");
    newer["spec"]["fieldOfANewerServer"] = json!({"a": 1});
    assert!(reply(&auto, &Call::new(Verb::Create, Kind::POD, "default", "newer").body(&newer)).await.is_done());
    assert_eq!(media(), "application/json");
    // Patches are JSON in any case, and nothing that was read in protobuf is written as a whole.
    let patch = json!({"metadata": {"labels": {"x": "y"}}});
    assert!(reply(&auto, &Call::new(Verb::MergePatch, Kind::POD, "default", "after").body(&patch)).await.is_done());
    assert_eq!(media(), "application/merge-patch+json");
    let sent = log.lock().unwrap().len();
    let put = reply(&auto, &Call::new(Verb::Update, Kind::POD, "default", "after").body(&tree(&created))).await;
    assert!(matches!(&put, Reply::Refused(refusal) if refusal.message.contains("patches")), "{put:?}");
    assert_eq!(log.lock().unwrap().len(), sent, "it was not sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_protobuf_is_spoken_to_in_json() {
    let directory = directory();
    let server = start(directory.path()).await;
    for (speaks, content, first, name) in [
        (Speaks::Json, ContentType::Auto, 1, "a"),
        // Sent in protobuf, refused, and sent in JSON.
        (Speaks::Json, ContentType::Protobuf, 2, "b"),
        (Speaks::JsonOnly, ContentType::Auto, 2, "c"),
        (Speaks::JsonOnly, ContentType::Protobuf, 2, "d"),
    ] {
        let (remote, log) = remote(&server, content, speaks);
        let create = |at: usize| {
            let name = format!("{name}{at}");
            Call::new(Verb::Create, Kind::POD, "default", &name).body(&pod(&name))
        };
        assert!(reply(&remote, &create(0)).await.is_done(), "{name}");
        assert_eq!(log.lock().unwrap().len(), first, "{name}");
        for at in 1..3 {
            assert!(reply(&remote, &create(at)).await.is_done(), "{name}");
        }
        assert_eq!(log.lock().unwrap().len(), first + 2, "{name}: what it refused is remembered");
        let list = reply(&remote, &Call::new(Verb::List, Kind::POD, "", "")).await;
        assert!(matches!(&list, Reply::Listed { items, .. } if items.len() >= 3), "{list:?}");
        let mut watch = remote.follow(Stream::of(Kind::POD), STATE).await.unwrap();
        while next(&mut watch).await != "complete" {}
    }
    // The first request is a stream, or a list.
    let (remote, log) = remote(&server, ContentType::Auto, Speaks::JsonOnly);
    let mut watch = remote.follow(Stream::of(Kind::POD), STATE).await.unwrap();
    while next(&mut watch).await != "complete" {}
    assert_eq!(log.lock().unwrap().len(), 2, "refused, and sent in JSON");
    let (remote, log) = self::remote(&server, ContentType::Auto, Speaks::JsonOnly);
    let list = reply(&remote, &Call::new(Verb::List, Kind::POD, "", "")).await;
    assert!(matches!(&list, Reply::Listed { items, .. } if items.len() >= 3), "{list:?}");
    assert_eq!(log.lock().unwrap().len(), 2, "refused, and sent in JSON");
}

/// A running `tally controller`.
struct Controller(Child);

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a Job of three Pods by the real binary, and returns what it logged. This test acts as the node.
async fn run_a_job(server: &Server, directory: &Path, name: &str, options: &[&str]) -> String {
    let log = directory.join(format!("{name}.log"));
    let file = std::fs::File::create(&log).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_tally"))
        // The controller before it was killed, and its Lease is not given up: the next one would wait until that expires.
        .args(["controller", "--leader-elect=false", "--kubeconfig"])
        .arg(server.kubeconfig())
        .args(options)
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    let _controller = Controller(child);
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"metadata": {"name": name}, "spec": {"completions": 3, "parallelism": 2, "template": template}});
    send(&server.api, "POST", JOBS, &job).await;
    let mut connection = server.api.connection();
    let until = Instant::now() + GIVE_UP_AFTER;
    loop {
        let pods = connection.call(&Sent::get(PODS)).await.unwrap().value();
        for pod in pods["items"].as_array().unwrap() {
            if pod["status"]["phase"] == "Pending" {
                let path = format!("{PODS}/{}/status", pod["metadata"]["name"].as_str().unwrap());
                send(&server.api, "PATCH", &path, &json!({"status": {"phase": "Succeeded"}})).await;
            }
        }
        let job = connection.call(&Sent::get(format!("{JOBS}/{name}"))).await.unwrap().value();
        let said = std::fs::read_to_string(&log).unwrap();
        if job["status"]["succeeded"] == 3 && job["status"].get("completionTime").is_some() {
            return said;
        }
        assert!(Instant::now() < until, "{job}\n{said}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_runs_jobs_in_both_forms_and_replaces_nothing_but_its_lease() {
    let directory = directory();
    let audit = directory.path().join("audit.log");
    let options = ["--no-node", "--controllers", "", "--ephemeral", "--audit-log", audit.to_str().unwrap()];
    let server = Server::start_with(directory.path(), &options).await;
    let has_protobuf = "the server has protobuf";
    let doubts = ["no longer as protobuf", "what became of a request", "does not accept protobuf"];
    for (name, options, expected) in [
        ("by-default", &[][..], true),
        ("in-either", &["--kube-api-content-type", "auto"], true),
        ("in-json", &["--kube-api-content-type", "application/json"], false),
        ("in-protobuf", &["--kube-api-content-type=application/vnd.kubernetes.protobuf"], false),
    ] {
        let said = run_a_job(&server, directory.path(), name, options).await;
        assert_eq!(said.contains(has_protobuf), expected, "{name}: {said}");
        assert!(!doubts.iter().any(|doubt| said.contains(doubt)), "{name}: {said}");
    }
    let text = std::fs::read_to_string(&audit).unwrap();
    let mut writes = 0;
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let resource = event["objectRef"]["resource"].as_str().unwrap_or_default();
        writes += usize::from(event["verb"] == "patch" && resource == "jobs");
        assert!(event["verb"] != "update" || resource == "leases", "{event}");
    }
    assert!(writes >= 4, "the log contains what the controller wrote:\n{text}");
}
