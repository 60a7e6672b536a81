//! The controllers: state machines without I/O. `tally-runtime` carries out their requests.

pub mod after;
pub mod cronjob;
pub mod gc;
pub mod hollow;
pub mod job;
pub mod namespace;
pub mod per_namespace;
mod pod_cache;
pub mod pod_gc;
pub mod root_ca;
pub mod scheduler;
pub mod service_account;
pub mod ttl;
pub mod wire;
