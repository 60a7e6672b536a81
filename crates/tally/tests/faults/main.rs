//! `tally controller` under faults: a network that delays, drops, resets and falsifies responses, processes that are
//! killed, and two processes that both believe they lead.
//!
//! | | |
//! |---|---|
//! | `storm` | Jobs of every kind behind a proxy that injects faults (`proxy`), while controllers are killed, paused and restarted. |
//! | `leaders` | Two leaders side by side without other faults: nothing is created or counted twice. |
//! | `lease` | A leader that is killed, one that is asked to stop, and one that was paused. |
//!
//! The ground truth is recorded independently (`truth`): a watch of the server, past the proxy, follows every Pod from
//! its creation to its end. At the end the status of every Job must agree with it (`verdict`).
//!
//! | variable | |
//! |---|---|
//! | `TALLY_FAULT_SEED` | The seed that a failed run printed: the same decisions, though not the same interleaving. |
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
