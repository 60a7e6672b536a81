//! Runs commands, and makes stores without a server.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::json;
use tally_registry::stored_form;
use tally_store::{Change, Expect, Store, StoreBuilder, StoreOptions, Write};

pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.args(arguments).stdin(Stdio::null());
    command
}

pub fn said(output: Output) -> Said {
    let lossy = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Said { code: output.status.code(), out: lossy(output.stdout), err: lossy(output.stderr) }
}

pub fn tally(arguments: &[&str]) -> Said {
    said(command(arguments).output().unwrap())
}

/// Runs a command that must succeed. Returns its output.
pub fn ok(arguments: &[&str]) -> String {
    let said = tally(arguments);
    assert_eq!(said.code, Some(0), "tally {arguments:?}: {}{}", said.out, said.err);
    said.out
}

/// Runs a command that must fail with exit code 1. Returns all that it said.
pub fn fails(arguments: &[&str]) -> String {
    let said = tally(arguments);
    assert_eq!(said.code, Some(1), "tally {arguments:?}: {}{}", said.out, said.err);
    said.out + &said.err
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The number after a word, as in `at revision 12`.
pub fn number_after(text: &str, word: &str) -> u64 {
    let rest = text.split_once(word).unwrap_or_else(|| panic!("no {word:?} in {text:?}")).1;
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// Makes a data directory with so many ConfigMaps, without a server.
pub fn data_directory(data: &Path, count: usize, size: usize) {
    let store = Store::memory(StoreOptions::default());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for number in 0..count {
        let object = json!({
            "metadata": {"name": format!("c{number:06}"), "namespace": "default", "uid": format!("{number:036}")},
            "data": {"filling": "x".repeat(size)},
        });
        let write = Write {
            key: format!("configmaps/default/c{number:06}"),
            expect: Expect::Absent,
            change: Change::Put(stored_form(&object.into())),
        };
        runtime.block_on(store.commit(write)).unwrap();
    }
    let page = store.range("", None, None, None).unwrap();
    let mut built = StoreBuilder::create(&data.join("store"), page.revision).unwrap();
    page.entries.iter().for_each(|entry| built.add(entry).unwrap());
    built.finish().unwrap();
}

/// The files below a directory.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push(path);
        }
    }
    all.sort();
    all
}
