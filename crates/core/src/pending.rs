//! How long a Pod of a Job may be pending (`tally.dev/pending-timeout`), PENDING-1 to PENDING-3. Kubernetes has no limit:
//! a Job with a Pod that fits nowhere waits for ever.

use compact_str::CompactString;

use crate::schedule;
use crate::time::{Span, Timestamp};

/// The annotation with the limits: a duration, or `REASON=DURATION`, separated by commas.
pub const PENDING_TIMEOUT: &str = "tally.dev/pending-timeout";
/// The reason with which such a Job fails.
pub const PENDING_TIMED_OUT: &str = "PendingTimeout";

const EXAMPLE: &str = "for example \"10m\" or \"Unschedulable=10m,ImagePullBackOff=2m\"";

/// The limits of a Job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingTimeouts {
    /// Whatever the reason is, from the creation of the Pod on.
    any: Option<Span>,
    by_reason: Vec<(CompactString, Span)>,
}

/// Why a Pod is pending, as its conditions and containers say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingReason {
    /// Such as `Unschedulable` or `ImagePullBackOff`.
    pub reason: CompactString,
    pub message: String,
    /// Since when: the transition of the condition PodScheduled.
    pub since: Timestamp,
}

/// Why the annotation cannot be read. The message contains an example.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PendingError {
    #[error("must be a duration, {EXAMPLE}")]
    Empty,
    #[error("\"{0}\" is not a duration above zero, {EXAMPLE}")]
    Duration(String),
    #[error("\"{0}\" is not the reason of a Pod, {EXAMPLE}")]
    Reason(String),
    #[error("has two limits for the same reason, {EXAMPLE}")]
    Twice,
}

/// PENDING-1.
pub fn parse(text: &str) -> Result<PendingTimeouts, PendingError> {
    let mut limits = PendingTimeouts::default();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (reason, limit) = match part.split_once('=') {
            Some((reason, limit)) => (Some(reason.trim()), limit.trim()),
            None => (None, part),
        };
        let nanoseconds = schedule::duration(limit).ok().filter(|nanoseconds| *nanoseconds >= 1_000_000);
        let span = nanoseconds.map(|nanoseconds| Span::from_millis(nanoseconds / 1_000_000));
        let span = span.ok_or_else(|| PendingError::Duration(limit.to_owned()))?;
        match reason {
            None if limits.any.is_some() => return Err(PendingError::Twice),
            None => limits.any = Some(span),
            Some(reason) if reason.is_empty() || !reason.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                return Err(PendingError::Reason(reason.to_owned()));
            }
            Some(reason) if limits.by_reason.iter().any(|(known, _)| known == reason) => {
                return Err(PendingError::Twice);
            }
            Some(reason) => limits.by_reason.push((reason.into(), span)),
        }
    }
    if limits.any.is_none() && limits.by_reason.is_empty() { Err(PendingError::Empty) } else { Ok(limits) }
}

impl PendingTimeouts {
    /// PENDING-2: when a Pod that stays as it is has been pending for too long.
    pub fn due_at(&self, created_at: Timestamp, reason: Option<&PendingReason>) -> Option<Timestamp> {
        let any = self.any.map(|limit| created_at + limit);
        let known = reason.and_then(|why| {
            let limit = self.by_reason.iter().find(|(reason, _)| *reason == why.reason)?;
            Some(why.since + limit.1)
        });
        any.into_iter().chain(known).min()
    }
}

/// PENDING-3: the message of the condition.
pub fn message(pod: &str, created_at: Timestamp, reason: Option<&PendingReason>, now: Timestamp) -> String {
    let since = reason.map_or(created_at, |why| why.since);
    let seconds = (now - since).millis().max(0) / 1_000;
    let why = match reason {
        Some(why) if why.message.is_empty() => why.reason.to_string(),
        Some(why) => format!("{}: {}", why.reason, why.message),
        None => "it has not started".to_owned(),
    };
    format!("Pod {pod} has been pending for {seconds}s: {why}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    /// PENDING-1.
    #[test]
    fn limits_are_durations_for_any_or_for_one_reason() {
        let any = parse("10m").unwrap();
        assert_eq!(any.due_at(at(5), None), Some(at(605)));
        let both = parse("1h, Unschedulable=90s,ImagePullBackOff=1.5s").unwrap();
        let why = |reason: &str| PendingReason { reason: reason.into(), message: String::new(), since: at(100) };
        assert_eq!(both.due_at(at(0), Some(&why("Unschedulable"))), Some(at(190)));
        assert_eq!(both.due_at(at(0), Some(&why("ImagePullBackOff"))), Some(Timestamp::from_millis(101_500)));
        assert_eq!(both.due_at(at(0), Some(&why("ErrImagePull"))), Some(at(3600)));
        assert_eq!(parse("Unschedulable=1s").unwrap().due_at(at(0), None), None);
        let refuses = |text: &str, part: &str| {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("for example \"10m\""), "{text}: {message}");
        };
        refuses("", "must be a duration");
        refuses("soon", "\"soon\" is not a duration above zero");
        refuses("10", "\"10\" is not a duration");
        refuses("-5s", "\"-5s\" is not a duration");
        refuses("0s", "\"0s\" is not a duration above zero");
        refuses("No Room=5s", "\"No Room\" is not the reason of a Pod");
        refuses("=5s", "\"\" is not the reason of a Pod");
        refuses("5s,6s", "two limits for the same reason");
        refuses("A=5s,A=6s", "two limits for the same reason");
    }

    /// PENDING-3.
    #[test]
    fn the_message_names_the_pod_and_its_reason() {
        let message = "0/1 nodes are available: 1 Insufficient cpu.".to_owned();
        let why = PendingReason { reason: "Unschedulable".into(), message, since: at(100) };
        let told = "Pod p has been pending for 60s: Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.";
        assert_eq!(super::message("p", at(0), Some(&why), at(160)), told);
        assert_eq!(super::message("p", at(0), None, at(160)), "Pod p has been pending for 160s: it has not started");
    }
}
