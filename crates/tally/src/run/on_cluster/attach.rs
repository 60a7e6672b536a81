//! `tally attach`: follows a Job that exists, in a data directory that is in use or on a cluster.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tally_core::time::Timestamp;
use tally_runtime::driver::wall_clock;
use tokio::sync::watch::Receiver;

use super::flags::OnInterrupt;
use super::{Follower, text};
use crate::look::{self, LookError, LookForm, jobs};
use crate::place::{Place, PlaceFlags};
use crate::run::follow;
use crate::run::follow::display::{DisplayFlags, TaskOutputFlags};
use crate::run::outcome::{RunError, exit_code};
use crate::run::progress::view::JobText;
use crate::run::submit::resume::is_finished;
use crate::run::submit::{Submission, SubmittedJob};
use crate::run::{Form, View, until_killed};
use crate::signals::Stop;
use crate::terminal;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally attach job/sum --context test      follow a Job of a cluster: progress, what its tasks print, the result
  tally attach sum --data-dir ./d          a Job that a tally run or tally up with this data directory runs
  tally attach sum --context test -o json  the same for programs

What tasks have printed that have ended is not repeated: see tally logs. Ctrl-C detaches and leaves the Job running. A Job that
has finished is summed up at once.

Exit code 0: the Job is Complete; 1: it has Failed; 2: bad usage, or there is no such Job; 3: the data directory or the
cluster cannot be read; 130: detached.")]
pub struct AttachArgs {
    /// The Job, as NAME or job/NAME
    name: String,
    #[command(flatten)]
    place: PlaceFlags,
    #[command(flatten)]
    task_output: TaskOutputFlags,
    /// Output format: human-readable text, or one JSON object per line
    #[arg(long, short = 'o', value_name = "FORM", value_enum, default_value_t)]
    output: LookForm,
    /// Print no progress and no results: only the exit code reports the result
    #[arg(long, short = 'q')]
    quiet: bool,
}

impl AttachArgs {
    fn form(&self) -> Form {
        if self.output == LookForm::Json { Form::Json } else { Form::Text }
    }
}

pub fn attach(args: &AttachArgs) -> ExitCode {
    let work = async |stop: Receiver<Stop>, view: &mut View| to_the_end(args, stop, view).await;
    let ended = super::block_on(until_killed(args.form(), args.quiet, super::killed, work));
    ExitCode::from(ended.unwrap_or_else(|error| {
        terminal::tell(&error);
        error.exit_code()
    }))
}

async fn to_the_end(args: &AttachArgs, stop: Receiver<Stop>, view: &mut View) -> Result<u8, RunError> {
    let display = DisplayFlags::new(&args.task_output, args.form(), false);
    display.check().map_err(RunError::Input)?;
    let look = async {
        let place = Arc::new(Place::open(&args.place).await?);
        let found = find(&place, &args.name).await?;
        Ok((place, found))
    };
    let (place, found) = super::unless_stopped(&stop, super::NOTHING, look).await?;
    if args.task_output.keep_order && found.iter().any(|job| job["spec"]["completionMode"] != "Indexed") {
        return Err(RunError::Input("the Job has no indexes, which --keep-order needs".to_owned()));
    }
    let submitted: Vec<SubmittedJob> = found.iter().map(|job| SubmittedJob::of(job, Submission::Resumed)).collect();
    if found.iter().all(is_finished) {
        let took = take_in(&found, &submitted, view);
        let ended = super::read_failed(&stop, &place, &submitted, &mut view.model).await;
        view.output.end(&view.model, took, None);
        return Ok(exit_code(&view.model, &ended));
    }
    let (Some(remote), title) = (place.remote(), place.title()) else {
        return Err(RunError::Environment(format!(
            "the Job is unfinished, and no tally uses {}: `tally run --data-dir` resumes it",
            place.title()
        )));
    };
    view.output.note(&format!("following Job {:?} in {title}; Ctrl-C leaves it running", shown_name(&submitted)));
    view.began = began(&found);
    view.model.knows_of(&super::unless_stopped(&stop, super::NOTHING, over(&place, &submitted)).await?);
    let follower = Follower {
        place: place.clone(),
        run_view: None,
        jobs: submitted,
        seen: found.into_iter().filter_map(|job| serde_json::from_value(job).ok()).collect(),
        display,
        runs_parts: place.is_cluster(),
        attach: args.place.words(),
        on_interrupt: OnInterrupt::Detach,
    };
    let (ended, _) = follower.run(&remote, stop, view).await?;
    Ok(exit_code(&view.model, &ended))
}

