//! The fields of a Job and of a Pod that are shown. All other fields are skipped.

use std::collections::BTreeMap;

use serde::Deserialize;
use tally_core::after::{self, AfterState};
use tally_core::indexes::{IndexSet, task_index};
use tally_core::pod::RETRY_INDEXES_ANNOTATION;
use tally_node::output::OutputSource;

use crate::run::parts::FIRST_INDEX;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct JobText {
    pub metadata: Metadata,
    pub spec: JobSpec,
    pub status: JobStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub creation_timestamp: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<Owner>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Owner {
    kind: String,
    uid: String,
    controller: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct JobSpec {
    pub completions: Option<u32>,
    pub parallelism: Option<u32>,
    pub completion_mode: Option<String>,
    pub backoff_limit_per_index: Option<u32>,
    pub suspend: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct JobStatus {
    pub active: u32,
    pub succeeded: u32,
    pub failed: u32,
    pub terminating: Option<u32>,
    pub completed_indexes: Option<String>,
    pub failed_indexes: Option<String>,
    pub conditions: Option<Vec<Condition>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    pub r#type: String,
    pub status: String,
    pub reason: String,
    pub message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodText {
    pub metadata: Metadata,
    pub spec: PodSpec,
    pub status: PodStatus,
}

/// What a Pod requests.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    restart_policy: String,
    containers: Vec<ContainerText>,
    init_containers: Vec<ContainerText>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerText {
    name: String,
    restart_policy: Option<String>,
    resources: Option<Resources>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: Option<BTreeMap<String, String>>,
}

impl PodSpec {
    /// Whether a container may be started again in this Pod.
    pub fn may_restart(&self) -> bool {
        let mut containers = self.containers.iter().chain(&self.init_containers);
        self.restart_policy != "Never" || containers.any(|container| container.restart_policy.is_some())
    }

    /// The name of the first container.
    pub fn container(&self) -> &str {
        self.containers.first().map_or("", |container| &container.name)
    }

    /// The amounts of each resource that its containers request: all of them must be free at the same time.
    pub fn requests(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let requests = self.containers.iter().filter_map(|one| one.resources.as_ref()?.requests.as_ref());
        for (name, amount) in requests.flatten() {
            all.entry(name).or_default().push(amount);
        }
        all
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    pub phase: String,
    pub reason: String,
    pub message: String,
    conditions: Option<Vec<Condition>>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
    container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    pub name: String,
    restart_count: u32,
    state: ContainerState,
    last_state: ContainerState,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<Waiting>,
    running: Option<Running>,
    terminated: Option<Terminated>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Waiting {
    pub reason: String,
    pub message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Running {
    started_at: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct Terminated {
    pub exit_code: i32,
    pub signal: Option<i32>,
    pub reason: String,
    pub message: String,
    pub started_at: Option<String>,
    pub finished_at: Option<String>,
}

/// A run of a container, as the status of its Pod shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerRun<'a> {
    pub container: &'a str,
    /// How often the container was restarted before.
    pub number: u32,
    pub started_at: Option<&'a str>,
    /// How it ended. None: it runs.
    pub ended: Option<&'a Terminated>,
    /// The container has been started again since.
    pub is_previous: bool,
}

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

impl Metadata {
    /// The completion index. In a part of a list, the index in the whole list; of an index that is run again, the one in
    /// the first Job.
    pub fn index(&self) -> Option<u32> {
        let annotations = self.annotations.as_ref()?;
        let first = annotations.get(FIRST_INDEX).and_then(|first| first.parse().ok()).unwrap_or(0_u32);
        first.checked_add(task_index(annotations.get(INDEX)?, self.retried())?)
    }

    /// The indexes of another Job that are run again.
    pub fn retried(&self) -> Option<&str> {
        self.annotations.as_ref()?.get(RETRY_INDEXES_ANNOTATION).map(String::as_str)
    }

    /// A set of indexes as the first Job has them, if this one runs indexes of another Job again.
    pub fn original(&self, indexes: IndexSet) -> IndexSet {
        originals(indexes, self.retried())
    }

    /// The Jobs that this one waits for. None: it waits for none, or no longer.
    pub fn awaits(&self) -> Option<Vec<String>> {
        let annotations = self.annotations.as_ref()?;
        let after = after::parse(annotations.get(after::AFTER)?).ok()?;
        let state = AfterState::read(annotations.get(after::AFTER_STATE).map(String::as_str), &self.uid);
        (!state.resumed).then(|| state.awaited(&after).into_iter().map(str::to_owned).collect())
    }

    /// The UID of the Job that controls this Pod.
    pub fn job(&self) -> Option<&str> {
        let owners = self.owner_references.as_ref()?;
        let mut jobs = owners.iter().filter(|owner| owner.kind == "Job" && owner.controller == Some(true));
        jobs.next().map(|owner| owner.uid.as_str())
    }
}

/// The indexes at these positions of a list of indexes that are run again; without a list, the indexes themselves.
pub fn originals(indexes: IndexSet, retried: Option<&str>) -> IndexSet {
    let Some(retried) = retried else { return indexes };
    let all: Vec<u32> = IndexSet::read_tolerant(retried, u32::MAX).iter().collect();
    indexes.iter().filter_map(|index| all.get(index as usize).copied()).collect()
}

impl JobText {
    /// The indexes that have neither succeeded nor failed, in the numbers of this Job.
    pub fn not_run(&self) -> IndexSet {
        let limit = self.spec.completions.unwrap_or(0);
        let set = |text: &Option<String>| IndexSet::read_tolerant(text.as_deref().unwrap_or_default(), limit);
        let JobStatus { completed_indexes, failed_indexes, .. } = &self.status;
        IndexSet::below(limit).difference(&set(completed_indexes)).difference(&set(failed_indexes))
    }
}

impl PodText {
    /// Whose output its containers print, of the Job with this UID.
    pub fn output_source(&self, job: &str) -> OutputSource {
        OutputSource {
            namespace: self.metadata.namespace.as_str().into(),
            job: job.into(),
            job_name: "".into(),
            pod: self.metadata.name.as_str().into(),
            index: self.metadata.index(),
            several: self.status.has_several(),
        }
    }

    /// Only what identifies the Pod.
    pub fn identity(&self) -> Self {
        Self { metadata: self.metadata.clone(), ..Self::default() }
    }
}

impl ContainerStatus {
    /// The runs that have begun: the last two.
    pub fn runs<'a>(&'a self) -> impl Iterator<Item = ContainerRun<'a>> {
        let Self { name, restart_count, state, last_state } = self;
        let run = |number: u32, ended: Option<&'a Terminated>, is_previous| {
            let started_at = ended.map(|how| &how.started_at).or(state.running.as_ref().map(|it| &it.started_at));
            let started_at = started_at.and_then(|at| at.as_deref());
            ContainerRun { container: name, number, started_at, ended, is_previous }
        };
        // While a container waits for its restart, the count is still that of the run that ended.
        let goes_on = state.waiting.is_none();
        let last = last_state.terminated.as_ref();
        let last = last.map(|how| run(restart_count.saturating_sub(goes_on.into()), Some(how), goes_on));
        last.into_iter().chain(self.has_begun().then(|| run(*restart_count, state.terminated.as_ref(), false)))
    }

    fn has_begun(&self) -> bool {
        self.state.running.is_some() || self.state.terminated.is_some()
    }

    /// The number of the run that waits to begin, and the reason and the message. None: there is no such run.
    pub fn next_run(&self) -> Option<(u32, String)> {
        let restarts = self.restart_count.saturating_add(self.last_state.terminated.is_some().into());
        let words = self.state.waiting.iter().flat_map(|waiting| [waiting.reason.as_str(), &waiting.message]);
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        (!self.has_begun()).then(|| (restarts, words.join(": ")))
    }
}

impl PodStatus {
    pub fn has_ended(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    pub fn has_several(&self) -> bool {
        self.containers().count() > 1
    }

    pub fn containers(&self) -> impl Iterator<Item = &ContainerStatus> {
        self.init_container_statuses.iter().chain(&self.container_statuses).flatten()
    }

    /// The container that failed, and how. The first one, because later failures may be its consequence.
    pub fn culprit(&self) -> Option<(&str, &Terminated)> {
        let mut ended =
            self.containers().filter_map(|status| Some((status.name.as_str(), status.state.terminated.as_ref()?)));
        ended.find(|(_, terminated)| terminated.exit_code != 0)
    }

    /// Containers that failed and that their Pod restarts: the name, the number of the run, counted from 0, and how it
    /// ended.
    pub fn crashes(&self) -> impl Iterator<Item = (&str, u32, &Terminated)> {
        self.containers().filter_map(|status| {
            let how = status.last_state.terminated.as_ref().filter(|how| how.exit_code != 0)?;
            // While a container waits for its restart, the count is still that of the run that ended.
            let number = match status.state.running {
                Some(_) => status.restart_count.checked_sub(1)?,
                None => status.state.waiting.as_ref().map(|_| status.restart_count)?,
            };
            Some((status.name.as_str(), number, how))
        })
    }

    /// The runs that have begun: the last two of each container.
    pub fn runs(&self) -> impl Iterator<Item = ContainerRun<'_>> {
        self.containers().flat_map(ContainerStatus::runs)
    }

    /// Why a container cannot start, if this does not change by itself.
    pub fn stuck(&self) -> Option<&Waiting> {
        let mut waiting = self.containers().filter_map(|status| status.state.waiting.as_ref());
        waiting.find(|waiting| match waiting.reason.as_str() {
            "" | "CrashLoopBackOff" => false,
            // The container is only starting, unless there is a message: about a volume that cannot be mounted, for
            // example.
            "ContainerCreating" | "PodInitializing" => !waiting.message.is_empty(),
            _ => true,
        })
    }

    /// Why the Pod is unschedulable, if it is.
    pub fn unscheduled(&self) -> Option<&str> {
        let refused = |condition: &&Condition| {
            (condition.r#type.as_str(), condition.status.as_str(), condition.reason.as_str())
                == ("PodScheduled", "False", "Unschedulable")
        };
        self.conditions.iter().flatten().find(refused).map(|condition| condition.message.as_str())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_runs_of_a_container_are_those_that_have_begun() {
        let ended = |code: i32| json!({"terminated": {"exitCode": code}});
        let check = |state: Value, last: Value, count: u32, expected: &[(u32, Option<i32>, bool)]| {
            let container = json!({"name": "main", "restartCount": count, "state": state, "lastState": last});
            let status: PodStatus = serde_json::from_value(json!({"containerStatuses": [container]})).unwrap();
            let runs: Vec<_> =
                status.runs().map(|run| (run.number, run.ended.map(|how| how.exit_code), run.is_previous)).collect();
            assert_eq!(runs, expected, "{container}");
        };
        check(json!({"waiting": {"reason": "ContainerCreating"}}), json!({}), 0, &[]);
        check(json!({"running": {}}), json!({}), 0, &[(0, None, false)]);
        check(ended(3), json!({}), 0, &[(0, Some(3), false)]);
        check(json!({"waiting": {"reason": "CrashLoopBackOff"}}), ended(3), 0, &[(0, Some(3), false)]);
        check(json!({"running": {}}), ended(3), 1, &[(0, Some(3), true), (1, None, false)]);
        check(ended(0), ended(3), 2, &[(1, Some(3), true), (2, Some(0), false)]);
    }
}
