//! Watch: the initial state if requested, then every change in order, with bookmarks soon after writes to other
//! objects.

use std::collections::VecDeque;
use std::time::Duration;

use tally_api::kinds::Resource;
use tally_api::options::{ReadAt, WatchOptions};
use tally_api::selector::Filter;
use tally_api::status_error::StatusError;
use tally_store::{Entry, Event, TooOld, Watcher};
use tokio::time::{Instant, sleep_until};

use crate::{Object, Registry, Result, Target, decoded, read, view};

/// The shortest time between two bookmarks on a quiet stream. A reader waits no longer than this to learn that it has
/// seen everything up to a write it knows of; a busy store sends no more than ten bookmarks per second per stream.
const BOOKMARK_EVERY: Duration = Duration::from_millis(100);

/// How long a watch waits for a requested revision that the store has not reached. Writes come quickly; if this
/// revision does not, the reader got it elsewhere, or from a store that is lost, and should list again.
const REACHED_WITHIN: Duration = Duration::from_secs(3);

/// Objects and events processed at a time, so that one stream does not block the others.
const BATCH: usize = 256;

#[derive(Debug)]
pub enum WatchEvent {
    Added(Object),
    Modified(Object),
    Deleted(Object),
    /// The stream has reached this revision. `initial_events_end`: the requested initial state is complete.
    Bookmark {
        revision: u64,
        initial_events_end: bool,
    },
    /// The last event of a stream: why it failed.
    Failed(StatusError),
}

/// A watch in progress. Dropping it ends it.
pub struct WatchStream {
    resource: &'static Resource,
    filter: Filter,
    watcher: Watcher,
    /// The rest of the initial state. It is filtered only when the reader asks for more.
    state: std::vec::IntoIter<Entry>,
    /// The revision of that state, if the reader is to get a bookmark at its end.
    state_ends: Option<u64>,
    ready: VecDeque<WatchEvent>,
    bookmarks: bool,
    bookmark_every: Duration,
    /// The newest revision that was sent to the reader, in an event or a bookmark.
    told: u64,
    next_bookmark: Option<Instant>,
    ends: Option<Instant>,
    unreached: Option<Unreached>,
    failed: bool,
}

/// A revision that is not reached yet, and the error to send if it is not reached in time.
struct Unreached {
    by: Instant,
    failure: StatusError,
}

impl Registry {
    pub fn watch(&self, target: Target<'_>, options: &WatchOptions) -> Result<WatchStream> {
        let filter = Filter::parse(target.resource, &options.label_selector, &options.field_selector)?;
        let from = options.from.filter(|revision| *revision > 0);
        let wants_state = options.initial_events.unwrap_or(from.is_none());
        let prefix = target.prefix();
        let (mut state, mut state_ends, mut ready) = (Vec::new(), None, VecDeque::new());
        let mut start = from.unwrap_or_else(|| self.store.revision());
        let unreached = from.and_then(|revision| {
            let failure = self.check_reached(ReadAt::NotOlderThan(revision)).err()?;
            Some(Unreached { by: Instant::now() + REACHED_WITHIN, failure })
        });
        if let (true, Some(unreached)) = (wants_state, &unreached) {
            ready.push_back(WatchEvent::Failed(unreached.failure.clone()));
        } else if wants_state {
            let page = self.store.range(&prefix, None, None, None).map_err(read::gone)?;
            start = page.revision;
            state = page.entries;
            state_ends = (options.initial_events == Some(true) && options.bookmarks).then_some(start);
        }
        let (watcher, failed) = match self.store.watch(&prefix, start) {
            Ok(watcher) => (watcher, wants_state && unreached.is_some()),
            // A watch that cannot start reports the error in the stream: clients look for it there.
            Err(too_old) => {
                ready.push_back(WatchEvent::Failed(read::gone(too_old)));
                (self.store.watch(&prefix, self.store.revision()).map_err(read::gone)?, true)
            }
        };
        Ok(WatchStream {
            resource: target.resource,
            filter,
            watcher,
            state: state.into_iter(),
            state_ends,
            ready,
            bookmarks: options.bookmarks,
            bookmark_every: BOOKMARK_EVERY,
            told: start,
            next_bookmark: None,
            // A deadline that the clock cannot represent never comes.
            ends: options.timeout_seconds.and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds))),
            unreached,
            failed,
        })
    }
}

impl WatchStream {
    /// For a reader to which frequent bookmarks cost little.
    pub fn bookmarks_every(self, pace: Duration) -> Self {
        Self { bookmark_every: pace, ..self }
    }

