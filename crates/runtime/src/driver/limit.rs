//! What all controllers of a process share in sending requests: a token bucket, which is a number of requests per second and
//! a burst; and how many requests each may have in flight.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The most requests of a controller in flight while a small Job runs beside a large one.
const FEW_IN_FLIGHT: usize = 8;
/// How long that lasts after a request for the small one: its next request, or the next small Job, comes soon.
const FEW_FOR: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Limit {
    /// Tokens per second; 0: no limit.
    rate: f64,
    burst: f64,
    state: Mutex<State>,
    /// Few requests are in flight until then: milliseconds since the driver started.
    few_until: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// Below zero: that many tokens are promised to requests that wait.
    tokens: f64,
    at: Duration,
}

impl Limit {
    pub fn new(rate: f64, burst: u32) -> Self {
        let burst = f64::from(burst.max(1));
        Self {
            rate,
            burst,
            state: Mutex::new(State { tokens: burst, at: Duration::ZERO }),
            few_until: AtomicU64::new(0),
        }
    }

    /// Takes a token, in the order of the calls, and returns how long to wait for it. `now` is the time since the
    /// driver started.
    pub fn take(&self, now: Duration) -> Duration {
        if self.rate <= 0.0 {
            return Duration::ZERO;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.saturating_sub(state.at).as_secs_f64();
        state.tokens = (state.tokens + since * self.rate).min(self.burst) - 1.0;
        state.at = state.at.max(now);
        if state.tokens >= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(-state.tokens / self.rate) }
    }

    /// A small Job runs beside a large one. Each of its steps waits until all requests have been served that are in flight,
    /// those of other controllers too, so there should be few. More are only better for the throughput of the large one.
    pub fn keep_few_in_flight(&self, now: Duration) {
        self.few_until.fetch_max(millis(now + FEW_FOR), Ordering::Relaxed);
    }

    /// How many requests a controller may have in flight, if it may have `most` at other times.
    pub fn in_flight(&self, most: usize, now: Duration) -> usize {
        if millis(now) < self.few_until.load(Ordering::Relaxed) { most.min(FEW_IN_FLIGHT) } else { most }
    }

    /// How much of the burst is used: 0 if all of it is left or there is no limit, 1 if requests have to wait.
    pub fn use_at(&self, now: Duration) -> f64 {
        if self.rate <= 0.0 {
            return 0.0;
        }
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.saturating_sub(state.at).as_secs_f64();
        (1.0 - (state.tokens + since * self.rate) / self.burst).clamp(0.0, 1.0)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_a_steady_rate() {
        let limit = Limit::new(10.0, 3);
        let at = Duration::from_secs;
        let waits: Vec<u128> = (0..6).map(|_| limit.take(at(0)).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 300]);
        assert_eq!(limit.take(at(1)).as_millis(), 0, "a second makes up for ten");
        assert_eq!(limit.take(at(60)).as_millis(), 0);
        let waits: Vec<u128> = (0..3).map(|_| limit.take(at(60)).as_millis()).collect();
        assert_eq!(waits, [0, 0, 100], "no more is saved up than a burst");
        assert_eq!((limit.use_at(at(60)), limit.use_at(at(61))), (1.0, 0.0));
    }

    #[test]
    fn no_rate_is_no_limit() {
        let limit = Limit::new(0.0, 0);
        assert!((0..1000).all(|_| limit.take(Duration::ZERO).is_zero()));
        assert_eq!(limit.use_at(Duration::ZERO), 0.0);
    }
}
