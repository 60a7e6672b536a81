//! Measures how fast Jobs run on hollow nodes and what they cost: time from creation to completion, requests per Pod,
//! and the CPU time and memory of `tally controller` as Jobs grow.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use tally_core::lifetime::DELETE_FINISHED_PODS;
use tally_runtime::controller::{Call, Kind, Verb};

use super::server::{Api, Process, Server};

#[derive(ClapArgs)]
pub struct Args {
    /// Number of one-Pod Jobs to run one after the other on an idle cluster
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    latency: u32,
    /// Completions of the Jobs whose total run time is measured; each number runs once Indexed and once NonIndexed
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    completions: Vec<u32>,
    /// Parallelism of these Jobs
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    parallelism: u32,
    /// Delete finished Pods of these Jobs once they are counted, and report the most Pods that existed at a time:
    /// succeeded or all (the annotation tally.dev/delete-finished-pods)
    #[arg(long, value_name = "WHICH", value_parser = ["succeeded", "all"])]
    delete_finished_pods: Option<String>,
    /// Run these Jobs NonIndexed only
    #[arg(long)]
    only_non_indexed: bool,
    /// Data directory of the server; its disk is part of the measurement
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// The controllers that run in the server process. The measured ones run in a process of their own.
const OTHERS: &str = "scheduler";

pub fn run(args: &Args) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(measure(args)).map(|()| true)
}

async fn measure(args: &Args) -> Result<()> {
    let directory = args.directory.clone().unwrap_or_else(std::env::temp_dir);
    latency(args, &directory).await?;
    for completions in &args.completions {
        for indexed in [true, false].into_iter().filter(|indexed| !(args.only_non_indexed && *indexed)) {
            whole(args, &directory, *completions, indexed).await?;
        }
    }
    Ok(())
}

fn job(name: &str, completions: u32, parallelism: u32, indexed: bool) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {
            "completions": completions, "parallelism": parallelism.min(completions),
            "completionMode": if indexed { "Indexed" } else { "NonIndexed" },
            "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "busybox:1.36", "command": ["sh", "-c", "true"]}],
            }},
        },
    })
}

/// Creates a Job and waits until it is finished, on a watch that was opened before. Returns the time it took and the
/// final state of the Job.
async fn finish(api: &Api, body: &Value) -> Result<(Duration, Value)> {
    let name = body["metadata"]["name"].as_str().unwrap_or_default();
    let watch = format!("{JOBS}?watch=true&fieldSelector=metadata.name%3D{name}");
    let mut stream = api.connection()?.watch(&watch).await?;
    let connection = api.connection()?;
    // The connection is established before the measurement starts.
    connection.get("/readyz").await?;
    let began = Instant::now();
    let made = connection.call(&Call::new(Verb::Create, Kind::JOB, "default", "").body(body)).await?;
    if made.code != 201 {
        bail!("cannot create the Job {name}: {} {}", made.code, String::from_utf8_lossy(&made.body));
    }
    let mut text = Vec::new();
    loop {
        let frame = stream.frame().await.context("the watch of Jobs ended early")??;
        text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line).context("a watch event is not JSON")?;
            let conditions = event["object"]["status"]["conditions"].as_array();
            let finished = conditions.into_iter().flatten().find(|condition| {
                condition["status"] == "True" && (condition["type"] == "Complete" || condition["type"] == "Failed")
            });
            if let Some(condition) = finished {
                if condition["type"] == "Failed" {
                    bail!("the Job {name} failed: {condition}");
                }
                return Ok((began.elapsed(), event["object"].clone()));
            }
        }
    }
}

async fn latency(args: &Args, directory: &std::path::Path) -> Result<()> {
    let server = Server::start(directory, &["--hollow", "1"]).await?;
    // The first Job waits until the node is ready, so that the measured ones do not have to.
    finish(&server.api, &job("first", 1, 1, false)).await?;
    let mut took = Vec::new();
    for number in 0..args.latency {
        took.push(finish(&server.api, &job(&format!("j{number}"), 1, 1, false)).await?.0);
    }
    took.sort_unstable();
    let at = |percent: usize| took.get(took.len() * percent / 100).map_or(0.0, |took| took.as_secs_f64() * 1e3);
    println!(
        "latency   {} Jobs of one Pod, from creation to Complete: p50 {:.1} ms, p99 {:.1} ms",
        args.latency,
        at(50),
        at(99)
    );
    Ok(())
}

