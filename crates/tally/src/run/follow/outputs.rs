//! Reads what the processes of this machine print, and shows it.
//!
//! The shim says which attempts have output; the text is in their log files. The shim keeps every file until this reader
//! has read it, and lets the processes wait if the reader is too far behind. So nothing is lost, however slow the reader
//! of standard output is, and memory is bounded: at most one incomplete line per task and stream.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tally_node::attempts::AttemptRecord;
use tally_node::logs::{self, Follower, Progress};
use tally_node::mailbox::Mailbox;
use tally_node::output::{OutputEvent, OutputQueue};
use tally_node::port::Attempt;

use super::display::LogStyle;
use super::lines::Lines;
use super::turns::{JobOrder, LAST, OutputOrder, Turns};
use crate::run::progress::output::{Output, TaskName};

/// Blocks of a log that are read in one turn: a task that prints without end does not delay the others.
const BLOCKS_AT_ONCE: usize = 4;

/// A long line whose task has paused in the middle of it is broken after this time if other tasks have output to show.
const LINE_HELD_FOR: Duration = Duration::from_secs(1);

/// How long the shim may take to remove what it must. Usually this takes less than a millisecond.
const RELEASED_WITHIN: Duration = Duration::from_secs(2);

/// Names of Pods in the message about removed output; more are counted.
const NAMED: usize = 3;

pub struct Outputs {
    root: PathBuf,
    queue: Arc<OutputQueue>,
    mailbox: Arc<Mailbox>,
    style: LogStyle,
    turns: Turns,
    tasks: BTreeMap<Attempt, TaskOutput>,
    jobs: JobOrder,
    by_index: bool,
    /// The task that is in the middle of a long line, and since when nothing more of it has come.
    line_of: Option<(Attempt, Option<Instant>)>,
    /// Tasks that are shown to their end, of which the shim has not said that it is done with their logs.
    releasing: BTreeSet<Attempt>,
    removed: RemovedOutput,
    /// Why the results of a task could not be stored.
    pub no_result: Option<String>,
    /// Attempts that have ended, if the shim tells them, and the UIDs of their Jobs.
    pub ended: Vec<(String, AttemptRecord)>,
}

struct TaskOutput {
    name: TaskName,
    log: Follower,
    lines: Lines,
    has_ended: bool,
}

/// What the limits of the logs have removed.
#[derive(Debug, Default)]
struct RemovedOutput {
    lines: u64,
    bytes: u64,
    pods: BTreeSet<String>,
}

impl Outputs {
    pub fn new(
        root: PathBuf,
        (queue, mailbox): (Arc<OutputQueue>, Arc<Mailbox>),
        style: LogStyle,
        order: OutputOrder,
    ) -> Self {
        Self {
            root,
            queue,
            mailbox,
            style,
            turns: Turns::new(order),
            tasks: BTreeMap::new(),
            jobs: JobOrder::default(),
            by_index: order.by_index,
            line_of: None,
            releasing: BTreeSet::new(),
            removed: RemovedOutput::default(),
            no_result: None,
            ended: Vec::new(),
        }
    }

