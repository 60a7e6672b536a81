//! The history of every Pod of a namespace, recorded by a watch that started before the first of them. The counters are
//! compared with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Method;
use serde_json::Value;

use crate::api::Api;

#[derive(Clone, Default)]
pub struct Truth(Arc<Mutex<Book>>);

#[derive(Default)]
pub struct Book {
    /// By UID.
    lives: BTreeMap<String, Life>,
    /// Violations: what must never happen, but did.
    problems: Vec<String>,
}

/// One Pod, as it was first and last observed.
#[derive(Clone)]
pub struct Life {
    pub first: Value,
    pub last: Value,
    /// The Pod is deleted.
    pub gone: bool,
}

impl Life {
    pub fn phase(&self) -> &str {
        self.last["status"]["phase"].as_str().unwrap_or_default()
    }

    fn has_ended(&self) -> bool {
        ["Succeeded", "Failed"].contains(&self.phase())
    }

    /// Whether the Job with this UID controlled the Pod when it was first or last observed.
    fn is_of(&self, uid: &str) -> bool {
        let is = |pod: &Value| controller(pod).is_some_and(|owner| owner["uid"] == uid);
        is(&self.first) || is(&self.last)
    }
}

pub fn controller(pod: &Value) -> Option<&Value> {
    pod["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
}

impl Truth {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().expect("nobody panics with it")
    }

    /// Every Pod that the Job with this UID ever had, sorted by age and name.
    pub fn of(&self, uid: &str) -> Vec<Life> {
        let mut lives: Vec<Life> = self.book().lives.values().filter(|life| life.is_of(uid)).cloned().collect();
        let age = |life: &Life| {
            (life.first["metadata"]["creationTimestamp"].to_string(), life.first["metadata"]["name"].to_string())
        };
        lives.sort_by_key(age);
        lives
    }

    pub fn has(&self, uid: &str) -> bool {
        self.book().lives.contains_key(uid)
    }

    pub fn problems(&self) -> Vec<String> {
        self.book().problems.clone()
    }

    fn take(&self, event: &Value) {
        let (kind, pod) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
        if !["ADDED", "MODIFIED", "DELETED"].contains(&kind) {
            return;
        }
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let mut book = self.book();
        let new = || Life { first: pod.clone(), last: pod.clone(), gone: false };
        let life = book.lives.entry(uid).or_insert_with(new);
        let (before, ended) = (life.phase().to_owned(), life.has_ended());
        life.last = pod.clone();
        life.gone = kind == "DELETED";
        let after = life.phase().to_owned();
        if ended && before != after {
            let name = &pod["metadata"]["name"];
            book.problems.push(format!("Pod {name} was {before} and became {after}"));
        }
    }

    /// Follows the Pods of a namespace for as long as the current runtime exists.
    pub async fn follow(&self, api: Api, pods: String) {
        let list = api.get(&pods).await.ok();
        let mut revision = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        assert_eq!(list["items"].as_array().map(Vec::len), Some(0), "a new namespace has no Pods");
        let truth = self.clone();
        tokio::spawn(async move {
            loop {
                truth.watch(&api, &pods, &mut revision).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    }

    /// Watches until the server ends the stream.
    async fn watch(&self, api: &Api, pods: &str, revision: &mut String) {
        let path = format!("{pods}?watch=true&resourceVersion={revision}");
        let Ok(response) = api.open(&Method::GET, &path, "", &Value::Null).await else { return };
        let (mut body, mut rest) = (response.into_body(), Vec::new());
        while let Some(Ok(frame)) = body.frame().await {
            rest.extend_from_slice(frame.data_ref().map(AsRef::as_ref).unwrap_or_default());
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).expect("a watch event");
                if event["type"] == "ERROR" {
                    self.book().problems.push(format!("the watch of Pods cannot go on: {event}"));
                    return;
                }
                if let Some(seen) = event["object"]["metadata"]["resourceVersion"].as_str() {
                    seen.clone_into(revision);
                }
                self.take(&event);
            }
        }
    }
}
