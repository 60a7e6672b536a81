//! A crash after every single write: each schedule is run once, then once more for each of its writes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use tally_sim::run;
use tally_sim::scenarios;

const SEEDS: u64 = 12;

fn sweep(name: &str) {
    let scenario = scenarios::find(name).unwrap_or_else(|| panic!("no scenario {name}"));
    let mut crashes = 0;
    for seed in 0..SEEDS {
        let whole = run::seed(seed, None, scenario, false);
        assert_eq!(whole.violation, None, "seed {seed} of {name} without a crash");
        for write in 1..=whole.writes {
            let crashed = run::seed_with_crash(seed, scenario, write);
            assert_eq!(crashed.violation, None, "seed {seed} of {name}, crash after write {write}");
            crashes += 1;
        }
    }
    assert!(crashes > 10 * SEEDS, "only {crashes} crashes: the schedules of {name} write too little to prove anything");
}

#[test]
fn a_crash_after_any_write_of_a_calm_schedule_changes_no_count() {
    sweep("calm");
}

#[test]
fn a_crash_after_any_write_under_load_changes_no_count() {
    sweep("limits");
}

#[test]
fn a_crash_after_any_write_with_two_leaders_changes_no_count() {
    sweep("two-leaders");
}

#[test]
fn a_crash_after_any_write_with_limits_for_each_index_changes_no_count() {
    sweep("per-index");
}

#[test]
fn a_crash_after_any_write_while_scaling_and_suspending_changes_no_count() {
    sweep("suspend");
}
