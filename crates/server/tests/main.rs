//! The server over HTTPS.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod auth;
mod limits;
mod openapi;
mod rbac;
mod robust;
mod support;
mod wire;
