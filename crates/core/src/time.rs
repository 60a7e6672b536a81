//! Time as a value. Nothing in this crate reads a clock; `now` is always an argument.

use std::fmt;
use std::ops::{Add, Sub};

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::view::read_text;

/// An instant in microseconds since 1970, negative before. Times on the wire are whole seconds; fractions that a client
/// sent are kept during validation and dropped when the time is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// A span in microseconds. May be negative: clocks step back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(i64);

const MICROS: i64 = 1_000_000;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
/// The range that a four-digit year can express: from 0000-01-01T00:00:00Z to 9999-12-31T23:59:59Z.
const FIRST: Timestamp = Timestamp::from_seconds(-62_167_219_200);
const LAST: Timestamp = Timestamp::from_seconds(253_402_300_799);

impl Timestamp {
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(MICROS))
    }

    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(MICROS)
    }

    pub const fn millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// The part that is less than a second.
    pub const fn micros_of_second(self) -> i64 {
        self.0.rem_euclid(MICROS)
    }

    /// As it is written on the wire: whole seconds, rounded down.
    pub const fn truncated(self) -> Self {
        Self::from_seconds(self.seconds())
    }

    /// Reads an RFC 3339 time and rejects everything that is merely similar: what we accept, the API server accepts
    /// too.
    pub fn parse(text: &str) -> Result<Self, String> {
        parse_rfc3339(text.as_bytes())
            .ok_or_else(|| format!("{text:?} is not an RFC 3339 time such as 2026-01-31T12:00:00Z"))
    }
}

fn parse_rfc3339(text: &[u8]) -> Option<Timestamp> {
    let (clock, rest) = text.split_at_checked(19)?;
    if [clock[4], clock[7], clock[10], clock[13], clock[16]] != *b"--T::" {
        return None;
    }
    let date = Date::new(
        number(&clock[0..4])?,
        i8::try_from(number(&clock[5..7])?).ok()?,
        i8::try_from(number(&clock[8..10])?).ok()?,
    )
    .ok()?;
    let time = Time::new(
        i8::try_from(number(&clock[11..13])?).ok()?,
        i8::try_from(number(&clock[14..16])?).ok()?,
        i8::try_from(number(&clock[17..19])?).ok()?,
        0,
    )
    .ok()?;
    let (micros, rest) = fraction(rest)?;
    let seconds = date.to_datetime(time).duration_since(EPOCH).as_secs() - offset(rest)?;
    (FIRST.0..=LAST.0).contains(&seconds.checked_mul(MICROS)?).then(|| Timestamp(seconds * MICROS + micros))
}

/// Accepts digits only; the callers pass two or four.
fn number(digits: &[u8]) -> Option<i16> {
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + i16::from(digit - b'0')))
}

/// An optional fraction of a second, in microseconds, and what follows it.
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some((b'.' | b',', rest)) = text.split_first() else {
        return Some((0, text));
    };
    let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = rest.split_at(length);
    if digits.is_empty() {
        return None;
    }
    let digits = digits.iter().map(|digit| i64::from(digit - b'0')).chain(std::iter::repeat(0));
    Some((digits.take(6).fold(0, |micros, digit| micros * 10 + digit), rest))
}

/// The offset from UTC in seconds.
fn offset(text: &[u8]) -> Option<i64> {
    match *text {
        [b'Z'] => Some(0),
        [sign @ (b'+' | b'-'), h, hh, b':', m, mm] => {
            let (hours, minutes) = (i64::from(number(&[h, hh])?), i64::from(number(&[m, mm])?));
            let seconds = hours * 3600 + minutes * 60;
            (hours < 24 && minutes < 60).then_some(if sign == b'-' { -seconds } else { seconds })
        }
        _ => None,
    }
}

impl Span {
    pub const ZERO: Self = Self(0);

    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(MICROS))
    }

    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    pub const fn millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    pub fn as_seconds_f64(self) -> f64 {
        self.0 as f64 / MICROS as f64
    }
}

