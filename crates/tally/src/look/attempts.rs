//! Attempts as `tally show` prints them: from their records, and from the status of Pods where there is no record. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tally_core::time::Timestamp;
use tally_node::attempts::{AttemptRecord, JobRecords};

use super::jobs::precise;
use crate::run::progress::view::{ContainerRun, PodText};
use crate::run::progress::words::duration;

pub const COLUMNS: [&str; 11] =
    ["INDEX", "ATTEMPT", "RESULT", "STARTED", "ENDED", "DURATION", "CPU", "MEMORY", "POD", "CONTAINER", "MESSAGE"];

#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttemptRow {
    pub index: Option<u32>,
    pub attempt: u32,
    pub pod: String,
    pub pod_uid: String,
    pub container: String,
    /// The Pod has other containers, too.
    pub several: bool,
    pub restarts: u32,
    pub state: AttemptState,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub out_of_memory: bool,
    pub started_at: Option<i64>,
    pub finished_at: Option<i64>,
    pub cpu_micros: Option<u64>,
    pub peak_kib: Option<u64>,
    /// It has used at most that.
    pub peak_is_bound: bool,
    pub message: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttemptState {
    /// It has not started.
    Waiting,
    Running,
    #[default]
    Ended,
    /// Its end was not observed, or it was killed because tally stopped. It is not counted.
    Lost,
}

/// In the order of the indexes, the attempts of each as they started. `idle`: nothing runs.
pub fn rows<'a>(records: &[JobRecords], pods: impl IntoIterator<Item = &'a PodText>, idle: bool) -> Vec<AttemptRow> {
    let mut rows: Vec<AttemptRow> = Vec::new();
    for record in records.iter().flat_map(|records| &records.attempts) {
        rows.push(AttemptRow::of_record(record));
    }
    let known: BTreeSet<(String, String, u32)> =
        rows.iter().map(|row| (row.pod_uid.clone(), row.container.clone(), row.restarts)).collect();
    let mut sorted: Vec<&PodText> = pods.into_iter().collect();
    sorted.sort_by_key(|pod| (&pod.metadata.creation_timestamp, &pod.metadata.name));
    let mut unsuccessful: BTreeMap<(Option<u32>, String), u32> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.exit_code != Some(0)) {
        let last = unsuccessful.entry((row.index, row.container.clone())).or_default();
        *last = row.attempt.max(*last);
    }
    for pod in sorted {
        for mut row in of_pod(pod, idle) {
            if known.contains(&(row.pod_uid.clone(), row.container.clone(), row.restarts)) {
                continue;
            }
            let before = unsuccessful.entry((row.index, row.container.clone())).or_default();
            row.attempt = before.saturating_add(1);
            if matches!(row.state, AttemptState::Ended | AttemptState::Lost) && row.exit_code != Some(0) {
                *before = row.attempt;
            }
            rows.push(row);
        }
    }
    let several: BTreeSet<String> = {
        let mut names: BTreeMap<&str, &str> = BTreeMap::new();
        let mut several = BTreeSet::new();
        for row in &rows {
            if *names.entry(&row.pod_uid).or_insert(&row.container) != row.container {
                several.insert(row.pod_uid.clone());
            }
        }
        several
    };
    rows.iter_mut().for_each(|row| row.several = several.contains(&row.pod_uid));
    rows.sort_by(|one, other| {
        let key = |row: &AttemptRow| (row.index, row.started_at.unwrap_or(i64::MAX), row.pod.clone(), row.restarts);
        key(one).cmp(&key(other))
    });
    rows
}

/// The attempts of the containers of a Pod that its status shows: the last two of each.
fn of_pod(pod: &PodText, idle: bool) -> Vec<AttemptRow> {
    let PodText { metadata, spec, status } = pod;
    let base = AttemptRow {
        index: metadata.index(),
        pod: metadata.name.clone(),
        pod_uid: metadata.uid.clone(),
        ..AttemptRow::default()
    };
    if status.containers().next().is_none() {
        let (container, message) = (spec.container().to_owned(), status.message.clone());
        let state = if status.phase == "Failed" || idle { AttemptState::Lost } else { AttemptState::Waiting };
        return vec![AttemptRow { container, message, state, ..base }];
    }
    let mut rows = Vec::new();
    for container in status.containers() {
        let base = AttemptRow { container: container.name.clone(), ..base.clone() };
        let runs = container.runs();
        rows.extend(runs.map(|run| AttemptRow { restarts: run.number, ..base.clone() }.of_run(&run, idle)));
        if let Some((restarts, message)) = container.next_run().filter(|_| !idle) {
            rows.push(AttemptRow { restarts, state: AttemptState::Waiting, message, ..base });
        }
    }
    rows
}

