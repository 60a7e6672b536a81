//! Jobs as `tally ps` and `tally show` print them. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tally_core::indexes::IndexSet;
use tally_core::pod::RETRY_INDEXES_ANNOTATION;
use tally_core::time::Timestamp;
use tally_node::attempts::JobRecords;

use super::waiting::{Wait, Waits};
use crate::run::parts::{FIRST_INDEX, PART_OF};
use crate::run::progress::report::precise_time;
use crate::run::progress::view::originals;
use crate::run::progress::words::duration;
use crate::run::submit::retry;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobRow {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub state: String,
    pub reason: String,
    pub message: String,
    pub succeeded: u64,
    pub failed: u64,
    pub active: u64,
    /// None: the Job has no fixed number of completions, or it was deleted.
    pub total: Option<u64>,
    pub failed_indexes: String,
    pub completed_indexes: String,
    /// The indexes of another Job that it runs again: all others here are among them. Empty: it runs its own.
    pub retried_indexes: IndexSet,
    /// The indexes that have neither succeeded nor failed.
    pub open_indexes: IndexSet,
    /// Failures are counted for each index: what has not failed was not run to the end.
    pub knows_failed: bool,
    /// It has Failed, and everything of it has succeeded since: the last Job that ran a part of it.
    pub succeeded_since: Option<String>,
    /// In milliseconds since 1970.
    pub created_at: Option<i64>,
    pub started_at: Option<i64>,
    pub finished_at: Option<i64>,
}

/// Whether a Job, or the list of which it is a part, has this name; or it has this UID.
pub fn is_named(job: &Value, name: &str) -> bool {
    let metadata = &job["metadata"];
    metadata["name"] == name || metadata["uid"] == name || metadata["annotations"][PART_OF] == name
}

/// The rows of all Jobs, the oldest first. The parts of a list are one row. `idle`: nothing runs. `waits`: those that wait, as
/// far as it was asked.
pub fn rows(jobs: &[Value], idle: bool, waits: &Waits) -> Vec<JobRow> {
    let mut lists: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut rows: Vec<JobRow> = Vec::new();
    let mut sorted: Vec<&Value> = jobs.iter().collect();
    let first = |job: &Value| {
        job["metadata"]["annotations"][FIRST_INDEX].as_str().and_then(|first| first.parse::<u32>().ok()).unwrap_or(0)
    };
    sorted.sort_by_key(|job| first(job));
    let since = retry::succeeded_since(jobs);
    for job in sorted {
        let mut row = JobRow::of(job, idle);
        row.succeeded_since = since.get(&row.uid).cloned();
        if let Some(wait) = waits.get(&row.uid) {
            row.set_wait(wait);
        }
        let Some(list) = job["metadata"]["annotations"][PART_OF].as_str() else {
            rows.push(row);
            continue;
        };
        match lists.get(&(row.namespace.clone(), list.to_owned())) {
            Some(at) => rows[*at].add_part(row, first(job)),
            None => {
                lists.insert((row.namespace.clone(), list.to_owned()), rows.len());
                let mut whole = JobRow { name: list.to_owned(), ..row.clone() };
                // Of a list that is run again, the first rows may be done.
                whole.take_indexes_of(&row, first(job));
                rows.push(whole);
            }
        }
    }
    rows.sort_by(|one, other| (one.created_at, &one.name).cmp(&(other.created_at, &other.name)));
    rows
}

fn time(value: &Value) -> Option<i64> {
    Some(Timestamp::parse(value.as_str()?).ok()?.millis())
}

