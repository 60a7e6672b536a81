//! Ids in text: `TRACK-3`, `SPECVAL-9 to 24`, the names of tests, and the ids of scenarios.

use std::collections::BTreeSet;

#[derive(Debug, PartialEq, Eq)]
pub struct Citation {
    pub id: String,
    /// Written in full and by itself; not the ends of a range nor a number beside another id.
    pub full: bool,
}

/// The ids that a text cites.
pub fn of(text: &str) -> Vec<Citation> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((id, after)) = next_id(rest) {
        rest = after;
        let Some((prefix, number)) = id.rsplit_once('-') else { continue };
        let first: u32 = number.parse().unwrap_or(0);
        if let Some((last, after)) = after.strip_prefix(" to ").and_then(|tail| short(tail, prefix)) {
            found.extend((first..=last).map(|number| Citation { id: format!("{prefix}-{number}"), full: false }));
            rest = after;
            continue;
        }
        found.push(Citation { id: id.to_owned(), full: true });
        if let Some((second, after)) = after.strip_prefix(" and ").and_then(number_at) {
            found.push(Citation { id: format!("{prefix}-{second}"), full: false });
            rest = after;
        }
    }
    found
}

/// The first id of a text, and what follows it. Words with hyphens and small letters are ids too: one that is not defined
/// must not pass as text.
fn next_id(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    let count = |at: usize, is: fn(&u8) -> bool| bytes[at..].iter().take_while(|byte| is(byte)).count();
    for at in 0..bytes.len() {
        let begins = at == 0 || !is_word(bytes[at - 1]) && bytes[at - 1] != b'-';
        let mut dash = at;
        while begins && bytes.get(dash).is_some_and(u8::is_ascii_uppercase) {
            let letters = count(dash, u8::is_ascii_alphabetic);
            match bytes.get(dash + letters) {
                Some(b'-') => dash += letters + 1,
                _ => break,
            }
        }
        let end = dash + count(dash, u8::is_ascii_digit);
        let ends = end > dash && bytes.get(end).is_none_or(|byte| !is_word(*byte));
        if ends && bytes[at..dash].iter().filter(|byte| byte.is_ascii_uppercase()).count() >= 2 {
            return Some((&text[at..end], &text[end..]));
        }
    }
    None
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The end of a range: a number, or an id of the same prefix.
fn short<'a>(text: &'a str, prefix: &str) -> Option<(u32, &'a str)> {
    let full = text.strip_prefix(prefix).and_then(|tail| tail.strip_prefix('-'));
    number_at(full.unwrap_or(text))
}

/// A number at the beginning of a text that is a word of its own.
fn number_at(text: &str) -> Option<(u32, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    let ends = rest.bytes().next().is_none_or(|byte| !is_word(byte));
    number.parse().ok().filter(|_| ends).map(|number| (number, rest))
}

/// The rules that tests are named after: `fn vec_07_...`, `fn statusval_9_and_21_...`.
pub fn in_names(text: &str, prefixes: &BTreeSet<&str>) -> Vec<String> {
    let mut found = Vec::new();
    for name in functions(text) {
        let mut words = name.split('_');
        let prefix = words.next().unwrap_or_default().to_ascii_uppercase();
        if !prefixes.contains(prefix.as_str()) {
            continue;
        }
        while let Some(number) = words.next().and_then(|word| word.parse::<u32>().ok()) {
            found.push(format!("{prefix}-{number}"));
            if words.next() != Some("and") {
                break;
            }
        }
    }
    found
}

fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("fn ").map(|(at, _)| {
        let name = &text[at + 3..];
        &name[..name.bytes().take_while(|byte| is_word(*byte)).count()]
    })
}

/// Past bugs and invariants: `S34`, `H5`, `I14`, `G7`.
pub fn of_scenarios(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    for (at, _) in text.match_indices(['S', 'H', 'I', 'G', 'L', 'E', 'M', 'O', 'F', 'X']) {
        let begins = at == 0 || !is_word(bytes[at - 1]) && bytes[at - 1] != b',';
        let digits = bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let end = at + 1 + digits;
        let ends = match (bytes.get(end), bytes.get(end + 1)) {
            // A rule of a time zone, `M3.2.0`.
            (Some(b'.'), Some(next)) => !next.is_ascii_digit(),
            (Some(next), _) => !is_word(*next),
            (None, _) => true,
        };
        if begins && ends && (1..=2).contains(&digits) {
            found.push(text[at..end].to_owned());
        }
    }
    found
}

