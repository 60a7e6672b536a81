//! `tally explain` on real objects in real clusters: what it says about each reason, and where it is silent.
//!
//! Three clusters are shared by the cases: one that runs Pods as processes, one with all controllers and without a node,
//! where the test acts as the node, and one without controllers.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod acted;
mod bare;
mod node;
mod tool;
