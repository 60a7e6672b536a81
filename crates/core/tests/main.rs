//! The rules of Jobs, from outside.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod blueprint;
mod fuzz_corpus;
mod ledger_equals_reference;
mod malformed;
mod reference;
mod schedule;
mod schedule_times;
mod status_rules;
