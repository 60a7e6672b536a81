//! What one stream of objects delivers to its controller, and where it starts again after it broke. Pure: `follow`
//! calls the API, the simulator calls its own network.
//!
//! The view of a process never goes back: a state older than one that was complete before is refused, because a Pod
//! whose release was observed must not show its finalizer again.

use std::time::Duration;

use tally_core::ids::Revision;

use super::api::{Start, StreamEvent, WatchError};
use crate::cache::Meta;
use crate::controller::{Input, Object, Stream};

/// The delay after consecutive failures: 50 ms, 100 ms, 200 ms ... 25.6 s.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const DOUBLINGS: u32 = 9;
/// A stream that brought neither a change nor a complete list, and was open for less than this, has failed: reopened at
/// once, a watch that a proxy closes after its first bookmark would keep the server busy.
const REGULAR: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Reflector {
    stream: Stream,
    revision: Revision,
    /// The newest object; its revision is decoded only when it is needed.
    newest: Option<Object>,
    /// The state has been received completely.
    complete: bool,
    /// No state older than this is accepted.
    seen: Revision,
    /// A change, or the end of a list, was received since the stream was opened. Bookmarks do not count.
    useful: bool,
    failures: u32,
}

/// The effect of an event of the stream.
#[derive(Debug)]
pub enum Word {
    Tell(Input),
    /// The state is complete: the controller knows all objects.
    Synced(Input),
    /// Nothing for the controller.
    Ignore,
    /// The stream cannot be used any more.
    Broken(WatchError),
}

/// What to do after the end of a stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Streams end regularly; that is no failure if this one delivered something, or was open for a while.
    Again,
    /// Not a failure of the network either: the server no longer has the revision, and is asked for its state at once.
    Relist,
    After(Duration),
}

impl Reflector {
    pub fn new(stream: Stream) -> Self {
        let (revision, seen) = (Revision(0), Revision(0));
        Self { stream, revision, newest: None, complete: false, seen, useful: false, failures: 0 }
    }

    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// Where to open the stream.
    pub fn start(&mut self) -> Start {
        self.settle();
        self.useful = false;
        if self.complete { Start::Changes { after: self.revision } } else { Start::State { not_older_than: self.seen } }
    }

    /// The stream is open.
    pub fn opened(&self) -> Option<Input> {
        (!self.complete).then_some(Input::Init(self.stream.kind))
    }

    pub fn hears(&mut self, heard: StreamEvent) -> Word {
        let kind = self.stream.kind;
        let word = match heard {
            StreamEvent::Object(object) => {
                self.newest = self.complete.then(|| object.clone());
                Word::Tell(Input::Apply(kind, object))
            }
            StreamEvent::Gone(object) => {
                self.newest = self.complete.then(|| object.clone());
                Word::Tell(Input::Delete(kind, object))
            }
            StreamEvent::Reached { at, complete } => {
                self.settle();
                if self.complete {
                    self.revision = self.revision.max(at);
                    return Word::Tell(Input::Bookmark(kind, at));
                } else if !complete {
                    // A bookmark inside a list: objects up to its revision may still follow. It is no position.
                    return Word::Ignore;
                } else if at < self.seen {
                    let older = format!("the state is of revision {}, but {} was seen before", at.0, self.seen.0);
                    self.useful = false;
                    return Word::Broken(WatchError::Broken(older));
                } else {
                    self.revision = at;
                    self.complete = true;
                    Word::Synced(Input::InitDone(kind, at))
                }
            }
            StreamEvent::Failed(trouble) => return Word::Broken(trouble),
        };
        // Parts of a list that is never complete are no success either.
        self.useful = self.complete;
        word
    }

    /// The stream has ended after `open_for`, or could not be opened. None: it ended without an error.
    pub fn ends(&mut self, trouble: Option<&WatchError>, open_for: Duration) -> Next {
        let regular = self.useful || open_for >= REGULAR;
        if regular {
            self.failures = 0;
        }
        match trouble {
            None if regular => Next::Again,
            Some(WatchError::TooOld) if self.complete => {
                self.settle();
                self.complete = false;
                self.revision = Revision(0);
                Next::Relist
            }
            _ => {
                let wait = FIRST_WAIT * (1 << self.failures.min(DOUBLINGS));
                self.failures += 1;
                Next::After(wait)
            }
        }
    }

