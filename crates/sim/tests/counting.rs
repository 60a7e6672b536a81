//! Every Pod is counted exactly once, and by its own Job, through adoption, orphans, and responses at unusual moments.
//! Each test is a fault that a review found; all of them are deterministic.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that is written wrong may panic")]

mod harness;

use harness::*;
use serde_json::{Value, json};
use tally_controllers::job::{Config, JobController};
use tally_core::ids::Revision;
use tally_core::pod::{Phase, PodView};
use tally_core::time::Span;
use tally_runtime::controller::{Controller, Input, Kind, Outbox, Refusal, Reply, Request};
use tally_sim::action::Action;
use tally_sim::api::{Actor, Hold, Propagation};

const JOB_UID: &str = "3b241101-e2bb-4255-8caf-4136c566a962";

fn carried() -> Box<dyn FnMut(&Action) -> Fate> {
    Box::new(|_| Fate::Carried)
}

// ---- responses in the middle of a list ----

/// The Job `j` and one of its Pods, at revisions of the test's choice.
fn job_at(revision: u64, notation: &str, status: &str) -> Value {
    let mut job: Value = serde_json::from_str(&job_text(JOB_UID, "j", "ns", notation, status)).unwrap();
    job["metadata"]["resourceVersion"] = revision.to_string().into();
    job
}

fn pod_at(revision: u64, name: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "ns", "name": name, "uid": "4b241101-e2bb-4255-8caf-4136c566a962",
            "resourceVersion": revision.to_string(), "finalizers": ["batch.kubernetes.io/job-tracking"],
            "labels": {"batch.kubernetes.io/controller-uid": JOB_UID},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": JOB_UID, "controller": true},
            ],
        },
        "status": {"phase": "Pending"},
    })
}

fn seen(kind: Kind, object: &Value) -> Input {
    Input::Apply(kind, object.to_string().into())
}

fn done(object: &Value) -> Reply {
    Reply::Done(object.to_string().into())
}

/// What a controller requests within an hour in which both streams are quiet, and how many Pods are active then.
fn an_hour(controller: &mut JobController, mut queue: Vec<Request>, mut job: Value) -> (usize, u64) {
    let (mut now, mut at, mut creations) = (START, 30, 0);
    let mut out = Outbox::default();
    for _ in 0..3600 {
        now = now + Span::from_seconds(1);
        at += 1;
        for kind in [Kind::JOB, Kind::POD] {
            controller.handle(Input::Bookmark(kind, Revision(at)), now, &mut out);
        }
        controller.handle(Input::Tick, now, &mut out);
        queue.append(&mut out.requests);
        for request in std::mem::take(&mut queue) {
            let known = job["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            let reply = match Action::of(&request.call) {
                Action::CreatePod { .. } => {
                    creations += 1;
                    continue;
                }
                Action::GetJob { .. } => done(&job),
                Action::ListPods { .. } => Reply::Listed { items: vec![], at: Revision(at) },
                Action::WriteJobStatus { revision, status, .. } if revision == Some(Revision(known)) => {
                    at += 1;
                    job["metadata"]["resourceVersion"] = at.to_string().into();
                    job["status"] = serde_json::to_value(&*status).unwrap();
                    done(&job)
                }
                Action::WriteJobStatus { .. } => {
                    Reply::Refused(Refusal { code: 409, reason: "Conflict".to_owned(), ..Refusal::default() })
                }
                _ => continue,
            };
            controller.handle(Input::Response { request: request.id, reply, served_at: None }, now, &mut out);
        }
        queue.append(&mut out.requests);
    }
    (creations, job["status"]["active"].as_u64().unwrap_or(0))
}

