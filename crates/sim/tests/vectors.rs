//! The acceptance vectors: a Job, its Pods, and what a controller does with them.
//!
//! A vector describes one pass of the reference. Tally gets there in several small writes (record, release, tally; the
//! interim condition is stored before Pods are deleted), so these tests check the requests made and the state once
//! nothing more is to be done, and the order only where the vector is about the order. VEC-34 (delays) and VEC-35
//! (prefixes of names) are unit tests of the core: `vec_34_delays` in backoff.rs and
//! `vec_35_long_names_are_cut_so_that_the_prefix_fits` in names.rs.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod harness;

use harness::*;
use tally_core::job::condition;
use tally_core::pod::Phase;
use tally_core::time::Span;
use tally_sim::action::Action;
use tally_sim::api::Propagation;

const BACKOFF_FAILED: &str = "FailureTarget(BackoffLimitExceeded) Failed";
const COMPLETE: &str = "SuccessCriteriaMet(CompletionsReached) Complete";

// ---- wanted and actual Pods ----

#[test]
fn vec_01_a_new_job_starts_as_many_pods_as_run_in_parallel() {
    let cluster = check("P2 C5", "", "create 2; active 2");
    assert_eq!(cluster.status().start_time, Some(START));
    assert_eq!(cluster.status().ready, Some(0));
    check("P2 C-", "", "create 2; active 2");
}

#[test]
fn vec_02_a_succeeded_pod_is_counted_and_followed_by_another() {
    check("P2 C5", "R S", "create 1; release 1; active 2 succeeded 1");
}

#[test]
fn vec_03_when_every_pod_request_fails_the_outcome_stays_recorded() {
    let mut cluster = Cluster::with("P2 C5", "R S");
    cluster.hook = Box::new(|action| if is_status(action) { Fate::Carried } else { Fate::Refused });
    cluster.start();
    cluster.settle();
    assert_eq!(cluster.summary(), "create 1; release 1; active 1 uncounted 1/0");
    // What the reference calls a sync error: it is retried until it succeeds.
    cluster.hook = Box::new(|_| Fate::Carried);
    cluster.forget_requests();
    cluster.pass(2);
    assert_eq!(cluster.summary(), "create 1; release 1; active 2 succeeded 1");
}

#[test]
fn vec_04_surplus_pods_are_released_and_deleted_but_not_counted() {
    check("P2 C5", "3*R", "delete 1; release 1; active 2 terminating 1");
    check("P2 C5", "10*R", "delete 8; release 8; active 2 terminating 8");
}

/// MANAGE-2.
#[test]
fn vec_05_successes_lower_what_is_wanted() {
    check("P3 C4", "3*R 2*S", "delete 1; release 3; active 2 terminating 1 succeeded 2");
}

#[test]
fn vec_06_a_work_queue_drains_after_the_first_success() {
    check("P2 C-", "R S", "release 1; active 1 succeeded 1");
    check("P2 C-", "S F", &format!("release 2; succeeded 1 failed 1; {COMPLETE}"));
}

#[test]
fn vec_07_a_quota_stops_creation_after_at_most_fifteen_calls() {
    let mut cluster = Cluster::with("P100 C200", "");
    let mut granted = 0;
    cluster.hook = Box::new(move |action| {
        granted += usize::from(is_create(action));
        if is_create(action) && granted > 10 { Fate::Refused } else { Fate::Carried }
    });
    cluster.start();
    cluster.settle();
    assert!(cluster.count(is_create) <= 15, "1 + 2 + 4 + 8, not {}", cluster.count(is_create));
    assert_eq!(cluster.status().active, 10);
    // Slow start begins again: a quota that stays costs one call per attempt.
    cluster.forget_requests();
    cluster.pass(8);
    assert!(cluster.count(is_create) <= 3, "one call after 1, 2 and 4 seconds, not {}", cluster.count(is_create));
    assert_eq!(cluster.status().active, 10);
}

// ---- Jobs being deleted ----

#[test]
fn vec_08_a_job_being_deleted_lets_go_of_all_pods_and_counts_those_that_ended() {
    check("P2 C5 deleting", "P R S", "release 3; active 2 succeeded 1");
}

#[test]
fn vec_09_a_job_being_deleted_can_still_fail() {
    check("BL0 deleting", "F", &format!("release 1; failed 1; {BACKOFF_FAILED}"));
}

