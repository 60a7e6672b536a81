//! `tally backup`, `restore`, `check` and `salvage`, and a full disk: the real binary, as a user starts it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod commands;
mod full_disk;
mod kills;
mod load;
mod tool;
