//! The Job's rules, pure: no clock, no randomness, no async, no I/O.

pub mod blueprint;
pub mod ids;
pub mod indexes;
pub mod job;
pub mod pod;
pub mod policy;
pub mod selector;
pub mod status_rules;
pub mod time;
pub mod view;
