//! The API of the simulated world: the production registry on a store in memory, and what the world needs to know about
//! it.
//!
//! Controllers send the same requests as through a driver to `perform`; nodes, users and the garbage collector use the
//! registry's other verbs. It injects no faults itself: the world around it delays, loses and reorders. Every committed
//! write is read back from the store's watch, in order, into the logs from which streams and lists are served and into
//! `changes` for the oracle.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use compact_str::CompactString;
use futures_util::FutureExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tally_api::catalog;
use tally_api::kinds::Resource;
use tally_api::options::{DeleteOptions, Format, PatchKind, ReadAt, WriteOptions};
use tally_api::status_error::StatusError as Failure;
use tally_core::gates::FeatureGates;
use tally_core::ids::{JobUid, PodUid, Revision};
use tally_core::job::{JobSpec, JobView};
use tally_core::pod::{Phase, PodView, TRACKING_FINALIZER};
use tally_core::time::Timestamp;
use tally_registry::{Object, Registry, Target};
use tally_runtime::controller::{Call, Kind, Refusal, Reply, Verb};
use tally_store::{Change as StoreChange, Event, Expect, Store, StoreOptions, Watcher, Write};

pub use tally_api::options::Propagation;

use crate::action::Action;
use crate::archive::Archive;
use crate::render;

pub type Key = (CompactString, CompactString);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// A Job or TTL controller.
    Controller {
        instance: usize,
        incarnation: u32,
    },
    Node,
    User,
    Collector,
    /// Any other controller.
    Hosted {
        host: usize,
        incarnation: u32,
    },
}

#[derive(Clone, Debug)]
pub struct StoredJob {
    pub view: Arc<JobView>,
    pub foreground: bool,
    pub orphan: bool,
    /// The Job has a finalizer of another party.
    pub held: bool,
}

#[derive(Clone, Debug)]
pub struct StoredPod {
    pub view: Arc<PodView>,
    /// Deleted with a grace period: removed only once the node confirms.
    pub awaits_node: bool,
    /// Refuses the removal of its tracking finalizer for now, as a webhook might.
    pub refuses: bool,
}

#[derive(Clone, Debug)]
pub struct LogEntry<T> {
    pub at: Revision,
    pub object: Arc<T>,
    pub gone: bool,
}

/// One committed write: its revision, the object as it is stored (or last was), and the decoded views.
#[derive(Clone, Debug)]
pub enum Change {
    Job { at: Revision, json: Bytes, before: Option<Arc<JobView>>, after: Arc<JobView>, gone: bool, actor: Actor },
    Pod { at: Revision, json: Bytes, before: Option<Arc<PodView>>, after: Arc<PodView>, gone: bool, actor: Actor },
}

/// What a policy says that refuses a status.
pub const POLICY: &str = "the policy does not accept the status of this Job";

/// The finalizer that keeps a Job that is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    Foreground,
    Orphan,
    Other,
}

pub struct Api {
    pub now: Timestamp,
    registry: Registry,
    /// The registry's store. The simulator reads it, and puts into it what no client could write.
    store: Store,
    world: Arc<Mutex<Given>>,
    watchers: [Watcher; 2],
    pub jobs: BTreeMap<Key, StoredJob>,
    pub pods: BTreeMap<Key, StoredPod>,
    pub job_log: Vec<LogEntry<JobView>>,
    pub pod_log: Vec<LogEntry<PodView>>,
    /// Revisions up to this one can no longer be watched from or listed at.
    pub compacted: Revision,
    /// Writes committed since the oracle last looked.
    pub changes: Vec<Change>,
    touches: u64,
    /// Jobs whose status a policy refuses for now.
    pub refused_statuses: BTreeSet<Key>,
    pub archive: Archive,
    /// Namespaces exist only if a user has created them, and any request may be refused.
    cluster: bool,
}

/// The environment of the registry.
#[derive(Default)]
struct Given {
    now: Timestamp,
    next_uid: u128,
    /// The UID of the next object, if a test has set one.
    uid: Option<String>,
}

