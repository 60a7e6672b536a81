//! Files that only their owner may read.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Writes a file with mode 0600, atomically: it is written in the same directory, under a name that cannot exist yet,
/// and then renamed. At no moment can another user open it.
pub fn write_private(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"))?;
    let beside = directory.join(format!(".{}.{:016x}", name.to_string_lossy(), fastrand::u64(..)));
    let written = write_new(&beside, content.as_ref()).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // Best effort: the caller already gets the error of the write.
        let _ = fs::remove_file(&beside);
    }
    written?;
    // The rename survives a crash only once the directory is synced too.
    File::open(directory)?.sync_all()
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Creates a directory that only its owner may access, or removes the access of others to an existing one.
pub fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let permissions = fs::metadata(path)?.permissions();
    if permissions.mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn private_files_replace_public_ones_and_leave_nothing_beside() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write_private(&path, "new").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("new", 0o600));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        write_private(&directory.path().join("no/such"), "x").unwrap_err();
        fs::create_dir(directory.path().join("taken")).unwrap();
        write_private(&directory.path().join("taken"), "x").unwrap_err();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn an_open_directory_is_closed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        private_directory(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        private_directory(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
    }
}
