//! The tasks whose output is shown: whose turn it is, and how their lines stay whole. Where the output of a task is read is
//! the caller's.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tally_node::output::OutputSource;
use tally_node::port::Attempt;

use super::lines::Lines;
use super::turns::{JobOrder, LAST, OutputOrder, Turns};
use crate::run::progress::output::{Output, TaskName};

/// A long line whose task has paused in the middle of it is broken after this time if other tasks have output to show.
const LINE_HELD_FOR: Duration = Duration::from_secs(1);

/// Tasks that are not shown to their end. `L`: where the output of one of them is read.
pub struct Tasks<L> {
    turns: Turns,
    jobs: JobOrder,
    by_index: bool,
    tasks: BTreeMap<Attempt, Task<L>>,
    /// The task that is in the middle of a long line, and since when nothing more of it has come.
    line_of: Option<(Attempt, Option<Instant>)>,
}

pub struct Task<L> {
    pub name: TaskName,
    pub lines: Lines,
    pub log: L,
}

/// What was shown of a task in one turn.
pub struct Turn {
    pub pieces: usize,
    /// It is shown to its end.
    pub is_over: bool,
}

impl<L> Tasks<L> {
    pub fn new(order: OutputOrder, jobs: JobOrder) -> Self {
        Self { turns: Turns::new(order), jobs, by_index: order.by_index, tasks: BTreeMap::new(), line_of: None }
    }

    /// Whether tasks are shown in the order of their indexes.
    pub fn has_order(&self) -> bool {
        self.by_index
    }

    /// Whether there are tasks whose output may grow or may be shown.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Whether other tasks wait for the end of a long line.
    pub fn holds_line(&self) -> bool {
        self.line_of.is_some()
    }

    pub fn attempts(&self) -> Vec<Attempt> {
        self.tasks.keys().cloned().collect()
    }

    pub fn get(&self, attempt: &Attempt) -> Option<&Task<L>> {
        self.tasks.get(attempt)
    }

    pub fn logs(&self) -> impl Iterator<Item = &L> {
        self.tasks.values().map(|task| &task.log)
    }

    /// Whether this Job is one of the run.
    pub fn has_job(&self, uid: &str) -> bool {
        self.jobs.name(uid).is_some()
    }

    pub fn began(&mut self, attempt: Attempt, mut source: OutputSource, log: L) {
        self.turns.began(&attempt, self.jobs.place(&source.job, source.index));
        if let Some(name) = self.jobs.name(&source.job) {
            source.job_name = name.into();
        }
        let name = TaskName::new(source, &attempt.container);
        self.tasks.insert(attempt, Task { name, lines: Lines::default(), log });
    }

    pub fn ended(&mut self, attempt: &Attempt) -> Option<&mut L> {
        self.turns.ended(attempt);
        self.tasks.get_mut(attempt).map(|task| &mut task.log)
    }

    /// A Job has finished, or its tasks before this index.
    pub fn finished_before(&mut self, job: usize, finished: bool, first_open: u32) {
        self.turns.reach(self.jobs.finished_before(job, finished, first_open));
    }

    /// All tasks have their turn.
    pub fn reach_last(&mut self) {
        self.turns.reach(LAST);
    }

    /// Shows a part of what there is. `read` shows a part of one task; None: it has nothing yet. Returns whether there may be
    /// more right now.
    pub fn show(
        &mut self,
        output: &mut Output,
        now: Instant,
        mut read: impl FnMut(&Attempt, &mut Task<L>, &mut Output) -> Option<Turn>,
    ) -> bool {
        self.release_line(output, now);
        let current = match &self.line_of {
            Some((attempt, _)) => vec![attempt.clone()],
            None => self.turns.current(),
        };
        let mut more = false;
        for attempt in current {
            if self.has_earlier(&attempt) {
                continue;
            }
            more |= self.show_task(&attempt, output, now, &mut read);
            if self.line_of.is_some() {
                break;
            }
        }
        output.flush_tasks();
        more
    }

    /// Whether an earlier run of the same container is not shown to its end.
    fn has_earlier(&self, attempt: &Attempt) -> bool {
        let before = self.tasks.range(..attempt).next_back();
        before.is_some_and(|(other, _)| (&other.pod, &other.container) == (&attempt.pod, &attempt.container))
    }

    fn show_task(
        &mut self,
        attempt: &Attempt,
        output: &mut Output,
        now: Instant,
        read: &mut impl FnMut(&Attempt, &mut Task<L>, &mut Output) -> Option<Turn>,
    ) -> bool {
        let Some(task) = self.tasks.get_mut(attempt) else { return false };
        let Some(Turn { pieces, is_over }) = read(attempt, task, output) else { return false };
        let Task { name, lines, .. } = task;
        if is_over {
            lines.end(|piece| output.task_line(name, piece, true));
        }
        let open_line = lines.open_line().is_some() && !output.is_json();
        if is_over {
            self.tasks.remove(attempt);
            self.turns.shown(attempt);
        }
        self.line_of = match (&self.line_of, open_line && !is_over) {
            (Some((_, Some(since))), true) if pieces == 0 => Some((attempt.clone(), Some(*since))),
            (_, true) => Some((attempt.clone(), (pieces == 0).then_some(now))),
            _ => None,
        };
        // The next task has its turn.
        pieces > 0 || is_over
    }

    /// Breaks a long line that does not go on while other tasks wait.
    fn release_line(&mut self, output: &mut Output, now: Instant) {
        let Some((attempt, Some(since))) = &self.line_of else { return };
        if now.saturating_duration_since(*since) < LINE_HELD_FOR || self.turns.current().len() < 2 {
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
}
