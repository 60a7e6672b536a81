//! How long to wait before replacing failed Pods, derived from the Pods themselves so that a restart changes nothing.

use std::fmt;
use std::hash::Hasher as _;

use compact_str::CompactString;
use smallvec::SmallVec;

use crate::field_error::{ErrorKind, FieldError};
use crate::ids::{CompletionIndex, JobUid, PodUid};
use crate::names::Fnv;
use crate::schedule;
use crate::time::{Span, Timestamp};

/// The first delay, and the longest (CONST-2), unless the Job says otherwise.
const BASE: Span = Span::from_seconds(10);
const LONGEST: Span = Span::from_seconds(600);
/// No Job waits longer: a delay of days is a mistake in the unit.
const MOST: Span = Span::from_seconds(24 * 3600);
/// From this many failures on the delay no longer grows: 1 ms * 2^27 > 24 h. Older failures need not be kept.
const SATURATED: usize = 28;
/// A whole, for jitter in millionths.
const WHOLE: u32 = 1_000_000;

/// The annotations of a Job that say how long it waits before a retry (BACKOFF-11).
pub const BASE_ANNOTATION: &str = "tally.dev/backoff-base";
pub const MAX_ANNOTATION: &str = "tally.dev/backoff-max";
pub const JITTER_ANNOTATION: &str = "tally.dev/backoff-jitter";

/// How the delay of one Job grows with its failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffPolicy {
    pub base_for: Span,
    pub max_for: Span,
    /// In millionths of the delay.
    pub jitter: u32,
    /// The Job says how long to wait. A Job that does not is treated as the reference treats it.
    pub is_annotated: bool,
}

impl Default for BackoffPolicy {
    fn default() -> Self {
        Self { base_for: BASE, max_for: LONGEST, jitter: 0, is_annotated: false }
    }
}

impl BackoffPolicy {
    /// BACKOFF-11: what the annotations of a Job say, or what is wrong with them.
    pub fn read(base: Option<&str>, max: Option<&str>, jitter: Option<&str>) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        let mut read = |text: Option<&str>, annotation, parse: fn(&str) -> Result<i64, &'static str>| match parse(text?)
        {
            Ok(value) => Some(value),
            Err(detail) => {
                errors.push(invalid(annotation, text?, detail));
                None
            }
        };
        let base_for = read(base, BASE_ANNOTATION, delay).map(Span::from_millis);
        let max_for = read(max, MAX_ANNOTATION, delay).map(Span::from_millis);
        let jitter_read = read(jitter, JITTER_ANNOTATION, fraction).and_then(|jitter| u32::try_from(jitter).ok());
        if let (Some(base_for), Some(max_for), Some(max)) = (base_for, max_for, max)
            && max_for < base_for
        {
            let detail = format!("must not be less than {BASE_ANNOTATION}, such as 10s and 1m");
            errors.push(invalid(MAX_ANNOTATION, max, &detail));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Self {
            base_for: base_for.unwrap_or(max_for.map_or(BASE, |max_for| max_for.min(BASE))),
            max_for: max_for.unwrap_or(base_for.map_or(LONGEST, |base_for| base_for.max(LONGEST))),
            jitter: jitter_read.unwrap_or(0),
            is_annotated: base.is_some() || max.is_some() || jitter.is_some(),
        })
    }

    /// BACKOFF-13: Pods that failed by a disruption that the failure policy ignores are replaced at once.
    pub fn skips_disruptions(&self) -> bool {
        self.is_annotated
    }

    /// BACKOFF-4, BACKOFF-11: base, 2 * base, 4 * base ... up to the maximum after that many consecutive failures, and
    /// the jitter on top of it.
    pub fn delay_after(&self, failures: u32, seed: JitterSeed<'_>) -> Span {
        if failures == 0 {
            return Span::ZERO;
        }
        let base_millis = self.base_for.millis();
        let longest = self.max_for.millis();
        let doublings = (failures - 1).min(SATURATED as u32 - 1);
        let millis = base_millis.saturating_mul(1 << doublings).min(longest);
        if self.jitter == 0 {
            return Span::from_millis(millis);
        }
        let extra = i128::from(millis) * i128::from(self.jitter) * i128::from(seed.fraction(failures));
        let extra = i64::try_from(extra / (i128::from(WHOLE) << 32)).unwrap_or(0);
        Span::from_millis(millis.saturating_add(extra))
    }
}

