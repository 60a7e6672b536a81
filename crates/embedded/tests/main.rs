//! Controllers on the registry, without a socket.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cronjob;
mod gc;
mod harness;
mod hollow;
mod lifetimes;
mod namespace;
mod namespaces;
mod pod_gc;
mod scheduler;
mod support;
