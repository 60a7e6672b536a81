//! The main loop of a run: watch events update the model, and the model is shown to the user, with what tasks print.
//!
//! What tasks print is chosen by `display`, read by `outputs`, put in order by `turns`, split by `lines` and shown by
//! `tasks`.

pub mod backoffs;
pub mod display;
pub mod lines;
pub mod logs;
mod never;
pub mod outputs;
pub mod tasks;
pub mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tally_api::catalog;
use tally_api::kinds::Resource;
use tally_api::options::{ListOptions, PatchKind, WatchOptions, WriteOptions};
use tally_core::pod::{Phase, PodView};
use tally_node::attempts::AttemptRecord;
use tally_node::notes::Notes;
use tally_node::output::{OutputEvent, OutputSource};
use tally_node::shim::log::Stream;
use tally_registry::{Object, Registry, Target, WatchEvent, WatchStream};
use tally_runtime::driver::wall_clock;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::cluster::RunningCluster;
use super::explaining::Explaining;
use super::outcome::RunError;
use super::progress::model::{Model, PodFailure};
use super::progress::output::{Output, TaskName};
use super::progress::render::LOG_LINES;
use super::progress::view::{JobText, PodText};
use super::tui::RunView;
use crate::signals::{Stop, asked};
use backoffs::BackoffNotices;
use lines::Piece;
use logs::{HollowLogs, Logs, PodId};
use outputs::Outputs;

/// Interval for drawing and printing plain lines.
const BEAT: Duration = Duration::from_millis(100);
/// Interval for looking whether tasks that run have printed something. Users do not notice this delay.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How many times the output of ended tasks is shown before the failure of one of them, at most: a part of each at a time.
const SHOWN_BEFORE_FAILURE: usize = 64;

/// How the run ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Finished,
    Interrupted,
}

pub struct Follow<'a> {
    pub registry: &'a Registry,
    pub model: &'a mut Model,
    pub output: &'a mut Output,
    pub logs: Arc<dyn Logs>,
    /// What tasks print, unless they run on hollow nodes.
    pub outputs: Option<Outputs>,
    /// The Pods of hollow nodes whose line has been printed. None: these lines are not printed.
    pub hollow_told: Option<BTreeSet<String>>,
    /// The lines of those that run: printed when they end, or at the end of the run.
    pub hollow_running: BTreeMap<String, (TaskName, String)>,
    /// How the attempts of Pods ended that did not succeed, until the failure is reported. By the UID of the Pod.
    pub failed_attempts: BTreeMap<String, Vec<AttemptRecord>>,
    /// The ends of logs are shown with failures.
    pub tails: bool,
    /// Some Pods restart failed containers in place, so running Pods must be watched, too.
    pub restarts: bool,
    pub began: Instant,
    /// The Pods run on this machine.
    pub here: bool,
    pub explaining: Explaining,
    /// The view over the run. None: there is none.
    pub view: Option<RunView>,
    /// Why a Pod can never start: the Job, the Pod and the reason.
    pub never: Option<Never>,
}

/// A Pod that can never start.
#[derive(Debug)]
pub struct Never {
    job: String,
    pod: String,
    reason: String,
}

