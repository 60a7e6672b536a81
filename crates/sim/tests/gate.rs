//! The gate waits for what another leader has counted, and for nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod harness;

use harness::*;
use tally_controllers::job::{Config, JobController};
use tally_core::pod::Phase;
use tally_core::time::Span;
use tally_runtime::controller::{Controller, Input, Kind, Outbox};
use tally_sim::action::Action;
use tally_sim::api::{Actor, plain_pod};

const NO_PODS: [bool; 2] = [false, true];

fn is_list(action: &Action) -> bool {
    matches!(action, Action::ListPods { .. })
}

/// For each list that this replica has received: how many Jobs it was for.
fn listed(cluster: &Cluster, replica: usize) -> Vec<usize> {
    let performed = cluster.performed.iter().filter(|done| done.replica == replica);
    let selectors = performed.filter_map(|done| match &done.action {
        Action::ListPods { selector, .. } => Some(selector.split(',').count()),
        _ => None,
    });
    selectors.collect()
}

fn settled(job: &str) -> Cluster {
    let mut cluster = Cluster::with(job, "");
    cluster.start();
    cluster.settle();
    cluster.forget_requests();
    cluster.replicas[0].deaf = NO_PODS;
    cluster
}

#[test]
fn the_first_pods_of_a_job_are_asked_for_in_the_step_in_which_it_is_seen() {
    for job in ["P3 C5", "P3 C5 indexed"] {
        let mut cluster = Cluster::new();
        cluster.start();
        cluster.replicas[0].deaf = NO_PODS;
        cluster.create_job("j", job, "{}");
        let seen = cluster.api.archive.log(&Kind::JOB).last().unwrap().bytes.clone();
        cluster.tell(0, Input::Apply(Kind::JOB, seen.into()));
        assert!(cluster.asked().starts_with("create"), "{job}: {}", cluster.asked());
        cluster.pass(30);
        assert_eq!(cluster.api.pods.len(), 3, "{job}: the others follow, though no Pod was ever seen");
        assert_eq!(cluster.count(is_list), 0, "{job}");
    }
}

#[test]
fn nothing_is_done_before_all_pods_have_been_seen_once() {
    let cluster = Cluster::with("P1 C1", "");
    let (job, at) = (cluster.api.archive.log(&Kind::JOB)[0].bytes.clone(), cluster.api.head());
    let mut controller = JobController::new(Config::default());
    let mut out = Outbox::default();
    let jobs = [Input::Init(Kind::JOB), Input::Apply(Kind::JOB, job.into())];
    for input in jobs.into_iter().chain([Input::InitDone(Kind::JOB, at), Input::Tick]) {
        controller.handle(input, START, &mut out);
    }
    assert!(out.requests.is_empty(), "{:?}", out.requests);
    controller.handle(Input::Init(Kind::POD), START, &mut out);
    controller.handle(Input::InitDone(Kind::POD, at), START, &mut out);
    assert!(matches!(out.requests[..], [ref request] if is_create(&Action::of(&request.call))), "{:?}", out.requests);
}

#[test]
fn a_scale_up_acts_at_once() {
    let mut cluster = settled("P2 C9");
    cluster.edit_spec(|spec| spec.parallelism = 4);
    cluster.deliver(0, Resource::Jobs);
    assert_eq!(cluster.asked(), "create 2");
}

#[test]
fn a_scale_down_acts_at_once() {
    let mut cluster = settled("P3 C9");
    cluster.edit_spec(|spec| spec.parallelism = 1);
    cluster.deliver(0, Resource::Jobs);
    assert_eq!(cluster.asked(), "release 2");
}

#[test]
fn a_suspension_acts_at_once_and_so_does_its_end() {
    let mut cluster = settled("P2 C9");
    cluster.edit_spec(|spec| spec.suspend = true);
    cluster.deliver(0, Resource::Jobs);
    assert_eq!(cluster.asked(), "release 2");
    cluster.settle();
    assert_eq!(cluster.summary(), "delete 2; release 2; Suspended");
    cluster.forget_requests();
    cluster.edit_spec(|spec| spec.suspend = false);
    cluster.deliver(0, Resource::Jobs);
    assert_eq!(cluster.asked(), "create 2; write 1");
}

/// The Job is seen as another leader left it, the Pods as they were before.
#[test]
fn a_job_that_another_leader_has_accounted_is_left_alone_until_its_pods_are_listed() {
    let mut cluster = Cluster::with("P1 C2", "a=S");
    let before = cluster.api.head();
    cluster.start();
    cluster.settle();
    cluster.forget_requests();
    cluster.restart_from(cluster.api.head(), before);
    cluster.replicas[0].deaf = NO_PODS;
    assert_eq!((cluster.asked(), cluster.in_flight(is_list)), (String::new(), 1), "at once");
    cluster.hook = Box::new(|action| if is_list(action) { Fate::Held } else { Fate::Carried });
    cluster.pass(30);
    assert!(cluster.performed.is_empty());
    assert_eq!((cluster.asked(), cluster.in_flight(is_list)), (String::new(), 1), "and only once");
    cluster.hook = Box::new(|_| Fate::Carried);
    cluster.end_all(Phase::Succeeded);
    cluster.pass(5);
    assert_eq!((cluster.status().succeeded, cluster.status().is_finished()), (2, true));
}

