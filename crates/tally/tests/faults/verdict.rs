//! Compares the status of a Job with the history of its Pods. Pure.
//!
//! A Pod counts by its state when its finalizer was removed: if it had ended or was being deleted, it is a success or a
//! failure. A Pod that was running and was not being deleted was released on purpose (suspension, a smaller
//! `parallelism`) and counts as nothing. If a Pod may correctly count as either of two things, the counters may be
//! either; the number of such Pods is part of the verdict, because it shows how precise the comparison was.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::truth::{JobStory, PodStory, is_terminal};

/// What is known about a Job in addition to its object.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// The largest `parallelism` it ever had.
    pub parallelism: usize,
    /// Maximum number of controllers that may have run at the same time.
    pub instances: usize,
    /// Exit codes its failure policy ignores.
    pub ignores: Vec<i64>,
    /// `completions` was never changed, so its indexes are fixed.
    pub fixed_indexes: bool,
    /// It adopts Pods of another Job.
    pub adopts: bool,
}

/// The result for one Job. The numbers are summed over many Jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub wrongs: Vec<String>,
    pub created: usize,
    pub succeeded: usize,
    pub failed: usize,
    /// Released while they ran.
    pub removed: usize,
    pub ignored: usize,
    /// May count as either of two things.
    pub unsure: usize,
    /// Released after the finish: a controller that had not observed the finish created them.
    pub late: usize,
    /// The most live Pods beyond `parallelism` at the same time.
    pub excess: usize,
    pub adopted: usize,
}

/// What a Pod may count as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    Success,
    Failure,
    SuccessOrFailure,
    FailureOrNothing,
    Nothing,
}

