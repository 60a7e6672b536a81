//! The order between Jobs: a Job with the annotation `tally.dev/after` is created suspended, and this controller resumes
//! it when the Jobs that it names have ended as it wants. If that can no longer happen, the controller stores the
//! interim condition `FailureTarget`, and the Job controller ends the Job as it does for every other failure (ORDER-4).
//!
//! What was seen of the other Jobs is stored in `tally.dev/after-state` before anything depends on it, so that a Job that
//! ends and is deleted is remembered across restarts. Every write is conditional on the UID and the revision of the
//! waiting Job: of two leaders that decide at the same time one receives a conflict, and looks again.

mod view;

use std::collections::{BTreeMap, BTreeSet};

use compact_str::CompactString;
use serde_json::{Value, json};
use tally_core::after::{
    AFTER, AFTER_STATE, AfterState, DEPENDENCY_CYCLE, DEPENDENCY_FAILED, DEPENDENCY_INVALID, Predecessor, SeenJob,
    cycle, describe_cycle,
};
use tally_core::job::condition;
use tally_core::time::Timestamp;
use tally_runtime::cache::{Meta, ObjectCache, RequestsInFlight, retry_at};
use tally_runtime::controller::{
    Call, Controller, Event, Input, Kind, Outbox, Reference, Reply, Stream, Verb, bring_forward,
};

use view::{Order, OrderedJob};

/// Namespace and name of a Job.
type Key = (CompactString, CompactString);

pub struct AfterController {
    /// The manager whose Jobs it serves; None: the built-in name (MANAGED-1).
    managed_by: Option<CompactString>,
    jobs: ObjectCache<OrderedJob>,
    /// The waiting Jobs, by the Job that they wait for.
    dependents: BTreeMap<Key, BTreeSet<Key>>,
    waiting: BTreeMap<Key, Wait>,
    requests: RequestsInFlight<Key>,
    timers: BTreeSet<(Timestamp, Key)>,
}

/// What is kept in memory about a waiting Job. If it is lost, it is derived again from the stored state.
#[derive(Default)]
struct Wait {
    uid: CompactString,
    after: Vec<CompactString>,
    seen: BTreeMap<CompactString, SeenJob>,
    /// Missing Jobs that an Event has reported.
    reported: BTreeSet<CompactString>,
    in_flight: bool,
    failures: u32,
    retry_at: Option<Timestamp>,
}

/// What to do for a waiting Job.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Wait {
        missing: Vec<Predecessor>,
    },
    Resume,
    /// A user has resumed it, or it was created without `suspend: true`.
    LeaveAlone,
    Fail {
        reason: &'static str,
        message: String,
    },
}

impl AfterController {
    pub fn new(managed_by: Option<CompactString>) -> Self {
        Self {
            managed_by,
            jobs: ObjectCache::default(),
            dependents: BTreeMap::new(),
            waiting: BTreeMap::new(),
            requests: RequestsInFlight::default(),
            timers: BTreeSet::new(),
        }
    }

    // ---- what is known ----

    /// A Job has changed: whether it waits, and what the Jobs that wait for it have seen.
    fn changed(&mut self, key: &Key, now: Timestamp, out: &mut Outbox) {
        self.index(key);
        // A request that was refused is decided again from the new state, at once.
        if let Some(at) = self.waiting.get_mut(key).and_then(|wait| wait.retry_at.take()) {
            self.timers.remove(&(at, key.clone()));
        }
        self.note_seen(key);
        for dependent in self.dependents_of(key) {
            self.note_seen(&dependent);
            self.act(&dependent, now, out);
        }
        self.act(key, now, out);
    }

    fn removed(&mut self, key: &Key, now: Timestamp, out: &mut Outbox) {
        self.index(key);
        for dependent in self.dependents_of(key) {
            self.act(&dependent, now, out);
        }
    }

    fn dependents_of(&self, key: &Key) -> Vec<Key> {
        self.dependents.get(key).into_iter().flatten().cloned().collect()
    }

