//! Requests about single Pods that the API refused, or whose outcome is unknown: each Pod waits for its own retry, and
//! the others proceed meanwhile (S15).

use std::collections::{BTreeMap, BTreeSet};

use super::doubling_delay;
use super::entry::Slot;
use crate::time::Timestamp;

#[derive(Debug, Default)]
pub(super) struct Refusals {
    by_slot: BTreeMap<Slot, PodRefusal>,
    /// Retry times; those of refusals that ended early are skipped when they are reached.
    wakes: BTreeSet<(Timestamp, Slot)>,
}

#[derive(Clone, Copy, Debug)]
struct PodRefusal {
    times: u32,
    retry_at: Timestamp,
}

impl Refusals {
    pub fn add(&mut self, slot: Slot, now: Timestamp) {
        let times = self.by_slot.get(&slot).map_or(0, |refusal| refusal.times);
        let retry_at = now + doubling_delay(times);
        self.by_slot.insert(slot, PodRefusal { times: times.saturating_add(1), retry_at });
        self.wakes.insert((retry_at, slot));
    }

    /// A request succeeded, or the Pod is gone.
    pub fn end(&mut self, slot: Slot) {
        self.by_slot.remove(&slot);
    }

    /// The next Pod whose retry is due.
    pub fn pop_due(&mut self, now: Timestamp) -> Option<Slot> {
        while let Some(&(at, slot)) = self.wakes.first()
            && at <= now
        {
            self.wakes.pop_first();
            if self.by_slot.get(&slot).is_some_and(|refusal| refusal.retry_at == at) {
                return Some(slot);
            }
        }
        None
    }

    /// The clock was set back: no retry is later than if the request had been refused now.
    pub fn clock_set_back(&mut self, now: Timestamp) {
        for (slot, refusal) in &mut self.by_slot {
            let latest = now + doubling_delay(refusal.times.saturating_sub(1));
            if refusal.retry_at > latest {
                self.wakes.remove(&(refusal.retry_at, *slot));
                refusal.retry_at = latest;
                self.wakes.insert((latest, *slot));
            }
        }
    }

    pub fn next_wake(&self) -> Option<Timestamp> {
        self.wakes.first().map(|(at, _)| *at)
    }
}
