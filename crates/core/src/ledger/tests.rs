//! The rules of the ledger that the comparison with the reference planner cannot show: what it reports to its caller,
//! responses of every kind, lists in pieces, delays, and the size of its secondary indexes.

mod given_up;

use serde_json::{Value, json};

use super::*;
use crate::gates::{FeatureGates, Gate};

const START: Timestamp = Timestamp::from_seconds(1_700_000_000);

/// One Job and its ledger, with a clock and the revisions up to which the streams have been observed.
struct Bench {
    ledger: Ledger,
    now: Timestamp,
    pods_at: u64,
    jobs_at: u64,
}

/// A Job whose accounting has begun.
fn job(spec: Value) -> Value {
    let mut job = json!({
        "metadata": {"namespace": "ns", "name": "j", "uid": "job", "resourceVersion": "10", "generation": 1},
        "spec": {
            "parallelism": 1, "completions": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "job"}},
            "template": {"spec": {}},
        },
        "status": {"startTime": "2023-11-14T22:13:20Z", "uncountedTerminatedPods": {}, "ready": 0, "terminating": 0},
    });
    merge(&mut job["spec"], spec);
    job
}

fn indexed(spec: Value) -> Value {
    let mut job = job(json!({"completionMode": "Indexed"}));
    merge(&mut job["spec"], spec);
    job
}

fn merge(object: &mut Value, change: Value) {
    for (key, value) in change.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
}

fn with_status(mut job: Value, status: Value) -> Value {
    merge(&mut job["status"], status);
    job
}

fn job_view(job: &Value) -> Arc<JobView> {
    Arc::new(JobView::from_json(job.to_string().as_bytes()).expect("a valid Job"))
}

/// A Pod of the Job that carries the finalizer.
fn pod(name: &str, revision: u64, phase: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "ns", "name": name, "uid": name, "resourceVersion": revision.to_string(),
            "creationTimestamp": "2023-11-14T22:13:20Z",
            "finalizers": ["batch.kubernetes.io/job-tracking"],
            "labels": {"batch.kubernetes.io/controller-uid": "job"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job", "controller": true}],
        },
        "status": {"phase": phase},
    })
}

fn released(mut pod: Value) -> Value {
    pod["metadata"]["finalizers"] = json!([]);
    pod
}

