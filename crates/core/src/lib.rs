//! The rules of Jobs, as pure code: no clock, no randomness, no async, no I/O.

pub mod accounting;
pub mod after;
pub mod backoff;
pub mod blueprint;
pub mod claims;
pub mod conditions;
pub mod cron;
pub mod field_error;
pub mod gates;
pub mod ids;
pub mod indexes;
pub mod job;
pub mod ledger;
pub mod lifetime;
pub mod names;
pub mod pending;
pub mod pod;
pub mod policy;
pub mod quantity;
pub mod schedule;
pub mod selector;
pub mod status_rules;
pub mod time;
pub mod tombstones;
pub mod view;
