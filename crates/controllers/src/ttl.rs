//! The TTL controller: deletes finished Jobs once their TTL has passed, and finished Pods that have one of their own.
//!
//! The view only determines when to check. Before a delete, the object is read again and judged by two clocks, ours and
//! the server's; the delete is conditional on the UID and the revision that were judged, so a TTL that was extended
//! meanwhile takes precedence. A Pod of a Job is deleted only after a look at that Job: not before it is counted, and
//! not while the Job needs its failure (TTL-19).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use compact_str::CompactString;
use memchr::memmem;
use tally_core::ids::{JobUid, PodUid};
use tally_core::job::JobView;
use tally_core::lifetime::{self, DEFAULT_TTL, POD_TTL};
use tally_core::pod::{Phase, PodView};
use tally_core::time::{Span, Timestamp};

use crate::wire::{self, Action, Answer, Object};
use tally_runtime::cache::Meta;
use tally_runtime::controller::{self, Controller, Input, Kind, Metric, Outbox, Request, RequestId, Stream};

/// A failed read or delete is retried after 1, 2, 4 ... 64 seconds.
const RETRY_DOUBLINGS: u32 = 6;

/// METRIC-14: the objective is that a Job is deleted within this time of its expiry.
const OBJECTIVE: Span = Span::from_seconds(60);

/// What expires.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    Job(JobUid),
    Pod(PodUid),
}

pub struct TtlController {
    /// For Jobs that say nothing themselves, in namespaces that say nothing (TTL-22).
    default_ttl: Option<i32>,
    /// The defaults of namespaces, and whether all namespaces are known.
    namespaces: BTreeMap<CompactString, i32>,
    namespaces_known: bool,
    /// Finished Jobs, and finished Pods that have a TTL.
    waiting: HashMap<Key, Waiting, foldhash::fast::FixedState>,
    /// Failed Pods that their Job needs until it has finished.
    needed: BTreeMap<JobUid, BTreeSet<PodUid>>,
    timers: BTreeSet<(Timestamp, Key)>,
    requests: HashMap<RequestId, (Key, Step, Action), foldhash::fast::FixedState>,
    next_request: u64,
    /// The numbers of the current lists of Jobs and of Pods.
    epochs: [u32; 2],
}

struct Waiting {
    namespace: CompactString,
    name: CompactString,
    finished_at: Timestamp,
    /// What the object itself says.
    ttl: Option<i32>,
    timer: Option<Timestamp>,
    /// Requests about it that are in flight.
    asked: u32,
    failures: u32,
    /// METRIC-14: counted as late.
    late: bool,
    epoch: u32,
}

enum Step {
    Look {
        asked_at: Timestamp,
    },
    /// Reads the Job of an expired Pod.
    LookAtJob {
        pod: Arc<PodView>,
    },
    /// `late`: the Job has been counted as late. Its deletion may be observed before the response.
    Delete {
        expired_at: Timestamp,
        late: bool,
    },
}

/// Whether the object may have the annotation: most Pods have none, and need not be decoded.
fn mentions(object: &controller::Object, annotation: &str) -> bool {
    match &object.tree {
        Some(tree) => tree["metadata"]["annotations"].get(annotation).is_some(),
        None => memmem::find(&object.bytes, annotation.as_bytes()).is_some(),
    }
}

/// When an object was read: our clock at the request and at the response, and the server's clock in between.
struct Read {
    asked_at: Timestamp,
    served_at: Option<Timestamp>,
    now: Timestamp,
}

impl Default for TtlController {
    fn default() -> Self {
        Self::new(None)
    }
}

impl TtlController {
    /// `default_ttl`: for Jobs that have no TTL, in namespaces that have no default.
    pub fn new(default_ttl: Option<i32>) -> Self {
        Self {
            default_ttl,
            namespaces: BTreeMap::new(),
            namespaces_known: false,
            waiting: HashMap::default(),
            needed: BTreeMap::new(),
            timers: BTreeSet::new(),
            requests: HashMap::default(),
            next_request: 0,
            epochs: [0; 2],
        }
    }

    /// TTL-22: what holds for Jobs of this namespace that have no TTL. Nothing does before all namespaces are known: the
    /// namespace may want its Jobs to stay longer than the flag says.
    fn default_of(&self, namespace: &str) -> Option<i32> {
        self.namespaces.get(namespace).copied().or(self.default_ttl).filter(|_| self.namespaces_known)
    }

    /// When a Job expires.
    fn job_expires_at(&self, job: &JobView) -> Option<Timestamp> {
        let (finished_at, ttl) = lifetime::finished(job)?;
        self.expires_at(finished_at, ttl, &job.namespace)
    }

    fn expires_at(&self, finished_at: Timestamp, ttl: Option<i32>, namespace: &str) -> Option<Timestamp> {
        let ttl = ttl.or_else(|| self.default_of(namespace))?;
        Some(finished_at + Span::from_seconds(i64::from(ttl)))
    }

    /// When a Pod expires that has a TTL, has ended and has no tracking finalizer.
    fn pod_expires_at(&self, pod: &PodView) -> Option<Timestamp> {
        let ttl = pod.ttl_after_finished.filter(|_| pod.phase.is_terminal() && !pod.deleting() && !pod.tracked)?;
        self.expires_at(pod.finished_at, Some(ttl), &pod.namespace)
    }

