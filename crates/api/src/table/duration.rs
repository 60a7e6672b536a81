//! Durations for people: at most two units, and coarser the longer the duration is.

use tally_core::time::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// From `start` to `end`, such as `2m5s`. Clocks of two machines differ: an end up to a second before its start shows
/// as `0s`, an earlier one as `<invalid>`.
pub fn between(start: Timestamp, end: Timestamp) -> String {
    // The difference is truncated to whole seconds: fractions are not shown.
    let millis = end.millis().saturating_sub(start.millis());
    human(millis / 1_000)
}

/// PRINT-5.
pub fn human(seconds: i64) -> String {
    let s = seconds;
    match s {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{s}s"),
        120..600 => two((s / MINUTE, 'm'), (s % MINUTE, 's')),
        600..10_800 => format!("{}m", s / MINUTE),
        10_800..28_800 => two((s / HOUR, 'h'), (s % HOUR / MINUTE, 'm')),
        28_800..172_800 => format!("{}h", s / HOUR),
        172_800..691_200 => two((s / DAY, 'd'), (s % DAY / HOUR, 'h')),
        _ if s < 2 * YEAR => format!("{}d", s / DAY),
        _ if s < 8 * YEAR => two((s / YEAR, 'y'), (s / DAY % 365, 'd')),
        _ => format!("{}y", s / YEAR),
    }
}

/// The smaller unit is shown only if it is not zero.
fn two((large, large_unit): (i64, char), (small, small_unit): (i64, char)) -> String {
    if small == 0 { format!("{large}{large_unit}") } else { format!("{large}{large_unit}{small}{small_unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        for (seconds, text) in [
            (i64::MIN, "<invalid>"),
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 10 * MINUTE + 59, "3h10m"),
            (8 * HOUR - 1, "7h59m"),
            (8 * HOUR, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + HOUR, "2d1h"),
            (8 * DAY - 1, "7d23h"),
            (8 * DAY, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (3 * YEAR + 31 * DAY, "3y31d"),
            (8 * YEAR - 1, "7y364d"),
            (8 * YEAR, "8y"),
            (9 * YEAR + 5 * DAY, "9y"),
        ] {
            assert_eq!(human(seconds), text, "{seconds} seconds");
        }
    }

    #[test]
    fn clocks_that_disagree_a_little_show_no_time() {
        let at = Timestamp::from_millis;
        for (start, end, text) in [
            (1_000, 1_999, "0s"),
            (1_000, 0, "0s"),
            (1_900, 0, "0s"),
            (2_000, 0, "<invalid>"),
            (i64::MAX / 1_000, i64::MIN / 1_000, "<invalid>"),
        ] {
            assert_eq!(between(at(start), at(end)), text, "{start} to {end}");
        }
    }
}
