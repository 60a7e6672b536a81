//! Races: another client acts between a decision and its write, or the process ends between two writes.

use std::future::Future;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::support::{Cluster, now};
use tally_api::options::{DeleteOptions, Format, ListOptions, WriteOptions};
use tally_core::time::Timestamp;
use tally_registry::{Env, Registry, Target};
use tally_store::backend::{Account, Backend, BackendError, Planned};
use tally_store::{Store, StoreOptions};
use tally_value::{Value, json};

type Meddling = Box<dyn FnOnce(&Cluster) + Send>;

/// A clock: when it is read the next time, another client sends a request first.
#[derive(Clone, Default)]
struct Meddler {
    next: Arc<Mutex<Option<Meddling>>>,
    other: Arc<Mutex<Option<Cluster>>>,
}

impl Meddler {
    /// Two clients of one store; the second acts when the first one's request reads the clock.
    fn clusters() -> (Cluster, Meddler) {
        let meddler = Meddler::default();
        let other = Cluster::new();
        let first = Cluster::on(other.store.clone(), Box::new(meddler.clone()));
        *meddler.other.lock().unwrap() = Some(other);
        (first, meddler)
    }

    fn then(&self, meddling: impl FnOnce(&Cluster) + Send + 'static) {
        *self.next.lock().unwrap() = Some(Box::new(meddling));
    }
}

impl Env for Meddler {
    fn now(&self) -> Timestamp {
        let next = self.next.lock().unwrap().take();
        if let Some(next) = next {
            next(self.other.lock().unwrap().as_ref().unwrap());
        }
        Timestamp::from_seconds(1_700_000_000)
    }

    fn new_uid(&self) -> String {
        "11111111-0000-4000-8000-000000000000".to_owned()
    }

    fn random(&self, _: u32) -> u32 {
        0
    }
}

/// A disk that waits for the test before each group, and reports what it was given.
struct Slow {
    groups: Sender<Vec<(bool, Value)>>,
    go: Receiver<()>,
}

impl Backend for Slow {
    fn write(&mut self, writes: &[Planned], _: &Account) -> Result<(), BackendError> {
        // If a key is written twice, only the last write is stored.
        let lasting = writes.iter().filter(|write| !write.superseded);
        let told = lasting.map(|write| (write.deleted, serde_json::from_slice(&write.entry.value).unwrap()));
        self.groups.send(told.collect()).unwrap();
        self.go.recv().map_err(|_| "the test is over".into())
    }
}

/// Fields are dropped in this order: the disk must not wait for a failed test.
struct SlowCluster {
    go: Sender<()>,
    groups: Receiver<Vec<(bool, Value)>>,
    cluster: Cluster,
}

impl SlowCluster {
    fn new() -> SlowCluster {
        let (told, groups) = channel();
        let (go, wait) = channel();
        let store = Store::with_backend(Box::new(Slow { groups: told, go: wait }), StoreOptions::default()).unwrap();
        let slow = SlowCluster { cluster: Cluster::on(store, Box::new(Meddler::default())), groups, go };
        slow.run(slow.cluster.registry.begin()).unwrap();
        slow
    }

