//! Follows objects of a server: Jobs, their Pods, and what Jobs wait for before they retry.
//!
//! The streams are those of the driver, which opens them again when they break, and lists again when the server no longer
//! has their revision. What they show waits in the [`Inbox`], for every object only the newest state: a reader that is slow,
//! because its standard output is, costs no more memory than the objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tally_core::backoff::BackoffNotice;
use tally_core::time::Timestamp;
use tally_remote::{Remote, Watch, WatchScope};
use tally_runtime::cache::Meta;
use tally_runtime::controller::{Call, Controller, Input, Kind, Metric, Object, Outbox, Stream};
use tally_runtime::driver::api::{Api, Response, Start, WatchError};
use tally_runtime::driver::{self, DriverOptions, Observer};
use tokio::sync::{Notify, oneshot};

/// More Jobs than this in a namespace are not named in the request for their Pods: its address would be too long.
const MOST_NAMED: usize = 50;

/// Waits for retries that were not read yet. Older ones are dropped: they are for a display.
const MOST_WAITS: usize = 64;

/// The newest state of an object that was not read yet.
#[derive(Debug, Default)]
pub struct Unread {
    /// None: only its deletion is new.
    state: Option<Object>,
    pub is_deleted: bool,
}

impl Unread {
    /// None also if it cannot be decoded: such an object is treated as present and unchanged.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        self.state.as_ref()?.read().ok()
    }
}

/// Why a stream cannot be followed, and since when.
#[derive(Clone, Debug)]
pub struct BrokenStream {
    pub since: Instant,
    pub reason: String,
    /// The server refuses the request, and will do so again.
    pub is_refused: bool,
}

/// What the streams have shown and was not read yet.
#[derive(Default)]
pub struct Inbox {
    waiting: Mutex<Waiting>,
    pub changed: Notify,
}

#[derive(Default)]
struct Waiting {
    /// By kind and UID.
    objects: BTreeMap<&'static str, BTreeMap<String, Unread>>,
    /// What Jobs wait for before they retry, with their UIDs.
    backoffs: Vec<(String, BackoffNotice)>,
    /// By namespace and kind.
    broken: BTreeMap<(String, &'static str), BrokenStream>,
    /// The attempts to open a stream that have failed since they were read: its kind, and the reason of the last one.
    failures: BTreeMap<&'static str, String>,
}

impl Inbox {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        change(&mut self.waiting());
        self.changed.notify_one();
    }

    /// By UID.
    pub fn take(&self, kind: Kind) -> BTreeMap<String, Unread> {
        self.waiting().objects.remove(kind.plural).unwrap_or_default()
    }

    fn add_backoff(&self, job: String, notice: BackoffNotice) {
        self.change(|waiting| {
            if waiting.backoffs.len() == MOST_WAITS {
                waiting.backoffs.remove(0);
            }
            waiting.backoffs.push((job, notice));
        });
    }

    pub fn take_backoffs(&self) -> Vec<(String, BackoffNotice)> {
        std::mem::take(&mut self.waiting().backoffs)
    }

    pub fn take_failures(&self) -> BTreeMap<&'static str, String> {
        std::mem::take(&mut self.waiting().failures)
    }

    /// The stream that has been broken for the longest time.
    pub fn broken(&self) -> Option<BrokenStream> {
        self.waiting().broken.values().min_by_key(|broken| broken.since).cloned()
    }
}

/// What the Job controller of this process has just decided.
impl Observer for Inbox {
    fn metric(&self, _: &'static str, metric: &Metric, _: Duration) {
        if let Metric::BackoffStarted { job, notice } = metric {
            self.add_backoff(job.to_string(), (**notice).clone());
        }
    }
}

