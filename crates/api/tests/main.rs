//! The rules of kinds, decoding, patches and tables, from outside.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod catalog;
mod cronjob_rules;
mod decode;
mod fuzz_corpus;
mod job;
mod meta;
mod others;
mod patch;
mod pod;
mod pod_security;
mod protobuf;
mod schema;
mod selector;
mod table;
