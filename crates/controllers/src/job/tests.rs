//! Rules of the Job controller, one per test, through the `Controller` trait: what it requests, announces and waits for.

#![allow(clippy::cloned_ref_to_slice_refs, reason = "a list of one object reads better as a list")]

use serde_json::{Value, json};
use tally_core::gates::Gate;
use tally_core::pod::TRACKING_FINALIZER;

use super::*;
use tally_runtime::controller::{Refusal, Reply};
use tally_runtime::metric::SyncAction;
use tally_runtime::testing::{Probe, done, refused};

const NOTHING: [&str; 0] = [];
const START: &str = "2023-11-14T00:00:00Z";
const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
const MANAGER: &str = "example.com/manager";

// ---- objects ----

/// The object with another value at this path.
fn with(mut object: Value, path: &str, value: impl Into<Value>) -> Value {
    *path.split('/').fold(&mut object, |at, key| &mut at[key]) = value.into();
    object
}

fn at(revision: u64, object: Value) -> Value {
    with(object, "metadata/resourceVersion", revision.to_string())
}

/// A Job of two Pods that no controller has observed.
fn new_job(name: &str) -> Value {
    let uid = format!("uid-{name}");
    json!({
        "metadata": {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": "1", "generation": 1},
        "spec": {
            "completions": 2, "parallelism": 2, "backoffLimit": 6, "completionMode": "NonIndexed",
            "selector": {"matchLabels": {UID_LABEL: uid}},
            "template": {"metadata": {"labels": {UID_LABEL: uid}}, "spec": {}},
        },
    })
}

/// The same Job, with a status that is correct while two Pods run and none is ready.
fn job(name: &str) -> Value {
    let status = json!({
        "startTime": START, "uncountedTerminatedPods": {}, "active": 2, "ready": 0, "terminating": 0,
    });
    with(new_job(name), "status", status)
}

/// A Job of one Pod, which its status says is missing.
fn small_job(name: &str) -> Value {
    let small = with(with(job(name), "spec/completions", 1), "spec/parallelism", 1);
    with(small, "status/active", 0)
}

/// The Job selects Pods by this label alone.
fn selects(job: Value, app: &str) -> Value {
    with(job, "spec/selector", json!({"matchLabels": {"app": app}}))
}

fn finished(job: Value) -> Value {
    let conditions = json!([
        {"type": "SuccessCriteriaMet", "status": "True", "reason": "CompletionsReached"},
        {"type": "Complete", "status": "True", "reason": "CompletionsReached"},
    ]);
    let job = with(with(job, "status/conditions", conditions), "status/completionTime", START);
    with(with(job, "status/active", 0), "status/succeeded", 2)
}

fn owners(job: &str) -> Value {
    let uid = format!("uid-{job}");
    json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": true}])
}

/// A Pod of this Job, with the finalizer and in this phase. Its UID is its name.
fn pod_in(phase: &str, name: &str, job: &str, revision: u64) -> Value {
    let uid = format!("uid-{job}");
    json!({
        "metadata": {
            "namespace": "ns", "name": name, "uid": name, "resourceVersion": revision.to_string(),
            "finalizers": [TRACKING_FINALIZER], "labels": {UID_LABEL: uid},
            "ownerReferences": owners(job),
        },
        "status": {"phase": phase},
    })
}

fn pod(name: &str, job: &str, revision: u64) -> Value {
    pod_in("Running", name, job, revision)
}

fn released(pod: Value) -> Value {
    with(pod, "metadata/finalizers", json!([]))
}

fn loose(pod: Value) -> Value {
    with(pod, "metadata/ownerReferences", json!([]))
}

fn owned(pod: Value, job: &str) -> Value {
    with(pod, "metadata/ownerReferences", owners(job))
}

fn labelled(pod: Value, app: &str) -> Value {
    with(pod, "metadata/labels", json!({"app": app}))
}

fn deleted(object: Value) -> Value {
    let object = with(object, "metadata/deletionTimestamp", "2023-11-14T22:00:00Z");
    with(object, "metadata/deletionGracePeriodSeconds", 30)
}

// ---- the bench ----

fn controller() -> Probe<JobController> {
    Probe::new(JobController::new(Config::default()))
}

fn controller_of(manager: &str) -> Probe<JobController> {
    Probe::new(JobController::new(Config { managed_by: Some(manager.into()), ..Config::default() }))
}

/// Both lists are complete at revision 10.
fn started(jobs: &[Value], pods: &[Value]) -> Probe<JobController> {
    listed(controller(), jobs, pods)
}

fn listed(mut probe: Probe<JobController>, jobs: &[Value], pods: &[Value]) -> Probe<JobController> {
    probe.lists(Kind::JOB, jobs, 10);
    probe.lists(Kind::POD, pods, 10);
    probe
}

/// The Job after the nth request of the last `asks`, a status write.
fn written(probe: &Probe<JobController>, nth: usize, job: Value, revision: u64) -> Value {
    let mut stored = at(revision, job);
    for (field, value) in probe.body(nth)["status"].as_object().unwrap() {
        stored["status"][field] = value.clone();
    }
    stored
}

/// The Pod that the nth request of the last `asks` creates.
fn created(probe: &Probe<JobController>, nth: usize, uid: &str, revision: u64) -> Value {
    at(revision, with(probe.body(nth), "metadata/uid", uid))
}

fn metrics(probe: &mut Probe<JobController>) -> Vec<Metric> {
    std::mem::take(&mut probe.out.metrics)
}

fn count(metrics: &[Metric], wanted: &Metric) -> usize {
    metrics.iter().filter(|metric| *metric == wanted).count()
}

/// A response to a request that was sent before the last `asks`.
fn late(probe: &mut Probe<JobController>, request: RequestId, reply: Reply) {
    probe.input(Input::Response { request, reply, served_at: None });
}

/// The stream of this kind is known up to this revision.
fn bookmark(probe: &mut Probe<JobController>, kind: Kind, revision: u64) {
    probe.input(Input::Bookmark(kind, Revision(revision)));
}

fn ledgers(probe: &Probe<JobController>) -> usize {
    probe.controller.sizes()[0]
}

fn pods_in_ledgers(probe: &Probe<JobController>) -> usize {
    probe.controller.sizes()[1]
}

fn unclaimed(probe: &Probe<JobController>) -> usize {
    probe.controller.sizes()[2]
}

// ---- creations ----

#[test]
fn the_controller_follows_jobs_and_pods_without_delay() {
    let probe = controller();
    assert_eq!(probe.controller.name(), "job-controller");
    let streams: Vec<_> = probe
        .controller
        .streams()
        .iter()
        .map(|stream| (stream.kind.plural, stream.metadata_only, stream.soon))
        .collect();
    assert_eq!(streams, [("jobs", false, true), ("pods", false, true)]);
}

#[test]
fn no_pod_is_created_before_all_pods_have_been_listed() {
    let mut probe = controller();
    probe.lists(Kind::JOB, &[new_job("j")], 10);
    assert_eq!(probe.asks(), NOTHING);
    probe.input(Input::Init(Kind::POD));
    probe.sees(Kind::JOB, at(11, new_job("j")));
    assert_eq!(probe.asks(), NOTHING);
    probe.input(Input::InitDone(Kind::POD, Revision(11)));
    assert_eq!(probe.asks(), ["create pods ns/"]);
}

#[test]
fn nothing_is_planned_while_pods_are_listed_again() {
    let pods = [pod("a", "j", 2), pod("b", "j", 3)];
    let mut probe = started(&[job("j")], &pods);
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), None));
    probe.input(Input::Init(Kind::POD));
    let larger = with(with(job("j"), "spec/completions", 3), "spec/parallelism", 3);
    probe.sees(Kind::JOB, at(11, larger));
    assert_eq!(probe.asks(), NOTHING, "the list may yet show a third Pod");
    for pod in pods {
        probe.sees(Kind::POD, pod);
    }
    probe.input(Input::InitDone(Kind::POD, Revision(11)));
    assert_eq!(probe.asks(), ["create pods ns/"]);
}

#[test]
fn pods_are_created_until_there_are_enough_and_then_reported() {
    let mut probe = started(&[new_job("j")], &[]);
    assert_eq!(probe.asks(), ["create pods ns/"], "the first batch is one Pod");
    let first = created(&probe, 0, "a", 11);
    probe.answer(0, done(first.clone()));
    assert_eq!(probe.asks(), ["create pods ns/"]);
    assert_ne!(probe.body(0)["metadata"]["name"], first["metadata"]["name"]);
    probe.answer(0, done(created(&probe, 0, "b", 12)));
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
    let body = probe.body(0);
    assert_eq!(body["metadata"], json!({"uid": "uid-j", "resourceVersion": "1"}), "the write is conditional");
    assert_eq!(body["status"]["active"], 2);
    assert_eq!(probe.controller.sizes(), [1, 2, 0, 1]);
    let events = probe.events();
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|event| event.starts_with("j SuccessfulCreate: Created pod: j-")), "{events:?}");
}

/// A plan may wait because requests wait for their turn. Once they are answered, the same plan waits as long as before (I10).
#[test]
fn a_plan_that_waits_because_many_requests_do_is_the_last_one() {
    let large = with(with(job("j"), "spec/completions", 3), "spec/parallelism", 3);
    let large = with(large, "status/active", 3);
    let mut probe = started(&[large.clone()], &["a", "b", "c"].map(|name| pod(name, "j", 2)));
    assert_eq!(probe.asks(), NOTHING);
    probe.sees(Kind::POD, pod_in("Succeeded", "a", "j", 11));
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
    let recorded = written(&probe, 0, large, 12);
    probe.answer(0, done(recorded.clone()));
    assert_eq!(probe.asks(), ["patch pods ns/a"]);
    probe.answer(0, done(released(pod_in("Succeeded", "a", "j", 13))));
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
    let tallied = written(&probe, 0, recorded, 14);
    probe.answer(0, done(tallied));
    bookmark(&mut probe, Kind::POD, 20);
    for nth in 0..150 {
        probe.sees(Kind::JOB, at(15, small_job(&format!("small-{nth}"))));
    }
    assert_eq!(probe.asks(), ["create pods ns/"; 150]);
    probe.sees(Kind::POD, pod_in("Succeeded", "b", "j", 21));
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(500)));
    for nth in 0..150 {
        probe.answer(nth, refused(403, "Forbidden"));
    }
    assert!(probe.controller.replan().is_empty());
    probe.passes(500);
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
}

/// An API server with one Job: it carries out every request, and the streams show what it stored.
struct OneJob {
    probe: Probe<JobController>,
    job: Value,
    pods: BTreeMap<String, Value>,
    revision: u64,
}

impl OneJob {
    fn start(config: Config, job: Value) -> Self {
        let probe = listed(Probe::new(JobController::new(config)), &[job.clone()], &[]);
        let mut server = Self { probe, job, pods: BTreeMap::new(), revision: 10 };
        server.serve();
        server
    }

    /// Until the controller has had nothing to do for a minute.
    fn serve(&mut self) {
        for _ in 0..60 {
            loop {
                let lines = self.probe.asks();
                for (nth, line) in lines.iter().enumerate() {
                    self.carry_out(nth, line);
                }
                if lines.is_empty() {
                    break;
                }
            }
            self.probe.passes(1000);
        }
    }

