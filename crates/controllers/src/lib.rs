//! Controllers: state machines without I/O, and what carries out what they ask for.

pub mod controller;
pub mod cronjob;
pub mod driver;
pub mod gc;
pub mod hollow;
pub mod job;
pub mod kit;
pub mod lease;
pub mod metric;
pub mod namespace;
pub mod per_namespace;
pub mod pod_gc;
pub mod response;
pub mod root_ca;
pub mod scheduler;
pub mod service_account;
#[cfg(test)]
mod testing;
pub mod ttl;
pub mod wire;
