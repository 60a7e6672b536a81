//! `tally run`: Jobs from flags or files, run to completion on this machine.
//!
//! All input is read and checked first (`documents`, `flags`, `check`), then created or resumed (`submit`, `resume`) in
//! a cluster of one process (`cluster`), then followed (`follow`) in a model of what is shown (`model`), which is drawn
//! (`render`, `screen`) or printed as lines (`report`, `output`).

mod check;
mod cluster;
mod documents;
mod flags;
mod follow;
mod logs;
mod model;
mod output;
mod programs;
mod render;
mod report;
mod resume;
mod screen;
mod sources;
mod submit;
mod tree;
mod view;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use tokio::signal::unix::SignalKind;
use tokio::sync::watch;

use check::Everything;
use cluster::Cluster;
use documents::{Document, Origin};
use flags::{Caller, Flags};
use follow::{End, Follow, Readers};
use model::{Model, State};
use output::Output;
use submit::{How, Manner, Placed, Refused};

use crate::place::{Temporary, quoted, wait_for_shim};
use crate::signals::{self, Stop};

#[derive(clap::Args)]
#[command(
    override_usage = "tally run [OPTIONS] -- COMMAND [ARG]...\n       tally run [OPTIONS] -f FILE [-f FILE]...\n       \
                      tally run [OPTIONS] -",
    after_help = "Examples:
  tally run -- make test                                  one run, retried if it fails
  tally run -n 20 -p 4 --indexed -- sh -c 'echo index $JOB_COMPLETION_INDEX'
                                                          20 runs, 4 at a time, each with its own index
  tally run -n 8 -i -- ./part.sh '$(JOB_COMPLETION_INDEX)'  the index as an argument, without a shell
  tally run -n 100 -i --backoff-limit-per-index 2 -- ./flaky.sh
                                                          retries per index: some indexes may fail
  tally run --deadline 10m --logs -- ./build.sh           print its output; stop it after ten minutes
  tally run -f jobs.yaml                                  the Jobs in a file, with their ConfigMaps and Secrets
  kubectl create job x --image=process --dry-run=client -o yaml -- date | tally run -
  tally run --data-dir ./d -n 1000 -i -- ./work.sh        keep state: the same command resumes after a crash or Ctrl-C
  tally run --output json -f jobs.yaml | jq .             one object per line: progress, failure, log, summary

The first Ctrl-C stops all Pods: SIGTERM, then SIGKILL after the grace period. The second kills them at once.
Pods ended by a stop do not count against backoffLimit.
Standard output has the summary, or the output of the Pods with --logs, or JSON; standard error has everything else.
In the command and in --env values, $(NAME) is replaced by the variable NAME if the Job sets it; $$ is not changed.

Exit code 0: all Jobs are Complete; 1: a Job has Failed; 2: bad usage or bad input, nothing was run; 3: environment
error: the data directory cannot be used or the disk is full; 130: interrupted."
)]
pub struct Args {
    /// Run the Jobs in a YAML or JSON file, which may have several documents; - is standard input; may be repeated
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    flags: Flags,
    /// Keep all state in this directory: a second run resumes where the first one stopped [default: nothing is kept]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Delete a Job of the same name in the data directory and run it again
    #[arg(long, requires = "data_dir")]
    again: bool,
    /// Print the output of the Pods, each line prefixed with the Job and the index, or with the Pod
    #[arg(long, short = 'l')]
    logs: bool,
    /// Output format: human-readable text, or one JSON object per line
    #[arg(long, short = 'o', value_name = "FORM", value_enum, default_value_t = Form::Text)]
    output: Form,
    /// Print no progress and no results: only the exit code reports the result
    #[arg(long, short = 'q')]
    quiet: bool,
    /// Number of hollow nodes: their Pods succeed at once without running, or behave as their annotations request; for
    /// tests
    #[arg(long, value_name = "N", default_value_t = 0, hide = true, value_parser = clap::value_parser!(u32).range(0..=1000))]
    hollow: u32,
    /// - to read Jobs from standard input
    #[arg(value_name = "-", hide = true)]
    stdin: Option<String>,
    /// The command to run, after --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    Text,
    Json,
}

const FAILED: u8 = 1;
const BAD_INPUT: u8 = 2;
const MACHINE: u8 = 3;
const INTERRUPTED: u8 = 130;

/// Time for tasks to be dropped at the end. They wait only for each other.
const LET_GO_WITHIN: Duration = Duration::from_secs(1);

/// Runs to the end. The exit code reports the result.
pub fn run(args: &Args) -> ExitCode {
    match start(args) {
        Ok(code) => ExitCode::from(code),
        Err(Refused::Input(why)) => {
            eprintln!("tally: {why}");
            ExitCode::from(BAD_INPUT)
        }
        Err(Refused::Machine(why)) => {
            eprintln!("tally: {why}");
            ExitCode::from(MACHINE)
        }
    }
}

