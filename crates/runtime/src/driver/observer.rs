//! What can be seen of a driver at work.

use std::time::Duration;

use crate::controller::{Call, Metric, Reply, Stream};
use crate::driver::api::Trouble;

/// Called from the driver's tasks: must not wait.
pub trait Observer: Send + Sync + 'static {
    /// `decided_in`: how long the controller took for the input this came of.
    fn metric(&self, _controller: &'static str, _metric: &Metric, _decided_in: Duration) {}
    /// A request was answered, or given up.
    fn request(&self, _call: &Call, _reply: &Reply, _took: Duration) {}
    /// Requests waiting and under way.
    fn load(&self, _controller: &'static str, _waiting: usize, _in_flight: usize) {}
    /// A stream is complete: its controller knows the whole state.
    fn synced(&self, _controller: &'static str, _stream: Stream) {}
    /// A stream has ended for this reason, and begins anew after a while.
    fn stream_broken(&self, _controller: &'static str, _stream: Stream, _trouble: &Trouble) {}
    fn event_dropped(&self, _controller: &'static str) {}
}

/// Looks away.
pub struct Silent;

impl Observer for Silent {}
