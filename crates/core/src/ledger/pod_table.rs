//! The entries of a ledger, found by slot, by UID and by name.

use hashbrown::HashTable;

use super::entry::{Entry, Slot};
use crate::ids::PodUid;
use crate::names::table_hash;

#[derive(Debug, Default)]
pub(super) struct PodTable {
    entries: Slab,
    by_uid: HashTable<Slot>,
    by_name: HashTable<Slot>,
    next_serial: u32,
}

impl PodTable {
    pub fn len(&self) -> usize {
        self.by_uid.len()
    }

    pub fn find(&self, uid: &PodUid) -> Option<Slot> {
        let is_it = |slot: &Slot| self.get(*slot).is_some_and(|entry| entry.uid == *uid);
        self.by_uid.find(table_hash(uid), is_it).copied()
    }

    pub fn has_name(&self, name: &str) -> bool {
        let is_it = |slot: &Slot| self.get(*slot).is_some_and(|entry| entry.name == name);
        self.by_name.find(table_hash(name), is_it).is_some()
    }

    pub fn get(&self, slot: Slot) -> Option<&Entry> {
        self.entries.get(slot)
    }

    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.entries.get_mut(slot)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Slot, &Entry)> {
        self.entries.iter()
    }

    /// Adds an entry, and gives it the serial number that distinguishes it from others in the same slot.
    pub fn insert(&mut self, mut entry: Entry) -> Slot {
        entry.serial = self.next_serial;
        self.next_serial = self.next_serial.wrapping_add(1);
        let (by_uid, by_name) = (entry.tie, table_hash(entry.name.as_str()));
        let slot = self.entries.insert(entry);
        let entries = &self.entries;
        self.by_uid.insert_unique(by_uid, slot, |slot| entries.get(*slot).map_or(0, |entry| entry.tie));
        self.by_name
            .insert_unique(by_name, slot, |slot| entries.get(*slot).map_or(0, |entry| table_hash(entry.name.as_str())));
        slot
    }

    pub fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let entry = self.entries.remove(slot)?;
        let tables = [(&mut self.by_uid, entry.tie), (&mut self.by_name, table_hash(entry.name.as_str()))];
        for (table, hash) in tables {
            if let Ok(found) = table.find_entry(hash, |candidate| *candidate == slot) {
                found.remove();
            }
        }
        Some(entry)
    }
}

/// Entries per chunk: small Jobs stay small, large ones need few pointers.
const CHUNK: usize = 64;

/// Storage in chunks. A vector that doubles would leave up to half of a large Job's memory unused.
#[derive(Debug, Default)]
struct Slab {
    chunks: Vec<Box<[Option<Entry>]>>,
    free: Vec<Slot>,
}

impl Slab {
    fn get(&self, slot: Slot) -> Option<&Entry> {
        self.chunks.get(slot as usize / CHUNK)?[slot as usize % CHUNK].as_ref()
    }

    fn get_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.chunks.get_mut(slot as usize / CHUNK)?[slot as usize % CHUNK].as_mut()
    }

    fn insert(&mut self, entry: Entry) -> Slot {
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

    fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let entry = self.chunks.get_mut(slot as usize / CHUNK)?[slot as usize % CHUNK].take()?;
        self.free.push(slot);
        Some(entry)
    }

    fn iter(&self) -> impl Iterator<Item = (Slot, &Entry)> {
        self.chunks
            .iter()
            .flat_map(|chunk| chunk.iter())
            .enumerate()
            .filter_map(|(at, entry)| Some((Slot::try_from(at).ok()?, entry.as_ref()?)))
    }
}
