//! The loop of a run: what is seen goes into the model, and from there to whoever looks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
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
use super::logs::{Cursor, Logs, PodId};
use super::model::{Failure, Model};
use super::output::Output;
use super::render::LOG_LINES;
use super::submit::Refused;
use super::view::{JobText, PodText};

/// How often is drawn, logs are looked at, and plain lines are considered.
const BEAT: Duration = Duration::from_millis(100);

/// Lines read of one Pod in one go: one that writes without end does not keep the others waiting.
const LINES_AT_ONCE: usize = 256;

/// How it came to its end.
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
    /// What Pods write is wanted.
    pub wants_logs: bool,
    pub began: Instant,
    pub readers: Readers,
}

impl Follow<'_> {
    pub async fn run(&mut self, working: Working, mut stop: watch::Receiver<bool>) -> Result<End, Refused> {
        let jobs = resource("batch", "jobs")?;
        let pods = resource("", "pods")?;
        // Without logs only failures are of interest, which is little to read even of a large Job.
        let field_selector = if self.wants_logs { "" } else { "status.phase!=Succeeded,status.phase!=Running" };
        let mut job_news = self.watch(jobs, "")?;
        let mut pod_news = self.watch(pods, field_selector)?;
        let mut beat = tokio::time::interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let notes = working.notes();
        let mut working = Some(working);
        let mut ending = None;
        loop {
            tokio::select! {
                event = job_news.next() => match event {
                    Some(WatchEvent::Failed(_)) | None => job_news = self.watch(jobs, "")?,
                    Some(event) => self.job_news(&event),
                },
                event = pod_news.next() => match event {
                    Some(WatchEvent::Failed(_)) | None => pod_news = self.watch(pods, field_selector)?,
                    Some(event) => self.pod_news(&event),
                },
                _ = beat.tick() => {
                    self.tell(&notes);
                    self.beat();
                    if let Some(trouble) = self.trouble(working.as_ref()) {
                        if let Some(working) = working.take() {
                            let _ = working.end().await;
                        }
                        return Err(Refused::Machine(trouble));
                    }
                }
                _ = stop.wait_for(|stop| *stop), if !self.model.stopping => {
                    self.model.stopping = true;
                    ending = working.take().map(|working| tokio::spawn(working.end()));
                }
                ended = join(&mut ending) => {
                    ended?;
                    self.last_news(&mut job_news, &mut pod_news);
                    self.tell(&notes);
                    return Ok(End::Interrupted);
                }
            }
            if self.model.is_finished() && !self.model.stopping {
                self.last_news(&mut job_news, &mut pod_news);
                if let Some(working) = working.take() {
                    working.finish().await.map_err(|error| Refused::Machine(format!("{error:#}")))?;
                }
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
                    self.readers.saw(&pod);
                }
                let Some(failure) = self.model.saw_pod(&pod) else { return };
                look_at_log(self.logs.as_ref(), failure);
                let failure = failure.clone();
                if let Some(job) = pod.metadata.job().and_then(|uid| self.model.job(uid)) {
                    self.output.failed(job, &failure);
                }
            }
            WatchEvent::Deleted(pod) => {
                let Some(pod) = read::<PodText>(pod) else { return };
                self.readers.lost(&pod);
                self.model.lost_pod(&pod);
            }
            WatchEvent::Bookmark { .. } | WatchEvent::Failed(_) => {}
        }
    }

    /// What was there to see when the last Job came to its end.
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

    /// What the node has to say that is of no Pod alone.
    fn tell(&mut self, notes: &Notes) {
        notes.take().iter().for_each(|note| self.output.note(note));
    }

    fn beat(&mut self) {
        self.write_logs();
        let now = self.now();
        self.output.beat(self.model, now);
    }

    fn write_logs(&mut self) {
        let (model, output) = (&*self.model, &mut *self.output);
        self.readers.read(self.logs.as_ref(), |reader, line| {
            if let Some(job) = model.job(&reader.job) {
                let (pod, text) = (&reader.pod.name, &line.text);
                output.wrote(job, pod, reader.index, &line.container, reader.several, text);
            }
        });
    }

    /// Why it cannot go on.
    fn trouble(&self, working: Option<&Working>) -> Option<String> {
        if let Some(reason) = self.registry.store.poisoned() {
            return Some(format!("nothing can be written any more: {reason}"));
        }
        working.is_some_and(Working::has_ended).then(|| "the controllers ended in an unexpected way".to_owned())
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
    failure.log = Some(logs.tail(&pod, &failure.container, LOG_LINES));
}

type Ending = tokio::task::JoinHandle<anyhow::Result<()>>;

async fn join(ending: &mut Option<Ending>) -> Result<(), Refused> {
    let Some(task) = ending else { return std::future::pending().await };
    let machine = |error: anyhow::Error| Refused::Machine(format!("{error:#}"));
    task.await.map_err(|error| machine(error.into()))?.map_err(machine)
}

/// Pods that had ended before this run began: what they wrote, and how they failed, was told then. To be asked before
/// anybody is at work.
pub fn over(registry: &Registry) -> Result<Vec<String>, Refused> {
    let pods = registry.list(Target::new(resource("", "pods")?, "", ""), &ListOptions::default());
    let pods = pods.map_err(|failure| Refused::Machine(failure.message))?;
    let ended = pods.items.iter().filter_map(read::<PodText>).filter(|pod| pod.status.has_ended());
    Ok(ended.map(|pod| pod.metadata.uid).collect())
}

/// Those who read what Pods write: one a Pod that is running, or has ended and is not read to its end.
#[derive(Debug, Default)]
pub struct Readers {
    reading: BTreeMap<String, Reader>,
    /// Read to the end. Forgotten with the Pod.
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
}

impl Readers {
    /// Nobody reads these.
    pub fn without(over: Vec<String>) -> Self {
        Self { reading: BTreeMap::new(), read: over.into_iter().collect() }
    }

    fn saw(&mut self, text: &PodText) {
        let metadata = &text.metadata;
        let (Some(job), false) = (metadata.job(), self.read.contains(&metadata.uid)) else { return };
        if !text.status.has_started() {
            return;
        }
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
        });
        reader.several = text.status.has_several();
        reader.ended |= text.status.has_ended();
    }

    fn lost(&mut self, text: &PodText) {
        self.read.remove(&text.metadata.uid);
        if let Some(reader) = self.reading.get_mut(&text.metadata.uid) {
            reader.ended = true;
        }
    }

    /// Nobody writes any more.
    fn end(&mut self) {
        self.reading.values_mut().for_each(|reader| reader.ended = true);
    }

    /// What there is for now, and of Pods that have ended all there is.
    fn read(&mut self, logs: &dyn Logs, mut tell: impl FnMut(&Reader, &super::logs::Line)) {
        let read = &mut self.read;
        self.reading.retain(|uid, reader| {
            let mut cursor = std::mem::take(&mut reader.cursor);
            loop {
                let lines = logs.read(&reader.pod, &mut cursor, reader.ended, LINES_AT_ONCE);
                lines.iter().for_each(|line| tell(reader, line));
                if lines.is_empty() || !reader.ended {
                    break;
                }
            }
            reader.cursor = cursor;
            if reader.ended {
                read.insert(uid.clone());
            }
            !reader.ended
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::super::logs::Line;
    use super::*;

    /// Every Pod has written so many lines.
    struct Written(u64);

    impl Logs for Written {
        fn tail(&self, _: &PodId, _: &str, _: usize) -> Vec<String> {
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
        assert!(readers.reading.is_empty());
    }
}
