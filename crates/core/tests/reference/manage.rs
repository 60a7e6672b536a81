//! MANAGE: which Pods are removed, and which are created.

use std::collections::BTreeSet;

use compact_str::CompactString;
use tally_core::accounting::Outcome;
use tally_core::blueprint::NewPod;
use tally_core::ids::CompletionIndex;
use tally_core::names::{ATTEMPTS, PodNames};
use tally_core::pod::PodView;
use tally_core::time::Timestamp;

use super::{Expected, Facts, Look, delay, earliest, endings, removal_order};

impl<'a> Look<'a> {
    pub(super) fn manage(&self, plan: &mut Expected) {
        let Facts { job, now, limits, .. } = self.facts;
        let spec = &job.spec;
        let active = self.count(|pod| self.active(pod));
        let parallelism = i64::from(spec.parallelism.max(0));
        let wanted = match spec.completions {
            _ if spec.suspend => 0, // SUSP-2
            None if self.succeeded() > 0 => active - self.count(|pod| self.active(pod) && pod.start_gated),
            None => parallelism,
            Some(completions) => (i64::from(completions) - self.succeeded()).clamp(0, parallelism),
        };
        plan.forced = self.victims(0).into_iter().map(|pod| pod.uid.clone()).collect();
        let victims = self.victims((active - wanted).max(0) as usize);
        if !victims.is_empty() {
            // Pods that cannot be judged yet do not delay the others.
            let (judged, unjudged): (Vec<_>, Vec<_>) = victims.into_iter().partition(|pod| self.may_judge(pod));
            plan.must_reread_job = !unjudged.is_empty();
            plan.victims = judged.len() + unjudged.len();
            plan.going = judged.iter().map(|pod| pod.uid.clone()).collect();
            plan.removals = judged.into_iter().take(limits.batch).map(|pod| pod.uid.clone()).collect();
            return; // MANAGE-3: no creation beside a deletion.
        }
        let occupied = if self.failed_only() { self.count(|pod| self.terminating(pod)) } else { 0 };
        let unknown = &self.facts.unknown;
        if self.facts.job.halts_soon && self.failed_too_many() && !spec.suspend {
            plan.must_list_pods |= !unknown.is_empty(); // BLPI-11
            return;
        }
        let missing = wanted - active - occupied - unknown.len() as i64;
        if spec.suspend || (missing <= 0 && unknown.is_empty()) {
            return; // SUSP-3, MANAGE-4
        }
        if self.index_budget().is_none()
            && let Some(retry_at) = self.retry_at().filter(|at| at > now)
        {
            earliest(&mut plan.wake_at, retry_at); // MANAGE-5
            return;
        }
        // S05, I25: a creation of unknown outcome is repeated only while its Pod is wanted.
        let unwanted = |index| !self.wants(index) || self.backs_off_until(index).is_some();
        if missing < 0 || unknown.iter().any(|creation| creation.index.is_some_and(unwanted)) {
            plan.must_list_pods = true;
            return;
        }
        for creation in unknown {
            if creation.retry_at <= *now {
                plan.creations.push(self.new_pod(creation.name.clone(), creation.index));
            } else {
                earliest(&mut plan.wake_at, creation.retry_at);
            }
        }
        if missing <= 0 || !plan.creations.is_empty() {
            return; // MANAGE-8: one batch after the other.
        }
        if self.pods().any(|pod| !self.may_judge(pod)) {
            plan.must_reread_job = true; // The Job may have finished since (S04).
            return;
        }
        let room = (missing as usize).min(self.facts.window.saturating_sub(unknown.len())).min(limits.batch);
        if spec.is_indexed() {
            self.create_indexes(room, plan);
        } else {
            self.create_any(room, plan);
        }
    }