    fn settle(&mut self) {
        if let Some(object) = self.newest.take() {
            let revision = Meta::of(&object).map_or(Revision(0), |meta| meta.revision());
            self.revision = self.revision.max(revision);
        }
        if self.complete {
            self.seen = self.seen.max(self.revision);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::Kind;

    fn object(revision: u64) -> StreamEvent {
        let text = format!("{{\"metadata\":{{\"name\":\"p\",\"uid\":\"u\",\"resourceVersion\":\"{revision}\"}}}}");
        StreamEvent::Object(text.into())
    }

    fn bookmark(at: u64) -> StreamEvent {
        StreamEvent::Reached { at: Revision(at), complete: false }
    }

    fn listed(reflector: &mut Reflector, at: u64) {
        assert!(matches!(reflector.start(), Start::State { .. }));
        assert!(matches!(reflector.opened(), Some(Input::Init(_))));
        assert!(matches!(reflector.hears(object(at)), Word::Tell(Input::Apply(..))));
        let word = reflector.hears(StreamEvent::Reached { at: Revision(at), complete: true });
        assert!(matches!(word, Word::Synced(Input::InitDone(_, revision)) if revision == Revision(at)));
    }

    #[test]
    fn a_stream_that_ends_goes_on_where_it_was() {
        let mut reflector = Reflector::new(Stream::of(Kind::POD));
        listed(&mut reflector, 7);
        reflector.hears(object(9));
        assert_eq!(reflector.ends(None, Duration::ZERO), Next::Again);
        assert_eq!(reflector.start(), Start::Changes { after: Revision(9) });
        assert!(reflector.opened().is_none());
        reflector.hears(bookmark(12));
        assert_eq!(reflector.ends(Some(&WatchError::Broken(String::new())), REGULAR), Next::After(FIRST_WAIT));
        assert_eq!(reflector.start(), Start::Changes { after: Revision(12) });
    }

    #[test]
    fn a_list_that_breaks_begins_anew_and_its_objects_do_not_count_as_reached() {
        let mut reflector = Reflector::new(Stream::of(Kind::POD));
        reflector.start();
        reflector.hears(object(50));
        // A server that cannot complete a list is not asked for another one at once.
        assert_eq!(reflector.ends(Some(&WatchError::TooOld), Duration::ZERO), Next::After(FIRST_WAIT));
        assert_eq!(reflector.start(), Start::State { not_older_than: Revision(0) });
    }

    #[test]
    fn history_that_is_gone_means_a_list_not_older_than_what_was_seen() {
        let mut reflector = Reflector::new(Stream::of(Kind::POD));
        listed(&mut reflector, 7);
        reflector.hears(object(9));
        assert_eq!(reflector.ends(Some(&WatchError::TooOld), Duration::ZERO), Next::Relist);
        assert_eq!(reflector.start(), Start::State { not_older_than: Revision(9) });
        let word = reflector.hears(StreamEvent::Reached { at: Revision(8), complete: true });
        assert!(matches!(word, Word::Broken(WatchError::Broken(_))), "{word:?}");
        assert_eq!(reflector.start(), Start::State { not_older_than: Revision(9) });
        let word = reflector.hears(StreamEvent::Reached { at: Revision(9), complete: true });
        assert!(matches!(word, Word::Synced(Input::InitDone(_, Revision(9)))), "{word:?}");
    }

    #[test]
    fn failures_in_a_row_wait_longer_and_one_success_forgives_them() {
        let mut reflector = Reflector::new(Stream::of(Kind::POD));
        let broken = WatchError::Broken(String::new());
        let waits: Vec<_> = (0..12)
            .map(|_| {
                reflector.start();
                reflector.ends(Some(&broken), Duration::ZERO)
            })
            .collect();
        let after = |millis| Next::After(Duration::from_millis(millis));
        assert_eq!(waits[..3], [after(50), after(100), after(200)]);
        assert_eq!(waits[11], after(25_600));
        reflector.start();
        let silent = reflector.ends(None, Duration::ZERO);
        assert_eq!(silent, after(25_600), "a stream that says nothing is no success");
        listed(&mut reflector, 7);
        assert_eq!(reflector.ends(Some(&broken), Duration::ZERO), after(50));
    }

    /// Only the bookmark that says so ends a list that is streamed. Any other says nothing: an object with an older
    /// revision may still follow.
    #[test]
    fn a_bookmark_inside_a_list_neither_ends_it_nor_is_a_position() {
        let mut reflector = Reflector::new(Stream::of(Kind::POD));
        reflector.start();
        assert!(matches!(reflector.hears(object(5)), Word::Tell(Input::Apply(..))));
        assert!(matches!(reflector.hears(bookmark(40)), Word::Ignore));
        assert!(matches!(reflector.hears(object(3)), Word::Tell(Input::Apply(..))));
        reflector.ends(None, Duration::ZERO);
        assert_eq!(reflector.start(), Start::State { not_older_than: Revision(0) }, "the list was not complete");
        assert!(matches!(reflector.opened(), Some(Input::Init(_))));
        assert!(matches!(reflector.hears(bookmark(41)), Word::Ignore));
        let word = reflector.hears(StreamEvent::Reached { at: Revision(8), complete: true });
        assert!(matches!(word, Word::Synced(Input::InitDone(_, Revision(8)))), "{word:?}");
        assert_eq!(reflector.start(), Start::Changes { after: Revision(8) }, "not after the bookmark");
        assert!(matches!(reflector.hears(bookmark(9)), Word::Tell(Input::Bookmark(_, Revision(9)))));
    }

    #[test]
    fn a_watch_that_brings_only_bookmarks_and_ends_soon_is_reopened_later_each_time() {
        let mut reflector = Reflector::new(Stream::of(Kind::POD));
        listed(&mut reflector, 7);
        reflector.ends(None, Duration::ZERO);
        let mut next = |at: u64, open_for: Duration| {
            reflector.start();
            reflector.hears(bookmark(at));
            reflector.ends(None, open_for)
        };
        let soon = REGULAR - Duration::from_millis(1);
        let waits: Vec<Next> = (0..12).map(|turn| next(10 + turn, soon)).collect();
        let after = |millis| Next::After(Duration::from_millis(millis));
        assert_eq!(waits[..3], [after(50), after(100), after(200)]);
        assert_eq!(waits[11], after(25_600));
        assert_eq!(next(30, REGULAR), Next::Again, "a quiet watch that ends after minutes is reopened at once");
        assert_eq!(next(31, soon), after(50));
        assert_eq!(reflector.start(), Start::Changes { after: Revision(31) }, "each bookmark is a position");
    }
}
