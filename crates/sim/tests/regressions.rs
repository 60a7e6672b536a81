//! Bugs that other implementations had, each as the interleaving that showed it. Numbers at the end of names are issues
//! or pull requests of kubernetes/kubernetes; S01 to S41 and H1 to H6 are the rows of docs/scenarios.md.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod harness;

use std::collections::BTreeSet;

use harness::*;
use tally_core::ids::Revision;
use tally_core::job::{JobStatus, JobView, PodReplacementPolicy};
use tally_core::ledger::Limits;
use tally_core::pod::Phase;
use tally_core::time::Span;
use tally_runtime::controller::Metric;
use tally_sim::action::{Action, PodChange};
use tally_sim::api::{Actor, Propagation};

const COMPLETE: &str = "SuccessCriteriaMet(CompletionsReached) Complete";

/// Every status that was ever stored for the Job `j`, with the revision.
fn history(cluster: &Cluster) -> Vec<(Revision, JobStatus)> {
    let entries = cluster.api.job_log.iter().filter(|entry| entry.object.name == "j");
    entries.map(|entry| (entry.at, entry.object.status.clone())).collect()
}

fn tracked_at(cluster: &Cluster, at: Revision) -> usize {
    cluster.api.pods_at(at).iter().filter(|pod| pod.tracked).count()
}

// ---- counted twice, or extra work ----

/// A creation with an unknown outcome is retried only while the Pod is wanted; otherwise a list shows its outcome
/// (I25).
#[test]
fn s05_a_creation_of_unknown_outcome_is_not_repeated_once_the_pod_is_not_wanted() {
    let mut cluster = Cluster::with("P1 C9", "");
    cluster.hook = fate(is_create, Fate::Lost);
    cluster.start();
    cluster.settle();
    assert_eq!(cluster.count(is_create), 1);
    cluster.hook = Box::new(|_| Fate::Carried);
    cluster.edit_spec(|spec| spec.parallelism = 0);
    cluster.forget_requests();
    cluster.pass(30);
    assert_eq!(cluster.count(is_create), 0, "asked: {}", cluster.asked());
    cluster.edit_spec(|spec| spec.parallelism = 1);
    cluster.pass(3);
    assert_eq!(cluster.count(is_create), 1, "it is wanted again");
}

/// The same for an index that is in back-off by now: the unknown creation does not bypass it (S34).
#[test]
fn s05_a_creation_of_unknown_outcome_waits_for_the_back_off_of_its_index() {
    let mut cluster = Cluster::with("P1 C1 indexed BLPI2", "");
    cluster.hook = fate(is_create, Fate::Lost);
    cluster.start();
    cluster.settle();
    // Another leader has created a Pod for the index, and it fails.
    cluster.pods("j", "other=0:Ft0");
    cluster.hook = Box::new(|_| Fate::Carried);
    cluster.forget_requests();
    cluster.pass(8);
    assert_eq!(cluster.count(is_create), 0, "asked: {}", cluster.asked());
    cluster.pass(8);
    assert_eq!(cluster.count(is_create), 1, "asked: {}", cluster.asked());
}

/// The same for a work queue, whose first success says that there is no work left.
#[test]
fn s05_a_creation_of_unknown_outcome_is_not_repeated_once_the_work_queue_is_empty() {
    let mut cluster = Cluster::with("P2 C-", "a=R");
    cluster.hook = fate(is_create, Fate::Lost);
    cluster.start();
    cluster.settle();
    assert_eq!(cluster.count(is_create), 1);
    cluster.hook = Box::new(|_| Fate::Carried);
    cluster.end(&key("a"), Phase::Succeeded, 0);
    cluster.forget_requests();
    cluster.pass(30);
    assert_eq!(cluster.count(is_create), 0, "asked: {}", cluster.asked());
    assert!(cluster.summary().ends_with(&format!("succeeded 1; {COMPLETE}")), "{}", cluster.summary());
}

#[test]
fn s01_pods_older_than_the_job_are_not_counted_again_k8s_105200() {
    let mut cluster = Cluster::with("P1 C2", "a=S");
    let before = cluster.api.head();
    cluster.start();
    cluster.settle();
    assert_eq!(cluster.summary(), "create 1; release 1; active 1 succeeded 1");
    // The next leader sees the tally, and a Pod that still has its finalizer.
    cluster.restart_from(cluster.api.head(), before);
    assert_eq!(cluster.asked(), "", "nothing can be said about Pods that old");
    cluster.pass(30);
    assert_eq!(cluster.summary(), "create 1; release 1; active 1 succeeded 1");
}

/// SYNC-20: every status write is conditional.
#[test]
fn s02_a_stale_ledger_never_overwrites_a_newer_one_k8s_105199() {
    let mut cluster = Cluster::with("P1 C3", "a=S");
    cluster.start();
    assert_eq!(cluster.in_flight(is_status), 1);
    // The first leader is paused with its write in flight; the second does all the work.
    cluster.replicas[0].paused = true;
    cluster.start();
    cluster.settle();
    assert_eq!(cluster.status().succeeded, 1);
    cluster.replicas[0].paused = false;
    cluster.settle();
    assert_eq!(cluster.status().succeeded, 1);
    assert!(cluster.status().uncounted().is_empty());
    let counters: Vec<i32> = history(&cluster).iter().map(|(_, status)| status.succeeded).collect();
    assert!(counters.is_sorted(), "{counters:?}");
    let unconditional = |action: &Action| matches!(action, Action::WriteJobStatus { revision: None, .. });
    assert_eq!(cluster.count(unconditional), 0);
}

/// TRACK-3, TRACK-13: only Pods that have lost their finalizer are moved into the counters.
#[test]
fn s03_a_partial_flush_tallies_only_what_was_released_k8s_104666() {
    let mut cluster = Cluster::with("P0 C9999", "1200*S");
    let mut turn = 0;
    cluster.hook = Box::new(move |action| {
        turn += usize::from(is_release(action));
        if is_release(action) && turn % 2 == 0 { Fate::Refused } else { Fate::Carried }
    });
    cluster.start();
    cluster.pass(3);
    let mut most = 0;
    for (at, status) in history(&cluster) {
        let released = 1_200 - tracked_at(&cluster, at);
        assert!(status.succeeded as usize <= released, "{} tallied, {released} released", status.succeeded);
        most = most.max(status.succeeded);
    }
    assert!(most >= 500, "the test got somewhere: {most}");
    cluster.hook = Box::new(|_| Fate::Carried);
    cluster.pass(120);
    assert_eq!(cluster.status().succeeded, 1_200);
}

#[test]
fn s04_a_job_stream_that_lags_behind_the_finish_starts_no_pod_k8s_130103() {
    let mut cluster = Cluster::with("P1 C1", "a=S");
    cluster.start();
    cluster.replicas[0].deaf = [true, false];
    cluster.pass(60);
    assert_eq!(cluster.summary(), format!("release 1; succeeded 1; {COMPLETE}"));
    // The old events finally arrive, one by one.
    cluster.replicas[0].deaf = [false; 2];
    cluster.pass(60);
    assert_eq!(cluster.summary(), format!("release 1; succeeded 1; {COMPLETE}"));
}

/// After a restart from a list of Jobs older than the finish, and older than the list of Pods, an extra Pod may be
/// created. It is never counted, the finished Job stays as it is, and the Pod is released.
#[test]
fn s04_a_restart_from_before_the_finish_counts_nothing_again_k8s_130103() {
    let mut cluster = running("P1 C1", "");
    let unfinished = cluster.api.head();
    cluster.end_all(Phase::Succeeded);
    cluster.settle();
    let finished = cluster.status().clone();
    assert!(finished.is_finished());
    cluster.restart_from(unfinished, cluster.api.head());
    cluster.pass(60);
    assert_eq!(*cluster.status(), finished);
    assert!(cluster.live().len() <= 1, "{:?}", cluster.live());
    cluster.end_all(Phase::Succeeded);
    cluster.pass(60);
    assert_eq!(*cluster.status(), finished);
    assert_eq!(cluster.still_tracked(), 0);
}

