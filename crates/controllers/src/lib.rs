//! Controllers: state machines without I/O, and what carries out what they ask for.

pub mod controller;
pub mod driver;
pub mod job;
pub mod kit;
pub mod machine;
pub mod ttl;
pub mod typed;
pub mod wire;
