//! The suite: thing by thing, all clients at the same time, each in a namespace of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::checks::{Truth, check};
use crate::drivers::{self, Answer, Driver, GIVE_UP_AFTER, Place};
use crate::gap::Gap;
use crate::support::client::{Api, Call};
use crate::support::server::{self, Server};
use crate::table::{CLIENTS, Cell, Column, THINGS};
use crate::{all_are_required, announce};

/// Objects that exist while the clients list.
pub const OBJECTS: usize = 5_000;
const PAGE: usize = 500;

struct Client {
    column: &'static Column,
    driver: Box<dyn Driver>,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_does_everything_that_it_offers() {
    let directory = server::directory();
    let data = directory.path().join("data");
    let server = Server::start_with(directory.path(), &["--data-dir", data.to_str().unwrap()]).await;
    let gap = Gap::start(server.api.authority().to_owned()).await;
    let kubeconfig = std::fs::read_to_string(server.kubeconfig()).unwrap();
    let kubeconfig = kubeconfig.replace(server.api.authority(), &gap.address.to_string());

    let mut clients = Vec::new();
    let mut missing = BTreeMap::new();
    for column in &CLIENTS {
        let home = directory.path().join(column.id);
        std::fs::create_dir(&home).unwrap();
        let place = Place { kubeconfig: home.join("kubeconfig"), home };
        std::fs::write(&place.kubeconfig, &kubeconfig).unwrap();
        match drivers::start(column, place) {
            Ok(driver) => clients.push(Client { column, driver }),
            Err(why) => drop(missing.insert(column.id, why)),
        }
    }
    assert!(!clients.is_empty(), "no client is installed: run `make tools`");

    let namespaces = clients.iter().map(|client| client.column.id).collect();
    let mut suite =
        Suite { api: server.api.clone(), clients, namespaces, done: BTreeSet::new(), failures: BTreeMap::new() };
    let began = Instant::now();
    let mut took = Vec::new();
    tokio::join!(prepare(&suite), many_objects(&suite.api));
    took.push(("preparation", began.elapsed()));
    let chosen = std::env::var("THING").ok();
    for thing in THINGS.iter().filter(|thing| chosen.as_ref().is_none_or(|chosen| chosen == thing.id)) {
        let began = Instant::now();
        match thing.id {
            "paging" => suite.paging().await,
            "watch" => suite.watch(&gap).await,
            _ => suite.plain(thing.id).await,
        }
        took.push((thing.id, began.elapsed()));
    }
    report(&suite, &missing, &took);
    let failures: Vec<_> =
        suite.failures.iter().map(|((client, thing), why)| format!("{client}, {thing}: {why}")).collect();
    assert!(failures.is_empty(), "{}\n{}", failures.join("\n"), server.said());
    let cells = suite.namespaces.iter().flat_map(|client| THINGS.iter().map(|thing| (*client, thing.id)));
    let column = |id: &str| CLIENTS.iter().find(|column| column.id == id).unwrap();
    let left_out = cells.filter(|place| column(place.0).cell(place.1).runs() && !suite.done.contains(place));
    assert!(chosen.is_some() || left_out.count() == 0, "a client was not asked");
    assert!(missing.is_empty() || !all_are_required(), "NOT RUN: {missing:?}");
}

struct Suite {
    api: Api,
    /// Those that are doing nothing.
    clients: Vec<Client>,
    /// One for each client, with its name.
    namespaces: Vec<&'static str>,
    done: BTreeSet<(&'static str, &'static str)>,
    failures: BTreeMap<(&'static str, &'static str), String>,
}

impl Suite {
    /// A thing that needs no more than the request.
    async fn plain(&mut self, thing: &'static str) {
        if thing == "logs" {
            self.in_each_namespace(|_| talker()).await;
        }
        let (answers, _notes) = self.ask(thing, |_| request(thing));
        self.check(thing, answers).await;
    }

