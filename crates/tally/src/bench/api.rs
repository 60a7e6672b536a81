//! Measures how many requests per second an API server handles, with Pods like those that Jobs create.

use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use http_body_util::BodyExt;

use tally_runtime::controller::{Call, Kind, Verb};

use super::server::{Api, Client, Server};

#[derive(ClapArgs)]
pub struct Args {
    /// Measure the server of this kubeconfig instead of starting one
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Number of concurrent requests, each on its own connection
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    clients: u16,
    /// Number of Pods to create
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pods: u32,
    /// Number of watch streams that are open while Pods are changed
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    watchers: u16,
    /// Data directory of the server that is started; its disk is part of the measurement
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(measure(args)).map(|()| true)
}

const COLLECTION: &str = "/api/v1/namespaces/bench/pods";

async fn measure(args: &Args) -> Result<()> {
    let own = match &args.kubeconfig {
        Some(_) => None,
        None => Some(
            Server::start(&args.directory.clone().unwrap_or_else(std::env::temp_dir), &["--controllers", ""]).await?,
        ),
    };
    let api = match (&own, &args.kubeconfig) {
        (Some(server), _) => server.api.clone(),
        (None, Some(path)) => Api::of(path)?,
        (None, None) => bail!("no server"),
    };
    let memory = || own.as_ref().and_then(Server::memory);
    let (clients, pods) = (usize::from(args.clients), args.pods as usize);
    let namespace = serde_json::json!({"metadata": {"name": "bench"}});
    let made = api.connection()?.call(&Call::new(Verb::Create, Kind::NAMESPACE, "", "").body(&namespace)).await?;
    if !matches!(made.code, 201 | 409) {
        bail!("cannot create the namespace bench: {} {}", made.code, String::from_utf8_lossy(&made.body));
    }
    let load = Load { api: &api, clients, server: own.as_ref() };
    println!("{clients} clients, {pods} Pods, {} watchers, HTTP/2 over TLS", args.watchers);

    // The second half of the Pods tells what one more costs: connections, caches and buffers are full by then.
    let half = OnceLock::new();
    let create = |number| {
        if number == pods / 2 {
            half.get_or_init(memory);
        }
        about(Verb::Create, "").body(&pod(number))
    };
    load.run("create", pods, 201, create).await?;
    if let (Some(Some(before)), Some(after)) = (half.get(), memory()) {
        let each = after.saturating_sub(*before) / (pods - pods / 2) as u64;
        println!("memory    {each} bytes for each further Pod ({} MB with {pods} Pods)", after / 1_000_000);
    }
    load.run("get", pods, 200, |number| about(Verb::Get, &format!("p{number}"))).await?;
    load.run("update", pods, 200, |number| status(number, "Running")).await?;
    list(&api, pods).await?;
    beside_lists(&api, pods).await?;
    watch(&load, usize::from(args.watchers), pods.min(5_000)).await?;
    load.run("delete", pods, 200, |number| {
        let now = serde_json::json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
        about(Verb::Delete, &format!("p{number}")).body(&now)
    })
    .await?;
    Ok(())
}

/// A small Pod with the labels of a Job and one container, similar to the Pods that a Job creates.
fn pod(number: usize) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("p{number}"),
            "labels": {"batch.kubernetes.io/job-name": "bench", "job-name": "bench"},
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox:1.36", "command": ["sh", "-c", "true"]}],
        },
    })
}

fn about(verb: Verb, pod: &str) -> Call {
    Call::new(verb, Kind::POD, "bench", pod)
}

fn status(number: usize, phase: &str) -> Call {
    about(Verb::MergePatch, &format!("p{number}"))
        .subresource("status")
        .body(&serde_json::json!({"status": {"phase": phase}}))
}

struct Load<'a> {
    api: &'a Api,
    clients: usize,
    server: Option<&'a Server>,
}

impl Load<'_> {
    /// Sends `count` requests, one in flight per client, and prints rate and latency.
    async fn run(&self, name: &str, count: usize, expected: u16, call: impl Fn(usize) -> Call + Sync) -> Result<f64> {
        let next = AtomicUsize::new(0);
        let cpu = self.server.and_then(Server::cpu);
        let began = Instant::now();
        let client = || async {
            let connection = self.api.connection()?;
            let mut took = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(took);
                }
                let asked = Instant::now();
                let answer = connection.call(&call(number)).await?;
                if answer.code != expected {
                    bail!("{name} {number}: {} {}", answer.code, String::from_utf8_lossy(&answer.body));
                }
                took.push(asked.elapsed());
            }
        };
        let mut took: Vec<Duration> = all((0..self.clients).map(|_| client())).await?.into_iter().flatten().collect();
        let elapsed = began.elapsed();
        took.sort_unstable();
        let at = |percent: usize| took.get(took.len() * percent / 100).map_or(0.0, |took| took.as_secs_f64() * 1e3);
        let rate = count as f64 / elapsed.as_secs_f64();
        print!("{name:<9} {rate:.0}/s, p50 {:.2} ms, p99 {:.2} ms", at(50), at(99));
        if let (Some(before), Some(after)) = (cpu, self.server.and_then(Server::cpu)) {
            print!(", {:.0} us of server CPU per request", (after - before) / count as f64 * 1e6);
        }
        println!();
        Ok(rate)
    }
}

/// Runs all futures concurrently in this task: requests wait for sockets, not for each other.
async fn all<T, F: Future<Output = Result<T>>>(futures: impl Iterator<Item = F>) -> Result<Vec<T>> {
    futures_util::future::try_join_all(futures).await
}

