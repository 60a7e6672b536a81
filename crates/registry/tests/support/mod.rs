//! A registry on a memory store, with a clock that stands still.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::FutureExt;
use tally_api::catalog;
use tally_api::options::{Format, PatchKind, WriteOptions};
use tally_api::status_error::StatusError;
use tally_core::time::Timestamp;
use tally_registry::{Env, Registry, Target, Written};
use tally_store::{Store, StoreOptions};
use tally_value::{Value, json};

pub fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the memory store never waits")
}

#[derive(Default)]
struct Still {
    drawn: AtomicU32,
}

impl Env for Still {
    fn now(&self) -> Timestamp {
        Timestamp::from_seconds(1_700_000_000)
    }

    fn new_uid(&self) -> String {
        format!("00000000-0000-4000-8000-{:012}", self.drawn.fetch_add(1, Ordering::Relaxed))
    }

    fn random(&self, limit: u32) -> u32 {
        self.drawn.fetch_add(1, Ordering::Relaxed) % limit
    }
}

pub struct Cluster {
    pub registry: Registry,
    pub store: Store,
}

impl Cluster {
    pub fn new() -> Self {
        let cluster = Cluster::on(Store::memory(StoreOptions::default()), Box::new(Still::default()));
        now(cluster.registry.begin()).expect("a cluster begins");
        cluster
    }

    pub fn on(store: Store, env: Box<dyn Env>) -> Self {
        Cluster { registry: Registry::new(store.clone(), env), store }
    }

    pub fn target<'a>(&self, group: &str, plural: &str, namespace: &'a str, name: &'a str) -> Target<'a> {
        Target::new(catalog::find(group, "v1", plural).expect("served"), namespace, name)
    }

    pub fn configmaps(&self) -> Target<'static> {
        self.target("", "configmaps", "default", "")
    }

    pub fn configmap<'a>(&self, name: &'a str) -> Target<'a> {
        self.target("", "configmaps", "default", name)
    }

    pub fn namespace(&self) -> Target<'static> {
        self.target("", "namespaces", "", "default")
    }

    pub fn create(&self, target: Target<'_>, object: &Value) -> Result<Written, StatusError> {
        let body = object.to_string();
        now(self.registry.create(target, body.as_bytes(), Format::Json, &WriteOptions::default()))
    }

    pub fn merge(&self, target: Target<'_>, patch: &Value) -> Result<Written, StatusError> {
        let body = patch.to_string();
        now(self.registry.patch(target, body.as_bytes(), PatchKind::Merge, &WriteOptions::default()))
    }

    pub fn get(&self, target: Target<'_>) -> Result<Value, StatusError> {
        self.registry.get(target, Default::default()).map(|object| object.parse())
    }

    /// A minimal Pod, bound to a node or not.
    pub fn pod(name: &str, node: Option<&str>) -> Value {
        json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        })
    }
}
