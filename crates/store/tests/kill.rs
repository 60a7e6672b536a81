//! A process that writes is killed again and again: every acknowledged write is there, none in part, and revisions
//! never decrease.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::runtime;
use tally_store::{Body, Change, Expect, Store, StoreOptions, Write};

const KILLS: usize = 56;
const WRITERS: usize = 8;
/// Each writer has this number of keys of its own and cycles through them.
const KEYS: usize = 6;

/// The `step`-th write of writer `writer`, the same in every process: the key, and the text unless it is a delete.
fn write_at(writer: usize, step: usize) -> (String, Option<String>) {
    let key = format!("pods/w{writer}/{}", step % KEYS);
    // Many different sizes, so that kills hit large and small groups.
    let length = (step * 7919 + writer * 104_729) % 1500;
    (key, (step % 4 != 3).then(|| format!("{writer}:{step}:{}:end", "x".repeat(length))))
}

/// The objects of a writer after its first `steps` writes. A delete of an absent key is skipped.
fn after(writer: usize, steps: usize) -> BTreeMap<String, String> {
    let mut state = BTreeMap::new();
    for step in 0..steps {
        match write_at(writer, step) {
            (key, Some(text)) => drop(state.insert(key, text)),
            (key, None) => drop(state.remove(&key)),
        }
    }
    state
}

fn options(round: usize) -> StoreOptions {
    // Small, so that logs are merged all the time.
    StoreOptions { merge_bytes: 256 * 1024, history: 50 + round, ..StoreOptions::default() }
}

/// The process that is killed. It prints each write after the store has acknowledged it.
#[test]
#[ignore = "started by the test below, to be killed"]
fn writes_until_killed() {
    let dir = std::env::var("STORE_DIR").expect("started by the test below");
    let steps: Vec<usize> =
        std::env::var("STORE_STEPS").unwrap().split(',').map(|step| step.parse().unwrap()).collect();
    let store = Store::open(Path::new(&dir), options(0)).unwrap();
    runtime().block_on(async {
        let tasks: Vec<_> = steps
            .into_iter()
            .enumerate()
            .map(|(writer, first)| {
                let store = store.clone();
                tokio::spawn(async move {
                    for step in first.. {
                        let (key, text) = write_at(writer, step);
                        let there = store.get(&key).map(|entry| entry.revision);
                        let expect = there.map_or(Expect::Absent, Expect::At);
                        let change = match text {
                            Some(text) => Change::Put(Body { bytes: text.into_bytes(), stamp_at: 0, handle: None }),
                            None if there.is_none() => continue,
                            None => Change::Delete(Body { bytes: b"gone".to_vec(), stamp_at: 0, handle: None }),
                        };
                        let entry = store.commit(Write { key, expect, change }).await.unwrap();
                        // One system call per line: if the process is killed in between, a line is there completely or
                        // not at all.
                        let line = format!("\nack {writer} {step} {}\n", entry.revision);
                        std::io::stderr().write_all(line.as_bytes()).unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn every_acknowledged_write_survives_fifty_kills() {
    let dir = tempfile::tempdir().unwrap();
    let mut steps = [0; WRITERS];
    let mut revision = 0;
    let mut acknowledged = 0;
    let mut random = 0x5eed_u64;
    for round in 0..KILLS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let dice = (random >> 33) as usize;
        let acks = kill_one(dir.path(), &steps, dice, round);
        for ack in &acks {
            assert!(ack.revision > revision, "round {round}: {ack:?} was given again, {revision} had been seen");
            steps[ack.writer] = steps[ack.writer].max(ack.step + 1);
        }
        acknowledged += acks.len();

        let store = Store::open(dir.path(), options(round)).unwrap();
        let newest = acks.iter().map(|ack| ack.revision).max().unwrap_or(revision);
        assert!(store.revision() >= newest.max(revision), "round {round}: revisions went back");
        revision = store.revision();
        for (writer, steps) in steps.iter_mut().enumerate() {
            let prefix = format!("pods/w{writer}/");
            let page = store.range(&prefix, None, None, None).unwrap();
            let found: BTreeMap<String, String> = page
                .entries
                .iter()
                .map(|entry| {
                    let text = std::str::from_utf8(&entry.value).unwrap();
                    let text = text.strip_prefix(&entry.revision.to_string()).expect("the revision is in the text");
                    (entry.key.to_string(), text.to_owned())
                })
                .collect();
            // All acknowledged writes, and perhaps the one write that was in flight.
            if found != after(writer, *steps) {
                // A delete of an absent key is not a write; the one in flight may come after it.
                let under_way = (*steps + 1..*steps + 3).find(|steps| found == after(writer, *steps));
                *steps = under_way.unwrap_or_else(|| panic!("round {round}: writer {writer} after {steps}: {found:?}"));
            }
        }
    }
    assert!(acknowledged > KILLS * 10, "the load was real: {acknowledged} writes");
}

#[derive(Debug)]
struct Ack {
    writer: usize,
    step: usize,
    revision: u64,
}

/// Starts a writing process, kills it some time later, and returns the writes that were acknowledged to it.
fn kill_one(dir: &Path, steps: &[usize], dice: usize, round: usize) -> Vec<Ack> {
    let steps: Vec<String> = steps.iter().map(usize::to_string).collect();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::writes_until_killed", "--ignored", "--nocapture"])
        .env("STORE_DIR", dir)
        .env("STORE_STEPS", steps.join(","))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut acks = Vec::new();
    // Most are killed under load; every fourth at a random moment, perhaps while it opens the store.
    let mut wanted = dice % 150 + 1;
    if round % 4 == 3 {
        wanted = 0;
        std::thread::sleep(Duration::from_micros(dice as u64 % 60_000));
    }
    let mut line = String::new();
    let mut killed = false;
    loop {
        if !killed && acks.len() >= wanted {
            child.kill().unwrap();
            killed = true;
        }
        line.clear();
        // The lines still in the pipe were acknowledged too.
        if lines.read_line(&mut line).unwrap() == 0 {
            break;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["ack", writer, step, revision] if line.ends_with('\n') => acks.push(Ack {
                writer: writer.parse().unwrap(),
                step: step.parse().unwrap(),
                revision: revision.parse().unwrap(),
            }),
            [] => {}
            _ => panic!("the writing process says: {line}"),
        }
    }
    assert!(killed, "the writing process ended by itself");
    child.wait().unwrap();
    acks
}