/// What the jitter of a Job is derived from: the same for every leader, and different for Jobs and indexes that fail at
/// the same time.
#[derive(Clone, Copy, Debug)]
pub struct JitterSeed<'a> {
    pub job: &'a JobUid,
    pub index: Option<CompletionIndex>,
}

impl JitterSeed<'_> {
    /// In 1/2^32. Two versions of Tally that lead one after the other must agree on it.
    fn fraction(self, failures: u32) -> u32 {
        let index = self.index.map(|index| index.to_string()).unwrap_or_default();
        let mut hasher = Fnv::default();
        hasher.write(format!("{}/{index}/{failures}", self.job).as_bytes());
        (hasher.finish() >> 32) as u32
    }
}

fn invalid(annotation: &str, value: &str, detail: &str) -> FieldError {
    let path = format!("metadata.annotations[{annotation}]");
    FieldError::new(ErrorKind::Invalid, path, Some(format!("{value:?}")), detail)
}

/// In milliseconds, rounded up: a short delay does not mean none.
fn delay(text: &str) -> Result<i64, &'static str> {
    let nanoseconds = schedule::duration(text).map_err(|_| "must be a duration, such as 500ms, 10s or 1m30s")?;
    let millis = nanoseconds.saturating_add(999_999).div_euclid(1_000_000);
    match millis {
        ..0 => Err("must not be negative; 0s retries at once"),
        millis if millis > MOST.millis() => Err("must be at most 24h, such as 10m"),
        millis => Ok(millis),
    }
}

/// In millionths.
fn fraction(text: &str) -> Result<i64, &'static str> {
    let digits = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let number = text.parse::<f64>().ok().filter(|number| text.bytes().all(digits) && (0.0..=1.0).contains(number));
    let number = number.ok_or("must be a fraction of the delay between 0 and 1, such as 0.2")?;
    Ok((number * f64::from(WHOLE)).round() as i64)
}

/// A Job that lacks Pods waits because Pods have failed: for users.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackoffNotice {
    /// The index that waits, if every index has retries of its own.
    pub index: Option<CompletionIndex>,
    /// Failures that count, so far.
    pub failures: u32,
    /// So many failures end the index, or the Job.
    pub allowed: u32,
    /// Each failure is one attempt of the same work.
    pub one_task: bool,
    pub waits_for: Span,
    pub retry_at: Timestamp,
    /// How the last Pod failed, if that is known.
    pub cause: Option<FailureCause>,
}

/// Why a Pod has failed, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FailureCause {
    pub exit_code: Option<i32>,
    /// Such as `DeadlineExceeded` or `OOMKilled`; may be empty.
    pub reason: CompactString,
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.exit_code, self.reason.as_str()) {
            (Some(code), "") => write!(f, "exit code {code}"),
            (Some(code), reason) => write!(f, "exit code {code} ({reason})"),
            (None, "") => f.write_str("no exit code"),
            (None, reason) => f.write_str(reason),
        }
    }
}

impl BackoffNotice {
    /// `attempt 3 of 7`, or `failure 3 of 7` if several tasks share the retries. Failures that do not count are no
    /// attempt.
    pub fn attempt(&self) -> impl fmt::Display + '_ {
        fmt::from_fn(|f| {
            if let Some(index) = self.index {
                write!(f, "index {index}: ")?;
            }
            let what = if self.one_task { "attempt" } else { "failure" };
            match self.failures {
                0 => write!(f, "0 of {} {what}s used", self.allowed),
                failures => write!(f, "{what} {failures} of {}", self.allowed),
            }
        })
    }

    /// ` (last failure: exit code 1)`, or nothing.
    pub fn because(&self) -> impl fmt::Display + '_ {
        fmt::from_fn(|f| match &self.cause {
            Some(cause) => write!(f, " (last failure: {cause})"),
            None => Ok(()),
        })
    }
}

impl FailureCause {
    fn parse(text: &str) -> Option<Self> {
        let Some(code) = text.strip_prefix("exit code ") else {
            let reason = if text == "no exit code" { "" } else { text };
            return Some(Self { exit_code: None, reason: reason.into() });
        };
        let (code, reason) = code.split_once(' ').unwrap_or((code, ""));
        let reason = reason.trim_start_matches('(').trim_end_matches(')');
        Some(Self { exit_code: Some(code.parse().ok()?), reason: reason.into() })
    }
}

