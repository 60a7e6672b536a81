//! kube-rs, the client of Kubernetes for Rust. The protocol is that of `protocol.py`.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Debug;
use std::pin::pin;

use futures::{AsyncBufReadExt, SinkExt, StreamExt, TryStreamExt};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{AttachParams, DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams, TerminalSize};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::WatchStreamExt;
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Config, Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Answer = Result<Value, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("the path of a kubeconfig is missing")?;
    let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(tokio::io::stdin()));
    while let Some(line) = lines.next_line().await? {
        let line = match answer(&client, &serde_json::from_str(&line)?).await {
            Ok(answer) => json!({"answer": answer}),
            Err(error) => json!({"error": format!("{error}: {error:?}")}),
        };
        println!("{line}");
    }
    Ok(())
}

async fn answer(client: &Client, request: &Value) -> Answer {
    let namespace = text(&request["namespace"])?;
    let maps = Api::namespaced(client.clone(), namespace);
    let jobs = Api::namespaced(client.clone(), namespace);
    let pods = Api::namespaced(client.clone(), namespace);
    match text(&request["thing"])? {
        "objects" => objects(maps, request).await,
        "conflict" => conflict(maps, request).await,
        "owners" => owners(jobs, request).await,
        "rollback" => rollback(maps, request).await,
        "paging" => paging(maps, request).await,
        "watch" => watch(maps).await,
        "terminal" => terminal(pods, request).await,
        "logs" => logs(pods, request).await,
        "job" => job(jobs, request).await,
        other => Err(format!("no {other}").into()),
    }
}

/// Tells the test what has been reached; the thing goes on.
fn note(what: &Value) {
    println!("{}", json!({"note": what}));
}

fn text(value: &Value) -> Result<&str, Box<dyn Error>> {
    value.as_str().ok_or_else(|| format!("not a text: {value}").into())
}

fn array(value: &Value) -> Result<&Vec<Value>, Box<dyn Error>> {
    value.as_array().ok_or_else(|| format!("not a list: {value}").into())
}

fn value_of(map: &ConfigMap, key: &str) -> Option<String> {
    map.data.as_ref()?.get(key).cloned()
}

async fn names(maps: &Api<ConfigMap>, parameters: ListParams) -> kube::Result<BTreeSet<String>> {
    Ok(maps.list(&parameters).await?.iter().map(ResourceExt::name_any).collect())
}

/// As JSON: a `JobSpec` always has a template, which the manager would then own.
async fn apply<K>(api: &Api<K>, manifest: &Value, parameters: &PatchParams) -> Result<K, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
    api.patch(name, parameters, &Patch::Apply(manifest)).await
}

async fn objects(maps: Api<ConfigMap>, request: &Value) -> Answer {
    for manifest in array(&request["make"])? {
        maps.create(&PostParams::default(), &serde_json::from_value(manifest.clone())?).await?;
    }
    let got = value_of(&maps.get("red-1").await?, "colour");
    let red = names(&maps, ListParams::default().labels("colour=red")).await?;
    let field = names(&maps, ListParams::default().fields("metadata.name=blue-1")).await?;
    maps.delete("red-2", &DeleteParams::default()).await?;
    let left = names(&maps, ListParams::default().labels("suite=objects")).await?;
    Ok(json!({"got": got, "red": red, "field": field, "left": left}))
}

async fn conflict(maps: Api<ConfigMap>, request: &Value) -> Answer {
    apply(&maps, &request["alice"], &PatchParams::apply("alice")).await?;
    let said = match apply(&maps, &request["bob"], &PatchParams::apply("bob")).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some(format!("{} {}", status.code, status.message)),
        Err(error) => return Err(error.into()),
    };
    apply(&maps, &request["bob"], &PatchParams::apply("bob").force()).await?;
    Ok(json!({"conflict": said}))
}

async fn owners(jobs: Api<Job>, request: &Value) -> Answer {
    for step in array(&request["steps"])? {
        apply(&jobs, &step[1], &PatchParams::apply(text(&step[0])?)).await?;
    }
    Ok(json!({}))
}

