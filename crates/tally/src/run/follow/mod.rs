//! The main loop of a run: watch events update the model, and the model is shown to the user.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tally_api::catalog;
use tally_api::kinds::Resource;
use tally_api::options::{ListOptions, WatchOptions};
use tally_node::notes::Notes;
use tally_registry::{Object, Registry, Target, WatchEvent, WatchStream};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::cluster::Working;
use super::logs::{Cursor, Line, Logs, PodId};
use super::model::{Failure, Model};
use super::output::Output;
use super::render::LOG_LINES;
use super::submit::Refused;
use super::view::{JobText, PodText};
use crate::signals::Stop;

/// Interval for drawing, reading logs and printing plain lines.
const BEAT: Duration = Duration::from_millis(100);

/// Maximum number of lines read from one Pod at a time: a Pod that writes endlessly does not delay the others.
const LINES_AT_ONCE: usize = 256;

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
    pub async fn run(&mut self, working: Working, mut stop: watch::Receiver<Stop>) -> Result<End, Refused> {
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
                        return Err(Refused::Machine(trouble));
                    }
                }
                _ = stop.wait_for(|stop| *stop != Stop::No), if !self.model.stopping => self.model.stopping = true,
                ended = &mut ending => {
                    let machine = |error: anyhow::Error| Refused::Machine(format!("{error:#}"));
                    ended.map_err(|error| machine(error.into()))?.map_err(machine)?;
                    self.last_news(&mut job_news, &mut pod_news);
                    self.tell(&notes);
                    return Ok(End::Interrupted);
                }
            }
            // Unless a stop was just requested: then the shutdown is already under way.
            if self.model.is_finished()
                && !self.model.stopping
                && let Some(working) = working.take()
            {
                self.last_news(&mut job_news, &mut pod_news);
                working.finish().await.map_err(|error| Refused::Machine(format!("{error:#}")))?;
                self.tell(&notes);
                return Ok(End::Finished);
            }
        }
    }

    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn watch(&self, resource: &'static Resource, field_selector: &str) -> Result<WatchStream, Refused> {
        let options = WatchOptions { field_selector: field_selector.to_owned(), ..WatchOptions::default() };
        let stream = self.registry.watch(Target::new(resource, "", ""), &options);
        stream.map_err(|failure| Refused::Machine(failure.message))
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

    fn tell_failure(&mut self, pod: &PodText, failure: &Failure) {
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

fn resource(group: &str, plural: &str) -> Result<&'static Resource, Refused> {
    catalog::find(group, "v1", plural).ok_or_else(|| Refused::Machine(format!("no {plural} are served")))
}

fn read<T: DeserializeOwned>(object: &Object) -> Option<T> {
    serde_json::from_slice(&object.bytes).ok()
}

fn look_at_log(logs: &dyn Logs, failure: &mut Failure) {
    let pod = PodId { namespace: failure.namespace.clone(), name: failure.pod.clone(), uid: failure.uid.clone() };
    failure.log = Some(logs.tail(&pod, &failure.container, failure.crash, LOG_LINES));
}

/// The running controllers and node, until one task takes them to stop them.
#[derive(Clone)]
struct Shared(Arc<Mutex<Option<Working>>>);

impl Shared {
    fn new(working: Working) -> Self {
        Self(Arc::new(Mutex::new(Some(working))))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Working>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Working> {
        self.lock().take()
    }

    fn has_ended(&self) -> bool {
        self.lock().as_ref().is_some_and(Working::has_ended)
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
pub fn over(registry: &Registry) -> Result<Vec<String>, Refused> {
    let pods = registry.list(Target::new(resource("", "pods")?, "", ""), &ListOptions::default());
    let pods = pods.map_err(|failure| Refused::Machine(failure.message))?;
    let ended = pods.items.iter().filter_map(read::<PodText>).filter(|pod| pod.status.has_ended());
    Ok(ended.map(|pod| pod.metadata.uid).collect())
}

/// The log readers: one per Pod that is running, or has ended and is not read to its end.
#[derive(Debug, Default)]
pub struct Readers {
    reading: BTreeMap<String, Reader>,
    /// Pods whose logs are read to the end. Forgotten when the Pod is deleted.
    read: BTreeSet<String>,
}

#[derive(Debug)]
pub struct Reader {
    pub pod: PodId,
    pub job: String,
    pub index: Option<u32>,
    pub several: bool,
    cursor: Cursor,
    ended: bool,
    /// The Pod is deleted: that its log was read need not be remembered.
    gone: bool,
}

impl Reader {
    /// Reads the available lines, or all lines if the Pod has ended. Returns whether the log is read to its end.
    fn read(&mut self, logs: &dyn Logs, tell: &mut impl FnMut(&Self, &Line)) -> bool {
        let mut cursor = std::mem::take(&mut self.cursor);
        loop {
            let lines = logs.read(&self.pod, &mut cursor, self.ended, LINES_AT_ONCE);
            lines.iter().for_each(|line| tell(self, line));
            if lines.is_empty() || !self.ended {
                break;
            }
        }
        self.cursor = cursor;
        self.ended
    }
}

impl Readers {
    /// Readers that skip these Pods.
    pub fn without(over: Vec<String>) -> Self {
        Self { reading: BTreeMap::new(), read: over.into_iter().collect() }
    }

    /// Returns whether the Pod has just started or has ended, so that its log should be read now.
    fn saw(&mut self, text: &PodText) -> bool {
        let metadata = &text.metadata;
        let (Some(job), false) = (metadata.job(), self.read.contains(&metadata.uid)) else { return false };
        if !text.status.has_started() {
            return false;
        }
        let begins = !self.reading.contains_key(&metadata.uid);
        let reader = self.reading.entry(metadata.uid.clone()).or_insert_with(|| Reader {
            pod: PodId {
                namespace: metadata.namespace.clone(),
                name: metadata.name.clone(),
                uid: metadata.uid.clone(),
            },
            job: job.to_owned(),
            index: metadata.index(),
            several: false,
            cursor: Cursor::default(),
            ended: false,
            gone: false,
        });
        reader.several = text.status.has_several();
        reader.ended |= text.status.has_ended();
        begins || reader.ended
    }

    fn lost(&mut self, text: &PodText) {
        self.read.remove(&text.metadata.uid);
        if let Some(reader) = self.reading.get_mut(&text.metadata.uid) {
            (reader.ended, reader.gone) = (true, true);
        }
    }

    /// No Pod writes any more.
    fn end(&mut self) {
        self.reading.values_mut().for_each(|reader| reader.ended = true);
    }

    /// Reads the logs of all Pods.
    fn read(&mut self, logs: &dyn Logs, mut tell: impl FnMut(&Reader, &Line)) {
        let read = &mut self.read;
        self.reading.retain(|uid, reader| {
            let over = reader.read(logs, &mut tell);
            if over && !reader.gone {
                read.insert(uid.clone());
            }
            !over
        });
    }

    /// Reads the log of one Pod.
    fn read_one(&mut self, uid: &str, logs: &dyn Logs, mut tell: impl FnMut(&Reader, &Line)) {
        let Some(reader) = self.reading.get_mut(uid) else { return };
        if reader.read(logs, &mut tell) {
            let gone = reader.gone;
            self.reading.remove(uid);
            if !gone {
                self.read.insert(uid.to_owned());
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Logs in which every Pod has written this many lines.
    struct Written(u64);

    impl Logs for Written {
        fn tail(&self, _: &PodId, _: &str, _: Option<u32>, _: usize) -> Vec<String> {
            Vec::new()
        }

        fn read(&self, _: &PodId, cursor: &mut Cursor, _: bool, most: usize) -> Vec<Line> {
            let at = cursor.0.entry("log".to_owned()).or_default();
            let until = self.0.min(*at + most as u64);
            let lines = (*at..until).map(|number| Line { container: "c".to_owned(), text: number.to_string() });
            let lines = lines.collect();
            *at = until;
            lines
        }
    }

    fn pod(phase: &str) -> PodText {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "p", "ownerReferences": [{"kind": "Job", "uid": "u", "controller": true}]},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    fn told(readers: &mut Readers, written: u64) -> usize {
        let mut count = 0;
        readers.read(&Written(written), |_, _| count += 1);
        count
    }

    #[test]
    fn every_line_is_read_once() {
        let mut readers = Readers::default();
        readers.saw(&pod("Pending"));
        assert_eq!(told(&mut readers, 5), 0, "nothing runs yet");
        readers.saw(&pod("Running"));
        assert_eq!(told(&mut readers, 5), 5);
        assert_eq!(told(&mut readers, 7), 2);
        assert_eq!(told(&mut readers, 1000), LINES_AT_ONCE, "a Pod that writes much has its turn like the others");
        readers.saw(&pod("Succeeded"));
        assert_eq!(told(&mut readers, 1000), 1000 - 7 - LINES_AT_ONCE, "at the end, all of it");
        readers.saw(&pod("Succeeded"));
        assert_eq!(told(&mut readers, 1000), 0);
        readers.lost(&pod("Succeeded"));
        assert!(readers.read.is_empty() && readers.reading.is_empty());
    }

    #[test]
    fn a_pod_that_is_gone_is_read_to_its_end() {
        let mut readers = Readers::default();
        readers.saw(&pod("Running"));
        readers.lost(&pod("Running"));
        assert_eq!(told(&mut readers, 3), 3);
        assert!(readers.reading.is_empty() && readers.read.is_empty(), "nothing is remembered of it");
    }

    #[test]
    fn a_pod_is_looked_at_when_it_begins_and_when_it_ends() {
        let mut readers = Readers::default();
        let seen = ["Pending", "Running", "Running", "Succeeded"].map(|phase| readers.saw(&pod(phase)));
        assert_eq!(seen, [false, true, false, true]);
        let mut count = 0;
        readers.read_one("p", &Written(300), |_, _| count += 1);
        assert_eq!(count, 300);
        assert!(!readers.saw(&pod("Succeeded")), "it has been read");
    }
}