    /// Adds the Job to those that wait, or removes it.
    fn index(&mut self, key: &Key) {
        let job = self.jobs.get(&key.0, &key.1);
        let waits = job.and_then(|job| {
            let order = job.open().filter(|order| order.is_managed_by(self.managed_by.as_deref()))?;
            if order.state.resumed {
                return None;
            }
            let after =
                order.after.as_ref().map_or(Vec::new(), |after| after.iter().map(|one| one.name.clone()).collect());
            Some((job.meta.uid.clone(), after))
        });
        let known = self.waiting.get(key).map(|wait| (wait.uid.clone(), wait.after.clone()));
        if known == waits {
            return;
        }
        if let Some(Wait { after, retry_at, .. }) = self.waiting.remove(key) {
            if let Some(at) = retry_at {
                self.timers.remove(&(at, key.clone()));
            }
            for name in after {
                let predecessor = (key.0.clone(), name);
                if let Some(all) = self.dependents.get_mut(&predecessor) {
                    all.remove(key);
                    if all.is_empty() {
                        self.dependents.remove(&predecessor);
                    }
                }
            }
        }
        if let Some((uid, after)) = waits {
            for name in &after {
                self.dependents.entry((key.0.clone(), name.clone())).or_default().insert(key.clone());
            }
            self.waiting.insert(key.clone(), Wait { uid, after, ..Wait::default() });
            self.note_seen(key);
        }
    }

    /// ORDER-3: what the waiting Job has seen of the Jobs that it names. The first Job of a name is the one that counts,
    /// and its end stays known after it was deleted.
    fn note_seen(&mut self, key: &Key) {
        let Some(wait) = self.waiting.get_mut(key) else { return };
        let stored = self.jobs.get(&key.0, &key.1).and_then(|job| job.order.as_deref());
        let stored = stored.map(|order| &order.state.seen);
        for name in &wait.after {
            let stored = stored.and_then(|seen| seen.get(name));
            let known = wait.seen.get(name);
            let newest = match (stored, known) {
                // The stored state of another leader decides which Job counts.
                (Some(stored), Some(known)) if stored.uid == known.uid && stored.end.is_none() => Some(known),
                (Some(stored), _) => Some(stored),
                (None, known) => known,
            };
            let actual = self.jobs.get(&key.0, name);
            let seen = match (newest.cloned(), actual) {
                (Some(seen), Some(actual)) if seen.end.is_none() && seen.uid == actual.meta.uid => {
                    Some(SeenJob { end: actual.end, ..seen })
                }
                (None, Some(actual)) => Some(SeenJob { uid: actual.meta.uid.clone(), end: actual.end }),
                (seen, _) => seen,
            };
            seen.into_iter().for_each(|seen| drop(wait.seen.insert(name.clone(), seen)));
        }
    }

    // ---- what to do ----

    fn step(&self, key: &Key, order: &Order, wait: &Wait) -> Step {
        if !order.suspend {
            return Step::LeaveAlone;
        }
        let after = match &order.after {
            Ok(after) => after,
            Err(error) => {
                return Step::Fail { reason: DEPENDENCY_INVALID, message: format!("the annotation {AFTER} {error}") };
            }
        };
        let waits_for = |name: &str| self.jobs.get(&key.0, name).map(OrderedJob::waits_for).unwrap_or_default();
        if let Some(cycle) = cycle(&key.1, waits_for) {
            let message = format!("{AFTER}: the Jobs wait for each other: {}", describe_cycle(&cycle));
            return Step::Fail { reason: DEPENDENCY_CYCLE, message };
        }
        let mut missing = Vec::new();
        let mut open = false;
        for Predecessor { name, wanted } in after {
            let Some(SeenJob { uid, end }) = wait.seen.get(name) else {
                missing.push(Predecessor { name: name.clone(), wanted: *wanted });
                continue;
            };
            match end {
                Some(end) if wanted.is_met_by(*end) => {}
                Some(end) => {
                    let message = format!("the Job {name} has ended {end:?}, and {AFTER} wants it {wanted}");
                    return self.fail(DEPENDENCY_FAILED, message);
                }
                None if self.jobs.get(&key.0, name).is_some_and(|job| job.meta.uid == *uid) => open = true,
                None => {
                    let message =
                        format!("the Job {name} was deleted before it was seen to end, and {AFTER} wants it {wanted}");
                    return self.fail(DEPENDENCY_FAILED, message);
                }
            }
        }
        if open || !missing.is_empty() { Step::Wait { missing } } else { Step::Resume }
    }

