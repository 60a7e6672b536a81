//! Reads the engine's journal before the engine opens it, because the engine would cut off what it cannot read.
//!
//! The writer syncs each group before it writes the next one. Therefore a crash can leave behind at most one incomplete
//! group; it is the last thing in the journal, and it was never acknowledged. Any other unreadable data is damage to
//! acknowledged writes, and must be refused while all the bytes are still there:
//!
//! - something whole, the traces of a second group, or a group that does not follow the last whole one, after the
//!   broken place;
//! - an end before the revision that the head records as acknowledged.
//!
//! This module reads the engine's third format (`FJL3`), which the engine's version file names.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::disk::{ACCOUNT_KEY, ACCOUNT_LEN, ACCOUNT_MAGIC, decode_account};

/// The end of each whole batch.
pub(crate) const TRAILER: &[u8; 4] = b"FJL\x03";

/// More than any one group takes: the writer's limit of 8 MiB, a single larger object, and their framing.
const LARGEST_GROUP: u64 = 16 * 1024 * 1024;
/// More than the engine ever uses between two groups, and small enough to be harmless if it is accepted by mistake.
pub(crate) const SEQNO_STEP: u64 = 1 << 20;
/// Enough for a million groups per second for eight years; the engine's own limit is far higher.
pub(crate) const SEQNO_LIMIT: u64 = 1 << 48;

/// The content of the journals, read in order.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The revision of the newest whole group.
    pub newest: Option<u64>,
    /// An incomplete last group.
    pub torn: Option<Torn>,
}

#[derive(Debug)]
pub(crate) struct Torn {
    pub path: PathBuf,
    /// The offset in the file at which it begins.
    pub at: u64,
    /// The revision it follows, if that can still be read.
    pub follows: Option<u64>,
}

impl Torn {
    /// Whether this can be the one group that was in progress when the store was at `revision`. If it follows another
    /// revision, there is a gap before it.
    pub fn can_follow(&self, revision: u64) -> bool {
        self.follows.is_none_or(|follows| follows == revision)
    }
}

impl std::fmt::Display for Torn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", broken_at(&self.path, self.at))
    }
}

fn broken_at(path: &Path, at: u64) -> String {
    format!("{} is broken at byte {at}", path.display())
}

/// The journals of the engine in `dir`, oldest first.
pub(crate) fn paths(dir: &Path) -> io::Result<Vec<PathBuf>> {
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

/// Reads all journals of the engine in `dir` without changing anything. The inner error says what is damaged.
pub(crate) fn survey(dir: &Path) -> io::Result<Result<Survey, String>> {
    let mut survey = Survey::default();
    let mut seqno = None;
    for path in paths(dir)? {
        let mut journal = Journal::open(&path, seqno)?;
        while let Some(account) = journal.batch()? {
            if let Some(torn) = &survey.torn {
                return Ok(Err(torn.to_string()));
            }
            // Batches that the engine writes for itself have no account.
            survey.newest = account.or(survey.newest);
        }
        seqno = journal.seqno;
        match journal.traces_behind()? {
            None => {}
            Some(Traces { groups: 0 | 1, follows }) if survey.torn.is_none() => {
                survey.torn = Some(Torn { at: journal.whole, path, follows });
            }
            Some(_) => return Ok(Err(broken_at(&path, journal.whole))),
        }
    }
    Ok(Ok(survey))
}

/// Truncates the journal before a torn group.
pub(crate) fn cut(torn: &Torn) -> io::Result<()> {
    truncate(&torn.path, torn.at)
}

fn truncate(path: &Path, at: u64) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    file.set_len(at)?;
    file.sync_all()
}

/// Truncates the journals after the group of `revision`, the newest that was acknowledged: whatever follows belongs to
/// a write that failed, also if it can be read completely. What can be read may not be on the disk: after a failed sync
/// the operating system may have dropped pages that it still shows.
///
/// Nothing is changed if the acknowledged groups are not all before that place.
pub(crate) fn cut_after(dir: &Path, revision: u64) -> io::Result<()> {
    let mut cuts = Vec::new();
    let mut seqno = None;
    for path in paths(dir)? {
        let mut journal = Journal::open(&path, seqno)?;
        let mut end = if cuts.is_empty() { None } else { Some(0) };
        loop {
            let begins = journal.whole;
            match journal.batch()? {
                Some(Some(found)) if found > revision => {
                    end.get_or_insert(begins);
                }
                // A batch that the engine wrote for itself.
                Some(None) => {}
                Some(Some(found)) if end.is_some() => {
                    let what = format!("{} has revision {found} after a place that is broken", path.display());
                    return Err(io::Error::new(ErrorKind::InvalidData, what));
                }
                Some(Some(_)) => {}
                None => break,
            }
        }
        seqno = journal.seqno;
        if end.is_none() && journal.end_of_data()? > journal.whole {
            end = Some(journal.whole);
        }
        cuts.extend(end.map(|at| (path, at)));
    }
    cuts.iter().try_for_each(|(path, at)| truncate(path, *at))
}

struct Journal {
    file: BufReader<File>,
    length: u64,
    at: u64,
    /// The end of the last whole batch.
    whole: u64,
    /// The sequence number of the last whole batch.
    seqno: Option<u64>,
    item: Vec<u8>,
}