    /// The next event; None after the requested timeout. Cancel safe.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.failed {
                return None;
            }
            if self.look() {
                if self.ready.is_empty() {
                    // A whole batch was filtered and nothing matched: other tasks get a chance to run.
                    tokio::task::yield_now().await;
                }
                continue;
            }
            let behind = self.bookmarks && self.watcher.position() > self.told;
            let now = Instant::now();
            if behind && self.next_bookmark.is_none_or(|next| next <= now) {
                self.next_bookmark = Some(now + self.bookmark_every);
                return Some(self.bookmark());
            }
            // If `behind`, it is already known that the store has a newer revision. Then only the time for a bookmark
            // is awaited, so that a busy store does not wake a quiet stream more often.
            let wake = if behind { self.next_bookmark } else { None };
            tokio::select! {
                () = self.watcher.changed() => {}
                () = self.watcher.moved(), if self.bookmarks && !behind => {}
                () = at(wake) => {}
                () = at(self.unreached.as_ref().map(|unreached| unreached.by)) => self.give_up(),
                () = at(self.ends) => return None,
            }
        }
    }

    /// The next event of those that were found together with the last one.
    pub fn next_ready(&mut self) -> Option<WatchEvent> {
        self.ready.pop_front()
    }

    /// The next event if there is one now, with unpaced bookmarks: for a reader with its own clock.
    pub fn try_next(&mut self) -> Option<WatchEvent> {
        while self.ready.is_empty() && !self.failed && self.look() {}
        if let Some(event) = self.ready.pop_front() {
            return Some(event);
        }
        (!self.failed && self.bookmarks && self.watcher.position() > self.told).then(|| self.bookmark())
    }

    /// Fails the stream if the requested revision is still not reached.
    fn give_up(&mut self) {
        let unreached = self.unreached.take();
        if let Some(unreached) = unreached.filter(|_| !self.watcher.has_reached_its_position()) {
            self.failed = true;
            self.ready.push_back(WatchEvent::Failed(unreached.failure));
        }
    }

    fn bookmark(&mut self) -> WatchEvent {
        self.told = self.watcher.position();
        WatchEvent::Bookmark { revision: self.told, initial_events_end: false }
    }

    /// Turns a few more objects or events into watch events. Returns false if there are no more.
    fn look(&mut self) -> bool {
        if self.state.len() > 0 {
            for entry in self.state.by_ref().take(BATCH) {
                if self.filter.matches_stored(self.resource, &entry.value) {
                    self.ready.push_back(WatchEvent::Added(view::object(self.resource, &entry)));
                }
            }
            return true;
        }
        if let Some(revision) = self.state_ends.take() {
            self.ready.push_back(WatchEvent::Bookmark { revision, initial_events_end: true });
            return true;
        }
        let before = self.watcher.position();
        match self.watcher.take(BATCH) {
            Ok(batch) => {
                for event in &batch.events {
                    if let Some(told) = tell(self.resource, &self.filter, event) {
                        self.told = event.revision;
                        self.ready.push_back(told);
                    }
                }
                self.watcher.position() != before
            }
            Err(too_old) => {
                self.fail(too_old);
                true
            }
        }
    }

    fn fail(&mut self, too_old: TooOld) {
        self.failed = true;
        self.ready.push_back(WatchEvent::Failed(read::gone(too_old)));
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// What a change means for a watch with this selector: an object can start or stop matching it.
fn tell(resource: &'static Resource, filter: &Filter, event: &Event) -> Option<WatchEvent> {
    let all = filter.is_everything();
    let shows = |entry: &Entry| {
        all || match decoded::tree(entry) {
            Some(tree) => filter.matches_object(resource, &tree),
            None => filter.matches_stored(resource, &entry.value),
        }
    };
    let object = || view::object(resource, &event.entry);
    let was = event.previous.as_ref().is_some_and(&shows);
    let is = !event.deleted && shows(&event.entry);
    match (was, is) {
        (false, false) => None,
        (false, true) => Some(WatchEvent::Added(object())),
        (true, true) => Some(WatchEvent::Modified(object())),
        (true, false) if event.deleted => Some(WatchEvent::Deleted(object())),
        // The object no longer matches: the reader gets a delete event with the last matching state, at the revision of
        // the change.
        (true, false) => Some(WatchEvent::Deleted(view::object_at(resource, event.previous.as_ref()?, event.revision))),
    }
}