/// The response to a creation comes while Pods are being listed again; by the list the Pod has been created and
/// deleted, and another leader has counted it.
#[test]
fn a_creation_answered_in_the_middle_of_a_list_does_not_revive_the_pod() {
    for in_the_middle in [false, true] {
        let mut controller = JobController::new(Config::default());
        let mut out = Outbox::default();
        let mut tell = |input: Input| controller.handle(input, START, &mut out);
        tell(Input::Init(Kind::JOB));
        tell(seen(Kind::JOB, &job_at(5, "P1 C2", "{}")));
        tell(Input::InitDone(Kind::JOB, Revision(5)));
        tell(Input::Init(Kind::POD));
        tell(Input::InitDone(Kind::POD, Revision(5)));
        let asked = std::mem::take(&mut out.requests);
        let (id, name) = asked
            .iter()
            .find_map(|request| match Action::of(&request.call) {
                Action::CreatePod { name, .. } => Some((request.id, name)),
                _ => None,
            })
            .expect("a Pod is created");
        let answer = Input::Response { request: id, reply: done(&pod_at(10, &name)), served_at: None };
        let mut tell = |input: Input| controller.handle(input, START, &mut out);
        tell(Input::Init(Kind::POD));
        if in_the_middle {
            tell(answer.clone());
        }
        tell(Input::InitDone(Kind::POD, Revision(20)));
        if !in_the_middle {
            tell(answer);
        }
        let status = r#"{"startTime":"2023-11-14T22:00:00Z","succeeded":1,"active":0,"ready":0,"terminating":0,
            "uncountedTerminatedPods":{}}"#;
        let job = job_at(18, "P1 C2", status);
        tell(seen(Kind::JOB, &job));
        let queue = asked.into_iter().filter(|request| request.id != id).chain(out.requests).collect();
        let (creations, active) = an_hour(&mut controller, queue, job);
        assert_eq!((creations, active), (1, 0), "in the middle of the list: {in_the_middle}");
    }
}

/// One leader, no third party: the response to a deletion comes while Pods are being listed again, and by the list the
/// Pod is gone.
#[test]
fn a_deletion_answered_in_the_middle_of_a_list_does_not_revive_the_pod() {
    for in_the_middle in [false, true] {
        let mut cluster = running("P2 C3", "a=R b=R");
        cluster.edit_spec(|spec| spec.parallelism = 1);
        cluster.hook = fate(is_delete, Fate::AnsweredLate);
        cluster.settle();
        cluster.replicas[0].deaf = [false, true];
        cluster.nodes_confirm_deletions();
        let head = cluster.api.head();
        let pods = cluster.api.archive.state_at(&Kind::POD, head);
        if !in_the_middle {
            cluster.answer_late();
        }
        cluster.tell(0, Input::Init(Kind::POD));
        if in_the_middle {
            cluster.answer_late();
        }
        for pod in pods.into_values() {
            cluster.tell(0, Input::Apply(Kind::POD, pod.bytes.clone().into()));
        }
        cluster.tell(0, Input::InitDone(Kind::POD, head));
        cluster.replicas[0].cursors[Resource::Pods as usize] = cluster.api.pod_log.len();
        cluster.replicas[0].deaf = [false, false];
        cluster.hook = carried();
        for _ in 0..6 {
            cluster.pass(30);
            cluster.start_pods();
            cluster.pass(30);
            cluster.end_all(Phase::Succeeded);
        }
        cluster.pass(600);
        let status = cluster.status();
        let counts = (status.succeeded, status.active, status.terminating);
        assert_eq!(counts, (3, 0, Some(0)), "in the middle of the list: {in_the_middle}");
        assert!(status.is_finished());
    }
}

/// The same for a Job: a read of it is answered while Jobs are being listed again, and by the list it is gone.
#[test]
fn a_job_read_in_the_middle_of_a_list_that_lacks_it_is_gone() {
    let mut cluster = running("P1 C3", "a=R");
    // A conflict makes the controller read the Job; that response is delayed.
    let is_read = |action: &Action| matches!(action, Action::GetJob { .. });
    cluster.hook = Box::new(move |action| match action {
        Action::WriteJobStatus { .. } => Fate::Unavailable,
        action if is_read(action) => Fate::AnsweredLate,
        _ => Fate::Carried,
    });
    cluster.replicas[0].deaf = [true, false];
    cluster.end(&key("a"), Phase::Succeeded, 0);
    cluster.settle();
    assert!(cluster.count(is_read) > 0, "the Job is read");
    cluster.delete_job(Propagation::Background);
    assert!(!cluster.api.jobs.contains_key(&key("j")), "the Job is gone");
    cluster.hook = carried();
    let head = cluster.api.head();
    cluster.tell(0, Input::Init(Kind::JOB));
    cluster.answer_late();
    cluster.tell(0, Input::InitDone(Kind::JOB, head));
    cluster.replicas[0].cursors[Resource::Jobs as usize] = cluster.api.job_log.len();
    cluster.replicas[0].deaf = [false, false];
    cluster.pass(5);
    assert_eq!(cluster.still_tracked(), 0, "the Pods of a Job that is gone are let go");
    assert_eq!(cluster.replicas[0].controller.sizes()[0], 0, "no ledger is kept for it");
}