/// Saturating: a deadline of 2^63 seconds is "never", not a panic.
impl Add<Span> for Timestamp {
    type Output = Timestamp;
    fn add(self, span: Span) -> Timestamp {
        Timestamp(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Timestamp {
    type Output = Timestamp;
    fn sub(self, span: Span) -> Timestamp {
        Timestamp(self.0.saturating_sub(span.0))
    }
}

impl Sub for Timestamp {
    type Output = Span;
    fn sub(self, earlier: Timestamp) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only saturated values are outside the years that the format can express.
        let seconds = (*self).clamp(FIRST, LAST).seconds();
        let civil = EPOCH.saturating_add(SignedDuration::from_secs(seconds));
        // Several times are written for each write of an object: the digits are put in their places.
        let mut text = *b"0000-00-00T00:00:00Z";
        let mut put = |from: usize, number: u16| {
            text[from] += (number / 10 % 10) as u8;
            text[from + 1] += (number % 10) as u8;
        };
        put(0, civil.year().unsigned_abs() / 100);
        put(2, civil.year().unsigned_abs() % 100);
        for (from, number) in
            [(5, civil.month()), (8, civil.day()), (11, civil.hour()), (14, civil.minute()), (17, civil.second())]
        {
            put(from, u16::from(number.unsigned_abs()));
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_text(deserializer, "a time", Self::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_calendar_has_them() {
        for seconds in
            [FIRST.seconds(), -62_000_000_000, -1, 0, 951_782_400, 1_700_000_000, 253_402_300_799, LAST.seconds()]
        {
            let civil = EPOCH.saturating_add(SignedDuration::from_secs(seconds));
            assert_eq!(Timestamp::from_seconds(seconds).to_string(), format!("{civil}Z"));
        }
    }

    #[test]
    fn wire_times_are_whole_seconds_rounded_down_also_before_1970() {
        for (text, written) in [
            ("2026-01-31T12:00:00.9Z", "2026-01-31T12:00:00Z"),
            ("2026-01-31T13:00:00+01:00", "2026-01-31T12:00:00Z"),
            ("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59Z"),
            ("1966-03-01T00:00:00Z", "1966-03-01T00:00:00Z"),
        ] {
            assert_eq!(Timestamp::parse(text).unwrap().to_string(), written, "{text}");
        }
    }

    #[test]
    fn what_is_not_rfc_3339_is_refused() {
        for text in [
            "",
            "yesterday",
            "2026-01-31",
            "2026-01-31T12:00:00",
            "2026-01-31 12:00:00Z",
            "2026-01-31t12:00:00z",
            "20260131T120000Z",
            "2026-01-31T12:00Z",
            "2026-01-31T12:00:00Z[UTC]",
            "2026-01-31T12:00:00Z ",
            " 2026-01-31T12:00:00Z",
            "2026-02-30T12:00:00Z",
            "2026-13-01T12:00:00Z",
            "2026-01-31T24:00:00Z",
            "2026-01-31T23:59:60Z",
            "2026-01-31T12:00:00.Z",
            "2026-01-31T12:00:00+0100",
            "2026-01-31T12:00:00+01",
            "2026-01-31T12:00:00+1:00",
            "2026-01-31T12:00:00+24:00",
            "2026-01-31T12:00:00+01:60",
            "2026-01-31T12:00:00+:00",
            "+02026-01-31T12:00:00Z",
            "-001-01-01T00:00:00Z",
            "0000-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
            "２０２６-01-31T12:00:00Z",
        ] {
            let error = Timestamp::parse(text).unwrap_err();
            assert!(error.contains("is not an RFC 3339 time"), "{text:?}: {error}");
        }
    }

    #[test]
    fn every_time_that_can_be_written_is_read_back() {
        for text in ["0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2024-02-29T00:00:00Z"] {
            assert_eq!(Timestamp::parse(text).unwrap().to_string(), text);
        }
        for (beyond, written) in [(i64::MIN, "0000-01-01T00:00:00Z"), (i64::MAX, "9999-12-31T23:59:59Z")] {
            assert_eq!(Timestamp::from_seconds(beyond).to_string(), written);
        }
        let fine = Timestamp::parse("2026-01-31T12:00:00,123456789+00:00").unwrap();
        assert_eq!(fine - Timestamp::parse("2026-01-31T12:00:00Z").unwrap(), Span(123_456));
    }

    #[test]
    fn parts_of_seconds_are_rounded_down() {
        for (micros, millis) in [(1_999, 1), (-1, -1), (-1_000, -1), (5_000_000, 5_000)] {
            assert_eq!((Timestamp(micros).millis(), Span(micros).millis()), (millis, millis), "{micros}");
        }
        assert_eq!(Span::from_millis(1_500).as_seconds_f64(), 1.5);
    }

    #[test]
    fn arithmetic_saturates_instead_of_panicking() {
        let end = Timestamp::from_seconds(1) + Span::from_seconds(i64::MAX);
        assert!(end > Timestamp::from_seconds(1));
        assert!(!end.to_string().is_empty());
        assert!((Timestamp::from_seconds(i64::MIN) - end) < Span::ZERO);
    }
}
