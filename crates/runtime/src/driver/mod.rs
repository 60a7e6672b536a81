//! The one driver that connects controllers to an API: streams in, requests out. It knows nothing about Jobs.
//!
//! Each controller is a separate task with its own streams; they share the API, the limits and the recorder of Events.

pub mod api;
pub mod events;
mod follow;
pub mod limit;
mod observer;
pub mod reflector;
pub mod requests;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod times;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::FutureExt;
use futures_util::stream::{BoxStream, FuturesUnordered, SelectAll, StreamExt};
use tally_core::time::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::controller::{ClockWatch, Controller, Input, Metric, Outbox, Request, RequestId};
use api::{Api, Response};
use events::Mailbox;
use follow::follow;
use limit::Limit;
use requests::Requests;
use times::{CompletedSync, RequestTimes};

pub use events::Correlator;
pub use observer::{NoopObserver, Observer, QueueChange};

/// The number of inputs processed before the resulting requests are sent: a burst is processed as a whole.
const BATCH: usize = 128;

/// How many requests in a row may be answered at once, as those to a store in memory are. Then other input has its turn.
const ANSWERED_AT_ONCE: usize = 16;

/// The maximum time between two checks of a timer: a jump of the wall clock is noticed this late.
const LONGEST_SLEEP: Duration = Duration::from_secs(10);

/// The shutdown grace: how long requests in flight may take to end once the driver is stopped. Then they are abandoned:
/// their effects show after the next start.
const LAST_ORDERS: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// The maximum number of requests in flight, per controller.
    pub in_flight: usize,
    /// Requests per second, for all controllers together; 0: as many as the server accepts.
    pub qps: f64,
    /// The number of requests that may be sent at once before `qps` takes effect.
    pub burst: u32,
    /// Whether Events are written. Not where no client can read them.
    pub events: bool,
}

impl Default for DriverOptions {
    fn default() -> Self {
        Self { in_flight: 64, qps: 0.0, burst: 0, events: true }
    }
}

/// Runs controllers until `stop` is ready, then drains or abandons the requests in flight. If one of the controllers
/// panics, the others are stopped too, and the panic is resumed here: a cluster without one of its controllers does not
/// work.
pub async fn run<A: Api>(
    api: Arc<A>,
    controllers: Vec<Box<dyn Controller>>,
    options: DriverOptions,
    observer: Arc<dyn Observer>,
    stop: impl Future<Output = ()> + Send,
) {
    let limit = Limit::new(options.qps, options.burst);
    let caller = Arc::new(Caller { api, limit, observer, began: tokio::time::Instant::now() });
    let (stopping, stopped) = watch::channel(false);
    let (last_stopping, last_stopped) = watch::channel(false);
    let recorder = events::Recorder::new(fastrand::u32(..));
    let mailbox = options.events.then(|| recorder.mailbox());
    let recording = Task::new(caller.clone(), Box::new(recorder), events::IN_FLIGHT, None);
    let recording = tokio::spawn(recording.run(last_stopped, true));
    let mut tasks = JoinSet::new();
    for controller in controllers {
        let task = Task::new(caller.clone(), controller, options.in_flight, mailbox.clone());
        tasks.spawn(task.run(stopped.clone(), false));
    }
    let broken = tokio::select! {
        () = stop => None,
        // No controller should end before it is stopped.
        Some(ended) = tasks.join_next() => ended.err(),
    };
    let _ = stopping.send(true);
    while tasks.join_next().await.is_some() {}
    let _ = last_stopping.send(true);
    let recorded = recording.await;
    let panicked = broken.or(recorded.err()).and_then(|error| error.try_into_panic().ok());
    if let Some(panic) = panicked {
        std::panic::resume_unwind(panic);
    }
}

pub fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(since.as_millis() as i64)
}

/// Shared by all requests.
struct Caller<A> {
    api: Arc<A>,
    limit: Limit,
    observer: Arc<dyn Observer>,
    began: tokio::time::Instant,
}

