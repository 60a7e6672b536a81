//! The store on disk, and which of its data is trusted at start.
//!
//! In the directory: `lock` (held by the process that has the store open), `head` (see [`crate::head`]) and `log`, the files
//! of [`crate::log`]. Each group of writes is appended and synced as a whole, with an account of the store after it.
//!
//! At start everything is read into memory and compared with the accounts and the head. The following is detected:
//!
//! - a record that changed: its checksum covers key, revision and value, and that of its group covers everything;
//! - a record that is missing, came back, or is older than it should be: the account has the number of objects and the
//!   sum of their checksums;
//! - a group that is missing: each names the revision before it;
//! - a truncated end: the account's revision is below the head's. It looks like a write that a crash interrupted; the head
//!   tells them apart.
//!
//! One loss can go undetected: in a power cut, a disk loses writes that it had reported as synced. The head may then
//! lag by a little more than a second ([`crate::head`]). If all writes from some point on are lost, and they are newer
//! than the head, the store looks as if they were never made. Only the rule of [`crate::log`] remains; it detects
//! the loss if traces of two groups are left, or of one group that does not follow the last whole one. A disk that
//! keeps what it has synced loses nothing. A loss of synced writes that reaches back more than the last second is
//! always detected, unless the disk lost the synced head as well.
//!
//! Nothing is changed before all this has been checked. Then a group that was never acknowledged is cut off.
//!
//! A store of an earlier version (format 1: `engine` instead of `log`) is converted when it is opened: all of it is read and
//! checked ([`crate::salvage`]), written as a state, and the head names the new format as the last step.

use std::collections::HashMap;
use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;

use crate::backend::{Account, Backend, BackendError, Planned};
use crate::head::{self, Found, Head, Mark};
use crate::log::merge::Merge;
use crate::log::{self, Contents, Fault, GroupBuffer, Log, StateWriter};
use crate::record::{self, BadRecord, Entry};
use crate::state::State;
use crate::{FIRST, StoreOptions, salvage};

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

/// The error of a disk that cannot be read or written.
const EIO: i32 = 5;
/// How much must be free for a disk not to be full: enough for a few groups.
const ROOM: usize = 1024 * 1024;

/// An open store directory. Fields are dropped in declaration order: the lock must be last.
pub(crate) struct Disk {
    merge: Option<Merge>,
    log: Log,
    group: GroupBuffer,
    head: Head,
    place: PathBuf,
    /// The bytes of the state, and of the logs after it.
    state: u64,
    logs: u64,
    /// The logs are merged when there are so many bytes of them.
    merge_at: u64,
    options: StoreOptions,
    /// What was read back is not what was written.
    damaged: Option<String>,
    _lock: File,
}

impl Disk {
    fn new(
        place: &StoreDirectory<'_>,
        options: StoreOptions,
        log: Log,
        sizes: (u64, u64),
        head: Head,
        lock: File,
    ) -> Self {
        let (state, logs) = sizes;
        let mut disk = Self {
            merge: None,
            log,
            group: GroupBuffer::new(),
            head,
            place: place.dir.into(),
            state,
            logs,
            merge_at: 0,
            options,
            damaged: None,
            _lock: lock,
        };
        disk.merge_at = disk.enough();
        disk
    }

    fn log_dir(&self) -> PathBuf {
        StoreDirectory { dir: &self.place }.log()
    }

    /// Half of what a merge reads is new, at least: what is written again is in proportion to what is written.
    fn enough(&self) -> u64 {
        (2 * self.state).max(self.options.merge_bytes as u64)
    }

    /// Takes the result of a merge that has ended, and begins the next one if there is enough to do.
    fn look_after_logs(&mut self) {
        if let Some(merge) = self.merge.take_if(|merge| merge.has_ended()) {
            let merged = merge.logs;
            match merge.finish() {
                Ok(state) => {
                    self.state = state;
                    self.logs -= merged;
                    self.merge_at = self.enough();
                }
                Err(Fault::Io(error)) if is_broken(&error) => {
                    self.damaged = Some(format!("the logs cannot be merged: {error}"));
                }
                // The logs are all there. Later there may be room, or descriptors.
                Err(Fault::Io(_) | Fault::Stopped) => self.postpone(),
                Err(Fault::Damaged(what)) => self.damaged = Some(what),
                Err(Fault::Newer { .. }) => {
                    self.damaged = Some("a log has another format than it was written with".into())
                }
            }
        }
        if self.merge.is_none() && self.logs >= self.merge_at {
            self.begin_merge().unwrap_or_else(|_| self.postpone());
        }
    }

