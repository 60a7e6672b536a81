//! The laws of verdicts and times: they share no code with what they judge, and they hold in the worlds tuned towards
//! them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use tally_sim::{run, scenarios};

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
fn a_status_that_is_refused_waits_longer_each_time() {
    let campaign = run::seeds(0..100, None, scenarios::find("refused-statuses").unwrap(), |_| {});
    assert!(campaign.failed.is_none(), "{:?}", campaign.failed);
}
