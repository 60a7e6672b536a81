//! The driver with a scripted API.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tally_core::ids::Revision;
use tally_core::time::Timestamp;
use tokio::sync::oneshot;

use super::api::{Api, Events, Response, Start, StreamEvent, WatchError};
use super::*;
use crate::controller::{
    Call, Controller, Event, Input, Kind, Outbox, Reference, Refusal, Reply, Request, RequestId, Stream, Verb,
};

/// Streams are played from `streams` in order; when there are no more, the next one stays silent forever.
#[derive(Default)]
struct Script {
    streams: Mutex<VecDeque<Result<Vec<StreamEvent>, WatchError>>>,
    starts: Mutex<Vec<Start>>,
    replies: Mutex<VecDeque<Response>>,
    calls: Mutex<Vec<Call>>,
    /// How long a response takes.
    takes: Duration,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
}

struct Played(Option<VecDeque<StreamEvent>>);

impl Api for Script {
    type Events = Played;

    async fn call(&self, call: &Call) -> Response {
        self.calls.lock().unwrap().push(call.clone());
        let under_way = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_under_way.fetch_max(under_way, Ordering::SeqCst);
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        let done = Response { reply: Reply::DoneWithStatus, served_at: None, retry_after: None };
        self.replies.lock().unwrap().pop_front().unwrap_or(done)
    }

    async fn follow(&self, _: Stream, from: Start) -> Result<Played, WatchError> {
        self.starts.lock().unwrap().push(from);
        match self.streams.lock().unwrap().pop_front() {
            Some(Ok(heard)) => Ok(Played(Some(heard.into()))),
            Some(Err(trouble)) => Err(trouble),
            None => Ok(Played(None)),
        }
    }
}

impl Events for Played {
    async fn next(&mut self) -> Option<StreamEvent> {
        match &mut self.0 {
            Some(heard) => heard.pop_front(),
            None => std::future::pending().await,
        }
    }

    fn received(&mut self) -> Option<StreamEvent> {
        self.0.as_mut()?.pop_front()
    }
}

/// Records its inputs, and sends the requests `asks` at the first one.
struct Scribe {
    told: Arc<Mutex<Vec<String>>>,
    asks: Vec<Call>,
}

impl Controller for Scribe {
    fn name(&self) -> &'static str {
        "scribe"
    }

    fn streams(&self) -> Vec<Stream> {
        vec![Stream::of(Kind::JOB)]
    }

    fn handle(&mut self, input: Input, _: Timestamp, out: &mut Outbox) {
        let name = |bytes: &[u8]| {
            let object: serde_json::Value = serde_json::from_slice(bytes).unwrap();
            object["metadata"]["name"].as_str().unwrap().to_owned()
        };
        let line = match input {
            Input::Init(_) => "listing".to_owned(),
            Input::Apply(_, object) => name(&object),
            Input::Delete(_, object) => format!("-{}", name(&object)),
            Input::InitDone(_, at) => format!("listed {}", at.0),
            Input::Bookmark(_, at) => format!("reached {}", at.0),
            Input::Response { reply, .. } => match reply {
                Reply::Refused(refusal) => format!("refused {}", refusal.code),
                Reply::Unknown => "unknown".to_owned(),
                _ => "done".to_owned(),
            },
            Input::Tick | Input::ClockSetBack(_) => return,
        };
        self.told.lock().unwrap().push(line);
        let asks = self.asks.drain(..).enumerate();
        out.requests.extend(asks.map(|(number, call)| Request { id: RequestId(number as u64), call, about: 0 }));
    }
}

fn object(name: &str, revision: u64) -> StreamEvent {
    StreamEvent::Object(text(name, revision).into())
}

fn text(name: &str, revision: u64) -> Bytes {
    json!({"metadata": {"name": name, "resourceVersion": revision.to_string()}}).to_string().into()
}

fn complete(at: u64) -> StreamEvent {
    StreamEvent::Reached { at: Revision(at), complete: true }
}

fn bookmark(at: u64) -> StreamEvent {
    StreamEvent::Reached { at: Revision(at), complete: false }
}

fn state(not_older_than: u64) -> Start {
    Start::State { not_older_than: Revision(not_older_than) }
}

fn changes(after: u64) -> Start {
    Start::Changes { after: Revision(after) }
}

