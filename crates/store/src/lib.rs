//! One revisioned key space for all kinds of objects.
//!
//! Every write is conditional (the key must be absent, or at a revision the writer has seen), gets the next revision,
//! and is acknowledged and shown to readers and watchers only once it is durable. The newest state of every key is in
//! memory; so is a bounded history of events, from which watchers read and older states are computed.
//!
//! - [`Store::memory`] has no thread and does no I/O: a commit completes at its first poll. It is for tests and the
//!   simulator.
//! - [`Store::open`] stores the objects in a directory; the module `disk` documents which of its data is trusted after
//!   a crash.
//!
//! A [`Watcher`] is a position in the shared history and owns no queue: a reader that does not read costs nothing. A
//! reader that falls behind the history gets [`TooOld`], lists again and continues.

#[doc(hidden)]
pub mod backend;
pub mod backup;
mod builder;
mod disk;
mod group;
mod head;
mod legacy;
mod log;
mod record;
pub mod salvage;
mod state;
mod watch;
mod writer;

use std::any::Any;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

pub use builder::StoreBuilder;
pub use disk::OpenError;
pub use record::{Entry, Stored};
pub use watch::{Batch, Watcher};

use backend::BackendError;
use disk::Opener;
use group::Group;
use state::State;
use watch::Notifier;
use writer::Writer;

/// The longest key: a resource, a namespace and a name of at most 253 bytes each, with a margin.
pub const MAX_KEY: usize = 1024;
/// The longest value: the 3 MiB that a Kubernetes client may send, and room for what the server adds. A server that
/// lets clients use all of it cannot mark a large object as deleted.
pub const MAX_VALUE: usize = 3 * 1024 * 1024 + 64 * 1024;

/// The revision of an empty store. Not 0, which clients of Kubernetes send to mean "any".
pub const FIRST: u64 = 1;

/// The limits of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Events kept for watchers and for reads at older revisions. The default covers twenty seconds of 5,000 writes per
    /// second, and costs 4 MB.
    pub history: usize,
    /// Bytes of replaced and deleted objects that those events keep alive. This bounds memory when the objects are
    /// large. The default covers the last 10,000 writes of Pods.
    pub history_bytes: usize,
    /// Writes that may wait for the disk; more are refused as [`WriteError::Overloaded`]. Otherwise the queue would
    /// grow until the callers of its last writes have timed out.
    pub queue: usize,
    /// Bytes that may wait for the disk.
    pub queue_bytes: usize,
    /// How many bytes of logs are merged, at least. The smaller, the more is written; the larger, the more is read at a start.
    pub merge_bytes: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            history: 100_000,
            history_bytes: 32 * 1024 * 1024,
            queue: 8192,
            queue_bytes: 64 * 1024 * 1024,
            merge_bytes: 64 * 1024 * 1024,
        }
    }
}

/// A text to store. The store writes the decimal revision into it at `stamp_at` once it is assigned, so that every
/// reader of the object gets the same bytes with its `resourceVersion` inside.
#[derive(Clone, Debug)]
pub struct Body {
    pub bytes: Vec<u8>,
    /// An offset into `bytes`; an offset beyond the end means the end.
    pub stamp_at: usize,
    pub handle: Option<Handle>,
}

/// What a writer knows of a text, for the readers of its entry, as long as somebody keeps it. The store does not look into it.
pub type Handle = Weak<dyn Any + Send + Sync>;

/// What must be true of the key for a write to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    Absent,
    At(u64),
}

#[derive(Clone, Debug)]
pub enum Change {
    Put(Body),
    /// Carries the last state, which watchers are shown. Deleting a key that is expected to be absent is always a
    /// conflict.
    Delete(Body),
    /// A put and a delete, with a revision and an event each and no crash in between: for a state that watchers must
    /// see and that must not persist. The handle is for the entry of the delete.
    PutAndDelete(Body, Option<Handle>),
}

#[derive(Clone, Debug)]
pub struct Write {
    pub key: String,
    pub expect: Expect,
    pub change: Change,
}

/// Entries in key order, all from the same revision.
#[derive(Clone, Debug)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// The revision of the state they were read from.
    pub revision: u64,
    /// Whether entries were left out by the limit, and how many.
    pub more: bool,
    pub remaining: usize,
}

/// One write, as a watcher sees it.
#[derive(Clone, Debug)]
pub struct Event {
    pub revision: u64,
    /// The new state, or the last one of a deleted object.
    pub entry: Entry,
    pub deleted: bool,
    /// What this write replaced or deleted.
    pub previous: Option<Entry>,
}

