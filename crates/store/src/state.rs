//! The store's state in memory: the newest entry of every key, in key order, and the events that led to it.
//!
//! The history is kept per first key segment (`pods`, `jobs`, ...) so that a reader of Jobs never scans Pods. It is
//! discarded oldest first over all segments together. An event shares its entries with the map by `Arc`, so the real
//! cost of the history is the entries that were replaced since: its byte limit counts those.
//!
//! A read at an older revision is the current state with the events after that revision undone.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::group::Account;
use crate::record::Entry;
use crate::{Event, Page, StoreOptions, TooOld};

/// An entry in the map, ordered and looked up by its own key, so that no key is stored twice.
struct ByKey(Entry);

impl Borrow<str> for ByKey {
    fn borrow(&self) -> &str {
        &self.0.key
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for ByKey {}

impl Hash for ByKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key.cmp(&other.0.key)
    }
}

/// The events of one segment, oldest first. `floor` is the newest revision discarded from it.
#[derive(Default)]
struct Log {
    events: VecDeque<Event>,
    floor: u64,
}

pub(crate) struct State {
    /// In key order, for ranges.
    entries: BTreeSet<ByKey>,
    /// The same, for reads of one key: each write reads its key several times, and among 100,000 objects a search in order
    /// looks at 17 keys in as many places of the memory.
    by_key: HashSet<ByKey, RandomState>,
    pub revision: u64,
    /// The sum of all entries' checksums. It is compared with the one in the account on disk.
    pub digest: u64,
    logs: HashMap<Arc<str>, Log, RandomState>,
    /// The number of entries of each segment.
    objects: HashMap<Box<str>, usize, RandomState>,
    /// The segment of every event in the history, oldest first: the order in which events are discarded.
    order: VecDeque<Arc<str>>,
    /// Bytes that only the history keeps alive.
    held: usize,
    /// The history of every segment is discarded up to this revision, also for segments that have no log yet.
    floor: u64,
    options: StoreOptions,
}

impl State {
    /// A state as found at start: there is no history, so nothing before `revision` can be requested.
    pub fn new(options: StoreOptions, revision: u64) -> State {
        State {
            entries: BTreeSet::new(),
            by_key: HashSet::default(),
            revision,
            digest: 0,
            logs: HashMap::default(),
            objects: HashMap::default(),
            order: VecDeque::new(),
            held: 0,
            floor: revision,
            options,
        }
    }

    /// Adds an entry found on disk. Returns false if the key was already there.
    pub fn load(&mut self, entry: Entry) -> bool {
        self.digest = self.digest.wrapping_add(entry.sum);
        let key = entry.key.clone();
        let new = self.entries.insert(ByKey(entry.clone()));
        if new {
            self.by_key.insert(ByKey(entry));
            self.add_to_count(&key, 1);
        }
        new
    }

    fn add_to_count(&mut self, key: &str, by: isize) {
        let name = segment(key);
        match self.objects.get_mut(name) {
            Some(count) => *count = count.saturating_add_signed(by),
            None => drop(self.objects.insert(name.into(), by.max(0).unsigned_abs())),
        }
    }

    /// The number of entries whose key begins with this segment.
    pub fn count(&self, segment: &str) -> usize {
        self.objects.get(segment).copied().unwrap_or(0)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.by_key.get(key).map(|found| &found.0)
    }

    /// All entries in key order, and the revision they are from.
    pub fn snapshot(&self) -> (Vec<Entry>, u64) {
        (self.entries.iter().map(|found| found.0.clone()).collect(), self.revision)
    }

    /// The account of this state.
    pub fn account(&self) -> Account {
        let revision = self.revision;
        Account { revision, follows: revision, objects: self.len() as u64, digest: self.digest }
    }

