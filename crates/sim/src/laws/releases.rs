//! I24: a running Pod is released only if the Job wanted it gone.

use tally_core::ids::PodUid;

use super::Laws;
use super::history::PodLife;
use super::indexes::read;
use super::read::{Job, Pod};
use crate::api::Actor;
use crate::oracle::Context;

impl Laws {
    /// I24: a controller removes the finalizer of a running Pod only if the Job, as it was when the controller looked
    /// or at any time since, wants the Pod gone: the Job is deleted, finished, suspended, has no such index or another
    /// Pod for it, or has more Pods than it wants; or the Pod has not started, and the Job starts no more (TTL-24). Pods
    /// that the same controller is already removing do not count among these.
    pub(super) fn check_release(&mut self, uid: &PodUid, actor: Actor, context: Context) {
        let Some(life) = self.history.pods.get(uid) else { return };
        let [.., before, after] = life.versions.as_slice() else { return };
        let (pod, owner) = (&before.pod, before.pod.job());
        if !pod.tracked() || !pod.active() || after.pod.tracked() || after.pod.job() != owner {
            return;
        }
        let Some(job) = owner.and_then(|owner| self.history.jobs.get(owner)) else { return };
        if job.gone {
            return;
        }
        let others = || {
            let others = self.history.pods_of(&job.versions[0].1.metadata.uid);
            let earlier =
                |life: &PodLife| life.removed_by.is_some_and(|(by, step)| by == actor && step <= context.step);
            others.filter(move |(other, life)| *other != uid && !earlier(life))
        };
        let succeeded = self.successes(owner);
        let wanted = job.since(context.jobs_at).any(|job| {
            let ran = |pod: &&Pod| pod.active() && job.claims(pod);
            let active: Vec<&Pod> = others().filter_map(|(_, life)| life.since(context.pods_at).find(ran)).collect();
            wants_gone(job, pod, active.len() as i64 + 1, succeeded)
                || (job.indexed() && active.iter().any(|other| other.index == pod.index))
                || (pod.start_gated() && self.starts_no_more(job, pod, succeeded))
        });
        let name = after.pod.metadata.name.clone();
        self.require(wanted, "I24", || format!("{name} ran and was released, and its removal was not wanted"));
    }

    /// TTL-24: it halts, it is a work queue with a success, or the index is done.
    fn starts_no_more(&self, job: &Job, pod: &Pod, succeeded: i64) -> bool {
        let ended = |life: &PodLife| life.ever().any(|other| other.index == pod.index && other.ended());
        let listed = |text: &str| pod.index.is_some_and(|index| read(text, job.index_limit()).contains(&index));
        let done = listed(&job.status.completed_indexes)
            || listed(job.status.failed_indexes.as_deref().unwrap_or_default())
            || self.history.pods_of(&job.metadata.uid).any(|(_, life)| ended(life));
        job.halts() || (job.spec.completions.is_none() && succeeded > 0) || (job.indexed() && done)
    }

    /// How many successes there really were, by index if the Job has indexes.
    fn successes(&self, job: Option<&tally_core::ids::JobUid>) -> i64 {
        let Some(uid) = job else { return 0 };
        let succeeded = self.history.pods_of(uid).filter(|(_, life)| life.ever_succeeded());
        let indexed = self.history.jobs.get(uid).and_then(|life| life.now()).is_some_and(|job| job.indexed());
        if indexed {
            let index = |life: &PodLife| life.ever().find_map(|pod| pod.index);
            let distinct: super::indexes::Indexes = succeeded.filter_map(|(_, life)| index(life)).collect();
            return distinct.len() as i64;
        }
        succeeded.count() as i64
    }
}

/// MANAGE-1 to MANAGE-3, RM-1, DEL-1.
fn wants_gone(job: &Job, pod: &Pod, active: i64, succeeded: i64) -> bool {
    let misfit = job.indexed() && pod.index.is_none_or(|index| index >= job.index_limit());
    let parallelism = job.spec.parallelism.max(0);
    let wanted = match job.spec.completions {
        None => parallelism,
        Some(completions) => (completions - succeeded).clamp(0, parallelism),
    };
    job.deleting() || job.terminal().is_some() || job.spec.suspend || misfit || active > wanted
}
