//! Creations that were requested and have not ended: in flight, or of unknown outcome. Their names stay taken.

use std::collections::BTreeMap;

use compact_str::CompactString;

use super::doubling_delay;
use super::flight::CREATION_PATIENCE;
use crate::ids::CompletionIndex;
use crate::time::Timestamp;

#[derive(Clone, Debug)]
pub(super) struct InFlightCreation {
    pub index: Option<CompletionIndex>,
    pub attempt: u32,
    /// None while in flight; if the outcome is unknown, the time at which to retry.
    retry_at: Option<Timestamp>,
    /// A list that will contain the Pod, if it exists, has been requested.
    listed: bool,
    /// Consecutive attempts whose response did not contain the Pod. Once the outcome of one of them was unknown, no
    /// refusal of a later one proves that there is no Pod.
    unknown: u32,
}

/// When creations were requested.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CreationTimes {
    pub last: Timestamp,
    /// The first of those that followed each other without a pause.
    pub since: Timestamp,
}

impl CreationTimes {
    fn requested(&mut self, now: Timestamp) {
        // A clock that stepped back begins anew.
        if now > self.last + CREATION_PATIENCE || now < self.since {
            self.since = now;
        }
        self.last = now;
    }
}

#[derive(Debug)]
pub(super) struct Creations {
    by_name: BTreeMap<CompactString, InFlightCreation>,
    /// How many have no response yet; the outcome of the others is unknown.
    in_flight: usize,
    times: CreationTimes,
    /// How many may be requested together: doubles with each batch that succeeds (CONST-5).
    window: u32,
    /// Consecutive refusals.
    refusals: u32,
    /// No creation is requested before this time, because the last one was refused.
    refused_until: Option<Timestamp>,
}

impl Default for Creations {
    fn default() -> Self {
        Self {
            by_name: BTreeMap::new(),
            in_flight: 0,
            times: CreationTimes::default(),
            window: 1,
            refusals: 0,
            refused_until: None,
        }
    }
}

impl Creations {
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// While one is in flight.
    pub fn times(&self) -> Option<CreationTimes> {
        Some(self.times).filter(|_| self.in_flight > 0)
    }

    pub fn any_unknown(&self) -> bool {
        self.by_name.len() > self.in_flight
    }

    pub fn is_unknown(&self, name: &str) -> bool {
        self.by_name.get(name).is_some_and(|creation| creation.retry_at.is_some())
    }

    pub fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    pub fn indexes(&self) -> impl Iterator<Item = CompletionIndex> {
        self.by_name.values().filter_map(|creation| creation.index)
    }

    pub fn unknown_indexes(&self) -> impl Iterator<Item = CompletionIndex> {
        self.by_name.values().filter(|creation| creation.retry_at.is_some()).filter_map(|creation| creation.index)
    }

    /// How many more may be requested. Those of unknown outcome take places, so that a server that fails every time
    /// gets no more of them.
    pub fn room(&self) -> usize {
        (self.window as usize).saturating_sub(self.by_name.len())
    }

    /// Until when no creation may be requested because the last one was refused.
    pub fn refused_until(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.refused_until = self.refused_until.filter(|until| now < *until);
        self.refused_until
    }

    pub fn begin(&mut self, name: CompactString, index: Option<CompletionIndex>, attempt: u32, now: Timestamp) {
        let creation = InFlightCreation { index, attempt, retry_at: None, listed: false, unknown: 0 };
        self.by_name.insert(name, creation);
        self.in_flight += 1;
        self.times.requested(now);
    }

    /// The creation has ended, or its Pod was observed.
    pub fn end(&mut self, name: &str) -> Option<InFlightCreation> {
        let creation = self.by_name.remove(name)?;
        self.in_flight -= usize::from(creation.retry_at.is_none());
        Some(creation)
    }

    pub fn succeeded(&mut self) {
        self.refusals = 0;
    }

    /// Whether a refusal of this creation proves that there is no Pod.
    pub fn refusal_is_certain(&self, name: &str) -> bool {
        self.by_name.get(name).is_none_or(|creation| creation.unknown == 0)
    }

    pub fn refused(&mut self, now: Timestamp) {
        self.refused_until = Some(now + doubling_delay(self.refusals));
        self.refusals = self.refusals.saturating_add(1);
        self.window = 1;
    }

    /// It is unknown whether the Pod was created: the creation is repeated later under the same name.
    pub fn outcome_unknown(&mut self, name: &str, now: Timestamp) {
        if let Some(creation) = self.by_name.get_mut(name) {
            self.in_flight -= usize::from(creation.retry_at.is_none());
            creation.retry_at = Some(now + doubling_delay(creation.unknown));
            creation.unknown = creation.unknown.saturating_add(1);
        }
    }

    /// The clock was set back: no retry is later than if the last response had come now.
    pub fn clock_set_back(&mut self, now: Timestamp) {
        let latest = now + doubling_delay(self.refusals.saturating_sub(1));
        self.refused_until = self.refused_until.map(|until| until.min(latest));
        for creation in self.by_name.values_mut() {
            let latest = now + doubling_delay(creation.unknown.saturating_sub(1));
            creation.retry_at = creation.retry_at.map(|at| at.min(latest));
        }
    }

    /// The next batch may be twice as large once this one succeeded (CONST-5).
    pub fn batch_ended(&mut self, limit: usize) {
        if self.refused_until.is_none() && self.in_flight == 0 {
            self.window = self.window.saturating_mul(2).min(u32::try_from(limit).unwrap_or(u32::MAX));
        }
    }

    /// Starts again those of unknown outcome that are due, and returns them with the time of the next one.
    pub fn retry(&mut self, now: Timestamp) -> (Vec<(CompactString, Option<CompletionIndex>)>, Option<Timestamp>) {
        let mut again = Vec::new();
        let mut next = None;
        if !self.any_unknown() {
            return (again, next);
        }
        for (name, creation) in &mut self.by_name {
            match creation.retry_at {
                Some(at) if at <= now => {
                    creation.retry_at = None;
                    creation.listed = false;
                    self.in_flight += 1;
                    self.times.requested(now);
                    again.push((name.clone(), creation.index));
                }
                Some(at) => next = Some(next.map_or(at, |known: Timestamp| known.min(at))),
                None => {}
            }
        }
        (again, next)
    }

    /// A list is requested now: it will contain the Pod of every creation carried out so far.
    pub fn list_begins(&mut self) {
        for creation in self.by_name.values_mut() {
            creation.listed = creation.retry_at.is_some();
        }
    }

    /// The names of those that a list has resolved: their Pods are in it, or do not exist.
    pub fn resolved_by_list(&self) -> Vec<CompactString> {
        self.by_name.iter().filter(|(_, creation)| creation.listed).map(|(name, _)| name.clone()).collect()
    }

    #[cfg(test)]
    pub fn widen(&mut self, window: u32) {
        self.window = window;
    }
}
