//! The files of a store: one state, and the logs that follow it.
//!
//! - `N.log`: groups of writes in the order in which they were made, each appended and synced as a whole. When the logs have
//!   grown, the next one is begun, and what is in the others is merged ([`merge`]) into
//! - `N.state`: all objects as they were at the end of `N.log`. It takes the place of all logs up to that one.
//!
//! A file begins with a header, `magic (8) | number (8) | checksum (8)`, and groups follow. A group is
//! `account (48) | length of its items (4) | items | checksum (8)`, with the checksum over everything before it. An item is
//! `kind (1) | length of the key (2) | length of the record (4) | key | record`. The record of a deletion has no value.
//!
//! The account of a group describes the store after it, and names the revision before it: groups that are missing, swapped
//! or of another store are noticed. In a state it describes what the file contains so far; the last group, and only that,
//! follows revision 0.
//!
//! The writer syncs each group before it writes the next one. Therefore a crash leaves at most one incomplete group; it is
//! the last thing in the last log, and was never acknowledged. Anything else that cannot be read is damage.

mod file;
pub(crate) mod merge;

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use crate::backend::Account;
use crate::record::MAX_RECORD;
use crate::{FIRST, MAX_KEY};

pub(crate) use file::{Log, StateWriter, sync_directory};

/// The last byte of a magic is the format.
const LOG_MAGIC: &[u8; 8] = b"tallylg\x01";
const STATE_MAGIC: &[u8; 8] = b"tallyst\x01";
pub(crate) const HEADER_LEN: usize = 24;

/// The first bytes of an account, and so of a group. They are not valid text, so no object can contain them.
pub(crate) const ACCOUNT_MAGIC: &[u8; 8] = b"\xff\xfeacct\xff\x01";
/// The magic, four numbers and a checksum.
pub(crate) const ACCOUNT_LEN: usize = 48;
/// The account and the length of the items.
const GROUP_HEADER: usize = ACCOUNT_LEN + 4;
const SUM_LEN: usize = 8;
/// More than a log has that was only begun: a header, and zeros.
const BEGUN: usize = 1024 * 1024;
/// More than any group has: the writer's limit of 8 MiB, or a single larger object, and what is around them.
pub(crate) const LARGEST_GROUP: usize = 16 * 1024 * 1024;

const ITEM_HEADER: usize = 7;
const PUT: u8 = b'p';
const DELETION: u8 = b'd';

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    State,
    Log,
}

/// Which file of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    pub number: u64,
    pub kind: Kind,
}

impl Name {
    pub fn log(number: u64) -> Self {
        Self { number, kind: Kind::Log }
    }

    pub fn state(number: u64) -> Self {
        Self { number, kind: Kind::State }
    }

    pub fn path(self, dir: &Path) -> PathBuf {
        let extension = if self.kind == Kind::State { "state" } else { "log" };
        dir.join(format!("{}.{extension}", self.number))
    }

    fn parse(path: &Path) -> Option<Self> {
        let number = path.file_stem()?.to_str()?.parse().ok()?;
        let name = match path.extension()?.to_str()? {
            "log" => Self::log(number),
            "state" => Self::state(number),
            _ => return None,
        };
        // There are other ways to write a number.
        (name.path(path.parent()?) == path).then_some(name)
    }

    fn header(self) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        header[..8].copy_from_slice(if self.kind == Kind::State { STATE_MAGIC } else { LOG_MAGIC });
        header[8..16].copy_from_slice(&self.number.to_le_bytes());
        let sum = xxh3_64(&header[..16]);
        header[16..].copy_from_slice(&sum.to_le_bytes());
        header
    }

    /// Whether nothing follows the header, which may be incomplete.
    fn was_only_begun(self, dir: &Path) -> io::Result<bool> {
        let file = File::open(self.path(dir))?;
        if file.metadata()?.len() > BEGUN as u64 {
            return Ok(false);
        }
        let mut bytes = Vec::new();
        file.take(BEGUN as u64).read_to_end(&mut bytes)?;
        Ok(newer_file(&bytes, self).is_none() && bytes.iter().skip(HEADER_LEN).all(|byte| *byte == 0))
    }

    /// Whether these are the first bytes of this file.
    pub fn begins(self, bytes: &[u8]) -> bool {
        bytes.starts_with(&self.header())
    }
}

