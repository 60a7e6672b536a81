//! `tally report`: a Job and its attempts in one file, for people (`html`) and for CI systems (`junit`). Both are pure.

mod html;
pub mod junit;
mod pictures;

use std::process::ExitCode;

use clap::ValueEnum;
use tally_runtime::driver::wall_clock;

use super::attempts::{AttemptRow, AttemptState};
use super::jobs::JobRow;
use super::{JobParts, block_on, job_name};
use crate::place::{Place, PlaceFlags};
use crate::terminal;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ReportForm {
    #[default]
    Html,
    Junit,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally report sum --data-dir ./d > report.html           one file with pictures, to attach to a CI run or a mail
  tally report job/sum --context test > report.html       the same for a Job of a cluster
  tally report sum --data-dir ./d -o junit > report.xml   as CI systems read test results; tally run --junit FILE writes
                                                          the same at the end of a run

The file needs nothing else: no scripts, and nothing is loaded. Of a Job on a cluster, attempts are known as long as their
Pods exist.

Exit code 0: the report was printed; 1: there is no such Job; 2: bad usage; 3: the data directory or the cluster cannot be
read.")]
pub struct ReportArgs {
    /// The Job, as NAME or job/NAME
    name: String,
    #[command(flatten)]
    place: PlaceFlags,
    /// Output format
    #[arg(long, short = 'o', value_name = "FORM", value_enum, default_value_t)]
    output: ReportForm,
}

/// What a report is about.
pub struct ReportedJob {
    pub job: JobRow,
    /// In the order of the indexes, the attempts of each as they started.
    pub attempts: Vec<AttemptRow>,
    /// Attempts whose records were removed.
    pub dropped: u64,
}

pub fn report(args: &ReportArgs) -> ExitCode {
    block_on(async {
        let place = Place::open(&args.place).await?;
        let JobParts { row, attempts, dropped, .. } = JobParts::find_explained(&place, job_name(&args.name)?).await?;
        let reported = ReportedJob { job: row, attempts, dropped };
        let text = match args.output {
            ReportForm::Html => html::document(&reported, wall_clock().millis()),
            ReportForm::Junit => junit::document(std::slice::from_ref(&reported)),
        };
        terminal::print(&text);
        Ok(())
    })
}

/// Text for XML and HTML. Characters that XML cannot contain are shown as such.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(character),
            control if control.is_control() || matches!(control, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

pub use pictures::task_states;

/// How a task is, by its last attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskState {
    Waiting,
    Running,
    Succeeded,
    /// It has succeeded after attempts that have not.
    Retried,
    Failed,
}

impl TaskState {
    const ALL: [Self; 5] = [Self::Waiting, Self::Running, Self::Succeeded, Self::Retried, Self::Failed];

    fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Retried => "retried",
            Self::Failed => "failed",
        }
    }
}

impl AttemptRow {
    fn has_succeeded(&self) -> bool {
        self.state == AttemptState::Ended && self.exit_code == Some(0)
    }

    /// It has ended, and not in success.
    fn has_failed(&self) -> bool {
        matches!(self.state, AttemptState::Ended | AttemptState::Lost) && !self.has_succeeded()
    }

    fn took_millis(&self) -> Option<u64> {
        self.started_at.zip(self.finished_at).map(|(start, end)| u64::try_from(end - start).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_never_becomes_markup() {
        assert_eq!(
            escape("<img src=x onerror='a&b'> \"q\"\u{1b}[31m\n"),
            "&lt;img src=x onerror='a&amp;b'&gt; &quot;q&quot;\u{fffd}[31m\n"
        );
    }
}