fn deleting(mut pod: Value) -> Value {
    pod["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z".into();
    pod["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    pod
}

fn at_index(mut pod: Value, index: u32) -> Value {
    pod["metadata"]["annotations"] = json!({"batch.kubernetes.io/job-completion-index": index.to_string()});
    pod
}

fn pod_view(pod: &Value) -> PodView {
    PodView::from_json(pod.to_string().as_bytes()).expect("a valid Pod")
}

fn uid(name: &str) -> PodUid {
    PodUid::new(name)
}

impl Bench {
    fn new(job: &Value) -> Self {
        let ledger = Ledger::new(job_view(job), Limits::default());
        Self { ledger, now: START, pods_at: 100, jobs_at: 100 }
    }

    fn sees(&mut self, pod: Value) {
        self.ledger.observe_pod(&pod_view(&pod), self.now);
    }

    fn plan(&mut self) -> Plan {
        let (pods_at, jobs_at) = (Revision(self.pods_at), Revision(self.jobs_at));
        self.ledger.plan(self.now, Horizon { pods_at, jobs_at, elsewhere: &Nowhere, crowded: false })
    }

    fn passes(&mut self, millis: i64) {
        self.now = self.now + Span::from_millis(millis);
    }

    /// The Job after the planned write, as the server stores it.
    fn stored(&self, plan: &Plan, revision: u64) -> Arc<JobView> {
        let status = plan.status.as_ref().expect("a status write").status.clone();
        let job = JobView { status, revision: Revision(revision), ..(**self.ledger.job()).clone() };
        Arc::new(job)
    }

    /// The planned status write succeeds.
    fn written(&mut self, plan: &Plan, revision: u64) {
        let stored = self.stored(plan, revision);
        self.ledger.status_written(stored, self.now);
    }

    /// A user changes the Job.
    fn edited(&mut self, job: &Value, revision: u64) {
        let mut job = job.clone();
        job["metadata"]["resourceVersion"] = revision.to_string().into();
        self.ledger.observe_job(job_view(&job));
    }

    /// The delay until the next plan, in milliseconds.
    fn wakes_in(&self, plan: &Plan) -> Option<i64> {
        plan.wake_at.map(|at| (at - self.now).millis())
    }
}

fn created(plan: &Plan) -> Vec<(&str, Option<u32>)> {
    plan.creations.iter().map(|new| (new.name.as_str(), new.index)).collect()
}

fn names(pods: &[PodRef]) -> Vec<&str> {
    let mut names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
    names.sort_unstable();
    names
}

// ---- what the ledger reports ----

#[test]
fn the_ledger_reports_its_pods_and_its_backlog() {
    let mut bench = Bench::new(&job(json!({"completions": 3, "parallelism": 3})));
    assert!(bench.ledger.is_empty());
    assert!(
        !bench.ledger.has_tracked_pods() && bench.ledger.committed.uncounted.is_empty() && !bench.ledger.is_writing()
    );
    assert_eq!((bench.ledger.uncounted_pods(), bench.ledger.knows_at(&uid("a"))), (0, None));

    bench.sees(pod("a", 20, "Succeeded"));
    bench.sees(released(pod("b", 21, "Running")));
    bench.sees(pod("c", 22, "Failed"));
    assert!(!bench.ledger.is_empty() && bench.ledger.has_tracked_pods());
    assert_eq!((bench.ledger.len(), bench.ledger.uncounted_pods()), (3, 2));
    assert_eq!(bench.ledger.knows_at(&uid("b")), Some(Revision(21)));
    assert_eq!(["a", "b", "c"].map(|name| bench.ledger.holds_ended(&uid(name))), [true, false, true]);

    let plan = bench.plan();
    assert!(bench.ledger.is_writing());
    bench.written(&plan, 30);
    assert!(!bench.ledger.is_writing() && !bench.ledger.committed.uncounted.is_empty());
    assert_eq!(["a", "b", "c"].map(|name| bench.ledger.has_recorded(&uid(name))), [true, false, true]);
    assert_eq!(bench.ledger.uncounted_pods(), 2);
}

#[test]
fn a_plan_with_any_part_is_not_empty() {
    assert!(Plan::default().is_empty());
    let pod = PodRef { uid: uid("a"), name: "a".into(), ignored: false, revision: None };
    let removal = Removal { uid: uid("a"), name: "a".into(), revision: Revision(1), tracked: true };
    let new = crate::blueprint::NewPod { name: "a".into(), index: None, failure_count: None, ignored_failure_count: 0 };
    let write = StatusWrite {
        base: Revision(1),
        status: crate::job::JobStatus::default(),
        handled: Vec::new(),
        ends_tracking: false,
    };
    for plan in [
        Plan { status: Some(Box::new(write)), ..Plan::default() },
        Plan { releases: vec![pod.clone()], ..Plan::default() },
        Plan { deletions: vec![pod], ..Plan::default() },
        Plan { removals: vec![removal], ..Plan::default() },
        Plan { creations: vec![new], ..Plan::default() },
    ] {
        assert!(!plan.is_empty(), "{plan:?}");
    }
}

// ---- accounting ----

#[test]
fn a_recorded_pod_is_tallied_only_without_the_finalizer_and_not_while_it_runs() {
    // The wrong live count makes sure that a status is written.
    let recorded = json!({"uncountedTerminatedPods": {"succeeded": ["a"]}, "active": 5});
    for (pod, tallied) in [
        (pod("a", 20, "Succeeded"), false),
        (pod("a", 20, "Running"), false),
        (released(pod("a", 20, "Running")), false),
        (released(pod("a", 20, "Succeeded")), true),
    ] {
        let mut bench = Bench::new(&with_status(job(json!({"completions": 2, "parallelism": 0})), recorded.clone()));
        bench.sees(pod.clone());
        let write = bench.plan().status.expect("a write");
        assert_eq!(write.status.succeeded, i32::from(tallied), "{pod}");
        assert_eq!(write.status.uncounted().len(), usize::from(!tallied), "{pod}");
    }
}

/// The Pods of another owner, all with the finalizer.
struct Elsewhere;

impl PodFacts for Elsewhere {
    fn is_tracked(&self, _: &PodUid) -> bool {
        true
    }
}

#[test]
fn a_recorded_pod_that_left_the_job_is_tallied_once_no_owner_has_it_with_the_finalizer() {
    let recorded = json!({"uncountedTerminatedPods": {"succeeded": ["a"]}, "active": 5});
    for (elsewhere, tallied) in [(&Elsewhere as &dyn PodFacts, false), (&Nowhere, true)] {
        let mut bench = Bench::new(&with_status(job(json!({"completions": 2, "parallelism": 0})), recorded.clone()));
        let horizon = Horizon { pods_at: Revision(100), jobs_at: Revision(100), elsewhere, crowded: false };
        let write = bench.ledger.plan(bench.now, horizon).status.expect("a write");
        assert_eq!((write.status.succeeded, write.status.uncounted().is_empty()), (i32::from(tallied), tallied));
    }
}

#[test]
fn a_write_that_the_stream_showed_first_was_ours_and_closes_no_gate() {
    let mut bench = Bench::new(&job(json!({"completions": 2, "parallelism": 2})));
    bench.sees(pod("a", 20, "Succeeded"));
    let before = bench.ledger.foreign_at();
    let plan = bench.plan();
    let stored = bench.stored(&plan, 130);
    bench.ledger.observe_job(stored.clone());
    assert_eq!(bench.ledger.foreign_at(), Revision(130));
    assert!(bench.plan().gate_closed());
    bench.ledger.status_written(stored, bench.now);
    assert_eq!(bench.ledger.foreign_at(), before);
    let plan = bench.plan();
    assert!(!plan.gate_closed() && plan.waits_for_pods.is_none());
    assert_eq!(names(&plan.releases), ["a"]);
}

#[test]
fn an_older_view_of_the_job_changes_nothing() {
    let mut bench = Bench::new(&job(json!({})));
    let known = bench.ledger.job().clone();
    for revision in [9, 10] {
        bench.edited(&with_status(job(json!({"parallelism": 7})), json!({"failed": 3})), revision);
        assert_eq!((bench.ledger.job(), bench.ledger.foreign_at()), (&known, Revision(10)));
    }
}

/// The Pods of another leader may be newer than ours: a Job does not end on Pods older than its last foreign change.
#[test]
fn a_job_that_another_writer_edited_ends_only_once_the_pods_have_caught_up() {
    let status = json!({"succeeded": 1});
    let mut bench = Bench::new(&with_status(job(json!({})), status.clone()));
    // An edit of the spec leaves the accounting alone, so the gate stays open.
    bench.edited(&with_status(job(json!({"ttlSecondsAfterFinished": 7})), status), 150);
    let plan = bench.plan();
    assert!(!plan.gate_closed() && plan.status.is_none());
    assert_eq!(plan.waits_for_pods, Some(Revision(150)));
    bench.pods_at = 150;
    let plan = bench.plan();
    assert!(plan.status.as_ref().is_some_and(|write| write.status.is_finished()), "{plan:?}");
    assert_eq!(plan.waits_for_pods, None);
}

#[test]
fn a_job_with_pods_left_needs_no_pods_as_new_as_its_last_edit_to_be_decided() {
    let status = json!({"failed": 1});
    let mut bench = Bench::new(&with_status(job(json!({"backoffLimit": 0})), status.clone()));
    bench.sees(pod("a", 20, "Running"));
    bench.edited(&with_status(job(json!({"backoffLimit": 0, "ttlSecondsAfterFinished": 7})), status), 150);
    let plan = bench.plan();
    assert_eq!(plan.waits_for_pods, None);
    let write = plan.status.expect("the decision");
    assert!(write.status.is_true(condition::FAILURE_TARGET) && !write.status.is_finished());
}

#[test]
fn a_suspended_job_reports_it_once_its_pods_are_gone_and_the_pods_are_as_new_as_the_job() {
    let mut bench = Bench::new(&job(json!({})));
    bench.sees(pod("a", 20, "Running"));
    bench.edited(&job(json!({"suspend": true})), 150);
    // First the Pod goes: nothing is reported, and no newer Pods are waited for.
    let plan = bench.plan();
    assert_eq!(plan.removals.len(), 1);
    assert_eq!(plan.waits_for_pods, None);
    let suspended = |plan: &Plan| plan.status.as_ref().is_some_and(|write| write.status.is_true(condition::SUSPENDED));
    assert!(!suspended(&plan));
    bench.ledger.pod_gone(&uid("a"), Revision(60));
    bench.ledger.status_unwritten();
    let plan = bench.plan();
    assert_eq!(plan.waits_for_pods, Some(Revision(150)));
    assert!(!suspended(&plan));
    bench.ledger.status_unwritten();
    bench.pods_at = 150;
    bench.passes(1_000);
    let plan = bench.plan();
    assert_eq!(plan.waits_for_pods, None);
    assert!(suspended(&plan), "{plan:?}");
}

#[test]
fn a_running_job_that_was_never_suspended_does_not_wait_for_newer_pods() {
    let mut bench = Bench::new(&job(json!({})));
    bench.sees(pod("a", 20, "Running"));
    bench.edited(&job(json!({"ttlSecondsAfterFinished": 7})), 150);
    let plan = bench.plan();
    assert_eq!(plan.waits_for_pods, None);
    assert_eq!(plan.status.expect("live counts").status.active, 1);
}

#[test]
fn a_resumed_job_reports_it_without_waiting_for_newer_pods() {
    let suspended = json!({"conditions": [
        {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended"},
    ]});
    let mut bench = Bench::new(&with_status(job(json!({"suspend": true})), suspended.clone()));
    bench.edited(&with_status(job(json!({})), suspended), 150);
    let plan = bench.plan();
    assert_eq!(plan.waits_for_pods, None);
    let write = plan.status.expect("the condition");
    assert!(!write.status.is_true(condition::SUSPENDED));
}

/// Under load the next write waits, so that a Job of many Pods does not cost a write for each of them.
#[test]
fn a_write_that_recorded_many_indexes_delays_the_next_one() {
    for (finished, busy) in [(15, false), (16, true)] {
        let mut bench = Bench::new(&indexed(json!({"completions": 40, "parallelism": 40})));
        bench.ledger.job_confirmed(Revision(100));
        let name = |index: u32| format!("p{index}");
        for index in 0..40 {
            let phase = if index < finished { "Succeeded" } else { "Running" };
            bench.sees(at_index(pod(&name(index), 20 + u64::from(index), phase), index));
        }
        let plan = bench.plan();
        bench.written(&plan, 110);
        bench.sees(at_index(pod("p39", 90, "Succeeded"), 39));
        let plan = bench.plan();
        assert_eq!(plan.status.is_none(), busy, "{finished}");
        assert_eq!(bench.wakes_in(&plan) == Some(50), busy, "{finished}: {:?}", bench.wakes_in(&plan));
    }
}

#[test]
fn the_condition_suspended_is_written_again_if_any_part_of_it_differs() {
    let condition = |status: &str, reason: &str, message: &str| json!({"conditions": [{"type": "Suspended", "status": status, "reason": reason, "message": message}]});
    for (found, differs) in [
        (condition("True", "JobSuspended", "Job suspended"), false),
        (condition("False", "JobSuspended", "Job suspended"), true),
        (condition("True", "Other", "Job suspended"), true),
        (condition("True", "JobSuspended", "other"), true),
        (json!({}), true),
    ] {
        let mut bench = Bench::new(&with_status(job(json!({"suspend": true})), found.clone()));
        let plan = bench.plan();
        let rewritten =
            plan.status.as_ref().is_some_and(|write| write.status.conditions != bench.ledger.job().status.conditions);
        assert_eq!(rewritten, differs, "{found}");
    }
}

#[test]
fn a_failed_pod_is_reported_to_the_failure_policy_once_it_is_recorded() {
    let policy = json!({"podFailurePolicy": {"rules": [
        {"action": "Count", "onExitCodes": {"operator": "In", "values": [3]}},
    ]}});
    let mut bench = Bench::new(&job(policy));
    let mut failed = pod("a", 20, "Failed");
    failed["status"]["containerStatuses"] = json!([{"name": "c", "state": {"terminated": {"exitCode": 3}}}]);
    bench.sees(failed);
    let write = bench.plan().status.expect("a record");
    assert_eq!(write.handled.iter().map(|action| action.name()).collect::<Vec<_>>(), ["Count"]);
}

/// Until the release arrives, the Pod may have become a success, which must not be lost.
#[test]
fn the_release_of_an_ignored_failure_is_conditional_on_its_revision() {
    let ignore = json!({"podFailurePolicy": {"rules": [
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}},
    ]}});
    let mut failed = pod("a", 20, "Failed");
    failed["status"]["containerStatuses"] = json!([{"name": "c", "state": {"terminated": {"exitCode": 3}}}]);
    let mut bench = Bench::new(&job(ignore));
    bench.sees(failed.clone());
    let plan = bench.plan();
    assert_eq!(
        plan.releases.iter().map(|pod| (pod.ignored, pod.revision)).collect::<Vec<_>>(),
        [(true, Some(Revision(20)))]
    );
    // A counted failure is recorded first, and what is recorded stands.
    let mut bench = Bench::new(&with_status(job(json!({})), json!({"uncountedTerminatedPods": {"failed": ["a"]}})));
    bench.sees(failed);
    assert_eq!(
        bench.plan().releases.iter().map(|pod| (pod.ignored, pod.revision)).collect::<Vec<_>>(),
        [(false, None)]
    );
}

// ---- observations of Pods ----

#[test]
fn a_response_about_an_unknown_pod_counts_only_if_the_stream_has_not_passed_it() {
    for (revision, known) in [(99, false), (100, false), (101, true)] {
        let mut bench = Bench::new(&job(json!({})));
        bench.ledger.observe_response(&pod_view(&pod("a", revision, "Running")), Revision(100), START);
        assert_eq!(bench.ledger.len(), usize::from(known), "{revision}");
    }
}

#[test]
fn a_known_pod_never_goes_back_to_an_older_revision() {
    let mut bench = Bench::new(&job(json!({})));
    bench.sees(pod("a", 20, "Succeeded"));
    bench.sees(pod("a", 19, "Running"));
    assert_eq!(bench.ledger.knows_at(&uid("a")), Some(Revision(20)));
    assert!(bench.ledger.holds_ended(&uid("a")));
}

#[test]
fn a_list_without_a_pod_means_that_the_pod_is_gone_unless_it_is_newer() {
    let mut bench = Bench::new(&job(json!({"parallelism": 4, "completions": 4})));
    for (name, revision) in [("listed", 20), ("missing", 21), ("touched", 22), ("newer", 201)] {
        bench.sees(pod(name, revision, "Running"));
    }
    bench.ledger.relist_begins();
    bench.sees(pod("listed", 20, "Running"));
    bench.ledger.pod_is_listed(&uid("touched"));
    bench.ledger.relist_ends(Revision(200));
    let left: Vec<String> = bench.ledger.pods().map(|pod| pod.name.to_string()).collect();
    assert_eq!(left, ["listed", "touched", "newer"]);
}

/// A response that arrives while a list is being read is not part of the list.
#[test]
fn a_response_does_not_put_a_pod_into_a_list() {
    let mut bench = Bench::new(&job(json!({})));
    bench.sees(pod("a", 20, "Running"));
    bench.ledger.relist_begins();
    bench.ledger.observe_response(&pod_view(&pod("a", 30, "Running")), Revision(100), START);
    bench.ledger.relist_ends(Revision(200));
    assert!(bench.ledger.is_empty());
}

#[test]
fn a_pod_that_a_response_showed_as_gone_is_not_revived_by_older_events() {
    let mut bench = Bench::new(&job(json!({})));
    bench.sees(pod("a", 20, "Running"));
    bench.ledger.pod_gone_by_response(&uid("a"));
    assert!(bench.ledger.is_empty());
    bench.sees(pod("a", 21, "Running"));
    assert!(bench.ledger.is_empty());
    // A list that still contains the Pod is older than the response.
    bench.ledger.relist_begins();
    bench.sees(pod("a", 21, "Running"));
    bench.ledger.relist_ends(Revision(50));
    bench.sees(pod("a", 22, "Running"));
    assert!(bench.ledger.is_empty() && bench.ledger.lists.tombstones() == 1);
    // A list older than the Pod says nothing about it; a newer one without it says that no more events follow.
    bench.ledger.relist_begins();
    bench.ledger.relist_ends(Revision(19));
    assert_eq!(bench.ledger.lists.tombstones(), 1);
    bench.ledger.relist_begins();
    bench.ledger.relist_ends(Revision(20));
    assert_eq!(bench.ledger.lists.tombstones(), 0);
}

#[test]
fn a_list_of_the_jobs_own_pods_drops_what_it_lacks_and_waits_for_the_stream_about_tracked_pods() {
    let mut bench = Bench::new(&job(json!({"parallelism": 4, "completions": 4})));
    bench.sees(released(pod("free", 20, "Running")));
    bench.sees(pod("held", 21, "Succeeded"));
    bench.sees(released(pod("newer", 131, "Running")));
    let listed = [Arc::new(pod_view(&pod("found", 125, "Running")))];
    bench.ledger.pods_listed(&listed, Revision(130), Revision(100), START);
    let mut left: Vec<String> = bench.ledger.pods().map(|pod| pod.name.to_string()).collect();
    left.sort_unstable();
    assert_eq!(left, ["found", "held", "newer"]);
    // The tracked Pod may be gone or may have lost its owner: it is not recorded until the stream shows it again.
    let recorded = |plan: &Plan| plan.status.as_ref().is_some_and(|write| !write.status.uncounted().is_empty());
    assert!(!recorded(&bench.plan()));
    bench.ledger.status_unwritten();
    bench.sees(pod("held", 130, "Succeeded"));
    assert!(!recorded(&bench.plan()));
    bench.ledger.status_unwritten();
    bench.sees(pod("held", 131, "Succeeded"));
    assert!(recorded(&bench.plan()));
}

#[test]
fn an_unknown_pod_at_or_before_the_jobs_own_list_is_kept_only_with_the_finalizer() {
    for (pod, revision, kept) in [
        (pod("a", 130, "Running"), 130, true),
        (released(pod("a", 130, "Running")), 130, false),
        (released(pod("a", 131, "Running")), 131, true),
    ] {
        let mut bench = Bench::new(&job(json!({})));
        bench.ledger.pods_listed(&[], Revision(130), Revision(100), START);
        bench.sees(pod);
        assert_eq!(bench.ledger.len(), usize::from(kept), "{revision}");
    }
}

// ---- creations ----

#[test]
fn a_pod_that_another_writer_released_uncounted_makes_the_job_be_read_before_pods_are_created() {
    let recorded = json!({"uncountedTerminatedPods": {"succeeded": ["a"]}});
    for (pod, status, rereads) in [
        (pod("a", 150, "Running"), json!({}), false),
        (released(pod("a", 150, "Succeeded")), json!({}), true),
        (released(pod("a", 150, "Succeeded")), recorded, false),
    ] {
        let mut bench = Bench::new(&with_status(job(json!({"parallelism": 3, "completions": 9})), status));
        bench.ledger.job_confirmed(Revision(100));
        bench.sees(pod.clone());
        let plan = bench.plan();
        assert_eq!((plan.must_reread_job, plan.creations.is_empty()), (rereads, rereads), "{pod}");
    }
}

/// An Indexed Job is read no more often than another one: our view of it accounts for a success by its index.
#[test]
fn a_released_pod_whose_index_our_view_contains_makes_nobody_read_the_job() {
    enum Write {
        Ours,
        Observed,
        Unobserved,
    }
    let indexed = job(json!({"parallelism": 4, "completions": 9, "completionMode": "Indexed"}));
    for (write, rereads) in [(Write::Ours, false), (Write::Observed, false), (Write::Unobserved, true)] {
        let mut bench = Bench::new(&indexed);
        bench.ledger.job_confirmed(Revision(100));
        bench.sees(at_index(pod("a", 101, "Succeeded"), 0));
        bench.sees(at_index(pod("b", 102, "Running"), 1));
        let plan = bench.plan();
        let stored = bench.stored(&plan, 111);
        match write {
            Write::Ours => bench.ledger.status_written(stored, bench.now),
            Write::Observed => {
                bench.ledger.status_unwritten();
                bench.ledger.observe_job(stored);
            }
            Write::Unobserved => bench.ledger.status_unwritten(),
        }
        // The first batch is one Pod.
        let new = &plan.creations[0];
        let new = at_index(pod(&new.name, 103, "Pending"), new.index.expect("an index"));
        bench.ledger.created(&pod_view(&new), Revision(102), bench.now);
        bench.sees(at_index(released(pod("a", 112, "Succeeded")), 0));
        (bench.pods_at, bench.jobs_at) = (120, 111);
        let plan = bench.plan();
        assert_eq!((plan.must_reread_job, plan.creations.is_empty()), (rereads, rereads), "{plan:?}");
    }
}

#[test]
fn refused_creations_back_off_from_one_second_to_sixty_four() {
    let mut bench = Bench::new(&job(json!({})));
    let mut waits = Vec::new();
    for _ in 0..9 {
        let plan = bench.plan();
        let name = plan.creations[0].name.clone();
        bench.ledger.creation_failed(&name, bench.now);
        let wait = bench.plan();
        assert!(wait.creations.is_empty());
        waits.push(bench.wakes_in(&wait).expect("a time"));
        bench.now = wait.wake_at.expect("a time");
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64, 64].map(|seconds| seconds * 1_000));
    // A success ends the series.
    let plan = bench.plan();
    let name = plan.creations[0].name.to_string();
    bench.ledger.created(&pod_view(&pod(&name, 130, "Pending")), Revision(100), bench.now);
    bench.ledger.pod_gone(&uid(&name), Revision(99));
    let plan = bench.plan();
    bench.ledger.creation_failed(&plan.creations[0].name, bench.now);
    let wait = bench.plan();
    assert_eq!(bench.wakes_in(&wait), Some(1_000));
}

