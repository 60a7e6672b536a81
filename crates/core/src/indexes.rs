//! Sets of completion indexes and their text form (`1,3-5,7`), as `status.completedIndexes` contains them.
//!
//! There are two readers on purpose: the controller must accept any content of a status (`read_tolerant`), while
//! validation must report what is wrong (`read_strict`).

use std::fmt::Write as _;

use range_set_blaze::RangeSetBlaze;
use thiserror::Error;

use crate::ids::CompletionIndex;

/// A set of indexes stored as intervals: a Job of 2^31 completions with one gap costs two intervals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexSet(RangeSetBlaze<u32>);

/// Why a text is not a valid list of indexes. The wording is part of the API.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum IndexTextError {
    #[error(
        "the fragment {0:?} violates the requirement that an index interval can have at most two parts separated by '-'"
    )]
    TooManyParts(String),
    #[error("cannot convert string to integer for index: {0:?}")]
    NotAnInteger(String),
    #[error("too large index: {0:?}")]
    TooLarge(String),
    #[error("non-increasing order, previous: {previous}, current: {current}")]
    NotIncreasing { previous: i64, current: i64 },
}

impl IndexSet {
    pub fn new() -> Self {
        Self::default()
    }

    /// All indexes below `end`.
    pub fn below(end: u32) -> Self {
        let mut set = Self::new();
        set.insert_below(0, end);
        set
    }

    /// Inserts `start..end`.
    pub fn insert_below(&mut self, start: u32, end: u32) {
        if start < end {
            self.0.ranges_insert(start..=end - 1);
        }
    }

    /// Returns whether the index was new.
    pub fn insert(&mut self, index: CompletionIndex) -> bool {
        self.0.insert(index)
    }

    /// Returns whether the index was present.
    pub fn remove(&mut self, index: CompletionIndex) -> bool {
        self.0.remove(index)
    }

    pub fn contains(&self, index: CompletionIndex) -> bool {
        self.0.contains(index)
    }

    /// The lowest number, starting at `start`, that is not in the set.
    pub fn first_absent_from(&self, start: u32) -> u32 {
        self.0.range_at(start).map_or(start, |range| range.end().saturating_add(1))
    }

    /// The number outside the set that has exactly `smaller` smaller numbers outside the set.
    pub fn absent(&self, smaller: u32) -> u32 {
        let mut at = smaller;
        for (first, last) in self.intervals() {
            if first > at {
                break;
            }
            at = at.saturating_add((last - first).saturating_add(1));
        }
        at
    }

    pub fn len(&self) -> usize {
        usize::try_from(self.0.len()).unwrap_or(usize::MAX)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = CompletionIndex> + '_ {
        self.0.iter()
    }

    pub fn intervals(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.0.ranges().map(|range| (*range.start(), *range.end()))
    }

    pub fn union(&self, other: &Self) -> Self {
        Self(&self.0 | &other.0)
    }

    pub fn difference(&self, other: &Self) -> Self {
        Self(&self.0 - &other.0)
    }

    pub fn intersection(&self, other: &Self) -> Self {
        Self(&self.0 & &other.0)
    }

    /// Drops every index at or above `limit`.
    pub fn clamp(&mut self, limit: u32) {
        if self.0.last().is_some_and(|last| last >= limit) {
            let _ = self.0.split_off(limit);
        }
    }

    /// Reads the list of a status up to `limit` and skips invalid parts. Never fails (IDXFMT-2).
    pub fn read_tolerant(text: &str, limit: u32) -> Self {
        let mut set = Self::new();
        for part in text.split(',') {
            let mut ends = part.split('-');
            let Some(start) = ends.next().and_then(integer) else {
                continue;
            };
            let end = match ends.next() {
                None => start,
                Some(text) => match integer(text) {
                    Some(end) => end,
                    None => continue,
                },
            };
            if start >= i64::from(limit) {
                break;
            }
            let end = end.min(i64::from(limit) - 1);
            if let (Ok(start), Ok(end)) = (u32::try_from(start), u32::try_from(end))
                && start <= end
            {
                set.0.ranges_insert(start..=end);
            }
        }
        set
    }

    /// Reads a list that must be valid (IDXFMT-3).
    pub fn read_strict(text: &str, limit: u32) -> Result<Self, IndexTextError> {
        let mut set = Self::new();
        for interval in strict_intervals(text, limit) {
            let (start, end) = interval?;
            set.0.ranges_insert(start..=end);
        }
        Ok(set)
    }

    /// The text form (IDXFMT-1): runs of two are two numbers, longer runs are `a-b`.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (start, end) in self.intervals() {
            let comma = if text.is_empty() { "" } else { "," };
            let _ = match end - start {
                0 => write!(text, "{comma}{start}"),
                1 => write!(text, "{comma}{start},{end}"),
                _ => write!(text, "{comma}{start}-{end}"),
            };
        }
        text
    }
}

