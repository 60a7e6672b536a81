//! How a run ended, and its exit code.

use std::fmt;
use std::path::Path;

use super::follow::End;
use super::input::flags::Flags;
use super::progress::model::{Job, Model, State};
use crate::place::PlaceError;

const FAILED: u8 = 1;
const BAD_INPUT: u8 = 2;
const ENVIRONMENT: u8 = 3;
pub const INTERRUPTED: u8 = 130;

/// Why a run was refused or aborted.
#[derive(Debug)]
pub enum RunError {
    /// The input is invalid.
    Input(String),
    /// Environment error: the data directory cannot be used or the disk is full, for example.
    Environment(String),
    /// A signal came before there was a Job to follow, or after it had finished.
    Interrupted(&'static str),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(why) | Self::Environment(why) => f.write_str(why),
            Self::Interrupted(what) => write!(f, "interrupted before the API server answered; {what}"),
        }
    }
}

impl From<PlaceError> for RunError {
    fn from(error: PlaceError) -> Self {
        match error {
            PlaceError::Usage(reason) => Self::Input(reason),
            PlaceError::Unreadable(reason) => Self::Environment(reason),
        }
    }
}

impl RunError {
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Input(_) => BAD_INPUT,
            Self::Environment(_) => ENVIRONMENT,
            Self::Interrupted(_) => INTERRUPTED,
        }
    }

    /// Adds the data directory to an environment error, and what to do if the disk is full.
    pub fn in_directory(self, data_dir: Option<&Path>, disk_full: bool) -> Self {
        let (Self::Environment(why), Some(directory)) = (&self, data_dir) else { return self };
        let directory = directory.display();
        Self::Environment(match disk_full {
            true => format!(
                "{why} (data directory {directory}). Nothing on disk is lost: free some space, then run the same \
                 command to resume"
            ),
            false => format!("{why} (data directory {directory})"),
        })
    }
}

pub fn exit_code(model: &Model, ended: &End) -> u8 {
    let is_complete = |job: &Job| matches!(job.state, State::Complete { .. }) || job.succeeded_since.is_some();
    let complete = model.jobs().iter().all(is_complete);
    match (ended, complete) {
        (End::Interrupted, _) => INTERRUPTED,
        (End::Finished, true) => 0,
        (End::Finished, false) => FAILED,
    }
}

/// What to say about a command that was to succeed several times and has failed: the API has no retries of single runs
/// without indexes.
pub fn advice(model: &Model, flags: &Flags) -> Option<&'static str> {
    let is_spent = |job: &Job| matches!(&job.state, State::Failed { reason, .. } if reason == "BackoffLimitExceeded");
    let several = !flags.indexed && flags.completions.is_some_and(|completions| completions > 1);
    (several && model.jobs().iter().any(is_spent)).then_some(
        "one failure more than --retries allows ends all runs of a Job without indexes; with --indexed the others go on",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_wanted_only_of_a_full_disk() {
        for full in [true, false] {
            let error = RunError::Environment("cannot write".to_owned()).in_directory(Some(Path::new("/d")), full);
            let said = error.to_string();
            assert!(said.starts_with("cannot write (data directory /d)"), "{said}");
            assert_eq!(said.contains("free some space"), full, "{said}");
        }
    }
}
