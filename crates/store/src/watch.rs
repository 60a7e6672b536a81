//! Watchers: positions in the shared history, and the notifications that wake them.

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
    /// Whether there are more events: take again before waiting for a change.
    pub more: bool,
}

/// A cursor into the history. It owns no events and no lock.
pub struct Watcher {
    shared: Arc<Shared>,
    signal: Arc<Signal>,
    prefix: Box<str>,
    position: u64,
}

impl Watcher {
    pub(crate) fn new(shared: Arc<Shared>, prefix: &str, after: u64) -> Watcher {
        let signal = shared.notifier.of(prefix);
        Watcher { shared, signal, prefix: prefix.into(), position: after }
    }

    /// Takes up to `most` of the events after the position. The position moves to the last one taken or, if none is
    /// left, to the newest revision of the store. Returns `TooOld` if the history no longer reaches back to the
    /// position, which then does not move.
    pub fn take(&mut self, most: usize) -> Result<Batch, TooOld> {
        // If the store has no newer revision there is nothing to look for; a position ahead of the store waits for it.
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
    /// writes under other prefixes, so it can be sent as a bookmark.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether the store has reached the position. If not, the watcher waits for a future revision.
    pub fn has_reached_its_position(&self) -> bool {
        self.position <= self.shared.revision.load(Ordering::Acquire)
    }

    /// Waits until there is a write after the position among the keys of the same kind (the prefix's first segment).
    /// The write may be outside the prefix: then `take` returns nothing. The future may be dropped and created again at
    /// any time.
    pub async fn changed(&self) {
        loop {
            // Subscribes here, before the check below, so that a notification between the check and the await is not
            // missed.
            let rung = self.signal.notify.notified();
            if self.signal.newest.load(Ordering::Acquire) > self.position {
                return;
            }
            rung.await;
        }
    }

    /// Waits until there is a write after the position, of any kind: `take` will move the position, if only for a
    /// bookmark. Every write wakes it, so it must not be used for permanent waiting.
    pub async fn moved(&self) {
        loop {
            let rung = self.shared.notifier.all.notify.notified();
            if self.shared.revision.load(Ordering::Acquire) > self.position {
                return;
            }
            rung.await;
        }
    }
}

/// One notifier per segment, so that a watcher of Jobs is not woken by Pods, and one for watchers across segments.
#[derive(Default)]
pub(crate) struct Notifier {
    segments: Mutex<HashMap<Box<str>, Arc<Signal>>>,
    all: Arc<Signal>,
}

#[derive(Default)]
struct Signal {
    notify: Notify,
    /// The newest revision it notified for.
    newest: AtomicU64,
}

impl Signal {
    fn notify(&self, revision: u64) {
        // With the memory backend, two writers may get here out of order.
        self.newest.fetch_max(revision, Ordering::AcqRel);
        self.notify.notify_waiters();
    }
}

impl Notifier {
    fn of(&self, prefix: &str) -> Arc<Signal> {
        let Some((segment, _)) = prefix.split_once('/') else { return self.all.clone() };
        let mut segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(signal) = segments.get(segment) {
            return signal.clone();
        }
        segments.entry(segment.into()).or_default().clone()
    }

    /// Notifies the subscribers of new entries, given in order of revision; once per segment.
    pub fn notify<'a>(&self, entries: impl DoubleEndedIterator<Item = &'a Entry>) {
        let mut rung: Vec<&str> = Vec::new();
        let segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in entries.rev() {
            if rung.is_empty() {
                self.all.notify(entry.revision);
            }
            let name = segment(&entry.key);
            if !rung.contains(&name) {
                rung.push(name);
                if let Some(signal) = segments.get(name) {
                    signal.notify(entry.revision);
                }
            }
        }
    }
}
