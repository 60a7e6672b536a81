//! A backup: all objects of one revision in one file, and files that belong to them, such as keys.
//!
//! The file begins with [`MAGIC`], which ends with the version of the format. Frames follow, each
//! `kind (1) | length of the name (2) | length of the body (4) | name | body | checksum (8)`:
//!
//! - `H`, the first: `revision (8) | seconds since 1970 at which the backup began (8)`;
//! - `O`, an object: its key, and its record as the store writes it. Keys ascend;
//! - `F`, a file: its path, and its content;
//! - `E`, the last: `revision (8) | objects (8) | files (8) | sum of the objects' checksums (8) | hash (16)`. The hash is
//!   over every byte before this frame.
//!
//! A changed byte, a missing, added or moved frame and a truncated end are therefore detected. The checksums protect
//! against accidents, not against an attacker who computes them again.

use std::io::{self, Read};

use bytes::Bytes;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::record::{self, BadRecord, Entry, MAX_RECORD};
use crate::{MAX_KEY, Store};

const MAGIC: &[u8; 8] = b"tallybk\x01";
const FRAME_HEADER: usize = 1 + 2 + 4;
/// The longest content of a file: keys and certificates have a few kilobytes.
pub const MAX_FILE: usize = 1024 * 1024;
/// How much of a backup is encoded at a time.
const PIECE: usize = 64 * 1024;

/// What is added to the revision of a backup when it is restored. A client that has seen later revisions of the old
/// cluster than the backup has then receives 410 and lists again, instead of waiting for a revision that comes later with
/// another meaning. It suffices for 10,000 writes per second for three years after the backup; a revision has room
/// for 18 million such steps.
pub const RESTORE_STEP: u64 = 1_000_000_000_000;

/// A file in a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupFile {
    /// Relative, with `/` between its parts.
    pub path: String,
    pub content: Bytes,
}

/// A backup that is being encoded: an iterator over its pieces.
pub struct Backup {
    revision: u64,
    begun_at: i64,
    objects: std::vec::IntoIter<Entry>,
    files: std::vec::IntoIter<BackupFile>,
    hash: Xxh3,
    counted: Counted,
    state: Encoding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Begin,
    Content,
    Done,
}

/// What the last frame says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    objects: u64,
    files: u64,
    digest: u64,
}

impl Store {
    /// A backup of the newest revision. Writes that come later are not in it, and do not wait for it: the backup shares
    /// the objects of its revision with the store. `begun_at`: seconds since 1970.
    pub fn backup(&self, files: Vec<BackupFile>, begun_at: i64) -> Backup {
        let (objects, revision) = self.shared.read().snapshot();
        Backup {
            revision,
            begun_at,
            objects: objects.into_iter(),
            files: files.into_iter(),
            hash: Xxh3::new(),
            counted: Counted::default(),
            state: Encoding::Begin,
        }
    }
}

impl Backup {
    pub fn revision(&self) -> u64 {
        self.revision
    }
}

impl Iterator for Backup {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut piece = Vec::new();
        match self.state {
            Encoding::Begin => {
                piece.extend_from_slice(MAGIC);
                let body = [self.revision.to_le_bytes(), self.begun_at.to_le_bytes()].concat();
                frame(b'H', "", &body, &mut piece);
                self.state = Encoding::Content;
            }
            Encoding::Content => {
                let mut record = Vec::new();
                while piece.len() < PIECE && self.state == Encoding::Content {
                    if let Some(entry) = self.objects.next() {
                        record.clear();
                        record::encode_into(&entry, &mut record);
                        frame(b'O', &entry.key, &record, &mut piece);
                        self.counted.objects += 1;
                        self.counted.digest = self.counted.digest.wrapping_add(entry.sum);
                    } else if let Some(file) = self.files.next() {
                        frame(b'F', &file.path, &file.content, &mut piece);
                        self.counted.files += 1;
                    } else {
                        self.hash.update(&piece);
                        let body = end(self.revision, &self.counted, self.hash.digest128());
                        frame(b'E', "", &body, &mut piece);
                        self.state = Encoding::Done;
                    }
                }
            }
            Encoding::Done => return None,
        }
        self.hash.update(&piece);
        Some(piece.into())
    }
}

fn frame(kind: u8, name: &str, body: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.push(kind);
    // Keys have at most 1,024 bytes and paths are short; bodies have at most a few megabytes.
    out.extend_from_slice(&(name.len() as u16).to_le_bytes());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(body);
    let sum = xxh3_64(&out[start..]);
    out.extend_from_slice(&sum.to_le_bytes());
}

fn end(revision: u64, counted: &Counted, hash: u128) -> Vec<u8> {
    let numbers = [revision, counted.objects, counted.files, counted.digest];
    let mut body: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
    body.extend_from_slice(&hash.to_le_bytes());
    body
}

/// Why a backup cannot be used. The message is a part of a sentence about the file.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("is not a backup of tally: it does not begin as one")]
    NotABackup,
    #[error("was written by a newer version (format {found}, this one knows {known}); use that version")]
    Newer { found: u8, known: u8 },
    #[error("is cut short: it has {at} bytes and no end")]
    CutShort { at: u64 },
    #[error("is damaged or was edited at byte {at}{}", .key.as_ref().map(|key| format!(", at {key}")).unwrap_or_default())]
    Damaged { at: u64, key: Option<String> },
    #[error("does not have what its end says: objects or files are missing, added or in another order")]
    NotWhole,
    #[error("has more data after its end, from byte {at} on")]
    Longer { at: u64 },
    #[error("cannot be read")]
    Io(#[from] io::Error),
}