impl BackoffNotice {
    /// Reads the message of an Event (EVENT-12).
    pub fn parse(message: &str) -> Option<Self> {
        let (index, rest) = match message.strip_prefix("index ") {
            Some(rest) => {
                let (index, rest) = rest.split_once(": ")?;
                (Some(index.parse().ok()?), rest)
            }
            None => (None, message),
        };
        let (attempt, rest) = rest.split_once(", next in ")?;
        let words: Vec<&str> = attempt.split(' ').collect();
        let (what, failures, allowed) = match words.as_slice() {
            ["0", "of", allowed, what, "used"] => (what.trim_end_matches('s'), 0, allowed.parse().ok()?),
            [what, failures, "of", allowed] => (*what, failures.parse().ok()?, allowed.parse().ok()?),
            _ => return None,
        };
        let (seconds, rest) = rest.split_once(" s at ")?;
        let (at, cause) = rest.split_once(" (last failure: ").unwrap_or((rest, ""));
        let cause = cause.strip_suffix(')').map(FailureCause::parse);
        Some(Self {
            index,
            failures,
            allowed,
            one_task: what == "attempt",
            waits_for: Span::from_seconds(seconds.parse().ok()?),
            retry_at: Timestamp::parse(at).ok()?,
            cause: match cause {
                Some(cause) => Some(cause?),
                None => None,
            },
        })
    }
}

/// The message of the Event (EVENT-12).
impl fmt::Display for BackoffNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Times of failures are whole seconds, and so are most delays.
        let seconds = (self.waits_for.millis() + 999) / 1_000;
        write!(f, "{}, next in {seconds} s at {}{}", self.attempt(), self.retry_at, self.because())
    }
}

/// The latest failures and the latest success of a Job's Pods. A fold over observations: their order does not matter,
/// and observing a Pod twice changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureHistory {
    /// The Pod that succeeded last, and when.
    last_success: Option<(Timestamp, PodUid)>,
    /// At most `SATURATED` by disruptions, and as many others; the latest one last.
    failures: SmallVec<[Failure; 1]>,
}

/// The failure of a Pod. Keyed by UID because a Pod's finish time may still change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub at: Timestamp,
    pub uid: PodUid,
    pub created_at: Timestamp,
    /// By a disruption that the failure policy ignores.
    pub disrupted: bool,
}

impl FailureHistory {
    pub fn succeeded(&mut self, at: Timestamp, uid: &PodUid) {
        if self.last_success.as_ref().is_none_or(|(last_at, last)| (*last_at, last) < (at, uid)) {
            self.last_success = Some((at, uid.clone()));
        }
    }

    /// Whether the next leader needs this Pod to find the same back-off: it succeeded last, or failed since.
    pub fn needs(&self, uid: &PodUid) -> bool {
        let is_last = self.last_success.as_ref().is_some_and(|(_, last)| last == uid);
        is_last || self.failures.iter().any(|failure| failure.uid == *uid && self.is_news(failure))
    }

    pub fn failed(&mut self, failure: Failure) {
        if let Some(known) = self.failures.iter().position(|known| known.uid == failure.uid) {
            if self.failures[known].at == failure.at {
                self.failures[known].disrupted = failure.disrupted;
                return;
            }
            self.failures.remove(known);
        }
        let disrupted = failure.disrupted;
        let place = self.failures.partition_point(|earlier| (earlier.at, &earlier.uid) < (failure.at, &failure.uid));
        self.failures.insert(place, failure);
        let mut same = self.failures.iter().enumerate().filter(|(_, known)| known.disrupted == disrupted);
        if let (Some((oldest, _)), true) = (same.next(), same.count() >= SATURATED) {
            self.failures.remove(oldest);
        }
    }

    /// The clock was ahead, and was set back: what seems to be in the future happens now.
    pub fn clock_set_back(&mut self, now: Timestamp) {
        let mut failures = std::mem::take(&mut self.failures);
        // Their order is lost below: only those since the last success matter.
        failures.retain(|failure| self.is_news(failure));
        failures.iter_mut().for_each(|failure| failure.at = failure.at.min(now));
        failures.sort_by(|one, other| (one.at, &one.uid).cmp(&(other.at, &other.uid)));
        self.failures = failures;
        if let Some((at, _)) = &mut self.last_success {
            *at = (*at).min(now);
        }
    }

