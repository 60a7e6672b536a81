//! The table of the known bugs, and the patches that contain them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::path::Path;

use tally_sim::bugs::{BUGS, RARE};
use tally_sim::{bugs, scenarios};

/// The lines that the patches add.
fn added() -> Vec<String> {
    let patches = Path::new(env!("CARGO_MANIFEST_DIR")).join("bugs");
    let patches = std::fs::read_dir(&patches).unwrap().map(|entry| entry.unwrap().path());
    let patches: Vec<_> = patches.filter(|path| path.extension().is_some_and(|kind| kind == "patch")).collect();
    assert!(patches.len() > 30, "only {} patches", patches.len());
    let lines = |path| std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    patches.iter().flat_map(lines).filter(|line| line.starts_with('+')).collect()
}

#[test]
fn every_known_bug_is_in_a_patch_and_has_a_world() {
    let added = added();
    let mut names = BTreeSet::new();
    for bug in BUGS {
        assert!(scenarios::find(bug.world).is_some(), "{bug:?}");
        assert!(names.insert(bug.name), "{} is there twice", bug.name);
        let quoted = format!("\"{}\"", bug.name);
        assert!(added.iter().any(|line| line.contains(&quoted)), "no patch contains {}", bug.name);
    }
    assert!(RARE.iter().all(|name| bugs::find(name).is_some()));
    for line in &added {
        for (_, rest) in line.match_indices("planted::is(\"").map(|(at, start)| line.split_at(at + start.len())) {
            let name = rest.split('"').next().unwrap();
            assert!(bugs::find(name).is_some(), "{name} is not in the table: {line}");
        }
    }
}
