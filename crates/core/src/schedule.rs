//! When a CronJob is due: the five fields of cron, a descriptor such as `@daily`, or `@every 1h30m`.
//!
//! Parses the text and reports errors with the messages that clients know. A schedule is stored as bit sets, from which
//! the next time is computed without parsing the text again (`times`).

mod times;

pub use times::Zone;

use std::ops::RangeInclusive;

use crate::time::Span;
use jiff::tz::TimeZone;

#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    Calendar(Calendar),
    /// At least a second, and whole seconds.
    Every(Span),
}

/// The minutes at which a schedule is due: those whose five parts are all in these sets. Bit n stands for the number n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calendar {
    pub minutes: u64,
    pub hours: u64,
    pub days_of_month: u64,
    pub months: u64,
    /// Sunday is 0.
    pub days_of_week: u64,
}

/// Set in a field that was written as `*` or `?`. If neither field of days has this bit, a match of either one is
/// sufficient.
pub const STAR: u64 = 1 << 63;

/// One of the five fields: its numbers, and the names that stand for some of them, in order from the lowest number.
struct Field {
    numbers: RangeInclusive<u64>,
    names: &'static [&'static str],
}

const MINUTES: Field = Field { numbers: 0..=59, names: &[] };
const HOURS: Field = Field { numbers: 0..=23, names: &[] };
const DAYS_OF_MONTH: Field = Field { numbers: 1..=31, names: &[] };
const MONTHS: Field = Field {
    numbers: 1..=12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const DAYS_OF_WEEK: Field = Field { numbers: 0..=6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

const EVERY: &str = "@every ";

/// The error for a time zone with nothing after it. The reference implementation panics there and returns the text of
/// the panic.
const NOTHING_AFTER_ZONE: &str = "invalid schedule format: runtime error: slice bounds out of range [:-1]";

/// The time zone in the text of a schedule, an obsolete form, together with what follows it.
fn written_zone(text: &str) -> Option<&str> {
    text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ="))
}

impl Schedule {
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest = match written_zone(text) {
            None => text,
            Some(rest) => {
                let (zone, rest) = rest.split_once(' ').ok_or(NOTHING_AFTER_ZONE)?;
                location(zone).map_err(|problem| format!("provided bad location {zone}: {problem}"))?;
                rest.trim()
            }
        };
        if let Some(every) = rest.strip_prefix(EVERY) {
            let nanoseconds =
                duration(every).map_err(|problem| format!("failed to parse duration {rest}: {problem}"))?;
            return Ok(Self::Every(Span::from_seconds((nanoseconds / SECOND).max(1))));
        }
        let written = match rest {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other if other.starts_with('@') => return Err(format!("unrecognized descriptor: {other}")),
            fields => fields,
        };
        calendar(written).map(Self::Calendar)
    }
}

fn calendar(text: &str) -> Result<Calendar, String> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let &[minutes, hours, days_of_month, months, days_of_week] = fields.as_slice() else {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    };
    Ok(Calendar {
        minutes: MINUTES.read(minutes)?,
        hours: HOURS.read(hours)?,
        days_of_month: DAYS_OF_MONTH.read(days_of_month)?,
        months: MONTHS.read(months)?,
        days_of_week: DAYS_OF_WEEK.read(days_of_week)?,
    })
}

impl Field {
    /// A list of ranges. An empty part between two commas is ignored, not an error.
    fn read(&self, text: &str) -> Result<u64, String> {
        text.split(',').filter(|part| !part.is_empty()).try_fold(0, |bits, part| Ok(bits | self.range(part)?))
    }