async fn rollback(maps: Api<ConfigMap>, request: &Value) -> Answer {
    let user = PatchParams::apply("user");
    apply(&maps, &request["first"], &user).await?;
    let second = apply(&maps, &request["second"], &user).await?.data;
    apply(&maps, &request["first"], &user).await?;
    Ok(json!({"second": second}))
}

async fn paging(maps: Api<ConfigMap>, request: &Value) -> Answer {
    let limit = u32::try_from(request["limit"].as_u64().ok_or("no limit")?)?;
    let mut parameters = ListParams::default().labels("suite=paging").limit(limit);
    let (mut found, mut versions, mut pages) = (Vec::new(), BTreeSet::new(), 0);
    loop {
        let page = maps.list(&parameters).await?;
        found.extend(page.items.iter().map(|item| json!([item.name_any(), value_of(item, "n")])));
        versions.insert(page.metadata.resource_version);
        pages += 1;
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(json!({"found": found, "versions": versions, "pages": pages})),
        }
    }
}

/// The watcher resumes, reports that its version has expired, and lists again by itself; what is then not listed has been
/// deleted. With bookmarks its version would not expire here: the server sends one soon after each write.
async fn watch(maps: Api<ConfigMap>) -> Answer {
    let config = watcher::Config::default().labels("suite=watch").disable_bookmarks();
    let mut events = pin!(watcher(maps, config).default_backoff());
    let (mut state, mut listed) = (BTreeMap::new(), BTreeMap::new());
    let (mut deleted, mut expired) = (Vec::new(), false);
    while !state.contains_key("end") {
        let pair = |map: &ConfigMap| (map.name_any(), value_of(map, "v"));
        match events.next().await.ok_or("the watcher has ended")? {
            Ok(Event::Apply(map)) => state.extend([pair(&map)]),
            Ok(Event::Delete(map)) => {
                state.remove(&map.name_any());
                deleted.push(map.name_any());
            }
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(map)) => listed.extend([pair(&map)]),
            Ok(Event::InitDone) => {
                deleted.extend(state.keys().filter(|name| !listed.contains_key(*name)).cloned());
                state = std::mem::take(&mut listed);
            }
            Err(watcher::Error::WatchError(status)) if status.code == 410 => expired = true,
            // The connection is broken; the watcher makes another one.
            Err(error) => eprintln!("{error}"),
        }
        note(&json!({"seen": state}));
    }
    Ok(json!({"state": state, "deleted": deleted, "expired": expired}))
}

async fn terminal(pods: Api<Pod>, request: &Value) -> Answer {
    let command = array(&request["command"])?.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let mut process = pods.exec(text(&request["pod"])?, command, &AttachParams::interactive_tty()).await?;
    let ended = process.take_status().ok_or("no status")?;
    let mut size = process.terminal_size().ok_or("no terminal")?;
    let mut input = process.stdin().ok_or("no input")?;
    let mut output = process.stdout().ok_or("no output")?;
    size.send(TerminalSize { width: 91, height: 17 }).await?;
    input.write_all(text(&request["input"])?.as_bytes()).await?;
    let mut out = String::new();
    output.read_to_string(&mut out).await?;
    let status = ended.await.ok_or("it has ended without a status")?;
    let causes = status.details.and_then(|details| details.causes).unwrap_or_default();
    let code =
        causes.into_iter().find(|cause| cause.reason.as_deref() == Some("ExitCode")).and_then(|cause| cause.message);
    process.join().await?;
    Ok(json!({"out": out, "code": code.map_or(Ok(0), |code| code.parse::<i32>())?}))
}

async fn logs(pods: Api<Pod>, request: &Value) -> Answer {
    let parameters = LogParams { follow: true, ..LogParams::default() };
    let log = pods.log_stream(text(&request["pod"])?, &parameters).await?;
    let lines: Vec<String> = log.lines().try_collect().await?;
    Ok(json!({"lines": lines}))
}

async fn job(jobs: Api<Job>, request: &Value) -> Answer {
    let made = jobs.create(&PostParams::default(), &serde_json::from_value(request["job"].clone())?).await?;
    await_condition(jobs, &made.name_any(), conditions::is_job_completed()).await?;
    Ok(json!({}))
}
