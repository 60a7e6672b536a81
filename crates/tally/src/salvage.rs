//! `tally check` and `tally salvage`: what is damaged in a store, and everything that can be read of it in a new one.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tally_store::backup::RESTORE_STEP;
use tally_store::salvage::{DamagedObject, Inspection, inspect};
use tally_store::{OpenError, Store, StoreOptions};

use crate::backup::told;
use crate::data_dir::{NewState, backup_files, quoted};

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally check ./d                     check the data directory ./d, which no process may be using
  tally salvage ./d --to ./new        copy everything that can be read

Exit code 0: nothing is damaged; 1: something is, and is listed, or the directory cannot be checked; 2: bad usage.")]
pub struct CheckArgs {
    /// A data directory, or the directory of a store
    directory: PathBuf,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  tally check ./d                     list what is damaged
  tally salvage ./d --to ./new        copy everything else, and the keys
  tally up --data-dir ./new           go on with it

The damaged directory is not changed. The logs of Pods and the records of attempts are not copied.

Exit code 0: everything was copied; 1: something could not be read, and is listed, or nothing could be copied; 2: bad
usage.")]
pub struct SalvageArgs {
    /// A data directory, or the directory of a store
    directory: PathBuf,
    /// The data directory to make. It must not have a store
    #[arg(long, value_name = "NEWDIR")]
    to: PathBuf,
}

/// Returns whether nothing is damaged.
pub fn check(args: &CheckArgs) -> Result<bool> {
    let mut sound = false;
    let done = report(&args.directory).map(|(report, is_sound)| {
        sound = is_sound;
        report
    });
    Ok(told(done) && sound)
}

/// Returns whether everything was copied.
pub fn salvage(args: &SalvageArgs) -> Result<bool> {
    let mut complete = false;
    let done = copy(args).map(|(report, is_complete)| {
        complete = is_complete;
        report
    });
    Ok(told(done) && complete)
}

/// The store of a data directory; also of one that is itself a store.
fn store_in(directory: &Path) -> PathBuf {
    let below = directory.join("store");
    if below.exists() { below } else { directory.to_owned() }
}

fn read(directory: &Path) -> Result<Inspection> {
    match inspect(&store_in(directory)) {
        Err(error @ OpenError::Held { .. }) => Err(anyhow::Error::from(error)
            .context("a directory can be checked only while no process uses it; tally backup needs no stop")),
        other => Ok(other?),
    }
}

fn report(directory: &Path) -> Result<(String, bool)> {
    let found = read(directory)?;
    let mut text = describe(&found);
    let mut is_sound = found.is_sound();
    drop(found);
    if is_sound {
        // The last word is that of the code that has to use it.
        match Store::open_to_read(&store_in(directory), StoreOptions::default()) {
            Ok(store) => store.close(),
            Err(error) => {
                is_sound = false;
                let _ = writeln!(text, "it cannot be opened all the same: {:#}", anyhow::Error::from(error));
            }
        }
    } else {
        let directory = quoted(directory);
        let _ = writeln!(text, "to copy what can be read: tally salvage {directory} --to NEWDIR");
    }
    Ok((text, is_sound))
}

fn copy(args: &SalvageArgs) -> Result<(String, bool)> {
    let found = read(&args.directory)?;
    if found.readable() == 0 && !found.is_sound() {
        bail!("nothing can be read in {}:\n{}", quoted(&args.directory), describe(&found).trim_end());
    }
    let state = NewState::begin(&args.to)?;
    found.build(&state.store(), found.revision.saturating_add(RESTORE_STEP))?;
    let mut text = describe(&found);
    // A store that is not in a data directory has no keys beside it.
    let mut complete = found.complete;
    match backup_files(&args.directory, true) {
        Ok(files) => files.iter().try_for_each(|file| state.write(file))?,
        Err(error) => {
            complete = false;
            let _ = writeln!(text, "the keys are not copied, so kubeconfigs and tokens become invalid: {error:#}");
        }
    }
    state.finish().context("cannot complete the new directory")?;
    let _ = writeln!(text, "{} objects are in {}", found.readable(), quoted(&args.to));
    Ok((text, complete))
}

/// One line for each damaged place and object, and one for the whole.
fn describe(found: &Inspection) -> String {
    let mut text = String::new();
    for damage in found.damages.iter().chain(&found.unfinished) {
        let at = damage.at.map(|at| format!(", from byte {at}")).unwrap_or_default();
        let _ = writeln!(text, "{}{at}: {}", quoted(&damage.path), damage.what);
    }
    for object in &found.objects {
        let _ = match object {
            DamagedObject::Lost { key } => writeln!(text, "{key}: cannot be read"),
            DamagedObject::Older { key, revision } => {
                writeln!(text, "{key}: its newest state cannot be read; that of revision {revision} can")
            }
        };
    }
    let (readable, revision) = (found.readable() as u64, found.revision);
    let _ = match found.expected {
        _ if found.is_sound() => writeln!(text, "{readable} objects at revision {revision}; nothing is damaged"),
        _ if found.complete => writeln!(text, "all {readable} objects of revision {revision} can be read"),
        Some(expected) if readable < expected => {
            writeln!(text, "{readable} of {expected} objects of revision {revision} can be read")
        }
        Some(_) => writeln!(
            text,
            "{readable} objects of revision {revision} can be read, but some are older than they were, or had been deleted"
        ),
        None => writeln!(text, "{readable} objects can be read; how many there were is not known"),
    };
    text
}
