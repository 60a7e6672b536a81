//! Text for output without a live display: plain lines, JSON lines, and the final summary. Pure.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tally_core::time::Timestamp;
use tally_node::attempts::AttemptRecord;
use tally_node::output::OutputSource;
use tally_node::shim::log::Stream;

use super::model::{Job, NotRun, PodFailure, RetryWait, Standstill, State, Stuck};
use super::render::{failure_log, failure_title};
use super::words::{cut, duration, harmless, rate};
use crate::run::follow::lines::Piece;

/// A line of a list is cut to this many columns in the summary.
const LINE_WIDTH: usize = 100;

/// `sum: 12/20 ok, 1 failed, 4 active, 10/s, 5.0s left`
pub fn progress(job: &Job) -> String {
    let mut parts = vec![counts(job)];
    match &job.state {
        State::Waiting => parts = vec!["waiting".to_owned()],
        State::WaitingFor { jobs } => parts = vec![waiting_for(jobs)],
        State::Suspended => parts.push("suspended".to_owned()),
        State::Ending { failed, reason } => {
            parts.push(format!("{}: {reason}", if *failed { "failing" } else { "completing" }));
        }
        State::Complete { .. } => parts.push("Complete".to_owned()),
        State::Failed { reason, .. } => parts.push(format!("Failed: {reason}")),
        State::Deleted => parts.push("deleted before it finished".to_owned()),
        State::Running => {
            parts.push(format!("{} active", job.running()));
            parts.extend((job.waiting > 0).then(|| format!("{} waiting", job.waiting)));
            parts.extend(job.rate().map(rate));
            parts.extend(job.time_left().map(|left| format!("{} left", duration(left))));
        }
    }
    format!("{}: {}", job.name, parts.join(", "))
}

/// `waiting for a, b`
pub fn waiting_for(jobs: &[String]) -> String {
    // The Jobs have ended, and this one is about to be resumed or marked as failed.
    if jobs.is_empty() { "waiting".to_owned() } else { format!("waiting for {}", jobs.join(", ")) }
}

fn counts(job: &Job) -> String {
    let ok = match job.completions {
        Some(completions) => format!("{}/{completions} ok", job.succeeded),
        None => format!("{} ok", job.succeeded),
    };
    if job.failed > 0 { format!("{ok}, {} failed", job.failed) } else { ok }
}

/// A failure, with the end of its log.
pub fn failure(job: &Job, failure: &PodFailure) -> Vec<String> {
    let mut lines = vec![format!("{}: {}", job.name, failure_title(failure))];
    lines.extend(failure_log(failure).into_iter().map(|line| format!("  | {line}")));
    lines
}

/// `attempt 3 of 7, next in 40 s (last failure: exit code 1)`
pub fn wait_text(wait: &RetryWait, waiting: usize, now: Duration) -> String {
    let left = wait.until.saturating_sub(now);
    let left = match left.as_millis().div_ceil(1000) {
        seconds @ 0..60 => format!("{seconds} s"),
        _ => duration(left),
    };
    let more = if waiting > 1 { format!("; {} more wait", waiting - 1) } else { String::new() };
    harmless(&format!("{}, next in {left}{}{more}", wait.notice.attempt(), wait.notice.because()))
}

pub fn wait_json(job: &Job, wait: &RetryWait, waiting: usize, now: Duration, at: &str) -> Value {
    let notice = &wait.notice;
    let cause = notice.cause.as_ref();
    let told = json!({
        "index": notice.index, "attempt": notice.failures, "attempts": notice.allowed,
        "secondsLeft": rounded(wait.until.saturating_sub(now).as_secs_f64()), "nextAt": notice.retry_at.to_string(),
        "exitCode": cause.and_then(|cause| cause.exit_code),
        "reason": cause.map(|cause| cause.reason.as_str()), "waiting": waiting,
    });
    with(event("backoff", job, at), told)
}

pub fn standstill(job: &Job, why: &Standstill) -> String {
    format!("{}: {}", job.name, standstill_text(why))
}

/// Why a Job does not move, and what would change that.
pub fn standstill_text(why: &Standstill) -> String {
    harmless(&format!("{} {}", why.message, why.change)).trim_end().to_owned()
}

pub fn standstill_json(job: &Job, why: Option<&Standstill>, at: &str) -> Value {
    let told = json!({
        "reason": why.map(|why| why.reason), "message": why.map(|why| &why.message), "change": why.map(|why| &why.change),
    });
    with(event("standstill", job, at), told)
}

pub fn stuck(job: &Job, stuck: &Stuck) -> String {
    format!("{}: {}", job.name, stuck_text(stuck))
}

