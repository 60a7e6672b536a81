//! What most controllers need: a cache of the objects they follow, and a table of their requests in flight.

use std::collections::{BTreeMap, HashMap};

use compact_str::CompactString;
use serde::Deserialize;

use tally_core::ids::Revision;
use tally_core::time::{Span, Timestamp};
use tally_value::{Value, json};

use crate::controller::{Call, Object, Outbox, Request, RequestId};

/// The metadata that nearly every controller uses. Flatten it into a view, or read it alone.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub namespace: CompactString,
    pub name: CompactString,
    pub uid: CompactString,
    pub resource_version: CompactString,
    pub deletion_timestamp: Option<CompactString>,
    pub deletion_grace_period_seconds: Option<i64>,
    pub finalizers: Vec<CompactString>,
    pub owner_references: Vec<Owner>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    pub api_version: CompactString,
    pub kind: CompactString,
    pub name: CompactString,
    pub uid: CompactString,
    pub controller: bool,
    pub block_owner_deletion: bool,
}

impl Meta {
    /// The metadata of an object whose other fields may not be readable.
    pub fn of(object: &Object) -> Option<Self> {
        #[derive(Deserialize)]
        struct WithMeta {
            metadata: Meta,
        }
        object.read().ok().map(|WithMeta { metadata }| metadata)
    }

    pub fn revision(&self) -> Revision {
        Revision(self.resource_version.parse().unwrap_or(0))
    }

    pub fn deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == name)
    }
}

/// What a controller keeps of an object.
pub trait View {
    fn meta(&self) -> &Meta;
}

impl<V: View> View for std::sync::Arc<V> {
    fn meta(&self) -> &Meta {
        (**self).meta()
    }
}

/// The object cache of one stream, by namespace and name.
#[derive(Debug)]
pub struct ObjectCache<V> {
    objects: BTreeMap<(CompactString, CompactString), (V, u32)>,
    epoch: u32,
    listing: bool,
    /// Whether a list has ever been complete: before that, absence means nothing.
    synced: bool,
}

/// The effect of an observation.
#[derive(Debug, PartialEq, Eq)]
pub enum CacheChange<V> {
    New,
    /// This was known before; it may be another object of the same name.
    Changed(V),
    /// A newer state is known.
    Stale,
}

impl<V> Default for ObjectCache<V> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), epoch: 0, listing: false, synced: false }
    }
}

impl<V: View> ObjectCache<V> {
    pub fn list_begins(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.listing = true;
    }

    /// Adds an object as the stream shows it, unless a later revision is known.
    pub fn observe(&mut self, view: V) -> CacheChange<V> {
        self.take_in(view, Some(self.epoch))
    }

    /// Adds an object from a response. This does not make it part of a list that is being read at that time.
    pub fn hear(&mut self, view: V) -> CacheChange<V> {
        self.take_in(view, None)
    }

    fn take_in(&mut self, view: V, seen_in: Option<u32>) -> CacheChange<V> {
        let key = (view.meta().namespace.clone(), view.meta().name.clone());
        match self.objects.get_mut(&key) {
            Some((known, epoch)) => {
                let same = known.meta().uid == view.meta().uid;
                let stale = same && known.meta().revision() > view.meta().revision();
                // An object with the same name and another UID is another object: that a list contained one says
                // nothing about the other.
                *epoch = seen_in.unwrap_or(if same { *epoch } else { self.epoch.wrapping_sub(1) });
                if stale { CacheChange::Stale } else { CacheChange::Changed(std::mem::replace(known, view)) }
            }
            None => {
                self.objects.insert(key, (view, seen_in.unwrap_or(self.epoch.wrapping_sub(1))));
                CacheChange::New
            }
        }
    }

    /// Removes an object, if it is still the one with that name. Returns its last known state.
    pub fn gone(&mut self, meta: &Meta) -> Option<V> {
        let key = (meta.namespace.clone(), meta.name.clone());
        if self.objects.get(&key).is_some_and(|(known, _)| known.meta().uid != meta.uid) {
            return None;
        }
        self.objects.remove(&key).map(|(view, _)| view)
    }

    /// What the list as of `at`, which just ended, did not contain. Objects newer than the list stay: they come from a
    /// response.
    pub fn list_ends(&mut self, at: Revision) -> Vec<V> {
        self.listing = false;
        self.synced = true;
        let epoch = self.epoch;
        let is_missing = |(view, seen): &(V, u32)| *seen != epoch && view.meta().revision() <= at;
        let missing: Vec<_> =
            self.objects.iter().filter(|(_, object)| is_missing(object)).map(|(key, _)| key.clone()).collect();
        missing.into_iter().filter_map(|key| self.objects.remove(&key)).map(|(view, _)| view).collect()
    }

    /// Whether all existing objects have been observed.
    pub fn is_complete(&self) -> bool {
        self.synced && !self.listing
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<&V> {
        self.objects.get(&(namespace.into(), name.into())).map(|(view, _)| view)
    }

    /// In the order of namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = &V> {
        self.objects.values().map(|(view, _)| view)
    }

