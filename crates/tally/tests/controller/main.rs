//! `tally controller` as a user runs it: started against a server, stopped, replaced by a standby, and given bad flags.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod credentials;
mod election;
mod health;
mod process;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
mod work;