struct SimEnv(Arc<Mutex<Given>>);

impl SimEnv {
    fn given(&self) -> std::sync::MutexGuard<'_, Given> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl tally_registry::Env for SimEnv {
    fn now(&self) -> Timestamp {
        self.given().now
    }

    fn new_uid(&self) -> String {
        let mut given = self.given();
        given.uid.take().unwrap_or_else(|| given.draw())
    }

    fn random(&self, limit: u32) -> u32 {
        (self.given().next_uid % u128::from(limit.max(1))) as u32
    }
}

impl Given {
    fn draw(&mut self) -> String {
        self.next_uid += 1;
        PodUid::from_u128(self.next_uid).to_string()
    }
}

/// The memory store answers at once; a future that does not would be a bug of the simulator itself.
fn now<T>(future: impl Future<Output = T>) -> T {
    match future.now_or_never() {
        Some(done) => done,
        None => unreachable!("the memory store never waits"),
    }
}

fn resource(group: &str, plural: &str) -> &'static Resource {
    match catalog::find(group, "v1", plural) {
        Some(resource) => resource,
        None => unreachable!("{plural} are served"),
    }
}

fn pods() -> &'static Resource {
    resource("", "pods")
}

fn jobs() -> &'static Resource {
    resource("batch", "jobs")
}

fn key_of(namespace: &str, name: &str) -> Key {
    (namespace.into(), name.into())
}

impl Api {
    pub fn starting_at(now: Timestamp) -> Self {
        Self::starting_with(now, FeatureGates::ALL_ON)
    }

    pub fn starting_with(now: Timestamp, gates: FeatureGates) -> Self {
        let store = Store::memory(StoreOptions::default());
        let world = Arc::new(Mutex::new(Given { now, ..Given::default() }));
        let watch = |prefix| match store.watch(prefix, store.revision()) {
            Ok(watcher) => watcher,
            Err(too_old) => unreachable!("a new store has all of its history: {too_old}"),
        };
        let everything = watch("");
        Self {
            now,
            watchers: [watch("jobs/"), watch("pods/")],
            registry: Registry::new(store.clone(), Box::new(SimEnv(world.clone()))).with_gates(gates),
            store,
            world,
            jobs: BTreeMap::new(),
            pods: BTreeMap::new(),
            job_log: Vec::new(),
            pod_log: Vec::new(),
            compacted: Revision(0),
            changes: Vec::new(),
            touches: 0,
            refused_statuses: BTreeSet::new(),
            archive: Archive::new(everything),
            cluster: false,
        }
    }

    /// From now on the judge examines every write, and a namespace exists only if a user has created it.
    pub(crate) fn begin_cluster(&mut self) {
        self.archive.written = Some(Vec::new());
        self.cluster = true;
    }

    pub fn head(&self) -> Revision {
        Revision(self.store.revision())
    }

    pub fn new_uid(&mut self) -> u128 {
        let mut given = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        given.next_uid += 1;
        given.next_uid
    }

    /// The registry, with its clock set to the world's time.
    fn door(&self) -> &Registry {
        self.world.lock().unwrap_or_else(PoisonError::into_inner).now = self.now;
        &self.registry
    }

    // ---- committed writes ----

    /// Reads back what has been committed since the last call, in the order of the revisions.
    fn drain(&mut self, actor: Actor) {
        self.drain_answered(actor, None);
    }

    /// `answer`: the object in the response to the writer.
    fn drain_answered(&mut self, actor: Actor, answer: Option<&Object>) {
        let mut events: Vec<Event> = Vec::new();
        for watcher in &mut self.watchers {
            match watcher.take(usize::MAX) {
                Ok(batch) => events.extend(batch.events),
                Err(too_old) => unreachable!("read after every write: {too_old}"),
            }
        }
        events.sort_by_key(|event| event.revision);
        for event in events {
            if event.entry.key.starts_with("jobs/") {
                self.note_job(&event, actor);
            } else {
                self.note_pod(&event, actor, answer);
            }
        }
        self.archive.drain(actor);
    }

