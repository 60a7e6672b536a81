//! Where output goes. What tasks print goes to the stream that they print it to. Otherwise standard output has the
//! summary, if what tasks print is not shown, or JSON lines; standard error has everything else.
//!
//! On a terminal the live display is erased before anything is printed and drawn again below it, but only if what was
//! printed ends with a newline: a display in the middle of a task's line would spoil both.

use std::collections::{BTreeMap, VecDeque};
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::time::Duration;

use tally_core::backoff::BackoffNotice;
use tally_core::time::Span;
use tally_node::attempts::AttemptRecord;
use tally_node::output::OutputSource;
use tally_node::shim::log::Stream;
use tally_runtime::driver::wall_clock;

use super::model::{Job, Model, PodFailure, RetryWait, Standstill, State, Stuck};
use super::render;
use super::report;
use super::screen::{Screen, Terminal, say, size};
use super::words::{harmless, tame};
use crate::run::Form;
use crate::run::follow::display::LogStyle;
use crate::run::follow::lines::Piece;
use crate::terminal::{OutputFilter, cleaned};

/// Minimum interval between plain lines about a Job.
const PACE: Duration = Duration::from_secs(1);

/// Shorter waits before a retry are told only if there is a line anyway.
const SHORTEST_WAIT: Span = Span::from_seconds(1);

/// Failures printed between two such lines; further ones are only counted.
const FAILURES_AT_ONCE: usize = 3;

pub struct Output {
    form: Form,
    quiet: bool,
    /// How what tasks print is shown.
    style: LogStyle,
    /// A terminal gets the control sequences in it.
    passes_sequences: bool,
    /// The output of a single task that is cleaned as it comes.
    filters: [OutputFilter; 2],
    terminal: Terminal,
    screen: Screen,
    /// Whether standard output and standard error are terminals: then they are taken to be the same one.
    terminals: [bool; 2],
    told: BTreeMap<String, PrintedState>,
    /// The readers of standard output and standard error have closed them.
    closed: [bool; 2],
    /// What tasks have printed and is to be written, and to which stream.
    printed: (Stream, Vec<u8>),
    /// The terminal is in the middle of a line that a task has printed.
    mid_line: bool,
    /// A view has the whole terminal: these notices wait until it has been left.
    held: Option<VecDeque<String>>,
}

/// How many notices wait. The oldest are dropped first.
const MOST_HELD: usize = 100;

/// What tasks have printed is written in portions of this size.
const PORTION: usize = 64 * 1024;

/// How long to wait before writing again to a non-blocking stream that is full.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(1);

/// The name of a task, for what it prints.
pub struct TaskName {
    source: OutputSource,
    container: String,
    /// In front of its lines.
    prefix: String,
}

impl TaskName {
    pub fn new(source: OutputSource, container: &str) -> Self {
        let mut prefix = match source.index {
            Some(index) => format!("{}[{index}]", source.job_name),
            None => source.pod.to_string(),
        };
        if source.several {
            prefix += &format!("/{container}");
        }
        Self { source, container: container.to_owned(), prefix }
    }

    pub fn pod(&self) -> &str {
        &self.source.pod
    }
}

/// What was last printed about a Job.
#[derive(Default)]
struct PrintedState {
    at: Option<Duration>,
    progress: String,
    stuck: Option<Stuck>,
    standstill: Option<Standstill>,
    wait: Option<BackoffNotice>,
    failures: Vec<Vec<String>>,
    untold: usize,
}

impl Output {
    pub fn new(form: Form, quiet: bool, terminal: Terminal) -> Self {
        Self {
            form,
            quiet,
            style: LogStyle::Hidden,
            passes_sequences: false,
            filters: [(); 2].map(|()| OutputFilter::new(terminal.style.colour)),
            terminal,
            screen: Screen::default(),
            terminals: [std::io::stdout().is_terminal(), std::io::stderr().is_terminal()],
            told: BTreeMap::new(),
            closed: [false; 2],
            printed: (Stream::Stdout, Vec::new()),
            mid_line: false,
            held: None,
        }
    }

    /// A view has the whole terminal from now on: nothing is printed.
    pub fn lend_terminal(&mut self) {
        self.held = Some(VecDeque::new());
    }

    /// The view has been left: prints what has waited.
    pub fn take_terminal_back(&mut self) {
        let held = self.held.take().unwrap_or_default();
        held.iter().for_each(|text| self.note(text));
    }

    /// From now on what tasks print is shown in this way.
    pub fn show_tasks(&mut self, style: LogStyle, passes_sequences: bool) {
        self.style = style;
        self.passes_sequences = passes_sequences;
    }

    pub fn is_json(&self) -> bool {
        self.form == Form::Json
    }

    fn is_live(&self) -> bool {
        self.terminal.live && !self.quiet && self.form == Form::Text
    }

