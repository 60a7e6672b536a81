//! A look at the engine's journal before the engine opens it, for the engine would cut off what it cannot read.
//!
//! The writer syncs each group before it writes the next one. Therefore a crash can leave behind at most one group that
//! is not whole, it is the last thing in the journal, and nobody was told it had been written. Anything else that cannot
//! be read is damage to acknowledged writes, and is to be refused while all the bytes are still there:
//!
//! - something whole, or the traces of a second group, behind the broken place;
//! - an end before the revision that the head knows was acknowledged.
//!
//! The form read here is that of the engine's third format (`FJL3`), which its version file names.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::disk::{ACCOUNT_KEY, ACCOUNT_MAGIC, decode_account};

/// The end of each whole batch.
const TRAILER: &[u8; 4] = b"FJL\x03";

/// What the journals hold, read in order.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The revision of the newest whole group.
    pub newest: Option<u64>,
    /// A last group that is not whole.
    pub torn: Option<Torn>,
}

#[derive(Debug)]
pub(crate) struct Torn {
    pub path: PathBuf,
    /// Where in the file it begins.
    pub at: u64,
}

/// Reads all journals of the engine in `dir` without changing anything. The inner error says what is damaged.
pub(crate) fn survey(dir: &Path) -> io::Result<Result<Survey, String>> {
    let mut journals = Vec::new();
    for file in std::fs::read_dir(dir)? {
        let path = file?.path();
        let number = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".jnl"));
        if let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) {
            journals.push((number, path));
        }
    }
    journals.sort();
    let mut survey = Survey::default();
    for (_, path) in journals {
        let mut journal = Journal::open(&path)?;
        while let Some(account) = journal.batch()? {
            if let Some(torn) = &survey.torn {
                return Ok(Err(format!("{} is broken at byte {}", torn.path.display(), torn.at)));
            }
            // The engine's own notes have no account.
            survey.newest = account.or(survey.newest);
        }
        match journal.traces_behind()? {
            None => {}
            Some(groups) if groups > 1 || survey.torn.is_some() => {
                return Ok(Err(format!("{} is broken at byte {}", path.display(), journal.whole)));
            }
            Some(_) => survey.torn = Some(Torn { at: journal.whole, path }),
        }
    }
    Ok(Ok(survey))
}

/// Cuts a torn group off.
pub(crate) fn cut(torn: &Torn) -> io::Result<()> {
    let file = File::options().write(true).open(&torn.path)?;
    file.set_len(torn.at)?;
    file.sync_all()
}

struct Journal {
    file: BufReader<File>,
    length: u64,
    at: u64,
    /// The end of the last whole batch.
    whole: u64,
    item: Vec<u8>,
}

impl Journal {
    fn open(path: &Path) -> io::Result<Journal> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Journal { file: BufReader::with_capacity(256 * 1024, file), length, at: 0, whole: 0, item: Vec::new() })
    }

    /// Reads one batch: the revision of the account in it, if there is one. None when no whole batch follows.
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

    /// A batch is `1 count seqno`, as many items, `3 checksum trailer`; an item is
    /// `2 type compression keyspace key-length value-length stored-length key value`, or `4 keyspace` for a clearing.
    fn try_batch(&mut self) -> io::Result<Option<u64>> {
        let broken = || io::Error::from(ErrorKind::InvalidData);
        let [1] = self.bytes()? else { return Err(broken()) };
        let items = u32::from_le_bytes(self.bytes()?);
        let _seqno: [u8; 8] = self.bytes()?;
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
        if &trailer != TRAILER || sum != hash.digest() {
            return Err(broken());
        }
        Ok(account)
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    /// What lies behind the last whole batch: none if nothing does (the engine makes its files larger than needed, and
    /// the rest of them is zero), else how many groups have left a trace. An account is in every group, once, and
    /// begins with bytes that no text holds.
    fn traces_behind(&mut self) -> io::Result<Option<usize>> {
        const CHUNK: usize = 64 * 1024;
        static ZERO: [u8; CHUNK] = [0; CHUNK];
        self.file.seek(SeekFrom::Start(self.whole))?;
        let mut chunk = Vec::with_capacity(CHUNK);
        let mut end_of_last: Vec<u8> = Vec::new();
        let mut groups = None;
        loop {
            chunk.clear();
            self.file.by_ref().take(CHUNK as u64).read_to_end(&mut chunk)?;
            if chunk.is_empty() {
                return Ok(groups);
            }
            if chunk[..] != ZERO[..chunk.len()] {
                let seen = groups.get_or_insert(0);
                // The magic may lie across two chunks.
                end_of_last.extend_from_slice(&chunk);
                *seen += end_of_last.windows(ACCOUNT_MAGIC.len()).filter(|bytes| bytes == ACCOUNT_MAGIC).count();
            }
            end_of_last.clear();
            end_of_last.extend_from_slice(&chunk[chunk.len().saturating_sub(ACCOUNT_MAGIC.len() - 1)..]);
        }
    }
}