/// A Job is first observed while its Pods are being listed again. A Pod that an earlier list showed, and this one does
/// not, is gone.
#[test]
fn a_ledger_that_begins_in_the_middle_of_a_list_takes_over_no_pods_that_the_list_lacks() {
    let mut controller = JobController::new(Config::default());
    let mut out = Outbox::default();
    let mut tell = |input: Input| controller.handle(input, START, &mut out);
    tell(Input::Init(Kind::JOB));
    tell(Input::InitDone(Kind::JOB, Revision(4)));
    tell(Input::Init(Kind::POD));
    tell(seen(Kind::POD, &pod_at(8, "a")));
    tell(Input::InitDone(Kind::POD, Revision(9)));
    tell(Input::Init(Kind::POD));
    let job = job_at(5, "P1 C2", "{}");
    tell(seen(Kind::JOB, &job));
    tell(Input::InitDone(Kind::POD, Revision(20)));
    let (creations, active) = an_hour(&mut controller, out.requests, job);
    assert_eq!((creations, active), (1, 0));
}

// ---- orphans ----

/// Orphans the Job `j`, as `kubectl delete --cascade=orphan` and the garbage collector do.
fn orphaned(cluster: &mut Cluster, names: &[&str]) {
    cluster.delete_job(Propagation::Orphan);
    for name in names {
        cluster.api.edit_pod(&key(name), Actor::Collector, |pod| pod.controller = None);
    }
    cluster.api.unhold_job(&key("j"), Actor::Collector, Hold::Orphan);
}

fn label(pod: &mut PodView) {
    pod.labels = [("app".into(), "x".into())].into_iter().collect();
}

/// A Job with a selector of its own and these running Pods, which the controller has seen.
fn selecting(job: &str, pods: &[&str]) -> Cluster {
    let words: Vec<String> = pods.iter().map(|name| format!("{name}=R")).collect();
    let mut cluster = Cluster::with(job, &words.join(" "));
    for name in pods {
        cluster.api.edit_pod(&key(name), Actor::User, label);
    }
    cluster.start();
    cluster.settle();
    cluster
}

fn succeeded(cluster: &Cluster, job: &str) -> i32 {
    cluster.api.jobs[&key(job)].view.status.succeeded
}

#[test]
fn an_orphan_that_could_not_be_released_keeps_its_finalizer_once_it_is_adopted() {
    let mut cluster = selecting("P1 C1 label=x", &["a"]);
    orphaned(&mut cluster, &["a"]);
    cluster.hook = fate(is_release, Fate::Unavailable);
    cluster.settle();
    cluster.hook = carried();
    cluster.create_job("k", "P1 C1 label=x", "{}");
    cluster.pass(5);
    assert!(cluster.stored("a").unwrap().tracked, "the adopted Pod has its finalizer");
    cluster.end(&key("a"), Phase::Succeeded, 0);
    cluster.pass(5);
    assert_eq!(succeeded(&cluster, "k"), 1);
    assert_eq!(cluster.count(is_create), 0, "nothing is made in its place");
}