/// The reference skips every condition while it expects creations. Here the decision is stored, which does no harm, and
/// the end waits until the outcome of the creation is known.
#[test]
fn vec_09_a_job_being_deleted_does_not_finish_while_a_creation_is_open() {
    let mut cluster = Cluster::with("P2 C2 BL0", "F");
    cluster.edit_spec(|spec| spec.backoff_limit = 1);
    cluster.hook = Box::new(|action| if is_create(action) { Fate::Held } else { Fate::Carried });
    cluster.start();
    cluster.settle();
    cluster.delete_job(Propagation::Foreground);
    cluster.edit_spec(|spec| spec.backoff_limit = 0);
    cluster.settle();
    assert_eq!(cluster.summary(), "release 1; failed 1; FailureTarget(BackoffLimitExceeded)");
    cluster.hook = Box::new(|_| Fate::Carried);
    cluster.pass(2);
    // The late Pod is removed with the Job, and counts as ended by it.
    assert_eq!(cluster.summary(), format!("create 1; delete 1; release 2; failed 2; {BACKOFF_FAILED}"));
    assert_eq!(cluster.still_tracked(), 0);
}

// ---- Indexed Jobs ----

#[test]
fn vec_10_an_index_completes_once_however_often_it_was_tried() {
    let expected = format!("release 4; succeeded 3 failed 1 completed 0-2; {COMPLETE}");
    check("P2 C3 indexed", "0:S 1:F 1:S 2:S", &expected);
}

#[test]
fn vec_11_a_failing_job_ends_its_pods_and_waits_for_them() {
    let mut cluster = check(
        "P2 C3 BL0 indexed",
        "0:S 1:F 2:R",
        "delete 1; release 3; terminating 1 succeeded 1 failed 2 completed 0; FailureTarget(BackoffLimitExceeded)",
    );
    cluster.nodes_confirm_deletions();
    then(&mut cluster, &format!("delete 1; release 3; succeeded 1 failed 2 completed 0; {BACKOFF_FAILED}"));
}

#[test]
fn vec_12_the_lowest_free_indexes_come_next() {
    check(
        "P8 C20 indexed",
        "0:R 2:S 3:P 4:S 5:S 7:S 8:S 9:S",
        "create {1,6,10-13}; release 6; active 8 succeeded 6 completed 2,4,5,7-9",
    );
}

#[test]
fn vec_13_pods_without_an_index_are_removed_and_never_counted() {
    check(
        "P2 C5 indexed",
        "R S F P 0:S 1:R 2:R R",
        "delete 3; release 6; active 2 terminating 2 succeeded 1 completed 0",
    );
}

