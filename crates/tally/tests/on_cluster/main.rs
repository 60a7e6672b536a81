//! `tally run --context` and `tally attach`, with `tally up` as the cluster.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod attach;
mod lost;
mod run;
mod server;
mod silent;
#[allow(dead_code, reason = "other tests need more of it")]
#[path = "../look/tool.rs"]
mod tool;
