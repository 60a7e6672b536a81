//! Disks that fail, and orderly shutdown: which errors writers get, and that reads continue.

use std::sync::mpsc::{Receiver, Sender, channel};

use crate::common::{commit, delete, dump, put, wait};
use tally_store::backend::{Account, Backend, BackendError, Planned};
use tally_store::{Body, Change, Expect, MAX_KEY, MAX_VALUE, Store, StoreOptions, Write, WriteError};

/// A disk whose result for each group is set by the test, and which reports the size of each group.
struct Scripted {
    groups: Sender<usize>,
    outcomes: Receiver<Result<(), &'static str>>,
}

impl Backend for Scripted {
    fn write(&mut self, writes: &[Planned], _: &Account) -> Result<(), BackendError> {
        self.groups.send(writes.len()).unwrap();
        match self.outcomes.recv().expect("the script has a line for every group") {
            Err("panic") => panic!("the disk panics"),
            outcome => outcome.map_err(Into::into),
        }
    }
}

fn scripted(options: StoreOptions) -> (Store, Sender<Result<(), &'static str>>, Receiver<usize>) {
    let (outcome, outcomes) = channel();
    let (groups, group) = channel();
    (Store::with_backend(Box::new(Scripted { groups, outcomes }), options).unwrap(), outcome, group)
}

#[test]
fn nothing_is_written_after_a_failure_and_reads_go_on() {
    for failure in ["no space left", "panic"] {
        let (store, outcome, group) = scripted(StoreOptions::default());
        outcome.send(Ok(())).unwrap();
        let kept = commit(&store, put("pods/a/1", Expect::Absent, "kept")).unwrap();
        assert_eq!(store.poisoned(), None);
        let before = dump(&store);
        let mut watcher = store.watch("pods/", store.revision()).unwrap();

        outcome.send(Err(failure)).unwrap();
        let poisoned = commit(&store, put("pods/a/2", Expect::Absent, "lost")).unwrap_err();
        assert!(matches!(poisoned, WriteError::Poisoned(_)), "{poisoned}");
        // If the store sent another write to the disk, the write would succeed.
        let _ = outcome.send(Ok(()));
        let later = commit(&store, delete("pods/a/1", kept.revision, "lost")).unwrap_err();
        assert!(matches!(later, WriteError::Poisoned(_)), "{later}");
        assert_eq!(group.iter().count(), 2, "the disk is not asked again");
        let reason = store.poisoned().expect("it says why");
        if failure != "panic" {
            assert_eq!(&*reason.reason, failure);
            assert!(later.to_string().contains(failure), "{later}");
        }

        assert_eq!(dump(&store), before);
        assert_eq!(watcher.take(10).unwrap().events.len(), 0, "what failed is not shown");
        store.close();
        let closed = commit(&store, put("pods/a/3", Expect::Absent, "x")).unwrap_err();
        assert!(matches!(closed, WriteError::Poisoned(_)), "the first reason stays: {closed}");
    }
}

#[test]
fn write_is_not_seen_before_it_is_durable() {
    let (store, outcome, group) = scripted(StoreOptions::default());
    let mut watcher = store.watch("pods/", store.revision()).unwrap();
    let writer = std::thread::spawn({
        let store = store.clone();
        move || commit(&store, put("pods/a/1", Expect::Absent, "x"))
    });
    group.recv().unwrap();
    // The group is being written now.
    assert_eq!(store.revision(), tally_store::FIRST);
    assert!(store.get("pods/a/1").is_none());
    assert!(watcher.take(1).unwrap().events.is_empty());
    outcome.send(Ok(())).unwrap();
    let entry = writer.join().unwrap().unwrap();
    assert_eq!(store.revision(), entry.revision);
    assert_eq!(watcher.take(1).unwrap().events.len(), 1);
}

