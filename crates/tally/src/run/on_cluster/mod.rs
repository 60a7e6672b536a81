//! `tally run --context` and `tally attach`: Jobs that run elsewhere, shown as if they ran here.
//!
//! `flags` chooses the cluster, `submit` creates the objects, `logs` reads what tasks print, `served` follows the Jobs, `retry` makes the Job that runs failed indexes again. The model, its display,
//! the checks of the input and the exit codes are those of a run on this machine.

mod attach;
pub mod flags;
mod logs;
mod retry;
mod served;
mod submit;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tally_remote::Remote;
use tally_runtime::controller::Kind;
use tokio::sync::watch::Receiver;

use super::explaining::Explaining;
use super::follow::display::DisplayFlags;
use super::follow::turns::JobOrder;
use super::follow::{self, End, Reporter};
use super::input::check::RunsOn;
use super::input::documents::{Document, Origin};
use super::outcome::{RunError, advice, exit_code};
use super::progress::model::Model;
use super::progress::output::Output;
use super::progress::view::JobText;
use super::submit::SubmittedJob;
use super::tui::RunView;
use super::{Args, View, checked, is_single, lines, until_killed};
use crate::place::Place;
use crate::signals::{self, Stop};
use crate::watch::FollowedJob;
pub use attach::{AttachArgs, attach};
use flags::OnInterrupt;
use logs::{LogPlace, TaskLogs};
use served::ServedJobs;
use submit::delete;

/// How long a server that cannot be reached is tried again.
const LOST_FOR: Duration = Duration::from_secs(600);

/// Runs Jobs on a cluster to their end. The result is the exit code.
pub fn start(args: &Args, documents: Vec<Document>) -> Result<u8, RunError> {
    block_on(until_killed(args.form(), args.quiet, killed, async |stop, view| {
        to_the_end(args, documents, stop, view).await
    }))
}

/// What is left behind by requests that only read.
const NOTHING: &str = "nothing was changed";

fn block_on(work: impl Future<Output = Result<u8, RunError>>) -> Result<u8, RunError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| RunError::Environment(format!("cannot start threads: {error}")))?;
    let ended = runtime.block_on(work);
    runtime.shutdown_background();
    ended
}

/// What this process has created stays.
fn killed(view: &mut View) {
    view.output.leave();
    view.output.note("ended at once; the Job may still be there: see `tally ps` and `tally attach`");
}

/// The first signal ends what is waited for before there is a Job to follow, and after it has finished. `left`: what may have been done.
async fn unless_stopped<T>(
    stop: &Receiver<Stop>,
    left: &'static str,
    work: impl Future<Output = Result<T, RunError>>,
) -> Result<T, RunError> {
    let mut stop = stop.clone();
    tokio::select! {
        biased;
        () = signals::asked(&mut stop) => Err(RunError::Interrupted(left)),
        done = work => done,
    }
}

