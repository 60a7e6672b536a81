//! `tally run`: Jobs from flags or files, run to completion on this machine.
//!
//! With `--context` they run on a cluster, and are followed from here (`on_cluster`).
//!
//! All input is read and checked first (`input`), then created or resumed (`submit`) in a cluster of one process
//! (`cluster`), then followed (`follow`). What the user sees is a model of the Jobs and its display (`progress`). How the
//! run ended, and the exit code for it, is in `outcome`.

mod capacity;
mod cluster;
mod explaining;
mod follow;
mod input;
mod junit;
mod lines;
pub mod on_cluster;
mod outcome;
pub mod parts;
mod placement;
pub mod progress;
pub mod submit;
mod tui;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use tally_core::gates::FeatureGates;
use tally_node::output::{FollowOptions, ResultsOptions};
use tokio::signal::unix::SignalKind;
use tokio::sync::watch::Receiver;

use cluster::Cluster;
use explaining::Explaining;
use follow::display::{DisplayFlags, LogStyle, LogsFlag, TaskOutputFlags};
use follow::local::{LocalJobs, LocalOptions};
use follow::turns::JobOrder;
use follow::{End, Reporter};
use input::check::{self, Checked, CheckedObjects, RunsOn};
use input::documents::{Document, Origin};
use input::each::{self, EachFlags};
use input::flags::{self, Flags};
use input::manifest;
use on_cluster::flags::ClusterFlags;
use outcome::{INTERRUPTED, RunError, advice, exit_code};
use progress::model::Model;
use progress::output::Output;
use progress::screen;
use submit::retry::{self, Plan, Selection};
use submit::{Submission, SubmitOptions, SubmittedJob};
use tui::RunView;

pub use input::flags::{seconds, timeout};

use crate::data_dir::{Temporary, quoted, wait_for_shim};
use crate::node::TaskOptions;
use crate::place::{self, Place};
use crate::signals::{self, Stop};
use crate::terminal;