#[test]
fn a_creation_of_unknown_outcome_is_retried_under_the_same_name_after_a_delay() {
    for mut bench in [Bench::new(&job(json!({}))), Bench::new(&indexed(json!({})))] {
        let plan = bench.plan();
        let wanted: Vec<_> = created(&plan).into_iter().map(|(name, index)| (name.to_owned(), index)).collect();
        assert_eq!(wanted.len(), 1);
        let name = wanted[0].0.clone();
        for seconds in [1, 2, 4] {
            bench.ledger.creation_unknown(&name, bench.now);
            let plan = bench.plan();
            assert!(plan.creations.is_empty() && !plan.must_list_pods);
            assert_eq!(bench.wakes_in(&plan), Some(seconds * 1_000));
            bench.passes(seconds * 1_000);
            let plan = bench.plan();
            assert_eq!(created(&plan), [(name.as_str(), wanted[0].1)]);
            assert_eq!(plan.creations[0].failure_count, None);
        }
        // Its Pod appears: nothing is left to resolve.
        bench.ledger.creation_unknown(&name, bench.now);
        let appeared = pod(&name, 130, "Pending");
        bench.sees(if bench.ledger.mode.indexed { at_index(appeared, 0) } else { appeared });
        assert!(bench.ledger.creations.is_empty());
    }
}

#[test]
fn a_creation_of_unknown_outcome_that_is_no_longer_wanted_is_resolved_by_a_list() {
    let mut bench = Bench::new(&job(json!({"parallelism": 2, "completions": 2})));
    let plan = bench.plan();
    bench.ledger.creation_unknown(&plan.creations[0].name, bench.now);
    bench.edited(&job(json!({"parallelism": 0, "completions": 2})), 90);
    bench.passes(5_000);
    let plan = bench.plan();
    assert!(plan.must_list_pods && plan.creations.is_empty());
    // A list that was requested after the attempt settles it.
    bench.ledger.list_begins();
    bench.ledger.pods_listed(&[], Revision(130), Revision(100), bench.now);
    assert!(bench.ledger.creations.is_empty());
    assert!(!bench.plan().must_list_pods);
}

#[test]
fn an_index_that_is_done_or_out_of_range_makes_a_creation_of_unknown_outcome_unwanted() {
    let spec = |completions: u32| json!({"completions": completions, "parallelism": completions});
    for (change, unwanted) in [
        (indexed(spec(2)), false),
        (indexed(spec(1)), true),
        (with_status(indexed(spec(2)), json!({"completedIndexes": "1", "succeeded": 1})), true),
    ] {
        let mut bench = Bench::new(&indexed(spec(2)));
        bench.sees(at_index(pod("zero", 20, "Running"), 0));
        let plan = bench.plan();
        assert_eq!(plan.creations[0].index, Some(1));
        bench.ledger.creation_unknown(&plan.creations[0].name, bench.now);
        bench.passes(5_000);
        bench.edited(&change, 90);
        let plan = bench.plan();
        assert_eq!((plan.must_list_pods, plan.creations.is_empty()), (unwanted, unwanted), "{change}");
    }
}

#[test]
fn a_creation_of_unknown_outcome_waits_for_the_back_off_of_its_index() {
    for (seconds, unwanted) in [(5, true), (10, false)] {
        let mut bench = Bench::new(&indexed(json!({"backoffLimitPerIndex": 2})));
        let plan = bench.plan();
        bench.ledger.creation_unknown(&plan.creations[0].name, bench.now);
        // Another Pod of the index fails meanwhile.
        bench.sees(at_index(pod("a", 20, "Failed"), 0));
        bench.passes(seconds * 1_000);
        bench.ledger.status_unwritten();
        let plan = bench.plan();
        assert_eq!((plan.must_list_pods, plan.creations.is_empty()), (unwanted, unwanted), "{seconds}");
    }
}

#[test]
fn a_pod_that_is_gone_by_a_response_alone_makes_the_job_be_read_before_another_is_created() {
    let mut bench = Bench::new(&job(json!({"completions": 2})));
    bench.ledger.job_confirmed(Revision(100));
    bench.sees(pod("a", 150, "Running"));
    bench.ledger.pod_gone_by_response(&uid("a"));
    assert_eq!(bench.plan().held, Some(Hold::JobUnconfirmed));
}

#[test]
fn a_creation_that_failed_after_an_unknown_attempt_stays_unknown() {
    let mut bench = Bench::new(&job(json!({})));
    let name = bench.plan().creations[0].name.clone();
    bench.ledger.creation_unknown(&name, bench.now);
    bench.passes(1_000);
    assert_eq!(bench.plan().creations.len(), 1);
    bench.ledger.creation_failed(&name, bench.now);
    assert!(bench.ledger.creations.is_unknown(&name));
    assert_eq!(bench.ledger.creations.refused_until(bench.now), None);
}

#[test]
fn the_numbers_of_pod_names_wrap_around() {
    let mut bench = Bench::new(&with_status(job(json!({"parallelism": 2, "completions": 9})), json!({"succeeded": 1})));
    let last = crate::names::ATTEMPTS - 1;
    // Two numbers are free, and the lower one belonged to the Pod that was counted.
    bench.ledger.used_attempts = IndexSet::below(last);
    bench.ledger.used_attempts.remove(5);
    bench.ledger.creations.widen(2);
    let plan = bench.plan();
    let expected = [last, 5].map(|number| bench.ledger.names.name(None, number));
    assert_eq!(plan.creations.iter().map(|new| new.name.clone()).collect::<Vec<_>>(), expected);
}

#[test]
fn each_batch_of_creations_that_succeeds_doubles_the_next() {
    let mut bench = Bench::new(&job(json!({"parallelism": 100, "completions": 100})));
    let mut sizes = Vec::new();
    for _ in 0..4 {
        let plan = bench.plan();
        sizes.push(plan.creations.len());
        for new in &plan.creations {
            assert!(bench.plan().creations.is_empty(), "the batch is not complete");
            bench.ledger.created(&pod_view(&pod(&new.name, 130, "Pending")), Revision(100), bench.now);
        }
    }
    assert_eq!(sizes, [1, 2, 4, 8]);
    // A refusal starts again with one.
    let plan = bench.plan();
    for new in &plan.creations {
        bench.ledger.creation_failed(&new.name, bench.now);
    }
    bench.passes(64_000);
    assert_eq!(bench.plan().creations.len(), 1);
}

/// A Job that lacks Pods and gets none states why, and the plan contains what ends the wait.
#[test]
fn a_job_that_gets_no_pods_states_why() {
    let at = |seconds: i64| START + Span::from_seconds(seconds);
    let check = |bench: &mut Bench, expected: Option<Hold>| {
        let plan = bench.plan();
        assert_eq!(plan.held, expected);
        assert_eq!(plan.creations.is_empty(), expected.is_some(), "{expected:?}");
        plan
    };
    let mut bench = Bench::new(&job(json!({"suspend": true})));
    check(&mut bench, Some(Hold::Suspended));

    let mut bench = Bench::new(&job(json!({})));
    bench.pods_at = 9;
    assert_eq!(check(&mut bench, Some(Hold::PodsBehind(Revision(10)))).waits_for_pods, Some(Revision(10)));

    // One Pod too many goes first; then the Job has what it wants.
    let mut bench = Bench::new(&indexed(json!({"completions": 3, "parallelism": 3})));
    bench.sees(at_index(pod("a", 20, "Running"), 0));
    bench.sees(at_index(pod("b", 21, "Running"), 0));
    assert_eq!(check(&mut bench, Some(Hold::Removing)).removals.len(), 1);
    check(&mut bench, Some(Hold::Removing));

    let mut bench = Bench::new(&job(json!({"parallelism": 2, "completions": 4})));
    let name = check(&mut bench, None).creations[0].name.clone();
    check(&mut bench, Some(Hold::CreationsInFlight));
    bench.ledger.creation_failed(&name, bench.now);
    assert_eq!(check(&mut bench, Some(Hold::Refused(at(1)))).wake_at, Some(at(1)));
    bench.passes(1_000);
    let name = check(&mut bench, None).creations[0].name.clone();
    bench.ledger.creation_unknown(&name, bench.now);
    assert_eq!(check(&mut bench, Some(Hold::CreationsUnknown)).wake_at, Some(at(2)));
    bench.edited(&job(json!({"parallelism": 0, "completions": 4})), 90);
    assert!(check(&mut bench, Some(Hold::UnwantedCreations)).must_list_pods);

    let mut bench = Bench::new(&job(json!({})));
    bench.sees(pod("a", 20, "Failed"));
    bench.now = at(3);
    assert_eq!(check(&mut bench, Some(Hold::Backoff(at(10)))).wake_at, Some(at(10)));
    bench.now = at(10);
    check(&mut bench, None);

    let mut bench = Bench::new(&indexed(json!({"backoffLimitPerIndex": 2})));
    bench.sees(at_index(pod("a", 20, "Failed"), 0));
    bench.now = at(3);
    assert_eq!(check(&mut bench, Some(Hold::IndexBackoff(at(10)))).wake_at, Some(at(10)));
    bench.now = at(10);
    check(&mut bench, None);

    // The other indexes get their Pods meanwhile.
    let mut bench = Bench::new(&indexed(json!({"completions": 2, "parallelism": 2, "backoffLimitPerIndex": 2})));
    bench.sees(at_index(pod("a", 20, "Failed"), 0));
    bench.now = at(3);
    assert_eq!(check(&mut bench, None).wake_at, Some(at(10)));

    let mut bench = Bench::new(&job(json!({"parallelism": 2, "completions": 4})));
    bench.sees(pod("a", 150, "Running"));
    assert!(check(&mut bench, Some(Hold::JobUnconfirmed)).must_reread_job);
    bench.ledger.job_confirmed(Revision(150));
    check(&mut bench, None);

    // A Job that wants no more Pods, and one that ends, are not held.
    let mut bench = Bench::new(&job(json!({})));
    bench.sees(pod("a", 20, "Running"));
    assert_eq!(bench.plan().held, None);
    let mut bench = Bench::new(&with_status(job(json!({"backoffLimit": 0})), json!({"failed": 1})));
    assert_eq!(bench.plan().held, None);
}