/// An Event of Tally's Job controller (EVENT-12).
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct EventText {
    involved_object: EventObject,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EventObject {
    uid: String,
}

/// Puts what its streams show into the inbox. It requests nothing.
struct Watcher {
    inbox: Arc<Inbox>,
    streams: Vec<Stream>,
    /// The UIDs of the objects that are there.
    known: BTreeMap<&'static str, BTreeSet<String>>,
    /// Those of a list that is not complete.
    listed: BTreeMap<&'static str, BTreeSet<String>>,
}

impl Watcher {
    fn new(inbox: Arc<Inbox>, kinds: impl Iterator<Item = Kind>) -> Self {
        Self { inbox, streams: kinds.map(Stream::of).collect(), known: BTreeMap::new(), listed: BTreeMap::new() }
    }

    fn recorded(&self, event: &Object) {
        let Ok(EventText { involved_object, message }) = event.read() else { return };
        let Some(notice) = BackoffNotice::parse(&message) else { return };
        self.inbox.add_backoff(involved_object.uid, notice);
    }

    fn applied(&mut self, kind: Kind, object: Object) {
        let Some(uid) = Meta::of(&object).map(|meta| meta.uid.to_string()) else { return };
        if let Some(listed) = self.listed.get_mut(kind.plural) {
            listed.insert(uid.clone());
        }
        self.known.entry(kind.plural).or_default().insert(uid.clone());
        let unread = Unread { state: Some(object), is_deleted: false };
        self.inbox.change(|waiting| drop(waiting.objects.entry(kind.plural).or_default().insert(uid, unread)));
    }

    fn deleted(&mut self, kind: Kind, uid: &str) {
        self.known.entry(kind.plural).or_default().remove(uid);
        self.inbox.change(|waiting| {
            waiting.objects.entry(kind.plural).or_default().entry(uid.to_owned()).or_default().is_deleted = true;
        });
    }

    /// What is not in a complete list was deleted.
    fn is_complete(&mut self, kind: Kind) {
        let Some(listed) = self.listed.remove(kind.plural) else { return };
        let known = self.known.entry(kind.plural).or_default();
        let gone: Vec<String> = known.difference(&listed).cloned().collect();
        gone.iter().for_each(|uid| self.deleted(kind, uid));
    }
}

impl Controller for Watcher {
    fn name(&self) -> &'static str {
        "follow"
    }

    fn streams(&self) -> Vec<Stream> {
        self.streams.clone()
    }

    fn handle(&mut self, input: Input, _: Timestamp, _: &mut Outbox) {
        match input {
            Input::Apply(Kind::EVENT, event) => self.recorded(&event),
            Input::Init(Kind::EVENT) | Input::InitDone(Kind::EVENT, _) | Input::Delete(Kind::EVENT, _) => {}
            Input::Init(kind) => drop(self.listed.insert(kind.plural, BTreeSet::new())),
            Input::Apply(kind, object) => self.applied(kind, object),
            Input::Delete(kind, object) => {
                if let Some(meta) = Meta::of(&object) {
                    // Its last state may not have been read: a Pod that failed and was deleted at once.
                    self.applied(kind, object);
                    self.deleted(kind, &meta.uid);
                }
            }
            Input::InitDone(kind, _) => self.is_complete(kind),
            Input::Bookmark(..) | Input::Response { .. } | Input::Tick | Input::ClockSetBack(_) => {}
        }
    }
}

/// Records in the inbox whether the streams can be followed.
struct StreamHealth {
    inbox: Arc<Inbox>,
    namespace: String,
}

impl StreamHealth {
    fn is_open(&self, stream: Stream) {
        let key = (self.namespace.clone(), stream.kind.plural);
        if self.inbox.waiting().broken.contains_key(&key) {
            self.inbox.change(|waiting| drop(waiting.broken.remove(&key)));
        }
    }
}

impl Observer for StreamHealth {
    fn stream_broken(&self, _: &'static str, stream: Stream, error: &WatchError) {
        let (reason, is_refused) = match error {
            // The state is listed again at once.
            WatchError::TooOld => return,
            WatchError::Refused(refusal) => (refusal.message.clone(), matches!(refusal.code, 401 | 403)),
            WatchError::Broken(reason) => (reason.clone(), false),
        };
        // Events are not needed, and a user may have no right to read them.
        if stream.kind == Kind::EVENT {
            return;
        }
        let key = (self.namespace.clone(), stream.kind.plural);
        self.inbox.change(|waiting| {
            waiting.failures.insert(stream.kind.plural, reason.clone());
            let since = waiting.broken.get(&key).map_or_else(Instant::now, |known| known.since);
            waiting.broken.insert(key, BrokenStream { since, reason, is_refused });
        });
    }
}