#[derive(clap::Args)]
#[command(
    group = clap::ArgGroup::new("lasting").args(["data_dir", "dry_run", "context", "kubeconfig"]).multiple(true),
    override_usage = "tally run [OPTIONS] -- COMMAND [ARG]...\n       tally run [OPTIONS] -f FILE [-f FILE]...\n       \
                      tally run [OPTIONS] -",
    group = clap::ArgGroup::new("cluster").args(["context", "kubeconfig"]).multiple(true),
    group = clap::ArgGroup::new("with_image").args(["dry_run", "context", "kubeconfig"]).multiple(true),
    group = clap::ArgGroup::new("kept").args(["data_dir", "context", "kubeconfig"]).multiple(true),
    after_help = "Examples:
  tally run -- make test                                  one run; prints what make prints
  tally run --retries 3 -- ./fetch.sh                     tried up to four times, with waits that grow
  tally run -n 20 -p 4 --indexed -- sh -c 'echo index $JOB_COMPLETION_INDEX'
                                                          20 runs, 4 at a time, each with its own index
  tally run -n 8 -i -- ./part.sh '$(JOB_COMPLETION_INDEX)'  the index as an argument, without a shell
  tally run -n 100 -i --retries 2 -- ./flaky.sh           every index is tried up to three times
  tally run --each hosts.txt -p 8 -- ping -c 1 {}         once for every line of a file; - is standard input. A line that
                                                          fails does not end the others
  tally run --each-glob '*.png' -- convert {} {.}.jpg     once for every file; {.} is its name without .png
  tally run -- gzip {} ::: a.log b.log                    once for every value
  tally run --each points.csv --columns -- ./plot.sh {x} {y}
                                                          once for every record, by the names in the header
  tally run --stdin -- sort < names.txt                   one run that reads standard input
  tally run --each list.txt --dry-run --image busybox -- echo {} | kubectl create -f -
                                                          the objects for a cluster
  tally run --context test --image busybox -n 20 -i -- sh -c 'echo index $JOB_COMPLETION_INDEX'
                                                          the same on a cluster, followed from here
  tally run --context test --image busybox --rm --on-interrupt=detach --each list.txt -- ./work.sh {}
                                                          the Job is deleted at its end; Ctrl-C leaves it running
  tally run --deadline 10m -- ./build.sh                  stop it after ten minutes
  tally run --cpu 4 --pending-timeout 1h -- ./build.sh    give up if there is no room for it within an hour
  tally run -n 8 -i -k --logs=raw -- ./part.sh > all      the output of all parts, in the order of their indexes
  tally run -n 8 -i --group -- ./part.sh                  the output of each part in one piece, when it has ended
  tally run -n 8 -i --results r --logs=none -- ./part.sh  the output of part 3 in r/3/stdout, and how it ended
  tally run --each list.txt --joblog log -- ./work.sh {}  a line about each attempt in log, as GNU parallel has it
  tally run --each list.txt --junit report.xml -- ./check.sh {}
                                                          test results for a CI system
  tally run --tui -n 500 -p 8 -i -- ./part.sh             look at it while it runs: indexes, attempts, logs
  tally run --clean-env -e MODE=test -- ./part.sh         only a few variables of the shell, and MODE
  tally run -f jobs.yaml                                  the Jobs in a file, with their ConfigMaps and Secrets
  kubectl create job x --image=process --dry-run=client -o yaml -- date | tally run -
  tally run --data-dir ./d -n 1000 -i -- ./work.sh        keep state: the same command resumes after a crash or Ctrl-C
  tally run --data-dir ./d --resume                       of a finished Job, run all that has not succeeded
  tally run --data-dir ./d --retry-failed                 of a finished Job, run only what has failed
  tally run --retries 9 --retry-delay 5s --retry-max-delay 5m -- ./fetch.sh
                                                          wait longer before every retry: 5 s, 10 s, 20 s ... 5 min
  tally run --each list.txt --timeout 30s -- ./check.sh {}  every attempt has half a minute
  tally run --each list.txt --halt soon,fail=10% -- ./check.sh {}
                                                          start no more when a tenth has failed
  tally run --output json -f jobs.yaml | jq .             one object per line: progress, failure, log, summary

The first Ctrl-C stops all Pods: SIGTERM, then SIGKILL after the grace period. The second kills them at once.
Pods ended by a stop do not count as failures.
The same command again goes on with a Job that is not finished. --resume runs what has not succeeded of one that is.
What tasks print goes to standard output and standard error as they print it. A task waits if its reader is slow; nothing
is lost. A single task is passed through byte for byte, and Tally itself is silent unless something goes wrong. Many tasks
have the Job and the index in front of each line. The summary is on standard error; with --logs=none on standard output.
The command has the environment of the shell. In the command and in --env values, $(NAME) is replaced by the variable NAME
if --env or the Job sets it; $$ is not changed.