/// MANAGE-7, MANAGE-11: a creation that was answered is active before the watch shows its Pod (DEFECT-32).
#[test]
fn s05_a_pod_not_yet_seen_is_not_created_again_k8s_62772_120790_130683_137210() {
    let mut cluster = Cluster::with("P1 C1", "");
    let before = cluster.api.head();
    cluster.start();
    cluster.replicas[0].deaf = [false, true];
    cluster.pass(60);
    assert_eq!(cluster.summary(), "create 1; active 1");
    // Nor by a process that has never observed it: the same intention has the same name.
    cluster.restart_from(before, before);
    cluster.replicas[0].deaf = [true, true];
    cluster.settle();
    assert_eq!(cluster.count(is_create), 2, "it does ask");
    assert_eq!(cluster.api.pods.len(), 1, "and there is one Pod all the same");
}

#[test]
fn s05_a_creation_whose_reply_was_lost_is_not_repeated_under_another_name_k8s_62772() {
    let mut cluster = Cluster::with("P1 C1", "");
    cluster.hook = fate(is_create, Fate::ReplyLost);
    cluster.start();
    cluster.replicas[0].deaf = [false, true];
    cluster.pass(1);
    cluster.hook = Box::new(|_| Fate::Carried);
    cluster.pass(60);
    assert_eq!(cluster.api.pods.len(), 1);
    assert_eq!(cluster.status().active, 1);
}

#[test]
fn s06_a_late_cache_is_not_an_expired_expectation_k8s_129795() {
    let mut cluster = Cluster::with("P2 C2", "");
    cluster.start();
    cluster.replicas[0].deaf = [false, true];
    cluster.pass(900);
    assert_eq!(cluster.count(is_create), 2, "fifteen minutes of silence are no reason for more Pods");
}

#[test]
fn s06_a_life_between_two_lists_does_not_stall_the_job_k8s_129795() {
    let mut cluster = Cluster::with("P1 C1", "");
    cluster.start();
    cluster.replicas[0].deaf = [false, true];
    cluster.settle();
    let pod = cluster.live().pop().expect("created");
    // The finalizer is removed and the Pod deleted between two lists; neither event is ever delivered.
    cluster.api.edit_pod(&pod, Actor::User, |pod| pod.tracked = false);
    cluster.api.delete_pod(&pod, Actor::User, true);
    assert!(cluster.live().is_empty());
    let head = cluster.api.head();
    cluster.list(0, Resource::Pods, head);
    cluster.replicas[0].deaf = [false; 2];
    cluster.settle();
    assert_eq!(cluster.live().len(), 1, "replaced as soon as the list shows that it is gone");
}

/// FIN-9, METRIC-3: after the write that succeeded, and not before.
#[test]
fn s07_the_end_is_announced_once_also_after_a_conflict_k8s_112948() {
    let mut cluster = Cluster::with("P1 C1", "a=S");
    cluster.start();
    let finishing = |action: &Action| matches!(action, Action::WriteJobStatus { status, .. } if status.is_finished());
    let mut conflicts = 0;
    for _ in 0..100 {
        if cluster.in_flight(finishing) > 0 && conflicts < 3 {
            cluster.api.touch_job(&key("j"), Actor::User);
            conflicts += 1;
        }
        cluster.perform(0);
        cluster.deliver_all(0);
    }
    assert_eq!(conflicts, 3);
    assert!(cluster.status().is_finished());
    let announced = cluster.events.iter().filter(|event| event.reason == "Completed").count();
    let counted = cluster.metrics.iter().filter(|metric| matches!(metric, Metric::JobFinished { .. })).count();
    assert_eq!((announced, counted), (1, 1));
}

/// The watch often shows a write before its response arrives. It is the same write, and is announced all the same.
/// METRIC-5.
#[test]
fn s07_the_end_is_announced_once_also_if_the_stream_is_faster_than_the_answer_k8s_112948() {
    let mut cluster = Cluster::with("P1 C1", "a=S");
    cluster.hook = fate(is_status, Fate::AnsweredLate);
    cluster.start();
    for _ in 0..20 {
        cluster.settle();
        cluster.answer_late();
    }
    assert!(cluster.status().is_finished());
    let announced = cluster.events.iter().filter(|event| event.reason == "Completed").count();
    let counted = cluster.metrics.iter().filter(|metric| matches!(metric, Metric::JobFinished { .. })).count();
    let pods = cluster.metrics.iter().filter(|metric| matches!(metric, Metric::PodsFinished { .. })).count();
    assert_eq!((announced, counted, pods), (1, 1, 1));
}

// ---- finalizer stuck, Pod lost ----

/// ORPH-1.
#[test]
fn s08_pods_of_a_job_deleted_before_anyone_looked_are_let_go_k8s_108645() {
    for restarts in [false, true] {
        let mut cluster = running("P1 C1", "a=R b=R");
        cluster.end(&key("a"), Phase::Succeeded, 0);
        cluster.delete_job(Propagation::Background);
        if restarts {
            cluster.restart();
        }
        cluster.settle();
        assert_eq!(cluster.still_tracked(), 0, "restarted: {restarts}");
    }
}

/// OWN-2.
#[test]
fn s08_a_pod_stripped_of_its_owner_is_adopted_or_let_go_k8s_108645() {
    // Its Job still selects it: it is adopted again, and counted.
    let mut cluster = running("P1 C2", "a=R");
    cluster.end(&key("a"), Phase::Succeeded, 0);
    cluster.api.edit_pod(&key("a"), Actor::User, |pod| pod.controller = None);
    cluster.settle();
    assert_eq!((cluster.still_tracked(), cluster.status().succeeded), (1, 1), "{}", cluster.summary());
    // No Job selects it: the finalizer is removed.
    let mut cluster = running("P1 C2", "a=R");
    cluster.api.edit_pod(&key("a"), Actor::User, |pod| {
        pod.controller = None;
        pod.labels = Default::default();
    });
    cluster.settle();
    assert!(!cluster.stored("a").expect("it runs on").tracked);
    assert_eq!(cluster.count(is_create), 1, "and its Job replaces it");
}

#[test]
fn s09_a_job_does_not_fail_over_pods_it_has_just_created_k8s_109485() {
    let mut cluster = Cluster::with("P2 C2 BL0", "a=R");
    cluster.hook = fate(is_create, Fate::ReplyLost);
    cluster.start();
    cluster.replicas[0].deaf = [false, true];
    cluster.perform(0);
    assert_eq!(cluster.api.pods.len(), 2, "created, and nobody knows");
    cluster.hook = Box::new(|_| Fate::Carried);
    cluster.replicas[0].deaf = [false; 2];
    cluster.end(&key("a"), Phase::Failed, 1);
    cluster.pass(10);
    cluster.nodes_confirm_deletions();
    cluster.pass(10);
    assert!(
        cluster.summary().ends_with("failed 2; FailureTarget(BackoffLimitExceeded) Failed"),
        "{}",
        cluster.summary()
    );
    assert_eq!(cluster.still_tracked(), 0);
    assert!(cluster.live().is_empty());
}

const FINISHED: &str = r#"{"startTime":"2023-11-14T22:00:00Z","completionTime":"2023-11-14T22:10:00Z","succeeded":1,
    "uncountedTerminatedPods":{},"ready":0,"terminating":0,"conditions":[
    {"type":"SuccessCriteriaMet","status":"True","lastTransitionTime":"2023-11-14T22:10:00Z"},
    {"type":"Complete","status":"True","lastTransitionTime":"2023-11-14T22:10:00Z"}]}"#;

/// ORPH-4, ORPH-7: the Pod is released, and the status stays as it is.
#[test]
fn s10_an_extra_pod_of_a_finished_job_is_let_go_so_that_ttl_can_delete_k8s_109429() {
    let mut cluster = Cluster::with_status("P1 C1 TTL5", FINISHED, "extra=R");
    cluster.start();
    cluster.settle();
    assert_eq!(cluster.still_tracked(), 0);
    assert_eq!(cluster.count(|action| matches!(action, Action::DeleteJob { .. })), 1);
    assert!(cluster.job().deleting);
    assert_eq!(cluster.status().succeeded, 1, "nothing is counted any more");
}