    /// RM-1, in the order of removal.
    fn victims(&self, at_least: usize) -> Vec<&'a PodView> {
        let mut rest: Vec<&PodView> = self.pods().filter(|pod| self.active(pod)).collect();
        rest.sort_by_key(|pod| (pod.tracked, !self.facts.unknown_removals.contains(&pod.uid), removal_order(pod)));
        let mut victims = Vec::new();
        if self.facts.job.spec.is_indexed() && !self.facts.job.spec.suspend {
            let all = std::mem::take(&mut rest);
            for (at, pod) in all.iter().enumerate() {
                let outlived = self.index(pod).is_some() && !all[at + 1..].iter().any(|other| other.index == pod.index);
                if outlived { rest.push(*pod) } else { victims.push(*pod) }
            }
        }
        if !self.facts.job.spec.suspend {
            // TTL-24: they will never start.
            let spec = &self.facts.job.spec;
            let no_more = (self.facts.job.halts_soon && self.failed_too_many())
                || (spec.completions.is_none() && self.succeeded() > 0);
            let done = |pod: &PodView| self.index(pod).is_some_and(|index| self.is_done(index));
            let (never, others) =
                rest.into_iter().partition(|pod| pod.start_gated && (no_more || done(pod) || !pod.tracked));
            rest = others;
            victims.extend::<Vec<_>>(never);
        }
        let more = at_least.saturating_sub(victims.len());
        victims.extend(rest.into_iter().take(more));
        victims
    }

    /// TTL-24: a Pod starts beside all others that could succeed, once the Job is known as of all Pods.
    pub(super) fn start(&self, plan: &mut Expected) {
        let Facts { job, jobs_at, pods_at, .. } = self.facts;
        let could = |pod: &PodView| self.active(pod) || (self.failed_only() && self.terminating(pod));
        let has_place = |pod: &PodView| match (job.spec.is_indexed(), job.spec.completions) {
            (true, _) => self.index(pod).is_some_and(|index| {
                !self.is_done(index) && self.count(|other| self.index(other) == Some(index) && could(other)) == 1
            }),
            (false, Some(completions)) => self.succeeded() + self.count(could) <= i64::from(completions),
            (false, None) => true,
        };
        let waiting = self.pods().filter(|pod| self.active(pod) && pod.start_gated && pod.tracked);
        let waiting: BTreeSet<_> = waiting.filter(|pod| has_place(pod)).map(|pod| pod.uid.clone()).collect();
        if job.revision.max(*jobs_at) >= *pods_at {
            plan.starts = waiting;
        } else {
            plan.must_reread_job |= !waiting.is_empty();
        }
    }

    /// Our view of the Job is at least as new as the Pod, so that it may decide about the Pod.
    pub(super) fn may_judge(&self, pod: &PodView) -> bool {
        pod.revision <= self.facts.job.revision.max(self.facts.jobs_at)
    }

    /// BACKOFF-3 over all existing Pods, so that a restart changes nothing (DEFECT-13).
    fn retry_at(&self) -> Option<Timestamp> {
        let (successes, mut failures): (Vec<_>, Vec<_>) =
            endings(self.facts).into_iter().partition(|ending| ending.outcome == Outcome::Succeeded);
        if let Some(success) = successes.iter().map(|ending| ending.at).max() {
            // Within one second, a Pod that was created in that second is the later one.
            failures.retain(|ending| (ending.at, ending.created_at >= success) > (success, false));
        }
        Some(failures.iter().map(|ending| ending.at).max()? + delay(&self.facts.job, None, failures.len()))
    }

    /// A Pod that lost its finalizer and is being deleted was removed on purpose.
    pub(super) fn tells_when_to_retry(&self, pod: &PodView) -> bool {
        let replaced_at_once = self.has_failed(pod) && self.at_once(pod);
        (pod.tracked || !pod.deleting()) && !self.misfit(pod) && !replaced_at_once
    }

    /// BACKOFF-13.
    fn at_once(&self, failed: &PodView) -> bool {
        let disrupted = failed.conditions.iter().any(|found| *found == ("DisruptionTarget".into(), "True".into()));
        self.facts.job.backoff.is_annotated && disrupted && self.ignored(failed)
    }

    /// IDX-4, but an index in back-off is skipped instead of delaying the others (DEFECT-4).
    fn create_indexes(&self, room: usize, plan: &mut Expected) {
        let job = &self.facts.job;
        let names = PodNames::new(&job.uid, &job.name);
        for index in 0..job.spec.index_limit() {
            if !self.wants(index) || self.facts.unknown.iter().any(|creation| creation.index == Some(index)) {
                continue;
            }
            if let Some(retry_at) = self.backs_off_until(index) {
                earliest(&mut plan.wake_at, retry_at); // BLPI-6
                continue;
            }
            if plan.creations.len() == room {
                continue;
            }
            let name = (0..).map(|attempt| names.name(Some(index), attempt)).find(|name| !self.name_taken(name));
            plan.creations.push(self.new_pod(name.unwrap(), Some(index)));
        }
    }

    /// Whether the index has neither a result nor a Pod that may still give one.
    fn wants(&self, index: CompletionIndex) -> bool {
        let occupies = |pod: &PodView| self.active(pod) || (self.failed_only() && self.terminating(pod));
        let occupied = self.pods().any(|pod| self.index(pod) == Some(index) && occupies(pod));
        index < self.facts.job.spec.index_limit() && !self.is_done(index) && !occupied
    }

    /// BLPI-6.
    fn backs_off_until(&self, index: CompletionIndex) -> Option<Timestamp> {
        let kept = self.kept(index).filter(|kept| !self.at_once(kept))?;
        let retry_at =
            self.finished_at(kept) + delay(&self.facts.job, Some(index), self.failures_of_index(kept) as usize);
        (retry_at > self.facts.now).then_some(retry_at)
    }

    /// BLPI-4, CREATE-5.
    fn new_pod(&self, name: CompactString, index: Option<CompletionIndex>) -> NewPod {
        let kept = index.and_then(|index| self.kept(index));
        let counts = kept.map_or((0, 0), |kept| match self.ignored(kept) {
            true => (kept.failure_count, kept.ignored_failure_count.saturating_add(1)),
            false => (kept.failure_count.saturating_add(1), kept.ignored_failure_count),
        });
        let limited = self.index_budget().is_some();
        NewPod {
            name,
            index,
            failure_count: limited.then_some(counts.0),
            ignored_failure_count: if limited { counts.1 } else { 0 },
        }
    }

    /// Names start after all that have been used, so that two leaders with the same view choose the same names: used
    /// are those of existing Pods, and as many more as Pods were counted and no longer exist.
    fn create_any(&self, room: usize, plan: &mut Expected) {
        let Facts { job, .. } = self.facts;
        let names = PodNames::new(&job.uid, &job.name);
        let status = &job.status;
        let ended = i64::from(status.succeeded) + i64::from(status.failed) + status.uncounted().len() as i64;
        let counted = |pod: &PodView| {
            let let_go = !pod.tracked && (pod.phase.is_terminal() || pod.deleting());
            self.recorded(pod) || (let_go && !(self.has_failed(pod) && self.ignored(pod)))
        };
        let gone = (ended - self.pods().filter(|pod| counted(pod)).count() as i64).max(0) % i64::from(ATTEMPTS);
        let unknown = self.facts.unknown.iter().map(|creation| &creation.name);
        let taken = self.pods().map(|pod| &pod.name).chain(unknown);
        let taken: BTreeSet<u32> = taken.filter_map(|name| names.attempt(None, name)).collect();
        let free = (0..).filter(|attempt| !taken.contains(&(attempt % ATTEMPTS)));
        for attempt in free.skip(gone as usize).take(room) {
            plan.creations.push(self.new_pod(names.name(None, attempt), None));
        }
    }

    fn name_taken(&self, name: &str) -> bool {
        self.pods().any(|pod| pod.name == name)
    }
}