/// The history does not reach back to the requested revision. The reader must list again, and watch from the list's
/// revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {requested} is too old: the history begins after {oldest}")]
pub struct TooOld {
    pub requested: u64,
    /// The oldest revision that can still be requested.
    pub oldest: u64,
}

/// Why a write was not applied - or, for [`WriteError::Poisoned`] and [`WriteError::Suspended`], may not have been applied.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    /// The key is not as expected. Carries the entry that is there.
    #[error("{}", match .0 { Some(entry) => format!("{} is at revision {}", entry.key, entry.revision), None => "the key is absent".into() })]
    Conflict(Option<Entry>),
    /// The entry that [`Store::commit_beside`] was given is no longer the newest of its key.
    #[error("what the write depended on has changed")]
    Moved,
    /// The disk failed: after a restart this write may or may not be there. Until then every write is refused.
    #[error("the store takes no more writes since one failed ({0}); check the disk, then restart")]
    Poisoned(Arc<BackendError>),
    /// The disk is full. The write is not there, and will not be as long as this process lives; if the process is killed,
    /// the next start may find it. Writes are accepted again once there is room.
    #[error("the store takes no writes for now ({0}); it does again, without a restart, once the disk has room")]
    Suspended(Arc<BackendError>),
    #[error("the object is too large: {size} bytes of at most {limit}")]
    TooLarge { size: usize, limit: usize },
    #[error("too many writes are waiting for the disk; try again")]
    Overloaded,
    #[error("the store is closed")]
    Closed,
}

/// A handle to a store; cloning it is cheap. Dropping the last handle, or calling [`Store::close`], closes the store.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    /// None in memory. Dropped with the last handle, which closes the store.
    writer: Option<Arc<Writer>>,
}

/// What handles, watchers and the writer share.
pub(crate) struct Shared {
    state: RwLock<State>,
    /// The state's revision, to be read without the lock.
    revision: AtomicU64,
    notifier: Notifier,
    closed: AtomicBool,
}

impl Shared {
    fn new(state: State) -> Shared {
        Shared {
            revision: AtomicU64::new(state.revision),
            state: RwLock::new(state),
            notifier: Notifier::default(),
            closed: AtomicBool::new(false),
        }
    }

    // A panic while the lock was held can only be an allocation failure: nothing in `State` calls other code. The state
    // is then no worse than before, and reads must continue.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write that does not wait for a disk.
    fn commit(&self, write: Write, beside: Option<Entry>) -> Result<Entry, WriteError> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(WriteError::Closed);
        }
        let state = self.write();
        let mut group = Group::new(&state, 1);
        let entry = group.add(write, beside.as_ref())?;
        let (writes, _) = group.finish();
        self.publish(state, writes);
        Ok(entry)
    }

    /// Shows durable writes to readers, then wakes the watchers.
    fn publish(&self, mut state: RwLockWriteGuard<'_, State>, writes: Vec<group::Planned>) {
        for write in &writes {
            state.apply(write.entry.clone(), write.deleted);
        }
        self.revision.store(state.revision, Ordering::Release);
        // The woken watchers read the state at once, so the lock is released first.
        drop(state);
        self.notifier.notify(writes.iter().map(|write| &write.entry));
    }
}

impl Store {
    /// A store in memory only: no thread, no I/O, and [`Store::commit`] is ready at its first poll.
    pub fn memory(options: StoreOptions) -> Store {
        Store { shared: Arc::new(Shared::new(State::new(options, FIRST))), writer: None }
    }

    /// The store in the directory `dir`, which is created if it does not exist. Reads everything into memory first.
    pub fn open(dir: &Path, options: StoreOptions) -> Result<Store, OpenError> {
        Self::open_as(dir, options, Opener::Owner)
    }

    /// The same, for a process that reads and closes the store again at once: a process that opens the store meanwhile
    /// waits for it.
    ///
    /// What a crash has left is cut off at a start. A store that cannot be written, such as a snapshot on a read-only file
    /// system, must be sound, and so must one of an earlier version, which is not converted for a reader.
    pub fn open_to_read(dir: &Path, options: StoreOptions) -> Result<Store, OpenError> {
        let error = match disk::is_old(dir) {
            true => None,
            false => match Self::open_as(dir, options, Opener::Reader) {
                Err(error @ OpenError::NotWritable { .. }) => Some(error),
                other => return other,
            },
        };
        match (salvage::inspect(dir), error) {
            (Ok(found), _) if found.can_be_used() => {
                Ok(Store { shared: Arc::new(Shared::new(found.into_state(options))), writer: None })
            }
            (Ok(found), _) => Err(OpenError::Damaged { path: dir.into(), what: found.first_damage() }),
            (Err(held_or_newer @ (OpenError::Held { .. } | OpenError::Newer { .. })), _) => Err(held_or_newer),
            (Err(read), error) => Err(error.unwrap_or(read)),
        }
    }