fn start(args: &Args) -> Result<u8, Refused> {
    let documents = wanted(args).map_err(Refused::Input)?;
    let machine = |error: std::io::Error| Refused::Machine(format!("cannot start threads: {error}"));
    // Few threads: the CPUs are for the processes of the Jobs.
    let workers = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 4);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
    let runtime = runtime.map_err(machine)?;
    // Held to the end: all processes that use the directory must have exited first.
    let mut temporary = None;
    let ended = runtime.block_on(work(args, documents, &mut temporary));
    // The shim is released with the last task, and ends the remaining processes of the node.
    runtime.shutdown_timeout(LET_GO_WITHIN);
    args.data_dir.iter().for_each(|directory| wait_for_shim(directory));
    drop(temporary);
    ended
}

/// The second signal aborts the run at any point: the node ensures that none of its processes outlives it, and the
/// store survives a crash at any point.
async fn work(args: &Args, documents: Vec<Document>, temporary: &mut Option<Temporary>) -> Result<u8, Refused> {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let stop = signals::stop(&kinds, INTERRUPTED.into());
    let stop = stop.map_err(|error| Refused::Machine(format!("cannot install signal handlers: {error}")))?;
    let mut at_once = stop.clone();
    tokio::select! {
        biased;
        Ok(_) = at_once.wait_for(|stop| *stop == Stop::AtOnce) => Ok(INTERRUPTED),
        ended = to_the_end(args, documents, stop, temporary) => ended,
    }
}

/// The objects to create. Empty: resume what is in the data directory.
fn wanted(args: &Args) -> Result<Vec<Document>, String> {
    let mut files = args.files.clone();
    match args.stdin.as_deref() {
        None => {}
        Some("-") => files.push("-".to_owned()),
        Some(other) => {
            return Err(format!(
                "unexpected argument {other:?}; put a command after --, as in `tally run -- {other}`, and a file \
                 after -f"
            ));
        }
    }
    if files.iter().filter(|file| *file == "-").count() > 1 {
        return Err("standard input can be read only once; specify - once".to_owned());
    }
    match (files.is_empty(), args.command.is_empty()) {
        (false, false) => Err("-f FILE cannot be combined with a command after --".to_owned()),
        (false, true) => match args.flags.first() {
            Some(flag) => Err(format!("{flag} applies only to a command; with -f FILE, set it in the file")),
            None => documents::read(&files),
        },
        (true, false) => of_flags(args).map(|document| vec![document]),
        (true, true) => match (&args.data_dir, args.flags.first()) {
            (_, Some(flag)) => Err(format!("{flag} applies only to a command; put the command after --")),
            (Some(_), None) => Ok(Vec::new()),
            (None, None) => {
                Err("nothing to run: put a command after --, or specify a file with -f; see --help".to_owned())
            }
        },
    }
}

fn of_flags(args: &Args) -> Result<Document, String> {
    let directory =
        std::env::current_dir().map_err(|error| format!("the current directory cannot be used: {error}"))?;
    let directory = directory.into_os_string().into_string();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let caller = Caller {
        directory: directory
            .map_err(|path| format!("the path of the current directory is not valid UTF-8: {path:?}"))?,
        env: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
        processors: i32::try_from(processors).unwrap_or(i32::MAX),
    };
    let object = args.flags.job(&args.command, &caller)?;
    let container = &object["spec"]["template"]["spec"]["containers"][0];
    let workdir = container["workingDir"].as_str().unwrap_or_default();
    if !Path::new(workdir).is_dir() {
        return Err(format!("--workdir {workdir}: no such directory"));
    }
    let path = container["env"].as_array().into_iter().flatten().find(|row| row["name"] == "PATH");
    let path = path.and_then(|row| row["value"].as_str()).unwrap_or(programs::USUAL_PATH);
    programs::find(&args.command[0], path, workdir)?;
    let resource = tally_api::catalog::find("batch", "v1", "jobs").ok_or("no Jobs are served")?;
    Ok(Document { origin: Origin::Flags, resource, object })
}