impl<A: Api> Caller<A> {
    async fn call(self: Arc<Self>, Request { id, call, .. }: Request) -> (RequestId, Response) {
        let begun = Instant::now();
        let response = self.api.call(&call).await;
        self.observer.request(&call, &response.reply, begun.elapsed());
        (id, response)
    }
}

/// Adds up to a fifth, so that what failed together is not retried together.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(1.0 + fastrand::f64() / 5.0)
}

/// A request in flight.
type Calling = Pin<Box<dyn Future<Output = (RequestId, Response)> + Send>>;

struct Task<A> {
    caller: Arc<Caller<A>>,
    controller: Box<dyn Controller>,
    clock: ClockWatch,
    /// None: no client could read Events.
    mailbox: Option<Mailbox>,
    out: Outbox,
    requests: Requests,
    times: RequestTimes,
    streams: SelectAll<BoxStream<'static, Vec<Input>>>,
    /// Polled by this task: a task for each request would cost more than most requests in the same process do.
    calls: FuturesUnordered<Calling>,
    /// Requests that could be sent are left.
    unsent: bool,
    /// Never notified if the controller receives input only from the API.
    pokes: Arc<Notify>,
}

impl<A: Api> Task<A> {
    fn new(
        caller: Arc<Caller<A>>,
        controller: Box<dyn Controller>,
        in_flight: usize,
        mailbox: Option<Mailbox>,
    ) -> Self {
        let pokes = controller.pokes().unwrap_or_default();
        let (out, requests, calls) = (Outbox::default(), Requests::new(in_flight), FuturesUnordered::new());
        Self {
            caller,
            controller,
            clock: ClockWatch::default(),
            mailbox,
            out,
            requests,
            times: RequestTimes::default(),
            streams: SelectAll::new(),
            calls,
            unsent: false,
            pokes,
        }
    }

    /// `to_the_end`: requests that remain when the task is stopped are still sent.
    async fn run(mut self, mut stopped: watch::Receiver<bool>, to_the_end: bool) {
        for stream in self.controller.streams() {
            self.streams.push(follow(self.caller.clone(), self.controller.name(), stream));
        }
        while self.turn(&mut stopped).await {}
        self.streams.clear();
        let _ = tokio::time::timeout(LAST_ORDERS, self.finish(to_the_end)).await;
    }

    async fn finish(&mut self, to_the_end: bool) {
        if to_the_end {
            self.tell(Input::Tick);
            self.send();
        } else {
            self.requests.close();
        }
        // Those that wait for a token of the limit are queued.
        while self.requests.in_flight() > 0 || self.requests.queued() > 0 {
            let nap = self.until_wake();
            tokio::select! {
                Some(done) = self.calls.next() => self.answered(done),
                () = tokio::task::yield_now(), if self.unsent => {}
                () = tokio::time::sleep(nap) => {}
            }
            if to_the_end {
                self.send();
            } else {
                self.requests.close();
            }
        }
    }

