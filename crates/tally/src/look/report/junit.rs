//! The JUnit form of test results, which CI systems show: a Job is a suite, a task is a case.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

use tally_core::indexes::IndexSet;

use super::{ReportedJob, escape};
use crate::look::attempts::AttemptRow;
use crate::look::jobs::{JobRow, precise};

/// The document for these Jobs.
pub fn document(jobs: &[ReportedJob]) -> String {
    let suites: Vec<Suite<'_>> = jobs.iter().map(Suite::of).collect();
    let sum = |count: fn(&Suite<'_>) -> usize| suites.iter().map(count).sum::<usize>();
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a String does not fail.
    let _ = writeln!(
        text,
        "<testsuites tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\">",
        sum(|suite| suite.cases.len()),
        sum(|suite| suite.failures()),
        sum(|suite| usize::from(suite.error.is_some())),
        sum(|suite| suite.skipped())
    );
    suites.iter().for_each(|suite| suite.write(&mut text));
    text.push_str("</testsuites>\n");
    text
}

struct Suite<'a> {
    reported: &'a ReportedJob,
    cases: Vec<Case<'a>>,
    /// Indexes that were counted and of which no attempt is known: their Pods are gone.
    without_attempts: usize,
    /// The Job failed, but none of its tasks: why.
    error: Option<String>,
}

struct Case<'a> {
    name: String,
    /// In the order in which they started; empty for one that says how the Job itself ended.
    attempts: Vec<&'a AttemptRow>,
    result: CaseResult,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaseResult {
    Passed,
    Failed,
    /// It did not end.
    Skipped,
    /// The Job itself.
    Error,
}

impl<'a> Suite<'a> {
    fn of(reported: &'a ReportedJob) -> Self {
        let job = &reported.job;
        let mut cases: Vec<Case<'a>> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        // With one completion all attempts are of the same task. Otherwise a task without an index has one attempt: its Pod.
        let one_task = job.total == Some(1);
        for attempt in &reported.attempts {
            let name = match attempt.index {
                Some(index) => format!("index {index}"),
                None if one_task => job.name.clone(),
                None => attempt.pod.clone(),
            };
            let name = if attempt.several { format!("{name} {}", attempt.container) } else { name };
            let place = *places.entry(name.clone()).or_insert(cases.len());
            if place == cases.len() {
                cases.push(Case { name, attempts: Vec::new(), result: CaseResult::Skipped });
            }
            cases[place].attempts.push(attempt);
        }
        let is_complete = job.state == "Complete";
        // A Pod that was replaced by another one is not a task that failed.
        cases.retain(|case| {
            let is_replaceable = is_complete && !one_task && case.attempts[0].index.is_none();
            !is_replaceable || case.attempts.iter().any(|attempt| attempt.has_succeeded())
        });
        // What the Job has counted decides: of a Job on a cluster, the Pod that succeeded may be gone.
        let [completed, failed] =
            [&job.completed_indexes, &job.failed_indexes].map(|text| IndexSet::read_tolerant(text, u32::MAX));
        for case in &mut cases {
            let index = case.attempts.first().and_then(|attempt| attempt.index);
            case.result = match case.attempts.last() {
                _ if index.is_some_and(|index| completed.contains(index)) => CaseResult::Passed,
                // One container of a Pod that failed.
                Some(last) if last.several && last.has_succeeded() => CaseResult::Passed,
                _ if index.is_some_and(|index| failed.contains(index)) => CaseResult::Failed,
                Some(last) if last.has_succeeded() => CaseResult::Passed,
                Some(last) if last.has_failed() => CaseResult::Failed,
                _ => CaseResult::Skipped,
            };
        }
        let known: BTreeSet<u32> = reported.attempts.iter().filter_map(|attempt| attempt.index).collect();
        let counted = completed.len() + failed.len();
        let known = known.into_iter().filter(|index| completed.contains(*index) || failed.contains(*index)).count();
        let without_attempts = counted.saturating_sub(known);
        let has_failed_case = cases.iter().any(|case| case.result == CaseResult::Failed);
        let error = (job.state == "Failed" && !has_failed_case).then(|| verdict(job));
        if error.is_some() {
            cases.push(Case { name: job.name.clone(), attempts: Vec::new(), result: CaseResult::Error });
        }
        Self { reported, cases, error, without_attempts }
    }