/// The files that count, and those that do not any more.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// A state, if there is one, and the logs after it.
    pub current: Vec<Name>,
    /// Merged into the state, or never completed.
    pub stale: Vec<PathBuf>,
}

pub(crate) fn files(dir: &Path) -> io::Result<Files> {
    let mut files = Files::default();
    let mut names = Vec::new();
    for file in std::fs::read_dir(dir)? {
        let path = file?.path();
        match Name::parse(&path) {
            Some(name) => names.push(name),
            None if path.extension().is_some_and(|extension| extension == file::UNFINISHED) => files.stale.push(path),
            None => {}
        }
    }
    names.sort_unstable();
    let state = names.iter().rev().find(|name| name.kind == Kind::State).copied();
    for name in names {
        let counts = state.is_none_or(|state| name == state || name.number > state.number);
        if counts { files.current.push(name) } else { files.stale.push(name.path(dir)) }
    }
    Ok(files)
}

impl Files {
    /// The last log that has groups: a crash, or a full disk, may leave logs behind it that were only begun. If none has, the
    /// first one.
    pub fn last(&self, dir: &Path) -> io::Result<Option<Name>> {
        let mut logs = self.current.iter().filter(|name| name.kind == Kind::Log);
        let first = logs.next().copied();
        for &name in logs.rev() {
            if !name.was_only_begun(dir)? {
                return Ok(Some(name));
            }
        }
        Ok(first)
    }

    /// The first log that should be there and is not.
    pub fn missing(&self) -> Option<Name> {
        let mut next = self
            .current
            .first()
            .filter(|first| first.kind == Kind::State)
            .map_or(1, |state| state.number.saturating_add(1));
        for log in self.current.iter().filter(|name| name.kind == Kind::Log) {
            if log.number != next {
                return Some(Name::log(next));
            }
            next = next.saturating_add(1);
        }
        self.current.iter().all(|name| name.kind == Kind::State).then_some(Name::log(next))
    }
}

/// Why files cannot be used.
#[derive(Debug)]
pub(crate) enum Fault {
    Io(io::Error),
    /// A part of a sentence.
    Damaged(String),
    Newer {
        found: u8,
        known: u8,
    },
    /// The reader was asked to stop.
    Stopped,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// One write in a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    pub key: &'a [u8],
    /// That of a deletion has no value.
    pub record: &'a [u8],
    pub deletes: bool,
    /// With its header.
    pub length: usize,
}

impl<'a> Item<'a> {
    /// The item at the beginning of these bytes.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let &[kind @ (PUT | DELETION), k0, k1, r0, r1, r2, r3, ref rest @ ..] = bytes else { return None };
        let (key, record) = (u16::from_le_bytes([k0, k1]).into(), u32::from_le_bytes([r0, r1, r2, r3]) as usize);
        if key > MAX_KEY || record > MAX_RECORD {
            return None;
        }
        let (key, rest) = rest.split_at_checked(key)?;
        let record = rest.get(..record)?;
        Some(Self { key, record, deletes: kind == DELETION, length: ITEM_HEADER + key.len() + record.len() })
    }
}

/// All items, as far as they can be parsed, each with its offset.
pub(crate) fn items(bytes: &[u8]) -> impl Iterator<Item = (usize, Item<'_>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let item = Item::parse(bytes.get(at..)?)?;
        let found = (at, item);
        at += item.length;
        Some(found)
    })
}

/// A group that is being encoded.
pub(crate) struct GroupBuffer(Vec<u8>);

impl GroupBuffer {
    pub fn new() -> Self {
        Self(vec![0; GROUP_HEADER])
    }

