//! Runs of the simulator: one seed, many seeds, mutants, and the shrinking of what fails.

use std::time::Instant;

use tally_core::mutation::{BUGS, Bug, Sound, Soundness};

use crate::choices::Choices;
use crate::counters::Counters;
use crate::oracle::Violation;
use crate::setup::Setup;
use crate::world::World;

/// Code with one known bug in it.
#[derive(Clone, Copy, Debug)]
pub struct Broken(pub Bug);

impl Soundness for Broken {
    fn has(self, bug: Bug) -> bool {
        self.0 == bug
    }
}

/// What became of one schedule.
pub struct Outcome {
    pub hash: u64,
    pub steps: usize,
    pub counters: Counters,
    pub excess: usize,
    pub violation: Option<Violation>,
    pub tape: Vec<u32>,
    pub lines: Vec<String>,
}

fn run<S: Soundness>(mut choices: Choices, soundness: S, traced: bool, tune: &dyn Fn(&mut Setup)) -> Outcome {
    let mut setup = Setup::draw(&mut choices);
    tune(&mut setup);
    let mut world = World::new(setup, choices, soundness, traced);
    let violation = world.run().err();
    Outcome {
        hash: world.hash(),
        steps: world.steps,
        counters: world.counters.clone(),
        excess: world.excess(),
        violation,
        tape: world.tape().to_vec(),
        lines: world.lines().to_vec(),
    }
}

pub fn run_seed<S: Soundness>(seed: u64, soundness: S, traced: bool, tune: &dyn Fn(&mut Setup)) -> Outcome {
    run(Choices::from_seed(seed), soundness, traced, tune)
}

pub fn run_tape<S: Soundness>(tape: &[u32], soundness: S, traced: bool, tune: &dyn Fn(&mut Setup)) -> Outcome {
    run(Choices::from_tape(tape.to_vec()), soundness, traced, tune)
}