/// The settled state: after the two deletions there is room for indexes 3 and 4.
#[test]
fn vec_14_a_duplicate_of_an_index_is_removed_the_less_advanced_one_first() {
    let cluster = check(
        "P5 C5 indexed",
        "stray=R zero=0:S one=1:R run=2:R pend=2:P",
        "create {3,4}; delete 2; release 3; active 4 terminating 1 succeeded 1 completed 0",
    );
    let deleted: Vec<&str> = cluster
        .performed
        .iter()
        .filter_map(|done| match &done.action {
            Action::DeletePod { name, .. } => Some(name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(deleted.iter().filter(|name| ["stray", "pend"].contains(name)).count(), 2, "{deleted:?}");
    let created_at = cluster.performed.iter().position(|done| is_create(&done.action));
    let deleted_at = cluster.performed.iter().rposition(|done| is_delete(&done.action));
    assert!(created_at > deleted_at, "deletions and creations do not mix; deletions come first");
}

/// The settled state: indexes 1 and 2 are started after the deletions.
#[test]
fn vec_15_indexes_out_of_range_are_removed_and_never_counted() {
    check(
        "P2 C5 indexed",
        "0:S 5:R 6:S 7:P 8:F",
        "create {1,2}; delete 2; release 5; active 2 terminating 1 succeeded 1 completed 0",
    );
}

// ---- terminating Pods ----

#[test]
fn vec_16_a_terminating_pod_holds_a_place_only_where_replacement_waits_for_failure() {
    check("P2 C5 indexed replace=Failed", "R!", "create {0}; active 1 terminating 1");
    check("P2 C5 indexed", "R!", "create {0,1}; release 1; active 2 terminating 1");
}

#[test]
fn vec_17_more_terminating_pods_than_parallelism() {
    check("P1 C1 replace=Failed", "2*R 4*R!", "delete 1; release 1; active 1 terminating 5");
}

#[test]
fn vec_18_when_a_terminating_pod_counts_as_failed() {
    check("P1 C- replace=Failed", "R F R!", "release 1; active 1 terminating 1 failed 1");
    check("P1 C-", "R F R!", "release 2; active 1 terminating 1 failed 2");
}

// ---- suspend and resume ----

/// MANAGE-1.
#[test]
fn vec_19_a_suspended_job_removes_its_pods_and_counts_none_of_them() {
    let status = r#"{"startTime":"2023-11-14T22:00:00Z","active":2,"ready":2}"#;
    let cluster = check_status("P2 C5 suspend", status, "2*R+", "delete 2; release 2; terminating 2; Suspended");
    assert_eq!(cluster.status().ready, Some(0));
    assert_eq!(cluster.status().start_time, None);
}

/// The reference changes nothing while it expects deletions. What a client can see of that: Pods whose deletion is in
/// flight are still active, and nothing new is requested.
#[test]
fn vec_19_while_deletions_are_open_nothing_is_asked_for_twice() {
    let mut cluster = Cluster::with("P2 C5 suspend", "2*R");
    cluster.hook = Box::new(|action| if is_delete(action) { Fate::Held } else { Fate::Carried });
    cluster.start();
    cluster.pass(30);
    assert_eq!(cluster.status().active, 2);
    assert_eq!(cluster.asked(), "delete 2");
    cluster.hook = Box::new(|_| Fate::Carried);
    then(&mut cluster, "delete 2; release 2; terminating 2; Suspended");
}

#[test]
fn vec_20_a_suspended_job_being_deleted_only_lets_go() {
    check("P2 C5 suspend deleting", "2*R", "release 2; active 2");
}

#[test]
fn vec_21_a_resumed_job_starts_anew() {
    let status = r#"{"conditions":[{"type":"Suspended","status":"True","reason":"JobSuspended","message":"Job suspended"}],
        "uncountedTerminatedPods":{},"ready":0,"terminating":0}"#;
    let cluster = check_status("P2 C5", status, "", "create 2; active 2; Suspended=False");
    let condition = &cluster.status().conditions[0];
    assert_eq!((condition.reason.as_str(), condition.message.as_str()), ("JobResumed", "Job resumed"));
    assert_eq!(cluster.status().start_time, Some(START));
}

// ---- back-off, conditions ----

#[test]
fn vec_22_during_back_off_the_running_pod_stays_active() {
    let mut cluster = check("P2 C2", "R+ Ft0", "release 1; active 1 ready 1 failed 1");
    assert!(cluster.status_writes().iter().all(|write| write.contains("active 1 ready 1")), "never 0");
    cluster.pass(8);
    assert_eq!(cluster.count(is_create), 0, "ten seconds after the first failure, not earlier");
    cluster.pass(2);
    assert_eq!(cluster.count(is_create), 1);
}

#[test]
fn vec_23_interim_conditions_that_are_false_are_left_to_their_writer() {
    let status = |kind: &str| {
        format!(r#"{{"conditions":[{{"type":"{kind}","status":"False"}}],"startTime":"2023-11-14T22:00:00Z"}}"#)
    };
    for (kind, pods, expected) in [
        ("FailureTarget", "R", "active 1; FailureTarget=False".to_owned()),
        ("SuccessCriteriaMet", "R", "active 1; SuccessCriteriaMet=False".to_owned()),
        ("FailureTarget", "S", format!("release 1; succeeded 1; FailureTarget=False {COMPLETE}")),
        ("SuccessCriteriaMet", "S", format!("release 1; succeeded 1; SuccessCriteriaMet=False {COMPLETE}")),
        ("FailureTarget", "F", format!("release 1; failed 1; FailureTarget=False {BACKOFF_FAILED}")),
        ("SuccessCriteriaMet", "F", format!("release 1; failed 1; SuccessCriteriaMet=False {BACKOFF_FAILED}")),
    ] {
        check_status("P1 C1 BL0", &status(kind), pods, &expected);
    }
}

/// Terminal conditions, unlike interim ones, are flipped in place.
#[test]
fn vec_23_a_false_terminal_condition_is_flipped_in_place() {
    let status = r#"{"conditions":[{"type":"Failed","status":"False"},{"type":"Custom","status":"True"}],
        "startTime":"2023-11-14T22:00:00Z"}"#;
    let expected = "release 1; failed 1; Failed Custom FailureTarget(BackoffLimitExceeded)";
    check_status("P1 C1 BL0", status, "F", expected);
}

// ---- accounting ----

fn ledger_status(succeeded: i32, failed: i32, lists: &str) -> String {
    format!(
        r#"{{"startTime":"2023-11-14T22:00:00Z","succeeded":{succeeded},"failed":{failed},"ready":0,"terminating":0,
        "uncountedTerminatedPods":{lists}}}"#
    )
}

