//! `tally sim`: the simulator from the command line.

use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use tally_controllers::driver::wall_clock;
use tally_core::mutation::{BUGS, Bug};
use tally_sim::choices::Tape;
use tally_sim::mutants;
use tally_sim::run::{self, Campaign};
use tally_sim::scenarios::{self, SCENARIOS, Scenario};
use tally_sim::search::Search;

/// How many schedules a mutant gets, from a seed drawn at random, before it counts as having survived.
const MUTANT_BUDGET: u64 = 20_000;
/// `today+N` has room for so many.
const SEEDS_A_DAY: u64 = 1_000_000;
/// How much of a trace is worth reading.
const TRACE_LINES: usize = 80;

/// Prints a line. Whoever closes the pipe has seen enough; that is no reason to panic.
macro_rules! say {
    ($($words:tt)*) => {{
        let _ = writeln!(std::io::stdout(), $($words)*);
    }};
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally sim                          1,000 seeds, every kind of fault
  tally sim --seeds 0..5000          a range of seeds
  tally sim --seeds today+5000       5,000 seeds that nobody has run before today; which, is printed
  tally sim --scenario all --seeds 50000000..50016000 --resume search.txt
                                     a search of hours, in all scenarios, which can be interrupted
  tally sim --seed 4711              one seed, with its trace and trace hash
  tally sim --scenario two-leaders   one kind of trouble
  tally sim --scenario cluster-faults   all controllers together
  tally sim --mutants                put known bugs back and find each of them, from a random seed on
  tally sim --mutants --from 4711    the same search again

Exit code 0: no invariant was violated and everything that must happen sometimes happened; 1 otherwise.")]
pub struct Args {
    /// Seeds to run, first (included) to last (excluded)
    #[arg(long, value_name = "A..B|today+N", value_parser = parse_range, conflicts_with_all = ["seed", "mutants"])]
    seeds: Option<Range<u64>>,
    /// Where to keep how far the search has come; it goes on from there (with --scenario all)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "mutants", "mutant"])]
    resume: Option<PathBuf>,
    /// One seed, traced
    #[arg(long, value_name = "N", conflicts_with = "mutants")]
    seed: Option<u64>,
    /// A named world; `--scenario list` shows them
    #[arg(long, value_name = "NAME", default_value = "any")]
    scenario: String,
    /// Put known bugs back one at a time; each must be found
    #[arg(long)]
    mutants: bool,
    /// Where the search for each known bug starts, instead of at random
    #[arg(long, value_name = "N", requires = "mutants")]
    from: Option<u64>,
    /// Run with this one known bug, e.g. NoGate
    #[arg(long, value_name = "BUG", conflicts_with = "mutants")]
    mutant: Option<String>,
    /// Print the whole trace of --seed, not only its end
    #[arg(long, requires = "seed")]
    full: bool,
}

fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("{text:?} is not a range of seeds such as 0..5000 or today+5000");
    if let Some(count) = text.strip_prefix("today+") {
        let count: u64 = count.parse().ok().filter(|count| (1..=SEEDS_A_DAY).contains(count)).ok_or_else(wrong)?;
        let day = wall_clock().millis().max(0) as u64 / 86_400_000;
        return Ok(day * SEEDS_A_DAY..day * SEEDS_A_DAY + count);
    }
    let (first, last) = text.split_once("..").ok_or_else(wrong)?;
    let range = first.parse().map_err(|_| wrong())?..last.parse().map_err(|_| wrong())?;
    if range.is_empty() {
        return Err(format!("{text:?} has no seeds in it"));
    }
    Ok(range)
}

