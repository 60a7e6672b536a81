//! The journals of the engine, read across damaged places.
//!
//! This is the third format of the engine (`FJL3`), which its version file names. A batch is `1 count seqno`, `count` items,
//! `3 checksum trailer`. An item is `2 type compression keyspace key-length value-length stored-length key value`, or
//! `4 keyspace` if it clears a keyspace. Every batch that is whole is used, and of others the records that are sound.

use std::io;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::{ACCOUNT_KEY, OBJECT, number, take};
use crate::log::{ACCOUNT_LEN, ACCOUNT_MAGIC, decode_account, occurrences};
use crate::salvage::{Acknowledged, Damage, Findings};

/// The end of each whole batch.
const TRAILER: &[u8; 4] = b"FJL\x03";
/// More than the engine ever uses between two groups, and small enough to be harmless if it is accepted by mistake.
const SEQNO_STEP: u64 = 1 << 20;
/// Enough for a million groups per second for eight years; the engine's own limit is far higher.
const SEQNO_LIMIT: u64 = 1 << 48;

/// `2 | kind (1) | compression (1) | keyspace (8) | length of the key (2) | of the value (4) | of the value as stored (4)`.
const ITEM_HEADER: usize = 21;
/// `1 | number of items (4) | number of the batch (8)`.
const BATCH_HEADER: usize = 13;

/// The journals of the engine in `dir`, oldest first.
fn paths(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut journals = Vec::new();
    for file in std::fs::read_dir(dir)? {
        let path = file?.path();
        let number = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".jnl"));
        if let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) {
            journals.push((number, path));
        }
    }
    journals.sort();
    Ok(journals.into_iter().map(|(_, path)| path).collect())
}

/// Reads all journals. `acknowledged`: what the head says, if it can be read.
pub fn read(engine: &Path, acknowledged: Option<Acknowledged>, found: &mut Findings) -> io::Result<()> {
    let paths = paths(engine)?;
    if paths.is_empty() {
        found.damage(&engine.join("0.jnl"), None, "is missing, and so is every other journal");
    }
    let mut seqno = None;
    let mut last = None;
    for path in &paths {
        let bytes = std::fs::read(path)?;
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let mut at = 0;
        while at < end {
            if let Some(batch) = Batch::parse(&bytes, at, seqno) {
                // Whole batches after a broken place: that place was acknowledged.
                if let Some(broken) = last.take() {
                    damaged(&broken, seqno, found);
                }
                for item in &batch.items {
                    if !take(found, item.key, item.value, batch.seqno, true) {
                        let what = format!("has a record that is damaged: {}", String::from_utf8_lossy(item.key));
                        found.damage(path, Some(at as u64), what);
                    }
                }
                seqno = Some(batch.seqno);
                at = batch.end;
                continue;
            }
            if let Some(broken) = last.take() {
                damaged(&broken, seqno, found);
            }
            let next = (at + 1..end).find(|next| Batch::parse(&bytes, *next, seqno).is_some());
            let broken = Broken { path, at, bytes: bytes[at..next.unwrap_or(end)].to_vec() };
            last = Some(broken);
            at = next.unwrap_or(end);
        }
    }
    let Some(broken) = last else { return Ok(()) };
    let newest = found.account.map_or(0, |account| account.revision);
    if broken.is_unfinished(newest) && acknowledged.is_none_or(|head| head.revision() <= newest) {
        let what = "ends with a write that was not finished and not acknowledged".to_owned();
        found.unfinished = Some(Damage { path: broken.path.into(), at: Some(broken.at as u64), what });
    } else {
        damaged(&broken, seqno, found);
    }
    Ok(())
}

/// A part of a journal that is not a whole batch.
struct Broken<'a> {
    path: &'a Path,
    at: usize,
    bytes: Vec<u8>,
}

impl Broken<'_> {
    /// Whether it can be the one group that was in progress when the store was at `revision`.
    fn is_unfinished(&self, revision: u64) -> bool {
        let accounts = occurrences(&self.bytes, ACCOUNT_MAGIC);
        let account = accounts.first().and_then(|at| decode_account(self.bytes.get(*at..at + ACCOUNT_LEN)?));
        accounts.len() <= 1 && account.is_none_or(|account| account.follows == revision)
    }
}

/// Takes what is sound in a damaged part. `before`: the number of the batch before it.
fn damaged(broken: &Broken<'_>, before: Option<u64>, found: &mut Findings) {
    found.damage(broken.path, Some(broken.at as u64), "is damaged");
    let seqno = before.unwrap_or(found.seqno).saturating_add(1);
    let bytes = &broken.bytes;
    let mut at = 0;
    while at < bytes.len() {
        let item = Item::parse(bytes, at).filter(|item| item.key == ACCOUNT_KEY || item.key.first() == Some(&OBJECT));
        let Some(item) = item else {
            at += 1;
            continue;
        };
        // A value of a damaged kind is a value if its checksum is correct.
        let value = item.value.or_else(|| (!item.stored.is_empty()).then_some(item.stored));
        take(found, item.key, value, seqno, false);
        at = item.end;
    }
}

struct Batch<'a> {
    seqno: u64,
    items: Vec<Item<'a>>,
    end: usize,
}

struct Item<'a> {
    key: &'a [u8],
    /// None: a deletion.
    value: Option<&'a [u8]>,
    stored: &'a [u8],
    end: usize,
}

impl<'a> Item<'a> {
    fn parse(bytes: &'a [u8], at: usize) -> Option<Self> {
        let header = bytes.get(at..at + ITEM_HEADER)?;
        let [2, kind, 0, ..] = *header else { return None };
        let (key, value) = (number::<2>(header, 11)? as usize, number::<4>(header, 13)? as usize);
        // A journal belongs to one database with few keyspaces.
        let is_likely = number::<4>(header, 17)? as usize == value && number::<8>(header, 3)? < 256;
        let start = at + ITEM_HEADER;
        let end = start.checked_add(key)?.checked_add(value)?;
        let (key, stored) = bytes.get(start..end)?.split_at(key);
        let value = (kind == 0).then_some(stored);
        (is_likely && kind <= 2).then_some(Self { key, value, stored, end })
    }
}

impl<'a> Batch<'a> {
    /// A whole batch that begins here.
    fn parse(bytes: &'a [u8], at: usize, before: Option<u64>) -> Option<Self> {
        let header = bytes.get(at..at + BATCH_HEADER)?;
        let [1, ..] = *header else { return None };
        let (count, seqno) = (number::<4>(header, 1)?, number::<8>(header, 5)? as u64);
        let follows = match before {
            Some(before) => seqno > before && seqno - before < SEQNO_STEP,
            None => seqno < SEQNO_LIMIT,
        };
        if !follows {
            return None;
        }
        let start = at + BATCH_HEADER;
        let mut end = start;
        let mut items = Vec::new();
        for _ in 0..count {
            match bytes.get(end)? {
                2 => {
                    let item = Item::parse(bytes, end)?;
                    end = item.end;
                    items.push(item);
                }
                // A keyspace was cleared; Tally never does that.
                4 => end += 9,
                _ => return None,
            }
        }
        let trailer = bytes.get(end..end + 13)?;
        let is_whole = trailer[0] == 3
            && number::<8>(trailer, 1)? == u128::from(xxh3_64(&bytes[start..end]))
            && trailer.ends_with(TRAILER);
        is_whole.then_some(Self { seqno, items, end: end + 13 })
    }
}
