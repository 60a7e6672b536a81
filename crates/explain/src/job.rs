//! What a Job waits for.

mod backoff;

use std::sync::Arc;

use serde_json::Value;
use tally_core::accounting::PodFacts;
use tally_core::after::{self, AfterState};
use tally_core::ids::{PodUid, Revision};
use tally_core::job::{CompletionMode, Condition, JobStatus, JobView, RESERVED_MANAGER, condition};
use tally_core::ledger::{Hold, Horizon, Ledger, Limits, Plan, RememberedBackoff};
use tally_core::lifetime;
use tally_core::pod::{Phase, PodView, TRACKING_FINALIZER};
use tally_core::time::{Span, Timestamp};
use tally_core::view::ViewError;

use crate::cause::{Cause, GoneFailures, PodNames};
use crate::controller;
use crate::evidence::{Evidence, changed_at, finalizers, status_written_at, text};
use crate::failure;
use crate::pod::{Pod, group};
use crate::{Explanation, Host, NextStep, Reason, SETTLES_WITHIN, State};

/// How many Pods are shown as evidence.
const SHOWN: usize = 10;
/// Letters of the failed indexes in a summary: a Job may have a hundred thousand of them.
const INDEX_LETTERS: usize = 80;
/// Everything has been observed: the objects were read together.
const EVERYTHING: Revision = Revision(u64::MAX / 2);
/// The finalizers of the garbage collector.
const COLLECTED: [&str; 2] = ["foregroundDeletion", "orphan"];

pub(crate) fn read(object: &Value) -> Result<JobView, ViewError> {
    JobView::from_json(object.to_string().as_bytes())
}

/// Pods that were read and are not in the ledger.
struct Others<'a>(&'a [Pod<'a>]);

impl PodFacts for Others<'_> {
    fn is_tracked(&self, uid: &PodUid) -> bool {
        self.0.iter().any(|pod| pod.view.uid == *uid && pod.view.tracked)
    }
}

pub(crate) fn explain(evidence: &Evidence, now: Timestamp) -> Explanation {
    let view = match read(&evidence.object) {
        Ok(view) => view,
        Err(error) => {
            let mut explanation = Explanation::of(evidence, "Job", State::Waiting, String::new());
            let cause = Cause::Unreadable { problem: error.to_string() };
            explanation.reasons.push(Reason { cause, since: None });
            return explanation;
        }
    };
    let pods: Vec<Pod<'_>> = evidence.pods.iter().filter_map(Pod::read).collect();
    let lists = view.status.uncounted();
    let is_recorded = |pod: &PodView| lists.succeeded.iter().chain(&lists.failed).any(|uid| *uid == pod.uid);
    let claimed = |pod: &PodView| match &pod.controller {
        Some(_) => pod.job() == Some(&view.uid),
        None => view.may_adopt(pod) && !is_recorded(pod),
    };
    let (own, others): (Vec<Pod<'_>>, Vec<Pod<'_>>) = pods.into_iter().partition(|pod| claimed(&pod.view));
    let settled_at = own.iter().filter_map(|pod| changed_at(pod.object).max(Some(pod.view.finished_at)));
    // Objects of Tally have no times of writes; what the controller did to the Pods is in its Events.
    let done = ["SuccessfulCreate", "SuccessfulDelete", "Suspended", "Resumed"];
    let done = evidence.events().into_iter().filter(|event| event.about_kind == "Job" && done.contains(&event.reason));
    let settled_at = settled_at.chain(done.map(|event| event.last_at)).chain(changed_at(&evidence.object));
    // A time in the future is that of a wrong clock, and says nothing.
    let settled_at = settled_at.filter(|at| *at <= now).max().unwrap_or(view.created_at);
    let story = Story { evidence, view: Arc::new(view), own, others, settled_at, now };
    story.explain()
}

/// Everything that is known about a Job.
struct Story<'a> {
    evidence: &'a Evidence,
    view: Arc<JobView>,
    /// The Pods of the Job.
    own: Vec<Pod<'a>>,
    others: Vec<Pod<'a>>,
    /// When the Job or one of its Pods last changed.
    settled_at: Timestamp,
    now: Timestamp,
}

