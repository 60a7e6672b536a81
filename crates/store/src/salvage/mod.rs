//! Reads a store as far as it can be read, whatever is damaged: for `tally check` and `tally salvage`.
//!
//! A start refuses a store as a whole. This module reads its files across damaged places (`files.rs`, and [`crate::legacy`]
//! for a store of an earlier version). Every record has a checksum of key, revision and value, so a record that is found in
//! a damaged place is either sound or known not to be. Of each object the newest record counts; the account says whether
//! anything is missing at the end. Nothing is changed.

mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::backend::Account;
use crate::builder::StoreBuilder;
use crate::disk::{self, OpenError};
use crate::head;
use crate::legacy;
use crate::record::{self, BadRecord, Entry};
use crate::state::State;
use crate::{FIRST, StoreOptions};

/// How many deletions without a checksum are left out one by one: more than one damaged byte can touch.
const MOST_DOUBTFUL: usize = 64;

/// A place that is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub path: PathBuf,
    /// The first byte of the smallest part of the file that is known to be damaged.
    pub at: Option<u64>,
    /// A part of a sentence about the file: "cannot be read".
    pub what: String,
}

/// An object that a damaged place contained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamagedObject {
    /// No state of it can be read.
    Lost { key: String },
    /// Its newest state cannot be read, but an older one can.
    Older { key: String, revision: u64 },
}

/// What can be read of a store.
pub struct Inspection {
    pub damages: Vec<Damage>,
    /// The objects that are known to be touched by a damage, in key order.
    pub objects: Vec<DamagedObject>,
    /// A group that was being written when the store was last used, and was never acknowledged. The next start removes it.
    pub unfinished: Option<Damage>,
    /// Everything that was acknowledged is known to be there.
    pub complete: bool,
    /// The number of objects that were acknowledged; none if the newest account cannot be read.
    pub expected: Option<u64>,
    /// The newest revision that is known of.
    pub revision: u64,
    /// The head can be read, at least in one of its two copies.
    has_head: bool,
    entries: BTreeMap<Box<str>, Entry>,
}

/// Reads the store in `dir`, which no process may have open.
pub fn inspect(dir: &Path) -> Result<Inspection, OpenError> {
    let has_files = ["log", "engine"].iter().any(|name| dir.join(name).exists());
    if !has_files && matches!(head::find(&dir.join("head")), Ok(head::Found::Nothing)) {
        return Err(OpenError::NoStore { path: dir.into() });
    }
    let _lock = disk::lock_to_read(dir)?;
    read(dir)
}

/// The same, for one who has the lock.
pub(crate) fn read(dir: &Path) -> Result<Inspection, OpenError> {
    let io = |error: std::io::Error| disk::read_error(dir, error);
    let mut found = Findings::default();
    let acknowledged = found.head(&dir.join("head")).map_err(io)?;
    let engine = dir.join("engine");
    // Without a head, what is there says what it is: the log of a conversion that was not completed lies beside the engine.
    let is_old = found.format.map_or(engine.exists(), |format| format < head::FORMAT);
    if acknowledged != Some(Acknowledged::Nothing) {
        match is_old {
            true => legacy::read(&engine, acknowledged, &mut found).map_err(io)?,
            false => files::read(&dir.join("log"), acknowledged, &mut found).map_err(io)?,
        }
    }
    let newer = found.newer.or(found.newer_engine.filter(|_| !found.is_complete(acknowledged)));
    if let Some((found, known)) = newer {
        return Err(OpenError::Newer { path: dir.into(), found, known });
    }
    Ok(found.conclude(acknowledged))
}

impl Inspection {
    pub fn is_sound(&self) -> bool {
        self.damages.is_empty() && self.objects.is_empty() && self.complete
    }

    /// Whether a start uses it: one copy of the head is enough for that.
    pub(crate) fn can_be_used(&self) -> bool {
        let is_head = |damage: &Damage| self.has_head && damage.path.file_name().is_some_and(|name| name == "head");
        self.damages.iter().all(is_head) && self.objects.is_empty() && self.complete
    }

    /// What is wrong, for a sentence about the store.
    pub(crate) fn first_damage(&self) -> String {
        match self.damages.first() {
            Some(Damage { path, at: Some(at), what }) => format!("{} {what} (byte {at})", path.display()),
            Some(Damage { path, at: None, what }) => format!("{} {what}", path.display()),
            None => "not everything that was acknowledged can be read".to_owned(),
        }
    }