    /// Another client writes all the time.
    async fn paging(&mut self) {
        let writer = Writer::start(self.api.clone()).await;
        let before = writer.count();
        let (answers, _notes) = self.ask("paging", |_| json!({"namespace": "many", "limit": PAGE}));
        let answers = join(answers).await;
        let written = writer.stop().await - before;
        assert!(written > 0, "nothing was written while the clients listed");
        for (client, answer) in answers {
            self.check_one("paging", client, answer).await;
        }
    }

    /// The server discards the history of what the clients have seen last. Then their connections break, and what they
    /// watch changes before they are back.
    async fn watch(&mut self, gap: &Gap) {
        self.in_each_namespace(|_| watched("a", "1")).await;
        self.in_each_namespace(|_| watched("b", "1")).await;
        let version = version(&self.api).await;
        let (answers, mut notes) = self.ask("watch", |_| json!({"version": version}));
        let watching: BTreeSet<_> = answers.iter().map(|(client, _)| *client).collect();
        let (mut seen, mut stopped) = (BTreeMap::new(), BTreeSet::new());
        all_see(&mut notes, &watching, &mut seen, &mut stopped, &["a", "b"]).await;

        // Before the connections break: some clients give up a connection that is not answered for ten seconds.
        discard_history(&self.api, &version).await;
        gap.hold();
        let mut connection = self.api.connection();
        for namespace in &self.namespaces {
            let path = format!("/api/v1/namespaces/{namespace}/configmaps");
            let a = Call::new("PATCH", format!("{path}/a")).header("content-type", "application/merge-patch+json");
            let calls = [
                a.body(&json!({"data": {"v": "2"}})),
                Call::new("DELETE", format!("{path}/b")),
                Call::new("POST", &path).body(&watched("c", "1").1),
            ];
            for call in calls {
                let answer = connection.call(&call).await.unwrap();
                assert!(answer.code < 300, "{call:?}: {answer:?}");
            }
        }
        gap.release();
        // They have listed again; now they must be watching again.
        all_see(&mut notes, &watching, &mut seen, &mut stopped, &["c"]).await;
        self.in_each_namespace(|_| watched("end", "1")).await;
        self.check("watch", answers).await;
    }

    /// Creates an object in the namespace of each client. For a Pod, waits until it runs.
    async fn in_each_namespace(&self, object: impl Fn(&str) -> (&'static str, Value)) {
        for namespace in &self.namespaces {
            let mut connection = self.api.connection();
            let (resource, object) = object(namespace);
            let path = format!("/api/v1/namespaces/{namespace}/{resource}");
            let answer = connection.call(&Call::new("POST", &path).body(&object)).await.unwrap();
            assert_eq!(answer.code, 201, "{answer:?}");
        }
        for namespace in &self.namespaces {
            let (resource, object) = object(namespace);
            if resource == "pods" {
                let name = object["metadata"]["name"].as_str().unwrap();
                let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
                let mut truth = Truth::new(&self.api, namespace);
                truth.eventually(&path, |pod| pod["status"]["phase"] != "Pending").await;
            }
        }
    }

    /// Gives the request to every client that has means for it.
    fn ask(&mut self, thing: &'static str, request: impl Fn(&Column) -> Value) -> (Vec<(&'static str, Asked)>, Notes) {
        let (sender, notes) = unbounded_channel();
        let mut answers = Vec::new();
        let mut kept = Vec::new();
        for client in self.clients.drain(..) {
            if !client.column.cell(thing).runs() {
                kept.push(client);
                continue;
            }
            let mut request = request(client.column);
            request["thing"] = thing.into();
            if request["namespace"].is_null() {
                request["namespace"] = client.column.id.into();
            }
            let id = client.column.id;
            let sender = sender.clone();
            answers.push((id, tokio::task::spawn_blocking(move || answered(client, &request, &sender))));
        }
        self.clients = kept;
        (answers, notes)
    }