#[test]
fn writes_of_one_group_see_each_other() {
    let (store, outcome, group) = scripted(StoreOptions::default());
    let first = spawn(&store, put("pods/a/0", Expect::Absent, "holds the disk"));
    group.recv().unwrap();
    // These writes wait for the disk together; each is queued before the next one is created.
    let next = tally_store::FIRST + 2;
    let writes = [
        put("pods/a/1", Expect::Absent, "made"),
        put("pods/a/1", Expect::Absent, "made again"),
        put("pods/a/1", Expect::At(next), "changed"),
        delete("pods/a/1", next + 1, "gone"),
        delete("pods/a/1", next + 1, "gone again"),
        put("pods/a/1", Expect::Absent, "new"),
    ];
    let mut waiting: Vec<_> = writes.into_iter().map(|write| Box::pin(store.commit(write))).collect();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    for future in &mut waiting {
        assert!(future.as_mut().poll(&mut context).is_pending());
    }
    outcome.send(Ok(())).unwrap();
    outcome.send(Ok(())).unwrap();
    let outcomes: Vec<Result<u64, Option<u64>>> = waiting
        .into_iter()
        .map(|future| match wait(future) {
            Ok(entry) => Ok(entry.revision),
            Err(WriteError::Conflict(there)) => Err(there.map(|entry| entry.revision)),
            Err(error) => panic!("{error}"),
        })
        .collect();
    assert_eq!(outcomes, [Ok(next), Err(Some(next)), Ok(next + 1), Ok(next + 2), Err(None), Ok(next + 3)]);
    assert_eq!(group.recv().unwrap(), 4);
    first.join().unwrap();
}

#[test]
fn write_beside_an_entry_happens_only_while_that_is_the_newest() {
    let (store, outcome, group) = scripted(StoreOptions::default());
    outcome.send(Ok(())).unwrap();
    let old = commit(&store, put("namespaces/a", Expect::Absent, "stays")).unwrap();
    group.recv().unwrap();
    let first = spawn(&store, put("pods/a/0", Expect::Absent, "holds the disk"));
    group.recv().unwrap();
    // The namespace changes in the same group that contains the second Pod.
    let beside = |key: &str| store.commit_beside(put(key, Expect::Absent, "inside"), old.clone());
    let mut in_time = Box::pin(beside("pods/a/1"));
    let mut change = Box::pin(store.commit(put("namespaces/a", Expect::At(old.revision), "goes")));
    let mut late = Box::pin(beside("pods/a/2"));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(in_time.as_mut().poll(&mut context).is_pending());
    assert!(change.as_mut().poll(&mut context).is_pending());
    assert!(late.as_mut().poll(&mut context).is_pending());
    outcome.send(Ok(())).unwrap();
    outcome.send(Ok(())).unwrap();
    first.join().unwrap();
    wait(in_time).unwrap();
    let changed = wait(change).unwrap();
    assert!(matches!(wait(late), Err(WriteError::Moved)));
    // The same applies if the change is in an earlier group, and if the entry is deleted.
    assert!(matches!(wait(beside("pods/a/2")), Err(WriteError::Moved)));
    outcome.send(Ok(())).unwrap();
    commit(&store, delete("namespaces/a", changed.revision, "gone")).unwrap();
    assert!(matches!(wait(store.commit_beside(put("pods/a/2", Expect::Absent, "x"), changed)), Err(WriteError::Moved)));
    assert_eq!(dump(&store).len(), 2, "the two Pods that came in time");
}

#[test]
fn what_is_put_and_deleted_is_one_write_to_the_disk() {
    let (store, outcome, group) = scripted(StoreOptions::default());
    let mut watcher = store.watch("pods/", store.revision()).unwrap();
    outcome.send(Ok(())).unwrap();
    let made = commit(&store, put("pods/a/1", Expect::Absent, "made")).unwrap();
    outcome.send(Ok(())).unwrap();
    let change = Change::PutAndDelete(crate::common::body("marked"), None);
    let write = Write { key: "pods/a/1".into(), expect: Expect::At(made.revision), change };
    let marked = commit(&store, write).unwrap();
    assert_eq!(marked.revision, made.revision + 1);
    assert_eq!(group.try_iter().collect::<Vec<_>>(), [1, 2], "the two changes are in one group");
    let told: Vec<_> = watcher.take(9).unwrap().events.iter().map(|event| (event.revision, event.deleted)).collect();
    let first = made.revision;
    assert_eq!(told, [(first, false), (first + 1, false), (first + 2, true)]);
}

