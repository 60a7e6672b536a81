//! Jobs that this process runs: the changes come from its registry, and what tasks print from its node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tally_api::options::{ListOptions, WatchOptions};
use tally_core::pod::{Phase, PodView};
use tally_node::attempts::AttemptRecord;
use tally_node::notes::Notes;
use tally_node::output::{OutputEvent, OutputSource};
use tally_node::shim::log::Stream;
use tally_registry::{Object, Registry, Target, WatchEvent, WatchStream};
use tally_runtime::controller::Kind;
use tokio::sync::watch::Receiver;
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior};

use super::lines::Piece;
use super::outputs::Outputs;
use super::{End, Ended, EventSource, Reporter, logs, never};
use crate::run::cluster::RunningCluster;
use crate::run::outcome::RunError;
use crate::run::progress::model::{Model, PodFailure};
use crate::run::progress::output::{Output, TaskName};
use crate::run::progress::render::LOG_LINES;
use crate::run::progress::view::{JobText, PodText};
use crate::signals::Stop;
use crate::watch::Inbox;

/// Interval for looking whether tasks that run have printed something. Users do not notice this delay.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How many times the output of ended tasks is shown before the failure of one of them, at most: a part of each at a time.
const SHOWN_BEFORE_FAILURE: usize = 64;

/// How the Jobs are shown.
pub struct LocalOptions {
    /// The Pods of hollow nodes whose line has been printed. None: these lines are not printed.
    pub hollow: Option<BTreeSet<String>>,
    /// The ends of logs are shown with failures.
    pub tails: bool,
    /// Some Pods restart failed containers in place, so running Pods must be watched, too.
    pub restarts: bool,
    /// The Pods run on this machine.
    pub here: bool,
}

/// The Jobs of this process.
pub struct LocalJobs {
    registry: Arc<Registry>,
    running: Shared,
    /// The same, when all Jobs have finished.
    finishing: Option<RunningCluster>,
    notes: Arc<Notes>,
    backoffs: Arc<Inbox>,
    jobs: WatchStream,
    pods: WatchStream,
    look: Interval,
    /// Where the node has its files. None: the nodes are hollow.
    files: Option<PathBuf>,
    /// What tasks print, unless they run on hollow nodes.
    pub outputs: Option<Outputs>,
    options: LocalOptions,
    /// The lines of hollow Pods that run: printed when they end, or at the end of the run.
    hollow_running: BTreeMap<String, (TaskName, String)>,
    /// How the attempts of Pods ended that did not succeed, until the failure is reported. By the UID of the Pod.
    failed_attempts: BTreeMap<String, Vec<AttemptRecord>>,
    /// Why a Pod can never start.
    never: Option<Never>,
}

/// A Pod that can never start.
#[derive(Debug)]
struct Never {
    job: String,
    pod: String,
    reason: String,
}

pub enum LocalEvent {
    /// None: the stream has ended.
    Job(Option<WatchEvent>),
    Pod(Option<WatchEvent>),
    Output(OutputEvent),
    /// Tasks that run may have printed something.
    Look,
}