impl Journal {
    fn open(path: &Path, seqno: Option<u64>) -> io::Result<Journal> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let file = BufReader::with_capacity(256 * 1024, file);
        Ok(Journal { file, length, at: 0, whole: 0, seqno, item: Vec::new() })
    }

    /// Reads one batch and returns the revision of the account in it, if there is one. None if no whole batch follows.
    fn batch(&mut self) -> io::Result<Option<Option<u64>>> {
        match self.try_batch() {
            Ok(account) => {
                self.whole = self.at;
                Ok(Some(account))
            }
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A batch is `1 count seqno`, `count` items, `3 checksum trailer`. An item is
    /// `2 type compression keyspace key-length value-length stored-length key value`, or `4 keyspace` if it clears a
    /// keyspace.
    fn try_batch(&mut self) -> io::Result<Option<u64>> {
        let broken = || io::Error::from(ErrorKind::InvalidData);
        let [1] = self.bytes()? else { return Err(broken()) };
        let items = u32::from_le_bytes(self.bytes()?);
        let seqno = u64::from_le_bytes(self.bytes()?);
        let mut account = None;
        let mut hash = Xxh3::new();
        for _ in 0..items {
            match self.bytes()? {
                [2] => {
                    let head: [u8; 20] = self.bytes()?;
                    let [.., k0, k1, v0, v1, v2, v3, s0, s1, s2, s3] = head;
                    let key = usize::from(u16::from_le_bytes([k0, k1]));
                    let value = u32::from_le_bytes([v0, v1, v2, v3]);
                    let compressed = head[1] != 0 || value != u32::from_le_bytes([s0, s1, s2, s3]);
                    let size = key as u64 + u64::from(value);
                    if compressed || size > self.length.saturating_sub(self.at) {
                        return Err(broken());
                    }
                    self.item.resize(size as usize, 0);
                    self.file.read_exact(&mut self.item)?;
                    self.at += size;
                    hash.update(&[2]);
                    hash.update(&head);
                    hash.update(&self.item);
                    let (key, value) = self.item.split_at(key);
                    if key == ACCOUNT_KEY {
                        account = decode_account(value).map(|account| account.revision).or(account);
                    }
                }
                [4] => {
                    let keyspace: [u8; 8] = self.bytes()?;
                    hash.update(&[4]);
                    hash.update(&keyspace);
                }
                _ => return Err(broken()),
            }
        }
        let [3] = self.bytes()? else { return Err(broken()) };
        let sum = u64::from_le_bytes(self.bytes()?);
        let trailer: [u8; 4] = self.bytes()?;
        // The checksum does not cover the sequence number, by which the engine determines the newer of two records, and
        // which must not run out. Between two groups the engine uses a few numbers itself.
        let follows = match self.seqno {
            Some(last) => seqno > last && seqno - last < SEQNO_STEP,
            None => seqno < SEQNO_LIMIT,
        };
        if &trailer != TRAILER || sum != hash.digest() || !follows {
            return Err(broken());
        }
        self.seqno = Some(seqno);
        Ok(account)
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    /// The data after the last whole batch; none if there is no such data. The engine preallocates its files, and the
    /// unused rest of them is zero.
    fn traces_behind(&mut self) -> io::Result<Option<Traces>> {
        let end = self.end_of_data()?;
        if end <= self.whole {
            return Ok(None);
        }
        let length = end - self.whole;
        if length > LARGEST_GROUP {
            return Ok(Some(Traces { groups: 2, follows: None }));
        }
        self.item.resize(length as usize, 0);
        self.file.seek(SeekFrom::Start(self.whole))?;
        self.file.read_exact(&mut self.item)?;
        let rest = &self.item;
        // Every group has one account, which begins with bytes that no text contains.
        let accounts: Vec<usize> = occurrences(rest, ACCOUNT_MAGIC).collect();
        let groups = accounts.len();
        let account = accounts.first().and_then(|at| decode_account(rest.get(*at..at + ACCOUNT_LEN)?));
        Ok(Some(Traces { groups, follows: account.map(|account| account.follows) }))
    }

    /// The offset after the last byte that is not zero.
    fn end_of_data(&mut self) -> io::Result<u64> {
        const CHUNK: usize = 64 * 1024;
        static ZERO: [u8; CHUNK] = [0; CHUNK];
        let mut chunk = vec![0; CHUNK];
        let (mut at, mut end) = (self.whole, 0);
        self.file.seek(SeekFrom::Start(at))?;
        loop {
            let read = self.file.read(&mut chunk)?;
            let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else { return Ok(end) };
            if bytes != &ZERO[..read] {
                let last = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
                end = at + last as u64 + 1;
            }
            at += read as u64;
        }
    }
}

/// What is left of incomplete groups.
struct Traces {
    groups: usize,
    /// The revision that the first of them names as its predecessor.
    follows: Option<u64>,
}

pub(crate) fn occurrences<'a>(bytes: &'a [u8], pattern: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    bytes.windows(pattern.len()).enumerate().filter(move |(_, window)| *window == pattern).map(|(at, _)| at)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    /// The version whose `src/journal` was compared with this module.
    const CHECKED: &str = "3.1.13";

    #[test]
    fn fjall_is_the_version_whose_journal_this_module_reads() {
        let lock = include_str!("../../../Cargo.lock");
        let versions: Vec<&str> = lock
            .split("[[package]]")
            .filter(|package| package.contains("\nname = \"fjall\"\n"))
            .filter_map(|package| package.split("\nversion = \"").nth(1)?.split('"').next())
            .collect();
        assert_eq!(
            versions,
            [CHECKED],
            "Cargo.lock has another fjall than the one whose private journal format crates/store/src/journal.rs reads. \
             Compare `src/journal` and `src/batch` of both versions with `Journal::try_batch` and with what the module \
             says about crashes, run the tests `damage` and `kill` of tally-store, then change the exact version in \
             Cargo.toml and `CHECKED` here"
        );
    }
}
