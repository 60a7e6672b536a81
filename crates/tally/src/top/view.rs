//! Draws the model.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::model::{ListedJob, Model, OpenJob, Screen};
use crate::look::attempts::AttemptState;
use crate::look::report::{TaskState, task_states};
use crate::run::progress::words::{harmless, width, wrapped};

/// The bar of progress.
const BAR: usize = 12;
/// Lines of the reason below a Job that waits, and how far they are indented.
const WHY_LINES: usize = 3;
const WHY_INDENT: &str = "    ";
/// The labels of the facts of a Job are as wide as this.
const LABEL: usize = 11;
/// Rows of the field of indexes.
const FIELD_ROWS: u16 = 8;

const DIM: Style = Style::new().fg(Color::DarkGray);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

fn state_style(state: &str) -> Style {
    Style::new().fg(match state {
        "Complete" => Color::Green,
        "Failed" | "Ending" => Color::Red,
        "Running" => Color::Blue,
        "Suspended" | "Stopped" | "Waiting" => Color::Yellow,
        _ => Color::Reset,
    })
}

/// `now`: in milliseconds since 1970.
pub fn draw(frame: &mut Frame<'_>, model: &mut Model, now: i64) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
    frame.render_widget(Paragraph::new(title(model)), head);
    model.page = usize::from(body.height).saturating_sub(1);
    match model.screen {
        Screen::Jobs => jobs(frame, model, body, now),
        Screen::Job => job(frame, model, body, now),
        Screen::Log => log(frame, model, body),
        Screen::Help => frame.render_widget(Paragraph::new(HELP).wrap(Wrap { trim: false }), body),
    }
    frame.render_widget(Paragraph::new(footer(model)), foot);
}

fn title(model: &Model) -> Line<'static> {
    let count = |state: &str| model.all_jobs().filter(|job| job.row.state == state).count();
    let mut spans = vec![Span::styled("tally top ", BOLD), Span::raw(format!("{}  ", harmless(&model.title)))];
    let total = model.total();
    spans.push(Span::raw(if total == 1 { "1 Job".to_owned() } else { format!("{total} Jobs") }));
    for (state, word) in
        [("Running", "running"), ("Waiting", "waiting"), ("Failed", "failed"), ("Complete", "complete")]
    {
        spans.push(Span::styled(format!("  {} {word}", count(state)), state_style(state)));
    }
    spans.into()
}

fn footer(model: &Model) -> Line<'static> {
    if let (Some(action), Some(job)) = (&model.confirm, model.chosen_job()) {
        return Span::styled(action.question(&job.row), Style::new().fg(Color::Yellow)).into();
    }
    if model.types_filter {
        return format!("/{}_", model.filter).into();
    }
    if !model.note.is_empty() {
        return Span::styled(harmless(&model.note), Style::new().fg(Color::Yellow)).into();
    }
    let keys = match model.screen {
        Screen::Jobs => "Enter open  / filter  o order  s suspend/resume  d delete  ? help  q quit",
        Screen::Job => "Enter log  Esc back  s suspend/resume  +/- parallelism  d delete  ? help  q quit",
        Screen::Log => "Esc back  j/k scroll  G end  q quit",
        Screen::Help => "any key: back",
    };
    Span::styled(keys, DIM).into()
}

const HELP: &str = "\
Up, Down, k, j      choose a line          PageUp, PageDown, g, G   move further
Enter               open the Job, then the log of an attempt
Esc                 back; in the list: no filter
/                   show only Jobs with these words in their namespace, name or state
o                   order: newest first, by name, by state, most failures first
s                   suspend the Job, or resume it
+ -                 change its parallelism by one
d                   delete the Job and its Pods
q                   quit

The field of a Job has a sign for each index, or for as many as fit:
  . waiting   > running   # succeeded   r succeeded after a retry   X failed
Everything that changes a Job asks first.";

/// The first line to show so that the chosen one is visible.
fn first_line(chosen: usize, count: usize, height: usize) -> usize {
    chosen.saturating_sub(height / 2).min(count.saturating_sub(height))
}

fn fit(text: &str, width: usize) -> String {
    let mut fitted: String = harmless(text).chars().take(width).collect();
    let length = fitted.chars().count();
    fitted.extend(std::iter::repeat_n(' ', width - length));
    fitted
}

/// A text with a label as the lines that it needs, those that follow indented.
fn folded(label: &str, text: &str, indent: usize, columns: usize) -> Vec<String> {
    if width(label) + width(text) <= columns {
        return vec![format!("{label}{text}")];
    }
    let lines = wrapped(text, columns.saturating_sub(indent).max(1));
    let begin = |at: usize| if at == 0 { label.to_owned() } else { " ".repeat(indent) };
    lines.into_iter().enumerate().map(|(at, line)| begin(at) + &line).collect()
}