/// TRACK-13.
#[test]
fn vec_24_released_pods_are_tallied_in_the_write_that_records_the_next() {
    let status = ledger_status(2, 3, &uncounted("a e", "b f"));
    let cluster = check_status("P0 C99 BL99", &status, "a=S b=F e=S- c=S d=F", "release 4; succeeded 5 failed 6");
    assert_eq!(cluster.status_writes(), ["succeeded 3 failed 4 uncounted 2/2", "succeeded 5 failed 6"]);
    let first = cluster.performed.iter().find_map(|done| match &done.action {
        Action::WriteJobStatus { status, .. } => Some(status.uncounted().clone()),
        _ => None,
    });
    let first = first.expect("a write");
    assert_eq!((first.succeeded, first.failed), (vec![uid("a"), uid("c")], vec![uid("b"), uid("d")]));
}

/// TRACK-11: the lists are written first.
#[test]
fn vec_25_what_cannot_be_released_is_recorded_and_not_tallied() {
    for (lists, write) in [(("", ""), "uncounted 1/1"), (("gone", ""), "succeeded 1 uncounted 1/1")] {
        let status = ledger_status(0, 0, &uncounted(lists.0, lists.1));
        let mut cluster = Cluster::with_status("P0 C99", &status, "S F");
        cluster.hook = Box::new(|action| if is_release(action) { Fate::Refused } else { Fate::Carried });
        cluster.start();
        cluster.settle();
        assert_eq!(cluster.status_writes(), [write]);
        assert_eq!(cluster.count(is_release), 2);
    }
}

#[test]
fn vec_26_the_lists_never_hold_more_than_500_uids() {
    // `b` is recorded and not released yet, so there is room for 499 more.
    let cluster = check_status(
        "P0 C999 BL99",
        &ledger_status(0, 0, &uncounted("", "b")),
        "b=F 500*S",
        "release 501; succeeded 500 failed 1",
    );
    let writes = ["uncounted 499/1", "succeeded 499 failed 1 uncounted 1/0", "succeeded 500 failed 1"];
    assert_eq!(cluster.status_writes(), writes);
    // `b` is gone: it is counted first and makes room for all 500.
    let cluster = check_status(
        "P0 C999 BL99",
        &ledger_status(0, 0, &uncounted("", "b")),
        "500*S",
        "release 500; succeeded 500 failed 1",
    );
    assert_eq!(cluster.status_writes(), ["failed 1 uncounted 500/0", "succeeded 500 failed 1"]);
}

/// The reference counts the Pod as failed and still lets it complete the Job. Here a failure is a failure: the Pod is
/// replaced.
#[test]
fn vec_27_a_pod_recorded_as_failed_stays_failed_and_is_replaced() {
    let status = ledger_status(0, 0, &uncounted("", "a"));
    check_status("P1 C1", &status, "a=S", "create 1; release 1; active 1 failed 1");
}

// ---- limits of failures ----

#[test]
fn vec_28_with_on_failure_restarts_count_against_the_limit() {
    let failed = "delete 1; release 1; terminating 1 failed 1; FailureTarget(BackoffLimitExceeded)";
    for (job, pods, expected) in [
        ("P1 C1 OnFailure BL1", "Rr1", failed),
        ("P1 C1 OnFailure BL1", "Rr0", "active 1"),
        ("P1 C1 OnFailure BL0", "Rr0", "active 1"),
        ("P1 C1 OnFailure BL0", "Rr1", failed),
        // Restarts do not matter if Pods are not restarted.
        ("P1 C1 BL1", "Rr1", "active 1"),
    ] {
        check(job, pods, expected);
    }
}