/// The Job of this name, or the parts of the list of this name.
async fn find(place: &Place, name: &str) -> Result<Vec<Value>, RunError> {
    let name = look::job_name(name).map_err(|error| match error {
        LookError::Missing(why) | LookError::Usage(why) | LookError::Unreadable(why) => RunError::Input(why),
    })?;
    let all = place.jobs(place.namespace()).await?;
    let found: Vec<Value> = all.into_iter().filter(|job| jobs::is_named(job, name)).collect();
    let Some(first) = found.first() else {
        let title = place.title();
        return Err(RunError::Input(format!("there is no Job {name:?} in {title}; `tally ps` lists those there are")));
    };
    let namespace = text(first, "/metadata/namespace");
    match found.iter().map(|job| text(job, "/metadata/namespace")).find(|other| *other != namespace) {
        Some(other) => {
            Err(RunError::Input(format!("Job {name:?} is in the namespaces {namespace} and {other}: choose with -n")))
        }
        None => Ok(found),
    }
}

fn shown_name(jobs: &[SubmittedJob]) -> String {
    let shown = crate::run::submit::as_shown(jobs);
    shown.into_iter().next().map(|job| job.name).unwrap_or_default()
}

fn time(job: &Value, pointer: &str) -> Option<Timestamp> {
    Timestamp::parse(job.pointer(pointer)?.as_str()?).ok()
}

fn started_at(jobs: &[Value]) -> Option<Timestamp> {
    let started = |job: &Value| time(job, "/status/startTime").or_else(|| time(job, "/metadata/creationTimestamp"));
    jobs.iter().filter_map(started).min()
}

fn between(start: Option<Timestamp>, end: Option<Timestamp>) -> Duration {
    let millis = start.zip(end).map_or(0, |(start, end)| (end - start).millis());
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// Times are shown since the start of the Job.
fn began(jobs: &[Value]) -> Instant {
    let now = Instant::now();
    now.checked_sub(between(started_at(jobs), Some(wall_clock()))).unwrap_or(now)
}

fn finished_at(job: &Value) -> Option<Timestamp> {
    let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
    let mut ended = conditions.into_iter().filter(|condition| {
        condition["status"] == "True" && (condition["type"] == "Complete" || condition["type"] == "Failed")
    });
    ended.find_map(|condition| time(condition, "/lastTransitionTime"))
}

/// Jobs that have finished: the result goes into the model. Returns how long they took.
fn take_in(jobs: &[Value], submitted: &[SubmittedJob], view: &mut View) -> Duration {
    let model = &mut view.model;
    submitted.iter().for_each(|job| model.follow_submitted(job));
    let took = between(started_at(jobs), jobs.iter().filter_map(finished_at).max());
    for job in jobs.iter().filter_map(|job| serde_json::from_value::<JobText>(job.clone()).ok()) {
        model.saw_job(&job, took);
    }
    took
}

/// The UIDs of Pods that have ended: what they printed and how they failed was reported before, or elsewhere.
async fn over(place: &Place, jobs: &[SubmittedJob]) -> Result<Vec<String>, RunError> {
    let mut over = Vec::new();
    for job in jobs {
        let pods = place.pods(&job.namespace, &job.uid).await?;
        over.extend(follow::over(pods));
    }
    Ok(over)
}