impl LocalJobs {
    pub fn new(
        registry: &Arc<Registry>,
        running: RunningCluster,
        outputs: Option<Outputs>,
        options: LocalOptions,
    ) -> Result<Self, RunError> {
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            registry: registry.clone(),
            notes: running.notes(),
            backoffs: running.backoffs(),
            jobs: watch(registry, Kind::JOB, "")?,
            pods: watch(registry, Kind::POD, options.pods())?,
            look,
            files: running.files(),
            running: Shared::new(running),
            finishing: None,
            outputs,
            options,
            hollow_running: BTreeMap::new(),
            failed_attempts: BTreeMap::new(),
            never: None,
        })
    }

    /// Stops everything when the user requests that. Not in the loop, which may block on a reader that does not read its
    /// output: then nothing would be stopped.
    pub fn end_when(&self, stop: Receiver<Stop>) -> JoinHandle<Result<Vec<String>, RunError>> {
        tokio::spawn(self.running.clone().end_when(stop))
    }

    fn job_changed(&mut self, reporter: &mut Reporter<'_>, event: &WatchEvent) {
        let now = reporter.now();
        match event {
            WatchEvent::Added(job) | WatchEvent::Modified(job) => {
                if let Some(job) = read::<JobText>(job) {
                    reporter.model.saw_job(&job, now);
                    self.order_tasks(reporter.model, &job);
                }
            }
            WatchEvent::Deleted(job) => {
                if let Some(job) = read::<JobText>(job) {
                    reporter.model.lost_job(&job.metadata.uid, now);
                    self.order_tasks(reporter.model, &job);
                }
            }
            WatchEvent::Bookmark { .. } | WatchEvent::Failed(_) => {}
        }
    }

    fn pod_changed(&mut self, reporter: &mut Reporter<'_>, event: &WatchEvent) {
        let (WatchEvent::Added(pod) | WatchEvent::Modified(pod) | WatchEvent::Deleted(pod)) = event else { return };
        if self.begins_in_order(reporter.model, pod) {
            return;
        }
        let Some(pod) = read::<PodText>(pod) else { return };
        if matches!(event, WatchEvent::Deleted(_)) {
            // A Pod that begins to run only leaves the selection of the watch, which shows it as it was before: its
            // attempt may have failed by now.
            if pod.status.has_ended() {
                self.failed_attempts.remove(&pod.metadata.uid);
            }
            reporter.model.lost_pod(&pod);
            return;
        }
        self.show_hollow(reporter, &pod);
        // The shim reports the end of an attempt before the status of its Pod is written.
        if reporter.output.is_json() {
            self.outputs.iter_mut().for_each(Outputs::hear_all);
            self.report_ends(reporter);
        }
        while let Some(crash) = reporter.model.saw_crash(&pod) {
            let crash = self.with_details(crash);
            self.report_failure(reporter, &pod, &crash);
        }
        self.look_whether_it_can_start(reporter, &pod);
        let Some(failure) = reporter.model.saw_pod(&pod) else { return };
        let failure = self.with_details(failure);
        self.failed_attempts.remove(&failure.uid);
        self.report_failure(reporter, &pod, &failure);
    }

    /// Whether the Pod has not begun to run, and there is nothing to say about it. That is so for most of what the watch shows,
    /// and the view, which the controllers have made, is enough to know it.
    fn begins_in_order(&self, model: &Model, pod: &Object) -> bool {
        PodView::of(pod).is_ok_and(|pod| {
            !self.options.restarts
                && pod.phase == Phase::Pending
                && pod.pending.is_none()
                && !model.has_trouble_with(&pod)
        })
    }

    /// Reports the attempts that have ended: a success at once, others with the failure of their Pod.
    fn report_ends(&mut self, reporter: &mut Reporter<'_>) {
        let Some(outputs) = &mut self.outputs else { return };
        for (job, record) in std::mem::take(&mut outputs.ended) {
            let Some(job) = reporter.model.job(&job) else { continue };
            if record.succeeded() {
                reporter.output.succeeded(job, &record);
            } else if record.exit_code.is_some() {
                self.failed_attempts.entry(record.pod_uid.to_string()).or_default().push(record);
            }
        }
    }

    /// A failure with the end of its log, which the summary shows, too, and with the record of its attempt.
    fn with_details(&self, failure: &mut PodFailure) -> PodFailure {
        if self.options.tails {
            failure.log = Some(match &self.files {
                Some(root) => logs::tail(root, &failure.uid, &failure.container, failure.crash, LOG_LINES),
                None => vec![logs::hollow_line(&failure.pod)],
            });
        }
        let is_it = |record: &&AttemptRecord| {
            record.container == failure.container && failure.crash.is_none_or(|number| record.restarts == number)
        };
        let attempts = self.failed_attempts.get(&failure.uid).into_iter().flatten();
        PodFailure { record: attempts.rev().find(is_it).cloned().map(Box::new), ..failure.clone() }
    }

    /// What a task has printed comes before its failure: the shim reports the end of an attempt before the status is written.
    fn report_failure(&mut self, reporter: &mut Reporter<'_>, pod: &PodText, failure: &PodFailure) {
        for _ in 0..SHOWN_BEFORE_FAILURE {
            if !self.show_tasks(reporter.output) || !self.has_ended_tasks() {
                break;
            }
        }
        reporter.failed(pod, failure);
    }

    /// The machine is looked at only for a Pod that waits: most never do.
    fn look_whether_it_can_start(&mut self, reporter: &mut Reporter<'_>, pod: &PodText) {
        let waits = pod.status.unscheduled().is_some() || pod.status.stuck().is_some();
        if !self.options.here || !waits || self.never.is_some() || pod.status.has_ended() {
            return;
        }
        let Some(job) = pod.metadata.job().and_then(|uid| reporter.model.job(uid)) else { return };
        let nodes = target(Kind::NODE).ok().and_then(|nodes| self.registry.list(nodes, &ListOptions::default()).ok());
        let node = nodes.and_then(|nodes| read::<serde_json::Value>(nodes.items.first()?));
        let found = node.as_ref().and_then(never::Machine::of).and_then(|machine| machine.never(pod));
        if let Some((reason, stuck)) = found {
            reporter.output.never_starts(job, &stuck);
            self.never = Some(Never { job: job.name.clone(), pod: stuck.pod, reason });
        }
    }

    /// Handles the events that were pending when the last Job ended.
    fn take_rest(&mut self, reporter: &mut Reporter<'_>) {
        while let Some(event) = self.jobs.try_next() {
            self.job_changed(reporter, &event);
        }
        while let Some(event) = self.pods.try_next() {
            self.pod_changed(reporter, &event);
        }
        for line in std::mem::take(&mut self.hollow_running).into_values() {
            print_hollow(reporter.output, line);
        }
        if let Some(outputs) = &mut self.outputs {
            outputs.finish(reporter.output);
        }
        self.report_ends(reporter);
    }

    /// Prints the notices of the node that do not belong to a single Pod.
    fn print_notes(&self, output: &mut Output) {
        self.notes.take().iter().for_each(|note| output.note(note));
    }

    fn has_ended_tasks(&self) -> bool {
        self.outputs.as_ref().is_some_and(Outputs::has_ended_tasks)
    }

    /// Updates how far a Job has come in the order of the tasks.
    fn order_tasks(&mut self, model: &Model, job: &JobText) {
        let Some(outputs) = &mut self.outputs else { return };
        // What the finished tasks have printed is known by now.
        outputs.hear_all();
        if outputs.tasks.has_order()
            && let Some((at, is_finished, first_open)) = model.first_open(job)
        {
            outputs.tasks.finished_before(at, is_finished, first_open);
        }
    }

    /// Pods of hollow nodes print one line, when they have ended.
    fn show_hollow(&mut self, reporter: &mut Reporter<'_>, pod: &PodText) {
        let (Some(shown), Some(job)) = (&mut self.options.hollow, pod.metadata.job()) else { return };
        let begun = pod.status.has_ended() || pod.status.phase == "Running";
        let Some(job) = reporter.model.job(job).filter(|_| begun) else { return };
        let uid = &pod.metadata.uid;
        if shown.contains(uid) {
            return;
        }
        let source = OutputSource { job_name: job.name.as_str().into(), ..pod.output_source(&job.uid) };
        let line = (TaskName::new(source, "main"), logs::hollow_line(&pod.metadata.name));
        if !pod.status.has_ended() {
            self.hollow_running.insert(uid.clone(), line);
            return;
        }
        shown.insert(uid.clone());
        self.hollow_running.remove(uid);
        print_hollow(reporter.output, line);
    }

    /// Why the run cannot continue.
    fn cannot_continue(&self) -> Option<String> {
        if let Some(reason) = self.registry.poisoned() {
            return Some(format!("the store no longer accepts writes: {reason}"));
        }
        if let Some(reason) = self.outputs.as_ref().and_then(|outputs| outputs.no_result.clone()) {
            return Some(reason);
        }
        if let Some(Never { job, pod, reason }) = &self.never {
            return Some(format!("Job {job}: Pod {pod} can never start here: {reason}"));
        }
        self.running.has_ended().then(|| "the controllers or the node stopped unexpectedly".to_owned())
    }
}

