//! `tally backup` and `tally restore`: all objects of a data directory, and the keys of `tally up`, in one file.
//!
//! A directory that a process uses is backed up by that process, on the socket in it; otherwise its store is opened and
//! read. Both give the same file: one revision, with checksums.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use http_body_util::BodyExt;
use rustix::fs::{FlockOperation, flock};
use tally_core::time::Timestamp;
use tally_registry::Env;
use tally_server::SystemEnv;
use tally_store::backup::{BackupItem, BackupReader, RESTORE_STEP};
use tally_store::{OpenError, Store, StoreBuilder, StoreOptions};

use crate::data_dir::{NewState, backup_files, is_key, quoted};
use crate::local_api;
use crate::terminal;
use crate::up::default_data_dir;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally backup tally.bak                     back up tally up, running or not
  tally backup d.bak --data-dir ./d          the same for another data directory, also one of tally run
  tally restore tally.bak --data-dir ./new   make a data directory of it

The file contains all objects at one revision, Secrets too, and the keys with which kubeconfigs and tokens were made: only
its owner can read it. It does not contain the logs of Pods and the records of attempts. docs/backup.md says more.

Exit code 0: written; 1: it cannot be written or read; 2: bad usage.")]
pub struct BackupArgs {
    /// The file to write
    file: PathBuf,
    /// Data directory of tally up or tally run [default: that of tally up, ~/.local/share/tally]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// Leave out the keys: kubeconfigs and tokens are not valid for a cluster that is restored from it
    #[arg(long)]
    without_keys: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally restore tally.bak --data-dir ./new    make a data directory of a backup
  tally up --data-dir ./new                   go on from there

The revision of the restored cluster is higher than any that clients of the old one can have seen: their watches are told
to list again. Restart controllers that were connected to the old cluster.

Exit code 0: restored; 1: the backup or the directory cannot be used, and nothing was changed; 2: bad usage.")]
pub struct RestoreArgs {
    /// The backup
    file: PathBuf,
    /// The data directory to make. It must not have a store
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
}

/// A process that has just taken the directory serves its socket soon.
const SERVED_WITHIN: Duration = Duration::from_secs(3);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Returns whether the command succeeded.
pub fn backup(args: &BackupArgs) -> Result<bool> {
    Ok(told(write(args)))
}

/// Returns whether the command succeeded.
pub fn restore(args: &RestoreArgs) -> Result<bool> {
    Ok(told(read(args)))
}

/// Prints the outcome of a command. Exit code 2 means bad usage; errors of the environment have exit code 1.
pub fn told(done: Result<String>) -> bool {
    match done {
        Ok(text) => {
            terminal::print(&text);
            true
        }
        Err(error) => {
            terminal::tell(format_args!("{error:#}"));
            false
        }
    }
}

fn write(args: &BackupArgs) -> Result<String> {
    let data = match &args.data_dir {
        Some(directory) => directory.clone(),
        None => default_data_dir()?,
    };
    if !data.join("store").exists() {
        bail!("{} has no state of tally; choose a directory with --data-dir", quoted(&data));
    }
    let name = args.file.display();
    if args.file.symlink_metadata().is_ok() && !args.force {
        bail!("{name} exists; give another name, or --force to replace it");
    }
    let file = PartialFile::create(&args.file).with_context(|| format!("cannot write {name}"))?;
    let mut out = BufWriter::new(file.file.as_file());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(encode(args, &data, &mut out))?;
    out.flush().with_context(|| format!("cannot write {name}"))?;
    drop(out);
    file.file.as_file().sync_all().with_context(|| format!("cannot write {name}"))?;
    // Read back: what is promised is a file that can be restored.
    let summary = Summary::read(file.file.path())?;
    file.finish(args.force)?;
    Ok(format!("{name}: {summary}\n"))
}

/// Writes the backup, by the process that has the directory or from its store.
async fn encode(args: &BackupArgs, data: &Path, out: &mut impl Write) -> Result<()> {
    let until = std::time::Instant::now() + SERVED_WITHIN;
    loop {
        let query = if args.without_keys { "/backup?keys=false" } else { "/backup" };
        if let Some(mut response) = local_api::get(data, query).await {
            if response.status() != 200 {
                let code = response.status();
                let text = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                bail!(
                    "the process that uses {} answers {code} {}; if it is of an earlier version, stop it first",
                    quoted(data),
                    String::from_utf8_lossy(&text).trim()
                );
            }
            while let Some(frame) = response.body_mut().frame().await {
                let frame = frame.context("the process that uses the directory ended before the backup did")?;
                if let Some(piece) = frame.data_ref() {
                    out.write_all(piece).context("cannot write the backup")?;
                }
            }
            return Ok(());
        }
        match Store::open_to_read(&data.join("store"), StoreOptions::default()) {
            Ok(store) => {
                // Read while no other process can have the directory.
                let files = backup_files(data, !args.without_keys)?;
                // Everything is in memory: others may have the directory.
                store.close();
                for piece in store.backup(files, SystemEnv.now().seconds()) {
                    out.write_all(&piece).context("cannot write the backup")?;
                }
                return Ok(());
            }
            Err(OpenError::Held { .. }) if std::time::Instant::now() < until => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
    }
}

/// A file that is being written beside its later name, readable by its owner only. It is locked while its process lives,
/// and removed by the next backup of the same name if the process was killed.
struct PartialFile {
    file: tempfile::NamedTempFile,
    path: PathBuf,
}

impl PartialFile {
    fn create(path: &Path) -> std::io::Result<Self> {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().ok_or_else(|| std::io::Error::other("it is not the name of a file"))?;
        let prefix = format!(".{}.partial-", name.to_string_lossy());
        for entry in std::fs::read_dir(directory)?.filter_map(Result::ok) {
            let is_partial = entry.file_name().to_string_lossy().starts_with(&prefix);
            if is_partial
                && let Ok(file) = File::open(entry.path())
                && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        let file = tempfile::Builder::new().prefix(&prefix).tempfile_in(directory)?;
        flock(file.as_file(), FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Gives the file its name. No other process sees a part of it under that name.
    fn finish(self, replace: bool) -> Result<()> {
        let name = self.path.display();
        let persisted = match replace {
            true => self.file.persist(&self.path),
            false => self.file.persist_noclobber(&self.path),
        };
        persisted.map_err(|error| match error.error.kind() {
            std::io::ErrorKind::AlreadyExists => anyhow!("{name} exists; give another name, or --force to replace it"),
            _ => anyhow!("cannot write {name}: {}", error.error),
        })?;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.with_context(|| format!("cannot sync {}", directory.display()))
    }
}

/// What a backup contains.
struct Summary {
    objects: u64,
    has_keys: bool,
    revision: u64,
    begun_at: i64,
}

impl Summary {
    fn read(path: &Path) -> Result<Self> {
        let mut reader = open(path)?;
        let mut summary =
            Self { objects: 0, has_keys: false, revision: reader.revision(), begun_at: reader.begun_at() };
        for item in &mut reader {
            match item.with_context(|| format!("the backup that was written to {}", path.display()))? {
                BackupItem::Object(_) => summary.objects += 1,
                BackupItem::File(file) => summary.has_keys |= is_key(&file),
            }
        }
        Ok(summary)
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys = if self.has_keys { " and the keys" } else { ", without keys" };
        let at = Timestamp::from_seconds(self.begun_at);
        write!(f, "{} objects at revision {}{keys}, of {at}", self.objects, self.revision)
    }
}

fn open(path: &Path) -> Result<BackupReader<BufReader<File>>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    BackupReader::open(BufReader::with_capacity(256 * 1024, file)).with_context(|| format!("{}", path.display()))
}

fn read(args: &RestoreArgs) -> Result<String> {
    let name = args.file.display();
    let refused = || format!("{name} cannot be restored, and nothing was changed: the file");
    let mut reader = open(&args.file)?;
    let state = NewState::begin(&args.data_dir)?;
    let revision = reader.revision().saturating_add(RESTORE_STEP);
    let mut summary = Summary { objects: 0, has_keys: false, revision, begun_at: reader.begun_at() };
    let mut store = StoreBuilder::create(&state.store(), revision)?;
    for item in &mut reader {
        match item.with_context(refused)? {
            BackupItem::Object(entry) => {
                store.add(&entry)?;
                summary.objects += 1;
            }
            BackupItem::File(file) => {
                state.write(&file)?;
                summary.has_keys |= is_key(&file);
            }
        }
    }
    store.finish()?;
    state.finish()?;
    Ok(format!("{} has {summary}\n", quoted(&args.data_dir)))
}