fn time(text: Option<&str>) -> Option<i64> {
    Some(Timestamp::parse(text?).ok()?.millis())
}

impl AttemptRow {
    fn of_record(record: &AttemptRecord) -> Self {
        let lost = record.exit_code.is_none();
        Self {
            index: record.index,
            attempt: record.attempt,
            pod: record.pod.to_string(),
            pod_uid: record.pod_uid.to_string(),
            container: record.container.to_string(),
            several: false,
            restarts: record.restarts,
            state: if lost { AttemptState::Lost } else { AttemptState::Ended },
            exit_code: record.exit_code,
            signal: record.signal,
            out_of_memory: record.out_of_memory,
            started_at: Some(record.started_at),
            finished_at: Some(record.finished_at),
            cpu_micros: (!lost).then_some(record.cpu_micros),
            peak_kib: (!lost).then_some(record.peak_kib),
            peak_is_bound: record.peak_is_bound,
            message: record.message.clone(),
        }
    }

    fn of_run(self, run: &ContainerRun<'_>, idle: bool) -> Self {
        let started_at = time(run.started_at);
        let Some(how) = run.ended else {
            let state = if idle { AttemptState::Lost } else { AttemptState::Running };
            return Self { state, started_at, ..self };
        };
        Self {
            state: AttemptState::Ended,
            exit_code: Some(how.exit_code),
            signal: how.signal.filter(|signal| *signal != 0),
            out_of_memory: how.reason == "OOMKilled",
            started_at,
            finished_at: time(how.finished_at.as_deref()),
            message: how.message.clone(),
            ..self
        }
    }

    /// In a few words.
    pub fn result(&self) -> String {
        match (self.state, self.exit_code, self.signal) {
            (AttemptState::Waiting, ..) => "waiting".to_owned(),
            (AttemptState::Running, ..) => "running".to_owned(),
            (AttemptState::Lost, ..) | (AttemptState::Ended, None, _) => "lost".to_owned(),
            (AttemptState::Ended, ..) if self.out_of_memory => "out of memory".to_owned(),
            (AttemptState::Ended, Some(0), _) => "ok".to_owned(),
            (AttemptState::Ended, _, Some(signal)) => format!("signal {signal}"),
            (AttemptState::Ended, Some(code), None) => format!("exit {code}"),
        }
    }

    pub fn cells(&self, now: i64) -> Vec<String> {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let at = |at: Option<i64>| at.map(|at| Timestamp::from_millis(at).to_string());
        let end = self.finished_at.or((self.state == AttemptState::Running).then_some(now));
        let took = self.started_at.zip(end).map(|(start, end)| u64::try_from(end - start).unwrap_or(0));
        vec![
            or_none(self.index.map(|index| index.to_string())),
            self.attempt.to_string(),
            self.result(),
            or_none(at(self.started_at)),
            or_none(at(self.finished_at)),
            or_none(took.map(|millis| short(Duration::from_millis(millis)))),
            or_none(self.cpu_micros.map(|micros| short(Duration::from_micros(micros)))),
            or_none(
                self.peak_kib.map(|kib| if self.peak_is_bound { format!("<{}", memory(kib)) } else { memory(kib) }),
            ),
            self.pod.clone(),
            if self.several { self.container.clone() } else { String::new() },
            self.message.lines().next().unwrap_or_default().to_owned(),
        ]
    }

    pub fn json(&self) -> Value {
        let state = match self.state {
            AttemptState::Waiting => "Waiting",
            AttemptState::Running => "Running",
            AttemptState::Ended => "Ended",
            AttemptState::Lost => "Lost",
        };
        let seconds = self.started_at.zip(self.finished_at).map(|(start, end)| (end - start) as f64 / 1e3);
        json!({
            "index": self.index, "attempt": self.attempt, "state": state, "exitCode": self.exit_code,
            "signal": self.signal, "outOfMemory": self.out_of_memory, "startedAt": precise(self.started_at),
            "finishedAt": precise(self.finished_at), "seconds": seconds,
            "cpuSeconds": self.cpu_micros.map(|micros| micros as f64 / 1e6),
            "peakMemoryBytes": self.peak_kib.map(|kib| kib << 10), "peakMemoryIsBound": self.peak_is_bound, "pod": self.pod, "podUid": self.pod_uid,
            "container": self.container, "restarts": self.restarts, "message": self.message,
        })
    }
}

