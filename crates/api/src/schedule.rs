//! Schedules are defined in the core: the controller that follows them must agree with the server that validates them.

pub use tally_core::schedule::*;
