//! What can be observed of a running driver.

use std::time::Duration;

use crate::controller::{Call, Metric, Reply, Stream};
use crate::driver::api::WatchError;

/// Called from the driver's tasks: must not block.
pub trait Observer: Send + Sync + 'static {
    /// `decided_in`: how long the controller took for the input that led to the metric.
    fn metric(&self, _controller: &'static str, _metric: &Metric, _decided_in: Duration) {}
    /// A request received its response, or was given up.
    fn request(&self, _call: &Call, _reply: &Reply, _took: Duration) {}
    /// Requests waiting and in flight.
    fn load(&self, _controller: &'static str, _waiting: usize, _in_flight: usize) {}
    /// A stream is complete: its controller knows the whole state.
    fn synced(&self, _controller: &'static str, _stream: Stream) {}
    /// A stream has ended for this reason, and is opened again after a delay.
    fn stream_broken(&self, _controller: &'static str, _stream: Stream, _trouble: &WatchError) {}
    fn event_dropped(&self, _controller: &'static str) {}
}

/// Discards all observations.
pub struct NoopObserver;

impl Observer for NoopObserver {}
