//! X1: a Job that stands still is explained. Whenever a healed world has nothing to do but wait, the objects in the store
//! say what every unfinished Job waits for (`tally-explain`), or the Job has Pods that have not ended.

use std::sync::Arc;

use serde_json::Value;
use tally_core::ids::JobUid;
use tally_core::job::JobView;
use tally_core::mutation::Mutation;
use tally_core::time::{Span, Timestamp};
use tally_explain::{Evidence, SETTLES_WITHIN, explain_with};
use tally_runtime::controller::Kind;

use crate::archive::Version;
use crate::counters::Sometimes;
use crate::trace::describe_job;
use crate::world::World;

/// The shortest time.
const MOMENT: Span = Span::from_millis(1);
/// How long a world without timers is looked at later.
const LATER: Span = Span::from_seconds(3_600);

impl<S: Mutation> World<S> {
    /// `wake_at`: when something happens next. Until then all Jobs stand still.
    pub(crate) fn check_explained(&mut self, wake_at: Option<Timestamp>) {
        let until = wake_at.unwrap_or(self.api.now + LATER) - MOMENT;
        if until < self.api.now + SETTLES_WITHIN {
            return;
        }
        let open = |job: &JobView| self.is_ours(job) && !job.status.is_finished();
        let jobs = self.api.jobs.values().map(|stored| stored.view.clone());
        let jobs: Vec<_> = jobs.filter(|job| open(job)).collect();
        for job in jobs {
            let evidence = self.evidence_about(&job.namespace, &job.name, &job.uid);
            let Some(now) = self.moment(&evidence, until) else { continue };
            let explanation = explain_with(&evidence, now, self.mutation);
            let alive = self.api.pods_of(&job.uid).any(|pod| !pod.view.phase.is_terminal());
            let names: Vec<&str> = explanation.reasons.iter().map(|reason| reason.cause.name()).collect();
            if !names.is_empty() {
                self.counters.hit(Sometimes::StoodStillExplained);
            }
            if (names.is_empty() && !alive) || names.contains(&"Unknown") {
                let text = format!("{} stands still, explained by {names:?}: {}", job.name, describe_job(&job));
                self.oracle.fail("X1", text);
            }
        }
    }

    /// When to look at a Job that stands still until then: as late as possible. A clock that was ahead has written times that
    /// come only now. For a moment after each of them the Job seems to have just changed, and rightly nothing is said; so
    /// that moment is avoided. None: there is no other moment.
    fn moment(&self, evidence: &Evidence, until: Timestamp) -> Option<Timestamp> {
        let mut ahead = Vec::new();
        evidence.pods.iter().chain(&evidence.events).chain([&evidence.object]).for_each(|it| times(it, &mut ahead));
        ahead.retain(|at| *at > self.api.now);
        let seems_changed = |now: Timestamp| ahead.iter().any(|at| *at <= now && now <= *at + SETTLES_WITHIN);
        let moments = ahead.iter().map(|at| *at - MOMENT).chain([until]);
        let settled = |now: &Timestamp| *now >= self.api.now + SETTLES_WITHIN && *now <= until && !seems_changed(*now);
        moments.filter(settled).max()
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

/// The times in an object.
fn times(value: &Value, found: &mut Vec<Timestamp>) {
    match value {
        Value::String(text) => found.extend(Timestamp::parse(text)),
        Value::Array(values) => values.iter().for_each(|value| times(value, found)),
        Value::Object(fields) => fields.values().for_each(|value| times(value, found)),
        _ => {}
    }
}
