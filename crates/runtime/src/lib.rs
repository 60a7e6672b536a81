//! What every controller is built on: the `Controller` trait, the object cache, and the driver that carries out the
//! requests of controllers over an `Api`.
//!
//! Start reading at `controller`. Everything that makes decisions is pure, so that the simulator runs the same code;
//! only the tasks of `driver` use a clock and the tokio runtime.

pub mod cache;
pub mod controller;
pub mod driver;
pub mod lease;
pub mod metric;
pub mod response;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, reason = "a test that is written wrong may panic")]
pub mod testing;
