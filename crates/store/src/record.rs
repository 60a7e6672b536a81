//! One stored object: the entry that readers share in memory, and the same bytes as a record on disk.
//!
//! A record is `format (1) | revision (8) | checksum (8) | value`. It is built once, when the revision is assigned; the
//! entry's value is a slice of it, so that a Pod's text exists once. The record of a deletion has no value. The checksum covers key, revision and value: a record with another key or of another revision does not
//! match.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::{Body, Handle};

/// The version of the record's format. A reader refuses a version it does not support.
pub(crate) const FORMAT: u8 = 1;
const HEADER: usize = 1 + 8 + 8;

/// A stored object, shared by all its readers.
pub type Entry = Arc<Stored>;

#[derive(Debug)]
pub struct Stored {
    pub key: Box<str>,
    /// The revision of the write that created this state.
    pub revision: u64,
    /// The text, with the revision inserted where the writer requested it.
    pub value: Bytes,
    /// A cache for what a reader computes from the value, for the next reader: see [`Stored::memo`].
    pub memo: OnceLock<Box<dyn Any + Send + Sync>>,
    /// Of the write that created this state.
    pub handle: Option<Handle>,
    pub(crate) sum: u64,
}

impl Stored {
    /// The result of `work_out` for this entry, computed once and kept as long as the entry lives. None if a memo of
    /// another type is there already: one kind of entry has one kind of memo.
    pub fn memo<T: Any + Send + Sync>(&self, work_out: impl FnOnce(&Stored) -> T) -> Option<&T> {
        self.memo.get_or_init(|| Box::new(work_out(self))).downcast_ref()
    }

    /// Roughly the bytes of memory of this entry; the constant is the struct, its counts and the allocators' headers.
    pub(crate) fn weight(&self) -> usize {
        self.key.len() + self.value.len() + 192
    }
}

/// An entry and its record for the disk.
pub(crate) fn stamp(key: String, body: &Body, revision: u64) -> (Entry, Bytes) {
    let mut digits = [0; 20];
    let digits = decimal(revision, &mut digits);
    let (before, after) = body.bytes.split_at(body.stamp_at.min(body.bytes.len()));
    let mut record = Vec::with_capacity(HEADER + body.bytes.len() + digits.len());
    record.push(FORMAT);
    record.extend_from_slice(&revision.to_le_bytes());
    record.extend_from_slice(&[0; 8]);
    record.extend_from_slice(before);
    record.extend_from_slice(digits);
    record.extend_from_slice(after);
    let sum = checksum(&key, revision, &record[HEADER..]);
    record[9..HEADER].copy_from_slice(&sum.to_le_bytes());
    let record = Bytes::from(record);
    let (key, value, handle) = (key.into_boxed_str(), record.slice(HEADER..), body.handle.clone());
    let entry = Stored { key, revision, value, memo: OnceLock::new(), handle, sum };
    (Arc::new(entry), record)
}

/// Appends the record of an entry that was read or stamped before.
pub(crate) fn encode_into(entry: &Stored, out: &mut Vec<u8>) {
    out.push(FORMAT);
    out.extend_from_slice(&entry.revision.to_le_bytes());
    out.extend_from_slice(&entry.sum.to_le_bytes());
    out.extend_from_slice(&entry.value);
}

/// The longest record of an object that the store accepts: the value, and the digits of its revision.
pub(crate) const MAX_RECORD: usize = HEADER + crate::MAX_VALUE + 20;

/// Why a record read from disk is refused.
#[derive(Debug, PartialEq)]
pub(crate) enum BadRecord {
    Newer(u8),
    Damaged,
}

/// The record of the deletion of a key.
pub(crate) fn deletion(key: &str, revision: u64) -> [u8; HEADER] {
    let mut record = [0; HEADER];
    record[0] = FORMAT;
    record[1..9].copy_from_slice(&revision.to_le_bytes());
    record[9..].copy_from_slice(&checksum(key, revision, &[]).to_le_bytes());
    record
}