/// Why a Pod cannot start, and what to do about it.
pub fn stuck_text(stuck: &Stuck) -> String {
    let told = format!("{} cannot start: {}: {}", stuck.pod, stuck.reason, harmless(&stuck.message));
    match advice(stuck) {
        "" => told,
        advice => format!("{}; {advice}", told.trim_end_matches('.')),
    }
}

/// Empty if the message already says what to do.
fn advice(stuck: &Stuck) -> &'static str {
    match stuck.reason.as_str() {
        "Unschedulable" if stuck.elsewhere => {
            "request less (--cpu, --memory, resources.requests, nodeSelector), or wait until a node has room"
        }
        "Unschedulable" => {
            "this machine cannot satisfy its requests: request less (--cpu, --memory, resources.requests, nodeSelector)"
        }
        "ContainerCreating" | "PodInitializing" | "CreateContainerConfigError" => {
            "it starts when this is available; add it to the same file, or mark it optional"
        }
        _ => "",
    }
}

/// The result in one word.
pub fn result(job: &Job) -> &'static str {
    match &job.state {
        State::Complete { .. } => "Complete",
        State::Failed { .. } => "Failed",
        State::Deleted => "Deleted",
        _ => "Interrupted",
    }
}

/// The final summary of a Job. `stopped`: what a stop has done to a Job that is not finished.
pub fn summary(job: &Job, now: Duration, stopped: &str) -> Vec<String> {
    if let Some(last) = &job.succeeded_since {
        return vec![format!(
            "{}: had Failed before this run, and all of it has succeeded since, with {last}",
            job.name
        )];
    }
    let took = duration(job.finished_after.unwrap_or(now));
    let how = match (&job.state, job.was_finished) {
        (State::Complete { .. }, true) => "was Complete before this run".to_owned(),
        (State::Failed { reason, .. }, true) => format!("had Failed before this run: {reason}"),
        (State::Complete { .. }, false) => format!("Complete in {took}"),
        (State::Failed { reason, message }, false) if message.is_empty() => format!("Failed in {took}: {reason}"),
        (State::Failed { reason, message }, false) => format!("Failed in {took}: {reason}: {}", harmless(message)),
        (State::Deleted, _) => format!("deleted after {took}, before it finished"),
        _ => format!("{stopped} after {took}"),
    };
    let mut lines = vec![format!("{}: {how}; {}", job.name, counts(job).replace(" ok", " succeeded"))];
    if !job.failed_indexes.is_empty() {
        lines.push(format!("{}: failed indexes {}", job.name, job.failed_indexes));
    }
    for (index, line) in &job.failed_lines {
        lines.push(format!("{}: failed index {index}: {}", job.name, cut(&harmless(line), LINE_WIDTH)));
    }
    let more = (job.failed_index_count() as usize).saturating_sub(job.failed_lines.len());
    if more > 0 && !job.failed_lines.is_empty() {
        let lines_word = if more == 1 { "line" } else { "lines" };
        lines.push(format!("{}: and {more} more failed {lines_word}", job.name));
    }
    let NotRun { indexes, count, or_failed } = &job.not_run;
    if *count > 0 {
        let all = job.completions.unwrap_or(0);
        let what = if *or_failed { "not succeeded" } else { "not run to the end" };
        lines.push(format!("{}: {what}: {count} of {all}, indexes {indexes}", job.name));
    }
    lines
}

/// The fields that every event about a Job has.
fn event(kind: &str, job: &Job, at: &str) -> Value {
    json!({"event": kind, "at": at, "namespace": job.namespace, "job": job.name})
}

fn with(mut event: Value, more: Value) -> Value {
    if let (Some(event), Value::Object(more)) = (event.as_object_mut(), more) {
        event.extend(more);
    }
    event
}

fn counts_json(job: &Job) -> Value {
    json!({
        "completions": job.completions, "active": job.running(), "waiting": job.waiting, "succeeded": job.succeeded, "failed": job.failed,
    })
}

pub fn progress_json(job: &Job, at: &str) -> Value {
    let state = match &job.state {
        State::Waiting | State::WaitingFor { .. } => "Waiting",
        State::Running => "Running",
        State::Suspended => "Suspended",
        State::Ending { .. } => "Ending",
        _ => result(job),
    };
    let seconds = job.time_left().map(|left| rounded(left.as_secs_f64()));
    let more = json!({"state": state, "ratePerSecond": job.rate().map(rounded), "secondsLeft": seconds});
    let told = with(with(event("progress", job, at), counts_json(job)), more);
    match &job.state {
        State::WaitingFor { jobs } => with(told, json!({"waitingFor": jobs})),
        _ => told,
    }
}