    fn carry_out(&mut self, nth: usize, line: &str) {
        self.revision += 1;
        let (kind, stored) = match line {
            "get jobs ns/j" => return self.probe.answer(nth, done(self.job.clone())),
            "merge jobs ns/j/status" => {
                self.job = written(&self.probe, nth, self.job.clone(), self.revision);
                (Kind::JOB, self.job.clone())
            }
            "create pods ns/" => {
                let uid = format!("pod-{}", self.revision);
                let pod = with(created(&self.probe, nth, &uid, self.revision), "status", json!({"phase": "Pending"}));
                (Kind::POD, pod)
            }
            release => {
                let name = release.strip_prefix("patch pods ns/").unwrap_or_else(|| panic!("not served: {release}"));
                (Kind::POD, at(self.revision, released(self.pods[name].clone())))
            }
        };
        if kind == Kind::POD {
            self.pods.insert(stored["metadata"]["name"].as_str().unwrap().to_owned(), stored.clone());
        }
        self.probe.answer(nth, done(stored.clone()));
        self.probe.sees(kind, stored);
    }

    /// Changes the Pods for which the function returns something.
    fn change_pods(&mut self, change: impl Fn(&Value) -> Option<Value>) {
        for pod in self.pods.values_mut() {
            if let Some(changed) = change(pod) {
                self.revision += 1;
                *pod = at(self.revision, changed);
                self.probe.sees(Kind::POD, pod.clone());
            }
        }
        self.serve();
    }
}

/// METRIC-8, in the cases of the reference's own test of the metric: two Pods are deleted, stay because of a finalizer of
/// another owner, and then fail.
#[test]
fn the_metric_of_a_creation_says_what_it_replaces() {
    let (either, failed) = ("TerminatingOrFailed", "Failed");
    for (gate, mode, policy, judged, expected) in [
        (false, "Indexed", either, false, [4, 0, 0]),
        (true, "Indexed", either, false, [2, 2, 0]),
        (true, "NonIndexed", either, false, [2, 2, 0]),
        (false, "NonIndexed", failed, true, [4, 0, 0]),
        (true, "Indexed", failed, false, [2, 0, 2]),
        (true, "NonIndexed", failed, false, [2, 0, 2]),
    ] {
        let gates = FeatureGates::default().with(Gate::JobPodReplacementPolicy, gate);
        let mut job = with(with(new_job("j"), "spec/completionMode", mode), "spec/podReplacementPolicy", policy);
        if judged {
            let rule = json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [5]}});
            job["spec"]["podFailurePolicy"] = json!({"rules": [rule]});
        }
        let mut server = OneJob::start(Config { gates, ..Config::default() }, job);
        server.change_pods(|pod| Some(deleted(pod.clone())));
        let terminates = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
        server.change_pods(|pod| terminates(pod).then(|| with(pod.clone(), "status/phase", "Failed")));
        let told = metrics(&mut server.probe);
        let of = |reason| count(&told, &Metric::PodCreated { reason, succeeded: true });
        let counted = ["new", "recreate_terminating_or_failed", "recreate_failed"].map(of);
        assert_eq!(counted, expected, "gate {gate}, {mode}, {policy}");
        assert_eq!((&server.job["status"]["active"], &server.job["status"]["failed"]), (&json!(2), &json!(2)));
    }
}

/// METRIC-8: what the status says, and a Pod that only terminates.
#[test]
fn a_creation_replaces_failed_pods_of_the_status_and_pods_that_terminate() {
    let (either, failed) = ("TerminatingOrFailed", "Failed");
    let (none, ends) = (Vec::new(), vec![deleted(released(pod("x", "j", 2)))]);
    for (status, pods, policy, expected) in [
        (json!({}), &none, either, "new"),
        (json!({}), &none, failed, "new"),
        (json!({"failed": 1}), &none, either, "recreate_terminating_or_failed"),
        (json!({"failed": 1}), &none, failed, "recreate_failed"),
        (json!({"uncountedTerminatedPods": {"failed": ["y"]}}), &none, either, "recreate_terminating_or_failed"),
        (json!({"uncountedTerminatedPods": {"failed": ["y"]}}), &none, failed, "recreate_failed"),
        (json!({}), &ends, either, "recreate_terminating_or_failed"),
    ] {
        let mut job = with(small_job("j"), "spec/podReplacementPolicy", policy);
        for (field, value) in status.as_object().unwrap() {
            job["status"][field] = value.clone();
        }
        let mut probe = started(&[job], pods);
        let create = probe.asks().iter().position(|line| line == "create pods ns/").unwrap();
        metrics(&mut probe);
        probe.answer(create, done(created(&probe, create, "a", 11)));
        let expected = Metric::PodCreated { reason: expected, succeeded: true };
        assert_eq!(count(&metrics(&mut probe), &expected), 1, "{status} {policy}: {expected:?}");
    }
}

#[test]
fn a_refused_creation_is_announced_and_retried_after_a_second() {
    let mut probe = started(&[small_job("j")], &[]);
    assert_eq!(probe.asks(), ["create pods ns/"]);
    let name = probe.body(0)["metadata"]["name"].clone();
    probe.answer(0, refused(403, "Forbidden"));
    assert_eq!(count(&metrics(&mut probe), &Metric::PodCreated { reason: "new", succeeded: false }), 1);
    assert_eq!(probe.events(), ["j FailedCreate: Error creating: "]);
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(1000)));
    probe.passes(1000);
    assert_eq!(probe.asks(), ["create pods ns/"]);
    assert_eq!(probe.body(0)["metadata"]["name"], name);
}

/// The name of a new Pod is taken: the controller reads the Pod that has it.
fn name_taken() -> (Probe<JobController>, Value, String) {
    let mut probe = started(&[small_job("j")], &[]);
    assert_eq!(probe.asks(), ["create pods ns/"]);
    let own = created(&probe, 0, "a", 11);
    let name = own["metadata"]["name"].as_str().unwrap().to_owned();
    probe.answer(0, refused(409, "AlreadyExists"));
    assert_eq!(probe.asks(), [format!("get pods ns/{name}")]);
    (probe, own, name)
}

#[test]
fn a_pod_that_exists_already_is_counted_if_it_belongs_to_the_job() {
    let (mut probe, own, _) = name_taken();
    probe.answer(0, done(own));
    assert_eq!(pods_in_ledgers(&probe), 1);
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"], "no other Pod is created");
    assert_eq!(probe.body(0)["status"]["active"], 1);
}

#[test]
fn a_name_that_another_pod_has_or_had_is_not_used_again() {
    for how in ["another Job's", "not selected", "gone"] {
        let (mut probe, own, name) = name_taken();
        let reply = match how {
            "another Job's" => done(owned(own, "k")),
            "not selected" => done(labelled(own, "other")),
            _ => refused(404, "NotFound"),
        };
        probe.answer(0, reply);
        assert_eq!(pods_in_ledgers(&probe), 0, "{how}");
        // A Pod that the Job owns and does not select is given up at once (OWN-3).
        let disowned = if how == "not selected" { vec![format!("patch pods ns/{name}")] } else { Vec::new() };
        let asked = probe.asks();
        assert_eq!(asked, [disowned, vec!["create pods ns/".to_owned()]].concat(), "{how}");
        assert_ne!(probe.body(asked.len() - 1)["metadata"]["name"], name, "{how}");
    }
}

#[test]
fn a_name_whose_pod_cannot_be_read_is_tried_again() {
    let (mut probe, _, name) = name_taken();
    probe.answer(0, refused(503, "ServiceUnavailable"));
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(1000)));
    probe.passes(1000);
    let asked = probe.asks();
    let create = asked.iter().position(|line| line == "create pods ns/").unwrap();
    assert_eq!(probe.body(create)["metadata"]["name"], name);
}

#[test]
fn a_created_pod_that_the_stream_first_shows_without_owner_leaves_the_job() {
    let mut probe = started(&[small_job("j")], &[]);
    assert_eq!(probe.asks(), ["create pods ns/"]);
    let pod = created(&probe, 0, "a", 11);
    probe.answer(0, done(pod.clone()));
    assert_eq!(probe.controller.sizes()[..3], [1, 1, 0]);
    probe.sees(Kind::POD, at(12, labelled(loose(released(pod)), "other")));
    assert_eq!(probe.controller.sizes()[..3], [1, 0, 1]);
}

/// S04: the Job may have finished since.
#[test]
fn a_job_older_than_its_pods_is_read_again_before_a_pod_is_created() {
    let mut probe = controller();
    let job = with(job("j"), "status/active", 1);
    probe.lists(Kind::JOB, &[job.clone()], 10);
    probe.lists(Kind::POD, &[pod("a", "j", 15)], 20);
    assert_eq!(probe.asks(), ["get jobs ns/j"]);
    probe.answer(0, refused(503, "ServiceUnavailable"));
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(1000)));
    probe.passes(1000);
    assert_eq!(probe.asks(), ["get jobs ns/j"]);
    probe.answer(0, done(job));
    assert_eq!(probe.asks(), ["create pods ns/"]);
}

// ---- accounting ----

/// A Job of `completions` whose `pods` have all succeeded, until its last write has its response.
fn completed(completions: usize, pods: usize) -> Probe<JobController> {
    let all: Vec<Value> = (0..pods).map(|nth| pod_in("Succeeded", &format!("p{nth}"), "j", 2 + nth as u64)).collect();
    let job = with(job("j"), "spec/completions", completions);
    let mut probe = started(&[job.clone()], &all);
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
    let recorded = written(&probe, 0, job, 11);
    probe.answer(0, done(recorded.clone()));
    let names: Vec<_> = (0..pods).map(|nth| format!("patch pods ns/p{nth}")).collect();
    assert_eq!(probe.asks(), names);
    for (nth, pod) in all.into_iter().enumerate() {
        probe.answer(nth, done(at(12 + nth as u64, released(pod))));
    }
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
    assert_eq!(probe.body(0)["metadata"], json!({"uid": "uid-j", "resourceVersion": "11"}));
    probe.answer(0, done(written(&probe, 0, recorded, 20)));
    probe
}

#[test]
fn a_job_whose_pods_are_recorded_released_and_tallied_is_complete() {
    let mut probe = completed(2, 2);
    assert_eq!(probe.events(), ["j Completed: Job completed"]);
    let metrics = metrics(&mut probe);
    assert_eq!(count(&metrics, &Metric::PodsFinished { indexed: false, succeeded: true, by: 2 }), 1);
    let finished = Metric::JobFinished { indexed: false, succeeded: true, reason: "CompletionsReached".into() };
    assert_eq!(count(&metrics, &finished), 1);
    assert!(!metrics.iter().any(|metric| matches!(metric, Metric::FailureHandled { .. })), "{metrics:?}");
    assert_eq!(probe.controller.sizes(), [0; 4], "a finished Job costs only its view");
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), None));
}

#[test]
fn more_successes_than_completions_are_announced() {
    let events = completed(2, 3).events();
    let surplus = "j TooManySucceededPods: Too many succeeded pods running after completion count reached";
    assert_eq!(events, [surplus, "j Completed: Job completed"]);
}

#[test]
fn a_finished_job_is_not_reopened_by_an_older_event() {
    let mut probe = completed(2, 2);
    // The stream shows the write that recorded the Pods only now.
    let recorded = with(job("j"), "status/uncountedTerminatedPods", json!({"succeeded": ["p0", "p1"]}));
    probe.sees(Kind::JOB, at(11, recorded));
    assert_eq!(ledgers(&probe), 0);
    assert_eq!(probe.asks(), NOTHING);
}