/// The checksum in a record, which is not checked.
pub(crate) fn sum(record: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(record.get(9..HEADER)?.try_into().ok()?))
}

/// Decodes a record. The bytes are copied: they are a part of a group.
pub(crate) fn read(key: &[u8], record: &[u8]) -> Result<Entry, BadRecord> {
    let (&format, _) = record.split_first().ok_or(BadRecord::Damaged)?;
    if format != FORMAT {
        return Err(if format > FORMAT { BadRecord::Newer(format) } else { BadRecord::Damaged });
    }
    let number = |at: usize| record.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map(u64::from_le_bytes);
    let (Some(revision), Some(sum)) = (number(1), number(9)) else { return Err(BadRecord::Damaged) };
    let key = std::str::from_utf8(key).map_err(|_| BadRecord::Damaged)?;
    if checksum(key, revision, &record[HEADER..]) != sum {
        return Err(BadRecord::Damaged);
    }
    let value = Bytes::copy_from_slice(&record[HEADER..]);
    Ok(Arc::new(Stored { key: key.into(), revision, value, memo: OnceLock::new(), handle: None, sum }))
}

fn checksum(key: &str, revision: u64, value: &[u8]) -> u64 {
    // The multiplier only prevents a change of the revision from cancelling out a change of the key's hash.
    let seed = xxh3_64(key.as_bytes()).wrapping_add(revision.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    xxh3_64_with_seed(value, seed)
}

fn decimal(mut number: u64, room: &mut [u8; 20]) -> &[u8] {
    let mut start = room.len();
    loop {
        start -= 1;
        room[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &room[start..];
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn the_revision_is_written_where_the_body_says() {
        let text = r#"{"resourceVersion":""}"#;
        for (revision, stamp_at, expected) in [
            (7, 20, r#"{"resourceVersion":"7"}"#),
            (0, 0, r#"0{"resourceVersion":""}"#),
            (u64::MAX, 22, r#"{"resourceVersion":""}18446744073709551615"#),
            (12, 1000, r#"{"resourceVersion":""}12"#),
        ] {
            let body = Body { bytes: text.into(), stamp_at, handle: None };
            let (entry, record) = stamp("pods/a/b".into(), &body, revision);
            assert_eq!(entry.value, expected);
            let back = read(b"pods/a/b", &record).unwrap();
            let mut again = Vec::new();
            encode_into(&back, &mut again);
            assert_eq!(again, record);
            assert_eq!((&back.key, back.revision, &back.value), (&entry.key, revision, &entry.value));
        }
    }

    #[test]
    fn a_changed_record_is_refused() {
        let (_, record) = stamp("pods/a/b".into(), &Body { bytes: b"text".to_vec(), stamp_at: 0, handle: None }, 3);
        for at in 0..record.len() {
            let mut changed = record.to_vec();
            changed[at] ^= 0x40;
            let newer = if at == 0 { BadRecord::Newer(FORMAT ^ 0x40) } else { BadRecord::Damaged };
            assert_eq!(read(b"pods/a/b", &changed).unwrap_err(), newer, "byte {at}");
            assert_eq!(read(b"pods/a/b", &record[..at]).unwrap_err(), BadRecord::Damaged, "cut at {at}");
        }
        assert_eq!(read(b"pods/a/c", &record).unwrap_err(), BadRecord::Damaged, "another key");
    }

    #[test]
    fn a_memo_is_worked_out_once() {
        let (entry, _) = stamp("pods/a/b".into(), &Body { bytes: b"text".to_vec(), stamp_at: 4, handle: None }, 3);
        assert_eq!(entry.memo(|entry| entry.value.len()), Some(&5));
        assert_eq!(entry.memo(|_| 0_usize), Some(&5));
        assert_eq!(entry.memo(|_| "another type"), None);
    }
}
