//! Every Pod is counted exactly once, and by its own Job, through adoption, orphans, and answers at odd moments. Each test
//! is a fault that a review found; none of them needs luck.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that is written wrong may panic")]

mod harness;

use std::sync::Arc;

use harness::*;
use tally_controllers::job::{Config, JobMachine};
use tally_controllers::machine::{Action, Answer, Input, Machine, Object, Outbox, Request, Resource};
use tally_core::ids::Revision;
use tally_core::job::JobView;
use tally_core::pod::{Phase, PodView};
use tally_core::time::Span;

const JOB_UID: &str = "3b241101-e2bb-4255-8caf-4136c566a962";

fn running(job: &str, pods: &str) -> Cluster {
    let mut cluster = Cluster::with(job, pods);
    cluster.start();
    cluster.settle();
    cluster.forget_requests();
    cluster
}

fn fate(which: fn(&Action) -> bool, fate: Fate) -> Box<dyn FnMut(&Action) -> Fate> {
    Box::new(move |action| if which(action) { fate } else { Fate::Carried })
}

fn carried() -> Box<dyn FnMut(&Action) -> Fate> {
    Box::new(|_| Fate::Carried)
}

// ---- answers in the middle of a list ----

/// The Job `j` and one of its Pods as JSON has them, at revisions of the test's choice.
fn job_at(revision: u64, notation: &str, status: &str) -> Arc<JobView> {
    let text = job_text(JOB_UID, "j", "ns", notation, status)
        .replace("\"resourceVersion\":\"1\"", &format!("\"resourceVersion\":\"{revision}\""));
    Arc::new(JobView::from_json(text.as_bytes()).unwrap())
}

fn pod_at(revision: u64, name: &str) -> Arc<PodView> {
    let text = format!(
        r#"{{"metadata":{{"namespace":"ns","name":"{name}","uid":"4b241101-e2bb-4255-8caf-4136c566a962",
        "resourceVersion":"{revision}","finalizers":["batch.kubernetes.io/job-tracking"],
        "labels":{{"batch.kubernetes.io/controller-uid":"{JOB_UID}"}},"ownerReferences":[
        {{"apiVersion":"batch/v1","kind":"Job","name":"j","uid":"{JOB_UID}","controller":true}}]}},
        "status":{{"phase":"Pending"}}}}"#
    );
    Arc::new(PodView::from_json(text.as_bytes()).unwrap())
}

/// What a machine asks for within an hour in which both streams are quiet, and the status it leaves.
fn an_hour(machine: &mut JobMachine, mut queue: Vec<Request>, mut job: Arc<JobView>) -> (usize, Arc<JobView>) {
    let (mut now, mut at, mut creations) = (START, 30, 0);
    let mut out = Outbox::default();
    for _ in 0..3600 {
        now = now + Span::from_seconds(1);
        at += 1;
        for resource in [Resource::Jobs, Resource::Pods] {
            machine.handle(Input::Reached { resource, at: Revision(at) }, now, &mut out);
        }
        machine.handle(Input::Tick, now, &mut out);
        queue.append(&mut out.requests);
        for request in std::mem::take(&mut queue) {
            let answer = match &request.action {
                Action::CreatePod { .. } => {
                    creations += 1;
                    continue;
                }
                Action::GetJob { .. } => Answer::Done(Object::Job(job.clone())),
                Action::ListPods { .. } => Answer::Pods { pods: vec![], at: Revision(at) },
                Action::WriteJobStatus { revision, status, .. } if *revision == Some(job.revision) => {
                    at += 1;
                    let written = JobView { status: (**status).clone(), revision: Revision(at), ..(*job).clone() };
                    job = Arc::new(written);
                    Answer::Done(Object::Job(job.clone()))
                }
                Action::WriteJobStatus { .. } => Answer::Conflict,
                _ => continue,
            };
            machine.handle(Input::Answered { request: request.id, answer, served_at: None }, now, &mut out);
        }
        queue.append(&mut out.requests);
    }
    (creations, job)
}