/// METRIC-7.
#[test]
fn an_ignored_failure_is_counted_once_its_pod_is_released() {
    let policy = json!({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]});
    let ignored = Metric::FailureHandled { action: "Ignore" };
    let disrupted = with(
        pod_in("Failed", "a", "j", 2),
        "status/conditions",
        json!([{"type": "DisruptionTarget", "status": "True"}]),
    );
    let mut probe = started(&[with(job("j"), "spec/podFailurePolicy", policy)], &[disrupted.clone(), pod("b", "j", 3)]);
    let release = probe.asks().iter().position(|line| line == "patch pods ns/a").unwrap();
    probe.answer(release, refused(503, "ServiceUnavailable"));
    assert_eq!(count(&metrics(&mut probe), &ignored), 0, "not yet released");
    probe.asks();
    probe.passes(1000);
    let release = probe.asks().iter().position(|line| line == "patch pods ns/a").unwrap();
    probe.answer(release, done(at(12, released(disrupted))));
    assert_eq!(count(&metrics(&mut probe), &ignored), 1);
}

#[test]
fn a_suspended_and_a_resumed_job_are_announced() {
    let idle = with(job("j"), "status/active", 0);
    let suspended = with(idle, "spec/suspend", true);
    let mut probe = started(&[suspended.clone()], &[]);
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
    let stored = written(&probe, 0, suspended, 11);
    probe.answer(0, done(stored.clone()));
    assert_eq!(probe.events(), ["j Suspended: Job suspended"]);
    let resumed = at(12, with(stored, "spec/suspend", false));
    probe.sees(Kind::JOB, resumed.clone());
    assert_eq!(probe.asks(), ["merge jobs ns/j/status", "create pods ns/"]);
    probe.answer(0, done(written(&probe, 0, resumed, 13)));
    assert_eq!(probe.events(), ["j Resumed: Job resumed"]);
}

/// METRIC-6.
#[test]
fn indexes_that_fail_are_counted_for_indexed_jobs_only() {
    let failed = Metric::IndexesFinished { succeeded: false, per_index: true, by: 1 };
    let indexed = with(with(job("j"), "spec/completionMode", "Indexed"), "spec/backoffLimitPerIndex", 0);
    let indexed = with(indexed, "status/failedIndexes", "");
    for (job, expected) in [(indexed, 1), (job("j"), 0)] {
        let with_index = |pod: Value, index: &str| {
            with(pod, "metadata/annotations", json!({"batch.kubernetes.io/job-completion-index": index}))
        };
        let pods = [with_index(pod_in("Failed", "a", "j", 2), "0"), with_index(pod("b", "j", 3), "1")];
        let mut probe = started(&[job.clone()], &pods);
        assert_eq!(probe.asks()[0], "merge jobs ns/j/status");
        // As if an admission webhook had added the field to the other Job.
        let stored = with(written(&probe, 0, job, 11), "status/failedIndexes", "0");
        metrics(&mut probe);
        probe.answer(0, done(stored));
        let metrics = metrics(&mut probe);
        assert_eq!(count(&metrics, &failed), expected, "{metrics:?}");
    }
}

#[test]
fn each_plan_is_counted_by_what_it_mainly_does() {
    let running = || [pod("a", "j", 2), pod("b", "j", 3)];
    let failing = json!([{"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded"}]);
    let recorded = [pod_in("Succeeded", "a", "j", 2), pod("b", "j", 3)];
    for (job, pods, lines, action) in [
        (new_job("j"), &[][..], &["create pods ns/"][..], SyncAction::PodsCreated),
        (
            with(job("j"), "spec/parallelism", 0),
            &running()[..],
            &["patch pods ns/a", "patch pods ns/b"][..],
            SyncAction::PodsDeleted,
        ),
        (
            with(job("j"), "status/conditions", failing),
            &running()[..],
            &["delete pods ns/a", "delete pods ns/b"][..],
            SyncAction::PodsDeleted,
        ),
        (job("j"), &recorded[..], &["merge jobs ns/j/status"][..], SyncAction::Tracking),
    ] {
        let mut probe = started(&[job], pods);
        let mut asked = probe.asks();
        asked.sort();
        assert_eq!(asked, lines);
        let syncs: Vec<Metric> =
            metrics(&mut probe).into_iter().filter(|metric| matches!(metric, Metric::Sync { .. })).collect();
        assert_eq!(syncs, [Metric::Sync { indexed: false, action, error: false }], "{lines:?}");
    }
}

#[test]
fn a_job_of_an_unknown_completion_mode_loses_its_pods_only_when_it_is_deleted() {
    let unknown = with(job("j"), "spec/completionMode", "Sometimes");
    let mut probe = started(&[unknown.clone()], &[pod("a", "j", 2)]);
    assert_eq!(probe.asks(), NOTHING);
    let told = probe.events();
    assert_eq!(told, ["j UnknownCompletionMode: Skipped Job sync because completion mode is unknown"]);
    probe.sees(Kind::JOB, at(11, deleted(unknown)));
    assert_eq!(probe.asks(), ["patch pods ns/a"]);
    assert_eq!(probe.body(0)["metadata"]["resourceVersion"], "2", "it is released uncounted");
    assert_eq!(probe.events(), NOTHING, "announced once");
}

// ---- conflicts and tombstones ----

/// A status write conflicted: the Job is being read. Two Pods have the finalizer.
fn refreshing(job: &Value) -> Probe<JobController> {
    let mut probe = started(&[job.clone()], &[pod_in("Succeeded", "a", "j", 2), pod("b", "j", 3)]);
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
    probe.answer(0, refused(409, "Conflict"));
    assert_eq!(probe.asks(), ["get jobs ns/j"]);
    probe
}

/// A Job of one Pod that has succeeded, and whose status is refused by a policy.
fn refused_status() -> (Probe<JobController>, Value) {
    let job = with(with(job("j"), "spec/completions", 1), "spec/parallelism", 1);
    let mut probe = started(&[job.clone()], &[pod_in("Succeeded", "a", "j", 2)]);
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
    probe.answer(0, denied());
    (probe, job)
}

fn denied() -> Reply {
    let message = "jobs.batch \"j\" is forbidden: denied by a policy".to_owned();
    Reply::Refused(Refusal { code: 422, reason: "Invalid".to_owned(), message, ..Refusal::default() })
}

/// CONST-1, EVENT-14.
#[test]
fn a_refused_status_is_sent_again_after_1_2_4_and_at_most_60_seconds_and_told_once() {
    let (mut probe, job) = refused_status();
    let told = ["j StatusRefused: Error updating status: jobs.batch \"j\" is forbidden: denied by a policy"];
    assert_eq!(probe.events(), told);
    let begins = Metric::StatusRefused {
        job: "ns/j".into(),
        message: "jobs.batch \"j\" is forbidden: denied by a policy".to_owned(),
    };
    assert_eq!(count(&metrics(&mut probe), &begins), 1);
    for delay in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(delay * 1000)));
        probe.passes(delay * 1000 - 1);
        assert_eq!(probe.asks(), NOTHING);
        probe.passes(1);
        assert_eq!(probe.asks(), ["merge jobs ns/j/status"], "after {delay} s");
        probe.answer(0, denied());
    }
    let quiet = |metric: &Metric| !matches!(metric, Metric::StatusRefused { .. } | Metric::StatusRefusalEnded { .. });
    assert!(metrics(&mut probe).iter().all(quiet));
    assert_eq!(probe.events(), NOTHING, "it was told once");
    probe.passes(60_000);
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
    let stored = written(&probe, 0, job, 11);
    probe.answer(0, done(stored));
    assert_eq!(probe.events(), ["j StatusAccepted: The status was written after 9 refused writes"]);
    let ends = Metric::StatusRefusalEnded { job: "ns/j".into(), refusals: 9, accepted: true };
    assert_eq!(count(&metrics(&mut probe), &ends), 1);
    assert_eq!(probe.asks(), ["patch pods ns/a"], "the Pod is recorded, and goes on");
}

/// CONST-1, EVENT-14: a user corrects the Job, or deletes it.
#[test]
fn a_job_that_changes_ends_the_wait_after_a_refused_status() {
    let (mut probe, job) = refused_status();
    assert_eq!(probe.asks(), NOTHING);
    probe.sees(Kind::JOB, with(at(11, job.clone()), "metadata/labels", json!({"team": "a"})));
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
    let (mut probe, job) = refused_status();
    metrics(&mut probe);
    probe.gone(Kind::JOB, at(11, job));
    let ends = Metric::StatusRefusalEnded { job: "ns/j".into(), refusals: 1, accepted: false };
    assert_eq!(count(&metrics(&mut probe), &ends), 1);
}

/// CONST-1: only the status waits.
#[test]
fn pods_are_created_while_the_status_is_refused() {
    let mut probe = started(&[new_job("j")], &[]);
    assert_eq!(probe.asks(), ["create pods ns/"]);
    probe.answer(0, done(created(&probe, 0, "a", 11)));
    assert_eq!(probe.asks(), ["create pods ns/"]);
    probe.answer(0, done(created(&probe, 0, "b", 12)));
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
    for _ in 0..3 {
        probe.answer(0, denied());
        probe.passes(probe.wakes_in().unwrap());
        assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
    }
    probe.answer(0, denied());
    let more = with(with(new_job("j"), "spec/completions", 3), "spec/parallelism", 3);
    probe.sees(Kind::JOB, at(13, more));
    bookmark(&mut probe, Kind::POD, 13);
    let asked = probe.asks();
    assert!(asked.iter().any(|line| line == "create pods ns/"), "{asked:?}");
}

#[test]
fn after_a_conflict_the_status_is_planned_again_from_the_job_that_was_read() {
    let mut probe = refreshing(&job("j"));
    probe.sees(Kind::POD, pod("b", "j", 11));
    assert_eq!(probe.asks(), NOTHING, "the old Job would only conflict again");
    probe.answer(0, done(at(12, job("j"))));
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
    assert_eq!(probe.body(0)["metadata"]["resourceVersion"], "12");
}

#[test]
fn after_a_conflict_a_newer_job_from_the_stream_is_as_good_as_a_read() {
    let mut probe = refreshing(&job("j"));
    probe.sees(Kind::JOB, job("j"));
    assert_eq!(probe.asks(), NOTHING, "the same revision");
    probe.sees(Kind::JOB, at(12, job("j")));
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
    assert_eq!(probe.body(0)["metadata"]["resourceVersion"], "12");
}

#[test]
fn a_job_that_cannot_be_read_is_read_again_after_a_second() {
    let mut probe = refreshing(&job("j"));
    probe.answer(0, refused(503, "ServiceUnavailable"));
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(1000)));
    probe.passes(1000);
    assert_eq!(probe.asks(), ["get jobs ns/j"]);
}

#[test]
fn a_job_that_was_deleted_or_replaced_meanwhile_is_gone_and_its_pods_are_released() {
    for reply in [refused(404, "NotFound"), done(with(at(12, job("j")), "metadata/uid", "uid-other"))] {
        let mut probe = refreshing(&job("j"));
        probe.answer(0, reply);
        assert_eq!(ledgers(&probe), 0);
        assert_eq!(probe.asks(), ["patch pods ns/a", "patch pods ns/b"]);
        assert_eq!(probe.body(1)["metadata"]["resourceVersion"], "3");
    }
}

/// A list may be older than the response that said that the Job is gone.
#[test]
fn a_job_that_is_gone_is_not_revived_until_a_newer_list_lacks_it() {
    for (listed, list_at, revived) in [
        // Events up to its deletion follow the list.
        (true, 12, false),
        (true, 5, false),
        // The list is older than the Job.
        (false, 7, false),
        (false, 8, true),
        (false, 12, true),
    ] {
        let job = at(8, job("j"));
        let mut probe = refreshing(&job);
        probe.answer(0, refused(404, "NotFound"));
        probe.sees(Kind::JOB, at(9, job.clone()));
        assert_eq!(ledgers(&probe), 0);
        let items = if listed { vec![job.clone()] } else { Vec::new() };
        probe.lists(Kind::JOB, &items, list_at);
        probe.sees(Kind::JOB, at(13, job));
        assert_eq!(ledgers(&probe) == 1, revived, "listed: {listed}, at {list_at}");
    }
}

