//! The simulator's command line: exit codes, messages, and that a seed always gives the same trace.

use std::process::{Command, Output};

fn tally_sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tally-sim")).args(arguments).output().unwrap_or_else(|error| {
        panic!("the binary under test does not start: {error}");
    })
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn the_same_seed_gives_the_same_trace_twice() {
    let runs = [0, 1].map(|_| tally_sim(&["seed", "4711", "--full"]));
    assert!(runs[0].status.success(), "{}", text(&runs[0]));
    assert_eq!(text(&runs[0]), text(&runs[1]));
    assert!(text(&runs[0]).contains("trace hash"), "{}", text(&runs[0]));
    let other = tally_sim(&["seed", "4712", "--full"]);
    assert_ne!(text(&runs[0]), text(&other), "another seed is another schedule");
}

#[test]
fn a_known_bug_is_found_shrunk_and_can_be_replayed() {
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
fn find_counts_the_schedules_until_a_known_bug_is_found() {
    let common = ["--starts", "3", "--within", "200", "--from", "7"];
    let found = tally_sim(&[&["find", "NoGate"][..], &common].concat());
    assert!(found.status.success(), "{}", text(&found));
    assert!(text(&found).contains("NoGate") && text(&found).contains("3 of 3 in stale-views"), "{}", text(&found));
    // A world in which the bug does no harm.
    let missed = tally_sim(&[&["find", "TtlTrustsLocalClock", "--scenario", "calm"][..], &common].concat());
    assert_eq!(missed.status.code(), Some(1), "{}", text(&missed));
    assert!(text(&missed).contains("MISSED") && text(&missed).contains("0 of 3 in calm"), "{}", text(&missed));
}

#[test]
fn bad_usage_says_what_to_do_and_exits_with_2() {
    for (arguments, hint) in [
        (&["seeds", "5"][..], "0..5000"),
        (&["seeds", "9..9"], "no seeds"),
        (&["seeds", "0..9", "--resume", "file"], "--scenario all"),
        (&["seeds", "0..9", "--scenario", "all", "--mutant", "NoGate"], "tally-sim mutants"),
        (&["seeds", "0..1", "--scenario", "all", "--resume", "/nonexistent/search.txt"], "/nonexistent/search.txt"),
        (&["seeds", "--scenario", "nonsense"], "tally-sim scenarios"),
        (&["seed", "1", "--mutant", "nonsense"], "NoGate"),
        (&["find", "nonsense"], "NoGate"),
        (&["find", "--starts", "0"], "--starts"),
        (&["walk"], "--help"),
    ] {
        let output = tally_sim(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(hint), "{arguments:?}: {}", text(&output));
    }
}

#[test]
fn help_shows_examples() {
    let output = tally_sim(&["--help"]);
    assert!(output.status.success());
    assert!(text(&output).contains("Examples:"), "{}", text(&output));
}

#[test]
fn the_model_holds_in_small_worlds() {
    let output = tally_sim(&["model", "--quick"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("all rows are as expected"), "{}", text(&output));
}