/// The invariants that the header of a module lists: `//! - I1: ...`.
pub fn in_header(text: &str) -> Vec<String> {
    let items = text.lines().filter_map(|line| line.strip_prefix("//! - ")?.split_once(": ")).map(|(id, _)| id);
    items.filter(|id| is_of_scenarios(id)).map(str::to_owned).collect()
}

/// A letter and a number, as in the first column of docs/scenarios.md.
pub fn is_of_scenarios(id: &str) -> bool {
    let number = id.strip_prefix(|letter: char| letter.is_ascii_uppercase()).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// The past bugs that tests are named after: `fn s05_...`, `fn h3_...`.
pub fn scenarios_in_names(text: &str) -> BTreeSet<String> {
    let is_one = |name: &&str| {
        let number = &name[1..];
        name.starts_with(['s', 'h']) && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let words = functions(text).filter_map(|name| name.split('_').next()).filter(|word| !word.is_empty());
    words.filter(is_one).map(str::to_ascii_uppercase).collect()
}

#[test]
fn ids_in_text() {
    let check = |text: &str, expected: &str| {
        let found: Vec<String> =
            of(text).into_iter().map(|found| found.id + if found.full { "" } else { "?" }).collect();
        assert_eq!(found.join(" "), expected, "{text}");
    };
    check("", "");
    check("TRACK-3", "TRACK-3");
    check("/// FIN-6: the end (VEC-23), see\n/// STATUSVAL-2.", "FIN-6 VEC-23 STATUSVAL-2");
    check(r#"{"rules": ["BACKOFF-10", "T-2"]}"#, "BACKOFF-10");
    check("UTF-8, FNV-1a, TRACK-x, A-1, Pod-1, ns-TRACK-3, TRACK_3, MYTRACK-3", "UTF-8 MYTRACK-3");
    check(
        "POD-RUNTIME-1, PodTtl-2 to 3, (Pod-Gc-1), X-TRACK-3",
        "POD-RUNTIME-1 PodTtl-2? PodTtl-3? Pod-Gc-1 X-TRACK-3",
    );
    check("SPECVAL-2 to 4, TTL-3 to TTL-5", "SPECVAL-2? SPECVAL-3? SPECVAL-4? TTL-3? TTL-4? TTL-5?");
    check("PFP-2 to FIN-3", "PFP-2 FIN-3");
    check("SPECVAL-19 and 20, FIN-1 and FIN-2, FIN-1 and 2nd", "SPECVAL-19 SPECVAL-20? FIN-1 FIN-2 FIN-1");
    check("TRACK-", "");
    check("Grüße: TRACK-3 – ok", "TRACK-3");
}

#[test]
fn ids_in_names() {
    let prefixes = BTreeSet::from(["VEC", "STATUSVAL"]);
    let check = |text: &str, expected: &[&str]| assert_eq!(in_names(text, &prefixes), expected, "{text}");
    check("fn vec_07_a_quota() {}", &["VEC-7"]);
    check("fn vec_34() {}\nasync fn vec_35_names() {}", &["VEC-34", "VEC-35"]);
    check("fn statusval_9_and_21_complete_needs() {}", &["STATUSVAL-9", "STATUSVAL-21"]);
    check("fn vec_of_things() {} fn other_1() {} let vec_8 = 1;", &[]);
}

#[test]
fn ids_of_scenarios() {
    let check = |text: &str, expected: &[&str]| assert_eq!(of_scenarios(text), expected, "{text}");
    check("S34: as in (H5), I1-I14. And G7.", &["S34", "H5", "I1", "I14", "G7"]);
    check("EST5EDT,M3.2.0,M11.1.0 E-1 S S123 IS1 S1a", &[]);
    assert_eq!(in_header("//! x I9\n//! - I1: a\n//!   I2: b\n//! - G7: c\n//! - so: d\nI3: e"), ["I1", "G7"]);
    let named = scenarios_in_names("fn s05_a() {} fn s05_b() {} fn h3_c() {} fn s() {} fn spec() {} fn hs1_() {}");
    assert_eq!(named.into_iter().collect::<Vec<_>>(), ["H3", "S05"]);
}