    fn observe_job(&mut self, job: &JobView) {
        if job.status.is_finished() || job.deleting {
            self.look_at_pods_of(&job.uid);
        }
        let key = Key::Job(job.uid.clone());
        let Some((finished_at, ttl)) = lifetime::finished(job) else {
            self.forget(&key);
            return;
        };
        let expires_at = self.job_expires_at(job);
        self.observe(key, [&job.namespace, &job.name], finished_at, ttl, expires_at);
    }

    fn observe_pod(&mut self, pod: &PodView) {
        let key = Key::Pod(pod.uid.clone());
        let Some(expires_at) = self.pod_expires_at(pod) else {
            self.forget(&key);
            return;
        };
        let ttl = pod.ttl_after_finished;
        self.observe(key, [&pod.namespace, &pod.name], pod.finished_at, ttl, Some(expires_at));
    }

    fn observe(
        &mut self,
        key: Key,
        [namespace, name]: [&CompactString; 2],
        finished_at: Timestamp,
        ttl: Option<i32>,
        expires_at: Option<Timestamp>,
    ) {
        let epoch = self.epoch(&key);
        let waiting = self.waiting.entry(key.clone()).or_insert_with(|| Waiting {
            namespace: namespace.clone(),
            name: name.clone(),
            finished_at,
            ttl,
            timer: None,
            asked: 0,
            failures: 0,
            late: false,
            epoch,
        });
        waiting.epoch = epoch;
        (waiting.finished_at, waiting.ttl) = (finished_at, ttl);
        if waiting.asked == 0 {
            self.arm(&key, expires_at);
        }
    }

    fn epoch(&self, key: &Key) -> u32 {
        self.epochs[usize::from(matches!(key, Key::Pod(_)))]
    }

    /// Sets the time of the next look, or that there is none.
    fn arm(&mut self, key: &Key, at: Option<Timestamp>) {
        let Some(waiting) = self.waiting.get_mut(key) else {
            return;
        };
        if let Some(old) = std::mem::replace(&mut waiting.timer, at) {
            self.timers.remove(&(old, key.clone()));
        }
        self.timers.extend(at.map(|at| (at, key.clone())));
    }

    /// What has not expired is looked at when it has, and what was to be tried again is tried as soon as before.
    fn clock_set_back(&mut self, by: Span, now: Timestamp) {
        for (at, key) in std::mem::take(&mut self.timers) {
            let Some(waiting) = self.waiting.get(&key) else { continue };
            let expires_at = self.expires_at(waiting.finished_at, waiting.ttl, &waiting.namespace);
            self.arm(&key, Some(expires_at.filter(|expires_at| *expires_at > now).unwrap_or(at - by)));
        }
    }

    fn forget(&mut self, key: &Key) {
        if let Some(at) = self.waiting.remove(key).and_then(|waiting| waiting.timer) {
            self.timers.remove(&(at, key.clone()));
        }
    }

    /// The Pods that this Job needed are looked at again: it has finished, or is gone.
    fn look_at_pods_of(&mut self, job: &JobUid) {
        for pod in self.needed.remove(job).unwrap_or_default() {
            let key = Key::Pod(pod);
            let at = self
                .waiting
                .get(&key)
                .filter(|waiting| waiting.asked == 0)
                .and_then(|waiting| self.expires_at(waiting.finished_at, waiting.ttl, &waiting.namespace));
            if at.is_some() {
                self.arm(&key, at);
            }
        }
    }

    /// A default has changed: the Jobs that have no TTL of their own are due at another time.
    fn defaults_changed(&mut self, namespace: Option<&str>) {
        let affected = |waiting: &Waiting| {
            waiting.ttl.is_none() && waiting.asked == 0 && namespace.is_none_or(|name| name == waiting.namespace)
        };
        #[allow(clippy::disallowed_methods, reason = "every one of them is armed, in any order")]
        let keys: Vec<Key> =
            self.waiting.iter().filter(|(_, waiting)| affected(waiting)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            let at = self
                .waiting
                .get(&key)
                .and_then(|waiting| self.expires_at(waiting.finished_at, None, &waiting.namespace));
            self.arm(&key, at);
        }
    }

    fn observe_namespace(&mut self, bytes: &[u8]) {
        let Some((name, ttl)) = namespace_default(bytes) else { return };
        let before = match ttl {
            Some(ttl) => self.namespaces.insert(name.clone(), ttl),
            None => self.namespaces.remove(&name),
        };
        if before != ttl && self.namespaces_known {
            self.defaults_changed(Some(&name));
        }
    }

    fn send(&mut self, key: Key, step: Step, action: Action, out: &mut Outbox) {
        self.next_request += 1;
        let id = RequestId(self.next_request);
        if let Some(waiting) = self.waiting.get_mut(&key) {
            waiting.asked += 1;
        }
        out.requests.push(Request { id, call: wire::call(&action), about: 0 });
        self.requests.insert(id, (key, step, action));
    }

    fn look(&mut self, key: Key, now: Timestamp, out: &mut Outbox) {
        let Some(waiting) = self.waiting.get_mut(&key) else {
            return;
        };
        waiting.timer = None;
        let (namespace, name) = (waiting.namespace.clone(), waiting.name.clone());
        let action = match key {
            Key::Job(_) => Action::GetJob { namespace, name },
            Key::Pod(_) => Action::GetPod { namespace, name },
        };
        self.send(key, Step::Look { asked_at: now }, action, out);
    }

