//! Where a cluster stores its state: the data directory and the objects in it.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use tally_api::pod_security::PodIds;
use tally_core::gates::FeatureGates;
use tally_registry::Registry;
use tally_server::{SystemEnv, pki};
use tally_store::backup::BackupFile;
use tally_store::{OpenError, Store, StoreOptions};

/// Opens a registry on a store and creates the objects that every cluster starts with.
pub async fn begin(store: Store, gates: FeatureGates, pod_ids: PodIds) -> Result<Arc<Registry>> {
    let registry = Registry::new(store, Box::new(SystemEnv)).with_gates(gates).with_pod_ids(pod_ids);
    let registry = Arc::new(registry);
    let begun = registry.begin().await;
    begun.map_err(|failure| anyhow!("cannot create the initial objects of the cluster: {}", failure.message))?;
    Ok(registry)
}

/// Adds what a Pod has that names no user: to name it gives nothing more. Root's group is not added, because a Pod may
/// name another user with it.
pub fn with_own_ids(mut ids: PodIds) -> PodIds {
    let user = rustix::process::geteuid();
    ids.users.add(user.as_raw());
    if !user.is_root() {
        ids.groups.add(rustix::process::getegid().as_raw());
    }
    ids
}

/// How long to wait for a shim to end its processes. Usually this takes a few milliseconds.
const GONE_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// A directory for this process only. It is removed on drop, or by the next run if this process was killed.
pub struct Temporary {
    path: PathBuf,
    /// Locked while this process lives; the kernel releases the lock however the process ends.
    _held: OwnedFd,
}

impl Temporary {
    pub fn new() -> Result<Self> {
        let parent = std::env::temp_dir();
        let prefix = temporary_prefix();
        if let Some(prefix) = &prefix {
            sweep(&parent, prefix);
        }
        let prefix = prefix.as_deref().unwrap_or("tally-");
        // Another process that sweeps may remove the directory before it is locked.
        for _ in 0..100 {
            // Not by the umask: it has keys and a kubeconfig.
            let own = Permissions::from_mode(0o700);
            let made = tempfile::Builder::new().prefix(prefix).permissions(own).tempdir_in(&parent);
            let made = made.context("cannot create a temporary directory; set TMPDIR")?;
            if let Some(held) = hold(made.path()) {
                return Ok(Self { path: made.keep(), _held: held });
            }
        }
        bail!("cannot lock a temporary directory in {}; set TMPDIR", parent.display())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let until = Instant::now() + GONE_WITHIN;
        wait_for_shim(&self.path);
        // A process that still writes may add a file during the removal.
        while let Err(error) = std::fs::remove_dir_all(&self.path)
            && error.kind() == io::ErrorKind::DirectoryNotEmpty
            && Instant::now() < until
        {
            std::thread::sleep(LOOK_AGAIN_AFTER);
        }
    }
}

/// Waits until the shim that works below a directory, if any, has ended all its processes, but no longer than
/// `GONE_WITHIN`.
pub fn wait_for_shim(directory: &Path) {
    let until = Instant::now() + GONE_WITHIN;
    while has_shim(directory) && Instant::now() < until {
        std::thread::sleep(LOOK_AGAIN_AFTER);
    }
}

fn has_shim(directory: &Path) -> bool {
    let lock = rustix::fs::open(directory.join("node/lock"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK))
}

/// A prefix for directories that this machine has created since its last boot: the locks of other machines may not be
/// visible. `None`: the boot ID cannot be read.
fn temporary_prefix() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let boot = boot.get(..8).filter(|boot| boot.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    Some(format!("tally-{boot}-"))
}

/// Locks a directory that still exists. The process that has the lock may use or remove the directory.
fn hold(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    flock(&directory, FlockOperation::NonBlockingLockExclusive).ok()?;
    let (held, there) = (rustix::fs::fstat(&directory).ok()?, std::fs::symlink_metadata(path).ok()?);
    (there.dev() == held.st_dev && there.ino() == held.st_ino).then_some(directory)
}

