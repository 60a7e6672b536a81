//! `tally controller` on a bad day: a network that delays, drops, resets and lies, processes that are killed, two that
//! both believe they lead.
//!
//! | | |
//! |---|---|
//! | `storm` | Jobs of every kind behind a proxy that breaks what it can (`proxy`), while controllers are killed, paused and started again. |
//! | `leaders` | Two leaders side by side, nothing else in the way: nothing is made or counted twice. |
//! | `lease` | A leader that dies, one that is asked to stop, and one that was asleep. |
//!
//! The truth is kept outside (`truth`): a watch of the server, past the proxy, that follows every Pod from its creation
//! to its end. At the end every Job must say what the truth says (`verdict`).
//!
//! | variable | |
//! |---|---|
//! | `TALLY_FAULT_SEED` | What a failed run printed: the same decisions, though not the same interleaving. |
//! | `TALLY_FAULT_KILLS` | Kills in each of the three storms. |
//! | `TALLY_FAULT_RUNS` | Runs of two leaders, at full size. |
//!
//! `make faults` is the long version.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cluster;
mod leaders;
mod lease;
mod monkey;
mod proxy;
mod storm;
mod truth;
mod verdict;
mod workload;

#[allow(dead_code, reason = "the tests of the controller use more of it")]
#[path = "../controller/process.rs"]
mod process;
#[path = "../support/mod.rs"]
mod support;

/// A number from the environment.
fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is no number")))
}
