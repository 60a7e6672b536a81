//! What the driver needs of a Kubernetes API: requests, and streams of changes. There are two: an API server over HTTP,
//! and the registry of the same process.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use tally_core::ids::Revision;
use tally_core::time::Timestamp;

use crate::controller::{Call, Refusal, Reply, Stream};

pub trait Api: Send + Sync + 'static {
    type Events: Events;

    /// Carries out one request. Comes to an end by itself: what takes too long is `Reply::Unknown`.
    fn call(&self, call: &Call) -> impl Future<Output = Response> + Send;

    /// Begins to follow a stream. Where the server cannot send a state as part of a watch, the state is listed page by
    /// page and heard all the same.
    fn follow(&self, stream: Stream, from: Start) -> impl Future<Output = Result<Self::Events, Trouble>> + Send;
}

pub trait Events: Send {
    /// The next event; None when the stream is over, as streams are now and then. Safe to cancel.
    fn next(&mut self) -> impl Future<Output = Option<Heard>> + Send;
}

#[derive(Clone, Debug)]
pub struct Response {
    pub reply: Reply,
    /// The server's clock.
    pub served_at: Option<Timestamp>,
    /// Not now, says the server, but after this time.
    pub retry_after: Option<Duration>,
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the state, then the changes of it. The state must not be older than what has been seen already: another
    /// replica of the server may be behind.
    State { not_older_than: Revision },
    /// With the changes after this revision.
    Changes { after: Revision },
}

#[derive(Clone, Debug)]
pub enum Heard {
    /// An object as it is: of the state, or added or modified.
    Object(Bytes),
    /// An object as it last was, with the revision of its removal.
    Gone(Bytes),
    /// Everything up to here has been heard. `complete`: the state asked for ends here.
    Reached { at: Revision, complete: bool },
    /// The stream ends, for this reason.
    Failed(Trouble),
}

#[derive(Clone, Debug)]
pub enum Trouble {
    /// The server does not remember that far back: begin with the state.
    TooOld,
    Refused(Refusal),
    /// What is in the way, in words.
    Broken(String),
}
