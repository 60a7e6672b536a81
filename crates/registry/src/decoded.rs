//! The trees of the objects that were written last. Most objects are written several times in a short time, and read by all
//! controllers: the next write, and filters of watches, start from the tree that was encoded instead of decoding its text.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use tally_store::{Body, Entry, Handle, Stored};
use tally_value::{SharedView, Value};

use crate::text::{self, PlacedPart, metadata};

/// The most objects that are kept. Their trees share most of what they contain.
const MOST: usize = 1024;
/// Larger objects are decoded each time, so that the memory in use is bounded.
const LARGEST: usize = 8 * 1024;

/// An object as it was encoded, for the readers of its entry.
#[derive(Debug)]
pub struct Tree {
    object: Value,
    /// With its revision, which is known once it is written.
    stamped: OnceLock<Value>,
    view: SharedView,
    /// Where its parts are in the text.
    parts: Vec<PlacedPart>,
}

impl Tree {
    fn stamped(&self, revision: u64) -> &Value {
        self.stamped.get_or_init(|| {
            let mut object = self.object.clone();
            // The stored text has neither `apiVersion` nor `kind`.
            text::remove_type(&mut object);
            metadata(&mut object).insert("resourceVersion", revision.to_string().into());
            object
        })
    }
}

/// The text of an object that is about to be written, and its tree, to be kept once it is. The text is for one write: a tree
/// has one revision. What is the same part as in the object `before` is copied from its text.
pub fn body(object: &Value, before: Option<&Stored>) -> (Body, Option<Arc<Tree>>) {
    let before = before.and_then(|entry| Some((entry, kept(entry)?)));
    let known = |in_metadata: bool, name: &str, value: &Value| {
        let (entry, tree) = before.as_ref()?;
        let part = tree.parts.iter().find(|part| part.in_metadata == in_metadata && part.name == name)?;
        let within = if in_metadata { tree.object.get("metadata")? } else { &tree.object };
        if within.get(name)?.is_same(value) { part.text(&entry.value) } else { None }
    };
    let (body, parts) = text::body_from(object, known);
    if body.bytes.len() > LARGEST {
        return (body, None);
    }
    let tree = Arc::new(Tree { object: object.clone(), stamped: OnceLock::new(), view: SharedView::default(), parts });
    let shared: Arc<dyn Any + Send + Sync> = tree.clone();
    let handle: Handle = Arc::downgrade(&shared);
    (Body { handle: Some(handle), ..body }, Some(tree))
}

/// The tree of an entry, if it is still kept.
pub fn tree(entry: &Stored) -> Option<Value> {
    Some(kept(entry)?.stamped(entry.revision).clone())
}

/// The same, and what readers share.
pub fn shared(entry: &Stored) -> Option<(Value, SharedView)> {
    let kept = kept(entry)?;
    Some((kept.stamped(entry.revision).clone(), kept.view.clone()))
}

fn kept(entry: &Stored) -> Option<Arc<Tree>> {
    entry.handle.as_ref().and_then(Weak::upgrade)?.downcast::<Tree>().ok()
}

pub fn value(entry: &Stored) -> Value {
    tree(entry).unwrap_or_else(|| text::parse(&entry.value))
}

/// Keeps what was written last.
#[derive(Default)]
pub struct DecodedObjects(Mutex<VecDeque<Arc<Tree>>>);

impl DecodedObjects {
    pub fn keep(&self, written: Option<Arc<Tree>>, entry: &Entry) {
        let Some(written) = written else { return };
        debug_assert_eq!(
            *written.stamped(entry.revision),
            text::parse(&entry.value),
            "what is kept is what a reader of the stored text gets"
        );
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let forgotten = if kept.len() >= MOST { kept.pop_front() } else { None };
        kept.push_back(written);
        // That takes time, and others need not wait for it.
        drop(kept);
        drop(forgotten);
    }
}

#[cfg(test)]
mod tests {
    use tally_store::{Change, Expect, Store, StoreOptions, Write};
    use tally_value::json;