    fn open_as(dir: &Path, options: StoreOptions, opener: Opener) -> Result<Store, OpenError> {
        let (state, disk) = disk::open(dir, options, opener)?;
        Store::start(state, Box::new(disk), options).map_err(|source| OpenError::Io {
            path: dir.into(),
            step: "start the writer",
            source,
        })
    }

    /// An empty store on a backend that the caller provides.
    #[doc(hidden)]
    pub fn with_backend(backend: Box<dyn backend::Backend>, options: StoreOptions) -> std::io::Result<Store> {
        Store::start(State::new(options, FIRST), backend, options)
    }

    fn start(state: State, backend: Box<dyn backend::Backend>, options: StoreOptions) -> std::io::Result<Store> {
        let shared = Arc::new(Shared::new(state));
        let writer = Writer::start(shared.clone(), backend, options)?;
        Ok(Store { shared, writer: Some(Arc::new(writer)) })
    }

    /// The newest revision, which is durable and visible.
    pub fn revision(&self) -> u64 {
        self.shared.revision.load(Ordering::Acquire)
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.shared.read().len()
    }

    /// The number of objects whose key begins with this segment.
    pub fn count(&self, segment: &str) -> usize {
        self.shared.read().count(segment)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Why writes are refused, if an earlier one failed: see [`WriteError::Poisoned`] and, if the error is recoverable,
    /// [`WriteError::Suspended`].
    pub fn poisoned(&self) -> Option<Arc<BackendError>> {
        self.writer.as_ref()?.poisoned()
    }

    /// From this revision on, every read and watch can be served. An older one may be, if its kind has had few writes:
    /// the history is kept per kind.
    pub fn compacted(&self) -> u64 {
        self.shared.read().compacted()
    }

    /// The newest state of one key.
    pub fn get(&self, key: &str) -> Option<Entry> {
        self.shared.read().get(key).cloned()
    }

    /// The entries whose key starts with `prefix` and is greater than `after`, at most `limit`, as they were at
    /// revision `at`. A revision that is not reached yet means the newest; [`Page::revision`] is the one that was used.
    pub fn range(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: Option<usize>,
        at: Option<u64>,
    ) -> Result<Page, TooOld> {
        self.shared.read().range(prefix, after, limit, at)
    }

    /// Writes, and returns the new entry (for a delete: the last state) once it is durable. If the caller drops the
    /// future, the write may or may not be applied; it is never applied in part.
    pub async fn commit(&self, write: Write) -> Result<Entry, WriteError> {
        self.commit_if(write, None).await
    }

    /// Writes only if another entry is still the newest of its key when the write is applied. What the caller decided
    /// from that entry - for example that a namespace is not terminating - then holds at the moment of the write, not
    /// only before it.
    pub async fn commit_beside(&self, write: Write, beside: Entry) -> Result<Entry, WriteError> {
        self.commit_if(write, Some(beside)).await
    }

    async fn commit_if(&self, write: Write, beside: Option<Entry>) -> Result<Entry, WriteError> {
        match &self.writer {
            Some(writer) => writer.commit(write, beside).await,
            None => self.shared.commit(write, beside),
        }
    }

    /// A watcher of the events under `prefix` after revision `after`. An `after` that is not reached yet is allowed:
    /// the watcher returns nothing until then, and sees only later events.
    pub fn watch(&self, prefix: &str, after: u64) -> Result<Watcher, TooOld> {
        self.shared.read().reaches(prefix, after)?;
        Ok(Watcher::new(self.shared.clone(), prefix, after))
    }

    /// Discards the history up to `before`: requests for an older revision get [`TooOld`].
    pub fn compact(&self, before: u64) {
        self.shared.write().compact(before);
    }

    /// Stops the store and waits until it has stopped: accepted writes are finished, the backend is dropped, later
    /// writes get [`WriteError::Closed`], and reads continue.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        if let Some(writer) = &self.writer {
            writer.close();
        }
    }
}
