//! Objects that are gone according to a response, until the stream shows it too. Older events must not revive them.

use std::collections::BTreeMap;

use crate::ids::Revision;

/// The owner numbers its lists: `epoch` is the number of the current one.
#[derive(Debug)]
pub struct Tombstones<K> {
    by_uid: BTreeMap<K, Tombstone>,
}

#[derive(Clone, Copy, Debug)]
struct Tombstone {
    /// The newest known revision of the object.
    revision: Revision,
    /// The latest list that contained the object.
    seen_in: u32,
}

impl<K> Default for Tombstones<K> {
    fn default() -> Self {
        Self { by_uid: BTreeMap::new() }
    }
}

impl<K: Ord> Tombstones<K> {
    /// A response shows that the object is gone.
    pub fn add(&mut self, uid: K, revision: Revision, seen_in: u32) {
        self.by_uid.insert(uid, Tombstone { revision, seen_in });
    }

    /// The stream shows that the object is gone.
    pub fn remove(&mut self, uid: &K) {
        self.by_uid.remove(uid);
    }

    pub fn contains(&self, uid: &K) -> bool {
        self.by_uid.contains_key(uid)
    }

    /// The current list contains the object. Returns whether the object is gone nevertheless.
    pub fn listed(&mut self, uid: &K, epoch: u32) -> bool {
        let Some(tombstone) = self.by_uid.get_mut(uid) else {
            return false;
        };
        tombstone.seen_in = epoch;
        true
    }

    /// The current list is complete as of `at`. Absence from it means that no more events about the object follow, unless
    /// the object was created after that list. Presence means that the list is older than the tombstone.
    pub fn list_ends(&mut self, epoch: u32, at: Revision) {
        self.by_uid.retain(|_, tombstone| tombstone.seen_in == epoch || tombstone.revision > at);
    }

    pub fn len(&self) -> usize {
        self.by_uid.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_uid.is_empty()
    }
}