/// Removes directories that killed processes of this user left behind. A locked directory stays.
fn sweep(parent: &Path, prefix: &str) {
    let user = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok) {
        let path = entry.path();
        let ours = |found: std::fs::Metadata| found.is_dir() && found.uid() == user;
        if !entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)) || !entry.metadata().is_ok_and(ours)
        {
            continue;
        }
        // The shim of a killed process may still be running.
        if let Some(_held) = hold(&path)
            && !has_shim(&path)
        {
            tally_node::shim::end_left_behind(&path.join("node"));
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

/// The name that the node of a data directory has, to which Pods are bound.
const NODE_NAME: &str = "node/name";

/// The files that a backup contains beside the objects: the keys, and the name of the node.
pub fn backup_files(data: &Path, keys: bool) -> Result<Vec<BackupFile>> {
    let mut files = if keys { pki::kept_files(&data.join("pki"))? } else { Vec::new() };
    match std::fs::read(data.join(NODE_NAME)) {
        Ok(name) => files.push((NODE_NAME.to_owned(), name)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", data.join(NODE_NAME).display())),
    }
    Ok(files.into_iter().map(|(path, content)| BackupFile { path, content: content.into() }).collect())
}

/// Whether the file is a key.
pub fn is_key(file: &BackupFile) -> bool {
    file.path.starts_with("pki/")
}

/// A data directory that is being made of a backup or of another directory. Everything is put into a directory inside it
/// and moved to its place at the end, the store last: a process that is killed before leaves no store, and the next one
/// begins again.
pub struct NewState {
    data: PathBuf,
    inside: PathBuf,
    /// Locked while this process lives.
    _held: OwnedFd,
}

impl NewState {
    const INSIDE: &str = "restoring";

    /// Refuses a directory that has a store.
    pub fn begin(data: &Path) -> Result<Self> {
        let name = quoted(data);
        if data.join("store").exists() {
            bail!("{name} has a store; choose another directory, or move this one away");
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(data);
        made.with_context(|| format!("cannot make the directory {name}"))?;
        let held = hold(data).ok_or_else(|| anyhow!("another process makes a store in {name}"))?;
        let inside = data.join(Self::INSIDE);
        match std::fs::remove_dir_all(&inside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", inside.display()));
            }
            _ => {}
        }
        let made = DirBuilder::new().mode(0o700).create(&inside);
        made.with_context(|| format!("cannot make a directory in {name}"))?;
        Ok(Self { data: data.to_owned(), inside, _held: held })
    }

    pub fn store(&self) -> PathBuf {
        self.inside.join("store")
    }

    /// Writes a file of a backup. No other files than those of `backup_files` are accepted.
    pub fn write(&self, file: &BackupFile) -> Result<()> {
        if file.path == NODE_NAME {
            let path = self.inside.join(NODE_NAME);
            let made = DirBuilder::new().mode(0o700).create(self.inside.join("node"));
            let written = made.and_then(|()| {
                let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
                out.write_all(&file.content)?;
                out.sync_all()
            });
            return written.with_context(|| format!("cannot write {}", path.display()));
        }
        match pki::restore_file(&self.inside, &file.path, &file.content)? {
            true => Ok(()),
            false => bail!("the file {} in the backup is not known to this version", file.path),
        }
    }

    pub fn finish(self) -> Result<()> {
        let sync = |path: &Path| std::fs::File::open(path).and_then(|directory| directory.sync_all());
        let name = quoted(&self.data);
        for part in ["pki", "node"] {
            let (new, there) = (self.inside.join(part), self.data.join(part));
            if !new.exists() {
                continue;
            }
            sync(&new).with_context(|| format!("cannot sync {}", new.display()))?;
            if !there.exists() {
                std::fs::rename(&new, &there).with_context(|| format!("cannot make {}", there.display()))?;
            } else if !has_same_files(&new, &there)? {
                let what = if part == "pki" { "the keys of another cluster" } else { "the files of another node" };
                bail!("{name} has {what}, in {}; choose another directory", quoted(&there));
            }
        }
        sync(&self.store()).with_context(|| format!("cannot sync the store in {name}"))?;
        std::fs::rename(self.store(), self.data.join("store"))
            .with_context(|| format!("cannot put the store into {name}"))?;
        sync(&self.data).with_context(|| format!("cannot sync {name}"))
    }
}

impl Drop for NewState {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.inside);
    }
}

