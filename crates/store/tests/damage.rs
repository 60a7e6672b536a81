//! Damaged, foreign and half-created stores are opened with their data intact, or refused with a reason and not
//! changed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{commit, delete, dump, put};
use tally_store::{Expect, FIRST, OpenError, Store, StoreOptions};
use xxhash_rust::xxh3::xxh3_64;

type Dump = Vec<(String, u64, String)>;
/// The files of a directory by their relative path.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// The files of a store, and its content after each group.
struct Picture {
    files: Files,
    states: Vec<Dump>,
}

/// Writes one by one, so that each write is a group of its own. The store is closed before its files are read, because
/// logs are merged beside the writer.
fn picture(merge_bytes: usize, writes: usize, size: usize) -> Picture {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), StoreOptions { merge_bytes, ..StoreOptions::default() }).unwrap();
    let mut states = vec![dump(&store)];
    for step in 0..writes {
        let key = format!("pods/a/{}", step * 5 % 7);
        let value = "x".repeat(size);
        match store.get(&key) {
            None => commit(&store, put(&key, Expect::Absent, &value)),
            Some(there) if step % 3 == 0 => commit(&store, delete(&key, there.revision, "gone")),
            Some(there) => commit(&store, put(&key, Expect::At(there.revision), &value)),
        }
        .unwrap();
        states.push(dump(&store));
    }
    drop(store);
    Picture { files: read_all(dir.path()), states }
}

fn read_all(dir: &Path) -> Files {
    fn walk(dir: &Path, root: &Path, files: &mut Files) {
        for item in fs::read_dir(dir).unwrap() {
            let path = item.unwrap().path();
            if path.is_dir() {
                walk(&path, root, files);
            } else {
                let mut bytes = fs::read(&path).unwrap();
                if path.extension().is_some_and(|extension| extension == "log") {
                    // The file is allocated before it is written.
                    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
                }
                files.insert(path.strip_prefix(root).unwrap().into(), bytes);
            }
        }
    }
    let mut files = Files::new();
    walk(dir, dir, &mut files);
    // This file contains the PID of the last owner, which may change.
    files.remove(Path::new("lock"));
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

fn open(dir: &Path) -> Result<Dump, OpenError> {
    let store = Store::open(dir, StoreOptions::default())?;
    let found = dump(&store);
    // A store that opens also accepts writes.
    let key = "pods/new/1";
    let made = commit(&store, put(key, Expect::Absent, "x")).unwrap();
    commit(&store, delete(key, made.revision, "x")).unwrap();
    Ok(found)
}

/// Opens a store with these files. If it is refused, the files must be unchanged.
fn open_files(files: &Files, note: &str) -> Result<Dump, OpenError> {
    let dir = write_all(files);
    let outcome = open(dir.path());
    if let Err(error) = &outcome {
        assert!(matches!(error, OpenError::Damaged { .. } | OpenError::Newer { .. }), "{note}: {error}");
        let after = read_all(dir.path());
        assert_eq!(&after, files, "{note}: refused, but changed: {error}");
    }
    outcome
}

/// The log that was written last.
fn last_log(files: &Files) -> PathBuf {
    let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
    let logs = files.keys().filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.max_by_key(|path| number(path)).unwrap().clone()
}

fn is_state(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "state")
}

/// The file `head` with this mark in both slots.
fn head(made: bool, revision: u64) -> Vec<u8> {
    let mut slot = b"tallyhd\x02".to_vec();
    slot.extend([u8::from(made), 0, 0, 0, 0, 0, 0, 0]);
    slot.extend(revision.to_le_bytes());
    slot.extend(xxh3_64(&slot).to_le_bytes());
    slot.resize(4096, 0);
    slot.repeat(2)
}

#[test]
fn untouched_files_open_as_they_were() {
    for merge_bytes in [1 << 20, 8 * 1024] {
        let Picture { files, states } = picture(merge_bytes, 100, 1000);
        assert_eq!(&open_files(&files, "untouched").unwrap(), states.last().unwrap());
    }
}

#[test]
fn log_cut_anywhere_before_the_acknowledged_end_is_refused() {
    let Picture { mut files, .. } = picture(1 << 20, 6, 20);
    let path = last_log(&files);
    let whole = files[&path].clone();
    for length in 0..whole.len() {
        files.insert(path.clone(), trimmed(&whole[..length]));
        assert!(open_files(&files, &format!("cut at {length}")).is_err(), "cut at {length}");
    }
}

