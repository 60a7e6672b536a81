//! A damaged store: what is damaged is named, and everything else is read.
//!
//! `STORE_FLIPS` is the number of bytes that are changed in each file, one at a time; `all` for every byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{commit, delete, dump, put};
use tally_store::salvage::{DamagedObject, Inspection, inspect};
use tally_store::{Expect, OpenError, Store, StoreOptions};
use xxhash_rust::xxh3::xxh3_64;

type Dump = Vec<(String, u64, String)>;
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// The most objects that one changed byte can touch.
const MOST_LOST: usize = 1;

/// The files of a closed store, and its content.
fn picture(merge_bytes: usize, writes: usize, size: usize) -> (Files, Dump) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), StoreOptions { merge_bytes, ..StoreOptions::default() }).unwrap();
    for step in 0..writes {
        let key = format!("pods/a/{:03}", step * 7 % 61);
        let value = format!("{step}:{}", "x".repeat(size));
        match store.get(&key) {
            None => commit(&store, put(&key, Expect::Absent, &value)),
            Some(there) if step % 3 == 0 => commit(&store, delete(&key, there.revision, "gone")),
            Some(there) => commit(&store, put(&key, Expect::At(there.revision), &value)),
        }
        .unwrap();
    }
    let content = dump(&store);
    drop(store);
    let mut files = Files::new();
    walk(dir.path(), dir.path(), &mut files);
    (files, content)
}

fn walk(dir: &Path, root: &Path, files: &mut Files) {
    for item in fs::read_dir(dir).unwrap() {
        let path = item.unwrap().path();
        if path.is_dir() {
            walk(&path, root, files);
            continue;
        }
        let mut bytes = fs::read(&path).unwrap();
        if path.extension().is_some_and(|extension| extension == "log") {
            // The file is allocated before it is written.
            bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        }
        // The content of a lock has no meaning.
        if path.file_name().unwrap() != "lock" {
            files.insert(path.strip_prefix(root).unwrap().into(), bytes);
        }
    }
}

fn write_all(files: &Files) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, bytes) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    dir
}

/// What can be read.
fn readable(found: &Inspection) -> Dump {
    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
    found.entries().map(|entry| (entry.key.to_string(), entry.revision, text(&entry.value))).collect()
}

/// Makes a store of what can be read, and returns its content.
fn salvaged(found: &Inspection) -> Dump {
    let dir = tempfile::tempdir().unwrap();
    found.build(dir.path(), found.revision + 1000).unwrap();
    let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
    assert_eq!(store.revision(), found.revision + 1000);
    dump(&store)
}

fn pictures() -> [(Files, Dump); 4] {
    // A log only; a state only; both; large values.
    let both = picture(8 * 1024, 400, 300);
    [picture(1 << 20, 90, 60), without_log(&both.0), both, picture(64 * 1024, 150, 9000)]
}

/// The file `head` with this revision in both copies.
fn head(revision: u64) -> Vec<u8> {
    let mut slot = b"tallyhd\x02\x01\0\0\0\0\0\0\0".to_vec();
    slot.extend(revision.to_le_bytes());
    slot.extend(xxh3_64(&slot).to_le_bytes());
    slot.resize(4096, 0);
    slot.repeat(2)
}

/// The number of a file, with this extension.
fn number(path: &Path, extension: &str) -> Option<u64> {
    path.file_name()?.to_str()?.strip_suffix(extension)?.strip_suffix('.')?.parse().ok()
}

/// The same store as it was when its state had been written.
fn without_log(files: &Files) -> (Files, Dump) {
    let state = files.keys().find_map(|path| number(path, "state")).expect("a state");
    let mut files = files.clone();
    files.retain(|path, _| number(path, "log").is_none_or(|log| log == state + 1));
    files.iter_mut().filter(|(path, _)| number(path, "log").is_some()).for_each(|(_, bytes)| bytes.truncate(24));
    for revision in (1..402).rev() {
        files.insert("head".into(), head(revision));
        let found = inspect(write_all(&files).path()).unwrap();
        if found.is_sound() {
            assert!(found.readable() > 20, "{}", found.readable());
            return (files, readable(&found));
        }
    }
    panic!("the state alone is no store");
}

