//! Makes a store of objects that have revisions already: for a restored backup, and for what could be read of a damaged
//! store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::{Account, Backend, Planned};
use crate::disk::{self, Disk, OpenError};
use crate::record::{self, Entry};
use crate::{FIRST, StoreOptions};

/// Objects and bytes that are written at a time.
const GROUP: usize = 1024;
const GROUP_BYTES: usize = 4 * 1024 * 1024;

/// A store that is being made. It can be opened as soon as it is finished: the caller makes it in a directory of its own
/// and renames that, because what an interrupted builder leaves behind would be opened as an empty store.
pub struct StoreBuilder {
    disk: Disk,
    dir: PathBuf,
    account: Account,
    group: Vec<Planned>,
    bytes: usize,
}

impl StoreBuilder {
    /// `dir` is created; there must be no store in it. `revision`: that of the new store, at least that of each object.
    pub fn create(dir: &Path, revision: u64, options: StoreOptions) -> Result<Self, OpenError> {
        let disk = disk::create(dir, options)?;
        let revision = revision.max(FIRST);
        let account = Account { revision, follows: FIRST, objects: 0, digest: 0 };
        Ok(Self { disk, dir: dir.into(), account, group: Vec::new(), bytes: 0 })
    }

    /// Adds an object. No key may be added twice.
    pub fn add(&mut self, entry: &Entry) -> Result<(), OpenError> {
        let mut bytes = Vec::new();
        record::encode_into(entry, &mut bytes);
        self.bytes += bytes.len();
        self.account.objects += 1;
        self.account.digest = self.account.digest.wrapping_add(entry.sum);
        let entry = Arc::clone(entry);
        self.group.push(Planned { entry, record: bytes.into(), deleted: false, superseded: false });
        if self.group.len() >= GROUP || self.bytes >= GROUP_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), OpenError> {
        let group = std::mem::take(&mut self.group);
        self.bytes = 0;
        self.disk.write(&group, &self.account).map_err(|error| OpenError::Io {
            path: self.dir.clone(),
            step: "write objects",
            source: std::io::Error::other(error.to_string()),
        })
    }

    /// Completes the store and closes it: everything is on the disk when this returns. Returns the number of objects.
    pub fn finish(mut self) -> Result<u64, OpenError> {
        self.write()?;
        self.disk.rest();
        let objects = self.account.objects;
        drop(self.disk);
        Ok(objects)
    }
}
