//! The page, served by the real binary: what its server refuses, and the page in a real browser.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod browser;
mod door;
mod page;