    fn failures(&self) -> usize {
        self.cases.iter().filter(|case| case.result == CaseResult::Failed).count()
    }

    fn skipped(&self) -> usize {
        self.cases.iter().filter(|case| case.result == CaseResult::Skipped).count()
    }

    fn write(&self, text: &mut String) {
        let ReportedJob { job, dropped, .. } = self.reported;
        let name = escape(&format!("{}/{}", job.namespace, job.name));
        let began = precise(job.started_at).map(|at| format!(" timestamp=\"{at}\"")).unwrap_or_default();
        let took = job.started_at.zip(job.finished_at).map_or(0, |(start, end)| end - start);
        let _ = writeln!(
            text,
            "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3}\"{began}>",
            self.cases.len(),
            self.failures(),
            usize::from(self.error.is_some()),
            self.skipped(),
            took as f64 / 1e3
        );
        let mut properties = vec![("state", job.state.clone()), ("succeeded", job.succeeded.to_string())];
        properties.push(("failed", job.failed.to_string()));
        if self.without_attempts > 0 {
            properties.push(("indexes without an attempt", self.without_attempts.to_string()));
        }
        if *dropped > 0 {
            properties.push(("attempts without a record", dropped.to_string()));
        }
        text.push_str("    <properties>\n");
        for (name, value) in properties {
            let _ = writeln!(text, "      <property name=\"{name}\" value=\"{}\"/>", escape(&value));
        }
        text.push_str("    </properties>\n");
        self.cases.iter().for_each(|case| self.write_case(case, text));
        text.push_str("  </testsuite>\n");
    }

    fn write_case(&self, case: &Case<'_>, text: &mut String) {
        let class = escape(&self.reported.job.name);
        let took: u64 = case.attempts.iter().filter_map(|attempt| attempt.took_millis()).sum();
        let _ = write!(
            text,
            "    <testcase classname=\"{class}\" name=\"{}\" time=\"{:.3}\"",
            escape(&case.name),
            took as f64 / 1e3
        );
        let mut inside = String::new();
        // The attempt that succeeded may be unknown.
        let is_known =
            case.attempts.last().is_some_and(|last| last.has_succeeded() == (case.result == CaseResult::Passed));
        let (last, before) = match case.attempts.split_last() {
            Some((last, before)) if is_known => (Some(*last), before),
            _ => (None, &case.attempts[..]),
        };
        match case.result {
            CaseResult::Failed => {
                inside += &last.map_or_else(
                    || "      <failure message=\"failed\"/>\n".to_owned(),
                    |last| failure("failure", last),
                );
            }
            CaseResult::Skipped => inside += "      <skipped message=\"it did not end\"/>\n",
            CaseResult::Error => {
                let why = escape(self.error.as_deref().unwrap_or_default());
                inside += &format!("      <error type=\"Job\" message=\"{why}\"/>\n");
            }
            CaseResult::Passed => {}
        }
        let earlier = if case.result == CaseResult::Passed { "flakyFailure" } else { "rerunFailure" };
        for attempt in before.iter().filter(|attempt| attempt.has_failed()) {
            inside += &failure(earlier, attempt);
        }
        if inside.is_empty() {
            text.push_str("/>\n");
        } else {
            let _ = write!(text, ">\n{inside}    </testcase>\n");
        }
    }
}

fn failure(element: &str, attempt: &AttemptRow) -> String {
    let how = escape(&attempt.result());
    let about = format!("attempt {} in Pod {}", attempt.attempt, attempt.pod);
    let message = [about.as_str(), attempt.message.trim_end()].join("\n");
    format!("      <{element} type=\"{how}\" message=\"{how}\">{}</{element}>\n", escape(message.trim_end()))
}