pub fn run(args: &Args) -> Result<bool> {
    if args.scenario == "list" {
        for scenario in SCENARIOS {
            say!("{:<16} {}", scenario.name, scenario.about);
        }
        return Ok(true);
    }
    if args.scenario == "all" {
        return run_all(args.seeds.clone().unwrap_or(0..100), args.resume.as_deref());
    }
    if args.resume.is_some() {
        bail!("--resume is for a search in all scenarios: add --scenario all");
    }
    let scenario = scenarios::find(&args.scenario)
        .ok_or_else(|| anyhow!("no scenario is called {:?}; `--scenario list` shows them", args.scenario))?;
    let bug = args.mutant.as_deref().map(find_bug).transpose()?;
    if args.mutants {
        return Ok(run_mutants(args.from.unwrap_or_else(any_seed)));
    }
    if let Some(seed) = args.seed {
        return Ok(run_seed(seed, bug, scenario, args.full));
    }
    Ok(run_seeds(args.seeds.clone().unwrap_or(0..1_000), bug, scenario))
}

fn find_bug(name: &str) -> Result<Bug> {
    match BUGS.iter().find(|bug| format!("{bug:?}").eq_ignore_ascii_case(name)) {
        Some(bug) => Ok(*bug),
        None => {
            let names: Vec<String> = BUGS.iter().map(|bug| format!("{bug:?}")).collect();
            bail!("no known bug is called {name:?}; there are {}", names.join(", "))
        }
    }
}

fn replay_command(seed: u64, bug: Option<Bug>, scenario: &Scenario) -> String {
    let mut command = format!("tally sim --seed {seed}");
    if scenario.name != "any" {
        command += &format!(" --scenario {}", scenario.name);
    }
    if let Some(bug) = bug {
        command += &format!(" --mutant {bug:?}");
    }
    command
}

fn run_seed(seed: u64, bug: Option<Bug>, scenario: &Scenario, full: bool) -> bool {
    let outcome = run::seed(seed, bug, scenario, true);
    let skipped = if full { 0 } else { outcome.lines.len().saturating_sub(TRACE_LINES) };
    if skipped > 0 {
        say!("... {skipped} lines before (--full shows them)");
    }
    for line in &outcome.lines[skipped..] {
        say!("{line}");
    }
    say!("seed {seed}: {} steps, trace hash {:016x}", outcome.steps, outcome.hash);
    match &outcome.violation {
        None => true,
        Some(violation) => {
            say!("VIOLATION of {}: {}", violation.invariant, violation.text);
            explain(&outcome.tape, bug, scenario, violation.invariant);
            false
        }
    }
}

/// Prints the shortest trace we can find of the same violation.
fn explain(tape: &Tape, bug: Option<Bug>, scenario: &Scenario, invariant: &str) {
    let shrunk = run::shrink(tape, bug, scenario, invariant);
    let outcome = run::replay(&shrunk, bug, scenario);
    say!("shrunk from {} to {} steps of chaos:", tape.len() - 1, shrunk.len() - 1);
    let skipped = outcome.lines.len().saturating_sub(TRACE_LINES);
    if skipped > 0 {
        say!("  ... {skipped} lines before");
    }
    for line in &outcome.lines[skipped..] {
        say!("  {line}");
    }
    if let Some(violation) = outcome.violation {
        say!("  => {}: {}", violation.invariant, violation.text);
    }
}

/// Every scenario, in turns.
fn run_all(range: Range<u64>, file: Option<&Path>) -> Result<bool> {
    let started = Instant::now();
    say!("seeds {}..{} in {} scenarios", range.start, range.end, SCENARIOS.len());
    let mut search = Search::new(range, SCENARIOS.iter().collect());
    if let Some(file) = file {
        search.resume(file)?;
    }
    let before = search.total();
    while let Some(block) = search.next_block() {
        if let Some(file) = file {
            search.save(file)?;
        }
        if let Err(found) = block {
            say!("VIOLATION of {} at seed {}: {}", found.violation.invariant, found.seed, found.violation.text);
            if let Some(scenario) = scenarios::find(found.scenario) {
                let outcome = run::seed(found.seed, None, scenario, false);
                explain(&outcome.tape, None, scenario, found.violation.invariant);
                say!("replay: {}", replay_command(found.seed, None, scenario));
            }
            return Ok(false);
        }
    }
    for (name, done) in search.done() {
        say!("{:>10} schedules {:>12} steps  {name}", done.schedules, done.steps);
    }
    let (total, seconds) = (search.total(), started.elapsed().as_secs_f64());
    say!(
        "{} schedules, {} steps, no violation ({} of them now, in {seconds:.0} s)",
        total.schedules,
        total.steps,
        total.schedules - before.schedules
    );
    Ok(true)
}

