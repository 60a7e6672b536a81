//! The live display: a pure function from the model and the terminal's size to lines.
//!
//! A line for every Job, then the last failures. For every size, no line is longer than the terminal is wide and there
//! are no more lines than it has rows; the most important parts are left out last.

use std::time::Duration;

use super::model::{Job, Model, PodFailure, State};
use super::report::{standstill_text, stuck_text, wait_text, waiting_for};
use super::words::{broken, cut, duration, harmless, rate, width};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub columns: usize,
    pub rows: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    pub colour: bool,
    /// The terminal can show characters beyond ASCII.
    pub unicode: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paint {
    Plain,
    Good,
    Bad,
    Faint,
    Strong,
}

/// Lines of a log shown below a failure.
pub const LOG_LINES: usize = 3;
const MOST_FAILURES: usize = 5;
const LONGEST_NAME: usize = 30;
const LONGEST_BAR: usize = 40;
const SHORTEST_BAR: usize = 8;

type Line = Vec<(Paint, String)>;

pub fn lines(model: &Model, size: Size, style: Style, now: Duration) -> Vec<String> {
    // The last row stays free: if the terminal scrolled, the first line would be lost.
    let rows = size.rows.saturating_sub(1).max(1);
    let mut shown: Vec<Line> = Vec::new();
    let jobs = model.jobs();
    let names = jobs.iter().map(|job| width(&job.name)).max().unwrap_or(0).min(LONGEST_NAME);
    let room = rows - usize::from(model.stopping && rows > 1);
    if jobs.len() <= room {
        shown.extend(jobs.iter().map(|job| job_line(job, names, size.columns, style, now)));
    } else {
        // Running Jobs first.
        let mut order: Vec<&Job> = jobs.iter().collect();
        let waits = |job: &Job| matches!(job.state, State::Waiting | State::WaitingFor { .. });
        order.sort_by_key(|job| (job.state.is_finished(), waits(job)));
        let hidden = jobs.len() - (room - 1);
        shown.extend(order.iter().take(room - 1).map(|job| job_line(job, names, size.columns, style, now)));
        let finished = jobs.iter().filter(|job| job.state.is_finished()).count();
        shown
            .push(vec![(Paint::Faint, format!("  and {hidden} more Jobs; {finished} of {} are finished", jobs.len()))]);
    }
    if model.stopping && rows > 1 {
        let active: u32 = jobs.iter().map(|job| job.active + job.terminating).sum();
        let text = format!("  stopping: waiting for {active} Pods to end; Ctrl-C again kills them at once");
        shown.push(vec![(Paint::Strong, text)]);
    }
    for job in jobs {
        let Some(stuck) = &job.stuck else { continue };
        // Wrapped to several lines if needed: the advice is at the end of the text.
        let lines = broken(&stuck_text(stuck), size.columns.saturating_sub(5));
        add(&mut shown, rows, lines.into_iter().map(|line| vec![(Paint::Bad, format!("  {line}"))]).collect());
    }
    let several = jobs.len() > 1;
    for job in jobs {
        let Some(why) = job.standstill() else { continue };
        let of = if several { format!("{}: ", job.name) } else { String::new() };
        let lines = broken(&format!("{of}{}", standstill_text(why)), size.columns.saturating_sub(5));
        add(&mut shown, rows, lines.into_iter().map(|line| vec![(Paint::Plain, format!("  {line}"))]).collect());
    }
    for job in jobs {
        let Some((wait, waiting)) = job.retry_wait() else { continue };
        let of = if several { format!("{}: ", job.name) } else { String::new() };
        add(&mut shown, rows, vec![vec![(Paint::Plain, format!("  {of}{}", wait_text(wait, waiting, now)))]]);
    }
    for (job, failure) in newest(jobs) {
        add(&mut shown, rows, failure_lines(job, failure, several, style));
    }
    shown.into_iter().map(|line| finish(line, size.columns, style)).collect()
}

/// Adds as much of a block as fits.
fn add(shown: &mut Vec<Line>, rows: usize, block: Vec<Line>) {
    let room = rows.saturating_sub(shown.len());
    shown.extend(block.into_iter().take(room));
}

/// The last failures of all Jobs, the newest of each first.
fn newest(jobs: &[Job]) -> Vec<(&Job, &PodFailure)> {
    let mut failures = Vec::new();
    for back in 0..MOST_FAILURES {
        failures.extend(jobs.iter().filter_map(|job| Some((job, job.failures.iter().rev().nth(back)?))));
    }
    failures.truncate(MOST_FAILURES);
    failures
}

