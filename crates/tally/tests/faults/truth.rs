//! The history of every Pod and Job, recorded by two watches of the server, past the proxy, that start before the first
//! Job.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http_body_util::BodyExt;
use serde_json::Value;

use crate::cluster::get;
use crate::support::client::{Api, Call};

const ALL_PODS: &str = "/api/v1/pods";
const ALL_JOBS: &str = "/apis/batch/v1/jobs";
const TRACKING: &str = "batch.kubernetes.io/job-tracking";

#[derive(Clone, Debug, Default)]
pub struct PodStory {
    pub name: String,
    /// UID of the Job that controls it, or controlled it last.
    pub job: String,
    /// Another Job controlled it before.
    pub adopted: bool,
    pub index: Option<u32>,
    /// Earlier failures of its index, as the controller wrote them into it.
    pub failures_before: u32,
    pub phase: String,
    pub deleting: bool,
    /// It was being deleted before it had ended: it may count as a failure, even if it succeeds after all.
    pub deleted_alive: bool,
    pub exit_codes: Vec<i64>,
    pub tracked: bool,
    pub ever_tracked: bool,
    /// It was created behind the gate of Jobs with early deletion (TTL-23).
    pub ever_start_gated: bool,
    pub released: Option<Release>,
    pub gone: bool,
    pub revision: u64,
}

/// The state of a Pod when its finalizer was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    pub at: u64,
    pub phase: String,
    pub deleting: bool,
}

impl PodStory {
    pub fn ended(&self) -> bool {
        is_terminal(&self.phase)
    }

    fn live(&self) -> bool {
        !self.gone && !self.ended()
    }
}

pub fn is_terminal(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

#[derive(Clone, Debug, Default)]
pub struct JobStory {
    pub name: String,
    /// The last observed state.
    pub object: Value,
    pub gone: bool,
    pub criteria_met_at: Option<u64>,
    /// The smallest `completions` since the Job has SuccessCriteriaMet.
    pub enough: Option<u64>,
    pub finished_at: Option<u64>,
    /// The most live Pods at the same time: without those being deleted, and all together.
    pub most_active: usize,
    pub most_alive: usize,
    pub active: usize,
    pub alive: usize,
    pub revision: u64,
    /// Violations: what a status must never do, but did.
    pub wrongs: Vec<String>,
}

impl JobStory {
    pub fn condition(&self, kind: &str) -> bool {
        has_condition(&self.object, kind)
    }

    pub fn finished(&self) -> bool {
        self.finished_at.is_some()
    }
}

fn has_condition(job: &Value, kind: &str) -> bool {
    let conditions = job["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == kind && one["status"] == "True"))
}

/// By UID.
#[derive(Clone, Debug, Default)]
pub struct Told {
    pub pods: BTreeMap<String, PodStory>,
    pub jobs: BTreeMap<String, JobStory>,
}

pub struct Truth {
    told: Arc<Mutex<Told>>,
    watches: Vec<tokio::task::JoinHandle<()>>,
}

impl Truth {
    /// There must be no Jobs yet.
    pub async fn begin(api: &Api) -> Truth {
        let told = Arc::new(Mutex::new(Told::default()));
        let mut watches = Vec::new();
        for path in [ALL_PODS, ALL_JOBS] {
            let list = get(api, path).await;
            assert_eq!(list["items"].as_array().map(Vec::len), Some(0), "{list}");
            let at = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
            watches.push(tokio::spawn(follow(api.clone(), path, at, told.clone())));
        }
        Truth { told, watches }
    }

    pub fn told(&self) -> MutexGuard<'_, Told> {
        for watch in &self.watches {
            assert!(!watch.is_finished(), "the truth is no longer known");
        }
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the watches have shown everything that the server has now.
    pub async fn is_current(&self, api: &Api) -> bool {
        let (pods, jobs) = (get(api, ALL_PODS).await, get(api, ALL_JOBS).await);
        let (pods, jobs) = (revisions(&pods), revisions(&jobs));
        let told = self.told();
        let known: BTreeMap<_, _> =
            told.pods.iter().filter(|(_, pod)| !pod.gone).map(|(uid, pod)| (uid.clone(), pod.revision)).collect();
        let known_jobs: BTreeMap<_, _> =
            told.jobs.iter().filter(|(_, job)| !job.gone).map(|(uid, job)| (uid.clone(), job.revision)).collect();
        known == pods && known_jobs == jobs
    }
}

impl Drop for Truth {
    fn drop(&mut self) {
        self.watches.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

fn revisions(list: &Value) -> BTreeMap<String, u64> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| (text(&item["metadata"]["uid"]), revision(item))).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("a revision")
}

async fn follow(api: Api, path: &'static str, mut at: String, told: Arc<Mutex<Told>>) {
    loop {
        let target = format!("{path}?watch=true&timeoutSeconds=3000&resourceVersion={at}");
        let response = api.connection().open(&Call::get(target)).await.expect("the server is there");
        assert_eq!(response.status().as_u16(), 200);
        let mut body = response.into_body();
        let mut buffer = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).expect("an event");
                let kind = event["type"].as_str().unwrap();
                assert!(matches!(kind, "ADDED" | "MODIFIED" | "DELETED"), "{event}");
                let object = &event["object"];
                at = text(&object["metadata"]["resourceVersion"]);
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                match path {
                    ALL_PODS => told.pod(object, kind == "DELETED"),
                    _ => told.job(object, kind == "DELETED"),
                }
            }
        }
    }
}

