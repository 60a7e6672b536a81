//! Sizes: around the 500 of one write, far beyond it, and as large as the fields permit.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod harness;

use std::time::Instant;

use harness::*;
use tally_core::ledger::Limits;
use tally_core::pod::Phase;
use tally_sim::action::Action;

/// `count` Pods run, and end at once. Returns the number of status writes that this took, including the last one.
fn all_end_at_once(count: usize, indexed: bool, phase: Phase) -> (Cluster, usize) {
    let mode = if indexed { "indexed" } else { "" };
    let mut cluster = Cluster::with(&format!("P{count} C{count} BL{count} {mode}"), "");
    assert_eq!(cluster.limits, Limits::default(), "the limits of production");
    for at in 0..count {
        cluster.pods("j", &if indexed { format!("{at}:R") } else { "R".to_owned() });
    }
    cluster.start();
    cluster.settle();
    assert_eq!(cluster.status().active as usize, count);
    cluster.forget_requests();
    cluster.end_all(phase);
    // Not a second later: after that failed Pods are replaced.
    for _ in 0..8 {
        cluster.settle();
    }
    let writes = cluster.count(is_status);
    println!("{count} Pods {phase:?}, indexed {indexed}: {writes} status writes");
    (cluster, writes)
}

/// Each write tallies what the one before has recorded, so N Pods take N/500 writes, one more for the last tally, and a
/// few for the live counts, the decision and the end.
fn allowed_writes(count: usize) -> usize {
    count.div_ceil(500) + 3
}

#[test]
fn successes_around_and_beyond_500_are_counted_exactly() {
    for count in [499, 500, 501, 1_200] {
        for indexed in [false, true] {
            let (cluster, writes) = all_end_at_once(count, indexed, Phase::Succeeded);
            let completed = if indexed { format!(" completed 0-{}", count - 1) } else { String::new() };
            let expected = format!(
                "release {count}; succeeded {count}{completed}; SuccessCriteriaMet(CompletionsReached) Complete"
            );
            assert_eq!(cluster.summary(), expected);
            assert_eq!(cluster.still_tracked(), 0);
            assert!(writes <= allowed_writes(count), "{writes} writes for {count} Pods, indexed {indexed}");
        }
    }
}

#[test]
fn failures_around_and_beyond_500_are_counted_exactly() {
    for count in [499, 500, 501, 1_200] {
        for indexed in [false, true] {
            let (cluster, writes) = all_end_at_once(count, indexed, Phase::Failed);
            assert_eq!(cluster.summary(), format!("release {count}; failed {count}"), "indexed {indexed}");
            assert_eq!(cluster.still_tracked(), 0);
            assert!(writes <= allowed_writes(count), "{writes} writes for {count} Pods, indexed {indexed}");
        }
    }
}

/// A Job that fails with 1,200 Pods running: more than fit into the lists, and none may be left behind.
#[test]
fn more_than_500_pods_ended_by_their_job_are_all_counted_before_it_finishes() {
    for indexed in [false, true] {
        let mode = if indexed { "indexed" } else { "" };
        let mut cluster = Cluster::with(&format!("P1200 C1200 BL0 {mode}"), "");
        for at in 0..1_200 {
            let word = if at == 0 { "F" } else { "R" };
            cluster.pods("j", &if indexed { format!("{at}:{word}") } else { word.to_owned() });
        }
        cluster.start();
        cluster.settle();
        assert_eq!(
            cluster.summary(),
            "delete 1199; release 1200; terminating 1199 failed 1200; FailureTarget(BackoffLimitExceeded)"
        );
        cluster.nodes_confirm_deletions();
        cluster.settle();
        assert_eq!(cluster.still_tracked(), 0);
        assert!(cluster.summary().ends_with("; failed 1200; FailureTarget(BackoffLimitExceeded) Failed"));
    }
}

