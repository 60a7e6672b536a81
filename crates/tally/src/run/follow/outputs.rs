//! Reads what the processes of this machine print, and shows it.
//!
//! The shim says which attempts have output; the text is in their log files. The shim keeps every file until this reader
//! has read it, and lets the processes wait if the reader is too far behind. So nothing is lost, however slow the reader
//! of standard output is, and memory is bounded: at most one incomplete line per task and stream.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tally_node::attempts::AttemptRecord;
use tally_node::logs::{self, Follower, Progress};
use tally_node::mailbox::Mailbox;
use tally_node::output::{OutputEvent, OutputQueue};
use tally_node::port::Attempt;

use super::display::LogStyle;
use super::tasks::{Task, Tasks, Turn};
use crate::run::progress::output::Output;

/// Blocks of a log that are read in one turn: a task that prints without end does not delay the others.
const BLOCKS_AT_ONCE: usize = 4;

/// How long the shim may take to remove what it must. Usually this takes less than a millisecond.
const RELEASED_WITHIN: Duration = Duration::from_secs(2);

/// Names of Pods in the message about removed output; more are counted.
const NAMED: usize = 3;

pub struct Outputs {
    root: PathBuf,
    queue: Arc<OutputQueue>,
    mailbox: Arc<Mailbox>,
    style: LogStyle,
    pub tasks: Tasks<TaskFile>,
    /// Tasks that are shown to their end, of which the shim has not said that it is done with their logs.
    releasing: BTreeSet<Attempt>,
    removed: RemovedOutput,
    /// Why the results of a task could not be stored.
    pub no_result: Option<String>,
    /// Attempts that have ended, if the shim tells them, and the UIDs of their Jobs.
    pub ended: Vec<(String, AttemptRecord)>,
}

/// The log of a task.
pub struct TaskFile {
    log: Follower,
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
        tasks: Tasks<TaskFile>,
    ) -> Self {
        Self {
            root,
            queue,
            mailbox,
            style,
            tasks,
            releasing: BTreeSet::new(),
            removed: RemovedOutput::default(),
            no_result: None,
            ended: Vec::new(),
        }
    }

    pub fn queue(&self) -> Arc<OutputQueue> {
        self.queue.clone()
    }

    pub fn hear(&mut self, event: OutputEvent) {
        match event {
            OutputEvent::Began { attempt, source } => match logs::follow(&self.root, &attempt) {
                Ok(log) => self.tasks.began(attempt, *source, TaskFile { log, has_ended: false }),
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
        self.tasks.ended(attempt).into_iter().for_each(|task| task.has_ended = true);
    }

    fn end_all(&mut self) {
        self.tasks.attempts().iter().for_each(|attempt| self.end(attempt));
    }

    /// Whether there are tasks that have ended and are not shown to their end.
    pub fn has_ended_tasks(&self) -> bool {
        self.tasks.logs().any(|task| task.has_ended)
    }

    /// Shows a part of what there is. Returns whether there may be more right now.
    pub fn show(&mut self, output: &mut Output, now: Instant) -> bool {
        let (style, mailbox, releasing) = (self.style, &self.mailbox, &mut self.releasing);
        self.tasks.show(output, now, |attempt, Task { name, lines, log: TaskFile { log, has_ended } }, output| {
            let mut pieces = 0;
            let is_over = loop {
                let progress = log.read(|stream, complete, text| match style {
                    LogStyle::Hidden => {}
                    LogStyle::PassThrough => output.pass_through(stream, text, complete),
                    LogStyle::Raw | LogStyle::Prefix => {
                        lines.record(stream, complete, text, |piece| output.task_line(name, piece, false));
                    }
                });
                match progress {
                    Ok(Progress::Text) if pieces + 1 < BLOCKS_AT_ONCE => pieces += 1,
                    Ok(Progress::Text) => break false,
                    Ok(Progress::File(before)) => mailbox.output_read(attempt.clone(), Some(before)),
                    Ok(Progress::Nothing) => break *has_ended,
                    Err(error) => {
                        output.note(&format!("the output of {} cannot be read: {error}", name.pod()));
                        break true;
                    }
                }
            };
            if is_over {
                mailbox.output_read(attempt.clone(), None);
                releasing.insert(attempt.clone());
            }
            Some(Turn { pieces, is_over })
        })
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
        self.tasks.reach_last();
        while !self.tasks.is_empty() {
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
