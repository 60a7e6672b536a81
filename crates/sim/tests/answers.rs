//! Responses that are not the API server's own, or do not tell the outcome of the request.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod harness;

use std::cell::Cell;
use std::rc::Rc;

use harness::*;
use tally_core::pod::Phase;
use tally_sim::action::Action;

fn is_read_of_job(action: &Action) -> bool {
    matches!(action, Action::GetJob { .. })
}

/// Was: a proxy's 404 meant that the Pod was gone, so it was tallied with its finalizer on, and again after a restart.
#[test]
fn a_404_of_a_proxy_to_a_release_does_not_tally_the_pod() {
    let mut cluster = running("P1 C3", "a=R");
    cluster.hook = fate(is_release, Fate::NotFound);
    cluster.end(&key("a"), Phase::Succeeded, 0);
    cluster.pass(2);
    assert!(cluster.stored("a").unwrap().tracked);
    assert_eq!(cluster.status().succeeded, 0, "a Pod that carries the finalizer is not tallied");
    cluster.hook = Box::new(|_| Fate::Carried);
    cluster.restart();
    cluster.pass(3);
    assert_eq!(cluster.status().succeeded, 1, "{}", cluster.summary());
    assert!(!cluster.stored("a").unwrap().tracked);
}

/// The same without a restart: the release is retried.
#[test]
fn a_release_that_a_proxy_answered_is_sent_again() {
    let mut cluster = running("P1 C3", "a=R");
    let times = Rc::new(Cell::new(0));
    let seen = times.clone();
    cluster.hook = Box::new(move |action| {
        if !is_release(action) {
            return Fate::Carried;
        }
        seen.set(seen.get() + 1);
        if seen.get() <= 2 { Fate::NotFound } else { Fate::Carried }
    });
    cluster.end(&key("a"), Phase::Succeeded, 0);
    cluster.pass(10);
    assert_eq!((times.get(), cluster.status().succeeded), (3, 1), "{}", cluster.summary());
}

/// Was: a proxy's 404 to a read of the Job meant that the Job was gone: all its Pods were released uncounted, and the
/// Job made no further progress.
#[test]
fn a_404_of_a_proxy_to_a_read_of_the_job_releases_no_pods() {
    let mut cluster = running("P2 C3", "a=R b=R");
    let read = Rc::new(Cell::new(false));
    let once = read.clone();
    cluster.hook = Box::new(move |action| match action {
        Action::WriteJobStatus { .. } if !once.get() => Fate::ReplyLost,
        action if is_read_of_job(action) && !once.replace(true) => Fate::NotFound,
        _ => Fate::Carried,
    });
    cluster.end(&key("a"), Phase::Succeeded, 0);
    cluster.pass(30);
    assert!(read.get());
    assert!(cluster.stored("b").unwrap().tracked, "{}", cluster.summary());
    cluster.end(&key("b"), Phase::Succeeded, 0);
    cluster.pass(30);
    assert_eq!(cluster.status().succeeded, 2, "{}", cluster.summary());
}

/// The Pod is found again by its name, and no other is created in addition.
#[test]
fn a_creation_that_is_applied_and_answered_500_makes_no_pod_beyond_parallelism() {
    let mut cluster = Cluster::new();
    cluster.create_job("j", "P2 C5", "{}");
    cluster.start();
    let times = Rc::new(Cell::new(0));
    let seen = times.clone();
    cluster.hook = Box::new(move |action| {
        if is_create(action) {
            seen.set(seen.get() + 1);
            if seen.get() == 2 {
                return Fate::AppliedError;
            }
        }
        Fate::Carried
    });
    // Pods are known only from responses.
    cluster.replicas[0].deaf = [false, true];
    for _ in 0..12 {
        cluster.pass(1);
        assert!(cluster.live().len() <= 2, "{}", cluster.summary());
    }
    assert_eq!((cluster.live().len(), cluster.status().active), (2, 2), "{}", cluster.summary());
}

/// Was: the Job finished, and its Pod kept running. A retry that is refused says nothing about the attempt before it.
#[test]
fn a_job_does_not_finish_while_a_pod_may_have_been_created() {
    for refused in [Fate::Unavailable, Fate::Refused] {
        let mut cluster = Cluster::new();
        cluster.create_job("j", "P1 C1 D5", "{}");
        cluster.start();
        cluster.hook = fate(is_create, Fate::AppliedError);
        cluster.replicas[0].deaf = [false, true];
        cluster.pass(1);
        cluster.hook = fate(is_create, refused);
        cluster.pass(9);
        cluster.replicas[0].deaf = [false, false];
        cluster.hook = Box::new(|_| Fate::Carried);
        cluster.pass(60);
        assert!(cluster.live().is_empty(), "a Job that is finished has a Pod that runs: {}", cluster.summary());
        cluster.nodes_confirm_deletions();
        cluster.pass(60);
        assert_eq!(cluster.still_tracked(), 0, "{}", cluster.summary());
        assert!(cluster.status().is_finished(), "{}", cluster.summary());
    }
}

/// A server that answers every creation with 500 receives fewer and fewer requests, and not one for each Pod in turn.
#[test]
fn a_server_that_always_fails_is_not_flooded_with_creations() {
    let mut cluster = Cluster::new();
    cluster.create_job("j", "P500 C500", "{}");
    cluster.start();
    cluster.hook = fate(is_create, Fate::ServerError);
    cluster.pass(600);
    let tries = cluster.count(is_create);
    assert!((5..20).contains(&tries), "{tries} creations in ten minutes");
    cluster.hook = Box::new(|_| Fate::Carried);
    cluster.pass(120);
    assert_eq!(cluster.live().len(), 500, "{}", cluster.summary());
}
