//! Writing the files.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{Contents, GroupBuffer, HEADER_LEN, Name};
use crate::backend::Account;

/// How the name of a state ends that is not complete.
pub(super) const UNFINISHED: &str = "new";
/// Where groups are small, so many zeros are written ahead of them: to sync what was written before, the file system need not
/// write where it is. A large group is as long as it is, and the same for it would be to write it twice.
const SMALL: usize = 32 * 1024;
const AHEAD: u64 = 256 * 1024;
/// How much of a state is in one group, and how much is written before it is synced: a log is synced meanwhile, and must not
/// wait for all of it.
const STATE_GROUP: usize = 1024 * 1024;
const STATE_UNSYNCED: usize = 8 * 1024 * 1024;

/// The log that is written.
pub(crate) struct Log {
    file: File,
    pub number: u64,
    /// Where the next group goes.
    pub whole: u64,
    /// The length of the file.
    allocated: u64,
}

impl Log {
    /// Begins a log. A file of this name was never used.
    pub fn create(dir: &Path, number: u64) -> io::Result<Self> {
        let name = Name::log(number);
        let mut file = create(&name.path(dir))?;
        file.write_all(&name.header())?;
        file.sync_all()?;
        sync_directory(dir)?;
        Ok(Self { file, number, whole: HEADER_LEN as u64, allocated: HEADER_LEN as u64 })
    }

    /// Goes on with a log, and removes what is behind its last whole group.
    pub fn open(dir: &Path, contents: &Contents) -> io::Result<Self> {
        let Contents { last: number, whole, .. } = *contents;
        if whole < HEADER_LEN as u64 {
            return Self::create(dir, number);
        }
        let file = OpenOptions::new().read(true).write(true).open(Name::log(number).path(dir))?;
        let mut log = Self { file, number, whole, allocated: whole };
        log.cut()?;
        Ok(log)
    }

    /// Writes what is there from `at` on once more. After a failed sync the operating system may show what is not on the disk, and
    /// will not write it by itself.
    pub fn write_again(&mut self, at: u64) -> io::Result<()> {
        let mut bytes = vec![0; self.whole.saturating_sub(at) as usize];
        self.file.read_exact_at(&mut bytes, at)?;
        self.file.write_all_at(&bytes, at)?;
        self.file.sync_all()
    }

    /// Removes what is behind the last whole group.
    pub fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.whole)?;
        self.allocated = self.whole;
        self.file.sync_all()
    }

    /// Appends a group. It is on the disk when this returns; after an error a part of it may be.
    pub fn append(&mut self, group: &[u8]) -> io::Result<()> {
        let end = self.whole + group.len() as u64;
        if end > self.allocated && group.len() < SMALL {
            let zeros = vec![0; (end + AHEAD - self.allocated) as usize];
            // Without room for them there may be some for the group.
            if self.file.write_all_at(&zeros, self.allocated).is_ok() {
                self.allocated = end + AHEAD;
            }
        }
        self.file.write_all_at(group, self.whole)?;
        self.file.sync_data()?;
        self.whole = end;
        self.allocated = self.allocated.max(end);
        Ok(())
    }
}

/// A state that is being written. It has another name until it is complete.
pub(crate) struct StateWriter {
    file: File,
    dir: PathBuf,
    number: u64,
    group: GroupBuffer,
    account: Account,
    written: u64,
    unsynced: usize,
    is_complete: bool,
}

impl StateWriter {
    /// `revision`: that of the store.
    pub fn create(dir: &Path, number: u64, revision: u64) -> io::Result<Self> {
        let name = Name::state(number);
        let mut file = create(&unfinished(dir, number))?;
        file.write_all(&name.header())?;
        let account = Account { revision, follows: revision, objects: 0, digest: 0 };
        let written = HEADER_LEN as u64;
        Ok(Self {
            file,
            dir: dir.into(),
            number,
            group: GroupBuffer::new(),
            account,
            written,
            unsynced: 0,
            is_complete: false,
        })
    }

    /// Adds an object; `sum` is the checksum in its record.
    pub fn add(&mut self, key: &str, record: &[u8], sum: u64) -> io::Result<()> {
        self.group.add(key, record, false);
        self.account.objects += 1;
        self.account.digest = self.account.digest.wrapping_add(sum);
        if self.group.len() >= STATE_GROUP { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> io::Result<()> {
        let group = self.group.finish(&self.account);
        self.file.write_all(group)?;
        self.written += group.len() as u64;
        self.unsynced += group.len();
        self.group.clear();
        if self.unsynced >= STATE_UNSYNCED {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// What the state contains so far.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Completes the state. It counts when this returns. The result is its length.
    pub fn finish(mut self) -> io::Result<u64> {
        self.write()?;
        // A group of its own: it says what there was, also if the others are damaged.
        self.account.follows = 0;
        self.write()?;
        self.file.sync_all()?;
        std::fs::rename(unfinished(&self.dir, self.number), Name::state(self.number).path(&self.dir))?;
        self.is_complete = true;
        sync_directory(&self.dir)?;
        Ok(self.written)
    }
}

/// A state that was given up takes no room.
impl Drop for StateWriter {
    fn drop(&mut self) {
        if !self.is_complete {
            let _ = std::fs::remove_file(unfinished(&self.dir, self.number));
        }
    }
}

fn unfinished(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.state.{UNFINISHED}"))
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)
}

pub(crate) fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
