//! Follows Jobs and finished Pods as two watches show them, and says how long after its end each Pod was counted. Pure:
//! the times are those at which the events were read.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The Job that a case runs first, until everything is connected. It is not measured.
pub const WARM_UP: &str = "first";

/// What an event of a watch begins with if an object has come into the selection, here of Pods that have succeeded.
const ADDED: &[u8] = br#"{"type":"ADDED""#;

#[derive(Default)]
pub struct Tracker {
    jobs: HashMap<String, Tracked>,
    counted_after: Vec<Duration>,
    complete: usize,
    active: u64,
    pub most_active: u64,
    pub first_finish_at: Option<Instant>,
    pub last_complete_at: Option<Instant>,
    /// Why nothing more is to be expected.
    pub problem: Option<String>,
}

#[derive(Default)]
struct Tracked {
    succeeded: u32,
    active: u32,
    /// The completed indexes, as ranges in order.
    completed: Vec<(u32, u32)>,
    /// Pods without an index that have finished so far.
    finished: u32,
    /// Finished and not counted: the index, or which finished Pod of the Job it is, from 1.
    uncounted: VecDeque<(Number, Instant)>,
    complete_at: Option<Instant>,
}

#[derive(Clone, Copy)]
enum Number {
    Index(u32),
    Nth(u32),
}

impl Tracked {
    /// Pods without an index are counted in the order in which they finished, or as if: which of them a counter contains
    /// cannot be known, and the sum of the times is the same.
    fn contains(&self, number: Number) -> bool {
        match number {
            Number::Nth(nth) => nth <= self.succeeded,
            Number::Index(index) => {
                let after = self.completed.partition_point(|(first, _)| *first <= index);
                after.checked_sub(1).and_then(|at| self.completed.get(at)).is_some_and(|(_, last)| index <= *last)
            }
        }
    }
}

