//! The pictures of a report, as SVG: the field of indexes, the curves, and the timeline.

use std::collections::BTreeMap;
use std::fmt::Write;

use tally_core::indexes::IndexSet;

use super::TaskState;
use crate::look::attempts::{AttemptRow, AttemptState};
use crate::look::jobs::JobRow;

/// The width of all pictures.
const WIDTH: f64 = 960.0;
/// The size of a cell of the field, at most and at least.
const CELLS: (f64, f64) = (18.0, 1.5);
/// Rows of the timeline: more tasks at the same time are not drawn.
const MOST_LANES: usize = 120;
/// Points of a curve.
const POINTS: usize = 240;
/// More indexes are not drawn.
const MOST_INDEXES: u64 = 1_000_000;

/// The state of every task of an Indexed Job. None: it has no indexes, or too many to draw.
pub fn task_states(job: &JobRow, attempts: &[AttemptRow]) -> Option<Vec<TaskState>> {
    let total = job.total.filter(|total| (1..=MOST_INDEXES).contains(total))?;
    let is_indexed = attempts.iter().any(|attempt| attempt.index.is_some());
    if !is_indexed && job.completed_indexes.is_empty() && job.failed_indexes.is_empty() {
        return None;
    }
    let mut states = vec![TaskState::Waiting; usize::try_from(total).ok()?];
    // A Job that runs indexes of another one has a cell for each of them.
    let retried: Vec<u32> = job.retried_indexes.iter().collect();
    let cell = |index: u32| match retried.is_empty() {
        true => Some(index as usize),
        false => retried.binary_search(&index).ok(),
    };
    let mut set = |indexes: &str, state| {
        for index in IndexSet::read_tolerant(indexes, u32::MAX).iter() {
            let Some(place) = cell(index).and_then(|at| states.get_mut(at)) else { continue };
            *place = state;
        }
    };
    set(&job.completed_indexes, TaskState::Succeeded);
    set(&job.failed_indexes, TaskState::Failed);
    let mut failures: BTreeMap<u32, bool> = BTreeMap::new();
    // As they started.
    let mut sorted: Vec<&AttemptRow> = attempts.iter().collect();
    sorted.sort_by_key(|attempt| attempt.started_at.unwrap_or(i64::MAX));
    for attempt in sorted {
        let Some((index, place)) = attempt.index.and_then(|index| Some((index, states.get_mut(cell(index)?)?))) else {
            continue;
        };
        let has_failed = failures.entry(index).or_default();
        *place = match (attempt.state, *place) {
            _ if attempt.has_succeeded() && *has_failed => TaskState::Retried,
            _ if attempt.has_succeeded() => TaskState::Succeeded,
            (_, decided @ (TaskState::Succeeded | TaskState::Retried)) => decided,
            (AttemptState::Running, _) => TaskState::Running,
            // A failure that is not final waits for its retry.
            (_, TaskState::Failed) => TaskState::Failed,
            _ => TaskState::Waiting,
        };
        *has_failed |= attempt.has_failed();
    }
    Some(states)
}

/// A cell for each index, in the order in which text is read.
pub fn field(states: &[TaskState]) -> String {
    let count = states.len().max(1) as f64;
    // Three times as wide as high.
    let columns = (count * 3.0).sqrt().ceil().max(1.0);
    let cell = (WIDTH / columns).clamp(CELLS.1, CELLS.0);
    let columns = ((WIDTH / cell).floor() as usize).min(states.len().max(1));
    let rows = states.len().div_ceil(columns);
    let gap = if cell >= 6.0 { 1.0 } else { 0.0 };
    let mut paths: BTreeMap<TaskState, String> = BTreeMap::new();
    for (row, states) in states.chunks(columns).enumerate() {
        let mut at = 0;
        while let Some(state) = states.get(at) {
            // With gaps, each index is a cell; without, neighbours of the same state are one.
            let run = if gap > 0.0 { 1 } else { states[at..].iter().take_while(|other| *other == state).count() };
            let (x, y) = (at as f64 * cell, row as f64 * cell);
            let (width, height) = (run as f64 * cell - gap, cell - gap);
            let path = paths.entry(*state).or_default();
            let _ = write!(path, "M{x:.1} {y:.1}h{width:.1}v{height:.1}h-{width:.1}z");
            at += run;
        }
    }
    let (width, height) = (columns as f64 * cell, rows as f64 * cell);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" role=\"img\" aria-label=\"the state of every index\">"
    );
    for (state, path) in paths {
        let _ = write!(svg, "<path class=\"{}\" d=\"{path}\"/>", state.word());
    }
    svg + "</svg>"
}

