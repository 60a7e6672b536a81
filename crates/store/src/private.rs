//! Files that only their owner can read, whatever the umask is.
//!
//! The engine makes its files and directories by the umask, which belongs to the whole process, and which processes of Pods
//! inherit. The default access control list of a directory takes its place, for everything that is made in the directory and
//! below it. A file system without such lists leaves the files to the umask, in a directory that is closed to others.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{XattrFlags, setxattr};

/// For the owner everything, for others nothing, in the form of `acl(5)`: the version, then tag, permissions and an ID that
/// these three do not have.
const ONLY_OWNER: [u8; 28] = {
    const USER: u8 = 0x01;
    const GROUP: u8 = 0x04;
    const OTHER: u8 = 0x20;
    const NONE: u8 = 0xff;
    [
        2, 0, 0, 0, //
        USER, 0, 7, 0, NONE, NONE, NONE, NONE, //
        GROUP, 0, 0, 0, NONE, NONE, NONE, NONE, //
        OTHER, 0, 0, 0, NONE, NONE, NONE, NONE,
    ]
};

/// Closes a directory to others, with all that is in it and all that will be made in it. What cannot be closed stays as it is:
/// the directory above it is closed.
pub fn close(directory: &Path) {
    let _ = std::fs::set_permissions(directory, Permissions::from_mode(0o700));
    let _ = setxattr(directory, "system.posix_acl_default", &ONLY_OWNER, XattrFlags::empty());
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => close(&entry.path()),
            Ok(kind) if kind.is_file() => {
                let _ = std::fs::set_permissions(entry.path(), Permissions::from_mode(0o600));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn what_is_in_a_closed_directory_is_for_its_owner() {
        // The umask belongs to the process: files that are open in spite of it are made so.
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = |name: &str| directory.path().join(name);
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        fs::create_dir(at("old")).unwrap();
        fs::write(at("old/file"), "").unwrap();
        for (name, open) in [("old", 0o755), ("old/file", 0o666), ("", 0o755)] {
            fs::set_permissions(at(name), Permissions::from_mode(open)).unwrap();
        }
        close(directory.path());
        assert_eq!(["", "old", "old/file"].map(mode), [0o700, 0o700, 0o600]);
        fs::create_dir_all(at("old/new/deep")).unwrap();
        File::create(at("old/new/deep/file")).unwrap();
        assert_eq!(["old/new", "old/new/deep", "old/new/deep/file"].map(mode), [0o700, 0o700, 0o600]);
    }
}
