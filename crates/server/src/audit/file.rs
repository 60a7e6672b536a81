//! A file of lines that is rotated by size.
//!
//! The file and its backups are readable by their owner only. A backup has the time of its rotation in its name:
//! `audit.log` becomes `audit-2026-01-31T12-00-00.000000.log`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub struct RotatingFile {
    path: PathBuf,
    max_bytes: u64,
    max_backups: usize,
    file: File,
    /// Bytes of whole lines.
    length: u64,
    /// False for a device or a pipe, which are not rotated.
    is_regular: bool,
    /// Another file has been begun since this was last asked for.
    has_begun_again: bool,
}

impl RotatingFile {
    /// `max_backups` 0 keeps all of them.
    pub fn open(path: &Path, max_bytes: u64, max_backups: usize) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let about = file.metadata()?;
        if about.is_file() && about.permissions().mode() & 0o077 != 0 {
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
        }
        let (path, length, is_regular) = (path.to_owned(), about.len(), about.is_file());
        Ok(Self { path, max_bytes, max_backups, file, length, is_regular, has_begun_again: false })
    }

    pub fn is_rotated(&self) -> bool {
        self.is_regular
    }

    /// Whether lines go to another file than when this was last asked.
    pub fn has_begun_again(&mut self) -> bool {
        std::mem::take(&mut self.has_begun_again)
    }

    fn begin_again(&mut self) -> io::Result<()> {
        *self = Self::open(&self.path, self.max_bytes, self.max_backups)?;
        self.has_begun_again = true;
        Ok(())
    }

    /// Appends whole lines. After an error none of them is in the file.
    pub fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_regular {
            self.open_again_if_moved()?;
            if self.length > 0 && self.length + lines.len() as u64 > self.max_bytes {
                self.rotate()?;
            }
        }
        let written = self.file.write_all(lines);
        match &written {
            Ok(()) => self.length += lines.len() as u64,
            // A full disk may have taken a part of a line.
            Err(_) if self.is_regular => self.file.set_len(self.length)?,
            Err(_) => {}
        }
        written
    }

    /// Another program may have moved or removed the file, to rotate it by its own rules.
    fn open_again_if_moved(&mut self) -> io::Result<()> {
        let own = self.file.metadata()?;
        let is_same = fs::metadata(&self.path).is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino()));
        if !is_same {
            self.begin_again()?;
        }
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let backup = loop {
            let at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H-%M-%S.%6f").to_string();
            let backup = self.path.with_file_name(self.named(&at));
            if !backup.exists() {
                break backup;
            }
        };
        fs::rename(&self.path, backup)?;
        self.begin_again()?;
        self.remove_old_backups();
        Ok(())
    }

    /// The name of the file with `at` before its extension.
    fn named(&self, at: &str) -> String {
        let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let (stem, extension) = (text(self.path.file_stem()), text(self.path.extension()));
        if extension.is_empty() { format!("{stem}-{at}") } else { format!("{stem}-{at}.{extension}") }
    }

    fn remove_old_backups(&self) {
        if self.max_backups == 0 {
            return;
        }
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let shape = self.named("\0");
        let Some((before, after)) = shape.split_once('\0') else { return };
        let is_backup = |name: &str| {
            let at = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            at.is_some_and(|at| {
                at.len() == "2026-01-31T12-00-00.000000".len() && at.starts_with(|c: char| c.is_ascii_digit())
            })
        };
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut backups: Vec<String> = names.filter(|name| is_backup(name)).collect();
        // The names are in the order of the times in them.
        backups.sort_unstable();
        let too_many = backups.len().saturating_sub(self.max_backups);
        for name in backups.iter().take(too_many) {
            // What cannot be removed now is tried again at the next rotation.
            let _ = fs::remove_file(directory.join(name));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_file_is_rotated_before_it_is_too_large_and_old_backups_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        fs::write(directory.path().join("audit-of-another-program.log"), "").unwrap();
        let mut file = RotatingFile::open(&path, 10, 2).unwrap();
        for (line, backups) in
            [("12345678\n", 0), ("\n", 0), ("x\n", 1), ("0123456789012\n", 2), ("y\n", 2), ("z\n", 2)]
        {
            file.write(line.as_bytes()).unwrap();
            let found = names(directory.path());
            assert_eq!(found.len() - 2, backups, "after {line:?}: {found:?}");
            let whole = fs::read_to_string(&path).unwrap();
            assert!(whole.ends_with(line) && whole.ends_with('\n'), "{whole:?}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "y\nz\n");
        for name in names(directory.path()) {
            let mode = fs::metadata(directory.path().join(&name)).unwrap().permissions().mode() & 0o777;
            assert!(mode == 0o600 || name.contains("another"), "{name} has the mode {mode:o}");
        }
    }

    #[test]
    fn a_file_that_exists_is_continued_and_closed_to_others() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit");
        fs::write(&path, "a\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let mut file = RotatingFile::open(&path, 100, 2).unwrap();
        file.write(b"b\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::rename(&path, directory.path().join("moved")).unwrap();
        file.write(b"c\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "c\n");
    }

    #[test]
    fn a_device_that_is_full_is_an_error_and_not_rotated() {
        let mut file = RotatingFile::open(Path::new("/dev/full"), 1, 1).unwrap();
        for _ in 0..2 {
            assert_eq!(file.write(b"a\n").unwrap_err().kind(), io::ErrorKind::StorageFull);
        }
    }
}
