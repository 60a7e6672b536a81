//! The requests of one controller: how many are in flight at once, how fast they are sent, and which are sent again.
//! Pure: time is an argument, and the caller sends the requests.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use super::api::Response;
use super::limit::Limit;
use crate::controller::{Call, Input, Refusal, Reply, Request, RequestId, Verb};

/// How often a request is sent again because the server refused it and gave a time for the retry. After that the
/// controller decides.
pub const RETRIES: u32 = 5;
pub const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);

/// A Job with so many requests waiting is a large one.
const MANY_QUEUED: usize = 256;
/// How long it counts as large after that.
const LARGE_FOR: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Requests {
    most_in_flight: usize,
    /// How many may be in flight now.
    in_flight_now: usize,
    /// What had many requests waiting, and when last.
    large: HashMap<u64, Duration, foldhash::fast::FixedState>,
    /// Requested and not started, by what they are about. Their number is bounded by the rules of the controller.
    queues: HashMap<u64, Queue, foldhash::fast::FixedState>,
    /// The queues that are not empty, in the order of their turns.
    turns: VecDeque<u64>,
    queued: usize,
    /// Started and without a response: sent, or to be sent again.
    in_flight: HashMap<RequestId, InFlight, foldhash::fast::FixedState>,
    /// When those that are to be sent again are due.
    waiting: BTreeSet<(Duration, RequestId)>,
    /// Those that are due.
    due: VecDeque<RequestId>,
    /// The time from which the token holds that was taken for the next request, whichever that will be: a request that comes
    /// later may have its turn first. A controller waits for one token at a time, so controllers take turns too.
    token: Option<Duration>,
}

/// The requests about one thing. Creations come before everything else, as KEP-2307 asks.
#[derive(Debug, Default)]
struct Queue {
    creations: VecDeque<Request>,
    others: VecDeque<Request>,
    /// Creations in a row while others wait.
    row: u32,
}

/// After so many creations another request has its turn: a Job that creates Pods for minutes must be counted meanwhile. Each
/// Pod takes a creation and a release, so with more of the former the finished Pods that are not released would become more
/// and more.
const CREATIONS_IN_A_ROW: u32 = 1;

impl Queue {
    fn push(&mut self, request: Request) {
        let creates = request.call.verb == Verb::Create && request.call.subresource.is_empty();
        if creates { self.creations.push_back(request) } else { self.others.push_back(request) }
    }

    fn pop(&mut self) -> Option<Request> {
        if self.others.is_empty() || !self.creations.is_empty() && self.row < CREATIONS_IN_A_ROW {
            self.row = if self.others.is_empty() { 0 } else { self.row + 1 };
            return self.creations.pop_front();
        }
        self.row = 0;
        self.others.pop_front()
    }

    fn len(&self) -> usize {
        self.creations.len() + self.others.len()
    }

    fn is_empty(&self) -> bool {
        self.creations.is_empty() && self.others.is_empty()
    }
}

#[derive(Debug)]
struct InFlight {
    call: Call,
    retries: u32,
}

impl Requests {
    pub fn new(most_in_flight: usize) -> Self {
        let most_in_flight = most_in_flight.max(1);
        Self {
            most_in_flight,
            in_flight_now: most_in_flight,
            large: HashMap::default(),
            queues: HashMap::default(),
            turns: VecDeque::new(),
            queued: 0,
            in_flight: HashMap::default(),
            waiting: BTreeSet::new(),
            due: VecDeque::new(),
            token: None,
        }
    }

    pub fn extend(&mut self, requests: impl IntoIterator<Item = Request>) {
        for request in requests {
            let about = request.about;
            let queue = self.queues.entry(about).or_default();
            if queue.is_empty() {
                self.turns.push_back(about);
            }
            queue.push(request);
            self.queued += 1;
        }
    }

