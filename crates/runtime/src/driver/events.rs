//! Events as users see them: repeated ones become a count, many similar ones become one line, and no object can flood
//! the server. Delivery is best effort: a recorder that cannot keep up drops Events, and the drops are counted.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use compact_str::CompactString;
use serde_json::json;
use tally_core::time::{Span, Timestamp};
use tokio::sync::Notify;

use crate::cache::RequestsInFlight;
use crate::controller::{Call, Controller, Event, Input, Kind, Outbox, Reference, Stream, Verb};

/// The maximum number of Events waiting to be sent.
const WAITING: usize = 1024;

/// The maximum number of Events in flight: they must not displace the work that they report.
pub const IN_FLIGHT: usize = 4;

/// An object may have this many Events with the same reason at once, and then one every five minutes. For each reason:
/// a Job that reported many Pods must still be able to report how it ended.
const BURST: f64 = 25.0;
const REFILL_MILLIS: f64 = 300_000.0;

/// The recorder writes this many Events about Pods without trouble at once, and then one after each of these intervals. Each
/// costs a write, of thousands of them users read the first ones, and the status of the Pod says the same.
const POD_BURST: f64 = 200.0;
const POD_REFILL_MILLIS: f64 = 50.0;

/// This many Events with the same reason, but different messages, within ten minutes are combined into one.
const SIMILAR: usize = 10;
const SIMILAR_WITHIN: Span = Span::from_seconds(600);

/// The maximum number of objects and Events that are remembered. Forgotten ones are reported as new.
const REMEMBERED: usize = 4096;

#[derive(Clone, PartialEq, Eq, Hash)]
struct Group {
    controller: &'static str,
    about: Reference,
    warning: bool,
    reason: CompactString,
}

/// Decides what happens to an Event. Pure.
pub struct Correlator {
    /// For all Pods together, since the first Event about one.
    pods: Option<Bucket>,
    buckets: Bounded<Group, Bucket>,
    groups: Bounded<Group, Similar>,
    told: Bounded<(Group, Line), RecordedEvent>,
    /// Part of the names of Events, so that two processes choose different ones.
    instance: u32,
    created: u64,
}

struct Bucket {
    tokens: f64,
    at: Timestamp,
}

impl Bucket {
    fn take(&mut self, burst: f64, refill_millis: f64, now: Timestamp) -> bool {
        let since = (now - self.at).millis().max(0) as f64;
        self.tokens = (self.tokens + since / refill_millis).min(burst);
        self.at = now;
        let may = self.tokens >= 1.0;
        if may {
            self.tokens -= 1.0;
        }
        may
    }
}

struct Similar {
    messages: Vec<String>,
    since: Timestamp,
}

struct RecordedEvent {
    name: String,
    count: u32,
}

/// Which Events of a group are counted together.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Line {
    Message(String),
    /// All Events that are too many to be reported one by one.
    Combined,
}

impl Correlator {
    pub fn new(instance: u32) -> Self {
        Self {
            pods: None,
            buckets: Bounded::default(),
            groups: Bounded::default(),
            told: Bounded::default(),
            instance,
            created: 0,
        }
    }

    /// The request that records the Event; None: the Event exceeds the limit.
    pub fn correlate(&mut self, controller: &'static str, event: &Event, now: Timestamp) -> Option<Call> {
        if event.about.kind == Kind::POD && !event.warning {
            let pods = self.pods.get_or_insert(Bucket { tokens: POD_BURST, at: now });
            if !pods.take(POD_BURST, POD_REFILL_MILLIS, now) {
                return None;
            }
        }
        let group = Group::of(controller, event);
        let bucket = self.buckets.entry(group.clone(), || Bucket { tokens: BURST, at: now });
        if !bucket.take(BURST, REFILL_MILLIS, now) {
            return None;
        }
        let line = self.line(&group, &event.message, now);
        if let Some(told) = self.told.get(&(group.clone(), line.clone())) {
            told.count += 1;
            let message = shown(&line, &event.message);
            let patch = json!({"count": told.count, "lastTimestamp": now.to_string(), "message": message});
            let call = Call::new(Verb::MergePatch, Kind::EVENT, namespace(&event.about), &told.name);
            return Some(call.body(&patch));
        }
        Some(self.create(group, line, &event.message, now))
    }

