//! The secondary indexes over the entries. An entry stores the keys under which it is indexed; a change updates only
//! the difference, so that an event that changes little costs little, whatever the size of the Job.

use std::collections::VecDeque;

use super::Ledger;
use super::entry::{Busy, Classification, Entry, Slot, Standing};
use super::plan::Plan;
use crate::accounting::Outcome;
use crate::backoff::Failure;
use crate::ids::CompletionIndex;
use crate::indexes::IndexSet;
use crate::names::table_hash;
use crate::pod::Phase;
use crate::policy::FailureAction;

/// A property of an entry of which the ledger keeps a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flag {
    Active,
    Ready,
    /// Keeps its place.
    Terminating,
    /// Terminates, and has been given up: it keeps no place (REPL-9).
    Fenced,
    Tracked,
    Removing,
    /// Deletions and removals in flight.
    InFlight,
    /// Recorded, and not yet released: it has the finalizer, or it still runs.
    Held,
    NewSucceeded,
    /// Unrecorded failures that count, including those of kept Pods (BLPI-7).
    NewFailed,
    Due,
    Releasable,
    Misfit,
    FailsJob,
    /// In the counters of the status, or about to be.
    Counted,
    /// Ended, counted, and to be deleted while the Job runs (TTL-14).
    Discardable,
}

const FLAGS: usize = 16;

/// How many entries have each flag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    by_flag: [i64; FLAGS],
    /// Restarts of Pods that have not ended (BACKOFF-9).
    pub restarts: i64,
}

impl Counts {
    pub fn of(&self, flag: Flag) -> i64 {
        self.by_flag[flag as usize]
    }
}

/// Entries in the order in which they acquired a property. Entries that lost it are skipped when they are reached,
/// which is cheaper than finding them; the serial number distinguishes an entry from another one in the same slot.
#[derive(Debug, Default)]
pub(super) struct Queue(VecDeque<(Slot, u32)>);

impl Queue {
    fn push(&mut self, slot: Slot, serial: u32) {
        self.0.push_back((slot, serial));
    }
}

impl Ledger {
    /// Changes an entry and updates its secondary indexes.
    pub(super) fn update_entry(&mut self, slot: Slot, change: impl FnOnce(&mut Entry)) {
        let index_before = self.entry(slot).index;
        self.update_entry_alone(slot, change);
        if self.mode.indexed {
            let index = self.entry(slot).index;
            if let Some(index) = index {
                self.refresh_index(index);
            }
            if let Some(before) = index_before.filter(|before| Some(*before) != index) {
                self.refresh_index(before);
            }
        }
    }

    /// The same, without updating what is derived for its completion index.
    pub(super) fn update_entry_alone(&mut self, slot: Slot, change: impl FnOnce(&mut Entry)) {
        let entry = self.entry_mut(slot);
        change(entry);
        let classification = self.classify(slot);
        self.move_to(slot, classification);
        self.note_ending(slot);
    }

    pub(super) fn remove_from_indexes(&mut self, slot: Slot) {
        self.move_to(slot, Classification::default());
    }

    /// Indexes every entry again, after a change that affects how all of them are classified.
    pub(super) fn rebuild(&mut self) {
        self.index.clear();
        let slots: Vec<Slot> = self.slots().collect();
        for slot in &slots {
            let recorded = self.committed.uncounted.get(&self.entry(*slot).uid).copied();
            self.update_entry_alone(*slot, |entry| {
                entry.recorded = recorded;
                entry.kept = false;
            });
        }
        self.index.free = IndexSet::below(self.mode.index_limit)
            .difference(&self.committed.completed)
            .difference(&self.committed.failed);
        let mut indexes: Vec<CompletionIndex> = slots.iter().filter_map(|slot| self.entry(*slot).index).collect();
        indexes.extend(self.creations.indexes());
        indexes.sort_unstable();
        indexes.dedup();
        for index in indexes {
            self.refresh_index(index);
        }
    }