/// Why a Job failed, as its condition says.
fn verdict(job: &JobRow) -> String {
    let words = [job.reason.as_str(), job.message.as_str()];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::attempts::AttemptState;

    fn attempt(index: Option<u32>, attempt: u32, code: Option<i32>) -> AttemptRow {
        AttemptRow {
            index,
            attempt,
            pod: format!("p-{attempt}"),
            state: if code.is_some() { AttemptState::Ended } else { AttemptState::Running },
            exit_code: code,
            started_at: Some(1_000),
            finished_at: code.map(|_| 2_500),
            message: if code == Some(0) { String::new() } else { "<bad> & \"wrong\"".to_owned() },
            ..AttemptRow::default()
        }
    }

    fn reported(state: &str, total: u64, attempts: Vec<AttemptRow>) -> ReportedJob {
        let job = JobRow {
            namespace: "default".into(),
            name: "sum".into(),
            state: state.into(),
            reason: "DeadlineExceeded".into(),
            total: Some(total),
            ..JobRow::default()
        };
        ReportedJob { job, attempts, dropped: 0 }
    }

    #[test]
    fn the_last_attempt_decides_and_earlier_ones_are_shown() {
        let indexed = reported(
            "Failed",
            3,
            vec![
                attempt(Some(0), 1, Some(0)),
                attempt(Some(1), 1, Some(3)),
                attempt(Some(1), 2, Some(0)),
                attempt(Some(2), 1, Some(4)),
                attempt(Some(2), 2, Some(5)),
                attempt(Some(3), 1, None),
            ],
        );
        let text = document(&[indexed]);
        assert!(text.contains("<testsuites tests=\"4\" failures=\"1\" errors=\"0\" skipped=\"1\">"), "{text}");
        assert!(text.contains("name=\"index 0\" time=\"1.500\"/>"), "{text}");
        assert!(text.contains("<flakyFailure type=\"exit 3\""), "{text}");
        assert!(text.contains("<failure type=\"exit 5\"") && text.contains("<rerunFailure type=\"exit 4\""), "{text}");
        assert!(text.contains("&lt;bad&gt; &amp; &quot;wrong&quot;"), "{text}");
    }

    #[test]
    fn a_pod_that_was_replaced_is_no_failure_of_a_job_that_is_complete() {
        let attempts = || vec![attempt(None, 1, Some(3)), AttemptRow { pod: "q".into(), ..attempt(None, 2, Some(0)) }];
        let text = document(&[reported("Complete", 5, attempts())]);
        assert!(text.contains("tests=\"1\" failures=\"0\""), "{text}");
        let text = document(&[reported("Complete", 1, attempts())]);
        assert!(text.contains("tests=\"1\" failures=\"0\"") && text.contains("flakyFailure"), "{text}");
    }

    /// On a cluster the Pods that succeeded were deleted, and those that failed before are there.
    #[test]
    fn what_the_job_has_counted_decides() {
        let mut complete = reported("Complete", 3, vec![attempt(Some(0), 1, Some(3)), attempt(Some(1), 1, Some(4))]);
        complete.job.completed_indexes = "0-2".into();
        let text = document(&[complete]);
        assert!(text.contains("tests=\"2\" failures=\"0\""), "{text}");
        assert!(text.contains("flakyFailure type=\"exit 3\""), "{text}");
        assert!(text.contains("name=\"indexes without an attempt\" value=\"1\""), "{text}");
    }

    /// Attempts come ordered by index and start: those of two containers alternate.
    #[test]
    fn containers_of_a_pod_are_cases_of_their_own() {
        let of = |container: &str, number, code| AttemptRow {
            container: container.into(),
            several: true,
            ..attempt(Some(0), number, Some(code))
        };
        let attempts = vec![of("a", 1, 0), of("b", 1, 3), of("a", 2, 0), of("b", 2, 3)];
        let mut failed = reported("Failed", 1, attempts);
        failed.job.failed_indexes = "0".into();
        let text = document(&[failed]);
        assert!(text.contains("tests=\"2\" failures=\"1\" errors=\"0\""), "{text}");
        assert!(text.contains("name=\"index 0 a\" time=\"3.000\"/>"), "{text}");
    }

    #[test]
    fn a_job_that_failed_without_a_task_is_an_error() {
        let text = document(&[reported("Failed", 5, Vec::new())]);
        assert!(text.contains("<error type=\"Job\" message=\"DeadlineExceeded\"/>"), "{text}");
    }
}
