//! What the ledger of an Indexed Job derives for each completion index: whether it is free to start, has a result to
//! record, or waits.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Ledger;
use super::entry::{Entry, Slot};
use crate::accounting::Outcome;
use crate::backoff::JitterSeed;
use crate::ids::CompletionIndex;
use crate::indexes::IndexSet;
use crate::pod::Phase;
use crate::policy::FailureAction;
use crate::time::Timestamp;

/// The number of indexes whose back-off one plan announces. Users read a few; Events have a limit of about this size.
const ANNOUNCED: usize = 16;

#[derive(Debug, Default)]
pub(super) struct IndexStates {
    /// Neither done, nor occupied, nor waiting: the next Pods are created for the lowest of these (IDX-4).
    pub free: IndexSet,
    /// Succeeded, and not yet in `status.completedIndexes`.
    pub completed: IndexSet,
    /// Failed permanently, and not yet in `status.failedIndexes`.
    pub failed: IndexSet,
    /// With more than one active Pod.
    pub crowded: BTreeSet<CompletionIndex>,
    pub creating: BTreeSet<CompletionIndex>,
    /// BLPI-3: the failed Pod kept for each index that waits for its replacement.
    pub kept: BTreeMap<CompletionIndex, Slot>,
    /// When an index in back-off may start again. Waiting indexes are not free, so they do not delay others (DEFECT-4).
    pub waiting: BTreeMap<CompletionIndex, Timestamp>,
    pub wakes: BTreeSet<(Timestamp, CompletionIndex)>,
    /// Indexes that began to wait since the last plan, as many as one plan announces.
    pub unannounced: BTreeSet<CompletionIndex>,
    /// The back-offs that have begun, so that none is announced twice.
    announced: BTreeMap<CompletionIndex, Timestamp>,
    /// The Pods of each index that has any, and the state that was last derived from them.
    pub heads: HashMap<CompletionIndex, Head, foldhash::fast::FixedState>,
    /// Attempts whose name is taken by another Pod.
    pub taken_names: BTreeSet<(Option<CompletionIndex>, u32)>,
}

/// The first of an index's Pods, which form a linked list, and a code of the state that was last stored for the index:
/// it shows cheaply that an event changed nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Head {
    pub first: Option<Slot>,
    known: u8,
}

/// Everything that is derived for one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IndexState {
    free: bool,
    completes: bool,
    fails: bool,
    crowded: bool,
    kept: Option<Slot>,
    retry_at: Option<Timestamp>,
}

impl IndexState {
    /// Never 0, which means "unknown".
    fn code(self) -> u8 {
        1 | u8::from(self.free) << 1
            | u8::from(self.completes) << 2
            | u8::from(self.fails) << 3
            | u8::from(self.crowded) << 4
    }
}

impl IndexStates {
    /// Clears what can be derived from the Pods.
    pub fn clear(&mut self) {
        let creating = std::mem::take(&mut self.creating);
        let taken_names = std::mem::take(&mut self.taken_names);
        let announced = std::mem::take(&mut self.announced);
        let unannounced = std::mem::take(&mut self.unannounced);
        let mut heads = std::mem::take(&mut self.heads);
        heads.values_mut().for_each(|head| head.known = 0);
        *self = Self { creating, taken_names, announced, unannounced, heads, ..Self::default() };
    }

    /// Frees the indexes whose back-off is over.
    pub fn advance(&mut self, now: Timestamp) {
        while let Some(&(at, index)) = self.wakes.first()
            && at <= now
        {
            self.wakes.pop_first();
            self.waiting.remove(&index);
            if let Some(head) = self.heads.get_mut(&index) {
                head.known = 0;
            }
            self.free.insert(index);
        }
    }

    pub fn next_wake(&self) -> Option<Timestamp> {
        self.wakes.first().map(|(at, _)| *at)
    }

    fn stop_waiting(&mut self, index: CompletionIndex) {
        if let Some(at) = self.waiting.remove(&index) {
            self.wakes.remove(&(at, index));
        }
    }
}

fn set(set: &mut IndexSet, index: CompletionIndex, member: bool) {
    if member {
        set.insert(index);
    } else {
        set.remove(index);
    }
}

impl Ledger {
    pub(super) fn pods_of(&self, index: CompletionIndex) -> impl Iterator<Item = (Slot, &Entry)> {
        let first = self.index.heads.get(&index).and_then(|head| head.first);
        std::iter::successors(first, |slot| self.entry(*slot).next_of_index).map(|slot| (slot, self.entry(slot)))
    }

    /// BLPI-6: when an index may start again whose last failed Pod is this one.
    pub(super) fn index_retry_at(&self, index: CompletionIndex, kept: &Entry) -> Timestamp {
        if kept.disrupted && self.job.backoff.skips_disruptions() {
            return kept.finished_at;
        }
        let seed = JitterSeed { job: &self.job.uid, index: Some(index) };
        kept.finished_at + self.job.backoff.delay_after(kept.failures_of_index(), seed)
    }