#[test]
fn s11_a_job_does_not_finish_while_the_cap_leaves_pods_unrecorded_k8s_119159() {
    for (job, pods) in [("P8 C8", "8*S"), ("P8 C8 BL0", "8*F"), ("P8 C8 BL0", "F 7*R")] {
        let mut cluster = Cluster::with(job, pods);
        cluster.limits = Limits { uncounted: 2, batch: 3 };
        cluster.start();
        cluster.settle();
        cluster.nodes_confirm_deletions();
        cluster.settle();
        assert_eq!(cluster.status().succeeded + cluster.status().failed, 8, "{pods}: {}", cluster.summary());
        assert!(cluster.status().is_finished());
        for (at, status) in history(&cluster) {
            assert!(!status.is_finished() || tracked_at(&cluster, at) == 0, "{pods}: finished too early");
        }
    }
}

/// ORPH-4, ORPH-7.
#[test]
fn s12_what_is_left_over_after_the_end_gets_a_second_chance_k8s_119944() {
    let mut cluster = running("P1 C1", "a=S");
    assert!(cluster.status().is_finished());
    // A user restores the Pod from a backup, including its finalizer.
    cluster.api.edit_pod(&key("a"), Actor::User, |pod| pod.tracked = true);
    cluster.settle();
    assert!(!cluster.stored("a").expect("stored").tracked);
    assert_eq!(cluster.status().succeeded, 1);
}

#[test]
fn s13_an_orphan_that_could_not_be_let_go_is_tried_again_k8s_141329() {
    let mut cluster = Cluster::with("P1 C1", "a=S");
    cluster.delete_job(Propagation::Background);
    cluster.hook = fate(is_release, Fate::Refused);
    cluster.start();
    cluster.pass(5);
    assert!(cluster.count(is_release) >= 3, "after 1, 2, 4 ... seconds");
    assert_eq!(cluster.still_tracked(), 1);
    cluster.hook = Box::new(|_| Fate::Carried);
    cluster.pass(64);
    assert_eq!(cluster.still_tracked(), 0);
}

#[test]
fn s14_pods_of_other_controllers_keep_whatever_they_have_k8s_124798() {
    // Controlled by an object that is not a batch/v1 Job, with our finalizer.
    let mut cluster = Cluster::with("P0 C1", "a=S");
    cluster.api.edit_pod(&key("a"), Actor::User, |pod| {
        pod.controller.as_mut().expect("owned").is_job = false;
    });
    cluster.start();
    cluster.pass(60);
    assert_eq!((cluster.summary(), cluster.still_tracked()), (String::new(), 1));
    // A Job with another manager: neither it nor its Pods are touched.
    let mut cluster = Cluster::with("P2 C2 managedBy=example.com/other", "S F R");
    cluster.start();
    cluster.pass(60);
    assert_eq!((cluster.summary(), cluster.still_tracked()), (String::new(), 3));
}

/// TRACK-14.
#[test]
fn s15_one_pod_that_refuses_its_patch_delays_no_other_k8s_121605_121828() {
    let mut cluster = Cluster::with("P2 C4", "a=S b=S");
    cluster.api.pods.get_mut(&key("a")).expect("stored").refuses = true;
    cluster.start();
    cluster.pass(3);
    assert_eq!(cluster.status().succeeded, 1);
    assert_eq!(cluster.status().uncounted().succeeded, [uid("a")]);
    assert_eq!(cluster.live().len(), 2, "the work goes on");
    cluster.end_all(Phase::Succeeded);
    cluster.pass(3);
    assert_eq!(cluster.status().succeeded, 3);
    assert!(!cluster.status().is_finished(), "one is not counted yet");
    cluster.api.pods.get_mut(&key("a")).expect("stored").refuses = false;
    cluster.pass(64);
    assert!(cluster.summary().ends_with(&format!("succeeded 4; {COMPLETE}")), "{}", cluster.summary());
}

#[test]
fn s16_ten_thousand_orphans_do_not_crowd_out_a_job_k8s_126567() {
    let mut cluster = Cluster::new();
    cluster.create_job("old", "P1 C1", "{}");
    cluster.pods("old", "10000*S");
    cluster.api.delete_job(&key("old"), Actor::User, Propagation::Background);
    cluster.create_job("j", "P1 C1", "{}");
    cluster.start();
    assert_eq!(cluster.in_flight(is_create), 1, "the Job is served in the first round");
    assert!(cluster.in_flight(is_release) <= 100);
    // A hundred at a time, and none is forgotten.
    for _ in 0..110 {
        cluster.perform(0);
        assert!(cluster.in_flight(is_release) <= 100);
    }
    assert_eq!(cluster.count(is_release), 10_000);
    assert_eq!(cluster.still_tracked(), 1, "the Job's own");
}

#[test]
fn s17_pods_that_are_garbage_collected_are_counted_first_k8s_91235_28486() {
    let mut cluster = running("P2 C2", "a=R b=R");
    // No controller runs while the Pods end and Pod garbage collection deletes them.
    cluster.replicas.clear();
    cluster.end_all(Phase::Succeeded);
    for pod in ["a", "b"] {
        cluster.api.delete_pod(&key(pod), Actor::Collector, true);
    }
    cluster.start();
    cluster.settle();
    assert_eq!(cluster.summary(), format!("release 2; succeeded 2; {COMPLETE}"));
    assert!(cluster.api.pods.is_empty(), "and then they go");
}

// ---- a status that the API refuses ----

/// The harness panics when a status is refused, so it is enough to check the settled state.
#[test]
fn s18_pod_that_flips_from_failed_to_succeeded_is_counted_once_k8s_111646() {
    let mut cluster = Cluster::with("P0 C9", "a=R");
    cluster.hook = fate(is_release, Fate::Refused);
    cluster.start();
    cluster.settle();
    cluster.api.delete_pod(&key("a"), Actor::User, false);
    cluster.settle();
    assert_eq!(cluster.status().uncounted().failed, [uid("a")], "terminating is failed, by this policy");
    cluster.end(&key("a"), Phase::Succeeded, 0);
    cluster.pass(3);
    assert!(cluster.status().uncounted().succeeded.is_empty());
    cluster.hook = Box::new(|_| Fate::Carried);
    cluster.pass(64);
    assert_eq!((cluster.status().succeeded, cluster.status().failed), (0, 1));
}

#[test]
fn s19_pod_that_flips_from_succeeded_to_failed_is_counted_once_k8s_125410() {
    for (job, pod) in [("P0 C9", "a=S"), ("P0 C9 indexed", "a=3:S"), ("P0 C9 indexed BLPI0", "a=3:S")] {
        for restarts in [false, true] {
            let mut cluster = Cluster::with(job, pod);
            cluster.hook = fate(is_release, Fate::Refused);
            cluster.start();
            cluster.settle();
            cluster.end(&key("a"), Phase::Failed, 1);
            cluster.settle();
            if restarts && !job.contains("indexed") {
                cluster.restart();
            }
            cluster.pass(3);
            cluster.hook = Box::new(|_| Fate::Carried);
            cluster.pass(64);
            let status = cluster.status();
            assert_eq!((status.succeeded, status.failed), (1, 0), "{job}, restarted {restarts}");
            assert!(status.failed_indexes.as_deref().is_none_or(str::is_empty));
            assert_eq!(cluster.still_tracked(), 0);
        }
    }
}

/// The write that completes its index is in flight when the Pod flips: the first verdict stands there too (I22).
#[test]
fn s19_a_flip_while_its_index_is_being_written_counts_nothing_more() {
    for job in ["P0 C9 indexed", "P0 C9 indexed BLPI0"] {
        for stream_first in [false, true] {
            let mut cluster = Cluster::with(job, "a=3:S");
            cluster.hook = fate(is_status, Fate::AnsweredLate);
            cluster.start();
            cluster.settle();
            assert_eq!(&*cluster.status().completed_indexes, "3", "carried out, not answered");
            cluster.end(&key("a"), Phase::Failed, 1);
            if stream_first {
                cluster.deliver_all(0);
            } else {
                while cluster.deliver(0, Resource::Pods) {}
            }
            cluster.hook = Box::new(|_| Fate::Carried);
            cluster.answer_late();
            cluster.pass(64);
            let status = cluster.status();
            assert_eq!((status.succeeded, status.failed), (1, 0), "{job}, stream first {stream_first}");
            assert!(status.uncounted().is_empty());
            assert_eq!(cluster.still_tracked(), 0);
        }
    }
}