impl EventSource for LocalJobs {
    type Event = LocalEvent;

    async fn next(&mut self) -> LocalEvent {
        let outputs = async {
            match &self.outputs {
                Some(outputs) => outputs.queue().next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = self.jobs.next() => LocalEvent::Job(event),
            // Failures can wait for the next beat: waking up for every Pod costs more than looking at it.
            event = self.pods.next(), if self.options.needs_all_pods() => LocalEvent::Pod(event),
            event = outputs => LocalEvent::Output(event),
            _ = self.look.tick(), if self.outputs.as_ref().is_some_and(|outputs| !outputs.tasks.is_empty()) => {
                LocalEvent::Look
            }
        }
    }

    fn handle(&mut self, reporter: &mut Reporter<'_>, event: LocalEvent) -> Result<bool, RunError> {
        match event {
            LocalEvent::Job(Some(WatchEvent::Failed(_)) | None) => self.jobs = watch(&self.registry, Kind::JOB, "")?,
            LocalEvent::Job(Some(event)) => self.job_changed(reporter, &event),
            LocalEvent::Pod(Some(WatchEvent::Failed(_)) | None) => {
                self.pods = watch(&self.registry, Kind::POD, self.options.pods())?;
            }
            LocalEvent::Pod(Some(event)) => self.pod_changed(reporter, &event),
            LocalEvent::Output(event) => {
                // Output that grows is looked at from time to time.
                let at_once = matches!(event, OutputEvent::Ended { .. } | OutputEvent::AllEnded);
                if let Some(outputs) = &mut self.outputs {
                    outputs.hear(event);
                }
                self.report_ends(reporter);
                return Ok(at_once);
            }
            LocalEvent::Look => return Ok(self.show_tasks(reporter.output)),
        }
        Ok(false)
    }

    fn show_tasks(&mut self, output: &mut Output) -> bool {
        let Some(outputs) = &mut self.outputs else { return false };
        outputs.hear_all();
        outputs.show(output, Instant::now())
    }

    fn catch_up(&mut self, reporter: &mut Reporter<'_>) -> Result<(), RunError> {
        while let Some(event) = self.pods.try_next() {
            self.handle(reporter, LocalEvent::Pod(Some(event)))?;
        }
        self.print_notes(reporter.output);
        self.backoffs.take_backoffs().into_iter().for_each(|(job, notice)| reporter.waits(&job, notice));
        Ok(())
    }

    async fn check(&mut self, reporter: &mut Reporter<'_>) -> Result<bool, RunError> {
        let Some(reason) = self.cannot_continue() else { return Ok(false) };
        if let Some(running) = self.running.take() {
            let _ = match self.registry.poisoned() {
                Some(_) => running.abandon().await,
                None => running.finish().await,
            };
        }
        if let Some(outputs) = &mut self.outputs {
            outputs.finish(reporter.output);
        }
        Err(RunError::Environment(reason))
    }

    /// Unless a stop was just requested: then the shutdown is already under way.
    fn may_finish(&mut self) -> bool {
        self.finishing = self.running.take();
        self.finishing.is_some()
    }

    async fn finish(&mut self, reporter: &mut Reporter<'_>, _: &Receiver<Stop>) -> Result<Ended, RunError> {
        // While the node can still be told what has been read. After that, only what had not ended is left.
        while self.show_tasks(reporter.output) && self.has_ended_tasks() {}
        if let Some(outputs) = &mut self.outputs {
            outputs.released().await;
        }
        let finished = match self.finishing.take() {
            Some(running) => running.finish().await,
            None => Ok(()),
        };
        self.take_rest(reporter);
        finished.map_err(|error| RunError::Environment(format!("{error:#}")))?;
        self.print_notes(reporter.output);
        Ok((End::Finished, Vec::new()))
    }

    fn stopped(&mut self, reporter: &mut Reporter<'_>) {
        self.take_rest(reporter);
        self.print_notes(reporter.output);
    }
}

impl LocalOptions {
    fn needs_all_pods(&self) -> bool {
        self.hollow.is_some() || self.restarts
    }

