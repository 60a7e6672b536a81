//! Completion indexes for the laws: a plain set of numbers, and the text of the API (IDXFMT).

use std::collections::BTreeSet;

pub(crate) type Indexes = BTreeSet<u32>;

/// IDXFMT-1: runs of three and more with a dash, all others one by one.
pub(crate) fn print(indexes: &Indexes) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for index in indexes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            _ => runs.push((*index, *index)),
        }
    }
    let parts = runs.into_iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    });
    parts.collect::<Vec<_>>().join(",")
}

/// IDXFMT-2: every part that can be read, below `limit`.
pub(crate) fn read(text: &str, limit: u32) -> Indexes {
    let mut indexes = Indexes::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else { continue };
        if first >= limit {
            break;
        }
        indexes.extend(first..=last.min(limit.saturating_sub(1)));
    }
    indexes
}

/// What a controller may write: exactly what it would print, and nothing out of range.
pub(crate) fn read_own(text: &str, limit: u32) -> Result<Indexes, String> {
    let indexes = read(text, limit);
    match print(&indexes) {
        canonical if canonical == text => Ok(indexes),
        canonical => Err(format!("{text:?} should be {canonical:?} below {limit}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for (text, indexes) in [
            ("", &[][..]),
            ("0", &[0]),
            ("0,1", &[0, 1]),
            ("1,3-5,7", &[1, 3, 4, 5, 7]),
            ("0-2,4,5,7-9", &[0, 1, 2, 4, 5, 7, 8, 9]),
        ] {
            let set: Indexes = indexes.iter().copied().collect();
            assert_eq!(print(&set), text);
            assert_eq!(read(text, 10), set);
            assert_eq!(read_own(text, 10), Ok(set));
        }
    }

    #[test]
    fn a_reader_takes_what_there_is() {
        assert_eq!(print(&read("1,x,3-9", 5)), "1,3,4");
        assert_eq!(print(&read("2-", 5)), "");
        assert_eq!(print(&read("7,1", 5)), "");
        assert!(read_own("0-1", 5).is_err(), "two are written one by one");
        assert!(read_own("5", 5).is_err(), "out of range");
    }
}