fn bar(job: &ListedJob) -> String {
    let Some(total) = job.row.total.filter(|total| *total > 0) else { return " ".repeat(BAR) };
    let done = usize::try_from(job.row.succeeded.min(total) * BAR as u64 / total).unwrap_or(BAR);
    format!("{}{}", "█".repeat(done), "░".repeat(BAR - done))
}

fn jobs(frame: &mut Frame<'_>, model: &Model, area: Rect, now: i64) {
    let wide = area.width >= 100;
    // NAME takes what the others leave.
    let others = if wide { 16 + 10 + BAR + 14 + 9 + 9 + 9 + 10 + 9 } else { 10 + BAR + 11 + 4 };
    let name_width = usize::from(area.width).saturating_sub(others).max(8);
    let columns = |namespace: &str, name: &str, state: &str, bar: &str, done: &str, more: [&str; 4]| {
        let [failed, active, age, took] = more;
        if wide {
            format!(
                "{} {} {} {} {} {} {} {} {}",
                fit(namespace, 16),
                fit(name, name_width),
                fit(state, 10),
                fit(bar, BAR),
                fit(done, 14),
                fit(failed, 8),
                fit(active, 8),
                fit(age, 8),
                fit(took, 9)
            )
        } else {
            format!("{} {} {} {}", fit(name, name_width), fit(state, 10), fit(bar, BAR), fit(done, 11))
        }
    };
    let order = model.order.word();
    let done = if wide { "SUCCEEDED" } else { "DONE" };
    let mut lines = vec![Line::styled(
        columns(
            "NAMESPACE",
            &format!("NAME ({order})"),
            "STATE",
            "PROGRESS",
            done,
            ["FAILED", "ACTIVE", "AGE", "DURATION"],
        ),
        DIM,
    )];
    let height = usize::from(area.height).saturating_sub(1);
    let (chosen, all): (usize, Vec<&ListedJob>) = (model.chosen_at(), model.jobs().collect());
    let why = |job: &ListedJob| -> Vec<String> {
        let columns = usize::from(area.width).saturating_sub(WHY_INDENT.len());
        let lines = wrapped(&harmless(&job.row.why()), columns);
        lines.into_iter().take(WHY_LINES).map(|line| format!("{WHY_INDENT}{line}")).collect()
    };
    // A Job that waits has more than one line.
    let starts: Vec<usize> =
        all.iter().scan(0, |next, job| Some(std::mem::replace(next, *next + 1 + why(job).len()))).collect();
    let count = starts.last().map_or(0, |last| last + 1 + all.last().map_or(0, |job| why(job).len()));
    let first = first_line(starts.get(chosen).copied().unwrap_or(0), count, height);
    let from = starts.partition_point(|start| *start < first);
    for (at, job) in all.iter().enumerate().skip(from).take(height) {
        let cells = job.row.cells(now);
        let done = match job.row.total {
            Some(total) => format!("{}/{total}", job.row.succeeded),
            None => job.row.succeeded.to_string(),
        };
        let text = columns(
            &job.row.namespace,
            &job.row.name,
            &job.row.state,
            &bar(job),
            &done,
            [&cells[3], &cells[4], &cells[6], &cells[7]],
        );
        let style = if at == chosen { state_style(&job.row.state).patch(CHOSEN) } else { state_style(&job.row.state) };
        lines.push(Line::styled(text, style));
        lines.extend(why(job).into_iter().map(|line| Line::styled(line, state_style(&job.row.state))));
    }
    if all.is_empty() {
        lines.push(Line::raw(if model.filter.is_empty() { "There are no Jobs." } else { "No Job has these words." }));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn sign(state: TaskState) -> Span<'static> {
    match state {
        TaskState::Waiting => Span::styled(".", DIM),
        TaskState::Running => Span::styled(">", Style::new().fg(Color::Blue)),
        TaskState::Succeeded => Span::styled("#", Style::new().fg(Color::Green)),
        TaskState::Retried => Span::styled("r", Style::new().fg(Color::LightGreen)),
        TaskState::Failed => Span::styled("X", Style::new().fg(Color::Red)),
    }
}

/// A sign for each index, or for several of them: what needs attention first.
fn field(states: &[TaskState], width: u16, height: u16) -> Vec<Line<'static>> {
    let cells = usize::from(width) * usize::from(height);
    let each = states.len().div_ceil(cells.max(1)).max(1);
    let of_several = |several: &[TaskState]| {
        let has = |state| several.contains(&state);
        let order = [TaskState::Failed, TaskState::Running, TaskState::Waiting, TaskState::Retried];
        order.into_iter().find(|state| has(*state)).unwrap_or(TaskState::Succeeded)
    };
    let signs: Vec<Span<'static>> = states.chunks(each).map(|several| sign(of_several(several))).collect();
    let mut lines: Vec<Line<'static>> =
        signs.chunks(usize::from(width).max(1)).map(|row| Line::from(row.to_vec())).collect();
    if each > 1 {
        lines.push(Line::styled(format!("each sign is for {each} indexes"), DIM));
    }
    lines
}

