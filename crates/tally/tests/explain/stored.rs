//! What the API refuses, and a store may have all the same: objects of another version, or that were edited in the store.

use std::path::Path;

use serde_json::{Value, json};
use tally_store::{Body, Change, Expect, Store, StoreOptions, Write};

use crate::support::server::{self, Server};
use crate::tool::{Cluster, Seen, eventually, text};

/// What this part shows.
pub const REASONS: [&str; 6] = [
    "ControllerNotRunning",
    "GangScheduling",
    "InvalidSchedule",
    "StatusRefused",
    "Unreadable",
    "UnknownCompletionMode",
];

/// What a stored text begins with; the store puts the revision behind it.
const HEAD: &str = "{\"metadata\":{\"resourceVersion\":\"";

/// Changes an object in a store that no process uses.
async fn edit(store: &Store, key: &str, change: impl FnOnce(&mut Value)) {
    let found = store.range("", None, None, None).unwrap();
    let entry = found.entries.into_iter().find(|entry| entry.key.ends_with(key)).expect(key);
    let mut object: Value = serde_json::from_slice(&entry.value).unwrap();
    object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    change(&mut object);
    let rest = object["metadata"].to_string();
    object.as_object_mut().unwrap().remove("metadata");
    let bytes = format!("{HEAD}\",{},{}", &rest[1..], &object.to_string()[1..]).into_bytes();
    let put = Change::Put(Body { bytes, stamp_at: HEAD.len(), handle: None });
    store.commit(Write { key: entry.key.to_string(), expect: Expect::At(entry.revision), change: put }).await.unwrap();
}

async fn edit_all(data: &Path) {
    let store = Store::open(&data.join("store"), StoreOptions::default()).unwrap();
    edit(&store, "/default/sorted", |job| job["spec"]["completionMode"] = "Sorted".into()).await;
    edit(&store, "/default/words", |job| job["spec"]["completions"] = "two".into()).await;
    edit(&store, "/default/both", |job| {
        let condition = |kind: &str, reason: &str| {
            json!({"type": kind, "status": "True", "reason": reason, "lastTransitionTime": "2026-01-31T12:00:00Z"})
        };
        job["status"] = json!({"startTime": "2026-01-31T12:00:00Z", "conditions": [
            condition("SuccessCriteriaMet", "SuccessPolicy"), condition("FailureTarget", "BackoffLimitExceeded")]});
    })
    .await;
    edit(&store, "/default/gang", |job| job["spec"]["scheduling"] = json!({"policy": {"gang": {}}})).await;
    edit(&store, "/default/mars", |cron| cron["spec"]["timeZone"] = "Mars/Base".into()).await;
    store.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_api_would_refuse_is_explained() {
    let directory = server::directory();
    let data = directory.path().join("data");
    let mut before = Cluster::of(Server::start(directory.path()).await, directory);
    for name in ["sorted", "words", "both", "gang"] {
        before.job(name, json!({}), json!({}), "true").await;
    }
    let template = crate::tool::job("x", json!({}), json!({}), "true");
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "mars"},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": template["spec"]}}});
    before.create("/apis/batch/v1/namespaces/default/cronjobs", &cron).await;
    before.server.signal("TERM");
    before.server.ended();
    let directory = before.directory;
    edit_all(&data).await;

    // A directory that no process uses.
    let (closed, mode) = (text(&data), "The completion mode \"Sorted\" is unknown to the controller");
    let (two, zone) = ("The object cannot be understood: cannot read Job \"words\"", "unknown time zone Mars/Base");
    let closed = ["--data-dir", &closed];
    let seen = Seen::default();
    seen.says(&closed, "job/sorted", &["UnknownCompletionMode"], mode).await;
    seen.says(&closed, "job/words", &["Unreadable"], two).await;
    let stopped = ["ControllerNotRunning", "InvalidSchedule"];
    let said = seen.says(&closed, "cronjob/mars", &stopped, "that would start Jobs: no process uses").await;
    assert!(said["reasons"][1]["message"].as_str().unwrap().contains(zone), "{said:#}");

    // The same with all controllers: they leave these objects alone, or say what is wrong.
    let options = ["--no-node", "--data-dir", closed[1]];
    let mut cluster = Cluster::of(Server::start_with(directory.path(), &options).await, directory);
    cluster.seen = seen;
    cluster.says("job/sorted", &["UnknownCompletionMode"], mode).await;
    cluster.says("job/words", &["Unreadable"], two).await;
    cluster.says("cronjob/mars", &["InvalidSchedule"], zone).await;
    // GANG-5, EVENT-15.
    let said = cluster.says("job/gang", &["GangScheduling"], "asks for gang scheduling (spec.scheduling)").await;
    assert_eq!(said["state"], "Waiting");
    eventually("the Job has an Event", async || {
        let events = cluster.get("/api/v1/namespaces/default/events").await;
        let about = |event: &&Value| event["involvedObject"]["name"] == "gang" && event["reason"] == "GangScheduling";
        events["items"].as_array()?.iter().find(about).map(|_| ())
    })
    .await;
    let both = "cannot write a status that the API accepts: status.conditions: Invalid value";
    let said = cluster.says("job/both", &["StatusRefused"], both).await;
    let message = said["reasons"][0]["message"].as_str().unwrap();
    assert!(message.contains("cannot set SuccessCriteriaMet=True and"), "{message}");
    cluster.seen.are(&REASONS);
}
