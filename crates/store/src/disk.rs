//! The store on disk, and which of its data is trusted at start.
//!
//! In the directory: `lock` (held by the process that has the store open), `head` (see [`crate::head`]) and `engine`, a
//! fjall database with one keyspace: the record of every object, and one account of the whole. Each group of writes is
//! one atomic batch with the new account in it, synced once.
//!
//! At start everything is read into memory and compared with the account and the head. The following is detected:
//!
//! - a record that changed (its checksum covers key, revision and value), even if the engine accepts it;
//! - a record that is missing, came back, or is older than it should be: the account has the number of objects and the
//!   sum of their checksums;
//! - a truncated end: the account's revision is below the head's. The engine cannot tell a truncated end from a write
//!   that a crash interrupted and continues without it; the head can.
//!
//! One loss can go undetected: in a power cut, a disk loses writes that it had reported as synced. The head may then
//! lag by a little more than a second ([`crate::head`]). If all writes from some point on are lost, and they are newer
//! than the head, the store looks as if they were never made. Only the rule of [`crate::journal`] remains; it detects
//! the loss if traces of two groups are left, or of one group that does not follow the last whole one. A disk that
//! keeps what it has synced loses nothing. A loss of synced writes that reaches back more than the last second is
//! always detected, unless the disk lost the synced head as well.
//!
//! Nothing is changed before all this has been checked, with two exceptions: a group that was never acknowledged is cut
//! off, and the engine, if it had to be opened for the check, cleans up files of its own.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fjall::compaction::Leveled;
use fjall::config::{BlockSizePolicy, FilterPolicy};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use xxhash_rust::xxh3::xxh3_64;

use crate::backend::{Account, Backend, BackendError, Planned};
use crate::head::{self, Found, Head, Mark};
use crate::record::{self, BadRecord, Entry};
use crate::state::State;
use crate::{FIRST, StoreOptions, journal, private};

/// The keys in the engine: an object's key begins with this byte, the account's key is [`ACCOUNT_KEY`].
pub(crate) const OBJECT: u8 = b'o';
pub(crate) const ACCOUNT_KEY: &[u8] = b"account";
/// The first bytes of an account. They are not valid text, so no object can be mistaken for an account. The last byte
/// is the format.
pub(crate) const ACCOUNT_MAGIC: &[u8; 8] = b"\xff\xfeacct\xff\x01";
/// The content of the engine's file `version`.
pub(crate) const ENGINE_VERSION: &[u8] = b"FJL\x03";
/// The magic, four numbers and a checksum.
pub(crate) const ACCOUNT_LEN: usize = 48;

/// Why a store could not be opened. Nothing was changed, except as the module documentation says.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{path} is not a directory; give the store a directory, or a path that does not exist yet")]
    NotADirectory { path: PathBuf },
    #[error("cannot write in {path}; make it writable for this user, or choose another directory")]
    NotWritable { path: PathBuf, source: std::io::Error },
    #[error("{path} has no store")]
    NoStore { path: PathBuf },
    #[error("{path} has a store already; choose another directory")]
    HasStore { path: PathBuf },
    #[error("{path} is in use by another process{}; stop that one first, or choose another directory", holder(.pid))]
    Held { path: PathBuf, pid: Option<u32> },
    #[error("{path} was written by a newer version (format {found}, this one knows {known}); use that version")]
    Newer { path: PathBuf, found: u8, known: u8 },
    #[error(
        "the store in {path} is damaged: {what}. Nothing was changed. `tally check` lists what is damaged, `tally salvage` \
         copies everything that can be read to a new directory, and `tally restore` makes a directory from a backup; or \
         move this one away to start with an empty store"
    )]
    Damaged { path: PathBuf, what: String },
    #[error("cannot {step} in {path}")]
    Io { path: PathBuf, step: &'static str, source: std::io::Error },
}