// ---- the gate ----

/// Another leader has counted a failure, at this revision.
fn counted_elsewhere(failed: u32, revision: u64) -> Value {
    with(with(at(revision, job("j")), "status/failed", failed), "status/active", 1)
}

fn two_running() -> Probe<JobController> {
    let mut probe = started(&[job("j")], &[pod("a", "j", 2), pod("b", "j", 3)]);
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), None));
    metrics(&mut probe);
    probe
}

#[test]
fn a_job_that_another_leader_changed_waits_for_its_pods() {
    let mut probe = two_running();
    probe.sees(Kind::JOB, counted_elsewhere(1, 20));
    let call = &probe.out.requests[0].call;
    assert_eq!(call.label_selector, format!("{UID_LABEL} in (uid-j)"));
    assert_eq!(probe.asks(), ["list pods ns/"]);
    probe.sees(Kind::JOB, with(counted_elsewhere(1, 21), "status/ready", 1));
    probe.sees(Kind::POD, pod("a", "j", 15));
    bookmark(&mut probe, Kind::POD, 19);
    assert_eq!(probe.asks(), NOTHING);
    assert_eq!(count(&metrics(&mut probe), &Metric::GateClosed), 1, "it stayed closed");
    bookmark(&mut probe, Kind::POD, 20);
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
    assert_eq!(probe.body(0)["metadata"]["resourceVersion"], "21");
}

#[test]
fn the_gate_is_counted_again_when_it_closes_again() {
    let mut probe = two_running();
    probe.sees(Kind::JOB, counted_elsewhere(1, 20));
    bookmark(&mut probe, Kind::POD, 20);
    probe.sees(Kind::JOB, counted_elsewhere(2, 30));
    assert_eq!(count(&metrics(&mut probe), &Metric::GateClosed), 2);
}

#[test]
fn our_own_write_in_the_stream_before_its_response_needs_no_list() {
    let mut probe = started(&[job("j")], &[pod_in("Succeeded", "a", "j", 2), pod("b", "j", 3)]);
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
    let stored = written(&probe, 0, job("j"), 20);
    probe.sees(Kind::JOB, stored.clone());
    assert_eq!(probe.asks(), NOTHING);
    probe.answer(0, done(stored));
    assert_eq!(probe.asks(), ["patch pods ns/a"]);
}

#[test]
fn pods_are_listed_at_most_once_a_second_and_sooner_after_a_failure() {
    let mut probe = two_running();
    let pods = |revision: u64| Reply::Listed {
        items: [pod("a", "j", 2), pod("b", "j", 3)].map(|pod| pod.to_string().into()).to_vec(),
        at: Revision(revision),
    };
    probe.sees(Kind::JOB, counted_elsewhere(1, 20));
    assert_eq!(probe.asks(), ["list pods ns/"]);
    probe.answer(0, refused(503, "ServiceUnavailable"));
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(500)));
    probe.passes(500);
    assert_eq!(probe.asks(), ["list pods ns/"]);
    probe.answer(0, refused(503, "ServiceUnavailable"));
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(1000)), "the second failure in succession");
    probe.passes(1000);
    assert_eq!(probe.asks(), ["list pods ns/"]);
    probe.answer(0, pods(20));
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"], "the list has opened the gate");
    probe.answer(0, done(written(&probe, 0, counted_elsewhere(1, 20), 21)));
    probe.sees(Kind::JOB, counted_elsewhere(2, 30));
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(1000)));
    probe.passes(1000);
    assert_eq!(probe.asks(), ["list pods ns/"]);
}

#[test]
fn one_list_is_for_all_jobs_that_need_one() {
    let elsewhere = with(at(20, job("k")), "metadata/namespace", "other");
    let alone = selects(at(20, job("k")), "x");
    for (second, line, selector) in [
        (at(20, job("k")), "list pods ns/", format!("{UID_LABEL} in (uid-j,uid-k)")),
        (elsewhere, "list pods /", format!("{UID_LABEL} in (uid-j,uid-k)")),
        (alone, "list pods ns/", format!("{UID_LABEL} in (uid-j)")),
    ] {
        let mut probe = controller();
        probe.lists(Kind::JOB, &[at(20, job("j")), second], 20);
        probe.lists(Kind::POD, &[], 10);
        assert_eq!(probe.out.requests[0].call.label_selector, selector);
        assert_eq!(probe.asks(), [line]);
    }
}

/// A Pod in no ledger, of which a list response shows an older state than the stream.
#[test]
fn a_list_does_not_take_back_a_pod_that_has_lost_its_owner_since() {
    let mut probe = two_running();
    probe.sees(Kind::JOB, counted_elsewhere(1, 30));
    assert_eq!(probe.asks(), ["list pods ns/"]);
    probe.sees(Kind::POD, at(40, labelled(loose(released(pod("a", "j", 2))), "other")));
    assert_eq!(probe.controller.sizes()[..3], [1, 1, 1]);
    let items = [pod("a", "j", 2), pod("b", "j", 3)].map(|pod| pod.to_string().into()).to_vec();
    probe.answer(0, Reply::Listed { items, at: Revision(31) });
    assert_eq!(probe.controller.sizes()[..3], [1, 1, 1]);
}

/// The stream is behind: it shows the Pod as one of the Job that it was adopted from.
#[test]
fn a_pod_that_a_list_shows_with_another_owner_leaves_the_ledger_of_the_first() {
    let of = |name: &str| selects(with(job(name), "status/active", 1), "x");
    for (revision, listed) in [(25, true), (1, false)] {
        let mut probe = started(&[of("j"), of("k")], &[labelled(pod("a", "j", 2), "x")]);
        probe.sees(Kind::JOB, with(at(20, of("k")), "status/failed", 1));
        let asked = probe.asks();
        let list = asked.iter().position(|line| line == "list pods ns/").unwrap();
        let moved = labelled(pod("a", "k", revision), "x");
        probe.answer(list, Reply::Listed { items: vec![moved.to_string().into()], at: Revision(26) });
        assert_eq!(pods_in_ledgers(&probe), 1, "{revision}");
        // Its end is told to the Job that has it.
        probe.gone(Kind::POD, at(30, labelled(pod("a", if listed { "k" } else { "j" }, 30), "x")));
        assert_eq!(pods_in_ledgers(&probe), 0, "{revision}");
    }
}

/// The Job that has recorded it comes later in the list of Jobs than the one that would adopt it.
#[test]
fn a_pod_that_a_job_later_in_the_list_has_recorded_is_not_adopted() {
    let ended = loose(labelled(pod_in("Succeeded", "a", "k", 5), "x"));
    let uid = ended["metadata"]["uid"].clone();
    let adopter = selects(with(job("j"), "status/active", 0), "x");
    let recorder = deleted(with(selects(job("k"), "x"), "status/uncountedTerminatedPods", json!({"succeeded": [uid]})));
    for answered_in_list in [false, true] {
        let mut probe = controller();
        probe.lists(Kind::POD, &[ended.clone()], 10);
        probe.input(Input::Init(Kind::JOB));
        probe.sees(Kind::JOB, adopter.clone());
        let confirmation = probe.out.requests[0].id;
        assert_eq!(probe.asks(), ["get jobs ns/j"]);
        if answered_in_list {
            late(&mut probe, confirmation, done(adopter.clone()));
        }
        probe.sees(Kind::JOB, recorder.clone());
        probe.input(Input::InitDone(Kind::JOB, Revision(10)));
        if !answered_in_list {
            late(&mut probe, confirmation, done(adopter.clone()));
        }
        let mut adoptions = 0;
        for _ in 0..3 {
            probe.passes(1000);
            let asked = probe.asks();
            adoptions += (0..asked.len())
                .filter(|nth| asked[*nth].ends_with("pods ns/a") && probe.body(*nth).to_string().contains("uid-j"))
                .count();
        }
        assert_eq!(adoptions, 0, "answered in the list: {answered_in_list}");
    }
}

/// The same for a Pod that was found by its name.
#[test]
fn a_pod_found_by_its_name_leaves_the_ledger_of_its_former_job() {
    let of = |name: &str| selects(with(small_job(name), "status/active", 0), "x");
    let mut probe = started(&[of("k")], &[]);
    let creation = probe.out.requests[0].id;
    assert_eq!(probe.asks(), ["create pods ns/"]);
    let taken = probe.body(0)["metadata"]["name"].as_str().unwrap().to_owned();
    probe.sees(Kind::JOB, at(11, with(selects(job("j"), "x"), "status/active", 1)));
    probe.sees(Kind::POD, labelled(pod(&taken, "j", 12), "x"));
    assert_eq!(pods_in_ledgers(&probe), 1);
    probe.asks();
    late(&mut probe, creation, refused(409, "AlreadyExists"));
    assert_eq!(probe.asks(), [format!("get pods ns/{taken}")]);
    probe.answer(0, done(labelled(pod(&taken, "k", 13), "x")));
    assert_eq!(pods_in_ledgers(&probe), 1, "in the ledger of k only");
    probe.gone(Kind::POD, at(30, labelled(pod(&taken, "k", 30), "x")));
    assert_eq!(pods_in_ledgers(&probe), 0);
}

/// The Pod may have to be adopted, before another one is created in its place.
#[test]
fn a_list_shows_pods_to_adopt_unless_the_stream_is_past_them() {
    for (revision, adopted) in [(25, true), (5, false)] {
        let mut probe = two_running();
        probe.sees(Kind::JOB, counted_elsewhere(1, 20));
        assert_eq!(probe.asks(), ["list pods ns/"]);
        let pods = [pod("a", "j", 2), pod("b", "j", 3), loose(pod("c", "j", revision))];
        let items = pods.map(|pod| pod.to_string().into()).to_vec();
        probe.answer(0, Reply::Listed { items, at: Revision(30) });
        let asked = probe.asks();
        assert_eq!(asked.iter().any(|line| line == "get jobs ns/j"), adopted, "{revision}: {asked:?}");
        assert_eq!(unclaimed(&probe), usize::from(adopted), "{revision}");
    }
}

/// METRIC-15: unfinished Jobs of ours, each once.
#[test]
fn jobs_that_are_tracked_the_old_way_are_counted_until_they_end() {
    let legacy = |job: Value| with(job, "metadata/annotations", json!({"batch.kubernetes.io/job-tracking": "legacy"}));
    let mut probe = started(
        &[
            legacy(job("a")),
            legacy(job("b")),
            job("tracked"),
            legacy(finished(job("ended"))),
            legacy(managed(job("x"), MANAGER)),
        ],
        &[],
    );
    let mut now = 0;
    let mut counted = |probe: &mut Probe<JobController>| {
        for metric in metrics(probe) {
            now += match metric {
                Metric::LegacyJob { added: true } => 1,
                Metric::LegacyJob { added: false } => -1,
                _ => 0,
            };
        }
        now
    };
    assert_eq!(counted(&mut probe), 2);
    probe.sees(Kind::JOB, at(20, legacy(job("a"))));
    assert_eq!(counted(&mut probe), 2, "it is known");
    probe.sees(Kind::JOB, at(21, legacy(job("tracked"))));
    assert_eq!(counted(&mut probe), 3, "its tracking has ended");
    probe.sees(Kind::JOB, at(22, legacy(finished(job("a")))));
    assert_eq!(counted(&mut probe), 2);
    probe.gone(Kind::JOB, at(23, legacy(finished(job("a")))));
    probe.gone(Kind::JOB, at(24, legacy(job("b"))));
    assert_eq!(counted(&mut probe), 1);
    // A list without it: the stream has missed its deletion.
    probe.lists(Kind::JOB, &[], 30);
    assert_eq!(counted(&mut probe), 0);
}

