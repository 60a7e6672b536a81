//! What the driver runs. A controller receives what an API server shows, as bytes, and the responses to its requests;
//! it returns what to request next. No I/O, no async, no clock: the same controllers run in the driver, against any
//! Kubernetes API, and in the simulator.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use compact_str::CompactString;
use tally_core::ids::Revision;
use tally_core::time::{Span, Timestamp};
use tokio::sync::Notify;

pub use crate::metric::Metric;
pub use tally_value::Object;
use tally_value::Value;

pub trait Controller: Send {
    fn name(&self) -> &'static str;

    /// The streams that it follows. Called once.
    fn streams(&self) -> Vec<Stream>;

    /// Processes one input; requests, Events and metrics go into `out`. There is no other output to the API.
    fn handle(&mut self, input: Input, now: Timestamp, out: &mut Outbox);

    /// For controllers that also receive input from outside the API: each notification is followed by a `Tick` soon.
    /// Called once.
    fn pokes(&self) -> Option<Arc<Notify>> {
        None
    }
}

/// A kind of object and where the API serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// "" for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
}

impl Kind {
    pub const CONFIG_MAP: Self = Self::core("ConfigMap", "configmaps", true);
    pub const CRON_JOB: Self = Self::new("batch", "v1", "CronJob", "cronjobs", true);
    pub const EVENT: Self = Self::core("Event", "events", true);
    pub const JOB: Self = Self::new("batch", "v1", "Job", "jobs", true);
    pub const LEASE: Self = Self::new("coordination.k8s.io", "v1", "Lease", "leases", true);
    pub const NAMESPACE: Self = Self::core("Namespace", "namespaces", false);
    pub const NODE: Self = Self::core("Node", "nodes", false);
    pub const PERSISTENT_VOLUME_CLAIM: Self = Self::core("PersistentVolumeClaim", "persistentvolumeclaims", true);
    pub const POD: Self = Self::core("Pod", "pods", true);
    pub const SECRET: Self = Self::core("Secret", "secrets", true);
    pub const SERVICE_ACCOUNT: Self = Self::core("ServiceAccount", "serviceaccounts", true);

    pub const fn new(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
        namespaced: bool,
    ) -> Self {
        Self { group, version, kind, plural, namespaced }
    }

    const fn core(kind: &'static str, plural: &'static str, namespaced: bool) -> Self {
        Self::new("", "v1", kind, plural, namespaced)
    }

    /// `v1`, `batch/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// The stream of all objects of a kind, in all namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    pub kind: Kind,
    /// Only `metadata` is needed: a server may omit the rest.
    pub metadata_only: bool,
    /// Work waits for `Bookmark`: an API that can send it within milliseconds should do so. It costs wake-ups while
    /// other clients write.
    pub soon: bool,
}

impl Stream {
    pub const fn of(kind: Kind) -> Self {
        Self { kind, metadata_only: false, soon: false }
    }

    pub const fn metadata(kind: Kind) -> Self {
        Self { kind, metadata_only: true, soon: false }
    }

    pub const fn soon(self) -> Self {
        Self { soon: true, ..self }
    }
}

/// Objects are JSON; `apiVersion` and `kind` may be missing, as in lists.
#[derive(Clone, Debug)]
pub enum Input {
    /// A complete list begins: its objects follow as `Apply`, then `InitDone`. Known objects that are not in it are deleted.
    Init(Kind),
    /// An object as it is now: an item of a list, or the next event of the watch.
    Apply(Kind, Object),
    /// An object was deleted; this is its last state, with the revision of its removal.
    Delete(Kind, Object),
    /// The list is complete, as of this revision.
    InitDone(Kind, Revision),
    /// The watch has delivered everything up to this revision.
    Bookmark(Kind, Revision),
    /// The response to a request. `served_at` is the server's clock when it sent the response, if the response contains it.
    Response { request: RequestId, reply: Reply, served_at: Option<Timestamp> },
    /// The requested time has come, or the `Notify` of the controller was notified.
    Tick,
    /// The wall clock was ahead, and was set back by this much. What was to happen after a while would happen that much
    /// later: the controller moves the times that it keeps.
    ClockSetBack(Span),
}

/// Notices that the wall clock was set back.
#[derive(Debug, Default)]
pub struct ClockWatch {
    /// The last look, by the wall clock and by one that does not jump.
    looked_at: Timestamp,
    elapsed: Duration,
}

impl ClockWatch {
    /// Steps that are shorter delay nothing by much.
    const LEAST: Span = Span::from_seconds(1);

    /// By how much the clock was set back since the last look. `elapsed` is the time by a clock that does not jump.
    pub fn set_back(&mut self, now: Timestamp, elapsed: Duration) -> Option<Span> {
        let passed = i64::try_from(elapsed.saturating_sub(self.elapsed).as_millis()).unwrap_or(i64::MAX);
        let by = self.looked_at + Span::from_millis(passed) - now;
        (self.looked_at, self.elapsed) = (now, elapsed);
        (by > Self::LEAST).then_some(by)
    }
}