fn live_counts_fit(cluster: &Cluster) {
    for (at, status) in history(cluster) {
        let ready = status.ready.unwrap_or(0);
        assert!(ready <= status.active, "revision {at}: ready {ready}, active {}", status.active);
    }
}

#[test]
fn s20_active_stays_what_it_is_during_back_off_k8s_139428() {
    let mut cluster = running("P3 C9", "R+ R+ Ft0");
    cluster.pass(9);
    live_counts_fit(&cluster);
    assert_eq!((cluster.status().active, cluster.status().ready), (2, Some(2)));
    assert!(history(&cluster).iter().skip(2).all(|(_, status)| status.active == 2), "never 0 in between");
}

#[test]
fn s21_resume_sets_the_start_time_once_k8s_134521() {
    let mut cluster = running("P1 C9", "");
    cluster.pass(10);
    cluster.edit_spec(|spec| spec.suspend = true);
    cluster.pass(10);
    assert_eq!(cluster.status().start_time, None);
    let resumed_at = cluster.api.now.truncated();
    cluster.edit_spec(|spec| spec.suspend = false);
    cluster.settle();
    assert_eq!(cluster.status().start_time, Some(resumed_at));
    cluster.pass(100);
    cluster.end_all(Phase::Succeeded);
    cluster.pass(100);
    assert_eq!(cluster.status().start_time, Some(resumed_at), "and not again by later writes");
    assert_eq!(cluster.status().succeeded, 1);
}

#[test]
fn s22_a_suspended_job_with_nothing_to_do_completes_k8s_132614() {
    let cluster = check("P1 C0 suspend", "", COMPLETE);
    assert_eq!(cluster.status().start_time, None);
    check("P1 C0 suspend indexed", "", COMPLETE);
}

#[test]
fn s23_completed_indexes_shrink_with_the_job_at_once_k8s_115349() {
    let status = r#"{"startTime":"2023-11-14T22:00:00Z","succeeded":3,"completedIndexes":"0,3,4"}"#;
    let mut cluster = check_status("P2 C6 indexed", status, "1:R 2:R", "active 2 succeeded 3 completed 0,3,4");
    cluster.edit_spec(|spec| {
        spec.completions = Some(3);
        spec.parallelism = 3;
    });
    then(&mut cluster, "active 2 succeeded 1 completed 0");
}

/// Completions change only together with parallelism, but parallelism may be changed again before a controller has seen
/// it. Then the API accepts no lower number of successes; that must not keep everything else from being written.
#[test]
fn s23_a_shrunken_job_whose_successes_cannot_be_lowered_still_counts_failures_k8s_115349() {
    let status = r#"{"startTime":"2023-11-14T22:00:00Z","succeeded":3,"completedIndexes":"0,3,4"}"#;
    let mut cluster = check_status("P2 C6 indexed", status, "1:R 2:R", "active 2 succeeded 3 completed 0,3,4");
    cluster.edit_spec(|spec| {
        spec.completions = Some(3);
        spec.parallelism = 3;
    });
    cluster.edit_spec(|spec| spec.parallelism = 2);
    cluster.end(&cluster.live()[0].clone(), Phase::Failed, 1);
    cluster.pass(5);
    assert_eq!((cluster.status().failed, cluster.still_tracked()), (1, 1), "{}", cluster.summary());
}

#[test]
fn s24_a_false_terminal_condition_is_not_doubled_k8s_110292() {
    for (kind, pods, last) in [
        ("Failed", "F", "Failed FailureTarget(BackoffLimitExceeded)"),
        ("Complete", "S", "Complete SuccessCriteriaMet(CompletionsReached)"),
    ] {
        let status =
            format!(r#"{{"startTime":"2023-11-14T22:00:00Z","conditions":[{{"type":"{kind}","status":"False"}}]}}"#);
        let mut cluster = Cluster::with_status("P1 C1 BL0", &status, pods);
        cluster.start();
        cluster.settle();
        assert!(cluster.summary().ends_with(last), "{}", cluster.summary());
    }
}

#[test]
fn s25_a_false_failure_target_fails_nothing_k8s_125985() {
    let status = r#"{"startTime":"2023-11-14T22:00:00Z","conditions":[{"type":"FailureTarget","status":"False"}]}"#;
    let mut cluster = check_status("P1 C1", status, "R", "active 1; FailureTarget=False");
    cluster.end_all(Phase::Succeeded);
    then(&mut cluster, &format!("release 1; succeeded 1; FailureTarget=False {COMPLETE}"));
}

// ---- wrong live counts, panics ----

#[test]
fn s26_the_end_waits_until_nothing_is_ready_or_terminating_k8s_123775() {
    for (job, pods) in [
        ("P3 C3 BL0", "F R+ R+"),
        ("P3 C3 BL0 replace=Failed", "F R+ R+!"),
        ("P3 C3 indexed success=1", "0:S 1:R+ 2:R+"),
        ("P3 C3 BL0 FailJob=3", "Fx3 R+ R+"),
    ] {
        let mut cluster = running(job, pods);
        assert!(!cluster.status().is_finished(), "{job}: Pods still terminate");
        cluster.pass(60);
        assert!(!cluster.status().is_finished(), "{job}: Pods still terminate");
        cluster.nodes_confirm_deletions();
        cluster.settle();
        let status = cluster.status();
        assert!(status.is_finished(), "{job}: {}", cluster.summary());
        assert_eq!((status.active, status.ready, status.terminating), (0, Some(0), Some(0)));
        live_counts_fit(&cluster);
    }
}

#[test]
fn s27_live_counts_know_of_our_own_deletions_k8s_125089_125175_125185_125546() {
    let mut cluster = running("P3 C9", "R+ R+ R+");
    let began = history(&cluster).len();
    cluster.edit_spec(|spec| spec.parallelism = 1);
    // The Pod stream is silent: only the responses tell.
    cluster.deliver(0, Resource::Jobs);
    cluster.replicas[0].deaf = [false, true];
    cluster.pass(5);
    assert_eq!(cluster.summary(), "delete 2; release 2; active 1 ready 1 terminating 2");
    live_counts_fit(&cluster);
    for (_, status) in &history(&cluster)[began..] {
        assert_eq!(status.active + status.terminating.unwrap_or(0), 3);
    }
}

#[test]
fn s28_a_change_of_terminating_alone_is_written_k8s_121342() {
    let mut cluster = running("P1 C1", "R R!-");
    assert_eq!(cluster.summary(), "active 1 terminating 1");
    cluster.nodes_confirm_deletions();
    then(&mut cluster, "active 1");
}

#[test]
fn s29_more_terminating_pods_than_wanted_ones_are_no_negative_number_k8s_122235() {
    check("P1 C1 FailJob=3", "R 5*R!", "active 1 terminating 5");
    check("P2 C2 FailJob=3", "5*R!", "terminating 5");
    check("P0 C2 replace=Failed", "R 3*R!", "delete 1; release 1; terminating 4");
    check("P2 C4 indexed replace=Failed", "0:R! 1:R! 2:R! 3:R!", "terminating 4");
}

/// PFP-10: a policy may be empty.
#[test]
fn s30_policies_that_are_null_have_their_defaults_k8s_121011() {
    for (policy, replacement) in [
        ("null", PodReplacementPolicy::TerminatingOrFailed),
        (r#"{"rules":null}"#, PodReplacementPolicy::Failed),
        (r#"{"rules":[]}"#, PodReplacementPolicy::Failed),
    ] {
        let text = format!(
            r#"{{"metadata":{{"name":"j","uid":"u","resourceVersion":"1"}},"spec":{{"podFailurePolicy":{policy},
            "podReplacementPolicy":null,"successPolicy":null,"backoffLimit":null,"template":{{}}}}}}"#
        );
        let job = JobView::from_json(text.as_bytes()).expect("readable");
        assert_eq!(job.spec.pod_replacement_policy, replacement, "{policy}");
        assert_eq!(job.spec.backoff_limit, 6);
    }
    check("P1 C1 BL0 emptypolicy", "Fx3", "release 1; failed 1; FailureTarget(BackoffLimitExceeded) Failed");
}