// ---- Jobs of other managers ----

fn managed(job: Value, manager: &str) -> Value {
    with(job, "spec/managedBy", manager)
}

#[test]
fn only_jobs_of_other_managers_are_counted_as_external() {
    for (own, manager, expected) in [
        (None, None, false),
        (None, Some(RESERVED_MANAGER), false),
        (None, Some(MANAGER), true),
        (Some(MANAGER), None, false),
        (Some(MANAGER), Some(RESERVED_MANAGER), false),
        (Some(MANAGER), Some(MANAGER), false),
        (Some(MANAGER), Some("example.com/other"), true),
    ] {
        let probe = own.map_or_else(controller, controller_of);
        let job = with(new_job("j"), "spec/managedBy", manager);
        let mut probe = listed(probe, &[job], &[]);
        let told = metrics(&mut probe);
        let external = manager.map(|manager| Metric::ExternalJob { manager: manager.into(), job: "ns/j".into() });
        let counted = external.is_some_and(|metric| told.contains(&metric));
        assert_eq!(counted, expected, "a controller of {own:?}, a Job of {manager:?}");
    }
}

/// Unless a client or a controller has done something about it.
#[test]
fn a_job_that_waits_for_its_manager_is_read_after_a_minute() {
    let untouched = managed(new_job("j"), MANAGER);
    for (job, waits) in [
        (untouched.clone(), true),
        (deleted(untouched.clone()), false),
        (with(untouched.clone(), "spec/suspend", true), false),
        (deleted(with(untouched.clone(), "spec/suspend", true)), false),
        (managed(job("j"), MANAGER), false),
    ] {
        let mut probe = started(&[job.clone()], &[]);
        assert_eq!(probe.wakes_in(), waits.then_some(60_000), "{job}");
        probe.passes(60_000);
        assert_eq!(probe.asks(), if waits { vec!["get jobs ns/j"] } else { vec![] }, "{job}");
    }
}

#[test]
fn the_wait_for_a_manager_ends_when_the_job_is_touched_or_deleted() {
    let mut probe = started(&[managed(new_job("j"), MANAGER)], &[]);
    probe.sees(Kind::JOB, at(11, managed(job("j"), MANAGER)));
    assert_eq!(probe.wakes_in(), None);
    let mut probe = started(&[managed(new_job("j"), MANAGER)], &[]);
    probe.gone(Kind::JOB, at(11, managed(new_job("j"), MANAGER)));
    assert_eq!(probe.wakes_in(), None);
}

#[test]
fn a_missing_manager_is_announced_only_if_the_job_is_still_as_it_was() {
    let untouched = managed(new_job("j"), MANAGER);
    for (current, announced) in [
        (untouched.clone(), true),
        (with(untouched.clone(), "metadata/uid", "uid-other"), false),
        (with(untouched.clone(), "metadata/generation", 2), false),
        (deleted(untouched.clone()), false),
        (managed(job("j"), MANAGER), false),
    ] {
        let mut probe = started(&[untouched.clone()], &[]);
        probe.passes(60_000);
        assert_eq!(probe.asks(), ["get jobs ns/j"]);
        probe.answer(0, done(current.clone()));
        let events = probe.events();
        assert_eq!(events.len(), usize::from(announced), "{current}: {events:?}");
        assert_eq!(probe.wakes_in(), announced.then_some(3_600_000), "{current}");
        assert!(events.iter().all(|event| event.contains("NoControllerForManagedBy") && event.contains(MANAGER)));
    }
}

#[test]
fn a_job_with_pods_has_a_manager() {
    let mut probe = started(&[managed(new_job("j"), MANAGER)], &[pod("a", "j", 2)]);
    probe.passes(60_000);
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(60_000)));
    probe.gone(Kind::POD, pod("a", "j", 11));
    probe.passes(60_000);
    assert_eq!(probe.asks(), ["get jobs ns/j"]);
}

#[test]
fn of_the_pods_of_other_managers_only_future_orphans_are_kept() {
    for (own, kept) in [(None, 1), (Some("example.com/other"), 0)] {
        let mut probe = own.map_or_else(controller, controller_of);
        probe.lists(Kind::POD, &[pod("a", "j", 2), released(pod("b", "j", 3))], 10);
        assert_eq!(unclaimed(&probe), 2, "their Job is not known yet");
        probe.lists(Kind::JOB, &[managed(job("j"), MANAGER)], 10);
        assert_eq!(unclaimed(&probe), kept, "a controller of {own:?}");
        assert_eq!(probe.asks(), NOTHING);
    }
}

// ---- Jobs that are gone or have finished ----

/// ORPH-3.
#[test]
fn when_a_job_is_gone_its_pods_with_the_finalizer_are_released() {
    let others = "example.com/other";
    for (own, manager, pods, released_pods) in [
        (None, None, 2, &["patch pods ns/a"][..]),
        (None, Some(MANAGER), 0, &["patch pods ns/a"]),
        (Some(MANAGER), Some(MANAGER), 2, &["patch pods ns/a"]),
        (Some(others), Some(MANAGER), 0, &[]),
    ] {
        let gone = with(job("j"), "spec/managedBy", manager);
        let probe = own.map_or_else(controller, controller_of);
        let mut probe = listed(probe, &[gone.clone()], &[pod("a", "j", 2), released(pod("b", "j", 3))]);
        let said = format!("a controller of {own:?}, a Job of {manager:?}");
        assert_eq!(probe.controller.sizes()[..2], [usize::from(pods > 0), pods], "{said}");
        assert_eq!(probe.asks(), NOTHING, "{said}");
        probe.gone(Kind::JOB, at(11, gone));
        assert_eq!(probe.asks(), released_pods, "{said}");
        let left = released_pods.len();
        assert_eq!(probe.controller.sizes(), [0, 0, left, left], "{said}");
        if left > 0 {
            let finalizers = "$deleteFromPrimitiveList/finalizers";
            let expected = json!({"uid": "a", "resourceVersion": "2", finalizers: [TRACKING_FINALIZER]});
            assert_eq!(probe.body(0)["metadata"], expected, "{said}");
        }
    }
}

#[test]
fn pods_of_a_job_that_cannot_be_decoded_are_released_when_it_is_gone() {
    let unreadable = json!({"metadata": job("j")["metadata"].clone()});
    let mut probe = started(&[unreadable.clone()], &[pod("a", "j", 2), released(pod("b", "j", 3))]);
    assert_eq!(probe.asks(), NOTHING, "the Job exists");
    probe.gone(Kind::JOB, at(11, unreadable));
    assert_eq!(probe.asks(), ["patch pods ns/a"]);
}

/// S10.
#[test]
fn pods_of_a_finished_job_are_released_whichever_was_observed_first() {
    let pods = [pod("a", "j", 2), released(pod("b", "j", 3))];
    let mut probe = controller();
    probe.lists(Kind::POD, &pods, 10);
    assert_eq!(probe.asks(), NOTHING);
    probe.lists(Kind::JOB, &[finished(job("j"))], 10);
    assert_eq!(probe.asks(), ["patch pods ns/a"]);
    assert_eq!(probe.controller.sizes(), [0, 0, 1, 1]);

    let mut probe = started(&[finished(job("j"))], &pods);
    assert_eq!(probe.asks(), ["patch pods ns/a"]);
    assert_eq!(probe.body(0)["metadata"]["resourceVersion"], "2");
    assert_eq!(probe.controller.sizes(), [0, 0, 1, 1]);
    probe.sees(Kind::POD, at(12, released(pod("a", "j", 2))));
    assert_eq!(unclaimed(&probe), 0, "the stream shows that it is released");
}

// ---- orphans ----

#[test]
fn a_pod_is_an_orphan_once_the_jobs_are_known_up_to_its_revision() {
    let mut probe = started(&[], &[]);
    probe.sees(Kind::POD, pod("a", "j", 15));
    bookmark(&mut probe, Kind::JOB, 14);
    assert_eq!(probe.asks(), NOTHING, "its Job may be newer than the observed Jobs");
    bookmark(&mut probe, Kind::JOB, 15);
    assert_eq!(probe.asks(), ["patch pods ns/a"]);
    assert_eq!(probe.body(0)["metadata"]["resourceVersion"], "15");
}

#[test]
fn a_pod_without_finalizer_or_for_another_controller_is_not_released() {
    let tracked = || pod("a", "j", 2);
    for (own, pod, kept) in [
        (None, released(tracked()), 0),
        (Some(MANAGER), tracked(), 0),
        (Some(MANAGER), released(tracked()), 0),
        // Without an owner: a Job may adopt them yet.
        (None, released(loose(tracked())), 1),
        (Some(MANAGER), loose(tracked()), 1),
    ] {
        let probe = own.map_or_else(controller, controller_of);
        let mut probe = listed(probe, &[], &[pod.clone()]);
        assert_eq!(probe.asks(), NOTHING, "a controller of {own:?}: {pod}");
        assert_eq!(unclaimed(&probe), kept, "a controller of {own:?}: {pod}");
    }
}

#[test]
fn a_pod_with_finalizer_and_without_owner_is_released_unless_a_job_may_adopt_it() {
    let pod = labelled(loose(pod("a", "j", 2)), "x");
    let other = |app: &str| managed(selects(job("k"), app), MANAGER);
    for (jobs, expected) in [
        (vec![], &["patch pods ns/a"][..]),
        (vec![other("y")], &["patch pods ns/a"]),
        (vec![other("x")], &[]),
        (vec![finished(other("x"))], &["patch pods ns/a"]),
    ] {
        let mut probe = started(&jobs, &[pod.clone()]);
        assert_eq!(probe.asks(), expected, "{jobs:?}");
    }
}

fn one_orphan() -> Probe<JobController> {
    let mut probe = started(&[], &[pod("a", "j", 5)]);
    assert_eq!(probe.asks(), ["patch pods ns/a"]);
    assert_eq!((unclaimed(&probe), probe.wakes_in()), (1, None));
    probe
}

#[test]
fn a_release_that_fails_is_retried_after_1_2_4_and_at_most_64_seconds() {
    let mut probe = one_orphan();
    for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
        probe.answer(0, refused(503, "ServiceUnavailable"));
        assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(seconds * 1000)));
        probe.passes(seconds * 1000);
        assert_eq!(probe.asks(), ["patch pods ns/a"]);
    }
    probe.answer(0, done(at(12, released(pod("a", "j", 5)))));
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), None));
    assert_eq!(probe.controller.sizes(), [0; 4]);
}

#[test]
fn an_orphan_that_changes_is_released_at_its_new_revision_at_once() {
    let mut probe = started(&[], &[pod("a", "j", 5)]);
    let first = probe.out.requests[0].id;
    assert_eq!(probe.asks(), ["patch pods ns/a"]);
    // The Jobs are known up to revision 10 only. The Pod still belongs to a Job that was gone before.
    probe.sees(Kind::POD, pod("a", "j", 20));
    assert_eq!(probe.asks(), ["patch pods ns/a"]);
    assert_eq!(probe.body(0)["metadata"]["resourceVersion"], "20");
    late(&mut probe, first, refused(503, "ServiceUnavailable"));
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), None), "the newer release is in flight");
    probe.answer(0, refused(503, "ServiceUnavailable"));
    assert_eq!(probe.wakes_in(), Some(1000));
}