    fn tick(&mut self, now: Timestamp, out: &mut Outbox) {
        while let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            if let Some((_, key)) = self.timers.pop_first() {
                self.look(key, now, out);
            }
        }
    }

    /// METRIC-14: a Job that could not be deleted for longer than the objective allows is late, and is so once.
    fn note_late(&mut self, key: &Key, now: Timestamp, out: &mut Outbox) {
        let waiting = self.waiting.get(key).filter(|waiting| matches!(key, Key::Job(_)) && !waiting.late);
        let expires_at =
            waiting.and_then(|waiting| self.expires_at(waiting.finished_at, waiting.ttl, &waiting.namespace));
        if expires_at.is_some_and(|expires_at| now - expires_at > OBJECTIVE)
            && let Some(waiting) = self.waiting.get_mut(key)
        {
            waiting.late = true;
            out.metrics.push(Metric::TtlJob { in_time: false });
        }
    }

    fn retry(&mut self, key: &Key, now: Timestamp, out: &mut Outbox) {
        self.note_late(key, now, out);
        let Some(waiting) = self.waiting.get_mut(key) else {
            return;
        };
        let wait = Span::from_seconds(1 << waiting.failures.min(RETRY_DOUBLINGS));
        waiting.failures += 1;
        self.arm(key, Some(now + wait));
    }

    /// Whether the object that was read has expired by both clocks; if it will expire later, it is looked at then.
    fn has_expired(&mut self, key: &Key, expires_at: Option<Timestamp>, read: Read) -> Option<Timestamp> {
        let Read { asked_at, served_at, now } = read;
        let Some(expires_at) = expires_at else {
            match key {
                // Without a TTL it stays known: the default of its namespace may change.
                Key::Job(_) => self.arm(key, None),
                Key::Pod(_) => self.forget(key),
            }
            return None;
        };
        // A local clock that runs ahead deletes nothing early (H6).
        let judged_at = served_at.map_or(now, |served_at| served_at.min(now));
        if judged_at < expires_at {
            // As long as the object has not expired by our own clock, that clock says when to look again. Otherwise the
            // server's clock does. The response may have been delayed: as long as the request took, at most.
            let server_now = judged_at + (now.max(asked_at) - asked_at);
            let again_at = if now < expires_at { expires_at } else { now + (expires_at.max(server_now) - server_now) };
            self.arm(key, Some(again_at));
            return None;
        }
        Some(expires_at)
    }

    fn answered(
        &mut self,
        key: &Key,
        step: Step,
        answer: Answer,
        served_at: Option<Timestamp>,
        now: Timestamp,
        out: &mut Outbox,
    ) {
        match (step, answer) {
            (Step::Look { asked_at }, Answer::Done(Object::Job(job))) if *key == Key::Job(job.uid.clone()) => {
                if lifetime::finished(&job).is_none() {
                    self.forget(key);
                    return;
                }
                let expires_at = self.job_expires_at(&job);
                let Some(expired_at) = self.has_expired(key, expires_at, Read { asked_at, served_at, now }) else {
                    return;
                };
                let action = Action::DeleteJob {
                    namespace: job.namespace.clone(),
                    name: job.name.clone(),
                    uid: job.uid.clone(),
                    revision: job.revision,
                };
                let late = self.waiting.get(key).is_some_and(|waiting| waiting.late);
                self.send(key.clone(), Step::Delete { expired_at, late }, action, out);
            }
            (Step::Look { asked_at }, Answer::Done(Object::Pod(pod))) if *key == Key::Pod(pod.uid.clone()) => {
                let expires_at = self.pod_expires_at(&pod);
                let Some(expired_at) = self.has_expired(key, expires_at, Read { asked_at, served_at, now }) else {
                    return;
                };
                let owner = pod.controller.clone().filter(|owner| owner.is_job);
                match owner {
                    Some(owner) => {
                        let action = Action::GetJob { namespace: pod.namespace.clone(), name: owner.name };
                        self.send(key.clone(), Step::LookAtJob { pod }, action, out);
                    }
                    None => self.delete_pod(&pod, expired_at, out),
                }
            }
            (Step::LookAtJob { pod }, Answer::Done(Object::Job(job))) if pod.job() == Some(&job.uid) => {
                let finished_since = self.waiting.contains_key(&Key::Job(job.uid.clone()));
                match need(&job, &pod) {
                    None => {}
                    Some(Need::Running) if !finished_since => {
                        self.needed.entry(job.uid.clone()).or_default().insert(pod.uid.clone());
                        return;
                    }
                    Some(_) => return self.retry(key, now, out),
                }
                let Some(expired_at) = self.pod_expires_at(&pod) else { return };
                self.delete_pod(&pod, expired_at, out);
            }
            // Its Job is gone: the garbage collector deletes it, unless it was orphaned.
            (Step::LookAtJob { pod }, Answer::Done(_) | Answer::Gone) => {
                let Some(expired_at) = self.pod_expires_at(&pod) else { return };
                self.delete_pod(&pod, expired_at, out);
            }
            (Step::Look { .. }, Answer::Done(_) | Answer::Gone) => self.forget(key),
            (Step::Delete { expired_at, late }, Answer::Done(_) | Answer::Gone) => {
                if matches!(key, Key::Job(_)) {
                    let after = now - expired_at;
                    out.metrics.push(Metric::TtlDeletion { after_millis: after.millis() });
                    if !late {
                        out.metrics.push(Metric::TtlJob { in_time: after <= OBJECTIVE });
                    }
                }
                self.forget(key);
            }
            // Changed between the read and the delete: read again.
            (Step::Delete { .. }, Answer::Conflict) => self.look(key.clone(), now, out),
            _ => self.retry(key, now, out),
        }
    }

    fn delete_pod(&mut self, pod: &PodView, expired_at: Timestamp, out: &mut Outbox) {
        let action = Action::DeletePod {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: Some(pod.uid.clone()),
            revision: Some(pod.revision),
        };
        self.send(Key::Pod(pod.uid.clone()), Step::Delete { expired_at, late: false }, action, out);
    }

    /// The list of this kind is complete: what it did not contain is gone.
    fn list_ends(&mut self, pods: bool) {
        let epoch = self.epochs[usize::from(pods)];
        #[allow(clippy::disallowed_methods, reason = "sorted below")]
        let mut gone: Vec<Key> = self
            .waiting
            .iter()
            .filter(|(key, waiting)| matches!(key, Key::Pod(_)) == pods && waiting.epoch != epoch)
            .map(|(key, _)| key.clone())
            .collect();
        gone.sort_unstable();
        for key in gone {
            self.forget(&key);
        }
    }

    /// The object exists, whatever its content: what is known about it is kept.
    fn touch(&mut self, key: impl FnOnce(&str) -> Key, object: &controller::Object) {
        let Some(key) = Meta::of(object).map(|meta| key(&meta.uid)) else { return };
        let epoch = self.epoch(&key);
        if let Some(waiting) = self.waiting.get_mut(&key) {
            waiting.epoch = epoch;
        }
    }

    fn job_gone(&mut self, uid: JobUid) {
        self.look_at_pods_of(&uid);
        self.forget(&Key::Job(uid));
    }
}