    /// `n`, `n-m`, `*` or `?`, each with an optional step. `n/step` continues to the highest number.
    fn range(&self, text: &str) -> Result<u64, String> {
        let (lowest, highest) = (*self.numbers.start(), *self.numbers.end());
        let mut parts = text.split('/');
        let (range, step, more) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        let mut ends = range.split('-');
        let (first, last) = (ends.next().unwrap_or_default(), ends.next());
        let mut star = 0;
        let (start, mut end) = if matches!(first, "*" | "?") {
            star = STAR;
            (lowest, highest)
        } else {
            let start = self.number(first)?;
            let end = match (last, ends.next()) {
                (None, _) => start,
                (Some(last), None) => self.number(last)?,
                (Some(_), Some(_)) => return Err(format!("too many hyphens: {text}")),
            };
            (start, end)
        };
        let step = match (step, more) {
            (None, _) => 1,
            (Some(step), None) => {
                let step = integer(step)?;
                if last.is_none() {
                    end = highest;
                }
                if step > 1 {
                    star = 0;
                }
                step
            }
            (Some(_), Some(_)) => return Err(format!("too many slashes: {text}")),
        };
        if start < lowest {
            return Err(format!("beginning of range ({start}) below minimum ({lowest}): {text}"));
        }
        if end > highest {
            return Err(format!("end of range ({end}) above maximum ({highest}): {text}"));
        }
        if start > end {
            return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
        }
        let step = usize::try_from(step).unwrap_or(usize::MAX);
        if step == 0 {
            return Err(format!("step of range should be a positive number: {text}"));
        }
        Ok((start..=end).step_by(step).fold(star, |bits, number| bits | 1 << number))
    }

    fn number(&self, text: &str) -> Result<u64, String> {
        match self.names.iter().zip(self.numbers.clone()).find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            Some((_, number)) => Ok(number),
            None => integer(text),
        }
    }
}

/// A non-negative number. A plus sign and leading zeros are allowed.
fn integer(text: &str) -> Result<u64, String> {
    let failed = |why: &str| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}");
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(failed("invalid syntax"));
    }
    let number: i64 = text.parse().map_err(|_| failed("value out of range"))?;
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

/// Whether a time zone is known. Names must match exactly, like file names.
pub fn location(name: &str) -> Result<(), String> {
    if matches!(name, "" | "UTC" | "Local") {
        return Ok(());
    }
    if name.contains("..") || name.starts_with(['/', '\\']) {
        return Err("time: invalid location name".to_owned());
    }
    match TimeZone::get(name) {
        Ok(zone) if !zone.is_unknown() && zone.iana_name() == Some(name) => Ok(()),
        _ => Err(format!("unknown time zone {name}")),
    }
}

const SECOND: i64 = 1_000_000_000;
/// The units of a duration, in nanoseconds. The micro sign and the Greek letter look the same, and both are in use.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3_600 * SECOND),
];

/// A duration such as `1h30m` or `1.5s`, in nanoseconds.
pub fn duration(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: i64 = 0;
    while !rest.is_empty() {
        let whole = take(&mut rest, |letter| letter.is_ascii_digit());
        let fraction = match rest.strip_prefix('.') {
            None => "",
            Some(after) => {
                rest = after;
                take(&mut rest, |letter| letter.is_ascii_digit())
            }
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let unit = take(&mut rest, |letter| letter != '.' && !letter.is_ascii_digit());
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let Some((_, unit)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("time: unknown unit {unit:?} in duration {text:?}"));
        };
        let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        // Digits that amount to less than a nanosecond, even of an hour, make no difference.
        let (part, scale) = fraction
            .bytes()
            .take(13)
            .fold((0, 1), |(part, scale): (i128, i128), digit| (part * 10 + i128::from(digit - b'0'), scale * 10));
        let part = i64::try_from(part * i128::from(*unit) / scale).map_err(|_| invalid())?;
        let sum = whole.checked_mul(*unit).and_then(|whole| whole.checked_add(part));
        total = sum.and_then(|sum| total.checked_add(sum)).ok_or_else(invalid)?;
    }
    Ok(if negative { -total } else { total })
}

/// Removes the longest prefix whose characters pass the test, and returns it.
fn take<'t>(text: &mut &'t str, test: impl Fn(char) -> bool) -> &'t str {
    let end = text.find(|letter| !test(letter)).unwrap_or(text.len());
    let (taken, rest) = text.split_at(end);
    *text = rest;
    taken
}
