//! The file `head`: the newest revision of the store, kept apart from the log.
//!
//! The end of a log that cannot be read is cut off, because a crash in the middle of a write looks the same. An
//! acknowledged write lost in this way would go unnoticed. So after each group is durable its revision is
//! written here, before the first of its writers is answered: a store that ends before its head is damaged.
//!
//! The head is written to the operating system at once and synced later (when the store is idle, and once per second
//! under load). After a killed process it is exact; after a power cut it may lag, but never leads, since the group was
//! synced before it.
//!
//! There are two slots, written in turn, each in a sector of its own and with a checksum: if one is torn, the other is
//! intact.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 7] = b"tallyhd";
/// The version of everything in the directory; it is checked first. In the first, the store is that of [`crate::legacy`].
pub(crate) const FORMAT: u8 = 2;
const FIRST_FORMAT: u8 = 1;
const SLOT: u64 = 4096;
const SLOT_LEN: usize = 32;
/// How old the head on disk may get under load. A sync delays every write that waits for it.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// The content of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub format: u8,
    /// The creation of the store was completed. Until then no write was acknowledged.
    pub made: bool,
    pub revision: u64,
}

impl Mark {
    /// Of a store that is complete.
    pub fn made(revision: u64) -> Self {
        Self { format: FORMAT, made: true, revision }
    }
}

/// What was found at the path of the head.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    Mark(Mark),
    Newer(u8),
    Unreadable,
}

pub(crate) struct Head {
    file: File,
    /// The slot to write next: never the one that holds the newest mark.
    next: u64,
    synced_at: Instant,
    dirty: bool,
}

/// Reads the head without changing anything.
pub(crate) fn find(path: &Path) -> std::io::Result<Found> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(2 * SLOT).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    // It was created, and a crash came before it was written.
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(Found::Nothing);
    }
    let slots = bytes.chunks(SLOT as usize).map(|slot| slot.get(..SLOT_LEN).unwrap_or(slot));
    let newer = slots.clone().filter(|slot| slot.starts_with(MAGIC)).filter_map(|slot| slot.get(7)).max();
    if let Some(&newer) = newer.filter(|&&format| format > FORMAT) {
        return Ok(Found::Newer(newer));
    }
    Ok(slots.filter_map(decode).max().map_or(Found::Unreadable, Found::Mark))
}

/// The format in the slots of a head, if it is a newer one, and the same in both.
pub(crate) fn newer_in_both(bytes: &[u8]) -> Option<u8> {
    let mut formats = bytes.chunks(SLOT as usize).map(|slot| slot.strip_prefix(MAGIC)?.first().copied());
    let (Some(Some(one)), Some(Some(other))) = (formats.next(), formats.next()) else { return None };
    (one == other && one > FORMAT).then_some(one)
}

/// The first place at which a head is not what an undisturbed writer leaves behind: two marks, and zeros.
pub(crate) fn first_difference(bytes: &[u8]) -> Option<u64> {
    if bytes.len() != 2 * SLOT as usize {
        return Some(bytes.len().min(2 * SLOT as usize) as u64);
    }
    for (slot, start) in bytes.chunks(SLOT as usize).zip((0..).step_by(SLOT as usize)) {
        let (mark, rest) = slot.split_at(SLOT_LEN);
        if decode(mark).is_none() {
            return Some(start);
        }
        if let Some(at) = rest.iter().position(|byte| *byte != 0) {
            return Some(start + (SLOT_LEN + at) as u64);
        }
    }
    None
}

impl Head {
    /// Opens the head for writing, creates it if it does not exist, and writes the mark into both slots.
    pub fn open(path: &Path, mark: Mark) -> std::io::Result<Head> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        file.set_len(2 * SLOT)?;
        let mut head = Head { file, next: 0, synced_at: Instant::now(), dirty: false };
        head.write(mark)?;
        head.sync()?;
        head.write(mark)?;
        head.sync()?;
        Ok(head)
    }

    /// Writes the mark to the operating system; it is synced to the disk at the latest after `SYNC_EVERY` under load.
    pub fn advance(&mut self, revision: u64) -> std::io::Result<()> {
        self.write(Mark::made(revision))?;
        if self.synced_at.elapsed() >= SYNC_EVERY { self.sync() } else { Ok(()) }
    }

    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    pub fn sync(&mut self) -> std::io::Result<()> {
        self.file.sync_data()?;
        self.synced_at = Instant::now();
        self.dirty = false;
        Ok(())
    }

    fn write(&mut self, mark: Mark) -> std::io::Result<()> {
        self.file.write_all_at(&encode(mark), self.next * SLOT)?;
        self.next = 1 - self.next;
        self.dirty = true;
        Ok(())
    }
}

fn encode(mark: Mark) -> [u8; SLOT_LEN] {
    let mut slot = [0; SLOT_LEN];
    slot[..7].copy_from_slice(MAGIC);
    slot[7] = mark.format;
    slot[8] = u8::from(mark.made);
    slot[16..24].copy_from_slice(&mark.revision.to_le_bytes());
    let sum = xxh3_64(&slot[..24]);
    slot[24..].copy_from_slice(&sum.to_le_bytes());
    slot
}

fn decode(slot: &[u8]) -> Option<Mark> {
    let revision = u64::from_le_bytes(slot.get(16..24)?.try_into().ok()?);
    let mark = Mark { format: *slot.get(7)?, made: *slot.get(8)? != 0, revision };
    ((FIRST_FORMAT..=FORMAT).contains(&mark.format) && encode(mark) == slot).then_some(mark)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_readable_mark_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head");
        assert_eq!(find(&path).unwrap(), Found::Nothing);
        let mut head = Head::open(&path, Mark { made: false, ..Mark::made(1) }).unwrap();
        assert_eq!(find(&path).unwrap(), Found::Mark(Mark { made: false, ..Mark::made(1) }));
        for revision in 1..5 {
            head.advance(revision).unwrap();
            assert_eq!(find(&path).unwrap(), Found::Mark(Mark::made(revision)));
        }
        let whole = std::fs::read(&path).unwrap();
        for at in [8, SLOT as usize + 16] {
            let mut torn = whole.clone();
            torn[at] ^= 1;
            std::fs::write(&path, &torn).unwrap();
            let Found::Mark(mark) = find(&path).unwrap() else { panic!("one slot is whole") };
            assert!(mark.revision == 3 || mark.revision == 4);
        }
        std::fs::write(&path, &whole[..20]).unwrap();
        assert_eq!(find(&path).unwrap(), Found::Unreadable);
        let mut newer = whole.clone();
        newer[7] = 9;
        std::fs::write(&path, &newer).unwrap();
        assert_eq!(find(&path).unwrap(), Found::Newer(9));
    }
}
