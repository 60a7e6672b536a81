//! What `deploy/` has, rendered by the tools people use, and held against the server, the binary and the controllers.
//!
//! The server takes every kind it serves, strictly: a field it does not know is an error. The few kinds it does not
//! serve are held to the fields they have, and the rules in them are evaluated.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod command;
mod fit;
mod permissions;
mod policy;
mod renderings;
mod server;
#[path = "../support/mod.rs"]
mod support;