#[test]
fn log_changed_anywhere_is_refused_or_does_not_matter() {
    let Picture { mut files, states } = picture(1 << 20, 6, 20);
    let path = last_log(&files);
    let whole = files[&path].clone();
    for at in 0..whole.len() {
        for bit in [0x01, 0x80] {
            let mut changed = whole.clone();
            changed[at] ^= bit;
            files.insert(path.clone(), trimmed(&changed));
            if let Ok(found) = open_files(&files, &format!("{at} changed by {bit}")) {
                assert_eq!(&found, states.last().unwrap(), "byte {at} changed by {bit}");
            }
        }
    }
}

/// After a power cut the head may lag. Then a truncated file looks like one that never continued, but it contains whole
/// groups. Of all damage with more data after it, only damage to the last group can be mistaken for a write in
/// progress.
#[test]
fn with_a_head_that_lags_there_are_whole_groups_and_no_holes() {
    let Picture { mut files, states } = picture(1 << 20, 6, 20);
    files.insert("head".into(), head(true, FIRST));
    let path = last_log(&files);
    let whole = files[&path].clone();
    for length in (0..whole.len()).step_by(11) {
        files.insert(path.clone(), trimmed(&whole[..length]));
        // A truncated log may be accepted, but never with part of a group.
        if let Ok(found) = open_files(&files, &format!("cut at {length}")) {
            assert!(states.contains(&found), "cut at {length}");
        }
    }
    let mut shortened = 0;
    for at in (0..whole.len()).step_by(3) {
        let mut changed = whole.clone();
        changed[at] ^= 0x01;
        files.insert(path.clone(), trimmed(&changed));
        match open_files(&files, &format!("{at} changed")) {
            Ok(found) if found == states[states.len() - 2] => shortened += 1,
            Ok(found) => assert_eq!(&found, states.last().unwrap(), "byte {at}"),
            Err(_) => {}
        }
    }
    // A lost page in the middle: the data after it does not follow the data before it.
    for at in (0..whole.len() - 500).step_by(41) {
        let mut holed = whole.clone();
        holed[at..at + 350].fill(0);
        files.insert(path.clone(), holed);
        assert!(open_files(&files, &format!("hole at {at}")).is_err(), "hole at {at}");
    }
    assert!(shortened > 0 && shortened < whole.len() / 12, "{shortened} of {} changes", whole.len());
}

#[test]
fn torn_write_that_was_not_acknowledged_is_cut_off() {
    // The head records all groups but the last.
    let Picture { mut files, states } = picture(1 << 20, 5, 300);
    files.insert("head".into(), head(true, FIRST + 4));
    let path = last_log(&files);
    let whole = files[&path].clone();
    for cut in [1, 10, 100, 300] {
        let mut torn = whole[..whole.len() - cut].to_vec();
        files.insert(path.clone(), trimmed(&torn));
        assert_eq!(open_files(&files, "torn").unwrap(), states[4]);
        // Pages of a write reach the disk in any order: the end may be there and the middle missing.
        torn = whole.clone();
        let end = torn.len() - cut;
        torn[end - 20..end].fill(0);
        files.insert(path.clone(), torn);
        assert_eq!(open_files(&files, "torn in the middle").unwrap(), states[4]);
    }
}

#[test]
fn a_state_changed_cut_or_missing_is_refused() {
    // Enough writes that logs were merged.
    let Picture { files, states } = picture(8 * 1024, 120, 1500);
    let path = files.keys().find(|path| is_state(path)).expect("a state").clone();
    let whole = &files[&path];
    let cuts = (0..whole.len()).step_by(97).map(|length| Some(whole[..length].to_vec()));
    let changes = (0..whole.len()).step_by(31).map(|at| {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        Some(changed)
    });
    let longer = [Some([&whole[..], b"x"].concat()), None];
    for (step, bytes) in cuts.chain(changes).chain(longer).enumerate() {
        let mut files = files.clone();
        match bytes {
            Some(bytes) => drop(files.insert(path.clone(), bytes)),
            None => drop(files.remove(&path)),
        }
        let error = open_files(&files, &format!("variant {step}")).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    }
    assert_eq!(&open_files(&files, "untouched").unwrap(), states.last().unwrap());
}

