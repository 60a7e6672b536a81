//! `tally bench jobs`: Jobs on an embedded, durable server with hollow nodes, or on any API server; one line of figures for
//! each case. `cases` is the table; `tracker` says when a Pod was counted; `figures` what follows.

mod cases;
mod figures;
mod load;
mod streams;
mod tracker;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use tally_core::lifetime::DELETE_FINISHED_PODS;
use tally_runtime::controller::{Call, Kind, Verb};

use self::cases::{CASES, Case, Controller};
use self::figures::{BENCH, Figures, Observed, Usage};
use self::load::Load;
use self::streams::Streams;
use self::tracker::WARM_UP;
use super::server::{Api, Client, Process, Server};
use super::{disk, proc, say};
use crate::look::LookForm;

#[derive(ClapArgs)]
#[command(after_help = "Examples:
  tally bench jobs                          a quick set of cases, about a minute
  tally bench jobs --list                   the names of all cases
  tally bench jobs 1x100000-indexed beside-10
  tally bench jobs --all -o json > figures  then: tally bench plot figures > figures.svg
  tally bench jobs 1x1000-indexed --kubeconfig ~/.kube/config --pid apiserver=$(pidof kube-apiserver) --finish-pods

Each case has a server of its own: tally up --hollow 4 with all controllers, as a process that is started for it, with its
data in --directory. The line has the time from the creation of the first Job to the last one that is complete; Pods per
minute; processor time by process, in all and for each Pod, and peak memory (VmHWM); requests of controllers for each Pod,
without those of nodes and of the scheduler.

counted: from the moment at which a watch showed that a Pod had succeeded to the moment at which another watch showed a
status of its Job that contains it, by its index, or by the number of Pods that had succeeded before. Both watches are of
this process, each with a connection of its own; they are load for the server, too.

Exit code 0: done; 1: a case missed its target (KEP-2307); 2: bad usage, or a case could not be run.")]
pub struct Args {
    /// Cases to run [default: a quick set]
    #[arg(value_name = "CASE", value_parser = case_named)]
    cases: Vec<Case>,
    /// Run all cases; some take many minutes
    #[arg(long, conflicts_with = "cases")]
    all: bool,
    /// Print the names of all cases and what they are, and run none
    #[arg(long, conflicts_with_all = ["cases", "all"])]
    list: bool,
    /// Use the server of this kubeconfig instead of starting one; its own controllers run the Jobs
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Report that Pods have succeeded as soon as they appear, for a server without nodes
    #[arg(long, requires = "kubeconfig")]
    finish_pods: bool,
    /// A process of that server whose processor time and memory are reported, as NAME=PID; may be repeated
    #[arg(long, value_name = "NAME=PID", value_parser = named_process, requires = "kubeconfig")]
    pid: Vec<(String, u32)>,
    /// Directory for the data of the server that is started; its disk is part of the measurement
    #[arg(long, value_name = "DIR", conflicts_with = "kubeconfig")]
    directory: Option<PathBuf>,
    /// Output format; json has one object per line and case
    #[arg(long, short = 'o', value_name = "FORM", value_enum, default_value_t)]
    output: LookForm,
}

/// Server processes with an own controller beside them run all others.
const ALL_BUT_JOBS: &str = "cronjob,gc,namespace,podgc,root-ca,scheduler,serviceaccount";
const ALL_BUT_TTL: &str = "after,cronjob,gc,job,namespace,podgc,root-ca,scheduler,serviceaccount";

/// Connections that create Jobs, each with one request in flight.
const CREATORS: usize = 16;
/// How often to ask how many objects there are.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// TTLs are compared in whole seconds.
const EXPIRED_AFTER: Duration = Duration::from_secs(2);

fn case_named(name: &str) -> Result<Case, String> {
    let found = CASES.into_iter().find(|case| case.name == name);
    found.ok_or_else(|| "there is no such case; tally bench jobs --list names them".to_owned())
}

fn named_process(text: &str) -> Result<(String, u32), String> {
    let wrong = || format!("{text:?} is not NAME=PID");
    let (name, pid) = text.split_once('=').ok_or_else(wrong)?;
    let pid = pid.parse().map_err(|_| wrong())?;
    if name.is_empty() || name == BENCH {
        return Err(format!("{text:?} needs a name, which is not {BENCH:?}"));
    }
    if proc::processor_seconds(pid).is_none() {
        return Err(format!("{text:?}: there is no process {pid}"));
    }
    Ok((name.to_owned(), pid))
}

