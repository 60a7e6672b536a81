//! The main loop of a run: watch events update the model, and the model is shown to the user.

pub mod logs;
pub mod readers;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tally_api::catalog;
use tally_api::kinds::Resource;
use tally_api::options::{ListOptions, PatchKind, WatchOptions, WriteOptions};
use tally_node::notes::Notes;
use tally_registry::{Object, Registry, Target, WatchEvent, WatchStream};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::cluster::RunningCluster;
use super::outcome::RunError;
use super::progress::model::{Model, PodFailure};
use super::progress::output::Output;
use super::progress::render::LOG_LINES;
use super::progress::view::{JobText, PodText};
use crate::signals::Stop;
use logs::{Line, Logs, PodId};
use readers::{Reader, Readers};

/// Interval for drawing, reading logs and printing plain lines.
const BEAT: Duration = Duration::from_millis(100);

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
    /// The output of Pods is printed.
    pub wants_logs: bool,
    /// Some Pods restart failed containers in place, so running Pods must be watched, too.
    pub restarts: bool,
    pub began: Instant,
    pub readers: Readers,
}

impl Follow<'_> {
    pub async fn run(&mut self, working: RunningCluster, mut stop: watch::Receiver<Stop>) -> Result<End, RunError> {
        let jobs = resource("batch", "jobs")?;
        let pods = resource("", "pods")?;
        // Otherwise only failures are needed, which are few even for a large Job.
        let all = self.wants_logs || self.restarts;
        let field_selector = if all { "" } else { "status.phase!=Succeeded,status.phase!=Running" };
        let mut job_news = self.watch(jobs, "")?;
        let mut pod_news = self.watch(pods, field_selector)?;
        let mut beat = tokio::time::interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let notes = working.notes();
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
                _ = beat.tick() => {
                    while let Some(event) = pod_news.try_next() {
                        match event {
                            WatchEvent::Failed(_) => pod_news = self.watch(pods, field_selector)?,
                            event => self.pod_news(&event),
                        }
                    }
                    self.tell(&notes);
                    self.beat();
                    if let Some(trouble) = self.trouble(&working) {
                        ending.abort();
                        if let Some(working) = working.take() {
                            let _ = working.finish().await;
                        }
                        return Err(RunError::Environment(trouble));
                    }
                }
                _ = stop.wait_for(|stop| *stop != Stop::No), if !self.model.stopping => self.model.stopping = true,
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
                self.last_news(&mut job_news, &mut pod_news);
                working.finish().await.map_err(|error| RunError::Environment(format!("{error:#}")))?;
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
                }
            }
            WatchEvent::Deleted(job) => {
                if let Some(job) = read::<JobText>(job) {
                    self.model.lost_job(&job.metadata.uid, now);
                }
            }
            WatchEvent::Bookmark { .. } | WatchEvent::Failed(_) => {}
        }
    }

    fn pod_news(&mut self, event: &WatchEvent) {
        match event {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                let Some(pod) = read::<PodText>(pod) else { return };
                if self.wants_logs && pod.metadata.job().is_some_and(|uid| self.model.job(uid).is_some()) {
                    // Immediately: the log is removed with the Pod, and after that only an open file can be read.
                    if self.readers.saw(&pod) {
                        self.write_log(&pod.metadata.uid);
                    }
                }
                while let Some(crash) = self.model.saw_crash(&pod) {
                    look_at_log(self.logs.as_ref(), crash);
                    let crash = crash.clone();
                    self.tell_failure(&pod, &crash);
                }
                let Some(failure) = self.model.saw_pod(&pod) else { return };
                look_at_log(self.logs.as_ref(), failure);
                let failure = failure.clone();
                self.tell_failure(&pod, &failure);
            }
            WatchEvent::Deleted(pod) => {
                let Some(pod) = read::<PodText>(pod) else { return };
                self.readers.lost(&pod);
                self.write_log(&pod.metadata.uid);
                self.model.lost_pod(&pod);
            }
            WatchEvent::Bookmark { .. } | WatchEvent::Failed(_) => {}
        }
    }

    fn tell_failure(&mut self, pod: &PodText, failure: &PodFailure) {
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
        self.readers.end();
        self.write_logs();
    }

    /// Prints the notices of the node that do not belong to a single Pod.
    fn tell(&mut self, notes: &Notes) {
        notes.take().iter().for_each(|note| self.output.note(note));
    }

    fn beat(&mut self) {
        self.write_logs();
        let now = self.now();
        self.model.tick(now);
        self.output.beat(self.model, now);
    }

    fn write_logs(&mut self) {
        let (model, output) = (&*self.model, &mut *self.output);
        self.readers.read(self.logs.as_ref(), |reader, line| write_line(model, output, reader, line));
    }

    fn write_log(&mut self, uid: &str) {
        let (model, output) = (&*self.model, &mut *self.output);
        self.readers.read_one(uid, self.logs.as_ref(), |reader, line| write_line(model, output, reader, line));
    }

    /// Why the run cannot continue.
    fn trouble(&self, working: &Shared) -> Option<String> {
        if let Some(reason) = self.registry.poisoned() {
            return Some(format!("the store no longer accepts writes: {reason}"));
        }
        working.has_ended().then(|| "the controllers or the node stopped unexpectedly".to_owned())
    }
}

fn write_line(model: &Model, output: &mut Output, reader: &Reader, line: &Line) {
    if let Some(job) = model.job(&reader.job) {
        let (pod, text) = (&reader.pod.name, &line.text);
        output.wrote(job, pod, reader.index, &line.container, reader.several, text);
    }
}

fn resource(group: &str, plural: &str) -> Result<&'static Resource, RunError> {
    catalog::find(group, "v1", plural).ok_or_else(|| RunError::Environment(format!("no {plural} are served")))
}

fn read<T: DeserializeOwned>(object: &Object) -> Option<T> {
    serde_json::from_slice(&object.bytes).ok()
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