#[test]
fn an_older_log_or_an_older_state_is_noticed() {
    let (early, late) = (picture(8 * 1024, 60, 1500), picture(8 * 1024, 120, 1500));
    // An old log with the current state and head, and the reverse; also under the name that the header says.
    let mut mixed = late.files.clone();
    mixed.insert(last_log(&mixed), early.files[&last_log(&early.files)].clone());
    assert!(matches!(open_files(&mixed, "an older log"), Err(OpenError::Damaged { .. })));
    let mut mixed: Files = late.files.clone().into_iter().filter(|(path, _)| !is_state(path)).collect();
    mixed.extend(early.files.clone().into_iter().filter(|(path, _)| is_state(path)));
    assert!(matches!(open_files(&mixed, "an older state"), Err(OpenError::Damaged { .. })));
    let mut mixed = early.files;
    mixed.insert("head".into(), late.files[Path::new("head")].clone());
    assert!(matches!(open_files(&mixed, "all but the head is older"), Err(OpenError::Damaged { .. })));
}

/// With no whole group in the log, only the state shows what was acknowledged.
#[test]
fn a_log_with_nothing_whole_in_it_counts_if_nothing_was_acknowledged_in_it() {
    let Picture { mut files, states } = picture(8 * 1024, 120, 1500);
    let path = files.keys().find(|path| is_state(path)).expect("a state").clone();
    let next = path.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap() + 1;
    let first = path.with_file_name(format!("{next}.log"));
    files.retain(|path, _| path.extension().is_none_or(|it| it != "log") || *path == first);
    let cut = files[&first].len().min(500);
    files.get_mut(&first).unwrap().truncate(cut);
    assert!(matches!(open_files(&files, "something was acknowledged"), Err(OpenError::Damaged { .. })));
    files.insert("head".into(), head(true, FIRST));
    let found = open_files(&files, "nothing was acknowledged").unwrap();
    assert!(states.contains(&found) && !found.is_empty());
}

/// What a crash in a merge leaves: a state that is not complete, and logs that are merged already.
#[test]
fn what_a_merge_has_left_does_not_count_and_goes() {
    let Picture { mut files, states } = picture(8 * 1024, 120, 1500);
    let state = files.keys().find(|path| is_state(path)).expect("a state").clone();
    let number = state.file_stem().unwrap().to_str().unwrap().to_owned();
    let stale = [
        (state.with_file_name(format!("{number}.log")), b"old".to_vec()),
        (state.with_file_name("0.state"), files[&state].clone()),
        (state.with_file_name("999.state.new"), files[&state][..200].to_vec()),
    ];
    files.extend(stale.clone());
    let dir = write_all(&files);
    assert_eq!(&open(dir.path()).unwrap(), states.last().unwrap());
    let after = read_all(dir.path());
    assert!(stale.iter().all(|(path, _)| !after.contains_key(path)), "{:?}", after.keys());
}

#[test]
fn head_or_log_missing_or_unreadable_is_refused() {
    let Picture { files, .. } = picture(1 << 20, 3, 20);
    let with = |path: &str, bytes: Option<&[u8]>| {
        let mut files = files.clone();
        files.remove(Path::new(path));
        files.extend(bytes.map(|bytes| (path.into(), bytes.to_vec())));
        open_files(&files, path).unwrap_err().to_string()
    };
    for (path, bytes, says) in [
        ("head", None, "`head` is missing"),
        ("head", Some(&b"nonsense"[..]), "`head` cannot be read"),
        ("head", Some(&head(true, 1000)), "1000 had been acknowledged"),
        ("log/1.log", None, "log is missing"),
        ("log/1.log", Some(b"junk"), "had been acknowledged"),
        ("log/1.log", Some(&[b'x'; 100]), "1.log is broken at byte 0"),
        ("head", Some(b"tallyhd\x03 of a later time"), "format 3, this one knows 2"),
    ] {
        let error = with(path, bytes);
        assert!(error.contains(says), "{path}: {error}");
    }
    let only_head: Files = files.clone().into_iter().filter(|(path, _)| !path.starts_with("log")).collect();
    let error = open_files(&only_head, "no log").unwrap_err().to_string();
    assert!(error.contains("missing"), "{error}");
}

