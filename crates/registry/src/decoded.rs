//! The objects that were written last, decoded: most objects are written several times in a short time, and the next
//! write starts from the value that the last one stored instead of decoding its text again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use tally_store::Entry;

use crate::text::{self, metadata};

/// The most objects of one generation; there are two.
const MOST: usize = 128;
/// Larger objects are decoded each time, so that the memory in use is bounded.
const LARGEST: usize = 8 * 1024;

#[derive(Default)]
pub struct DecodedObjects(Mutex<Generations>);

/// When the young generation is full, it becomes the old one, whose objects are forgotten.
#[derive(Default)]
struct Generations {
    young: HashMap<String, (u64, Value)>,
    old: HashMap<String, (u64, Value)>,
}

impl DecodedObjects {
    /// The value of a stored object, which is no longer kept here.
    pub fn take(&self, key: &str, entry: &Entry) -> Value {
        if entry.value.len() <= LARGEST {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let found = kept.young.remove(key).or_else(|| kept.old.remove(key));
            if let Some((revision, value)) = found
                && revision == entry.revision
            {
                return value;
            }
        }
        text::parse(&entry.value)
    }

    /// Keeps the value that was just stored under this key.
    pub fn keep(&self, key: String, mut value: Value, entry: &Entry) {
        if entry.value.len() > LARGEST {
            return;
        }
        // The stored text has neither `apiVersion` nor `kind`.
        text::remove_type(&mut value);
        metadata(&mut value).insert("resourceVersion".to_owned(), entry.revision.to_string().into());
        debug_assert_eq!(value, text::parse(&entry.value), "what is kept is what a reader of the stored text gets");
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut forgotten = HashMap::new();
        if kept.young.len() >= MOST {
            forgotten = std::mem::take(&mut kept.young);
            std::mem::swap(&mut kept.old, &mut forgotten);
        }
        kept.young.insert(key, (entry.revision, value));
        // That takes time, and others need not wait for it.
        drop(kept);
        drop(forgotten);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tally_store::{Change, Expect, Store, StoreOptions, Write};

    use super::*;

    async fn write(store: &Store, name: &str, value: &Value) -> Entry {
        let expect = store.get(name).map_or(Expect::Absent, |entry| Expect::At(entry.revision));
        let change = Change::Put(text::body(value));
        store.commit(Write { key: name.to_owned(), expect, change }).await.unwrap()
    }

    #[tokio::test]
    async fn only_the_state_that_was_kept_is_returned() {
        let (store, decoded) = (Store::memory(StoreOptions::default()), DecodedObjects::default());
        let first = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"n": -1}});
        let entry = write(&store, "a", &first).await;
        decoded.keep("a".to_owned(), first.clone(), &entry);
        assert_eq!(decoded.take("a", &entry), text::parse(&entry.value));
        // Written by other means since: what is kept is not the stored state.
        decoded.keep("a".to_owned(), first, &entry);
        let entry = write(&store, "a", &json!({"metadata": {"name": "a"}, "spec": {"n": 7}})).await;
        assert_eq!(decoded.take("a", &entry)["spec"]["n"], 7);
    }

    /// What is kept must be what is read back, to the last bit of a number.
    #[tokio::test]
    async fn fractions_survive() {
        let (store, decoded) = (Store::memory(StoreOptions::default()), DecodedObjects::default());
        let value =
            json!({"metadata": {"name": "a"}, "numbers": [9.044889105823873e-279, -7.312715117751976e-237, 0.1]});
        let entry = write(&store, "a", &value).await;
        decoded.keep("a".to_owned(), value, &entry);
        assert_eq!(decoded.take("a", &entry), text::parse(&entry.value));
    }

    #[tokio::test]
    async fn old_and_large_objects_are_not_kept() {
        let (store, decoded) = (Store::memory(StoreOptions::default()), DecodedObjects::default());
        for number in 0..5 * MOST {
            let value = json!({"metadata": {"name": "a"}, "spec": {"n": number}});
            let entry = write(&store, "a", &value).await;
            decoded.keep(number.to_string(), value, &entry);
        }
        let large = json!({"metadata": {"name": "b"}, "spec": {"text": "x".repeat(LARGEST)}});
        let entry = write(&store, "b", &large).await;
        decoded.keep("b".to_owned(), large, &entry);
        let kept = decoded.0.lock().unwrap();
        assert_eq!((kept.young.len(), kept.old.len()), (MOST, MOST));
        assert!(!kept.young.contains_key("b"));
    }
}
