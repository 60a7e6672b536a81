//! A server that is killed in the middle of its work loses nothing that it acknowledged.
//!
//! Many clients write; after a number of acknowledged writes the server gets SIGKILL and is started again on the same
//! directory. Every writer remembers the responses that it received. If the kill cut off a response, that one write may
//! have been applied or not, but not partially. A watch resumes where it was cut, or receives 410; its resulting state
//! is what a list shows.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::{Value, json};
use support::client::{Answer, Api, Call};
use support::server::Server;
use tokio::sync::mpsc;

const KILLS: usize = 60;
const WRITERS: usize = 16;
/// Keys of one writer: enough to have creates, patches and deletes all the time, few enough to list often.
const KEYS: usize = 12;
/// A kill comes after this many acknowledged writes, chosen again for each kill.
const WRITES_BEFORE_KILL: std::ops::Range<usize> = 1..120;
/// Ends a test that would otherwise hang; it asserts nothing.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledged_write_survives_sixty_kills() {
    let directory = support::server::directory();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    fastrand::seed(seed);

    let mut server = Server::start(directory.path()).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kills"}});
    let answer = server.api.connection().call(&Call::new("POST", "/api/v1/namespaces").body(&namespace)).await.unwrap();
    assert_eq!(answer.code, 201, "{}", answer.text);

    let mut writers: Vec<_> = (0..WRITERS).map(Writer::new).collect();
    let mut watches = [Watch::of(Kind::ConfigMap), Watch::of(Kind::Job)];
    let (mut highest, mut writes, mut continued) = (0, 0, 0);
    for kill in 0..=KILLS {
        // No client writes now: the stored state is what the kill left.
        let mut lists = BTreeMap::new();
        for kind in [Kind::ConfigMap, Kind::Job] {
            let list = List::read(&server.api, kind).await;
            assert!(list.revision >= highest, "kill {kill}: revision {} after {highest}", list.revision);
            lists.insert(kind, list);
        }
        for writer in &mut writers {
            let list = lists.get_mut(&writer.kind).expect("both kinds were listed");
            writer.settle(list).unwrap_or_else(|wrong| panic!("after kill {kill}: {wrong}\n{}", server.said()));
        }
        for list in lists.values() {
            assert!(list.objects.is_empty(), "after kill {kill}: nobody wrote {:?}", list.objects);
        }
        for watch in &mut watches {
            let of_kind = writers.iter().filter(|writer| writer.kind == watch.kind);
            let acknowledged: Vec<u64> = of_kind.flat_map(|writer| writer.acknowledged.iter().copied()).collect();
            let resumed = watch.catch_up(&server.api, kill, &acknowledged).await;
            continued += usize::from(resumed && kill > 0);
        }
        writers.iter_mut().for_each(|writer| writer.acknowledged.clear());
        if kill == KILLS {
            break;
        }

        let streams = watches.map(|watch| tokio::spawn(watch.follow(server.api.clone())));
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let before = fastrand::usize(WRITES_BEFORE_KILL);
        let working: Vec<_> = writers
            .into_iter()
            .map(|writer| tokio::spawn(writer.work(server.api.clone(), acknowledged.clone(), fastrand::u64(..))))
            .collect();
        let reached = async {
            while acknowledged.load(Ordering::SeqCst) < before && !working.iter().any(|writer| writer.is_finished()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(GIVE_UP_AFTER, reached).await.expect("the writers get on");
        server.kill();
        writers = Vec::with_capacity(WRITERS);
        for writer in working {
            writers.push(writer.await.expect("a writer is answered as it should be"));
        }
        let mut followed = Vec::new();
        for stream in streams {
            followed.push(stream.await.expect("a watch shows what it should"));
        }
        watches = followed.try_into().unwrap_or_else(|_| unreachable!("as many as before"));
        writes += acknowledged.load(Ordering::SeqCst);
        highest =
            writers.iter().map(|writer| writer.highest).chain(watches.iter().map(|watch| watch.seen)).max().unwrap();
        server = Server::start(directory.path()).await;
    }
    println!("{KILLS} kills, {writes} acknowledged writes, {continued} of {} watches went on", 2 * KILLS);
    assert!(writes >= KILLS, "{writes} writes are no load");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    ConfigMap,
    Job,
}

impl Kind {
    fn path(self) -> &'static str {
        match self {
            Kind::ConfigMap => "/api/v1/namespaces/kills/configmaps",
            Kind::Job => "/apis/batch/v1/namespaces/kills/jobs",
        }
    }

    /// An object that contains `number` in several places, so that a partial write would be noticed.
    fn object(self, name: &str, number: u64) -> Value {
        let mut object = self.patch(number);
        object["metadata"]["name"] = name.into();
        match self {
            Kind::ConfigMap => {
                object["apiVersion"] = "v1".into();
                object["kind"] = "ConfigMap".into();
            }
            Kind::Job => {
                object["apiVersion"] = "batch/v1".into();
                object["kind"] = "Job".into();
                let containers = json!([{"name": "c", "image": "i"}]);
                object["spec"]["template"]["spec"] = json!({"restartPolicy": "Never", "containers": containers});
            }
        }
        object
    }

    fn patch(self, number: u64) -> Value {
        let metadata = json!({"labels": {"number": number.to_string()}, "annotations": {"number": number.to_string()}});
        match self {
            Kind::ConfigMap => {
                // Up to some 6 KB: more than one block of any log.
                let filling = "x".repeat((number % 1_500) as usize * 4);
                json!({"metadata": metadata, "data": {"number": number.to_string(), "filling": filling}})
            }
            Kind::Job => json!({"metadata": metadata, "spec": {"parallelism": number % 1_000}}),
        }
    }

    /// The number that an object contains in all places, or what is torn about it.
    fn number(self, object: &Value) -> Result<u64, String> {
        let number = object["metadata"]["labels"]["number"].as_str().and_then(|number| number.parse().ok());
        let number: u64 = number.ok_or_else(|| format!("no number: {object}"))?;
        let expected = self.patch(number);
        let same = |pointer: &str| expected.pointer(pointer) == object.pointer(pointer);
        let whole = same("/metadata/annotations/number")
            && match self {
                Kind::ConfigMap => same("/data"),
                Kind::Job => same("/spec/parallelism") && object["spec"]["template"]["spec"]["containers"].is_array(),
            };
        if whole { Ok(number) } else { Err(format!("half of a write: {object}")) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    uid: String,
    revision: u64,
    number: u64,
}

impl Stored {
    fn of(kind: Kind, object: &Value) -> Result<(String, Stored), String> {
        let text = |key: &str| object["metadata"][key].as_str().map(str::to_owned).ok_or(format!("no {key}: {object}"));
        let revision = text("resourceVersion")?.parse().map_err(|error| format!("{error}: {object}"))?;
        Ok((text("name")?, Stored { uid: text("uid")?, revision, number: kind.number(object)? }))
    }
}

/// One client and the responses it received. It sends one write at a time, to names of its own.
struct Writer {
    kind: Kind,
    name: String,
    next: u64,
    highest: u64,
    told: BTreeMap<String, Option<Stored>>,
    /// The revisions of the writes that were acknowledged since the server started.
    acknowledged: Vec<u64>,
    /// The write whose response did not arrive.
    cut_off: Option<(String, Write)>,
}

#[derive(Clone, Copy, Debug)]
enum Write {
    Create(u64),
    Patch(u64),
    Delete,
}

impl Writer {
    fn new(place: usize) -> Writer {
        let kind = if place.is_multiple_of(2) { Kind::ConfigMap } else { Kind::Job };
        Writer {
            kind,
            name: format!("w{place}"),
            next: 0,
            highest: 0,
            told: BTreeMap::new(),
            acknowledged: Vec::new(),
            cut_off: None,
        }
    }

    /// Writes until the server is killed.
    async fn work(mut self, api: Api, acknowledged: Arc<AtomicUsize>, seed: u64) -> Writer {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut connection = api.connection();
        loop {
            let key = format!("{}-{}", self.name, random.usize(..KEYS));
            self.next += 1;
            let write = match self.told.get(&key) {
                None | Some(None) => Write::Create(self.next),
                Some(Some(_)) if random.u8(..4) == 0 => Write::Delete,
                Some(Some(_)) => Write::Patch(self.next),
            };
            let path = format!("{}/{key}", self.kind.path());
            let call = match write {
                Write::Create(number) => Call::new("POST", self.kind.path()).body(&self.kind.object(&key, number)),
                Write::Patch(number) => Call::new("PATCH", path)
                    .header("content-type", "application/merge-patch+json")
                    .body(&self.kind.patch(number)),
                Write::Delete => Call::new("DELETE", path)
                    .body(&json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"})),
            };
            let Ok(answer) = connection.call(&call).await else {
                self.cut_off = Some((key, write));
                return self;
            };
            self.note(key, write, &answer);
            acknowledged.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn note(&mut self, key: String, write: Write, answer: &Answer) {
        let before = self.told.get(&key).cloned().flatten();
        let after = match write {
            Write::Delete => {
                assert_eq!(answer.code, 200, "{write:?} of {key}: {}", answer.text);
                None
            }
            Write::Create(number) | Write::Patch(number) => {
                let code = if before.is_some() { 200 } else { 201 };
                assert_eq!(answer.code, code, "{write:?} of {key}: {}", answer.text);
                let (_, stored) = Stored::of(self.kind, &answer.value()).expect("an object that is whole");
                assert_eq!(stored.number, number, "{write:?} of {key}");
                assert!(stored.revision > self.highest, "{write:?} of {key}: {stored:?} after {}", self.highest);
                assert!(before.is_none_or(|before| before.uid == stored.uid), "{write:?} of {key}");
                self.highest = stored.revision;
                self.acknowledged.push(stored.revision);
                Some(stored)
            }
        };
        self.told.insert(key, after);
    }

    /// Compares the stored objects with what this writer was told, and removes them from the list.
    fn settle(&mut self, list: &mut List) -> Result<(), String> {
        let cut_off = self.cut_off.take();
        if let Some((key, _)) = &cut_off {
            self.told.entry(key.clone()).or_insert(None);
        }
        for (key, told) in &mut self.told {
            let found = list.objects.remove(key);
            if found == *told {
                continue;
            }
            let write = cut_off.as_ref().filter(|(cut_off, _)| cut_off == key).map(|(_, write)| *write);
            let done = match (write, &found, &*told) {
                (Some(Write::Create(number)), Some(found), None) => found.number == number,
                (Some(Write::Patch(number)), Some(found), Some(told)) => {
                    found.number == number && found.uid == told.uid && found.revision > told.revision
                }
                (Some(Write::Delete), None, Some(_)) => true,
                _ => false,
            };
            if !done {
                return Err(format!("{key} is {found:?}, acknowledged was {told:?}, cut off was {write:?}"));
            }
            self.highest = self.highest.max(found.as_ref().map_or(0, |found| found.revision));
            *told = found;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct List {
    revision: u64,
    objects: BTreeMap<String, Stored>,
}

impl List {
    async fn read(api: &Api, kind: Kind) -> List {
        let answer = api.connection().call(&Call::get(kind.path())).await.expect("a list");
        assert_eq!(answer.code, 200, "{}", answer.text);
        let list = answer.value();
        let items = list["items"].as_array().expect("a list has items").iter();
        let mut objects: BTreeMap<_, _> =
            items.filter(|item| !is_other(item)).map(|item| Stored::of(kind, item).expect("whole objects")).collect();
        objects.retain(|name, _| !name.starts_with("mark"));
        let revision = list["metadata"]["resourceVersion"].as_str().and_then(|revision| revision.parse().ok());
        List { revision: revision.expect("a list has a revision"), objects }
    }
}

/// Objects that a controller creates in every namespace.
fn is_other(object: &Value) -> bool {
    object["metadata"]["name"] == "kube-root-ca.crt"
}

/// A client that watches through every kill. After each kill its state is compared with a list, from which it
/// continues.
struct Watch {
    kind: Kind,
    /// The revision up to which it has observed everything.
    seen: u64,
    listed: bool,
    objects: BTreeMap<String, Stored>,
    /// The revisions of the events since its last list.
    revisions: BTreeSet<u64>,
    /// Set when the server answers 410 to a watch from `seen`.
    expired: bool,
}

impl Watch {
    fn of(kind: Kind) -> Watch {
        Watch { kind, seen: 0, listed: false, objects: BTreeMap::new(), revisions: BTreeSet::new(), expired: false }
    }

    /// Watches until the server is killed.
    async fn follow(mut self, api: Api) -> Watch {
        self.run(&api, None).await;
        assert!(!self.expired, "a watch from a fresh revision expired");
        self
    }

    /// Resumes from before the kill until the watch shows a mark that is written now, then compares its state with a
    /// list. Returns whether it could resume.
    async fn catch_up(&mut self, api: &Api, kill: usize, acknowledged: &[u64]) -> bool {
        let mark = self.kind.object(&format!("mark-{kill}"), kill as u64);
        let answer = api.connection().call(&Call::new("POST", self.kind.path()).body(&mark)).await.expect("a mark");
        assert_eq!(answer.code, 201, "{}", answer.text);
        let (_, mark) = Stored::of(self.kind, &answer.value()).expect("a whole mark");
        assert!(mark.revision > self.seen, "the mark has revision {}, seen was {}", mark.revision, self.seen);

        let list = List::read(api, self.kind).await;
        let could = self.listed && {
            let run = tokio::time::timeout(GIVE_UP_AFTER, self.run(api, Some(mark.revision)));
            run.await.expect("the mark comes by");
            !self.expired
        };
        if could {
            assert_eq!(self.seen, mark.revision, "after kill {kill}");
            assert_eq!(self.objects, list.objects, "after kill {kill}: the watch went on, but not with everything");
            let missed: Vec<_> = acknowledged.iter().filter(|write| !self.revisions.contains(write)).collect();
            assert!(missed.is_empty(), "after kill {kill}: acknowledged, but not in the watch: {missed:?}");
        }
        (self.seen, self.objects, self.expired, self.listed) = (list.revision, list.objects, false, true);
        self.revisions.clear();
        could
    }

    async fn run(&mut self, api: &Api, until: Option<u64>) {
        let query = format!("watch=true&allowWatchBookmarks=true&resourceVersion={}", self.seen);
        let call = Call::get(format!("{}?{query}", self.kind.path()));
        let Ok(response) = api.connection().open(&call).await else { return };
        if response.status() == 410 {
            self.expired = true;
            return;
        }
        assert_eq!(response.status(), 200);
        let (send, mut lines) = mpsc::unbounded_channel();
        let reading = tokio::spawn(read_lines(response.into_body(), send));
        while let Some(line) = lines.recv().await {
            // The kill may cut the last line short.
            let Ok(event) = serde_json::from_str::<Value>(&line) else { break };
            self.event(&event);
            if self.expired || until.is_some_and(|until| self.seen >= until) {
                break;
            }
        }
        reading.abort();
    }

    fn event(&mut self, event: &Value) {
        let object = &event["object"];
        let revision = object["metadata"]["resourceVersion"].as_str().and_then(|revision| revision.parse().ok());
        if event["type"] == "ERROR" {
            assert_eq!(object["code"], 410, "{event}");
            self.expired = true;
            return;
        }
        let revision: u64 = revision.expect("an event has a revision");
        if event["type"] == "BOOKMARK" {
            assert!(revision >= self.seen, "a bookmark goes back to {revision} from {}", self.seen);
            self.seen = revision;
            return;
        }
        assert!(revision > self.seen, "{} at {revision} comes after {}: {event}", event["type"], self.seen);
        self.seen = revision;
        self.revisions.insert(revision);
        let (name, stored) = Stored::of(self.kind, object).expect("events show whole objects");
        if name.starts_with("mark") {
            return;
        }
        let before = self.objects.get(&name);
        match event["type"].as_str() {
            Some("ADDED") => assert_eq!(before, None, "{event}"),
            Some("MODIFIED") => assert_eq!(before.map(|before| &before.uid), Some(&stored.uid), "{event}"),
            Some("DELETED") => {
                assert_eq!(
                    before.map(|before| (&before.uid, before.number)),
                    Some((&stored.uid, stored.number)),
                    "{event}"
                );
                self.objects.remove(&name);
                return;
            }
            _ => panic!("an event of an unknown type: {event}"),
        }
        self.objects.insert(name, stored);
    }
}

async fn read_lines(mut body: hyper::body::Incoming, lines: mpsc::UnboundedSender<String>) {
    let mut pending = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        pending.extend_from_slice(&data);
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(uid: &str, revision: u64, number: u64) -> Option<Stored> {
        Some(Stored { uid: uid.to_owned(), revision, number })
    }

    /// Whether a writer with this acknowledged state and this interrupted write accepts the stored object.
    fn settles(told: Option<Stored>, cut_off: Option<Write>, found: Option<Stored>) -> bool {
        let mut writer = Writer::new(0);
        writer.told.insert("w0-1".to_owned(), told);
        writer.cut_off = cut_off.map(|write| ("w0-1".to_owned(), write));
        let objects = found.into_iter().map(|found| ("w0-1".to_owned(), found)).collect();
        writer.settle(&mut List { revision: 9, objects }).is_ok()
    }

    #[test]
    fn a_lost_or_undone_write_is_noticed() {
        let old = stored("a", 5, 7);
        assert!(settles(old.clone(), None, old.clone()));
        assert!(!settles(old.clone(), None, None), "lost");
        assert!(!settles(old.clone(), None, stored("a", 4, 6)), "gone back");
        assert!(!settles(old.clone(), None, stored("a", 6, 7)), "written again");
        assert!(!settles(old.clone(), None, stored("b", 5, 7)), "another object");
        assert!(!settles(None, None, old), "a delete undone");
    }

    #[test]
    fn a_write_cut_off_happened_or_did_not() {
        let old = stored("a", 5, 7);
        for found in [&old, &stored("a", 6, 8)] {
            assert!(settles(old.clone(), Some(Write::Patch(8)), found.clone()), "{found:?}");
        }
        for found in [None, stored("a", 6, 9), stored("b", 6, 8), stored("a", 5, 8)] {
            assert!(!settles(old.clone(), Some(Write::Patch(8)), found.clone()), "{found:?}");
        }
        assert!(settles(old.clone(), Some(Write::Delete), None));
        assert!(settles(old.clone(), Some(Write::Delete), old.clone()));
        assert!(!settles(old, Some(Write::Delete), stored("a", 6, 7)));
        assert!(settles(None, Some(Write::Create(1)), None));
        assert!(settles(None, Some(Write::Create(1)), stored("a", 6, 1)));
        assert!(!settles(None, Some(Write::Create(1)), stored("a", 6, 2)));
    }

    #[test]
    fn half_of_a_write_is_noticed() {
        for kind in [Kind::ConfigMap, Kind::Job] {
            let whole = kind.object("w0-1", 1_203);
            assert_eq!(kind.number(&whole), Ok(1_203));
            let other = kind.object("w0-1", 1_204);
            for pointer in ["/metadata/annotations", "/metadata/labels", "/data", "/spec"] {
                if let Some(part) = other.pointer(pointer) {
                    let mut half = whole.clone();
                    *half.pointer_mut(pointer).expect("both have it") = part.clone();
                    assert!(kind.number(&half).is_err(), "{kind:?} {pointer}");
                }
            }
        }
    }
}
