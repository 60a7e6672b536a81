//! How long the disk takes to make data durable: every durable write of a server waits for it.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

const SYNCS: usize = 200;
/// A page: the least that a file system writes.
const BYTES: usize = 4096;

/// The median of 200 fdatasync of 4 KiB, each after the one before in the same file.
pub fn sync_time(directory: &Path) -> Result<Duration> {
    let path = directory.join(format!("tally-bench-sync-{}", std::process::id()));
    let measured = measure(&path).with_context(|| format!("cannot write to {}", directory.display()));
    let _ = fs::remove_file(&path);
    measured
}

fn measure(path: &Path) -> std::io::Result<Duration> {
    let mut file = File::create(path)?;
    // A journal writes into space that was allocated before: the size of the file does not change with each write.
    file.write_all(&vec![0; BYTES * SYNCS])?;
    file.sync_all()?;
    file.seek(SeekFrom::Start(0))?;
    let mut took = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let began = Instant::now();
        file.write_all(&[1; BYTES])?;
        file.sync_data()?;
        took.push(began.elapsed());
    }
    took.sort_unstable();
    Ok(took.get(SYNCS / 2).copied().unwrap_or_default())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    #[test]
    fn what_was_written_is_removed() {
        let directory = tally_testing::scratch();
        super::sync_time(directory.path()).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let gone = super::sync_time(&directory.path().join("nowhere")).unwrap_err();
        assert!(format!("{gone:#}").contains("nowhere"), "{gone:#}");
    }
}