    pub fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a V> {
        let from = (CompactString::from(namespace), CompactString::default());
        self.objects.range(from..).take_while(move |((of, _), _)| of == namespace).map(|(_, (view, _))| view)
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

/// Requests in flight, and the purpose of each.
#[derive(Debug)]
pub struct RequestsInFlight<P> {
    next: u64,
    pending: HashMap<RequestId, P, foldhash::fast::FixedState>,
}

impl<P> Default for RequestsInFlight<P> {
    fn default() -> Self {
        Self { next: 0, pending: HashMap::default() }
    }
}

impl<P> RequestsInFlight<P> {
    pub fn ask(&mut self, purpose: P, call: Call, out: &mut Outbox) {
        self.next += 1;
        let id = RequestId(self.next);
        self.pending.insert(id, purpose);
        out.requests.push(Request { id, call, about: 0 });
    }

    pub fn answered(&mut self, id: RequestId) -> Option<P> {
        self.pending.remove(&id)
    }

    pub fn len(&self) -> usize {
        self.pending.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}

/// When to retry after this many consecutive failures: 1/4 s, 1/2 s, 1 s ... 64 s.
pub fn retry_at(now: Timestamp, failures: u32) -> Timestamp {
    now + Span::from_millis(250 << failures.min(8))
}

/// A strategic patch of `status` that sets this condition and keeps the others, in their order. `known` are the types
/// of the existing conditions. Without an explicit order a new condition would come first.
pub fn with_condition(status: &mut Value, known: &[CompactString], condition: Value) {
    let new = condition["type"].as_str().filter(|new| !known.iter().any(|known| known == new));
    let types = known.iter().map(CompactString::as_str).chain(new);
    status["$setElementOrder/conditions"] = types.map(|kind| json!({"type": kind})).collect();
    status["conditions"] = json!([condition]);
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing(Meta);

    impl View for Thing {
        fn meta(&self) -> &Meta {
            &self.0
        }
    }

    fn thing(name: &str, uid: &str, revision: u64) -> Thing {
        let resource_version = CompactString::from(revision.to_string());
        Thing(Meta { name: name.into(), uid: uid.into(), resource_version, ..Meta::default() })
    }

    fn names(cache: &ObjectCache<Thing>) -> Vec<(String, u64)> {
        cache.iter().map(|thing| (thing.0.name.to_string(), thing.0.revision().0)).collect()
    }

    #[test]
    fn a_new_condition_comes_last_and_an_old_one_keeps_its_place() {
        for (kind, order) in [("A", ["A", "B"].as_slice()), ("C", &["A", "B", "C"])] {
            let mut status = json!({"phase": "Failed"});
            with_condition(&mut status, &["A".into(), "B".into()], json!({"type": kind, "status": "True"}));
            let order: Value = order.iter().map(|kind| json!({"type": kind})).collect();
            let conditions = json!([{"type": kind, "status": "True"}]);
            let expected = json!({"phase": "Failed", "$setElementOrder/conditions": order, "conditions": conditions});
            assert_eq!(status, expected);
        }
    }

    #[test]
    fn what_a_list_lacks_is_gone() {
        let mut cache = ObjectCache::default();
        assert!(!cache.is_complete());
        cache.list_begins();
        cache.observe(thing("a", "1", 1));
        cache.observe(thing("b", "2", 2));
        assert!(cache.list_ends(Revision(2)).is_empty() && cache.is_complete());
        cache.list_begins();
        assert!(!cache.is_complete());
        cache.observe(thing("b", "2", 2));
        assert_eq!(cache.list_ends(Revision(3)).len(), 1);
        assert_eq!(names(&cache), [("b".to_owned(), 2)]);
    }

    #[test]
    fn an_answer_in_the_middle_of_a_list_is_no_part_of_it() {
        let mut cache = ObjectCache::default();
        cache.list_begins();
        cache.observe(thing("known", "1", 1));
        cache.list_ends(Revision(2));
        cache.list_begins();
        cache.hear(thing("known", "1", 4));
        cache.hear(thing("came and went", "2", 5));
        cache.hear(thing("later", "3", 11));
        cache.observe(thing("listed", "4", 6));
        cache.hear(thing("listed", "4", 7));
        assert_eq!(cache.list_ends(Revision(10)).len(), 2);
        assert_eq!(names(&cache), [("later".to_owned(), 11), ("listed".to_owned(), 7)]);
        cache.list_begins();
        cache.observe(thing("later", "3", 11));
        cache.hear(thing("listed", "5", 12));
        assert_eq!(cache.list_ends(Revision(14)).len(), 1, "neither of the two of that name was in the list");
    }

    #[test]
    fn a_mirror_does_not_go_back_and_knows_namesakes_apart() {
        let mut cache = ObjectCache::default();
        cache.observe(thing("a", "1", 5));
        cache.observe(thing("a", "1", 4));
        assert_eq!(names(&cache), [("a".to_owned(), 5)]);
        assert!(cache.gone(&thing("a", "0", 6).0).is_none(), "an older namesake");
        cache.observe(thing("a", "2", 3));
        assert_eq!(names(&cache), [("a".to_owned(), 3)], "another object of the same name");
        assert!(cache.gone(&thing("a", "2", 9).0).is_some() && cache.is_empty());
    }
}
