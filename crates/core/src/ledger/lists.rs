//! What lists of Pods have shown: which entries the current one contains, and which Pods are gone for good.

use crate::ids::{PodUid, Revision};
use crate::tombstones::Tombstones;

#[derive(Debug, Default)]
pub(super) struct Lists {
    /// The number of the current list of all Pods. An entry keeps the number of the last list that contained it.
    pub epoch: u32,
    /// A list of this Job's Pods alone was read at this revision: an older event does not prove that an unknown Pod
    /// exists.
    pub own_at: Revision,
    /// Pods that are gone according to a response.
    tombstones: Tombstones<PodUid>,
}

impl Lists {
    pub fn begin(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    pub fn end(&mut self, at: Revision) {
        self.tombstones.list_ends(self.epoch, at);
    }

    pub fn add_tombstone(&mut self, uid: PodUid, revision: Revision, seen_in: u32) {
        self.tombstones.add(uid, revision, seen_in);
    }

    /// The stream shows that the Pod is gone.
    pub fn remove_tombstone(&mut self, uid: &PodUid) {
        self.tombstones.remove(uid);
    }

    /// Whether the Pod is gone, though it was observed just now, perhaps in the current list.
    pub fn has_tombstone(&mut self, uid: &PodUid, in_list: bool) -> bool {
        if in_list { self.tombstones.listed(uid, self.epoch) } else { self.tombstones.contains(uid) }
    }

    #[cfg(test)]
    pub fn tombstones(&self) -> usize {
        self.tombstones.len()
    }
}
