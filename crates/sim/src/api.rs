//! A model of the Kubernetes API, as far as Jobs and their Pods need it: one revision space, conditional writes,
//! finalizers, graceful deletion, owner references, status validation, and a log that watches read.
//!
//! It is deliberately small and has no faults of its own; the world around it delays, loses and reorders. The door is
//! `perform`: a registry with real storage can take this place without the world noticing.

use std::collections::BTreeMap;
use std::sync::Arc;

use compact_str::CompactString;
use tally_controllers::machine::{Action, Answer, Object, PodChange};
use tally_core::ids::{JobUid, PodUid, Revision};
use tally_core::job::JobView;
use tally_core::pod::{ControllerRef, Phase, PodView};
use tally_core::status_rules;
use tally_core::time::Timestamp;

pub type Key = (CompactString, CompactString);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    Controller { instance: usize, incarnation: u32 },
    Node,
    User,
    Collector,
}

#[derive(Clone, Debug)]
pub struct StoredJob {
    pub view: Arc<JobView>,
    pub foreground: bool,
    pub orphan: bool,
    /// Somebody else's finalizer.
    pub held: bool,
}

#[derive(Clone, Debug)]
pub struct StoredPod {
    pub view: Arc<PodView>,
    /// Somebody else's finalizer.
    pub held: bool,
    /// Deleted with a grace period: gone only once the node says so.
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

/// One committed write.
#[derive(Clone, Debug)]
pub enum Change {
    Job { before: Option<Arc<JobView>>, after: Arc<JobView>, gone: bool, actor: Actor },
    Pod { before: Option<Arc<PodView>>, after: Arc<PodView>, gone: bool, actor: Actor },
}

#[derive(Default)]
pub struct Api {
    pub now: Timestamp,
    revision: u64,
    pub jobs: BTreeMap<Key, StoredJob>,
    pub pods: BTreeMap<Key, StoredPod>,
    pub job_log: Vec<LogEntry<JobView>>,
    pub pod_log: Vec<LogEntry<PodView>>,
    /// Revisions up to here can no longer be watched from or listed at.
    pub compacted: Revision,
    next_uid: u128,
    /// Committed since the oracle last looked.
    pub changes: Vec<Change>,
}

impl Api {
    pub fn starting_at(now: Timestamp) -> Self {
        Self { now, ..Self::default() }
    }

    pub fn head(&self) -> Revision {
        Revision(self.revision)
    }

    fn next(&mut self) -> Revision {
        self.revision += 1;
        Revision(self.revision)
    }

    pub fn new_uid(&mut self) -> u128 {
        self.next_uid += 1;
        self.next_uid
    }

    // ---- writes ----

    fn commit_job(&mut self, key: &Key, mut view: JobView, actor: Actor, gone: bool) -> Arc<JobView> {
        view.revision = self.next();
        let after = Arc::new(view);
        let before = self.jobs.get(key).map(|stored| stored.view.clone());
        self.job_log.push(LogEntry { at: after.revision, object: after.clone(), gone });
        if gone {
            self.jobs.remove(key);
        } else if let Some(stored) = self.jobs.get_mut(key) {
            stored.view = after.clone();
        }
        self.changes.push(Change::Job { before, after: after.clone(), gone, actor });
        after
    }

    fn commit_pod(&mut self, key: &Key, mut view: PodView, actor: Actor) -> (Arc<PodView>, bool) {
        view.revision = self.next();
        let after = Arc::new(view);
        let stored = self.pods.get_mut(key);
        let before = stored.as_ref().map(|stored| stored.view.clone());
        // API-8: the last finalizer of a deleted object takes the object with it.
        let gone = stored.is_some_and(|stored| {
            stored.view = after.clone();
            after.deleting() && !after.tracked && !stored.held && !stored.awaits_node
        });
        self.pod_log.push(LogEntry { at: after.revision, object: after.clone(), gone });
        if gone {
            self.pods.remove(key);
        }
        self.changes.push(Change::Pod { before, after: after.clone(), gone, actor });
        (after, gone)
    }

    pub fn create_job(&mut self, mut view: JobView, held: bool) -> Option<Arc<JobView>> {
        let key = (view.namespace.clone(), view.name.clone());
        if self.jobs.contains_key(&key) {
            return None;
        }
        view.created_at = self.now.truncated();
        let stored = StoredJob { view: Arc::new(view.clone()), foreground: false, orphan: false, held };
        view.revision = self.next();
        let after = Arc::new(view);
        self.jobs.insert(key, StoredJob { view: after.clone(), ..stored });
        self.job_log.push(LogEntry { at: after.revision, object: after.clone(), gone: false });
        self.changes.push(Change::Job { before: None, after: after.clone(), gone: false, actor: Actor::User });
        Some(after)
    }