Exit code 0: all Jobs are Complete; 1: a Job has Failed; 2: bad usage or bad input, nothing was run; 3: environment
error: the data directory or the cluster cannot be used, the disk is full, or a Pod can never start here; 130: interrupted."
)]
pub struct Args {
    /// Run the Jobs in a YAML or JSON file, which may have several documents; - is standard input; may be repeated
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    each: EachFlags,
    /// Give the command the standard input of this process; it can be read only once, so a failure is not retried
    #[arg(long = "stdin", conflicts_with_all = ["completions", "retries", "backoff_limit", "backoff_limit_per_index", "restart", "each", "each_glob"])]
    pass_stdin: bool,
    /// Print the objects as a manifest and run nothing; with -o yaml (the default) or -o json
    #[arg(long)]
    dry_run: bool,
    /// Image for the containers on a cluster, or in the manifest of --dry-run; commands on this machine use no image
    #[arg(long, value_name = "IMAGE", requires = "with_image")]
    image: Option<String>,
    /// Keep all state in this directory: a second run resumes where the first one stopped [default: nothing is kept]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Delete a Job of the same name in the data directory and run it again
    #[arg(long, requires = "data_dir")]
    again: bool,
    /// Run all that has not succeeded of a finished Job in the data directory or on the cluster, whether it has failed or
    /// was not run to the end, as a new Job; NAME may be left out if there is only one such Job. Each task is told its index
    /// in the first Job. A Job that is not finished goes on, as with the same command again
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "", requires = "kept", conflicts_with_all = ["again", "dry_run", "retry_failed"])]
    resume: Option<String>,
    /// Run only the failed indexes of a finished Job again, as --resume does, and say what is left
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "", requires = "kept", conflicts_with_all = ["again", "dry_run"])]
    retry_failed: Option<String>,
    /// Give every task its own mount and PID namespaces, without the data directory, with its own /tmp and without the
    /// environment of the shell
    #[arg(long, conflicts_with_all = ["pass_stdin", "hollow"])]
    isolate: bool,
    /// Switch features of the Job API off or on, as NAME=true|false, separated by commas; `tally version -o json` lists the
    /// names
    #[arg(long, value_name = "LIST", default_value = "", hide_default_value = true)]
    feature_gates: FeatureGates,
    #[command(flatten)]
    task_output: TaskOutputFlags,
    /// Store the standard output, standard error, exit code and times of each task in DIR/INDEX, or in DIR/POD if they have
    /// no index
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    /// Append a line about each attempt to FILE: its number, start, duration, exit code, signal and command, in the
    /// columns of GNU parallel's --joblog
    #[arg(long = "joblog", value_name = "FILE")]
    job_log: Option<PathBuf>,
    /// Write how each task ended to FILE when the run ends, as JUnit XML, which CI systems show
    #[arg(long, value_name = "FILE", conflicts_with = "hollow")]
    junit: Option<PathBuf>,
    /// Output format: human-readable text, or one JSON object per line; yaml for --dry-run
    #[arg(long, short = 'o', value_name = "FORM", value_enum, default_value_t = OutputForm::Text)]
    output: OutputForm,
    /// Show the run as `tally top` does: Jobs, their indexes, logs, and why they do not move. q leaves the view and the run
    /// goes on; Ctrl-C ends both
    #[arg(long, conflicts_with_all = ["dry_run", "pass_stdin", "quiet", "logs", "keep_order", "group"])]
    tui: bool,
    /// Print no progress and no results: only the exit code reports the result
    #[arg(long, short = 'q')]
    quiet: bool,
    /// Number of hollow nodes: their Pods succeed at once without running, or behave as their annotations request; for
    /// tests
    #[arg(long, value_name = "N", default_value_t = 0, hide = true, value_parser = clap::value_parser!(u32).range(0..=1000))]
    hollow: u32,
    #[command(flatten)]
    cluster: ClusterFlags,
    /// - to read Jobs from standard input
    #[arg(value_name = "-", hide = true)]
    stdin: Option<String>,
    /// The command to run, after --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// The value of `--output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputForm {
    Text,
    Json,
    /// For manifests only.
    Yaml,
}

/// The form of what a run prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    Json,
}

/// The number of unread log files, of 10 MiB each, after which a task waits for the reader of its output.
const MOST_UNREAD_FILES: u64 = 5;

/// A user is told what a start waits for if it takes longer than this.
const TOLD_AFTER: Duration = Duration::from_secs(1);

/// Time for tasks to be dropped at the end. They wait only for each other.
const LET_GO_WITHIN: Duration = Duration::from_secs(1);

/// Runs to the end. The exit code reports the result.
pub fn run(args: &Args) -> ExitCode {
    ExitCode::from(start(args).unwrap_or_else(|error| {
        terminal::tell(&error);
        error.exit_code()
    }))
}