#[test]
fn an_orphan_that_another_job_owns_by_now_is_not_released() {
    let mut probe = one_orphan();
    probe.sees(Kind::JOB, at(11, job("k")));
    probe.asks();
    probe.sees(Kind::POD, pod("a", "k", 20));
    assert_eq!(probe.controller.sizes()[1..3], [1, 0]);
}

#[test]
fn an_orphan_whose_release_conflicts_is_read() {
    for (how, reply, lines, left, wake) in [
        ("changed", done(pod("a", "j", 20)), &["patch pods ns/a"][..], 1, None),
        ("gone", refused(404, "NotFound"), &[], 0, None),
        ("replaced", done(with(pod("a", "j", 20), "metadata/uid", "other")), &[], 0, None),
        ("read from an old copy", done(pod("a", "j", 5)), &[], 1, Some(1000)),
        ("not readable", refused(503, "ServiceUnavailable"), &[], 1, Some(1000)),
    ] {
        let mut probe = one_orphan();
        probe.answer(0, refused(409, "Conflict"));
        assert_eq!(probe.asks(), ["get pods ns/a"]);
        probe.answer(0, reply);
        assert_eq!(probe.asks(), lines, "{how}");
        assert_eq!((unclaimed(&probe), probe.wakes_in()), (left, wake), "{how}");
        if !lines.is_empty() {
            assert_eq!(probe.body(0)["metadata"]["resourceVersion"], "20");
        }
    }
}

/// S16.
#[test]
fn at_most_a_hundred_orphans_are_released_at_a_time() {
    for orphans in [99, 100, 101] {
        let pods: Vec<Value> = (0..orphans).map(|nth| pod(&format!("p{nth:03}"), "j", 2)).collect();
        let mut probe = started(&[], &pods);
        assert_eq!(probe.asks().len(), orphans.min(100));
        assert_eq!(probe.wakes_in(), None, "a response allows the next one");
        probe.answer(0, done(at(12, released(pods[0].clone()))));
        assert_eq!(probe.asks(), if orphans > 100 { vec!["patch pods ns/p100"] } else { vec![] });
    }
}

// ---- unclaimed Pods ----

#[test]
fn an_unclaimed_pod_that_a_newer_list_lacks_is_gone() {
    let idle = |name: &str, revision: u64| labelled(loose(released(pod(name, "j", revision))), "none");
    let mut probe = started(&[], &[idle("a", 2), idle("b", 3)]);
    assert_eq!(unclaimed(&probe), 2);
    probe.lists(Kind::POD, &[idle("a", 2), idle("b", 3)], 11);
    assert_eq!(unclaimed(&probe), 2);
    probe.lists(Kind::POD, &[idle("a", 2)], 12);
    assert_eq!(unclaimed(&probe), 1);
    probe.sees(Kind::POD, idle("c", 20));
    probe.lists(Kind::POD, &[idle("a", 2)], 19);
    assert_eq!(unclaimed(&probe), 2, "the list is older than the third Pod");
}

/// They would be looked at once for every status write and every new Job of their namespace.
#[test]
fn pods_without_a_controller_cost_nothing_when_others_change() {
    let ended = (0..50).map(|nth| labelled(loose(released(pod_in("Succeeded", &format!("e{nth}"), "j", 2))), "none"));
    let running = (0..50).map(|nth| labelled(loose(released(pod(&format!("r{nth}"), "j", 2))), "none"));
    let mut pods: Vec<Value> = ended.chain(running).collect();
    pods.extend([pod("a", "j", 2), pod("b", "j", 3)]);
    let mut probe = started(&[job("j")], &pods);
    let decided = probe.controller.unclaimed.decisions;
    assert!(decided >= 100, "{decided}");
    probe.sees(Kind::POD, pod_in("Succeeded", "a", "j", 12));
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
    let written = written(&probe, 0, job("j"), 13);
    probe.answer(0, done(written));
    for (nth, revision) in (0..10).map(|nth| (nth, 20 + nth)) {
        probe.sees(Kind::JOB, at(revision, job(&format!("k{nth}"))));
    }
    assert_eq!(probe.controller.unclaimed.decisions, decided, "none of them has changed");
    // One that a Job selects is found.
    probe.sees(Kind::POD, labelled(loose(released(pod("r7", "j", 40))), "x"));
    probe.sees(Kind::JOB, at(41, selects(job("m"), "x")));
    assert!(probe.asks().contains(&"get jobs ns/m".to_owned()));
}

/// They would be compared with every Job of their namespace, at each of their events.
#[test]
fn a_pod_without_a_controller_is_compared_with_the_jobs_that_may_select_it() {
    let own = (0..50).map(|nth| job(&format!("k{nth}")));
    let expression =
        with(job("e"), "spec/selector", json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}));
    let away = with(selects(job("far"), "x"), "metadata/namespace", "other");
    let jobs: Vec<Value> = own.chain([selects(job("m"), "x"), expression, away]).collect();
    let mut probe = started(&jobs, &[]);
    let compared = |probe: &Probe<JobController>, labels: Value| -> Vec<String> {
        let pod = with(loose(pod("a", "k0", 5)), "metadata/labels", labels);
        let pod = PodView::from_json(pod.to_string().as_bytes()).unwrap();
        let jobs = probe.controller.jobs.may_select(&pod);
        jobs.map(|(_, record)| record.view.name.to_string()).collect()
    };
    assert_eq!(compared(&probe, json!({"app": "none"})), ["m", "e"]);
    assert_eq!(compared(&probe, json!({UID_LABEL: "uid-k7"})), ["k7", "m", "e"]);
    assert_eq!(compared(&probe, json!({"controller-uid": "uid-k8", UID_LABEL: "uid-k7"})), ["k7", "k8", "m", "e"]);
    assert_eq!(compared(&probe, json!({UID_LABEL: "uid-far"})), ["m", "e"]);
    probe.gone(Kind::JOB, at(20, selects(job("m"), "x")));
    assert_eq!(compared(&probe, json!({"app": "x"})), ["e"]);
}

/// Whoever has recorded a Pod is found by the UID of the Pod, as long as it is recorded and no longer.
#[test]
fn the_job_that_has_recorded_a_pod_is_known_by_the_pod() {
    let mut probe = started(&[job("j"), job("k")], &[pod("a", "j", 2), pod("b", "j", 3)]);
    let known = |probe: &Probe<JobController>| {
        let pods = ["a", "b"].map(PodUid::new);
        pods.map(|uid| probe.controller.recorded_by(&uid, "ns").count())
    };
    probe.sees(Kind::POD, pod_in("Succeeded", "a", "j", 12));
    assert_eq!(probe.asks(), ["create pods ns/", "merge jobs ns/j/status"]);
    assert_eq!((known(&probe), probe.controller.recording.len()), ([0, 0], 1));
    let recorded = written(&probe, 1, job("j"), 13);
    probe.answer(1, done(recorded.clone()));
    assert_eq!((known(&probe), probe.controller.recording.len()), ([1, 0], 0));
    // Another writer has replaced the list.
    let uncounted = "status/uncountedTerminatedPods";
    probe.sees(Kind::JOB, at(14, with(recorded.clone(), uncounted, json!({"failed": ["b"]}))));
    assert_eq!(known(&probe), [0, 1]);
    probe.sees(Kind::JOB, at(15, with(recorded.clone(), uncounted, json!({"failed": ["b"], "succeeded": ["a"]}))));
    assert_eq!(known(&probe), [1, 1]);
    probe.gone(Kind::JOB, at(16, recorded));
    assert_eq!((known(&probe), probe.controller.recorded.len()), ([0, 0], 0));
}

#[test]
fn a_pod_that_gets_an_owner_moves_into_its_jobs_ledger() {
    let mut probe = started(&[job("j")], &[pod("b", "j", 3), labelled(loose(released(pod("a", "j", 5))), "none")]);
    assert_eq!(probe.controller.sizes()[..3], [1, 1, 1]);
    probe.sees(Kind::POD, pod("a", "j", 15));
    assert_eq!(probe.controller.sizes()[..3], [1, 2, 0]);
    probe.sees(Kind::POD, labelled(loose(released(pod("a", "j", 14))), "none"));
    assert_eq!(probe.controller.sizes()[..3], [1, 2, 0], "an older event changes nothing");
}

#[test]
fn a_pod_that_is_gone_leaves_the_ledger() {
    let mut probe = two_running();
    assert_eq!(pods_in_ledgers(&probe), 2);
    probe.gone(Kind::POD, pod("a", "j", 11));
    assert_eq!(pods_in_ledgers(&probe), 1);
    // Another writer has removed the finalizer, and may have counted the Pod.
    assert_eq!(probe.asks(), ["merge jobs ns/j/status", "get jobs ns/j"]);
    assert_eq!(probe.body(0)["status"]["active"], 1);
}

// ---- Pods that change their Job ----

/// OWN-3.
#[test]
fn a_pod_that_its_job_no_longer_selects_is_disowned() {
    let mut probe = two_running();
    probe.sees(Kind::POD, labelled(pod("a", "j", 12), "other"));
    let asked = probe.asks();
    assert_eq!(asked[0], "patch pods ns/a");
    let metadata = &probe.body(0)["metadata"];
    assert_eq!((&metadata["uid"], &metadata["resourceVersion"]), (&json!("a"), &json!("12")));
    assert_eq!(metadata["ownerReferences"], json!([{"$patch": "delete", "uid": "uid-j"}]));
    assert_eq!(probe.controller.sizes()[..3], [1, 1, 1]);
}

#[test]
fn a_pod_that_cannot_be_disowned_is_disowned_later_and_forgotten_if_it_is_gone() {
    let mut probe = two_running();
    probe.sees(Kind::POD, labelled(pod("a", "j", 12), "other"));
    assert_eq!(probe.asks()[0], "patch pods ns/a");
    probe.answer(0, refused(503, "ServiceUnavailable"));
    assert_eq!(unclaimed(&probe), 1);
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(1000)));
    probe.passes(1000);
    let again = probe.asks();
    assert_eq!(again[0], "patch pods ns/a");
    probe.answer(0, refused(404, "NotFound"));
    assert_eq!(unclaimed(&probe), 0);
    probe.passes(1000);
    assert!(!probe.asks().contains(&"patch pods ns/a".to_owned()));
}

#[test]
fn a_disowned_pod_may_be_adopted_even_if_the_stream_is_past_the_response() {
    let adopter = selects(small_job("k"), "x");
    let mut probe = started(&[job("j"), adopter.clone()], &[pod("a", "j", 2), pod("b", "j", 3)]);
    probe.asks();
    let changed = labelled(pod("a", "j", 12), "x");
    probe.sees(Kind::POD, changed.clone());
    assert_eq!(probe.asks()[0], "patch pods ns/a");
    bookmark(&mut probe, Kind::POD, 30);
    bookmark(&mut probe, Kind::JOB, 30);
    probe.answer(0, done(at(13, loose(released(changed)))));
    assert!(probe.asks().contains(&"get jobs ns/k".to_owned()));
}

