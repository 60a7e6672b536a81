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

/// Which Pod it is. In the order of namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodRef {
    pub namespace: CompactString,
    pub name: CompactString,
    pub uid: PodUid,
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
    Earlier(EarlierPod<'a, V>),
    /// A newer state.
    Newer,
}

/// An earlier state of a Pod. It stays known as it is, with its revision, unless the caller says what the Pod is now.
#[derive(Debug)]
pub(crate) struct EarlierPod<'a, V> {
    pod: &'a mut CachedPod<V>,
    revision: Revision,
}

impl<V> EarlierPod<'_, V> {
    pub fn kept(&self) -> &V {
        &self.pod.kept
    }

    /// What is kept of it is the same at the new revision.
    pub fn stays(self) {
        self.pod.revision = self.revision;
    }

    /// Returns what was kept before.
    pub fn replace(self, kept: V) -> V {
        self.pod.revision = self.revision;
        std::mem::replace(&mut self.pod.kept, kept)
    }
}

impl PodRef {
    pub fn of(seen: &PodView) -> Self {
        Self { namespace: seen.namespace.clone(), name: seen.name.clone(), uid: seen.uid.clone() }
    }
}

impl<V> CachedPod<V> {
    pub fn pod_ref(&self, uid: &PodUid) -> PodRef {
        PodRef { namespace: self.namespace.clone(), name: self.name.clone(), uid: uid.clone() }
    }
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

    /// The Pod exists, and is part of the list that is being read.
    pub fn observe(&mut self, seen: &PodView) -> KnownPod<'_, V> {
        let Some(pod) = self.pods.get_mut(&seen.uid) else { return KnownPod::Nothing };
        pod.epoch = self.epoch;
        if pod.revision > seen.revision {
            return KnownPod::Newer;
        }
        KnownPod::Earlier(EarlierPod { pod, revision: seen.revision })
    }

    /// Adds a Pod of which nothing is known. Returns another one that had its name, and therefore is gone.
    pub fn insert(&mut self, seen: &PodView, kept: V) -> Option<(PodUid, CachedPod<V>)> {
        let (namespace, name) = (seen.namespace.clone(), seen.name.clone());
        let before = self.by_name.insert((namespace.clone(), name.clone()), seen.uid.clone());
        let pod = CachedPod { namespace, name, revision: seen.revision, kept, epoch: self.epoch };
        self.pods.insert(seen.uid.clone(), pod);
        let before = before.filter(|before| *before != seen.uid)?;
        self.pods.remove(&before).map(|pod| (before, pod))
    }

    pub fn remove(&mut self, uid: &PodUid) -> Option<CachedPod<V>> {
        let mut pod = self.pods.remove(uid)?;
        let key = (pod.namespace, pod.name);
        self.by_name.remove(&key);
        (pod.namespace, pod.name) = key;
        Some(pod)
    }

    /// What the list as of `at`, which just ended, did not contain.
    pub fn list_ends(&mut self, at: Revision) -> Vec<(PodUid, CachedPod<V>)> {
        self.listing = false;
        self.synced = true;
        #[allow(clippy::disallowed_methods, reason = "sorted below")]
        let missing = self.pods.iter().filter(|(_, pod)| pod.epoch != self.epoch && pod.revision <= at);
        let mut missing: Vec<PodUid> = missing.map(|(uid, _)| uid.clone()).collect();
        missing.sort_unstable();
        missing.into_iter().filter_map(|uid| self.remove(&uid).map(|pod| (uid, pod))).collect()
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

    fn revision_of(cache: &PodCache<String>, uid: &str) -> Option<u64> {
        cache.get(&PodUid::new(uid)).map(|pod| pod.revision.0)
    }

    #[test]
    fn a_revision_is_known_together_with_what_is_kept_of_it() {
        let mut cache = PodCache::default();
        cache.list_begins();
        cache.insert(&pod("a", "1", 5), "5".to_owned());
        cache.list_ends(Revision(5));
        cache.list_begins();
        // The caller cannot read it.
        assert!(matches!(cache.observe(&pod("a", "1", 6)), KnownPod::Earlier(earlier) if earlier.kept() == "5"));
        assert_eq!(revision_of(&cache, "1"), Some(5));
        assert!(cache.list_ends(Revision(6)).is_empty(), "it was in the list nevertheless");
        let KnownPod::Earlier(earlier) = cache.observe(&pod("a", "1", 7)) else { panic!() };
        assert_eq!(earlier.replace("7".to_owned()), "5");
        assert_eq!(revision_of(&cache, "1"), Some(7));
        let KnownPod::Earlier(earlier) = cache.observe(&pod("a", "1", 8)) else { panic!() };
        earlier.stays();
        assert_eq!(revision_of(&cache, "1"), Some(8));
        assert_eq!(cache.get(&PodUid::new("1")).unwrap().kept, "7");
        assert!(matches!(cache.observe(&pod("a", "1", 7)), KnownPod::Newer));
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
        assert!(matches!(cache.observe(&pod("a", "1", 6)), KnownPod::Earlier(earlier) if earlier.kept() == "1"));
        assert!(matches!(cache.observe(&pod("a", "4", 7)), KnownPod::Nothing), "an older namesake is not this Pod");
        let replaced = cache.insert(&pod("a", "4", 7), "4".to_owned());
        assert!(replaced.is_some_and(|(uid, pod)| (uid, pod.kept) == (PodUid::new("1"), "1".to_owned())));
        assert!(cache.remove(&PodUid::new("1")).is_none(), "it was replaced");
        cache.list_begins();
        assert!(!cache.is_complete());
        cache.observe(&pod("b", "2", 1));
        let gone: Vec<_> = cache.list_ends(Revision(6)).into_iter().map(|(_, pod)| pod.kept).collect();
        assert_eq!(gone, ["3"], "the list does not know the Pod that is newer");
        let removed = cache.remove(&PodUid::new("4"));
        assert!(removed.is_some_and(|pod| (&*pod.namespace, &*pod.name, &*pod.kept) == ("ns", "a", "4")));
        assert!(matches!(cache.observe(&pod("a", "4", 9)), KnownPod::Nothing));
    }
}
