//! The shim with real processes. What the tests start and kill is a program of its own (`program.rs`).

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod harness;
mod isolation;
mod kills;
mod limits;
mod processes;
mod records;
mod start;
mod volumes;