    async fn check(&mut self, thing: &'static str, answers: Vec<(&'static str, Asked)>) {
        for (client, answer) in join(answers).await {
            self.check_one(thing, client, answer).await;
        }
    }

    /// The client is available again.
    async fn check_one(&mut self, thing: &'static str, client: Client, answer: Answer) {
        let column = client.column;
        self.clients.push(client);
        let mut truth = Truth::new(&self.api, column.id);
        let right = match answer {
            Ok(answer) => check(thing, column.cell(thing), &answer, &mut truth).await,
            Err(error) => Err(error),
        };
        match right {
            Ok(()) => drop(self.done.insert((column.id, thing))),
            Err(why) => drop(self.failures.insert((column.id, thing), why)),
        }
    }
}

type Asked = tokio::task::JoinHandle<(Client, Answer)>;
type Note = (&'static str, Option<Value>);
type Notes = UnboundedReceiver<Note>;

fn answered(mut client: Client, request: &Value, notes: &UnboundedSender<Note>) -> (Client, Answer) {
    let id = client.column.id;
    let answer = client.driver.ask(request, &|note| drop(notes.send((id, Some(note)))));
    // The test must not wait for what a client that has failed will not reach.
    let _ = notes.send((id, None));
    (client, answer)
}

async fn join(answers: Vec<(&'static str, Asked)>) -> Vec<(Client, Answer)> {
    let mut joined = Vec::new();
    for (_, answer) in answers {
        joined.push(answer.await.expect("a driver does not panic"));
    }
    joined
}

/// Waits until all clients have seen these names, or have stopped.
async fn all_see(
    notes: &mut Notes,
    clients: &BTreeSet<&'static str>,
    seen: &mut BTreeMap<&'static str, Value>,
    stopped: &mut BTreeSet<&'static str>,
    names: &[&str],
) {
    let lacks = |seen: &BTreeMap<&'static str, Value>, client: &str| {
        seen.get(client).is_none_or(|seen| names.iter().any(|name| seen[*name].is_null()))
    };
    while clients.iter().any(|client| !stopped.contains(client) && lacks(seen, client)) {
        let next = tokio::time::timeout(GIVE_UP_AFTER, notes.recv()).await;
        let next = next.unwrap_or_else(|_| panic!("a client does not see {names:?}: {seen:?}"));
        match next.expect("the clients are running") {
            (client, Some(note)) => drop(seen.insert(client, note["seen"].clone())),
            (client, None) => drop(stopped.insert(client)),
        }
    }
}

/// What a request is about, in addition to its namespace.
fn request(thing: &str) -> Value {
    let map = |name: &str, labels: Value, data: Value| {
        let mut metadata = json!({"name": name});
        if !labels.is_null() {
            metadata["labels"] = labels;
        }
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    };
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "process", "command": ["true"]}]}});
    let job = |metadata: Value, spec: Value| json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec});
    match thing {
        "objects" => {
            let made = [("red-1", "red"), ("red-2", "red"), ("blue-1", "blue")];
            let made = made.map(|(name, colour)| {
                map(name, json!({"colour": colour, "suite": "objects"}), json!({"colour": colour}))
            });
            json!({"make": made})
        }
        "conflict" => json!({
            "alice": map("shared", Value::Null, json!({"key": "one", "other": "kept"})),
            "bob": map("shared", Value::Null, json!({"key": "two"})),
        }),
        "owners" => {
            let users = |limit: u32| {
                job(json!({"name": "shared"}), json!({"suspend": true, "backoffLimit": limit, "template": template}))
            };
            let metadata = json!({"name": "shared", "annotations": {"clients.test/seen": "yes"}});
            json!({"steps": [["user", users(3)], ["controller", job(metadata, json!({"parallelism": 4}))], ["user", users(5)]]})
        }
        "rollback" => json!({
            "first": map("rolled", json!({"tier": "one"}), json!({"a": "1", "b": "2"})),
            "second": map("rolled", Value::Null, json!({"a": "1", "c": "3"})),
        }),
        "terminal" => {
            // The size arrives on a channel of its own, so the command waits for it. The Pod writes the file to its log.
            let script = "read line; while [ \"$(stty size)\" = '0 0' ]; do sleep 0.05; done; \
                          { tty; stty size; } > /tmp/part; mv /tmp/part /tmp/told; echo got $line; exit 3";
            let plain = "tty > /tmp/part; mv /tmp/part /tmp/told; echo got hello; exit 3";
            json!({"pod": "shell", "command": ["sh", "-c", script], "plain": ["sh", "-c", plain], "input": "hello\n"})
        }
        "logs" => json!({"pod": "talker"}),
        "job" => json!({"job": job(json!({"name": "runs"}), json!({"template": template}))}),
        other => panic!("{other}"),
    }
}