#[test]
fn s31_the_failure_policy_judges_final_states_only_k8s_113856_113860() {
    // One container has ended with the fatal code, the Pod has not.
    let mut cluster = check("P1 C1 FailJob=3", "a=Rx3", "active 1");
    cluster.end(&key("a"), Phase::Failed, 0);
    then(&mut cluster, "release 1; failed 1; FailureTarget(PodFailurePolicy) Failed");
    // Being deleted is not an end either.
    check("P1 C1 FailJob=3", "Rx3!", "terminating 1");
    // The Pod succeeded in the end.
    check("P1 C1 FailJob=3", "Sx3", &format!("release 1; succeeded 1; {COMPLETE}"));
}

// ---- timers and identity ----

#[test]
fn s32_a_restart_does_not_lose_the_deadline_k8s_110239() {
    let mut cluster = running("P1 C1 D30", "R");
    cluster.pass(20);
    cluster.restart();
    cluster.pass(9);
    assert_eq!(cluster.count(is_delete), 0, "not early");
    cluster.pass(1);
    assert_eq!(cluster.summary(), "delete 1; release 1; terminating 1 failed 1; FailureTarget(DeadlineExceeded)");
}

#[test]
fn s33_after_a_conflict_the_write_does_not_wait_for_an_event_k8s_111026() {
    let mut cluster = running("P1 C2", "a=R");
    cluster.end(&key("a"), Phase::Succeeded, 0);
    cluster.deliver_all(0);
    assert_eq!(cluster.in_flight(is_status), 1);
    cluster.api.touch_job(&key("j"), Actor::User);
    cluster.replicas[0].deaf = [true, false];
    cluster.pass(5);
    assert_eq!(cluster.summary(), "create 1; release 1; active 1 succeeded 1");
}

/// BACKOFF-2: no part of it is kept in memory only (DEFECT-13).
#[test]
fn s34_neither_restarts_nor_events_shorten_the_back_off_k8s_114391_114650() {
    let mut cluster = running("P1 C1", "Ft0 Ft0");
    // Two failures: twenty seconds.
    for second in 1..19 {
        cluster.pass(1);
        match second % 3 {
            0 => cluster.restart(),
            1 => cluster.api.touch_job(&key("j"), Actor::User),
            _ => cluster.edit_spec(|spec| spec.backoff_limit += 1),
        }
    }
    cluster.settle();
    assert_eq!(cluster.count(is_create), 0);
    cluster.pass(3);
    assert_eq!(cluster.count(is_create), 1, "nor do they prolong it");
}

#[test]
fn s35_ignored_failures_delay_the_next_pod_too_k8s_119434() {
    let mut cluster = check("P1 C1 BL0 Ignore=DisruptionTarget", "Fdt0", "release 1");
    cluster.pass(8);
    assert_eq!(cluster.count(is_create), 0);
    cluster.pass(2);
    assert_eq!(cluster.summary(), "create 1; release 1; active 1");
    // Per index as well.
    let mut cluster = check("P1 C1 BLPI0 indexed Ignore=DisruptionTarget", "0:Fdt0", "");
    cluster.pass(8);
    assert_eq!(cluster.count(is_create), 0);
    cluster.pass(2);
    assert_eq!(cluster.summary(), "create {0}; release 1; active 1");
}

/// BACKOFF-8.
#[test]
fn s36_a_job_created_again_does_not_inherit_the_back_off_k8s_132109_132042() {
    let mut cluster = running("P1 C1", "6*Ft0");
    cluster.delete_job(Propagation::Background);
    cluster.create_job("j", "P1 C1", "{}");
    cluster.settle();
    assert_eq!(cluster.summary(), "create 1; active 1");
}

#[test]
fn s37_a_job_created_again_does_not_wait_for_the_old_ones_pods_k8s_131917_142142() {
    for fate_of_old in [Fate::Held, Fate::Lost, Fate::ReplyLost] {
        let mut cluster = Cluster::with("P3 C3", "");
        cluster.hook = fate(is_create, fate_of_old);
        cluster.start();
        cluster.settle();
        cluster.delete_job(Propagation::Background);
        let old: BTreeSet<_> = cluster.api.pods.keys().cloned().collect();
        cluster.create_job("j", "P2 C2", "{}");
        cluster.hook = Box::new(|_| Fate::Carried);
        cluster.settle();
        assert_eq!(cluster.status().active, 2, "{fate_of_old:?}");
        // Pods from the old creations are released.
        let job = cluster.job().uid.clone();
        let strangers = cluster.api.pods.values().filter(|pod| pod.view.job() != Some(&job) && pod.view.tracked);
        assert_eq!(strangers.count(), 0, "{fate_of_old:?}, {} before", old.len());
    }
}

#[test]
fn s38_creations_that_failed_are_made_up_for_in_seconds_k8s_119335() {
    let mut cluster = Cluster::with("P10 C10", "");
    let mut tried = 0;
    cluster.hook = Box::new(move |action| {
        tried += usize::from(is_create(action));
        if is_create(action) && tried > 4 { Fate::Refused } else { Fate::Carried }
    });
    cluster.start();
    cluster.settle();
    assert_eq!(cluster.status().active, 4);
    cluster.hook = Box::new(|_| Fate::Carried);
    cluster.pass(10);
    assert_eq!(cluster.status().active, 10);
}

/// BACKOFF-8: nothing is kept for a Job that has finished or is gone.
#[test]
fn s39_finished_jobs_cost_no_bookkeeping_k8s_111721_137243() {
    let mut cluster = Cluster::new();
    for number in 0..100 {
        let name = format!("job{number}");
        cluster.create_job(&name, "P2 C2", "{}");
        cluster.pods(&name, "S S");
    }
    cluster.start();
    cluster.settle();
    assert!(cluster.api.jobs.values().all(|job| job.view.status.is_finished()));
    assert_eq!(cluster.replicas[0].controller.sizes(), [0; 4], "ledgers, their Pods, other Pods, requests");
    for number in 0..100 {
        cluster.api.delete_job(&key(&format!("job{number}")), Actor::User, Propagation::Background);
    }
    cluster.settle();
    assert_eq!(cluster.replicas[0].controller.sizes(), [0; 4]);
}

#[test]
fn s40_what_happens_in_one_namespace_stays_there_k8s_132400() {
    let mut cluster = Cluster::new();
    cluster.create_job("j", "P1 C1 label=x", "{}");
    cluster.create_job_in("other", "j", "P1 C1 label=x", "{}");
    cluster.start();
    cluster.settle();
    assert_eq!(cluster.api.pods.len(), 2);
    // The same name, the same selector, another namespace.
    cluster.delete_job(Propagation::Background);
    cluster.settle();
    for (pod, stored) in &cluster.api.pods {
        assert_eq!(stored.view.tracked, pod.0 == "other", "{pod:?}");
    }
    // A Pod without owner is adopted in its own namespace only.
    let (from, theirs) = cluster.api.pods.iter().find(|(pod, _)| pod.0 == "ns").expect("still there");
    let (from, mut loose) = (from.clone(), (*theirs.view).clone());
    loose.controller = None;
    loose.uid = uid("loose");
    loose.name = "loose".into();
    cluster.api.insert_pod(loose, Actor::User);
    cluster.pass(5);
    assert_eq!(
        cluster.count(|action| matches!(action, Action::PatchPod { change, .. }
        if matches!(change, PodChange::Adopt { .. }))),
        0,
        "{from:?}"
    );
}