    pub fn add(&mut self, key: &str, record: &[u8], deletes: bool) {
        let Self(bytes) = self;
        bytes.push(if deletes { DELETION } else { PUT });
        // The store accepts no longer keys and values.
        bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
        bytes.extend_from_slice(key.as_bytes());
        bytes.extend_from_slice(record);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The whole group.
    pub fn finish(&mut self, account: &Account) -> &[u8] {
        let Self(bytes) = self;
        let length = (bytes.len() - GROUP_HEADER) as u32;
        bytes[..ACCOUNT_LEN].copy_from_slice(&encode_account(account));
        bytes[ACCOUNT_LEN..GROUP_HEADER].copy_from_slice(&length.to_le_bytes());
        let sum = xxh3_64(bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Begins the next group. What a large one needed is given back.
    pub fn clear(&mut self) {
        self.0.truncate(GROUP_HEADER);
        self.0.shrink_to(1024 * 1024);
    }
}

/// A group that is whole.
pub(crate) struct Group<'a> {
    /// None: it is that of a newer version.
    pub account: Option<Account>,
    pub items: &'a [u8],
    /// With everything.
    pub length: usize,
}

impl<'a> Group<'a> {
    /// The group at the beginning of these bytes, if its checksum is correct.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let header = bytes.get(..GROUP_HEADER)?;
        let length = group_length(header)?;
        let account = decode_account(&header[..ACCOUNT_LEN]);
        // Before the rest is read: it may be long.
        if account.is_none() && newer_account(header).is_none() {
            return None;
        }
        let (group, sum) = bytes.get(..length)?.split_at(length - SUM_LEN);
        if xxh3_64(group).to_le_bytes() != sum {
            return None;
        }
        let items = &group[GROUP_HEADER..];
        // What a newer version writes has a correct checksum, too.
        (account.is_none() || items_end(items) == items.len()).then_some(Self { account, items, length })
    }
}

fn items_end(bytes: &[u8]) -> usize {
    items(bytes).last().map_or(0, |(at, item)| at + item.length)
}

/// The length of a group with this header; none if it is no header of a group.
fn group_length(header: &[u8]) -> Option<usize> {
    // Of any format: the checksum says whether it was written so.
    let is_group = header.starts_with(&ACCOUNT_MAGIC[..ACCOUNT_MAGIC.len() - 1]);
    let length = u32::from_le_bytes(header.get(ACCOUNT_LEN..GROUP_HEADER)?.try_into().ok()?) as usize;
    (is_group && length < LARGEST_GROUP).then_some(GROUP_HEADER + length + SUM_LEN)
}

/// What is behind the last whole group of a file.
#[derive(Clone, Debug)]
pub(crate) struct Rest {
    /// The offset at which it begins.
    pub at: u64,
    /// The offset after the last byte that is not zero.
    pub end: u64,
    /// How many groups have left traces.
    groups: usize,
    /// The revision that the first of them names as its predecessor.
    follows: Option<u64>,
}

impl Rest {
    pub fn new(at: u64, rest: &[u8]) -> Self {
        let end = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let found = occurrences(&rest[..end], ACCOUNT_MAGIC);
        let follows = found.first().and_then(|at| decode_account(rest.get(*at..at + ACCOUNT_LEN)?));
        Self { at, end: at + end as u64, groups: found.len(), follows: follows.map(|account| account.follows) }
    }

    pub fn is_empty(&self) -> bool {
        self.end <= self.at
    }

