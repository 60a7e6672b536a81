//! Writes that go to the disk together. Each is checked against the state and the writes before it, and gets a
//! revision.

use std::collections::HashMap;

use bytes::Bytes;
use foldhash::fast::RandomState;

use crate::record::{self, Entry};
use crate::state::State;
use crate::{Body, Change, Expect, MAX_KEY, MAX_VALUE, Write, WriteError};

/// A write that is applied if the disk accepts it.
#[derive(Clone, Debug)]
pub struct Planned {
    pub entry: Entry,
    /// The entry in the form that is written to the disk.
    pub record: Bytes,
    pub deleted: bool,
    /// A later write of the same group has the same key: the disk needs only that one.
    pub superseded: bool,
}

/// A summary of the store, written in the same atomic batch as the objects. With it the next start detects objects that
/// are missing or older than they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    pub revision: u64,
    /// The revision before the group that was written last.
    pub follows: u64,
    pub objects: u64,
    /// The sum of the checksums of all objects.
    pub digest: u64,
}

pub(crate) struct Group<'a> {
    state: &'a State,
    writes: Vec<Planned>,
    /// The last write of each key in the group, as an index into `writes`.
    last: HashMap<Box<str>, usize, RandomState>,
    account: Account,
}

impl<'a> Group<'a> {
    /// `writes`: so many are to be added.
    pub fn new(state: &'a State, writes: usize) -> Group<'a> {
        let last = HashMap::with_capacity_and_hasher(writes, RandomState::default());
        Group { state, writes: Vec::with_capacity(writes), last, account: state.account() }
    }

    /// Plans a write. Returns the entry it will create, or why it will not be applied. `beside`: another entry that
    /// must still be the newest of its key.
    pub fn add(&mut self, write: Write, beside: Option<&Entry>) -> Result<Entry, WriteError> {
        let Write { key, expect, change } = write;
        let (Change::Put(body) | Change::Delete(body) | Change::PutAndDelete(body, _)) = &change;
        for (size, limit) in [(key.len(), MAX_KEY), (body.bytes.len(), MAX_VALUE)] {
            if size > limit {
                return Err(WriteError::TooLarge { size, limit });
            }
        }
        if beside.is_some_and(|beside| self.there(&beside.key).is_none_or(|there| there.revision != beside.revision)) {
            return Err(WriteError::Moved);
        }
        let there = self.there(&key);
        let as_expected = match (expect, there) {
            (Expect::Absent, None) => !matches!(change, Change::Delete(_)),
            (Expect::At(revision), Some(entry)) => entry.revision == revision,
            _ => false,
        };
        if !as_expected {
            return Err(WriteError::Conflict(there.cloned()));
        }
        match change {
            Change::Put(body) => Ok(self.plan(key, &body, false)),
            Change::Delete(body) => Ok(self.plan(key, &body, true)),
            Change::PutAndDelete(mut body, handle) => {
                let put = self.plan(key.clone(), &body, false);
                body.handle = handle;
                self.plan(key, &body, true);
                Ok(put)
            }
        }
    }

    /// The entry of a key after the writes planned so far.
    fn there(&self, key: &str) -> Option<&Entry> {
        match self.last.get(key).and_then(|&at| self.writes.get(at)) {
            Some(write) => (!write.deleted).then_some(&write.entry),
            None => self.state.get(key),
        }
    }

    fn plan(&mut self, key: String, body: &Body, deleted: bool) -> Entry {
        let was = self.there(&key).map(|entry| entry.sum);
        let (entry, record) = record::stamp(key, body, self.account.revision + 1);

        let account = &mut self.account;
        account.revision += 1;
        account.objects = account.objects + u64::from(!deleted) - u64::from(was.is_some());
        account.digest =
            account.digest.wrapping_sub(was.unwrap_or(0)).wrapping_add(if deleted { 0 } else { entry.sum });
        let earlier = self.last.insert(entry.key.clone(), self.writes.len());
        if let Some(write) = earlier.and_then(|at| self.writes.get_mut(at)) {
            write.superseded = true;
        }
        self.writes.push(Planned { entry: entry.clone(), record, deleted, superseded: false });
        entry
    }

    /// The planned writes in order, and the store's account after them.
    pub fn finish(self) -> (Vec<Planned>, Account) {
        (self.writes, self.account)
    }
}