    fn postpone(&mut self) {
        self.merge_at = self.logs + self.options.merge_bytes as u64 / 4;
    }

    fn begin_merge(&mut self) -> std::io::Result<()> {
        let dir = self.log_dir();
        // A log that was only begun does not count.
        let next = Log::create(&dir, self.log.number + 1)?;
        let mut last = std::mem::replace(&mut self.log, next);
        let logs = self.logs;
        self.logs += self.log.whole;
        // What was allocated and is not used.
        last.cut()?;
        self.merge = Some(Merge::start(dir, last.number, logs)?);
        Ok(())
    }

    /// Writes and removes a file, to find out whether there is room.
    fn find_room(&self) -> Result<(), BackendError> {
        let path = self.place.join("room");
        let write = || {
            let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&path)?;
            file.write_all(&vec![1; ROOM])?;
            file.sync_all()
        };
        let written = write();
        let removed = std::fs::remove_file(&path);
        written.and(removed).map_err(|error| BackendError::if_full(&error, error.to_string()))
    }
}

/// Whether a file that was written is gone, or the disk cannot read it.
fn is_broken(error: &std::io::Error) -> bool {
    let kinds = [ErrorKind::NotFound, ErrorKind::InvalidData, ErrorKind::UnexpectedEof];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(EIO)
}

impl BackendError {
    /// Recoverable if the disk is full.
    fn if_full(error: &std::io::Error, reason: String) -> Self {
        let error = Self::io(error, reason);
        Self { recoverable: error.disk_full, ..error }
    }
}

impl Backend for Disk {
    fn write(&mut self, writes: &[Planned], account: &Account) -> Result<(), BackendError> {
        self.look_after_logs();
        if let Some(damaged) = &self.damaged {
            return Err(damaged.as_str().into());
        }
        self.group.clear();
        for write in writes.iter().filter(|write| !write.superseded) {
            let entry = &write.entry;
            match write.deleted {
                true => self.group.add(&entry.key, &record::deletion(&entry.key, entry.revision), true),
                false => self.group.add(&entry.key, &write.record, false),
            }
        }
        let group = self.group.finish(account);
        if group.len() > log::LARGEST_GROUP {
            return Err("a group is too large to be read again".into());
        }
        self.log.append(group).map_err(|error| BackendError::if_full(&error, error.to_string()))?;
        self.logs += group.len() as u64;
        let advanced = self.head.advance(account.revision);
        // Not recoverable: the group is in the log. The head needs no new blocks, so a full disk fails earlier.
        advanced.map_err(|error| BackendError::io(&error, format!("writing the head: {error}")))
    }

    /// The failed write is cut off the log even if it can be read there: what can be read may not be on the disk, because after
    /// a failed sync the operating system may have dropped pages that it still shows. Then everything is read, as at a start,
    /// and compared with the account. So the next write follows the last acknowledged one, as it does in memory.
    fn recover(&mut self, acknowledged: &Account) -> Result<(), BackendError> {
        let was_merging = self.merge.take().is_some();
        remove_stale(&self.log_dir());
        self.find_room()?;
        let cut = self.log.cut();
        cut.map_err(|error| BackendError::if_full(&error, format!("cutting off the failed write: {error}")))?;
        let place = self.place.clone();
        let place = StoreDirectory { dir: &place };
        let mut sums: HashMap<Box<[u8]>, u64, RandomState> = HashMap::default();
        let found = log::read(&place.log(), None, |_, item| {
            match record::sum(item.record) {
                Some(sum) if !item.deletes => drop(sums.insert(item.key.into(), sum)),
                _ => drop(sums.remove(item.key)),
            }
            Ok(())
        });
        let contents = found.map_err(|fault| recovering(place.fault(fault)))?;
        let digest = sums.values().fold(0_u64, |digest, sum| digest.wrapping_add(*sum));
        let found = (contents.account.revision, sums.len() as u64, digest);
        if found != (acknowledged.revision, acknowledged.objects, acknowledged.digest) {
            let what = format!(
                "after a failed write the disk has {} objects at revision {} instead of {} at {}",
                found.1, found.0, acknowledged.objects, acknowledged.revision
            );
            return Err(what.as_str().into());
        }
        let mark = Mark::made(acknowledged.revision);
        self.head = Head::open(&place.head(), mark)
            .map_err(|error| BackendError::io(&error, format!("writing the head: {error}")))?;
        (self.state, self.logs) = (contents.state, contents.logs);
        // A merge makes room, if there is enough for it: that which was under way may have been what filled the disk.
        self.merge_at = self.logs.min(self.enough());
        if was_merging {
            self.postpone();
        }
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
        Found::Nothing if place.log().exists() || place.engine().exists() => {
            return Err(place.damaged("the file `head` is missing"));
        }
        Found::Unreadable => return Err(place.damaged("the file `head` cannot be read")),
        Found::Newer(found) => return Err(place.newer(found, head::FORMAT)),
        Found::Mark(mark) if mark.made && mark.format < head::FORMAT => place.convert(options).inspect_err(|_| {
            let _ = std::fs::remove_dir_all(place.log());
        })?,
        Found::Mark(mark) if mark.made => mark,
        Found::Nothing | Found::Mark(_) => return place.make(lock, options),
    };
    let (state, contents) = place.load(&mark, options)?;
    let mut log = Log::open(&place.log(), &contents).map_err(|error| place.io("cut off an unfinished write", error))?;
    if state.revision > mark.revision {
        // The process that wrote this group had not acknowledged it. Perhaps its sync had failed.
        log.write_again(contents.newest).map_err(|error| place.io("write the last group again", error))?;
    }
    remove_stale(&place.log());
    let _ = std::fs::remove_dir_all(place.engine());
    let mark = Mark::made(state.revision);
    let head = Head::open(&place.head(), mark).map_err(|error| place.io("write the head", error))?;
    Ok((state, Disk::new(&place, options, log, (contents.state, contents.logs), head, lock)))
}