    /// Whether this can be the one group that was being written when the store was at `revision`.
    pub fn is_unfinished(&self, revision: u64) -> bool {
        self.groups <= 1 && self.end - self.at <= LARGEST_GROUP as u64 && self.follows.is_none_or(|it| it == revision)
    }
}

pub(crate) fn occurrences(bytes: &[u8], pattern: &[u8]) -> Vec<usize> {
    bytes.windows(pattern.len()).enumerate().filter(|(_, window)| *window == pattern).map(|(at, _)| at).collect()
}

/// Reads a file group by group.
struct Reader {
    file: BufReader<File>,
    length: u64,
    /// The end of the last whole group.
    whole: u64,
    group: Vec<u8>,
}

impl Reader {
    /// None: the file does not begin as it should.
    fn open(dir: &Path, name: Name) -> io::Result<Option<Self>> {
        let file = File::open(name.path(dir))?;
        let length = file.metadata()?.len();
        let mut reader =
            Self { file: BufReader::with_capacity(256 * 1024, file), length, whole: 0, group: vec![0; HEADER_LEN] };
        let begins = length >= HEADER_LEN as u64 && {
            reader.file.read_exact(&mut reader.group)?;
            name.begins(&reader.group)
        };
        reader.whole = if begins { HEADER_LEN as u64 } else { 0 };
        Ok(begins.then_some(reader))
    }

    /// The next group; none if no whole one follows. It is the last one that may be asked for then.
    fn next(&mut self) -> io::Result<Option<Group<'_>>> {
        let left = self.length - self.whole;
        self.group.resize(GROUP_HEADER, 0);
        if left < GROUP_HEADER as u64 {
            return Ok(None);
        }
        self.file.read_exact(&mut self.group)?;
        let Some(length) = group_length(&self.group).filter(|length| *length as u64 <= left) else { return Ok(None) };
        self.group.resize(length, 0);
        self.file.read_exact(&mut self.group[GROUP_HEADER..])?;
        let group = Group::parse(&self.group);
        self.whole += if group.is_some() { length as u64 } else { 0 };
        Ok(group)
    }

    fn rest(&mut self) -> io::Result<Rest> {
        const MOST: usize = 2 * LARGEST_GROUP;
        let mut rest = Vec::new();
        self.file.seek(SeekFrom::Start(self.whole))?;
        // More than a group can be, to notice that it is more.
        self.file.by_ref().take(MOST as u64).read_to_end(&mut rest)?;
        let mut found = Rest::new(self.whole, &rest);
        let (mut at, mut piece) = (self.whole + rest.len() as u64, vec![0; 64 * 1024]);
        loop {
            let read = self.file.read(&mut piece)?;
            if read == 0 {
                return Ok(found);
            }
            if let Some(last) = piece[..read].iter().rposition(|byte| *byte != 0) {
                found.end = at + last as u64 + 1;
            }
            at += read as u64;
        }
    }
}

/// Where an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    file: Name,
    at: u64,
}

/// What all files together say.
#[derive(Debug)]
pub(crate) struct Contents {
    pub account: Account,
    /// The bytes of the state.
    pub state: u64,
    /// The bytes of the logs after it.
    pub logs: u64,
    /// The log that is written on, where its last group begins, and where the next one goes.
    pub last: u64,
    pub newest: u64,
    pub whole: u64,
    /// An unfinished group follows there.
    pub unfinished: Option<Rest>,
}