pub fn judge<'a>(job: &JobStory, pods: impl Iterator<Item = &'a PodStory>, terms: &Terms) -> Verdict {
    let mut verdict = Verdict::default();
    let (spec, status) = (&job.object["spec"], &job.object["status"]);
    let indexed = spec["completionMode"] == "Indexed";
    let (mut indexes, mut perhaps) = (BTreeSet::new(), BTreeSet::new());
    let mut hopeless = BTreeSet::new();
    let limit_per_index = spec["backoffLimitPerIndex"].as_u64();
    let (mut successes, mut failures, mut either) = (0..=0, 0..=0, 0);
    let widen = |range: &mut std::ops::RangeInclusive<usize>, least, most| {
        *range = range.start() + least..=range.end() + most;
    };
    for pod in pods {
        verdict.created += usize::from(!pod.adopted);
        verdict.adopted += usize::from(pod.adopted);
        // A Job that has room for all its Pods releases none of them while they run, unless the Pod was being deleted.
        let crowded = job.most_active > terms.parallelism;
        let let_go = pod.released.as_ref().is_some_and(|release| !is_terminal(&release.phase) && !release.deleting);
        if terms.adopts && let_go && !crowded && pod.ended() && !pod.deleted_alive {
            verdict.wrongs.push(format!("{} lost its finalizer while it ran, and was not counted", pod.name));
        }
        if pod.tracked {
            verdict.wrongs.push(format!("{} keeps its finalizer: {}", pod.name, pod.phase));
            continue;
        }
        let counts = worth(job, pod, terms, &mut verdict);
        match counts {
            Counts::Success => widen(&mut successes, 1, 1),
            Counts::Failure => widen(&mut failures, 1, 1),
            Counts::SuccessOrFailure => {
                widen(&mut successes, 0, 1);
                widen(&mut failures, 0, 1);
                either += 1;
            }
            Counts::FailureOrNothing => widen(&mut failures, 0, 1),
            Counts::Nothing => {}
        }
        verdict.unsure += usize::from(matches!(counts, Counts::SuccessOrFailure | Counts::FailureOrNothing));
        match counts {
            Counts::Success => indexes.extend(pod.index),
            Counts::SuccessOrFailure => perhaps.extend(pod.index),
            Counts::Failure if limit_per_index.is_some_and(|limit| u64::from(pod.failures_before) >= limit) => {
                hopeless.extend(pod.index);
            }
            _ => {}
        }
    }
    (verdict.succeeded, verdict.failed) = (*successes.start(), *failures.start());
    let adopted = verdict.adopted;
    let mut require = |holds: bool, wrong: String| {
        if !holds {
            verdict.wrongs.push(wrong);
        }
    };
    let count = |field: &str| status[field].as_u64().unwrap_or(0) as usize;
    let completions = spec["completions"].as_u64().map(|completions| completions as usize);
    let say = |what: &str, truth: String| format!("{what} is {} and should be {truth}: {status}", status[what]);
    if indexed {
        // An index that failed does not complete.
        indexes.retain(|index| !hopeless.contains(index));
        let said = index_set(&status["completedIndexes"]);
        if terms.fixed_indexes {
            let right =
                indexes.is_subset(&said) && said.iter().all(|index| indexes.contains(index) || perhaps.contains(index));
            require(right, say("completedIndexes", format!("{indexes:?}")));
        } else {
            // Indexes out of range were dropped at some time, and perhaps repeated.
            indexes.append(&mut perhaps);
            require(said.is_subset(&indexes), say("completedIndexes", format!("within {indexes:?}")));
        }
        require(count("succeeded") == said.len(), say("succeeded", said.len().to_string()));
        let said = index_set(&status["failedIndexes"]);
        require(said == hopeless, say("failedIndexes", format!("{hopeless:?}")));
    } else {
        require(successes.contains(&count("succeeded")), say("succeeded", format!("{successes:?}")));
        let together = successes.start() + failures.start() + either..=failures.end() + successes.start();
        let said = count("succeeded") + count("failed");
        require(together.contains(&said), format!("{said} Pods are counted and {together:?} should be: {status}"));
    }
    require(failures.contains(&count("failed")), say("failed", format!("{failures:?}")));
    let uncounted = status["uncountedTerminatedPods"].as_object();
    let uncounted =
        uncounted.is_some_and(|lists| lists.values().any(|list| list.as_array().is_none_or(|list| !list.is_empty())));
    require(!uncounted, format!("Pods are recorded and not counted: {status}"));
    if job.finished() {
        for field in ["active", "ready", "terminating"] {
            require(count(field) == 0, format!("{field} after the finish: {status}"));
        }
    }
    if job.condition("Complete") {
        // With a success policy, fewer successes may be enough.
        let enough = job.enough.filter(|_| spec["successPolicy"].is_null()).unwrap_or(1);
        require(count("succeeded") as u64 >= enough, format!("complete without {enough} successes: {status}"));
    }
    // The bound: every running controller may fill `parallelism` once, and no more.
    let waits = spec["podReplacementPolicy"] == "Failed";
    let most = if waits { job.most_alive } else { job.most_active };
    // Pods that existed before the Job come on top: the Job may be observed before they have lost their owner.
    let bound = terms.parallelism * terms.instances + adopted;
    require(most <= bound, format!("{most} Pods were alive at once, with parallelism {}", terms.parallelism));
    verdict.excess = most.saturating_sub(terms.parallelism);
    if let (Some(completions), false) = (completions, indexed) {
        let bound = completions + (terms.instances - 1) * terms.parallelism + adopted;
        let most = successes.end();
        require(*most <= bound, format!("{most} Pods succeeded, and {completions} were wanted"));
    }
    require(verdict.late == 0 || terms.instances > 1, format!("{} Pods were let go after the finish", verdict.late));
    verdict.wrongs.extend(job.wrongs.iter().cloned());
    for wrong in &mut verdict.wrongs {
        *wrong = format!("{}: {wrong}", job.name);
    }
    verdict
}

