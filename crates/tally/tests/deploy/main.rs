//! `deploy/`, rendered by kustomize and Helm and compared with the server, the binary and the controllers.
//!
//! The server accepts every kind that it serves, with strict validation: an unknown field is an error. For the few
//! kinds that it does not serve, the tests check the fields and evaluate the rules in them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod command;
mod expression;
mod fit;
mod monitoring;
mod permissions;
mod policy;
mod renderings;
mod server;
#[path = "../support/mod.rs"]
mod support;