    pub fn insert_pod(&mut self, mut view: PodView, actor: Actor) -> Option<Arc<PodView>> {
        let key = (view.namespace.clone(), view.name.clone());
        if self.pods.contains_key(&key) {
            return None;
        }
        view.created_at = self.now.truncated();
        view.finished_at = view.created_at;
        view.revision = self.next();
        let after = Arc::new(view);
        let stored = StoredPod { view: after.clone(), held: false, awaits_node: false, refuses: false };
        self.pods.insert(key, stored);
        self.pod_log.push(LogEntry { at: after.revision, object: after.clone(), gone: false });
        self.changes.push(Change::Pod { before: None, after: after.clone(), gone: false, actor });
        Some(after)
    }

    /// Changes a Job's spec or metadata, as users and third parties do.
    pub fn edit_job(&mut self, key: &Key, actor: Actor, change: impl FnOnce(&mut JobView)) {
        if let Some(stored) = self.jobs.get(key) {
            let mut view = (*stored.view).clone();
            change(&mut view);
            self.commit_job(key, view, actor, false);
        }
    }

    pub fn edit_pod(&mut self, key: &Key, actor: Actor, change: impl FnOnce(&mut PodView)) {
        if let Some(stored) = self.pods.get(key) {
            let mut view = (*stored.view).clone();
            change(&mut view);
            self.commit_pod(key, view, actor);
        }
    }

    /// API-10: a Pod that runs somewhere is given time; others go at once unless a finalizer holds them.
    pub fn delete_pod(&mut self, key: &Key, actor: Actor, force: bool) -> Option<(Arc<PodView>, bool)> {
        let now = self.now;
        let stored = self.pods.get_mut(key)?;
        let graceful = !force && stored.view.scheduled && !stored.view.phase.is_terminal();
        if stored.view.deleting() && (graceful || !stored.awaits_node) {
            return Some((stored.view.clone(), false));
        }
        stored.awaits_node = graceful;
        let mut view = (*stored.view).clone();
        if view.deletion_asked_at.is_none() {
            view.deletion_asked_at = Some(now.truncated());
            if !view.phase.is_terminal() {
                view.finished_at = now.truncated();
            }
        }
        Some(self.commit_pod(key, view, actor))
    }

    /// The node has ended the Pod for good.
    pub fn node_confirms(&mut self, key: &Key) {
        if let Some(stored) = self.pods.get_mut(key) {
            stored.awaits_node = false;
            let view = (*stored.view).clone();
            self.commit_pod(key, view, Actor::Node);
        }
    }

    pub fn delete_job(&mut self, key: &Key, actor: Actor, propagation: Propagation) -> Option<(Arc<JobView>, bool)> {
        let stored = self.jobs.get_mut(key)?;
        stored.foreground = propagation == Propagation::Foreground;
        stored.orphan = propagation == Propagation::Orphan;
        let gone = !stored.foreground && !stored.orphan && !stored.held;
        let mut view = (*stored.view).clone();
        if view.deleting && !gone {
            return Some((stored.view.clone(), false));
        }
        view.deleting = true;
        Some((self.commit_job(key, view, actor, gone), gone))
    }

    /// Removes a finalizer of a Job; the last one takes the Job with it.
    pub fn unhold_job(&mut self, key: &Key, actor: Actor, change: impl FnOnce(&mut StoredJob)) {
        if let Some(stored) = self.jobs.get_mut(key) {
            change(stored);
            let gone = stored.view.deleting && !stored.foreground && !stored.orphan && !stored.held;
            let view = (*stored.view).clone();
            self.commit_job(key, view, actor, gone);
        }
    }

    // ---- the door ----

    /// Carries out a request as an API server would.
    pub fn perform(&mut self, action: &Action, actor: Actor) -> Answer {
        match action {
            Action::CreatePod { namespace, name, body } => self.create(namespace, name, body, actor),
            Action::PatchPod { namespace, name, uid, revision, change } => {
                self.patch((namespace.clone(), name.clone()), uid.as_ref(), *revision, change, actor)
            }
            Action::DeletePod { namespace, name, uid } => {
                let key = (namespace.clone(), name.clone());
                match self.pods.get(&key) {
                    Some(stored) if uid.as_ref().is_none_or(|uid| *uid == stored.view.uid) => {}
                    _ => return Answer::Gone,
                }
                match self.delete_pod(&key, actor, false) {
                    Some((_, true)) | None => Answer::Gone,
                    Some((pod, false)) => Answer::Done(Object::Pod(pod)),
                }
            }
            Action::GetPod { namespace, name } => match self.pods.get(&(namespace.clone(), name.clone())) {
                Some(stored) => Answer::Done(Object::Pod(stored.view.clone())),
                None => Answer::Gone,
            },
            Action::ListPods { namespace, job } => {
                let ours = |pod: &&StoredPod| pod.view.namespace == *namespace && pod.view.job() == Some(job);
                let pods = self.pods.values().filter(ours).map(|stored| stored.view.clone()).collect();
                Answer::Pods { pods, at: self.head() }
            }
            Action::GetJob { namespace, name } => match self.jobs.get(&(namespace.clone(), name.clone())) {
                Some(stored) => Answer::Done(Object::Job(stored.view.clone())),
                None => Answer::Gone,
            },
            Action::WriteJobStatus { namespace, name, uid, revision, status } => {
                let key = (namespace.clone(), name.clone());
                let Some(stored) = self.jobs.get(&key).filter(|stored| stored.view.uid == *uid) else {
                    return Answer::Gone;
                };
                if revision.is_some_and(|revision| revision != stored.view.revision) {
                    return Answer::Conflict;
                }
                let problems = status_rules::check(&stored.view.spec, &stored.view.status, status);
                if let Some(problem) = problems.first() {
                    let message = problem.to_string();
                    return Answer::Refused { code: 422, namespace_terminating: false, message };
                }
                let mut view = (*stored.view).clone();
                view.status = (**status).clone();
                Answer::Done(Object::Job(self.commit_job(&key, view, actor, false)))
            }
            Action::DeleteJob { namespace, name, uid, revision } => {
                let key = (namespace.clone(), name.clone());
                match self.jobs.get(&key) {
                    Some(stored) if stored.view.uid == *uid => {
                        if stored.view.revision != *revision {
                            return Answer::Conflict;
                        }
                    }
                    _ => return Answer::Gone,
                }
                match self.delete_job(&key, actor, Propagation::Foreground) {
                    Some((_, true)) | None => Answer::Gone,
                    Some((job, false)) => Answer::Done(Object::Job(job)),
                }
            }
        }
    }

