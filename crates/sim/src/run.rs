//! Runs of the simulator: one seed, many seeds, mutants, and shrinking of failures.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::bias::Bias;
use crate::bugs::Bug;
use crate::choices::{Choices, Tape};
use crate::counters::Counters;
use crate::oracle::Violation;
use crate::planted;
use crate::scenarios::Scenario;
use crate::setup::Setup;
use crate::world::World;

/// The result of one schedule.
pub struct Outcome {
    pub hash: u64,
    pub steps: usize,
    /// Writes of controllers that were carried out.
    pub writes: u64,
    pub counters: Counters,
    pub excess: usize,
    pub violation: Option<Violation>,
    pub tape: Tape,
    pub lines: Vec<String>,
}

fn run(
    mut choices: Choices,
    bug: Option<&'static Bug>,
    scenario: &Scenario,
    traced: bool,
    crash_after_write: Option<u64>,
) -> Outcome {
    planted::plant(bug);
    let mut setup = Setup::draw(&mut choices);
    (scenario.tune)(&mut setup);
    setup.crash_after_write = crash_after_write;
    if let Some(cluster) = &mut setup.cluster {
        cluster.draw(&mut choices);
    }
    setup.bias = Bias::draw(&mut choices, setup.preference);
    setup.bias.tune(&mut setup.weights);
    let mut world = World::new(setup, choices, traced);
    let violation = world.run().err();
    Outcome {
        hash: world.hash(),
        steps: world.steps,
        writes: world.evidence.writes,
        counters: world.counters.clone(),
        excess: world.excess(),
        violation,
        tape: world.tape().clone(),
        lines: world.lines().to_vec(),
    }
}

pub fn seed(seed: u64, bug: Option<&'static Bug>, scenario: &Scenario, traced: bool) -> Outcome {
    run(Choices::from_seed(seed), bug, scenario, traced, None)
}

/// The same schedule, with the writer crashing right after its `write`-th write.
pub fn seed_with_crash(seed: u64, scenario: &Scenario, write: u64) -> Outcome {
    run(Choices::from_seed(seed), None, scenario, false, Some(write))
}

/// Many seeds in a row, up to the first violation.
#[derive(Default)]
pub struct Campaign {
    pub schedules: u64,
    pub steps: u64,
    pub excess: usize,
    pub counters: Counters,
    pub failed: Option<(u64, Violation)>,
}

/// On all cores; what is found does not depend on how many there are.
pub fn seeds(
    range: std::ops::Range<u64>,
    bug: Option<&'static Bug>,
    scenario: &Scenario,
    mut progress: impl FnMut(&Campaign),
) -> Campaign {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut campaign = Campaign::default();
    let mut next = range.start;
    while next < range.end {
        let wave = next..range.end.min(next.saturating_add((cores * WAVE) as u64));
        next = wave.end;
        for (number, outcome) in
            wave.clone().zip(side_by_side(wave, cores, |number| seed(number, bug, scenario, false)))
        {
            campaign.schedules += 1;
            campaign.steps += outcome.steps as u64;
            campaign.excess = campaign.excess.max(outcome.excess);
            campaign.counters.merge(&outcome.counters);
            if let Some(violation) = outcome.violation {
                campaign.failed = Some((number, violation));
                return campaign;
            }
            progress(&campaign);
        }
    }
    campaign
}

/// How many schedules of each core are waited for at a time: enough that cores seldom wait for each other, and few that are
/// run in vain after a violation.
const WAVE: usize = 8;

/// The results in the order of the numbers.
fn side_by_side<T: Send>(
    numbers: std::ops::Range<u64>,
    cores: usize,
    run: impl Fn(u64) -> T + Sync,
) -> impl Iterator<Item = T> {
    let next = AtomicU64::new(numbers.start);
    let work = || {
        let mine = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < numbers.end);
        std::iter::from_fn(mine).map(|number| (number, run(number))).collect::<Vec<_>>()
    };
    let mut results: Vec<(u64, T)> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..cores).map(|_| scope.spawn(work)).collect();
        let mut results = work();
        for other in others {
            match other.join() {
                Ok(found) => results.extend(found),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        results
    });
    results.sort_unstable_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result)
}

/// How many runs shrinking may cost: enough for a short trace, without taking too long.
const SHRINK_RUNS: usize = 5_000;

/// Searches for a simpler tape that violates the same invariant: fewer steps first, then less disruptive ones.
pub fn shrink(tape: &Tape, bug: Option<&'static Bug>, scenario: &Scenario, invariant: &str) -> Tape {
    let mut best = tape.clone();
    let mut budget = SHRINK_RUNS;
    let mut fails = |candidate: &Tape| {
        budget = budget.saturating_sub(1);
        let outcome = run(Choices::from_tape(candidate.clone()), bug, scenario, false, None);
        (budget > 0).then(|| outcome.violation.is_some_and(|violation| violation.invariant == invariant))
    };
    loop {
        let before: usize = best.iter().map(|strip| 1 + strip.len()).sum();
        let mut piece = best.len() / 2;
        while piece > 0 {
            let mut end = best.len();
            while end > 1 {
                let start = end.saturating_sub(piece).max(1);
                let mut shorter = best.clone();
                shorter.drain(start..end);
                match fails(&shorter) {
                    None => return best,
                    Some(true) => best = shorter,
                    Some(false) => {}
                }
                end = start;
            }
            piece /= 2;
        }
        for step in (0..best.len()).rev() {
            for at in (0..best[step].len()).rev() {
                if best[step][at] == 0 {
                    continue;
                }
                let mut calmer = best.clone();
                calmer[step][at] = 0;
                match fails(&calmer) {
                    None => return best,
                    Some(true) => best = calmer,
                    Some(false) => {}
                }
            }
            while best[step].last() == Some(&0) {
                best[step].pop();
            }
        }
        if best.iter().map(|strip| 1 + strip.len()).sum::<usize>() == before {
            return best;
        }
    }
}

/// The trace of a tape.
pub fn replay(tape: &Tape, bug: Option<&'static Bug>, scenario: &Scenario) -> Outcome {
    run(Choices::from_tape(tape.clone()), bug, scenario, true, None)
}