#[test]
fn s41_failures_of_pods_are_no_errors_and_slow_nothing_down_k8s_118759() {
    let mut cluster = running("P4 C99 BL99", "a=R b=R c=R d=R");
    let began = cluster.api.now;
    for (pod, phase) in [("a", Phase::Failed), ("b", Phase::Failed), ("c", Phase::Succeeded)] {
        cluster.end(&key(pod), phase, i32::from(phase == Phase::Failed));
        cluster.settle();
    }
    assert_eq!((cluster.status().succeeded, cluster.status().failed), (1, 2));
    assert!(cluster.api.now - began < Span::from_seconds(1), "accounted at once");
    let errors = cluster.metrics.iter().filter(|metric| matches!(metric, Metric::Sync { error: true, .. }));
    assert_eq!(errors.count(), 0);
}

// ---- hazards without a known issue ----

#[test]
fn h1_a_pod_whose_deletion_failed_is_still_ready() {
    let mut cluster = Cluster::with("P2 C2 suspend", "2*R+");
    cluster.hook = fate(is_delete, Fate::Refused);
    cluster.start();
    cluster.pass(5);
    assert_eq!((cluster.status().active, cluster.status().ready, cluster.status().terminating), (2, Some(2), Some(0)));
    live_counts_fit(&cluster);
}

#[test]
fn h2_a_removal_that_stopped_half_way_is_finished_by_the_next_leader() {
    let mut cluster = running("P2 C9", "a=R b=R");
    cluster.edit_spec(|spec| spec.parallelism = 1);
    cluster.hook = fate(is_delete, Fate::Lost);
    cluster.deliver_all(0);
    cluster.perform(0);
    cluster.perform(0);
    let released: Vec<&str> = ["a", "b"].into_iter().filter(|pod| !cluster.stored(pod).unwrap().tracked).collect();
    assert_eq!(released.len(), 1, "between the release and the deletion");
    let released = released[0].to_owned();
    // By every other measure this would now be the Pod to keep.
    cluster.api.edit_pod(&key(&released), Actor::Node, |pod| pod.ready = true);
    cluster.hook = Box::new(|_| Fate::Carried);
    cluster.restart();
    cluster.settle();
    assert_eq!((cluster.status().active, cluster.status().terminating), (1, Some(1)));
    assert!(cluster.stored(&released).expect("its node has not confirmed").deleting());
    let other = if released == "a" { "b" } else { "a" };
    assert!(cluster.stored(other).expect("runs").tracked, "the other one still counts");
    // Also if the Job wants both again by now: a Pod that cannot be counted must not do work.
    cluster.edit_spec(|spec| spec.parallelism = 2);
    cluster.nodes_confirm_deletions();
    cluster.settle();
    assert_eq!(cluster.status().active, 2);
    assert_eq!(cluster.still_tracked(), 2);
}

/// DEFECT-11.
#[test]
fn h3_a_pod_of_the_same_name_is_not_the_same_pod() {
    let mut cluster = Cluster::with("P0 C9", "a=S");
    cluster.hook = fate(is_release, Fate::Held);
    cluster.start();
    cluster.settle();
    assert_eq!(cluster.in_flight(is_release), 1);
    // A user removes the finalizer, deletes the Pod, and creates another under its name.
    let mut impostor = cluster.stored("a").expect("stored").clone();
    cluster.api.edit_pod(&key("a"), Actor::User, |pod| pod.tracked = false);
    cluster.api.delete_pod(&key("a"), Actor::User, true);
    impostor.uid = uid("impostor");
    impostor.phase = Phase::Running;
    cluster.api.insert_pod(impostor, Actor::User).expect("the name is free");
    cluster.hook = Box::new(|_| Fate::Carried);
    cluster.perform(0);
    assert!(cluster.stored("a").expect("stored").tracked, "the request was about another");
    cluster.settle();
    assert_eq!(cluster.status().succeeded, 1, "the one that was meant is counted all the same");
}

#[test]
fn h4_a_clock_that_stepped_back_does_not_end_a_job_before_its_start() {
    for (pods, phase) in [("a=R", Phase::Succeeded), ("a=R", Phase::Failed)] {
        let mut cluster = running("P1 C1 BL0", pods);
        cluster.replicas[0].clock = Span::from_seconds(-7200);
        cluster.end(&key("a"), phase, 0);
        cluster.settle();
        let status = cluster.status();
        assert!(status.is_finished(), "{}", cluster.summary());
        let (start, terminal) = (status.start_time, status.terminal_condition().expect("finished"));
        assert!(terminal.last_transition_time >= start);
        assert!(status.completion_time.is_none_or(|at| Some(at) >= start));
    }
}

#[test]
fn h5_a_pod_not_in_the_view_is_not_a_released_pod() {
    let mut cluster = Cluster::with("P0 C9", "");
    let before = cluster.api.head();
    cluster.pods("j", "a=S");
    cluster.hook = fate(is_release, Fate::Refused);
    cluster.start();
    cluster.settle();
    assert_eq!(cluster.status().uncounted().succeeded, [uid("a")]);
    // The next leader has the newest Job, and a list of Pods from before the Pod existed.
    cluster.restart_from(cluster.api.head(), before);
    cluster.replicas[0].deaf = [false, true];
    cluster.pass(5);
    assert_eq!(cluster.status().succeeded, 0);
    assert_eq!(cluster.status().uncounted().succeeded, [uid("a")]);
    cluster.replicas[0].deaf = [false; 2];
    cluster.hook = Box::new(|_| Fate::Carried);
    cluster.pass(64);
    assert_eq!(cluster.status().succeeded, 1);
}

#[test]
fn h5_a_job_not_in_the_view_is_not_a_deleted_job() {
    let mut cluster = Cluster::with("P1 C1", "a=R");
    cluster.start_from(Revision(0), cluster.api.head());
    cluster.replicas[0].deaf = [true, false];
    cluster.pass(60);
    assert_eq!(cluster.still_tracked(), 1, "the Job may simply not have been seen");
    cluster.replicas[0].deaf = [false; 2];
    cluster.end(&key("a"), Phase::Succeeded, 0);
    cluster.settle();
    assert_eq!(cluster.summary(), format!("release 1; succeeded 1; {COMPLETE}"));
}

/// TTL-3, TTL-8, TTL-12.
#[test]
fn h6_a_local_clock_that_runs_ahead_deletes_nothing_early() {
    let deletions = |cluster: &Cluster| cluster.count(|action| matches!(action, Action::DeleteJob { .. }));
    let mut cluster = running("P1 C1 TTL100", "S");
    cluster.restart();
    cluster.replicas[0].clock = Span::from_seconds(3600);
    cluster.pass(98);
    assert_eq!(deletions(&cluster), 0);
    cluster.pass(10);
    assert_eq!(deletions(&cluster), 1);
    // A clock that runs behind makes the deletion late, and nothing else.
    let mut cluster = running("P1 C1 TTL100", "S");
    cluster.restart();
    cluster.replicas[0].clock = Span::from_seconds(-50);
    cluster.pass(149);
    assert_eq!(deletions(&cluster), 0);
    cluster.pass(60);
    assert_eq!(deletions(&cluster), 1);
}

/// The gate in the other direction: by an old view of the Job this index is out of range.
#[test]
fn a_stale_job_does_not_judge_newer_pods() {
    let mut cluster = running("P2 C2 indexed", "0:R 1:R");
    cluster.replicas[0].deaf = [true, false];
    cluster.edit_spec(|spec| {
        spec.completions = Some(4);
        spec.parallelism = 4;
    });
    cluster.pods("j", "3:S");
    cluster.settle();
    assert_eq!(cluster.summary(), "create {2}; release 1; active 3 succeeded 1 completed 3");
}

