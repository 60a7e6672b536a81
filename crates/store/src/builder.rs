//! Makes a store of objects that have revisions already: for a restored backup, and for what could be read of a damaged
//! store.

use std::path::Path;

use crate::FIRST;
use crate::disk::{NewStore, OpenError};
use crate::record::{self, Entry};

/// A store that is being made. It can be opened as soon as it is finished: the caller makes it in a directory of its own
/// and renames that, because what an interrupted builder leaves behind would be opened as an empty store.
pub struct StoreBuilder {
    store: NewStore,
    record: Vec<u8>,
}

impl StoreBuilder {
    /// `dir` is created; there must be no store in it. `revision`: that of the new store, at least that of each object.
    pub fn create(dir: &Path, revision: u64) -> Result<Self, OpenError> {
        Ok(Self { store: NewStore::create(dir, revision.max(FIRST))?, record: Vec::new() })
    }

    /// Adds an object. No key may be added twice.
    pub fn add(&mut self, entry: &Entry) -> Result<(), OpenError> {
        self.record.clear();
        record::encode_into(entry, &mut self.record);
        self.store.add(entry, &self.record)
    }

    /// Completes the store and closes it: everything is on the disk when this returns. Returns the number of objects.
    pub fn finish(self) -> Result<u64, OpenError> {
        self.store.finish()
    }
}
