//! What really happened: every version of every Job and Pod that ever existed, in the order of the revisions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tally_core::ids::{JobUid, PodUid, Revision};

use super::policy::{Action, action};
use super::read::{Job, Phase, Pod};
use crate::api::Actor;

#[derive(Debug)]
pub(crate) struct PodLife {
    pub(crate) versions: Vec<PodVersion>,
    pub(crate) created_by: Actor,
    /// Which controller removed its finalizer while it ran, and the step in which that was requested.
    pub(crate) removed_by: Option<(Actor, usize)>,
    /// How it was recorded: succeeded or not.
    pub(crate) recorded: Option<bool>,
}

#[derive(Debug)]
pub(crate) struct PodVersion {
    pub(crate) at: Revision,
    pub(crate) pod: Pod,
    pub(crate) gone: bool,
}

impl PodLife {
    /// The current version, if the Pod exists.
    pub(crate) fn now(&self) -> Option<&Pod> {
        self.versions.last().filter(|version| !version.gone).map(|version| &version.pod)
    }

    /// As every controller knows it that has followed the Pods to `at`: it has not changed since.
    pub(crate) fn settled(&self, at: Revision) -> Option<&Pod> {
        self.versions.last().filter(|version| !version.gone && version.at <= at).map(|version| &version.pod)
    }

    /// As it was at `at` and at any time since: a controller that had followed the Pods to `at` knew one of these
    /// versions.
    pub(crate) fn since(&self, at: Revision) -> impl Iterator<Item = &Pod> {
        let first = self.versions.partition_point(|version| version.at <= at).saturating_sub(1);
        self.versions[first..].iter().filter(|version| !version.gone).map(|version| &version.pod)
    }

    /// All versions.
    pub(crate) fn ever(&self) -> impl Iterator<Item = &Pod> {
        self.versions.iter().filter(|version| !version.gone).map(|version| &version.pod)
    }

    pub(crate) fn ever_succeeded(&self) -> bool {
        self.ever().any(|pod| pod.phase == Phase::Succeeded)
    }
}

#[derive(Debug)]
pub(crate) struct JobLife {
    pub(crate) versions: Vec<(Revision, Arc<Job>)>,
    pub(crate) gone: bool,
    /// The revision since which it is decided.
    pub(crate) decided_at: Option<Revision>,
    /// The actors that have received the response that their own write decided the Job, and in which step.
    pub(crate) told: BTreeMap<Actor, usize>,
    /// Pods created after the decision, by the actor that requested them without knowing the decision.
    pub(crate) late: BTreeMap<Actor, BTreeSet<PodUid>>,
    /// Which actor wrote that an index is complete.
    pub(crate) completed_by: BTreeMap<u32, Actor>,
    pub(crate) max_parallelism: i64,
    /// The most indexes it ever had.
    pub(crate) max_limit: u32,
    pub(crate) pods: BTreeSet<PodUid>,
    /// The controller of the order between Jobs has resumed it.
    pub(crate) resumed_in_order: bool,
    /// A user has resumed it.
    pub(crate) freed: bool,
    /// It has waited for itself, by way of other Jobs.
    pub(crate) cycled: bool,
}

impl JobLife {
    pub(crate) fn now(&self) -> Option<&Arc<Job>> {
        self.versions.last().filter(|_| !self.gone).map(|(_, job)| job)
    }

    /// As it was at `at` and at any time since.
    pub(crate) fn since(&self, at: Revision) -> impl Iterator<Item = &Job> {
        let first = self.versions.partition_point(|(since, _)| *since <= at).saturating_sub(1);
        self.versions[first..].iter().map(|(_, job)| &**job)
    }
}

#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) jobs: BTreeMap<JobUid, JobLife>,
    pub(crate) pods: BTreeMap<PodUid, PodLife>,
}

impl History {
    /// Returns the Job as it was before.
    pub(crate) fn add_job(&mut self, at: Revision, job: Arc<Job>, gone: bool) -> Option<Arc<Job>> {
        let life = self.jobs.entry(job.metadata.uid.clone()).or_insert_with(|| JobLife {
            versions: Vec::new(),
            gone: false,
            decided_at: None,
            told: BTreeMap::new(),
            late: BTreeMap::new(),
            completed_by: BTreeMap::new(),
            max_parallelism: 0,
            max_limit: 0,
            pods: BTreeSet::new(),
            resumed_in_order: false,
            freed: false,
            cycled: false,
        });
        let before = life.versions.last().map(|(_, job)| job.clone());
        life.gone |= gone;
        life.max_parallelism = life.max_parallelism.max(job.spec.parallelism);
        life.max_limit = life.max_limit.max(job.index_limit());
        if job.verdict().is_some() {
            life.decided_at.get_or_insert(at);
        }
        life.versions.push((at, job));
        before
    }

    /// `step`: when the write was requested.
    pub(crate) fn add_pod(&mut self, at: Revision, pod: Pod, gone: bool, actor: Actor, step: usize) {
        let uid = pod.metadata.uid.clone();
        if let Some(life) = pod.job().and_then(|job| self.jobs.get_mut(job)) {
            life.pods.insert(uid.clone());
        }
        let life = self.pods.entry(uid).or_insert_with(|| PodLife {
            versions: Vec::new(),
            created_by: actor,
            removed_by: None,
            recorded: None,
        });
        let ran = |before: &Pod| before.tracked() && before.active() && before.job() == pod.job();
        if life.now().is_some_and(ran) && !pod.tracked() && matches!(actor, Actor::Controller { .. }) {
            life.removed_by = Some((actor, step));
        } else if life.now().is_some_and(|before| !before.tracked()) && pod.tracked() {
            // The Pod was adopted.
            life.removed_by = None;
        }
        life.versions.push(PodVersion { at, pod, gone });
    }

    /// Every Pod that ever belonged to this Job.
    pub(crate) fn pods_of(&self, job: &JobUid) -> impl Iterator<Item = (&PodUid, &PodLife)> {
        let uids = self.jobs.get(job).into_iter().flat_map(|life| &life.pods);
        uids.filter_map(|uid| self.pods.get(uid).map(|life| (uid, life)))
    }

    /// This Job's Pods as every controller knows them that has followed the Pods to `at`.
    pub(crate) fn known_to(&self, job: &Job, at: Revision) -> impl Iterator<Item = (&PodUid, &PodLife, &Pod)> {
        self.pods_of(&job.metadata.uid)
            .filter_map(move |(uid, life)| life.settled(at).map(|pod| (uid, life, pod)))
            .filter(|(_, _, pod)| job.claims(pod))
    }
}

/// The action of the failure policy for a failed Pod.
pub(crate) fn judged(job: &Job, pod: &Pod) -> Action {
    job.spec.pod_failure_policy.as_ref().map_or(Action::Count, |policy| action(&policy.rules, pod))
}

/// BACKOFF-13: a failure that does not delay the next Pod.
pub(crate) fn disrupted(job: &Job, pod: &Pod) -> bool {
    let annotated = job.metadata.annotations.keys().any(|name| name.starts_with("tally.dev/backoff-"));
    let target = pod.conditions().any(|found| found == ("DisruptionTarget", "True"));
    annotated && target && judged(job, pod) == Action::Ignore
}

/// The Pod failed while it had to be counted.
pub(crate) fn fails(job: &Job, pod: &Pod) -> bool {
    pod.tracked() && pod.failed(job) && pod.job() == Some(&job.metadata.uid)
}

/// A failure that counts against limits.
pub(crate) fn counts(job: &Job, pod: &Pod) -> bool {
    fails(job, pod) && judged(job, pod) != Action::Ignore
}