#[test]
fn a_store_that_is_not_damaged_is_sound_and_read_completely() {
    for (files, content) in pictures() {
        let dir = write_all(&files);
        let found = inspect(dir.path()).unwrap();
        assert!(found.is_sound() && found.complete, "{:?} {:?}", found.damages, found.objects);
        assert_eq!(found.unfinished, None);
        assert_eq!((found.readable(), found.expected), (content.len(), Some(content.len() as u64)));
        assert_eq!(salvaged(&found), content);
        let mut after = Files::new();
        walk(dir.path(), dir.path(), &mut after);
        assert_eq!(after, files, "nothing was changed");
    }
}

fn offsets(length: usize) -> Vec<usize> {
    let wanted = std::env::var("STORE_FLIPS").unwrap_or_else(|_| "40".to_owned());
    match wanted.parse::<usize>() {
        Ok(count) if count < length => {
            // The ends of a file have headers and trailers.
            let mut all: Vec<usize> = (0..count).map(|step| step * length / count).collect();
            all.extend([1, 2, length / 3, length - 1, length - 2]);
            all
        }
        _ => (0..length).collect(),
    }
}

#[test]
fn one_changed_byte_is_named_and_loses_only_what_it_touches() {
    let (mut flips, mut lost, mut older, mut harmless, mut named_objects, mut unknown) = (0, 0, 0, 0, 0, 0);
    for (files, content) in pictures() {
        let expected: BTreeMap<&str, &(String, u64, String)> =
            content.iter().map(|entry| (entry.0.as_str(), entry)).collect();
        for (path, whole) in &files {
            for at in offsets(whole.len()) {
                let mut files = files.clone();
                files.get_mut(path).unwrap()[at] ^= 0x10;
                let dir = write_all(&files);
                let note = format!("{} at byte {at} of {}", path.display(), whole.len());
                let found = match inspect(dir.path()) {
                    Ok(found) => found,
                    Err(error) => panic!("{note}: {error}"),
                };
                flips += 1;
                let after = readable(&found);
                let named =
                    found.damages.iter().chain(&found.unfinished).any(|damage| damage.path == dir.path().join(path));
                let after: BTreeMap<&str, &(String, u64, String)> =
                    after.iter().map(|entry| (entry.0.as_str(), entry)).collect();
                let differs: Vec<&str> = expected
                    .keys()
                    .chain(after.keys())
                    .copied()
                    .filter(|key| after.get(key) != expected.get(key))
                    .collect::<std::collections::BTreeSet<_>>()
                    .into_iter()
                    .collect();
                // A log that was just begun has nothing to lose.
                assert!(named || whole.len() == 24, "{note}: {:?}", found.damages);
                harmless += usize::from(differs.is_empty());
                assert!(differs.len() <= MOST_LOST, "{note}: {differs:?}");
                assert!(!found.complete || differs.is_empty(), "{note}: {differs:?}");
                // If the newest account is damaged, it is not known that everything is there.
                unknown += usize::from(!found.complete && differs.is_empty());
                assert!(found.complete || !differs.is_empty() || found.expected.is_none(), "{note}");
                for object in &found.objects {
                    match object {
                        DamagedObject::Lost { .. } => lost += 1,
                        DamagedObject::Older { key, revision } => {
                            older += 1;
                            assert_eq!(after[key.as_str()].1, *revision, "{note}");
                        }
                    }
                }
                let listed = |key: &str| {
                    found.objects.iter().any(|object| match object {
                        DamagedObject::Lost { key: listed } | DamagedObject::Older { key: listed, .. } => listed == key,
                    })
                };
                named_objects += differs.iter().filter(|key| listed(key)).count();
            }
        }
    }
    println!(
        "{flips} changed bytes, {harmless} without a loss; objects: {lost} lost, {older} older, {named_objects} named; {unknown} without an account"
    );
    assert!(flips > 300 && harmless < flips && lost > 0 && older > 0, "{flips} {harmless} {lost} {older}");
}

#[test]
fn missing_files_are_named_and_the_rest_is_read() {
    let (files, content) = picture(8 * 1024, 400, 300);
    for path in files.keys() {
        let mut files = files.clone();
        files.remove(path);
        let dir = write_all(&files);
        let found = inspect(dir.path()).unwrap();
        let missing = dir.path().join(path);
        let named = found.damages.iter().any(|damage| {
            damage.path == missing
                || Some(damage.path.as_path()) == missing.parent()
                || damage.path.parent() == missing.parent()
        });
        assert!(named, "{}: {:?}", path.display(), found.damages);
        if path == Path::new("head") {
            assert_eq!(readable(&found), content);
        }
        assert_eq!(found.complete, readable(&found) == content, "{}", path.display());
    }
}