/// What the controller has to do, according to the ledger.
#[derive(Debug, Default, PartialEq, Eq)]
struct Work {
    create: usize,
    start: usize,
    delete: usize,
    count: usize,
    finish: bool,
    suspend: bool,
}

impl Work {
    fn of(plan: &Plan, view: &JobView) -> Self {
        let mut work = Self {
            create: plan.creations.len(),
            start: plan.starts.len(),
            delete: plan.deletions.len() + plan.removals.len() + plan.discards.len(),
            count: plan.releases.len(),
            ..Self::default()
        };
        let Some(write) = &plan.status else { return work };
        let (old, new) = (&view.status, &write.status);
        let verdict = |status: &JobStatus| {
            let kinds =
                [condition::COMPLETE, condition::FAILED, condition::SUCCESS_CRITERIA_MET, condition::FAILURE_TARGET];
            kinds.map(|kind| status.is_true(kind))
        };
        work.finish = verdict(old) != verdict(new);
        work.suspend = old.is_true(condition::SUSPENDED) != new.is_true(condition::SUSPENDED);
        // Live counts are not compared: they change nothing, and other controllers write them at other times.
        let counted = old.succeeded != new.succeeded
            || old.failed != new.failed
            || old.uncounted() != new.uncounted()
            || old.completed_indexes != new.completed_indexes
            || old.failed_indexes != new.failed_indexes;
        work.count = work.count.max(usize::from(counted));
        work
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// `create Pods and delete Pods`. Without numbers: a plan contains only the next batch.
    fn words(&self) -> String {
        let parts = [
            (self.create > 0, "create Pods"),
            (self.start > 0, "let Pods start"),
            (self.delete > 0, "delete Pods"),
            (self.count > 0, "count the Pods that have ended"),
            (self.finish, "write the verdict of the Job"),
            (self.suspend, "write that the Job is suspended or resumed"),
        ];
        let parts: Vec<&str> = parts.into_iter().filter(|(is_due, _)| *is_due).map(|(_, words)| words).collect();
        parts.join(" and ")
    }
}

impl Story<'_> {
    fn names(&self, which: impl Fn(&Pod<'_>) -> bool) -> PodNames {
        PodNames(self.own.iter().filter(|pod| which(pod)).map(|pod| pod.view.name.to_string()).collect())
    }

    fn is_managed_elsewhere(&self) -> Option<&str> {
        self.view.spec.managed_by.as_deref().filter(|manager| *manager != RESERVED_MANAGER)
    }

    /// GANG-5. Another controller may have gang scheduling, and have begun.
    fn is_left_alone(&self) -> bool {
        let told = self.evidence.last_event("Job", Cause::GangScheduling.name(), None).is_some();
        let untouched = self.view.status == JobStatus::default() && self.view.created_at + SETTLES_WITHIN < self.now;
        self.view.gang && (told || untouched)
    }

    fn explain(self) -> Explanation {
        let (state, summary) = self.summary();
        let mut explanation = Explanation::of(self.evidence, "Job", state, summary);
        if self.view.status.is_finished() {
            self.finished(&mut explanation);
        } else if self.view.deleting {
            self.deleting(&mut explanation);
        } else if let Some(manager) = self.is_managed_elsewhere() {
            self.managed_elsewhere(manager, &mut explanation);
        } else if self.is_left_alone() {
            let cause = Cause::GangScheduling;
            explanation.reasons.push(Reason { cause, since: Some(self.view.created_at) });
        } else if let CompletionMode::Unknown(mode) = &self.view.spec.completion_mode {
            let cause = Cause::UnknownCompletionMode { mode: mode.to_string() };
            explanation.reasons.push(Reason { cause, since: Some(self.view.created_at) });
        } else {
            self.unfinished(&mut explanation);
        }
        // A Pod whose process is gone with the one that has the data directory does not run, whatever its status says.
        let runs = |pod: &Pod<'_>| self.evidence.host != Host::Stopped && pod.runs(self.evidence, self.now);
        if !explanation.reasons.is_empty() && explanation.state == State::Running && !self.own.iter().any(runs) {
            explanation.state = State::Waiting;
        }
        if explanation.state != State::Complete {
            let has_failed = explanation.state == State::Failed;
            (explanation.failures, explanation.more_failures) = failure::of_job(&self.own, has_failed);
        }
        self.lines(&mut explanation);
        explanation
    }

    fn summary(&self) -> (State, String) {
        let JobView { spec, status, .. } = &*self.view;
        let of = spec.completions.map(|completions| format!(" of {completions}")).unwrap_or_default();
        let failed = if status.failed > 0 { format!(", {} failed", status.failed) } else { String::new() };
        let counts = format!("{}{of} succeeded{failed}", status.succeeded);
        if let Some(verdict) = status.terminal_condition() {
            let complete = verdict.kind == condition::COMPLETE;
            let how = if complete { "complete".to_owned() } else { format!("failed: {}", verdict.reason) };
            let message = if verdict.message.is_empty() { String::new() } else { format!(" ({})", verdict.message) };
            let at = verdict.last_transition_time.map(|at| format!(" since {at}")).unwrap_or_default();
            let has = if complete { "is" } else { "has" };
            let state = if complete { State::Complete } else { State::Failed };
            let mut summary = format!("The Job {has} {how}{message}{at}.");
            if !complete {
                summary.push_str(&format!(" {counts}."));
                let indexes = text(&self.evidence.object, "/status/failedIndexes");
                match indexes.get(..INDEX_LETTERS) {
                    Some(some) => summary.push_str(&format!(" Failed indexes: {some}...")),
                    None if !indexes.is_empty() => summary.push_str(&format!(" Failed indexes: {indexes}.")),
                    None => {}
                }
            }
            return (state, summary);
        }
        let running = self.own.iter().filter(|pod| pod.view.is_active()).count();
        let summary = format!("{counts}, {running} active.");
        (if self.view.deleting { State::Deleting } else { State::Running }, summary)
    }

    // ---- ends ----

    fn finished(&self, explanation: &mut Explanation) {
        if let Some(at) = lifetime::expires_at(&self.view) {
            explanation.next.push(NextStep { at, what: "the Job is deleted: its TTL ends".to_owned() });
        }
        if self.view.deleting {
            self.deleting(explanation);
        } else {
            self.uncounted("release the Pods", explanation);
        }
    }

    /// Pods that have ended and still have the finalizer.
    fn uncounted(&self, work: &str, explanation: &mut Explanation) {
        // A Pod that is deleted has failed, unless the Job waits for its end.
        let judges = !self.view.spec.waits_for_terminal_phase() && self.view.status.conditions.is_empty();
        let has_ended = |pod: &Pod<'_>| pod.view.phase.is_terminal() || (judges && pod.view.deleting());
        let pods = self.names(|pod| has_ended(pod) && pod.view.tracked);
        if pods.0.is_empty() || self.is_managed_elsewhere().is_some() {
            return;
        }
        let Some(stands) = controller::standing(self.evidence, work, self.settled_at, self.now) else { return };
        let uncounted = Reason { cause: Cause::UncountedPods { pods }, since: Some(self.settled_at) };
        match stands.cause {
            Cause::ControllerBehind { .. } => explanation.reasons.extend([uncounted, stands]),
            _ => explanation.reasons.extend([stands, uncounted]),
        }
    }

    fn deleting(&self, explanation: &mut Explanation) {
        explanation.state = State::Deleting;
        let deleted_at = crate::evidence::time(&self.evidence.object["metadata"]["deletionTimestamp"]);
        let all = finalizers(&self.evidence.object);
        let (collected, foreign): (Vec<String>, Vec<String>) =
            all.into_iter().partition(|name| COLLECTED.contains(&name.as_str()));
        let mut push = |cause| explanation.reasons.push(Reason { cause, since: deleted_at });
        if !foreign.is_empty() {
            let what = format!("Job {}", self.view.name);
            push(Cause::ForeignFinalizers { what, finalizers: foreign });
        }
        let foreground = collected.iter().any(|name| name == COLLECTED[0]);
        if foreground && !self.own.is_empty() {
            push(Cause::DeletionWaitsForPods { pods: self.names(|_| true) });
        } else if !collected.is_empty() && deleted_at.is_none_or(|at| at + SETTLES_WITHIN < self.now) {
            push(Cause::DeletionPending { finalizers: collected });
        }
        let problems = self.own.iter().filter(|pod| pod.view.deleting());
        let problems = group(problems.filter_map(|pod| pod.problem(self.evidence, self.now)));
        // Pods that end within their grace period need no mention.
        let long = |reason: &Reason| match &reason.cause {
            Cause::TerminatingPods { grace_ends, .. } => grace_ends.is_some_and(|at| at + SETTLES_WITHIN < self.now),
            _ => true,
        };
        explanation.reasons.extend(problems.into_iter().filter(long));
        self.uncounted("release the Pods of the Job", explanation);
        self.host_stopped("finish the deletion", explanation);
    }

    fn host_stopped(&self, work: &str, explanation: &mut Explanation) {
        let told = explanation.reasons.iter().any(|reason| matches!(reason.cause, Cause::ControllerNotRunning { .. }));
        if self.evidence.host == Host::Stopped && !told {
            explanation.reasons.insert(0, controller::stopped(self.evidence, work));
        }
    }

    /// What its manager would do is not known, but for what the fields of the Job mean.
    fn managed_elsewhere(&self, manager: &str, explanation: &mut Explanation) {
        let JobView { spec, status, .. } = &*self.view;
        let alive = status.active > 0 || self.own.iter().any(|pod| !pod.view.phase.is_terminal());
        let settled = self.settled_at + SETTLES_WITHIN < self.now;
        if spec.suspend {
            self.suspended(explanation);
        } else if *status == JobStatus::default() {
            let cause = Cause::ManagerNotSeen { manager: manager.to_owned() };
            let due = self.view.created_at + SETTLES_WITHIN < self.now;
            explanation.reasons.extend(due.then_some(Reason { cause, since: Some(self.view.created_at) }));
        } else {
            self.ending(explanation);
            // Its Pods may all be in another cluster: then it says nothing that those which failed are not here.
            let (plan, remembered) = self.plan();
            let remembered = remembered.filter(|_| !self.own.is_empty());
            self.held(&plan, remembered.as_ref(), explanation);
            if spec.waits_for_terminal_phase() {
                explanation.reasons.extend(self.terminating());
            }
        }
        explanation.reasons.extend(self.pod_problems());
        if explanation.reasons.is_empty() && !alive && settled {
            let why = format!("only the controller {manager:?} may do that (spec.managedBy)");
            let cause = match spec.parallelism <= 0 {
                true => Cause::NoParallelism,
                false => Cause::ControllerBehind { of: "Job", work: "go on with the Job".to_owned(), why },
            };
            explanation.reasons.push(Reason { cause, since: Some(self.settled_at) });
        }
    }

    // ---- a Job that has not ended ----

    fn suspended(&self, explanation: &mut Explanation) {
        let transition = self.view.status.true_condition(condition::SUSPENDED).and_then(|it| it.last_transition_time);
        let annotation = |name: &str| self.evidence.object["metadata"]["annotations"][name].as_str();
        let wanted = annotation(after::AFTER).and_then(|text| after::parse(text).ok()).unwrap_or_default();
        let state = AfterState::read(annotation(after::AFTER_STATE), &self.view.uid.to_string());
        let awaited: Vec<String> = state.awaited(&wanted).into_iter().map(str::to_owned).collect();
        let cause = match awaited.is_empty() || state.resumed {
            true => Cause::Suspended { what: "Job" },
            false => Cause::WaitsForJobs { jobs: awaited },
        };
        explanation.reasons.push(Reason { cause, since: transition.or(Some(self.view.created_at)) });
    }

    /// What is wrong with Pods that should run.
    fn pod_problems(&self) -> Vec<Reason> {
        let active = self.own.iter().filter(|pod| pod.view.is_active());
        group(active.filter_map(|pod| pod.problem(self.evidence, self.now)))
    }

    /// Pods that terminate.
    fn terminating(&self) -> Vec<Reason> {
        let terminating = self.own.iter().filter(|pod| pod.terminates());
        group(terminating.filter_map(|pod| pod.problem(self.evidence, self.now)))
    }

    /// The verdict is decided, and Pods are being ended. Returns the verdict.
    fn ending(&self, explanation: &mut Explanation) -> Option<&Condition> {
        let (verdict, success) = [(condition::SUCCESS_CRITERIA_MET, true), (condition::FAILURE_TARGET, false)]
            .into_iter()
            .find_map(|(kind, success)| Some((self.view.status.true_condition(kind)?, success)))?;
        let lost = |reason: &Reason| matches!(reason.cause, Cause::TerminatingOnLostNode { .. });
        explanation.reasons.extend(self.terminating().into_iter().filter(lost));
        let pods = self.names(|pod| !pod.view.phase.is_terminal());
        if !pods.0.is_empty() {
            let (reason, message) = (verdict.reason.to_string(), verdict.message.clone());
            let cause = Cause::EndingPods { success, reason, message, pods };
            explanation.reasons.push(Reason { cause, since: verdict.last_transition_time });
        }
        Some(verdict)
    }

    /// What the controller would do, and how long it may wait for failures of which only it knows.
    fn plan(&self) -> (Plan, Option<RememberedBackoff>) {
        let mut ledger = Ledger::new(self.view.clone(), Limits::default());
        for pod in &self.own {
            ledger.observe_pod(&pod.view, self.now);
        }
        let (last_at, _) = self.last_counted_at();
        let remembered = ledger.remembered_backoff(last_at, self.now);
        let others = Others(&self.others);
        let plan = ledger
            .plan(self.now, Horizon { pods_at: EVERYTHING, jobs_at: EVERYTHING, elsewhere: &others, crowded: false });
        (plan, remembered)
    }

    fn unfinished(&self, explanation: &mut Explanation) {
        let JobView { spec, status, .. } = &*self.view;
        let (plan, remembered) = self.plan();
        let work = Work::of(&plan, &self.view);
        let decided = self.ending(explanation);
        if decided.is_none() {
            self.held(&plan, remembered.as_ref(), explanation);
            if spec.waits_for_terminal_phase() && !spec.suspend {
                explanation.reasons.extend(self.terminating());
            }
            let problems = self.pod_problems();
            explanation.reasons.extend(problems);
        }
        self.refusals(&work, explanation);
        self.status_refused(&plan, explanation);
        let discards = matches!(plan.held, Some(Hold::Discarding { .. }));
        if explanation.reasons.is_empty() || work.count > 0 || work.finish || discards {
            self.undone(&work, remembered.as_ref(), explanation);
        }
        self.host_stopped("go on with the Job", explanation);
        if explanation.reasons.is_empty() && decided.is_none() && spec.parallelism <= 0 && status.active == 0 {
            let cause = Cause::NoParallelism;
            explanation.reasons.push(Reason { cause, since: Some(self.settled_at) });
        }
        // The Job has recorded them, and lost them since: as their owner, or by their labels.
        let lists = status.uncounted();
        let recorded = |pod: &&Pod<'_>| {
            pod.view.tracked && lists.succeeded.iter().chain(&lists.failed).any(|uid| *uid == pod.view.uid)
        };
        let lost = self.others.iter().filter(recorded).map(|pod| pod.view.name.to_string());
        let lost = PodNames(lost.collect());
        if explanation.reasons.is_empty() && !lost.0.is_empty() && self.settled_at + SETTLES_WITHIN < self.now {
            let cause = Cause::UncountedPods { pods: lost };
            explanation.reasons.push(Reason { cause, since: Some(self.settled_at) });
        }
        let alive = self.own.iter().any(|pod| !pod.view.phase.is_terminal());
        if explanation.reasons.is_empty() && !alive && work.is_empty() && self.settled_at + SETTLES_WITHIN < self.now {
            explanation.reasons.push(Reason { cause: Cause::Unknown, since: Some(self.settled_at) });
        }
        self.timers(explanation);
    }

