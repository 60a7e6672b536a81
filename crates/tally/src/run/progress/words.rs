//! Formats numbers, durations and untrusted text for people.

use std::time::Duration;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// `3.2s`, `42s`, `3m12s`, `2h05m`, `3d04h`.
pub fn duration(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", (span.as_secs_f64() * 10.0).floor() / 10.0),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// `143/s`, `4.2/s`, `12/min`, `3/h`.
pub fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 10.0 => format!("{rate:.0}/s"),
        rate if rate >= 1.0 => format!("{rate:.1}/s"),
        rate if rate * 60.0 >= 1.0 => format!("{:.0}/min", rate * 60.0),
        rate => format!("{:.0}/h", rate * 3600.0),
    }
}

/// The number of terminal columns of a text.
pub fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Truncates a text to this many columns; `~` marks the cut.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let (mut kept, mut used) = (String::new(), 0);
    for letter in text.chars() {
        let wide = letter.width().unwrap_or(0);
        if used + wide > columns.saturating_sub(1) {
            break;
        }
        used += wide;
        kept.push(letter);
    }
    if columns > 0 {
        kept.push('~');
    }
    kept
}

/// Wraps a text to lines of at most this many columns. A longer word stays whole.
pub fn broken(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The same where nothing may be wider: a longer word is divided.
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in broken(text, columns) {
        let (mut part, mut used) = (String::new(), 0);
        for letter in line.chars() {
            let wide = letter.width().unwrap_or(0);
            if used + wide > columns && used > 0 {
                lines.push(std::mem::take(&mut part));
                used = 0;
            }
            used += wide;
            part.push(letter);
        }
        lines.push(part);
    }
    lines
}

/// Untrusted text without terminal control sequences.
pub fn harmless(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\t' => clean.push_str("  "),
            '\u{1b}' => letters = after_sequence(letters.as_str()).chars(),
            letter if is_order(letter) => {}
            letter => clean.push(letter),
        }
    }
    clean
}

fn is_order(letter: char) -> bool {
    // The last ones are bidirectional controls, which reorder the text that follows.
    letter.is_control() || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Cleans an untrusted line for a terminal: colours are kept if wanted, but the line cannot move the cursor or change
/// anything that lasts.
pub fn tame(line: &str, colours: bool) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut coloured = false;
    let mut letters = line.trim_end_matches('\r').chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\t' => clean.push(letter),
            // A counter that overwrites itself: all its values are shown one after the other.
            '\r' => clean.push(' '),
            '\u{1b}' => {
                let rest = letters.as_str();
                let after = after_sequence(rest);
                let sequence = &rest[..rest.len() - after.len()];
                if colours && is_colour(sequence) {
                    clean.push('\u{1b}');
                    clean.push_str(sequence);
                    coloured = true;
                }
                letters = after.chars();
            }
            letter if is_order(letter) => {}
            letter => clean.push(letter),
        }
    }
    if coloured {
        clean.push_str("\u{1b}[0m");
    }
    clean
}

/// Whether a sequence changes how text looks, and nothing else.
fn is_colour(sequence: &str) -> bool {
    let parameters = sequence.strip_prefix('[').and_then(|rest| rest.strip_suffix('m'));
    parameters.is_some_and(|them| them.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b';' | b':')))
}

/// What follows an escape sequence whose escape has been read.
fn after_sequence(text: &str) -> &str {
    match text.chars().next() {
        Some('[') => {
            // Parameters, up to the final byte.
            let rest = text[1..].trim_start_matches(|letter| ('\u{20}'..='\u{3f}').contains(&letter));
            rest.strip_prefix(|letter| ('\u{40}'..='\u{7e}').contains(&letter)).unwrap_or(rest)
        }
        Some(']') => text.trim_start_matches(|letter| !matches!(letter, '\u{7}' | '\u{1b}')),
        Some(letter) => &text[letter.len_utf8()..],
        None => text,
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (millis, expected) in [
            (0, "0.0s"),
            (3_290, "3.2s"),
            (9_999, "9.9s"),
            (10_000, "10s"),
            (61_000, "1m01s"),
            (3_600_000, "1h00m"),
            (90_000_000, "1d01h"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn rates_have_a_unit_that_fits() {
        for (given, expected) in [(1234.5, "1234/s"), (10.0, "10/s"), (4.25, "4.2/s"), (0.5, "30/min"), (0.001, "4/h")]
        {
            assert_eq!(rate(given), expected);
        }
    }

    #[test]
    fn texts_are_cut_by_columns() {
        for (text, columns, expected) in [
            ("short", 5, "short"),
            ("longer", 5, "long~"),
            ("\u{65e5}\u{672c}\u{8a9e}", 5, "\u{65e5}\u{672c}~"),
            ("abc", 1, "~"),
            ("abc", 0, ""),
        ] {
            assert_eq!(cut(text, columns), expected);
            assert!(width(&cut(text, columns)) <= columns);
        }
    }

    #[test]
    fn texts_are_broken_between_words() {
        for (text, columns, expected) in [
            ("one two three", 20, vec!["one two three"]),
            ("one two three", 7, vec!["one two", "three"]),
            ("one two three", 3, vec!["one", "two", "three"]),
            ("", 3, vec![]),
        ] {
            assert_eq!(broken(text, columns), expected);
        }
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("one two three", 3), ["one", "two", "thr", "ee"]);
    }

    #[test]
    fn lines_for_a_terminal_may_have_colours_and_nothing_else() {
        for (text, coloured, plain) in [
            ("a\tb", "a\tb", "a\tb"),
            ("\u{1b}[1;31mred\u{1b}[0m", "\u{1b}[1;31mred\u{1b}[0m\u{1b}[0m", "red"),
            ("\u{1b}[38:5:1mx", "\u{1b}[38:5:1mx\u{1b}[0m", "x"),
            ("10%\r20%\r", "10% 20%", "10% 20%"),
            ("\u{1b}[2J\u{1b}[Hx\u{1b}[?25ly", "xy", "xy"),
            ("\u{1b}]0;title\u{7}x\u{1b}cy\u{8}\u{b}", "xy", "xy"),
            ("\u{1b}[?1mx", "x", "x"),
            ("\u{9b}2Jx\u{202e}\u{1b}[", "2Jx", "2Jx"),
            ("\u{1b}]0;\u{1b}[31mx", "\u{1b}[31mx\u{1b}[0m", "x"),
        ] {
            assert_eq!((tame(text, true).as_str(), tame(text, false).as_str()), (coloured, plain), "{text:?}");
        }
    }

    #[test]
    fn nothing_of_a_log_reaches_the_terminal_as_an_order() {
        for (text, expected) in [
            ("plain", "plain"),
            ("\u{1b}[1;31mred\u{1b}[0m", "red"),
            ("a\tb\rc\u{7}", "a  bc"),
            ("\u{1b}]0;title\u{7}x", "x"),
            ("\u{1b}cx\u{1b}", "x"),
            ("\u{1b}[", ""),
            ("\u{9b}31mx", "31mx"),
            ("a\u{202e}b", "ab"),
        ] {
            assert_eq!(harmless(text), expected, "{text:?}");
        }
    }
}