pub fn failure_json(job: &Job, failure: &PodFailure, at: &str) -> Value {
    let told = json!({
        "pod": failure.pod, "index": failure.index, "container": failure.container, "exitCode": failure.exit_code,
        "reason": failure.reason, "message": failure.message, "log": failure.log,
    });
    let told = match &failure.record {
        Some(record) => with(told, attempt_json(record)),
        None => told,
    };
    match failure.crash {
        None => with(event("failure", job, at), told),
        Some(number) => with(with(event("restart", job, at), told), json!({"restarts": number.saturating_add(1)})),
    }
}

/// When an attempt started and ended, and what it used.
pub fn attempt_json(record: &AttemptRecord) -> Value {
    // Every process uses some memory. On a cluster it is not known how much.
    let is_known = record.peak_kib > 0;
    json!({
        "attempt": record.attempt, "startedAt": precise_time(record.started_at),
        "finishedAt": precise_time(record.finished_at), "seconds": record.millis() as f64 / 1e3,
        "cpuSeconds": is_known.then_some(record.cpu_micros as f64 / 1e6),
        "peakMemoryBytes": is_known.then_some(record.peak_kib << 10),
        "peakMemoryIsBound": is_known.then_some(record.peak_is_bound),
    })
}

/// An RFC 3339 time with milliseconds.
pub fn precise_time(millis: i64) -> String {
    Timestamp::from_millis(millis).to_string().replace('Z', &format!(".{:03}Z", millis.rem_euclid(1_000)))
}

/// An attempt that has succeeded.
pub fn success_json(job: &Job, record: &AttemptRecord, at: &str) -> Value {
    let told = json!({
        "pod": record.pod, "index": record.index, "container": record.container, "exitCode": record.exit_code,
    });
    with(with(event("success", job, at), told), attempt_json(record))
}

pub fn stuck_json(job: &Job, stuck: Option<&Stuck>, at: &str) -> Value {
    let (pod, reason, message) =
        stuck.map_or((None, None, None), |it| (Some(&it.pod), Some(&it.reason), Some(&it.message)));
    let advice = stuck.map(advice).filter(|advice| !advice.is_empty());
    with(event("stuck", job, at), json!({"pod": pod, "reason": reason, "message": message, "advice": advice}))
}

/// A line that a task has printed. A very long line has several events, all but the last with `partial`. Bytes that are
/// not UTF-8 are replaced in `line`; then `base64` has them all.
pub fn log_json(source: &OutputSource, container: &str, piece: Piece<'_>, at: &str) -> Value {
    let stream = if piece.stream == Stream::Stdout { "stdout" } else { "stderr" };
    let text = String::from_utf8_lossy(piece.text);
    let mut told = json!({
        "event": "log", "at": at, "namespace": source.namespace, "job": source.job_name, "pod": source.pod,
        "index": source.index, "container": container, "stream": stream, "line": text,
    });
    if std::str::from_utf8(piece.text).is_err() {
        told["base64"] = BASE64_STANDARD.encode(piece.text).into();
    }
    if !piece.ends {
        told["partial"] = true.into();
    }
    told
}

pub fn summary_json(job: &Job, now: Duration, data_dir: Option<&str>, at: &str) -> Value {
    let (reason, message) = match &job.state {
        State::Complete { reason, message } | State::Failed { reason, message } => (reason.as_str(), message.as_str()),
        _ => ("", ""),
    };
    let seconds = rounded(job.finished_after.unwrap_or(now).as_secs_f64());
    let more = json!({
        "result": result(job), "reason": reason, "message": message, "failedIndexes": job.failed_indexes,
        "failedLines": job.failed_lines.iter().map(|(index, line)| json!({"index": index, "line": line})).collect::<Vec<_>>(),
        "notRun": job.not_run.indexes, "notRunCount": job.not_run.count,
        "seconds": if job.was_finished { 0.0 } else { seconds }, "ranBefore": job.was_finished, "succeededSince": job.succeeded_since,
        "dataDir": data_dir,
    });
    with(with(event("summary", job, at), counts_json(job)), more)
}

