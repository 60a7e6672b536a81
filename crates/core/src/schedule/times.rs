//! The instants at which a schedule is due. A calendar is due at every minute whose local time matches: hours that a
//! clock change skips do not occur, and hours that it repeats occur twice.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};

use super::{Calendar, STAR, Schedule, location, written_zone};
use crate::time::{Span, Timestamp};

/// The time zone in which a schedule is evaluated.
#[derive(Clone, Debug)]
pub struct Zone(TimeZone);

/// February 29 occurs after at most eight years; a date that does not occur within nine years never occurs.
const HORIZON: Span = Span::from_seconds(9 * 366 * 86_400);

impl Zone {
    pub const UTC: Self = Self(TimeZone::UTC);

    /// "" and `Local` mean UTC: nothing depends on where a controller runs.
    pub fn named(name: &str) -> Result<Self, String> {
        location(name)?;
        match name {
            "" | "UTC" | "Local" => Ok(Self::UTC),
            name => TimeZone::get(name).map(Self).map_err(|_| format!("unknown time zone {name}")),
        }
    }

    /// The zone of a CronJob: from its own field, or else from the text of its schedule.
    pub fn of(schedule: &str, time_zone: Option<&str>) -> Result<Self, String> {
        let written = written_zone(schedule).and_then(|rest| rest.split_once(' ')).map(|(zone, _)| zone);
        Self::named(time_zone.or(written).unwrap_or_default())
    }

