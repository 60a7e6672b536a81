//! X1: a Job that stands still is explained, in every world, and the law notices if a reason is missing.

#![allow(clippy::unwrap_used)]

use tally_core::mutation::Bug;
use tally_sim::{run, scenarios};

/// Worlds in which Jobs wait for different reasons. `every_scenario.rs` runs all of them.
const WORLDS: [&str; 9] =
    ["any", "backoff", "per-index", "suspend", "pod-monkey", "pending", "after", "side-by-side", "namespace-deletion"];

#[test]
fn no_job_stands_still_for_an_unknown_reason() {
    tally_sim::explained::HOLDS.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut explained = 0;
    for name in WORLDS {
        let campaign = run::seeds(0..60, None, scenarios::find(name).unwrap(), |_| {});
        assert!(campaign.failed.is_none(), "{name}: {:?}", campaign.failed);
        let times = campaign.counters.iter(false).find(|(text, _)| *text == "a Job stood still and was explained");
        explained += times.unwrap().1;
    }
    assert!(explained > 100, "only {explained} times");
}

#[test]
fn a_reason_that_is_missing_is_noticed() {
    let scenario = scenarios::find("backoff").unwrap();
    let campaign = run::seeds(0..300, Some(Bug::BackoffUnexplained), scenario, |_| {});
    let (_, violation) = campaign.failed.unwrap();
    assert_eq!(violation.invariant, "X1", "{violation:?}");
}
