//! When schedules are due: across clock changes, ends of months and leap years.

use proptest::prelude::*;
use tally_core::schedule::{Schedule, Zone};
use tally_core::time::{Span, Timestamp};

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

fn zone(name: &str) -> Zone {
    Zone::named(name).unwrap()
}

/// The times after `from`, as they are written in the zone.
fn check(schedule: &str, zone_name: &str, from: &str, expected: &[&str]) {
    let (zone, schedule_of) = (zone(zone_name), Schedule::parse(schedule).unwrap());
    let mut last = at(from);
    for expected in expected {
        let next = schedule_of.next_after(last, &zone).map(|next| zone.rfc3339(next));
        assert_eq!(next.as_deref(), Some(*expected), "{schedule} in {zone_name} after {last}");
        let next = at(expected);
        assert_eq!(schedule_of.last_within(last, next, &zone), Some(next), "{schedule} up to {next}");
        assert_eq!(
            schedule_of.last_within(last, next - Span::from_seconds(1), &zone),
            None,
            "{schedule} before {next}"
        );
        last = next;
    }
}

#[test]
fn times_of_a_calendar() {
    check("* * * * *", "", "2026-01-31T23:58:00Z", &["2026-01-31T23:59:00Z", "2026-02-01T00:00:00Z"]);
    check("* * * * *", "UTC", "2026-01-31T23:58:59.999999Z", &["2026-01-31T23:59:00Z"]);
    check("*/20 9-10 * * *", "UTC", "2026-01-31T10:20:00Z", &["2026-01-31T10:40:00Z", "2026-02-01T09:00:00Z"]);
    check("0 0 31 * *", "UTC", "2026-01-31T00:00:00Z", &["2026-03-31T00:00:00Z", "2026-05-31T00:00:00Z"]);
    check("0 0 29 2 *", "UTC", "2026-01-31T00:00:00Z", &["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]);
    check("0 0 29 2 *", "UTC", "2096-02-29T00:00:00Z", &["2104-02-29T00:00:00Z"]);
    check("0 12 * * mon-fri", "UTC", "2026-01-30T12:00:00Z", &["2026-02-02T12:00:00Z"]);
    // If both fields of days are restricted, either one is sufficient. With a star, both must match.
    check("0 0 13 * fri", "UTC", "2026-02-06T00:00:00Z", &["2026-02-13T00:00:00Z", "2026-02-20T00:00:00Z"]);
    check("0 0 13 * fri", "UTC", "2026-04-10T00:00:00Z", &["2026-04-13T00:00:00Z", "2026-04-17T00:00:00Z"]);
    check("0 0 */1 * fri", "UTC", "2026-04-10T00:00:00Z", &["2026-04-17T00:00:00Z"]);
    check("@yearly", "UTC", "2026-01-01T00:00:00Z", &["2027-01-01T00:00:00Z"]);
    check("0 0 * * *", "Asia/Kathmandu", "2026-01-01T00:00:00Z", &["2026-01-02T00:00:00+05:45"]);
    check("@every 90s", "UTC", "2026-01-01T00:00:10Z", &["2026-01-01T00:01:40Z", "2026-01-01T00:03:10Z"]);
}

#[test]
fn times_around_a_change_of_the_clocks() {
    let (new_york, berlin) = ("America/New_York", "Europe/Berlin");
    // 2:00 to 3:00 on 8 March: skipped.
    check("30 2 * * *", new_york, "2026-03-07T12:00:00Z", &["2026-03-09T02:30:00-04:00", "2026-03-10T02:30:00-04:00"]);
    check("0 3 * * *", new_york, "2026-03-07T12:00:00Z", &["2026-03-08T03:00:00-04:00"]);
    check("0 * * * *", new_york, "2026-03-08T06:00:00Z", &["2026-03-08T03:00:00-04:00", "2026-03-08T04:00:00-04:00"]);
    check(
        "*/30 2-3 * * *",
        berlin,
        "2026-03-29T00:00:00Z",
        &["2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00"],
    );
    // 1:00 to 2:00 on 1 November: twice.
    check(
        "30 1 * * *",
        new_york,
        "2026-10-31T12:00:00Z",
        &["2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00", "2026-11-02T01:30:00-05:00"],
    );
    check(
        "0,45 1,2 * * *",
        new_york,
        "2026-11-01T04:59:00Z",
        &[
            "2026-11-01T01:00:00-04:00",
            "2026-11-01T01:45:00-04:00",
            "2026-11-01T01:00:00-05:00",
            "2026-11-01T01:45:00-05:00",
            "2026-11-01T02:00:00-05:00",
        ],
    );
    // A change of half an hour.
    check(
        "*/15 2 * * *",
        "Australia/Lord_Howe",
        "2026-10-03T14:00:00Z",
        &["2026-10-04T02:30:00+11:00", "2026-10-04T02:45:00+11:00", "2026-10-05T02:00:00+11:00"],
    );
    // A midnight that does not exist, and a day that does not.
    check("0 0 * * *", "America/Santiago", "2026-09-05T12:00:00Z", &["2026-09-07T00:00:00-03:00"]);
    check("0 12 * * *", "Pacific/Apia", "2011-12-29T23:00:00Z", &["2011-12-31T12:00:00+14:00"]);
}

#[test]
fn some_times_never_come() {
    for schedule in ["0 0 31 2 *", "0 0 31 4,6,9,11 *", ", * * * *"] {
        let schedule = Schedule::parse(schedule).unwrap();
        for zone in [Zone::UTC, zone("Europe/Berlin")] {
            assert_eq!(schedule.next_after(at("2026-01-01T00:00:00Z"), &zone), None);
            assert_eq!(schedule.last_within(at("1990-01-01T00:00:00Z"), at("2026-01-01T00:00:00Z"), &zone), None);
        }
    }
    let always = Schedule::parse("* * * * *").unwrap();
    for end in [i64::MIN, i64::MAX] {
        let end = Timestamp::from_seconds(end);
        assert_eq!(always.next_after(end, &Zone::UTC), None);
        assert_eq!(always.last_within(end, end, &Zone::UTC), None);
    }
}

#[test]
fn a_zone_may_be_written_in_the_schedule() {
    let noon = at("2026-01-01T12:00:00Z");
    for (schedule, field, written) in [
        ("0 0 * * *", None, "2026-01-01T12:00:00Z"),
        ("0 0 * * *", Some("Asia/Tokyo"), "2026-01-01T21:00:00+09:00"),
        ("TZ=Asia/Tokyo 0 0 * * *", None, "2026-01-01T21:00:00+09:00"),
        ("CRON_TZ=UTC 0 0 * * *", None, "2026-01-01T12:00:00Z"),
        ("0 0 * * *", Some("Europe/London"), "2026-01-01T12:00:00Z"),
        ("0 0 * * *", Some("America/St_Johns"), "2026-01-01T08:30:00-03:30"),
    ] {
        assert_eq!(Zone::of(schedule, field).unwrap().rfc3339(noon), written, "{schedule} {field:?}");
    }
    assert!(Zone::of("0 0 * * *", Some("Mars/Olympus")).is_err());
}

/// Days on which clocks change somewhere, and others.
const DAYS: [&str; 8] = [
    "2026-03-07T12:00:00Z",
    "2026-03-28T12:00:00Z",
    "2026-10-24T12:00:00Z",
    "2026-10-31T12:00:00Z",
    "2026-04-04T06:00:00Z",
    "2026-10-03T06:00:00Z",
    "2026-02-27T12:00:00Z",
    "2026-12-30T12:00:00Z",
];
const ZONES: [&str; 6] =
    ["UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "America/St_Johns"];

fn field(lowest: u32, highest: u32) -> impl Strategy<Value = String> {
    let numbers = prop::collection::btree_set(lowest..=highest, 1..4)
        .prop_map(|numbers| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
    prop_oneof![Just("*".to_owned()), numbers, (2_u32..9).prop_map(|step| format!("*/{step}"))]
}

/// By definition: the local time of every minute is tested.
fn is_due(fields: &[String; 5], minute: i64, zone: &jiff::tz::TimeZone) -> bool {
    let local = zone.to_datetime(jiff::Timestamp::from_second(minute * 60).unwrap());
    let matches = |field: &str, lowest: i8, number: i8| match field.strip_prefix("*/") {
        _ if field == "*" => true,
        Some(step) => (number - lowest) % step.parse::<i8>().unwrap() == 0,
        None => field.split(',').any(|text| text.parse::<i8>().unwrap() == number),
    };
    let [minutes, hours, days, months, weekdays] = fields;
    let (day, weekday) = (matches(days, 1, local.day()), matches(weekdays, 0, local.weekday().to_sunday_zero_offset()));
    let day = if days == "*" || weekdays == "*" { day && weekday } else { day || weekday };
    matches(minutes, 0, local.minute()) && matches(hours, 0, local.hour()) && matches(months, 1, local.month()) && day
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_next_time_is_the_first_minute_that_matches(
        fields in (field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6)),
        day in prop::sample::select(&DAYS[..]),
        offset in 0_i64..172_800,
        zone_name in prop::sample::select(&ZONES[..]),
    ) {
        let fields: [String; 5] = fields.into();
        let schedule = Schedule::parse(&fields.join(" ")).unwrap();
        let tz = jiff::tz::TimeZone::get(zone_name).unwrap();
        let from = at(day) + Span::from_seconds(offset);
        const SCANNED: i64 = 3 * 1440;
        let first = from.seconds() / 60 + 1;
        let expected = (first..first + SCANNED).find(|minute| is_due(&fields, *minute, &tz));
        let next = schedule.next_after(from, &zone(zone_name));
        match expected {
            Some(minute) => prop_assert_eq!(next, Some(Timestamp::from_seconds(minute * 60))),
            None => prop_assert!(next.is_none_or(|next| next.seconds() >= (first + SCANNED) * 60)),
        }
        let end = Timestamp::from_seconds((first + SCANNED) * 60 - 1);
        let expected = (first..first + SCANNED).rev().find(|minute| is_due(&fields, *minute, &tz));
        let last = schedule.last_within(from, end, &zone(zone_name));
        prop_assert_eq!(last, expected.map(|minute| Timestamp::from_seconds(minute * 60)));
    }
}