fn job_line(job: &Job, names: usize, columns: usize, style: Style, now: Duration) -> Line {
    let name = cut(&job.name, names.min(columns / 3).max(1));
    let name = format!("{name}{}  ", " ".repeat(names.min(columns / 3).saturating_sub(width(&name))));
    let mut line = vec![mark(job, style), (Paint::Strong, name)];
    let mut counts: Line = vec![(Paint::Plain, succeeded(job))];
    if job.failed > 0 {
        counts.push((Paint::Bad, format!("  {} failed", job.failed)));
    }
    if let Some((paint, text)) = verdict(job) {
        let took = job.finished_after.unwrap_or(now);
        line.push((paint, text));
        line.push((Paint::Plain, "  ".to_owned()));
        line.extend(counts);
        line.push((
            Paint::Faint,
            if job.was_finished { "  before this run".to_owned() } else { format!("  in {}", duration(took)) },
        ));
        return line;
    }
    match &job.state {
        State::Waiting => counts = vec![(Paint::Faint, "waiting".to_owned())],
        State::WaitingFor { jobs } => counts = vec![(Paint::Faint, waiting_for(jobs))],
        State::Suspended => counts.push((Paint::Bad, "  suspended".to_owned())),
        State::Ending { reason, .. } => counts.push((Paint::Plain, format!("  ending: {reason}"))),
        _ => {
            counts.push((Paint::Plain, format!("  {} active", job.running())));
            if job.waiting > 0 {
                counts.push((Paint::Faint, format!("  {} waiting", job.waiting)));
            }
        }
    }
    let fast = job.rate().map(|per_second| (Paint::Plain, format!("  {}", rate(per_second))));
    let left = match job.time_left() {
        Some(left) => Some((Paint::Plain, format!("  {} left", duration(left)))),
        None => Some((Paint::Faint, format!("  {}", duration(now)))),
    };
    let percent = job.share_done().map(|share| (Paint::Plain, format!(" {:>3.0}%  ", (share * 100.0).floor())));
    let long = |parts: &[(Paint, String)]| parts.iter().map(|(_, text)| width(text)).sum::<usize>();
    // The least important parts are left out first.
    for extras in [vec![fast, left.clone()], vec![left], vec![]] {
        let extras: Line = extras.into_iter().flatten().collect();
        let used = long(&line) + percent.as_ref().map_or(0, |(_, text)| width(text)) + long(&counts) + long(&extras);
        let bar_room = columns.saturating_sub(1 + used);
        let wants_bar = percent.is_some();
        if wants_bar && bar_room < SHORTEST_BAR && !extras.is_empty() {
            continue;
        }
        if wants_bar && bar_room >= SHORTEST_BAR {
            line.extend(bar(job.share_done().unwrap_or(0.0), bar_room.min(LONGEST_BAR), style));
            line.extend(percent);
        } else {
            line.extend(percent.map(|(paint, text)| (paint, text.trim_start().to_owned())));
        }
        line.extend(counts);
        line.extend(extras);
        return line;
    }
    line
}

fn mark(job: &Job, style: Style) -> (Paint, String) {
    let (paint, fancy, plain) = match &job.state {
        State::Complete { .. } => (Paint::Good, "\u{2713}", "+"),
        State::Failed { .. } | State::Deleted => (Paint::Bad, "\u{2717}", "x"),
        _ => (Paint::Plain, "\u{b7}", "-"),
    };
    (paint, format!("{} ", if style.unicode { fancy } else { plain }))
}

/// The verdict, if the Job is finished.
fn verdict(job: &Job) -> Option<(Paint, String)> {
    match &job.state {
        State::Complete { .. } => Some((Paint::Good, "Complete".to_owned())),
        State::Failed { reason, .. } => Some((Paint::Bad, format!("Failed: {reason}"))),
        State::Deleted => Some((Paint::Bad, "deleted before it finished".to_owned())),
        _ => None,
    }
}

fn succeeded(job: &Job) -> String {
    match job.completions {
        Some(completions) => format!("{}/{completions} ok", job.succeeded),
        None => format!("{} ok", job.succeeded),
    }
}