    fn note_job(&mut self, event: &Event, actor: Actor) {
        let view = match JobView::from_json(&event.entry.value) {
            Ok(view) => Arc::new(view),
            Err(error) => unreachable!("the registry stored a Job that does not decode: {error}"),
        };
        let key = key_of(&view.namespace, &view.name);
        let before = self.jobs.get(&key).map(|stored| stored.view.clone());
        let at = Revision(event.revision);
        self.job_log.push(LogEntry { at, object: view.clone(), gone: event.deleted });
        if event.deleted {
            self.jobs.remove(&key);
        } else {
            let finalizers = holds(&event.entry.value).finalizers;
            let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
            let (foreground, orphan) = (has("foregroundDeletion"), has("orphan"));
            let held = finalizers.len() > usize::from(foreground) + usize::from(orphan);
            self.jobs.insert(key, StoredJob { view: view.clone(), foreground, orphan, held });
        }
        let json = event.entry.value.clone();
        self.changes.push(Change::Job { at, json, before, after: view, gone: event.deleted, actor });
    }

    fn note_pod(&mut self, event: &Event, actor: Actor, answer: Option<&Object>) {
        let view = match PodView::from_json(&event.entry.value) {
            Ok(view) => Arc::new(view),
            Err(error) => unreachable!("the registry stored a Pod that does not decode: {error}"),
        };
        let key = key_of(&view.namespace, &view.name);
        let before = self.pods.get(&key).cloned();
        self.pod_log.push(LogEntry { at: Revision(event.revision), object: view.clone(), gone: event.deleted });
        let mut after = view.clone();
        if event.deleted {
            self.pods.remove(&key);
            // Watchers are shown the last state before the removal; the oracle judges the state that the write
            // produced.
            if let Some(shown) = answer.and_then(|answer| PodView::from_json(&answer.bytes).ok()) {
                after = Arc::new(PodView { revision: view.revision, ..shown });
            }
            Arc::make_mut(&mut after).tracked = false;
        } else {
            let awaits_node = view.deleting() && holds(&event.entry.value).deletion_grace_period_seconds > 0;
            let refuses = before.as_ref().is_some_and(|before| before.refuses && before.view.uid == view.uid);
            self.pods.insert(key, StoredPod { view, awaits_node, refuses });
        }
        let before = before.map(|before| before.view);
        let (at, json) = (Revision(event.revision), event.entry.value.clone());
        self.changes.push(Change::Pod { at, json, before, after, gone: event.deleted, actor });
    }

    /// Whether nothing new can be created in this namespace.
    pub(crate) fn is_terminating(&self, namespace: &str) -> bool {
        let Some(entry) = self.store.get(&format!("namespaces/{namespace}")) else { return false };
        let object: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
        object.pointer("/metadata/deletionTimestamp").is_some()
    }

    // ---- creating ----

    /// Every object is in a namespace; the first object in a namespace creates it.
    fn ensure_namespace(&self, name: &str) {
        if !self.cluster && self.store.get(&format!("namespaces/{name}")).is_none() {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string();
            let target = Target::new(resource("", "namespaces"), "", "");
            let created = now(self.door().create(target, body.as_bytes(), Format::Json, &WriteOptions::default()));
            if let Err(failure) = created {
                unreachable!("a namespace was refused: {}", failure.message);
            }
        }
    }

    fn create(&mut self, resource: &'static Resource, object: &Value, actor: Actor) -> Result<Object, Failure> {
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
        self.ensure_namespace(namespace);
        let target = Target::new(resource, namespace, "");
        let body = object.to_string();
        let written = now(self.door().create(target, body.as_bytes(), Format::Json, &WriteOptions::default()));
        self.drain(actor);
        written.map(|written| written.object)
    }