/// TTL-19: whether a Job still needs a Pod that has ended and lost its finalizer: it has not counted the Pod, or it runs
/// and needs to see it.
fn need(job: &JobView, pod: &PodView) -> Option<Need> {
    let lists = job.status.uncounted();
    let listed = lists.succeeded.contains(&pod.uid) || lists.failed.contains(&pod.uid);
    // A Job that is tracked the old way counts the Pods that it sees (GATE-8).
    let needed = pod.phase == Phase::Failed || job.legacy;
    let runs = !job.status.is_finished() && !job.deleting;
    listed.then_some(Need::Count).or((needed && runs).then_some(Need::Running))
}

/// What a Job needs a Pod for.
enum Need {
    /// It is about to be counted.
    Count,
    /// The Job runs, and counts it or derives its back-off from it.
    Running,
}

/// The name of a Namespace, and the default that it annotates.
fn namespace_default(bytes: &[u8]) -> Option<(CompactString, Option<i32>)> {
    let object: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let metadata = object.get("metadata")?;
    let ttl = metadata.pointer("/annotations").and_then(|all| all.get(DEFAULT_TTL)).and_then(|text| text.as_str());
    Some((metadata.get("name")?.as_str()?.into(), ttl.and_then(lifetime::ttl_seconds)))
}

