//! The deterministic simulator: controllers under faults, in one thread, from a seed; and the oracle that judges every
//! write.

pub mod action;
mod actors;
pub mod api;
pub mod archive;
pub mod bias;
pub mod bugs;
pub mod choices;
pub mod cluster;
pub mod counters;
mod election;
pub mod explained;
mod heal;
mod host;
mod judge;
mod late;
mod laws;
pub mod model;
pub mod oracle;
pub mod planted;
mod refusing;
mod render;
pub mod run;
pub mod scenarios;
pub mod search;
pub mod setup;
mod trace;
pub mod world;
