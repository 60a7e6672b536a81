//! What has been asked for and not been answered, and how soon to write again.

use crate::ids::{CompletionIndex, PodUid};
use crate::time::{Span, Timestamp};

/// How long a write of live counts alone waits for creations in flight, which would change them at once.
const CREATION_PATIENCE: Span = Span::from_seconds(1);
/// Writes of live counts alone are at least this far apart.
const LIVE_COUNT_INTERVAL: Span = Span::from_millis(100);
/// Under load accounting writes are at least this far apart, so that a Job of N Pods costs about N/500 writes. When idle
/// a finished Pod is accounted for at once.
const BUSY_INTERVAL: Span = Span::from_millis(50);
/// Load is this many Pods in the last write, or so many writes one soon after the other.
const BUSY_BATCH: usize = 16;
const BUSY_WRITES: u32 = 4;
/// A Job that has written no status for this long is not busy.
const REST: Span = Span::from_millis(100);

#[derive(Clone, Debug)]
pub(super) struct InFlightCreation {
    pub index: Option<CompletionIndex>,
    pub attempt: u32,
    /// None while in flight; a time when the outcome is unknown and must be found out.
    pub retry_at: Option<Timestamp>,
    /// A list that will show it, if it exists, has been asked for.
    pub listed: bool,
    /// Tries in a row that were not answered with the Pod. Once one of them was of unknown outcome, no refusal of a later
    /// one proves that there is no Pod.
    pub unknown: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct StatusInFlight {
    /// Indexes this write books, so that its commit need not compare whole sets.
    pub completed: Vec<CompletionIndex>,
    pub failed: Vec<CompletionIndex>,
    /// The Pods whose success it books by their index. That stands, whatever they turn out to be before the answer.
    pub succeeded: Vec<PodUid>,
    /// It ends the Job, or begins to. Until its fate is known nothing may be created or removed, whatever a clock that
    /// stepped back would have us think.
    pub decides: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    pub status: Option<StatusInFlight>,
    pub releases: u32,
    pub releases_since: Timestamp,
    pub creations_since: Timestamp,
    /// Creations whose answer is open; the others are of unknown outcome.
    pub creations: usize,
    pub last_batch: usize,
    last_write_at: Option<Timestamp>,
    /// Status writes without a rest between them, after the first.
    writes_in_a_row: u32,
}

/// What there is to write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish {
    /// It decides something.
    AtOnce,
    /// Pods have finished or been let go. `full`: one write takes no more of them.
    Accounting {
        full: bool,
    },
    LiveCounts,
}

impl Flight {
    pub fn written(&mut self, now: Timestamp) {
        let soon = self.last_write_at.is_some_and(|at| now < at + REST);
        self.writes_in_a_row = if soon { self.writes_in_a_row.saturating_add(1) } else { 0 };
        self.last_write_at = Some(now);
    }

    /// When to write instead of now.
    pub fn pace(&self, now: Timestamp, wish: Wish) -> Option<Timestamp> {
        let since = |span: Span| self.last_write_at.map(|at| at + span);
        let busy = self.last_batch >= BUSY_BATCH || self.writes_in_a_row >= BUSY_WRITES;
        let wait_until = match wish {
            Wish::AtOnce | Wish::Accounting { full: true } => None,
            Wish::Accounting { full: false } => since(BUSY_INTERVAL).filter(|_| busy),
            Wish::LiveCounts if self.creations > 0 => Some(self.creations_since + CREATION_PATIENCE),
            Wish::LiveCounts => since(LIVE_COUNT_INTERVAL),
        };
        // A clock that stepped back must not freeze the Job.
        wait_until.filter(|at| *at > now && *at - now <= CREATION_PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_seconds(1_800_000_000) + Span::from_millis(millis)
    }

    /// After writes at these times, each of so many Pods.
    fn after(writes: &[i64], batch: usize, creations: usize) -> Flight {
        let mut flight = Flight { last_batch: batch, creations, creations_since: at(0), ..Flight::default() };
        writes.iter().for_each(|millis| flight.written(at(*millis)));
        flight
    }

    #[test]
    fn writes_come_at_once_until_there_are_many() {
        let accounting = Wish::Accounting { full: false };
        for (writes, batch, creations, wish, expected) in [
            (&[][..], 1, 0, accounting, None),
            (&[400], 1, 0, accounting, None),
            // One soon after the other.
            (&[370, 380, 390, 400], 1, 0, accounting, None),
            (&[360, 370, 380, 390, 400], 1, 0, accounting, Some(450)),
            // Still busy at the pace this makes.
            (&[160, 210, 260, 310, 360, 410], 1, 0, accounting, Some(460)),
            // With a rest between them.
            (&[0, 100, 200, 300, 400], 1, 0, accounting, None),
            (&[260, 270, 280, 290, 400], 1, 0, accounting, None),
            // Many Pods in one.
            (&[400], 16, 0, accounting, Some(450)),
            (&[340], 16, 0, accounting, None),
            // What decides, and what fills a write, waits for nothing.
            (&[360, 370, 380, 390, 400], 16, 0, Wish::AtOnce, None),
            (&[360, 370, 380, 390, 400], 16, 0, Wish::Accounting { full: true }, None),
            (&[400], 1, 0, Wish::LiveCounts, Some(500)),
            (&[400], 1, 3, Wish::LiveCounts, Some(1000)),
            // The clock has stepped back.
            (&[9_400], 16, 0, accounting, None),
        ] {
            let waits = after(writes, batch, creations).pace(at(410), wish);
            assert_eq!(waits, expected.map(at), "{writes:?} of {batch}, {wish:?}");
        }
    }
}
