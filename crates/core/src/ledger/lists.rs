//! What lists of Pods have shown: which entries the current one contains, and which Pods are gone for good.

use std::collections::BTreeMap;

use crate::ids::{PodUid, Revision};

#[derive(Debug, Default)]
pub(super) struct Lists {
    /// The number of the current list of all Pods. An entry keeps the number of the last list that contained it.
    pub epoch: u32,
    /// A list of this Job's Pods alone was read at this revision: an older event does not prove that an unknown Pod
    /// exists.
    pub own_at: Revision,
    /// Pods that are gone according to a response, until the stream shows it too. Older events must not revive them.
    tombstones: BTreeMap<PodUid, Tombstone>,
}

#[derive(Clone, Copy, Debug)]
struct Tombstone {
    /// The newest known revision of the Pod.
    revision: Revision,
    /// The latest list that contained the Pod.
    seen_in: u32,
}

impl Lists {
    pub fn begin(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// The current list is complete as of `at`. Absence from it means that no more events about the Pod follow, unless
    /// the Pod was created after that list. Presence means that the list is older than the tombstone.
    pub fn end(&mut self, at: Revision) {
        self.tombstones.retain(|_, tombstone| tombstone.seen_in == self.epoch || tombstone.revision > at);
    }

    pub fn add_tombstone(&mut self, uid: PodUid, revision: Revision, seen_in: u32) {
        self.tombstones.insert(uid, Tombstone { revision, seen_in });
    }

    /// The stream shows that the Pod is gone.
    pub fn remove_tombstone(&mut self, uid: &PodUid) {
        self.tombstones.remove(uid);
    }

    /// Whether the Pod is gone, though it was observed just now, perhaps in the current list.
    pub fn has_tombstone(&mut self, uid: &PodUid, in_list: bool) -> bool {
        let Some(tombstone) = self.tombstones.get_mut(uid) else {
            return false;
        };
        if in_list {
            tombstone.seen_in = self.epoch;
        }
        true
    }

    /// For a put-back bug: what lists have shown is not remembered.
    pub fn forget(&mut self) {
        *self = Self { epoch: self.epoch, ..Self::default() };
    }

    #[cfg(test)]
    pub fn tombstones(&self) -> usize {
        self.tombstones.len()
    }
}
