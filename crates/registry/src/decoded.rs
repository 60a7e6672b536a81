//! The trees of the objects that were written last. Most objects are written several times in a short time, and read by all
//! controllers: the next write, and filters of watches, start from the tree that was encoded instead of decoding its text.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use tally_store::{Body, Entry, Handle, Stored};
use tally_value::{SharedView, Value};

use crate::text::{self, PlacedPart, metadata};

/// The last writes are kept for their readers, also those of objects that were written again since. A controller that is this
/// far behind, a twentieth of a second of the most writes, reads texts. More would be slower: what was made longer ago has left
/// the caches of the processor.
const LAST_WRITES: usize = 1024;
/// Of the writes before, those of objects that will be written again are kept for that, up to so many bytes of text: of 10,000
/// Pods. A tree takes two to three times the memory of its text, less what it shares with others; of a Pod that was made from
/// a template, most of it.
const MOST_BYTES: usize = 32 * 1024 * 1024;
/// The most templates of which a Pod is kept, for the next ones to be compared with: those of Jobs that create Pods now.
const LIKENESSES: usize = 256;
/// Larger objects are decoded each time, so that the memory in use is bounded.
const LARGEST: usize = 8 * 1024;

/// An object as it was encoded, for the readers of its entry.
#[derive(Debug)]
pub struct Tree {
    /// Until its revision is known.
    unstamped: Mutex<Option<Value>>,
    stamped: OnceLock<Value>,
    view: SharedView,
    /// Where its parts are in the text.
    parts: Vec<PlacedPart>,
    text_length: usize,
    /// The object was written again or removed, or nothing waits for it any more: its last finalizer was removed.
    is_done: AtomicBool,
    /// Its key in [`Kept::older`], once it is there; 0 before.
    older_key: AtomicU64,
}

impl Tree {
    /// The object with its revision, which is known once it is written.
    fn stamped(&self, revision: u64) -> &Value {
        self.stamped.get_or_init(|| {
            let unstamped = self.unstamped.lock().unwrap_or_else(PoisonError::into_inner).take();
            let mut object = unstamped.unwrap_or_default();
            // The stored text has neither `apiVersion` nor `kind`.
            text::remove_type(&mut object);
            metadata(&mut object).insert("resourceVersion", revision.to_string().into());
            object
        })
    }
}

/// The text of an object that is about to be written, and its tree, to be kept once it is. The text is for one write: a tree
/// has one revision. What is the same part as in the object `before` is copied from its text.
pub fn body(object: Value, before: Option<&Stored>) -> (Body, Option<Arc<Tree>>) {
    let before = before.and_then(|entry| Some((entry, kept(entry)?)));
    let known = |value: &Value| {
        let (entry, tree) = before.as_ref()?;
        PlacedPart::text(&tree.parts, value, &entry.value)
    };
    let (body, parts) = text::body_from(&object, known);
    let text_length = body.bytes.len();
    if text_length > LARGEST {
        return (body, None);
    }
    let tree = Arc::new(Tree {
        unstamped: Mutex::new(Some(object)),
        stamped: OnceLock::new(),
        view: SharedView::default(),
        parts,
        text_length,
        is_done: AtomicBool::new(false),
        older_key: AtomicU64::new(0),
    });
    (Body { handle: Some(handle(&tree)), ..body }, Some(tree))
}

fn handle(tree: &Arc<Tree>) -> Handle {
    let shared: Arc<dyn Any + Send + Sync> = tree.clone();
    Arc::downgrade(&shared)
}

