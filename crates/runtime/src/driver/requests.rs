//! The requests of one controller: how many are in flight at once, how fast they are sent, and which are sent again.
//! Pure: time is an argument, and the caller sends the requests.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use super::api::Response;
use super::limit::Limit;
use crate::controller::{Call, Input, Refusal, Reply, Request, RequestId, Verb};

/// How often a request is sent again because the server refused it and gave a time for the retry. After that the
/// controller decides.
pub const RETRIES: u32 = 5;
pub const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Requests {
    most_in_flight: usize,
    /// Requested and not started: creations, and everything else. Their lengths are bounded by the rules of the
    /// controller. They take turns, so that the first Pod of a small Job does not wait for the releases of a large one.
    queues: [VecDeque<Request>; 2],
    /// The queue whose turn it is.
    turn: usize,
    /// Started and without a response: sent, or waiting to be sent.
    in_flight: HashMap<RequestId, InFlight, foldhash::fast::FixedState>,
    /// When those of them that wait are to be sent.
    waiting: BTreeMap<(Duration, RequestId), Turn>,
}

#[derive(Debug)]
struct InFlight {
    call: Call,
    retries: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It has a token of the limit, which is valid at the time it waits for.
    Taken,
    /// It takes a token at that time.
    Due,
}

impl Requests {
    pub fn new(most_in_flight: usize) -> Self {
        Self {
            most_in_flight: most_in_flight.max(1),
            queues: Default::default(),
            turn: 0,
            in_flight: HashMap::default(),
            waiting: BTreeMap::new(),
        }
    }

    pub fn extend(&mut self, requests: impl IntoIterator<Item = Request>) {
        for request in requests {
            self.queues[usize::from(request.call.verb != Verb::Create)].push_back(request);
        }
    }

    fn take(&mut self) -> Option<Request> {
        let chosen = if self.queues[self.turn].is_empty() { 1 - self.turn } else { self.turn };
        self.turn = 1 - chosen;
        self.queues[chosen].pop_front()
    }

    /// The next request to send now. `now` is the time since the driver started.
    pub fn next(&mut self, limit: &Limit, now: Duration) -> Option<Request> {
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= now) {
            let ((_, id), turn) = first.remove_entry();
            let wait = if turn == Turn::Due { limit.take(now) } else { Duration::ZERO };
            if !wait.is_zero() {
                self.waiting.insert((now + wait, id), Turn::Taken);
            } else if let Some(InFlight { call, .. }) = self.in_flight.get(&id) {
                return Some(Request { id, call: call.clone() });
            }
        }
        while self.in_flight.len() < self.most_in_flight
            && let Some(Request { id, call }) = self.take()
        {
            let wait = limit.take(now);
            self.in_flight.insert(id, InFlight { call: call.clone(), retries: 0 });
            if wait.is_zero() {
                return Some(Request { id, call });
            }
            self.waiting.insert((now + wait, id), Turn::Taken);
        }
        None
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
            self.waiting.insert((now + wait, id), Turn::Due);
            return None;
        }
        self.in_flight.remove(&id);
        let Response { reply, served_at, .. } = response;
        Some(Input::Response { request: id, reply, served_at })
    }

    /// When the next waiting request is to be sent.
    pub fn wake_at(&self) -> Option<Duration> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    /// Requested and not started.
    pub fn queued(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Drops the requests that were not sent.
    pub fn close(&mut self) {
        self.queues.iter_mut().for_each(VecDeque::clear);
        for (_, id) in std::mem::take(&mut self.waiting).into_keys() {
            self.in_flight.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::Kind;

    fn request(id: u64) -> Request {
        Request { id: RequestId(id), call: Call::new(Verb::Get, Kind::POD, "ns", "p") }
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

    /// KEP-2307: creations do not wait behind the releases and status writes of other Jobs, nor those behind creations.
    #[test]
    fn creations_and_other_requests_take_turns() {
        let (mut requests, limit) = (Requests::new(4), Limit::new(0.0, 0));
        let creation = |id| Request { id: RequestId(id), call: Call::new(Verb::Create, Kind::POD, "ns", "") };
        requests.extend((0..10_000).map(request));
        assert_eq!(sent(&mut requests, &limit, millis(0)), [0, 1, 2, 3]);
        requests.extend((20_000..20_003).map(creation));
        let mut order = Vec::new();
        for id in 0..6 {
            assert!(requests.answered(RequestId(id), refused(404, None), millis(1), 0.0).is_some());
            order.extend(sent(&mut requests, &limit, millis(1)));
        }
        assert_eq!(order, [20_000, 4, 20_001, 5, 20_002, 6]);
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
        assert_eq!((requests.in_flight(), requests.wake_at()), (3, None));
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
