//! Finishes the Pods of a namespace where no node does it (`--finish-pods`): one status patch for each, as soon as it
//! appears.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::json;
use tally_runtime::controller::{Call, Kind, Verb};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::cases::Case;
use super::streams::Lines;
use super::tracker::WARM_UP;
use crate::bench::server::{Api, Client};

/// Connections, each with one request in flight.
const WRITERS: usize = 32;

/// Ended when dropped.
pub struct Load(Vec<JoinHandle<()>>);

/// Which Pods end, and how.
#[derive(Clone, Copy)]
struct Rules {
    /// None of them ends before so many have appeared.
    all_of: usize,
    /// The first attempt of the indexes below it fails.
    failing: u32,
    run_for: Duration,
}

struct Finish {
    pod: String,
    phase: &'static str,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Pod,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Pod {
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    name: String,
    labels: Labels,
    annotations: Annotations,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Labels {
    #[serde(rename = "batch.kubernetes.io/job-name")]
    job: String,
    #[serde(rename = "batch.kubernetes.io/job-completion-index")]
    index: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "batch.kubernetes.io/job-index-failure-count")]
    failures: Option<String>,
}

impl Load {
    pub async fn start(api: &Api, namespace: &str, case: &Case) -> Result<Load> {
        let rules = Rules {
            all_of: if case.run_for_seconds > 0 { case.parallelism as usize } else { 0 },
            failing: case.failing,
            run_for: Duration::from_secs(u64::from(case.run_for_seconds)),
        };
        let path = format!("/api/v1/namespaces/{namespace}/pods?watch=true&fieldSelector=status.phase%3DPending");
        let pods = Lines::open(api, path).await?;
        let (send, receive) = mpsc::unbounded_channel();
        let receive = Arc::new(tokio::sync::Mutex::new(receive));
        let mut tasks = vec![tokio::spawn(said(choose(pods, rules, send)))];
        for _ in 0..WRITERS {
            tasks.push(tokio::spawn(said(write(api.connection()?, namespace.to_owned(), receive.clone()))));
        }
        Ok(Load(tasks))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

async fn said(work: impl Future<Output = Result<()>>) {
    if let Err(error) = work.await {
        crate::terminal::tell(format_args!("--finish-pods: {error:#}"));
    }
}

async fn choose(pods: Lines, rules: Rules, send: mpsc::UnboundedSender<Finish>) -> Result<()> {
    let (mut held, mut appeared) = (Vec::new(), 0);
    let take = |line: &[u8]| {
        let event: Event = serde_json::from_slice(line).context("a watch event of Pods is not JSON")?;
        match event.kind.as_str() {
            "ADDED" => {}
            "ERROR" => bail!("the watch of Pods failed: {}", String::from_utf8_lossy(line)),
            _ => return Ok(()),
        }
        let Metadata { name, labels, annotations } = event.object.metadata;
        let index = labels.index.and_then(|index| index.parse().ok()).unwrap_or(u32::MAX);
        let is_first_attempt = annotations.failures.is_none_or(|failures| failures == "0");
        let phase = if index < rules.failing && is_first_attempt { "Failed" } else { "Succeeded" };
        let finish = Finish { pod: name, phase };
        if labels.job == WARM_UP {
            let _ = send.send(finish);
            return Ok(());
        }
        appeared += 1;
        held.push(finish);
        if appeared == rules.all_of && !rules.run_for.is_zero() {
            let (send, held) = (send.clone(), std::mem::take(&mut held));
            tokio::spawn(async move {
                tokio::time::sleep(rules.run_for).await;
                held.into_iter().for_each(|finish| drop(send.send(finish)));
            });
        } else if appeared >= rules.all_of {
            held.drain(..).for_each(|finish| drop(send.send(finish)));
        }
        Ok(())
    };
    pods.read(take, || {}).await
}

async fn write(
    connection: Client,
    namespace: String,
    receive: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Finish>>>,
) -> Result<()> {
    loop {
        let next = receive.lock().await.recv().await;
        let Some(Finish { pod, phase }) = next else { return Ok(()) };
        let call = Call::new(Verb::MergePatch, Kind::POD, &namespace, &pod).subresource("status");
        let answer = connection.call(&call.body(&json!({"status": {"phase": phase}}))).await?;
        // A Pod may be gone before it could end: its Job was deleted, or needs it no more.
        if answer.code != 200 && answer.code != 404 {
            bail!("cannot finish the Pod {pod}: {} {}", answer.code, String::from_utf8_lossy(&answer.body));
        }
    }
}