/// Whether each file of one directory is in the other one, with the same content.
fn has_same_files(one: &Path, other: &Path) -> Result<bool> {
    for file in std::fs::read_dir(one).with_context(|| format!("cannot read {}", one.display()))? {
        let path = file.with_context(|| format!("cannot read {}", one.display()))?.path();
        let content = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let there = path.file_name().and_then(|name| std::fs::read(other.join(name)).ok());
        if there.as_ref() != Some(&content) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Quotes a path for a shell.
pub fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:@%".contains(letter);
    if text.chars().all(is_plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// What a start has created so far. It is removed on drop, unless `keep` was called.
#[derive(Default)]
pub struct CreatedPaths {
    /// Removed only if they are empty: another process may have put files there in the meantime.
    directories: Vec<PathBuf>,
    /// Created by this process alone; removed with their contents.
    whole: Vec<PathBuf>,
}

impl CreatedPaths {
    /// Creates the data directory of a cluster.
    pub fn data_directory(&mut self, data: &Path) -> Result<()> {
        self.directory(data).with_context(|| {
            format!("cannot use the data directory {}; choose another with --data-dir", data.display())
        })
    }

    /// Opens the store in the data directory. No other process may have it open.
    pub fn store(&mut self, data: &Path) -> Result<Store> {
        let objects = data.join("store");
        let interrupted = data.join(NewState::INSIDE);
        if interrupted.exists() && !objects.exists() {
            bail!(
                "a restore or salvage into {} did not come to its end; repeat it, or remove {} to start with an empty store",
                quoted(data),
                quoted(&interrupted)
            );
        }
        self.note_missing(&objects);
        let opened = Store::open(&objects, StoreOptions::default()).inspect_err(|error| {
            if matches!(error, OpenError::Held { .. }) {
                // Another tally process has just created it.
                self.keep();
            }
        });
        Ok(opened?)
    }

    /// Creates a directory that only its owner can access, with its missing parents.
    pub fn directory(&mut self, path: &Path) -> io::Result<()> {
        let missing: Vec<&Path> = path.ancestors().take_while(|above| !above.exists()).collect();
        for above in missing.into_iter().rev() {
            match DirBuilder::new().mode(0o700).create(above) {
                Ok(()) => self.directories.push(above.to_owned()),
                // Another process created it first.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        // Fails if the path exists but is not a readable directory.
        std::fs::read_dir(path).map(drop)
    }

    /// Notes a path that is about to be created, if it does not exist yet.
    pub fn note_missing(&mut self, path: &Path) {
        if !path.exists() {
            self.whole.push(path.to_owned());
        }
    }

    pub fn keep(&mut self) {
        self.directories.clear();
        self.whole.clear();
    }
}

impl Drop for CreatedPaths {
    fn drop(&mut self) {
        for path in &self.whole {
            let _ = std::fs::remove_dir_all(path);
        }
        for path in self.directories.iter().rev() {
            let _ = std::fs::remove_dir(path);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_without_a_process_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = parent.path().join(name);
            std::fs::create_dir_all(path.join("node")).unwrap();
            std::fs::write(path.join("node/lock"), "").unwrap();
            path
        };
        let [dead, alive, killed, other] =
            ["tally-1-dead", "tally-1-alive", "tally-1-killed", "tally-2-other"].map(make);
        let held = hold(&alive).unwrap();
        assert!(hold(&alive).is_none(), "it is held already");
        // Its shim still runs.
        let shim = std::fs::File::open(killed.join("node/lock")).unwrap();
        flock(&shim, FlockOperation::NonBlockingLockExclusive).unwrap();
        std::os::unix::fs::symlink(&other, parent.path().join("tally-1-link")).unwrap();
        sweep(parent.path(), "tally-1-");
        assert_eq!([&dead, &alive, &killed, &other].map(|path| path.exists()), [false, true, true, true]);
        drop((held, shim));
        sweep(parent.path(), "tally-1-");
        assert_eq!([&alive, &killed, &other].map(|path| path.exists()), [false, false, true]);
        assert!(hold(&alive).is_none(), "it is gone");
    }

    #[test]
    fn what_was_made_for_nothing_is_taken_away() {
        let directory = tempfile::tempdir().unwrap();
        let (old, new) = (directory.path().join("old"), directory.path().join("new/deep"));
        std::fs::create_dir(&old).unwrap();
        for kept in [false, true] {
            let mut made = CreatedPaths::default();
            made.directory(&old).unwrap();
            made.directory(&new).unwrap();
            made.note_missing(&old.join("pki"));
            std::fs::create_dir(old.join("pki")).unwrap();
            if kept {
                made.keep();
            }
            drop(made);
            assert!(old.exists());
            let there = [&new, &old.join("pki"), &directory.path().join("new")].map(|path| path.exists());
            assert_eq!(there, [kept; 3]);
        }
    }

    #[test]
    fn files_of_others_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/deep");
        let mut made = CreatedPaths::default();
        made.directory(&path).unwrap();
        std::fs::write(directory.path().join("new/theirs"), "").unwrap();
        drop(made);
        assert!(directory.path().join("new/theirs").exists() && !path.exists());
    }

    #[test]
    fn commands_can_be_pasted() {
        assert_eq!(quoted(Path::new("/a/b-c.d")), "/a/b-c.d");
        assert_eq!(quoted(Path::new("/a b/it's")), "'/a b/it'\\''s'");
    }
}