    /// Creates a Job as a user sends it. None: the name is taken, or the Job would wait for itself.
    pub fn create_job(&mut self, job: &Value) -> Option<Arc<JobView>> {
        match self.create(jobs(), job, Actor::User) {
            Ok(_) => {
                let text = |pointer| job.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                let key = key_of(text("/metadata/namespace"), text("/metadata/name"));
                self.jobs.get(&key).map(|stored| stored.view.clone())
            }
            Err(failure) if failure.reason == "AlreadyExists" || self.cluster => None,
            Err(failure) if failure.message.contains("wait for each other") => None,
            Err(failure) => unreachable!("the simulator made a Job that is refused: {}\n{job}", failure.message),
        }
    }

    /// Stores a Job as it may exist in a store: with any status, and with a spec that another version may have
    /// accepted.
    pub fn plant_job(&mut self, mut job: Value) -> Option<Arc<JobView>> {
        let text = |job: &Value, pointer| job.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (namespace, name) = (text(&job, "/metadata/namespace"), text(&job, "/metadata/name"));
        self.ensure_namespace(&namespace);
        let status = job["status"].take();
        let mut job = tally_value::Value::from(job);
        jobs().rules.default(&mut job);
        jobs().rules.prepare_create(&mut job, self.now);
        job["status"] = status.into();
        job["metadata"]["creationTimestamp"] = self.now.truncated().to_string().into();
        let write = Write {
            key: format!("jobs/{namespace}/{name}"),
            expect: Expect::Absent,
            change: StoreChange::Put(tally_registry::stored_form(&job)),
        };
        now(self.store.commit(write)).ok()?;
        self.drain(Actor::User);
        self.jobs.get(&key_of(&namespace, &name)).map(|stored| stored.view.clone())
    }

    /// Creates a Pod that no controller made: created, bound and with a status. None: the name is taken.
    pub fn insert_pod(&mut self, view: PodView, actor: Actor) -> Option<Arc<PodView>> {
        let key = key_of(&view.namespace, &view.name);
        self.world.lock().unwrap_or_else(PoisonError::into_inner).uid = Some(view.uid.to_string());
        match self.create(pods(), &render::new_pod(&view), actor) {
            Ok(_) => {}
            Err(failure) if failure.reason == "AlreadyExists" || self.cluster => {
                self.world.lock().unwrap_or_else(PoisonError::into_inner).uid = None;
                return None;
            }
            Err(failure) => unreachable!("the simulator made a Pod that is refused: {}", failure.message),
        }
        self.edit_pod(&key, actor, |pod| {
            let (revision, created_at) = (pod.revision, pod.created_at);
            *pod = PodView { revision, created_at, ..view };
        });
        self.pods.get(&key).map(|stored| stored.view.clone())
    }

    // ---- changing ----

    fn get(&self, resource: &'static Resource, key: &Key) -> Option<Value> {
        self.door().get(Target::new(resource, &key.0, &key.1), ReadAt::Newest).ok().map(|object| object.plain())
    }

    /// Writes the object back, its main part or its status.
    fn put(
        &mut self,
        resource: &'static Resource,
        key: &Key,
        object: &Value,
        status: bool,
        actor: Actor,
    ) -> Result<(), Failure> {
        let subresource = if status { resource.subresource("status") } else { None };
        let target = Target { subresource, ..Target::new(resource, &key.0, &key.1) };
        let body = object.to_string();
        let written = now(self.door().update(target, body.as_bytes(), Format::Json, &WriteOptions::default()));
        self.drain_answered(actor, written.as_ref().ok().map(|written| &written.object));
        written.map(|_| ())
    }

    /// Changes the given part of a Job's spec, as users do. False: the API refused the change.
    pub fn edit_job(&mut self, key: &Key, actor: Actor, change: impl FnOnce(&mut JobSpec)) -> bool {
        let Some(stored) = self.jobs.get(key) else { return false };
        let mut spec = (*stored.view.spec).clone();
        change(&mut spec);
        let patch = json!({"spec": render::spec_patch(&stored.view.spec, &spec)}).to_string();
        let target = Target::new(jobs(), &key.0, &key.1);
        let written = now(self.door().patch(target, patch.as_bytes(), PatchKind::Merge, &WriteOptions::default()));
        self.drain(actor);
        written.is_ok()
    }