async fn whole(args: &Args, directory: &std::path::Path, completions: u32, indexed: bool) -> Result<()> {
    let server = Server::start(directory, &["--hollow", "4", "--controllers", OTHERS]).await?;
    let mut controller = Process::controller(server.kubeconfig())?;
    // The first Job waits until the controller has synced and the nodes are ready.
    let first = job("first", 1, 1, indexed);
    tokio::select! {
        first = finish(&server.api, &first) => first.map(drop)?,
        ended = controller.ends() => bail!("tally controller ended: {ended}"),
    }
    let (asked, cpu) = (requests(&server.api).await?, controller.cpu());
    let mut body = job("whole", completions, args.parallelism, indexed);
    let mut most_pods = None;
    if let Some(which) = &args.delete_finished_pods {
        body["metadata"]["annotations"] = json!({DELETE_FINISHED_PODS: which});
        most_pods = Some(count_pods(&server.api).await?);
    }
    let (took, finished) = finish(&server.api, &body).await?;
    if finished["status"]["succeeded"] != completions {
        bail!("{} Pods succeeded, expected {completions}", finished["status"]["succeeded"]);
    }
    let (asked_after, cpu_after) = (requests(&server.api).await?, controller.cpu());
    let mut all = 0;
    let mut parts: Vec<(u64, String)> = Vec::new();
    for (what, count) in &asked_after {
        // The benchmark itself sends the creation of the Job and the request for the metrics.
        let ours = u64::from(what == "create jobs") + u64::from(what.ends_with("/metrics") || what == "get ");
        let count = count.saturating_sub(asked.get(what).copied().unwrap_or(0)).saturating_sub(ours);
        if count > 0 {
            all += count;
            parts.push((count, what.clone()));
        }
    }
    parts.sort_unstable_by(|one, other| other.cmp(one));
    let seconds = took.as_secs_f64();
    let pods = f64::from(completions);
    print!(
        "{:<10} {completions} Pods in {seconds:.2} s, {:.0}/min; {:.3} requests per Pod",
        if indexed { "Indexed" } else { "NonIndexed" },
        pods / seconds * 60.0,
        all as f64 / pods,
    );
    if let (Some(before), Some(after)) = (cpu, cpu_after) {
        print!("; controller: {:.0} us of CPU per Pod", (after - before) / pods * 1e6);
    }
    if let Some(peak) = controller.peak_memory() {
        print!(", {} MB peak memory", peak / 1_000_000);
    }
    if let Some(most_pods) = most_pods {
        print!(", {} Pods at most", most_pods.load(Ordering::Relaxed));
    }
    println!();
    let parts: Vec<String> = parts.iter().take(6).map(|(count, what)| format!("{what} {count}")).collect();
    println!("           {}", parts.join(", "));
    Ok(())
}

/// Follows all Pods from now on. Returns the most that have existed at a time, as the watch shows it.
async fn count_pods(api: &Api) -> Result<Arc<AtomicI64>> {
    let mut stream = api.connection()?.watch("/api/v1/pods?watch=true").await?;
    let most = Arc::new(AtomicI64::new(0));
    let counted = most.clone();
    tokio::spawn(async move {
        let (mut text, mut pods) = (Vec::new(), 0);
        while let Some(Ok(frame)) = stream.frame().await {
            text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            let mut from = 0;
            while let Some(length) = text[from..].iter().position(|byte| *byte == b'\n') {
                let line = &text[from..from + length];
                pods += i64::from(line.starts_with(br#"{"type":"ADDED""#));
                pods -= i64::from(line.starts_with(br#"{"type":"DELETED""#));
                counted.fetch_max(pods, Ordering::Relaxed);
                from += length + 1;
            }
            text.drain(..from);
        }
    });
    Ok(most)
}

/// Counts the requests to the server by verb and resource, without watches. The server counts only requests over HTTP,
/// so the requests of its own controllers are not included.
async fn requests(api: &Api) -> Result<BTreeMap<String, u64>> {
    let page = api.connection()?.get("/metrics").await?.body;
    let page = String::from_utf8_lossy(&page);
    let mut counts = BTreeMap::new();
    for line in page.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")) {
        let (labels, count) = line.rsplit_once("} ").context("a metric without a value")?;
        let label = |name: &str| {
            let (_, rest) = labels.split_once(&format!("{name}=\""))?;
            rest.split_once('"').map(|(value, _)| value)
        };
        let verb = label("verb").unwrap_or_default().to_lowercase();
        if verb == "watch" {
            continue;
        }
        let mut what = format!("{verb} {}", label(",resource").or_else(|| label("resource")).unwrap_or_default());
        if let Some(subresource) = label("subresource").filter(|name| !name.is_empty()) {
            what += &format!("/{subresource}");
        }
        *counts.entry(what).or_default() += count.parse::<u64>().context("a metric value that is not a number")?;
    }
    Ok(counts)
}