impl Follow<'_> {
    pub async fn run(&mut self, working: RunningCluster, mut stop: watch::Receiver<Stop>) -> Result<End, RunError> {
        let jobs = resource("batch", "jobs")?;
        let pods = resource("", "pods")?;
        // Otherwise only failures are needed, which are few even for a large Job.
        let all = self.hollow_told.is_some() || self.restarts;
        let field_selector = if all { "" } else { "status.phase!=Succeeded,status.phase!=Running" };
        let mut job_news = self.watch(jobs, "")?;
        let mut pod_news = self.watch(pods, field_selector)?;
        let mut beat = tokio::time::interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let outputs = self.outputs.as_ref().map(Outputs::queue);
        // There may be more to show right now.
        let mut more = false;
        let notes = working.notes();
        let backoffs = working.backoffs();
        let working = Shared::new(working);
        // Not in the loop below: it may block on a reader that does not read its output, and then nothing would be
        // stopped.
        let mut ending = tokio::spawn(working.clone().end_when(stop.clone()));
        loop {
            tokio::select! {
                event = job_news.next() => match event {
                    Some(WatchEvent::Failed(_)) | None => job_news = self.watch(jobs, "")?,
                    Some(event) => self.job_news(&event),
                },
                // Failures can wait for the next beat: waking up for every Pod costs more than looking at it.
                event = pod_news.next(), if all => match event {
                    Some(WatchEvent::Failed(_)) | None => pod_news = self.watch(pods, field_selector)?,
                    Some(event) => self.pod_news(&event),
                },
                event = async { match &outputs {
                    Some(outputs) => outputs.next().await,
                    None => std::future::pending().await,
                } } => more |= self.heard(event),
                () = std::future::ready(()), if more => more = self.show_tasks(),
                _ = look.tick(), if self.outputs.as_ref().is_some_and(|outputs| !outputs.tasks.is_empty()) => more |= self.show_tasks(),
                _ = beat.tick() => {
                    while let Some(event) = pod_news.try_next() {
                        match event {
                            WatchEvent::Failed(_) => pod_news = self.watch(pods, field_selector)?,
                            event => self.pod_news(&event),
                        }
                    }
                    self.tell(&notes);
                    self.wait(&backoffs);
                    self.beat();
                    if let Some(view) = &mut self.view {
                        view.beat(&stop, self.output).await;
                    }
                    if let Some(trouble) = self.trouble(&working) {
                        ending.abort();
                        if let Some(working) = working.take() {
                            let _ = match self.registry.poisoned() {
                                Some(_) => working.abandon().await,
                                None => working.finish().await,
                            };
                        }
                        if let Some(outputs) = &mut self.outputs {
                            outputs.finish(self.output);
                        }
                        return Err(RunError::Environment(trouble));
                    }
                }
                () = asked(&mut stop), if !self.model.stopping => {
                    self.model.stopping = true;
                    if let Some(view) = &mut self.view {
                        view.close(self.output).await;
                    }
                }
                ended = &mut ending => {
                    let machine = |error: anyhow::Error| RunError::Environment(format!("{error:#}"));
                    ended.map_err(|error| machine(error.into()))?.map_err(machine)?;
                    self.last_news(&mut job_news, &mut pod_news);
                    self.tell(&notes);
                    return Ok(End::Interrupted);
                }
            }
            self.run_parts().await?;
            // Unless a stop was just requested: then the shutdown is already under way.
            if self.model.is_finished()
                && !self.model.stopping
                && let Some(working) = working.take()
            {
                // While the node can still be told what has been read. After that, only what had not ended is left.
                while self.show_tasks() && self.outputs.as_ref().is_some_and(Outputs::has_ended_tasks) {}
                if let Some(outputs) = &mut self.outputs {
                    outputs.released().await;
                }
                let finished = working.finish().await;
                self.last_news(&mut job_news, &mut pod_news);
                finished.map_err(|error| RunError::Environment(format!("{error:#}")))?;
                self.tell(&notes);
                return Ok(End::Finished);
            }
        }
    }

    /// Lets the parts of a list begin when those before them leave room, and stops them when one has failed.
    async fn run_parts(&mut self) -> Result<(), RunError> {
        while !self.model.stopping
            && let Some((namespace, change)) = self.model.next_change()
        {
            let target = Target::new(resource("batch", "jobs")?, &namespace, &change.job);
            let body = change.patch.to_string();
            match self.registry.patch(target, body.as_bytes(), PatchKind::Merge, &WriteOptions::default()).await {
                // A user of the same cluster may have deleted the Job; the watch shows that.
                Err(failure) if !matches!(failure.code, 404 | 409) => {
                    return Err(RunError::Environment(failure.message));
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn watch(&self, resource: &'static Resource, field_selector: &str) -> Result<WatchStream, RunError> {
        let options = WatchOptions { field_selector: field_selector.to_owned(), ..WatchOptions::default() };
        let stream = self.registry.watch(Target::new(resource, "", ""), &options);
        stream.map_err(|failure| RunError::Environment(failure.message))
    }

    fn job_news(&mut self, event: &WatchEvent) {
        let now = self.now();
        match event {
            WatchEvent::Added(job) | WatchEvent::Modified(job) => {
                if let Some(job) = read::<JobText>(job) {
                    self.model.saw_job(&job, now);
                    self.order_tasks(&job);
                }
            }
            WatchEvent::Deleted(job) => {
                if let Some(job) = read::<JobText>(job) {
                    self.model.lost_job(&job.metadata.uid, now);
                    self.order_tasks(&job);
                }
            }
            WatchEvent::Bookmark { .. } | WatchEvent::Failed(_) => {}
        }
    }

    fn pod_news(&mut self, event: &WatchEvent) {
        match event {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                if self.begins_in_order(pod) {
                    return;
                }
                let Some(pod) = read::<PodText>(pod) else { return };
                self.show_hollow(&pod);
                // The shim tells the end of an attempt before the status of its Pod is written.
                if self.output.is_json() {
                    self.outputs.iter_mut().for_each(Outputs::hear_all);
                    self.tell_ends();
                }
                while let Some(crash) = self.model.saw_crash(&pod) {
                    if self.tails {
                        look_at_log(self.logs.as_ref(), crash);
                    }
                    let mut crash = crash.clone();
                    crash.record = self.failed_attempt(&crash);
                    self.tell_failure(&pod, &crash);
                }
                self.look_whether_it_can_start(&pod);
                let Some(failure) = self.model.saw_pod(&pod) else { return };
                if self.tails {
                    look_at_log(self.logs.as_ref(), failure);
                }
                let mut failure = failure.clone();
                failure.record = self.failed_attempt(&failure);
                self.failed_attempts.remove(&failure.uid);
                self.tell_failure(&pod, &failure);
            }
            WatchEvent::Deleted(pod) => {
                if self.begins_in_order(pod) {
                    return;
                }
                let Some(pod) = read::<PodText>(pod) else { return };
                // A Pod that begins to run only leaves the selection of the watch, which shows it as it was before: its
                // attempt may have failed by now.
                if pod.status.has_ended() {
                    self.failed_attempts.remove(&pod.metadata.uid);
                }
                self.model.lost_pod(&pod);
            }
            WatchEvent::Bookmark { .. } | WatchEvent::Failed(_) => {}
        }
    }

    /// Whether the Pod has not begun to run, and there is nothing to say about it. That is so for most of what the watch shows,
    /// and the view, which the controllers have made, is enough to know it.
    fn begins_in_order(&self, pod: &Object) -> bool {
        PodView::of(pod).is_ok_and(|pod| {
            !self.restarts && pod.phase == Phase::Pending && pod.pending.is_none() && !self.model.has_trouble_with(&pod)
        })
    }

    /// Reports the attempts that have ended: a success at once, others with the failure of their Pod.
    fn tell_ends(&mut self) {
        let Some(outputs) = &mut self.outputs else { return };
        for (job, record) in std::mem::take(&mut outputs.ended) {
            let Some(job) = self.model.job(&job) else { continue };
            if record.succeeded() {
                self.output.succeeded(job, &record);
            } else if record.exit_code.is_some() {
                self.failed_attempts.entry(record.pod_uid.to_string()).or_default().push(record);
            }
        }
    }

    fn failed_attempt(&self, failure: &PodFailure) -> Option<Box<AttemptRecord>> {
        let attempts = self.failed_attempts.get(&failure.uid)?;
        let is_it = |record: &&AttemptRecord| {
            record.container == failure.container && failure.crash.is_none_or(|number| record.restarts == number)
        };
        attempts.iter().rev().find(is_it).cloned().map(Box::new)
    }

    /// The machine is looked at only for a Pod that waits: most never do.
    fn look_whether_it_can_start(&mut self, pod: &PodText) {
        let waits = pod.status.unscheduled().is_some() || pod.status.stuck().is_some();
        if !self.here || !waits || self.never.is_some() || pod.status.has_ended() {
            return;
        }
        let Some(job) = pod.metadata.job().and_then(|uid| self.model.job(uid)) else { return };
        let nodes = resource("", "nodes")
            .ok()
            .and_then(|nodes| self.registry.list(Target::new(nodes, "", ""), &ListOptions::default()).ok());
        let node = nodes.and_then(|nodes| read::<serde_json::Value>(nodes.items.first()?));
        let found = node.as_ref().and_then(never::Machine::of).and_then(|machine| machine.never(pod));
        if let Some((reason, stuck)) = found {
            self.output.never_starts(job, &stuck);
            self.never = Some(Never { job: job.name.clone(), pod: stuck.pod, reason });
        }
    }

    /// What a task has printed comes before its failure: the shim tells the end of an attempt before the status is written.
    fn tell_failure(&mut self, pod: &PodText, failure: &PodFailure) {
        for _ in 0..SHOWN_BEFORE_FAILURE {
            if !self.show_tasks() || !self.outputs.as_ref().is_some_and(Outputs::has_ended_tasks) {
                break;
            }
        }
        if let Some(job) = pod.metadata.job().and_then(|uid| self.model.job(uid)) {
            self.output.failed(job, failure);
        }
    }

    /// Handles the events that were pending when the last Job ended.
    fn last_news(&mut self, jobs: &mut WatchStream, pods: &mut WatchStream) {
        while let Some(event) = jobs.try_next() {
            self.job_news(&event);
        }
        while let Some(event) = pods.try_next() {
            self.pod_news(&event);
        }
        for line in std::mem::take(&mut self.hollow_running).into_values() {
            self.print_hollow(line);
        }
        if let Some(outputs) = &mut self.outputs {
            outputs.finish(self.output);
        }
        self.tell_ends();
    }

    /// Prints the notices of the node that do not belong to a single Pod.
    fn tell(&mut self, notes: &Notes) {
        notes.take().iter().for_each(|note| self.output.note(note));
    }

    /// Shows what Jobs wait for before they retry.
    fn wait(&mut self, backoffs: &BackoffNotices) {
        for (job, notice) in backoffs.take() {
            let left = (notice.retry_at - wall_clock()).millis();
            let until = self.now() + Duration::from_millis(u64::try_from(left).unwrap_or(0));
            self.model.waits(&job.to_string(), notice, until);
        }
    }

    fn beat(&mut self) {
        let now = self.now();
        self.model.tick(now);
        self.explaining.beat(self.model, now);
        self.output.beat(self.model, now);
    }

    /// Returns whether there is something to show at once: output that grows is looked at from time to time.
    fn heard(&mut self, event: OutputEvent) -> bool {
        let at_once = matches!(event, OutputEvent::Ended { .. } | OutputEvent::AllEnded);
        if let Some(outputs) = &mut self.outputs {
            outputs.hear(event);
        }
        self.tell_ends();
        at_once
    }

    /// Returns whether there may be more to show right now.
    fn show_tasks(&mut self) -> bool {
        let Some(outputs) = &mut self.outputs else { return false };
        outputs.hear_all();
        outputs.show(self.output, Instant::now())
    }

    /// Tells the order of the tasks how far a Job has come.
    fn order_tasks(&mut self, job: &JobText) {
        let Some(outputs) = &mut self.outputs else { return };
        // What the finished tasks have printed is known by now.
        outputs.hear_all();
        if !outputs.tasks.has_order() {
            return;
        }
        let Some((at, first_open)) = self.model.first_open(job) else { return };
        outputs.tasks.finished_before(at, self.model.jobs()[at].state.is_finished(), first_open);
    }

    /// Pods of hollow nodes print one line, when they have ended.
    fn show_hollow(&mut self, pod: &PodText) {
        let (Some(told), Some(job)) = (&mut self.hollow_told, pod.metadata.job()) else { return };
        let Some(job) = self.model.job(job).filter(|_| pod.status.has_ended() || pod.status.phase == "Running") else {
            return;
        };
        if told.contains(&pod.metadata.uid) {
            return;
        }
        let id = PodId {
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        };
        let source = OutputSource { job_name: job.name.as_str().into(), ..pod.output_source(&job.uid) };
        let line = (TaskName::new(source, "main"), HollowLogs::said(&id));
        if !pod.status.has_ended() {
            self.hollow_running.insert(id.uid, line);
            return;
        }
        told.insert(id.uid.clone());
        self.hollow_running.remove(&id.uid);
        self.print_hollow(line);
    }

    fn print_hollow(&mut self, (name, text): (TaskName, String)) {
        let piece = Piece { stream: Stream::Stdout, begins: true, text: text.as_bytes(), ends: true };
        self.output.task_line(&name, piece, false);
        self.output.flush_tasks();
    }

    /// Why the run cannot continue.
    fn trouble(&self, working: &Shared) -> Option<String> {
        if let Some(reason) = self.registry.poisoned() {
            return Some(format!("the store no longer accepts writes: {reason}"));
        }
        if let Some(reason) = self.outputs.as_ref().and_then(|outputs| outputs.no_result.clone()) {
            return Some(reason);
        }
        if let Some(Never { job, pod, reason }) = &self.never {
            return Some(format!("Job {job}: Pod {pod} can never start here: {reason}"));
        }
        working.has_ended().then(|| "the controllers or the node stopped unexpectedly".to_owned())
    }
}

pub fn resource(group: &str, plural: &str) -> Result<&'static Resource, RunError> {
    catalog::find(group, "v1", plural).ok_or_else(|| RunError::Environment(format!("no {plural} are served")))
}

fn read<T: DeserializeOwned>(object: &Object) -> Option<T> {
    object.read().ok()
}

fn look_at_log(logs: &dyn Logs, failure: &mut PodFailure) {
    let pod = PodId { namespace: failure.namespace.clone(), name: failure.pod.clone(), uid: failure.uid.clone() };
    failure.log = Some(logs.tail(&pod, &failure.container, failure.crash, LOG_LINES));
}

/// The running controllers and node, until one task takes them to stop them.
#[derive(Clone)]
struct Shared(Arc<Mutex<Option<RunningCluster>>>);

impl Shared {
    fn new(working: RunningCluster) -> Self {
        Self(Arc::new(Mutex::new(Some(working))))
    }

    fn lock(&self) -> MutexGuard<'_, Option<RunningCluster>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<RunningCluster> {
        self.lock().take()
    }

    fn has_ended(&self) -> bool {
        self.lock().as_ref().is_some_and(RunningCluster::has_ended)
    }

    async fn end_when(self, mut stop: watch::Receiver<Stop>) -> anyhow::Result<()> {
        if stop.wait_for(|stop| *stop != Stop::No).await.is_err() {
            // The sender is gone: no stop can be requested any more.
            return std::future::pending().await;
        }
        match self.take() {
            Some(working) => working.end().await,
            // They are being stopped already.
            None => std::future::pending().await,
        }
    }
}

/// The UIDs of Pods that had ended before this run began: their output and their failures were reported then. Must be
/// called before the controllers and the node start.
pub fn over(registry: &Registry) -> Result<Vec<String>, RunError> {
    let pods = registry.list(Target::new(resource("", "pods")?, "", ""), &ListOptions::default());
    let pods = pods.map_err(|failure| RunError::Environment(failure.message))?;
    let ended = pods.items.iter().filter_map(read::<PodText>).filter(|pod| pod.status.has_ended());
    Ok(ended.map(|pod| pod.metadata.uid).collect())
}
