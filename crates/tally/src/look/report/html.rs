//! The report for people: one file of HTML, without scripts.

use std::fmt::Write;

use super::{ReportedJob, TaskState, escape, pictures};
use crate::look::attempts::{self, AttemptRow};

/// Rows of each table.
const MOST_ROWS: usize = 1_000;

const STYLE: &str = "
:root { color-scheme: light dark; --back: #fff; --text: #1c2329; --soft: #66717c; --edge: #d8dee4;
  --waiting: #d5dbe1; --running: #2f7fd6; --succeeded: #2b9a66; --retried: #8fc93a; --failed: #c4314b; }
@media (prefers-color-scheme: dark) { :root { --back: #14181c; --text: #e3e8ec; --soft: #98a4af; --edge: #333c44;
  --waiting: #3a444d; --running: #5aa2f0; --succeeded: #3fb57d; --retried: #a5d84f; --failed: #ec5f77; } }
body { background: var(--back); color: var(--text); font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 960px;
  padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1rem; margin: 2rem 0 .5rem; }
.soft { color: var(--soft); } svg { max-width: 100%; height: auto; display: block; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; } dt { color: var(--soft); } dd { margin: 0; }
table { border-collapse: collapse; width: 100%; font-size: 13px; } .scroll { overflow-x: auto; }
th, td { text-align: left; padding: .2rem .6rem .2rem 0; border-bottom: 1px solid var(--edge); vertical-align: top; }
th { color: var(--soft); font-weight: 500; } td { white-space: pre-wrap; overflow-wrap: anywhere; }
.legend span { margin-right: 1rem; } .legend i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
path { stroke: none; } path.waiting { fill: var(--waiting); } path.running { fill: var(--running); }
path.succeeded { fill: var(--succeeded); } path.retried { fill: var(--retried); } path.failed { fill: var(--failed); }
path.line { fill: none; stroke-width: 2; } path.line.running { stroke: var(--running); }
path.line.succeeded { stroke: var(--succeeded); } path.line.failed { stroke: var(--failed); }
path.grid { stroke: var(--edge); } text { fill: var(--soft); font-size: 11px; }
i.waiting { background: var(--waiting); } i.running { background: var(--running); } i.succeeded { background: var(--succeeded); }
i.retried { background: var(--retried); } i.failed { background: var(--failed); }
";

/// `now`: in milliseconds since 1970.
pub fn document(reported: &ReportedJob, now: i64) -> String {
    let ReportedJob { job, attempts, dropped } = reported;
    let title = escape(&format!("Job {}", job.name));
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>\n<dl>\n"
    );
    for line in job.lines(now).iter().skip(1) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let _ = writeln!(text, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value.trim()));
    }
    text.push_str("</dl>\n");
    if let Some(states) = pictures::task_states(job, attempts) {
        let _ = writeln!(text, "<h2>Indexes</h2>\n{}\n{}", legend(&states), pictures::field(&states));
    }
    if let Some(curves) = pictures::curves(attempts, now) {
        let _ = writeln!(
            text,
            "<h2>Over time</h2>\n<p class=\"legend\"><span><i class=\"running\"></i>running</span><span><i \
             class=\"succeeded\"></i>succeeded</span><span><i class=\"failed\"></i>failed attempts</span></p>\n{curves}"
        );
    }
    if let Some((timeline, left_out)) = pictures::timeline(attempts, now) {
        let note = match left_out {
            0 => String::new(),
            _ => format!("<p class=\"soft\">{left_out} attempts that ran beside these are not drawn.</p>\n"),
        };
        let _ = writeln!(text, "<h2>Attempts over time</h2>\n{note}{timeline}");
    }
    let failed: Vec<&AttemptRow> = attempts.iter().filter(|attempt| attempt.has_failed()).collect();
    if !failed.is_empty() {
        text.push_str(&rows("Failed attempts", &failed, now));
    }
    text.push_str(&rows("All attempts", &attempts.iter().collect::<Vec<_>>(), now));
    if *dropped > 0 {
        let _ = writeln!(
            text,
            "<p class=\"soft\">Records are kept up to a limit: {dropped} older attempts are not here.</p>"
        );
    }
    let _ = writeln!(
        text,
        "<p class=\"soft\">Made by tally {} from the UID {}.</p>",
        env!("CARGO_PKG_VERSION"),
        escape(&job.uid)
    );
    text + "</html>\n"
}

fn legend(states: &[TaskState]) -> String {
    let mut text = String::from("<p class=\"legend\">");
    for state in TaskState::ALL {
        let (word, count) = (state.word(), states.iter().filter(|other| **other == state).count());
        let _ = write!(text, "<span><i class=\"{word}\"></i>{word} {count}</span>");
    }
    text + "</p>"
}

fn rows(title: &str, attempts: &[&AttemptRow], now: i64) -> String {
    let mut text = format!("<h2>{title}</h2>\n");
    if attempts.len() > MOST_ROWS {
        let _ = writeln!(text, "<p class=\"soft\">The first {MOST_ROWS} of {}.</p>", attempts.len());
    }
    text.push_str("<div class=\"scroll\"><table>\n<tr>");
    for column in attempts::COLUMNS {
        let _ = write!(text, "<th>{}</th>", column.to_lowercase());
    }
    text.push_str("</tr>\n");
    for attempt in attempts.iter().take(MOST_ROWS) {
        text.push_str("<tr>");
        for cell in attempt.cells(now) {
            let _ = write!(text, "<td>{}</td>", escape(&cell));
        }
        text.push_str("</tr>\n");
    }
    text + "</table></div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::attempts::AttemptState;
    use crate::look::jobs::JobRow;

    #[test]
    fn what_a_task_says_is_text_in_the_report() {
        let attempt = AttemptRow {
            index: Some(0),
            attempt: 1,
            state: AttemptState::Ended,
            exit_code: Some(1),
            started_at: Some(0),
            finished_at: Some(10),
            message: "<img src=x onerror=alert(1)>".into(),
            ..AttemptRow::default()
        };
        let job = JobRow {
            name: "<b>".into(),
            state: "Failed".into(),
            total: Some(1),
            failed_indexes: "0".into(),
            ..JobRow::default()
        };
        let text = document(&ReportedJob { job, attempts: vec![attempt], dropped: 2 }, 1_000);
        assert!(text.contains("&lt;img src=x onerror=alert(1)&gt;") && !text.contains("<img") && !text.contains("<b>"));
        assert!(!text.contains("<script") && text.contains("failed 1") && text.contains("2 older attempts"));
        for picture in ["Indexes", "Over time", "Attempts over time", "Failed attempts"] {
            assert!(text.contains(&format!("<h2>{picture}</h2>")), "{picture}");
        }
    }
}