    /// The number of objects that can be read.
    pub fn readable(&self) -> usize {
        self.entries.len()
    }

    /// The objects that can be read, in key order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    pub(crate) fn into_state(self, options: StoreOptions) -> State {
        let mut state = State::new(options, self.revision);
        for entry in self.entries.into_values() {
            state.load(entry);
        }
        state
    }

    /// Makes a store of everything that can be read, in a directory that has none, with this revision. The caller renames
    /// the directory when this has returned.
    pub fn build(&self, dir: &Path, revision: u64) -> Result<u64, OpenError> {
        let mut store = StoreBuilder::create(dir, revision.max(self.revision))?;
        for entry in self.entries.values() {
            store.add(entry)?;
        }
        store.finish()
    }
}

/// What the head says was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acknowledged {
    /// The creation of the store was not completed.
    Nothing,
    Revision(u64),
}

impl Acknowledged {
    pub fn revision(self) -> u64 {
        match self {
            Self::Nothing => FIRST,
            Self::Revision(revision) => revision,
        }
    }
}

/// One state of an object.
#[derive(Clone)]
struct Version {
    seqno: u64,
    /// None: the object was deleted.
    entry: Option<Entry>,
}

impl Version {
    /// Two states are in the order of their revisions, which their checksums cover. The number of a deletion is its revision;
    /// in the first format it is one of the engine, which every state has, too.
    fn is_newer_than(&self, other: &Version) -> bool {
        match (&self.entry, &other.entry) {
            (Some(this), Some(other)) => this.revision > other.revision,
            _ => self.seqno > other.seqno,
        }
    }
}

/// What has been read so far.
#[derive(Default)]
pub(crate) struct Findings {
    pub damages: Vec<Damage>,
    pub unfinished: Option<Damage>,
    newest: BTreeMap<Box<str>, Version>,
    /// The newest account.
    pub account: Option<Account>,
    /// That of the head.
    format: Option<u8>,
    /// Objects of which a state cannot be read, and its number if that can.
    touched: BTreeMap<String, u64>,
    /// Deletions in damaged places: they have no checksum of their own.
    doubtful: Vec<(Box<str>, u64)>,
    /// The newest number of the engine that was read in a sound place.
    pub seqno: u64,
    /// A newer version of tally has written this: the format, and the one that is known. No damage looks like it.
    pub newer: Option<(u8, u8)>,
    /// The same of the engine. It is a single byte: if everything can be read all the same, that byte is damaged.
    pub newer_engine: Option<(u8, u8)>,
}

impl Findings {
    pub fn damage(&mut self, path: &Path, at: Option<u64>, what: impl Into<String>) {
        self.damages.push(Damage { path: path.into(), at, what: what.into() });
    }

    pub fn take_account(&mut self, account: Account) {
        if self.account.is_none_or(|known| known.revision <= account.revision) {
            self.account = Some(account);
        }
    }

    /// Takes a state of an object, or its deletion. `is_sound`: it is in a place whose checksum is correct. Returns whether it
    /// can be used.
    pub fn take(&mut self, key: &[u8], value: Option<&[u8]>, seqno: u64, is_sound: bool) -> bool {
        let Ok(name) = std::str::from_utf8(key) else { return false };
        let entry = match value.map(|value| record::read(key, value)) {
            None => None,
            Some(Ok(entry)) => Some(entry),
            Some(Err(BadRecord::Newer(format))) if is_sound => {
                self.newer = Some((format, record::FORMAT));
                return false;
            }
            Some(Err(_)) => {
                // A name that is not printable is damaged itself.
                if !name.is_empty() && !name.chars().any(char::is_control) {
                    let known = self.touched.entry(name.to_owned()).or_default();
                    *known = seqno.max(*known);
                }
                return false;
            }
        };
        if entry.is_none() && !is_sound {
            self.doubtful.push((name.into(), seqno));
            return true;
        }
        self.keep(name.into(), Version { seqno, entry });
        true
    }

    fn keep(&mut self, key: Box<str>, version: Version) {
        match self.newest.get_mut(&key) {
            Some(known) if version.is_newer_than(known) => *known = version,
            Some(_) => {}
            None => drop(self.newest.insert(key, version)),
        }
    }

