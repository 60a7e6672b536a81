//! Schedules of CronJobs: which minutes a text denotes, and the error of a text that is invalid.

use proptest::prelude::*;
use tally_core::schedule::{Calendar, STAR, Schedule, location};
use tally_core::time::Span;

fn bits(numbers: impl IntoIterator<Item = u32>) -> u64 {
    numbers.into_iter().fold(0, |bits, number| bits | 1 << number)
}

#[test]
fn fields_are_sets_of_numbers() {
    let (minutes, hours, days, months, weekdays) = (0..60, 0..24, 1..32, 1..13, 0..7);
    let always = Calendar {
        minutes: bits(minutes) | STAR,
        hours: bits(hours) | STAR,
        days_of_month: bits(days) | STAR,
        months: bits(months) | STAR,
        days_of_week: bits(weekdays) | STAR,
    };
    let midnight = Calendar { minutes: bits([0]), hours: bits([0]), ..always };
    let rows = [
        ("* * * * *", always),
        ("? ? ? ? ?", always),
        ("  *\t*  * * * ", always),
        ("*/1 * * * *", always),
        ("*-5 * * * *", always),
        ("*/5 * * * *", Calendar { minutes: bits((0..60).step_by(5)), ..always }),
        ("50/4 * * * *", Calendar { minutes: bits([50, 54, 58]), ..always }),
        ("1,2,3-5/2 * * * *", Calendar { minutes: bits([1, 2, 3, 5]), ..always }),
        (",+1,,07 * * * *", Calendar { minutes: bits([1, 7]), ..always }),
        (", * * * *", Calendar { minutes: 0, ..always }),
        ("0/99 * * * *", Calendar { minutes: bits([0]), ..always }),
        ("0 0 31 2 *", Calendar { days_of_month: bits([31]), months: bits([2]), ..midnight }),
        (
            "0 0 1 JAN-mar Mon,sAt",
            Calendar { days_of_month: bits([1]), months: bits([1, 2, 3]), days_of_week: bits([1, 6]), ..midnight },
        ),
        ("@yearly", Calendar { days_of_month: bits([1]), months: bits([1]), ..midnight }),
        ("@annually", Calendar { days_of_month: bits([1]), months: bits([1]), ..midnight }),
        ("@monthly", Calendar { days_of_month: bits([1]), ..midnight }),
        ("@weekly", Calendar { days_of_week: bits([0]), ..midnight }),
        ("@daily", midnight),
        ("@midnight", midnight),
        ("@hourly", Calendar { hours: always.hours, ..midnight }),
        ("TZ=UTC  0 0 * * *", midnight),
        ("CRON_TZ=Europe/Paris @daily", midnight),
    ];
    for (text, expected) in rows {
        assert_eq!(Schedule::parse(text), Ok(Schedule::Calendar(expected)), "{text:?}");
    }
}

#[test]
fn every_is_at_least_a_second() {
    let rows = [
        ("1h", 3600),
        ("1h30m", 5400),
        ("1.5m", 90),
        (".5h", 1800),
        ("1m0.999s", 60),
        ("+2s", 2),
        ("0", 1),
        ("-1h", 1),
        ("10ms", 1),
        ("3000000us", 3),
        ("3000000\u{b5}s", 3),
        ("3000000000ns", 3),
        ("2562047h", 9_223_369_200),
    ];
    for (text, seconds) in rows {
        let expected = Schedule::Every(Span::from_seconds(seconds));
        assert_eq!(Schedule::parse(&format!("@every {text}")), Ok(expected), "{text:?}");
    }
}

#[test]
fn what_is_wrong_is_said_in_the_words_clients_know() {
    let rows = [
        ("not a schedule", "expected exactly 5 fields, found 3: [not a schedule]"),
        ("* * * * * *", "expected exactly 5 fields, found 6: [* * * * * *]"),
        (" ", "expected exactly 5 fields, found 0: []"),
        ("TZ=UTC ", "expected exactly 5 fields, found 0: []"),
        ("TZ=UTC", "invalid schedule format: runtime error: slice bounds out of range [:-1]"),
        ("CRON_TZ=", "invalid schedule format: runtime error: slice bounds out of range [:-1]"),
        ("@often", "unrecognized descriptor: @often"),
        ("@every", "unrecognized descriptor: @every"),
        ("@Daily", "unrecognized descriptor: @Daily"),
        ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
        ("@every 1", "failed to parse duration @every 1: time: missing unit in duration \"1\""),
        ("@every 1d", "failed to parse duration @every 1d: time: unknown unit \"d\" in duration \"1d\""),
        ("@every .h", "failed to parse duration @every .h: time: invalid duration \".h\""),
        ("@every 2562048h", "failed to parse duration @every 2562048h: time: invalid duration \"2562048h\""),
        ("0 0 * * 7", "end of range (7) above maximum (6): 7"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* 24 * * *", "end of range (24) above maximum (23): 24"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * 13 *", "end of range (13) above maximum (12): 13"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
        ("-5 * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
        ("jan * * * *", "failed to parse int from jan: strconv.Atoi: parsing \"jan\": invalid syntax"),
        ("*/-1 * * * *", "negative number (-1) not allowed: -1"),
        (
            "99999999999999999999 * * * *",
            "failed to parse int from 99999999999999999999: strconv.Atoi: parsing \"99999999999999999999\": value out of range",
        ),
        // The first invalid field is reported.
        ("60 x * * *", "end of range (60) above maximum (59): 60"),
        ("TZ=Mars/X 0 0 * * *", "provided bad location Mars/X: unknown time zone Mars/X"),
        ("TZ=../x 0 0 * * *", "provided bad location ../x: time: invalid location name"),
    ];
    for (text, expected) in rows {
        assert_eq!(Schedule::parse(text), Err(expected.to_owned()), "{text:?}");
    }
}

#[test]
fn zones_are_known_by_their_exact_names() {
    for known in ["", "UTC", "Local", "Europe/Paris", "America/Indiana/Knox", "Etc/GMT+5", "EST5EDT", "GMT"] {
        assert_eq!(location(known), Ok(()), "{known:?}");
    }
    for unknown in ["utc", "europe/paris", "Europe", "Etc/Unknown", "EST5EDT,M3.2.0,M11.1.0"] {
        assert_eq!(location(unknown), Err(format!("unknown time zone {unknown}")), "{unknown:?}");
    }
}

proptest! {
    /// Every text is either parsed or refused, and what is parsed is within the range of its field.
    #[test]
    fn no_text_is_too_strange(text in "(TZ=[a-zA-Z/. ]{0,9} )?(@every [0-9.hms\u{b5}+-]{0,12}|[0-9*/?,a-zA-Z+ -]{0,24})") {
        if let Ok(Schedule::Calendar(calendar)) = Schedule::parse(&text) {
            prop_assert_eq!(calendar.minutes & !(STAR | bits(0..60)), 0);
            prop_assert_eq!(calendar.days_of_month & !(STAR | bits(1..32)), 0);
        }
    }
}