#[test]
fn many_jobs_that_another_leader_has_accounted_share_a_list() {
    const JOBS: usize = 120;
    let mut cluster = Cluster::new();
    let names: Vec<String> = (0..JOBS).map(|nth| format!("j{nth}")).collect();
    for name in &names {
        cluster.create_job(name, "P1 C2", "{}");
        cluster.pods(name, "R");
    }
    let (busy, slow) = (cluster.start(), cluster.start());
    cluster.settle();
    cluster.replicas[slow].paused = true;
    for pod in cluster.api.pods.keys().cloned().collect::<Vec<_>>() {
        cluster.end(&pod, Phase::Succeeded, 0);
    }
    cluster.settle();
    cluster.replicas[busy].paused = true;
    cluster.forget_requests();
    // Now the other replica sees every Job, and no Pod.
    cluster.replicas[slow].deaf = NO_PODS;
    cluster.deliver(slow, Resource::Jobs);
    assert_eq!((cluster.asked(), cluster.in_flight(is_list)), (String::new(), 1));
    while cluster.in_flight(is_list) > 0 {
        assert_eq!(cluster.in_flight(is_list), 1);
        cluster.perform(slow);
    }
    assert_eq!(listed(&cluster, slow), [1, 50, 50, 19]);
    assert_eq!(cluster.count(|action| is_create(action) || is_release(action)), 0);
}

#[test]
fn another_leader_that_never_rests_costs_one_list_after_the_other() {
    let mut cluster = Cluster::with("P1 C99", "");
    let (busy, slow) = (cluster.start(), cluster.start());
    cluster.settle();
    cluster.forget_requests();
    cluster.replicas[slow].deaf = NO_PODS;
    for _ in 0..50 {
        cluster.end_all(Phase::Succeeded);
        for _ in 0..5 {
            for replica in [busy, slow] {
                cluster.tell(replica, Input::Tick);
                cluster.deliver_all(replica);
                cluster.perform(replica);
            }
            assert!(cluster.in_flight(is_list) <= 1);
        }
        cluster.api.now = cluster.api.now + Span::from_millis(100);
    }
    let lists = listed(&cluster, slow).len();
    assert!((2..=7).contains(&lists), "{lists} lists in five seconds");
    assert!(cluster.status().succeeded > 20, "{}", cluster.summary());
}

#[test]
fn lists_that_fail_are_asked_for_ever_more_rarely() {
    let mut cluster = Cluster::with("P1 C2", "a=S");
    let before = cluster.api.head();
    cluster.start();
    cluster.settle();
    cluster.forget_requests();
    cluster.hook = Box::new(|action| if is_list(action) { Fate::Unavailable } else { Fate::Carried });
    cluster.restart_from(cluster.api.head(), before);
    cluster.replicas[0].deaf = NO_PODS;
    cluster.pass(60);
    let lists = cluster.count(is_list);
    assert!((4..=9).contains(&lists), "{lists} lists in a minute");
}

/// The stream may show a write before its response arrives. No other writer has changed anything.
#[test]
fn an_own_write_that_is_seen_before_it_is_answered_asks_for_no_list() {
    let mut cluster = Cluster::with("P1 C2", "a=S");
    cluster.start();
    cluster.replicas[0].deaf = NO_PODS;
    for _ in 0..3 {
        cluster.hook = Box::new(|action| if is_status(action) { Fate::AnsweredLate } else { Fate::Carried });
        cluster.perform(0);
        cluster.deliver(0, Resource::Jobs);
        // And an edit on top of it.
        cluster.edit_spec(|spec| spec.backoff_limit += 1);
        cluster.deliver(0, Resource::Jobs);
        assert_eq!(cluster.in_flight(is_list), 0);
        cluster.answer_late();
        cluster.pass(1);
        cluster.answer_late();
    }
    assert_eq!((cluster.count(is_list), cluster.status().succeeded), (0, 1), "{}", cluster.summary());
}

/// Pods that match a user's selector may be older than the Job: they are adopted before others are created.
#[test]
fn a_job_with_a_selector_of_its_own_looks_for_older_pods_first() {
    let mut cluster = Cluster::new();
    cluster.start();
    cluster.replicas[0].deaf = NO_PODS;
    let mut pod = plain_pod(0, "ns", "old");
    pod.uid = uid("old");
    pod.labels = [("app".into(), "x".into())].into_iter().collect();
    pod.phase = Phase::Running;
    cluster.api.insert_pod(pod, Actor::User).expect("the name is free");
    cluster.create_job("j", "P1 C1 label=x", "{}");
    cluster.deliver(0, Resource::Jobs);
    assert_eq!((cluster.asked(), cluster.in_flight(is_list)), (String::new(), 1));
    cluster.settle();
    assert_eq!(cluster.summary(), "adopt 1; active 1");
    let by_selector = |action: &Action| matches!(action, Action::ListPods { selector, .. } if selector == "app=x");
    assert_eq!(cluster.count(by_selector), 1);
}

/// What another leader merely observed does not close the gate, but it says that Pods exist, and a Job does not end
/// before they do.
#[test]
fn a_job_does_not_end_without_the_pods_that_another_leader_has_reported() {
    let mut cluster = Cluster::with("P1 C1 D5", "");
    let (busy, slow) = (cluster.start(), cluster.start());
    cluster.replicas[slow].paused = true;
    cluster.settle();
    assert_eq!(cluster.summary(), "create 1; active 1");
    cluster.replicas[busy].paused = true;
    cluster.replicas[slow].paused = false;
    cluster.replicas[slow].deaf = NO_PODS;
    // The controller must not learn of the Pod by its name.
    cluster.hook = Box::new(|action| if is_create(action) { Fate::Refused } else { Fate::Carried });
    cluster.pass(8);
    assert_eq!((cluster.count(is_delete), cluster.status().failed), (1, 1), "found, told to go, and counted");
    assert!(cluster.status().is_finished() && cluster.api.pods.is_empty(), "{}", cluster.summary());
}
