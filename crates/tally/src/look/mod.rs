//! `tally ps`, `tally show`, `tally explain`, `tally logs` and `tally report`: what a data directory or a cluster has.
//!
//! Where the objects are read from is in `crate::place`; what is shown about Jobs and attempts in `jobs` and `attempts`, which are
//! pure; the logs in `logs`.

pub mod attempts;
pub mod explain;
mod failures;
pub mod jobs;
mod logs;
pub mod report;
mod table;
pub mod waiting;

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::{Value, json};
use tally_node::attempts::{DroppedRecords, JobRecords};
use tally_runtime::driver::wall_clock;

use attempts::AttemptRow;
use jobs::JobRow;
use table::Table;
use waiting::Waits;

use crate::place::{Place, PlaceError, PlaceFlags};
use crate::run::progress::view::PodText;
use crate::terminal;

/// Jobs that `tally ps` asks why they wait.
const MOST_EXPLAINED: usize = 100;

/// The value of `-o`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LookForm {
    #[default]
    Text,
    Json,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally ps --data-dir ./d                 the Jobs in a data directory, whether a tally uses it or not
  tally ps --data-dir ./d --all           also the Jobs that were deleted and have records
  tally ps --context test -A              the Jobs of a cluster, in all namespaces
  tally ps --data-dir ./d -o json | jq .  the same for programs

Waiting: something keeps the Job, and none of its Pods runs. WHY is the first sentence of tally explain.
tally run keeps nothing beyond the run unless it has --data-dir.

Exit code 0: the Jobs were printed; 2: bad usage; 3: the data directory or the cluster cannot be read.")]
pub struct PsArgs {
    #[command(flatten)]
    place: PlaceFlags,
    /// All namespaces; a data directory is always shown with all of them
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// Also Jobs that were deleted, as far as there are records of their attempts
    #[arg(long, short = 'a')]
    all: bool,
    /// Output format
    #[arg(long, short = 'o', value_name = "FORM", value_enum, default_value_t)]
    output: LookForm,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally show sum --data-dir ./d             the Job and all its attempts: exit codes, times, processor time, peak memory
  tally show sum --data-dir ./d --failed    the attempts that did not succeed
  tally show sum --data-dir ./d --index 7   the attempts of one index
  tally show job/sum --context test         a Job of a cluster; processor time and memory are not known there
  tally show sum --data-dir ./d -o json | jq '.attempts[] | select(.exitCode != 0)'

Exit code 0: the Job was printed; 1: there is no such Job; 2: bad usage; 3: the data directory or the cluster cannot be
read.")]
pub struct ShowArgs {
    /// The Job, as NAME or job/NAME
    name: String,
    #[command(flatten)]
    place: PlaceFlags,
    /// Only the attempts of this index
    #[arg(long, value_name = "N")]
    index: Option<u32>,
    /// Only the attempts that did not succeed
    #[arg(long)]
    failed: bool,
    /// Output format
    #[arg(long, short = 'o', value_name = "FORM", value_enum, default_value_t)]
    output: LookForm,
}

pub use explain::ExplainArgs;
pub use logs::LogsArgs;

/// Why nothing is shown.
#[derive(Debug)]
pub enum LookError {
    /// There is no such Job, Pod or attempt.
    Missing(String),
    Usage(String),
    /// The data directory or the cluster cannot be read.
    Unreadable(String),
}

impl From<PlaceError> for LookError {
    fn from(error: PlaceError) -> Self {
        match error {
            PlaceError::Usage(why) => Self::Usage(why),
            PlaceError::Unreadable(why) => Self::Unreadable(why),
        }
    }
}

pub fn finish(outcome: Result<(), LookError>) -> ExitCode {
    let (code, why) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(LookError::Missing(why)) => (1, why),
        Err(LookError::Usage(why)) => (2, why),
        Err(LookError::Unreadable(why)) => (3, why),
    };
    terminal::tell(why);
    ExitCode::from(code)
}

fn block_on(work: impl Future<Output = Result<(), LookError>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    finish(match runtime {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => Err(LookError::Unreadable(format!("cannot start: {error}"))),
    })
}

