//! Breadth-first search through every state of a setup, and then through the states of runs without faults.

use std::hash::BuildHasher;

use super::rules::{Grain, Setup};
use super::steps::{Breach, Step, after, check_at_rest, steps};
use super::world::{ModelState, Packed, Pods};

/// About five gigabytes of states, steps and index.
const MAX_STATES: usize = 40_000_000;

/// What a search found.
pub(super) struct Found {
    pub states: usize,
    /// The longest run without faults from any state to rest. Zero if rest was not checked.
    pub longest_run: u32,
    /// The number of states at rest.
    pub at_rest: usize,
    pub breach: Option<Counterexample>,
}

/// The shortest path to a violation, each step with the state it starts from.
pub(super) struct Counterexample {
    pub breach: Breach,
    pub path: Vec<(ModelState, Step)>,
}

fn first(setup: &Setup) -> ModelState {
    let pods = match (setup.creation, setup.adoption) {
        (true, _) => Pods::default(),
        (false, true) => Pods::loose(setup.pods),
        (false, false) => Pods::running(setup.pods),
    };
    ModelState::new(pods, setup.faults)
}

fn reached(setup: &Setup, world: &ModelState, step: Step) -> Result<ModelState, Breach> {
    let mut next = after(setup, world, step)?;
    if setup.reduce {
        next.reduce(setup.controllers);
    }
    Ok(next)
}

/// Explores everything reachable, and stops at the first violation. Every step is passed to `watch`.
pub(super) fn search(setup: &Setup, mut watch: impl FnMut(Step)) -> Found {
    let orderly = setup.conditional && setup.write_ahead;
    assert!(orderly || setup.grain == Grain::Fine, "coarse steps need conditional writes, and release after record");
    let checks_rest = !setup.at_most_once_only;
    let mut known = KnownStates::new();
    let mut ordinary = Edges::default();
    let mut possible = Vec::new();
    let mut batch = vec![Lookup::new(&first(setup))];
    known.number_all(&mut batch, 0);
    let mut number: u32 = 0;
    let mut at_rest = 0;
    while (number as usize) < known.worlds.len() {
        let world = known.worlds[number as usize].unpack();
        let mut last = None;
        let outcome = steps(setup, &world, &mut possible).and_then(|()| {
            batch.clear();
            for step in &possible {
                last = Some(*step);
                watch(*step);
                batch.push(Lookup::new(&reached(setup, &world, *step)?));
            }
            last = None;
            known.number_all(&mut batch, number);
            if checks_rest {
                let taken = possible.iter().zip(&batch).filter(|(step, _)| step.is_ordinary());
                ordinary.to.extend(taken.map(|(_, lookup)| lookup.number));
                ordinary.ends.push(ordinary.to.len() as u64);
                if ordinary.of(number as usize).is_empty() {
                    at_rest += 1;
                    check_at_rest(setup, &world)?;
                }
            }
            if known.worlds.len() > MAX_STATES { Err(Breach::TooManyStates) } else { Ok(()) }
        });
        if let Err(breach) = outcome {
            let mut path = known.path_to(setup, number);
            path.extend(last.map(|step| (world, step)));
            let breach = Some(Counterexample { breach, path });
            return Found { states: known.worlds.len(), longest_run: 0, at_rest, breach };
        }
        number += 1;
    }
    let states = known.worlds.len();
    if !checks_rest {
        return Found { states, longest_run: 0, at_rest, breach: None };
    }
    match ordinary.longest_run() {
        Ok(longest_run) => Found { states, longest_run, at_rest, breach: None },
        Err(number) => {
            let breach = Some(Counterexample { breach: Breach::Endless, path: known.path_to(setup, number) });
            Found { states, longest_run: 0, at_rest, breach }
        }
    }
}

/// All states found so far. States are compared in full: equal hashes cost time, never a state.
struct KnownStates {
    worlds: Vec<Packed>,
    parents: Vec<u32>,
    /// A table with linear probing, at most half full: the upper half is the hash, the lower half the number of the
    /// state plus one.
    slots: Vec<u64>,
}

/// A state whose number is looked up.
struct Lookup {
    world: Packed,
    hash: u32,
    number: u32,
}

const NOT_FOUND: u32 = u32::MAX;

impl Lookup {
    fn new(world: &ModelState) -> Self {
        let packed = world.pack();
        debug_assert_eq!(packed.unpack(), *world, "packing must lose nothing");
        let hash = foldhash::fast::FixedState::default().hash_one(packed.0) as u32;
        Self { world: packed, hash, number: NOT_FOUND }
    }
}

fn slot(hash: u32, number: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(number + 1)
}

impl KnownStates {
    fn new() -> Self {
        Self { worlds: Vec::new(), parents: Vec::new(), slots: vec![0; 1 << 10] }
    }

