//! What one version has written is read by another: data directories and backups of earlier versions (`../fixtures`), and
//! those that a later version could have written.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod cluster;
mod fixture;
mod newer;
mod runs;
#[allow(dead_code, reason = "the tests of backups use more of it")]
#[path = "../backup/tool.rs"]
mod tool;