// ---- requests about Pods ----

#[test]
fn a_refused_release_is_retried_after_a_growing_delay_or_when_the_pod_changes() {
    let recorded = json!({"uncountedTerminatedPods": {"succeeded": ["a"]}});
    let mut bench = Bench::new(&with_status(job(json!({"completions": 2})), recorded));
    bench.sees(pod("a", 20, "Succeeded"));
    bench.sees(pod("b", 21, "Running"));
    for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
        assert_eq!(names(&bench.plan().releases), ["a"]);
        bench.ledger.pod_refused(&uid("a"), bench.now);
        bench.ledger.status_unwritten();
        bench.passes(seconds * 1_000 - 1);
        assert!(bench.plan().releases.is_empty(), "{seconds}");
        bench.ledger.status_unwritten();
        bench.passes(1);
    }
    assert_eq!(names(&bench.plan().releases), ["a"]);
    bench.ledger.pod_refused(&uid("a"), bench.now);
    bench.sees(pod("a", 20, "Succeeded"));
    assert!(bench.plan().releases.is_empty());
    bench.sees(pod("a", 22, "Succeeded"));
    assert_eq!(names(&bench.plan().releases), ["a"]);
}

/// The response was lost, and another Pod came: the one that may be gone already is removed, not another one with it. Found by the
/// simulator (dead-node-wait 520084492, I24).
#[test]
fn a_pod_whose_removal_may_have_begun_is_removed_before_others() {
    let mut bench = Bench::new(&job(json!({"parallelism": 0})));
    bench.sees(pod("b", 21, "Running"));
    let removals = |bench: &mut Bench| bench.plan().removals.iter().map(|pod| pod.name.to_string()).collect::<Vec<_>>();
    assert_eq!(removals(&mut bench), ["b"]);
    bench.ledger.removal_unknown(&uid("b"));
    bench.ledger.pod_refused(&uid("b"), bench.now);
    bench.edited(&job(json!({"parallelism": 1})), 22);
    bench.passes(60_000);
    assert!(bench.plan().removals.is_empty(), "as far as is known it is the only one");
    // By its phase the new one would go first.
    bench.sees(pod("c", 23, "Pending"));
    assert_eq!(removals(&mut bench), ["b"]);
    // One that has certainly lost its finalizer goes first (crash_sweep, limits, seed 8).
    bench.ledger.removal_unknown(&uid("b"));
    bench.ledger.pod_answered(&uid("b"));
    bench.sees(released(pod("d", 23, "Running")));
    bench.ledger.pod_gone(&uid("c"), Revision(24));
    assert_eq!(removals(&mut bench), ["d"]);
    bench.ledger.pod_gone(&uid("d"), Revision(25));
    bench.sees(pod("c", 26, "Pending"));
    assert_eq!(removals(&mut bench), ["b"]);
    // What has happened to it is known now.
    bench.ledger.pod_refused(&uid("b"), bench.now);
    bench.sees(pod("b", 27, "Running"));
    assert_eq!(removals(&mut bench), ["c"]);
}

/// The Pod left the Job and returned while its removal was in flight: the removal goes on.
#[test]
fn a_pod_whose_removal_is_under_way_is_not_removed_again() {
    let mut bench = Bench::new(&job(json!({"parallelism": 0})));
    bench.sees(pod("a", 20, "Running"));
    assert_eq!(bench.plan().removals.len(), 1);
    bench.ledger.pod_gone(&uid("a"), Revision(21));
    bench.sees(released(pod("a", 22, "Running")));
    bench.ledger.removal_released(&uid("a"));
    assert!(bench.plan().removals.is_empty());
}

// ---- completion indexes ----

#[test]
fn a_pod_that_moves_to_another_index_frees_its_own() {
    let mut bench = Bench::new(&indexed(json!({"completions": 2, "parallelism": 2})));
    bench.ledger.job_confirmed(Revision(100));
    bench.sees(at_index(pod("a", 20, "Running"), 0));
    bench.sees(at_index(pod("a", 21, "Running"), 1));
    assert_eq!(created(&bench.plan()).iter().map(|(_, index)| *index).collect::<Vec<_>>(), [Some(0)]);
}

#[test]
fn a_second_success_of_an_index_is_released_once_the_index_is_recorded() {
    let mut bench = Bench::new(&indexed(json!({"completions": 2, "parallelism": 2})));
    bench.sees(at_index(pod("a", 20, "Succeeded"), 0));
    bench.sees(at_index(pod("c", 22, "Running"), 1));
    let plan = bench.plan();
    bench.sees(at_index(pod("b", 21, "Succeeded"), 0));
    bench.written(&plan, 30);
    assert_eq!(names(&bench.plan().releases), ["a", "b"]);
}

/// The write recorded the index, but its response was lost, and the Pod shows another phase since.
#[test]
fn a_success_that_a_lost_write_recorded_by_its_index_is_not_a_failure_as_well() {
    let spec = json!({"completions": 2, "parallelism": 2});
    let mut bench = Bench::new(&indexed(spec.clone()));
    bench.sees(at_index(pod("a", 20, "Succeeded"), 0));
    bench.sees(at_index(pod("b", 21, "Running"), 1));
    let plan = bench.plan();
    let stored = bench.stored(&plan, 90);
    bench.sees(at_index(pod("a", 22, "Failed"), 0));
    bench.ledger.status_unwritten();
    bench.ledger.observe_job(stored);
    let plan = bench.plan();
    assert_eq!(names(&plan.releases), ["a"]);
    assert!(plan.status.is_none_or(|write| write.status.uncounted().is_empty()));
    // The same if the stream shows the write before it is known that the response is lost.
    let mut bench = Bench::new(&indexed(spec.clone()));
    bench.sees(at_index(pod("a", 20, "Succeeded"), 0));
    let plan = bench.plan();
    let stored = bench.stored(&plan, 90);
    bench.ledger.observe_job(stored);
    bench.sees(at_index(pod("a", 22, "Failed"), 0));
    bench.ledger.status_unwritten();
    assert_eq!(names(&bench.plan().releases), ["a"]);
    // A write that was not carried out recorded nothing: the Pod has failed.
    let mut bench = Bench::new(&indexed(spec.clone()));
    bench.sees(at_index(pod("a", 20, "Succeeded"), 0));
    bench.plan();
    bench.sees(at_index(pod("a", 22, "Failed"), 0));
    bench.ledger.status_unwritten();
    bench.edited(&indexed(spec), 90);
    assert_eq!(bench.plan().status.map(|write| write.status.uncounted().failed.clone()), Some(vec![uid("a")]));
}

/// The second write is sent because a read does not show the first, which is carried out after all.
#[test]
fn a_success_that_an_earlier_lost_write_recorded_is_not_a_failure_as_well() {
    let spec = json!({"completions": 2, "parallelism": 2});
    let mut bench = Bench::new(&indexed(spec));
    bench.sees(at_index(pod("a", 20, "Succeeded"), 0));
    bench.sees(at_index(pod("b", 21, "Running"), 1));
    let plan = bench.plan();
    let stored = bench.stored(&plan, 90);
    bench.ledger.status_unwritten();
    bench.sees(at_index(pod("a", 22, "Failed"), 0));
    assert!(bench.plan().status.is_some());
    bench.ledger.status_unwritten();
    bench.ledger.observe_job(stored);
    let plan = bench.plan();
    assert_eq!(names(&plan.releases), ["a"]);
    assert!(plan.status.is_none_or(|write| write.status.uncounted().is_empty()));
}

/// The Pod was deleted while the write was in flight, so its revision is newer than the Job that the response shows.
#[test]
fn a_success_that_the_response_to_its_write_confirms_is_not_a_failure_as_well() {
    let mut bench = Bench::new(&indexed(json!({"completions": 2, "parallelism": 1})));
    bench.jobs_at = 20;
    bench.sees(at_index(pod("a", 20, "Succeeded"), 0));
    let plan = bench.plan();
    let stored = bench.stored(&plan, 90);
    bench.sees(at_index(deleting(pod("a", 91, "Succeeded")), 0));
    bench.ledger.status_written(stored, bench.now);
    bench.sees(at_index(deleting(pod("a", 92, "Failed")), 0));
    let plan = bench.plan();
    assert_eq!(names(&plan.releases), ["a"]);
    assert!(plan.status.is_none_or(|write| write.status.uncounted().is_empty()));
}

/// Another Pod had completed the index before the Job had fewer indexes, and only an old view of the Job shows that.
#[test]
fn a_success_is_not_released_because_an_old_view_of_the_job_has_its_index() {
    let spec = |completions: u32| json!({"completions": completions, "parallelism": completions});
    let done = json!({"completedIndexes": "0", "succeeded": 1, "active": 1});
    let mut bench = Bench::new(&with_status(indexed(spec(2)), done));
    bench.jobs_at = 10;
    bench.sees(at_index(pod("b", 60, "Running"), 1));
    bench.sees(at_index(pod("a", 61, "Succeeded"), 0));
    let plan = bench.plan();
    assert!(plan.releases.is_empty() && plan.must_reread_job, "{plan:?}");
    bench.ledger.job_confirmed(Revision(61));
    bench.edited(&indexed(spec(2)), 50);
    let plan = bench.plan();
    assert_eq!(plan.status.as_ref().map(|write| &*write.status.completed_indexes), Some("0"));
    assert!(plan.releases.is_empty());
    // The Job is as it was: another Pod has completed the index, and this one is surplus.
    let done = json!({"completedIndexes": "0", "succeeded": 1, "active": 1});
    let mut bench = Bench::new(&with_status(indexed(spec(2)), done));
    bench.jobs_at = 10;
    bench.sees(at_index(pod("b", 60, "Running"), 1));
    bench.sees(at_index(pod("a", 61, "Succeeded"), 0));
    bench.plan();
    bench.ledger.job_confirmed(Revision(61));
    assert_eq!(names(&bench.plan().releases), ["a"]);
}

/// The Job had no such index for a while. Its Pod still carries the finalizer, and completes the index again.
#[test]
fn a_success_completes_its_index_again_after_the_job_had_fewer_indexes() {
    let spec = |completions: u32| json!({"completions": completions, "parallelism": completions});
    let done = json!({"completedIndexes": "0", "succeeded": 1, "active": 1});
    let mut bench = Bench::new(&indexed(spec(2)));
    bench.sees(at_index(pod("a", 20, "Succeeded"), 0));
    bench.edited(&with_status(indexed(spec(2)), done), 30);
    bench.edited(&indexed(spec(0)), 40);
    bench.edited(&indexed(spec(2)), 50);
    let plan = bench.plan();
    assert_eq!(names(&plan.releases), Vec::<&str>::new());
    assert_eq!(plan.status.as_ref().map(|write| &*write.status.completed_indexes), Some("0"));
    assert!(plan.creations.iter().all(|new| new.index != Some(0)), "{:?}", plan.creations);
    bench.written(&plan, 60);
    assert_eq!(names(&bench.plan().releases), ["a"]);
}

