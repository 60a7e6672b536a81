//! The state of a CronJob with respect to its schedule: what the controller acts on, and what users are told.

use crate::schedule::{Schedule, Zone};
use crate::time::{Span, Timestamp};

/// A number of missed times above this leads to a warning.
const MANY_MISSED: usize = 100;

/// The fields of a CronJob that decide when it is due.
#[derive(Clone, Copy, Debug)]
pub struct CronTimes<'a> {
    pub schedule: &'a str,
    pub time_zone: Option<&'a str>,
    pub created_at: Timestamp,
    pub last_schedule_time: Option<Timestamp>,
    pub starting_deadline: Option<Span>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CronTiming {
    /// The schedule or the time zone is invalid: it will never be due. The reason is that of the Event.
    Unreadable { reason: &'static str, message: String },
    /// Nothing is due. `next`: None means never.
    Wait { next: Option<Timestamp> },
    /// The last scheduled time is too long ago.
    Missed { slot: Timestamp, next: Option<Timestamp> },
    /// A Job should have started at this time. `many`: so many earlier ones should have started that something must be
    /// wrong.
    Due { slot: Timestamp, next: Option<Timestamp>, many: bool },
}

/// The name contains the time of a Job: for one time there is one Job, whichever controller creates it and however
/// often.
pub fn job_name(cron_job: &str, slot: Timestamp) -> String {
    format!("{cron_job}-{}", slot.seconds().div_euclid(60))
}

impl CronTimes<'_> {
    pub fn timing(&self, now: Timestamp) -> CronTiming {
        let zone = match Zone::of(self.schedule, self.time_zone) {
            Ok(zone) => zone,
            Err(problem) => {
                let name = self.time_zone.unwrap_or_default();
                let message = format!("invalid timeZone: {name:?}: {problem}");
                return CronTiming::Unreadable { reason: "UnknownTimeZone", message };
            }
        };
        let schedule = match Schedule::parse(self.schedule) {
            Ok(schedule) => schedule,
            Err(problem) => {
                let message = format!("unparseable schedule: {:?} : {problem}", self.schedule);
                return CronTiming::Unreadable { reason: "UnparseableSchedule", message };
            }
        };
        let since = self.last_schedule_time.unwrap_or(self.created_at);
        let slot = schedule.last_within(since, now, &zone);
        let next = match (&schedule, slot) {
            // Intervals are counted from one scheduled time to the next, not from now.
            (Schedule::Every(_), slot) => schedule.next_after(slot.unwrap_or(since), &zone),
            (Schedule::Calendar(_), _) => schedule.next_after(now, &zone),
        };
        let Some(slot) = slot else { return CronTiming::Wait { next } };
        // Whole seconds, like the deadline: the moments until this code runs do not count.
        if self.starting_deadline.is_some_and(|deadline| slot + deadline < now.truncated()) {
            return CronTiming::Missed { slot, next };
        }
        let earliest = self.starting_deadline.map_or(since, |deadline| since.max(now - deadline));
        let missed = std::iter::successors(Some(earliest), |at| schedule.next_after(*at, &zone));
        let many = missed.skip(1).take(MANY_MISSED + 1).filter(|at| *at <= now).count() > MANY_MISSED;
        CronTiming::Due { slot, next, many }
    }
}