    /// Moves an entry from its current keys to the new ones.
    fn move_to(&mut self, slot: Slot, new: Classification) {
        let entry = self.entry_mut(slot);
        let old = std::mem::replace(&mut entry.classification, new);
        if old == new {
            return;
        }
        let (serial, tie) = (entry.serial, entry.tie);
        if old.class != new.class {
            self.leave_class(old.class);
            self.entry_mut(slot).ticket = self.idle.join(slot, new.class);
        }
        if old.index != new.index {
            self.leave_index(slot, old.index);
            self.join_index(slot, new.index);
        }
        if old.pending_until != new.pending_until {
            if let Some(at) = old.pending_until {
                self.pending.remove(&(at, slot));
            }
            self.pending.extend(new.pending_until.map(|at| (at, slot)));
        }
        if new.start_gated {
            self.start_gated.insert(slot);
        } else if old.start_gated {
            self.start_gated.remove(&slot);
        }
        self.counts.restarts += i64::from(new.restarts) - i64::from(old.restarts);
        let mut changed = old.flags ^ new.flags;
        while changed != 0 {
            let flag = changed.trailing_zeros() as usize;
            changed &= changed - 1;
            let set = new.flags & (1 << flag) != 0;
            self.counts.by_flag[flag] += if set { 1 } else { -1 };
            if flag == Flag::Misfit as usize {
                if set {
                    self.misfits.insert(slot)
                } else {
                    self.misfits.remove(&slot)
                };
            } else if flag == Flag::Terminating as usize {
                if set {
                    self.terminating.insert(slot);
                } else {
                    self.terminating.remove(&slot);
                    self.looks.remove(&slot);
                }
            } else if flag == Flag::FailsJob as usize {
                if set {
                    self.fail_job.insert((tie, slot))
                } else {
                    self.fail_job.remove(&(tie, slot))
                };
            } else if flag == Flag::Due as usize && set && !self.entry(slot).queued_due {
                self.entry_mut(slot).queued_due = true;
                self.due.push(slot, serial);
            } else if flag == Flag::Releasable as usize && set && !self.entry(slot).queued_release {
                self.entry_mut(slot).queued_release = true;
                self.releasable.push(slot, serial);
            } else if flag == Flag::Discardable as usize && set && !self.entry(slot).queued_discard {
                self.entry_mut(slot).queued_discard = true;
                self.discardable.push(slot, serial);
            }
        }
    }

    fn leave_class(&mut self, class: u8) {
        if self.idle.leave(class) {
            let mut members = self.idle.take(class);
            members.retain(|(slot, ticket)| self.in_class(*slot, *ticket, class));
            self.idle.put_back(class, members);
        }
    }

    fn in_class(&self, slot: Slot, ticket: u32, class: u8) -> bool {
        self.pods.get(slot).is_some_and(|entry| entry.ticket == ticket && entry.classification.class == class)
    }

    /// Active Pods without a request in flight, class by class in the order of removal.
    pub(super) fn idle_active(&self) -> impl Iterator<Item = (u8, Slot)> {
        self.idle.iter().flat_map(move |(class, members)| {
            members
                .iter()
                .filter(move |(slot, ticket)| self.in_class(*slot, *ticket, class))
                .map(move |(slot, _)| (class, *slot))
        })
    }

    /// The first `count` active Pods without a request in flight, in the order of removal (RM-2).
    pub(super) fn first_to_go(&self, count: usize) -> Vec<Slot> {
        let mut chosen = Vec::new();
        for (class, members) in self.idle.iter() {
            let missing = count - chosen.len();
            if missing == 0 {
                break;
            }
            let mut ranked: Vec<_> = members
                .iter()
                .filter(|(slot, ticket)| self.in_class(*slot, *ticket, class))
                .map(|(slot, _)| {
                    let entry = self.entry(*slot);
                    (entry.removal_rank(), entry.tie, *slot)
                })
                .collect();
            if ranked.len() > missing {
                ranked.select_nth_unstable(missing);
                ranked.truncate(missing);
            }
            ranked.sort_unstable();
            chosen.extend(ranked.into_iter().map(|(_, _, slot)| slot));
        }
        chosen
    }

    /// Entries that are due, in the order in which they became due.
    pub(super) fn due_entries(&self) -> impl Iterator<Item = &Entry> {
        self.due.0.iter().filter_map(|(slot, serial)| self.queued(*slot, *serial, Flag::Due))
    }

    fn queued(&self, slot: Slot, serial: u32, flag: Flag) -> Option<&Entry> {
        let entry = self.pods.get(slot)?;
        (entry.serial == serial && entry.classification.has(flag)).then_some(entry)
    }

    /// Drops entries at the front that are no longer due.
    pub(super) fn trim_due(&mut self) {
        while let Some((slot, serial)) = self.due.0.front().copied() {
            if self.queued(slot, serial, Flag::Due).is_some() {
                break;
            }
            self.due.0.pop_front();
            if let Some(entry) = self.pods.get_mut(slot).filter(|entry| entry.serial == serial) {
                entry.queued_due = false;
            }
        }
    }

    /// Takes the next entry whose finalizer may be removed.
    pub(super) fn pop_releasable(&mut self) -> Option<Slot> {
        while let Some((slot, serial)) = self.releasable.0.pop_front() {
            let releasable = self.queued(slot, serial, Flag::Releasable).is_some();
            if let Some(entry) = self.pods.get_mut(slot).filter(|entry| entry.serial == serial) {
                entry.queued_release = false;
            }
            if releasable {
                return Some(slot);
            }
        }
        None
    }