fn job(frame: &mut Frame<'_>, model: &Model, area: Rect, now: i64) {
    let (Some(open), Some(listed)) = (&model.open, model.chosen_job()) else {
        frame.render_widget(Paragraph::new("The Job was deleted."), area);
        return;
    };
    let mut lines: Vec<Line<'_>> = Vec::new();
    let columns = usize::from(area.width);
    // Its state with the reason, and what explains it, may be longer than the line.
    for line in listed.row.lines(now) {
        let (label, text) = line.split_at_checked(LABEL).unwrap_or(("", &line));
        lines.extend(folded(label, text, LABEL, columns).into_iter().map(Line::raw));
    }
    let why = listed.row.why();
    let shown = open.explanation.iter().filter(|line| why.is_empty() || !line.contains(&why));
    for line in shown {
        let style = Style::new().fg(Color::Yellow);
        let folded = folded("", &harmless(line), WHY_INDENT.len(), columns);
        lines.extend(folded.into_iter().map(|line| Line::styled(line, style)));
    }
    if let Some(states) = task_states(&listed.row, &open.attempts) {
        lines.push(Line::raw(""));
        lines.extend(field(&states, area.width, FIELD_ROWS));
    }
    lines.push(Line::raw(""));
    let facts = u16::try_from(lines.len()).unwrap_or(u16::MAX).min(area.height.saturating_sub(4));
    let [above, below] = Layout::vertical([Constraint::Length(facts), Constraint::Min(1)]).areas(area);
    frame.render_widget(Paragraph::new(lines), above);
    attempts(frame, open, below, now);
}

