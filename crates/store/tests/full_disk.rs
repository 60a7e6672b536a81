//! A disk that is full for a time: writes are refused with words, resume without a restart, and nothing that was
//! acknowledged is lost.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::common::{commit, delete, dump, put};
use tally_store::backend::{Account, Backend, BackendError, Planned};
use tally_store::{Expect, Store, StoreOptions, WriteError};

/// A disk whose answers are set by the test.
struct Scripted {
    asked: Sender<Asked>,
    answers: Receiver<Result<(), BackendError>>,
}

#[derive(Debug, PartialEq)]
enum Asked {
    Write { revision: u64 },
    Recover { revision: u64 },
}

impl Backend for Scripted {
    fn write(&mut self, _: &[Planned], account: &Account) -> Result<(), BackendError> {
        self.asked.send(Asked::Write { revision: account.revision }).unwrap();
        self.answers.recv().unwrap()
    }

    fn recover(&mut self, acknowledged: &Account) -> Result<(), BackendError> {
        self.asked.send(Asked::Recover { revision: acknowledged.revision }).unwrap();
        self.answers.recv().unwrap()
    }
}

fn full() -> BackendError {
    BackendError { reason: "no space".into(), disk_full: true, recoverable: true }
}

#[test]
fn writes_are_refused_until_the_disk_has_recovered_and_then_follow_what_was_acknowledged() {
    let ((asked, questions), (answer, answers)) = (channel(), channel());
    let store = Store::with_backend(Box::new(Scripted { asked, answers }), StoreOptions::default()).unwrap();
    answer.send(Ok(())).unwrap();
    let kept = commit(&store, put("pods/a/1", Expect::Absent, "kept")).unwrap();
    let mut watcher = store.watch("pods/", kept.revision).unwrap();
    answer.send(Err(full())).unwrap();
    let refused = commit(&store, put("pods/a/2", Expect::Absent, "refused")).unwrap_err();
    assert!(matches!(refused, WriteError::Suspended(_)), "{refused}");
    assert!(refused.to_string().contains("no space"), "{refused}");
    while store.poisoned().is_none() {
        std::thread::yield_now();
    }
    let at_once = commit(&store, delete("pods/a/1", kept.revision, "gone")).unwrap_err();
    assert!(matches!(at_once, WriteError::Suspended(_)), "{at_once}");
    assert_eq!((dump(&store).len(), store.revision()), (1, kept.revision));
    // It is still full, then it is not.
    answer.send(Err(full())).unwrap();
    answer.send(Ok(())).unwrap();
    while store.poisoned().is_some() {
        std::thread::sleep(Duration::from_millis(5));
    }
    answer.send(Ok(())).unwrap();
    let next = commit(&store, put("pods/a/2", Expect::Absent, "later")).unwrap();
    assert_eq!(next.revision, kept.revision + 1);
    assert_eq!(watcher.take(9).unwrap().events.len(), 1, "what was refused is never shown");
    let revision = kept.revision;
    let told: Vec<Asked> = questions.try_iter().collect();
    let expected = [
        Asked::Write { revision },
        Asked::Write { revision: revision + 1 },
        Asked::Recover { revision },
        Asked::Recover { revision },
        Asked::Write { revision: revision + 1 },
    ];
    assert_eq!(told, expected);
    // A recovery that fails for another reason is the end, and so is a close.
    answer.send(Err(full())).unwrap();
    commit(&store, put("pods/a/3", Expect::Absent, "x")).unwrap_err();
    answer.send(Err("the disk has something else".into())).unwrap();
    while store.poisoned().is_none_or(|error| error.recoverable) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let later = commit(&store, put("pods/a/3", Expect::Absent, "x")).unwrap_err();
    assert!(matches!(later, WriteError::Poisoned(_)), "{later}");
}

#[test]
fn a_store_whose_disk_is_full_can_be_closed() {
    let ((asked, questions), (answer, answers)) = (channel(), channel());
    let store = Store::with_backend(Box::new(Scripted { asked, answers }), StoreOptions::default()).unwrap();
    answer.send(Err(full())).unwrap();
    commit(&store, put("pods/a/1", Expect::Absent, "x")).unwrap_err();
    store.close();
    assert!(matches!(commit(&store, put("pods/a/1", Expect::Absent, "x")), Err(WriteError::Closed)));
    assert_eq!(questions.try_iter().count(), 1);
}

/// A small file system, mounted until it is dropped. None, with a message, if the user may not mount one.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(at: &'a Path, size: &str) -> Option<Self> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", size, "small"]).arg(at).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            println!("SKIPPED: this user may not mount a small disk, so nothing is known of full ones");
            return None;
        }
        Some(Self(at))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// Fills the disk as far as it goes.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = fs::File::create(path).unwrap();
    let mut piece = vec![1; 64 * 1024];
    while !piece.is_empty() {
        match file.write(&piece) {
            Ok(0) | Err(_) => piece.truncate(piece.len() / 2),
            Ok(_) => {}
        }
    }
}

/// What one writer was told: the value that each of its keys has, or that it may have if the answer was a refusal.
type Told = BTreeMap<String, (String, Option<u64>)>;

