//! Storage for entries, in chunks. A vector that doubles would leave up to half of a large Job's memory unused.

use super::entry::{Entry, Slot};

/// Entries per chunk: small Jobs stay small, large ones need few pointers.
const CHUNK: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Slab {
    chunks: Vec<Box<[Option<Entry>]>>,
    free: Vec<Slot>,
}

impl Slab {
    pub fn get(&self, slot: Slot) -> Option<&Entry> {
        self.chunks.get(slot as usize / CHUNK)?[slot as usize % CHUNK].as_ref()
    }

    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.chunks.get_mut(slot as usize / CHUNK)?[slot as usize % CHUNK].as_mut()
    }

    pub fn insert(&mut self, entry: Entry) -> Slot {
        if self.free.is_empty() {
            let first = self.chunks.len() * CHUNK;
            self.chunks.push((0..CHUNK).map(|_| None).collect());
            // Lowest last, so that slots are assigned in order.
            self.free.extend((first..first + CHUNK).rev().filter_map(|slot| Slot::try_from(slot).ok()));
        }
        let slot = self.free.pop().unwrap_or_default();
        self.chunks[slot as usize / CHUNK][slot as usize % CHUNK] = Some(entry);
        slot
    }

    pub fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let entry = self.chunks.get_mut(slot as usize / CHUNK)?[slot as usize % CHUNK].take()?;
        self.free.push(slot);
        Some(entry)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Slot, &Entry)> {
        self.chunks
            .iter()
            .flat_map(|chunk| chunk.iter())
            .enumerate()
            .filter_map(|(at, entry)| Some((Slot::try_from(at).ok()?, entry.as_ref()?)))
    }
}
