//! A node that runs Pods as plain processes.
//!
//! The crate has two halves. The worker of a Pod (`pod_worker`) decides, without I/O: its input is what a Pod should
//! be and what happened to its processes, its output is what to do and what to report. The shim (`shim`) acts: a small
//! separate process that starts processes, reads their output and records how they ended, so that none of this is lost
//! when the process that decides is killed. The two halves exchange commands and reports (`port`).

pub mod attempts;
pub mod capabilities;
mod claims;
pub mod config_error;
mod descriptors;
pub mod each;
pub mod env;
pub mod facts;
pub mod log_limit;
pub mod logs;
mod losses;
pub mod mailbox;
pub mod meter;
pub mod node;
pub mod notes;
mod object;
pub mod options;
pub mod output;
pub mod pod;
pub mod pod_worker;
pub mod port;
pub mod ports;
mod row_lists;
pub mod security;
pub mod sessions;
pub mod shim;
pub mod shim_client;
pub mod sources;
pub mod volumes;
