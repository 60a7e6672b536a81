//! Where a cluster keeps what it has: its data directory, and the objects in it.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use tally_registry::Registry;
use tally_server::Machine;
use tally_store::{OpenError, Options, Store};

/// The verbs on a store, and the objects that every cluster starts with.
pub async fn begin(store: Store) -> Result<Arc<Registry>> {
    let registry = Arc::new(Registry::new(store, Box::new(Machine)));
    let begun = registry.begin().await;
    begun.map_err(|failure| anyhow!("cannot create the objects a cluster starts with: {}", failure.message))?;
    Ok(registry)
}

/// Gone with its handle.
pub fn temporary_directory() -> Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("tally-").tempdir().context("cannot make a temporary directory; set TMPDIR")
}

/// As a shell takes it.
pub fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:@%".contains(letter);
    if text.chars().all(is_plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// What a start has made so far. Unless it is kept, it is taken away again.
#[derive(Default)]
pub struct Made {
    /// Taken away if nothing is in them: somebody else may have put something there meanwhile.
    directories: Vec<PathBuf>,
    /// Ours alone, with all that is in them.
    whole: Vec<PathBuf>,
}

impl Made {
    /// The directory that a cluster keeps everything in.
    pub fn data_directory(&mut self, data: &Path) -> Result<()> {
        self.directory(data).with_context(|| {
            format!("cannot make the data directory {}; choose another with --data-dir", data.display())
        })
    }

    /// The objects in it. Nobody else may have them open.
    pub fn store(&mut self, data: &Path) -> Result<Store> {
        let objects = data.join("store");
        self.note_missing(&objects);
        let opened = Store::open(&objects, Options::default()).inspect_err(|error| {
            if matches!(error, OpenError::Held { .. }) {
                // Another tally has just made it.
                self.keep();
            }
        });
        Ok(opened?)
    }

    /// Makes a directory for its owner only, with the directories above it.
    pub fn directory(&mut self, path: &Path) -> io::Result<()> {
        let missing: Vec<&Path> = path.ancestors().take_while(|above| !above.exists()).collect();
        for above in missing.into_iter().rev() {
            match DirBuilder::new().mode(0o700).create(above) {
                Ok(()) => self.directories.push(above.to_owned()),
                // Another start was faster.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        // Something is there, and is it a directory?
        std::fs::read_dir(path).map(drop)
    }

    /// Somebody is about to make this.
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

impl Drop for Made {
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
    fn what_was_made_for_nothing_is_taken_away() {
        let directory = tempfile::tempdir().unwrap();
        let (old, new) = (directory.path().join("old"), directory.path().join("new/deep"));
        std::fs::create_dir(&old).unwrap();
        for kept in [false, true] {
            let mut made = Made::default();
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
    fn what_somebody_else_put_there_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/deep");
        let mut made = Made::default();
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
