//! The tables of the engine, and the lists of them.
//!
//! A keyspace is a directory. Its file `current` names the list `vN` in use and has the checksum of it; the list names the
//! tables and has the checksum of each. A table begins with blocks of items in key order, which are followed by an index
//! and other parts that are not needed here. A block has a header with a checksum of its own and one of its content.
//!
//! This module reads the third format of the engine's trees (`LSM3`), which the pinned version of the engine writes.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

use super::{number, take};
use crate::salvage::Findings;

const BLOCK_MAGIC: &[u8; 4] = b"LSM\x03";
/// `magic (4) | kind (1) | checksum of the content (16) | length (4) | length before compression (4) | checksum (4)`.
const BLOCK_HEADER: usize = 33;
const DATA_BLOCK: u8 = 0;
/// The end of a block's content: how its items are arranged.
const BLOCK_TRAILER: usize = 31;
/// Follows the last item of a block.
const NO_MORE_ITEMS: u8 = 255;
/// The end of a list or table: `magic (4) | version (1) | kind of checksum (1) | checksum (16) | position (8) | length (8)`
/// of the table of its sections.
const SECTIONS_TRAILER: usize = 38;
/// Every how many items a key is complete, if the block does not say: what the engine uses by default.
const USUAL_INTERVALS: [usize; 6] = [16, 10, 1, 2, 4, 8];

/// Reads the tables of all keyspaces.
pub fn read(engine: &Path, found: &mut Findings) -> io::Result<()> {
    let keyspaces = engine.join("keyspaces");
    let Some(numbers) = numbers(&keyspaces)? else {
        found.damage(&keyspaces, None, "is missing");
        return Ok(());
    };
    for number in &numbers {
        // The first keyspace is the engine's own: it contains the options of the others, and no objects.
        keyspace(&keyspaces.join(number.to_string()), *number != 0, found)?;
    }
    for number in [0, 1] {
        if !numbers.contains(&number) {
            found.damage(&keyspaces.join(number.to_string()), None, "is missing");
        }
    }
    Ok(())
}

/// The numbers that are names in a directory. None: there is no directory.
fn numbers(dir: &Path) -> io::Result<Option<Vec<u64>>> {
    let files = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        files => files?,
    };
    let mut numbers = Vec::new();
    for file in files {
        numbers.extend(file?.file_name().to_str().and_then(|name| name.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(Some(numbers))
}

/// A table as the list describes it.
struct Listed {
    number: u64,
    /// None: the list cannot be read.
    checksum: Option<u128>,
    /// Added to the numbers of the items.
    seqno: u64,
}

fn keyspace(dir: &Path, has_objects: bool, found: &mut Findings) -> io::Result<()> {
    let tables = dir.join("tables");
    let listed = match list(dir) {
        Ok(listed) => listed,
        Err(Unlisted::Io(error)) => return Err(error),
        Err(Unlisted::Damaged { path, what }) => {
            found.damage(&path, None, what);
            let all = numbers(&tables)?.unwrap_or_default().into_iter();
            all.map(|number| Listed { number, checksum: None, seqno: 0 }).collect()
        }
    };
    for table in listed {
        let path = tables.join(table.number.to_string());
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                found.damage(&path, None, "is missing");
                continue;
            }
            bytes => bytes?,
        };
        let is_sound = table.checksum.is_none_or(|checksum| xxh3_128(&bytes) == checksum);
        let before = found.damages.len();
        if has_objects {
            Table { path: &path, bytes: &bytes, seqno: table.seqno }.read(found);
        }
        if !is_sound && found.damages.len() == before {
            found.damage(&path, None, "is damaged, but not where its objects are");
        }
    }
    Ok(())
}

enum Unlisted {
    Io(io::Error),
    Damaged { path: PathBuf, what: String },
}

/// The tables in use.
fn list(dir: &Path) -> Result<Vec<Listed>, Unlisted> {
    let read = |path: &Path| match std::fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Unlisted::Io(error)),
        Ok(bytes) => Ok(Some(bytes)),
    };
    let damaged = |path: &Path, what: &str| Unlisted::Damaged { path: path.into(), what: what.to_owned() };
    let current = dir.join("current");
    let Some(bytes) = read(&current)? else { return Err(damaged(&current, "is missing")) };
    let (Some(id), Some(checksum), 25, Some(0)) =
        (number::<8>(&bytes, 0), number::<16>(&bytes, 8), bytes.len(), bytes.get(24).copied())
    else {
        return Err(damaged(&current, "cannot be read"));
    };
    let path = dir.join(format!("v{id}"));
    let Some(bytes) = read(&path)? else {
        return Err(damaged(&current, "is damaged, or the list of tables that it names is missing"));
    };
    if xxh3_128(&bytes) != checksum {
        return Err(damaged(&path, "is damaged, or the file `current` beside it, which has its checksum"));
    }
    tables_in(&bytes).ok_or_else(|| damaged(&path, "is not a list of tables"))
}

