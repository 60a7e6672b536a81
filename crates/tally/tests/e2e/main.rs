//! Every area of the Job's behaviour, end to end: the real binary with all its controllers, and Pods on hollow nodes
//! that end as their annotations say (`crates/controllers/src/hollow`).
//!
//! A case mostly waits for back-offs and grace periods, so all cases run at the same time, each in a namespace of its
//! own. `E2E=substring` runs only the cases with this substring in their name. In addition to its own assertions, every
//! case ends with two checks: no Pod keeps the tracking finalizer, and no finished Pod has changed its phase.
//!
//! Each case states the full expected result, the status and the number of Pods ever created. A watch that starts
//! before the first Pod records how many Pods there were and how they ended (`truth`).
//!
//! The same cases run against any cluster:
//!
//! | variable | |
//! |---|---|
//! | `TALLY_E2E_KUBECONFIG` | The cluster. The test starts only hollow nodes (`tally hollow`), if there are none; they are removed at the end, and so are the namespaces. |
//! | `TALLY_E2E_MANAGED_BY` | The `managedBy` of the Jobs, for a `tally controller` that runs beside the cluster's own controller. |
//!
//! The cluster needs its controllers; any implementation may serve its Jobs. Pods are bound to hollow nodes by their
//! templates. Where Tally is deliberately better than the built-in controller, a cluster with the built-in one fails
//! the case.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod api;
mod cluster;
mod expect;
mod job;
mod space;
#[path = "../support/mod.rs"]
mod support;
mod truth;

mod backoff;
mod cronjob;
mod deadline;
mod deletion;
mod disruption;
mod failure_policy;
mod garbage;
mod indexed;
mod managed_by;
mod namespace;
mod order;
mod ownership;
mod per_index;
mod replacement;
mod success_policy;
mod suspend;
mod tracking;
mod ttl;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use cluster::Cluster;
use space::Space;

struct Case {
    name: &'static str,
    run: for<'a> fn(&'a Space<'a>) -> Pin<Box<dyn Future<Output = ()> + 'a>>,
}

macro_rules! cases {
    ($($area:ident: $($case:ident),+;)+) => {
        [$($(Case {
            name: concat!(stringify!($area), "::", stringify!($case)),
            run: |space| Box::pin($area::$case(space)),
        }),+),+]
    };
}

fn cases() -> impl Iterator<Item = Case> {
    let all = cases! {
        tracking: pods_are_counted_once, pods_deleted_as_they_end_are_counted_once, pods_deleted_while_they_run_have_failed,
            a_work_queue_ends_with_its_pods, pods_removed_by_scaling_down_have_not_failed, no_completions_no_pods;
        indexed: every_index_succeeds_once, an_index_that_failed_is_tried_again, a_job_shrinks_and_grows_while_it_runs,
            completed_indexes_beyond_the_end_are_forgotten;
        backoff: replacements_wait, a_limit_of_0_ends_all_pods, restarts_in_place_are_no_failures,
            restarts_in_place_reach_the_limit;
        per_index: an_index_that_fails_too_often_fails_alone, every_index_has_its_own_attempts,
            too_many_failed_indexes_end_the_job;
        failure_policy: fail_job, fail_index, ignored_failures_are_replaced, ignored_failures_of_an_index_are_told_to_the_next,
            counted_failures_reach_the_limit;
        success_policy: an_index_decides, a_count_decides;
        suspend: directives_change_while_suspended, a_running_job_is_suspended_and_resumed;
        order: jobs_begin_after_those_that_they_name;
        deadline: running_pods_are_ended, it_stands_still_while_suspended;
        replacement: terminating_pods_are_replaced, failed_pods_are_replaced, a_deleted_pod_may_still_succeed,
            a_job_ends_after_its_pods;
        ownership: pods_are_adopted, pods_are_released;
        deletion: in_the_background, in_the_foreground, with_orphans, and_created_again_under_the_same_name;
        garbage: a_job_goes_with_its_owner, what_has_another_owner_stays;
        ttl: a_job_and_its_pods_go, set_after_the_finish, removed_after_the_finish, a_foreign_finalizer_holds_the_job,
            a_foreign_finalizer_holds_a_pod;
        disruption: a_pod_killed_by_a_user, a_pod_that_never_had_a_node, a_lost_node;
        namespace: it_takes_running_jobs_along;
        managed_by: the_job_of_another_stays_untouched;
        cronjob: a_job_for_a_scheduled_time;
    };
    all.into_iter()
}

#[test]
fn every_area_end_to_end() {
    let filter = std::env::var("E2E").unwrap_or_default();
    let chosen: Vec<Case> = cases().filter(|case| case.name.contains(&filter)).collect();
    assert!(!chosen.is_empty(), "no case has {filter:?} in its name");
    let cluster = Arc::new(blocking(Cluster::start()));
    let threads: Vec<_> = chosen
        .into_iter()
        .map(|case| {
            let cluster = cluster.clone();
            let name = case.name;
            // One thread per case, so that the output of a failed case begins with its name.
            let thread = std::thread::Builder::new().name(name.to_owned());
            (name, thread.spawn(move || blocking(run(case, &cluster))).expect("a thread"))
        })
        .collect();
    let ended: Vec<_> = threads.into_iter().map(|(name, thread)| (name, thread.join())).collect();
    blocking(cluster.finish());
    let failed: Vec<_> = ended.iter().filter(|(_, end)| end.is_err()).map(|(name, _)| *name).collect();
    assert!(failed.is_empty(), "{} of {} cases failed: {failed:#?}{}", failed.len(), ended.len(), cluster.said());
    println!("{} cases passed", ended.len());
}

async fn run(case: Case, cluster: &Cluster) {
    let begun = Instant::now();
    let space = Space::new(cluster, case.name).await;
    (case.run)(&space).await;
    space.leave().await;
    println!("{} in {:.0?}", case.name, begun.elapsed());
}

fn blocking<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}
