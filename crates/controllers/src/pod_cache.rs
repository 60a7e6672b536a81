//! The Pods that a controller follows, and what it keeps of each.

use std::collections::HashMap;

use compact_str::CompactString;
use tally_core::ids::{PodUid, Revision};
use tally_core::pod::PodView;

/// By UID. Of two Pods with one name only the one that was shown last exists.
#[derive(Debug)]
pub(crate) struct PodCache<V> {
    pods: HashMap<PodUid, CachedPod<V>, foldhash::fast::FixedState>,
    by_name: HashMap<(CompactString, CompactString), PodUid, foldhash::fast::FixedState>,
    epoch: u32,
    listing: bool,
    synced: bool,
}

#[derive(Debug)]
pub(crate) struct CachedPod<V> {
    pub namespace: CompactString,
    pub name: CompactString,
    pub revision: Revision,
    pub kept: V,
    epoch: u32,
}

/// What is known of a Pod that the stream shows.
#[derive(Debug)]
pub(crate) enum KnownPod<'a, V> {
    Nothing,
    /// What is kept of an earlier state, for the caller to change. Its revision is the new one already.
    Earlier(&'a mut V),
    /// A newer state.
    Newer,
}

impl<V> Default for PodCache<V> {
    fn default() -> Self {
        Self { pods: HashMap::default(), by_name: HashMap::default(), epoch: 0, listing: false, synced: false }
    }
}

impl<V> PodCache<V> {
    pub fn list_begins(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.listing = true;
    }

    pub fn observe(&mut self, seen: &PodView) -> KnownPod<'_, V> {
        let Some(known) = self.pods.get_mut(&seen.uid) else { return KnownPod::Nothing };
        known.epoch = self.epoch;
        if known.revision > seen.revision {
            return KnownPod::Newer;
        }
        known.revision = seen.revision;
        KnownPod::Earlier(&mut known.kept)
    }

    /// Adds a Pod of which nothing is known. Returns another one that had its name, and therefore is gone.
    pub fn insert(&mut self, seen: &PodView, kept: V) -> Option<(PodUid, V)> {
        let (namespace, name) = (seen.namespace.clone(), seen.name.clone());
        let before = self.by_name.insert((namespace.clone(), name.clone()), seen.uid.clone());
        let pod = CachedPod { namespace, name, revision: seen.revision, kept, epoch: self.epoch };
        self.pods.insert(seen.uid.clone(), pod);
        let before = before.filter(|before| *before != seen.uid)?;
        self.pods.remove(&before).map(|pod| (before, pod.kept))
    }

    pub fn remove(&mut self, uid: &PodUid) -> Option<V> {
        let pod = self.pods.remove(uid)?;
        self.by_name.remove(&(pod.namespace, pod.name));
        Some(pod.kept)
    }

    /// What the list as of `at`, which just ended, did not contain.
    pub fn list_ends(&mut self, at: Revision) -> Vec<(PodUid, V)> {
        self.listing = false;
        self.synced = true;
        #[allow(clippy::disallowed_methods, reason = "sorted below")]
        let missing = self.pods.iter().filter(|(_, pod)| pod.epoch != self.epoch && pod.revision <= at);
        let mut missing: Vec<PodUid> = missing.map(|(uid, _)| uid.clone()).collect();
        missing.sort_unstable();
        missing.into_iter().filter_map(|uid| self.remove(&uid).map(|kept| (uid, kept))).collect()
    }

    /// Whether all existing Pods have been observed.
    pub fn is_complete(&self) -> bool {
        self.synced && !self.listing
    }

    pub fn get(&self, uid: &PodUid) -> Option<&CachedPod<V>> {
        self.pods.get(uid)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tally_value::json;

    use super::*;

    fn pod(name: &str, uid: &str, revision: u64) -> PodView {
        let metadata = json!({"namespace": "ns", "name": name, "uid": uid, "resourceVersion": revision.to_string()});
        PodView::from_tree(&json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn pods_are_known_by_uid_and_replaced_by_namesakes() {
        let mut cache = PodCache::default();
        cache.list_begins();
        for (name, uid) in [("a", "1"), ("b", "2"), ("c", "3")] {
            assert!(matches!(cache.observe(&pod(name, uid, 5)), KnownPod::Nothing));
            assert!(cache.insert(&pod(name, uid, 5), uid.to_owned()).is_none());
        }
        assert!(cache.list_ends(Revision(5)).is_empty() && cache.is_complete());
        assert!(matches!(cache.observe(&pod("a", "1", 4)), KnownPod::Newer));
        assert!(matches!(cache.observe(&pod("a", "1", 6)), KnownPod::Earlier(kept) if kept == "1"));
        assert_eq!(cache.get(&PodUid::new("1")).map(|pod| pod.revision), Some(Revision(6)));
        assert!(matches!(cache.observe(&pod("a", "4", 7)), KnownPod::Nothing), "an older namesake is not this Pod");
        let replaced = cache.insert(&pod("a", "4", 7), "4".to_owned());
        assert_eq!(replaced, Some((PodUid::new("1"), "1".to_owned())));
        assert!(cache.remove(&PodUid::new("1")).is_none(), "it was replaced");
        cache.list_begins();
        assert!(!cache.is_complete());
        cache.observe(&pod("b", "2", 1));
        let gone: Vec<_> = cache.list_ends(Revision(6)).into_iter().map(|(_, kept)| kept).collect();
        assert_eq!(gone, ["3"], "the list does not know the Pod that is newer");
        assert_eq!(cache.remove(&PodUid::new("4")), Some("4".to_owned()));
        assert!(matches!(cache.observe(&pod("a", "4", 9)), KnownPod::Nothing));
    }
}