/// OWN-4.
#[test]
fn a_pod_without_owner_is_adopted_by_the_job_that_selects_it() {
    let pod = labelled(loose(released(pod("a", "j", 2))), "x");
    let job = selects(small_job("j"), "x");
    // Either the Pod or the Job is observed first.
    let mut job_first = started(&[job.clone()], &[pod.clone()]);
    let mut pod_first = started(&[], &[pod.clone()]);
    pod_first.sees(Kind::JOB, at(11, job.clone()));
    bookmark(&mut pod_first, Kind::POD, 11);
    for probe in [&mut job_first, &mut pod_first] {
        assert_eq!(probe.asks(), ["get jobs ns/j"], "no Pod is created in its place");
        probe.answer(0, done(job.clone()));
        assert_eq!(probe.asks(), ["patch pods ns/a"]);
        let metadata = &probe.body(0)["metadata"];
        assert_eq!((&metadata["uid"], &metadata["resourceVersion"]), (&json!("a"), &json!("2")));
        assert_eq!(metadata["ownerReferences"][0]["uid"], "uid-j");
        assert_eq!(metadata["finalizers"], json!([TRACKING_FINALIZER]));
        let adopted = owned(with(at(12, pod.clone()), "metadata/finalizers", json!([TRACKING_FINALIZER])), "j");
        probe.answer(0, done(adopted));
        assert_eq!(probe.controller.sizes()[..3], [1, 1, 0]);
        assert_eq!(probe.asks(), ["merge jobs ns/j/status"], "the Job continues");
        assert_eq!(probe.body(0)["status"]["active"], 1);
    }
}

#[test]
fn pods_that_may_have_been_counted_or_do_not_match_are_not_adopted() {
    let in_phase = |phase: &str| labelled(loose(pod_in(phase, "a", "j", 2)), "x");
    let index = json!({"batch.kubernetes.io/job-completion-index": "0"});
    let job = || selects(small_job("j"), "x");
    for (job, pod, adopted) in [
        (job(), in_phase("Running"), true),
        (job(), released(in_phase("Running")), true),
        (job(), in_phase("Failed"), true),
        (job(), in_phase("Succeeded"), true),
        (job(), with(in_phase("Running"), "metadata/annotations", index.clone()), true),
        (job(), with(in_phase("Failed"), "metadata/annotations", index.clone()), false),
        (job(), with(in_phase("Succeeded"), "metadata/annotations", index), false),
        (job(), released(in_phase("Failed")), false),
        (job(), deleted(in_phase("Running")), false),
        (job(), labelled(in_phase("Running"), "y"), false),
        (job(), labelled(released(in_phase("Running")), "y"), false),
        (deleted(job()), in_phase("Running"), false),
        (finished(job()), in_phase("Running"), false),
    ] {
        for job_first in [true, false] {
            let mut probe =
                if job_first { started(&[job.clone()], &[pod.clone()]) } else { started(&[], &[pod.clone()]) };
            if !job_first {
                probe.sees(Kind::JOB, at(11, job.clone()));
            }
            let asked = probe.asks();
            let reads = asked.iter().any(|line| line == "get jobs ns/j");
            assert_eq!(reads, adopted, "the Job first: {job_first}; {job}; {pod}; {asked:?}");
        }
    }
}

/// A Pod that one Job counts must not be counted by another.
#[test]
fn a_pod_that_is_being_recorded_is_released_for_that_job_and_not_adopted_by_another() {
    let recording = with(job("j"), "spec/parallelism", 1);
    let labels = json!({"app": "x", UID_LABEL: "uid-j"});
    let failed = with(pod_in("Failed", "a", "j", 2), "metadata/labels", labels);
    let other = with(selects(small_job("k"), "x"), "status/active", 1);
    let pods = [failed.clone(), pod("b", "j", 3), labelled(pod("c", "k", 4), "x")];
    let mut probe = started(&[recording.clone(), other], &pods);
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
    bookmark(&mut probe, Kind::JOB, 20);
    probe.sees(Kind::POD, at(15, loose(failed)));
    assert_eq!(probe.asks(), NOTHING);
    probe.answer(0, done(written(&probe, 0, recording, 21)));
    assert_eq!(probe.asks(), ["patch pods ns/a"]);
    let metadata = &probe.body(0)["metadata"];
    assert_eq!(metadata["resourceVersion"], "15");
    assert_eq!(metadata.get("ownerReferences"), None, "released, not adopted");
}

#[test]
fn a_response_that_the_stream_has_shown_before_does_not_repeat_a_refused_adoption() {
    let pod = labelled(loose(pod("a", "j", 5)), "x");
    let mut probe = started(&[], &[pod.clone()]);
    let release = probe.out.requests[0].id;
    assert_eq!(probe.asks(), ["patch pods ns/a"]);
    let pod = at(12, released(pod));
    probe.sees(Kind::POD, pod.clone());
    bookmark(&mut probe, Kind::JOB, 20);
    let job = at(21, selects(small_job("j"), "x"));
    probe.sees(Kind::JOB, job.clone());
    assert_eq!(probe.asks(), ["get jobs ns/j"]);
    probe.answer(0, done(job));
    assert_eq!(probe.asks(), ["patch pods ns/a"]);
    probe.answer(0, refused(403, "Forbidden"));
    late(&mut probe, release, done(pod));
    bookmark(&mut probe, Kind::JOB, 22);
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(1000)));
    probe.passes(1000);
    assert_eq!(probe.asks(), ["get jobs ns/j"]);
}

// ---- Pods that change their owner ----

/// The Pod may have been adopted by the Job of another manager since.
#[test]
fn a_deletion_is_conditional_on_the_pod_as_it_was_observed() {
    let failing = json!([{"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded"}]);
    let job = with(job("j"), "status/conditions", failing);
    let mut probe = started(&[job], &[pod("a", "j", 2), pod("b", "j", 3)]);
    let deletions: Vec<RequestId> = probe.out.requests.iter().map(|request| request.id).collect();
    assert_eq!(probe.asks(), ["delete pods ns/a", "delete pods ns/b"]);
    for (nth, revision) in [(0, "2"), (1, "3")] {
        assert_eq!(probe.body(nth)["preconditions"]["resourceVersion"], revision);
    }
    // The change has been observed before the response: decided again at once.
    probe.sees(Kind::POD, pod("a", "j", 12));
    assert_eq!(probe.asks(), NOTHING);
    late(&mut probe, deletions[0], refused(409, "Conflict"));
    assert_eq!(probe.asks(), ["delete pods ns/a"]);
    assert_eq!(probe.body(0)["preconditions"]["resourceVersion"], "12");
    // The response is first: decided again when the change is observed.
    late(&mut probe, deletions[1], refused(409, "Conflict"));
    assert_eq!(probe.asks(), NOTHING);
    probe.sees(Kind::POD, loose(pod("b", "j", 13)));
    bookmark(&mut probe, Kind::JOB, 13);
    assert!(!probe.asks().iter().any(|line| line == "delete pods ns/b"));
}

#[test]
fn a_removal_deletes_the_pod_as_its_release_left_it() {
    let job = with(with(job("j"), "spec/parallelism", 0), "status/active", 1);
    let mut probe = started(&[job], &[pod("a", "j", 2)]);
    assert_eq!(probe.asks(), ["patch pods ns/a"]);
    probe.answer(0, done(at(12, released(pod("a", "j", 2)))));
    assert_eq!(probe.asks(), ["delete pods ns/a"]);
    assert_eq!(probe.body(0)["preconditions"], json!({"uid": "a", "resourceVersion": "12"}));
}

/// A Job has recorded a Pod that another controller's Job adopts and releases.
#[test]
fn a_recorded_pod_is_tallied_once_another_manager_has_released_it() {
    for manager in [None, Some("example.com/other")] {
        let recorded = with(small_job("j"), "status/uncountedTerminatedPods", json!({"failed": ["a"]}));
        let (mine, probe) = match manager {
            None => (recorded, controller()),
            Some(manager) => (managed(recorded, manager), controller_of(manager)),
        };
        let others = managed(selects(job("k"), "x"), MANAGER);
        let failed = labelled(pod_in("Failed", "a", "j", 2), "x");
        let taken = at(12, owned(failed.clone(), "k"));
        let mut probe = listed(probe, &[mine, others], &[owned(failed, "k")]);
        probe.sees(Kind::POD, taken.clone());
        let tallies = |probe: &mut Probe<JobController>| {
            let asked = probe.asks();
            let writes = (0..asked.len()).filter(|nth| asked[*nth] == "merge jobs ns/j/status");
            writes.filter(|nth| probe.body(*nth)["status"]["failed"] == 1).count()
        };
        assert_eq!(tallies(&mut probe), 0, "{manager:?}: it still carries the finalizer");
        probe.sees(Kind::POD, at(13, released(taken)));
        assert_eq!(tallies(&mut probe), 1, "{manager:?}");
    }
}

/// A Job has recorded a Pod that lost its owner and is released as an orphan. A list shows that it is gone before the
/// response to the release does.
#[test]
fn a_recorded_orphan_is_tallied_once_its_release_finds_it_gone() {
    let recorded = with(small_job("j"), "status/uncountedTerminatedPods", json!({"failed": ["a"]}));
    let mut probe = started(&[recorded], &[loose(pod_in("Failed", "a", "j", 2))]);
    let release = probe.out.requests.iter().find(|request| request.call.kind == Kind::POD).unwrap().id;
    assert!(probe.asks().contains(&"patch pods ns/a".to_owned()));
    probe.lists(Kind::POD, &[], 12);
    probe.asks();
    late(&mut probe, release, refused(404, "NotFound"));
    assert!(probe.asks().contains(&"merge jobs ns/j/status".to_owned()));
}

/// A response has shown that the Pod lost its owner before the stream shows that it had one.
#[test]
fn a_pod_that_was_read_without_its_owner_does_not_come_back_as_it_was() {
    let mut probe = started(&[small_job("j")], &[]);
    assert_eq!(probe.asks(), ["create pods ns/"]);
    let name = probe.body(0)["metadata"]["name"].as_str().unwrap().to_owned();
    probe.answer(0, refused(409, "AlreadyExists"));
    assert_eq!(probe.asks(), [format!("get pods ns/{name}")]);
    let before = with(pod("a", "j", 12), "metadata/name", name.as_str());
    probe.answer(0, done(at(15, labelled(loose(before.clone()), "other"))));
    probe.asks();
    probe.sees(Kind::POD, before);
    assert_eq!(pods_in_ledgers(&probe), 0);
}

/// A response shows that a disowned Pod is gone before the stream shows that it succeeded.
#[test]
fn a_disowned_pod_that_is_gone_does_not_come_back_as_it_was() {
    let mut probe = started(&[job("j")], &[pod("a", "j", 2), pod("b", "j", 3)]);
    assert_eq!(probe.asks(), NOTHING);
    probe.sees(Kind::POD, labelled(pod("a", "j", 14), "other"));
    let disown = probe.out.requests[0].id;
    assert_eq!(probe.asks()[0], "patch pods ns/a");
    late(&mut probe, disown, refused(404, "NotFound"));
    probe.asks();
    // What the stream shows until it shows the deletion is the past.
    for past in [pod_in("Succeeded", "a", "j", 15), pod_in("Succeeded", "a", "j", 16)] {
        probe.sees(Kind::POD, past);
        assert_eq!(pods_in_ledgers(&probe), 1);
    }
    // A list that still contains it is as old; one that does not is the end.
    probe.lists(Kind::POD, &[pod_in("Succeeded", "a", "j", 16), pod("b", "j", 3)], 16);
    assert_eq!(pods_in_ledgers(&probe), 1);
    probe.gone(Kind::POD, pod_in("Succeeded", "a", "j", 17));
    assert_eq!((pods_in_ledgers(&probe), unclaimed(&probe)), (1, 0));
}

// ---- a clock that is set back ----

#[test]
fn a_retry_is_not_delayed_by_a_clock_that_was_ahead() {
    const DAY: i64 = 86_400_000;
    let mut probe = started(&[small_job("j")], &[pod("a", "j", 2)]);
    assert_eq!(probe.asks(), ["merge jobs ns/j/status"]);
    probe.passes(DAY);
    probe.answer(0, refused(409, "Conflict"));
    assert_eq!(probe.asks(), ["get jobs ns/j"]);
    probe.answer(0, Reply::Unknown);
    assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(1000)));
    probe.clock_is_set_back(DAY);
    assert_eq!(probe.wakes_in(), Some(1000));
    probe.passes(1000);
    assert_eq!(probe.asks(), ["get jobs ns/j"]);
}

