//! Time as a value. Nothing in this crate reads a clock; `now` is always an argument.

use std::fmt;
use std::ops::{Add, Sub};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// An instant in microseconds since 1970, negative before. The wire has whole seconds; fractions that a
/// client sent are kept while validating and dropped when written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// A span in microseconds. May be negative: clocks step back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(i64);

const MICROS: i64 = 1_000_000;

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

    /// As the wire will carry it: whole seconds, rounded down.
    pub const fn truncated(self) -> Self {
        Self::from_seconds(self.seconds())
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let parsed: jiff::Timestamp = text
            .parse()
            .map_err(|_| format!("{text:?} is not an RFC 3339 time such as 2026-01-31T12:00:00Z"))?;
        Ok(Self(parsed.as_microsecond()))
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
        match jiff::Timestamp::from_second(self.seconds()) {
            Ok(instant) => fmt::Display::fmt(&instant, f),
            // Beyond the years the format can express. Only reachable through saturation.
            Err(_) if self.0 < 0 => f.write_str("-009999-01-02T01:59:59Z"),
            Err(_) => f.write_str("9999-12-30T22:00:00Z"),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(Timestamp::parse("yesterday").unwrap_err().contains("RFC 3339"));
    }

    #[test]
    fn arithmetic_saturates_instead_of_panicking() {
        let end = Timestamp::from_seconds(1) + Span::from_seconds(i64::MAX);
        assert!(end > Timestamp::from_seconds(1));
        assert!(!end.to_string().is_empty());
        assert!((Timestamp::from_seconds(i64::MIN) - end) < Span::ZERO);
    }
}
