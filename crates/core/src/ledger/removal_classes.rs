//! Active Pods without a request in flight, by the first criteria of the order of removal (RM-2).

use super::entry::{CLASSES, NOWHERE, Slot};

/// How many stale members a class may list, in addition to as many as it has current members.
const CLASS_SLACK: usize = 64;

/// Members that left are detected when they are reached, by their ticket: cheaper than searching for them when they
/// leave.
#[derive(Debug)]
pub(super) struct RemovalClasses {
    members: [Vec<(Slot, u32)>; CLASSES],
    sizes: [u32; CLASSES],
    next_ticket: u32,
}

impl Default for RemovalClasses {
    fn default() -> Self {
        Self { members: std::array::from_fn(|_| Vec::new()), sizes: [0; CLASSES], next_ticket: 0 }
    }
}

impl RemovalClasses {
    /// Every class in the order of removal, with its members and their tickets.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &[(Slot, u32)])> {
        (0..).zip(self.members.iter().map(Vec::as_slice))
    }

    /// Adds a member, and returns the ticket by which it is recognized.
    pub fn join(&mut self, slot: Slot, class: u8) -> u32 {
        self.next_ticket = self.next_ticket.wrapping_add(1);
        if class != NOWHERE {
            self.members[class as usize].push((slot, self.next_ticket));
            self.sizes[class as usize] += 1;
        }
        self.next_ticket
    }

    /// Returns whether the class is to be cleaned up: most of the listed members have left, so that the cost of it is
    /// constant for each of them.
    pub fn leave(&mut self, class: u8) -> bool {
        if class == NOWHERE {
            return false;
        }
        let at = class as usize;
        self.sizes[at] -= 1;
        self.members[at].len() > 2 * self.sizes[at] as usize + CLASS_SLACK
    }

    pub fn take(&mut self, class: u8) -> Vec<(Slot, u32)> {
        std::mem::take(&mut self.members[class as usize])
    }

    pub fn put_back(&mut self, class: u8, mut members: Vec<(Slot, u32)>) {
        members.shrink_to(2 * members.len() + CLASS_SLACK);
        self.members[class as usize] = members;
    }

    #[cfg(test)]
    pub fn sizes(&self) -> (u32, usize, usize) {
        let listed = self.members.iter().map(Vec::len).sum();
        (self.sizes.iter().sum(), listed, self.members.iter().map(Vec::capacity).sum())
    }
}