fn holder(pid: &Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

/// Who opens a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opener {
    Owner,
    /// It closes the store again at once: others wait for it.
    Reader,
}

/// What follows the PID of a reader in the lock.
const READS: &str = " reads";
/// How long to wait for a reader. It reads everything into memory first.
const READ_WITHIN: Duration = Duration::from_secs(10);
const WRITTEN_WITHIN: Duration = Duration::from_millis(20);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// How much must be free for a disk not to be full: enough for a few groups and for what the engine writes when it is
/// opened.
const ROOM: usize = 1024 * 1024;
/// How many of its buffers the engine writes to tables before it merges them, which removes what newer ones replace. A
/// Pod is written five times, and each merge writes everything that is there once more: with 4, the engine's default,
/// a hundred thousand Pods take 5 to 9 % longer. More would only be read more slowly at start.
const TABLES: u8 = 12;
/// How often the engine may stop by itself, for a reason that it does not tell, while the disk has room. A disk that
/// became full and was emptied at once looks like this; a disk that is broken does too, so there is an end.
const UNEXPLAINED_STOPS: u32 = 8;

/// An open store directory. Fields are dropped in declaration order: the lock must be last.
pub(crate) struct Disk {
    /// None after a failure, until the store has recovered.
    engine: Option<Engine>,
    head: Head,
    dir: PathBuf,
    options: StoreOptions,
    unexplained_stops: u32,
    _lock: File,
}

struct Engine {
    objects: Keyspace,
    database: Database,
}

impl Disk {
    fn new(dir: &Path, options: StoreOptions, engine: Engine, head: Head, lock: File) -> Self {
        Self { engine: Some(engine), head, dir: dir.into(), options, unexplained_stops: 0, _lock: lock }
    }

    /// The error for a batch that the engine refused, or may have written in part. Nothing of it is in the engine's
    /// memory or tables.
    fn failed(&mut self, error: &fjall::Error) -> BackendError {
        match error {
            fjall::Error::Io(source) => {
                let error = BackendError::io(source, describe(error));
                BackendError { recoverable: error.disk_full, ..error }
            }
            // The engine's own thread failed before, while it wrote a table. It does not say why.
            fjall::Error::Poisoned => match (self.find_room(), self.free()) {
                (Err(full), _) if full.disk_full => full,
                (_, Ok(free)) if free < u64::from(TABLES) * self.options.engine_buffer as u64 => {
                    let reason = format!("{} KiB are free, too few for a table", free / 1024);
                    BackendError { reason: reason.into(), disk_full: true, recoverable: true }
                }
                _ => {
                    self.unexplained_stops += 1;
                    let recoverable = self.unexplained_stops <= UNEXPLAINED_STOPS;
                    BackendError { recoverable, ..describe(error).as_str().into() }
                }
            },
            error => describe(error).as_str().into(),
        }
    }

    /// The bytes that this user can still write.
    fn free(&self) -> std::io::Result<u64> {
        let disk = rustix::fs::statvfs(&self.dir)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Writes and removes a file, to find out whether there is room.
    fn find_room(&self) -> Result<(), BackendError> {
        let path = self.dir.join("room");
        let write = || {
            let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&path)?;
            file.write_all(&vec![1; ROOM])?;
            file.sync_all()
        };
        let written = write();
        let removed = std::fs::remove_file(&path);
        written.and(removed).map_err(|error| {
            let error = BackendError::io(&error, error.to_string());
            BackendError { recoverable: error.disk_full, ..error }
        })
    }
}

