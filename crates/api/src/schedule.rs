//! Schedules are the core's: the controller that follows them must agree with the server that checks them.

pub use tally_core::schedule::*;