async fn to_the_end(
    args: &Args,
    documents: Vec<Document>,
    stop: Receiver<Stop>,
    view: &mut View,
) -> Result<u8, RunError> {
    let display = args.checked_display()?;
    let place = Arc::new(args.cluster.open()?);
    let Some(remote) = place.remote() else { return Err(RunError::Environment("there is no cluster".to_owned())) };
    args.note_unused_flags(&documents, &mut view.output);
    let documents = match args.again_in_part() {
        Some(asked) => {
            let (documents, told) =
                unless_stopped(&stop, NOTHING, retry::documents(&place, &remote, asked, &args.cluster)).await?;
            view.output.note(&told);
            if documents.is_empty() {
                return Ok(0);
            }
            documents
        }
        None => documents,
    };
    let documents = prepared(args, documents, &place)?;
    let Some(wanted) = checked(args, documents, RunsOn::Cluster, &mut view.output).await? else { return Ok(0) };
    let words = args.cluster.words(place.namespace());
    let left = "the Job may have been created: `tally ps` lists those there are";
    let submitted = unless_stopped(&stop, left, submit::submit(&place, &wanted, &words)).await?;
    // A list may be long.
    drop(wanted);
    submitted.notes.iter().for_each(|note| view.output.note(note));
    tell_created(&submitted.jobs, &place, &mut view.output);
    let run_view = match args.tui {
        true => Some(RunView::open(args.cluster.open()?, None, &submitted.jobs, &mut view.output).await?),
        false => None,
    };
    let follower = Follower {
        place: place.clone(),
        run_view,
        jobs: submitted.jobs,
        seen: Vec::new(),
        display,
        runs_parts: true,
        attach: args.cluster.words(place.namespace()),
        on_interrupt: args.cluster.on_interrupt.unwrap_or_default(),
    };
    let (ended, jobs) = follower.run(&remote, stop.clone(), view).await?;
    advice(&view.model, &args.flags).iter().for_each(|advice| view.output.note(advice));
    if args.again_in_part().is_some() && ended == End::Finished {
        let uids: Vec<&str> = jobs.iter().map(|job| job.uid.as_str()).collect();
        let unsaid = "the Jobs have finished; `tally ps` shows whether others are left";
        let all = async { Ok(place.jobs(place.namespace()).await?) };
        let all = unless_stopped(&stop, unsaid, all).await?;
        let left = super::submit::retry::left(&all, &uids, &args.cluster.words(place.namespace()), true);
        left.iter().for_each(|left| view.output.note(left));
    }
    match ended {
        End::Finished if args.cluster.rm => {
            let delete = async {
                for job in &jobs {
                    let deleted = delete(&place, Kind::JOB, &job.namespace, &job.name, &job.uid).await;
                    deleted.unwrap_or_else(|error| view.output.note(&error.to_string()));
                }
                Ok(())
            };
            unless_stopped(&stop, "the Job has finished, and may not have been deleted", delete).await?;
        }
        End::Interrupted if args.cluster.rm && view.model.is_finished() => view.output.note("the Job was not deleted"),
        _ => {}
    }
    Ok(exit_code(&view.model, &ended))
}

/// The objects as they are to be created: in their namespaces, with the controller that was asked for.
fn prepared(args: &Args, mut documents: Vec<Document>, place: &Place) -> Result<Vec<Document>, RunError> {
    for document in documents.iter_mut().filter(|document| document.resource.namespaced) {
        let given = document.object["metadata"]["namespace"].as_str().unwrap_or_default();
        match (&args.cluster.namespace, given) {
            (_, "") => document.object["metadata"]["namespace"] = place.namespace().into(),
            (Some(namespace), given) if namespace != given && matches!(document.origin, Origin::File { .. }) => {
                return Err(RunError::Input(format!(
                    "{}{} is in namespace {given:?}, and --namespace is {namespace:?}; remove one of them",
                    document.origin.at("metadata.namespace"),
                    document.title()
                )));
            }
            _ => {}
        }
    }
    if let Some(manager) = &args.cluster.set_managed_by {
        let jobs = documents.iter_mut().filter(|document| document.is_job());
        jobs.for_each(|document| document.object["spec"]["managedBy"] = manager.as_str().into());
    }
    Ok(documents)
}

fn tell_created(jobs: &[SubmittedJob], place: &Place, output: &mut Output) {
    let title = place.title();
    match super::submit::as_shown(jobs).as_slice() {
        [] => {}
        [job] => {
            output.note(&format!("Job {:?} was created in namespace {} of {title}", job.name, job.namespace));
        }
        several => output.note(&format!("{} Jobs were created in {title}", several.len())),
    }
}

/// Follows Jobs that are there to their end.
struct Follower {
    place: Arc<Place>,
    /// `--tui`.
    run_view: Option<RunView>,
    jobs: Vec<SubmittedJob>,
    /// What is known of them.
    seen: Vec<JobText>,
    display: DisplayFlags,
    /// The parts of a list begin and stop as this process says.
    runs_parts: bool,
    /// The flags of `tally attach` for the same place.
    attach: String,
    on_interrupt: OnInterrupt,
}

