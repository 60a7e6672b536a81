//! The simulator and the exhaustive model from the command line.

use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Parser, Subcommand};
use tally_runtime::driver::wall_clock;
use tally_sim::bugs::{self, BUGS, Bug};
use tally_sim::choices::Tape;
use tally_sim::run::{self, Campaign};
use tally_sim::scenarios::{self, SCENARIOS, Scenario};
use tally_sim::search::Search;
use tally_sim::{model, planted};

/// A schedule is mostly small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many schedules a mutant gets before it counts as having survived.
const MUTANT_BUDGET: u64 = 60_000;
/// The number of seeds per day for `today+N`.
const SEEDS_A_DAY: u64 = 1_000_000;
/// How many lines of a trace are printed.
const TRACE_LINES: usize = 80;

/// Prints a line. A reader that closes the pipe early is not an error.
macro_rules! say {
    ($($words:tt)*) => {{
        let _ = writeln!(std::io::stdout(), $($words)*);
    }};
}

/// Deterministic simulation of Tally's controllers, and the exhaustive model of its counting rule
#[derive(Parser)]
#[command(
    version,
    after_help = "Examples:
  tally-sim seeds 0..5000                        a range of seeds, every kind of fault
  tally-sim seeds today+5000                     seeds that change with the date; the range is printed
  tally-sim seeds 0..500 --scenario two-leaders  one scenario
  tally-sim seeds 50000000..50016000 --scenario all --resume search.txt
                                                 a search of hours in all scenarios, which can be interrupted
  tally-sim seed 4711                            one seed, with its trace and trace hash
  tally-sim mutants                              put known bugs back and find each of them, from a random seed on
  tally-sim find NoGate --starts 20 --within 500 how many schedules it takes to find a known bug
  tally-sim model                                every interleaving of a small world

Exit code 0: no invariant was violated, every mutant was found, every row of the model is as expected; 1 otherwise."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a range of seeds: controllers under faults, judged by an oracle at every write
    Seeds(Seeds),
    /// Run one seed and print its trace
    Seed(Seed),
    /// Put known bugs back one at a time; each must be found
    Mutants {
        /// The seed at which each search starts, instead of a random one
        #[arg(long, value_name = "N")]
        from: Option<u64>,
    },
    /// Search for known bugs from several seeds on, and count the schedules until each is found
    Find(Find),
    /// List the scenarios
    Scenarios,
    /// Explore every interleaving of small worlds: the counting rule is safe, every weaker rule yields a counterexample
    Model {
        /// Smaller worlds: a few seconds instead of two minutes
        #[arg(long)]
        quick: bool,
        /// Show the shortest counterexample of each unsafe rule
        #[arg(long)]
        trace: bool,
    },
}

#[derive(clap::Args)]
struct Seeds {
    /// First seed (included) to last (excluded)
    #[arg(value_name = "A..B|today+N", value_parser = parse_range, default_value = "0..1000")]
    range: Range<u64>,
    /// A scenario, or `all` of them in turns; `tally-sim scenarios` lists them
    #[arg(long, value_name = "NAME", default_value = "any")]
    scenario: String,
    /// Where to store the progress of a search, which continues from there (with --scenario all)
    #[arg(long, value_name = "FILE", conflicts_with = "mutant")]
    resume: Option<PathBuf>,
    /// Run with this known bug, e.g. NoGate
    #[arg(long, value_name = "BUG")]
    mutant: Option<String>,
}

#[derive(clap::Args)]
struct Seed {
    #[arg(value_name = "N")]
    seed: u64,
    /// A scenario; `tally-sim scenarios` lists them
    #[arg(long, value_name = "NAME", default_value = "any")]
    scenario: String,
    /// Run with this known bug, e.g. NoGate
    #[arg(long, value_name = "BUG")]
    mutant: Option<String>,
    /// Print the whole trace, not only its end
    #[arg(long)]
    full: bool,
}

#[derive(clap::Args)]
struct Find {
    /// Known bugs, e.g. NoGate; without any, those that only a rare order of events shows
    #[arg(value_name = "BUG")]
    bugs: Vec<String>,
    /// From how many seeds each search starts
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    starts: u64,
    /// In how many schedules the bug must be found, from each of them
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    within: u64,
    /// The first of the seeds, instead of a random one
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// A scenario, instead of the one that each bug belongs to
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
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

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tally-sim: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> Result<bool> {
    match command {
        Command::Seeds(args) if args.scenario == "all" => {
            if args.mutant.is_some() {
                bail!("--mutant needs one scenario; `tally-sim mutants` runs each known bug in its own");
            }
            run_all(args.range, args.resume.as_deref())
        }
        Command::Seeds(args) => {
            if args.resume.is_some() {
                bail!("--resume is for a search in all scenarios: add --scenario all");
            }
            let bug = args.mutant.as_deref().map(find_bug).transpose()?;
            Ok(run_seeds(args.range, bug, find_scenario(&args.scenario)?))
        }
        Command::Seed(args) => {
            let bug = args.mutant.as_deref().map(find_bug).transpose()?;
            Ok(run_seed(args.seed, bug, find_scenario(&args.scenario)?, args.full))
        }
        Command::Mutants { from } => run_mutants(from.unwrap_or_else(any_seed)),
        Command::Find(args) => find_bugs(&args),
        Command::Scenarios => {
            for scenario in SCENARIOS {
                say!("{:<20} {}", scenario.name, scenario.about);
            }
            Ok(true)
        }
        Command::Model { quick, trace } => {
            model::run(&model::ModelOptions { quick, trace }, &mut std::io::stdout().lock())
                .context("cannot print the results of the model")
        }
    }
}

fn find_scenario(name: &str) -> Result<&'static Scenario> {
    scenarios::find(name).ok_or_else(|| anyhow!("no scenario is called {name:?}; `tally-sim scenarios` lists them"))
}