impl FromIterator<CompletionIndex> for IndexSet {
    fn from_iter<I: IntoIterator<Item = CompletionIndex>>(indexes: I) -> Self {
        Self(indexes.into_iter().collect())
    }
}

/// The index that a task is told: that of its Pod, or the one in the list of indexes that its Job runs again. Both are
/// annotations of the Pod (RETRY-2).
pub fn task_index(own: &str, retried: Option<&str>) -> Option<CompletionIndex> {
    let own = index_from_annotation(own)?;
    let Some(retried) = retried else { return Some(own) };
    let mut left = own;
    for interval in strict_intervals(retried, u32::MAX) {
        let (first, last) = interval.ok()?;
        if left <= last - first {
            return Some(first + left);
        }
        left -= last - first + 1;
    }
    None
}

/// The intervals of a list that must be valid, in order, without building a set (IDXFMT-3). A caller that only needs to
/// know whether the list is valid stops at the first error.
pub fn strict_intervals(
    text: &str,
    limit: u32,
) -> impl Iterator<Item = Result<(CompletionIndex, CompletionIndex), IndexTextError>> + '_ {
    let mut previous: Option<CompletionIndex> = None;
    fragments(text).map(move |fragment| {
        let (start, end) = interval(fragment, limit)?;
        if let Some(previous) = previous
            && previous >= start
        {
            return Err(IndexTextError::NotIncreasing { previous: previous.into(), current: start.into() });
        }
        previous = Some(end);
        Ok((start, end))
    })
}

/// The comma-separated parts of a list; an empty list has none.
pub fn fragments(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').take(if text.is_empty() { 0 } else { usize::MAX })
}

/// One fragment of a list: `a`, or `a-b` with a < b, both below `limit`.
pub fn interval(fragment: &str, limit: u32) -> Result<(CompletionIndex, CompletionIndex), IndexTextError> {
    let (start, end) = match fragment.split_once('-') {
        None => (fragment, None),
        Some((_, end)) if end.contains('-') => {
            return Err(IndexTextError::TooManyParts(fragment.to_owned()));
        }
        Some((start, end)) => (start, Some(end)),
    };
    let bounded = |text: &str| {
        let index = integer(text).ok_or_else(|| IndexTextError::NotAnInteger(text.to_owned()))?;
        // `integer` returns no negative number, so an index below `limit` fits.
        u32::try_from(index)
            .ok()
            .filter(|&index| index < limit)
            .ok_or_else(|| IndexTextError::TooLarge(text.to_owned()))
    };
    let start = bounded(start)?;
    match end.map(bounded).transpose()? {
        None => Ok((start, start)),
        Some(end) if start < end => Ok((start, end)),
        Some(end) => Err(IndexTextError::NotIncreasing { previous: start.into(), current: end.into() }),
    }
}

/// A decimal integer as the API reads one: an optional plus sign and leading zeros are allowed, spaces are not.
fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// A non-negative index from the completion-index annotation; anything else is "unknown" (IDX-3).
pub fn index_from_annotation(text: &str) -> Option<CompletionIndex> {
    integer(text).and_then(|index| u32::try_from(index).ok()).filter(|&index| index <= i32::MAX as u32)
}