/// Found by two leaders over HTTP, on a busy machine. One of them observes that Pods were released before it observes
/// the status in which the other has counted them: it must not treat them as missing.
#[test]
fn what_another_leader_has_counted_is_not_made_again() {
    for (job, pods) in [("P2 C2", "R R"), ("P2 C2 indexed", "0:R 1:R")] {
        let mut cluster = running(job, pods);
        cluster.start();
        cluster.settle();
        cluster.replicas[0].paused = true;
        cluster.end_all(Phase::Succeeded);
        cluster.settle();
        assert_eq!(cluster.status().succeeded, 2, "{job}: the second has done it all");
        // The first receives events of Pods only, and its status write is in flight.
        cluster.replicas[0].deaf = [true, false];
        cluster.hook = fate(is_status, Fate::Held);
        cluster.replicas[0].paused = false;
        cluster.settle();
        assert_eq!(cluster.api.pods.len(), 2, "{job}");
        cluster.hook = fate(is_status, Fate::Carried);
        cluster.replicas[0].deaf = [false; 2];
        cluster.pass(60);
        assert_eq!((cluster.api.pods.len(), cluster.status().succeeded), (2, 2), "{job}");
    }
}

/// How many Pods of the Job ever succeeded, those included that are gone.
fn succeeded_ever(cluster: &Cluster) -> usize {
    let log = cluster.api.pod_log.iter().filter(|entry| entry.object.phase == Phase::Succeeded);
    log.map(|entry| &entry.object.uid).collect::<BTreeSet<_>>().len()
}

/// I14, TTL-23, TTL-24. Another leader has requested the first Pod; the request is carried out when that Pod has
/// succeeded, is counted and deleted, and its name is free. Without the gate the work is done twice.
#[test]
fn a_late_creation_under_a_name_that_is_free_again_does_no_work() {
    for (job, gates_pods, expected) in [
        ("P1 C3 delete-finished-pods=all", true, 3),
        ("P1 C3 indexed delete-finished-pods=all", true, 3),
        ("P2 C4 delete-finished-pods=succeeded", true, 4),
        ("P1 C3 delete-finished-pods=all", false, 4),
        ("P1 C3 indexed delete-finished-pods=all", false, 4),
    ] {
        let mut cluster = Cluster::with(job, "");
        cluster.gates_pods = gates_pods;
        let slow = cluster.start();
        assert!(cluster.asked().starts_with("create"), "{job}: {}", cluster.asked());
        cluster.replicas[slow].paused = true;
        let busy = cluster.start();
        cluster.settle();
        let first = cluster.live()[0].clone();
        while cluster.api.pods.contains_key(&first) {
            cluster.end_all(Phase::Succeeded);
            cluster.settle();
            assert!(!cluster.status().is_finished(), "{job}: {}", cluster.summary());
        }
        // The slow leader is told nothing but the response.
        cluster.perform(slow);
        let late = cluster.stored(&first.1).unwrap_or_else(|| panic!("{job}: the name is free"));
        assert_eq!(late.start_gated, gates_pods, "{job}");
        cluster.replicas[busy].paused = true;
        cluster.pass(5);
        cluster.end_all(Phase::Succeeded);
        cluster.replicas[busy].paused = false;
        cluster.replicas[slow].paused = false;
        for _ in 0..8 {
            cluster.pass(5);
            cluster.end_all(Phase::Succeeded);
        }
        assert!(cluster.status().is_finished(), "{job}: {}", cluster.summary());
        assert_eq!(succeeded_ever(&cluster), expected, "{job}, gate {gates_pods}: {}", cluster.summary());
        assert!(cluster.live().is_empty() && cluster.still_tracked() == 0, "{job}: {}", cluster.summary());
    }
}

/// TTL-24: the gate of a Pod that is wanted goes, whichever leader created the Pod, and if the annotation is gone.
#[test]
fn a_pod_that_is_wanted_starts_whoever_created_it() {
    for job in ["P2 C2 delete-finished-pods=all", "P2 C2 indexed delete-finished-pods=all"] {
        let mut cluster = Cluster::with(job, "");
        cluster.hook = Box::new(|action| match action {
            Action::PatchPod { change: PodChange::Start, .. } => Fate::Lost,
            _ => Fate::Carried,
        });
        cluster.start();
        cluster.settle();
        let gated = |cluster: &Cluster| cluster.api.pods.values().filter(|stored| stored.view.start_gated).count();
        assert_eq!((gated(&cluster), cluster.status().active), (2, 2), "{job}: {}", cluster.summary());
        cluster.hook = Box::new(|_| Fate::Carried);
        // A controller that creates no gates removes them all the same.
        cluster.gates_pods = false;
        cluster.restart();
        cluster.settle();
        assert_eq!((gated(&cluster), cluster.status().active), (0, 2), "{job}: {}", cluster.summary());
    }
}

/// The Job selects Pods that existed before it. All of them are examined before anything is created, removed or
/// decided, whether the controller has just started or observes the Job last.
/// OWN-6.
#[test]
fn a_job_waits_for_the_pods_it_is_about_to_adopt() {
    for (job, pods, expected) in [
        ("P2 C3", "R R", "adopt 2; active 2".to_owned()),
        ("P2 C-", "S F", format!("adopt 2; release 2; succeeded 1 failed 1; {COMPLETE}")),
        // What has ended with an index may have been counted by it before: it is released.
        ("P1 C1 BLPI1 indexed", "0:Ff7", "create {0}; release 1; active 1".to_owned()),
        ("P2 C3 BL0 indexed", "0:S 1:F 2:R", "create {0}; adopt 1; release 2; active 2".to_owned()),
    ] {
        for running_before in [false, true] {
            let mut cluster = Cluster::with(job, pods);
            let strays: Vec<_> = cluster.api.pods.keys().cloned().collect();
            for pod in strays {
                cluster.api.edit_pod(&pod, Actor::User, |pod| {
                    pod.controller = None;
                    // Without it a Pod that has ended is not counted by any Job.
                    pod.tracked = pod.phase.is_terminal();
                });
            }
            if running_before {
                // The Job is observed after the Pods.
                cluster.start_from(Revision(0), cluster.api.head());
                cluster.deliver(0, Resource::Pods);
            } else {
                cluster.start();
            }
            cluster.settle();
            assert_eq!(cluster.summary(), expected, "{job}, {pods}, running before: {running_before}");
        }
    }
}

/// OWN-7.
#[test]
fn an_adoption_that_hangs_does_not_hold_up_the_job_for_long() {
    let is_adoption = |action: &Action| matches!(action, Action::PatchPod { change: PodChange::Adopt { .. }, .. });
    let mut cluster = Cluster::with("P1 C1", "a=R");
    cluster.api.edit_pod(&key("a"), Actor::User, |pod| pod.controller = None);
    cluster.hook = Box::new(move |action| if is_adoption(action) { Fate::Held } else { Fate::Carried });
    cluster.start();
    cluster.settle();
    cluster.pass(9);
    assert_eq!((cluster.in_flight(is_adoption), cluster.count(is_create)), (1, 0));
    cluster.pass(2);
    assert_eq!((cluster.in_flight(is_adoption), cluster.count(is_create)), (1, 1));
    // When it is carried out after all, one of the two is too many.
    cluster.hook = Box::new(|_| Fate::Carried);
    cluster.pass(2);
    assert_eq!(cluster.live().len(), 1, "{}", cluster.summary());
}

/// A process does not go back: a release that was observed must not be undone by an older list.
#[test]
fn a_list_older_than_the_view_changes_nothing() {
    let mut cluster = Cluster::with("P1 C2", "a=S");
    let before = cluster.api.head();
    cluster.start();
    cluster.settle();
    // The reflector refuses the list once it is complete; by then its objects have been delivered. A released Pod stays
    // released.
    cluster.list(0, Resource::Pods, before);
    cluster.pass(5);
    assert_eq!(cluster.status().succeeded, 1);
    assert_eq!(cluster.count(is_release), 1);
}

// ---- managedBy ----

const UNSERVED: &str = "NoControllerForManagedBy";

/// Events that say that a Job's manager is missing.
fn unserved(cluster: &Cluster) -> usize {
    cluster.events.iter().filter(|event| event.reason == UNSERVED).count()
}

