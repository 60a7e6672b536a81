//! Watches during concurrent writes: no stream loses, repeats or reorders an event, whatever its pace.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{commit, delete, put, runtime, wait};
use proptest::prelude::*;
use tally_store::{Change, Entry, Event, Expect, Store, StoreOptions, Watcher, Write, WriteError};

#[derive(Clone, Debug)]
struct Reader {
    prefix: &'static str,
    /// The most events per take.
    most: usize,
    /// The number of times the reader yields to the scheduler between two takes: a slow reader falls behind the
    /// history.
    pause: usize,
    /// After this number of takes the watcher is dropped and another one created at its position.
    reconnect_after: usize,
}

#[derive(Clone, Debug)]
struct Plan {
    on_disk: bool,
    history: usize,
    writers: usize,
    writes: usize,
    readers: Vec<Reader>,
    compact_every: usize,
}

fn plan() -> impl Strategy<Value = Plan> {
    let prefix = prop_oneof![Just("pods/"), Just("pods/a/"), Just("jobs/"), Just(""), Just("pods/b/3")];
    let reader = (prefix, 1..40_usize, 0..60_usize, 1..8_usize)
        .prop_map(|(prefix, most, pause, reconnect_after)| Reader { prefix, most, pause, reconnect_after });
    let readers = proptest::collection::vec(reader, 1..6);
    (any::<bool>(), 4..200_usize, 1..5_usize, 20..120_usize, readers, 10..200_usize).prop_map(
        |(on_disk, history, writers, writes, readers, compact_every)| Plan {
            on_disk,
            history,
            writers,
            writes,
            readers,
            compact_every,
        },
    )
}

/// A part of one reader's run: a list, and the events taken from there on.
struct Stretch {
    list: Vec<Entry>,
    from: u64,
    events: Vec<Event>,
    until: u64,
}

async fn read(store: Store, reader: Reader, writing: Arc<AtomicUsize>) -> Vec<Stretch> {
    let mut stretches = Vec::new();
    loop {
        let page = store.range(reader.prefix, None, None, None).unwrap();
        let mut stretch = Stretch { list: page.entries, from: page.revision, events: Vec::new(), until: page.revision };
        let too_old = follow(&store, &reader, &writing, &mut stretch).await;
        stretches.push(stretch);
        if !too_old {
            return stretches;
        }
    }
}

/// Takes events until the writers have finished, or until the history no longer reaches back (true).
async fn follow(store: &Store, reader: &Reader, writing: &AtomicUsize, stretch: &mut Stretch) -> bool {
    loop {
        let Ok(mut watcher) = store.watch(reader.prefix, stretch.until) else { return true };
        for _ in 0..reader.reconnect_after {
            // Read before taking: if the writers have finished, the batch is the rest.
            let finished = writing.load(Ordering::SeqCst) == 0;
            let Ok(batch) = watcher.take(reader.most) else { return true };
            stretch.events.extend(batch.events);
            stretch.until = watcher.position();
            if finished && !batch.more {
                return false;
            }
            for _ in 0..reader.pause {
                tokio::task::yield_now().await;
            }
            if !batch.more {
                // Waits for a notification, or a short time: after the writers have finished there is no notification.
                let moment = std::time::Duration::from_millis(1);
                let _ = tokio::time::timeout(moment, watcher.changed()).await;
            }
        }
    }
}

/// Writes at random from a seed, retrying conflicts; returns the acknowledged writes.
async fn work(store: Store, seed: usize, plan: Plan) -> Vec<(Entry, bool)> {
    let mut acknowledged = Vec::new();
    let mut random = seed as u64 * 0x9e37_79b9 + 1;
    for step in 0..plan.writes {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pick = (random >> 33) as usize;
        let key = format!("{}/{}/{}", ["pods", "pods", "jobs"][pick % 3], ["a", "b"][pick / 3 % 2], pick / 6 % 4);
        let there = store.get(&key).map(|entry| entry.revision);
        let write = match there {
            None => put(&key, Expect::Absent, "new"),
            Some(revision) if pick.is_multiple_of(5) => delete(&key, revision, "gone"),
            Some(revision) => put(&key, Expect::At(revision), "changed"),
        };
        let deleted = matches!(write.change, Change::Delete(_));
        match store.commit(write).await {
            Ok(entry) => acknowledged.push((entry, deleted)),
            Err(WriteError::Conflict(_)) => {}
            Err(error) => panic!("{error}"),
        }
        if step % plan.compact_every == plan.compact_every - 1 {
            store.compact(store.revision().saturating_sub(5));
        }
        if pick.is_multiple_of(7) {
            tokio::task::yield_now().await;
        }
    }
    acknowledged
}