/// With milliseconds below ten seconds.
fn short(span: Duration) -> String {
    if span < Duration::from_secs(10) { format!("{:.3}s", span.as_secs_f64()) } else { duration(span) }
}

/// `3.2MiB`, `412KiB`.
fn memory(kib: u64) -> String {
    let kib_f = kib as f64;
    match kib {
        0..1024 => format!("{kib}KiB"),
        1024..1_048_576 => format!("{:.1}MiB", kib_f / 1024.0),
        _ => format!("{:.1}GiB", kib_f / 1_048_576.0),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tally_core::pod::RETRY_INDEXES_ANNOTATION;
    use tally_node::attempts::RecordedJob;

    use super::*;
    use crate::run::parts::FIRST_INDEX;

    fn record(index: u32, pod: &str, attempt: u32, code: Option<i32>, start: i64) -> AttemptRecord {
        AttemptRecord {
            pod: pod.into(),
            pod_uid: format!("uid-{pod}").into(),
            container: "main".into(),
            index: Some(index),
            attempt,
            started_at: start,
            finished_at: start + 1_500,
            exit_code: code,
            cpu_micros: 20_000,
            peak_kib: 3_277,
            ..AttemptRecord::default()
        }
    }

    fn pod(name: &str, index: u32, containers: Value) -> PodText {
        read(json!({
            "metadata": {"name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"batch.kubernetes.io/job-completion-index": index.to_string()}},
            "status": {"phase": "Running", "containerStatuses": containers},
        }))
    }

    fn read(pod: Value) -> PodText {
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn records_come_first_and_pods_fill_in_what_has_not_ended() {
        let records = JobRecords {
            job: RecordedJob::default(),
            attempts: vec![
                record(1, "b", 1, Some(3), 5_000),
                record(0, "a", 1, Some(0), 4_000),
                record(2, "l", 1, None, 6_000),
            ],
        };
        let ended = json!([{"name": "main", "restartCount": 0, "state": {"terminated": {"exitCode": 3}}}]);
        let running = json!([{"name": "main", "restartCount": 0, "state": {"running":
            {"startedAt": "1970-01-01T00:00:07Z"}}}]);
        let pods = [pod("b", 1, ended), pod("c", 1, running), pod("d", 3, json!([]))];
        let found = rows(&[records], &pods, false);
        let told: Vec<_> = found.iter().map(|row| (row.index, row.attempt, row.result())).collect();
        let expected = [(0, 1, "ok"), (1, 1, "exit 3"), (1, 2, "running"), (2, 1, "lost"), (3, 1, "waiting")];
        assert_eq!(told, expected.map(|(index, attempt, how)| (Some(index), attempt, how.to_owned())));
        let cells = found[0].cells(10_000);
        assert_eq!(cells[5..8], ["1.500s", "0.020s", "3.2MiB"]);
        assert_eq!(found[2].cells(9_000)[5], "2.000s");
    }

    /// RETRY-2.
    #[test]
    fn an_index_that_is_run_again_is_that_of_the_first_job() {
        let annotations = json!({
            "batch.kubernetes.io/job-completion-index": "1", RETRY_INDEXES_ANNOTATION: "3,8-9", FIRST_INDEX: "100",
        });
        let again = read(json!({"metadata": {"name": "a", "annotations": annotations}}));
        assert_eq!(rows(&[], &[again], false)[0].index, Some(108));
    }

    #[test]
    fn restarts_in_place_are_attempts() {
        let waits = json!([{"name": "main", "restartCount": 1, "lastState": {"terminated": {"exitCode": 7}},
            "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
        let told = |containers: Value| -> Vec<_> {
            let found = rows(&[], &[pod("p", 0, containers)], false);
            found.iter().map(|row| (row.restarts, row.attempt, row.result())).collect()
        };
        assert_eq!(told(waits), [(1, 1, "exit 7".to_owned()), (2, 2, "waiting".to_owned())]);
        let runs = json!([{"name": "main", "restartCount": 1, "lastState": {"terminated": {"exitCode": 7, "signal": 9}},
            "state": {"running": {}}}]);
        assert_eq!(told(runs), [(0, 1, "signal 9".to_owned()), (1, 2, "running".to_owned())]);
    }

    #[test]
    fn memory_has_a_unit_for_people() {
        for (kib, text) in [(512, "512KiB"), (3_277, "3.2MiB"), (2 << 20, "2.0GiB")] {
            assert_eq!(memory(kib), text);
        }
    }
}
