//! Requests in flight, and the pace of status writes.

use std::collections::BTreeSet;

use super::creations::CreationTimes;
use super::doubling_delay;
use crate::ids::{CompletionIndex, PodUid};
use crate::time::{Span, Timestamp};

/// How long a write of live counts alone waits for creations in flight, which would change the counts again at once.
pub(super) const CREATION_PATIENCE: Span = Span::from_seconds(1);
/// The minimum interval between writes of live counts alone.
const LIVE_COUNT_INTERVAL: Span = Span::from_millis(100);
/// The minimum interval between accounting writes under load, so that a Job of N Pods costs about N/500 writes. Without
/// load a finished Pod is accounted for at once.
const BUSY_INTERVAL: Span = Span::from_millis(50);
/// The same while requests of other Jobs wait: each write of one Job delays others.
const CROWDED_INTERVAL: Span = Span::from_millis(500);
/// Load means this many Pods in the last write, or this many writes in quick succession.
const BUSY_BATCH: usize = 16;
const BUSY_WRITES: u32 = 4;
/// A Job that has written no status for this long is not under load.
const REST: Span = Span::from_millis(100);
/// CONST-1: the longest delay before a status that the server refuses is sent again.
const REFUSED_MOST: Span = Span::from_seconds(60);

#[derive(Clone, Debug, Default)]
pub(super) struct StatusInFlight {
    /// Indexes that this write records, so that its commit need not compare whole sets.
    pub completed: Vec<CompletionIndex>,
    pub failed: Vec<CompletionIndex>,
    /// The Pods whose success this write records by their index. That stands, whatever phase they show before the
    /// response.
    pub succeeded: Vec<PodUid>,
    /// The write ends the Job, or begins to. Until its outcome is known nothing may be created or removed, even if a
    /// clock that stepped back suggests otherwise.
    pub decides: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    pub status: Option<StatusInFlight>,
    /// The Pods whose success was recorded by their index if one of the writes of unknown outcome was carried out. All
    /// of them are conditional on the current version of the Job, so that the next version shows which one.
    pub unconfirmed: BTreeSet<PodUid>,
    pub releases: u32,
    /// Deletions of Pods that are counted (TTL-14).
    pub discards: u32,
    /// Removals of start gates (TTL-24).
    pub starts: u32,
    pub releases_since: Timestamp,
    pub last_batch: usize,
    last_write_at: Option<Timestamp>,
    /// Status writes without a pause between them, not counting the first.
    writes_in_a_row: u32,
    /// Status writes that the server has refused since it accepted one.
    refusals: u32,
    retry_at: Option<Timestamp>,
}

/// Why a status write is needed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish {
    /// It contains a decision.
    AtOnce,
    /// Pods have finished or have been released.
    Accounting(Backlog),
    /// Only the live counts differ. Creations in flight will change them again.
    LiveCounts { creating: Option<CreationTimes> },
}

/// What there is to account for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Backlog {
    /// As much as one write can contain.
    Full,
    /// No Pod runs or is being created: more would be long in coming.
    Last,
    /// More is to come. `crowded`: requests wait for their turn.
    Growing { crowded: bool },
}

impl Flight {
    pub fn written(&mut self, now: Timestamp) {
        let soon = self.last_write_at.is_some_and(|at| now < at + REST);
        self.writes_in_a_row = if soon { self.writes_in_a_row.saturating_add(1) } else { 0 };
        self.last_write_at = Some(now);
        (self.refusals, self.retry_at) = (0, None);
    }

    /// CONST-1: the server has refused the status: a policy, a webhook, a missing right.
    pub fn refused(&mut self, now: Timestamp) {
        self.retry_at = Some(now + doubling_delay(self.refusals).min(REFUSED_MOST));
        self.refusals = self.refusals.saturating_add(1);
    }

    /// The Job has changed: the server may accept its status now.
    pub fn job_changed(&mut self) {
        self.retry_at = None;
    }

    /// Until when no status is sent, because the server refuses it.
    pub fn refused_until(&self, now: Timestamp) -> Option<Timestamp> {
        // A clock that stepped back must not block the Job.
        self.retry_at.filter(|at| *at > now && *at - now <= REFUSED_MOST)
    }