impl Backend for Disk {
    fn write(&mut self, writes: &[Planned], account: &Account) -> Result<(), BackendError> {
        let Some(Engine { objects, database }) = &self.engine else { return Err("the engine is closed".into()) };
        let mut batch = fjall::OwnedWriteBatch::with_capacity(database.clone(), writes.len() + 1)
            // The data and the file's length are synced; the modification time need not be.
            .durability(Some(PersistMode::SyncData));
        for write in writes.iter().filter(|write| !write.superseded) {
            let key = object_key(&write.entry.key);
            if write.deleted {
                batch.remove(objects, key);
            } else {
                batch.insert(objects, key, write.record.clone());
            }
        }
        batch.insert(objects, ACCOUNT_KEY, encode_account(account).to_vec());
        batch.commit().map_err(|error| self.failed(&error))?;
        let advanced = self.head.advance(account.revision);
        // Not recoverable: the group is in the engine, and could be in its tables already, so that it cannot be removed. The
        // head needs no new blocks, so a full disk fails earlier.
        advanced.map_err(|error| BackendError::io(&error, format!("writing the head: {error}")))
    }

    /// The same as a restart: the engine is closed, the journal is checked, the engine is opened again, and everything in
    /// it is compared with the account. In addition the failed write is cut off the journal even if it can be read there
    /// ([`journal::cut_after`]). So the next write follows the last acknowledged one, as it does in memory.
    fn recover(&mut self, acknowledged: &Account) -> Result<(), BackendError> {
        // Its threads end, and what it had not written of the failed group is written or given up.
        self.engine = None;
        self.find_room()?;
        let (dir, options) = (self.dir.clone(), self.options);
        let place = StoreDirectory { dir: &dir };
        let cut = journal::cut_after(&place.engine(), acknowledged.revision);
        cut.map_err(|error| BackendError::io(&error, format!("cutting off the failed write: {error}")))?;
        let (database, objects) = place.open_engine(&options).map_err(recovering)?;
        let mut found = Account { revision: 0, follows: 0, objects: 0, digest: 0 };
        let account = place.scan(&objects, |entry| {
            found.objects += 1;
            found.digest = found.digest.wrapping_add(entry.sum);
        });
        found.revision = account.map_err(recovering)?.revision;
        let same = |account: &Account| (account.revision, account.objects, account.digest);
        if same(&found) != same(acknowledged) {
            let what = format!(
                "after a failed write the disk has {} objects at revision {} instead of {} at {}",
                found.objects, found.revision, acknowledged.objects, acknowledged.revision
            );
            return Err(what.as_str().into());
        }
        let mark = Mark { made: true, revision: acknowledged.revision };
        self.head = Head::open(&place.head(), mark)
            .map_err(|error| BackendError::io(&error, format!("writing the head: {error}")))?;
        self.engine = Some(Engine { objects, database });
        Ok(())
    }

    fn is_restless(&self) -> bool {
        self.head.is_dirty()
    }

    fn rest(&mut self) {
        // A head that cannot be synced only lags; the next write detects a broken disk by itself.
        let _ = self.head.sync();
    }
}

/// Opens the store in `dir`, or creates one if there is none.
pub(crate) fn open(dir: &Path, options: StoreOptions, opener: Opener) -> Result<(State, Disk), OpenError> {
    let place = StoreDirectory { dir };
    let lock = place.lock(opener)?;
    let mark = match head::find(&place.head()).map_err(|error| place.io("read the head", error))? {
        Found::Nothing if place.engine().exists() => return Err(place.damaged("the file `head` is missing")),
        Found::Unreadable => return Err(place.damaged("the file `head` cannot be read")),
        Found::Newer(found) => return Err(place.newer(found, head::FORMAT)),
        Found::Mark(mark) if mark.made => mark,
        Found::Nothing | Found::Mark(_) => return place.make(lock, options),
    };
    let saved = place.check_journal(&mark)?;
    let opened = place.open_engine(&options).and_then(|(database, objects)| {
        let state = place.load(&objects, &mark, options)?;
        match &saved {
            Some(saved) if !saved.torn.can_follow(state.revision) => Err(place.damaged(saved.torn.to_string())),
            _ => Ok((state, database, objects)),
        }
    });
    match (opened, saved) {
        (Ok((state, database, objects)), saved) => {
            if let Some(saved) = saved {
                std::fs::remove_file(saved.copy).map_err(|error| place.io("remove a copy of the journal", error))?;
            }
            let mark = Mark { made: true, revision: state.revision };
            let head = Head::open(&place.head(), mark).map_err(|error| place.io("write the head", error))?;
            Ok((state, Disk::new(dir, options, Engine { objects, database }, head, lock)))
        }
        (Err(error), Some(saved)) => {
            // The engine is closed again: the journal is restored to what it was before the cut.
            std::fs::rename(saved.copy, saved.torn.path).map_err(|error| place.io("restore the journal", error))?;
            Err(error)
        }
        (Err(error), None) => Err(error),
    }
}