fn attempts(frame: &mut Frame<'_>, open: &OpenJob, area: Rect, now: i64) {
    let wide = area.width >= 100;
    let mut lines = vec![Line::styled(
        match wide {
            true => "INDEX   ATTEMPT  RESULT         DURATION   CPU       MEMORY     POD",
            false => "INDEX   RESULT         DURATION   POD",
        },
        DIM,
    )];
    let height = usize::from(area.height).saturating_sub(1);
    let first = first_line(open.chosen, open.attempts.len(), height);
    for (at, row) in open.attempts.iter().enumerate().skip(first).take(height) {
        let cells = row.cells(now);
        let text = match wide {
            true => format!(
                "{} {} {} {} {} {} {}  {}",
                fit(&cells[0], 7),
                fit(&cells[1], 8),
                fit(&cells[2], 14),
                fit(&cells[5], 10),
                fit(&cells[6], 9),
                fit(&cells[7], 10),
                cells[8],
                harmless(&cells[10])
            ),
            false => format!("{} {} {} {}", fit(&cells[0], 7), fit(&cells[2], 14), fit(&cells[5], 10), cells[8]),
        };
        let style = match (row.state, row.exit_code) {
            (AttemptState::Ended, Some(0)) => state_style("Complete"),
            (AttemptState::Running, _) => state_style("Running"),
            (AttemptState::Waiting, _) => state_style("Waiting"),
            _ => state_style("Failed"),
        };
        lines.push(Line::styled(text, if at == open.chosen { style.patch(CHOSEN) } else { style }));
    }
    if open.attempts.is_empty() {
        lines.push(Line::styled("no attempts to show", DIM));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn log(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let Some(log) = &model.log else { return };
    let height = usize::from(area.height).saturating_sub(1);
    let end = log.lines.len().saturating_sub(log.above_end);
    let mut lines =
        vec![Line::styled(format!("log of {}{}", log.pod, if log.above_end > 0 { " (G: the end)" } else { "" }), DIM)];
    lines.extend(log.lines.range(end.saturating_sub(height)..end).map(|line| Line::raw(harmless(line))));
    frame.render_widget(Paragraph::new(lines), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;
    use crate::look::waiting::Wait;
    use crate::top::model::Key;

    fn screen(model: &mut Model, width: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, 24)).unwrap();
        terminal.draw(|frame| draw(frame, model, 1_767_225_660_000)).unwrap();
        let buffer = terminal.backend().buffer();
        let rows = buffer.content().chunks(usize::from(width));
        rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned() + "\n").collect()
    }

    fn model() -> Model {
        let mut model = Model::new("./d", false);
        let job = json!({"metadata": {"name": "sum-of-all-parts", "namespace": "default", "uid": "u",
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"completions": 8, "parallelism": 2, "completionMode": "Indexed"},
            "status": {"active": 1, "succeeded": 4, "failed": 1, "completedIndexes": "0-3", "failedIndexes": "5",
                "startTime": "2026-01-01T00:00:00Z"}});
        model.set_job("u", Some(&job));
        model.arrange();
        model
    }

    #[test]
    fn narrow_and_wide_terminals_show_the_list() {
        let mut model = model();
        let wide = screen(&mut model, 200);
        assert!(wide.contains("NAMESPACE") && wide.contains("sum-of-all-parts") && wide.contains("4/8"), "{wide}");
        assert!(wide.contains("██████░░░░░░") && wide.contains("1 running"), "{wide}");
        let narrow = screen(&mut model, 60);
        assert!(!narrow.contains("NAMESPACE") && narrow.contains("sum-of-all-parts"), "{narrow}");
        assert!(narrow.contains("Running") && narrow.contains("4/8"), "{narrow}");
    }

    #[test]
    fn reasons_are_wrapped_below_jobs_and_the_chosen_job_stays_visible() {
        let mut model = Model::new("./d", false);
        let uids: Vec<String> = (0..30).map(|number| format!("u{number}")).collect();
        for (number, uid) in uids.iter().enumerate() {
            let job = json!({"metadata": {"name": format!("job-{number:02}"), "namespace": "default", "uid": uid,
                "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"completions": 1}, "status": {"active": 1}});
            model.set_job(uid, Some(&job));
        }
        let sentence = "Pod x fits on no node: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.";
        let wait = Wait { reason: "Unschedulable", message: sentence.to_owned() };
        let found = uids.iter().map(|uid| (uid.clone(), wait.clone())).collect();
        model.set_waits(&uids.iter().cloned().collect(), found);
        model.arrange();
        for number in 0..30 {
            let shown = screen(&mut model, 60);
            let at = shown.find(&format!("job-{number:02}")).unwrap_or_else(|| panic!("{number} in {shown}"));
            let below: Vec<&str> = shown[at..].split_whitespace().collect();
            assert!(below.join(" ").contains(sentence) && shown.contains("Waiting"), "{shown}");
            model.key(Key::Down);
        }
    }

    #[test]
    fn a_job_is_a_field_of_indexes_and_its_attempts() {
        let mut model = model();
        model.key(Key::Enter);
        let pod = json!({"metadata": {"name": "sum-4-x", "uid": "p", "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"batch.kubernetes.io/job-completion-index": "4"}},
            "status": {"phase": "Running", "containerStatuses": [{"name": "main", "restartCount": 0,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}});
        model.set_pod("p", serde_json::from_value(pod).ok());
        model.arrange_attempts();
        model.set_explanation("u", vec!["It runs.".into()]);
        for width in [60, 200] {
            let shown = screen(&mut model, width);
            assert!(shown.contains("####>X..") && shown.contains("sum-4-x") && shown.contains("It runs."), "{shown}");
        }
    }

    #[test]
    fn many_indexes_share_a_sign_that_shows_failures() {
        let mut states = vec![TaskState::Succeeded; 10_000];
        states[7_777] = TaskState::Failed;
        let text: Vec<String> = field(&states, 50, 8).iter().map(|line| line.to_string()).collect();
        assert_eq!(text.len(), 9);
        assert_eq!(text[..8].concat().matches('X').count(), 1);
        assert!(text[8].contains("25 indexes"), "{text:?}");
    }

    #[test]
    fn escape_sequences_of_a_log_are_not_sent_to_the_terminal() {
        let mut model = model();
        model.key(Key::Enter);
        let pod = json!({"metadata": {"name": "sum-4-x", "uid": "p"}, "status": {"phase": "Running"}});
        model.set_pod("p", serde_json::from_value(pod).ok());
        model.arrange_attempts();
        model.key(Key::Enter);
        model.add_log("\u{1b}[2Jgone\n");
        let shown = screen(&mut model, 60);
        assert!(shown.contains("gone") && !shown.contains('\u{1b}'), "{shown}");
    }
}