    /// Processes the available input, and sends the resulting requests. Returns whether the driver goes on.
    async fn turn(&mut self, stopped: &mut watch::Receiver<bool>) -> bool {
        let nap = self.until_wake();
        let pokes = self.pokes.clone();
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return false,
            // Responses first: new decisions should take them into account, and they make room for requests.
            Some(done) = self.calls.next() => self.answered(done),
            () = pokes.notified() => {
                self.tell(Input::Tick);
                // Notifications may arrive without end, and the input behind them would never be processed.
                if let Some(Some(inputs)) = self.streams.next().now_or_never() {
                    self.tell_all(inputs);
                }
            }
            Some(inputs) = self.streams.next() => self.tell_all(inputs),
            () = tokio::task::yield_now(), if self.unsent => {}
            () = tokio::time::sleep(nap) => self.tell(Input::Tick),
        }
        while let Some(Some(done)) = self.calls.next().now_or_never() {
            self.answered(done);
        }
        // On a busy cluster there is always input. A timer that is due must not wait until there is none.
        if self.until_wake().is_zero() {
            self.tell(Input::Tick);
        }
        self.send();
        true
    }

    fn until_wake(&self) -> Duration {
        let tick = self.out.wake_at.map(|at| Duration::from_millis((at - wall_clock()).millis().max(0) as u64));
        let resend = self.requests.wake_at().map(|at| at.saturating_sub(self.caller.began.elapsed()));
        tick.into_iter().chain(resend).min().unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP)
    }

    fn answered(&mut self, (request, response): (RequestId, Response)) {
        let now = self.caller.began.elapsed();
        let (name, observer) = (self.controller.name(), &self.caller.observer);
        let Some(input) = self.requests.answered(request, response, now, fastrand::f64()) else {
            return observer.queue(name, QueueChange::Retried);
        };
        if let Some((took, complete)) = self.times.answered(request, now) {
            observer.queue(name, QueueChange::Answered { took });
            self.synced(complete);
        }
        self.tell(input);
    }

    fn tell(&mut self, input: Input) {
        self.tell_all([input]);
    }

    /// Passes on input that arrived together, with one time for all of it. Most input leads to no request and no metric: the clock is
    /// read again only after input that does.
    fn tell_all(&mut self, inputs: impl IntoIterator<Item = Input>) {
        let mut begun_at = self.caller.began.elapsed();
        let now = wall_clock();
        if let Some(by) = self.clock.set_back(now, begun_at) {
            self.controller.handle(Input::ClockSetBack(by), now, &mut self.out);
        }
        for input in inputs {
            self.controller.handle(input, now, &mut self.out);
            if !self.out.metrics.is_empty() || !self.out.requests.is_empty() {
                begun_at = self.decided(begun_at);
            }
            if !self.out.events.is_empty() {
                self.record();
            }
        }
    }

    /// Queues the requests and counts the metrics of the input since `begun_at`. Returns the time, at which the next input begins.
    fn decided(&mut self, begun_at: Duration) -> Duration {
        let (name, observer) = (self.controller.name(), &self.caller.observer);
        let decided_at = self.caller.began.elapsed();
        let (syncs, others): (Vec<_>, Vec<_>) =
            self.out.metrics.drain(..).partition(|metric| matches!(metric, Metric::Sync { .. }));
        for metric in &others {
            observer.metric(name, metric, decided_at.saturating_sub(begun_at));
        }
        if !self.out.requests.is_empty() || !syncs.is_empty() {
            let requests = self.out.requests.iter().map(|request| request.id);
            observer.queue(name, QueueChange::Added(requests.len()));
            let complete = self.times.decided(requests, syncs, begun_at, decided_at);
            self.synced(complete);
        }
        self.requests.extend(self.out.requests.drain(..));
        decided_at
    }

    fn record(&mut self) {
        let name = self.controller.name();
        for event in self.out.events.drain(..) {
            if self.mailbox.as_ref().is_some_and(|mailbox| !mailbox.post(name, event)) {
                self.caller.observer.event_dropped(name);
            }
        }
    }

    fn synced(&self, complete: Option<CompletedSync>) {
        let Some(CompletedSync { metrics, took }) = complete else { return };
        for metric in &metrics {
            self.caller.observer.metric(self.controller.name(), metric, took);
        }
    }

    fn send(&mut self) {
        let caller = self.caller.clone();
        let mut answered = 0;
        self.unsent = false;
        while let Some(request) = self.requests.next(&caller.limit, caller.began.elapsed()) {
            if let Some(waited) = self.times.sent(request.id, caller.began.elapsed()) {
                caller.observer.queue(self.controller.name(), QueueChange::Sent { waited });
            }
            let mut call: Calling = Box::pin(caller.clone().call(request));
            match call.as_mut().now_or_never() {
                Some(done) => {
                    self.answered(done);
                    answered += 1;
                }
                None => self.calls.push(call),
            }
            if answered == ANSWERED_AT_ONCE {
                self.unsent = true;
                break;
            }
        }
        caller.observer.load(self.controller.name(), self.requests.queued(), self.requests.in_flight());
        caller.observer.rate_limit(caller.limit.use_at(caller.began.elapsed()));
    }
}
