//! Whether a controller runs that works on Jobs, and the lines of evidence about it, about nodes and Events.

use std::collections::BTreeSet;

use serde_json::Value;
use tally_core::time::{Span, Timestamp};

use crate::cause::Cause;
use crate::evidence::{Evidence, Host, condition, list, text, time};
use crate::{Reason, SETTLES_WITHIN};

/// How many Events and Nodes are shown as evidence.
const SHOWN: usize = 8;
/// The Leases of `tally controller` have it, whatever their names are.
const LEASE_LABEL: &str = "/metadata/labels/tally.dev~1lease-of";

/// A Lease of a controller.
struct Leadership<'a> {
    name: String,
    holder: &'a str,
    renewed_at: Timestamp,
    valid_for: Span,
}

fn leadership(lease: &Value) -> Option<Leadership<'_>> {
    let seconds = lease["spec"]["leaseDurationSeconds"].as_i64().unwrap_or(15);
    Some(Leadership {
        name: format!("{}/{}", text(lease, "/metadata/namespace"), text(lease, "/metadata/name")),
        holder: text(lease, "/spec/holderIdentity"),
        renewed_at: time(&lease["spec"]["renewTime"])?,
        valid_for: Span::from_seconds(seconds),
    })
}

/// No process has the data directory.
pub(crate) fn stopped(evidence: &Evidence, work: &str) -> Reason {
    let why = "no process uses the data directory".to_owned();
    Reason { cause: Cause::ControllerNotRunning { of: of(evidence), work: work.to_owned(), why }, since: None }
}

/// Which controller works on the object.
fn of(evidence: &Evidence) -> &'static str {
    if evidence.object["kind"] == "CronJob" { "CronJob" } else { "Job" }
}

/// Why the controller has not done this work, for which everything has been there since `settled_at`. None: that is too
/// recent to mean anything.
pub(crate) fn standing(evidence: &Evidence, work: &str, settled_at: Timestamp, now: Timestamp) -> Option<Reason> {
    let work = work.to_owned();
    if evidence.host == Host::Stopped {
        return Some(stopped(evidence, &work));
    }
    if settled_at + SETTLES_WITHIN > now {
        return None;
    }
    if evidence.last_event("Job", "RevisionGate", Some(settled_at)).is_some() {
        return Some(Reason { cause: Cause::RevisionGate, since: Some(settled_at) });
    }
    // `tally controller` does not run CronJobs.
    let of = of(evidence);
    let holders: &[&str] = if of == "CronJob" {
        &["kube-controller-manager"]
    } else {
        &["tally-job-controller", "kube-controller-manager"]
    };
    let is_tallys = |lease: &Value| of == "Job" && text(lease, LEASE_LABEL) == "job-controller";
    let counts = |lease: &&Value| holders.contains(&text(lease, "/metadata/name")) || is_tallys(lease);
    let leases = evidence.leases.iter().flatten().filter(counts);
    let mut leases: Vec<Leadership<'_>> = leases.filter_map(leadership).collect();
    leases.sort_by_key(|lease| lease.renewed_at);
    let (not_running, why, since) = match (leases.last(), evidence.host) {
        (_, Host::Serving { controller: true }) => {
            (false, "it runs in the process that serves the API, which answers".to_owned(), settled_at)
        }
        (Some(lease), _) if lease.holder.is_empty() => {
            let why = format!("the Lease {} was released at {}, and has no holder", lease.name, lease.renewed_at);
            (true, why, lease.renewed_at)
        }
        (Some(lease), _) if lease.renewed_at + lease.valid_for < now => {
            let Leadership { name, holder, renewed_at, .. } = lease;
            (true, format!("{holder} renewed the Lease {name} last at {renewed_at}"), lease.renewed_at)
        }
        (Some(lease), _) => {
            let why = format!("{} holds the Lease {} and renews it", lease.holder, lease.name);
            (false, why, settled_at)
        }
        (None, Host::Running) => (
            false,
            "the process that has the data directory runs, perhaps without the controller".to_owned(),
            settled_at,
        ),
        (None, _) if evidence.leases.is_none() => {
            (false, "the Leases of controllers could not be read".to_owned(), settled_at)
        }
        (None, Host::Serving { controller: false }) => {
            let why =
                "the server of the API runs without it (tally up --controllers), and there is no Lease of another one";
            (true, why.to_owned(), settled_at)
        }
        (None, _) => (true, format!("there is no Lease of one ({})", holders.join(", ")), settled_at),
    };
    let cause = match not_running {
        true => Cause::ControllerNotRunning { of, work, why },
        false => Cause::ControllerBehind { of, work, why },
    };
    Some(Reason { cause, since: Some(since) })
}