/// Reads all files, or those up to a log that is no longer written: the items of all groups, in order. Changes nothing.
pub(crate) fn read(
    dir: &Path,
    up_to: Option<u64>,
    mut visit: impl FnMut(Place, &Item<'_>) -> Result<(), Fault>,
) -> Result<Contents, Fault> {
    let mut files = files(dir)?;
    files.current.retain(|name| up_to.is_none_or(|last| name.number <= last));
    if let Some(missing) = files.missing().filter(|missing| up_to.is_none_or(|last| missing.number <= last)) {
        return Err(Fault::Damaged(format!("{} is missing", missing.path(dir).display())));
    }
    let account = Account { revision: FIRST, follows: FIRST, objects: 0, digest: 0 };
    let mut found = Contents { account, state: 0, logs: 0, last: 0, newest: 0, whole: 0, unfinished: None };
    let last = files.last(dir)?;
    // What follows was only begun.
    files.current.retain(|name| last.is_none_or(|last| *name <= last));
    for &name in &files.current {
        let broken = |at: u64| Fault::Damaged(format!("{} is broken at byte {at}", name.path(dir).display()));
        let is_last = Some(name) == last;
        let Some(mut reader) = Reader::open(dir, name)? else {
            let mut header = Vec::new();
            File::open(name.path(dir))?.take(HEADER_LEN as u64).read_to_end(&mut header)?;
            if let Some((found, known)) = newer_file(&header, name) {
                return Err(Fault::Newer { found, known });
            }
            // A crash before its first group was written. Its place is taken by a new one.
            if !is_last || !name.was_only_begun(dir)? {
                return Err(broken(0));
            }
            (found.last, found.newest, found.whole) = (name.number, 0, 0);
            continue;
        };
        let mut newest = reader.whole;
        let mut is_complete = name.kind == Kind::Log;
        loop {
            let begins = reader.whole;
            let Some(group) = reader.next()? else { break };
            let Some(account) = group.account else {
                let (found, known) = newer_account(&reader.group).unwrap_or_default();
                return Err(Fault::Newer { found, known });
            };
            let follows = match name.kind {
                Kind::Log => account.follows == found.account.revision && account.revision > account.follows,
                Kind::State => !is_complete && [0, account.revision].contains(&account.follows),
            };
            if !follows {
                return Err(broken(begins));
            }
            is_complete |= account.follows == 0;
            for (at, item) in items(group.items) {
                visit(Place { file: name, at: begins + at as u64 }, &item)?;
            }
            found.account = account;
            newest = begins;
        }
        let rest = reader.rest()?;
        match name.kind {
            Kind::State => found.state = reader.whole,
            Kind::Log => {
                found.logs += reader.whole;
                (found.last, found.newest, found.whole) = (name.number, newest, reader.whole);
            }
        }
        if !is_complete || !rest.is_empty() {
            if !is_last || up_to.is_some() || !rest.is_unfinished(found.account.revision) {
                return Err(broken(rest.at));
            }
            found.unfinished = Some(rest);
        }
    }
    Ok(found)
}

/// The format of a file that a newer version has begun, and the one that is known.
pub(crate) fn newer_file(bytes: &[u8], name: Name) -> Option<(u8, u8)> {
    let known = if name.kind == Kind::State { STATE_MAGIC } else { LOG_MAGIC };
    let sum = xxh3_64(bytes.get(..16)?).to_le_bytes();
    newer_format(bytes, known).filter(|_| bytes.get(16..HEADER_LEN) == Some(&sum[..]))
}

fn encode_account(account: &Account) -> [u8; ACCOUNT_LEN] {
    let Account { revision, follows, objects, digest } = *account;
    let mut bytes = [0; ACCOUNT_LEN];
    bytes[..8].copy_from_slice(ACCOUNT_MAGIC);
    for (at, number) in [revision, follows, objects, digest].into_iter().enumerate() {
        bytes[8 * (at + 1)..8 * (at + 2)].copy_from_slice(&number.to_le_bytes());
    }
    let sum = xxh3_64(&bytes[..ACCOUNT_LEN - 8]);
    bytes[ACCOUNT_LEN - 8..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

pub(crate) fn decode_account(bytes: &[u8]) -> Option<Account> {
    let number = |at: usize| Some(u64::from_le_bytes(bytes.get(8 * at..8 * (at + 1))?.try_into().ok()?));
    let account = Account { revision: number(1)?, follows: number(2)?, objects: number(3)?, digest: number(4)? };
    (encode_account(&account) == bytes).then_some(account)
}

/// The format of an account of a newer version, and the one that is known.
pub(crate) fn newer_account(bytes: &[u8]) -> Option<(u8, u8)> {
    newer_format(bytes, ACCOUNT_MAGIC)
}

/// The last byte of `known` is a format.
pub(crate) fn newer_format(bytes: &[u8], known: &[u8]) -> Option<(u8, u8)> {
    let (format, name) = known.split_last()?;
    let found = bytes.strip_prefix(name)?.first()?;
    (found > format).then_some((*found, *format))
}