/// Takes the lock of the store in `dir`, for a reader of its files. None: there is no lock in a directory that cannot
/// be written.
pub(crate) fn lock_to_read(dir: &Path) -> Result<Option<File>, OpenError> {
    let place = StoreDirectory { dir };
    match place.lock(Opener::Reader) {
        Err(OpenError::NotWritable { .. }) => {}
        locked => return locked.map(Some),
    }
    match File::open(place.lock_file()) {
        Ok(lock) => place.take(&lock, File::try_lock_shared).map(|()| Some(lock)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(place.io("open the lock", error)),
    }
}

pub(crate) fn read_error(dir: &Path, error: std::io::Error) -> OpenError {
    StoreDirectory { dir }.io("read the store's files", error)
}

/// Creates a store in `dir`, which has none.
pub(crate) fn create(dir: &Path, options: StoreOptions) -> Result<Disk, OpenError> {
    let place = StoreDirectory { dir };
    let lock = place.lock(Opener::Owner)?;
    if place.head().exists() || place.engine().exists() {
        return Err(OpenError::HasStore { path: dir.into() });
    }
    Ok(place.make(lock, options)?.1)
}

/// A journal that was cut, and a copy of the original.
struct Saved {
    torn: journal::Torn,
    copy: PathBuf,
}

/// The directory of a store, and the steps to open it.
struct StoreDirectory<'a> {
    dir: &'a Path,
}

