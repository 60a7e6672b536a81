//! Events expire some time after their last write, and watchers are told.

use std::sync::Arc;
use std::time::Duration;

use crate::support::Cluster;
use tally_api::catalog;
use tally_api::options::{Format, ListOptions, PatchKind, WatchOptions, WriteOptions};
use tally_core::time::{Span, Timestamp};
use tally_registry::{Env, Registry, Target, WatchEvent};
use tally_store::Store;
use tally_value::{Value, json};
use tokio::time::{Instant, sleep, timeout};

const HOUR: Duration = Duration::from_secs(3600);

fn events(namespace: &str) -> Target<'_> {
    Target::new(catalog::find("", "v1", "events").unwrap(), namespace, "")
}

/// An Event whose last time is so long ago.
fn event(name: &str, ago: i64) -> Value {
    let at = Timestamp::from_seconds(1_700_000_000) - Span::from_seconds(ago);
    json!({
        "metadata": {"name": name, "namespace": "default"}, "reason": "r", "type": "Normal", "lastTimestamp": at.to_string(),
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "source": {"component": "t"},
    })
}

async fn create(registry: &Registry, object: &Value) {
    let text = object.to_string();
    registry.create(events("default"), text.as_bytes(), Format::Json, &WriteOptions::default()).await.unwrap();
}

fn names(registry: &Registry) -> Vec<String> {
    let listing = registry.list(events(""), &ListOptions::default()).unwrap();
    listing.items.iter().map(|item| item.parse()["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn started(cluster: Cluster) -> (Arc<Registry>, Store) {
    let Cluster { registry, store } = cluster;
    let registry = Arc::new(registry);
    tokio::spawn(registry.clone().expire_events(HOUR));
    (registry, store)
}

#[tokio::test(start_paused = true)]
async fn an_event_is_deleted_an_hour_after_its_last_write_and_watchers_see_it() {
    let (registry, _) = started(Cluster::new());
    create(&registry, &event("a", 0)).await;
    let options = WatchOptions { from: Some(registry.revision()), ..WatchOptions::default() };
    let mut watch = registry.watch(events("default"), &options).unwrap();
    let began = Instant::now();
    sleep(HOUR / 2).await;
    create(&registry, &event("b", 0)).await;
    let repeated = json!({"count": 2}).to_string();
    let a = Target::new(events("").resource, "default", "a");
    registry.patch(a, repeated.as_bytes(), PatchKind::Merge, &WriteOptions::default()).await.unwrap();
    assert!(matches!(watch.next().await, Some(WatchEvent::Added(_))));
    assert!(matches!(watch.next().await, Some(WatchEvent::Modified(_))));
    // The write has renewed it.
    sleep(HOUR - Duration::from_secs(2)).await;
    assert_eq!(names(&registry), ["a", "b"]);
    for expected in ["b", "a"] {
        let Some(WatchEvent::Deleted(object)) = watch.next().await else { panic!("a deletion of {expected}") };
        let object = object.parse();
        assert_eq!(object["metadata"]["name"], expected);
        assert_eq!(object["reason"], "r", "the last state is shown");
        assert!(object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() > 0);
    }
    let took = began.elapsed();
    assert!(took >= HOUR * 3 / 2 && took < HOUR * 3 / 2 + Duration::from_secs(2), "{took:?}");
    assert_eq!(names(&registry), Vec::<String>::new());
}

/// A clock that stands still at another time.
struct Then(i64);

impl Env for Then {
    fn now(&self) -> Timestamp {
        Timestamp::from_seconds(1_700_000_000 - self.0)
    }

    fn new_uid(&self) -> String {
        format!("00000000-0000-4000-8000-{:012}", self.0.unsigned_abs())
    }

    fn random(&self, _: u32) -> u32 {
        0
    }
}

#[tokio::test(start_paused = true)]
async fn events_that_were_there_at_the_start_are_kept_as_long_as_is_left_of_their_time() {
    let cluster = Cluster::new();
    for (name, created, last) in [
        ("future", 0, -10_000),
        ("gone", 4000, 4000),
        ("new", 0, 4000),
        ("old", 3000, 3000),
        ("older", 3590, 4000),
        ("repeated", 9000, 10),
    ] {
        let then = Cluster::on(cluster.store.clone(), Box::new(Then(created)));
        create(&then.registry, &event(name, last)).await;
    }
    let (registry, _) = started(cluster);
    for (after, left) in [
        (1, &["future", "new", "old", "older", "repeated"][..]),
        (10, &["future", "new", "old", "repeated"]),
        (700, &["future", "new", "repeated"]),
        (3600 - 715, &["future", "new"]),
        (10, &[]),
    ] {
        sleep(Duration::from_secs(after)).await;
        assert_eq!(names(&registry), left, "after {after} s more");
    }
}

#[tokio::test(start_paused = true)]
async fn many_events_at_once_are_deleted_in_steps() {
    let (registry, store) = started(Cluster::new());
    for number in 0..1000 {
        create(&registry, &event(&format!("e{number:04}"), 0)).await;
    }
    let others = store.len() - 1000;
    sleep(HOUR).await;
    let began = Instant::now();
    while !names(&registry).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(10), "{} are left", names(&registry).len());
        sleep(Duration::from_millis(10)).await;
    }
    assert!(began.elapsed() >= Duration::from_millis(200), "not more than 256 at a time");
    assert_eq!(store.len(), others, "nothing else is deleted");
}

#[tokio::test(start_paused = true)]
async fn the_sweep_goes_on_when_the_history_was_shorter_than_its_pause() {
    let (registry, store) = started(Cluster::new());
    create(&registry, &event("a", 0)).await;
    sleep(Duration::from_secs(1)).await;
    // The sweep does not run between these: the watch is too old when it does.
    create(&registry, &event("b", 0)).await;
    store.compact(store.revision());
    sleep(HOUR + Duration::from_secs(2)).await;
    assert_eq!(names(&registry), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_sweep_ends_with_the_store() {
    let registry = Arc::new(Cluster::new().registry);
    create(&registry, &event("a", 0)).await;
    let sweep = tokio::spawn(registry.clone().expire_events(HOUR));
    sleep(Duration::from_secs(1)).await;
    registry.close();
    timeout(HOUR * 2, sweep).await.expect("it ends").unwrap();
}
