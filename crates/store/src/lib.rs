//! One revisioned key space for all kinds of objects.
//!
//! Every write is conditional (the key must be absent, or at a revision the writer has seen), gets the next revision,
//! and is acknowledged and shown to readers and watchers only once it is durable. The newest state of every key is in
//! memory; so is a bounded history of events, from which watchers read and with which older states are worked out.
//!
//! - [`Store::memory`] has no thread and does no I/O: a commit is done at its first poll. Tests and the simulator.
//! - [`Store::open`] keeps the objects in a directory; what can be trusted of it after a crash is told in the module `disk`.
//!
//! A [`Watcher`] is a position in the shared history and owns no queue: a reader that does not read costs nothing, and
//! one that falls behind the history gets [`TooOld`], lists again and goes on.

#[doc(hidden)]
pub mod backend;
mod disk;
mod group;
mod head;
mod journal;
mod record;
mod state;
mod watch;
mod writer;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub use disk::OpenError;
pub use record::{Entry, Stored};
pub use watch::{Batch, Watcher};

use group::Group;
use state::State;
use watch::Bells;
use writer::Writer;

/// The longest key: a resource, a namespace and a name of at most 253 bytes each, with room to spare.
pub const MAX_KEY: usize = 1024;
/// The longest value: the 3 MiB that a client of Kubernetes may send, and room for what the server adds. Who lets clients
/// have all of it cannot mark a large object as deleted any more.
pub const MAX_VALUE: usize = 3 * 1024 * 1024 + 64 * 1024;

/// The revision of an empty store. Not 0, which clients of Kubernetes send to mean "any".
pub const FIRST: u64 = 1;

/// The limits of a store.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Events kept for watchers and for reads at older revisions. The default is twenty seconds of 5,000 writes a
    /// second, and costs 4 MB.
    pub history: usize,
    /// Bytes of replaced and deleted objects kept by those events: what bounds memory when the objects are large.
    pub history_bytes: usize,
    /// Writes that may wait for the disk; more are refused as [`WriteError::Overloaded`] instead of growing a queue
    /// whose end nobody waits for any more.
    pub queue: usize,
    /// Bytes that may wait for the disk.
    pub queue_bytes: usize,
    /// How much the disk's engine gathers in memory before it writes a table; settled when a store is made. The values
    /// are shared with the entries here, so what this costs is that replaced ones are held a little longer.
    pub engine_buffer: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            history: 100_000,
            history_bytes: 64 * 1024 * 1024,
            queue: 8192,
            queue_bytes: 64 * 1024 * 1024,
            engine_buffer: 32 * 1024 * 1024,
        }
    }
}

/// A text to store. The store writes the decimal revision into it at `stamp_at` once it is known, so that everyone who
/// reads the object gets the same bytes with its `resourceVersion` inside.
#[derive(Clone, Debug)]
pub struct Body {
    pub bytes: Vec<u8>,
    /// An offset into `bytes`; beyond the end means the end.
    pub stamp_at: usize,
}

/// What must be true of the key for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    Absent,
    At(u64),
}

#[derive(Clone, Debug)]
pub enum Change {
    Put(Body),
    /// Carries the last state, which watchers are shown. Deleting what must be absent is a conflict in itself.
    Delete(Body),
    /// Both, with a revision and an event each, and no crash in between: a state that must be seen and must not last.
    PutAndDelete(Body),
}

#[derive(Clone, Debug)]
pub struct Write {
    pub key: String,
    pub expect: Expect,
    pub change: Change,
}

/// Entries in key order, all of the same moment.
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

/// The history does not reach back to what was asked for. List again, and watch from the list's revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {requested} is too old: the history begins after {oldest}")]
pub struct TooOld {
    pub requested: u64,
    /// The oldest revision that can still be asked for.
    pub oldest: u64,
}

/// Why a write did not happen - or, for [`WriteError::Poisoned`], may not have happened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    /// The key is not as expected. Carries what is there.
    #[error("{}", match .0 { Some(entry) => format!("{} is at revision {}", entry.key, entry.revision), None => "the key is absent".into() })]
    Conflict(Option<Entry>),
    /// The entry that [`Store::commit_beside`] was given is no longer the newest of its key.
    #[error("what the write depended on has changed")]
    Moved,
    /// The disk failed: this write may or may not be there after a restart, and none is taken until then.
    #[error("the store takes no more writes since one failed ({reason}); check the disk, then restart")]
    Poisoned { reason: Arc<str> },
    #[error("the object is too large: {size} bytes of at most {limit}")]
    TooLarge { size: usize, limit: usize },
    #[error("too many writes are waiting for the disk; try again")]
    Overloaded,
    #[error("the store is closed")]
    Closed,
}

