//! What Kubernetes objects mean: which kinds there are, what is filled in, what is refused and in which words, how
//! patches and selectors work, how objects print as tables. Pure: no clock, no randomness, no I/O.
//!
//! Objects are JSON values held to a schema (`schema`), not Rust structures: unknown fields can be reported, type errors
//! have the words clients know, and patches, validation and printing work on what was sent.

pub mod catalog;
pub mod cronjob;
pub mod decode;
pub mod failure;
pub mod field;
pub mod job;
pub mod kinds;
pub mod limits;
pub mod meta;
pub mod options;
pub mod others;
pub mod patch;
pub mod pod;
pub mod quantity;
pub mod schedule;
pub mod schema;
pub mod selector;
pub mod table;