    /// Why the ledger creates no Pods.
    fn held(&self, plan: &Plan, remembered: Option<&RememberedBackoff>, explanation: &mut Explanation) {
        match plan.held {
            Some(Hold::Suspended) => self.suspended(explanation),
            Some(Hold::Halting) => {
                let pods = self.names(|pod| pod.view.is_active());
                explanation.reasons.push(Reason { cause: Cause::Halting { pods }, since: Some(self.settled_at) });
            }
            Some(Hold::Discarding { .. }) => {
                explanation.reasons.push(Reason { cause: Cause::DiscardingPods, since: Some(self.settled_at) });
            }
            Some(Hold::Backoff(until) | Hold::IndexBackoff(until)) => {
                explanation.reasons.extend(self.backoff(plan, Some(until), remembered));
            }
            None if !plan.creations.is_empty() => {
                explanation.reasons.extend(self.backoff(plan, None, remembered));
            }
            _ => {}
        }
    }

    /// What the API has refused, and is still needed.
    fn refusals(&self, work: &Work, explanation: &mut Explanation) {
        let waits = explanation.reasons.iter().any(|reason| matches!(reason.cause, Cause::BackOff { gone: None, .. }));
        if work.create > 0 && !waits {
            if self.evidence.namespace_terminates() {
                let cause = Cause::NamespaceTerminating;
                explanation.reasons.insert(0, Reason { cause, since: Some(self.settled_at) });
            }
            let newest = self.own.iter().map(|pod| pod.view.created_at).max();
            if let Some(event) = self.evidence.last_event("Job", "FailedCreate", newest) {
                let message = event.message.trim_start_matches("Error creating: ").to_owned();
                let cause = match message.contains("exceeded quota") {
                    true => Cause::QuotaExceeded { message },
                    false => Cause::CreationRefused { what: "Pods", message },
                };
                let since = event.first_at.or(Some(event.last_at));
                explanation.reasons.insert(0, Reason { cause, since });
            }
        }
        if work.delete > 0
            && let Some(event) = self.evidence.last_event("Job", "FailedDelete", Some(self.settled_at))
        {
            let message = event.message.trim_start_matches("Error deleting: ").to_owned();
            let cause = Cause::DeletionRefused { message };
            explanation.reasons.insert(0, Reason { cause, since: event.first_at.or(Some(event.last_at)) });
        }
        if (work.count > 0 || work.finish)
            && let Some(event) = self.evidence.last_event("Job", "InvalidStatus", Some(self.settled_at))
        {
            let cause = Cause::StatusRefused { by_server: false, message: event.message.to_owned() };
            explanation.reasons.insert(0, Reason { cause, since: event.first_at.or(Some(event.last_at)) });
        }
    }