impl JobRow {
    fn of(job: &Value, idle: bool) -> Self {
        let (metadata, spec, status) = (&job["metadata"], &job["spec"], &job["status"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let holds = |kind: &str| {
            let conditions = status["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().find(|condition| condition["type"] == kind && condition["status"] == "True")
        };
        let decided = ["Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"].into_iter().find_map(holds);
        let begun = number(&status["active"]) + number(&status["succeeded"]) + number(&status["failed"]) > 0;
        let state = match decided.and_then(|condition| condition["type"].as_str()) {
            Some(finished @ ("Complete" | "Failed")) => finished,
            _ if idle => "Stopped",
            Some(_) => "Ending",
            None if spec["suspend"] == true => "Suspended",
            None if begun => "Running",
            None => "Waiting",
        };
        let finished = matches!(state, "Complete" | "Failed");
        let retried = metadata["annotations"][RETRY_INDEXES_ANNOTATION].as_str();
        let limit = spec["completions"].as_u64().and_then(|limit| u32::try_from(limit).ok()).unwrap_or(0);
        let is_open = spec["completionMode"] == "Indexed" && state != "Complete";
        let [failed, completed] = ["failedIndexes", "completedIndexes"]
            .map(|field| IndexSet::read_tolerant(status[field].as_str().unwrap_or_default(), limit));
        let open = IndexSet::below(if is_open { limit } else { 0 }).difference(&failed).difference(&completed);
        let [failed_indexes, completed_indexes] = [failed, completed].map(|set| originals(set, retried).text());
        let ended = decided.filter(|_| finished).map(|condition| &condition["lastTransitionTime"]);
        Self {
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
            uid: text(&metadata["uid"]),
            state: state.to_owned(),
            reason: decided.map(|condition| text(&condition["reason"])).unwrap_or_default(),
            message: decided.map(|condition| text(&condition["message"])).unwrap_or_default(),
            succeeded: number(&status["succeeded"]),
            failed: number(&status["failed"]),
            active: if idle { 0 } else { number(&status["active"]) },
            total: spec["completions"].as_u64(),
            failed_indexes,
            completed_indexes,
            retried_indexes: IndexSet::read_tolerant(retried.unwrap_or_default(), u32::MAX),
            open_indexes: originals(open, retried),
            knows_failed: !spec["backoffLimitPerIndex"].is_null(),
            succeeded_since: None,
            created_at: time(&metadata["creationTimestamp"]),
            started_at: time(&status["startTime"]),
            finished_at: time(&status["completionTime"]).or_else(|| ended.and_then(time)),
        }
    }

    /// It waits, for this reason.
    pub fn set_wait(&mut self, wait: &Wait) {
        self.state = "Waiting".to_owned();
        (self.reason, self.message) = (wait.reason.to_owned(), wait.message.clone());
    }

    /// Why it waits, or what has become of it since it Failed, in a sentence. Empty: there is nothing to say.
    pub fn why(&self) -> String {
        match &self.succeeded_since {
            Some(last) => format!("All of it has succeeded since, with {last}."),
            None if self.state == "Waiting" => self.message.clone(),
            None => String::new(),
        }
    }

    /// A Job that was deleted: its attempts are known, the Job itself is not.
    pub fn of_records(records: &JobRecords) -> Self {
        let count = |succeeded: bool| {
            let ended = records.attempts.iter().filter(|it| it.exit_code.is_some());
            ended.filter(|it| it.succeeded() == succeeded).count() as u64
        };
        let started_at = records.attempts.iter().map(|it| it.started_at).min();
        Self {
            namespace: records.job.namespace.to_string(),
            name: records.job.name.to_string(),
            uid: records.job.uid.to_string(),
            state: "Deleted".to_owned(),
            succeeded: count(true),
            failed: count(false),
            created_at: started_at,
            started_at,
            finished_at: records.attempts.iter().map(|it| it.finished_at).max(),
            ..Self::default()
        }
    }

    /// Adds another part of the same list, whose rows begin with `first`.
    fn add_part(&mut self, part: Self, first: u32) {
        self.add_indexes_of(&part, first);
        // The whole is what its least finished part is; a failure comes first.
        let order = ["Failed", "Running", "Ending", "Waiting", "Suspended", "Stopped", "Complete"];
        let rank = |state: &str| order.iter().position(|it| *it == state).unwrap_or(order.len());
        let finished = [&self.state, &part.state].map(|state| matches!(state.as_str(), "Complete" | "Failed"));
        if rank(&part.state) < rank(&self.state) {
            (self.state, self.reason, self.message) = (part.state, part.reason, part.message);
        }
        self.succeeded += part.succeeded;
        self.failed += part.failed;
        self.active += part.active;
        self.total = self.total.zip(part.total).map(|(one, other)| one + other);
        self.created_at = self.created_at.min(part.created_at).or(part.created_at);
        self.started_at = self.started_at.into_iter().chain(part.started_at).min();
        self.finished_at = match finished {
            [true, true] => self.finished_at.max(part.finished_at),
            _ => None,
        };
    }

    fn take_indexes_of(&mut self, part: &Self, first: u32) {
        (self.failed_indexes, self.completed_indexes) = (String::new(), String::new());
        (self.open_indexes, self.retried_indexes) = (IndexSet::new(), IndexSet::new());
        self.add_indexes_of(part, first);
    }

    fn add_indexes_of(&mut self, part: &Self, first: u32) {
        for (whole, part) in
            [(&mut self.failed_indexes, &part.failed_indexes), (&mut self.completed_indexes, &part.completed_indexes)]
        {
            let mut indexes = IndexSet::read_tolerant(whole, u32::MAX);
            for (start, end) in IndexSet::read_tolerant(part, u32::MAX).intervals() {
                indexes.insert_below(start.saturating_add(first), end.saturating_add(first).saturating_add(1));
            }
            *whole = indexes.text();
        }
        for (whole, part) in
            [(&mut self.open_indexes, &part.open_indexes), (&mut self.retried_indexes, &part.retried_indexes)]
        {
            for (start, end) in part.intervals() {
                whole.insert_below(start.saturating_add(first), end.saturating_add(first).saturating_add(1));
            }
        }
    }

    /// Of a Job that has Failed: the indexes that were not run to the end.
    fn not_run(&self) -> Option<&IndexSet> {
        (self.state == "Failed" && !self.open_indexes.is_empty()).then_some(&self.open_indexes)
    }

    fn took(&self, now: i64) -> Option<Duration> {
        let running = !matches!(self.state.as_str(), "Stopped" | "Deleted" | "Suspended");
        let end = self.finished_at.or(running.then_some(now))?;
        Some(Duration::from_millis(u64::try_from(end - self.started_at?).unwrap_or(0)))
    }

    /// For the table of `tally ps`.
    pub fn cells(&self, now: i64) -> Vec<String> {
        let total = self.total.map_or_else(|| "-".to_owned(), |total| total.to_string());
        let age = self.created_at.map_or_else(|| "-".to_owned(), |at| age(now - at));
        let took = self.took(now).map_or_else(|| "-".to_owned(), duration);
        let [succeeded, failed, active] = [self.succeeded, self.failed, self.active].map(|count| count.to_string());
        vec![self.name.clone(), self.state.clone(), succeeded, failed, active, total, age, took]
    }

    /// For `tally show`.
    pub fn lines(&self, now: i64) -> Vec<String> {
        let mut how = self.state.clone();
        for more in [&self.reason, &self.message].into_iter().filter(|more| !more.is_empty()) {
            how.push_str(": ");
            how.push_str(&crate::run::progress::words::harmless(more));
        }
        if self.state == "Stopped" {
            how.push_str(": unfinished, and no tally runs it; tally run --data-dir goes on with it");
        }
        let mut counts = match self.total {
            Some(total) => format!("{}/{total} succeeded", self.succeeded),
            None => format!("{} succeeded", self.succeeded),
        };
        for (count, what) in [(self.failed, "failed"), (self.active, "active")] {
            if count > 0 {
                counts.push_str(&format!(", {count} {what}"));
            }
        }
        let mut lines = vec![
            format!("Job:       {}", self.name),
            format!("Namespace: {}", self.namespace),
            format!("State:     {how}"),
            format!("Counts:    {counts}"),
        ];
        if !self.failed_indexes.is_empty() {
            lines.push(format!("Failed:    indexes {}", self.failed_indexes));
        }
        if let Some(not_run) = self.not_run() {
            let what = if self.knows_failed { "not run to the end" } else { "not succeeded" };
            let (count, total) = (not_run.len(), self.total.unwrap_or(0));
            lines.push(format!("Left:      {count} of {total} {what}: indexes {}", not_run.text()));
        }
        for (what, at) in
            [("Created:  ", self.created_at), ("Started:  ", self.started_at), ("Finished: ", self.finished_at)]
        {
            lines.extend(at.map(|at| format!("{what} {}", Timestamp::from_millis(at))));
        }
        lines.extend(self.took(now).map(|took| format!("Duration:  {}", duration(took))));
        lines
    }

    pub fn json(&self) -> Value {
        let at = |at: Option<i64>| at.map(|at| Timestamp::from_millis(at).to_string());
        let seconds = self.started_at.zip(self.finished_at).map(|(start, end)| (end - start) as f64 / 1e3);
        json!({
            "namespace": self.namespace, "name": self.name, "uid": self.uid, "state": self.state, "reason": self.reason,
            "message": self.message, "succeeded": self.succeeded, "failed": self.failed, "active": self.active,
            "completions": self.total, "failedIndexes": self.failed_indexes, "succeededSince": self.succeeded_since,
            "notRun": self.not_run().map(IndexSet::text).unwrap_or_default(),
            "notRunCount": self.not_run().map_or(0, IndexSet::len), "createdAt": at(self.created_at),
            "startedAt": at(self.started_at), "finishedAt": at(self.finished_at), "seconds": seconds,
        })
    }
}

/// Whole seconds: ages need no fractions.
fn age(millis: i64) -> String {
    let seconds = u64::try_from(millis).unwrap_or(0) / 1_000;
    if seconds < 10 { format!("{seconds}s") } else { duration(Duration::from_secs(seconds)) }
}

/// A time with milliseconds, or nothing.
pub fn precise(at: Option<i64>) -> Option<String> {
    at.map(precise_time)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn job(name: &str, status: Value) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "default", "uid": format!("u-{name}"),
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"completions": 4}, "status": status,
        })
    }

    #[test]
    fn the_state_is_the_verdict_or_what_the_counts_say() {
        let done = |kind: &str| {
            json!({"succeeded": 3, "failed": 1, "startTime": "2026-01-01T00:00:01Z", "conditions": [
                {"type": kind, "status": "True", "reason": "R", "lastTransitionTime": "2026-01-01T00:00:05Z"}]})
        };
        let now = Timestamp::parse("2026-01-01T00:01:00Z").unwrap().millis();
        for (status, idle, expected) in [
            (json!({}), false, "sum Waiting 0 0 0 4 1m00s -"),
            (json!({"active": 2, "startTime": "2026-01-01T00:00:50Z"}), false, "sum Running 0 0 2 4 1m00s 10s"),
            (json!({"active": 2, "startTime": "2026-01-01T00:00:50Z"}), true, "sum Stopped 0 0 0 4 1m00s -"),
            (done("Complete"), false, "sum Complete 3 1 0 4 1m00s 4.0s"),
            (done("Failed"), true, "sum Failed 3 1 0 4 1m00s 4.0s"),
            (done("FailureTarget"), false, "sum Ending 3 1 0 4 1m00s 59s"),
        ] {
            let rows = rows(&[job("sum", status)], idle, &Waits::new());
            assert_eq!(rows[0].cells(now).join(" "), expected);
        }
    }

    #[test]
    fn what_was_not_run_is_told_of_a_job_that_has_failed() {
        let with = |kind: &str, limit: Value, annotations: Value| {
            let mut job = job(
                "sum",
                json!({"succeeded": 1, "completedIndexes": "0", "failedIndexes": "2", "conditions": [
                {"type": kind, "status": "True", "reason": "R"}]}),
            );
            job["spec"] = json!({"completions": 4, "completionMode": "Indexed", "backoffLimitPerIndex": limit});
            job["metadata"]["annotations"] = annotations;
            rows(&[job], false, &Waits::new()).remove(0)
        };
        let row = with("Failed", json!(0), json!({}));
        assert!(
            row.lines(0).contains(&"Left:      2 of 4 not run to the end: indexes 1,3".to_owned()),
            "{:?}",
            row.lines(0)
        );
        assert_eq!((&row.json()["notRun"], &row.json()["notRunCount"]), (&json!("1,3"), &json!(2)));
        let row = with("Failed", json!(null), json!({}));
        assert!(
            row.lines(0).contains(&"Left:      2 of 4 not succeeded: indexes 1,3".to_owned()),
            "{:?}",
            row.lines(0)
        );
        // The indexes are those of the Job that was run first.
        let row = with("Failed", json!(0), json!({"tally.dev/retry-indexes": "10,20-22"}));
        assert_eq!((row.failed_indexes.as_str(), &row.json()["notRun"]), ("21", &json!("20,22")));
        for kind in ["Complete", "Other"] {
            assert_eq!(with(kind, json!(0), json!({})).json()["notRun"], "", "{kind}");
        }
    }

    #[test]
    fn parts_of_a_list_are_one_row() {
        let part = |number: u32, status: Value| {
            let mut part = job(&format!("list-{number}"), status);
            part["metadata"]["annotations"] = json!({PART_OF: "list", FIRST_INDEX: (number * 4).to_string()});
            part
        };
        let complete = json!({"succeeded": 3, "failedIndexes": "1", "completionTime": "2026-01-01T00:00:09Z",
            "conditions": [{"type": "Complete", "status": "True"}]});
        let running = json!({"succeeded": 1, "active": 2, "failedIndexes": "0,3"});
        let jobs = [part(1, running), part(0, complete), job("other", json!({}))];
        let found = rows(&jobs, false, &Waits::new());
        assert_eq!(found.len(), 2);
        let list = &found[0];
        assert_eq!((list.name.as_str(), list.state.as_str()), ("list", "Running"));
        assert_eq!((list.succeeded, list.active, list.total, list.finished_at), (4, 2, Some(8), None));
        assert_eq!(list.failed_indexes, "1,4,7");
        // Its parts are asked about one by one; as a whole it waits if all that have not ended wait.
        let wait =
            |uid: &str| (uid.to_owned(), Wait { reason: "Unschedulable", message: "It fits nowhere.".to_owned() });
        let whole = |waits: &[&str]| {
            let row = rows(&jobs, false, &waits.iter().map(|uid| wait(uid)).collect()).remove(0);
            (row.state.clone(), row.why())
        };
        assert_eq!(whole(&["u-list-1"]), ("Waiting".to_owned(), "It fits nowhere.".to_owned()));
        assert_eq!(whole(&["u-other"]), ("Running".to_owned(), String::new()));
        assert!(is_named(&jobs[0], "list") && is_named(&jobs[0], "list-1") && !is_named(&jobs[2], "list"));
    }
}
