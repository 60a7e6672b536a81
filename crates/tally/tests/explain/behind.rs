//! Where the stream of Pods of the controller stops: it waits until it has seen what another writer has counted.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::process::Controller;
use crate::support::client::{Api, Call};
use crate::support::server::{self, Server};
use crate::tool::{Cluster, eventually};

/// What this part shows.
pub const REASONS: [&str; 1] = ["RevisionGate"];

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The proxy passes requests on as texts.
const IN_JSON: &str = "--kube-api-content-type=application/json";

/// A proxy between a controller and the server, plain HTTP on the side of the controller. Once `closed` is true, nothing is told
/// about Pods: streams fall silent, and lists are refused.
async fn proxy(api: Api, closed: watch::Receiver<bool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (api, closed) = (api.clone(), closed.clone());
            tokio::spawn(async move {
                let service = service_fn(move |request| answer(api.clone(), closed.clone(), request));
                let connection = hyper::server::conn::http1::Builder::new();
                // How the connection ends concerns only the controller.
                let _ = connection.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

async fn answer(
    api: Api,
    mut closed: watch::Receiver<bool>,
    request: Request<Incoming>,
) -> anyhow::Result<Response<Body>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let header = |name: &&str| Some(((*name).to_owned(), head.headers.get(*name)?.to_str().ok()?.to_owned()));
    let call = Call {
        method: head.method.to_string(),
        path: head.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
        query: Vec::new(),
        headers: ["accept", "content-type", "user-agent"].iter().filter_map(header).collect(),
        body: (!body.is_empty()).then(|| String::from_utf8_lossy(&body).into_owned()),
    };
    let about_pods = call.method == "GET" && head.uri.path().ends_with("/pods");
    if about_pods && *closed.borrow() {
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "says the proxy", "reason": "ServiceUnavailable", "code": 503});
        let body = Full::new(Bytes::from(status.to_string())).boxed_unsync();
        return Ok(Response::builder().status(503).header("content-type", "application/json").body(body)?);
    }
    let (head, mut body) = api.connection().open(&call).await?.into_parts();
    let (frames, told) = tokio::sync::mpsc::channel(16);
    tokio::spawn(async move {
        loop {
            let frame = tokio::select! {
                frame = body.frame() => Some(frame),
                _ = closed.wait_for(|closed| *closed), if about_pods => None,
            };
            // The stream stays open, and is silent.
            let Some(frame) = frame else { return frames.closed().await };
            let Some(Ok(frame)) = frame else { return };
            let Ok(data) = frame.into_data() else { continue };
            if frames.send(Ok(Frame::data(data))).await.is_err() {
                return;
            }
        }
    });
    let told = futures_util::stream::unfold(told, |mut told| async move { Some((told.recv().await?, told)) });
    let mut response = Response::new(StreamBody::new(told).boxed_unsync());
    *response.status_mut() = head.status;
    for name in ["content-type", "date", "retry-after"] {
        if let Some(value) = head.headers.get(name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    Ok(response)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_whose_stream_of_pods_is_behind_is_explained() {
    let directory = server::directory();
    let cluster = Cluster::of(Server::start(directory.path()).await, directory);
    cluster.add_node("n").await;
    let (close, closed) = watch::channel(false);
    let address = proxy(cluster.server.api.clone(), closed).await;
    let kubeconfig = cluster.directory.path().join("proxy.kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
        "clusters": [{"name": "proxy", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "none", "user": {}}],
        "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "none"}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let _controller = Controller::start(&kubeconfig, "behind", &["--controllers=job", IN_JSON]);
    cluster.job("gated", json!({}), json!({"completions": 3, "parallelism": 1}), "true").await;
    let pod = cluster.pods("gated", 1).await.remove(0);
    let pod = cluster.bind(&pod, "n").await;
    cluster.report_running(&pod).await;
    let job = "/apis/batch/v1/namespaces/default/jobs/gated";
    eventually("the Pod is counted", async || (cluster.get(job).await["status"]["active"] == 1).then_some(())).await;
    cluster.says("job/gated", &[], "").await;

    // Another writer counts a Pod that the controller has not seen, and a second Pod is wanted.
    close.send_replace(true);
    cluster.patch(&format!("{job}/status"), &json!({"status": {"succeeded": 1}})).await;
    cluster.patch(job, &json!({"spec": {"parallelism": 2}})).await;
    let waits = "The controller waits until it has seen all Pods that another writer of the Job's status has counted";
    let said = cluster.says("job/gated", &["RevisionGate"], waits).await;
    assert!(said["evidence"].to_string().contains("Event RevisionGate about Job gated"), "{said:#}");
    cluster.seen.are(&REASONS);
}
