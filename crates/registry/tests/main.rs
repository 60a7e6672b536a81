//! The verbs, from outside.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod expiry;
mod limits;
mod pod_security;
mod pods;
mod quotas;
mod races;
mod sequences;
mod support;
mod verbs;
mod watch;