    /// The Jobs of the run: the UID, the position and the shown name of each.
    pub fn follow_jobs<'a>(&mut self, jobs: impl Iterator<Item = (&'a str, usize, &'a str)>) {
        self.jobs = JobOrder::new(jobs);
    }

    /// Whether tasks are shown in the order of their indexes.
    pub fn has_order(&self) -> bool {
        self.by_index
    }

    pub fn queue(&self) -> Arc<OutputQueue> {
        self.queue.clone()
    }

    pub fn hear(&mut self, event: OutputEvent) {
        match event {
            OutputEvent::Began { attempt, source } => match logs::follow(&self.root, &attempt) {
                Ok(log) => {
                    self.turns.began(&attempt, self.jobs.place(&source.job, source.index));
                    let mut source = *source;
                    if let Some(name) = self.jobs.name(&source.job) {
                        source.job_name = name.into();
                    }
                    let name = TaskName::new(source, &attempt.container);
                    let task = TaskOutput { name, log, lines: Lines::default(), has_ended: false };
                    self.tasks.insert(attempt, task);
                }
                // The name of the attempt cannot be a file name, so it has no log either.
                Err(_) => self.mailbox.output_read(attempt, None),
            },
            OutputEvent::Ended { attempt } => self.end(&attempt),
            OutputEvent::AttemptEnded { source, record } => self.ended.push((source.job.to_string(), *record)),
            OutputEvent::AllEnded => {
                self.releasing.clear();
                self.end_all();
            }
            OutputEvent::Released { attempt } => {
                self.releasing.remove(&attempt);
            }
            OutputEvent::Removed { pod, lines, bytes } => {
                self.removed.lines += lines;
                self.removed.bytes += bytes;
                self.removed.pods.insert(pod);
            }
            OutputEvent::NoResult { pod, why } => {
                self.no_result = Some(format!("the results of Pod {pod} cannot be written: {why}"));
            }
        }
    }

    /// Everything that the shim has said so far.
    pub fn hear_all(&mut self) {
        while let Some(event) = self.queue.try_next() {
            self.hear(event);
        }
    }

    fn end(&mut self, attempt: &Attempt) {
        self.turns.ended(attempt);
        self.tasks.get_mut(attempt).into_iter().for_each(|task| task.has_ended = true);
    }

    fn end_all(&mut self) {
        for attempt in self.tasks.keys().cloned().collect::<Vec<_>>() {
            self.end(&attempt);
        }
    }

    /// A Job has finished, or its tasks before this index.
    pub fn finished_before(&mut self, job: usize, finished: bool, first_open: u32) {
        self.turns.reach(self.jobs.finished_before(job, finished, first_open));
    }

    /// Whether there are tasks whose output may grow or may be shown.
    pub fn has_tasks(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Whether there are tasks that have ended and are not shown to their end.
    pub fn has_ended_tasks(&self) -> bool {
        self.tasks.values().any(|task| task.has_ended)
    }

    /// Shows a part of what there is. Returns whether there may be more right now.
    pub fn show(&mut self, output: &mut Output, now: Instant) -> bool {
        self.release_line(output, now);
        let current = match &self.line_of {
            Some((attempt, _)) => vec![attempt.clone()],
            None => self.turns.current(),
        };
        let mut more = false;
        for attempt in current {
            more |= self.show_task(&attempt, output, now);
            if self.line_of.is_some() {
                break;
            }
        }
        output.flush_tasks();
        more
    }

    fn show_task(&mut self, attempt: &Attempt, output: &mut Output, now: Instant) -> bool {
        let Some(task) = self.tasks.get_mut(attempt) else { return false };
        let (style, TaskOutput { name, log, lines, has_ended }) = (self.style, task);
        let mut blocks = 0;
        let over = loop {
            let progress = log.read(|stream, complete, text| match style {
                LogStyle::Hidden => {}
                LogStyle::PassThrough => output.pass_through(stream, text, complete),
                LogStyle::Raw | LogStyle::Prefix => {
                    lines.record(stream, complete, text, |piece| output.task_line(name, piece, false));
                }
            });
            match progress {
                Ok(Progress::Text) if blocks + 1 < BLOCKS_AT_ONCE => blocks += 1,
                Ok(Progress::Text) => break false,
                Ok(Progress::File(before)) => self.mailbox.output_read(attempt.clone(), Some(before)),
                Ok(Progress::Nothing) => break *has_ended,
                Err(error) => {
                    output.note(&format!("the output of {} cannot be read: {error}", name.pod()));
                    break true;
                }
            }
        };
        if over {
            lines.end(|piece| output.task_line(name, piece, true));
        }
        let open_line = lines.open_line().is_some() && !output.is_json();
        if over {
            self.tasks.remove(attempt);
            self.turns.shown(attempt);
            self.mailbox.output_read(attempt.clone(), None);
            self.releasing.insert(attempt.clone());
        }
        self.line_of = match (&self.line_of, open_line && !over) {
            (Some((_, Some(since))), true) if blocks == 0 => Some((attempt.clone(), Some(*since))),
            (_, true) => Some((attempt.clone(), (blocks == 0).then_some(now))),
            _ => None,
        };
        // The next task has its turn.
        blocks > 0 || over
    }

    /// Breaks a long line that does not go on while other tasks wait.
    fn release_line(&mut self, output: &mut Output, now: Instant) {
        let Some((attempt, Some(since))) = &self.line_of else { return };
        if self.tasks.len() < 2 || now.saturating_duration_since(*since) < LINE_HELD_FOR {
            return;
        }
        if let Some(task) = self.tasks.get_mut(attempt)
            && let Some(stream) = task.lines.open_line()
        {
            task.lines.break_line(stream);
            output.break_line(stream);
        }
        self.line_of = None;
    }

    /// Waits until it is known what has been removed from the logs of the tasks that are shown to their end.
    pub async fn released(&mut self) {
        let queue = self.queue();
        let until = tokio::time::Instant::now() + RELEASED_WITHIN;
        while !self.releasing.is_empty()
            && let Ok(event) = tokio::time::timeout_at(until, queue.next()).await
        {
            self.hear(event);
        }
    }

    /// No task writes any more: shows all that is left.
    pub fn finish(&mut self, output: &mut Output) {
        self.hear_all();
        self.end_all();
        self.turns.reach(LAST);
        while self.has_tasks() {
            self.show(output, Instant::now());
        }
        self.hear_all();
    }

    /// What to tell about output that is no longer in the kept logs.
    pub fn told_removed(&self) -> Option<String> {
        let RemovedOutput { lines, bytes, pods } = &self.removed;
        if *bytes == 0 {
            return None;
        }
        let mut names: Vec<String> = pods.iter().take(NAMED).cloned().collect();
        if pods.len() > NAMED {
            names.push(format!("{} more", pods.len() - NAMED));
        }
        Some(format!(
            "logs are kept up to a limit: the oldest {bytes} bytes ({lines} lines) of {} were removed from the kept logs",
            names.join(", ")
        ))
    }
}
