//! The node, from outside.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod each;
mod filled_in;
mod world;
