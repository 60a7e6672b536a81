//! The annotations that say how long finished Jobs and Pods stay, and how long a Job waits for Pods of dead nodes.

use crate::job::{JobView, condition};
use crate::pod::Phase;
use crate::schedule;
use crate::time::{Span, Timestamp};

/// On a Job: which of its finished Pods are deleted as soon as they are counted (TTL-14).
pub const DELETE_FINISHED_PODS: &str = "tally.dev/delete-finished-pods";
/// On a Pod, and on the template of a Job: how long the Pod stays after its end (TTL-18).
pub const POD_TTL: &str = "tally.dev/ttl-seconds-after-finished";
/// On a Job: how long it stays after its success, and after its failure (TTL-21).
pub const TTL_AFTER_COMPLETE: &str = "tally.dev/ttl-seconds-after-complete";
pub const TTL_AFTER_FAILED: &str = "tally.dev/ttl-seconds-after-failed";
/// On a Namespace: how long its Jobs stay that say nothing themselves (TTL-22).
pub const DEFAULT_TTL: &str = "tally.dev/default-ttl-seconds-after-finished";
/// On a Job that replaces Pods only once they have ended: how long it waits for Pods of a dead node (REPL-8).
pub const REPLACE_TERMINATING_AFTER: &str = "tally.dev/replace-terminating-after";

/// A wait of more than a week is a mistake in the unit.
const LONGEST_WAIT: i64 = 7 * 24 * 3600;

/// Which finished Pods of a running Job are deleted once they are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlyDeletion {
    #[default]
    Nothing,
    Succeeded,
    All,
}

impl EarlyDeletion {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "succeeded" => Some(Self::Succeeded),
            "all" => Some(Self::All),
            _ => None,
        }
    }

    /// Whether a Pod in this phase goes.
    pub fn covers(self, phase: Phase) -> bool {
        match self {
            Self::Nothing => false,
            Self::Succeeded => phase == Phase::Succeeded,
            Self::All => phase.is_terminal(),
        }
    }
}

/// The TTL of a Job for each outcome, as far as it is annotated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TtlByOutcome {
    pub complete: Option<i32>,
    pub failed: Option<i32>,
}

/// TTL-4, TTL-21: when a Job finished, and the TTL that it has itself; None if it has not finished, or is being deleted.
pub fn finished(job: &JobView) -> Option<(Timestamp, Option<i32>)> {
    let terminal = job.status.terminal_condition().filter(|_| !job.deleting)?;
    let by_outcome = if terminal.kind == condition::COMPLETE { job.ttl_after.complete } else { job.ttl_after.failed };
    Some((terminal.last_transition_time?, by_outcome.or(job.spec.ttl_seconds_after_finished)))
}

/// TTL-3 to TTL-5: when a Job expires by its own TTL; None if it never does.
pub fn expires_at(job: &JobView) -> Option<Timestamp> {
    let (finished_at, ttl) = finished(job)?;
    Some(finished_at + Span::from_seconds(i64::from(ttl?)))
}

/// A TTL as an annotation has it: whole seconds, without sign and leading zeros.
pub fn ttl_seconds(text: &str) -> Option<i32> {
    let plain = text == "0" || !text.starts_with(['0', '+']);
    text.parse::<i32>().ok().filter(|seconds| plain && *seconds >= 0)
}

/// How long a Job waits for a Pod of a dead node, or why the text does not say so.
pub fn terminating_wait(text: &str) -> Result<Span, &'static str> {
    let nanoseconds = schedule::duration(text).map_err(|_| "must be a duration, such as 10m or 1h30m")?;
    let seconds = nanoseconds.div_euclid(1_000_000_000);
    match seconds {
        ..1 => Err("must be at least 1s, such as 10m"),
        seconds if seconds > LONGEST_WAIT => Err("must be at most 168h, such as 10m"),
        _ => Ok(Span::from_millis(nanoseconds.div_euclid(1_000_000))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TTL-18.
    #[test]
    fn a_ttl_is_a_number_of_seconds() {
        for (text, seconds) in [
            ("0", Some(0)),
            ("1", Some(1)),
            ("2147483647", Some(i32::MAX)),
            ("2147483648", None),
            ("-1", None),
            ("+1", None),
            ("01", None),
            ("", None),
            ("10s", None),
            (" 1", None),
        ] {
            assert_eq!(ttl_seconds(text), seconds, "{text:?}");
        }
    }

    /// REPL-8.
    #[test]
    fn a_wait_for_a_dead_node_has_bounds() {
        for (text, millis) in [
            ("10m", Some(600_000)),
            ("1s", Some(1_000)),
            ("1500ms", Some(1_500)),
            ("168h", Some(604_800_000)),
            ("168h1s", None),
            ("999ms", None),
            ("0s", None),
            ("-1m", None),
            ("10", None),
        ] {
            assert_eq!(terminating_wait(text).ok().map(Span::millis), millis, "{text:?}");
        }
    }

    /// TTL-14.
    #[test]
    fn early_deletion_covers_what_it_says() {
        let phases = [Phase::Pending, Phase::Running, Phase::Succeeded, Phase::Failed, Phase::Unknown];
        for (text, covered) in [("succeeded", &[Phase::Succeeded][..]), ("all", &[Phase::Succeeded, Phase::Failed])] {
            let early = EarlyDeletion::parse(text).unwrap_or_default();
            for phase in phases {
                assert_eq!(early.covers(phase), covered.contains(&phase), "{text} {phase:?}");
            }
        }
        assert_eq!(EarlyDeletion::parse("All"), None);
        assert!(phases.iter().all(|phase| !EarlyDeletion::Nothing.covers(*phase)));
    }
}
