//! CronJob schedules that once failed.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use tally_sim::{run, scenarios};

/// 10000301: the response to the creation of a Job came in the middle of a list of Jobs from which it was missing. It
/// stayed in `active`, and with Forbid nothing was started any more.
/// 12001901: the response to a status write came in the middle of a list of CronJobs that had another of that name. The
/// status of the deleted one was written every 64 seconds, forever.
#[test]
fn an_answer_in_the_middle_of_a_list_brings_nothing_back() {
    let scenario = scenarios::find("cron").expect("a scenario");
    for seed in [10_000_301, 12_001_901] {
        let outcome = run::seed(seed, None, scenario, false);
        assert!(outcome.violation.is_none(), "seed {seed}: {:?}", outcome.violation);
    }
}
