//! `kill -9` in the middle of a backup, a restore and a salvage.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::server;
use crate::tool::{command, data_directory, ok, text};

const OBJECTS: usize = 4000;

/// Starts a command and kills it after a part of the time that it takes. Returns whether it had ended by itself.
fn kill_after(arguments: &[&str], delay: Duration) -> bool {
    let mut child = command(arguments).stdout(std::process::Stdio::null()).spawn().unwrap();
    std::thread::sleep(delay);
    let ended = child.try_wait().unwrap().is_some();
    let _ = child.kill();
    child.wait().unwrap();
    ended
}

fn delays() -> impl Iterator<Item = Duration> {
    (0..12).map(|step| Duration::from_millis(1 + step * step * 4))
}

#[test]
fn a_backup_that_is_killed_leaves_no_file_of_that_name() {
    let directory = server::directory();
    let (data, file) = (directory.path().join("d"), directory.path().join("b.bak"));
    data_directory(&data, OBJECTS, 1000);
    for delay in delays() {
        let arguments = ["backup", text(&file), "--data-dir", text(&data)];
        let ended = kill_after(&arguments, delay);
        assert!(!ended || file.exists());
        if file.exists() {
            let new = directory.path().join("new");
            ok(&["restore", text(&file), "--data-dir", text(&new)]);
            fs::remove_dir_all(new).unwrap();
            fs::remove_file(&file).unwrap();
        }
    }
    ok(&["backup", text(&file), "--data-dir", text(&data)]);
    let mut names: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["b.bak", "d"], "the next backup removes what killed ones have left");
    assert!(ok(&["check", text(&data)]).contains("nothing is damaged"));
}

#[test]
fn a_restore_or_salvage_that_is_killed_makes_a_whole_store_or_none() {
    let directory = server::directory();
    let (data, file) = (directory.path().join("d"), directory.path().join("b.bak"));
    data_directory(&data, OBJECTS, 1000);
    ok(&["backup", text(&file), "--data-dir", text(&data)]);
    let check = |arguments: &[&str], new: &Path| {
        let (mut whole, mut none) = (0, 0);
        for delay in delays() {
            kill_after(arguments, delay);
            if new.join("store").exists() {
                whole += 1;
            } else {
                none += 1;
                // The next one begins again.
                ok(arguments);
            }
            let told = ok(&["check", text(new)]);
            assert!(told.contains(&format!("{OBJECTS} objects")), "{told}");
            assert!(!new.join("restoring/store").exists());
            fs::remove_dir_all(new).unwrap();
        }
        println!("{arguments:?}: {whole} whole, {none} without a store");
        assert!(none > 0, "none was killed in time");
    };
    let new = directory.path().join("new");
    check(&["restore", text(&file), "--data-dir", text(&new)], &new);
    check(&["salvage", text(&data), "--to", text(&new)], &new);
}
