//! A stream delivers every change once and in order, with any selector and at any reading speed, across compactions and
//! reconnects.

use std::collections::BTreeMap;

use crate::support::{Cluster, now};
use proptest::prelude::*;
use tally_api::options::{DeleteOptions, ListOptions, WatchOptions};
use tally_registry::{Object, WatchEvent, WatchStream};
use tally_value::{Value, json};

#[derive(Clone, Debug)]
enum Step {
    Create {
        name: u8,
        label: u8,
    },
    Relabel {
        name: u8,
        label: u8,
    },
    Finalize {
        name: u8,
    },
    Unfinalize {
        name: u8,
    },
    Delete {
        name: u8,
    },
    /// A write that none of these streams selects.
    Elsewhere,
    Compact,
    Read {
        stream: usize,
        events: usize,
    },
    Reconnect {
        stream: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0u8..4;
    let label = 0u8..3;
    let step = prop_oneof![
        4 => (name.clone(), label.clone()).prop_map(|(name, label)| Step::Create { name, label }),
        4 => (name.clone(), label).prop_map(|(name, label)| Step::Relabel { name, label }),
        1 => name.clone().prop_map(|name| Step::Finalize { name }),
        2 => name.clone().prop_map(|name| Step::Unfinalize { name }),
        3 => name.prop_map(|name| Step::Delete { name }),
        2 => Just(Step::Elsewhere),
        1 => Just(Step::Compact),
        6 => (0usize..3, 1usize..4).prop_map(|(stream, events)| Step::Read { stream, events }),
        2 => (0usize..3).prop_map(|stream| Step::Reconnect { stream }),
    ];
    proptest::collection::vec(step, 1..120)
}

/// A client that caches what it watches, as an informer does.
struct Client {
    selector: &'static str,
    stream: WatchStream,
    known: BTreeMap<String, Value>,
    reached: u64,
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn content(object: &Object) -> (String, Value) {
    let value = object.parse();
    (value["metadata"]["name"].as_str().unwrap().to_owned(), value)
}

impl Client {
    fn options(selector: &str, from: Option<u64>) -> WatchOptions {
        WatchOptions { label_selector: selector.to_owned(), from, bookmarks: true, ..WatchOptions::default() }
    }

    fn list(cluster: &Cluster, selector: &'static str) -> Client {
        let options = ListOptions { label_selector: selector.to_owned(), ..ListOptions::default() };
        let listing = cluster.registry.list(cluster.configmaps(), &options).unwrap();
        let known = listing.items.iter().map(content).collect();
        let from = Self::options(selector, Some(listing.revision));
        let stream = cluster.registry.watch(cluster.configmaps(), &from).unwrap();
        Client { selector, stream, known, reached: listing.revision }
    }

    /// A new stream from the position of the last one.
    fn reconnect(&mut self, cluster: &Cluster) {
        let from = Self::options(self.selector, Some(self.reached));
        self.stream = cluster.registry.watch(cluster.configmaps(), &from).unwrap();
    }

    fn read(&mut self, cluster: &Cluster, most: usize) {
        for _ in 0..most {
            let Some(event) = self.stream.try_next() else { return };
            match event {
                WatchEvent::Added(object) => {
                    let (name, value) = self.take(&object);
                    assert!(self.known.insert(name, value).is_none(), "added what was there");
                }
                WatchEvent::Modified(object) => {
                    let (name, value) = self.take(&object);
                    assert!(self.known.insert(name, value).is_some(), "modified what was not there");
                }
                WatchEvent::Deleted(object) => {
                    let (name, _) = self.take(&object);
                    assert!(self.known.remove(&name).is_some(), "deleted what was not there");
                }
                WatchEvent::Bookmark { revision, .. } => {
                    assert!(revision > self.reached, "a bookmark that says nothing new");
                    self.reached = revision;
                }
                WatchEvent::Failed(failure) => {
                    assert_eq!((failure.code, failure.reason), (410, "Expired"));
                    assert!(self.stream.try_next().is_none(), "the failure is the last event");
                    *self = Client::list(cluster, self.selector);
                }
            }
        }
    }

