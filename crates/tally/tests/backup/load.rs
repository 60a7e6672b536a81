//! A backup that is made while clients write has exactly the state of its revision.
//!
//! What that state is comes from a recording of watches on the server that was backed up; what the backup contains comes
//! from lists of a server that runs on the restored directory. Neither uses the code that makes or reads backups.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::support::client::{Api, Call};
use crate::support::server::{self, Server};
use crate::tool::{command, number_after, ok, said, text};

const WRITERS: usize = 6;
const KEYS: usize = 30;
const KINDS: [&str; 3] = [
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/secrets",
    "/apis/batch/v1/namespaces/default/jobs",
];

/// The objects of a kind by name.
type Objects = BTreeMap<String, Value>;

/// The first state of a kind, every event after it, and how far the recording has come.
#[derive(Default)]
struct Recording {
    first: Objects,
    events: Vec<(u64, bool, Value)>,
    seen: u64,
}

impl Recording {
    fn at(&self, revision: u64) -> Objects {
        assert!(self.seen >= revision, "the recording ends at {}, before {revision}", self.seen);
        let mut objects = self.first.clone();
        for (_, deleted, object) in self.events.iter().filter(|(at, ..)| *at <= revision) {
            match deleted {
                true => drop(objects.remove(name(object))),
                false => drop(objects.insert(name(object).to_owned(), object.clone())),
            }
        }
        objects
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

async fn list(api: &Api, path: &str) -> (u64, Objects) {
    let answer = api.connection().call(&Call::get(path)).await.unwrap();
    assert_eq!(answer.code, 200, "{}", answer.text);
    let list = answer.value();
    let items = list["items"].as_array().unwrap().iter();
    (revision(&list), items.map(|item| (name(item).to_owned(), item.clone())).collect())
}

/// Records a kind until the server ends. Objects in events have a kind, those in lists have none.
async fn record(api: Api, path: &'static str, recording: Arc<Mutex<Recording>>) {
    let seen = recording.lock().await.seen;
    let query = format!("{path}?watch=true&allowWatchBookmarks=true&resourceVersion={seen}");
    let mut body = api.connection().open(&Call::get(query)).await.unwrap().into_body();
    let mut pending = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        pending.extend_from_slice(&data);
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line).unwrap();
            let mut object = event["object"].clone();
            let mut recording = recording.lock().await;
            recording.seen = revision(&object);
            if event["type"] == "BOOKMARK" {
                continue;
            }
            object.as_object_mut().unwrap().retain(|field, _| field != "apiVersion" && field != "kind");
            let at = recording.seen;
            recording.events.push((at, event["type"] == "DELETED", object));
        }
    }
}

fn object(path: &str, name: &str, number: usize) -> Value {
    let mut object = json!({"metadata": {"name": name, "labels": {"number": number.to_string()}}});
    if path.ends_with("jobs") {
        let containers = json!([{"name": "c", "image": "i"}]);
        object["spec"] = json!({"template": {"spec": {"restartPolicy": "Never", "containers": containers}}});
    } else {
        object["data"] = json!({"filling": "eHh4".repeat(number % 400)});
    }
    object
}

async fn write(api: Api, writer: usize, stop: Arc<AtomicBool>, written: Arc<AtomicUsize>) {
    let mut connection = api.connection();
    let mut there = BTreeMap::new();
    for step in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let path = KINDS[(step + writer) % KINDS.len()];
        let name = format!("w{writer}-{}", step * 7 % KEYS);
        let exists: &mut bool = there.entry((path, name.clone())).or_default();
        let one = format!("{path}/{name}");
        let call = match *exists {
            false => Call::new("POST", path).body(&object(path, &name, step)),
            true if step % 4 == 0 => Call::new("DELETE", one).body(&json!({"propagationPolicy": "Background"})),
            true => Call::new("PATCH", one)
                .header("content-type", "application/merge-patch+json")
                .body(&json!({"metadata": {"labels": {"number": step.to_string()}}})),
        };
        let answer = connection.call(&call).await.unwrap();
        assert!(answer.code < 300, "{} {}", answer.code, answer.text);
        *exists = call.method != "DELETE";
        written.fetch_add(1, Ordering::Relaxed);
    }
}

async fn reach(counter: &AtomicUsize, more: usize) {
    let wanted = counter.load(Ordering::Relaxed) + more;
    while counter.load(Ordering::Relaxed) < wanted {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub async fn start(directory: &Path, data: &Path) -> Server {
    std::fs::create_dir_all(directory).unwrap();
    Server::start_with(directory, &["--no-node", "--controllers", "", "--data-dir", text(data)]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_has_the_state_of_its_revision() {
    let directory = server::directory();
    let data = directory.path().join("data");
    let server = start(directory.path(), &data).await;
    let mut recordings = BTreeMap::new();
    for path in KINDS {
        let (seen, first) = list(&server.api, path).await;
        let recording = Arc::new(Mutex::new(Recording { first, events: Vec::new(), seen }));
        tokio::spawn(record(server.api.clone(), path, recording.clone()));
        recordings.insert(path, recording);
    }
    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(server.api.clone(), writer, stop.clone(), written.clone())))
        .collect();
    let mut backups = Vec::new();
    for number in 0..4 {
        reach(&written, 150).await;
        let file = directory.path().join(format!("{number}.bak"));
        let mut backup = command(&["backup", text(&file), "--data-dir", text(&data)]);
        let before = written.load(Ordering::Relaxed);
        let told = said(tokio::task::spawn_blocking(move || backup.output().unwrap()).await.unwrap());
        assert_eq!(told.code, Some(0), "{}{}", told.out, told.err);
        println!("{} writes during a backup: {}", written.load(Ordering::Relaxed) - before, told.out.trim());
        backups.push((file, number_after(&told.out, "at revision")));
    }
    reach(&written, 50).await;
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    let newest = backups.iter().map(|(_, revision)| *revision).max().unwrap();
    for recording in recordings.values() {
        while recording.lock().await.seen < newest {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    server.kill();

    let mut states = Vec::new();
    for (number, (file, revision)) in backups.iter().enumerate() {
        let place = directory.path().join(format!("restored-{number}"));
        let new = place.join("data");
        let told = ok(&["restore", text(file), "--data-dir", text(&new)]);
        assert!(number_after(&told, "at revision") > newest, "{told}");
        let server = start(&place, &new).await;
        let mut state = BTreeMap::new();
        for path in KINDS {
            let (listed_at, found) = list(&server.api, path).await;
            let expected = recordings[path].lock().await.at(*revision);
            assert!(!expected.is_empty(), "there was something to compare");
            assert_eq!(found, expected, "{path} at {revision}");
            assert!(listed_at > newest, "the revision goes on: {listed_at} after {newest}");
            state.insert(path, found);
            // A client that has followed the old server further than the backup is told to list again.
            let watch = format!("{path}?watch=true&timeoutSeconds=5&resourceVersion={}", newest + 1);
            let answer = server.api.connection().call(&Call::get(watch)).await.unwrap();
            let expired = answer.code == 410 || answer.value()["object"]["code"] == 410;
            assert!(expired, "{} {}", answer.code, answer.text);
        }
        states.push(state);
    }
    states.dedup();
    assert_eq!(states.len(), backups.len(), "the state changed from backup to backup");
}