#[test]
fn store_that_was_half_made_is_made_again() {
    let Picture { mut files, .. } = picture(1 << 20, 0, 0);
    files.insert("head".into(), head(false, FIRST));
    files.remove(Path::new("log/1.log"));
    assert_eq!(open_files(&files, "half made").unwrap(), []);
    files.retain(|path, _| path == Path::new("head"));
    assert_eq!(open_files(&files, "hardly made").unwrap(), []);
}

#[test]
fn second_opening_is_refused_until_the_first_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b");
    let store = Store::open(&path, StoreOptions::default()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    commit(&store, put("pods/a/1", Expect::Absent, "x")).unwrap();
    let before = read_all(&path);
    let Err(OpenError::Held { pid, .. }) = Store::open(&path, StoreOptions::default()).map(drop) else {
        panic!("two have it open")
    };
    assert_eq!(pid, Some(std::process::id()));
    assert_eq!(read_all(&path), before);
    let expected = dump(&store);
    store.close();
    // The store is closed but the handle is not dropped: reads continue.
    assert_eq!(dump(&store), expected);
    assert_eq!(open(&path).unwrap(), expected);
}

#[test]
fn a_directory_that_was_opened_to_others_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    Store::open(&path, StoreOptions::default()).unwrap().close();
    for wide in [0o777, 0o750, 0o701] {
        fs::set_permissions(&path, fs::Permissions::from_mode(wide)).unwrap();
        Store::open_to_read(&path, StoreOptions::default()).unwrap().close();
        assert_eq!(mode(), wide, "who only reads changes nothing");
        Store::open(&path, StoreOptions::default()).unwrap().close();
        assert_eq!(mode(), 0o700);
    }
}

#[test]
fn path_that_is_a_file_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for path in [file.path().to_owned(), file.path().join("below")] {
        let error = Store::open(&path, StoreOptions::default()).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::NotADirectory { .. }), "{error}");
    }
    assert_eq!(fs::read(file.path()).unwrap(), b"");
}

/// Does the work of the test below as a user who is not root.
#[test]
#[ignore = "started by the test below, as another user"]
fn opens_what_it_may_not_write() {
    let path = std::env::var("STORE_DIR").expect("started by the test below");
    let error = Store::open(Path::new(&path), StoreOptions::default()).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::NotWritable { .. }), "{error}");
}

#[test]
fn directory_that_is_not_writable_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("closed");
    fs::create_dir(&place).unwrap();
    // A directory that another user can access.
    let program = dir.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    for (path, mode) in [(dir.path(), 0o755), (&*program, 0o755), (&*place, 0o555)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    for path in [place.clone(), place.join("new")] {
        let mut command = Command::new(&program);
        command.args(["--exact", "opens_what_it_may_not_write", "--ignored"]).env("STORE_DIR", &path);
        if fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0) {
            command.uid(65534);
        }
        assert!(command.current_dir("/").status().unwrap().success(), "{path:?}");
    }
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
}

#[test]
fn revisions_go_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
    let made = commit(&store, put("pods/a/1", Expect::Absent, "x")).unwrap();
    let gone = commit(&store, delete("pods/a/1", made.revision, "x")).unwrap();
    drop(store);
    let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
    assert_eq!((store.revision(), store.compacted()), (gone.revision, gone.revision));
    assert!(store.watch("pods/", gone.revision - 1).is_err(), "the history is not kept");
    assert!(store.watch("pods/", gone.revision).is_ok());
    let next = commit(&store, put("pods/a/1", Expect::Absent, "x")).unwrap();
    assert_eq!(next.revision, gone.revision + 1);
}

#[test]
fn writes_of_one_group_to_one_key_are_read_back_as_the_last_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut expected = Dump::new();
    for round in 0..8 {
        let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
        assert_eq!(dump(&store), expected);
        for (key, revision, _) in expected {
            commit(&store, delete(&key, revision, "gone")).unwrap();
        }
        let first = store.revision() + 1;
        // The writes are submitted at once and in order, so that those that wait for the disk form groups.
        let waiting = (0..40 + round).map(|step| {
            let key = format!("pods/a/{}", step % 2);
            // Each of the two keys is created, updated twice, deleted, and so on.
            let there = first + step - 2;
            let write = match step / 2 % 4 {
                0 => put(&key, Expect::Absent, "made"),
                3 => delete(&key, there, "gone"),
                _ => put(&key, Expect::At(there), "changed"),
            };
            let store = store.clone();
            runtime.spawn(async move { store.commit(write).await })
        });
        for (task, revision) in waiting.collect::<Vec<_>>().into_iter().zip(first..) {
            assert_eq!(runtime.block_on(task).unwrap().unwrap().revision, revision);
        }
        expected = dump(&store);
    }
}