fn start(args: &Args) -> Result<u8, RunError> {
    let documents = input::wanted(args)?;
    if args.cluster.is_given() {
        return on_cluster::start(args, documents);
    }
    let machine = |error: std::io::Error| RunError::Environment(format!("cannot start threads: {error}"));
    // Few threads: the CPUs are for the processes of the Jobs.
    let workers = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 4);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
    let runtime = runtime.map_err(machine)?;
    let mut held = HeldDirectories::default();
    let ended = runtime.block_on(work(args, documents, &mut held));
    // The shim is released with the last task, and ends the remaining processes of the node.
    runtime.shutdown_timeout(LET_GO_WITHIN);
    // In a directory that another process uses, the shim is that of the other process.
    args.data_dir.iter().filter(|_| held.data_dir).for_each(|directory| wait_for_shim(directory));
    drop(held);
    ended
}

/// Held to the end: all processes that use the directories must have exited first.
#[derive(Default)]
struct HeldDirectories {
    temporary: Option<Temporary>,
    /// This process has the data directory.
    data_dir: bool,
}

/// What the user sees.
struct View {
    began: Instant,
    output: Output,
    model: Model,
}

/// Runs until the second signal, which ends everything at any point. `killed`: what is printed then.
async fn until_killed(
    form: Form,
    quiet: bool,
    killed: impl FnOnce(&mut View),
    work: impl AsyncFnOnce(Receiver<Stop>, &mut View) -> Result<u8, RunError>,
) -> Result<u8, RunError> {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let stop = signals::stop(&kinds, INTERRUPTED.into());
    let stop = stop.map_err(|error| RunError::Environment(format!("cannot install signal handlers: {error}")))?;
    let mut at_once = stop.clone();
    let output = Output::new(form, quiet, screen::this_terminal());
    let mut view = View { began: Instant::now(), output, model: Model::default() };
    tokio::select! {
        biased;
        Ok(_) = at_once.wait_for(|stop| *stop == Stop::AtOnce) => {
            killed(&mut view);
            Ok(INTERRUPTED)
        }
        ended = work(stop, &mut view) => ended,
    }
}

/// The node ensures that none of its processes outlives a run that is killed, and the store survives a crash at any point.
async fn work(args: &Args, documents: Vec<Document>, held: &mut HeldDirectories) -> Result<u8, RunError> {
    let killed = |view: &mut View| {
        view.model.killed = true;
        let data_dir = args.data_dir.as_ref().map(|directory| directory.display().to_string());
        view.output.end(&view.model, view.began.elapsed(), data_dir.as_deref());
    };
    until_killed(args.form(), args.quiet, killed, async |stop, view| {
        to_the_end(args, documents, stop, held, view).await
    })
    .await
}

/// The objects, after all checks. None: they were only to be printed.
async fn checked(
    args: &Args,
    documents: Vec<Document>,
    runs_on: RunsOn,
    output: &mut Output,
) -> Result<Option<CheckedObjects>, RunError> {
    let wanted = check::check(documents, runs_on).await.map_err(RunError::Input)?;
    wanted.warnings.iter().for_each(|warning| output.note(&format!("warning: {warning}")));
    if args.dry_run {
        let objects: Vec<&Document> = wanted.objects.iter().map(|checked| &checked.document).collect();
        // The reader may have closed the pipe; that is not an error.
        let _ = manifest::print(objects.into_iter(), args.form());
        return Ok(None);
    }
    if args.task_output.keep_order {
        wanted.objects.iter().try_for_each(has_an_order).map_err(RunError::Input)?;
    }
    Ok(Some(wanted))
}