/// The time that a picture shows.
fn span(attempts: &[AttemptRow], now: i64) -> Option<(i64, i64)> {
    let start = attempts.iter().filter_map(|attempt| attempt.started_at).min()?;
    let end = attempts.iter().map(|attempt| attempt.finished_at.unwrap_or(now)).max()?;
    Some((start, end.max(start + 1)))
}

/// How many tasks run, have succeeded and have failed, over time. None: nothing has started.
pub fn curves(attempts: &[AttemptRow], now: i64) -> Option<String> {
    const HEIGHT: f64 = 180.0;
    let (start, end) = span(attempts, now)?;
    let mut counts = vec![[0_i64; 3]; POINTS];
    let point = |at: i64| ((at - start) as f64 / (end - start) as f64 * (POINTS - 1) as f64).ceil() as usize;
    for attempt in attempts {
        let Some(begun) = attempt.started_at else { continue };
        counts[point(begun).min(POINTS - 1)][0] += 1;
        if let Some(ended) = attempt.finished_at {
            let at = point(ended).min(POINTS - 1);
            counts[at][0] -= 1;
            counts[at][if attempt.has_succeeded() { 1 } else { 2 }] += 1;
        }
    }
    let mut sum = [0_i64; 3];
    for point in &mut counts {
        for (total, change) in sum.iter_mut().zip(point.iter_mut()) {
            *total += *change;
            *change = *total;
        }
    }
    let most = counts.iter().flatten().copied().max().unwrap_or(1).max(1);
    let mut svg = format!(
        "<svg viewBox=\"0 -14 {WIDTH:.0} {:.0}\" width=\"{WIDTH:.0}\" role=\"img\" aria-label=\"tasks over time\">\
         <path class=\"grid\" d=\"M 0 0h{WIDTH:.0}M 0 {HEIGHT:.0}h{WIDTH:.0}\"/><text x=\"0\" y=\"-3\">{most}</text>",
        HEIGHT + 16.0
    );
    for (which, name) in ["running", "succeeded", "failed"].into_iter().enumerate() {
        let mut line = String::new();
        for (at, point) in counts.iter().enumerate() {
            let x = at as f64 / (POINTS - 1) as f64 * WIDTH;
            let y = HEIGHT - point[which] as f64 / most as f64 * HEIGHT;
            let _ = write!(line, "{}{x:.1} {y:.1}", if at == 0 { "M" } else { "L" });
        }
        let _ = write!(svg, "<path class=\"line {name}\" d=\"{line}\"/>");
    }
    Some(svg + "</svg>")
}

