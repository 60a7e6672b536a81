//! I26: a controller deletes a finished Pod only if that is asked for, and no later leader needs the Pod.

use tally_core::ids::{JobUid, PodUid};
use tally_core::time::{Span, Timestamp};

use super::Laws;
use super::history::{PodLife, disrupted};
use super::read::{Job, Phase, Pod};
use crate::oracle::Context;

const EARLY: &str = "tally.dev/delete-finished-pods";
const POD_TTL: &str = "tally.dev/ttl-seconds-after-finished";
/// From so many failures on the delay does not grow: older ones are not needed.
const SATURATED: usize = 28;

/// Whether a Job wants this Pod to go once it is counted (TTL-14).
fn goes_early(job: &Job, pod: &Pod) -> bool {
    match job.metadata.annotations.get(EARLY).map(|text| text.as_str()) {
        Some("all") => pod.ended(),
        Some("succeeded") => pod.phase == Phase::Succeeded,
        _ => false,
    }
}

/// When a finished Pod expires by its own TTL (TTL-18).
pub(super) fn expired(pod: &Pod) -> Option<Timestamp> {
    let ttl: i64 = pod.metadata.annotations.get(POD_TTL)?.parse().ok()?;
    Some(pod.finished_at + Span::from_seconds(ttl))
}

impl Laws {
    /// Whether a Job wants some of its Pods to go once they are counted (TTL-14), or a time after their end (TTL-18).
    pub(crate) fn deletes_early(&self, job: &JobUid) -> bool {
        let Some(job) = self.history.jobs.get(job).and_then(|life| life.now()) else { return false };
        let early = job.metadata.annotations.get(EARLY).is_some_and(|text| text == "all" || text == "succeeded");
        early || job.pod_annotation(POD_TTL).is_some_and(|text| text.parse::<u32>().is_ok())
    }

    /// That the Pod is counted is for the oracle to check, which follows every UID.
    pub(super) fn check_deletion(&mut self, uid: &PodUid, context: Context, now: Timestamp) {
        let Some(life) = self.history.pods.get(uid) else { return };
        let [.., before, after] = life.versions.as_slice() else { return };
        let pod = &before.pod;
        if before.gone || pod.deleting() || !pod.ended() || !(after.gone || after.pod.deleting()) {
            return;
        }
        let name = pod.metadata.name.clone();
        let owner = pod.job().and_then(|owner| self.history.jobs.get(owner));
        let asked = owner.is_some_and(|job| job.since(context.jobs_at).any(|job| goes_early(job, pod)));
        // TTL-19: of a Job that runs, only what it asks to go early. One that has finished has no back-off. A user may have
        // changed the Job since the controller has seen it, so that an index counts again.
        let runs = |job: &Job| job.terminal().is_none() && !job.deleting();
        let needs = |job: &Job| context.clocks_sane && runs(job) && self.backoff_needs(job, uid, pod);
        let needed = owner.is_some_and(|job| job.now().is_some() && job.since(context.jobs_at).all(needs));
        let asked = asked || expired(pod).is_some_and(|at| now >= at);
        self.require(asked, "I26", || format!("{name} was deleted after its end, and that was not asked for"));
        self.require(!needed, "I26", || format!("{name} was deleted, and the back-off of its Job depends on it"));
    }

    /// TTL-17: a failure since the last success delays the next Pod, as long as there are not too many of them.
    fn backoff_needs(&self, job: &Job, uid: &PodUid, pod: &Pod) -> bool {
        let valid = |pod: &Pod| !job.indexed() || pod.index.is_some_and(|index| index < job.index_limit());
        if job.limit_per_index().is_some() || !pod.failed(job) || !valid(pod) || disrupted(job, pod) {
            return false;
        }
        let others = || self.history.pods_of(&job.metadata.uid).filter(|(other, _)| *other != uid);
        let succeeded = |life: &PodLife| {
            life.ever().any(|other| other.phase == Phase::Succeeded && other.finished_at >= pod.finished_at)
        };
        let failed =
            |life: &PodLife| life.ever().any(|other| other.failed(job) && other.finished_at >= pod.finished_at);
        !others().any(|(_, life)| succeeded(life)) && others().filter(|(_, life)| failed(life)).count() < SATURATED
    }
}