    /// When the next Pod may be created; None means at once (BACKOFF-3, BACKOFF-5).
    pub fn retry_at(&self, policy: &BackoffPolicy, job: &JobUid) -> Option<Timestamp> {
        let count = self.delaying(policy);
        let delays = |failure: &&Failure| delays(failure, policy);
        let last = self.failures.iter().rfind(delays).filter(|_| count > 0)?;
        let seed = JitterSeed { job, index: None };
        Some(last.at + policy.delay_after(count, seed))
    }

    /// How many failures delay the next Pod.
    fn delaying(&self, policy: &BackoffPolicy) -> u32 {
        let count = |failure: &&Failure| delays(failure, policy) && self.is_news(failure);
        let count = self.failures.iter().filter(count).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// The longest delay of a leader that may know so many failures more, because it has seen their Pods.
    pub fn longest_delay(&self, policy: &BackoffPolicy, job: &JobUid, more: u32) -> Span {
        let known = self.delaying(policy);
        // No leader keeps more. Each number has a jitter of its own, so the greatest need not have the longest delay.
        let most = known.saturating_add(more).min(2 * SATURATED as u32).max(known);
        let seed = JitterSeed { job, index: None };
        (known..=most).map(|count| policy.delay_after(count, seed)).max().unwrap_or_default()
    }

    pub fn last_success_at(&self) -> Option<Timestamp> {
        self.last_success.as_ref().map(|(at, _)| *at)
    }

    pub fn last_failure(&self) -> Option<&Failure> {
        self.failures.last()
    }

    /// Whether a failure came after the last success. Times are whole seconds: of two Pods that ended in the same
    /// second, a Pod that was also created in that second counts as the later one.
    fn is_news(&self, failure: &Failure) -> bool {
        self.last_success.as_ref().is_none_or(|(success, _)| {
            failure.at > *success || (failure.at == *success && failure.created_at >= *success)
        })
    }
}

/// BACKOFF-13.
fn delays(failure: &Failure, policy: &BackoffPolicy) -> bool {
    !(failure.disrupted && policy.skips_disruptions())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next_at(history: &FailureHistory) -> Option<Timestamp> {
        history.retry_at(&BackoffPolicy::default(), &JobUid::new("j"))
    }

    fn failure(uid: PodUid, created_at: Timestamp, at: Timestamp) -> Failure {
        Failure { at, uid, created_at, disrupted: false }
    }

    fn history(success_at: Option<i64>, failures_at: &[i64]) -> FailureHistory {
        let mut history = FailureHistory::default();
        for (at, seconds) in failures_at.iter().enumerate() {
            let (uid, at) = (PodUid::from_u128(at as u128), Timestamp::from_seconds(*seconds));
            history.failed(failure(uid, at - Span::from_seconds(1), at));
        }
        if let Some(at) = success_at {
            history.succeeded(Timestamp::from_seconds(at), &PodUid::from_u128(1 << 64));
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
                next_at(&history(success_at, failures_at)),
                retry_at.map(Timestamp::from_seconds),
                "{success_at:?} {failures_at:?}"
            );
        }
    }

    /// BACKOFF-2: another leader may have seen Pods that failed and are gone.
    #[test]
    fn failures_that_another_leader_may_know_lengthen_the_delay() {
        let longest = |history: &FailureHistory, policy: &BackoffPolicy, more| {
            history.longest_delay(policy, &JobUid::new("j"), more).millis() / 1_000
        };
        let plain = BackoffPolicy::default();
        for (success_at, failures_at, more, seconds) in [
            (None, &[][..], 0, 0),
            (None, &[], 3, 40),
            (None, &[100], 0, 10),
            (None, &[100], 2, 40),
            (None, &[100, 200], 1, 40),
            (Some(150), &[100, 200], 1, 20),
            (None, &[100], u32::MAX, 600),
        ] {
            let told = format!("{success_at:?} {failures_at:?} {more}");
            assert_eq!(longest(&history(success_at, failures_at), &plain, more), seconds, "{told}");
        }
        // Of delays that are the longest but for jitter, that of the fewest failures may be the longest.
        let jittered = policy("1s", "1s", "1").unwrap();
        let all = delays(&jittered, &(1..=9).collect::<Vec<_>>());
        for more in 0..=8 {
            let millis = history(None, &[100]).longest_delay(&jittered, &JobUid::new("j"), more).millis();
            assert_eq!(Some(&millis), all[..=more as usize].iter().max(), "{more}");
        }
    }

