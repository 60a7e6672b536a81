//! Every decision of a run, drawn from a seed or replayed from a tape.
//!
//! A run is a function of its tape: one strip of numbers for the setup, and one for each step. Shrinking removes steps
//! and makes numbers smaller; numbers beyond the end of a strip are 0, and 0 is always the least disruptive choice.

pub type Tape = Vec<Vec<u32>>;

#[derive(Clone, Debug)]
pub struct Choices {
    rng: fastrand::Rng,
    tape: Tape,
    /// When replaying: the position in the current strip.
    replay: Option<usize>,
    strip: usize,
}

impl Choices {
    pub fn from_seed(seed: u64) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), tape: vec![Vec::new()], replay: None, strip: 0 }
    }

    pub fn from_tape(tape: Tape) -> Self {
        Self { rng: fastrand::Rng::with_seed(0), tape, replay: Some(0), strip: 0 }
    }

    pub fn tape(&self) -> &Tape {
        &self.tape
    }

    /// How many steps the replayed tape has.
    pub fn steps(&self) -> Option<usize> {
        self.replay.map(|_| self.tape.len().saturating_sub(1))
    }

    /// Begins the next step.
    pub fn next_strip(&mut self) {
        self.strip += 1;
        match &mut self.replay {
            Some(at) => *at = 0,
            None => self.tape.push(Vec::new()),
        }
    }

    /// A number below `limit`; 0 if there is no choice.
    pub fn below(&mut self, limit: usize) -> usize {
        if limit <= 1 {
            return 0;
        }
        match &mut self.replay {
            Some(at) => {
                let value = self.tape.get(self.strip).and_then(|strip| strip.get(*at)).copied().unwrap_or(0);
                *at += 1;
                value as usize % limit
            }
            None => {
                let value = self.rng.u32(..limit as u32);
                self.tape[self.strip].push(value);
                value as usize
            }
        }
    }

    /// True once in `of` times.
    pub fn one_in(&mut self, of: usize) -> bool {
        of > 0 && self.below(of) == of - 1
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// An index, with the given weights. The first one with a weight is the least disruptive one.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let total: u32 = weights.iter().sum();
        let mut left = self.below(total as usize) as u32;
        for (at, weight) in weights.iter().enumerate() {
            if left < *weight {
                return at;
            }
            left -= weight;
        }
        0
    }
}
