//! Times as clients write them, converted to UTC as the API writes them, and the errors for invalid ones.

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time};
use tally_value::Text;

pub struct Read {
    /// `2024-01-01T00:00:00Z`; a fraction of a second is kept, without trailing zeros. A time in microseconds always
    /// has six digits.
    pub text: String,
    pub below_second: bool,
}

const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
const MICROS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// None for the zero time, which is equivalent to no time.
pub fn read(text: &str, micros: bool) -> Result<Option<Read>, String> {
    let layout = if micros { MICROS } else { SECONDS };
    let (local, offset) = Parts { whole: text, layout, rest: text }.read(micros)?;
    // A time on the wire has a year of four digits, in UTC too: another one could be stored, but not be read again.
    let utc = local.checked_sub(SignedDuration::from_secs(offset)).ok().filter(|utc| utc.year() >= 0);
    let utc = utc.ok_or_else(|| format!("parsing time {text:?}: year out of range"))?;
    if utc == DateTime::constant(1, 1, 1, 0, 0, 0, 0) {
        return Ok(None);
    }
    // Most times come as they are written here.
    if !micros && text.len() == "2006-01-02T15:04:05Z".len() && text.ends_with('Z') && text.as_bytes()[13] == b':' {
        return Ok(Some(Read { text: text.to_owned(), below_second: false }));
    }
    let mut text = format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
        utc.year(),
        utc.month(),
        utc.day(),
        utc.hour(),
        utc.minute(),
        utc.second()
    );
    let nanos = utc.subsec_nanosecond();
    if micros {
        text.push_str(&format!(".{:06}", nanos / 1000));
    } else if nanos > 0 {
        text.push_str(format!(".{nanos:09}").trim_end_matches('0'));
    }
    text.push('Z');
    Ok(Some(Read { text, below_second: nanos > 0 }))
}

/// Whether `read` would leave the time, which is to the second, as it is: true for almost all that are written so.
pub fn is_canonical(text: &str) -> bool {
    let digits = |from: usize| match text.as_bytes().get(from..from + 2) {
        Some([tens @ b'0'..=b'9', ones @ b'0'..=b'9']) => (tens - b'0') * 10 + (ones - b'0'),
        _ => u8::MAX,
    };
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'Z')];
    // The zero time is in the first century, and how many days a month has is left to `read`.
    text.len() == 20
        && marks.iter().all(|(at, mark)| text.as_bytes()[*at] == *mark)
        && (1..100).contains(&digits(0))
        && digits(2) < 100
        && (1..=12).contains(&digits(5))
        && (1..=28).contains(&digits(8))
        && digits(11) < 24
        && digits(14) < 60
        && digits(17) < 60
}

/// Removes the fraction of a second from a time that `read` wrote.
pub fn truncate(text: &mut Text) {
    if let Some(point) = text.find('.') {
        *text = format!("{}Z", &text[..point]).into();
    }
}

struct Parts<'t> {
    whole: &'t str,
    layout: &'static str,
    rest: &'t str,
}

