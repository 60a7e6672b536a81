//! What the world is told once a write is durable: events and metrics, from the returned object, never from the
//! intention (S07).

use tally_core::job::{Condition, JobView, PodReplacementPolicy, condition};

use crate::machine::{Event, Metric, Outbox};

pub(super) fn event(job: &JobView, warning: bool, reason: &str, message: &str) -> Event {
    Event {
        namespace: job.namespace.clone(),
        job: job.name.clone(),
        uid: job.uid.clone(),
        warning,
        reason: reason.into(),
        message: message.to_owned(),
    }
}

/// METRIC-8: why Pods are created now.
pub(super) fn creation_reason(job: &JobView) -> &'static str {
    let status = &job.status;
    let failed = status.failed > 0 || !status.uncounted().failed.is_empty();
    if failed && job.spec.pod_replacement_policy == PodReplacementPolicy::Failed {
        "recreate_failed"
    } else if failed || status.terminating.unwrap_or(0) > 0 {
        "recreate_terminating_or_failed"
    } else {
        "new"
    }
}

/// Compares the Job before our write with the Job as stored by it.
pub(super) fn after_write(old: &JobView, new: &JobView, out: &mut Outbox) {
    suspended(old, new, out);
    finished_pods(old, new, out);
    if old.status.is_finished() {
        return;
    }
    let Some(terminal) = new.status.terminal_condition() else {
        return;
    };
    let succeeded = terminal.kind == condition::COMPLETE;
    if succeeded {
        if new.spec.completions.is_some_and(|completions| new.status.succeeded > completions) {
            let message = "Too many succeeded pods running after completion count reached";
            out.events.push(event(new, true, "TooManySucceededPods", message));
        }
        out.events.push(event(new, false, "Completed", "Job completed"));
    } else {
        out.events.push(event(new, true, &terminal.reason, &terminal.message));
    }
    out.metrics.push(Metric::JobFinished {
        indexed: new.spec.is_indexed(),
        succeeded,
        reason: terminal.reason.clone(),
    });
}

fn suspended(old: &JobView, new: &JobView, out: &mut Outbox) {
    let find = |job: &JobView| -> Option<Condition> {
        job.status.conditions.iter().find(|known| known.kind == condition::SUSPENDED).cloned()
    };
    let (before, after) = (find(old), find(new));
    if before == after {
        return;
    }
    match after {
        Some(after) if after.is_true() => out.events.push(event(new, false, "Suspended", "Job suspended")),
        Some(_) => out.events.push(event(new, false, "Resumed", "Job resumed")),
        None => {}
    }
}

/// METRIC-5, METRIC-6.
fn finished_pods(old: &JobView, new: &JobView, out: &mut Outbox) {
    let indexed = new.spec.is_indexed();
    let grown = |old: i32, new: i32| u64::try_from(i64::from(new) - i64::from(old)).ok().filter(|by| *by > 0);
    if let Some(by) = grown(old.status.failed, new.status.failed) {
        out.metrics.push(Metric::PodsFinished { indexed, succeeded: false, by });
    }
    if let Some(by) = grown(old.status.succeeded, new.status.succeeded) {
        out.metrics.push(Metric::PodsFinished { indexed, succeeded: true, by });
        if indexed {
            let per_index = new.spec.limits_each_index();
            out.metrics.push(Metric::IndexesFinished { succeeded: true, per_index, by });
        }
    }
    if indexed && old.status.failed_indexes != new.status.failed_indexes {
        let limit = new.spec.index_limit();
        let size = |job: &JobView| {
            let text = job.status.failed_indexes.as_deref().unwrap_or_default();
            tally_core::indexes::IndexSet::read_tolerant(text, limit).len()
        };
        let by = size(new).saturating_sub(size(old)) as u64;
        if by > 0 {
            out.metrics.push(Metric::IndexesFinished { succeeded: false, per_index: true, by });
        }
    }
}
