//! Why a Job, a Pod or a CronJob stands still: a pure function from objects to reasons.
//!
//! [`explain`] gets the objects that a caller could read ([`Evidence`]) and the time. What the Job controller would do with
//! them is not decided here: the ledger of `tally-core` plans, as it does in the controller, and the plan says what is
//! held back, until when, and what is left to do. The rest of the reasons are read from Pods, Nodes, Leases and Events.
//!
//! Every reason is a variant of [`Cause`], which has a stable name, a sentence, and what would change it (`cause.rs`).
//! `tests/table.rs` has a row for each of them.

mod cause;
mod controller;
mod cron_job;
mod evidence;
mod failure;
mod job;
mod pod;
mod text;

use serde_json::{Value, json};
use tally_core::time::{Span, Timestamp};

pub use cause::{Cause, GoneFailures, NAMES, PodNames};
pub use evidence::{Evidence, Host};
pub use failure::{Failure, TOLD_OF_FAILED};
pub use text::{duration, moment};

/// Changes that are younger than this are being worked on: nothing is wrong yet.
pub const SETTLES_WITHIN: Span = Span::from_seconds(10);
/// A Pod that has a node for longer than this should have started its containers.
pub const STARTS_WITHIN: Span = Span::from_seconds(30);

/// What is known about an object, for users.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// `Job`, `Pod`, `CronJob`.
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub state: State,
    /// The state in one sentence.
    pub summary: String,
    /// What it waits for, the most important reason first. Empty: nothing keeps it from going on.
    pub reasons: Vec<Reason>,
    /// How Pods have failed: of a Job that has failed, and the last failure of one that goes on.
    pub failures: Vec<Failure>,
    /// Pods that have failed and are not among these.
    pub more_failures: usize,
    /// What happens by itself, the earliest first.
    pub next: Vec<NextStep>,
    /// What the reasons were found in.
    pub evidence: Vec<String>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It goes on: one of its Pods runs, or nothing keeps the next ones from starting.
    Running,
    /// There is a reason why it does not go on, and none of its Pods runs.
    Waiting,
    Deleting,
    Complete,
    Failed,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Waiting => "Waiting",
            Self::Deleting => "Deleting",
            Self::Complete => "Complete",
            Self::Failed => "Failed",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    pub cause: Cause,
    pub since: Option<Timestamp>,
}

/// Something that happens by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NextStep {
    pub at: Timestamp,
    pub what: String,
}

/// Explains `evidence.object`, which is a Job, a Pod or a CronJob.
pub fn explain(evidence: &Evidence, now: Timestamp) -> Explanation {
    let mut explanation = match evidence.object["kind"].as_str() {
        Some("Pod") => pod::explain(evidence, now),
        Some("CronJob") => cron_job::explain(evidence, now),
        _ => job::explain(evidence, now),
    };
    explanation.next.retain(|step| step.at >= now);
    explanation.next.sort();
    explanation.next.dedup();
    explanation.unread = evidence.unread.clone();
    explanation
}

impl Explanation {
    fn of(evidence: &Evidence, kind: &'static str, state: State, summary: String) -> Self {
        let text = |field: &str| evidence.object["metadata"][field].as_str().unwrap_or_default().to_owned();
        Self {
            kind,
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            state,
            summary,
            reasons: Vec::new(),
            failures: Vec::new(),
            more_failures: 0,
            next: Vec::new(),
            evidence: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// What it waits for.
    pub fn waiting_for(&self) -> Option<&Cause> {
        self.reasons.first().map(|reason| &reason.cause)
    }

    pub fn since(&self) -> Option<Timestamp> {
        self.reasons.first().and_then(|reason| reason.since)
    }

    /// What would change that.
    pub fn would_change(&self) -> Option<String> {
        self.waiting_for().map(Cause::change)
    }

    /// The structure as `tally explain -o json` prints it.
    pub fn json(&self) -> Value {
        let reason = |reason: &Reason| {
            json!({
                "reason": reason.cause.name(), "message": reason.cause.sentence(), "since": reason.since,
                "until": reason.cause.until(), "change": reason.cause.change(),
            })
        };
        json!({
            "kind": self.kind, "namespace": self.namespace, "name": self.name, "state": self.state.name(),
            "summary": self.summary, "reasons": self.reasons.iter().map(reason).collect::<Vec<_>>(),
            "failures": self.failures.iter().map(Failure::json).collect::<Vec<_>>(), "moreFailures": self.more_failures,
            "next": self.next.iter().map(|step| json!({"at": step.at, "what": step.what})).collect::<Vec<_>>(),
            "evidence": self.evidence, "unread": self.unread,
        })
    }
}