    fn fail(&self, reason: &'static str, message: String) -> Step {
        Step::Fail { reason, message }
    }

    fn act(&mut self, key: &Key, now: Timestamp, out: &mut Outbox) {
        // Before the first list is complete, a Job that is absent may exist.
        if !self.jobs.is_complete() {
            return;
        }
        let (Some(job), Some(wait)) = (self.jobs.get(&key.0, &key.1), self.waiting.get(key)) else { return };
        let Some(order) = job.order.as_deref().filter(|_| !wait.in_flight) else { return };
        if wait.retry_at.is_some_and(|at| at > now) {
            return;
        }
        let mut state = AfterState { seen: wait.seen.clone(), ..order.state.clone() };
        let call = match self.step(key, order, wait) {
            Step::Resume => {
                state.resumed = true;
                patch(job, &state, json!({"spec": {"suspend": false}}))
            }
            Step::Fail { reason, message } => failure(job, order, reason, &message, now),
            Step::LeaveAlone if order.state.resumed => return,
            Step::LeaveAlone => {
                state.resumed = true;
                let ran = !order.was_suspended() && order.state.seen.is_empty();
                let call = patch(job, &state, json!({}));
                ran.then(|| self.report_ignored(key, out));
                call
            }
            Step::Wait { missing } => {
                let stored = order.state.seen == state.seen;
                let call = patch(job, &state, json!({}));
                self.report_missing(key, &missing, out);
                if stored {
                    return;
                }
                call
            }
        };
        let Some(wait) = self.waiting.get_mut(key) else { return };
        wait.in_flight = true;
        if let Some(at) = wait.retry_at.take() {
            self.timers.remove(&(at, key.clone()));
        }
        self.requests.ask(key.clone(), call, out);
    }

    /// ORDER-5: Events about Jobs that are named and do not exist, once for each.
    fn report_missing(&mut self, key: &Key, missing: &[Predecessor], out: &mut Outbox) {
        for Predecessor { name, wanted } in missing {
            let message =
                format!("the Job {name} does not exist; this Job starts when there is one and it is {wanted}");
            self.report(key, name, false, "WaitingForJob", message, out);
        }
    }

    /// ORDER-2: on a cluster whose API server does not know the annotation, the user writes `suspend: true`.
    fn report_ignored(&mut self, key: &Key, out: &mut Outbox) {
        let message = format!("{AFTER} had no effect: the Job was not created with spec.suspend: true");
        self.report(key, "", true, "AfterIgnored", message, out);
    }

    /// Emits an Event, once for each thing that it is about.
    fn report(&mut self, key: &Key, what: &str, warning: bool, reason: &str, message: String, out: &mut Outbox) {
        let Some(wait) = self.waiting.get_mut(key) else { return };
        if wait.reported.insert(what.into()) {
            let uid = wait.uid.clone();
            let about = Reference { kind: Kind::JOB, namespace: key.0.clone(), name: key.1.clone(), uid };
            out.events.push(Event { about, warning, reason: reason.into(), message });
        }
    }

    fn answered(&mut self, key: &Key, reply: &Reply, now: Timestamp, out: &mut Outbox) {
        if let Some(wait) = self.waiting.get_mut(key) {
            wait.in_flight = false;
        }
        match reply {
            Reply::Done(bytes) => {
                // A Job that is gone, or another Job of that name, is not replaced by the state of a late response.
                let known = self.jobs.get(&key.0, &key.1).map(|known| known.meta.uid.clone());
                if let Some(job) = OrderedJob::from_json(bytes).filter(|job| known.as_ref() == Some(&job.meta.uid)) {
                    self.jobs.hear(job);
                }
                if let Some(wait) = self.waiting.get_mut(key) {
                    wait.failures = 0;
                }
                self.changed(key, now, out);
            }
            // The stream shows what has changed, and that is judged then; until then the same request would be refused.
            _ => {
                let Some(wait) = self.waiting.get_mut(key) else { return };
                let at = retry_at(now, wait.failures);
                wait.failures += 1;
                if let Some(old) = wait.retry_at.replace(at) {
                    self.timers.remove(&(old, key.clone()));
                }
                self.timers.insert((at, key.clone()));
            }
        }
    }