    /// Sets an annotation of a Job.
    pub fn annotate_job(&mut self, key: &Key, actor: Actor, annotation: &str, value: &str) {
        let patch = json!({"metadata": {"annotations": {annotation: value}}}).to_string();
        let target = Target::new(jobs(), &key.0, &key.1);
        // The Job may be gone.
        let _ = now(self.door().patch(target, patch.as_bytes(), PatchKind::Merge, &WriteOptions::default()));
        self.drain(actor);
    }

    /// Changes a Job in a way that has no meaning for any controller, as third parties do.
    pub fn touch_job(&mut self, key: &Key, actor: Actor) {
        self.touches += 1;
        let touched = json!({"metadata": {"annotations": {"touched": self.touches.to_string()}}});
        self.patch_job_status(key, actor, &touched);
    }

    /// Writes a status that says that nothing has happened yet, as a controller does first.
    pub fn report_on_job(&mut self, key: &Key, actor: Actor) {
        self.patch_job_status(key, actor, &json!({"status": {"ready": 0}}));
    }

    /// Edits a status as a user may. False: the API refused the edit.
    pub fn edit_status(&mut self, key: &Key, actor: Actor, status: &Value) -> bool {
        let subresource = jobs().subresource("status");
        let target = Target { subresource, ..Target::new(jobs(), &key.0, &key.1) };
        let patch = json!({"status": status}).to_string();
        let written = now(self.door().patch(target, patch.as_bytes(), PatchKind::Merge, &WriteOptions::default()));
        self.drain(actor);
        written.is_ok()
    }

    fn patch_job_status(&mut self, key: &Key, actor: Actor, patch: &Value) {
        let status = jobs().subresource("status");
        let target = Target { subresource: status, ..Target::new(jobs(), &key.0, &key.1) };
        let patch = patch.to_string();
        let written = now(self.door().patch(target, patch.as_bytes(), PatchKind::Merge, &WriteOptions::default()));
        self.drain(actor);
        if let Err(failure) = written {
            unreachable!("a harmless change was refused: {}", failure.message);
        }
    }

    /// Makes a Pod equal to the changed view: its metadata, its node, its status, as far as they differ.
    pub fn edit_pod(&mut self, key: &Key, actor: Actor, change: impl FnOnce(&mut PodView)) {
        let Some(stored) = self.pods.get(key) else { return };
        let old = stored.view.clone();
        let mut new = (*old).clone();
        change(&mut new);
        if (&new.labels, &new.controller, new.tracked) != (&old.labels, &old.controller, old.tracked) {
            self.edit_metadata(key, &new, actor);
        }
        if new.scheduled && !old.scheduled && !old.deleting() && !old.start_gated {
            self.bind(key, actor);
        }
        if render::pod_status(&new) != render::pod_status(&old) {
            self.report(key, &new, actor);
        }
    }