    /// Makes one durable write visible. The revision must be the next one.
    pub fn apply(&mut self, entry: Entry, deleted: bool) {
        debug_assert!(entry.revision > self.revision, "revisions only grow");
        self.revision = entry.revision;
        let previous = if deleted {
            self.by_key.remove(&*entry.key);
            self.entries.take(&*entry.key)
        } else {
            self.digest = self.digest.wrapping_add(entry.sum);
            self.by_key.replace(ByKey(entry.clone()));
            self.entries.replace(ByKey(entry.clone()))
        };
        let previous = previous.map(|was| was.0);
        if let Some(was) = &previous {
            self.digest = self.digest.wrapping_sub(was.sum);
        }
        match (&previous, deleted) {
            (None, false) => self.add_to_count(&entry.key, 1),
            (Some(_), true) => self.add_to_count(&entry.key, -1),
            _ => {}
        }
        let event = Event { revision: entry.revision, entry, deleted, previous };
        self.held += held(&event);
        let name = segment(&event.entry.key);
        let name = match self.logs.get_key_value(name) {
            Some((shared, _)) => shared.clone(),
            None => Arc::from(name),
        };
        self.order.push_back(name.clone());
        self.logs.entry(name).or_default().events.push_back(event);
        while self.order.len() > self.options.history || self.held > self.options.history_bytes {
            if !self.forget_oldest() {
                break;
            }
        }
    }

    /// Discards all events up to and including `before`, so that nothing older than `before` can be requested.
    pub fn compact(&mut self, before: u64) {
        let before = before.min(self.revision);
        while let Some(name) = self.order.front() {
            let oldest = self.logs.get(name).and_then(|log| log.events.front());
            if oldest.is_some_and(|event| event.revision > before) || !self.forget_oldest() {
                break;
            }
        }
        self.floor = self.floor.max(before);
    }

    fn forget_oldest(&mut self) -> bool {
        let Some(name) = self.order.pop_front() else { return false };
        let Some(log) = self.logs.get_mut(&name) else { return true };
        if let Some(event) = log.events.pop_front() {
            log.floor = event.revision;
            self.held = self.held.saturating_sub(held(&event));
        }
        // Memory that a burst allocated is freed once it is mostly empty; the margin prevents a reallocation at every
        // event.
        if log.events.capacity() > 1024 && log.events.len() < log.events.capacity() / 4 {
            log.events.shrink_to(log.events.len() * 2);
        }
        true
    }

    /// The oldest revision from which on every read and watch can be served, whatever its prefix.
    pub fn compacted(&self) -> u64 {
        self.logs.values().map(|log| log.floor).fold(self.floor, u64::max)
    }

    fn logs_of<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Log> {
        let (one, many) = match prefix.split_once('/') {
            Some((name, _)) => (self.logs.get(name), None),
            None => (None, Some(self.logs.iter().filter(move |(name, _)| name.starts_with(prefix)))),
        };
        one.into_iter().chain(many.into_iter().flatten().map(|(_, log)| log))
    }

    /// An error if the history under `prefix` does not reach back to just after `revision`.
    pub fn reaches(&self, prefix: &str, revision: u64) -> Result<(), TooOld> {
        let oldest = self.logs_of(prefix).map(|log| log.floor).fold(self.floor, u64::max);
        if revision < oldest { Err(TooOld { requested: revision, oldest }) } else { Ok(()) }
    }

    /// Up to `most` events under `prefix` after `after`, in order, and whether there are more.
    pub fn events(&self, prefix: &str, after: u64, most: usize) -> Result<(Vec<Event>, bool), TooOld> {
        self.reaches(prefix, after)?;
        let mut found = Vec::new();
        let mut logs = 0;
        for log in self.logs_of(prefix) {
            logs += 1;
            let from = log.events.partition_point(|event| event.revision <= after);
            let matching = log.events.range(from..).filter(|event| event.entry.key.starts_with(prefix));
            found.extend(matching.take(most.saturating_add(1)).cloned());
        }
        if logs > 1 {
            found.sort_unstable_by_key(|event| event.revision);
        }
        let more = found.len() > most;
        found.truncate(most);
        Ok((found, more))
    }