    /// Takes the entries that may be deleted as far as accounting is concerned, `most` at most. Those that a later
    /// leader needs to find the same back-off stay in the queue.
    pub(super) fn take_discardable(&mut self, most: usize, plan: &mut Plan) -> Vec<Slot> {
        let (mut taken, mut stay) = (Vec::new(), Vec::new());
        if most == 0 {
            return taken;
        }
        while taken.len() < most
            && let Some((slot, serial)) = self.discardable.0.pop_front()
        {
            let Some(entry) = self.queued(slot, serial, Flag::Discardable) else {
                if let Some(entry) = self.pods.get_mut(slot).filter(|entry| entry.serial == serial) {
                    entry.queued_discard = false;
                }
                continue;
            };
            // An old view of the Job may not show that another leader has recorded the Pod. What follows is newer.
            if !self.freshness.covers(entry.revision) {
                stay.push((slot, serial));
                plan.waits_for_job = true;
                break;
            }
            let needed = !self.job.spec.limits_each_index() && self.history.needs(&entry.uid);
            if needed {
                stay.push((slot, serial));
                continue;
            }
            self.entry_mut(slot).queued_discard = false;
            taken.push(slot);
        }
        self.kept_finished = stay.len();
        stay.into_iter().rev().for_each(|place| self.discardable.0.push_front(place));
        taken
    }

    /// Puts back an entry that cannot be released yet.
    pub(super) fn push_releasable(&mut self, slot: Slot) {
        let entry = self.entry_mut(slot);
        entry.queued_release = true;
        let serial = entry.serial;
        self.releasable.push(slot, serial);
    }

    /// How the accounting classifies a Pod now.
    pub(super) fn standing(&self, entry: &Entry) -> Standing {
        let mode = self.mode;
        if !entry.tracked {
            return Standing::Untracked;
        }
        if entry.unlisted {
            return Standing::Live;
        }
        if mode.legacy {
            return Standing::Releasable;
        }
        if entry.recorded.is_some() && entry.is_active() {
            // Another writer has listed a running Pod among those that have ended. It has yet to end.
            return Standing::Live;
        }
        if entry.recorded.is_some() || entry.index_counted {
            // REPL-9: its replacement needs its counts, and is not there yet.
            return if entry.kept { Standing::Live } else { Standing::Releasable };
        }
        let ended_by_job = entry.deleting && !entry.phase.is_terminal() && mode.decided();
        let misfit = mode.indexed && entry.valid_index(mode).is_none();
        if entry.phase == Phase::Succeeded {
            return match entry.valid_index(mode) {
                _ if misfit => Standing::Releasable,
                None => Standing::Due(Outcome::Succeeded),
                Some(index) if self.committed.completed.contains(index) => Standing::Releasable,
                // BLPI-9: an index that failed does not complete.
                Some(index) if self.committed.failed.contains(index) => Standing::Releasable,
                Some(_) => Standing::IndexDue,
            };
        }
        if mode.succeeding && entry.deleting {
            // Ended because the Job has succeeded: this is not a failure (SUCC-4).
            return Standing::Releasable;
        }
        if entry.is_failed(mode) || (ended_by_job && mode.failing) {
            return if entry.kept && !entry.must_be_fenced() {
                Standing::Live
            } else if misfit || entry.is_ignored() {
                Standing::Releasable
            } else {
                Standing::Due(Outcome::Failed)
            };
        }
        if mode.deleting {
            // DEL-1: Pods that still run are released uncounted.
            return Standing::Releasable;
        }
        Standing::Live
    }

