//! Schedules that once failed, and whose cause is not obvious from a unit test.

#![allow(clippy::unwrap_used)]

use tally_sim::{run, scenarios};

fn holds(name: &str, seeds: &[u64]) {
    for seed in seeds {
        let outcome = run::seed(*seed, None, scenarios::find(name).unwrap(), false);
        assert!(outcome.violation.is_none(), "{name}, seed {seed}: {:?}", outcome.violation);
    }
}

/// 10000301: the response to the creation of a Job came in the middle of a list of Jobs from which it was missing. It
/// stayed in `active`, and with Forbid nothing was started any more.
/// 12001901: the response to a status write came in the middle of a list of CronJobs that had another of that name. The
/// status of the deleted one was written every 64 seconds, forever.
#[test]
fn an_answer_in_the_middle_of_a_list_brings_nothing_back() {
    holds("cron", &[10_000_301, 12_001_901]);
}

/// The status waited for its turn behind the requests of other Jobs. They were answered, and the plan was made again.
#[test]
fn a_plan_that_waits_for_its_turn_is_the_last_one() {
    holds("large", &[1_100_000_267]);
}

/// A limit of one Pod in the lists of a status: a failure and a Pod that was given up end the Job, and only the first is
/// recorded by the write that says so (I16).
#[test]
fn a_pod_that_is_given_up_counts_before_there_is_room_to_record_it() {
    holds("dead-node-wait", &[1_200_008_814]);
}

/// The read of a Job took as long as its TTL had left (I20).
#[test]
fn a_slow_read_delays_no_expiry() {
    holds("clocks", &[1_200_014_470]);
}

/// The policy accepted the status long before the faults ended, and the Job went on under faults (I28).
#[test]
fn a_job_whose_status_is_accepted_again_takes_its_time_under_faults() {
    holds("refused-statuses", &[1_300_009_663]);
}

/// A Pod was bound to a node that was gone, by a binding of unknown outcome, and another node had its name by then (G2).
#[test]
fn a_node_is_not_given_more_than_it_has_because_an_earlier_one_had_its_name() {
    holds("lost-node", &[1_300_015_913]);
}

/// The controller was refused the creation of a Pod and waited for failures that are gone, and for one that is there (X1).
#[test]
fn a_wait_for_a_failure_that_is_there_is_told_although_a_creation_was_refused() {
    holds("large", &[1_102_000_059]);
}

/// A user made the Job smaller and larger again: the deletion of a failed Pod was decided between the two (I26).
#[test]
fn a_failed_pod_may_go_if_its_index_did_not_count_when_that_was_decided() {
    holds("list-pieces", &[1_420_011_514]);
}

/// A creation that was given up was carried out when another leader had deleted the Pod with its name (I21).
#[test]
fn a_creation_that_was_given_up_is_not_one_of_those_that_a_controller_may_have() {
    holds("late-requests", &[1_420_010_053]);
}

/// An index fails by a Pod that was given up, which there was no room to record (I18).
#[test]
fn an_index_fails_by_a_pod_that_is_given_up_before_there_is_room_to_record_it() {
    holds("dead-node-wait", &[1_420_006_563]);
}

/// A user removed the owner of a Pod that a Job of another manager selects, too, and that manager is absent (I2).
#[test]
fn a_pod_that_a_job_of_an_absent_manager_may_adopt_waits_for_it() {
    holds("orphans", &[1_410_001_354]);
}