fn pod(name: &str, script: &str) -> (&'static str, Value) {
    let container = json!({"name": "main", "image": "process", "command": ["sh", "-c", script]});
    let spec = json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]});
    ("pods", json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}))
}

/// Writes to its log what a command has written to a file.
fn shell() -> (&'static str, Value) {
    pod("shell", "until [ -e /tmp/told ]; do sleep 0.1; done; cat /tmp/told; echo end; sleep 1000")
}

/// Is still writing when the clients ask for its log.
fn talker() -> (&'static str, Value) {
    pod("talker", "echo one; sleep 2; echo two; sleep 1; echo three")
}

fn watched(name: &str, value: &str) -> (&'static str, Value) {
    let metadata = json!({"name": name, "labels": {"suite": "watch"}});
    ("configmaps", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"v": value}}))
}

async fn prepare(suite: &Suite) {
    let mut connection = suite.api.connection();
    for namespace in &suite.namespaces {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let answer = connection.call(&Call::new("POST", "/api/v1/namespaces").body(&body)).await.unwrap();
        assert_eq!(answer.code, 201, "{answer:?}");
    }
    for namespace in &suite.namespaces {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        Truth::new(&suite.api, namespace).eventually(&path, |account| account["kind"] == "ServiceAccount").await;
    }
    suite.in_each_namespace(|_| shell()).await;
}

fn numbered(name: &str, number: u64) -> Value {
    let metadata = json!({"name": name, "labels": {"suite": "paging"}});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"n": number.to_string()}})
}

async fn many_objects(api: &Api) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "many"}});
    let answer = api.connection().call(&Call::new("POST", "/api/v1/namespaces").body(&namespace)).await.unwrap();
    assert_eq!(answer.code, 201, "{answer:?}");
    let names: Vec<String> = (0..OBJECTS).map(|number| format!("fixed-{number:05}")).collect();
    let ends = ["a-first".to_owned(), "z-last".to_owned()];
    let names: Vec<String> = names.into_iter().chain(ends).collect();
    let parts = names.chunks(names.len().div_ceil(16)).map(|names| {
        let (mut connection, names) = (api.connection(), names.to_vec());
        tokio::spawn(async move {
            for name in names {
                let call = Call::new("POST", "/api/v1/namespaces/many/configmaps").body(&numbered(&name, 0));
                let answer = connection.call(&call).await.unwrap();
                assert_eq!(answer.code, 201, "{answer:?}");
            }
        })
    });
    for part in parts.collect::<Vec<_>>() {
        part.await.unwrap();
    }
}