fn worth(job: &JobStory, pod: &PodStory, terms: &Terms, verdict: &mut Verdict) -> Counts {
    let Some(release) = &pod.released else { return Counts::Nothing };
    if job.finished_at.is_some_and(|finished| release.at > finished) {
        // An adoption whose response was lost may be applied after the finish.
        verdict.late += usize::from(!pod.adopted);
        return Counts::Nothing;
    }
    if release.phase == "Succeeded" {
        return if pod.deleted_alive { Counts::SuccessOrFailure } else { Counts::Success };
    }
    if release.phase != "Failed" && !release.deleting {
        verdict.removed += 1;
        return Counts::Nothing;
    }
    if pod.exit_codes.iter().any(|code| terms.ignores.contains(code)) {
        verdict.ignored += 1;
        return Counts::Nothing;
    }
    // A Job that has met its success criteria need not count the Pods that it ends.
    if release.deleting && job.criteria_met_at.is_some_and(|met| release.at > met) {
        return Counts::FailureOrNothing;
    }
    Counts::Failure
}

/// `0-2,5`.
pub fn index_set(text: &Value) -> BTreeSet<u32> {
    let text = text.as_str().unwrap_or_default();
    let parts = text.split(',').filter(|part| !part.is_empty());
    parts
        .flat_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            first.parse::<u32>().unwrap()..=last.parse().unwrap()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::truth::Release;

    fn pod(name: &str, phase: &str, released_at: u64) -> PodStory {
        PodStory {
            name: name.to_owned(),
            phase: phase.to_owned(),
            ever_tracked: true,
            released: Some(Release { at: released_at, phase: phase.to_owned(), deleting: false }),
            ..PodStory::default()
        }
    }

    fn job(spec: Value, status: Value) -> JobStory {
        let object = json!({"spec": spec, "status": status});
        JobStory { name: "j".to_owned(), object, finished_at: Some(100), most_active: 2, ..JobStory::default() }
    }

    fn wrongs(job: &JobStory, pods: &[PodStory], instances: usize) -> Vec<String> {
        let terms = Terms { parallelism: 2, instances, ignores: vec![143], fixed_indexes: true, adopts: false };
        judge(job, pods.iter(), &terms).wrongs
    }

    #[test]
    fn counters_must_be_those_of_the_pods() {
        let pods = [pod("a", "Succeeded", 1), pod("b", "Succeeded", 2), pod("c", "Failed", 3), pod("d", "Running", 4)];
        for (status, good) in [
            (json!({"succeeded": 2, "failed": 1}), true),
            (json!({"succeeded": 3, "failed": 1}), false),
            (json!({"succeeded": 1, "failed": 1}), false),
            (json!({"succeeded": 2, "failed": 2}), false),
            (json!({"succeeded": 2}), false),
            (json!({"succeeded": 2, "failed": 1, "uncountedTerminatedPods": {}}), true),
            (json!({"succeeded": 2, "failed": 1, "uncountedTerminatedPods": {"failed": ["u"]}}), false),
            (json!({"succeeded": 2, "failed": 1, "active": 1}), false),
        ] {
            let wrongs = wrongs(&job(json!({"completions": 2}), status.clone()), &pods, 1);
            assert_eq!(wrongs.is_empty(), good, "{status}: {wrongs:?}");
        }
    }

    #[test]
    fn what_must_not_happen_is_seen() {
        let spec = json!({"completions": 1});
        let done = job(spec.clone(), json!({"succeeded": 1}));
        let fine = [pod("a", "Succeeded", 1)];
        assert_eq!(wrongs(&done, &fine, 1), [""; 0]);
        let kept = PodStory { tracked: true, released: None, ..pod("b", "Failed", 0) };
        assert_eq!(wrongs(&done, &[fine[0].clone(), kept], 1), ["j: b keeps its finalizer: Failed"]);
        let late = [fine[0].clone(), pod("b", "Succeeded", 101)];
        assert_eq!(wrongs(&done, &late, 1), ["j: 1 Pods were let go after the finish"]);
        assert_eq!(wrongs(&done, &late, 2), [""; 0]);
        let crowded = JobStory { most_active: 3, ..done.clone() };
        assert_eq!(wrongs(&crowded, &fine, 1), ["j: 3 Pods were alive at once, with parallelism 2"]);
        assert_eq!(wrongs(&crowded, &fine, 2), [""; 0]);
        let twice = [fine[0].clone(), pod("b", "Succeeded", 2)];
        let wrong = wrongs(&job(spec, json!({"succeeded": 2})), &twice, 1);
        assert_eq!(wrong, ["j: 2 Pods succeeded, and 1 were wanted"]);
    }

    #[test]
    fn indexes_are_those_of_the_pods() {
        let of =
            |index, phase: &str, before| PodStory { index: Some(index), failures_before: before, ..pod("p", phase, 1) };
        let spec = json!({"completionMode": "Indexed", "completions": 4, "backoffLimitPerIndex": 1});
        let pods =
            [of(0, "Succeeded", 0), of(1, "Failed", 0), of(1, "Failed", 1), of(2, "Failed", 0), of(2, "Succeeded", 1)];
        for (completed, succeeded, failed_indexes, good) in [
            ("0,2", 2, "1", true),
            ("0-2", 3, "1", false),
            ("0", 1, "1", false),
            ("0,2", 2, "", false),
            ("0,2", 2, "1-2", false),
            ("0,2", 1, "1", false),
        ] {
            let status = json!({"completedIndexes": completed, "failedIndexes": failed_indexes, "succeeded": succeeded, "failed": 3});
            let wrongs = wrongs(&job(spec.clone(), status.clone()), &pods, 1);
            assert_eq!(wrongs.is_empty(), good, "{status}: {wrongs:?}");
        }
    }

    #[test]
    fn a_pod_deleted_as_it_succeeds_may_be_either_but_not_both() {
        let torn = PodStory { deleted_alive: true, ..pod("a", "Succeeded", 1) };
        for (status, good) in [
            (json!({"succeeded": 1}), true),
            (json!({"failed": 1}), true),
            (json!({"succeeded": 1, "failed": 1}), false),
            (json!({}), false),
        ] {
            let wrongs = wrongs(&job(json!({"completions": 1}), status.clone()), std::slice::from_ref(&torn), 1);
            assert_eq!(wrongs.is_empty(), good, "{status}: {wrongs:?}");
        }
    }

    #[test]
    fn ignored_failures_count_as_nothing() {
        let ignored = PodStory { exit_codes: vec![143], ..pod("a", "Failed", 1) };
        let pods = [ignored, pod("b", "Succeeded", 2)];
        assert_eq!(wrongs(&job(json!({"completions": 1}), json!({"succeeded": 1})), &pods, 1), [""; 0]);
        assert_ne!(wrongs(&job(json!({"completions": 1}), json!({"succeeded": 1, "failed": 1})), &pods, 1), [""; 0]);
    }

    /// The effect of a release that is applied after the adoption.
    #[test]
    fn an_adopted_pod_that_loses_its_finalizer_while_it_runs_is_seen() {
        let release = Some(Release { at: 1, phase: "Running".to_owned(), deleting: false });
        let lost = PodStory { adopted: true, released: release, ..pod("a", "Succeeded", 1) };
        let pods = [lost, pod("b", "Succeeded", 2)];
        let done = job(json!({"completions": 1}), json!({"succeeded": 1}));
        let terms = Terms { parallelism: 2, instances: 1, adopts: true, ..Terms::default() };
        let wrongs = |job: &JobStory, pods: &[PodStory]| judge(job, pods.iter(), &terms).wrongs;
        assert_eq!(wrongs(&done, &pods), ["j: a lost its finalizer while it ran, and was not counted"]);
        let crowded = JobStory { most_active: 3, ..done.clone() };
        assert_eq!(wrongs(&crowded, &pods), [""; 0], "one had to go");
        let deleted = PodStory { deleted_alive: true, ..pods[0].clone() };
        assert_eq!(wrongs(&done, &[deleted, pods[1].clone()]), [""; 0], "it was on its way out");
    }
}