/// `levels (1)`, for each `runs (1)`, for each `tables (4)`, for each
/// `number (8) | kind of checksum (1) | checksum (16) | added to the numbers of its items (8)`.
fn tables_in(list: &[u8]) -> Option<Vec<Listed>> {
    let (start, end) = section(list, b"tables")?;
    let bytes = list.get(start..end)?;
    let mut tables = Vec::new();
    let mut at = 1;
    for _ in 0..*bytes.first()? {
        let runs = *bytes.get(at)?;
        at += 1;
        for _ in 0..runs {
            let count = number::<4>(bytes, at)?;
            at += 4;
            for _ in 0..count {
                let checksum = Some(number::<16>(bytes, at + 9)?);
                let (number, seqno) = (number::<8>(bytes, at)? as u64, number::<8>(bytes, at + 25)? as u64);
                tables.push(Listed { number, checksum, seqno });
                at += 33;
            }
        }
    }
    Some(tables)
}

/// The start and end of a section. Lists and tables end with a table of their sections: `TOC!`, how many (4), and for each
/// `position (8) | length (8) | length of the name (2) | name`.
fn section(file: &[u8], name: &[u8]) -> Option<(usize, usize)> {
    let trailer = file.get(file.len().checked_sub(SECTIONS_TRAILER)?..)?;
    let position = usize::try_from(number::<8>(trailer, 22)?).ok()?;
    let table = file.get(position..file.len() - SECTIONS_TRAILER)?;
    let is_sound = trailer.starts_with(b"SFA!") && number::<16>(trailer, 6)? == xxh3_128(table);
    if !is_sound || !table.starts_with(b"TOC!") {
        return None;
    }
    let mut at = 8;
    for _ in 0..number::<4>(table, 4)? {
        let (start, length) = (number::<8>(table, at)?, number::<8>(table, at + 8)?);
        let name_length = number::<2>(table, at + 16)? as usize;
        if table.get(at + 18..at + 18 + name_length)? == name {
            return Some((usize::try_from(start).ok()?, usize::try_from(start + length).ok()?));
        }
        at += 18 + name_length;
    }
    None
}

struct Table<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    seqno: u64,
}

/// The header of a block.
struct Header {
    kind: u8,
    checksum: u128,
    length: usize,
}

impl Table<'_> {
    fn read(&self, found: &mut Findings) {
        let data = section(self.bytes, b"data").filter(|(start, end)| start <= end && *end <= self.bytes.len());
        let (mut at, end) = data.unwrap_or((0, self.bytes.len()));
        while at < end {
            let header = self.header(at).filter(|header| at + BLOCK_HEADER + header.length <= end);
            let Some(header) = header else {
                let next = (at + 1..end).find(|next| self.header(*next).is_some()).unwrap_or(end);
                let content = self.bytes.get(at + BLOCK_HEADER..next).unwrap_or_default();
                let sound = self.items(content, false, found);
                // Without the table of sections it is not known where the blocks of items end.
                if data.is_some() || sound > 0 {
                    found.damage(self.path, Some(at as u64), "is damaged in the header of a block");
                }
                at = next;
                continue;
            };
            if header.kind != DATA_BLOCK {
                break;
            }
            let content = &self.bytes[at + BLOCK_HEADER..at + BLOCK_HEADER + header.length];
            let is_sound = xxh3_128(content) == header.checksum;
            self.items(content, is_sound, found);
            if !is_sound {
                found.damage(self.path, Some(at as u64), format!("is damaged in the block of {} bytes", content.len()));
            }
            at += BLOCK_HEADER + header.length;
        }
        if data.is_none() {
            found.damage(self.path, None, "is damaged at its end, where its parts are listed");
        }
    }

    fn header(&self, at: usize) -> Option<Header> {
        let bytes = self.bytes.get(at..at + BLOCK_HEADER)?;
        let sum = number::<4>(bytes, BLOCK_HEADER - 4)?;
        if !bytes.starts_with(BLOCK_MAGIC) || u128::from(xxh3_128(&bytes[..BLOCK_HEADER - 4]) as u32) != sum {
            return None;
        }
        Some(Header { kind: bytes[4], checksum: number::<16>(bytes, 5)?, length: number::<4>(bytes, 21)? as usize })
    }

    /// Takes the items of a block. Returns how many can be used.
    fn items(&self, content: &[u8], is_sound: bool, found: &mut Findings) -> usize {
        let block = Block::new(content);
        let mut intervals = block.interval.into_iter().chain(USUAL_INTERVALS);
        if is_sound {
            let items = intervals.next().map(|interval| block.items(interval)).unwrap_or_default();
            return items.iter().filter(|item| self.take(item, true, found)).count();
        }
        // The arrangement with which most records are sound is the one that was written, the first of several. The list of
        // complete keys may be what is damaged.
        let without_starts = Block { starts: Vec::new(), ..Block::new(content) };
        let readings = intervals.flat_map(|interval| [block.items(interval), without_starts.items(interval)]);
        let best = readings.rev().max_by_key(|items| items.iter().filter(|item| item.is_record()).count());
        best.unwrap_or_default().iter().filter(|item| self.take(item, false, found)).count()
    }

    fn take(&self, item: &Item<'_>, is_sound: bool, found: &mut Findings) -> bool {
        let taken = take(found, &item.key, item.value, item.seqno.saturating_add(self.seqno), is_sound);
        if !taken && is_sound {
            found.damage(
                self.path,
                None,
                format!("has a record that is damaged: {}", String::from_utf8_lossy(&item.key)),
            );
        }
        taken
    }
}

