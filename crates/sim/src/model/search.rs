//! Breadth-first through every state of a setup, and then through the states that faultless runs pass.

use std::hash::BuildHasher;

use hashbrown::HashTable;

use super::rules::Setup;
use super::steps::{Breach, Step, after, check_at_rest, steps};
use super::world::{Packed, Pods, World};

/// About five gigabytes of states, edges and index.
const MAX_STATES: usize = 40_000_000;

/// What a search found.
pub(super) struct Found {
    pub states: usize,
    /// The longest run without faults from any state to rest. Zero where rest was not checked.
    pub longest_run: u32,
    /// States at rest.
    pub at_rest: usize,
    pub breach: Option<Counterexample>,
}

/// The shortest way to a breach, each step with the state it starts from.
pub(super) struct Counterexample {
    pub breach: Breach,
    pub path: Vec<(World, Step)>,
}

/// All states met so far. States are compared in full: equal hashes cost time, never a state.
struct Known {
    worlds: Vec<Packed>,
    parents: Vec<u32>,
    /// Half of the hash, so that growing and most misses need no look at the states; and the number of the state.
    index: HashTable<(u32, u32)>,
    hasher: foldhash::fast::FixedState,
}

/// Spreads half a hash over a whole one, as the table wants it.
fn spread(half: u32) -> u64 {
    u64::from(half).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Known {
    fn new(first: &World) -> Self {
        let mut known = Self {
            worlds: Vec::new(),
            parents: Vec::new(),
            index: HashTable::new(),
            hasher: foldhash::fast::FixedState::default(),
        };
        known.number_of(first, 0);
        known
    }

    /// The number of a state; a new one is remembered with the state it was reached from.
    fn number_of(&mut self, world: &World, parent: u32) -> u32 {
        let packed = world.pack();
        debug_assert_eq!(packed.unpack(), *world, "packing must lose nothing");
        let half = self.hasher.hash_one(packed.0) as u32;
        let same = |(known, number): &(u32, u32)| *known == half && self.worlds[*number as usize] == packed;
        if let Some((_, number)) = self.index.find(spread(half), same) {
            return *number;
        }
        let number = self.worlds.len() as u32;
        self.index.insert_unique(spread(half), (half, number), |(half, _)| spread(*half));
        self.worlds.push(packed);
        self.parents.push(parent);
        number
    }

    /// The steps from the first state to this one.
    fn path_to(&self, setup: &Setup, mut number: u32) -> Vec<(World, Step)> {
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

fn first(setup: &Setup) -> World {
    let pods = if setup.creation { 0 } else { setup.pods };
    World::new(Pods::running(pods), setup.faults)
}

fn reached(setup: &Setup, world: &World, step: Step) -> Result<World, Breach> {
    let mut next = after(setup, world, step)?;
    if setup.reduce {
        next.reduce(setup.controllers);
    }
    Ok(next)
}

/// Explores everything reachable, and stops at the first breach.
pub(super) fn search(setup: &Setup) -> Found {
    let checks_rest = !setup.at_most_once_only;
    let mut known = Known::new(&first(setup));
    let mut ordinary = Edges::default();
    let mut possible = Vec::new();
    let mut number: u32 = 0;
    let mut at_rest = 0;
    while (number as usize) < known.worlds.len() {
        let world = known.worlds[number as usize].unpack();
        let mut last = None;
        let outcome = steps(setup, &world, &mut possible).and_then(|()| {
            let mut rests = true;
            for step in &possible {
                last = Some(*step);
                let next = known.number_of(&reached(setup, &world, *step)?, number);
                if checks_rest && step.is_ordinary() {
                    ordinary.to.push(next);
                    rests = false;
                }
            }
            last = None;
            ordinary.ends.push(ordinary.to.len() as u64);
            if checks_rest && rests {
                at_rest += 1;
                check_at_rest(setup, &world)?;
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

    /// Takes away, again and again, a state that no remaining step leads to. If all go, there is no cycle, so every
    /// run of ordinary steps ends; the length of the longest is returned. Otherwise a state that is in a cycle, or
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