/// Returns whether no target was missed.
pub fn run(args: &Args) -> Result<bool> {
    if args.list {
        for case in &CASES {
            let quick = if case.quick { " (quick)" } else { "" };
            say(&format!("{:<19} {}{quick}", case.name, case.describe()));
        }
        return Ok(true);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(measure(args))
}

async fn measure(args: &Args) -> Result<bool> {
    let foreign = args.kubeconfig.is_some();
    let mut chosen: Vec<Case> = match args.cases.as_slice() {
        [] => CASES.into_iter().filter(|case| args.all || case.quick).collect(),
        named => named.to_vec(),
    };
    if foreign {
        if let Some(case) = args.cases.iter().find(|case| case.needs_own_server()) {
            bail!("{} needs processes that are started for it, and cannot be run with --kubeconfig", case.name);
        }
        chosen.retain(|case| !case.needs_own_server());
    }
    let directory = args.directory.clone().unwrap_or_else(std::env::temp_dir);
    let disk_sync = if foreign { None } else { Some(disk::sync_time(&directory)?) };
    if let (Some(took), LookForm::Text) = (disk_sync, args.output) {
        let (place, took) = (directory.display(), took.as_secs_f64() * 1e3);
        say(&format!("fdatasync of 4 KiB in {place}: {took:.3} ms (median of 200)"));
    }
    let mut all_met = true;
    for case in &chosen {
        let ran = run_case(args, case, &directory).await.with_context(|| format!("the case {}", case.name))?;
        let figures = Figures::new(case, &Observed { disk_sync, ..ran });
        all_met &= figures.are_good();
        match args.output {
            LookForm::Text => say(&figures.line()),
            LookForm::Json => say(&serde_json::to_string(&figures)?),
        }
    }
    Ok(all_met)
}

/// What a case runs on.
struct Place {
    api: Api,
    namespace: String,
    /// Name and process id.
    measured: Vec<(String, u32)>,
    /// Before the server: fields are dropped in this order, and it would miss the server.
    controller: Option<Process>,
    server: Option<Server>,
}

impl Place {
    async fn start(args: &Args, case: &Case, directory: &Path) -> Result<Place> {
        let namespace = format!("bench-{}-{}", case.name, std::process::id());
        let mut measured = vec![(BENCH.to_owned(), std::process::id())];
        if let Some(kubeconfig) = &args.kubeconfig {
            measured.extend(args.pid.iter().cloned());
            return Ok(Place { api: Api::of(kubeconfig)?, namespace, measured, server: None, controller: None });
        }
        let mut arguments = vec!["--hollow", "4"];
        match case.controller {
            Controller::Own { .. } => arguments.extend(["--controllers", ALL_BUT_JOBS]),
            Controller::Embedded if case.expire => arguments.extend(["--controllers", ALL_BUT_TTL]),
            Controller::Embedded => {}
        }
        let server = Server::start(directory, &arguments).await?;
        measured.push(("server".to_owned(), server.id()));
        let controller = match case.controller {
            Controller::Embedded => None,
            Controller::Own { qps } => Some(server.start_controller(qps)?),
        };
        measured.extend(controller.iter().map(|process| ("controller".to_owned(), process.id())));
        Ok(Place { api: server.api.clone(), namespace, measured, server: Some(server), controller })
    }

    fn check(&mut self) -> Result<()> {
        self.server.as_mut().map_or(Ok(()), Server::check)?;
        self.controller.as_mut().map_or(Ok(()), |process| process.check("tally controller"))
    }

    /// `connection` is open, so that a request on it costs little.
    async fn usage(&self, connection: &Client) -> Result<Usage> {
        let page = connection.get("/metrics").await?;
        // A user of a foreign server may not be allowed to read them.
        let requests = (page.code == 200).then(|| figures::requests(&String::from_utf8_lossy(&page.body)));
        let mut processor_seconds = BTreeMap::new();
        for (name, pid) in &self.measured {
            let used = proc::processor_seconds(*pid).with_context(|| format!("the process {name} has ended"))?;
            processor_seconds.insert(name.clone(), used);
        }
        Ok(Usage { processor_seconds, requests })
    }

    fn peak_memory(&self) -> BTreeMap<String, u64> {
        let peak = |(name, pid): &(String, u32)| Some((name.clone(), proc::peak_memory(*pid)?));
        self.measured.iter().filter_map(peak).collect()
    }

    async fn create_namespace(&self) -> Result<()> {
        let body = json!({"metadata": {"name": self.namespace}});
        let made = self.api.connection()?.call(&Call::new(Verb::Create, Kind::NAMESPACE, "", "").body(&body)).await?;
        expect(201, &made, "create the namespace")
    }

    async fn delete_namespace(&self) -> Result<()> {
        let call = Call::new(Verb::Delete, Kind::NAMESPACE, "", &self.namespace);
        let answer = self.api.connection()?.call(&call).await?;
        if answer.code != 202 { expect(200, &answer, "delete the namespace") } else { Ok(()) }
    }

    async fn create(&self, connection: &Client, body: Value) -> Result<()> {
        let call = Call::new(Verb::Create, Kind::JOB, &self.namespace, "").body(&body);
        expect(201, &connection.call(&call).await?, "create a Job")
    }

    /// Creates the Jobs of a case that are not small.
    async fn create_jobs(&self, creators: &[Client], case: &Case) -> Result<()> {
        let next = std::sync::atomic::AtomicU32::new(0);
        let create = async |connection: &Client| {
            loop {
                let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if number >= case.jobs {
                    return Ok::<_, anyhow::Error>(());
                }
                self.create(connection, job(&format!("job-{number}"), case)).await?;
            }
        };
        try_join_all(creators.iter().map(create)).await.map(drop)
    }
}

fn expect(code: u16, answer: &tally_remote::RawResponse, what: &str) -> Result<()> {
    if answer.code != code {
        bail!("cannot {what}: {} {}", answer.code, String::from_utf8_lossy(&answer.body));
    }
    Ok(())
}

/// Opens a connection: the first request on it takes longer than all others.
async fn connected(api: &Api) -> Result<Client> {
    let connection = api.connection()?;
    connection.get("/readyz").await?;
    Ok(connection)
}

fn job(name: &str, case: &Case) -> Value {
    let mut body = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {
            "completions": case.completions, "parallelism": case.parallelism.min(case.completions),
            "completionMode": case.mode.name(),
            "template": {"metadata": {}, "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "busybox:1.36", "command": ["sh", "-c", "true"]}],
            }},
        },
    });
    if case.failing > 0 {
        body["spec"]["backoffLimitPerIndex"] = json!(3);
        body["spec"]["template"]["metadata"]["annotations"] = json!({
            "hollow.tally.dev/exit-code": format!("0-{}=1", case.failing - 1), "hollow.tally.dev/fail-times": "1",
        });
    }
    if case.run_for_seconds > 0 {
        let run_for = format!("{}s", case.run_for_seconds);
        body["spec"]["template"]["metadata"]["annotations"] = json!({"hollow.tally.dev/run-for": run_for});
    }
    if case.expire {
        body["spec"]["ttlSecondsAfterFinished"] = json!(0);
    }
    if let Some(which) = case.delete_finished_pods {
        body["metadata"]["annotations"] = json!({DELETE_FINISHED_PODS: which});
    }
    body
}

