//! Durable commits per second, the CPU time of one, and the memory of an entry: `cargo bench -p tally-store`.
//!
//! An argument runs only the benchmarks whose name contains it: `memory`, `disk`, `reopen`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::{Duration, Instant};

use tally_store::{Body, Change, Expect, Store, StoreOptions, Write};

const RUN_FOR: Duration = Duration::from_secs(3);

fn main() {
    let wanted = std::env::args().nth(1).filter(|arg| !arg.starts_with("--")).unwrap_or_default();
    let run = |name: &str| name.contains(&wanted);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if run("memory") {
        let store = Store::memory(StoreOptions::default());
        let bytes = runtime.block_on(fill(&store, 100_000));
        println!("memory: {bytes} bytes per entry with 1300 bytes of text, history included");
    }
    if run("reopen") {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
        let bytes = runtime.block_on(fill(&store, 100_000));
        println!("disk: {bytes} bytes per entry with 1300 bytes of text, history included");
        drop(store);
        let started = Instant::now();
        let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
        println!("disk: 100000 entries read at start in {:?}", started.elapsed());
        let started = Instant::now();
        let page = store.range("pods/", None, None, None).unwrap();
        println!("range of {} entries in {:?}", page.entries.len(), started.elapsed());
    }
    for writers in [1, 16, 64, 128] {
        if !run("disk") {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
        let (cpu, started) = (cpu_seconds(), Instant::now());
        let commits: u64 = runtime.block_on(async {
            let tasks: Vec<_> = (0..writers).map(|writer| tokio::spawn(keep_writing(store.clone(), writer))).collect();
            let mut commits = 0;
            for task in tasks {
                commits += task.await.unwrap();
            }
            commits
        });
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "disk: {writers:>3} writers of 1500 bytes: {:>6.0} durable commits/s, {:>5.1} us of CPU each",
            commits as f64 / seconds,
            (cpu_seconds() - cpu) * 1e6 / commits as f64
        );
    }
}

/// Creates and updates in turn: the mix of a Pod's first moments.
async fn keep_writing(store: Store, writer: usize) -> u64 {
    let started = Instant::now();
    let mut commits = 0;
    while started.elapsed() < RUN_FOR {
        let key = format!("pods/default/bench-{writer}-{commits:08}");
        let made = store.commit(put(&key, Expect::Absent, 1500)).await.unwrap();
        store.commit(put(&key, Expect::At(made.revision), 1500)).await.unwrap();
        commits += 2;
    }
    commits
}

async fn fill(store: &Store, count: usize) -> usize {
    let before = resident();
    let tasks: Vec<_> = (0..64)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for at in (writer..count).step_by(64) {
                    let key = format!("pods/default/a-job-with-a-name-{at:08}-abcde");
                    store.commit(put(&key, Expect::Absent, 1300)).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    (resident() - before) / count
}

fn put(key: &str, expect: Expect, size: usize) -> Write {
    let body = Body { bytes: vec![b'x'; size], stamp_at: 100, handle: None };
    Write { key: key.into(), expect, change: Change::Put(body) }
}

/// The process's resident memory in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// User and system time of the process so far.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}
