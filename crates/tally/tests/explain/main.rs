//! `tally explain` on real objects in real clusters: what it says about each reason, and where it is silent.
//!
//! The clusters are shared by the cases: one that runs Pods as processes, one with all controllers and without a node,
//! where the test acts as the node, one without controllers, two with a controller that lacks rights or the stream of Pods,
//! and one whose store has objects that the API would refuse.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code, reason = "the tests of the controller use more of it")]
#[path = "../controller/process.rs"]
mod process;

mod acted;
mod bare;
mod behind;
mod failed;
mod node;
mod rights;
mod stored;
mod tool;
mod waiting;

use std::collections::BTreeSet;

use tally_explain::NAMES;

/// The reasons that no part shows, and why.
const EXCEPTIONS: [(&str, &str); 1] = [("Unknown", "it must never be given: the simulator holds X1")];

/// Each part compares what it was told with its list (`Seen::are`), so that these lists are what was seen.
#[test]
fn every_reason_is_seen_in_a_real_cluster() {
    let parts: [&[&str]; 6] =
        [&acted::REASONS, &bare::REASONS, &behind::REASONS, &node::REASONS, &rights::REASONS, &stored::REASONS];
    let seen: BTreeSet<&str> = parts.concat().into_iter().collect();
    let excepted: BTreeSet<&str> = EXCEPTIONS.into_iter().map(|(name, _)| name).collect();
    assert!(seen.is_disjoint(&excepted));
    assert_eq!(seen.union(&excepted).copied().collect::<BTreeSet<_>>(), BTreeSet::from(NAMES));
}
