//! Watchers: positions in the shared history, and the bells that wake them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::record::Entry;
use crate::state::segment;
use crate::{Event, Shared, TooOld};

/// Events taken from a watcher.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// In order of revision, each exactly once.
    pub events: Vec<Event>,
    /// Whether more are waiting: take again before waiting for a change.
    pub more: bool,
}

/// A cursor into the history. It holds no events and no lock.
pub struct Watcher {
    shared: Arc<Shared>,
    bell: Arc<Bell>,
    prefix: Box<str>,
    position: u64,
}

impl Watcher {
    pub(crate) fn new(shared: Arc<Shared>, prefix: &str, after: u64) -> Watcher {
        let bell = shared.bells.of(prefix);
        Watcher { shared, bell, prefix: prefix.into(), position: after }
    }

    /// Up to `most` of the events after the position, which moves to the last one taken - or, when none is left, to
    /// the newest revision of the store. `TooOld` when the history no longer reaches back to the position, which then
    /// stays where it is.
    pub fn take(&mut self, most: usize) -> Result<Batch, TooOld> {
        // With nothing new anywhere there is nothing to look for; a position ahead of the store is one to wait at.
        if self.position >= self.shared.revision.load(Ordering::Acquire) {
            return Ok(Batch::default());
        }
        let state = self.shared.read();
        let (events, more) = state.events(&self.prefix, self.position, most)?;
        self.position = match events.last() {
            Some(last) if more => last.revision,
            _ if more => self.position,
            _ => state.revision,
        };
        Ok(Batch { events, more })
    }

    /// Everything under the prefix up to this revision has been taken. It advances with [`Watcher::take`], also over
    /// writes under other prefixes: a bookmark can be made of it.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether the store has come as far as the position. If not, the watcher waits at a revision of the future.
    pub fn has_reached_its_position(&self) -> bool {
        self.position <= self.shared.revision.load(Ordering::Acquire)
    }

    /// Waits until there was a write after the position among the keys of the same kind (the prefix's first segment).
    /// It may be one outside the prefix: then `take` gives nothing. May be dropped and called again at any time.
    pub async fn changed(&self) {
        loop {
            // Listens from here on, before it is awaited: a bell that rings after the look below is heard.
            let rung = self.bell.notify.notified();
            if self.bell.newest.load(Ordering::Acquire) > self.position {
                return;
            }
            rung.await;
        }
    }

    /// Waits until there was a write after the position, of any kind: `take` will move the position, if only for a
    /// bookmark. Every write wakes it, so it is not for waiting all the time.
    pub async fn moved(&self) {
        loop {
            let rung = self.shared.bells.all.notify.notified();
            if self.shared.revision.load(Ordering::Acquire) > self.position {
                return;
            }
            rung.await;
        }
    }
}

/// One bell a segment, so that a watcher of Jobs is not woken by Pods; and one for those who watch across segments.
#[derive(Default)]
pub(crate) struct Bells {
    segments: Mutex<HashMap<Box<str>, Arc<Bell>>>,
    all: Arc<Bell>,
}

#[derive(Default)]
struct Bell {
    notify: Notify,
    /// The newest revision it rang for.
    newest: AtomicU64,
}

impl Bell {
    fn ring(&self, revision: u64) {
        // Two writers in memory may come here in the other order.
        self.newest.fetch_max(revision, Ordering::AcqRel);
        self.notify.notify_waiters();
    }
}

impl Bells {
    fn of(&self, prefix: &str) -> Arc<Bell> {
        let Some((segment, _)) = prefix.split_once('/') else { return self.all.clone() };
        let mut segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bell) = segments.get(segment) {
            return bell.clone();
        }
        segments.entry(segment.into()).or_default().clone()
    }

    /// Rings for new entries, given in order of revision; once for each segment.
    pub fn ring<'a>(&self, entries: impl DoubleEndedIterator<Item = &'a Entry>) {
        let mut rung: Vec<&str> = Vec::new();
        let segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in entries.rev() {
            if rung.is_empty() {
                self.all.ring(entry.revision);
            }
            let name = segment(&entry.key);
            if !rung.contains(&name) {
                rung.push(name);
                if let Some(bell) = segments.get(name) {
                    bell.ring(entry.revision);
                }
            }
        }
    }
}
