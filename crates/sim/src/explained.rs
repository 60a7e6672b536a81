//! X1: a Job that stands still is explained. Whenever a healed world has nothing to do but wait, the objects in the store
//! say what every unfinished Job waits for (`tally-explain`), or the Job has Pods that have not ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tally_core::ids::JobUid;
use tally_core::job::JobView;
use tally_core::mutation::{Bug, Mutation};
use tally_core::time::{Span, Timestamp};
use tally_explain::{Evidence, SETTLES_WITHIN, explain_with};
use tally_runtime::controller::Kind;

use crate::archive::Version;
use crate::counters::Sometimes;
use crate::trace::describe_job;
use crate::world::World;

/// Whether worlds are held to X1. Not in searches on random seeds: an explanation is still missing for a Job whose end is decided
/// while the release of one of its Pods is refused (seed 20774000966).
pub static HOLDS: AtomicBool = AtomicBool::new(false);

/// How long a world without timers is looked at later.
const LATER: Span = Span::from_seconds(3_600);

impl<S: Mutation> World<S> {
    /// `wake_at`: when something happens next. Until then all Jobs stand still.
    pub(crate) fn check_explained(&mut self, wake_at: Option<Timestamp>) {
        let now = wake_at.unwrap_or(self.api.now + LATER) - Span::from_millis(1);
        if now < self.api.now + SETTLES_WITHIN {
            return;
        }
        let open = |job: &JobView| self.is_ours(job) && !job.status.is_finished();
        let jobs = self.api.jobs.values().map(|stored| stored.view.clone());
        let jobs: Vec<_> = jobs.filter(|job| open(job)).collect();
        for job in jobs {
            let evidence = self.evidence_about(&job.namespace, &job.name, &job.uid);
            let explanation = explain_with(&evidence, now, self.mutation);
            let alive = self.api.pods_of(&job.uid).any(|pod| !pod.view.phase.is_terminal());
            let names: Vec<&str> = explanation.reasons.iter().map(|reason| reason.cause.name()).collect();
            if !names.is_empty() {
                self.counters.hit(Sometimes::StoodStillExplained);
            }
            let holds = HOLDS.load(Ordering::Relaxed) || self.mutation.injects(Bug::BackoffUnexplained);
            if holds && ((names.is_empty() && !alive) || names.contains(&"Unknown")) {
                let text = format!("{} stands still, explained by {names:?}: {}", job.name, describe_job(&job));
                self.oracle.fail("X1", text);
            }
        }
    }

    /// What a user could read about the Job.
    fn evidence_about(&self, namespace: &str, name: &str, uid: &JobUid) -> Evidence {
        let archive = &self.api.archive;
        let mut object = archive.get(&Kind::JOB, namespace, name).map(|job| job.object().clone()).unwrap_or_default();
        object["kind"] = "Job".into();
        let (pods, events) = (archive.all(&Kind::POD), archive.all(&Kind::EVENT));
        let own = |pod: &&Arc<Version>| {
            let mut owners = pod.owners().iter().filter(|owner| owner["controller"] == true).peekable();
            let recorded = object["status"]["uncountedTerminatedPods"].to_string().contains(pod.uid());
            recorded || owners.peek().is_none() || owners.any(|owner| owner["uid"] == uid.to_string().as_str())
        };
        let about = |event: &&Arc<Version>| {
            let about = &event.object()["involvedObject"];
            about["kind"] == "Pod" || about["uid"] == uid.to_string().as_str()
        };
        let nodes: Vec<_> = archive.all(&Kind::NODE).map(|node| node.object().clone()).collect();
        let pods = pods.filter(own).map(|pod| pod.object().clone()).collect();
        Evidence {
            object,
            pods,
            events: events.filter(about).map(|event| event.object().clone()).collect(),
            // Most worlds have no Node objects, only a model of a node.
            nodes: self.setup.cluster.as_ref().map(|_| nodes),
            namespace: archive.get(&Kind::NAMESPACE, "", namespace).map(|namespace| namespace.object().clone()),
            ..Evidence::default()
        }
    }
}
