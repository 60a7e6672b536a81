//! Every named world for some seeds: the rows of the fault matrix, in interleavings that are not written down.
//!
//! This takes minutes without optimisation, so it is a test binary of its own: a filter that is meant for the regressions
//! does not run it. `cargo run --release -p tally-sim -- seeds 0..60 --scenario NAME` runs one world.

use tally_sim::{run, scenarios};

#[test]
fn every_scenario_holds_its_invariants_for_some_seeds() {
    for scenario in scenarios::SCENARIOS {
        let campaign = run::seeds(0..60, None, scenario, |_| {});
        if let Some((seed, violation)) = campaign.failed {
            panic!("scenario {}, seed {seed}: {violation:?}", scenario.name);
        }
        assert_eq!(campaign.schedules, 60);
    }
}
