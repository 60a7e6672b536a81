//! Compares a plan of the ledger with the expected one or, where the rules leave a choice, with all correct ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use tally_core::accounting::Outcome;
use tally_core::ids::PodUid;
use tally_core::job::{JobStatus, JobView, Uncounted};
use tally_core::ledger::{Horizon, Ledger, Nowhere, Plan, StatusWrite};
use tally_core::status_rules;

use super::{Expected, Facts, Write};

/// A ledger that has just observed these facts.
pub fn fresh_ledger(facts: &Facts) -> Ledger {
    let mut ledger = Ledger::new(Arc::new(facts.job.clone()), facts.limits);
    for pod in &facts.pods {
        ledger.observe_pod(pod, facts.now);
    }
    widen(&mut ledger, facts.window);
    ledger
}

/// Widens the creation window as successful batches of creations do.
pub fn widen(ledger: &mut Ledger, window: usize) {
    for _ in 0..window.ilog2() {
        ledger.name_taken("a name that nobody asked for");
    }
}

pub fn plan(ledger: &mut Ledger, facts: &Facts) -> Plan {
    let Facts { now, pods_at, jobs_at, .. } = *facts;
    ledger.plan(now, Horizon { pods_at, jobs_at, elsewhere: &Nowhere, crowded: false })
}

macro_rules! same {
    ($what:expr, $ledger:expr, $expected:expr) => {
        let (ledger, expected) = (&$ledger, &$expected);
        if ledger != expected {
            return Err(format!("{}:\n   the ledger {ledger:?}\n    expected {expected:?}", $what));
        }
    };
}

/// What a ledger that has been running may know beyond the facts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Names that are taken by other Pods.
    pub burned_names: bool,
    /// Creations that failed: the next batch is small.
    pub failed_creations: bool,
    /// Refusals leave wake-up times behind, which do no harm.
    pub early_wakes: bool,
}

pub fn check(plan: &Plan, expected: &Expected, facts: &Facts, memory: Memory) -> Result<(), String> {
    same!("gate closed", plan.gate_closed(), expected.gate_closed);
    // If releases or removals fill a batch, the other Pods have not been examined yet.
    let too_many = expected.forced.len() > facts.limits.batch;
    let full = plan.releases.len().max(plan.removals.len()) >= facts.limits.batch;
    if !full && !too_many {
        let busy = |uid: &PodUid| plan.deletions.iter().any(|pod| pod.uid == *uid);
        let must_reread_job = expected.must_reread_job || expected.unjudged.iter().any(|uid| !busy(uid));
        same!("needs the Job", plan.must_reread_job, must_reread_job);
    }
    same!("needs a list", plan.must_list_pods, expected.must_list_pods);
    // Before the status, which depends on them: whatever is wrong with them is reported as such.
    check_creations(plan, expected, memory)?;
    check_status(plan.status.as_deref(), expected.status.as_ref(), facts)?;
    check_releases(plan, expected, facts)?;
    let deletions: BTreeSet<PodUid> = plan.deletions.iter().map(|pod| pod.uid.clone()).collect();
    same!("each deleted once", deletions.len(), plan.deletions.len());
    same!("as many deletions", deletions.len(), expected.deletions.len().min(facts.limits.batch));
    if !deletions.is_subset(&expected.deletions) {
        return Err(format!("deletions {deletions:?}, expected of {:?}", expected.deletions));
    }
    let starts: BTreeSet<PodUid> = plan.starts.iter().map(|pod| pod.uid.clone()).collect();
    same!("each started once", starts.len(), plan.starts.len());
    same!("as many starts", starts.len(), expected.starts.len().min(facts.limits.batch));
    if !starts.is_subset(&expected.starts) {
        return Err(format!("starts {starts:?}, expected of {:?}", expected.starts));
    }
    let removals: BTreeSet<&PodUid> = plan.removals.iter().map(|pod| &pod.uid).collect();
    same!("each removed once", removals.len(), plan.removals.len());
    if too_many || (expected.must_reread_job && expected.victims > facts.limits.batch) {
        // Any of them may be first, and of more than one batch, Pods that can be judged may wait for those that cannot.
        if !removals.iter().all(|uid| expected.going.contains(*uid)) || removals.len() > facts.limits.batch {
            return Err(format!("removals {removals:?}, expected of {:?}", expected.going));
        }
    } else {
        same!("removals", removals, expected.removals.iter().collect::<BTreeSet<_>>());
    }
    for removal in &plan.removals {
        let pod = facts.pods.iter().find(|pod| pod.uid == removal.uid).expect("was expected");
        let found = (&removal.name, removal.revision, removal.tracked);
        same!("removal", found, (&pod.name, pod.revision, pod.tracked));
    }
    let early = plan.wake_at.is_some_and(|at| expected.wake_at.is_none_or(|wanted| at < wanted));
    if !(memory.early_wakes && early) {
        same!("wake", plan.wake_at, expected.wake_at);
    }
    Ok(())
}