/// A Job of one Pod that ends at once.
fn small_job(name: &str) -> Value {
    let plain = Case { completions: 1, parallelism: 1, failing: 0, run_for_seconds: 0, expire: false, ..CASES[0] };
    job(name, &plain)
}

async fn run_case(args: &Args, case: &Case, directory: &Path) -> Result<Observed> {
    let mut place = Place::start(args, case, directory).await?;
    place.create_namespace().await?;
    let load = if args.finish_pods { Some(Load::start(&place.api, &place.namespace, case).await?) } else { None };
    let streams = Streams::open(&place.api, &place.namespace, case.jobs == 0 || case.small == 0).await?;
    let connection = connected(&place.api).await?;
    let creators = try_join_all((0..CREATORS).map(|_| connected(&place.api))).await?;
    // The nodes are ready and the controllers have listed everything when it ends.
    place.create(&connection, small_job(WARM_UP)).await?;
    streams.until(|tracker| tracker.complete() == 1, || place.check()).await?;
    streams.tracker().begin();
    let observed = match case {
        Case { expire: true, .. } => {
            place.create_jobs(&creators, case).await?;
            streams.until(|tracker| tracker.complete() == case.jobs as usize, || place.check()).await?;
            drop((streams, connection, creators));
            return expire(place).await;
        }
        Case { small: 1.., .. } => small_jobs(&mut place, case, &streams, &connection, &creators).await?,
        _ => large_jobs(&mut place, case, &streams, &connection, &creators).await?,
    };
    drop((streams, load));
    if place.server.is_none() {
        place.delete_namespace().await?;
    }
    Ok(observed)
}

