//! A store of the first format, as commit c344d07 has left it when it was killed in a write: it is converted, or refused
//! and not changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{commit, dump, put};
use tally_store::salvage::inspect;
use tally_store::{Expect, OpenError, Store, StoreOptions};

type Dump = Vec<(String, u64, String)>;
type Files = BTreeMap<PathBuf, Vec<u8>>;

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tally/tests/fixtures/c344d07/up.tar.gz");

/// The files of the store, without the lock.
fn fixture() -> Files {
    let dir = tempfile::tempdir().unwrap();
    let unpacked = Command::new("tar").arg("-xzf").arg(FIXTURE).arg("-C").arg(dir.path()).status().unwrap();
    assert!(unpacked.success());
    let mut files = files_in(&dir.path().join("up/store"));
    assert!(files.contains_key(Path::new("engine/version")), "{:?}", files.keys());
    // The engine allocates its journals before it writes them.
    for (path, bytes) in files.iter_mut().filter(|(path, _)| path.extension().is_some_and(|it| it == "jnl")) {
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        bytes.truncate(end);
        assert!(end > 0, "{}", path.display());
    }
    files
}

fn files_in(root: &Path) -> Files {
    fn walk(dir: &Path, root: &Path, files: &mut Files) {
        for item in fs::read_dir(dir).unwrap() {
            let path = item.unwrap().path();
            if path.is_dir() {
                walk(&path, root, files);
            } else if path.file_name().unwrap() != "lock" {
                files.insert(path.strip_prefix(root).unwrap().into(), fs::read(&path).unwrap());
            }
        }
    }
    let mut files = Files::new();
    walk(root, root, &mut files);
    files
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

fn readable(dir: &Path) -> Dump {
    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
    let found = inspect(dir).unwrap();
    found.entries().map(|entry| (entry.key.to_string(), entry.revision, text(&entry.value))).collect()
}

fn open(dir: &Path) -> Result<Dump, OpenError> {
    let store = Store::open(dir, StoreOptions::default())?;
    let found = dump(&store);
    commit(&store, put("pods/new/1", Expect::Absent, "x")).unwrap();
    Ok(found)
}

#[test]
fn a_store_of_the_first_format_is_converted_when_it_is_opened() {
    let dir = write_all(&fixture());
    let found = inspect(dir.path()).unwrap();
    assert!(found.is_sound(), "{:?}", found.damages);
    let (content, revision) = (readable(dir.path()), found.revision);
    assert!(content.len() > 50, "{}", content.len());
    // Who only reads converts nothing.
    let before = files_in(dir.path());
    let store = Store::open_to_read(dir.path(), StoreOptions::default()).unwrap();
    assert_eq!((dump(&store), store.revision()), (content.clone(), revision));
    drop(store);
    assert_eq!(files_in(dir.path()), before);

    let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
    assert_eq!((dump(&store), store.revision()), (content.clone(), revision));
    let next = commit(&store, put("pods/new/1", Expect::Absent, "x")).unwrap();
    assert_eq!(next.revision, revision + 1);
    drop(store);
    assert!(!dir.path().join("engine").exists());
    let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
    assert_eq!((dump(&store).len(), store.revision()), (content.len() + 1, revision + 1));
}

#[test]
fn a_conversion_that_was_killed_is_done_again_or_completed() {
    let files = fixture();
    let converted = write_all(&files);
    let content = readable(converted.path());
    Store::open(converted.path(), StoreOptions::default()).unwrap().close();
    let converted = files_in(converted.path());
    // Before the head was written: a log that is complete, or is not, does not count.
    for cut in [10, usize::MAX] {
        let mut killed = files.clone();
        for (path, bytes) in converted.iter().filter(|(path, _)| path.starts_with("log")) {
            killed.insert(path.clone(), bytes[..bytes.len().min(cut)].to_vec());
        }
        let dir = write_all(&killed);
        assert_eq!(readable(dir.path()), content);
        assert_eq!(open(dir.path()).unwrap(), content);
    }
    // After that: the engine does not count.
    let mut killed = files.clone();
    killed.extend(converted);
    killed.remove(Path::new("engine/version"));
    let dir = write_all(&killed);
    assert_eq!(readable(dir.path()), content);
    assert_eq!(open(dir.path()).unwrap(), content);
    assert!(!dir.path().join("engine").exists());
}

#[test]
fn a_damaged_store_of_the_first_format_is_refused_or_the_damage_does_not_matter() {
    let files = fixture();
    let content = readable(write_all(&files).path());
    let (mut refused, mut harmless) = (0, 0);
    for (path, whole) in &files {
        let flips = (0..24_usize).map(|step| {
            let mut changed = whole.clone();
            let at = step * (whole.len() - 1) / 23;
            changed[at] ^= 0x10;
            Some(changed)
        });
        for changed in flips.chain([Some(whole[..whole.len() / 2].to_vec()), None]) {
            let mut files = files.clone();
            match changed {
                Some(changed) => drop(files.insert(path.clone(), changed)),
                None => drop(files.remove(path)),
            }
            let dir = write_all(&files);
            match open(dir.path()) {
                Ok(found) => {
                    assert_eq!(found, content, "{}", path.display());
                    harmless += 1;
                }
                Err(error) => {
                    assert!(matches!(error, OpenError::Damaged { .. } | OpenError::Newer { .. }), "{error}");
                    assert_eq!(files_in(dir.path()), files, "{}", path.display());
                    refused += 1;
                }
            }
        }
    }
    println!("{refused} refused, {harmless} harmless");
    assert!(refused > 3 * harmless, "{refused} refused, {harmless} harmless");
}

#[test]
fn one_copy_of_the_head_is_enough() {
    for at in [20, 4096 + 20] {
        let mut files = fixture();
        let content = readable(write_all(&files).path());
        files.get_mut(Path::new("head")).unwrap()[at] ^= 1;
        assert_eq!(open(write_all(&files).path()).unwrap(), content);
    }
}