    /// The entries under `prefix` with a key greater than `after`, as they were at revision `at`.
    pub fn range(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: Option<usize>,
        at: Option<u64>,
    ) -> Result<Page, TooOld> {
        let revision = at.unwrap_or(self.revision).min(self.revision);
        self.reaches(prefix, revision)?;
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let end = end_of(prefix);
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        if is_empty(start, end) {
            return Ok(Page { entries: Vec::new(), revision, more: false, remaining: 0 });
        }
        let now = self.entries.range::<str, _>((start, end)).map(|found| &found.0);
        let limit = limit.unwrap_or(usize::MAX);

        let (entries, remaining) = if revision == self.revision {
            let mut now = now;
            let entries: Vec<Entry> = now.by_ref().take(limit).cloned().collect();
            (entries, now.count())
        } else {
            // The oldest event after `revision` contains the state of its key at `revision`; going backwards, it comes
            // last.
            let mut undone: BTreeMap<&str, Option<&Entry>> = BTreeMap::new();
            for log in self.logs_of(prefix) {
                let from = log.events.partition_point(|event| event.revision <= revision);
                for event in log.events.range(from..).rev().filter(|event| within(&event.entry.key, start, end)) {
                    undone.insert(&event.entry.key, event.previous.as_ref());
                }
            }
            let mut then = undo(now, undone);
            let entries: Vec<Entry> = then.by_ref().take(limit).cloned().collect();
            (entries, then.count())
        };
        Ok(Page { entries, revision, more: remaining > 0, remaining })
    }
}

/// Merges the current entries with what the undone events put back (or remove), in key order.
fn undo<'a>(
    now: impl Iterator<Item = &'a Entry>,
    undone: BTreeMap<&'a str, Option<&'a Entry>>,
) -> impl Iterator<Item = &'a Entry> {
    let mut now = now.peekable();
    let mut undone = undone.into_iter().peekable();
    std::iter::from_fn(move || {
        loop {
            let order = match (now.peek(), undone.peek()) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(entry), Some((key, _))) => (*entry.key).cmp(key),
            };
            if order == Ordering::Less {
                return now.next();
            }
            if order == Ordering::Equal {
                now.next();
            }
            if let Some((_, Some(entry))) = undone.next() {
                return Some(entry);
            }
        }
    })
}

/// The first segment of a key: everything before the first slash.
pub(crate) fn segment(key: &str) -> &str {
    key.split_once('/').map_or(key, |(first, _)| first)
}

/// The smallest key after all keys with this prefix; none if there is no such key.
fn end_of(prefix: &str) -> Option<String> {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        let next = match last {
            '\u{d7ff}' => Some('\u{e000}'),
            last => char::from_u32(last as u32 + 1),
        };
        if let Some(next) = next {
            end.push(next);
            return Some(end);
        }
    }
    None
}

/// Whether `BTreeSet::range` would panic on this range: its start is at or after its end.
fn is_empty(start: Bound<&str>, end: Bound<&str>) -> bool {
    match (start, end) {
        (Bound::Included(start) | Bound::Excluded(start), Bound::Excluded(end)) => start >= end,
        _ => false,
    }
}

fn within(key: &str, start: Bound<&str>, end: Bound<&str>) -> bool {
    std::ops::RangeBounds::<str>::contains(&(start, end), key)
}

/// The bytes that only this event keeps in memory: the entry it replaced, and the last state of a deleted one.
fn held(event: &Event) -> usize {
    let previous = event.previous.as_ref().map_or(0, |entry| entry.weight());
    previous + if event.deleted { event.entry.weight() } else { 0 }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_prefix_is_the_first_key_beyond_it() {
        for (prefix, end) in [
            ("pods/", Some("pods0")),
            ("", None),
            ("a\u{10ffff}", Some("b")),
            ("\u{10ffff}", None),
            ("\u{d7ff}", Some("\u{e000}")),
        ] {
            assert_eq!(end_of(prefix).as_deref(), end, "{prefix:?}");
        }
    }
}