/// A handle to a store; cloning it is cheap. The store is closed with its last handle, or by [`Store::close`].
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
    bells: Bells,
    closed: AtomicBool,
}

impl Shared {
    fn new(state: State) -> Shared {
        Shared {
            revision: AtomicU64::new(state.revision),
            state: RwLock::new(state),
            bells: Bells::default(),
            closed: AtomicBool::new(false),
        }
    }

    // A panic while the lock was held can only have come from running out of memory: nothing in `State` calls out.
    // What is there is then no worse than before, and reads are to go on.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write with nothing to wait for.
    fn commit(&self, write: Write, beside: Option<Entry>) -> Result<Entry, WriteError> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(WriteError::Closed);
        }
        let state = self.write();
        let mut group = Group::new(&state);
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
        // Who is woken wants to read.
        drop(state);
        self.bells.ring(writes.iter().map(|write| &write.entry));
    }
}

impl Store {
    /// A store in memory only: no thread, no I/O, and [`Store::commit`] is ready at its first poll.
    pub fn memory(options: Options) -> Store {
        Store { shared: Arc::new(Shared::new(State::new(options, FIRST))), writer: None }
    }

    /// The store in the directory `dir`, which is made if it is not there. Reads everything into memory first.
    pub fn open(dir: &Path, options: Options) -> Result<Store, OpenError> {
        let (state, disk) = disk::open(dir, options)?;
        Store::start(state, Box::new(disk), options).map_err(|source| OpenError::Io {
            path: dir.into(),
            step: "start the writer",
            source,
        })
    }

    /// An empty store on a backend of the caller's.
    #[doc(hidden)]
    pub fn with_backend(backend: Box<dyn backend::Backend>, options: Options) -> std::io::Result<Store> {
        Store::start(State::new(options, FIRST), backend, options)
    }

    fn start(state: State, backend: Box<dyn backend::Backend>, options: Options) -> std::io::Result<Store> {
        let shared = Arc::new(Shared::new(state));
        let writer = Writer::start(shared.clone(), backend, options)?;
        Ok(Store { shared, writer: Some(Arc::new(writer)) })
    }

    /// The newest revision, which is durable and visible.
    pub fn revision(&self) -> u64 {
        self.shared.revision.load(Ordering::Acquire)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.shared.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Why no write is taken any more, if one failed: see [`WriteError::Poisoned`].
    pub fn poisoned(&self) -> Option<Arc<str>> {
        self.writer.as_ref()?.poisoned()
    }

    /// From this revision on, every read and watch is answered. An older one may be, if the kind it asks for has had
    /// few writes: the history is kept by kind.
    pub fn compacted(&self) -> u64 {
        self.shared.read().compacted()
    }

    /// The newest state of one key.
    pub fn get(&self, key: &str) -> Option<Entry> {
        self.shared.read().get(key).cloned()
    }

    /// The entries whose key starts with `prefix` and is greater than `after`, at most `limit`, as they were at
    /// revision `at`. A revision that has not been reached yet means the newest: [`Page::revision`] tells.
    pub fn range(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: Option<usize>,
        at: Option<u64>,
    ) -> Result<Page, TooOld> {
        self.shared.read().range(prefix, after, limit, at)
    }

    /// Writes, and returns the new entry (of a delete: the last state) once it is durable. Dropping the future leaves
    /// open whether the write happened; it never happens by half.
    pub async fn commit(&self, write: Write) -> Result<Entry, WriteError> {
        self.commit_if(write, None).await
    }

    /// Writes only if another entry is still the newest of its key when the write happens: what was decided by looking
    /// at it - that a namespace stays, say - is then true of the moment of the write, and not only of one before.
    pub async fn commit_beside(&self, write: Write, beside: Entry) -> Result<Entry, WriteError> {
        self.commit_if(write, Some(beside)).await
    }

    async fn commit_if(&self, write: Write, beside: Option<Entry>) -> Result<Entry, WriteError> {
        match &self.writer {
            Some(writer) => writer.commit(write, beside).await,
            None => self.shared.commit(write, beside),
        }
    }

    /// A watcher of the events under `prefix` after revision `after`. An `after` that has not been reached yet is
    /// allowed: the watcher stays silent until then, and sees only what comes after it.
    pub fn watch(&self, prefix: &str, after: u64) -> Result<Watcher, TooOld> {
        self.shared.read().reaches(prefix, after)?;
        Ok(Watcher::new(self.shared.clone(), prefix, after))
    }

    /// Forgets the history up to `before`: what asks for an older revision gets [`TooOld`].
    pub fn compact(&self, before: u64) {
        self.shared.write().compact(before);
    }

    /// Stops, and waits for it: writes that were accepted are finished, the disk is let go, later writes get
    /// [`WriteError::Closed`], reads go on.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        if let Some(writer) = &self.writer {
            writer.close();
        }
    }
}