/// TRACK-15: the last write also contains the end.
#[test]
fn vec_29_one_failure_more_than_the_limit_fails_the_job() {
    check("P1 C1 BL6", "6*F", "create 1; release 6; active 1 failed 6");
    check("P1 C1 BL6", "7*F", &format!("release 7; failed 7; {BACKOFF_FAILED}"));
    check("P1 C1 BL0", "F", &format!("release 1; failed 1; {BACKOFF_FAILED}"));
}

#[test]
fn vec_30_a_failed_pod_is_kept_until_its_replacement_exists() {
    let cluster = check("P2 C2 BLPI1 indexed", "0:F 1:R", "create {0}; release 1; active 2 failed 1");
    let position = |which: fn(&Action) -> bool| cluster.performed.iter().position(|done| which(&done.action));
    assert!(position(is_create) < position(is_release), "the counts are read off the kept Pod");
    let replacement = cluster.live().into_iter().find(|(_, name)| name.starts_with("j-0-")).expect("created");
    assert_eq!(cluster.api.pods[&replacement].view.failure_count, 1);
    assert_eq!(cluster.status().failed_indexes.as_deref(), Some(""));
}

#[test]
fn vec_30_the_replacement_waits_for_the_back_off_of_its_index() {
    let mut cluster = check("P2 C2 BLPI1 indexed", "0:Ft0 1:R", "active 1");
    cluster.pass(9);
    assert_eq!(cluster.summary(), "active 1", "the failed Pod is not counted yet");
    cluster.pass(1);
    assert_eq!(cluster.summary(), "create {0}; release 1; active 2 failed 1");
}

/// DEFECT-4, which Tally does not have: an index in back-off does not delay other indexes.
#[test]
fn vec_30_an_index_in_back_off_does_not_hold_up_the_next() {
    check("P1 C2 BLPI1 indexed", "0:Ft0", "create {1}; active 1");
}

#[test]
fn vec_31_an_index_that_used_up_its_retries_fails_and_the_job_goes_on() {
    let mut cluster = check("P2 C2 BLPI1 indexed", "0:Ff1 1:R", "release 1; active 1 failed 1 failed-indexes 0");
    cluster.end_all(Phase::Succeeded);
    let expected = "release 2; succeeded 1 failed 1 completed 1 failed-indexes 0; FailureTarget(FailedIndexes) Failed";
    then(&mut cluster, expected);
}

/// A Pod that ends with the Job says nothing about its index.
#[test]
fn vec_31_pods_that_end_with_the_job_do_not_fail_their_indexes() {
    let failed = "FailureTarget(MaxFailedIndexesExceeded)";
    let mut cluster = check(
        "P3 C3 BLPI0 MAXF0 indexed",
        "0:F 1:R 2:R",
        &format!("delete 2; release 3; terminating 2 failed 3 failed-indexes 0; {failed}"),
    );
    cluster.nodes_confirm_deletions();
    then(&mut cluster, &format!("delete 2; release 3; failed 3 failed-indexes 0; {failed} Failed"));
}

/// BLPI-11: the Pods that run may end, no other is created, and then the Job fails.
#[test]
fn a_job_that_halts_soon_lets_its_pods_end() {
    let mut cluster =
        check("P3 C6 BLPI0 MAXF0 indexed halt=soon", "0:F 1:R 2:R", "release 1; active 2 failed 1 failed-indexes 0");
    cluster.edit_spec(|spec| spec.parallelism = 6);
    cluster.settle();
    then(&mut cluster, "release 1; active 2 failed 1 failed-indexes 0");
    check(
        "P3 C6 BLPI0 MAXF0 indexed halt=soon",
        "0:F 1:S 2:S",
        "release 3; succeeded 2 failed 1 completed 1,2 failed-indexes 0; FailureTarget(MaxFailedIndexesExceeded) Failed",
    );
    check(
        "P2 C6 BLPI0 MAXF1 indexed halt=soon",
        "0:F 1:R",
        "create {2}; release 1; active 2 failed 1 failed-indexes 0",
    );
}

