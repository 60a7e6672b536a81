//! Lists of indexes as text, implemented with sets of plain numbers.

use std::collections::BTreeSet;

/// IDXFMT-2.
pub fn read(text: &str, limit: u32) -> BTreeSet<u32> {
    let number = |part: &str| -> Option<u64> {
        let digits = part.strip_prefix('+').unwrap_or(part);
        let plain = !digits.is_empty() && digits.chars().all(|letter| letter.is_ascii_digit());
        digits.parse().ok().filter(|_| plain)
    };
    let mut set = BTreeSet::new();
    for part in text.split(',') {
        let ends: Vec<Option<u64>> = part.split('-').take(2).map(number).collect();
        let (Some(start), Some(end)) = (ends[0], *ends.last().unwrap()) else { continue };
        if start >= u64::from(limit) {
            break;
        }
        set.extend((start..=end.min(u64::from(limit) - 1)).map(|index| index as u32));
    }
    set
}

/// IDXFMT-1.
pub fn write(set: &BTreeSet<u32>) -> String {
    let mut parts = Vec::new();
    for &index in set {
        if index > 0 && set.contains(&(index - 1)) {
            continue;
        }
        let end = (index..).find(|next| !set.contains(&(next + 1))).unwrap();
        parts.push(match end - index {
            0 => format!("{index}"),
            1 => format!("{index},{end}"),
            _ => format!("{index}-{end}"),
        });
    }
    parts.join(",")
}