#[test]
fn only_pods_of_indexed_jobs_that_may_still_matter_are_kept_by_index() {
    let mut bench = Bench::new(&job(json!({})));
    bench.sees(at_index(pod("a", 20, "Running"), 0));
    assert!(bench.ledger.index.heads.is_empty());
    let mut bench = Bench::new(&indexed(json!({"completions": 4, "parallelism": 4})));
    bench.sees(at_index(pod("running", 20, "Running"), 0));
    bench.sees(at_index(pod("ended", 21, "Succeeded"), 1));
    bench.sees(at_index(released(pod("counted", 22, "Succeeded")), 2));
    bench.sees(at_index(released(pod("running freely", 23, "Running")), 3));
    let mut indexes: Vec<_> = (0..4).filter(|index| bench.ledger.index.heads.contains_key(index)).collect();
    indexes.sort_unstable();
    assert_eq!(indexes, [0, 1, 3]);
}

/// BLPI-7: a kept failure counts against backoffLimit, even while its Pod is being deleted.
#[test]
fn a_kept_failure_counts_against_the_limit_of_the_whole_job() {
    for failed in [pod("a", 20, "Failed"), deleting(pod("a", 20, "Failed"))] {
        let mut bench = Bench::new(&indexed(json!({
            "completions": 2, "parallelism": 2, "backoffLimit": 0, "backoffLimitPerIndex": 3,
        })));
        bench.sees(at_index(failed.clone(), 0));
        bench.sees(at_index(pod("b", 21, "Running"), 1));
        let write = bench.plan().status.expect("a decision");
        let target = write.status.true_condition(condition::FAILURE_TARGET).map(|found| found.reason.to_string());
        assert_eq!(target.as_deref(), Some("BackoffLimitExceeded"), "{failed}");
    }
}

// ---- sizes ----

/// Members that left a class are removed once they are most of it, so that the class neither grows without bound nor
/// is searched for every one of them.
#[test]
fn a_class_of_active_pods_is_cleaned_up_when_most_of_its_members_have_left() {
    let mut bench = Bench::new(&job(json!({"parallelism": 400, "completions": 1_000})));
    let name = |number: u64| format!("p{number}");
    for number in 0..200 {
        bench.sees(pod(&name(number), 20 + number, "Running"));
    }
    let listed = |bench: &Bench| bench.ledger.idle.sizes().1;
    assert_eq!(listed(&bench), 200);
    for number in 0..90 {
        bench.sees(pod(&name(number), 300 + number, "Succeeded"));
    }
    assert_eq!(listed(&bench), 200);
    for number in 90..150 {
        bench.sees(pod(&name(number), 300 + number, "Succeeded"));
    }
    // Cleaned up, and the others are still known.
    assert!(listed(&bench) < 200);
    assert_eq!(bench.ledger.first_to_go(usize::MAX).len(), 50);
    for number in 150..200 {
        bench.sees(pod(&name(number), 300 + number, "Succeeded"));
    }
    assert!(listed(&bench) <= 64, "{}", listed(&bench));
    let (members, _, capacity) = bench.ledger.idle.sizes();
    assert!(members == 0 && capacity <= 192, "{members} of {capacity}");
}

/// BACKOFF-11, EVENT-12: a user who changes how long to wait changes the wait that has begun, of a Job and of an index, and
/// every wait is announced once.
#[test]
fn other_annotations_change_the_wait_that_has_begun() {
    let per_index = json!({"backoffLimitPerIndex": 3, "completions": 2, "parallelism": 2});
    for (job, index) in [(job(json!({})), None), (indexed(per_index), Some(0))] {
        let mut bench = Bench::new(&job);
        let failed = pod("p", 11, "Failed");
        bench.sees(index.map_or(failed.clone(), |index| at_index(failed, index)));
        if index.is_some() {
            bench.sees(at_index(pod("q", 12, "Running"), 1));
        }
        let plan = bench.plan();
        assert_eq!(bench.wakes_in(&plan), Some(10_000), "{index:?}");
        let told: Vec<_> = plan.backoffs.iter().map(|notice| (notice.index, notice.waits_for.millis())).collect();
        assert_eq!(told, [(index, 10_000)]);
        assert!(bench.plan().backoffs.is_empty(), "{index:?}");
        let mut changed = job.clone();
        changed["metadata"]["annotations"] = json!({"tally.dev/backoff-base": "3s"});
        bench.edited(&changed, 20);
        let plan = bench.plan();
        assert_eq!(bench.wakes_in(&plan), Some(3_000), "{index:?}");
        assert_eq!(plan.backoffs.len(), 1, "{index:?}");
        // A rebuild of the indexes is no new wait.
        changed["metadata"]["annotations"]["tally.dev/backoff-max"] = "9m".into();
        bench.edited(&changed, 30);
        assert!(bench.plan().backoffs.is_empty(), "{index:?}");
        bench.passes(3_000);
        assert_eq!(bench.plan().creations.len(), 1, "{index:?}");
    }
}

/// BACKOFF-13: what the annotations are, whether the Pod has the condition, and when the next Pod is created.
#[test]
fn a_disruption_that_the_policy_ignores_delays_nothing_if_the_job_says_how_long_to_wait() {
    let policy = json!({"rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}},
    ]});
    let base = Some("3s");
    for (base, disrupted, limited, expected) in [
        (base, true, false, 0),
        (base, true, true, 0),
        (base, false, false, 3_000),
        (base, false, true, 3_000),
        (None, true, false, 10_000),
        (None, true, true, 10_000),
    ] {
        let mut job = match limited {
            true => indexed(json!({"backoffLimitPerIndex": 3, "podFailurePolicy": policy.clone()})),
            false => job(json!({"podFailurePolicy": policy.clone()})),
        };
        job["metadata"]["annotations"] = json!({"tally.dev/backoff-base": base});
        let mut bench = Bench::new(&job);
        let mut failed = pod("p", 11, "Failed");
        let status = failed["status"].as_object_mut().unwrap();
        if disrupted {
            status.insert("conditions".to_owned(), json!([{"type": "DisruptionTarget", "status": "True"}]));
        } else {
            let ended = json!([{"name": "c", "state": {"terminated": {"exitCode": 7}}}]);
            status.insert("containerStatuses".to_owned(), ended);
        }
        bench.sees(if limited { at_index(failed, 0) } else { failed });
        let plan = bench.plan();
        let delay = bench.wakes_in(&plan).unwrap_or(0);
        let case = format!("{base:?} {disrupted} {limited}: {plan:?}");
        assert_eq!((delay, plan.creations.is_empty()), (expected, expected > 0), "{case}");
    }
}

/// BACKOFF-14: a Pod failed, or a creation was refused, while the clock was an hour ahead.
#[test]
fn a_wait_is_no_longer_than_one_that_begins_when_the_clock_is_set_back() {
    const HOUR: i64 = 3_600_000;
    let per_index = json!({"backoffLimitPerIndex": 3, "completions": 2, "parallelism": 2});
    for (job, index) in [(job(json!({})), None), (indexed(per_index), Some(0))] {
        let mut bench = Bench::new(&job);
        bench.passes(HOUR);
        let mut failed = pod("p", 11, "Failed");
        let ended = json!({"exitCode": 1, "finishedAt": "2023-11-14T23:13:20Z"});
        failed["status"]["containerStatuses"] = json!([{"name": "c", "state": {"terminated": ended}}]);
        bench.sees(index.map_or(failed.clone(), |index| at_index(failed, index)));
        if index.is_some() {
            bench.sees(at_index(pod("q", 12, "Running"), 1));
        }
        let plan = bench.plan();
        assert_eq!(bench.wakes_in(&plan), Some(10_000), "{index:?}");
        bench.passes(-HOUR);
        let plan = bench.plan();
        assert_eq!(bench.wakes_in(&plan), Some(HOUR + 10_000), "{index:?}");
        bench.ledger.clock_set_back(bench.now);
        let plan = bench.plan();
        assert_eq!(bench.wakes_in(&plan), Some(10_000), "{index:?}");
        bench.passes(10_000);
        assert_eq!(bench.plan().creations.len(), 1, "{index:?}");
    }
    let mut bench = Bench::new(&job(json!({})));
    bench.passes(HOUR);
    let plan = bench.plan();
    bench.ledger.creation_failed(&plan.creations[0].name, bench.now);
    bench.passes(-HOUR);
    bench.ledger.clock_set_back(bench.now);
    let plan = bench.plan();
    assert_eq!(bench.wakes_in(&plan), Some(1_000));
}

// ---- waiting ----

/// PENDING-2, PENDING-3: the annotation, the Pod's status, after how many milliseconds, and what the Job fails with.
#[test]
fn a_pod_that_is_pending_for_too_long_fails_the_job() {
    let unschedulable = json!({"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room",
        "lastTransitionTime": "2023-11-14T22:13:25Z",
    }]});
    let pulling = json!({"phase": "Pending", "containerStatuses": [
        {"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}},
    ]});
    let running = json!({"phase": "Running"});
    let told = |seconds: u32, why: &str| Some(format!("Pod p has been pending for {seconds}s: {why}"));
    let check = |limits: &str, status: &Value, millis: i64, expected: Option<String>| {
        let mut limited = job(json!({}));
        limited["metadata"]["annotations"] = json!({"tally.dev/pending-timeout": limits});
        let mut bench = Bench::new(&limited);
        let mut waits = pod("p", 20, "Pending");
        waits["status"] = status.clone();
        bench.sees(waits);
        let first = bench.plan();
        let wakes = first.wake_at;
        if first.status.is_some() {
            bench.written(&first, 101);
        }
        bench.passes(millis);
        let plan = bench.plan();
        let failed =
            plan.status.as_ref().and_then(|write| write.status.true_condition(condition::FAILURE_TARGET).cloned());
        let message = failed.map(|failed| {
            assert_eq!(failed.reason, "PendingTimeout");
            failed.message
        });
        assert_eq!(message, expected, "{limits} {status} {millis}");
        if expected.is_some() {
            assert!(wakes.is_some_and(|at| at <= bench.now), "the plan wakes for it: {wakes:?}");
        }
    };
    check("10s", &unschedulable, 9_999, None);
    check("10s", &unschedulable, 10_000, told(5, "Unschedulable: no room"));
    check("Unschedulable=10s", &unschedulable, 14_999, None);
    check("Unschedulable=10s", &unschedulable, 15_000, told(10, "Unschedulable: no room"));
    check("1h,ImagePullBackOff=10s", &pulling, 9_999, None);
    check("1h,ImagePullBackOff=10s", &pulling, 10_000, told(10, "ImagePullBackOff: not found"));
    check("Unschedulable=10s", &pulling, 900_000, None);
    check("10s", &json!({"phase": "Pending"}), 10_000, told(10, "it has not started"));
    check("10s", &running, 900_000, None);
    check("soon", &unschedulable, 900_000, None);
}

/// A limit that is set later counts for the Pods that are there.
#[test]
fn a_limit_of_pending_pods_may_be_changed() {
    let mut limited = job(json!({}));
    let mut bench = Bench::new(&limited);
    bench.sees(pod("p", 20, "Pending"));
    assert!(bench.plan().wake_at.is_none());
    limited["metadata"]["annotations"] = json!({"tally.dev/pending-timeout": "5s"});
    bench.edited(&limited, 30);
    let plan = bench.plan();
    assert_eq!(bench.wakes_in(&plan), Some(5_000));
    bench.sees(pod("p", 31, "Running"));
    assert!(bench.plan().wake_at.is_none(), "it has started");
}