pub fn ps(args: &PsArgs) -> ExitCode {
    block_on(async {
        let place = Place::open(&args.place).await?;
        let namespace = if args.all_namespaces { "" } else { place.namespace() };
        let found = place.jobs(namespace).await?;
        let open: Vec<&Value> = found.iter().filter(|job| waiting::may_wait(job) && !place.is_idle()).collect();
        let waits = waiting::waits(&place, &open[..open.len().min(MOST_EXPLAINED)]).await;
        if open.len() > MOST_EXPLAINED {
            let rest = open.len() - MOST_EXPLAINED;
            terminal::tell(format_args!(
                "of {rest} Jobs without a ready Pod it was not asked whether they wait; tally explain says it"
            ));
        }
        let mut rows = jobs::rows(&found, place.is_idle(), &waits);
        let dropped = place.dropped();
        if args.all {
            let known: BTreeSet<&str> = found.iter().filter_map(|job| job["metadata"]["uid"].as_str()).collect();
            let mut deleted = Vec::new();
            for records in place.all_records()? {
                if !known.contains(records.job.uid.as_str())
                    && (namespace.is_empty() || records.job.namespace == namespace)
                {
                    deleted.push(JobRow::of_records(&records));
                }
            }
            rows.splice(0..0, deleted);
        }
        match args.output {
            LookForm::Json => print_json(&json!({
                "jobs": rows.iter().map(JobRow::json).collect::<Vec<_>>(), "dropped": dropped_json(dropped),
            })),
            LookForm::Text => print_jobs(&rows, dropped, &place),
        }
        Ok(())
    })
}

fn print_jobs(rows: &[JobRow], dropped: DroppedRecords, place: &Place) {
    let now = wall_clock().millis();
    if rows.is_empty() {
        terminal::tell(format_args!("there are no Jobs in {}", place.title()));
    } else {
        let several = rows.iter().any(|row| row.namespace != rows[0].namespace);
        let mut header = vec!["NAME", "STATE", "SUCCEEDED", "FAILED", "ACTIVE", "TOTAL", "AGE", "DURATION"];
        let waits = rows.iter().any(|row| !row.why().is_empty());
        header.extend(waits.then_some("WHY"));
        let mut table = Table::new(&header);
        for row in rows {
            let mut cells = row.cells(now);
            if several {
                cells[0] = format!("{}/{}", row.namespace, row.name);
            }
            cells.extend(waits.then(|| row.why()));
            table.row(cells);
        }
        match table::columns_of_terminal().filter(|_| waits) {
            Some(columns) => terminal::print(&table.wrapped(columns)),
            None => table.print(),
        }
    }
    tell_dropped(dropped);
}

fn tell_dropped(dropped: DroppedRecords) {
    if dropped.jobs > 0 {
        let DroppedRecords { jobs, attempts } = dropped;
        terminal::tell(format_args!(
            "records are kept up to a limit: those of {jobs} older Jobs ({attempts} attempts) were removed"
        ));
    }
}

fn dropped_json(dropped: DroppedRecords) -> Value {
    json!({"jobs": dropped.jobs, "attempts": dropped.attempts})
}

pub fn show(args: &ShowArgs) -> ExitCode {
    block_on(async {
        let place = Place::open(&args.place).await?;
        let name = job_name(&args.name)?;
        let JobParts { row, attempts: mut rows, dropped, .. } = JobParts::find_explained(&place, name).await?;
        rows.retain(|it| {
            args.index.is_none_or(|index| it.index == Some(index)) && !(args.failed && it.exit_code == Some(0))
        });
        match args.output {
            LookForm::Json => print_json(&json!({
                "job": row.json(), "attempts": rows.iter().map(AttemptRow::json).collect::<Vec<_>>(),
                "droppedAttempts": dropped,
            })),
            LookForm::Text => print_job(&row, &rows, dropped, &place),
        }
        Ok(())
    })
}