    /// EVENT-14: the server began to refuse the status, and has accepted none since.
    fn status_refused(&self, plan: &Plan, explanation: &mut Explanation) {
        let accepted = self.evidence.last_event("Job", "StatusAccepted", None).map(|event| event.last_at);
        // A new leader does not know of the refusals of the one before.
        let accepted_at = accepted.max(status_written_at(&self.evidence.object));
        if plan.status.is_some()
            && let Some(event) = self.evidence.last_event("Job", "StatusRefused", accepted_at)
        {
            let message = event.message.trim_start_matches("Error updating status: ").to_owned();
            let cause = Cause::StatusRefused { by_server: true, message };
            // The Event is about the beginning.
            explanation.reasons.insert(0, Reason { cause, since: Some(event.last_at) });
        }
    }

    /// The controller has something to do, and nothing else says why it is not done.
    fn undone(&self, work: &Work, remembered: Option<&RememberedBackoff>, explanation: &mut Explanation) {
        let refused =
            |reason: &Reason| matches!(reason.cause, Cause::StatusRefused { .. } | Cause::DeletionRefused { .. });
        if work.is_empty() || explanation.reasons.iter().any(refused) {
            return;
        }
        let before = explanation.reasons.len();
        self.uncounted(&work.words(), explanation);
        // Finished Pods are deleted first, by the controller.
        let discards = |reason: &Reason| matches!(reason.cause, Cause::DiscardingPods);
        if explanation.reasons.len() == before && explanation.reasons.iter().all(discards) {
            let stands = controller::standing(self.evidence, &work.words(), self.settled_at, self.now);
            let Some(stands) = stands else { return };
            match stands.cause {
                Cause::ControllerBehind { .. } => {
                    explanation.reasons.push(self.forgotten_backoff(work, remembered).unwrap_or(stands));
                }
                _ => explanation.reasons.insert(0, stands),
            }
        }
    }