#[derive(Deserialize)]
struct Event<T> {
    #[serde(rename = "type")]
    kind: String,
    object: T,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Job {
    metadata: Metadata,
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Pod {
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    name: String,
    labels: Labels,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Labels {
    #[serde(rename = "batch.kubernetes.io/job-name")]
    job: String,
    #[serde(rename = "batch.kubernetes.io/job-completion-index")]
    index: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    succeeded: u32,
    active: u32,
    completed_indexes: String,
    conditions: Vec<Condition>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    message: String,
}

impl Tracker {
    /// Reads a line of the watch of Jobs.
    pub fn job_event(&mut self, line: &[u8], at: Instant) -> Result<()> {
        let event: Event<Job> = serde_json::from_slice(line).context("a watch event of Jobs is not JSON")?;
        if event.kind == "ERROR" {
            bail!("the watch of Jobs failed: {}", String::from_utf8_lossy(line));
        }
        let Job { metadata: Metadata { name, .. }, status } = event.object;
        if name == WARM_UP && self.complete > 0 || event.kind == "DELETED" {
            return Ok(());
        }
        let job = self.jobs.entry(name.clone()).or_default();
        self.active = (self.active + u64::from(status.active)).saturating_sub(u64::from(job.active));
        self.most_active = self.most_active.max(self.active);
        job.active = status.active;
        job.succeeded = status.succeeded;
        job.completed = ranges(&status.completed_indexes)?;
        let waiting = std::mem::take(&mut job.uncounted);
        for (number, finished_at) in waiting {
            if job.contains(number) {
                self.counted_after.push(at.saturating_duration_since(finished_at));
            } else {
                job.uncounted.push_back((number, finished_at));
            }
        }
        let ended = |kind: &str| status.conditions.iter().find(|one| one.kind == kind && one.status == "True");
        if let Some(failed) = ended("Failed") {
            bail!("the Job {name} failed: {}", failed.message);
        }
        if ended("Complete").is_some() && job.complete_at.is_none() {
            job.complete_at = Some(at);
            self.complete += 1;
            self.last_complete_at = Some(at);
        }
        Ok(())
    }

    /// Reads a line of the watch of Pods that have succeeded.
    pub fn pod_event(&mut self, line: &[u8], at: Instant) -> Result<()> {
        if !line.starts_with(ADDED) {
            if line.starts_with(br#"{"type":"ERROR""#) {
                bail!("the watch of Pods failed: {}", String::from_utf8_lossy(line));
            }
            return Ok(());
        }
        let event: Event<Pod> = serde_json::from_slice(line).context("a watch event of Pods is not JSON")?;
        let Labels { job: name, index } = event.object.metadata.labels;
        if name == WARM_UP {
            return Ok(());
        }
        self.first_finish_at.get_or_insert(at);
        let job = self.jobs.entry(name).or_default();
        job.finished += 1;
        let number = match index {
            Some(index) => Number::Index(index.parse().context("a completion index is not a number")?),
            None => Number::Nth(job.finished),
        };
        if job.contains(number) {
            // The watch of Jobs was ahead.
            self.counted_after.push(Duration::ZERO);
        } else {
            job.uncounted.push_back((number, at));
        }
        Ok(())
    }

    /// Forgets the warm-up.
    pub fn begin(&mut self) {
        *self = Self { problem: self.problem.take(), ..Self::default() };
        // What is still said about the warm-up is not news.
        let known = Tracked { complete_at: Some(Instant::now()), ..Tracked::default() };
        self.jobs.insert(WARM_UP.to_owned(), known);
    }

    /// Jobs that are complete.
    pub fn complete(&self) -> usize {
        self.complete
    }

    pub fn complete_at(&self, job: &str) -> Option<Instant> {
        self.jobs.get(job)?.complete_at
    }

    /// How long after its end each Pod was counted, in order of length.
    pub fn counted_after(&mut self) -> &[Duration] {
        self.counted_after.sort_unstable();
        &self.counted_after
    }
}

/// `0-3,5` in the form of `status.completedIndexes`.
fn ranges(text: &str) -> Result<Vec<(u32, u32)>> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    parts.map(|part| range(part).with_context(|| format!("{part:?} is no range of indexes"))).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Watched {
        tracker: Tracker,
        began: Instant,
    }

    impl Watched {
        fn new() -> Self {
            let mut tracker = Tracker::default();
            tracker.begin();
            Self { tracker, began: Instant::now() }
        }

        fn job(&mut self, millis: u64, status: &serde_json::Value) -> Result<()> {
            let event = json!({"type": "MODIFIED", "object": {"metadata": {"name": "j"}, "status": status}});
            self.tracker.job_event(event.to_string().as_bytes(), self.began + Duration::from_millis(millis))
        }

        fn pod(&mut self, millis: u64, kind: &str, index: Option<&str>) {
            let mut labels = json!({"batch.kubernetes.io/job-name": "j"});
            if let Some(index) = index {
                labels["batch.kubernetes.io/job-completion-index"] = json!(index);
            }
            let object = json!({"metadata": {"labels": labels, "name": "p"}, "status": {"phase": "Succeeded"}});
            // serde_json would sort the fields.
            let line = format!(r#"{{"type":"{kind}","object":{object}}}"#);
            self.tracker.pod_event(line.as_bytes(), self.began + Duration::from_millis(millis)).unwrap();
        }

        fn counted_after(&mut self) -> Vec<u128> {
            self.tracker.counted_after().iter().map(Duration::as_millis).collect()
        }
    }

    #[test]
    fn an_index_is_counted_when_the_status_contains_it() {
        let mut watched = Watched::new();
        watched.pod(10, "ADDED", Some("7"));
        watched.pod(20, "ADDED", Some("3"));
        watched.pod(25, "MODIFIED", Some("3"));
        watched.job(30, &json!({"succeeded": 2, "completedIndexes": "0-3"})).unwrap();
        assert_eq!(watched.counted_after(), [10]);
        // The watch of Jobs is ahead of the one of Pods.
        watched.pod(35, "ADDED", Some("0"));
        watched.job(60, &json!({"succeeded": 8, "completedIndexes": "0-4,6-8"})).unwrap();
        assert_eq!(watched.counted_after(), [0, 10, 50]);
        assert_eq!(watched.tracker.first_finish_at, Some(watched.began + Duration::from_millis(10)));
    }

    #[test]
    fn without_indexes_the_counter_decides() {
        let mut watched = Watched::new();
        for millis in [10, 20, 30] {
            watched.pod(millis, "ADDED", None);
        }
        watched.job(40, &json!({"succeeded": 2, "active": 5})).unwrap();
        assert_eq!(watched.counted_after(), [20, 30]);
        watched.job(50, &json!({"succeeded": 4, "active": 2})).unwrap();
        watched.pod(60, "ADDED", None);
        assert_eq!(watched.counted_after(), [0, 20, 20, 30]);
        assert_eq!(watched.tracker.most_active, 5);
    }

    #[test]
    fn a_job_is_complete_once_and_a_failed_one_is_an_error() {
        let mut watched = Watched::new();
        let complete = json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]});
        watched.job(5, &json!({"conditions": [{"type": "Complete", "status": "False"}]})).unwrap();
        assert_eq!(watched.tracker.complete(), 0);
        watched.job(10, &complete).unwrap();
        watched.job(20, &complete).unwrap();
        assert_eq!(watched.tracker.complete(), 1);
        assert_eq!(watched.tracker.complete_at("j"), Some(watched.began + Duration::from_millis(10)));
        let failed = json!({"conditions": [{"type": "Failed", "status": "True", "message": "too many"}]});
        assert_eq!(watched.job(30, &failed).unwrap_err().to_string(), "the Job j failed: too many");
    }

    #[test]
    fn the_warm_up_is_not_counted() {
        let mut tracker = Tracker::default();
        let conditions = json!([{"type": "Complete", "status": "True"}]);
        let job = json!({"metadata": {"name": WARM_UP}, "status": {"succeeded": 1, "conditions": conditions}});
        let event = json!({"type": "MODIFIED", "object": job}).to_string();
        tracker.job_event(event.as_bytes(), Instant::now()).unwrap();
        assert_eq!(tracker.complete(), 1);
        tracker.begin();
        tracker.job_event(event.as_bytes(), Instant::now()).unwrap();
        let pod = format!(
            r#"{{"type":"ADDED","object":{{"metadata":{{"labels":{{"batch.kubernetes.io/job-name":"{WARM_UP}"}}}}}}}}"#
        );
        tracker.pod_event(pod.as_bytes(), Instant::now()).unwrap();
        assert!(tracker.complete() == 0 && tracker.counted_after().is_empty() && tracker.first_finish_at.is_none());
    }

    #[test]
    fn what_is_no_event_is_an_error() {
        let mut tracker = Tracker::default();
        let now = Instant::now();
        tracker.job_event(b"{", now).unwrap_err();
        tracker.job_event(br#"{"type":"ERROR","object":{"code":410}}"#, now).unwrap_err();
        tracker.pod_event(br#"{"type":"ERROR","object":{"code":410}}"#, now).unwrap_err();
        assert_eq!(ranges("0-3,5").unwrap(), [(0, 3), (5, 5)]);
        assert!(ranges("").unwrap().is_empty());
        ranges("1,x").unwrap_err();
    }
}
