//! API-34. A client that speaks protobuf, against the real binary. Its code was generated from the definitions of Kubernetes by
//! others (`k8s-pb`), and shares nothing with the server. What it sees is compared with the JSON view.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use k8s_pb::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_pb::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_pb::api::batch::v1::{Job, JobList, JobSpec};
use k8s_pb::api::coordination::v1::{Lease, LeaseSpec};
use k8s_pb::api::core::v1::{
    Binding, Container, EnvVar, Node, ObjectReference, Pod, PodList, PodSpec, PodTemplateSpec, ResourceRequirements,
};
use k8s_pb::api::policy::v1::Eviction;
use k8s_pb::apimachinery::pkg::api::resource::Quantity;
use k8s_pb::apimachinery::pkg::apis::meta::v1::{
    DeleteOptions, MicroTime, ObjectMeta, PartialObjectMetadataList, Status, WatchEvent,
};
use k8s_pb::apimachinery::pkg::runtime::{TypeMeta, Unknown};
use prost::Message;
use serde_json::Value;
use support::client::Api;
use support::server::{self, Server};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PATIENCE: Duration = Duration::from_secs(60);
const PODS: &str = "/api/v1/namespaces/default/pods";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

struct Client(Api);

struct Answer {
    code: u16,
    media: String,
    body: Bytes,
}

impl Client {
    async fn open(&self, method: &str, path: &str, accept: &str, body: Vec<u8>) -> Response<Incoming> {
        let stream = self.0.stream().await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header("host", self.0.authority());
        let request = request.header("accept", accept).header("content-type", PROTOBUF);
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        tokio::time::timeout(PATIENCE, sender.send_request(request)).await.expect("an answer").unwrap()
    }

    async fn call(&self, method: &str, path: &str, accept: &str, body: Vec<u8>) -> Answer {
        let response = self.open(method, path, accept, body).await;
        let (code, media) =
            (response.status().as_u16(), response.headers()["content-type"].to_str().unwrap().to_owned());
        Answer { code, media, body: response.into_body().collect().await.unwrap().to_bytes() }
    }

    /// Sends an object and decodes the answer.
    async fn send<M: Message + Default>(&self, method: &str, path: &str, body: Vec<u8>) -> (u16, String, M) {
        let answer = self.call(method, path, PROTOBUF, body).await;
        assert_eq!(answer.media, PROTOBUF, "{method} {path}");
        let (about, object) = open(&answer.body);
        (answer.code, about, object)
    }

    async fn get<M: Message + Default>(&self, path: &str) -> M {
        let (code, _, object) = self.send("GET", path, Vec::new()).await;
        assert_eq!(code, 200, "{path}");
        object
    }

    async fn json(&self, path: &str) -> Value {
        let answer = self.call("GET", path, "application/json", Vec::new()).await;
        assert_eq!(answer.media, "application/json");
        serde_json::from_slice(&answer.body).unwrap()
    }
}

/// The object of a document, and its version and kind.
fn open<M: Message + Default>(document: &[u8]) -> (String, M) {
    let unknown = Unknown::decode(document.strip_prefix(b"k8s\0").expect("the first bytes")).unwrap();
    let about = unknown.type_meta.clone().unwrap();
    (format!("{} {}", about.api_version(), about.kind()), M::decode(unknown.raw()).unwrap())
}

fn document<M: Message>(api_version: &str, kind: &str, object: &M) -> Vec<u8> {
    let type_meta = Some(TypeMeta { api_version: Some(api_version.into()), kind: Some(kind.into()) });
    let unknown = Unknown { type_meta, raw: Some(object.encode_to_vec()), ..Unknown::default() };
    [&b"k8s\0"[..], &unknown.encode_to_vec()].concat()
}

fn metadata(name: &str) -> Option<ObjectMeta> {
    let labels = BTreeMap::from([("who".to_owned(), "protobuf".to_owned())]);
    Some(ObjectMeta { name: Some(name.into()), labels: labels.into_iter().collect(), ..ObjectMeta::default() })
}