/// Creates all Jobs and waits for their end.
async fn large_jobs(
    place: &mut Place,
    case: &Case,
    streams: &Streams,
    connection: &Client,
    creators: &[Client],
) -> Result<Observed> {
    let before = place.usage(connection).await?;
    let counter = (case.delete_finished_pods.is_some() && place.server.is_some()).then(|| place.api.clone());
    let mut most_pods = counter.as_ref().map(|_| 0);
    let began = Instant::now();
    place.create_jobs(creators, case).await?;
    let complete = streams.until(|tracker| tracker.complete() == case.jobs as usize, || place.check());
    match &counter {
        None => complete.await?,
        Some(api) => tokio::select! {
            done = complete => done?,
            error = count_pods(api, &mut most_pods) => error?,
        },
    }
    let after = place.usage(connection).await?;
    let mut tracker = streams.tracker();
    let ended = tracker.last_complete_at.unwrap_or_else(Instant::now);
    Ok(Observed {
        wall: ended.saturating_duration_since(began),
        counting: tracker.first_finish_at.map(|first| ended.saturating_duration_since(first)),
        before,
        after,
        peak_memory: place.peak_memory(),
        counted_after: tracker.counted_after().to_vec(),
        most_active: tracker.most_active,
        most_pods,
        ..Observed::default()
    })
}

/// Creates one small Job after the other, beside large ones if the case has some.
async fn small_jobs(
    place: &mut Place,
    case: &Case,
    streams: &Streams,
    connection: &Client,
    creators: &[Client],
) -> Result<Observed> {
    if case.jobs > 0 {
        place.create_jobs(creators, case).await?;
        streams.until(|tracker| tracker.most_active > 0, || place.check()).await?;
    }
    let before = place.usage(connection).await?;
    let began = Instant::now();
    let mut small = Vec::new();
    for number in 0..case.small {
        let name = format!("small-{number}");
        let created = Instant::now();
        place.create(connection, small_job(&name)).await?;
        streams.until(|tracker| tracker.complete_at(&name).is_some(), || place.check()).await?;
        let complete = streams.tracker().complete_at(&name).unwrap_or_else(Instant::now);
        // Once a large Job has ended, the next small one is beside fewer of them.
        if streams.tracker().complete() > small.len() + 1 {
            break;
        }
        small.push(complete.saturating_duration_since(created));
    }
    let wall = began.elapsed();
    let after = place.usage(connection).await?;
    small.sort_unstable();
    let counted_after = streams.tracker().counted_after().to_vec();
    Ok(Observed { wall, before, after, peak_memory: place.peak_memory(), counted_after, small, ..Observed::default() })
}

/// Starts the server again, with all controllers, and waits until the Jobs and their Pods are gone.
async fn expire(mut place: Place) -> Result<Observed> {
    tokio::time::sleep(EXPIRED_AFTER).await;
    let Some(server) = place.server.take() else { bail!("there is no server to start again") };
    // The start of the process is part of the time, its stop is not.
    let server = server.stop().await?;
    let began = Instant::now();
    let server = server.start(&["--hollow", "4"]).await?;
    place.api = server.api.clone();
    place.measured = vec![("server".to_owned(), server.id())];
    place.server = Some(server);
    let connection = connected(&place.api).await?;
    loop {
        let page = connection.get("/metrics").await?;
        expect(200, &page, "read the metrics")?;
        let page = String::from_utf8_lossy(&page.body);
        let stored = |resource| figures::stored(&page, resource).unwrap_or(0);
        // The warm-up has no TTL, and stays.
        if stored("jobs.batch") <= 1 && stored("pods") <= 1 {
            break;
        }
        place.check()?;
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let wall = began.elapsed();
    let after = place.usage(&connection).await?;
    // The process is new: everything that it has used is for this.
    let before = Usage { requests: after.requests.as_ref().map(|_| BTreeMap::new()), ..Usage::default() };
    Ok(Observed { wall, before, after, peak_memory: place.peak_memory(), ..Observed::default() })
}

/// Notes the most Pods that exist at a time. Returns only after an error.
async fn count_pods(api: &Api, most: &mut Option<u64>) -> Result<()> {
    let connection = connected(api).await?;
    loop {
        let page = connection.get("/metrics").await?;
        let stored = figures::stored(&String::from_utf8_lossy(&page.body), "pods");
        *most = (*most).max(stored);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