    /// Derives the state of one index from its Pods, of which there are few.
    pub(super) fn refresh_index(&mut self, index: CompletionIndex) {
        let mode = self.mode;
        if !mode.indexed || index >= mode.index_limit {
            return;
        }
        let stored = self.committed.completed.contains(index) || self.committed.failed.contains(index);
        let mut active = 0u32;
        let mut terminating = false;
        let mut completes = false;
        let mut fails = false;
        let mut candidate: Option<(Slot, &Entry)> = None;
        let limit = self.job.spec.backoff_limit_per_index.filter(|_| self.job.spec.limits_each_index());
        for (slot, entry) in self.pods_of(index) {
            active += u32::from(entry.is_active());
            terminating |= entry.is_terminating(mode);
            let better = |(_, best): (Slot, &Entry)| {
                (entry.failures_of_index(), entry.finished_at, &entry.uid)
                    > (best.failures_of_index(), best.finished_at, &best.uid)
            };
            if !self.is_unaccounted(entry) {
                // REPL-9: recorded as failed before its replacement exists, by this leader or by an earlier one.
                if limit.is_some() && self.awaits_replacement(entry) && candidate.is_none_or(better) {
                    candidate = Some((slot, entry));
                }
                continue;
            }
            completes |= entry.phase == Phase::Succeeded;
            let Some(limit) = limit else { continue };
            // Ended together with the Job: that says nothing about its index.
            if entry.is_failed(mode) && !(mode.decided() && entry.deleting) {
                let spent = i64::from(entry.failure_count) >= i64::from(limit);
                fails |= entry.action() == Some(FailureAction::FailIndex) || (!entry.is_ignored() && spent);
                if candidate.is_none_or(better) {
                    candidate = Some((slot, entry));
                }
            }
        }
        // BLPI-9: a stored verdict stands; within one pass success takes precedence.
        let completes = completes && !stored;
        let fails = (fails || self.failed_by_then.contains(index)) && !stored && !completes;
        let done = stored || completes || fails;
        let creating = self.index.creating.contains(&index);
        let occupied = active > 0 || creating || (mode.waits_for_terminal_phase && terminating);
        let keeps = !done && active == 0 && !mode.decided() && !mode.deleting;
        let kept = candidate.filter(|_| keeps).map(|(slot, entry)| (slot, self.index_retry_at(index, entry)));

        let state = IndexState {
            free: !done && !occupied && kept.is_none(),
            completes,
            fails,
            crowded: active > 1,
            kept: kept.map(|(slot, _)| slot),
            retry_at: kept.map(|(_, at)| at).filter(|_| !occupied),
        };
        // Indexes in back-off, and those without Pods, are few or rare enough to be stored again every time.
        let plain = state.kept.is_none() && state.retry_at.is_none();
        let code = if plain { state.code() } else { 0 };
        let known = match self.index.heads.get_mut(&index) {
            Some(head) => std::mem::replace(&mut head.known, code),
            None => 0,
        };
        if known != code || code == 0 {
            self.store_index(index, state);
        }
    }

    /// Whether the failure of this Pod is recorded, and its counts may be needed: it has its finalizer, and in a Job that
    /// replaces Pods of dead nodes the record comes before the replacement.
    fn awaits_replacement(&self, entry: &Entry) -> bool {
        self.job.replace_terminating_after.is_some()
            && entry.recorded == Some(Outcome::Failed)
            && entry.tracked
            && !entry.unlisted
            && !entry.is_active()
    }

    fn store_index(&mut self, index: CompletionIndex, state: IndexState) {
        set(&mut self.index.completed, index, state.completes);
        set(&mut self.index.failed, index, state.fails);
        set(&mut self.index.free, index, state.free);
        if state.crowded {
            self.index.crowded.insert(index);
        } else {
            self.index.crowded.remove(&index);
        }
        self.index.stop_waiting(index);
        if let Some(retry_at) = state.retry_at {
            if self.index.announced.insert(index, retry_at) != Some(retry_at)
                && self.index.unannounced.len() < ANNOUNCED
            {
                self.index.unannounced.insert(index);
            }
            self.index.waiting.insert(index, retry_at);
            self.index.wakes.insert((retry_at, index));
        } else {
            self.index.announced.remove(&index);
        }
        self.keep(index, state.kept);
    }

    /// Moves the mark of the kept Pod, which changes what is due.
    fn keep(&mut self, index: CompletionIndex, slot: Option<Slot>) {
        let before = match slot {
            Some(slot) => self.index.kept.insert(index, slot),
            None => self.index.kept.remove(&index),
        };
        // The Pod that was kept before may be gone, and its slot may belong to another Pod by now.
        let before = before
            .filter(|before| self.pods.get(*before).is_some_and(|entry| entry.kept && entry.index == Some(index)));
        for changed in [before, slot].into_iter().flatten() {
            let kept = Some(changed) == slot;
            if self.entry(changed).kept != kept {
                self.update_entry_alone(changed, |entry| entry.kept = kept);
            }
        }
    }

    /// Updates the Pods of an index, after the index itself was recorded.
    pub(super) fn update_pods_of(&mut self, index: CompletionIndex) {
        let slots: Vec<Slot> = self.pods_of(index).map(|(slot, _)| slot).collect();
        for slot in slots {
            self.update_entry_alone(slot, |_| {});
        }
    }
}