/// The answer to a creation comes while Pods are being listed anew; by the list the Pod has come and gone, and another
/// leader has counted it.
#[test]
fn a_creation_answered_in_the_middle_of_a_list_does_not_revive_the_pod() {
    for in_the_middle in [false, true] {
        let mut machine = JobMachine::new(Config::default());
        let mut out = Outbox::default();
        let mut tell = |input: Input| machine.handle(input, START, &mut out);
        tell(Input::Listing { resource: Resource::Jobs });
        tell(Input::Observed(Object::Job(job_at(5, "P1 C2", "{}"))));
        tell(Input::Listed { resource: Resource::Jobs, at: Revision(5) });
        tell(Input::Listing { resource: Resource::Pods });
        tell(Input::Listed { resource: Resource::Pods, at: Revision(5) });
        let asked = std::mem::take(&mut out.requests);
        let (id, name) = asked
            .iter()
            .find_map(|request| match &request.action {
                Action::CreatePod { name, .. } => Some((request.id, name.clone())),
                _ => None,
            })
            .expect("a Pod is created");
        let answer =
            Input::Answered { request: id, answer: Answer::Done(Object::Pod(pod_at(10, &name))), served_at: None };
        let mut tell = |input: Input| machine.handle(input, START, &mut out);
        tell(Input::Listing { resource: Resource::Pods });
        if in_the_middle {
            tell(answer.clone());
        }
        tell(Input::Listed { resource: Resource::Pods, at: Revision(20) });
        if !in_the_middle {
            tell(answer);
        }
        let status = r#"{"startTime":"2023-11-14T22:00:00Z","succeeded":1,"active":0,"ready":0,"terminating":0,
            "uncountedTerminatedPods":{}}"#;
        let job = job_at(18, "P1 C2", status);
        tell(Input::Observed(Object::Job(job.clone())));
        let queue = asked.into_iter().filter(|request| request.id != id).chain(out.requests).collect();
        let (creations, job) = an_hour(&mut machine, queue, job);
        assert_eq!((creations, job.status.active), (1, 0), "in the middle of the list: {in_the_middle}");
    }
}

/// One leader, no meddling: the answer to a deletion comes while Pods are being listed anew, and by the list the Pod is
/// gone.
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
        let pods = cluster.api.pods_at(head);
        if !in_the_middle {
            cluster.answer_late();
        }
        cluster.tell(0, Input::Listing { resource: Resource::Pods });
        if in_the_middle {
            cluster.answer_late();
        }
        for pod in pods {
            cluster.tell(0, Input::Observed(Object::Pod(pod)));
        }
        cluster.tell(0, Input::Listed { resource: Resource::Pods, at: head });
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

/// The same for a Job: a read of it is answered while Jobs are being listed anew, and by the list it is gone.
#[test]
fn a_job_read_in_the_middle_of_a_list_that_lacks_it_is_gone() {
    let mut cluster = running("P1 C3", "a=R");
    // A conflict makes the controller read the Job; that answer waits.
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
    cluster.delete_job(tally_sim::api::Propagation::Background);
    assert!(!cluster.api.jobs.contains_key(&key("j")), "the Job is gone");
    cluster.hook = carried();
    let head = cluster.api.head();
    cluster.tell(0, Input::Listing { resource: Resource::Jobs });
    cluster.answer_late();
    cluster.tell(0, Input::Listed { resource: Resource::Jobs, at: head });
    cluster.replicas[0].cursors[Resource::Jobs as usize] = cluster.api.job_log.len();
    cluster.replicas[0].deaf = [false, false];
    cluster.pass(5);
    assert_eq!(cluster.still_tracked(), 0, "the Pods of a Job that is gone are let go");
    assert_eq!(cluster.replicas[0].machine.sizes()[0], 0, "no ledger is kept for it");
}

/// A Job is first heard of while its Pods are being listed anew. A Pod that an earlier list showed, and this one does
/// not, is gone.
#[test]
fn a_ledger_that_begins_in_the_middle_of_a_list_takes_over_no_pods_that_the_list_lacks() {
    let mut machine = JobMachine::new(Config::default());
    let mut out = Outbox::default();
    let mut tell = |input: Input| machine.handle(input, START, &mut out);
    tell(Input::Listing { resource: Resource::Jobs });
    tell(Input::Listed { resource: Resource::Jobs, at: Revision(4) });
    tell(Input::Listing { resource: Resource::Pods });
    tell(Input::Observed(Object::Pod(pod_at(8, "a"))));
    tell(Input::Listed { resource: Resource::Pods, at: Revision(9) });
    tell(Input::Listing { resource: Resource::Pods });
    let job = job_at(5, "P1 C2", "{}");
    tell(Input::Observed(Object::Job(job.clone())));
    tell(Input::Listed { resource: Resource::Pods, at: Revision(20) });
    let (creations, job) = an_hour(&mut machine, out.requests, job);
    assert_eq!((creations, job.status.active), (1, 0));
}
