//! The laws of verdicts and times: they share no code with what they judge, and they hold in the worlds tuned towards
//! them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use tally_core::mutation::{BUGS, Bug};
use tally_sim::{mutants, run, scenarios};

/// Identities, revisions and times are plain data. All code that decides anything is written independently.
#[test]
fn the_laws_share_no_code_with_what_they_judge() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let laws = std::fs::read_dir(source.join("laws")).unwrap().map(|entry| entry.unwrap().path());
    let mut looked_at = 0;
    for (path, allowed) in laws
        .map(|path| (path, &["ids", "time"][..]))
        .chain([(source.join("oracle.rs"), &["ids", "time", "job", "pod"][..])])
    {
        let text = std::fs::read_to_string(&path).unwrap();
        for (at, _) in text.match_indices("tally_") {
            let used: String =
                text[at..].chars().take_while(|c| c.is_alphanumeric() || *c == '_' || *c == ':').collect();
            let lawful = allowed.iter().any(|module| used.starts_with(&format!("tally_core::{module}")));
            assert!(lawful, "{} uses {used}", path.display());
        }
        looked_at += 1;
    }
    assert!(looked_at > 8, "only {looked_at} files");
}

#[test]
fn every_known_bug_has_a_scenario_that_exists() {
    assert!(BUGS.len() >= 66, "{}", BUGS.len());
    for bug in BUGS {
        assert!(scenarios::find(mutants::scenario_for(*bug)).is_some(), "{bug:?}");
    }
}

/// TYPE-5: every reason of an end. TTL-2: an expiry that was refused is retried within 70 seconds (I20).
#[test]
fn every_way_to_end_and_everything_that_has_its_time_keeps_the_laws() {
    for name in ["verdicts", "verdicts-outright", "times"] {
        let scenario = scenarios::find(name).unwrap();
        let campaign = run::seeds(0..150, None, scenario, |_| {});
        assert!(campaign.failed.is_none(), "{name}: {:?}", campaign.failed);
    }
}

/// I28: the delay of a status that is refused grows.
#[test]
fn a_refused_status_that_is_sent_again_every_second_is_noticed() {
    let world = scenarios::find("refused-statuses").unwrap();
    let campaign = run::seeds(0..100, None, world, |_| {});
    assert!(campaign.failed.is_none(), "{:?}", campaign.failed);
    let campaign = run::seeds(0..100, Some(Bug::RefusedEverySecond), world, |_| {});
    assert_eq!(campaign.failed.map(|(_, violation)| violation.invariant), Some("I28"));
}