/// Moves the times of a queue when the clock was set back.
pub fn bring_forward<K: Ord>(queue: &mut BTreeSet<(Timestamp, K)>, by: Span) {
    *queue = std::mem::take(queue).into_iter().map(|(at, key)| (at - by, key)).collect();
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The output of a controller.
#[derive(Debug, Default)]
pub struct Outbox {
    pub requests: Vec<Request>,
    pub events: Vec<Event>,
    pub metrics: Vec<Metric>,
    /// When to send a `Tick` at the latest. The last value holds; None: no `Tick` is needed.
    pub wake_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub id: RequestId,
    pub call: Call,
    /// The object that the controller works for, as a number that the controller chooses: a Job, for example. Requests for
    /// different objects take turns, so that a few do not wait behind many.
    pub about: u64,
}

/// One request. It is self-contained: the code that sends it needs no knowledge of its purpose.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub verb: Verb,
    pub kind: Kind,
    /// "" for objects without a namespace, and for reads across all namespaces.
    pub namespace: CompactString,
    /// "" for collections.
    pub name: CompactString,
    /// "" for the object itself; `status`, `binding`, `finalize`.
    pub subresource: &'static str,
    /// For lists and the deletion of collections.
    pub label_selector: String,
    /// Empty for reads.
    pub body: Body,
}

/// What a request carries. A tree becomes a text where it leaves the process.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    Text(Bytes),
    Tree(Value),
}

impl Default for Body {
    fn default() -> Self {
        Self::Text(Bytes::new())
    }
}

impl Body {
    pub fn text(&self) -> Bytes {
        match self {
            Self::Text(text) => text.clone(),
            Self::Tree(tree) => {
                let mut text = Vec::with_capacity(512);
                tree.write_to(&mut text);
                text.into()
            }
        }
    }
}

impl From<Bytes> for Body {
    fn from(text: Bytes) -> Self {
        Self::Text(text)
    }
}

impl From<&Value> for Body {
    fn from(tree: &Value) -> Self {
        Self::Tree(tree.clone())
    }
}

impl From<&serde_json::Value> for Body {
    fn from(body: &serde_json::Value) -> Self {
        // A value can always be written into memory.
        Self::Text(serde_json::to_vec(body).unwrap_or_default().into())
    }
}

impl Call {
    pub fn new(verb: Verb, kind: Kind, namespace: &str, name: &str) -> Self {
        Self {
            verb,
            kind,
            namespace: namespace.into(),
            name: name.into(),
            subresource: "",
            label_selector: String::new(),
            body: Body::default(),
        }
    }

    pub fn body(self, body: impl Into<Body>) -> Self {
        Self { body: body.into(), ..self }
    }

    pub fn subresource(self, subresource: &'static str) -> Self {
        Self { subresource, ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Create,
    Get,
    /// All objects of a collection, read consistently; page by page if the server requires it.
    List,
    Update,
    MergePatch,
    StrategicPatch,
    /// The body is DeleteOptions.
    Delete,
    /// The body is DeleteOptions.
    DeleteCollection,
}

/// The outcome of a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Done; this is the object in the response.
    Done(Object),
    /// Done; the response was a Status: the object was removed at once, or there is none to show.
    DoneWithStatus,
    /// The objects of a list, as of `at`.
    Listed { items: Vec<Object>, at: Revision },
    /// Not done; the server says why.
    Refused(Refusal),
    /// The outcome is unknown: a timeout, a broken connection, a response that is not the API server's own
    /// (`response.rs`).
    Unknown,
}

/// A status error: the fields on which its meaning depends.
#[derive(Clone, Debug, Default)]
pub struct Refusal {
    pub code: u16,
    pub reason: String,
    pub message: String,
    /// Fields and reasons of `details.causes`.
    pub causes: Vec<(String, String)>,
}

impl Reply {
    /// There is no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.code == 404)
    }

    /// The object has changed, the name is taken, or a precondition does not hold.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.code == 409)
    }

    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done(_) | Self::DoneWithStatus | Self::Listed { .. })
    }
}

/// An Event to record about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub about: Reference,
    pub warning: bool,
    pub reason: CompactString,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    pub kind: Kind,
    pub namespace: CompactString,
    pub name: CompactString,
    pub uid: CompactString,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_is_noticed_however_long_ago_it_was_looked_at() {
        let mut watch = ClockWatch::default();
        let (noon, hour) = (Timestamp::from_seconds(1_700_000_000), Span::from_seconds(3_600));
        let seconds = Duration::from_secs;
        assert_eq!(watch.set_back(noon, seconds(5)), None);
        assert_eq!(watch.set_back(noon + hour, seconds(6)), None, "it may be ahead now");
        assert_eq!(watch.set_back(noon + Span::from_seconds(100), seconds(105)), Some(Span::from_seconds(3_599)));
        assert_eq!(watch.set_back(noon + Span::from_seconds(101), seconds(107)), None, "a second is not noticed");
        assert_eq!(watch.set_back(noon + Span::from_seconds(98), seconds(107)), Some(Span::from_seconds(3)));
    }
}
