//! Why and how a Pod ends: the first reason stays, the deadline can only become earlier, and the verdict is decided once.

use tally_core::pod::Phase;
use tally_core::time::{Span, Timestamp};

#[derive(Debug, Default)]
pub struct Termination {
    ending: Option<Ending>,
    /// How the Pod ended, set once no process of it runs any more.
    verdict: Option<Phase>,
}

#[derive(Clone, Copy, Debug)]
struct Ending {
    reason: EndReason,
    begun_at: Timestamp,
    /// Processes that still run at this time are killed.
    kill_at: Timestamp,
    /// No container had failed for good by itself, as far as was known when the ending began.
    unharmed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The main containers have ended and are not restarted.
    Finished,
    /// An init container failed for good.
    FailedInit,
    Deleted,
    Deadline,
    /// The Pod uses more disk space than it may.
    Evicted,
    Shutdown,
    /// Another client of the API has set a terminal phase.
    Overruled,
    Gone,
}

impl Termination {
    /// `stored`: the phase in the API.
    pub fn of(stored: Phase) -> Self {
        Self { ending: None, verdict: Some(stored).filter(|phase| phase.is_terminal()) }
    }

    pub fn clock_set_back(&mut self, by: Span) {
        if let Some(ending) = &mut self.ending {
            (ending.begun_at, ending.kill_at) = (ending.begun_at - by, ending.kill_at - by);
        }
    }

    /// The first reason stays; the deadline can only become earlier.
    pub fn begin(&mut self, reason: EndReason, now: Timestamp, kill_at: Timestamp, unharmed: bool) {
        let ending = self.ending.get_or_insert(Ending { reason, begun_at: now, kill_at, unharmed });
        ending.kill_at = ending.kill_at.min(kill_at);
    }

    pub fn has_begun(&self) -> bool {
        self.ending.is_some()
    }

    pub fn reason(&self) -> Option<EndReason> {
        self.ending.map(|ending| ending.reason)
    }

    pub fn kill_at(&self) -> Option<Timestamp> {
        self.ending.map(|ending| ending.kill_at)
    }

    /// When the deletion was observed, if that is why the Pod ends.
    pub fn deleted_at(&self) -> Option<Timestamp> {
        self.ending.filter(|ending| ending.reason == EndReason::Deleted).map(|ending| ending.begun_at)
    }

    /// The Pod failed only because the node stops.
    pub fn was_stopped(&self) -> bool {
        self.ending.is_some_and(|ending| ending.reason == EndReason::Shutdown && ending.unharmed)
    }

    pub fn verdict(&self) -> Option<Phase> {
        self.verdict
    }

    /// Decides the verdict. `succeeded`: all containers have succeeded; `stored`: the phase in the API. Returns whether
    /// there is a verdict now that was not there before.
    pub fn decide(&mut self, succeeded: bool, stored: Phase) -> bool {
        let Some(ending) = self.ending.filter(|_| self.verdict.is_none()) else { return false };
        self.verdict = Some(match ending.reason {
            EndReason::Overruled => stored,
            EndReason::Deadline | EndReason::Evicted | EndReason::FailedInit => Phase::Failed,
            // Completed work counts as success, even if the Pod was about to be stopped.
            EndReason::Finished | EndReason::Deleted | EndReason::Shutdown | EndReason::Gone if succeeded => {
                Phase::Succeeded
            }
            EndReason::Finished | EndReason::Deleted | EndReason::Shutdown | EndReason::Gone => Phase::Failed,
        });
        true
    }
}