fn check_creations(plan: &Plan, expected: &Expected, memory: Memory) -> Result<(), String> {
    let (mut creations, mut wanted) = (plan.creations.clone(), expected.creations.clone());
    if memory.failed_creations {
        wanted.truncate(creations.len().max(1));
    }
    if memory.burned_names {
        for (creation, wanted) in creations.iter_mut().zip(&wanted) {
            creation.name.clone_from(&wanted.name);
        }
    }
    same!("creations", creations, wanted);
    Ok(())
}

fn check_releases(plan: &Plan, expected: &Expected, facts: &Facts) -> Result<(), String> {
    let distinct: BTreeSet<&PodUid> = plan.releases.iter().map(|release| &release.uid).collect();
    let mut expected = expected.releases.clone();
    for busy in plan.deletions.iter().map(|pod| &pod.uid).chain(plan.removals.iter().map(|pod| &pod.uid)) {
        expected.remove(busy);
    }
    same!("each released once", distinct.len(), plan.releases.len());
    for release in &plan.releases {
        let Some(known) = expected.get(&release.uid) else {
            return Err(format!("{} must not be released", release.uid));
        };
        let of = format!("release of {}: condition", release.uid);
        same!(of, release.revision, known.revision);
        if known.ignored {
            same!("ignored", release.ignored, true);
        }
    }
    let room = facts.limits.batch.min(expected.len());
    if plan.releases.len() != room {
        let missing: Vec<_> = expected.keys().filter(|uid| !distinct.contains(uid)).collect();
        return Err(format!("{} releases of {room}; missing {missing:?}", plan.releases.len()));
    }
    Ok(())
}

fn check_status(write: Option<&StatusWrite>, expected: Option<&Write>, facts: &Facts) -> Result<(), String> {
    let (write, expected) = match (write, expected) {
        (None, None) => return Ok(()),
        (Some(write), Some(expected)) => (write, expected),
        (Some(write), None) => {
            return Err(format!(
                "no write expected\n   the ledger {:?}\n         old {:?}",
                write.status, facts.job.status
            ));
        }
        (None, Some(expected)) => {
            return Err(format!("a write expected: {:?}\n old {:?}", expected.status, facts.job.status));
        }
    };
    same!("base", write.base, facts.job.revision);
    let mut status = write.status.clone();
    let lists = status.uncounted_terminated_pods.replace(expected.status.uncounted().clone());
    check_records(&lists.unwrap_or_default(), expected, write)?;
    for condition in &mut status.conditions {
        if condition.reason == "PodFailurePolicy" && expected.messages.contains(&condition.message) {
            condition.message.clone_from(expected.messages.first().expect("contains one"));
        }
    }
    same!("status", status, expected.status);
    Ok(())
}

/// Every recorded Pod must be due, and as many are recorded as there is room for.
fn check_records(lists: &Uncounted, expected: &Write, write: &StatusWrite) -> Result<(), String> {
    let carried = expected.status.uncounted();
    let mut chosen = Vec::new();
    for (outcome, list, carried) in
        [(Outcome::Succeeded, &lists.succeeded, &carried.succeeded), (Outcome::Failed, &lists.failed, &carried.failed)]
    {
        let Some(news) = list.strip_prefix(carried.as_slice()) else {
            return Err(format!("{outcome:?} list {list:?} does not begin with {carried:?}"));
        };
        for uid in news {
            let Some(due) = expected.due.iter().find(|due| due.uid == *uid && due.outcome == outcome) else {
                return Err(format!("{uid} is not due as {outcome:?}; due are {:?}", expected.due));
            };
            chosen.push(due);
        }
    }
    let distinct: BTreeSet<&PodUid> = chosen.iter().map(|due| &due.uid).collect();
    same!("each recorded once", distinct.len(), chosen.len());
    if chosen.len() != expected.room {
        return Err(format!("{} recorded, {} expected of {:?}", chosen.len(), expected.room, expected.due));
    }
    let mut handled: Vec<_> = chosen.iter().filter_map(|due| due.action).collect();
    handled.sort();
    let mut found = write.handled.clone();
    found.sort();
    same!("handled", found, handled);
    Ok(())
}

/// I13: the server would accept this write.
pub fn check_rules(job: &JobView, new: &JobStatus) -> Result<(), String> {
    let old = &job.status;
    let broken = status_rules::check_gated(&job.spec, old, new, job.gates);
    if broken.is_empty() {
        return Ok(());
    }
    let rules: Vec<String> = broken.iter().map(|error| format!("{} {error}", error.rule)).collect();
    Err(format!("{rules:?}\n   old {old:?}\n   new {new:?}"))
}