async fn list(api: &Api, pods: usize) -> Result<()> {
    let connection = api.connection()?;
    let mut took = Vec::new();
    let mut size = 0;
    for _ in 0..5 {
        let asked = Instant::now();
        let answer = connection.get(COLLECTION).await?;
        took.push(asked.elapsed());
        size = answer.body.len();
        if answer.code != 200 {
            bail!("list: {} {}", answer.code, String::from_utf8_lossy(&answer.body));
        }
    }
    took.sort_unstable();
    let middle = took[took.len() / 2].as_secs_f64();
    println!("list      {:.1} ms for {pods} Pods ({:.1} MB), median of 5", middle * 1e3, size as f64 / 1e6);
    Ok(())
}

/// Measures a small request while four clients list all Pods, each in a form that has to be rendered.
async fn beside_lists(api: &Api, pods: usize) -> Result<()> {
    const FORMS: [(&str, &str); 4] = [
        ("application/json;as=Table;g=meta.k8s.io;v=v1", ""),
        ("application/yaml", ""),
        ("application/json", "?pretty=true"),
        ("application/json;as=Table;g=meta.k8s.io;v=v1", "?includeObject=Object"),
    ];
    const LISTS_EACH: usize = 3;
    let connection = api.connection()?;
    let alone = small_requests(&connection, async { tokio::time::sleep(Duration::from_secs(1)).await }).await?;
    let lists = async {
        let began = Instant::now();
        let clients = FORMS.map(|form| tokio::spawn(list_as(api.clone(), form, LISTS_EACH)));
        for client in clients {
            client.await.context("a client failed")??;
        }
        Ok::<_, anyhow::Error>(began.elapsed())
    };
    let mut listed = Ok(Duration::ZERO);
    let took = small_requests(&connection, async { listed = lists.await }).await?;
    let at = |took: &[Duration], percent: usize| {
        took.get(took.len() * percent / 100).map_or(0.0, |took| took.as_secs_f64() * 1e3)
    };
    println!(
        "beside    4 x {LISTS_EACH} lists of {pods} Pods as table, YAML and JSON with line breaks ({:.1} s): get p50 {:.2} ms, p99 \
         {:.2} ms, worst {:.1} ms; without lists p50 {:.2} ms, p99 {:.2} ms",
        listed?.as_secs_f64(),
        at(&took, 50),
        at(&took, 99),
        took.last().map_or(0.0, |took| took.as_secs_f64() * 1e3),
        at(&alone, 50),
        at(&alone, 99),
    );
    Ok(())
}

/// Lists all Pods several times, in the format that the client accepts.
async fn list_as(api: Api, (accept, query): (&'static str, &'static str), times: usize) -> Result<()> {
    let connection = api.connection()?;
    for _ in 0..times {
        let mut body = connection.open_as(&format!("{COLLECTION}{query}"), accept).await?;
        while let Some(frame) = body.frame().await {
            frame.context("a list ended early")?;
        }
    }
    Ok(())
}

/// Gets one Pod again and again until `end` is ready. Returns how long each request took, the shortest first.
async fn small_requests(connection: &Client, end: impl Future<Output = ()>) -> Result<Vec<Duration>> {
    let mut end = std::pin::pin!(end);
    let mut took = Vec::new();
    let path = format!("{COLLECTION}/p0");
    loop {
        let one = async {
            let asked = Instant::now();
            let answer = connection.get(&path).await?;
            if answer.code != 200 {
                bail!("get: {} {}", answer.code, String::from_utf8_lossy(&answer.body));
            }
            Ok(asked.elapsed())
        };
        let mut one = std::pin::pin!(one);
        let is_over = tokio::select! {
            biased;
            done = &mut one => {
                took.push(done?);
                false
            }
            () = &mut end => true,
        };
        if is_over {
            took.sort_unstable();
            return Ok(took);
        }
        // A person or a probe asks from time to time.
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
            () = &mut end => {
                took.sort_unstable();
                return Ok(took);
            }
        }
    }
}

/// Measures how fast changes are delivered to all watch streams.
async fn watch(load: &Load<'_>, watchers: usize, changes: usize) -> Result<()> {
    let mut streams = Vec::new();
    for _ in 0..watchers {
        let connection = load.api.connection()?;
        let newest = connection.get(&format!("{COLLECTION}?limit=1")).await?.body;
        let newest: serde_json::Value = serde_json::from_slice(&newest).context("the list is not JSON")?;
        let at = newest["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        streams.push((connection, format!("{COLLECTION}?watch=true&resourceVersion={at}")));
    }
    let delivered = Arc::new(AtomicUsize::new(0));
    let mut readers = Vec::new();
    for (connection, path) in streams {
        let delivered = delivered.clone();
        readers.push(tokio::spawn(async move { read(&connection, &path, changes, &delivered).await }));
    }
    let began = Instant::now();
    load.run("change", changes, 200, |number| status(number, "Succeeded")).await?;
    for reader in readers {
        reader.await.context("a watch reader failed")??;
    }
    let elapsed = began.elapsed().as_secs_f64();
    let count = delivered.load(Ordering::Relaxed);
    println!("watch     {:.0} deliveries/s ({count} to {watchers} streams in {elapsed:.2} s)", count as f64 / elapsed);
    Ok(())
}

async fn read(connection: &Client, path: &str, changes: usize, delivered: &AtomicUsize) -> Result<()> {
    let mut body = connection.watch(path).await?;
    let mut seen = 0;
    while seen < changes {
        let frame = body.frame().await.context("the watch ended early")??;
        let lines = frame.data_ref().map_or(0, |data| data.iter().filter(|byte| **byte == b'\n').count());
        seen += lines;
        delivered.fetch_add(lines, Ordering::Relaxed);
    }
    Ok(())
}
