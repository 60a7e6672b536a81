//! The stored form of states, eight words each.

use super::{Books, Controller, Event, Faults, ModelState, Pods, Status, Write};

/// The stored form of a state: one cache line, so that a comparison costs one memory access.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(in crate::model) struct Packed(pub [u64; 8]);

impl PartialEq for Packed {
    fn eq(&self, other: &Self) -> bool {
        // All eight words at once: most comparisons are of equal states, and most of the time is spent here.
        self.0.iter().zip(&other.0).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
    }
}

fn join<const N: usize>(parts: [u16; N]) -> u64 {
    parts.iter().rev().fold(0, |word, part| word << 16 | u64::from(*part))
}

/// Fields of one word, lowest bits first.
struct Fields(u64);

impl Fields {
    fn take(&mut self, bits: u32) -> u16 {
        let value = self.0 & ((1 << bits) - 1);
        self.0 >>= bits;
        value as u16
    }

    fn byte(&mut self, bits: u32) -> u8 {
        self.take(bits) as u8
    }
}

fn build(fields: &[(u16, u32)]) -> u64 {
    fields.iter().rev().fold(0, |word, (value, bits)| {
        debug_assert!(u32::from(*value) < 1 << bits, "a field outgrew its bits");
        word << bits | u64::from(*value)
    })
}

impl Controller {
    fn pack(&self) -> u64 {
        let (kind, of) = match self.status {
            Status::Idle => (0, 0),
            Status::Sent(write) => (1, write.0),
            Status::Stored(revision) => (2, revision.into()),
            Status::Refreshing => (3, 0),
        };
        build(&[
            (self.job_at.into(), 5),
            (self.gate_at.into(), 5),
            (self.gate_before.into(), 5),
            (self.pods_at.into(), 5),
            (self.released.into(), 4),
            (self.releasing.into(), 4),
            (self.release_done.into(), 4),
            (kind, 2),
            (of, 16),
        ])
    }

    fn unpack(word: u64) -> Self {
        let mut fields = Fields(word);
        Self {
            job_at: fields.byte(5),
            gate_at: fields.byte(5),
            gate_before: fields.byte(5),
            pods_at: fields.byte(5),
            released: fields.byte(4),
            releasing: fields.byte(4),
            release_done: fields.byte(4),
            status: match (fields.take(2), fields.take(16)) {
                (0, _) => Status::Idle,
                (1, write) => Status::Sent(Write(write)),
                (2, revision) => Status::Stored(revision as u8),
                _ => Status::Refreshing,
            },
        }
    }
}

impl ModelState {
    pub fn pack(&self) -> Packed {
        let event = |index: usize| self.events[index].0;
        let events = |from: usize| join([event(from), event(from + 1), event(from + 2), event(from + 3)]);
        let [first, second] = &self.controllers;
        let faults = &self.faults;
        Packed([
            events(0),
            events(4),
            events(8),
            events(12),
            join([event(16), event(17), self.late_writes[0].0, self.late_writes[1].0]),
            first.pack(),
            second.pack(),
            build(&[
                (self.head.into(), 5),
                (self.first_pods.0, 12),
                (self.first_books.0, 12),
                (self.late_releases.into(), 4),
                (self.tallied.into(), 4),
                (self.ever_recorded.into(), 4),
                (faults.crashes.into(), 3),
                (faults.losses.into(), 3),
                (faults.edits.into(), 3),
                (faults.flips.into(), 3),
                (faults.rewinds.into(), 3),
            ]),
        ])
    }
}

impl Packed {
    pub fn unpack(&self) -> ModelState {
        let Packed(words) = self;
        let part = |index: usize| (words[index / 4] >> (16 * (index % 4))) as u16;
        let mut fields = Fields(words[7]);
        ModelState {
            events: std::array::from_fn(|index| Event(part(index))),
            late_writes: [Write(part(18)), Write(part(19))],
            controllers: [Controller::unpack(words[5]), Controller::unpack(words[6])],
            head: fields.byte(5),
            first_pods: Pods(fields.take(12)),
            first_books: Books(fields.take(12)),
            late_releases: fields.byte(4),
            tallied: fields.byte(4),
            ever_recorded: fields.byte(4),
            faults: Faults {
                crashes: fields.byte(3),
                losses: fields.byte(3),
                edits: fields.byte(3),
                flips: fields.byte(3),
                rewinds: fields.byte(3),
            },
        }
    }
}
