//! Every interleaving of a small world, checked against the accounting code of production.
//!
//! The design claims that counting is safe behind the revision gate, and names the variants that are not. This is the
//! evidence: a breadth-first search of a world of one Job, up to three Pods and up to two controllers, in which every
//! possible next step is tried from every state. What a controller records, releases and tallies is decided by the
//! functions that production calls (`tally_core::accounting`); a variant differs only in what is passed to them, or in
//! what the world around does. The search must find a counterexample for every bad variant, or it is blind; for good
//! variants it must be exhaustive.
//!
//! # The world
//!
//! The store has one revision counter and remembers what happened at each revision (`world.rs`). A controller has a
//! cursor into the Job's revisions and one into the Pods', which advance independently; it knows its own releases
//! before the stream shows them, distinguishes its own writes of the Job from others', and has at most one status write
//! and any number of releases in flight. Pods without an owner are adopted once seen. A crash loses all of that; the
//! new process starts from lists of any age, each independent of the other, and requests of the old process may still
//! be carried out later. Pods are created, finish, change their outcome and are deleted; a third party may write the
//! Job; requests and responses get lost.
//!
//! # What is checked
//!
//! At every step: no Pod is tallied twice (I1), none loses its finalizer before it was recorded (I3), no UID is listed
//! twice (I4), none is tallied while the store still shows its finalizer (S03).
//!
//! At rest (I2, I9): a step is *ordinary* if a controller or the network takes it: reading, requesting, carrying out,
//! responding, and what happens to late requests. Faults, and what Pods and users do, are not ordinary. Then, over all
//! reachable states, including those between faults:
//! - if no ordinary step is left, every finished Pod was tallied exactly once, in the counter of its outcome, and has
//!   lost its finalizer; no running Pod was touched; the lists are empty. Nothing is lost, and nothing is written any
//!   more.
//! - the ordinary steps form no cycle. So whenever faults stop, every run ends after a bounded number of steps (the
//!   longest is printed), and it ends in a state as above. This is stronger than "can reach a good state", and it needs
//!   no fairness assumption except that some possible step happens.
//!
//! # How it stays small
//!
//! None of this is a guess: each item is a claim that the omitted states have the same future as one that is kept.
//! - States are compared in full, 64 bytes each; hashes only say where to look.
//! - Two controllers that follow the same rule may be exchanged.
//! - Once no crash or rewind can happen any more, history that every cursor has passed is folded into one first state,
//!   and an open gate stays open until another writer moves it, whatever its revision was.
//! - A restart with the oldest lists, followed by reading, passes through all restarts with newer ones.
//! - A conditional write that can only conflict is equivalent to a conflict.
//! - [`Grain::Coarse`], in the large rows: a request is carried out when it is sent. What the sender learns in between
//!   it might as well learn afterwards: the Job has not changed, otherwise the write would conflict, and a Pod that was
//!   recorded and tracked stays recorded until it is released. Requests whose sender crashed or gave up are an
//!   exception and stay late. A test compares both grains where both are small enough.
//! - Large rows have no deletion: [`PodFacts`](tally_core::accounting::PodFacts) does not distinguish a Pod that was
//!   released from one that is gone.
//!
//! # What it leaves out
//!
//! - The ledger around the functions: its indexes, batches, delays, back-off, finishing a Job and the sweep after it,
//!   removal of unwanted Pods, orphans. Which writes move the gate is decided by production's own function; the
//!   bookkeeping of the revision and of the overlay is repeated here in a few lines. The simulator runs the real
//!   controllers.
//! - Indexed Jobs: their successes go into a set, which cannot count twice. Verdicts, and so the part of the gate that
//!   is about them.
//! - What a process learns from the response to its own adoption: here it learns that from the stream. Pods that finish
//!   before they are adopted, which production does not count.
//! - Pods that lose the finalizer by another writer, UIDs that are reused, a Job that is deleted or replaced.
//! - Several API servers, except as stale lists and, where a row says so, a view that goes back. Reading one Job again
//!   after a conflict is assumed to be consistent and instant. A consistent list of one Job's Pods is the same as
//!   reading the stream up to now.
//! - More than two late status writes at a time; a third is lost.