fn bar(share: f64, columns: usize, style: Style) -> Line {
    let filled = ((share * columns as f64).floor() as usize).min(columns);
    if style.unicode {
        let (full, rest) = ("\u{2501}".repeat(filled), "\u{2500}".repeat(columns - filled));
        return vec![(Paint::Good, full), (Paint::Faint, rest)];
    }
    let inside = columns.saturating_sub(2);
    let filled = ((share * inside as f64).floor() as usize).min(inside);
    vec![(Paint::Plain, format!("[{}{}]", "#".repeat(filled), ".".repeat(inside - filled)))]
}

/// `index 3: exit code 2 (Error), sum-3-abcde`
pub fn failure_title(failure: &PodFailure) -> String {
    let mut text = match failure.index {
        Some(index) => format!("index {index}: "),
        None => String::new(),
    };
    let reason = harmless(&failure.reason);
    match (failure.exit_code, reason.as_str()) {
        (Some(code), "" | "Error") => text += &format!("exit code {code}"),
        (Some(code), reason) => text += &format!("exit code {code} ({reason})"),
        (None, "") => text += "failed",
        (None, reason) => text += reason,
    }
    text += &format!(", Pod {}", failure.pod);
    if failure.crash.is_some() { text + ", restarts in place" } else { text }
}

/// The last lines of its log, or else the message of the failure.
pub fn failure_log(failure: &PodFailure) -> Vec<String> {
    let written = failure.log.as_deref().unwrap_or_default();
    let lines: Vec<String> = if written.iter().any(|line| !line.trim().is_empty()) {
        written.iter().map(|line| harmless(line)).collect()
    } else {
        failure.message.lines().map(harmless).collect()
    };
    let lines: Vec<String> = lines.into_iter().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].to_vec()
}

fn failure_lines(job: &Job, failure: &PodFailure, several: bool, style: Style) -> Vec<Line> {
    let mark = if style.unicode { "\u{2717}" } else { "x" };
    let of = if several { format!("{} ", job.name) } else { String::new() };
    let mut lines = vec![vec![(Paint::Bad, format!("  {mark} ")), (Paint::Plain, of + &failure_title(failure))]];
    lines.extend(failure_log(failure).into_iter().map(|line| vec![(Paint::Faint, format!("      {line}"))]));
    lines
}