/// Removes what a crash has left. It does not count, and need not go.
fn remove_stale(log: &Path) {
    let stale = log::files(log).map(|files| files.stale).unwrap_or_default();
    stale.iter().for_each(|path| drop(std::fs::remove_file(path)));
}

/// Whether the store in `dir` has the form of an earlier version.
pub(crate) fn is_old(dir: &Path) -> bool {
    matches!(head::find(&StoreDirectory { dir }.head()), Ok(Found::Mark(mark)) if mark.format < head::FORMAT)
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

/// A store of objects that have revisions already, which is being made.
pub(crate) struct NewStore {
    state: StateWriter,
    dir: PathBuf,
    _lock: File,
}

impl NewStore {
    /// In `dir`, which has no store.
    pub fn create(dir: &Path, revision: u64) -> Result<Self, OpenError> {
        let place = StoreDirectory { dir };
        let lock = place.lock(Opener::Owner)?;
        if place.head().exists() || place.log().exists() || place.engine().exists() {
            return Err(OpenError::HasStore { path: dir.into() });
        }
        place.begin()?;
        let state = place.new_state(revision)?;
        Ok(Self { state, dir: dir.into(), _lock: lock })
    }

    pub fn add(&mut self, entry: &Entry, record: &[u8]) -> Result<(), OpenError> {
        let added = self.state.add(&entry.key, record, entry.sum);
        added.map_err(|error| StoreDirectory { dir: &self.dir }.io("write objects", error))
    }

    /// Everything is on the disk when this returns. The result is the number of objects.
    pub fn finish(self) -> Result<u64, OpenError> {
        let place = StoreDirectory { dir: &self.dir };
        let Account { objects, revision, .. } = *self.state.account();
        place.complete(self.state)?;
        place.write_head(Mark::made(revision))?;
        Ok(objects)
    }
}

/// The directory of a store, and the steps to open it.
struct StoreDirectory<'a> {
    dir: &'a Path,
}