    #[test]
    fn seeing_a_pod_again_or_in_another_order_changes_nothing() {
        let mut history = history(None, &[100, 200, 300]);
        let before = history.clone();
        history.failed(failure(PodUid::from_u128(1), Timestamp::from_seconds(199), Timestamp::from_seconds(200)));
        assert_eq!(history, before);
        history.failed(failure(PodUid::from_u128(1), Timestamp::from_seconds(199), Timestamp::from_seconds(400)));
        assert_eq!(next_at(&history), Some(Timestamp::from_seconds(440)));
    }

    #[test]
    fn of_two_ends_in_one_second_the_younger_pod_has_the_later() {
        let at = Timestamp::from_seconds;
        for (created_at, retry_at) in [(99, None), (100, Some(at(110)))] {
            let mut history = FailureHistory::default();
            history.succeeded(at(100), &PodUid::from_u128(1 << 64));
            history.failed(failure(PodUid::from_u128(1), at(created_at), at(100)));
            assert_eq!(next_at(&history), retry_at, "created at {created_at}");
        }
    }

    #[test]
    fn only_the_failures_that_can_matter_are_kept() {
        let mut all = FailureHistory::default();
        for at in 0..1000 {
            all.failed(failure(PodUid::from_u128(at), Timestamp::from_seconds(0), Timestamp::from_seconds(at as i64)));
        }
        assert_eq!(all.failures.len(), SATURATED);
        assert_eq!(next_at(&all), Some(Timestamp::from_seconds(999 + 600)));
    }

    fn policy(base: &str, max: &str, jitter: &str) -> Result<BackoffPolicy, String> {
        let given = |text: &'_ str| (!text.is_empty()).then(|| text.to_owned());
        let (base, max, jitter) = (given(base), given(max), given(jitter));
        BackoffPolicy::read(base.as_deref(), max.as_deref(), jitter.as_deref())
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }

    fn delays(policy: &BackoffPolicy, counts: &[u32]) -> Vec<i64> {
        let uid = JobUid::new("j");
        let seed = JitterSeed { job: &uid, index: None };
        counts.iter().map(|count| policy.delay_after(*count, seed).millis()).collect()
    }

    /// BACKOFF-11.
    #[test]
    fn annotations_set_the_delays() {
        for (base, max, expected) in [
            ("", "", [0, 10_000, 20_000, 40_000, 600_000, 600_000]),
            ("1s", "1m", [0, 1_000, 2_000, 4_000, 60_000, 60_000]),
            ("500ms", "", [0, 500, 1_000, 2_000, 600_000, 600_000]),
            ("", "15s", [0, 10_000, 15_000, 15_000, 15_000, 15_000]),
            ("", "3s", [0, 3_000, 3_000, 3_000, 3_000, 3_000]),
            ("20m", "", [0, 1_200_000, 1_200_000, 1_200_000, 1_200_000, 1_200_000]),
            ("0s", "", [0, 0, 0, 0, 0, 0]),
            ("1ms", "24h", [0, 1, 2, 4, 86_400_000, 86_400_000]),
            ("1m30s", "1m30s", [0, 90_000, 90_000, 90_000, 90_000, 90_000]),
            ("1us", "", [0, 1, 2, 4, 600_000, 600_000]),
        ] {
            let policy = policy(base, max, "").unwrap();
            assert_eq!(delays(&policy, &[0, 1, 2, 3, 40, u32::MAX]), expected, "{base} {max}");
            assert_eq!(policy.is_annotated, !(base.is_empty() && max.is_empty()));
        }
        assert_eq!(policy("10s", "10m", ""), policy("10s", "10m", "0"));
    }

