//! X1: a Job that stands still is explained. Whenever a healed world has nothing to do but wait, the objects in the store
//! say what every unfinished Job waits for (`tally-explain`), or the Job has Pods that have not ended.

use std::sync::Arc;

use serde_json::Value;
use tally_core::ids::JobUid;
use tally_core::job::JobView;
use tally_core::time::{Span, Timestamp};
use tally_explain::{Cause, Evidence, Explanation, SETTLES_WITHIN, explain};
use tally_runtime::controller::Kind;

use crate::archive::Version;
use crate::counters::Sometimes;
use crate::trace::describe_job;
use crate::world::World;

/// The shortest time.
const MOMENT: Span = Span::from_millis(1);
/// How long a world without timers is looked at later.
const LATER: Span = Span::from_seconds(3_600);

/// What was said about a Job in back-off. It ends when the Job gets a Pod or is changed.
#[derive(Clone, Copy)]
pub(crate) struct Told {
    pods: usize,
    generation: i64,
    until: Timestamp,
    unless_after: Option<Timestamp>,
}

impl World {
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
            let explanation = explain(&evidence, now);
            let alive = self.api.pods_of(&job.uid).any(|pod| !pod.view.phase.is_terminal());
            if self.clocks_sane && !alive {
                self.check_told(&job, &evidence, &explanation, now);
            }
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

    /// What was said at the beginning of a back-off about its end is true: the Job does not go on waiting for it, nor for a
    /// controller that is behind. Failures that are counted nowhere can lengthen a back-off unseen; and what was said may
    /// be about the case that no Pod which is gone has failed later than the others.
    fn check_told(&mut self, job: &JobView, evidence: &Evidence, explanation: &Explanation, now: Timestamp) {
        let begins = explain(evidence, self.api.now);
        let pods = self.oracle.laws.pods_ever(&job.uid);
        let said = begins.reasons.into_iter().find_map(|reason| match reason.cause {
            Cause::BackOff { until: Some(until), gone, .. } => {
                let unless_after = gone.and_then(|gone| gone.unless_after);
                Some(Told { pods, generation: job.generation, until, unless_after })
            }
            _ => None,
        });
        let known = self.told.get(&job.uid).copied();
        let known = known.filter(|told| told.pods == pods && told.generation == job.generation);
        let Some(told) = known.or(said) else { return };
        self.told.insert(job.uid.clone(), told);
        let laws = &self.oracle.laws;
        let unless = told.unless_after.is_some_and(|at| laws.failed_after(&job.uid, at));
        let waits = explanation.waiting_for().map(Cause::name);
        let for_it = matches!(waits, Some("BackOff" | "ControllerBehind"));
        if for_it && now > laws.late_after(told.until) && !unless && !laws.failed_uncounted(&job.uid) {
            let what = waits.unwrap_or_default();
            let text = format!("{} was to go on by {}, and at {now} is said to wait for {what}", job.name, told.until);
            self.oracle.fail("X1", format!("{text}: {}", describe_job(job)));
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