pub(crate) fn lease_lines(evidence: &Evidence, lines: &mut Vec<String>) {
    for lease in evidence.leases.iter().flatten().filter_map(leadership) {
        let holder = if lease.holder.is_empty() { "no process" } else { lease.holder };
        lines.push(format!("Lease {}: held by {holder}, renewed at {}", lease.name, lease.renewed_at));
    }
}

/// Nodes that have a problem, or are gone.
pub(crate) fn node_lines<'a>(evidence: &Evidence, names: impl Iterator<Item = &'a str>, lines: &mut Vec<String>) {
    let names: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
    for name in names.into_iter().filter(|name| evidence.node_problem(name).is_some()).take(SHOWN) {
        let node = evidence.nodes.iter().flatten().find(|node| text(node, "/metadata/name") == name);
        let ready = node.and_then(|node| condition(node, "Ready"));
        let taints: Vec<&str> =
            node.iter().flat_map(|node| list(node, "/spec/taints")).map(|t| text(t, "/key")).collect();
        let taints = if taints.is_empty() { String::new() } else { format!(", taints {}", taints.join(", ")) };
        lines.push(match (node, ready) {
            (None, _) => format!("Node {name}: there is none"),
            (Some(_), None) => format!("Node {name}: no condition Ready{taints}"),
            (Some(_), Some(ready)) => {
                let (status, since) = (text(ready, "/status"), text(ready, "/lastTransitionTime"));
                format!("Node {name}: Ready is {status} since {since}{taints}")
            }
        });
    }
}

/// The newest Events, oldest first. Those that only say that work was done are left out.
pub(crate) fn event_lines(evidence: &Evidence, lines: &mut Vec<String>) {
    let usual = ["SuccessfulCreate", "SuccessfulDelete", "Scheduled", "Pulled", "Created", "Started", "Killing"];
    let events = evidence.events();
    let told: Vec<_> = events.iter().filter(|event| !usual.contains(&event.reason)).collect();
    for event in told.iter().skip(told.len().saturating_sub(SHOWN)) {
        let times = if event.count > 1 { format!(", {} times", event.count) } else { String::new() };
        let message = event.message.split_whitespace().collect::<Vec<_>>().join(" ");
        lines.push(format!(
            "Event {} about {} {} at {}{times}: {message}",
            event.reason, event.about_kind, event.about_name, event.last_at
        ));
    }
}

pub(crate) fn quota_lines(evidence: &Evidence, lines: &mut Vec<String>) {
    for quota in &evidence.quotas {
        let hard = quota.pointer("/status/hard").or_else(|| quota.pointer("/spec/hard")).and_then(Value::as_object);
        let used = |name: &str| quota["status"]["used"][name].as_str().unwrap_or("0").to_owned();
        let parts: Vec<String> = hard
            .into_iter()
            .flatten()
            .map(|(name, limit)| format!("{name} {} of {}", used(name), limit.as_str().unwrap_or_default()))
            .collect();
        lines.push(format!("ResourceQuota {}: {}", text(quota, "/metadata/name"), parts.join(", ")));
    }
}
