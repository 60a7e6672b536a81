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
fn bad_usage_says_what_to_do_and_exits_with_2() {
    for (arguments, hint) in [
        (&["seeds", "5"][..], "0..5000"),
        (&["seeds", "9..9"], "no seeds"),
        (&["seeds", "0..9", "--resume", "file"], "--scenario all"),
        (&["seeds", "0..9", "--scenario", "all", "--mutant", "NoGate"], "tally-sim mutants"),
        (&["seeds", "0..1", "--scenario", "all", "--resume", "/nonexistent/search.txt"], "/nonexistent/search.txt"),
        (&["seeds", "--scenario", "nonsense"], "tally-sim scenarios"),
        // These sources contain no bugs.
        (&["seed", "1", "--mutant", "NoGate"], "make bugs"),
        (&["find"], "make bugs"),
        (&["mutants"], "make bugs"),
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