    /// The Event whose count was to be increased is gone, because Events expire: it is created again.
    pub fn tell_anew(&mut self, controller: &'static str, event: &Event, now: Timestamp) -> Call {
        let group = Group::of(controller, event);
        let line = self.line(&group, &event.message, now);
        self.create(group, line, &event.message, now)
    }

    fn create(&mut self, group: Group, line: Line, message: &str, now: Timestamp) -> Call {
        self.created += 1;
        let about = &group.about;
        let name = format!("{}.{:08x}{:08x}", about.name, self.instance, self.created);
        let body = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": namespace(about)},
            "involvedObject": {
                "apiVersion": about.kind.api_version(), "kind": about.kind.kind, "namespace": about.namespace.as_str(),
                "name": about.name.as_str(), "uid": about.uid.as_str(),
            },
            "type": if group.warning { "Warning" } else { "Normal" },
            "reason": group.reason.as_str(), "message": shown(&line, message),
            "source": {"component": group.controller}, "reportingComponent": group.controller, "reportingInstance": "",
            "firstTimestamp": now.to_string(), "lastTimestamp": now.to_string(), "count": 1,
        });
        let call = Call::new(Verb::Create, Kind::EVENT, namespace(about), "").body(&body);
        self.told.insert((group, line), RecordedEvent { name, count: 1 });
        call
    }

    fn line(&mut self, group: &Group, message: &str, now: Timestamp) -> Line {
        let similar = self.groups.entry(group.clone(), || Similar { messages: Vec::new(), since: now });
        if now - similar.since > SIMILAR_WITHIN {
            *similar = Similar { messages: Vec::new(), since: now };
        }
        if !similar.messages.iter().any(|told| told == message) {
            if similar.messages.len() >= SIMILAR {
                return Line::Combined;
            }
            similar.messages.push(message.to_owned());
        }
        Line::Message(message.to_owned())
    }
}

impl Group {
    fn of(controller: &'static str, event: &Event) -> Self {
        let Event { about, warning, reason, .. } = event;
        Self { controller, about: about.clone(), warning: *warning, reason: reason.clone() }
    }
}

fn shown(line: &Line, message: &str) -> String {
    match line {
        Line::Message(message) => message.clone(),
        Line::Combined => format!("(combined from similar events): {message}"),
    }
}

fn namespace(about: &Reference) -> &str {
    // Events about objects without a namespace are stored in this namespace.
    if about.namespace.is_empty() { "default" } else { &about.namespace }
}

/// A map that forgets its oldest entries.
struct Bounded<K, V> {
    map: HashMap<K, V, foldhash::fast::FixedState>,
    order: VecDeque<K>,
}

impl<K, V> Default for Bounded<K, V> {
    fn default() -> Self {
        Self { map: HashMap::default(), order: VecDeque::new() }
    }
}

impl<K: Clone + Eq + Hash, V> Bounded<K, V> {
    fn get(&mut self, key: &K) -> Option<&mut V> {
        self.map.get_mut(key)
    }

    fn insert(&mut self, key: K, value: V) {
        if self.map.insert(key.clone(), value).is_none() {
            self.make_room();
            self.order.push_back(key);
        }
    }

    fn entry(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        if !self.map.contains_key(&key) {
            self.make_room();
            self.order.push_back(key.clone());
        }
        self.map.entry(key).or_insert_with(make)
    }

    fn make_room(&mut self) {
        while self.order.len() >= REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.map.remove(&oldest);
        }
    }
}

// ---- sending ----

/// Where controllers put their Events until the recorder takes them.
#[derive(Clone, Default)]
pub struct Mailbox {
    waiting: Arc<Mutex<VecDeque<(&'static str, Event)>>>,
    posted: Arc<Notify>,
}

impl Mailbox {
    /// False: too many are waiting, and this one is dropped.
    pub fn post(&self, controller: &'static str, event: Event) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= WAITING {
            return false;
        }
        waiting.push_back((controller, event));
        self.posted.notify_one();
        true
    }