    /// Runs a request to its end; the groups that reached the disk are discarded.
    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = Box::pin(future);
        loop {
            match poll(&mut future) {
                Poll::Ready(done) => return done,
                Poll::Pending => {
                    if self.groups.try_recv().is_ok() {
                        self.go.send(()).unwrap();
                    }
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Waits for one group and lets the disk write it.
    fn write_one(&self) {
        let before = self.cluster.store.revision();
        self.groups.recv().unwrap();
        self.go.send(()).unwrap();
        while self.cluster.store.revision() == before {
            std::thread::yield_now();
        }
    }
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn pod(cluster: &Cluster, name: &'static str) -> Target<'static> {
    cluster.target("", "pods", "default", name)
}

#[test]
fn a_pod_that_nothing_holds_is_marked_and_removed_in_one_write() {
    let slow = SlowCluster::new();
    let Cluster { registry, .. } = &slow.cluster;
    let (body, options) = (Cluster::pod("p", None).to_string(), WriteOptions::default());
    slow.run(registry.create(pod(&slow.cluster, ""), body.as_bytes(), Format::Json, &options)).unwrap();
    let options = DeleteOptions::default();
    let mut delete = Box::pin(registry.delete(pod(&slow.cluster, "p"), &options));
    assert!(poll(&mut delete).is_pending());
    // If the process ends right after this group, the Pod is removed and not left behind.
    let group = slow.groups.recv().unwrap();
    let removed: Vec<_> = group.iter().map(|(deleted, pod)| (*deleted, pod["metadata"]["name"].as_str())).collect();
    assert_eq!(removed, [(true, Some("p"))]);
    slow.go.send(()).unwrap();
    slow.run(delete).unwrap();
    assert_eq!(slow.cluster.get(pod(&slow.cluster, "p")).unwrap_err().code, 404);
}

#[test]
fn a_namespace_that_goes_while_something_is_created_in_it_stays_empty() {
    let (cluster, meddler) = Meddler::clusters();
    cluster.create(cluster.target("", "namespaces", "", ""), &json!({"metadata": {"name": "n"}})).unwrap();
    let inside = cluster.target("", "configmaps", "n", "");
    // An unrelated change of the namespace does not fail a create.
    meddler.then(|other| {
        other.merge(other.target("", "namespaces", "", "n"), &json!({"metadata": {"labels": {"l": "v"}}})).unwrap();
    });
    cluster.create(inside, &json!({"metadata": {"name": "a"}})).unwrap();
    meddler.then(|other| {
        now(other.registry.delete(other.target("", "namespaces", "", "n"), &DeleteOptions::default())).unwrap();
    });
    let refused = cluster.create(inside, &json!({"metadata": {"name": "b"}})).map(|_| ()).unwrap_err();
    assert_eq!((refused.code, refused.reason), (403, "Forbidden"));
    assert_eq!(refused.details.unwrap().causes[0].reason, "NamespaceTerminating");
    let names = cluster.registry.list(inside, &ListOptions::default()).unwrap();
    assert_eq!(names.items.len(), 1);
}

#[test]
fn one_that_took_the_name_of_another_is_not_deleted_in_its_place() {
    let (cluster, meddler) = Meddler::clusters();
    for name in ["a", "b"] {
        cluster.create(cluster.configmaps(), &json!({"metadata": {"name": name, "labels": {"l": "v"}}})).unwrap();
    }
    meddler.then(|other| {
        now(other.registry.delete(other.configmap("b"), &DeleteOptions::default())).unwrap();
        other.create(other.configmaps(), &json!({"metadata": {"name": "b"}})).unwrap();
    });
    let selection = ListOptions { label_selector: "l=v".to_owned(), ..ListOptions::default() };
    let options = DeleteOptions::default();
    let deleted = now(cluster.registry.delete_collection(cluster.configmaps(), &selection, &options)).unwrap();
    assert_eq!(deleted.items.len(), 2);
    assert_eq!(cluster.get(cluster.configmap("a")).unwrap_err().code, 404);
    assert_eq!(cluster.get(cluster.configmap("b")).unwrap()["metadata"]["labels"], Value::Null);
}

fn eviction(name: &str, options: Value) -> String {
    json!({"metadata": {"name": name}, "deleteOptions": options}).to_string()
}

#[test]
fn an_eviction_spares_the_pod_that_took_the_name_of_the_one_it_marked() {
    let slow = SlowCluster::new();
    let Cluster { registry, store } = &slow.cluster;
    let options = WriteOptions::default();
    let body = Cluster::pod("p", Some("node")).to_string();
    let create = || registry.create(pod(&slow.cluster, ""), body.as_bytes(), Format::Json, &options);
    slow.run(create()).unwrap();
    let target = pod(&slow.cluster, "p");
    let target = Target { subresource: target.resource.subresource("eviction"), ..target };
    let text = eviction("p", json!({}));
    let mut evict = Box::pin(registry.create(target, text.as_bytes(), Format::Json, &options));
    assert!(poll(&mut evict).is_pending(), "it waits for the Pod to be marked");
    slow.write_one();
    // Before the eviction deletes the Pod, the Pod is gone and another one has its name.
    let at_once = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    slow.run(registry.delete(pod(&slow.cluster, "p"), &at_once)).unwrap();
    let other = json!({"metadata": {"name": "p", "labels": {"other": "one"}}, "spec": Cluster::pod("p", None)["spec"]});
    let other_body = other.to_string();
    let renewed = Registry::new(store.clone(), Box::new(Renewing));
    slow.run(renewed.create(pod(&slow.cluster, ""), other_body.as_bytes(), Format::Json, &options)).unwrap();
    let refused = slow.run(evict).map(|_| ()).unwrap_err();
    assert_eq!(refused.code, 409, "{}", refused.message);
    let spared = slow.cluster.get(pod(&slow.cluster, "p")).unwrap();
    assert_eq!(spared["metadata"]["deletionTimestamp"], Value::Null);
    assert_eq!(spared["metadata"]["labels"]["other"], "one");
}

#[test]
fn an_eviction_spares_the_pod_that_took_the_name_while_the_budget_was_paid() {
    let (cluster, meddler) = Meddler::clusters();
    let labelled = |node: Option<&str>| {
        let mut pod = Cluster::pod("p", node);
        pod["metadata"]["labels"] = json!({"a": "b"});
        pod
    };
    let status = |target: Target<'static>| Target { subresource: target.resource.subresource("status"), ..target };
    cluster.create(pod(&cluster, ""), &labelled(Some("node"))).unwrap();
    let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    cluster.merge(status(pod(&cluster, "p")), &running).unwrap();
    let budget =
        json!({"metadata": {"name": "g"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
    let budgets = |name| cluster.target("policy", "poddisruptionbudgets", "default", name);
    cluster.create(budgets(""), &budget).unwrap();
    let allows = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2}});
    cluster.merge(status(budgets("g")), &allows).unwrap();
    // The clock is read a second time when the disruption is taken from the budget.
    let again = meddler.clone();
    meddler.then(move |_| {
        again.then(move |other| {
            let at_once = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
            now(other.registry.delete(pod(other, "p"), &at_once)).unwrap();
            other.create(pod(other, ""), &labelled(None)).unwrap();
        });
    });
    let target = pod(&cluster, "p");
    let target = Target { subresource: target.resource.subresource("eviction"), ..target };
    let text = eviction("p", json!({}));
    let done = now(cluster.registry.create(target, text.as_bytes(), Format::Json, &WriteOptions::default()));
    assert_eq!(done.map(|_| ()).unwrap_err().code, 409);
    let spared = cluster.get(pod(&cluster, "p")).unwrap();
    assert_eq!(spared["status"]["conditions"], Value::Null, "not even marked");
}

#[test]
fn a_replacement_that_makes_what_is_missing_does_not_mind_who_made_it() {
    let (cluster, meddler) = Meddler::clusters();
    let role = cluster.target("rbac.authorization.k8s.io", "roles", "default", "r");
    let rules = |verb: &str| json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]);
    let ours = json!({"metadata": {"name": "r"}, "rules": rules("get")}).to_string();
    let theirs = json!({"metadata": {"name": "r"}, "rules": rules("list")});
    meddler.then(move |other| {
        other.create(Target { name: "", ..role }, &theirs).unwrap();
    });
    let written = now(cluster.registry.update(role, ours.as_bytes(), Format::Json, &WriteOptions::default())).unwrap();
    assert!(!written.created, "it was there by then");
    assert_eq!(cluster.get(role).unwrap()["rules"], rules("get"));
}

/// Assigns UIDs that the other worlds of this file do not.
struct Renewing;

impl Env for Renewing {
    fn now(&self) -> Timestamp {
        Timestamp::from_seconds(1_700_000_000)
    }

    fn new_uid(&self) -> String {
        "22222222-0000-4000-8000-000000000000".to_owned()
    }

    fn random(&self, _: u32) -> u32 {
        0
    }
}

#[test]
fn an_eviction_is_held_to_its_preconditions_before_it_changes_anything() {
    let cluster = Cluster::new();
    cluster.create(pod(&cluster, ""), &Cluster::pod("p", Some("node"))).unwrap();
    let stored = cluster.get(pod(&cluster, "p")).unwrap();
    let target = pod(&cluster, "p");
    let target = Target { subresource: target.resource.subresource("eviction"), ..target };
    let evict = |preconditions: Value| {
        let text = eviction("p", json!({"preconditions": preconditions}));
        let done = now(cluster.registry.create(target, text.as_bytes(), Format::Json, &WriteOptions::default()));
        done.map(|_| ()).map_err(|failure| failure.code)
    };
    assert_eq!(evict(json!({"uid": "another"})), Err(409));
    assert_eq!(evict(json!({"resourceVersion": "1"})), Err(409));
    assert_eq!(cluster.get(pod(&cluster, "p")).unwrap(), stored);
    assert_eq!(evict(json!({"resourceVersion": stored["metadata"]["resourceVersion"]})), Ok(()));
    let evicted = cluster.get(pod(&cluster, "p")).unwrap();
    assert_eq!(evicted["status"]["conditions"].as_array().unwrap().last().unwrap()["type"], "DisruptionTarget");
    assert_ne!(evicted["metadata"]["deletionTimestamp"], Value::Null);
}