    /// Shows progress, if it has changed and the interval has passed.
    pub fn beat(&mut self, model: &Model, now: Duration) {
        if self.held.is_some() {
            return;
        }
        if self.is_live() {
            // What happens to a stop is shown in any case.
            if self.mid_line && !model.stopping {
                return;
            }
            self.begin_line();
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
        let passes_through = self.style == LogStyle::PassThrough;
        let told = self.told.entry(job.uid.clone()).or_default();
        // A Job that was just created need not be reported as waiting.
        let begins = job.state == State::Waiting && now < PACE;
        // A wait that would be over before the next line is told at once.
        let is_short = |wait: &RetryWait| wait.notice.waits_for >= SHORTEST_WAIT && wait.until <= now + PACE;
        let is_urgent =
            job.retry_wait().is_some_and(|(wait, _)| is_short(wait) && told.wait.as_ref() != Some(&wait.notice));
        let is_paced = told.at.is_some_and(|at| now.saturating_sub(at) < PACE) && !is_urgent;
        if begins || is_paced || job.state.is_finished() {
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
        if told.standstill.as_ref() != job.standstill() {
            match self.form {
                Form::Text => lines.extend(job.standstill().map(|why| report::standstill(job, why))),
                Form::Json => lines.push(report::standstill_json(job, job.standstill(), &now_text()).to_string()),
            }
            told.standstill = job.standstill().cloned();
        }
        if let Some((wait, waiting)) = job.retry_wait()
            && told.wait.as_ref() != Some(&wait.notice)
        {
            lines.push(match self.form {
                Form::Text => format!("{}: {}", job.name, report::wait_text(wait, waiting, now)),
                Form::Json => report::wait_json(job, wait, waiting, now, &now_text()).to_string(),
            });
            told.wait = Some(wait.notice.clone());
        }
        // The rate and the time left change with the clock alone: they are no reason to print a line.
        let counts = format!("{:?}", (job.active, job.waiting, job.succeeded, job.failed, &job.state));
        // A single task that is passed through is left alone with its streams unless something is wrong.
        if counts != told.progress && !passes_through {
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
            Form::Text => lines.iter().for_each(|line| self.say_line(line)),
            Form::Json => lines.iter().for_each(|line| self.print(line)),
        }
    }

    /// Reports an attempt that has succeeded.
    pub fn succeeded(&mut self, job: &Job, record: &AttemptRecord) {
        if self.form == Form::Json && !self.quiet {
            self.print(&report::success_json(job, record, &now_text()).to_string());
        }
    }

    /// Reports a Pod that can never start, at once. People read it in the error that ends the run.
    pub fn never_starts(&mut self, job: &Job, stuck: &Stuck) {
        if self.form == Form::Json && !self.quiet {
            self.print(&report::stuck_json(job, Some(stuck), &now_text()).to_string());
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

    /// Shows a line that a task has printed. `last`: nothing more comes of it.
    pub fn task_line(&mut self, name: &TaskName, piece: Piece<'_>, last: bool) {
        if self.form == Form::Json {
            let (source, container) = (&name.source, &name.container);
            return self.print(&report::log_json(source, container, piece, &now_text()).to_string());
        }
        let style = self.style;
        let is_terminal = self.terminals[piece.stream as usize];
        let coloured = is_terminal && self.terminal.style.colour;
        let cleans = is_terminal && !self.passes_sequences;
        let printed = self.printed_to(piece.stream);
        if style == LogStyle::Prefix && piece.begins {
            let [on, off] = if coloured { ["\u{1b}[36m", "\u{1b}[0m"] } else { [""; 2] };
            let prefix = if is_terminal { harmless(&name.prefix) } else { name.prefix.clone() };
            printed.extend([on, &prefix, off, " "].concat().as_bytes());
        }
        if cleans {
            // On a terminal, control sequences other than colours are removed. Anything else gets the bytes unchanged.
            printed.extend(tame(&String::from_utf8_lossy(piece.text), coloured).as_bytes());
        } else {
            printed.extend(piece.text);
        }
        // What follows must not get into the last line of a task.
        if piece.ends || last && style == LogStyle::Prefix {
            printed.push(b'\n');
        }
        self.flush_portion();
    }

    /// Shows what the only task has printed, as it comes. `complete`: a newline follows.
    pub fn pass_through(&mut self, stream: Stream, text: &[u8], complete: bool) {
        let newline: &[u8] = if complete { b"\n" } else { b"" };
        let at = stream as usize;
        if self.terminals[at] && !self.passes_sequences {
            let clean = self.filters[at].add(&[text, newline].concat());
            self.printed_to(stream).extend(clean);
        } else {
            self.printed_to(stream).extend([text, newline].concat());
        }
        self.flush_portion();
    }

    /// Ends a line that a task has not ended.
    pub fn break_line(&mut self, stream: Stream) {
        if self.style == LogStyle::Prefix {
            self.printed_to(stream).push(b'\n');
        }
    }

    /// Text for one stream is written before text for the other is added: a terminal shows both in their order.
    fn printed_to(&mut self, stream: Stream) -> &mut Vec<u8> {
        if self.printed.0 != stream {
            self.flush_tasks();
            self.printed.0 = stream;
        }
        &mut self.printed.1
    }

    fn flush_portion(&mut self) {
        if self.printed.1.len() >= PORTION {
            self.flush_tasks();
        }
    }

    /// Writes what tasks have printed. Waits for the reader if it is slow.
    pub fn flush_tasks(&mut self) {
        let (stream, mut text) = (self.printed.0, std::mem::take(&mut self.printed.1));
        let Some(last) = text.last() else { return };
        let ends_line = *last == b'\n';
        let at = stream as usize;
        if self.terminals[at] {
            if self.is_live() {
                let clear = self.screen.clear(size());
                say(&clear);
            }
            self.mid_line = !ends_line;
        }
        // If the reader is gone, the run continues: printed text is not its only result.
        if !self.closed[at] {
            let written = match stream {
                Stream::Stdout => write_all(std::io::stdout(), &text),
                Stream::Stderr => write_all(std::io::stderr(), &text),
            };
            self.closed[at] = written.is_err();
        }
        text.clear();
        self.printed.1 = text;
    }

    /// Moves to the beginning of a line, if a task has left the terminal in the middle of one.
    fn begin_line(&mut self) {
        self.flush_tasks();
        if std::mem::take(&mut self.mid_line) {
            say("\n");
        }
    }

    fn say_line(&mut self, line: &str) {
        self.begin_line();
        self.say_plain(line);
    }

    /// Names and messages may be those of another server.
    fn say_plain(&self, text: &str) {
        if self.terminals[1] { say(&(cleaned(text) + "\n")) } else { say(&format!("{text}\n")) }
    }

    /// Prints a notice for the user above the live display.
    pub fn note(&mut self, text: &str) {
        if let Some(held) = &mut self.held {
            if held.len() == MOST_HELD {
                held.pop_front();
            }
            held.push_back(text.to_owned());
        } else if !self.quiet {
            self.begin_line();
            let clear = self.screen.clear(size());
            say(&clear);
            self.say_plain(&format!("tally: {text}"));
        }
    }

    /// Leaves the live display in place and moves the cursor below it.
    pub fn leave(&mut self) {
        self.take_terminal_back();
        if !std::mem::take(&mut self.screen).is_empty() {
            say("\r\n");
        }
    }

    /// Prints the last display and the summaries.
    pub fn end(&mut self, model: &Model, now: Duration, data_dir: Option<&str>) {
        self.take_terminal_back();
        for stream in [Stream::Stdout, Stream::Stderr] {
            let rest = self.filters[stream as usize].end();
            self.printed_to(stream).extend(rest);
        }
        self.flush_tasks();
        let untroubled = |job: &Job| {
            matches!(job.state, State::Complete { .. })
                && job.failures.is_empty()
                && job.failed == 0
                && !job.was_finished
        };
        // As with other programs that run a command, nothing is added to what it has printed if all went well.
        let silent = self.style == LogStyle::PassThrough && data_dir.is_none() && model.jobs().iter().all(untroubled);
        if silent {
            let clear = self.screen.clear(size());
            say(&clear);
            return;
        }
        self.begin_line();
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
                self.say_plain(line);
            }
            if told.untold > 0 {
                self.say_plain(&format!("{}: and {} more failed", job.name, told.untold));
            }
            match self.form {
                Form::Json => self.print(&report::summary_json(job, now, data_dir, &now_text()).to_string()),
                Form::Text if self.quiet => {}
                Form::Text => {
                    for line in report::summary(job, now, model.stop_word()) {
                        if self.style.is_shown() { self.say_plain(&line) } else { self.print(&line) }
                    }
                }
            }
        }
    }

    fn print(&mut self, line: &str) {
        if self.closed[0] {
            return;
        }
        if self.is_live() && self.terminals[0] {
            let clear = self.screen.clear(size());
            say(&clear);
        }
        // If the reader is gone, the run continues: printed lines are not its only result.
        let text = if self.terminals[0] { cleaned(line) } else { line.to_owned() };
        self.closed[0] = write_all(std::io::stdout(), format!("{text}\n").as_bytes()).is_err();
    }
}

/// Writes everything, also to a stream that another program has made non-blocking.
fn write_all(to: impl AsFd, mut text: &[u8]) -> std::io::Result<()> {
    while !text.is_empty() {
        match rustix::io::write(&to, text) {
            Ok(count) => text = &text[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => std::thread::sleep(LOOK_AGAIN_AFTER),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn now_text() -> String {
    wall_clock().to_string()
}