#[test]
fn what_waits_is_bounded_and_finished_on_close() {
    let options = StoreOptions { queue: 2, ..StoreOptions::default() };
    let (store, outcome, group) = scripted(options);
    let first = spawn(&store, put("pods/a/0", Expect::Absent, "holds the disk"));
    group.recv().unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut start = |key: &str| {
        let store = store.clone();
        let write = put(key, Expect::Absent, "x");
        let mut future = Box::pin(async move { store.commit(write).await });
        (future.as_mut().poll(&mut context), future)
    };
    let (one, first_waiting) = start("pods/a/1");
    let (two, dropped) = start("pods/a/2");
    assert!(one.is_pending() && two.is_pending());
    let (full, _) = start("pods/a/3");
    assert!(matches!(full, std::task::Poll::Ready(Err(WriteError::Overloaded))));

    drop(dropped);
    outcome.send(Ok(())).unwrap();
    outcome.send(Ok(())).unwrap();
    store.close();
    first.join().unwrap();
    assert_eq!(wait(first_waiting).unwrap().revision, store.revision());
    assert_eq!(dump(&store).len(), 2, "the one nobody waited for was not written");
    assert!(matches!(commit(&store, put("pods/a/4", Expect::Absent, "x")), Err(WriteError::Closed)));
}

#[test]
fn bytes_that_wait_are_bounded() {
    let (store, outcome, group) = scripted(StoreOptions { queue_bytes: 1000, ..StoreOptions::default() });
    let first = spawn(&store, put("pods/a/0", Expect::Absent, "holds the disk"));
    group.recv().unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut alone = Box::pin(store.commit(put("pods/a/1", Expect::Absent, &"x".repeat(5000))));
    assert!(alone.as_mut().poll(&mut context).is_pending(), "a single large one may wait");
    assert!(matches!(commit(&store, put("pods/a/2", Expect::Absent, "x")), Err(WriteError::Overloaded)));
    outcome.send(Ok(())).unwrap();
    outcome.send(Ok(())).unwrap();
    wait(alone).unwrap();
    first.join().unwrap();
}

#[test]
fn keys_and_values_have_a_largest_size() {
    let store = Store::memory(StoreOptions::default());
    let write = |key: usize, value: usize| {
        let body = Body { bytes: vec![b'x'; value], stamp_at: 0, handle: None };
        commit(&store, Write { key: "k".repeat(key), expect: Expect::Absent, change: Change::Put(body) })
    };
    write(MAX_KEY - 1, MAX_VALUE - 1).unwrap();
    write(MAX_KEY, MAX_VALUE).unwrap();
    assert!(matches!(write(MAX_KEY + 1, 1), Err(WriteError::TooLarge { limit: MAX_KEY, .. })));
    assert!(matches!(write(1, MAX_VALUE + 1), Err(WriteError::TooLarge { limit: MAX_VALUE, .. })));
}

#[test]
fn closed_memory_store_takes_no_writes() {
    let store = Store::memory(StoreOptions::default());
    commit(&store, put("pods/a/1", Expect::Absent, "x")).unwrap();
    store.close();
    assert!(matches!(commit(&store, put("pods/a/2", Expect::Absent, "x")), Err(WriteError::Closed)));
    assert_eq!(dump(&store).len(), 1);
}

fn spawn(store: &Store, write: Write) -> std::thread::JoinHandle<()> {
    let store = store.clone();
    std::thread::spawn(move || {
        commit(&store, write).unwrap();
    })
}
