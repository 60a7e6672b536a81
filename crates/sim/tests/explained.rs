//! X1: a Job that stands still is explained, in every world, and the law notices if a reason is missing.

#![allow(clippy::unwrap_used)]

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

fn holds(name: &str, seed: u64) {
    let outcome = run::seed(seed, None, scenarios::find(name).unwrap(), false);
    assert!(outcome.violation.is_none(), "{name}, seed {seed}: {:?}", outcome.violation);
}

/// Three Pods had failed, and the Pod garbage collector had removed two of them. The controller waited for 40 s, and the
/// explanation knew of one failure and 10 s, after which it had no reason to give.
#[test]
fn failures_whose_pods_are_gone_lengthen_the_wait_that_is_told() {
    holds("cluster", 9_100_063);
    holds("cron", 9_100_225);
}

/// backoff 742: Pods that a user had deleted failed later than those that were left.
/// any 882: two more Pods failed after the Event that had told of the wait.
/// any 41: the success of a Pod without an owner, which no Job adopts any more, was taken for the end of the back-off.
/// pod-monkey 343: a Pod that was removed as too many failed, and is counted nowhere.
/// side-by-side 8: another manager ran the Job, and remembers failures as well.
#[test]
fn what_is_told_of_the_end_of_a_wait_is_true() {
    for (name, seed) in [("backoff", 742), ("any", 882), ("any", 41), ("pod-monkey", 343), ("side-by-side", 8)] {
        holds(name, seed);
    }
}