/// Runs until this many lines are recorded, then stops. With a paused clock, waiting takes no time.
async fn told(script: &Arc<Script>, asks: Vec<Call>, options: DriverOptions, lines: usize) -> Vec<String> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async {
        let _ = stopped.await;
    };
    let scribe = Box::new(Scribe { told: told.clone(), asks });
    let running = tokio::spawn(run(script.clone(), vec![scribe], options, Arc::new(NoopObserver), stopped));
    let enough = async {
        while told.lock().unwrap().len() < lines {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(600), enough).await.is_ok(), "told {:?}", told.lock().unwrap());
    stop.send(()).unwrap();
    running.await.unwrap();
    let told = told.lock().unwrap();
    told.clone()
}

fn script(streams: Vec<Result<Vec<StreamEvent>, WatchError>>) -> Arc<Script> {
    Arc::new(Script { streams: Mutex::new(streams.into()), ..Script::default() })
}

async fn check(streams: Vec<Result<Vec<StreamEvent>, WatchError>>, expected: &[&str], starts: &[Start]) {
    let script = script(streams);
    assert_eq!(told(&script, Vec::new(), DriverOptions::default(), expected.len()).await, expected);
    let began = script.starts.lock().unwrap();
    assert_eq!(&began[..starts.len()], starts);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_goes_on_where_it_was() {
    check(
        vec![
            Ok(vec![object("a", 90), complete(100), object("b", 101)]),
            Ok(vec![StreamEvent::Gone(text("b", 102).into())]),
            Ok(vec![bookmark(110)]),
        ],
        &["listing", "a", "listed 100", "b", "-b", "reached 110"],
        &[state(0), changes(101), changes(102)],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_breaks_is_tried_again() {
    let broken = || WatchError::Broken("reset".to_owned());
    let refused = || WatchError::Refused(Refusal { code: 500, ..Refusal::default() });
    check(
        vec![
            Err(broken()),
            Err(refused()),
            Ok(vec![complete(5), object("a", 6), StreamEvent::Failed(broken())]),
            Ok(vec![object("b", 7)]),
        ],
        &["listing", "listed 5", "a", "b"],
        &[state(0), state(0), state(0), changes(6)],
    )
    .await;
}

/// A list that broke off shows nothing about what is gone: only the next one does.
#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_begins_anew() {
    check(
        vec![Ok(vec![object("a", 3)]), Ok(vec![object("a", 3), object("b", 4), complete(9)])],
        &["listing", "a", "listing", "a", "b", "listed 9"],
        &[state(0), state(0)],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_a_server_forgot_is_listed_again_but_never_an_older_state() {
    check(
        vec![
            Ok(vec![complete(50), object("a", 60)]),
            Err(WatchError::TooOld),
            Ok(vec![complete(55)]),
            Ok(vec![object("b", 40), complete(61)]),
        ],
        &["listing", "listed 50", "a", "listing", "listing", "b", "listed 61"],
        &[state(0), changes(60), state(60), state(60)],
    )
    .await;
}

/// As behind a proxy that closes a watch after its first bookmark, or a list before its end.
#[tokio::test(start_paused = true)]
async fn a_stream_that_always_ends_soon_is_not_reopened_without_a_pause() {
    for (first, rest) in [(complete(1), bookmark(2)), (object("a", 1), object("a", 1))] {
        let streams = std::iter::once(first).chain(std::iter::repeat_n(rest, 500));
        let script = script(streams.map(|event| Ok(vec![event])).collect());
        let scribe = Box::new(Scribe { told: Arc::default(), asks: Vec::new() });
        let a_minute = tokio::time::sleep(Duration::from_secs(60));
        run(script.clone(), vec![scribe], DriverOptions::default(), Arc::new(NoopObserver), a_minute).await;
        let opened = script.starts.lock().unwrap().len();
        // 50 ms, 100 ms ... 25.6 s: the pauses of the first eleven take longer than a minute, without jitter.
        assert!((5..20).contains(&opened), "opened {opened} times in a minute");
    }
}

fn pod(name: &str) -> Call {
    Call::new(Verb::Get, Kind::POD, "ns", name)
}

fn refusal(code: u16, seconds: Option<u64>) -> Response {
    let reply = Reply::Refused(Refusal { code, ..Refusal::default() });
    Response { reply, served_at: None, retry_after: seconds.map(Duration::from_secs) }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_when_is_asked_again_then() {
    let unknown = Response { reply: Reply::Unknown, served_at: None, retry_after: Some(Duration::from_secs(1)) };
    for (replies, expected, calls) in [
        (vec![refusal(429, Some(2)), refusal(503, Some(1))], "done", 3),
        (vec![refusal(429, None)], "refused 429", 1),
        (vec![refusal(409, Some(1))], "refused 409", 1),
        // The request may have been applied: the controller must find out.
        (vec![unknown], "unknown", 1),
        (vec![refusal(429, Some(1)); 20], "refused 429", 1 + requests::RETRIES as usize),
    ] {
        let script = script(vec![Ok(vec![complete(1)])]);
        *script.replies.lock().unwrap() = replies.into();
        let began = tokio::time::Instant::now();
        let told = told(&script, vec![pod("p")], DriverOptions::default(), 3).await;
        assert!(told.iter().any(|line| line == expected), "{told:?}");
        assert_eq!(script.calls.lock().unwrap().len(), calls, "{expected}");
        if expected == "done" {
            assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_are_under_way_than_allowed_and_all_are_answered() {
    let script = Arc::new(Script {
        streams: Mutex::new(vec![Ok(vec![complete(1)])].into()),
        takes: Duration::from_millis(50),
        ..Script::default()
    });
    let asks: Vec<Call> = (0..100).map(|number| pod(&format!("p{number}"))).collect();
    let options = DriverOptions { in_flight: 7, ..DriverOptions::default() };
    let told = told(&script, asks, options, 102).await;
    assert_eq!(told.iter().filter(|line| *line == "done").count(), 100);
    assert_eq!(script.most_under_way.load(Ordering::SeqCst), 7);
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_when_it_stops_is_finished() {
    let script = Arc::new(Script {
        streams: Mutex::new(vec![Ok(vec![complete(1)])].into()),
        takes: Duration::from_secs(3),
        ..Script::default()
    });
    let options = DriverOptions { in_flight: 2, ..DriverOptions::default() };
    told(&script, (0..5).map(|number| pod(&format!("p{number}"))).collect(), options, 2).await;
    assert_eq!(script.calls.lock().unwrap().len(), 2, "what had not begun is left");
    assert_eq!(script.under_way.load(Ordering::SeqCst), 0, "what had begun has ended");
}

/// Requests to be woken at once after every input other than a tick.
struct Sleeper(Arc<Mutex<Vec<&'static str>>>);

impl Controller for Sleeper {
    fn name(&self) -> &'static str {
        "sleeper"
    }

    fn streams(&self) -> Vec<Stream> {
        Vec::new()
    }

    fn handle(&mut self, input: Input, _: Timestamp, out: &mut Outbox) {
        let ticks = matches!(input, Input::Tick);
        self.0.lock().unwrap().push(if ticks { "tick" } else { "news" });
        out.wake_at = (!ticks).then(Timestamp::default);
    }
}

/// A task with more pending input than a few turns process.
fn flooded(told: &Arc<Mutex<Vec<&'static str>>>) -> Task<Script> {
    let limit = Limit::new(0.0, 0);
    let caller = Arc::new(Caller {
        api: script(Vec::new()),
        limit,
        observer: Arc::new(NoopObserver),
        began: tokio::time::Instant::now(),
    });
    let mut task = Task::new(caller, Box::new(Sleeper(told.clone())), 1, Some(Mailbox::default()));
    let batch = || (0..BATCH as u64).map(|at| Input::Bookmark(Kind::POD, Revision(at))).collect();
    task.streams.push(futures_util::stream::repeat_with(batch).boxed());
    task
}

#[tokio::test]
async fn a_timer_has_its_turn_while_news_never_stop() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut task = flooded(&told);
    let (_stopping, mut stopped) = watch::channel(false);
    for _ in 0..2 {
        assert!(task.turn(&mut stopped).await);
    }
    let told = told.lock().unwrap();
    assert_eq!(told.iter().filter(|line| **line == "news").count(), 2 * BATCH, "there is more");
    assert_eq!(told.iter().filter(|line| **line == "tick").count(), 2);
}

#[tokio::test]
async fn pokes_and_news_that_never_stop_take_turns() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut task = flooded(&told);
    let (_stopping, mut stopped) = watch::channel(false);
    for _ in 0..2 {
        task.pokes.notify_one();
        assert!(task.turn(&mut stopped).await);
    }
    let told = told.lock().unwrap();
    assert_eq!(told.first(), Some(&"tick"), "a poke is heard before the news that wait");
    assert_eq!(told.iter().filter(|line| **line == "news").count(), 2 * BATCH);
}

/// Requests 100 Pods at the first input, and notes what comes.
struct Greedy(Arc<Mutex<Vec<&'static str>>>);

impl Controller for Greedy {
    fn name(&self) -> &'static str {
        "greedy"
    }

    fn streams(&self) -> Vec<Stream> {
        Vec::new()
    }

    fn handle(&mut self, input: Input, _: Timestamp, out: &mut Outbox) {
        let mut told = self.0.lock().unwrap();
        if told.is_empty() {
            let request = |id| Request { id: RequestId(id), call: pod("p"), about: 0 };
            out.requests.extend((0..100).map(request));
        }
        told.push(if matches!(input, Input::Response { .. }) { "answer" } else { "news" });
    }
}

#[tokio::test]
async fn requests_that_are_answered_at_once_and_other_input_take_turns() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut task = flooded(&Arc::default());
    task.controller = Box::new(Greedy(told.clone()));
    let (_stopping, mut stopped) = watch::channel(false);
    for _ in 0..3 {
        assert!(task.turn(&mut stopped).await);
    }
    let answers = |told: &[&str]| told.iter().filter(|line| **line == "answer").count();
    assert_eq!(answers(&told.lock().unwrap()), 3 * ANSWERED_AT_ONCE);
    assert_eq!(told.lock().unwrap().len(), 3 * (BATCH + ANSWERED_AT_ONCE));
    // Without other input they go on by themselves.
    task.streams.clear();
    while answers(&told.lock().unwrap()) < 100 {
        assert!(task.turn(&mut stopped).await);
    }
    assert_eq!(told.lock().unwrap().len(), 3 * BATCH + 100);
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_breaks_stops_the_others_and_is_heard_of() {
    let broken = StreamEvent::Object("no object".into());
    let script = script(vec![Ok(vec![broken])]);
    let scribe = || Box::new(Scribe { told: Arc::default(), asks: Vec::new() }) as Box<dyn Controller>;
    let forever = std::future::pending();
    let driver = run(script, vec![scribe(), scribe()], DriverOptions::default(), Arc::new(NoopObserver), forever);
    let ended = tokio::time::timeout(Duration::from_secs(60), tokio::spawn(driver)).await.unwrap();
    assert!(ended.unwrap_err().is_panic());
}

/// Records an Event for every input.
struct Crier;

impl Controller for Crier {
    fn name(&self) -> &'static str {
        "crier"
    }

    fn streams(&self) -> Vec<Stream> {
        vec![Stream::of(Kind::JOB)]
    }

    fn handle(&mut self, _: Input, _: Timestamp, out: &mut Outbox) {
        let about = Reference { kind: Kind::JOB, namespace: "ns".into(), name: "job".into(), uid: "u".into() };
        let event = Event { about, warning: false, reason: "R".into(), message: "m".into() };
        out.events.push(event);
    }
}

#[tokio::test(start_paused = true)]
async fn events_are_recorded_unless_the_driver_says_otherwise() {
    for events in [true, false] {
        let script = script(vec![Ok(vec![complete(1)])]);
        let options = DriverOptions { events, ..DriverOptions::default() };
        let a_while = tokio::time::sleep(Duration::from_secs(1));
        run(script.clone(), vec![Box::new(Crier)], options, Arc::new(NoopObserver), a_while).await;
        assert_eq!(!script.calls.lock().unwrap().is_empty(), events);
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_events_wait_for_their_tokens() {
    let script = script(vec![Ok(vec![complete(1)])]);
    let options = DriverOptions { qps: 1.0, burst: 1, ..DriverOptions::default() };
    let soon = tokio::time::sleep(Duration::from_millis(10));
    run(script.clone(), vec![Box::new(Crier)], options, Arc::new(NoopObserver), soon).await;
    assert_eq!(script.calls.lock().unwrap().len(), 2, "the Event, and that it was repeated");
}