    /// The field selector. As a rule only failures are needed, which are few even for a large Job.
    fn pods(&self) -> &'static str {
        if self.needs_all_pods() { "" } else { "status.phase!=Succeeded,status.phase!=Running" }
    }
}

fn print_hollow(output: &mut Output, (name, text): (TaskName, String)) {
    let piece = Piece { stream: Stream::Stdout, begins: true, text: text.as_bytes(), ends: true };
    output.task_line(&name, piece, false);
    output.flush_tasks();
}

/// All objects of a kind.
fn target(kind: Kind) -> Result<Target<'static>, RunError> {
    let unserved = || RunError::Environment(format!("no {} are served", kind.plural));
    Ok(Target::new(tally_embedded::resource(kind).ok_or_else(unserved)?, "", ""))
}

fn watch(registry: &Registry, kind: Kind, field_selector: &str) -> Result<WatchStream, RunError> {
    let options = WatchOptions { field_selector: field_selector.to_owned(), ..WatchOptions::default() };
    registry.watch(target(kind)?, &options).map_err(|error| RunError::Environment(error.message))
}

fn read<T: DeserializeOwned>(object: &Object) -> Option<T> {
    object.read().ok()
}

/// The running controllers and node, until one task takes them to stop them.
#[derive(Clone)]
struct Shared(Arc<Mutex<Option<RunningCluster>>>);

impl Shared {
    fn new(running: RunningCluster) -> Self {
        Self(Arc::new(Mutex::new(Some(running))))
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

    async fn end_when(self, mut stop: Receiver<Stop>) -> Result<Vec<String>, RunError> {
        if stop.wait_for(|stop| *stop != Stop::No).await.is_err() {
            // The sender is gone: no stop can be requested any more.
            return std::future::pending().await;
        }
        match self.take() {
            Some(running) => running.end().await.map_err(|error| RunError::Environment(format!("{error:#}")))?,
            // They are being stopped already.
            None => return std::future::pending().await,
        }
        Ok(Vec::new())
    }
}
