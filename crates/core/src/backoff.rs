//! How long to wait before replacing failed Pods, derived from the Pods themselves so that a restart changes nothing.

use smallvec::SmallVec;

use crate::ids::PodUid;
use crate::mutation::{Bug, Mutation};
use crate::time::{Span, Timestamp};

/// The first delay, and the longest (CONST-2).
const BASE_SECONDS: i64 = 10;
const LIMIT_SECONDS: i64 = 600;
/// From this many failures on the delay no longer grows: 10 * 2^6 > 600. Older failures need not be kept.
const SATURATED: usize = 7;

/// BACKOFF-4: 10, 20, 40, 80, 160, 320, 600, 600 ... seconds after that many consecutive failures.
pub fn delay_after(mutation: impl Mutation, failures: u32) -> Span {
    if failures == 0 {
        return Span::ZERO;
    }
    let doublings = (failures - 1).min(16);
    let limit = if mutation.injects(Bug::BackoffUncapped) { i64::MAX } else { LIMIT_SECONDS };
    let base = if mutation.injects(Bug::BackoffHalved) { BASE_SECONDS / 2 } else { BASE_SECONDS };
    Span::from_seconds((base << doublings).min(limit))
}

/// The latest failures and the latest success of a Job's Pods. A fold over observations: their order does not matter,
/// and observing a Pod twice changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureHistory {
    last_success_at: Option<Timestamp>,
    /// At most `SATURATED` of them, the latest one last.
    failures: SmallVec<[Failure; 1]>,
}

/// Keyed by UID because a Pod's finish time may still change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    at: Timestamp,
    uid: PodUid,
    created_at: Timestamp,
}

impl FailureHistory {
    pub fn succeeded(&mut self, at: Timestamp) {
        self.last_success_at = self.last_success_at.max(Some(at));
    }

    pub fn failed(&mut self, uid: &PodUid, created_at: Timestamp, at: Timestamp) {
        if let Some(known) = self.failures.iter().position(|failure| failure.uid == *uid) {
            if self.failures[known].at == at {
                return;
            }
            self.failures.remove(known);
        }
        if self.failures.len() == SATURATED && at <= self.failures[0].at {
            return;
        }
        let place = self.failures.partition_point(|earlier| (earlier.at, &earlier.uid) < (at, uid));
        self.failures.insert(place, Failure { at, uid: uid.clone(), created_at });
        if self.failures.len() > SATURATED {
            self.failures.remove(0);
        }
    }

    /// When the next Pod may be created; None means at once (BACKOFF-3, BACKOFF-5).
    pub fn retry_at(&self, mutation: impl Mutation) -> Option<Timestamp> {
        let count = self.failures.iter().filter(|failure| self.is_news(failure)).count();
        let last = self.failures.last().filter(|_| count > 0)?;
        let last_at = if mutation.injects(Bug::BackoffFromCreation) { last.created_at } else { last.at };
        Some(last_at + delay_after(mutation, u32::try_from(count).unwrap_or(u32::MAX)))
    }

    /// Whether a failure came after the last success. Times are whole seconds: of two Pods that ended in the same
    /// second, a Pod that was also created in that second counts as the later one.
    fn is_news(&self, failure: &Failure) -> bool {
        self.last_success_at
            .is_none_or(|success| failure.at > success || (failure.at == success && failure.created_at >= success))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutation::NoMutation;

    fn history(success_at: Option<i64>, failures_at: &[i64]) -> FailureHistory {
        let mut history = FailureHistory::default();
        for (at, seconds) in failures_at.iter().enumerate() {
            let (uid, at) = (PodUid::from_u128(at as u128), Timestamp::from_seconds(*seconds));
            history.failed(&uid, at - Span::from_seconds(1), at);
        }
        if let Some(at) = success_at {
            history.succeeded(Timestamp::from_seconds(at));
        }
        history
    }

    #[test]
    fn vec_34_delays() {
        for (success_at, failures_at, retry_at) in [
            (None, &[][..], None),
            (None, &[100], Some(110)),
            (None, &[100, 100, 100], Some(140)),
            (None, &[100; 7], Some(700)),
            (None, &[100; 20], Some(700)),
            (Some(100), &[100], None),
            (Some(99), &[100, 98], Some(110)),
            (Some(500), &[100, 200], None),
        ] {
            assert_eq!(
                history(success_at, failures_at).retry_at(NoMutation),
                retry_at.map(Timestamp::from_seconds),
                "{success_at:?} {failures_at:?}"
            );
        }
    }

    #[test]
    fn seeing_a_pod_again_or_in_another_order_changes_nothing() {
        let mut history = history(None, &[100, 200, 300]);
        let before = history.clone();
        history.failed(&PodUid::from_u128(1), Timestamp::from_seconds(199), Timestamp::from_seconds(200));
        assert_eq!(history, before);
        history.failed(&PodUid::from_u128(1), Timestamp::from_seconds(199), Timestamp::from_seconds(400));
        assert_eq!(history.retry_at(NoMutation), Some(Timestamp::from_seconds(440)));
    }

    #[test]
    fn of_two_ends_in_one_second_the_younger_pod_has_the_later() {
        let at = Timestamp::from_seconds;
        for (created_at, retry_at) in [(99, None), (100, Some(at(110)))] {
            let mut history = FailureHistory::default();
            history.succeeded(at(100));
            history.failed(&PodUid::from_u128(1), at(created_at), at(100));
            assert_eq!(history.retry_at(NoMutation), retry_at, "created at {created_at}");
        }
    }

    #[test]
    fn only_the_failures_that_can_matter_are_kept() {
        let mut all = FailureHistory::default();
        for at in 0..1000 {
            all.failed(&PodUid::from_u128(at), Timestamp::from_seconds(0), Timestamp::from_seconds(at as i64));
        }
        assert_eq!(all.failures.len(), SATURATED);
        assert_eq!(all.retry_at(NoMutation), Some(Timestamp::from_seconds(999 + 600)));
    }
}
