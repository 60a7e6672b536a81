//! What a leader may know beyond the objects: failures whose Pods are gone (BACKOFF-2). For those who explain what it waits
//! for; nothing is planned by it.

use super::Ledger;
use super::entry::Entry;
use super::plan::len;
use crate::backoff::BackoffNotice;
use crate::time::{Span, Timestamp};

/// A back-off to which failures may belong whose Pods are gone: a leader that saw these Pods still counts them, and
/// another one does not know them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RememberedBackoff {
    /// Failures that the Job counts, and whose Pods are gone.
    pub gone: u32,
    /// The longest delay after the last failure.
    pub longest_for: Span,
    /// The back-off of a leader that has this delay.
    pub notice: BackoffNotice,
}

impl Ledger {
    /// The longest back-off that a leader can be in if no Pod has failed after `last_at`, but for failures that
    /// the policy of the Job ignores, which are counted nowhere. None: the Pods that are there
    /// say all. So they do where each index waits for itself, by the Pod that is kept for it (BLPI-6).
    pub fn remembered_backoff(&self, last_at: Timestamp, now: Timestamp) -> Option<RememberedBackoff> {
        if self.mode.limits_each_index || self.history.last_success_at().is_some_and(|at| !self.may_follow(at, last_at))
        {
            return None;
        }
        let counts =
            |entry: &Entry| entry.is_failed(self.mode) && entry.feeds_backoff(self.mode) && !entry.is_ignored();
        let there = self.pods.iter().filter(|(_, entry)| counts(entry)).count();
        let gone = u32::try_from(self.failed() - len(there)).ok().filter(|gone| *gone > 0)?;
        let longest_for = self.history.longest_delay(&self.job.backoff, &self.job.uid, gone);
        let last_at = self.history.last_failure().map_or(last_at, |failure| failure.at.max(last_at));
        Some(RememberedBackoff { gone, longest_for, notice: self.backoff_notice(last_at + longest_for, now) })
    }

    /// Whether a Pod that is gone, and failed at `last_at` at the latest, can have failed after a success. A success ends
    /// the count of the failures before it. Of two Pods that ended in the same second, one that was also created in that
    /// second counts as the later one (BACKOFF-3): where any Pod was created then, the Pod that is gone may have been.
    fn may_follow(&self, success: Timestamp, last_at: Timestamp) -> bool {
        let creates = || self.pods.iter().any(|(_, entry)| entry.created_at >= success);
        success < last_at || (success == last_at && creates())
    }
}