fn pod_spec() -> PodSpec {
    let env = EnvVar { name: Some("A".into()), value: Some("ü".into()), ..EnvVar::default() };
    let cpu = Quantity { string: Some("0.1".into()) };
    let requests = [("cpu".to_owned(), cpu)].into_iter().collect();
    let container = Container {
        name: Some("c".into()),
        image: Some("busybox".into()),
        command: vec!["true".into(), String::new()],
        env: vec![env],
        resources: Some(ResourceRequirements { requests, ..ResourceRequirements::default() }),
        ..Container::default()
    };
    // No scheduler has this name, so no other program changes the Pod.
    PodSpec {
        containers: vec![container],
        restart_policy: Some("Never".into()),
        scheduler_name: Some("by-hand".into()),
        termination_grace_period_seconds: Some(0),
        ..PodSpec::default()
    }
}

/// The messages of a document and of the JSON view are equal.
#[track_caller]
fn assert_same<M: Message + Default + PartialEq + std::fmt::Debug>(object: &M, json: &Value) {
    let (_, expected) = open::<M>(&tally_api::protobuf::document(&json.clone().into()).expect("a kind that is served"));
    assert_eq!(object, &expected);
}

/// The frames of a watch.
struct Frames {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Frames {
    async fn next(&mut self) -> (String, Pod) {
        loop {
            if let Some((length, rest)) = self.buffer.split_first_chunk::<4>()
                && let Some(frame) = rest.get(..u32::from_be_bytes(*length) as usize)
            {
                let event = WatchEvent::decode(frame).unwrap();
                let (about, pod) = open(event.object.as_ref().unwrap().raw());
                assert_eq!(about, "v1 Pod");
                let whole = frame.len() + 4;
                self.buffer.drain(..whole);
                return (event.r#type().to_owned(), pod);
            }
            let piece = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("an event");
            self.buffer.extend_from_slice(&piece.expect("no end").unwrap().into_data().unwrap());
        }
    }

    /// Skips bookmarks and other Pods.
    async fn next_of(&mut self, name: &str, kind: &str) -> Pod {
        loop {
            let (found, pod) = self.next().await;
            if found == kind && pod.metadata.as_ref().unwrap().name() == name {
                return pod;
            }
        }
    }
}

#[tokio::test]
async fn a_client_with_generated_code_creates_reads_watches_changes_and_deletes() {
    let directory = server::directory();
    let server = Server::start_with(directory.path(), &["--no-node", "--ephemeral", "--hollow", "1"]).await;
    let client = Client(Api::from_kubeconfig(&server.kubeconfig()).unwrap());
    pods(&client).await;
    jobs(&client).await;
    others(&client).await;
}

async fn pods(client: &Client) {
    let accept = format!("{PROTOBUF};stream=watch, application/json");
    let watch = client.open("GET", &format!("{PODS}?watch=1&allowWatchBookmarks=true"), &accept, Vec::new()).await;
    assert_eq!(watch.headers()["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
    let mut watch = Frames { body: watch.into_body(), buffer: Vec::new() };

    let pod = Pod { metadata: metadata("p"), spec: Some(pod_spec()), ..Pod::default() };
    let (code, about, created) = client.send::<Pod>("POST", PODS, document("v1", "Pod", &pod)).await;
    assert_eq!((code, about.as_str()), (201, "v1 Pod"));
    let path = format!("{PODS}/p");
    let json = client.json(&path).await;
    assert_same(&created, &json);
    let container = &json["spec"]["containers"][0];
    assert_eq!(container["command"], serde_json::json!(["true", ""]));
    assert_eq!(
        (&container["env"][0]["value"], &container["resources"]["requests"]["cpu"]),
        (&"ü".into(), &"100m".into())
    );
    let metadata_of = |pod: &Pod| pod.metadata.clone().unwrap();
    assert_eq!(metadata_of(&created).uid(), json["metadata"]["uid"].as_str().unwrap());
    assert_eq!(created.spec.as_ref().unwrap().dns_policy(), "ClusterFirst", "defaults are set");
    assert!(metadata_of(&created).creation_timestamp.unwrap().seconds() > 1_700_000_000);
    assert_eq!(watch.next_of("p", "ADDED").await, created);
    assert_eq!(client.get::<Pod>(&path).await, created);
    let exists = client.send::<Status>("POST", PODS, document("v1", "Pod", &pod)).await;
    assert_eq!((exists.0, exists.1.as_str(), exists.2.reason()), (409, "v1 Status", "AlreadyExists"));

    // A change of what was read keeps everything else.
    let mut changed = created.clone();
    changed.metadata.as_mut().unwrap().labels.insert("more".into(), String::new());
    let (code, _, changed) = client.send::<Pod>("PUT", &path, document("v1", "Pod", &changed)).await;
    assert_eq!(code, 200);
    let after = client.json(&path).await;
    assert_same(&changed, &after);
    assert_eq!((&after["spec"], &after["status"]), (&json["spec"], &json["status"]));
    assert_eq!(after["metadata"]["labels"], serde_json::json!({"who": "protobuf", "more": ""}));
    assert_eq!(watch.next_of("p", "MODIFIED").await, changed);
    let old = client.send::<Status>("PUT", &path, document("v1", "Pod", &created)).await;
    assert_eq!((old.0, old.2.reason()), (409, "Conflict"));

    let list: PodList = client.get(PODS).await;
    let listed = client.json(PODS).await;
    assert_eq!(list.items, [changed]);
    assert_eq!(list.metadata.unwrap().resource_version(), listed["metadata"]["resourceVersion"]);
    let accept = format!("{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    let partial = client.call("GET", PODS, &accept, Vec::new()).await;
    let (about, partial) = open::<PartialObjectMetadataList>(&partial.body);
    assert_eq!(about, "meta.k8s.io/v1 PartialObjectMetadataList");
    assert_eq!(partial.items[0].metadata, list.items[0].metadata);

    let mut status: Pod = client.get(&format!("{path}/status")).await;
    status.status.as_mut().unwrap().message = Some("from protobuf".into());
    let (code, _, _) = client.send::<Pod>("PUT", &format!("{path}/status"), document("v1", "Pod", &status)).await;
    assert_eq!(code, 200);
    assert_eq!(client.json(&path).await["status"]["message"], "from protobuf");

    let target = ObjectReference { kind: Some("Node".into()), name: Some("hollow-0".into()), ..Default::default() };
    let binding = Binding { metadata: metadata("p"), target: Some(target) };
    let (code, about, status) =
        client.send::<Status>("POST", &format!("{path}/binding"), document("v1", "Binding", &binding)).await;
    assert_eq!((code, about.as_str(), status.status()), (201, "v1 Status", "Success"));
    let mut node = String::new();
    while node.is_empty() {
        node = watch.next_of("p", "MODIFIED").await.spec.unwrap().node_name().to_owned();
    }
    assert_eq!(node, "hollow-0");

    let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    let (code, _, gone) = client.send::<Pod>("DELETE", &path, document("v1", "DeleteOptions", &options)).await;
    assert_eq!((code, gone.metadata.unwrap().name()), (200, "p"));
    watch.next_of("p", "DELETED").await;
    let missing = client.send::<Status>("GET", &path, Vec::new()).await;
    assert_eq!((missing.0, missing.2.code(), missing.2.reason()), (404, 404, "NotFound"));
    assert_eq!(missing.2.details.unwrap().name(), "p");

    let second = Pod { metadata: metadata("q"), spec: Some(pod_spec()), ..Pod::default() };
    assert_eq!(client.send::<Pod>("POST", PODS, document("v1", "Pod", &second)).await.0, 201);
    let eviction = Eviction { metadata: metadata("q"), delete_options: Some(options) };
    let eviction = document("policy/v1", "Eviction", &eviction);
    let (code, _, status) = client.send::<Status>("POST", &format!("{PODS}/q/eviction"), eviction).await;
    assert_eq!((code, status.status()), (201, "Success"));
    watch.next_of("q", "DELETED").await;
}

async fn jobs(client: &Client) {
    let template = PodTemplateSpec { metadata: metadata(""), spec: Some(pod_spec()) };
    let spec = JobSpec {
        template: Some(template),
        suspend: Some(true),
        completions: Some(3),
        completion_mode: Some("Indexed".into()),
        ..JobSpec::default()
    };
    let job = Job { metadata: metadata("j"), spec: Some(spec), ..Job::default() };
    let (code, about, created) = client.send::<Job>("POST", JOBS, document("batch/v1", "Job", &job)).await;
    assert_eq!((code, about.as_str()), (201, "batch/v1 Job"));
    let path = format!("{JOBS}/j");
    // The controller writes the status; after that, nothing changes the Job.
    let deadline = std::time::Instant::now() + PATIENCE;
    let json = loop {
        let json = client.json(&path).await;
        if json["status"]["conditions"][0]["type"] == "Suspended" {
            break json;
        }
        assert!(std::time::Instant::now() < deadline, "{json}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let read: Job = client.get(&path).await;
    assert_same(&read, &json);
    assert_eq!(read.spec, created.spec);
    assert_eq!(read.spec.as_ref().unwrap().selector.as_ref().unwrap().match_labels.len(), 1);
    assert_eq!(read.status.as_ref().unwrap().conditions[0].r#type(), "Suspended");

    let mut changed = read.clone();
    changed.spec.as_mut().unwrap().parallelism = Some(0);
    let (code, _, changed) = client.send::<Job>("PUT", &path, document("batch/v1", "Job", &changed)).await;
    assert_eq!((code, changed.spec.as_ref().unwrap().parallelism), (200, Some(0)));
    let after = client.json(&path).await;
    assert_eq!(after["spec"]["parallelism"], 0, "zero is not absent");
    assert_eq!(after["spec"]["template"], json["spec"]["template"]);
    let list: JobList = client.get(JOBS).await;
    assert_eq!(list.items.len(), 1);

    let mut refused = changed.clone();
    refused.spec.as_mut().unwrap().completion_mode = Some("NonIndexed".into());
    refused.metadata.as_mut().unwrap().resource_version = None;
    let (code, _, status) = client.send::<Status>("PUT", &path, document("batch/v1", "Job", &refused)).await;
    let details = status.details.clone().unwrap();
    assert_eq!((code, status.reason(), details.causes[0].field()), (422, "Invalid", "spec.completionMode"));

    let options = DeleteOptions { propagation_policy: Some("Background".into()), ..DeleteOptions::default() };
    let (code, _, _) = client.send::<Status>("DELETE", &path, document("v1", "DeleteOptions", &options)).await;
    assert_eq!(code, 200);
    assert_eq!(client.send::<Status>("GET", &path, Vec::new()).await.0, 404);
}

async fn others(client: &Client) {
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let time = MicroTime { seconds: Some(1_800_000_000), nanos: Some(123_456_789) };
    let spec = LeaseSpec {
        holder_identity: Some("me".into()),
        lease_duration_seconds: Some(15),
        renew_time: Some(time),
        ..LeaseSpec::default()
    };
    let lease = Lease { metadata: metadata("l"), spec: Some(spec) };
    let lease = document("coordination.k8s.io/v1", "Lease", &lease);
    let (code, _, lease) = client.send::<Lease>("POST", leases, lease).await;
    let json = client.json(&format!("{leases}/l")).await;
    assert_eq!((code, &json["spec"]["renewTime"]), (201, &"2027-01-15T08:00:00.123456Z".into()));
    assert_eq!(lease.spec.as_ref().unwrap().renew_time.as_ref().unwrap().nanos(), 123_456_000);
    assert_same(&lease, &json);

    let node: Node = client.get("/api/v1/nodes/hollow-0").await;
    let json = client.json("/api/v1/nodes/hollow-0").await;
    assert_eq!(node.status.unwrap().capacity["cpu"].string(), json["status"]["capacity"]["cpu"]);

    let attributes =
        ResourceAttributes { verb: Some("get".into()), resource: Some("pods".into()), ..Default::default() };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec: Some(spec), ..Default::default() };
    let review = document("authorization.k8s.io/v1", "SelfSubjectAccessReview", &review);
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let (code, about, review) = client.send::<SelfSubjectAccessReview>("POST", path, review).await;
    assert_eq!((code, about.as_str()), (201, "authorization.k8s.io/v1 SelfSubjectAccessReview"));
    assert!(review.status.unwrap().allowed());

    let spec = TokenRequestSpec { expiration_seconds: Some(600), ..TokenRequestSpec::default() };
    let token = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let token = document("authentication.k8s.io/v1", "TokenRequest", &token);
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let (code, about, token) = client.send::<TokenRequest>("POST", path, token).await;
    assert_eq!((code, about.as_str()), (201, "authentication.k8s.io/v1 TokenRequest"));
    assert!(!token.status.unwrap().token().is_empty());
}