    /// The next request of the queue whose turn it is.
    fn take(&mut self, limit: &Limit, now: Duration) -> Option<Request> {
        let about = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&about)?;
        if queue.len() > MANY_QUEUED {
            self.large.insert(about, now);
        } else if !self.large.is_empty() {
            self.large.retain(|_, at| now.saturating_sub(*at) < LARGE_FOR);
            if !self.large.is_empty() && !self.large.contains_key(&about) {
                limit.keep_few_in_flight(now);
            }
        }
        let request = queue.pop()?;
        self.queued -= 1;
        if queue.is_empty() {
            self.queues.remove(&about);
        } else {
            self.turns.push_back(about);
        }
        Some(request)
    }

    fn wants_token(&self) -> bool {
        !self.due.is_empty() || self.queued > 0 && self.in_flight.len() < self.in_flight_now
    }

    /// The next request to send now. `now` is the time since the driver started.
    pub fn next(&mut self, limit: &Limit, now: Duration) -> Option<Request> {
        while let Some((_, id)) = self.waiting.first().copied().filter(|(at, _)| *at <= now) {
            self.waiting.pop_first();
            self.due.push_back(id);
        }
        self.in_flight_now = limit.in_flight(self.most_in_flight, now);
        if !self.wants_token() {
            return None;
        }
        if *self.token.get_or_insert_with(|| now + limit.take(now)) > now {
            return None;
        }
        self.token = None;
        if let Some(id) = self.due.pop_front() {
            return self.in_flight.get(&id).map(|InFlight { call, .. }| Request { id, call: call.clone(), about: 0 });
        }
        let request = self.take(limit, now)?;
        self.in_flight.insert(request.id, InFlight { call: request.call.clone(), retries: 0 });
        Some(request)
    }

    /// A request received its response. None: it will be sent again. `spread`, from 0 to 1, prevents requests that
    /// failed together from being retried together.
    pub fn answered(&mut self, id: RequestId, response: Response, now: Duration, spread: f64) -> Option<Input> {
        let in_flight = self.in_flight.get_mut(&id)?;
        // The server has not processed the request: a retry does not apply it twice.
        let again = response.retry_after.filter(|_| {
            in_flight.retries < RETRIES && matches!(&response.reply, Reply::Refused(Refusal { code: 429 | 503, .. }))
        });
        if let Some(wait) = again {
            in_flight.retries += 1;
            let wait = wait.min(LONGEST_RETRY_AFTER).mul_f64(1.0 + spread / 5.0);
            self.waiting.insert((now + wait, id));
            return None;
        }
        self.in_flight.remove(&id);
        let Response { reply, served_at, .. } = response;
        Some(Input::Response { request: id, reply, served_at })
    }

    /// When the next waiting request is to be sent.
    pub fn wake_at(&self) -> Option<Duration> {
        let token = self.token.filter(|_| self.wants_token());
        self.waiting.first().map(|(at, _)| *at).into_iter().chain(token).min()
    }

    /// Requested and not started.
    pub fn queued(&self) -> usize {
        self.queued
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Drops the requests that were not sent.
    pub fn close(&mut self) {
        self.queues.clear();
        self.turns.clear();
        self.queued = 0;
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|(_, id)| id);
        for id in waiting.chain(std::mem::take(&mut self.due)) {
            self.in_flight.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::Kind;

    fn request(id: u64) -> Request {
        about(0, id)
    }

    fn about(about: u64, id: u64) -> Request {
        Request { id: RequestId(id), call: Call::new(Verb::Get, Kind::POD, "ns", "p"), about }
    }

    fn creation(about: u64, id: u64) -> Request {
        Request { id: RequestId(id), call: Call::new(Verb::Create, Kind::POD, "ns", ""), about }
    }

    fn sent(requests: &mut Requests, limit: &Limit, now: Duration) -> Vec<u64> {
        std::iter::from_fn(|| requests.next(limit, now)).map(|request| request.id.0).collect()
    }

    fn refused(code: u16, retry_after: Option<u64>) -> Response {
        let reply = Reply::Refused(Refusal { code, ..Refusal::default() });
        Response { reply, served_at: None, retry_after: retry_after.map(Duration::from_secs) }
    }

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn few_are_in_flight_while_a_small_job_runs_beside_a_large_one() {
        let (limit, large) = (Limit::new(0.0, 1), 1);
        let (mut jobs, mut pods) = (Requests::new(64), Requests::new(64));
        jobs.extend((0..1000).map(|id| about(large, id)));
        pods.extend((0..1000).map(request));
        assert_eq!(sent(&mut jobs, &limit, millis(0)).len(), 64, "a large one alone");
        // A small one: its request is sent as soon as there is room, and it is the only one of it.
        jobs.extend([about(2, 1000)]);
        let answer = |requests: &mut Requests, id: u64, now| {
            requests.answered(RequestId(id), refused(404, None), now, 0.0).unwrap();
        };
        let mut order = Vec::new();
        for id in 0..56 {
            answer(&mut jobs, id, millis(10));
            order.extend(sent(&mut jobs, &limit, millis(10)));
        }
        assert_eq!(order, [64, 1000]);
        assert_eq!(sent(&mut pods, &limit, millis(10)).len(), 8, "of other controllers, too");
        assert_eq!(sent(&mut pods, &limit, millis(1000)).len(), 0);
        assert_eq!(sent(&mut pods, &limit, millis(1010)).len(), 56, "a second later");
        // Many small ones alone are as fast as possible.
        let limit = Limit::new(0.0, 1);
        let mut jobs = Requests::new(64);
        jobs.extend((0..1000).map(|id| about(id, id)));
        assert_eq!(sent(&mut jobs, &limit, millis(0)).len(), 64);
    }

    #[test]
    fn no_more_are_in_flight_than_allowed_and_they_go_out_in_order() {
        let (mut requests, limit) = (Requests::new(2), Limit::new(0.0, 0));
        requests.extend((0..5).map(request));
        assert_eq!(sent(&mut requests, &limit, millis(0)), [0, 1]);
        assert!(requests.answered(RequestId(1), refused(404, None), millis(1), 0.0).is_some());
        assert_eq!(sent(&mut requests, &limit, millis(1)), [2]);
        assert_eq!((requests.queued(), requests.in_flight()), (2, 2));
        requests.close();
        assert_eq!((requests.queued(), requests.in_flight()), (0, 2), "what was sent is still waited for");
    }

    /// Sends what may be sent, one request in flight at a time.
    fn order(requests: &mut Requests, count: usize) -> Vec<u64> {
        let limit = Limit::new(0.0, 0);
        let mut order = Vec::new();
        while order.len() < count {
            let sent = sent(requests, &limit, millis(1));
            for id in &sent {
                assert!(requests.answered(RequestId(*id), refused(404, None), millis(1), 0.0).is_some());
            }
            order.extend(sent);
        }
        order
    }

    #[test]
    fn a_small_job_does_not_wait_for_large_ones() {
        let mut requests = Requests::new(1);
        for large in 1..=10 {
            requests.extend((0..20_000).map(|id| about(large, 100_000 * large + id)));
        }
        assert_eq!(order(&mut requests, 10).len(), 10, "each of them has had its turn");
        requests.extend([creation(99, 1), about(99, 2)]);
        let order = order(&mut requests, 22);
        assert_eq!((order[10], order[21]), (1, 2), "after one request of each of the others");
    }

    /// KEP-2307.
    #[test]
    fn a_creation_of_a_job_comes_before_each_of_its_other_requests() {
        let mut requests = Requests::new(1);
        requests.extend((0..10).map(request));
        requests.extend((1000..1040).map(|id| creation(0, id)));
        let order = order(&mut requests, 50);
        let in_turns: Vec<u64> = (0..10).flat_map(|id| [1000 + id, id]).collect();
        assert_eq!(order[..20], in_turns);
        assert_eq!(order[20..], (1010..1040).collect::<Vec<_>>());
    }

    #[test]
    fn who_gets_a_token_is_decided_when_it_holds() {
        let (mut requests, limit) = (Requests::new(64), Limit::new(10.0, 1));
        requests.extend((0..100).map(|id| about(1, id)));
        assert_eq!(sent(&mut requests, &limit, millis(0)), [0]);
        requests.extend([about(2, 1000)]);
        assert_eq!(sent(&mut requests, &limit, millis(100)), [1]);
        assert_eq!(sent(&mut requests, &limit, millis(200)), [1000], "not behind what is in flight");
        assert_eq!(sent(&mut requests, &limit, millis(300)), [2]);
    }

    #[test]
    fn the_rate_is_kept_and_the_time_of_the_next_one_known() {
        let (mut requests, limit) = (Requests::new(10), Limit::new(10.0, 2));
        requests.extend((0..4).map(request));
        assert_eq!(sent(&mut requests, &limit, millis(0)), [0, 1]);
        assert_eq!(requests.wake_at(), Some(millis(100)));
        assert!(sent(&mut requests, &limit, millis(99)).is_empty());
        assert_eq!(sent(&mut requests, &limit, millis(100)), [2]);
        assert_eq!(requests.wake_at(), Some(millis(200)));
        requests.close();
        assert_eq!((requests.in_flight(), requests.wake_at()), (3, None), "what was sent");
    }

    #[test]
    fn a_server_that_says_when_is_asked_again_then_and_not_for_ever() {
        let (mut requests, limit) = (Requests::new(1), Limit::new(0.0, 0));
        requests.extend([request(7), request(8)]);
        let mut now = millis(0);
        assert_eq!(sent(&mut requests, &limit, now), [7]);
        for _ in 0..RETRIES {
            assert!(requests.answered(RequestId(7), refused(429, Some(2)), now, 0.5).is_none());
            assert!(sent(&mut requests, &limit, now + millis(2199)).is_empty());
            now += millis(2200);
            assert_eq!(sent(&mut requests, &limit, now), [7], "the one behind it waits");
        }
        assert!(requests.answered(RequestId(7), refused(429, Some(2)), now, 0.5).is_some());
        assert_eq!(sent(&mut requests, &limit, now), [8]);
        for (code, retry_after) in [(409, Some(1)), (429, None)] {
            assert!(requests.answered(RequestId(8), refused(code, retry_after), now, 0.0).is_some());
            requests.extend([request(8)]);
            assert_eq!(sent(&mut requests, &limit, now), [8]);
        }
        assert!(requests.answered(RequestId(99), refused(404, None), now, 0.0).is_none(), "no such request");
    }
}