#[test]
fn a_disk_filled_and_emptied_under_load_loses_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    // With a small limit logs are merged all the time, so that a merge meets the full disk, too.
    for merge_bytes in [32 * 1024 * 1024, 128 * 1024] {
        let Some(_disk) = SmallDisk::mount(dir.path(), "size=24m") else { return };
        let (data, filler) = (dir.path().join("store"), dir.path().join("filler"));
        let options = StoreOptions { merge_bytes, ..StoreOptions::default() };
        let store = Store::open(&data, options).unwrap();
        let stop = AtomicBool::new(false);
        let (told, refusals) = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|writer| {
                    let (store, stop) = (store.clone(), &stop);
                    scope.spawn(move || write_until(&store, writer, stop))
                })
                .collect();
            for round in 0..5 {
                let written = store.revision();
                wait_for("writes", || store.revision() > written + 200);
                fill(&filler);
                wait_for("a refusal", || store.poisoned().is_some_and(|error| error.recoverable));
                let full_at = store.revision();
                std::thread::sleep(Duration::from_millis(if round == 1 { 2500 } else { 100 }));
                assert_eq!(store.revision(), full_at, "a full disk takes nothing");
                fs::remove_file(&filler).unwrap();
                wait_for("room", || store.poisoned().is_none());
            }
            let written = store.revision();
            wait_for("writes", || store.revision() > written + 200);
            stop.store(true, Ordering::Relaxed);
            let mut all = Told::new();
            let mut refusals = 0;
            for writer in writers {
                let (told, refused) = writer.join().unwrap();
                all.extend(told);
                refusals += refused;
            }
            (all, refusals)
        });
        assert!(refusals >= 5, "{refusals} refusals");
        let before = dump(&store);
        let revision = store.revision();
        // As a kill would leave it: the files are copied while the store is open.
        drop(store);
        let store = Store::open(&data, options).unwrap();
        assert_eq!((dump(&store), store.revision()), (before.clone(), revision));
        let found: BTreeMap<String, u64> = before.iter().map(|(key, revision, _)| (key.clone(), *revision)).collect();
        for (key, (_, revision)) in &told {
            assert_eq!(found.get(key), revision.as_ref(), "{key}");
        }
        assert_eq!(found.len(), told.values().filter(|(_, revision)| revision.is_some()).count());
        drop(store);
        println!("{refusals} refusals, {revision} revisions, merged from {merge_bytes} bytes on");
    }
}

/// Creates, changes and deletes its own keys. A refused write must have no effect: the process lives.
fn write_until(store: &Store, writer: usize, stop: &AtomicBool) -> (Told, usize) {
    let (mut told, mut refusals) = (Told::new(), 0);
    for step in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("pods/{writer}/{}", step % 40);
        let there = told.get(&key).and_then(|(_, revision): &(String, Option<u64>)| *revision);
        let value = "x".repeat(step * 37 % 900);
        let write = match there {
            Some(revision) if step % 5 == 4 => delete(&key, revision, "gone"),
            Some(revision) => put(&key, Expect::At(revision), &value),
            None => put(&key, Expect::Absent, &value),
        };
        let deleted = matches!(write.change, tally_store::Change::Delete(_));
        match commit(store, write) {
            Ok(entry) => drop(told.insert(key, (value, (!deleted).then_some(entry.revision)))),
            Err(WriteError::Suspended(_)) => {
                refusals += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("{key}: {error}"),
        }
    }
    (told, refusals)
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_there() {
        assert!(Instant::now() < until, "no {what} within a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The disk is full when the next log is begun, the writer goes on with the log that it has, and is torn off there.
#[test]
fn a_disk_that_is_full_when_a_log_is_begun_blocks_no_start() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(dir.path(), "size=24m") else { return };
    let (data, filler) = (dir.path().join("store"), dir.path().join("filler"));
    let options = StoreOptions { merge_bytes: 1024 * 1024, ..StoreOptions::default() };
    let store = Store::open(&data, options).unwrap();
    for step in 0.. {
        if step == 325 {
            // Just before the next log.
            fill(&filler);
        }
        if commit(&store, put(&format!("pods/a/{step}"), Expect::Absent, &"x".repeat(2900))).is_err() {
            break;
        }
    }
    assert!(data.join("log/2.log").exists(), "the next log was begun");
    let (content, revision) = (dump(&store), store.revision());
    drop(store);
    fs::remove_file(&filler).unwrap();
    let store = Store::open(&data, options).unwrap();
    assert_eq!((dump(&store), store.revision()), (content, revision));
}

/// A merge fills the disk: what it has written goes, and it is not tried again at once.
#[test]
fn a_merge_that_has_no_room_does_not_keep_the_disk_full() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(dir.path(), "size=17m") else { return };
    let data = dir.path().join("store");
    let options = StoreOptions { merge_bytes: 9 * 1024 * 1024, ..StoreOptions::default() };
    let store = Store::open(&data, options).unwrap();
    let change = |key: &str, size: usize| {
        let expect = store.get(key).map_or(Expect::Absent, |entry| Expect::At(entry.revision));
        commit(&store, put(key, expect, &"x".repeat(size)))
    };
    // Nine MiB of objects, and the merge of them takes as much again. Then small changes.
    (0..1100).for_each(|step| drop(change(&format!("pods/a/{step}"), 8000)));
    let (mut taken, mut refused) = (0, 0);
    while taken < 500 {
        match change("pods/b/1", 1000) {
            Ok(_) => taken += 1,
            Err(_) => {
                refused += 1;
                wait_for("room", || store.poisoned().is_none());
            }
        }
    }
    assert!(refused <= 2, "{refused} times refused");
    let left = fs::read_dir(data.join("log")).unwrap().map(|item| item.unwrap().path());
    assert_eq!(left.filter(|path| path.extension().is_some_and(|it| it == "new")).count(), 0);
}
