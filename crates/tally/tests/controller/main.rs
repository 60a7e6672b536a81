//! `tally controller` as a person meets it: started against a server, stopped, handed over, and told nonsense.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod election;
mod process;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
mod work;