/// The same for the removal of an object that is marked and removed in one write: the text of `body` is written twice, with a
/// revision each.
pub fn marked_and_removed(object: Value, before: &Stored) -> (Body, Handle, [Option<Arc<Tree>>; 2]) {
    let (body, marked) = body(object.clone(), Some(before));
    let removed = marked.as_ref().map(|marked| {
        Arc::new(Tree {
            unstamped: Mutex::new(Some(object)),
            stamped: OnceLock::new(),
            view: SharedView::default(),
            // Nobody writes it again.
            parts: Vec::new(),
            text_length: marked.text_length,
            is_done: AtomicBool::new(true),
            older_key: AtomicU64::new(0),
        })
    });
    let handle = removed.as_ref().map_or_else(|| Weak::<Tree>::new(), handle);
    (body, handle, [marked, removed])
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
pub struct DecodedObjects(Mutex<Kept>);

/// An object that was created from a template, valid and without a warning.
#[derive(Debug)]
pub struct Accepted {
    entry: Entry,
    tree: Arc<Tree>,
}

impl Accepted {
    pub fn object(&self) -> &Value {
        self.tree.stamped(self.entry.revision)
    }

    pub fn entry(&self) -> &Entry {
        &self.entry
    }
}

#[derive(Default)]
struct Kept {
    accepted: HashMap<NonZeroUsize, Arc<Accepted>>,
    /// The keys of `accepted`, oldest first.
    likenesses: VecDeque<NonZeroUsize>,
    last_writes: VecDeque<Arc<Tree>>,
    /// Trees that are not done, in the order of their writes.
    older: BTreeMap<u64, Arc<Tree>>,
    older_bytes: usize,
    /// The greatest key that was used in `older`.
    newest_key: u64,
}

impl Kept {
    /// Returns what is no longer kept.
    fn push(&mut self, written: Arc<Tree>) -> Vec<Arc<Tree>> {
        let mut forgotten = Vec::new();
        self.last_writes.push_back(written);
        if self.last_writes.len() > LAST_WRITES
            && let Some(tree) = self.last_writes.pop_front()
        {
            if tree.is_done.load(Ordering::Relaxed) {
                forgotten.push(tree);
            } else {
                self.newest_key += 1;
                tree.older_key.store(self.newest_key, Ordering::Relaxed);
                self.older_bytes += tree.text_length;
                self.older.insert(self.newest_key, tree);
            }
        }
        while self.older_bytes > MOST_BYTES
            && let Some((_, tree)) = self.older.pop_first()
        {
            self.older_bytes -= tree.text_length;
            forgotten.push(tree);
        }
        forgotten
    }

    /// The tree stays for its readers only.
    fn done(&mut self, tree: &Tree) -> Option<Arc<Tree>> {
        tree.is_done.store(true, Ordering::Relaxed);
        let forgotten = self.older.remove(&tree.older_key.load(Ordering::Relaxed))?;
        self.older_bytes -= forgotten.text_length;
        Some(forgotten)
    }
}

impl DecodedObjects {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object with this likeness that was accepted without a warning.
    pub fn accepted(&self, likeness: NonZeroUsize) -> Option<Arc<Accepted>> {
        self.lock().accepted.get(&likeness).cloned()
    }

    /// A new object was accepted without a warning, and is not like the one that was accepted before.
    pub fn accept(&self, likeness: NonZeroUsize, entry: &Entry, tree: &Arc<Tree>) {
        let accepted = Arc::new(Accepted { entry: entry.clone(), tree: tree.clone() });
        let _forgotten = {
            let Kept { accepted: known, likenesses, .. } = &mut *self.lock();
            let replaced = known.insert(likeness, accepted);
            if replaced.is_none() {
                likenesses.push_back(likeness);
            }
            let oldest = if likenesses.len() > LIKENESSES { likenesses.pop_front() } else { None };
            replaced.or_else(|| known.remove(&oldest?))
        };
    }

    /// Keeps what an entry was made of. `before`: the entry that it replaces.
    pub fn keep(&self, written: Option<Arc<Tree>>, entry: &Entry, before: Option<&Stored>) {
        let before = before.and_then(kept);
        let Some(written) = written else { return self.forget(before) };
        let object = written.stamped(entry.revision);
        debug_assert_eq!(*object, text::parse(&entry.value), "what is kept is what a reader of the stored text gets");
        let was_held = before.as_ref().is_some_and(|before| before.stamped.get().is_some_and(has_finalizers));
        if was_held && !has_finalizers(object) {
            written.is_done.store(true, Ordering::Relaxed);
        }
        let mut kept = self.lock();
        let forgotten = (before.and_then(|before| kept.done(&before)), kept.push(written));
        // Dropping trees takes time, and others need not wait for it.
        drop(kept);
        drop(forgotten);
    }

    /// Keeps the last state of an object that was removed, for its readers. `before`: the entry that was removed.
    pub fn keep_removed(&self, last: Option<Arc<Tree>>, before: &Stored) {
        self.forget(kept(before));
        let Some(last) = last else { return };
        last.is_done.store(true, Ordering::Relaxed);
        let _forgotten = self.lock().push(last);
    }

    fn forget(&self, tree: Option<Arc<Tree>>) {
        let _forgotten = tree.and_then(|tree| self.lock().done(&tree));
    }
}

fn has_finalizers(object: &Value) -> bool {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    finalizers.is_some_and(|finalizers| !finalizers.is_empty())
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
        let (text, kept) = body(first.clone(), None);
        let one = write(&store, "a", text).await;
        decoded.keep(kept, &one, None);
        assert_eq!(tree(&one).unwrap(), text::parse(&one.value));
        assert!(tree(&one).unwrap()["spec"].is_same(&first["spec"]), "the tree that was encoded");
        // Written by other means since.
        let other = write(&store, "a", text::body(&json!({"metadata": {"name": "a"}, "spec": {"n": 7}}))).await;
        assert_eq!((tree(&other), value(&other)["spec"]["n"].as_i64()), (None, Some(7)));
        assert_eq!(value(&one)["spec"]["n"], -1);
    }

    #[tokio::test]
    async fn the_tree_of_an_object_that_is_done_is_soon_forgotten() {
        let (store, decoded) = (Store::memory(StoreOptions::default()), DecodedObjects::default());
        let object = |name: &str, finalizers: Value| json!({"metadata": {"name": name, "finalizers": finalizers}});
        let mut entries = Vec::new();
        for (name, finalizers) in [("released", json!(["f"])), ("removed", json!([])), ("kept", json!(["f"]))] {
            let (text, kept) = body(object(name, finalizers), None);
            let entry = write(&store, name, text).await;
            decoded.keep(kept, &entry, None);
            entries.push(entry);
        }
        let (text, kept) = body(json!({"metadata": {"name": "released"}}), Some(&entries[0]));
        let released = write(&store, "released", text).await;
        decoded.keep(kept, &released, Some(&entries[0]));
        decoded.keep_removed(None, &entries[1]);
        assert!(tree(&released).is_some(), "its readers have not come yet");
        for number in 0..LAST_WRITES {
            let name = number.to_string();
            let (text, kept) = body(object(&name, json!([])), None);
            decoded.keep(kept, &write(&store, &name, text).await, None);
        }
        let known = [&released, &entries[0], &entries[1], &entries[2]].map(|entry| tree(entry).is_some());
        assert_eq!(known, [false, false, false, true]);
        // Nothing reads it any more once it is replaced, and there is room for others at once.
        let (text, kept) = body(object("kept", json!(["f"])), Some(&entries[2]));
        decoded.keep(kept, &write(&store, "kept", text).await, Some(&entries[2]));
        assert!(tree(&entries[2]).is_none());
        let kept = decoded.lock();
        assert_eq!(kept.older_bytes, kept.older.values().map(|tree| tree.text_length).sum::<usize>());
    }

    #[tokio::test]
    async fn what_did_not_change_is_copied_from_the_text_before() {
        let (store, decoded) = (Store::memory(StoreOptions::default()), DecodedObjects::default());
        let first = json!({
            "metadata": {"name": "a", "labels": {"é": "\"1\""}, "finalizers": ["f"], "annotations": {}},
            "spec": {"list": [1, {"deep": "x"}], "empty": {}}, "status": {"phase": "Pending"}, "type": "text",
        });
        let (text, kept) = body(first.clone(), None);
        let mut entry = write(&store, "a", text).await;
        decoded.keep(kept, &entry, None);
        for step in 0..4 {
            let mut next = value(&entry);
            match step {
                0 => next["status"]["phase"] = "Running".into(),
                1 => drop(metadata(&mut next).remove("finalizers")),
                2 => next["spec"]["list"] = json!([]),
                _ => next["metadata"]["labels"]["more"] = "y".into(),
            }
            let plain = text::body(&next);
            let (text, kept) = body(next, Some(&entry));
            assert_eq!(text.bytes, plain.bytes, "step {step}");
            let before = std::mem::replace(&mut entry, write(&store, "a", text).await);
            decoded.keep(kept, &entry, Some(&before));
        }
    }

    /// What is kept must be what is read back, to the last bit of a number.
    #[tokio::test]
    async fn fractions_survive() {
        let (store, decoded) = (Store::memory(StoreOptions::default()), DecodedObjects::default());
        let numbers =
            json!({"metadata": {"name": "a"}, "numbers": [9.044889105823873e-279, -7.312715117751976e-237, 0.1]});
        let (text, kept) = body(numbers, None);
        let entry = write(&store, "a", text).await;
        decoded.keep(kept, &entry, None);
        assert_eq!(tree(&entry).unwrap(), text::parse(&entry.value));
    }

    #[tokio::test]
    async fn the_last_writes_are_kept_and_of_older_ones_the_newest_of_each_object() {
        let (store, decoded) = (Store::memory(StoreOptions::default()), DecodedObjects::default());
        let spec = json!({"metadata": {"name": "a"}, "spec": {"text": "x".repeat(LARGEST / 2)}});
        let mut entries = Vec::new();
        for number in 0..LAST_WRITES + 10 {
            let name = if number < 2 { 0 } else { number }.to_string();
            let before = store.get(&name);
            let (text, kept) = body(spec.clone(), before.as_deref());
            let entry = write(&store, &name, text).await;
            decoded.keep(kept, &entry, before.as_deref());
            entries.push(entry);
        }
        let kept: Vec<bool> = entries.iter().map(|entry| tree(entry).is_some()).collect();
        assert!(!kept[0] && kept[1..].iter().all(|kept| *kept), "the first one was replaced by the second");
        assert!(entries.iter().all(|entry| value(entry) == text::parse(&entry.value)));
        for number in 0..LAST_WRITES + MOST_BYTES * 2 / LARGEST {
            let (text, kept) = body(spec.clone(), None);
            decoded.keep(kept, &write(&store, &format!("more-{number}"), text).await, None);
        }
        assert!(entries.iter().all(|entry| tree(entry).is_none()), "there were too many bytes after them");
        let (_, large) = body(json!({"metadata": {"name": "b"}, "spec": {"text": "x".repeat(LARGEST)}}), None);
        assert!(large.is_none());
    }
}