    /// What happens by itself.
    fn timers(&self, explanation: &mut Explanation) {
        let JobView { spec, status, .. } = &*self.view;
        let mut step = |at: Timestamp, what: String| explanation.next.push(NextStep { at, what });
        if let (Some(start_at), Some(seconds), false) = (status.start_time, spec.active_deadline_seconds, spec.suspend)
        {
            let what = format!("the Job fails: its activeDeadlineSeconds ({seconds}) end");
            step(start_at + Span::from_seconds(seconds), what);
        }
        for reason in &explanation.reasons {
            match &reason.cause {
                Cause::BackOff { until: Some(until), gone: None, .. } => {
                    step(*until, "the next Pod is created".to_owned());
                }
                Cause::BackOff { until: Some(until), gone: Some(GoneFailures { unless_after: None, .. }), .. } => {
                    step(*until, "the next Pod is created, if not before".to_owned());
                }
                _ => {}
            }
        }
        for pod in &self.own {
            let view = &pod.view;
            if pod.terminates() {
                let what = format!("the grace period of Pod {} ends", view.name);
                pod.grace_ends().into_iter().for_each(|at| step(at, what.clone()));
                let gives_up_at = view.deletion_asked_at.zip(self.view.gives_up_after()).map(|(at, wait)| at + wait);
                let what =
                    format!("Pod {} is replaced if its node is lost (tally.dev/replace-terminating-after)", view.name);
                gives_up_at.into_iter().for_each(|at| step(at, what.clone()));
            }
        }
        let waits = |pod: &&Pod<'_>| pod.view.is_active() && pod.view.phase == Phase::Pending && !pod.view.start_gated;
        let pending = self.own.iter().filter(waits);
        let limits = spec.pending_timeouts.as_ref().filter(|_| !spec.suspend);
        let due_at = limits.and_then(|limits| {
            pending.filter_map(|pod| limits.due_at(pod.view.created_at, pod.view.pending.as_deref())).min()
        });
        if let Some(at) = due_at {
            step(at, "the Job fails if a Pod is still pending (tally.dev/pending-timeout)".to_owned());
        }
        let ttl = spec.ttl_seconds_after_finished;
        if let Some(ttl) = ttl.filter(|_| explanation.next.len() < 2) {
            explanation.summary.push_str(&format!(" It is deleted {ttl} s after its end."));
        }
    }

