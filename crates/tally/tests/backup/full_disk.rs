//! A full disk: said in words, on standard error and in `/readyz`; writes resume without a restart.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::client::{Answer, Api, Call};
use crate::support::server::{self, Server};
use crate::tool::{data_directory, fails, ok, text};

const ROUNDS: usize = 5;
const WRITERS: usize = 4;
const PATH: &str = "/api/v1/namespaces/default/configmaps";

/// A small file system, mounted at a directory until it is dropped. `None`, with a message, if the user may not mount
/// one.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(at: &'a Path, size: &str) -> Option<Self> {
        fs::create_dir(at).unwrap();
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

/// Fills the disk to its last byte.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    let mut piece = vec![1; 64 * 1024];
    while !piece.is_empty() {
        match file.write(&piece) {
            Ok(0) | Err(_) => piece.truncate(piece.len() / 2),
            Ok(_) => {}
        }
    }
}

async fn get(api: &Api, path: &str) -> Answer {
    api.connection().call(&Call::get(path)).await.unwrap()
}

async fn until(what: &str, api: &Api, is_so: impl Fn(&Answer) -> bool) -> Answer {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = get(api, "/readyz").await;
        if is_so(&answer) {
            return answer;
        }
        assert!(Instant::now() < end, "never: {what}; {} {}", answer.code, answer.text);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The number of each object of a writer, as it was told. A refused write has no effect as long as the server lives.
type Told = BTreeMap<String, u64>;

async fn write(api: Api, writer: usize, stop: Arc<AtomicBool>, counts: Arc<[AtomicUsize; 2]>) -> Told {
    let mut connection = api.connection();
    let mut told = Told::new();
    for step in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("w{writer}-{}", step % 25);
        let data = json!({"number": step.to_string(), "filling": "x".repeat(step as usize * 31 % 2000)});
        let exists = told.contains_key(&name);
        let one = format!("{PATH}/{name}");
        let call = match exists {
            false => Call::new("POST", PATH).body(&json!({"metadata": {"name": name}, "data": data})),
            true if step % 6 == 5 => Call::new("DELETE", one),
            true => Call::new("PATCH", one)
                .header("content-type", "application/merge-patch+json")
                .body(&json!({"data": data})),
        };
        let answer = connection.call(&call).await.unwrap();
        if answer.code == 500 {
            assert!(answer.text.contains("takes no writes for now"), "{}", answer.text);
            assert!(answer.text.contains("without a restart"), "{}", answer.text);
            counts[1].fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        assert!(answer.code < 300, "{} {}", answer.code, answer.text);
        match call.method.as_str() {
            "DELETE" => drop(told.remove(&name)),
            _ => drop(told.insert(name, step)),
        }
        counts[0].fetch_add(1, Ordering::Relaxed);
    }
    told
}

async fn stored(api: &Api) -> Told {
    let list = get(api, PATH).await.value();
    let number = |item: &serde_json::Value| item["data"]["number"].as_str().unwrap().parse().unwrap();
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| (item["metadata"]["name"].as_str().unwrap().to_owned(), number(item))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_filled_and_emptied_five_times_under_load_needs_no_restart_and_loses_nothing() {
    let directory = server::directory();
    let small = directory.path().join("small");
    let Some(_disk) = SmallDisk::mount(&small, "size=24m") else { return };
    let (data, filler) = (small.join("data"), small.join("filler"));
    let options = ["--no-node", "--controllers", "", "--data-dir", text(&data)];
    let server = Server::start_with(directory.path(), &options).await;
    let (stop, counts) = (Arc::new(AtomicBool::new(false)), Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(server.api.clone(), writer, stop.clone(), counts.clone())))
        .collect();
    let more = async |which: usize, more: usize| {
        let wanted = counts[which].load(Ordering::Relaxed) + more;
        let end = Instant::now() + Duration::from_secs(60);
        while counts[which].load(Ordering::Relaxed) < wanted {
            assert!(Instant::now() < end, "{counts:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // The server looks at its store from time to time, so what it says comes a little after the change.
    let told_of = async |round: usize, words: &[&str]| {
        let end = Instant::now() + Duration::from_secs(60);
        while words.iter().any(|words| server.said().matches(words).count() <= round) {
            assert!(Instant::now() < end, "round {round}: {words:?} is missing:\n{}", server.said());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    for round in 0..ROUNDS {
        more(0, 100).await;
        fill(&filler);
        let full = until("it is not ready", &server.api, |answer| answer.code == 500).await;
        assert!(full.text.contains("[-]store failed: the disk is full"), "{}", full.text);
        assert_eq!(get(&server.api, "/livez").await.code, 200);
        assert_eq!(get(&server.api, PATH).await.code, 200, "reads go on");
        more(1, 5).await;
        told_of(round, &["tally: the disk is full", "no restart is needed"]).await;
        fs::remove_file(&filler).unwrap();
        until("it is ready again", &server.api, |answer| answer.code == 200).await;
        told_of(round, &["tally: there is room again"]).await;
    }
    more(0, 100).await;
    stop.store(true, Ordering::Relaxed);
    let mut told = Told::new();
    for writer in writers {
        told.extend(writer.await.unwrap());
    }
    assert_eq!(stored(&server.api).await, told);
    let said = server.said();
    for words in ["tally: the disk is full", "no restart is needed", "tally: there is room again"] {
        assert_eq!(said.matches(words).count(), ROUNDS, "{words:?}:\n{said}");
    }
    server.kill();
    let server = Server::start_with(directory.path(), &options).await;
    assert_eq!(stored(&server.api).await, told, "after a kill");
    println!("{counts:?} writes and refusals");
}

#[test]
fn a_backup_or_restore_on_a_full_disk_says_so_and_leaves_nothing() {
    let directory = server::directory();
    let (data, small) = (directory.path().join("d"), directory.path().join("small"));
    data_directory(&data, 3000, 1000);
    let Some(_disk) = SmallDisk::mount(&small, "size=2m") else { return };
    let told = fails(&["backup", text(&small.join("b.bak")), "--data-dir", text(&data)]);
    assert!(told.contains("No space left on device"), "{told}");
    assert_eq!(fs::read_dir(&small).unwrap().count(), 0);
    let file = directory.path().join("b.bak");
    ok(&["backup", text(&file), "--data-dir", text(&data)]);
    let new = small.join("new");
    let told = fails(&["restore", text(&file), "--data-dir", text(&new)]);
    assert!(told.contains("No space left on device"), "{told}");
    assert!(!new.join("store").exists());
    assert_eq!(fs::read_dir(&new).unwrap().count(), 0);
}