    fn edit_metadata(&mut self, key: &Key, new: &PodView, actor: Actor) {
        let Some(mut object) = self.get(pods(), key) else { return };
        let metadata = &mut object["metadata"];
        metadata["labels"] = render::labels(new);
        metadata["ownerReferences"] = render::owners(new);
        let mut finalizers: Vec<Value> = metadata["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != TRACKING_FINALIZER);
        if new.tracked {
            finalizers.push(TRACKING_FINALIZER.into());
        }
        metadata["finalizers"] = finalizers.into();
        // A finalizer that is added too late is refused: then nothing changes.
        let _ = self.put(pods(), key, &object, false, actor);
    }

    fn bind(&mut self, key: &Key, actor: Actor) {
        let binding = json!({"metadata": {"name": key.1.as_str()}, "target": {"kind": "Node", "name": render::NODE}});
        let target = Target { subresource: pods().subresource("binding"), ..Target::new(pods(), &key.0, &key.1) };
        let body = binding.to_string();
        let bound = now(self.door().create(target, body.as_bytes(), Format::Json, &WriteOptions::default()));
        self.drain(actor);
        if let Err(failure) = bound {
            unreachable!("{} could not be bound: {}", key.1, failure.message);
        }
    }

    fn report(&mut self, key: &Key, new: &PodView, actor: Actor) {
        let Some(mut object) = self.get(pods(), key) else { return };
        if let (Value::Object(reported), Value::Object(status)) = (render::pod_status(new), &mut object["status"]) {
            status.extend(reported);
        }
        if let Err(failure) = self.put(pods(), key, &object, true, actor) {
            unreachable!("the status of {} was refused: {}", key.1, failure.message);
        }
    }

    // ---- deleting ----

    /// API-10: a Pod that is bound to a node gets a grace period; others are removed at once unless a finalizer keeps
    /// them.
    pub fn delete_pod(&mut self, key: &Key, actor: Actor, force: bool) {
        let options = DeleteOptions {
            grace_period_seconds: force.then_some(0),
            propagation: Some(Propagation::Background),
            ..DeleteOptions::default()
        };
        let _ = now(self.door().delete(Target::new(pods(), &key.0, &key.1), &options));
        self.drain(actor);
    }

    /// The node confirms that the Pod has ended.
    pub fn node_confirms(&mut self, key: &Key) {
        self.delete_pod(key, Actor::Node, true);
    }

    /// True: the Job was removed at once.
    pub fn delete_job(&mut self, key: &Key, actor: Actor, propagation: Propagation) -> bool {
        let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
        let _ = now(self.door().delete(Target::new(jobs(), &key.0, &key.1), &options));
        self.drain(actor);
        !self.jobs.contains_key(key)
    }

    /// Removes one finalizer of a Job; without finalizers the Job is removed.
    pub fn unhold_job(&mut self, key: &Key, actor: Actor, hold: Hold) {
        let Some(mut object) = self.get(jobs(), key) else { return };
        let kept = |finalizer: &Value| match finalizer.as_str() {
            Some("foregroundDeletion") => hold != Hold::Foreground,
            Some("orphan") => hold != Hold::Orphan,
            _ => hold != Hold::Other,
        };
        let finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        object["metadata"]["finalizers"] = finalizers.into_iter().filter(kept).collect();
        if let Err(failure) = self.put(jobs(), key, &object, false, actor) {
            unreachable!("a finalizer could not be removed: {}", failure.message);
        }
    }

    // ---- requests of the controllers ----

    /// Carries out a request as an API server would.
    pub fn perform(&mut self, call: &Call, actor: Actor) -> Reply {
        if self.webhook_denies(call) {
            let message = "denied the request: policy".to_owned();
            return Reply::Refused(Refusal {
                code: 403,
                reason: "Forbidden".to_owned(),
                message,
                ..Refusal::default()
            });
        }
        if self.policy_refuses(call) {
            let (reason, message) = ("Invalid".to_owned(), POLICY.to_owned());
            return Reply::Refused(Refusal { code: 422, reason, message, ..Refusal::default() });
        }
        if call.verb == Verb::Create {
            self.ensure_namespace(&call.namespace);
        }
        let reply = now(tally_embedded::perform(self.door(), call));
        let shown = match &reply {
            Reply::Done(object) if call.kind == Kind::POD && call.subresource.is_empty() => Some(object.clone()),
            _ => None,
        };
        self.drain_answered(actor, shown.as_ref());
        reply
    }

    fn policy_refuses(&self, call: &Call) -> bool {
        (call.kind, call.verb, call.subresource) == (Kind::JOB, Verb::MergePatch, "status")
            && self.refused_statuses.contains(&(call.namespace.clone(), call.name.clone()))
    }

    /// A webhook sees only requests that would change the Pod they refer to.
    fn webhook_denies(&self, call: &Call) -> bool {
        if (call.kind, call.verb, call.subresource) != (Kind::POD, Verb::StrategicPatch, "") {
            return false;
        }
        let Some(stored) = self.pods.get(&(call.namespace.clone(), call.name.clone())).filter(|pod| pod.refuses) else {
            return false;
        };
        match Action::of(call) {
            Action::PatchPod { uid, revision, .. } => {
                uid.is_none_or(|uid| uid == stored.view.uid)
                    && revision.is_none_or(|revision| revision == stored.view.revision)
            }
            _ => false,
        }
    }

    // ---- past revisions ----

    /// Objects as they were at a revision, oldest write first.
    pub fn jobs_at(&self, at: Revision) -> Vec<Arc<JobView>> {
        state_at(&self.job_log, at, |job| job.uid.clone())
    }

    pub fn pods_at(&self, at: Revision) -> Vec<Arc<PodView>> {
        state_at(&self.pod_log, at, |pod| pod.uid.clone())
    }

    /// Every Pod that existed up to a revision, in its last state, including deleted ones.
    pub fn pods_ever(&self, at: Revision) -> BTreeMap<PodUid, (Arc<PodView>, bool)> {
        let seen = self.pod_log.iter().take_while(|entry| entry.at <= at);
        seen.map(|entry| (entry.object.uid.clone(), (entry.object.clone(), entry.gone))).collect()
    }

    pub fn job_by_uid(&self, uid: &JobUid) -> Option<&StoredJob> {
        self.jobs.values().find(|stored| stored.view.uid == *uid)
    }

    pub fn pods_of<'a>(&'a self, uid: &'a JobUid) -> impl Iterator<Item = &'a StoredPod> {
        self.pods.values().filter(move |stored| stored.view.job() == Some(uid))
    }

    /// Live, as `parallelism` counts: active Pods, and terminating ones if those keep their place.
    pub fn live_pods(&self, job: &JobView, made: impl Fn(&PodView) -> bool) -> usize {
        self.pods_of(&job.uid)
            .filter(|stored| {
                !stored.view.phase.is_terminal()
                    && made(&stored.view)
                    && job.spec.selector.matches(&stored.view.labels)
                    && (!stored.view.deleting() || job.spec.waits_for_terminal_phase())
            })
            .count()
    }
}

/// The fields that decide whether an object that is being deleted stays.
#[derive(Deserialize)]
struct Holds {
    metadata: HoldsMetadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HoldsMetadata {
    #[serde(default)]
    finalizers: Vec<CompactString>,
    #[serde(default)]
    deletion_grace_period_seconds: i64,
}

fn holds(object: &[u8]) -> HoldsMetadata {
    serde_json::from_slice(object).map(|Holds { metadata }| metadata).unwrap_or_default()
}

fn state_at<T, U: Ord>(log: &[LogEntry<T>], at: Revision, uid: impl Fn(&T) -> U) -> Vec<Arc<T>> {
    let mut state = BTreeMap::new();
    for entry in log.iter().take_while(|entry| entry.at <= at) {
        if entry.gone {
            state.remove(&uid(&entry.object));
        } else {
            state.insert(uid(&entry.object), entry.object.clone());
        }
    }
    state.into_values().collect()
}

/// A Pod as a user creates it.
pub fn plain_pod(uid: u128, namespace: &str, name: &str) -> PodView {
    PodView {
        uid: PodUid::from_u128(uid),
        namespace: namespace.into(),
        name: name.into(),
        revision: Revision(0),
        created_at: Timestamp::default(),
        deletion_asked_at: None,
        generation: None,
        deletion_grace: None,
        owners: Default::default(),
        finalizers: Default::default(),
        odd_phase: false,
        evicted: false,
        labels: Default::default(),
        controller: None,
        tracked: false,
        phase: Phase::Pending,
        start_gated: false,
        scheduled: false,
        ready: false,
        ready_changed_at: None,
        finished_at: Timestamp::default(),
        ttl_after_finished: None,
        node_name: Default::default(),
        index: None,
        failure_count: 0,
        ignored_failure_count: 0,
        restarts: Default::default(),
        pending: None,
        exits: Default::default(),
        reason: Default::default(),
        conditions: Default::default(),
    }
}