/// Writes in a way that shows whether a list is of one moment: the number of the first object is that of the last one or
/// one more. A list whose later pages are newer than its first one has a last number that is too high.
struct Writer {
    written: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Writer {
    async fn start(api: Api) -> Writer {
        let (written, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stopped) = (written.clone(), stop.clone());
        let task = tokio::spawn(async move {
            let path = "/api/v1/namespaces/many/configmaps";
            let mut connection = api.connection();
            while !stopped.load(Ordering::SeqCst) {
                let number = count.load(Ordering::SeqCst) + 1;
                let mut calls: Vec<_> = ["a-first", "z-last"]
                    .map(|name| Call::new("PUT", format!("{path}/{name}")).body(&numbered(name, number)))
                    .into();
                calls.push(Call::new("POST", path).body(&numbered(&format!("comes-{number}"), number)));
                if number > 20 {
                    calls.push(Call::new("DELETE", format!("{path}/comes-{}", number - 20)));
                }
                for call in calls {
                    let answer = connection.call(&call).await.unwrap();
                    assert!(answer.code < 300, "{call:?}: {answer:?}");
                }
                count.store(number, Ordering::SeqCst);
            }
        });
        let writer = Writer { written, stop, task };
        while writer.count() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        writer
    }

    fn count(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }

    async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.unwrap();
        self.written.load(Ordering::SeqCst)
    }
}

async fn version(api: &Api) -> String {
    let answer = api.connection().call(&Call::get("/api/v1/namespaces/many/configmaps?limit=1")).await.unwrap();
    answer.value()["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// Replaces a large object until the history is full of it (LIMIT: 64 MiB), and asks whether `version` is gone.
async fn discard_history(api: &Api, version: &str) {
    let mut connection = api.connection();
    let path = "/api/v1/namespaces/default/configmaps";
    let ballast = |filling: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ballast"}, "data": {"b": filling.repeat(1_000_000)}});
    let answer = connection.call(&Call::new("POST", path).body(&ballast("x"))).await.unwrap();
    assert_eq!(answer.code, 201, "{answer:?}");
    let watch = format!("{path}?watch=1&timeoutSeconds=1&resourceVersion={version}");
    for round in 0.. {
        assert!(round < 20, "the history is never discarded");
        for number in 0..10 {
            let filling = if number % 2 == 0 { "y" } else { "z" };
            let call = Call::new("PUT", format!("{path}/ballast")).body(&ballast(filling));
            assert_eq!(connection.call(&call).await.unwrap().code, 200);
        }
        // A list at that version costs nothing if it is too old, and shows 10 MB at most if it is not.
        let exact = format!("{path}?limit=1&resourceVersionMatch=Exact&resourceVersion={version}");
        if connection.call(&Call::get(exact)).await.unwrap().code == 410 {
            break;
        }
    }
    let answer = connection.call(&Call::get(watch)).await.unwrap();
    assert!(answer.text.contains("too old resource version"), "{}", &answer.text[..answer.text.len().min(500)]);
}

/// Prints what was run and how it ended.
fn report(suite: &Suite, missing: &BTreeMap<&str, String>, took: &[(&str, Duration)]) {
    announce("\nclients (docs/clients.md):");
    for column in &CLIENTS {
        if let Some(why) = missing.get(column.id) {
            announce(&format!("  NOT RUN: {}: {why}", column.title));
            continue;
        }
        let marks = THINGS.iter().map(|thing| {
            let how = match column.cell(thing.id) {
                Cell::Does(_) => "",
                Cell::Partly(_) => " (partly)",
                Cell::Refused(_) => " (refused in words)",
                Cell::NotOffered(_) => " (not offered)",
            };
            let place = (column.id, thing.id);
            let how = match (suite.failures.contains_key(&place), suite.done.contains(&place)) {
                (true, _) => " FAILED",
                (false, false) if column.cell(thing.id).runs() => " NOT RUN",
                (false, _) => how,
            };
            format!("{}{how}", thing.id)
        });
        announce(&format!("  {}: {}", column.title, marks.collect::<Vec<_>>().join(", ")));
    }
    let took: Vec<_> = took.iter().map(|(thing, took)| format!("{thing} {:.1} s", took.as_secs_f64())).collect();
    announce(&format!("  {}", took.join("; ")));
}
