//! Where output goes. Standard output has the results: the summary, or the output of Pods (`--logs`), or JSON lines;
//! standard error has everything else.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use tally_runtime::driver::wall_clock;

use super::model::{Job, Model, PodFailure, State, Stuck};
use super::render;
use super::report;
use super::screen::{Screen, Terminal, say, size};
use super::words::tame;
use crate::run::Form;

/// Minimum interval between plain lines about a Job.
const PACE: Duration = Duration::from_secs(1);

/// Failures printed between two such lines; further ones are only counted.
const FAILURES_AT_ONCE: usize = 3;

pub struct Output {
    form: Form,
    quiet: bool,
    /// The output of Pods goes to standard output.
    logs: bool,
    terminal: Terminal,
    screen: Screen,
    /// Standard output is the terminal that is drawn on.
    same: bool,
    told: BTreeMap<String, PrintedState>,
    /// The reader has closed standard output.
    deaf: bool,
}

/// What was last printed about a Job.
#[derive(Default)]
struct PrintedState {
    at: Option<Duration>,
    progress: String,
    stuck: Option<Stuck>,
    failures: Vec<Vec<String>>,
    untold: usize,
}

impl Output {
    pub fn new(form: Form, quiet: bool, logs: bool, terminal: Terminal) -> Self {
        Self {
            form,
            quiet,
            logs,
            terminal,
            screen: Screen::default(),
            same: std::io::stdout().is_terminal(),
            told: BTreeMap::new(),
            deaf: false,
        }
    }

    fn is_live(&self) -> bool {
        self.terminal.live && !self.quiet && self.form == Form::Text
    }

    /// Shows progress, if it has changed and the interval has passed.
    pub fn beat(&mut self, model: &Model, now: Duration) {
        if self.is_live() {
            let size = size();
            let lines = render::lines(model, size, self.terminal.style, now);
            let text = self.screen.draw(lines, size);
            say(&text);
        } else if !self.quiet {
            for job in model.jobs() {
                self.tell(job, now);
            }
        }
    }

    fn tell(&mut self, job: &Job, now: Duration) {
        let told = self.told.entry(job.uid.clone()).or_default();
        // A Job that was just created need not be reported as waiting.
        let begins = job.state == State::Waiting && now < PACE;
        if begins || told.at.is_some_and(|at| now.saturating_sub(at) < PACE) || job.state.is_finished() {
            return;
        }
        let mut lines: Vec<String> = std::mem::take(&mut told.failures).into_iter().flatten().collect();
        if told.untold > 0 {
            lines.push(format!("{}: and {} more failed", job.name, std::mem::take(&mut told.untold)));
        }
        if told.stuck != job.stuck {
            match self.form {
                Form::Text => lines.extend(job.stuck.as_ref().map(|stuck| report::stuck(job, stuck))),
                Form::Json => lines.push(report::stuck_json(job, job.stuck.as_ref(), &now_text()).to_string()),
            }
            told.stuck.clone_from(&job.stuck);
        }
        // The rate and the time left change with the clock alone: they are no reason to print a line.
        let counts = format!("{:?}", (job.active, job.succeeded, job.failed, &job.state));
        if counts != told.progress {
            told.progress = counts;
            lines.push(match self.form {
                Form::Text => report::progress(job),
                Form::Json => report::progress_json(job, &now_text()).to_string(),
            });
        }
        if lines.is_empty() {
            return;
        }
        told.at = Some(now);
        match self.form {
            Form::Text => lines.iter().for_each(|line| say(&format!("{line}\n"))),
            Form::Json => lines.iter().for_each(|line| self.print(line)),
        }
    }

    /// Reports a failed Pod.
    pub fn failed(&mut self, job: &Job, failure: &PodFailure) {
        match self.form {
            Form::Json if !self.quiet => self.print(&report::failure_json(job, failure, &now_text()).to_string()),
            Form::Text if !self.quiet && !self.is_live() => {
                let told = self.told.entry(job.uid.clone()).or_default();
                if told.failures.len() < FAILURES_AT_ONCE {
                    told.failures.push(report::failure(job, failure));
                } else {
                    told.untold += 1;
                }
            }
            _ => {}
        }
    }

    /// Prints a line that a Pod wrote.
    pub fn wrote(&mut self, job: &Job, pod: &str, index: Option<u32>, container: &str, several: bool, line: &str) {
        let text = match self.form {
            Form::Json => report::log_json(job, pod, index, container, line, &now_text()).to_string(),
            Form::Text => {
                let mut prefix = index.map_or_else(|| pod.to_owned(), |index| format!("{}[{index}]", job.name));
                if several {
                    prefix += &format!("/{container}");
                }
                let coloured = self.same && self.terminal.style.colour;
                // A file or a pipe gets the line unchanged; on a terminal, control sequences other than colours are
                // removed.
                let line = if self.same { Cow::Owned(tame(line, coloured)) } else { Cow::Borrowed(line) };
                if coloured { format!("\u{1b}[36m{prefix}\u{1b}[0m {line}") } else { format!("{prefix} {line}") }
            }
        };
        self.print(&text);
    }

    /// Prints a notice for the user above the live display.
    pub fn note(&mut self, text: &str) {
        if !self.quiet {
            let clear = self.screen.clear(size());
            say(&format!("{clear}tally: {text}\n"));
        }
    }

    /// Leaves the live display in place and moves the cursor below it.
    pub fn leave(&mut self) {
        if !std::mem::take(&mut self.screen).is_empty() {
            say("\r\n");
        }
    }

    /// Prints the last display and the summaries.
    pub fn end(&mut self, model: &Model, now: Duration, data_dir: Option<&str>) {
        if self.is_live() {
            // The last display stays, with the failures; the summary goes below it.
            let size = size();
            let mut last = render::lines(model, size, self.terminal.style, now);
            last.retain(|line| !line.is_empty());
            let text = self.screen.draw(last, size);
            say(&text);
            self.leave();
        }
        for job in model.jobs() {
            let told = self.told.remove(&job.uid).unwrap_or_default();
            for line in told.failures.iter().flatten() {
                say(&format!("{line}\n"));
            }
            if told.untold > 0 {
                say(&format!("{}: and {} more failed\n", job.name, told.untold));
            }
            match self.form {
                Form::Json => self.print(&report::summary_json(job, now, data_dir, &now_text()).to_string()),
                Form::Text if self.quiet => {}
                Form::Text => {
                    for line in report::summary(job, now) {
                        if self.logs { say(&format!("{line}\n")) } else { self.print(&line) }
                    }
                }
            }
        }
    }

    fn print(&mut self, line: &str) {
        if self.deaf {
            return;
        }
        if self.is_live() && self.same {
            let clear = self.screen.clear(size());
            say(&clear);
        }
        let mut out = std::io::stdout().lock();
        // If the reader is gone, the run continues: printed lines are not its only result.
        self.deaf = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).is_err();
    }
}

fn now_text() -> String {
    wall_clock().to_string()
}