#[test]
fn a_truncated_log_loses_only_its_end() {
    let (mut files, content) = picture(1 << 20, 90, 60);
    let path = Path::new("log/1.log").to_owned();
    let whole = files[&path].clone();
    for length in (whole.len() / 2..whole.len()).step_by(97) {
        files.insert(path.clone(), whole[..length].to_vec());
        let dir = write_all(&files);
        let found = inspect(dir.path()).unwrap();
        assert!(!found.complete, "cut at {length}: the head says that more was acknowledged");
        let after = readable(&found);
        assert!(after.len() > content.len() / 3, "cut at {length}: {} of {}", after.len(), content.len());
    }
}

#[test]
fn a_directory_without_a_store_or_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(inspect(dir.path()), Err(OpenError::NoStore { .. })));
    assert!(matches!(inspect(&dir.path().join("no")), Err(OpenError::NoStore { .. })));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
    assert!(matches!(inspect(dir.path()), Err(OpenError::Held { .. })));
    drop(store);
    assert!(inspect(dir.path()).unwrap().is_sound());
}

/// What another version has written is not damage, and a copy of the part that this one understands would be a loss.
#[test]
fn a_store_of_a_newer_version_is_refused_by_all_who_open_it() {
    let (whole, _) = picture(1 << 20, 90, 60);
    let newer = |files: &Files, known: u8| {
        let dir = write_all(files);
        let opened = [
            Store::open(dir.path(), StoreOptions::default()).map(drop),
            Store::open_to_read(dir.path(), StoreOptions::default()).map(drop),
            inspect(dir.path()).map(drop),
        ];
        for result in opened {
            let error = result.unwrap_err();
            let expected =
                matches!(error, OpenError::Newer { found, known: told, .. } if (found, told) == (known + 1, known));
            assert!(expected, "{error}");
            assert!(error.to_string().ends_with("; use that version"), "{error}");
        }
        let mut after = Files::new();
        walk(dir.path(), dir.path(), &mut after);
        assert_eq!(&after, files, "nothing was changed");
    };
    let mut files = whole.clone();
    let head = files.get_mut(Path::new("head")).unwrap();
    (head[7], head[4096 + 7]) = (3, 3);
    newer(&files, 2);

    // A log whose groups this version cannot read.
    let mut files = whole.clone();
    let log = files.get_mut(Path::new("log/1.log")).unwrap();
    log[7] = 2;
    let sum = xxh3_64(&log[..16]).to_le_bytes();
    log[16..24].copy_from_slice(&sum);
    log[24..].fill(0xa5);
    newer(&files, 1);
}

/// With the checksum of the group, as only another version can write it.
#[test]
fn a_record_of_a_newer_version_is_refused_by_all_who_open_it() {
    let group = |account: Vec<u8>, record: &[u8]| {
        let item =
            [&b"p"[..], &8_u16.to_le_bytes(), &(record.len() as u32).to_le_bytes(), b"pods/a/1", record].concat();
        let mut group = [&account[..], &(item.len() as u32).to_le_bytes(), &item].concat();
        group.extend(xxh3_64(&group).to_le_bytes());
        group
    };
    let account = |format: u8, objects: u64| {
        let mut account = [&b"\xff\xfeacct\xff"[..], &[format]].concat();
        [3, 2, objects, 7].iter().for_each(|number: &u64| account.extend(number.to_le_bytes()));
        account.extend(xxh3_64(&account).to_le_bytes());
        account
    };
    let newer = [group(account(1, 2), &[&[2][..], &[0; 40]].concat()), group(account(2, 2), &[1; 40])];
    for newer in newer {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
        commit(&store, put("pods/a/2", Expect::Absent, "x")).unwrap();
        drop(store);
        let path = dir.path().join("log/1.log");
        let mut log = fs::read(&path).unwrap();
        log.truncate(log.iter().rposition(|byte| *byte != 0).unwrap() + 1);
        log.extend(newer);
        fs::write(&path, log).unwrap();
        let opened = [
            inspect(dir.path()).map(drop),
            Store::open(dir.path(), StoreOptions::default()).map(drop),
            Store::open_to_read(dir.path(), StoreOptions::default()).map(drop),
        ];
        for result in opened {
            let error = result.unwrap_err();
            assert!(matches!(error, OpenError::Newer { found: 2, known: 1, .. }), "{error}");
        }
    }
}