impl StoreDirectory<'_> {
    fn head(&self) -> PathBuf {
        self.dir.join("head")
    }

    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Of a store in the form of an earlier version.
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

    /// Makes an empty directory for the files. Until the store is complete the head marks it as incomplete: after a crash in
    /// between, it is made again.
    fn begin(&self) -> Result<(), OpenError> {
        self.write_head(Mark { made: false, ..Mark::made(FIRST) })?;
        self.clear_log()
    }

    fn clear_log(&self) -> Result<(), OpenError> {
        match std::fs::remove_dir_all(self.log()) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(self.io("clear what was half made", error)),
            _ => {}
        }
        let made = DirBuilder::new().mode(0o700).create(self.log());
        made.and_then(|()| log::sync_directory(self.dir)).map_err(|error| self.io("make a directory", error))
    }

    fn write_head(&self, mark: Mark) -> Result<Head, OpenError> {
        let head = Head::open(&self.head(), mark).and_then(|head| log::sync_directory(self.dir).map(|()| head));
        head.map_err(|error| self.io("write the head", error))
    }

    fn make(&self, lock: File, options: StoreOptions) -> Result<(State, Disk), OpenError> {
        self.begin()?;
        let log = Log::create(&self.log(), 1).map_err(|error| self.io("begin the log", error))?;
        let head = self.write_head(Mark::made(FIRST))?;
        let sizes = (0, log.whole);
        Ok((State::new(options, FIRST), Disk::new(self, options, log, sizes, head, lock)))
    }

    fn new_state(&self, revision: u64) -> Result<StateWriter, OpenError> {
        StateWriter::create(&self.log(), 0, revision).map_err(|error| self.io("write objects", error))
    }

    fn complete(&self, state: StateWriter) -> Result<(), OpenError> {
        let finished = state.finish().and_then(|_| Log::create(&self.log(), 1));
        finished.map(drop).map_err(|error| self.io("write objects", error))
    }

    /// Converts a store of an earlier version. Until the head says so, it is the store of that version.
    fn convert(&self, options: StoreOptions) -> Result<Mark, OpenError> {
        let found = salvage::read(self.dir)?;
        if !found.can_be_used() {
            return Err(self.damaged(found.first_damage()));
        }
        self.clear_log()?;
        let mut state = self.new_state(found.revision)?;
        let mut bytes = Vec::new();
        for entry in found.entries() {
            bytes.clear();
            record::encode_into(entry, &mut bytes);
            state.add(&entry.key, &bytes, entry.sum).map_err(|error| self.io("write objects", error))?;
        }
        self.complete(state)?;
        let mark = Mark::made(found.revision);
        // What was written is read again before it takes the place of the other.
        self.load(&mark, options)?;
        self.write_head(mark)?;
        Ok(mark)
    }

    /// Reads everything into memory and compares it with the accounts and the head.
    fn load(&self, mark: &Mark, options: StoreOptions) -> Result<(State, Contents), OpenError> {
        let mut entries: HashMap<Box<str>, Entry, RandomState> = HashMap::default();
        let read = log::read(&self.log(), None, |_, item| {
            let entry = record::read(item.key, item.record).map_err(|bad| match bad {
                BadRecord::Newer(found) => Fault::Newer { found, known: record::FORMAT },
                BadRecord::Damaged => Fault::Damaged(format!("{} cannot be read", String::from_utf8_lossy(item.key))),
            })?;
            match item.deletes {
                true => drop(entries.remove(&entry.key)),
                false => drop(entries.insert(entry.key.clone(), entry)),
            }
            Ok(())
        });
        let contents = read.map_err(|fault| self.fault(fault))?;
        let account = contents.account;
        if account.revision < mark.revision {
            let (found, acknowledged) = (account.revision, mark.revision);
            let what = format!("it ends at revision {found}, but {acknowledged} had been acknowledged");
            return Err(self.damaged(what));
        }
        let mut state = State::new(options, account.revision);
        let mut entries: Vec<Entry> = entries.into_values().collect();
        entries.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        for entry in entries {
            state.load(entry);
        }
        if (state.len() as u64, state.digest) != (account.objects, account.digest) {
            let (found, written) = (state.len(), account.objects);
            let what = format!("it holds {found} objects where {written} were written, or not the newest of each");
            return Err(self.damaged(what));
        }
        Ok((state, contents))
    }

    fn damaged(&self, what: impl Into<String>) -> OpenError {
        OpenError::Damaged { path: self.dir.into(), what: what.into() }
    }

    fn newer(&self, found: u8, known: u8) -> OpenError {
        OpenError::Newer { path: self.dir.into(), found, known }
    }

    fn fault(&self, fault: Fault) -> OpenError {
        match fault {
            Fault::Io(error) if error.kind() == ErrorKind::NotFound => self.damaged("its log is missing"),
            Fault::Io(error) => self.io("read the store's files", error),
            Fault::Damaged(what) => self.damaged(what),
            Fault::Newer { found, known } => self.newer(found, known),
            Fault::Stopped => self.io("read the store's files", ErrorKind::Interrupted.into()),
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
        OpenError::Io { source, .. } => BackendError::if_full(source, format!("{error}: {source}")),
        error => error.to_string().as_str().into(),
    }
}
