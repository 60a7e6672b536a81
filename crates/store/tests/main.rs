//! The store: its model, its disk, and what happens to it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod backup;
mod common;
mod damage;
mod full_disk;
mod kill;
mod legacy;
mod model;
mod poison;
mod salvage;
mod watch;