/// When each attempt ran. Attempts that did not run at the same time share a row. None: nothing has started. The number: how
/// many are not drawn.
pub fn timeline(attempts: &[AttemptRow], now: i64) -> Option<(String, usize)> {
    let (start, end) = span(attempts, now)?;
    let mut sorted: Vec<&AttemptRow> = attempts.iter().filter(|attempt| attempt.started_at.is_some()).collect();
    sorted.sort_by_key(|attempt| attempt.started_at);
    let mut lanes: Vec<i64> = Vec::new();
    let mut paths: BTreeMap<&str, String> = BTreeMap::new();
    let height = if sorted.len() > 400 { 6.0 } else { 12.0 };
    let mut left_out = 0;
    for attempt in sorted {
        let (Some(from), to) = (attempt.started_at, attempt.finished_at.unwrap_or(now)) else { continue };
        let lane = match lanes.iter().position(|free| *free <= from) {
            Some(lane) => lane,
            None if lanes.len() == MOST_LANES => {
                left_out += 1;
                continue;
            }
            None => {
                lanes.push(0);
                lanes.len() - 1
            }
        };
        lanes[lane] = to;
        let scale = WIDTH / (end - start) as f64;
        let (x, width) = ((from - start) as f64 * scale, ((to - from) as f64 * scale - 0.5).max(0.5));
        let class = match attempt {
            attempt if attempt.has_succeeded() => "succeeded",
            attempt if attempt.has_failed() => "failed",
            _ => "running",
        };
        let (y, high) = (lane as f64 * height, height - 1.0);
        let path = paths.entry(class).or_default();
        let _ = write!(path, "M{x:.1} {y:.1}h{width:.1}v{high:.1}h-{width:.1}z");
    }
    let all = lanes.len() as f64 * height;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH:.0} {all:.0}\" width=\"{WIDTH:.0}\" role=\"img\" aria-label=\"when each attempt ran\">"
    );
    for (class, path) in paths {
        let _ = write!(svg, "<path class=\"{class}\" d=\"{path}\"/>");
    }
    Some((svg + "</svg>", left_out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(index: u32, code: Option<i32>, from: i64) -> AttemptRow {
        AttemptRow {
            index: Some(index),
            state: if code.is_some() { AttemptState::Ended } else { AttemptState::Running },
            exit_code: code,
            started_at: Some(from),
            finished_at: code.map(|_| from + 100),
            ..AttemptRow::default()
        }
    }

    #[test]
    fn every_index_has_the_state_of_its_last_attempt() {
        let job = JobRow {
            total: Some(6),
            failed_indexes: "2".into(),
            completed_indexes: "0,1,5".into(),
            ..JobRow::default()
        };
        let attempts = vec![
            attempt(0, Some(0), 0),
            attempt(1, Some(1), 0),
            attempt(1, Some(0), 200),
            attempt(2, Some(1), 0),
            attempt(3, Some(1), 0),
            attempt(3, None, 300),
        ];
        use TaskState::{Failed, Retried, Running, Succeeded, Waiting};
        assert_eq!(task_states(&job, &attempts), Some(vec![Succeeded, Retried, Failed, Running, Waiting, Succeeded]));
        assert_eq!(task_states(&JobRow { total: Some(3), ..JobRow::default() }, &[]), None);
    }

    #[test]
    fn a_job_that_runs_indexes_again_has_a_cell_for_each_of_them() {
        let retried_indexes = [3, 70, 71].into_iter().collect();
        let job = JobRow { total: Some(3), failed_indexes: "71".into(), retried_indexes, ..JobRow::default() };
        let attempts = vec![attempt(3, Some(0), 0), attempt(71, Some(1), 0)];
        let expected = vec![TaskState::Succeeded, TaskState::Waiting, TaskState::Failed];
        assert_eq!(task_states(&job, &attempts), Some(expected));
    }

    #[test]
    fn a_large_field_is_a_small_file() {
        let states: Vec<_> =
            (0..100_000).map(|at| if at % 1_000 == 7 { TaskState::Failed } else { TaskState::Succeeded }).collect();
        let svg = field(&states);
        assert!(svg.len() < 100_000, "{}", svg.len());
        assert_eq!(svg.matches("class=\"failed\"").count(), 1);
        let small = field(&states[..10]);
        assert_eq!(small.matches('M').count(), 10, "{small}");
    }

    #[test]
    fn attempts_at_the_same_time_are_in_rows_of_their_own() {
        let attempts = [attempt(0, Some(0), 0), attempt(1, Some(1), 50), attempt(2, None, 120)];
        let (svg, left_out) = timeline(&attempts, 200).unwrap();
        assert!(svg.contains("viewBox=\"0 0 960 24\"") && left_out == 0, "{svg}");
        let many: Vec<_> = (0..200).map(|index| attempt(index, Some(0), 0)).collect();
        assert_eq!(timeline(&many, 200).unwrap().1, 200 - MOST_LANES);
        assert!(curves(&attempts, 200).unwrap().contains("line failed"));
        assert_eq!(timeline(&[], 0), None);
    }
}