/// An object or a file of a backup.
#[derive(Debug)]
pub enum BackupItem {
    Object(Entry),
    File(BackupFile),
}

/// Reads a backup. It is whole only if the iterator ends without an error: nothing that was read before may be used
/// otherwise.
pub struct BackupReader<R> {
    input: R,
    at: u64,
    revision: u64,
    begun_at: i64,
    hash: Xxh3,
    counted: Counted,
    last_key: Option<Box<str>>,
    ended: bool,
}

impl<R: Read> BackupReader<R> {
    pub fn open(mut input: R) -> Result<Self, BackupError> {
        let mut magic = [0; 8];
        match input.read_exact(&mut magic) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(BackupError::NotABackup),
            other => other?,
        }
        let (name, format) = MAGIC.split_at(7);
        match magic.split_at(7) {
            (found, &[found_format]) if found == name && found_format > format[0] => {
                return Err(BackupError::Newer { found: found_format, known: format[0] });
            }
            _ if magic != *MAGIC => return Err(BackupError::NotABackup),
            _ => {}
        }
        let mut hash = Xxh3::new();
        hash.update(&magic);
        let mut reader = Self {
            input,
            at: 8,
            revision: 0,
            begun_at: 0,
            hash,
            counted: Counted::default(),
            last_key: None,
            ended: false,
        };
        let at = reader.at;
        let header = reader.frame()?;
        match (header.kind, <[u8; 16]>::try_from(header.body())) {
            (b'H', Ok(body)) => {
                let number = u128::from_le_bytes(body);
                (reader.revision, reader.begun_at) = (number as u64, (number >> 64) as i64);
                Ok(reader)
            }
            _ => Err(BackupError::Damaged { at, key: None }),
        }
    }

    /// The revision whose state the backup contains.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// When the backup began, in seconds since 1970.
    pub fn begun_at(&self) -> i64 {
        self.begun_at
    }

    fn item(&mut self) -> Result<Option<BackupItem>, BackupError> {
        let at = self.at;
        let hash = self.hash.digest128();
        let frame = self.frame()?;
        let name = std::str::from_utf8(frame.name()).map_err(|_| BackupError::Damaged { at, key: None })?;
        match frame.kind {
            b'O' => {
                let entry = record::read(frame.name(), frame.body()).map_err(|bad| match bad {
                    BadRecord::Newer(found) => BackupError::Newer { found, known: record::FORMAT },
                    BadRecord::Damaged => BackupError::Damaged { at, key: Some(name.to_owned()) },
                })?;
                let ascends = self.last_key.as_ref().is_none_or(|last| **last < *entry.key);
                if !ascends || self.counted.files > 0 || entry.revision > self.revision {
                    return Err(BackupError::NotWhole);
                }
                self.last_key = Some(entry.key.clone());
                self.counted.objects += 1;
                self.counted.digest = self.counted.digest.wrapping_add(entry.sum);
                Ok(Some(BackupItem::Object(entry)))
            }
            b'F' => {
                self.counted.files += 1;
                let content = Bytes::copy_from_slice(frame.body());
                Ok(Some(BackupItem::File(BackupFile { path: name.to_owned(), content })))
            }
            b'E' if frame.body() == end(self.revision, &self.counted, hash) => {
                let at = self.at;
                match self.input.read(&mut [0])? {
                    0 => Ok(None),
                    _ => Err(BackupError::Longer { at }),
                }
            }
            b'E' => Err(BackupError::NotWhole),
            _ => Err(BackupError::Damaged { at, key: None }),
        }
    }

    /// Reads one frame, whose checksum is correct.
    fn frame(&mut self) -> Result<Frame, BackupError> {
        let at = self.at;
        let mut bytes = vec![0; FRAME_HEADER];
        self.fill(&mut bytes)?;
        let name = usize::from(u16::from_le_bytes([bytes[1], bytes[2]]));
        let body = u32::from_le_bytes([bytes[3], bytes[4], bytes[5], bytes[6]]) as usize;
        if name > MAX_KEY || body > MAX_RECORD.max(MAX_FILE) {
            return Err(BackupError::Damaged { at, key: None });
        }
        let length = FRAME_HEADER + name + body;
        bytes.resize(length + 8, 0);
        self.fill(&mut bytes[FRAME_HEADER..])?;
        let (frame, sum) = bytes.split_at(length);
        if xxh3_64(frame).to_le_bytes() != sum {
            let key = frame.get(FRAME_HEADER..FRAME_HEADER + name).and_then(|key| std::str::from_utf8(key).ok());
            let key = key.filter(|key| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()));
            return Err(BackupError::Damaged { at, key: key.map(str::to_owned) });
        }
        self.hash.update(&bytes);
        Ok(Frame { kind: bytes[0], name, bytes })
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), BackupError> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.input.read(&mut bytes[filled..]) {
                Ok(0) => return Err(BackupError::CutShort { at: self.at }),
                Ok(read) => (filled, self.at) = (filled + read, self.at + read as u64),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

struct Frame {
    kind: u8,
    /// The length of the name.
    name: usize,
    /// With header and checksum.
    bytes: Vec<u8>,
}

impl Frame {
    fn name(&self) -> &[u8] {
        &self.bytes[FRAME_HEADER..FRAME_HEADER + self.name]
    }

    fn body(&self) -> &[u8] {
        &self.bytes[FRAME_HEADER + self.name..self.bytes.len() - 8]
    }
}

impl<R: Read> Iterator for BackupReader<R> {
    type Item = Result<BackupItem, BackupError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let item = self.item().transpose();
        self.ended = !matches!(item, Some(Ok(_)));
        item
    }
}
