//! A server that is asked to stop: while it works, and twice.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::{Value, json};
use support::client::{Api, Call};
use support::server::Server;
use tokio::io::AsyncWriteExt;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: usize = 8;
const WATCHERS: usize = 4;
/// The signal comes after this many acknowledged writes.
const WRITES_BEFORE: usize = 100;
/// Ends a test that would otherwise hang; it asserts nothing.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

/// Creates objects until the server no longer answers. Returns those that were acknowledged.
async fn write(api: Api, writer: usize, acknowledged: Arc<AtomicUsize>) -> Vec<String> {
    let (mut connection, mut done) = (api.connection(), Vec::new());
    for number in 0.. {
        let name = format!("w{writer}-{number}");
        let call = Call::new("POST", CONFIG_MAPS).body(&json!({"metadata": {"name": name}}));
        match connection.call(&call).await {
            Ok(answer) => assert_eq!(answer.code, 201, "{}", answer.text),
            Err(_) => break,
        }
        done.push(name);
        acknowledged.fetch_add(1, Ordering::SeqCst);
    }
    done
}

/// Reads a watch to its end. Returns the names it showed.
async fn watch(api: Api, begun: tokio::sync::mpsc::Sender<()>) -> BTreeSet<String> {
    let mut connection = api.connection();
    let mut body = connection.open(&Call::get(format!("{CONFIG_MAPS}?watch=1"))).await.unwrap().into_body();
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        text.extend_from_slice(frame.expect("the stream ends, it does not break").data_ref().unwrap());
        let _ = begun.try_send(());
    }
    let text = String::from_utf8(text).unwrap();
    assert!(text.ends_with('\n'), "half a line at the end");
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is an event"));
    events.filter_map(|event| event["object"]["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_in_the_middle_of_writes_and_watches_it_loses_nothing() {
    for signal in ["TERM", "INT"] {
        let directory = support::server::directory();
        let mut server = Server::start(directory.path()).await;
        let first = Call::new("POST", CONFIG_MAPS).body(&json!({"metadata": {"name": "first"}}));
        assert_eq!(server.api.connection().call(&first).await.unwrap().code, 201);
        let (begun, mut begins) = tokio::sync::mpsc::channel(1);
        let watches: Vec<_> = (0..WATCHERS).map(|_| tokio::spawn(watch(server.api.clone(), begun.clone()))).collect();
        begins.recv().await.unwrap();
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| tokio::spawn(write(server.api.clone(), writer, acknowledged.clone()))).collect();
        let enough = async {
            while acknowledged.load(Ordering::SeqCst) < WRITES_BEFORE {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(GIVE_UP_AFTER, enough).await.expect("the writers get on");
        server.signal(signal);
        assert_eq!(server.ended(), Some(0), "SIG{signal}: {}", server.said());

        let mut told = BTreeSet::from(["first".to_owned()]);
        for writer in writers {
            told.extend(writer.await.unwrap());
        }
        let mut shown = BTreeSet::new();
        for watch in watches {
            shown.extend(watch.await.unwrap());
        }
        let server = Server::start(directory.path()).await;
        let listed = server.api.connection().call(&Call::get(CONFIG_MAPS)).await.unwrap().value();
        let items = listed["items"].as_array().unwrap().iter();
        let there: BTreeSet<String> =
            items.filter_map(|item| item["metadata"]["name"].as_str()).map(str::to_owned).collect();
        assert!(told.is_subset(&there), "lost: {:?}", told.difference(&there).collect::<Vec<_>>());
        assert!(shown.is_subset(&there), "shown and lost: {:?}", shown.difference(&there).collect::<Vec<_>>());
    }
}

/// A client that does not finish its request delays a stop for a while; a second signal ends the server at once.
#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let directory = support::server::directory();
    ends_in_a_hurry(Server::start(directory.path()).await).await;
    // The data that it leaves can be used.
    let server = Server::start(directory.path()).await;
    assert_eq!(server.api.connection().call(&Call::get(CONFIG_MAPS)).await.unwrap().code, 200);
}

#[tokio::test]
async fn an_ephemeral_server_takes_its_keys_away_also_in_a_hurry() {
    let directory = support::server::directory();
    ends_in_a_hurry(Server::start_with(directory.path(), &["--ephemeral"]).await).await;
    let left: BTreeSet<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, BTreeSet::from(["kubeconfig".into(), "log".into()]));
}

async fn ends_in_a_hurry(mut server: Server) {
    let mut slow = server.api.stream().await.unwrap();
    let head = format!("POST {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{{");
    slow.write_all(head.as_bytes()).await.unwrap();
    slow.flush().await.unwrap();
    let at_work = async {
        let mut connection = server.api.connection();
        // The request for the metrics is in flight, too.
        let two = "apiserver_current_inflight_requests 2";
        while !connection.call(&Call::get("/metrics")).await.unwrap().text.contains(two) {}
    };
    tokio::time::timeout(GIVE_UP_AFTER, at_work).await.expect("the request is noticed");
    server.signal("TERM");
    let stopping = async { while server.api.stream().await.is_ok() {} };
    tokio::time::timeout(GIVE_UP_AFTER, stopping).await.expect("nobody is let in any more");
    server.signal("TERM");
    assert_eq!(server.ended(), Some(1), "{}", server.said());
}