/// BACKOFF-11, BLPI-5: a Job that says how long to wait creates the next Pod then, and not before.
#[test]
fn a_job_waits_as_long_as_it_says() {
    for (job, pods, waits_for, failed) in [
        ("P1 C1 backoff-base=3s", "Ft0", 3, "failed 1"),
        ("P1 C1 backoff-base=3s", "Ft0 Ft0", 6, "failed 2"),
        ("P1 C1 backoff-max=15s", "Ft0 Ft0", 15, "failed 2"),
        ("P1 C1", "Ft0", 10, "failed 1"),
    ] {
        let released = pods.split(' ').count();
        let mut cluster = check(job, pods, &format!("release {released}; {failed}"));
        cluster.pass(waits_for - 1);
        assert_eq!(cluster.summary(), format!("release {released}; {failed}"), "{job}");
        cluster.pass(1);
        assert_eq!(cluster.summary(), format!("create 1; release {released}; active 1 {failed}"), "{job}");
    }
}

/// DEFECT-33, which Tally does not have: within one pass success wins, and no write is refused.
/// BLPI-10: both Pods are released, and the failure is counted.
#[test]
fn vec_31_an_index_that_failed_and_succeeded_at_once_has_succeeded() {
    let expected = format!("release 2; succeeded 1 failed 1 completed 0; {COMPLETE}");
    check("P1 C1 BLPI0 indexed", "0:F 0:S", &expected);
}

/// DEADLINE-4.
#[test]
fn vec_32_the_deadline_counts_from_the_start_and_yields_to_the_limit_of_failures() {
    let status = |ago: i64| format!("{{\"startTime\":\"{}\"}}", START - Span::from_seconds(ago));
    let failing = |reason: &str| format!("delete 1; release 1; terminating 1 failed 1; FailureTarget({reason})");
    check_status("P1 C2 D10", &status(15), "R", &failing("DeadlineExceeded"));
    check_status("P1 C2 D10", &status(10), "R", &failing("DeadlineExceeded"));
    check_status("P1 C2 D10", &status(8), "R", "active 1");
    let expected = "delete 1; release 2; terminating 1 failed 2; FailureTarget(BackoffLimitExceeded)";
    check_status("P1 C2 D10 BL0", &status(15), "R F", expected);
}

/// DEADLINE-5: the start and the end have the same time. A resumed Job keeps its condition (SUSP-6).
#[test]
fn vec_32_a_deadline_of_zero_ends_a_job_before_it_makes_a_pod() {
    check("P1 C1 D0", "", "FailureTarget(DeadlineExceeded) Failed");
    let suspended = r#"{"conditions":[{"type":"Suspended","status":"True","reason":"JobSuspended",
        "message":"Job suspended"}],"uncountedTerminatedPods":{},"ready":0,"terminating":0}"#;
    let cluster = check_status("P1 C1 D0", suspended, "", "Suspended FailureTarget(DeadlineExceeded) Failed");
    assert_eq!(cluster.status().start_time, Some(START));
    assert_eq!(cluster.events.iter().filter(|event| event.reason == "Resumed").count(), 0);
}

#[test]
fn vec_33_what_is_stored_first_decides_and_in_one_pass_failure_does() {
    let stored = |kind: &str, reason: &str| {
        format!(
            r#"{{"conditions":[{{"type":"{kind}","status":"True","reason":"{reason}","message":"m"}}],
            "startTime":"2023-11-14T22:00:00Z","uncountedTerminatedPods":{{}},"ready":0,"terminating":0}}"#
        )
    };
    let job = "P2 C2 indexed success=1 FailJob=3";
    let both = "release 2; succeeded 1 failed 1 completed 0";
    check(job, "0:S 1:Fx3", &format!("{both}; FailureTarget(PodFailurePolicy) Failed"));
    let mut status = stored(condition::SUCCESS_CRITERIA_MET, "SuccessPolicy");
    status = status.replacen('{', r#"{"succeeded":1,"completedIndexes":"0","#, 1);
    check_status(
        job,
        &status,
        "1:Fx3",
        "release 1; succeeded 1 failed 1 completed 0; SuccessCriteriaMet(SuccessPolicy) Complete",
    );
    check_status(
        job,
        &stored(condition::FAILURE_TARGET, "PodFailurePolicy"),
        "0:S 1:Fx3",
        &format!("{both}; FailureTarget(PodFailurePolicy) Failed"),
    );
}