/// MANAGED-1, METRIC-4.
#[test]
fn each_manager_serves_its_own_jobs_and_no_others() {
    let mut cluster = Cluster::with("P1 C1", "");
    cluster.create_job("named", "P1 C1 managedBy=kubernetes.io/job-controller", "{}");
    cluster.create_job("theirs", "P2 C2 managedBy=example.com/x", "{}");
    cluster.create_job("nobodys", "P1 C1 managedBy=example.com/y", "{}");
    cluster.start();
    cluster.start_as("example.com/x");
    cluster.settle();
    let pods_of = |cluster: &Cluster, job: &str| {
        let uid = cluster.api.jobs[&key(job)].view.uid.clone();
        cluster.api.pods_of(&uid).map(|stored| key(&stored.view.name)).collect::<Vec<_>>()
    };
    for (job, pods) in [("j", 1), ("named", 1), ("theirs", 2), ("nobodys", 0)] {
        let made = pods_of(&cluster, job);
        assert_eq!(made.len(), pods, "{job}");
        for pod in made {
            cluster.end(&pod, Phase::Succeeded, 0);
        }
    }
    cluster.pass(5);
    for done in &cluster.performed {
        let job = match &done.action {
            Action::CreatePod { name, .. } | Action::PatchPod { name, .. } | Action::WriteJobStatus { name, .. } => {
                name
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(done.replica == 1, job.starts_with("theirs"), "{:?}", done.action);
    }
    for (job, succeeded) in [("j", 1), ("named", 1), ("theirs", 2), ("nobodys", 0)] {
        let status = &cluster.api.jobs[&key(job)].view.status;
        assert_eq!((status.succeeded, status.is_finished()), (succeeded, succeeded > 0), "{job}");
    }
    assert_eq!(cluster.still_tracked(), 0);
    let counted = |manager: &str| {
        let of = |metric: &&Metric| matches!(metric, Metric::ExternalJob { manager: found, .. } if found == manager);
        cluster.metrics.iter().filter(of).count()
    };
    let managers = ["example.com/x", "example.com/y", "kubernetes.io/job-controller"];
    assert_eq!(managers.map(counted), [1, 2, 0], "once by each that does not serve it");
}

#[test]
fn a_job_created_again_for_another_manager_is_not_touched() {
    for (first, second) in [("P1 C1", "P1 C1 managedBy=example.com/x"), ("P1 C1 managedBy=example.com/x", "P1 C1")] {
        let mut cluster = Cluster::with(first, "a=S");
        // The first Job's requests are in flight when its name is reused for the second.
        cluster.hook = fate(|_| true, Fate::Held);
        cluster.start();
        cluster.delete_job(Propagation::Background);
        cluster.create_job("j", second, "{}");
        cluster.hook = Box::new(|_| Fate::Carried);
        cluster.pass(30);
        let external = second.contains("managedBy");
        assert_eq!(cluster.status() == &JobStatus::default(), external, "{}", cluster.summary());
        assert_eq!(cluster.live().len(), usize::from(!external));
        assert_eq!(cluster.status().succeeded, 0, "the first one's success is not the second's");
        assert!(cluster.stored("a").is_none_or(|pod| !pod.tracked));
    }
}

#[test]
fn pods_of_another_managers_job_are_let_go_when_it_is_gone() {
    for started_before in [true, false] {
        let mut cluster = Cluster::with("P2 C2 managedBy=example.com/x", "S F R R-");
        if started_before {
            cluster.start();
            cluster.pass(60);
            assert_eq!((cluster.summary(), cluster.still_tracked()), (String::new(), 3));
        }
        cluster.delete_job(Propagation::Background);
        if !started_before {
            cluster.start();
        }
        cluster.pass(5);
        assert_eq!((cluster.summary().as_str(), cluster.still_tracked()), ("release 3; gone", 0));
    }
}

#[test]
fn a_pod_that_left_another_managers_job_is_not_let_go_with_it() {
    let mut cluster = Cluster::with("P1 C1", "");
    cluster.create_job("theirs", "P1 C1 managedBy=example.com/x", "{}");
    cluster.pods("theirs", "a=R");
    let uid = cluster.job().uid.clone();
    cluster.hook = fate(is_create, Fate::Refused);
    cluster.start();
    cluster.settle();
    cluster.api.edit_pod(&key("a"), Actor::User, |pod| {
        let controller = pod.controller.as_mut().expect("owned");
        (controller.uid, controller.name) = (uid.clone(), "j".into());
        let label = ("batch.kubernetes.io/controller-uid".into(), uid.to_string().into());
        pod.labels = [label].into_iter().collect();
    });
    cluster.settle();
    cluster.api.delete_job(&key("theirs"), Actor::User, Propagation::Background);
    cluster.pass(5);
    assert_eq!((cluster.count(is_release), cluster.still_tracked()), (0, 1));
    cluster.end(&key("a"), Phase::Succeeded, 0);
    cluster.pass(5);
    assert_eq!(cluster.status().succeeded, 1);
}

/// MANAGED-2, DEFECT-23.
#[test]
fn a_job_whose_manager_is_missing_says_so_after_a_minute_and_every_hour() {
    let mut cluster = Cluster::with("P1 C1 managedBy=example.com/x", "");
    cluster.start();
    // A controller that serves other managers does not matter.
    cluster.start_as("example.com/y");
    cluster.pass(59);
    assert_eq!(unserved(&cluster), 0);
    cluster.pass(1);
    assert_eq!(unserved(&cluster), 1);
    let event = cluster.events.iter().find(|event| event.reason == UNSERVED).expect("just counted");
    assert!(event.warning && event.about.name == "j");
    for part in ["\"example.com/x\"", "for 60 s", "install or start that controller", "without managedBy"] {
        assert!(event.message.contains(part), "{}", event.message);
    }
    cluster.pass(3599);
    assert_eq!(unserved(&cluster), 1);
    cluster.pass(1);
    assert_eq!(unserved(&cluster), 2);
    assert_eq!(cluster.summary(), "", "it is told, not touched");
    // Its manager finally starts.
    cluster.start_as("example.com/x");
    cluster.pass(7200);
    assert_eq!((unserved(&cluster), cluster.status().active), (2, 1));
}

#[test]
fn a_job_that_has_a_controller_is_never_told_that_it_has_none() {
    let manager = "managedBy=example.com/x";
    for (job, status, pods) in [
        ("P1 C1", "{}", ""),
        ("P1 C1 managedBy=kubernetes.io/job-controller", "{}", ""),
        (&format!("P1 C1 {manager}"), r#"{"ready":0}"#, ""),
        (&format!("P1 C1 {manager}"), r#"{"startTime":"2023-11-14T22:13:20Z"}"#, ""),
        // Pods without a status yet: a controller has created them.
        (&format!("P1 C1 {manager}"), "{}", "R"),
        // It may wait in a queue of another system.
        (&format!("P1 C1 suspend {manager}"), "{}", ""),
        (&format!("P1 C1 deleting {manager}"), "{}", ""),
    ] {
        let mut cluster = Cluster::with_status(job, status, pods);
        cluster.start();
        cluster.pass(7200);
        assert_eq!(unserved(&cluster), 0, "{job} {status} {pods}");
    }
}

#[test]
fn what_an_old_stream_does_not_show_is_asked_for_before_a_manager_counts_as_missing() {
    let mut cluster = Cluster::with("P1 C1 managedBy=example.com/x", "");
    cluster.start();
    cluster.start_as("example.com/x");
    cluster.replicas[0].deaf = [true; 2];
    cluster.pass(7200);
    assert_eq!((unserved(&cluster), cluster.status().active), (0, 1));
}

#[test]
fn a_change_of_the_spec_or_a_read_that_fails_puts_the_doubt_off() {
    let mut cluster = Cluster::with("P1 C1 suspend managedBy=example.com/x", "");
    cluster.start();
    cluster.pass(600);
    cluster.edit_spec(|spec| spec.suspend = false);
    cluster.pass(59);
    assert_eq!(unserved(&cluster), 0, "the minute begins when there is something to do");
    cluster.hook = fate(|action| matches!(action, Action::GetJob { .. }), Fate::Unavailable);
    cluster.pass(1);
    assert_eq!(unserved(&cluster), 0);
    cluster.hook = Box::new(|_| Fate::Carried);
    cluster.pass(60);
    assert_eq!(unserved(&cluster), 1);
}