    /// The instant in RFC 3339 format, with the offset that applies in this zone.
    pub fn rfc3339(&self, at: Timestamp) -> String {
        let Some(instant) = instant(at) else { return at.to_string() };
        let offset = self.0.to_offset(instant);
        let local = offset.to_datetime(instant);
        let seconds = offset.seconds();
        if seconds == 0 {
            return format!("{local}Z");
        }
        let (sign, minutes) = (if seconds < 0 { '-' } else { '+' }, seconds.abs() / 60);
        format!("{local}{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }

    /// The offset that applies from `at` on, and the instant at which it changes, if it does.
    fn ahead(&self, at: jiff::Timestamp) -> (Offset, Option<jiff::Timestamp>) {
        (self.0.to_offset(at), self.0.following(at).next().map(|change| change.timestamp()))
    }

    /// The offset at `at`, and since when it applies.
    fn behind(&self, at: jiff::Timestamp) -> (Offset, Option<jiff::Timestamp>) {
        // `preceding` excludes a change at exactly this instant.
        let next = at.checked_add(jiff::SignedDuration::from_secs(1)).unwrap_or(at);
        (self.0.to_offset(at), self.0.preceding(next).next().map(|change| change.timestamp()))
    }
}

/// Whole seconds, rounded down.
fn instant(at: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_second(at.seconds()).ok()
}

fn timestamp(local: DateTime, offset: Offset) -> Option<Timestamp> {
    offset.to_timestamp(local).ok().map(|at| Timestamp::from_seconds(at.as_second()))
}

impl Schedule {
    /// The first time after `after` at which this is due. `@every` counts from `after`. None: never, or so far away
    /// that no caller waits for it.
    pub fn next_after(&self, after: Timestamp, zone: &Zone) -> Option<Timestamp> {
        match self {
            Self::Every(span) => Some(after.truncated() + *span),
            Self::Calendar(calendar) => calendar.next_after(after, zone),
        }
    }

    /// The last time after `after`, up to `until`, at which this is due. `@every` counts from `after`.
    pub fn last_within(&self, after: Timestamp, until: Timestamp, zone: &Zone) -> Option<Timestamp> {
        match self {
            Self::Every(span) => {
                let (from, span) = (after.seconds(), span.millis() / 1000);
                let times = until.seconds().saturating_sub(from).checked_div(span).filter(|times| *times > 0)?;
                Some(Timestamp::from_seconds(from + times * span))
            }
            Self::Calendar(calendar) => calendar.last_until(until, zone).filter(|at| *at > after),
        }
    }
}

impl Calendar {
    fn next_after(&self, after: Timestamp, zone: &Zone) -> Option<Timestamp> {
        let mut from = instant(after + Span::from_seconds(1))?;
        let horizon = instant(after + HORIZON)?;
        // Between two clock changes, local time advances like civil time.
        while from <= horizon {
            let (offset, change) = zone.ahead(from);
            let until = change.map_or(horizon, |change| change.min(horizon));
            if let Some(local) = self.first_within(offset.to_datetime(from), offset.to_datetime(until)) {
                return timestamp(local, offset);
            }
            from = change?;
        }
        None
    }

    fn last_until(&self, until: Timestamp, zone: &Zone) -> Option<Timestamp> {
        let mut until = instant(until)?;
        let horizon = instant(Timestamp::from_seconds(until.as_second()) - HORIZON)?;
        while until >= horizon {
            let (offset, change) = zone.behind(until);
            let from = change.map_or(horizon, |change| change.max(horizon));
            if let Some(local) = self.last_between(offset.to_datetime(from), offset.to_datetime(until)) {
                return timestamp(local, offset);
            }
            until = change?.checked_sub(jiff::SignedDuration::from_secs(1)).ok()?;
        }
        None
    }

    /// The first minute that matches, not before `from` and before `until`.
    fn first_within(&self, from: DateTime, until: DateTime) -> Option<DateTime> {
        let mut date = from.date();
        let mut earliest = from.time();
        while date <= until.date() {
            if !has(self.months, date.month()) {
                date = date.last_of_month().tomorrow().ok()?;
            } else {
                let time = if self.has_day(date) { self.first_time(earliest) } else { None };
                if let Some(time) = time {
                    return Some(date.to_datetime(time)).filter(|found| *found < until);
                }
                date = date.tomorrow().ok()?;
            }
            earliest = Time::midnight();
        }
        None
    }

    /// The last minute that matches, not before `from` and not after `until`.
    fn last_between(&self, from: DateTime, until: DateTime) -> Option<DateTime> {
        let mut date = until.date();
        let mut latest = until.time();
        while date >= from.date() {
            if !has(self.months, date.month()) {
                date = date.first_of_month().yesterday().ok()?;
            } else {
                let time = if self.has_day(date) { self.last_time(latest) } else { None };
                if let Some(time) = time {
                    return Some(date.to_datetime(time)).filter(|found| *found >= from);
                }
                date = date.yesterday().ok()?;
            }
            latest = Time::MAX;
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let of_month = has(self.days_of_month, date.day());
        let of_week = has(self.days_of_week, date.weekday().to_sunday_zero_offset());
        let any = (self.days_of_month | self.days_of_week) & STAR != 0;
        if any { of_month && of_week } else { of_month || of_week }
    }

    fn first_time(&self, earliest: Time) -> Option<Time> {
        let begun = earliest.second() > 0 || earliest.subsec_nanosecond() > 0;
        let minute = earliest.minute() + i8::from(begun);
        (earliest.hour()..24).filter(|hour| has(self.hours, *hour)).find_map(|hour| {
            let from = if hour == earliest.hour() { minute } else { 0 };
            (from..60).find(|minute| has(self.minutes, *minute)).and_then(|minute| Time::new(hour, minute, 0, 0).ok())
        })
    }

    fn last_time(&self, latest: Time) -> Option<Time> {
        (0..=latest.hour()).rev().filter(|hour| has(self.hours, *hour)).find_map(|hour| {
            let to = if hour == latest.hour() { latest.minute() } else { 59 };
            (0..=to)
                .rev()
                .find(|minute| has(self.minutes, *minute))
                .and_then(|minute| Time::new(hour, minute, 0, 0).ok())
        })
    }
}

fn has(bits: u64, number: i8) -> bool {
    bits >> number & 1 == 1
}
