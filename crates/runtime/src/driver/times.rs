//! How long the requests of one controller wait and take, and how long a reconciliation takes with all of its requests.
//! Pure: time is an argument.

use std::collections::HashMap;
use std::time::Duration;

use crate::controller::{Metric, RequestId};

#[derive(Debug, Default)]
pub struct RequestTimes {
    requests: HashMap<RequestId, Times, foldhash::fast::FixedState>,
    /// Reconciliations with requests that have no response yet.
    syncs: HashMap<u64, Sync, foldhash::fast::FixedState>,
    next_sync: u64,
}

#[derive(Debug)]
struct Times {
    added_at: Duration,
    sent_at: Option<Duration>,
    sync: u64,
}

#[derive(Debug)]
struct Sync {
    begun_at: Duration,
    requests_left: usize,
    metrics: Vec<Metric>,
}

/// A reconciliation whose last request has its response.
#[derive(Debug, PartialEq, Eq)]
pub struct CompletedSync {
    pub metrics: Vec<Metric>,
    pub took: Duration,
}

impl RequestTimes {
    /// A controller has processed one input, from `begun_at` to `now`. Returns its metrics if they need not wait for
    /// requests.
    pub fn decided(
        &mut self,
        requests: impl ExactSizeIterator<Item = RequestId>,
        metrics: Vec<Metric>,
        begun_at: Duration,
        now: Duration,
    ) -> Option<CompletedSync> {
        let requests_left = requests.len();
        if requests_left == 0 {
            return (!metrics.is_empty()).then(|| CompletedSync { metrics, took: now.saturating_sub(begun_at) });
        }
        let sync = self.next_sync;
        self.next_sync += 1;
        for request in requests {
            self.requests.insert(request, Times { added_at: now, sent_at: None, sync });
        }
        self.syncs.insert(sync, Sync { begun_at, requests_left, metrics });
        None
    }

    /// Returns how long the request waited. None: it was sent before.
    pub fn sent(&mut self, request: RequestId, now: Duration) -> Option<Duration> {
        let times = self.requests.get_mut(&request)?;
        let first = times.sent_at.is_none();
        times.sent_at.get_or_insert(now);
        first.then(|| now.saturating_sub(times.added_at))
    }

    /// The request has its response and is not sent again. Returns how long that took since it was first sent, and the
    /// reconciliation that is complete with it.
    pub fn answered(&mut self, request: RequestId, now: Duration) -> Option<(Duration, Option<CompletedSync>)> {
        let times = self.requests.remove(&request)?;
        let took = now.saturating_sub(times.sent_at.unwrap_or(now));
        let sync = self.syncs.get_mut(&times.sync)?;
        sync.requests_left -= 1;
        if sync.requests_left > 0 {
            return Some((took, None));
        }
        let Sync { begun_at, metrics, .. } = self.syncs.remove(&times.sync)?;
        let complete = CompletedSync { metrics, took: now.saturating_sub(begun_at) };
        Some((took, Some(complete).filter(|complete| !complete.metrics.is_empty())))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::metric::SyncAction;

    const SYNC: Metric = Metric::Sync { indexed: false, action: SyncAction::Tracking, error: false };

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn ids(ids: &[u64]) -> impl ExactSizeIterator<Item = RequestId> {
        ids.iter().copied().map(RequestId)
    }

    #[test]
    fn a_reconciliation_takes_as_long_as_its_requests() {
        let mut times = RequestTimes::default();
        let complete = |took| Some(CompletedSync { metrics: vec![SYNC], took: millis(took) });
        assert_eq!(times.decided(ids(&[]), vec![SYNC], millis(1), millis(3)), complete(2));
        assert_eq!(times.decided(ids(&[]), vec![], millis(1), millis(3)), None);
        assert_eq!(times.decided(ids(&[1, 2]), vec![SYNC], millis(10), millis(11)), None);
        assert_eq!(times.sent(RequestId(1), millis(15)), Some(millis(4)));
        assert_eq!(times.sent(RequestId(1), millis(20)), None, "sent again");
        assert_eq!(times.sent(RequestId(2), millis(21)), Some(millis(10)));
        assert_eq!(times.answered(RequestId(2), millis(24)), Some((millis(3), None)));
        assert_eq!(times.answered(RequestId(1), millis(40)), Some((millis(25), complete(30))));
        assert_eq!(times.answered(RequestId(1), millis(41)), None);
        assert!(times.requests.is_empty() && times.syncs.is_empty());
    }

    #[test]
    fn requests_without_a_reconciliation_are_measured_too() {
        let mut times = RequestTimes::default();
        assert_eq!(times.decided(ids(&[7]), vec![], millis(0), millis(0)), None);
        times.sent(RequestId(7), millis(2)).unwrap();
        assert_eq!(times.answered(RequestId(7), millis(5)), Some((millis(3), None)));
        assert!(times.syncs.is_empty());
    }
}