    /// Where the lookup of a hash begins.
    fn home(&self, hash: u32) -> usize {
        // Fibonacci hashing: the upper bits of the product are spread well even if those of the hash are not.
        let spread = u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (spread >> (64 - self.slots.len().trailing_zeros())) as usize
    }

    /// The number of the state in this slot, if it is the one looked up.
    fn confirmed(&self, slot: u64, lookup: &Lookup) -> Option<u32> {
        if slot >> 32 != u64::from(lookup.hash) || slot as u32 == 0 {
            return None;
        }
        let number = slot as u32 - 1;
        (self.worlds[number as usize] == lookup.world).then_some(number)
    }

    /// Assigns numbers to states; new ones are stored with the state they were reached from. Most of the time of a
    /// search is spent waiting for memory, so the first lookups of a whole batch are made together.
    fn number_all(&mut self, batch: &mut [Lookup], parent: u32) {
        while self.slots.len() < 2 * (self.worlds.len() + batch.len()) {
            self.grow();
        }
        let mut homes = [0; 64];
        for chunk in batch.chunks_mut(homes.len()) {
            for (home, lookup) in homes.iter_mut().zip(chunk.iter()) {
                *home = self.slots[self.home(lookup.hash)];
            }
            for (home, lookup) in homes.iter().zip(chunk.iter_mut()) {
                lookup.number = self.confirmed(*home, lookup).unwrap_or(NOT_FOUND);
            }
        }
        for lookup in batch.iter_mut().filter(|lookup| lookup.number == NOT_FOUND) {
            lookup.number = self.number_of(lookup, parent);
        }
    }

    fn number_of(&mut self, lookup: &Lookup, parent: u32) -> u32 {
        let mut at = self.home(lookup.hash);
        while self.slots[at] != 0 {
            if let Some(number) = self.confirmed(self.slots[at], lookup) {
                return number;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        let number = self.worlds.len() as u32;
        self.slots[at] = slot(lookup.hash, number);
        self.worlds.push(lookup.world);
        self.parents.push(parent);
        number
    }

    fn grow(&mut self) {
        let twice = vec![0; 2 * self.slots.len()];
        let old = std::mem::replace(&mut self.slots, twice);
        for slot in old.into_iter().filter(|slot| *slot != 0) {
            let mut at = self.home((slot >> 32) as u32);
            while self.slots[at] != 0 {
                at = (at + 1) & (self.slots.len() - 1);
            }
            self.slots[at] = slot;
        }
    }

    /// The steps from the first state to this one.
    fn path_to(&self, setup: &Setup, mut number: u32) -> Vec<(ModelState, Step)> {
        let mut path = Vec::new();
        let mut possible = Vec::new();
        while number != 0 {
            let parent = self.parents[number as usize];
            let (from, to) = (self.worlds[parent as usize].unpack(), self.worlds[number as usize].unpack());
            let found = steps(setup, &from, &mut possible).is_ok();
            let step = possible.iter().find(|step| found && reached(setup, &from, **step).is_ok_and(|next| next == to));
            path.extend(step.map(|step| (from, *step)));
            number = parent;
        }
        path.reverse();
        path
    }
}

/// The ordinary steps, by the number of the state they start from.
#[derive(Default)]
struct Edges {
    to: Vec<u32>,
    ends: Vec<u64>,
}

impl Edges {
    fn of(&self, number: usize) -> &[u32] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.to[start as usize..self.ends[number] as usize]
    }

    /// Repeatedly removes a state that no remaining step leads to. If all are removed, there is no cycle, so every run
    /// of ordinary steps ends; the length of the longest is returned. Otherwise returns a state that is in a cycle, or
    /// comes after one.
    fn longest_run(&self) -> Result<u32, u32> {
        let states = self.ends.len();
        let mut arrivals = vec![0_u32; states];
        for to in &self.to {
            arrivals[*to as usize] += 1;
        }
        let mut depth = vec![0_u32; states];
        let mut free: Vec<u32> = (0..states as u32).filter(|number| arrivals[*number as usize] == 0).collect();
        let mut taken = 0;
        let mut longest = 0;
        while let Some(number) = free.pop() {
            taken += 1;
            let behind = depth[number as usize];
            longest = longest.max(behind);
            for to in self.of(number as usize) {
                let to = *to as usize;
                depth[to] = depth[to].max(behind + 1);
                arrivals[to] -= 1;
                if arrivals[to] == 0 {
                    free.push(to as u32);
                }
            }
        }
        if taken == states {
            return Ok(longest);
        }
        Err((0..states as u32).find(|number| arrivals[*number as usize] > 0).unwrap_or(0))
    }
}