    fn tick(&mut self, now: Timestamp, out: &mut Outbox) {
        while let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            let Some((_, key)) = self.timers.pop_first() else { return };
            if let Some(wait) = self.waiting.get_mut(&key) {
                wait.retry_at = None;
            }
            self.act(&key, now, out);
        }
    }
}

/// A change of a waiting Job: its stored state, and what `more` contains.
fn patch(job: &OrderedJob, state: &AfterState, mut more: Value) -> Call {
    let revision = &job.meta.resource_version;
    let state = serde_json::to_string(state).unwrap_or_default();
    more["metadata"] = json!({"uid": job.meta.uid, "resourceVersion": revision, "annotations": {AFTER_STATE: state}});
    Call::new(Verb::MergePatch, Kind::JOB, &job.meta.namespace, &job.meta.name).body(&more)
}

/// ORDER-4: the interim condition. The Job controller ends the Job.
fn failure(job: &OrderedJob, order: &Order, reason: &str, message: &str, now: Timestamp) -> Call {
    let at = now.truncated();
    let mut conditions: Vec<Value> = order.conditions.iter().map(|known| json!(known)).collect();
    conditions.push(json!({
        "type": condition::FAILURE_TARGET, "status": "True", "reason": reason, "message": message,
        "lastProbeTime": at, "lastTransitionTime": at,
    }));
    let body = json!({
        "metadata": {"uid": job.meta.uid, "resourceVersion": job.meta.resource_version},
        "status": {"conditions": conditions},
    });
    Call::new(Verb::MergePatch, Kind::JOB, &job.meta.namespace, &job.meta.name).subresource("status").body(&body)
}

impl Controller for AfterController {
    fn name(&self) -> &'static str {
        "after-controller"
    }

    fn streams(&self) -> Vec<Stream> {
        vec![Stream::of(Kind::JOB)]
    }

    fn handle(&mut self, input: Input, now: Timestamp, out: &mut Outbox) {
        match input {
            Input::Init(Kind::JOB) => self.jobs.list_begins(),
            Input::Apply(Kind::JOB, bytes) => {
                // A Job that cannot be decoded is present: what is known about it is kept.
                if let Some(job) = OrderedJob::from_json(&bytes) {
                    let key = key_of(&job.meta);
                    self.jobs.observe(job);
                    self.changed(&key, now, out);
                }
            }
            Input::Delete(Kind::JOB, bytes) => {
                // The last state may be the one in which the Job ended.
                if let Some(job) = OrderedJob::from_json(&bytes) {
                    let (key, meta) = (key_of(&job.meta), job.meta.clone());
                    if self.jobs.get(&key.0, &key.1).is_none_or(|known| known.meta.uid == meta.uid) {
                        self.jobs.observe(job);
                        self.dependents_of(&key).iter().for_each(|dependent| self.note_seen(dependent));
                    }
                    self.jobs.gone(&meta);
                    self.removed(&key, now, out);
                }
            }
            Input::InitDone(Kind::JOB, at) => {
                for job in self.jobs.list_ends(at) {
                    self.removed(&key_of(&job.meta), now, out);
                }
                let waiting: Vec<Key> = self.waiting.keys().cloned().collect();
                for key in waiting {
                    self.note_seen(&key);
                    self.act(&key, now, out);
                }
            }
            Input::Response { request, reply, .. } => {
                if let Some(key) = self.requests.answered(request) {
                    self.answered(&key, &reply, now, out);
                }
            }
            Input::ClockSetBack(by) => {
                bring_forward(&mut self.timers, by);
                self.waiting.values_mut().filter_map(|wait| wait.retry_at.as_mut()).for_each(|at| *at = *at - by);
            }
            Input::Tick | Input::Bookmark(..) => {}
            Input::Init(_) | Input::Apply(..) | Input::Delete(..) | Input::InitDone(..) => {}
        }
        self.tick(now, out);
        out.wake_at = self.timers.first().map(|(at, _)| *at);
    }
}

fn key_of(meta: &Meta) -> Key {
    (meta.namespace.clone(), meta.name.clone())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