/// DEADLINE-7.
#[test]
fn a_deadline_that_counts_exactly_is_not_early() {
    let check = |known: bool, millis: i64, exceeded: bool| {
        let mut fresh = job(json!({"activeDeadlineSeconds": 10, "parallelism": 0}));
        if known {
            fresh["status"] = json!({});
        }
        let mut bench = Bench::new(&fresh);
        bench.ledger.count_deadlines_exactly();
        bench.passes(700);
        let plan = bench.plan();
        if known {
            bench.written(&plan, 101);
        }
        bench.passes(millis - 700);
        let failing = bench.plan().status.is_some_and(|write| write.status.is_true(condition::FAILURE_TARGET));
        assert_eq!(failing, exceeded, "{known} {millis}");
    };
    check(true, 10_699, false);
    check(true, 10_700, true);
    // Another process wrote the startTime, in this second.
    check(false, 10_999, false);
    check(false, 11_000, true);
}

/// A Job whose counted Pods go.
fn discards(which: &str, spec: Value) -> Value {
    let mut job = job(spec);
    job["metadata"]["annotations"] = json!({"tally.dev/delete-finished-pods": which});
    job
}

fn discarded(plan: &Plan) -> Vec<(&str, Option<Revision>)> {
    plan.discards.iter().map(|pod| (pod.name.as_str(), pod.revision)).collect()
}

/// TTL-15: recorded, released, tallied, and only then deleted, at the revision that was observed.
#[test]
fn a_finished_pod_is_deleted_once_its_count_is_stored() {
    let mut bench = Bench::new(&discards("succeeded", json!({"completions": 9, "parallelism": 3})));
    for name in ["a", "b"] {
        bench.sees(pod(name, 20, "Succeeded"));
    }
    bench.sees(pod("c", 21, "Failed"));
    let plan = bench.plan();
    assert!(plan.discards.is_empty(), "not recorded");
    bench.written(&plan, 30);
    let plan = bench.plan();
    assert_eq!((plan.releases.len(), plan.discards.len()), (3, 0), "not released");
    for (name, phase) in [("a", "Succeeded"), ("b", "Succeeded"), ("c", "Failed")] {
        bench.sees(released(pod(name, 40, phase)));
        bench.ledger.pod_answered(&uid(name));
    }
    bench.passes(1_000);
    let plan = bench.plan();
    assert!(plan.discards.is_empty(), "the tally is not stored");
    bench.written(&plan, 50);
    let plan = bench.plan();
    // TTL-17: the last success stays.
    assert_eq!(discarded(&plan).len(), 1, "{plan:?}");
    let gone = plan.discards[0].clone();
    assert_eq!((gone.name.as_str() != "c", gone.revision), (true, Some(Revision(40))));
    assert!(bench.plan().discards.is_empty(), "requested once");
    // Refused: retried later. The others proceed.
    bench.ledger.pod_refused(&gone.uid, bench.now);
    assert!(bench.plan().discards.is_empty());
    bench.passes(1_000);
    assert_eq!(discarded(&bench.plan()), [(gone.name.as_str(), gone.revision)]);
    bench.ledger.pod_gone_by_response(&gone.uid);
    assert_eq!(bench.ledger.flight.discards, 0);
}

/// TTL-15: an old view of the Job does not say what another leader has recorded since.
#[test]
fn a_pod_newer_than_the_job_is_not_deleted() {
    let mut bench = Bench::new(&discards("all", json!({"completions": 9})));
    bench.jobs_at = 30;
    bench.sees(released(pod("a", 40, "Succeeded")));
    bench.sees(released(pod("b", 41, "Succeeded")));
    let plan = bench.plan();
    assert!(plan.discards.is_empty() && plan.waits_for_job);
    bench.jobs_at = 50;
    assert_eq!(bench.plan().discards.len(), 1, "the other one succeeded last");
}

/// TTL-16: one below, at, and with the deletions in flight.
#[test]
fn pods_that_must_go_hold_up_creations() {
    for (finished, held) in [(998, false), (999, false), (1_000, true), (1_200, true)] {
        let mut bench = Bench::new(&discards("all", json!({"completions": 9_000, "parallelism": 500})));
        for number in 0..finished {
            bench.sees(released(pod(&format!("p{number}"), 20, "Succeeded")));
        }
        let plan = bench.plan();
        assert_eq!(plan.discards.len(), 500, "a batch");
        assert_eq!(matches!(plan.held, Some(Hold::Discarding { .. })), held, "{finished}");
        assert_eq!(plan.creations.is_empty(), held, "{finished}");
    }
}

// ---- start gates ----

fn start_gated(mut pod: Value) -> Value {
    pod["spec"]["schedulingGates"] = json!([{"name": "example.com/other"}, {"name": "tally.dev/counted-once"}]);
    pod
}

fn started(plan: &Plan) -> Vec<(&str, Option<Revision>)> {
    plan.starts.iter().map(|pod| (pod.name.as_str(), pod.revision)).collect()
}

fn removed(plan: &Plan) -> Vec<&str> {
    plan.removals.iter().map(|removal| removal.name.as_str()).collect()
}

/// TTL-24: the Job as of the Pod, and all that may have been counted and deleted before it.
#[test]
fn a_pod_starts_once_the_job_and_all_pods_are_known_as_of_its_creation() {
    let mut bench = Bench::new(&discards("all", json!({"completions": 9})));
    bench.jobs_at = 40;
    bench.sees(start_gated(pod("a", 50, "Pending")));
    let plan = bench.plan();
    assert_eq!((started(&plan), plan.must_reread_job), (vec![], true), "the Job is older than the Pod");
    bench.jobs_at = 99;
    let plan = bench.plan();
    assert_eq!(
        (started(&plan), plan.must_reread_job),
        (vec![], true),
        "Pods may have come and gone before the first plan"
    );
    // The Job is read.
    let at = bench.ledger.newest_pod_at();
    assert_eq!(at, Revision(100));
    bench.ledger.job_confirmed(at);
    let plan = bench.plan();
    assert_eq!((started(&plan), plan.must_reread_job), (vec![("a", Some(Revision(50)))], false));
    assert!(bench.plan().starts.is_empty(), "requested once");
    // Refused: repeated later.
    bench.ledger.pod_refused(&uid("a"), bench.now);
    assert!(bench.plan().starts.is_empty());
    bench.passes(1_000);
    assert_eq!(started(&bench.plan()), [("a", Some(Revision(50)))]);
    bench.sees(pod("a", 105, "Pending"));
    bench.ledger.pod_answered(&uid("a"));
    assert!(bench.plan().starts.is_empty());
    assert_eq!(bench.ledger.flight.starts, 0);
}

/// early-deletion-leaders seed 975003570: the next Pod was planned a round later, by a timer that was already past.
#[test]
fn a_pod_that_goes_does_not_make_its_index_wait_again() {
    let spec = json!({"completionMode": "Indexed", "backoffLimit": i32::MAX, "backoffLimitPerIndex": 5});
    let mut bench = Bench::new(&with_status(discards("all", spec), json!({"failed": 1})));
    let failed = |name: &str, revision: u64, before: u32| {
        let mut pod = at_index(pod(name, revision, "Failed"), 0);
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] = before.to_string().into();
        pod
    };
    bench.sees(released(failed("first", 20, 0)));
    bench.sees(failed("second", 21, 1));
    bench.passes(60_000);
    let plan = bench.plan();
    assert_eq!(discarded(&plan), [("first", Some(Revision(20)))]);
    assert_eq!((plan.creations.len(), plan.held), (1, None), "its back-off is over");
    assert!(bench.plan().is_empty());
}

/// TTL-24: a Pod that only a response has shown may have others before it that the stream has yet to show.
#[test]
fn a_pod_does_not_start_before_the_stream_has_shown_the_pods_before_it() {
    let mut bench = Bench::new(&discards("all", json!({"completions": 1})));
    bench.plan();
    bench.jobs_at = 200;
    let late = pod_view(&start_gated(pod("late", 120, "Pending")));
    bench.ledger.observe_response(&late, Revision(100), bench.now);
    let plan = bench.plan();
    assert!(plan.starts.is_empty() && !plan.must_reread_job, "{plan:?}");
    assert_eq!(plan.starts_at, Some(Revision(120)));
    // Another leader has created one for the same completion, and it runs.
    bench.sees(pod("other", 110, "Running"));
    bench.pods_at = 120;
    let plan = bench.plan();
    assert_eq!((started(&plan), removed(&plan)), (vec![], vec!["late"]));
    bench.ledger.pod_gone_by_response(&uid("late"));
    // Without that one it starts, also if a list of the Job's Pods shows it first.
    for listed in [false, true] {
        let mut bench = Bench::new(&discards("all", json!({"completions": 1})));
        bench.plan();
        bench.jobs_at = 200;
        match listed {
            true => bench.ledger.pods_listed(&[Arc::new(late.clone())], Revision(130), Revision(100), bench.now),
            false => {
                bench.ledger.observe_pod(&late, bench.now);
                bench.pods_at = 120;
            }
        }
        assert_eq!(started(&bench.plan()), [("late", Some(Revision(120)))], "{listed}");
    }
}

/// TTL-24: a list shows what is there. What it does not show may have been counted after our view of the Job.
#[test]
fn a_pod_does_not_start_by_a_job_that_is_older_than_a_list_of_pods() {
    for own in [false, true] {
        let mut bench = Bench::new(&discards("all", json!({"completions": 2, "parallelism": 2})));
        bench.plan();
        bench.jobs_at = 140;
        let waiting = Arc::new(pod_view(&start_gated(pod("a", 120, "Pending"))));
        if own {
            bench.ledger.pods_listed(&[waiting], Revision(150), Revision(100), bench.now);
        } else {
            bench.ledger.relist_begins();
            bench.ledger.observe_pod(&waiting, bench.now);
            bench.ledger.relist_ends(Revision(150));
            bench.pods_at = 150;
        }
        let plan = bench.plan();
        assert!(plan.starts.is_empty() && plan.must_reread_job, "{own}: {plan:?}");
        bench.jobs_at = 150;
        assert_eq!(started(&bench.plan()).len(), 1, "{own}");
    }
}