impl Follower {
    async fn run(
        self,
        remote: &Remote,
        stop: Receiver<Stop>,
        view: &mut View,
    ) -> Result<(End, Vec<SubmittedJob>), RunError> {
        let View { began, output, model } = view;
        self.jobs.iter().for_each(|job| model.follow_submitted(job));
        for job in &self.seen {
            model.saw_job(job, began.elapsed());
        }
        model.elsewhere = self.place.is_cluster();
        let style = self.display.style(is_single(&self.jobs));
        // What a server sends is not what a process of this machine has printed.
        output.show_tasks(style, self.display.passes_sequences(style, false));
        let log_place = match self.place.node() {
            Some(root) => LogPlace::Files(root),
            None => LogPlace::Server(remote.clone()),
        };
        let order = JobOrder::new(model.followed());
        let logs = style.is_shown().then(|| TaskLogs::new(log_place.clone(), style, self.display.order, order));
        let followed = |job: &SubmittedJob| FollowedJob {
            namespace: job.namespace.clone(),
            name: job.name.clone(),
            uid: job.uid.clone(),
        };
        let again = again(&self.jobs, &self.attach);
        let tails = self.display.shows_tails(style).then_some(log_place);
        let jobs = self.jobs.iter().map(followed).collect();
        let mut source = ServedJobs::new(&self.place, remote, jobs, logs, tails, again.clone());
        let mut reporter = Reporter {
            place: self.place.clone(),
            model: &mut *model,
            output: &mut *output,
            began: *began,
            runs_parts: self.runs_parts,
            explaining: Explaining::new(self.place.clone()),
            view: self.run_view,
        };
        // Not in the loop of `follow`: it may block on a reader that does not read its output, and then nothing would be
        // deleted.
        let ending =
            tokio::spawn(interrupt(stop.clone(), self.place.clone(), self.jobs.clone(), self.on_interrupt, again));
        let ended = follow::follow(&mut source, &mut reporter, &stop, ending).await;
        match ended {
            Ok((mut ended, notes)) => {
                model.detached = ended == End::Interrupted && self.on_interrupt == OnInterrupt::Detach;
                if ended == End::Finished {
                    ended = read_failed(&stop, &self.place, &self.jobs, model).await;
                }
                output.end(model, began.elapsed(), None);
                notes.iter().for_each(|note| output.note(note));
                Ok((ended, self.jobs))
            }
            Err(error) => {
                output.leave();
                Err(error)
            }
        }
    }
}

/// Reads the lines of lists that have failed, for the summary. Whether a signal has ended that.
async fn read_failed(stop: &Receiver<Stop>, place: &Place, jobs: &[SubmittedJob], model: &mut Model) -> End {
    let mut stop = stop.clone();
    tokio::select! {
        biased;
        () = lines::read_failed(place, jobs, model) => End::Finished,
        () = signals::asked(&mut stop) => End::Interrupted,
    }
}

/// The command that follows these Jobs again.
fn again(jobs: &[SubmittedJob], attach: &str) -> String {
    let shown = super::submit::as_shown(jobs);
    let name = shown.first().map_or("NAME", |job| job.name.as_str());
    format!("tally attach job/{name}{attach}")
}

/// What Ctrl-C does to the Jobs. Returns what to print about it.
async fn interrupt(
    mut stop: Receiver<Stop>,
    place: Arc<Place>,
    jobs: Vec<SubmittedJob>,
    how: OnInterrupt,
    again: String,
) -> Result<Vec<String>, RunError> {
    if stop.wait_for(|stop| *stop != Stop::No).await.is_err() {
        // The sender is gone: no stop can be requested any more.
        return std::future::pending().await;
    }
    if how == OnInterrupt::Detach {
        let several = jobs.iter().any(|job| job.part.is_some());
        let parts = if several { ", which also lets the parts begin that wait" } else { "" };
        return Ok(vec![format!("the Job goes on; follow it again with `{again}`{parts}")]);
    }
    let mut notes = Vec::new();
    for job in &jobs {
        notes.push(match delete(&place, Kind::JOB, &job.namespace, &job.name, &job.uid).await {
            Ok(()) => format!("Job {:?} was deleted, and its Pods are being deleted", job.name),
            Err(error) => format!("{error}; delete it with `kubectl delete job {}`", job.name),
        });
    }
    Ok(notes)
}

/// A field of an object as text, or nothing.
fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