struct Item<'a> {
    key: Vec<u8>,
    seqno: u64,
    /// None: a deletion.
    value: Option<&'a [u8]>,
}

impl Item<'_> {
    fn is_record(&self) -> bool {
        match (self.key.split_first(), self.value) {
            (Some((_, key)), Some(value)) => crate::record::read(key, value).is_ok(),
            _ => false,
        }
    }
}

/// The content of a block: items, then the places at which keys are complete, then the trailer.
struct Block<'a> {
    content: &'a [u8],
    /// Every how many items a key is complete.
    interval: Option<usize>,
    /// Where items with complete keys begin; empty if that cannot be read.
    starts: Vec<usize>,
}

impl<'a> Block<'a> {
    fn new(content: &'a [u8]) -> Self {
        let unknown = Self { content, interval: None, starts: Vec::new() };
        let Some(trailer) = content.len().checked_sub(BLOCK_TRAILER).and_then(|at| content.get(at..)) else {
            return unknown;
        };
        let (interval, width) = (usize::from(trailer[0]), usize::from(trailer[1]));
        let count = number::<4>(trailer, 2).map_or(0, |count| count as usize);
        let place = number::<4>(trailer, 6).map_or(0, |place| place as usize);
        let length = content.len() - BLOCK_TRAILER;
        if interval == 0 || !matches!(width, 2 | 4) || count.saturating_mul(width).saturating_add(place) > length {
            return unknown;
        }
        let start = |index: usize| match width {
            2 => number::<2>(content, place + 2 * index),
            _ => number::<4>(content, place + 4 * index),
        };
        let starts: Option<Vec<usize>> = (0..count).map(|index| start(index).map(|start| start as usize)).collect();
        Self { content, interval: Some(interval), starts: starts.unwrap_or_default() }
    }

    /// The items that can be told apart. Behind a place at which that is not possible, or an item that extends into the next
    /// one with a complete key, it goes on with that.
    fn items(&self, interval: usize) -> Vec<Item<'a>> {
        let mut items = Vec::new();
        let (mut at, mut index, mut base) = (0, 0, Vec::new());
        while at < self.content.len() {
            let is_complete = index % interval == 0;
            match self.item(at, if is_complete { None } else { Some(&base) }) {
                Some(Parsed::Item(item, end)) => {
                    if is_complete {
                        base.clone_from(&item.key);
                    }
                    items.push(item);
                    match self.start_after(at) {
                        Some((next, start)) if start < end => (at, index) = (start, next * interval),
                        _ => (at, index) = (end, index + 1),
                    }
                }
                Some(Parsed::End) => break,
                None => {
                    let Some((next, start)) = self.start_after(at) else { break };
                    (at, index) = (start, next * interval);
                }
            }
        }
        items
    }

    /// The next item with a complete key: its number among those, and where it begins.
    fn start_after(&self, at: usize) -> Option<(usize, usize)> {
        self.starts.iter().copied().enumerate().find(|(_, start)| *start > at)
    }

    /// `kind (1) | number | length of the key | key | length of the value | value`; lengths and numbers have a variable
    /// length. An item without a complete key has instead `length that it shares with the base | length of the rest | rest`.
    /// A deletion has no value.
    fn item(&self, at: usize, base: Option<&[u8]>) -> Option<Parsed<'a>> {
        let mut rest = Cursor { bytes: self.content, at };
        let kind = *rest.take(1)?.first()?;
        if kind == NO_MORE_ITEMS {
            return Some(Parsed::End);
        }
        let seqno = rest.varint()?;
        let mut key = Vec::new();
        if let Some(base) = base {
            let shared = usize::try_from(rest.varint()?).ok()?;
            let length = usize::try_from(rest.varint()?).ok()?;
            key.extend_from_slice(base.get(..shared)?);
            key.extend_from_slice(rest.take(length)?);
        } else {
            let length = usize::try_from(rest.varint()?).ok()?;
            key.extend_from_slice(rest.take(length)?);
        }
        let value = match kind {
            0 => {
                let length = usize::try_from(rest.varint()?).ok()?;
                Some(rest.take(length)?)
            }
            1 | 2 => None,
            _ => return None,
        };
        Some(Parsed::Item(Item { key, seqno, value }, rest.at))
    }
}

enum Parsed<'a> {
    /// And where it ends.
    Item(Item<'a>, usize),
    End,
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    /// Seven bits in each byte, the lowest first; the eighth says that more follow.
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}
