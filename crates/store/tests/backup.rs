//! Backups: what is written is read back, and a file that was cut, changed or rearranged is refused.

use std::path::Path;

use crate::common::{commit, delete, dump, put};
use tally_store::backup::{BackupError, BackupFile, BackupItem, BackupReader, RESTORE_STEP};
use tally_store::{Expect, OpenError, Store, StoreBuilder, StoreOptions};

fn filled() -> Store {
    let store = Store::memory(StoreOptions::default());
    for number in 0..20 {
        let made = commit(&store, put(&format!("pods/a/{number}"), Expect::Absent, "made")).unwrap();
        if number % 3 == 0 {
            commit(&store, put(&made.key, Expect::At(made.revision), &"x".repeat(number * 100))).unwrap();
        }
        if number % 5 == 4 {
            commit(&store, delete(&made.key, made.revision.max(store.get(&made.key).unwrap().revision), "gone"))
                .unwrap();
        }
    }
    store
}

fn keys() -> Vec<BackupFile> {
    vec![BackupFile { path: "pki/ca.crt".into(), content: "a certificate".into() }]
}

fn encoded(store: &Store) -> Vec<u8> {
    store.backup(keys(), 1_700_000_000).flat_map(|piece| piece.to_vec()).collect()
}

/// Reads a backup to its end.
fn read(bytes: &[u8]) -> Result<(u64, Vec<BackupItem>), BackupError> {
    let reader = BackupReader::open(bytes)?;
    let revision = reader.revision();
    Ok((revision, reader.collect::<Result<_, _>>()?))
}

fn restore(bytes: &[u8], dir: &Path) {
    let reader = BackupReader::open(bytes).unwrap();
    let mut store = StoreBuilder::create(dir, reader.revision() + RESTORE_STEP).unwrap();
    for item in reader {
        if let BackupItem::Object(entry) = item.unwrap() {
            store.add(&entry).unwrap();
        }
    }
    store.finish().unwrap();
}

#[test]
fn a_restored_store_has_the_objects_of_the_backup_and_a_later_revision() {
    let store = filled();
    let (before, revision) = (dump(&store), store.revision());
    let backup = store.backup(Vec::new(), 7);
    assert_eq!(backup.revision(), revision);
    // A write that comes after the backup has begun is not in it.
    commit(&store, put("pods/a/new", Expect::Absent, "later")).unwrap();
    let changed = store.get("pods/a/1").unwrap();
    commit(&store, put("pods/a/1", Expect::At(changed.revision), "later")).unwrap();
    let bytes: Vec<u8> = backup.flat_map(|piece| piece.to_vec()).collect();

    let dir = tempfile::tempdir().unwrap();
    restore(&bytes, &dir.path().join("store"));
    for _ in 0..2 {
        let restored = Store::open(&dir.path().join("store"), StoreOptions::default()).unwrap();
        assert_eq!(dump(&restored), before);
        assert_eq!(restored.revision(), revision + RESTORE_STEP);
        // A client of the old store that has seen more than the backup must list again.
        for seen in [revision, revision + 2, revision + RESTORE_STEP - 1] {
            assert!(restored.watch("pods/", seen).is_err(), "{seen}");
        }
        assert!(restored.watch("pods/", restored.revision()).is_ok());
    }
    let restored = Store::open(&dir.path().join("store"), StoreOptions::default()).unwrap();
    let next = commit(&restored, put("pods/b/1", Expect::Absent, "x")).unwrap();
    assert_eq!(next.revision, revision + RESTORE_STEP + 1);
    drop(restored);
    let again = StoreBuilder::create(&dir.path().join("store"), 1).map(drop);
    assert!(matches!(again, Err(OpenError::HasStore { .. })), "{again:?}");
}

#[test]
fn many_objects_and_none_are_restored() {
    for count in [0, 1, 3000] {
        let store = Store::memory(StoreOptions::default());
        for number in 0..count {
            commit(&store, put(&format!("pods/a/{number}"), Expect::Absent, &"x".repeat(500))).unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        restore(&encoded(&store), dir.path());
        assert_eq!(dump(&Store::open(dir.path(), StoreOptions::default()).unwrap()), dump(&store));
    }
}

#[test]
fn a_backup_has_its_objects_and_files() {
    let store = filled();
    let (revision, items) = read(&encoded(&store)).unwrap();
    assert_eq!(revision, store.revision());
    let objects = items.iter().filter_map(|item| match item {
        BackupItem::Object(entry) => {
            Some((entry.key.to_string(), entry.revision, String::from_utf8(entry.value.to_vec()).unwrap()))
        }
        BackupItem::File(_) => None,
    });
    assert_eq!(objects.collect::<Vec<_>>(), dump(&store));
    let files = items.into_iter().filter_map(|item| match item {
        BackupItem::File(file) => Some(file),
        BackupItem::Object(_) => None,
    });
    assert_eq!(files.collect::<Vec<_>>(), keys());
}

#[test]
fn a_backup_that_is_cut_anywhere_is_refused_with_words() {
    let bytes = encoded(&filled());
    for length in 0..bytes.len() {
        let said = read(&bytes[..length]).unwrap_err().to_string();
        let expected = if length < 8 { "is not a backup" } else { "is cut short" };
        assert!(said.contains(expected), "cut at {length}: {said}");
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(read(&longer).unwrap_err().to_string().contains("more data after its end"));
}

#[test]
fn a_backup_with_a_changed_byte_is_refused_with_words() {
    let bytes = encoded(&filled());
    for at in 0..bytes.len() {
        for bit in [0x01, 0x80] {
            let mut changed = bytes.clone();
            changed[at] ^= bit;
            let said = read(&changed).unwrap_err().to_string();
            let words = ["is not a backup", "a newer version", "is cut short", "is damaged or was edited"];
            assert!(words.iter().any(|words| said.contains(words)), "{at} changed by {bit}: {said}");
        }
    }
}

/// The places at which frames begin.
fn frames(bytes: &[u8]) -> Vec<usize> {
    let mut starts = vec![8];
    while let Some(at) = starts.last().copied().filter(|at| *at < bytes.len()) {
        let name = usize::from(u16::from_le_bytes(bytes[at + 1..at + 3].try_into().unwrap()));
        let body = u32::from_le_bytes(bytes[at + 3..at + 7].try_into().unwrap()) as usize;
        starts.push(at + 7 + name + body + 8);
    }
    starts
}

#[test]
fn a_backup_with_frames_removed_repeated_or_exchanged_is_refused() {
    let bytes = encoded(&filled());
    let starts = frames(&bytes);
    let frame = |index: usize| &bytes[starts[index]..starts[index + 1]];
    let count = starts.len() - 1;
    let mut refused = 0;
    // Not the first frame, whose loss is another message.
    for index in 1..count {
        let rest = |from: usize| bytes[starts[from]..].to_vec();
        let removed = [bytes[..starts[index]].to_vec(), rest(index + 1)].concat();
        let repeated = [bytes[..starts[index + 1]].to_vec(), rest(index)].concat();
        let mut variants = vec![removed, repeated];
        if index + 1 < count {
            variants.push([&bytes[..starts[index]], frame(index + 1), frame(index), &rest(index + 2)].concat());
        }
        for variant in variants {
            read(&variant).unwrap_err();
            refused += 1;
        }
    }
    assert!(refused > 40, "{refused}");
    let said = read(&[&bytes[..starts[3]], &bytes[starts[4]..]].concat()).unwrap_err().to_string();
    assert!(said.contains("missing, added or in another order"), "{said}");
}