async fn to_the_end(
    args: &Args,
    documents: Vec<Document>,
    stop: Receiver<Stop>,
    held: &mut HeldDirectories,
    view: &mut View,
) -> Result<u8, RunError> {
    let View { began, output, model } = view;
    let began = *began;
    let display = args.checked_display()?;
    let of_flags = documents.iter().any(|document| matches!(document.origin, Origin::Flags));
    args.note_unused_flags(&documents, output);
    let Some(everything) = checked(args, documents, args.runs_on(), output).await? else { return Ok(0) };
    let data_dir = match &args.data_dir {
        Some(given) => Some(
            std::path::absolute(given)
                .map_err(|error| RunError::Environment(format!("cannot use {}: {error}", given.display())))?,
        ),
        None => None,
    };
    args.junit.as_deref().map_or(Ok(()), junit::check)?;
    let opened = Cluster::open(data_dir.as_deref(), &mut held.temporary, args.feature_gates).await;
    let mut cluster = opened.map_err(|error| RunError::Environment(format!("{error:#}")))?;
    held.data_dir = data_dir.is_some();
    cluster.is_watched |= args.tui;
    let local = Arc::new(Place::own(cluster.directory.clone(), cluster.registry.clone()));
    let everything = match args.again_in_part() {
        Some((which, name)) => {
            let all = local.jobs("").await?;
            let jobs = match retry::plan(&all, name, which, "the data directory")? {
                Plan::Create { jobs, told } => {
                    output.note(&told);
                    jobs
                }
                // What is unfinished in the directory goes on anyway, and says so.
                Plan::GoesOn(_) => Vec::new(),
                Plan::Done(why) => {
                    output.note(&why);
                    return Ok(0);
                }
            };
            check::check(retry::documents(jobs)?, args.runs_on()).await.map_err(RunError::Input)?
        }
        None => everything,
    };
    input::order::check(&everything, &cluster.registry).map_err(RunError::Input)?;
    let placed = place(args, of_flags, &cluster, &everything).await?;
    let parallelism = capacity::asked_for(&everything);
    // A list may be long.
    drop(everything);
    cluster.keep();
    for job in &placed {
        if job.how == Submission::ManagedElsewhere {
            let name = &job.name;
            output
                .note(&format!("Job {name:?} is unfinished but not run: its spec.managedBy names another controller"));
            continue;
        }
        model.follow_submitted(job);
    }
    let since = match placed.iter().any(|job| job.how == Submission::Finished) {
        true => retry::succeeded_since(&local.jobs("").await?),
        false => Default::default(),
    };
    for job in submit::as_shown(&placed) {
        tell(output, model, &job, data_dir.as_deref(), since.get(&job.uid));
    }
    // Before the controllers and the node start.
    let over: Vec<String> = follow::over(local.all_pods("").await?).collect();
    model.knows_of(&over);
    let stdin = input::standard_input(args)?;
    let style = display.style(is_single(&placed));
    output.show_tasks(style, display.passes_sequences(style, true));
    let mut tasks = args.tasks(style, model.jobs().len() > 1)?;
    if args.hollow == 0 {
        let bearable = capacity::bearable();
        tasks.pods = parallelism.min(bearable.pods);
        if parallelism > bearable.pods {
            output.note(&bearable.note(parallelism));
        }
    }
    let working = {
        let mut starting = std::pin::pin!(cluster.start(args.hollow, stdin, tasks, args.isolate));
        match tokio::time::timeout(TOLD_AFTER, &mut starting).await {
            Ok(working) => working,
            Err(_) => {
                output.note("waiting for the processes of an earlier run in the same directory to end");
                starting.await
            }
        }
    };
    let mut working = working.map_err(|error| RunError::Environment(format!("{error:#}")))?;
    let view = match (args.tui, args.tui.then(|| working.take_api()).flatten()) {
        (false, _) => None,
        (true, None) => {
            let why = format!("--tui needs a socket in {}, which could not be made", quoted(&cluster.directory));
            return Err(RunError::Environment(why));
        }
        (true, Some(api)) => {
            let place = Place::directory(cluster.directory.clone()).await?;
            Some(RunView::open(place, Some(api), &placed, output).await?)
        }
    };
    let outputs = working.outputs(style, display.order, JobOrder::new(model.followed()));
    let options = LocalOptions {
        hollow: (args.hollow > 0 && style.is_shown()).then(|| over.into_iter().collect()),
        tails: display.shows_tails(style),
        restarts: placed.iter().any(|job| job.restarts),
        here: args.hollow == 0,
    };
    let mut source = LocalJobs::new(&cluster.registry, working, outputs, options)?;
    let mut reporter = Reporter {
        place: local.clone(),
        model: &mut *model,
        output: &mut *output,
        began,
        runs_parts: true,
        explaining: Explaining::new(local.clone()),
        view,
    };
    let ending = source.end_when(stop.clone());
    let ended = follow::follow(&mut source, &mut reporter, &stop, ending).await;
    let removed = source.outputs.as_ref().and_then(|outputs| outputs.told_removed());
    let now = began.elapsed();
    let shown = data_dir.as_deref().map(|directory| directory.display().to_string());
    let (ended, _) = ended.map_err(|error| {
        output.leave();
        error.in_directory(data_dir.as_deref(), cluster.disk_is_full())
    })?;
    lines::read_failed(&local, &placed, model).await;
    output.end(model, now, shown.as_deref());
    advice(model, &args.flags).iter().for_each(|advice| output.note(advice));
    if let Some(file) = &args.junit {
        junit::write(file, &local, &placed).await?;
    }
    if let Some(directory) = &data_dir {
        removed.iter().for_each(|removed| output.note(removed));
        if ended == End::Finished {
            let uids: Vec<&str> = placed.iter().map(|job| job.uid.as_str()).collect();
            let words = place::words(args.data_dir.as_deref(), None, None, None);
            let left = retry::left(&local.jobs("").await?, &uids, &words, args.again_in_part().is_some());
            left.iter().for_each(|left| output.note(left));
        }
        let goes_on = if ended == End::Interrupted { "; run the same command to resume" } else { "" };
        output.note(&format!("all state is kept in {}{goes_on}", quoted(directory)));
    }
    cluster.close();
    Ok(exit_code(model, &ended))
}

