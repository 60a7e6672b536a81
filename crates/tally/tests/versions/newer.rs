//! What a later version could have written is refused: by a sentence that says what to do, and nothing is changed.

use std::fs;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use crate::tool::{data_directory, files, ok, tally, text};

/// The files of a data directory. The lock has the PID of the process that looked last.
fn content(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = files(directory);
    all.retain(|path| !path.ends_with("store/lock"));
    all.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// `known`: the format that this version knows.
fn is_refused(words: &[&str], known: u8) {
    let said = tally(words);
    assert!(matches!(said.code, Some(1 | 3)), "tally {words:?}: {:?} {}{}", said.code, said.out, said.err);
    assert_eq!(said.out, "", "tally {words:?}");
    let told = &said.err;
    let newer = format!("was written by a newer version (format {}, this one knows {known})", known + 1);
    assert!(
        told.contains(&newer) && told.contains("; use that version") && told.lines().count() == 1,
        "tally {words:?}: {told}"
    );
}

#[test]
fn a_data_directory_of_a_newer_version_is_refused_and_stays_as_it_is() {
    let directory = tally_testing::scratch();
    let data = directory.path().join("d");
    data_directory(&data, 20, 100);
    let head = data.join("store/head");
    let mut bytes = fs::read(&head).unwrap();
    // The format, in both copies.
    (bytes[7], bytes[4096 + 7]) = (3, 3);
    fs::write(&head, bytes).unwrap();
    let (before, new) = (content(directory.path()), directory.path().join("new"));
    let (file, place) = (directory.path().join("d.bak"), ["--data-dir", text(&data)]);
    let commands: [&[&str]; 12] = [
        &["up", "--listen", "127.0.0.1:0"],
        &["up", "--listen", "127.0.0.1:0", "--no-node", "--controllers", ""],
        &["run", "--name", "sum", "-n", "3", "-i"],
        &["run", "--resume"],
        &["run", "--retry-failed"],
        &["ps"],
        &["show", "sum"],
        &["logs", "sum"],
        &["explain", "job/sum"],
        &["report", "sum"],
        &["backup", text(&file)],
        &["backup", text(&file), "--without-keys"],
    ];
    for words in commands {
        let of_command = if words.contains(&"-n") { &["--", "true"][..] } else { &[] };
        is_refused(&[words, &place, of_command].concat(), 2);
    }
    is_refused(&["check", text(&data)], 2);
    is_refused(&["salvage", text(&data), "--to", text(&new)], 2);
    assert!(!new.exists());
    assert!(content(directory.path()) == before, "something was changed: {:?}", files(directory.path()));
}

#[test]
fn a_backup_of_a_newer_version_is_refused_and_nothing_is_made() {
    let directory = tally_testing::scratch();
    let (data, file) = (directory.path().join("d"), directory.path().join("d.bak"));
    data_directory(&data, 20, 100);
    ok(&["backup", text(&file), "--data-dir", text(&data)]);
    let whole = fs::read(&file).unwrap();
    // The format of the file.
    let mut newer_file = whole.clone();
    newer_file[7] = 2;
    // The format of the record in the first frame of an object: kind, lengths, name, body and a checksum of all that.
    let mut newer_record = whole;
    let at = 8 + 7 + 16 + 8;
    assert_eq!(newer_record[at], b'O');
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |all, byte| all << 8 | usize::from(*byte));
    let name = number(&newer_record[at + 1..at + 3]);
    let end = at + 7 + name + number(&newer_record[at + 3..at + 7]);
    newer_record[at + 7 + name] = 2;
    let sum = xxh3_64(&newer_record[at..end]).to_le_bytes();
    newer_record[end..end + 8].copy_from_slice(&sum);

    for bytes in [newer_file, newer_record] {
        fs::write(&file, &bytes).unwrap();
        let new = directory.path().join("new");
        is_refused(&["restore", text(&file), "--data-dir", text(&new)], 1);
        assert!(!new.exists() || files(&new).is_empty(), "nothing is left in the directory");
        assert!(fs::read(&file).unwrap() == bytes, "the backup was changed");
    }
}