fn check(plan: &Plan) {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions { history: plan.history, ..StoreOptions::default() };
    let store = if plan.on_disk { Store::open(dir.path(), options).unwrap() } else { Store::memory(options) };
    let first = store.revision();
    let writing = Arc::new(AtomicUsize::new(plan.writers));
    let (log, streams) = runtime().block_on(async {
        let readers: Vec<_> = plan
            .readers
            .iter()
            .map(|reader| tokio::spawn(read(store.clone(), reader.clone(), writing.clone())))
            .collect();
        let writers: Vec<_> = (0..plan.writers)
            .map(|seed| {
                let (work, writing) = (work(store.clone(), seed, plan.clone()), writing.clone());
                tokio::spawn(async move {
                    let done = work.await;
                    writing.fetch_sub(1, Ordering::SeqCst);
                    done
                })
            })
            .collect();
        let mut log = BTreeMap::new();
        for writer in writers {
            for (entry, deleted) in writer.await.unwrap() {
                assert!(log.insert(entry.revision, (entry, deleted)).is_none(), "a revision was given twice");
            }
        }
        let mut streams = Vec::new();
        for reader in readers {
            streams.push(reader.await.unwrap());
        }
        (log, streams)
    });
    assert!(log.keys().copied().eq(first + 1..=store.revision()), "revisions have no gaps");

    for (reader, stretches) in plan.readers.iter().zip(streams) {
        assert_eq!(stretches.last().unwrap().until, store.revision(), "the last stretch reaches the end");
        for stretch in stretches {
            let known = |entry: &Entry| Arc::ptr_eq(entry, &log[&entry.revision].0);
            // The list is the state at its revision.
            let mut state: BTreeMap<&str, u64> = BTreeMap::new();
            for (entry, deleted) in log.range(..=stretch.from).map(|(_, write)| write) {
                if *deleted {
                    state.remove(&*entry.key)
                } else {
                    state.insert(&entry.key, entry.revision)
                };
            }
            state.retain(|key, _| key.starts_with(reader.prefix));
            assert!(stretch.list.iter().all(known));
            assert_eq!(
                stretch.list.iter().map(|entry| (&*entry.key, entry.revision)).collect::<BTreeMap<_, _>>(),
                state
            );
            // The events are exactly the writes since then, in order.
            let expected = log
                .range((Bound::Excluded(stretch.from), Bound::Included(stretch.until)))
                .filter(|(_, (entry, _))| entry.key.starts_with(reader.prefix))
                .map(|(revision, (_, deleted))| (*revision, *deleted));
            assert!(stretch.events.iter().all(|event| known(&event.entry)));
            assert!(stretch.events.iter().map(|event| (event.revision, event.deleted)).eq(expected));
            for event in &stretch.events {
                assert_eq!(event.previous.as_ref().map(|entry| entry.revision), state.get(&*event.entry.key).copied());
                state.remove(&*event.entry.key);
                if !event.deleted {
                    state.insert(&event.entry.key, event.revision);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_stream_loses_repeats_or_reorders(plan in plan()) {
        check(&plan);
    }
}

fn write_pods(store: &Store, count: u64) {
    for _ in 0..count {
        let expect = store.get("pods/a/1").map_or(Expect::Absent, |entry| Expect::At(entry.revision));
        commit(store, put("pods/a/1", expect, "x")).unwrap();
    }
}

fn revisions(watcher: &mut Watcher) -> Vec<u64> {
    watcher.take(usize::MAX).unwrap().events.iter().map(|event| event.revision).collect()
}

#[test]
fn reader_that_does_not_read_is_cut_off_and_can_resume() {
    let store = Store::memory(StoreOptions { history: 10, ..StoreOptions::default() });
    let mut watcher = store.watch("pods/", store.revision()).unwrap();
    write_pods(&store, 10);
    let reached = store.revision();
    let mut copy = store.watch("pods/", watcher.position()).unwrap();
    assert_eq!(revisions(&mut copy).len(), 10, "at the bound the history still reaches back");
    write_pods(&store, 1);
    let too_old = watcher.take(5).unwrap_err();
    assert_eq!((too_old.requested, too_old.oldest), (reached - 10, reached - 9));
    let page = store.range("pods/", None, None, None).unwrap();
    let mut watcher = store.watch("pods/", page.revision).unwrap();
    write_pods(&store, 1);
    assert_eq!(revisions(&mut watcher), [page.revision + 1]);
}

#[test]
fn history_is_bounded_by_what_only_it_holds() {
    let large = "x".repeat(10_000);
    let store = Store::memory(StoreOptions { history_bytes: 100_000, ..StoreOptions::default() });
    let start = store.revision();
    // Created objects are referenced by the store itself: they cost the history nothing.
    for at in 0..50 {
        commit(&store, put(&format!("pods/a/{at}"), Expect::Absent, &large)).unwrap();
    }
    assert_eq!(store.compacted(), start);
    for at in 0..50 {
        let key = format!("pods/a/{at}");
        let revision = store.get(&key).unwrap().revision;
        commit(&store, put(&key, Expect::At(revision), &large)).unwrap();
    }
    let kept = store.watch("pods/", store.compacted()).unwrap().take(usize::MAX).unwrap().events;
    let held: usize = kept.iter().flat_map(|event| &event.previous).map(|entry| entry.value.len()).sum();
    assert!(held <= 100_000 && held > 80_000, "{held} bytes of replaced objects are held");
}

#[test]
fn watcher_of_jobs_is_untouched_by_pods() {
    let store = Store::memory(StoreOptions { history: 4, ..StoreOptions::default() });
    commit(&store, put("jobs/a/1", Expect::Absent, "x")).unwrap();
    let after = store.revision();
    let mut watcher = store.watch("jobs/", after).unwrap();
    write_pods(&store, 50);
    assert!(store.compacted() > after);
    assert!(pending(&mut watcher), "nothing happened to jobs");
    assert!(store.watch("jobs/", after).is_ok(), "of jobs nothing was forgotten");
    assert_eq!(revisions(&mut watcher), [0; 0]);
    assert_eq!(watcher.position(), store.revision(), "the position moves on for bookmarks");
    commit(&store, put("jobs/a/2", Expect::Absent, "x")).unwrap();
    wait(watcher.changed());
    assert_eq!(revisions(&mut watcher), [store.revision()]);
}

#[test]
fn watcher_of_the_future_waits_for_it() {
    let store = Store::memory(StoreOptions::default());
    write_pods(&store, 1);
    let after = store.revision() + 2;
    let mut watcher = store.watch("pods/", after).unwrap();
    write_pods(&store, 2);
    assert!(pending(&mut watcher));
    assert_eq!(revisions(&mut watcher), [0; 0]);
    assert_eq!(watcher.position(), after);
    write_pods(&store, 1);
    wait(watcher.changed());
    assert_eq!(revisions(&mut watcher), [after + 1]);
}

#[test]
fn change_wakes_every_watcher_of_its_kind() {
    let store = Store::memory(StoreOptions::default());
    let waits: Vec<_> = ["pods/", "pods/a/", ""]
        .map(|prefix| {
            let mut watcher = store.watch(prefix, store.revision()).unwrap();
            assert!(pending(&mut watcher), "{prefix:?}");
            std::thread::spawn(move || wait(watcher.changed()))
        })
        .into();
    write_pods(&store, 1);
    for wait in waits {
        wait.join().unwrap();
    }
}

#[test]
fn commit_in_memory_is_done_at_its_first_poll() {
    let store = Store::memory(StoreOptions::default());
    let write = Write { key: "pods/a/1".into(), expect: Expect::Absent, change: Change::Put(crate::common::body("x")) };
    let future = std::pin::pin!(store.commit(write));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(matches!(future.poll(&mut context), std::task::Poll::Ready(Ok(_))));
}

/// Whether the watcher would have to wait.
fn pending(watcher: &mut Watcher) -> bool {
    let future = std::pin::pin!(watcher.changed());
    future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending()
}