impl Args {
    /// The form of progress and results.
    fn form(&self) -> Form {
        if self.output == OutputForm::Json { Form::Json } else { Form::Text }
    }

    /// What of a finished Job is run again, and its name, which may be empty.
    fn again_in_part(&self) -> Option<(Selection, &str)> {
        let resumed = self.resume.as_deref().map(|name| (Selection::NotSucceeded, name));
        resumed.or_else(|| self.retry_failed.as_deref().map(|name| (Selection::Failed, name)))
    }

    /// Flags that have no effect.
    fn note_unused_flags(&self, documents: &[Document], output: &mut Output) {
        if self.each.is_given(&self.command) && !each::is_used(documents) {
            output.note("the command has no {}: its words are the same for every line, which is in $TALLY_LINE");
        }
        if let Some(flag) = self.flags.wait_without_retries() {
            output.note(&format!("warning: {flag} has no effect: nothing is retried without --retries N"));
        }
    }

    fn checked_display(&self) -> Result<DisplayFlags, RunError> {
        let display = self.display();
        display.check().map_err(RunError::Input)?;
        self.check_tui()?;
        Ok(display)
    }

    /// `--tui` is refused before anything is run where it cannot work.
    fn check_tui(&self) -> Result<(), RunError> {
        match (self.tui, self.output) {
            (false, _) => Ok(()),
            (true, OutputForm::Text) => tui::check(),
            (true, _) => Err(RunError::Input("--tui cannot be combined with --output: it shows no text".to_owned())),
        }
    }

    fn runs_on(&self) -> RunsOn {
        if self.hollow == 0 { RunsOn::ThisMachine } else { RunsOn::HollowNodes }
    }

    fn display(&self) -> DisplayFlags {
        // A view has the terminal: what tasks print is read in it.
        let display = DisplayFlags::new(&self.task_output, self.form(), self.hollow > 0);
        if self.tui { DisplayFlags { logs: Some(LogsFlag::None), ..display } } else { display }
    }