async fn to_the_end(
    args: &Args,
    documents: Vec<Document>,
    stop: watch::Receiver<Stop>,
    temporary: &mut Option<Temporary>,
) -> Result<u8, Refused> {
    let began = Instant::now();
    let mut output = Output::new(args.output, args.quiet, args.logs, screen::this_terminal());
    let of_flags = documents.iter().any(|document| matches!(document.origin, Origin::Flags));
    let everything = check::check(documents, args.hollow == 0).await.map_err(Refused::Input)?;
    for warning in &everything.warnings {
        output.note(&format!("warning: {warning}"));
    }
    let data_dir = match &args.data_dir {
        Some(given) => Some(
            std::path::absolute(given)
                .map_err(|error| Refused::Machine(format!("cannot use {}: {error}", given.display())))?,
        ),
        None => None,
    };
    let opened = Cluster::open(data_dir.as_deref(), temporary).await;
    let mut cluster = opened.map_err(|error| Refused::Machine(format!("{error:#}")))?;
    let placed = place(args, of_flags, &cluster, &everything).await?;
    cluster.keep();
    let mut model = Model::default();
    for job in &placed {
        if job.how == How::SomebodyElses {
            let name = &job.name;
            output
                .note(&format!("Job {name:?} is unfinished but not run: its spec.managedBy names another controller"));
            continue;
        }
        model.follow(&job.namespace, &job.name, &job.uid);
        tell(&mut output, &mut model, job, data_dir.as_deref());
    }
    let over = follow::over(&cluster.registry)?;
    model.knows_of(&over);
    let working = cluster.start(args.hollow).await.map_err(|error| Refused::Machine(format!("{error:#}")))?;
    let logs = working.logs();
    let mut follow = Follow {
        registry: &cluster.registry,
        model: &mut model,
        output: &mut output,
        logs,
        wants_logs: args.logs,
        restarts: placed.iter().any(|job| job.restarts),
        began,
        readers: Readers::without(over),
    };
    let ended = follow.run(working, stop).await;
    let now = began.elapsed();
    let shown = data_dir.as_deref().map(|directory| directory.display().to_string());
    let ended = ended.map_err(|refused| {
        output.leave();
        located(refused, data_dir.as_deref(), cluster.disk_is_full())
    })?;
    output.end(&model, now, shown.as_deref());
    if let Some(directory) = &data_dir {
        let goes_on = if ended == End::Interrupted { "; run the same command to resume" } else { "" };
        output.note(&format!("all state is kept in {}{goes_on}", quoted(directory)));
    }
    cluster.close();
    Ok(exit_code(&model, &ended))
}

async fn place(args: &Args, of_flags: bool, cluster: &Cluster, wanted: &Everything) -> Result<Vec<Placed>, Refused> {
    let named: Vec<&str> = args.flags.env.iter().map(|given| given.split('=').next().unwrap_or_default()).collect();
    let loose: Vec<&str> = flags::TAKEN_OVER.into_iter().filter(|name| of_flags && !named.contains(name)).collect();
    let place = cluster.directory.display().to_string();
    let manner = Manner { loose: &loose, again: args.again, place: &place };
    let placed = submit::submit(&cluster.registry, wanted, manner).await;
    let placed = placed.map_err(|refused| located(refused, args.data_dir.as_deref(), cluster.disk_is_full()))?;
    if placed.iter().all(|job| job.how == How::SomebodyElses) {
        return Err(Refused::Input(format!(
            "no unfinished Job in {place} and no command; put a command after --, or specify a file with -f"
        )));
    }
    Ok(placed)
}

/// Adds the data directory to an environment error, and what to do if the disk is full.
fn located(refused: Refused, data_dir: Option<&Path>, disk_full: bool) -> Refused {
    let (Refused::Machine(why), Some(directory)) = (&refused, data_dir) else { return refused };
    let directory = directory.display();
    Refused::Machine(match disk_full {
        true => format!(
            "{why} (data directory {directory}). Nothing on disk is lost: free some space, then run the same \
             command to resume"
        ),
        false => format!("{why} (data directory {directory})"),
    })
}

fn tell(output: &mut Output, model: &mut Model, job: &Placed, data_dir: Option<&Path>) {
    let Some(directory) = data_dir else { return };
    let directory = quoted(directory);
    let name = &job.name;
    match job.how {
        How::Created | How::SomebodyElses => {}
        How::GoesOn => output.note(&format!("Job {name:?} resumes from the state in {directory}")),
        How::GoesOnToo => output.note(&format!("Job {name:?} was left unfinished in {directory} and resumes, too")),
        How::Finished => {
            model.was_finished(&job.uid);
            output.note(&format!("Job {name:?} in {directory} is already finished; use --again to run it again"));
        }
    }
}

fn exit_code(model: &Model, ended: &End) -> u8 {
    let complete = model.jobs().iter().all(|job| matches!(job.state, State::Complete { .. }));
    match (ended, complete) {
        (End::Interrupted, _) => INTERRUPTED,
        (End::Finished, true) => 0,
        (End::Finished, false) => FAILED,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn room_is_wanted_only_of_a_full_disk() {
        for full in [true, false] {
            let why = Refused::Machine("cannot write".to_owned());
            let Refused::Machine(said) = located(why, Some(Path::new("/d")), full) else { unreachable!() };
            assert!(said.starts_with("cannot write (data directory /d)"), "{said}");
            assert_eq!(said.contains("free some space"), full, "{said}");
        }
    }
}