/// The API, as far as it is about the followed objects.
struct ScopedApi {
    remote: Remote,
    scopes: Vec<(Kind, WatchScope)>,
    health: Arc<StreamHealth>,
}

impl Api for ScopedApi {
    type Events = Watch;

    async fn call(&self, call: &Call) -> Response {
        self.remote.call(call).await
    }

    async fn follow(&self, stream: Stream, from: Start) -> Result<Watch, WatchError> {
        let scope = self.scopes.iter().find(|(kind, _)| *kind == stream.kind);
        let scope = scope.map(|(_, scope)| scope.clone()).unwrap_or_default();
        let opened = self.remote.follow_in(stream, &scope, from).await;
        if opened.is_ok() {
            self.health.is_open(stream);
        }
        opened
    }
}

/// A Job that is followed.
#[derive(Clone, Debug)]
pub struct FollowedJob {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// The streams end when this is dropped.
pub struct Streams {
    _stop: oneshot::Sender<()>,
}

/// Follows the objects of these kinds.
pub fn start(remote: &Remote, scopes: Vec<(Kind, WatchScope)>, inbox: &Arc<Inbox>) -> Streams {
    let namespace = scopes.first().map(|(_, scope)| scope.namespace.clone()).unwrap_or_default();
    let health = Arc::new(StreamHealth { inbox: inbox.clone(), namespace });
    let watcher = Watcher::new(inbox.clone(), scopes.iter().map(|(kind, _)| *kind));
    let api = ScopedApi { remote: remote.clone(), scopes, health: health.clone() };
    let options = DriverOptions { events: false, ..DriverOptions::default() };
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async move { drop(stopped.await) };
    tokio::spawn(driver::run(Arc::new(api), vec![Box::new(watcher)], options, health, stopped));
    Streams { _stop: stop }
}

/// Follows these Jobs, their Pods, and what they wait for before they retry.
pub fn follow_jobs(remote: &Remote, jobs: &[FollowedJob], inbox: &Arc<Inbox>) -> Vec<Streams> {
    let mut namespaces: BTreeMap<&str, Vec<&FollowedJob>> = BTreeMap::new();
    jobs.iter().for_each(|job| namespaces.entry(&job.namespace).or_default().push(job));
    let start = |(namespace, jobs): (&str, Vec<&FollowedJob>)| {
        let scopes = vec![
            (Kind::JOB, scope_of_jobs(namespace, &jobs)),
            (Kind::POD, scope_of_pods(namespace, &jobs)),
            (Kind::EVENT, scope_of_events(namespace, &jobs)),
        ];
        self::start(remote, scopes, inbox)
    };
    namespaces.into_iter().map(start).collect()
}

fn scope_of_jobs(namespace: &str, jobs: &[&FollowedJob]) -> WatchScope {
    let field_selector = match jobs {
        [only] => format!("metadata.name={}", only.name),
        // A field selector cannot name several.
        _ => String::new(),
    };
    WatchScope { namespace: namespace.to_owned(), field_selector, ..WatchScope::default() }
}

fn scope_of_events(namespace: &str, jobs: &[&FollowedJob]) -> WatchScope {
    let mut field_selector = "reason=BackOff,involvedObject.kind=Job".to_owned();
    if let [only] = jobs {
        field_selector.push_str(&format!(",involvedObject.uid={}", only.uid));
    }
    WatchScope { namespace: namespace.to_owned(), field_selector, ..WatchScope::default() }
}

pub fn scope_of_pods(namespace: &str, jobs: &[&FollowedJob]) -> WatchScope {
    let uids: Vec<&str> = jobs.iter().map(|job| job.uid.as_str()).collect();
    let label_selector = match uids.as_slice() {
        [only] => format!("batch.kubernetes.io/controller-uid={only}"),
        uids if uids.len() <= MOST_NAMED => format!("batch.kubernetes.io/controller-uid in ({})", uids.join(",")),
        _ => "batch.kubernetes.io/controller-uid".to_owned(),
    };
    WatchScope { namespace: namespace.to_owned(), label_selector, ..WatchScope::default() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;
    use tally_core::ids::Revision;

    use super::*;
    use crate::run::progress::view::PodText;

    fn pod(uid: &str, phase: &str) -> Object {
        json!({"metadata": {"name": uid, "uid": uid}, "status": {"phase": phase}}).to_string().into()
    }

    fn watcher() -> (Watcher, Arc<Inbox>) {
        let inbox = Arc::new(Inbox::default());
        (Watcher::new(inbox.clone(), [Kind::POD].into_iter()), inbox)
    }

    fn handle(watcher: &mut Watcher, input: Input) {
        watcher.handle(input, Timestamp::from_millis(0), &mut Outbox::default());
    }

    /// `uid phase`, with a minus sign if it was deleted.
    fn taken(inbox: &Inbox) -> Vec<String> {
        let text = |(uid, unread): (String, Unread)| {
            let phase = unread.read::<PodText>().map(|pod| pod.status.phase).unwrap_or_default();
            format!("{}{uid} {phase}", if unread.is_deleted { "-" } else { "" })
        };
        inbox.take(Kind::POD).into_iter().map(text).collect()
    }

    #[test]
    fn only_the_newest_state_of_an_object_waits() {
        let (mut watcher, inbox) = watcher();
        handle(&mut watcher, Input::Apply(Kind::POD, pod("a", "Pending")));
        handle(&mut watcher, Input::Apply(Kind::POD, pod("a", "Running")));
        handle(&mut watcher, Input::Apply(Kind::POD, pod("b", "Running")));
        assert_eq!(taken(&inbox), ["a Running", "b Running"]);
        handle(&mut watcher, Input::Delete(Kind::POD, pod("a", "Failed")));
        assert_eq!(taken(&inbox), ["-a Failed"], "its failure is not lost");
        assert_eq!(taken(&inbox), [""; 0]);
    }

    #[test]
    fn what_a_new_list_does_not_have_was_deleted() {
        let (mut watcher, inbox) = watcher();
        let list = |watcher: &mut Watcher, uids: &[&str]| {
            handle(watcher, Input::Init(Kind::POD));
            uids.iter().for_each(|uid| handle(watcher, Input::Apply(Kind::POD, pod(uid, "Running"))));
            handle(watcher, Input::InitDone(Kind::POD, Revision(5)));
        };
        list(&mut watcher, &["a", "b"]);
        assert_eq!(taken(&inbox), ["a Running", "b Running"]);
        list(&mut watcher, &["b"]);
        assert_eq!(taken(&inbox), ["-a ", "b Running"]);
    }

    #[test]
    fn one_job_is_followed_by_its_name_and_its_pods_by_its_uid() {
        let job = |name: &str| FollowedJob { namespace: "ns".into(), name: name.into(), uid: format!("u-{name}") };
        let (one, other) = (job("a"), job("b"));
        assert_eq!(scope_of_jobs("ns", &[&one]).field_selector, "metadata.name=a");
        assert_eq!(scope_of_jobs("ns", &[&one, &other]).field_selector, "");
        let pods = |jobs: &[&FollowedJob]| scope_of_pods("ns", jobs).label_selector;
        assert_eq!(pods(&[&one]), "batch.kubernetes.io/controller-uid=u-a");
        assert_eq!(pods(&[&one, &other]), "batch.kubernetes.io/controller-uid in (u-a,u-b)");
        assert_eq!(pods(&[&one; MOST_NAMED + 1]), "batch.kubernetes.io/controller-uid");
    }
}