mod rows;
mod rules;
mod search;
mod steps;
mod tell;
#[cfg(test)]
mod tests;
mod world;

use std::io::{self, Write};
use std::time::Instant;

pub use rows::{FURTHER, Row, TABLE, Verdict};
pub use rules::{Gate, Grain, Overlay, Setup};
pub use world::Faults;

use search::{Found, search};
use tell::DescribedStep;

#[derive(Clone, Copy, Debug, Default)]
pub struct ModelOptions {
    /// Small worlds only: a few seconds even without optimisation.
    pub quick: bool,
    /// Show the shortest counterexample of each bad row.
    pub trace: bool,
}

/// Searches every row and prints the results. True if all are as expected.
pub fn run(options: &ModelOptions, out: &mut dyn Write) -> io::Result<bool> {
    let began_at = Instant::now();
    let table = run_rows("the table of the design", &TABLE, options, out)?;
    let further = run_rows("further", &FURTHER, options, out)?;
    if options.quick {
        writeln!(out, "* in a smaller world")?;
    }
    let states = grouped(table.states + further.states);
    writeln!(out, "{states} states in {:.1} s", began_at.elapsed().as_secs_f64())?;
    match table.surprises + further.surprises {
        0 => writeln!(out, "all rows are as expected")?,
        surprises => writeln!(out, "rows that are not as expected: {surprises}")?,
    }
    Ok(table.surprises + further.surprises == 0)
}

struct Summary {
    surprises: usize,
    states: usize,
}

fn run_rows(title: &str, rows: &[Row], options: &ModelOptions, out: &mut dyn Write) -> io::Result<Summary> {
    let mut summary = Summary { surprises: 0, states: 0 };
    writeln!(out, "{title:<77} {:<13} {:<13} {:>11} {:>8}", "expected", "found", "states", "seconds")?;
    for row in rows {
        let setup = row.setup(options.quick);
        let mark = if options.quick && row.quick.is_some() { "*" } else { " " };
        let began_at = Instant::now();
        let found = search(&setup, |_| {});
        let seconds = began_at.elapsed().as_secs_f64();
        let verdict = found.verdict();
        let states = grouped(found.states);
        summary.states += found.states;
        write!(out, " {mark}{:<75} {:<13} {verdict:<13} {states:>11} {seconds:>8.2}", row.variant, row.expected)?;
        if found.longest_run > 0 {
            write!(out, "   rests in {} states, within {} steps", grouped(found.at_rest), found.longest_run)?;
        }
        writeln!(out)?;
        if verdict != row.expected {
            summary.surprises += 1;
            writeln!(out, "    not as expected")?;
        }
        if options.trace || verdict != row.expected {
            tell(&setup, &found, out)?;
        }
        out.flush()?;
    }
    Ok(summary)
}

fn tell(setup: &Setup, found: &Found, out: &mut dyn Write) -> io::Result<()> {
    let Some(counterexample) = &found.breach else { return Ok(()) };
    if setup.reduce {
        writeln!(out, "    (controllers may change places and revisions may start anew between steps)")?;
    }
    for (nth, (world, step)) in (1..).zip(&counterexample.path) {
        writeln!(out, "    {nth:>2}. {}", DescribedStep(setup, world, *step))?;
    }
    writeln!(out, "        {}", counterexample.breach)
}

impl Row {
    fn setup(&self, quick: bool) -> Setup {
        self.quick.filter(|_| quick).unwrap_or(self.setup)
    }
}

impl Found {
    fn verdict(&self) -> Verdict {
        self.breach.as_ref().map_or(Verdict::Safe, |counterexample| counterexample.breach.into())
    }
}

/// A number with its digits grouped by thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