    fn create(&mut self, namespace: &str, name: &str, body: &[u8], actor: Actor) -> Answer {
        let key: Key = (namespace.into(), name.into());
        if self.pods.contains_key(&key) {
            return Answer::AlreadyExists;
        }
        let uid = PodUid::from_u128(self.new_uid());
        // System metadata goes in where a server would put it, so that the production decoder reads the Pod.
        let text = std::str::from_utf8(body).unwrap_or_default();
        let marker = "\"metadata\":{";
        let Some(at) = text.find(marker).map(|at| at + marker.len()) else {
            return refused("the body has no metadata");
        };
        let (head, tail) = text.split_at(at);
        let body = format!("{head}\"uid\":\"{uid}\",\"resourceVersion\":\"1\",{tail}");
        match PodView::from_json(body.as_bytes()) {
            Ok(view) => match self.insert_pod(view, actor) {
                Some(pod) => Answer::Done(Object::Pod(pod)),
                None => Answer::AlreadyExists,
            },
            Err(error) => refused(&error.to_string()),
        }
    }

    fn patch(
        &mut self,
        key: Key,
        uid: Option<&PodUid>,
        revision: Option<Revision>,
        change: &PodChange,
        actor: Actor,
    ) -> Answer {
        let Some(stored) = self.pods.get(&key) else {
            return Answer::Gone;
        };
        if uid.is_some_and(|uid| *uid != stored.view.uid) {
            return Answer::Gone;
        }
        if revision.is_some_and(|revision| revision != stored.view.revision) {
            return Answer::Conflict;
        }
        if stored.refuses {
            return refused("denied the request: policy");
        }
        let mut view = (*stored.view).clone();
        match change {
            PodChange::Release => {
                if !view.tracked {
                    return Answer::Done(Object::Pod(stored.view.clone()));
                }
                view.tracked = false;
            }
            PodChange::Adopt { job, job_name } => {
                if view.controller.is_some() {
                    return refused("Only one reference can have Controller set to true");
                }
                if view.deleting() && !view.tracked {
                    return refused("no new finalizers can be added if the object is being deleted");
                }
                view.controller = Some(ControllerRef { uid: job.clone(), name: job_name.clone(), is_job: true });
                view.tracked = true;
            }
            PodChange::Disown { job } => {
                if view.job() == Some(job) {
                    view.controller = None;
                    view.tracked = false;
                }
            }
        }
        let (pod, _) = self.commit_pod(&key, view, actor);
        Answer::Done(Object::Pod(pod))
    }

    // ---- reading the past ----

    /// Objects as they were at a revision, oldest write first.
    pub fn jobs_at(&self, at: Revision) -> Vec<Arc<JobView>> {
        state_at(&self.job_log, at, |job| job.uid.clone())
    }

    pub fn pods_at(&self, at: Revision) -> Vec<Arc<PodView>> {
        state_at(&self.pod_log, at, |pod| pod.uid.clone())
    }

    /// Every Pod there was by a revision, as it last was, gone ones included.
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

    /// Live, as `parallelism` counts: active, and terminating ones where those hold their place.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

fn refused(message: &str) -> Answer {
    Answer::Refused { code: 403, namespace_terminating: false, message: message.to_owned() }
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

/// A Pod as a user makes one by hand.
pub fn plain_pod(uid: u128, namespace: &str, name: &str) -> PodView {
    PodView {
        uid: PodUid::from_u128(uid),
        namespace: namespace.into(),
        name: name.into(),
        revision: Revision(0),
        created_at: Timestamp::default(),
        deletion_asked_at: None,
        labels: Default::default(),
        controller: None,
        tracked: false,
        phase: Phase::Pending,
        scheduled: false,
        ready: false,
        ready_changed_at: None,
        finished_at: Timestamp::default(),
        index: None,
        failure_count: 0,
        ignored_failure_count: 0,
        restarts: Default::default(),
        exits: Default::default(),
        conditions: Default::default(),
    }
}
