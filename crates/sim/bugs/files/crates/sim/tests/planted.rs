//! Sources that contain the known bugs: those that only a rare order of events shows are found, those that a law of their own
//! judges are found by that law, and the commands that look for them say what they have found.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::{Command, Output};

use tally_sim::bugs::{self, RARE};
use tally_sim::{run, scenarios};

fn tally_sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tally-sim")).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// `tally-sim find` searches from 20 random seeds on. Two are enough to notice that the scheduler no longer makes these orders.
#[test]
fn bugs_put_back_that_only_a_rare_order_shows_are_found_within_500_schedules() {
    for name in RARE {
        let bug = bugs::find(name).unwrap();
        for start in bugs::starts(7, 2) {
            let campaign = run::seeds(start..start + 500, Some(bug), scenarios::find(bug.world).unwrap(), |_| {});
            assert!(campaign.failed.is_some(), "{name} was not found from seed {start} on");
        }
    }
}

#[test]
fn bugs_put_back_that_have_a_law_of_their_own_are_found_by_it() {
    for (name, law) in [("RefusedEverySecond", "I28"), ("BackoffUnexplained", "X1"), ("GoneFailuresUnexplained", "X1")]
    {
        let bug = bugs::find(name).unwrap();
        let campaign = run::seeds(0..300, Some(bug), scenarios::find(bug.world).unwrap(), |_| {});
        let (_, violation) = campaign.failed.expect(name);
        assert_eq!(violation.invariant, law, "{name}: {violation:?}");
    }
}

#[test]
fn a_bug_put_back_is_found_shrunk_and_can_be_replayed() {
    let found = tally_sim(&["seeds", "0..200", "--scenario", "stale-views", "--mutant", "NoGate"]);
    assert_eq!(found.status.code(), Some(1), "{}", text(&found));
    let said = text(&found);
    assert!(said.contains("VIOLATION of I1"), "{said}");
    let command = said.lines().find_map(|line| line.strip_prefix("replay: tally-sim ")).unwrap_or_default().to_owned();
    let replayed = tally_sim(&command.split(' ').collect::<Vec<_>>());
    assert_eq!(replayed.status.code(), Some(1), "{command}: {}", text(&replayed));
    assert!(text(&replayed).contains("VIOLATION of I1"), "{}", text(&replayed));
}

#[test]
fn find_counts_the_schedules_until_a_bug_put_back_is_found() {
    let common = ["--starts", "3", "--within", "200", "--from", "7"];
    let found = tally_sim(&[&["find", "NoGate"][..], &common].concat());
    assert!(found.status.success(), "{}", text(&found));
    assert!(text(&found).contains("NoGate") && text(&found).contains("3 of 3 in stale-views"), "{}", text(&found));
    // A world in which the bug does no harm.
    let missed = tally_sim(&[&["find", "TtlTrustsLocalClock", "--scenario", "calm"][..], &common].concat());
    assert_eq!(missed.status.code(), Some(1), "{}", text(&missed));
    assert!(text(&missed).contains("MISSED") && text(&missed).contains("0 of 3 in calm"), "{}", text(&missed));
    let unknown = tally_sim(&["find", "nonsense"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", text(&unknown));
    assert!(text(&unknown).contains("NoGate"), "{}", text(&unknown));
}