/// BACKOFF-14, found from outside: no Pod was created for as long as the clock had been ahead.
#[test]
fn a_job_in_back_off_does_not_wait_until_a_clock_that_was_ahead_is_right_again() {
    const HOUR: i64 = 3_600_000;
    let mut probe = started(&[with(small_job("j"), "spec/backoffLimit", json!(6))], &[]);
    assert_eq!(probe.asks(), ["create pods ns/"]);
    probe.passes(HOUR);
    let failed_at = probe.now.to_string();
    let ended = json!([{"name": "c", "state": {"terminated": {"exitCode": 1, "finishedAt": failed_at}}}]);
    let failed = with(with(pod("a", "j", 20), "status/phase", json!("Failed")), "status/containerStatuses", ended);
    probe.answer(0, done(pod("a", "j", 19)));
    probe.sees(Kind::POD, failed);
    probe.clock_is_set_back(HOUR);
    assert!(probe.wakes_in().is_some_and(|millis| millis <= 10_000), "{:?}", probe.wakes_in());
}

// ---- a status that would be refused ----

#[test]
fn a_status_that_breaks_the_rules_is_announced_and_not_sent() {
    let both = json!([
        {"type": "SuccessCriteriaMet", "status": "True", "reason": "SuccessPolicy"},
        {"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded"},
    ]);
    let mut probe = started(&[with(small_job("j"), "status/conditions", both)], &[]);
    assert_eq!(probe.asks(), NOTHING);
    assert_eq!(count(&metrics(&mut probe), &Metric::InvalidStatus), 1);
    let events = probe.events();
    assert!(events.len() == 1 && events[0].starts_with("j InvalidStatus: "), "{events:?}");
    // The Job is planned again though nothing else may happen to it.
    assert_eq!(probe.wakes_in(), Some(60_000));
}

#[test]
fn nothing_is_decided_about_a_pod_without_a_job_while_jobs_are_listed_again() {
    let mut probe = started(&[], &[]);
    probe.input(Input::Init(Kind::JOB));
    probe.sees(Kind::POD, pod("p", "late", 2));
    assert_eq!(probe.asks(), NOTHING);
    probe.sees(Kind::JOB, job("late"));
    probe.input(Input::InitDone(Kind::JOB, Revision(200)));
    assert!(!probe.asks().iter().any(|line| line.starts_with("patch pods")));
    assert_eq!(pods_in_ledgers(&probe), 1);
}

#[test]
fn a_job_that_cannot_be_decoded_shows_how_far_the_stream_is() {
    let mut probe = started(&[], &[]);
    probe.sees(Kind::POD, pod("p", "gone", 500));
    assert_eq!(probe.asks(), NOTHING);
    let unreadable = with(at(500, job("other")), "spec/completions", "many");
    probe.sees(Kind::JOB, unreadable);
    assert_eq!(probe.asks(), ["patch pods ns/p"]);
}

#[test]
fn a_tracked_pod_of_a_job_of_another_manager_is_released_when_that_job_is_gone() {
    let external = with(job("e"), "spec/managedBy", MANAGER);
    let mut probe = controller();
    probe.input(Input::Init(Kind::JOB));
    probe.lists(Kind::POD, &[pod("p", "e", 2), released(pod("q", "e", 3))], 100);
    probe.sees(Kind::JOB, external.clone());
    probe.input(Input::InitDone(Kind::JOB, Revision(100)));
    assert_eq!((probe.asks(), unclaimed(&probe)), (Vec::new(), 1));
    probe.gone(Kind::JOB, at(101, external));
    assert_eq!(probe.asks(), ["patch pods ns/p"]);
}

// ---- Pods of dead nodes ----

/// A Pod whose deletion was requested at 21:59:30, by a Job that waits for a minute, and what is requested about it. The
/// clock of the controller is `ahead` of 22:00, when the Pod is read and the server responds with the time
/// 22:00 + `served` seconds.
fn look_at_terminating(ahead: i64, served: Option<i64>) -> Probe<JobController> {
    let waits = with(job("j"), "metadata/annotations", json!({"tally.dev/replace-terminating-after": "60s"}));
    let waits = with(with(waits, "spec/podReplacementPolicy", "Failed"), "spec/completions", 1);
    let waits = with(with(waits, "spec/parallelism", 1), "status/active", 0);
    let dying = with(deleted(pod("p", "j", 5)), "spec", json!({"nodeName": "n"}));
    let mut probe = controller();
    probe.now = TEN_O_CLOCK;
    let mut probe = listed(probe, &[with(waits, "status/terminating", 1)], &[dying.clone()]);
    assert_eq!(probe.asks(), NOTHING);
    // The look at the Pod is due; then the clock is where it is.
    probe.now = TEN_O_CLOCK + Span::from_seconds(120);
    probe.input(Input::Tick);
    assert_eq!(probe.asks(), ["get pods ns/p"]);
    probe.now = TEN_O_CLOCK + Span::from_seconds(ahead);
    answer_at(&mut probe, done(dying), served);
    probe
}

const TEN_O_CLOCK: Timestamp = Timestamp::from_seconds(1_699_999_200);

fn answer_at(probe: &mut Probe<JobController>, reply: Reply, served: Option<i64>) {
    let served_at = served.map(|seconds| TEN_O_CLOCK + Span::from_seconds(seconds));
    probe.answer_served(0, reply, served_at);
}

/// REPL-8: the Pod is given up only if it has terminated for long enough by both clocks.
#[test]
fn a_terminating_pod_is_judged_by_the_clock_that_is_behind() {
    assert_eq!(TEN_O_CLOCK.to_string(), "2023-11-14T22:00:00Z");
    for (ahead, served, is_due) in [
        (30, Some(30), true),
        (30, None, true),
        (29, Some(29), false),
        (3_600, Some(29), false),
        (29, Some(3_600), false),
        (3_600, Some(30), true),
    ] {
        let mut probe = look_at_terminating(ahead, served);
        let asked = probe.asks();
        assert_eq!(asked.iter().any(|line| line == "get nodes /n"), is_due, "{ahead} {served:?}: {asked:?}");
    }
}

/// REPL-8: the same for the time since when its node has not been ready.
#[test]
fn a_dead_node_is_judged_by_the_clock_that_is_behind() {
    let condition = json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2023-11-14T22:00:00Z"}]);
    let node = json!({"metadata": {"name": "n"}, "status": {"conditions": condition}});
    for (ahead, served, gives_up) in [
        (60, Some(60), true),
        (60, None, true),
        (59, Some(59), false),
        (3_600, Some(59), false),
        (59, Some(3_600), false),
        (3_600, Some(60), true),
    ] {
        let mut probe = look_at_terminating(40, Some(40));
        assert_eq!(probe.asks(), ["get nodes /n"]);
        probe.now = TEN_O_CLOCK + Span::from_seconds(ahead);
        answer_at(&mut probe, done(node.clone()), served);
        let asked = probe.asks();
        let counts = asked == ["merge jobs ns/j/status"];
        assert_eq!(counts, gives_up, "{ahead} {served:?}: {asked:?}");
        if gives_up {
            assert_eq!(probe.body(0)["status"]["uncountedTerminatedPods"]["failed"], json!(["p"]));
        }
    }
}

// ---- bookmarks inside lists ----

/// A Job that the list has not shown yet exists, whatever a bookmark says: its Pods keep their finalizers.
#[test]
fn a_bookmark_inside_a_list_of_jobs_makes_no_orphans() {
    let mut probe = controller();
    probe.lists(Kind::POD, &[pod("p", "j", 5)], 10);
    probe.input(Input::Init(Kind::JOB));
    bookmark(&mut probe, Kind::JOB, 50);
    assert_eq!(probe.asks(), NOTHING);
    // The list breaks off, and the next one is older than that bookmark: the Job of a Pod that was created since is
    // not in it.
    probe.input(Input::Init(Kind::JOB));
    probe.sees(Kind::JOB, job("j"));
    probe.input(Input::InitDone(Kind::JOB, Revision(20)));
    probe.asks();
    probe.sees(Kind::POD, pod("q", "late", 30));
    assert_eq!(probe.asks(), NOTHING, "the stream of Jobs is at 20");
    probe.sees(Kind::JOB, at(31, job("other")));
    assert_eq!(probe.asks().iter().filter(|line| *line == "patch pods ns/q").count(), 1, "its Job is gone");
}

/// The same for Pods: a gate stays closed until the list is complete.
#[test]
fn a_bookmark_inside_a_list_of_pods_opens_no_gate() {
    let mut probe = started(&[job("j")], &[pod("p", "j", 5), pod("q", "j", 6)]);
    assert_eq!(probe.asks(), NOTHING);
    probe.input(Input::Init(Kind::POD));
    bookmark(&mut probe, Kind::POD, 60);
    assert_eq!(probe.controller.pods_at(), Revision(10));
    probe.sees(Kind::POD, pod("p", "j", 5));
    // The list breaks off, and the next one is older than that bookmark.
    probe.lists(Kind::POD, &[pod("p", "j", 5), pod("q", "j", 6)], 20);
    assert_eq!(probe.controller.pods_at(), Revision(20));
}

/// GANG-5, EVENT-15: neither the Job nor its Pods are touched, and that is told once.
#[test]
fn a_job_that_asks_for_gang_scheduling_is_left_alone_and_that_is_told_once() {
    for scheduling in [json!({"policy": {"gang": {"minCount": 2}}}), json!({})] {
        let gang = |job: Value| with(job, "spec/scheduling", scheduling.clone());
        // Another controller had begun: a Pod has ended, another one runs.
        let pods = [pod_in("Succeeded", "a", "old", 2), pod("b", "old", 3)];
        let mut probe = started(&[gang(new_job("new")), gang(job("old"))], &pods);
        assert_eq!(probe.asks(), NOTHING);
        let why = "GangScheduling: The Job asks for gang scheduling (spec.scheduling), which the Job controller of Tally \
                   does not have: it leaves the Job alone.";
        assert_eq!(probe.events(), [format!("new {why}"), format!("old {why}")]);
        let told = metrics(&mut probe);
        assert_eq!(count(&told, &Metric::GangJob { job: "ns/new".into() }), 1);
        assert_eq!(told.iter().filter(|metric| matches!(metric, Metric::ExternalJob { .. })).count(), 0);
        probe.sees(Kind::JOB, with(at(11, gang(job("old"))), "metadata/labels", json!({"a": "b"})));
        probe.passes(3_600_000);
        assert_eq!((probe.asks(), probe.events()), (Vec::<String>::new(), Vec::<String>::new()));
        // When it is gone, its Pods are orphans like those of other managers.
        probe.gone(Kind::JOB, at(12, gang(job("old"))));
        assert_eq!(probe.asks(), ["patch pods ns/a", "patch pods ns/b"]);
    }
    // The Jobs of another manager are its own affair, and an end needs no explanation.
    let other = managed(with(new_job("j"), "spec/scheduling", json!({})), MANAGER);
    let mut probe = started(&[other, with(finished(job("k")), "spec/scheduling", json!({}))], &[]);
    assert_eq!(probe.events(), NOTHING);
    // Without a value the field is not set.
    let mut probe = started(&[with(new_job("j"), "spec/scheduling", Value::Null)], &[]);
    assert_eq!(probe.asks(), ["create pods ns/"]);
}