impl Controller for TtlController {
    fn name(&self) -> &'static str {
        "ttl-after-finished-controller"
    }

    fn streams(&self) -> Vec<Stream> {
        vec![Stream::of(Kind::JOB), Stream::of(Kind::POD), Stream::metadata(Kind::NAMESPACE)]
    }

    fn handle(&mut self, input: Input, now: Timestamp, out: &mut Outbox) {
        match input {
            Input::Init(Kind::JOB) => self.epochs[0] = self.epochs[0].wrapping_add(1),
            Input::Init(Kind::POD) => self.epochs[1] = self.epochs[1].wrapping_add(1),
            Input::Init(Kind::NAMESPACE) => {
                self.namespaces.clear();
                self.namespaces_known = false;
            }
            Input::Apply(Kind::JOB, bytes) => match wire::job(&bytes) {
                Ok(job) => self.observe_job(&job),
                Err(_) => self.touch(|uid| Key::Job(JobUid::new(uid)), &bytes),
            },
            Input::Apply(Kind::POD, bytes) => {
                let known = |uid: &str| Key::Pod(PodUid::new(uid));
                if !mentions(&bytes, POD_TTL) {
                    // It may have had a TTL before.
                    if !self.waiting.is_empty() {
                        Meta::of(&bytes).into_iter().for_each(|meta| self.forget(&known(&meta.uid)));
                    }
                } else if let Ok(pod) = PodView::of(&bytes) {
                    self.observe_pod(&pod);
                } else {
                    self.touch(known, &bytes);
                }
            }
            Input::Apply(Kind::NAMESPACE, bytes) => self.observe_namespace(&bytes),
            Input::Delete(Kind::JOB, bytes) => {
                Meta::of(&bytes).into_iter().for_each(|meta| self.job_gone(JobUid::new(&meta.uid)));
            }
            Input::Delete(Kind::POD, bytes) if !self.waiting.is_empty() => {
                Meta::of(&bytes).into_iter().for_each(|meta| self.forget(&Key::Pod(PodUid::new(&meta.uid))));
            }
            Input::Delete(Kind::NAMESPACE, bytes) => {
                if let Some((name, _)) = namespace_default(&bytes) {
                    self.namespaces.remove(&name);
                }
            }
            Input::InitDone(Kind::JOB, _) => self.list_ends(false),
            Input::InitDone(Kind::POD, _) => self.list_ends(true),
            Input::InitDone(Kind::NAMESPACE, _) => {
                self.namespaces_known = true;
                self.defaults_changed(None);
            }
            Input::Response { request, reply, served_at } => {
                if let Some((key, step, action)) = self.requests.remove(&request) {
                    // An object that was forgotten and observed again counts no requests.
                    if let Some(waiting) = self.waiting.get_mut(&key) {
                        waiting.asked = waiting.asked.saturating_sub(1);
                    }
                    let answer = wire::answer(&action, &reply);
                    self.answered(&key, step, answer, served_at, now, out);
                }
            }
            Input::ClockSetBack(by) => self.clock_set_back(by, now),
            Input::Tick | Input::Bookmark(..) => {}
            Input::Init(_) | Input::Apply(..) | Input::Delete(..) | Input::InitDone(..) => {}
        }
        self.tick(now, out);
        out.wake_at = self.timers.first().map(|(at, _)| *at);
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests count, in any order")]
mod tests {
    use serde_json::{Value, json};
    use tally_core::ids::Revision;

    use super::*;
    use tally_runtime::controller::Reply;
    use tally_runtime::testing::{Probe, done, refused};

    const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

    fn expired(at: usize) -> Value {
        let finished = json!({"type": "Complete", "status": "True", "lastTransitionTime": "2023-11-14T22:10:00Z"});
        json!({
            "metadata": {"namespace": "ns", "name": format!("j{at}"), "uid": format!("u{at}"), "resourceVersion": "1"},
            "spec": {"ttlSecondsAfterFinished": 0, "template": {}}, "status": {"conditions": [finished]},
        })
    }

    /// Every Job counts its own requests: with thousands of them in flight no code searches through all of them.
    #[test]
    fn each_job_knows_what_was_asked_about_it() {
        let mut ttl = TtlController::default();
        let mut out = Outbox::default();
        let agrees = |ttl: &TtlController| {
            let asked = |key: &Key| ttl.requests.values().filter(|(of, ..)| of == key).count();
            ttl.waiting.iter().all(|(key, waiting)| waiting.asked as usize == asked(key))
        };
        ttl.handle(Input::Init(Kind::JOB), NOW, &mut out);
        for at in 0..50 {
            // A Job that is observed again while it is being read is not read twice.
            for _ in 0..2 {
                ttl.handle(Input::Apply(Kind::JOB, expired(at).to_string().into()), NOW, &mut out);
            }
        }
        ttl.handle(Input::InitDone(Kind::JOB, Revision(5)), NOW, &mut out);
        assert_eq!(out.requests.len(), 50);
        assert!(agrees(&ttl));
        let replies = [done(expired(0)), refused(404, "NotFound"), Reply::Unknown, refused(409, "Conflict")];
        for (reply, request) in replies.iter().cycle().zip(std::mem::take(&mut out.requests)) {
            let answer = Input::Response { request: request.id, reply: reply.clone(), served_at: None };
            ttl.handle(answer, NOW, &mut out);
            assert!(agrees(&ttl));
        }
    }

    /// METRIC-14: each expired Job is counted once, in time or late, also one that cannot be deleted at all.
    #[test]
    fn each_expired_job_is_in_time_or_late_once() {
        /// What the server does with reads and deletes, by the seconds since the expiry.
        type Server = fn(i64, bool) -> Reply;
        let rows: [(&str, Server, &[bool]); 6] = [
            ("deleted at once", |_, _| Reply::DoneWithStatus, &[true]),
            ("deletes are refused for 30 s", |at, read| later(at, read, 30), &[true]),
            ("for 10 min: late, and not counted again when it goes", |at, read| later(at, read, 600), &[false]),
            ("for ever", |_, read| if read { done(expired(0)) } else { refused(403, "Forbidden") }, &[false]),
            ("no answer to reads", |_, _| Reply::Unknown, &[false]),
            ("deleted by another client", |_, _| refused(404, "NotFound"), &[]),
        ];
        fn later(at: i64, read: bool, from: i64) -> Reply {
            match read {
                true => done(expired(0)),
                false if at < from => refused(500, "InternalError"),
                false => Reply::DoneWithStatus,
            }
        }
        for (title, server, expected) in rows {
            let mut ttl = TtlController::default();
            let mut out = Outbox::default();
            // The Job expired in this second.
            let start = Timestamp::parse("2023-11-14T22:10:00Z").unwrap();
            ttl.handle(Input::Apply(Kind::JOB, expired(0).to_string().into()), start, &mut out);
            for at in 0..2_000 {
                let now = start + Span::from_seconds(at);
                for request in std::mem::take(&mut out.requests) {
                    let read = request.call.verb == tally_runtime::controller::Verb::Get;
                    let reply = match server(at, read) {
                        Reply::DoneWithStatus if read => done(expired(0)),
                        reply => reply,
                    };
                    ttl.handle(Input::Response { request: request.id, reply, served_at: None }, now, &mut out);
                }
                ttl.handle(Input::Tick, now, &mut out);
            }
            let counted = out.metrics.iter().filter_map(|metric| match metric {
                Metric::TtlJob { in_time } => Some(*in_time),
                _ => None,
            });
            assert_eq!(counted.collect::<Vec<_>>(), expected, "{title}");
        }
    }

    /// The stream may show that the Job is gone before the response to the delete arrives.
    #[test]
    fn a_deletion_that_is_observed_before_its_response_is_counted() {
        let mut ttl = TtlController::default();
        let mut out = Outbox::default();
        ttl.handle(Input::Apply(Kind::JOB, expired(0).to_string().into()), NOW, &mut out);
        let read = out.requests.pop().unwrap();
        ttl.handle(Input::Response { request: read.id, reply: done(expired(0)), served_at: None }, NOW, &mut out);
        ttl.handle(Input::Delete(Kind::JOB, expired(0).to_string().into()), NOW, &mut out);
        assert!(ttl.waiting.is_empty());
        let delete = out.requests.pop().unwrap();
        let reply = Reply::DoneWithStatus;
        ttl.handle(Input::Response { request: delete.id, reply, served_at: None }, NOW, &mut out);
        // It expired in 2023.
        assert_eq!(out.metrics.last(), Some(&Metric::TtlJob { in_time: false }));
    }

    /// TTL-18, TTL-20: a Pod that expires is deleted as it was read, and is not among the Jobs that are measured.
    #[test]
    fn only_jobs_are_measured() {
        let pod = json!({
            "metadata": {
                "namespace": "ns", "name": "p", "uid": "p", "resourceVersion": "7",
                "annotations": {"tally.dev/ttl-seconds-after-finished": "0"},
            },
            "status": {"phase": "Succeeded"},
        });
        for (kind, object, measured) in [(Kind::POD, pod, 0), (Kind::JOB, expired(0), 1)] {
            let mut ttl = TtlController::default();
            let mut out = Outbox::default();
            ttl.handle(Input::Apply(kind, object.to_string().into()), NOW, &mut out);
            for reply in [done(object.clone()), Reply::DoneWithStatus] {
                let request = out.requests.pop().unwrap();
                let body: Value = serde_json::from_slice(&request.call.body.text()).unwrap_or_default();
                let guarded = body["preconditions"]["resourceVersion"] == object["metadata"]["resourceVersion"];
                assert!(request.call.body.text().is_empty() || guarded, "{body}");
                ttl.handle(Input::Response { request: request.id, reply, served_at: None }, NOW, &mut out);
            }
            assert!(ttl.waiting.is_empty() && out.requests.is_empty());
            let found = out.metrics.iter().filter(|metric| matches!(metric, Metric::TtlDeletion { .. })).count();
            assert_eq!(found, measured, "{kind:?}");
            let found = out.metrics.iter().filter(|metric| matches!(metric, Metric::TtlJob { .. })).count();
            assert_eq!(found, measured, "{kind:?}");
        }
    }

    /// The server's clock says that the Job has a minute left, and ours was a day ahead.
    #[test]
    fn a_clock_that_was_ahead_deletes_no_job_later() {
        const DAY: i64 = 86_400_000;
        let mut probe = Probe::new(TtlController::default());
        let mut job = expired(0);
        let finished_at = probe.now;
        job["status"]["conditions"][0]["lastTransitionTime"] = finished_at.to_string().into();
        job["spec"]["ttlSecondsAfterFinished"] = 60.into();
        probe.lists(Kind::JOB, &[job.clone()], 5);
        probe.passes(DAY);
        assert_eq!(probe.asks(), ["get jobs ns/j0"]);
        let request = RequestId(1);
        probe.input(Input::Response { request, reply: done(job.clone()), served_at: Some(finished_at) });
        assert_eq!(probe.wakes_in(), Some(60_000));
        probe.clock_is_set_back(DAY);
        assert_eq!((probe.asks(), probe.wakes_in()), (Vec::new(), Some(60_000)));
        probe.passes(60_000);
        assert_eq!(probe.asks(), ["get jobs ns/j0"]);
        // What was refused is retried as soon as before.
        probe.passes(DAY);
        probe.answer(0, refused(500, "InternalError"));
        probe.clock_is_set_back(DAY);
        assert_eq!(probe.wakes_in(), Some(1_000));
    }

    #[test]
    fn a_response_that_was_delayed_delays_no_deletion() {
        let mut probe = Probe::new(TtlController::default());
        let mut job = expired(0);
        let finished_at = probe.now;
        job["status"]["conditions"][0]["lastTransitionTime"] = finished_at.to_string().into();
        // It is read at once, and gets a longer TTL.
        probe.lists(Kind::JOB, &[job.clone()], 5);
        assert_eq!(probe.asks(), ["get jobs ns/j0"]);
        job["spec"]["ttlSecondsAfterFinished"] = 60.into();
        probe.passes(11_000);
        probe.answer_served(0, done(job), Some(finished_at));
        assert_eq!(probe.wakes_in(), Some(49_000));
    }

    /// The response says that the Job has a minute left, and has taken longer than that.
    #[test]
    fn a_response_that_took_longer_than_was_left_delays_no_deletion() {
        for (taken, wait) in [(100_000, None), (60_000, None), (45_000, Some(15_000))] {
            let mut probe = Probe::new(TtlController::default());
            let mut job = expired(0);
            job["status"]["conditions"][0]["lastTransitionTime"] = probe.now.to_string().into();
            job["spec"]["ttlSecondsAfterFinished"] = 60.into();
            probe.lists(Kind::JOB, &[job.clone()], 5);
            // Our clock jumps to the expiry, the server's does not.
            let served_at = probe.now;
            probe.passes(60_000);
            assert_eq!(probe.asks(), ["get jobs ns/j0"]);
            probe.passes(taken);
            probe.answer_served(0, done(job), Some(served_at));
            let again = if wait.is_none() { vec!["get jobs ns/j0".to_owned()] } else { Vec::new() };
            assert_eq!((probe.asks(), probe.wakes_in()), (again, wait));
        }
    }

    /// A finished Pod with a TTL of ten seconds, of the Job `j`, seen in the second of its end.
    fn pod(probe: &Probe<TtlController>, phase: &str) -> Value {
        let ended = json!({"exitCode": 0, "finishedAt": probe.now.to_string()});
        json!({
            "metadata": {
                "namespace": "ns", "name": "p", "uid": "p", "resourceVersion": "7",
                "annotations": {"tally.dev/ttl-seconds-after-finished": "10"},
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}],
            },
            "status": {"phase": phase, "containerStatuses": [{"name": "c", "state": {"terminated": ended}}]},
        })
    }

    fn owner(finished: bool, uncounted: &[&str]) -> Value {
        let conditions = [json!({"type": "Complete", "status": "True", "lastTransitionTime": "2023-11-14T22:10:00Z"})];
        json!({
            "metadata": {"namespace": "ns", "name": "j", "uid": "j", "resourceVersion": "8"},
            "spec": {"template": {}},
            "status": {
                "conditions": if finished { &conditions[..] } else { &[] },
                "uncountedTerminatedPods": {"succeeded": uncounted},
            },
        })
    }

    /// TTL-18.
    #[test]
    fn only_a_pod_that_has_ended_and_is_released_expires() {
        let mut probe = Probe::new(TtlController::default());
        let ended = pod(&probe, "Succeeded");
        let mut running = pod(&probe, "Running");
        running["status"]["containerStatuses"] = json!([]);
        let mut tracked = ended.clone();
        tracked["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
        let mut deleted = ended.clone();
        deleted["metadata"]["deletionTimestamp"] = probe.now.to_string().into();
        let mut without = ended.clone();
        without["metadata"]["annotations"] = json!({});
        for other in [running, tracked, deleted, without] {
            probe.sees(Kind::POD, ended.clone());
            assert_eq!(probe.wakes_in(), Some(10_000));
            probe.sees(Kind::POD, other.clone());
            assert_eq!(probe.wakes_in(), None, "{other}");
        }
        probe.sees(Kind::POD, ended.clone());
        probe.gone(Kind::POD, ended);
        assert_eq!(probe.wakes_in(), None);
    }

    /// TTL-19.
    #[test]
    fn an_expired_pod_goes_once_its_job_does_not_need_it() {
        let mut another = owner(false, &[]);
        another["metadata"]["uid"] = "another".into();
        let mut deleted = owner(false, &[]);
        deleted["metadata"]["deletionTimestamp"] = "2023-11-14T22:10:00Z".into();
        let rows = [
            ("Failed", done(owner(true, &[])), "delete pods ns/p", None),
            ("Failed", done(deleted), "delete pods ns/p", None),
            ("Failed", done(another), "delete pods ns/p", None),
            ("Failed", refused(404, "NotFound"), "delete pods ns/p", None),
            ("Succeeded", done(owner(false, &[])), "delete pods ns/p", None),
            ("Succeeded", done(owner(true, &["p"])), "", Some(1_000)),
            ("Succeeded", Reply::Unknown, "", Some(1_000)),
            ("Failed", done(owner(false, &[])), "", None),
        ];
        for (phase, reply, asked, wakes_in) in rows {
            let mut probe = Probe::new(TtlController::default());
            let pod = pod(&probe, phase);
            probe.sees(Kind::POD, pod.clone());
            probe.passes(10_000);
            assert_eq!(probe.asks(), ["get pods ns/p"]);
            probe.answer(0, done(pod));
            assert_eq!(probe.asks(), ["get jobs ns/j"]);
            probe.answer(0, reply.clone());
            assert_eq!((probe.asks().concat(), probe.wakes_in()), (asked.to_owned(), wakes_in), "{phase} {reply:?}");
            if asked.is_empty() && wakes_in.is_none() {
                // The Job runs, and its back-off derives from the Pod: it is looked at again when the Job has ended.
                let mut other = owner(true, &[]);
                other["metadata"]["uid"] = "other".into();
                probe.sees(Kind::JOB, other);
                assert!(probe.asks().is_empty());
                probe.sees(Kind::JOB, owner(true, &[]));
                assert_eq!(probe.asks(), ["get pods ns/p"]);
            }
        }
    }

    /// The stream has shown the end of the Job, and the read is older: nothing would wake the Pod any more.
    #[test]
    fn an_expired_pod_does_not_wait_for_an_end_that_was_seen_already() {
        let mut probe = Probe::new(TtlController::default());
        let pod = pod(&probe, "Failed");
        probe.sees(Kind::POD, pod.clone());
        probe.passes(10_000);
        assert_eq!(probe.asks(), ["get pods ns/p"]);
        probe.answer(0, done(pod));
        assert_eq!(probe.asks(), ["get jobs ns/j"]);
        probe.sees(Kind::JOB, owner(true, &[]));
        probe.answer(0, done(owner(false, &[])));
        assert_eq!((probe.asks().len(), probe.wakes_in()), (0, Some(1_000)));
    }

    #[test]
    fn what_has_the_name_now_is_not_deleted_in_place_of_what_expired() {
        let mut probe = Probe::new(TtlController::default());
        let mut another = pod(&probe, "Succeeded");
        (another["metadata"]["uid"], another["metadata"]["ownerReferences"]) = ("another".into(), json!([]));
        for (kind, object, another) in
            [(Kind::JOB, expired(0), expired(1)), (Kind::POD, pod(&probe, "Succeeded"), another)]
        {
            probe.sees(kind, object);
            probe.passes(10_000);
            assert_eq!(probe.asks().len(), 1, "{kind:?}");
            probe.answer(0, done(another));
            assert_eq!((probe.asks().len(), probe.wakes_in()), (0, None), "{kind:?}");
        }
    }

    /// TTL-22: the Job's own TTL, then that of its namespace, then the flag; nothing before all namespaces are known.
    #[test]
    fn defaults_of_namespaces_hold_for_jobs_without_a_ttl() {
        let namespace = |name: &str, ttl: Option<&str>| {
            let annotations = ttl.map(|ttl| json!({DEFAULT_TTL: ttl}));
            json!({"metadata": {"name": name, "uid": name, "resourceVersion": "3", "annotations": annotations}})
        };
        let mut probe = Probe::new(TtlController::new(Some(100)));
        let mut job = expired(0);
        job["status"]["conditions"][0]["lastTransitionTime"] = probe.now.to_string().into();
        let mut own = job.clone();
        (own["metadata"]["name"], own["metadata"]["uid"]) = ("own".into(), "own".into());
        own["spec"]["ttlSecondsAfterFinished"] = 1_000.into();
        job["spec"] = json!({"template": {}});
        probe.lists(Kind::JOB, &[job, own], 5);
        assert_eq!(probe.wakes_in(), Some(1_000_000), "only the one with a TTL");
        probe.lists(Kind::NAMESPACE, &[namespace("ns", None), namespace("other", Some("5"))], 5);
        assert_eq!(probe.wakes_in(), Some(100_000));
        for (name, ttl, wakes_in) in
            [("ns", Some("7"), 7_000), ("other", Some("3"), 7_000), ("ns", Some("0x"), 100_000), ("ns", None, 100_000)]
        {
            probe.sees(Kind::NAMESPACE, namespace(name, ttl));
            assert_eq!(probe.wakes_in(), Some(wakes_in), "{name} {ttl:?}");
        }
        // Without any default the Job that has a TTL keeps it.
        let mut probe = Probe::new(TtlController::default());
        probe.lists(Kind::NAMESPACE, &[namespace("ns", Some("7"))], 5);
        let mut own = expired(0);
        own["status"]["conditions"][0]["lastTransitionTime"] = probe.now.to_string().into();
        own["spec"]["ttlSecondsAfterFinished"] = 10.into();
        probe.lists(Kind::JOB, &[own], 5);
        probe.sees(Kind::NAMESPACE, namespace("ns", None));
        assert_eq!(probe.wakes_in(), Some(10_000));
    }

    #[test]
    fn what_a_list_lacks_is_gone_and_what_cannot_be_read_is_not() {
        for kind in [Kind::JOB, Kind::POD] {
            let mut probe = Probe::new(TtlController::default());
            let mut job = expired(0);
            job["status"]["conditions"][0]["lastTransitionTime"] = probe.now.to_string().into();
            job["spec"]["ttlSecondsAfterFinished"] = 10.into();
            let object = if kind == Kind::JOB { job } else { pod(&probe, "Succeeded") };
            let mut unreadable = object.clone();
            let field = if kind == Kind::JOB { "spec" } else { "status" };
            unreadable[field] = "text".into();
            probe.lists(kind, &[object], 5);
            probe.lists(kind, &[unreadable], 6);
            assert_eq!(probe.wakes_in(), Some(10_000), "{kind:?}");
            let other = if kind == Kind::JOB { Kind::POD } else { Kind::JOB };
            probe.lists(other, &[], 7);
            assert_eq!(probe.wakes_in(), Some(10_000), "a list of the other kind says nothing about {kind:?}");
            probe.lists(kind, &[], 7);
            assert_eq!(probe.wakes_in(), None, "{kind:?}");
        }
    }

    #[test]
    fn a_deletion_is_retried_later_and_later_and_after_a_conflict_at_once() {
        let mut probe = Probe::new(TtlController::default());
        probe.sees(Kind::JOB, expired(0));
        for wait in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 64_000] {
            assert_eq!(probe.asks(), ["get jobs ns/j0"]);
            probe.answer(0, refused(500, "InternalError"));
            assert_eq!(probe.wakes_in(), Some(wait));
            probe.passes(wait);
        }
        assert_eq!(probe.asks(), ["get jobs ns/j0"]);
        probe.answer(0, done(expired(0)));
        assert_eq!(probe.asks(), ["delete jobs ns/j0"]);
        probe.answer(0, refused(409, "Conflict"));
        assert_eq!(probe.asks(), ["get jobs ns/j0"]);
    }
}
