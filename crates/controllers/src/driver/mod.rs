//! The one driver that connects controllers to an API: streams in, requests out. It knows nothing of Jobs.
//!
//! Each controller is a task of its own with streams of its own; what they share is the API, the limits and the
//! recorder of events.

pub mod api;
mod events;
mod follow;
mod limit;
mod observer;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tally_core::time::Timestamp;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use crate::controller::{Call, Controller, Input, Outbox, Refusal, Reply, Request, RequestId};
use api::{Api, Response};
use follow::{News, follow};
use limit::Limit;

pub use events::Correlator;
pub use observer::{Observer, Silent};

/// News taken in before the requests they lead to are sent: a burst is answered as a whole.
const BATCH: usize = 256;

/// News waiting to be taken in, per controller. A stream that is faster waits at its source.
const NEWS: usize = 1024;

/// A timer is looked at again at least this often: a wall clock that jumps is noticed this late.
const LONGEST_SLEEP: Duration = Duration::from_secs(10);

/// How long requests under way may take to end once the driver is stopped. Then they are let go: what they did shows
/// after the next start.
const LAST_ORDERS: Duration = Duration::from_secs(5);

/// How often a request is sent again because the server said "not now, but then". After that the controller decides.
const RETRIES: u32 = 5;
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct Options {
    /// Requests under way at once, per controller.
    pub in_flight: usize,
    /// Requests per second, all controllers together; 0: as many as the server takes.
    pub qps: f64,
    /// Requests that may be sent at once before `qps` is felt.
    pub burst: u32,
    /// Events are written. Not where nobody could read them.
    pub events: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { in_flight: 64, qps: 0.0, burst: 0, events: true }
    }
}

/// Runs controllers until `stop` is ready, then finishes or lets go what is under way. Where one of them panics the others
/// are stopped, too, and the panic goes on from here: a cluster without one of its controllers is not at work.
pub async fn run<A: Api>(
    api: Arc<A>,
    controllers: Vec<Box<dyn Controller>>,
    options: Options,
    observer: Arc<dyn Observer>,
    stop: impl Future<Output = ()> + Send,
) {
    let limit = Arc::new(Limit::new(options.qps, options.burst));
    let caller = Arc::new(Caller { api, limit, observer });
    let (stopping, stopped) = watch::channel(false);
    let recorder = events::Recorder::start(caller.clone());
    let mut tasks = JoinSet::new();
    for controller in controllers {
        let task = Task {
            caller: caller.clone(),
            controller,
            in_flight: options.in_flight.max(1),
            recorder: options.events.then(|| recorder.sender()),
            out: Outbox::default(),
            queue: VecDeque::new(),
            calls: JoinSet::new(),
            pokes: Arc::default(),
        };
        tasks.spawn(task.run(stopped.clone()));
    }
    let broken = tokio::select! {
        () = stop => None,
        // None of them should end before it is told to.
        Some(ended) = tasks.join_next() => ended.err(),
    };
    let _ = stopping.send(true);
    while tasks.join_next().await.is_some() {}
    recorder.finish(LAST_ORDERS).await;
    if let Some(panic) = broken.and_then(|error| error.try_into_panic().ok()) {
        std::panic::resume_unwind(panic);
    }
}

pub fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(since.as_millis() as i64)
}

/// What all requests go through.
struct Caller<A> {
    api: Arc<A>,
    limit: Arc<Limit>,
    observer: Arc<dyn Observer>,
}

impl<A: Api> Caller<A> {
    async fn call(&self, call: &Call) -> Response {
        let mut retries = 0;
        loop {
            self.limit.turn().await;
            let begun = Instant::now();
            let response = self.api.call(call).await;
            self.observer.request(call, &response.reply, begun.elapsed());
            // The server has not looked at it: asking again is not doing it twice.
            let again = response.retry_after.filter(|_| {
                retries < RETRIES && matches!(&response.reply, Reply::Refused(Refusal { code: 429 | 503, .. }))
            });
            let Some(wait) = again else { return response };
            retries += 1;
            tokio::time::sleep(jittered(wait.min(LONGEST_RETRY_AFTER))).await;
        }
    }
}

/// Up to a fifth more, so that what failed together does not come again together.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(1.0 + fastrand::f64() / 5.0)
}