    fn take(&mut self, object: &Object) -> (String, Value) {
        let (name, value) = content(object);
        let at = revision(&value);
        assert!(at > self.reached, "{at} after {}", self.reached);
        self.reached = at;
        (name, value)
    }
}

fn carry_out(cluster: &Cluster, step: &Step, number: usize) {
    let name = |name: &u8| format!("c{name}");
    match step {
        Step::Create { name: at, label } => {
            let object = json!({"metadata": {"name": name(at), "labels": {"l": label.to_string()}}});
            let _ = cluster.create(cluster.configmaps(), &object);
        }
        Step::Relabel { name: at, label } => {
            let patch = json!({"metadata": {"labels": {"l": label.to_string()}}, "data": {"n": number.to_string()}});
            let _ = cluster.merge(cluster.configmap(&name(at)), &patch);
        }
        Step::Finalize { name: at } => {
            let _ = cluster.merge(cluster.configmap(&name(at)), &json!({"metadata": {"finalizers": ["x.io/f"]}}));
        }
        Step::Unfinalize { name: at } => {
            let _ = cluster.merge(cluster.configmap(&name(at)), &json!({"metadata": {"finalizers": null}}));
        }
        Step::Delete { name: at } => {
            let _ = now(cluster.registry.delete(cluster.configmap(&name(at)), &Default::default()));
        }
        Step::Elsewhere => {
            let patch = json!({"metadata": {"annotations": {"n": number.to_string()}}});
            cluster.merge(cluster.namespace(), &patch).unwrap();
        }
        Step::Compact => cluster.store.compact(cluster.store.revision()),
        Step::Read { .. } | Step::Reconnect { .. } => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_client_that_follows_a_stream_knows_what_a_list_shows(steps in steps()) {
        let cluster = Cluster::new();
        let mut clients = ["", "l=1", "l!=2"].map(|selector| Client::list(&cluster, selector));
        for (number, step) in steps.iter().enumerate() {
            carry_out(&cluster, step, number);
            match step {
                Step::Read { stream, events } => clients[*stream].read(&cluster, *events),
                Step::Reconnect { stream } => clients[*stream].reconnect(&cluster),
                _ => {}
            }
        }
        for mut client in clients {
            client.read(&cluster, usize::MAX);
            let listed = Client::list(&cluster, client.selector);
            prop_assert_eq!(&client.known, &listed.known);
            prop_assert_eq!(client.reached, listed.reached, "bookmarks lead to the newest revision");
        }
    }
}

#[test]
fn a_stream_without_a_revision_begins_with_what_is_there() {
    let cluster = Cluster::new();
    cluster.create(cluster.configmaps(), &json!({"metadata": {"name": "a"}})).unwrap();
    let options = WatchOptions { bookmarks: true, initial_events: Some(true), ..WatchOptions::default() };
    let mut stream = cluster.registry.watch(cluster.configmaps(), &options).unwrap();
    assert!(matches!(stream.try_next(), Some(WatchEvent::Added(_))));
    let end = stream.try_next();
    assert!(matches!(end, Some(WatchEvent::Bookmark { initial_events_end: true, .. })), "{end:?}");
    assert!(stream.try_next().is_none());
    cluster.create(cluster.configmaps(), &json!({"metadata": {"name": "b"}})).unwrap();
    assert!(matches!(stream.try_next(), Some(WatchEvent::Added(_))));
}

/// What the readers of the last event make of its object, they make once; its tree and its text say the same.
fn last_of_all(streams: [WatchStream; 2]) -> Value {
    let [one, other] = streams.map(|mut stream| {
        let mut last = None;
        while let Some(event) = stream.try_next() {
            last = Some(event);
        }
        match last {
            Some(WatchEvent::Deleted(object)) => object,
            other => panic!("{other:?}"),
        }
    });
    let read = |object: &Object| object.view(|object| object.read::<Value>()).unwrap();
    assert!(std::sync::Arc::ptr_eq(&read(&one), &read(&other)), "decoded once");
    let text: Value = serde_json::from_slice(&one.bytes).unwrap();
    assert_eq!(one.tree, Some(text.clone()));
    text
}

#[test]
fn readers_of_a_removal_share_its_tree() {
    let cluster = Cluster::new();
    let target = |name| cluster.configmap(name);
    let follow = |target| [(); 2].map(|()| cluster.registry.watch(target, &WatchOptions::default()).unwrap());
    let finalized = json!({"metadata": {"name": "b", "finalizers": ["x.io/f"]}});
    cluster.create(cluster.configmaps(), &json!({"metadata": {"name": "a"}})).unwrap();
    cluster.create(cluster.configmaps(), &finalized).unwrap();

    let streams = follow(cluster.configmaps());
    now(cluster.registry.delete(target("a"), &Default::default())).unwrap();
    assert_eq!(last_of_all(streams)["metadata"]["name"], "a");

    now(cluster.registry.delete(target("b"), &Default::default())).unwrap();
    let streams = follow(cluster.configmaps());
    cluster.merge(target("b"), &json!({"metadata": {"finalizers": null}})).unwrap();
    let last = last_of_all(streams);
    assert_eq!(last["metadata"]["finalizers"][0], "x.io/f", "the state before");
    assert_eq!(last["metadata"]["resourceVersion"], cluster.store.revision().to_string());

    // Marked and removed in one write: two events with a revision each.
    let pods = |name| cluster.target("", "pods", "default", name);
    cluster.create(pods(""), &Cluster::pod("p", Some("n"))).unwrap();
    let streams = follow(pods(""));
    let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    now(cluster.registry.delete(pods("p"), &options)).unwrap();
    let last = last_of_all(streams);
    assert!(last["metadata"]["deletionTimestamp"].is_string(), "{last}");
    assert_eq!(last["metadata"]["resourceVersion"], cluster.store.revision().to_string());
}

#[tokio::test]
async fn a_stream_begins_with_the_whole_selection_however_large_and_whatever_is_written_meanwhile() {
    let cluster = Cluster::new();
    // More objects than one batch, and none selected at the beginning, in the middle and at the end.
    let chosen = |number: usize| (600..700).contains(&number) || (1300..1350).contains(&number);
    for number in 0..2000 {
        let label = if chosen(number) { "y" } else { "n" };
        let object = json!({"metadata": {"name": format!("c{number:04}"), "labels": {"chosen": label}}});
        cluster.create(cluster.configmaps(), &object).unwrap();
    }
    let options = WatchOptions {
        label_selector: "chosen=y".to_owned(),
        bookmarks: true,
        initial_events: Some(true),
        ..WatchOptions::default()
    };
    let mut stream = cluster.registry.watch(cluster.configmaps(), &options).unwrap();
    let begun = cluster.store.revision();
    cluster.merge(cluster.configmap("c0650"), &json!({"metadata": {"labels": {"chosen": "n"}}})).unwrap();
    let mut told = Vec::new();
    loop {
        match stream.next().await {
            Some(WatchEvent::Added(object)) => told.push(content(&object).0),
            Some(WatchEvent::Bookmark { revision, initial_events_end: true }) => {
                assert_eq!(revision, begun);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        told,
        (0..2000).filter(|number| chosen(*number)).map(|number| format!("c{number:04}")).collect::<Vec<_>>()
    );
    let Some(WatchEvent::Deleted(left)) = stream.next().await else { panic!("it left the selection") };
    assert_eq!(content(&left).0, "c0650");
}

#[test]
fn a_stream_from_a_forgotten_revision_says_so_in_the_stream() {
    let cluster = Cluster::new();
    let old = cluster.store.revision();
    for name in ["a", "b"] {
        cluster.create(cluster.configmaps(), &json!({"metadata": {"name": name}})).unwrap();
    }
    cluster.store.compact(cluster.store.revision());
    let options = WatchOptions { from: Some(old), ..WatchOptions::default() };
    let mut stream = cluster.registry.watch(cluster.configmaps(), &options).unwrap();
    let Some(WatchEvent::Failed(failure)) = stream.try_next() else { panic!("no failure") };
    assert_eq!((failure.code, failure.reason), (410, "Expired"));
    assert!(stream.try_next().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stream_from_a_revision_that_is_not_reached_waits_for_it_a_while() {
    let cluster = Cluster::new();
    let revision = cluster.store.revision();
    let from = |ahead, initial_events, timeout| WatchOptions {
        from: Some(revision + ahead),
        initial_events,
        timeout_seconds: Some(timeout),
        ..WatchOptions::default()
    };
    let open = |options| cluster.registry.watch(cluster.configmaps(), &options).unwrap();
    assert!(open(from(9, None, 1)).next().await.is_none(), "silence until the time asked for is over");
    for mut stream in [open(from(9, None, 60)), open(from(9, Some(true), 60))] {
        let Some(WatchEvent::Failed(failure)) = stream.next().await else { panic!("no failure") };
        assert_eq!((failure.code, failure.reason), (504, "Timeout"));
        assert!(stream.next().await.is_none());
    }
    let (mut stream, mut quiet) = (open(from(1, None, 60)), open(from(2, None, 60)));
    for name in ["a", "b"] {
        cluster.create(cluster.configmaps(), &json!({"metadata": {"name": name}})).unwrap();
    }
    let Some(WatchEvent::Added(object)) = stream.next().await else { panic!("nothing") };
    assert_eq!(object.parse()["metadata"]["name"], "b", "only what came after it");
    for stream in [&mut stream, &mut quiet] {
        assert!(stream.next().await.is_none(), "reached: there is nothing to complain about");
    }
}

#[tokio::test(start_paused = true)]
async fn bookmarks_follow_writes_elsewhere_but_not_each_of_them() {
    let cluster = Cluster::new();
    let options = WatchOptions {
        from: Some(cluster.store.revision()),
        bookmarks: true,
        timeout_seconds: Some(1),
        ..WatchOptions::default()
    };
    let mut stream = cluster.registry.watch(cluster.configmaps(), &options).unwrap();
    let mut told = Vec::new();
    for number in 0..50 {
        cluster.merge(cluster.namespace(), &json!({"metadata": {"annotations": {"n": number.to_string()}}})).unwrap();
        if let Ok(event) = tokio::time::timeout(std::time::Duration::from_millis(10), stream.next()).await {
            told.push(event);
        }
    }
    // 50 writes in half a second: the first bookmark at once, then ten per second.
    assert!((4..=6).contains(&told.len()), "{}", told.len());
    while let Some(event) = stream.next().await {
        told.push(Some(event));
    }
    let Some(Some(WatchEvent::Bookmark { revision, .. })) = told.last() else { panic!("{told:?}") };
    assert_eq!(*revision, cluster.store.revision());
}