/// The bytes without the zeros at the end, as in the pictures.
fn trimmed(bytes: &[u8]) -> Vec<u8> {
    bytes[..bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)].to_vec()
}

/// A roll to the next log failed, or was killed, and the log before it was continued: its torn end is at the end.
#[test]
fn a_torn_write_before_a_log_that_was_only_begun_is_cut_off() {
    let Picture { mut files, states } = picture(1 << 20, 5, 300);
    files.insert("head".into(), head(true, FIRST + 4));
    let path = last_log(&files);
    let torn = files[&path].len() - 100;
    files.get_mut(&path).unwrap().truncate(torn);
    for begun in [&b""[..], b"tallylg\x01"] {
        files.insert("log/2.log".into(), begun.to_vec());
        assert_eq!(open_files(&files, "a torn end").unwrap(), states[4]);
        assert!(tally_store::salvage::inspect(write_all(&files).path()).unwrap().is_sound());
    }
}

#[test]
fn a_head_that_was_created_and_not_written_is_no_store() {
    for bytes in [vec![], vec![0; 8192]] {
        let files = Files::from([("head".into(), bytes)]);
        assert_eq!(open_files(&files, "just created").unwrap(), []);
    }
}

#[test]
fn a_missing_group_is_noticed_although_its_objects_were_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
    let path = dir.path().join("log/1.log");
    let mut ends = Vec::new();
    let mut there = None;
    for _ in 0..4 {
        let expect = there.map_or(Expect::Absent, Expect::At);
        there = Some(commit(&store, put("pods/a/1", expect, "x")).unwrap().revision);
        ends.push(trimmed(&fs::read(&path).unwrap()).len());
    }
    drop(store);
    let log = fs::read(&path).unwrap();
    fs::write(&path, [&log[..ends[0]], &log[ends[1]..]].concat()).unwrap();
    assert!(!tally_store::salvage::inspect(dir.path()).unwrap().is_sound());
    assert!(matches!(open(dir.path()), Err(OpenError::Damaged { .. })));
}

#[test]
fn a_file_with_another_name_is_no_log_and_one_with_a_great_number_is_damage() {
    for (name, refused) in
        [("01.log", false), ("+1.log", false), ("x.log", false), ("18446744073709551615.state", true)]
    {
        let Picture { mut files, states } = picture(1 << 20, 5, 20);
        files.insert(Path::new("log").join(name), Vec::new());
        let opened = open(write_all(&files).path());
        match refused {
            true => assert!(matches!(opened, Err(OpenError::Damaged { .. })), "{name}"),
            false => assert_eq!(&opened.unwrap(), states.last().unwrap(), "{name}"),
        }
    }
}

/// Files that were removed by merges come back, as after a power cut that loses what was done to the directory.
#[test]
fn logs_that_were_merged_do_not_count_whichever_of_them_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), StoreOptions { merge_bytes: 8 * 1024, ..StoreOptions::default() }).unwrap();
    let mut seen = Files::new();
    for step in 0..200 {
        let key = format!("pods/a/{}", step % 7);
        let write = match store.get(&key) {
            None => put(&key, Expect::Absent, &"x".repeat(900)),
            Some(there) if step % 3 == 0 => delete(&key, there.revision, "gone"),
            Some(there) => put(&key, Expect::At(there.revision), &"y".repeat(900)),
        };
        commit(&store, write).unwrap();
        for item in fs::read_dir(dir.path().join("log")).unwrap() {
            let path = item.unwrap().path();
            // A merge may remove it meanwhile.
            seen.extend(fs::read(&path).map(|bytes| (path, bytes)));
        }
    }
    let content = dump(&store);
    drop(store);
    seen.retain(|path, _| !path.exists());
    assert!(seen.len() > 4, "{} files were merged", seen.len());
    let mut random = 7_u64;
    for _ in 0..20 {
        for (path, bytes) in &seen {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if random >> 63 == 0 {
                fs::write(path, bytes).unwrap();
            }
        }
        assert!(tally_store::salvage::inspect(dir.path()).unwrap().is_sound());
        let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
        assert_eq!(dump(&store), content);
    }
}