/// TTL-24: what starts and what is removed, of a Job with a success that is counted and gone.
#[test]
fn a_pod_starts_only_if_the_job_wants_all_pods_that_could_succeed() {
    let gated = |name: &str| start_gated(pod(name, 60, "Pending"));
    let check = |spec: Value, pods: Vec<Value>, starts: &[&str], removals: &[&str]| {
        let case = format!("{spec} {pods:?}");
        let mut job = with_status(discards("all", spec), json!({"succeeded": 1}));
        if job["spec"]["completionMode"] == "Indexed" {
            job["status"]["completedIndexes"] = "0".into();
        }
        if job["spec"]["backoffLimitPerIndex"].is_number() {
            job["status"]["failedIndexes"] = "5".into();
        }
        let mut bench = Bench::new(&job);
        pods.into_iter().for_each(|pod| bench.sees(pod));
        let plan = bench.plan();
        assert_eq!(removed(&plan), removals, "{case}");
        // Nothing starts beside a removal.
        assert!(removals.is_empty() || plan.starts.is_empty(), "{case}");
        plan.removals.iter().for_each(|removal| bench.ledger.pod_gone_by_response(&removal.uid));
        let plan = if removals.is_empty() { plan } else { bench.plan() };
        assert_eq!(started(&plan).into_iter().map(|(name, _)| name).collect::<Vec<_>>(), starts, "{case}");
    };
    let two = || json!({"completions": 2, "parallelism": 2});
    check(two(), vec![gated("a")], &["a"], &[]);
    check(two(), vec![gated("a"), pod("b", 50, "Running")], &[], &["a"]);
    check(two(), vec![gated("a"), pod("b", 50, "Pending")], &[], &["a"]);
    check(two(), vec![gated("a"), pod("b", 50, "Succeeded")], &[], &["a"]);
    // A Pod that terminates may yet succeed, if the Job waits for its end.
    let ends = || deleting(pod("b", 50, "Running"));
    check(two(), vec![gated("a"), ends()], &["a"], &[]);
    check(
        json!({"completions": 2, "parallelism": 2, "podReplacementPolicy": "Failed"}),
        vec![gated("a"), ends()],
        &[],
        &[],
    );
    // Its removal has begun.
    check(two(), vec![released(gated("a"))], &[], &["a"]);
    // More than parallelism, and not more than completions: those that stay may start.
    check(json!({"completions": 9, "parallelism": 1}), vec![gated("a"), pod("b", 50, "Running")], &[], &["a"]);
    // A work queue starts nothing after its first success.
    check(json!({"completions": null, "parallelism": 2}), vec![gated("a"), pod("b", 50, "Running")], &[], &["a"]);
    check(json!({"completions": 2, "suspend": true}), vec![gated("a")], &[], &["a"]);
    let indexed = || json!({"completionMode": "Indexed", "completions": 9, "parallelism": 9});
    let of = |name: &str, index| at_index(gated(name), index);
    check(indexed(), vec![of("a", 0), of("b", 1), of("c", 9)], &["b"], &["a", "c"]);
    check(indexed(), vec![of("a", 1), at_index(pod("b", 50, "Running"), 1)], &[], &["a"]);
    check(indexed(), vec![of("a", 1), at_index(pod("b", 50, "Succeeded"), 1)], &[], &["a"]);
    let mut limited = indexed();
    merge(&mut limited, json!({"backoffLimitPerIndex": 1, "backoffLimit": i32::MAX}));
    check(limited, vec![of("a", 5), of("b", 6)], &["b"], &["a"]);
}

/// TTL-24, BLPI-11: a Job that lets its Pods end starts none.
#[test]
fn a_pod_that_has_not_started_goes_when_the_job_halts() {
    let spec = json!({"completionMode": "Indexed", "completions": 4, "parallelism": 4, "backoffLimitPerIndex": 0,
        "backoffLimit": i32::MAX, "maxFailedIndexes": 0});
    let mut job = with_status(job(spec), json!({"failed": 1, "failedIndexes": "0"}));
    job["metadata"]["annotations"] = json!({"tally.dev/delete-finished-pods": "all", "tally.dev/halt": "soon"});
    let mut bench = Bench::new(&job);
    bench.sees(at_index(start_gated(pod("a", 20, "Pending")), 1));
    bench.sees(at_index(pod("b", 21, "Running"), 2));
    let plan = bench.plan();
    assert_eq!((started(&plan), removed(&plan), plan.held), (vec![], vec!["a"], Some(Hold::Halting)));
}

/// TTL-25: the time behind the gate is not the scheduler's, and the Pod is active.
#[test]
fn a_pod_behind_its_gate_is_active_and_not_pending_for_too_long() {
    for (gated, fails) in [(true, false), (false, true)] {
        let mut job = discards("all", json!({"completions": 2, "parallelism": 1}));
        job["metadata"]["annotations"]["tally.dev/pending-timeout"] = "10s".into();
        let mut bench = Bench::new(&job);
        bench.jobs_at = 15;
        let waiting = pod("a", 20, "Pending");
        bench.sees(if gated { start_gated(waiting) } else { waiting });
        bench.passes(60_000);
        let status = bench.plan().status.expect("the live counts differ").status;
        assert_eq!((status.active, status.is_true(condition::FAILURE_TARGET)), (1, fails), "{gated}");
    }
}

// ---- feature gates ----

fn gated(job: &Value, off: &[Gate]) -> Bench {
    let gates = off.iter().fold(FeatureGates::ALL_ON, |gates, gate| gates.with(*gate, false));
    let view = Arc::new(gates.apply(JobView::clone(&job_view(job))));
    Bench { ledger: Ledger::new(view, Limits::default()), now: START, pods_at: 100, jobs_at: 100 }
}

fn legacy(mut job: Value) -> Value {
    job["metadata"]["annotations"] = json!({"batch.kubernetes.io/job-tracking": "legacy"});
    job
}

/// GATE-7: one write ends the tracking, and nothing else happens before it.
#[test]
fn the_write_that_ends_tracking_counts_what_is_recorded_and_clears_the_lists() {
    let mut recorded = job(json!({"completions": 5, "parallelism": 2}));
    let lists = json!({"succeeded": ["a", "b"], "failed": ["c"]});
    recorded["status"] = json!({"succeeded": 1, "failed": 2, "uncountedTerminatedPods": lists});
    let mut bench = gated(&recorded, &[Gate::JobTrackingWithFinalizers]);
    // However old the Pods are.
    bench.pods_at = 0;
    bench.sees(pod("a", 20, "Succeeded"));
    bench.sees(pod("d", 21, "Succeeded"));
    let plan = bench.plan();
    let write = plan.status.as_ref().expect("a status write");
    assert!(write.ends_tracking && plan.releases.is_empty() && plan.creations.is_empty());
    assert_eq!((write.status.succeeded, write.status.failed), (3, 3));
    assert_eq!(write.status.uncounted_terminated_pods, None);
    assert!(bench.plan().is_empty(), "one write at a time");
    // Until it is stored, the Job is as it was.
    bench.ledger.status_unwritten();
    assert!(bench.plan().status.is_some_and(|write| write.ends_tracking));
    let stored = JobView { legacy: true, ..JobView::clone(&bench.stored(&plan, 40)) };
    bench.ledger.status_written(Arc::new(stored), bench.now);
    bench.pods_at = 100;
    let plan = bench.plan();
    assert_eq!(names(&plan.releases), ["a", "d"], "every finalizer goes");
    // An Indexed Job counts by its indexes.
    recorded["spec"]["completionMode"] = "Indexed".into();
    recorded["status"]["completedIndexes"] = "0".into();
    let plan = gated(&recorded, &[Gate::JobTrackingWithFinalizers]).plan();
    let write = plan.status.expect("a status write");
    assert_eq!((write.status.succeeded, write.status.failed), (1, 3));
}

/// GATE-8: the stored counters, the Pods that are there, and the counters then.
#[test]
fn the_old_way_counts_the_pods_that_it_sees_and_never_adds_them_to_what_is_stored() {
    for (stored, seen, expected) in [
        ((0, 0), "SR", (1, 0)),
        ((2, 0), "S", (2, 0)),
        ((1, 0), "SSS", (3, 0)),
        ((0, 2), "F", (0, 2)),
        ((0, 0), "FF", (0, 2)),
        // Deleted: the Job may have done that itself.
        ((0, 0), "d", (0, 0)),
    ] {
        let mut job = legacy(job(json!({"completions": 9, "parallelism": 2})));
        job["status"] = json!({"startTime": "2023-11-14T22:13:00Z", "succeeded": stored.0, "failed": stored.1});
        // The gate of this leader is on: the mark decides (GATE-9).
        let mut bench = Bench::new(&job);
        for (at, phase) in seen.chars().enumerate() {
            let name = format!("p{at}");
            let pod = |phase| released(pod(&name, 20 + at as u64, phase));
            bench.sees(match phase {
                'S' => pod("Succeeded"),
                'F' => pod("Failed"),
                'd' => deleting(pod("Failed")),
                _ => pod("Running"),
            });
        }
        let plan = bench.plan();
        // Counts of Pods that run may be written later.
        let before = bench.ledger.job().status.clone();
        let status = plan.status.as_ref().map_or(&before, |write| &write.status);
        assert_eq!((status.succeeded, status.failed), expected, "{stored:?} {seen}");
        assert_eq!(status.uncounted_terminated_pods, None, "{stored:?} {seen}");
        // The first batch is one Pod, and failures are waited for.
        assert_eq!(plan.creations.len(), usize::from(expected.1 == 0), "{stored:?} {seen}");
        assert!(plan.releases.is_empty());
        if plan.status.is_some() {
            bench.written(&plan, 50);
            assert!(bench.plan().status.is_none(), "{stored:?} {seen}: nothing is counted again");
        }
    }
}

/// GATE-8.
#[test]
fn the_old_way_completes_indexes_by_the_pods_that_it_sees() {
    let mut job = legacy(job(json!({"completionMode": "Indexed", "completions": 4, "parallelism": 4})));
    job["status"] = json!({"startTime": "2023-11-14T22:13:00Z", "succeeded": 1, "completedIndexes": "2"});
    let mut bench = Bench::new(&job);
    bench.sees(at_index(released(pod("a", 20, "Succeeded")), 0));
    bench.sees(at_index(pod("b", 21, "Running"), 1));
    let plan = bench.plan();
    let status = &plan.status.as_ref().expect("an index is complete").status;
    assert_eq!((&*status.completed_indexes, status.succeeded, status.active), ("0,2", 2, 1));
    assert_eq!(created(&plan).iter().map(|(_, index)| *index).collect::<Vec<_>>(), [Some(3)]);
    assert_eq!(names(&plan.releases), ["b"], "a running Pod loses its finalizer too");
}

/// GATE-6, GATE-5: what the status shows, and when the Job ends, with gates off.
#[test]
fn terminating_pods_are_hidden_without_their_gate_and_do_not_delay_the_end_without_both() {
    let (replacement, managed) = (Gate::JobPodReplacementPolicy, Gate::JobManagedBy);
    for (off, shown, ends) in [
        (&[][..], Some(1), false),
        (&[replacement], None, false),
        (&[managed], Some(1), false),
        (&[replacement, managed], None, true),
    ] {
        let mut failed = job(json!({"completions": 1, "parallelism": 1}));
        let target = json!({"type": "FailureTarget", "status": "True", "reason": "r", "message": "m"});
        let status = json!({"startTime": "2023-11-14T22:13:00Z", "failed": 1, "conditions": [target]});
        failed["status"] = status;
        let mut bench = gated(&failed, off);
        bench.sees(deleting(released(pod("a", 20, "Running"))));
        let status = bench.plan().status.expect("the live counts differ").status;
        assert_eq!((status.terminating, status.is_finished()), (shown, ends), "{off:?}");
    }
}

const WITHOUT_INTERIM: [Gate; 2] = [Gate::JobPodReplacementPolicy, Gate::JobManagedBy];

fn conditions(plan: &Plan) -> Vec<(String, String, String)> {
    let status = plan.status.iter().flat_map(|write| &write.status.conditions);
    status.map(|it| (it.kind.to_string(), it.reason.to_string(), it.message.clone())).collect()
}

/// The Pods of the plan are released, at these revisions and later.
fn release_all(bench: &mut Bench, plan: &Plan, mut revision: u64, phase: &str) {
    for pod_ref in &plan.releases {
        bench.sees(released(pod(&pod_ref.name, revision, phase)));
        bench.ledger.pod_answered(&pod_ref.uid);
        revision += 1;
    }
}

