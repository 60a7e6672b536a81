//! What the driver needs from a Kubernetes API: requests, and streams of changes. There are two implementations: an API
//! server over HTTP, and the registry of the same process.

use std::future::Future;
use std::time::Duration;

use tally_core::ids::Revision;
use tally_core::time::Timestamp;

use crate::controller::{Call, Object, Refusal, Reply, Stream};

pub trait Api: Send + Sync + 'static {
    type Events: Events;

    /// Carries out one request. Always ends: a request that takes too long is `Reply::Unknown`.
    fn call(&self, call: &Call) -> impl Future<Output = Response> + Send;

    /// Starts to follow a stream. If the server cannot send the state as part of a watch, the state is listed page by
    /// page and delivered in the same way.
    fn follow(&self, stream: Stream, from: Start) -> impl Future<Output = Result<Self::Events, WatchError>> + Send;
}

pub trait Events: Send {
    /// The next event; None when the stream has ended, as streams regularly do. Safe to cancel.
    fn next(&mut self) -> impl Future<Output = Option<StreamEvent>> + Send;

    /// The next event if it has come with the last one, so that a group of them is processed together.
    fn received(&mut self) -> Option<StreamEvent> {
        None
    }
}

#[derive(Clone, Debug)]
pub struct Response {
    pub reply: Reply,
    /// The server's clock.
    pub served_at: Option<Timestamp>,
    /// The server refused the request for now, and accepts a retry after this time.
    pub retry_after: Option<Duration>,
}

/// Where a stream starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the state, then its changes. The state must not be older than what has been observed already: another
    /// replica of the server may be behind.
    State { not_older_than: Revision },
    /// With the changes after this revision.
    Changes { after: Revision },
}

#[derive(Clone, Debug)]
pub enum StreamEvent {
    /// An object as it is now: part of the state, or added or modified.
    Object(Object),
    /// An object as it last was, with the revision of its removal.
    Gone(Object),
    /// Everything up to here has been delivered. `complete`: the requested state ends here.
    Reached { at: Revision, complete: bool },
    /// The stream ends, for this reason.
    Failed(WatchError),
}

#[derive(Clone, Debug)]
pub enum WatchError {
    /// The server no longer has this revision: start with the state.
    TooOld,
    Refused(Refusal),
    /// Why the stream cannot be followed, as text.
    Broken(String),
}