fn print_job(job: &JobRow, rows: &[AttemptRow], dropped: u64, place: &Place) {
    let now = wall_clock().millis();
    let mut text = job.lines(now).join("\n");
    text.push('\n');
    terminal::print(&text);
    if rows.is_empty() {
        terminal::tell("no attempts to show");
    } else {
        let mut table = Table::new(&attempts::COLUMNS);
        rows.iter().for_each(|row| table.row(row.cells(now)));
        terminal::print("\n");
        table.without_empty_columns().print();
    }
    if dropped > 0 {
        terminal::tell(format_args!(
            "records are kept up to a limit: the oldest {dropped} attempts of this Job were removed"
        ));
    }
    if place.is_cluster() {
        terminal::tell("processor time and memory are known only where tally runs the Pods");
    }
}

/// `sum` or `job/sum`.
pub fn job_name(text: &str) -> Result<&str, LookError> {
    match text.split_once('/') {
        None => Ok(text),
        Some(("job" | "jobs" | "job.batch" | "jobs.batch", name)) => Ok(name),
        Some(_) => Err(LookError::Usage(format!("{text:?} is not a Job: write NAME or job/NAME"))),
    }
}

/// A Job and its attempts; or all Jobs of a list that is divided, as one.
struct JobParts {
    row: JobRow,
    attempts: Vec<AttemptRow>,
    pods: Vec<PodText>,
    dropped: u64,
}

impl JobParts {
    async fn find(place: &Place, name: &str) -> Result<Self, LookError> {
        Self::find_with(place, name, false).await
    }

    /// The same, and whether it waits.
    async fn find_explained(place: &Place, name: &str) -> Result<Self, LookError> {
        Self::find_with(place, name, true).await
    }

    async fn find_with(place: &Place, name: &str, explained: bool) -> Result<Self, LookError> {
        let namespace = place.namespace();
        let all = place.jobs(namespace).await?;
        let found: Vec<&Value> = all.iter().filter(|job| jobs::is_named(job, name)).collect();
        let Some(first) = found.first() else { return Self::of_records(place, name, &all) };
        if let Some(other) = found.iter().find(|job| job["metadata"]["namespace"] != first["metadata"]["namespace"]) {
            let [one, other] = [first, other].map(|job| job["metadata"]["namespace"].as_str().unwrap_or_default());
            return Err(LookError::Usage(format!(
                "Job {name:?} is in the namespaces {one} and {other}: choose with -n"
            )));
        }
        let (mut pods, mut records) = (Vec::new(), Vec::new());
        for job in &found {
            let metadata = &job["metadata"];
            let uid = metadata["uid"].as_str().unwrap_or_default();
            pods.extend(place.pods(metadata["namespace"].as_str().unwrap_or_default(), uid).await?);
            records.extend(place.records(uid)?);
        }
        let waits = match explained {
            true => waiting::waits(place, &found[..found.len().min(MOST_EXPLAINED)]).await,
            false => Waits::new(),
        };
        let found: Vec<Value> = found.into_iter().cloned().collect();
        let rows = jobs::rows(&found, place.is_idle(), &waits);
        let Some(row) = rows.into_iter().next() else {
            return Err(LookError::Missing(format!("there is no Job {name:?}")));
        };
        let dropped = records.iter().map(|records: &JobRecords| records.job.dropped).sum();
        let attempts = attempts::rows(&records, &pods, place.is_idle());
        Ok(Self { row, attempts, pods, dropped })
    }

    /// A Job that was deleted, by its records.
    fn of_records(place: &Place, name: &str, others: &[Value]) -> Result<Self, LookError> {
        let all = place.all_records()?;
        let Some(records) = all.into_iter().rev().find(|records| records.job.name == name || records.job.uid == name)
        else {
            let mut names: Vec<String> =
                jobs::rows(others, false, &Waits::new()).into_iter().map(|row| row.name).collect();
            names.truncate(10);
            let there =
                if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
            return Err(LookError::Missing(format!("there is no Job {name:?} in {}; {there}", place.title())));
        };
        let row = JobRow::of_records(&records);
        let dropped = records.job.dropped;
        let attempts = attempts::rows(&[records], &[], true);
        Ok(Self { row, attempts, pods: Vec::new(), dropped })
    }
}

fn print_json(value: &Value) {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    terminal::print(&text);
}

pub fn explain(args: &ExplainArgs) -> ExitCode {
    block_on(explain::run(args))
}

pub fn logs(args: &LogsArgs) -> ExitCode {
    block_on(logs::run(args))
}