    /// Reads the head strictly: both copies of the mark must be there, and nothing else.
    fn head(&mut self, path: &Path) -> std::io::Result<Option<Acknowledged>> {
        let mark = match head::find(path)? {
            head::Found::Nothing => {
                self.damage(path, None, "is missing");
                return Ok(None);
            }
            head::Found::Unreadable => {
                self.damage(path, None, "cannot be read");
                return Ok(None);
            }
            head::Found::Newer(_) => {
                // One byte can be damaged, but not both copies in the same way.
                self.newer = head::newer_in_both(&std::fs::read(path)?).map(|format| (format, head::FORMAT));
                self.damage(path, Some(7), "was written by a newer version, or its format is damaged");
                return Ok(None);
            }
            head::Found::Mark(mark) => mark,
        };
        self.format = Some(mark.format);
        if let Some(at) = head::first_difference(&std::fs::read(path)?) {
            self.damage(path, Some(at), "is damaged in one of its two copies; the other can be read");
        }
        Ok(Some(if mark.made { Acknowledged::Revision(mark.revision) } else { Acknowledged::Nothing }))
    }

    fn sum(&self) -> (u64, u64) {
        let entries = self.newest.values().filter_map(|version| version.entry.as_ref());
        entries.fold((0, 0), |(count, digest), entry| (count + 1, digest.wrapping_add(entry.sum)))
    }

    fn is_complete(&self, acknowledged: Option<Acknowledged>) -> bool {
        let Some(account) = &self.account else { return acknowledged == Some(Acknowledged::Nothing) };
        self.sum() == (account.objects, account.digest)
            && acknowledged.is_none_or(|head| head.revision() <= account.revision)
    }

    /// Decides about the deletions that have no checksum: all of them, none, or all but one, if that gives what the account
    /// says; otherwise all.
    fn settle_deletions(&mut self, acknowledged: Option<Acknowledged>) {
        let doubtful = std::mem::take(&mut self.doubtful);
        if doubtful.is_empty() {
            return;
        }
        let before = self.newest.clone();
        let one_by_one = if doubtful.len() <= MOST_DOUBTFUL { doubtful.len() } else { 0 };
        let left_out = std::iter::once(None).chain((0..one_by_one).map(Some));
        for left_out in left_out {
            self.newest.clone_from(&before);
            for (_, (key, seqno)) in doubtful.iter().enumerate().filter(|(at, _)| Some(*at) != left_out) {
                self.keep(key.clone(), Version { seqno: *seqno, entry: None });
            }
            if self.is_complete(acknowledged) {
                return;
            }
        }
        self.newest.clone_from(&before);
        if self.is_complete(acknowledged) {
            return;
        }
        for (key, seqno) in doubtful {
            self.touched.entry(key.to_string()).or_insert(seqno);
            self.keep(key, Version { seqno, entry: None });
        }
    }

    fn conclude(mut self, acknowledged: Option<Acknowledged>) -> Inspection {
        self.settle_deletions(acknowledged);
        let complete = self.is_complete(acknowledged);
        let mut objects = Vec::new();
        for (key, seqno) in &self.touched {
            match self.newest.get(key.as_str()) {
                // What cannot be read was replaced later, or the account says that nothing is missing.
                _ if complete => {}
                Some(known) if known.seqno > *seqno => {}
                Some(Version { entry: Some(entry), .. }) => {
                    objects.push(DamagedObject::Older { key: key.clone(), revision: entry.revision });
                }
                _ => objects.push(DamagedObject::Lost { key: key.clone() }),
            }
        }
        let entries: BTreeMap<_, _> =
            self.newest.into_iter().filter_map(|(key, version)| Some((key, version.entry?))).collect();
        let revisions = entries.values().map(|entry| entry.revision);
        let known = [self.account.map(|account| account.revision), acknowledged.map(Acknowledged::revision)];
        let revision = revisions.chain(known.into_iter().flatten()).fold(FIRST, u64::max);
        // An account that is older than what was acknowledged says nothing about the end.
        let is_newest = |account: &Account| acknowledged.is_none_or(|head| head.revision() <= account.revision);
        let newest_account = self.account.filter(is_newest);
        let named: BTreeSet<PathBuf> = self.damages.iter().map(|damage| damage.path.clone()).collect();
        let unfinished = self.unfinished.filter(|unfinished| !named.contains(&unfinished.path));
        Inspection {
            damages: self.damages,
            objects,
            unfinished,
            complete,
            expected: newest_account.map(|account| account.objects),
            revision,
            has_head: self.format.is_some(),
            entries,
        }
    }
}