    /// Until when the write must be delayed, if at all.
    pub fn pace(&self, now: Timestamp, wish: Wish) -> Option<Timestamp> {
        let since = |span: Span| self.last_write_at.map(|at| at + span);
        let often = self.writes_in_a_row >= BUSY_WRITES;
        let busy = often || self.last_batch >= BUSY_BATCH;
        let wait_until = match wish {
            Wish::AtOnce | Wish::Accounting(Backlog::Full) => None,
            // A Job that runs one Pod after the other is at this point again and again.
            Wish::Accounting(Backlog::Last) => since(BUSY_INTERVAL).filter(|_| often),
            Wish::Accounting(Backlog::Growing { crowded: true }) => since(CROWDED_INTERVAL),
            Wish::Accounting(Backlog::Growing { crowded: false }) => since(BUSY_INTERVAL).filter(|_| busy),
            // While a large Job creates one batch after the other, its status is written now and then all the same.
            Wish::LiveCounts { creating: Some(CreationTimes { last, since }) } => {
                let waits_since = self.last_write_at.map_or(since, |at| at.max(since));
                Some(last.min(waits_since) + CREATION_PATIENCE)
            }
            Wish::LiveCounts { creating: None } => since(LIVE_COUNT_INTERVAL),
        };
        // A clock that stepped back must not block the Job.
        wait_until.filter(|at| *at > now && *at - now <= CREATION_PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_seconds(1_800_000_000) + Span::from_millis(millis)
    }

    fn creating(since: i64, last: i64) -> Wish {
        Wish::LiveCounts { creating: Some(CreationTimes { since: at(since), last: at(last) }) }
    }

    /// The state after writes at these times, each of `batch` Pods.
    fn after(writes: &[i64], batch: usize) -> Flight {
        let mut flight = Flight { last_batch: batch, ..Flight::default() };
        writes.iter().for_each(|millis| flight.written(at(*millis)));
        flight
    }

    /// CONST-1.
    #[test]
    fn a_refused_status_waits_1_2_4_and_at_most_60_seconds() {
        let mut flight = Flight::default();
        let mut now = 0;
        for delay in [1, 2, 4, 8, 16, 32, 60, 60] {
            flight.refused(at(now));
            let until = now + delay * 1000;
            assert_eq!(flight.refused_until(at(now)), Some(at(until)));
            assert_eq!(flight.refused_until(at(until - 1)), Some(at(until)));
            assert_eq!(flight.refused_until(at(until)), None);
            assert_eq!(flight.refused_until(at(until - 61_000)), None, "the clock has stepped back");
            now = until;
        }
        flight.job_changed();
        assert_eq!(flight.refused_until(at(now)), None, "a changed Job is tried at once");
        flight.refused(at(now));
        assert_eq!(flight.refused_until(at(now)), Some(at(now + 60_000)), "and the delay goes on growing");
        flight.written(at(now));
        assert_eq!(flight.refused_until(at(now)), None);
        flight.refused(at(now));
        assert_eq!(flight.refused_until(at(now)), Some(at(now + 1000)));
    }

    #[test]
    fn writes_come_at_once_until_there_are_many() {
        let accounting = Wish::Accounting(Backlog::Growing { crowded: false });
        let full = Wish::Accounting(Backlog::Full);
        let last = Wish::Accounting(Backlog::Last);
        let crowded = Wish::Accounting(Backlog::Growing { crowded: true });
        for (writes, batch, wish, expected) in [
            (&[][..], 1, accounting, None),
            (&[400], 1, accounting, None),
            // In quick succession.
            (&[370, 380, 390, 400], 1, accounting, None),
            (&[360, 370, 380, 390, 400], 1, accounting, Some(450)),
            // Still under load at the pace that this results in.
            (&[160, 210, 260, 310, 360, 410], 1, accounting, Some(460)),
            // With pauses between them.
            (&[0, 100, 200, 300, 400], 1, accounting, None),
            (&[260, 270, 280, 290, 400], 1, accounting, None),
            // Many Pods in one write.
            (&[400], 16, accounting, Some(450)),
            (&[340], 16, accounting, None),
            // Decisions and full writes are not delayed.
            (&[360, 370, 380, 390, 400], 16, Wish::AtOnce, None),
            (&[360, 370, 380, 390, 400], 16, full, None),
            // The last accounting is not delayed by a large batch, but not written again and again.
            (&[400], 16, last, None),
            (&[360, 370, 380, 390, 400], 1, last, Some(450)),
            (&[160, 210, 260, 310, 360], 1, last, None),
            // While requests of other Jobs wait.
            (&[], 1, crowded, None),
            (&[400], 1, crowded, Some(900)),
            (&[-90], 16, crowded, None),
            (&[400], 1, Wish::LiveCounts { creating: None }, Some(500)),
            (&[400], 1, creating(0, 0), Some(1000)),
            // Batch after batch.
            (&[-580], 1, creating(-2000, 409), Some(420)),
            (&[-600], 1, creating(-2000, 409), None),
            (&[-600], 1, creating(100, 409), Some(1100)),
            (&[], 1, creating(-2000, 409), None),
            // The clock has stepped back.
            (&[9_400], 16, accounting, None),
        ] {
            let waits = after(writes, batch).pace(at(410), wish);
            assert_eq!(waits, expected.map(at), "{writes:?} of {batch}, {wish:?}");
        }
    }
}
