//! Machines: controllers as state machines without I/O.

pub mod job;
pub mod machine;
pub mod ttl;
pub mod wire;
