//! X1: a Job that stands still is explained, in every world, and the law notices if a reason is missing.

#![allow(clippy::unwrap_used)]

use tally_core::mutation::Bug;
use tally_sim::{run, scenarios};

/// Worlds in which Jobs wait for different reasons. `every_scenario.rs` runs all of them.
const WORLDS: [&str; 9] =
    ["any", "backoff", "per-index", "suspend", "pod-monkey", "pending", "after", "side-by-side", "namespace-deletion"];

#[test]
fn no_job_stands_still_for_an_unknown_reason() {
    let mut explained = 0;
    for name in WORLDS {
        let campaign = run::seeds(0..60, None, scenarios::find(name).unwrap(), |_| {});
        assert!(campaign.failed.is_none(), "{name}: {:?}", campaign.failed);
        let times = campaign.counters.iter(false).find(|(text, _)| *text == "a Job stood still and was explained");
        explained += times.unwrap().1;
    }
    assert!(explained > 100, "only {explained} times");
}

/// The clock of the controller was ahead by an hour: the times that it wrote come while the Job stands still.
#[test]
fn a_time_that_comes_only_now_is_not_taken_for_a_change() {
    for seed in [20774000966, 20774003922] {
        let campaign = run::seeds(seed..seed + 1, None, scenarios::find("any").unwrap(), |_| {});
        assert!(campaign.failed.is_none(), "{seed}: {:?}", campaign.failed);
    }
}

#[test]
fn a_reason_that_is_missing_is_noticed() {
    let scenario = scenarios::find("backoff").unwrap();
    let campaign = run::seeds(0..300, Some(Bug::BackoffUnexplained), scenario, |_| {});
    let (_, violation) = campaign.failed.unwrap();
    assert_eq!(violation.invariant, "X1", "{violation:?}");
}