    fn lines(&self, explanation: &mut Explanation) {
        let lines = &mut explanation.evidence;
        let interesting =
            |pod: &&Pod<'_>| !pod.view.phase.is_terminal() || pod.view.tracked || !pod.foreign_finalizers().is_empty();
        let quiet = explanation.reasons.is_empty();
        let shown: Vec<&Pod<'_>> = self.own.iter().filter(interesting).collect();
        if !quiet {
            lines.extend(shown.iter().take(SHOWN).map(|pod| pod.line()));
            if shown.len() > SHOWN {
                lines.push(format!("{} more Pods", shown.len() - SHOWN));
            }
            controller::node_lines(self.evidence, self.own.iter().map(|pod| pod.view.node_name.as_str()), lines);
            for kind in [condition::SUSPENDED, condition::FAILURE_TARGET, condition::SUCCESS_CRITERIA_MET] {
                if let Some(known) = self.view.status.true_condition(kind) {
                    let since = known.last_transition_time.map(|at| format!(" since {at}")).unwrap_or_default();
                    lines.push(format!("Condition {kind}: {}{since}", known.reason));
                }
            }
            let of_job = finalizers(&self.evidence.object);
            if !of_job.is_empty() {
                lines.push(format!("Finalizers of the Job: {}", of_job.join(", ")));
            }
            if explanation.reasons.iter().any(|reason| matches!(reason.cause, Cause::QuotaExceeded { .. })) {
                controller::quota_lines(self.evidence, lines);
            }
            let about_controller = |reason: &Reason| {
                matches!(
                    reason.cause,
                    Cause::ControllerNotRunning { .. } | Cause::ControllerBehind { .. } | Cause::UncountedPods { .. }
                )
            };
            if explanation.reasons.iter().any(about_controller) {
                controller::lease_lines(self.evidence, lines);
                if self.own.iter().any(|pod| pod.view.tracked) {
                    lines.push(format!("Finalizer of Pods that are not counted: {TRACKING_FINALIZER}"));
                }
                let name = text(&self.evidence.object, "/metadata/name");
                lines.push(format!("Job {name} and its Pods last changed at {}", self.settled_at));
            }
            controller::event_lines(self.evidence, lines);
        }
    }
}