/// One column is left free: some terminals begin a new line when the last column is filled.
fn finish(line: Line, columns: usize, style: Style) -> String {
    let mut room = columns.saturating_sub(1);
    let mut text = String::new();
    for (paint, part) in line {
        // Names and reasons may be those of another server.
        let part = cut(&harmless(&part), room);
        room -= width(&part).min(room);
        let code = match paint {
            Paint::Plain => "",
            Paint::Good => "32",
            Paint::Bad => "31",
            Paint::Faint => "2",
            Paint::Strong => "1",
        };
        if style.colour && !code.is_empty() && !part.is_empty() {
            text += &format!("\u{1b}[{code}m{part}\u{1b}[0m");
        } else {
            text += &part;
        }
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::super::model::tests::{failed_pod, job, model, seen};
    use super::*;

    const PLAIN: Style = Style { colour: false, unicode: false };
    const WIDE: Size = Size { columns: 100, rows: 24 };

    fn after(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Ten successes per second, up to the given status.
    fn running(completions: Option<u32>, status: Value) -> Model {
        let mut model = model();
        let succeeded = status["succeeded"].as_u64().unwrap_or(0);
        model.saw_job(&seen(completions, json!({"active": 1, "succeeded": succeeded.saturating_sub(40)})), after(0));
        model.saw_job(&seen(completions, status), after(4));
        model
    }

    #[test]
    fn a_job_is_a_line() {
        let failed = json!({"succeeded": 1, "failed": 7, "conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]});
        let complete = json!({"succeeded": 100, "conditions": [{"type": "Complete", "status": "True"}]});
        let bar =
            |filled: usize, columns: usize| format!("[{}{}]", "#".repeat(filled), ".".repeat(columns - 2 - filled));
        for (completions, status, columns, expected) in [
            (Some(100), json!({}), 100, format!("- sum  {}   0%  waiting  4.0s", bar(0, 40))),
            (
                Some(100),
                json!({"active": 4, "succeeded": 50}),
                100,
                format!("- sum  {}  50%  50/100 ok  4 active  10/s  5.0s left", bar(19, 40)),
            ),
            (
                Some(100),
                json!({"active": 4, "succeeded": 50, "failed": 2}),
                72,
                format!("- sum  {}  50%  50/100 ok  2 failed  4 active  10/s  5.0s left", bar(4, 11)),
            ),
            (
                Some(100),
                json!({"active": 4, "succeeded": 50}),
                55,
                format!("- sum  {}  50%  50/100 ok  4 active  5.0s left", bar(4, 10)),
            ),
            (
                Some(100),
                json!({"active": 4, "succeeded": 50}),
                45,
                format!("- sum  {}  50%  50/100 ok  4 active", bar(4, 11)),
            ),
            (Some(100), json!({"active": 4, "succeeded": 50}), 36, "- sum  50%  50/100 ok  4 active".to_owned()),
            (Some(100), json!({"active": 4, "succeeded": 50}), 20, "- sum  50%  50/100~".to_owned()),
            (None, json!({"active": 4, "succeeded": 50}), 100, "- sum  50 ok  4 active  10/s  4.0s".to_owned()),
            (Some(100), complete, 100, "+ sum  Complete  100/100 ok  in 4.0s".to_owned()),
            (Some(9), failed, 100, "x sum  Failed: BackoffLimitExceeded  1/9 ok  7 failed  in 4.0s".to_owned()),
        ] {
            let shown = lines(&running(completions, status.clone()), Size { columns, rows: 24 }, PLAIN, after(4));
            assert_eq!(shown, [expected], "{status} at {columns}");
        }
    }

    #[test]
    fn failures_are_below_with_the_end_of_their_logs() {
        let mut model = running(Some(9), json!({"active": 1, "failed": 2}));
        for (number, code) in [(3, 2), (5, 137)] {
            let failure = model.saw_pod(&failed_pod(number, code)).unwrap();
            failure.log = Some(["one", "two", "\u{1b}[31mthree", "", "four"].map(str::to_owned).to_vec());
        }
        let shown = lines(&model, WIDE, PLAIN, after(4));
        assert_eq!(
            shown[1..],
            [
                "  x index 5: exit code 137, Pod sum-5-xyz",
                "      two",
                "      three",
                "      four",
                "  x index 3: exit code 2, Pod sum-3-xyz",
                "      two",
                "      three",
                "      four",
            ]
        );
        let low = lines(&model, Size { columns: 100, rows: 4 }, PLAIN, after(4));
        assert_eq!(low.len(), 3, "the rows there are, but for the last");
    }

    #[test]
    fn no_size_is_exceeded() {
        let mut model = Model::default();
        for number in 0..30 {
            let (uid, name) = (format!("u{number}"), format!("a-rather-long-name-for-a-job-{number}"));
            model.follow("default", &name, &uid);
            let status = json!({"active": number, "succeeded": number * 3, "failed": number});
            model.saw_job(
                &job(json!({"metadata": {"uid": uid}, "spec": {"completions": 90}, "status": status})),
                after(1),
            );
        }
        model.stopping = true;
        for columns in (1..60).chain([79, 80, 100, 250]) {
            for rows in [1, 2, 10, 31, 32, 50] {
                for style in [PLAIN, Style { colour: false, unicode: true }] {
                    let shown = lines(&model, Size { columns, rows }, style, after(2));
                    assert!(shown.len() <= rows.saturating_sub(1).max(1), "{columns}x{rows}");
                    assert!(
                        shown.iter().all(|line| width(line) < columns.max(1) || line.is_empty()),
                        "{columns}x{rows}"
                    );
                }
            }
        }
        let shown = lines(&model, Size { columns: 80, rows: 10 }, PLAIN, after(2));
        assert!(shown[7].contains("and 23 more Jobs; 0 of 30 are finished"), "{shown:?}");
        assert!(shown[8].contains("Ctrl-C again"), "{shown:?}");
    }

    #[test]
    fn colours_change_nothing_but_colours() {
        let mut model = running(Some(9), json!({"active": 1, "failed": 2}));
        model.saw_pod(&failed_pod(1, 1));
        for unicode in [false, true] {
            let [coloured, plain] =
                [true, false].map(|colour| lines(&model, WIDE, Style { colour, unicode }, after(4)));
            assert_ne!(coloured, plain);
            assert_eq!(coloured.iter().map(|line| harmless(line)).collect::<Vec<_>>(), plain);
            assert!(plain.iter().all(|line| !line.contains('\u{1b}')));
            assert_eq!(plain.iter().all(|line| line.is_ascii()), !unicode);
        }
    }
}
