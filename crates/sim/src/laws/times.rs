//! When things are due, implemented independently from BACKOFF, DEADLINE and TTL.

use tally_core::time::{Span, Timestamp};

use super::read::Job;

/// BACKOFF-4: 10 s after the first failure, twice as long after each further one, never more than ten minutes.
pub(crate) fn delay(failures: usize) -> Span {
    let mut seconds = 0;
    for _ in 0..failures {
        seconds = if seconds == 0 { 10 } else { (seconds * 2).min(600) };
    }
    Span::from_seconds(seconds)
}

/// DEADLINE-1: when a Job that continues will have been active for too long.
pub(crate) fn deadline(job: &Job) -> Option<Timestamp> {
    let allowed = job.spec.active_deadline_seconds.filter(|_| !job.spec.suspend)?;
    Some(job.status.start_time? + Span::from_seconds(allowed))
}

/// PENDING-1: how long a Pod of this Job may be pending, whatever the reason. Worlds write it in seconds.
pub(crate) fn pending_limit(job: &Job) -> Option<Span> {
    let text = job.metadata.annotations.get("tally.dev/pending-timeout")?;
    text.strip_suffix('s')?.parse().ok().map(Span::from_seconds)
}

/// TTL-3 to TTL-5: when a finished Job is to be deleted.
pub(crate) fn expiry(job: &Job) -> Option<Timestamp> {
    let ttl = job.spec.ttl_seconds_after_finished.filter(|_| !job.deleting())?;
    Some(job.terminal()?.last_transition_time? + Span::from_seconds(ttl))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_ten_minutes() {
        let seconds: Vec<i64> = (0..10).map(|failures| delay(failures).millis() / 1_000).collect();
        assert_eq!(seconds, [0, 10, 20, 40, 80, 160, 320, 600, 600, 600]);
    }
}