    fn take(&self) -> Option<(&'static str, Event)> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// Writes Events. A controller like the others, except that it follows no stream.
pub struct Recorder {
    mailbox: Mailbox,
    correlator: Correlator,
    creating: usize,
    /// A count to write once the creations in flight have ended: one of them may be for the Event that it counts.
    count: Option<(Call, Telling)>,
    counting: bool,
    asked: RequestsInFlight<Option<Telling>>,
}

/// The Event that a count is about.
struct Telling {
    controller: &'static str,
    event: Event,
}

impl Recorder {
    /// `instance` is part of the names of Events, so that two processes choose different ones.
    pub fn new(instance: u32) -> Self {
        Self {
            mailbox: Mailbox::default(),
            correlator: Correlator::new(instance),
            creating: 0,
            count: None,
            counting: false,
            asked: RequestsInFlight::default(),
        }
    }

    pub fn mailbox(&self) -> Mailbox {
        self.mailbox.clone()
    }

    fn create(&mut self, call: Call, out: &mut Outbox) {
        self.creating += 1;
        self.asked.ask(None, call, out);
    }

    fn send(&mut self, now: Timestamp, out: &mut Outbox) {
        while !self.counting {
            if let Some((call, telling)) = self.count.take() {
                if self.creating > 0 {
                    self.count = Some((call, telling));
                    return;
                }
                self.counting = true;
                self.asked.ask(Some(telling), call, out);
            } else if self.creating < IN_FLIGHT
                && let Some((controller, event)) = self.mailbox.take()
            {
                match self.correlator.correlate(controller, &event, now) {
                    Some(call) if call.verb == Verb::Create => self.create(call, out),
                    Some(call) => self.count = Some((call, Telling { controller, event })),
                    None => {}
                }
            } else {
                return;
            }
        }
    }
}

impl Controller for Recorder {
    fn name(&self) -> &'static str {
        "event-recorder"
    }

    fn streams(&self) -> Vec<Stream> {
        Vec::new()
    }

    fn handle(&mut self, input: Input, now: Timestamp, out: &mut Outbox) {
        if let Input::Response { request, reply, .. } = input {
            match self.asked.answered(request) {
                Some(None) => self.creating -= 1,
                Some(Some(Telling { controller, event })) => {
                    self.counting = false;
                    if reply.is_not_found() {
                        let call = self.correlator.tell_anew(controller, &event, now);
                        self.create(call, out);
                    }
                }
                None => {}
            }
        }
        self.send(now, out);
    }

    fn pokes(&self) -> Option<Arc<Notify>> {
        Some(self.mailbox.posted.clone())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::controller::Reply;
    use crate::testing::{Probe, done, refused};

    fn event(name: &str, reason: &str, message: &str) -> Event {
        let about =
            Reference { kind: Kind::JOB, namespace: "ns".into(), name: name.into(), uid: format!("uid-{name}").into() };
        Event { about, warning: false, reason: reason.into(), message: message.to_owned() }
    }

    fn told(call: Option<Call>) -> Option<(Verb, String, u64)> {
        let call = call?;
        let body: Value = serde_json::from_slice(&call.body.text()).unwrap();
        Some((call.verb, body["message"].as_str().unwrap().to_owned(), body["count"].as_u64().unwrap()))
    }

    /// API-23.
    #[test]
    fn what_is_said_twice_is_counted() {
        let mut correlator = Correlator::new(7);
        let now = Timestamp::from_seconds(1_700_000_000);
        let mut say = |message| correlator.correlate("job-controller", &event("a", "R", message), now);
        let first = say("m").unwrap();
        assert_eq!(first.verb, Verb::Create);
        let body: Value = serde_json::from_slice(&first.body.text()).unwrap();
        assert_eq!(body["source"], json!({"component": "job-controller"}));
        assert_eq!(body["involvedObject"]["uid"], "uid-a");
        let again = say("m").unwrap();
        assert_eq!(again.name, body["metadata"]["name"].as_str().unwrap());
        assert_eq!(told(Some(again)), Some((Verb::MergePatch, "m".to_owned(), 2)));
        assert_eq!(told(say("other")), Some((Verb::Create, "other".to_owned(), 1)));
    }

    #[test]
    fn many_that_differ_only_in_words_become_one_line() {
        let mut correlator = Correlator::new(7);
        let now = Timestamp::from_seconds(1_700_000_000);
        let said: Vec<_> = (0..14)
            .map(|i| told(correlator.correlate("c", &event("a", "R", &format!("m{i}")), now)).unwrap())
            .collect();
        assert!(said[..10].iter().all(|(verb, message, _)| *verb == Verb::Create && message.starts_with('m')));
        assert_eq!(said[10], (Verb::Create, "(combined from similar events): m10".to_owned(), 1));
        assert_eq!(said[13], (Verb::MergePatch, "(combined from similar events): m13".to_owned(), 4));
        let later = now + Span::from_seconds(601);
        let fresh = told(correlator.correlate("c", &event("a", "R", "m99"), later)).unwrap();
        assert_eq!(fresh, (Verb::Create, "m99".to_owned(), 1));
    }

    #[test]
    fn one_object_cannot_flood_the_server_and_silences_neither_others_nor_its_end() {
        let mut correlator = Correlator::new(7);
        let now = Timestamp::from_seconds(1_700_000_000);
        let mut said =
            |name: &str, reason: &str, now| correlator.correlate("c", &event(name, reason, "m"), now).is_some();
        assert_eq!((0..100).filter(|_| said("a", "SuccessfulCreate", now)).count(), BURST as usize);
        assert!(said("b", "SuccessfulCreate", now) && said("a", "Completed", now));
        let mut later = |seconds| said("a", "SuccessfulCreate", now + Span::from_seconds(seconds));
        assert!(!later(299) && later(301));
    }

    /// EVENT-16.
    #[test]
    fn of_thousands_of_pods_without_trouble_the_first_are_told_and_trouble_always() {
        let mut correlator = Correlator::new(7);
        let now = Timestamp::from_seconds(1_700_000_000);
        let mut said = |name: &str, warning, now| {
            let mut event = event(name, "Scheduled", "m");
            (event.about.kind, event.warning) = (Kind::POD, warning);
            correlator.correlate("c", &event, now).is_some()
        };
        assert_eq!((0..1000).filter(|i| said(&format!("p{i}"), false, now)).count(), POD_BURST as usize);
        assert!(said("q", true, now));
        let later = now + Span::from_seconds(1);
        assert_eq!((0..1000).filter(|i| said(&format!("r{i}"), false, later)).count(), 20);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut correlator = Correlator::new(7);
        let now = Timestamp::from_seconds(1_700_000_000);
        for i in 0..3 * REMEMBERED {
            assert!(correlator.correlate("c", &event(&format!("j{i}"), "R", "m"), now).is_some());
        }
        assert_eq!(correlator.told.map.len(), REMEMBERED);
        assert_eq!(correlator.buckets.order.len(), REMEMBERED);
    }

    #[test]
    fn a_count_waits_for_the_creations_before_it_and_an_event_that_has_expired_is_told_anew() {
        let recorder = Recorder::new(7);
        let mailbox = recorder.mailbox();
        let mut probe = Probe::new(recorder);
        for name in ["a", "b", "a", "c"] {
            assert!(mailbox.post("c", event(name, "R", "m")));
        }
        probe.input(Input::Tick);
        assert_eq!(probe.asks(), ["create events ns/", "create events ns/"]);
        probe.answer(1, done(json!({})));
        assert_eq!(probe.asks(), Vec::<String>::new(), "the one it counts up may be the one that is in flight");
        probe.answer(0, Reply::Unknown);
        let counted = probe.asks();
        assert!(counted.len() == 1 && counted[0].starts_with("merge events ns/a."), "{counted:?}");
        probe.answer(0, refused(404, "NotFound"));
        assert_eq!(probe.asks(), ["create events ns/", "create events ns/"], "a anew, then c");
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let recorder = Recorder::new(7);
        let mailbox = recorder.mailbox();
        let posted = (0..2 * WAITING).filter(|i| mailbox.post("c", event(&format!("j{i}"), "R", "m"))).count();
        assert_eq!(posted, WAITING);
        let mut probe = Probe::new(recorder);
        probe.input(Input::Tick);
        assert_eq!(probe.asks().len(), IN_FLIGHT);
    }
}