impl Told {
    pub fn pods_of<'a>(&'a self, job: &'a str) -> impl Iterator<Item = &'a PodStory> {
        self.pods.values().filter(move |pod| pod.job == job)
    }

    fn pod(&mut self, object: &Value, gone: bool) {
        let metadata = &object["metadata"];
        let pod = self.pods.entry(text(&metadata["uid"])).or_default();
        let (was_live, was_active) = (pod.live() && pod.revision > 0, pod.live() && !pod.deleting && pod.revision > 0);
        let annotation = |name: &str| metadata["annotations"][format!("batch.kubernetes.io/{name}")].as_str();
        let owners = metadata["ownerReferences"].as_array().cloned().unwrap_or_default();
        let owner = owners.iter().find(|owner| owner["controller"] == true).map(|owner| text(&owner["uid"]));
        let before = pod.job.clone();
        if pod.revision == 0 {
            pod.name = text(&metadata["name"]);
            pod.index = annotation("job-completion-index").and_then(|text| text.parse().ok());
            pod.failures_before = annotation("job-index-failure-count").map_or(0, |text| text.parse().unwrap());
        }
        if let Some(owner) = owner.filter(|owner| *owner != pod.job) {
            pod.adopted = pod.revision > 0;
            // A release by its former Job does not count here.
            pod.released = None;
            pod.job = owner;
        }
        pod.revision = revision(object);
        pod.gone = gone;
        pod.phase = text(&object["status"]["phase"]);
        pod.deleting = metadata["deletionTimestamp"].is_string();
        pod.deleted_alive |= pod.deleting && !pod.ended();
        let statuses = object["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
        pod.exit_codes =
            statuses.iter().filter_map(|status| status["state"]["terminated"]["exitCode"].as_i64()).collect();
        let finalizers = metadata["finalizers"].as_array().cloned().unwrap_or_default();
        let tracked = !gone && finalizers.iter().any(|finalizer| finalizer == TRACKING);
        if pod.tracked && !tracked {
            let (phase, deleting) = (pod.phase.clone(), pod.deleting);
            pod.released = Some(Release { at: pod.revision, phase, deleting });
        }
        pod.tracked = tracked;
        pod.ever_tracked |= tracked;
        let gates = object["spec"]["schedulingGates"].as_array();
        pod.ever_start_gated |=
            gates.is_some_and(|all| all.iter().any(|gate| gate["name"] == "tally.dev/counted-once"));
        let (live, active) = (pod.live(), pod.live() && !pod.deleting);
        let job = pod.job.clone();
        if !before.is_empty() {
            let job = self.jobs.entry(before).or_default();
            job.alive -= usize::from(was_live);
            job.active -= usize::from(was_active);
        }
        if !job.is_empty() {
            let job = self.jobs.entry(job).or_default();
            job.alive += usize::from(live);
            job.active += usize::from(active);
            job.most_alive = job.most_alive.max(job.alive);
            job.most_active = job.most_active.max(job.active);
        }
    }

    fn job(&mut self, object: &Value, gone: bool) {
        let job = self.jobs.entry(text(&object["metadata"]["uid"])).or_default();
        job.name = text(&object["metadata"]["name"]);
        let at = revision(object);
        let count = |job: &Value, field: &str| job["status"][field].as_i64().unwrap_or(0);
        if count(&job.object, "failed") > count(object, "failed") {
            job.wrongs.push(format!("failed fell from {} at {at}: {}", count(&job.object, "failed"), object["status"]));
        }
        let elastic = object["spec"]["completionMode"] == "Indexed";
        if !elastic && count(&job.object, "succeeded") > count(object, "succeeded") {
            let before = count(&job.object, "succeeded");
            job.wrongs.push(format!("succeeded fell from {before} at {at}: {}", object["status"]));
        }
        if job.finished() && job.object["status"] != object["status"] {
            job.wrongs.push(format!("{} became {} after the finish", job.object["status"], object["status"]));
        }
        let finished = has_condition(object, "Complete") || has_condition(object, "Failed");
        if finished {
            job.finished_at.get_or_insert(at);
        }
        if has_condition(object, "SuccessCriteriaMet") {
            job.criteria_met_at.get_or_insert(at);
            let completions = object["spec"]["completions"].as_u64();
            job.enough = if job.enough.is_none() { completions } else { job.enough.min(completions) };
        }
        job.object = object.clone();
        job.gone = gone;
        job.revision = at;
    }
}