impl StoreDirectory<'_> {
    fn head(&self) -> PathBuf {
        self.dir.join("head")
    }

    fn engine(&self) -> PathBuf {
        self.dir.join("engine")
    }

    fn lock_file(&self) -> PathBuf {
        self.dir.join("lock")
    }

    /// Creates the directory if needed, accessible to its owner only, and takes the lock. A directory that others can
    /// access is closed to them before it is used.
    fn lock(&self, opener: Opener) -> Result<File, OpenError> {
        match std::fs::metadata(self.dir) {
            Ok(found) if !found.is_dir() => return Err(OpenError::NotADirectory { path: self.dir.into() }),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let made = DirBuilder::new().recursive(true).mode(0o700).create(self.dir);
                made.map_err(|error| self.io("make the directory", error))?;
            }
            Err(error) => return Err(self.io("look at the directory", error)),
        }
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).read(true).write(true).mode(0o600);
        let lock = options.open(self.lock_file()).map_err(|error| self.io("open the lock", error))?;
        self.take(&lock, File::try_lock)?;
        if opener == Opener::Owner {
            let step = "close the directory to other users";
            self.close_to_others().map_err(|source| OpenError::Io { path: self.dir.into(), step, source })?;
            // With what an older version has made.
            private::close(self.dir);
        }
        let role = if opener == Opener::Reader { READS } else { "" };
        let text = format!("{}{role}\n", std::process::id());
        // In one write, and cut afterwards: those who read it meanwhile see a whole line.
        let noted = lock.write_all_at(text.as_bytes(), 0).and_then(|()| lock.set_len(text.len() as u64));
        noted.map_err(|error| self.io("write the lock", error))?;
        Ok(lock)
    }

    fn close_to_others(&self) -> std::io::Result<()> {
        if std::fs::metadata(self.dir)?.mode() & 0o077 == 0 {
            return Ok(());
        }
        std::fs::set_permissions(self.dir, Permissions::from_mode(0o700))
    }

    fn take(&self, lock: &File, try_lock: fn(&File) -> Result<(), TryLockError>) -> Result<(), OpenError> {
        let began = Instant::now();
        loop {
            match try_lock(lock) {
                Ok(()) => return Ok(()),
                Err(TryLockError::WouldBlock) => {
                    let mut text = [0; 32];
                    let length = lock.read_at(&mut text, 0).unwrap_or(0);
                    let text = String::from_utf8_lossy(&text[..length]);
                    let holder = text.lines().next().unwrap_or_default();
                    let pid = holder.split_ascii_whitespace().next().and_then(|pid| pid.parse::<u32>().ok());
                    let patience = match pid {
                        _ if holder.ends_with(READS) => READ_WITHIN,
                        // A process that has just taken the lock may not have written yet who it is.
                        Some(pid) if Path::new(&format!("/proc/{pid}")).exists() => WRITTEN_WITHIN,
                        _ => 50 * WRITTEN_WITHIN,
                    };
                    if began.elapsed() >= patience {
                        // The PID is used only in the message.
                        return Err(OpenError::Held { path: self.dir.into(), pid });
                    }
                    std::thread::sleep(LOOK_AGAIN_AFTER);
                }
                Err(TryLockError::Error(error)) => return Err(self.io("take the lock", error)),
            }
        }
    }

    /// Creates a store. Until that is complete the head marks it as incomplete: after a crash in between, it is created
    /// again.
    fn make(&self, lock: File, options: StoreOptions) -> Result<(State, Disk), OpenError> {
        let head = |made| {
            let mark = Mark { made, revision: FIRST };
            Head::open(&self.head(), mark).map_err(|error| self.io("write the head", error))
        };
        head(false)?;
        sync_directory(self.dir).map_err(|error| self.io("sync the directory", error))?;
        match std::fs::remove_dir_all(self.engine()) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(self.io("clear what was half made", error)),
            _ => {}
        }
        let made = DirBuilder::new().mode(0o700).create(self.engine());
        made.map_err(|error| self.io("make a directory", error))?;
        let (database, objects) = self.open_engine(&options)?;
        let account = Account { revision: FIRST, follows: FIRST, objects: 0, digest: 0 };
        let noted = objects.insert(ACCOUNT_KEY, encode_account(&account).to_vec());
        noted.and_then(|()| database.persist(PersistMode::SyncAll)).map_err(|error| self.engine_error(error))?;
        sync_directory(self.dir).map_err(|error| self.io("sync the directory", error))?;
        let head = head(true)?;
        Ok((State::new(options, FIRST), Disk::new(self.dir, options, Engine { objects, database }, head, lock)))
    }

    /// Refuses a damaged journal before the engine repairs it in its own way, and cuts off a group that was never
    /// acknowledged. If only the engine's tables can show whether the group was acknowledged, a copy of the journal is
    /// kept.
    fn check_journal(&self, mark: &Mark) -> Result<Option<Saved>, OpenError> {
        let version = std::fs::read(self.engine().join("version"));
        let version = version.map_err(|error| self.missing("the engine's version", error))?;
        if let Some((found, known)) = newer_engine(&version) {
            return Err(self.newer(found, known));
        }
        if !version.starts_with(ENGINE_VERSION) {
            return Err(self.damaged("the engine's version cannot be read"));
        }
        let survey = journal::survey(&self.engine()).map_err(|error| self.missing("the journal", error))?;
        let survey = survey.map_err(|what| self.damaged(what))?;
        // The engine deletes journals oldest first: if one group is in the journals, all later ones are too.
        if let Some(newest) = survey.newest.filter(|newest| *newest < mark.revision) {
            return Err(self.cut_short(newest, mark));
        }
        let Some(torn) = survey.torn else { return Ok(None) };
        match survey.newest {
            Some(newest) if !torn.can_follow(newest) => Err(self.damaged(torn.to_string())),
            Some(_) => self.cut(&torn).map(|()| None),
            None => {
                let copy = self.dir.join("journal.saved");
                std::fs::copy(&torn.path, &copy).map_err(|error| self.io("copy the journal", error))?;
                self.cut(&torn)?;
                Ok(Some(Saved { torn, copy }))
            }
        }
    }

    fn cut(&self, torn: &journal::Torn) -> Result<(), OpenError> {
        journal::cut(torn).map_err(|error| self.io("cut off an unfinished write", error))
    }

    fn open_engine(&self, options: &StoreOptions) -> Result<(Database, Keyspace), OpenError> {
        let open = || {
            let database = Database::builder(self.engine())
                // One thread for writing and merging tables: with two, the engine keeps one of them spinning.
                .worker_threads(1)
                // Blocks are read once, at start.
                .cache_size(1024 * 1024)
                .manual_journal_persist(true)
                .open()?;
            let objects = database.keyspace("objects", || {
                KeyspaceCreateOptions::default()
                    .max_memtable_size(options.engine_buffer as u64)
                    .compaction_strategy(Arc::new(Leveled::default().with_l0_threshold(TABLES)))
                    .manual_journal_persist(true)
                    // Nothing is ever looked up by key, so blocks are large and there are no filters.
                    .data_block_size_policy(BlockSizePolicy::all(32 * 1024))
                    .filter_policy(FilterPolicy::disabled())
            })?;
            Ok((database, objects))
        };
        // The engine checks what it reads, but uses assertions for some of it; a damaged file must not abort the
        // process.
        catch_unwind(AssertUnwindSafe(open))
            .unwrap_or_else(|_| Err(fjall::Error::Unrecoverable))
            .map_err(|error| self.engine_error(error))
    }

    /// Reads everything into memory and compares it with the account and the head.
    fn load(&self, objects: &Keyspace, mark: &Mark, options: StoreOptions) -> Result<State, OpenError> {
        let mut entries = Vec::new();
        let account = self.scan(objects, |entry| entries.push(entry))?;
        if account.revision < mark.revision {
            return Err(self.cut_short(account.revision, mark));
        }
        let mut state = State::new(options, account.revision);
        for entry in entries {
            state.load(entry);
        }
        if (state.len() as u64, state.digest) != (account.objects, account.digest) {
            let (found, written) = (state.len(), account.objects);
            let what = format!("it holds {found} objects where {written} were written, or not the newest of each");
            return Err(self.damaged(what));
        }
        Ok(state)
    }

    /// Reads every record of the engine.
    fn scan(&self, objects: &Keyspace, mut visit: impl FnMut(Entry)) -> Result<Account, OpenError> {
        let mut account = None;
        let mut read = || -> Result<(), OpenError> {
            for item in objects.iter() {
                let (key, value) = item.into_inner().map_err(|error| self.engine_error(error))?;
                if &*key == ACCOUNT_KEY {
                    account = Some(decode_account(&value).ok_or_else(|| self.account_error(&value))?);
                    continue;
                }
                let Some((&OBJECT, key)) = key.split_first() else {
                    return Err(self.damaged("it holds a record of an unknown kind"));
                };
                visit(record::read(key, &value).map_err(|bad| match bad {
                    BadRecord::Newer(found) => self.newer(found, record::FORMAT),
                    BadRecord::Damaged => self.damaged(format!("{} cannot be read", String::from_utf8_lossy(key))),
                })?);
            }
            Ok(())
        };
        catch_unwind(AssertUnwindSafe(&mut read)).unwrap_or_else(|_| Err(self.damaged("the engine gave up")))?;
        account.ok_or_else(|| self.damaged("its account is missing"))
    }

    fn damaged(&self, what: impl Into<String>) -> OpenError {
        OpenError::Damaged { path: self.dir.into(), what: what.into() }
    }

    fn cut_short(&self, found: u64, mark: &Mark) -> OpenError {
        self.damaged(format!("it ends at revision {found}, but {} had been acknowledged", mark.revision))
    }

    fn newer(&self, found: u8, known: u8) -> OpenError {
        OpenError::Newer { path: self.dir.into(), found, known }
    }

    fn account_error(&self, value: &[u8]) -> OpenError {
        match newer_account(value) {
            Some((found, known)) => self.newer(found, known),
            None => self.damaged("its account cannot be read"),
        }
    }

    fn missing(&self, what: &str, error: std::io::Error) -> OpenError {
        match error.kind() {
            ErrorKind::NotFound => self.damaged(format!("{what} is missing")),
            _ => self.io("read the engine's files", error),
        }
    }

    fn engine_error(&self, error: fjall::Error) -> OpenError {
        match error {
            fjall::Error::Locked => OpenError::Held { path: self.dir.into(), pid: None },
            fjall::Error::Io(error) if !matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData) => {
                self.io("read or write the engine's files", error)
            }
            error => self.damaged(describe(&error)),
        }
    }

    fn io(&self, step: &'static str, source: std::io::Error) -> OpenError {
        let path = self.dir.into();
        match source.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => OpenError::NotWritable { path, source },
            ErrorKind::NotADirectory => OpenError::NotADirectory { path },
            _ => OpenError::Io { path, step, source },
        }
    }
}

