//! Real Jobs on this machine: the real binary, kubectl, and processes that can be counted.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod dry_runs;
mod isolation;
mod kills;
mod life;
mod limits;
mod logs;
mod notes;
#[path = "../support/mod.rs"]
mod support;
mod tool;
mod trouble;
