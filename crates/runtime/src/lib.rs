//! What every controller is built on: the `Controller` trait, its copy of the objects, and the driver that carries out
//! what it asks for over an `Api`.
//!
//! Start reading at `controller`. Everything that decides is pure, so that the simulator runs the same code; only
//! `driver` (its tasks) touches a clock and tokio.

pub mod controller;
pub mod driver;
pub mod kit;
pub mod lease;
pub mod metric;
pub mod response;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, reason = "a test that is written wrong may panic")]
pub mod testing;