fn find_bug(name: &str) -> Result<&'static Bug> {
    if !planted::ANY {
        bail!("these sources contain no bugs; `make bugs` builds a copy that contains all that are known");
    }
    bugs::find(name).ok_or_else(|| {
        let names: Vec<&str> = BUGS.iter().map(|bug| bug.name).collect();
        anyhow!("no known bug is called {name:?}; there are {}", names.join(", "))
    })
}

fn replay_command(seed: u64, bug: Option<&'static Bug>, scenario: &Scenario) -> String {
    let mut command = format!("tally-sim seed {seed}");
    if scenario.name != "any" {
        command += &format!(" --scenario {}", scenario.name);
    }
    if let Some(bug) = bug {
        command += &format!(" --mutant {}", bug.name);
    }
    command
}

fn run_seed(seed: u64, bug: Option<&'static Bug>, scenario: &Scenario, full: bool) -> bool {
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

/// Prints the shortest trace that is found for the same violation.
fn explain(tape: &Tape, bug: Option<&'static Bug>, scenario: &Scenario, invariant: &str) {
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

/// Runs all worlds, in turns.
fn run_all(range: Range<u64>, file: Option<&Path>) -> Result<bool> {
    let started = Instant::now();
    say!("seeds {}..{} in {} scenarios", range.start, range.end, SCENARIOS.len());
    let mut search = Search::new(range, SCENARIOS.iter().collect());
    if let Some(file) = file {
        search.resume(file).with_context(|| format!("cannot resume from {}", file.display()))?;
    }
    let before = search.total();
    while let Some(block) = search.next_block() {
        if let Some(file) = file {
            search.save(file).with_context(|| format!("cannot write {}", file.display()))?;
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

fn run_seeds(range: Range<u64>, bug: Option<&'static Bug>, scenario: &Scenario) -> bool {
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

/// A random seed: the put-back bugs are not tuned to it.
fn any_seed() -> u64 {
    let drawn = std::hash::BuildHasher::build_hasher(&std::hash::RandomState::new());
    std::hash::Hasher::finish(&drawn) % 1_000_000_000
}

fn run_mutants(from: u64) -> Result<bool> {
    say!("each search starts at seed {from}: tally-sim mutants --from {from}");
    let mut survivors = 0;
    for Bug { name, what, .. } in BUGS {
        let (bug, started) = (find_bug(name)?, Instant::now());
        let home = find_scenario(bug.world)?;
        let campaign = run::seeds(from..from + MUTANT_BUDGET, Some(bug), home, |_| {});
        match campaign.failed {
            Some((seed, violation)) => say!(
                "found     {what:<78} {:<4} seed {seed:<10} after {} schedules, {} steps, {:.1} s ({})",
                violation.invariant,
                campaign.schedules,
                campaign.steps,
                started.elapsed().as_secs_f64(),
                replay_command(seed, Some(bug), home),
            ),
            None => {
                say!("SURVIVED  {what:<78} {} schedules of {} ({name})", campaign.schedules, home.name);
                survivors += 1;
            }
        }
    }
    say!("{} mutants, {} found, {survivors} survived", BUGS.len(), BUGS.len() - survivors);
    Ok(survivors == 0)
}

fn find_bugs(args: &Find) -> Result<bool> {
    let names: Vec<&str> = match args.bugs.as_slice() {
        [] => bugs::RARE.to_vec(),
        names => names.iter().map(String::as_str).collect(),
    };
    let bugs: Vec<&'static Bug> = names.into_iter().map(find_bug).collect::<Result<_>>()?;
    let named = args.scenario.as_deref().map(find_scenario).transpose()?;
    let from = args.from.unwrap_or_else(any_seed);
    say!("{} searches for each bug, of {} schedules at most: --from {from}", args.starts, args.within);
    let mut all = true;
    for bug in bugs {
        let home = named.map_or_else(|| find_scenario(bug.world), Ok)?;
        let mut after = Vec::new();
        let mut laws = std::collections::BTreeMap::<&str, usize>::new();
        for start in bugs::starts(from, args.starts) {
            let campaign = run::seeds(start..start + args.within, Some(bug), home, |_| {});
            if let Some((_, violation)) = campaign.failed {
                after.push(campaign.schedules);
                *laws.entry(violation.invariant).or_default() += 1;
            }
        }
        after.sort_unstable();
        let (found, name) = (after.len() as u64, bug.name);
        let middle = after.get(after.len() / 2).copied().unwrap_or(0);
        let most = after.last().copied().unwrap_or(0);
        let laws: Vec<String> = laws.into_iter().map(|(law, times)| format!("{law} {times}")).collect();
        say!(
            "{} {name:<24} {found:>3} of {} in {:<16} median {middle:>4}, most {most:>4} schedules ({})",
            if found == args.starts { "found " } else { "MISSED" },
            args.starts,
            home.name,
            laws.join(", ")
        );
        all &= found == args.starts;
    }
    Ok(all)
}

/// A line of progress on a terminal; otherwise nothing.
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