fn run_seeds(range: Range<u64>, bug: Option<Bug>, scenario: &Scenario) -> bool {
    let started = Instant::now();
    say!("seeds {}..{}", range.start, range.end);
    let mut progress = Progress::new(range.end - range.start);
    let campaign = run::seeds(range, bug, scenario, |campaign| progress.show(campaign));
    progress.end();
    let seconds = started.elapsed().as_secs_f64();
    say!(
        "{} schedules, {} steps in {seconds:.1} s: {:.0} steps per second on one core",
        campaign.schedules,
        campaign.steps,
        campaign.steps as f64 / seconds
    );
    if let Some((seed, violation)) = &campaign.failed {
        say!("VIOLATION of {} at seed {seed}: {}", violation.invariant, violation.text);
        let outcome = run::seed(*seed, bug, scenario, false);
        explain(&outcome.tape, bug, scenario, violation.invariant);
        say!("replay: {}", replay_command(*seed, bug, scenario));
        return false;
    }
    say!("no violation; most Pods beyond parallelism at once: {}", campaign.excess);
    say!("what must happen sometimes:");
    let cluster = scenario.is_cluster();
    for (text, times) in campaign.counters.iter(cluster) {
        say!("{times:>10}  {text}");
    }
    if !scenario.has_everything() {
        return true;
    }
    let never: Vec<&str> = campaign.counters.never(cluster).collect();
    if !never.is_empty() {
        say!("NEVER HAPPENED: {}", never.join("; "));
    }
    never.is_empty()
}

/// Somewhere in a range that nobody has tuned anything to.
fn any_seed() -> u64 {
    let drawn = std::hash::BuildHasher::build_hasher(&std::hash::RandomState::new());
    std::hash::Hasher::finish(&drawn) % 1_000_000_000
}

fn run_mutants(from: u64) -> bool {
    say!("each search starts at seed {from}: tally sim --mutants --from {from}");
    let mut survivors = Vec::new();
    for bug in BUGS {
        let home = scenarios::find(mutants::scenario_for(*bug)).unwrap_or(&SCENARIOS[0]);
        let started = Instant::now();
        let campaign = run::seeds(from..from + MUTANT_BUDGET, Some(*bug), home, |_| {});
        let label = mutants::label(*bug);
        match campaign.failed {
            Some((seed, violation)) => say!(
                "found     {label:<66} {:<4} seed {seed:<10} after {} schedules, {} steps, {:.1} s ({})",
                violation.invariant,
                campaign.schedules,
                campaign.steps,
                started.elapsed().as_secs_f64(),
                replay_command(seed, Some(*bug), home),
            ),
            None => {
                say!("SURVIVED  {label:<66} {} schedules of {}", campaign.schedules, home.name);
                survivors.push(label);
            }
        }
    }
    say!("{} mutants, {} found, {} survived", BUGS.len(), BUGS.len() - survivors.len(), survivors.len());
    survivors.is_empty()
}

/// A line of progress on a terminal; nothing where nobody watches.
struct Progress {
    total: u64,
    shown: Instant,
    visible: bool,
}

impl Progress {
    fn new(total: u64) -> Self {
        Self { total, shown: Instant::now(), visible: std::io::stderr().is_terminal() }
    }

    fn show(&mut self, campaign: &Campaign) {
        if self.visible && self.shown.elapsed() > Duration::from_millis(200) {
            self.shown = Instant::now();
            eprint!("\r{} of {} schedules, {} steps", campaign.schedules, self.total, campaign.steps);
            let _ = std::io::stderr().flush();
        }
    }

    fn end(&self) {
        if self.visible {
            eprint!("\r\x1b[2K");
        }
    }
}