impl Parts<'_> {
    /// The time as written, and the offset of its zone from UTC in seconds.
    fn read(mut self, micros: bool) -> Result<(DateTime, i64), String> {
        let year = self.digits(4, 4, "2006")?;
        self.literal("-")?;
        let month = self.digits(2, 2, "01")?;
        self.within(month, 1, 12, "month")?;
        self.literal("-")?;
        let day = self.digits(2, 2, "02")?;
        self.literal("T")?;
        let hour = self.digits(1, 2, "15")?;
        self.within(hour, 0, 23, "hour")?;
        self.literal(":")?;
        let minute = self.digits(2, 2, "04")?;
        self.within(minute, 0, 59, "minute")?;
        self.literal(":")?;
        let second = self.digits(2, 2, "05")?;
        self.within(second, 0, 59, "second")?;
        let nanos = if micros { self.six_digits()? } else { self.fraction() };
        let offset = self.zone()?;
        if !self.rest.is_empty() {
            return Err(format!("parsing time {:?}: extra text: {:?}", self.whole, self.rest));
        }
        // All of them have two or four digits, so they fit; only the day may be too large for its month.
        let small = |number: i64| number as i8;
        let date = Date::new(year as i16, small(month), small(day));
        let time = Time::new(small(hour), small(minute), small(second), nanos);
        match (date, time) {
            (Ok(date), Ok(time)) => Ok((date.to_datetime(time), offset)),
            _ => Err(self.out_of_range("day")),
        }
    }

    fn cannot(&self, element: &str) -> String {
        format!("parsing time {:?} as {:?}: cannot parse {:?} as {element:?}", self.whole, self.layout, self.rest)
    }

    fn out_of_range(&self, what: &str) -> String {
        format!("parsing time {:?}: {what} out of range", self.whole)
    }

    fn within(&self, number: i64, least: i64, most: i64, what: &str) -> Result<(), String> {
        if (least..=most).contains(&number) { Ok(()) } else { Err(self.out_of_range(what)) }
    }

    fn literal(&mut self, text: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(text).ok_or_else(|| self.cannot(text))?;
        Ok(())
    }

    fn digits(&mut self, least: usize, most: usize, element: &str) -> Result<i64, String> {
        let count = self.rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
        if count < least {
            return Err(self.cannot(element));
        }
        let (digits, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(digits.bytes().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
    }

    /// A point and digits, if present; digits below the nanosecond are dropped.
    fn fraction(&mut self) -> i32 {
        let Some(after) = self.rest.strip_prefix(['.', ',']) else { return 0 };
        let count = after.bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 {
            return 0;
        }
        let (digits, rest) = after.split_at(count);
        self.rest = rest;
        let padded = digits.bytes().chain(std::iter::repeat(b'0')).take(9);
        padded.fold(0, |number, digit| number * 10 + i32::from(digit - b'0'))
    }

    /// A point and exactly six digits.
    fn six_digits(&mut self) -> Result<i32, String> {
        let after = self.rest.strip_prefix(['.', ',']).unwrap_or_default();
        let Some((digits, rest)) = after.split_at_checked(6) else { return Err(self.cannot(".000000")) };
        let Some(micros) = digits.parse::<u32>().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
        else {
            return Err(self.cannot(".000000"));
        };
        self.rest = rest;
        Ok(micros as i32 * 1000)
    }

    fn zone(&mut self) -> Result<i64, String> {
        const ELEMENT: &str = "Z07:00";
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let bytes = self.rest.as_bytes();
        let digit = |at: usize| bytes.get(at).filter(|byte| byte.is_ascii_digit()).map(|byte| i64::from(byte - b'0'));
        let sign = match bytes.first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Err(self.cannot(ELEMENT)),
        };
        let (Some(h1), Some(h2), Some(b':'), Some(m1), Some(m2)) =
            (digit(1), digit(2), bytes.get(3), digit(4), digit(5))
        else {
            return Err(self.cannot(ELEMENT));
        };
        let (hours, minutes) = (h1 * 10 + h2, m1 * 10 + m2);
        self.within(hours, 0, 24, "time zone offset hour")?;
        self.within(minutes, 0, 60, "time zone offset minute")?;
        self.rest = self.rest.get(6..).unwrap_or_default();
        Ok(sign * (hours * 3600 + minutes * 60))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn years_have_four_digits_in_utc_too() {
        for (text, utc) in [
            ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
            ("0000-01-01T00:00:00-01:00", "0000-01-01T01:00:00Z"),
            ("0000-01-01T01:00:00+01:00", "0000-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59.5Z", "9999-12-31T23:59:59.5Z"),
            ("9999-12-31T22:59:59-01:00", "9999-12-31T23:59:59Z"),
        ] {
            let read = read(text, false).unwrap().unwrap().text;
            assert_eq!(read, utc);
            assert!(tally_core::time::Timestamp::parse(&read).is_ok(), "{read}");
        }
        for beyond in [
            "0000-01-01T00:00:00+01:00",
            "0000-01-01T00:59:59+01:00",
            "9999-12-31T23:59:59-00:01",
            "9999-12-31T23:00:00-24:00",
        ] {
            let problem = format!("parsing time {beyond:?}: year out of range");
            assert_eq!(read(beyond, false).err(), Some(problem));
            let beyond = format!("{}.000001{}", &beyond[..19], &beyond[19..]);
            assert!(read(&beyond, true).is_err_and(|problem| problem.ends_with("year out of range")), "{beyond}");
        }
    }

    #[test]
    fn what_is_canonical_is_what_reading_leaves_as_it_is() {
        let (mut canonical, mut others) = (0, 0);
        let places = "0099-99-99T99:99:99Z";
        let first = "2026-11-18T20:59:01Z";
        for at in 0..first.len() {
            for byte in b"0123456789-:TZ+.a" {
                let mut text = first.as_bytes().to_vec();
                text[at] = *byte;
                let text = String::from_utf8(text).unwrap();
                let is_left = read(&text, false)
                    .is_ok_and(|read| read.is_some_and(|read| read.text == text && !read.below_second));
                assert!(!is_canonical(&text) || is_left, "{text}");
                *if is_canonical(&text) { &mut canonical } else { &mut others } += 1;
            }
        }
        assert!(canonical > 50 && others > 200, "{canonical} {others}");
        for text in
            [places, "0001-01-01T00:00:00Z", "2026-02-29T00:00:00Z", "2026-11-18T20:59:01", "", "é026-11-18T20:59:0Z"]
        {
            assert!(!is_canonical(text), "{text}");
        }
    }
}
