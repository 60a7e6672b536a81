//! Conditions of a Job, and how they are set.

use compact_str::CompactString;

use crate::job::{Condition, JobStatus, condition};
use crate::time::Timestamp;

/// A decision that ends a Job. It is stored as an interim condition first; only then does it take effect (FIN-6), unless
/// the gates of interim conditions are off (GATE-11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub success: bool,
    pub reason: CompactString,
    pub message: String,
    /// It has taken effect: it is in the stored status, or needs no interim condition.
    pub stored: bool,
}

impl Decision {
    pub fn failure(reason: &str, message: &str) -> Self {
        Self { success: false, reason: reason.into(), message: message.to_owned(), stored: false }
    }

    pub fn success(reason: &str, message: &str) -> Self {
        Self { success: true, reason: reason.into(), message: message.to_owned(), stored: false }
    }

    pub fn interim(&self) -> &'static str {
        if self.success { condition::SUCCESS_CRITERIA_MET } else { condition::FAILURE_TARGET }
    }
}

pub(crate) fn new(kind: &str, status: &str, reason: &str, message: &str, at: Timestamp) -> Condition {
    Condition {
        kind: kind.into(),
        status: status.into(),
        last_probe_time: Some(at),
        last_transition_time: Some(at),
        reason: reason.into(),
        message: message.to_owned(),
    }
}

/// Sets a condition in place, or appends it. An unchanged condition keeps its times; a False condition is never
/// appended (FIN-8). Returns whether anything changed.
pub(crate) fn set(status: &mut JobStatus, fresh: Condition) -> bool {
    match status.conditions.iter_mut().find(|known| known.kind == fresh.kind) {
        Some(known) => {
            if known.status == fresh.status && known.reason == fresh.reason && known.message == fresh.message {
                return false;
            }
            *known = fresh;
            true
        }
        None if fresh.is_true() => {
            status.conditions.push(fresh);
            true
        }
        None => false,
    }
}