/// More orphans than are released at a time, and a Job that selects them before that. No fault is needed.
#[test]
fn hundreds_of_orphans_are_adopted_with_their_finalizers() {
    let names: Vec<String> = (0..300).map(|at| format!("o{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut cluster = selecting("P300 C300 label=x", &names);
    orphaned(&mut cluster, &names);
    cluster.create_job("k", "P300 C300 label=x", "{}");
    cluster.pass(30);
    let owned = |pod: &PodView| pod.controller.as_ref().is_some_and(|owner| owner.name == "k");
    let pods: Vec<_> = cluster.api.pods.values().map(|stored| stored.view.clone()).collect();
    assert_eq!(pods.iter().filter(|pod| owned(pod)).count(), 300);
    assert_eq!(pods.iter().filter(|pod| !pod.tracked).count(), 0, "Pods without their finalizer");
}

#[test]
fn a_release_of_an_orphan_under_way_does_not_strip_the_adopted_pod() {
    let mut cluster = selecting("P1 C1 label=x", &["a"]);
    orphaned(&mut cluster, &["a"]);
    cluster.hook = fate(is_release, Fate::Held);
    cluster.settle();
    cluster.create_job("k", "P1 C1 label=x", "{}");
    cluster.settle();
    cluster.hook = carried();
    cluster.pass(2);
    assert!(cluster.stored("a").unwrap().tracked, "the adopted Pod has its finalizer");
    cluster.end(&key("a"), Phase::Succeeded, 0);
    cluster.pass(5);
    assert_eq!(succeeded(&cluster, "k"), 1);
}

/// The Pod is adopted and loses its owner again before the controller receives the response to the first adoption.
#[test]
fn a_pod_that_loses_its_owner_while_its_adoption_is_unanswered_is_adopted_again() {
    let mut cluster = selecting("P1 C1 label=x", &["a"]);
    let adopted = |cluster: &Cluster| cluster.stored("a").unwrap().controller.is_some();
    cluster.api.edit_pod(&key("a"), Actor::User, |pod| pod.controller = None);
    cluster.hook = fate(is_adopt, Fate::AnsweredLate);
    cluster.settle();
    assert!(adopted(&cluster));
    cluster.api.edit_pod(&key("a"), Actor::User, |pod| pod.controller = None);
    cluster.hook = carried();
    cluster.settle();
    cluster.answer_late();
    cluster.pass(3);
    assert!(adopted(&cluster), "it is adopted again");
    cluster.end(&key("a"), Phase::Succeeded, 0);
    cluster.pass(3);
    assert_eq!((succeeded(&cluster, "j"), cluster.still_tracked()), (1, 0));
}

/// A refused adoption is not in flight: it is retried.
#[test]
fn an_adoption_that_was_refused_is_asked_for_again() {
    let mut cluster = selecting("P1 C1 label=x", &["a"]);
    cluster.api.edit_pod(&key("a"), Actor::User, |pod| pod.controller = None);
    cluster.hook = fate(is_adopt, Fate::Refused);
    cluster.settle();
    cluster.hook = carried();
    cluster.pass(3);
    assert!(cluster.stored("a").unwrap().controller.is_some());
}

/// A Job counts successes by index: once the Pod is orphaned, nothing says that it was this Pod. Another Job that
/// adopted it would count it again.
#[test]
fn a_pod_that_succeeded_with_an_index_is_not_taken_over_by_another_job() {
    let mut cluster = Cluster::with("P1 C1 indexed label=x", "a=0:R");
    cluster.api.edit_pod(&key("a"), Actor::User, label);
    cluster.start();
    cluster.settle();
    cluster.hook = fate(is_status, Fate::Held);
    cluster.end(&key("a"), Phase::Succeeded, 0);
    cluster.settle();
    cluster.create_job("k", "P1 C1 label=x", "{}");
    cluster.delete_job(Propagation::Orphan);
    cluster.api.edit_pod(&key("a"), Actor::Collector, |pod| pod.controller = None);
    cluster.settle();
    cluster.hook = carried();
    cluster.pass(5);
    assert_eq!(succeeded(&cluster, "k"), 0, "the Pod is the other Job's to count");
    assert!(cluster.stored("a").unwrap().controller.is_none() && !cluster.stored("a").unwrap().tracked);
}

/// The stream has not shown it yet: the response to a deletion is the first to show that the Pod no longer has an
/// owner.
#[test]
fn a_response_that_shows_a_pod_without_its_owner_counts_nothing() {
    let mut cluster = running("P2 C2 indexed FailJob=3", "a=0:R b=1:R");
    cluster.replicas[0].deaf = [false, true];
    cluster.api.edit_pod(&key("b"), Actor::User, |pod| pod.controller = None);
    cluster.end(&key("b"), Phase::Succeeded, 0);
    cluster.edit_spec(|spec| spec.active_deadline_seconds = Some(1));
    cluster.pass(5);
    assert!(cluster.count(is_delete) > 0, "the deadline ends the Pods");
    let status = cluster.status();
    assert_eq!((status.succeeded, &*status.completed_indexes), (0, ""));
}

/// A release based on an old state is refused if the Pod has changed since; then it is released based on the new state.
#[test]
fn an_orphan_that_changes_is_looked_at_and_let_go() {
    let mut cluster = running("P1 C1", "a=R");
    cluster.hook = fate(is_release, Fate::Held);
    cluster.delete_job(Propagation::Background);
    cluster.settle();
    cluster.replicas[0].deaf = [false, true];
    cluster.end(&key("a"), Phase::Succeeded, 0);
    cluster.hook = carried();
    cluster.settle();
    assert_eq!(cluster.still_tracked(), 0);
    assert_eq!(cluster.count(|action| matches!(action, Action::GetPod { .. })), 1, "it was looked at");
}

#[test]
fn a_controller_for_one_manager_leaves_pods_alone_that_no_job_of_its_own_had() {
    let mut cluster = Cluster::with("P1 C1 label=x", "a=R b=R");
    cluster.api.edit_pod(&key("a"), Actor::User, |pod| {
        label(pod);
        pod.controller = None;
    });
    let replica = cluster.start_as("tally.dev/job-controller");
    cluster.settle();
    // A Job that it has never observed is gone.
    cluster.delete_job(Propagation::Background);
    let head = cluster.api.head();
    cluster.restart_as("tally.dev/job-controller");
    cluster.list(replica, Resource::Jobs, head);
    cluster.pass(5);
    assert_eq!(cluster.count(is_release), 0);
    assert!(cluster.stored("a").unwrap().tracked && cluster.stored("b").unwrap().tracked);
}

#[test]
fn a_controller_for_one_manager_lets_go_of_the_pods_of_its_own_jobs() {
    let mut cluster = Cluster::with("P1 C1 managedBy=tally.dev/job-controller", "a=R");
    cluster.start_as("tally.dev/job-controller");
    cluster.settle();
    cluster.hook = fate(is_release, Fate::Held);
    cluster.delete_job(Propagation::Background);
    cluster.settle();
    // The Pod changes while it is being released.
    cluster.end(&key("a"), Phase::Succeeded, 0);
    cluster.settle();
    cluster.hook = carried();
    cluster.pass(3);
    assert_eq!(cluster.still_tracked(), 0);
}

// ---- adoption ----

/// OWN-4: a Pod that has ended without the finalizer is never adopted.
#[test]
fn a_counted_pod_that_loses_its_owner_is_not_counted_again() {
    for (phase, code) in [(Phase::Succeeded, 0), (Phase::Failed, 1)] {
        let mut cluster = running("P1 C3 BL6", "a=R");
        cluster.end(&key("a"), phase, code);
        cluster.settle();
        for _ in 0..3 {
            cluster.api.edit_pod(&key("a"), Actor::User, |pod| pod.controller = None);
            cluster.pass(3);
        }
        let status = cluster.status();
        assert_eq!(status.succeeded + status.failed, 1, "{phase:?}");
        assert!(!cluster.stored("a").unwrap().tracked, "it is let alone");
        assert_eq!(cluster.count(is_adopt), 0);
    }
}

/// Its Job has recorded it, and will tally it: another Job must not count it as well.
#[test]
fn a_recorded_pod_that_loses_its_owner_is_counted_by_no_other_job() {
    let mut cluster = selecting("P1 C3 label=x", &["a"]);
    cluster.hook = fate(is_release, Fate::Held);
    cluster.end(&key("a"), Phase::Succeeded, 0);
    cluster.settle();
    assert_eq!(cluster.status().uncounted().len(), 1, "on record");
    cluster.create_job("k", "P1 C1 label=x", "{}");
    cluster.api.edit_pod(&key("a"), Actor::User, |pod| pod.controller = None);
    cluster.settle();
    cluster.hook = carried();
    cluster.pass(5);
    assert_eq!((succeeded(&cluster, "j"), succeeded(&cluster, "k")), (1, 0));
    assert!(!cluster.stored("a").unwrap().tracked);
}

/// A Job waits for Pods that it is about to adopt, however often that fails: Pods created meanwhile would be too many.
/// OWN-7.
#[test]
fn no_pod_is_made_while_an_adoption_fails() {
    for trouble in [Fate::Unavailable, Fate::Lost, Fate::ReplyLost] {
        let mut cluster = Cluster::with("P1 C1 label=x", "a=R");
        cluster.api.edit_pod(&key("a"), Actor::User, |pod| {
            label(pod);
            pod.controller = None;
        });
        cluster.hook = fate(is_adopt, trouble);
        cluster.start();
        cluster.pass(60);
        cluster.hook = carried();
        cluster.pass(5);
        cluster.end(&key("a"), Phase::Succeeded, 0);
        cluster.pass(5);
        assert_eq!(cluster.count(is_create), 0, "{trouble:?}");
        assert_eq!(cluster.status().succeeded, 1, "{trouble:?}");
    }
}

/// A definite refusal is not waited for: a webhook must not block the Job forever (S15).
/// OWN-7.
#[test]
fn a_job_goes_on_without_a_pod_that_it_may_not_adopt() {
    let mut cluster = Cluster::with("P1 C1 label=x", "a=R");
    cluster.api.edit_pod(&key("a"), Actor::User, |pod| {
        label(pod);
        pod.controller = None;
    });
    cluster.hook = fate(is_adopt, Fate::Refused);
    cluster.start();
    cluster.pass(60);
    assert_eq!(cluster.count(is_create), 1);
}

// ---- unexpected statuses and modes ----

#[test]
fn a_running_pod_on_record_is_neither_released_nor_tallied_before_it_ends() {
    for pod in ["a=R", "a=R-"] {
        let lists = uncounted("a", "");
        let status = format!(
            r#"{{"startTime":"2023-11-14T22:00:00Z","active":1,"ready":0,"terminating":0,
            "uncountedTerminatedPods":{lists}}}"#
        );
        let mut cluster = Cluster::with_status("P1 C2", &status, pod);
        cluster.start();
        cluster.pass(5);
        assert_eq!(cluster.status().succeeded, 0, "{pod}");
        assert_eq!(cluster.count(is_release), 0, "{pod}");
        cluster.end(&key("a"), Phase::Succeeded, 0);
        cluster.pass(5);
        assert_eq!((cluster.status().succeeded, cluster.still_tracked()), (1, 1), "{pod}: and its successor is there");
    }
}