/// Rounds to three decimals.
fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::model::tests::{failed_pod, model, seen};
    use super::*;

    fn ended(status: Value) -> Job {
        let mut model = model();
        model.saw_job(&seen(Some(9), json!({"active": 1})), Duration::ZERO);
        model.saw_job(&seen(Some(9), status), Duration::from_secs(2));
        model.jobs()[0].clone()
    }

    fn condition(kind: &str) -> Value {
        json!([{"type": kind, "status": "True", "reason": "R", "message": "M"}])
    }

    #[test]
    fn lines_say_how_it_goes_and_how_it_went() {
        for (status, line, told) in [
            (json!({}), "sum: waiting", "sum: interrupted after 5.0s; 0/9 succeeded"),
            (
                json!({"active": 2, "succeeded": 4, "failed": 1}),
                "sum: 4/9 ok, 1 failed, 2 active, 2.0/s, 2.5s left",
                "sum: interrupted after 5.0s; 4/9 succeeded, 1 failed",
            ),
            (
                json!({"succeeded": 9, "conditions": condition("Complete")}),
                "sum: 9/9 ok, Complete",
                "sum: Complete in 2.0s; 9/9 succeeded",
            ),
            (
                json!({"failed": 7, "conditions": condition("Failed")}),
                "sum: 0/9 ok, 7 failed, Failed: R",
                "sum: Failed in 2.0s: R: M; 0/9 succeeded, 7 failed",
            ),
            (
                json!({"active": 2, "conditions": condition("FailureTarget")}),
                "sum: 0/9 ok, failing: R",
                "sum: interrupted",
            ),
        ] {
            let job = ended(status.clone());
            assert_eq!(progress(&job), line, "{status}");
            assert!(
                summary(&job, Duration::from_secs(5), "interrupted")[0].starts_with(told),
                "{:?}",
                summary(&job, Duration::from_secs(5), "interrupted")
            );
        }
        let job = ended(json!({"active": 1, "succeeded": 4}));
        assert_eq!(summary(&job, Duration::from_secs(5), "killed"), ["sum: killed after 5.0s; 4/9 succeeded"]);
        let job = ended(json!({"failed": 3, "failedIndexes": "1,3-4", "conditions": condition("Failed")}));
        assert_eq!(summary(&job, Duration::ZERO, "interrupted")[1], "sum: failed indexes 1,3-4");
    }

    #[test]
    fn a_summary_says_what_was_not_run_and_which_lines_have_failed() {
        let halted = |limit: Value| {
            let mut model = model();
            let status = json!({"succeeded": 2, "failed": 2, "completedIndexes": "0,1", "failedIndexes": "3,4", "conditions": condition("Failed")});
            let mut text = seen(Some(9), status);
            text.spec.completion_mode = Some("Indexed".to_owned());
            text.spec.backoff_limit_per_index = serde_json::from_value(limit).unwrap();
            model.saw_job(&text, Duration::ZERO);
            let uid = model.jobs()[0].uid.clone();
            model.failed_lines(&uid, vec![(3, format!("\u{1b}[2Jlong {}", "x".repeat(200)))]);
            model.jobs()[0].clone()
        };
        let job = halted(json!(0));
        let line = format!("sum: failed index 3: long {}~", "x".repeat(94));
        let expected = [
            "sum: failed indexes 3,4",
            &line,
            "sum: and 1 more failed line",
            "sum: not run to the end: 5 of 9, indexes 2,5-8",
        ];
        assert_eq!(summary(&job, Duration::ZERO, "interrupted")[1..], expected);
        let told = summary_json(&job, Duration::ZERO, None, "t");
        assert_eq!((&told["notRun"], &told["notRunCount"]), (&json!("2,5-8"), &json!(5)));
        assert_eq!(told["failedLines"][0]["index"], 3);
        let lines = summary(&halted(json!(null)), Duration::ZERO, "interrupted");
        assert_eq!(lines.last().unwrap(), "sum: not succeeded: 5 of 9, indexes 2,5-8");
    }

    #[test]
    fn failures_have_their_log() {
        let mut model = model();
        let failed = model.saw_pod(&failed_pod(4, 3)).unwrap();
        failed.log = Some(vec!["bad".to_owned(), "worse".to_owned()]);
        let failed = failed.clone();
        assert_eq!(
            failure(&model.jobs()[0], &failed),
            ["sum: index 4: exit code 3, Pod sum-4-xyz", "  | bad", "  | worse"]
        );
        let event = failure_json(&model.jobs()[0], &failed, "now");
        assert_eq!((&event["event"], &event["index"], &event["exitCode"]), (&json!("failure"), &json!(4), &json!(3)));
        let crash = PodFailure { crash: Some(0), ..failed };
        assert_eq!(failure(&model.jobs()[0], &crash)[0], "sum: index 4: exit code 3, Pod sum-4-xyz, restarts in place");
        let event = failure_json(&model.jobs()[0], &crash, "now");
        assert_eq!((&event["event"], &event["restarts"]), (&json!("restart"), &json!(1)));
    }

    #[test]
    fn a_retry_says_when_and_why() {
        let mut model = model();
        let notice = tally_core::backoff::BackoffNotice {
            index: None,
            failures: 3,
            allowed: 7,
            one_task: true,
            waits_for: tally_core::time::Span::from_seconds(40),
            retry_at: tally_core::time::Timestamp::from_seconds(40),
            cause: Some(tally_core::backoff::FailureCause { exit_code: Some(1), reason: "".into() }),
        };
        let uid = model.jobs()[0].uid.clone();
        model.waits(&uid, notice.clone(), Duration::from_secs(50));
        let job = &model.jobs()[0];
        let (wait, waiting) = job.retry_wait().unwrap();
        let text = |now| wait_text(wait, waiting, Duration::from_millis(now));
        assert_eq!(text(10_000), "attempt 3 of 7, next in 40 s (last failure: exit code 1)");
        assert_eq!(text(49_900), "attempt 3 of 7, next in 1 s (last failure: exit code 1)");
        let told = wait_json(job, wait, waiting, Duration::from_secs(10), "now");
        for (field, expected) in
            [("attempt", json!(3)), ("attempts", json!(7)), ("secondsLeft", json!(40.0)), ("exitCode", json!(1))]
        {
            assert_eq!(told[field], expected, "{told}");
        }
        let line = super::super::render::lines(
            &model,
            super::super::render::Size { columns: 90, rows: 9 },
            super::super::render::Style::default(),
            Duration::from_secs(10),
        );
        assert!(
            line.iter().any(|line| line.contains("attempt 3 of 7, next in 40 s (last failure: exit code 1)")),
            "{line:?}"
        );
        model.waits(&uid, tally_core::backoff::BackoffNotice { index: Some(4), ..notice }, Duration::from_secs(90));
        let (wait, waiting) = model.jobs()[0].retry_wait().unwrap();
        assert!(wait_text(wait, waiting, Duration::ZERO).ends_with("(last failure: exit code 1); 1 more wait"));
        model.tick(Duration::from_secs(60));
        let (wait, waiting) = model.jobs()[0].retry_wait().unwrap();
        assert!(
            wait_text(wait, waiting, Duration::from_secs(10)).starts_with("index 4: attempt 3 of 7, next in 1m20s")
        );
        model.tick(Duration::from_secs(100));
        assert_eq!(model.jobs()[0].retry_wait(), None);
    }

    #[test]
    fn a_stuck_pod_is_reported_with_advice() {
        for (reason, told) in [("Unschedulable", "; this machine cannot satisfy"), ("StartError", ": m")] {
            let stuck =
                Stuck { pod: "p".to_owned(), reason: reason.to_owned(), message: "m".to_owned(), elsewhere: false };
            assert!(stuck_text(&stuck).contains(told), "{}", stuck_text(&stuck));
        }
    }

    fn piece(text: &[u8], ends: bool) -> Piece<'_> {
        Piece { stream: Stream::Stderr, begins: true, text, ends }
    }

    #[test]
    fn lines_of_tasks_keep_every_byte() {
        let source = OutputSource::default();
        let plain = log_json(&source, "c", piece("h\u{e9}".as_bytes(), true), "t");
        assert_eq!((&plain["line"], &plain["stream"]), (&json!("h\u{e9}"), &json!("stderr")));
        assert!(plain.get("base64").is_none() && plain.get("partial").is_none(), "{plain}");
        let other = log_json(&source, "c", piece(b"a\xff", false), "t");
        assert_eq!((&other["base64"], &other["partial"]), (&json!("Yf8="), &json!(true)));
    }

    #[test]
    fn events_are_about_a_job() {
        let job = ended(json!({"succeeded": 9, "conditions": condition("Complete")}));
        let source = OutputSource { job_name: "sum".into(), index: Some(1), ..OutputSource::default() };
        for event in [
            progress_json(&job, "t"),
            summary_json(&job, Duration::ZERO, Some("/d"), "t"),
            log_json(&source, "c", piece(b"x", true), "t"),
            stuck_json(&job, None, "t"),
            standstill_json(&job, None, "t"),
        ] {
            for field in ["event", "at", "namespace", "job"] {
                assert!(event[field].is_string(), "{event}");
            }
        }
        let summary = summary_json(&job, Duration::ZERO, Some("/d"), "t");
        assert_eq!(
            (&summary["result"], &summary["seconds"], &summary["dataDir"]),
            (&json!("Complete"), &json!(2.0), &json!("/d"))
        );
    }
}