/// Runs a large Job to its end. The number of writes must depend on the number of Pods divided by 500, not on the
/// number of Pods, and so must the time.
#[test]
fn a_very_large_indexed_job_runs_to_its_end() {
    // Four writes through the registry for each index: a few seconds, even without optimisation.
    let completions: usize = if cfg!(debug_assertions) { 2_000 } else { 20_000 };
    let parallelism = 1_000;
    let began = Instant::now();
    let mut cluster = Cluster::with(&format!("P{parallelism} C{completions} indexed"), "");
    cluster.start();
    while !cluster.status().is_finished() {
        cluster.settle();
        let live = cluster.live();
        assert!(live.len() <= parallelism, "{} Pods at once", live.len());
        for pod in live {
            cluster.end(&pod, Phase::Succeeded, 0);
        }
    }
    let writes = cluster.count(is_status);
    println!("{completions} completions: {writes} status writes, {:?}", began.elapsed());
    let written = cluster.api.pod_log.len();
    assert_eq!(written, 4 * completions, "each Pod is created, bound, reported ended and released, once");
    assert_eq!(cluster.status().succeeded, completions as i32);
    assert_eq!(&*cluster.status().completed_indexes, format!("0-{}", completions - 1));
    assert_eq!(cluster.count(is_create), completions);
    assert_eq!(cluster.still_tracked(), 0);
    assert!(writes <= 4 * completions / 500, "{writes} writes");
}

const MAX: i32 = i32::MAX;

/// Steps through rounds explicitly: the Job would create Pods forever.
fn bounded_rounds(cluster: &mut Cluster, rounds: usize) {
    cluster.start();
    for _ in 0..rounds {
        let batch = cluster.in_flight(is_create);
        assert!(batch <= 500, "{batch} creations at once");
        cluster.perform(0);
        cluster.deliver_all(0);
    }
}

/// MANAGE-6: at most 500 at a time.
#[test]
fn the_largest_numbers_neither_overflow_nor_flood() {
    for mode in ["", "indexed", "indexed BLPI2147483647 MAXF2147483647"] {
        let job = format!("P{MAX} C{MAX} BL{MAX} D9223372036854775807 TTL{MAX} {mode}");
        let mut cluster = Cluster::with(&job, "");
        bounded_rounds(&mut cluster, 14);
        let created = cluster.count(is_create);
        assert!(created >= 1_000, "it does go on: {created}");
        assert_eq!(cluster.api.pods.len(), created, "each creation is a Pod");
        cluster.end_all(Phase::Succeeded);
        cluster.deliver_all(0);
        for _ in 0..10 {
            cluster.perform(0);
            cluster.deliver_all(0);
        }
        assert!(cluster.status().succeeded as usize >= created.min(500), "{}", cluster.status().succeeded);
    }
}

#[test]
fn counters_at_their_largest_do_not_wrap() {
    let status = format!(
        r#"{{"startTime":"2023-11-14T22:00:00Z","succeeded":{MAX},"failed":{MAX},"uncountedTerminatedPods":{}}}"#,
        uncounted("a", "b")
    );
    let cluster = check_status(
        &format!("P{MAX} C{MAX} BL{MAX}"),
        &status,
        "S F",
        &format!("release 2; succeeded {MAX} failed {MAX}; FailureTarget(BackoffLimitExceeded) Failed"),
    );
    assert!(cluster.count(is_create) == 0);
}

#[test]
fn the_highest_index_is_an_index_like_any_other() {
    let last = MAX - 1;
    let cluster = check_status(
        &format!("P1 C{MAX} indexed"),
        &format!(r#"{{"startTime":"2023-11-14T22:00:00Z","succeeded":{last},"completedIndexes":"0-{}"}}"#, last - 1),
        "",
        &format!("create {{{last}}}; active 1 succeeded {last} completed 0-{}", last - 1),
    );
    let mut cluster = cluster;
    cluster.end_all(Phase::Succeeded);
    let expected = format!(
        "create {{{last}}}; release 1; succeeded {MAX} completed 0-{last}; \
         SuccessCriteriaMet(CompletionsReached) Complete"
    );
    then(&mut cluster, &expected);
}

/// Suspending a large Job removes its Pods in batches as well (DEFECT-12).
#[test]
fn removals_and_deletions_are_bounded_too() {
    let mut cluster = Cluster::with("P1200 C9999 suspend", "1200*R");
    cluster.start();
    let removal = |action: &Action| is_release(action) || is_delete(action);
    for _ in 0..8 {
        let batch = cluster.in_flight(removal);
        assert!(batch <= 500, "{batch} removals at once");
        cluster.perform(0);
        cluster.deliver_all(0);
    }
    cluster.settle();
    assert_eq!(cluster.summary(), "delete 1200; release 1200; terminating 1200; Suspended");

    let mut cluster = Cluster::with("P1200 C9999 BL0", "F 1199*R");
    cluster.start();
    for _ in 0..8 {
        let batch = cluster.in_flight(is_delete);
        assert!(batch <= 500, "{batch} deletions at once");
        cluster.perform(0);
        cluster.deliver_all(0);
    }
    cluster.settle();
    assert_eq!(cluster.status().failed, 1_200);
}