/// The error of a recovery. A disk that is full again is waited for.
fn recovering(error: OpenError) -> BackendError {
    match &error {
        OpenError::Io { source, .. } => {
            let error = BackendError::io(source, format!("{error}: {source}"));
            BackendError { recoverable: error.disk_full, ..error }
        }
        // The engine that was closed has not let go of its files yet. No other process can: this one has the lock.
        OpenError::Held { .. } => BackendError { recoverable: true, ..error.to_string().as_str().into() },
        error => error.to_string().as_str().into(),
    }
}

/// The engine's error as a part of a sentence.
fn describe(error: &fjall::Error) -> String {
    match error {
        fjall::Error::Io(error) => error.to_string(),
        fjall::Error::JournalRecovery(_) => "the engine's journal cannot be read".into(),
        fjall::Error::Poisoned => "the engine stopped after an earlier failure".into(),
        error => format!("the engine's files cannot be read: {error:?}"),
    }
}

fn sync_directory(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}

fn object_key(key: &str) -> Bytes {
    let mut bytes = Vec::with_capacity(1 + key.len());
    bytes.push(OBJECT);
    bytes.extend_from_slice(key.as_bytes());
    bytes.into()
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

/// The format of an account of a newer version, and the one that is known.
pub(crate) fn newer_account(bytes: &[u8]) -> Option<(u8, u8)> {
    newer_format(bytes, ACCOUNT_MAGIC)
}

/// The same for the engine's file `version`.
pub(crate) fn newer_engine(bytes: &[u8]) -> Option<(u8, u8)> {
    newer_format(bytes, ENGINE_VERSION)
}

/// The last byte of `known` is a format.
fn newer_format(bytes: &[u8], known: &[u8]) -> Option<(u8, u8)> {
    let (format, name) = known.split_last()?;
    let found = bytes.strip_prefix(name)?.first()?;
    (found > format).then_some((*found, *format))
}

pub(crate) fn decode_account(bytes: &[u8]) -> Option<Account> {
    let number = |at: usize| Some(u64::from_le_bytes(bytes.get(8 * at..8 * (at + 1))?.try_into().ok()?));
    let account = Account { revision: number(1)?, follows: number(2)?, objects: number(3)?, digest: number(4)? };
    (encode_account(&account) == bytes).then_some(account)
}