/// SYNC-8.
#[test]
fn a_job_of_an_unknown_completion_mode_lets_its_pods_go_when_it_is_deleted() {
    let mut cluster = Cluster::with("P1 C1 mode=Odd", "a=R b=S");
    cluster.start();
    cluster.pass(5);
    assert_eq!(cluster.still_tracked(), 2, "as long as it is not deleted nothing is touched");
    cluster.delete_job(Propagation::Foreground);
    for pod in ["a", "b"] {
        cluster.api.delete_pod(&key(pod), Actor::Collector, false);
    }
    cluster.pass(5);
    assert_eq!(cluster.still_tracked(), 0);
}

// ---- names ----

/// Creations are carried out out of order, the first ones have been counted, and another leader takes over: it fills
/// the gap. The request that the first leader sent then finds a Pod of that name instead of creating one too many.
#[test]
fn a_creation_still_under_way_and_the_next_leader_mean_the_same_pod() {
    let mut cluster = Cluster::new();
    cluster.create_job("j", "P3 C3", "{}");
    cluster.start();
    let mut created = Vec::new();
    cluster.hook = Box::new(move |action| match action {
        Action::CreatePod { name, .. } => {
            if !created.contains(name) {
                created.push(name.clone());
            }
            if created.get(1) == Some(name) { Fate::Held } else { Fate::Carried }
        }
        _ => Fate::Carried,
    });
    for _ in 0..3 {
        cluster.deliver_all(0);
        cluster.perform(0);
    }
    cluster.replicas[0].paused = true;
    cluster.hook = carried();
    assert_eq!((cluster.in_flight(is_create), cluster.live().len()), (1, 2), "{}", cluster.summary());
    cluster.end_all(Phase::Succeeded);
    cluster.start();
    cluster.pass(5);
    cluster.replicas[0].paused = false;
    cluster.pass(5);
    assert_eq!(cluster.api.pods.len(), 3, "{}", cluster.summary());
    cluster.end_all(Phase::Succeeded);
    cluster.pass(5);
    assert_eq!((cluster.status().succeeded, cluster.api.pods.len()), (3, 3));
    assert!(cluster.status().is_finished());
}