    /// The keys and flags under which an entry must be indexed.
    fn classify(&mut self, slot: Slot) -> Classification {
        let mode = self.mode;
        let entry = self.entry(slot);
        let valid_index = entry.valid_index(mode);
        let completed = valid_index.is_some_and(|index| self.committed.completed.contains(index));
        let succeeded = entry.phase == Phase::Succeeded && entry.tracked && entry.recorded.is_none() && !entry.unlisted;
        let is_current = self.job.revision > entry.revision || self.freshness.covers(entry.revision);
        if succeeded && valid_index.is_some() && (is_current || !completed) {
            // An index that is no longer complete, because the Job had fewer indexes meanwhile, can be completed again.
            // In an old view of the Job it may still be complete by another Pod.
            self.entry_mut(slot).index_counted = completed;
        }
        let entry = self.entry(slot);
        let standing = self.standing(entry);
        let (active, terminating) = (entry.is_active(), entry.is_terminating(mode));
        let misfit = mode.indexed && valid_index.is_none();
        let failed = entry.is_failed(mode);
        let unaccounted = self.is_unaccounted(entry);
        let fails_job = (entry.tracked || mode.legacy)
            && !entry.unlisted
            && failed
            && entry.action() == Some(FailureAction::FailJob);
        let counted_failure =
            unaccounted && failed && !entry.is_ignored() && !misfit && !(mode.succeeding && entry.deleting);
        let idle = entry.busy == Busy::No;
        let mut classification = Classification { start_gated: active && entry.start_gated, ..Default::default() };
        classification.set(Flag::Active, active);
        classification.set(Flag::Ready, active && entry.ready);
        classification.set(Flag::Terminating, terminating);
        let ends = !entry.phase.is_terminal() && entry.deleting && !entry.unlisted;
        classification.set(Flag::Fenced, ends && entry.is_fenced(mode));
        classification.set(Flag::Tracked, entry.tracked);
        classification.set(Flag::Removing, active && entry.removal);
        classification.set(Flag::InFlight, matches!(entry.busy, Busy::Deleting | Busy::Removing));
        classification.set(Flag::Held, entry.recorded.is_some() && (entry.tracked || active));
        let succeeds = standing == Standing::Due(Outcome::Succeeded) || self.is_legacy_success(entry);
        classification.set(Flag::NewSucceeded, succeeds);
        classification.set(Flag::NewFailed, counted_failure || standing == Standing::Due(Outcome::Failed));
        classification.set(Flag::Due, matches!(standing, Standing::Due(_)));
        classification.set(Flag::Releasable, standing == Standing::Releasable && idle);
        classification.set(Flag::Misfit, active && misfit);
        classification.set(Flag::FailsJob, fails_job);
        // A Pod that has ended and has no finalizer was counted, unless its failure is ignored.
        let released =
            !entry.tracked && (entry.phase.is_terminal() || entry.deleting) && !(failed && entry.is_ignored());
        classification.set(Flag::Counted, entry.recorded.is_some() || released);
        let discards = self.job.early_deletion.covers(entry.phase) && !entry.unlisted;
        let counted = !entry.tracked && entry.recorded.is_none();
        classification.set(Flag::Discardable, discards && counted && !entry.deleting && idle);
        if active && idle {
            classification.class = entry.removal_class();
        }
        let limits = self.job.spec.pending_timeouts.as_deref();
        // The time behind our own gate is ours, not that of a scheduler or a node.
        let waits = active && !entry.start_gated && (entry.tracked || mode.legacy) && self.is_pending(entry);
        if let Some(limits) = limits.filter(|_| waits) {
            classification.pending_until = limits.due_at(entry.created_at, entry.pending.as_deref());
        }
        if (active || terminating) && entry.phase != Phase::Unknown {
            classification.restarts = entry.restarts.sum;
        }
        let matters = !entry.phase.is_terminal() || entry.tracked || mode.legacy;
        classification.index = entry.index.filter(|_| mode.indexed && matters);
        classification
    }

    fn is_pending(&self, entry: &Entry) -> bool {
        entry.phase == Phase::Pending
    }

    /// Adds the end of a Pod to the history that determines the back-off.
    fn note_ending(&mut self, slot: Slot) {
        let mode = self.mode;
        let entry = self.entry(slot);
        let ended = entry.phase.is_terminal() || entry.deleting;
        if !ended || !entry.feeds_backoff(mode) {
            return;
        }
        let at = entry.finished_at;
        if entry.phase == Phase::Succeeded {
            let uid = entry.uid.clone();
            self.history.succeeded(at, &uid);
        } else if entry.is_failed(mode) {
            let (uid, created_at, disrupted) = (entry.uid.clone(), entry.created_at, entry.disrupted);
            self.history.failed(Failure { at, uid, created_at, disrupted });
        }
    }

    // ---- by completion index ----

    fn join_index(&mut self, slot: Slot, index: Option<CompletionIndex>) {
        let Some(index) = index else { return };
        let head = self.index.heads.entry(index).or_default();
        let next = head.first.replace(slot);
        self.entry_mut(slot).next_of_index = next;
    }

    fn leave_index(&mut self, slot: Slot, index: Option<CompletionIndex>) {
        let Some(index) = index else { return };
        let next = self.entry_mut(slot).next_of_index.take();
        let Some(head) = self.index.heads.get_mut(&index) else { return };
        let Some(first) = head.first else { return };
        if first == slot {
            head.first = next;
            if next.is_none() {
                self.index.heads.remove(&index);
            }
            return;
        }
        let mut at = first;
        while let Some(following) = self.entry(at).next_of_index {
            if following == slot {
                self.entry_mut(at).next_of_index = next;
                return;
            }
            at = following;
        }
    }
}

/// The tie-breaker of orderings: the same for every leader.
pub(super) fn tie(uid: &crate::ids::PodUid) -> u64 {
    table_hash(uid)
}
