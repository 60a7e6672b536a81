//! The deterministic world: machines under faults, in one thread, from a seed; and the oracle that judges every write.

mod actors;
pub mod api;
mod archive;
pub mod choices;
pub mod cluster;
pub mod counters;
mod flaws;
mod heal;
mod hosted;
mod judge;
mod laws;
pub mod model;
pub mod mutants;
pub mod oracle;
mod render;
pub mod run;
pub mod scenarios;
pub mod setup;
mod trace;
pub mod world;
