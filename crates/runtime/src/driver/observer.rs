//! What can be observed of a running driver.

use std::time::Duration;

use crate::controller::{Call, Metric, Reply, Stream};
use crate::driver::api::WatchError;

/// Called from the driver's tasks: must not block.
pub trait Observer: Send + Sync + 'static {
    /// `took`: how long the controller took for the input that led to the metric, with input before it that led to nothing;
    /// for [`Metric::Sync`], with all the requests that followed from it, up to the last response.
    fn metric(&self, _controller: &'static str, _metric: &Metric, _took: Duration) {}
    fn queue(&self, _controller: &'static str, _change: QueueChange) {}
    /// How much of the rate limit is used, from 0 to 1.
    fn rate_limit(&self, _use: f64) {}
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

/// What happens to the requests of a controller.
#[derive(Clone, Copy, Debug)]
pub enum QueueChange {
    Added(usize),
    /// For the first time.
    Sent {
        waited: Duration,
    },
    /// The server has refused it for now.
    Retried,
    /// `took`: since it was first sent.
    Answered {
        took: Duration,
    },
}

/// Discards all observations.
pub struct NoopObserver;

impl Observer for NoopObserver {}