    #[test]
    fn what_cannot_be_a_delay_is_refused_with_an_example() {
        for (base, max, jitter, told) in [
            (
                "soon",
                "",
                "",
                "metadata.annotations[tally.dev/backoff-base]: Invalid value: \"soon\": must be a duration, such as 500ms, 10s or 1m30s",
            ),
            ("10", "", "", "must be a duration, such as"),
            ("-1s", "", "", "must not be negative"),
            (
                "",
                "24h1ms",
                "",
                "metadata.annotations[tally.dev/backoff-max]: Invalid value: \"24h1ms\": must be at most 24h",
            ),
            (
                "10s",
                "9s",
                "",
                "[tally.dev/backoff-max]: Invalid value: \"9s\": must not be less than tally.dev/backoff-base",
            ),
            (
                "",
                "",
                "1.1",
                "metadata.annotations[tally.dev/backoff-jitter]: Invalid value: \"1.1\": must be a fraction",
            ),
            ("", "", "-0.1", "must be a fraction"),
            ("", "", "NaN", "must be a fraction"),
            ("", "", "20%", "such as 0.2"),
            ("x", "y", "z", "backoff-jitter"),
        ] {
            let error = policy(base, max, jitter).unwrap_err();
            assert!(error.contains(told), "{base} {max} {jitter}: {error}");
        }
        assert!(policy("24h", "24h", "1").is_ok() && policy("0s", "0s", "0").is_ok());
        // An annotation that is there and empty is invalid.
        assert!(BackoffPolicy::read(Some(""), None, None).is_err());
    }

    #[test]
    fn jitter_only_lengthens_a_delay_and_is_the_same_every_time() {
        let policy = policy("10s", "1m", "0.5").unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..200 {
            let (uid, failures) = (JobUid::new(&format!("job-{number}")), 1 + number % 5);
            let plain = delays(&BackoffPolicy { jitter: 0, ..policy }, &[failures])[0];
            for index in [None, Some(0), Some(7)] {
                let seed = JitterSeed { job: &uid, index };
                let millis = policy.delay_after(failures, seed).millis();
                assert!((plain..=plain * 3 / 2).contains(&millis), "{plain} {millis}");
                assert_eq!(millis, policy.delay_after(failures, seed).millis());
                seen.insert(millis);
            }
        }
        assert!(seen.len() > 400, "only {} different delays", seen.len());
    }

    #[test]
    fn a_wait_says_what_it_is_for() {
        let mut notice = BackoffNotice {
            index: None,
            failures: 3,
            allowed: 7,
            one_task: true,
            waits_for: Span::from_seconds(40),
            retry_at: Timestamp::from_seconds(40),
            cause: Some(FailureCause { exit_code: Some(1), reason: "".into() }),
        };
        let told = "attempt 3 of 7, next in 40 s at 1970-01-01T00:00:40Z (last failure: exit code 1)";
        assert_eq!(notice.to_string(), told);
        notice = BackoffNotice { index: Some(4), one_task: false, failures: 0, cause: None, ..notice };
        assert_eq!(notice.to_string(), "index 4: 0 of 7 failures used, next in 40 s at 1970-01-01T00:00:40Z");
        for (exit_code, reason, told) in [
            (Some(137), "OOMKilled", "exit code 137 (OOMKilled)"),
            (None, "Evicted", "Evicted"),
            (None, "", "no exit code"),
        ] {
            assert_eq!(FailureCause { exit_code, reason: reason.into() }.to_string(), told);
        }
    }

    #[test]
    fn the_message_of_an_event_can_be_read() {
        for message in [
            "attempt 3 of 7, next in 40 s at 2026-01-31T12:00:40Z (last failure: exit code 1)",
            "index 4: attempt 1 of 3, next in 1 s at 2026-01-31T12:00:40Z (last failure: exit code 137 (OOMKilled))",
            "0 of 7 attempts used, next in 2 s at 2026-01-31T12:00:40Z",
            "failure 2 of 7, next in 2 s at 2026-01-31T12:00:40Z (last failure: DeadlineExceeded)",
            "failure 2 of 7, next in 2 s at 2026-01-31T12:00:40Z (last failure: no exit code)",
        ] {
            assert_eq!(BackoffNotice::parse(message).map(|notice| notice.to_string()).as_deref(), Some(message));
        }
        for message in ["", "Back-off restarting failed container", "attempt 3 of 7, next in x s at y"] {
            assert_eq!(BackoffNotice::parse(message), None, "{message}");
        }
    }
}
