//! Bugs that only a rare order of events shows: a response between two pieces of a list, a late creation, a lost status
//! write. `cargo run --release -p tally-sim -- find` searches from 20 random seeds on; here two are enough to notice that
//! the scheduler no longer makes these orders.

use tally_sim::{mutants, run};

#[test]
fn bugs_that_only_a_rare_order_shows_are_found_within_500_schedules() {
    for bug in mutants::RARE {
        for start in mutants::starts(7, 2) {
            let campaign = run::seeds(start..start + 500, Some(*bug), mutants::home_of(*bug), |_| {});
            assert!(campaign.failed.is_some(), "{bug:?} was not found from seed {start} on");
        }
    }
}