/// GATE-11, GATE-12.
#[test]
fn a_job_completes_without_an_interim_condition_or_a_reason_if_their_gates_are_off() {
    let [replacement, managed] = WITHOUT_INTERIM;
    let (policy, named) = (Gate::JobSuccessPolicy, ("CompletionsReached", "Reached expected number of succeeded pods"));
    for (off, kinds, (reason, message)) in [
        (&[][..], &["SuccessCriteriaMet", "Complete"][..], named),
        (&[replacement], &["SuccessCriteriaMet", "Complete"], named),
        (&[managed], &["SuccessCriteriaMet", "Complete"], named),
        (&[replacement, managed], &["Complete"], named),
        (&[policy], &["SuccessCriteriaMet", "Complete"], ("", "")),
        (&[replacement, managed, policy], &["Complete"], ("", "")),
    ] {
        let mut bench = gated(&job(json!({})), off);
        bench.sees(pod("a", 20, "Succeeded"));
        let plan = bench.plan();
        let first: Vec<_> = conditions(&plan).into_iter().map(|(kind, ..)| kind).collect();
        assert_eq!(first, kinds[..kinds.len() - 1], "{off:?}: the Pod is recorded, and not counted");
        bench.written(&plan, 30);
        let plan = bench.plan();
        assert_eq!(names(&plan.releases), ["a"]);
        release_all(&mut bench, &plan, 31, "Succeeded");
        bench.passes(1000);
        let plan = bench.plan();
        let expected: Vec<_> = kinds.iter().map(|kind| ((*kind).into(), reason.into(), message.into())).collect();
        assert_eq!(conditions(&plan), expected, "{off:?}");
        let status = &plan.status.as_ref().expect("the end").status;
        assert!(status.is_finished() && status.completion_time.is_some() && status.succeeded == 1);
    }
}

/// GATE-11: the decision is in memory until everything is counted, and what it leads to does not change it.
#[test]
fn a_job_fails_without_an_interim_condition_for_the_reason_that_came_first() {
    let spec = json!({"completions": 3, "parallelism": 3, "backoffLimit": 1, "activeDeadlineSeconds": 5});
    let mut bench = gated(&job(spec), &WITHOUT_INTERIM);
    for (name, revision) in [("a", 20), ("b", 21), ("c", 22)] {
        bench.sees(pod(name, revision, "Running"));
    }
    bench.passes(5000);
    let plan = bench.plan();
    assert_eq!(names(&plan.deletions), ["a", "b", "c"]);
    assert_eq!((conditions(&plan), created(&plan)), (vec![], vec![]));
    if plan.status.is_some() {
        bench.written(&plan, 30);
    }
    for (name, revision) in [("a", 31), ("b", 32), ("c", 33)] {
        bench.sees(deleting(pod(name, revision, "Running")));
        bench.ledger.pod_answered(&uid(name));
    }
    bench.passes(1000);
    let plan = bench.plan();
    let status = &plan.status.as_ref().expect("the Pods are recorded").status;
    assert_eq!((status.uncounted().failed.len(), conditions(&plan)), (3, vec![]));
    bench.written(&plan, 40);
    let plan = bench.plan();
    assert_eq!(names(&plan.releases), ["a", "b", "c"]);
    for (name, revision) in [("a", 41), ("b", 42), ("c", 43)] {
        bench.sees(released(deleting(pod(name, revision, "Running"))));
        bench.ledger.pod_answered(&uid(name));
    }
    bench.passes(1000);
    let plan = bench.plan();
    // Three failures are more than backoffLimit allows, and came after the deadline.
    let message = "Job was active longer than specified deadline";
    assert_eq!(conditions(&plan), [("Failed".into(), "DeadlineExceeded".into(), message.into())]);
    let status = &plan.status.as_ref().expect("the end").status;
    assert_eq!((status.failed, status.active, status.completion_time), (3, 0, None));
}

/// GATE-11: found by the simulator (verdicts-outright, seed 910000054). The Pod of an index that made the Job fail was being
/// deleted, and was taken for one that ended with the Job: its index was missing in the list that explains the verdict.
#[test]
fn an_index_that_made_a_job_fail_without_an_interim_condition_stays_failed() {
    let spec = json!({
        "completionMode": "Indexed", "completions": 4, "parallelism": 2, "backoffLimitPerIndex": 0, "maxFailedIndexes": 1,
    });
    for in_flight in [false, true] {
        let mut bench = gated(&job(spec.clone()), &WITHOUT_INTERIM);
        bench.sees(at_index(pod("a", 20, "Failed"), 0));
        let first = bench.plan();
        if !in_flight {
            bench.written(&first, 30);
        }
        bench.sees(at_index(deleting(pod("b", 31, "Failed")), 1));
        bench.passes(1000);
        let mut plan = bench.plan();
        if in_flight {
            bench.written(&first, 32);
            bench.passes(1000);
            plan = bench.plan();
        }
        let status = &plan.status.as_ref().expect("both are recorded").status;
        assert_eq!((status.failed_indexes.as_deref(), conditions(&plan)), (Some("0,1"), vec![]), "{in_flight}");
    }
}

/// GATE-11: found by the simulator. A Job that is suspended before its failure is stored has not failed.
#[test]
fn a_failure_that_is_not_stored_is_decided_again_when_a_user_changes_the_job() {
    let mut running = job(json!({"activeDeadlineSeconds": 5}));
    let mut bench = gated(&running, &WITHOUT_INTERIM);
    bench.sees(pod("a", 20, "Running"));
    bench.passes(5000);
    let plan = bench.plan();
    assert_eq!(names(&plan.deletions), ["a"]);
    if plan.status.is_some() {
        bench.written(&plan, 25);
    }
    running["metadata"]["generation"] = 2.into();
    running["spec"]["suspend"] = true.into();
    running["metadata"]["resourceVersion"] = "30".into();
    let gates = bench.ledger.job().gates;
    bench.ledger.observe_job(Arc::new(gates.apply(JobView::clone(&job_view(&running)))));
    bench.sees(deleting(pod("a", 31, "Running")));
    bench.ledger.pod_answered(&uid("a"));
    bench.passes(1000);
    let plan = bench.plan();
    let found: Vec<_> = conditions(&plan).into_iter().map(|(kind, ..)| kind).collect();
    assert_eq!((found, plan.held), (vec!["Suspended".to_owned()], Some(Hold::Suspended)));
}

/// GATE-11: what only a Pod shows is stored first, as in the reference, and a success policy requires it.
#[test]
fn verdicts_by_policy_are_stored_before_they_take_effect_whatever_the_gates_are() {
    let rule = json!({"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
    let mut bench = gated(&job(json!({"podFailurePolicy": {"rules": [rule]}})), &WITHOUT_INTERIM);
    let mut failed = pod("a", 20, "Failed");
    failed["status"]["conditions"] = json!([{"type": "DisruptionTarget", "status": "True"}]);
    bench.sees(failed);
    let found: Vec<_> = conditions(&bench.plan()).into_iter().map(|(kind, reason, _)| (kind, reason)).collect();
    assert_eq!(found, [("FailureTarget".into(), "PodFailurePolicy".into())]);
    // The policy is met, or is not and all completions are there.
    for (rule, reason) in [
        (json!({"succeededCount": 1}), "SuccessPolicy"),
        (json!({"succeededIndexes": "0", "succeededCount": 2}), "CompletionsReached"),
    ] {
        let spec = json!({"successPolicy": {"rules": [rule]}});
        let mut bench = gated(&indexed(spec), &WITHOUT_INTERIM);
        bench.sees(at_index(pod("a", 20, "Succeeded"), 0));
        let plan = bench.plan();
        assert_eq!(conditions(&plan).first().map(|(kind, ..)| kind.as_str()), Some("SuccessCriteriaMet"), "{reason}");
    }
}

/// BACKOFF-2: the failures that are counted, without those whose Pods are there.
#[test]
fn failures_whose_pods_are_gone_may_be_remembered_by_another_leader() {
    let after = |seconds| START + Span::from_seconds(seconds);
    let remembered = |job: Value, pods: Vec<Value>, last_at| {
        let mut bench = Bench::new(&job);
        pods.into_iter().for_each(|pod| bench.sees(pod));
        let found = bench.ledger.remembered_backoff(last_at, bench.now);
        found.map(|it| (it.gone, it.longest_for.millis() / 1_000, (it.notice.retry_at - START).millis() / 1_000))
    };
    let failed = |count: u32| with_status(job(json!({})), json!({"failed": count}));
    let ended = |name: &str| released(pod(name, 5, "Failed"));
    assert_eq!(remembered(failed(0), vec![], START), None);
    assert_eq!(remembered(failed(1), vec![ended("a")], START), None);
    assert_eq!(remembered(failed(3), vec![ended("a")], START), Some((2, 40, 40)));
    assert_eq!(remembered(failed(3), vec![ended("a")], after(5)), Some((2, 40, 45)));
    assert_eq!(remembered(failed(3), vec![], after(-5)), Some((3, 40, 35)));
    // The Pod failed later than the caller knows.
    assert_eq!(remembered(failed(2), vec![ended("a")], after(-5)), Some((1, 20, 20)));
    // A failure that is not counted yet, one that is recorded, and one of a Pod that was removed on purpose.
    assert_eq!(remembered(failed(1), vec![ended("a"), pod("b", 5, "Failed")], START), None);
    assert_eq!(remembered(failed(2), vec![ended("a"), pod("b", 5, "Failed")], START), Some((1, 40, 40)));
    let recorded = with_status(failed(1), json!({"uncountedTerminatedPods": {"failed": ["b"]}}));
    assert_eq!(remembered(recorded.clone(), vec![ended("a"), pod("b", 5, "Failed")], START), None);
    assert_eq!(remembered(recorded, vec![ended("a")], START), Some((1, 20, 20)));
    assert_eq!(remembered(failed(1), vec![deleting(released(pod("a", 5, "Running")))], START), Some((1, 10, 10)));
    // No failure of before a success counts.
    let before = |mut pod: Value| {
        pod["metadata"]["creationTimestamp"] = "2023-11-14T22:13:00Z".into();
        pod["status"]["conditions"] =
            json!([{"type": "Ready", "status": "False", "lastTransitionTime": "2023-11-14T22:13:20Z"}]);
        pod
    };
    let succeeded = || vec![before(ended("a")), before(released(pod("b", 5, "Succeeded")))];
    assert_eq!(remembered(failed(3), succeeded(), after(-1)), None);
    assert_eq!(remembered(failed(3), succeeded(), START), None);
    assert_eq!(remembered(failed(3), succeeded(), after(1)), Some((2, 20, 21)));
    // Every index waits for itself.
    let per_index = with_status(indexed(json!({"backoffLimitPerIndex": 3})), json!({"failed": 3}));
    assert_eq!(remembered(per_index, vec![], START), None);
}

/// BACKOFF-3: a Pod that is created and fails in the second of a success is later than the success, also if it is gone. Four
/// Pods failed, one of them is gone, and the leader that has seen it waits 80 s, not 40 s.
#[test]
fn a_failure_in_the_second_of_a_success_may_be_remembered_though_its_pod_is_gone() {
    let failures = || ["a", "b", "c", "gone"].map(|name| pod(name, 5, "Failed"));
    let job = job(json!({"completions": 8, "parallelism": 8}));
    let mut leader = Bench::new(&job);
    failures().into_iter().for_each(|pod| leader.sees(pod));
    leader.sees(pod("d", 5, "Succeeded"));
    let (history, job_view) = (&leader.ledger.history, &leader.ledger.job);
    let retry_at = history.retry_at(&job_view.backoff, &job_view.uid);
    assert_eq!(retry_at, Some(START + Span::from_seconds(80)));

    let mut reader = Bench::new(&with_status(job, json!({"failed": 4, "succeeded": 1})));
    failures().into_iter().take(3).for_each(|pod| reader.sees(released(pod)));
    reader.sees(released(pod("d", 5, "Succeeded")));
    let found = reader.ledger.remembered_backoff(START, reader.now).expect("one failed Pod is gone");
    assert_eq!((found.gone, Some(found.notice.retry_at)), (1, retry_at));
    // The success was later than everything that can have been counted.
    assert_eq!(reader.ledger.remembered_backoff(START - Span::from_seconds(1), reader.now), None);
}