    use super::*;

    async fn write(store: &Store, name: &str, body: Body) -> Entry {
        let expect = store.get(name).map_or(Expect::Absent, |entry| Expect::At(entry.revision));
        store.commit(Write { key: name.to_owned(), expect, change: Change::Put(body) }).await.unwrap()
    }

    #[tokio::test]
    async fn an_entry_has_the_tree_of_its_own_write() {
        let (store, decoded) = (Store::memory(StoreOptions::default()), DecodedObjects::default());
        let first = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"n": -1}});
        let (text, kept) = body(&first, None);
        let one = write(&store, "a", text).await;
        decoded.keep(kept, &one);
        assert_eq!(tree(&one).unwrap(), text::parse(&one.value));
        assert!(tree(&one).unwrap()["spec"].is_same(&first["spec"]), "the tree that was encoded");
        // Written by other means since.
        let other = write(&store, "a", text::body(&json!({"metadata": {"name": "a"}, "spec": {"n": 7}}))).await;
        assert_eq!((tree(&other), value(&other)["spec"]["n"].as_i64()), (None, Some(7)));
        assert_eq!(value(&one)["spec"]["n"], -1);
    }

    #[tokio::test]
    async fn what_did_not_change_is_copied_from_the_text_before() {
        let (store, decoded) = (Store::memory(StoreOptions::default()), DecodedObjects::default());
        let first = json!({
            "metadata": {"name": "a", "labels": {"é": "\"1\""}, "finalizers": ["f"], "annotations": {}},
            "spec": {"list": [1, {"deep": "x"}], "empty": {}}, "status": {"phase": "Pending"}, "type": "text",
        });
        let (text, kept) = body(&first, None);
        let mut entry = write(&store, "a", text).await;
        decoded.keep(kept, &entry);
        for step in 0..4 {
            let mut next = value(&entry);
            match step {
                0 => next["status"]["phase"] = "Running".into(),
                1 => drop(metadata(&mut next).remove("finalizers")),
                2 => next["spec"]["list"] = json!([]),
                _ => next["metadata"]["labels"]["more"] = "y".into(),
            }
            let plain = text::body(&next);
            let (text, kept) = body(&next, Some(&entry));
            assert_eq!(text.bytes, plain.bytes, "step {step}");
            entry = write(&store, "a", text).await;
            decoded.keep(kept, &entry);
        }
    }

    /// What is kept must be what is read back, to the last bit of a number.
    #[tokio::test]
    async fn fractions_survive() {
        let (store, decoded) = (Store::memory(StoreOptions::default()), DecodedObjects::default());
        let numbers =
            json!({"metadata": {"name": "a"}, "numbers": [9.044889105823873e-279, -7.312715117751976e-237, 0.1]});
        let (text, kept) = body(&numbers, None);
        let entry = write(&store, "a", text).await;
        decoded.keep(kept, &entry);
        assert_eq!(tree(&entry).unwrap(), text::parse(&entry.value));
    }

    #[tokio::test]
    async fn old_and_large_objects_are_not_kept() {
        let (store, decoded) = (Store::memory(StoreOptions::default()), DecodedObjects::default());
        let mut entries = Vec::new();
        for number in 0..MOST + 10 {
            let (text, kept) = body(&json!({"metadata": {"name": "a"}, "spec": {"n": number}}), None);
            let entry = write(&store, &number.to_string(), text).await;
            decoded.keep(kept, &entry);
            entries.push(entry);
        }
        let kept: Vec<bool> = entries.iter().map(|entry| tree(entry).is_some()).collect();
        assert_eq!(kept.iter().filter(|kept| **kept).count(), MOST);
        assert!(!kept[9] && kept[10]);
        assert!(entries.iter().enumerate().all(|(number, entry)| value(entry)["spec"]["n"] == number));
        let (_, large) = body(&json!({"metadata": {"name": "b"}, "spec": {"text": "x".repeat(LARGEST)}}), None);
        assert!(large.is_none());
    }
}