struct Task<A> {
    caller: Arc<Caller<A>>,
    controller: Box<dyn Controller>,
    in_flight: usize,
    /// None: nobody would read them.
    recorder: Option<events::Sender>,
    out: Outbox,
    /// Asked for and not sent yet. As long as what the controllers have asked for, which is bounded by their own rules.
    queue: VecDeque<Request>,
    calls: JoinSet<(RequestId, Response)>,
    /// Never notified where the controller hears of nothing but the API.
    pokes: Arc<Notify>,
}

impl<A: Api> Task<A> {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let (told, mut news) = mpsc::channel(NEWS);
        // Dropped at the end of the function, and with it the streams.
        let mut streams = JoinSet::new();
        for stream in self.controller.streams() {
            streams.spawn(follow(self.caller.clone(), self.controller.name(), stream, told.clone()));
        }
        drop(told);
        self.pokes = self.controller.pokes().unwrap_or_default();
        while self.turn(&mut stopped, &mut news).await {}
        let unfinished = async { while self.calls.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_ORDERS, unfinished).await;
    }

    /// Takes in what there is, and sends what it leads to. Returns whether there may be more.
    async fn turn(&mut self, stopped: &mut watch::Receiver<bool>, news: &mut mpsc::Receiver<News>) -> bool {
        let mut batch = Vec::new();
        let nap = self.until_wake();
        let pokes = self.pokes.clone();
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return false,
            // Answers first: they are what new decisions should know of, and they make room.
            Some(done) = self.calls.join_next() => self.answered(done),
            () = pokes.notified() => {
                self.tell(Input::Tick);
                // Pokes may come without end, and news behind them would never have their turn.
                for _ in 0..BATCH {
                    let Ok(item) = news.try_recv() else { break };
                    self.heard(&item);
                }
            }
            received = news.recv_many(&mut batch, BATCH) => {
                if received == 0 {
                    return false;
                }
                for item in batch.drain(..) {
                    self.heard(&item);
                }
            }
            () = tokio::time::sleep(nap) => self.tell(Input::Tick),
        }
        while let Some(done) = self.calls.try_join_next() {
            self.answered(done);
        }
        // On a busy cluster there always are news. A timer that is due must not wait for them to end.
        if self.until_wake().is_zero() {
            self.tell(Input::Tick);
        }
        self.send();
        true
    }

    fn until_wake(&self) -> Duration {
        let Some(at) = self.out.wake_at else { return LONGEST_SLEEP };
        let millis = (at - wall_clock()).millis().max(0) as u64;
        Duration::from_millis(millis).min(LONGEST_SLEEP)
    }

    fn heard(&mut self, news: &News) {
        self.tell(match news {
            News::Listing(kind) => Input::Listing(*kind),
            News::Observed(kind, object) => Input::Observed(*kind, object),
            News::Gone(kind, object) => Input::Gone(*kind, object),
            News::Listed(kind, at) => Input::Listed(*kind, *at),
            News::Reached(kind, at) => Input::Reached(*kind, *at),
        });
    }

    fn answered(&mut self, done: Result<(RequestId, Response), tokio::task::JoinError>) {
        match done {
            Ok((request, response)) => {
                let Response { reply, served_at, .. } = response;
                self.tell(Input::Answered { request, reply, served_at });
            }
            // A call that panicked would leave its controller waiting for ever.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    fn tell(&mut self, input: Input<'_>) {
        let begun = Instant::now();
        self.controller.handle(input, wall_clock(), &mut self.out);
        self.queue.extend(self.out.requests.drain(..));
        let name = self.controller.name();
        for event in self.out.events.drain(..) {
            if self.recorder.as_ref().is_some_and(|recorder| !recorder.record(name, event)) {
                self.caller.observer.event_dropped(name);
            }
        }
        if !self.out.metrics.is_empty() {
            let decided_in = begun.elapsed();
            for metric in self.out.metrics.drain(..) {
                self.caller.observer.metric(name, &metric, decided_in);
            }
        }
    }

    fn send(&mut self) {
        while self.calls.len() < self.in_flight
            && let Some(Request { id, call }) = self.queue.pop_front()
        {
            let caller = self.caller.clone();
            self.calls.spawn(async move { (id, caller.call(&call).await) });
        }
        self.caller.observer.load(self.controller.name(), self.queue.len(), self.calls.len());
    }
}