    /// What the node does with what tasks print.
    fn tasks(&self, style: LogStyle, several_jobs: bool) -> Result<TaskOptions, RunError> {
        let unusable = |error: std::io::Error| RunError::Environment(format!("cannot use --results: {error}"));
        let directory = self.results.as_ref().map(std::path::absolute).transpose().map_err(unusable)?;
        let results = directory.map(|directory| ResultsOptions { directory, by_job: several_jobs });
        let follow = style.is_shown().then(|| FollowOptions {
            // What waits for other tasks is kept on disk, whatever its size: no other task could go on otherwise.
            unread_files: (!self.display().order.waits()).then_some(MOST_UNREAD_FILES),
            partial_lines: style == LogStyle::PassThrough,
        });
        let unusable = |error: std::io::Error| RunError::Environment(format!("cannot use --joblog: {error}"));
        let job_log = self.job_log.as_ref().map(std::path::absolute).transpose().map_err(unusable)?;
        let tell_ends = self.form() == Form::Json;
        Ok(TaskOptions {
            follow,
            results,
            shares_env: true,
            tell_ends,
            job_log,
            records: self.junit.is_some() || self.tui,
            pods: 0,
        })
    }
}

/// Whether the run has one task: one Job to run with one completion and one container.
fn is_single(placed: &[SubmittedJob]) -> bool {
    matches!(placed, [job] if job.single)
}

/// The order of the indexes needs indexes.
fn has_an_order(checked: &Checked) -> Result<(), String> {
    let (document, spec) = (&checked.document, &checked.made["spec"]);
    if !document.is_job() || spec["completionMode"] == "Indexed" || spec["completions"] == 1 {
        return Ok(());
    }
    Err(match document.origin {
        Origin::Flags => "--keep-order is the order of the indexes: add --indexed".to_owned(),
        _ => format!(
            "{}{} has no indexes, which --keep-order needs: set spec.completionMode to Indexed",
            document.origin.whole(),
            document.title()
        ),
    })
}

async fn place(
    args: &Args,
    of_flags: bool,
    cluster: &Cluster,
    wanted: &CheckedObjects,
) -> Result<Vec<SubmittedJob>, RunError> {
    let named: Vec<&str> = args.flags.env.iter().map(|given| given.split('=').next().unwrap_or_default()).collect();
    let loose: Vec<&str> = flags::TAKEN_OVER.into_iter().filter(|name| of_flags && !named.contains(name)).collect();
    let place = cluster.directory.display().to_string();
    let manner = SubmitOptions { loose: &loose, again: args.again, place: &place };
    let placed = submit::submit(&cluster.registry, wanted, manner).await;
    let placed = placed.map_err(|error| error.in_directory(args.data_dir.as_deref(), cluster.disk_is_full()))?;
    if placed.iter().all(|job| job.how == Submission::ManagedElsewhere) {
        return Err(RunError::Input(format!(
            "no unfinished Job in {place} and no command; put a command after --, or specify a file with -f"
        )));
    }
    Ok(placed)
}

fn tell(
    output: &mut Output,
    model: &mut Model,
    job: &SubmittedJob,
    data_dir: Option<&Path>,
    succeeded_since: Option<&String>,
) {
    let Some(directory) = data_dir else { return };
    let directory = quoted(directory);
    let name = &job.name;
    match job.how {
        Submission::Created | Submission::ManagedElsewhere => {}
        Submission::Resumed => {
            output.note(&format!("Job {name:?} resumes from the state in {directory}"));
            if let Some(limits) = &job.keeps_retries {
                output.note(&format!("Job {name:?} keeps the retries that it was created with: {limits}"));
            }
        }
        Submission::ResumedToo => {
            output.note(&format!("Job {name:?} was left unfinished in {directory} and resumes, too"))
        }
        Submission::Finished => {
            model.was_finished(&job.uid, succeeded_since.cloned());
            output.note(&match succeeded_since {
                Some(_) => format!("Job {name:?} in {directory} is already finished; use --again to run it again"),
                None => format!(
                    "Job {name:?} in {directory} is already finished; use --again to run it again, --resume to run what \
                     has not succeeded"
                ),
            });
        }
    }
}