/// A failure count from its annotation; missing, negative, too large or unreadable is 0 (BLPI-1).
pub fn count_from_annotation(text: Option<&str>) -> u32 {
    text.and_then(index_from_annotation).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(indexes: &[u32]) -> IndexSet {
        indexes.iter().copied().collect()
    }

    #[test]
    fn absent_numbers_are_counted_without_those_in_the_set() {
        let some = set(&[1, 2, 5]);
        let absent: Vec<u32> = (0..5).map(|smaller| some.absent(smaller)).collect();
        assert_eq!(absent, [0, 3, 4, 6, 7]);
        assert_eq!(IndexSet::new().absent(9), 9);
        assert_eq!(IndexSet::below(4).absent(0), 4);
    }

    #[test]
    fn idxfmt_1_writer() {
        for (indexes, text) in [
            (&[][..], ""),
            (&[1, 3, 4, 5, 7], "1,3-5,7"),
            (&[0, 1], "0,1"),
            (&[0, 1, 2], "0-2"),
            (&[2, 4, 5, 7, 8, 9], "2,4,5,7-9"),
        ] {
            assert_eq!(set(indexes).text(), text);
        }
    }

    #[test]
    fn idxfmt_2_tolerant_reader_never_fails() {
        for (text, limit, indexes) in [
            ("", 5, &[][..]),
            ("0,1,3-4", 5, &[0, 1, 3, 4]),
            ("0,x,2", 5, &[0, 2]),
            ("0-1-2", 5, &[0, 1]),
            ("1-9", 5, &[1, 2, 3, 4]),
            ("0,7,1", 5, &[0]),
            ("4-2", 5, &[]),
            ("-1,--,99999999999999999999", 5, &[]),
            ("0-4", 0, &[]),
        ] {
            assert_eq!(IndexSet::read_tolerant(text, limit), set(indexes), "{text:?}");
        }
    }

    #[test]
    fn idxfmt_3_strict_reader_says_what_is_wrong() {
        for (text, expected) in [
            (
                "0-1-2",
                "the fragment \"0-1-2\" violates the requirement that an index interval can have at most two parts separated by '-'",
            ),
            ("x", "cannot convert string to integer for index: \"x\""),
            ("-1", "cannot convert string to integer for index: \"\""),
            ("2-", "cannot convert string to integer for index: \"\""),
            (",", "cannot convert string to integer for index: \"\""),
            (" 1", "cannot convert string to integer for index: \" 1\""),
            ("\"\n", "cannot convert string to integer for index: \"\\\"\\n\""),
            ("5", "too large index: \"5\""),
            ("1-5", "too large index: \"5\""),
            ("3,2", "non-increasing order, previous: 3, current: 2"),
            ("2-2", "non-increasing order, previous: 2, current: 2"),
            ("0-2,2", "non-increasing order, previous: 2, current: 2"),
            ("3,2-9", "too large index: \"9\""),
        ] {
            assert_eq!(IndexSet::read_strict(text, 5).unwrap_err().to_string(), expected, "{text:?}");
        }
        for (text, indexes) in [("", &[][..]), ("0,1,2", &[0, 1, 2]), ("+1,02-4", &[1, 2, 3, 4])] {
            assert_eq!(IndexSet::read_strict(text, 5).unwrap(), set(indexes), "{text:?}");
        }
    }

    #[test]
    fn annotations_that_are_not_numbers_are_unknown_or_zero() {
        for text in ["", "-1", "abc", "1.5", "2147483648", "99999999999", " 3"] {
            assert_eq!(index_from_annotation(text), None, "{text:?}");
            assert_eq!(count_from_annotation(Some(text)), 0, "{text:?}");
        }
        assert_eq!(index_from_annotation("2147483647"), Some(2_147_483_647));
        assert_eq!(count_from_annotation(Some("3")), 3);
        assert_eq!(count_from_annotation(None), 0);
    }

    /// Compares all pairs of subsets of the numbers below six with bit masks.
    /// IDXFMT-4.
    #[test]
    fn sets_of_intervals_are_sets() {
        let members = |bits: u32| (0..6).filter(move |index| bits >> index & 1 == 1);
        let check = |found: IndexSet, bits: u32| {
            assert!(found.iter().eq(members(bits)), "{found:?} is not {bits:b}");
            assert_eq!(found.len(), bits.count_ones() as usize);
            assert_eq!(found.is_empty(), bits == 0);
        };
        for one in 0..64 {
            let set: IndexSet = members(one).collect();
            for other in 0..64 {
                let others: IndexSet = members(other).collect();
                check(set.union(&others), one | other);
                check(set.difference(&others), one & !other);
                check(set.intersection(&others), one & other);
            }
            for index in 0..6 {
                let (bit, below) = (1 << index, (1 << index) - 1);
                assert_eq!(set.contains(index), one & bit != 0);
                assert_eq!(set.first_absent_from(index), index + (one >> index).trailing_ones());
                let mut changed = set.clone();
                assert_eq!(changed.insert(index), one & bit == 0);
                check(changed.clone(), one | bit);
                assert!(changed.remove(index) && !changed.remove(index));
                check(changed, one & !bit);
                let mut clamped = set.clone();
                clamped.clamp(index);
                check(clamped, one & below);
                let mut filled = set.clone();
                filled.insert_below(2, index);
                check(filled, one | below & !0b11);
            }
        }
    }

    /// IDXFMT-5.
    #[test]
    fn a_job_of_two_billion_indexes_is_one_interval() {
        let mut set = IndexSet::below(i32::MAX as u32);
        set.remove(7);
        assert_eq!(set.intervals().count(), 2);
        set.clamp(8);
        assert_eq!(set.text(), "0-6");
    }

    /// RETRY-1, RETRY-2.
    #[test]
    fn a_task_is_told_its_index_in_the_list_that_is_run_again() {
        for (own, retried, expected) in [
            ("3", None, Some(3)),
            ("0", Some("4"), Some(4)),
            ("0", Some("1,3-5,9"), Some(1)),
            ("1", Some("1,3-5,9"), Some(3)),
            ("3", Some("1,3-5,9"), Some(5)),
            ("4", Some("1,3-5,9"), Some(9)),
            ("5", Some("1,3-5,9"), None),
            ("0", Some(""), None),
            ("0", Some("x"), None),
            ("x", None, None),
        ] {
            assert_eq!(task_index(own, retried), expected, "{own} of {retried:?}");
        }
    }
}
