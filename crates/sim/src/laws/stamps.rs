//! I19: the times in a status, and I11: nothing happens too early.

use tally_core::time::Timestamp;

use super::times::expiry;
use super::{Laws, StatusWrite};
use crate::laws::read::Job;

impl Laws {
    /// I11: a Job is deleted only once its TTL has run out by the server's clock.
    pub(super) fn check_expiry(&mut self, job: &Job, now: Timestamp) {
        let expired = expiry(job).is_some_and(|at| now >= at);
        self.require(expired, "I11", || {
            format!("{} was deleted, and expires at {:?}", job.metadata.name, expiry(job).map(Timestamp::seconds))
        });
    }

    /// I19: a Job starts when it is first worked on and again when it is resumed, and at no other time; a suspended Job
    /// has not started. A decision and an end have the time of the write, or that of the start if a clock stepped back;
    /// only Complete has a completionTime.
    pub(super) fn check_stamps(&mut self, write: &StatusWrite<'_>) {
        let (before, after) = (write.before, write.after);
        let now = write.context.asked_at.truncated();
        let name = &after.metadata.name;
        let suspended = |job: &Job| job.condition("Suspended").is_some();
        let (old, new) = (before.status.start_time, after.status.start_time);
        let ends = before.terminal().is_none() && after.terminal().is_some();
        let resumed = suspended(before) && !suspended(after);
        let lawful = match (old, new) {
            (None, None) => after.spec.suspend,
            (None, Some(at)) => at == now && (!after.spec.suspend || ends),
            (Some(_), None) => after.spec.suspend && suspended(after) && !suspended(before),
            (Some(old), Some(new)) if old == new => !resumed || new == now,
            (Some(_), Some(new)) => resumed && new == now && !after.spec.suspend,
        };
        let told = !suspended(after) || suspended(before) || new.is_none();
        self.require(lawful && told, "I19", || {
            format!("{name}: startTime {old:?} became {new:?} at {now:?}, suspend {}", after.spec.suspend)
        });
        let stamp = Some(new.map_or(now, |start_at| now.max(start_at)));
        for kind in ["SuccessCriteriaMet", "FailureTarget", "Complete", "Failed"] {
            if let (None, Some(fresh)) = (before.condition(kind), after.condition(kind)) {
                let at = fresh.last_transition_time;
                self.require(at == stamp, "I19", || format!("{name}: {kind} at {at:?}, not {stamp:?}"));
            }
        }
        let completed_at = after.status.completion_time;
        if ends {
            let expected = stamp.filter(|_| after.condition("Complete").is_some());
            self.require(completed_at == expected, "I19", || {
                format!("{name}: completionTime {completed_at:?}, not {expected:?}")
            });
        } else if after.terminal().is_none() {
            self.require(completed_at.is_none(), "I19", || format!("{name}: completed at {completed_at:?}, and runs"));
        }
    }
}
